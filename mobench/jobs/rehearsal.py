"""A rehearsal of a job with code of the user's own, on a few of its runs, before the first step.

It checks shapes against what the loop does with them, and that the runs are independent: each of the few runs
alone must give the values, gradients, measures and steps that it gives beside the others, from starts moved
by 1e-2 N(0, I), since equal starts would hide a mean over runs.

mobench's own parts are not rehearsed: tests compare them, in all pairs. The cost is that of some twenty steps
of these runs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core import loop
from mobench.core.algorithm import Algorithm, Info, Weighting
from mobench.core.oracle import Oracle
from mobench.core.point import Point
from mobench.core.preferences import Runs
from mobench.core.random import generator
from mobench.errors import ConfigError, MobenchError
from mobench.jobs.job import Job
from mobench.jobs.store import OF_ALL_ROWS
from mobench.jobs.targets import LAYERS

MOST = 3  # runs at once
STEPS = 2  # a state that mixes the runs shows in the second
SHIFT = 1e-2
ROUNDING = 100.0  # a difference counts beyond so many times what rounding of the start does
FUNCTIONS = ("problem", "oracle", *LAYERS)

Parts = Mapping[str, type]  # where in the configuration: a class


class RehearsalError(MobenchError):
    """A part of the user's own returns the wrong shape, or mixes the runs."""


@dataclass(frozen=True)
class Cast:
    """Some runs of the job, as if they were all, and what they start with."""

    job: Job
    which: Sequence[int]
    runs: Runs
    oracle: Oracle
    algorithm: Algorithm
    theta: Tensor

    def start(self) -> dict[str, Any]:
        """The state before the first step."""
        return loop.first_state(self.oracle, self.algorithm, {}, self.theta, self.runs, self.job.steps)

    def points(self) -> tuple[Point, ...]:
        """The inputs of the first step."""
        seen = loop.seen_by(self.algorithm, self.oracle)
        state = self.oracle.init(self.theta)
        points = tuple([seen.at(self.theta, state, 0, k) for k in range(self.algorithm.samples)])
        for point in points:
            point.graph = not self.algorithm.derivative_free
        return points

    def values(self) -> Tensor:
        """Returns the values of every sample of the first step, (n, samples * K)."""
        return torch.cat([point.values() for point in self.points()], dim=1)

    def gradients(self) -> Tensor:
        """J^T w of every sample, with weights w of each run's own: (n, samples * P)."""
        products = []
        for point in self.points():
            rows = [generator(r, use="rehearsal").uniform(0.5, 1.5, point.M) for r in self.which]
            w = torch.stack([torch.from_numpy(row) for row in rows]).to(self.theta)
            products.append(point.vjp(w))
        return torch.cat(products, dim=1)

    def measures(self) -> dict[str, Tensor]:
        """The problem's own columns."""
        if not self.job.config.record.measures:
            return {}
        point = self.oracle.at(self.theta, self.oracle.init(self.theta), 0)
        point.graph = False
        return self.oracle.columns(self.theta, point.values(), None)

    def steps(self) -> Tensor:
        """Iterates after the first steps."""
        until = min(STEPS, self.job.steps)
        theta: Tensor = loop.advance(self.oracle, self.algorithm, {}, self.start(), until)["theta"]
        return theta


def cast(job: Job, which: Sequence[int], parts: Parts) -> Cast:
    """The chosen runs of a job."""
    runs = job.runs.take(which)
    rows = torch.tensor(list(which), device=job.device)
    columns = {name: getattr(job.algorithm, name)[rows] for name in job.varied}
    algorithm = job.algorithm.stacked(columns) if columns else job.algorithm
    oracle = job.oracle(runs)
    theta = oracle.initial(runs)
    _check(theta, (len(runs), oracle.spec.P), _named(parts, FUNCTIONS, "initial"), "theta_0, one row per run")
    return Cast(
        job,
        which,
        runs.to(job.device),
        oracle,
        algorithm,
        oracle.spec.X.project(theta.to(job.device, job.dtype)),
    )


def rehearse(job: Job) -> list[str]:
    """Checks the user's own parts of a job. Returns warnings.

    Raises:
        RehearsalError: a wrong shape, or runs that are mixed: which part, what was found, what to do.
    """
    parts = job.config.own_classes
    if not parts:
        return []
    groups = {where.partition(".")[0] for where in parts}
    with torch.no_grad():
        few = _few(job)
        try:
            few_runs = cast(job, few, parts)
            units = _units(few_runs, parts)
            if groups & set(FUNCTIONS):
                _function_shapes(few_runs, parts)
            _step_shapes(units[0][1] if few_runs.algorithm.together else few_runs, parts)
            return _apart(few_runs, units, parts) if len(job.runs) > 1 else []
        except MobenchError:
            raise
        except Exception as error:
            error.add_note(f"before the first step, with {len(few)} of the {len(job.runs)} runs")
            raise


def _few(job: Job) -> list[int]:
    """Some of the runs, far apart; their number is not M, M + N or P, so that a wrong axis is noticed."""
    R = len(job.runs)
    M = job.problem.n_objectives
    taken = {M, M + job.problem.n_constraints, job.problem.dim}
    n = next((n for n in (MOST, 2) if n <= R and n not in taken), min(R, MOST))
    return sorted({round(k * (R - 1) / max(n - 1, 1)) for k in range(n)})


def _units(several: Cast, parts: Parts) -> list[tuple[list[int], Cast]]:
    """Units that take a step by themselves, with their rows: runs, or populations (all runs of a seed)."""
    if not several.algorithm.together:
        return [([k], cast(several.job, [r], parts)) for k, r in enumerate(several.which)]
    seeds = several.job.runs.seeds.tolist()
    both = list(dict.fromkeys((seeds[0], seeds[-1])))
    members = {seed: [r for r, s in enumerate(seeds) if s == seed] for seed in both}
    chosen = [r for r, seed in enumerate(seeds) if seed in both]
    return [([chosen.index(r) for r in runs], cast(several.job, runs, parts)) for runs in members.values()]


# measures beside the problem's

RESERVED = re.compile(
    rf"{OF_ALL_ROWS}|(g|ray|validation)_\d+|kept|kkt_residual_max|angle_deg|front_distance|stationarity|kkt|"
    r"violation|tchebycheff|tchebycheff_seen"
)
"""Columns that rows may have whatever the problem and the method are."""
PREFIXES = ("f_", "g_", "preference_", "ray_")
"""Columns that begin so are taken for objectives, constraints and preferences."""


def check_measures(job: Job) -> None:
    """Tries the user's measures at the start of a run, and their names against those of all other columns.

    Raises:
        ConfigError: with all that is wrong.
    """
    job.check()
    seed = int(job.runs.seeds[0])
    alike = [r for r, other in enumerate(job.runs.seeds.tolist()) if other == seed]
    trial = cast(job, alike if job.algorithm.together else [0], {})
    with torch.no_grad():
        F = trial.oracle.exact(trial.theta)
        taken = {*trial.oracle.columns(trial.theta, F, None), *job.varied}
        taken |= set(trial.algorithm.report(F[:, : trial.oracle.spec.M], trial.start()["alg"]))
        faults = {
            name: fault_of_name(name, taken) or _fault_of_measure(fn, trial.theta[:1])
            for name, fn in job.measures.items()
        }
    if any(faults.values()):
        listed = "\n".join(f"  - {name!r}: {fault}" for name, fault in faults.items() if fault)
        raise ConfigError(f"measures cannot be used:\n{listed}")


def _fault_of_measure(fn: Callable[[Tensor], Any], x: Float[Tensor, "1 P"]) -> str:
    """Returns the fault of a measure at x; "" if it has none."""
    wanted = f"expected a tensor () of real numbers for one x of shape ({x.shape[1]},)."
    try:
        value = torch.func.vmap(fn)(x)
    except Exception as error:  # noqa: BLE001  whatever a user's function raises is what is wrong
        return f"it fails at the start: {type(error).__name__}: {str(error).splitlines()[0]}; {wanted}"
    if not isinstance(value, Tensor):
        return f"it returns {type(value).__name__}; {wanted}"
    if value.shape != (1,):
        return f"it returns the shape {tuple(value.shape[1:])}; {wanted}"
    return f"it returns {value.dtype}; {wanted}" if value.is_complex() else ""


def fault_of_name(name: object, taken: Collection[str] = ()) -> str:
    """Why a measure's column cannot have this name; "" if it can."""
    if not isinstance(name, str) or not name or not name.isprintable():
        return "a name must be text on one line."
    if name in taken or RESERVED.fullmatch(name):
        return "the rows have a column of this name; choose another."
    if prefix := next((p for p in PREFIXES if name.startswith(p)), ""):
        return f"columns that begin with {prefix} belong to the rows; choose another name."
    return ""


def check_names(names: Iterable[object]) -> None:
    """Checks the names of measures that belong to a problem.

    Raises:
        ConfigError: rows have a column of such a name, or it cannot be one.
    """
    if faults := {name: fault for name in names if (fault := fault_of_name(name))}:
        listed = "\n".join(f"  - {name!r}: {fault}" for name, fault in faults.items())
        raise ConfigError(f"measures cannot be used:\n{listed}")


# shapes


def _named(parts: Parts, groups: Sequence[str], method: str) -> str:
    """Ellipsoids.values"""
    names = [cls.__name__ for where, cls in parts.items() if where.partition(".")[0] in groups]
    return " or ".join(f"{name}.{method}" for name in names) or method


def _check(answer: object, wanted: tuple[int, ...], where: str, what: str) -> None:
    """Raise RehearsalError unless `answer` is a tensor of that shape."""
    if isinstance(answer, Tensor) and tuple(answer.shape) == wanted:
        return
    shape = (
        f"shape {tuple(answer.shape)}"
        if isinstance(answer, Tensor)
        else f"{type(answer).__name__}, which is not a tensor"
    )
    raise RehearsalError(f"{where} returns {shape}; expected {wanted}: {what}.")


def _function_shapes(trial: Cast, parts: Parts) -> None:
    """Values, gradients and measures."""
    spec = trial.oracle.spec
    n = len(trial.runs)
    where = _named(parts, FUNCTIONS, "values")
    point = trial.oracle.at(trial.theta, trial.oracle.init(trial.theta), 0)
    point.graph = not trial.algorithm.derivative_free
    K = spec.M + spec.N
    values = point.values()
    what = f"{n} runs, then {spec.M} objectives (n_objectives) and {spec.N} constraints (n_constraints)"
    _check(values, (n, K), where, what)
    if not trial.algorithm.derivative_free:
        try:
            product = trial.points()[0].vjp(torch.ones_like(values[:, : spec.M]))
        except RuntimeError as error:
            if "does not require grad" not in str(error) and "not have been used in the graph" not in str(
                error
            ):
                raise
            raise RehearsalError(
                f"{where} cannot be differentiated: the values do not depend on x through torch operations "
                f"(NumPy, .item(), .detach() and torch.no_grad() break the graph)."
            ) from error
        _check(product, tuple(trial.theta.shape), where, f"J^T w, from rows ({n}, {K}, {spec.P})")
    for key, column in trial.measures().items():
        _check(column, (n,), _named(parts, FUNCTIONS, "columns"), f"the measure {key!r}, one number per run")


def _step_shapes(trial: Cast, parts: Parts) -> None:
    """Weights, direction and columns of the method."""
    algorithm = trial.algorithm
    spec = trial.oracle.spec
    n = len(trial.runs)
    name = type(algorithm).__name__
    if isinstance(algorithm, Weighting) and type(algorithm).step is Weighting.step:
        point = trial.points()[0]
        state = trial.start()
        F = (point.values() if algorithm.weighs_constraints else point.F).double()
        G = point.gramian("all" if algorithm.weighs_constraints else "f") if algorithm.gramian else None
        w = _triple(algorithm.weights(F, G, state["alg"], 0), f"{name}.weights", "(w, state, Info())")
        if not (isinstance(w, Tensor) and tuple(w.shape) == (n, spec.M + spec.N)):
            _check(
                w,
                (n, spec.M),
                f"{name}.weights",
                f"{n} runs, then one weight for each of the {spec.M} objectives",
            )
    state = trial.start()
    answer = algorithm.step(trial.points(), state["alg"], 0, algorithm.schedule(0))
    d = _triple(answer, f"{name}.step", "(d, state, Info())")
    _check(d, (n, spec.P), f"{name}.step", f"{n} runs, then a direction in {spec.P} variables")
    for key, column in algorithm.report(trial.points()[0].F, state["alg"]).items():
        _check(column, (n,), f"{name}.report", f"the column {key!r}, one number per run")


def _triple(answer: object, where: str, wanted: str) -> object:
    """The first of (tensor, state, Info)."""
    if isinstance(answer, tuple) and len(answer) == 3 and isinstance(answer[2], Info):
        return answer[0]
    returned = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else type(answer).__name__
    raise RehearsalError(f"{where} returns {returned}; expected {wanted}.")


# runs apart


def _apart(trial: Cast, units: list[tuple[list[int], Cast]], parts: Parts) -> list[str]:
    """Each of the runs alone against all of them; a warning where randomness forbids it."""
    groups = {where.partition(".")[0] for where in parts}
    functions, methods = (
        " or ".join(f"{w} {c.__name__}" for w, c in parts.items() if w.partition(".")[0] in kinds)
        for kinds in (FUNCTIONS, ("algorithm", "oracle"))
    )
    checks: list[tuple[str, str, Callable[[Cast], Tensor], Cast, list[tuple[list[int], Cast]]]] = []
    if groups & set(FUNCTIONS):
        singles = [([k], cast(trial.job, [r], parts)) for k, r in enumerate(trial.which)]
        checks.append((functions, "values", Cast.values, trial, singles))
        if not trial.algorithm.derivative_free:
            checks.append((functions, "gradients", Cast.gradients, trial, singles))
        for key in trial.measures():
            column = _column(key)
            checks.append((functions, f"measure {key!r}", column, trial, singles))
    if groups & {"algorithm", "oracle"} and len(units) > 1:
        several = trial
        if trial.algorithm.together:
            several = cast(trial.job, sorted(r for _, part in units for r in part.which), parts)
        checks.append((methods, "steps", Cast.steps, several, units))
    warnings = []
    for where, what, answer, several, singles in checks:
        difference = _met(answer, several, singles)
        if difference == "random":
            warnings.append(
                f"{where}: {what} differ from call to call. Random numbers that are not keyed by run and "
                "step (see mobench.core.random) produce rows that cannot be reproduced or resumed, "
                "and make it impossible to check that runs are independent."
            )
        elif difference:
            alone = "one seed" if trial.algorithm.together and what == "steps" else "one run"
            raise RehearsalError(
                f"{where} mixes the runs: {what} of {alone} alone differ from those in a batch "
                f"({difference}). "
                "The first axis indexes the runs, which must be independent: take sums, means, maxima and "
                "norms over the other axes (dim=1), never over dim=0 or all entries. A method whose runs of "
                "a seed form a population declares `together: ClassVar[bool] = True`."
            )
    return warnings


def _column(key: str) -> Callable[[Cast], Tensor]:
    return lambda some: some.measures()[key].to(some.theta).unsqueeze(1)


def _moved(trial: Cast, number: int) -> Tensor:
    """A start of its own for each of the runs, in the feasible set."""
    rows = []
    for r in trial.which:
        rng = generator(int(trial.job.runs.seeds[r]), use="rehearsal", run=r, number=number)
        rows.append(torch.from_numpy(rng.standard_normal(trial.theta.shape[1])))
    return trial.oracle.spec.X.project(trial.theta + SHIFT * torch.stack(rows).to(trial.theta))


def _met(answer: Callable[[Cast], Tensor], trial: Cast, units: list[tuple[list[int], Cast]]) -> str:
    """Returns how runs alone differ from runs together, in words; "": not; "random": if equal calls do
    not.

    sqrt(eps) of the largest entry is half of the digits: sums in another order cost a few of them, runs that
    meet nearly all. Where a step is ill-conditioned (a vertex of a linear program), rounding costs more: a
    difference counts only beyond what rounding of the start does, and from two different starts.
    """
    worst = ""
    for number in range(2):
        here = dataclasses.replace(trial, theta=_moved(trial, number))
        try:
            together = answer(here)
        # not a point that the job would meet: the start itself is, and may be refused
        except Exception:  # noqa: BLE001
            here = trial
            together = answer(here)
        for rows, unit in units:
            part = dataclasses.replace(unit, theta=here.theta[rows])
            alone = answer(part)
            gap = _gap(together[rows], alone)
            if gap > 1.0:
                break
        else:
            return ""
        if _gap(together, answer(here)) > 1.0:
            return "random"
        eps = torch.finfo(part.theta.dtype).eps
        noise = torch.randn(part.theta.shape, generator=torch.Generator().manual_seed(number)).to(part.theta)
        theta = part.oracle.spec.X.project(part.theta * (1.0 + eps * noise))
        if gap <= ROUNDING * _gap(alone, answer(dataclasses.replace(part, theta=theta))):
            return ""
        worst = f"relative difference {gap * torch.finfo(alone.dtype).eps ** 0.5:.1g}"
    return worst


def _gap(a: Tensor, b: Tensor) -> float:
    """Largest difference in any run, over sqrt(eps) of its largest entry;
    infinite where only one of both is finite.
    """
    if a.numel() == 0:
        return 0.0
    finite = a.isfinite()
    if bool((finite != b.isfinite()).any()):
        return float("inf")
    a = torch.where(finite, a, 0.0)
    b = torch.where(finite, b, 0.0)
    size = torch.maximum(a.abs(), b.abs()).amax(1)
    size = size.clamp_min(1e-3 * float(size.max())).clamp_min(torch.finfo(a.dtype).tiny)
    return float(((a - b).abs().amax(1) / size).max()) / torch.finfo(a.dtype).eps ** 0.5
