"""Output rules, which turn a trajectory into an answer; several listen to one trajectory.

They are updated BEFORE the step, with theta_t and the point of theta_t, and they consume their state: tensors
are written in place, a checkpoint is taken through a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.point import Point
from mobench.core.types import State
from mobench.errors import choose


class Output(ABC):
    """Base class. `init` makes the state, `update` sees (theta_t, point_t), `final` gives the answer.

    A rule that cannot answer after one pass declares how many it needs: the same deterministic trajectory is
    run again. At the end of each pass but the last, `carried` gives the tensors for the next one, and `later`
    makes the rule that listens to it, whose `final` after the last pass is the answer.

    Attributes:
        passes: how often the rule has to see the trajectory.
    """

    passes: ClassVar[int] = 1

    def init(self, theta: Float[Tensor, "R P"], M: int) -> State:
        """State before the first step."""
        return {}

    def update(self, state: State, theta: Float[Tensor, "R P"], point: Point, t: int) -> State:
        """State after having seen theta_t."""
        return state

    @abstractmethod
    def final(self, state: State, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        """The answer; theta is the iterate after the last step."""

    def carried(self, state: State, steps: int) -> State:
        """Returns the tensors that the next pass has to know, from the state after a pass of `steps` steps.

        They are part of checkpoints.
        """
        raise NotImplementedError(f"{type(self).__name__} does not use a second pass")

    def later(self, carried: State) -> Output:
        """Returns the rule that listens to the next pass, from the tensors of `carried`."""
        raise NotImplementedError(f"{type(self).__name__} does not use a second pass")


class Last(Output):
    """theta^(T+1), the iterate after the last step."""

    def final(self, state: State, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return theta


class Mean(Output):
    """(1/T) sum_{t=1..T} theta^(t): the start is included, the iterate after the last step is not.

    Source: OMD-TCH paper, Algorithm 1, and the authors' program for VLMOP2; their federated program averages
    theta^(2..T+1). Accumulated in float64 whatever the dtype of theta.
    """

    def init(self, theta: Float[Tensor, "R P"], M: int) -> State:
        return {"mean": torch.zeros_like(theta, dtype=torch.float64), "count": theta.new_zeros(len(theta), 1)}

    def update(self, state: State, theta: Float[Tensor, "R P"], point: Point, t: int) -> State:
        state["count"] += 1
        state["mean"] += (theta - state["mean"]) / state["count"]
        return state

    def final(self, state: State, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return state["mean"].to(theta.dtype) if bool((state["count"] > 0).all()) else theta


def conversion_weights(F: Float[Tensor, "R T M"], weak_ties: bool = False) -> Float[Tensor, "R T"]:
    """Weights gamma of the adaptive online-to-batch conversion from the table of objective values.

    In order of t: with A = {stored tau : F_tau dominates F_t}, if A is not empty then t is not stored and
    gamma_tau += 1/|A| on A; else t is stored with gamma_t = 1 + sum of gamma over
    B = {tau : F_t dominates F_tau}, and B is deleted. Hence sum_tau gamma_tau = T. Source: OMD-TCH paper,
    Algorithm 2.

    `weak_ties`: an exactly equal earlier vector counts as dominating (authors' public code; the paper's
    relation is strict in one entry).
    """
    R, T, _ = F.shape
    gamma = F.new_zeros(R, T, dtype=torch.float64)
    alive = torch.zeros(R, T, dtype=torch.bool, device=F.device)
    for t in range(T):
        gamma, alive = _absorb(F[:, : t + 1], gamma, alive, t, weak_ties)
    return gamma * alive


def _absorb(
    F: Float[Tensor, "R t1 M"], gamma: Tensor, alive: Tensor, t: int, weak_ties: bool
) -> tuple[Tensor, Tensor]:
    """One round of Algorithm 2 with slot t as the newcomer; written in place."""
    stored = F[:, :t]
    new = F[:, t : t + 1]
    le = (stored <= new).all(-1)
    ge = (stored >= new).all(-1)
    old = alive[:, :t]
    A = old & (le if weak_ties else le & ~ge)
    B = old & ge & ~le
    share = A.sum(-1, keepdim=True)
    absorbed = share > 0
    g = gamma[:, :t]
    mass = (g * B).sum(-1, keepdim=True)
    g += A / share.clamp_min(1).to(g.dtype)  # bool / int64 would be float32
    alive[:, :t] &= ~B | absorbed
    gamma[:, t : t + 1] = torch.where(absorbed, 0.0, 1.0 + mass)
    alive[:, t : t + 1] = ~absorbed
    return gamma, alive


class Adaptive(Output):
    """theta~ = (1/T) sum over stored tau of gamma_tau theta^(tau): the Pareto-adaptive average.

    Keeps the stored iterates themselves (a ring per run that doubles after entries that no run stores have
    been removed): memory is that of the largest stored set. Use `adaptive_two_pass` where P is large and the
    set grows with T. Source: OMD-TCH paper, Algorithm 2. Snapshots are copies: a reference to a live tensor
    would turn the average into the last iterate.
    """

    capacity = 8

    def __init__(self, weak_ties: bool = False) -> None:
        self.weak_ties = weak_ties

    def init(self, theta: Float[Tensor, "R P"], M: int) -> State:
        R, P = theta.shape
        C = self.capacity
        return {
            "F": theta.new_zeros(R, C, M, dtype=torch.float64),
            "theta": theta.new_zeros(R, C, P),
            "gamma": theta.new_zeros(R, C, dtype=torch.float64),
            "alive": torch.zeros(R, C, dtype=torch.bool, device=theta.device),
            "used": torch.zeros(R, dtype=torch.int64),
            "count": torch.zeros(R, dtype=torch.int64),
        }

    def update(self, state: State, theta: Float[Tensor, "R P"], point: Point, t: int) -> State:
        used = int(state["used"][0])
        if used == state["gamma"].shape[1]:
            state = self._compact(state)
            used = int(state["used"][0])
        state["F"][:, used] = point.F
        state["theta"][:, used] = theta
        _absorb(state["F"][:, : used + 1], state["gamma"], state["alive"], used, self.weak_ties)
        state["used"] += 1
        state["count"] += 1
        return state

    def _compact(self, state: State) -> State:
        """Move each run's stored iterates to the front of the ring; grow it unless half of it became free."""
        alive = state["alive"]
        order = torch.argsort(~alive, dim=1, stable=True)  # stored ones first, in order of time
        keep = int(alive.sum(1).max())
        C = alive.shape[1]
        size = C if keep <= C // 2 else 2 * C
        index = order[:, :keep]
        out: State = {"count": state["count"], "used": torch.full_like(state["used"], keep)}
        for name in ("F", "theta", "gamma", "alive"):
            old = state[name]
            new = old.new_zeros(old.shape[0], size, *old.shape[2:])
            at = index if old.ndim == 2 else index.unsqueeze(-1).expand(-1, -1, old.shape[2])
            new[:, :keep] = old.gather(1, at)
            out[name] = new
        return out

    def final(self, state: State, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        total = state["count"].to(theta.device).unsqueeze(1)
        if not bool((total > 0).all()):
            return theta
        alive = state["alive"]
        weights = state["gamma"] * alive / total
        # stored iterates only: a ring of networks is large and often holds a single one; weights are float64
        # although iterates may be float32
        stored = torch.argsort(~alive, dim=1, stable=True)[:, : int(alive.sum(1).max())]
        some = state["theta"].gather(1, stored.unsqueeze(-1).expand(-1, -1, theta.shape[1]))
        return (weights.gather(1, stored).unsqueeze(1) @ some.to(torch.float64)).squeeze(1).to(theta.dtype)


class AdaptiveTwoPass(Output):
    """The Pareto-adaptive average with memory that does not grow with T x P.

    gamma depends on the table of objective values alone: the first pass stores F (R, T, M), then the loop
    repeats the same deterministic trajectory and `WeightedSum` accumulates sum_t gamma_t theta^(t). One more
    run of the trajectory; memory O(R T M) + one vector.
    """

    passes: ClassVar[int] = 2

    def __init__(self, weak_ties: bool = False) -> None:
        self.weak_ties = weak_ties

    def init(self, theta: Float[Tensor, "R P"], M: int) -> State:
        return {"F": theta.new_zeros(len(theta), 0, M, dtype=torch.float64)}

    def update(self, state: State, theta: Float[Tensor, "R P"], point: Point, t: int) -> State:
        table = state["F"]
        if t >= table.shape[1]:
            grown = table.new_zeros(table.shape[0], max(64, 2 * table.shape[1]), table.shape[2])
            grown[:, : table.shape[1]] = table
            state["F"] = table = grown
        table[:, t] = point.F
        return state

    def gamma(self, state: State, T: int) -> Float[Tensor, "R T"]:
        """Conversion weights of the first T iterates."""
        return conversion_weights(state["F"][:, :T], self.weak_ties)

    def carried(self, state: State, steps: int) -> State:
        return {"gamma": self.gamma(state, steps)}

    def later(self, carried: State) -> Output:
        return WeightedSum(carried["gamma"])

    def final(self, state: State, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        raise RuntimeError(
            "adaptive_two_pass is completed by a second pass over the trajectory (WeightedSum)"
        )


class WeightedSum(Output):
    """(1/T) sum_t gamma_t theta^(t) with the weights gamma (R, T); accumulated in float64."""

    def __init__(self, gamma: Float[Tensor, "R T"]) -> None:
        self.weights = gamma

    def init(self, theta: Float[Tensor, "R P"], M: int) -> State:
        return {"sum": torch.zeros_like(theta, dtype=torch.float64)}

    def update(self, state: State, theta: Float[Tensor, "R P"], point: Point, t: int) -> State:
        state["sum"] += self.weights[:, t : t + 1] * theta
        return state

    def final(self, state: State, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R P"]:
        return (state["sum"] / self.weights.shape[1]).to(theta.dtype)


OUTPUTS = {
    "last": Last,
    "mean": Mean,
    "adaptive": Adaptive,
    "adaptive_weak_ties": lambda: Adaptive(weak_ties=True),
    "adaptive_two_pass": AdaptiveTwoPass,
}


def make_output(name: str) -> Output:
    """An output rule by its name."""
    choose("output", name, OUTPUTS)
    return OUTPUTS[name]()
