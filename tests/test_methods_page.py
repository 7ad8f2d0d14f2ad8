"""The rows of docs/methods.md agree with the classes; a new method may lack its row."""

from __future__ import annotations

import re

import pytest

from mobench.config.compose import compose
from mobench.config.schema import choices
from mobench.core import Algorithm, Free, Spec
from mobench.jobs.targets import instantiate
from tests.conftest import REPOSITORY

ROW = re.compile(r"^\| (\w+) \|.*\| (yes|no|option) \| (\d+ (?:up|to \d+)) \| ?(.*?) ?\|$", re.MULTILINE)
TEXT = (REPOSITORY / "docs" / "methods.md").read_text()
PAGE = {name: row for name, *row in ROW.findall(TEXT)}


def test_names_exist_and_are_there_once() -> None:
    listed = [row[0] for row in ROW.findall(TEXT)]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(choices("algorithm"))


@pytest.mark.parametrize("name", PAGE)
def test_what_it_says_is_declared(name: str) -> None:
    method = instantiate(compose([f"algorithm={name}"])["algorithm"], "algorithm")
    assert isinstance(method, Algorithm)
    preference, M, needs = PAGE[name]
    assert method.preferred == (preference == "yes")
    low, high = method.objectives
    assert (f"{low} up" if high is None else f"{low} to {high}") == M
    spec = Spec(R=1, M=2, N=0, P=3, X=Free(), provides=frozenset(), positive=False)
    for need in ("jacobian", "jvp", "hvp"):
        assert (need in needs) == (need in method.needs(spec))
    assert ("2 samples" in needs) == (method.samples == 2)
    positive = method.positive or any("objectives >= 0" in reason for reason in method.misfits(spec))
    assert ("f >= 0" in needs) == positive
    assert ("runs of a seed" in needs) == method.together
