"""DTLZ2:  f = (1 + g) s(x_1, ..., x_{M-1}),  s on the unit sphere,
g = sum of (x_i - 1/2)^2 over the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.problem import Problem
from mobench.core.sets import Box, Set
from mobench.errors import ConfigError
from mobench.problems.curves import evenly

HALF_PI = 0.5 * math.pi


@lru_cache(maxsize=64)
def _masks(M: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Returns masks of cos(a_i) and sin(a_i) in objective m, both (M, M-1), and the diagonal (M-1, M-1)."""
    with torch.inference_mode(False):
        m = torch.arange(1, M + 1, device=device).unsqueeze(1)
        i = torch.arange(1, M, device=device).unsqueeze(0)
        return i <= M - m, i == M - m + 1, torch.eye(M - 1, dtype=torch.bool, device=device)


@dataclass(frozen=True, kw_only=True)
class DTLZ2(Problem):
    """Concave front in the positive octant of the unit sphere, for any number of objectives.

        s_1 = cos a_1 ... cos a_{M-1},   s_m = cos a_1 ... cos a_{M-m} sin a_{M-m+1},   s_M = sin a_1,
            a = pi/2 x
        rows: (1 + g) pi/2 ds/da  for the first M-1 variables,  2 (x_i - 1/2) s  for the others

    A point is Pareto optimal where g = 0. At corners of the angles (x_1 = 1, say) some rows vanish: the
    default start keeps away from them.

    Fields:
        M: number of objectives, at least 2. n: number of variables; None means M + 9.
    """

    citation: ClassVar[str] = (
        "Deb, Thiele, Laumanns & Zitzler 2002, Scalable multi-objective optimization test problems"
    )

    M: int = 3
    n: int | None = None
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "uniform", "low": 0.1, "high": 0.9})
    steps: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.M < 2:
            raise ConfigError(f"problem.M={self.M} is too small; DTLZ2 needs at least 2 objectives.")
        if self.n is not None and self.n < self.M:
            raise ConfigError(
                f"problem.n={self.n} is too small; DTLZ2 with M={self.M} needs n >= M (null means M + 9)."
            )

    @property
    def n_objectives(self) -> int:
        return self.M

    @property
    def dim(self) -> int:
        return self.M + 9 if self.n is None else self.n

    @property
    def X(self) -> Set:
        return Box(0.0, 1.0)

    @property
    def ref_point(self) -> tuple[float, ...]:
        """(1.1, ..., 1.1); ours: every hypervolume that we print uses it."""
        return (1.1,) * self.M

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        """0: each objective vanishes on the front's border."""
        return torch.zeros(self.M, dtype=torch.float64)

    def values(self, x: Float[Tensor, "R P"], batch: Tensor | None = None) -> Float[Tensor, "R M"]:
        return self._parts(x)[0]

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Tensor | None = None
    ) -> tuple[Float[Tensor, "R M"], Callable[[], Tensor]]:
        F, s, radius, T, cos, sin, t = self._parts(x)
        has_cos, has_sin, diagonal = _masks(self.M, x.device)

        def rows() -> Float[Tensor, "R M P"]:
            # d/da_i replaces the i-th factor: a quotient by cos(a_i) would fail at the corners.
            if self.M <= 3:
                dT = torch.where(has_cos, -sin, torch.where(has_sin, cos, torch.zeros_like(cos)))
                by_angle = torch.where(diagonal, dT.unsqueeze(-2), T.unsqueeze(-2)).prod(-1)
            else:  # M^3 factors for each run: running products of cosines, of which all objectives are made
                one = torch.ones_like(cos[..., :1])
                factors = torch.where(diagonal, -sin, cos.mT)  # row k: cos a_k, or its derivative
                heads = torch.cat([one.expand_as(cos), factors.cumprod(1)], dim=1)
                tails = torch.where(has_sin.flip(0), cos, torch.cat([sin, one], dim=2).mT)
                by_angle = (heads * tails).flip(1) * (has_cos | has_sin)
            by_others = 2.0 * s.unsqueeze(-1) * t.unsqueeze(1)
            return torch.cat([by_angle * (HALF_PI * radius).unsqueeze(-1), by_others], dim=-1)

        return F, rows

    def _parts(self, x: Float[Tensor, "R P"]) -> tuple[Tensor, ...]:
        """f, s (R, M), 1 + g (R, 1), factors of s (R, M, M-1), cos a, sin a (R, 1, M-1), x - 1/2 (others)."""
        has_cos, has_sin, _ = _masks(self.M, x.device)
        angles = (HALF_PI * x[:, : self.M - 1]).unsqueeze(1)
        t = x[:, self.M - 1 :] - 0.5
        cos = angles.cos()
        sin = angles.sin()
        T = torch.where(has_cos, cos, torch.where(has_sin, sin, torch.ones_like(sin)))
        # factor by factor: the second derivative of `prod` divides by factors, which are 6e-17 at the corners
        s = reduce(torch.mul, T.unbind(-1))
        radius = 1.0 + torch.linalg.vecdot(t, t).unsqueeze(-1)
        return radius * s, s, radius, T, cos, sin, t

    def front(self, k: int) -> Float[Tensor, "k M"]:
        """k points of the unit sphere's positive octant.

        M = 2: evenly spaced angles. M > 2: a Halton sequence (unscrambled, first point skipped) through the
        normal quantile, in absolute value and normalised, which makes uniform points of the cube uniform on
        the octant. They are about k^(-1/(M-1)) apart: for distances use `distance_to_front`, which is exact.
        """
        if self.M == 2:
            return evenly(lambda a: torch.stack([a.cos(), a.sin()], dim=-1), k, [(0.0, HALF_PI)])
        from scipy.stats import qmc  # most of a second of import time that only M > 2 need pay

        u = qmc.Halton(d=self.M, scramble=False).random(k + 1)[1:]
        from scipy.special import ndtri

        z = np.abs(ndtri(u))  # only base 2 ever gives 1/2, so that z is never 0
        return torch.from_numpy(z / np.linalg.norm(z, axis=1, keepdims=True))

    def distance_to_front(self, F: Float[Tensor, "R M"]) -> Float[Tensor, " R"]:
        """| |f| - 1 |, the exact Euclidean distance of f >= 0 to the front."""
        return (torch.linalg.vector_norm(F, dim=-1) - 1.0).abs()
