"""`vary`: hyper-parameters of a method as an axis of the batch.

Each run is that of its own job; rows say which it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobench.core import Runs
from mobench.core.preferences import spread
from mobench.errors import ConfigError, MobenchError
from mobench.jobs import job as configuration
from mobench.jobs.build import make_job
from mobench.jobs.job import identity
from mobench.jobs.run import folder_of, run_job
from mobench.jobs.store import JobFolder, config_hash
from tests.conftest import Run
from tests.test_federated import changed, composed

BASE = ("protocol=federated", "scale=smoke", "logger=local")
SMALL = {"dtype": "float64", "steps": 3, "seeds": [25, 0], "problem.hidden": 8, "problem.clients": 4}
SMALL |= {"problem.partition": "partial", "problem.classes_per_client": 2, "problem.train_size": 200}
SMALL |= {"oracle.batch_size": 4}


# --- each run is its own job --------------------------------------------------------------------------------

# fields one by one, on small problems: tests/contract/test_algorithm.py


def test_variants_of_runs() -> None:
    runs = Runs.product(spread(3, 2), [7, 5], 2)
    assert runs.variant.tolist() == [0] * 6 + [1] * 6
    assert runs.index.tolist() == [0, 0, 1, 1, 2, 2] * 2
    assert runs.seeds.tolist() == [7, 5] * 6
    some = runs.take([9, 2])
    assert (some.variant.tolist(), some.index.tolist(), some.seeds.tolist()) == ([1, 0], [1, 1], [5, 7])
    assert runs.to("cpu").variant.tolist() == runs.variant.tolist()
    plain_runs = Runs.product(spread(3, 2), [7, 5])
    assert plain_runs.variant is None
    assert plain_runs.take([1]).variant is None
    assert plain_runs.to("cpu").variant is None
    assert torch.equal(runs.weights[6:], plain_runs.weights)


# --- rows ---------------------------------------------------------------------------------------------------


def test_rows_say_which_values_they_have(tmp_path: Path) -> None:
    """Variants first, the last key of `vary` fastest; then preferences, then seeds."""
    config = changed(
        composed(*BASE, "algorithm=fedfv"),
        {**SMALL, "preferences": {"count": 2}, "vary": {"external_from": [2, 0], "alpha": [0.5, 0.1]}},
    )
    done = run_job(config, tmp_path)
    assert done.status == "done", done.error
    folder = JobFolder(done.folder)
    rows = folder.final()
    U = make_job(config).runs.all.tolist()
    expected = [
        (external, alpha, preference[0], seed)
        for external in (2.0, 0.0) for alpha in (0.5, 0.1) for preference in U for seed in (25, 0)
    ]  # fmt: skip
    values = rows[["external_from", "alpha", "preference_1", "seed"]].to_numpy()
    np.testing.assert_allclose(values, expected, rtol=1e-15)
    assert rows["run"].tolist() == list(range(16))
    assert (rows["status"] == "done").all()
    assert len(folder.history()) == 16 * 4
    one = changed(config, {"vary": {}, "algorithm.alpha": 0.1, "algorithm.external_from": 2, "seeds": [0]})
    alone = JobFolder(run_job(one, tmp_path).folder).final()
    assert "alpha" not in alone
    shared = [c for c in alone if c not in ("run", "seconds", "status", "output", "kkt_residual_max")]
    same = rows[(rows["external_from"] == 2) & (rows["alpha"] == 0.1) & (rows["seed"] == 0)]
    np.testing.assert_allclose(
        same[shared].to_numpy(float), alone[shared].to_numpy(float), rtol=1e-9, atol=1e-9
    )


def test_the_order_of_keys_decides_which_run_is_which(tmp_path: Path) -> None:
    """Jobs that number their runs differently share no folder, where one would resume the other."""
    config = changed(composed(*BASE, "algorithm=fedfv"), SMALL)
    one = {"alpha": [0.1, 0.5], "external_from": [0, 1]}
    jobs = [make_job({**config, "vary": vary}) for vary in (one, dict(reversed(one.items())))]
    same = torch.equal(jobs[0].varied["alpha"], jobs[1].varied["alpha"])
    assert same or folder_of(jobs[0], tmp_path).path != folder_of(jobs[1], tmp_path).path


# --- identity -----------------------------------------------------------------------------------------------


def test_jobs_that_vary_nothing_keep_their_identity(tmp_path: Path) -> None:
    config = composed(
        "problem=vlmop2", "algorithm=stch", "preferences=2", "seeds=[0]", "steps=10", "logger=local"
    )
    assert config["vary"] == {}
    job = make_job(config)
    parts = identity(job)
    assert "vary" not in parts
    assert job.varied == {}
    assert job.runs.variant is None
    assert set(parts) == {*configuration.HASHED, "device", "versions"}  # a key that is added shows
    varied = make_job({**config, "vary": {"mu": [0.01]}})
    assert {k: v for k, v in identity(varied).items() if k != "vary"} == parts
    assert identity(varied)["vary"]
    assert folder_of(varied, tmp_path).path != folder_of(job, tmp_path).path
    whole, real = (identity(make_job({**config, "vary": {"mu": mu}})) for mu in ([2, 1], [2.0, 1.0]))
    assert config_hash(whole) == config_hash(real)


def test_other_values_are_other_jobs(tmp_path: Path) -> None:
    config = changed(composed(*BASE, "algorithm=qffl"), SMALL)
    varies = [{}, {"q": [0.1]}, {"q": [0.1, 1.0]}, {"q": [1.0, 0.1]}, {"step_size": [0.1]}]
    names = {folder_of(make_job({**config, "vary": vary}), tmp_path).path.name for vary in varies}
    assert len(names) == len(varies)


# --- bad input ----------------------------------------------------------------------------------------------

BAD: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "no list": ("qffl", {"q": 0.1}, ["vary.q=0.1 must be a list of values", "vary.q=[0.1,1.0]"]),
    "empty": ("qffl", {"q": []}, ["vary.q=[] must be a list of values"]),
    "text": (
        "propfair", {"below": ["linear", "huber"]},
        ["vary.below=['linear', 'huber'] must contain only numbers", "(-m)"],
    ),
    "switches": ("qffl", {"q": [True, False]}, ["vary.q=[True, False] must contain only numbers"]),
    "twice the same number": ("qffl", {"q": [1, 1.0]}, ["vary.q=[1, 1.0] contains a value twice"]),
    "cannot vary": (
        "qffl",
        {"step_decay": [0.1, 0.5]},
        [
            "vary.step_decay: QFFL does not support different values",
            "Fields that can vary: q, step_size",
            "-m algorithm.step_decay=",
        ],
    ),
    "nothing can vary": (
        "cosmos", {"step_size": [0.1]}, ["vary.step_size: COSMOS does not", "Fields that can vary: none"],
    ),
    "invalid value": ("qffl", {"q": [0.1, -1.0]}, ["algorithm.q=-1.0 must be a number >= 0"]),
    "invalid together": (
        "propfair", {"baseline": [5.0, 2.0], "threshold": [0.2, 3.0]},
        ["algorithm.baseline=2.0 and algorithm.threshold=3.0", "0 < threshold < baseline"],
    ),
    "misspelt": ("fedmgda_plus", {"epsilonn": [0.1, 0.2]}, ["epsilonn", "epsilon, step_size"]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BAD))
def test_bad_values_are_one_message(name: str, tmp_path: Path) -> None:
    algorithm, vary, words = BAD[name]
    base = BASE if algorithm != "cosmos" else ("problem=vlmop2", "logger=local")
    config = {**composed(*base, f"algorithm={algorithm}"), "vary": vary}
    with pytest.raises(ConfigError) as error:
        run_job(config, tmp_path)
    for word in words:
        assert word in str(error.value)
    assert "Traceback" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_value_of_the_method_that_is_varied_is_not_checked_against_the_others() -> None:
    """Only the combinations are: the value in the file is in none of the runs."""
    config = changed(composed(*BASE, "algorithm=propfair"), {"algorithm.baseline": 0.1})
    make_job({**config, "vary": {"baseline": [2.0, 5.0]}})
    with pytest.raises(MobenchError, match="0 < threshold < baseline"):
        make_job(config)


# --- the command line ---------------------------------------------------------------------------------------


def test_a_varied_job_of_the_command(mobench: Run) -> None:
    command = (*BASE, "algorithm=qffl", "vary.q=[0.1,1.0]", "steps=2", "problem.hidden=8", "seeds=[0,25]")
    result = mobench(*command)
    assert result.code == 0, result.err
    assert result.rows["q"].tolist() == [0.1, 0.1, 1.0, 1.0]
    assert result.rows["seed"].tolist() == [0, 25, 0, 25]
    table = [line.split() for line in result.out.splitlines() if line.endswith("2 of 2")]
    assert [line[line.index("last") - 1] for line in table] == ["0.1", "1"]  # a line each, no mean over them
    again = mobench(*command)
    assert again.code == 0
    assert len(again.folders) == 1  # nothing is run twice


def test_no_hypervolume_over_hyper_parameters(tmp_path: Path) -> None:
    config = composed("problem=vlmop2", "algorithm=stch", "preferences=3", "steps=3", "logger=local")
    for vary in ({}, {"mu": [0.1, 0.01]}):
        folder = JobFolder(run_job({**config, "vary": vary}, tmp_path).folder)
        assert (folder.meta()["hypervolume"] is None) == bool(vary)
