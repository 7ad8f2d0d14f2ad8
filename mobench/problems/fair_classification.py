"""Fair logistic regression:  loss against squared gaps between the groups' mean decision values.

f_1 = mean_i log(1 + exp(-y_i x_i'theta)) + ridge/2 |theta|^2,   f_j = (c_j'theta)^2,
c = mean of x over the protected group - mean over the others: of all (parity), or of those with y = 1 and of
those with y = -1 (odds)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.start import START_KINDS
from mobench.core.types import Real
from mobench.data.patients import GROUPS, Part, Patients, patients
from mobench.errors import ConfigError, choose
from mobench.problems.curves import evenly
from mobench.problems.dataset import DataProblem

NEWTON = 60  # steps of the reference's solves; some ten are usual
END = 1.0 - 1e-5  # of the share u that makes penalties u / (1 - u): f_j is below 1e-9 there


class Numbers(NamedTuple):
    """Inputs with the sign of their label, y_i x_i, and the rows c_j."""

    signed: Float[Tensor, "N D"]
    c: Float[Tensor, "J D"]


@dataclass(frozen=True, kw_only=True)
class FairClassification(DataProblem):
    """Whether a patient's diabetes progresses, by a linear decision that treats two groups alike.

    Obese patients progress more often, so parity with them costs loss; that of the other groups nearly none.
    All functions are convex, so the front is what minimisers of f_1 + sum_j lambda_j f_j give; `front`
    computes them by Newton's method. f_1 and the gaps of the decisions themselves (which are not convex) are
    columns of history and rows: accuracy, parity_gap = |P(decision | group) - P(decision | others)| and
    odds_gap, the larger of the same gaps among y = 1 and y = -1; each for training and, as test_*, for the
    test part.

    Fields: `protected`: bmi (body mass index >= 30), age (>= 50 years) or sex. `criterion`: parity (M = 2) or
    odds (M = 3). `ridge` > 0: makes the minimisers unique.

    Source: gaps of decision values as convex stand-ins for gaps of decisions: Zafar et al. 2017 (Fairness
    Constraints, demographic parity; their covariance is c'theta times the product of the groups' shares).
    Squares, the version by label and the data set are ours. There are no minibatches: squared gaps are no
    sums over samples.
    """

    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = START_KINDS
    citation: ClassVar[str] = "Zafar et al. 2017 (Fairness Constraints); data: Efron et al. 2004"

    data: str = "diabetes"
    protected: str = "bmi"
    criterion: str = "parity"
    ridge: Real = 1e-3
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "normal", "scale": 0.5})
    steps: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.data", self.data, ("diabetes",))
        choose("problem.protected", self.protected, tuple(GROUPS))
        choose("problem.criterion", self.criterion, ("parity", "odds"))
        if not 0 < self.ridge < math.inf:
            raise ConfigError(f"problem.ridge={self.ridge} must be > 0, and finite.")

    @property
    def n_objectives(self) -> int:
        return 2 if self.criterion == "parity" else 3

    @property
    def dim(self) -> int:
        return self.data_set.train.x.shape[1]

    @property
    def data_set(self) -> Patients:
        return patients(self.protected)

    def _numbers(self, like: Tensor) -> Numbers:
        def made() -> Numbers:
            part = self.data_set.train
            kinds = [torch.ones_like(part.y)] if self.criterion == "parity" else [part.y, ~part.y]
            c = [part.x[part.s & kind].mean(0) - part.x[~part.s & kind].mean(0) for kind in kinds]
            signed = part.x * (2.0 * part.y.double() - 1.0).unsqueeze(1)
            with torch.inference_mode(False):  # automatic differentiation will need them
                return Numbers(signed.to(like.device, like.dtype), torch.stack(c).to(like.device, like.dtype))

        found: Numbers = self.cache.made(("numbers", like.dtype, like.device), made)
        return found

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R M"]:
        own = self._numbers(x)
        loss = torch.nn.functional.softplus(-(x @ own.signed.mT)).mean(1)
        loss = loss + 0.5 * self.ridge * x.square().sum(1)
        return torch.cat([loss.unsqueeze(1), (x @ own.c.mT).square()], dim=1)

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Any = None
    ) -> tuple[Float[Tensor, "R M"], Callable[[], Tensor], Callable[[Tensor, Tensor], Tensor]]:
        """Values, rows and Hessian products: d loss / d theta = -mean_i sigma_i y_i x_i + ridge theta."""
        own = self._numbers(x)
        with torch.no_grad():
            z = x @ own.signed.mT
            gap = x @ own.c.mT
            loss = torch.nn.functional.softplus(-z).mean(1) + 0.5 * self.ridge * x.square().sum(1)
            share = torch.sigmoid(-z) / z.shape[1]

        def rows() -> Float[Tensor, "R M P"]:
            with torch.no_grad():
                first = self.ridge * x - share @ own.signed
                return torch.cat([first.unsqueeze(1), 2.0 * gap.unsqueeze(2) * own.c], dim=1)

        def hessian(w: Float[Tensor, "R M"], v: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
            with torch.no_grad():
                curve = share * torch.sigmoid(z) * (v @ own.signed.mT)
                first = w[:, :1] * (curve @ own.signed + self.ridge * v)
                return first + (2.0 * w[:, 1:] * (v @ own.c.mT)) @ own.c

        return torch.cat([loss.unsqueeze(1), gap.square()], dim=1), rows, hessian

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R M"]) -> dict[str, Tensor]:
        return self._measures(x, self.data_set.train, "") | self._measures(x, self.data_set.test, "test_")

    def _measures(self, x: Float[Tensor, "R P"], part: Part, prefix: str) -> dict[str, Tensor]:
        y, s = (t.to(x.device) for t in (part.y, part.s))
        yes = x @ part.x.to(x).mT > 0

        def gap(kind: Tensor) -> Tensor:
            return (yes[:, s & kind].to(x).mean(1) - yes[:, ~s & kind].to(x).mean(1)).abs()

        return {
            f"{prefix}accuracy": (yes == y).to(x).mean(1),
            f"{prefix}parity_gap": gap(torch.ones_like(s)),
            f"{prefix}odds_gap": torch.maximum(gap(y), gap(~y)),
        }

    # what is known

    def minimisers(self, penalties: Float[Tensor, "k J"]) -> Float[Tensor, "k P"]:
        """theta of f_1 + sum_j lambda_j f_j, float64 on the CPU: Newton's method with halved steps.

        Raises:
            ConfigError: it has not converged to a gradient of 1e-9.
        """
        own = self._numbers(torch.empty(0, dtype=torch.float64))
        w = torch.cat([torch.ones_like(penalties[:, :1]), penalties], dim=1)
        # the quadratic part is exact in every step; scaled variables would not change Newton's path
        quadratic = 2.0 * torch.einsum("kj,jp,jq->kpq", penalties, own.c, own.c)
        quadratic = quadratic + self.ridge * torch.eye(self.dim, dtype=torch.float64)
        # the sum over samples is one matrix product: einsum would hold all samples' products for each k
        squares = torch.einsum("np,nq->npq", own.signed, own.signed).flatten(1)
        x = torch.zeros(len(w), self.dim, dtype=torch.float64)
        for _ in range(NEWTON):
            slope = self._slope(x, w)
            if bool((slope.abs().amax(1) <= 1e-9).all()):
                return x
            z = x @ own.signed.mT
            curve = torch.sigmoid(z) * torch.sigmoid(-z) / z.shape[1]
            H = (curve @ squares).view_as(quadratic) + quadratic
            d = torch.linalg.solve(H, -slope.unsqueeze(2)).squeeze(2)
            share = torch.ones(len(w), 1, dtype=torch.float64)
            before = (w * self.values(x)).sum(1, keepdim=True)
            for _ in range(30):
                worse = (w * self.values(x + share * d)).sum(1, keepdim=True) > before + 1e-13
                if not bool(worse.any()):
                    break
                share = torch.where(worse, 0.5 * share, share)
            x = x + share * d
        raise ConfigError(
            f"Newton's method has not found the front of {self.name} in {NEWTON} steps; raise problem.ridge."
        )

    def _slope(self, x: Float[Tensor, "k P"], w: Float[Tensor, "k M"]) -> Float[Tensor, "k P"]:
        rows = self.linearize(x)[1]()
        return torch.einsum("km,kmp->kp", w, rows)

    def front(self, k: int) -> Float[Tensor, "k2 M"]:
        """Parity: k points of the curve, evenly spaced. Odds: a grid of about k penalties."""
        return _front(self.data, self.protected, self.criterion, self.ridge, k).clone()

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        """The smallest loss, and no gap."""
        return torch.cat([self._frame[0, :1], torch.zeros(self.n_objectives - 1, dtype=torch.float64)])

    @property
    def ref_point(self) -> tuple[float, ...]:
        """Ideal point plus 1.1 times the way to the worst values on the front."""
        worst = self._frame.amax(0)
        return tuple((self.ideal_point + 1.1 * (worst - self.ideal_point)).tolist())

    @property
    def _frame(self) -> Float[Tensor, "n M"]:
        """Values on the front, without penalties first, with very large ones last."""

        def made() -> Tensor:
            u = torch.linspace(0.0, END, 2 if self.criterion == "parity" else 8, dtype=torch.float64)
            penalties = u / (1.0 - u)
            pairs = torch.cartesian_prod(*[penalties] * (self.n_objectives - 1))
            return self.values(self.minimisers(pairs.view(len(pairs), -1)))

        found: Tensor = self.cache.made("frame", made)
        return found


@functools.lru_cache(maxsize=16)
def _front(data: str, protected: str, criterion: str, ridge: float, k: int) -> Float[Tensor, "k2 M"]:
    """`FairClassification.front`: it depends on nothing else, and takes longer than a short job."""
    problem = FairClassification(data=data, protected=protected, criterion=criterion, ridge=ridge)

    def curve(u: Float[Tensor, " k"]) -> Float[Tensor, "k M"]:
        return problem.values(problem.minimisers((u / (1.0 - u)).unsqueeze(1)))

    if criterion == "parity":
        return evenly(curve, k, [(0.0, END)])
    u = torch.linspace(0.0, END, max(2, math.isqrt(k)), dtype=torch.float64)
    penalties = u / (1.0 - u)
    return problem.values(problem.minimisers(torch.cartesian_prod(penalties, penalties)))
