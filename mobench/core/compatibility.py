"""Join an oracle and an algorithm on declared facts, before the first step;
refuse with every reason at once.
"""

from __future__ import annotations

from mobench.core.algorithm import Algorithm
from mobench.core.oracle import Spec
from mobench.errors import CompatibilityError


def _range(bounds: tuple[int, int | None]) -> str:
    low, high = bounds
    if high is None:
        return f"at least {low}"
    return f"exactly {low}" if low == high else f"{low} to {high}"


def _inside(n: int, bounds: tuple[int, int | None]) -> bool:
    return n >= bounds[0] and (bounds[1] is None or n <= bounds[1])


def reasons(spec: Spec, algorithm: Algorithm) -> list[str]:
    """Why the two do not fit; empty if they do."""
    out = []
    missing = algorithm.needs(spec) - spec.provides
    if missing:
        given = ", ".join(sorted(spec.provides)) or "values and vjp only"
        out.append(f"it asks for {', '.join(sorted(missing))}, the oracle provides {given}")
    if algorithm.samples > spec.samples:
        hint = (
            "; a stateful oracle cannot give them"
            if spec.stateful
            else "; set oracle.samples=2 (of oracle=minibatch or epochs)"
        )
        out.append(
            f"it draws {algorithm.samples} independent samples per step, "
            f"the oracle gives {spec.samples}{hint}"
        )
    if not _inside(spec.N, algorithm.constraints):
        out.append(f"it takes {_range(algorithm.constraints)} constraints, the problem has N={spec.N}")
    elif spec.N and algorithm.constraint_kind not in (None, spec.constraint_kind):
        out.append(
            f"its constraints are of kind {algorithm.constraint_kind!r}, "
            f"the problem's {spec.constraint_kind!r}"
        )
    if not _inside(spec.M, algorithm.objectives):
        out.append(f"it takes {_range(algorithm.objectives)} objectives, the problem has M={spec.M}")
    if not isinstance(spec.X, algorithm.sets):
        out.append(
            f"its feasible set must be {algorithm.sets.__name__}, the problem's is {type(spec.X).__name__}"
        )
    if algorithm.positive and not spec.positive:
        out.append(
            "it needs objectives >= 0 (shift them by an ideal point), the problem's can be negative; where "
            "they never are, say so: mobench.objectives(..., positive=True), or `positive: ClassVar[bool] = "
            "True` in the problem's class"
        )
    return out + algorithm.misfits(spec)


def check(spec: Spec, algorithm: Algorithm, problem: str = "this problem") -> None:
    """Raise CompatibilityError with all reasons unless the algorithm fits the oracle."""
    found = reasons(spec, algorithm)
    if found:
        name = type(algorithm).__name__
        raise CompatibilityError(
            f"{name} does not fit {problem}:\n" + "\n".join(f"  - {reason}" for reason in found)
        )
