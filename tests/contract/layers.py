"""Rules of spaces and constraints alike, which both wrap an oracle."""

from __future__ import annotations

import inspect
from functools import cache

import pytest
import torch
from torch import Tensor

from mobench.core import Oracle, Point
from mobench.errors import MobenchError
from mobench.jobs.targets import instantiate
from tests.contract import cases
from tests.contract.cases import F64


@cache
def problems_of(layer: str, name: str) -> list[str]:
    """Problems with which the layer can be used, up to three of different kinds."""
    problems = []
    for problem in cases.different_problems():
        small = cases.small_problem(problem)
        if cases.layered(layer, name, small, cases.few_runs(small)) is not None:
            problems.append(problem)
    return problems[:: max(1, len(problems) // 3)][:3]


def made(layer: str, name: str, problem: str, which: list[int] | None = None) -> Oracle:
    small = cases.small_problem(problem)
    runs = cases.few_runs(small)
    wrapped = cases.layered(layer, name, small, runs if which is None else runs.take(which))
    assert wrapped is not None
    return wrapped


def check_parameters(layer: str, name: str) -> None:
    """All are documented, and what is neither a number nor a choice is refused by name."""
    cls = cases.class_of(layer, name)
    assert not cases.undocumented(cls)
    small = cases.small_problem(problems_of(layer, name)[0])
    runs = cases.few_runs(small)
    inner = made(layer, name, problems_of(layer, name)[0]).inner  # type: ignore[attr-defined]
    parts = {"oracle": inner, "problem": small, "runs": runs}
    for key, parameter in inspect.signature(cls).parameters.items():
        default = cases.node(layer, name).get(key, parameter.default)
        if key in ("oracle", "problem", "runs") or default is None or isinstance(default, bool):
            continue
        bad = "no such choice" if isinstance(default, str) else -1
        with pytest.raises(MobenchError, match=key):
            instantiate(cases.node(layer, name) | {key: bad}, layer, **parts).initial(runs)


def check_seeds_alone(layer: str, name: str) -> None:
    """Runs of a seed are the same by themselves; another object continues to the bit from a saved state."""
    for problem in problems_of(layer, name):
        whole = made(layer, name, problem)
        small = cases.small_problem(problem)
        runs = cases.few_runs(small)
        theta = cases.beside(whole.spec.X, whole.initial(runs))
        first = whole.at(theta, whole.init(theta), 0)
        first.values()
        later = made(layer, name, problem).at(theta, cases.reloaded(first.state), 1).values()
        assert torch.equal(later, whole.at(theta, first.state, 1).values())
        for seed in (0, 1):
            part = [r for r, one in enumerate(runs.seeds.tolist()) if one == seed]
            alone = made(layer, name, problem, part)
            assert torch.equal(alone.initial(runs.take(part)), whole.initial(runs)[part])
            w = cases.direction(torch.empty(len(runs), whole.spec.M)) + 2
            for t in range(2):
                ours, theirs = point_at(whole, theta, t), point_at(alone, theta[part], t)
                torch.testing.assert_close(theirs.values(), ours.values()[part], rtol=1e-7, atol=1e-9)
                if whole.spec.provides:
                    torch.testing.assert_close(theirs.vjp(w[part]), ours.vjp(w)[part], rtol=1e-7, atol=1e-9)


def point_at(oracle: Oracle, theta: Tensor, t: int) -> Point:
    return oracle.at(theta, oracle.init(theta), t, 0)


def check_points(layer: str, name: str) -> None:
    """Shapes and types; requests agree with each other and, of the same sample, with differences."""
    for problem in problems_of(layer, name):
        oracle = made(layer, name, problem)
        spec = oracle.spec
        small = cases.small_problem(problem)
        start = oracle.initial(cases.few_runs(small))
        assert start.shape == (spec.R, spec.P)
        assert torch.equal(spec.X.project(start), start)
        theta = cases.beside(spec.X, start)
        for dtype in (torch.float32, F64):
            point = point_at(oracle, theta.to(dtype), 0)
            assert point.values().shape == (spec.R, spec.M + spec.N)
            assert point.values().dtype == dtype
            assert oracle.exact(theta.to(dtype)).shape == (spec.R, spec.M + spec.N)
        if not spec.provides:
            continue
        v, w = cases.direction(theta), cases.direction(point.values()) + 2
        products = (point.vjp(w) * v).sum(1)
        torch.testing.assert_close((w * point.jvp(v)).sum(1), products, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(
            (w.unsqueeze(1) @ point.jacobian()).squeeze(1), point.vjp(w), rtol=1e-6, atol=1e-8
        )
        if not (spec.stateful or spec.local_steps):
            h = 1e-6
            slope = (
                point_at(oracle, theta + h * v, 0).values() - point_at(oracle, theta - h * v, 0).values()
            ) / (2 * h)
            torch.testing.assert_close(products, (w * slope).sum(1), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(
                point.moved(theta + v).values(), point_at(oracle, theta + v, 0).values()
            )
            if "hvp" in spec.provides:
                bent = (
                    point_at(oracle, theta + h * v, 0).vjp(w) - point_at(oracle, theta - h * v, 0).vjp(w)
                ) / (2 * h)
                torch.testing.assert_close(point.hvp(w, v), bent, rtol=1e-4, atol=1e-4)
