"""The result of every subproblem: (x, residual, failed), one entry per run."""

from types import ModuleType
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import Array, tensor

TOLERANCE = 1e-9
"""Largest relative residual of a solved run. float32 inputs are solved and certified in float64 and only then
rounded: same tolerance, and the rounding of x (6e-8) comes on top.
"""

GOOD = 1e-12  # a run above this is tried again with the next safeguard; the best try counts
# how far a solution may exceed the scale of its data before its residual is no longer relative to it
GROWTH = 1e4
TINY = 1e-150  # added where 0/0 has to mean "equal parts" or 0; its square is still above zero


class Solution(NamedTuple):
    """Solution of R subproblems with its certificate.

    x        (R, n)  minimiser; NaN where the run failed or its input was not finite
    residual (R,)    relative residual, see `qp_residual` and `lp_residual`; NaN where the input was not
                     finite
    failed   (R,)    True where a finite input was not solved to `TOLERANCE` (infeasible, unbounded,
                     numerically lost). A run whose input is not finite has diverged; that is not a failure of
                     the solver.
    """

    x: Float[Tensor, "R n"]
    residual: Float[Tensor, " R"]
    failed: Bool[Tensor, " R"]


def certified(
    xp: ModuleType,
    x: tuple[Array, ...] | Array,
    residual: Array,
    probe: Array,
    dtype: torch.dtype,
    tolerance: float = TOLERANCE,
) -> Solution:
    """Judge x, (R, n) or its n columns, by its residual (R,).

    `probe` (R,) is any number that is not finite exactly where the input of the run is not. A residual that
    is NaN although the input is finite (x itself is lost) counts as infinite.
    """
    zero = probe - probe  # 0, or NaN
    residual = xp.fmin(residual, 1 / zero) + zero
    poison = zero / (residual <= tolerance)  # 0/True = 0, 0/False = NaN
    x = xp.stack([column + poison for column in x], 1) if isinstance(x, tuple) else x + poison[:, None]
    return Solution(tensor(x, dtype), tensor(residual, dtype), tensor(residual > tolerance))
