"""Costs of a run beside its steps: start of the command, a job that is done already, checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import Sample
from mobench.jobs import record
from mobench.jobs import run as runner
from mobench.jobs.store import JobFolder
from tests.conftest import REPOSITORY, command, environment
from tests.test_runner import composed

# aims: seconds, seconds, share of a training run
START = 2.0
DONE = 0.05
SHARE = 0.02
EVERY = 30.0  # seconds between checkpoints
DIGITS = "scale=laptop"
CASES: dict[str, tuple[str, ...]] = {
    "VLMOP2, 300 runs, every step recorded": (
        "algorithm=mgda",
        "preferences=10",
        "problem.start.per_preference=true",  # with equal starts, MGDA would train 30 runs for all 300
        f"seeds={list(range(30))}",
        "steps=3000",
    ),
    "VLMOP2, 30 runs, OMD-TCH with three averages": (
        "algorithm=omd_tch",
        "algorithm.outputs=[mean,adaptive,last]",
        "preferences=10",
        "seeds=[0,1,2]",
        "steps=3000",
    ),
    "15 LeNets on images with two labels": (
        "protocol=multi_mnist",
        "problem.model=lenet",
        "algorithm=ls",
        "seeds=[0,1,2,3,4]",
        "steps=4",
    ),
}


@dataclass(frozen=True)
class Overhead:
    """Costs of a run beside its steps.

    start, done, planned: seconds of `mobench --help`, of a finished job, and of one in a sweep; ratios: CPU
    time over that of `import torch`; checkpoints: bytes and seconds by case.
    """

    start: Sample
    ratios: dict[str, float]
    done: Sample
    planned: Sample
    checkpoints: dict[str, tuple[int, Sample]]


def _help(rounds: int) -> Sample:
    env = environment(Path(tempfile.gettempdir()) / "mobench-none")
    times = []
    for _ in range(rounds):
        tick = time.perf_counter()
        subprocess.run(command("--help"), env=env, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - tick)
    return Sample(tuple(times))


# what a command may cost in CPU time, as a multiple of `import torch` in the same session
RATIOS = {
    "`mobench --help`": 0.15,
    "a new job of one step": 1.4,
    "the same job, finished": 0.5,
    "`mobench status` of it": 0.3,
    "one more job of one step in a sweep": 0.01,
}
TINY = ("problem=vlmop2", "algorithm=ls", "steps=1", "preferences=1", "logger=local", "progress=false")


def _ratios(rounds: int, root: Path, more: int) -> dict[str, float]:
    """CPU time of whole commands over that of `import torch`, the least of alternating rounds."""
    times: dict[str, list[float]] = {}

    def run(name: str, folder: Path, *arguments: str) -> None:
        before = os.times()
        subprocess.run(arguments, env=environment(folder), cwd=REPOSITORY, capture_output=True, check=True)
        after = os.times()
        taken = after.children_user + after.children_system - before.children_user - before.children_system
        times.setdefault(name, []).append(taken)

    status = (sys.executable, "-m", "mobench", "status")
    for turn in range(rounds):
        folder = root / str(turn)
        run("torch", folder, sys.executable, "-c", "import torch")
        run("`mobench --help`", folder, *command("--help"))
        run("a new job of one step", folder, *command(*TINY))
        run("the same job, finished", folder, *command(*TINY))
        run("`mobench status` of it", folder, *status, *TINY[:4])
        for count in (1, 1 + more):
            steps = ",".join(str(1e-3 * (k + 1)) for k in range(count))
            line = ("-m", *TINY, f"algorithm.step_size={steps}")
            run(f"sweep of {count}", root / f"sweep-{turn}-{count}", *command(*line))
    least = {name: min(samples) for name, samples in times.items()}
    least["one more job of one step in a sweep"] = (
        least[f"sweep of {1 + more}"] - least["sweep of 1"]
    ) / more
    return {name: least[name] / least["torch"] for name in RATIOS}


def _done(rounds: int, root: Path) -> Sample:
    """`run_job` of a job whose rows exist."""
    config = composed("algorithm=ferero", "preferences=10", "steps=5", "logger=local", "progress=false")
    runner.run_job(config, root)
    times = []
    for _ in range(rounds + 1):
        tick = time.perf_counter()
        assert runner.run_job(config, root).skipped
        times.append(time.perf_counter() - tick)
    return Sample(tuple(times[1:]))


def _planned(rounds: int, root: Path, jobs: int) -> Sample:
    """A sweep of 2 `jobs` finished jobs less one of `jobs`: what each costs, its summary included."""
    code = (
        "import sys, time\n"
        "from mobench.cli import entry\n"
        "from hydra.core.global_hydra import GlobalHydra\n"
        "def sweep(n):\n"
        "    GlobalHydra.instance().clear()\n"
        "    seeds = ','.join(f'[{k}]' for k in range(n))\n"
        "    tick = time.perf_counter()\n"
        "    entry.called(['-m', 'algorithm=ls', f'seeds={seeds}', 'preferences=2', 'steps=2', "
        "'logger=local', 'progress=false'])\n"
        "    return time.perf_counter() - tick\n"
        f"sweep({2 * jobs})\n"
        f"found = [(sweep({2 * jobs}) - sweep({jobs})) / {jobs} for _ in range({rounds})]\n"
        "print('found', *found)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(root),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return Sample(tuple(float(x) for x in done.stdout.splitlines()[-1].split()[1:]))


def _checkpoints(line: tuple[str, ...], rounds: int, root: Path) -> tuple[int, Sample]:
    """Size, and seconds of the last checkpoints of a run, when its history is longest."""
    config = composed(
        *(w.replace(" ", "") for w in line), "logger=local", "progress=false", "checkpoint.seconds=0", DIGITS
    )
    times: list[float] = []
    sizes: list[int] = []
    save = JobFolder.save_checkpoint

    def timed(self: JobFolder, payload: dict[str, Any]) -> None:
        tick = time.perf_counter()
        save(self, payload)
        times.append(time.perf_counter() - tick)
        sizes.append((self.path / "checkpoint.pt").stat().st_size)

    stack: list[float] = []
    state = record.Recorder.state

    def timed_state(self: record.Recorder, job: Any) -> dict[str, Any]:
        tick = time.perf_counter()
        payload = state(self, job)
        stack.append(time.perf_counter() - tick)
        return payload

    JobFolder.save_checkpoint, record.Recorder.state = timed, timed_state  # type: ignore[method-assign]
    try:
        outcome = runner.run_job(config, root)
    finally:
        JobFolder.save_checkpoint, record.Recorder.state = save, state  # type: ignore[method-assign]
    assert outcome.status == "done", outcome.error
    last = max(1, min(rounds, len(times)))
    return sizes[-1], Sample(tuple(a + b for a, b in zip(times[-last:], stack[-last:], strict=True)))


def measure(rounds: int, quick: bool, say: Callable[[str], None]) -> Overhead:
    """All of it."""
    outputs = os.environ.get("MOBENCH_OUTPUTS")
    if outputs is not None:
        Path(outputs).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mobench-overhead-", dir=outputs) as folder:
        root = Path(folder)
        start = _help(rounds)
        ratios = _ratios(min(rounds, 4), root / "ratios", 3 if quick else 200)
        say(", ".join(f"{name} {ratio:.3g} x import torch" for name, ratio in ratios.items()))
        done = _done(rounds, root / "done")
        say(f"--help {start.least:.2f} s, a finished job {1000 * done.least:.1f} ms")
        planned = _planned(min(rounds, 3), root / "planned", 2 if quick else 20)
        say(f"a finished job of a sweep {1000 * planned.least:.1f} ms")
        checkpoints = {}
        for name, line in list(CASES.items())[: 1 if quick else None]:
            short = (*line[:-1], "steps=20") if quick else line
            checkpoints[name] = _checkpoints(short, rounds, root / "checkpoints")
            say(
                f"checkpoint, {name}: {checkpoints[name][0] / 2**20:.1f} MiB, "
                f"{1000 * checkpoints[name][1].least:.0f} ms"
            )
    return Overhead(start, ratios, done, planned, checkpoints)


def as_json(overhead: Overhead) -> dict[str, Any]:
    """Seconds of every round."""
    return {
        "help": overhead.start.rounds,
        "ratios_to_import_torch": overhead.ratios,
        "done": overhead.done.rounds,
        "planned": overhead.planned.rounds,
        "checkpoints": {
            name: {"bytes": size, "seconds": s.rounds} for name, (size, s) in overhead.checkpoints.items()
        },
    }


def markdown(overhead: Overhead, table: Callable[..., str], number: Callable[[float], str]) -> list[str]:
    """The section of docs/performance.md."""

    def met(value: float, aim: float) -> str:
        return "met" if value <= aim else "**missed**"

    rows = [
        [
            name,
            f"{size / 2**20:.1f}",
            number(1000 * s.median),
            f"{100 * s.median / EVERY:.2f} %",
            met(s.median / EVERY, SHARE),
        ]
        for name, (size, s) in overhead.checkpoints.items()
    ]
    return [
        "## Overhead outside the steps",
        f"`mobench --help` takes {overhead.start.least:.2f} s (aim {START:g} s, "
        f"{met(overhead.start.least, START)}). A job that is already finished takes "
        f"{1000 * overhead.done.least:.1f} ms after imports (aim {1000 * DONE:g} ms, "
        f"{met(overhead.done.least, DONE)}), and {1000 * overhead.planned.least:.1f} ms as an additional "
        "job of a sweep, including its summary.",
        "CPU time of whole commands as multiples of `import torch` in the same session, the least of "
        "alternating rounds:",
        table(
            ["command", "x import torch", "aim", ""],
            [
                [name, number(ratio), f"{RATIOS[name]:g}", met(ratio, RATIOS[name])]
                for name, ratio in overhead.ratios.items()
            ],
        ),
        "The table lists the median time of the last checkpoints of a run (atomic, with fsync), and its "
        f"share of the time between two checkpoints at the default interval of {EVERY:g} s. Aim: "
        f"{100 * SHARE:g} %.",
        table(["job", "MiB", "ms", "share", "aim"], rows),
    ]
