"""Ideal point from extreme preferences: z_i = smallest f_i at the ends of runs that care for one objective
each.

Source: CSMOO paper, E.2: CSMOO-2 with (0.99, 0.01) and (0.01, 0.99), once per problem instance, then z is
fixed. Departure: "best observed" is read as the exact value of the final iterates; a path's best points are
infeasible ones. A problem that asks for it (`IdealByRuns`) is given this function by `make_job`: problems run
no algorithm.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.algorithms.csmoo2 import CSMOO2
from mobench.core import loop
from mobench.core.output import Last
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.oracles import EMA, Minibatch

WEIGHT = 0.99
STEPS = 2000


def extreme_values(problem: Problem, instances: int) -> Float[Tensor, "I M"]:
    """z of each instance.

    `problem` is bound to M * instances runs, those of one instance one after the other.
    """
    M = problem.n_objectives
    prefs = torch.full((M, M), (1.0 - WEIGHT) / max(M - 1, 1), dtype=torch.float64)
    prefs.fill_diagonal_(WEIGHT if M > 1 else 1.0)
    weights = prefs.repeat(instances, 1)
    seeds = torch.zeros(len(weights), dtype=torch.int64)
    runs = Runs(weights, seeds, torch.arange(M).repeat(instances), prefs)
    oracle = EMA(problem, runs, Minibatch(problem, runs, batch_size=4))
    rules = {"last": Last()}
    state = loop.start(oracle, CSMOO2(tau=0.055, beta=10.0), rules, problem.initial(runs), runs, STEPS)
    state = loop.advance(oracle, CSMOO2(tau=0.055, beta=10.0), rules, state, STEPS)
    F = oracle.exact(state["theta"])[:, :M].view(instances, M, M)
    return F.amin(1)
