"""docs/plugins.md, as a person would follow it: its files are written, its commands and its program run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from mobench.errors import ConfigError
from mobench.jobs.store import JobFolder
from tests.conftest import REPOSITORY, Run, environment, process

PAGE = REPOSITORY / "docs" / "plugins.md"
MODULE = "my_parts"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files."""
    folder = tmp_path_factory.mktemp("plugins")
    for name, text in re.findall(r"`(mine/[\w./]+)`[^`]*\n\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert len(list(folder.rglob("*.*"))) == 7
    return folder


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_commands(place: Path) -> None:
    commands = blocks("bash")[0]
    _, sweep = [line for line in commands.splitlines() if line.startswith("mobench ")]
    # what the shell would find on the PATH; a sweep imports nothing that the single job does not
    script = commands.replace(sweep, "").replace("mine/code", f"mine/code:{REPOSITORY}")
    script = f'set -e\nmobench() {{ "{sys.executable}" -m mobench "$@"; }}\n{script}'
    done = process(["bash", "-c", script], cwd=place, env=environment(place / "outputs"))
    assert done.returncode == 0, done.stderr
    (folder,) = [JobFolder(p) for p in (place / "outputs" / "runs").iterdir()]
    assert folder.key.startswith("ellipsoids-balanced-")
    rows = folder.final()
    assert len(rows) == 3
    assert rows["f_1"].is_monotonic_decreasing  # more weight, less loss


def test_sweep_and_program(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mobench: Any
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(place / "mine" / "code")])
    monkeypatch.chdir(place)
    commands = blocks("bash")[0]
    sweep = commands.splitlines()[-1].replace("$PWD", str(place)).replace('"', "").split()
    result = mobench(*sweep[1:], "preferences=2")
    assert result.code == 0, result.err
    assert {f.key.rsplit("-", 1)[0] for f in result.folders} == {
        f"{problem}-{algorithm}" for problem in ("ellipsoids", "vlmop2") for algorithm in ("balanced", "mgda")
    }
    mobench(sweep[2], "problem=elipsoids").refused("problem='elipsoids'", "Did you mean 'ellipsoids'?")
    mobench(sweep[2], "problem=ellipsoids", "problem.conditoin=3").refused("Did you mean 'condition'?")
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "python"))
    scope: dict[str, Any] = {}
    exec(
        compile(
            next(b for b in blocks("python") if "mobench.run(" in b).replace("steps=50", "steps=10"),
            str(PAGE),
            "exec",
        ),
        scope,
    )
    rows = scope["rows"]
    assert sorted(set(rows["algorithm"])) == ["balanced", "epo"]
    assert (rows["status"] == "done").all()
    with pytest.raises(ConfigError, match="Did you mean 'ellipsoids'"):
        scope["mobench"].run(scope["folder"], problem="elipsoids")
    # the folder was for the other calls only
    with pytest.raises(ConfigError, match="problem='ellipsoids' is unknown"):
        scope["mobench"].run(problem="ellipsoids")
    sys.modules.pop(MODULE, None)


def test_the_methods_equation(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of the page's method from x = 0: both gradients are equally long, so w is the preference."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(place / "mine" / "code")])
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(place / "equation"))
    from mobench import load, run

    rows = run(
        f"hydra.searchpath=[file://{place}/mine/conf]",
        problem="ellipsoids",
        algorithm="balanced",
        steps=1,
        logger="local",
        **{
            "preferences.weights": [[0.3, 0.7]],
            "problem.start": {"kind": "constant", "value": 0.0, "low": None, "high": None},
        },
    )
    a = 10.0 ** np.linspace(0, 1, 5)
    np.testing.assert_allclose(
        load(rows).solutions["last"][0], 0.02 * 2 * (0.3 * a - 0.7 * a[::-1]), rtol=1e-12
    )
    sys.modules.pop(MODULE, None)


def test_a_problem_with_a_data_set(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mobench: Any
) -> None:
    """Two files: its command trains it, its values are those of NumPy, and its data are recorded."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(place / "mine" / "code")])
    command = blocks("bash")[1]
    arguments = command.replace("$PWD", str(place)).replace('"', "").split()[1:]
    result = mobench(*arguments, "steps=20", "preferences=2", "seeds=[0,1]")
    assert result.code == 0, result.err
    meta = result.job.meta()
    assert (meta["data"], meta["embedded"], len(meta["data_sha256"])) == ("diabetes", True, 64)
    x, y = load_diabetes(return_X_y=True)
    x = x * 442**0.5
    y = (y - y.mean()) / y.std()
    theta = result.job.solutions()["last"]
    square = (x @ theta[:, :-1].T + theta[:, -1] - y[:, None]) ** 2
    for name, part in (("f", slice(300)), ("test", slice(300, None))):
        second = x[part, 1] > 0
        for g, members in enumerate((~second, second)):
            expected = square[part][members].mean(0)
            np.testing.assert_allclose(result.rows[f"{name}_{g + 1}"], expected, rtol=1e-12)
    sys.modules.pop("patients", None)


def test_the_method_with_constraints(place: Path, monkeypatch: pytest.MonkeyPatch, mobench: Run) -> None:
    """Its command runs; where a constraint is violated, its gradient is followed."""
    monkeypatch.syspath_prepend(str(place / "mine" / "code"))
    search = f"hydra.searchpath=['file://{place}/mine/conf']"
    words = ["problem=ball_and_half_space", "algorithm=careful", "preferences=2", "steps=50", "logger=local"]
    result = mobench(search, *words)
    assert result.code == 0, result.err
    refused = mobench(search, "problem=vlmop2", *words[1:])
    refused.refused("it needs at least one constraint", "Methods that fit a problem without constraints: ")
