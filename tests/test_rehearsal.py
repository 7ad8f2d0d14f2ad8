"""Before the first step of a plug-in wrong shapes are named, and runs that meet are found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.core import Algorithm, Problem, Runs, Weighting
from mobench.core.algorithm import Info
from mobench.core.preferences import spread
from mobench.jobs import rehearsal
from mobench.jobs.config import JobConfig
from mobench.jobs.job import Job
from mobench.jobs.rehearsal import RehearsalError, rehearse
from mobench.jobs.run import run_job
from tests.conftest import Run
from tests.test_runner import composed


@dataclass(frozen=True, kw_only=True)
class Bowls(Problem):
    """f_m = |x -+ 1|^2, spoilt in the way that `how` names."""

    how: str = ""
    n: int = 5
    noise: ClassVar[torch.Generator] = torch.Generator()

    @property
    def n_objectives(self) -> int:
        return 2

    @property
    def dim(self) -> int:
        return self.n

    def initial(self, runs: Runs) -> Tensor:
        start = super().initial(runs)
        return start[:, :2] if self.how == "short start" else start

    def values(self, x: Tensor, batch: Any = None) -> Tensor:
        if self.how == "centred":
            x = x - x.mean(0)
        F = torch.stack([(x - 1).square().sum(1), (x + 1).square().sum(1)], 1)
        match self.how:
            case "largest":
                return F / F.max()
            case "summed":
                return F + 1e-3 * F.sum()
            case "shifted":  # of equal runs the mean is that of one
                return F - F.mean(0).detach()
            case "infected":
                return F + 0.0 * torch.where(x[:, :1] == x.max(), torch.nan, 0.0).sum()
            case "gradient":  # values right, gradients of the other runs
                return F.detach() + (F.flip(0) - F.flip(0).detach())
            case "three":
                return torch.cat([F, F[:, :1]], 1)
            case "one":
                return F[:, :1]
            case "turned":
                return F.T
            case "detached":
                return F.detach()
            case "noise":
                return F + torch.randn(F.shape, generator=self.noise).to(F)
        return F

    def columns(self, x: Tensor, values: Tensor) -> dict[str, Tensor]:
        if self.how == "one number":
            return {"size": x.norm()}
        return {"size": x.norm(dim=1) / (x.norm() if self.how == "measure" else 1.0)}


@dataclass(frozen=True, kw_only=True)
class Balanced(Weighting):
    """Weights over lengths of gradients, spoilt in the way that `how` names."""

    gramian: ClassVar[bool] = True
    how: str = ""

    def init(self, ctx: Any) -> dict[str, Tensor]:
        return {"w": ctx.prefs, "average": torch.zeros_like(ctx.prefs)}

    def weights(self, F: Tensor, G: Tensor | None, state: dict[str, Any], t: int) -> Any:
        assert G is not None
        w = state["w"] / G.diagonal(dim1=1, dim2=2).sqrt()
        match self.how:
            case "normalised":
                w = w / w.max()
            case "remembered":  # right in the first step
                w = w + state["average"]
                state = {**state, "average": F.mean(0).expand_as(F)}
            case "row":
                w = w[0]
            case "column":
                w = w.unsqueeze(2)
            case "bare":
                return w
            case "pair":
                return w, state
        return w, state, Info()

    def report(self, F: Tensor, state: dict[str, Any]) -> dict[str, Tensor]:
        return {"total": F.sum() if self.how == "report" else F.sum(1)}


@dataclass(frozen=True, kw_only=True)
class Swarm(Algorithm):
    """All runs of a seed move to their mean: a population."""

    together: ClassVar[bool] = True

    def init(self, ctx: Any) -> dict[str, Tensor]:
        return {"seed": ctx.seeds}

    def step(self, points: Any, state: Any, t: int, alpha: Any) -> Any:
        x = points[0].x
        d = torch.zeros_like(points[0].x)
        for seed in state["seed"].unique():
            mine = state["seed"] == seed
            d[mine] = x[mine].mean(0) - x[mine]
        return d, state, Info()


@dataclass(frozen=True, kw_only=True)
class Loose(Swarm):
    """The same without saying so."""

    together: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Herd(Swarm):
    """A population whose seeds meet."""

    def step(self, points: Any, state: Any, t: int, alpha: Any) -> Any:
        return points[0].x.mean(0) - points[0].x, state, Info()


@dataclass(frozen=True, kw_only=True)
class Turned(Algorithm):
    """A direction of the wrong shape."""

    def step(self, points: Any, state: Any, t: int, alpha: Any) -> Any:
        return points[0].vjp(torch.ones_like(points[0].F)).T, state, Info()


def job_of(
    problem: Problem, algorithm: Algorithm, U: int = 4, seeds: tuple[int, ...] = (0, 1), **options: Any
) -> Job:
    """A job made by hand; its classes are nobody's but the test's."""
    nodes = {
        group: {"_target_": f"{type(part).__module__}.{type(part).__qualname__}"}
        for group, part in (("problem", problem), ("algorithm", algorithm))
    }
    config = JobConfig.read(composed() | nodes | {"oracle": {"_target_": "mobench.oracles.Exact"}})
    runs = Runs.product(spread(U, problem.n_objectives), seeds)
    made: dict[str, Any] = {"steps": 10, "dtype": torch.float64, "device": torch.device("cpu")} | options
    return Job(config, problem, algorithm, runs, **made)


MIXED = {
    "centred": "values", "largest": "values", "summed": "values", "shifted": "values", "infected": "values",
    "gradient": "gradients", "measure": "measure 'size'",
}  # fmt: skip


@pytest.mark.parametrize("how", MIXED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_problem_that_mixes_its_runs(how: str, dtype: torch.dtype) -> None:
    with pytest.raises(RehearsalError) as refused:
        rehearse(job_of(Bowls(how=how), Balanced(), dtype=dtype))
    words = f"problem Bowls mixes the runs: {MIXED[how]} of one run alone differ from those in a batch"
    assert str(refused.value).startswith(words)
    assert "never over dim=0" in str(refused.value)


@pytest.mark.parametrize("kind", ["uniform", "constant"])
def test_equal_starts_hide_nothing(kind: str) -> None:
    """x - mean(x) over the runs of a seed, and any mean of equal values, change nothing at the start."""
    start = (
        {"kind": "uniform", "low": -1.0, "high": 1.0}
        if kind == "uniform"
        else {"kind": "constant", "value": 0.5}
    )
    for how in ("centred", "largest", "shifted"):
        with pytest.raises(RehearsalError, match="mixes the runs"):
            rehearse(job_of(Bowls(how=how, start=start), Balanced(), seeds=(0,)))


@pytest.mark.parametrize("how", ["normalised", "remembered"])
def test_a_method_that_mixes_its_runs(how: str) -> None:
    with pytest.raises(
        RehearsalError, match="algorithm Balanced mixes the runs: steps of one run alone"
    ) as refused:
        rehearse(job_of(Bowls(), Balanced(how=how)))
    assert "together: ClassVar[bool] = True" in str(refused.value)


def test_what_is_right_passes() -> None:
    for dtype in (torch.float64, torch.float32):
        assert rehearse(job_of(Bowls(), Balanced(), dtype=dtype)) == []
    assert rehearse(job_of(Bowls(), Balanced(), U=1, seeds=(0,))) == []
    assert rehearse(job_of(Bowls(how="centred"), Balanced(), U=1, seeds=(0,))) == []  # nothing to mix


def test_methods_that_vary_a_field_pass() -> None:
    """Columns of the algorithm belong to its runs: those of the few are taken along."""
    job = job_of(Bowls(), Balanced())
    runs = Runs.product(spread(4, 2), (0, 1), 3)
    column = torch.tensor([0.1, 0.01, 0.001], dtype=torch.float64)[runs.variant].unsqueeze(1)
    varied = replace(
        job,
        runs=runs,
        varied={"step_size": column[:, 0]},
        algorithm=job.algorithm.stacked({"step_size": column}),
    )
    assert rehearse(varied) == []


def test_populations_are_compared_seed_by_seed() -> None:
    assert rehearse(job_of(Bowls(), Swarm())) == []
    with pytest.raises(RehearsalError, match="algorithm Loose mixes the runs"):
        rehearse(job_of(Bowls(), Loose(), seeds=(0,)))
    with pytest.raises(RehearsalError, match="algorithm Herd mixes the runs: steps of one seed alone"):
        rehearse(job_of(Bowls(), Herd()))
    with pytest.raises(RehearsalError, match="problem Bowls mixes the runs"):
        rehearse(job_of(Bowls(how="largest"), Swarm(), seeds=(0,)))


def test_randomness_that_is_not_keyed_is_a_warning() -> None:
    messages = rehearse(job_of(Bowls(how="noise"), Balanced()))
    assert "problem Bowls: values differ from call to call" in messages[0]


def test_rounding_that_a_method_magnifies_is_no_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding that differs alone, and is magnified as much as that of the start, is not reported."""

    def steps(cast: rehearsal.Cast) -> Tensor:
        x = cast.theta * (1.0 + (2.0**-52 if len(cast.runs) == 1 else 0.0))  # one bit of rounding
        return torch.sin(1e13 * x)

    monkeypatch.setattr(rehearsal.Cast, "steps", steps)
    assert rehearse(job_of(Bowls(), Balanced())) == []


WRONG = {
    "three": r"Bowls.values returns shape \(3, 3\); expected \(3, 2\): 3 runs, then 2 objectives "
    r"\(n_objectives\) and 0 constraints \(n_constraints\).",
    "one": r"Bowls.values returns shape \(3, 1\); expected \(3, 2\):",
    "turned": r"Bowls.values returns shape \(2, 3\); expected \(3, 2\)",
    "detached": r"Bowls.values cannot be differentiated",
    "short start": r"Bowls.initial returns shape \(3, 2\); expected \(3, 5\): theta_0",
    "one number": r"Bowls.columns returns shape \(\); expected \(3,\): the measure 'size'",
}


WEIGHTS = {
    "row": r"Balanced.weights returns shape \(2,\); expected \(3, 2\): 3 runs, "
    r"then one weight for each of the 2 objectives",
    "column": r"Balanced.weights returns shape \(3, 2, 1\); expected \(3, 2\)",
    "bare": r"Balanced.weights returns Tensor; expected \(w, state, Info\(\)\)",
    "pair": r"Balanced.weights returns a tuple of 2; expected \(w, state, Info\(\)\)",
    "report": r"Balanced.report returns shape \(\); expected \(3,\): the column 'total'",
}


@pytest.mark.parametrize(
    ("problem", "algorithm", "words"),
    [
        *((Bowls(how=how), Balanced(), words) for how, words in WRONG.items()),
        *((Bowls(), Balanced(how=how), words) for how, words in WEIGHTS.items()),
        (Bowls(), Turned(), r"Turned.step returns shape \(5, 3\); expected \(3, 5\)"),
    ],
)
def test_wrong_shapes(problem: Problem, algorithm: Algorithm, words: str) -> None:
    with pytest.raises(RehearsalError, match=words):
        rehearse(job_of(problem, algorithm))


def test_only_the_users_own_parts_are_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    from mobench.algorithms.ls import LS
    from mobench.problems import VLMOP2

    monkeypatch.setattr(rehearsal, "cast", lambda *a: pytest.fail("nothing to rehearse"))
    assert rehearse(job_of(VLMOP2(), LS())) == []


# in a job


@pytest.fixture
def failing(mobench: Run, plug_in: str) -> Any:
    return lambda *arguments: mobench(plug_in, *arguments, "preferences=2", "logger=local")


def test_rows_do_not_change_by_the_rehearsal(
    failing: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = failing("problem=hole", "algorithm=ls", "steps=5").job.config()
    with_it = run_job({**config, "rerun": True}, tmp_path / "with").folder
    monkeypatch.setattr("mobench.jobs.train.rehearse", lambda job: [])
    without = run_job({**config, "rerun": True}, tmp_path / "without").folder
    first, second = (np.genfromtxt(f / "final.csv", delimiter=",", skip_header=1) for f in (with_it, without))
    np.testing.assert_array_equal(first[:, :8], second[:, :8])
