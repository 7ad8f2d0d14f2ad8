#!/usr/bin/env bash
# TorchJD 0.18.0: FairGrad turns into the plain sum of the gradients where these are short, and increases objectives that it must decrease.
#
# The weights of FairGrad (Ban and Ji 2024) solve JJ'w = w^(-1/alpha), with the power of each entry, so that the direction J'w decreases every
# objective, and with alpha = 1 it does not change if all gradients are a hundredth as long: the weights are a hundred times as large. TorchJD
# searches the weights by least squares from 1/m, and the search ends on the way: in the example near 512, however large they have to be.
# From gradients of the length 0.01 on, the direction goes over into that of the sum, where the longest gradient wins. At 0.003 the two sides
# of the equation have different signs for one of the two objectives, that is, the direction increases it. That is what FairGrad is made to
# prevent, and such lengths are common late in a training and with small losses. No warning is given, and max_iters does not help. Multiplying
# the Jacobian by a number so that its gradients have lengths about 1 does.
#
# For alpha = 1 and two gradients the weights have a closed form, which is tested by the equation. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps torchjd==0.18.0 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import torch
from torchjd.aggregation import FairGrad

torch.set_default_dtype(torch.float64)


def closed_form(J):
    """Both products (JJ'w)_i w_i are 1 for w_i = 1 / (|g_i| sqrt(1 + cos)), with the cosine between the two gradients."""
    lengths = np.linalg.norm(J, axis=1)
    w = 1 / lengths / np.sqrt(1 + J[0] @ J[1] / lengths.prod())
    assert np.allclose(J @ J.T @ w, 1 / w)
    return w


def cosines(J, d):
    return (J @ d / np.linalg.norm(J, axis=1) / np.linalg.norm(d)).round(3)


def torchjd(J, **options):
    """TorchJD's direction and the weights of the gradients in it."""
    d = FairGrad(alpha=1.0, **options)(torch.tensor(J)).numpy()
    return d, np.linalg.solve(J.T, d)


print("torchjd", version("torchjd"), "torch", version("torch").split("+")[0], "scipy", version("scipy"))
unit = np.array([[1.0, 0.2], [-0.3, 0.1]])
print("cosines of the two gradients with their sum:", cosines(unit, unit.sum(0)))
for length in (1.0, 0.1, 0.01, 0.003, 0.001, 0.0001):
    J = length * unit
    w = closed_form(J)
    found, weights = torchjd(J)
    right, seen = cosines(J, w @ J), cosines(J, found)
    products = J @ J.T @ weights * weights
    print(f"gradients times {length:g}: cosines {right} by the definition, {seen} in TorchJD; (JJ'w)w, which is to be 1: {products.round(4)}")
    assert (right > 0.25).all() and np.allclose(w, closed_form(unit) / length)
    assert np.allclose(torchjd(J, max_iters=100000)[0], found)
    assert np.allclose(torchjd(J / length)[0], w @ J, rtol=1e-4)
    if length >= 0.1:
        assert np.allclose(weights, w, rtol=1e-4)
    if length <= 0.003:
        assert seen[1] < -0.5 and products[1] < 0 and weights.max() < 1000 < w.max()
assert np.allclose(seen, cosines(unit, unit.sum(0)), atol=2e-3)
PY
