"""Proportional fairness:  minimise sum_m w_m fn(f_m),  fn(f) = -log(1 - f / B),
clients descending on fn(f_m).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.ls import LS
from mobench.core.algorithm import State
from mobench.core.arrays import scalar
from mobench.errors import ConfigError, choose


@dataclass(frozen=True, kw_only=True)
class PropFair(LS):
    """Linear scalarization of the negative log of the utilities B - f_m.

        B - f >= threshold:   fn = -log(1 - f / B)
        below, "linear":      fn = f / B                     (slope 1 / B; public code of the OMD-TCH paper)
        below, "huber":       fn continued with its tangent  (slope 1 / threshold; the method's paper)

    Fields: `baseline`: B > 0. `threshold` > 0, less than B. `below`: linear | huber. Column
    `below_threshold`: share of objectives with B - f < threshold at recorded steps.
    """

    varies: ClassVar[frozenset[str]] = frozenset({"step_size", "baseline", "threshold"})
    citation: ClassVar[str] = "Zhang et al. 2022 (PropFair)"

    baseline: float | int = 5.0
    threshold: float | int = 0.2
    below: str = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold < self.baseline < float("inf"):
            raise ConfigError(
                f"algorithm.baseline={self.baseline} and algorithm.threshold={self.threshold}: 0 < threshold "
                f"< baseline is required."
            )
        choose("algorithm.below", self.below, ("linear", "huber"))

    def transform(self, f: Float[Tensor, "R M"]) -> Float[Tensor, "R M"]:
        baseline, threshold = (scalar(v, f) for v in (self.baseline, self.threshold))
        utility = baseline - f
        # not maximum(): it shares the slope between equal arguments
        log = torch.log(baseline / torch.where(utility >= threshold, utility, threshold))
        if self.below == "linear":
            other = f / baseline
        else:
            other = torch.log(baseline / threshold) + (threshold - utility) / threshold
        return torch.where(utility >= threshold, log, other)

    def report(self, F: Float[Tensor, "R M"], state: State) -> dict[str, Tensor]:
        return {"below_threshold": (self.baseline - F < self.threshold).double().mean(-1)}
