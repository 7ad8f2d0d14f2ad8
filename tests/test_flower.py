"""mobench.flower: a Flower strategy from any method, against the internal loop, and with clients that drop
out or send what cannot be used. campaigns/test_flower_deployed.py runs it with a real server and clients.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when flwr is imported
pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import mobench
from mobench.errors import CompatibilityError, ConfigError, MobenchError
from mobench.flower import MultiObjective, _Answer, client_loss, strategy
from mobench.oracles import LocalSteps
from tests.conftest import REPOSITORY
from tests.flower_here import Here, documented
from tests.reference import federated as plain
from tests.test_federated import ETA, METHODS, TAU, M, advance, by_hand, close, tiny, uniform

ROUNDS = 20
SEED = 25
NAMES = ["W1", "b1", "W2", "b2"]
Spoil = Callable[[int, int, dict[str, np.ndarray], dict[str, Any]], None]


def split(theta: np.ndarray, shapes: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    parts = np.split(theta, ends)
    return {name: part.reshape(shape) for name, part, shape in zip(NAMES, parts, shapes, strict=True)}


def record(arrays: Mapping[str, np.ndarray | Array]) -> ArrayRecord:
    return ArrayRecord(
        {name: a if isinstance(a, Array) else Array(np.ascontiguousarray(a)) for name, a in arrays.items()}
    )


def sent(array: np.ndarray, **changed: Any) -> Array:
    """An array as a client sends it, with other bytes or another format."""
    good = Array(array)
    fields = {"dtype": good.dtype, "shape": good.shape, "stype": good.stype, "data": good.data}
    return Array(**fields | changed)


def joined(arrays: ArrayRecord) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([arrays[name].numpy().ravel() for name in NAMES]))


class Federation:
    """Clients in NumPy, which know nothing of mobench but the data of a small federated problem."""

    def __init__(self, kind: str = "rotation", transform: Any = None, batches: Any = None) -> None:
        problem = tiny(kind)
        runs = uniform(SEED)
        self.problem = problem
        self.runs = runs
        self.start = problem.initial(runs)
        self.shapes = [tuple(shape) for shape in problem.network.shapes]
        data = by_hand(problem, SEED, "train")
        self.clients = [plain.mlp_client(x, y, 8, 10) for x, y in data]
        self.transform = transform
        self.batches = batches
        self.spoil: Spoil | None = None
        self.visits: list[tuple[int, int]] = []

    def app(self) -> ClientApp:
        app = ClientApp()

        @app.train()
        def train(message: Message, context: Context) -> Message:
            config = message.content["config"]
            t = int(config["server-round"])
            m = int(context.node_config["partition-id"])
            theta = joined(message.content["arrays"]).numpy()
            self.visits.append((t, m))
            losses = []
            for rows in [None] * TAU if self.batches is None else self.batches(t - 1)[m]:
                loss, slope = self.clients[m](theta, rows)
                factor = 1.0
                if self.transform is not None:
                    loss, factor = self.transform(loss)
                losses.append(loss)
                theta = theta - float(config["local-step"]) * factor * slope
            arrays = split(theta, self.shapes)
            metrics = {"train_loss": float(np.mean(losses)), "partition-id": m, "num-examples": 1}
            if self.spoil is not None:
                self.spoil(t, m, arrays, metrics)
            content = RecordDict({"arrays": record(arrays), "metrics": MetricRecord(metrics)})
            return Message(content, reply_to=message)

        return app

    def grid(self) -> Here:
        # the nodes' order is not the clients'
        return Here(self.app(), [{"partition-id": m} for m in (3, 0, 4, 1, 2)])

    def train(self, chosen: MultiObjective, rounds: int, grid: Here | None = None) -> torch.Tensor:
        first = record(split(self.start[0].numpy(), self.shapes))
        result = chosen.start(grid=grid or self.grid(), initial_arrays=first, num_rounds=rounds, timeout=5)
        return joined(result.arrays)


def made(name: str, **options: Any) -> MultiObjective:
    flower = {"fraction_evaluate": 0.0}
    return strategy(METHODS[name].algorithm, M, local_step=ETA, rounds=ROUNDS, flower=flower, **options)


# weights alone, Gram matrices, a state, outputs of their own, a function of the losses
@pytest.mark.parametrize("name", ["fedavg", "fedmgda", "fedfv", "omd", "propfair"])
def test_twenty_rounds_are_those_of_the_internal_loop(name: str) -> None:
    method = METHODS[name]
    transform = None
    if name.startswith("propfair"):
        o = method.options
        transform = plain.propfair_transform(o["base"], o.get("eps0", 0.2), o.get("below", "linear"))
    federation = Federation(transform=transform)
    oracle = LocalSteps(federation.problem, federation.runs, local_step=ETA, local_steps=TAU)
    path, answers, _ = advance(oracle, method.algorithm, federation.runs, ROUNDS)
    chosen = made(name, transformed=transform is not None)
    last = federation.train(chosen, ROUNDS)
    assert (path[0, -1] - path[0, 0]).abs().max() > 1e-2
    close(last, path[0, -1], 1e-9)
    for rule, expected in answers.items():
        close(joined(chosen.answers()[rule]), expected[0], 1e-9)
    assert [r.number for r in chosen.rounds] == list(range(1, ROUNDS + 1))
    assert all(len(r.answered) == M and not r.refused and r.moved for r in chosen.rounds)


# clients that drop out, or whose answer cannot be used


def without(
    name: str, lost: int, rounds: int, **options: Any
) -> tuple[MultiObjective, torch.Tensor, Federation]:
    """Training from which a client drops out after its first round."""
    federation = Federation()
    grid = federation.grid()
    node = next(n for n, c in grid.contexts.items() if c.node_config["partition-id"] == lost)
    chosen = made(name, **options)
    first = federation.train(chosen, 1, grid)
    federation.start = first.unsqueeze(0)
    grid.away.add(node)
    # a second start goes on with the strategy's state
    return chosen, federation.train(chosen, rounds, grid), federation


def test_a_client_that_drops_out() -> None:
    """The step is that of the others: the plain FedMGDA+ of four clients, from the same model."""
    chosen, after, federation = without("fedmgda", 2, 1)
    theta = federation.start[0].numpy()
    others = [federation.clients[m] for m in (0, 1, 3, 4)]
    path = plain.trajectory(
        "fedmgda", theta, others, 1, eta=ETA, tau=TAU, batches=None, offset=0.0, client_loss="ell", eps=0.05
    )
    np.testing.assert_allclose(after.numpy(), path.thetas[-1], rtol=0, atol=1e-9)
    assert chosen.rounds[-1].answered == (0, 1, 3, 4)
    assert chosen.rounds[-1].refused == {}
    weights = chosen.rounds[-1].weights
    assert weights is not None
    assert weights[2] == 0.0
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)


def test_a_state_of_the_method_waits_for_all_clients() -> None:
    """Without a client OMD-TCH takes its first step for the others; its multipliers are those of round 1."""
    chosen, after, federation = without("omd", 2, 1)
    theta = federation.start[0].numpy()
    others = [federation.clients[m] for m in (0, 1, 3, 4)]
    path = plain.trajectory(
        "fedavg", theta, others, 1, eta=ETA, tau=TAU, batches=None, offset=0.0, client_loss="ell", eps=0.05
    )
    step = (path.thetas[-1] - theta) * M / 4  # its weights sum to 1/4, and its step is M times as long
    np.testing.assert_allclose(after.numpy(), theta + step, rtol=0, atol=1e-9)
    assert chosen.rounds[1].losses.isnan().tolist() == [False, False, True, False, False]
    kept = chosen._state
    assert kept is not None
    lam = plain.project_simplex(np.full(M, 1.0 / M) + 0.3 / M * chosen.rounds[0].losses.numpy())
    np.testing.assert_allclose(kept["lam"][0].numpy(), lam, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["excess_mtl", "famo"])
def test_a_state_begins_with_the_first_round_of_all_clients(method: str) -> None:
    """A method that sets its state aside in its first step does so then, though it is the second round."""
    flower = {"fraction_evaluate": 0.0}
    federation = Federation()
    grid = federation.grid()
    chosen = strategy(method, M, local_step=ETA, flower=flower)
    grid.away = {100}
    federation.start = federation.train(chosen, 1, grid).unsqueeze(0)
    assert [r.moved for r in chosen.rounds] == [True]
    grid.away = set()
    fresh = strategy(method, M, local_step=ETA, flower=flower)
    assert torch.equal(federation.train(chosen, 1, grid), federation.train(fresh, 1, grid))


@pytest.mark.parametrize("away", [0, 1, 4])
def test_a_state_counts_its_own_steps(away: int) -> None:
    """DWA weighs by how losses fall: alike here, so that both clients count the same in all other rounds."""
    chosen = strategy("dwa", 2, local_step=ETA)
    chosen._model, chosen._names = {"w": np.zeros(3, np.float32)}, ("w",)
    moved = np.eye(3, dtype=np.float32)
    for t in range(7):
        present = [0] if t == away else [0, 1]
        losses = torch.tensor([2.0, 1.0], dtype=torch.float64) * 0.99**t
        answers = {m: _Answer({"w": 0.01 * moved[m]}, float(losses[m]), None) for m in present}
        result = chosen._step(answers, losses, torch.zeros(1, 3), t)
        assert result is not None
        assert result[1] is not None
        assert result[1].tolist() == pytest.approx([1.0, 0.0] if t == away else [0.5, 0.5])


def error() -> None:
    raise RuntimeError("out of memory")


FAULTS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "nan in arrays": (lambda a, _: a.update(b1=a["b1"] * np.nan), "its array 'b1' is not finite"),
    "far away": (lambda a, _: a.update(b2=a["b2"] + 1e300), "its array 'b2' is not finite, or longer than"),
    "shape": (lambda a, _: a.update(W2=a["W2"][:, 1:]), "'W2' has the shape (10, 7) and holds float64"),
    "type": (lambda a, _: a.update(W2=np.float32(a["W2"])), "holds float32; expected (10, 8) and float64"),
    "garbage": (lambda a, _: a.update(W2=sent(a["W2"], data=b"garbage")), "'W2' cannot be read"),
    "format": (lambda a, _: a.update(W2=sent(a["W2"], stype="torch")), "'W2' cannot be read"),
    "no array": (
        lambda a, _: a.update(W3=a.pop("W2")),
        "its model has other arrays than the server's: W2, W3",
    ),
    "nan loss": (
        lambda _, m: m.update(train_loss=np.nan),
        "its 'train_loss' is nan; expected a finite number",
    ),
    "no loss": (lambda _, m: m.pop("train_loss"), "its 'train_loss' is None; expected a finite number"),
    "no samples": (lambda _, m: m.update({"num-examples": 0}), "its 'num-examples' is 0; expected a finite"),
    "error": (lambda *_: error(), "it failed: <class 'RuntimeError'>:<'out of memory'>"),
    **{
        f"number {n}": (
            lambda _, m, n=n: m.update({"partition-id": n}),
            "expected a whole number from 0 to 4",
        )
        for n in (5, -1, 0.5)
    },
    "no number": (lambda _, m: m.pop("partition-id"), "expected a whole number from 0 to 4"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_answer_that_cannot_be_used_is_refused_by_name(fault: str) -> None:
    """The round goes on as without the client: the same model, bit for bit."""
    spoil, reason = FAULTS[fault]
    _, expected, _ = without("fedmgda", 2, 1)
    federation = Federation()
    federation.spoil = lambda t, m, arrays, metrics: spoil(arrays, metrics) if m == 2 and spoilt else None
    grid = federation.grid()
    chosen = made("fedmgda")
    spoilt = False
    federation.start = federation.train(chosen, 1, grid).unsqueeze(0)
    spoilt = True
    assert torch.equal(federation.train(chosen, 1, grid), expected)
    ((who, why),) = chosen.rounds[-1].refused.items()
    known = fault != "error" and "number" not in fault
    assert who == ("client 2 (node 104)" if known else "node 104")
    assert reason in why
    assert chosen.rounds[-1].answered == (0, 1, 3, 4)


def test_two_nodes_that_say_they_are_the_same_client() -> None:
    def impostor(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
        metrics["partition-id"] = 1 if m == 2 else m

    federation = Federation()
    federation.spoil = impostor
    chosen = made("fedmgda")
    federation.train(chosen, 1)
    assert chosen.rounds[0].answered == (0, 3, 4)
    assert set(chosen.rounds[0].refused) == {"client 1 (node 103)", "client 1 (node 104)"}


def test_nobody_answers() -> None:
    federation = Federation()
    grid = federation.grid()
    grid.away = set(grid.contexts)
    chosen = made("fedmgda")
    first = record(split(federation.start[0].numpy(), federation.shapes))
    result = chosen.start(grid=grid, initial_arrays=first, num_rounds=2, timeout=5)
    assert len(result.arrays) == 0
    assert [r.moved for r in chosen.rounds] == [False, False]
    assert torch.equal(joined(chosen.answers()["last"]), federation.start[0])


def test_types_and_counters() -> None:
    """float32 stays float32, and whole numbers stay whole."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        x = {name: array.numpy() for name, array in message.content["arrays"].items()}
        answer = {"x": x["x"] + np.float32(1 + context.node_config["partition-id"]), "count": x["count"] + 7}
        metrics = MetricRecord({"train_loss": 1.0, "partition-id": context.node_config["partition-id"]})
        return Message(RecordDict({"a": record(answer), "m": metrics}), reply_to=message)

    first = record({"x": np.zeros((2, 1), np.float32), "count": np.array(3)})
    chosen = strategy("fedavg", 2, local_step=0.5, flower={"fraction_evaluate": 0.0})
    grid = Here(app, [{"partition-id": 0}, {"partition-id": 1}])
    result = chosen.start(grid=grid, initial_arrays=first, num_rounds=1)
    assert result.arrays["x"].numpy().dtype == np.float32
    np.testing.assert_allclose(result.arrays["x"].numpy(), [[1.5], [1.5]], rtol=1e-6)
    assert result.arrays["count"].numpy() == 10
    assert result.arrays["count"].numpy().dtype == np.int64
    metrics = result.train_metrics_clientapp[1]
    assert metrics["answered"] == 2


# arrays that are not trained


def normalised(tracked: bool, momentum: float | None = 0.1) -> nn.Module:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8, track_running_stats=tracked, momentum=momentum)
    return nn.Sequential(nn.Linear(3, 8), norm, nn.ReLU(), nn.Linear(8, 1))


def trained(net: nn.Module, m: int) -> float:
    """Trains a network on the data of client m, which differ in scale, and returns its loss."""
    g = torch.Generator().manual_seed(m)
    x = torch.randn(32, 3, generator=g) * (1 + 4 * m) + 3 * m
    loss = (net(x) - torch.randn(32, 1, generator=g)).square().mean()
    loss.backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    return loss.item()


def networks_of(make: Callable[[], nn.Module], samples: Any = lambda m: 10 * (m + 1)) -> Here:
    """Three clients that train such a network, with so many samples; None: they do not say."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        m = int(context.node_config["partition-id"])
        net = make()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        metrics = {"train_loss": trained(net, m), "partition-id": m}
        if samples(m) is not None:
            metrics["num-examples"] = samples(m)
        content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=message)

    return Here(app, [{"partition-id": m} for m in (1, 0, 2)])


def served(
    method: str,
    make: Callable[[], nn.Module],
    rounds: int = 2,
    samples: Any = lambda m: 10 * (m + 1),
    **o: Any,
) -> tuple[MultiObjective, dict[str, torch.Tensor]]:
    chosen = strategy(method, 3, local_step=0.1, flower={"fraction_evaluate": 0.0}, **o)
    grid = networks_of(make, samples)
    first = ArrayRecord(make().state_dict())
    result = chosen.start(grid=grid, initial_arrays=first, num_rounds=rounds)
    return chosen, result.arrays.to_torch_state_dict()


SERVED = ("fedavg", "upgrad", "qffl", "omd_tch", "graddrop")


@pytest.mark.parametrize("method", SERVED)
def test_statistics_are_no_gradients(method: str) -> None:
    """The weights and the trained arrays of two rounds are those of a network without statistics, bit for
    bit; the statistics of the first round are the clients' mean by their numbers of samples, whatever the
    method.
    """
    with_them, after = served(method, lambda: normalised(True))
    without_them, plain_after = served(method, lambda: normalised(False))
    for a, b in zip(with_them.rounds, without_them.rounds, strict=True):
        assert a.weights is b.weights or torch.equal(a.weights, b.weights)
    assert all(torch.equal(after[name], value) for name, value in plain_after.items())
    _, once = served(method, lambda: normalised(True), rounds=1)
    nets = [normalised(True) for _ in range(3)]
    for m, net in enumerate(nets):
        trained(net, m)
    for name in ("1.running_mean", "1.running_var"):
        expected = sum((m + 1) / 6 * net.state_dict()[name].double() for m, net in enumerate(nets))
        torch.testing.assert_close(once[name].double(), expected, rtol=1e-6, atol=0)
    assert once["1.num_batches_tracked"] == 1
    assert after["1.num_batches_tracked"] == 2
    assert after["1.num_batches_tracked"].dtype == torch.int64


def test_statistics_have_equal_weights_where_a_client_sends_no_number_of_samples() -> None:
    _, after = served("mgda", lambda: normalised(True), rounds=1, samples=lambda m: None if m else 7)
    nets = [normalised(True) for _ in range(3)]
    for m, net in enumerate(nets):
        trained(net, m)
    expected = sum(net.state_dict()["1.running_var"].double() for net in nets) / 3
    torch.testing.assert_close(after["1.running_var"].double(), expected, rtol=1e-6, atol=0)


class Masked(nn.Module):
    """A network with a mask, as that of causal attention, and a constant of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)
        self.mask: torch.Tensor
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
        self.register_buffer("order", torch.tensor([2**60 + 1, 2, 3]))
        self.register_buffer("roots", torch.tensor([1j, -1j]))
        self.register_buffer("on", torch.tensor([True, False]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ self.mask.softmax(1)[:, :1]


def test_arrays_that_are_named_are_trained_and_no_others() -> None:
    names = [name for name, _ in Masked().named_parameters()]
    _, after = served("mgda", Masked, trainable=names)
    first = Masked().state_dict()
    assert {name for name in first if not torch.equal(after[name], first[name])} == set(names)
    with pytest.raises(ConfigError, match=r"'mask' of float32 cannot be trained.*trainable=\[name for"):
        served("mgda", Masked)
    with pytest.raises(ConfigError, match=r"trainable='layer.weights' is unknown.*'layer.weight'"):
        served("mgda", Masked, trainable=["layer.weights"])
    with pytest.raises(ConfigError, match="'order' of int64 cannot be trained"):
        served("mgda", Masked, trainable=["order"])


def test_the_page_on_federations() -> None:
    """Its program, without a network: other methods serve the client better that the mean leaves behind."""
    worst = {}
    with documented(REPOSITORY / "docs" / "federation.md") as (client, server):
        first = ArrayRecord(client.network().state_dict())
        for name in ("fedavg", "omd_tch"):
            chosen = server.federation(name)
            grid = Here(client.app, [{"partition-id": m} for m in range(client.CLIENTS)])
            chosen.start(grid=grid, initial_arrays=first, num_rounds=15)
            worst[name] = float(chosen.rounds[-1].losses[-1])
            assert chosen.rounds[-1].losses.argmax() == client.CLIENTS - 1 or name != "fedavg"
    assert worst["omd_tch"] < 0.8 * worst["fedavg"], worst


# what is refused before the first round


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'fedmgda_plus'"):
        strategy("fedmgda_pluss", 3, local_step=0.1)
    with pytest.raises(ConfigError, match="clients=0"):
        strategy("mgda", 0, local_step=0.1)
    with pytest.raises(ConfigError, match="local_step=0"):
        strategy("mgda", 3, local_step=0.0)
    with pytest.raises(ConfigError, match=r"ideal has the shape \(2,\)"):
        strategy("tch", 3, local_step=0.1, ideal=[0.0, 0.0])
    with pytest.raises(ConfigError, match="client_loss"):
        strategy("propfair", 3, local_step=0.1)
    for name in ("nsga2", "mlm_cmoo", "modo", "forum", "pmtl"):
        with pytest.raises(CompatibilityError):
            strategy(name, 3, local_step=0.1)
    assert mobench.flower.strategy is strategy


def test_negative_losses_of_a_method_that_needs_positive_ones() -> None:
    federation = Federation()
    federation.spoil = lambda t, m, arrays, metrics: metrics.update(train_loss=-1.0)
    with pytest.raises(CompatibilityError, match="objectives >= 0"):
        federation.train(made("qffl"), 1)


def test_a_step_that_diverges_is_an_error() -> None:
    federation = Federation()
    federation.spoil = lambda t, m, arrays, metrics: arrays.update(W1=arrays["W1"] * 1e28)
    with pytest.raises(MobenchError, match="after round 1 of LS is not finite"):
        federation.train(
            strategy("ls", M, local_step=1e-9, flower={"fraction_evaluate": 0.0}, step_size=1.0), 1
        )


def test_the_loss_of_a_client() -> None:
    loss = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    value = client_loss("propfair", baseline=5.0)(loss)
    value.backward()
    expected = plain.propfair_transform(5.0)(1.5)
    assert value.item() == pytest.approx(expected[0], rel=1e-12)
    assert loss.grad is not None
    assert loss.grad.item() == pytest.approx(expected[1], rel=1e-12)
    assert client_loss("mgda")(loss) is loss
