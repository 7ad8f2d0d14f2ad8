"""A job's identity: what its folder is named by, and what it is not."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

import mobench
from mobench.config.schema import completed
from mobench.core.algorithm import Algorithm
from mobench.core.oracle import Oracle
from mobench.core.problem import Problem
from mobench.jobs.build import make_job
from mobench.jobs.job import identity, registered_name
from mobench.jobs.run import folder_of
from mobench.jobs.store import config_hash
from mobench.jobs.targets import Part, parameters, read
from mobench.system.paths import results_root
from tests.test_runner import composed

OWN = """
from mobench.algorithms.ls import LS
from mobench.core.algorithm import Info


class Halved(LS):
    def weights(self, F, G, state, t):
        return 0.5 * state["w"], state, Info()
"""


def test_identity_is_free_of_import_paths(tmp_path: Path) -> None:
    job = make_job(composed("problem=hyper_cleaning", "algorithm=wc_mhgd", "protocol=mobl_hyper_cleaning"))
    assert "mobench." not in json.dumps(identity(job))
    assert identity(job)["problem"]["class"] == "HyperCleaning"


def test_a_field_that_came_later_leaves_kept_jobs_alone() -> None:
    """At the value that earlier jobs had it is no part of the identity; at another one it is."""
    base = ("protocol=multi_mnist", "algorithm=ls", "scale=smoke")
    usual, moved = (
        identity(make_job(composed(*base, f"problem.shifts={shifts}"))) for shifts in ("[0,0]", "[3,4]")
    )
    assert identity(make_job(composed(*base)))["problem"] == {**usual["problem"], "shifts": "diagonal"}
    assert "shifts" not in usual["problem"]
    assert moved["problem"] == {**usual["problem"], "shifts": [3, 4]}


def test_options_of_the_public_script_leave_kept_jobs_alone() -> None:
    """Options of the method, the oracle and the problem, each at the value that kept jobs had."""
    base = ("protocol=multi_mnist", "algorithm=ferero_public_code", "scale=smoke")
    former = ["algorithm.line_start=1.0", "algorithm.doubled=false"]
    former_identity = identity(make_job(composed(*base, *former)))
    assert not {"line_start", "doubled", "optimizer"} & set(former_identity["algorithm"])
    assert set(former_identity["oracle"]) == {"batch_size", "samples", "class"}
    assert not {"test_batch", "least_accuracy"} & set(former_identity["problem"])
    script = identity(make_job(composed(*base, "oracle.cut=full", "problem.test_batch=256")))
    assert (script["algorithm"]["line_start"], script["algorithm"]["doubled"]) == (0.0, True)
    assert script["oracle"]["cut"] == "full"
    assert script["problem"]["test_batch"] == 256


def test_names_of_parts_are_unique() -> None:
    """Two parts of one name and one version would share folders."""
    classes = defaultdict(set)
    for module in pkgutil.walk_packages(mobench.__path__, "mobench."):
        of_an_extra = module.name.startswith("mobench.flower") and importlib.util.find_spec("flwr") is None
        if not module.name.endswith("__main__") and not of_an_extra:
            importlib.import_module(module.name)
    waiting: list[type] = [Problem, Algorithm, Oracle]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls.__module__.startswith("mobench."):
            classes[registered_name(cls)].add(cls)
    assert len(classes) > 60
    assert {name: users for name, users in classes.items() if len(users) > 1} == {}


def test_a_users_file_can_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []
    for module in ("parts_here", "parts_there"):
        (tmp_path / f"{module}.py").write_text(OWN)
        config = composed("problem=vlmop2", "algorithm=ls", "seeds=[0]", "steps=3", "logger=local")
        config["algorithm"] = {**config["algorithm"], "_target_": f"{module}.Halved"}
        names.append(folder_of(make_job(config), tmp_path).key)
        sys.modules.pop(module)
    assert names[0] == names[1]


def test_kept_rows_are_named_by_their_identity() -> None:
    folders = sorted((results_root() / "runs").iterdir())
    assert len(folders) > 50
    for folder in folders:
        stored = json.loads((folder / "meta.json").read_text())["identity"]
        assert config_hash(stored) == folder.name.rsplit("-", 1)[1], folder.name


def test_kept_jobs_can_run_again() -> None:
    """Each field that a kept configuration names exists, or is known to be gone."""
    for folder in (results_root() / "runs").iterdir():
        config = completed(yaml.load((folder / "config.yaml").read_bytes(), yaml.CSafeLoader))
        for part in Part("config", "", read(config, "config")).parts()[1:]:
            unknown = part.arguments.keys() - set(parameters(part.cls))
            assert not unknown, f"{folder.name}: {part.where} has no {unknown} any more"
