"""A ball of variables:  g = (|theta|^2 - R^2) / R^2 <= 0,  R a multiple of |theta_0| or a number."""

from __future__ import annotations

import torch

from mobench.constraints.base import Constrained
from mobench.core.oracle import Oracle
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.errors import ConfigError


class WeightBall(Constrained):
    """One constraint, on the Euclidean length of the variables.

    Parameters: radius: R. factor: R = factor |theta_0|, each run's own start. One of the two.
    Raises: ConfigError: a radius that is not > 0.
    """

    version = 1

    def __init__(
        self,
        oracle: Oracle,
        problem: Problem,
        runs: Runs,
        factor: float | int | None = 1.5,
        radius: float | int | None = None,
    ) -> None:
        if (factor is None) == (radius is None):
            raise ConfigError(
                f"constraint.factor={factor} and constraint.radius={radius}: give only one of them "
                "and set the other to null."
            )
        R = oracle.spec.R
        if radius is not None:
            length = torch.full((R, 1), float(radius), dtype=torch.float64)
        else:
            start = oracle.initial(runs).double()
            length = float(factor or 0.0) * torch.linalg.vector_norm(start, dim=1, keepdim=True)
        if not bool((length > 0).all()):
            raise ConfigError(
                f"constraint: a ball of radius {float(length.min()):g} has no interior (factor={factor}, "
                f"radius={radius}). Give a radius > 0, or a factor > 0 and a start other than 0."
            )
        super().__init__(oracle, torch.zeros(1, oracle.spec.M), torch.zeros(1), length.to(runs.seeds.device))
