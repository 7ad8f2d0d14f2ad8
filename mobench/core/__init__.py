"""The vocabulary of every method: points, oracles, algorithms, output rules, preferences, and the batched
loop.

It knows of no problem, subproblem, model, file or framework.

May import: errors.
"""

from mobench.core.algorithm import Algorithm, Context, Info, Weighting
from mobench.core.oracle import Oracle, Spec
from mobench.core.point import GraphPoint, Linear, LinearPoint, Point, TablePoint
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sets import Ball, Box, Free, Set

__all__ = [
    "Algorithm",
    "Ball",
    "Box",
    "Context",
    "Free",
    "GraphPoint",
    "Info",
    "Linear",
    "LinearPoint",
    "Oracle",
    "Point",
    "Problem",
    "Runs",
    "Set",
    "Spec",
    "TablePoint",
    "Weighting",
]
