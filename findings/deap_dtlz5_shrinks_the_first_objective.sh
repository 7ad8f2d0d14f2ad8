#!/usr/bin/env bash
# DEAP 1.4.4: in dtlz5 and dtlz6 the first objective is multiplied by a cosine of every distance variable.
#
# In DTLZ5 and DTLZ6 (Deb et al. 2002) the angles belong to the first M - 1 variables, and the others enter by g alone. DEAP forms the
# product in f_1 over the angles of all variables. With three objectives and twelve variables f_1 is 1/32 of its value at every
# Pareto-optimal solution, so that the curve on the unit sphere, f_1 = f_2, which other libraries sample as the front, is out of reach.
# Since f_1 can be pushed towards 0 by g, the set of optimal solutions is another, too: a tenth of random solutions, which are all far
# behind the front of DTLZ5, are not dominated by its optimum in DEAP. With two objectives DTLZ5 is DTLZ2 by definition, but DEAP's two
# functions differ. An IGD against the published front measures this error, and hypervolumes cannot be compared with those of other
# libraries. The other five DTLZ functions agree with optproblems 1.3. No message says so.
#
# The formulas are written out below. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps deap==1.4.4 numpy==2.2.6 moocore==0.3.2 \
    cffi==2.1.1 pycparser==3.12 platformdirs==4.14.8 optproblems==1.3 diversipy==0.9 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
from deap import benchmarks
from optproblems import dtlz

M, n = 3, 12
print("deap", version("deap"), " optproblems", version("optproblems"))


def formula(x, g):
    """DTLZ5 and DTLZ6 with three objectives; they differ in g only."""
    first, second = np.pi / 2 * x[0], np.pi / (4 * (1 + g)) * (1 + 2 * g * x[1])
    return (1 + g) * np.array([np.cos(first) * np.cos(second), np.cos(first) * np.sin(second), np.sin(first)])


distances = {5: lambda x: ((x[M - 1 :] - 0.5) ** 2).sum(), 6: lambda x: (x[M - 1 :] ** 0.1).sum()}
optimum = {5: 0.5, 6: 0.0}  # the value of the distance variables at the front
rng = np.random.default_rng(0)
X = rng.random((200, n))
for i in range(1, 8):
    function, other = getattr(benchmarks, f"dtlz{i}"), getattr(dtlz, f"DTLZ{i}")(M, n)
    alpha = (100,) if i == 4 else ()
    there = np.array([function(list(x), M, *alpha) for x in X])
    right = np.array([other.objective_function(list(x)) for x in X])
    if i not in (5, 6):
        assert np.allclose(there, right), i
        continue
    assert np.allclose(right, [formula(x, distances[i](x)) for x in X])
    assert np.allclose(there[:, 1:], right[:, 1:]) and (there[:, 0] < 0.3 * right[:, 0]).all()
    factor = there[:, 0] / right[:, 0]
    print(f"dtlz{i}, 200 random solutions: f_1 is {factor.min():.1e} to {factor.max():.1e} of its value, the other objectives are right")

    best = X.copy()
    best[:, M - 1 :] = optimum[i]
    there = np.array([function(list(x), M) for x in best])
    front = np.array([formula(x, 0.0) for x in best])
    assert np.allclose((front**2).sum(1), 1) and np.allclose(front[:, 0], front[:, 1])
    assert np.allclose(there[:, 0], front[:, 0] / 32) and np.allclose(there[:, 1:], front[:, 1:])
    gaps = np.linalg.norm(front[:, None] - there[None], axis=2).min(1)
    print(f"    at Pareto-optimal solutions it is 1/32; one of them: {front[0].round(4)} by definition, {np.round(there[0], 4)} in DEAP; "
          f"IGD of 200 of them {gaps.mean():.3f}")
    assert gaps.mean() > 0.1

# the best solutions of DTLZ5, one for each of 1001 angles, and random ones, which all lie behind the front
curve = np.full((1001, n), 0.5)
curve[:, 0] = np.linspace(0, 1, 1001)


def dominated(F, by):
    return ((by[None] <= F[:, None]).all(2) & (by[None] < F[:, None]).any(2)).any(1)


there = dominated(*[np.array([benchmarks.dtlz5(list(x), M) for x in points]) for points in (X, curve)]).mean()
right = dominated(*[np.array([formula(x, distances[5](x)) for x in points]) for points in (X, curve)]).mean()
print(f"of 200 random solutions the Pareto-optimal ones dominate {100 * right:.0f} percent in DTLZ5 and {100 * there:.0f} in DEAP's")
assert right == 1 and there < 0.95

pairs = [(benchmarks.dtlz2(list(x), 2), benchmarks.dtlz5(list(x), 2)) for x in X]
assert all(np.allclose(dtlz.DTLZ2(2, n).objective_function(list(x)), dtlz.DTLZ5(2, n).objective_function(list(x))) for x in X)
assert not any(np.allclose(a, b) for a, b in pairs)
print("two objectives, the same solution:", np.round(pairs[0][0], 4), "in dtlz2,", np.round(pairs[0][1], 4), "in dtlz5, which should be equal")
PY
