#!/usr/bin/env bash
# CVXPY 1.9.3 with OSQP 1.1.3: "infeasible" for a feasible program, once gradients are of size 1e-3.
#
# EPO chooses weights w on the simplex that maximise the descent of one objective while no other one rises:
#     max (G w)_1   s.t.  G w >= 0,  w >= 0,  sum w = 1,      G = J J'.
# It is always feasible: the min-norm weights satisfy G w >= 0. In units of the gradients nothing depends on their
# size, but OSQP's thresholds are absolute. At gradients of 1 it finds the solution, at 1e-3 it returns the status
# "infeasible", at 1e-4 "optimal" for the first unit vector, which raises the second objective. Clarabel and HiGHS
# return the right weights at these three sizes.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cvxpy==1.9.3 osqp==1.1.3 clarabel==0.11.1 highspy==1.16.0 numpy==2.4.6 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import cvxpy as cp
import numpy as np

J = np.random.default_rng(3).standard_normal((3, 20))
J[1] -= 1.2 * J[0]  # the second gradient is opposed to the first
G = J @ J.T


def weights(size, solver):
    w = cp.Variable(3, nonneg=True)
    program = cp.Problem(cp.Maximize(G[0] / abs(G).max() @ w), [size**2 * G @ w >= 0, cp.sum(w) == 1])
    program.solve(solver=solver)
    return program.status, w.value


print("cvxpy", cp.__version__)
_, right = weights(1.0, "CLARABEL")
assert (G @ right >= -1e-6).all()
for size, expected in ((1.0, "optimal"), (1e-3, "infeasible"), (1e-4, "optimal")):
    for solver in ("CLARABEL", "HIGHS"):
        assert np.allclose(weights(size, solver)[1], right, atol=1e-3), (solver, size)
    status, w = weights(size, "OSQP")
    slopes = "" if w is None else f"weights {w.round(3)}, G w = {(G @ w).round(2)}"
    print(f"gradients of {size:g}: OSQP says {status!r} {slopes}")
    assert status == expected, (size, status)
assert (G @ w)[1] < -1
PY
