#!/usr/bin/env bash
# jMetalPy 1.9.0: LIR-CMOP5 and LIR-CMOP6, problems with large infeasible regions, have no infeasible solution.
#
# Both objectives of these problems (Fan et al. 2019) are shifted by 0.7057, and two ellipses around (1.6, 1.6) and (2.5, 2.5), or (1.8,
# 1.8) and (2.8, 2.8), are forbidden. In jMetalPy the second shift is 7057: the decimal point is missing. All of the objective space lies
# 7000 away from the ellipses, so that every solution satisfies both constraints, and a comparison of methods for constraints measures
# none. In LIR-CMOP9, 10, 11 and 12 the second objective is scaled by 1.7957 instead of 1.7057, and the wave of the constraint runs in
# the wrong direction (sin(-pi/4) for sin(pi/4)), so that other solutions are feasible. No message says so.
#
# The right values are the published formulas, which are written out below, and those of cmo 0.1.9, whose source is read with a
# placeholder for its base class, since it would need pymoo. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps jmetalpy==1.9.0 cmo==0.1.9 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import sys
import types
from importlib.metadata import version

import numpy as np
from jmetal.problem.multiobjective import lircmop


class Base:
    """In the place of the base class: it keeps what the problems give it."""

    def __init__(self, **fields):
        self.__dict__ |= fields


utils = types.ModuleType("cmo.problems.utils")
utils.CMOP, utils.load_pareto_front_from_file = Base, None
sys.modules["cmo.problems.utils"] = utils
from cmo.problems import lircmop as reference  # noqa: E402

n = 30
i = np.arange(2, n, 2)  # counted from 0: x_3, x_5, ...
j = np.arange(1, n, 2)
corner = np.pi / 4


def formula(number, x):
    """Objectives and constraints, satisfied from 0 on, of LIR-CMOP5, 6, 9 and 10."""
    g1 = ((x[i] - np.sin(0.5 * i / n * np.pi * x[0])) ** 2).sum()
    g2 = ((x[j] - np.cos(0.5 * j / n * np.pi * x[0])) ** 2).sum()
    h = 1 - (np.sqrt(x[0]) if number in (5, 10) else x[0] ** 2)
    if number < 9:
        f = np.array([x[0] + 10 * g1 + 0.7057, h + 10 * g2 + 0.7057])
    else:
        f = 1.7057 * np.array([x[0] * (10 * g1 + 1), h * (10 * g2 + 1)])

    def ellipse(p, q, a, b):
        along = (f[0] - p) * np.cos(-corner) - (f[1] - q) * np.sin(-corner)
        across = (f[0] - p) * np.sin(-corner) + (f[1] - q) * np.cos(-corner)
        return (along / a) ** 2 + (across / b) ** 2 - 0.1

    def wave(c):
        return f[0] * np.sin(corner) + f[1] * np.cos(corner) - np.sin(4 * np.pi * (f[0] * np.cos(corner) - f[1] * np.sin(corner))) - c

    constraints = {
        5: lambda: [ellipse(1.6, 1.6, 2, 4), ellipse(2.5, 2.5, 2, 8)],
        6: lambda: [ellipse(1.8, 1.8, 2, 8), ellipse(2.8, 2.8, 2, 8)],
        9: lambda: [ellipse(1.4, 1.4, 1.5, 6), wave(2)],
        10: lambda: [ellipse(1.1, 1.2, 2, 4), wave(1)],
    }[number]()
    return f, np.array(constraints)


print("jMetalPy", version("jmetalpy"), " cmo", version("cmo"))
rng = np.random.default_rng(0)
X = np.zeros((2000, n))  # solutions near the optimal distance variables, where g1 and g2 are small
X[:, 0] = rng.random(2000)
X[:, i] = np.sin(0.5 * i / n * np.pi * X[:, [0]])
X[:, j] = np.cos(0.5 * j / n * np.pi * X[:, [0]])
X[:, 1:] = np.clip(X[:, 1:] + rng.random((2000, 1)) * rng.uniform(-0.25, 0.25, (2000, n - 1)), 0, 1)
for number in (5, 6, 9, 10):
    problem = getattr(lircmop, f"LIRCMOP{number}")()
    there = getattr(reference, f"LIRCMOP{number}")()._fn(X)  # constraints are satisfied up to 0
    F, feasible, right, allowed = [], [], [], []
    for x in X:
        solution = problem.create_solution()
        solution.variables = [float(v) for v in x]
        problem.evaluate(solution)
        F.append(solution.objectives)
        feasible.append(min(solution.constraints) >= 0)
        f, c = formula(number, x)
        right.append(f)
        allowed.append(min(c) >= 0)
    F, right, feasible, allowed = np.array(F), np.array(right), np.array(feasible), np.array(allowed)
    assert np.allclose(there[:, :2], right) and np.array_equal((there[:, 2:] <= 0).all(1), allowed)
    print(f"LIR-CMOP{number}: {feasible.sum()} of {len(X)} solutions are feasible, by the definition {allowed.sum()}; "
          f"{(feasible != allowed).sum()} are judged otherwise; first solution: {F[0].round(4).tolist()} instead of {right[0].round(4).tolist()}")
    assert np.allclose(F[:, 0], right[:, 0])
    if number < 9:
        assert feasible.all() and allowed.mean() < 0.5
        assert np.allclose(F[:, 1] - right[:, 1], 7057 - 0.7057)
    else:
        assert (feasible != allowed).mean() > 0.1
        assert np.allclose(F[:, 1] / right[:, 1], 1.7957 / 1.7057)
for number in (11, 12):  # by cmo's formulas alone
    problem = getattr(lircmop, f"LIRCMOP{number}")()
    there = getattr(reference, f"LIRCMOP{number}")()._fn(X)
    differ = 0
    for x, right in zip(X, there):
        solution = problem.create_solution()
        solution.variables = [float(v) for v in x]
        problem.evaluate(solution)
        assert np.allclose(np.array(solution.objectives) / right[:2], [1, 1.7957 / 1.7057])
        differ += (min(solution.constraints) >= 0) != (max(right[2:]) <= 0)
    print(f"LIR-CMOP{number}: {differ} of {len(X)} solutions are judged otherwise than in cmo")
    assert differ > 0.1 * len(X)
PY
