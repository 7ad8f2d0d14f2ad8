#!/usr/bin/env bash
# SciPy 1.17.1 (HiGHS inside): linprog calls a point optimal that violates a constraint by its whole size, where the entries of the
# constraint are 1e-9 or smaller.
#
# HiGHS drops entries of the matrix of constraints that are not above small_matrix_value = 1e-9, an absolute number, as its
# tolerances are. Methods such as EPO solve linear programs in K = JJ', whose entries are squares of gradients: with gradients of
# size 3e-5 the row that keeps the second objective from rising is gone; with 1e-5 the objective counts as 0, too, and the point
# returned makes the first objective, which was to improve, worse. The status is 0 both times, and nothing is said. The same program,
# divided by the largest entry of K, is solved at every size.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check scipy==1.17.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import scipy
from scipy.optimize import linprog


def solve(K):
    """Weights on the simplex with the largest (K w)_1 among those with (K w)_2 >= 0."""
    return linprog(-K[0], A_ub=-K[1:], b_ub=[0.0], A_eq=[[1.0, 1.0]], b_eq=[1.0], method="highs")


print("SciPy", scipy.__version__)
J = np.array([[1.4, 0.2], [-0.8, 0.6]])  # two gradients in conflict
seen = {}
for size in (1.0, 1e-3, 3e-5, 1e-5):
    K = (size * J) @ (size * J).T
    plain, scaled = solve(K), solve(K / np.abs(K).max())
    unit = np.abs(K).max()
    seen[size] = plain.status, K @ plain.x / unit, scaled.x
    print(f"gradients x {size:g}: status {plain.status}, w = {plain.x.round(4)}, K w over the largest entry of K: "
          f"{seen[size][1].round(3)}; of the scaled program: w = {scaled.x.round(4)}")
assert all(status == 0 for status, _, _ in seen.values())
assert min(seen[1.0][1]) > -1e-9 and min(seen[1e-3][1]) > -1e-3
assert seen[3e-5][1][1] < -0.1 and seen[1e-5][1][0] < -0.1
assert all(np.allclose(right, seen[1.0][2]) for _, _, right in seen.values())
PY
