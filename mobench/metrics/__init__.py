"""Metrics: hypervolume, distance to a front, Pareto stationarity with and without constraints.

May import: core, subproblems, errors.
"""

from mobench.metrics.front import SAMPLES, front_distance
from mobench.metrics.hypervolume import hypervolume
from mobench.metrics.stationarity import Descent, common_descent, constrained_kkt, stationarity

__all__ = [
    "SAMPLES",
    "Descent",
    "common_descent",
    "constrained_kkt",
    "front_distance",
    "hypervolume",
    "stationarity",
]
