"""Every problem with its oracles, and a method of each kind with made-up oracles that lack something.

Each pair of these runs a few steps or is refused in words; a recording point checks that it requests what it
declares. And the YAML files of conf name things that exist. What every name keeps to is in tests/contract.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
import yaml
from torch import Tensor

from mobench.config.overrides import normalise
from mobench.config.schema import choices, conf_dir
from mobench.core import Algorithm, Ball, Box, Free, Oracle, Problem, Runs, Set, Spec, Weighting, loop
from mobench.core.algorithm import Context, Info
from mobench.core.bilevel import Bilevel
from mobench.core.compatibility import check, reasons
from mobench.core.federated import Federated
from mobench.core.output import make_output
from mobench.core.preferences import spread
from mobench.core.sampled import BatchGradients, samples_of
from mobench.errors import CompatibilityError, ConfigError
from mobench.jobs.build import make_job
from mobench.jobs.job import Job
from mobench.jobs.run import folder_of
from mobench.jobs.targets import load_class
from mobench.oracles import Exact
from mobench.problems import DTLZ2, VLMOP2, LeastSquares
from mobench.problems.dataset import DataProblem
from mobench.sweep.planner import Planner
from tests.contract import cases
from tests.contract.cases import Watched

ALGORITHMS = choices("algorithm")
PROBLEMS = choices("problem")
ORACLES = choices("oracle")
BILEVEL = ["hypergradient", "moco", "value_gap"]
# two steps of a lower level or of a client show what ten do
FEW = {
    "hypergradient": ["oracle.inner_steps=2"],
    "value_gap": ["oracle.inner_steps=2"],
    "local_steps": ["oracle.local_steps=2"],
}
CLASSES = {
    name: load_class(
        yaml.safe_load((conf_dir() / "problem" / f"{name}.yaml").read_text())["_target_"], "problem"
    )
    for name in PROBLEMS
}
WITH_DATA = [name for name in PROBLEMS if issubclass(CLASSES[name], DataProblem)]
# of those with data, files that differ in the data alone are one problem
DIFFERENT = [p for p in PROBLEMS if p not in WITH_DATA] + list({CLASSES[p]: p for p in WITH_DATA}.values())
STEPS = 4


# composing


@pytest.fixture(scope="module")
def compose(planner: Planner) -> Any:
    """`compose(override, ...)` gives the plain configuration, as the command line composes it."""
    return lambda *overrides: planner.composer.compose(normalise(overrides))


@pytest.fixture(scope="module")
def parts(compose: Any) -> Callable[[str, str], dict[str, Any]]:
    """`parts(group, option)` gives its composed node and, of a problem, the steps that come with it."""

    @functools.cache
    def of(group: str, name: str) -> dict[str, Any]:
        if group == "problem":
            small = getattr(CLASSES[name], "small", {})
            config = compose(f"problem={name}", *(f"problem.{key}={value}" for key, value in small.items()))
            return {key: config[key] for key in ("problem", "steps", "preferences")}
        few = FEW.get(name, []) if group == "oracle" else []
        return {group: compose(f"{group}={name}", *few)[group]}

    return of


def job_of(parts: Any, compose: Any, problem: str, oracle: str, algorithm: str) -> Job:
    """The job that the command line would make of the three choices."""
    chosen = [parts("problem", problem), parts("oracle", oracle), parts("algorithm", algorithm)]
    config = compose("algorithm=mgda") | {k: v for part in chosen for k, v in part.items()}
    return make_job({**config, "preferences": {"count": 2}, "seeds": [0, 1]})


@pytest.fixture(scope="module")
def served(parts: Any, compose: Any) -> dict[tuple[str, str], Job]:
    """A job of each problem with each oracle that can serve it; their problems are built once."""
    jobs = {}
    for problem in DIFFERENT:
        for oracle in ORACLES:
            job = job_of(parts, compose, problem, oracle, "ls")
            try:
                job.oracle()
            except CompatibilityError:
                continue
            jobs[problem, oracle] = job
    return jobs


def some_steps(
    oracle: Watched, algorithm: Algorithm, problem: Problem, runs: Runs, steps: int = STEPS
) -> dict[str, Any]:
    rules = {name: make_output(name) for name in dict.fromkeys(["last", *algorithm.outputs])}
    state = loop.start(oracle, algorithm, rules, oracle.initial(runs), runs, steps)
    oracle.requests.clear()
    state = loop.advance(oracle, algorithm, {}, {**state, "out": {}}, steps)
    assert state["t"] == steps
    assert state["theta"].isfinite().all()
    assert state["alive"].all()
    assert not state["fail"].any()
    assert torch.equal(oracle.spec.X.project(state["theta"]), state["theta"])
    return state


def refused(spec: Spec, algorithm: Algorithm, oracle: Oracle, problem: Problem, runs: Runs) -> list[str]:
    """The reasons, if there are any; then `start` refuses with every one of them."""
    problems = reasons(spec, algorithm)
    if problems:
        with pytest.raises(CompatibilityError) as error:
            loop.start(oracle, algorithm, {}, problem.initial(runs), runs, STEPS)
        lines = str(error.value).splitlines()
        assert type(algorithm).__name__ in lines[0]
        assert lines[1:] == [f"  - {reason}" for reason in problems]
        assert all(len(reason) > 25 for reason in problems)
    return problems


@pytest.mark.parametrize("problem_name", DIFFERENT)
def test_every_problem_has_its_oracles(
    problem_name: str, parts: Any, compose: Any, served: dict[tuple[str, str], Job]
) -> None:
    """The others are refused with a hint, whatever the algorithm."""
    for oracle_name in ORACLES:
        job = job_of(parts, compose, problem_name, oracle_name, "ls")
        n = samples_of(job.problem)
        data = 0 < n < math.inf
        large = isinstance(job.problem, BatchGradients)
        whole = f"Choose oracle={'epochs' if data else 'minibatch'}" if large else ""
        hint = {"exact": whole, "epochs": "" if data else "Choose oracle=minibatch", "local_steps": whole}
        if job.problem.n_constraints:
            hint["local_steps"] = "Choose a problem without constraints"
        if isinstance(job.problem, Federated):
            hint = dict.fromkeys(ORACLES, "Choose oracle=local_steps") | {"local_steps": ""}
        if isinstance(job.problem, Bilevel):
            hint |= dict.fromkeys(BILEVEL, "")
            if not job.problem.closed_form:
                hint = dict.fromkeys(ORACLES, "Choose oracle=hypergradient") | dict.fromkeys(BILEVEL, "")
        else:
            hint |= dict.fromkeys(BILEVEL, "has no lower level")
        words = hint.get(oracle_name, "" if n else "Choose oracle=exact")
        assert ((problem_name, oracle_name) in served) is (words == "")
        if words:
            with pytest.raises(CompatibilityError, match=words):
                job.oracle()


def cheap(name: str, parts: Any, compose: Any) -> Algorithm:
    """The algorithm with a step that suits the made-up problems."""
    return job_of(parts, compose, "least_squares", "minibatch", name).algorithm


def careful(name: str, parts: Any, compose: Any) -> Algorithm:
    """The same with a small step; an algorithm that replaces points has no other step than 1."""
    algorithm = cheap(name, parts, compose)
    return algorithm if algorithm.replaces else dataclasses.replace(algorithm, step_size=0.01)


@dataclass(frozen=True, kw_only=True)
class Constrained(VLMOP2):
    """VLMOP2 with |x|^2 <= 1 as a functional constraint; no closed-form rows."""

    n_constraints: ClassVar[int] = 1

    def values(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return torch.cat([super().values(x), (x**2).sum(-1, keepdim=True) - 1.0], -1)

    def linearize(self, x: Tensor, batch: Tensor | None = None) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class InBall(VLMOP2):
    """VLMOP2 in a ball that the starts leave."""

    @property
    def X(self) -> Set:
        return Ball(0.9)


@dataclass(frozen=True, kw_only=True)
class Autodiff(DTLZ2):
    """DTLZ2 through automatic differentiation."""

    def linearize(self, x: Tensor, batch: Tensor | None = None) -> None:  # type: ignore[override]
        return None


START = {"kind": "uniform", "low": -0.4, "high": 0.4}
SAMPLES = "draws 2 independent samples per step, but the oracle provides 1; "
Stops = Callable[[Algorithm, Spec], bool]
LACKS: dict[str, tuple[Problem, dict[str, Any], str, Stops]] = {
    # problem, changes of the Spec, words of the reason, and which methods it is a reason for
    "no rows": (
        LeastSquares(n=4, tasks=3, samples=20), {"provides": frozenset({"jvp", "hvp"}), "samples": 2},
        "needs jacobian, but the oracle provides hvp, jvp", lambda a, spec: "jacobian" in a.needs(spec),
    ),
    "no jvp": (
        LeastSquares(n=4, samples=20), {"provides": frozenset({"jacobian"}), "samples": 2},
        "needs jvp, but the oracle provides jacobian",
        lambda a, spec: "jvp" in a.needs(spec) and "hvp" not in a.needs(spec),
    ),
    "nothing optional": (
        LeastSquares(n=4, samples=20), {"provides": frozenset(), "samples": 2},
        "the oracle provides values and vjp only", lambda a, spec: bool(a.needs(spec)),
    ),
    "stateful, one sample": (
        VLMOP2(n=4, start=START), {"stateful": True}, SAMPLES + "a stateful oracle cannot",
        lambda a, spec: a.samples == 2,
    ),
    "one sample": (
        VLMOP2(n=4, start=START), {}, SAMPLES + "set oracle.samples=2", lambda a, spec: a.samples == 2,
    ),
    "one constraint": (
        Constrained(n=4, start=START), {"samples": 2},
        "it does not support constraints, but the problem has N=1", lambda a, spec: a.constraints == (0, 0),
    ),
    "a gap": (
        Constrained(n=4, start=START), {"samples": 2, "constraint_kind": "gap"}, "constraints",
        lambda a, spec: a.constraints == (0, 0) or a.constraint_kind not in (None, "gap"),
    ),
    "signed": (
        VLMOP2(n=4, start=START), {"positive": False}, "it needs objectives >= 0", lambda a, spec: a.positive,
    ),
    "one objective": (
        LeastSquares(n=4, tasks=1, samples=20), {"samples": 2}, "objectives, but the problem has M=1",
        lambda a, spec: a.objectives[0] > 1,
    ),
    "ball": (
        InBall(n=4, start={"kind": "constant", "value": 0.6}), {"samples": 2}, "?", lambda a, spec: False,
    ),
    "autodiff": (Autodiff(n=6), {"samples": 2}, "?", lambda a, spec: False),
}  # fmt: skip


@pytest.mark.parametrize("lack", LACKS)
def test_oracles_that_lack_something(lack: str, parts: Any, compose: Any) -> None:
    """It is the reason for those that declare that they need it; others run without, one of each kind."""
    problem, changes, words, stops = LACKS[lack]
    M = problem.n_objectives
    weights = spread(2, M) if M > 1 else torch.ones(1, 1, dtype=torch.float64)
    runs = Runs.product(weights, [0, 1])
    ran = stopped = 0
    for name in cases.kinds():
        algorithm = careful(name, parts, compose)
        oracle = Watched(Exact(problem, runs), **changes)
        why = refused(oracle.spec, algorithm, oracle, problem, runs)
        expected = stops(algorithm, oracle.spec)
        assert any(words in reason for reason in why) == expected, (name, why)
        stopped += expected
        if not why:
            some_steps(oracle, algorithm, problem, runs)
            assert oracle.requests - {"values", "vjp"} <= algorithm.needs(oracle.spec)
            ran += 1
    assert ran
    assert stopped or words == "?"


# join itself


@dataclass(frozen=True, kw_only=True)
class Choosy(Weighting):
    """Declares a bit of everything."""

    samples: ClassVar[int] = 2
    constraints: ClassVar[tuple[int, int | None]] = (1, 1)
    constraint_kind: ClassVar[str | None] = "gap"
    objectives: ClassVar[tuple[int, int | None]] = (3, 4)
    sets: ClassVar[type[Set]] = Box
    positive: ClassVar[bool] = True

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"hvp", "jacobian"})

    def init(self, ctx: Context) -> dict[str, Any]:
        return {}

    def weights(
        self, F: Tensor, G: Tensor | None, state: dict[str, Any], t: int
    ) -> tuple[Tensor, dict[str, Any], Info]:
        return torch.ones_like(F), state, Info()


def test_a_refusal_lists_every_reason_at_once() -> None:
    spec = Spec(1, 2, 0, 5, Free(), provides=frozenset({"jacobian"}), positive=False)
    with pytest.raises(CompatibilityError) as error:
        check(spec, Choosy(), "VLMOP2")
    assert str(error.value).splitlines() == [
        "Choosy is not compatible with VLMOP2:",
        "  - it needs hvp, but the oracle provides jacobian",
        (
            "  - it draws 2 independent samples per step, but the oracle provides 1; set oracle.samples=2 ("
            "with oracle=minibatch or oracle=epochs)"
        ),
        "  - it needs exactly one constraint, but the problem has none (N=0)",
        "  - it needs 3 to 4 objectives, but the problem has M=2",
        "  - it needs a feasible set of type Box, but the problem's is Free",
        "  - it needs objectives >= 0, but the problem's can be negative; shift them by an ideal point or, "
        "if they are never negative, declare it: mobench.objectives(..., positive=True), or `positive: "
        "ClassVar[bool] = True` in the problem's class",
    ]
    good = Spec(1, 3, 1, 5, Box(0.0, 1.0), samples=2, constraint_kind="gap")
    assert reasons(good, Choosy()) == []
    kind = reasons(dataclasses.replace(good, constraint_kind="inequality"), Choosy())
    assert kind == ["it supports constraints of kind 'gap', but the problem's are of kind 'inequality'"]
    assert reasons(dataclasses.replace(good, M=5), Choosy()) == [
        "it needs 3 to 4 objectives, but the problem has M=5"
    ]
    assert isinstance(error.value, TypeError)


# the configuration files


def test_names_of_protocols() -> None:
    for name in choices("protocol"):
        node = yaml.safe_load((conf_dir() / "protocol" / f"{name}.yaml").read_text())
        assert node["protocol"] == name


def test_tuned_files_belong_to_a_protocol_and_an_algorithm() -> None:
    files = choices("tuned")
    assert files
    for file in files:
        protocol, algorithm = file.split("/")
        assert protocol in choices("protocol"), file
        assert algorithm in ALGORITHMS, file
        node = yaml.safe_load((conf_dir() / "tuned" / f"{file}.yaml").read_text())
        assert set(node) <= {"steps", "algorithm", "problem", "oracle"}, file
        assert (conf_dir() / "tuned" / f"{file}.yaml").read_text().startswith("# @package _global_\n"), file


def test_tuned_settings_reach_the_job(compose: Any) -> None:
    """Later entries of the defaults list win: protocol over problem, tuned over both."""
    for file in choices("tuned"):
        protocol, algorithm = file.split("/")
        config = compose(f"protocol={protocol}", f"algorithm={algorithm}")
        node = yaml.safe_load((conf_dir() / "tuned" / f"{file}.yaml").read_text())
        assert config["steps"] == node.get("steps", config["steps"])
        for group in ("algorithm", "problem"):
            for key, value in node.get(group, {}).items():
                if isinstance(value, str) and value.startswith("${at:"):  # the middle one is laptop scale's
                    value = yaml.safe_load(f"[{value[5:-1]}]")[1]
                if not isinstance(value, dict):
                    assert config[group][key] == value, file
        needed = {
            "points": {"line_points": [[0.9, 0.9], [0.6, 0.6]]},
            "through": {"line_through": [0.1, 0.1]},
        }
        extra = needed.get(node["algorithm"].get("line"), {})
        job = make_job({**config, "algorithm": {**config["algorithm"], **extra}})
        check(job.oracle().spec, job.algorithm)


def test_every_job_of_every_experiment_can_be_made(planner: Planner) -> None:
    """Jobs shared by several artifacts are composed once; their folders are what makes them one job."""
    jobs: dict[tuple[str, ...], list[str]] = {}
    refused = 0
    for name in choices("experiment"):
        config = planner.composer.compose([f"+experiment={name}"])
        assert config["artifact"]["id"] == name
        assert config["artifact"]["title"]
        for job, overrides in planner.composer.jobs(config).items():
            jobs.setdefault(tuple(normalise(overrides)), []).append(f"{name} {job}")
    assert jobs
    folders = set()
    for overrides, users in jobs.items():
        try:
            job = make_job(planner.composer.compose(list(overrides)))
            check(job.oracle().spec, job.algorithm)
        except (ConfigError, CompatibilityError) as error:
            if isinstance(error, CompatibilityError) and users[0].startswith("cross/"):  # the table shows why
                refused += 1
                continue
            raise AssertionError(f"{users}: {error}") from error
        folders.add(folder_of(job).key)
    assert len(folders) > 400
    assert refused < 100


def test_the_sweeper_plans_an_experiment(planner: Planner, compose: Any) -> None:
    """Through the planner itself: the same configurations, with the artifact's own keys."""
    chosen = next(n for n in choices("experiment") if compose(f"+experiment={n}")["jobs"])
    plan = planner.plan([f"+experiment={chosen}", "seeds=[3]"])
    assert [j.name for j in plan.jobs] == list(plan.artifacts[chosen]["jobs"])
    for job in plan.jobs:
        assert job.artifact == chosen
        assert job.config["seeds"] == [3]
        alone = planner.composer.compose(normalise(plan.artifacts[chosen]["jobs"][job.name]))
        assert job.config["algorithm"] == alone["algorithm"]
        assert job.config["problem"] == alone["problem"]
