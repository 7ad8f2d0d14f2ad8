"""VLMOP2:  f_m(x) = s_m (1 - exp(-|x - c_m|^2)),  c_1 = 1/sqrt(n) (1, ..., 1),  c_2 = -c_1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.problem import Problem
from mobench.core.sets import Box, Free, Set
from mobench.errors import ConfigError
from mobench.problems.curves import evenly


@lru_cache(maxsize=64)
def _constants(
    n: int, scale: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, ...]:
    """Centres c (2, n) and the factors s, -s, 2s (2,)."""
    with torch.inference_mode(False):
        c = torch.full((n,), 1.0 / math.sqrt(n), dtype=dtype, device=device)
        s = torch.tensor(scale, dtype=dtype, device=device)
        return torch.stack([c, -c]), s, -s, 2.0 * s


@dataclass(frozen=True, kw_only=True)
class VLMOP2(Problem):
    """Two Gaussian wells.

    The middle of the front is concave, so linear weights end at its two end points only.

        f_1 = s_1 (1 - exp(-|x - 1/sqrt(n)|^2)),   f_2 = s_2 (1 - exp(-|x + 1/sqrt(n)|^2)),   x in R^n
        rows: grad f_m = 2 s_m exp(-|x - c_m|^2) (x - c_m)
        front: x = u/sqrt(n) (1, ..., 1), -1 <= u <= 1:  f = (s_1 (1 - exp(-(1-u)^2)), s_2
            (1 - exp(-(1+u)^2)))

    Fields:
        n: number of decision variables; the front does not depend on it.
        scale: (s_1, s_2), for tests of scale invariance.
        clip: half width of a box [-clip, clip]^n as feasible set, or None. It must hold the Pareto set.

    Departure: the original box [-2, 2]^n is not enforced; all Pareto points lie inside it.
    """

    citation: ClassVar[str] = (
        "Fonseca & Fleming 1995, An overview of evolutionary algorithms in multiobjective optimization; "
        "named VLMOP2 by Van Veldhuizen & Lamont 1999"
    )

    n: int = 20
    scale: Sequence[float] = (1.0, 1.0)
    clip: float | None = None
    # Gradients vanish away from the wells: N(0, 1) in each of 20 coordinates would not move at all.
    start: Mapping[str, Any] = field(
        default_factory=lambda: {"kind": "alternating", "scale": 0.3, "noise": 0.1}
    )
    steps: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", tuple(float(s) for s in self.scale))
        if self.n < 1:
            raise ConfigError(f"problem.n={self.n} must be at least 1.")
        if len(self.scale) != 2 or min(self.scale) <= 0.0:
            raise ConfigError(
                f"problem.scale={list(self.scale)} must contain two positive factors, one per objective."
            )
        if self.clip is not None and self.clip * math.sqrt(self.n) < 1.0:
            raise ConfigError(
                f"problem.clip={self.clip} cuts off Pareto points at 1/sqrt(n)={1 / math.sqrt(self.n):.4g}; "
                f"choose a larger box, or null for none."
            )

    @property
    def n_objectives(self) -> int:
        return 2

    @property
    def dim(self) -> int:
        return self.n

    @property
    def X(self) -> Set:
        return Free() if self.clip is None else Box(-self.clip, self.clip)

    @property
    def ref_point(self) -> tuple[float, ...]:
        """(1.1, 1.1) times `scale`; ours: every hypervolume that we print uses it."""
        return tuple(1.1 * s for s in self.scale)

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        """0: each well has f = 0 at its own centre."""
        return torch.zeros(2, dtype=torch.float64)

    def values(self, x: Float[Tensor, "R P"], batch: Tensor | None = None) -> Float[Tensor, "R 2"]:
        return self._parts(x)[0]

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Tensor | None = None
    ) -> tuple[Float[Tensor, "R 2"], Callable[[], Tensor]]:
        F, E, D, twice = self._parts(x)
        return F, lambda: (E * twice).unsqueeze(-1) * D

    def _parts(self, x: Float[Tensor, "R P"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """f (R, 2), the exponentials E (R, 2), D = x - c (R, 2, P) and 2s, by five kernels."""
        c, s, minus_s, twice = _constants(self.n, self.scale, x.dtype, x.device)
        D = x.unsqueeze(1) - c
        E = torch.linalg.vecdot(D, D).neg_().exp_()
        return torch.addcmul(s, E, minus_s), E, D, twice

    def front_point(self, u: Float[Tensor, "*k"]) -> Float[Tensor, "*k 2"]:
        """f at x = u/sqrt(n) (1, ..., 1); Pareto optimal for -1 <= u <= 1."""
        s1, s2 = self.scale
        return torch.stack(
            [-s1 * torch.expm1(-((1.0 - u) ** 2)), -s2 * torch.expm1(-((1.0 + u) ** 2))], dim=-1
        )

    def front(self, k: int) -> Float[Tensor, "k 2"]:
        """k points, evenly spaced in arc length from (0, 0.98168 s_2) to (0.98168 s_1, 0)."""
        return evenly(self.front_point, k, [(1.0, -1.0)])

    def tchebycheff_target(self, w: Float[Tensor, "*R 2"]) -> Float[Tensor, "*R 2"]:
        """The front's crossing with the ray 1/w: the minimiser of max_m w_m f_m, for weights w > 0.

        Bisection in u: w_1 f_1 falls and w_2 f_2 rises. 60 halvings leave an error of 2^-59 in u.
        """
        low = -torch.ones_like(w[..., 0])
        high = -low
        for _ in range(60):
            u = 0.5 * (low + high)
            excess = w * self.front_point(u)
            right = excess[..., 0] > excess[..., 1]
            low = torch.where(right, u, low)
            high = torch.where(right, high, u)
        return self.front_point(0.5 * (low + high))
