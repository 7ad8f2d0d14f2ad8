"""q-FFL:  minimise sum_m f_m^(q+1) / (q + 1)  with steps of 1 / an estimated local Lipschitz constant.

theta <- theta - sum_m f_m^q g_m / sum_m h_m,   h_m = q f_m^(q-1) |g_m|^2 + L f_m^q,   L = 1 / alpha
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Info, Real, State, Weighting
from mobench.errors import ConfigError

SMALLEST = 1e-10  # a loss of 0 would have no power q - 1


@dataclass(frozen=True, kw_only=True)
class QFFL(Weighting):
    """q-FedAvg in federated learning; it ignores the preference. q = 0 is the mean of the gradients (FedAvg).

    Fields: `q` >= 0. The step size alpha enters as 1 / L; in federated learning it is the clients' local
    step.
    """

    gramian: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "q"})
    citation: ClassVar[str] = "Li et al. 2020 (q-FFL)"
    preferred: ClassVar[bool] = False
    own_step: ClassVar[str] = "the length of its step is what its weights compute, from the step size"

    q: Real = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.q < float("inf"):
            raise ConfigError(f"algorithm.q={self.q} must be a number >= 0.")

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        F = F.clamp_min(SMALLEST)
        power = F**self.q
        # h / L, so that the loop's factor alpha makes the step
        scaled = self.schedule(t) * self.q * power / F * G.diagonal(dim1=1, dim2=2) + power
        return power / scaled.sum(-1, keepdim=True), state, Info()
