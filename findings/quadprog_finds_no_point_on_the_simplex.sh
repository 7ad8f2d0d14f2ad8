#!/usr/bin/env bash
# quadprog 0.1.14: "constraints are inconsistent, no solution" for weights on the simplex, once gradients are large.
#
# quadprog's Goldfarb-Idnani method is exact up to rounding, and other code is often compared with it. Yet whether it
# can step towards a violated constraint is decided by a squared length against an absolute number, and that length
# shrinks as the matrix grows. For G = diag(1, 2, 4) the min-norm weights are (4, 2, 1) / 7. Multiplied by 4^12 the
# program has the same solution, and quadprog's is the same to the last bit; multiplied by 4^13 it raises the error
# of an empty feasible set. Nothing here is ill-conditioned. This G belongs to orthogonal gradients of norms 8192,
# 11585 and 16384, as sums of losses over a batch can have them. A training loop that catches this error takes the step for
# one without a solution. Dividing G (and the linear term) by its trace cures it. The bounds w_k >= 1/3 without any
# equality, as in projections onto the dual cone, fail likewise.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check quadprog==0.1.14 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
import quadprog


def solve(G, C, b, equalities):
    """argmin w'Gw / 2 with C'w >= b, or the message of the error."""
    try:
        return quadprog.solve_qp(G, np.zeros(3), C, b, equalities)[0]
    except ValueError as error:
        return str(error)


def simplex(G):
    return solve(G, np.column_stack([np.ones(3), np.eye(3)]), np.array([1.0, 0, 0, 0]), 1)


def cone(G):
    return solve(G, np.eye(3), np.full(3, 1 / 3), 0)


print("quadprog", version("quadprog"))
G = np.diag([1.0, 2.0, 4.0])
first = {"simplex": simplex(G), "w >= 1/3": cone(G)}
assert np.allclose(first["simplex"], np.array([4, 2, 1]) / 7)  # G w is the same in all entries
assert np.allclose(first["w >= 1/3"], 1 / 3)  # G w > 0: no entry can be smaller
for power in (0, 11, 12, 13):
    print(f"4^{power:<2} G:  simplex {simplex(4.0**power * G)};  w >= 1/3 {cone(4.0**power * G)}")
assert all(np.array_equal(simplex(4.0**power * G), first["simplex"]) for power in range(13))
assert all(np.array_equal(cone(4.0**power * G), first["w >= 1/3"]) for power in range(12))
assert simplex(4.0**13 * G) == cone(4.0**12 * G) == "constraints are inconsistent, no solution"

rng = np.random.default_rng(0)
grams = [J @ J.T for J in 1e4 * rng.standard_normal((200, 3, 20)) / np.sqrt(20)]
lost = sum(isinstance(simplex(gram), str) for gram in grams)
scaled = sum(isinstance(simplex(gram / np.trace(gram)), str) for gram in grams)
print(f"200 draws of three gradients of norm about 1e4: {lost} errors, {scaled} after division by the trace")
assert lost > 100 and scaled == 0
PY
