"""The base of algorithms: an algorithm requests numbers of points and returns a direction.

    theta <- Proj_X(theta + alpha_t d),   (d, state) <- step(points, state, t, alpha_t)

Most methods are a Weighting, d = -J^T w. State is a nested dict of tensors with R first, in and out.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.core.gram import cancelled, combination
from mobench.core.oracle import Spec
from mobench.core.point import Point, RowsOf
from mobench.core.sets import Set
from mobench.core.types import Real, State
from mobench.errors import ConfigError, unknown

OPTIMIZERS = ("sgd", "adam")
Step = float | int | Tensor  # a number, or a column (R, 1) where `vary` makes the steps of runs differ


class Info(NamedTuple):
    """The report of a step on its subproblem, None where it has none.

    Fields: kkt (R,), relative KKT residuals; fail (R,), failed solves: the loop takes no step from one;
    unsolvable (R,), those of the failed whose program is proved to have no solution; hard, the numbers of the
    runs that the Gram matrix does not decide: a `Weighting` solves them by `from_rows`.
    """

    kkt: Float[Tensor, " R"] | None = None
    fail: Bool[Tensor, " R"] | None = None
    unsolvable: Bool[Tensor, " R"] | None = None
    hard: tuple[int, ...] = ()


@dataclass(frozen=True)
class Context:
    """All that an algorithm learns before the first step.

    Fields: spec of the oracle; prefs (R, M), one preference per run; all_prefs (U, M), the whole set
    (PMTL needs it); theta (R, P), the start; exact, the oracle's full-sample values as a function of theta;
    ideal, its z or None; seeds (R,), which of the runs belong together where a method lets the runs of a seed
    interact.
    """

    spec: Spec
    prefs: Float[Tensor, "R M"]
    all_prefs: Float[Tensor, "U M"]
    theta: Float[Tensor, "R P"]
    exact: Callable[[Tensor], Tensor]
    steps: int
    ideal: Tensor | None = None
    seeds: Int[Tensor, " R"] | None = None


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """Base class of all methods.

    Subclasses are frozen dataclasses: their fields are the keys of the YAML file.

    Class attributes declare which oracles the method accepts (checked by `compatibility.check`): samples per
    step, range of the number of constraints and objectives, feasible sets, whether it needs losses >= 0;
    `varies`: the fields that may differ between the runs of a batch (see `stacked`).

    Fields:
        step_size: alpha, the step of theta. step_decay, step_offset:
            alpha_t = alpha / (step_offset + t)^step_decay.
        optimizer: sgd, theta <- theta + alpha_t d; or adam, Adam's step along d (`mobench.core.adam`), for
            methods whose step is nothing but a direction.
        outputs: output rules that listen to the trajectory (last, mean, adaptive).
    """

    version: ClassVar[int] = 1
    samples: ClassVar[int] = 1
    constraints: ClassVar[tuple[int, int | None]] = (0, 0)
    constraint_kind: ClassVar[str | None] = None
    objectives: ClassVar[tuple[int, int | None]] = (1, None)
    sets: ClassVar[type[Set]] = Set
    positive: ClassVar[bool] = False
    varies: ClassVar[frozenset[str]] = frozenset()
    derivative_free: ClassVar[bool] = False  # it requests values alone: no graph is built
    together: ClassVar[bool] = False  # the runs of a seed see each other: they are a population
    replaces: ClassVar[bool] = False  # it chooses the next points itself instead of stepping from these
    own_step: ClassVar[str] = ""  # why no optimizer may rescale its direction; "": one may
    coordinates: ClassVar[bool] = False  # it reads single entries of gradients, which no Gram matrix has
    ideal_field: ClassVar[str] = "ideal"  # the field that holds z, of methods that have one
    citation: ClassVar[str] = ""
    # exceptions of a class, for the contract (tests/contract):
    # preferred: whether, as it stands in conf, its direction depends on the preference
    preferred: ClassVar[bool] = True
    # symmetric: whether it treats the objectives alike, whatever their order
    symmetric: ClassVar[bool] = True
    # small: settings under which a few steps on a small problem are cheap
    small: ClassVar[Mapping[str, Any]] = {}
    # variants: settings, by name, that go another way through the code
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # as of a problem: fields added later, with the value that earlier jobs had
    added_fields: ClassVar[Mapping[str, Any]] = {"optimizer": "sgd"}
    # what the message says about a field that is no number
    hints: ClassVar[Mapping[str, str]] = {
        "step_decay": " It is the exponent b of alpha_t = step_size / (step_offset + t)^b; a schedule of "
        "torch.optim goes with mobench.Balanced, in a training loop of your own."
    }

    step_size: Real = 0.1
    step_decay: Real = 0.0
    step_offset: Real = 1.0
    optimizer: str = "sgd"
    outputs: Sequence[str] = field(default=("last",))

    def __post_init__(self) -> None:
        if not self.step_size > 0:
            raise ConfigError(f"algorithm.step_size={self.step_size} must be > 0.")
        if not self.step_decay >= 0:
            raise ConfigError(f"algorithm.step_decay={self.step_decay} must be >= 0.")
        if not self.step_offset > 0:
            raise ConfigError(f"algorithm.step_offset={self.step_offset} must be > 0.")
        if self.optimizer not in OPTIMIZERS:
            raise ConfigError(
                f"{unknown('algorithm.optimizer', self.optimizer, OPTIMIZERS)} Any other optimizer and its "
                "schedule are arguments of mobench.networks(optimizer=..., schedule=...), docs/afternoon.md, "
                "or belong in a training loop: mobench.Balanced(torch.optim.AdamW(...), METHOD), whose rows "
                "mobench.record keeps (docs/training.md)."
            )
        if len(self.outputs) == 0:
            raise ConfigError("algorithm.outputs is empty. Choose at least one of last, mean, adaptive.")

    def schedule(self, t: int) -> Step:
        """alpha_t."""
        return (
            self.step_size
            if not isinstance(self.step_decay, Tensor) and self.step_decay == 0
            else self.step_size / (self.step_offset + t) ** self.step_decay
        )

    def stacked(self, values: Mapping[str, Float[Tensor, "R 1"]]) -> Algorithm:
        """The method with fields that differ between the runs, as float64 columns.

        Each value has been checked by constructing the method with it. A class that lists a field in
        `varies` promises to compute with such a column as with a number.
        """
        other = copy.copy(self)
        for name, column in values.items():
            object.__setattr__(other, name, column)
        return other

    def misfits(self, spec: Spec) -> list[str]:
        """Reasons why the method does not fit this oracle, beyond what the class declares."""
        return []

    def advice(self, spec: Spec) -> list[str]:
        """Conditions of the method's theory that the settings break; a warning each, nothing is refused."""
        return []

    def misses(self) -> str:
        """Returns what a single model with a single preference does not give the method; "" is nothing."""
        return ""

    def needs(self, spec: Spec) -> frozenset[str]:
        """Subset of {jacobian, jvp, hvp}; values and vjp are always there."""
        return frozenset()

    def transform(self, f: Float[Tensor, "R M"]) -> Float[Tensor, "R M"]:
        """The elementwise function of the objectives that the method descends on.

        Overridden, it makes `step` and the output rules see fn(f) and its gradients; rows record f.
        """
        return f

    @property
    def transforms(self) -> bool:
        """True if `transform` is more than the identity."""
        return type(self).transform is not Algorithm.transform

    def init(self, ctx: Context) -> State:
        """All auxiliary variables, and everything made from the preference."""
        return {}

    @abstractmethod
    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        """Direction d, next state, and the report of the subproblem's solver."""

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        """Extra columns (R,) of history and final rows, from values and state at recorded steps."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Weighting(Algorithm):
    """d = -J^T w, with w (R, M) a function of F and, where `gramian` is set, of J J^T.

    Weights may be negative and need not sum to 1. F, the Gram matrix and the weights are float64 whatever the
    dtype of theta. J^T w is formed in the dtype of theta; of a class that `cancels`, in float64 for runs in
    which its terms cancel so far that rounding would be seen.
    """

    gramian: ClassVar[bool] = False
    cancels: ClassVar[bool] = False  # |J^T w| may be far smaller than the terms that are added up
    weighs_constraints: ClassVar[bool] = False  # F, G and the weights are those of all K functions
    varies: ClassVar[frozenset[str]] = frozenset({"step_size"})

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jacobian"}) if self.gramian else frozenset()

    @abstractmethod
    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        """Weights of the objectives' gradients."""

    def from_rows(
        self, J: Float[Tensor, "M P"], state: State, r: int
    ) -> tuple[Float[Tensor, " M"], Float[Tensor, " P"], float, bool]:
        """Weights, J^T w, residual and failure of run r, one of `Info.hard`, from its gradients."""
        raise NotImplementedError(f"{type(self).__name__} reports hard runs without a way to solve them")

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point = points[0]
        part: RowsOf
        F, part = (point.values(), "all") if self.weighs_constraints else (point.F, "f")
        G = point.gramian(part) if self.gramian else None
        w, state, info = self.weights(F.double(), G, state, t)
        solved: dict[int, Tensor] = {}
        if info.hard and not point.factored:
            assert info.kkt is not None
            assert info.fail is not None
            w = w.clone()
            kkt = info.kkt.clone()
            fail = info.fail.clone()
            for r in info.hard:
                w[r], solved[r], kkt[r], fail[r] = self.from_rows(point.jacobian(part)[r], state, r)
            info = info._replace(kkt=kkt, fail=fail)
        d = combined(point, -w, G if self.cancels else None, part)  # the sign of R M numbers, not of R P
        for r, direction in solved.items():
            d[r] = -direction
        return d, state, info


def combined(
    point: Point, w: Float[Tensor, "R k"], G: Float[Tensor, "R k k"] | None, part: RowsOf
) -> Float[Tensor, "R P"]:
    """Returns J^T w.

    With the Gram matrix of the rows, it is summed in float64 where its terms cancel so far that rounding to
    the dtype of the point would be seen.
    """
    direction = point.vjp(w.to(point.x.dtype))
    if G is not None and direction.dtype != torch.float64:
        for r in cancelled(w, G, torch.finfo(direction.dtype).eps):
            # in place, because `mobench.training` remembers this tensor as the point's J^T w
            direction[r] = combination(point.jacobian(part)[r], w[r])
    return direction
