"""Experiment files of a user: jobs, sweeps and lists, by --config-dir and hydra.searchpath."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

import mobench as api
from mobench.errors import ConfigError
from tests.conftest import REPOSITORY, Run

FILES = {
    "one": """
        defaults:
          - override /problem: zdt2
          - override /algorithm: epo
        steps: 4
        seeds: [0, 1]
        algorithm: {step_size: 0.05}
        """,
    "group/swept": """
        defaults:
          - override /problem: zdt2
        steps: 3
        preferences: {count: 2}
        hydra:
          mode: MULTIRUN
          sweeper:
            params:
              algorithm: ls,mgda
              algorithm.step_size: 0.1,0.2
              algorithm.outputs: "[last]"
        """,
    "group/listed": """
        hydra: {mode: MULTIRUN}
        steps: 3
        jobs:
          plain: [algorithm=ls, preferences=2]
          exact: [algorithm=epo, preferences=2, algorithm.step_size=0.05]
        """,
    "forgot": "jobs: {a: [algorithm=ls]}",
    "named": """
        hydra: {mode: MULTIRUN}
        artifact: {id: mine/figure}
        jobs: {a: [algorithm=ls]}
        """,
}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A folder of configuration with experiments in it."""
    folder = tmp_path / "mine" / "conf"
    for name, text in FILES.items():
        path = folder / "experiment" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "# @package _global_\n"
            + "\n".join(line.removeprefix(" " * 8) for line in text.strip("\n").splitlines())
        )
    return folder


@pytest.mark.parametrize("way", ["flag", "flag=", "url", "package"])
def test_one_job(mobench: Run, conf: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.syspath_prepend(str(conf.parent.parent))
    (conf.parent / "__init__.py").write_text("")
    (conf / "__init__.py").write_text("")
    arguments = {
        "flag": ["--config-dir", str(conf)],
        "flag=": [f"--config-dir={conf}"],
        "url": [f"hydra.searchpath=[file://{conf}]"],
        "package": ["hydra.searchpath=[pkg://mine.conf]"],
    }[way]
    result = mobench("+experiment=one", *arguments, "preferences=2", "logger=local")
    for name in ("mine", "mine.conf"):
        sys.modules.pop(name, None)
    assert result.code == 0, result.err
    config = result.job.config()
    assert result.job.key.startswith("zdt2-epo-")
    assert (config["steps"], config["seeds"], config["algorithm"]["step_size"]) == (4, [0, 1], 0.05)


def test_a_sweep_in_the_file(mobench: Run, conf: Path) -> None:
    result = mobench("+experiment=group/swept", "--config-dir", str(conf), "logger=local")
    assert result.code == 0, result.err
    jobs = {(f.key.split("-")[1], f.config()["algorithm"]["step_size"]) for f in result.folders}
    assert jobs == {("ls", 0.1), ("ls", 0.2), ("mgda", 0.1), ("mgda", 0.2)}
    # a value on the command line takes the place of the file's
    root = result.root.parent / "narrowed"
    said = ["algorithm=epo", "algorithm.step_size=0.3", "steps=2"]
    result = mobench("+experiment=group/swept", *said, "--config-dir", str(conf), "logger=local", root=root)
    assert result.code == 0, result.err
    assert result.job.key.startswith("zdt2-epo-")
    assert (result.job.config()["algorithm"]["step_size"], result.job.config()["steps"]) == (0.3, 2)


def test_jobs_in_the_file(mobench: Run, conf: Path) -> None:
    result = mobench("+experiment=group/listed", "seeds=[0,1]", "--config-dir", str(conf), "logger=local")
    assert result.code == 0, result.err
    assert result.out.startswith("2 jobs, 0 already finished, 2 to run")
    configs = {f.key.split("-")[1]: f.config() for f in result.folders}
    assert sorted(configs) == ["epo", "ls"]
    assert {(c["steps"], tuple(c["seeds"])) for c in configs.values()} == {(3, (0, 1))}
    assert configs["epo"]["algorithm"]["step_size"] == 0.05
    assert not (result.root / "artifacts").exists()
    fixed = mobench("+experiment=group/listed", "algorithm=mgda", "--config-dir", str(conf))
    fixed.refused("The experiment fixes algorithm=ls for its job 'plain'")
    # several at once, the user's own group by its name
    both = mobench(
        "+experiment=group/all", "--config-dir", str(conf), "logger=local", root=result.root / "all"
    )
    assert both.code == 0, both.err
    assert len(both.folders) == 6


def test_jobs_without_a_sweep_are_not_passed_over(mobench: Run, conf: Path) -> None:
    mobench("+experiment=forgot", "--config-dir", str(conf)).refused(
        "lists several jobs", "hydra: {mode: MULTIRUN}"
    )
    result = mobench("-m", "+experiment=forgot", "steps=2", "--config-dir", str(conf), "logger=local")
    assert (result.code, len(result.folders)) == (0, 1)


def test_an_artifact_of_ones_own_is_refused_before_it_runs(mobench: Run, conf: Path) -> None:
    result = mobench("+experiment=named", "--config-dir", str(conf))
    result.refused("sets artifact.id=mine/figure", "Omit `artifact`")
    assert result.folders == []


def test_unknown_names(mobench: Run, conf: Path) -> None:
    result = mobench("+experiment=won", "--config-dir", str(conf))
    result.refused("experiment='won' is unknown", "cross/profiles", "group/swept", "Did you mean 'one'?")
    mobench("+experiment=one").refused("experiment='one' is unknown", "--config-dir CONF")


def test_from_python(conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    folder = f"hydra.searchpath=['{conf}']"
    rows = api.run(folder, "+experiment=one", "logger=local", preferences=2)
    pair = api.run(
        problem="zdt2", algorithm="epo", steps=4, seeds=[0, 1], preferences=2, **{"algorithm.step_size": 0.05}
    )
    assert rows.equals(pair)
    with pytest.raises(ConfigError, match="This is a sweep"):
        api.run(folder, "+experiment=group/swept")
    with pytest.raises(ConfigError, match="lists several jobs"):
        api.run(folder, "+experiment=forgot")
    with pytest.raises(ConfigError, match="Did you mean 'one'"):
        api.run(folder, "+experiment=oen")
    with pytest.raises(ConfigError, match="call run once for each"):
        api.run(folder, "+experiment=one,forgot")


def test_the_files_of_the_documentation(
    mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "running.md").read_text()
    for name, text in re.findall(
        r"`(mine/conf/experiment/\w+\.yaml)`:\n\n```yaml\n(.*?)```", page, re.DOTALL
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    lines = [line.replace("$PWD", str(tmp_path)) for line in page.splitlines() if "+experiment=steep" in line]
    lines += [
        line.replace("$PWD", str(tmp_path)) for line in page.splitlines() if "+experiment=compared" in line
    ]
    methods = []
    for line in (line for line in lines if line.startswith("mobench ")):
        words = [word for word in shlex.split(line)[1:] if not word.startswith("hydra/launcher")]
        result = mobench(*words, "steps=2", "logger=local", root=tmp_path / f"outputs{len(methods)}")
        assert result.code == 0, result.err
        methods.append({folder.key.split("-")[1] for folder in result.folders})
    assert methods == [{"epo"}, {"epo", "ls"}]


def test_the_help_knows_them(mobench: Run, conf: Path) -> None:
    assert "experiment/group: listed, swept" in mobench("--config-dir", str(conf), "--help").out
