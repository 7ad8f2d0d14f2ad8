"""Wishes of users of Python functions: bounds and measures of their own, a front, several methods in one
call, a method as an object, a list of runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import mobench
from mobench.core import Info, Weighting
from mobench.core.random import generator
from mobench.errors import ConfigError, MobenchError, StoreError

WELLS = [lambda x: (x - 1).square().sum(), lambda x: (x + 1).square().sum()]
QUICK = {"seeds": [0], "logger": "local", "progress": False}


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))


@dataclass(frozen=True, kw_only=True)
class Halves(Weighting):
    """Equal weights times a factor."""

    factor: float = 1.0

    def weights(
        self, F: Tensor, G: Tensor | None, state: dict[str, Tensor], t: int
    ) -> tuple[Tensor, dict[str, Tensor], Info]:
        return torch.full_like(F, 0.5 * self.factor), state, Info()


def test_bounds_of_each_coordinate() -> None:
    lower, upper = torch.tensor([0.5, -2.0]), [2.0, -0.5]
    problem = mobench.objectives(WELLS, dim=2, bounds=(lower, upper))
    rows = mobench.run(problem=problem, algorithm="ls", preferences=3, steps=200, **QUICK)
    x = torch.from_numpy(mobench.load(rows).solutions["last"])
    # the minimiser of w (x - 1)^2 + (1 - w) (x + 1)^2, in each coordinate, is projected
    w = torch.tensor(rows[["preference_1", "preference_2"]].to_numpy().tolist(), dtype=torch.float64)
    best = (w[:, :1] - w[:, 1:]) / w.sum(1, keepdim=True)
    expected = torch.cat([best.clamp(0.5, 2.0), best.clamp(-2.0, -0.5)], dim=1)
    torch.testing.assert_close(x, expected, rtol=0, atol=1e-9)
    for one_side in ((1.5, None), ([1.5, 1.5], [float("inf"), None])):
        problem = mobench.objectives(WELLS, start=[2.0, 3.0], bounds=one_side)
        rows = mobench.run(problem=problem, algorithm="ls", preferences=1, steps=200, **QUICK)
        assert problem.solutions(rows)[0].tolist() == [1.5, 1.5]
    mixed = mobench.objectives(WELLS, dim=2, bounds=(-1.0, [0.0, 3.0]))
    assert mixed.keys["start"] == {"kind": "in_bounds"}
    for bounds, words in (([0, [1, 1, 1]], "two lists of 2 numbers"), ([[0, 2], [1, 1]], "lower < upper")):
        with pytest.raises(ConfigError, match=words):
            mobench.objectives(WELLS, dim=2, bounds=bounds)
    with pytest.raises(ConfigError, match="bounds that are finite"):
        mobench.objectives(WELLS, dim=2, bounds=([0.0, -float("inf")], [1.0, 1.0]))


def test_measures_and_a_front() -> None:
    t = torch.linspace(-1, 1, 201, dtype=torch.float64)
    front = torch.stack([2 * (t - 1) ** 2, 2 * (t + 1) ** 2], dim=1)  # of x_1 = x_2 = t
    problem = mobench.objectives(WELLS, dim=2, front=front, measures={"length": lambda x: x.norm()})
    rows = mobench.run(problem=problem, algorithm="mgda", preferences=2, steps=100, **QUICK)
    x = torch.from_numpy(mobench.load(rows).solutions["last"])
    torch.testing.assert_close(torch.tensor(rows["length"].tolist(), dtype=torch.float64), x.norm(dim=1))
    assert (rows["front_distance"] < 0.03).all()
    plain = mobench.run(
        problem=mobench.objectives(WELLS, dim=2), algorithm="mgda", preferences=2, steps=100, **QUICK
    )
    assert "length" not in plain
    assert mobench.load(plain).path != mobench.load(rows).path
    with pytest.raises(ConfigError, match=r"expected finite points of shape \(k, 2\)"):
        mobench.objectives(WELLS, dim=2, front=[[1.0, 2.0, 3.0]])
    with pytest.raises(ConfigError, match="measure 'two' must return a tensor"):
        mobench.objectives(WELLS, dim=2, measures={"two": lambda x: x})


# functions of a dictionary of tensors

START = {"a": torch.tensor([[0.5, -0.5, 0.25]]), "b": {"c": torch.tensor(1.5)}, "d": (torch.zeros(2),)}


def fit(p: Any) -> Tensor:
    """Two values of all parts."""
    inner = (p["a"] - 1).square().sum() + (p["d"][0] * p["b"]["c"] - 1).square().sum()
    return torch.stack([inner, (p["a"] + 1).square().sum() + p["b"]["c"].square() + p["d"][0].square().sum()])


def arranged(x: Tensor) -> Any:
    """x (6,) as START is."""
    return {"a": x[:3].view(1, 3), "b": {"c": x[3]}, "d": (x[4:],)}


def test_functions_of_a_dictionary_are_those_of_a_vector() -> None:
    """Bit for bit: values, bounds, constraints, measures; and solutions come back as dictionaries."""
    low = {"a": -0.75, "b": {"c": -float("inf")}, "d": ([-2.0, -0.25],)}
    by_name = mobench.objectives(
        fit,
        start=START,
        bounds=(low, 3),
        constraints=lambda p: p["a"].sum() - 2,
        ideal=[0, 0],
        measures={"size": lambda p: p["a"].norm() + p["d"][0].norm()},
    )
    flat = mobench.objectives(
        lambda x: fit(arranged(x)),
        start=[0.5, -0.5, 0.25, 1.5, 0, 0],
        bounds=([-0.75] * 3 + [-float("inf"), -2.0, -0.25], [3.0] * 6),
        constraints=lambda x: x[:3].sum() - 2,
        ideal=[0, 0],
        measures={"size": lambda x: x[:3].norm() + x[4:].norm()},
    )
    options = {"algorithm": "penalty_sgd", "preferences": 3, "steps": 30, **QUICK}
    rows = mobench.run(problem=by_name, **options)
    other = mobench.run(problem=flat, **options)
    pd.testing.assert_frame_equal(
        rows.drop(columns="seconds"), other.drop(columns="seconds"), check_exact=True
    )
    pd.testing.assert_frame_equal(mobench.load(rows).history, mobench.load(other).history, check_exact=True)
    vectors = flat.solutions(other)
    assert torch.equal(torch.stack(vectors), torch.from_numpy(mobench.load(rows).solutions["last"]))
    for solution, x, (_, row) in zip(by_name.solutions(rows), vectors, rows.iterrows(), strict=True):
        torch.testing.assert_close(solution, arranged(x), rtol=0, atol=0)
        torch.testing.assert_close(fit(solution).tolist(), [row["f_1"], row["f_2"]])
    with pytest.raises(StoreError, match="other functions"):
        flat.solutions(rows)


def test_a_function_draws_a_dictionary_for_each_seed() -> None:
    def start(rng: Any) -> Any:
        return {"W": rng.standard_normal((2, 2)), "b": rng.uniform()}

    def f(p: Any) -> Tensor:
        return torch.stack([(p["W"] - 1).square().sum(), (p["W"] + 1).square().sum() + p["b"] ** 2])

    problem = mobench.objectives(f, start=start)
    options = {"algorithm": "ls", "preferences": 2, "steps": 1, "algorithm.step_size": 1e-300, **QUICK}
    rows = mobench.run(problem=problem, **options | {"seeds": [0, 5]})
    solutions = problem.solutions(rows)
    for run, seed in enumerate(rows["seed"]):
        expected = start(generator(seed, problem="own", use="start"))
        assert np.array_equal(solutions[run]["W"], expected["W"])
        assert float(solutions[run]["b"]) == expected["b"]
    again = mobench.run(problem=problem, **options | {"seeds": [0, 5]})
    assert again.attrs == rows.attrs  # read, not run again
    # the same numbers in another arrangement are another job
    moved = mobench.objectives(lambda p: f({**p, "W": p["W"].view(2, 2)}), start={"W": [1.0] * 4, "b": 1})
    plain = mobench.objectives(lambda p: f({**p, "W": p["W"].view(2, 2)}), start={"b": 1, "W": [1.0] * 4})
    assert moved.code() != plain.code()


def test_a_network_by_functional_call() -> None:
    """The dictionary may be a state dict."""
    module = torch.nn.Linear(3, 2).double()
    x = torch.randn(5, 3, dtype=torch.float64)

    def losses(p: Any) -> Tensor:
        return torch.func.functional_call(module, p, (x,)).square().mean(0)

    problem = mobench.objectives(losses, start=dict(module.state_dict()))
    rows = mobench.run(problem=problem, algorithm="mgda", preferences=1, steps=20, **QUICK)
    module.load_state_dict(problem.solutions(rows)[0])
    torch.testing.assert_close(module(x).square().mean(0).tolist(), rows.loc[0, ["f_1", "f_2"]].tolist())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": {"a": "text"}}, r"start\['a'\] is str; expected a tensor, an array or a number"),
        ({"start": {"a": float("nan")}}, r"start\['a'\] is not finite"),
        ({"start": {}}, "holds no tensor"),
        ({"start": START, "dim": 7}, "dim=7, but start has 6 entries"),
        ({"start": START, "bounds": ({"a": 0}, 1)}, "bounds has a; expected the keys a, b, d"),
        (
            {"start": {"a": [0.0, 0.0]}, "bounds": ({"a": [0.0] * 3}, 1)},
            r"bounds\['a'\] has the shape \(3,\); expected \(2,\)",
        ),
        ({"start": {"a": 0.0}}, r"(?s)KeyError: 'b'.*called with parts of the shapes \{'a': \[\]\}"),
        ({"start": {"kind": "uniform", "low": 0, "high": 1}}, "needs dim="),
    ],
)
def test_dictionaries_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        mobench.objectives(lambda p: (p["a"] * p["b"]).sum(), **options)


def test_a_start_for_each_preference() -> None:
    options = {"algorithm": "ls", "preferences": 2, "steps": 1, "algorithm.step_size": 1e-300, **QUICK}
    options["seeds"] = [0, 1]
    problem = mobench.objectives(WELLS, start=[[1.0, 2.0], [3.0, 4.0]])
    rows = mobench.run(problem=problem, **options)
    for x, preference in zip(problem.solutions(rows), rows["preference_1"], strict=True):
        assert x.tolist() == ([1.0, 2.0] if preference == rows["preference_1"][0] else [3.0, 4.0])
    by_name = mobench.objectives(lambda p: WELLS[0](p["a"]), start=[{"a": 5.0}, {"a": 6.0}])
    assert [float(p["a"]) for p in by_name.solutions(mobench.run(problem=by_name, **options))] == [5, 5, 6, 6]
    with pytest.raises(MobenchError, match="start has 2 rows, but the job has 3 preferences"):
        mobench.run(problem=problem, **options | {"preferences": 3})
    with pytest.raises(ConfigError, match="expected the keys a"):
        mobench.objectives(lambda p: WELLS[0](p["a"]), start=[{"a": 5.0}, {"b": 6.0}])


def test_a_stop_rule_and_a_callback() -> None:
    seen: list[int] = []
    problem = mobench.objectives(
        WELLS,
        start=[[3.0, 3.0], [2.0, 2.0]],
        stop=lambda history: history.groupby("run")["f_1"].last() < 2.0,
        callback=lambda step, rows: seen.append(step),
    )
    options = {"algorithm": "ls", "preferences": 2, "steps": 60, "algorithm.step_size": 0.02, **QUICK}
    rows = mobench.run(problem=problem, **options)
    free = mobench.run(problem=mobench.objectives(WELLS, start=[[3.0, 3.0], [2.0, 2.0]]), **options)
    history = mobench.load(free).history
    for run, end in enumerate(rows["ended"]):
        f = history[history["run"] == run].set_index("step")["f_1"]
        assert end == f.index[f < 2.0][0]
        assert rows["f_1"][run] == f[end]
    assert rows["ended"].nunique() == 2
    assert seen[: rows["ended"].max()] == list(range(rows["ended"].max()))


def test_several_methods_and_a_method_as_an_object() -> None:
    problem = mobench.objectives(WELLS, dim=2)
    both = mobench.run(
        problem=problem, algorithm=["mgda", Halves(step_size=0.05)], preferences=2, steps=5, **QUICK
    )
    assert both["algorithm"].tolist() == ["mgda", "mgda", "Halves", "Halves"]
    alone = mobench.run(problem=problem, algorithm="mgda", preferences=2, steps=5, **QUICK)
    assert both["f_1"].tolist()[:2] == alone["f_1"].tolist()
    other = mobench.run(
        problem=problem, algorithm=Halves(step_size=0.05, factor=2.0), preferences=2, steps=5, **QUICK
    )
    assert other["f_1"].tolist() != both["f_1"].tolist()[2:]
    with pytest.raises(StoreError):
        mobench.load(both)
    runs = mobench.runs()
    assert sorted(runs["algorithm"]) == ["halves", "halves", "mgda"]
    assert set(runs["status"]) == {"done"}
    halves = runs[runs["algorithm"] == "halves"]
    assert set(halves["algorithm.factor"]) == {1.0, 2.0}
    assert runs.loc[runs["algorithm"] == "mgda", "algorithm.factor"].tolist() == [None]
    assert not {"algorithm.outputs", "problem.start", "dtype"} & set(runs)  # the same in all
    assert mobench.load(runs["name"][0]).final is not None

    @dataclass(frozen=True, kw_only=True)
    class Local(Halves):
        """Nobody can import it."""

    with pytest.raises(ConfigError, match="at the top of a module"):
        mobench.run(problem=problem, algorithm=Local(), **QUICK)
    with pytest.raises(ConfigError, match="chooses no method"):
        mobench.run(problem=problem, algorithm=[], **QUICK)
