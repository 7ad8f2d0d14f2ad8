"""FERERO's dual with equality rows: the free multipliers lh are eliminated, one QP over x = (lf, lg) is left.

    lambda = argmin 1/2 lambda' Q lambda - lambda' p,  Q = A_ag K A_ag',  p = (0, c_g G, c_h H),
        w = A_ag' lambda
    over lf >= 0, lg >= 0, lh free and  lf' (A F) = 1' A F  (adaptive)  or  1' lf = 1  (simplex)

    S = B_h K B_h',  C = B_h K A_g',  A_g = [A; B_g],  P = A_g - C' S^+ B_h
    lh = S^+ (c_h H - C x),   x = argmin 1/2 x' P K P' x - x' (p_g - C' S^+ c_h H)

P K P' is the usual A_g K A_g' - C' S^+ C without its cancellation. At a stationary point K lies in the range
of B_h' and Q is zero: its rounding errors must not decide beside the linear term.

Source: FERERO paper, (2.3), (2.4) and Remark 4; A_ag = [A; B_g; B_h], G = B_g F + b_g, H = B_h F + b_h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mobench.core.arrays import arrays, runs_last, tensor
from mobench.kernels.compiled import compiled_solver
from mobench.solvers import plane
from mobench.solvers.host import on_host
from mobench.solvers.qp import LIMITS, RIDGES, qp, rows, segment
from mobench.solvers.solution import TINY, TOLERANCE, Solution, certified


@dataclass(frozen=True)
class Dual:
    """The constants of all steps.

    rows = A_ag (R, n+g+h, M), bg (R, g), bh (R, h), h > 0, the rates c_g and c_h, the domain of lf, and the
    QP solver (`qp` or its CVXPY reference). A row of zeros in A stands for no row.
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
    solution = ferero_dual(program, K, F)
    return DualSolution(*solution, _proved(program, K, F, solution.failed))


def _proved(program: Dual, K: Tensor, F: Tensor, failed: Tensor) -> Tensor | None:
    """Returns the failed programs that are proved to have no solution; None if none has failed."""
    if K.is_cuda:  # to look whether any has failed would make the host wait
        return failed & unreachable(program, K, F)
    runs = failed.nonzero().squeeze(1)
    if len(runs) == 0:
        return None
    out = torch.zeros_like(failed)
    out[runs] = unreachable(program.take(runs), K[runs], F[runs])
    return out


def ferero_dual(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Solution:
    """Weights w = A_ag' lambda of the objectives at Gram matrix K and values F.

    The certificate is that of the QP and of the equality row B_h J d + c_h H = 0, relative to its terms.
    """
    if program.solver is not qp:
        return _whole(program, K, F)
    if _is_plane(program):
        return _plane(program, K, F)
    fixed = (rows(program.rows), rows(program.bg), rows(program.bh))
    rates = (float(program.c_g), float(program.c_h), bool(program.adaptive))
    w, residual, failed = compiled_solver("pivoting").ferero_dual(
        *fixed, *rates, rows(K), rows(F), np.array(RIDGES), LIMITS
    )
    return Solution(tensor(w, K.dtype), tensor(residual), tensor(failed))


def _whole(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Solution:
    """Computes `ferero_dual` by the QP solver of the program, over all multipliers at once."""
    A = program.rows.double()
    h = program.bh.shape[1]
    n = A.shape[1] - program.bg.shape[1] - h
    affine = (A @ F.double().unsqueeze(2)).squeeze(2)
    zero = torch.zeros_like(affine[:, :n])
    p = torch.cat([zero, program.c_g * (affine[:, n : A.shape[1] - h] + program.bg)], 1)
    p = torch.cat([p, program.c_h * (affine[:, A.shape[1] - h :] + program.bh)], 1)
    a = affine[:, :n] if program.adaptive else (A[:, :n] != 0).any(2).double()
    r = a.sum(1) if program.adaptive else torch.ones_like(a[:, 0])
    lower = torch.zeros_like(p)
    lower[:, A.shape[1] - h :] = -torch.inf
    a = torch.nn.functional.pad(a, (0, A.shape[1] - n))
    x, residual, failed = program.solver(A @ K.double() @ A.mT, p, a, r, lower)
    return Solution((A.mT @ x.unsqueeze(2)).squeeze(2).to(K.dtype), residual, failed)


def unreachable(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Bool[Tensor, " R"]:
    """Runs whose equalities no direction meets: proved by a y with y' B_h J = 0 and y'H != 0 (Farkas).

    y is the part of H in the null space of S = B_h K B_h' = (B_h J)(B_h J)'. B_h J d = -c_h H has no solution
    then, the program of the direction is infeasible and its dual unbounded along y. Zero here means
    up to rounding: |y' B_h J| up to 1e-13 of |J| (one row; more: eigenvalues up to 1e-13 of the largest), y'H
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


def _plane(program: Dual, K: Float[Tensor, "R M M"], F: Float[Tensor, "R M"]) -> Solution:
    """Two objectives, one equality and two rows of A in closed form, on any device.

        p = K b,  S = b'p,  u = (-p_2, p_1),  m = A (-b_2, b_1)':  w = (c_h H b + (m'x) u) / S  keeps
            p'w = c_h H
        x = argmin 1/2 (u'Ku / S^2) (m'x)^2 + (c_h H / S) p'A'x

    Where S vanishes S^+ = 0: w = A'x, x = argmin 1/2 x'A K A'x.
    """
    answer = plane.ferero_dual(K, F, program.rows, program.bh, program.c_h, program.adaptive)
    if answer is not None:
        return answer
    xp, inputs = arrays(K, F, program.rows, program.bh)
    k, f, rows, offset = (runs_last(xp, array) for array in inputs)
    A = rows[:2]
    b = rows[2]
    with np.errstate(all="ignore"):
        p = (k * b).sum(1)
        S = (b * p).sum(0)
        lost = 1e-26 * (k[0, 0] + k[1, 1]) >= S
        some = xp is torch or bool(lost.any())  # on a GPU to look would make the host wait
        affine = (rows * f).sum(1)
        target = program.c_h * (affine[2] + offset[0])
        m = A[:, 1] * b[0] - A[:, 0] * b[1]
        p1, p2 = p
        squares = k[0, 0] * p2 * p2 + k[1, 1] * p1 * p1
        curvature = squares - 2 * k[0, 1] * p1 * p2
        noise = 1e-14 * squares  # rounding of zero, which must not decide beside the linear term
        slant = xp.where(curvature <= noise, 0.0, curvature / (S * S)) * m
        a = affine[:2] if program.adaptive else 1.0 * (A != 0).any(1)
        r = a[0] + a[1] if program.adaptive else 1.0 + 0.0 * a[0]
        share = target / S
        linear = -share * (A * p).sum(1)
        Q = slant[:, None] * m
        if some:
            AK = (A[:, :, None] * k).sum(1)
            Q = xp.where(lost, (AK[:, None] * A).sum(2), Q)
            linear = xp.where(lost, 0.0, linear)
        (x1, x2), residual, probe = segment(xp, xp.moveaxis(Q, -1, 0), linear.T, a.T, r)
        y = (m[0] * x1 + m[1] * x2) / S
        w1 = share * b[0] - y * p2
        w2 = share * b[1] + y * p1
        # equality row B_h J d + c_h H = 0, relative to its terms
        terms = abs(share) * (abs(p) * abs(b)).sum(0) + 2 * abs(y * p1 * p2)
        if some:
            w1 = xp.where(lost, A[0, 0] * x1 + A[1, 0] * x2, w1)
            w2 = xp.where(lost, A[0, 1] * x1 + A[1, 1] * x2, w2)
            largest = xp.maximum(xp.amax(xp.amax(abs(AK), 0), 0), xp.amax(abs(p), 0))
            terms = xp.where(lost, largest * xp.maximum(abs(w1), abs(w2)), terms)
        equality = abs(target - (p1 * w1 + p2 * w2)) / (abs(target) + terms + TINY)
        w, _, failed = certified(xp, (w1, w2), residual, probe, K.dtype)
        failed = failed | tensor(equality > TOLERANCE)
        kkt = tensor(xp.maximum(residual + (probe - probe), equality))
    return Solution(w, kkt, failed)
