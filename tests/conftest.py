"""`mobench`: the command line in the test's own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext, RunMode

from mobench import plugin as plugin_of_hydra
from mobench import sweeper
from mobench.schema import conf_dir
from mobench.store import JobFolder
from tests import plugin

REPOSITORY = Path(__file__).resolve().parent.parent
FONTS = str(Path(tempfile.gettempdir()) / "mobench-tests-matplotlib")  # else every new HOME lists all fonts again
WANDB = ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_RUN_GROUP")


@dataclass
class Result:
    """What a command left behind: exit code, what it printed, the outputs folder."""

    code: int
    out: str
    err: str
    root: Path

    @property
    def folders(self) -> list[JobFolder]:
        """Job folders, by name."""
        found = sorted((self.root / "runs").glob("*")) if (self.root / "runs").exists() else []
        return [JobFolder(p) for p in found if p.is_dir()]

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
        """One clear message with these words, the exit code, no traceback, and nothing that looks finished."""
        assert self.code == code, (self.code, self.out, self.err)
        assert "Traceback" not in self.out + self.err
        assert self.err.count("mobench: error:") == 1, self.err
        for word in words:
            assert word in self.err, f"{word!r} is not in {self.err!r}"


def environment(root: Path, **extra: str) -> dict[str, str]:
    """For subprocesses: one thread, outputs in `root`, no W&B key, no network."""
    env = {k: v for k, v in os.environ.items() if k not in WANDB and k != "HYDRA_FULL_ERROR"}
    threads = {
        "OMP_NUM_THREADS": "1",
        "MOBENCH_OUTPUTS": str(root),
        "NETRC": str(root / "no-netrc"),
        "HOME": str(root),
        "MPLCONFIGDIR": FONTS,
    }
    # a tool that tries the network fails at once
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    return env | threads | proxies | extra


def command(*arguments: str) -> list[str]:
    """`mobench ARGUMENTS` for subprocesses."""
    return [sys.executable, "-m", "mobench", *arguments]


def in_process(root: Path, arguments: tuple[str, ...], patch: pytest.MonkeyPatch) -> int:
    """Run the console entry point; return its exit code. The caller captures what it prints."""
    from mobench import cli, console, loggers

    for name in WANDB:
        patch.delenv(name, raising=False)
    patch.setenv("MOBENCH_OUTPUTS", str(root))
    patch.setenv("HOME", str(root))  # ~/.netrc
    patch.setenv("MPLCONFIGDIR", FONTS)
    patch.setenv("HYDRA_FULL_ERROR", "0")
    patch.setattr(sys, "argv", ["mobench", *arguments])
    patch.setattr(console, "exit_code", 0)
    patch.setattr(loggers, "_said", False)
    cli._raised.clear()
    threads, terminate = torch.get_num_threads(), signal.getsignal(signal.SIGTERM)
    GlobalHydra.instance().clear()
    try:
        cli.main()
    except SystemExit as stop:
        return int(stop.code or 0) if not isinstance(stop.code, str) else 1
    finally:
        GlobalHydra.instance().clear()
        torch.set_num_threads(threads)
        signal.signal(signal.SIGTERM, terminate)
    raise AssertionError("mobench.cli.main returned without an exit code")


Run = Callable[..., Result]


@pytest.fixture
def mobench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
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
    extra = options.pop("env", {})
    return subprocess.run(
        command(*arguments),
        cwd=options.pop("cwd", root.parent),
        env=environment(root, **extra),
        capture_output=True,
        text=True,
        timeout=options.pop("timeout", 120),
        check=False,
        **options,
    )


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The override that adds a folder with one problem and three algorithms; their code can be imported."""
    override = plugin.write(tmp_path / "plugin")
    monkeypatch.syspath_prepend(str(tmp_path / "plugin" / "code"))
    yield override
    sys.modules.pop(plugin.MODULE, None)


@pytest.fixture(scope="module")
def hydra() -> Iterator[Any]:
    """Hydra's configuration loader on the project's own folder, as the command line has it."""
    plugin_of_hydra.register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()


@pytest.fixture(scope="module")
def planner(hydra: Any) -> sweeper.JobsSweeper:
    """The sweeper, which composes equal choices of groups once."""
    planner = sweeper.JobsSweeper()
    planner.hydra_context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks())
    planner.config = hydra.compose_config("config", [], RunMode.MULTIRUN, with_log_configuration=False)
    return planner
