"""Rules by which a check's outcome becomes the verdict on a claim, the same for every paper.

docs/protocol.md states the rules; `RULES` is the same table, and the first rule that applies decides.
"""

from __future__ import annotations

from collections.abc import Callable
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

    @property
    def fails(self) -> bool:
        return self.holds is False or (self.own and self.holds == "partial")

    def failed_by(self, kind: str) -> bool:
        """Says whether the check does not hold in full, for this kind of reason."""
        return self.fails and self.failure is not None and self.failure.kind == kind


class Rule(NamedTuple):
    """One line of the table.

    applies: whether the rule decides.
    verdict: of a claim.
    reason: the grounds of the verdict, in words.
    of_own: the verdict of a check of ours.
    causes: whether the likely causes and remarks of claims.yaml and of the call follow.
    """

    applies: Callable[[Evidence], bool]
    verdict: Verdict
    reason: Callable[[Evidence], str]
    of_own: Verdict = "inconclusive"
    causes: bool = False


def _words(evidence: Evidence) -> str:
    return evidence.failure.words if evidence.failure is not None else ""


RULES = (
    Rule(lambda e: bool(e.cannot), "inconclusive", lambda e: e.cannot),
    Rule(lambda e: e.holds is None, "inconclusive", lambda e: e.undecided),
    Rule(
        lambda e: e.failed_by("unmeasured"),
        "inconclusive",
        lambda e: f"{e.lost}. {_words(e)}" if e.lost else _words(e),
    ),
    Rule(
        lambda e: e.fails and bool(e.lost),
        "inconclusive",
        lambda e: f"{e.lost}: what is left of them does not decide it.",
    ),
    Rule(
        lambda e: e.own and e.holds is True and bool(e.lost),
        "inconclusive",
        lambda e: f"{e.lost}, and it is not known whether it would hold with those that did not.",
    ),
    Rule(lambda e: e.failed_by("held"), "inconclusive", _words, causes=True),
    Rule(
        lambda e: e.fails and bool(e.exact),
        "not reproduced",
        lambda e: e.exact,
        of_own="check failed",
        causes=True,
    ),
    Rule(lambda e: e.failed_by("excluded"), "not reproduced", _words, of_own="check failed", causes=True),
    Rule(lambda e: e.fails and e.own, "inconclusive", lambda e: "", of_own="check failed", causes=True),
    Rule(lambda e: e.fails, "inconclusive", lambda e: ALONE, causes=True),
    Rule(lambda e: e.holds == "partial", "partial", lambda e: "", causes=True),
    Rule(lambda e: bool(e.limits or e.lost), "partial", lambda e: "", "check passed", causes=True),
    Rule(lambda e: e.holds is True, "reproduced", lambda e: "", "check passed", causes=True),
)


class Decision(NamedTuple):
    """A verdict, its grounds, and whether likely causes follow."""

    verdict: Verdict
    reason: str
    causes: bool


APART: dict[Holds, Verdict] = {
    True: "holds with other settings",
    "partial": "holds in part with other settings",
    False: "does not hold with other settings",
    None: "undecided with other settings",
}


def decide_apart(evidence: Evidence) -> Decision:
    """Returns the outcome of a check on runs with other settings than the artifact's.

    It is no verdict on the claim.
    """
    e = evidence
    if e.cannot or e.holds is None:
        return Decision(APART[None], e.cannot or e.undecided, False)
    if e.failed_by("unmeasured") or (e.fails and e.lost):
        return Decision(APART[None], f"{e.lost}. {_words(e)}".lstrip(". "), False)
    return Decision(APART[e.holds], _words(e), False)


def decide(evidence: Evidence) -> Decision:
    """Returns the verdict by the first rule that applies."""
    rule = next(rule for rule in RULES if rule.applies(evidence))
    return Decision(rule.of_own if evidence.own else rule.verdict, rule.reason(evidence), rule.causes)
