"""The cost of a job beside its steps: one composition for each choice of groups, torch only if used."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from mobench.config import compose, hydra_adapter, schema
from mobench.config.overrides import normalise
from mobench.errors import ConfigError
from mobench.jobs.store import JobFolder
from mobench.sweep import composer
from tests.conftest import Run, command, environment, process

JOB = ["problem=vlmop2", "algorithm=ls", "steps=1", "preferences=2", "logger=local", "progress=false"]


@pytest.fixture
def compositions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The choices that Hydra composes from files, from now on."""
    combinations: list[list[str]] = []
    original = ConfigLoaderImpl.load_configuration

    def load(self: Any, name: str, overrides: list[str], *rest: Any, **more: Any) -> DictConfig:
        combinations.append(overrides)
        return original(self, name, overrides, *rest, **more)

    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", load)
    monkeypatch.setattr(hydra_adapter, "_COMPOSED", {})
    return combinations


def test_equal_choices_are_composed_once(compositions: list[list[str]]) -> None:
    first = compose.compose(["problem=zdt1", "algorithm=epo", "steps=7"])
    second = compose.compose(["problem=zdt1", "algorithm=epo", "seeds=[3]", "algorithm.step_size=0.5"])
    assert (first["steps"], first["seeds"]) == (7, [0])
    assert (second["steps"], second["seeds"], second["algorithm"]["step_size"]) == (1000, [3], 0.5)
    assert len(compositions) == 1
    compose.compose(["problem=zdt1", "algorithm=epo", "scale=smoke"])
    assert len(compositions) == 2


@pytest.mark.parametrize("place", ["file://{}/mine/conf", "pkg://mine.conf"])
def test_files_that_change_are_read_again(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same process; the second file is as long as the first."""
    file = tmp_path / "mine/conf/problem/ours.yaml"
    file.parent.mkdir(parents=True)
    for package in ("mine", "mine/conf"):
        (tmp_path / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for n in (3, 4):
        file.write_text(f"defaults: [zdt1]\nn: {n}\n")
        os.utime(file, (n, n))
        line = [f"hydra.searchpath=[{place.format(tmp_path)}]", "problem=ours", "algorithm=ls"]
        assert compose.compose(line)["problem"]["n"] == n


def test_a_sweep_composes_equal_choices_once(mobench: Run, compositions: list[list[str]]) -> None:
    result = mobench("-m", "algorithm=ls", "algorithm.step_size=0.1,0.2,0.3", "steps=1", "logger=local")
    assert len(result.folders) == 3
    assert [line for line in compositions if "algorithm=ls" in line] == compositions
    assert len(compositions) == 2  # the command, and one job


def of_hydra(overrides: list[str]) -> dict[str, Any]:
    """The plain configuration as Hydra alone composes it."""
    source = ConfigLoaderImpl(create_config_search_path(str(schema.conf_dir())))
    config = source.load_configuration("config", overrides, RunMode.RUN)
    with open_dict(config):
        del config["hydra"]
    return schema.plain(config)


def shown_config(load: Any, overrides: list[str]) -> str:
    """The values of a command in their order; or its message."""
    try:
        return repr(load(overrides))
    except OverrideParseException as error:  # Hydra 1.4 also says which of several overrides it is
        return f"{type(error)}: {error.override}"
    except (ConfigError, HydraException, OmegaConfBaseException, ValueError) as error:
        return f"{type(error)}: {error} {error.__cause__}"


KINDS = r"""
steps=7  steps=many  steps=null  steps=${problem.n}  steps=1.5  stepz=1  steps=1,2  steps=[  steps=${at:1,2,3}
seeds=[1,2]  seeds=3  +steps=3  +new=1  ++new.deep=1  ~steps  ~steps=200  ~steps=3  ~problem  ~nothing
problem.n=5  ++problem.new=1  problem.start=[1,2]  ++problem.start={null: 1}  ~problem.start  algorithm={a: 1}
algorithm.step_size=1e-3  ++algorithm.step_size='0.1'  ++algorithm.step_size="a=b"  ++algorithm.new={}
algorithm='ls'  ++algorithm={a: {b: [c]}}  +algorithm=ls  algorithm=null  ++problem@x.n=3  problem@a:b=vlmop2
preferences.weights=[[.3,.7]]  preferences={count: 3}  preferences=null  vary={a: 1}  ++vary.a=[1,2]
logger.tags=['a', b]  logger.tags=[null]  data_root=${oc.env:HOME}  data_root='${steps}'  data_root=é
dtype=''  dtype=' x'  dtype=\'a\'  dtype=a\,b  dtype=str(1)  dtype=???  dtype=''a  rerun=True
hydra.mode=RUN  hydra.job.chdir=true  hydra/launcher=basic  protocol=ferero_fig3  scale.name=paper
hardware.threads=null  record={every: 2}  record.every=x  objective=[f_1,f_2]  jobs={a: [algorithm=ls]}
"""


@pytest.mark.parametrize("kind", re.split(r"  |\n", KINDS.strip()))
def test_every_kind_of_override_does_what_it_does_in_hydra(kind: str) -> None:
    """The files are composed already, without the override and with another value in its place."""
    with compose.ALONE, hydra_adapter.apart():
        loader = hydra_adapter.loader(str(schema.conf_dir()))
        choices = ["problem=vlmop2", "algorithm=mgda"]

        def load(overrides: list[str]) -> dict[str, Any]:
            return loader.job(overrides)[0]

        load([*choices, "steps=99", "++vary.step_size=[1]", "++problem.start.kind=x", "logger.tags=[z]"])
        expected = shown_config(of_hydra, [*choices, kind, "seeds=[5]"])
        assert shown_config(load, [*choices, kind, "seeds=[5]"]) == expected
        assert shown_config(load, [*choices, kind, "seeds=[5]"]) == expected


@pytest.mark.parametrize("experiment", ["ferero/table11", "mlm_cmoo/table1", "csmoo/fig3"])
def test_jobs_of_an_experiment_are_what_hydra_composes(experiment: str) -> None:
    """An experiment that only lists jobs is laid over what the rest composes."""
    with compose.ALONE, hydra_adapter.apart():
        loader = hydra_adapter.loader(str(schema.conf_dir()))
        sweep = composer.Composer(loader, loader.load_configuration("config", [], RunMode.MULTIRUN))
        command = [f"+experiment={experiment}", "scale=smoke"]
        config = sweep.compose(command)
        name, job = next(iter(sweep.jobs(config).items()))
        overrides = [*normalise(job), *command, f"artifact.job={name}"]
        listed = {key: config[key] for key in ("jobs", "grid", "like")}  # as the experiment lists them
        assert sweep.compose(overrides) == {**of_hydra(overrides), **listed}


def test_an_edited_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(schema.conf_dir(), conf)
    monkeypatch.setattr(schema, "conf_dir", lambda: conf)
    assert compose.compose(["problem=vlmop2"])["steps"] == 200
    file = conf / "problem" / "vlmop2.yaml"
    file.write_text(file.read_text().replace("steps: 200", "steps: 777"))
    assert compose.compose(["problem=vlmop2"])["steps"] == 777
    (conf / "tuned" / "none").mkdir()
    (conf / "tuned" / "none" / "mgda.yaml").write_text("# @package _global_\nsteps: 55\n")
    assert compose.compose(["problem=vlmop2"])["steps"] == 55  # a file that was optional, and is there now
    file.write_text("steps: [")
    with pytest.raises(ConfigError, match=r'vlmop2\.yaml", line'):
        compose.compose(["problem=vlmop2"])


def test_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("/one", "/other"):
        monkeypatch.setenv("MOBENCH_DATA", folder)
        assert compose.compose(["problem=vlmop2"])["data_root"] == folder


def test_what_a_job_changes_in_its_configuration_stays_with_it() -> None:
    first = compose.compose(["problem=vlmop2"])
    first["problem"]["start"]["kind"] = "changed"
    first["seeds"].append(7)
    second = compose.compose(["problem=vlmop2"])
    assert second["problem"]["start"]["kind"] != "changed"
    assert second["seeds"] == [0]


def test_a_configuration_is_written_as_pyyaml_writes_it(tmp_path: Path) -> None:
    config = compose.compose(normalise([*JOB, "protocol=csmoo_pls", "algorithm=csmoo2"][3:]))
    JobFolder(tmp_path).write_config(config)
    assert (tmp_path / "config.yaml").read_text() == yaml.safe_dump(config, sort_keys=False)
    assert JobFolder(tmp_path).config() == config


@pytest.mark.parametrize("arguments", [["status"], ["--help"]])
def test_what_shows_needs_neither_torch_nor_pandas(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        f"import json, sys\nsys.argv = ['mobench', *{arguments!r}]\nfrom mobench.cli.entry import main\n"
        "try:\n    main()\nfinally:\n    print(json.dumps(sorted(sys.modules)))\n"
    )
    done = process([command()[0], "-c", code], env=environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert {"torch", "pandas"} & set(json.loads(done.stdout.splitlines()[-1])) == set()
