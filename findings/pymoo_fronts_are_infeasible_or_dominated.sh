#!/usr/bin/env bash
# pymoo 0.6.2: pareto_front() of C3-DTLZ1 has no feasible point, that of DC1- and DC3-DTLZ hardly any, and half of the points that it
# returns for DTLZ7 and WFG2 with two objectives are dominated by others.
#
# C3-DTLZ1 demands f_m + sum f >= 1 of every objective m (Jain and Deb 2014), so that its front lies on these constraints; pymoo returns
# the front of DTLZ1 without constraints, sum f = 1/2, where every f_m would have to be 1/2. DC1- and DC3-DTLZ (Li et al. 2018) leave
# strips and islands of the unconstrained front, and pymoo returns all of it. DTLZ7 with two or four objectives is returned for all
# f_1, ..., f_{M-1} in [0, 1], and WFG2 for all position parameters, although their fronts are disconnected. IGD and the like, and
# hypervolumes relative to the front, are wrong accordingly: no method can reach the value 0, and infeasible points are rewarded.
#
# The solutions of these points are written out below, and so are the constraints (those of DC as pymoo has them). Fails if
# the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps pymoo==0.6.2 numpy==2.4.6 scipy==1.17.1 \
    moocore==0.3.2 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
from pymoo.problems.many.cdtlz import C1DTLZ1, C3DTLZ1
from pymoo.problems.many.dcdtlz import DC1DTLZ1, DC1DTLZ3, DC3DTLZ1, DC3DTLZ3
from pymoo.problems.many.dtlz import DTLZ7
from pymoo.problems.many.wfg import WFG2

print("pymoo", version("pymoo"))
for make in (C1DTLZ1, C3DTLZ1, DC1DTLZ1, DC1DTLZ3, DC3DTLZ1, DC3DTLZ3):
    problem = make()
    F = problem.pareto_front()
    X = np.full((len(F), problem.n_var), 0.5)  # the solutions of F: DTLZ1 is linear, DTLZ3 in polar coordinates
    if "DTLZ1" in make.__name__:
        assert np.allclose(F.sum(1), 0.5)
        X[:, 0] = 2 * (F[:, 0] + F[:, 1])
        X[:, 1] = F[:, 0] / np.maximum(F[:, 0] + F[:, 1], 1e-300)
    else:
        assert np.allclose((F**2).sum(1), 1)
        X[:, 0] = 2 / np.pi * np.arcsin(np.minimum(F[:, 2], 1))
        X[:, 1] = 2 / np.pi * np.arctan2(F[:, 1], F[:, 0])
    out = problem.evaluate(X, return_as_dictionary=True)
    assert np.allclose(out["F"], F)
    feasible = (out["G"] <= 1e-9).all(1)
    by_formula = {
        "C1DTLZ1": lambda: F[:, 2] / 0.6 + (F[:, 0] + F[:, 1]) / 0.5 <= 1 + 1e-9,
        "C3DTLZ1": lambda: (F + F.sum(1, keepdims=True) >= 1 - 1e-9).all(1),
        "DC1DTLZ": lambda: np.cos(5 * np.pi * X[:, 0]) >= 0.95 - 1e-9,
        "DC3DTLZ": lambda: (np.cos(5 * np.pi * X[:, :2]) >= 0.5 - 1e-9).all(1),
    }[make.__name__[:7]]()
    assert np.array_equal(feasible, by_formula)
    print(f"{make.__name__}: {feasible.sum()} of the {len(F)} points of pareto_front() are feasible")
    share = feasible.mean()
    assert share == 1 if make is C1DTLZ1 else share == 0 if make is C3DTLZ1 else 0 < share < 0.25


def dominated(F, step=1):
    return np.array([((F <= f).all(1) & (F < f - 1e-9).any(1)).any() for f in F[::step]])


for problem, name in ((DTLZ7(n_obj=2), "DTLZ7, 2 objectives"), (DTLZ7(n_obj=4), "DTLZ7, 4 objectives"),
                      (WFG2(n_var=8, n_obj=2), "WFG2, 2 objectives"), (WFG2(n_var=8, n_obj=3), "WFG2, 3 objectives")):
    F = problem.pareto_front()
    bad = dominated(F, 1 + len(F) // 1001)
    print(f"{name}: {bad.sum()} of {len(bad)} points of pareto_front() are dominated by others of them ({len(F)} in all)")
    assert bad.mean() > (0.1 if "3" in name else 0.3)
# one of DTLZ7 in closed form: f_2 = 4 - f_1 (1 + sin(3 pi f_1)) is 4 at f_1 = 1/2 and 11/3 at f_1 = 1/6
F = DTLZ7(n_obj=2).pareto_front()
i = np.argmin(abs(F[:, 0] - 0.5))
assert np.allclose(F[:, 1], 4 - F[:, 0] * (1 + np.sin(3 * np.pi * F[:, 0])))
better = DTLZ7(n_obj=2, n_var=2).evaluate(np.array([[1 / 6, 0.0]]))[0]
print("of DTLZ7:", F[i].round(4).tolist(), "is dominated by the objectives of x = (1/6, 0, ...):", better.round(4).tolist())
assert np.allclose(better, [1 / 6, 11 / 3]) and (better < F[i]).all()
PY
