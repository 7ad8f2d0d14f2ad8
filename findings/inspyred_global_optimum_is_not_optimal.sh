#!/usr/bin/env bash
# inspyred 1.0.3: global_optimum() of DTLZ1 returns no optimal solution, and that of DTLZ7 mostly dominated ones.
#
# The method promises "a solution that lives on the Pareto front". For DTLZ1 it sets the distance variables to 0, where g is 25 for each
# of them; the optimum is 1/2, where g is 0 (Deb et al. 2002). With three objectives and seven variables the objectives add up to 63
# instead of 1/2: every objective is 126 times as large as at the optimum, and a random search finds better ones. For DTLZ7 the first
# M - 1 variables are drawn from all of [0, 1], although the front is disconnected and lies over about a quarter of the square for three
# objectives. Fronts that are sampled this way, for an IGD, a reference point or a picture, lie far behind the true one, and a run seems
# to beat the optimum. DTLZ2 to DTLZ6 are right. No message says so.
#
# The fronts are written out below; the objectives themselves agree with optproblems 1.3. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps inspyred==1.0.3 optproblems==1.3 diversipy==0.9 \
    numpy==2.2.6 click==8.5.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import random
from importlib.metadata import version

import numpy as np
from inspyred import benchmarks
from optproblems import dtlz

print("inspyred", version("inspyred"), " optproblems", version("optproblems"))
random.seed(0)
rng = np.random.default_rng(0)
M = 3


def dominated(point, by):
    return ((by <= point).all(1) & (by < point).any(1)).any()


for i in range(1, 8):
    n = M + 4 if i == 1 else M + 19 if i == 7 else M + 9
    problem, other = getattr(benchmarks, f"DTLZ{i}")(n, M), getattr(dtlz, f"DTLZ{i}")(M, n)

    def objectives(X):
        values = np.array([list(fitness.values) for fitness in problem.evaluator([list(x) for x in X], {})])
        assert np.allclose(values, [other.objective_function(list(x)) for x in X])
        return values

    X = np.array([problem.global_optimum() for _ in range(500)], dtype=float)
    found = objectives(X)
    if i == 1:
        X[:, M - 1 :] = 0.5
        best, chance = objectives(X), objectives(rng.random((10000, n))).sum(1)
        print(f"DTLZ1: the objectives of global_optimum() add up to {found.sum(1).min():g}, with 1/2 for the distance variables to "
              f"{best.sum(1).max():g}, and at the best of 10000 random solutions to {chance.min():.1f}")
        assert np.allclose(best.sum(1), 0.5) and np.allclose(found, 126 * best) and chance.min() < 63
    elif i == 7:
        a, b = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201))
        grid = np.zeros((a.size, n))
        grid[:, 0], grid[:, 1] = a.ravel(), b.ravel()
        f1, f2 = grid[:, :2].T
        f3 = 6 - f1 * (1 + np.sin(3 * np.pi * f1)) - f2 * (1 + np.sin(3 * np.pi * f2))  # (1 + g) h with g = 1
        assert np.allclose(objectives(grid[::50]), np.stack([f1, f2, f3], 1)[::50])
        worse = np.mean([dominated(f, np.stack([f1, f2, f3], 1)) for f in found])
        print(f"DTLZ7: {100 * worse:.0f} percent of the points of global_optimum() are dominated by other points with the same g")
        assert worse > 0.6
    else:
        assert np.allclose((found**2).sum(1), 1), i
PY
