#!/usr/bin/env bash
# TorchJD 0.18.0: mtl_backward counts a gradient twice where one of its features is computed from another.
#
# In multi-task learning mtl_backward takes the losses and the features, a list of tensors at which the shared part of the network ends and the heads
# begin. Heads at several depths (pyramids of features, early exits, auxiliary losses) make such a list with z2 = g(z1). The loss of a head on
# z2 then has the gradient dL2/dz1, which goes through z2, and the gradient dL2/dz2, and both are propagated to the shared parameters below z1: the
# second one reaches z1 again, so that these parameters get twice the gradient of L2. Parameters between z1 and z2 get it once. In the linear network
# below, the Jacobian is exactly doubled where it should equal that of plain backward; with weights of 1/2 the step is that of L1 / 2 + L2. A
# method that looks at lengths and angles of gradients sees another problem. PyTorch stops the first attempt because the graph is used a second
# time, and advises retain_graph=True; with that nothing is said any more. With features=[z1] alone, and the layers between z1 and z2 as a part
# of the second task, the gradients are right.
#
# torch.autograd.grad and the derivative by hand are the truth. Fails if the behaviour changes.
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
from torchjd.aggregation import Mean
from torchjd.autojac import jac_to_grad, mtl_backward

torch.set_default_dtype(torch.float64)
print("torchjd", version("torchjd"), "torch", version("torch").split("+")[0])


def network():
    """z1 = w x and z2 = v z1 are shared; the heads are L1 = 5 z1 and L2 = 7 z2."""
    w = torch.tensor([2.0], requires_grad=True)
    v = torch.tensor([3.0], requires_grad=True)
    heads = torch.tensor([5.0, 7.0], requires_grad=True)
    z1 = w * 11.0
    z2 = v * z1
    return w, v, heads, z1, z2, [(heads[0] * z1).sum(), (heads[1] * z2).sum()]


w, v, _, z1, z2, losses = network()
true = [torch.autograd.grad(loss, w, retain_graph=True)[0].item() for loss in losses]
assert true == [5.0 * 11.0, 7.0 * 3.0 * 11.0], "the derivatives by hand"
mtl_backward(losses, features=[z1, z2], retain_graph=True)
seen = w.jac.flatten().tolist()
print(f"features=[z1, z2]: gradients of w {seen}, by autograd and by hand {true}; of v {v.jac.flatten().tolist()}")
assert seen == [true[0], 2 * true[1]]
assert v.jac.flatten().tolist() == [0.0, 7.0 * 22.0], "between the two features it counts once"

jac_to_grad([w], Mean())
print(f"with the mean of both: {w.grad.item():g}, by plain backward {sum(true) / 2:g}")
assert w.grad.item() == true[0] / 2 + true[1] != sum(true) / 2

# the same network, with the layer between z1 and z2 as a part of the second task
w, v, heads, z1, z2, losses = network()
mtl_backward(losses, features=[z1], tasks_params=[[heads], [heads, v]], shared_params=[w])
print(f"features=[z1]: gradients of w {w.jac.flatten().tolist()}")
assert w.jac.flatten().tolist() == true

# a network with two layers, and a head on each
torch.manual_seed(0)
first, second = torch.nn.Linear(4, 6), torch.nn.Linear(6, 6)
one, two = torch.nn.Linear(6, 1), torch.nn.Linear(6, 1)
x = torch.randn(32, 4)
z1 = first(x).tanh()
z2 = second(z1).tanh()
losses = [one(z1).square().mean(), two(z2).square().mean()]
try:
    mtl_backward(losses, features=[z1, z2])
except RuntimeError as error:
    assert "Specify retain_graph=True" in str(error)
else:
    raise AssertionError("nested features work without retain_graph")
z1 = first(x).tanh()
z2 = second(z1).tanh()
losses = [one(z1).square().mean(), two(z2).square().mean()]
for layer in (first, second, one, two):
    layer.zero_grad()
truth = [torch.autograd.grad(loss, first.weight, retain_graph=True)[0] for loss in losses]
mtl_backward(losses, features=[z1, z2], retain_graph=True)
ratios = [(first.weight.jac[m].norm() / truth[m].norm()).item() for m in (0, 1)]
print(f"two layers: lengths of the Jacobian's rows by those of plain backward {ratios[0]:.6f} and {ratios[1]:.6f}")
torch.testing.assert_close(first.weight.jac[0], truth[0])
torch.testing.assert_close(first.weight.jac[1], 2 * truth[1])
PY
