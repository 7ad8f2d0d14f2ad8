"""Arithmetic of MLM-CMOO's artifacts: censored multiples, slopes, whose run is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.mlm_cmoo import _chosen, _followed, _multiple, slope


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
def test_multiples_of_runs_that_were_cut_off(runs: Any, text: str, value: Any, least: float, faster: int) -> None:
    cell = _multiple(runs, OWN, "L", 0.1)
    assert cell.text == text
    assert (cell.value is None) == (value is None)
    assert cell.least == pytest.approx(least)
    assert len(cell.faster) == faster


def test_seeds_where_mlm_cmoo_did_not_arrive_are_counted() -> None:
    own: Any = [Fake(10, 4.0), Fake(10, None), Fake(10, 2.0)]
    runs: Any = [Fake(50, 8.0)] * 3
    cell = _multiple(runs, own, "L", 0.1)
    assert (cell.text, cell.value) == ("x3.00 (2 of 3)", None)
    nobody: Any = [Fake(10, None)] * 3
    assert _multiple(runs, nobody, "L", 0.1).text == "8.0 s; MLM-CMOO did not arrive"
    assert _multiple(nobody, nobody, "L", 0.1).text == "MLM-CMOO did not arrive, nor did this in 10 s"
    first: Any = [nobody[0], *runs[1:]]  # where others arrived, the text must not say that nobody did
    assert _multiple(runs[:1], first, "L", 0.1).text == "8.0 s; MLM-CMOO did not arrive with this seed"


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
    assert _chosen(rows, ["f_1"])["f_1"].tolist() == [0.2, 0.4]  # feasible and smallest; else the smallest violation
    assert _chosen(rows.assign(status="diverged"), ["f_1"]).empty


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
    assert _followed(h, True)[0].tolist() == [0.7, 0.75, 0.75]
