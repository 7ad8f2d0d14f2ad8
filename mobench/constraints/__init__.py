"""Families of constraints that any problem can take: g(theta) <= 0, made of the objectives.

May import: core, errors.
"""

from mobench.constraints.loss_cap import LossCap

__all__ = ["LossCap"]
