"""Arithmetic of MLM-CMOO's artifacts: censored multiples, slopes, whose run is shown."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.mlm_cmoo.fig1 import chosen, followed, judge_sites
from experiments.mlm_cmoo.rate import judge_rates, slope
from experiments.mlm_cmoo.table1 import judge
from experiments.mlm_cmoo.timing import TASKS, Times, multiple
from mobench.artifacts import Artifact
from mobench.artifacts.checks import Check


@dataclass
class Fake:
    """A run that took `total` seconds and reached the loss at `when`."""

    total: float
    when: float | None

    def seconds(self, task: str, level: float) -> float | None:
        return self.when


OWN: list[Any] = [Fake(10.0, 4.0), Fake(10.0, 5.0), Fake(10.0, 2.0)]


@pytest.mark.parametrize(
    ("runs", "text", "value", "least", "faster"),
    [
        ([Fake(50, 8.0), Fake(50, 10.0), Fake(50, 4.0)], "x2.00", 2.0, 2.0, 0),
        ([Fake(20, None), Fake(25, None), Fake(10, None)], "> x5.00", None, 5.0, 0),
        # cut off before MLM-CMOO's own time: nothing that could count as slower
        ([Fake(1.2, None), Fake(1.5, None), Fake(0.6, None)], "> x0.30", None, 0.3, 0),
        # two that were faster are not hidden by one that was cut off
        ([Fake(9, 0.2), Fake(9, 0.25), Fake(6.0, None)], "> x1.03, 1 of 3 cut off", None, 3.1 / 3, 2),
    ],
)
def test_multiples_of_runs_that_were_cut_off(
    runs: Any, text: str, value: Any, least: float, faster: int
) -> None:
    cell = multiple(runs, OWN, "L", 0.1)
    assert cell.text == text
    assert (cell.value is None) == (value is None)
    assert cell.least == pytest.approx(least)
    assert len(cell.faster) == faster


def test_seeds_where_mlm_cmoo_did_not_arrive_are_counted() -> None:
    levels: Any = [Fake(10, 4.0), Fake(10, None), Fake(10, 2.0)]
    runs: Any = [Fake(50, 8.0)] * 3
    cell = multiple(runs, levels, "L", 0.1)
    assert (cell.text, cell.value) == ("x3.00 (2 of 3)", None)
    nobody: Any = [Fake(10, None)] * 3
    assert multiple(runs, nobody, "L", 0.1).text == "8.0 s; MLM-CMOO did not arrive"
    assert multiple(nobody, nobody, "L", 0.1).text == "MLM-CMOO did not arrive, nor did this in 10 s"
    first: Any = [nobody[0], *runs[1:]]  # where others arrived, the text must not say that nobody did
    assert multiple(runs[:1], first, "L", 0.1).text == "8.0 s; MLM-CMOO did not arrive with this seed"


def test_a_baseline_that_arrives_where_mlm_cmoo_does_not_is_faster() -> None:
    levels: Any = [Fake(10, None), Fake(10, 4.0), Fake(10, None)]
    runs = [Fake(50, 8.0), Fake(50, 8.0), Fake(50, 12.0)]
    assert multiple(runs, levels, "L", 0.1).faster == (0.8,)  # type: ignore[arg-type]
    nobody: Any = [Fake(10, None)]
    assert multiple([Fake(50, 5.0)], nobody, "L", 0.1).faster == (0.5,)  # type: ignore[list-item]


@dataclass
class Levels:
    """A run that reached each loss at a time of its own."""

    total: float
    when: dict[tuple[str, float], float | None]
    seconds_per_step: float = 1.0

    @property
    def losses(self) -> pd.DataFrame:
        return pd.DataFrame({t: [0.5, 0.05] for t in TASKS})

    @property
    def rows(self) -> Any:
        return SimpleNamespace(config={"steps": 1024, "algorithm": {"c0": 1.0, "penalty_power": 0.1}})

    def seconds(self, task: str, level: float) -> float | None:
        return self.when[task, level]


class Claims:
    """As much of an artifact as claims need."""

    def __init__(self) -> None:
        self.said: dict[str, dict[str, Any]] = {}

    def claim(self, id: str, check: Check, reason: str = "") -> None:
        self.said[id] = {
            "holds": check.holds,
            "measured": check.measured,
            "tolerance": check.tolerance,
            "reason": check.why or reason,
        }

    def note(self, text: str) -> None:
        pass


def judged(mlm: list[Levels], nsga2: list[Levels], psl: list[Levels]) -> dict[str, dict[str, Any]]:
    """The claims of Table 1 about such runs at the paper's scale."""
    a: Any = Claims()
    runs: Any = (mlm, {"NSGA-II": nsga2, "PSL": psl})
    judge(a, Times((0.01, 0.001), *runs))
    claims: dict[str, dict[str, Any]] = a.said
    return claims


def at(total: float, *times: float | None) -> Levels:
    """Times of L at both losses, then of R."""
    return Levels(total, dict(zip([(t, v) for t in TASKS for v in (0.01, 0.001)], times, strict=True)))


IDS = ("reaches", "growth", "balance", "slower", "order", "ratios-grow")


@pytest.mark.parametrize(
    ("mlm", "nsga2", "psl", "holds"),
    [
        # as published: 1302, 2057, 1322, 2104 s; x2.2, x3.2, x2.3, x3.1; x1.8, x2.03, x1.7, x2.1
        (
            at(3000, 1302, 2057, 1322, 2104), at(9000, 2.2 * 1302, 3.2 * 2057, 2.3 * 1322, 3.1 * 2104),
            at(9000, 1.8 * 1302, 2.03 * 2057, 1.7 * 1322, 2.1 * 2104), (True, True, True, True, True, True),
        ),
        # nobody arrives: all runs are cut off, and nothing can be said
        (at(10, *[None] * 4), at(9, *[None] * 4), at(1, *[None] * 4), (None, None, None, None, None, None)),
        # MLM-CMOO arrives at one loss alone; what is known of the other claims holds, but is not all of it
        (
            at(10, 4, None, 4, None), at(20, *[None] * 4), at(20, *[None] * 4),
            (None, None, None, None, None, None),
        ),
        # what is known contradicts a claim
        (
            at(10, 4, None, 8, None), at(20, 2, None, 9, None), at(20, *[None] * 4),
            (None, None, False, False, None, None),
        ),
        # a baseline arrives where MLM-CMOO does not
        (
            at(10, *[None] * 4), at(9, 5, None, None, None), at(1, *[None] * 4),
            (None, None, None, False, None, None),
        ),
        # baselines that are cut off late enough are slower; the claims about their multiples stay open
        (at(10, 2, 4, 2, 4), at(20, *[None] * 4), at(20, *[None] * 4), (True, True, True, True, None, None)),
        (at(10, 2, 4, 2, 4), at(3, *[None] * 4), at(20, *[None] * 4), (True, True, True, None, None, None)),
    ],
)  # fmt: skip
def test_verdicts_of_table_1(mlm: Levels, nsga2: Levels, psl: Levels, holds: tuple[bool | None, ...]) -> None:
    said = judged([mlm], [nsga2], [psl])
    assert tuple(said[id]["holds"] for id in IDS) == holds
    for id in IDS:
        assert said[id]["measured"]
        assert said[id]["tolerance"]
        assert said[id]["reason"] or said[id]["holds"] is not None


def test_slopes() -> None:
    steps = np.arange(20.0, 2001.0, 20.0)
    assert slope(steps, 3.0 * steps**-0.5) == pytest.approx(-0.5)
    assert slope(steps, np.full(100, 1e-14)) == -np.inf
    assert np.isnan(slope(steps, np.full(100, np.nan)))


def test_of_a_population_the_member_is_shown_that_a_user_would_take() -> None:
    rows = pd.DataFrame(
        {
            "seed": [0, 0, 0, 1, 1],
            "status": "done",
            "f_1": [0.1, 0.3, 0.2, 0.5, 0.4],
            "violation": [0.2, 0.0, 0.0, 0.3, 0.1],
        }
    )
    # feasible and smallest; else the smallest violation
    assert chosen(rows, ["f_1"])["f_1"].tolist() == [0.2, 0.4]
    assert chosen(rows.assign(status="diverged"), ["f_1"]).empty


def test_the_curve_of_a_population_follows_training_losses_of_feasible_members() -> None:
    h = pd.DataFrame(
        {
            "seed": 0,
            "step": [0, 0, 1, 1, 2, 2],
            "run": [0, 1] * 3,
            "f_1": [0.9, 0.1, 0.8, 0.95, 0.85, 0.86],
            "violation": [0.0, 0.5, 0.0, 0.0, 0.0, 0.0],
            "test_loss_mean": [0.7, 0.2, 0.75, 0.1, 0.6, 0.3],
        }
    )
    assert followed(h, True)[0].tolist() == [0.7, 0.75, 0.75]


def losses(*sites: float) -> pd.DataFrame:
    """Test losses of five seeds near one number for each of eight sites."""
    near = 1.0 + 0.01 * np.arange(5)
    return pd.DataFrame({f"test_loss_{k + 1}": value * near for k, value in enumerate(sites)})


@pytest.mark.parametrize(
    ("ours", "faster", "holds", "kind"),
    [
        (6, 0, True, None),  # smallest at six of eight sites
        (5, 8, "partial", "excluded"),
        (5, 5, False, "excluded"),
    ],
)
def test_most_sites_with_another_eta_is_partial(ours: int, faster: int, holds: Any, kind: Any) -> None:
    def at(won: int) -> pd.DataFrame:
        return losses(*[0.5] * won, *[2.0] * (8 - won))

    picked = {"more_seeds": at(ours), "faster_eta": at(faster), "nsga2": at(0) / 2, "psl": at(0)}
    check = judge_sites(picked)
    assert check.holds == holds
    assert (check.failure and check.failure.kind) == kind


@pytest.mark.parametrize(
    ("inner", "outer", "verdict"), [(-0.5, -0.5, "partial"), (-0.2, -0.1, "inconclusive")]
)
def test_rates_of_the_corrected_method_are_partial_at_best(inner: float, outer: float, verdict: str) -> None:
    a = Artifact("mlm_cmoo/rate", "x", "laptop", {})
    judge_rates(a, {0.1: inner}, {0.1: outer})
    assert [(c.id, c.verdict) for c in a.claims] == [("inner-rate", verdict), ("stationarity-rate", verdict)]
    assert all("as-printed" in c.reason for c in a.claims)
