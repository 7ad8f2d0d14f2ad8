"""The cases of the contract: every name of conf, found by listing it, on small problems.

A name needs no entry here. What is special about a class stands beside the class (`small`, `variants`,
`symmetric`, `together`, ...).
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import yaml
from torch import Tensor

from mobench.config.compose import compose
from mobench.config.schema import choices, conf_dir
from mobench.core import Algorithm, Oracle, Problem, Runs, Set, Weighting, loop
from mobench.core.compatibility import reasons
from mobench.core.output import make_output
from mobench.core.point import Point, TablePoint
from mobench.core.preferences import spread
from mobench.errors import ConfigError, MobenchError
from mobench.jobs.targets import instantiate, load_class, parameters
from mobench.oracles import Exact, Minibatch
from mobench.oracles.value_gap import ValueGap
from mobench.problems import DTLZ2, VLMOP2, ZDT1, LeastSquares
from mobench.problems.bilevel_quadratic import BilevelQuadratic

ALGORITHMS = choices("algorithm")
PROBLEMS = choices("problem")
ORACLES = choices("oracle")
LAYERS = [(layer, name) for layer in ("constraint", "space") for name in choices(layer) if name != "none"]
F64 = torch.float64
MOST = 0.02  # step size on the small problems


def node(group: str, name: str) -> dict[str, Any]:
    """The content of a file of conf."""
    read = yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text())
    assert isinstance(read, dict)
    return read


def class_of(group: str, name: str) -> Any:
    """The class that a file of conf names."""
    return load_class(node(group, name)["_target_"], group)


def undocumented(cls: type) -> list[str]:
    """Parameters that no docstring of the class or of a base class names."""
    text = "\n".join(c.__dict__.get("__doc__") or "" for c in cls.__mro__ if c is not object)
    return [p for p in parameters(cls) if not re.search(rf"(?<![\w.]){re.escape(p)}(?!\w)", text)]


# algorithms


def methods() -> list[str]:
    """Every name, and with a colon every variant that its class declares: `ferero`, `ferero:pgd`."""
    variants = [(n, v) for n in ALGORITHMS for v in class_of("algorithm", n).variants]
    return [*ALGORITHMS, *(f"{name}:{variant}" for name, variant in variants)]


def algorithm_of(method: str, **options: Any) -> Algorithm:
    """The method with its small settings, and a step that suits the small problems, if it has one."""
    name, _, variant = method.partition(":")
    cls = class_of("algorithm", name)
    settings = node("algorithm", name) | dict(cls.small)
    if not (cls.replaces or cls.derivative_free or "step_size" in cls.small):
        settings["step_size"] = MOST
    extra = cls.variants[variant] if variant else {}
    made = instantiate(settings | dict(extra) | options, "algorithm")
    assert isinstance(made, Algorithm)
    return made


@cache
def kinds() -> list[str]:
    """One method of each kind: the first of those whose classes declare the same needs and outputs."""
    first: dict[object, str] = {}
    setting = SETTINGS["sampled"]
    spec = setting.of(setting.runs(2, 1)).spec
    for name in ALGORITHMS:
        a = algorithm_of(name)
        weighting = isinstance(a, Weighting)
        declared = (a.needs(spec), a.samples, a.constraints, a.constraint_kind, a.together, a.replaces)
        first.setdefault((*declared, a.derivative_free, a.transforms, weighting), name)
    return list(first.values())


@dataclass(frozen=True)
class Setting:
    """A small problem and its oracle."""

    problem: Problem
    oracle: Callable[[Problem, Runs], Oracle] = Exact
    gradients: bool = True  # methods that ask for them are tried on it

    def runs(self, preferences: int = 4, seeds: int = 3) -> Runs:
        return Runs.product(spread(preferences, self.problem.n_objectives), range(seeds))

    def of(self, runs: Runs) -> Oracle:
        return self.oracle(self.problem, runs)


def _sampled(problem: Problem, runs: Runs) -> Oracle:
    return Minibatch(problem, runs, batch_size=8, samples=2)


def _gap(problem: Problem, runs: Runs) -> Oracle:
    return ValueGap(problem, runs, inner_steps=2)


SETTINGS: dict[str, Setting] = {
    "two": Setting(VLMOP2(n=6, start={"kind": "uniform", "low": -0.5, "high": 0.5, "per_preference": True})),
    "three": Setting(DTLZ2(n=6, start={"kind": "uniform", "low": 0.2, "high": 0.8, "per_preference": True})),
    "sampled": Setting(LeastSquares(n=4, tasks=3, samples=30), _sampled),
    "capped": Setting(LeastSquares(n=4, tasks=2, samples=30, caps=[None, 0.3])),
    "box": Setting(ZDT1(n=4), gradients=False),
    "gap": Setting(BilevelQuadratic(tasks=2), _gap),
}


def fits(method: str, setting: Setting) -> bool:
    algorithm = algorithm_of(method)
    runs = setting.runs(2, 1)
    oracle = setting.of(runs)
    if reasons(loop.seen_by(algorithm, oracle).spec, algorithm):
        return False
    try:
        loop.start(oracle, algorithm, {}, oracle.initial(runs), runs, 1)
    except ConfigError:  # settings of a variant that are for another number of objectives
        return False
    return setting.gradients or algorithm.derivative_free


@cache
def settings_of(method: str) -> list[str]:
    """Names of the settings that the method can join: at least one, or it could not be tried."""
    names = [name for name, setting in SETTINGS.items() if fits(method, setting)]
    assert names, f"{method} fits none of the small problems: {', '.join(SETTINGS)}"
    return names


OUTPUTS = ("last", "mean", "adaptive")


def path(
    algorithm: Algorithm,
    oracle: Oracle,
    runs: Runs,
    steps: int,
    theta: Tensor | None = None,
    outputs: tuple[str, ...] = OUTPUTS,
) -> tuple[dict[str, Any], Tensor]:
    """The last state, and all iterates (R, steps + 1, P)."""
    rules = {name: make_output(name) for name in outputs}
    theta = oracle.initial(runs) if theta is None else theta
    state = loop.start(oracle, algorithm, rules, theta, runs, steps)
    seen: list[Tensor] = []
    state = loop.advance(
        oracle, algorithm, rules, state, steps, lambda t, s, p: seen.append(s["theta"].clone())
    )
    return state, torch.stack([*seen, state["theta"]], 1)


def units(algorithm: Algorithm, runs: Runs) -> list[list[int]]:
    """Numbers of runs that are independent of all others: some runs, or all runs of a seed."""
    if not algorithm.together:
        return [[0], [len(runs) - 1, len(runs) // 2]]
    seeds = runs.seeds.tolist()
    return [[r for r, seed in enumerate(seeds) if seed == one] for one in dict.fromkeys(seeds)]


# problems


@cache
def small_problem(name: str) -> Problem:
    """The problem with small data and networks, as its class declares them."""
    small = getattr(class_of("problem", name), "small", {})
    config = compose([f"problem={name}", *(f"problem.{key}={value}" for key, value in small.items())])
    made = instantiate(config["problem"], "problem")
    assert isinstance(made, Problem)
    return made


def few_runs(problem: Problem) -> Runs:
    """Two preferences and two seeds."""
    M = problem.n_objectives
    return Runs.product(spread(2, M) if M > 1 else torch.ones(1, 1, dtype=F64), [0, 1])


Function = Callable[[Tensor], Tensor]


def direction(like: Tensor) -> Tensor:
    """Fixed numbers in [-1, 1], another one for each entry."""
    return torch.cos(1.7 * torch.arange(like.numel(), dtype=F64)).view(like.shape)


def beside(X: Set, start: Tensor) -> Tensor:
    """Feasible points beside the starts, other ones for all runs, where nothing is symmetric."""
    return X.project(start + 0.03 * direction(start))


@cache
def different_problems() -> list[str]:
    """One name of those that differ in their data alone."""
    return list(
        {
            (class_of("problem", p), str(sorted(set(node("problem", p)) - {"data"}))): p for p in PROBLEMS
        }.values()
    )


def oracle_of(name: str, problem: Problem, runs: Runs) -> Oracle:
    """The oracle with the settings of its file."""
    made = instantiate(node("oracle", name), "oracle", problem=problem, runs=runs)
    assert isinstance(made, Oracle)
    return made


def layered(layer: str, name: str, problem: Problem, runs: Runs) -> Oracle | None:
    """A space or constraints around the first oracle of conf that serves the problem with them, if any."""
    for oracle in ORACLES:
        try:
            parts = {"oracle": oracle_of(oracle, problem, runs), "problem": problem, "runs": runs}
            made = instantiate(node(layer, name), layer, **parts)
            made.initial(runs)
        except MobenchError:
            continue
        assert isinstance(made, Oracle)
        return made
    return None


# points that somebody watches, or that are seen in another order


class Spy(Point):
    """Passes requests on and writes them down; what its oracle does not provide it refuses."""

    def __init__(self, inner: Point, requests: set[str], provides: frozenset[str]) -> None:
        super().__init__(inner.x, inner.X, inner.M, inner.state)
        self.inner: Point = inner
        self.requests = requests
        self.provides = provides

    def _note(self, request: str) -> None:
        if request in ("jacobian", "jvp", "hvp"):
            assert request in self.provides, f"{request} is not provided"
        self.requests.add(request)

    def values(self) -> Tensor:
        self._note("values")
        return self.inner.values()

    def _jacobian(self) -> Tensor:
        raise AssertionError("the wrapped point answers")

    def jacobian(self, part: Any = "all") -> Tensor:
        self._note("jacobian")
        return self.inner.jacobian(part)

    def gramian(self, part: Any = "all") -> Tensor:
        self._note("jacobian")  # rows and their products are one ability
        return self.inner.gramian(part)

    def vjp(self, w: Tensor) -> Tensor:
        self._note("vjp")
        return self.inner.vjp(w)

    def jvp(self, v: Tensor) -> Tensor:
        self._note("jvp")
        return self.inner.jvp(v)

    def hvp(self, w: Tensor, v: Tensor) -> Tensor:
        self._note("hvp")
        return self.inner.hvp(w, v)


class Wrapped(Oracle):
    """An oracle whose answers are another's."""

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner
        self.spec = inner.spec

    def initial(self, runs: Runs) -> Tensor:
        return self.inner.initial(runs)

    def init(self, theta: Tensor) -> dict[str, Any]:
        return self.inner.init(theta)

    def at(self, theta: Tensor, state: dict[str, Any], t: int, k: int = 0) -> Point:
        return self.inner.at(theta, state, t, k)

    def exact(self, theta: Tensor) -> Tensor:
        return self.inner.exact(theta)

    @property
    def ideal(self) -> Tensor | None:
        return self.inner.ideal


class Faulty(Wrapped):
    """One run is spoilt in some steps: NaN, infinite or far too long."""

    def __init__(self, inner: Oracle, kind: str, run: int, begin: int, end: int = 10**9) -> None:
        super().__init__(inner)
        self.kind = kind
        self.run = run
        self.steps = range(begin, end)

    def at(self, theta: Tensor, state: dict[str, Any], t: int, k: int = 0) -> Point:
        point = self.inner.at(theta, state, t, k)
        if t not in self.steps:
            return point
        F = point.values().clone()
        J = point.jacobian().clone()
        if self.kind == "overflow":
            J[self.run] = 1e308 * torch.sign(J[self.run])
        else:
            F[self.run] = J[self.run] = math.nan if self.kind == "nan" else math.inf
        return TablePoint(theta, point.X, point.M, {}, F, J, hessian=point.hvp)


class Watched(Wrapped):
    """Points that record; `changes` to its Spec take abilities away."""

    def __init__(self, inner: Oracle, **changes: Any) -> None:
        super().__init__(inner)
        self.spec = dataclasses.replace(inner.spec, **changes)
        self.requests: set[str] = set()
        self.samples: set[tuple[int, int]] = set()

    def at(self, theta: Tensor, state: dict[str, Any], t: int, k: int = 0) -> Point:
        assert (t, k) not in self.samples, "one point per sample and step"
        assert k < self.spec.samples
        self.samples.add((t, k))
        return Spy(self.inner.at(theta, state, t, k), self.requests, self.spec.provides)


class Turned(Wrapped):
    """The objectives in the opposite order; constraints stay behind them."""

    def _order(self, count: int) -> list[int]:
        M = self.spec.M
        return [*range(M - 1, -1, -1), *range(M, count)]

    def at(self, theta: Tensor, state: dict[str, Any], t: int, k: int = 0) -> Point:
        return TurnedPoint(self.inner.at(theta, state, t, k), self._order)

    def exact(self, theta: Tensor) -> Tensor:
        F = self.inner.exact(theta)
        return F[:, self._order(F.shape[1])]

    @property
    def ideal(self) -> Tensor | None:
        return None if self.inner.ideal is None else self.inner.ideal.flip(-1)


class TurnedPoint(Point):
    def __init__(self, inner: Point, order: Callable[[int], list[int]]) -> None:
        super().__init__(inner.x, inner.X, inner.M, inner.state)
        self.inner: Point = inner
        self._order = order

    def _turned(self, rows: Tensor) -> Tensor:
        return rows[:, self._order(rows.shape[1])]

    def values(self) -> Tensor:
        return self._turned(self.inner.values())

    def _jacobian(self) -> Tensor:
        return self._turned(self.inner.jacobian())

    def vjp(self, w: Tensor) -> Tensor:
        return self.inner.vjp(self._turned(w))

    def jvp(self, v: Tensor) -> Tensor:
        return self._turned(self.inner.jvp(v))

    def hvp(self, w: Tensor, v: Tensor) -> Tensor:
        return self.inner.hvp(self._turned(w), v)

    def moved(self, x: Tensor) -> Point:
        return TurnedPoint(self.inner.moved(x), self._order)


# states


def said(where: str) -> Callable[[str], str]:
    """Puts the place before the message of a comparison."""
    return lambda message: f"{where}: {message}"


def tensors(state: Any, where: str = "state") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a nested state, with its place."""
    for key, value in state.items():
        if isinstance(value, dict):
            yield from tensors(value, f"{where}.{key}")
        elif isinstance(value, Tensor):
            yield f"{where}.{key}", value
        else:
            assert isinstance(value, int), f"{where}.{key}={value!r} is neither tensor nor number of a step"


def reloaded(state: dict[str, Any]) -> dict[str, Any]:
    """The state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert isinstance(loaded, dict)
    return loaded


def equal(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """The same states to the bit, NaN included."""
    one, two = dict(tensors(a)), dict(tensors(b))
    assert one.keys() == two.keys()
    for where, value in one.items():
        assert value.dtype == two[where].dtype, where
        assert torch.equal(value.nan_to_num(nan=-7.0), two[where].nan_to_num(nan=-7.0)), where
    assert a["t"] == b["t"]
