"""DTLZ1, DTLZ3 and DTLZ4:  f = (1 + g) s(x_1, ..., x_{M-1}) with many local fronts, or with crowded angles.

DTLZ1   g = 100 (k + sum t^2 - cos 20 pi t),  s the simplex sum_m s_m = 1/2
DTLZ3   the same g,                           s the unit sphere
DTLZ4   g = sum t^2,                          s the unit sphere at angles pi/2 x^100
t = x_i - 1/2 over the last k variables
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.problem import Problem
from mobench.core.sets import Box, Set
from mobench.errors import ConfigError, choose
from mobench.problems.dtlz2 import DTLZ2
from mobench.solvers import project_simplex

LAST = {1: 5, 3: 10, 4: 10}  # k of the definition


@dataclass(frozen=True, kw_only=True)
class DTLZ(Problem):
    """Scalable problems beside DTLZ2, for any number of objectives; their fronts are known.

    Fields: `which`: 1, 3 or 4. `M`: number of objectives, at least 2. `n`: number of variables; None means
    M + 4 for DTLZ1 and M + 9 for the others.
    """

    citation: ClassVar[str] = (
        "Deb, Thiele, Laumanns & Zitzler 2002, Scalable multi-objective optimization test problems"
    )

    which: int = 4
    M: int = 3
    n: int | None = None
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "uniform", "low": 0.1, "high": 0.9})
    steps: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.which", str(self.which), tuple(str(which) for which in LAST))
        if self.M < 2:
            raise ConfigError(f"problem.M={self.M} is too small; DTLZ problems need at least 2 objectives.")
        if self.n is not None and self.n < self.M:
            raise ConfigError(f"problem.n={self.n} is too small; DTLZ with M={self.M} needs n >= M.")

    @property
    def name(self) -> str:
        return f"dtlz{self.which}"

    @property
    def n_objectives(self) -> int:
        return self.M

    @property
    def dim(self) -> int:
        return self.M - 1 + LAST[self.which] if self.n is None else self.n

    @property
    def X(self) -> Set:
        return Box(0.0, 1.0)

    @property
    def ref_point(self) -> tuple[float, ...]:
        """1.1 times the largest values of the front."""
        return (0.55 if self.which == 1 else 1.1,) * self.M

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        """0: each objective vanishes on the front's border."""
        return torch.zeros(self.M, dtype=torch.float64)

    def values(self, x: Float[Tensor, "R P"], batch: Tensor | None = None) -> Float[Tensor, "R M"]:
        t = x[:, self.M - 1 :] - 0.5
        g = t.square().sum(1)
        if self.which != 4:
            g = 100.0 * (t.shape[1] + g - (20.0 * math.pi * t).cos().sum(1))
        angles = x[:, : self.M - 1]
        if self.which == 1:
            back = 1.0 - angles
            forth = angles
        else:
            angles = 0.5 * math.pi * (angles**100 if self.which == 4 else angles)
            back = angles.sin()
            forth = angles.cos()
        size = 0.5 if self.which == 1 else 1.0
        # f_m: the first M - m factors forth, then one back
        product = torch.ones_like(g)
        out = []
        for i in range(self.M - 1):
            out.append(product * back[:, i])
            product = product * forth[:, i]
        out.append(product)
        return size * (1.0 + g).unsqueeze(1) * torch.stack(out[::-1], dim=1)

    def front(self, k: int) -> Float[Tensor, "k M"]:
        """k points: of the sphere as for DTLZ2; of the simplex evenly (M = 2), or of a Halton sequence."""
        if self.which != 1:
            return DTLZ2(M=self.M).front(k)
        if self.M == 2:
            t = torch.linspace(0.0, 0.5, k, dtype=torch.float64)
            return torch.stack([t, 0.5 - t], dim=1)
        from scipy.stats import qmc  # a second of import time that M = 2 need not pay

        e = -np.log(qmc.Halton(d=self.M, scramble=False).random(k + 1)[1:])
        return torch.from_numpy(0.5 * e / e.sum(1, keepdims=True))

    def distance_to_front(self, F: Float[Tensor, "R M"]) -> Float[Tensor, " R"]:
        """Exact Euclidean distance of f >= 0."""
        if self.which != 1:
            return (torch.linalg.vector_norm(F, dim=-1) - 1.0).abs()
        return torch.linalg.vector_norm(F - 0.5 * project_simplex(2.0 * F), dim=-1)
