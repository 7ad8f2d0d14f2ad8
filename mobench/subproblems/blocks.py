"""Blocks of variables of a small dual: what each adds to the constraints h(d(mu)) and to the dual's Hessian.

Rows for variables with bounds, products for a ball or R^P of any size, `Set.project` and `Set.tangent` for
other sets. Runs are the last axis. Each block serves two iterations: `at` gives everything at d(mu); `begin`,
`system`, `reduce` and `move` are for the interior-point method, where the kinks of a projection are kept as
variables of their own.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mobench.core.arrays import Array, runs_last, tensor
from mobench.core.sets import Set
from mobench.subproblems.solution import TINY

BlockState = tuple[Array, ...]

LOOSE = (
    # share of the terms |a_k| sum mu_l |a_l| / s, which cancel in a_k'd, that counts as size of h_k on the
    # way
    1e-3
)


class Part(NamedTuple):
    """h (K, R) without c; size (K, R) of its terms; H (K, K, R); size of the terms of the objective (R,).

    Of bounds in the interior-point method: sum and number of complementary products, relative dual residual,
    s (D, R), v + s d (D, R). value (R,): the objective.
    """

    h: Array
    size: Array
    H: Array
    zero: Array
    products: Array = 0.0
    pairs: Array = 0
    dual: Array = 0.0
    s: Array = None
    v: Array = None
    value: Array = 0.0


class Rows:
    """Variables with bounds low <= d <= high (D, R) and rows a (K + 1, D, R); tau (K + 1, D)."""

    smooth = True  # whether the interior-point method sees no kinks

    def __init__(
        self, xp: ModuleType, a: Array, tau: Array, low: Array, high: Array, lengths: Array | None = None
    ) -> None:
        self.xp = xp
        self.a = a
        self.tau = tau[:, :, None]
        self.low = low
        self.high = high
        self.lengths = (a * a).sum(1) ** 0.5 if lengths is None else lengths  # (K + 1, R)

    def take(self, runs: Array) -> Rows:
        a = self.a[:, :, runs]
        low = self.low[:, runs]
        high = self.high[:, runs]
        lengths = self.lengths[:, runs]
        return Rows(self.xp, a, self.tau[:, :, 0], low, high, lengths)

    def at(self, mu: Array) -> Part:
        m = mu[:, None]
        s = (self.tau * m).sum(0)
        raw = -(self.a * m).sum(0) / s
        d = self.xp.minimum(self.xp.maximum(raw, self.low), self.high)
        bent = self.tau * d
        J = (self.a + bent)[1:]
        linear = self.a * d
        quadratic = (0.5 * d) * bent
        JB = J * (((raw > self.low) & (raw < self.high)) / s)
        if len(d) > 32:
            H = runs_last(self.xp, _first(self.xp, JB) @ _first(self.xp, J).swapaxes(1, 2))
        else:
            H = JB[:, None, 0] * J[None, :, 0]
            for p in range(1, len(d)):
                H = H + JB[:, None, p] * J[None, :, p]
        size = (abs(linear) + quadratic).sum(1) + LOOSE * self.lengths * ((self.lengths * mu).sum(0) / s[0])
        h = (linear + quadratic).sum(1)
        return Part(h[1:], size[1:], H, size[0], value=h[0])

    # the interior-point method keeps d as a variable of its own here: P_Q has kinks

    def begin(self, mu: Array) -> BlockState:
        """d strictly inside its bounds, and the multipliers of both bounds."""
        xp = self.xp
        m = mu[:, None]
        raw = -(self.a * m).sum(0) / (self.tau * m).sum(0)
        room = self.high - self.low
        margin = xp.where(room < 4.0, 0.25 * room, 1.0)
        d = xp.minimum(xp.maximum(raw, self.low + margin), self.high - margin)
        one = 0 * d + 1.0
        free = room > 0
        return (
            d,
            xp.where((self.low > -xp.inf) & free, one, 0.0),
            xp.where((self.high < xp.inf) & free, one, 0.0),
        )

    def system(self, state: BlockState, mu: Array) -> Part:
        """h at d; H holds the derivatives J, for `reduce`."""
        d, zl, zu = state
        m = mu[:, None]
        s = (self.tau * m).sum(0)
        bent = self.tau * d
        linear = self.a * d
        quadratic = (0.5 * d) * bent
        size = (abs(linear) + quadratic).sum(1)
        below = d - self.low
        above = self.high - d
        xp = self.xp
        products = xp.where(zl > 0, zl * below, 0.0).sum(0) + xp.where(zu > 0, zu * above, 0.0).sum(0)
        pairs = (zl > 0).sum(0) + (zu > 0).sum(0)
        pull = self.a * m
        v = pull.sum(0) + s * d
        free = self.high > self.low
        dual = xp.amax(xp.where(free, abs(v - zl + zu) / (abs(pull).sum(0) + s * abs(d) + TINY), 0.0), 0)
        h = (linear + quadratic)[1:].sum(1)
        return Part(h, size[1:], (self.a + bent)[1:], size[0], products, pairs, dual, s, v)

    def reduce(self, state: BlockState, part: Part, eps: Array) -> tuple[Array, Array]:
        """H = J S^-1 J' and J r / S after elimination of d and of the multipliers of its bounds."""
        S, r = self._local(state, part, eps)
        J = part.H
        JS = J / S
        H = JS[:, None, 0] * J[None, :, 0]
        for p in range(1, J.shape[1]):
            H = H + JS[:, None, p] * J[None, :, p]
        return H, (JS * r).sum(1)

    def _local(self, state: BlockState, part: Part, eps: Array) -> tuple[Array, Array]:
        d, zl, zu = state
        xp = self.xp
        below = d - self.low
        above = self.high - d
        S = part.s + xp.where(zl > 0, zl / below, 0.0) + xp.where(zu > 0, zu / above, 0.0)
        r = part.v - xp.where(zl > 0, eps / below, 0.0) + xp.where(zu > 0, eps / above, 0.0)
        return xp.where(self.high > self.low, S, xp.inf), r

    def move(self, state: BlockState, part: Part, dmu: Array, eps: Array) -> tuple[BlockState, Array]:
        """Change of the state, and how far it can go."""
        d, zl, zu = state
        xp = self.xp
        S, r = self._local(state, part, eps)
        dd = -(r + (part.H * dmu[:, None]).sum(0)) / S
        below = d - self.low
        above = self.high - d
        dl = xp.where(zl > 0, eps / below - zl - zl / below * dd, 0.0)
        du = xp.where(zu > 0, eps / above - zu + zu / above * dd, 0.0)
        far = xp.minimum(reach(xp, zl, dl), reach(xp, zu, du))
        far = xp.minimum(far, xp.minimum(reach(xp, below, dd), reach(xp, above, -dd)))
        return (dd, dl, du), far


class Gram:
    """Variables in a ball around 0 (R^P: radius inf), known by products alone: nothing here depends on P.

    G_kl = a_k'a_l (K, K, R), u_k = a_k'x (K, R), xx = |x|^2, square = radius^2 (R,), tau (K + 1,). With
    p = x - v/s: d = rho p - x, rho = min(1, radius/|p|), and B = rho (I - pp'/|p|^2) outside the ball, else
    I.
    """

    smooth = True  # whether the interior-point method sees no kinks

    def __init__(self, xp: ModuleType, G: Array, u: Array, xx: Array, square: Array, tau: Array) -> None:
        self.xp = xp
        self.G = G
        self.u = u
        self.xx = xx
        self.square = square
        self.tau = tau
        self.lengths = xp.stack([G[k, k] for k in range(len(G))]) ** 0.5

    def take(self, runs: Array) -> Gram:
        return Gram(self.xp, self.G[..., runs], self.u[:, runs], self.xx[runs], self.square[runs], self.tau)

    def at(self, mu: Array) -> Part:
        xp = self.xp
        tau = self.tau[1:, None]
        m = mu[1:]
        s = (self.tau[:, None] * mu).sum(0)
        av = (self.G * m).sum(1) / s  # a_k'v / s
        vv = (av * m).sum(0) / s
        xv = (self.u * m).sum(0) / s
        pp = self.xx - 2 * xv + vv
        outside = pp > self.square
        safe = xp.where(outside, pp, 1.0)
        rho = xp.where(outside, xp.sqrt(self.square / safe), 1.0)
        inverse = outside / safe
        less = rho - 1
        linear = less * self.u - rho * av
        dd = less * less * self.xx - 2 * rho * less * xv + rho * rho * vv
        ap = self.u - av
        dp = rho * pp - (self.xx - xv)
        bent = linear - ap * (inverse * dp)  # a_k'(I - pp'/|p|^2) d
        curved = dd - inverse * dp * dp
        H = self.G - (ap * inverse)[:, None] * ap
        H = H + tau[:, None] * bent + bent[:, None] * tau + (tau[:, None] * tau) * curved
        quadratic = (0.5 * tau) * dd
        zero = 0.5 * self.tau[0] * dd
        size = abs(linear) + quadratic + LOOSE * self.lengths * ((self.lengths * m).sum(0) / s)
        return Part(linear + quadratic, size, H * (rho / s), zero, value=zero)

    # in the interior-point method the ball is one more constraint |x + d|^2 <= radius^2, with multiplier nu
    # and slack omega, eliminated here: d = -(v + 2 nu x)/S, S = s + 2 nu, is smooth

    def begin(self, mu: Array) -> BlockState:
        bounded = self.square < self.xp.inf
        room = self.square - self.xx
        floor = 0.1 * self.square + TINY
        one = 0.0 * self.xx + 1.0
        omega = self.xp.where(room > floor, room, floor)
        return self.xp.where(bounded, one, 0.0)[None], self.xp.where(bounded, omega, 1.0)[None]

    def system(self, state: BlockState, mu: Array) -> Part:
        tau = self.tau[1:, None]
        m = mu[1:]
        nu = state[0][0]
        omega = state[1][0]
        S = (self.tau[:, None] * mu).sum(0) + 2 * nu
        Gm = (self.G * m).sum(1)
        vv = (Gm * m).sum(0)
        xv = (self.u * m).sum(0)
        linear = -(Gm + 2 * nu * self.u) / S
        xd = -(xv + 2 * nu * self.xx) / S
        dd = (vv + 4 * nu * xv + 4 * nu * nu * self.xx) / (S * S)
        quadratic = (0.5 * tau) * dd
        H = self.G + tau[:, None] * linear + linear[:, None] * tau + (tau[:, None] * tau) * dd
        out = self.xx + 2 * xd + dd  # |x + d|^2
        g = 2 * (self.u + linear + tau * (xd + dd)) / S
        over = self.xp.where(nu > 0, out - self.square, 0.0)
        primal = self.xp.where(nu > 0, abs(over + omega) / (self.square + out + TINY), 0.0)
        pairs = 1 * (nu > 0)
        h = linear + quadratic
        return Part(
            h,
            abs(linear) + quadratic,
            H / S,
            0.5 * self.tau[0] * dd,
            nu * omega,
            pairs,
            primal,
            g,
            (over, 4 * out / S),
        )

    def reduce(self, state: BlockState, part: Part, eps: Array) -> tuple[Array, Array]:
        """H and lag after elimination of nu."""
        pivot, rhs = self._local(state, part, eps)
        scaled = part.s / pivot
        return part.H - scaled[:, None] * part.s, scaled * rhs

    def _local(self, state: BlockState, part: Part, eps: Array) -> tuple[Array, Array]:
        nu = state[0][0]
        omega = state[1][0]
        over, own = part.v
        pivot = own + self.xp.where(nu > 0, omega / nu, self.xp.inf)
        return pivot, self.xp.where(nu > 0, over + eps / nu, 0.0)

    def move(self, state: BlockState, part: Part, dmu: Array, eps: Array) -> tuple[BlockState, Array]:
        pivot, rhs = self._local(state, part, eps)
        nu = state[0][0]
        omega = state[1][0]
        dnu = (rhs - (part.s * dmu).sum(0)) / pivot
        domega = self.xp.where(nu > 0, (eps - nu * omega - omega * dnu) / nu, 0.0)
        far = self.xp.minimum(reach(self.xp, state[0], dnu[None]), reach(self.xp, state[1], domega[None]))
        return (dnu[None], domega[None]), far


class General:
    """Variables in any set with a projection and its derivative; runs first inside, as `Set` wants them."""

    smooth = False  # whether the interior-point method sees no kinks

    def __init__(self, xp: ModuleType, X: Set, x: Tensor, rows: Tensor, tau: Tensor) -> None:
        self.xp = xp
        self.X = X
        self.x = x
        self.rows = rows
        self.tau = tau

    def take(self, runs: Array) -> General:
        chosen = torch.as_tensor(runs, device=self.x.device)
        return General(self.xp, self.X, self.x[chosen], self.rows[chosen], self.tau)

    def at(self, mu: Array) -> Part:
        mu_ = tensor(mu).to(self.x.device).mT
        s = (mu_ @ self.tau).unsqueeze(1)
        p = self.x - torch.bmm(mu_[:, None, 1:], self.rows).squeeze(1) / s
        d = self.X.project(p) - self.x
        tau = self.tau[1:]
        J = self.rows + tau[:, None] * d.unsqueeze(1)
        H = self.X.tangent(p, J) @ J.mT / s.unsqueeze(2)
        linear = torch.bmm(self.rows, d.unsqueeze(2)).squeeze(2)
        dd = d.square().sum(1, keepdim=True)
        quadratic = 0.5 * tau * dd
        zero = 0.5 * self.tau[0] * dd[:, 0]
        lengths = self.rows.norm(dim=2)
        size = linear.abs() + quadratic + LOOSE * lengths * ((mu_[:, 1:] * lengths).sum(1, keepdim=True) / s)
        parts = (linear + quadratic, size, 0.5 * (H + H.mT), zero)
        h, size, H, zero = (runs_last(self.xp, same(self.xp, part)) for part in parts)
        return Part(h, size, H, zero, value=zero)

    def begin(self, mu: Array) -> BlockState:
        return ()

    def system(self, state: BlockState, mu: Array) -> Part:
        return self.at(mu)

    def reduce(self, state: BlockState, part: Part, eps: Array) -> tuple[Array, Array]:
        return part.H, 0.0

    def move(self, state: BlockState, part: Part, dmu: Array, eps: Array) -> tuple[BlockState, Array]:
        return (), 0 * dmu[0] + self.xp.inf


Block = Rows | Gram | General


def reach(xp: ModuleType, x: Array, dx: Array) -> Array:
    """How far each run can go along dx until an x > 0 vanishes (inf: for ever)."""
    return xp.amin(xp.where(dx < 0, -x / dx, xp.inf), 0)


def same(xp: ModuleType, t: Array) -> Array:
    """t, which shares its numbers, in the library xp."""
    return t.numpy() if xp is np and isinstance(t, Tensor) else t


def _first(xp: ModuleType, x: Array) -> Array:
    """(..., R) -> (R, ...)."""
    return x.movedim(-1, 0) if xp is torch else np.moveaxis(x, -1, 0)
