"""Hypergradients of a bilevel problem: rows are grad phi_s, values are f_s(x, y_D).

y_t = y_{t-1} - alpha grad_y g(x, y_{t-1}),  t = 1..D;     grad phi_s ~ grad_x f_s - J_xy v_s,
v_s ~ H^-1 grad_y f_s
cg       v_s by N steps of conjugate gradients at y_D, from the last v_s
itd      sum_{t=0}^{D-1} J_xy(y_t) alpha prod_{j=t+1}^{D-1} (I - alpha H(y_j)) grad_y f_s
         instead of J_xy v_s
neumann  v_s = eta sum_{i=0}^{Q} nu_i,   nu_Q = grad_y f_s,   nu_{i-1} = nu_i - eta H(B_i) nu_i
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.bilevel import Bilevel, Step, View
from mobench.core.cache import Cache
from mobench.core.cg import conjugate_gradients
from mobench.core.oracle import State
from mobench.core.point import Point
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import counter_indices, seed_for
from mobench.core.types import Real
from mobench.errors import CompatibilityError, ConfigError, choose
from mobench.oracles.exact import OfProblem, problem_spec

METHODS = ("itd", "cg", "neumann")


class OfBilevel(OfProblem):
    """The base of oracles of bilevel problems: the steps of the lower level, on its samples."""

    problem: Bilevel

    def _bind(
        self,
        problem: Problem,
        runs: Runs,
        inner_steps: int,
        inner_step: Real,
        lower_batch: int | None,
        name: str,
    ) -> None:
        if not isinstance(problem, Bilevel):
            raise CompatibilityError(
                f"oracle={name} needs a bilevel problem, but {type(problem).__name__} has no lower level. "
                f"Choose oracle=exact, or a bilevel problem such as problem=bilevel_quadratic."
            )
        if inner_steps < 1 or inner_steps != int(inner_steps):
            raise ConfigError(f"oracle.inner_steps={inner_steps} must be at least 1 and a whole number.")
        if not 0 < inner_step < math.inf:
            raise ConfigError(f"oracle.inner_step={inner_step} must be > 0 and finite.")
        if lower_batch is not None and not 1 <= lower_batch <= problem.lower_samples:
            raise ConfigError(
                f"oracle.lower_batch={lower_batch} must lie in 1..{problem.lower_samples}, the number of "
                f"samples in the lower level of {type(problem).__name__}"
                + ("." if problem.lower_samples else " (it is deterministic: set it to null).")
            )
        bound = problem.bind(runs)
        assert isinstance(bound, Bilevel)
        self.problem = bound
        self.inner_steps = int(inner_steps)
        self.inner_step = float(inner_step)
        self.lower_batch = lower_batch
        self.start = bound.initial_lower(runs)
        self.cache = Cache()
        # preferences of a seed share its samples
        seeds, self.of_run = torch.unique(runs.seeds, return_inverse=True)
        keys = [seed_for(int(s), problem=problem.name, use="batches") for s in seeds]
        self.keys = torch.tensor(keys, dtype=torch.int64, device=runs.seeds.device)

    def solve(self, x: Float[Tensor, "R P"]) -> Float[Tensor, "R B q"]:
        """y*(x); that of the last x is stored, because several columns are made of it."""
        return self.cache.at_equal(x, "lower", lambda: self._solve(x))

    def _solve(self, x: Float[Tensor, "R P"]) -> Float[Tensor, "R B q"]:
        y = self.problem.solve(x)
        unsolved = ~torch.isfinite(y).flatten(1).all(1) & torch.isfinite(x).all(1)
        lost = unsolved.nonzero().squeeze(1).tolist()
        if lost:
            print(
                f"warning: the lower level of {type(self.problem).__name__} was not solved exactly for "
                f"runs {lost} (check that it is strongly convex there). Their exact values are missing, "
                "and final rows mark them as diverged.",
                file=sys.stderr,
            )
        return y

    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        return self.problem.view(theta).upper(self.solve(theta))[0]

    def _draw(self, stream: str, t: int, size: int) -> Int[Tensor, "R size"]:
        """Terms of the lower level for each run, with replacement: a function of (seed, stream, t)."""
        return counter_indices(self.keys, stream, t, size, self.problem.lower_samples)[self.of_run]

    def _descend(self, x: Tensor, y: Tensor, t: int) -> Iterator[Tensor]:
        """y_1 .. y_D."""
        problem = self.problem.at_step(t)
        whole = problem.view(x) if self.lower_batch is None else None
        index = None
        if self.lower_batch is not None:
            index = self._draw("lower", t, self.inner_steps * self.lower_batch).view(
                len(x), self.inner_steps, -1
            )
        for d in range(self.inner_steps):
            view = problem.view(x, index[:, d]) if index is not None else whole
            assert view is not None
            y = torch.add(y, view.lower_gradient(y), alpha=-self.inner_step)
            yield y

    def _end(self, x: Tensor, y: Tensor, t: int) -> Tensor:
        """y_D, without keeping the iterates before it."""
        for near in self._descend(x, y, t):
            end = near
        return end


class Hypergradient(OfBilevel):
    """Approximate hypergradients of all objectives after D gradient steps on the lower level.

    Parameters:
        inner_steps: D >= 1. inner_step: alpha > 0. warm_start: y starts where the last step left it; false:
            always from its first start. lower_batch: samples of each inner step, with replacement; null: all.
        method: itd (reverse mode through the D steps, without their graph: D Hessian products and a sum over
            the stored y_t), cg, neumann.
        cg_steps: N. neumann_steps: Q >= 0. neumann_step: eta > 0. neumann_batch: B >= 1: the batch of factor
            Q + 1 - j, the j-th that is used, has B Q (1 - eta mu_g)^(j-1) samples (at most all, at least 1);
            null: all samples.

    J_xy and the upper level are always taken on all samples. Values are f_s at (x, y_D), on the whole upper
    level.

    Source: multi-objective bilevel learning paper, Algorithms 1-3, equations (2)-(4). Departures: `itd` is
    the exact derivative of the D steps, where (4) as printed lacks factors alpha and has one term too many;
    the sum of `neumann` begins with nu_Q.
    """

    def __init__(
        self,
        problem: Problem,
        runs: Runs,
        inner_steps: int = 32,
        inner_step: Real = 0.1,
        warm_start: bool = True,
        lower_batch: int | None = None,
        method: str = "itd",
        cg_steps: int = 10,
        neumann_steps: int = 3,
        neumann_step: Real = 0.5,
        neumann_batch: int | None = None,
    ) -> None:
        self._bind(problem, runs, inner_steps, inner_step, lower_batch, "hypergradient")
        choose("oracle.method", method, METHODS)
        if method == "itd" and lower_batch is not None:
            raise ConfigError(
                "oracle.method=itd differentiates inner steps on all samples, so "
                f"oracle.lower_batch={lower_batch} cannot be used with it. Set it to null, "
                "or choose oracle.method=neumann."
            )
        if cg_steps < 1:
            raise ConfigError(f"oracle.cg_steps={cg_steps} must be at least 1.")
        if neumann_steps < 0:
            raise ConfigError(f"oracle.neumann_steps={neumann_steps} must be >= 0.")
        if not 0 < neumann_step < math.inf:
            raise ConfigError(f"oracle.neumann_step={neumann_step} must be > 0 and finite.")
        if neumann_batch is not None and not 1 <= neumann_batch <= self.problem.lower_samples:
            raise ConfigError(
                f"oracle.neumann_batch={neumann_batch} must lie in 1..{self.problem.lower_samples}, the "
                f"number of samples in the lower level of {type(problem).__name__}"
                + ("." if self.problem.lower_samples else " (it is deterministic: set it to null).")
            )
        self.warm_start = bool(warm_start)
        self.method = method
        self.cg_steps = cg_steps
        self.neumann_steps = int(neumann_steps)
        self.neumann_step = float(neumann_step)
        self.sizes = (
            None
            if neumann_batch is None
            else batch_sizes(
                neumann_batch,
                self.neumann_steps,
                self.neumann_step,
                self.problem.convexity,
                self.problem.lower_samples,
            )
        )
        spec = problem_spec(self.problem, len(runs), samples=1)
        self.spec = replace(spec, provides=frozenset({"jacobian", "jvp"}), stateful=True)

    def init(self, theta: Float[Tensor, "R P"]) -> State:
        state: State = {"y": self.start.to(theta)}
        if self.method == "cg":
            state["v"] = theta.new_zeros(len(theta), self.spec.M, self.problem.lower_dim)
        return state

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        y = state["y"] if self.warm_start else self.start.to(theta)
        path = [y, *self._descend(theta, y, t)] if self.method == "itd" else [self._end(theta, y, t)]
        return HyperPoint(self, theta, path, {**state, "y": path[-1]}, t)

    def last_point(self, theta: Float[Tensor, "R P"], state: State, t: int) -> Point:
        return self.at(theta, state, t)

    def columns(
        self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        """Returns the values of (x, y_D) where there is a point, else of (x, y*(x))."""
        y = point.y if isinstance(point, HyperPoint) else self.solve(theta)
        return self.problem.columns_at(theta, y)

    def weighted_steps(
        self, view: View, path: list[Tensor], slopes: Tensor, state: State, t: int, theta: Tensor
    ) -> list[Step]:
        """The vectors that J_xy is applied to: (y_t, columns)."""
        y = path[-1]
        if self.method == "itd":
            a = slopes
            steps = []
            for y_t in reversed(path[:-1]):
                steps.append((y_t, self.inner_step * a))
                a = torch.add(a, view.lower_hvp(y_t, a), alpha=-self.inner_step)
            return steps
        if self.method == "cg":
            state["v"] = conjugate_gradients(
                lambda v: view.lower_hvp(y, v), slopes, state["v"], self.cg_steps
            )
            return [(y, state["v"])]
        nu = total = slopes
        for i in range(self.neumann_steps, 0, -1):
            some = view
            if self.sizes is not None:
                some = self.problem.at_step(t).view(
                    theta, self._draw(f"neumann{i}", t, self.sizes[self.neumann_steps - i])
                )
            nu = torch.add(nu, some.lower_hvp(y, nu), alpha=-self.neumann_step)
            total = total + nu
        return [(y, self.neumann_step * total)]


def batch_sizes(B: int, Q: int, eta: float, mu: float, n: int) -> list[int]:
    """Sizes of the batches of a stochastic Neumann series in the order of their use, largest first."""
    return [min(n, max(1, round(B * Q * (1.0 - eta * mu) ** (j - 1)))) for j in range(1, Q + 1)]


class HyperPoint(Point):
    """x with y_D: values from the upper level, rows on demand. `path` ends with y_D."""

    def __init__(self, oracle: Hypergradient, x: Tensor, path: list[Tensor], state: State, t: int) -> None:
        super().__init__(x, oracle.spec.X, oracle.spec.M, state)
        self.oracle = oracle
        self.path = path
        self.y = path[-1]
        self.t = t
        self.view = oracle.problem.at_step(t).view(x)
        self._upper: tuple[Tensor, Tensor] | None = None

    def _at_upper(self) -> tuple[Tensor, Tensor]:
        if self._upper is None:
            self._upper = self.view.upper(self.y)
        return self._upper

    def values(self) -> Float[Tensor, "R S"]:
        return self._at_upper()[0]

    def _jacobian(self) -> Float[Tensor, "R S P"]:
        slopes = self._at_upper()[1]
        steps = self.oracle.weighted_steps(self.view, self.path, slopes, self.state, self.t, self.x)
        return self.view.jacobian(self.y, steps)
