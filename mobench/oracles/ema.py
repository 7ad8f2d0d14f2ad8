"""Running averages of another oracle's stochastic values and rows: asymptotically exact, one sample a step.

fh <- rho_t f(x_t, xi_t) + (1 - rho_t) fh,   same for every row;   rho_t = min(1, scale / (t + offset)^decay)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.oracle import Oracle, State
from mobench.core.point import Point, TablePoint
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import counter_indices, seed_for
from mobench.core.sets import Ball, Box, Free
from mobench.core.types import Real
from mobench.errors import CompatibilityError, ConfigError, choose


def averaging_weight(t: int, decay: float, scale: float, offset: float) -> float:
    """rho_t."""
    return min(1.0, scale / (t + offset) ** decay)


class EMA(Oracle):
    """Values and rows of `inner`, averaged over the steps (CSMOO (3), (4)); block-wise rows (5)-(7).

    With offset = scale = 1 the first sample has weight 1; else averages begin at 0.
    An inner oracle's state (hypergradients) is stored here, and histories then show its values, not averages.

    Parameters:
        inner: the oracle that is averaged, one sample a step. decay, scale, offset: rho_t.
        blocks: k blocks of coordinates (contiguous, sizes equal up to one); 1: none. Each step refreshes the
            rows of one block; values are always refreshed. block_rule: "cyclic" (t mod k) or "random"
            (uniform, by run).
        block_rho: "global" (rho_t, as printed: a block first seen at t > 0 starts from a shrunken gradient)
            or "per_block" (rho of the block's count of visits).
        block_move: "selected" (only the refreshed block moves) or "all".
    Departure: all rows are computed and those of other blocks are dropped; the block form saves no time here.
    """

    def __init__(
        self,
        problem: Problem,
        runs: Runs,
        inner: Oracle,
        decay: Real = 0.8,
        scale: Real = 1.0,
        offset: Real = 1.0,
        blocks: int = 1,
        block_rule: str = "cyclic",
        block_rho: str = "global",
        block_move: str = "selected",
    ) -> None:
        if not isinstance(inner, Oracle):
            raise ConfigError(
                f"oracle.inner must be an oracle (a mapping with `_target_`), but is {inner!r}."
            )
        spec = inner.spec
        if "jacobian" not in spec.provides:
            raise CompatibilityError(
                f"EMA averages Jacobians, which {type(inner).__name__} does not provide."
            )
        if not (decay >= 0 and scale > 0 and offset > 0):
            raise ConfigError(
                f"oracle.decay={decay} must be >= 0; oracle.scale={scale} and oracle.offset={offset} must be "
                "> 0."
            )
        choose("oracle.block_rule", block_rule, ("cyclic", "random"))
        choose("oracle.block_rho", block_rho, ("global", "per_block"))
        choose("oracle.block_move", block_move, ("selected", "all"))
        if not 1 <= blocks <= spec.P:
            raise ConfigError(f"oracle.blocks={blocks} must lie in 1..{spec.P}, the number of variables.")
        if blocks > 1 and block_move == "selected" and not isinstance(spec.X, Free | Box | Ball):
            raise CompatibilityError(
                f"oracle.blocks={blocks} does not support X of type {type(spec.X).__name__}; it needs Free, "
                f"Box or Ball. Set oracle.block_move=all or oracle.blocks=1."
            )
        self.inner = inner
        self.decay = float(decay)
        self.scale = float(scale)
        self.offset = float(offset)
        self.blocks = blocks
        self.block_rule = block_rule
        self.block_rho = block_rho
        self.block_move = block_move
        self.spec = replace(
            spec,
            provides=frozenset({"jacobian", "jvp"}),
            stateful=True,
            samples=1,
            averaging=self.decay,
            blocks=blocks if block_move == "selected" else 1,
        )
        self.block_of = torch.arange(spec.P, device=runs.seeds.device) * blocks // spec.P
        keys = [seed_for(int(s), problem=problem.name, use="blocks") for s in runs.seeds]
        self.keys = torch.tensor(keys, dtype=torch.int64, device=runs.seeds.device)

    def transformed(self, fn: Callable[[Tensor], Tensor]) -> Oracle:
        """fn of the averages; clients that take local steps would have to descend on fn(f) themselves.

        Raises:
            CompatibilityError: they do not know of fn.
        """
        if self.inner.spec.local_steps:
            raise CompatibilityError(
                "oracle=ema averages the answers of clients, whose local steps do not follow a method's "
                "transformed objectives; choose oracle=local_steps, or a method without."
            )
        return super().transformed(fn)

    def rho(self, t: int) -> float:
        """Weight of the sample of step t."""
        return averaging_weight(t, self.decay, self.scale, self.offset)

    def init(self, theta: Float[Tensor, "R P"]) -> State:
        R, P = theta.shape
        K = self.spec.M + self.spec.N
        state: State = {"values": theta.new_zeros(R, K), "rows": theta.new_zeros(R, K, P)}
        if self.inner.spec.stateful:
            state["inner"] = self.inner.init(theta)
        if self.blocks > 1:
            state["visits"] = torch.zeros(R, self.blocks, dtype=torch.int64, device=theta.device)
        return state

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        sample = self.inner.at(theta, state.get("inner", {}), t, k)
        rho = self.rho(t)
        values = torch.lerp(state["values"], sample.values(), rho)
        fresh = sample.jacobian()
        # read after the rows, which may change the state
        inner = {"inner": sample.state} if self.inner.spec.stateful else {}
        if self.blocks == 1:
            rows = torch.lerp(state["rows"], fresh, rho)
            new = {"values": values, "rows": rows, **inner}
            point = TablePoint(theta, self.spec.X, self.spec.M, new, values, rows)
            return self._over(point, sample)
        chosen = self.block(t, len(theta))
        mask = self.block_of == chosen.unsqueeze(1)
        weight = torch.full_like(values[:, :1], rho)
        visits = state["visits"]
        if self.block_rho == "per_block":
            count = visits.gather(1, chosen.unsqueeze(1)).to(values.dtype)
            weight = (self.scale / (count + self.offset) ** self.decay).clamp_max(1.0)
        rows = torch.where(
            mask.unsqueeze(1), state["rows"] + weight.unsqueeze(2) * (fresh - state["rows"]), state["rows"]
        )
        visits = visits + torch.nn.functional.one_hot(chosen, self.blocks)
        new = {"values": values, "rows": rows, "visits": visits, **inner}
        point = TablePoint(theta, self.spec.X, self.spec.M, new, values, rows)
        if self.block_move == "selected":
            point.moving = mask
        return self._over(point, sample)

    def _over(self, point: Point, sample: Point) -> Point:
        """The point of averages; of an inner oracle with a state, histories record its values."""
        point.inner = sample
        point.recorded = sample.values() if self.inner.spec.stateful else None
        return point

    def block(self, t: int, R: int) -> Int[Tensor, " R"]:
        """The block that each run refreshes at step t."""
        if self.block_rule == "random":
            return counter_indices(self.keys, "block", t, 1, self.blocks)[:, 0]
        return torch.full((R,), t % self.blocks, dtype=torch.int64, device=self.keys.device)

    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        return self.inner.exact(theta)

    @property
    def ideal(self) -> Tensor | None:
        return self.inner.ideal

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return self.inner.initial(runs)

    def last_point(self, theta: Float[Tensor, "R P"], state: State, t: int) -> Point | None:
        return self.inner.last_point(theta, state.get("inner", {}), t)

    def columns(
        self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        return self.inner.columns(theta, values, point and (point.inner or point))

    def exact_point(self, theta: Float[Tensor, "R P"]) -> Point | None:
        return self.inner.exact_point(theta)
