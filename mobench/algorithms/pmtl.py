"""Pareto MTL: descent restricted to the sector of the preference ray v among reference rays u_1..u_L.

W = U - v,  active set a = {j : W_j F / |F| > 0}  (F is nearer to u_j than to v)
phase 1 (t < floor(0.2 T)): d = -J^T W_a' s,  s = min-norm weights of the rows W_j J, j in a; d = 0 if a = {}
phase 2: d = -J^T (s_f + W_a' s_a), (s_f, s_a) = min-norm weights of the M gradients and the rows W_j J, j in
a
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.ferero_geometry import rows_of
from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.core.preferences import ray
from mobench.errors import ConfigError, choose
from mobench.solvers import Solution, min_norm, reference
from mobench.solvers.sector import outside, sector_min_norm


@dataclass(frozen=True, kw_only=True)
class PMTL(Weighting):
    """Pareto multi-task learning in the scalar form of its two phases.

    Fields: `references`: "preferences" (the rays of the whole preference set), a number L (M = 2: L rays at
    angles evenly from 0 to 90 degrees), or a list of rays. `phase1`: share of the steps spent in phase 1, or
    `phase1_steps`, a number of them. `until_feasible`: a run's phase 1 ends at the first F inside its sector.
    `normalize`: weights of phase 2 are divided by sum |w|; both as the public code does on images.
    `subproblem`: "exact" or "cvxpy".
    """

    gramian: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    citation: ClassVar[str] = "Lin et al. 2019"

    references: str | int | Sequence[Sequence[Real]] = "preferences"
    phase1: Real = 0.2
    phase1_steps: int | None = None
    until_feasible: bool = False
    normalize: bool = False
    subproblem: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.subproblem", self.subproblem, ("exact", "cvxpy"))
        if isinstance(self.references, str):
            choose("algorithm.references", self.references, ("preferences",))
        elif isinstance(self.references, int) and self.references < 2:
            raise ConfigError(
                f"algorithm.references={self.references} is too small; at least 2 reference rays are needed."
            )
        if not 0 <= self.phase1 <= 1:
            raise ConfigError(
                f"algorithm.phase1={self.phase1} must lie in [0, 1]; it is a share of the steps."
            )
        if self.phase1_steps is not None and self.phase1_steps < 0:
            raise ConfigError(
                f"algorithm.phase1_steps={self.phase1_steps} must be >= 0 (null means the share "
                "algorithm.phase1)."
            )

    def _references(self, ctx: Context) -> Float[Tensor, "L M"]:
        M = ctx.spec.M
        if isinstance(self.references, str):
            return ray(ctx.all_prefs)
        if isinstance(self.references, int):
            if M != 2:
                raise ConfigError(
                    f"algorithm.references={self.references} spreads rays over a quarter circle and needs "
                    f"M=2 objectives, but the problem has {M}; give a list of rays or references=preferences."
                )
            angles = torch.linspace(0.0, math.pi / 2, self.references, dtype=torch.float64).to(ctx.prefs)
            return torch.stack([angles.cos(), angles.sin()], dim=-1)
        U = rows_of(self.references, M, "references", ctx.prefs)
        return U / torch.linalg.vector_norm(U, dim=-1, keepdim=True)

    def misses(self) -> str:
        if self.references != "preferences":
            return ""
        return (
            "PMTL descends in the sector of its preference among others, and here is only one: give "
            "references=L, a number of rays of two objectives, or a list of rays."
        )

    def init(self, ctx: Context) -> State:
        preference_rays = ray(ctx.prefs)
        R = len(preference_rays)
        steps = self.phase1_steps
        if steps is None:  # whole steps; 0.29 * 100 is a little less than 29
            steps = math.floor(self.phase1 * ctx.steps + 1e-9)
        last = torch.full((R,), steps, dtype=torch.int64)
        searching = torch.ones(R, dtype=torch.bool, device=preference_rays.device)
        # all runs have the same rays, which are in memory once
        rays = self._references(ctx).expand(R, -1, -1)
        return {"rays": rays, "ray": preference_rays, "phase1_steps": last, "searching": searching}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        if t >= int(state["phase1_steps"][0]):
            return self._phase2(F, G, state)
        searching = state["searching"]
        if self.until_feasible:
            # dividing by |F| > 0 does not change the sign
            searching = searching & outside(state["rays"][0], state["ray"], F)
        w, residual, failed = self._min_norm(F, G, state, objectives=False)
        state = {**state, "searching": searching}
        if not self.until_feasible or bool(searching.all()):
            return w, state, Info(residual, failed)
        other, _, info = self._phase2(F, G, state)
        assert info.kkt is not None
        assert info.fail is not None
        w = torch.where(searching.unsqueeze(-1), w, other)
        return (
            w,
            state,
            Info(torch.where(searching, residual, info.kkt), torch.where(searching, failed, info.fail)),
        )

    def _phase2(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"], state: State
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        w, residual, failed = self._min_norm(F, G, state, objectives=True)
        if self.normalize:
            w = w / w.abs().sum(-1, keepdim=True).clamp_min(1e-300)
        return w, state, Info(residual, failed)

    def _min_norm(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"], state: State, objectives: bool
    ) -> Solution:
        """Weights of the min-norm point of the active rows W_j J and, with `objectives`, of the gradients."""
        solver = min_norm if self.subproblem == "exact" else reference.min_norm
        return sector_min_norm(state["rays"][0], state["ray"], G, F, objectives, solver)
