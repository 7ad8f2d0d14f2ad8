"""A Flower strategy from any method: the clients are the objectives.

    strategy = mobench.flower.strategy("fedmgda_plus", clients=10, local_step=0.1)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=20)     # in a Flower ServerApp

The server's step is the method's `Algorithm.step`, as with `oracle=local_steps`. Needs
`pip install '.[flower]'`.

May import: core, errors, training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Algorithm, Context
from mobench.core.compatibility import check, reasons
from mobench.core.loop import FAR
from mobench.core.oracle import Spec
from mobench.core.output import make_output
from mobench.core.preferences import check_weights
from mobench.core.sets import Free
from mobench.core.types import State
from mobench.errors import CompatibilityError, ConfigError, MobenchError, choose
from mobench.training.solving import STEPS, Seen, at_ideal, made, name_of

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore import log
except ImportError as error:
    raise ImportError(
        f"mobench.flower needs Flower ({error}); install it with `pip install '.[flower]'`."
    ) from error

__all__ = ["MultiObjective", "Round", "client_loss", "strategy"]

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers of PyTorch's batch and instance normalisations."""

UNREADABLE = (ValueError, TypeError, OSError, EOFError, KeyError)
"""The errors that Flower raises for an array whose bytes or format it cannot read."""


def strategy(
    method: str | Algorithm,
    clients: int,
    *,
    local_step: float,
    preference: Sequence[float] | Tensor | None = None,
    rounds: int = STEPS,
    seed: int = 0,
    ideal: Sequence[float] | None = None,
    transformed: bool = False,
    loss_key: str = "train_loss",
    client_key: str = "partition-id",
    trainable: Sequence[str] | None = None,
    flower: Mapping[str, Any] | None = None,
    **options: Any,
) -> MultiObjective:
    """A strategy for a Flower ServerApp whose server step is that of a method.

        row m      g_m = (theta - theta_m) / eta         theta_m: the arrays that client m returns
        direction  d = step of the method for the losses f_m and rows g_m, d = -J^T w for most
        server     theta <- theta + alpha d

    With alpha = eta and weights w that sum to 1 the server's model is the mean sum_m w_m theta_m. A client
    trains from the arrays that it gets, with the step eta (it is sent as `config["local-step"]`), and answers
    with one ArrayRecord, with the same names, shapes and types, and one MetricRecord that has its mean loss
    and its number:

        MetricRecord({"train_loss": loss, "partition-id": context.node_config["partition-id"]})

    A client that fails, does not answer, or whose answer cannot be used (a value that is not finite, other
    names, shapes or types), is left out of the round: the step is the first one of the method for the others,
    their preferences divided by their sum. If they are too few for the method, the model stays as it is. A
    state of the method (of `omd_tch`, `famo`, ...) goes on with the next round that has all clients. The log
    and `rounds` name the client and the reason.

    Only trained arrays are part of theta: those of floating-point numbers but running means and variances, or
    those named in `trainable`. All others are averaged beside the method, weighted by the clients' numbers
    of samples, `MetricRecord["num-examples"]` (FedAvg's `weighted_by_key`), or equally where one sends none.

    Args:
        method: its name, as in `algorithm=NAME`, or an `Algorithm`.
        clients: M, the number of clients, which are numbered 0 to M - 1. The first round waits for all.
        local_step: eta > 0, the step size of the clients.
        preference: weights of the clients (M,), in the open simplex; default: equal ones.
        rounds: the horizon, for methods whose steps depend on it. seed: of methods that draw numbers.
        ideal: z (M,), in place of the method's field that holds it; refused by methods without one.
        transformed: promise that clients descend on `client_loss(method)` of their loss, and send that;
            methods such as `propfair` are refused without.
        loss_key, client_key: where the MetricRecord holds the loss and the number.
        trainable: names of the trained arrays, for models with other buffers than the above:
            `[name for name, _ in net.named_parameters()]`.
        flower: arguments of Flower's FedAvg, such as fraction_train, for the choice of clients and for
            evaluation.
        options: of the method, as in `algorithm.KEY=VALUE`. The default of `step_size` is local_step.

    Raises:
        ConfigError: unknown names or options (names in `trainable` are compared with the model when the first
            round begins); numbers out of range; a method that transforms losses without
            `transformed`.
        CompatibilityError: the method needs more than losses and rows (a second sample, Hessian products, a
            search without gradients), or computes several points together.

    Source: McMahan et al. (2017), FedAvg, for the round; the OMD-TCH paper, Section 4.2, for rows of several
    local steps. Departure: no weights of the losses by the number of samples; give `preference` for those.
    """
    if not isinstance(clients, int) or clients < 1:
        raise ConfigError(f"clients={clients!r} must be a whole number of at least 1.")
    if not 0 < local_step < float("inf"):
        raise ConfigError(f"local_step={local_step} must be > 0 and finite.")
    if isinstance(method, str):
        options.setdefault("step_size", local_step)
    algorithm = at_ideal(made(method, options), ideal)
    if algorithm.transforms and not transformed:
        raise ConfigError(
            f"{name_of(algorithm)} needs clients that descend on a function of their loss: let them minimise "
            f"and send mobench.flower.client_loss({method!r})(loss), and say so by transformed=True."
        )
    check(_spec(clients, 1), algorithm, "a federation")
    if algorithm.together or algorithm.replaces:
        raise CompatibilityError(
            f"{name_of(algorithm)} computes points for several preferences together, or puts points of its "
            "own in place of the model, so a server that has one model cannot use it. Choose a method that "
            "takes steps, such as fedavg or fedmgda_plus."
        )
    if words := algorithm.misses():
        raise CompatibilityError(words)
    weights = torch.full((clients,), 1.0 / clients, dtype=torch.float64)
    if preference is not None:
        weights = torch.as_tensor(preference, dtype=torch.float64)
        weights = check_weights(weights.reshape(1, -1), clients, None)[0]
    z = None if ideal is None else torch.as_tensor(ideal, dtype=torch.float64)
    if z is not None and z.shape != (clients,):
        raise ConfigError(f"ideal has the shape {tuple(z.shape)}; expected ({clients},).")
    names = None if trainable is None else tuple(trainable)
    return MultiObjective(
        algorithm, weights, local_step, rounds, seed, z, loss_key, client_key, names, flower or {}
    )


def client_loss(method: str | Algorithm, **options: Any) -> Callable[[Tensor], Tensor]:
    """The objective of a client: fn(loss) of the method's transformed objectives, differentiable; the loss
    itself for methods without.

        loss = mobench.flower.client_loss("propfair", baseline=5.0)(cross_entropy(net(x), y))
    """
    algorithm = made(method, options)

    def transformed(loss: Tensor) -> Tensor:
        return algorithm.transform(loss.reshape(1, 1)).reshape(()) if algorithm.transforms else loss

    return transformed


@dataclass(frozen=True)
class Round:
    """The record of a round.

    Fields: number, from 1; answered: numbers of the clients whose rows were used; refused: who was not, and
    why; losses (M,), NaN where none was sent; weights (M,) of the rows, 0 for missing ones, or None if the
    method's direction is no weighted sum; kkt_residual of the subproblem, None without one; moved: whether
    the model was changed.
    """

    number: int
    answered: tuple[int, ...]
    refused: Mapping[str, str]
    losses: Float[Tensor, " M"]
    weights: Float[Tensor, " M"] | None
    kkt_residual: float | None
    moved: bool


@dataclass(frozen=True)
class _Answer:
    """A client's model, mean loss, and number of samples, None if it sent none."""

    model: Mapping[str, np.ndarray]
    loss: float
    samples: float | None


class _RefusedError(Exception):
    """An answer cannot be used; with the reason."""


class MultiObjective(FedAvg):
    """The result of `strategy`: Flower's FedAvg with another server step.

    Attributes:
        rounds: a `Round` for each round so far.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        preference: Float[Tensor, " M"],
        local_step: float,
        horizon: int,
        seed: int,
        ideal: Float[Tensor, " M"] | None,
        loss_key: str,
        client_key: str,
        trainable: tuple[str, ...] | None,
        flower: Mapping[str, Any],
    ) -> None:
        few = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
        super().__init__(**{**few, **flower})
        self.algorithm = algorithm
        self.preference = preference
        self.local_step = float(local_step)
        self.horizon = horizon
        self.seed = seed
        self.ideal = ideal
        self.loss_key = loss_key
        self.client_key = client_key
        self.trainable = trainable
        self.rounds: list[Round] = []
        self._least = (self.min_train_nodes, self.min_available_nodes)
        self._rules = {name: make_output(name) for name in algorithm.outputs}
        self._outputs: dict[str, State] = {}
        self._state: State | None = None
        self._steps = 0  # that the state has taken: rounds of all clients
        self._model: dict[str, np.ndarray] = {}
        self._names: tuple[str, ...] = ()  # of the trained arrays

    @property
    def clients(self) -> int:
        """M."""
        return len(self.preference)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of a round; the first round waits for all clients, or Flower's share of them."""
        self._model = {name: array.numpy() for name, array in arrays.items()}
        self._names = self._trained()
        config["local-step"] = self.local_step
        self.min_train_nodes, self.min_available_nodes = self._least
        if not self.rounds:
            self.min_train_nodes = max(self.min_train_nodes, int(self.clients * self.fraction_train))
            self.min_available_nodes = max(self.min_available_nodes, self.clients)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The server's step. Its number is that of the rounds so far: a second `start` continues the first.

        Raises:
            MobenchError: the subproblem has no solution, or the next model would not be finite.
        """
        t = len(self.rounds)
        answers, refused = self._read(replies)
        for who, why in refused.items():
            log(WARNING, "aggregate_train: round %d goes on without %s: %s", t + 1, who, why)
        losses = torch.full_like(self.preference, float("nan"))
        for m, answer in answers.items():
            losses[m] = answer.loss
        theta = self._vector(self._model).unsqueeze(0)
        step = self._step(answers, losses, theta, t)
        d, weights, kkt = step or (None, None, None)
        self.rounds.append(Round(t + 1, tuple(answers), refused, losses, weights, kkt, d is not None))
        metrics = MetricRecord({"answered": len(answers), "losses": losses.tolist()})
        if d is None:
            words = (
                "aggregate_train: round %d changes nothing: %d of %d clients have answered, too few for %s"
            )
            log(WARNING, words, t + 1, len(answers), self.clients, name_of(self.algorithm))
            return None, metrics
        after = (theta + self.algorithm.schedule(t) * d)[0]
        if not bool(after.abs().sum() < FAR):
            raise MobenchError(
                f"The model after round {t + 1} of {name_of(self.algorithm)} is not finite; smaller "
                "steps may help."
            )
        self._model |= self._averaged(list(answers.values()))
        self._model = self._with(after)
        return _record(self._model), metrics

    def answers(self) -> dict[str, ArrayRecord]:
        """The answer of each of the method's output rules (`algorithm.outputs`), after the last round: of
        `omd_tch` the mean of its iterates, where Flower's result has the last one. Arrays that are not
        trained are those of the last round.
        """
        if not self._model:
            raise MobenchError("There is no answer before the first round.")
        if not self._outputs:
            return {name: _record(self._model) for name in self._rules}
        theta = self._vector(self._model).unsqueeze(0)
        return {
            name: _record(self._with(rule.final(self._outputs[name], theta)[0]))
            for name, rule in self._rules.items()
        }

    # the model as a vector

    def _trained(self) -> tuple[str, ...]:
        """Names of the trained arrays.

        Raises:
            ConfigError: there are none, a name is unknown, or an array has no finite real numbers.
        """
        model = self._model
        names = self.trainable
        if names is None:
            floats = (name for name, array in model.items() if np.issubdtype(array.dtype, np.inexact))
            names = tuple(name for name in floats if name.rpartition(".")[2] not in STATISTICS)
        if not names:
            raise ConfigError("The model has no array of floating-point numbers; nothing could be trained.")
        for name in names:
            choose("trainable", name, list(model))
            if not np.issubdtype(model[name].dtype, np.floating) or not np.isfinite(model[name]).all():
                raise ConfigError(
                    f"The model's array {name!r} of {model[name].dtype} cannot be trained; expected finite "
                    "floating-point numbers. If it is a buffer, name the arrays that are trained: "
                    "trainable=[name for name, _ in net.named_parameters()]."
                )
        return tuple(name for name in model if name in names)

    def _vector(self, model: Mapping[str, np.ndarray]) -> Float[Tensor, " P"]:
        """The trained arrays in a row, in the widest of their types, float32 at least."""
        dtype = np.result_type(np.float32, *(self._model[name].dtype for name in self._names))
        return torch.from_numpy(np.concatenate([model[name].ravel().astype(dtype) for name in self._names]))

    def _with(self, vector: Float[Tensor, " P"]) -> dict[str, np.ndarray]:
        """The model whose trained arrays are a vector's parts."""
        model = dict(self._model)
        parts = vector.split([model[name].size for name in self._names])
        for name, part in zip(self._names, parts, strict=True):
            model[name] = part.numpy().reshape(model[name].shape).astype(model[name].dtype)
        return model

    def _averaged(self, answers: Sequence[_Answer]) -> dict[str, np.ndarray]:
        """The mean of the arrays that are not trained, by numbers of samples.

        Whole numbers stay whole, masks of truth values stay as they are, and where all clients agree, so does
        the mean, to the last bit.
        """
        counts = np.array([answer.samples or math.nan for answer in answers])
        if np.isnan(counts).any():
            counts = np.ones(len(answers))
        means = {}
        for name, array in self._model.items():
            if name in self._names or array.dtype == np.bool_:
                continue
            arrays = [answer.model[name] for answer in answers]
            exact = np.complex128 if np.issubdtype(array.dtype, np.complexfloating) else np.float64
            with np.errstate(invalid="ignore"):  # infinities that all of them share are not used
                mean = sum(w * a.astype(exact) for w, a in zip(counts / counts.sum(), arrays, strict=True))
                if np.issubdtype(array.dtype, np.integer):
                    mean = np.rint(mean)
                agree = np.all([a == arrays[0] for a in arrays], axis=0)
                means[name] = np.where(agree, arrays[0], np.asarray(mean).astype(array.dtype))
        return means

    # answers

    def _read(self, replies: Iterable[Message]) -> tuple[dict[int, _Answer], dict[str, str]]:
        """The answers by the client's number, in rising order, and who was refused and why.

        A number that two nodes claim is nobody's: both are refused.
        """
        answers: dict[int, _Answer] = {}
        nodes: dict[int, int] = {}
        refused: dict[str, str] = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            who = f"node {node}"
            try:
                number, metrics = self._number(reply)
                who = f"client {number} (node {node})"
                if number in nodes:
                    answers.pop(number, None)
                    other = f"client {number} (node {nodes[number]})"
                    refused[other] = f"node {node} says that it is client {number}, too"
                    raise _RefusedError(f"node {nodes[number]} says that it is client {number}, too")
                nodes[number] = node
                answers[number] = self._answer(reply, metrics)
            except _RefusedError as error:
                refused[who] = str(error)
        return dict(sorted(answers.items())), refused

    def _number(self, reply: Message) -> tuple[int, MetricRecord]:
        """The number of the client that replied, and its metrics."""
        if reply.has_error():
            raise _RefusedError(f"it failed: {reply.error.reason}")
        metrics = _only("MetricRecord", reply.content.metric_records)
        number = metrics.get(self.client_key)
        if number not in range(self.clients):
            raise _RefusedError(
                f"its {self.client_key!r} is {number!r}; expected a whole number from 0 to "
                f"{self.clients - 1}, for example "
                f'MetricRecord({{"{self.client_key}": context.node_config["partition-id"], ...}})'
            )
        return int(number), metrics

    def _answer(self, reply: Message, metrics: MetricRecord) -> _Answer:
        """The client's answer, checked."""
        loss = metrics.get(self.loss_key)
        if not isinstance(loss, int | float) or not math.isfinite(loss):
            raise _RefusedError(f"its {self.loss_key!r} is {loss!r}; expected a finite number")
        samples = metrics.get(self.weighted_by_key)
        if samples is not None and not (isinstance(samples, int | float) and 0 < samples < math.inf):
            raise _RefusedError(f"its {self.weighted_by_key!r} is {samples!r}; expected a finite number > 0")
        arrays = _only("ArrayRecord", reply.content.array_records)
        if different := sorted(arrays.keys() ^ self._model.keys()):
            raise _RefusedError(f"its model has other arrays than the server's: {', '.join(different)}")
        model = {}
        for name, sent in self._model.items():
            try:
                array = model[name] = arrays[name].numpy()
            except UNREADABLE as error:
                raise _RefusedError(f"its array {name!r} cannot be read: {error}") from error
            if (array.shape, array.dtype) != (sent.shape, sent.dtype):
                raise _RefusedError(
                    f"its array {name!r} has the shape {array.shape} and holds {array.dtype}; expected "
                    f"{sent.shape} and {sent.dtype}"
                )
            if name in self._names:
                fine = np.abs(array, dtype=np.float64).sum() < FAR
            else:  # a mask may hold infinities, which no client changes
                fine = (np.isfinite(array) | (array == sent)).all()
            if not fine:
                raise _RefusedError(f"its array {name!r} is not finite, or longer than {FAR:g}")
        return _Answer(model, float(loss), samples)

    # the step

    def _step(
        self, answers: Mapping[int, _Answer], losses: Float[Tensor, " M"], theta: Float[Tensor, "1 P"], t: int
    ) -> tuple[Tensor, Tensor | None, float | None] | None:
        """Direction (1, P), weights (M,) and residual; None if too few have answered."""
        present = list(answers)
        whole = len(present) == self.clients
        if not present:
            return None
        F = losses[present].unsqueeze(0)
        spec = _spec(len(present), theta.shape[1], not bool((F < 0).any()))
        if whole:
            check(spec, self.algorithm, "this federation")
        elif reasons(spec, self.algorithm):
            return None
        # divided as by oracle=local_steps, so that the rounds are the same
        rows = [(theta[0] - self._vector(answer.model)) / self.local_step for answer in answers.values()]
        point = Seen(F, torch.stack(rows).unsqueeze(0), len(present), x=theta)
        with torch.no_grad():
            state = self._state
            if state is None or not whole:
                prefs = self.preference[present].unsqueeze(0)
                prefs = prefs / prefs.sum()
                context = Context(
                    spec=spec,
                    prefs=prefs,
                    all_prefs=prefs,
                    theta=theta,
                    exact=lambda theta: F,
                    steps=self.horizon,
                    ideal=None if self.ideal is None else self.ideal[present].unsqueeze(0),
                    seeds=torch.tensor([self.seed], dtype=torch.int64),
                )
                state = self.algorithm.init(context)
            if whole:
                for name, rule in self._rules.items():
                    before = self._outputs.get(name) or rule.init(theta, self.clients)
                    self._outputs[name] = rule.update(before, theta, point, t)
            number = self._steps if whole else 0
            d, state, info = self.algorithm.step((point,), state, number, self.algorithm.schedule(t))
        if info.fail is not None and bool(info.fail.any()):
            raise MobenchError(
                f"The subproblem of {name_of(self.algorithm)} could not be solved in round {t + 1}; the "
                "losses and rows of the clients have no solution."
            )
        if whole:
            self._state = state
            self._steps += 1
        weights = None
        if (seen := point.weights(d)) is not None:
            weights = torch.zeros_like(self.preference)
            weights[present] = seen[0].double()
        return d, weights, None if info.kkt is None else float(info.kkt[0])


def _only(kind: str, records: Mapping[str, Any]) -> Any:
    """The one record there is."""
    if len(records) != 1:
        raise _RefusedError(f"it sent {len(records)} {kind}s; expected one")
    return next(iter(records.values()))


def _record(model: Mapping[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.ascontiguousarray(a).reshape(a.shape)) for name, a in model.items()})


def _spec(M: int, P: int, positive: bool = True) -> Spec:
    """The settings of a round of a federation."""
    return Spec(
        R=1,
        M=M,
        N=0,
        P=P,
        X=Free(),
        provides=frozenset({"jacobian", "jvp"}),
        local_steps=True,
        positive=positive,
    )
