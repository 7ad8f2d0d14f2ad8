"""Preferences: weight vectors w in the open simplex, and the runs that carry them.

Every method gets the same question: w, or the ray v proportional to 1/w on which all w_m f_m are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.errors import ConfigError, PreferenceError

MOST = 1_000_000
"""Preferences of a job, at most: their rows alone would fill gigabytes."""
KEYS = ("count", "rays_deg", "weights", "floor", "simplex_steps")


def ray(w: Float[Tensor, "*R M"]) -> Float[Tensor, "*R M"]:
    """Unit vector along 1/w, the ray on which all w_m f_m are equal."""
    v = 1.0 / w
    return v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)


def from_rays_deg(angles: Sequence[float]) -> Float[Tensor, "U 2"]:
    """Weights (M = 2) whose rays make these angles, strictly between 0 and 90 degrees, with the f_1 axis."""
    for a in angles:
        if not 0.0 < a < 90.0:
            raise PreferenceError(
                f"preferences.rays_deg contains {a}; a ray must lie strictly between 0 and 90 degrees."
            )
    rad = torch.deg2rad(torch.tensor([float(a) for a in angles], dtype=torch.float64))
    # v = (cos, sin) and w is proportional to 1/v, hence to (sin, cos).
    w = torch.stack([torch.sin(rad), torch.cos(rad)], dim=-1)
    return w / w.sum(-1, keepdim=True)


def _check_count(key: str, count: int) -> None:
    if count > MOST:
        raise PreferenceError(
            f"{key} requests {count:,} preferences; a job takes at most {MOST:,}. Request fewer: "
            "preferences=1000 already gives a dense front."
        )


def spread(count: int, M: int) -> Float[Tensor, "U M"]:
    """The default set: for M = 2 rays at angles evenly from 9 to 81 degrees, else low-discrepancy points.

    For M > 2 a Halton sequence (unscrambled, first point skipped) is mapped to the simplex by normalised
    exponentials, which makes a uniform point of the cube a uniform point of the simplex.
    """
    if count < 1:
        raise PreferenceError(f"preferences={count} is too small; at least one preference is needed.")
    _check_count(f"preferences={count}", count)
    if M == 2:
        angles = [45.0] if count == 1 else np.linspace(9.0, 81.0, count).tolist()
        return from_rays_deg(angles)
    from scipy.stats import qmc  # a second of import time that M = 2 need not pay

    u = qmc.Halton(d=M, scramble=False).random(count + 1)[1:]
    e = -np.log(np.clip(u, 1e-12, 1 - 1e-12))
    w = np.maximum(e / e.sum(1, keepdims=True), 1e-3)
    return torch.from_numpy(w / w.sum(1, keepdims=True))


def simplex_grid(steps: int, M: int) -> Float[Tensor, "U M"]:
    """All (i_1, .., i_M) / steps with sum 1, zeros included: (steps + M - 1 choose M - 1) points."""
    if steps < 1:
        raise PreferenceError(f"preferences.simplex_steps={steps} must be at least 1.")
    _check_count(f"preferences.simplex_steps={steps}", math.comb(steps + M - 1, M - 1))
    bars = np.array(list(combinations(range(steps + M - 1), M - 1)), dtype=np.int64).reshape(-1, M - 1)
    edges = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), steps + M - 1)])
    return torch.from_numpy((np.diff(edges, axis=1) - 1) / steps)


def check_weights(w: Float[Tensor, "U M2"], M: int, floor: float | None) -> Float[Tensor, "U M2"]:
    """Raise PreferenceError unless each row has M positive entries with sum 1.

    With `floor` entries may be 0: they are clipped to [floor, 1 - floor] and divided by their sum afterwards,
    which can leave a clipped one somewhat below `floor`.
    """
    if w.ndim != 2 or w.shape[-1] != M:
        raise PreferenceError(
            f"A preference has {w.shape[-1]} entries but the problem has M={M} objectives; "
            "give M weights for each preference."
        )
    if not bool(torch.isfinite(w).all()):
        raise PreferenceError(
            "A preference contains a number that is not finite; all weights must be finite."
        )
    if floor is not None and not 0.0 < floor < 1.0 / M:
        raise PreferenceError(f"preferences.floor={floor} must lie strictly between 0 and 1/M={1 / M:.3g}.")
    for row in w.tolist():
        total, least = sum(row), min(row)
        if least < 0.0 or (least == 0.0 and floor is None) or abs(total - 1.0) > 1e-6:
            text = f"Preference {[round(x, 6) for x in row]} is not in the open simplex: each weight must be "
            text += "> 0 and the weights must sum to 1."
            if least >= 0.0 and total > 0.0 and abs(total - 1.0) > 1e-6:
                text += f" Their sum is {total:.6g}; divide them by it."
            elif least == 0.0:
                text += " For grids with exact zeros, set preferences.floor=0.01."
            raise PreferenceError(text)
    if floor is not None:
        w = w.clamp(floor, 1.0 - floor)
        w = w / w.sum(-1, keepdim=True)  # and once more below, as the rows of kept jobs were
    return w / w.sum(-1, keepdim=True)


def resolve(config: Any, M: int) -> Float[Tensor, "U M"]:
    """The preference set from `preferences: K` or from a mapping with some of `KEYS`.

    Raises:
        PreferenceError: not in the open simplex, wrong length, or more than one of rays_deg, weights,
            simplex_steps.
    """
    if isinstance(config, int):
        config = {"count": config}
    config = dict(config)
    unknown = set(config) - set(KEYS)
    if unknown:
        raise ConfigError(f"preferences has unknown keys {sorted(unknown)}; choose from {', '.join(KEYS)}.")
    rays = config.get("rays_deg")
    weights = config.get("weights")
    floor = config.get("floor")
    steps = config.get("simplex_steps")
    for key in ("count", "simplex_steps"):
        if isinstance(config.get(key), float | bool):
            raise PreferenceError(f"preferences.{key}={config[key]} must be a whole number.")
    if sum(choice is not None for choice in (rays, weights, steps)) > 1:
        raise PreferenceError(
            "Give only one of preferences.rays_deg, preferences.weights and preferences.simplex_steps."
        )
    if weights == "uniform":  # every objective alike, however many there are
        return torch.full((1, M), 1.0 / M, dtype=torch.float64)
    if steps is not None:
        key, w = f"simplex_steps={steps}", simplex_grid(int(steps), M)
    elif weights is not None:
        if isinstance(weights, str):
            raise PreferenceError(f"preferences.weights={weights} must be uniform or rows of M weights.")
        if not weights or len({len(row) for row in weights}) != 1:
            raise PreferenceError("preferences.weights must be a non-empty list of rows of equal length.")
        key, w = f"weights={weights}", torch.tensor(weights, dtype=torch.float64)
    elif rays is not None:
        if M != 2:
            raise PreferenceError(
                f"preferences.rays_deg needs M=2 objectives, but the problem has M={M}; use "
                "preferences.weights."
            )
        if len(rays) == 0:
            raise PreferenceError(
                "preferences.rays_deg is empty; give at least one angle, e.g. preferences.rays_deg=[45]."
            )
        key, w = f"rays_deg={rays}", from_rays_deg([float(a) for a in rays])
    else:
        count = 10 if config.get("count") is None else int(config["count"])
        key, w = f"count={count}", spread(count, M)
    w = check_weights(w, M, floor)
    spaced = rays is None and weights is None and floor is None  # our own sets, of up to a million
    if not spaced and len(torch.unique(w, dim=0)) < len(w):
        clipped = "" if floor is None else f", clipped at preferences.floor={floor},"
        raise PreferenceError(
            f"preferences.{key}{clipped} has a preference twice, and its runs would be counted twice; give "
            "each once."
        )
    return w


@dataclass(frozen=True)
class Runs:
    """The R runs of a job: run = (variant x number of preferences + preference) x number of seeds + seed.

    Attributes: `weights` (R, M), `seeds` (R,), `index` (R,) the preference's place in `all` (U, M), `variant`
    (R,) the place of its hyper-parameters among those that the job varies (None: it varies none).
    """

    weights: Float[Tensor, "R M"]
    seeds: Int[Tensor, " R"]
    index: Int[Tensor, " R"]
    all: Float[Tensor, "U M"]
    variant: Int[Tensor, " R"] | None = None

    @staticmethod
    def product(preferences: Float[Tensor, "U M"], seeds: Sequence[int], variants: int | None = None) -> Runs:
        """Every preference with every seed, for each of the variants."""
        if len(seeds) == 0:
            raise ConfigError("seeds is empty; give at least one, e.g. seeds=[0].")
        if len(set(seeds)) != len(seeds):
            raise ConfigError(f"seeds={list(seeds)} contains a seed twice; give each seed once.")
        U = len(preferences)
        S = len(seeds)
        index = torch.arange(U).repeat_interleave(S)
        seed = torch.tensor(list(seeds), dtype=torch.int64).repeat(U)
        if variants is None:
            return Runs(preferences[index], seed, index, preferences)
        variant = torch.arange(variants).repeat_interleave(U * S)
        index = index.repeat(variants)
        seed = seed.repeat(variants)
        return Runs(preferences[index], seed, index, preferences, variant)

    def __len__(self) -> int:
        return len(self.seeds)

    def take(self, which: Sequence[int]) -> Runs:
        """The chosen runs, with the numbers they have in the whole job."""
        i = torch.tensor(list(which), dtype=torch.int64)
        variant = None if self.variant is None else self.variant[i]
        return Runs(self.weights[i], self.seeds[i], self.index[i], self.all, variant)

    def to(self, device: torch.device | str) -> Runs:
        """Returns these runs with their tensors on another device."""
        variant = None if self.variant is None else self.variant.to(device)
        weights, seeds, index, all_weights = (
            t.to(device) for t in (self.weights, self.seeds, self.index, self.all)
        )
        return Runs(weights, seeds, index, all_weights, variant)

    def name(self, run: int) -> str:
        """The preference of one run as a key for random streams: rounded, so that it survives text files."""
        return ",".join(f"{x:.9f}" for x in self.weights[run].tolist())


def angle_deg(F: Float[Tensor, "*R M"], w: Float[Tensor, "*R M"]) -> Float[Tensor, "*R"]:
    """Angle in degrees between F and the preference ray 1/w; M = 2 gives |atan2(f_2, f_1) - ray angle|.

    Uses 2 atan2(|a - b|, |a + b|) of the unit vectors, exact near 0 where arccos is not.
    """
    v = ray(w)
    u = F / torch.linalg.vector_norm(F, dim=-1, keepdim=True).clamp_min(1e-300)
    diff = torch.linalg.vector_norm(u - v, dim=-1)
    total = torch.linalg.vector_norm(u + v, dim=-1)
    return torch.atan2(diff, total) * (360.0 / math.pi)
