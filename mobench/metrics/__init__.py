"""Metrics: hypervolume, distance to a front, Pareto stationarity with and without constraints.

May import: core, kernels, solvers, errors.
"""

from mobench.metrics.front import SAMPLES, front_distance
from mobench.metrics.hypervolume import (
    FEASIBLE,
    MOST_OBJECTIVES,
    SECONDS,
    Volume,
    bounded_hypervolume,
    hypervolume,
)
from mobench.metrics.stationarity import Descent, common_descent, constrained_kkt, stationarity

__all__ = [
    "FEASIBLE",
    "MOST_OBJECTIVES",
    "SAMPLES",
    "SECONDS",
    "Descent",
    "Volume",
    "bounded_hypervolume",
    "common_descent",
    "constrained_kkt",
    "front_distance",
    "hypervolume",
    "stationarity",
]
