"""Pareto hypernetwork:  minimise over phi the mean over w of u'f(h(w)),  u = w (PHN-LS), or EPO's weights for
the ray of w and the gradients by phi (PHN-EPO).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.epo import EPO
from mobench.algorithms.pareto_set import ParetoSet
from mobench.core.algorithm import Info
from mobench.core.oracle import Spec
from mobench.errors import choose


@dataclass(frozen=True, kw_only=True)
class PHN(ParetoSet):
    """A network whose outputs are the variables of the problem, such as the parameters of another network.

    Fields: `rule`: "ls" or "epo". EPO's program sees inner products of gradients by phi, of each preference
    by itself, and its weights are multiplied by M, without the factor of its toy code, as in the authors'
    program.
    Source: Navon et al. 2021 (PHN), PHN-LS and PHN-EPO. Departures: one preference for each run of a seed and
    step, of which the mean is taken (the paper: one); two hidden layers for every problem; the outputs are
    added to the start where there is no box; a linear program that fails ends its run (their program goes on
    with w).
    """

    citation: ClassVar[str] = "Navon et al. 2021 (PHN)"

    rule: str = "ls"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.rule", self.rule, ("ls", "epo"))

    def needs_gramian(self) -> bool:
        return self.rule == "epo"

    def misfits(self, spec: Spec) -> list[str]:
        reasons = super().misfits(spec)
        if self.rule == "epo" and not spec.positive:
            reasons.append("algorithm.rule=epo needs objectives >= 0, but the problem's can be negative")
        return reasons

    def combine(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, w: Float[Tensor, "R M"]
    ) -> tuple[Float[Tensor, "R M"], Info]:
        if self.rule == "ls":
            return w, Info()
        search = EPO(normalize="sum", gain=F.shape[1], mu_floor=None)
        state = {"r": w, "relaxed": torch.zeros(len(w), dtype=torch.int64, device=w.device)}
        # without a floor the factor is the gain alone
        u, _, info = search.weights(F, G, state, 0)
        return u, info
