#!/usr/bin/env bash
# TorchJD 0.18.0: ConFIG returns exactly zero for every network of 8.4 million parameters or more in single precision, and a direction that
# increases objectives for smaller ones whose gradients conflict.
#
# ConFIG (Liu et al. 2025, equation 2) has the same positive cosine with every gradient, if they are linearly independent. It is computed with
# torch.linalg.pinv of the matrix of the M unit gradients of N entries, whose default tolerance is max(M, N) times the machine epsilon,
# relative to the largest singular value: 0.12 for a million parameters, and 1 from 2^23 = 8388608 on, so that no singular value is left. A
# ResNet-18 (11.7 million) stays where it is; its .grad is zero, and nothing is said. Below that, the smaller singular values are lost, and with
# them the agreement: for 2.2 million and a cosine of -0.9, the direction increases one of two objectives. The package of the method's authors,
# conflictfree 0.1.8, has wrong directions for the same reason with three gradients or more (torch.linalg.lstsq with its default tolerance, on
# a CPU). Toy problems do not show it. ConFIG of matrix.double(), or the weights from the M x M matrix of the cosines, is right.
#
# The formula is written out below, in double precision. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps torchjd==0.18.0 conflictfree==0.1.8 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import torch
from conflictfree.grad_operator import ConFIGOperator
from torchjd.aggregation import ConFIG
from torchjd.autojac import backward, jac_to_grad

torch.set_num_threads(1)


def config(J):
    """v = U^+ 1 / |U^+ 1| with the unit gradients U, times the sum of the products of the gradients with v; U^+ = U' (UU')^-1."""
    J = J.double()
    U = J / J.norm(dim=1, keepdim=True)
    v = U.T @ torch.linalg.solve(U @ U.T, torch.ones(len(J), dtype=J.dtype))
    v = v / v.norm()
    return (J @ v).sum() * v


def cosines(J, d):
    J, d = J.double(), d.double()
    return (J @ d / J.norm(dim=1) / d.norm().clamp(min=1e-30)).numpy().round(3)


def gradients(M, N, cosine):
    """M random gradients of N entries; the cosine of the first with the others is as given."""
    common = torch.randn(N)
    G = abs(cosine) ** 0.5 * common + (1 - abs(cosine)) ** 0.5 * torch.randn(M, N)
    if cosine < 0:
        G[0] = -G[0]
    return G


print("torchjd", version("torchjd"), "conflictfree", version("conflictfree"), "torch", version("torch").split("+")[0])
torch.manual_seed(0)
for N, cosine in ((10_000, -0.9), (2_200_000, -0.9), (8_388_608, 0.9)):
    J = gradients(2, N, cosine)
    right, found = config(J), ConFIG()(J)
    print(f"2 gradients of {N} entries, cosine {cosine:+.1f}: cosines with the direction {cosines(J, right)}, in TorchJD {cosines(J, found)}; "
          f"lengths {right.norm():.1f} and {found.norm():.1f}")
    assert cosines(J, right).min() > 0.1 and abs(cosines(J, right)[0] - cosines(J, right)[1]) < 1e-3
    if N == 8_388_608:
        assert (found == 0).all()
    elif N == 2_200_000:
        assert cosines(J, found).min() < -0.9
    else:
        assert torch.allclose(found.double(), right, atol=1e-3 * right.abs().max())
    if N == 2_200_000:
        assert torch.allclose(ConFIG()(J.double()), right, atol=1e-6 * right.abs().max())

for N in (10_000, 3_000_000):
    J = gradients(3, N, -0.9)
    right, found = config(J), ConFIGOperator().calculate_gradient(J)
    print(f"3 gradients of {N} entries, cosine -0.9: cosines with the direction {cosines(J, right)}, in conflictfree {cosines(J, found)}")
    assert cosines(J, right).min() > 0.1
    assert cosines(J, found).min() < -0.5 if N == 3_000_000 else torch.allclose(found.double(), right, atol=1e-3 * right.abs().max())

for width in (64, 2049):
    model = torch.nn.Linear(4096, width, bias=False)
    outputs = model(torch.randn(8, 4096))
    losses = torch.stack([(outputs - 1).square().mean(), (outputs + outputs.roll(1, 1) - 1).square().mean()])
    backward(losses)
    jac_to_grad(model.parameters(), ConFIG())
    length = model.weight.grad.norm().item()
    print(f"a linear layer with {model.weight.numel()} parameters and two losses: the length of .grad is {length:.4f}")
    assert length == 0 if width == 2049 else length > 1e-3
PY
