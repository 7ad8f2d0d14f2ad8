"""What users of Python functions asked for: bounds and measures of their own, a front, several methods in one
call, a method as an object, a list of runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import mobench
from mobench.core import Info, Weighting
from mobench.core.sets import Intervals
from mobench.errors import CompatibilityError, ConfigError, StoreError
from tests.conftest import REPOSITORY

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
    own = mobench.objectives(WELLS, dim=2, bounds=(lower, upper))
    rows = mobench.run(problem=own, algorithm="ls", preferences=3, steps=200, **QUICK)
    x = torch.from_numpy(mobench.load(rows).solutions["last"])
    # the minimiser of w (x - 1)^2 + (1 - w) (x + 1)^2, in each coordinate, is projected
    w = torch.tensor(rows[["preference_1", "preference_2"]].to_numpy().tolist(), dtype=torch.float64)
    best = (w[:, :1] - w[:, 1:]) / w.sum(1, keepdim=True)
    expected = torch.cat([best.clamp(0.5, 2.0), best.clamp(-2.0, -0.5)], dim=1)
    torch.testing.assert_close(x, expected, rtol=0, atol=1e-9)
    mixed = mobench.objectives(WELLS, dim=2, bounds=(-1.0, [0.0, 3.0]))
    assert mixed.keys["start"] == {"kind": "in_bounds"}
    for bounds, words in (([0, [1, 1, 1]], "two lists of 2 numbers"), ([[0, 2], [1, 1]], "lower < upper")):
        with pytest.raises(ConfigError, match=words):
            mobench.objectives(WELLS, dim=2, bounds=bounds)
    with pytest.raises(ConfigError, match="bounds that are finite"):
        mobench.objectives(WELLS, dim=2, bounds=([0.0, -float("inf")], [1.0, 1.0]))


def test_intervals() -> None:
    X = Intervals((0.0, -1.0), (1.0, 2.0))
    p = torch.tensor([[-1.0, 0.0], [0.5, 3.0]])
    assert X.project(p).tolist() == [[0.0, 0.0], [0.5, 2.0]]
    assert X.tangent(p, torch.ones(2, 1, 2)).tolist() == [[[0.0, 1.0]], [[1.0, 0.0]]]


def test_measures_and_a_front() -> None:
    t = torch.linspace(-1, 1, 201, dtype=torch.float64)
    front = torch.stack([2 * (t - 1) ** 2, 2 * (t + 1) ** 2], dim=1)  # of x_1 = x_2 = t
    own = mobench.objectives(WELLS, dim=2, front=front, measures={"length": lambda x: x.norm()})
    rows = mobench.run(problem=own, algorithm="mgda", preferences=2, steps=100, **QUICK)
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


def test_several_methods_and_a_method_as_an_object() -> None:
    own = mobench.objectives(WELLS, dim=2)
    both = mobench.run(
        problem=own, algorithm=["mgda", Halves(step_size=0.05)], preferences=2, steps=5, **QUICK
    )
    assert both["algorithm"].tolist() == ["mgda", "mgda", "Halves", "Halves"]
    alone = mobench.run(problem=own, algorithm="mgda", preferences=2, steps=5, **QUICK)
    assert both["f_1"].tolist()[:2] == alone["f_1"].tolist()
    other = mobench.run(
        problem=own, algorithm=Halves(step_size=0.05, factor=2.0), preferences=2, steps=5, **QUICK
    )
    assert other["f_1"].tolist() != both["f_1"].tolist()[2:]
    with pytest.raises(StoreError):
        mobench.load(both)
    found = mobench.runs()
    assert sorted(found["algorithm"]) == ["Halves", "Halves", "MGDA"]
    assert set(found["status"]) == {"done"}
    assert mobench.load(found["name"][0]).final is not None

    @dataclass(frozen=True, kw_only=True)
    class Local(Halves):
        """Nobody can import it."""

    with pytest.raises(ConfigError, match="at the top of a module"):
        mobench.run(problem=own, algorithm=Local(), **QUICK)
    with pytest.raises(ConfigError, match="chooses no method"):
        mobench.run(problem=own, algorithm=[], **QUICK)


def test_float32() -> None:
    seen = []

    def f(x: Tensor) -> Tensor:
        seen.append(x.dtype)
        return torch.stack([(x - 1).square().sum(), (x + 1).square().sum()])

    own = mobench.objectives(f, dim=3)
    rows = mobench.run(problem=own, algorithm="mgda", preferences=2, steps=5, dtype="float32", **QUICK)
    assert torch.float32 in seen
    assert mobench.load(rows).config["dtype"] == "float32"


def test_constraints_that_a_method_does_not_take() -> None:
    own = mobench.objectives(WELLS, dim=2, constraints=lambda x: x.sum() - 1)
    with pytest.raises(
        CompatibilityError,
        match=r"(?s)does not support constraints.*Methods that fit .*: .*csmoo2, .*ferero, .*penalty_sgd",
    ):
        mobench.run(problem=own, algorithm="mgda", preferences=2, steps=5, **QUICK)


def test_the_package_is_typed() -> None:
    assert (REPOSITORY / "mobench" / "py.typed").is_file()
