"""No objective much larger than the others:  g_m = f_m - rho mean_k f_k <= 0."""

from __future__ import annotations

import torch

from mobench.constraints.base import Constrained
from mobench.core.oracle import Oracle
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.errors import ConfigError


class LossRatio(Constrained):
    """A fairness constraint for each objective; for objectives >= 0.

    Parameters: rho > 1.
    Raises: ConfigError: rho <= 1, which only equal objectives could meet; objectives that can be negative.
    """

    version = 1

    def __init__(self, oracle: Oracle, problem: Problem, runs: Runs, rho: float | int = 2.0) -> None:
        M = oracle.spec.M
        if not rho > 1:
            raise ConfigError(
                f"constraint.rho={rho} cannot be met, because the largest f_m is at least the mean. Choose "
                "rho > 1."
            )
        if not oracle.spec.positive:
            raise ConfigError(
                "constraint=loss_ratio needs objectives >= 0, but "
                f"those of {type(problem).__name__} can be negative."
            )
        eye = torch.eye(M, dtype=torch.float64)
        mean = torch.full((M, M), float(rho) / M, dtype=torch.float64)
        super().__init__(oracle, eye - mean, torch.zeros(M, dtype=torch.float64))
