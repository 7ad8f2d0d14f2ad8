#!/usr/bin/env bash
# pygmo 2.20.0: the problem wfg(8) is not WFG8, and the published optimal solutions are not optimal in it.
#
# In WFG8 (Huband et al. 2006) every distance parameter is biased by the mean of the parameters before it, u = r_sum(y_1, ..., y_{i-1}).
# pygmo takes the mean of those that it has already transformed. The published solution for the distance parameters, from which
# Pareto-optimal points of WFG8 are sampled, gives points on the front, sum (f_m / 2m)^2 = 1, in optproblems 1.3, and in pygmo points
# that lie 0.3 behind it in every objective (the median of 300; the ranges of the objectives are 2, 4 and 6). The other eight WFG
# problems agree. Whoever compares methods on WFG8, or measures distances to its front, gets other numbers than elsewhere.
#
# The closed form of both variants is written out below. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps pygmo==2.20.0 numpy==2.2.6 cloudpickle==3.1.2 \
    optproblems==1.3 diversipy==0.9 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
import pygmo
from optproblems import wfg

M, k, n = 3, 4, 10  # objectives, position parameters, variables
A, B, C = 0.98 / 49.98, 0.02, 50.0
upper = 2.0 * np.arange(1, n + 1)
S = 2.0 * np.arange(1, M + 1)


def exponent(u):
    return B + (C - B) * (A - (1 - 2 * u) * abs(np.floor(0.5 - u) + A))


def wfg8(z, transformed):
    """WFG8 with u taken from the parameters as they are (Huband et al.) or as they have been transformed."""
    y = z / upper
    t = y.copy()
    for i in range(k, n):
        t[i] = y[i] ** exponent((t if transformed else y)[:i].mean())
    t[k:] = abs(t[k:] - 0.35) / abs(np.floor(0.35 - t[k:]) + 0.35)
    a, b, distance = t[: k // 2].mean(), t[k // 2 : k].mean(), t[k:].mean()
    sin, cos = np.sin(np.pi / 2 * np.array([a, b])), np.cos(np.pi / 2 * np.array([a, b]))
    return distance + S * np.array([sin[0] * sin[1], sin[0] * cos[1], cos[0]])


def optimal(position):
    """The solution of Huband et al.: y_i^exponent(u) = 0.35 for all distance parameters, one after the other."""
    y = list(position)
    while len(y) < n:
        y.append(0.35 ** (1 / exponent(np.mean(y))))
    return np.array(y) * upper


print("pygmo", version("pygmo"), " optproblems", version("optproblems"))
rng = np.random.default_rng(0)
Z = rng.random((300, n)) * upper
optima = [optimal(position) for position in rng.random((300, k))]
for i in range(1, 10):
    there = pygmo.problem(pygmo.wfg(prob_id=i, dim_dvs=n, dim_obj=M, dim_k=k))
    other = getattr(wfg, f"WFG{i}")(M, n, k)
    gap = max(abs(there.fitness(z) - other.objective_function(list(z))).max() for z in Z)
    assert gap > 0.1 if i == 8 else gap < 1e-9, (i, gap)
    if i != 8:
        continue
    assert all(np.allclose(other.objective_function(list(z)), wfg8(z, False)) for z in Z)
    assert all(np.allclose(there.fitness(z), wfg8(z, True)) for z in Z)
    print(f"WFG8: largest difference of an objective at 300 random points: {gap:.3f} (the other WFG problems: below 1e-9)")
    front = [((np.array(other.objective_function(list(z))) / S) ** 2).sum() for z in optima]
    behind = [(there.fitness(z)[0] - wfg8(z, False)[0]) for z in optima]
    print(f"published optimal solutions: sum (f_m / 2m)^2 is {min(front):.6f} to {max(front):.6f} in optproblems; "
          f"pygmo's objectives lie up to {max(behind):.3f} behind the front, in the median {np.median(behind):.3f}")
    assert np.allclose(front, 1) and np.median(behind) > 0.05
    f = wfg8(optima[0], False)
    print("one of them:", f.round(4), "by the definition,", there.fitness(optima[0]).round(4), "in pygmo")
PY
