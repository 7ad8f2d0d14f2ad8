"""`mobench.run(..., measures=...)`: columns of a user's own for problems that have a name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import mobench
from mobench.errors import ConfigError
from mobench.jobs.build import make_job

QUICK: dict[str, Any] = {"problem": "vlmop2", "algorithm": "omd_tch", "preferences": 2, "steps": 6}
QUICK |= {"seeds": [0, 1], "logger": "local", "progress": False}
SHIFT = 1.0


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))


def norm(x: Tensor) -> Tensor:
    return (x - SHIFT).norm()


def name_of(rows: pd.DataFrame) -> str:
    return mobench.load(rows).path.name


def test_columns_of_rows_and_history() -> None:
    """Rows of both output rules agree with the solutions, and nothing else changes."""
    options = QUICK | {"algorithm.outputs": ["last", "mean"], "record.evaluate": True}
    rows = mobench.run(**options, measures={"norm": norm, "first": lambda x: x[0]})
    job = mobench.load(rows)
    for rule, x in job.solutions.items():
        recorded = rows[rows["output"] == rule]
        assert recorded["norm"].to_numpy() == pytest.approx(np.linalg.norm(x - SHIFT, axis=1), rel=1e-14)
        assert recorded["first"].tolist() == x[:, 0].tolist()
        last = job.history[(job.history["output"] == rule) & (job.history["step"] == 6)]
        assert last["norm"].tolist() == recorded["norm"].tolist()
    start = job.history.query("step == 0 and output == 'last'")
    assert start["norm"].nunique() == 2  # one start for each seed
    assert "return (x - SHIFT).norm()" in job.meta["measures"][0]
    plain = mobench.run(**options)
    assert name_of(plain) != name_of(rows)
    same = rows.drop(columns=["norm", "first", "seconds"])
    pd.testing.assert_frame_equal(same, plain.drop(columns="seconds"), check_exact=True)
    assert "code" not in mobench.load(plain).meta["identity"]["record"]


def test_what_a_measure_computes_makes_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    first = name_of(mobench.run(**QUICK, measures={"norm": norm}))
    assert name_of(mobench.run(**QUICK, measures={"norm": norm})) == first
    others = [{"norm": lambda x: x.norm()}, {"length": norm}]
    names = [name_of(mobench.run(**QUICK, measures=each)) for each in others]
    monkeypatch.setitem(norm.__globals__, "SHIFT", 2.0)
    names.append(name_of(mobench.run(**QUICK, measures={"norm": norm})))
    assert len({first, *names}) == 4
    assert name_of(mobench.run(**QUICK, measures={})) == name_of(mobench.run(**QUICK))


def test_parts_networks_and_populations_have_them_too() -> None:
    whole = mobench.run(**QUICK, measures={"norm": norm})
    split = mobench.run(**QUICK, measures={"norm": norm}, rerun=True, **{"hardware.split": 2})
    assert split["norm"].tolist() == whole["norm"].tolist()
    problem = mobench.objectives(lambda x: torch.stack([(x - 1).square().sum(), x.square().sum()]), dim=2)
    both = mobench.run(**QUICK | {"problem": problem, "algorithm": ["ls", "mgda"]}, measures={"norm": norm})
    assert both["norm"].notna().all()
    zdt = QUICK | {"problem": "zdt1", "algorithm": "hv_gradient"}
    assert mobench.run(**zdt, measures={"norm": norm})["norm"].notna().all()


def test_all_faults_are_in_one_message() -> None:
    faults = {
        "vector": lambda x: x,
        "f_2": norm,
        "direction_square": norm,
        "tchebycheff": norm,
        "plain": lambda x: 3.0,
        "item": lambda x: torch.tensor(x.sum().item()),
        "good": norm,
    }
    with pytest.raises(ConfigError) as caught:
        mobench.run(**QUICK | {"algorithm": "mgda"}, measures=faults)
    text = str(caught.value)
    assert r"'vector': it returns the shape (20,); expected a tensor ()" in text
    for name in ("f_2", "direction_square", "tchebycheff"):
        assert f"{name!r}: the rows have a column of this name" in text
    assert "'plain': it fails" in text
    assert "'item': it fails at the start: RuntimeError: vmap" in text
    assert "good" not in text
    assert mobench.runs().empty
    with pytest.raises(ConfigError, match="must be a function of x"):
        mobench.run(**QUICK, measures={"norm": 3})
    with pytest.raises(ConfigError, match="must be a mapping"):
        mobench.run(**QUICK, measures=[norm])


def test_another_process_is_told_where_the_functions_are() -> None:
    config = mobench.load(mobench.run(**QUICK, measures={"norm": norm})).config
    with pytest.raises(ConfigError, match=r"record.code=.*mobench.run\(measures="):
        make_job(config)


@pytest.mark.parametrize(
    "name", ["f_1", "f_norm", "preference_x", "validation_1", "run", "output", "", "a\nb", 3]
)
def test_measures_of_own_functions_take_no_column_of_the_rows(name: Any) -> None:
    """They once took its place in silence: f_1, and with it the hypervolume, were the measure's."""
    fault = rf"measures cannot be used:\n  - {re.escape(repr(name))}: "
    with pytest.raises(ConfigError, match=fault):
        mobench.objectives(lambda x: x**2, dim=2, measures={name: norm})
    data = (torch.ones(4, 2), torch.ones(4, 1))
    with pytest.raises(ConfigError, match=fault):
        mobench.networks(torch.nn.Linear(2, 1), lambda out, _: out.mean(), data, measures={name: norm})
    with pytest.raises(ConfigError, match=fault):
        mobench.run(**QUICK, measures={name: norm})


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "x" * 61, 3])
def test_names_of_own_problems_are_no_paths(name: Any) -> None:
    with pytest.raises(ConfigError, match="folders of jobs begin with it"):
        mobench.objectives(lambda x: x**2, dim=2, name=name)
