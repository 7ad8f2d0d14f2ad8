"""Points, oracles, algorithms, output rules, preferences, and the batched loop.

The package knows of no problem, subproblem, model, file or framework.

May import: errors.
"""

from mobench.core.algorithm import Algorithm, Context, Info, Weighting
from mobench.core.bilevel import Bilevel
from mobench.core.federated import Federated
from mobench.core.oracle import Oracle, Spec
from mobench.core.point import GraphPoint, Linear, LinearPoint, Point, TablePoint
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sampled import Sampled
from mobench.core.seeds import PerSeed
from mobench.core.sets import Ball, Box, Free, Set

__all__ = [
    "Algorithm",
    "Ball",
    "Bilevel",
    "Box",
    "Context",
    "Federated",
    "Free",
    "GraphPoint",
    "Info",
    "Linear",
    "LinearPoint",
    "Oracle",
    "PerSeed",
    "Point",
    "Problem",
    "Runs",
    "Sampled",
    "Set",
    "Spec",
    "TablePoint",
    "Weighting",
]
