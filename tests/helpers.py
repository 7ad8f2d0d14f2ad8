"""Run mobench in the test's own process and keep the whole path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mobench.core import Problem, Runs, loop
from mobench.core.algorithm import Algorithm
from mobench.core.output import make_output
from mobench.core.preferences import from_rays_deg
from mobench.oracles import Exact


@dataclass
class Path:
    """x (R, T+1, P), f (R, T+1, M), answers per output rule, the final state."""

    x: np.ndarray
    f: np.ndarray
    answers: dict[str, np.ndarray]
    state: dict[str, Any]


def runs_at(*angles: float, seeds: tuple[int, ...] = (0,)) -> Runs:
    return Runs.product(from_rays_deg(angles), seeds)


def simulate(
    problem: Problem,
    algorithm: Algorithm,
    runs: Runs,
    steps: int,
    outputs: tuple[str, ...] = ("last",),
    oracle: Any = None,
) -> Path:
    oracle = oracle or Exact(problem, runs)
    rules = {name: make_output(name) for name in outputs}
    state = loop.start(oracle, algorithm, rules, problem.initial(runs), runs, steps)
    xs = []
    state = loop.advance(
        oracle, algorithm, rules, state, steps, lambda t, s, p: xs.append(s["theta"].clone())
    )
    x = torch.stack([*xs, state["theta"]], 1)
    f = torch.stack([problem.values(x[:, t]) for t in range(steps + 1)], 1)
    answers = {k: v.numpy() for k, v in loop.finals(rules, state).items()}
    return Path(x.numpy(), f.numpy(), answers, state)
