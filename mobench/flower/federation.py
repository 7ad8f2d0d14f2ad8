"""Clients' answers as a sample of the objectives, and the server's step as the step of a method."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore import log
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_leaves

from mobench.core.algorithm import Algorithm, Context
from mobench.core.compatibility import check, reasons
from mobench.core.loop import FAR
from mobench.core.oracle import Spec
from mobench.core.output import make_output
from mobench.core.preferences import check_weights
from mobench.core.sets import Free
from mobench.core.types import State
from mobench.errors import CompatibilityError, ConfigError, MobenchError
from mobench.flower.answers import Answer, Layout, read
from mobench.training.solving import STEPS, Seen, made, name_of


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
    with one ArrayRecord, with the same names and shapes, and one MetricRecord that has its mean loss and its
    number:

        MetricRecord({"train_loss": loss, "partition-id": context.node_config["partition-id"]})

    An answer that is an error, has a value that is not finite, or other names, shapes or types, is refused:
    its client is named with the reason in the log and in `rounds`, and the round goes on without it, as
    without a client that does not answer. The step is then that of the method for the clients that did
    answer, their preferences divided by their sum. A method with a memory of the clients (`omd_tch`, `famo`,
    ...) keeps its M objectives: a missing client counts with the last loss that it sent and no row. If too
    few have answered, the model stays as it is.

    Only trained arrays are part of theta. By default these are the floating-point arrays that are no buffers
    by their name: running means, variances and counters of batch and instance normalisations, and the vectors
    of spectral normalisations. All others are averaged beside the method: their mean over the clients that
    answered, weighted by `MetricRecord["num-examples"]` (FedAvg's `weighted_by_key`), or equally, with a line
    in the log, where a client does not send it. Whole numbers stay whole.

    Args:
        method: its name, as in `algorithm=NAME`, or an `Algorithm`.
        clients: M, the number of clients, which are numbered 0 to M - 1. The first round waits for all.
        local_step: eta > 0, the step size of the clients.
        preference: weights of the clients (M,), in the open simplex; default: equal ones.
        rounds: the horizon, for methods whose steps depend on it. seed: of methods that draw numbers.
        ideal: z (M,) of Tchebycheff values.
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

    Source: McMahan et al. (2017), FedAvg, for the round; the OMD-TCH paper, Section 5.2, for rows of several
    local steps. Departure: no weights of the losses by the number of samples; give `preference` for those.
    """
    if not isinstance(clients, int) or clients < 1:
        raise ConfigError(f"clients={clients!r} must be a whole number of at least 1.")
    if not 0 < local_step < float("inf"):
        raise ConfigError(f"local_step={local_step} must be > 0 and finite.")
    if isinstance(method, str):
        options.setdefault("step_size", local_step)
    algorithm = made(method, options)
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
    weights = torch.full((clients,), 1.0 / clients, dtype=torch.float64)
    if preference is not None:
        weights = torch.as_tensor(preference, dtype=torch.float64)
        weights = check_weights(weights.reshape(1, -1), clients, None)[0]
    z = None if ideal is None else torch.as_tensor(ideal, dtype=torch.float64)
    if z is not None and z.shape != (clients,):
        raise ConfigError(f"ideal has the shape {tuple(z.shape)}; expected ({clients},).")
    if isinstance(trainable, str):
        raise ConfigError(f"trainable={trainable!r} must be a list of names: trainable=[{trainable!r}].")
    return MultiObjective(
        algorithm,
        weights,
        local_step,
        rounds,
        seed,
        z,
        loss_key,
        client_key,
        None if trainable is None else tuple(trainable),
        flower or {},
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
        chosen = {**few, **flower}
        super().__init__(**chosen)
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
        self._first = (int(chosen["min_train_nodes"]), int(chosen["min_available_nodes"]))
        self._rules = {name: make_output(name) for name in algorithm.outputs}
        self._outputs: dict[str, State] | None = None
        self._state: State | None = None
        self._losses = torch.full_like(preference, float("nan"))
        self._layout: Layout | None = None
        self._theta: Tensor | None = None
        self._evolving = self._what_changes()
        self._warned = False
        self._remembers = any(len(shape) > 1 for shape in self._evolving.values())

    @property
    def clients(self) -> int:
        """M."""
        return len(self.preference)

    def summary(self) -> None:
        """Writes the method and the federation to Flower's log, then what FedAvg does."""
        log(INFO, "\t├──> Method: %s", self.algorithm)
        log(INFO, "\t├──> %d clients, local step %g", self.clients, self.local_step)
        super().summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of a round; the first round waits for all clients, or Flower's share of them."""
        self._layout = Layout.of(arrays, self.trainable)
        self._theta = self._layout.vector(arrays)
        config["local-step"] = self.local_step
        wanted = max(1, int(self.clients * self.fraction_train)) if not self.rounds else 0
        train, available = self._first
        self.min_train_nodes = max(train, wanted)
        self.min_available_nodes = max(available, self.clients if not self.rounds else 0)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The server's step. Its number is that of the rounds so far: a second `start` continues the first.

        Raises:
            MobenchError: the subproblem has no solution, or the next model would not be finite.
        """
        assert self._layout is not None
        assert self._theta is not None
        keys = (self.loss_key, self.client_key, self.weighted_by_key)
        answers, refused = read(replies, self._layout, self.clients, *keys)
        t = len(self.rounds)
        for who, why in refused.items():
            log(WARNING, "aggregate_train: round %d goes on without %s: %s", t + 1, who, why)
        for m, answer in answers.items():
            self._losses[m] = answer.loss
        theta = self._theta.unsqueeze(0)
        step = self._step(answers, theta, t)
        if step is None:
            log(
                WARNING,
                "aggregate_train: round %d changes nothing: %d of %d clients have answered, too few for %s",
                t + 1,
                len(answers),
                self.clients,
                name_of(self.algorithm),
            )
        d, weights, kkt = step or (None, None, None)
        record = Round(t + 1, tuple(answers), refused, self._losses.clone(), weights, kkt, d is not None)
        self.rounds.append(record)
        if d is None:
            return None, self._metrics(record)
        after = (theta + self.algorithm.schedule(t) * d)[0]
        if not bool(after.abs().sum() < FAR):
            raise MobenchError(
                f"The model after round {t + 1} of {name_of(self.algorithm)} is not finite; smaller "
                "steps may help."
            )
        self._theta = after
        self._warn_of_equal_weights(answers)
        self._layout = self._layout.averaged(list(answers.values()))
        return self._layout.arrays(after), self._metrics(record)

    def _warn_of_equal_weights(self, answers: Mapping[int, Answer]) -> None:
        """Warns once that arrays which are not trained are averaged with equal weights, and why."""
        assert self._layout is not None
        silent = [m for m, answer in answers.items() if answer.samples is None]
        if silent and self._layout.others and not self._warned:
            self._warned = True
            log(
                WARNING,
                "aggregate_train: %d arrays that are not trained (%s, ...) are averaged with equal weights, "
                "because client %d sends no %r",
                len(self._layout.others),
                self._layout.others[0],
                silent[0],
                self.weighted_by_key,
            )

    def answers(self) -> dict[str, ArrayRecord]:
        """The answer of each of the method's output rules (`algorithm.outputs`), after the last round: of
        `omd_tch` the mean of its iterates, where Flower's result has the last one. Arrays that are not
        trained are those of the last round.
        """
        if self._theta is None or self._layout is None:
            raise MobenchError("There is no answer before the first round.")
        theta = self._theta.unsqueeze(0)
        if self._outputs is None:
            return {name: self._layout.arrays(theta[0]) for name in self._rules}
        return {
            name: self._layout.arrays(rule.final(self._outputs[name], theta)[0])
            for name, rule in self._rules.items()
        }

    def _step(
        self, answers: Mapping[int, Answer], theta: Float[Tensor, "1 P"], t: int
    ) -> tuple[Tensor, Tensor | None, float | None] | None:
        """Direction (1, P), weights (M,) and residual; None if too few have answered."""
        present = list(range(self.clients)) if self._remembers else list(answers)
        F = self._losses[present].unsqueeze(0)
        if not answers or bool(F.isnan().any()):
            return None
        spec = _spec(len(present), theta.shape[1], not bool((F < 0).any()))
        whole = len(present) == self.clients
        if whole:
            check(spec, self.algorithm, "this federation")
        elif reasons(spec, self.algorithm):
            return None
        # divided as by oracle=local_steps, so that the rounds are the same
        none = torch.zeros_like(theta[0])
        rows = torch.stack(
            [(theta[0] - answers[m].vector) / self.local_step if m in answers else none for m in present]
        )
        point = Seen(F, rows.unsqueeze(0), len(present), x=theta)
        with torch.no_grad():
            self._observe(theta, t)
            state = self._state
            if state is None or not whole:
                state = self.algorithm.init(self._context(present, spec, theta, F))
                state |= {key: self._state[key] for key in self._evolving} if self._state else {}
            d, state, info = self.algorithm.step((point,), state, t, self.algorithm.schedule(t))
        if info.fail is not None and bool(info.fail.any()):
            raise MobenchError(
                f"The subproblem of {name_of(self.algorithm)} could not be solved in round {t + 1}; the "
                "losses and rows of the clients have no solution."
            )
        if whole:
            self._state = state
        elif self._state is not None:
            self._state |= {key: state[key] for key in self._evolving}
        weights = point.weights(d)
        if weights is not None:
            some = weights[0].double()
            weights = torch.zeros(self.clients, dtype=torch.float64)
            weights[present] = some
            weights[[m for m in range(self.clients) if m not in answers]] = 0.0
        return d, weights, None if info.kkt is None else float(info.kkt[0])

    def _observe(self, theta: Float[Tensor, "1 P"], t: int) -> None:
        """Shows theta_t to the output rules, once every client has sent a loss."""
        if bool(self._losses.isnan().any()):
            return
        M = self.clients
        point = Seen(self._losses.unsqueeze(0), theta.new_zeros(1, M, theta.shape[1]), M, x=theta)
        if self._outputs is None:
            self._outputs = {name: rule.init(theta, M) for name, rule in self._rules.items()}
        for name, rule in self._rules.items():
            self._outputs[name] = rule.update(self._outputs[name], theta, point, t)

    def _context(
        self, present: Sequence[int], spec: Spec, theta: Float[Tensor, "1 P"], F: Float[Tensor, "1 M"]
    ) -> Context:
        prefs = self.preference[list(present)].unsqueeze(0)
        prefs = prefs / prefs.sum()
        return Context(
            spec=spec,
            prefs=prefs,
            all_prefs=prefs,
            theta=theta,
            exact=lambda theta: F,
            steps=self.horizon,
            ideal=None if self.ideal is None else self.ideal[list(present)].unsqueeze(0),
            seeds=torch.tensor([self.seed], dtype=torch.int64),
        )

    def _what_changes(self) -> dict[str, tuple[int, ...]]:
        """Parts of the method's state that a step changes, with their shapes, as seen in one step from
        numbers in general position. Parts with an axis behind R belong to the clients.
        """
        M = self.clients
        theta = torch.zeros(1, 2 * M, dtype=torch.float64)
        F = torch.linspace(1.0, 2.0, M, dtype=torch.float64).unsqueeze(0)
        rows = torch.from_numpy(np.random.default_rng(0).standard_normal((1, M, 2 * M)))
        with torch.no_grad():
            before = self.algorithm.init(self._context(range(M), _spec(M, 2 * M), theta, F))
            initial = copy.deepcopy(before)
            point = Seen(F, rows, M, x=theta)
            _, after, _ = self.algorithm.step((point,), before, 0, self.algorithm.schedule(0))
        shapes = {}
        for key, value in after.items():
            pairs = zip(tree_leaves(initial[key]), tree_leaves(value), strict=True)
            changed = [
                tuple(new.shape) if isinstance(new, Tensor) else ()
                for old, new in pairs
                if not (torch.equal(old, new) if isinstance(new, Tensor) else old == new)
            ]
            if changed:
                shapes[key] = max(changed, key=len)
        return shapes

    def _metrics(self, record: Round) -> MetricRecord:
        """The metrics of a round in Flower's history."""
        metrics: dict[str, Any] = {
            "answered": len(record.answered),
            "refused": len(record.refused),
            "losses": record.losses.tolist(),
        }
        if record.weights is not None:
            metrics["weights"] = record.weights.tolist()
        if record.kkt_residual is not None:
            metrics["kkt_residual"] = record.kkt_residual
        return MetricRecord(metrics)


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
