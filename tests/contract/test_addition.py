"""A method is two files and a line of the changelog.

The example of CONTRIBUTING.md, copied to the letter into a copy of the project, passes what concerns a
method; and a plug-in of one file runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mobench.algorithms.ls import LS
from tests.conftest import REPOSITORY, environment, process
from tests.contract import test_algorithm

TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text()
PYTHON, YAML = re.search(
    r"Create `mobench/algorithms/mine\.py`.*?```python\n(.*?)```.*?"
    r"Create `conf/algorithm/inverse_loss\.yaml`.*?```yaml\n(.*?)```",
    TEXT,
    re.DOTALL,
).groups()  # type: ignore[union-attr]
CONCERNED = (
    "tests/contract",
    "tests/test_methods_page.py",
    "tests/test_public_api.py",
    "tests/test_rooms.py",
)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A module of Python's with the folder's own mobench."""
    env = environment(folder / "outputs", PYTHONPATH=str(folder))
    return process([sys.executable, "-m", *arguments], 300, cwd=folder, env=env)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the two files."""
    folder = tmp_path_factory.mktemp("clone")
    passing = shutil.ignore_patterns("*.pyc.*")  # another process may write a compiled module just now
    for name in ("mobench", "conf", "tests", "docs", "campaigns", "benchmarks"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=passing)
    for name in ("CONTRIBUTING.md", "pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, folder / name)
    (folder / "experiments").symlink_to(REPOSITORY / "experiments")
    for name in ("mobench/kernels", "mobench/solvers/kernels"):  # what is compiled for one is for the other
        shutil.rmtree(folder / name)
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "mobench" / "algorithms" / "mine.py").write_text(PYTHON)
    (folder / "conf" / "algorithm" / "inverse_loss.yaml").write_text(YAML)
    return folder


def test_the_example_passes_what_concerns_a_method(clone: Path) -> None:
    done = run(
        clone, "pytest", "-q", "-p", "no:cacheprovider", *CONCERNED, "-k", "inverse_loss or names or public"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    match = re.search(r"(\d+) passed", done.stdout)
    assert match
    assert int(match[1]) >= 15, done.stdout


def test_the_example_is_styled_and_typed(clone: Path) -> None:
    file = "mobench/algorithms/mine.py"
    for tool in (("ruff", "check"), ("ruff", "format", "--check")):
        done = run(clone, *tool, file)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_mean_over_the_runs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract is not green by itself."""
    weights = LS.weights

    def mixed(self: LS, *arguments: Any) -> Any:
        w, state, info = weights(self, *arguments)
        return w.mean(0, keepdim=True).expand_as(w), state, info

    monkeypatch.setattr(LS, "weights", mixed)
    with pytest.raises(AssertionError):
        test_algorithm.test_a_run_alone_is_a_run_in_a_batch("ls")


def test_a_plug_in_is_one_file(tmp_path: Path) -> None:
    """A method without options of its own in conf: an object, defined in a file beside the program."""
    (tmp_path / "mine.py").write_text(PYTHON)
    program = (
        "import mobench, mine\nrows = mobench.run('logger=local', problem='vlmop2', steps=5, preferences=2, "
    )
    program += "algorithm=mine.InverseLoss(step_size=0.05))\nassert len(rows) == 2, rows\n"
    (tmp_path / "program.py").write_text(program)
    env = environment(tmp_path / "outputs", PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    done = process([sys.executable, "program.py"], cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
