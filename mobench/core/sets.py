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


def project_moving(
    X: Set, p: Float[Tensor, "R P"], x: Float[Tensor, "R P"], moving: Bool[Tensor, "R P"] | None
) -> Float[Tensor, "R P"]:
    """Nearest point of X to p among those that equal x (in X) wherever `moving` is False.

    None is the plain projection. For sets whose section by fixed coordinates has a formula: Free, Box,
    Intervals, Ball. On a ball the plain projection would move the fixed coordinates as well.

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
