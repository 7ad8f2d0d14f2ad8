"""Proximal point of a seminorm:  argmin_t  (t'Mt)^(1/2) + |t - p|^2 / (2 gamma)  on the simplex or R^n.

With tau = (t'Mt)^(1/2) the optimality conditions are those of
min 1/2 t'(M/tau + I/gamma)t - p't/gamma : one equation in tau is left, |t(tau)|_M / tau = 1, whose left side
falls.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.solvers.host import on_host
from mobench.solvers.projections import project_simplex
from mobench.solvers.qp import min_norm, qp
from mobench.solvers.solution import TOLERANCE, Solution

ITERATIONS = 100
FLOOR = 1e-13  # of |p|_M: a tau below this counts as 0
ROUNDING = 1e-15  # of sum M_ii^(1/2) |t_i|: a length |t|_M below this counts as 0
EXACT = 1e-13  # relative width of the bracket of tau at which the search ends


def _factor(M: Float[Tensor, "R n n"], rows: Float[Tensor, "R n"]) -> Float[Tensor, "R n n"]:
    """K with K'K = M, up to rounding; rows: M_ii^(1/2).

    |Kt| is exact to rounding of the terms that cancel in Kt, the root of t'Mt only to the square root of
    rounding. The cosines are factored, so that a long row does not round a short one away.
    """
    length = torch.where(rows > 0, rows, 1.0)
    s, V = torch.linalg.eigh(M / (length.unsqueeze(1) * length.unsqueeze(2)))
    return s.clamp_min(0.0).sqrt().unsqueeze(2) * V.mT * rows.unsqueeze(1)


def _length(K: Float[Tensor, "R n n"], t: Float[Tensor, "R n"]) -> Float[Tensor, "R 1"]:
    """|t|_M = |Kt|."""
    return torch.linalg.vector_norm(K @ t.unsqueeze(2), dim=1)


@on_host()
def prox_norm(
    M: Float[Tensor, "R n n"], p: Float[Tensor, "R n"], gamma: float | int | Float[Tensor, "R 1"]
) -> Solution:
    """The proximal point over the simplex, for p in the simplex; M is a Gram matrix, |t|_M = |Kt|, K'K = M.

    tau lies between the least |t|_M of the simplex and |p|_M; regula falsi (Illinois) in log tau, a batched
    QP each. Where |t|_M vanishes tau -> 0 and K t / tau is a subgradient of length <= 1. The residual is that
    of the projected gradient, |t - P(t - g/s)|, g = M t / tau + (t - p) / gamma, s = trace
    M / tau + 1 / gamma, and what is left of |t|_M / tau - 1 beyond rounding of Kt. Where |p|_M is rounding of
    its terms, as at a Pareto-stationary point with its own weights, t = p.
    """
    M = M.double()
    p = p.double()
    finite = torch.isfinite(M.sum((1, 2)).unsqueeze(1) + p.sum(1, keepdim=True) + gamma)
    finite_M = torch.where(finite.unsqueeze(2), M, 0.0)
    rows = finite_M.diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt()
    K = _factor(finite_M, rows)
    noise = ROUNDING * (rows * p.abs()).sum(1, keepdim=True)
    high = _length(K, p)
    still = high <= noise
    floor = torch.maximum(FLOOR * high, noise) + torch.finfo(torch.float64).tiny
    low = torch.maximum(torch.where(finite, _length(K, min_norm(M).x), torch.nan), floor)
    high = torch.maximum(high, low)
    eye = torch.eye(M.shape[1], dtype=M.dtype, device=M.device)
    ridge = eye / (gamma.unsqueeze(2) if isinstance(gamma, Tensor) else gamma)

    def at(tau: Tensor) -> tuple[Tensor, Tensor]:
        """t(tau) and log(|t|_M / tau)."""
        t = qp(M / tau.unsqueeze(2) + ridge, p / gamma, torch.ones_like(p)).x
        return t, (_length(K, t) / tau).clamp_min(1e-300).log()

    a = low.log()
    b = high.log()
    ta, fa = at(low)
    tb, fb = at(high)
    left = fa <= 0  # |t|_M / tau falls: the root is at or below `low`
    tau = torch.where(left, low, high)
    t = torch.where(left, ta, tb)
    done = left | (fb >= 0) | still | ~finite
    side = torch.zeros_like(a)
    for _ in range(ITERATIONS):
        if bool(done.all()):
            break
        middle = torch.where(done, tau.log(), (a * fb - b * fa) / (fb - fa))
        middle = torch.minimum(torch.maximum(middle, torch.minimum(a, b)), torch.maximum(a, b))
        tm, fm = at(middle.exp())
        tau = torch.where(done, tau, middle.exp())
        t = torch.where(done, t, tm)
        above = fm > 0  # the root is above
        # Illinois: an end that stays twice counts half, so that both ends move
        fb = torch.where(above & (side > 0), 0.5 * fb, fb)
        fa = torch.where(~above & (side < 0), 0.5 * fa, fa)
        a = torch.where(above, middle, a)
        fa = torch.where(above, fm, fa)
        b = torch.where(above, b, middle)
        fb = torch.where(above, fb, fm)
        side = torch.where(above, 1.0, -1.0)
        done = done | (fm.abs() <= EXACT) | (b - a <= EXACT)
    g = (K.mT @ (K @ t.unsqueeze(2))).squeeze(2) / tau + (t - p) / gamma
    s = rows.square().sum(1, keepdim=True) / tau + 1.0 / gamma
    step = (t - project_simplex(t - g / s)).abs().amax(1)
    off = (_length(K, t) - tau).abs() - ROUNDING * (rows * t.abs()).sum(1, keepdim=True)
    off = torch.where(tau > 2.0 * floor, off.clamp_min(0.0) / tau, 0.0).squeeze(1)
    residual = torch.maximum(step, off).nan_to_num(torch.inf, torch.inf)
    residual = torch.where(still.squeeze(1), 0.0, residual)
    residual = torch.where(finite.squeeze(1), residual, torch.nan)
    t = torch.where(still, p, t)
    failed = residual > TOLERANCE
    return Solution(torch.where((residual <= TOLERANCE).unsqueeze(1), t, torch.nan), residual, failed)


@on_host()
def prox_norm_free(M: Float[Tensor, "R n n"], p: Float[Tensor, "R n"]) -> Float[Tensor, "R n"]:
    """The proximal point over R^n with gamma = 1.

        t = (I + M/tau)^-1 p   with the root tau of   sum_i s_i (q_i'p)^2 / (tau + s_i)^2 = 1

    M = Q diag(s) Q'. If the sum is below 1 at tau = 0, t is the projection of p onto the kernel of M.
    """
    good = torch.isfinite(M.sum((1, 2)))
    s, Q = torch.linalg.eigh(torch.where(good[:, None, None], M.double(), 0.0))
    s = s.clamp_min(0.0)
    s = torch.where(s > FLOOR * s.amax(1, keepdim=True), s, 0.0)
    y = (Q.mT @ p.double().unsqueeze(2)).squeeze(2)
    low = torch.zeros_like(s[:, :1])
    # each term is below s_i y_i^2 / tau^2
    high = (s * y.square()).sum(1, keepdim=True).sqrt()
    for _ in range(ITERATIONS):
        tau = 0.5 * (low + high)
        larger = (s * (y / (tau + s)).square()).nan_to_num(0.0).sum(1, keepdim=True) > 1.0
        low = torch.where(larger, tau, low)
        high = torch.where(larger, high, tau)
    share = torch.where(s > 0, high / (high + s), 1.0)
    share = torch.where((high + s) > 0, share, 0.0)
    t = (Q @ (share * y).unsqueeze(2)).squeeze(2)
    return torch.where(good.unsqueeze(1), t, torch.nan)
