"""Families of constraints that any problem can take: g(theta) <= 0, made of the objectives or of the
variables.

May import: core, errors.
"""

from mobench.constraints.loss_cap import LossCap
from mobench.constraints.loss_ratio import LossRatio
from mobench.constraints.weight_ball import WeightBall

__all__ = ["LossCap", "LossRatio", "WeightBall"]
