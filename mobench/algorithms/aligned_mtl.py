"""Aligned-MTL:  d = -J^T B u,  B = sqrt(sigma) V diag(1 / sqrt(lambda)) V'  of  G = V diag(lambda) V'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.mixing import Mixed
from mobench.core.algorithm import Info, State
from mobench.errors import choose
from mobench.subproblems.spectrum import Spectrum, spectrum


@dataclass(frozen=True, kw_only=True)
class AlignedMTL(Mixed):
    """The gradients BJ are orthogonal and equally long: principal components count the same.

    Fields: `mixture`: u = 1/M ("mean") or the preference. `scale`: sigma is the least eigenvalue that is not
    0 ("min", the paper's), their median or their mean ("rmse").
    Source: Senushkin et al. 2023 (Aligned-MTL), Algorithm 1. Eigenvalues below 1e-12 of the largest count as
    0; gradients whose lengths differ by a factor of a million are therefore not told from dependent ones.
    """

    citation: ClassVar[str] = "Senushkin et al. 2023 (Aligned-MTL)"

    scale: str = "min"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.scale", self.scale, ("min", "median", "rmse"))

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        found = spectrum(G)
        factor = (self._sigma(found) / found.values).sqrt()
        return found.apply(factor, state["u"]), state, Info(found.residual, found.failed)

    def _sigma(self, found: Spectrum) -> Float[Tensor, "R 1"]:
        """The eigenvalue that all get; kept ones are the last, in ascending order."""
        M = found.values.shape[1]
        kept = found.kept.sum(1, keepdim=True)
        if self.scale == "rmse":
            return torch.where(found.kept, found.values, 0.0).sum(1, keepdim=True) / kept.clamp_min(1)
        first = M - kept if self.scale == "min" else M - kept + (kept - 1).clamp_min(0) // 2
        return found.values.gather(1, first.clamp_max(M - 1))
