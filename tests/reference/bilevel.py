"""Multi-objective bilevel descent: one run at a time, hand-written derivatives, float64.

Equations as in "Multi-Objective Bilevel Learning" and in the methods compared there. x (p,) is the upper
variable, y (q,) the lower one, y*(x) = argmin_y g(x, y), phi_s(x) = f_s(x, y*(x)), s = 1..S. With
Hyy = d2g/dy2 (q, q) and Jxy = d2g/dxdy (p, q):

    grad phi_s = grad_x f_s - Jxy v_s,   Hyy v_s = grad_y f_s.

Gradients of several objectives are rows, (S, p). K outer and D inner steps, beta and alpha their sizes; r the
preference, u its weight against the min-norm part. Products with Hyy and Jxy are functions, so that batches
are free.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.reference.common import Array, project_simplex

Labels = NDArray[np.int64]
Rows = Any  # indices of a batch, None for all rows
Product = Callable[[Array], Array]
ProductAt = Callable[[int, Array], Array]


# The quadratic problem


@dataclass(frozen=True)
class QuadraticBilevel:
    """f_s = |C_s x + E_s y - t_s|^2 / 2, g = y'Ay / 2 - y'(Bx + c), hence y* = A^-1 (Bx + c), Hyy = A,
    Jxy = -B'.

    A (q, q) positive definite, B (q, p), c (q,), C (S, k, p), E (S, k, q), t (S, k).
    """

    A: Array
    B: Array
    c: Array
    C: Array
    E: Array
    t: Array

    def residual(self, x: Array, y: Array) -> Array:
        """C_s x + E_s y - t_s, (S, k)."""
        return np.array([C @ x + E @ y - t for C, E, t in zip(self.C, self.E, self.t, strict=True)])

    def f(self, x: Array, y: Array) -> Array:
        return np.array([0.5 * float(e @ e) for e in self.residual(x, y)])

    def grad_x_f(self, x: Array, y: Array) -> Array:
        """C_s' (C_s x + E_s y - t_s), (S, p)."""
        return np.array([C.T @ e for C, e in zip(self.C, self.residual(x, y), strict=True)])

    def grad_y_f(self, x: Array, y: Array) -> Array:
        """E_s' (C_s x + E_s y - t_s), (S, q)."""
        return np.array([E.T @ e for E, e in zip(self.E, self.residual(x, y), strict=True)])

    def g(self, x: Array, y: Array) -> float:
        return 0.5 * float(y @ self.A @ y) - float(y @ (self.B @ x + self.c))

    def grad_x_g(self, x: Array, y: Array) -> Array:
        return -self.B.T @ y

    def grad_y_g(self, x: Array, y: Array) -> Array:
        return self.A @ y - self.B @ x - self.c

    def hyy(self) -> Array:
        return self.A

    def jxy(self) -> Array:
        return -self.B.T

    def y_star(self, x: Array) -> Array:
        return np.asarray(np.linalg.solve(self.A, self.B @ x + self.c), dtype=np.float64)

    def phi(self, x: Array) -> Array:
        return self.f(x, self.y_star(x))

    def hypergradients(self, x: Array) -> Array:
        """grad phi_s = grad_x f_s + B' A^-1 grad_y f_s at y*(x), (S, p)."""
        y = self.y_star(x)
        v = np.linalg.solve(self.A, self.grad_y_f(x, y).T)
        return self.grad_x_f(x, y) + (self.B.T @ v).T

    def inner(self, x: Array, y0: Array, alpha: float, D: int) -> Array:
        """y_0..y_D, (D+1, q)."""
        return gradient_descent(lambda t, y: self.grad_y_g(x, y), y0, alpha, D)

    def cg_hypergradients(self, x: Array, y: Array, v0: Array, N: int) -> tuple[Array, Array]:
        """At y, from v0 (S, q): the hypergradients (S, p) and the v (S, q) they were formed with."""
        gx = self.grad_x_f(x, y)
        gy = self.grad_y_f(x, y)
        v = np.array(
            [
                conjugate_gradient(lambda a: self.A @ a, b, start, N)[-1]
                for b, start in zip(gy, v0, strict=True)
            ]
        )
        return gx - v @ self.jxy().T, v

    def itd_hypergradients(self, x: Array, ys: Array, alpha: float) -> Array:
        """(S, p) from the iterates y_0..y_D."""
        gx = self.grad_x_f(x, ys[-1])
        gy = self.grad_y_f(x, ys[-1])
        jxy = self.jxy()
        hyy = self.hyy()
        return np.array(
            [
                itd(a, b, lambda t, v: jxy @ v, lambda t, v: hyy @ v, alpha, len(ys) - 1)
                for a, b in zip(gx, gy, strict=True)
            ]
        )

    def neumann_hypergradients(self, x: Array, y: Array, eta: float, Q: int) -> Array:
        """(S, p), the same Hessian in each of the Q factors."""
        gx = self.grad_x_f(x, y)
        gy = self.grad_y_f(x, y)
        v = np.array([neumann(b, [lambda a: self.A @ a] * Q, eta) for b in gy])
        return gx - v @ self.jxy().T


# Inner descent and the three hypergradients


def gradient_descent(grad: ProductAt, y0: Array, alpha: float, D: int) -> Array:
    """y_{t+1} = y_t - alpha grad(t, y_t), t = 0..D-1; all iterates y_0..y_D, y_D last."""
    ys = [np.array(y0, dtype=np.float64)]
    for t in range(D):
        ys.append(ys[-1] - alpha * grad(t, ys[-1]))
    return np.array(ys)


def conjugate_gradient(product: Product, b: Array, v0: Array, N: int, stop: float = 1e-28) -> Array:
    """At most N steps on H v = b from v0; the iterates v_0, v_1, .. as rows,
    fewer once |b - H v|^2 < stop.
    """
    vs = [np.array(v0, dtype=np.float64)]
    residual = b - product(vs[0])
    p = residual
    rho = float(np.sum(residual**2))
    for _ in range(N):
        if rho < stop:
            break
        Hp = product(p)
        step = rho / float(np.sum(p * Hp))
        vs.append(vs[-1] + step * p)
        residual = residual - step * Hp
        rho_next = float(np.sum(residual**2))
        p = residual + (rho_next / rho) * p
        rho = rho_next
    return np.array(vs)


def itd(grad_x: Array, grad_y: Array, jxy: ProductAt, hyy: ProductAt, alpha: float, D: int) -> Array:
    """Eq. (4'): grad_x - alpha sum_{t<D} Jxy_t prod_{j=t+1}^{D-1} (I - alpha Hyy_j) grad_y, from the last
    step back.

    jxy(t, v) and hyy(t, v) multiply at (x, y_t), on the batch of inner step t; grad_x, grad_y of f_s are at
    (x, y_D). The product is applied from the right, j = D-1 first: a_{D-1} = grad_y,
    a_{t-1} = (I - alpha Hyy_t) a_t.
    """
    a = np.array(grad_y, dtype=np.float64)
    out = np.array(grad_x, dtype=np.float64)
    for t in range(D - 1, -1, -1):
        out = out - alpha * jxy(t, a)
        a = a - alpha * hyy(t, a)
    return out


def neumann(v0: Array, products: Sequence[Product], eta: float) -> Array:
    """v = eta sum_{i=0}^{Q} nu_i, nu_Q = v0, nu_{i-1} = nu_i - eta H_i nu_i; products in order of use, H_Q
    first.

    Q + 1 terms, v0 among them. With one H throughout: eta sum_{i=0}^{Q} (I - eta H)^i v0.
    """
    nu = np.array(v0, dtype=np.float64)
    total = nu.copy()
    for product in products:
        nu = nu - eta * product(nu)
        total = total + nu
    return eta * total


def neumann_batch_sizes(B: float, Q: int, eta: float, mu: float) -> Array:
    """|B_{Q+1-j}| = B Q (1 - eta mu)^{j-1}, j = 1..Q, before rounding, in order of use: B_Q, .., B_1;
    the last >= 1.
    """
    sizes = np.array([B * Q * (1.0 - eta * mu) ** (j - 1) for j in range(1, Q + 1)])
    if Q > 0 and sizes[-1] < 1.0:
        raise ValueError(f"the smallest batch would have {sizes[-1]} samples")
    return sizes


# Quadratic programs by enumeration


class QP(NamedTuple):
    """z, the value there, and the largest violation of the optimality conditions relative to the data."""

    z: Array
    value: float
    violation: float


def simplex_qp(A: Array, c: Array, S: int, extra: Array | None = None, tolerance: float = 1e-9) -> QP:
    """min |A z|^2 - c'z over z >= 0, z_1 + .. + z_S = 1, extra z >= 0: every set of active inequalities is
    tried.

    A (P, n), c (n,), n >= S, extra (m, n). Per set: z = z0 + Z w with Z an orthonormal basis of the null
    space of the equalities, and w from the singular values of A Z, those below 1e-12 of the largest dropped;
    the multipliers by least squares. Of the feasible points the best within rounding, 1e-13 of the data, the
    one that violates 2 A'A z - c + tau 1_S = B'mu, mu >= 0 least. A dropped value can only give a poorer
    point: some optimum has a set of its own on which it is unique.
    """
    n = A.shape[1]
    if len(A) > n:
        A = np.asarray(np.linalg.qr(A, mode="r"))
    B = np.eye(n) if extra is None else np.vstack([np.eye(n), extra])
    ones = (np.arange(n) < S).astype(np.float64)
    scale = float(np.max(np.sum(A**2, axis=0)) + np.max(np.abs(c)))
    points: list[QP] = []
    for active in (list(W) for size in range(n) for W in combinations(range(len(B)), size)):
        equalities = np.vstack([ones, B[active]])
        U, s, Vt = np.linalg.svd(equalities)
        rank = int(np.sum(s > 1e-12 * s[0]))
        z0 = Vt[:rank].T @ (U[0, :rank] / s[:rank])  # right-hand side (1, 0, .., 0)
        if np.max(np.abs(equalities @ z0 - np.eye(len(equalities))[0])) > 1e-9:
            continue
        z = z0
        Z = Vt[rank:].T
        if rank < n:
            Ua, sa, Vat = np.linalg.svd(A @ Z, full_matrices=False)
            nonzero = sa > 1e-12 * sa[0]
            Ua = Ua[:, nonzero]
            sa = sa[nonzero]
            Vat = Vat[nonzero]
            z = z0 + Z @ (Vat.T @ (-(Ua.T @ (A @ z0)) / sa + 0.5 * (Vat @ (Z.T @ c)) / sa**2))
        z[[i for i in active if i < n]] = 0.0
        if np.min(B @ z) < -1e-10 * max(1.0, float(np.max(np.abs(z)))) or np.sum(z[:S]) <= 0.0:
            continue
        z = np.maximum(z, 0.0)
        z[:S] /= np.sum(z[:S])
        slope = 2.0 * (A.T @ (A @ z)) - c
        multipliers = np.linalg.lstsq(np.vstack([-ones, B[active]]).T, slope, rcond=1e-12)[0]
        gap = slope - np.vstack([-ones, B[active]]).T @ multipliers
        violation = max(float(np.max(np.abs(gap))), float(np.max(-multipliers[1:], initial=0.0)))
        violation = violation / scale if scale > 0.0 else 0.0
        points.append(QP(z, float(np.sum((A @ z) ** 2) - c @ z), violation))
    least = min(point.value for point in points)
    best = min(
        (point for point in points if point.value <= least + 1e-13 * scale), key=lambda point: point.violation
    )
    if best.violation > tolerance:
        raise RuntimeError(f"the quadratic program is not solved, violation {best.violation}")
    return best


def wc_weights(grads: Array, phi: Array, r: Array, u: float) -> Array:
    """QP (5): argmin over the simplex of |sum_s lambda_s r_s grad_s|^2 - u sum_s lambda_s r_s phi_s;
    no factor 1/2.
    """
    return simplex_qp((r[:, None] * grads).T, u * r * phi, len(r)).z


def wc_direction(grads: Array, lam: Array, r: Array) -> Array:
    """d = sum_s r_s lambda_s grad_s, r_s lambda_s not renormalised."""
    return (r * lam) @ grads


def wc_slack(grads: Array, phi: Array, r: Array, u: float, lam: Array) -> Array:
    """2 r_s <d, grad_s> - 2 |d|^2 - u (r_s phi_s - lambda.(r phi)):
    optimal iff >= 0 and 0 where lambda_s > 0.
    """
    d = wc_direction(grads, lam, r)
    return 2.0 * r * (grads @ d) - 2.0 * float(d @ d) - u * (r * phi - float(lam @ (r * phi)))


def wc_kkt(grads: Array, phi: Array, r: Array, u: float, lam: Array) -> float:
    """Largest violation of the optimality of lambda in (5): simplex, slack >= 0, lambda slack = 0.

    The last two relative to max_s r_s^2 |grad_s|^2 + u max_s |r_s phi_s|.
    """
    slack = wc_slack(grads, phi, r, u, lam)
    scale = float(np.max(r**2 * np.sum(grads**2, axis=1)) + u * np.max(np.abs(r * phi)))
    optimal = max(float(np.max(-slack)), float(np.max(np.abs(lam * slack)))) / (scale if scale > 0.0 else 1.0)
    return max(optimal, abs(float(np.sum(lam)) - 1.0), float(np.max(-lam)))


# WC-MHGD (Algorithm 1), Algorithm 4 and MOML


@dataclass
class WCTrajectory:
    """x (K+1, p); y (K+1, q), y[0] the start and y[k+1] the end of the inner loop at x[k].

    phi (K, S): f_s(x[k], y[k+1]); grads (K, S, p) and lambdas (K, S) there; d (K, p), x[k+1] = x[k] - beta
    d[k].
    """

    x: Array
    y: Array
    phi: Array
    grads: Array
    lambdas: Array
    d: Array


def wc_mhgd(
    problem: QuadraticBilevel,
    x0: Array,
    y0: Array,
    K: int,
    D: int,
    *,
    alpha: float,
    beta: float,
    r: Array | None = None,
    u: float | Sequence[float] = 0.0,
    hypergradient: str = "cg",
    N: int = 10,
    eta: float = 0.5,
    Q: int = 3,
    warm_start: bool = True,
) -> WCTrajectory:
    """K times: D inner steps, hypergradients at (x, y_D), lambda from (5), x <- x - beta sum_s r_s lambda_s
    grad_s.

    hypergradient: "cg" (N steps from the v_s of the step before, first 0), "itd" or "neumann"
    (eta, Q, full Hessian). r None is r_s = 1, without the factor r_s: Algorithm 4 for u = 0. MOML is
    Algorithm 4 with "itd" and warm_start False: y starts from y0 in every outer step instead of from the last
    y_D. v is carried over either way. u may differ from step to step (K values). phi in (5) is f_s(x, y_D),
    where the hypergradients are taken.
    """
    S = len(problem.t)
    weights = np.ones(S) if r is None else np.asarray(r, dtype=np.float64)
    x = np.array(x0, dtype=np.float64)
    y = np.array(y0, dtype=np.float64)
    v = np.zeros((S, len(y0)))
    xs = [x]
    yends = [y]
    rest = []
    for uk in np.broadcast_to(np.asarray(u, dtype=np.float64), (K,)):
        ys = problem.inner(x, y if warm_start else y0, alpha, D)
        y = ys[-1]
        if hypergradient == "cg":
            grad, v = problem.cg_hypergradients(x, y, v, N)
        elif hypergradient == "itd":
            grad = problem.itd_hypergradients(x, ys, alpha)
        elif hypergradient == "neumann":
            grad = problem.neumann_hypergradients(x, y, eta, Q)
        else:
            raise ValueError(hypergradient)
        phi = problem.f(x, y)
        lam = wc_weights(grad, phi, weights, float(uk))
        d = wc_direction(grad, lam, weights)
        x = x - beta * d
        xs.append(x)
        yends.append(y)
        rest.append((phi, grad, lam, d))
    return WCTrajectory(
        np.array(xs), np.array(yends), *(np.array(table) for table in zip(*rest, strict=True))
    )


# FORUM


@dataclass
class ForumTrajectory:
    """w (K+1, p+q), w = (x, y). lambdas (K, S) averaged, duals (K, S) the QP's own; nu (K,), grad_q, d
    (K, p+q).

    w[k+1] = w[k] + (beta d_x, alpha d_y).
    """

    w: Array
    lambdas: Array
    duals: Array
    nu: Array
    grad_q: Array
    d: Array


def forum_pi(grads: Array, grad_q: Array, target: float, eps: float) -> Array:
    """pi_s = target - <grad q, grad F_s> / (|grad q|^2 + eps)."""
    return target - (grads @ grad_q) / (float(grad_q @ grad_q) + eps)


def forum_dual(
    grads: Array, grad_q: Array, rho: float, variant: str, eps: float, phi_factor: float = 1.0
) -> Array:
    """The dual's lambda~ on the simplex; grads (S, P) as the variant wants them, grad_q (P,).

    Solved in nu |grad q|.

    exact: min |sum lambda_s grad F_s + nu grad q|^2 - 2 nu phi_factor rho |grad q|^2 over nu >= 0, the dual
    of min_d max_s <grad F_s, d> + |d|^2 / 2 subject to <grad q, d> <= -phi_factor rho |grad q|^2.
    official: min |..|^2 - nu rho |grad q|^2 over nu >= 0, nu >= sum lambda_s pi_s. The objective grows in nu
    from rho / 2 - <grad q, sum lambda_s grad F_s> / |grad q|^2 on, so nu is its bound but for eps.
    """
    S = len(grads)
    length = float(np.linalg.norm(grad_q))
    unit = grad_q / length if length > 0.0 else grad_q
    A = np.vstack([grads, unit]).T
    c = np.zeros(S + 1)
    if variant == "exact":
        c[S] = 2.0 * phi_factor * rho * length
        return simplex_qp(A, c, S).z[:S]
    if variant == "official":
        c[S] = rho * length
        bound = np.append(-length * forum_pi(grads, grad_q, rho, eps), 1.0)
        return simplex_qp(A, c, S, bound[None]).z[:S]
    raise ValueError(variant)


def forum(
    problem: QuadraticBilevel,
    x0: Array,
    y0: Array,
    K: int,
    D: int,
    *,
    alpha: float,
    beta: float,
    rho: float = 2.0,
    variant: str = "official",
    phi_factor: float = 1.0,
    eps: float = 1e-8,
) -> ForumTrajectory:
    """w = (x, y); y~ is y after D steps of size alpha on g(x, .), a constant when q(w) = g(x, y) - g(x, y~)
    is derived.

    grad q = (grad_x g(x, y) - grad_x g(x, y~), grad_y g(x, y)), grad F_s = (grad_x f_s, grad_y f_s) at
    (x, y); lambda_k = (1 - beta_k) lambda_{k-1} + beta_k lambda~, beta_k = 1 / (2 k), k = 1..K;
    nu = max(sum_s lambda_{k,s} pi_s, 0), d = -(sum_s lambda_{k,s} grad F_s + nu grad q); x += beta d_x,
    y += alpha d_y.

    Readings. official: grad F_s / |grad F_s| (over x and y together) stands for grad F_s everywhere, in pi,
    the QP and d; a zero gradient stays zero. lambda_0 = 0, so the sum of lambda_k is below 1 and nu follows
    that lambda_k, not lambda_k over its sum; pi_s holds rho, as in the exact form, although the objective has
    half of it. exact: raw gradients, lambda_0 = 1/S, pi_s and the constraint hold phi_factor rho; phi_factor
    is not read by official. In both eps is added to |grad q|^2 where pi divides by it, nowhere else. x and y
    move at once, with gradients at the old w.
    """
    S = len(problem.t)
    p = len(x0)
    w = np.concatenate([x0, y0]).astype(np.float64)
    lam = np.full(S, 1.0 / S) if variant == "exact" else np.zeros(S)
    ws = [w]
    rest = []
    for k in range(1, K + 1):
        x = w[:p]
        y = w[p:]
        near = problem.inner(x, y, alpha, D)[-1]
        grad_q = np.concatenate([problem.grad_x_g(x, y) - problem.grad_x_g(x, near), problem.grad_y_g(x, y)])
        grads = np.hstack([problem.grad_x_f(x, y), problem.grad_y_f(x, y)])
        target = phi_factor * rho
        if variant == "official":
            norms = np.linalg.norm(grads, axis=1, keepdims=True)
            grads = grads / np.where(norms > 0.0, norms, 1.0)
            target = rho
        dual = forum_dual(grads, grad_q, rho, variant, eps, phi_factor)
        rate = 1.0 / (2.0 * k)
        lam = (1.0 - rate) * lam + rate * dual
        nu = max(float(lam @ forum_pi(grads, grad_q, target, eps)), 0.0)
        d = -(lam @ grads + nu * grad_q)
        w = w + np.concatenate([beta * d[:p], alpha * d[p:]])
        ws.append(w)
        rest.append((lam, dual, nu, grad_q, d))
    return ForumTrajectory(np.array(ws), *(np.array(table) for table in zip(*rest, strict=True)))


# MoCo


@dataclass
class MocoTrajectory:
    """x (K+1, p), y (K+1, q), starts first; h (K, S, p),
    Y (K, S, p) and lambdas (K, S) after their updates.
    """

    x: Array
    y: Array
    h: Array
    Y: Array
    lambdas: Array


def moco(
    problem: QuadraticBilevel,
    x0: Array,
    y0: Array,
    K: int,
    *,
    alpha: float,
    beta: float,
    eta: float,
    Q: int,
    b0: float = 0.5,
    gamma0: float = 0.1,
    rho: float = 0.0,
    inner_steps: int = 1,
) -> MocoTrajectory:
    """k = 1..K, b_k = b0 / sqrt(k), gamma_k = gamma0 / sqrt(k), in this order, each line with the newest
    values:

    y <- inner_steps gradient steps on g(x, .), from the last y;  h_s = Neumann hypergradient at (x, y);
    Y_s <- Y_s - b_k (Y_s - h_s), Y = 0 before;  lambda <- P_simplex(lambda - gamma_k (YY' + rho I) lambda),
    1/S before; x <- x - beta sum_s lambda_s Y_s. Y has rows here, so YY' (S, S) is the Gram matrix. No factor
    2 in its gradient.
    """
    S = len(problem.t)
    x = np.array(x0, dtype=np.float64)
    y = np.array(y0, dtype=np.float64)
    Y = np.zeros((S, len(x)))
    lam = np.full(S, 1.0 / S)
    xs = [x]
    yends = [y]
    rest = []
    for k in range(1, K + 1):
        y = problem.inner(x, y, alpha, inner_steps)[-1]
        h = problem.neumann_hypergradients(x, y, eta, Q)
        Y = Y - b0 / np.sqrt(k) * (Y - h)
        lam = project_simplex(lam - gamma0 / np.sqrt(k) * (Y @ (Y.T @ lam) + rho * lam))
        x = x - beta * (lam @ Y)
        xs.append(x)
        yends.append(y)
        rest.append((h, Y, lam))
    return MocoTrajectory(
        np.array(xs), np.array(yends), *(np.array(table) for table in zip(*rest, strict=True))
    )


# Softmax regression


def softmax_rows(logits: Array) -> Array:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def cross_entropies(logits: Array, labels: Labels) -> Array:
    """-log softmax(logits_j)[labels_j], (n,)."""
    z = logits - logits.max(axis=1, keepdims=True)
    return np.log(np.sum(np.exp(z), axis=1)) - z[np.arange(len(z)), labels]


def softmax_errors(logits: Array, labels: Labels) -> Array:
    """P - onehot, (n, classes): the slopes of cross_entropies."""
    P = softmax_rows(logits)
    P[np.arange(len(P)), labels] -= 1.0
    return P


def softmax_curvature(logits: Array, a: Array) -> Array:
    """(diag P_j - P_j P_j') a_j per row j, (n, classes)."""
    P = softmax_rows(logits)
    return P * (a - np.sum(P * a, axis=1, keepdims=True))


# Data hyper-cleaning


def sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


@dataclass(frozen=True)
class HyperCleaning:
    """S tasks on the same inputs, each with its labels; a weight sigmoid(x_j) per training sample, shared by
    the tasks.

    g_s = (1/n) sum_j sigmoid(x_j) CE(X_j W_s, labels_sj) + reg |W_s|^2, g = sum_s g_s (no 1/S),
    f_s = mean CE(X_v W_s, y_v).
    X (n, d), labels (S, n), X_v (m, d), y_v (m,); W (S, d, classes), no bias; x (n,). Rows: a batch, then n
    or m is its size (a row that is listed twice counts twice), None for all.
    """

    X: Array
    labels: Labels
    X_v: Array
    y_v: Labels
    classes: int
    reg: float

    def lower(self, x: Array, W: Array, rows: Rows = None) -> Array:
        """g_s, (S,)."""
        chosen = slice(None) if rows is None else rows
        X = self.X[chosen]
        weight = sigmoid(x[chosen])
        values = []
        for Ws, labels in zip(W, self.labels, strict=True):
            values.append(
                np.mean(weight * cross_entropies(X @ Ws, labels[chosen])) + self.reg * np.sum(Ws**2)
            )
        return np.array(values)

    def lower_grad(self, x: Array, W: Array, rows: Rows = None) -> Array:
        """X'(sigmoid(x) (P - onehot)) / n + 2 reg W_s per task, (S, d, classes)."""
        chosen = slice(None) if rows is None else rows
        X = self.X[chosen]
        weight = sigmoid(x[chosen])
        out = []
        for Ws, labels in zip(W, self.labels, strict=True):
            E = softmax_errors(X @ Ws, labels[chosen])
            out.append(X.T @ (weight[:, None] * E) / len(X) + 2.0 * self.reg * Ws)
        return np.array(out)

    def hvp(self, x: Array, W: Array, s: int, v: Array, rows: Rows = None) -> Array:
        """Hyy v of task s: X'(sigmoid(x) (P a - P sum(P a))) / n + 2 reg v with a = X v, (d, classes)."""
        chosen = slice(None) if rows is None else rows
        X = self.X[chosen]
        weight = sigmoid(x[chosen])
        return X.T @ (weight[:, None] * softmax_curvature(X @ W[s], X @ v)) / len(X) + 2.0 * self.reg * v

    def jxy(self, x: Array, W: Array, s: int, v: Array, rows: Rows = None) -> Array:
        """[Jxy v]_j = sigmoid'(x_j) <(P - onehot)_j, (X v)_j> / n, (n,), 0 outside the batch."""
        chosen = np.arange(len(self.X)) if rows is None else np.asarray(rows)
        X = self.X[chosen]
        weight = sigmoid(x[chosen])
        E = softmax_errors(X @ W[s], self.labels[s][chosen])
        out = np.zeros(len(self.X))
        np.add.at(out, chosen, weight * (1.0 - weight) * np.sum(E * (X @ v), axis=1) / len(X))
        return out

    def upper(self, W: Array, rows: Rows = None) -> Array:
        """f_s, (S,), on the same rows for every task."""
        chosen = slice(None) if rows is None else rows
        return np.array([np.mean(cross_entropies(self.X_v[chosen] @ Ws, self.y_v[chosen])) for Ws in W])

    def upper_grad(self, W: Array, rows: Sequence[Rows] | None = None) -> Array:
        """X_v'(P - onehot) / m per task, (S, d, classes); rows[s] the batch of task s. grad_x f_s = 0."""
        out = []
        for s, Ws in enumerate(W):
            chosen = slice(None) if rows is None or rows[s] is None else rows[s]
            X = self.X_v[chosen]
            out.append(X.T @ softmax_errors(X @ Ws, self.y_v[chosen]) / len(X))
        return np.array(out)

    def inner(
        self, x: Array, W0: Array, alpha: float, D: int, batches: Sequence[Rows] | None = None
    ) -> Array:
        """W_0..W_D, (D+1, S, d, classes); batches[t] the rows of the step from W_t."""
        return gradient_descent(
            lambda t, W: self.lower_grad(x, W, None if batches is None else batches[t]), W0, alpha, D
        )

    def itd(
        self,
        x: Array,
        Ws: Array,
        alpha: float,
        batches: Sequence[Rows] | None = None,
        f_rows: Sequence[Rows] | None = None,
    ) -> Array:
        """Eq. (4') along W_0..W_D, (S, n); the products of step t on the batch of step t."""
        at = [None] * (len(Ws) - 1) if batches is None else batches
        slopes = self.upper_grad(Ws[-1], f_rows)
        out = []
        for s in range(len(self.labels)):

            def jxy(t: int, v: Array, s: int = s) -> Array:
                return self.jxy(x, Ws[t], s, v, at[t])

            def hyy(t: int, v: Array, s: int = s) -> Array:
                return self.hvp(x, Ws[t], s, v, at[t])

            out.append(itd(np.zeros(len(x)), slopes[s], jxy, hyy, alpha, len(Ws) - 1))
        return np.array(out)

    def neumann(
        self,
        x: Array,
        W: Array,
        eta: float,
        Q: int,
        batches: Sequence[Rows] | None = None,
        f_rows: Sequence[Rows] | None = None,
        g_rows: Rows = None,
    ) -> Array:
        """-Jxy v_s, (S, n). batches: the Q sets of the Hessians in order of use, B_Q first; g_rows: the set
        of Jxy.

        Both are the same for all tasks, f_rows[s] (the set of v0 = grad f_s) is not.
        """
        used = [None] * Q if batches is None else batches
        slopes = self.upper_grad(W, f_rows)
        out = []
        for s in range(len(self.labels)):
            products = [lambda v, s=s, rows=rows: self.hvp(x, W, s, v, rows) for rows in used]
            out.append(-self.jxy(x, W, s, neumann(slopes[s], products, eta), g_rows))
        return np.array(out)
