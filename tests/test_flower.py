"""mobench.flower: a Flower strategy from any method, against the internal loop, and with clients that drop
out or send what cannot be used. campaigns/test_flower_deployed.py runs it with a real server and clients.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
from mobench.flower import MultiObjective, client_loss, strategy
from mobench.flower.answers import is_buffer
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


def record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.ascontiguousarray(a)) for name, a in arrays.items()})


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


def test_a_memory_of_the_clients_outlasts_one_that_drops_out() -> None:
    """OMD-TCH's multipliers go on with the last loss of the missing client, which has no row."""
    chosen, after, federation = without("omd", 2, 2)
    theta = federation.start[0].numpy()
    lam = np.full(M, 1.0 / M)
    gain = 0.3 / M
    first = chosen.rounds[0].losses.numpy()
    lam = plain.project_simplex(lam + gain * first)
    for t in (1, 2):
        rows, losses = np.zeros((M, len(theta))), first.copy()
        for m in (0, 1, 3, 4):
            y, met = theta, []
            for _ in range(TAU):
                loss, slope = federation.clients[m](y, None)
                met.append(loss)
                y = y - ETA * slope
            rows[m] = (theta - y) / ETA
            losses[m] = np.mean(met)
        theta = theta - M * ETA * (lam / M) @ rows
        lam = plain.project_simplex(lam + gain * losses)
        np.testing.assert_allclose(chosen.rounds[t].losses.numpy(), losses, atol=1e-12)
    np.testing.assert_allclose(after.numpy(), theta, rtol=0, atol=1e-11)


def test_a_memory_needs_every_client_once() -> None:
    federation = Federation()
    grid = federation.grid()
    grid.away = {100}
    for name, moved in (("omd", False), ("fedmgda", True)):
        chosen = made(name)
        first = record(split(federation.start[0].numpy(), federation.shapes))
        chosen.start(grid=grid, initial_arrays=first, num_rounds=2, timeout=5)
        assert [r.moved for r in chosen.rounds] == [moved, moved]


def nan_in_arrays(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
    arrays["b1"] = np.full_like(arrays["b1"], np.nan)


def wrong_shape(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
    arrays["W2"] = arrays["W2"][:, 1:]


def wrong_type(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
    arrays["W2"] = arrays["W2"].astype(np.float32)


def no_array(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
    arrays["W3"] = arrays.pop("W2")


def far_away(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
    arrays["b2"] = arrays["b2"] + 1e300


def nan_loss(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
    metrics["train_loss"] = float("nan")


def no_loss(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
    del metrics["train_loss"]


def error(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
    raise RuntimeError("out of memory")


FAULTS = {
    nan_in_arrays: "its array 'b1' holds a number that is not finite",
    wrong_shape: "its array 'W2' has the shape (10, 7); expected (10, 8)",
    wrong_type: "its array 'W2' holds float32; expected float64",
    no_array: "its model lacks W2 and has W3",
    far_away: "its array 'b2' is longer than 1e+30",
    nan_loss: "its 'train_loss' is nan; expected a finite number",
    no_loss: "its 'train_loss' is None; expected a finite number",
    error: "it failed: <class 'RuntimeError'>:<'out of memory'>",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_an_answer_that_cannot_be_used_is_refused_by_name(
    fault: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    """The round goes on as without the client: the same model, bit for bit."""
    _, expected, _ = without("fedmgda", 2, 1)
    federation = Federation()
    federation.spoil = lambda t, m, arrays, metrics: (
        fault(t, m, arrays, metrics) if m == 2 and spoilt else None
    )
    grid = federation.grid()
    chosen = made("fedmgda")
    spoilt = False
    federation.start = federation.train(chosen, 1, grid).unsqueeze(0)
    spoilt = True
    assert torch.equal(federation.train(chosen, 1, grid), expected)
    ((who, why),) = chosen.rounds[-1].refused.items()
    assert who == ("node 104" if fault is error else "client 2 (node 104)")
    assert FAULTS[fault] in why
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


@pytest.mark.parametrize("number", [5, -1, 0.5, None])
def test_a_number_that_is_no_clients(number: Any) -> None:
    def spoil(t: int, m: int, arrays: dict[str, np.ndarray], metrics: dict[str, Any]) -> None:
        if m == 2:
            metrics.pop("partition-id")
            if number is not None:
                metrics["partition-id"] = number

    federation = Federation()
    federation.spoil = spoil
    chosen = made("fedmgda")
    federation.train(chosen, 1)
    assert "expected a whole number from 0 to 4" in chosen.rounds[0].refused["node 104"]


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
    assert metrics["weights"] == [0.5, 0.5]
    assert metrics["answered"] == 2


# arrays that are not trained

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm1d": lambda: nn.BatchNorm1d(4),
    "BatchNorm3d": lambda: nn.BatchNorm3d(4),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(4),
    "BatchNorm without parameters": lambda: nn.BatchNorm2d(4, affine=False),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
    "LayerNorm": lambda: nn.LayerNorm(4),
    "spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    "parametrized spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
    "parametrized weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    "parameters of such names": lambda: nn.ParameterDict({"_u": torch.ones(1), "mean_v": torch.ones(1)}),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("inner", [True, False])
def test_buffers_of_normalisations_are_known_by_name(layer: str, inner: bool) -> None:
    net = nn.Sequential(nn.Linear(2, 4), LAYERS[layer]()) if inner else LAYERS[layer]()
    names = list(net.state_dict())
    assert [name for name in names if is_buffer(name, names)] == [name for name, _ in net.named_buffers()]


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


def test_statistics_with_equal_weights_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    _, after = served("mgda", lambda: normalised(True), rounds=1, samples=lambda m: None if m else 7)
    nets = [normalised(True) for _ in range(3)]
    for m, net in enumerate(nets):
        trained(net, m)
    expected = sum(net.state_dict()["1.running_var"].double() for net in nets) / 3
    torch.testing.assert_close(after["1.running_var"].double(), expected, rtol=1e-6, atol=0)
    chosen, _ = served("mgda", lambda: normalised(False), samples=lambda m: 0 if m == 1 else None)
    assert "its 'num-examples' is 0; expected a finite number > 0" in str(chosen.rounds[0].refused)


class Masked(nn.Module):
    """A network with a mask, as that of causal attention, and a constant of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)
        self.mask: torch.Tensor
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
        self.register_buffer("order", torch.tensor([2**60 + 1, 2, 3]))
        self.register_buffer("on", torch.tensor([True, False]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ self.mask.softmax(1)[:, :1]


def test_arrays_that_are_named_are_trained_and_no_others() -> None:
    names = [name for name, _ in Masked().named_parameters()]
    _, after = served("mgda", Masked, trainable=names)
    first = Masked().state_dict()
    assert {name for name in first if not torch.equal(after[name], first[name])} == set(names)
    with pytest.raises(ConfigError, match=r"'mask' holds a number that is not finite.*trainable=\[name for"):
        served("mgda", Masked)
    with pytest.raises(ConfigError, match=r"'layer.weights', which the model does not have.*'layer.weight'"):
        served("mgda", Masked, trainable=["layer.weights"])
    with pytest.raises(ConfigError, match="'order' holds int64; trained arrays must be of real"):
        served("mgda", Masked, trainable=["order"])
    with pytest.raises(ConfigError, match="must be a list of names"):
        strategy("mgda", 3, local_step=0.1, trainable="layer.weight")


def test_complex_arrays_are_refused() -> None:
    first = record({"x": np.zeros(2), "spectrum": np.zeros(2, np.complex64)})
    chosen = strategy("mgda", M, local_step=0.1, flower={"fraction_evaluate": 0.0})
    with pytest.raises(ConfigError, match=r"'spectrum' holds complex64.*torch\.view_as_real"):
        chosen.start(grid=Federation().grid(), initial_arrays=first, num_rounds=1)


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
    for name in ("nsga2", "mlm_cmoo", "modo", "forum"):
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
