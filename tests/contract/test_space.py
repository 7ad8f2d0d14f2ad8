"""Rules of every space of conf/space, around an oracle that serves it."""

from __future__ import annotations

import pytest

from mobench.config.schema import choices
from tests.contract import layers

every = pytest.mark.parametrize("name", [name for name in choices("space") if name != "none"])


@every
def test_parameters_are_documented_and_validated(name: str) -> None:
    layers.check_parameters("space", name)


@every
def test_runs_of_a_seed_are_the_same_alone(name: str) -> None:
    layers.check_seeds_alone("space", name)


@every
def test_points_keep_to_the_spec(name: str) -> None:
    layers.check_points("space", name)
