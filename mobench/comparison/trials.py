"""Settings and seeds of each tuning study, and the steps that a budget of gradients pays for.

The rules are in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mobench.core.algorithm import Algorithm
from mobench.core.oracle import Spec
from mobench.core.random import generator
from mobench.errors import ConfigError

STUDIES = (1, 2, 3)
TRIALS = 6  # of each study
STEPS_WITH_MAIN = 3  # step sizes where a main parameter is tuned too
REPORTED = 10  # seeds
FEWER = {"networks": 5}  # reported seeds of boards whose runs take long
RECORDED = 20  # steps of the grid on which a target is looked for
# names of the parameter that is tuned as the step size; lr: where a method trains a network
STEPS = ("step_size", "lr")

Setting = dict[str, float]


def reported(board: str) -> int:
    """Number of reported seeds of a board."""
    return FEWER.get(board, REPORTED)


def reported_seeds(replication: int, board: str = "") -> list[int]:
    """Seeds of the reported runs, which no study tunes on."""
    return [100 * replication + i for i in range(reported(board))]


def tuning_seeds(study: int, replication: int) -> list[int]:
    """The two seeds on which a study judges its trials."""
    first = 1000 * (replication + 1) + 10 * study
    return [first, first + 1]


def drawn(low: float, high: float, count: int, study: int, name: str, replication: int) -> list[float]:
    """Values of a parameter: one in each of `count` cells of [low, high] that are equal in the logarithm.

    Keyed by study and name, not by a method, so that equal ranges have equal draws. Three digits.
    """
    u = generator(replication, use="trial", study=study, parameter=name).uniform(size=count)
    cells = (np.arange(count) + u) / count
    values = np.exp(np.log(low) + cells * (np.log(high) - np.log(low)))
    return [float(f"{value:.3g}") for value in values]


def trials(ranges: Mapping[str, Sequence[float]], study: int, replication: int) -> list[Setting]:
    """Returns the settings that one study tries, step sizes slowest.

    Args:
        ranges: of the step size (or lr), and of one main parameter if there is one: lowest and highest value.

    Raises:
        ConfigError: no step size, more than one main parameter, or a range that is none.
    """
    check_ranges(ranges)
    step_name = step_of(ranges)
    main = [name for name in ranges if name != step_name]
    low, high = ranges[step_name]
    count = STEPS_WITH_MAIN if main else TRIALS
    steps = drawn(low, high, count, study, step_name, replication)
    if not main:
        return [{step_name: step} for step in steps]
    low, high = ranges[main[0]]
    values = drawn(low, high, TRIALS // STEPS_WITH_MAIN, study, main[0], replication)
    return [{step_name: step, main[0]: value} for step in steps for value in values]


def step_of(names: Collection[str]) -> str:
    """Returns the name of the step size among those of tuned parameters."""
    return next(name for name in STEPS if name in names)


def check_ranges(ranges: Mapping[str, Sequence[float]]) -> None:
    """Raises ConfigError unless ranges are those of the step size and at most one more parameter."""
    if sum(name in ranges for name in STEPS) != 1 or len(ranges) > 2:
        raise ConfigError(
            f"cross.ranges: a method tunes its step size (or lr) and at most one main parameter, but "
            f"{dict(ranges)} was given; write e.g. {{step_size: [0.001, 1.0], mu: [0.001, 1.0]}}."
        )
    for name, bounds in ranges.items():
        if len(bounds) != 2 or not 0 < bounds[0] < bounds[1]:
            raise ConfigError(
                f"cross.ranges: {name}={list(bounds)} must be two numbers, 0 < lowest < highest, as values "
                "are drawn evenly in the logarithm."
            )


def cost(algorithm: Algorithm, spec: Spec) -> int:
    """Gradients that a step takes: a reverse pass for one function at one point of one run is one.

    A Jacobian is one for each of the K functions, a product with weights 1, a jvp 1, a Hessian-vector product
    2 (two of them a step). An oracle that averages Jacobians computes one whatever the method asks for.
    """
    needs = algorithm.needs(spec)
    functions = spec.M + spec.N
    whole = "jacobian" in needs or spec.averaging is not None
    return algorithm.samples * ((functions if whole else 1) + ("jvp" in needs) + 4 * ("hvp" in needs))


@dataclass(frozen=True)
class Budget:
    """The steps of one pair of method and problem, and the gradients of each."""

    steps: int
    per_step: int

    @classmethod
    def of(cls, per_function: int, algorithm: Algorithm, spec: Spec) -> Budget:
        """As many whole steps as `per_function` gradients for each of the K functions pay for."""
        each = cost(algorithm, spec)
        return cls(max(1, per_function * (spec.M + spec.N) // each), each)

    @property
    def every(self) -> int:
        """Interval of the recorded steps."""
        return max(1, self.steps // RECORDED)
