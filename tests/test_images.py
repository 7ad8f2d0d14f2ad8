"""Pictures with two labels: stacked networks, batches of epochs and trajectories against one model."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.ferero_public_code import PublicCodeFERERO
from mobench.algorithms.ferero_sa import StochasticFEREROSA
from mobench.algorithms.ls import LS
from mobench.algorithms.pmtl import PMTL
from mobench.core import Runs, loop
from mobench.core.algorithm import Algorithm
from mobench.core.preferences import ray
from mobench.core.sampled import Batch
from mobench.data import multi_images
from mobench.errors import CompatibilityError, ConfigError
from mobench.kernels import convnet as products
from mobench.kernels import pooling
from mobench.models.convnet import EXECUTIONS, MODELS, model
from mobench.oracles import Epochs
from mobench.problems import VLMOP2, ConstrainedGaussian, MultiMNIST
from mobench.problems import multi_mnist as source
from tests.conftest import Run
from tests.helpers import runs_at
from tests.reference import images as plain_loops
from tests.reference.common import Trajectory, ray_at

F64 = torch.float64
NETS: dict[str, dict[str, Any]] = {
    "lenet": {},
    "small": {"channels": (8, 16), "kernels": (5, 3), "hidden": 32, "shrink": 2},
    "wide": {"channels": (20, 40), "hidden": 100},
}
RAYS = (22.5, 45.0, 67.5)
FIVE = np.stack([ray_at(a) for a in np.linspace(0, 90, 5)])


def tiny(**options: Any) -> MultiMNIST:
    return MultiMNIST(**({"train_size": 96, "test_size": 48, "pixels": 1.0} | options))


def module(name: str = "lenet", dtype: torch.dtype = F64, tasks: int = 2) -> plain_loops.LeNet:
    return plain_loops.LeNet(**NETS[name], tasks=tasks).to(dtype)


def data_of(p: MultiMNIST, split: str = "train") -> plain_loops.Data:
    """Pictures and labels for the plain loops."""
    images = p.images
    x, y = (images.train, images.train_labels) if split == "train" else (images.test, images.test_labels)
    return plain_loops.Data(x.double() * (p.pixels / 255), y)


def close(a: Tensor, b: Tensor, rtol: float) -> None:
    """Relative to the largest entry."""
    assert a.shape == b.shape
    assert (a - b).abs().max() <= rtol * b.abs().max(), float((a - b).abs().max() / b.abs().max())


# --- the network --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "P"), [("lenet", 31_910), ("small", 4116), ("wide", 123_800)])
def test_parameters_are_those_of_the_module_in_its_order(name: str, P: int) -> None:
    net = model(name, 2, 36)
    reference = module(name)
    assert net.dim == P == sum(p.numel() for p in reference.parameters())
    assert net.shapes == [tuple(p.shape) for p in reference.parameters()]
    assert [layer.name for layer in net.layers] == ["conv1", "conv2", "shared", "head1", "head2"]
    theta = torch.arange(2.0 * P, dtype=F64).view(2, P)
    plain_loops.load(reference, theta[1])
    for part, p in zip(net.split(theta), reference.parameters(), strict=True):
        assert torch.equal(part[1], p)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("name", list(NETS))
def test_scores_are_those_of_the_module(name: str, execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = tiny(model=name)
    reference = module(name)
    monkeypatch.setattr(products, "STACKED", 2 * p.network.channels[0])  # two runs together, then one
    x = torch.cat(
        [data_of(p).x[:4], torch.rand(3, 36, 36, dtype=F64, generator=torch.Generator().manual_seed(0))]
    )
    theta = p.initial(runs_at(45.0, seeds=(0, 1, 2)))
    logits = p.network.logits(theta, x, execution)
    assert logits.shape == (3, 2, 7, 10)
    for r in range(3):
        plain_loops.load(reference, theta[r])
        close(logits[r], torch.stack(reference(x)).detach(), 1e-12)
        close(p.network.logits(theta[r : r + 1], x, execution)[0], logits[r], 1e-12)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    ("name", "R", "pixels"),
    [("lenet", 1, 1.0), ("lenet", 3, 255.0), ("lenet", 6, 1.0), ("small", 6, 1.0), ("wide", 3, 1.0)],
)
def test_losses_and_gradients_are_those_of_single_models(
    name: str, R: int, pixels: float, execution: str
) -> None:
    p = tiny(model=name, pixels=pixels, execution=execution)
    reference = module(name)
    runs = runs_at(*RAYS, seeds=(3, 1)).take([[4], [0, 3, 1], [5, 0, 3, 2, 1, 4]][R // 3])
    oracle = Epochs(p, runs, batch_size=9)
    data = data_of(p)
    theta = p.initial(runs) + 0.01 * torch.randn(
        R, p.dim, dtype=F64, generator=torch.Generator().manual_seed(R)
    )
    point = oracle.at(theta, {}, 2)
    batch = oracle.batch(2)
    weights = torch.tensor([[0.3, -1.7]], dtype=F64).expand(R, 2).contiguous()
    pulled = point.vjp(weights)  # before the rows: its own backward pass
    rows = point.jacobian()
    for r in range(R):
        index = batch.chosen[batch.group[r]].numpy()
        plain_loops.load(reference, theta[r])
        F, J = plain_loops.jacobian(reference, data.x[index], data.y[index])
        close(point.F[r], F, 1e-12)
        close(rows[r], J, 1e-10)
        close(pulled[r], weights[r] @ J, 1e-10)
    assert R == 1 or not torch.equal(batch.chosen[0], batch.chosen[1])


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("name", "limit"), [("small", None), ("small", 2), ("lenet", None), ("wide", 2)])
def test_hessian_products_are_those_of_single_models(
    name: str, execution: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three chunks, the last one shorter; runs of two seeds in parts of at most `limit` and of two."""
    monkeypatch.setattr(products, "CACHED", products.CACHED // (12 if name == "small" else 2))
    p = tiny(model=name, execution=execution, max_batch_runs=limit)
    reference = module(name)
    monkeypatch.setattr(products, "STACKED", 2 * p.network.channels[0])
    assert products.stacked(p.network, 3) == 2
    runs = runs_at(*RAYS, seeds=(3, 1)).take([5, 0, 3, 2, 1])
    oracle = Epochs(p, runs, batch_size=40)
    data = data_of(p)
    g = torch.Generator().manual_seed(1)
    theta = p.initial(runs)
    assert products.chunk(p.network, data.x[:40]) == 16
    point = oracle.at(theta, {}, 1)
    batch = oracle.batch(1)
    w = torch.randn(5, 2, dtype=F64, generator=g)
    v = torch.randn(5, p.dim, dtype=F64, generator=g)
    Hv = point.hvp(w, v)
    rows = point.jacobian()
    for r in range(5):
        index = batch.chosen[batch.group[r]].numpy()
        plain_loops.load(reference, theta[r])
        close(Hv[r], plain_loops.hessian_product(reference, data.x[index], data.y[index], w[r], v[r]), 1e-10)
        close(rows[r], plain_loops.jacobian(reference, data.x[index], data.y[index])[1], 1e-10)


@pytest.mark.parametrize("limit", [None, 2])
def test_answers_do_not_depend_on_those_before(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point in closed form, in any order and again: memory is reused within an answer only."""
    monkeypatch.setattr(products, "CACHED", products.CACHED // 12)
    p = tiny(model="small", execution="products", max_batch_runs=limit)
    runs = runs_at(*RAYS, seeds=(3, 1))
    oracle = Epochs(p, runs, batch_size=40)
    theta = p.initial(runs)
    g = torch.Generator().manual_seed(1)
    w = torch.randn(6, 2, dtype=F64, generator=g)
    v = torch.randn(6, p.dim, dtype=F64, generator=g)
    answers: dict[str, Any] = {
        "values": lambda linear: linear.values(keep=False),
        "values, kept": lambda linear: linear.values(keep=True),
        "rows": lambda linear: linear.jacobian(),
        "vjp": lambda linear: linear.vjp(w),
        "hvp": lambda linear: linear.hvp(w, v),
    }

    def fresh() -> Any:
        linear = p.linearize(theta, oracle.batch(1))
        assert linear is not None
        return linear

    wanted = {name: answer(fresh()).clone() for name, answer in answers.items()}
    for pair in itertools.permutations(answers, 2):
        linear = fresh()
        computed = [(name, answers[name](linear)) for name in (*pair, *pair)]
        for name, answer in computed:  # looked at when all are there: none may have been written over
            assert torch.equal(answer, wanted[name]), (pair, name)
            assert not answer.is_inference()


@pytest.mark.parametrize(("h", "w"), [(4, 6), (2, 2)])
def test_pooling_is_that_of_pytorch_where_entries_are_equal(h: int, w: int) -> None:
    """Small integers: most windows have several maxima, of which the first counts."""
    g = torch.Generator().manual_seed(0)
    z = torch.randint(-1, 2, (h, 6, w, 5), generator=g).double()  # (h, C, w, n)
    bias = torch.randint(-1, 2, (6, 1, 1), generator=g).double()
    slopes = torch.randn(h // 2, 3, 6, w // 2, 5, dtype=F64, generator=g)  # three at once
    leaf = z.permute(3, 1, 0, 2).clone().requires_grad_(True)
    expected = torch.nn.functional.max_pool2d(leaf, 2)
    pooled, at = torch.full((2, h // 2, 6, w // 2, 5), torch.nan, dtype=F64)
    products.pooled(products.corners(products.halves(z.clone())), bias, pooled, at)
    marks = products.halves(torch.full_like(z, torch.nan))
    pooling.marked(at, products.corners(marks))
    biased = expected.detach().permute(2, 1, 3, 0) + bias
    assert torch.equal(pooled, torch.relu(biased))
    out = torch.full((h, 3, 6, w, 5), torch.nan, dtype=F64)
    products.spread(slopes, marks, products.halves(out))
    for s in range(3):
        back = torch.autograd.grad(expected, leaf, slopes[:, s].permute(3, 1, 0, 2), retain_graph=True)[0]
        assert torch.equal(out[:, s], back.permute(2, 1, 3, 0))
    assert torch.equal(
        products.gathered(products.corners(products.halves(z)), products.corners(marks), bias), biased
    )


def test_a_network_in_closed_form_knows_no_graph_but_its_scores_can_be_differentiated() -> None:
    p = tiny(model="small", execution="products")
    theta = tiny(model="small").initial(runs_at(45.0, seeds=(0, 1)))
    batch = torch.arange(20).view(2, 10)
    leaf = theta.clone().requires_grad_(True)
    J = torch.autograd.grad(p.values(leaf, batch)[:, 0].sum(), leaf)[0]
    linear = p.linearize(theta, batch)
    assert linear is not None
    close(linear.jacobian()[:, 0], J, 1e-12)
    assert not linear.values(keep=True).requires_grad


def test_groups_without_runs_and_one_batch_for_each_run() -> None:
    p = tiny(model="small")
    theta = p.initial(runs_at(45.0, seeds=(0, 1, 2)))
    chosen = torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
    group = torch.tensor([3, 0, 3])
    values = p.values(theta, Batch(chosen, group))
    torch.testing.assert_close(values, p.values(theta, chosen[group]), rtol=1e-13, atol=0)
    for r in range(3):
        alone = p.values(theta[r : r + 1], Batch(chosen[group[r : r + 1]], torch.zeros(1, dtype=torch.int64)))
        torch.testing.assert_close(values[r], alone[0], rtol=1e-13, atol=0)


def test_white_is_pixels() -> None:
    theta = tiny().initial(runs_at(45.0, seeds=(0,)))
    net = module()
    plain_loops.load(net, theta[0])
    data = multi_images("digits", "digits", "", 96, 48, (0, 0))
    for pixels in (255.0, 1.0, 0.5, 255):
        x = data.train.double() / 255 * pixels
        expected = torch.stack(plain_loops.losses(net, x, data.train_labels)).detach()
        close(tiny(pixels=pixels).values(theta)[0], expected, 1e-12)


# --- batches of epochs --------------------------------------------------------------------------------------


def epoch_of(oracle: Epochs, epoch: int) -> list[list[Tensor]]:
    """Parts of all steps of an epoch."""
    first = epoch * oracle.per_epoch
    return [
        [oracle.batch(t, k).chosen for k in range(oracle.spec.samples)]
        for t in range(first, first + oracle.per_epoch)
    ]


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize(
    ("N", "size", "steps", "used"), [(26, 8, 4, 26), (24, 8, 3, 24), (25, 8, (4, 3), (25, 24)), (8, 8, 1, 8)]
)
def test_every_picture_once_in_an_epoch(N: int, size: int, steps: Any, used: Any, samples: int) -> None:
    oracle = Epochs(tiny(train_size=N), runs_at(*RAYS, seeds=(0, 7)), batch_size=size, samples=samples)
    steps, used = (v[samples - 1] if isinstance(v, tuple) else v for v in (steps, used))
    assert oracle.per_epoch == steps
    orders = []
    for epoch in range(3):
        batches = epoch_of(oracle, epoch)
        whole = torch.cat([part for parts in batches for part in parts], 1)
        assert whole.shape == (2, used)
        for row in whole:
            assert len(set(row.tolist())) == used
            assert set(row.tolist()) <= set(range(N))
            orders.append(row.tolist())
        sizes = [[part.shape[1] for part in parts] for parts in batches]
        full = [size // samples] * samples
        assert sizes[:-1] == [full] * (steps - 1)
        assert sum(sizes[-1]) == used - size * (steps - 1)
        assert max(sizes[-1]) - min(sizes[-1]) <= 1
    assert len({tuple(o) for o in orders}) == 6  # each epoch and seed its own


def test_halves_make_up_the_batch() -> None:
    p = tiny(train_size=26)
    runs = runs_at(*RAYS, seeds=(0, 7))
    whole = Epochs(p, runs, batch_size=8)
    halves = Epochs(p, runs, batch_size=8, samples=2)
    for t in range(9):
        one, two = (halves.batch(t, k).chosen for k in (0, 1))
        assert torch.equal(torch.cat([one, two], 1), whole.batch(t).chosen)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (VLMOP2, {}, "which VLMOP2 does not have.*oracle=exact"),
        (ConstrainedGaussian, {}, "which ConstrainedGaussian does not have.*oracle=minibatch"),
        (tiny, {"batch_size": 97}, r"batch_size=97 must lie in 1\.\.96"),
        (tiny, {"batch_size": 0}, "batch_size=0 must lie in"),
        (tiny, {"batch_size": 1, "samples": 2}, r"must lie in 2\.\.96"),
        (tiny, {"batch_size": 8, "samples": 3}, "samples=3.*1 or 2"),
        (tiny, {"batch_size": 8, "samples": 0}, "samples=0.*1 or 2"),
    ],
)
def test_epochs_refusals(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompatibilityError, match=message):
        Epochs(make(), runs_at(45.0), **options)


# --- trajectories -------------------------------------------------------------------------------------------


def advance(
    p: MultiMNIST, algorithm: Algorithm, runs: Runs, steps: int, batch_size: int = 16
) -> tuple[Tensor, dict[str, Any], Epochs]:
    """Path (R, T + 1, P), the last state, the oracle."""
    oracle = Epochs(p, runs, batch_size=batch_size, samples=algorithm.samples)
    state = loop.start(oracle, algorithm, {}, p.initial(runs), runs, steps)
    xs: list[Tensor] = []
    state = loop.advance(oracle, algorithm, {}, state, steps, lambda t, s, q: xs.append(s["theta"].clone()))
    return torch.stack([*xs, state["theta"]], 1), state, oracle


def compare(
    p: MultiMNIST,
    algorithm: Algorithm,
    steps: int,
    loop_of: Callable[..., Trajectory],
    batch_size: int = 16,
    seeds: tuple[int, ...] = (0, 5),
) -> tuple[list[Trajectory], dict[str, Any]]:
    """Every run against the plain loop on the same batches; the plain trajectories and the last state."""
    runs = runs_at(*RAYS, seeds=seeds)
    path, state, oracle = advance(p, algorithm, runs, steps, batch_size)
    out = []
    net = module(p.model)
    data = data_of(p)
    for r in range(len(runs)):
        parts = [[oracle.batch(t, k) for k in range(algorithm.samples)] for t in range(steps)]
        batches = [tuple(b.chosen[oracle.group[r]].numpy() for b in step) for step in parts]
        batch_list = [b[0] for b in batches] if algorithm.samples == 1 else batches
        expected = loop_of(
            net, path[r, 0], runs.weights[r].numpy(), data, batch_list, step_size=algorithm.step_size
        )
        np.testing.assert_allclose(path[r].numpy(), expected.x, rtol=0, atol=1e-8, err_msg=f"run {r}")
        assert np.abs(expected.x[-1] - expected.x[0]).max() > 1e-4
        out.append(expected)
    return out, state


def line(w: np.ndarray) -> np.ndarray:
    return np.asarray(ray(torch.from_numpy(w)))


@pytest.mark.parametrize(
    ("name", "pixels", "step_size"), [("lenet", 1.0, 0.2), ("lenet", 255.0, 1e-4), ("small", 1.0, 0.2)]
)
def test_ls_trajectory(name: str, pixels: float, step_size: float) -> None:
    compare(
        tiny(model=name, pixels=pixels),
        LS(step_size=step_size, normalize="norm"),
        8,
        lambda net, x, w, *a, **k: plain_loops.ls(net, x, w / np.linalg.norm(w), *a, **k),
    )


def reported_weights(algorithm: Algorithm, state: dict[str, Any]) -> np.ndarray:
    """The columns `weight_1` and `weight_2` of the rows (R, 2)."""
    columns = algorithm.report(torch.ones(len(state["theta"]), 2, dtype=F64), state["alg"])
    return torch.stack([columns["weight_1"], columns["weight_2"]], dim=1).numpy()


@pytest.mark.parametrize(
    ("name", "step_size", "gamma", "c_h"), [("small", 0.05, 0.1, 5.0), ("lenet", 0.01, 2.0, 0.5)]
)
def test_ferero_trajectory(name: str, step_size: float, gamma: float, c_h: float) -> None:
    paths, state = compare(
        tiny(model=name),
        StochasticFEREROSA(step_size=step_size, gamma=gamma, c_h=c_h, domain="simplex"),
        10,
        lambda net, x, w, *a, **k: plain_loops.ferero(net, x, line(w), *a, gamma=gamma, c_h=c_h, **k),
        seeds=(5,) if name == "lenet" else (0, 5),
    )
    weights = reported_weights(StochasticFEREROSA(), state)
    for r, path in enumerate(paths):
        np.testing.assert_allclose(state["alg"]["lam"][r].numpy(), path.extra["last"], rtol=0, atol=1e-8)
        np.testing.assert_allclose(weights[r], path.extra["weights"], rtol=0, atol=1e-8)
        assert path.extra["lam"][0].tolist() == [0.5, 0.5, 0.0]
        assert np.ptp(path.extra["lam"], axis=0).min() > 1e-4
    on_the_edge = [(path.extra["lam"][:, :2].min(1) == 0.0).any() for path in paths]
    assert any(on_the_edge) == (gamma > 1)


@pytest.mark.parametrize(
    ("name", "tolerance", "frozen"), [("small", 1e-5, "none"), ("lenet", 0.02, "some"), ("small", 1e9, "all")]
)
def test_public_code_trajectory(name: str, tolerance: float, frozen: str) -> None:
    paths, state = compare(
        tiny(model=name),
        PublicCodeFERERO(step_size=0.1, gamma=0.2, c_h=0.5, tolerance=tolerance),
        10,
        lambda net, x, w, *a, **k: plain_loops.ferero_code(
            net, x, line(w), *a, gamma=0.2, c_h=0.5, tolerance=tolerance, **k
        ),
        seeds=(5,) if name == "lenet" else (0, 5),
    )
    counts = np.array([path.extra["frozen"].sum() for path in paths])
    columns = PublicCodeFERERO().report(torch.ones(len(paths), 2, dtype=F64), state["alg"])
    np.testing.assert_array_equal(columns["frozen_steps"].numpy(), counts)
    assert {"none": counts.max() == 0, "all": counts.min() == 10, "some": 0 < counts.sum() < 10 * len(paths)}[
        frozen
    ]
    weights = reported_weights(PublicCodeFERERO(), state)
    for r, path in enumerate(paths):
        np.testing.assert_allclose(state["alg"]["lam"][r].numpy(), path.extra["lam"][-1], rtol=0, atol=1e-8)
        np.testing.assert_allclose(weights[r], path.extra["u"][-1], rtol=0, atol=1e-8)
        np.testing.assert_allclose(np.abs(path.extra["u"]).sum(1), 1.0, rtol=1e-12)
        if frozen == "all":
            assert np.ptp(path.extra["u"], axis=0).max() == 0.0
            assert state["alg"]["lam"][r].tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("batch_size", "whole", "last"),
    [(36, (18, 18), (18, 6)), (48, (24, 24), (24, 24)), (35, (17, 18), (17, 9))],
)
def test_a_short_last_batch_is_cut_as_a_whole_one(
    batch_size: int, whole: tuple[int, int], last: tuple[int, int]
) -> None:
    p = tiny(model="small")
    runs = runs_at(*RAYS, seeds=(3,))
    oracle = Epochs(p, runs, batch_size=batch_size, samples=2, cut="full")
    theta = p.initial(runs)
    seen = []
    for t in range(oracle.per_epoch):
        parts = [oracle.batch(t, k).chosen for k in (0, 1)]
        sizes = tuple(part.shape[1] for part in parts)
        assert sizes == (last if t == oracle.per_epoch - 1 else whole)
        seen.append(torch.cat(parts, 1))
        for k in (0, 1):
            assert oracle.at(theta, {}, t, k).share == sizes[k] / sum(sizes)
    assert torch.equal(torch.cat(seen, 1).sort(1).values, torch.arange(96).expand(1, -1))


@pytest.mark.parametrize("batch_size", [64, 80])
def test_a_last_batch_without_a_second_part_is_refused(batch_size: int) -> None:
    p = tiny(model="small")
    runs = runs_at(*RAYS, seeds=(3,))
    with pytest.raises(CompatibilityError, match=r"cut=full leaves nothing of the last batch of"):
        Epochs(p, runs, batch_size=batch_size, samples=2, cut="full")
    Epochs(p, runs, batch_size=batch_size, samples=1, cut="full")
    with pytest.raises(ConfigError, match=r"oracle.cut"):
        Epochs(p, runs, batch_size=batch_size, samples=2, cut="half")


@pytest.mark.parametrize("batch", [7, 16, 48, 100])
def test_losses_as_means_of_batch_means(batch: int) -> None:
    p, q = tiny(model="small"), tiny(model="small", test_batch=batch)
    runs = runs_at(*RAYS, seeds=(3,))
    theta = p.initial(runs)
    for split in ("train", "test"):
        exact, right = p.evaluate(split, theta)
        losses, accuracy = q.evaluate(split, theta)
        assert torch.equal(accuracy, right)
        net = module("small")
        data = data_of(p, split)
        for r in range(len(runs)):
            plain_loops.load(net, theta[r])
            with torch.no_grad():
                parts = [
                    torch.stack(plain_loops.losses(net, a, b))
                    for a, b in zip(data.x.split(batch), data.y.split(batch), strict=True)
                ]
            expected = torch.stack(parts).mean(0) if split == "test" else exact[r]
            torch.testing.assert_close(losses[r], expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("below", [0.0, 0.99])
def test_runs_of_low_accuracy_end(below: float, mobench: Run) -> None:
    """At the first recorded step but 0, as the public script starts them again."""
    record = ("record.every=4", "steps=12", "logger=local")
    settings = ("algorithm=ls", *record, f"problem.least_accuracy={below}")
    result = mobench(*SMOKE, *settings)
    assert result.code == 0, result.err
    rows = result.rows
    assert ("ended" in rows) == (below > 0)
    if below:
        assert (rows["ended"] == 4).all()
        assert set(result.job.history()["step"]) == {0, 4}
        blind = mobench(*SMOKE, *settings, "record.measures=false")
        assert blind.code == 1
        assert "problem.least_accuracy=0.99 needs" in blind.err
        assert "record.measures=true" in blind.err


SCRIPT: dict[str, Any] = {"line_start": 0.0, "doubled": True, "step_size": 0.1, "c_h": 0.5}


@pytest.mark.parametrize(("gamma", "tolerance"), [(0.02, 1e-5), (0.2, 1e-5), (0.02, 0.01)])
def test_the_public_script_for_fifty_steps(gamma: float, tolerance: float) -> None:
    """Against a loop with the script's own shapes; batches of 36 of 96 pictures, the last one 18 + 6."""
    p = tiny(model="small")
    runs = runs_at(*RAYS, seeds=(3,))
    algorithm = PublicCodeFERERO(gamma=gamma, tolerance=tolerance, **SCRIPT)
    oracle = Epochs(p, runs, batch_size=36, samples=2, cut="full")
    state = loop.start(oracle, algorithm, {}, p.initial(runs), runs, 50)
    xs: list[Tensor] = []
    state = loop.advance(oracle, algorithm, {}, state, 50, lambda t, s, q: xs.append(s["theta"].clone()))
    sizes = {tuple(oracle.batch(t, k).chosen.shape[1] for k in (0, 1)) for t in range(50)}
    assert sizes == {(18, 18), (18, 6)}
    frozen = state["alg"]["frozen"].numpy()
    assert frozen.any() or tolerance < 1e-4
    for r in range(len(runs)):
        parts = [tuple(oracle.batch(t, k).chosen[oracle.group[r]].numpy() for k in (0, 1)) for t in range(50)]
        path = plain_loops.ferero_script(
            module(p.model), xs[0][r], line(runs.weights[r].numpy()), data_of(p), parts,
            step_size=0.1, gamma=gamma, c_h=0.5, tolerance=tolerance,
        )  # fmt: skip
        iterates = torch.stack([*(x[r] for x in xs), state["theta"][r]])
        np.testing.assert_allclose(iterates.numpy(), path.x, rtol=0, atol=1e-10)
        np.testing.assert_allclose(float(state["alg"]["lam"][r, 2]), path.extra["lh"][-1], atol=1e-10)
        assert path.extra["frozen"].sum() == frozen[r]
        assert np.abs(path.x[-1] - path.x[0]).max() > 1e-2


@pytest.mark.parametrize(
    "options", [{"domain": "adaptive"}, {"upper": [1.0, None]}, {"inequality_matrix": [[1.0, 0.0]]}]
)
def test_public_code_refusals(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="only the simplex domain without inequalities"):
        PublicCodeFERERO(**options)


def test_pmtl_trajectory() -> None:
    limit = 6
    paths, state = compare(
        tiny(pixels=255.0),
        PMTL(step_size=1e-5, references=5, phase1_steps=limit, until_feasible=True, normalize=True),
        10,
        lambda net, x, w, *a, **k: plain_loops.pmtl(net, x, line(w), FIVE, *a, phase1_steps=limit, **k),
        batch_size=8,
    )
    lengths = [int((path.extra["phase"] == 1).sum()) for path in paths]
    for path, n in zip(paths, lengths, strict=True):
        assert (path.extra["phase"][:n] == 1).all()  # for good
        np.testing.assert_allclose(np.abs(path.extra["w"][n:]).sum(1), 1.0, rtol=1e-12)
    assert 0 in lengths  # a start inside its sector
    assert limit in lengths  # ended by the limit
    assert any(0 < n < limit for n in lengths), lengths  # ended by a point inside the sector
    assert not state["fail"].any()


# --- evaluation and starts ----------------------------------------------------------------------------------


def test_evaluation_against_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    p = tiny()
    runs = runs_at(45.0, seeds=(0, 1))
    theta = p.initial(runs)
    monkeypatch.setattr(source, "CHUNK", 7 * 36 * 36)  # 48 = 6 * 7 + 6
    values = p.values(theta)
    columns = p.columns(theta, values)
    assert set(columns) == {
        f"{k}_{m}" for k in ("train_accuracy", "test_loss", "test_accuracy") for m in (1, 2)
    }
    net = module()
    for r in range(2):
        plain_loops.load(net, theta[r])
        for split in ("train", "test"):
            data = data_of(p, split)
            loss = torch.stack(plain_loops.losses(net, data.x, data.y)).detach()
            right = torch.stack(
                [(z.argmax(1) == data.y[:, m]).double().mean() for m, z in enumerate(net(data.x))]
            )
            losses = (
                values[r]
                if split == "train"
                else torch.stack([columns["test_loss_1"], columns["test_loss_2"]])[:, r]
            )
            close(losses, loss, 1e-12)
            accuracies = torch.stack([columns[f"{split}_accuracy_1"], columns[f"{split}_accuracy_2"]])[:, r]
            torch.testing.assert_close(accuracies, right, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("kind", ["default", "xavier"])
def test_starts(kind: str, name: str) -> None:
    p = tiny(model=name, start={"kind": kind})
    runs = runs_at(*RAYS, seeds=(0, 3))
    theta = p.initial(runs)
    assert theta.dtype == F64
    assert torch.equal(theta[0], theta[2])  # all preferences of a seed
    assert not torch.equal(theta[0], theta[1])
    assert torch.equal(p.initial(runs.take([3]))[0], theta[3])
    starts = tiny(model=name, start={"kind": kind, "per_preference": True}).initial(runs)
    assert len({tuple(row[:5].tolist()) for row in starts}) == 6
    for i, (layer, parameter) in enumerate(
        zip([x for x in p.network.layers for _ in (0, 1)], p.network.split(theta), strict=True)
    ):
        flat = parameter[0].flatten().abs()
        bound = fan_in_of(layer.weight) ** -0.5
        if i % 2 == 0 and kind == "xavier":
            field = math.prod(layer.weight[2:])
            bound = math.sqrt(6 / (fan_in_of(layer.weight) + layer.weight[0] * field))
        assert flat.max() <= bound
        assert flat.max() > bound * (1 - 8 / len(flat))
        assert abs(float(parameter[0].mean())) < 4 * bound / math.sqrt(3 * len(flat))


def fan_in_of(shape: tuple[int, ...]) -> int:
    return math.prod(shape[1:])


@pytest.mark.parametrize("task", [0, 1])
def test_a_single_task_is_one_head(task: int) -> None:
    both = tiny()
    alone = tiny(tasks=[task])
    assert (alone.n_objectives, alone.dim) == (1, 31_910 - 510)
    theta = both.initial(runs_at(45.0, seeds=(0, 1)))
    shared = theta[:, :-1020]
    head = theta[:, -1020 + 510 * task :][:, :510]
    cut = torch.cat([shared, head], 1)
    torch.testing.assert_close(alone.values(cut)[:, 0], both.values(theta)[:, task], rtol=1e-13, atol=0)
    columns = alone.columns(cut, alone.values(cut))
    every = both.columns(theta, both.values(theta))
    torch.testing.assert_close(columns["test_loss_1"], every[f"test_loss_{task + 1}"], rtol=1e-13, atol=0)
    runs = Runs.product(torch.ones(1, 1, dtype=F64), [0, 1])
    # the shared layers start where those of two tasks do
    assert torch.equal(alone.initial(runs)[:, :-510], shared)
    path, _, oracle = advance(alone, LS(step_size=0.2), runs, 5)
    net = module(tasks=1)
    data = data_of(alone)
    data.y = data.y[:, [task]]
    batches = [oracle.batch(t).chosen[1].numpy() for t in range(5)]
    expected = plain_loops.ls(net, path[1, 0], np.ones(1), data, batches, step_size=0.2)
    np.testing.assert_allclose(path[1].numpy(), expected.x, rtol=0, atol=1e-9)


# --- jobs ---------------------------------------------------------------------------------------------------

SMOKE = ("protocol=multi_mnist", "scale=smoke")


@pytest.mark.parametrize("name", ["ferero_stochastic", "ferero_public_code", "pmtl"])
def test_smoke_job(name: str, mobench: Run) -> None:
    result = mobench(*SMOKE, f"algorithm={name}", "logger=local", "record.every=10")
    assert result.code == 0, result.err
    meta = json.loads((result.job.path / "meta.json").read_text())
    assert meta["data_sha256"] == multi_images("digits", "digits", "", 256, 128).digest
    assert meta["embedded"] is True
    assert (meta["train_size"], meta["test_size"]) == (256, 128)
    assert meta["execution"].startswith("one batch of 3 runs on cpu")
    assert meta["execution"].endswith("products")
    rows = result.rows
    assert len(rows) == 3
    assert (rows["status"] == "done").all()
    measures = ["test_loss_1", "test_loss_2", "test_accuracy_1", "test_accuracy_2", "train_accuracy_1"]
    assert np.isfinite(rows[[*measures, "angle_deg"]]).all(axis=None)
    assert rows["test_accuracy_1"].between(0, 1).all()
    assert "stationarity" not in rows
    assert ("frozen_steps" in rows) == (name == "ferero_public_code")


BAD = {
    "problem.shifts=[3]": ["problem.shifts=[3]", "two whole numbers", "[3, 4]"],
    "problem.shifts=[3,9]": ["problem.shifts=[3, 9]", "from 0 to 8"],
    "problem.shifts=[3,-1]": ["problem.shifts=[3, -1]", "from 0 to 8"],
    "problem.shifts=[1.5,2]": ["problem.shifts=[1.5, 2]", "whole numbers"],
    "problem.shifts=random": ["problem.shifts=random", "two whole numbers"],
    "problem.least_accuracy=1": ["problem.least_accuracy=1", "< 1"],
    "problem.least_accuracy=-0.1": ["problem.least_accuracy=-0.1", ">= 0"],
    "problem.tasks=[2]": ["problem.tasks=[2]", "[0, 1]"],
    "problem.tasks=[]": ["problem.tasks=[]", "[0, 1]"],
    "problem.tasks=[1,0]": ["problem.tasks=[1, 0]", "[0, 1]"],
    "data=minst": ["data='minst'", "Did you mean 'mnist'"],
    "oracle.batch_size=1000": ["oracle.batch_size=1000", "1..256"],
}


@pytest.mark.parametrize("line", list(BAD))
def test_bad_input_is_one_message(line: str, mobench: Run) -> None:
    result = mobench(*SMOKE, "algorithm=ls", "logger=local", line)
    result.refused(*BAD[line])
    assert not result.folders


# memory


def test_out_of_memory_names_what_fits(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("mobench.jobs.run.train", train)
    result = mobench(*SMOKE, "algorithm=ls", "logger=local")
    assert result.code == 1
    assert "ran out of memory with 3 of 3 runs at a time" in result.err
    assert "hardware.max_batch_runs=1" in result.err
    assert "Traceback" not in result.err
    smaller = mobench(*SMOKE, "algorithm=ls", "logger=local", "hardware.max_batch_runs=2")
    assert "ran out of memory with 2 of 3 runs at a time" in smaller.err
    assert smaller.job.key == result.job.key  # the same job


def test_out_of_memory_with_one_network(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("mobench.jobs.run.train", train)
    result = mobench(*SMOKE, "algorithm=ls", "logger=local", "hardware.max_batch_runs=1")
    assert "ran out of memory with one run at a time" in result.err
    assert "max_batch_runs" not in result.err
