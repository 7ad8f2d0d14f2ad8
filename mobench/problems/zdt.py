"""ZDT1, ZDT2, ZDT3:  f_1 = x_1,  f_2 = g h(x_1, g),  g = 1 + 9/(n-1) (x_2 + ... + x_n),  x in [0, 1]^n."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.problem import Problem
from mobench.core.sets import Box, Set
from mobench.errors import ConfigError
from mobench.problems.curves import evenly

PIECES = 5


@lru_cache(maxsize=64)
def _constants(n: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gradients of x_1 and of g (2, n), and the offset (0, 1):  (x_1, g) = B x + offset."""
    with torch.inference_mode(False):
        B = torch.full((2, n), 9.0 / (n - 1), dtype=dtype, device=device)
        B[0] = 0.0
        B[1, 0] = 0.0
        B[0, 0] = 1.0
        return B, torch.tensor([0.0, 1.0], dtype=dtype, device=device)


@dataclass(frozen=True, kw_only=True)
class ZDT(Problem):
    """Base of the family: everything depends on x through y = (x_1, g) alone, so the rows are dF/dy times B.

        dF/dy = ( 1            0         )
                ( df_2/dx_1    df_2/dg   )

    Pareto optimal points have x_2 = ... = x_n = 0, that is g = 1. Every point with x_1 = 0 is a weak optimum
    (f_1 cannot fall), whatever g is: methods that only ask for stationarity, such as MGDA, may end there.

    Fields:
        n: number of decision variables, at least 2.
        floor: ZDT1 and ZDT3 have df_2/dx_1 -> -infinity as x_1 -> 0. Their values are exact everywhere, but
            the square root has the constant slope 1/2 floor^(-1/2) for x_1 < floor (and no curvature there).
    """

    citation: ClassVar[str] = (
        "Zitzler, Deb & Thiele 2000, Comparison of multiobjective evolutionary algorithms: empirical "
        "results, Evolutionary Computation 8(2), test functions T1 to T3"
    )
    # ours: every hypervolume that we print uses it
    ref_point: ClassVar[tuple[float, ...] | None] = (1.1, 1.1)

    n: int = 30
    floor: float = 1e-6
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "uniform", "low": 0.1, "high": 0.9})
    steps: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < 2:
            raise ConfigError(f"problem.n={self.n} is too small; the ZDT problems need at least 2 variables.")
        if not 0.0 < self.floor < 1.0:
            raise ConfigError(f"problem.floor={self.floor} must lie strictly between 0 and 1.")

    @property
    def n_objectives(self) -> int:
        return 2

    @property
    def dim(self) -> int:
        return self.n

    @property
    def X(self) -> Set:
        return Box(0.0, 1.0)

    @abstractmethod
    def second(self, x1: Float[Tensor, "*R"], g: Float[Tensor, "*R"]) -> Float[Tensor, "*R"]:
        """f_2; differentiable, also at x_1 = 0."""

    @abstractmethod
    def slopes(
        self, x1: Float[Tensor, "*R"], g: Float[Tensor, "*R"]
    ) -> tuple[Float[Tensor, "*R"], Float[Tensor, "*R"], Float[Tensor, "*R"]]:
        """f_2 and its derivatives with respect to x_1 and g, in closed form."""

    def root(self, x1: Float[Tensor, "*R"]) -> Float[Tensor, "*R"]:
        """sqrt(x_1), exact; its derivative is capped below `floor`."""
        fixed = x1.detach()
        line = fixed.sqrt() + (x1 - fixed) * (0.5 * self.floor**-0.5)
        return torch.where(fixed < self.floor, line, x1.clamp_min(self.floor).sqrt())

    def values(self, x: Float[Tensor, "R P"], batch: Tensor | None = None) -> Float[Tensor, "R 2"]:
        B, offset = _constants(self.n, x.dtype, x.device)
        x1, g = torch.addmm(offset, x, B.T).unbind(-1)
        return torch.stack([x1, self.second(x1, g)], dim=-1)

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Tensor | None = None
    ) -> tuple[Float[Tensor, "R 2"], Callable[[], Tensor]]:
        B, offset = _constants(self.n, x.dtype, x.device)
        x1, g = torch.addmm(offset, x, B.T).unbind(-1)
        f2, by_x1, by_g = self.slopes(x1, g)

        def rows() -> Float[Tensor, "R 2 P"]:
            second = torch.stack([by_x1, by_g], dim=-1) @ B
            return torch.stack([B[0].expand_as(second), second], dim=1)

        return torch.stack([x1, f2], dim=-1), rows

    def curve(self, t: Float[Tensor, " k"]) -> Float[Tensor, "k 2"]:
        """Objectives at x_1 = t^2, g = 1."""
        x1 = t * t
        return torch.stack([x1, self.second(x1, torch.ones_like(x1))], dim=-1)

    def pieces(self) -> tuple[tuple[float, float], ...]:
        """Intervals of x_1 on which g = 1 is Pareto optimal."""
        return ((0.0, 1.0),)

    @property
    def ideal_point(self) -> Float[Tensor, " 2"]:
        """f_1 = 0 and the last point of the front, where f_2 is smallest."""
        last = torch.tensor([math.sqrt(self.pieces()[-1][1])], dtype=torch.float64)
        return torch.stack([torch.zeros_like(last), self.curve(last)[:, 1]])[:, 0]

    def front(self, k: int) -> Float[Tensor, "k 2"]:
        """k points of the curve g = 1, evenly spaced in arc length over its non-dominated pieces."""
        return evenly(self.curve, k, [(math.sqrt(a), math.sqrt(b)) for a, b in self.pieces()])


@dataclass(frozen=True, kw_only=True)
class ZDT1(ZDT):
    """Convex front:  f_2 = g - sqrt(x_1 g),  front f_2 = 1 - sqrt(f_1)."""

    def second(self, x1: Float[Tensor, "*R"], g: Float[Tensor, "*R"]) -> Float[Tensor, "*R"]:
        return g - self.root(x1) * g.sqrt()

    def slopes(
        self, x1: Float[Tensor, "*R"], g: Float[Tensor, "*R"]
    ) -> tuple[Float[Tensor, "*R"], Float[Tensor, "*R"], Float[Tensor, "*R"]]:
        p = x1.sqrt()
        q = g.sqrt()
        return g - p * q, -0.5 * q / x1.clamp_min(self.floor).sqrt(), 1.0 - 0.5 * p / q


@dataclass(frozen=True, kw_only=True)
class ZDT2(ZDT):
    """Concave front:  f_2 = g - x_1^2 / g,  front f_2 = 1 - f_1^2.

    Linear weights find its two end points only. At x_1 = 0 the derivative of f_2 by x_1 vanishes.
    """

    def second(self, x1: Float[Tensor, "*R"], g: Float[Tensor, "*R"]) -> Float[Tensor, "*R"]:
        return g - x1 * x1 / g

    def slopes(
        self, x1: Float[Tensor, "*R"], g: Float[Tensor, "*R"]
    ) -> tuple[Float[Tensor, "*R"], Float[Tensor, "*R"], Float[Tensor, "*R"]]:
        r = x1 / g
        return g - x1 * r, -2.0 * r, 1.0 + r * r


@lru_cache(maxsize=1)
def _zdt3_pieces() -> tuple[tuple[float, float], ...]:
    """Intervals of x_1 on which phi = 1 - sqrt(x) - x sin(10 pi x) is below everything to its left.

    A piece ends at a local minimum of phi; the next begins where phi first falls to that minimum's level,
    between the maximum that follows (near 0.2 j - 0.05) and the next minimum. Open on the left, but for the
    first.
    """
    w = 10.0 * math.pi

    def phi(x: float) -> float:
        return 1.0 - math.sqrt(x) - x * math.sin(w * x)

    def slope(x: float) -> float:
        return -0.5 / math.sqrt(x) - math.sin(w * x) - w * x * math.cos(w * x)

    # x sin(10 pi x) peaks near 0.05 + 0.2 j, where cos vanishes, and the slope changes its sign just right of
    # it.
    from scipy.optimize import brentq  # a quarter of a second of import time that ZDT1 and ZDT2 need not pay

    ends = [brentq(slope, 0.05 + 0.2 * j, 0.1 + 0.2 * j, xtol=1e-15) for j in range(PIECES)]
    begins = [0.0]
    for j in range(1, PIECES):
        level = phi(ends[j - 1])
        begins.append(brentq(lambda x, level=level: phi(x) - level, 0.2 * j - 0.05, ends[j], xtol=1e-15))
    return tuple(zip(begins, ends, strict=True))


@dataclass(frozen=True, kw_only=True)
class ZDT3(ZDT):
    """Front in five pieces:  f_2 = g - sqrt(x_1 g) - x_1 sin(10 pi x_1),  f_2 >= -0.7734 on it: not positive.

    Pieces in f_1 (rounded; computed to 1e-15 as described in `_zdt3_pieces`):
        [0, 0.0830015]  (0.1822287, 0.2577624]  (0.4093137, 0.4538821]  (0.6183968, 0.6525117]
            (0.8233318, 0.8518329]
    """

    positive: ClassVar[bool] = False

    def second(self, x1: Float[Tensor, "*R"], g: Float[Tensor, "*R"]) -> Float[Tensor, "*R"]:
        return g - self.root(x1) * g.sqrt() - x1 * torch.sin(10.0 * math.pi * x1)

    def slopes(
        self, x1: Float[Tensor, "*R"], g: Float[Tensor, "*R"]
    ) -> tuple[Float[Tensor, "*R"], Float[Tensor, "*R"], Float[Tensor, "*R"]]:
        p = x1.sqrt()
        q = g.sqrt()
        angle = 10.0 * math.pi * x1
        sine = angle.sin()
        by_x1 = -0.5 * q / x1.clamp_min(self.floor).sqrt() - sine - angle * angle.cos()
        return g - p * q - x1 * sine, by_x1, 1.0 - 0.5 * p / q

    def pieces(self) -> tuple[tuple[float, float], ...]:
        return _zdt3_pieces()
