"""Caps on the objectives:  g_m = f_m - kappa_m <= 0,  m = 1..M."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mobench.constraints.base import Constrained
from mobench.core.oracle import Oracle
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.truth import ConstantPredictor
from mobench.core.types import Real
from mobench.errors import ConfigError


class LossCap(Constrained):
    """One constraint per objective, with the objective's gradient.

    Parameters: value: kappa, a number or M numbers. ratio: kappa_m = ratio times the loss of a constant
    predictor (`ConstantPredictor.constant_losses`: entropy of labels, variance of targets), where the problem
    knows it. One of the two. Raises: ConfigError: a cap that no theta can meet, because it lies at or below
    the problem's ideal point.
    """

    version = 1

    def __init__(
        self,
        oracle: Oracle,
        problem: Problem,
        runs: Runs,
        value: Real | Sequence[Real] | None = None,
        ratio: Real | None = None,
    ) -> None:
        M = oracle.spec.M
        if (value is None) == (ratio is None):
            raise ConfigError(
                f"constraint.value={value} and constraint.ratio={ratio}: give only one of them and set the "
                "other to null."
            )
        if value is not None:
            caps = [float(value)] * M if isinstance(value, (int, float)) else [float(v) for v in value]
            kappa = torch.tensor(caps, dtype=torch.float64)
            if len(kappa) != M:
                raise ConfigError(
                    f"constraint.value has {len(kappa)} caps, but {type(problem).__name__} has M={M} "
                    "objectives."
                )
        else:
            if not isinstance(problem, ConstantPredictor):
                raise ConfigError(
                    "constraint.ratio needs the loss of a constant predictor, which "
                    f"{type(problem).__name__} does not provide. Give constraint.value instead."
                )
            kappa = float(ratio or 0.0) * problem.constant_losses.double()
        kappa = kappa.double()
        ideal = oracle.ideal
        if ideal is None and oracle.spec.positive:
            ideal = torch.zeros(M, dtype=torch.float64)
        if ideal is not None:
            least = ideal.double().cpu().reshape(-1, M).amin(0)
            for m in range(M):
                if not float(kappa[m]) > float(least[m]):
                    raise ConfigError(
                        f"constraint: the cap {float(kappa[m]):g} on f_{m + 1} cannot be met, because "
                        f"f_{m + 1} is above {float(least[m]):g} everywhere. Raise "
                        f"constraint.{'value' if ratio is None else 'ratio'}."
                    )
        super().__init__(oracle, torch.eye(M, dtype=torch.float64), -kappa)
