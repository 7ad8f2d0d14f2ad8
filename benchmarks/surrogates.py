"""CSMOO's surrogate: milliseconds per solve along real trajectories, beside CVXPY and CLARABEL.

Solves are warm-started; CVXPY has a DPP program, and CLARABEL is also called alone on the same matrices.
Both peers get programs whose data are scaled and, for CLARABEL alone, assembled beforehand: what is timed
is theirs, nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from benchmarks.timing import Sample, alternate, repeated
from mobench.algorithms.csmoo import CSMOO1
from mobench.algorithms.csmoo2 import CSMOO2
from mobench.core import loop
from mobench.core.output import Last
from mobench.core.preferences import Runs
from mobench.oracles import EMA, Minibatch
from mobench.problems import PLS, ConstrainedGaussian
from mobench.solvers import reference
from mobench.solvers.surrogate import Surrogate, solve_surrogate

Step = tuple[Surrogate, Tensor]
# steps before the recorded ones, and how many are recorded
BURN_IN = 50
SPAN = 40
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]] = {
    "synthetic, CSMOO-1": (ConstrainedGaussian, CSMOO1, 1),
    "synthetic, CSMOO-2": (ConstrainedGaussian, CSMOO2, 1),
    "beamforming, CSMOO-1": (PLS, lambda: CSMOO1(tau=0.055), 4),
    "beamforming, CSMOO-2": (PLS, lambda: CSMOO2(tau=0.055, beta=10.0), 4),
}


def recorded(case: str, R: int, steps: int = SPAN) -> list[Step]:
    """Consecutive surrogates of R runs and the multipliers that each starts from."""
    problem = CASES[case][0]()
    algorithm = CASES[case][1]()
    batch = CASES[case][2]
    U = min(R, 5)
    lam = (
        torch.linspace(0.1, 0.9, U, dtype=torch.float64)
        if U > 1
        else torch.tensor([0.5], dtype=torch.float64)
    )
    runs = Runs.product(torch.stack([lam, 1 - lam], 1), list(range(-(-R // U))))
    runs = runs.take(range(R))
    oracle = EMA(problem, runs, Minibatch(problem, runs, batch_size=batch))
    rules = {"last": Last()}
    state = loop.start(oracle, algorithm, rules, problem.initial(runs), runs, BURN_IN + steps)
    out: list[Step] = []

    def keep(t: int, now: dict[str, Any], point: Any) -> None:
        if t >= BURN_IN:
            out.append((algorithm._program(point, now["alg"]), now["alg"]["mu"].clone()))

    loop.advance(oracle, algorithm, rules, state, BURN_IN + steps, keep)
    return out


@dataclass(frozen=True)
class Row:
    """Seconds per solve: of the whole batch at each R, warm and cold, and of one program by the peers.

    The peers are CVXPY and CLARABEL alone; the largest difference is to their answers.
    """

    case: str
    warm: dict[int, Sample]
    cold: dict[int, Sample]
    cvxpy: Sample
    clarabel: Sample
    difference: float


def _along(steps: Sequence[Step], warm: bool) -> Callable[[], None]:
    turn = iter(range(10**9))

    def one() -> None:
        program, mu = steps[next(turn) % len(steps)]
        solve_surrogate(program, mu if warm else None)

    return one


def _by_cvxpy(steps: Sequence[Step]) -> Callable[[], None]:
    programs = [reference.scaled_surrogate(program) for program, _ in steps]
    turn = iter(range(10**9))

    def one() -> None:
        program = programs[next(turn) % len(programs)]
        program.compiled.solve(**program.values)

    return one


def by_clarabel(steps: Sequence[Step]) -> Callable[[], None]:
    """CLARABEL on the matrices that CVXPY assembles, at CVXPY's tolerances."""
    import clarabel
    from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import dims_to_solver_cones

    programs = []
    for step, _ in steps:
        program = reference.scaled_surrogate(step)
        for name, parameter in program.compiled.parameters.items():
            parameter.value = program.values[name]
        data = program.compiled.problem.get_problem_data("CLARABEL")[0]
        n = len(data["c"])
        P = sparse.triu(data["P"]).tocsc() if data.get("P") is not None else sparse.csc_array((n, n))
        programs.append((P, data["c"], data["A"], data["b"], dims_to_solver_cones(data["dims"])))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    for name, value in reference.CLARABEL.items():
        setattr(settings, name, value)
    turn = iter(range(10**9))

    def one() -> None:
        clarabel.DefaultSolver(*programs[next(turn) % len(programs)], settings).solve()

    return one


def measure(
    cases: Sequence[str], sizes: Sequence[int], rounds: int, slice_s: float, say: Callable[[str], None]
) -> list[Row]:
    """One row per case."""
    rows = []
    for case in cases:
        data = {R: recorded(case, R) for R in sizes}
        single = data[sizes[0]] if sizes[0] == 1 else recorded(case, 1)
        difference = 0.0
        for program, mu in single[:5]:
            ours = solve_surrogate(program, mu)
            theirs = reference.solve_surrogate(program)
            difference = max(difference, float((ours.dx - theirs.dx).abs().max()))
        timed = {f"warm {R}": repeated(_along(steps, True), slice_s) for R, steps in data.items()}
        timed |= {f"cold {R}": repeated(_along(steps, False), slice_s) for R, steps in data.items()}
        timed |= {"cvxpy": repeated(_by_cvxpy(single), slice_s)}
        timed |= {"clarabel": repeated(by_clarabel(single), slice_s)}
        samples = alternate(timed, rounds)
        warm = {R: samples[f"warm {R}"] for R in sizes}
        cold = {R: samples[f"cold {R}"] for R in sizes}
        rows.append(Row(case, warm, cold, samples["cvxpy"], samples["clarabel"], difference))
        say(
            f"{case}: "
            + ", ".join(f"R={R} {1e6 * warm[R].least / R:.3g} us/run" for R in sizes)
            + f", cvxpy {1e6 * samples['cvxpy'].least:.0f} us, clarabel alone "
            f"{1e6 * samples['clarabel'].least:.0f} us, difference {difference:.0e}"
        )
    return rows
