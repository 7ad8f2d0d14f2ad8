"""One noisy variable:  f_m = E (x + e - c_m)^2,  g_j = E (x + e - c_j)^4 - b_j <= 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.random import counter_normal
from mobench.core.sampled import Sampled
from mobench.core.sets import Box, Set
from mobench.core.types import Real
from mobench.errors import ConfigError, choose
from mobench.problems.curves import evenly

CENTRES = (0.0, 1.0, -0.5)  # c_1, c_2, c_3; the two constraints have the first two
IDEALS = ("feasible", "analytic")


@lru_cache(maxsize=64)
def _constants(
    M: int, bounds: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """c (M,) and b (2,)."""
    with torch.inference_mode(False):
        return (
            torch.tensor(CENTRES[:M], dtype=dtype, device=device),
            torch.tensor(bounds, dtype=dtype, device=device),
        )


@dataclass(frozen=True, kw_only=True)
class ConstrainedGaussian(Sampled):
    """One variable, e ~ N(0, s) with variance s, c = (0, 1, -1/2); equation (15), or (83) for M = 3.

        f_m(x) = E (x + e - c_m)^2       = u^2 + s,                          u = x - c_m,  m = 1..M
        g_j(x) = E (x + e - c_j)^4 - b_j = u^4 + 6 s u^2 + 3 s^2 - b_j <= 0,  u = x - c_j,  j = 1, 2
        rows:         2 u  and  4 u^3 + 12 s u;   of a sample:  2 (u + e)  and  4 (u + e)^3
        feasible set: |x - c_j| <= r_j with r_j^2 = -3 s + sqrt(6 s^2 + b_j), and |x| <= box: an interval F
        front:        x in the projection of [min c, max c] onto F

    The same e serves all functions of a sample. The front is a curve for M = 3 too.

    Fields:
        objectives: M, 2 or 3.
        variance: s, of the noise (the paper prints 0.25 for sigma^2 and takes it as the analytic ideal
            point).
        bounds: (b_1, b_2), right-hand sides of the constraints.
        box: X = [-box, box].
        ideal: z of the Tchebycheff value: "feasible": z_m = min of f_m over F; "analytic": z_m = s, the
            minimum without constraints; or M numbers.
        grid: step of the grid of x, multiples of it, over which "feasible" takes the minimum
            (the paper's: 1e-4); None: the exact minimum.

    Departure: the paper's constraints have b_j on their right-hand sides; here g <= 0.
    """

    n_constraints: ClassVar[int] = 2
    citation: ClassVar[str] = "Constrained stochastic multi-objective optimization (CSMOO), (15) and (83)"

    objectives: int = 2
    variance: Real = 0.25
    bounds: Sequence[Real] = (1.0, 2.0)
    box: Real = 5.0
    ideal: str | Sequence[Real] = "feasible"
    grid: Real | None = None
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant", "value": 1.0})
    steps: int = 3000

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "bounds", tuple(float(b) for b in self.bounds))
        if self.objectives not in (2, 3):
            raise ConfigError(
                f"problem.objectives={self.objectives} is not supported; this problem has 2 or 3 objectives."
            )
        if not 0.0 < self.variance < math.inf:
            raise ConfigError(
                f"problem.variance={self.variance} is the variance of the noise; it must be > 0."
            )
        if not self.box > 0.0:
            raise ConfigError(f"problem.box={self.box} is the half width of X = [-box, box]; it must be > 0.")
        if len(self.bounds) != 2:
            raise ConfigError(
                f"problem.bounds={list(self.bounds)} must contain two numbers, one per constraint."
            )
        intervals = [self._interval(j) for j in range(2)]
        low, high = self.feasible_set
        if not low <= high:  # also where an interval is NaN
            words = [
                f"|x - {CENTRES[j]:g}| has no solution (bounds[{j}]={self.bounds[j]:g} is below 3 variance^2="
                f"{3 * self.variance**2:g})"
                if math.isnan(a)
                else f"[{a:.6g}, {b:.6g}]"
                for j, (a, b) in enumerate(intervals)
            ]
            raise ConfigError(
                f"problem.bounds={list(self.bounds)} leave no feasible point: the first constraint holds on "
                f"{words[0]}, the second on {words[1]}, and X is [{-self.box:g}, {self.box:g}]. Raise "
                f"problem.bounds or lower problem.variance={self.variance}."
            )
        if isinstance(self.ideal, str):
            choose("problem.ideal", self.ideal, IDEALS)
        else:
            object.__setattr__(self, "ideal", tuple(float(v) for v in self.ideal))
            if len(self.ideal) != self.objectives or not all(math.isfinite(v) for v in self.ideal):
                raise ConfigError(
                    f"problem.ideal={list(self.ideal)} must be 'feasible', 'analytic' or {self.objectives} "
                    f"finite numbers, one per objective."
                )
        if self.grid is not None and not (self.grid > 0.0 and math.ceil(low / self.grid) * self.grid <= high):
            raise ConfigError(
                f"problem.grid={self.grid} must be > 0 and have a multiple in the feasible set [{low:.6g}, "
                f"{high:.6g}]; choose a finer grid, or null for the exact minimum."
            )

    @property
    def n_objectives(self) -> int:
        return self.objectives

    @property
    def dim(self) -> int:
        return 1

    @property
    def n_samples(self) -> float:
        return math.inf

    @property
    def X(self) -> Set:
        return Box(-float(self.box), float(self.box))

    def _interval(self, j: int) -> tuple[float, float]:
        """Returns the interval in which g_j <= 0: c_j -+ r_j. NaN if it is empty."""
        # u^2 = -3 s + sqrt(9 s^2 - (3 s^2 - b)), written without the difference of two near numbers
        s = float(self.variance)
        b = float(self.bounds[j])
        if not b >= 3.0 * s * s:
            return math.nan, math.nan
        r = math.sqrt((b - 3.0 * s * s) / (3.0 * s + math.sqrt(6.0 * s * s + b)))
        return CENTRES[j] - r, CENTRES[j] + r

    @property
    def feasible_set(self) -> tuple[float, float]:
        """Ends of the interval F on which both constraints hold, exact."""
        a, b = self._interval(0)
        c, d = self._interval(1)
        if math.isnan(a + c):
            return math.nan, math.nan
        return max(a, c, -float(self.box)), min(b, d, float(self.box))

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        if self.ideal == "analytic":
            z = [float(self.variance)] * self.objectives
        elif self.ideal == "feasible":
            low, high = self.feasible_set
            if self.grid is not None:
                low = math.ceil(low / self.grid) * self.grid
                high = math.floor(high / self.grid) * self.grid
            z = []
            for c in CENTRES[: self.objectives]:
                x = min(max(c, low), high)
                if self.grid is not None:
                    x = round(x / self.grid) * self.grid
                z.append((x - c) ** 2 + self.variance)
        else:
            z = [float(v) for v in self.ideal]
        return torch.tensor(z, dtype=torch.float64)

    @property
    def ref_point(self) -> tuple[float, ...]:
        """1.1 times the largest value of each objective on the front; ours."""
        ends = self._objectives(torch.tensor(self._front_ends(), dtype=torch.float64))
        return tuple(1.1 * v for v in ends.max(0).values.tolist())

    def draw(self, keys: Int[Tensor, " R"], stream: str, t: int, size: int) -> Float[Tensor, "R B"]:
        """e ~ N(0, s), float64."""
        return math.sqrt(self.variance) * counter_normal(keys, stream, t, size)

    def values(
        self, x: Float[Tensor, "R 1"], batch: Float[Tensor, "R B"] | None = None
    ) -> Float[Tensor, "R K"]:
        return (self._expected(x) if batch is None else self._sampled(x, batch))[0]

    def linearize(
        self, x: Float[Tensor, "R 1"], batch: Float[Tensor, "R B"] | None = None
    ) -> tuple[Float[Tensor, "R K"], Callable[[], Tensor]]:
        if batch is None:
            V, u = self._expected(x)
            v = u[:, :2]
            return V, lambda: torch.cat([2.0 * u, (4.0 * v * v + 12.0 * self.variance) * v], -1).unsqueeze(-1)
        V, u = self._sampled(x, batch)
        return V, lambda: torch.cat([2.0 * u.mean(1), 4.0 * (u[..., :2] ** 3).mean(1)], -1).unsqueeze(-1)

    def _expected(self, x: Float[Tensor, "R 1"]) -> tuple[Float[Tensor, "R K"], Float[Tensor, "R M"]]:
        """Values and u = x - c."""
        c, b = _constants(self.objectives, tuple(self.bounds), x.dtype, x.device)
        s = self.variance
        u = x - c
        q = u * u
        p = q[:, :2]
        return torch.cat([q + s, p * p + 6.0 * s * p + (3.0 * s * s - b)], -1), u

    def _sampled(
        self, x: Float[Tensor, "R 1"], batch: Float[Tensor, "R B"]
    ) -> tuple[Float[Tensor, "R K"], Float[Tensor, "R B M"]]:
        """Means over the batch and u = x + e - c."""
        c, b = _constants(self.objectives, tuple(self.bounds), x.dtype, x.device)
        u = (x + batch.to(x.dtype)).unsqueeze(-1) - c
        q = u * u
        p = q[..., :2]
        return torch.cat([q.mean(1), (p * p).mean(1) - b], -1), u

    # the known front

    def _objectives(self, x: Float[Tensor, "*k"]) -> Float[Tensor, "*k M"]:
        """f (closed form) at scalars x."""
        c, _ = _constants(self.objectives, tuple(self.bounds), x.dtype, x.device)
        return (x.unsqueeze(-1) - c) ** 2 + self.variance

    def _front_ends(self) -> tuple[float, float]:
        """Ends of the interval of Pareto optimal x."""
        low, high = self.feasible_set
        used = CENTRES[: self.objectives]
        return min(max(min(used), low), high), min(max(max(used), low), high)

    def front(self, k: int) -> Float[Tensor, "k M"]:
        """k points, evenly spaced in arc length."""
        return evenly(self._objectives, k, [self._front_ends()])

    def distance_to_front(self, F: Float[Tensor, "R M"]) -> Float[Tensor, " R"]:
        """Exact: the squared distance to f(x) is a quartic of x; its stationary points are roots of a cubic.

        sum_m (x - c_m) ((x - c_m)^2 - h_m) = 0,   h_m = F_m - s
        """
        c, _ = _constants(self.objectives, tuple(self.bounds), F.dtype, F.device)
        h = F - self.variance
        M = float(self.objectives)
        # monic x^3 + p x^2 + q x + r; its roots are the eigenvalues of the companion matrix
        p = (-3.0 * c.sum() / M).expand(len(F))
        q = (3.0 * (c * c).sum() - h.sum(-1)) / M
        r = ((h * c).sum(-1) - (c**3).sum()) / M
        A = torch.zeros(len(F), 3, 3, dtype=F.dtype, device=F.device)
        A[:, 0] = -torch.stack([p, q, r], -1)
        A[:, 1, 0] = A[:, 2, 1] = 1.0
        # real parts of complex roots are points of the curve too: they cannot be nearer than the nearest one
        roots = torch.linalg.eigvals(A.nan_to_num(0.0, 0.0, 0.0)).real
        a, b = self._front_ends()
        x = torch.cat([roots, torch.zeros_like(roots[:, :2])], -1)
        x[:, 3] = a
        x[:, 4] = b
        gaps = self._objectives(x.clamp(a, b)) - F.unsqueeze(1)
        return torch.linalg.vector_norm(gaps, dim=-1).amin(-1)

    def optimum(
        self, w: Float[Tensor, "R M"], ideal: Float[Tensor, "*z M"] | None = None
    ) -> tuple[Float[Tensor, " R"], Float[Tensor, " R"]]:
        """x* and V* of  min over F of V(x) = max_m w_m (f_m(x) - z_m);  x* is unique, as w > 0.

        Closed form: V is convex and made of parabolas, so its minimiser is the vertex of one of them, a
        crossing of two (roots of a quadratic) or an end of F; the best of these candidates. `ideal`: z, None
        for the problem's.
        """
        w = w.double()
        z = (self.ideal_point if ideal is None else ideal).to(w).expand_as(w)
        c, _ = _constants(self.objectives, tuple(self.bounds), w.dtype, w.device)
        low, high = self.feasible_set
        ends = torch.tensor([low, high], dtype=w.dtype, device=w.device)
        candidates = [ends.expand(len(w), 2), c.expand_as(w)]
        level = c * c + self.variance - z
        for i in range(self.objectives):
            for j in range(i):
                # A x^2 + 2 B x + C = 0, by the formula that neither cancels nor divides by A alone
                A = w[:, i] - w[:, j]
                B = w[:, j] * c[j] - w[:, i] * c[i]
                C = w[:, i] * level[:, i] - w[:, j] * level[:, j]
                root = -(B + torch.copysign((B * B - A * C).clamp_min(0.0).sqrt(), B))
                candidates.append(torch.stack([root / A, C / root], -1))
        x = torch.cat(candidates, -1).nan_to_num(low, high, low).clamp(low, high)
        V = (w.unsqueeze(1) * (self._objectives(x) - z.unsqueeze(1))).amax(-1)
        best = V.argmin(-1, keepdim=True)
        return x.gather(1, best).squeeze(1), V.gather(1, best).squeeze(1)
