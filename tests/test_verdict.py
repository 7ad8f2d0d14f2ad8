"""Rules of verdicts (docs/protocol.md) on claims whose truth is known, and each rule alone."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mobench.artifacts import checks
from mobench.artifacts.checks import AtLeast, AtMost, Check, Judged, Ordered, Share, SurelyAbove, Within
from mobench.artifacts.statistics import Mean, wilson
from mobench.artifacts.verdict import Evidence, decide

NAN = float("nan")


def verdict(check: Check, **words: Any) -> str:
    return decide(Evidence(holds=check.holds, failure=check.failure, undecided=check.why, **words)).verdict


def drawn(mean: float, seeds: int, rng: np.random.Generator) -> Mean:
    """Returns the mean of one standard normal number per seed."""
    return Mean(rng.normal(mean, 1.0, seeds))


def synthetic(kind: str, number: int) -> tuple[Check, dict[str, Any], set[str]]:
    """Returns a claim, what else is known of its runs, and the verdicts that are right."""
    rng = np.random.default_rng([number, sum(kind.encode())])
    forms = {
        "above": lambda mean, seeds: SurelyAbove(drawn(mean, seeds, rng)),
        "within": lambda mean, seeds: Within(drawn(mean, seeds, rng), 3.0, 1.5),
        "least": lambda mean, seeds: AtLeast(drawn(mean, seeds, rng), 1.5),
        "order": lambda mean, seeds: Ordered({"a": drawn(0, seeds, rng), "b": drawn(mean, seeds, rng)}),
        "share": lambda mean, seeds: Share(rng.random(8 * seeds) < (0.99 if mean > 0 else 0.4), 0.9),
    }
    form = list(forms.values())[number % len(forms)]
    match kind:
        case "true":
            return form(3.0, 12), {}, {"reproduced"}
        case "false":
            return form(-3.0, 12), {}, {"not reproduced"}
        case "underpowered":  # of a true claim: a verdict must not accuse
            small = SurelyAbove(drawn(0.3, 4, rng)) if number % 2 else AtLeast(drawn(1.7, 4, rng), 1.5)
            return small, {}, {"inconclusive", "reproduced"}
        case "saturated":
            gain = SurelyAbove(Mean(np.zeros(4)), near=1.0)
            return gain.below_ceiling([100.0, 99.9, 100.0], 100.0, 0.5), {}, {"inconclusive"}
        case "lost":
            values = {"a": drawn(3, 12, rng), "b": Mean(np.array([]))}
            return AtLeast(values, 1.5), {"lost": "Not all runs finished (a: 3 of 15)"}, {"inconclusive"}
    raise AssertionError(kind)


def test_verdicts_of_claims_whose_truth_is_known() -> None:
    """At most 5 % of 250 claims get a wrong verdict, and no true one is accused too often."""
    wrong = {}
    for kind in ("true", "false", "underpowered", "saturated", "lost"):
        for number in range(50):
            check, words, right = synthetic(kind, number)
            if (said := verdict(check, **words)) not in right:
                wrong[kind, number] = said
    assert len(wrong) <= 0.05 * 250, wrong
    assert not [key for key in wrong if key[0] in ("saturated", "lost")]


@pytest.mark.parametrize(
    ("check", "words", "of_a_paper", "of_ours"),
    [
        (Judged(True, "", ""), {}, "reproduced", "check passed"),
        (Judged(True, "", ""), {"limits": ("3 of the paper's 10 seeds.",)}, "partial", "check passed"),
        (Judged(True, "", ""), {"lost": "2 of 3"}, "partial", "inconclusive"),
        (Judged("partial", "", ""), {}, "partial", "check failed"),
        (Judged(None, "", "", "Too few."), {}, "inconclusive", "inconclusive"),
        (Judged(False, "", ""), {"cannot": "Smoke."}, "inconclusive", "inconclusive"),
        (Judged(False, "", ""), {}, "inconclusive", "check failed"),
        (Judged(False, "", ""), {"lost": "2 of 3"}, "inconclusive", "inconclusive"),
        (Judged(False, "", ""), {"exact": "Arithmetic."}, "not reproduced", "check failed"),
        (Judged(False, "", "", excluded="Its interval."), {}, "not reproduced", "check failed"),
        (AtMost(NAN, 1), {"lost": "2 of 3"}, "inconclusive", "inconclusive"),
        (AtMost(NAN, 1), {"exact": "Arithmetic."}, "inconclusive", "inconclusive"),
        (AtMost(2, 1), {}, "inconclusive", "check failed"),
    ],
)
def test_each_rule(check: Check, words: dict[str, Any], of_a_paper: str, of_ours: str) -> None:
    assert verdict(check, **words) == of_a_paper
    assert verdict(check, own=True, **words) == of_ours


MEAN = Mean(np.array([0.9, 1.0, 1.1]))  # 1 ± 0.248


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (AtMost(MEAN, 0.8), "held"),
        (AtMost(MEAN, 0.7), "excluded"),
        (AtMost(Mean(np.array([1.0])), 0.7), "alone"),
        (AtMost(MEAN, Mean(np.array([0.7, 0.75, 0.8]))), "held"),  # both intervals: 0.25 ± 0.28
        (Within(MEAN, 0.5, 0.2), "excluded"),
        (Within(MEAN, 0.5, 0.3), "held"),
        (SurelyAbove(MEAN, 1.1), "held"),
        (SurelyAbove(MEAN, 1.3), "excluded"),
        (SurelyAbove(MEAN, 0.9, near=0.5), "excluded"),  # at most 0.348 above, where 0.5 is required
        (SurelyAbove(MEAN, 0.9, near=0.3), "held"),
        (SurelyAbove(Mean(np.array([])), 0.5), "unmeasured"),
        (Ordered({"a": MEAN, "b": Mean(MEAN.values - 1)}), "excluded"),
        (Ordered({"a": MEAN, "b": Mean(MEAN.values - 0.3)}), "held"),
        (Ordered({"a": MEAN, "b": 0.5}), "excluded"),
        (Ordered({"a": 1, "b": 0.5}), "alone"),
        (checks.Smallest({"a": MEAN, "b": 0.5}, "a"), "excluded"),
        (checks.Largest({"a": MEAN, "b": 1.2}, "a"), "held"),
        (checks.Largest({"a": NAN, "b": 1.2}, "a"), "unmeasured"),
        (Share(np.arange(10) < 8, 0.9), "held"),
        (Share(np.arange(100) < 80, 0.9), "excluded"),
        (Share(np.array([], dtype=bool), 0.9), "unmeasured"),
        (checks.Equal({"a": 1}, {"a": 2}), "excluded"),
        (checks.Count({"a": False}), "alone"),
        (checks.AllOf(AtMost(MEAN, 0.7), AtMost(NAN, 1)), "excluded"),  # one exclusion refutes all of it
        (checks.AllOf(AtMost(MEAN, 0.8), AtMost(NAN, 1)), "unmeasured"),
        (checks.Graded(AtMost(MEAN, 0.7), AtMost(MEAN, 0.8)), "excluded"),
    ],
)
def test_what_an_interval_says_of_a_check_that_fails(check: Check, kind: str) -> None:
    assert check.holds is False
    assert check.failure is not None
    assert check.failure.kind == kind


def test_an_interval_below_the_margin_is_partial() -> None:
    check = SurelyAbove(MEAN, 0.7, near=0.5)
    assert check.holds == "partial"
    assert verdict(check) == "partial"


@pytest.mark.parametrize("seeds", [3, 4, 10, 50])
def test_the_number_of_seeds_that_decides(seeds: int) -> None:
    """Samples of the same mean and deviation: the interval of so many holds no 0, that of one fewer does."""

    def sample(n: int) -> Mean:
        x = np.linspace(-1.0, 1.0, n)
        return Mean(0.1 - x / np.std(x, ddof=1))

    check = SurelyAbove(sample(seeds))
    assert check.failure is not None
    (about,) = re.findall(r"about ([\d,]+) seeds", str(check.failure))
    enough = int(about.replace(",", ""))
    assert sample(enough).half < 0.1 <= sample(enough - 1).half


def test_wilson() -> None:
    """Closed form of Wilson's interval (Wilson 1927) at 8 of 10, with z = 1.959964."""
    z, n, p = 1.959963984540054, 10, 0.8
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    expected = ((centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n))
    assert wilson(8, 10) == pytest.approx(expected, abs=1e-12)
