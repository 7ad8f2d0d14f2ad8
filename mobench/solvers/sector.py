"""Min-norm points of a sector's rows, without all pairs of them:

    w = argmin w'Gw   over the hull of the active rows p_j = u_j - v,
        u_j the reference rays and v the preference ray of a run, all of length 1

A row is active where p_j F > 0: F is nearer to u_j than to v. Runs share the rays, and are taken some at a
time, so that memory grows with the number of rays and with that of runs, not with their product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from types import ModuleType

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import Array, arrays, integers, zeros
from mobench.solvers import plane
from mobench.solvers.host import on_host
from mobench.solvers.qp import min_norm
from mobench.solvers.solution import GOOD, TINY, TOLERANCE, Solution, certified

SAME = 1e-9  # a ray as near to v as this is v, up to rounding: its row is never active
# size of the rows of the runs that are solved at a time: for two objectives they stay in a core's cache, a
# GPU needs enough for a launch, and programs that grow are solved so many at once that calls do not count
PLANE_ROOM = 1 << 16
DEVICE_ROOM = 1 << 24
ROOM = 1 << 19
FEW = 64  # rows of a run whose Gram matrix is small enough to be formed


def _parts(U: Tensor, R: int) -> Iterator[slice]:
    """Runs that are taken at a time."""
    room = PLANE_ROOM if U.shape[1] == 2 else ROOM
    size = max(1, (DEVICE_ROOM if U.is_cuda else room) // U.numel())
    for first in range(0, R, size):
        yield slice(first, first + size)


def _rows(U: Float[Tensor, "L M"], v: Float[Tensor, "r M"]) -> Float[Tensor, "r L M"]:
    """p_j of each run; 0 where the ray is v."""
    p = U - v.unsqueeze(1)
    return torch.where(p.abs().amax(-1, keepdim=True) > SAME, p, 0.0)


def outside(U: Float[Tensor, "L M"], v: Float[Tensor, "R M"], F: Float[Tensor, "R M"]) -> Bool[Tensor, " R"]:
    """Runs with an active row."""
    some = [((_rows(U, v[k]) @ F[k].unsqueeze(2)).squeeze(2) > 0).any(1) for k in _parts(U, len(v))]
    return torch.cat(some)


def sector_min_norm(
    U: Float[Tensor, "L M"],
    v: Float[Tensor, "R M"],
    G: Float[Tensor, "R M M"],
    F: Float[Tensor, "R M"],
    objectives: bool,
    solver: Callable[..., Solution] = min_norm,
) -> Solution:
    """Weights w (R, M) = sum_j s_j p_j of the shortest J'w, J of the Gram matrix G.

    The residual is that of `min_norm` for the Gram matrix of all rows. Runs without an active row get 0.

    Args:
        U, v: the reference rays, the same for all runs, and the preference ray of each run.
        objectives: the unit vectors are rows, too, and always active.
        solver: `min_norm`, or its reference, which solves one program with all rows.
    """
    if solver is not min_norm:
        return _whole(U, v, G, F, objectives, solver)
    if U.shape[1] == 2:
        answer = plane.sector(U, v, G, F, objectives)
        if answer is not None:
            return answer
    one = _plane if U.shape[1] == 2 else _whole if len(U) + U.shape[1] <= FEW else _supported
    parts = [one(U, v[k], G[k], F[k], objectives) for k in _parts(U, len(v))]
    return parts[0] if len(parts) == 1 else Solution(*(torch.cat(each) for each in zip(*parts, strict=True)))


@lru_cache(maxsize=8)
def _pairs(n: int, device: torch.device | None) -> tuple[Array, Array]:
    """All i < j < n, as NumPy arrays if there is no device."""
    i, j = np.triu_indices(n, 1)
    return (i, j) if device is None else (torch.from_numpy(i).to(device), torch.from_numpy(j).to(device))


def _plane(U: Tensor, v: Tensor, G: Tensor, F: Tensor, objectives: bool) -> Solution:
    """Two objectives, in closed form.

    All active rows lie on one side of the line through 0 across F, so 0 is not inside their hull and the
    minimiser is a row or the foot of the perpendicular on the segment of two. The active rays lie on an arc
    that begins beside v: the chord of its first and its last ray parts v from all others, and no other ray
    counts. Among segments that hold their foot the nearest has the least
        det(p_i, p_j)^2 / (p_i - p_j)'G(p_i - p_j)  =  (squared distance) / det G,
    a comparison that a nearly singular G (a Pareto stationary point) does not blur.
    """
    xp, (g, u, ray, f) = arrays(G, U, v, F)
    with np.errstate(all="ignore"):
        always = 2 if objectives else 0
        p1 = zeros(g, always + len(u), len(g))
        p2 = zeros(g, always + len(u), len(g))
        if objectives:
            p1[0] = 1.0
            p2[1] = 1.0
        p1[always:] = u[:, :1] - ray[:, 0]
        p2[always:] = u[:, 1:] - ray[:, 1]
        length = p1 * p1 + p2 * p2
        active = (p1 * f[:, 0] + p2 * f[:, 1] > 0) & (xp.maximum(abs(p1), abs(p2)) > SAME)
        # the first and the last ray of the arc, in the order in which they come
        near = xp.where(active[always:], length[always:], xp.inf).argmin(0) + always
        far = xp.where(active[always:], length[always:], -xp.inf).argmax(0) + always
        active[:always] = True
        runs = integers(near, len(near))
        at = [xp.minimum(near, far), xp.maximum(near, far)]
        at = xp.stack([k + 0 * near for k in range(always)] + at, 0)
        x, w1, w2, least = _nearest(xp, p1[at, runs], p2[at, runs], _on(active, at, runs), g)
        some = least < xp.inf
        z1 = g[:, 0, 0] * w1 + g[:, 0, 1] * w2
        z2 = g[:, 0, 1] * w1 + g[:, 1, 1] * w2
        slope = p1 * z1
        slope += p2 * z2
        slope -= w1 * z1 + w2 * z2
        q = xp.where(active, _squares(p1, p2, g), 0.0)
        slope = xp.where(active, slope, 0.0) / (q.sum(0) + TINY)
        corner_slope = slope[at, runs]
        natural = abs(xp.where(corner_slope < x, corner_slope, x))
        residual = xp.maximum(xp.amax(natural, 0), -xp.amin(slope, 0))
        probe = g[:, 0, 0] + g[:, 0, 1] + g[:, 1, 1] + f[:, 0] + f[:, 1]
        residual = xp.where(some, residual, 0.0)
        w = (xp.where(some, w1, 0.0), xp.where(some, w2, 0.0))
        return certified(xp, w, residual, probe, G.dtype)


def _on(active: Array, at: Array, runs: Array) -> Array:
    """Returns the mask of the rows `at` that count: active ones, and one that comes twice only once."""
    on = active[at, runs]
    on[-1] &= at[-1] != at[-2]
    return on


def _squares(p1: Array, p2: Array, g: Array) -> Array:
    h1 = g[:, 0, 0] * p1 + g[:, 0, 1] * p2
    h2 = g[:, 0, 1] * p1 + g[:, 1, 1] * p2
    return p1 * h1 + p2 * h2


def _nearest(
    xp: ModuleType, p1: Array, p2: Array, active: Array, g: Array
) -> tuple[Array, Array, Array, Array]:
    """Shares (n, R) of a few rows in the point nearest to 0, this point, and the least square of a row (inf:
    none is active).
    """
    h1 = g[:, 0, 0] * p1 + g[:, 0, 1] * p2
    h2 = g[:, 0, 1] * p1 + g[:, 1, 1] * p2
    q = p1 * h1 + p2 * h2
    length = xp.where(active, q, xp.inf)
    row = length.argmin(0)
    runs = integers(row, len(row))
    least = length[row, runs]
    x = zeros(p1, *p1.shape)
    x[row, runs] = 1.0
    i, j = _pairs(len(p1), None if xp is np else p1.device)
    cross = p1[i] * p2[j] - p2[i] * p1[j]
    product = h1[i] * p1[j] + h2[i] * p2[j]
    # weights of the foot, up to their sum
    to_j = q[i] - product
    to_i = q[j] - product
    holds = (to_j > 0) & (to_i > 0) & active[i] & active[j]
    segment = xp.where(holds, cross * cross / (to_i + to_j), xp.inf)
    best = segment.argmin(0)
    det = g[:, 0, 0] * g[:, 1, 1] - g[:, 0, 1] * g[:, 0, 1]
    nearer = segment[best, runs] * 0.5 * (det + abs(det)) < least
    t = to_i[best, runs]
    t = t / (t + to_j[best, runs])
    i = i[best]
    j = j[best]
    x = xp.where(nearer, 0.0, x)
    x[i, runs] = xp.where(nearer, t, x[i, runs])
    x[j, runs] = xp.where(nearer, 1 - t, x[j, runs])
    return x, (x * p1).sum(0), (x * p2).sum(0), least


def _whole(
    U: Tensor,
    v: Tensor,
    G: Tensor,
    F: Tensor,
    objectives: bool,
    solver: Callable[..., Solution] = min_norm,
) -> Solution:
    """One program with all rows."""
    p = _rows(U, v)
    active = (p @ F.unsqueeze(-1)).squeeze(-1) > 0
    if objectives:
        p, active = _with_objectives(p, active)
    s, residual, failed = solver(p @ G @ p.mT, active)
    return Solution((s.unsqueeze(1) @ p).squeeze(1), residual, failed)


def _with_objectives(p: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """The rows after the unit vectors, which are always active."""
    M = p.shape[2]
    eye = torch.eye(M).to(p).expand(len(p), -1, -1)
    return torch.cat([eye, p], 1), torch.nn.functional.pad(active, (M, 0), value=True)


@on_host()
def _supported(U: Tensor, v: Tensor, G: Tensor, F: Tensor, objectives: bool) -> Solution:
    """Programs of a few rows, which grow.

    First comes the active row that is nearest to 0 (and those of the objectives), then the row nearest to 0
    along J'w, as long as one is nearer than the minimiser so far.

    Source: von Hohenbalken 1977 (programs over the vertices that a linear program finds, one at a time).
    """
    p = _rows(U, v)
    active = (p @ F.unsqueeze(-1)).squeeze(-1) > 0
    squares = ((p @ G) * p).sum(2)
    scale = torch.where(active, squares, 0.0).sum(1) + G.diagonal(dim1=1, dim2=2).sum(1) * objectives + TINY
    support = torch.where(active, squares, torch.inf).argmin(1, keepdim=True)
    left = torch.arange(len(p))  # runs whose program may have to grow
    w = torch.zeros_like(F)
    residual = torch.full_like(scale, torch.nan)
    failed = torch.zeros_like(scale, dtype=torch.bool)
    while True:
        q = p[left]
        few = q.gather(1, support.unsqueeze(2).expand(-1, -1, p.shape[2]))
        on = active[left].gather(1, support)
        if objectives:
            few, on = _with_objectives(few, on)
        s, certificate, lost = min_norm(few @ G[left] @ few.mT, on)
        w[left] = (s.unsqueeze(1) @ few).squeeze(1)
        z = (G[left] @ w[left].unsqueeze(2)).squeeze(2)
        slope = (q @ z.unsqueeze(2)).squeeze(2) - (w[left] * z).sum(1, keepdim=True)
        least, row = torch.where(active[left], slope / scale[left].unsqueeze(1), torch.inf).min(1)
        residual[left] = torch.maximum(certificate, -least)
        failed[left] = lost
        grows = (least < -GOOD) & ~lost & (support != row.unsqueeze(1)).all(1)
        if not bool(grows.any()):
            return Solution(w, residual, failed | (residual > TOLERANCE))
        left = left[grows]
        support = torch.cat([support[grows], row[grows].unsqueeze(1)], 1)
