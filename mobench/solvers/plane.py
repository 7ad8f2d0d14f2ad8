"""Min-norm point of a polygon of weights for two objectives:
w = argmin w'Gw  over the hull of the active rows p_i.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.arrays import Array, arrays, integers, runs_last, zeros
from mobench.solvers.solution import TINY, Solution, certified


@lru_cache(maxsize=64)
def _pairs(n: int, device: torch.device | None) -> tuple[Array, Array]:
    """All i < j < n, as NumPy arrays if there is no device."""
    i, j = np.triu_indices(n, 1)
    return (i, j) if device is None else (torch.from_numpy(i).to(device), torch.from_numpy(j).to(device))


def plane_min_norm(
    rows: Float[Tensor, "R n 2"], G: Float[Tensor, "R 2 2"], F: Float[Tensor, "R 2"], sectors: int
) -> Solution:
    """Two objectives: w = argmin w'Gw over the convex hull of the active rows p_i, exact for any number of
    rows.

    The last `sectors` rows are active where p_i F > 0, the others always. All active rows lie on one side of
    the line through 0 across F, so 0 is not inside their hull and the minimiser is a row or the foot of the
    perpendicular on the segment of two. Among segments that hold their foot the nearest has the least
        det(p_i, p_j)^2 / (p_i - p_j)'G(p_i - p_j)  =  (squared distance) / det G,
    a comparison that a nearly singular G (a Pareto stationary point) does not blur. Runs without an active
    row get 0. The residual is that of `min_norm` for the Gram matrix of the rows.
    """
    xp, (g, p, f) = arrays(G, rows, F)
    with np.errstate(all="ignore"):
        p1, p2 = runs_last(xp, p.swapaxes(1, 2))
        g11 = g[:, 0, 0]
        g12 = g[:, 0, 1]
        g22 = g[:, 1, 1]
        always = len(p1) - sectors
        active = p1 * f[:, 0] + p2 * f[:, 1] > 0
        active[:always] = True
        h1 = g11 * p1 + g12 * p2
        h2 = g12 * p1 + g22 * p2
        q = p1 * h1 + p2 * h2
        length = xp.where(active, q, xp.inf)
        row = length.argmin(0)
        runs = integers(row, len(row))
        w1 = p1[row, runs]
        w2 = p2[row, runs]
        least = length[row, runs]
        x = zeros(p1, *p1.shape)
        x[row, runs] = 1.0
        if len(p1) > 1:
            i, j = _pairs(len(p1), None if xp is np else G.device)
            a1 = p1[i]
            a2 = p2[i]
            b1 = p1[j]
            b2 = p2[j]
            cross = a1 * b2 - a2 * b1
            product = h1[i] * b1 + h2[i] * b2
            # weights of the foot, up to their sum
            to_j = q[i] - product
            to_i = q[j] - product
            holds = (to_j > 0) & (to_i > 0) & active[i] & active[j]
            segment = xp.where(holds, cross * cross / (to_i + to_j), xp.inf)
            best = segment.argmin(0)
            det = g11 * g22 - g12 * g12
            nearer = segment[best, runs] * 0.5 * (det + abs(det)) < least
            t = to_i[best, runs]
            t = t / (t + to_j[best, runs])
            i = i[best]
            j = j[best]
            x = xp.where(nearer, 0.0, x)
            x[i, runs] = xp.where(nearer, t, x[i, runs])
            x[j, runs] = xp.where(nearer, 1 - t, x[j, runs])
            w1 = (x * p1).sum(0)
            w2 = (x * p2).sum(0)
        some = least < xp.inf
        z1 = g11 * w1 + g12 * w2
        z2 = g12 * w1 + g22 * w2
        trace = xp.where(active, q, 0.0).sum(0) + TINY
        slope = (p1 * z1 + p2 * z2 - (w1 * z1 + w2 * z2)) / trace
        natural = xp.where(active, xp.where(slope < x, slope, x), 0.0)
        probe = g11 + g12 + g22 + f[:, 0] + f[:, 1]
        residual = xp.where(some, xp.amax(abs(natural), 0), 0.0)
        w = (xp.where(some, w1, 0.0), xp.where(some, w2, 0.0))
        return certified(xp, w, residual, probe, G.dtype)
