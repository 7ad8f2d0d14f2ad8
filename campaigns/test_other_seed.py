"""The page on cells of tables with another seed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from campaigns import other_seed
from mobench.sweep.composer import jobs_of
from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "other_seed.md"
LINE = other_seed.Line("a/table1", "row: column", mean=0.0, deviation=1.0, n=5, seed=7, found=0.0)


def test_one_more_run_lies_in_its_interval_as_often_as_the_interval_says() -> None:
    draws = np.random.default_rng(0).standard_normal((20_000, 6))
    means = draws[:, :5].mean(1)
    deviations = draws[:, :5].std(1, ddof=1)
    inside = [
        dataclasses.replace(LINE, mean=mean, deviation=deviation, found=number).inside
        for mean, deviation, number in zip(means, deviations, draws[:, 5], strict=True)
    ]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.005)


def test_a_number_outside_is_said_to_be_outside() -> None:
    assert str(LINE).endswith("| 0 | inside |")
    assert str(dataclasses.replace(LINE, found=4.0)).endswith("| 4 | **outside** |")
    assert "0 of 1 lie inside" in other_seed.page([dataclasses.replace(LINE, found=4.0)])


def test_the_page_is_of_these_cells() -> None:
    """Kept rows are compared anew; the other numbers take minutes."""
    text = PAGE.read_text()
    assert all(str(line) in text for line in other_seed.published_cells())
    for cell in other_seed.CELLS:
        assert f"| {cell.table} | {cell.name} |" in text
        assert cell.job in jobs_of(cell.table)
        assert cell.other not in cell.seeds
