"""Rows of one's own: collected with their settings, summarised, drawn, and one of them chosen."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch

import mobench
from mobench.algorithms.cagrad import CAGrad
from mobench.artifacts.style import preference
from mobench.cli import messages, status
from mobench.errors import ConfigError, PreferenceError, StoreError
from mobench.jobs.store import JobFolder
from mobench.metrics import FEASIBLE, hypervolume
from mobench.study import rows as study_rows

N = 401


def front(f_1: np.ndarray, f_2: np.ndarray) -> pd.DataFrame:
    """Finished runs with these ends, in another order than along the front."""
    rows = pd.DataFrame({"run": range(len(f_1)), "seed": 0, "f_1": f_1, "f_2": f_2, "status": "done"})
    return rows.sample(frac=1.0, random_state=0)


def ends(row: pd.DataFrame) -> tuple[float, float]:
    assert len(row) == 1
    return float(row["f_1"].iloc[0]), float(row["f_2"].iloc[0])


def test_pseudo_weights_of_a_straight_front() -> None:
    """On f_1 + f_2 = 1 the pseudo-weights are (1 - f_1, f_1), in any units."""
    x = np.linspace(0, 1, N)
    for w in (0.1, 0.35, 0.5, 0.9):
        chosen = ends(mobench.choose(front(5 + 3 * x, 100 * (1 - x)), weights=[2 * w, 2 - 2 * w]))
        assert chosen == pytest.approx((5 + 3 * (1 - w), 100 * w), abs=0.3)


def test_the_knee_is_farthest_below_the_line_between_the_ends() -> None:
    """On f_2 = (1 - f_1)^3 the slope is -1 at f_1 = 1 - 3^-1/2; stretching the axes changes nothing."""
    x = np.linspace(0, 1, N)
    best = 1 - 3**-0.5
    chosen = ends(mobench.choose(front(10 * x, 2 + 0.1 * (1 - x) ** 3), "knee"))
    assert chosen == pytest.approx((10 * best, 2 + 0.1 * (1 - best) ** 3), abs=10 / N)


def test_bounds_leave_the_best_of_the_rest() -> None:
    x = np.linspace(0, 1, 11)
    rows = front(x, 1 - x)
    assert ends(mobench.choose(rows, bounds={"f_2": 0.25})) == pytest.approx((0.8, 0.2))
    assert ends(mobench.choose(rows, "knee", bounds={"f_1": 0.05}))[0] == pytest.approx(0.0)
    with pytest.raises(ConfigError, match=r"No run has f_2 <= -1; the smallest is 0"):
        mobench.choose(rows, bounds={"f_2": -1.0})
    with pytest.raises(ConfigError, match="must be a mapping of columns to largest values"):
        mobench.choose(rows, bounds=[0.1, 0.2])
    with pytest.raises(ConfigError, match="objectives without a bound: none"):
        mobench.choose(rows, bounds={"f_1": 1, "f_2": 1})


def test_the_choices_are_those_of_pymoo() -> None:
    """Random points of three objectives, of which pymoo is handed those that no other dominates."""
    pymoo = pytest.importorskip("pymoo.mcdm.pseudo_weights")
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    rng = np.random.default_rng(0)
    for w in rng.dirichlet([2.0, 2.0, 2.0], 20):
        F = rng.random((60, 3)) * [1, 10, 100]
        rows = pd.DataFrame({f"f_{m + 1}": F[:, m] for m in range(3)}).assign(status="done", run=range(60))
        good = np.sort(NonDominatedSorting().do(F, only_non_dominated_front=True))
        expected = good[pymoo.PseudoWeights(w).do(F[good])]
        assert mobench.choose(rows, weights=w)["run"].item() == expected


def test_lost_and_dominated_runs_are_never_chosen() -> None:
    rows = pd.DataFrame(
        {"f_1": [0.0, 1.0, 0.5, np.inf, 0.1], "f_2": [1.0, 0.0, 0.5, 0.0, 0.1], "run": range(5)}
    )
    rows["status"] = ["done", "done", "done", "diverged", "diverged"]
    assert mobench.choose(rows, "knee")["run"].item() in (0, 1, 2)
    rows.loc[4, "status"] = "done"
    assert mobench.choose(rows, weights=[1, 1])["run"].item() == 4  # it dominates the one in the middle
    bound = rows.assign(violation=[0.0, 0.0, 0.5, 0.0, 0.002])
    assert mobench.choose(bound, weights=[1, 1])["run"].item() in (0, 1)
    assert mobench.choose(bound, weights=[1, 1], bounds={"violation": 0.01})["run"].item() == 4
    with pytest.raises(ConfigError, match=r"the smallest violation is 0\.002"):
        mobench.choose(bound[bound["violation"] > 0], "knee")
    with pytest.raises(ConfigError, match="finished run"):
        mobench.choose(rows[rows["run"] == 3], "knee")
    with pytest.raises(ConfigError, match="Did you mean 'knee'"):
        mobench.choose(rows, "kneee")
    with pytest.raises(PreferenceError, match="2 positive numbers"):
        mobench.choose(rows, weights=[1, 0])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five jobs of two problems and two methods."""
    root = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBENCH_OUTPUTS", str(root))
        common = {"preferences": 3, "seeds": [0, 1, 2], "steps": 20, "logger": "local", "progress": False}
        for step in (0.05, 0.1):
            for problem in ("vlmop2", "zdt2"):
                mobench.run(problem=problem, algorithm="ls", **{"algorithm.step_size": step}, **common)
        mobench.run(problem="vlmop2", algorithm="epo", **common)
    return root


@pytest.fixture
def outputs(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(place))
    return place


@pytest.mark.parametrize(
    ("value", "fits", "other"),
    [("x,y", ["x,y", "*"], ["x", "z"]), ("[a]", ["[a]"], ["a"]), ([0, 1], ["[0,1]"], ["0", "[1,0]"])],
)
def test_values_with_commas_are_found(value: Any, fits: list[str], other: list[str]) -> None:
    assert all(study_rows._fits_text(value, text) for text in fits)
    assert not any(study_rows._fits_text(value, text) for text in other)


def test_rows_of_many_jobs_have_the_settings_that_differ(outputs: Path) -> None:
    rows = mobench.rows()
    assert list(rows)[:4] == ["job", "problem", "algorithm", "algorithm.step_size"]
    assert len(rows) == 5 * 9
    assert not any(name.startswith(("oracle", "record", "steps")) for name in rows)  # all jobs have these
    assert set(rows["algorithm"]) == {"ls", "epo"}
    part = mobench.rows("problem=vlmop2", "step_size=0.10,0.3", "algorithm=ls")
    assert part["job"].nunique() == 1
    assert "algorithm" in part
    pd.testing.assert_frame_equal(
        part[list(mobench.load(part).final)], mobench.load(part["job"].iloc[0]).final, check_exact=True
    )
    assert mobench.rows("job=zdt2-*")["job"].nunique() == 2
    assert mobench.rows("problem=zdt2", "algorithm=epo").empty
    assert mobench.rows("job=zdt2-*", "job=*-ls-*")["job"].nunique() == 2
    assert mobench.rows("algorithm=ls", "algorithm=epo").empty  # a job must fit every word
    assert mobench.rows("seeds=[0,1,2]", "record.evaluate=false")["job"].nunique() == 5
    assert mobench.rows("seeds=[0,1]").empty
    with pytest.raises(ConfigError, match=r"no part of a query; write KEY=VALUE"):
        mobench.rows("zdt2")
    with pytest.raises(ConfigError, match=r"setting 'step_sise'. Did you mean 'step_size'"):
        mobench.rows("step_sise=0.1")
    with pytest.raises(ConfigError, match=r"Did you mean 'problem'\?$"):
        mobench.rows("problm=zdt2")
    with pytest.raises(StoreError, match="are of 5 jobs"):
        mobench.load(rows)


def test_settings_that_runs_or_jobs_differ_by_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table names a setting that it averages over, within a job too; a picture has a group without one."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    common = {"problem": "vlmop2", "preferences": 2, "steps": 2, "logger": "local", "progress": False}
    mobench.run(algorithm="ls", **common)
    mobench.run(algorithm="stch", **common, **{"vary.mu": [0.1, 0.2]})
    mobench.run(algorithm="cagrad", **common, **{"algorithm.c": 0.5})
    mobench.run(algorithm="cagrad", **common, **{"algorithm.c": 0.7})
    rows = mobench.rows()
    assert "The means are also over mu;" in mobench.table(rows[rows["algorithm"] == "stch"]).markdown()
    assert "| none | 6 of 6 |" in mobench.table(rows, by="algorithm.c").markdown()
    axes = mobench.plot(rows, by="algorithm.c").axes[0]
    assert sum(len(line.get_xdata()) for line in axes.lines) == len(rows)
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"none", "0.5", "0.7"}
    both = mobench.run(algorithm=[CAGrad(c=0.5), CAGrad(c=0.7), "ls"], **common)
    assert both["algorithm"].unique().tolist() == ["CAGrad(c=0.5)", "CAGrad(c=0.7)", "ls"]


def test_functions_of_a_file_that_was_edited_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python finds other lines there, such as an open bracket, or none."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    path = tmp_path / "edited.py"
    path.write_text("\nx = lambda (\n")
    scope: dict[str, Any] = {}
    exec(compile("\nf = lambda x: x.square()", str(path), "exec"), scope)
    problem = mobench.objectives(scope["f"], dim=2)
    assert len(mobench.run(problem=problem, algorithm="mgda", preferences=1, steps=2, progress=False)) == 1


def test_rows_that_come_with_mobench() -> None:
    rows = mobench.rows("problem=multi_mnist*", "algorithm=epo,ferero*", kept=True)
    assert "epo" in set(rows["algorithm"])
    assert all(name.startswith(("epo", "ferero")) for name in rows["algorithm"])
    assert {"f_1", "test_accuracy_1", "job"} <= set(rows)


def test_unfinished_jobs_are_counted_and_damaged_ones_named(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(outputs / "runs", tmp_path / "runs")
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    first, second, *_ = sorted((tmp_path / "runs").iterdir())
    (first / "status.json").write_text('{"status": "running"}')
    (second / "final.csv").write_text((second / "final.csv").read_text().replace("done", "dome"))
    with pytest.warns(UserWarning, match=r"left out: 1 dead, 1 failed; see `mobench status`"):
        assert mobench.rows()["job"].nunique() == 3


MARKS: dict[str, dict[str, Any]] = {
    "dead": {"status": "running", "host": socket.gethostname(), "time": time.time()},
    "interrupted": {"status": "running", "host": socket.gethostname(), "interrupted": True},
    "running": {"status": "running", "host": "elsewhere", "time": time.time() + 1e5},
    "failed": {"status": "failed", "error": "lost"},
}


@pytest.mark.parametrize("state", [*MARKS, "held"])
def test_a_job_is_called_what_has_become_of_it(
    state: str, outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rows`, `runs`, a loaded job and `mobench status` say the same of a job that began to run."""
    first, *_ = sorted((outputs / "runs").iterdir())
    folder = JobFolder(shutil.copytree(first, tmp_path / "runs" / first.name))
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    (folder.path / "status.json").write_text(json.dumps(MARKS.get(state, MARKS["dead"])))
    expected = "running" if state == "held" else state
    with folder.locked() if state == "held" else nullcontext():  # a process of this machine is at it
        with pytest.warns(UserWarning, match=f"left out: 1 {expected}; see"):
            mobench.rows()
        assert mobench.runs()["status"].tolist() == [expected]
        assert f": {expected};" in repr(mobench.load(folder.path))
        assert status.look(folder).state == expected


def test_jobs_are_deleted_after_a_yes(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(outputs / "runs", tmp_path / "runs")
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    words = ["--delete", "problem=zdt2", "step_size=0.05"]
    left = lambda: len(list((tmp_path / "runs").iterdir()))  # noqa: E731
    assert status.main(words) == 2
    assert "no terminal to ask; add --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, count in (("", 5), ("n", 5), ("y", 4)):
        monkeypatch.setattr("builtins.input", lambda question, said=answer: said)
        assert status.main(words) == 0
        assert left() == count
    out = capsys.readouterr().out
    assert re.search(r"done +zdt2-ls-", out)
    assert re.search(r"1 job, 0\.\d MB in ", out)
    assert status.main(["--delete", "problem=zdt3", "--yes"]) == 0
    assert "No job fits" in capsys.readouterr().out
    # one that has not finished is known by its configuration, and one that is running stays
    (stopped,) = (tmp_path / "runs").glob("vlmop2-epo-*")
    (stopped / "meta.json").unlink()
    (stopped / "status.json").unlink()
    with JobFolder(stopped).locked():
        assert status.main(["--delete", "algorithm=epo", "steps=20", "--yes"]) == 1
        assert "Another process is running this job" in capsys.readouterr().err
    assert status.main(["--delete", "algorithm=epo", "steps=20", "--yes"]) == 0
    assert left() == 3
    with pytest.raises(SystemExit):
        status.main(["--delete"])


def test_a_table_has_means_with_intervals_and_counts_lost_runs() -> None:
    """Student's t with two degrees of freedom: 4.303; the mean of a seed is that of its preferences."""
    values = {"good": [[1.0, 3.0], [3.0, 5.0], [5.0, 7.0]], "bad": [[1.0, 1.0], [1.0, np.inf], [1.0, 1.0]]}
    rows = pd.DataFrame(
        {"algorithm": name, "seed": s, "preference_1": p, "f_1": v, "f_2": 1.0, "algorithm.x": s}
        | {"status": "done" if np.isfinite(v) else "diverged"}
        for name, seeds in values.items()
        for s, pair in enumerate(seeds)
        for p, v in enumerate(pair)
    )
    table = mobench.table(rows, by="algorithm", columns="f_1")
    good = table.frame.set_index("algorithm").loc["good"]
    half = 4.302652729911275 * 2.0 / np.sqrt(3)
    assert (good["f_1"], good["f_1 low"], good["f_1 high"]) == pytest.approx((4.0, 4 - half, 4 + half))
    text = table.markdown()
    assert "| good | 6 of 6 | 4.0 ± 5.0 |" in text
    assert "| bad | 5 of 6 | 1.00 |" in text
    assert "**" not in text  # one group is left, which has nothing to be compared with
    assert "Lost runs, over which no mean is taken: bad 1 of 6." in text
    assert "The means are also over algorithm.x" in text
    both = mobench.table(rows, by="preference_1", columns=["f_2"])
    assert r"\textbf" not in mobench.table(rows[rows["algorithm"] == "good"], by="algorithm").latex()
    assert r"\toprule" in both.latex()
    done = rows[rows["status"] == "done"].rename(columns={"f_1": "loss"})
    assert "| **1.00** |" in mobench.table(done, by="algorithm", columns="loss").markdown()
    assert "| **4.0 ± 5.0** |" in mobench.table(done, columns="loss", largest=["loss"]).markdown()
    with pytest.raises(ConfigError, match="no column 'f_3'"):
        mobench.table(rows, by="algorithm", columns="f_3")


@pytest.mark.parametrize("setting", ["problem", "output", "steps", "algorithm.step_size"])
def test_fronts_of_several_settings_are_not_pooled(setting: str) -> None:
    """Each of two points has the volume 0.16, both together have 0.28, which no setting has reached."""
    rows = pd.DataFrame(
        {"algorithm": "a", "seed": s, setting: value, "f_1": f, "f_2": 1.0 - f, "status": "done"}
        for s in (0, 1)
        for value, f in ((1, 0.2), (2, 0.8))
    )
    table = mobench.table(rows, by="algorithm", reference=[1.0, 1.0])
    assert table.frame["hypervolume"].item() == pytest.approx(0.16)
    assert f"The means are also over {setting}" in table.markdown()
    together = mobench.table(rows.drop(columns=setting), by="algorithm", reference=[1.0, 1.0])
    assert together.frame["hypervolume"].item() == pytest.approx(0.28)


def test_a_problem_with_fewer_objectives_has_no_such_hypervolume() -> None:
    rows = pd.DataFrame(
        {"problem": p, "algorithm": "a", "seed": s, "f_1": 0.5, "f_2": 0.5, "f_3": f, "status": "done"}
        for s in (0, 1)
        for p, f in (("two", np.nan), ("three", 0.5))
    )
    volumes = {}
    for M in (2, 3):
        table = mobench.table(rows, reference=[1.0] * M)
        volumes[M] = dict(zip(table.frame["problem"], table.frame["hypervolume"], strict=True))
        assert "finite" not in table.markdown()
    assert volumes[2] == {"two": 0.25, "three": pytest.approx(np.nan, nan_ok=True)}
    assert volumes[3] == {"two": pytest.approx(np.nan, nan_ok=True), "three": 0.125}
    with pytest.raises(ConfigError):
        mobench.table(rows, reference=[1.0] * 4)
    with pytest.raises(ConfigError, match=r"several problems \(two, three\)"):
        mobench.choose(rows, "knee")


def test_a_table_has_hypervolumes_of_seeds() -> None:
    """The points of one seed have 3/4 of the box below (1, 1), and those of the other 1/4."""
    ends = {0: [(0.5, 0.0), (0.0, 0.5)], 1: [(0.5, 0.5), (2.0, 0.0)]}  # 0.75 and 0.25
    rows = pd.DataFrame(
        {"algorithm": "a", "seed": s, "preference_1": p, "f_1": f, "f_2": g, "status": "done"}
        for s, pair in ends.items()
        for p, (f, g) in enumerate(pair)
    )
    table = mobench.table(rows, reference=[1.0, 1.0])
    assert table.frame["hypervolume"].item() == pytest.approx(0.5)
    assert "| 2.0 ± 0" not in table.markdown()
    lost = rows.assign(status=["diverged", "done", "done", "done"])
    assert mobench.table(lost, reference=[1.0, 1.0]).frame["hypervolume"].item() == pytest.approx(0.375)
    lost = rows.assign(status=["diverged", "diverged", "done", "done"])  # a seed of which nothing is left
    assert mobench.table(lost, reference=[1.0, 1.0]).frame["hypervolume"].item() == pytest.approx(0.25)
    lost = rows.assign(status=["diverged", "done", "done", "done"])
    two = pd.concat([rows, lost.assign(algorithm="b", f_1=0.9, status="done")])
    text = mobench.table(two, reference=[1.0, 1.0]).markdown()
    assert text.count("**") == 2  # means of f_1 over preferences say nothing of a front
    assert "**0.5 ± 3.2**" in text
    bound = mobench.table(rows.assign(violation=[0.0, 1e-3, 0.5, np.nan]), reference=[1.0, 1.0])
    assert bound.frame["hypervolume"].item() == pytest.approx(0.375)  # (0.75 + 0) / 2
    # one by 0.5, and one of which nobody knows
    assert "2 ends violate constraints and do not count in hypervolumes." in bound.markdown()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["rmse", "f_1"])
def test_a_number_without_some_finished_runs_says_so_and_is_never_bold(column: str, value: float) -> None:
    """The mean of A would be 0.1 and the best one, from 2 of its 4 finished runs."""
    rows = pd.DataFrame(
        {"algorithm": name, "seed": s, "f_1": 0.5, "f_2": 0.5, "status": "done"} | {column: v}
        for name, values in (("A", (0.1, value)), ("B", (0.2, 0.3)))
        for s in (0, 1)
        for v in values
    )
    table = mobench.table(rows.assign(preference_1=[0, 1] * 4), by="algorithm", columns=[column])
    text = table.markdown()
    assert table.frame[column].tolist() == pytest.approx([0.1, 0.25])
    assert "| A | 4 of 4 | 0.100 (2 of 4) |" in text
    assert "| B | 4 of 4 | 0.250 |" in text
    assert f"{column} is not finite in 2 of 4 finished runs of A" in text
    assert "**" not in text
    other = mobench.table(rows, by="algorithm", columns=[column, "f_2"], reference=[1.0, 1.0])
    text = other.markdown()
    # hypervolume of A: 0.45 and 0.25 of one end, if f_1 is the number; of B likewise, 0.4 or 0.25
    assert ("(2 of 4)" in text.splitlines()[2].split("|")[-2]) == (column == "f_1")
    assert ("An objective is not finite in 2 of 4 finished runs of A" in text) == (column == "f_1")
    assert ("**" in text.splitlines()[2].split("|")[-2]) == (column == "rmse")  # equal ones are all bold
    # a column that only the rows of B have is that of B, and no number of A is lost
    alone = rows.assign(mine=[np.nan] * 4 + [1.0] * 4)
    assert "not finite" not in mobench.table(alone, by="algorithm", columns=["mine"]).markdown()


def test_tables_of_a_job_and_pictures_count_what_is_not_finite() -> None:
    assert messages._cell(pd.Series([1.0, np.nan, 3.0])) == "2 ± 1.0e+00 (2 of 3)"
    assert messages._cell(pd.Series([1.0, np.inf])) == "1 (1 of 2)"
    assert messages._cell(pd.Series([1.0, 3.0])) == "2 ± 1.0e+00"
    rows = pd.DataFrame({"f_1": [0.0, 1.0, np.nan], "f_2": [1.0, np.inf, 0.0], "status": "done"})
    texts = [text.get_text() for text in mobench.plot(rows).findobj(mpl.text.Text)]
    words = "2 of 3 finished runs are not drawn: a value is not finite."
    assert any(words in " ".join(text.split()) for text in texts)
    assert not any("not drawn" in text.get_text() for text in mobench.plot(rows[:1]).findobj(mpl.text.Text))


def test_a_violation_that_is_nan_is_not_kept() -> None:
    """Rows of several jobs: those of a job without constraints have no violation at all."""
    rows = pd.DataFrame(
        {"seed": 0, "f_1": [0.1, 0.5], "f_2": [0.1, 0.5], "violation": [np.nan, 0.0], "status": "done"}
    )
    assert mobench.choose(rows, weights=[1, 1])["f_1"].tolist() == [0.5]
    with pytest.raises(ConfigError, match="No run keeps its constraints"):
        mobench.choose(rows[:1], weights=[1, 1])
    both = pd.concat([rows.assign(job="a"), rows.drop(columns="violation").assign(job="b")])
    each = mobench.table(both, by="job", reference=[1.0, 1.0])
    assert each.frame["hypervolume"].tolist() == pytest.approx([0.5**2, 0.9**2])
    # a group may be a part of a job, so that its rows alone do not tell
    parts = mobench.table(both, by=["job", "f_1"], columns="f_2", reference=[1.0, 1.0])
    assert parts.frame["hypervolume"].tolist() == pytest.approx([0.0, 0.5**2, 0.9**2, 0.5**2])


def test_each_problem_of_a_table_has_its_best_methods() -> None:
    means = {("a", "ls"): 1.0, ("a", "tch"): 2.0, ("b", "ls"): 30.0, ("b", "tch"): 30.0, ("c", "ls"): 0.0}
    rows = pd.DataFrame(
        {"problem": problem, "algorithm": name, "seed": 0, "f_1": mean, "status": "done"}
        for (problem, name), mean in means.items()
    )
    bold = [line for line in mobench.table(rows).markdown().splitlines() if "**" in line]
    assert [line.split(" | ")[0].strip("| ") for line in bold] == [
        "a",
        "b",
        "b",
    ]  # equal ones both; one alone not


def test_points_that_violate_constraints_are_in_no_hypervolume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a penalty all runs but one end beyond the cap of the first loss."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    settings = {"constraint.value": [0.5, 1.0], "algorithm.beta": 0.0, "seeds": [0, 1], "steps": 200}
    common = {"preferences": 3, "logger": "local", "progress": False}
    rows = mobench.run(problem="vlmop2", constraint="loss_cap", algorithm="penalty_sgd", **common, **settings)
    folder = mobench.load(rows)
    stored = folder.meta["hypervolume"]
    inside = rows[rows["violation"] <= FEASIBLE]
    assert 0 < len(inside) < len(rows)
    assert stored["infeasible"] == {"last": len(rows) - len(inside)}
    ends = {str(seed): inside[inside["seed"] == seed][["f_1", "f_2"]].to_numpy() for seed in (0, 1)}
    assert stored["last"] == {seed: hypervolume(F, stored["reference_point"]) for seed, F in ends.items()}
    summary = messages.summary(folder.folder)
    assert f"without {len(rows) - len(inside)} infeasible points" in summary


def test_a_curve_of_averages_says_that_it_is_of_the_last_iterate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    outputs = {"algorithm.outputs": ["last", "mean"], "preferences": 2, "steps": 5}
    rows = mobench.run(problem="vlmop2", algorithm="omd_tch", **outputs, logger="local", progress=False)
    for chosen, said in ((rows[rows["output"] == "last"], 0), (rows[rows["output"] == "mean"], 1)):
        figure = mobench.plot(chosen, "step", "f_1")
        assert len(figure.axes[0].lines) == 2
        captions = [text.get_text() for text in figure.texts]
        assert captions == ["Curves are of the last iterate: mean is computed at the end alone."][:said]


def test_a_table_says_which_hypervolumes_are_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    F = np.abs(np.random.default_rng(0).standard_normal((40, 6)))
    rows = pd.DataFrame(F / np.linalg.norm(F, axis=1, keepdims=True), columns=[f"f_{m}" for m in range(1, 7)])
    rows = rows.assign(algorithm="ls", seed=[0, 1] * 20, status="done")
    exact = mobench.table(rows, reference=[1.1] * 6)
    assert "estimates" not in exact.markdown()
    monkeypatch.setattr(import_module("mobench.metrics.hypervolume"), "SECONDS", 1e-6)
    drawn = mobench.table(rows, reference=[1.1] * 6)
    match = re.search(r"2 hypervolumes are estimates, each within (\S+) \(99 %\)", drawn.markdown())
    assert match is not None
    off = drawn.frame["hypervolume"].item() - exact.frame["hypervolume"].item()
    assert 0 < abs(off) < float(match[1]) < 0.05


def test_pictures_keep_the_look_and_the_backend_of_a_notebook(outputs: Path, tmp_path: Path) -> None:
    rows = mobench.rows("problem=vlmop2")
    before = dict.copy(mpl.rcParams)
    curves = mobench.plot(rows, "step", "f_1", by="algorithm.step_size")
    for figure, lines in ((mobench.plot(rows), 2), (curves, 27)):
        figure.savefig(tmp_path / "figure.png", dpi=60)
        (ax,) = figure.axes
        assert len(ax.lines) == lines
        assert len({line.get_color() for line in ax.lines}) == 2
    history = mobench.load(rows["job"].iloc[0]).history
    assert curves.axes[0].lines[0].get_ydata().tolist() == history.query("run == 0")["f_1"].tolist()
    assert [text.get_text() for text in mobench.plot(rows).axes[0].get_legend().get_texts()] == [
        "EPO",
        "Linear weights",
    ]
    assert dict.copy(mpl.rcParams) == before
    lost = rows.assign(status=["diverged", *["done"] * (len(rows) - 1)])
    captions = [text.get_text() for text in mobench.plot(lost).texts]
    assert captions == [f"1 of {len(rows)} runs were lost and are not drawn."]
    with pytest.raises(ConfigError, match="no column 'f_7'"):
        mobench.plot(rows, "f_7")


def test_a_ray_has_its_colour_of_every_picture() -> None:
    rows = front(np.linspace(0, 1, 3), np.linspace(1, 0, 3))
    rows = rows.assign(preference_1=0.8 - 0.6 * rows["f_1"], preference_2=0.2 + 0.6 * rows["f_1"])
    ax = mobench.plot(rows).axes[0]
    drawn = {float(line.get_xdata()[0]): line.get_color() for line in ax.lines}
    assert drawn == {0.0: preference(75.963757), 0.5: preference(45.0), 1.0: preference(14.036243)}


def test_what_is_lost_or_done_several_times_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One warning for a job with lost runs, and a note on equal ones; not where preferences are used."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    common = {"preferences": 3, "seeds": [0, 1], "steps": 3, "logger": "local", "progress": False}
    x = torch.zeros(2, dtype=torch.float64)
    wild = mobench.objectives(
        lambda x: torch.stack([x.square().sum().exp(), (x - 1).square().sum()]), start=x
    )
    with pytest.warns(
        UserWarning, match=r"diverged: 6 of 6 runs \(run .*try a smaller algorithm.step_size \(it is 1"
    ):
        mobench.run(problem=wild, algorithm="ls", **{**common, "algorithm.step_size": 1e3, "steps": 40})
    assert "ignores" not in capsys.readouterr().err
    mobench.run(problem="vlmop2", algorithm="mgda", **common)
    assert "MGDA ignores preferences: the 3 runs of each seed are equal" in capsys.readouterr().err
    mobench.run(problem="zdt1", algorithm="hv_gradient", preferences=3, steps=2, logger="local")
    assert "set problem.start.per_preference=true" in capsys.readouterr().err
    mobench.run(problem="vlmop2", algorithm="epo", **common)
    assert capsys.readouterr().err.count("ignores") == 0
    alone = mobench.objectives(lambda x: x.square().sum().unsqueeze(0), dim=2)
    mobench.run(problem=alone, algorithm="ls", **common)
    assert "one objective has one preference: the 3 runs of each seed are equal" in capsys.readouterr().err
    mobench.run(problem=alone, algorithm="ls", **{**common, "preferences": 1})
    assert "equal" not in capsys.readouterr().err
