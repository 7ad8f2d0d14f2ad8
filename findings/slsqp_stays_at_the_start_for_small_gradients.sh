#!/usr/bin/env bash
# SciPy 1.17.1: minimize(method="SLSQP"), the default for a program with bounds and constraints, reports "Optimization
# terminated successfully" at its starting point when the gradients of a min-norm program are of size 1e-2 or less.
#
# The stopping rule compares the decrease of w'Gw with ftol = 1e-6 as an absolute number, and G = JJ' is of the order
# of the squared gradients. Training code that finds task weights this way (equal weights as the start) therefore
# returns equal weights, without a word, once the gradients have become small; scaling G by its trace changes nothing
# mathematically and gives the right weights at every size.
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
from scipy.optimize import minimize

J = np.random.default_rng(0).standard_normal((3, 20))


def weights(G):
    """argmin w'Gw on the simplex, from equal weights."""
    return minimize(
        lambda w: w @ G @ w,
        np.full(3, 1 / 3),
        jac=lambda w: 2 * G @ w,
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(3)},
    )


print("scipy", scipy.__version__)
G = J @ J.T
for size in (1.0, 1e-2, 1e-3):
    plain = weights(size**2 * G)
    scaled = weights(G / np.trace(G))
    print(f"gradients of {size:g}: {plain.x.round(3)} after {plain.nit} iterations, {plain.message!r}; scaled {scaled.x.round(3)}")
    assert plain.success
assert np.abs(weights(G).x - 1 / 3).max() > 0.1, "these weights are not equal"
assert np.array_equal(plain.x, np.full(3, 1 / 3)), "small gradients no longer end at the start"
assert np.abs(weights(G).x - scaled.x).max() < 0.01
PY
