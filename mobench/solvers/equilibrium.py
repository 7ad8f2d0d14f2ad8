"""Weights w > 0 with descents that are a power of them:  G w = w^-p.

    w* = argmin 1/2 w'Gw - sum_m phi(w_m),   phi' = w^-p:   log w for p = 1, w^(1-p) / (1-p) else

In terms of the gradients g_m and of d = J'w:  <g_m, d> = w_m^-p.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.arrays import Array
from mobench.solvers.host import on_host
from mobench.solvers.qp import min_norm, rows
from mobench.solvers.solution import GOOD, GROWTH, TINY, Solution, certified

STATIONARY = 1e-13
"""Squared length delta^2 of the shortest convex combination of unit gradients that counts as 0, for p = 1. It
is where rounding of G leaves three digits: w is as long as 1 / delta, and what cancels in w_m (Gw)_m is
larger by delta^-(1 + p). For p > 1 it is therefore the power 2 / (1 + p) of this number.
"""

STEPS = 300  # Newton steps; a dozen is usual
HALVINGS = 30
NEAR = 1e-6  # squared Newton decrement below which a full step is quadratically convergent


@on_host()
def equilibrium(G: Float[Tensor, "R M M"], p: Float[Tensor, "R 1"]) -> Solution:
    """Solves G w = w^-p for w > 0, the minimiser of a strictly convex function.

    It exists unless some convex combination of the gradients is 0: there the point is Pareto stationary, no
    w satisfies the equation, and w = 0 is returned with the certificate of that combination (`min_norm` of
    the unit gradients, squared length at most `STATIONARY`). A gradient of length 0 is such a combination.

    Newton's method in relative steps dw / w, which are short enough where the function decreases (a step of 1
    / (1 + max |dw / w|) always is: phi is compatible with the logarithm, Nesterov and Nemirovskii 1994); each
    step ends at the best multiple of w, which has a formula. Variables are w_m G_mm^(1 / (1 + p)), so that
    gradients may have any length.

    Args:
        G: Gram matrix of each run.
        p: the power of each run, > 0.

    Returns:
        w, and max_m |w_m (Gw)_m - w_m^(1-p)|, relative to w_m^(1-p) + sum_j |w_m G_mj w_j|; the sum counts no
        more than `GROWTH`^2 times the other: near stationary points w is large and the sum cancels.

    Source: Navon et al. 2022 (p = 1); Ban and Ji 2024 (p = 1 / alpha).
    """
    G_ = rows(G)
    p_ = rows(p)
    with np.errstate(all="ignore"):
        probe = G_.sum((1, 2)) + p_[:, 0]
        good = probe - probe == 0
        G_ = np.where(good[:, None, None], G_, 0.0)
        p_ = np.where(good[:, None], p_, 1.0)
        top = np.amax(np.diagonal(G_, 0, 1, 2), 1)[:, None]
        top = np.where(top > 0, top, 1.0)
        G_ = G_ / top[:, :, None]
        length = np.diagonal(G_, 0, 1, 2) ** 0.5
        inverse = np.where(length > 0, 1.0 / length, 0.0)
        C = inverse[:, :, None] * G_ * inverse[:, None, :]
        shortest = min_norm(torch.from_numpy(C))
        lam = shortest.x.numpy()
        kkt = shortest.residual.numpy()
        square = (lam * (C @ lam[:, :, None])[:, :, 0]).sum(1)
        still = ~(square > STATIONARY ** np.where(p_ > 1, 2.0 / (1.0 + p_), 1.0)[:, 0])
        C = np.where(still[:, None, None], np.eye(G_.shape[1]), C)
        # c = G_mm^((p - 1) / (1 + p)); v = w / G_mm^(-1 / (1 + p)) solves sqrt(c c') C v = c v^-p
        length = np.where(still[:, None], 1.0, length)
        root = length ** ((p_ - 1.0) / (1.0 + p_))
        v, residual = _newton(C, root, p_)
        w = v * length ** (-2.0 / (1.0 + p_)) * top ** (-1.0 / (1.0 + p_))
        w = np.where(still[:, None], 0.0, w)
        residual = np.where(still, kkt, residual)
        return certified(np, w, residual, probe, G.dtype)


def _rescaled(C: Array, root: Array, p: Array, v: Array) -> tuple[Array, Array, Array]:
    """The best multiple of v; e with e_i^2 = c_i v_i^(1 - p); B_ij = v_i A_ij v_j / (e_i e_j)."""
    y = root * v
    energy = (y * (C @ y[:, :, None])[:, :, 0]).sum(1)[:, None]
    target = (root * root * v ** (1.0 - p)).sum(1)[:, None]
    v = v * np.where(energy > 0, target / energy, 1.0) ** (1.0 / (1.0 + p))
    e = root * v ** (0.5 * (1.0 - p))
    scaled = root * v / e
    return v, e, scaled[:, :, None] * C * scaled[:, None, :]


def _residual(B: Array, e: Array) -> Array:
    """See `equilibrium`."""
    off = abs((B @ e[:, :, None])[:, :, 0] - e)
    terms = (abs(B) @ e[:, :, None])[:, :, 0]
    return np.amax(off / (e + np.minimum(terms, GROWTH * GROWTH * e) + TINY), 1)


def _value(C: Array, root: Array, p: Array, v: Array) -> Array:
    """1/2 v'Av - sum c phi(v)."""
    y = root * v
    energy = 0.5 * (y * (C @ y[:, :, None])[:, :, 0]).sum(1)
    one = abs(p - 1.0) < 1e-9
    power = np.where(one, 1.0, 1.0 - p)
    gain = np.where(one, np.log(v), v**power / power)
    return energy - (root * root * gain).sum(1)


def _newton(C: Array, root: Array, p: Array) -> tuple[Array, Array]:
    """v and residual, from v = 1."""
    best = 0.0 * root + 1.0
    v, e, B = _rescaled(C, root, p, best)
    lowest = 0.0 * e[:, 0] + np.inf
    i = np.arange(C.shape[1])
    good = lowest < 0
    ended = good
    for _ in range(STEPS):
        residual = _residual(B, e)
        better = (residual < lowest) & ~ended
        best = np.where(better[:, None], v, best)
        lowest = np.where(better, residual, lowest)
        # one step more than it takes, from where rounding alone is left; a run ends as it would alone
        ended = ended | good
        if ended.all():
            break
        good = lowest <= GOOD
        q = (B @ e[:, :, None])[:, :, 0] - e
        K = 1.0 * B
        K[:, i, i] += p
        dt = np.linalg.solve(K, -q[:, :, None])[:, :, 0]
        decrement = -(dt * q).sum(1)
        t = dt / e
        v = _stepped(C, root, p, v, t, decrement)
        v, e, B = _rescaled(C, root, p, v)
    return best, lowest


def _stepped(C: Array, root: Array, p: Array, v: Array, t: Array, decrement: Array) -> Array:
    """v (1 + share t) with the first share of 1, 1/2, ... that is inside and decreases enough."""
    least = np.amin(t, 1)
    share = np.where(least < -0.9, -0.9 / least, 1.0)
    near = decrement <= NEAR
    if near.all():
        return v * (1.0 + share[:, None] * t)
    before = _value(C, root, p, v)
    for _ in range(HALVINGS):
        moved = v * (1.0 + share[:, None] * t)
        enough = _value(C, root, p, moved) <= before - 0.1 * share * decrement
        enough = enough | near
        if enough.all():
            break
        share = np.where(enough, share, 0.5 * share)
    return v * (1.0 + share[:, None] * t)
