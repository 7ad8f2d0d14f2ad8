"""Jobs as a product of lists, and jobs of another experiment."""

from __future__ import annotations

from typing import Any

import pytest

from mobench.config.overrides import changed
from mobench.errors import ConfigError
from mobench.sweep.grid import expanded, last, product
from mobench.sweep.planner import plan

AXES: dict[str, Any] = {
    "data": {"a": ["problem=x"], "b": ["problem=y"]},
    "method": {"ls": ["algorithm=ls"], "epo": []},
}


def jobs(node: dict[str, Any]) -> dict[str, list[str]]:
    others = {"p/one": {"a_ls": ["steps=1"], "b_ls": ["steps=2"], "b_epo": ["steps=3"]}}
    return expanded(node, others.__getitem__)


def test_the_product() -> None:
    combinations = jobs(
        {"grid": {"all": ["steps=5"], "axes": AXES, "settings": {"b_*": ["steps=7"]}, "without": ["*_epo"]}}
    )
    assert combinations == {
        "a_ls": ["steps=5", "problem=x", "algorithm=ls"],
        "b_ls": ["steps=7", "problem=y", "algorithm=ls"],
    }
    assert list(product([], list(AXES.values()), {}, ".")) == ["a.ls", "a.epo", "b.ls", "b.epo"]


def test_a_group_that_is_chosen_again_forgets_its_values() -> None:
    assert last(["algorithm=ls", "algorithm.step_size=1", "algorithm=epo", "steps=2", "steps=3"]) == [
        "algorithm=epo",
        "steps=3",
    ]


def test_jobs_of_another_experiment() -> None:
    assert list(jobs({"like": "p/one"})) == ["a_ls", "b_ls", "b_epo"]
    some = {
        "like": {"experiment": "p/one", "only": ["b_*"]},
        "grid": {"axes": {"m": {"c": []}}},
        "jobs": {"d": ["steps=4"]},
    }
    assert jobs(some) == {"b_ls": ["steps=2"], "b_epo": ["steps=3"], "c": [], "d": ["steps=4"]}


def test_an_artifact_with_some_of_its_jobs() -> None:
    """`artifact.only` plans the jobs that match, and does not count as a changed setting."""
    some = plan(["+experiment=omd_tch/table2", "scale=smoke", "artifact.only=[m2_ls,c5_*ch]"])
    assert [job.name for job in some.jobs] == ["m2_ls", "c5_tch", "c5_stch"]
    assert changed(some.commands["omd_tch/table2"]) == []
    with pytest.raises(ConfigError, match=r"artifact.only: no job matches 'm3\*'; the jobs are mr_ls"):
        plan(["+experiment=omd_tch/table2", "artifact.only=[m3*]"])


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            {"grid": {}, "like": "p/one", "jobs": {"a_ls": []}},
            "two jobs of one experiment have the name 'a_ls'",
        ),
        ({"grid": {"all": ["steps=1"]}}, "needs axes"),
        ({"grid": {"axes": AXES, "setings": {}}}, "grid.setings is unknown.*Did you mean 'settings'"),
        ({"grid": {"axes": {"m": ["ls"]}}}, "grid.axes.m.*must map each key to a list of overrides"),
        (
            {"grid": {"axes": AXES, "settings": {"c_*": []}}},
            "grid.settings: no job matches 'c_[*]'; the jobs are a_ls, a_epo",
        ),
        ({"grid": {"axes": AXES, "without": ["c"]}}, "grid.without: no job matches 'c'"),
        ({"like": {"experiment": "p/one", "only": ["c*"]}}, "like.only: no job matches 'c[*]'"),
        ({"like": {"experiment": "p/one"}}, "must name an experiment"),
    ],
)
def test_what_names_nothing_is_an_error(node: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        jobs(node)
