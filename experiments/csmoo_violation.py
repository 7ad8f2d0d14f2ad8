"""What "(nearly) zero" means in CSMOO's claims: one meaning for the synthetic problem and for beamforming."""

from __future__ import annotations

import numpy as np

from mobench.artifacts import Artifact
from mobench.artifacts.artifact import Holds

ZERO = 1e-4  # the paper's tolerance on max_j g_j (Appendix E.3)
NEARLY = 0.05  # ours: share of the smallest right-hand side of a constraint


def is_zero(worst: float, bound: float) -> Holds:
    """Whether the largest violation is zero; "partial": only nearly zero."""
    if worst <= ZERO:
        return True
    return "partial" if worst <= NEARLY * bound else False


def unless(holds: Holds, reason: str) -> str:
    """The reason of a claim that does not hold in full."""
    return "" if holds and holds != "partial" else reason


def meaning(bound: float) -> str:
    """The criterion, in words."""
    return (
        f"zero: {ZERO:g}, the paper's tolerance of Appendix E.3, in every run; partial where it is nearly "
        f"zero only: {NEARLY * bound:g}, which is {NEARLY:.0%} of the constraint's "
        f"bound {bound:g}".replace("5%", "5 %")
    )


def judge_violation(
    a: Artifact,
    id: str,
    statement: str,
    source: str,
    violation: np.ndarray,
    bound: float,
    more: str = "",
    reason: str = "",
    undecided: str = "",
    published: str = "(nearly) zero",
) -> None:
    """The claim that final violations (R,) are (nearly) zero; `reason` where they are not zero.

    `undecided`: why these runs cannot judge it, and what would.
    """
    worst = float(violation.max())
    holds = is_zero(worst, bound)
    why = (
        f"{'Nearly zero, but not zero.' if holds == 'partial' else 'Neither zero nor nearly zero.'} {reason}"
    ).strip()
    a.claim(
        id,
        statement,
        source,
        published=published,
        measured=f"largest final violation of {len(violation)} runs {worst:.2g}; "
        f"{int((violation <= ZERO).sum())} of them have at most {ZERO:g}{more}",
        tolerance=meaning(bound),
        holds=None if undecided else holds,
        reason=undecided or unless(holds, why),
    )
