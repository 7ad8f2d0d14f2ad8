"""Aims of docs/performance.md that need no other checkout: `python -m benchmarks.aims [--only jobs,steps]`.

CPU seconds of this process and of those that it starts, one thread; what is compared takes turns. Prints a
table with the least time, the median and the aim. `--drawn` names outputs in which `mobench +experiment=all
scale=smoke` was run: the command is repeated, with nothing new.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import authors_style, loops, objectives, surrogates
from benchmarks.peers import cpu
from benchmarks.timing import Sample, Work, alternate
from mobench.problems import VLMOP2
from mobench.solvers.surrogate import solve_surrogate

Row = tuple[str, str, float, float]
"""A line of the table: its name, the measurement in words, its value, and the aim that it may not exceed."""


def _ms(sample: Sample) -> str:
    return f"{1e3 * sample.least:.2f} ({1e3 * sample.median:.2f}) ms"


def _new(seeds: Iterator[int], **job: Any) -> Work:
    """CPU seconds of `mobench.run` with seeds that no job has had."""
    import mobench

    options = {"problem": "vlmop2", "progress": False, "logger": "local", **job}

    def one(_: int) -> float:
        seed = next(seeds)
        tick = time.process_time()
        mobench.run(seeds=[seed], **options)
        return time.process_time() - tick

    return one


def jobs(rounds: int) -> Iterator[Row]:
    """Whole jobs of one step and of ten, in a process that runs already."""
    fresh = itertools.count(1)
    runs = loops.some_runs(4)
    pairs = list(zip(VLMOP2(n=loops.N).initial(runs).numpy(), runs.weights.numpy(), strict=True))

    def authors(_: int) -> float:
        tick = time.process_time()
        for x, w in pairs:
            authors_style.ferero(x, w, steps=10)
        return time.process_time() - tick

    short = {"algorithm": "ls", "steps": 1, "preferences": 10}
    cases = {
        "new": _new(fresh, **short),
        "finished": _new(itertools.repeat(0), **short),
        "ferero": _new(fresh, algorithm="ferero", steps=10, preferences=4),
        "authors": authors,
    }
    samples = alternate(cases, 4 * rounds)
    yield "a job of one step in a running process", _ms(samples["new"]), 1e3 * samples["new"].least, 25
    yield "the same, finished before", _ms(samples["finished"]), 1e3 * samples["finished"].least, 15
    share = samples["ferero"].over(samples["authors"])
    words = f"{_ms(samples['ferero'])}; {_ms(samples['authors'])}: {1 / share:.2f} times"
    yield "FERERO's toy sweep, 4 x 10 iterations, 3 times the authors' style", words, share, 1 / 3


def steps(rounds: int) -> Iterator[Row]:
    """Steps of CSMOO-2 beside its box."""
    samples = alternate(
        {str(M): objectives.steps("csmoo2", M, 100, 100, True) for M in (2, 3, 5, 10, 20)}, rounds
    )
    for M, sample in samples.items():
        yield f"a step of CSMOO-2 on DTLZ2, R = 100, M = {M}", _ms(sample), 1e3 * sample.least, 3


def cold(rounds: int) -> Iterator[Row]:
    """Surrogates from ones, beside Clarabel alone."""
    for case in surrogates.CASES:
        programs = surrogates.recorded(case, 1)
        turn = itertools.cycle(programs)
        work = {
            "ours": cpu(lambda turn=turn: solve_surrogate(next(turn)[0], None), 0.1),
            "clarabel": cpu(surrogates.by_clarabel(programs), 0.1),
        }
        samples = alternate(work, rounds)
        share = samples["ours"].over(samples["clarabel"])
        words = f"{_ms(samples['ours'])}; {_ms(samples['clarabel'])}: {share:.2f} times"
        yield f"a cold surrogate at R = 1 beside Clarabel, {case}", words, share, 2


def table(rounds: int, count: int = 2000) -> Iterator[Row]:
    """`mobench.runs()` over many finished jobs, in processes of their own."""
    one = _new(itertools.count(), algorithm="ls", steps=1, preferences=1)
    outputs = Path(os.environ["MOBENCH_OUTPUTS"]) / "many"
    os.environ["MOBENCH_OUTPUTS"] = str(outputs)
    for _ in range(count):
        one(0)
    code = (
        "import time, mobench; mobench.runs; tick = time.process_time(); n = len(mobench.runs()); "
        f"assert n == {count}, n; print(time.process_time() - tick)"
    )
    answers = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(rounds)
    ]
    sample = Sample(tuple(float(line) for line in answers))
    yield (
        f"`mobench.runs()` over {count:,} jobs",
        f"{sample.least:.2f} ({sample.median:.2f}) s",
        sample.least,
        1,
    )


def _command(arguments: list[str]) -> float:
    before = os.times()
    subprocess.run(arguments, capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def planning(rounds: int) -> Iterator[Row]:
    """All jobs of all artifacts, composed and resolved, with the imports."""
    code = "import mobench.jobs.build; from mobench.sweep.planner import plan; plan(['+experiment=all'])"
    sample = Sample(tuple(_command([sys.executable, "-c", code]) for _ in range(max(1, rounds // 2))))
    words = f"{sample.least:.1f} ({sample.median:.1f}) s"
    yield "planning of all artifacts after an edit", words, sample.least, 30


def drawn(outputs: Path, rounds: int) -> Iterator[Row]:
    """The whole command with nothing new."""
    os.environ["MOBENCH_OUTPUTS"] = str(outputs)
    line = [sys.executable, "-m", "mobench", "+experiment=all", "scale=smoke"]
    sample = Sample(tuple(_command(line) for _ in range(rounds + 1))[1:])
    yield (
        "`mobench +experiment=all` with nothing new",
        f"{sample.least:.2f} ({sample.median:.2f}) s",
        sample.least,
        4,
    )


PARTS = {"jobs": jobs, "steps": steps, "cold": cold, "table": table, "planning": planning}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aims", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    parser.add_argument("--drawn", type=Path, help="outputs in which every artifact is drawn at scale=smoke")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| what | least (median), CPU | aim | met |\n| --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="mobench-aims-") as folder:
        os.environ["MOBENCH_OUTPUTS"] = folder
        parts = [PARTS[name](chosen.rounds) for name in chosen.only.split(",")]
        if chosen.drawn is not None:
            parts.append(drawn(chosen.drawn, chosen.rounds))
        for what, words, value, aim in itertools.chain.from_iterable(parts):
            print(f"| {what} | {words} | {aim:.3g} | {'yes' if value <= aim else '**no**'} |", flush=True)


if __name__ == "__main__":
    main()
