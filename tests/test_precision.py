"""bf16 products: against float64, per layer against fp32, in training, in identities, and where they are
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nn
from torch import Tensor

import mobench as api
from mobench.config.compose import compose
from mobench.core import precision
from mobench.jobs.build import make_job
from mobench.kernels.convnet import CrossEntropies, RunPictures
from mobench.models import convnet
from mobench.models.mlp import MLP, TanhMLP
from tests.conftest import Run

NETWORK = (
    "problem=multi_mnist",
    "problem.model=small",
    "problem.train_size=256",
    "problem.test_size=128",
    "problem.pixels=1.0",
    "oracle=minibatch",
    "oracle.batch_size=64",
    "algorithm=ls",
    "algorithm.step_size=0.2",
    "preferences=1",
    "dtype=float32",
    "logger=local",
)
BF16 = ("precision=bf16", "hardware.bf16=rounded")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def wide_product(a: Tensor, b: Tensor, **given: Any) -> Tensor:
    """What a GPU does with out_dtype=float32, which CPUs refuse."""
    assert given.pop("out_dtype") is torch.float32
    assert not given
    assert {a.dtype, b.dtype} == {torch.bfloat16}
    return a.float() @ b.float()


@pytest.fixture(params=["rounded", "cuda"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways that round here; the GPU's on CPU tensors."""
    if request.param == "cuda":
        plain = {name: getattr(torch, name) for name in ("mm", "bmm")}
        for name, product in plain.items():

            def either(
                a: Tensor, b: Tensor, product: Callable[..., Tensor] = product, **given: Any
            ) -> Tensor:
                return wide_product(a, b, **given) if "out_dtype" in given else product(a, b, **given)

            monkeypatch.setattr(torch, name, either)
    return str(request.param)


# against float64


def test_products_and_their_derivatives_are_those_of_rounded_factors(way: Any) -> None:
    a = torch.randn(3, 7, 40, requires_grad=True)
    b = torch.randn(3, 40, 5, requires_grad=True)
    c = torch.randn(3, 7, 5)
    g = torch.randn(3, 7, 5)
    with precision.products(way):
        out = precision.baddbmm(c, a, b)
        da, db = torch.autograd.grad(out, (a, b), g)
        again = precision.add_product(c.clone(), a.detach(), b.detach(), alpha=2.0)
    ra, rb, rg = (precision.rounded(t.detach()).double() for t in (a, b, g))
    for found, exact in (
        (out, c + ra @ rb),
        (da, rg @ rb.mT),
        (db, ra.mT @ rg),
        (again, c + 2 * ra @ rb),
    ):
        assert found.dtype == torch.float32  # sums and what is stored, not only factors
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_convolutions_and_their_derivatives_are_those_of_rounded_factors(way: Any) -> None:
    x = torch.randn(4, 6, 9, 9, requires_grad=True)
    W = torch.randn(8, 3, 3, 3, requires_grad=True)
    bias = torch.randn(8)
    with precision.products(way):
        out = precision.conv2d(x, W, bias, stride=2, padding=1, groups=2)
        g = torch.randn_like(out)
        found = torch.autograd.grad(out, (x, W), g)
    rx, rW = (precision.rounded(t.detach()).double().requires_grad_() for t in (x, W))
    exact = nn.conv2d(rx, rW, bias.double(), 2, 1, 1, 2)
    slopes = torch.autograd.grad(exact, (rx, rW), precision.rounded(g).double())
    # cuDNN gives bf16: its results are rounded once more
    bound = {"rounded": 1e-5, "cuda": 2**-8}[way]
    for one, other in zip((out, *found), (exact, *slopes), strict=True):
        assert one.dtype == torch.float32
        assert (one.double() - other).norm() < bound * other.norm()


def test_second_derivatives_exist(way: Any) -> None:
    """Hessian products of a network on the plain path go backward twice."""
    net = convnet.model("small", 2, 24)
    theta = torch.from_numpy(net.initial(np.random.default_rng(0))).float().unsqueeze(0).requires_grad_()
    x = torch.rand(16, 24, 24)
    v = torch.randn_like(theta)

    def product(how: Any) -> Tensor:
        with precision.products(how):
            z = net.logits(theta, x, "grouped")
            (g,) = torch.autograd.grad(z.logsumexp(-1).mean(), theta, create_graph=True)
            return torch.autograd.grad((g * v).sum(), theta)[0]

    exact = product("fp32")
    assert (product(way) - exact).norm() < 0.1 * exact.norm()


def test_a_matrix_unit_is_asked_for_inside_of_a_product_only() -> None:
    backend: Any = torch.backends.mkldnn
    kinds = (backend.matmul, backend.conv)
    before = [kind.fp32_precision for kind in kinds]
    a = torch.randn(64, 64)
    with precision.products("unit"):
        found = precision.mm(a, a)
        precision.conv2d(torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3))
        assert [kind.fp32_precision for kind in kinds] == before
    assert (found - a @ a).norm() < 2**-7 * (a @ a).norm()


# a network's gradients, layer by layer


def errors(net: Any, found: Tensor, exact: Tensor) -> list[float]:
    """Relative error of each weight and bias."""
    sizes = [int(np.prod(shape)) for shape in net.shapes]
    pairs = zip(found.split(sizes, -1), exact.split(sizes, -1), strict=True)
    return [float((a - b).norm() / b.norm()) for a, b in pairs if b.norm() > 0]


def starts(net: Any, count: int = 3) -> Tensor:
    rows = [torch.from_numpy(net.initial(np.random.default_rng(i))) for i in range(count)]
    return torch.stack(rows).float()


def pictures(net: convnet.ConvNet, theta: Tensor) -> CrossEntropies:
    given = torch.Generator().manual_seed(0)
    shape = (256, net.canvas, net.canvas)
    x = torch.rand(shape, generator=given) * (torch.rand(shape, generator=given) < 0.3)
    labels = torch.randint(10, (2, 256), generator=given)
    return CrossEntropies(net, theta, [RunPictures(torch.arange(len(theta)), x, labels)], keep=True)


def test_a_smooth_networks_gradient_is_off_by_one_per_cent_at_most() -> None:
    """Stated bound: 2^-9 for each of three factors, at most .01 in all, in every layer."""
    net = TanhMLP(60, 40, 5)
    theta = starts(net)
    x = torch.rand(3, 200, 60)

    def rows() -> Tensor:
        z, h = net.forward(theta, x)
        return net.jacobian(theta, x, h, z / 200)

    exact = rows()
    with precision.products("rounded"):
        found = rows()
    assert max(errors(net, found[0].sum(0), exact[0].sum(0))) < 0.01


@pytest.mark.parametrize("name", ["lenet", "small"])
def test_a_convolutional_gradient_is_off_as_if_parameters_moved_by_their_rounding(name: str) -> None:
    """Stated bounds: .01 in the heads, which no ReLU is above; below, where units switch, .15 a layer and
    three times what a move of all parameters by 2^-9 does to the fp32 gradient; Gram matrix .03.
    """
    net = convnet.model(name, 2, 36)
    theta = starts(net)
    exact = pictures(net, theta).jacobian()
    given = torch.Generator().manual_seed(1)
    moved = theta * (1 + 2**-9 * (2 * torch.rand(theta.shape, generator=given) - 1))
    reference = (pictures(net, moved).jacobian() - exact).norm()
    with precision.products("rounded"):
        found = pictures(net, theta).jacobian()
    layers = errors(net, found[0, 0], exact[0, 0])
    assert max(layers) < 0.15
    assert max(layers[-2:]) < 0.01
    assert (found - exact).norm() < 3 * reference
    G, H = found @ found.mT, exact @ exact.mT
    assert (G - H).norm() < 0.03 * H.norm()


def test_it_is_the_switching_of_units_that_costs() -> None:
    """With the ReLU of the fp32 pass a perceptron's gradient is off by .01 at most, with its own by more."""
    net = MLP(100, 50)
    theta = starts(net)
    x = torch.rand(3, 200, 100)
    labels = torch.randint(10, (3, 200))
    weight = torch.full((3, 200), 1 / 200)
    exact = net.gradients(theta, x, labels, weight)[1]
    with precision.products("rounded"):
        found = net.gradients(theta, x, labels, weight)[1]
    W1, b1, W2, b2 = net.split(theta)
    open_ = torch.baddbmm(b1.unsqueeze(1), x, W1.mT) > 0
    with precision.products("rounded"):
        h = precision.baddbmm(b1.unsqueeze(1), x, W1.mT) * open_
        z = precision.baddbmm(b2.unsqueeze(1), h, W2.mT)
        error = (torch.softmax(z, -1) - nn.one_hot(labels, 10)) * weight.unsqueeze(-1)
        back = precision.bmm(error, W2) * open_
        first = precision.bmm(back.mT, x)
    size = first[0].numel()
    true = exact[:, :size].view_as(first)
    kept = float((first - true).norm() / true.norm())
    own = float((found[:, :size].view_as(first) - true).norm() / true.norm())
    assert kept < 0.01 < own < 0.1


def test_batch_is_alone_and_the_kernel_is_the_plain_path() -> None:
    """Sums in another order can round another way: 1e-3, a tenth of what bf16 itself does."""
    net = convnet.model("small", 2, 36)
    theta = starts(net)
    with precision.products("rounded"):
        found = pictures(net, theta).jacobian()
        alone = torch.cat([pictures(net, row.unsqueeze(0)).jacobian() for row in theta])
        part = pictures(net, theta).parts[0]
        leaf = theta.clone().requires_grad_()
        z = net.logits(leaf, part.pictures, "grouped").log_softmax(-1)
        wanted = part.labels.expand(3, -1, -1).unsqueeze(-1)
        losses = -z.gather(-1, wanted).squeeze(-1).mean(-1)
        rows = [torch.autograd.grad(losses[:, m].sum(), leaf, retain_graph=True)[0] for m in (0, 1)]
    plain = torch.stack(rows, dim=1)
    assert (found - alone).norm() < 1e-3 * found.norm()
    assert (found - plain).norm() < 1e-3 * found.norm()


# training


def test_ten_paired_seeds_train_alike(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The margin, fixed before the first run: the mean difference of final losses and accuracies is at most a
    third of the spread (standard deviation) over seeds.
    """
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    settings = (*NETWORK, "seeds=[0,1,2,3,4,5,6,7,8,9]", "steps=80", "record.every=0", "progress=false")
    one = api.run(*settings)
    other = api.run(*settings, *BF16)
    assert "precision" not in one.columns
    assert set(other["precision"]) == {"bf16"}
    for measure in ("f_1", "f_2", "test_loss_1", "test_loss_2", "test_accuracy_1", "test_accuracy_2"):
        change = other[measure] - one[measure]
        assert abs(change.mean()) <= one[measure].std() / 3, measure
    assert (one["f_1"] != other["f_1"]).all()  # it did something


# identity and refusals


def test_identity_names_the_precision_only_where_it_is_not_fp32() -> None:
    plain = make_job(compose(NETWORK))
    rounded = make_job(compose((*NETWORK, *BF16)))
    assert "precision" not in plain.identity
    assert rounded.identity == plain.identity | {"precision": "bf16"}
    assert rounded.key != plain.key
    # how a machine computes it is no part of it
    assert make_job(compose((*NETWORK, "precision=bf16"))).key == rounded.key


def test_metrics_are_computed_in_fp32() -> None:
    job = make_job(compose(NETWORK))
    theta = job.problem.initial(job.runs).float()
    plain = job.joined.exact(theta)
    fresh = make_job(compose(NETWORK))
    with precision.products("rounded"):
        assert torch.equal(fresh.joined.exact(theta), plain)


def test_a_cpu_that_gains_nothing_refuses(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(shape: tuple[int, int, int], threads: int) -> precision.Measured:
        return precision.Measured(shape, rounds=gain > 0, gain=gain or 1.0, tensors=0.5)

    monkeypatch.setattr(precision, "measured", found)
    gain = 0.0
    result = mobench(*NETWORK, "precision=bf16", "steps=2")
    assert result.code == 1
    assert "20 x 250 x 768" in result.err
    assert "no matrix unit for bf16 (AMX)" in result.err
    assert "hardware.bf16=rounded" in result.err
    gain = 0.5
    result = mobench(*NETWORK, "precision=bf16", "steps=2", "rerun=true")
    assert "takes 2.00 times as long as in fp32" in result.err
    gain = 3.0
    assert mobench(*NETWORK, "precision=bf16", "steps=2", "rerun=true").code == 0


def test_what_is_measured_is_told() -> None:
    found = precision.measured((20, 250, 768), 1)
    assert found.gain > 0
    assert found.tensors > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("problem=vlmop2", "dtype=float32", "precision=bf16"), "VLMOP2 has none"),
        ((*NETWORK, "precision=bf16", "dtype=float64"), "add dtype=float32"),
        ((*NETWORK, "precision=bf61"), "choose one of fp32, bf16"),
        ((*NETWORK, "hardware.bf16=always"), "choose one of measured, rounded"),
    ],
)
def test_refusals_say_what_to_do(mobench: Run, settings: tuple[str, ...], words: str) -> None:
    mobench(*settings).refused(words)


def test_an_artifact_says_that_products_are_bf16() -> None:
    from mobench.artifacts.artifact import Artifact

    class Rows:
        def __init__(self, precision: str) -> None:
            self.precision = precision

    jobs: Any = {"one": Rows("bf16"), "other": Rows("fp32")}
    assert Artifact("p/a", "t", "laptop", {"other": jobs["other"]}).notes == []
    (note,) = Artifact("p/a", "t", "laptop", jobs).notes
    assert "one: bf16" in note
    assert "rows of two precisions" in note
