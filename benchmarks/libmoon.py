"""Whole jobs beside LibMOON itself: `python -m benchmarks.libmoon FOLDER [--rounds 3]`.

FOLDER holds the package `libmoon` with its solvers `libmoon.solver.gradient`, such as the unpacked source of
release 0.1.11 (those of 0.2 have none); what they import (cvxopt, pymoo) is installed beside mobench.
10 preferences x 1000 steps in 10 variables: CPU time of LibMOON's `solve` and of `mobench.run`, from the call
to the answer, in two processes that run already and take turns, for VLMOP2 and for the same losses as
functions of one's own, from the same starts and with the same weights. (Those releases call VLMOP2 VLMOP1.)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

METHODS = {  # algorithm of mobench: LibMOON's solver and its scalarization
    "ls": ("GradAggSolver", "ls"),
    "tch": ("GradAggSolver", "tche"),
    "mgda": ("MGDASolver", ""),
    "pmtl": ("PMTLSolver", ""),
    "epo": ("EPOSolver", ""),
}
STEP = 0.1
N = 10
WEIGHTS = [[w, 1.0 - w] for w in np.linspace(0.01, 0.99, 10).round(12).tolist()]
START = {"kind": "uniform", "low": -0.5, "high": 0.5, "per_preference": True, "scale": None, "noise": None}
PLACE = 1.0 / N**0.5


def starts(seed: int) -> torch.Tensor:
    return torch.rand(len(WEIGHTS), N, generator=torch.Generator().manual_seed(seed)) - 0.5


def losses(x: torch.Tensor) -> torch.Tensor:
    """VLMOP2."""
    return 1.0 - torch.exp(-torch.stack([(x - PLACE).square().sum(-1), (x + PLACE).square().sum(-1)], -1))


def work(steps: int) -> None:
    """Reads methods and seeds from stdin, runs LibMOON's solvers and prints seconds and losses."""
    from types import SimpleNamespace

    from libmoon.solver import gradient  # type: ignore[import-not-found]
    from libmoon.util_global.constant import problem_dict  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    probe = starts(0)
    both = {name: problem_dict[name] for name in ("VLMOP1", "VLMOP2")}
    (name,) = (n for n, p in both.items() if torch.allclose(p.evaluate(probe), losses(probe), atol=1e-5))
    for line in sys.stdin:
        method, seed = json.loads(line)
        solver, scalarization = METHODS[method]
        x = starts(seed)
        args = SimpleNamespace(problem_name=name, n_obj=2, n_var=N, n_prob=len(WEIGHTS), agg=scalarization)
        began = time.process_time()
        answer = getattr(gradient, solver)(STEP, steps, 1e-6).solve(both[name], x, np.array(WEIGHTS), args)
        print(json.dumps([time.process_time() - began, answer["y"].tolist()]), flush=True)


def job(method: str, seed: int, steps: int, user_functions: bool) -> tuple[float, list[list[float]]]:
    """Returns the seconds of a job, and its losses."""
    import mobench

    options: dict[str, Any] = {"problem.n": N, "problem.start": START}
    problem: Any = "vlmop2"
    began = time.process_time()
    if user_functions:
        place = starts(seed).double().tolist()
        problem = mobench.objectives(losses, dim=N, positive=True, ideal=[0.0, 0.0], start=place)
        options = {}
    rows = mobench.run(
        problem=problem,
        algorithm=method,
        steps=steps,
        seeds=[seed],
        progress=False,
        logger="local",
        rerun=True,
        **{"algorithm.step_size": STEP, "preferences.weights": WEIGHTS, **options},
    )
    return time.process_time() - began, rows[["f_1", "f_2"]].to_numpy().tolist()


def line_of(method: str, turns: list[list[Any]]) -> str:
    """Returns a line of the table; hypervolumes of the ends of the first two, reference point (1, 1)."""
    from mobench.metrics import hypervolume

    seconds = [[one[0] for one in each] for each in zip(*turns, strict=True)]
    ends = [np.mean([hypervolume(np.array(turn[k][1]), (1.0, 1.0)) for turn in turns]) for k in (0, 1)]
    cells = [method, f"{min(seconds[0]):.3g} ({median(seconds[0]):.3g})"]
    for ours in seconds[1:]:
        cells.append(f"{min(ours):.3g} ({median(ours):.3g})")
        cells.append(f"{min(seconds[0]) / min(ours):.1f} ({median(seconds[0]) / median(ours):.1f})")
    return f"| {' | '.join([*cells, f'{ends[0]:.4f}, {ends[1]:.4f}'])} |"


def main() -> None:
    """Prints the least and median times, their ratios, and the hypervolumes of the ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libmoon", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", default=",".join(METHODS), help="comma-separated methods")
    chosen = parser.parse_args()
    paths = os.pathsep.join((str(chosen.folder.absolute()), str(Path(__file__).absolute().parents[1])))
    line = [sys.executable, "-m", "benchmarks.libmoon", "--work", str(chosen.steps)]
    print("| method | LibMOON, s: least (median) | own functions | ratio | VLMOP2 | ratio | hypervolumes |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    with TemporaryDirectory(prefix="mobench-libmoon-") as folder:
        os.environ |= {"OMP_NUM_THREADS": "1", "MOBENCH_OUTPUTS": folder}
        with subprocess.Popen(
            line,
            env=os.environ | {"PYTHONPATH": paths, "TQDM_DISABLE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            for method in chosen.only.split(","):
                for user_functions in (True, False):  # compiled solvers are loaded
                    job(method, 1000, 10, user_functions)
                turns: list[list[Any]] = []
                for seed in range(chosen.rounds):
                    print(json.dumps([method, seed]), file=other.stdin, flush=True)
                    if not (answer := other.stdout.readline()):
                        sys.exit(f"LibMOON's process ended (its error stands above): {chosen.folder}")
                    theirs = json.loads(answer)
                    ours = [
                        job(method, seed, chosen.steps, user_functions) for user_functions in (True, False)
                    ]
                    turns.append([theirs, *ours])
                print(line_of(method, turns), flush=True)
            other.stdin.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(int(sys.argv[2]))
    else:
        main()
