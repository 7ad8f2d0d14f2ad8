"""The direction near the mean gradient that serves the worst objective best.

    max over d of min_m <g_m, d>   s.t.  |d - g_0| <= c |g_0|,   g_0 = J'1 / M
    dual:  w* = argmin <J'w, g_0> + s |J'w|   over the simplex,  s = c |g_0|;   d* = g_0 + s J'w* / |J'w*|

The dual is min over lambda of a parametric QP: for lambda = |J'w| / s its minimiser w is that of
1/2 |J'w|^2 + lambda <J'w, g_0>, where |J'w| grows with lambda and |J'w| / lambda falls. So lambda is
bracketed and then solved for on the piece where w is linear in it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.solvers.dual_cone import Projections, dual_cone
from mobench.solvers.host import on_host
from mobench.solvers.qp import qp
from mobench.solvers.solution import GOOD, GROWTH, TOLERANCE

NOTHING = 1e-14
"""|J'w|^2 below this share of the longest gradient's square is rounding of 0 in G."""

FIRST = 1e-4
"""The first |J'w| tried, in the same units: its square is far above rounding."""

TURNS = 80  # QPs per run; a handful is usual


@on_host()
def conflict_averse(G: Float[Tensor, "R M M"], c: Float[Tensor, "R 1"]) -> Projections:
    """Weights 1/M + s w* / |J'w*| of the gradients in d*.

    If J'w* = 0, every direction of the ball with Jd >= 0 is a solution, and the one nearest to g_0 is
    returned: its projection onto the dual cone.

    Args:
        G: Gram matrix of each run.
        c: radius of the ball in units of |g_0|, >= 0.

    Returns:
        The weights, and the relative KKT residual of w*: the largest |min(w_m, slope_m - nu)| with the slope
        of the dual in units of |g|max (|g_0| + s), before the terms of g_0 and J'w cancel (whose sum may
        be up to `GROWTH` times it), and nu = w'slope; that of the projection where J'w* = 0.

    Source: Liu et al. 2021 (CAGrad), Algorithm 1 and its dual; the solution is ours.
    """
    R, M = G.shape[:2]
    weights = torch.full((R, M), 1.0 / M, dtype=G.dtype, device=G.device)
    residual = torch.zeros(R, dtype=G.dtype, device=G.device)
    failed = torch.zeros(R, dtype=torch.bool, device=G.device)
    hard: tuple[int, ...] = ()
    poison = G.sum((1, 2)) * 0.0
    top = G.diagonal(dim1=1, dim2=2).amax(1)
    b = G.mean(2)
    s = c[:, 0] * b.mean(1).clamp_min(0.0).sqrt()
    scale = torch.where(top > 0, 1.0 / top, 0.0)
    # c = 0, or a mean that rounding alone tells from 0: d = g_0
    works = (poison == 0) & (s * s * scale > NOTHING * NOTHING)
    (runs,) = torch.nonzero(works, as_tuple=True)
    if len(runs):
        unit = scale[runs]
        K = G[runs] * unit[:, None, None]
        radius = s[runs] * unit.sqrt()
        w, square, kkt, stands = _weights(K, b[runs] * unit[:, None], radius)
        far = radius / square.sqrt()
        v = 1.0 / M + far[:, None] * w
        if bool(stands.any()):
            mean = torch.full((1, 1, M), 1.0 / M, dtype=K.dtype, device=K.device)
            projected = dual_cone(K[stands], mean)
            v[stands] = projected.x
            kkt = kkt.masked_scatter(stands, projected.residual)
            if projected.hard:
                hard = tuple(runs[stands][list(projected.hard)].tolist())
        weights[runs] = v
        residual[runs] = kkt
        failed[runs] = ~(kkt <= TOLERANCE)
    weights = torch.where(failed[:, None], torch.nan, weights) + poison[:, None]
    return Projections(weights, residual + poison, failed, hard)


def _square(K: Tensor, w: Tensor) -> Float[Tensor, " R"]:
    """|J'w|^2."""
    return (w * (K @ w.unsqueeze(-1)).squeeze(-1)).sum(-1)


def _at(K: Tensor, b: Tensor, lam: Tensor) -> Tensor:
    """w of the QP at lambda."""
    return qp(K, -lam[:, None] * b, torch.ones_like(b)).x


def _crossing(
    K: Tensor, s: Tensor, low: Tensor, high: Tensor, w_low: Tensor, w_high: Tensor
) -> Float[Tensor, " R"]:
    """lambda in [low, high] with |J'w| = s lambda if w is linear between the two."""
    dw = w_high - w_low
    dl = high - low
    Kd = (K @ dw.unsqueeze(-1)).squeeze(-1)
    A = (dw * Kd).sum(1) - (s * dl) ** 2
    B = (w_low * Kd).sum(1) - s * s * low * dl
    C = (_square(K, w_low) - (s * low) ** 2).clamp_min(0.0)
    # the root of A x^2 + 2 B x + C in [0, 1], where the left end is >= 0 and the right one <= 0
    root = (B * B - A * C).clamp_min(0.0).sqrt()
    share = torch.where(B < 0, C / (root - B), torch.where(A < 0, (-B - root) / A, 1.0))
    return low + share.nan_to_num(0.5).clamp(0.0, 1.0) * dl


def _on_piece(K: Tensor, b: Tensor, s: Tensor, w: Tensor, lam: Tensor) -> Float[Tensor, " R"]:
    """lambda with |J'w| = s lambda if the weights that are positive now stay so; NaN where there is none."""
    R, M = b.shape
    positive = (w > 0).to(K.dtype)
    A = torch.zeros(R, M + 1, M + 1, dtype=K.dtype, device=K.device)
    A[:, :M, :M] = positive[:, :, None] * K * positive[:, None, :] + torch.diag_embed(1.0 - positive)
    A[:, M, :M] = positive
    A[:, :M, M] = positive
    right = torch.nn.functional.pad(-positive * b, (0, 1))
    q = torch.linalg.solve_ex(A, right)[0][:, :M]
    Kq = (K @ q.unsqueeze(-1)).squeeze(-1)
    a = (q * Kq).sum(1) - s * s
    h = (w * Kq).sum(1) - s * s * lam
    c = _square(K, w) - (s * lam) ** 2
    return torch.where(h < 0, lam + c / ((h * h - a * c).sqrt() - h), torch.nan)


def _inside(
    K: Tensor, b: Tensor, s: Tensor, w: Tensor, lam: Tensor, ends: tuple[Tensor, ...], turn: int
) -> Float[Tensor, " R"]:
    """The next lambda: on the piece of the last one, else between the ends of the bracket."""
    low, high, w_low, w_high = ends
    if turn % 4 == 3:  # one end of a bracket may stay where it is
        between = (low.clamp_min(1e-12 * high) * high).sqrt()
    else:
        between = _crossing(K, s, low, high, w_low, w_high)
    near = _on_piece(K, b, s, w, lam)
    return torch.where((near > low) & (near < high) & (turn % 4 < 3), near, between)


def _residual(K: Tensor, b: Tensor, s: Tensor, w: Tensor, reached: Tensor) -> Float[Tensor, " R"]:
    """See `conflict_averse`; reached = |J'w|."""
    length = K.diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt()
    mean = b.mean(1).clamp_min(0.0).sqrt()
    terms = (w * length).sum(1) / reached
    unit = torch.minimum(length.mean(1), GROWTH * mean) + s * terms.clamp_max(GROWTH)
    slope = b + (s / reached)[:, None] * (K @ w.unsqueeze(-1)).squeeze(-1)
    slope = slope - (w * slope).sum(1, keepdim=True)
    natural = torch.minimum(w, slope / (length.amax(1) * unit)[:, None]).abs().amax(1)
    return natural.nan_to_num(torch.inf)


def _weights(K: Tensor, b: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """w*, |J'w*|^2, the residual, and whether J'w* = 0, of runs whose longest gradient has length 1."""
    w_low = qp(K, None, torch.ones_like(b)).x
    low = torch.zeros_like(s)
    high = 1.0 / s
    w_high = _at(K, b, high)
    square = _square(K, w_low).clamp_min(0.0)
    flat = square <= NOTHING
    best = w_low.clone()
    lowest = torch.full_like(s, torch.inf)
    active = torch.arange(len(s), device=s.device)
    trial = torch.maximum(square.sqrt(), torch.full_like(s, FIRST)) / s
    for turn in range(TURNS):
        Ka = K[active]
        ba = b[active]
        sa = s[active]
        w = _at(Ka, ba, trial[active])
        reached = _square(Ka, w).clamp_min(0.0).sqrt()
        kkt = _residual(Ka, ba, sa, w, reached)
        below = reached >= sa * trial[active]
        # |J'w| / lambda falls: where w starts at a stationary point and it is below s, it never was above
        stands = flat[active] & ~below & (low[active] == 0)
        kkt = torch.where(stands, torch.inf, kkt)
        better = kkt < lowest[active]
        best[active] = torch.where(better[:, None], w, best[active])
        lowest[active] = torch.where(better, kkt, lowest[active])
        low[active] = torch.where(below, trial[active], low[active])
        high[active] = torch.where(below, high[active], trial[active])
        w_low[active] = torch.where(below[:, None], w, w_low[active])
        w_high[active] = torch.where(below[:, None], w_high[active], w)
        empty = high[active] - low[active] <= 1e-15 * high[active]
        open_ = ~((kkt <= GOOD) | empty | stands)
        active = active[open_]
        if len(active) == 0:
            break
        ends = low[active], high[active], w_low[active], w_high[active]
        trial[active] = _inside(Ka[open_], ba[open_], sa[open_], w[open_], trial[active], ends, turn)
    return best, _square(K, best).clamp_min(0.0), lowest, flat & (low == 0) & (lowest == torch.inf)
