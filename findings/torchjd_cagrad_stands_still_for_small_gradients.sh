#!/usr/bin/env bash
# TorchJD 0.18.0: CAGrad returns exactly zero as soon as the gradients together are shorter than 0.01, wherever the training is.
#
# CAGrad (Liu et al. 2021) takes the d with |d - g| <= c |g| that has the largest min_i g_i'd, where g is the mean of the gradients g_i. For
# c < 1 it is zero only where g is zero, and gradients of a tenth of the length give a tenth of d. TorchJD counts gradients whose squares sum
# to less than norm_eps = 0.0001 as zeros, and then all the weights are zero, those of the mean as well. So the same two distances are minimized
# in millimetres, with a step of 0.1, and in metres not a single step is taken, though nothing is stationary. Small losses, a loss divided
# by the number of its terms, or a late phase of the training are enough. Nothing warns, and norm_eps is documented as a small value "to avoid
# division by zero". CAGrad(c, norm_eps=1e-30) gives the direction at every length in the example.
#
# The direction is computed below and certified by its dual problem. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps torchjd==0.18.0 scipy==1.17.1 cvxpy==1.9.3 clarabel==0.11.1 cffi==2.1.1 qdldl==0.1.9.post1 sparsediffpy==0.6.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torchjd.aggregation import CAGrad

c = 0.5
torch.set_default_dtype(torch.float64)


def cagrad(J):
    """CAGrad's direction for two gradients: d = g + r g_w / |g_w| for the w with the least g'g_w + r |g_w|, where r = c |g|."""
    g = J.mean(0)
    r = c * np.linalg.norm(g)

    def mixed(w):
        return w * J[0] + (1 - w) * J[1]

    def dual(w):
        return g @ mixed(w) + r * np.linalg.norm(mixed(w))

    best = minimize_scalar(dual, bounds=(0, 1), options={"xatol": 1e-13})
    w = min((best.x, 0.0, 1.0), key=dual)
    d = g + r * mixed(w) / np.linalg.norm(mixed(w))
    # the certificate: d is feasible, and its value is that of the dual problem
    assert np.linalg.norm(d - g) <= r * (1 + 1e-9) and np.isclose((J @ d).min(), dual(w), rtol=1e-6, atol=0)
    return d


print("torchjd", version("torchjd"), "torch", version("torch").split("+")[0], "cvxpy", version("cvxpy"))
J = np.array([[1.0, 0.0], [-0.9, 0.3]])
right = cagrad(J)
for length in (1.0, 0.1, 0.01, 0.005, 0.001):
    assert np.allclose(cagrad(length * J), length * right, rtol=1e-5)
    found = CAGrad(c=c)(torch.tensor(length * J)).numpy()
    helped = CAGrad(c=c, norm_eps=1e-30)(torch.tensor(length * J)).numpy()
    print(f"gradients times {length:g}: CAGrad is {length:g} times {right.round(3)}, TorchJD's is {length:g} times {(found / length).round(3) + 0.0}")
    assert np.allclose(helped, length * right, rtol=1e-3)
    if (length * J**2 * length).sum() >= 1e-4:
        assert np.allclose(found, length * right, rtol=1e-3)
    else:
        assert (found == 0).all()


def train(unit):
    """Minimizes half the squared distances to two points, measured in the unit; returns the way from the segment between them, in mm."""
    points = torch.tensor([[0.0, 0.0], [4.0, 0.0]]) * unit
    x = torch.tensor([1.0, 3.0]) * unit
    for _ in range(80):
        x = x - 0.1 * CAGrad(c=c)(x - points)
    return (x[1] / unit).item()


way = {name: train(unit) for name, unit in (("millimetres", 1.0), ("metres", 0.001))}
for name, left in way.items():
    print(f"80 steps in {name}: {left:.4f} mm from the Pareto set, from 3 mm at the start")
assert abs(way["millimetres"]) < 0.01 and way["metres"] == 3.0
PY
