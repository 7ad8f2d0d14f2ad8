"""Beside what people use today: aggregation of a Jacobian, whole jobs, and how costs grow.

Three questions that loops alone do not answer. What does one direction from a given Jacobian cost beside
TorchJD and general solvers? What does a whole job cost, from the command to its rows, beside loops in
LibMOON's style? And how do costs grow with runs, objectives and variables, beside the matrix products that
no method can leave out? All times are CPU times of one thread, the least of alternating rounds.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import loops
from benchmarks.floor import products
from benchmarks.timing import Sample, Work, alternate
from mobench import objectives
from mobench.core import Runs, loop
from mobench.core.algorithm import Algorithm
from mobench.core.gram import gram
from mobench.core.output import make_output
from mobench.core.preferences import spread
from mobench.core.served import serving
from mobench.jobs.run import run_job
from mobench.oracles import Exact
from mobench.problems import DTLZ2, VLMOP2, ZDT2
from mobench.solvers import min_norm
from tests.conftest import REPOSITORY, command, environment
from tests.test_runner import composed

EPOCHS = 1000  # of LibMOON's runs
PREFERENCES = 10
JOBS = ("ls", "tch", "stch", "mgda", "pmtl", "epo")


def cpu(work: Callable[[], object], at_least: float) -> Work:
    """CPU seconds per call, from as many calls as take about `at_least` seconds."""
    work()
    tick = time.process_time()
    work()
    calls = max(1, round(at_least / max(time.process_time() - tick, 1e-6)))

    def many(_: int) -> float:
        start = time.process_time()
        for _ in range(calls):
            work()
        return (time.process_time() - start) / calls

    return many


# aggregation of a Jacobian


@dataclass(frozen=True)
class Aggregation:
    """One direction d = J'w of R Jacobians (M, n) in float32: seconds per Jacobian, by who computes it.

    Attributes:
        aim: the most that ours may take, as a multiple of `against`; None: no aim.
        excess: by peer, |d|^2 of its answer over ours, minus 1: how far from the least norm it ends.
    """

    R: int
    M: int
    n: int
    seconds: dict[str, Sample]
    excess: dict[str, float]
    aim: tuple[float, str] | None


# R, M, n
SIZES = [(1, 2, 1000), (1, 5, 1000), (1, 10, 1000), (1, 5, 100_000), (1, 10, 100_000)]
SIZES += [(100, 2, 1000), (100, 5, 1000), (100, 10, 1000), (100, 5, 31_910), (100, 10, 31_910)]
AIMS = {(100, 5, 31_910): (1 / 3, "TorchJD, MGDA"), (100, 10, 31_910): (1 / 3, "TorchJD, MGDA")}
AIMS |= {(1, 10, 100_000): (1.3, "Gram matrix in float32 alone")}


def mgda_direction(J: Tensor) -> Tensor:
    """Ours: a certified solve on the Gram matrix in float64, then the pull."""
    w = min_norm(gram(J))[0]
    return torch.bmm(w.to(J.dtype).unsqueeze(1), J).squeeze(1)


def nnls(G: np.ndarray) -> np.ndarray:
    """Min-norm weights by SciPy's active-set NNLS: min |[1'; L] x - e_1|, then scaled to sum 1."""
    from scipy.optimize import nnls as solve

    values, vectors = np.linalg.eigh(G)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    A = np.vstack([np.ones(len(G)) * np.sqrt(np.trace(G)), root])
    b = np.zeros(len(A))
    b[0] = np.sqrt(np.trace(G))
    x = solve(A, b)[0]
    return np.asarray(x / x.sum())


def daqp_weights(G: np.ndarray) -> np.ndarray:
    """Min-norm weights by DAQP, a dual active-set solver under a permissive licence."""
    import daqp

    M = len(G)
    H = G + 1e-12 * np.trace(G) * np.eye(M)
    low = np.r_[np.zeros(M), 1.0]
    high = np.r_[np.full(M, 1e30), 1.0]
    sense = np.r_[np.zeros(M), 5].astype(np.int32)
    A = np.ones((1, M))
    return np.asarray(daqp.solve(H, np.zeros(M), A, high, low, sense)[0])


def _peers(J: Tensor) -> dict[str, Callable[[], object]]:
    """The same direction by others, for one Jacobian after the other."""
    from torchjd.aggregation import MGDA, DualProj, UPGrad

    def each(aggregator: Any) -> Callable[[], object]:
        turn = iter(range(10**9))
        return lambda: aggregator(J[next(turn) % len(J)])

    peers = {"TorchJD, MGDA": each(MGDA())}
    # these two need quadprog, whose licence (GPL) keeps it out of our requirements
    if find_spec("quadprog") and find_spec("qpsolvers"):
        peers |= {"TorchJD, UPGrad": each(UPGrad()), "TorchJD, DualProj": each(DualProj())}
    G = gram(J[:1])[0].numpy()
    peers |= {"weights alone, NNLS": lambda: nnls(G), "weights alone, DAQP": lambda: daqp_weights(G)}
    one = torch.from_numpy(G).unsqueeze(0)
    peers["weights alone, ours"] = lambda: min_norm(one)
    first = J[:1]
    peers["Gram matrix in float32 alone"] = lambda: torch.bmm(first, first.mT)
    peers["Gram matrix, ours"] = lambda: gram(first)
    return peers


def _excess(J: Tensor) -> dict[str, float]:
    from torchjd.aggregation import MGDA

    exact = J[:3].double()
    ours = torch.bmm(min_norm(gram(J[:3]))[0].unsqueeze(1), exact).squeeze(1).square().sum(-1)
    theirs = torch.stack([MGDA()(j).square().sum() for j in exact])
    by_nnls = torch.stack(
        [
            (torch.from_numpy(nnls(G)) @ j).square().sum()
            for G, j in zip(gram(J[:3]).numpy(), exact, strict=True)
        ]
    )
    answers = {"TorchJD, MGDA": theirs, "NNLS": by_nnls}
    return {name: float((value / ours - 1).max()) for name, value in answers.items()}


def aggregations(
    sizes: Sequence[tuple[int, int, int]], rounds: int, slice_s: float, say: Callable[[str], None]
) -> list[Aggregation]:
    """One line for each size."""
    out = []
    for R, M, n in sizes:
        g = torch.Generator().manual_seed(M)
        # gradients of tasks share a part, as those of a network do
        J = torch.randn(R, M, n, generator=g) + torch.randn(R, 1, n, generator=g)
        cases: dict[str, Callable[[], object]] = {"mobench, MGDA": lambda J=J: mgda_direction(J)}
        cases |= _peers(J)
        samples = alternate({name: cpu(work, slice_s) for name, work in cases.items()}, rounds)
        whole = samples["mobench, MGDA"]
        samples["mobench, MGDA"] = Sample(tuple(x / R for x in whole.rounds))
        line = Aggregation(R, M, n, samples, _excess(J), AIMS.get((R, M, n)))
        out.append(line)
        times = ", ".join(f"{name} {1e6 * s.least:.0f}" for name, s in samples.items())
        say(f"aggregation R={R} M={M} n={n}, us: {times}")
    return out


# whole jobs


@dataclass(frozen=True)
class WholeJob:
    """Seconds of CPU for 10 preferences x 1000 epochs.

    warm: of a job in a process that runs already; command: from its start; loop: of the job's loop alone;
    style: of a loop in LibMOON's style.
    """

    warm: Sample
    command: float
    loop: Sample
    style: Sample


def _trajectory(problem: Any, algorithm: Algorithm, R: int, steps: int) -> Work:
    """CPU seconds of a step of R runs: start outside the clock, `advance` inside."""
    runs = loops.some_runs(R)
    theta = problem.initial(runs)

    def one(_: int) -> float:
        oracle = Exact(problem, runs)
        rules = {name: make_output(name) for name in algorithm.outputs}
        state = loop.start(oracle, algorithm, rules, theta, runs, steps)
        tick = time.process_time()
        loop.advance(oracle, algorithm, rules, state, steps)
        return (time.process_time() - tick) / steps

    return one


def _style(name: str, epochs: int) -> Work:
    """An epoch takes one preference after the other, with one backward per objective."""
    runs = loops.some_runs(PREFERENCES)
    pairs = list(zip(VLMOP2(n=loops.N).initial(runs).numpy(), runs.weights.numpy(), strict=True))

    def one(_: int) -> float:
        tick = time.process_time()
        for x, w in pairs:
            loops.AUTHORS[name](x, w, steps=epochs)
        return (time.process_time() - tick) * EPOCHS / epochs

    return one


def _loop(name: str) -> Work:
    one = _trajectory(VLMOP2(n=loops.N), loops.algorithms()[name], PREFERENCES, EPOCHS)
    return lambda turn: one(turn) * EPOCHS


def _arguments(name: str) -> list[str]:
    arguments = ["problem=vlmop2", f"algorithm={name}", f"preferences={PREFERENCES}", f"steps={EPOCHS}"]
    arguments.append("problem.start.per_preference=true")
    return [*arguments, "seeds=[0]", "record.every=100", "logger=local", "progress=false", "rerun=true"]


def _warm(name: str, root: Path) -> Work:
    def one(_: int) -> float:
        tick = time.process_time()
        outcome = run_job(composed(*_arguments(name)), root)
        assert outcome.status == "done", outcome.error
        return time.process_time() - tick

    return one


def _whole_command(name: str, root: Path, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        before = os.times()
        subprocess.run(
            command(*_arguments(name)), env=environment(root), cwd=REPOSITORY, capture_output=True, check=True
        )
        after = os.times()
        times.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    return min(times)


def whole_jobs(
    names: Sequence[str], rounds: int, epochs: int, say: Callable[[str], None]
) -> dict[str, WholeJob]:
    """By method; loops in LibMOON's style run a few epochs, and are multiplied."""
    out = {}
    with tempfile.TemporaryDirectory(prefix="mobench-peers-") as folder:
        root = Path(folder)
        for name in names:
            cases = {"warm": _warm(name, root), "loop": _loop(name), "style": _style(name, epochs)}
            samples = alternate(cases, rounds)
            started = _whole_command(name, root, min(rounds, 3))
            out[name] = WholeJob(samples["warm"], started, samples["loop"], samples["style"])
            times = ", ".join(f"{key} {s.least:.3f}" for key, s in samples.items())
            say(f"whole job {name}, s: {times}, from its command {started:.2f}")
    return out


# single steps with aims


@dataclass(frozen=True)
class Step:
    """Microseconds of one step of a whole batch, and the aim."""

    title: str
    seconds: Sample
    aim: float  # seconds


def _steps_of(problem: Any, algorithm: str, R: int, steps: int) -> Work:
    return _trajectory(problem, loops.algorithms()[algorithm], R, steps)


def _user_function(steps: int) -> Work:
    """A user's own function of x, linear scalarization, one run."""

    def f(x: Tensor) -> Tensor:
        c = 1.0 / len(x) ** 0.5
        return torch.stack([1 - torch.exp(-(x - c).square().sum()), 1 - torch.exp(-(x + c).square().sum())])

    problem_of_user = objectives(f, dim=loops.N)
    from mobench.problems.own import Own

    keys = {key: value for key, value in problem_of_user.keys.items() if key != "code"}
    with serving("benchmark", problem_of_user.functions):
        problem = Own(code="benchmark", **keys)
    return _trajectory(problem, loops.algorithms()["ls"], 1, steps)


def single_steps(steps: int, rounds: int, quick: bool, say: Callable[[str], None]) -> list[Step]:
    """The rows of steps that have an aim of their own."""
    vlmop2 = VLMOP2(n=loops.N)
    cases: dict[str, tuple[Work, float]] = {
        "FERERO on VLMOP2, R = 4": (_steps_of(vlmop2, "ferero", 4, steps), 50e-6),
        "FERERO on VLMOP2, R = 100": (_steps_of(vlmop2, "ferero", 100, steps), 60e-6),
        "FERERO on VLMOP2, R = 1000": (_steps_of(vlmop2, "ferero", 1000, steps), 200e-6),
        "CSMOO-2 on ZDT2, which has a box, R = 100": (_steps_of(ZDT2(), "csmoo2", 100, steps), 5e-3),
        "linear scalarization of a user's own function, R = 1": (_user_function(steps), 100e-6),
    }
    if quick:
        cases = dict(list(cases.items())[:1])
    samples = alternate({name: work for name, (work, _) in cases.items()}, rounds)
    for name, sample in samples.items():
        say(f"step of {name}: {1e6 * sample.least:.0f} us")
    return [Step(name, samples[name], aim) for name, (_, aim) in cases.items()]


# how costs grow


@dataclass(frozen=True)
class Law:
    """Seconds per step against one size, for some methods and for the products of linear scalarization."""

    size: str
    at: list[int]
    seconds: dict[str, list[float]]
    fixed: str


LAW = ("ls", "mgda", "ferero", "epo", "csmoo2")


def _runs(R: int, M: int) -> Runs:
    lam = spread(PREFERENCES, M)
    return Runs.product(lam, list(range(-(-R // len(lam))))).take(range(R))


def _cost(problem: Any, name: str, R: int, M: int, steps: int) -> float:
    runs = _runs(R, M)
    oracle = Exact(problem, runs)
    algorithm = loops.algorithms()[name]
    state = loop.start(oracle, algorithm, {}, problem.initial(runs), runs, 3 * steps)
    state = loop.advance(oracle, algorithm, {}, state, steps)
    tick = time.process_time()
    loop.advance(oracle, algorithm, {}, state, 3 * steps)
    return (time.process_time() - tick) / (2 * steps)


def _floor(problem: Any, R: int, M: int) -> float:
    """Returns the CPU time of the products of a step: a Gram matrix and a vector-Jacobian product."""
    J = torch.randn(R, M, problem.initial(_runs(1, M)).shape[1], dtype=torch.float64)
    w = torch.rand(R, 1, M, dtype=torch.float64)
    again = products(lambda: (torch.bmm(J, J.mT), torch.bmm(w, J)))
    return cpu(again, 0.02)(0)


def laws(quick: bool, say: Callable[[str], None]) -> list[Law]:
    """In R on VLMOP2, in M on DTLZ2, in n on VLMOP2."""
    sizes = {
        "R": ([1, 10] if quick else [1, 10, 100, 1000, 10_000], "VLMOP2, M = 2, n = 20"),
        "M": ([2, 3] if quick else [2, 3, 5, 10, 20, 50], "DTLZ2, R = 10, n = M + 9"),
        "n": ([20, 200] if quick else [20, 1000, 30_000, 1_000_000], "VLMOP2, M = 2, R = 10"),
    }
    out = []
    for size, (at, fixed) in sizes.items():
        seconds: dict[str, list[float]] = {name: [] for name in ("products", *LAW)}
        for k in at:
            R, M, n = {"R": (k, 2, 20), "M": (10, k, 20), "n": (10, 2, k)}[size]
            problem = DTLZ2(M=k, n=k + 9) if size == "M" else VLMOP2(n=n)
            seconds["products"].append(_floor(problem, R, M))
            for name in LAW:
                # a step of a second is not repeated often
                steps = 1 if R * n > 2e5 or M > 20 else 5
                skip = name == "csmoo2" and (R * n > 1e6 or M > 20)
                seconds[name].append(float("nan") if skip else _cost(problem, name, R, M, steps))
            costs = ", ".join(f"{name} {1e6 * values[-1]:.0f}" for name, values in seconds.items())
            say(f"cost law {size} = {k}, us: {costs}")
        out.append(Law(size, list(at), seconds, fixed))
    return out


@dataclass(frozen=True)
class Peers:
    """All of it."""

    aggregations: list[Aggregation]
    jobs: dict[str, WholeJob]
    steps: list[Step]
    laws: list[Law]


def measure(rounds: int, quick: bool, say: Callable[[str], None]) -> Peers:
    """Everything of this module."""
    torch.set_num_threads(1)
    sizes = SIZES[:2] if quick else SIZES
    lines = aggregations(sizes, rounds, 0.001 if quick else 0.05, say)
    jobs = whole_jobs(["ls"] if quick else list(JOBS), min(rounds, 4), 2 if quick else 50, say)
    steps = single_steps(2 if quick else 100, rounds, quick, say)
    return Peers(lines, jobs, steps, laws(quick, say))


# the page


def aims(peers: Peers) -> list[tuple[str, float, float]]:
    """The measurements over their aims, and the aims; the worst first, and above 1 an aim is missed."""
    lines = [
        (f"step of {step.title}: at most {1e6 * step.aim:g} us", step.seconds.least / step.aim, step.aim)
        for step in peers.steps
    ]
    for line in peers.aggregations:
        if line.aim is not None:
            share, against = line.aim
            ours = "Gram matrix, ours" if "Gram" in against else "mobench, MGDA"
            ratio = line.seconds[ours].least / (share * line.seconds[against].least)
            what = f"{ours} at R = {line.R}, M = {line.M}, n = {line.n:,}"
            lines.append((f"{what}: at most {share:.2g} times {against}", ratio, share))
    return sorted(lines, key=lambda line: -line[1])


def markdown(
    results: Peers, table: Callable[..., str], number: Callable[[float], str], figure: str
) -> list[str]:
    """The section of docs/performance.md that comes first."""
    worst = [[what, f"{ratio:.2f}", "yes" if ratio <= 1.0 else "**no**"] for what, ratio, _ in aims(results)]
    peers = list(dict.fromkeys(name for line in results.aggregations for name in line.seconds))
    rows = [
        [str(line.R), str(line.M), f"{line.n:,}", *[_us(line.seconds.get(name), number) for name in peers]]
        for line in results.aggregations
    ]
    exact = max((line.excess["TorchJD, MGDA"] for line in results.aggregations), default=float("nan"))
    jobs = [
        [
            name,
            number(1e3 * job.loop.least),
            number(1e3 * job.warm.least),
            number(1e3 * job.command),
            number(1e3 * job.style.least),
            f"{number(job.style.least / job.warm.least)}x",
        ]
        for name, job in results.jobs.items()
    ]
    return [
        "## What was asked for, the worst first",
        "Measured over what was asked: above 1 is missed. CPU times of one thread.",
        table(["what", "measured / aim", "met"], worst),
        "## How costs grow",
        f"![Cost of a step against runs, objectives and variables]({figure})",
        "CPU time of one step of the whole batch without recording, beside the matrix products that remain "
        "when everything else is free (grey): the Gram matrix of a Jacobian of these sizes and one "
        "vector-Jacobian product with it.",
        "## One direction from a Jacobian, beside TorchJD and general solvers",
        "Microseconds of CPU time for each Jacobian (float32; the tasks share a part of their gradients), at "
        "R = 100 in one batch by mobench and one after the other by all others. *Weights alone* start from "
        "the Gram matrix. Ours solve in float64 and return a certificate; the squared length of TorchJD's "
        f"MGDA direction exceeds the least one by up to a share of {exact:.0e}. TorchJD's UPGrad and "
        "DualProj need quadprog (GPL) and are measured only where somebody has installed it.",
        table(["R", "M", "n", *peers], rows),
        "## Whole jobs, beside loops in LibMOON's style",
        f"{PREFERENCES} preferences x {EPOCHS} epochs on VLMOP2, CPU milliseconds: the loop without "
        "recording, the whole job in a process that runs already (configuration, loop, rows, certificate, "
        "provenance), and the whole command from its start. *Style* is our loop in LibMOON's manner (one "
        "preference after the other, one backward per objective), extrapolated from a few epochs; "
        "`python -m benchmarks.libmoon` measures LibMOON itself where somebody has it.",
        table(
            ["method", "loop", "job", "command", "style", "style / job"],
            jobs,
        ),
    ]


def _us(sample: Sample | None, number: Callable[[float], str]) -> str:
    return "–" if sample is None else number(1e6 * sample.least)


def as_json(results: Peers) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "asked": [{"what": what, "over_aim": ratio} for what, ratio, _ in aims(results)],
        "aggregations": [
            {
                "R": line.R,
                "M": line.M,
                "n": line.n,
                "seconds": {name: s.least for name, s in line.seconds.items()},
                "excess": line.excess,
            }
            for line in results.aggregations
        ],
        "jobs": {
            name: {
                "loop": job.loop.least,
                "warm": job.warm.least,
                "command": job.command,
                "style": job.style.least,
            }
            for name, job in results.jobs.items()
        },
        "steps": {step.title: {"seconds": step.seconds.least, "aim": step.aim} for step in results.steps},
        "laws": [
            {
                "size": law.size,
                "at": law.at,
                "fixed": law.fixed,
                "seconds": {n: [x if x == x else None for x in values] for n, values in law.seconds.items()},
            }
            for law in results.laws
        ],
    }


def _short(k: int) -> str:
    """Writes a number with k or M: 50, 30k, 1M."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if k >= unit:
            return f"{k // unit}{letter}"
    return str(k)


def draw(results: Peers, path: Path) -> None:
    """The cost law: three panels, one for each size, on logarithmic axes."""
    from matplotlib import pyplot as plt

    from mobench.artifacts import style

    titles = {"R": "runs R", "M": "objectives M", "n": "variables n"}
    figure, axes = plt.subplots(1, 3, figsize=(7, 2.9), layout="constrained", sharey=True)
    colours = dict(zip(LAW, style.CYCLE, strict=False))
    names = {"ls": "LS", "mgda": "MGDA", "ferero": "FERERO", "epo": "EPO", "csmoo2": "CSMOO-2"}
    for ax, law in zip(axes, results.laws, strict=True):
        for name, values in law.seconds.items():
            points = [(k, 1e6 * x) for k, x in zip(law.at, values, strict=True) if x == x]
            if name == "products":
                ax.plot(
                    *zip(*points, strict=True), color=style.GREY, lw=2.2, alpha=0.6, label="products alone"
                )
            else:
                ax.plot(*zip(*points, strict=True), "o-", ms=3, color=colours[name], label=names[name])
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(law.at, [_short(k) for k in law.at])
        ax.minorticks_off()
        ax.set_title(f"{titles[law.size]}\n({law.fixed})", fontsize=8)
        ax.grid(alpha=0.25, lw=0.5)
    axes[0].set_ylabel("µs per step of the batch")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=7.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
