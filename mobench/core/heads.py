"""Problems whose tasks have a linear head with one output each on features that they share."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


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
