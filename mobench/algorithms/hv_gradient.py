"""Hypervolume gradient ascent:  maximise HV({f(x_1), ..., f(x_K)}),  d_k = -J_k^T w_k / |w_k|,
w_km = -dHV / df_km: the (M - 1)-dimensional volume of the facet that point k has in direction m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import moocore
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Context, Info, Real, State, Weighting
from mobench.errors import CompatibilityError, ConfigError
from mobench.metrics.hypervolume import MOST_OBJECTIVES, exact_seconds, hypervolume
from mobench.solvers.host import on_host

MARGIN = 1.1
SLOWEST = 60.0  # seconds of a step, at most


def volume(F: Float[np.ndarray, "K M"], ref: Float[np.ndarray, " M"]) -> float:
    """Hypervolume of any number of points, of one objective, too."""
    if len(F) == 0:
        return 0.0
    if len(ref) == 1:
        return max(float(ref[0] - F.min()), 0.0)
    return hypervolume(F, ref.tolist())


def facets(F: Float[np.ndarray, "K M"], ref: Float[np.ndarray, " M"]) -> Float[np.ndarray, "K M"]:
    """-dHV / df of points of which none dominates another."""
    out = np.zeros_like(F)
    for m in range(F.shape[1]):
        others = np.delete(F, m, axis=1)
        corner = np.delete(ref, m)
        order = np.argsort(F[:, m], kind="stable")
        for place, k in enumerate(order):
            before = others[order[:place]]
            out[k, m] = volume(others[order[: place + 1]], corner) - volume(before, corner)
    return out


def fronts(F: Float[np.ndarray, "K M"]) -> list[np.ndarray]:
    """Indices of the non-dominated points, then of those of the rest, and so on.

    Of equal points the first dominates the others.
    """
    left = np.arange(len(F))
    out = []
    while len(left):
        first = moocore.is_nondominated(np.ascontiguousarray(F[left]))
        out.append(left[first])
        left = left[~first]
    return out


@dataclass(frozen=True, kw_only=True)
class HVGradient(Weighting):
    """The points of a seed climb the hypervolume that they dominate together.

    `preferences=K` makes K of them; preferences are not used. A dominated point climbs the hypervolume of its
    front, the one that remains without the points that dominate it. A point beyond the reference point
    descends on the objectives in which it is.

    Steps whose exact volumes would take longer than a minute are refused.

    Fields: `reference`: M numbers, or null: 1.1 times the largest value of each objective at the start.
    Source: Emmerich and Deutz 2014 (facets); Deist et al. 2021 (fronts in turn, unit weights).
    """

    objectives: ClassVar[tuple[int, int | None]] = (2, MOST_OBJECTIVES)
    together: ClassVar[bool] = True
    varies: ClassVar[frozenset[str]] = frozenset()
    citation: ClassVar[str] = "Emmerich and Deutz 2014; Deist et al. 2021"
    preferred: ClassVar[bool] = False

    reference: Sequence[Real] | None = None

    def init(self, ctx: Context) -> State:
        M = ctx.spec.M
        seeds = torch.zeros(len(ctx.prefs), dtype=torch.int64) if ctx.seeds is None else ctx.seeds.clone()
        K = int(seeds.unique(return_counts=True)[1].max())
        # K M differences of volumes of M - 1 objectives, and of K / 2 points on average
        seconds = K * M * exact_seconds(K // 2, M - 1)
        if seconds > SLOWEST:
            raise CompatibilityError(
                f"A step of the hypervolume gradient of {K} points of {M} objectives takes about "
                f"{seconds:,.0f} s, since its facets are exact hypervolumes. Use fewer points "
                "(preferences=10), or a method whose cost does not grow so, such as stch_set."
            )
        if self.reference is not None:
            if len(self.reference) != M:
                raise ConfigError(
                    f"algorithm.reference has {len(self.reference)} entries, but the problem has M={M} "
                    "objectives."
                )
            ref = ctx.prefs.new_tensor([float(r) for r in self.reference]).expand_as(ctx.prefs).clone()
            return self._state(seeds, ref)
        F = ctx.exact(ctx.theta)[:, :M].to(ctx.prefs)
        if not bool(torch.isfinite(F).all()):
            raise ConfigError(
                "The reference point is made of the objectives at the starts, and one of them is not finite "
                "there. Set algorithm.reference, or start elsewhere."
            )
        ref = torch.empty_like(F)
        for seed in seeds.unique().tolist():
            mine = (seeds == seed).to(F.device)
            top = F[mine].amax(0)
            ref[mine] = top + (MARGIN - 1.0) * top.abs()
        return self._state(seeds, ref)

    def _state(self, seeds: Tensor, ref: Float[Tensor, "R M"]) -> State:
        alive = torch.ones(len(ref), dtype=torch.bool, device=ref.device)
        return {"seed": seeds.to(ref.device), "ref": ref, "alive": alive}

    def weights(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, state: State, t: int
    ) -> tuple[Float[Tensor, "R M"], State, Info]:
        return _weights(F.detach(), state["seed"], state["ref"], state["alive"]), state, Info()


@on_host()
def _weights(F: Tensor, seeds: Tensor, refs: Tensor, alive: Tensor) -> Float[Tensor, "R M"]:
    """Weights of all sets, one after the other, in NumPy; a run that has diverged has left its set."""
    values = F.numpy()
    keys = seeds.numpy()
    w = np.full_like(values, np.nan)
    for seed in np.unique(keys):
        (mine,) = np.nonzero((keys == seed) & alive.numpy() & np.isfinite(values).all(1))
        if len(mine):
            w[mine] = ascent(values[mine], refs.numpy()[mine[0]])
    return torch.from_numpy(w)


def ascent(F: Float[np.ndarray, "K M"], ref: Float[np.ndarray, " M"]) -> Float[np.ndarray, "K M"]:
    """Unit weights of the points of one set."""
    out = (ref <= F).astype(np.float64)
    (inside,) = np.nonzero((ref > F).all(1))
    for front in fronts(F[inside]):
        out[inside[front]] = facets(F[inside[front]], ref)
    length = np.linalg.norm(out, axis=1, keepdims=True)
    unit: np.ndarray = out / np.where(length > 0, length, 1.0)
    return unit
