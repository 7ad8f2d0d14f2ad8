"""`mobench`: the command line in the test's own process.

And official data, which only tests marked `data` see.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from mobench.cli import doctor
from mobench.config import hydra_adapter
from mobench.config.schema import conf_dir
from mobench.jobs.store import JobFolder
from mobench.sweep.composer import Composer
from mobench.sweep.planner import Planner, Use
from mobench.system.files import write_json
from tests import plugin

REPOSITORY = Path(__file__).resolve().parent.parent
WANDB = ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_RUN_GROUP")
# settings of the shell that pytest was started in, a Slurm job's among them: no test may depend on them
FOREIGN = ("MOBENCH_", "WANDB_", "HYDRA_", "SLURM_", "SUBMITIT_")
OURS = ("MOBENCH_SMOKE", "MOBENCH_REPRODUCED")  # tests/test_artifacts.py, tests/test_results_pages.py
DATA = os.environ.get("MOBENCH_DATA", "")  # read before any fixture points it elsewhere
# a list of fonts for all tests, made before the first: every new HOME would make it again, and a command that
# takes long to make it says so on stderr. A folder for each user, since nobody may write in another's.
FONTS = os.environ["MPLCONFIGDIR"] = str(
    Path(tempfile.gettempdir()) / f"mobench-tests-matplotlib-{os.getuid()}"
)
importlib.import_module("matplotlib.font_manager")


# official data


@cache
def looked_for() -> dict[str, doctor.Line]:
    """The state of each data set below the MOBENCH_DATA of the time when pytest was started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBENCH_DATA", DATA)
        return {line.name: line for line in doctor.data()}


def why_not(sets: tuple[str, ...]) -> str | None:
    """Why a test that needs these official data sets cannot run here; None if it can."""
    if not DATA:
        return f"needs official files ({', '.join(sets)}): set MOBENCH_DATA to the folder that holds them"
    if not Path(DATA).is_dir():
        return f"needs official files ({', '.join(sets)}): MOBENCH_DATA={DATA} is no folder"
    absent = [looked_for()[name].text for name in sets if looked_for()[name].state != doctor.OK]
    return f"needs official files: {'; '.join(absent)}" if absent else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `data` are skipped, with the reason, where one of their data sets is not."""
    for item in items:
        sets = tuple(dict.fromkeys(name for mark in item.iter_markers("data") for name in mark.args))
        if not sets and item.get_closest_marker("data"):
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.data names the data sets that the test needs."
            )
        if sets and (reason := why_not(sets)):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def no_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """MOBENCH_DATA names a folder without data: no test depends on the machine or the shell."""
    folder = tmp_path_factory.mktemp("without-data")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN) and name not in OURS]:
            patch.delenv(name)
        patch.setenv("MOBENCH_DATA", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def data_folder(request: pytest.FixtureRequest, no_data: Path) -> Iterator[Path]:
    """The MOBENCH_DATA of pytest's start for tests marked `data`, and the empty folder for others."""
    if request.node.get_closest_marker("data") is None:
        yield no_data
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBENCH_DATA", str(Path(DATA).resolve()))
        yield Path(DATA).resolve()


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    """Environment variables that one test sets (W&B's, torch's) are gone before the next."""
    before = dict(os.environ)
    yield
    for name in [name for name in os.environ if name not in before and name != "PYTEST_CURRENT_TEST"]:
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if name != "PYTEST_CURRENT_TEST"})


# the command line


@dataclass
class Result:
    """The exit code of a command, the text that it printed, and its outputs folder."""

    code: int
    out: str
    err: str
    root: Path

    @property
    def folders(self) -> list[JobFolder]:
        """Job folders, by name."""
        paths = sorted((self.root / "runs").glob("*")) if (self.root / "runs").exists() else []
        return [JobFolder(p) for p in paths if p.is_dir()]

    @property
    def job(self) -> JobFolder:
        """The only job folder."""
        (folder,) = self.folders
        return folder

    @property
    def rows(self) -> pd.DataFrame:
        """Rows of the only job."""
        return self.job.final()

    def refused(self, *words: str, code: int = 2) -> None:
        """One clear message with these words, the exit code, no traceback, and nothing finished."""
        assert self.code == code, (self.code, self.out, self.err)
        assert "Traceback" not in self.out + self.err
        assert self.err.count("mobench: error:") == 1, self.err
        for word in words:
            assert word in self.err, f"{word!r} is not in {self.err!r}"


def environment(root: Path, **extra: str) -> dict[str, str]:
    """For subprocesses: one thread, outputs in `root`, no W&B key, no network."""
    env = {k: v for k, v in os.environ.items() if k not in WANDB and k != "HYDRA_FULL_ERROR"}
    threads = {"OMP_NUM_THREADS": "1", "MOBENCH_OUTPUTS": str(root), "HOME": str(root)}
    threads |= {"NETRC": str(root / "no-netrc"), "MPLCONFIGDIR": FONTS}
    # a tool that tries the network fails at once
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    return env | threads | proxies | extra


def process(line: list[str], timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
    """A program with its output as text, whatever its exit code."""
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout, check=False, **options)


def command(*arguments: str) -> list[str]:
    """`mobench ARGUMENTS` for subprocesses."""
    return [sys.executable, "-m", "mobench", *arguments]


def in_process(root: Path, arguments: tuple[str, ...], patch: pytest.MonkeyPatch) -> int:
    """Run the console entry point; return its exit code. The caller captures what it prints."""
    from mobench.cli import entry
    from mobench.jobs import wandb_log

    for name in WANDB:
        patch.delenv(name, raising=False)
    patch.setenv("MOBENCH_OUTPUTS", str(root))
    patch.setenv("HOME", str(root))  # ~/.netrc
    patch.setenv("MPLCONFIGDIR", FONTS)
    patch.setenv("HYDRA_FULL_ERROR", "0")
    patch.setattr(sys, "argv", ["mobench", *arguments])
    wandb_log.say_off.cache_clear()
    threads = torch.get_num_threads()
    terminate = signal.getsignal(signal.SIGTERM)
    GlobalHydra.instance().clear()
    try:
        entry.main()
    except SystemExit as stop:
        return int(stop.code or 0) if not isinstance(stop.code, str) else 1
    finally:
        GlobalHydra.instance().clear()
        torch.set_num_threads(threads)
        signal.signal(signal.SIGTERM, terminate)
    raise AssertionError("mobench.cli.entry.main returned without an exit code")


def of_before(folder: JobFolder) -> JobFolder:
    """The same folder as older versions left it, without digests of its files."""
    status = folder.status()
    status.pop("sha256", None)
    write_json(folder.path / "status.json", status)
    return folder


Run = Callable[..., Result]


@pytest.fixture
def mobench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """`mobench("problem=zdt2", "steps=5")` runs that command and returns its Result."""

    def run(*arguments: str, root: Path | None = None) -> Result:
        target = root or tmp_path / "outputs"
        capsys.readouterr()
        with monkeypatch.context() as patch:
            code = in_process(target, arguments, patch)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err, target)

    return run


def shell(root: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`mobench ARGUMENTS` in a process of its own."""
    env = environment(root, **options.pop("env", {}))
    return process(command(*arguments), env=env, **{"cwd": root.parent} | options)


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The override that adds a folder with one problem and three algorithms; their code can be imported."""
    override = plugin.write(tmp_path / "plugin")
    monkeypatch.syspath_prepend(str(tmp_path / "plugin" / "code"))
    yield override
    sys.modules.pop(plugin.MODULE, None)


@pytest.fixture(scope="module")
def planner() -> Planner:
    """The planner of a sweep, which composes equal choices of groups once."""
    hydra_adapter.register()
    loader = hydra_adapter.loader(str(conf_dir()))
    config = loader.load_configuration(hydra_adapter.CONFIG, [], RunMode.MULTIRUN)
    return Planner(Composer(loader, config), Use.PROCESS)
