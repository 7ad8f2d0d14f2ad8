"""Each kind of check holds, fails, at its boundary and of NaN, and writes its values and tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.csmoo.preferences import seed_columns
from mobench.artifacts.checks import (
    Above,
    AllOf,
    AtLeast,
    AtMost,
    Below,
    Check,
    Count,
    Equal,
    Graded,
    Inside,
    Judged,
    Largest,
    Ordered,
    Share,
    Smallest,
    SurelyAbove,
    SurelyBelow,
    Within,
)
from mobench.artifacts.statistics import (
    Mean,
    by_seed,
    finite_mean,
    log_slope,
    percent,
    standard_error,
    std,
)

NAN = float("nan")
CLEAR = Mean(np.array([1.0, 1.1, 0.9]))  # 1.0 ± 0.25
YES = Judged(True, "y", "t")
NO = Judged(False, "n", "u")
PART = Judged("partial", "p", "v")
OPEN = Judged(None, "o", "w").provided(False, "Too few.")


@pytest.mark.parametrize(
    ("check", "holds", "measured", "tolerance"),
    [
        (AtMost(0.02, 0.02, of="V"), True, "V = 0.02", "V <= 0.02"),
        (AtMost(0.0201, 0.02, unit=" s", digits=".3f"), False, "0.020 s", "<= 0.02 s"),
        (AtMost(NAN, 0.02), False, "nan", "<= 0.02"),
        (AtMost(0.5, 1.0, of="end, u = 0"), True, "end, u = 0: 0.5", "end, u = 0 <= 1"),
        (
            AtMost({"a": 1.0, "b": 3.0}, 2.0, of="V", partial=True), "partial", "V: a 1, b 3",
            "V <= 2, each (partial: some)",
        ),
        (
            AtMost({"a": 1.0, "b": 3.0}, {"a": 1.0, "b": 3.5}), True, "a 1 (<= 1), b 3 (<= 3.5)",
            "<= its own bound, each",
        ),
        (
            AtMost(1.0, 2.0, of="V", than="the best baseline's"), True, "V = 1; the best baseline's 2",
            "V <= the best baseline's",
        ),
        (AtMost({}, 2.0), False, "", "<= 2"),
        (Below(2.0, 2.0), False, "2", "< 2"),
        (AtLeast(2.0, 2.0), True, "2", ">= 2"),
        (AtLeast(NAN, 2.0), False, "nan", ">= 2"),
        (Above(2.0, 2.0), False, "2", "> 2"),
        (Above(CLEAR, 0.9, of="x"), True, "x = 1 (95 % interval ± 0.25)", "x > 0.9"),
        (Within(1.5, 1.0, 0.5, of="x"), True, "x = 1.5 (exact 1)", "|x - exact| <= 0.5"),
        (
            Within(1.6, 1.0, 0.5, to="printed", unit=" %"), False, "1.6 % (printed 1 %)",
            "|measured - printed| <= 0.5 %",
        ),
        (Within(NAN, 1.0, 0.5), False, "nan (exact 1)", "|measured - exact| <= 0.5"),
        (Inside(1.0, 1.0, 2.0, of="x"), True, "x = 1", "x in [1, 2]"),
        (Inside(2.1, 1.0, 2.0), False, "2.1", "in [1, 2]"),
        (Inside(NAN, 1.0, 2.0), False, "nan", "in [1, 2]"),
        (
            SurelyAbove(CLEAR, of="gain"), True, "gain: +1 (95 % interval ± 0.25)",
            "95 % interval over seeds above 0",
        ),
        (SurelyAbove(CLEAR, 0.8), False, "+1 (95 % interval ± 0.25)", "95 % interval over seeds above 0.8"),
        (
            SurelyAbove(CLEAR, near=1.5),  # the side is shown, the margin is not
            "partial",
            "+1 (95 % interval ± 0.25)",
            "95 % interval over seeds above 0 and by more than 1.5",
        ),
        (SurelyAbove(Mean(np.array([1.0]))), False, "+1 (one seed)", "95 % interval over seeds above 0"),
        (SurelyBelow(CLEAR, 1.3), True, "+1 (95 % interval ± 0.25)", "95 % interval over seeds below 1.3"),
        (
            Share(np.array([True, True, True, False]), 0.75, that="on the ray"), True,
            "share of runs (on the ray) = 75 % of 4", "share of runs (on the ray) >= 75 %",
        ),
        (Share([], 0.75), False, "share of runs = no share of 0", "share of runs >= 75 %"),
        (Share([True, False], at_most=0.5), True, "share of runs = 50 % of 2", "share of runs <= 50 %"),
        (
            Share({"a": [True], "b": [False]}, partial=True), "partial",
            "share of runs: a 100 % of 1, b 0 % of 1", "share of runs >= 100 %, each (partial: some)",
        ),
        (Count({"a": True, "b": False}, 2), False, "1 of 2; not: b", ">= 2 of 2"),
        (Count({"a": True, "b": False}, at_most=0), False, "1 of 2; these: a", "<= 0 of 2"),
        (Count({"a": True}, of=2), False, "1 of 2", ">= 2 of 2"),
        (
            Count({"a": False}, at_most=0, that="dominated", what="points"), True,
            "number of points (dominated) = 0 of 1", "number of points (dominated) <= 0 of 1",
        ),
        (Ordered({"a": 1, "b": 2, "c": 3}, of="loss"), True, "loss: a 1, b 2, c 3", "rising in this order"),
        (Ordered({"a": 1, "b": 1}), False, "a 1, b 1", "rising in this order"),
        (Ordered({"a": 1, "b": 1}, strict=False), True, "a 1, b 1", "rising in this order, or equal"),
        (
            Ordered({"a": 1, "b": 1.02}, falling=True, slack=0.03), True, "a 1, b 1.02",
            "falling in this order, up to 0.03",
        ),
        (Ordered({"a": 1, "b": NAN}), False, "a 1, b nan", "rising in this order"),
        (
            Ordered({"a": 1, "b": 2, "c": 1}, partial=True), "partial", "a 1, b 2, c 1",
            "rising in this order (partial: some neighbours)",
        ),
        (Smallest({"a": 1, "b": 2}, "a", of="area"), True, "area: a 1, b 2", "a has the smallest area"),
        (Smallest({"a": 1, "b": 1}, "a"), False, "a 1, b 1", "a has the smallest"),
        (Smallest({"a": 1}, "a"), False, "a 1", "a has the smallest"),
        (Smallest({"a": NAN, "b": 1}, "a"), False, "a nan, b 1", "a has the smallest"),
        (Largest({"a": 3, "b": 2}, "a", of="area"), True, "area: a 3, b 2", "a has the largest area"),
        (
            Equal({"a": 1, "c": 2}, {"a": 1, "b": 2}, partial=True), "partial",
            "1 of 3 equal; not: b: missing (2), c: 2 (missing)", "equal (partial: some)",
        ),
        (Equal({"a": NAN}, {"a": 1}), False, "0 of 1 equal; not: a: nan (1)", "equal"),
        (Equal({"a": 1}, {"a": 1}, what="cells"), True, "1 of 1 cells equal", "equal"),
        (AllOf(YES, YES), True, "y", "t"),
        (AllOf(YES, NO), False, "y; n", "t; u"),
        (AllOf(YES, NO, partial=True), "partial", "y; n", "t; u (partial: one of them)"),
        (AllOf(YES, PART), "partial", "y; p", "t; v"),
        (AllOf(YES, OPEN), None, "y; o", "t; w"),
        (AllOf(NO, OPEN), False, "n; o", "u; w"),
        (Graded(YES, NO), True, "y; n", "t (partial: u)"),
        (Graded(NO, YES), "partial", "n; y", "u (partial: t)"),
        (Graded(NO, NO), False, "n", "u (partial: u)"),
        (Graded(NO, OPEN), None, "n; o", "u (partial: w)"),
        (AllOf(NO, OPEN, partial=True), None, "n; o", "u; w (partial: one of them)"),
        (Judged(np.bool_(True), "m", "t"), True, "m", "t"),
        (YES.also("more").because("a pilot"), True, "y; more", "t (a pilot)"),
        (YES.provided(True, "Too few."), True, "y", "t"),
        (YES.partial_at_best(), "partial", "y", "t"),
        (YES.partial_at_best(False), True, "y", "t"),
        (NO.partial_at_best(), False, "n", "u"),
        (OPEN.partial_at_best(), None, "o", "w"),
    ],
)  # fmt: skip
def test_kinds(check: Check, holds: Any, measured: str, tolerance: str) -> None:
    assert (check.holds, check.measured, check.tolerance) == (holds, measured, tolerance)
    assert check.holds is holds  # a plain bool, which JSON and verdicts can tell apart


def test_numbers_keep_their_tolerances_through_every_layer() -> None:
    near = Within({"a": 1.05, "b": 2.0}, {"a": 1.0, "b": 2.5}, 0.25, of="V", unit=" s")
    few = AllOf(near, AtMost(3.0, 2.0, of="gap"), Share([True, False], 0.9, that="on the ray")).also("more")
    gauges = few.partial_at_best().because("a pilot").provided(False, "Too few.").gauges
    assert [(g.of, g.value, g.low, g.high, g.target) for g in gauges] == [
        ("V, a", 1.05, 0.75, 1.25, 1.0),
        ("V, b", 2.0, 2.25, 2.75, 2.5),
        ("gap", 3.0, None, 2.0, None),
        ("share of runs (on the ray)", 50.0, 90.0, None, None),
    ]
    assert Graded(few, YES).gauges == few.gauges
    mean = Mean(np.array([1.0, 1.2, 1.1, 0.9, 1.3]))
    (sure,) = SurelyBelow(mean, 2.0, near=0.1, of="x").gauges
    assert (sure.value, sure.high, sure.spread) == pytest.approx((1.1, 1.9, mean.half))
    strict = [check({"a": 2.0}, 2.0).gauges[0].strict for check in (Above, Below, AtLeast, AtMost)]
    assert strict == [True, True, False, False]
    assert sure.strict
    # a number holds exactly where it is inside of its gauge
    for check in (near, AtLeast({"a": 1.0, "b": 3.0}, 2.0), Inside({"a": 1.0, "b": 3.0}, 2.0, 4.0)):
        inside = [
            (g.low is None or g.value >= g.low) and (g.high is None or g.value <= g.high)
            for g in check.gauges
        ]
        assert [name not in check.failing for name in check.values] == inside


def test_what_cannot_be_decided_says_why() -> None:
    undecided = NO.provided(0, "No run finished.")
    assert (undecided.holds, undecided.why, undecided.measured) == (None, "No run finished.", "n")
    assert AllOf(YES, undecided).why == "No run finished."
    assert AllOf(YES, undecided).also("more").why == "No run finished."
    assert Graded(undecided, YES).why == "No run finished."


def test_few_seeds_must_agree_where_that_is_asked() -> None:
    two = Mean(np.array([0.5, 1.0]), least=3)
    assert SurelyAbove(two, agree=True).holds is True
    assert SurelyAbove(two, 0.6, agree=True).holds is False
    assert SurelyAbove(two).holds is False
    nothing = SurelyAbove(Mean(np.array([]), least=3), agree=True)
    assert (nothing.holds, nothing.why) == (None, "Not measured in every run; more seeds decide.")


def test_the_interval_of_a_neighbour_counts_with_and_without_slack() -> None:
    rising = {
        "a": Mean(np.array([0.5, 0.9, 0.1, 0.7, 0.3])),
        "b": Mean(np.array([0.28, 0.3, 0.29, 0.31, 0.3])),
    }
    for slack in (0.0, 1e-9):
        failure = Ordered(rising, slack=slack, of="loss").failure
        assert failure is not None
        assert failure.kind == "held"
        both = "(both intervals together; bound 0.5)"
        assert failure.words.startswith(f"The 95 % interval of loss, b, -0.0969 to 0.6889 {both}")
    lost = Smallest({"a": Mean(np.array([NAN, NAN])), "b": Mean(np.array([1.0, 1.1]))}, "a").failure
    assert lost is not None
    assert lost.words == "Not measured: what b is compared with."


def test_many_names_are_not_all_shown() -> None:
    count = Count(dict.fromkeys(range(10), False))
    assert count.measured == "0 of 10; not: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


# statistics


def test_mean_and_interval_of_seeds() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    mean = Mean(values)
    half = 3.182446305284263 * values.std(ddof=1) / 2.0  # Student's quantile of three degrees of freedom
    assert (float(mean), mean.half) == (2.5, pytest.approx(half))
    assert (mean.low, mean.high) == (pytest.approx(2.5 - half), pytest.approx(2.5 + half))
    assert f"{mean:.2f}" == mean.words(".2f") == f"2.50 (95 % interval ± {half:.2g})"
    assert mean.ends(".1f", " pp") == f"95 % interval over 4 seeds {2.5 - half:.1f} to {2.5 + half:.1f} pp"
    assert Mean(values[:2], least=3).ends() == "2 seeds, no interval"
    assert str(Mean(values[:1])) == "1 (one seed)"
    assert np.isnan(Mean(np.array([])).mean)
    assert Mean.finite(np.array([1.0, np.inf, np.nan])).mean == 1.0
    paired = Mean.paired(pd.Series({1: 3.0, 2: 5.0}), pd.Series({2: 1.0, 3: 0.0}))
    assert paired.values.tolist() == [4.0]


def test_shares_are_never_rounded_to_all_or_nothing() -> None:
    texts = [percent(x) for x in (1.0, 0.999, 0.5, 0.001, 0.0, NAN)]
    assert texts == ["100 %", "99.9 %", "50 %", "0.1 %", "0 %", "no share"]


def test_small_statistics() -> None:
    x = np.array([1.0, 10.0, 100.0])
    assert log_slope(x, x**-0.5) == pytest.approx(-0.5)
    assert np.isnan(log_slope(x[:1], x[:1]))
    assert np.isnan(std(x[:1]))
    assert standard_error(np.array([[1.0], [3.0]])) == pytest.approx(1.0)
    assert finite_mean(np.array([1.0, np.nan])) == 1.0
    assert np.isnan(finite_mean(np.array([np.nan])))
    rows = pd.DataFrame({"seed": [0, 0, 1], "a": [1.0, 3.0, 5.0]})
    assert by_seed(rows, "a").tolist() == [2.0, 5.0]
    assert seed_columns(rate_1=np.array([1.0, 3.0])) == {"rate 1": 2.0, "rate 1 std": pytest.approx(2**0.5)}
