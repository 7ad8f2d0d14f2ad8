"""Artifacts: what their folders hold, who may overwrite them, verdicts, every one at smoke scale, joblib."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import time
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from mobench.artifacts import Artifact, JobRows, RunCount, artifact, registered
from mobench.artifacts.artifact import _registry as registry
from mobench.artifacts.checks import Judged
from mobench.artifacts.claims import UNKNOWN, Text, Texts
from mobench.artifacts.drawing import artifact_folder, read, tally
from mobench.artifacts.tables import latex, markdown
from mobench.cli import keep as keep_rows
from mobench.config.schema import PaperConfig as Paper
from mobench.config.schema import choices
from mobench.errors import ConfigError
from mobench.jobs.store import JobFolder
from mobench.report.reading import artifacts
from tests.conftest import REPOSITORY, Run, of_before, shell

SCALES = ("smoke", "laptop", "paper")
VERDICTS = {"reproduced", "partial", "not reproduced", "inconclusive", "check passed", "check failed"}
FIELDS = {
    "id", "jobs", "statement", "source", "published", "measured", "tolerance", "scale", "verdict", "reason",
    "timed", "gauges", "leans",
}  # fmt: skip
FIG7 = ("+experiment=ferero/fig7", "artifact.pdf=true", "logger=local")


def check_folder(folder: Path, scale: str) -> list[dict[str, Any]]:
    """Checks the files of an artifact folder, and returns the claims."""
    names = {p.name for p in folder.iterdir()}
    assert {"claims.json", "provenance.json"} <= names
    assert "figure.png" in names or {"table.csv", "table.md", "table.tex"} <= names
    assert not {n for n in names if n.endswith(".tmp")}
    claims = json.loads((folder / "claims.json").read_text())
    assert claims or json.loads((folder / "provenance.json").read_text())["references"]
    for claim in claims:
        assert set(claim) == FIELDS
        assert claim["verdict"] in VERDICTS
        assert claim["scale"] == scale
        # whatever is not simply true says why
        assert claim["reason"] or claim["verdict"] in ("reproduced", "check passed"), claim["id"]
        for text in ("id", "statement", "source", "measured", "tolerance"):
            assert claim[text].strip(), (claim["id"], text)
    assert len({c["id"] for c in claims}) == len(claims)
    origin = json.loads((folder / "provenance.json").read_text())
    assert {"command", "jobs", "runs", "git_sha", "versions"} <= set(origin)
    assert {"date", "device", "seconds_jobs", "notes"} <= set(origin)
    assert origin["command"].startswith("mobench +experiment=")
    assert origin["depicts"] == (
        "data" if origin["id"] in ("ferero/pictures", "omd_tch/partitions") else None
    )
    if "figure.pdf" in names:
        check_fonts(folder / "figure.pdf")
    if "figure.png" in names:
        assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    if "table.csv" in names:
        rows = pd.read_csv(folder / "table.csv", keep_default_na=False)
        assert (folder / "table.md").read_text().count("\n") == len(rows) + 2
        assert (folder / "table.tex").read_text().startswith("\\begin{tabular}")
    return list(claims)


def check_fonts(path: Path) -> None:
    """Every font of a PDF is embedded, and none is of Type 3 (outlines that publishers refuse)."""
    raw = path.read_bytes()
    assert raw.startswith(b"%PDF-")
    streams = [raw]
    for match in re.finditer(rb"stream\r?\n", raw):
        try:
            streams.append(zlib.decompressobj().decompress(raw[match.end() :]))
        except zlib.error:
            continue
    text = b"\n".join(streams)
    assert b"/Subtype /Type3" not in text
    assert b"/FontFile2" in text


# one artifact


def test_one_artifact(mobench: Run) -> None:
    result = mobench(*FIG7)
    assert result.code == 0, result.err
    folder = result.root / "artifacts/ferero/fig7"
    claims = check_folder(folder, "laptop")
    assert "inconclusive" not in {c["verdict"] for c in claims}
    origin = read(folder)["provenance"]
    assert origin["command"] == "mobench +experiment=ferero/fig7 artifact.pdf=True logger=local"
    assert sorted(origin["jobs"].values()) == [job.key for job in result.folders]
    assert set(origin["runs"].values()) == {"1 of 1"}
    assert origin["notes"] is not None
    assert result.out.startswith("2 jobs, 0 already finished, 2 to run\nferero/fig7: ")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    stamps = [(job.path / "final.csv").stat().st_mtime_ns for job in result.folders]

    same = mobench(*FIG7)  # nothing has changed, nothing is done
    assert same.code == 0
    assert same.out.startswith("ferero/fig7: 1 reproduced; ")
    assert same.out.endswith("(rerun=true reruns it)\n")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before

    (folder / "claims.json").unlink()
    again = mobench(*FIG7)  # drawn from stored rows
    assert again.out.startswith("2 jobs, 2 already finished, 0 to run")
    assert [(job.path / "final.csv").stat().st_mtime_ns for job in again.folders] == stamps
    after = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert after.keys() == before.keys()
    # the same rows give the same bytes, but for the date in the provenance
    assert [n for n in before if before[n] != after[n]] == ["provenance.json"]

    # an artifact whose job fails is not drawn, and the older one stays as it is
    bad = pytest.MonkeyPatch()
    try:
        bad.setattr("mobench.jobs.run.train", explode_for("scale_2"))
        failing = mobench(*FIG7, "rerun=true")
    finally:
        bad.undo()
    assert failing.code == 1
    assert "ferero/fig7 is not drawn: 1 of 2 jobs are not finished (scale_2)" in failing.err
    assert "ferero/fig7 scale_2 failed: ArithmeticError: no luck" in failing.err
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == after


def explode_for(name: str) -> Any:
    """A stand-in for the training loop that fails for one job."""
    from mobench.jobs import train as training

    original = training.train

    def train(job: Any, *args: Any) -> Any:
        if job.config.plain["artifact"]["job"] == name:
            raise ArithmeticError("no luck")
        return original(job, *args)

    return train


def test_values_narrow_the_jobs_and_are_drawn_apart(mobench: Run) -> None:
    """Changes are in the provenance and decide no claim; the artifact's own drawing stays."""
    result = mobench(*FIG7, "seeds=[0]", "steps=5", "algorithm.c_h=0.5")
    assert result.code == 0, result.err
    for job in result.folders:
        assert job.status()["steps"] == 5
    assert not (result.root / "artifacts").exists()
    (folder,) = (result.root / "other_settings/ferero").iterdir()
    assert folder.name.startswith("fig7+seeds=0-steps=5-algorithm.c_h=0.5-")
    content = read(folder)
    assert {c["verdict"] for c in content["claims"]} == {"does not hold with other settings"}
    assert content["provenance"]["command"].endswith("'seeds=[0]' steps=5 algorithm.c_h=0.5")
    assert "seeds=[0]" in content["provenance"]["notes"][0]
    assert "counted nowhere" in result.out
    again = mobench(*FIG7, "seeds=[0]", "steps=5", "algorithm.c_h=0.5")
    assert "unchanged since" in again.out
    assert artifacts(result.root).all.everything == []


@pytest.mark.parametrize(
    ("scale", "holds", "verdict"),
    [
        ("laptop", True, "holds with other settings"),
        ("laptop", "partial", "holds in part with other settings"),
        ("laptop", False, "does not hold with other settings"),
        ("paper", False, "does not hold with other settings"),
        ("laptop", None, "undecided with other settings"),
        ("smoke", True, "undecided with other settings"),
    ],
)
def test_what_is_drawn_apart_holds_or_not(scale: str, holds: Any, verdict: str) -> None:
    """Also of one seed: it says what was measured, and decides no claim."""
    for changed in (["seeds=[5]"], ["algorithm.step_size=0.2"]):
        a = Artifact("x/y", "t", scale, {}, changed=changed, apart=True)
        claim(a, "id", holds, why="Why.")
        assert a.claims[0].verdict == verdict
        assert a.claims[0].reason.startswith("Run with other settings than the artifact's (")


@pytest.mark.parametrize("choice", ["algorithm=ls", "protocol=none", "algorithm=ferero"])
def test_groups_that_jobs_fix_cannot_be_chosen(mobench: Run, choice: str) -> None:
    result = mobench(*FIG7, choice)
    result.refused(
        "The experiment fixes", "for its job 'scale_1'", f"{choice} cannot change it", "without +experiment"
    )
    assert result.folders == []


def test_drawing_that_raises_costs_no_other_artifact(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    registered("ferero/fig1")

    def broken(a: Artifact) -> None:
        raise KeyError("column")

    monkeypatch.setitem(registry, "ferero/fig1", broken)
    result = mobench("+experiment=ferero/fig1,omd_tch/fig1", "scale=smoke", "logger=local")
    assert result.code == 1
    assert "ferero/fig1 is not drawn: KeyError: 'column'" in result.err
    assert not (result.root / "artifacts/ferero/fig1").exists()
    check_folder(result.root / "artifacts/omd_tch/fig1", "smoke")


def test_artifact_on_a_full_disk(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = mobench("+experiment=ferero/fig1", "logger=local").root / "artifacts/ferero/fig1"
    claims = (folder / "claims.json").read_bytes()
    (folder / "figure.png").write_bytes(b"")  # else there is nothing to write: it would come out the same

    def fsync(fd: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", fsync)
    result = mobench("+experiment=ferero/fig1", "logger=local")
    result.refused("ferero/fig1 is not drawn", "no space left", code=1)
    # claims.json is written last: without it the folder does not pass for complete
    assert not (folder / "claims.json").exists() or (folder / "claims.json").read_bytes() == claims


def test_timed_jobs_run_alone(mobench: Run, planner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever launches them: first all others together, then each by itself. Not where that takes hours."""
    alone = {
        scale: planner.composer.compose(["+experiment=mlm_cmoo/table1", f"scale={scale}"])["artifact"][
            "alone"
        ]
        for scale in SCALES
    }
    assert alone == {"smoke": True, "laptop": True, "paper": False}
    groups = []
    monkeypatch.setattr(
        "mobench.sweep.launch.launch_group",
        lambda jobs, adapter, say: groups.append([job.artifact for job in jobs]) or [],
    )
    result = mobench("+experiment=ferero/table11,ferero/fig7", "scale=smoke", "logger=local")
    assert "is not drawn" in result.err  # nothing has run
    assert groups[0] == ["ferero/fig7"] * 2
    assert len(groups) > 30
    assert all(group == ["ferero/table11"] for group in groups[1:])


def test_timed_jobs_are_read_where_all_were_kept(
    mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in outputs never count; rows of the project do, if they are complete and alone."""
    results = tmp_path / "results"
    for module in ("mobench.jobs.outcome", "mobench.cli.keep", "mobench.artifacts.freshness"):
        monkeypatch.setattr(f"{module}.results_root", lambda: results)
    command = ("+experiment=mlm_cmoo/table1", "scale=smoke", "logger=local", "progress=false")
    first = mobench(*command)
    assert first.code == 0, first.err
    jobs = first.folders
    assert len(jobs) == 16
    for job in jobs:
        keep_rows.keep(job, results, history=True)
    drawn_from = (first.root / "artifacts/mlm_cmoo/table1", results)
    origin = read(drawn_from[0])["provenance"]
    assert keep_rows.fault("mlm_cmoo/table1", origin, *drawn_from) is None
    again = mobench(*command, root=tmp_path / "again")
    assert again.code == 0, again.err
    assert again.out.startswith("16 jobs, 16 already finished, 0 to run")
    assert again.folders == []
    drawn = "artifacts/mlm_cmoo/table1/table.csv"
    assert (tmp_path / "again" / drawn).read_bytes() == (first.root / drawn).read_bytes()

    timed = next(job for job in jobs if "mlmcmoo" in job.key)
    shutil.rmtree(results / "runs" / timed.key)
    keep_rows.keep(timed, results, history=False)
    assert "history.parquet" in str(keep_rows.fault("mlm_cmoo/table1", origin, *drawn_from))
    keep_rows.keep(timed, results, history=True)
    table = drawn_from[0] / "table.csv"
    table.write_text(table.read_text().replace("MLM-CMOO", "another method"))
    assert "table is different" in str(keep_rows.fault("mlm_cmoo/table1", origin, *drawn_from))

    # what would be run is said
    monkeypatch.setattr("mobench.sweep.launch.launch_group", lambda jobs, adapter, say: [])
    planned = "16 jobs, 0 already finished, 16 to run"
    (first.root / "artifacts/mlm_cmoo/table1/claims.json").unlink()  # else nothing has changed
    # rows of this machine are not mixed with those
    assert mobench(*command, root=first.root).out.startswith(planned)
    of_before(JobFolder(results / "runs" / timed.key))
    elsewhere = timed.meta() | {"device": "another machine"}
    (results / "runs" / timed.key / "meta.json").write_text(json.dumps(elsewhere))
    assert mobench(*command, root=tmp_path / "mixed").out.startswith(planned)
    shutil.rmtree(results / "runs" / timed.key)
    assert mobench(*command, root=tmp_path / "partly").out.startswith(planned)


# all of them


KEPT = REPOSITORY / "experiments/results"
# to save time: where `make reproduce SCALE=smoke` has drawn everything; it is looked at, not made again
DRAWN = "MOBENCH_SMOKE"
# artifacts and claims that wait for a larger scale; of the other papers 11 and 50
FEWEST = {"mlm_cmoo": (5, 10), "cross": (3, 0)}  # boards make no claim that needs its scale


# tables that no job measures: notation, settings, what is proved of methods, what clients hold, pictures,
# simulations
GIVEN = {
    *(f"ferero/{t}" for t in ("pictures", "table6", "table7", "table8", "table10")),
    *("omd_tch/partitions", "omd_tch/bounds"),
    "ferero/positions",  # losses of the authors' networks; the jobs are drawn as curves
    *("cross/zoo", "cross/ranks", "cross/profiles"),  # of rows that come with the project
}


COMPUTED = re.compile("(scale|weak)-.*|copied-row|gains-of-the-text")  # claims that rest on no run


def test_a_claim_rests_on_the_jobs_that_it_names() -> None:
    jobs: Any = {
        "ours": SimpleNamespace(complete=True, runs="3 of 3", data=None),
        "other": SimpleNamespace(complete=False, runs="0 of 3", data=None),
    }
    a = Artifact("x/y", "x", "laptop", jobs)
    for id, names in (("all", None), ("ours", ("ours",)), ("both", ("ours", "other"))):
        claim(a, id, True, rests_on=names)
    assert [(c.verdict, "other: 0 of 3" in c.reason) for c in a.claims] == [
        ("partial", True),
        ("reproduced", False),
        ("partial", True),
    ]
    with pytest.raises(ValueError, match=r"no jobs \['theirs'\].*ours"):
        claim(a, "wrong", True, rests_on=("ours", "theirs"))


def lost_runs_are_said(root: Path, known: list[str]) -> None:
    """With the last seed or run of every job lost everything is still drawn, and tables and claims say so."""
    seen: set[Any] = set()
    for id in known:
        drawing = registered(id)
        if drawing.__code__ in seen:  # the same function with other settings
            continue
        seen.add(drawing.__code__)
        keys = read(root / "artifacts" / id)["provenance"]["jobs"]
        places = {
            key: next(p for p in (root, KEPT) if (p / "runs" / key).exists()) / "runs" / key
            for key in keys.values()
        }
        a = Artifact(id, id, "smoke", {name: JobRows(JobFolder(places[key])) for name, key in keys.items()})
        drawing(a)
        # checks of ours do not rest on jobs
        claims = [c for c in a.claims if a.jobs and c.source != "ours" and not COMPUTED.fullmatch(c.id)]
        unsaid = {c.id for c in claims if not c.reason.startswith("Not all runs finished")}
        assert not unsaid, id
        if "table.md" not in a.files or id in GIVEN:
            continue
        head, _, *lines = [
            [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in a.files["table.md"].decode().splitlines()
        ]
        cells = [cell for line in lines for name, cell in zip(head, line, strict=True) if name != "runs"]
        assert any(re.search(r"\d of \d", cell) for cell in cells), id


JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
# two processes train this paper's jobs, and another one draws. They live on from the jobs that ran beside
# each other to those that run alone; their numbers of jobs at once must not
BESIDE = "mlm_cmoo"


def plugged(launcher: str) -> bool:
    """A launcher of Hydra's is installed."""
    plugin = f"hydra_plugins.hydra_{launcher}_launcher"
    return all(importlib.util.find_spec(name) for name in ("hydra_plugins", plugin))


def jobs_at_once(root: Path, keys: set[str]) -> set[int]:
    """Numbers of jobs at once that these jobs have recorded."""
    return {json.loads((root / "runs" / key / "meta.json").read_text())["at_once"] for key in keys}


def drawn_at_smoke_scale(root: Path) -> list[int]:
    """Draws everything; returns how many jobs each of two commands has announced, which share none."""
    settings = ("scale=smoke", "logger=local", "progress=false")
    launcher = JOBLIB if plugged("joblib") else ()
    announced = []
    for command in ((f"+experiment={BESIDE}/all", *launcher), ("+experiment=all",)):
        began = time.monotonic()
        done = shell(root, *command, *settings, timeout=900)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        said = re.match(r"(\d+) jobs", done.stdout)
        assert said is not None
        announced.append(int(said[1]))
        print(f"{command[0]} at smoke scale: {time.monotonic() - began:.0f} s")
    return announced


def check_paper(paper: str, root: Path) -> list[str]:
    """Checks the drawings of one paper, their claims and verdicts, and returns the jobs of each."""
    known = [id for id in choices("experiment") if id.startswith(f"{paper}/")]
    artifacts, waiting = FEWEST.get(paper, (11, 50))
    assert len(known) >= artifacts
    counts: dict[str, int] = {}
    judged: dict[str, set[str]] = {}
    for id in known:
        claims = check_folder(root / "artifacts" / id, "smoke")
        judged[id] = {claim["id"] for claim in claims}
        for claim in claims:
            counts[claim["verdict"]] = counts.get(claim["verdict"], 0) + 1
    for id in known:
        for other, referred in read(root / "artifacts" / id)["provenance"]["references"].items():
            assert set(referred) <= judged[other], f"{id} refers to claims that {other} does not judge"
    assert counts.get("inconclusive", 0) >= waiting
    # settings, tables of symbols and theory are checked at any scale; csmoo and mlm_cmoo have none of them
    decided = counts.get("reproduced", 0) + counts.get("check passed", 0)
    assert decided >= {"csmoo": 0, "mlm_cmoo": 0, "ferero": 10, "omd_tch": 2}.get(paper, 1)
    jobs = [key for id in known for key in read(root / "artifacts" / id)["provenance"]["jobs"].values()]
    if paper != "cross":  # the one of its tables that shared jobs, the summary, is gone
        assert len(jobs) > len(set(jobs))
    return jobs


@pytest.mark.timeout(1800)
def test_every_artifact_at_smoke_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`+experiment=all scale=smoke` draws everything in seconds each, and lost runs are said."""
    root = Path(os.environ.get(DRAWN, tmp_path / "outputs"))
    announced = [] if DRAWN in os.environ else drawn_at_smoke_scale(root)
    known = choices("experiment")
    jobs = {paper: check_paper(paper, root) for paper in sorted({id.split("/")[0] for id in known})}
    timed = set(read(root / f"artifacts/{BESIDE}/table1")["provenance"]["jobs"].values())
    assert jobs_at_once(root, timed) == {1}
    if announced and plugged("joblib"):
        assert jobs_at_once(root, set(jobs[BESIDE]) - timed) == {2}
    # equal jobs of different artifacts ran once
    each = {key for keys in jobs.values() for key in keys}
    made = {p.name for p in root.glob("runs/*")}
    stored = {p.name for p in (KEPT / "runs").iterdir()}  # a job without scales is one of them
    assert each <= made | stored
    if announced:
        assert sum(announced) == len(made | (each & stored))

    def lost(self: JobFolder) -> pd.DataFrame:
        rows = whole(self).copy()
        of = "seed" if rows["seed"].nunique() > 1 else "run"
        rows.loc[rows[of] == rows[of].max(), "status"] = "diverged"
        return rows

    whole = JobFolder.final
    monkeypatch.setattr(JobFolder, "final", lost)
    monkeypatch.setattr(Artifact, "figure", lambda self, figure: plt.close(figure))
    lost_runs_are_said(root, known)


def test_lost_runs_are_counted_in_cells_claims_and_notes(mobench: Run, tmp_path: Path) -> None:
    command = ("+experiment=ferero/table2", "scale=smoke", "logger=local")
    if DRAWN in os.environ:
        drawn = Path(os.environ[DRAWN])
        for key in read(drawn / "artifacts/ferero/table2")["provenance"]["jobs"].values():
            shutil.copytree(drawn / "runs" / key, tmp_path / "outputs/runs" / key)
    first = mobench(*command)
    folder = first.root / "artifacts/ferero/table2"
    assert " of " not in (folder / "table.md").read_text()
    key = read(folder)["provenance"]["jobs"]["mm_ls"]
    path = first.root / "runs" / key / "final.csv"
    of_before(JobFolder(path.parent))
    path.write_text(path.read_text().replace(",done", ",diverged", 1))
    assert mobench(*command).code == 0
    table = pd.read_csv(folder / "table.csv", dtype=str)
    cells = table[table["hypervolume x 100, data set"].str.startswith("Multi-MNIST")]
    assert cells["LS"].str.endswith(" (2 of 3)").all()
    assert not table.drop(cells.index)["LS"].str.contains(" of ").any()
    assert not table["PMTL"].str.contains(" of ").any()
    made = read(folder)
    assert made["provenance"]["runs"]["mm_ls"] == "2 of 3"
    assert any("Runs that finished: mm_ls 2 of 3" in note for note in made["provenance"]["notes"])
    mentioning = {claim["id"] for claim in made["claims"] if "mm_ls: 2 of 3" in claim["reason"]}
    assert mentioning == {"mm-loss-larger", "mm-accuracy-larger"}  # those that rest on it


# the parts


def claim(
    a: Artifact, id: str, holds: Any, *, why: str = "", remark: str = "", interval: str = "", **text: Any
) -> None:
    """Judges a claim whose text is given here, not in a claims.yaml."""
    a.texts = Texts(a.id, {**a.texts.known, id: Text("s", "Fig", "1", **text)})
    check = Judged(holds, "2", "0.1", why, excluded="Excluded by its interval.")
    a.claim(id, check, remark=remark, interval=interval)


def own_check(a: Artifact, id: str, holds: Any, *, reason: str = "", **text: Any) -> None:
    """The same of a check of ours."""
    a.texts = Texts(a.id, {**a.texts.known, id: Text("s", **text)})
    a.check(id, Judged(holds, "2", "0.1"), reason=reason)


def rows(data: str | None = None, seeds: int = 10, complete: bool = True) -> Any:
    """A job as far as verdicts look at it."""
    config = {"seeds": list(range(seeds))}
    return SimpleNamespace(data=data, config=config, complete=complete, runs="1 of 2")


MNIST = Paper(data=["MNIST"], seeds=10, overrides="scale=paper data=mnist")


@pytest.mark.parametrize("holds", [True, False, "partial"])
@pytest.mark.parametrize(
    ("scale", "data", "why"),
    [
        ("laptop", "digits, enlarged", "measured on digits, enlarged"),
        ("paper", "digits, enlarged", "measured on digits, enlarged"),
        ("paper", "MNIST, 5 of 60 thousand", "measured on MNIST, 5 of 60 thousand"),
        ("laptop", "MNIST", "at laptop scale"),
        ("smoke", "MNIST", "a few steps"),
    ],
)
def test_other_data_or_a_smaller_scale_never_judge_a_paper(
    scale: str, data: str, why: str, holds: Any
) -> None:
    a = Artifact("x/y", "t", scale, {"job": rows(data)}, paper=MNIST)
    claim(a, "id", holds)
    assert a.claims[0].verdict == "inconclusive"
    assert why in a.claims[0].reason
    assert "mobench +experiment=x/y scale=paper data=mnist" in a.claims[0].reason


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [(True, "partial"), ("partial", "partial"), (False, "not reproduced"), (None, "inconclusive")],
)
@pytest.mark.parametrize(
    ("seeds", "paper", "changed", "said"),
    [
        (3, 10, [], "3 of the paper's 10 seeds: mean 2.0, 95 % interval [1.5, 2.5]."),
        (3, 10, ["seeds=[0,1,2]"], "3 of the paper's 10 seeds: mean 2.0, 95 % interval [1.5, 2.5]."),
        # as many as the paper's, or nothing is known of the paper's: they were chosen on the command line
        (10, 10, ["seeds=[3]"], "Run with other seeds than the artifact's ('seeds=[3]')."),
        (10, None, ["seeds=[3]"], "Run with other seeds than the artifact's ('seeds=[3]')."),
    ],
)
def test_fewer_seeds_than_the_paper_s_are_partial_at_best(
    seeds: int, paper: int | None, changed: list[str], said: str, holds: Any, verdict: str
) -> None:
    """Also where `seeds=` on the command line chose them; any other override decides nothing."""
    jobs = {"job": rows("MNIST", seeds)}
    a = Artifact("x/y", "t", "paper", jobs, paper=replace(MNIST, seeds=paper), changed=changed)
    interval = "mean 2.0, 95 % interval [1.5, 2.5]" if seeds == 3 else ""
    claim(a, "id", holds, why="Why.", remark="" if holds is None else "Why.", interval=interval)
    assert a.claims[0].verdict == verdict
    excluded = " Excluded by its interval." if holds is False else ""
    assert a.claims[0].reason == f"{said}{excluded} Why."
    a = Artifact("x/y", "t", "paper", jobs, paper=MNIST, changed=[*changed, "steps=5"])
    claim(a, "id", holds)
    assert a.claims[0].verdict == "inconclusive"
    assert "steps=5" in a.claims[0].reason


def test_seeds_by_job() -> None:
    """FERERO's figures are means of five seeds, its baselines are single runs."""
    paper = Paper(seeds={"ours": 5})
    a = Artifact("x/y", "t", "paper", {"ours": rows(seeds=5), "base": rows(seeds=1)}, paper=paper)
    claim(a, "all", True)
    b = Artifact("x/y", "t", "paper", {"ours": rows(seeds=4), "base": rows(seeds=1)}, paper=paper)
    claim(b, "all", True)
    claim(b, "base", True, rests_on=("base",))
    assert [c.verdict for c in (*a.claims, *b.claims)] == ["reproduced", "partial", "reproduced"]


def test_a_drawing_names_the_job_that_was_left_out(mobench: Run) -> None:
    result = mobench(*FIG7, "artifact.only=[scale_2]")
    result.refused("ferero/fig7 is not drawn: the drawing needs the job", "artifact.only left out", code=1)
    assert "Traceback" not in result.err
    assert "1 job, 0 already finished, 1 to run" in result.out


@pytest.mark.parametrize(
    ("scale", "holds", "verdict"),
    [
        ("paper", True, "partial"),
        ("paper", "partial", "partial"),
        ("paper", False, "not reproduced"),
        ("laptop", True, "inconclusive"),
    ],
)
def test_a_part_of_the_paper_s_data_is_partial_at_best(scale: str, holds: Any, verdict: str) -> None:
    some = "MNIST, 5 of 60 thousand"
    paper = replace(MNIST, parts=(some,))
    a = Artifact("x/y", "t", scale, {"job": rows(some)}, paper=paper)
    claim(a, "id", holds, why="Why.", remark="Why.")
    assert a.claims[0].verdict == verdict
    assert a.claims[0].reason.startswith(f"On a part of the paper's data ({some}). ")
    assert a.badge == f"Data (a part of the paper's): {some}. {scale.capitalize()} scale."
    whole = Artifact("x/y", "t", "paper", {"part": rows(some), "all": rows("MNIST")}, paper=paper)
    claim(whole, "id", True, rests_on=("all",))
    assert whole.claims[0].verdict == "reproduced"


def test_own_checks_are_counted_apart_and_reasons_are_asked_for() -> None:
    for data, scale in ((None, "laptop"), ("digits", "laptop"), ("digits", "paper")):
        a = Artifact("x/y", "t", scale, {"job": rows(data)}, paper=MNIST)
        for id, holds in (("yes", True), ("no", False), ("open", None)):
            own_check(a, id, holds)
        assert [c.verdict for c in a.claims] == ["check passed", "check failed", "inconclusive"]
        assert [c.reason for c in a.claims] == ["", UNKNOWN, UNKNOWN]
    with pytest.raises(ValueError, match="two claims with the id 'no'"):
        claim(a, "no", True)
    smoke = Artifact("x/y", "t", "smoke", {})
    own_check(smoke, "runs", False)
    own_check(smoke, "arithmetic", False, reason="Why.", any_scale=True)
    assert [c.verdict for c in smoke.claims] == ["inconclusive", "check failed"]
    claim(smoke, "of-the-paper", True)
    said = tally((c.verdict, c.source) for c in smoke.claims)
    assert said == "1 check undecided, 1 check failed, 1 inconclusive"


def test_an_own_check_does_not_pass_because_runs_were_lost() -> None:
    """Nor does it fail for it; one whose text counts lost runs is decided."""
    jobs: Any = {"job": rows(complete=False), "other": rows()}
    a = Artifact("x/y", "t", "laptop", jobs)
    own_check(a, "yes", True)
    own_check(a, "no", False, reason="Why.")
    own_check(a, "counted", True, counts_lost=True)
    own_check(a, "another", True, rests_on=("other",))
    verdicts = ["inconclusive", "inconclusive", "check passed", "check passed"]
    assert [c.verdict for c in a.claims] == verdicts
    assert a.claims[0].reason.startswith("Not all runs finished (job: 1 of 2 did)")
    apart = Artifact("x/y", "t", "laptop", jobs, changed=["seeds=[5]"], apart=True)
    own_check(apart, "yes", True)
    assert apart.claims[0].verdict == "undecided with other settings"


def test_an_artifact_is_not_planned_twice(mobench: Run) -> None:
    """Both were run, and only the last one drawn."""
    result = mobench("-m", "+experiment=ferero/fig7", "scale=laptop,smoke", "logger=local")
    result.refused("ferero/fig7 is asked for more than once", "one set of jobs")


def test_runs_too_short_to_be_drawn_are_said(mobench: Run) -> None:
    short = ("ferero/fig6", "mobl/theory")
    done = mobench(
        f"+experiment={','.join(short)}", "scale=smoke", "steps=1", "logger=local", "progress=false"
    )
    assert done.code != 0
    for id in short:
        assert re.search(
            rf"{id} is not drawn: .* needs at least 2 recorded points, .* have \d\.", done.err
        ), id
    assert "Traceback" not in done.err


def test_settings_that_a_drawing_does_not_expect_are_named(mobench: Run) -> None:
    one = ("artifact.only=[mm_ls]", "preferences.rays_deg=[45.0]")
    done = mobench("+experiment=ferero/fig5", "scale=smoke", *one, "logger=local")
    assert done.code == 1
    assert "ferero/fig5 is not drawn: IndexError" in done.err
    assert "preferences.rays_deg=[45.0]" in done.err
    assert "The rows of its jobs are complete" in done.err
    assert "Traceback" not in done.err


def test_tables() -> None:
    frame = pd.DataFrame({"a_b": ["x|y", "5 % & more"], "v": [0.123456, np.nan]})
    assert markdown(frame).splitlines()[0] == "| a_b | v |"
    assert "x\\|y" in markdown(frame)
    assert "a\\_b & v \\\\" in latex(frame)
    assert "5 \\% \\& more" in latex(frame)
    assert latex(pd.DataFrame({"a": ["[S]"], "b": ["x" * 50]})).splitlines()[0].count("p{") == 1
    assert "{[}S" in latex(pd.DataFrame({"a": ["[S]"]}))
    a = Artifact("x/y", "t", "laptop", {})
    a.table(frame)
    assert b"0.123456" in a.files["table.csv"]
    assert b"| x\\|y | 0.1235 |" in a.files["table.md"]
    assert "–".encode() in a.files["table.md"]


def test_cells_of_incomplete_rows_say_how_many_runs_they_rest_on() -> None:
    frame = pd.DataFrame(
        {
            "method": ["a", "b", "reference"],
            "V": [0.5, np.nan, 0.25],
            "rate": ["1.0 ± 0.1", "2.0 ± 0.1", "–"],
            "exact": [0.4, 0.4, 0.4],
            "runs": [RunCount(5, 5), RunCount(2, 3) + RunCount(2, 2), np.nan],
        }
    )
    a = Artifact("x/y", "t", "laptop", {})
    a.table(frame, given=("method", "exact"))
    assert a.files["table.md"].decode().splitlines()[2:] == [
        "| a | 0.5 | 1.0 ± 0.1 | 0.4 | 5 of 5 |",
        "| b | – (4 of 5) | 2.0 ± 0.1 (4 of 5) | 0.4 | 4 of 5 |",
        "| reference | 0.25 | – | 0.4 | – |",
    ]
    assert a.files["table.csv"].decode().splitlines()[2] == "b,,2.0 ± 0.1,0.4,4 of 5"
    assert "– (4 of 5)" in a.files["table.tex"].decode().replace("--", "–")
    with pytest.raises(ValueError, match=r"no columns \['exakt'\]"):
        a.table(frame, given=("exakt",))


def test_registry(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no experiments/nobody"):
        registered("nobody/fig1")
    with pytest.raises(ConfigError, match="Did you mean 'ferero/fig3'"):
        registered("ferero/fig33")
    registered("ferero/fig3")
    with pytest.raises(ValueError, match="twice"):
        artifact("ferero/fig3")(lambda a: None)
    assert artifact_folder("a/b", tmp_path) == tmp_path / "artifacts/a/b"
