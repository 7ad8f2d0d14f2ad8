"""Rules of every problem of conf/problem. Those that are served in parts alone (batches, clients, two
levels) are tried through their oracles, in `test_oracle.py`.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from mobench.core import Point, Problem, Runs
from mobench.errors import ConfigError, MobenchError
from mobench.oracles.exact import has_gradient, make_point, problem_spec
from tests.contract import cases
from tests.contract.cases import F64, PROBLEMS
from tests.contract.test_oracle import served

every = pytest.mark.parametrize("name", cases.different_problems())
DIRECT = [name for name in cases.different_problems() if has_gradient(cases.small_problem(name))]
directly = pytest.mark.parametrize("name", DIRECT)


def point_of(problem: Problem, x: Tensor) -> Point:
    return make_point(problem, x, problem_spec(problem, len(x), samples=1))


def bound(name: str, which: list[int] | None = None) -> tuple[Problem, Runs]:
    problem = cases.small_problem(name)
    runs = cases.few_runs(problem)
    runs = runs if which is None else runs.take(which)
    return problem.bind(runs), runs


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_field_is_documented(name: str) -> None:
    missing = cases.undocumented(cases.class_of("problem", name))
    assert not missing, f"the docstring of the class does not name {', '.join(missing)}"


@every
def test_starts_are_those_of_each_run_alone(name: str) -> None:
    problem, runs = bound(name)
    start = problem.initial(runs)
    assert start.shape == (len(runs), problem.dim)
    assert start.dtype == F64
    for part in ([0], [3, 1]):
        alone, few = bound(name, part)
        assert torch.equal(alone.initial(few), start[part])


COUNTS = (1, 2, 3, 7, 15, 16, 17, 31, 64, 100)  # torch draws blocks of 16 and more in another way than fewer


@every
def test_starts_do_not_depend_on_how_many_are_drawn(name: str) -> None:
    """Starts of the first n of 100 seeds are the same in a job of 100 and in one of n."""
    problem = cases.small_problem(name)
    runs = Runs.product(cases.few_runs(problem).all[:1], range(COUNTS[-1]))
    whole = problem.bind(runs).initial(runs)
    for n in COUNTS:
        few = Runs.product(runs.all, range(n))
        assert torch.equal(problem.bind(few).initial(few), whole[:n]), n


@every
def test_a_start_that_does_not_exist_is_refused(name: str) -> None:
    problem = cases.small_problem(name)
    if next(f for f in dataclasses.fields(problem) if f.name == "start").init:
        with pytest.raises(ConfigError, match="start"):
            dataclasses.replace(problem, start={"kind": "no such start"})


# seeds, shifts and places may be any number or word, and some are lists or have the name of another field
ANY = {
    *("steps", "data_root", "data_seed", "channel_seed", "start_lower", "target", "shift", "bound"),
    *("caps", "rotations", "second"),
}
FROM_ZERO = {"samples", "masks", "beam", "tasks_seed"}


@every
def test_fields_are_validated(name: str) -> None:
    """A word that is no choice and a number out of range are refused by name before the first step."""
    problem = cases.small_problem(name)
    runs = cases.few_runs(problem)
    for field in dataclasses.fields(problem):
        value = getattr(problem, field.name)
        if not field.init or field.name in ANY or not isinstance(value, str | int | float | None):
            continue
        if isinstance(value, bool) or (name, field.name) == ("least_squares", "noise"):
            continue
        least = -(field.name in FROM_ZERO)
        for bad in {str: ["no such choice"], float: [math.nan, -1.0]}.get(type(value), [least]):
            with pytest.raises(MobenchError, match=field.name):
                first_values(name, dataclasses.replace(problem, **{field.name: bad}), runs)


def first_values(name: str, problem: Problem, runs: Runs) -> Tensor:
    """Values at the start, by the first oracle that serves the problem of that name."""
    oracle = cases.oracle_of(served(name)[0], problem, runs)
    theta = oracle.initial(runs)
    return oracle.at(theta, oracle.init(theta), 0, 0).values()


@directly
def test_shapes_and_types(name: str) -> None:
    """(R, P) in, (R, K) out, of the type of the iterate; what is declared fits."""
    problem, runs = bound(name)
    x = cases.beside(problem.X, problem.initial(runs))
    M = problem.n_objectives
    exact = problem.values(x)
    for dtype in (torch.float32, F64):
        f = problem.values(x.to(dtype))
        assert f.shape == (len(runs), M + problem.n_constraints)
        assert f.dtype == dtype
        torch.testing.assert_close(f.double(), exact, rtol=2e-3, atol=2e-3)
        assert not problem.positive or (f[:, :M] >= 0).all()
        assert point_of(problem, x.to(dtype)).jacobian().dtype == dtype
    assert problem.ref_point is None or len(problem.ref_point) == M
    if problem.ideal_point is not None:
        feasible = exact[(exact[:, M:] <= 0).all(1), :M]
        assert (problem.ideal_point <= feasible + 1e-9).all()
    for key, column in problem.columns(x, exact).items():
        assert column.shape == (len(runs),), key


@directly
def test_a_run_does_not_notice_its_neighbours(name: str) -> None:
    problem, runs = bound(name)
    x = cases.beside(problem.X, problem.initial(runs))
    values, rows = problem.values(x), point_of(problem, x).jacobian()
    for part in ([0], [3, 1]):
        alone, _ = bound(name, part)
        torch.testing.assert_close(alone.values(x[part]), values[part], rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(point_of(alone, x[part]).jacobian(), rows[part], rtol=1e-8, atol=1e-10)


@directly
def test_slopes_are_those_of_the_values(name: str) -> None:
    """Rows against central differences of the values, and Hessian products against those of the rows."""
    problem, runs = bound(name)
    x = cases.beside(problem.X, problem.initial(runs))
    point = point_of(problem, x)
    v = cases.direction(x)
    w = cases.direction(point.values()) + 2
    h = 1e-6

    def sloped(fn: cases.Function) -> Tensor:
        return (fn(x + h * v) - fn(x - h * v)) / (2 * h)

    slopes = point.jvp(v)
    torch.testing.assert_close(slopes, sloped(problem.values), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close((point.vjp(w) * v).sum(1), (w * slopes).sum(1), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(point.jacobian() @ v.unsqueeze(2), slopes.unsqueeze(2), rtol=1e-8, atol=1e-9)
    if problem.twice:
        expected = sloped(lambda z: point_of(problem, z).vjp(w))
        torch.testing.assert_close(point.hvp(w, v), expected, rtol=1e-4, atol=1e-4)
