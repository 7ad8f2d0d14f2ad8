"""Numbers for sweepers of other people: what a job returns to them."""

from __future__ import annotations

import math
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.sweeper import Sweeper
from omegaconf import OmegaConf

from mobench.config import compose
from mobench.jobs.build import make_job
from mobench.jobs.outcome import folder_of
from mobench.jobs.store import JobFolder
from mobench.metrics import hypervolume
from mobench.sweep import objective
from mobench.system.files import write_json
from tests.conftest import Run, of_before

QUICK = ("preferences=3", "seeds=[0,1]", "steps=3", "logger=local")


class Seeker(Sweeper):
    """Two trials of algorithm.step_size; keeps what came back."""

    returned: ClassVar[list[Any]] = []

    def __init__(self, direction: Any = None, **_: Any) -> None:
        self.direction = direction

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        trials = [[*arguments, f"++algorithm.step_size={size}"] for size in (0.1, 0.2)]
        for back in self.launcher.launch(trials, initial_job_idx=0):
            assert isinstance(back, JobReturn)
            self.returned.append(back.return_value)


@pytest.fixture
def seek(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`seek("problem=zdt1")` gives the command's Result and the values that the sweeper got."""
    module = types.ModuleType("hydra_plugins.of_the_tests")  # where Hydra allows plug-ins to lie
    monkeypatch.setattr(Seeker, "__module__", module.__name__)
    monkeypatch.setattr(module, "Seeker", Seeker, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    name = f"{module.__name__}.Seeker"
    Plugins.instance().class_name_to_class[name] = Seeker
    ConfigStore.instance().store(
        group="hydra/sweeper", name="seeker", node={"_target_": name, "direction": None}
    )

    def run(*arguments: str) -> tuple[Any, list[Any]]:
        Seeker.returned.clear()
        result = mobench("-m", "hydra/sweeper=seeker", *arguments)
        return result, list(Seeker.returned)

    yield run
    del Plugins.instance().class_name_to_class[name]
    ConfigStore.instance().repo["hydra"]["sweeper"].pop("seeker.yaml")


def by_step(folders: list[JobFolder]) -> list[JobFolder]:
    return sorted(folders, key=lambda folder: float(folder.config()["algorithm"]["step_size"]))


def test_hypervolume_is_the_default(seek: Any) -> None:
    result, values = seek("problem=vlmop2", "algorithm=epo", "hydra.sweeper.direction=maximize", *QUICK)
    assert result.code == 0, result.err
    volumes = [folder.meta()["hypervolume"]["last"] for folder in by_step(result.folders)]
    assert values == pytest.approx([(v["0"] + v["1"]) / 2 for v in volumes], rel=1e-14)
    assert min(values) > 0
    assert f"hypervolume {values[0]:.6g}" in result.out
    assert "algorithm.step_size=0.1" in result.out


def test_a_column(seek: Any) -> None:
    result, values = seek("problem=zdt1", "objective=f_2", "hydra.sweeper.direction=minimize", *QUICK)
    assert result.code == 0, result.err
    assert values == [float(folder.final()["f_2"].mean()) for folder in by_step(result.folders)]


@pytest.mark.parametrize(
    ("sweeper", "direction"),
    [
        ({"direction": "maximize"}, "maximize"),
        ({"optim": {"maximize": True}}, "maximize"),
        ({"optim": {"maximize": False}}, "minimize"),
        ({"ax_config": {"experiment": {"minimize": False}}}, "maximize"),
        ({"ax_config": {"experiment": {"minimize": True}}}, "minimize"),
        ({"optim": {"budget": 10}}, None),
        ({"optim": "name"}, None),
        ({}, None),
    ],
)
def test_sweepers_say_their_direction_in_three_ways(sweeper: dict[str, Any], direction: str | None) -> None:
    assert objective.direction_of(sweeper)[0] == direction
    assert objective.direction_of(OmegaConf.create(sweeper))[0] == direction


def test_a_hypervolume_of_a_sweeper_without_direction_says_which_way_is_better(seek: Any) -> None:
    result, _ = seek("problem=vlmop2", "algorithm=epo", *QUICK)
    assert "larger is better, and this sweeper does not say" in result.out


@pytest.mark.parametrize(
    ("direction", "worst"), [("minimize", math.inf), ("maximize", -math.inf), (None, math.nan)]
)
def test_runs_that_are_lost_are_not_left_out(
    seek: Any, plug_in: str, direction: str | None, worst: float
) -> None:
    directions = [] if direction is None else [f"hydra.sweeper.direction={direction}"]
    arguments = ["problem=hole", "algorithm=ls", "preferences=3", "logger=local", "steps=30", "objective=f_1"]
    result, values = seek(plug_in, *arguments, *directions)
    assert result.code == 0, result.err
    lost = [(folder.final()["status"] == "diverged").sum() for folder in by_step(result.folders)]
    assert all(0 < n < 3 for n in lost)  # some came back: their mean would look good
    assert all(value == worst or (math.isnan(value) and math.isnan(worst)) for value in values)
    assert f"({lost[0]} runs are lost)" in result.out


def test_a_seed_that_is_lost_counts_as_no_hypervolume(seek: Any) -> None:
    result, _ = seek("problem=vlmop2", "algorithm=epo", "hydra.sweeper.direction=maximize", *QUICK)
    folder = of_before(result.folders[0])  # whose rows may be edited
    whole, _ = objective.value(folder, "hypervolume")
    rows = folder.final()
    rows.loc[rows["seed"] == 1, "status"] = "diverged"
    folder.write_table("final.csv", rows)
    meta = folder.meta()
    del meta["hypervolume"]["last"]["1"]  # of lost runs there is none
    write_json(folder.path / "meta.json", meta)
    first = rows[rows["seed"] == 0]
    expected = hypervolume(first[["f_1", "f_2"]].to_numpy(), (1.1, 1.1)) / 2
    assert objective.value(folder, "hypervolume") == (pytest.approx(expected, rel=1e-14), 3)
    assert expected < whole


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hydra.sweeper.direction=minimize"], ["must be maximized", "hydra.sweeper.direction=maximize"]),
        (["+hydra.sweeper.optim.maximize=false"], ["must be maximized", "hydra.sweeper.optim.maximize=true"]),
        (
            ["+hydra.sweeper.ax_config.experiment.minimize=true"],
            ["must be maximized", "hydra.sweeper.ax_config.experiment.minimize=false"],
        ),
        (["preferences=1"], ["a single preference does not give a front", "objective=f_1"]),
        (["vary.step_size=[0.1,0.2]"], ["a job with vary"]),
        (["objective=[f_1,f_2]"], ["must be hypervolume or a column"]),
        (
            ["objective=f_3"],
            ["objective='f_3' is not a column", "hypervolume, preference_1", "Did you mean 'f_2' or 'f_1'?"],
        ),
        (["algorithm=ferero_stochastic"], ["2 independent samples"]),
        (["+experiment=ferero/fig3"], ["lists its own jobs"]),
    ],
)
def test_what_has_no_number_is_refused(seek: Any, arguments: list[str], words: list[str]) -> None:
    result, values = seek("problem=vlmop2", *QUICK, *arguments)
    result.refused(*words)
    assert values == []


@pytest.mark.parametrize(
    ("objective", "direction", "worst"),
    [("f_1", "minimize", math.inf), ("f_1", "maximize", -math.inf), ("hypervolume", "maximize", 0.0)],
)
def test_a_job_that_fails_has_the_worst_value(
    seek: Any, plug_in: str, objective: str, direction: str, worst: float
) -> None:
    """Hydra's sweepers, Optuna's too, end with an error; the other trials are still worth their time."""
    sweep = [f"objective={objective}", f"hydra.sweeper.direction={direction}"]
    result, values = seek(plug_in, "algorithm=broken", *sweep, *QUICK)
    assert result.code == 0, result.err
    assert values == [worst, worst]
    assert result.out.count("failed: KeyError: 'lost'") == 2
    assert "rows and status" in result.out


def test_optuna(mobench: Run, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="needs hydra-optuna-sweeper")
    settings = ["hydra.sweeper.n_trials=3", "hydra.sweeper.direction=maximize", f"hydra.sweep.dir={tmp_path}"]
    result = mobench(
        "-m", "hydra/sweeper=optuna", "algorithm.step_size=interval(0.01,0.5)", *settings, *QUICK
    )
    assert result.code == 0, result.err
    best = max(objective.value(folder, "hypervolume")[0] for folder in result.folders)
    assert f"Best value: {best}" in result.out


def test_a_trial_that_another_worker_runs_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    config = compose.compose(["problem=zdt1", "objective=f_1", *QUICK])
    folder = folder_of(make_job(config))
    begun = threading.Event()
    end = threading.Event()

    def hold() -> None:
        with folder.locked():
            begun.set()
            end.wait(20)

    worker = threading.Thread(target=hold)
    worker.start()
    assert begun.wait(20)
    timer = threading.Timer(0.5, end.set)
    timer.start()
    began = time.monotonic()
    number, _ = objective.of_job(config, {"_target_": "x"}, [])
    worker.join()
    assert time.monotonic() - began > 0.4
    assert number == float(folder.final()["f_1"].mean())
