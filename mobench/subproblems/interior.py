"""The two iterations of a small dual: active-set Newton from a guess, and a primal-dual interior-point method.

maximise q(mu) over mu >= 0,  dq/dmu = h(d(mu)),  Hessian -H: see `surrogate.py`; runs are the last axis
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
import torch

from mobench.subproblems.arrays import Array, zeros
from mobench.subproblems.blocks import Block, Part, reach
from mobench.subproblems.solution import GOOD, TINY

NEWTON = 10  # active-set steps: from good multipliers two to five are needed
INTERIOR = 60  # interior-point steps: 12 to 20 are needed
SHIFT = 1e-14  # of the largest entry: keeps the matrix of dependent active constraints regular
FAR = 1e14  # multipliers beyond this run away: the surrogate is infeasible


def indices(xp: ModuleType, mask: Array) -> Array:
    return mask.nonzero()[:, 0] if xp is torch else np.flatnonzero(mask)


def _at(c: Array, blocks: Sequence[Block], mu: Array, zero: float = 1.0) -> tuple[Array, Array, Array, Array]:
    """h, sizes of its terms, H and the size of the objective's terms at mu (K, R)."""
    xp = blocks[0].xp
    full = xp.concatenate((zeros(c, 1, c.shape[1]) + zero, mu), 0)
    first, *rest = (block.at(full) for block in blocks)
    h, size, H, objective = first[:4]
    for part in rest:
        h, size, H, objective = h + part.h, size + part.size, H + part.H, objective + part.zero
    return c + h, abs(c) + size, H, objective


def newton(xp: ModuleType, c: Array, blocks: list[Block], mu: Array, relaxed: bool = False) -> tuple[Array, Array]:
    """Newton's method on min(mu, t - h) = 0 from mu (K, R): the best multipliers seen and their residuals.

    t = 0; `relaxed` (13): mu_0 = 0, sum mu = 1 and t is free. Active are the k with mu_k + (h_k - t)/H_kk > 0; there
    h = t is linearised, elsewhere mu = 0. Fast and exact where the guess of the active set settles; nothing is promised
    elsewhere, the residual tells.
    """
    K, R = mu.shape
    mu = xp.where(mu > 0, mu, 0.0)
    if relaxed:
        mu = mu / mu.sum(0)
    best, least = mu + 0.0, zeros(c, R) + xp.inf
    runs = indices(xp, least > 0)
    for i in range(NEWTON + 1):
        h, size, H, objective = _at(c, blocks, mu, 0.0 if relaxed else 1.0)
        t: Array = (mu * h).sum(0) if relaxed else 0.0
        if relaxed:
            residual = (xp.amax(h, 0) - t) / (xp.amax(size, 0) + TINY)
        else:
            violation = xp.amax(xp.where(h > 0, h, 0.0) / (size + TINY), 0)
            gap = (mu * abs(h)).sum(0) / (objective + (mu * size).sum(0) + TINY)
            residual = xp.maximum(violation, gap)
        better = residual < least[runs]
        least[runs] = xp.where(better, residual, least[runs])
        best[:, runs] = xp.where(better, mu, best[:, runs])
        keep = indices(xp, ~(residual <= 0.1 * GOOD))
        if len(keep) == 0 or i == NEWTON:
            break
        if 2 * len(keep) < len(runs):
            c, mu, h, H, runs = c[:, keep], mu[:, keep], h[:, keep], H[..., keep], runs[keep]
            t = t[keep] if relaxed else 0.0
            blocks = [block.take(keep) for block in blocks]
        diagonal = xp.stack([H[k, k] for k in range(K)])
        active = mu * diagonal + h - t > 0
        off = xp.where(active, 0.0, mu)
        rhs = xp.where(active, h - t + (H * off).sum(1), 0.0)
        M = xp.where(active[:, None] & active[None], H, 0.0)
        ridge = SHIFT * (xp.amax(diagonal, 0) + TINY)
        for k in range(K):
            M[k, k] = xp.where(active[k], M[k, k] + ridge, 1.0)
        if relaxed:
            both = _solve(xp, M, xp.stack((rhs, 1.0 * active), 1))
            rest = 1.0 - xp.where(active, mu, 0.0).sum(0)
            change = both[:, 0] - both[:, 1] * ((both[:, 0].sum(0) - rest) / both[:, 1].sum(0))
        else:
            change = _solve(xp, M, rhs)
        mu = xp.where(active, mu + change, 0.0)
        mu = xp.where(mu > 0, mu, 0.0)
        if relaxed:
            mu = mu / mu.sum(0)
    return best, least


def interior(xp: ModuleType, c: Array, blocks: list[Block], relaxed: bool = False) -> Array:
    """Multipliers (K, R) by a primal-dual interior-point method on (mu, w, d), w the slacks of -h.

        h(d) + w = t,  mu w = eps,  and in a block with bounds  v + s d = zl - zu,  zl (d - low) = zu (high - d) = eps
        (H + diag(w/mu)) dmu + dt = h - t + eps/mu - J r/S,   dw = (eps - mu w - w dmu)/mu

    t = 0; `relaxed` (13): mu_0 = 0, t is free and sum mu = 1. eps is a tenth of the mean product; steps go 0.995 of the
    way to the boundary at most and are halved while the residual grows much.
    """
    K, R = c.shape
    zero = zeros(c, 1, R) + (0.0 if relaxed else 1.0)
    mu = zeros(c, K, R) + (1.0 / K if relaxed else 1.0)
    states = [block.begin(xp.concatenate((zero, mu), 0)) for block in blocks]
    parts = [block.system(state, xp.concatenate((zero, mu), 0)) for block, state in zip(blocks, states, strict=True)]
    h, size, objective = _sums(c, parts)
    floor = 0.1 * (xp.amax(abs(c), 0) + TINY) if relaxed else 1.0
    t = xp.amax(h, 0) + floor if relaxed else zeros(c, R)
    w = t - h
    w = xp.where(w > floor, w, floor)
    for _ in range(INTERIOR):
        pairs = K + sum(part.pairs for part in parts)
        mean = ((mu * w).sum(0) + sum(part.products for part in parts)) / pairs
        terms = objective + (mu * size).sum(0) + TINY
        primal = xp.amax(abs(h - t + w) / (size + TINY), 0)
        for part in parts:
            primal = xp.maximum(primal, part.dual)
        on = ((K * mean > 1e-14 * terms) | (primal > 1e-13)) & (xp.amax(mu, 0) < FAR)
        if not bool(on.any()):
            break
        eps = 0.1 * mean
        pieces = [block.reduce(state, part, eps) for block, state, part in zip(blocks, states, parts, strict=True)]
        M = sum(H for H, _ in pieces[1:]) + pieces[0][0]
        rhs = h - t + eps / mu - sum(lag for _, lag in pieces)
        for k in range(K):
            M[k, k] = M[k, k] + w[k] / mu[k]
        if relaxed:
            both = _solve(xp, M, xp.stack((rhs, rhs * 0 + 1.0), 1))
            dt = (both[:, 0].sum(0) - (1.0 - mu.sum(0))) / both[:, 1].sum(0)
            dmu = both[:, 0] - both[:, 1] * dt
        else:
            dmu, dt = _solve(xp, M, rhs), 0.0 * t
        dw = (eps - mu * w - w * dmu) / mu
        moves = [block.move(s, p, dmu, eps) for block, s, p in zip(blocks, states, parts, strict=True)]
        ratio = xp.minimum(reach(xp, mu, dmu), reach(xp, w, dw))
        for _, far in moves:
            ratio = xp.minimum(ratio, far)
        length = xp.where(0.995 * ratio < 1.0, 0.995 * ratio, 1.0)
        # a run that has ended, or whose system could not be solved, stays where it is
        on = on & xp.isfinite(dmu.sum(0) + dw.sum(0) + dt + sum(d.sum(0) for m, _ in moves for d in m))
        dmu, dw, dt = (xp.where(on, d, 0.0) for d in (dmu, dw, dt))
        moves = [(tuple(xp.where(on, d, 0.0) for d in m), far) for m, far in moves]
        merit = _merit(h - t + w, mu * w - eps)
        for _ in range(6):
            new_mu, new_w, new_t = mu + length * dmu, w + length * dw, t + length * dt
            full = xp.concatenate((zero, new_mu), 0)
            new_states = [
                tuple(a + length * da for a, da in zip(s, m, strict=True))
                for s, (m, _) in zip(states, moves, strict=True)
            ]
            parts = [block.system(state, full) for block, state in zip(blocks, new_states, strict=True)]
            h, size, objective = _sums(c, parts)
            worse = on & (_merit(h - new_t + new_w, new_mu * new_w - eps) > 2 * merit)
            if not bool(worse.any()):
                break
            length = xp.where(worse, 0.5 * length, length)
        mu, w, t, states = new_mu, new_w, new_t, new_states
    return mu


def _sums(c: Array, parts: Sequence[Part]) -> tuple[Array, Array, Array]:
    """h, the sizes of its terms and the size of the objective's terms."""
    h, size, objective = c, abs(c), 0.0
    for part in parts:
        h, size, objective = h + part.h, size + part.size, objective + part.zero
    return h, size, objective


def _merit(primal: Array, complementary: Array) -> Array:
    return (abs(primal) + abs(complementary)).sum(0)


def _solve(xp: ModuleType, M: Array, b: Array) -> Array:
    """x of M x = b for symmetric positive definite M (K, K, R), b (K, R) or (K, j, R): LDL' with runs as vectors.

    Batched LAPACK takes several times longer for matrices of this size, and gives up on all runs if one is singular.
    """
    K = len(M)
    M, x = M + 0.0, b + 0.0
    wide = b.ndim == 3
    for j in range(K - 1):
        column = M[j + 1 :, j] / M[j, j]
        M[j + 1 :, j + 1 :] -= column[:, None] * M[None, j, j + 1 :]
        x[j + 1 :] -= (column[:, None] if wide else column) * x[j]
    for j in range(K - 1, -1, -1):
        if j < K - 1:
            row = M[j, j + 1 :]
            x[j] -= ((row[:, None] if wide else row) * x[j + 1 :]).sum(0)
        x[j] /= M[j, j]
    return x
