"""Convex quadratics under convex constraints, with known answers, for methods that take g(x) <= 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import generator
from mobench.core.seeds import PerSeed
from mobench.core.start import START_KINDS
from mobench.errors import ConfigError

Product = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class HalfPlane(Problem):
    """Two distances and a half-plane; the front of the constrained problem is that of the problem on the line
    x_2 = bound.

        f_1 = |x - (-1, 0)|^2 / 2,   f_2 = |x - (1, 0)|^2 / 2,   g = bound - x_2 <= 0,   x in R^2
        bound > 0: Pareto set {(s, bound), |s| <= 1}, multiplier bound;   bound <= 0: {(s, 0)}, multiplier 0
        f = ((s + 1)^2 + b^2, (s - 1)^2 + b^2) / 2,   b = max(bound, 0)

    Fields: bound (the specification's P1: 1).
    Source: problem P1 of the project's specification of MLM-CMOO; ours.
    """

    n_constraints: ClassVar[int] = 1
    citation: ClassVar[str] = "ours: P1"

    bound: float | int = 1.0
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "given", "value": [0.3, -1.0]})
    steps: int = 20000
    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **START_KINDS,
        "given": ("value",),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start["kind"] == "given" and len(self.start["value"]) != 2:
            raise ConfigError(f"problem.start.value={self.start['value']} must contain two numbers.")

    @property
    def n_objectives(self) -> int:
        return 2

    @property
    def dim(self) -> int:
        return 2

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        b = max(float(self.bound), 0.0)
        return torch.full((2,), 0.5 * b * b, dtype=torch.float64)

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        if self.start["kind"] == "given":
            row = torch.tensor([float(v) for v in self.start["value"]], dtype=torch.float64)
            return row.expand(len(runs), 2).clone()
        return super().initial(runs)

    def values(self, x: Float[Tensor, "R 2"], batch: Any = None) -> Float[Tensor, "R 3"]:
        x1, x2 = x.unbind(1)
        half = 0.5 * x2 * x2
        return torch.stack(
            [0.5 * (x1 + 1.0) ** 2 + half, 0.5 * (x1 - 1.0) ** 2 + half, self.bound - x2], dim=1
        )

    def linearize(
        self, x: Float[Tensor, "R 2"], batch: Any = None
    ) -> tuple[Tensor, Callable[[], Tensor], Product]:
        def rows() -> Tensor:
            x1, x2 = x.unbind(1)
            zero = torch.zeros_like(x1)
            one = torch.ones_like(x1)
            flat = torch.stack([x1 + one, x2, x1 - one, x2, zero, -one], dim=1)
            return flat.view(len(x), 3, 2)

        return self.values(x), rows, lambda w, v: w[:, :2].sum(1, keepdim=True) * v

    def front(self, k: int) -> Float[Tensor, "k M"]:
        s = torch.linspace(-1.0, 1.0, k, dtype=torch.float64)
        b = max(float(self.bound), 0.0)
        return 0.5 * torch.stack([(s + 1.0) ** 2 + b * b, (s - 1.0) ** 2 + b * b], dim=1)


@lru_cache(maxsize=64)
def _quadratics(seed: int, m: int, n: int, low: float, high: float) -> tuple[Tensor, Tensor]:
    """A (m, n, n), eigenvalues uniform in [low, high] in random directions, and a (m, n) ~ N(0, I)."""
    with torch.inference_mode(False):
        rng = generator(seed, problem="ballandhalfspace", use="instance")
        A = []
        a = []
        for _ in range(m):
            Q, _ = torch.linalg.qr(torch.from_numpy(rng.standard_normal((n, n))))
            A.append(Q @ torch.diag(torch.from_numpy(rng.uniform(low, high, n))) @ Q.T)
            a.append(torch.from_numpy(rng.standard_normal(n)))
        return torch.stack(A), torch.stack(a)


@dataclass(frozen=True, kw_only=True)
class BallAndHalfSpace(PerSeed[tuple[Tensor, Tensor]]):
    """Random convex quadratics, a new instance for each seed, in the unit ball cut by a half-space.

        f_i = (x - a_i)'A_i(x - a_i) / 2,  i = 1..M,   eig(A_i) in spectrum, a_i ~ N(s 1/n^(1/2), I),
            s = shift
        g_1 = |x|^2 - 1 <= 0,   g_2 = x_1 - bound <= 0,   x in R^n

    With shift = 3 the minima lie outside of the ball and a constraint binds on the whole front; with 0 most
    fronts have points inside, where the shortest convex combination of gradients is 0.

    Fields: objectives M, variables n, spectrum, bound (the specification's P2: 3, 6, [0.5, 3], 0.2), shift.
    Source: problem P2 of the project's specification of MLM-CMOO, which does not say where the minima lie;
    the random instances are ours.
    """

    n_constraints: ClassVar[int] = 2
    citation: ClassVar[str] = "ours: P2"

    objectives: int = 3
    variables: int = 6
    spectrum: Sequence[float] = (0.5, 3.0)
    bound: float | int = 0.2
    shift: float | int = 3.0
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "normal", "scale": 1.0})
    steps: int = 20000

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "spectrum", tuple(float(v) for v in self.spectrum))
        if self.objectives < 2 or self.variables < 1:
            raise ConfigError(
                f"problem.objectives={self.objectives} must be at least 2 and "
                f"problem.variables={self.variables} must be at least 1."
            )
        if len(self.spectrum) != 2 or not 0 < self.spectrum[0] <= self.spectrum[1]:
            raise ConfigError(
                f"problem.spectrum={list(self.spectrum)} must be two numbers, 0 < lowest <= highest."
            )
        if not self.bound > -1:
            raise ConfigError(
                f"problem.bound={self.bound} cannot be met in the unit ball; choose problem.bound > -1."
            )

    @property
    def n_objectives(self) -> int:
        return self.objectives

    @property
    def dim(self) -> int:
        return self.variables

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        """0, each objective's minimum without constraints."""
        return torch.zeros(self.objectives, dtype=torch.float64)

    def instance(self, seed: int) -> tuple[Tensor, Tensor]:
        A, a = _quadratics(seed, self.objectives, self.variables, self.spectrum[0], self.spectrum[1])
        return A, a + self.shift / self.variables**0.5

    def _constants(self, x: Tensor) -> tuple[Float[Tensor, "R M n n"], Float[Tensor, "R M n"]]:
        def stacked() -> tuple[Tensor, Tensor]:
            pairs = [self.instance(seed) for seed in self.seeds]
            A = torch.stack([A for A, _ in pairs])[self.group]
            a = torch.stack([a for _, a in pairs])[self.group]
            return A.to(x), a.to(x)

        return self.cache.made((x.dtype, x.device), stacked)

    def values(self, x: Float[Tensor, "R n"], batch: Any = None) -> Float[Tensor, "R K"]:
        A, a = self._constants(x)
        y = x.unsqueeze(1) - a
        f = 0.5 * (y * (A @ y.unsqueeze(3)).squeeze(3)).sum(2)
        g = torch.stack([x.square().sum(1) - 1.0, x[:, 0] - self.bound], dim=1)
        return torch.cat([f, g], dim=1)

    def linearize(
        self, x: Float[Tensor, "R n"], batch: Any = None
    ) -> tuple[Tensor, Callable[[], Tensor], Product]:
        def rows() -> Tensor:
            A, a = self._constants(x)
            quadratics = (A @ (x.unsqueeze(1) - a).unsqueeze(3)).squeeze(3)
            ball = 2.0 * x
            half = torch.zeros_like(x)
            half[:, 0] = 1.0
            return torch.cat([quadratics, ball.unsqueeze(1), half.unsqueeze(1)], dim=1)

        def hessian(w: Tensor, v: Tensor) -> Tensor:
            A, _ = self._constants(x)
            quadratics = torch.einsum("rm,rmij,rj->ri", w[:, : self.objectives], A, v)
            return quadratics + 2.0 * w[:, self.objectives, None] * v

        return self.values(x), rows, hessian
