"""Pictures: networks stacked or one after the other, steps of methods against one of LS, peak memory."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.floor import products
from benchmarks.timing import Sample, Work, alternate, timed
from mobench.algorithms.epo import EPO
from mobench.algorithms.ferero_public_code import PublicCodeFERERO
from mobench.algorithms.ferero_sa import StochasticFEREROSA
from mobench.algorithms.ls import LS
from mobench.algorithms.mgda import MGDA
from mobench.algorithms.pmtl import PMTL
from mobench.core import Runs, loop
from mobench.core.algorithm import Algorithm
from mobench.core.preferences import from_rays_deg
from mobench.oracles import Epochs
from mobench.problems import MultiMNIST
from tests.reference import images as plain

STEP = 1e-3
METHODS: dict[str, Algorithm] = {
    "ls": LS(step_size=STEP, normalize="norm"),
    "ferero_stochastic": StochasticFEREROSA(step_size=STEP, gamma=1e-4, c_h=0.5, domain="simplex"),
    "ferero_public_code": PublicCodeFERERO(step_size=STEP, c_h=0.5),
    "mgda": MGDA(step_size=STEP),
    "epo": EPO(step_size=STEP, gain=2.0, mu_floor=None),
    "pmtl": PMTL(step_size=STEP, references=5, phase1_steps=0, normalize=True),
}
TITLES = {
    "ls": "LS",
    "ferero_stochastic": "FERERO, Algorithm 3",
    "ferero_public_code": "FERERO, public code",
    "mgda": "MGDA",
    "epo": "EPO",
    "pmtl": "PMTL (phase 2)",
}
AUTHORS = {"ferero_public_code": 3.64, "epo": 3.1, "pmtl": 4.0}
"""A step of the authors' code over one of its own LS, measured by others."""
AIM_ROWS = 2.5
AIM_STEP = 1.6
AIM_GIB = 4.0
SECONDS = 2.0
"""Of a process at a time."""


@dataclass(frozen=True)
class Pictures:
    """Seconds per step, and peak memory at R = 25 or None.

    rows[threads][R]: losses and gradients of the batch; bare[threads][R]: the matrix products of that alone;
    plain[threads]: of one module; pair[R]: two jobs of R models at the same time, a thread each, as
    `LAUNCHER=joblib` runs them; steps[method]: R = `together`. Rows, bare, plain and pair are measured in
    processes of their own, in the second of two seconds without a break: after a break a module with two
    threads was seen to take 1.6 times as long for a second or two.
    """

    rows: dict[int, dict[int, Sample]]
    bare: dict[int, dict[int, Sample]]
    plain: dict[int, Sample]
    pair: dict[int, Sample]
    steps: dict[str, Sample]
    together: int
    batch: int
    peak: dict[str, Any] | None

    def faster(self, threads: int, R: int) -> float:
        """Ratio of medians: R modules, one after the other, over the batch."""
        return R * self.plain[threads].median / self.rows[threads][R].median

    def at_most(self, threads: int, R: int) -> float:
        """The same for the products alone: what no arrangement of the rest can exceed."""
        return R * self.plain[threads].median / self.bare[threads][R].median

    def busy(self, threads: int, R: int) -> float:
        """Share of the time in which the machine is at the peak of these products:
        ratio of medians of the products alone and of all.
        """
        return self.bare[threads][R].median / self.rows[threads][R].median

    def pair_faster(self, R: int) -> float:
        """Ratio of medians: 2 R modules one after the other, with all threads, over two jobs of R models."""
        return 2 * R * self.plain[max(self.plain)].median / self.pair[R].median

    def over_ls(self, method: str) -> float:
        """Ratio of medians: a step over one of LS."""
        return self.steps[method].median / self.steps["ls"].median


def _problem(quick: bool) -> MultiMNIST:
    return MultiMNIST(train_size=256 if quick else 2048, test_size=16, model="small" if quick else "lenet")


def _runs(R: int) -> Runs:
    angles = [90.0 * (k + 1) / (R + 1) for k in range(min(R, 5))]
    return Runs.product(from_rays_deg(angles), list(range(-(-R // 5)))).take(range(R))


def _after(threads: int, work: Callable[[], object], units: int = 1) -> Work:
    def measured(_: int) -> float:
        torch.set_num_threads(threads)
        return timed(work, units)

    return measured


def _stacked(p: MultiMNIST, R: int, batch: int) -> Callable[[], object]:
    """Losses and the gradients of both, of R models on the next batch."""
    runs = _runs(R)
    oracle = Epochs(p, runs, batch_size=batch)
    theta = p.initial(runs).float()
    turn = count()
    return lambda: oracle.at(theta, {}, next(turn)).jacobian()


def _serve(pipe: Any, quick: bool, kind: str, R: int, batch: int, threads: int) -> None:
    """A process that takes steps for each time that it receives, and answers with their median.

    Steps are of R stacked models, of their products alone, or of one module. The median is of the later half,
    when the system has given its threads their cores.
    """
    torch.set_num_threads(threads)
    p = _problem(quick)
    work = _module(p, batch) if kind == "plain" else _stacked(p, R, batch)
    if kind == "bare":
        work = products(work)
    while seconds := pipe.recv():
        taken: list[float] = []
        while not taken or sum(taken) < seconds:
            taken.append(timed(work, 1))
        pipe.send(float(np.median(taken[len(taken) // 2 :])))


class _Jobs:
    """Processes that do the same steps at the same time; seconds per step, each process doing one."""

    def __init__(self, quick: bool, kind: str, R: int, batch: int, threads: int, count: int = 1) -> None:
        context = multiprocessing.get_context("spawn")
        self._seconds = 1e-9 if quick else SECONDS
        pipes = [context.Pipe() for _ in range(count)]
        self._ends = [here for here, _ in pipes]
        self._jobs = [
            context.Process(target=_serve, args=(there, quick, kind, R, batch, threads), daemon=True)
            for _, there in pipes
        ]
        for job, (_, there) in zip(self._jobs, pipes, strict=True):
            job.start()
            there.close()  # so that a job that died is the end of the file, not a wait for ever

    def __call__(self, _: int) -> float:
        for here in self._ends:
            here.send(self._seconds)
        return float(np.mean([here.recv() for here in self._ends]))

    def stop(self) -> None:
        for here, job in zip(self._ends, self._jobs, strict=True):
            if job.is_alive():
                here.send(0)
            job.join(30)


def _module(p: MultiMNIST, batch: int) -> Callable[[], object]:
    """The same of one module; the pictures are floats already."""
    net = p.network
    model = plain.LeNet(net.channels, net.kernels, net.hidden, net.shrink)
    x = p.images.train.float()
    y = p.images.train_labels
    oracle = Epochs(p, _runs(1), batch_size=batch)
    turn = count()

    def work() -> None:
        index = oracle.batch(next(turn)).chosen[0]
        plain.jacobian(model, x[index], y[index])

    return work


def _steps(p: MultiMNIST, algorithm: Algorithm, R: int, batch: int, steps: int) -> Callable[[], object]:
    """The next steps of one trajectory."""
    runs = _runs(R)
    oracle = Epochs(p, runs, batch_size=batch, samples=algorithm.samples)
    state = loop.start(oracle, algorithm, {}, p.initial(runs).float(), runs, 10**6)
    return lambda: loop.advance(oracle, algorithm, {}, state, state["t"] + steps)


def measure(rounds: int, quick: bool, say: Callable[[str], None]) -> Pictures:
    """Everything; `quick`: tiny, numbers mean nothing."""
    p = _problem(quick)
    batch = 16 if quick else 256
    sizes, threads, together, steps = ((1, 2), (1,), 2, 1) if quick else ((1, 5), (2, 1), 5, 1)
    before = torch.get_num_threads()
    jobs: dict[str, _Jobs] = {}
    try:
        jobs |= {f"pair {R}": _Jobs(quick, "rows", R, batch, 1, count=2) for R in sizes[-1:]}
        for n in threads:
            jobs |= {
                f"{kind} {n} {R}": _Jobs(quick, kind, R, batch, n) for kind in ("rows", "bare") for R in sizes
            }
            jobs[f"plain {n}"] = _Jobs(quick, "plain", 1, batch, n)
        cases: dict[str, Work] = {**jobs}
        cases |= {
            f"step {name}": _after(threads[0], _steps(p, algorithm, together, batch, steps), steps)
            for name, algorithm in METHODS.items()
        }
        samples = alternate(cases, min(rounds, 5))
    finally:
        torch.set_num_threads(before)
        for job in jobs.values():
            job.stop()
    results = Pictures(
        *({n: {R: samples[f"{kind} {n} {R}"] for R in sizes} for n in threads} for kind in ("rows", "bare")),
        {n: samples[f"plain {n}"] for n in threads},
        {R: samples[f"pair {R}"] for R in sizes[-1:]},
        {name: samples[f"step {name}"] for name in METHODS},
        together,
        batch,
        peak(quick),
    )
    for n in threads:
        say(
            f"pictures, {n} threads: "
            + ", ".join(f"R={R} {results.faster(n, R):.2f}x modules" for R in sizes)
        )
    say(
        "pictures, two jobs: "
        + ", ".join(f"R={R} each {results.pair_faster(R):.2f}x modules" for R in results.pair)
    )
    say("pictures, steps over LS: " + ", ".join(f"{name} {results.over_ls(name):.2f}x" for name in METHODS))
    if results.peak:
        say(f"pictures, R = 25: {results.peak['mib']:.0f} MiB on {results.peak['data']}")
    return results


def peak(quick: bool) -> dict[str, Any]:
    """Peak memory of a fresh process with 25 models, or with one if `quick`.

    It takes a step of two halves, rows of a batch of 256, and a chunk of evaluation.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.images", "1" if quick else "25"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"the process whose memory is measured failed:\n{done.stderr[-2000:]}")
    memory: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return memory


def _child(models: int) -> None:
    import resource

    root = os.environ.get("MOBENCH_DATA")
    if root and not (Path(root) / "MNIST").exists():
        root = None
    options: dict[str, Any] = {"data": "mnist", "data_root": root} if root else {}
    p = MultiMNIST(test_size=1600 if root else None, **options)
    runs = _runs(models)
    torch.set_num_threads(2)
    theta = p.initial(runs).float()
    peaks: dict[str, float] = {}

    def note(name: str) -> None:
        peaks[name] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    p.values(theta[:1], torch.zeros(1, 1, dtype=torch.int64))
    note("data")
    with torch.no_grad():
        for t in range(2):
            halves: Sequence[Any] = [Epochs(p, runs, samples=2).at(theta, {}, t, k) for k in (0, 1)]
            g: Tensor = halves[0].vjp(torch.full((models, 2), 0.5))
            halves[1].jvp(g)
            theta = theta - STEP * g
        note("two halves")
        Epochs(p, runs).at(theta, {}, 0).jacobian()
        note("rows of 256")
        p.evaluated("test", theta)
        note("evaluation")
    print(
        json.dumps(
            {
                "data": p.images.label,
                "pictures": len(p.images.train),
                "after": peaks,
                "mib": max(peaks.values()),
            }
        )
    )


def as_json(results: Pictures) -> dict[str, Any]:
    """Times in milliseconds, medians."""
    return {
        "batch": results.batch,
        "rows": [
            {
                "threads": n,
                "R": R,
                "ms_model": 1e3 * sample.median / R,
                "ms_model_plain": 1e3 * results.plain[n].median,
                "ratio": results.faster(n, R),
                "ratio_products": results.at_most(n, R),
                "share_of_peak": results.busy(n, R),
            }
            for n, by_size in results.rows.items()
            for R, sample in by_size.items()
        ],
        "pair": {
            str(R): {"ms_model": 500 * s.median / R, "ratio": results.pair_faster(R)}
            for R, s in results.pair.items()
        },
        "steps": {
            name: {"R": results.together, "ms": 1e3 * s.median, "over_ls": results.over_ls(name)}
            for name, s in results.steps.items()
        },
        "peak": results.peak,
    }


def markdown(results: Pictures, table: Callable[..., str], number: Callable[[float], str]) -> list[str]:
    """The section of the report."""
    steps = [
        [
            TITLES[name],
            number(1e3 * sample.median),
            f"{results.over_ls(name):.2f}x",
            f"{AUTHORS[name]}x" if name in AUTHORS else "",
        ]
        for name, sample in results.steps.items()
    ]
    rows = [
        [
            str(n),
            str(R),
            number(1e3 * sample.median / R),
            number(1e3 * results.plain[n].median),
            f"{results.faster(n, R):.2f}x",
            f"{results.at_most(n, R):.2f}x",
            f"{100 * results.busy(n, R):.0f} %",
            "" if n != 2 else "yes" if results.faster(n, R) >= AIM_ROWS else "**no**",
        ]
        for n, by_size in results.rows.items()
        for R, sample in by_size.items()
    ]
    rows += [
        [
            "two jobs, 1 each",
            f"{R} + {R}",
            number(500 * sample.median / R),
            number(1e3 * results.plain[max(results.plain)].median),
            f"{results.pair_faster(R):.2f}x",
            "",
            "",
            "yes" if results.pair_faster(R) >= AIM_ROWS else "**no**",
        ]
        for R, sample in results.pair.items()
    ]
    met = "met" if results.over_ls("ferero_stochastic") <= AIM_STEP else "**not met**"
    parts = [
        "## Images with two labels",
        f"LeNet (31,910 parameters) in float32, with batches of {results.batch} images of 36 x 36 pixels "
        "(embedded digits). All numbers in this section are medians over the rounds. The first table "
        "compares the two losses and their gradients, in ms per model and step, with PyTorch modules that "
        "run sequentially with `autograd.grad` for each task; each case runs in its own process after "
        f"warming up. Aim: >= {AIM_ROWS:g}x on 2 cores, with 2 threads or with two jobs at a time "
        "(`hydra/launcher=joblib`), against modules with 2 threads. The last ratio is that of the matrix "
        "products alone, an upper bound for any method that computes these gradients with them; the share "
        "of the peak is the time of these products alone over the time of all.",
        table(
            [
                "threads",
                "R",
                "mobench ms",
                "modules ms",
                "ratio",
                "of the products",
                "share of peak",
                "aim met",
            ],
            rows,
        ),
        f"A step of {results.together} models with 2 threads. Aim: a step of Algorithm 3 (two halves of "
        f"{results.batch // 2}) costs at most {AIM_STEP:g} steps of LS: {met}. The last column is the "
        "authors' code relative to its own LS, measured by others.",
        table(["method", "ms", "over LS", "authors' code"], steps),
    ]
    if results.peak:
        gib = results.peak["mib"] / 1024
        verdict = "met" if gib < AIM_GIB else "**not met**"
        after = ", ".join(f"{name} {number(mib)}" for name, mib in results.peak["after"].items())
        parts.append(
            f"Peak memory of a fresh process with 25 models on {results.peak['pictures']:,} images "
            f"({results.peak['data']}): {gib:.2f} GiB (MiB after each stage: {after}). Aim: < {AIM_GIB:g} "
            f"GiB, {verdict}."
        )
    return parts


if __name__ == "__main__":
    _child(int(sys.argv[1]))
