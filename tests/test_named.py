"""A problem of one's own that a command names by a function: `problem=file.py:make`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import mobench as api
from mobench.bundle.verify import runnable
from mobench.core import named
from mobench.errors import BundleError, ConfigError
from mobench.jobs.build import make_job
from mobench.jobs.store import JobFolder
from tests.conftest import Run, environment

FILE = """
    import mobench, torch
    from shift import SHIFT

    def f(x):
        return torch.stack([(x - SHIFT).square().sum(), (x + SHIFT).square().sum()])

    def make():
        return mobench.objectives(f, dim=2, positive=True)

    def network():
        x = torch.linspace(-1, 1, 8).unsqueeze(1)
        return mobench.networks(
            lambda: torch.nn.Linear(1, 1), lambda out, batch: torch.stack([(out - 1).square().mean(), out.square().mean()]),
            (x,), batch_size=4,
        )

    def wide(width):
        pass

    def fails():
        return 1 / 0

    def nothing():
        pass

    made = make()
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
    named._made.cache_clear()
    sys.modules.pop("shift", None)
    Path("mine.py").write_text("\n".join(line.removeprefix("    ") for line in FILE.splitlines()))
    Path("shift.py").write_text("SHIFT = 1.0\n")
    return folder


def test_the_job_is_the_one_of_the_program(mobench: Run, here: Path, tmp_path: Path) -> None:
    """By a file, by a module and by an object of it the command reads the rows that the file made as a program."""
    root = tmp_path / "outputs"
    subprocess.run([sys.executable, "mine.py"], env=environment(root, PYTHONPATH=os.pathsep.join(sys.path)), check=True)
    (before,) = root.glob("runs/*/final.csv")
    for choice in ("mine.py:make", f"problem='{here}/mine.py:make'".replace("it's", "it\\'s")[8:], "mine:make", "mine.py:made"):
        result = mobench(f"problem={choice}", *QUICK, root=root)
        assert result.code == 0, result.err
        assert "already finished" in result.out
        assert result.job.path / "final.csv" == before
    rows = api.rows("problem=own", root=root) if "root" in api.rows.__code__.co_varnames else None
    assert rows is None or len(rows) == 2


def test_settings_of_a_network_are_those_of_run(mobench: Run, here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Batches of an epoch and float32 without a word; what the command says stays."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    result = mobench("problem=mine.py:network", *QUICK, root=tmp_path / "outputs")
    assert result.code == 0, result.err
    config = result.job.config()
    assert config["dtype"] == "float32"
    assert config["oracle"]["batch_size"] == 4
    rows = api.run(problem="mine.py:network", algorithm="ls", preferences=2, steps=3)
    assert api.load(rows).path == result.job.path
    other = mobench("problem=mine.py:network", "oracle.batch_size=2", "record.every=1", *QUICK, root=tmp_path / "other")
    assert other.job.config()["oracle"]["batch_size"] == 2
    assert other.job.config()["record"]["every"] == 1


def test_a_sweep_of_problems_and_methods(mobench: Run, here: Path) -> None:
    result = mobench("-m", "problem=mine.py:make,mine.py:network", "algorithm=ls,mgda", *QUICK[1:])
    assert result.code == 0, result.err
    assert len(result.folders) == 4
    assert "problem=mine.py:make algorithm=mgda" in result.out
    again = mobench("-m", "problem=mine.py:make,mine.py:network", "algorithm=ls,mgda", *QUICK[1:], root=result.root)
    assert "4 jobs, 4 already finished" in again.out


def test_another_process_makes_it_again(here: Path, tmp_path: Path) -> None:
    """As the worker of a launcher does, from the configuration alone and from another folder."""
    program = "import mobench; print(mobench.api.compose.compose(['problem=mine.py:make', 'algorithm=ls']))"
    env = environment(tmp_path, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    config = eval(done.stdout)
    assert config["problem"]["made_by"] == f"{here}/mine.py:make"
    os.chdir("/")
    job = make_job(config)
    assert job.problem.n_objectives == 2
    assert "made_by" not in str(job.identity)


def test_a_file_that_changes_makes_another_job(mobench: Run, here: Path) -> None:
    first = mobench("problem=mine.py:make", *QUICK)
    config = first.job.config()
    text = Path("mine.py").read_text()
    Path("mine.py").write_text(text.replace("(x + SHIFT)", "(x + 2 * SHIFT)"))
    second = mobench("problem=mine.py:make", *QUICK, root=first.root)
    assert len(second.folders) == 2
    with pytest.raises(ConfigError, match="makes another problem now than when this job was planned"):
        make_job(config)
    Path("mine.py").write_text(text + "\n# a remark\n")
    assert "already finished" in mobench("problem=mine.py:make", *QUICK, root=first.root).out


@pytest.mark.parametrize(
    ("choice", "words"),
    {
        "mine.py": ["names a file; name its function, too: problem=mine.py:make", "It defines f, make, network"],
        "mine.py:mak": ["has no function 'mak'", "It has f, make", "Did you mean 'make'?"],
        "mien.py:make": ["there is no file", "mien.py", "Did you mean 'mine.py'?"],
        "mien:make": ["there is no module 'mien'", "FOLDER/FILE.py:FUNCTION"],
        "mine.py:wide": ["is called without arguments, but missing a required argument: 'width'"],
        "mine.py:fails": ["fails: ZeroDivisionError: division by zero", "mine.py, line 23"],
        "mine.py:nothing": ["returns a value of type NoneType", "mobench.networks(...)", "docs/plugins.md"],
        "mine.py:SHIFT": ["is of type float; expected a function"],
        "broken.py:make": ["cannot be imported: SyntaxError", "broken.py, line 1"],
        "astray.py:make": ["cannot be imported: ModuleNotFoundError: No module named 'no_such'", "line 1"],
    }.items(),
)
def test_what_is_wrong_is_one_message(mobench: Run, here: Path, choice: str, words: list[str]) -> None:
    Path("broken.py").write_text("def make(:\n")
    Path("astray.py").write_text("import no_such\n")
    result = mobench(f"problem={choice}", *QUICK)
    result.refused(*words)
    assert result.folders == []


def test_functions_without_a_hash_always_run_anew(mobench: Run, here: Path) -> None:
    Path("open.py").write_text(
        "import mobench, sys\nlog = sys.stderr\n\ndef f(x):\n    log.flush\n    return x.square()\n\n"
        "def make():\n    return mobench.objectives(f, dim=2)\n"
    )
    result = mobench("problem=open.py:make", *QUICK)
    assert result.code == 0, result.err
    assert "cannot be hashed" in result.err
    config = result.job.config()
    named._made.cache_clear()  # as another process, which gives it another name
    assert make_job(config).problem.n_objectives == 2


def test_a_step_size_beside_an_optimizer_is_refused(mobench: Run, here: Path) -> None:
    text = Path("mine.py").read_text().replace("batch_size=4,", "batch_size=4, optimizer=lambda p: torch.optim.SGD(p, lr=0.1),")
    Path("mine.py").write_text(text)
    mobench("problem=mine.py:network", "algorithm.step_size=0.1", *QUICK).refused("no effect beside optimizer=")


def test_a_foreign_bundle_calls_no_function(here: Path) -> None:
    """A path in a file of somebody else's would run what lies there."""
    config = api.api.compose.compose(["problem=mine.py:make", "algorithm=ls"])
    with pytest.raises(BundleError, match="is made by .*mine.py:make, a function outside of mobench"):
        runnable(config)


def test_a_job_that_was_stopped_goes_on(mobench: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command continues from the checkpoint, to the bit."""
    whole = mobench("problem=mine.py:make", *QUICK[:2], "steps=40", "logger=local")
    assert whole.code == 0
    rows: pd.DataFrame = whole.rows
    assert JobFolder(whole.job.path).done
    assert len(rows) == 2
