#!/usr/bin/env bash
# TorchJD 0.18.0: Krum adds up distances where the method adds up squared distances, and follows attackers whom Krum rejects.
#
# Krum (Blanchard et al. 2017) gives every gradient the score sum |V_i - V_j|^2 over its n - f - 2 nearest gradients, and takes the one with the
# least score; its proof rests on the squares. TorchJD leaves the square out. Then a few large distances weigh less: f attackers who all send
# the same vector have f - 1 distances of 0, and are taken up to a distance of (n - f - 2) / (n - 2f - 1) times that between honest
# gradients, instead of its root. With 23 clients, 10 of them attackers, that is 5.5 times instead of 2.3 times. In the example the
# attackers send the true gradient with the opposite sign, and TorchJD takes it every time, so that the loss goes up, where Krum never does.
# Multi-Krum (n_selected) has the same. For 9 normal gradients of two entries, one in four choices differs.
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
n, f, d = 23, 10, 1000
taken = {"the definition": 0, "TorchJD": 0, "Multi-Krum": 0, "TorchJD, n_selected=3": 0}
for _ in range(50):
    gradient = 2 * torch.nn.functional.normalize(torch.randn(d), dim=0)
    honest = gradient + torch.randn(n - f, d) / d**0.5  # the noise has the length 1, half of the gradient's
    V = torch.cat([honest, -gradient.expand(f, d)])
    found = {"the definition": krum(V, f, 2), "TorchJD": Krum(f)(V), "Multi-Krum": krum(V, f, 2, 3), "TorchJD, n_selected=3": Krum(f, 3)(V)}
    assert torch.allclose(found["TorchJD"], krum(V, f, 1)), "the library's choice is that by the sum of distances"
    for name, chosen in found.items():
        taken[name] += bool(chosen @ gradient < 0)
print(f"{n} clients, {f} of them send the opposite of the true gradient; the step increases the loss, of 50 times: {taken}")
assert taken == {"the definition": 0, "TorchJD": 50, "Multi-Krum": 0, "TorchJD, n_selected=3": 50}

different = 0
for _ in range(300):
    V = torch.randn(9, 2)
    different += not torch.allclose(Krum(2)(V), krum(V, 2, 2))
    assert torch.allclose(Krum(2)(V), krum(V, 2, 1))
print(f"9 normal gradients of 2 entries, f = 2: TorchJD takes another one than Krum {different} times of 300")
assert different > 30
PY
