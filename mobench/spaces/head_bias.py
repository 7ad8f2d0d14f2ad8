"""Heads on frozen features:  theta = x_ref with w_i <- exp(s_i) w_i and b_i <- b_i + c_i for the head of
task i,  a = (c, s).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.oracle import Oracle
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sets import Box
from mobench.errors import CompatibilityError
from mobench.spaces.base import Real, Referenced, at_least, refuse_local, refuse_set


@runtime_checkable
class WithHeads(Protocol):
    """Heads whose biases and scales can be decision variables (`space=head_bias`)."""

    @property
    def head_variables(self) -> int:
        """k = 2 m, a shift and a scale for the head of each of m tasks."""

    def with_heads(self, theta: Float[Tensor, "R P"], a: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        """theta with its heads changed by a = (b_1 .. b_m, s_1 .. s_m).

        b_i is added to the bias of head i, whose weights are multiplied by exp(s_i). a = 0 changes nothing;
        differentiable in a.
        """


class HeadBias(Referenced):
    """k = 2m variables a in [-bound, bound]^k for m heads with one output.

    They are a shift of the bias and the logarithm of a scale for each head, by `WithHeads.with_heads`;
    features stay those of x_ref.

    Parameters: bound: half width of the box. warm_steps, warm_step, warm_batch: x_ref (see `Referenced`).
    start: spread | reference.
    Raises: CompatibilityError: the problem has no heads with one output (a shift of all scores of a softmax
    changes nothing), a feasible set, or clients.
    Source: our setting 3 for the MLM-CMOO paper's baselines; it gives none. Departure: no Hessian products,
    the map is not linear.
    """

    version = 1
    linear = False

    def __init__(
        self,
        oracle: Oracle,
        problem: Problem,
        runs: Runs,
        bound: Real = 2.0,
        warm_steps: int = 0,
        warm_step: Real = 0.1,
        warm_batch: int | None = None,
        start: str = "spread",
    ) -> None:
        refuse_local(oracle, "head_bias")
        refuse_set(oracle, problem, "head_bias")
        at_least(bound, 0, "bound", strict=True)
        if not isinstance(problem, WithHeads):
            raise CompatibilityError(
                "space=head_bias needs a problem whose tasks each have a head with one output; "
                f"{type(problem).__name__} has none (with a softmax, a common shift of all scores has no "
                "effect). Choose space=subspace or space=full."
            )
        self.heads: WithHeads = problem
        box = Box(-float(bound), float(bound))
        super().__init__(
            oracle, problem, runs, problem.head_variables, box, start, warm_steps, warm_step, warm_batch
        )

    def map(self, a: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        with torch.no_grad():
            return self.heads.with_heads(self.reference(a), a)

    def back(self, a: Float[Tensor, "R k"], J: Float[Tensor, "R j P"]) -> Float[Tensor, "R j k"]:
        with torch.enable_grad():
            leaf = a.detach().requires_grad_(True)
            theta = self.heads.with_heads(self.reference(a), leaf)
        rows = [torch.autograd.grad(theta, leaf, J[:, j], retain_graph=True)[0] for j in range(J.shape[1])]
        return torch.stack(rows, dim=1)

    def along(self, a: Float[Tensor, "R k"], v: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        with torch.enable_grad():
            leaf = a.detach().requires_grad_(True)
            theta = self.heads.with_heads(self.reference(a), leaf)
            u = torch.zeros_like(theta, requires_grad=True)
            # linear in u: its derivative is phi'
            back = torch.autograd.grad(theta, leaf, u, create_graph=True)[0]
        return torch.autograd.grad(back, u, v)[0]
