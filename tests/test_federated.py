"""Federated clients as objectives: networks, local steps, server steps and evaluation against autograd,
closed forms, plain modules and the loops of tests/reference/federated.py, which know nothing of the package.
"""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.fedfv import FedFV
from mobench.algorithms.fedmgda_plus import FedMGDAPlus
from mobench.algorithms.ls import LS
from mobench.algorithms.omd_tch import OMDTCH
from mobench.algorithms.propfair import PropFair
from mobench.algorithms.qffl import QFFL
from mobench.algorithms.stch import STCH
from mobench.algorithms.tch import TCH
from mobench.config import compose
from mobench.core import Algorithm, Free, Problem, Runs, Spec, Weighting, loop
from mobench.core.algorithm import Context
from mobench.core.compatibility import check
from mobench.core.federated import LocalBatch
from mobench.core.oracle import Oracle, Transformed, slope
from mobench.core.output import make_output
from mobench.core.preferences import resolve, spread
from mobench.data import load_images
from mobench.data.clients import partition
from mobench.errors import CompatibilityError, ConfigError, PreferenceError
from mobench.jobs.build import make_job
from mobench.jobs.run import folder_of, run_job
from mobench.jobs.store import JobFolder
from mobench.models.mlp import MLP
from mobench.oracles import EMA, Exact, LocalSteps
from mobench.problems import VLMOP2, ZDT1, FederatedImages, LeastSquares, MultiMNIST
from tests.conftest import Run
from tests.helpers import runs_at
from tests.reference import federated as plain_loops

F64 = torch.float64
CPU = torch.device("cpu")
M = 5
ETA = 0.1
KINDS: dict[str, dict[str, Any]] = {
    "rotation": {"partition": "rotation", "rotations": [0, 0, 0, 90, 180]},
    "partial": {"partition": "partial", "classes_per_client": 2},
}
BATCH = {"rotation": 21, "partial": 5}  # passes with a short last batch


def tiny(kind: str = "rotation", **options: Any) -> FederatedImages:
    small = {"clients": M, "hidden": 8, "shrink": 4, "train_size": 300, "test_size": 150}
    return FederatedImages(**(small | KINDS[kind] | options))


def uniform(*seeds: int) -> Runs:
    return Runs.product(resolve({"weights": "uniform"}, M), seeds)


def by_hand(p: FederatedImages, seed: int, split: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of every client: turned, divided by 255, averaged over squares, one row each."""
    base = load_images(p.data, "")
    shares = partition(
        base, p.partition, p.clients, p.classes_per_client, p.rotations, seed, p.train_size, p.test_size
    )
    out = []
    for m, index in enumerate(getattr(shares, split)):
        pictures = getattr(base, split)[index].numpy().astype(float)
        x = np.rot90(pictures, shares.turns[m], axes=(1, 2)) / 255.0
        side = 28 // p.shrink
        x = (
            x[:, : side * p.shrink, : side * p.shrink]
            .reshape(len(x), side, p.shrink, side, p.shrink)
            .mean((2, 4))
        )
        out.append((x.reshape(len(x), -1), getattr(base, f"{split}_labels")[index].numpy()))
    return out


def module(theta: Tensor, inputs: int, hidden: int) -> torch.nn.Sequential:
    net = torch.nn.Sequential(torch.nn.Linear(inputs, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    net = net.to(theta.dtype)
    torch.nn.utils.vector_to_parameters(theta, net.parameters())
    return net


def advance(
    oracle: Oracle, algorithm: Algorithm, runs: Runs, steps: int, theta: Tensor | None = None
) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
    """Path (R, T + 1, P), the answers of the output rules, the last state."""
    start = oracle.problem.initial(runs) if theta is None else theta  # type: ignore[attr-defined]
    rules = {name: make_output(name) for name in algorithm.outputs}
    state = loop.start(oracle, algorithm, rules, start, runs, steps)
    xs: list[Tensor] = []
    state = loop.advance(
        oracle, algorithm, rules, state, steps, lambda t, s, q: xs.append(s["theta"].clone())
    )
    assert state["alive"].all()
    assert not state["fail"].any()
    return torch.stack([*xs, state["theta"]], 1), loop.finals(rules, state), state


def close(a: Tensor, b: Tensor, rtol: float) -> None:
    """Relative to the largest entry."""
    assert a.shape == b.shape
    assert (a - b).abs().max() <= rtol * b.abs().max(), float((a - b).abs().max() / b.abs().max())


def rows_of(oracle: LocalSteps, r: int, t: int) -> list[list[np.ndarray]]:
    """The samples of each client in each of its steps of round t, as the plain loops take them."""
    steps = oracle._batches(t, CPU)
    out: list[list[np.ndarray]] = []
    for m in range(oracle.spec.M):
        parts = [b.index[r, m, : int(b.sizes[r, m])].numpy() for b in steps if b is not None]
        out.append([part for part in parts if len(part)])
    return out


# --- the perceptron -----------------------------------------------------------------------------------------


def networks(K: int = 3, B: int = 7, inputs: int = 6, hidden: int = 5) -> tuple[MLP, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(K)
    net = MLP(inputs, hidden)
    theta = torch.randn(K, net.dim, dtype=F64, generator=rng)
    x = torch.randn(K, B, inputs, dtype=F64, generator=rng)
    return net, theta, x, torch.randint(10, (K, B), generator=rng)


def test_parameters_are_those_of_torch_in_its_order() -> None:
    assert MLP(784).dim == 159_010
    net, theta, x, _ = networks()
    for k in range(3):
        plain_net = module(theta[k], 6, 5)
        assert net.shapes == [tuple(p.shape) for p in plain_net.parameters()]
        for part, p in zip(net.split(theta), plain_net.parameters(), strict=True):
            assert torch.equal(part[k], p)
        close(net.logits(theta, x)[k], plain_net(x[k]).detach(), 1e-14)


def test_gradients_are_those_of_autograd_and_of_a_module() -> None:
    net, theta, x, labels = networks()
    weight = torch.rand(3, 7, dtype=F64, generator=torch.Generator().manual_seed(1))
    weight[1, 4:] = 0.0
    loss, rows = net.gradients(theta, x, labels, weight)
    leaf = theta.clone().requires_grad_(True)
    z = net.logits(leaf, x)
    losses = (torch.nn.functional.cross_entropy(z.mT, labels, reduction="none") * weight).sum(1)
    (graph,) = torch.autograd.grad(losses.sum(), leaf)
    close(loss, losses.detach(), 1e-13)
    close(rows, graph, 1e-12)
    for k in range(3):
        plain_net = module(theta[k], 6, 5)
        each = torch.nn.functional.cross_entropy(plain_net(x[k]), labels[k], reduction="none")
        total = (each * weight[k]).sum()
        total.backward()
        close(loss[k], total.detach(), 1e-13)
        close(rows[k], torch.cat([p.grad.flatten() for p in plain_net.parameters()]), 1e-12)
    low = net.gradients(theta.float(), x.float(), labels, weight.float())
    assert low[0].dtype == low[1].dtype == torch.float32
    close(low[1].double(), rows, 1e-5)


def test_columns_leave_out_inputs_that_are_zero() -> None:
    net, theta, x, labels = networks()
    columns = torch.tensor([0, 2, 5])
    x = x * torch.zeros(6, dtype=F64).index_fill_(0, columns, 1.0)
    weight = torch.full((3, 7), 1 / 7, dtype=F64)
    whole = net.gradients(theta, x, labels, weight)
    some = net.gradients(theta, x[..., columns], labels, weight, columns)
    close(some[0], whole[0], 1e-14)
    close(some[1], whole[1], 1e-13)
    assert (net.split(some[1])[0][:, :, [1, 3, 4]] == 0).all()
    close(net.logits(theta, x[..., columns], columns), net.logits(theta, x), 1e-14)


def test_the_slope_of_relu_at_zero_is_zero() -> None:
    net, theta, x, labels = networks()
    W1, b1, _, _ = net.split(theta)
    # a unit that is exactly 0
    W1[:, 2] = 0.0
    b1[:, 2] = 0.0
    leaf = theta.clone().requires_grad_(True)
    (graph,) = torch.autograd.grad(torch.nn.functional.cross_entropy(net.logits(leaf, x).mT, labels), leaf)
    _, rows = net.gradients(theta, x, labels, torch.full((3, 7), 1 / 21, dtype=F64))
    close(rows, graph, 1e-12)
    assert (net.split(rows)[0][:, 2] == 0).all()


def test_starts() -> None:
    p = tiny(hidden=50)
    runs = Runs.product(spread(2, M), [0, 25])
    theta = p.initial(runs)
    assert theta.dtype == F64
    assert torch.equal(theta[0], theta[2])  # all preferences of a seed
    assert not torch.equal(theta[0], theta[1])
    assert torch.equal(p.initial(runs.take([3]))[0], theta[3])
    starts = tiny(start={"kind": "default", "per_preference": True}).initial(runs)
    assert len({tuple(row[:5].tolist()) for row in starts}) == 4
    for parameter, bound in zip(p.network.split(theta), [1 / 7, 1 / 7, 50**-0.5, 50**-0.5], strict=True):
        flat = parameter[0].flatten().abs()
        assert bound * (1 - 8 / len(flat)) < flat.max() <= bound  # as PyTorch's layers: 1 / sqrt(fan in)
    with pytest.raises(ConfigError, match=r"problem\.start\.kind='xavier'"):
        tiny(start={"kind": "xavier"})


# --- whole rounds against the plain loops -------------------------------------------------------------------


class Method(NamedTuple):
    algorithm: Algorithm
    reference: str
    options: dict[str, Any]


# uniform preference 1/M: where a method keeps the factor w_m, its step is M times the local one
OUTPUTS = ["mean", "adaptive", "last"]
METHODS = {
    "fedavg": Method(LS(step_size=ETA), "fedavg", {}),
    "tch": Method(TCH(step_size=M * ETA), "tch", {}),
    "stch": Method(STCH(step_size=M * ETA, mu=0.01), "stch", {"mu": 0.01}),
    "omd": Method(
        OMDTCH(step_size=M * ETA, lambda_step=0.3, outputs=OUTPUTS),
        "omd",
        {"variant": "pgd", "lambda_lr_effective": 0.3 / M},
    ),
    "omd-eg": Method(
        OMDTCH(step_size=M * ETA, lambda_step=3.0, mirror="eg", outputs=OUTPUTS),
        "omd",
        {"variant": "eg", "lambda_lr_effective": 3.0 / M},
    ),
    "qffl": Method(QFFL(step_size=ETA, q=1.0), "qffl", {"q": 1.0}),
    "propfair": Method(PropFair(step_size=ETA, baseline=2.52), "propfair", {"base": 2.52}),
    "propfair-huber": Method(
        PropFair(step_size=ETA, baseline=2.5, threshold=0.21, below="huber"),
        "propfair",
        {"base": 2.5, "eps0": 0.21, "below": "huber"},
    ),
    "fedfv": Method(FedFV(step_size=ETA, alpha=0.2, external_from=3), "fedfv", {"alpha": 0.2, "tau_fv": 3}),
    "fedmgda": Method(FedMGDAPlus(step_size=ETA, epsilon=0.05), "fedmgda", {"eps": 0.05}),
    "fedmgda-normalized": Method(
        FedMGDAPlus(step_size=0.05, epsilon=0.05, step_rule="normalized"),
        "fedmgda",
        {"eps": 0.05, "step": "normalized", "server_lr": 0.05},
    ),
}
ROUNDS = 4
TAU = 3
SEEDS = (25, 0)


def compare(
    name: str, kind: str, batch_size: int | None, **options: Any
) -> list[plain_loops.FederatedTrajectory]:
    """Every run against the plain loop on the same samples."""
    method = METHODS[name]
    loss = options.get("client_loss", "running")
    p = tiny(kind)
    runs = uniform(*SEEDS)
    oracle = LocalSteps(p, runs, local_step=ETA, local_steps=TAU, batch_size=batch_size, **options)
    path, answers, _ = advance(oracle, method.algorithm, runs, ROUNDS)
    atol = 1e-10 if "mgda" in name else 1e-12
    out = []
    for r, seed in enumerate(SEEDS):
        clients = [plain_loops.mlp_client(x, y, 8, 10) for x, y in by_hand(p, seed, "train")]
        batches = None if batch_size is None else lambda t, r=r: rows_of(oracle, r, t - 1)
        start = (method.reference, path[r, 0].numpy(), clients, ROUNDS)
        rules = {"batches": batches, "offset": 0.0, "client_loss": "ell" if loss == "running" else loss}
        plain_path = plain_loops.trajectory(*start, eta=ETA, tau=TAU, **rules, **method.options)
        np.testing.assert_allclose(path[r].numpy(), plain_path.thetas, rtol=0, atol=atol)
        for rule, expected in (
            ("mean", plain_path.mean),
            ("adaptive", plain_path.adaptive),
            ("last", plain_path.thetas[-1]),
        ):
            if rule in answers:
                np.testing.assert_allclose(answers[rule][r].numpy(), expected, rtol=0, atol=atol)
        assert np.abs(plain_path.thetas[-1] - plain_path.thetas[0]).max() > 1e-2
        out.append(plain_path)
    return out


PAIRS = [(name, *how) for name in METHODS for how in (("rotation", False), ("partial", True))]
PAIRS += [(name, *how) for name in ("fedavg", "omd") for how in (("rotation", True), ("partial", False))]


@pytest.mark.parametrize(("name", "kind", "batched"), PAIRS)
def test_trajectories(name: str, kind: str, batched: bool) -> None:
    paths = compare(name, kind, BATCH[kind] if batched else None)
    if name.startswith("propfair"):  # losses on both sides of the threshold
        base = METHODS[name].options["base"]
        threshold = METHODS[name].options.get("eps0", 0.2)
        met = np.concatenate([loss for path in paths for local in path.rounds for loss in local.met])
        assert (base - met >= threshold).any()
        assert (base - met < threshold).any()


@pytest.mark.parametrize(
    ("name", "loss", "batched"),
    [
        ("stch", "at_start", False),
        ("qffl", "at_start", False),
        ("omd", "at_end", False),
        ("qffl", "at_end", True),
    ],
)
def test_trajectories_with_other_losses_of_clients(name: str, loss: str, batched: bool) -> None:
    paths = compare(name, "partial", BATCH["partial"] if batched else None, client_loss=loss)
    apart = [
        np.abs(ell - local.ell).min()
        for path in paths
        for ell, local in zip(path.ells, path.rounds, strict=True)
    ]
    assert min(apart) > 1e-3  # not the losses met on the way


# --- server steps on made-up rounds -------------------------------------------------------------------------


def round_of(seed: int, P: int = 7, clients: int = 5, R: int = 6) -> tuple[Tensor, Tensor]:
    """Losses (R, M) and conflicting gradients (R, M, P)."""
    rng = torch.Generator().manual_seed(seed)
    F = torch.rand(R, clients, dtype=F64, generator=rng) + 0.1
    return F, torch.randn(R, clients, P, dtype=F64, generator=rng) + 0.2


def context(prefs: Tensor) -> Context:
    R, clients = prefs.shape
    spec = Spec(R, clients, 0, 3, Free())
    theta = torch.zeros(R, 3, dtype=F64)
    return Context(spec=spec, prefs=prefs, all_prefs=prefs, theta=theta, exact=lambda x: x, steps=9)


def server_step(algorithm: Algorithm, F: Tensor, J: Tensor, t: int = 0) -> Tensor:
    """alpha d of round t for uniform preferences."""
    assert isinstance(algorithm, Weighting)
    state = algorithm.init(context(torch.full_like(F, 1 / F.shape[1])))
    w, _, info = algorithm.weights(F, J @ J.mT if algorithm.gramian else None, state, t)
    assert info.fail is None or not info.fail.any()
    return -algorithm.schedule(t) * (w.unsqueeze(1) @ J).squeeze(1)


def reference_step(name: str, F: Tensor, J: Tensor, t: int = 0, **options: Any) -> Tensor:
    steps = []
    for r in range(len(F)):
        theta = np.zeros(J.shape[2])
        new, _ = plain_loops.SERVER[name](
            theta, theta - ETA * J[r].numpy(), F[r].numpy(), ETA, {"round": t + 1}, options
        )
        steps.append(torch.from_numpy(new))
    return torch.stack(steps)


@pytest.mark.parametrize("P", [3, 12])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.25, 0.5, 0.7, 0.9, 1.0])
def test_fedfv_on_conflicts(alpha: float, P: int) -> None:
    F, J = round_of(int(100 * alpha) + P, P, clients=11)  # 10 x (1 - alpha) of them move
    J[0, 2] = 0.0  # a client that has not moved
    J[1] = 0.0  # nobody has
    J[2, 3] = -J[2, 1]  # opposite ones
    F[3, 1] = F[3, 4]  # a tie: the smaller index first
    for external, t in ((0, 5), (1, 0), (3, 1), (3, 2), (3, 5)):
        step = server_step(FedFV(step_size=ETA, alpha=alpha, external_from=external), F, J, t)
        expected = reference_step("fedfv", F, J, t, alpha=alpha, tau_fv=external)
        torch.testing.assert_close(step, expected, rtol=0, atol=1e-12)
    assert (step[1] == 0).all()
    assert ((J @ J.mT) < 0).any()


def test_fedfv_where_gradients_cancel() -> None:
    """The mean is 0, and |mean|^2 of the Gram matrix is rounding of either sign: a finite step of 0."""
    rng = np.random.default_rng(0)
    J = rng.standard_normal((200, 3, 5))
    J[:, 2] = -J[:, 0] - J[:, 1]
    J = torch.from_numpy(J)
    G = J @ J.mT
    assert bool((G.sum((1, 2)) < 0).any())
    w, _, _ = FedFV(alpha=0.1).weights(torch.rand(200, 3, dtype=torch.float64), G, {}, 0)
    d = torch.einsum("rm,rmp->rp", w, J)
    assert bool(d.isfinite().all())
    assert float(torch.linalg.vector_norm(d, dim=1).max()) < 1e-6


@pytest.mark.parametrize("rule", ["models", "normalized"])
@pytest.mark.parametrize("epsilon", [0.0, 0.03, 0.2, 1.0])
def test_fedmgda_on_conflicts(epsilon: float, rule: str) -> None:
    F, J = round_of(int(100 * epsilon))
    J[0, 2] = 0.0
    expected = reference_step("fedmgda", F, J, eps=epsilon, step=rule, server_lr=ETA)
    step = server_step(FedMGDAPlus(step_size=ETA, epsilon=epsilon, step_rule=rule), F, J)
    torch.testing.assert_close(step, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("q", [0.0, 0.1, 1.0, 5.0])
def test_qffl_on_made_up_rounds(q: float) -> None:
    F, J = round_of(3)
    J[0, 2] = 0.0
    torch.testing.assert_close(
        server_step(QFFL(step_size=ETA, q=q), F, J), reference_step("qffl", F, J, q=q), rtol=0, atol=1e-13
    )
    F[1, 0] = 0.0  # has no power q - 1
    assert server_step(QFFL(step_size=ETA, q=q), F, J).isfinite().all()


# --- executions ---------------------------------------------------------------------------------------------

MIXED = (0, 5, 3, 2)  # of three preferences with two seeds


def many_runs() -> Runs:
    return Runs.product(spread(3, M), [25, 0]).take(MIXED)


def one_batch(p: FederatedImages, runs: Runs, size: int = 6) -> LocalBatch:
    """Steps of which some are short, and some clients do not move."""
    rng = np.random.default_rng(0)
    sizes = p.client_sizes(runs)
    index = np.zeros((len(runs), M, size), dtype=np.int64)
    n = np.zeros((len(runs), M), dtype=np.int64)
    for r, m in itertools.product(range(len(runs)), range(M)):
        n[r, m] = (0, size, 2, size)[(r + m) % 4]
        index[r, m, : n[r, m]] = rng.permutation(sizes[r][m])[: n[r, m]]
    return LocalBatch(torch.from_numpy(index), torch.from_numpy(n))


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("batched", [False, True], ids=["all data", "batches"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_executions_give_the_same_gradients(kind: str, batched: bool, dtype: torch.dtype) -> None:
    runs = many_runs()
    y = torch.randn(4, M, tiny().dim, dtype=F64, generator=torch.Generator().manual_seed(0)).to(dtype)
    gradients = {}
    for execution, at_once in (("loop", None), *(("batched", count) for count in (None, 1, 2, 3))):
        p = tiny(kind, execution=execution, max_batch_runs=at_once)
        batch = one_batch(p, runs) if batched else None
        gradients[execution, at_once] = p.bind(runs).local_gradients(y, batch)
    F, rows = gradients["loop", None]
    assert F.dtype == rows.dtype == dtype
    for G, others in gradients.values():
        close(G, F, 1e-10 if dtype == F64 else 1e-5)
        close(others, rows, 1e-10 if dtype == F64 else 1e-5)
    for r in range(4):
        data = by_hand(tiny(kind), int(runs.seeds[r]), "train")
        for m, (x, labels) in enumerate(data):
            if batch is not None:
                chosen = batch.index[r, m, : int(batch.sizes[r, m])].numpy()
                x = x[chosen]
                labels = labels[chosen]
            if not len(x):
                assert F[r, m] == 0
                assert (rows[r, m] == 0).all()
                continue
            f, g = plain_loops.mlp_loss_and_grad(y[r, m].double().numpy(), x, labels, 8, 10)
            assert abs(float(F[r, m]) - f) <= (1e-12 if dtype == F64 else 1e-5) * f
            close(rows[r, m].double(), torch.from_numpy(g), 1e-12 if dtype == F64 else 1e-4)


@pytest.mark.parametrize("cache", [1, 1 << 30], ids=["run by run", "all at once"])
@pytest.mark.parametrize("loss", ["running", "at_start", "at_end"])
@pytest.mark.parametrize("transform", [False, True], ids=["loss", "fn of the loss"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_steps_by_products_of_images_are_steps_by_gradients(
    kind: str, transform: bool, loss: str, cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs out of order, with fn of their own; clients of other sizes are filled up."""
    monkeypatch.setattr("mobench.problems.federated_images.CACHE", cache)
    runs = many_runs()
    taken = []
    descent = MLP.descent
    monkeypatch.setattr(MLP, "descent", lambda *args: taken.append(len(args[1])) or descent(*args))
    baseline = torch.tensor([[2.6], [3.0], [4.0], [2.8]], dtype=F64)
    points = {}
    for execution in ("loop", "batched"):
        p = tiny(kind, execution=execution)
        oracle: Oracle = LocalSteps(p, runs, local_step=0.5, local_steps=4, client_loss=loss)
        if transform:  # a column of numbers, as `vary` makes it
            algorithm = PropFair()
            object.__setattr__(algorithm, "baseline", baseline)
            oracle = oracle.transformed(algorithm.transform)
        theta = p.initial(runs) + torch.arange(4, dtype=F64).unsqueeze(1) / 100
        points[execution] = oracle.at(theta, {}, 0)
        assert taken == ([] if execution == "loop" else [1] * 4 if cache == 1 else [4])
    w = torch.rand(4, M, dtype=F64, generator=torch.Generator().manual_seed(0))
    pulled = (w.unsqueeze(1) @ points["loop"].jacobian()).squeeze(1)
    close(points["batched"].vjp(w), pulled, 1e-12)
    assert points["batched"]._cached_jacobian is None  # they were not needed
    close(points["batched"].jacobian(), points["loop"].jacobian(), 1e-12)
    close(points["batched"].vjp(w), pulled, 1e-12)
    close(points["batched"].F, points["loop"].F, 1e-13)
    for r in range(4):
        clients = [plain_loops.mlp_client(x, y, 8, 10) for x, y in by_hand(p, int(runs.seeds[r]), "train")]
        fn = plain_loops.propfair_transform(float(baseline[r, 0])) if transform else None
        local = plain_loops.local_round(theta[r].numpy(), clients, 0.5, 4, transform=fn)
        np.testing.assert_allclose(points["batched"].jacobian()[r].numpy(), local.g, rtol=0, atol=1e-12)


def test_the_faster_execution_is_chosen_and_named() -> None:
    assert tiny().strategy(CPU) == "batched"
    assert tiny(train_size=1437, clients=4, rotations=[0] * 4, shrink=1).strategy(CPU) == "batched"
    assert tiny(train_size=1437, clients=3, rotations=[0] * 3, shrink=1).strategy(CPU) == "loop"
    assert tiny(train_size=1437, clients=5).strategy(CPU) == "loop"  # of few pixels
    assert tiny(data="digits", train_size=None, clients=2, rotations=[0, 90]).strategy(CPU) == "loop"
    assert tiny(execution="loop").strategy(CPU) == "loop"
    assert tiny(execution="auto").strategy(torch.device("cuda")) == "batched"


# --- local steps --------------------------------------------------------------------------------------------


def quadratics() -> tuple[LeastSquares, Runs, list[tuple[np.ndarray, np.ndarray, float]]]:
    """Three clients with f_m = least_m + 1/2 (x - z_m)'H_m (x - z_m)."""
    p = LeastSquares(n=4, tasks=3, samples=30)
    data = p.data()
    pieces = [(data.H[m].numpy(), data.z[m].numpy(), float(data.least[m])) for m in range(3)]
    return p, Runs.product(spread(2, 3), [0, 1]), pieces


def test_local_steps_have_a_closed_form_on_quadratics() -> None:
    p, runs, pieces = quadratics()
    theta = p.initial(runs)
    tau = 5
    points = {
        loss: LocalSteps(p, runs, local_step=0.2, local_steps=tau, client_loss=loss).at(theta, {}, 3)
        for loss in ("running", "at_start", "at_end")
    }
    for r, (m, (H, z, least)) in itertools.product(range(len(runs)), enumerate(pieces)):
        path = [plain_loops.quadratic_after_steps(theta[r].numpy(), H, z, 0.2, s) for s in range(tau + 1)]
        losses = [plain_loops.quadratic_loss_and_grad(x, H, z, least)[0] for x in path]
        expected = {"running": np.mean(losses[:-1]), "at_start": losses[0], "at_end": losses[-1]}
        for loss, point in points.items():
            np.testing.assert_allclose(
                point.jacobian()[r, m].numpy(), (path[0] - path[-1]) / 0.2, rtol=0, atol=1e-12
            )
            np.testing.assert_allclose(float(point.F[r, m]), expected[loss], rtol=1e-12)
    w = torch.tensor([[0.2, 0.5, 0.3]], dtype=F64).expand(4, 3).contiguous()
    point = points["running"]
    torch.testing.assert_close(point.vjp(w), (w.unsqueeze(1) @ point.jacobian()).squeeze(1))
    assert point.state == {}


@pytest.mark.parametrize("loss", ["running", "at_start"])
@pytest.mark.parametrize("problem", ["quadratics", "images", "vlmop2"])
def test_one_step_on_all_data_is_the_gradient(problem: str, loss: str) -> None:
    p: Problem
    if problem == "images":
        p = tiny("partial")
        runs = uniform(0, 25)
        theta = p.initial(runs)
        bound = p.bind(runs)
        F, J = bound.local_gradients(theta.unsqueeze(1).expand(-1, M, -1))
        close(F, bound.values(theta), 1e-13)
    else:
        p, runs = (
            (quadratics()[0], quadratics()[1])
            if problem == "quadratics"
            else (VLMOP2(n=4), runs_at(30.0, 60.0))
        )
        theta = p.initial(runs)
        exact = Exact(p, runs).at(theta, {}, 0)
        F = exact.F
        J = exact.jacobian()
    point = LocalSteps(p, runs, local_step=0.03, local_steps=1, client_loss=loss).at(theta, {}, 0)
    close(point.F, F, 1e-12)
    close(point.jacobian(), J, 1e-12)


@pytest.mark.parametrize(
    ("kind", "batch_size", "epochs"), [("partial", 3, 1), ("partial", 3, 2), ("rotation", 21, 2)]
)
def test_local_epochs(kind: str, batch_size: int, epochs: int) -> None:
    """Clients with fewer samples take fewer steps: they rest, and their loss is the mean over their own."""
    p = tiny(kind)
    runs = uniform(0, 25)
    oracle = LocalSteps(p, runs, ETA, local_steps=None, local_epochs=epochs, batch_size=batch_size)
    theta = p.initial(runs)
    for loss in ("running", "at_end"):
        oracle.client_loss = loss
        point = oracle.at(theta, {}, 4)
        counts = set()
        for r, seed in enumerate((0, 25)):
            clients = [plain_loops.mlp_client(x, y, 8, 10) for x, y in by_hand(p, seed, "train")]
            samples = rows_of(oracle, r, 4)
            local = plain_loops.local_round(theta[r].numpy(), clients, ETA, 0, samples)
            np.testing.assert_allclose(point.jacobian()[r].numpy(), local.g, rtol=0, atol=1e-12)
            np.testing.assert_allclose(
                point.F[r].numpy(), local.ell if loss == "running" else local.at_end, rtol=1e-12
            )
            for m, (x, _) in enumerate(by_hand(p, seed, "train")):
                assert len(samples[m]) == epochs * -(-len(x) // batch_size)
                counts.add(len(samples[m]))
        assert len(counts) > 1 or kind == "rotation"


def test_an_epoch_of_all_data_is_one_step() -> None:
    runs = uniform(0)
    theta = tiny().initial(runs)
    one = LocalSteps(tiny(), runs, ETA, local_steps=None, local_epochs=3).at(theta, {}, 0)
    other = LocalSteps(tiny(), runs, ETA, local_steps=3).at(theta, {}, 0)
    assert torch.equal(one.jacobian(), other.jacobian())
    assert torch.equal(one.F, other.F)


def test_the_first_loss_of_a_batch_is_that_of_the_batch() -> None:
    runs = uniform(0)
    p = tiny()
    oracle = LocalSteps(p, runs, ETA, 4, batch_size=21, client_loss="at_start")
    theta = p.initial(runs)
    F, _ = oracle.clients.local_gradients(theta.unsqueeze(1).expand(-1, M, -1), oracle._batches(2, CPU)[0])
    assert torch.equal(oracle.at(theta, {}, 2).F, F)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_sample_once_in_a_pass(kind: str) -> None:
    p = tiny(kind)
    runs = uniform(0, 25)
    oracle = LocalSteps(p, runs, ETA, local_steps=None, local_epochs=2, batch_size=5)
    sizes = p.client_sizes(runs)
    for r, t in ((0, 0), (1, 0), (0, 3)):
        for m, parts in enumerate(rows_of(oracle, r, t)):
            n = sizes[r][m]
            half = len(parts) // 2
            orders = [np.concatenate(parts[:half]), np.concatenate(parts[half:])]
            assert [sorted(order.tolist()) for order in orders] == [list(range(n))] * 2
            assert orders[0].tolist() != orders[1].tolist()
            assert {len(part) for part in parts[: half - 1]} <= {5}
            assert len(parts[half - 1]) == (n % 5 or 5)


def test_samples_are_a_function_of_seed_client_and_round() -> None:
    p = tiny(train_size=300)
    runs = many_runs()
    oracle = LocalSteps(p, runs, ETA, 6, batch_size=7)

    def drawn(o: LocalSteps, r: int, t: int) -> list[list[list[int]]]:
        return [[part.tolist() for part in parts] for parts in rows_of(o, r, t)]

    straight = [[drawn(oracle, r, t) for r in range(4)] for t in range(4)]
    for t in (3, 0, 2, 1):
        for r in (3, 1):  # alone, and in another order of rounds
            assert drawn(LocalSteps(p, runs.take([r]), ETA, 6, batch_size=7), 0, t) == straight[t][r]
    for r, q in itertools.combinations(range(4), 2):  # the same for all preferences of a seed
        assert (straight[2][r] == straight[2][q]) == (runs.seeds[r] == runs.seeds[q])
    assert straight[0][0] != straight[1][0]
    assert straight[0][0][0] != straight[0][0][1]
    # neither step size nor number of steps
    fewer = LocalSteps(p, runs, 3.0, 2, batch_size=7, client_loss="at_end")
    assert drawn(fewer, 0, 1) == [parts[:2] for parts in straight[1][0]]
    epochs = LocalSteps(p, runs, ETA, None, 1, batch_size=7)
    assert [parts[:3] for parts in drawn(epochs, 0, 1)] == [parts[:3] for parts in straight[1][0]]
    for other in (
        tiny(train_size=300, hidden=3, execution="loop"),
        tiny(train_size=300, shrink=7, rotations=[0] * M),
    ):
        assert drawn(LocalSteps(other, runs, ETA, 6, batch_size=7), 2, 2) == straight[2][2]


# --- PropFair and transformed oracles -----------------------------------------------------------------------


@pytest.mark.parametrize("below", ["linear", "huber"])
@pytest.mark.parametrize(("baseline", "threshold"), [(2.0, 0.2), (5.0, 0.2), (3.0, 1.0)])
def test_propfair_function_and_slope(baseline: float, threshold: float, below: str) -> None:
    algorithm = PropFair(baseline=baseline, threshold=threshold, below=below)
    expected = plain_loops.propfair_transform(baseline, threshold, below)
    edge = baseline - threshold
    f = torch.tensor([[0.0, 0.5, edge - 1e-6, edge + 1e-6, baseline, baseline + 2.0]], dtype=F64)
    values, slopes = slope(algorithm.transform, f)
    for i, x in enumerate(f[0].tolist()):
        np.testing.assert_allclose([float(values[0, i]), float(slopes[0, i])], expected(x), rtol=1e-9)
    assert (slopes > 0).all()  # no loss is pushed up
    jump = abs(float(slopes[0, 3] - slopes[0, 2]))
    assert (jump < 1e-3) == (below == "huber")
    column = algorithm.report(f, {})["below_threshold"]
    assert column.tolist() == [0.5]


@pytest.mark.parametrize("below", ["linear", "huber"])
def test_propfair_slope_exactly_at_the_threshold(below: str) -> None:
    """2.0 - 1.5 is 0.5 to the bit: the logarithm, with slope 1 / 0.5."""
    values, slopes = slope(
        PropFair(baseline=2.0, threshold=0.5, below=below).transform, torch.tensor([[1.5]])
    )
    assert values.item() == pytest.approx(np.log(4.0))
    assert slopes.item() == pytest.approx(2.0)


@pytest.mark.parametrize(("tau", "same"), [(1, True), (4, False)])
def test_the_slope_enters_each_local_step(tau: int, same: bool) -> None:
    """The chain rule behind the local steps is the same only where there is one of them."""
    p = tiny()
    runs = uniform(0, 25)
    algorithm = PropFair(baseline=3.0)
    theta = p.initial(runs)
    oracle = LocalSteps(p, runs, ETA, tau)
    inside = oracle.transformed(algorithm.transform).at(theta, {}, 0)
    outside = Transformed(oracle, algorithm.transform).at(theta, {}, 0)
    apart = (inside.jacobian() - outside.jacobian()).abs().max() / inside.jacobian().abs().max()
    assert (apart < 1e-12) == same
    assert same or apart > 1e-3
    assert oracle.transform is None  # the oracle itself is as it was
    assert isinstance(loop.seen_by(algorithm, oracle), LocalSteps)
    assert loop.seen_by(LS(), oracle) is oracle
    for r, seed in enumerate((0, 25)):
        clients = [plain_loops.mlp_client(x, y, 8, 10) for x, y in by_hand(p, seed, "train")]
        local = plain_loops.local_round(
            theta[r].numpy(), clients, ETA, tau, transform=plain_loops.propfair_transform(3.0)
        )
        np.testing.assert_allclose(inside.jacobian()[r].numpy(), local.g, rtol=0, atol=1e-12)
        slopes = [np.mean([plain_loops.propfair_transform(3.0)(f)[0] for f in met]) for met in local.met]
        np.testing.assert_allclose(inside.F[r].numpy(), slopes, rtol=1e-12)


CAPPED = LeastSquares(n=4, tasks=2, samples=30, caps=[2.0, None])


@pytest.mark.parametrize(
    "problem", [LeastSquares(n=4, samples=30), CAPPED, VLMOP2(n=4)], ids=["free", "capped", "vlmop2"]
)
def test_transformed_exact_oracle_against_autograd(problem: Problem) -> None:
    runs = runs_at(30.0, 60.0, seeds=(0, 1))
    fn = PropFair(baseline=1.2, threshold=0.5, below="huber").transform
    theta = problem.initial(runs)
    oracle = Exact(problem, runs).transformed(fn)
    N = problem.n_constraints
    K = 2 + problem.n_constraints

    def whole(x: Tensor) -> Tensor:
        values = problem.values(x)
        return torch.cat([fn(values[:, :2]), values[:, 2:]], 1)

    leaf = theta.clone().requires_grad_(True)
    out = whole(leaf)
    J = torch.stack([torch.autograd.grad(out[:, k].sum(), leaf, retain_graph=True)[0] for k in range(K)], 1)
    fresh = lambda: oracle.at(theta, oracle.init(theta), 0)  # noqa: E731
    torch.testing.assert_close(fresh().values(), out.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(fresh().jacobian(), J, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(fresh().jacobian("g"), J[:, 2:], rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(fresh().G, problem.values(theta)[:, 2:], rtol=0, atol=0)
    assert fresh().G.shape == (4, N)
    for k in {2, K}:
        w = torch.randn(4, k, dtype=F64, generator=torch.Generator().manual_seed(k))
        torch.testing.assert_close(
            fresh().vjp(w), (w.unsqueeze(1) @ J[:, :k]).squeeze(1), rtol=1e-12, atol=1e-13
        )
    v = torch.randn(4, 4, dtype=F64, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(fresh().jvp(v), (J @ v.unsqueeze(-1)).squeeze(-1), rtol=1e-12, atol=1e-13)
    assert oracle.spec.provides == Exact(problem, runs).spec.provides - {"hvp"}
    with pytest.raises(NotImplementedError, match="does not provide Hessian-vector products"):
        fresh().hvp(torch.ones(4, 2, dtype=F64), v)
    # evaluation is of f
    torch.testing.assert_close(oracle.exact(theta), problem.values(theta), rtol=0, atol=0)


@dataclass(frozen=True, kw_only=True)
class Curved(PropFair):
    """Asks for what a transformed oracle has not."""

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"hvp"})


def test_hessians_of_transformed_objectives_are_refused() -> None:
    p = VLMOP2(n=4)
    runs = runs_at(30.0)
    with pytest.raises(CompatibilityError, match="needs hvp, but the oracle provides jacobian, jvp"):
        loop.start(Exact(p, runs), Curved(), {}, p.initial(runs), runs, 3)
    check(Exact(p, runs).spec, Curved())  # without the transform it is there


# --- evaluation ---------------------------------------------------------------------------------------------

COLUMNS = {
    "average_accuracy", "client_accuracy", "accuracy_parity", "agnostic_loss", "worst_train_loss",
    "train_accuracy",
}  # fmt: skip


def measured(p: FederatedImages, theta: Tensor, seed: int) -> tuple[dict[str, float], list[float]]:
    """One run's columns and training losses by one module, client by client, in torch's own functions."""
    side = 28 // p.shrink
    net = module(theta, side * side, p.hidden)
    results: dict[str, Any] = {}
    for split in ("train", "test"):
        data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in by_hand(p, seed, split)]
        with torch.no_grad():
            loss = [float(torch.nn.functional.cross_entropy(net(x), y)) for x, y in data]
            right = [int((net(x).argmax(1) == y).sum()) for x, y in data]
        results[split] = loss, right, [len(y) for _, y in data]
    loss, right, n = results["test"]
    accuracy = [100.0 * a / b for a, b in zip(right, n, strict=True)]
    mean = sum(accuracy) / len(accuracy)
    return {
        "average_accuracy": 100.0 * sum(right) / sum(n),
        "client_accuracy": mean,
        "accuracy_parity": (sum((a - mean) ** 2 for a in accuracy) / len(accuracy)) ** 0.5,
        "agnostic_loss": max(loss),
        "worst_train_loss": max(results["train"][0]),
        "train_accuracy": 100.0 * sum(results["train"][1]) / sum(results["train"][2]),
    }, results["train"][0]


@pytest.mark.parametrize("shrink", [4, 3])
@pytest.mark.parametrize(("execution", "at_once"), [("loop", None), ("batched", None), ("batched", 2)])
@pytest.mark.parametrize("kind", list(KINDS))
def test_columns_against_modules(kind: str, execution: str, at_once: int | None, shrink: int) -> None:
    runs = Runs.product(spread(2, M), [25, 0]).take([3, 0, 1])
    p = tiny(kind, execution=execution, max_batch_runs=at_once, shrink=shrink, test_size=None).bind(runs)
    theta = p.initial(runs)
    theta = theta + torch.randn(theta.shape, dtype=F64, generator=torch.Generator().manual_seed(1))
    values = p.values(theta)
    columns = p.columns(theta, values)
    assert set(columns) == COLUMNS
    low = p.columns(theta.float(), p.values(theta.float()))
    for r in range(3):
        expected, losses = measured(p, theta[r], int(runs.seeds[r]))
        np.testing.assert_allclose(values[r].numpy(), losses, rtol=1e-12)
        for name, value in expected.items():
            np.testing.assert_allclose(float(columns[name][r]), value, rtol=1e-12, atol=1e-12, err_msg=name)
            np.testing.assert_allclose(float(low[name][r]), value, rtol=1e-4, atol=1e-4, err_msg=name)
    apart = (columns["average_accuracy"] - columns["client_accuracy"]).abs().max()
    assert apart > 0.01 if kind == "partial" else apart < 1e-9


@pytest.mark.parametrize("at_once", [None, 1])
def test_residual_networks_are_evaluated_together_as_one_by_one(
    at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch keeps its own statistics: no pictures of another client enter them, and no padding."""
    monkeypatch.setattr("mobench.problems.federated_images.EVALUATED", 5)
    monkeypatch.setattr("mobench.problems.federated_images.PICTURES", 12)  # two or three batches at a time
    runs = Runs.product(spread(2, M), [25, 0]).take([3, 0, 1])
    columns = []
    for execution in ("loop", "batched"):
        p = tiny("partial", model="resnet_tiny", execution=execution, max_batch_runs=at_once).bind(runs)
        theta = p.initial(runs)
        values = p.values(theta)
        columns.append({"values": values, **p.columns(theta, values)})
    assert set(columns[0]) == {"values", *COLUMNS}
    assert all(len(i) > 5 for seed in p.seeds for i in p.split_of(seed).train), "one batch is all"
    assert len(p._batches("train", 5)) > 1, "all batches have one size"
    for name, expected in columns[0].items():
        close(columns[1][name], expected, 1e-12)


def test_an_evaluation_is_remembered_for_the_same_tensor_only(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = uniform(0)
    p = tiny().bind(runs)
    theta = p.initial(runs)
    calls = []
    logits = MLP.logits

    def counted(self: MLP, *arguments: Any) -> Tensor:
        calls.append(arguments[1].shape)
        return logits(self, *arguments)

    monkeypatch.setattr(MLP, "logits", counted)
    first = p.values(theta)
    p.columns(theta, first)
    assert p.values(theta) is first
    assert len(calls) == 2  # training and test images
    theta *= 1.5  # written to
    other = p.values(theta)
    assert not torch.equal(other, first)
    assert torch.equal(p.values(theta.clone()), other)
    assert len(calls) == 4
    tiny().bind(uniform(25)).values(theta)  # of another binding
    assert len(calls) == 5


# --- jobs ---------------------------------------------------------------------------------------------------

SMOKE = ("protocol=federated", "scale=smoke", "logger=local")
SMALL = ("problem.hidden=8", "steps=2")


@functools.cache
def composed(*overrides: str) -> dict[str, Any]:
    """The plain configuration of a command line; not to be written into."""
    return compose.compose(overrides)


def changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with other values of dotted keys, as the command line would set them."""
    out = dict(config)
    for key, value in changes.items():
        node = out
        *path, last = key.split(".")
        for part in path:
            node[part] = dict(node[part])
            node = node[part]
        node[last] = value
    return out


def test_identity_of_a_job(tmp_path: Path) -> None:
    base = composed(*SMOKE, "algorithm=ls")

    def folder(**changes: Any) -> str:
        return folder_of(make_job(changed(base, changes)), tmp_path).path.name

    identity = folder()
    for key, value in (
        ("problem.data_root", "/somewhere"), ("problem.execution", "loop"), ("problem.execution", "batched"),
        ("problem.max_batch_runs", 1), ("data_root", "/else"), ("hardware.max_batch_runs", 2),
    ):  # fmt: skip
        assert folder(**{key: value}) == identity, key
    changes = {"problem.data": "digits_hard", "problem.train_size": 200, "problem.test_size": 100}
    changes |= {"problem.hidden": 9, "problem.partition": "stratified", "problem.clients": 5}
    changes |= {"problem.classes_per_client": 2, "problem.shrink": 2, "problem.rotations": [0] * 10}
    changes |= {"oracle.batch_size": 4, "oracle.local_steps": 3, "oracle.local_step": 0.2}
    changes |= {"oracle.client_loss": "at_end", "seeds": [1]}
    assert len({identity, *(folder(**{key: value}) for key, value in changes.items())}) == 1 + len(changes)


def test_a_job_and_its_facts(mobench: Run) -> None:
    result = mobench(*SMOKE, *SMALL, "algorithm=omd_tch", "seeds=[0,25]", "hardware.max_batch_runs=1")
    assert result.code == 0, result.err
    rows = result.rows
    base = load_images("digits", "")
    assert sorted(rows["output"].unique()) == ["adaptive", "last", "mean"]
    assert (rows["status"] == "done").all()
    assert set(rows) >= COLUMNS | {"f_10", "tchebycheff", "angle_deg"}
    assert "stationarity" not in rows
    assert (rows[[f"preference_{m}" for m in range(1, 11)]] == 0.1).all(axis=None)
    np.testing.assert_allclose(
        rows["worst_train_loss"], rows[[f"f_{m}" for m in range(1, 11)]].max(axis=1), rtol=1e-6
    )
    np.testing.assert_allclose(rows["tchebycheff"], 0.1 * rows["worst_train_loss"], rtol=1e-6)
    history = result.job.history()
    assert set(history["output"]) == {"adaptive", "last", "mean"}
    assert set(history) >= COLUMNS | {"tchebycheff_seen"}

    meta = json.loads((result.job.path / "meta.json").read_text())
    assert (meta["data"], meta["data_sha256"], meta["embedded"]) == (base.label, base.digest, True)
    assert meta["execution"].endswith("batched")
    assert meta["ideal_point"] == [0.0] * 10
    digests = {}
    for seed in (0, 25):
        shares = partition(base, "rotation", seed=seed, train_size=256, test_size=128)
        digests[str(seed)] = shares.digest
        assert meta["train_size"][str(seed)] == [len(i) for i in shares.train]
        assert meta["test_size"][str(seed)] == [len(i) for i in shares.test]
        assert meta["classes_held"][str(seed)] == 10
    assert meta["partition_sha256"] == digests
    assert digests["0"] != digests["25"]
    assert not {"data_root", "execution", "max_batch_runs"} & set(meta["identity"]["problem"])


def test_recorded_losses_are_those_of_the_clients(tmp_path: Path) -> None:
    """Under PropFair too, where the method sees another function; with and without record.evaluate."""
    for evaluate in (True, False):
        config = composed(*SMOKE, *SMALL, "algorithm=propfair", "algorithm.baseline=3.0", "seeds=[0,25]")
        config = changed(config, {"dtype": "float64", "record.evaluate": evaluate})
        done = run_job(config, tmp_path)
        assert done.status == "done", done.error
        folder = JobFolder(done.folder)
        job = make_job(config)
        p = job.problem.bind(job.runs)
        names = [f"f_{m}" for m in range(1, 11)]
        start = p.values(p.initial(job.runs)).numpy()
        history = folder.history()
        np.testing.assert_allclose(history[history["step"] == 0][names], start, rtol=1e-12)
        end = p.values(torch.from_numpy(folder.solutions()["last"])).numpy()
        np.testing.assert_allclose(history[history["step"] == 2][names], end, rtol=1e-12)
        np.testing.assert_allclose(folder.final()[names], end, rtol=1e-12)
        assert (np.abs(PropFair(baseline=3.0).transform(torch.from_numpy(end)).numpy() - end) > 0.1).all()
        assert (folder.final()["below_threshold"] == 0.0).all()


# --- bad input ----------------------------------------------------------------------------------------------

BAD: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "neither steps nor epochs": (
        "ls", {"oracle.local_steps": None},
        ["oracle.local_steps=None and oracle.local_epochs=None", "give only one"],
    ),
    "steps and epochs": (
        "ls", {"oracle.local_epochs": 1},
        ["oracle.local_steps=2 and oracle.local_epochs=1", "set the other to null"],
    ),
    "no epochs": (
        "ls", {"oracle.local_steps": None, "oracle.local_epochs": 0},
        ["oracle.local_epochs=0 must be at least 1"],
    ),
    "unknown key": ("ls", {"oracle.local_stepz": 3}, ["oracle.local_stepz is unknown", "local_steps"]),
    "shrink too large": ("ls", {"problem.shrink": 29}, ["problem.shrink=29 is too large", "28 x 28"]),
    "two kinds of preferences": (
        "ls", {"preferences.simplex_steps": 3}, ["preferences.weights", "preferences.simplex_steps"],
    ),
    "q": ("qffl", {"algorithm.q": -1}, ["algorithm.q=-1 must be a number >= 0"]),
    "epsilon": ("fedmgda_plus", {"algorithm.epsilon": -0.1}, ["algorithm.epsilon=-0.1 must be >= 0"]),
    "alpha": ("fedfv", {"algorithm.alpha": 1.5}, ["algorithm.alpha=1.5 must lie in [0, 1]; it is a share"]),
    "external_from": ("fedfv", {"algorithm.external_from": -1}, ["algorithm.external_from=-1 must be >= 0"]),
    "baseline": (
        "propfair", {"algorithm.baseline": 0.1}, ["algorithm.baseline=0.1", "0 < threshold < baseline"],
    ),
    "threshold": (
        "propfair", {"algorithm.threshold": 0}, ["algorithm.threshold=0", "0 < threshold < baseline"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_is_refused_before_a_folder_exists(name: str, tmp_path: Path) -> None:
    algorithm, changes, words = BAD[name]
    with pytest.raises(ConfigError) as error:
        run_job(changed(composed(*SMOKE, f"algorithm={algorithm}"), changes), tmp_path)
    for word in words:
        assert word in str(error.value)
    assert not list(tmp_path.iterdir())


def test_local_steps_refuse_batches_of_nothing() -> None:
    for p in (VLMOP2(n=4), LeastSquares(n=4, samples=30)):
        with pytest.raises(
            ConfigError,
            match=rf"has no effect, because the clients of {type(p).__name__} hold no samples. Set it",
        ):
            LocalSteps(p, runs_at(45.0), batch_size=4)


def test_local_steps_refuse_a_problem_that_cannot_be_differentiated() -> None:
    """Values of many images have no graph: refused when the oracle is made, not in the first round."""
    with pytest.raises(
        CompatibilityError,
        match=r"oracle=local_steps would need a graph of all samples of MultiMNIST.*oracle=epochs",
    ):
        LocalSteps(MultiMNIST(model="small", train_size=64, test_size=16), runs_at(45.0))


def test_local_steps_stay_in_the_feasible_set() -> None:
    """ZDT1 has a square root of a coordinate in [0, 1], and minimisers of f_1 on the edge."""
    p = ZDT1(n=4)
    runs = runs_at(20.0, 70.0)
    theta = torch.tensor([[0.05, 0.3, 0.0, 0.9], [0.7, 0.02, 0.5, 1.0]], dtype=F64)
    point = LocalSteps(p, runs, 0.2, 4).at(theta, {}, 0)
    touched = False
    for r, m in itertools.product(range(2), range(2)):
        x = theta[r : r + 1]
        met = []
        for _ in range(4):
            leaf = x.clone().requires_grad_(True)
            f = p.values(leaf)[0, m]
            met.append(f.item())
            x = (x - 0.2 * torch.autograd.grad(f, leaf)[0]).clamp(0.0, 1.0)
        touched = touched or bool(((x == 0.0) & (theta[r] > 0.0)).any())
        torch.testing.assert_close(point.jacobian()[r, m], (theta[r] - x[0]) / 0.2, rtol=0, atol=1e-12)
        assert float(point.F[r, m]) == pytest.approx(np.mean(met), rel=1e-12)
    assert touched


# --- preferences --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 10])
def test_uniform_preferences(count: int) -> None:
    weights = resolve({"count": None, "weights": "uniform"}, count)
    assert weights.dtype == F64
    assert torch.equal(weights, torch.full((1, count), 1 / count, dtype=F64))
    with pytest.raises(
        PreferenceError, match=r"preferences\.weights=equal must be uniform or rows of M weights"
    ):
        resolve({"weights": "equal"}, count)
    with pytest.raises(PreferenceError, match="only one of"):
        resolve({"weights": "uniform", "rays_deg": [45.0]}, 2)


def test_other_preferences_on_the_command_line_replace_the_uniform_one() -> None:
    job = make_job(composed(*SMOKE, "algorithm=ls", "preferences=3"))
    assert job.runs.all.shape == (3, 10)
    assert make_job(composed(*SMOKE, "algorithm=ls")).runs.all.tolist() == [[0.1] * 10]


def test_averages_of_clients_refuse_transformed_objectives() -> None:
    """Their local steps would have to descend on them."""
    problem = VLMOP2()
    runs = Runs.product(torch.tensor([[0.5, 0.5]], dtype=torch.float64), [0])
    averages = EMA(problem, runs, LocalSteps(problem, runs, local_steps=2))
    with pytest.raises(CompatibilityError, match="do not follow a method's transformed objectives"):
        averages.transformed(torch.square)
    assert EMA(problem, runs, Exact(problem, runs)).transformed(torch.square).spec.M == 2
