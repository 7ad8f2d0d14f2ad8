"""Metrics: hypervolume, distance to a front, Pareto-stationarity."""

from mobench.metrics.front import SAMPLES, front_distance
from mobench.metrics.hypervolume import hypervolume
from mobench.metrics.stationarity import Descent, common_descent, stationarity

__all__ = ["SAMPLES", "Descent", "common_descent", "front_distance", "hypervolume", "stationarity"]
