"""What a job and a sweep cost beside the steps: configurations without Hydra, finished jobs without torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.errors import HydraException

from mobench.config import compose, direct, hydra_adapter, hydra_plugin
from mobench.config.overrides import normalise
from mobench.config.schema import choices, conf_dir
from mobench.jobs import names
from mobench.jobs.store import JobFolder
from mobench.sweep.composer import Composer
from mobench.sweep.planner import Planner, Use, _Command
from mobench.system import sources
from tests.conftest import REPOSITORY, Run, environment

SCALES = ("smoke", "laptop", "paper")
JOB = ["problem=vlmop2", "algorithm=ls", "steps=1", "preferences=2", "logger=local", "progress=false"]


# configurations


def commands_of(planner: Planner, experiment: str, scale: str) -> list[list[str]]:
    """Overrides of an experiment's jobs at a scale."""
    overrides = [f"+experiment={experiment}", f"scale={scale}"]
    command = _Command(overrides, planner.composer.compose(overrides), listed=True, alone=True)
    return list(planner._named(command).values())


VALUES = ["ls", "'ls'", '"ls"', "\\'ls\\'", "' ls'", "''", "null", "NULL", "True", "1", "1.0", "1_000", "1e3"]
VALUES += ["0x10", ".5", "+1", "1.", "nan", "-inf", "[]", "[1,2]", "['a', b]", "{}", "{a: 1}", "{null: 1}"]
VALUES += [
    "{1: 2}",
    "{a: {b: [c]}}",
    "[[.3,.7]]",
    "a b",
    "a/b",
    "${steps}",
    "'${steps}'",
    '"a\\"b"',
    "é",
    "a:b",
]
VALUES += ["a\\,b", "[null]", "str(1)", "int(1.0)", "1 ", "???", "''a"]
KEYS = [
    "algorithm",
    "+algorithm",
    "++algorithm",
    "problem",
    "scale",
    "problem.n",
    "++problem.n",
    "steps",
    "seeds",
]
KEYS += [
    "algorithm.step_size",
    "preferences",
    "preferences.weights",
    "problem.start",
    "++problem.start",
    "vary",
]
KEYS += ["logger.tags", "dtype", "++vary.step_size", "data_root", "hardware.threads", "++new.deep", "~steps"]


@pytest.mark.parametrize("turn", range(2))
def test_every_form_of_a_value_means_what_it_means_to_hydra(turn: int) -> None:
    """A seventh of all pairs; the direct way reads some and leaves the others to Hydra."""
    with compose.ALONE, hydra_adapter.apart(hydra_plugin.register):
        loader = hydra_adapter.loader(str(conf_dir()))
        composer = Composer(loader, hydra_adapter.load(loader, [], hydra_adapter.RunMode.MULTIRUN))
        pairs = [f"{key}={value}" for key in KEYS for value in VALUES][turn::14]
        pairs += ["algorithm='ls'", "problem.start=[1,2]", "vary={a: 1}", "++problem.start={null: 1}"]
        read = 0
        for pair in pairs:
            overrides = ["problem=vlmop2", "algorithm=mgda", pair]
            found = direct.composed(overrides)
            if found is not None:
                read += 1
                assert repr(found) == repr(composer.by_hydra(overrides)), pair
    assert read > 5


@pytest.mark.parametrize("word", ["algorithm='ls'", 'algorithm="ls"', "problem='zdt1'"])
def test_a_choice_in_quotes_is_that_choice(mobench: Run, word: str) -> None:
    plain = re.sub("['\"]", "", word)
    quick = ["preferences=1", "steps=1", "logger=local"]
    assert mobench(word, *quick).job.key == mobench(plain, *quick).job.key


@pytest.mark.parametrize("turn", range(4))
def test_jobs_of_every_experiment_are_what_hydra_composes(turn: int) -> None:
    with compose.ALONE, hydra_adapter.apart(hydra_plugin.register):
        loader = hydra_adapter.loader(str(conf_dir()))
        config = hydra_adapter.load(loader, [], hydra_adapter.RunMode.MULTIRUN)
        composer = Composer(loader, config)
        planner = Planner(composer, Use.SHOWN)
        by_hydra = 0
        compared = 0
        for number, experiment in list(enumerate(choices("experiment")))[turn::4]:
            jobs = commands_of(planner, experiment, SCALES[number % 3])
            for overrides in jobs[number % 5 :: max(5, len(jobs))]:
                plain = [o for o in overrides if not o.startswith(("+experiment=", "artifact.job="))]
                found = composer._direct and composer._direct.composed(plain)
                compared += 1
                if found is None:
                    by_hydra += 1
                    continue
                # in the same order, of the same types
                assert repr(found) == repr(composer.by_hydra(plain)), (experiment, plain)
    assert compared > 10
    assert by_hydra == 0  # else the short cut has gone without a word


@pytest.mark.parametrize("scale", SCALES)
def test_experiments_with_keys_of_their_own(scale: str) -> None:
    with compose.ALONE, hydra_adapter.apart(hydra_plugin.register):
        loader = hydra_adapter.loader(str(conf_dir()))
        composer = Composer(loader, hydra_adapter.load(loader, [], hydra_adapter.RunMode.MULTIRUN))
        for experiment in ("ferero/table11", "mlm_cmoo/table1"):
            overrides = [f"+experiment={experiment}", f"scale={scale}"]
            found = direct.Direct(conf_dir()).composed(overrides)
            assert repr(found) == repr(composer.by_hydra(overrides))


@pytest.mark.parametrize(
    "value",
    [
        *("1", "-1", "0", "-0", "01", "1.5", "-0.25", "1e-3", "1.", ".5", "1_000", "nan", "inf", "-inf"),
        *("true", "False", "null", "Null", "ls", "a/b", "a-b", "a.b", "x1", "'quoted'", '"a=b"'),
        *("[1,2.0,a]", "{a:1}", "${steps}", "1a", "ls_2"),
    ],
)
def test_values_are_read_as_hydra_reads_them(value: str) -> None:
    override = f"++algorithm.key={value}"
    expected = hydra_adapter.parsed_value(override).value()
    added, key, found = direct.value_of(override)
    assert (added, key) == (True, "algorithm.key")
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    "override",
    [
        *("steps=many", "nothing=1", "algorithm=nothing", "steps=1,2", "~steps", "+steps=3", "seeds=3"),
        *("problem=null", "hydra.mode=RUN", "hardware=slurm", "steps=???", "record.every=1.5"),
    ],
)
def test_errors_and_all_else_are_left_to_hydra(override: str) -> None:
    assert direct.Direct(conf_dir()).composed([override]) is None


@pytest.mark.parametrize(
    "text", ["a: 1e-3", "a: 012", "a: yes", "a: 2020-01-01", "a: [1, .5, ~]", "b: {c: 'x'}", "a: 1_000", ""]
)
def test_files_are_read_as_omegaconf_reads_them(text: str, tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    (tmp_path / "a.yaml").write_text(text)
    expected = OmegaConf.to_container(OmegaConf.load(tmp_path / "a.yaml"))
    assert repr(hydra_adapter.yaml_of(text) or {}) == repr(expected)


def test_a_key_that_stands_twice_is_an_error() -> None:
    with pytest.raises(yaml.YAMLError, match="duplicate key"):
        hydra_adapter.yaml_of("a: 1\na: 2")


def test_an_edited_file_counts(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(conf_dir(), conf)
    before = direct.Direct(conf).composed(["problem=vlmop2"])
    file = conf / "problem" / "vlmop2.yaml"
    file.write_text(file.read_text().replace("steps: 200", "steps: 77"))
    after = direct.Direct(conf).composed(["problem=vlmop2"])
    assert before is not None
    assert after is not None
    assert (before["steps"], after["steps"]) == (200, 77)
    file.write_text("steps: [")
    assert direct.Direct(conf).composed(["problem=vlmop2"]) is None
    assert direct.Direct(conf).composed(["problem=zdt1"]) is not None
    top = conf / "config.yaml"
    top.write_text(top.read_text().replace("hydra:\n", "hydra:\n  searchpath: [pkg://mine]\n"))
    assert direct.Direct(conf).composed(["problem=zdt1"]) is None  # more folders, which Hydra looks into


def test_a_configuration_is_written_as_pyyaml_writes_it(tmp_path: Path) -> None:
    config = compose.compose(normalise([*JOB, "protocol=csmoo_pls", "algorithm=csmoo2"][3:]))
    JobFolder(tmp_path).write_config(config)
    assert (tmp_path / "config.yaml").read_text() == yaml.safe_dump(config, sort_keys=False)
    assert JobFolder(tmp_path).config() == config


# finished jobs


def loaded(arguments: list[str], outputs: Path, call: str = "entry.run") -> dict[str, Any]:
    """Runs a command in a process of its own; which of the large libraries it has imported."""
    code = (
        "import json, sys\nfrom mobench.cli import entry, status\n"
        f"sys.argv = ['mobench', *{arguments!r}]\n"
        "try:\n    entry.main() if CALL == 'entry' else status.main()\n"
        "except SystemExit as end:\n    code = end.code or 0\n"
        "print('FOUND', json.dumps({'code': code, 'torch': 'torch' in sys.modules, "
        "'pandas': 'pandas' in sys.modules}))\n"
    ).replace("CALL", repr(call))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(outputs),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND")] or [done.stderr]
    return {**json.loads(line.removeprefix("FOUND")), "out": done.stdout, "err": done.stderr}


def test_what_is_done_is_found_without_torch(tmp_path: Path) -> None:
    first = loaded(JOB, tmp_path, "entry")
    assert (first["code"], first["torch"]) == (0, True)
    again = loaded(JOB, tmp_path, "entry")
    assert (again["code"], again["torch"]) == (0, False)
    assert "already finished" in again["out"]
    # the same table, but for the line that says so
    assert again["out"].splitlines()[1:-1] == first["out"].splitlines()[:-1]
    status = loaded([], tmp_path, "status")
    assert (status["code"], status["torch"], status["pandas"]) == (0, False, False)
    named = loaded(JOB[:5], tmp_path, "status")
    assert (named["code"], named["torch"]) == (0, False)
    assert "1 done of 1" in named["out"]

    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "final.csv").unlink()
    damaged = loaded(JOB, tmp_path, "entry")
    assert (damaged["code"], damaged["torch"]) == (0, True)
    assert "The job will be rerun" in damaged["err"]

    (file,) = (tmp_path / "cache").glob("names-*.json")
    file.write_text("{")
    unreadable = loaded(JOB, tmp_path, "entry")
    assert (unreadable["code"], unreadable["torch"]) == (0, True)
    assert unreadable["err"].count("it is made again") == 1
    assert loaded(JOB, tmp_path, "entry")["torch"] is False


def test_names_are_those_of_the_code_and_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    monkeypatch.delitem(sys.modules, "mobench.jobs.job", raising=False)
    config = compose.compose(JOB)
    names.remember([(config, "vlmop2-ls-0123456789")])
    found = names.known(config)
    assert found is not None
    assert found.key == "vlmop2-ls-0123456789"
    assert names.known({**config, "rerun": True, "progress": True}) is not None
    assert names.known({**config, "steps": 2}) is None
    other = {**config, "algorithm": {"_target_": "my_parts.Mine"}}
    names.remember([(other, "vlmop2-mine-0123456789")])
    assert names.known(other) is None
    with monkeypatch.context() as edited:
        edited.setattr(sources, "_seen", lambda: ("another hash of the files", 0.0))
        assert names.known(config) is None
        # edited since the process began: the process' names may be those of the code before
        names.remember([(config, "vlmop2-ls-9876543210")])
        assert names.known(config) is None


@pytest.mark.parametrize("change", ["swapped", "one", "old form", "digest", "list", "number"])
def test_names_that_somebody_else_has_written_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    monkeypatch.delitem(sys.modules, "mobench.jobs.job", raising=False)
    config = compose.compose(JOB)
    other = {**config, "steps": 2}
    names.remember([(config, "vlmop2-ls-0123456789"), (other, "vlmop2-epo-0123456789")])
    (file,) = (tmp_path / "cache").glob("names-*.json")
    stored = json.loads(file.read_text())
    mine, theirs = stored["names"]
    known = stored["names"]
    changed = {
        "swapped": {**stored, "names": {mine: known[theirs], theirs: known[mine]}},
        "one": {**stored, "names": {mine: known[theirs], theirs: known[theirs]}},
        "old form": {mine: known[theirs]},
        "digest": {**stored, "sha256": None},
        "list": [known],
        "number": 3,
    }
    file.write_text(json.dumps(changed[change]))
    names._stored.cache_clear()
    assert names.known(config) is None
    assert "it is made again" in capsys.readouterr().err
    names.remember([(config, "vlmop2-ls-0123456789")])
    found = names.known(config)
    assert found is not None
    assert found.key == "vlmop2-ls-0123456789"


def test_a_full_disk_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    (tmp_path / "cache").write_text("a file where a folder is needed")
    names.remember([(compose.compose(JOB), "vlmop2-ls-0123456789")])


def test_an_edit_changes_the_hash_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = sources.digest([tmp_path / "a.py"], tmp_path)
    (tmp_path / "a.py").write_text("x = 2\n")
    assert sources.digest([tmp_path / "a.py"], tmp_path) != before


def test_hydra_still_says_what_is_wrong() -> None:
    with pytest.raises(HydraException):
        hydra_adapter.parsed_value("steps=[")
