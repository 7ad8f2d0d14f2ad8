"""Join an oracle and an algorithm on declared facts before the first step, or refuse with all reasons."""

from __future__ import annotations

from mobench.core import stepping
from mobench.core.algorithm import Algorithm
from mobench.core.oracle import Spec
from mobench.errors import CompatibilityError


def _count(n: int, noun: str) -> str:
    return f"{'one' if n == 1 else n} {noun}{'' if n == 1 else 's'}"


def _demand(bounds: tuple[int, int | None], noun: str) -> str:
    low, high = bounds
    if high is None:
        return f"it needs at least {_count(low, noun)}"
    if high == 0:
        return f"it does not support {noun}s"
    if low == high:
        return f"it needs exactly {_count(low, noun)}"
    return f"it supports at most {_count(high, noun)}" if low == 0 else f"it needs {low} to {high} {noun}s"


def _inside(n: int, bounds: tuple[int, int | None]) -> bool:
    return n >= bounds[0] and (bounds[1] is None or n <= bounds[1])


def reasons(spec: Spec, algorithm: Algorithm, stepped: bool = False) -> list[str]:
    """Why the two are not compatible; empty if they are.

    Args:
        stepped: whether the problem has an optimizer of its user's (`mobench.core.stepping`).
    """
    out = []
    missing = algorithm.needs(spec) - spec.provides
    if missing:
        provided = ", ".join(sorted(spec.provides)) or "values and vjp only"
        out.append(f"it needs {', '.join(sorted(missing))}, but the oracle provides {provided}")
    if algorithm.samples > spec.samples:
        hint = (
            "; a stateful oracle cannot provide them"
            if spec.stateful
            else "; set oracle.samples=2 (with oracle=minibatch or oracle=epochs)"
        )
        out.append(
            f"it draws {algorithm.samples} independent samples per step, "
            f"but the oracle provides {spec.samples}{hint}"
        )
    if not _inside(spec.N, algorithm.constraints):
        has = f"N={spec.N}" if spec.N else "none (N=0)"
        out.append(f"{_demand(algorithm.constraints, 'constraint')}, but the problem has {has}")
    elif spec.N and algorithm.constraint_kind not in (None, spec.constraint_kind):
        out.append(
            f"it supports constraints of kind {algorithm.constraint_kind!r}, "
            f"but the problem's are of kind {spec.constraint_kind!r}"
        )
    if not _inside(spec.M, algorithm.objectives):
        out.append(f"{_demand(algorithm.objectives, 'objective')}, but the problem has M={spec.M}")
    if not isinstance(spec.X, algorithm.sets):
        out.append(
            f"it needs a feasible set of type {algorithm.sets.__name__}, "
            f"but the problem's is {type(spec.X).__name__}"
        )
    if algorithm.positive and not spec.positive:
        out.append(
            "it needs objectives >= 0, but the problem's can be negative; shift them by an ideal point or, "
            "if they are never negative, declare it: mobench.objectives(..., positive=True), or `positive: "
            "ClassVar[bool] = True` in the problem's class"
        )
    if algorithm.optimizer == "adam":
        out += [f"algorithm.optimizer=adam does not fit: {r}" for r in stepping.misfits(spec, algorithm)]
        if stepped:
            out.append("algorithm.optimizer=adam and optimizer= of mobench.networks are two; leave one out")
    if stepped and (misfits := stepping.misfits(spec, algorithm)):
        out += [f"optimizer= of mobench.networks does not fit: {r}" for r in misfits]
        out.append(
            "in a training loop of your own, mobench.Balanced(OPTIMIZER, METHOD) takes a method's direction "
            "as the gradient of any optimizer, for the methods that it has (docs/training.md)"
        )
    return out + algorithm.misfits(spec)


def check(spec: Spec, algorithm: Algorithm, problem: str = "this problem", stepped: bool = False) -> None:
    """Raise CompatibilityError with all reasons unless the algorithm fits the oracle; see `reasons`."""
    misfits = reasons(spec, algorithm, stepped)
    if misfits:
        name = type(algorithm).__name__
        raise CompatibilityError(
            f"{name} is not compatible with {problem}:\n" + "\n".join(f"  - {reason}" for reason in misfits)
        )
