"""UF1, UF2, UF3, UF4 and UF7 of CEC 2009: two objectives whose Pareto set is a curve in x, with known fronts.

    f_1 = a(x_1) + 2/|J_1| sum over odd j of e(y_j),   f_2 = b(x_1) + 2/|J_2| sum over even j of e(y_j)

y_j = 0 on the Pareto set; variables in [0, 1]: x_j = low + (high - low) u_j.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.problem import Problem
from mobench.core.sets import Box, Set
from mobench.errors import ConfigError, choose
from mobench.problems.curves import evenly

REACH = {1: 1.0, 2: 1.0, 4: 2.0, 7: 1.0}  # x_j in [-reach, reach] for j > 1; UF3: in [0, 1]


@dataclass(frozen=True, kw_only=True)
class UF(Problem):
    """Fronts: f_2 = 1 - sqrt(f_1) (UF1, UF2, UF3), 1 - f_1^2 (UF4), 1 - f_1 (UF7).

    Fields: `which`: 1, 2, 3, 4 or 7. `n`: number of variables, at least 3. `floor`: below this x_1 the
    slopes of its roots are kept constant (values are exact).
    """

    citation: ClassVar[str] = "Zhang, Zhou, Zhao, Suganthan, Liu & Tiwari 2009, CEC 2009 test instances"
    twice: ClassVar[bool] = False

    which: int = 1
    n: int = 30
    floor: float = 1e-6
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "uniform", "low": 0.1, "high": 0.9})
    steps: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.which", str(self.which), ("1", "2", "3", "4", "7"))
        if self.n < 3:
            raise ConfigError(f"problem.n={self.n} is too small; UF needs n >= 3.")
        if not 0 < self.floor < 1:
            raise ConfigError(f"problem.floor={self.floor} must lie in (0, 1).")

    @property
    def name(self) -> str:
        return f"uf{self.which}"

    @property
    def n_objectives(self) -> int:
        return 2

    @property
    def dim(self) -> int:
        return self.n

    @property
    def X(self) -> Set:
        return Box(0.0, 1.0)

    @property
    def ref_point(self) -> tuple[float, ...]:
        return (1.1, 1.1)

    @property
    def ideal_point(self) -> Float[Tensor, " 2"]:
        return torch.zeros(2, dtype=torch.float64)

    def root(self, x1: Float[Tensor, "*R"], power: float) -> Float[Tensor, "*R"]:
        """x1^power with the slope at the floor below it."""
        safe = x1.clamp_min(self.floor)
        value = x1.detach().clamp_min(0.0) ** power
        slope = power * safe.detach() ** (power - 1.0)
        # exact value; below the floor, `safe` passes no gradient and x1 itself gets the slope
        return value + slope * (x1 - x1.detach())

    def _errors(self, x1: Float[Tensor, " R"], u: Float[Tensor, "R q"]) -> Float[Tensor, "R q"]:
        """y_j for j = 2..n."""
        j = torch.arange(2, self.n + 1, dtype=u.dtype, device=u.device)
        t = x1.unsqueeze(1)
        if self.which == 3:
            return u - torch.stack(
                [self.root(x1, 0.5 * (1.0 + 3.0 * (i - 2) / (self.n - 2))) for i in range(2, self.n + 1)],
                dim=1,
            )
        reach = REACH[self.which]
        x = reach * (2.0 * u - 1.0)
        wave = 6.0 * math.pi * t + j * math.pi / self.n
        if self.which != 2:
            return x - wave.sin()
        size = 0.3 * t * t * (4.0 * wave).cos() + 0.6 * t
        return x - size * torch.where(j % 2 == 1, wave.cos(), wave.sin())

    def values(self, x: Float[Tensor, "R P"], batch: Tensor | None = None) -> Float[Tensor, "R 2"]:
        x1 = x[:, 0]
        y = self._errors(x1, x[:, 1:])
        if self.which == 7:
            first = self.root(x1, 0.2)
            second = 1.0 - first
        else:
            first = x1
            second = 1.0 - (x1 * x1 if self.which == 4 else self.root(x1, 0.5))
        out = []
        for start, shape in ((1, first), (0, second)):  # odd j, then even j
            part = y[:, start::2]
            if self.which == 3:
                j = torch.arange(2 + start, self.n + 1, 2, dtype=x.dtype, device=x.device)
                waves = (20.0 * math.pi * part / j.sqrt()).cos().prod(1)
                total = 4.0 * part.square().sum(1) - 2.0 * waves + 2.0
            elif self.which == 4:
                total = (part.abs() / (1.0 + (2.0 * part.abs()).exp())).sum(1)
            else:
                total = part.square().sum(1)
            out.append(shape + 2.0 / part.shape[1] * total)
        return torch.stack(out, dim=1)

    def front(self, k: int) -> Float[Tensor, "k 2"]:
        """k points, evenly spaced in arc length."""

        def curve(t: Float[Tensor, " k"]) -> Float[Tensor, "k 2"]:
            if self.which == 4:
                return torch.stack([t, 1.0 - t * t], dim=1)
            if self.which == 7:
                return torch.stack([t, 1.0 - t], dim=1)
            return torch.stack([t * t, 1.0 - t], dim=1)

        return evenly(curve, k, [(0.0, 1.0)])
