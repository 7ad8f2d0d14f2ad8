#!/usr/bin/env bash
# EvoX 1.4.0: the hypervolume counts points that are worse than the reference point as if they were better.
#
# The hypervolume is the volume of the points that are dominated by the set and dominate the reference point (Zitzler and Thiele 1998):
# a point with any objective beyond the reference point adds nothing. evox.metrics.hv takes the absolute value of the difference
# to the reference point, so that a point at a distance behind it counts like one at the same distance before it. A single point (3, 3)
# has the hypervolume 4 with the reference point (1, 1), 16 times that of (0.5, 0.5), and the farther a population lies behind the
# reference point, the larger is its value: a run that starts far from the front begins with its largest one, and of two methods the one
# that keeps bad points wins. Sets that lie before the reference point as a whole are measured correctly, up to the noise of sampling.
# No message says so.
#
# The right values are closed forms and those of moocore 0.3.2. It installs torch, which takes most of the time. Fails if the
# behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" --quiet --disable-pip-version-check install --no-compile)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps evox==1.4.0 moocore==0.3.2 cffi==2.1.1 pycparser==3.12 platformdirs==4.14.8 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import moocore
import numpy as np
import torch
from evox.metrics import hv

print("evox", version("evox"), " moocore", version("moocore"))
torch.manual_seed(0)


def compare(points, ref):
    """The hypervolume by moocore and in EvoX (with its 100000 samples)."""
    ref = np.full(points.shape[1], ref)
    return float(moocore.hypervolume(points, ref=ref)), hv(torch.tensor(points), torch.tensor(ref)).item()


for points, exact in (([[0.5, 0.5]], 0.25), ([[3.0, 3.0]], 0), ([[0.5, 0.5], [3.0, 0.9]], 0.25), ([[0.2, 0.8], [0.5, 0.5], [0.8, 0.2]], 0.37)):
    right, there = compare(np.array(points), 1.0)
    assert np.isclose(right, exact)
    print(f"{points}, reference point (1, 1): {right:.2f} by definition, {there:.2f} in EvoX")
    if np.max(points) < 1:
        assert abs(there - right) < 0.01
    else:
        assert there > right + 0.05

# a population at (1 + g) times the front of DTLZ2, from far away to the front
rng = np.random.default_rng(0)
sphere = rng.random((50, 3))
sphere /= np.linalg.norm(sphere, axis=1)[:, None]
values = []
for g in (4.0, 2.0, 1.0, 0.5, 0.0):
    values.append(compare((1 + g) * sphere, 1.1))
    print(f"DTLZ2, 50 points with g = {g}: {values[-1][0]:.3f} by definition, {values[-1][1]:.3f} in EvoX")
right, there = np.array(values).T
assert (np.diff(right) >= 0).all() and right[0] == 0 and right[-1] > 0.4
assert there[0] > 10 and there[0] == there.max() and abs(there[-1] - right[-1]) < 0.02
PY
