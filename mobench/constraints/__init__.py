"""Families of constraints that any problem can wear: g(theta) <= 0,
made of the objectives or of the variables.
"""

from mobench.constraints.loss_cap import LossCap
from mobench.constraints.loss_ratio import LossRatio
from mobench.constraints.weight_ball import WeightBall

__all__ = ["LossCap", "LossRatio", "WeightBall"]
