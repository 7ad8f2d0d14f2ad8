"""Iterations: the batched loop on VLMOP2 at several numbers of runs, beside loops of one run at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from benchmarks import authors_style
from benchmarks.timing import Sample, Work, alternate, timed
from mobench.core import Runs, loop
from mobench.core.algorithm import Algorithm, Info
from mobench.core.compatibility import reasons
from mobench.core.oracle import Oracle, Spec
from mobench.core.output import make_output
from mobench.core.point import Point, TablePoint
from mobench.core.preferences import ray, spread
from mobench.core.sets import Free
from mobench.oracles import Exact
from mobench.problems import VLMOP2
from tests.reference import epo, ferero, ls, mgda, omd, pmtl, problems, tchebycheff

N = 20
PREFERENCES = 10
CONF = Path(__file__).parents[1] / "conf" / "algorithm"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"ferero_pgd": ("ferero", {"subproblem": "pgd"})}
"""More lines than files: name -> (file, changed options)."""

REFS = ray(spread(PREFERENCES, 2)).numpy()
PLAIN: dict[str, Callable[..., Any]] = {
    "ls": lambda P, x, w, **k: ls.run(P, x, w, **k),
    "tch": lambda P, x, w, **k: tchebycheff.tch(P, x, w, **k),
    "stch": lambda P, x, w, **k: tchebycheff.stch(P, x, w, **k),
    "mgda": lambda P, x, w, **k: mgda.run(P, x, **k),
    "pmtl": lambda P, x, w, **k: pmtl.run(P, x, w, REFS, **k),
    "epo": lambda P, x, w, **k: epo.run(P, x, w / np.linalg.norm(w), solver="linprog", **k),
    "ferero": lambda P, x, w, **k: ferero.run(P, x, _line(w), inner="exact", **k),
    "ferero_pgd": lambda P, x, w, **k: ferero.run(P, x, _line(w), inner="pgd", **k),
    "ferero_sa": lambda P, x, w, **k: ferero.run_sa(P, x, _line(w), gamma=0.5, **k),
    "omd_tch": lambda P, x, w, **k: omd.run(P, x, w, lambda_step=1.0, adaptive=False, **k),
    "ada_omd_tch": lambda P, x, w, **k: omd.run(P, x, w, lambda_step=1.0, adaptive=True, **k),
}
AUTHORS: dict[str, Callable[..., Any]] = {
    "ls": authors_style.ls,
    "tch": authors_style.tch,
    "stch": authors_style.stch,
    "mgda": authors_style.mgda,
    "pmtl": lambda x, w, **k: authors_style.pmtl(x, w, refs=REFS, **k),
    "epo": authors_style.epo,
    "ferero": authors_style.ferero,
    "ferero_pgd": authors_style.ferero,
    "ferero_sa": authors_style.ferero_sa,
    "omd_tch": authors_style.omd_tch,
    "ada_omd_tch": lambda x, w, **k: authors_style.omd_tch(x, w, adaptive=True, **k),
}


def _line(w: np.ndarray) -> Any:
    return ferero.constraints(ray(torch.from_numpy(w)).numpy())


@functools.cache
def algorithms() -> dict[str, Algorithm]:
    """Every file of conf/algorithm, and the variants."""
    files: dict[str, tuple[str, dict[str, Any]]] = {
        path.stem: (path.stem, {}) for path in sorted(CONF.glob("*.yaml"))
    }
    return {
        name: instantiate(OmegaConf.merge(OmegaConf.load(CONF / f"{file}.yaml"), changes), _convert_="all")
        for name, (file, changes) in {**files, **VARIANTS}.items()
    }


def some_runs(R: int) -> Runs:
    """R runs of the set of 10 preferences; fewer than 10 take evenly spaced ones, more take more seeds."""
    everything = Runs.product(spread(PREFERENCES, 2), list(range(max(1, R // PREFERENCES))))
    if R >= PREFERENCES:
        return everything.take(range(R))
    return everything.take([round((k + 0.5) * PREFERENCES / R - 0.5) for k in range(R)])


def batched(problem: VLMOP2, algorithm: Algorithm, R: int, steps: int) -> Work:
    """One trajectory of R runs: start outside the clock, `advance` inside."""
    runs = some_runs(R)
    theta = problem.initial(runs)

    def work(_: int) -> float:
        oracle = Exact(problem, runs)
        rules = {name: make_output(name) for name in algorithm.outputs}
        state = loop.start(oracle, algorithm, rules, theta, runs, steps)
        return timed(lambda: loop.advance(oracle, algorithm, rules, state, steps), steps)

    return work


class _Nothing(Oracle):
    """An oracle that has computed everything before."""

    def __init__(self, R: int) -> None:
        self.spec = Spec(R=R, M=2, N=0, P=N, X=Free())
        self.direction = torch.zeros(R, N, dtype=torch.float64)
        self.point = TablePoint(
            self.direction, self.spec.X, 2, {}, torch.ones(R, 2, dtype=torch.float64), lambda: None
        )  # type: ignore[arg-type, return-value]

    def at(self, theta: torch.Tensor, state: Any, t: int, k: int = 0) -> Point:
        return self.point

    def exact(self, theta: torch.Tensor) -> torch.Tensor:
        return self.point.values()


@dataclass(frozen=True, kw_only=True)
class _Idle(Algorithm):
    """An algorithm that stays where it is."""

    def step(
        self, points: tuple[Point, ...], state: Any, t: int, alpha: float
    ) -> tuple[torch.Tensor, Any, Info]:
        return points[0].x, state, Info()


def idle(R: int, steps: int) -> Work:
    """The loop with a method that does nothing."""
    runs = some_runs(R)
    oracle = _Nothing(R)
    algorithm = _Idle()

    def work(_: int) -> float:
        state = loop.start(oracle, algorithm, {}, oracle.direction, runs, steps)
        return timed(lambda: loop.advance(oracle, algorithm, {}, state, steps), steps)

    return work


def one_at_a_time(run: Callable[..., Any], problem: VLMOP2, steps: int, **options: Any) -> Work:
    """Seconds per iteration and run: the runs of R = 4, one after the other."""
    runs = some_runs(4)
    pairs = list(zip(problem.initial(runs).numpy(), runs.weights.numpy(), strict=True))

    def all_of_them() -> None:
        for x, w in pairs:
            run(x, w, steps=steps, **options)

    return lambda _: timed(all_of_them, steps * len(pairs))


@dataclass(frozen=True)
class Line:
    """One algorithm: seconds per iteration of the batch at each R, and of one run in two kinds of loops."""

    batch: dict[int, Sample]
    plain: Sample | None = None
    authors: Sample | None = None
    failed: int = 0


def measure(
    sizes: Sequence[int], steps: int, rounds: int, only: Sequence[str] | None, say: Callable[[str], None]
) -> tuple[dict[str, Line], dict[str, str]]:
    """Lines by name ("loop" is the loop alone), and why the algorithms that are not there are not."""
    problem = VLMOP2(n=N)
    reference = problems.VLMOP2(N)
    spec = Exact(problem, some_runs(1)).spec
    left_out: dict[str, str] = {}
    cases: dict[str, Work] = {f"loop {R}": idle(R, steps) for R in sizes}
    measured: dict[str, Algorithm] = {}
    for name, algorithm in algorithms().items():
        if only is not None and name not in only:
            continue
        why = reasons(spec, algorithm)
        if why:
            left_out[name] = "; ".join(why)
            continue
        measured[name] = algorithm
        cases |= {f"{name} {R}": batched(problem, algorithm, R, steps) for R in sizes}
        if name in PLAIN:
            cases[f"{name} plain"] = one_at_a_time(
                partial(PLAIN[name], reference), problem, steps, step_size=algorithm.step_size
            )
        if name in AUTHORS:
            cases[f"{name} authors"] = one_at_a_time(
                AUTHORS[name], problem, steps, step_size=algorithm.step_size
            )
    # a busy spell of the machine hits one round of everything, not one algorithm
    samples = alternate(cases, rounds)
    lines = {
        name: Line(
            {R: samples[f"{name} {R}"] for R in sizes},
            samples.get(f"{name} plain"),
            samples.get(f"{name} authors"),
            _failures(problem, measured[name], steps) if name in measured else 0,
        )
        for name in ("loop", *measured)
    }
    for name in lines:
        mine = {case.split()[1]: s for case, s in samples.items() if case.split()[0] == name}
        say(f"{name}: " + ", ".join(f"{case} {1e6 * s.least:.0f}" for case, s in mine.items()) + " us")
    return lines, left_out


def _failures(problem: VLMOP2, algorithm: Algorithm, steps: int) -> int:
    """Failed solves of the trajectory that was timed, R = 10."""
    runs = some_runs(PREFERENCES)
    oracle = Exact(problem, runs)
    state = loop.start(oracle, algorithm, {}, problem.initial(runs), runs, steps)
    return int(loop.advance(oracle, algorithm, {}, state, steps)["fail"].sum())
