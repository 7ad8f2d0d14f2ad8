"""FERERO's dual with equality rows: the free multipliers lh are eliminated, one QP over (lf, lg) is left.

    lambda = argmin 1/2 lambda' Q lambda - lambda' p,  Q = A_ag K A_ag',  p = (0, c_g G, c_h H),
        w = A_ag' lambda
    over lf >= 0, lg >= 0, lh free and  lf' (A F) = 1' A F  (adaptive)  or  1' lf = 1  (simplex)

Source: FERERO paper, (2.3), (2.4) and Remark 4; A_ag = [A; B_g; B_h], G = B_g F + b_g, H = B_h F + b_h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.core.arrays import Array, arrays, runs_last, tensor
from mobench.kernels.compiled import kernels
from mobench.subproblems.host import on_host
from mobench.subproblems.qp import LIMITS, qp, ridges, rows, segment
from mobench.subproblems.solution import GOOD, TINY, TOLERANCE, Solution, certified


@dataclass(frozen=True)
class Dual:
    """What does not change from step to step: rows = A_ag (R, n+g+h, M), bg (R, g), bh (R, h), h > 0, the
    rates c_g and c_h, the domain of lf, and the QP solver (`qp` or its CVXPY reference). A row of zeros in A
    stands for no row.
    """

    rows: Float[Tensor, "R n M"]
    bg: Float[Tensor, "R g"]
    bh: Float[Tensor, "R h"]
    c_g: float
    c_h: float
    adaptive: bool
    solver: Callable[..., Solution] = qp

    def take(self, runs: Int[Tensor, " k"]) -> Dual:
        """The program of some of the runs."""
        return Dual(
            self.rows[runs], self.bg[runs], self.bh[runs], self.c_g, self.c_h, self.adaptive, self.solver
        )


class DualSolution(NamedTuple):
    """As `Solution`, and which of the failed programs are proved to have no solution; None: none failed."""

    x: Float[Tensor, "R n"]
    residual: Float[Tensor, " R"]
    failed: Bool[Tensor, " R"]
    unsolvable: Bool[Tensor, " R"] | None


@on_host(closed=lambda program, K, F: _is_plane(program))
def solve_dual(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> DualSolution:
    """`ferero_dual`, with a proof where a program has no solution."""
    found = ferero_dual(program, K, F)
    return DualSolution(*found, _proved(program, K, F, found.failed))


def _proved(program: Dual, K: Tensor, F: Tensor, failed: Tensor) -> Tensor | None:
    """Which of the failed programs are proved to have no solution; None if none has failed."""
    if K.is_cuda:  # to ask whether any has would make the host wait
        return failed & unreachable(program, K, F)
    runs = failed.nonzero().squeeze(1)
    if len(runs) == 0:
        return None
    out = torch.zeros_like(failed)
    out[runs] = unreachable(program.take(runs), K[runs], F[runs])
    return out


def ferero_dual(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Solution:
    """Weights w = A_ag' lambda of the objectives at Gram matrix K and values F, with the certificate of the
    QP and of the equality row B_h J d + c_h H = 0 (relative to its own terms).
    """
    return _plane(program, K, F) or _compiled(program, K, F) or _eliminate(program, K, F)


def unreachable(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Bool[Tensor, " R"]:
    """Runs whose equalities no direction meets: proved by a y with y' B_h J = 0 and y'H != 0 (Farkas).

    y is the part of H in the null space of S = B_h K B_h' = (B_h J)(B_h J)'. B_h J d = -c_h H has no solution
    then, the program of the direction is infeasible and its dual unbounded along y. Zero is what rounding
    leaves of it: |y' B_h J| up to 1e-13 of |J| (one row; more: eigenvalues up to 1e-13 of the largest), y'H
    up to `TOLERANCE` of its terms.
    """
    h = program.bh.shape[1]
    if h == 0:
        return torch.zeros_like(F[:, 0], dtype=torch.bool)
    B = program.rows[:, -h:].double()
    F = F.double()
    K = K.double()
    H = (B @ F.unsqueeze(2)).squeeze(2) + program.bh
    size = ((B.abs() @ F.abs().unsqueeze(2)).squeeze(2) + program.bh.abs()).amax(1)
    trace = K.diagonal(dim1=1, dim2=2).sum(1)
    # NaN in one run must not stop its neighbours: the eigensolver raises on it
    finite = (trace + H.sum(1)).isfinite()
    unit = torch.where(finite & (trace > 0), trace, 1.0)[:, None, None]
    S = torch.where(finite[:, None, None], B @ K @ B.mT / unit, 0.0)
    y = torch.where(finite[:, None], H, 0.0)
    if h == 1:
        null = S[:, 0] <= 1e-26
    else:
        values, vectors = torch.linalg.eigh(S)
        null = (values <= 1e-26) | (values <= 1e-13 * values[:, -1:]) & (values < values[:, -1:])
        y = (vectors.mT @ y.unsqueeze(2)).squeeze(2)
    y = y * null
    return finite & (y.norm(dim=1) > TOLERANCE * size)


def _is_plane(program: Dual) -> bool:
    """Two objectives, one equality and two rows of A."""
    return program.rows.shape[1:] == (3, 2) and program.bh.shape[1] == 1 and program.solver is qp


def _plane(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Solution | None:
    """The result of `_eliminate` for two objectives, one equality and two rows of A, in a third of its time.

        p = K b,  S = b'p,  u = (-p_2, p_1),  m = A (-b_2, b_1)':  w = (c_h H b + (m'x) u) / S  keeps
            p'w = c_h H
        x = argmin 1/2 (u'Ku / S^2) (m'x)^2 + (c_h H / S) p'A'x

    None for all other sizes and for batches too large for NumPy. Runs where S vanishes go through
    `_eliminate`, and they alone: which formula serves a run does not depend on its neighbours, not even in
    rounding.
    """
    if not _is_plane(program):
        return None
    xp, given = arrays(K, F, program.rows, program.bh)
    if xp is torch:
        return None
    k, f, rows, offset = (runs_last(xp, array) for array in given)
    A = rows[:2]
    b = rows[2]
    with np.errstate(all="ignore"):
        p = (k * b).sum(1)
        S = (b * p).sum(0)
        lost = np.flatnonzero(1e-26 * (k[0, 0] + k[1, 1]) >= S)
        affine = (rows * f).sum(1)
        target = program.c_h * (affine[2] + offset[0])
        m = A[:, 1] * b[0] - A[:, 0] * b[1]
        p1, p2 = p
        squares = k[0, 0] * p2 * p2 + k[1, 1] * p1 * p1
        curvature = squares - 2 * k[0, 1] * p1 * p2
        noise = 1e-14 * squares  # what rounding leaves of zero must not decide beside the linear term
        slant = np.where(curvature <= noise, 0.0, curvature / (S * S)) * m
        a = affine[:2] if program.adaptive else 1.0 * (A != 0).any(1)
        r = a[0] + a[1] if program.adaptive else 1.0 + 0.0 * a[0]
        share = target / S
        linear = -share * (A * p).sum(1)
        (x1, x2), residual, probe = segment(np, (slant[:, None] * m).transpose(2, 0, 1), linear.T, a.T, r)
        y = (m[0] * x1 + m[1] * x2) / S
        w1 = share * b[0] - y * p2
        w2 = share * b[1] + y * p1
        # equality row B_h J d + c_h H = 0, relative to its own terms
        terms = abs(share) * (abs(p) * abs(b)).sum(0) + 2 * abs(y * p1 * p2)
        equality = abs(target - (p1 * w1 + p2 * w2)) / (abs(target) + terms + TINY)
        w, _, failed = certified(np, (w1, w2), residual, probe, K.dtype)
        failed |= tensor(equality > TOLERANCE)
        kkt = tensor(np.maximum(residual + (probe - probe), equality))
    if len(lost):
        part = torch.from_numpy(lost)
        w[part], kkt[part], failed[part] = _eliminate(program.take(part), K[part], F[part])
    return Solution(w, kkt, failed)


def _compiled(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Solution | None:
    """The result of `_eliminate` from one kernel; None where there is none, and for the two variables of
    `segment`.
    """
    h = program.bh.shape[1]
    if program.solver is not qp or h == 0 or program.rows.shape[1] - h < 3:
        return None
    kernel = kernels("pivoting", K)
    if kernel is None:
        return None
    fixed = (rows(program.rows), rows(program.bg), rows(program.bh))
    rates = (float(program.c_g), float(program.c_h), bool(program.adaptive))
    w, residual, failed = kernel.ferero_dual(*fixed, *rates, rows(K), rows(F), ridges(), LIMITS)
    return Solution(tensor(w, K.dtype), tensor(residual), tensor(failed))


def _eliminate(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Solution:
    """Exact weights: the free lh is eliminated, the rest is one QP over x = (lf, lg).

        S = B_h K B_h',  C = B_h K A_g',  A_g = [A; B_g],  P = A_g - C' S^+ B_h
        lh = S^+ (c_h H - C x),   x = argmin 1/2 x' P K P' x - x' (p_g - C' S^+ c_h H)

    P K P' is the usual A_g K A_g' - C' S^+ C without its cancellation. Runs are the last axis of the arrays:
    sums over the short axes are then sums of long vectors, which NumPy (small batches) does several times
    faster than products of small matrices.
    """
    g = program.bg.shape[1]
    n = program.rows.shape[1] - g - program.bh.shape[1]
    xp, given = arrays(K, F, program.rows, program.bg, program.bh)
    k, f, rows, bg, bh = (runs_last(xp, array) for array in given)
    e = n + g  # rows of A_g; those of B_h follow
    with np.errstate(all="ignore"):
        rows_k = _times(rows, k)
        BK = rows_k[e:]
        products = _times(BK, xp.swapaxes(rows, 0, 1))
        C = products[:, :e]
        affine = (rows * f).sum(1)
        target = program.c_h * (affine[e:] + bh)
        inverse = _pinv(xp, products[:, e:], k)
        # S^+ C, S^+ c_h H
        SC = _times(inverse, C)
        SH = (inverse * target).sum(1)
        both = xp.concatenate((rows, rows_k), 1)
        both = both[:e] - _times(xp.swapaxes(SC, 0, 1), both[e:])  # P and P K
        M = len(k)
        Q = _times(both[:, M:], xp.swapaxes(both[:, :M], 0, 1))
        # at a stationary point K lies in the range of B_h' and Q is zero; what rounding leaves of it is not
        # even symmetric or positive, and beside the linear term (which is zero too where H = 0) it must not
        # decide
        small = _trace(Q) <= 1e-14 * (rows_k[:e] * rows[:e]).sum(0).sum(0)
        Q = xp.where(small, 0.0, 0.5 * (Q + xp.swapaxes(Q, 0, 1)))
        a = affine[:n] if program.adaptive else 1.0 * (rows[:n] != 0).any(1)
        r = a.sum(0) if program.adaptive else 1.0 + 0.0 * a[0]
        linear = -(C * SH[:, None]).sum(0)
        if g:
            linear[n:] += program.c_g * (affine[n:e] + bg)
            a = xp.concatenate((a, 0.0 * affine[n:e]), 0)
            # likewise row by row, since qp gives each lg a unit of its own: of a row that the equalities span
            # (its direction cannot change it) rounding must leave neither curvature nor a violation
            length = xp.stack([k[m, m] for m in range(M)]) ** 0.5
            noise = 1e-14 * (abs(both[:, :M]) * length).sum(1) ** 2 + 1e-26 * (rows_k[:e] * rows[:e]).sum(1)
            fixed = xp.stack([Q[m, m] for m in range(e)]) <= noise
            Q = xp.where(fixed[:, None] | fixed, 0.0, Q)
            terms = program.c_g * (abs(affine[n:e]) + abs(bg)) + abs(C[:, n:] * SH[:, None]).sum(0)
            linear[n:] = xp.where(fixed[n:] & (abs(linear[n:]) <= 1e-12 * terms), 0.0, linear[n:])
        solution: Any = program.solver(
            tensor(xp.moveaxis(Q, -1, 0)), tensor(linear.T), tensor(a.T), tensor(r)
        )
        x, residual, failed = solution if xp is torch else (t.numpy() for t in solution)
        x = x.T
        lam = xp.concatenate((x, SH - (SC * x).sum(1)), 0)
        w = (rows * lam[:, None]).sum(0)
        # equality row B_h J d + c_h H = 0, relative to its own terms
        largest = xp.amax(xp.amax(abs(rows_k), 0), 0)
        for last in (False, False, True):
            broken = target - (BK * w).sum(1)
            equality = xp.amax(abs(broken), 0) / (
                xp.amax(abs(target), 0) + largest * xp.amax(abs(w), 0) + TINY
            )
            poor = equality > GOOD
            # a GPU would wait for the answer, and where nothing is poor nothing changes
            if last or (xp is not torch and not poor.any()):
                break
            # rows of B_h J that are nearly dependent: S^+ is good to eps cond(S) only; what it has left is
            # solved for
            w = w + xp.where(poor, (rows[e:] * (inverse * broken).sum(1)[:, None]).sum(0), 0.0)
        kkt = tensor(xp.maximum(residual, equality))
        lost = tensor(failed | (equality > TOLERANCE))
    return Solution(tensor(w.T, K.dtype).contiguous(), kkt, lost)


def _times(X: Array, Y: Array) -> Array:
    """(n, m, R) x (m, k, R) -> (n, k, R), run by run."""
    return (X[:, :, None] * Y).sum(1)


def _trace(X: Array) -> Array:
    """(n, n, R) -> (R,)."""
    return sum(X[i, i] for i in range(len(X)))


def _pinv(xp: ModuleType, S: Array, K: Array) -> Array:
    """S^+ of symmetric positive semidefinite S = B_h K B_h' (h, h, R).

    One row: a division. More: eigenvalues below 1e-13 of the largest are taken as 0, so that an equality that
    no direction can move (B_h J = 0) leaves its multiplier at 0; whether it holds is then judged by the
    certificate.
    """
    trace = _trace(K)
    if len(S) == 1:
        gone = S - 1e-26 * trace <= 0
        return xp.where(gone, 0.0, 1 / S)
    # NaN in one run must not stop its neighbours: the eigensolver raises on it
    finite = (trace - trace == 0)[:, None, None]
    trace = trace + (trace == 0)
    values, vectors = xp.linalg.eigh(xp.where(finite, xp.moveaxis(S / trace, -1, 0), 0.0))
    keep = (values > 1e-13 * values[:, -1:]) & (values > 0)
    values = xp.where(keep, 1 / values, 0.0) / trace[:, None]
    out = (vectors * values[:, None, :]) @ xp.swapaxes(vectors, 1, 2)
    return xp.moveaxis(xp.where(finite, out, xp.nan), 0, -1)
