"""One run at a time, in the style of the methods' published code: the slow side of the speed ratios.

These loops stand for what a researcher runs today: gradients by automatic differentiation in PyTorch, one
backward per objective, then the subproblem in its published form (EPO: an LP through CVXPY and a generic
solver; FERERO: up to 250 projected gradient steps in NumPy from a cold start; PMTL: Frank-Wolfe in NumPy;
...), one preference after the other. They were written here from the papers' descriptions; no line is
anybody's code. They are not the authors' programs: the numbers that the report quotes for those were measured
by others on a comparable machine and are shown for orientation.

Problem: VLMOP2 in float64. Every function runs `steps` steps from x0 for preference w and returns the answer.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def objectives(x: Tensor) -> tuple[Tensor, Tensor]:
    """f_1 and f_2 of VLMOP2."""
    c = 1.0 / math.sqrt(len(x))
    return 1.0 - torch.exp(-torch.sum((x - c) ** 2)), 1.0 - torch.exp(-torch.sum((x + c) ** 2))


def values_and_rows(x: Tensor) -> tuple[Array, Array]:
    """F (2,) and J (2, n): one backward per objective."""
    x.grad = None
    losses = objectives(x)
    rows: list[Array] = []
    for loss in losses:
        x.grad = None
        loss.backward()
        assert x.grad is not None
        rows.append(x.grad.detach().clone().numpy())
    return np.array([float(loss.detach()) for loss in losses]), np.stack(rows)


def _descend(x0: Array, steps: int, weights: Callable[[Array, Array, int], Array], step_size: float) -> Array:
    """x <- x - step_size J' w for weights that need the rows."""
    x = torch.tensor(x0, requires_grad=True)
    for t in range(steps):
        F, J = values_and_rows(x)
        direction = torch.from_numpy(J.T @ weights(F, J, t))
        with torch.no_grad():
            x -= step_size * direction
    return x.detach().numpy()


def _descend_loss(
    x0: Array, steps: int, loss_of: Callable[[Tensor, Tensor], Tensor], step_size: float
) -> Array:
    """x <- x - step_size grad loss: one backward."""
    x = torch.tensor(x0, requires_grad=True)
    for _ in range(steps):
        x.grad = None
        loss_of(*objectives(x)).backward()
        with torch.no_grad():
            assert x.grad is not None
            x -= step_size * x.grad
    return x.detach().numpy()


def ls(x0: Array, w: Array, steps: int, step_size: float = 0.1, **_: Any) -> Array:
    """Linear scalarization: backward of w_1 f_1 + w_2 f_2."""
    return _descend_loss(x0, steps, lambda f1, f2: w[0] * f1 + w[1] * f2, step_size)


def tch(x0: Array, w: Array, steps: int, step_size: float = 0.02, **_: Any) -> Array:
    """Tchebycheff: backward of the largest w_m f_m."""
    weights = torch.from_numpy(w)
    return _descend_loss(x0, steps, lambda f1, f2: torch.max(weights * torch.stack([f1, f2])), step_size)


def stch(x0: Array, w: Array, steps: int, step_size: float = 0.1, mu: float = 0.01, **_: Any) -> Array:
    """Smooth Tchebycheff: backward of mu logsumexp(w f / mu)."""
    weights = torch.from_numpy(w)
    return _descend_loss(
        x0, steps, lambda f1, f2: mu * torch.logsumexp(weights * torch.stack([f1, f2]) / mu, 0), step_size
    )


def project_simplex(y: Array) -> Array:
    """Nearest point of the simplex, by sorting."""
    u = np.sort(y)[::-1]
    total = np.cumsum(u) - 1.0
    k = np.nonzero(u * np.arange(1, len(y) + 1) > total)[0][-1]
    return np.maximum(y - total[k] / (k + 1.0), 0.0)


def omd_tch(
    x0: Array,
    w: Array,
    steps: int,
    step_size: float = 0.02,
    lambda_step: float = 1.0,
    adaptive: bool = False,
    **_: Any,
) -> Array:
    """OMD-TCH: backward of sum lambda_m w_m f_m, then the projection of lambda; mean or Pareto-adaptive mean.

    The adaptive mean keeps a Python list of snapshots and compares the newcomer with each.
    """
    x = torch.tensor(x0, requires_grad=True)
    lam = np.full(2, 0.5)
    mean = np.zeros_like(x0)
    stored: list[dict[str, Any]] = []
    for t in range(steps):
        x.grad = None
        f1, f2 = objectives(x)
        (lam[0] * w[0] * f1 + lam[1] * w[1] * f2).backward()
        F = np.array([float(f1.detach()), float(f2.detach())])
        snapshot = x.detach().clone().numpy()
        if adaptive:
            above = [p for p in stored if np.all(p["F"] <= F) and np.any(p["F"] < F)]
            if above:
                for p in above:
                    p["gamma"] += 1.0 / len(above)
            else:
                below = [p for p in stored if np.all(p["F"] >= F) and np.any(p["F"] > F)]
                gone = {id(p) for p in below}
                stored = [p for p in stored if id(p) not in gone]
                stored.append({"F": F, "x": snapshot, "gamma": 1.0 + sum(p["gamma"] for p in below)})
        else:
            mean += (snapshot - mean) / (t + 1)
        with torch.no_grad():
            assert x.grad is not None
            x -= step_size * x.grad
        lam = project_simplex(lam + lambda_step * w * F)
    return np.sum([p["gamma"] * p["x"] for p in stored], axis=0) / steps if adaptive else mean


def mgda(x0: Array, w: Array, steps: int, step_size: float = 0.2, **_: Any) -> Array:
    """MGDA: the min-norm point of two gradients."""

    def weights(F: Array, J: Array, t: int) -> Array:
        g11 = J[0] @ J[0]
        g12 = J[0] @ J[1]
        g22 = J[1] @ J[1]
        spread = g11 - 2.0 * g12 + g22
        u = 0.5 if spread <= 0.0 else min(max((g22 - g12) / spread, 0.0), 1.0)
        return np.array([u, 1.0 - u])

    return _descend(x0, steps, weights, step_size)


def frank_wolfe(rows: Array, steps: int = 250, tolerance: float = 1e-5) -> Array:
    """Min-norm weights of the rows: start at the best pair, then Frank-Wolfe with exact line search."""
    n = len(rows)
    G = rows @ rows.T
    best = math.inf
    s = np.zeros(n)
    s[0] = 1.0
    for i in range(n):
        for j in range(i + 1, n):
            spread = G[i, i] - 2.0 * G[i, j] + G[j, j]
            u = 0.5 if spread <= 0.0 else min(max((G[j, j] - G[i, j]) / spread, 0.0), 1.0)
            value = u * u * G[i, i] + 2.0 * u * (1.0 - u) * G[i, j] + (1.0 - u) ** 2 * G[j, j]
            if value < best:
                best = value
                s = np.zeros(n)
                s[i] = u
                s[j] = 1.0 - u
    for _ in range(steps):
        slope = G @ s
        k = int(np.argmin(slope))
        towards = -s.copy()
        towards[k] += 1.0
        curvature = towards @ G @ towards
        if curvature <= 0.0:
            break
        step = float(np.clip(-(slope @ towards) / curvature, 0.0, 1.0))
        s = s + step * towards
        if step * np.sum(np.abs(towards)) < tolerance:
            break
    return s


def pmtl(x0: Array, w: Array, steps: int, refs: Array, step_size: float = 0.2, **_: Any) -> Array:
    """PMTL: min-norm point of the active sectors' rows (first fifth), then of gradients and sectors."""
    ray = 1.0 / w
    W = refs - ray / np.linalg.norm(ray)
    W = W[np.linalg.norm(W, axis=1) > 1e-9]

    def weights(F: Array, J: Array, t: int) -> Array:
        rows = W[W @ F > 0.0]
        if t >= int(0.2 * steps):
            rows = np.vstack([np.eye(2), rows])
        if len(rows) == 0:
            return np.zeros(2)
        return frank_wolfe(rows @ J) @ rows if len(rows) > 1 else rows[0]

    return _descend(x0, steps, weights, step_size)


def epo(x0: Array, w: Array, steps: int, step_size: float = 0.1, **_: Any) -> Array:
    """EPO search: two CVXPY programs with parameters, built once and solved by HiGHS at each step."""
    import cvxpy

    M = 2
    r = w / np.linalg.norm(w)
    beta = cvxpy.Variable(M)
    K_ = cvxpy.Parameter((M, M))
    Ca_ = cvxpy.Parameter(M)
    bound = cvxpy.Parameter(M)
    total = cvxpy.Parameter(M)
    level = cvxpy.Parameter()
    simplex = [beta >= 0, cvxpy.sum(beta) == 1]
    balance = cvxpy.Problem(cvxpy.Maximize(Ca_ @ beta), [*simplex, K_ @ beta >= bound])
    descend = cvxpy.Problem(cvxpy.Maximize(total @ beta), [*simplex, K_ @ beta >= 0, Ca_ @ beta >= level])

    def weights(F: Array, J: Array, t: int) -> Array:
        K = J @ J.T
        K = K / np.trace(K)
        h = r * F / np.sum(r * F)
        logs = np.log(M * h)
        mu = float(h @ logs)
        Ca = K @ (r * (logs - mu))
        K_.value = K
        Ca_.value = Ca
        if mu > 1e-4:
            rising = Ca > 0.0
            # no bound: what no product with a point of the simplex goes below
            limit = np.where(rising, -1e3, Ca) if rising.any() else np.zeros(M)
            limit[int(np.argmax(r * F))] = 0.0
            bound.value = limit
            problem = balance
        else:
            total.value = K.sum(0)
            level.value = -max(0.0, -float(Ca.max())) - 1e-9
            problem = descend
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver="HIGHS")
        # published code goes on with the preference when the program fails
        answer = r / r.sum() if beta.value is None else np.maximum(beta.value, 0.0)
        return 10.0 * max(mu, 0.1) * answer

    return _descend(x0, steps, weights, step_size)


def ferero(x0: Array, w: Array, steps: int, step_size: float = 0.05, c_h: float = 1.0, **_: Any) -> Array:
    """FERERO: up to 250 projected gradient steps of size 0.1 on the multipliers, started cold at each step.

    The inner loop is as fast as one in Python gets: the simplex of two multipliers is projected in closed
    form, and products with the 2 x 2 and 3 x 3 matrices are single calls. A general projection by sorting
    made it 1.7 times slower than the published program, which flattered our ratios.
    """
    v = (1.0 / w) / np.linalg.norm(1.0 / w)
    B = np.array([[v[1], -v[0]]])
    stacked = np.vstack([np.eye(2), B])

    def weights(F: Array, J: Array, t: int) -> Array:
        Q = stacked @ (J @ J.T) @ stacked.T
        p = np.concatenate([np.zeros(2), c_h * (B @ F)])
        lam = np.array([0.5, 0.5, 1.0])
        for _ in range(250):
            new = lam - 0.1 * (Q @ lam - p)
            first = min(max(0.5 * (1.0 + new[0] - new[1]), 0.0), 1.0)
            new[0] = first
            new[1] = 1.0 - first
            change = np.abs((new - lam) @ stacked).sum()
            lam = new
            if change < 1e-5:
                break
        return stacked.T @ lam

    return _descend(x0, steps, weights, step_size)


def ferero_sa(
    x0: Array, w: Array, steps: int, step_size: float = 0.1, gamma: float = 0.5, c_h: float = 1.0, **_: Any
) -> Array:
    """FERERO-SA: one step of the multipliers per step of x, both from the old quantities."""
    v = (1.0 / w) / np.linalg.norm(1.0 / w)
    B = np.array([[v[1], -v[0]]])
    stacked = np.vstack([np.eye(2), B])
    state = {"lam": np.array([0.5, 0.5, 0.0])}

    def weights(F: Array, J: Array, t: int) -> Array:
        old = state["lam"]
        new = old - gamma * (
            stacked @ (J @ J.T) @ (stacked.T @ old) - np.concatenate([np.zeros(2), c_h * (B @ F)])
        )
        new[:2] = project_simplex(new[:2])
        state["lam"] = new
        return stacked.T @ old

    return _descend(x0, steps, weights, step_size)
