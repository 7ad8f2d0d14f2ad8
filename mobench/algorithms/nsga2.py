"""NSGA-II: parents and children compete by non-dominated rank, then by crowding distance; winners mate.

S_t = best n of S_(t-1) u C_t by (rank, -crowding),   C_(t+1) = mutation(crossover(tournament(S_t)))
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from mobench.algorithms.population import Next, Now, Population, cycled, uniform
from mobench.core.algorithm import Context, Real, State
from mobench.core.random import generator
from mobench.core.sets import Box
from mobench.errors import ConfigError, choose

MODES = ("individual", "gene")
TOURNAMENTS = {"rank": "comp_by_rank_and_crowding", "dominance": "comp_by_dom_and_crowding"}


@dataclass(frozen=True, kw_only=True)
class NSGAII(Population):
    """Non-dominated sorting with pymoo's operators.

    They are rank and crowding survival, binary tournament, simulated binary crossover and polynomial
    mutation; no child equals another one or a parent. T steps are T evaluations of n members. A member whose
    objectives are not finite never becomes a parent. Where fewer than two different members are known (all
    started from one point, or diverged), the next generation is drawn uniformly from the box. Parents keep
    the values of the sample on which they were evaluated as candidates; with oracle=epochs all candidates of
    a generation see the same one.

    Fields: crossover_prob, crossover_eta, mutation_prob, mutation_eta: of the operators. mutation_mode: what
    mutation_prob is of: "individual" (it mutates at all, then each variable with probability min(1/2, 1/P),
    pymoo's reading) or "gene" (each variable of every individual). tournament: who wins before crowding
    decides: "rank" (the lower one) or "dominance" (who dominates the other, pymoo's choice; on ZDT1 it was
    slower).

    Source: Deb et al. 2002; settings of the MLM-CMOO paper, which does not say which reading its 0.1 is. Its
    constraints are not handled, as there.
    """

    citation: ClassVar[str] = "Deb et al. 2002; pymoo: Blank and Deb 2020"
    preferred: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("pymoo",)

    crossover_prob: Real = 0.9
    crossover_eta: Real = 2.0
    mutation_prob: Real = 0.1
    mutation_eta: Real = 20.0
    mutation_mode: str = "individual"
    tournament: str = "rank"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.mutation_mode", self.mutation_mode, MODES)
        choose("algorithm.tournament", self.tournament, TOURNAMENTS)
        for name in ("crossover_prob", "mutation_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"algorithm.{name}={getattr(self, name)} must lie in [0, 1]; it is a probability."
                )
        for name in ("crossover_eta", "mutation_eta"):
            if not 1 <= getattr(self, name) <= 100:
                raise ConfigError(f"algorithm.{name}={getattr(self, name)} must lie in [1, 100].")

    def load(self) -> None:
        Operators(self, 1, 2, Box(0.0, 1.0), generator(0, use="nsga2"))

    def memory(self, ctx: Context) -> State:
        R = len(ctx.theta)
        K = ctx.spec.M + ctx.spec.N
        nan = torch.full((R, K), torch.nan, dtype=torch.float64, device=ctx.theta.device)
        return {
            "x": ctx.theta.clone(),
            "values": nan,
            "known": torch.zeros(R, dtype=torch.bool, device=nan.device),
        }

    def generation(self, now: Now) -> Next:
        n, P = now.x.shape
        known = now.memory["known"]
        x = np.concatenate([now.memory["x"][known], now.x])
        values = np.concatenate([now.memory["values"][known], now.values])
        able = distinct(x) & np.isfinite(values[:, : now.M]).all(1)
        x = x[able]
        values = values[able]
        rng = generator(now.seed, use="nsga2", step=now.t)
        children = np.empty((0, P))
        if len(x):
            operators = Operators(self, P, now.M, now.box, rng)
            best = operators.survivors(x, values[:, : now.M], n)
            x = x[best]
            values = values[best]
            if len(x) > 1 and not now.last:
                children = operators.children(n)
        k = len(x)
        memory = {
            "x": np.concatenate([x, now.x[k:]]),
            "values": np.concatenate([values, np.full((n - k, now.values.shape[1]), np.nan)]),
            "known": np.arange(n) < k,
        }
        if now.last:
            return Next(cycled(x, n) if k else now.x, memory)
        return Next(np.concatenate([children, uniform(rng, n - len(children), P, now.box)]), memory)


def distinct(x: Float[np.ndarray, "n P"]) -> np.ndarray:
    """Returns the mask of rows that do not occur before, (n,) bool."""
    seen: set[bytes] = set()
    out = np.zeros(len(x), dtype=bool)
    for i, row in enumerate(x):
        key = row.tobytes()
        out[i] = key not in seen
        seen.add(key)
    return out


class Operators:
    """pymoo's operators on one population, all with the same generator."""

    def __init__(self, method: NSGAII, P: int, M: int, box: Box, rng: np.random.Generator) -> None:
        from pymoo.config import Config

        Config.warnings["not_compiled"] = False  # a hint that pymoo prints where it has no compiled modules
        from pymoo.algorithms.moo.nsga2 import binary_tournament
        from pymoo.core.duplicate import DefaultDuplicateElimination
        from pymoo.core.mating import Mating
        from pymoo.core.problem import Problem
        from pymoo.operators.crossover.sbx import SBX
        from pymoo.operators.mutation.pm import PM
        from pymoo.operators.selection.tournament import TournamentSelection
        from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

        self.rng = rng
        self.problem = Problem(n_var=P, n_obj=M, xl=np.full(P, box.lower), xu=np.full(P, box.upper))
        self.survival = RankAndCrowding()
        gene = method.mutation_mode == "gene"
        mutation = PM(
            prob=1.0 if gene else float(method.mutation_prob),
            prob_var=float(method.mutation_prob) if gene else None,
            eta=float(method.mutation_eta),
        )
        self.mating = Mating(
            TournamentSelection(func_comp=binary_tournament),
            SBX(prob=float(method.crossover_prob), eta=float(method.crossover_eta)),
            mutation,
            eliminate_duplicates=DefaultDuplicateElimination(),
        )
        self.contest = SimpleNamespace(tournament_type=TOURNAMENTS[method.tournament], random_state=rng)
        self.parents: Any = None

    def survivors(self, x: Float[np.ndarray, "m P"], F: Float[np.ndarray, "m M"], n: int) -> list[int]:
        """Places of the best n; they become the parents."""
        from pymoo.core.population import Population as Individuals

        individuals = Individuals.new("X", x, "F", F)
        chosen = self.survival.do(
            self.problem, individuals, n_survive=n, random_state=self.rng, return_indices=True
        )
        self.parents = individuals[chosen]
        return [int(i) for i in chosen]

    def children(self, n: int) -> Float[np.ndarray, "c P"]:
        """At most n: fewer where mating gave nothing but duplicates a hundred times."""
        born = self.mating.do(self.problem, self.parents, n, algorithm=self.contest, random_state=self.rng)
        X = np.asarray(born.get("X"), dtype=np.float64)
        return X.reshape(len(born), self.problem.n_var)
