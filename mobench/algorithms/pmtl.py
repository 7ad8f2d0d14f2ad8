"""Pareto MTL: descent restricted to the sector of the preference ray v among reference rays u_1..u_L.

W = U - v,  active set a = {j : W_j F / |F| > 0}  (F is nearer to u_j than to v)
phase 1 (t < floor(0.2 T)): d = -J^T W_a' s,  s = min-norm weights of the rows W_j J, j in a; d = 0 if a = {}
phase 2: d = -J^T (s_f + W_a' s_a), (s_f, s_a) = min-norm weights of the M gradients and the rows W_j J, j in a
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.ferero import runs_last
from mobench.algorithms.ferero_geometry import rows_of
from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.core.preferences import ray
from mobench.errors import ConfigError, choose
from mobench.subproblems import Solution, min_norm, reference
from mobench.subproblems.arrays import Array, arrays, integers, zeros
from mobench.subproblems.solution import TINY, certified


@dataclass(frozen=True, kw_only=True)
class PMTL(Weighting):
    """Pareto multi-task learning in the scalar form of its two phases.

    Fields: `references`: "preferences" (the rays of the whole preference set), a number L (M = 2: L rays at angles
    evenly from 0 to 90 degrees), or a list of rays. `phase1`: share of the steps spent in phase 1.
    `subproblem`: "exact" or "cvxpy".
    """

    gram: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    citation: ClassVar[str] = "Lin et al. 2019"

    references: str | int | Sequence[Sequence[Real]] = "preferences"
    phase1: Real = 0.2
    subproblem: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.subproblem", self.subproblem, ("exact", "cvxpy"))
        if isinstance(self.references, str):
            choose("algorithm.references", self.references, ("preferences",))
        if not 0 <= self.phase1 <= 1:
            raise ConfigError(f"algorithm.phase1={self.phase1} is a share of the steps: it must lie in [0, 1].")

    def _references(self, ctx: Context) -> Float[Tensor, "L M"]:
        M = ctx.spec.M
        if isinstance(self.references, str):
            return ray(ctx.all_prefs)
        if isinstance(self.references, int):
            if M != 2:
                raise ConfigError(
                    f"algorithm.references={self.references} spreads rays over a quarter circle and needs M=2 objectives "
                    f"(the problem has {M}); give a list of rays or references=preferences."
                )
            angles = torch.linspace(0.0, math.pi / 2, self.references, dtype=torch.float64).to(ctx.prefs)
            return torch.stack([angles.cos(), angles.sin()], dim=-1)
        U = rows_of(self.references, M, "references", ctx.prefs)
        return U / torch.linalg.vector_norm(U, dim=-1, keepdim=True)

    def init(self, ctx: Context) -> State:
        W = self._references(ctx) - ray(ctx.prefs).unsqueeze(1)
        # the preference itself may be among the references: its row is zero up to rounding and must never be active
        W = torch.where(W.abs().amax(-1, keepdim=True) > 1e-9, W, 0.0)
        eye = torch.eye(ctx.spec.M).to(W).expand(len(W), -1, -1)
        R = len(W)
        last = torch.full((R,), int(self.phase1 * ctx.steps), dtype=torch.int64)
        return {"W": W, "S": torch.cat([eye, W], dim=1), "phase1_steps": last}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        assert G is not None
        W = state["W"]
        rows = W if t < int(state["phase1_steps"][0]) else state["S"]
        if F.shape[-1] == 2 and self.subproblem == "exact":
            w, residual, failed = plane_min_norm(rows, G, F, len(W[0]))
            return w, state, Info(residual, failed)
        # dividing by |F| > 0 does not change the sign
        active = (W @ F.unsqueeze(-1)).squeeze(-1) > 0
        active = torch.nn.functional.pad(active, (rows.shape[1] - W.shape[1], 0), value=True)
        gram = rows @ G @ rows.mT
        s, residual, failed = (min_norm if self.subproblem == "exact" else reference.min_norm)(gram, active)
        return (s.unsqueeze(1) @ rows).squeeze(1), state, Info(residual, failed)


@lru_cache(maxsize=64)
def _pairs(n: int, device: torch.device | None) -> tuple[Array, Array]:
    """All i < j < n, as NumPy arrays if there is no device."""
    i, j = np.triu_indices(n, 1)
    return (i, j) if device is None else (torch.from_numpy(i).to(device), torch.from_numpy(j).to(device))


def plane_min_norm(
    rows: Float[Tensor, "R n 2"], G: Float[Tensor, "R 2 2"], F: Float[Tensor, "R 2"], sectors: int
) -> Solution:
    """Two objectives: w = argmin w'Gw over the convex hull of the active rows p_i, exact for any number of rows.

    The last `sectors` rows are active where p_i F > 0, the others always. All active rows lie on one side of the line
    through 0 across F, so 0 is not inside their hull and the minimiser is a row or the foot of the perpendicular on the
    segment of two. Among segments that hold their foot the nearest has the least
        det(p_i, p_j)^2 / (p_i - p_j)'G(p_i - p_j)  =  (squared distance) / det G,
    a comparison that a nearly singular G (a Pareto stationary point) does not blur. Runs without an active row get 0.
    The residual is that of `min_norm` for the Gram matrix of the rows.
    """
    xp, (g, p, f) = arrays(G, rows, F)
    with np.errstate(all="ignore"):
        p1, p2 = runs_last(xp, p.swapaxes(1, 2))
        g11, g12, g22 = g[:, 0, 0], g[:, 0, 1], g[:, 1, 1]
        always = len(p1) - sectors
        active = p1 * f[:, 0] + p2 * f[:, 1] > 0
        active[:always] = True
        h1, h2 = g11 * p1 + g12 * p2, g12 * p1 + g22 * p2
        q = p1 * h1 + p2 * h2
        length = xp.where(active, q, xp.inf)
        row = length.argmin(0)
        runs = integers(row, len(row))
        w1, w2, least = p1[row, runs], p2[row, runs], length[row, runs]
        x = zeros(p1, *p1.shape)
        x[row, runs] = 1.0
        if len(p1) > 1:
            i, j = _pairs(len(p1), None if xp is np else G.device)
            a1, a2, b1, b2 = p1[i], p2[i], p1[j], p2[j]
            cross = a1 * b2 - a2 * b1
            product = h1[i] * b1 + h2[i] * b2
            to_j, to_i = q[i] - product, q[j] - product  # weights of the foot, up to their sum
            holds = (to_j > 0) & (to_i > 0) & active[i] & active[j]
            segment = xp.where(holds, cross * cross / (to_i + to_j), xp.inf)
            best = segment.argmin(0)
            det = g11 * g22 - g12 * g12
            nearer = segment[best, runs] * 0.5 * (det + abs(det)) < least
            t = to_i[best, runs]
            t = t / (t + to_j[best, runs])
            i, j = i[best], j[best]
            x = xp.where(nearer, 0.0, x)
            x[i, runs] = xp.where(nearer, t, x[i, runs])
            x[j, runs] = xp.where(nearer, 1 - t, x[j, runs])
            w1, w2 = (x * p1).sum(0), (x * p2).sum(0)
        some = least < xp.inf
        z1, z2 = g11 * w1 + g12 * w2, g12 * w1 + g22 * w2
        trace = xp.where(active, q, 0.0).sum(0) + TINY
        slope = (p1 * z1 + p2 * z2 - (w1 * z1 + w2 * z2)) / trace
        natural = xp.where(active, xp.where(slope < x, slope, x), 0.0)
        probe = g11 + g12 + g22 + f[:, 0] + f[:, 1]
        residual = xp.where(some, xp.amax(abs(natural), 0), 0.0)
        w = (xp.where(some, w1, 0.0), xp.where(some, w2, 0.0))
        return certified(xp, w, residual, probe, G.dtype)
