"""The base of problems: stacked functions of (R, P) decision variables, their start and their feasible set.

Members that only some families of problems need are in `sampled`, `federated`, `bilevel`, `seeds`, `truth`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.point import Linear
from mobench.core.preferences import Runs
from mobench.core.sets import Free, Set
from mobench.core.start import START_KINDS, check_start, drawn_start

This = TypeVar("This", bound="Problem")  # beartype knows no typing.Self in methods


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """Base class of all problems with a flat vector of decision variables.

    Subclasses are frozen dataclasses: their fields are the keys of the YAML file. `version` is part of the
    job's hash; raise it when results change.

    Fields:
        start: how theta_0 is drawn, `{kind: ..., per_preference: false, ...}`:
            uniform(low, high)            each coordinate uniform
            constant(value)               every coordinate the same
            alternating(scale, noise)     scale * (+1, -1, +1, ...) + noise * N(0, I)
            alternating_uniform(low, high)  coordinates uniform, all times (-1)^k for the k-th preference of
            the set
            halves(value)                 +value for the first half of the coordinates, -value for the second
            normal(scale)                 scale * N(0, I)
          Draws are keyed by (problem, seed), and by the preference only if `per_preference` is true.
        steps: default number of iterations.
    """

    version: ClassVar[int] = 1
    citation: ClassVar[str] = ""
    n_constraints: ClassVar[int] = 0
    positive: ClassVar[bool] = True  # every objective >= 0
    twice: ClassVar[bool] = True  # `values` can be differentiated twice: Hessian products exist
    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = START_KINDS
    execution_fields: ClassVar[tuple[str, ...]] = ()  # fields that change no result, and no job's identity
    # fields added later, with the value that earlier jobs had: at that value they are no part of the identity
    added_fields: ClassVar[Mapping[str, Any]] = {}
    keeps_solutions: ClassVar[bool] = False  # decision variables are stored however many there are

    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "uniform", "low": -1.0, "high": 1.0})
    steps: int = 1000

    def __post_init__(self) -> None:
        check_start(self.start, self.start_kinds)

    @property
    @abstractmethod
    def n_objectives(self) -> int:
        """M."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """P, the number of decision variables."""

    @abstractmethod
    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R K"]:
        """Objectives, then constraints; differentiable.

        `batch`: mean over these samples; None: over all of them.
        """

    def linearize(self, x: Float[Tensor, "R P"], batch: Any = None) -> tuple[Any, ...] | Linear | None:
        """Values and derivatives in closed form, or None: then automatic differentiation is used.

        Returns:
            (values, function that returns the rows (R, K, P)); a third entry, where it is simple, is the
            function (w, v) -> (sum_k w_k Hess_k) v of w (R, K), v (R, P). A `Linear` where J^T w costs less
            than the rows.
        """
        return None

    @property
    def X(self) -> Set:
        """Feasible set of the decision variables."""
        return Free()

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        """theta_0, float64 on the CPU, each row a function of (problem, seed[, preference]) only."""
        return drawn_start(self, runs)

    def bind(self: This, runs: Runs) -> This:
        """The problem with the parts that differ between runs, such as random instances. Default: itself."""
        return self

    @property
    def name(self) -> str:
        """Key of random streams: the class name, so that variants with other constants share their starts."""
        return type(self).__name__.lower()

    @property
    def ideal_point(self) -> Tensor | None:
        """z of the Tchebycheff value max_m w_m (f_m - z_m), float64 on the CPU, of the bound problem."""
        return None

    @property
    def ref_point(self) -> tuple[float, ...] | None:
        """Reference point of every hypervolume of this problem, or None: then none is computed."""
        return None

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        """Extra columns (R,) of history and final rows, from iterates and all their values."""
        return {}

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        """Returns facts that readers of the rows need beside the configuration.

        Such are data sets with their hashes, and the instances of the runs' seeds.
        """
        return {}

    def strategy(self, device: torch.device) -> str:
        """Names the way in which runs are computed on a device, for the record: it changes no result."""
        return "stacked"
