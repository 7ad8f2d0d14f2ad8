#!/usr/bin/env bash
# CVXPY 1.9.3 with Clarabel 0.11.1: the answer of a parametrised program depends on the values it had before.
#
# Clarabel is an interior-point method without warm starts, so one would expect that a program with new values of
# its cvxpy.Parameter is solved as if it were new. With the default warm_start=True, CVXPY hands the new data to
# the solver object of the last solve, which keeps the scaling (equilibration) of the old data, and with it other
# effective tolerances. Where gradients have shrunk since then, as they do in training, the min-norm weights differ
# in the second digit, both times with the status "optimal". warm_start=False gives the answer of a new program.
#
# Who is concerned: multi-objective methods that compile their weight program once and solve it at every step.
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cvxpy==1.9.3 clarabel==0.11.1 numpy==2.4.6 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import cvxpy as cp
import numpy as np

gradients = np.random.default_rng(0).standard_normal((5, 3))  # one column per objective


def weights(sizes, **options):
    """min |J w|^2 on the simplex for J = size * gradients, one size after the other; the last answer."""
    J = cp.Parameter((5, 3))
    w = cp.Variable(3, nonneg=True)
    program = cp.Problem(cp.Minimize(cp.sum_squares(J @ w)), [cp.sum(w) == 1])
    for size in sizes:
        J.value = size * gradients
        program.solve(solver="CLARABEL", **options)
        assert program.status == "optimal", program.status
    return w.value


print("cvxpy", cp.__version__)
new = weights([1e-4])
after = weights([1e3, 1e-4])
cold = weights([1e3, 1e-4], warm_start=False)
print("new program, gradients of 1e-4:           ", new.round(4))
print("the same values after gradients of 1e3:   ", after.round(4))
print("the same with warm_start=False:           ", cold.round(4))
assert np.abs(after - new).max() > 0.01, "the answer no longer depends on earlier values"
assert np.array_equal(cold, new), "warm_start=False no longer gives the answer of a new program"
PY
