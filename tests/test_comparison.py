"""The comparison of methods: its trials, measures and statistics against known values, and its rows."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.cross import sentences, speed
from experiments.cross.board import RIGHT, Board, boards_with_rows, by_angle, ignoring, replicated
from experiments.cross.distil import distilled
from experiments.cross.references import References
from experiments.cross.table import boards_of, problems_of, ranking, table
from mobench.artifacts.rows import JobRows
from mobench.cli import cross
from mobench.comparison import measures, rows, statistics, trials
from mobench.config import compose
from mobench.config.overrides import normalise
from mobench.errors import ConfigError, MobenchError, StoreError
from mobench.jobs.build import make_job
from mobench.jobs.run import run_job
from mobench.jobs.store import JobFolder
from mobench.sweep import boards as planned
from mobench.sweep.planner import Planner, plan
from tests.conftest import Run

RANGES = {"step_size": [0.001, 1.0], "mu": [0.01, 10.0]}


def board(methods: int = 4, problems: int = 9, spread: float = 0.05, seed: int = 0) -> np.ndarray:
    """Scores with effects of methods and of problems, tuning noise of a study, and noise of a seed."""
    rng = np.random.default_rng(seed)
    effect = np.linspace(0.8, 0.4, methods)[:, None, None, None]
    place = rng.normal(0, 0.1, (1, problems, 1, 1))
    tuned = rng.normal(0, spread, (methods, problems, 3, 1))
    return effect + place + tuned + rng.normal(0, spread, (methods, problems, 3, 10))


# trials


def test_every_method_has_as_many_trials_whatever_it_tunes() -> None:
    rate = {"lr": [0.001, 1.0]}
    for ranges in ({"step_size": [0.001, 1.0]}, RANGES, rate, rate | {"c": [1, 2]}):
        for study in trials.STUDIES:
            settings = trials.trials(ranges, study, 0)
            assert len(settings) == trials.TRIALS
            assert len({tuple(setting.items()) for setting in settings}) == trials.TRIALS


def test_trials_lie_in_cells_of_their_range() -> None:
    values = trials.drawn(0.001, 1.0, 6, 2, "step_size", 0)
    cells = np.floor(np.log10(np.array(values) / 0.001) * 2)
    assert cells.tolist() == [0, 1, 2, 3, 4, 5]
    assert values != trials.drawn(0.001, 1.0, 6, 3, "step_size", 0)
    assert values != trials.drawn(0.001, 1.0, 6, 2, "step_size", 1)


def test_no_seed_is_used_twice() -> None:
    """Reported seeds, those of every study, and those of the replication are disjoint."""
    every = [trials.reported_seeds(r) for r in (0, 1)]
    every += [trials.tuning_seeds(k, r) for r in (0, 1) for k in trials.STUDIES]
    flat = list(itertools.chain(*every))
    assert len(set(flat)) == len(flat) == 2 * (10 + 6)


@pytest.mark.parametrize(
    "ranges",
    [
        {"mu": [0.1, 1]},
        {**RANGES, "q": [1, 2]},
        {"step_size": [0, 1]},
        {"step_size": [0.1, 1], "lr": [0.1, 1]},
    ],
)
def test_ranges_that_are_none(ranges: dict[str, list[float]]) -> None:
    with pytest.raises(ConfigError, match=r"cross\.ranges"):
        trials.trials(ranges, 1, 0)


# measures


def arc(k: int) -> np.ndarray:
    """A concave front with units of its own: f_1 in [2, 4], f_2 in [-1, 9]."""
    a = np.linspace(0, np.pi / 2, k)
    return np.stack([2 + 2 * np.cos(a), -1 + 10 * np.sin(a)], axis=1)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("nadir", [None, np.array([3.0, 5.0])], ids=["all", "some-outside"])
def test_the_best_few_points_of_a_front(count: int, nadir: np.ndarray | None) -> None:
    """Dynamic programming and exchanges against all subsets; some points may lie behind the reference."""
    reference = measures.Reference(arc(18), nadir=nadir)
    every = itertools.combinations(range(18), count)
    best = max(reference.volume(reference.points[list(chosen)]) for chosen in every)
    assert reference.best(count) == pytest.approx(best, rel=1e-12)
    assert measures.best_greedy(reference.front, count) == pytest.approx(best, rel=1e-9)


def test_measures_do_not_depend_on_units() -> None:
    plain = measures.Reference(arc(200))
    scaled = measures.Reference(arc(200) * [7.0, 0.01] + [3.0, -5.0])
    F = arc(7)[1:-1] + np.array([0.05, 0.2])
    G = F * [7.0, 0.01] + [3.0, -5.0]
    for name in ("volume", "gap", "igd_plus", "epsilon"):
        assert getattr(plain, name)(F) == pytest.approx(getattr(scaled, name)(G), rel=1e-9)


def test_a_point_moved_by_a_tenth_of_the_extent_has_that_gap() -> None:
    reference = measures.Reference(arc(2001))
    inner = arc(2001)[[500, 1000]]
    assert reference.gap(inner) == pytest.approx(0.0, abs=1e-12)
    assert reference.gap(inner + 0.1 * reference.extent) == pytest.approx(0.1, abs=1e-3)
    assert reference.epsilon(reference.points + 0.1 * reference.extent) == pytest.approx(0.1, abs=1e-9)
    assert np.isnan(reference.gap(inner[:0]))
    assert reference.volume(inner[:0]) == 0.0


def test_a_nadir_lies_above_the_front() -> None:
    """Below it the unit is negative, and the worst point the best."""
    with pytest.raises(ConfigError, match=r"nadir \[2.3, 2.3\] must lie above .* \[3.0, 3.0\]"):
        measures.Reference(np.array([[3.0, 4.0], [4.0, 3.0]]), nadir=np.array([2.3, 2.3]))


def test_a_front_needs_an_extent() -> None:
    with pytest.raises(ConfigError, match="extent is the unit"):
        measures.Reference(np.array([[0.0, 1.0]]))


def test_diverged_runs_are_told_not_measured() -> None:
    F = arc(7)
    F[2, 0] = np.nan
    with pytest.raises(ConfigError, match="1 of 7 points of the reference front are not finite"):
        measures.Reference(F)
    for name in ("volume", "gap", "igd_plus", "epsilon"):
        with pytest.raises(MobenchError, match="1 of 7 points contain NaN"):
            getattr(measures.Reference(arc(9)), name)(F)


# statistics


def test_friedman_and_critical_difference_of_known_cases() -> None:
    """Demsar 2006, Table 5: q = 2.569 for four methods, 1.960 for two."""
    assert statistics.critical_difference(4, 14) == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), rel=1e-3)
    assert statistics.critical_difference(2, 10) == pytest.approx(1.960 * np.sqrt(6 / 60), rel=1e-3)
    blocks = board().mean((2, 3))
    ours = statistics.friedman(blocks)
    theirs = stats.friedmanchisquare(*blocks)
    assert ours == pytest.approx((theirs.statistic, theirs.pvalue))


def test_wilcoxon_is_scipys_and_exact_with_ties() -> None:
    rng = np.random.default_rng(3)
    one, other = rng.normal(size=(2, 9))
    assert statistics.wilcoxon(one, other) == pytest.approx(
        stats.wilcoxon(one - other, method="exact").pvalue
    )
    d = np.array([0.1, -0.1, 0.2, 0.3, 0.3, 0.5])
    r = stats.rankdata(np.abs(d))
    sums = [r[np.array(s)].sum() for s in itertools.product([False, True], repeat=6)]
    low = min(r[d > 0].sum(), r[d < 0].sum())
    p = min(1.0, 2 * np.mean(np.array(sums) <= low))
    assert statistics.wilcoxon(d, np.zeros(6)) == pytest.approx(p)
    assert statistics.wilcoxon(d, d) == 1.0


def test_holm_of_a_known_case() -> None:
    """Holm 1979: sorted p times (n, n - 1, ..), never falling, at most 1."""
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.5, 0.9]).tolist() == [1.0, 1.0]


def test_performance_profile_of_a_known_case() -> None:
    needed = np.array([[10.0, 20.0, np.nan], [20.0, 10.0, np.nan]])
    shares = statistics.profile(needed, np.array([1.0, 2.0]))
    assert shares.tolist() == pytest.approx(np.array([[1 / 3, 2 / 3], [1 / 3, 2 / 3]]))


def test_a_copy_changes_no_score_and_no_order() -> None:
    """Clone invariance: scores, intervals and the order of all others are as they were."""
    scores = board()
    with_copy = np.concatenate([scores, scores[1:2]])
    assert statistics.scores(with_copy)[:4].tolist() == statistics.scores(scores).tolist()
    assert (statistics.bootstrap(with_copy, 50)[:, :4] == statistics.bootstrap(scores, 50)).all()
    names = dict(zip("abcd", statistics.scores(scores), strict=True))
    ordered = statistics.order({**names, "b2": names["b"]})
    assert [name for name in ordered if name != "b2"] == statistics.order(names)
    # which ranks do not have: a rank of the method behind the copied one moves
    assert statistics.ranks(with_copy.mean((2, 3)))[2] != statistics.ranks(scores.mean((2, 3)))[2]


def test_a_method_against_its_copy() -> None:
    """False positives in 200 repetitions: the expected rate is 5 %, of which 17 is the 97.5 % point."""
    calls = intervals = 0
    for repetition in range(200):
        rng = np.random.default_rng(repetition)
        place = rng.normal(0.6, 0.1, (1, 9, 1, 1))
        pair = place + rng.normal(0, 0.05, (2, 9, 3, 1)) + rng.normal(0, 0.03, (2, 9, 3, 10))
        blocks = pair.mean((2, 3))
        calls += statistics.wilcoxon(blocks[0], blocks[1]) < 0.05
        draws = statistics.bootstrap(pair, 200, seed=repetition)
        low, high = statistics.interval(draws[:, 0] - draws[:, 1])
        intervals += not low <= 0 <= high
    assert calls <= 17
    assert intervals <= 17


def test_a_bootstrap_that_ignores_tuning_is_too_narrow() -> None:
    """The spread between studies is inside of the interval: without it, it is less than half as wide."""
    rng = np.random.default_rng(0)
    tuned = 0.5 + rng.normal(0, 0.1, (1, 6, 3, 1)) + rng.normal(0, 0.01, (1, 6, 3, 10))
    wide = np.ptp(statistics.interval(statistics.bootstrap(tuned, 300))[0:2])
    same = tuned - tuned.mean(3, keepdims=True) + tuned.mean()
    narrow = np.ptp(statistics.interval(statistics.bootstrap(same, 300))[0:2])
    assert narrow < 0.5 * wide


def test_feasible_shares_come_first() -> None:
    means = {"a": 0.9, "b": 0.5, "c": 0.7}
    assert statistics.order(means, {"a": 0.4, "b": 1.0, "c": 1.0}) == ["c", "b", "a"]


# rows


def some(method: str = "ls", shift: float = 0.0) -> pd.DataFrame:
    """Rows of one pair."""
    out = []
    for study, seed in itertools.product(trials.STUDIES, range(trials.REPORTED)):
        share = 0.5 + 0.01 * study + 0.001 * seed + shift
        row: dict[str, object] = dict.fromkeys(rows.COLUMNS, 0.25)
        row |= {"version": rows.VERSION, "replication": 0, "board": "single", "problem": "zdt1"}
        row |= {"method": method, "study": study, "seed": seed, "share": share, "score": share}
        row |= {"parameter": "", "value": float("nan"), "gap": float("nan"), "feasible": 1.0}
        row |= {"jobs": f"zdt1-{method}-0123456789", "commit": "abcdef123", "digest": ""}
        out.append(row)
    return rows.stamped(pd.DataFrame(out))


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    frame = some()
    rows.write(tmp_path / "a.csv.gz", frame)
    pd.testing.assert_frame_equal(rows.read(tmp_path / "a.csv.gz"), frame, check_dtype=False)
    assert rows.to_bytes(frame) == (tmp_path / "a.csv.gz").read_bytes()


def test_rows_that_contradict_each_other() -> None:
    with pytest.raises(StoreError, match=r"different rows of single\.zdt1\.ls"):
        rows.merge({"a": some(), "b": some(shift=0.1)})


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (some().assign(score=0.99), "do not belong to their digest"),
        (
            rows.stamped(some().assign(version=rows.VERSION + 1)),
            r"rows of version 2 of the protocol.*compares version 1",
        ),
        (rows.stamped(some().iloc[:-1]), "29 rows, but 30 are expected"),
        (some().assign(mine=1), "unknown: mine"),
    ],
)
def test_rows_that_are_refused(frame: pd.DataFrame, words: str, tmp_path: Path) -> None:
    if "mine" in frame:
        frame.to_csv(tmp_path / "a.csv.gz", index=False)
    else:
        rows.write(tmp_path / "a.csv.gz", frame)
    with pytest.raises(StoreError, match=words):
        rows.read(tmp_path / "a.csv.gz")


def test_the_command_joins_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows.write(tmp_path / "a.csv.gz", some("ls"))
    rows.write(tmp_path / "b.csv.gz", some("mine"))
    names = [str(tmp_path / name) for name in ("a.csv.gz", "b.csv.gz", "out.csv.gz")]
    assert cross.run(["merge", *names[:2], "--out", names[2]]) == 0
    assert "2 pairs of method and problem, 2 methods" in capsys.readouterr().out
    assert set(rows.read(tmp_path / "out.csv.gz")["method"]) == {"ls", "mine"}


@pytest.fixture
def kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kept rows of its own, with two methods on one board and one problem."""
    monkeypatch.setattr(rows, "folder", lambda: tmp_path / "kept")
    path = tmp_path / "kept" / "single.csv.gz"
    rows.write(path, rows.merge({"a": some("ls"), "b": some("mgda")})[0])
    return path


def test_rows_replace_kept_ones_only_where_it_is_said(
    kept_elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept_elsewhere.read_bytes()
    new = str(tmp_path / "new.csv.gz")
    rows.write(Path(new), rows.merge({"a": some("mgda", 0.1), "b": some("mine")})[0])
    with pytest.raises(StoreError, match=r"different rows of single\.zdt1\.mgda.*add --replace mgda"):
        cross.run(["merge", new])
    with pytest.raises(StoreError, match=r"different rows of single\.zdt1\.mgda"):
        cross.run(["merge", new, "--replace", "mine"])  # another method than the one that contradicts
    assert kept_elsewhere.read_bytes() == before
    assert cross.run(["merge", new, "--replace", "mgda"]) == 0
    assert "mgda: 1 pairs in place of the kept ones\n" in capsys.readouterr().out
    table = rows.read(kept_elsewhere)
    expected = rows.merge({"a": some("ls"), "b": some("mgda", 0.1), "c": some("mine")})[0]
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    assert cross.run(["merge", new]) == 0  # nothing is contradicted any more


def test_kept_rows_that_no_file_replaces_are_named(
    kept_elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And two files that contradict each other replace nothing."""
    other = rows.stamped(some("mgda").assign(problem="zdt2"))
    rows.write(kept_elsewhere, rows.merge({"a": rows.read(kept_elsewhere), "b": other})[0])
    before = kept_elsewhere.read_bytes()
    names = [str(tmp_path / name) for name in ("a.csv.gz", "b.csv.gz")]
    for name, shift in zip(names, (0.1, 0.2), strict=True):
        rows.write(Path(name), some("mgda", shift))
    with pytest.raises(StoreError, match=r"b\.csv\.gz and .*a\.csv\.gz have different rows"):
        cross.run(["merge", *names, "--replace", "mgda"])
    assert kept_elsewhere.read_bytes() == before
    assert cross.run(["merge", names[0], "--replace", "mgda"]) == 0
    assert "no file has its rows of single.zdt2 (replication 0)" in capsys.readouterr().out
    assert rows.digests(rows.read(kept_elsewhere), "mgda")[0, "single", "zdt2", "mgda"] == other["digest"][0]


@pytest.mark.parametrize(
    ("further", "words"),
    [
        (["--replace", "mgdaa"], "--replace mgdaa: the files have no rows of it, but of mgda. Did you mean"),
        (["--replace", "mgda", "--out", "x"], "replaces kept rows, but --out x joins the given files alone"),
    ],
)
def test_what_cannot_be_replaced(tmp_path: Path, further: list[str], words: str) -> None:
    rows.write(tmp_path / "a.csv.gz", some("mgda"))
    with pytest.raises(ConfigError, match=words):
        cross.run(["merge", str(tmp_path / "a.csv.gz"), *further])


def test_an_unknown_command(mobench: Run) -> None:
    mobench("cross", "join").refused("mobench cross join is unknown", "mobench cross merge FILE...")


# jobs


def test_a_pair_is_one_batch_of_all_trials_studies_and_seeds() -> None:
    node = {**table(), "algorithms": ["stch"]}
    (overrides,) = planned.of_pair(node, "preference", "dtlz2", "stch", compose.compose).values()
    job = make_job(compose.compose(overrides))
    settings = {tuple(s.items()) for k in trials.STUDIES for s in trials.trials(node["ranges"]["stch"], k, 0)}
    assert len(settings) == 18
    assert len(job.runs) == 18 * (10 + 6) * 5
    assert (job.steps, trials.cost(job.algorithm, job.joined.spec)) == (600, 1)  # 200 M gradients, M = 3
    (overrides,) = planned.of_pair(node, "preference", "dtlz2", "epo", compose.compose).values()
    job = make_job(compose.compose(overrides))
    assert (job.steps, trials.cost(job.algorithm, job.joined.spec)) == (200, 3)


def test_a_board_whose_runs_are_long_has_a_job_for_each_study() -> None:
    """With the trials and the tuning seeds of that study alone, and fewer reported seeds."""
    node = {**table(), "algorithms": ["mgda"], "only": ["networks"]}
    assert planned.pairs(node) == [("networks", problem, "mgda") for problem in problems_of("networks")]
    jobs = planned.of_pair(node, "networks", "two_digits", "cagrad", compose.compose)
    assert list(jobs) == [f"networks.two_digits.cagrad.{study}" for study in trials.STUDIES]
    for study, overrides in zip(trials.STUDIES, jobs.values(), strict=True):
        config = compose.compose(overrides)
        assert config["seeds"] == [0, 1, 2, 3, 4, *trials.tuning_seeds(study, 0)]
        settings = trials.trials(node["ranges"]["cagrad"], study, 0)
        assert [
            dict(zip(config["vary"], v, strict=True)) for v in zip(*config["vary"].values(), strict=True)
        ] == settings
        assert len(make_job(config).runs) == 6 * 7


def test_every_method_of_a_board_has_the_same_budget() -> None:
    """Steps times gradients of a step, of every method on one problem of each board."""
    node = table()
    for board, problem in {"single": "zdt1", "constrained": "gaussian_2", "networks": "two_digits"}.items():
        for method in boards_of()[board]["methods"][::3]:
            for overrides in planned.of_pair(node, board, problem, method, compose.compose).values():
                if "steps=1" in overrides:  # refused
                    continue
                job = make_job(compose.compose(overrides))
                each = trials.cost(job.algorithm, job.joined.spec)
                spec = job.joined.spec
                budget = int(boards_of()[board]["budget"]) * (spec.M + spec.N)
                assert budget - each < job.steps * each <= budget, (method, job.steps, each)


def test_rows_that_come_with_the_project_are_those_of_this_code() -> None:
    """The jobs that a few kept pairs were computed from are those that the experiment lists now."""
    pairs = rows.kept_pairs(0)
    for pair in list(pairs)[:: max(1, len(pairs) // 6)]:
        jobs = planned.of_pair(table(), *pair, compose.compose)
        keys = [make_job(compose.compose(job)).key for job in jobs.values()]
        assert rows.joined_keys(keys) == pairs[pair], pair


def test_nothing_runs_unless_it_is_asked_for() -> None:
    assert planned.jobs(table(), ["ls"], compose.compose) == {}
    node = {**table(), "algorithms": ["ls"], "only": ["single"]}
    assert planned.jobs(node, ["ls"], compose.compose) == {}  # its rows are kept
    pairs = planned.pairs({**table(), "algorithms": ["mine"]})
    asked_for = {"networks", "preference_50", "preference_800", "single_50"}  # which take long
    assert {board for board, _, _ in pairs} == set(boards_of()) - asked_for
    assert planned.pairs({**table(), "algorithms": ["mgda"]}) == [
        ("single", problem, "mgda") for problem in problems_of("single")
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 7}, "cross.version=7, but this code computes rows of version 1"),
        ({"algorithms": "some"}, "must be 'kept', 'all' or a list"),
        ({"algorithms": ["lss"]}, "cross.algorithms='lss' is unknown"),
        ({"only": ["singel"]}, "cross.only='singel' is unknown"),
        ({"problem": {}}, "cross.problem is unknown"),
        ({"boards": None}, "cross has no boards: add \\+experiment=cross/zoo"),
    ],
)
def test_bad_tables(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned.jobs({**table(), **change}, ["ls"], compose.compose)


def test_a_command_adds_to_the_ranges_and_settings_of_the_boards(planner: Planner) -> None:
    """A method of a command with a range of its own leaves those of the others, and their default."""
    added = [
        "cross.algorithms=[mine,ls]",
        "+cross.ranges.mine={step_size:[0.1,1.0]}",
        "cross.settings.tch=null",
    ]
    node = planner.composer.compose(["+experiment=cross/zoo", "scale=paper", *normalise(added)])["cross"]
    assert node["algorithms"] == ["mine", "ls"]
    assert node["boards"] == table()["boards"]
    assert node["ranges"] == table()["ranges"] | {"mine": {"step_size": [0.1, 1]}}
    assert node["settings"] == table()["settings"] | {"tch": None}
    assert node["pairs"] == table()["pairs"]


def test_pairs_that_do_not_fit_are_listed_with_their_reasons() -> None:
    """FORUM needs a lower level, which no problem of the board has: nothing runs, and nothing is an error."""
    chosen = ["cross.algorithms=[forum]", "cross.only=[single]", "scale=smoke", "logger=local"]
    planned_jobs = plan(["+experiment=cross/zoo", *chosen])
    assert planned_jobs.jobs == []
    refused = planned_jobs.refused["cross/zoo"]
    assert set(refused) == {f"single.{problem}.forum" for problem in problems_of("single")}
    assert all("FORUM is not compatible with" in reason for reason in refused.values())


# boards and pages


def test_a_copy_in_the_rows_changes_no_line_of_the_others() -> None:
    """The board of the kept rows, and the same with a copy of its first method."""
    stored = rows.kept(0)
    single = stored[stored["board"] == "single"]
    before = Board("single", single)
    copy = single[single["method"] == before.methods[0]].assign(method="copy")
    after = Board("single", pd.concat([single, copy], ignore_index=True))
    assert [m for m in after.methods if m != "copy"] == before.methods
    assert {m: after.scores[m] for m in before.methods} == before.scores
    assert {m: after.intervals[m] for m in before.methods} == before.intervals
    assert after.scores["copy"] == before.scores[before.methods[0]]


def test_kept_rows_of_a_pair_are_computed_again(tmp_path: Path) -> None:
    """Linear scalarization on ZDT1: all trials of the studies, and the seeds of the chosen settings."""
    (overrides,) = planned.of_pair(table(), "single", "zdt1", "ls", compose.compose).values()
    job = JobRows(JobFolder(run_job(compose.compose([*overrides, "logger=local"]), tmp_path).folder))
    budget = int(boards_of()["single"]["budget"])
    computed = distilled((0, "single", "zdt1", "ls"), [job], budget, References())
    zdt1 = rows.kept(0).query("board == 'single' and problem == 'zdt1' and method == 'ls'")
    expected = zdt1.sort_values(["study", "seed"])
    assert computed["step_size"].tolist() == expected["step_size"].tolist()
    np.testing.assert_allclose(computed["score"], expected["score"], atol=1e-4)


def test_the_page_says_what_the_kept_rows_say() -> None:
    assert sentences.PAGE.read_text() == sentences.page()
    assert boards_with_rows(rows.kept(0))


def made(scores: np.ndarray) -> Board:
    """A board of scores (methods, problems, studies, seeds), of methods m0, m1, ... and the baselines."""
    names = ["ls", "tch", *(f"m{m}" for m in range(2, len(scores)))]
    lines = [
        {"method": names[m], "problem": ranking("preference")[p], "study": k + 1, "seed": e, "score": value}
        for (m, p, k, e), value in np.ndenumerate(scores)
    ]
    return Board("preference", pd.DataFrame(lines).assign(feasible=1.0, angle=-10.0))


def test_separated_pairs_are_those_of_every_interval() -> None:
    """Better first, with the interval of the difference; from the draws of the bootstrap, pair by pair."""
    ranked = made(board(methods=5))
    draws = dict(zip(ranked.methods, ranked.draws.T, strict=True))
    expected = {
        pair
        for pair in itertools.permutations(ranked.methods, 2)
        if np.quantile(draws[pair[0]] - draws[pair[1]], 0.025) > 0
    }
    assert set(ranked.separated) == expected
    assert all(0 < low < value < high for value, low, high in ranked.separated.values())
    assert ranked.leader == ranked.methods[0]
    assert ranked.better == [m for m in ranked.methods if (m, ranked.baseline) in expected]
    assert ranked.worse == [m for m in ranked.methods if (ranked.baseline, m) in expected]


def test_a_lead_needs_an_interval() -> None:
    """No method leads among those that differ by noise alone, and no difference is named."""
    ranked = made(np.random.default_rng(1).normal(0.5, 0.1, (4, 9, 3, 10)))
    assert ranked.leader is None
    assert set(ranked.close) == set(ranked.methods[1:])
    assert "no method leads: 3 of 3 cannot be told apart" in sentences.leader(ranked)
    assert "[" not in sentences.leader(ranked)
    assert "leads, +" in sentences.leader(made(board(methods=4)))


def test_the_kept_boards_and_their_replications() -> None:
    """With themselves all pairs are the same, but not where the first and the last have changed places."""
    single = rows.kept(0)[rows.kept(0)["board"] == "single"]
    before = Board("single", single)
    (same,) = replicated([before], [before]).values()
    assert all(same)
    first, *_, last = before.methods
    exchanged = Board("single", single.assign(method=single["method"].replace({first: last, last: first})))
    (other,) = replicated([before], [exchanged]).values()
    assert len(other) == len(same)
    assert not all(other)
    gone = Board("single", single[single["method"] != last])
    (fewer,) = replicated([before], [gone]).values()
    assert len(fewer) < len(same)  # of methods on both boards alone
    assert replicated([before], []) == {}


def test_a_board_by_angle_ranks_methods_that_follow_preferences() -> None:
    """Its numbers are means over problems of the column `angle`; a row without any run counts 90 degrees."""
    stored = rows.kept(0)
    by_preference = boards_with_rows(stored, ["preference"])
    (ranked,) = by_angle(by_preference)
    angles = stored[(stored["board"] == "preference") & stored["problem"].isin(ranking("preference"))]
    angles = angles.assign(angle=angles["angle"].fillna(90.0))
    means = angles.groupby(["method", "problem"])["angle"].mean().groupby("method").mean()
    assert ignoring(by_preference[0]) == ["mlm_cmoo"]
    assert ranked.methods == [m for m in means.sort_values().index if m in by_preference[0].methods]
    assert {m: -v for m, v in ranked.scores.items()} == pytest.approx(means[ranked.methods].to_dict())
    first = ranked.methods[0]
    lost = stored.assign(angle=stored["angle"].where(stored["method"] != first))
    (other,) = by_angle(boards_with_rows(lost, ["preference"]))
    assert other.methods[-1] == first
    assert other.scores[first] == -RIGHT


def test_budgets_are_compared_on_the_same_problems() -> None:
    """Budgets with all ranking problems, and all budgets on the problems of one that has fewer."""
    names = ranking("preference")
    every = made(board(methods=3)).rows

    def of(name: str, count: int) -> Board:
        return Board(name, every[every["problem"].isin(names[:count])])

    whole, shared = speed.budgets([of("preference", 9), of("preference_50", 9), of("preference_800", 2)])
    assert {k: b.problems for k, b in whole.items()} == {50: names, 200: names}
    assert {k: b.problems for k, b in shared.items()} == dict.fromkeys((50, 200, 800), names[:2])
    assert speed.budgets([of("preference", 9)]) == []
    sentence = sentences.conclusions([whole[200]], [], [whole[50]])[-1]
    assert "(9 problems)" in sentence
    assert "leads with 50, +" in sentence


def test_stored_best_volumes_are_computed_again() -> None:
    job = make_job(compose.compose(["problem=zdt1", "problem.n=10", "algorithm=ls"]))
    references = References()
    key, reference = references.of(job.problem, "zdt1", 0)
    assert references.best(key, 5) == pytest.approx(reference.best(5), rel=1e-12)
    ball = make_job(compose.compose(["problem=ball_and_half_space", "algorithm=csmoo2"])).problem
    front = references.of(ball, "ball", 3)[1].points
    assert front.shape[1] == 3
    assert len(front) > 20
