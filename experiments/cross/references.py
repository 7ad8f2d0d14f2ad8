"""Reference fronts of the comparison's problems, and the best that few of their points attain.

    python -m experiments.cross.references [PROBLEM...]

computes experiments/results/cross/references.npz again, for these problems or for all.

Fronts are those that a problem knows in closed form. For `ball`, whose instances belong to seeds, they are
minimisers of weighted sums under the constraints, by SciPy's SLSQP: all its functions are convex, so that
weighted sums reach every point of the front. Those of networks are not known; what weighted sums reach with
ten times the budget of the board stands for them.
"""

from __future__ import annotations

import functools
import io
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import moocore
import numpy as np
import torch
from scipy.optimize import minimize

from mobench.comparison import rows
from mobench.comparison.measures import Reference
from mobench.comparison.trials import STUDIES, reported_seeds, tuning_seeds
from mobench.core.preferences import Runs, simplex_grid
from mobench.core.problem import Problem
from mobench.core.sampled import BatchGradients
from mobench.core.seeds import PerSeed
from mobench.core.truth import KnownFront
from mobench.errors import StoreError
from mobench.sweep import grid
from mobench.system.files import write_atomic

FINE = 1000  # points of a front of two objectives
COARSE = 500  # of more
WEIGHTS = 9  # steps of the grid of weights where a front is computed
FILE = "references.npz"
# of the runs that stand for the front of a network
LONGER = 10  # times the budget of the board
SHARES = [round(0.05 + 0.09 * i, 2) for i in range(11)]  # weights of the first objective
SIZES = [0.05, 0.1, 0.2, 0.4]  # of the steps
SEED = 3000  # which no study and no replication uses


@functools.cache
def stored() -> dict[str, np.ndarray]:
    """Returns the contents of the file: `<problem>.<count>` the best volume, `ball.<seed>` a front."""
    path = rows.folder() / FILE
    if not path.exists():
        return {}
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def front_of(problem: Problem, name: str, seed: int) -> np.ndarray:
    """Points of the reference front of a problem (n, M).

    Raises:
        StoreError: none is known, and none is stored.
    """
    if isinstance(problem, PerSeed):
        key = f"{name}.{seed}"
        if key not in stored():
            raise StoreError(
                f"No reference front of {name} with seed {seed} is stored; run python -m "
                "experiments.cross.references."
            )
        return stored()[key].astype(float)
    if name in stored():
        return stored()[name].astype(float)
    if isinstance(problem, KnownFront):
        front = problem.front(FINE if problem.n_objectives == 2 else COARSE)
        if front is not None:
            return front.double().numpy()
    raise StoreError(f"No reference front of {name} is known: its class has no `front`, and none is stored.")


def nadir_of(problem: Problem) -> np.ndarray | None:
    """The uniform guess of a network, which is its problem's reference point; None: that of the front."""
    return np.array(problem.ref_point) if isinstance(problem, BatchGradients) else None


class References:
    """The reference of each problem and seed, made once, with the best volume of a number of points."""

    def __init__(self) -> None:
        self._made: dict[str, Reference] = {}
        self._best: dict[tuple[str, int], float] = {}

    def of(self, problem: Problem, name: str, seed: int) -> tuple[str, Reference]:
        """The reference of a problem and seed, and what it is called."""
        key = f"{name}.{seed}" if isinstance(problem, PerSeed) else name
        if key not in self._made:
            self._made[key] = Reference(front_of(problem, name, seed), nadir_of(problem))
        return key, self._made[key]

    def best(self, key: str, count: int) -> float:
        if (key, count) not in self._best:
            volume = stored().get(f"best.{key}.{count}")
            self._best[key, count] = self._made[key].best(count) if volume is None else float(volume)
        return self._best[key, count]


def ball_front(problem: Any, seed: int) -> np.ndarray:
    """The front of one instance of BallAndHalfSpace, (n, M)."""
    runs = Runs(torch.ones(1, 3), torch.tensor([seed]), torch.zeros(1, dtype=torch.int64), torch.ones(1, 3))
    bound = problem.bind(runs)
    M = problem.n_objectives

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, jacobian, _ = bound.linearize(torch.from_numpy(x)[None])
        return values[0].numpy(), jacobian()[0].numpy()

    out = []
    x = np.zeros(problem.dim)
    for w in simplex_grid(WEIGHTS, M).clamp_min(1e-3).numpy():

        def value(x: np.ndarray, w: np.ndarray = w) -> float:
            return float(w @ at(x)[0][:M])

        def slope(x: np.ndarray, w: np.ndarray = w) -> np.ndarray:
            out: np.ndarray = w @ at(x)[1][:M]
            return out

        inside = {
            "type": "ineq",
            "fun": lambda x: -at(x)[0][M:],
            "jac": lambda x: -at(x)[1][M:],
        }
        solution = minimize(
            value, x, jac=slope, constraints=[inside], method="SLSQP", options={"maxiter": 200, "ftol": 1e-12}
        )
        if solution.success and at(solution.x)[0][M:].max() < 1e-8:
            out.append(at(solution.x)[0][:M])
    return np.array(out)


def trained_front(overrides: Sequence[str], budget: int) -> np.ndarray:
    """Returns the points that stand for the front of a network's objectives, (n, M) with M = 2.

    The nondominated ends of weighted sums with `LONGER` times the budget, for each weight and step size.

    Args:
        overrides: of the board and the problem.
        budget: gradients for each function, of the board.
    """
    from mobench.config import compose
    from mobench.jobs.build import make_job
    from mobench.jobs.run import run
    from mobench.jobs.store import JobFolder, columns

    weights = ",".join(f"[{w},{round(1 - w, 2)}]" for w in SHARES)
    settings = [
        "algorithm=ls",
        f"preferences.weights=[{weights}]",
        f"vary.step_size={SIZES}".replace(" ", ""),
        f"seeds=[{SEED}]",
        f"steps={2 * LONGER * budget}",
        "record.every=0",
        "record.measures=false",
        "max_failure_share=1.0",
        "logger=local",
    ]
    job = make_job(compose.compose(grid.last([*overrides, *settings])))
    with tempfile.TemporaryDirectory() as folder:
        done = run(job, Path(folder))
        if done.status != "done":
            raise StoreError(f"The runs of the reference front did not finish: {done.error}")
        final = JobFolder(done.folder).final()
    ends = final[columns(final, "f_")].to_numpy(dtype=float)[(final["status"] == "done").to_numpy()]
    front: np.ndarray = ends[moocore.is_nondominated(ends)]
    return front


def compute(
    problems: Mapping[str, tuple[Problem, Sequence[int]]],
    replications: Sequence[int],
    trained: Mapping[str, tuple[Sequence[str], int]],
) -> None:
    """Computes and writes the file.

    Args:
        problems: by name, each with the numbers of points whose best volume is stored.
        replications: whose seeds have fronts of their own.
        trained: overrides and budget of each problem whose front is that of `trained_front`.
    """
    seeds = [s for r in replications for s in reported_seeds(r)]
    seeds += [s for r in replications for k in STUDIES for s in tuning_seeds(k, r)]
    arrays = dict(stored())
    for name, (problem, counts) in problems.items():
        fronts: dict[str, np.ndarray | None] = {name: None}
        if name in trained:
            arrays[name] = trained_front(*trained[name]).astype(np.float32)
            fronts = {name: arrays[name].astype(float)}
        if isinstance(problem, PerSeed):
            for seed in seeds:
                arrays[f"{name}.{seed}"] = ball_front(problem, seed).astype(np.float32)
            fronts = {f"{name}.{seed}": arrays[f"{name}.{seed}"].astype(float) for seed in seeds}
        for key, points in fronts.items():
            reference = Reference(front_of(problem, name, 0) if points is None else points, nadir_of(problem))
            for count in counts:
                arrays[f"best.{key}.{count}"] = np.array(reference.best(count))
        print(name, len(arrays), flush=True)
    path = rows.folder() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomic(path, buffer.getvalue())


def main(names: Sequence[str]) -> None:
    from mobench.config import compose
    from mobench.jobs.build import make_job

    from .table import boards_of, problems_of

    problems: dict[str, tuple[Problem, list[int]]] = {}
    trained: dict[str, tuple[list[str], int]] = {}
    for board, node in boards_of().items():
        for name, overrides in problems_of(board).items():
            job = make_job(compose.compose(grid.last([*node["all"], *overrides, "algorithm=csmoo2"])))
            if isinstance(job.problem, BatchGradients):
                trained[name] = [*node["all"], *overrides], int(node["budget"])
            _, counts = problems.setdefault(name, (job.problem, []))
            counts += [len(job.runs.all)] if len(job.runs.all) not in counts else []
    if unknown := set(names) - set(problems):
        raise SystemExit(f"unknown problems: {', '.join(sorted(unknown))}; known are {', '.join(problems)}.")
    compute({name: problems[name] for name in names or problems}, (0, 1), trained)


if __name__ == "__main__":
    main(sys.argv[1:])
