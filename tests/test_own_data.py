"""`mobench.objectives(..., data=...)`: functions of a vector and a batch of one's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import mobench
from mobench.core.random import generator
from mobench.errors import CompatibilityError, ConfigError

QUICK: dict[str, Any] = {"logger": "local", "progress": False, "preferences": 2, "seeds": [0, 1]}
A = torch.from_numpy(np.random.default_rng(0).standard_normal((22, 3)))
B = torch.from_numpy(np.random.default_rng(1).standard_normal((22, 2)))


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))


def fit(x: Tensor, batch: Any) -> Tensor:
    """Mean squared errors of two targets."""
    inputs, targets = batch
    return ((inputs @ x).unsqueeze(1) - targets).square().mean(0)


def key_of(rows: pd.DataFrame) -> str:
    return mobench.load(rows).path.name


def iterates(rows: pd.DataFrame) -> Tensor:
    return torch.from_numpy(mobench.load(rows).solutions["last"])


def test_all_data_are_those_that_a_function_captures() -> None:
    options = {"algorithm": "mgda", "steps": 20, **QUICK}
    size = {"size": lambda x, batch: x.norm() + 0 * batch[0].sum()}
    rows = mobench.run(problem=mobench.objectives(fit, dim=3, data=(A, B), measures=size), **options)
    captured = mobench.objectives(
        lambda x: fit(x, (A.to(x), B.to(x))), dim=3, measures={"size": lambda x: x.norm()}
    )
    plain = mobench.run(problem=captured, **options)
    pd.testing.assert_frame_equal(
        rows.drop(columns="seconds"), plain.drop(columns="seconds"), check_exact=True
    )
    pd.testing.assert_frame_equal(mobench.load(rows).history, mobench.load(plain).history, check_exact=True)
    assert mobench.load(rows).meta["data_size"] == 22


def test_batches_are_those_of_a_plain_loop() -> None:
    """Orders of named seeds, the short last batch included; equal weights of two gradients."""
    p = mobench.objectives(fit, dim=3, data=TensorDataset(A, B), batch_size=8, name="mine")
    keys = {key: value for key, value in QUICK.items() if key != "preferences"}
    rows = mobench.run(problem=p, algorithm="ls", steps=7, **keys, **{"preferences.weights": [[0.5, 0.5]]})
    for seed, solution in zip((0, 1), iterates(rows), strict=True):
        x = torch.from_numpy(generator(seed, problem="mine", use="start").uniform(-1.0, 1.0, 3))
        for t in range(7):
            epoch, place = divmod(t, 3)
            order = generator(seed, problem="mine", use="epoch", epoch=epoch).permutation(22)
            chosen = torch.from_numpy(order[8 * place : 8 * place + 8].copy())
            a, b = A[chosen], B[chosen]
            gradient = (2 * a.T @ ((a @ x).unsqueeze(1) - b) / len(chosen)).mean(1)
            x = x - 0.1 * gradient
        torch.testing.assert_close(solution, x, rtol=0, atol=1e-13)
    history = mobench.load(rows).history
    assert history["step"].unique().tolist() == [0, 3, 6, 7]
    # at the end all data count
    torch.testing.assert_close(
        torch.tensor(rows["f_1"].tolist(), dtype=torch.float64),
        torch.stack([fit(x, (A, B))[0] for x in iterates(rows)]),
    )


@pytest.mark.parametrize(
    "oracle", [{}, {"oracle": "minibatch", "oracle.batch_size": 4}, {"oracle": "ema", "oracle.blocks": 2}]
)
def test_a_run_is_the_same_alone(oracle: dict[str, Any]) -> None:
    problem = mobench.objectives(fit, dim=3, data=(A, B), batch_size=4, ideal=[0, 0])
    options = {"algorithm": "stch", "steps": 12, **oracle, **QUICK}
    together = iterates(mobench.run(problem=problem, **options))
    alone = iterates(mobench.run(problem=problem, **options | {"seeds": [1]}))
    torch.testing.assert_close(together[[1, 3]], alone, rtol=0, atol=1e-12)


def test_contents_of_the_data_make_the_job() -> None:
    def run(data: Any, **options: Any) -> pd.DataFrame:
        problem = mobench.objectives(fit, dim=3, data=data, **options)
        return mobench.run(problem=problem, algorithm="ls", steps=2, **QUICK)

    first = run((A, B), batch_size=8)
    assert key_of(run((A.clone(), B.clone()), batch_size=8)) == key_of(first)
    loader = DataLoader(TensorDataset(A, B), batch_size=8, shuffle=True)
    assert key_of(run(loader)) == key_of(first)
    other = A.clone()
    other[5, 1] += 1e-9
    names = [key_of(run((other, B), batch_size=8)), key_of(run((A, B), batch_size=4)), key_of(run((A, B)))]
    assert len({key_of(first), *names}) == 4


def test_dictionaries_and_constraints() -> None:
    data = {"a": A, "b": B}
    start = {"slope": torch.zeros(3), "offset": 0.5}

    def f(p: Any, batch: Any) -> Tensor:
        return ((batch["a"] @ p["slope"] + p["offset"]).unsqueeze(1) - batch["b"]).square().mean(0)

    def bound(p: Any, batch: Any) -> Tensor:
        return (batch["a"] @ p["slope"]).mean() - 0.1

    problem = mobench.objectives(f, start=start, data=data, batch_size=6, constraints=bound, ideal=[0, 0])
    rows = mobench.run(problem=problem, algorithm="penalty_sgd", steps=6, **QUICK)
    for p, g in zip(problem.solutions(rows), rows["g_1"], strict=True):
        assert p["slope"].shape == (3,)
        torch.testing.assert_close(float(bound(p, data)), g)


@pytest.mark.parametrize("steps", [1, 20])
def test_a_constraint_that_is_nan_ends_a_run_as_an_objective_does(steps: int) -> None:
    """g = log x_1; with w = (0.1, 0.9) the first step is that of f_2 and leads to x_0 - 0.9 (x_0 + 1) < 0."""

    def f(x: Tensor) -> Tensor:
        return torch.stack([(x - 1).square().sum(), (x + 1).square().sum()])

    start = torch.tensor([0.3, 0.2], dtype=torch.float64)
    problem = mobench.objectives(
        f, start=start, constraints=lambda x: torch.log(x[:1]), ideal=[0, 0], reference=[9, 9]
    )
    keys = {key: value for key, value in QUICK.items() if key not in ("preferences", "seeds")}
    options = {"algorithm": "penalty_sgd", "algorithm.step_size": 0.5, "steps": steps, "seeds": [0]}
    with pytest.warns(UserWarning, match=r"diverged: 1 of 2 runs \(run 0\)"):
        rows = mobench.run("preferences.weights=[[.1,.9],[.9,.1]]", problem=problem, **keys, **options)
    assert rows["status"].tolist() == ["diverged", "done"]
    assert rows["violation"].isna().tolist() == [True, False]
    there = start - 0.9 * (start + 1)
    assert rows.loc[0, ["f_1", "f_2"]].tolist() == pytest.approx(f(there).tolist())  # no step follows
    volume = float((9 - rows["f_1"][1]) * (9 - rows["f_2"][1]))
    assert mobench.load(rows).meta["hypervolume"]["last"] == pytest.approx({"0": volume})
    assert mobench.choose(rows, weights=[0.1, 0.9])["run"].tolist() == [1]


def test_float32_data_follow_the_variables() -> None:
    p = mobench.objectives(fit, dim=3, data=(A.float(), B.float().numpy()), batch_size=8)
    for dtype in ("float64", "float32"):
        assert mobench.run(problem=p, algorithm="ls", steps=2, dtype=dtype, **QUICK)["f_1"].notna().all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"f": lambda x: x.sum()}, r"takes 1 positional argument.*\n.*and a batch: \(\(22, 3\)"),
        ({"f": lambda x, batch: batch[0] @ x}, r"\[22\] values for all 22 samples.*batch of 8"),
        ({"f": lambda x, batch: (batch[0].clamp_(-9, 9) @ x).mean()}, "writes into the data"),
        ({"batch_size": 23}, r"batch_size=23 must be a whole number in 1..22"),
        ({"batch_size": 2.5}, r"batch_size=2.5 must be a whole number"),
        ({"data": None}, "batch_size=8 is given without data"),
        ({"data": (A, B[:5])}, r"data: the tensors have \[5, 22\] entries"),
        ({"measures": {"two": lambda x, batch: x}}, "measure 'two' must return a tensor"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], words: str) -> None:
    options = {"f": fit, "dim": 3, "data": (A.clone(), B.clone()), "batch_size": 8} | changes
    with pytest.raises(ConfigError, match=words):
        mobench.objectives(**options)


def test_without_data_there_is_nothing_to_sample() -> None:
    problem = mobench.objectives(lambda x: x.square().sum(), dim=2)
    with pytest.raises(CompatibilityError, match="nothing to sample"):
        mobench.run(problem=problem, algorithm="ls", oracle="minibatch", **QUICK)


def test_missing_labels_of_a_data_set_are_no_augmentation() -> None:
    targets = B.clone()
    targets[::2] = torch.nan
    items = [(a, b) for a, b in zip(A, targets, strict=True)]

    def masked(x: Tensor, batch: Any) -> Tensor:
        known = ~batch[1].isnan()
        errors = (batch[0] @ x).unsqueeze(1) - batch[1].nan_to_num()
        return (known * errors.square()).sum(0) / known.sum(0).clamp_min(1)

    rows = mobench.run(
        problem=mobench.objectives(masked, dim=3, data=items), algorithm="ls", steps=3, **QUICK
    )
    assert (rows["status"] == "done").all()
