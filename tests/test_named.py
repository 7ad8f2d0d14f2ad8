"""A problem of one's own that a command names by a function: `problem=file.py:make`."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import mobench as api
from mobench.config.compose import compose
from mobench.errors import ConfigError
from mobench.jobs.build import make_job
from tests.conftest import Run, environment
from tests.test_runner import BASE, first_pass, killed, same_rows

FILE = """
    import mobench, sys, torch
    from shift import SHIFT

    def f(x):
        return torch.stack([(x - SHIFT).square().sum(), (x + SHIFT).square().sum()])

    def make():
        return mobench.objectives(f, dim=2, positive=True)

    def network(**keys):
        x = torch.linspace(-1, 1, 8).unsqueeze(1)
        losses = [lambda out, batch: (out - 1).square().mean(), lambda out, batch: out.square().mean()]
        return mobench.networks(lambda: torch.nn.Linear(1, 1), losses, (x,), batch_size=4, **keys)

    def adam():
        return network(optimizer=lambda p: torch.optim.Adam(p, lr=0.1))

    def wide(width):
        pass

    def fails():
        return 1 / 0

    def nothing():
        pass

    log = sys.stderr

    def opaque():
        return mobench.objectives(lambda x: (log.flush, x.square())[1], dim=2)

    if __name__ == "__main__":
        mobench.run(problem=make(), algorithm="ls", preferences=2, steps=3, logger="local")
    """
QUICK = ("algorithm=ls", "preferences=2", "steps=3", "logger=local")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with `mine.py` and the neighbour that it imports."""
    folder = tmp_path / "it's mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("shift", "mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("mine.py").write_text(textwrap.dedent(FILE))
    Path("shift.py").write_text("SHIFT = 1.0\n")
    return folder


def test_the_job_is_the_one_of_the_program(mobench: Run, here: Path, tmp_path: Path) -> None:
    """By a file and by a module the command reads the rows that the file made as a program."""
    root = tmp_path / "outputs"
    env = environment(root, PYTHONPATH=os.pathsep.join(sys.path))
    subprocess.run([sys.executable, "mine.py"], env=env, check=True)
    (before,) = root.glob("runs/*")
    quoted = str(here / "mine.py:make").replace("'", "\\'")
    for choice in ("mine.py:make", f"'{quoted}'", "mine:make"):
        result = mobench(f"problem={choice}", *QUICK, root=root)
        assert result.code == 0, result.err
        assert "already finished" in result.out
        assert result.job.path == before


def test_settings_of_a_network_are_those_of_run(
    mobench: Run, here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Batches of an epoch and float32 without a word; what the command says stays."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    result = mobench("problem=mine.py:network", *QUICK)
    assert result.code == 0, result.err
    config = result.job.config()
    assert config["dtype"] == "float32"
    assert config["oracle"]["batch_size"] == 4
    rows = api.run(problem="mine.py:network", algorithm="ls", preferences=2, steps=3)
    assert api.load(rows).path == result.job.path
    settings = ("oracle=minibatch", "oracle.batch_size=2", "record.every=1")
    other = mobench("problem=mine.py:network", *settings, *QUICK, root=tmp_path / "other").job.config()
    assert (other["oracle"]["batch_size"], other["record"]["every"]) == (2, 1)
    mobench("problem=mine.py:adam", "algorithm.step_size=0.1", *QUICK).refused("no effect beside optimizer=")


def test_a_sweep_of_problems_and_methods(mobench: Run, here: Path) -> None:
    sweep = ("-m", "problem=mine.py:make,mine.py:network,vlmop2", "algorithm=ls,mgda", *QUICK[1:])
    result = mobench(*sweep)
    assert result.code == 0, result.err
    assert len(result.folders) == 6
    assert "problem=mine.py:make algorithm=mgda" in result.out
    assert "6 jobs, 6 already finished" in mobench(*sweep, root=result.root).out


def test_a_stopped_job_goes_on(
    mobench: Run, here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`mobench status` finishes it to the bit where the command says what the problem is."""
    command = ("problem=mine.py:make", "algorithm=ls", *BASE)
    whole = mobench(*command, root=tmp_path / "whole")
    killed(mobench, monkeypatch, first_pass, *command)
    result = mobench("status", *command, "--resume")
    assert result.code == 0, result.err
    assert result.job.done
    same_rows(result.job, whole.job)


def test_the_last_problem_counts(mobench: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICH", "zdt1")
    of_a_file = mobench("problem=mine.py:make", "problem=${oc.env:WHICH}", *QUICK)
    assert of_a_file.folders[0].path.name.startswith("zdt1-")
    result = mobench("problem=vlmop2", "problem=mine.py:make", *QUICK)
    assert result.folders[0].path.name.startswith("own-")


def test_a_file_that_changes_makes_another_job(mobench: Run, here: Path) -> None:
    first = mobench("problem=mine.py:make", *QUICK)
    text = Path("mine.py").read_text()
    Path("mine.py").write_text(text.replace("(x + SHIFT)", "(x + 2 * SHIFT)"))
    assert len(mobench("problem=mine.py:make", *QUICK, root=first.root).folders) == 2
    Path("mine.py").write_text(text + "\n# a remark\n")
    assert "already finished" in mobench("problem=mine.py:make", *QUICK, root=first.root).out


def test_a_folder_alone_does_not_name_the_file(here: Path) -> None:
    """Whoever reads a configuration, of a bundle for example, runs no file that it names."""
    config = compose(["problem=mine.py:make", "algorithm=ls"])
    assert "mine" not in str(config["problem"])
    config["problem"]["code"] = "0123"
    with pytest.raises(ConfigError, match="repeat the command that named problem="):
        make_job(config)


@pytest.mark.parametrize(
    ("choice", "words"),
    {
        "mine.py": ["write problem=", "mine.py:FUNCTION", "are f, make, network, adam, wide"],
        "mine.py:mak": ["has no function 'mak'", "Did you mean 'make'?"],
        "mine.py:SHIFT": ["has no function 'SHIFT'"],
        "mien.py:make": ["there is no file", "mien.py", "Did you mean 'mine.py'?"],
        "mien:make": ["cannot be imported", "No module named 'mien'"],
        "mine.py:wide": ["is called without arguments and fails", "missing 1 required", "'width'"],
        "mine.py:fails": ["ZeroDivisionError: division by zero", "mine.py, line 23)"],
        "mine.py:nothing": ["a value of type NoneType", "mobench.networks(...)", "docs/plugins.md"],
        "mine.py:opaque": ["has no hash", "use mobench.run"],
        "broken.py:make": ["cannot be imported: SyntaxError", "broken.py, line 1"],
        "astray.py:make": ["cannot be imported: ModuleNotFoundError", "'no_such'", "astray.py, line 1)"],
    }.items(),
)
def test_what_is_wrong_is_one_message(mobench: Run, here: Path, choice: str, words: list[str]) -> None:
    Path("broken.py").write_text("def make(:\n")
    Path("astray.py").write_text("import no_such\n")
    result = mobench(f"problem={choice}", *QUICK)
    result.refused(*words)
    assert result.folders == []
