"""A convex stand-in for three speech objectives:  f_m(x) = low_m + |D_m (x - c_m)|^2 / 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.problem import Problem

# in x: what helps the representation, Mandarin, English; in f: the values of (cpc, zh, en) that nothing
# improves on
CENTRES = ((1.0, 0.0, 0.0), (-1.0, 0.5, -0.5), (-0.5, -1.0, 1.0))
STRETCH = ((1.2, 0.7, 0.7), (0.8, 1.2, 0.9), (0.9, 0.8, 1.2))
LOWEST = (0.8, 0.2, 0.3)


@dataclass(frozen=True, kw_only=True)
class SpeechSurrogate(Problem):
    """Three strictly convex quadratics of three variables in the places of (CPC, CTC Mandarin, CTC English);
    nothing is heard.

        f_m(x) = low_m + |D_m (x - c_m)|^2 / 2,   grad f_m = D_m^2 (x - c_m),
            rows and Hessians in closed form

    Numbers are ours, fixed so that f_1 <= 1.2 and f_2 - f_3 = 0.5 can hold together and the minimiser of the
    mean keeps neither. start: {kind: mean_minimiser}: x = (sum_m D_m^2)^-1 sum_m D_m^2 c_m, the exact
    solution of linear scalarization.
    """

    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {"mean_minimiser": (), "normal": ("scale",)}
    citation: ClassVar[str] = "ours"

    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "mean_minimiser"})
    steps: int = 400

    @property
    def n_objectives(self) -> int:
        return 3

    @property
    def dim(self) -> int:
        return 3

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        """The smallest value of each."""
        return torch.tensor(LOWEST, dtype=torch.float64)

    def initial(self, runs: Any) -> Float[Tensor, "R P"]:
        if self.start["kind"] == "normal":
            return super().initial(runs)
        c = torch.tensor(CENTRES, dtype=torch.float64)
        H = torch.tensor(STRETCH, dtype=torch.float64).square()
        return ((H * c).sum(0) / H.sum(0)).expand(len(runs), -1).clone()

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R M"]:
        return x.new_tensor(LOWEST) + 0.5 * (
            x.new_tensor(STRETCH) * (x.unsqueeze(1) - x.new_tensor(CENTRES))
        ).square().sum(2)

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Any = None
    ) -> tuple[Float[Tensor, "R M"], Callable[[], Tensor], Callable[[Tensor, Tensor], Tensor]]:
        H = x.new_tensor(STRETCH).square()

        def rows() -> Float[Tensor, "R M P"]:
            return H * (x.unsqueeze(1) - x.new_tensor(CENTRES))

        def hessian(w: Tensor, v: Tensor) -> Tensor:
            return (w @ H) * v

        return self.values(x), rows, hessian
