#!/usr/bin/env bash
# jMetalPy 1.9.0: UF9 is another problem, with many local fronts, and in UF1, UF2, UF3 and UF7 the second variable has no effect.
#
# The distance terms of UF9 are squares, y_j^2 (Zhang et al. 2009). jMetalPy sums 2 y_j^2 - cos(4 pi y_j) + 1, the terms of UF5, which
# have a local minimum near every multiple of a half: where there was one minimum along a distance variable there are nine. UF1, UF2,
# UF3 and UF7 sum over j = 2, ..., n, and jMetalPy begins with j = 3: a solution stays optimal whatever its second variable is. UF3 also
# lets the variables run from -1, not from 0. Values, and ranks of methods, cannot be compared with those of other libraries or of papers.
# UF4, UF5, UF6, UF8 and UF10 agree. No message says so.
#
# The formulas are written out below, and pygmo 2.20.0 agrees with them. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps jmetalpy==1.9.0 numpy==2.2.6 tqdm==4.70.1 \
    pygmo==2.20.0 cloudpickle==3.1.3 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import pygmo
from jmetal.problem.multiobjective import uf

n = 30
print("jmetalpy", version("jmetalpy"), " pygmo", version("pygmo"))
j = np.arange(1, n + 1)


def value(problem, x):
    solution = problem.create_solution()
    solution.variables = list(x)
    return np.array(problem.evaluate(solution).objectives)


def uf9(x, term):
    """UF9 with epsilon = 0.1; the term is y^2 by definition."""
    y = x - 2 * x[1] * np.sin(2 * np.pi * x[0] + j * np.pi / n)
    sums = [2 * term(y[group]).mean() for group in (j[3::3] - 1, j[4::3] - 1, j[2::3] - 1)]
    bump = max(0, 1.1 * (1 - 4 * (2 * x[0] - 1) ** 2))
    return np.array([(bump + 2 * x[0]) * x[1] / 2, (bump - 2 * x[0] + 2) * x[1] / 2, 1 - x[1]]) + sums


rng = np.random.default_rng(0)
for i in range(1, 11):
    here = getattr(uf, f"UF{i}")()
    there = pygmo.problem(pygmo.cec2009(prob_id=i, is_constrained=False, dim=n))
    low, high = there.get_bounds()
    X = low + rng.random((50, n)) * (high - low)
    ours, theirs = np.array([value(here, x) for x in X]), np.array([there.fitness(x) for x in X])
    difference = abs(ours - theirs).max()
    if i in (4, 5, 6, 8, 10):
        assert difference < 1e-9, i
        continue
    if i == 9:
        assert np.allclose(theirs, [uf9(x, np.square) for x in X])
        assert np.allclose(ours, [uf9(x, lambda y: 2 * y**2 - np.cos(4 * np.pi * y) + 1) for x in X])
        excess = theirs.sum(1).mean(), ours.sum(1).mean()
        print(f"UF9, 50 random solutions: the objectives add up to {excess[0]:.1f} in the mean by definition, {excess[1]:.1f} in jMetalPy")
        # all distance variables but one at the optimum: the way of that one along its range
        x = X[0].copy()
        x[2:] = (2 * x[1] * np.sin(2 * np.pi * x[0] + j * np.pi / n))[2:]
        optimum, line = x[9], np.linspace(-2, 2, 4001)
        ways = []
        for evaluate in (there.fitness, lambda x: value(here, x)):
            way = [evaluate(np.r_[x[:9], at, x[10:]]).sum() for at in line]
            ways.append(sum(way[k] < min(way[k - 1], way[k + 1]) for k in range(1, 4000)))
        print(f"    local minima along one of its 28 distance variables: {ways[0]} by definition, {ways[1]} in jMetalPy; optimum {optimum:.3f}")
        assert ways[0] == 1 and ways[1] >= 5
        continue
    Y = X.copy()
    Y[:, 1] = low[1] + rng.random(50) * (high[1] - low[1])
    assert np.array_equal(ours, [value(here, x) for x in Y])
    moved = abs(theirs - [there.fitness(x) for x in Y]).max()
    print(f"UF{i}: another second variable changes the objectives by up to {moved:.3f} by definition, and by 0 in jMetalPy")
    assert moved > 0.1
assert min(uf.UF3().lower_bound) == -1 and min(pygmo.problem(pygmo.cec2009(3, False, n)).get_bounds()[0]) == 0
PY
