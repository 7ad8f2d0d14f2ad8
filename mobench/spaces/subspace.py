"""A random subspace around a warm start:  theta = x_ref + P a,  a in [-1, 1]^k,  P_ij ~ N(0, scale^2 / k)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import Oracle
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import generator
from mobench.core.sets import Box
from mobench.errors import ConfigError
from mobench.spaces.base import Real, Referenced, at_least, refuse_local, refuse_set


class Subspace(Referenced):
    """k variables.

    P is one for all runs of a seed, keyed by (problem, seed); a smaller k has the first directions of a
    larger one, rescaled.

    With this scaling a corner of the box (every |a_j| = 1) moves each variable by N(0, scale^2), a uniform a
    by a third of that variance, whatever k is.

    Parameters: k: number of variables. scale: see above. warm_steps, warm_step: x_ref (see `Referenced`); 0
    steps: x_ref is the problem's start. warm_batch: samples of a warm-up step (null: as many as the
    oracle's). start: spread | reference. Raises: CompatibilityError: the problem has a feasible set, or
    clients, or an oracle whose samples the warm-up does not know. Source: our setting 2 for the MLM-CMOO
    paper's baselines (random embeddings: Wang et al. 2016); it gives none.
    """

    version = 1

    def __init__(
        self,
        oracle: Oracle,
        problem: Problem,
        runs: Runs,
        k: int = 50,
        scale: Real = 0.1,
        warm_steps: int = 0,
        warm_step: Real = 0.1,
        warm_batch: int | None = None,
        start: str = "spread",
    ) -> None:
        refuse_local(oracle, "subspace")
        refuse_set(oracle, problem, "subspace")
        at_least(scale, 0, "scale", strict=True)
        if not 1 <= k <= oracle.spec.P:
            raise ConfigError(
                f"space.k={k} must lie in 1..{oracle.spec.P}, the number of variables of "
                f"{type(problem).__name__}."
            )
        self.scale = float(scale)
        super().__init__(oracle, problem, runs, k, Box(-1.0, 1.0), start, warm_steps, warm_step, warm_batch)
        self._bases: list[Tensor] | None = None

    def bases(self, like: Tensor) -> list[Float[Tensor, "k P"]]:
        """P^T of each seed."""
        if self._bases is None or self._bases[0].dtype != like.dtype or self._bases[0].device != like.device:
            k = self.spec.P
            n = self.inner.spec.P
            rngs = [
                generator(seed, problem=self.problem.name, use="subspace")
                for seed in self.firsts.seeds.tolist()
            ]
            factor = self.scale / math.sqrt(k)
            self._bases = [torch.from_numpy(factor * rng.standard_normal((k, n))).to(like) for rng in rngs]
        return self._bases

    def map(self, a: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        return self.reference(a) + self.along(a, a)

    def back(self, a: Float[Tensor, "R k"], J: Float[Tensor, "R j P"]) -> Float[Tensor, "R j k"]:
        out = J.new_empty(*J.shape[:2], self.spec.P)
        for runs, basis in zip(self.parts, self.bases(J), strict=True):
            out[runs] = J[runs] @ basis.T
        return out

    def along(self, a: Float[Tensor, "R k"], v: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        out = v.new_empty(len(v), self.inner.spec.P)
        for runs, basis in zip(self.parts, self.bases(v), strict=True):
            out[runs] = v[runs] @ basis
        return out
