"""Exact oracle: full-sample values and gradients, by the problem's closed form or else by autodiff."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from jaxtyping import Float
from torch import Tensor

from mobench.core.bilevel import Bilevel
from mobench.core.federated import Federated
from mobench.core.oracle import Oracle, Spec, State
from mobench.core.point import GraphPoint, Linear, LinearPoint, Point, TablePoint
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.sampled import BatchGradients, Sampled, samples_of
from mobench.errors import CompatibilityError


class OfProblem(Oracle):
    """The base of every oracle of one problem: the members that need no sample."""

    problem: Problem  # bound to the runs

    def exact(self, theta: Float[Tensor, "R P"]) -> Float[Tensor, "R K"]:
        return self.problem.values(theta)

    @cached_property
    def ideal(self) -> Tensor | None:  # read at every recorded step
        return self.problem.ideal_point

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return self.problem.initial(runs)

    def columns(
        self, theta: Float[Tensor, "R P"], values: Float[Tensor, "R K"], point: Point | None = None
    ) -> dict[str, Tensor]:
        return self.problem.columns(theta, values)

    def exact_point(self, theta: Float[Tensor, "R P"]) -> Point | None:
        return make_point(self.problem, theta, self.spec) if has_gradient(self.problem) else None


class Exact(OfProblem):
    """values f(theta), rows = Jacobian of f at theta.

    A second sample would equal the first, so it gives one.
    """

    def __init__(self, problem: Problem, runs: Runs) -> None:
        refuse_unfit(problem, "exact")
        refuse_large(problem, "exact")
        self.problem = problem.bind(runs)
        self.spec = problem_spec(problem, len(runs), samples=1)

    def at(self, theta: Float[Tensor, "R P"], state: State, t: int, k: int = 0) -> Point:
        return make_point(self.problem, theta, self.spec)


def has_gradient(problem: Problem) -> bool:
    """True if the values on all samples, `values` without a batch, can be differentiated."""
    if isinstance(problem, Bilevel):
        return problem.closed_form
    return not isinstance(problem, BatchGradients | Federated)


def refuse_unfit(problem: Problem, oracle: str) -> None:
    """Raises CompatibilityError for bilevel problems without a closed form, and for federated problems."""
    name = type(problem).__name__
    if isinstance(problem, Bilevel) and not problem.closed_form:
        raise CompatibilityError(
            f"oracle={oracle} does not solve the lower level of {name}. Choose oracle=hypergradient (or "
            f"moco, its running averages), or oracle=value_gap for algorithm=forum."
        )
    if isinstance(problem, Federated):
        raise CompatibilityError(
            f"oracle={oracle} does not support federated problems such as {name}, whose data are held by "
            "clients. Choose oracle=local_steps (oracle.local_steps=1 gives plain gradients), "
            "or protocol=federated."
        )


def refuse_large(problem: Problem, oracle: str) -> None:
    """Raises CompatibilityError for problems that have gradients of batches only."""
    if isinstance(problem, BatchGradients):
        finite = samples_of(problem) < float("inf")
        raise CompatibilityError(
            f"oracle={oracle} would need a graph of all samples of {type(problem).__name__}, which does not "
            f"fit into memory. Choose oracle={'epochs' if finite else 'minibatch'} (or a protocol that does)."
        )


def refuse_batch(problem: Problem, size: int) -> None:
    """Raises CompatibilityError unless steps can have batches of so many samples."""
    if isinstance(problem, Sampled) and (why := problem.unfit_batch(size)):
        raise CompatibilityError(
            f"oracle.batch_size={size} cannot be used: {why}. Choose a larger one, or losses that such a "
            "batch has."
        )


def problem_spec(problem: Problem, R: int, samples: int) -> Spec:
    """The facts that a problem declares, as an oracle's Spec."""
    return Spec(
        R=R,
        M=problem.n_objectives,
        N=problem.n_constraints,
        P=problem.dim,
        X=problem.X,
        provides=frozenset({"jacobian", "jvp", "hvp"} if problem.twice else {"jacobian", "jvp"}),
        samples=samples,
        positive=problem.positive,
    )


def make_point(problem: Problem, theta: Tensor, spec: Spec, batch: Any = None) -> Point:
    """Point of a problem at theta, on the terms `batch` of its finite sum (None: all)."""

    def fn(x: Tensor) -> Tensor:
        return problem.values(x, batch)

    closed = problem.linearize(theta, batch)
    point: Point
    if closed is None:
        point = GraphPoint(fn, theta, spec.X, spec.M, {})
    elif isinstance(closed, Linear):
        point = LinearPoint(closed, theta, spec.X, spec.M, {})
    else:
        values, rows, *hessian = closed
        point = TablePoint(theta, spec.X, spec.M, {}, values, rows, fn, *hessian)
    point.same_sample = lambda x: make_point(problem, x, spec, batch)
    return point
