"""COSMOS:  minimise over phi the mean over w of  w'f(h(w)) - penalty cos(f(h(w)), v),  v = 1/w;
weights u = w - penalty (v / |v| - cos f / |f|) / |f|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.pareto_set import ParetoSet
from mobench.core.algorithm import Info, Real
from mobench.core.preferences import ray
from mobench.errors import ConfigError, choose


@dataclass(frozen=True, kw_only=True)
class COSMOS(ParetoSet):
    """One network for all preferences, which are its inputs; a penalty holds f near a direction.

    Fields: `penalty` >= 0: lambda; 0 is PHN with linear weights. `toward`: the cosine is that with "ray",
    1/w, on which all w_m f_m are equal, as everywhere here, or with "preference", w itself.
    Source: Ruchte and Grabocka 2021 (COSMOS), equation 5. Departures: the paper appends w to the inputs of a
    network that classifies samples; where the variables are the answer, as here, w is the only input, and h
    gives the variables (also those of a network). The paper draws one w for a batch, here one for each run of
    a seed. The paper's cosine is that with w, which asks for large losses where their weights are large
    (`toward: preference`).
    """

    citation: ClassVar[str] = "Ruchte and Grabocka 2021 (COSMOS)"

    penalty: Real = 1.0
    toward: str = "ray"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.penalty < float("inf"):
            raise ConfigError(f"algorithm.penalty={self.penalty} must be a number >= 0.")
        choose("algorithm.toward", self.toward, ("ray", "preference"))

    def combine(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, w: Float[Tensor, "R M"]
    ) -> tuple[Float[Tensor, "R M"], Info]:
        v = ray(w) if self.toward == "ray" else w / torch.linalg.vector_norm(w, dim=1, keepdim=True)
        length = torch.linalg.vector_norm(F, dim=1, keepdim=True)
        unit = torch.where(length > 0, F / length, 0.0)  # f = 0 has every direction
        across = v - (unit * v).sum(1, keepdim=True) * unit
        return w - self.penalty * torch.where(length > 0, across / length, 0.0), Info()
