"""JSON and YAML of another form than expected: one sentence with file and key, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import mobench as api
from mobench.artifacts import claims as claim_texts
from mobench.artifacts import drawing, freshness
from mobench.cli import messages, status
from mobench.errors import ConfigError, MobenchError, StoreError
from mobench.jobs.build import make_job
from mobench.jobs.store import JobFolder
from mobench.report.reading import artifacts
from mobench.sweep import grid
from mobench.sweep.plan import Planned
from tests.conftest import Run

DEEP = "[" * 200_000
FORMS: dict[str, Any] = {
    "null": None,
    "number": 3,
    "truth": True,
    "text": "algorithm=ls",
    "list of nulls": [None],
    "list of numbers": [3],
    "list of lists": [["algorithm=ls"]],
    "list of mappings": [{"algorithm": "ls"}],
    "mapping": {"a": "algorithm=ls"},
    "mapping with a number": {1: ["algorithm=ls"]},
    "mapping of nulls": {"a": None},
    "empty list": [],
    "empty mapping": {},
}
FINE = ["algorithm=ls"]


def captured(read: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """The value that a function returns, or None and the message of its error."""
    try:
        return read(*arguments), ""
    except MobenchError as error:
        return None, str(error)


def listed(node: dict[str, Any]) -> grid.Jobs:
    return grid.expanded(node, lambda name: {"a": list(FINE)})


def axes(**more: Any) -> dict[str, Any]:
    return {"grid": {"axes": {"method": {"ls": list(FINE)}}} | more}


PLACES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "jobs": ("jobs", lambda node: listed({"jobs": node})),
    "a job": ("jobs.a", lambda node: listed({"jobs": {"a": node}})),
    "grid": ("grid", lambda node: listed({"grid": node})),
    "grid.axes": ("grid", lambda node: listed({"grid": {"axes": node}})),
    "an axis": ("grid.axes.method", lambda node: listed({"grid": {"axes": {"method": node}}})),
    "an entry": ("grid.axes.method.ls", lambda node: listed({"grid": {"axes": {"method": {"ls": node}}}})),
    "grid.all": ("grid.all", lambda node: listed(axes(all=node))),
    "grid.settings": ("grid.settings", lambda node: listed(axes(settings=node))),
    "a setting": ("grid.settings.ls", lambda node: listed(axes(settings={"ls": node}))),
    "grid.without": ("grid.without", lambda node: listed(axes(without=node))),
    "like": ("like", lambda node: listed({"like": node})),
    "like.only": ("like.only", lambda node: listed({"like": {"experiment": "x/y", "only": node}})),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_nodes_of_experiments(place: str, form: str) -> None:
    """Jobs of texts, or a ConfigError that names the key."""
    key, read = PLACES[place]
    result, words = captured(read, FORMS[form])
    assert result is not None or key in words
    assert all(
        isinstance(override, str) and "=" in override for job in (result or {}).values() for override in job
    )


def test_what_was_silent_is_told() -> None:
    with pytest.raises(ConfigError, match=r"grid.all=\{'algorithm': 'ls'\} must be a list of texts"):
        listed(axes(all={"algorithm": "ls"}))
    with pytest.raises(ConfigError, match=r"jobs.a contains \+experiment=ferero/fig3"):
        listed({"jobs": {"a": ["+experiment=ferero/fig3"]}})


def test_an_experiment_of_another_form_ends_with_exit_code_2(mobench: Run, tmp_path: Path) -> None:
    path = tmp_path / "conf" / "experiment" / "odd.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("# @package _global_\nhydra: {mode: MULTIRUN}\njobs: {a: [3]}\n")
    mobench("--config-dir", str(tmp_path / "conf"), "+experiment=odd").refused("jobs.a=[3] must be a list")


# files of jobs and artifacts

CONTENT = {
    "nested": DEEP,
    "null": "null",
    "a number": "3",
    "a list": "[1, 2]",
    "a list of mappings": "[{}]",
    "a mapping": "{}",
    "no identity": '{"identity": null}',
    "a list in place of a mapping": '{"identity": {}, "hypervolume": [1], "versions": [], "device": 3}',
    "cut": '{"identity": ',
    "bytes": "\ud800",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[JobFolder]]:
    """Two finished jobs."""
    root = tmp_path_factory.mktemp("outputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBENCH_OUTPUTS", str(root))
        for name in ("ls", "mgda"):
            api.run(problem="vlmop2", algorithm=name, preferences=2, steps=2, logger="local")
        yield [JobFolder(path) for path in sorted((root / "runs").iterdir())]


@pytest.fixture
def spoilt(finished: list[JobFolder]) -> Iterator[Callable[[str, str], JobFolder]]:
    """`spoilt(name, text)` writes a file of the first job anew, and its digest, as an older folder has it."""
    folder = finished[0]
    before = {path: path.read_bytes() for path in folder.path.iterdir()}

    def write(name: str, text: str) -> JobFolder:
        status = json.loads((folder.path / "status.json").read_text())
        status.pop("sha256", None)
        (folder.path / "status.json").write_text(json.dumps(status))
        (folder.path / name).write_bytes(text.encode(errors="surrogatepass"))
        return folder

    yield write
    for path, data in before.items():
        path.write_bytes(data)


@pytest.mark.parametrize("content", CONTENT)
@pytest.mark.parametrize("name", ["status.json", "meta.json", "config.yaml", "final.csv"])
def test_files_of_a_job(
    name: str, content: str, finished: list[JobFolder], spoilt: Callable[[str, str], JobFolder]
) -> None:
    folder = spoilt(name, CONTENT[content])
    assert folder.status()["status"] in ("failed", "done")
    for read in (folder.meta, folder.config, folder.final, lambda: messages.summary(folder)):
        result, words = captured(read)
        assert result is not None or str(folder.path) in words
    # nobody else pays
    assert finished[1].done
    assert len(api.runs()) >= 1


@pytest.mark.parametrize("columns", ["run,seed,f_1,f_2", "a", "run,output,status"])
def test_rows_without_a_column(columns: str, spoilt: Callable[[str, str], JobFolder]) -> None:
    lines = "\n".join([columns] + 2 * [columns.replace("run", "0").replace("seed", "0")])
    with pytest.raises(StoreError, match=r"final.csv is damaged"):
        spoilt("final.csv", f"{lines}\n").final()


CLAIM = dict.fromkeys(freshness.CLAIM, "x")
CLAIMS = {**CONTENT, "a claim of numbers": json.dumps([CLAIM | {"verdict": 3}]), "fine": json.dumps([CLAIM])}


@pytest.mark.parametrize("content", CLAIMS)
@pytest.mark.parametrize("name", ["claims.json", "provenance.json"])
def test_files_of_an_artifact(name: str, content: str, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / "ferero" / "fig7"
    folder.mkdir(parents=True)
    (folder / "claims.json").write_text(json.dumps([CLAIM]))
    (folder / "provenance.json").write_text('{"jobs": {}, "inputs": {}}')
    (folder / name).write_bytes(CLAIMS[content].encode(errors="surrogatepass"))
    if (name, content) == ("claims.json", "fine"):
        assert drawing.read(folder)["claims"] == [CLAIM]
    else:
        with pytest.raises(StoreError, match=name):
            drawing.read(folder)
    assert freshness.unchanged("ferero/fig7", ["+experiment=ferero/fig7"], tmp_path) is None
    artifacts(tmp_path)


@pytest.mark.parametrize("text", ["[1]", "3", "fig3: 3", "fig3: {a: [x]}", "fig3: {a: 3}", "{3: {}}", DEEP])
def test_texts_of_claims(text: str, tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"claims\.yaml"):
        claim_texts._file(path)


# what a configuration that comes from a folder may build


@pytest.mark.parametrize("group", ["problem", "algorithm", "oracle"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("target", ["logging.FileHandler", "mobench.system.signals.Signals", "os.getcwd"])
def test_only_parts_of_a_job_are_built(
    group: str,
    nested: bool,
    target: str,
    finished: list[JobFolder],
    spoilt: Callable[[str, str], JobFolder],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A failed job is run again; a file that the class would make is not there."""
    mark = tmp_path / "mark"
    config = finished[0].config()
    node = {"_target_": target, "filename": str(mark)}
    config[group] = {**config[group], "part": node} if nested else node
    folder = spoilt("config.yaml", yaml.safe_dump(config))
    folder.write_status("failed", error="of this test")
    assert status.rerun([status.look(folder, "a job")], {}) != 0
    assert "a job could not be rerun" in capsys.readouterr().err
    assert not mark.exists()


def test_a_group_is_not_built_by_another_class(finished: list[JobFolder], tmp_path: Path) -> None:
    config = finished[1].config()
    for group, target in (("problem", "mobench.algorithms.ls.LS"), ("oracle", "logging.FileHandler")):
        wrong = {**config, group: {"_target_": target, "filename": str(tmp_path / "mark")}}
        with pytest.raises(ConfigError, match=rf"{group}\._target_ is \w+, which is not a mobench"):
            make_job(wrong)
    assert not (tmp_path / "mark").exists()


def test_a_sweep_looks_again_at_jobs_of_another_process(finished: list[JobFolder]) -> None:
    from mobench.jobs.outcome import failed
    from mobench.sweep.launch import _looked_again

    folder = finished[1]
    refused = failed(folder, "Another process is running this job", "title")
    assert (_looked_again(refused).status, _looked_again(refused).skipped) == ("done", True)
    assert _looked_again(failed(JobFolder(folder.path.with_name("none")), "no", "")).status == "failed"
    assert Planned([], {"rerun": False, "logger": {"finished": False}}, folder).needed is False
