"""The cross table: which pairs there are and with which settings, scores, ranks, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from experiments.cross.scores import Pair, Table, choosing, mean_ranks
from experiments.cross.suites import check
from mobench.artifacts import Artifact, JobRows
from mobench.config.overrides import normalise
from mobench.errors import ConfigError
from mobench.sweep import cross_table
from tests.conftest import Run
from tests.plugin import write

TARGETS = {
    "ls": "mobench.algorithms.ls.LS",
    "cosmos": "mobench.algorithms.cosmos.COSMOS",
    "forum": "mobench.algorithms.forum.FORUM",
}


def pairs(node: dict[str, Any], suites: dict[str, Any] | None = None) -> dict[str, list[str]]:
    return cross_table.pairs(node, sorted(TARGETS), TARGETS.__getitem__, (suites or {}).__getitem__)


# which pairs


def test_pairs_and_their_overrides() -> None:
    found = pairs(
        {
            "all": ["steps=5", "seeds=[0]"],
            "problems": {
                "a": ["problem=zdt1", "steps=7"],
                "b": ["problem=bilevel_quadratic", "oracle=hypergradient", "oracle.inner_steps=3"],
            },
            "algorithms": "all",
            "without": ["cosmos"],
            "settings": {"ls": ["seeds=[1]"]},
            "pairs": {"b.forum": ["oracle=value_gap"]},
            "step_sizes": [0.1, 0.3],
        }
    )
    assert list(found) == ["a.forum", "a.ls", "b.forum", "b.ls"]
    # of a key the last value; the method's step sizes in one batch
    assert found["a.ls"] == [
        "steps=7",
        "seeds=[1]",
        "problem=zdt1",
        "algorithm=ls",
        "vary.step_size=[0.1,0.3]",
    ]
    # another oracle forgets what was said of the first one
    assert "oracle=value_gap" in found["b.forum"]
    assert not any(o.startswith("oracle.") for o in found["b.forum"])
    assert "oracle.inner_steps=3" in found["b.ls"]


def test_a_step_size_of_its_own_is_no_grid() -> None:
    node = {
        "problems": {"a": ["problem=zdt1"]},
        "settings": {"ls": ["algorithm.step_size=1.0"]},
        "step_sizes": [0.1],
    }
    found = pairs(node)
    assert not any("vary" in o for o in found["a.ls"])
    assert not any("vary" in o for o in found["a.cosmos"])  # its runs share one
    assert "vary.step_size=[0.1]" in found["a.forum"]


def test_several_suites() -> None:
    suites = {"one": {"problems": {"a": ["problem=zdt1"]}}, "two": {"problems": {"b": ["problem=zdt2"]}}}
    assert list(pairs({"suites": ["one", "two"], "algorithms": ["ls"]}, suites)) == ["a.ls", "b.ls"]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({}, "cross.problems is empty"),
        ({"problem": {"a": []}}, "cross: 'problem' is unknown.*Did you mean 'problems'"),
        (
            {"problems": {"a": []}, "algorithms": ["lss"]},
            "cross.algorithms: 'lss' is unknown.*Did you mean 'ls'",
        ),
        ({"problems": {"a": []}, "algorithms": "ls"}, "must be 'all' or a list"),
        ({"problems": {"a": []}, "without": ["x"]}, "cross.without: 'x' is unknown"),
        ({"problems": {"a": []}, "settings": {"x": []}}, "cross.settings: 'x' is unknown"),
        ({"problems": {"a": []}, "pairs": {"b.ls": []}}, r"cross.pairs: 'b\.ls' is unknown"),
    ],
)
def test_bad_suites(node: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        pairs(node)


def test_a_command_adds_and_removes() -> None:
    """Problems, settings and pairs are added to; what is removed takes its pairs along."""
    suite = {
        "problems": {"a": ["problem=zdt1"], "b": ["problem=zdt2"]},
        "algorithms": ["ls", "forum"],
        "settings": {"ls": ["steps=3"]},
        "pairs": {"a.forum": ["space=full"], "b.forum": ["space=full"]},
    }
    assert cross_table.merged(suite, {}) == suite
    more = cross_table.merged(
        suite, {"problems": {"ten": ["problem=ten"]}, "pairs": {"ten": {"ls": ["steps=9"]}}}
    )
    found = pairs(more)
    assert list(found) == [f"{p}.{a}" for p in ("a", "b", "ten") for a in ("ls", "forum")]
    assert found["ten.ls"] == ["problem=ten", "algorithm=ls", "steps=9"]
    assert "steps=3" in found["a.ls"]
    fewer = pairs(
        cross_table.merged(
            suite, {"problems": {"a": None}, "settings": {"ls": None}, "pairs": {"b": {"forum": None}}}
        )
    )
    assert fewer == {"b.ls": ["problem=zdt2", "algorithm=ls"], "b.forum": ["problem=zdt2", "algorithm=forum"]}
    with pytest.raises(ConfigError, match=r"~cross.problems: 'c' is unknown; choose from a, b"):
        cross_table.merged(suite, {"problems": {"c": None}})
    with pytest.raises(ConfigError, match="set it for one suite"):
        pairs({"suites": ["one"], "problems": {"a": ["problem=zdt1"]}}, {"one": suite})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("problem=ten", "must be a list of overrides"),
        (["steps=3"], "does not choose a problem"),
        ([3], "must be a list"),
    ],
)
def test_bad_problems(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        pairs({"problems": {"ten": given}})


def test_overrides_in_a_list_need_no_inner_quotes() -> None:
    written = [
        "+cross.problems.ten=[problem=ten,preferences.weights=[[0.5,0.5]],'steps=3']",
        "~cross.problems.zdt1",
    ]
    assert normalise(written) == [
        '++cross.problems.ten=["problem=ten","preferences.weights=[[0.5,0.5]]",\'steps=3\']',
        "++cross.problems.zdt1=null",
    ]
    assert normalise(["cross.algorithms=[ls,epo]"]) == ["++cross.algorithms=[ls,epo]"]


def test_a_problem_of_ones_own_in_a_table(
    mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = write(tmp_path / "plugin")
    monkeypatch.syspath_prepend(str(tmp_path / "plugin" / "code"))
    own = ["+cross.problems.hole=[problem=hole,problem.edge=-9.0,preferences=3]", "~cross.problems.bilevel"]
    base = ["+experiment=cross/bilevel", "cross.algorithms=[ls,nsga2]", "scale=smoke", "logger=local", search]
    result = mobench(*base, *own, "cross.pairs.hole.nsga2=[space=full,space.bound=2.0]")
    assert result.code == 0, result.err
    table = pd.read_csv(result.root / "artifacts/cross/bilevel/table.csv")
    assert list(dict.fromkeys(table["problem"])) == ["hole"]
    assert set(table.loc[table["problem"] == "hole", "algorithm"]) == {"ls", "nsga2"}
    claims = (result.root / "artifacts/cross/bilevel/claims.json").read_text()
    assert "reproduced" not in claims.replace(
        "not reproduced", ""
    )  # another table than the project's: nothing is judged
    mobench(*base, "~cross.problems.bilevell").refused("'bilevell' is unknown", "Did you mean")


# scores


class Rows:
    """Final rows of a job, made by hand."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.final = rows
        self.seconds_per_step = 0.1
        self.config = {
            "steps": 10,
            "algorithm": {"_target_": "mobench.algorithms.ls.LS", "step_size": 0.1},
            "problem": {"_target_": "mobench.problems.ZDT1", "n": 3},
            "oracle": {"_target_": "mobench.oracles.Exact"},
        }


def pair(name: str, points: dict[int, list[tuple[float, float]]], **columns: Any) -> Pair:
    """Points by seed; one preference each."""
    rows = pd.DataFrame(
        [
            {
                "run": 0,
                "seed": s,
                "output": "last",
                "preference_1": k,
                "preference_2": 1.0,
                "f_1": p[0],
                "f_2": p[1],
                "status": "done",
            }
            for s, ps in points.items()
            for k, p in enumerate(ps)
        ]
    ).assign(**columns)
    return Pair("zdt1", name, cast(JobRows, Rows(rows)))


def test_seeds_that_choose() -> None:
    assert [choosing(n) for n in (1, 2, 3, 5, 10)] == [0, 1, 1, 2, 4]


def test_shares_are_of_the_front_and_lost_or_infeasible_points_count_nothing() -> None:
    corner = [(0.0, 1.0), (1.0, 0.0)]  # with (1.1, 1.1): 0.11 + 0.11 - 0.01 of the front's 0.21 + integral
    whole = 1.1**2 - 1 / 3 - 0.0  # of f_2 = 1 - sqrt(f_1): 1.21 - int_0^1 (1 - sqrt) = 1.21 - 1/3
    a = pair("a", {0: corner, 1: corner})
    b = pair("b", {0: corner, 1: corner})
    b.rows.loc[b.rows["f_1"] == 1.0, "counts"] = False
    table = Table("zdt1", [a, b])
    assert table.report == [1]
    np.testing.assert_allclose(table.scores[:, 0], [0.21 / whole, 0.11 / whole], rtol=2e-3)
    lost = pair("c", {0: corner, 1: corner}, status="diverged")
    late = pair("d", {0: corner, 1: corner}, violation=0.01)
    assert Table("zdt1", [a, lost, late]).scores[1:, 0].tolist() == [0.0, 0.0]
    # the gap of a lower level at (x, y) is no constraint on rows that are phi(x) at y*(x)
    gap = pair("e", {0: corner, 1: corner}, violation=0.01)
    gap.job.config["oracle"] = {"_target_": "mobench.oracles.ValueGap"}
    table = Table("zdt1", [a, gap])
    assert table.scores[1].tolist() == table.scores[0].tolist()


def test_the_step_size_is_chosen_on_seeds_that_are_not_reported() -> None:
    good = [(0.0, 1.0), (0.25, 0.5)]
    bad = [(0.0, 1.0), (1.0, 1.0)]
    small = pair("a", {0: good, 1: bad, 2: bad}, step_size=0.1)
    large = pair("a", {0: bad, 1: good, 2: good}, step_size=0.3)
    both = Pair("zdt1", "a", cast(JobRows, Rows(pd.concat([small.job.final, large.job.final]))))
    table = Table("zdt1", [both])
    assert (table.few, table.report) == ([0], [1, 2])
    assert table.chosen == {"a": 0.1}  # the best on seed 0, although the other is better on what is shown
    assert table.lines()[0]["step size"] == 0.1
    assert table.lines()[0]["us per step and run"] == pytest.approx(1e6 * 0.1 / len(both.rows))


def _sizes(**points: tuple[dict[int, list[tuple[float, float]]], float]) -> Pair:
    """One method at two step sizes: points by seed, and the violation of all of its runs."""
    parts = []
    for name, (found, violation) in points.items():
        size = {"small": 0.1, "large": 0.3}[name]
        parts.append(pair("a", found, step_size=size, violation=violation).job.final)
    return Pair("zdt1", "a", cast(JobRows, Rows(pd.concat(parts))))


def test_feasible_runs_come_before_hypervolume_in_the_choice_of_a_step_size() -> None:
    """An unconverged point can have more hypervolume than a feasible one that is further along."""
    good = [(0.0, 1.0), (0.25, 0.5)]
    bad = [(1.0, 0.9), (0.9, 1.0)]
    seeds = range(5)
    both = _sizes(small=(dict.fromkeys(seeds, good), 0.0), large=(dict.fromkeys(seeds, bad), 0.0))
    both.rows.loc[
        (both.rows["step_size"] == 0.1) & (both.rows["run"] == 0) & (both.rows["seed"] == 1), "counts"
    ] = False
    table = Table("zdt1", [both])
    assert table.few == [0, 1]
    assert table.score(both, both.at(0.1), 0) > table.score(both, both.at(0.3), 0)
    assert table.chosen == {"a": 0.3}


def test_no_step_size_is_chosen_where_no_run_counts() -> None:
    near = {seed: [(0.25, 0.5), (0.0, 1.0)] for seed in range(5)}
    never = _sizes(small=(near, 0.5), large=(near, 0.5))
    never.job.config["algorithm"]["_target_"] = "mobench.algorithms.ls.LS"
    table = Table("zdt1", [pair("b", near), never])
    assert np.isnan(cast(float, table.chosen["a"]))
    assert table.scores[1].tolist() == [0.0, 0.0, 0.0]
    line = table.lines()[1]
    assert line["note"] == "no step size qualified on the choosing seeds"
    assert str(line["runs"]) == "0 of 6"
    assert np.isnan(line["step size"])
    a = Artifact("cross/bilevel", "t", "laptop", {})
    check(a, [table], {})
    said = {c.id: c for c in a.claims}
    assert said["complete"].verdict == "check failed"
    assert (
        "a on zdt1: no run counts on the choosing seeds at any step size (all runs: 20 done)"
        in said["complete"].reason
    )
    assert "a on zdt1: no step size qualified" in said["feasible"].measured


def test_methods_that_ignore_constraints_are_not_counted_among_those_that_use_them() -> None:
    points = {seed: [(0.25, 0.5)] for seed in range(5)}
    found = []
    for name, target in (("ls", "mobench.algorithms.ls.LS"), ("nsga2", "mobench.algorithms.nsga2.NSGAII")):
        one = pair(name, points, violation=0.0 if name == "ls" else 0.7)
        one.job.config["algorithm"]["_target_"] = target
        found.append(one)
    a = Artifact("cross/bilevel", "t", "laptop", {})
    check(a, [Table("zdt1", found)], {})
    (feasible,) = (c for c in a.claims if c.id == "feasible")
    assert feasible.verdict == "check passed"
    assert "not counted, as constraints are not passed on to their search: nsga2" in feasible.measured


def test_no_interval_from_fewer_than_five_seeds() -> None:
    near = [(0.25, 0.5), (0.0, 1.0)]
    few = Table(
        "zdt1", [pair("a", dict.fromkeys(range(5), near)), pair("b", dict.fromkeys(range(5), near[:1]))]
    )
    many = Table(
        "zdt1", [pair("a", dict.fromkeys(range(9), near)), pair("b", dict.fromkeys(range(9), near[:1]))]
    )
    assert (len(few.report), len(many.report)) == (3, 6)
    assert few.lines()[0]["rank"] == "1"
    assert np.isnan(few.lines()[0]["std"])
    assert many.lines()[0]["rank"] == "1 [1, 1]"
    assert np.isnan(mean_ranks([few, many])["a"][1])
    assert mean_ranks([many])["a"][1] == 0.5


def test_ranks_and_their_intervals() -> None:
    near = [(0.25, 0.5), (0.0, 1.0)]
    far = [(1.0, 1.0), (0.0, 1.05)]
    first = pair("first", dict.fromkeys(range(5), near))
    last = pair("last", dict.fromkeys(range(5), far))
    twin = pair("twin", dict.fromkeys(range(5), near))
    mixed = pair("mixed", {0: near, 1: near, 2: near, 3: far, 4: far})
    table = Table("zdt1", [first, last, twin, mixed])
    ranks, draws = table.ranks
    assert ranks.tolist() == [1.5, 4.0, 1.5, 3.0]
    # of three reported seeds two are far: with all three draws alike, mixed is level with the best or the
    # worst
    assert set(draws[:, 3]) == {2.0, 3.0, 3.5}
    share = (draws[:, 3] == 2.0).mean()
    assert abs(share - 1 / 27) < 0.015
    assert list(mean_ranks([table]))[-1] == "last"


def test_one_preference_is_ranked_by_its_worst_objective() -> None:
    a = pair("a", {0: [(0.2, 0.9)]})
    b = pair("b", {0: [(0.5, 0.6)]})
    table = Table("zdt1", [a, b])
    assert table.measure == "worst objective"
    assert table.scores[:, 0].tolist() == [0.9, 0.6]
    assert table.ranks[0].tolist() == [2.0, 1.0]


# the command


def test_a_plugin_joins_the_table_and_what_does_not_fit_says_why(
    mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = write(tmp_path / "plugin")
    monkeypatch.syspath_prepend(str(tmp_path / "plugin" / "code"))
    chosen = "cross.algorithms=[ls,slow,psl,mlm_cmoo]"
    result = mobench("+experiment=cross/bilevel", "scale=smoke", "logger=local", chosen, search)
    assert result.code == 0, result.err
    table = (result.root / "artifacts/cross/bilevel/table.md").read_text()
    assert "| bilevel | slow |" in table
    assert "does not fit: it needs hvp, but the oracle provides jacobian, jvp" in table
    assert sorted({f.config()["algorithm"]["_target_"].split(".")[-1] for f in result.folders}) == [
        "LS",
        "PSL",
        "Slow",
    ]
    claims = (result.root / "artifacts/cross/bilevel/claims.json").read_text()
    assert "3 pairs ran, 1 refused with a reason" in claims
    assert "inconclusive" in claims  # other algorithms than the artifact's own
