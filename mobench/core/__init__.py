"""The core: Point, Oracle, Algorithm, Output, join and the batched loop. See docs/architecture.md."""

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
