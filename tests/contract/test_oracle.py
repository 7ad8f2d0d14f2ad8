"""Rules of every oracle of conf/oracle, with every problem that it serves."""

from __future__ import annotations

import inspect
from functools import cache

import pytest
import torch
from torch import Tensor

from mobench.algorithms.ls import LS
from mobench.core import Oracle, Point, Runs, loop
from mobench.core.bilevel import Bilevel
from mobench.core.federated import Federated
from mobench.errors import CompatibilityError, MobenchError
from mobench.jobs.targets import instantiate
from tests.contract import cases
from tests.contract.cases import F64, ORACLES

every = pytest.mark.parametrize("name", ORACLES)
every_problem = pytest.mark.parametrize("problem", cases.different_problems())


@cache
def serving(problem: str) -> dict[str, str]:
    """Why an oracle does not serve the problem, "" if it does."""
    errors = {}
    for name in ORACLES:
        try:
            made(name, problem, None)
            errors[name] = ""
        except CompatibilityError as error:
            errors[name] = str(error)
    return errors


def made(name: str, problem: str, which: list[int] | None) -> Oracle:
    small = cases.small_problem(problem)
    runs = cases.few_runs(small)
    return cases.oracle_of(name, small, runs if which is None else runs.take(which))


def served(problem: str) -> list[str]:
    return [name for name, why in serving(problem).items() if not why]


@every
def test_every_parameter_is_documented(name: str) -> None:
    missing = cases.undocumented(cases.class_of("oracle", name))
    assert not missing, f"the docstring of the class does not name {', '.join(missing)}"


@every
def test_parameters_are_validated(name: str) -> None:
    """A value that is neither a number nor a choice is refused with the parameter's name."""
    problem = next(p for p in cases.different_problems() if name in served(p))
    node = cases.node("oracle", name)
    parameters = inspect.signature(cases.class_of("oracle", name)).parameters
    small = cases.small_problem(problem)
    for key, parameter in parameters.items():
        bad = "no such choice" if isinstance(parameter.default, str) else -1
        if parameter.default in (inspect.Parameter.empty, None) or isinstance(parameter.default, bool):
            continue
        with pytest.raises(MobenchError, match=key):
            instantiate(node | {key: bad}, "oracle", problem=small, runs=cases.few_runs(small))


@every_problem
def test_a_problem_is_served_or_refused_in_words(problem: str) -> None:
    """By one oracle at least; a refusal says which to choose, or what the problem has not."""
    assert served(problem)
    small = cases.small_problem(problem)
    for name, why in serving(problem).items():
        assert not why or "Choose " in why or "has no lower level" in why, (name, why)
    two_levels = isinstance(small, Bilevel)
    assert two_levels == ("hypergradient" in served(problem))
    if isinstance(small, Federated):
        assert served(problem) == ["local_steps"]


def walk(oracle: Oracle, runs: Runs, theta: Tensor, other: Oracle | None = None) -> list[Tensor]:
    """Iterates and values of linear scalarization; `other` continues after two of three steps."""
    seen: list[Tensor] = []
    algorithm = LS(step_size=0.01)
    state = loop.first_state(oracle, algorithm, {}, theta, runs, 3)

    def observe(t: int, state: object, point: Point) -> None:
        seen.append(point.values().clone())

    state = loop.advance(oracle, algorithm, {}, state, 2, observe)
    if other is not None:
        state = cases.reloaded(state)
    state = loop.advance(other or oracle, algorithm, {}, state, 3, observe)
    return [state["theta"], *seen]


@every_problem
def test_a_run_alone_is_a_run_in_a_batch(problem: str) -> None:
    """Samples, states and steps of each run; to the bit where another oracle continues in the middle."""
    small = cases.small_problem(problem)
    runs = cases.few_runs(small)
    for name in served(problem):
        oracle = made(name, problem, None)
        theta = cases.beside(oracle.spec.X, oracle.initial(runs))
        whole = walk(oracle, runs, theta)
        resumed = walk(made(name, problem, None), runs, theta, made(name, problem, None))
        assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True)), name
        for part in ([0], [3, 1]):
            alone = walk(made(name, problem, part), runs.take(part), theta[part])
            for a, b in zip(alone, whole, strict=True):
                torch.testing.assert_close(a, b[part], rtol=1e-7, atol=1e-9, msg=cases.said(name))


@every
def test_draws_do_not_depend_on_how_many_are_drawn(name: str) -> None:
    """Samples and steps of the first n of 100 seeds are the same in a job of 100 and in one of n."""
    problem = next(p for p in cases.different_problems() if name in served(p))
    small = cases.small_problem(problem)
    preference = cases.few_runs(small).all[:1]

    def walked(count: int) -> list[Tensor]:
        runs = Runs.product(preference, range(count))
        oracle = cases.oracle_of(name, small, runs)
        return walk(oracle, runs, oracle.initial(runs))

    whole = walked(100)
    for n in (1, 15, 16, 17, 64):
        for few, all_ in zip(walked(n), whole, strict=True):
            torch.testing.assert_close(few, all_[:n], rtol=1e-9, atol=1e-11)


@every_problem
def test_points_keep_to_the_spec(problem: str) -> None:
    """Shapes, types, samples, and requests that agree with each other; rows are slopes of the sample's values
    unless the oracle says that they are not (local steps, averages, approximate hypergradients).
    """
    small = cases.small_problem(problem)
    runs = cases.few_runs(small)
    for name in served(problem):
        oracle = made(name, problem, None)
        spec = oracle.spec
        K = spec.M + spec.N
        assert len(runs) == spec.R
        assert small.n_objectives == spec.M
        start = oracle.initial(runs)
        assert start.shape == (spec.R, spec.P)
        theta = cases.beside(spec.X, start)
        for dtype in (torch.float32, F64):
            x = theta.to(dtype)
            state = oracle.init(x)
            samples = [oracle.at(x, state, 0, k) for k in range(spec.samples)]
            point = samples[0]
            values = point.values()
            assert values.shape == (spec.R, K), name
            assert values.dtype == dtype, name
            assert not spec.positive or (point.F >= 0).all()
            assert point.vjp(torch.ones_like(point.F)).shape == x.shape
            assert oracle.exact(x).shape == (spec.R, K), name
        assert len(samples) < 2 or not torch.equal(samples[0].values(), samples[1].values()), name
        assert torch.equal(oracle.at(x, state, 0).values(), values), (
            name
        )  # the first sample, if none is named
        v, w = cases.direction(theta), cases.direction(values) + 2
        if "jvp" in spec.provides:
            torch.testing.assert_close(
                (point.vjp(w) * v).sum(1), (w * point.jvp(v)).sum(1), rtol=1e-6, atol=1e-8
            )
        if "jacobian" in spec.provides:
            rows = (w.unsqueeze(1) @ point.jacobian()).squeeze(1)
            torch.testing.assert_close(point.vjp(w), rows, rtol=1e-6, atol=1e-8, msg=cases.said(name))
        if spec.local_steps or spec.stateful or isinstance(small, Bilevel):
            continue
        h = 1e-6
        ahead, behind = (oracle.at(theta + s * v, state, 0, 0).values() for s in (h, -h))
        slope = (w * (ahead - behind)).sum(1) / (2 * h)
        if "hvp" in spec.provides:
            behind, here, ahead = (oracle.at(theta + s * v, state, 0, 0).vjp(w) for s in (-h, 0.0, h))
            # a maximum or a ReLU may have a kink between the points
            smooth = (ahead - 2 * here + behind).abs() <= 1e-3 * h
            assert smooth.double().mean() > 0.9, name
            bent = (ahead - behind) / (2 * h)
            apart = (oracle.at(theta, state, 0).hvp(w, v) - bent)[smooth].abs().max()
            assert apart <= 1e-4 * (1 + bent.abs().max()), name
        products = (point.vjp(w) * v).sum(1)
        torch.testing.assert_close(products, slope, rtol=1e-4, atol=1e-4, msg=cases.said(name))
