"""Running averages with their errors, for Theorem 1 of CSMOO and for anyone who chooses a schedule.

value_error_k = (fh_k - f_k(x_t))^2,   row_error_k = |(grad f_k)h - grad f_k(x_t)|^2,   k = 1..M + N
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.point import Point
from mobench.errors import CompatibilityError
from mobench.oracles.ema import EMA


class TrackedEMA(EMA):
    """EMA with the squared errors of its estimates as columns of the history; the runs are the same.

    Exact values and rows cost one full-sample Jacobian at each recorded step. Final rows, and the last row of
    the history, belong to no sample: the columns are NaN there. Problems whose exact rows cannot be had are
    refused.
    """

    def columns(
        self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        columns = super().columns(theta, values, point)
        if point is None:
            unknown = torch.full_like(values, torch.nan)
            return columns | self._error_columns(unknown, unknown)
        exact = self.exact_point(theta)
        if exact is None:
            raise CompatibilityError(
                "TrackedEMA compares averages with exact Jacobians, which this problem does not provide."
            )
        value = (point.values() - exact.values()).square()
        row = (point.jacobian() - exact.jacobian()).square().sum(-1)
        return columns | self._error_columns(value, row)

    def _error_columns(self, value: Float[Tensor, "R K"], row: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        out = {}
        for k in range(value.shape[1]):
            out[f"value_error_{k + 1}"] = value[:, k]
            out[f"row_error_{k + 1}"] = row[:, k]
        return out
