"""Adam along the direction of a method: its averages in place of the direction, coordinate by coordinate.

    m <- b_1 m + (1 - b_1) d            v <- b_2 v + (1 - b_2) d^2            m = v = 0 before step 1
    theta <- Proj_X(theta + alpha_t u),   u = (m / (1 - b_1^n)) / (sqrt(v / (1 - b_2^n)) + e),   n = 1, 2, ..

with b_1 = 0.9, b_2 = 0.999, e = 1e-8. Each run has its own averages. For a method that weighs gradients, -d
is the weighted gradient, and this is the step that torch.optim.Adam takes with it.

Source: Kingma and Ba (2015), Algorithm 1; their sqrt(v / (1 - b_2^n)) + e, not the reordered form of their
Section 2. Departure: the projection, which they do not have; X must be a product of intervals, whose nearest
point is the same in every metric that scales the coordinates.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.types import State

DECAYS = (0.9, 0.999)
SMALL = 1e-8


def first(theta: Float[Tensor, "R P"]) -> State:
    """The averages before the first step: m and v (R, P), and the number n (R,) of steps."""
    n = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
    return {"m": torch.zeros_like(theta), "v": torch.zeros_like(theta), "n": n}


def step(d: Float[Tensor, "R P"], state: State) -> tuple[Float[Tensor, "R P"], State]:
    """u for the method's direction d, and the averages after it."""
    b_1, b_2 = DECAYS
    n = state["n"] + 1.0
    m = torch.lerp(state["m"], d, 1.0 - b_1)
    v = torch.addcmul(b_2 * state["v"], d, d, value=1.0 - b_2)
    scale_1, scale_2 = ((1.0 - b**n).to(d.dtype).unsqueeze(1) for b in DECAYS)
    u = (m / scale_1) / (v.sqrt() / scale_2.sqrt() + SMALL)
    return u, {"m": m, "v": v, "n": n}
