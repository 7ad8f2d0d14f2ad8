"""Feasible sets X of the decision variables: projection and its derivative, batched over runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Set:
    """A closed convex subset of R^P. The loop projects every new iterate onto it."""

    def project(self, p: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        """Nearest point of X."""
        raise NotImplementedError

    def tangent(self, p: Float[Tensor, "R P"], V: Float[Tensor, "R k P"]) -> Float[Tensor, "R k P"]:
        """Derivative of `project` at the raw point p, applied to the k rows of V."""
        raise NotImplementedError


@dataclass(frozen=True)
class Free(Set):
    """X = R^P."""

    def project(self, p: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return p

    def tangent(self, p: Float[Tensor, "R P"], V: Float[Tensor, "R k P"]) -> Float[Tensor, "R k P"]:
        return V


@dataclass(frozen=True)
class Box(Set):
    """X = [lower, upper]^P."""

    lower: float
    upper: float

    def project(self, p: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return p.clamp(self.lower, self.upper)

    def tangent(self, p: Float[Tensor, "R P"], V: Float[Tensor, "R k P"]) -> Float[Tensor, "R k P"]:
        inside = (p > self.lower) & (p < self.upper)
        return V * inside.unsqueeze(1)


@dataclass(frozen=True)
class Intervals(Set):
    """X = [lower_1, upper_1] x .. x [lower_P, upper_P]."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def project(self, p: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return torch.maximum(torch.minimum(p, p.new_tensor(self.upper)), p.new_tensor(self.lower))

    def tangent(self, p: Float[Tensor, "R P"], V: Float[Tensor, "R k P"]) -> Float[Tensor, "R k P"]:
        inside = (p > p.new_tensor(self.lower)) & (p < p.new_tensor(self.upper))
        return V * inside.unsqueeze(1)


@dataclass(frozen=True)
class Ball(Set):
    """X = {x : |x| <= radius}."""

    radius: float

    def project(self, p: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        norm = torch.linalg.vector_norm(p, dim=-1, keepdim=True)
        # within rounding of the sphere is inside: so the projection of a projection is itself, bit for bit
        return torch.where(norm > self._outside(p), p * (self.radius / norm), p)

    def _outside(self, p: Tensor) -> float:
        return self.radius * (1.0 + 4.0 * torch.finfo(p.dtype).eps)

    def tangent(self, p: Float[Tensor, "R P"], V: Float[Tensor, "R k P"]) -> Float[Tensor, "R k P"]:
        norm = torch.linalg.vector_norm(p, dim=-1, keepdim=True).unsqueeze(1)
        unit = p.unsqueeze(1) / norm.clamp_min(torch.finfo(p.dtype).tiny)
        outside = self.radius / norm * (V - (V * unit).sum(-1, keepdim=True) * unit)
        return torch.where(norm > self._outside(p), outside, V)


@dataclass(frozen=True)
class L1Epigraph(Set):
    """X = {(x, s) in R^(n+1): |x|_1 <= s}, for regularisers in epigraph form.

    The projection of (p, q) is (sign(p) max(|p| - tau, 0), q + tau) with the root tau >= 0 of

        phi(tau) = sum_i max(|p_i| - tau, 0) - tau - q = 0,    tau = 0 where phi(0) <= 0 (inside).

    phi is the largest of its linear pieces sum_{i <= k} (|p|_(i) - tau) - tau - q, k = 0..n, over the k
    largest |p_i|, and all of them fall: the root is the largest of their roots, which sorting gives without a
    search.
    """

    n: int

    def project(self, p: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        x = p[:, : self.n]
        q = p[:, self.n :]
        size = x.abs()
        ordered, tau = self._threshold(size, q)
        shrunk = x.sign() * (size - tau).clamp_min(0.0)
        # |x|_1 in the order that the threshold sums in: a projected point is inside, not only up to rounding
        norm = (ordered - tau).clamp_min(0.0).cumsum(-1)[:, -1:]
        return torch.cat([shrunk, torch.where(tau > 0.0, norm, q)], -1)

    def tangent(self, p: Float[Tensor, "R P"], V: Float[Tensor, "R k P"]) -> Float[Tensor, "R k P"]:
        x = p[:, : self.n]
        q = p[:, self.n :]
        size = x.abs()
        _, tau = self._threshold(size, q)
        active = (size > tau).to(p.dtype)
        sign = (active * x.sign()).unsqueeze(1)
        dx = V[..., : self.n]
        dq = V[..., self.n :]
        # phi = 0 on the active coordinates: (k + 1) dtau = sum of sign_i dp_i - dq
        dtau = ((sign * dx).sum(-1, keepdim=True) - dq) / (1.0 + active.sum(-1)).view(-1, 1, 1)
        outside = torch.cat([active.unsqueeze(1) * dx - sign * dtau, dq + dtau], -1)
        return torch.where(tau.unsqueeze(1) > 0.0, outside, V)

    def _threshold(
        self, size: Float[Tensor, "R n"], q: Float[Tensor, "R 1"]
    ) -> tuple[Float[Tensor, "R n"], Float[Tensor, "R 1"]]:
        """|p| in falling order, and tau."""
        ordered = size.sort(-1, descending=True).values
        roots = (ordered.cumsum(-1) - q) / torch.arange(2, self.n + 2, dtype=q.dtype, device=q.device)
        return ordered, torch.cat([-q, roots], -1).amax(-1, keepdim=True).clamp_min(0.0)


def project_moving(
    X: Set, p: Float[Tensor, "R P"], x: Float[Tensor, "R P"], moving: Bool[Tensor, "R P"] | None
) -> Float[Tensor, "R P"]:
    """Nearest point of X to p among those that equal x (in X) wherever `moving` is False; None: plain
    projection.

    For sets whose section by fixed coordinates has a formula: Free, Box, Intervals, Ball. On a ball the plain
    projection would move the fixed coordinates as well.

    Raises:
        ValueError: any other set with fixed coordinates.
    """
    if moving is None:
        return X.project(p)
    if isinstance(X, Ball):
        room = (X.radius**2 - torch.where(moving, 0.0, x).square().sum(1)).clamp_min(0.0)
        square = torch.where(moving, p, 0.0).square().sum(1)
        factor = torch.where(square > room, (room / square).sqrt(), 1.0)
        return torch.where(moving, p * factor.unsqueeze(1), x)
    if not isinstance(X, Free | Box | Intervals):
        raise ValueError(
            f"Blocks of variables need X to be Free, Box, Intervals or Ball, not {type(X).__name__}"
        )
    return torch.where(moving, X.project(p), x)
