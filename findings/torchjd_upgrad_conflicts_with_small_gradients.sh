#!/usr/bin/env bash
# TorchJD 0.18.0: UPGrad's direction, which must not conflict with any gradient, increases an objective with smaller gradients.
#
# UPGrad (Quinton and Rey 2024) projects every gradient onto the dual cone of all of them, and takes the mean, which has no negative inner product
# with any gradient. TorchJD adds reg_eps = 0.0001 to the diagonal of the Gramian, relative to its trace, before it projects. For a gradient
# of a hundredth of the length of another, that is as much as its own square: it is no longer protected. In the example its cosine with the
# direction is -0.84 where the definition gives 0 or more, and the training makes that objective thirteen times as large. DualProj does the
# same. Losses with gradients of such different lengths are why one takes UPGrad and not a sum. Moreover, as soon as all gradients together
# are shorter than 0.01, the direction is the plain mean. reg_eps is documented as a small value against numerical errors of the Gramian.
# UPGrad(projector=QuadprogProjector(norm_eps=0.0, reg_eps=1e-12)) is right in the example, in double precision.
#
# For two gradients the projections are written out below. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps torchjd==0.18.0 quadprog==0.1.14 qpsolvers==4.13.0 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import torch
from torchjd.aggregation import DualProj, UPGrad
from torchjd.linalg import QuadprogProjector

torch.set_default_dtype(torch.float64)


def project(d, J):
    """The nearest point to d in the dual cone {v : Jv >= 0} of two gradients that conflict, where d has a negative product with one at most."""
    for g in J:
        if d @ g < 0:
            d = d - (d @ g) / (g @ g) * g
    assert (J @ d >= -1e-12 * J.norm(dim=1)).all()
    return d


def upgrad(J):
    """The mean of the projected gradients."""
    return torch.stack([project(g, J) for g in J]).mean(0)


def cosines(J, d):
    return torch.nn.functional.cosine_similarity(J, d.unsqueeze(0)).numpy().round(4)


print("torchjd", version("torchjd"), "torch", version("torch").split("+")[0], "quadprog", version("quadprog"))
J = torch.tensor([[1.0, 0.0], [-0.9, 0.3]])
exact = QuadprogProjector(norm_eps=0.0, reg_eps=1e-12)
for ratio in (1.0, 0.1, 0.03, 0.01, 0.001):
    scaled = J * torch.tensor([[1.0], [ratio]])
    right, found = upgrad(scaled), UPGrad()(scaled)
    print(f"second gradient times {ratio:g}: cosines with the direction {cosines(scaled, right)}, in TorchJD {cosines(scaled, found)}")
    assert (cosines(scaled, right) >= 0).all()
    assert torch.allclose(UPGrad(projector=exact)(scaled), right, rtol=1e-4)
    if ratio == 1:
        assert torch.allclose(found, right, rtol=1e-2)
    if ratio <= 0.01:
        assert cosines(scaled, found)[1] < -0.8 and cosines(scaled, DualProj()(scaled))[1] < -0.8

small = 0.005 * J
print(f"both gradients times 0.005: TorchJD {(UPGrad()(small) / 0.005).numpy().round(4)} times 0.005, UPGrad {upgrad(J).numpy().round(4)}, "
      f"the mean of the gradients {J.mean(0).numpy().round(4)}")
assert torch.allclose(UPGrad()(J), upgrad(J), rtol=1e-2) and torch.allclose(upgrad(small), 0.005 * upgrad(J))
assert torch.allclose(UPGrad()(small), small.mean(0))


def train(direction):
    """Minimizes f = |x - a|^2 / 2 and h = 0.01 |x - b|^2 / 2 from a point near b; returns the values of h on the way."""
    a, b = torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])
    x = torch.tensor([0.9, 0.2])
    values = [0.005 * (x - b).square().sum().item()]
    for _ in range(1000):
        x = x - 0.02 * direction(torch.stack([x - a, 0.01 * (x - b)]))
        values.append(0.005 * (x - b).square().sum().item())
    return values


right, found = train(upgrad), train(UPGrad())
print(f"training: the small objective goes from {right[0]:.5f} to {right[-1]:.5f} with UPGrad, and to {found[-1]:.5f} in TorchJD")
assert max(right) < 1.1 * right[0], "steps of this length along the edge of the cone add a little"
assert found[-1] > 10 * found[0]
PY
