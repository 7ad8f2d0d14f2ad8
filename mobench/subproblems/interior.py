"""The two iterations of a small dual: active-set Newton from a guess, and a primal-dual interior-point
method.

maximise q(mu) over mu >= 0,  dq/dmu = h(d(mu)),  Hessian -H: see `surrogate.py`; runs are the last axis
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import torch

from mobench.core.arrays import Array, integers, zeros
from mobench.subproblems.blocks import Block, Part, reach
from mobench.subproblems.solution import GOOD, TINY, TOLERANCE

NEWTON = 20  # steps of Newton's method: from good multipliers two to five are needed
# the same where the interior-point method keeps the kinks of the projection and may be of no help
PATIENT = 60
PROOF = 8  # the step at which it looks for a proof of infeasibility
MODEL = 4  # active sets tried for the model of one step
INTERIOR = 60  # interior-point steps: 12 to 20 are needed
SHIFT = 1e-14  # least damping: keeps the matrix of dependent active constraints regular
FIRST = 1e-2  # damping after a step that was taken back
FAR = 1e14  # multipliers beyond this run away: the surrogate is infeasible


def indices(xp: ModuleType, mask: Array) -> Array:
    """Where mask (R,) holds.

    One of several is given twice: sums over the short axes of an array with a single run are added up in
    another order, and no run may depend on how many others are left, not even in its last digit.
    """
    found = mask.nonzero()[:, 0] if xp is torch else mask.nonzero()[0]
    return xp.concatenate((found, found)) if len(found) == 1 and len(mask) > 1 else found


def _at(
    c: Array, blocks: Sequence[Block], mu: Array, zero: float = 1.0
) -> tuple[Array, Array, Array, Array, Array]:
    """h, sizes of its terms, H, the objective and the size of its terms at mu (K, R)."""
    xp = blocks[0].xp
    full = xp.concatenate((zeros(c, 1, c.shape[1]) + zero, mu), 0)
    first, *rest = (block.at(full) for block in blocks)
    h = first.h
    size = first.size
    H = first.H
    value = first.value
    objective = first.zero
    for part in rest:
        h = h + part.h
        size = size + part.size
        H = H + part.H
        value = value + part.value
        objective = objective + part.zero
    return c + h, abs(c) + size, H, value, objective


def bound(c: Array, blocks: Sequence[Block], mu: Array) -> Array:
    """A lower bound (R,) of the value of (13), relative to its own terms, from the direction of mu."""
    mu = mu / mu.sum(0)
    h, size = _at(c, blocks, mu, 0.0)[:2]
    return (mu * h).sum(0) / ((mu * size).sum(0) + TINY)


def newton(
    xp: ModuleType, c: Array, blocks: list[Block], mu: Array, relaxed: bool = False
) -> tuple[Array, Array]:
    """Newton's method for max q over mu >= 0 from mu (K, R): the best multipliers seen and their residuals.

    `relaxed` (13): mu_0 = 0 and sum mu = 1. Each step is for the quadratic model of q at mu, damped by
    damp * diag(H); where q has not grown it is taken back and damped more, so that kinks of q do no harm.
    """
    steps = NEWTON if all(block.smooth for block in blocks) else PATIENT
    trial = xp.where(mu > 0, mu, 0.0)
    if relaxed:
        trial = trial / trial.sum(0)
    damp = zeros(c, mu.shape[1]) + SHIFT
    runs: Array = None  # the runs that are left, once some have been taken out
    for i in range(steps + 1):
        h_, size, H_, value, objective = _at(c, blocks, trial, 0.0 if relaxed else 1.0)
        lagrangian = (trial * h_).sum(0)
        if relaxed:
            q_ = lagrangian
            terms = xp.amax(size, 0) + TINY
            residual_ = (xp.amax(h_, 0) - lagrangian) / terms
        else:
            q_ = value + lagrangian
            terms = objective + (trial * size).sum(0) + TINY
            residual_ = xp.maximum(xp.amax(h_ / (size + TINY), 0), (trial * abs(h_)).sum(0) / terms)
        if i == 0:
            best = trial
            least = xp.where(residual_ < xp.inf, residual_, xp.inf)
            mu = trial
            h = h_
            H = H_
            q = q_
            residual = residual_
        else:
            # a run that has finished takes nothing more from steps that others need
            better = (residual_ < least) & ~(least <= 0.1 * GOOD)
            best = xp.where(better, trial, best)
            least = xp.where(better, residual_, least)
            grown = (q_ >= q - 1e-13 * terms) | (residual_ < residual)
            if bool(grown.all()):
                damp = xp.where(damp > 10 * SHIFT, 0.1 * damp, SHIFT)
                mu = trial
                h = h_
                H = H_
                q = q_
                residual = residual_
            else:
                damp = xp.where(grown, 0.1 * damp, 10 * damp)
                damp = xp.where(grown | (damp > FIRST), damp, FIRST)
                damp = xp.where(damp > SHIFT, damp, SHIFT)
                news = (trial, h_, H_, q_, residual_)
                olds = (mu, h, H, q, residual)
                mu, h, H, q, residual = (
                    xp.where(grown, new, old) for new, old in zip(news, olds, strict=True)
                )
        keep = indices(xp, ~(least <= 0.1 * GOOD))
        proof = i == PROOF and not relaxed and len(keep) > 0
        if proof:  # multipliers that run away: nothing to wait for
            keep = keep[indices(xp, ~(bound(c, blocks, mu)[keep] > TOLERANCE))]
        if len(keep) == 0 or i == steps:
            break
        if proof or 2 * len(keep) < len(least):
            if runs is None:
                whole = best + 0.0
                residuals = least + 0.0
                runs = integers(c, len(least))
            else:
                whole[:, runs] = best
                residuals[runs] = least
            c, mu, h, H, best = (a[..., keep] for a in (c, mu, h, H, best))
            runs, q, residual, least, damp = (a[keep] for a in (runs, q, residual, least, damp))
            blocks = [block.take(keep) for block in blocks]
        trial = _model(xp, mu, h, H, damp, relaxed)
    if runs is None:
        return best, least
    whole[:, runs] = best
    residuals[runs] = least
    return whole, residuals


def _model(
    xp: ModuleType,
    mu: Array,
    h: Array,
    H: Array,
    damp: Array,
    relaxed: bool,
    active: Array = None,
    tries: int = MODEL,
) -> Array:
    """Maximiser x >= 0 of h'(x - mu) - 1/2 (x - mu)'(H + ridge)(x - mu) by active sets; `relaxed`: on sum
    x = 1.

    Active are the k with x_k + (slope_k - t)/H_kk > 0; there the slope of the model is t (not relaxed: 0),
    else x = 0.
    """
    if relaxed:  # of the order of the error: less to cancel in t
        h = h - (mu * h).sum(0)
    diagonal = xp.diagonal(H, 0, 0, 1).T
    ridge = damp * (diagonal + 1e-4 * xp.amax(diagonal, 0) + TINY)
    pivots = diagonal + ridge
    if active is None:
        active = mu * pivots + h > 0
    off = xp.where(active, 0.0, mu)
    rhs = xp.where(active, h + (H * off).sum(1), 0.0)
    M = xp.where(active[:, None] & active, H, 0.0)
    for k, pivot in enumerate(xp.where(active, pivots, 1.0)):
        M[k, k] = pivot
    t: Array = 0.0
    if relaxed:
        both = _solve(xp, M, xp.stack((rhs, 1.0 * active), 1))
        t = (both[:, 0].sum(0) - off.sum(0)) / both[:, 1].sum(0)
        change = both[:, 0] - both[:, 1] * t
    else:
        change = _solve(xp, M, rhs)
    x = xp.where(active, mu + change, 0.0)
    if tries > 1:
        change = x - mu
        slope = h - t - (H * change).sum(1) - ridge * change
        other = x * pivots + slope > 0
        keep = indices(xp, (other != active).any(0))
        if len(keep):
            part = mu[:, keep], h[:, keep], H[..., keep], damp[keep]
            x[:, keep] = _model(xp, *part, relaxed, other[:, keep], tries - 1)
    x = xp.where(x > 0, x, 0.0)
    return x / x.sum(0) if relaxed else x


def interior(xp: ModuleType, c: Array, blocks: list[Block], relaxed: bool = False) -> Array:
    """Multipliers (K, R) by a primal-dual interior-point method on (mu, w, d), w the slacks of -h.

        h(d) + w = t,  mu w = eps,  and in a block with bounds  v + s d = zl - zu,
            zl (d - low) = zu (high - d) = eps
        (H + diag(w/mu)) dmu + dt = h - t + eps/mu - J r/S,   dw = (eps - mu w - w dmu)/mu

    t = 0; `relaxed` (13): mu_0 = 0, t is free and sum mu = 1. eps is a tenth of the mean product; steps go
    0.995 of the way to the boundary at most and are halved while the residual grows much.
    """
    K, R = c.shape
    zero = zeros(c, 1, R) + (0.0 if relaxed else 1.0)
    mu = zeros(c, K, R) + (1.0 / K if relaxed else 1.0)
    states = [block.begin(xp.concatenate((zero, mu), 0)) for block in blocks]
    parts = [
        block.system(state, xp.concatenate((zero, mu), 0))
        for block, state in zip(blocks, states, strict=True)
    ]
    h, size, objective = _sums(c, parts)
    floor = 0.1 * (xp.amax(abs(c), 0) + TINY) if relaxed else 1.0
    t = xp.amax(h, 0) + floor if relaxed else zeros(c, R)
    w = t - h
    w = xp.where(w > floor, w, floor)
    done = mu + 0.0
    runs = indices(xp, zero[0] < 2.0)
    alive = zero[0] < 2.0
    for _ in range(INTERIOR):
        pairs = K + sum(part.pairs for part in parts)
        mean = ((mu * w).sum(0) + sum(part.products for part in parts)) / pairs
        terms = objective + (mu * size).sum(0) + TINY
        primal = xp.amax(abs(h - t + w) / (size + TINY), 0)
        for part in parts:
            primal = xp.maximum(primal, 0.0 * primal + part.dual)
        on = alive & ((K * mean > 1e-14 * terms) | (primal > 1e-13)) & (xp.amax(mu, 0) < FAR)
        keep = indices(xp, on)
        if len(keep) == 0:
            break
        if 2 * len(keep) < len(runs):
            done[:, runs] = mu
            c, mu, w, h, zero = (a[:, keep] for a in (c, mu, w, h, zero))
            runs, t, mean, on = (a[keep] for a in (runs, t, mean, on))
            blocks = [block.take(keep) for block in blocks]
            states = [tuple(a[..., keep] for a in state) for state in states]
            full = xp.concatenate((zero, mu), 0)
            parts = [block.system(state, full) for block, state in zip(blocks, states, strict=True)]
        eps = 0.1 * mean
        pieces = [
            block.reduce(state, part, eps) for block, state, part in zip(blocks, states, parts, strict=True)
        ]
        M = sum(H for H, _ in pieces[1:]) + pieces[0][0]
        rhs = h - t + eps / mu - sum(lag for _, lag in pieces)
        for k in range(K):
            M[k, k] = M[k, k] + w[k] / mu[k]
        if relaxed:
            both = _solve(xp, M, xp.stack((rhs, rhs * 0 + 1.0), 1))
            dt = (both[:, 0].sum(0) - (1.0 - mu.sum(0))) / both[:, 1].sum(0)
            dmu = both[:, 0] - both[:, 1] * dt
        else:
            dmu = _solve(xp, M, rhs)
            dt = 0.0 * t
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
            new_mu = mu + length * dmu
            new_w = w + length * dw
            new_t = t + length * dt
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
        mu = new_mu
        w = new_w
        t = new_t
        states = new_states
        alive = on
    done[:, runs] = mu
    return done


def _sums(c: Array, parts: Sequence[Part]) -> tuple[Array, Array, Array]:
    """h, the sizes of its terms and the size of the objective's terms."""
    h = c
    size = abs(c)
    objective = 0.0
    for part in parts:
        h = h + part.h
        size = size + part.size
        objective = objective + part.zero
    return h, size, objective


def _merit(primal: Array, complementary: Array) -> Array:
    return (abs(primal) + abs(complementary)).sum(0)


def _solve(xp: ModuleType, M: Array, b: Array) -> Array:
    """x of M x = b for symmetric positive definite M (K, K, R), b (K, R) or (K, j, R): LDL' with runs as
    vectors.

    Batched LAPACK takes several times longer for matrices of this size, and gives up on all runs if one is
    singular.
    """
    K = len(M)
    wide = b.ndim == 3
    M = xp.concatenate((M, b if wide else b[:, None]), 1)
    for j in range(K - 1):
        column = M[j + 1 :, j] / M[j, j]
        M[j + 1 :, j + 1 :] -= column[:, None] * M[j, j + 1 :]
    x = M[:, K:]
    x[-1] /= M[K - 1, K - 1]
    for j in range(K - 2, -1, -1):
        x[j] -= (M[j, j + 1 : K, None] * x[j + 1 :]).sum(0)
        x[j] /= M[j, j]
    return x if wide else x[:, 0]
