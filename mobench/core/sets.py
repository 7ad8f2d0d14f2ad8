"""Feasible sets X of the decision variables: projection and its derivative, batched over runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
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
class Ball(Set):
    """X = {x : |x| <= radius}."""

    radius: float

    def project(self, p: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        norm = torch.linalg.vector_norm(p, dim=-1, keepdim=True)
        return p * (self.radius / norm.clamp_min(self.radius))

    def tangent(self, p: Float[Tensor, "R P"], V: Float[Tensor, "R k P"]) -> Float[Tensor, "R k P"]:
        norm = torch.linalg.vector_norm(p, dim=-1, keepdim=True).unsqueeze(1)
        unit = p.unsqueeze(1) / norm.clamp_min(torch.finfo(p.dtype).tiny)
        outside = self.radius / norm * (V - (V * unit).sum(-1, keepdim=True) * unit)
        return torch.where(norm > self.radius, outside, V)
