"""Residual networks of stacked parameters against plain modules in training mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mobench.errors import ConfigError
from mobench.models.resnet import EXECUTIONS, MODELS, ResNet, resnet

F64 = torch.float64


# --- plain modules ------------------------------------------------------------------------------------------


class PlainBlock(nn.Module):
    """Two convolutions; where the shape changes the shortcut subsamples and appends zeros."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if x.shape == y.shape:
            return torch.relu(x + y)
        even = x[:, :, ::2, ::2]
        behind = torch.zeros(len(x), y.shape[1] - x.shape[1], *even.shape[2:], dtype=x.dtype)
        return torch.relu(y + torch.cat([even, behind], 1))


class Plain(nn.Module):
    """Option A."""

    def __init__(self, channels: int, widths: tuple[int, ...], blocks: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        parts = []
        inner = widths[0]
        for stage, (outer, count) in enumerate(zip(widths, blocks, strict=True)):
            for k in range(count):
                parts.append(PlainBlock(inner, outer, 2 if stage > 0 and k == 0 else 1))
                inner = outer
        self.body = nn.Sequential(*parts)
        self.fc = nn.Linear(inner, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(torch.relu(self.bn(self.conv(x)))).mean((2, 3)))


def torchvision18(channels: int, classes: int) -> nn.Module:
    """torchvision's, with the stem that CIFAR needs; not initialised, which would take long."""
    from torchvision.models import resnet18

    with torch.device("meta"):
        net = resnet18(num_classes=classes)
        net.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        net.maxpool = nn.Identity()
    return net.to_empty(device="cpu")


REFERENCE: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet20": lambda channels, classes: Plain(channels, (16, 32, 64), (3, 3, 3), classes),
    "resnet18": torchvision18,
    "resnet_tiny": lambda channels, classes: Plain(channels, (8, 16), (1, 2), classes),
}


def load(net: nn.Module, theta: Tensor) -> None:
    nn.utils.vector_to_parameters(theta, net.parameters())


def stacked(net: ResNet, K: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    """K networks near their starts; scale and shift of batch normalisation are no longer ones and zeros."""
    rng = np.random.default_rng(seed)
    theta = torch.from_numpy(np.stack([net.initial(rng) for _ in range(K)]))
    noise = torch.randn(K, net.dim, generator=torch.Generator().manual_seed(seed))
    return (theta + 0.02 * noise).to(dtype)


def pictures(net: ResNet, K: int, B: int, seed: int = 1, dtype: torch.dtype = F64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(K, B, net.channels, net.size, net.size, dtype=F64, generator=generator).to(dtype)


def close(a: Tensor, b: Tensor, rtol: float) -> None:
    """Relative to the largest entry."""
    assert a.shape == b.shape
    assert (a - b).abs().max() <= rtol * b.abs().max(), float((a - b).abs().max() / b.abs().max())


def loss_of(z: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(z.flatten(0, -2), labels.flatten(), reduction="sum")


CASES = [
    ("resnet20", 3, 16, 10, 2, 4),
    ("resnet20", 1, 13, 4, 3, 5),  # odd sizes: 13 -> 7 -> 4
    ("resnet18", 3, 9, 10, 1, 3),
    ("resnet_tiny", 1, 28, 10, 3, 6),
    ("resnet_tiny", 2, 9, 7, 1, 6),
]


# --- scores and gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "channels", "P"),
    [
        ("resnet20", 3, 269_722),
        ("resnet20", 1, 269_434),
        ("resnet18", 3, 11_173_962),
        ("resnet_tiny", 3, 9778),
        ("resnet_tiny", 1, 9634),
    ],
)
def test_parameters_are_those_of_the_module_in_its_order(name: str, channels: int, P: int) -> None:
    net = resnet(name, channels, 32)
    reference = REFERENCE[name](channels, 10)
    assert net.dim == P == sum(p.numel() for p in reference.parameters())
    assert net.shapes == [tuple(p.shape) for p in reference.parameters()]
    theta = torch.arange(float(P)).unsqueeze(0)  # exact in float32
    load(reference, theta[0])
    for part, p in zip(net.split(theta), reference.parameters(), strict=True):
        assert torch.equal(part[0], p)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("name", "channels", "size", "classes", "K", "B"), CASES)
def test_scores_and_gradients_are_those_of_the_module(
    name: str, channels: int, size: int, classes: int, K: int, B: int, execution: str
) -> None:
    net = resnet(name, channels, size, classes)
    reference = REFERENCE[name](channels, classes).double().train()
    theta = stacked(net, K).requires_grad_()
    x = pictures(net, K, B).requires_grad_()
    labels = torch.randint(classes, (K, B), generator=torch.Generator().manual_seed(2))
    z = net.logits(theta, x, execution)
    assert z.shape == (K, B, classes)
    rows, back = torch.autograd.grad(loss_of(z, labels), (theta, x))
    for k in range(K):
        load(reference, theta[k].detach())
        leaf = x[k].detach().requires_grad_()
        expected = reference(leaf)
        close(z[k], expected, 1e-10)
        wanted = torch.autograd.grad(loss_of(expected, labels[k]), (leaf, *reference.parameters()))
        close(back[k], wanted[0], 1e-10)
        close(rows[k], torch.cat([g.flatten() for g in wanted[1:]]), 1e-10)


# as resnet18, but for its widths


def test_second_derivatives_are_those_of_the_module() -> None:
    net = resnet("resnet_tiny", 1, 12)
    reference = REFERENCE["resnet_tiny"](1, 10).double().train()
    x = pictures(net, 2, 5)
    labels = torch.arange(10).view(2, 5)
    v = torch.randn(2, net.dim, dtype=F64, generator=torch.Generator().manual_seed(3))
    theta = stacked(net, 2)
    for execution in EXECUTIONS:
        leaf = theta.clone().requires_grad_()
        g = torch.autograd.grad(loss_of(net.logits(leaf, x, execution), labels), leaf, create_graph=True)[0]
        Hv = torch.autograd.grad((g * v).sum(), leaf)[0]
        for k in range(2):
            load(reference, theta[k])
            leaves = list(reference.parameters())
            g = torch.cat(
                [
                    a.flatten()
                    for a in torch.autograd.grad(
                        loss_of(reference(x[k]), labels[k]), leaves, create_graph=True
                    )
                ]
            )
            close(
                Hv[k], torch.cat([a.flatten() for a in torch.autograd.grad((g * v[k]).sum(), leaves)]), 1e-9
            )


# --- what follows from the definition -----------------------------------------------------------------------


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_network_knows_nothing_of_its_neighbours(execution: str) -> None:
    net = resnet("resnet_tiny", 3, 16)
    theta = stacked(net, 3)
    x = pictures(net, 3, 6)
    z = net.logits(theta, x, execution)
    close(net.logits(theta[1:2], x[1:2], execution)[0], z[1], 1e-12)
    spoiled = theta.clone()
    spoiled[0] = float("nan")
    logits = net.logits(spoiled, x, execution)
    close(logits[1:], z[1:], 1e-12)
    assert logits[0].isnan().all()


# --- starts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet20", "resnet_tiny"])
def test_starts_are_those_of_pytorch(name: str) -> None:
    net = resnet(name, 3, 32)
    torch.manual_seed(0)
    reference = REFERENCE[name](3, 10)
    theta = torch.from_numpy(net.initial(np.random.default_rng(0)))
    assert theta.dtype == F64
    for part, p in zip(net.split(theta.unsqueeze(0)), reference.parameters(), strict=True):
        part = part[0]
        wanted = p.detach().double()
        if wanted.std() == 0:  # of batch normalisation
            assert torch.equal(part, wanted)
        elif wanted.numel() >= 200:
            assert abs(part.std() / wanted.std() - 1) < 0.15
            assert abs(part.abs().max() / wanted.abs().max() - 1) < 0.03
        else:  # the biases of the head
            bound = net.widths[-1] ** -0.5
            assert 0.3 * bound < part.abs().max() <= bound
    again, other = (net.initial(np.random.default_rng(s)) for s in (0, 1))
    assert np.array_equal(again, theta.numpy())
    assert not np.array_equal(other, again)


# --- what is refused ----------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "name": (
        lambda: resnet("resnet_20", 3, 32),
        r"problem\.model='resnet_20' is unknown.*Did you mean 'resnet20'",
    ),
    "size": (
        lambda: resnet("resnet18", 3, 7),
        r"problem\.model=resnet18 needs images of at least 8 x 8 pixels, but these have 7 x 7",
    ),
    "start": (
        lambda: resnet("resnet20", 3, 32).initial(np.random.default_rng(0), "xavier"),
        r"problem\.start\.kind='xavier' is unknown; choose one of default",
    ),
    "execution": (
        lambda: resnet("resnet_tiny", 1, 8).logits(
            torch.zeros(1, 9634), torch.zeros(1, 2, 1, 8, 8), "patches"
        ),
        r"problem\.execution='patches' is unknown; choose one of grouped, loop",
    ),
    "shortcut": (
        lambda: replace(MODELS["resnet20"], shortcut="zero"),
        r"shortcut='zero' is unknown.*pad, conv",
    ),
    "one picture on a map of one pixel": (
        lambda: resnet("resnet_tiny", 1, 2).logits(torch.zeros(1, 9634), torch.zeros(1, 1, 1, 2, 2), "loop"),
        r"the batch has 1 image\(s\) with a last feature map of 1 x 1",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        call()


def test_one_picture_on_a_larger_map_has_statistics() -> None:
    net = resnet("resnet_tiny", 1, 4)
    assert net.side == 2
    assert net.logits(stacked(net, 2), pictures(net, 2, 1), "grouped").isfinite().all()
