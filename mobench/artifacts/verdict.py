"""Rules by which a check's outcome becomes the verdict on a claim, the same for every paper.

docs/protocol.md states the rules in the same order; the first one that applies decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mobench.artifacts.checks import Failure, Holds
from mobench.artifacts.claims import Verdict

ALONE = "It does not hold here, and without an interval (one seed, or one number) that decides nothing."


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The facts that a verdict depends on. Texts may be empty.

    own: it is a check of ours.
    holds: the outcome of the check; None: these rows cannot decide it.
    failure: why a check that does not hold does not.
    cannot: why these runs cannot judge it at all: their scale, their data or their settings.
    undecided: why the check itself cannot be decided.
    lost: which runs were lost, unless the text counts them.
    limits: reasons why it is partial at best: fewer seeds than the paper's, a part of its data.
    exact: why it needs no interval: arithmetic, a proof, runs without random numbers.
    """

    own: bool = False
    holds: Holds
    failure: Failure | None = None
    cannot: str = ""
    undecided: str = ""
    lost: str = ""
    limits: tuple[str, ...] = ()
    exact: str = ""


class Decision(NamedTuple):
    """A verdict, its grounds in words, and whether likely causes (of claims.yaml and the call) follow."""

    verdict: Verdict
    reason: str
    causes: bool = False


def decide(e: Evidence) -> Decision:
    """Returns the verdict by the first rule that applies."""
    fails = e.holds is False or (e.own and e.holds == "partial")
    kind = e.failure.kind if fails and e.failure is not None else ""
    words = e.failure.words if e.failure is not None else ""
    refuted: Verdict = "check failed" if e.own else "not reproduced"
    if e.cannot:
        return Decision("inconclusive", e.cannot)
    if e.holds is None:
        return Decision("inconclusive", e.undecided)
    if kind == "unmeasured":
        return Decision("inconclusive", f"{e.lost}. {words}" if e.lost else words)
    if fails and e.lost:
        return Decision("inconclusive", f"{e.lost}: what is left of them does not decide it.")
    if e.own and e.lost:
        why = "it is not known whether it would hold with those that did not"
        return Decision("inconclusive", f"{e.lost}, and {why}.")
    if kind == "held":
        return Decision("inconclusive", words, causes=True)
    if fails and e.exact:
        return Decision(refuted, e.exact, causes=True)
    if kind == "excluded":
        return Decision(refuted, words, causes=True)
    if fails:
        return Decision(*(("check failed", "") if e.own else ("inconclusive", ALONE)), causes=True)
    if e.own:
        return Decision("check passed", "", causes=True)
    limited = e.holds == "partial" or e.limits or e.lost
    return Decision("partial" if limited else "reproduced", "", causes=True)


APART: dict[Holds, Verdict] = {
    True: "holds with other settings",
    "partial": "holds in part with other settings",
    False: "does not hold with other settings",
    None: "undecided with other settings",
}


def decide_apart(e: Evidence) -> Decision:
    """Returns the outcome, by the same rules, on runs with other settings than the artifact's.

    It is no verdict on the claim.
    """
    decision = decide(e)
    if decision.verdict == "inconclusive" and not decision.causes:
        return Decision(APART[None], decision.reason)
    return Decision(APART[e.holds], e.failure.words if e.failure is not None else "")
