"""FERERO's printed inner loop:  lambda <- Proj(lambda - gamma (Q lambda - p)),  inexact by design.

    lambda = (lf, lg, lh);  lf in {x >= 0, a'x = s},  lg >= 0,  lh free
    a run stops when |A_ag' (lambda_new - lambda)|_1 < tolerance, after the step that meets it

Source: FERERO paper, Section 5 (gamma = 0.1, at most 250 steps, 1e-5); the measure of the stop is that of
public code.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.arrays import Array, tensor
from mobench.solvers.host import on_host
from mobench.solvers.qp import rows

TINY = 1e-300


def _project(lam: Array, a: Array, s: Array, n: int, g: int) -> Array:
    """Projection onto the domain; see `project_weighted_simplex` for two variables.

    More, for weights >= 0: with the entries in order of y_i / a_i, tau_k is a weighted mean of tau_{k-1} and
    y_k / a_k, so it grows up to the support of the projection and falls behind it: tau is the largest of the
    candidates, no sorting needed.
    """
    if n == 2:
        y1 = lam[:, 0]
        y2 = lam[:, 1]
        a1 = a[:, 0]
        a2 = a[:, 1]
        beta = a2 * y1 - a1 * y2
        v1 = s * a1 + a2 * beta
        v2 = s * a2 - a1 * beta
        v1 = v1 + abs(v1)
        v2 = v2 + abs(v2)
        scale = s / (a1 * v1 + a2 * v2 + TINY)
        parts = [v1 * scale, v2 * scale]
    else:
        y = lam[:, :n]
        ratio = np.where(a > 0, y / (a + TINY), -np.inf)
        counts = ratio[:, None, :] >= ratio[:, :, None]
        total = np.where(counts, (a * y)[:, None, :], 0.0).sum(2) - s[:, None]
        tau = np.where(a > 0, total / (np.where(counts, (a * a)[:, None, :], 0.0).sum(2) + TINY), -np.inf)
        x = y - np.where(a > 0, np.amax(tau, 1)[:, None] * a, 0.0)  # a = 0: tau is -inf
        x = 0.5 * (x + abs(x))
        parts = [x[:, i] for i in range(n)]
    for i in range(n, lam.shape[1]):
        y = lam[:, i]
        parts.append(0.5 * (y + abs(y)) if i < n + g else y)
    return np.stack(parts, 1)


@on_host()
@np.errstate(all="ignore")  # a diverged run is no warning about its neighbours
def projected_gradient(
    Q: Float[Tensor, "R n n"],
    p: Float[Tensor, "R n"],
    start: Float[Tensor, "R n"],
    a: Float[Tensor, "R f"],
    s: Float[Tensor, "R 1"],
    stacked: Float[Tensor, "R n M"],
    inequalities: int,
    step: float,
    steps: int,
    tolerance: float,
) -> tuple[Float[Tensor, "R n"], Float[Tensor, " R"]]:
    """(lambda, residual) after the inner loop from `start` (projected first); `stacked` is A_ag.

    The residual is max |lambda - Proj(lambda - (Q lambda - p) / tr Q)|, the same for every step size. A run
    that has stopped rests while its neighbours go on; a run with NaN does not disturb them.
    """
    q, linear, lam, weight, total, A = (rows(t) for t in (Q, p, start, a, s, stacked))
    n = weight.shape[1]
    g = inequalities
    total = total[:, 0]
    if n > 2:  # the candidates of `_project` are those of weights >= 0
        total = np.where(np.amin(weight, 1) < 0, np.nan, total)
    lam = _project(lam, weight, total, n, g)
    moving = None
    for _ in range(steps):
        grad = (q @ lam[:, :, None])[:, :, 0] - linear
        new = _project(lam - step * grad, weight, total, n, g)
        if tolerance <= 0:
            lam = new
            continue
        change = abs(((new - lam)[:, None, :] @ A)[:, 0, :]).sum(1)
        lam = new if moving is None else np.where(moving[:, None], new, lam)
        going = change >= tolerance
        moving = going if moving is None else moving & going
        if not moving.any():
            break
    trace = np.diagonal(q, 0, 1, 2).sum(1)[:, None]
    grad = (q @ lam[:, :, None])[:, :, 0] - linear
    gap = abs(lam - _project(lam - grad / (trace + TINY), weight, total, n, g))
    return tensor(lam, Q.dtype), tensor(np.amax(gap, 1), torch.float64)
