"""Federated rounds and server steps: one client after the other, one run at a time, hand-written gradients,
float64.

Equations as in "Online Mirror Descent for Tchebycheff Scalarization in Multi-Objective Optimization" and in
the papers of the methods compared there. m clients with uniform preference 1/m; f_i the loss of client i; a
round sends theta to all clients, each takes tau steps of gradient descent to theta_i. u_i = theta_i - theta
is the update of client i, g_i = -u_i / eta its pseudo-gradient and ell_i the mean of the losses it met on the
way.

A client is a function (theta, rows or None) -> (loss, gradient), None for all of its data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.reference.common import Array, project_simplex
from tests.reference.omd import AdaptiveMean

Labels = NDArray[np.int64]
Client = Callable[[Array, Any], tuple[float, Array]]
Transform = Callable[[float], tuple[float, float]]
State = dict[str, Any]
Options = dict[str, Any]
Step = tuple[Array, Array]


# Losses


def mlp_loss_and_grad(theta: Array, X: Array, y: Labels, hidden: int, classes: int) -> tuple[float, Array]:
    """Mean softmax cross-entropy of z = W2 relu(W1 x + b1) + b2, theta = (W1, b1, W2, b2), each row by row.

    dL/dz = (softmax(z) - onehot(y)) / n; the slope of relu at 0 is 0.
    """
    n, D = X.shape
    ends = np.cumsum([hidden * D, hidden, classes * hidden, classes])
    if theta.shape != (ends[-1],):
        raise ValueError(f"theta has shape {theta.shape}, the network {ends[-1]} parameters")
    W1 = theta[: ends[0]].reshape(hidden, D)
    b1 = theta[ends[0] : ends[1]]
    W2 = theta[ends[1] : ends[2]].reshape(classes, hidden)
    b2 = theta[ends[2] :]
    a = X @ W1.T + b1
    h = np.maximum(a, 0.0)
    z = h @ W2.T + b2
    z = z - z.max(axis=1, keepdims=True)
    logp = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    loss = -float(np.mean(logp[np.arange(n), y]))
    dz = np.exp(logp)
    dz[np.arange(n), y] -= 1.0
    dz /= n
    da = (dz @ W2) * (a > 0.0)
    return loss, np.concatenate([(da.T @ X).ravel(), da.sum(axis=0), (dz.T @ h).ravel(), dz.sum(axis=0)])


def quadratic_loss_and_grad(theta: Array, A: Array, b: Array, c: float = 0.0) -> tuple[float, Array]:
    """0.5 (theta - b)' A (theta - b) + c with symmetric A, and A (theta - b)."""
    Ad = A @ (theta - b)
    return 0.5 * float((theta - b) @ Ad) + c, Ad


def quadratic_after_steps(theta: Array, A: Array, b: Array, eta: float, tau: int) -> Array:
    """tau gradient steps in closed form: b + (I - eta A)^tau (theta - b), from the eigenvalues of A."""
    values, vectors = np.linalg.eigh(A)
    return b + vectors @ ((1.0 - eta * values) ** tau * (vectors.T @ (theta - b)))


def mlp_client(X: Array, y: Labels, hidden: int, classes: int) -> Client:
    def at(theta: Array, rows: Any) -> tuple[float, Array]:
        chosen = slice(None) if rows is None else rows
        return mlp_loss_and_grad(theta, X[chosen], y[chosen], hidden, classes)

    return at


def propfair_transform(base: float, eps0: float = 0.2, below: str = "linear") -> Transform:
    """PropFair: value and slope at f of the loss that replaces f, with M = base; the threshold is at
    M - f = eps0.

    -log(1 - f/M), slope 1 / (M - f), while M - f >= eps0. Below: "linear" is f/M, slope 1/M (public code, a
    jump at the threshold); "huber" the tangent there, -log(eps0/M) + (eps0 - (M - f)) / eps0, slope 1/eps0
    (the original paper, whose objective has no log M: a constant).
    """
    if below not in ("linear", "huber"):
        raise ValueError(below)

    def transform(f: float) -> tuple[float, float]:
        rest = base - f
        if rest >= eps0:
            return -float(np.log(rest / base)), 1.0 / rest
        if below == "linear":
            return f / base, 1.0 / base
        return -float(np.log(eps0 / base)) + (eps0 - rest) / eps0, 1.0 / eps0

    return transform


# The clients' part of a round


class LocalRound(NamedTuple):
    """g, thetas (m, P); ell (m,) mean of the losses met; at_start, at_end (m,) on all data;
    met[i] the losses met.
    """

    g: Array
    ell: Array
    at_start: Array
    at_end: Array
    thetas: Array
    met: list[Array]


def local_round(
    theta: Array,
    clients: Sequence[Client],
    eta: float,
    tau: int,
    batches: Sequence[Sequence[Any]] | None = None,
    transform: Transform | None = None,
) -> LocalRound:
    """theta_{i,0} = theta, theta_{i,s} = theta_{i,s-1} - eta grad f_i(theta_{i,s-1}), s = 1..tau;
    g = (theta - theta_i) / eta.

    batches[i][s]: the rows client i uses in step s; its number of steps is then len(batches[i]), which may
    differ between clients, and tau is not read. ell is the plain mean over steps, small batches count as much
    as full ones. With a transform phi the clients descend on phi(f_i): slope phi'(f) times grad f. All losses
    returned are f itself.
    """
    thetas = []
    met = []
    for i, client in enumerate(clients):
        x = np.array(theta, dtype=np.float64)
        losses = []
        for rows in [None] * tau if batches is None else batches[i]:
            loss, grad = client(x, rows)
            losses.append(loss)
            x = x - eta * (grad if transform is None else transform(loss)[1] * grad)
        thetas.append(x)
        met.append(np.array(losses))
    return LocalRound(
        g=np.array([(theta - x) / eta for x in thetas]),
        ell=np.array([losses.mean() for losses in met]),
        at_start=np.array([client(theta, None)[0] for client in clients]),
        at_end=np.array([client(x, None)[0] for client, x in zip(clients, thetas, strict=True)]),
        thetas=np.array(thetas),
        met=met,
    )


# Server steps: (theta, thetas, ell, eta, state, options) -> next theta, weights (m,). They change the state
# in place.


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max())
    return e / e.sum()


def fedavg(theta: Array, thetas: Array, ell: Array, eta: float, state: State, options: Options) -> Step:
    """(1/m) sum_i theta_i; the server step of PropFair as well."""
    weights = np.full(len(ell), 1.0 / len(ell))
    return weights @ thetas, weights


def tch(theta: Array, thetas: Array, ell: Array, eta: float, state: State, options: Options) -> Step:
    """theta_k, k = argmax ell_i, the smallest index on ties."""
    k = int(np.argmax(ell))
    return thetas[k].copy(), np.eye(len(ell))[k]


def stch(theta: Array, thetas: Array, ell: Array, eta: float, state: State, options: Options) -> Step:
    """sum_i alpha_i theta_i, alpha proportional to exp(ell_i / (m mu)) (TERM with tilt 1 / (m mu))."""
    weights = softmax(ell / (len(ell) * options["mu"]))
    return weights @ thetas, weights


def omd(theta: Array, thetas: Array, ell: Array, eta: float, state: State, options: Options) -> Step:
    """sum_i lambda_i theta_i with the lambda of the round, then lambda moves with
    s = lambda_lr_effective = eta_lambda / m.

    pgd: projection of lambda + s ell on the simplex (AFL); eg: lambda proportional to lambda exp(s ell), in
    logs.
    """
    step = options["lambda_lr_effective"] * ell
    lam = state.setdefault("lambda", np.full(len(ell), 1.0 / len(ell)))
    if options["variant"] == "pgd":
        state["lambda"] = project_simplex(lam + step)
    elif options["variant"] == "eg":
        state["log"] = state.get("log", np.log(lam)) + step
        state["log"] = state["log"] - state["log"].max()
        state["lambda"] = softmax(state["log"])
    else:
        raise ValueError(options["variant"])
    return lam @ thetas, lam


def qffl(theta: Array, thetas: Array, ell: Array, eta: float, state: State, options: Options) -> Step:
    """q-FedAvg: theta - sum_i ell_i^q g_i / sum_i h_i, h_i = q ell_i^(q-1) |g_i|^2 + ell_i^q / eta.

    The weights are those of the updates u_i, ell_i^q / (eta sum h); their sum is below 1 for q > 0.
    """
    q = options["q"]
    g = (theta - thetas) / eta
    h = ell**q / eta
    if q != 0.0:
        h = h + q * ell ** (q - 1.0) * np.sum(g**2, axis=1)
    return theta - (ell**q @ g) / h.sum(), ell**q / (eta * h.sum())


def fedfv(theta: Array, thetas: Array, ell: Array, eta: float, state: State, options: Options) -> Step:
    """FedFV (alpha, tau_fv) with all clients in every round; state["round"] counts from 1.

    Clients in ascending order of ell (stable). From position ceil((m-1)(1-alpha)) on u_i stays; any other
    starts at v = u_i and, for j in that order, j != i, loses its part along u_j while <u_j, v> < 0:
    v -= <u_j, v> / |u_j|^2 u_j. g = mean of these. In rounds >= tau_fv >= 1, s = sum of the u_i with <u_i,
    g> < 0: if <g, s> < 0, g -= <g, s> / |s|^2 s (older rounds of the original rule hold nobody, as every
    client was here in this one). theta + g |mean u| / |g|.

    Zero vectors: u_j = 0 is no conflict and changes nobody; mean u = 0 or g = 0 leaves theta where it is. The
    ceiling ignores rounding (1e-9). The step is no combination with weights of its own: they are nan.
    """
    m = len(ell)
    u = thetas - theta
    order = [int(i) for i in np.argsort(ell, kind="stable")]
    chosen = order[int(np.ceil((m - 1) * (1.0 - options["alpha"]) - 1e-9)) :]
    total = np.zeros_like(theta)
    for i in range(m):
        v = u[i].copy()
        for j in order:
            if i not in chosen and j != i and u[j] @ v < 0.0:
                v = v - (u[j] @ v) / (u[j] @ u[j]) * u[j]
        total = total + v
    g = total / m
    if options["tau_fv"] >= 1 and state["round"] >= options["tau_fv"]:
        s = np.zeros_like(theta)
        for i in range(m):
            if u[i] @ g < 0.0:
                s = s + u[i]
        if g @ s < 0.0:
            g = g - (g @ s) / (s @ s) * s
    length = np.linalg.norm(g)
    if length > 0.0:
        g = g * (np.linalg.norm(u.mean(axis=0)) / length)
    return theta + g, np.full(m, np.nan)


def box_min_norm(G: Array, eps: float) -> Array:
    """argmin lambda' G lambda on the simplex with |lambda_i - 1/m| <= eps: active sets from the uniform
    point.

    Certified at the end by gap = max over the set of (lambda - x)' G lambda >= (value - least value) / 2.
    Where G is singular lambda need not be the only one; the combination sum_i lambda_i uhat_i is.
    """
    m = len(G)
    lam = np.full(m, 1.0 / m)
    low = max(0.0, 1.0 / m - eps)
    high = min(1.0, 1.0 / m + eps)
    at: dict[int, float] = {}  # entries held at a bound
    for _ in range(50 * m if eps > 0.0 else 0):
        free = [i for i in range(m) if i not in at]
        K = np.ones((len(free) + 1, len(free) + 1))
        K[:-1, :-1] = G[np.ix_(free, free)]
        K[-1, -1] = 0.0
        *p, nu = np.linalg.lstsq(K, np.append(-(G @ lam)[free], 0.0), rcond=1e-13)[0]
        if np.max(np.abs(p)) > 1e-13:
            ends = [high if d > 0.0 else low for d in p]
            room = [(ends[k] - lam[i]) / p[k] if p[k] != 0.0 else np.inf for k, i in enumerate(free)]
            block = int(np.argmin(room))
            lam[free] += min(1.0, room[block]) * np.array(p)
            if room[block] <= 1.0:
                lam[free[block]] = at[free[block]] = ends[block]
            continue
        slack = {i: ((G @ lam)[i] + nu) * (1.0 if v == low else -1.0) for i, v in at.items()}
        worst = min(slack, key=lambda i: slack[i], default=None)
        if worst is None or slack[worst] >= -1e-14:
            break
        del at[worst]
    slope = G @ lam
    x = np.full(m, low)
    left = 1.0 - m * low
    for i in np.argsort(slope, kind="stable"):
        x[i] += min(left, high - low)
        left = max(0.0, left - (high - low))
    if (lam - x) @ slope > 1e-12:
        raise RuntimeError(f"the quadratic program is not solved, gap {(lam - x) @ slope}")
    return lam


def fedmgda(theta: Array, thetas: Array, ell: Array, eta: float, state: State, options: Options) -> Step:
    """FedMGDA+ (eps): uhat_i = u_i / |u_i|, lambda = argmin |sum lambda_i uhat_i|^2 in the box around 1/m.

    step "models": sum lambda_i theta_i; "normalized" (the original): theta + server_lr sum lambda_i uhat_i. A
    client that did not move has uhat_i = 0, so it attracts as much weight as the box allows.
    """
    u = thetas - theta
    norms = np.linalg.norm(u, axis=1, keepdims=True)
    uhat = u / np.where(norms > 0.0, norms, 1.0)
    lam = box_min_norm(uhat @ uhat.T, options["eps"])
    if options.get("step", "models") == "models":
        return lam @ thetas, lam
    return theta + options.get("server_lr", 1.0) * (lam @ uhat), lam


SERVER = {f.__name__: f for f in (fedavg, tch, stch, omd, qffl, fedfv, fedmgda)} | {"propfair": fedavg}


@dataclass
class FederatedTrajectory:
    """thetas (T+1, P), theta^1 first; ells, weights (T, m), the client losses and weights of rounds 1..T.

    mean and adaptive: the two averages of theta^1..T; gamma: round -> weight of the stored ones, sum T.
    """

    thetas: Array
    ells: Array
    weights: Array
    mean: Array
    adaptive: Array
    gamma: dict[int, float]
    state: State
    rounds: list[LocalRound]


def trajectory(
    method: str,
    theta0: Array,
    clients: Sequence[Client],
    T: int,
    *,
    eta: float,
    tau: int,
    batches: Callable[[int], Sequence[Sequence[Any]]] | None = None,
    client_loss: str = "ell",
    offset: float = 1e-10,
    ties: str = "paper",
    **options: Any,
) -> FederatedTrajectory:
    """T rounds. batches(t), t = 1..T; client_loss: "ell" (the running mean), "at_start" or "at_end", plus the
    offset.

    Options: stch mu; omd variant ("pgd", "eg"), lambda_lr_effective; qffl q; propfair base, eps0, below;
    fedfv alpha, tau_fv; fedmgda eps, step, server_lr. The adaptive average (Algorithm 2) goes by dominance
    between the ells.
    """
    transform = propfair_transform(**options) if method == "propfair" else None
    state: State = {}
    thetas = [np.array(theta0, dtype=np.float64)]
    ells = []
    weights = []
    rounds = []
    ada = AdaptiveMean(ties)
    for t in range(1, T + 1):
        state["round"] = t
        local = local_round(thetas[-1], clients, eta, tau, None if batches is None else batches(t), transform)
        ell = getattr(local, client_loss) + offset
        ada.add(ell, thetas[-1])  # stores a copy
        theta, weight = SERVER[method](thetas[-1], local.thetas, ell, eta, state, options)
        thetas.append(theta)
        ells.append(ell)
        weights.append(weight)
        rounds.append(local)
    table = np.array(thetas)
    mean = np.sum(thetas[:-1], axis=0) / T
    return FederatedTrajectory(
        table, np.array(ells), np.array(weights), mean, ada.output(), ada.gamma, state, rounds
    )
