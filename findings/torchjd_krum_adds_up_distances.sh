#!/usr/bin/env bash
# TorchJD 0.18.0: Krum adds up distances where the method adds up squared distances, and takes other gradients than Krum.
#
# Krum (Blanchard et al. 2017) gives every gradient the score sum |V_i - V_j|^2 over its n - f - 2 nearest gradients, and takes the one with the
# least score; its proof rests on the squares. TorchJD leaves the square out. One large distance then weighs less beside several small ones, so that
# another gradient is the central one: of 9 normal gradients of two entries, in more than one of ten draws. The mean over the n_selected best
# differs more often. Results are hence those of another rule than the one that a paper names, and no message says so.
#
# The definition is written out below. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps torchjd==0.18.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import torch
from torchjd.aggregation import Krum

torch.set_default_dtype(torch.float64)


def krum(V, f, power, selected=1):
    """The mean of the gradients with the least sums of |V_i - V_j|^power over the n - f - 2 nearest others; Krum has the power 2."""
    n = len(V)
    distances = (V[:, None] - V[None]).norm(dim=2) ** power
    distances.fill_diagonal_(float("inf"))
    scores = distances.sort(dim=1).values[:, : n - f - 2].sum(dim=1)
    return V[scores.argsort()[:selected]].mean(0)


print("torchjd", version("torchjd"), "torch", version("torch").split("+")[0])
V = torch.tensor([[0.0], [1.0], [6.0], [9.0], [13.0]])  # n = 5, f = 1, two nearest others
print("gradients 0, 1, 6, 9, 13 with f = 1: the sums of squares are 37, 26, 34, 25, 65, of distances 7, 6, 8, 7, 11;",
      f"Krum takes {krum(V, 1, 2).item():g}, TorchJD {Krum(1)(V).item():g}")
assert krum(V, 1, 2) == 9 and Krum(1)(V) == 1

torch.manual_seed(0)
for selected, least in ((1, 30), (3, 60)):
    different = 0
    for _ in range(300):
        V = torch.randn(9, 2)
        different += not torch.allclose(Krum(2, selected)(V), krum(V, 2, 2, selected))
        assert torch.allclose(Krum(2, selected)(V), krum(V, 2, 1, selected)), "the library's choice is that by the sum of distances"
    print(f"9 normal gradients of 2 entries, f = 2, n_selected = {selected}: TorchJD's result is not Krum's in {different} of 300 draws")
    assert different > least
PY
