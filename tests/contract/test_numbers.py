"""A result changes only with the `version` of its class (see `tests/contract/numbers.py`)."""

from __future__ import annotations

import pytest
import torch

from tests.contract import cases, numbers

STORED = numbers.stored()


@pytest.mark.parametrize(("group", "name"), list(numbers.names()))
def test_numbers_are_those_of_the_version(group: str, name: str) -> None:
    """Up to rounding of another machine, in the steps that a small problem allows."""
    before = STORED[group].get(name)
    if before is None:
        pytest.skip("its numbers are not stored yet: python -m tests.contract.numbers")
    now = numbers.of(group, name)
    assert now["version"] == before["version"], (
        "a new version: python -m tests.contract.numbers stores its numbers"
    )
    assert now.keys() == before.keys()
    for key, value in before.items():
        if key != "version":
            expected = torch.tensor(value, dtype=torch.float64)
            computed = torch.tensor(now[key], dtype=torch.float64)
            torch.testing.assert_close(computed, expected, rtol=1e-6, atol=1e-8, msg=cases.said(key))
