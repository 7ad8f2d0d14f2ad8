"""`mobench.networks(optimizer=, schedule=, clip=, keep=, patience=)`, against loops of torch alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as schedules

import mobench
from mobench.core.random import seed_for
from mobench.errors import CompatibilityError, ConfigError, MobenchError
from mobench.jobs.fingerprint import fingerprint

QUICK: dict[str, Any] = {"seeds": [0, 1], "logger": "local", "progress": False, "record.every": 4}
WEIGHTS = [[0.2, 0.8], [0.7, 0.3]]
F64 = torch.float64


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))


def made(seed: int, n: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=draws, dtype=F64)
    return x, torch.stack([x[:, 0] * x[:, 1], x.sum(1)], 1) + torch.randn(n, 2, generator=draws, dtype=F64)


DATA = made(0, 20)
VALIDATION = made(1, 10)


class Net(nn.Module):
    """With a parameter of no axis and one of two."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
        self.scale = nn.Parameter(torch.tensor(1.5, dtype=F64))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.body(x)


def loss(outputs: Tensor, batch: Any) -> Tensor:
    return (outputs - batch[1]).square().mean(0)


def problem(**options: Any) -> Any:
    return mobench.networks(Net, loss, DATA, execution="vmap", **options)


def run(spec: Any, method: str = "ls", steps: int = 30, **keys: Any) -> pd.DataFrame:
    return mobench.run(
        problem=spec, algorithm=method, steps=steps, **QUICK | {"preferences.weights": WEIGHTS} | keys
    )


def iterates(rows: pd.DataFrame) -> Tensor:
    return torch.from_numpy(mobench.load(rows).solutions["last"])


def plain(
    optimizer: Callable[..., Any], schedule: Any, clip: float | None, w: Any, seed: int, steps: int
) -> Tensor:
    """One network by torch alone: the weighted sum of its losses, as `ls` has it."""
    torch.manual_seed(seed_for(seed, problem="network", use="start"))
    net = Net()
    stepper = optimizer(list(net.parameters()))
    later = None if schedule is None else schedule(stepper)
    for _ in range(steps):
        stepper.zero_grad()
        (torch.tensor(w, dtype=F64) * loss(net(DATA[0]), DATA)).sum().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        stepper.step()
        if later is not None:
            later.step()
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def grouped(p: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Weights decay, biases do not: by the number of axes, as one network has them."""
    sets = [[q for q in p if (q.ndim > 1) == matrix] for matrix in (True, False)]
    return torch.optim.AdamW(
        [{"params": sets[0], "weight_decay": 0.3}, {"params": sets[1], "weight_decay": 0.0, "lr": 0.01}],
        lr=0.05,
        amsgrad=True,
    )


def warmed(o: torch.optim.Optimizer) -> Any:
    first = schedules.LinearLR(o, 0.1, total_iters=5)
    return schedules.SequentialLR(o, [first, schedules.CosineAnnealingLR(o, 25)], [5])


CASES: dict[str, tuple[Callable[..., Any], Any, float | None]] = {
    "adamw and cosine": (
        lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
        lambda o: schedules.CosineAnnealingLR(o, 30),
        None,
    ),
    "groups, warm-up, clipped": (grouped, warmed, 0.5),
    "momentum and one cycle": (
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
        lambda o: schedules.OneCycleLR(o, 0.05, total_steps=30),
        2.0,
    ),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.2), None, None),
    "rmsprop and milestones": (
        lambda p: torch.optim.RMSprop(p, lr=1, centered=True, eps=1.0),
        lambda o: schedules.MultiStepLR(o, [4, 20]),
        None,
    ),
    "nadam and a function": (
        lambda p: torch.optim.NAdam(p, lr=0.02),
        lambda o: schedules.LambdaLR(o, lambda t: 0.95**t),
        None,
    ),
    "rprop": (lambda p: torch.optim.Rprop(p, lr=0.01), None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_each_run_is_a_loop_of_torch_alone(name: str) -> None:
    optimizer, schedule, clip = CASES[name]
    rows = run(problem(optimizer=optimizer, schedule=schedule, clip=clip))
    assert (rows["status"] == "done").all()
    expected = [plain(optimizer, schedule, clip, w, seed, 30) for w in WEIGHTS for seed in (0, 1)]
    torch.testing.assert_close(iterates(rows), torch.stack(expected), rtol=0, atol=1e-10)
    assert not torch.allclose(expected[0], plain(optimizer, None, None, WEIGHTS[0], 0, 30), atol=1e-6) or (
        schedule is None and clip is None
    )


ADAMW: dict[str, Any] = {
    "optimizer": lambda p: torch.optim.AdamW(p, lr=0.05),
    "schedule": lambda o: schedules.CosineAnnealingLR(o, 30),
    "clip": 1.0,
}
KEPT: dict[str, Any] = {**ADAMW, "validation": VALIDATION, "keep": "best"}


@pytest.mark.parametrize("method", ["mgda", "ferero", "famo"])
def test_a_run_is_the_same_alone_and_beside_others(method: str) -> None:
    options = {**KEPT, "patience": 3, "batch_size": 8}
    together = run(problem(**options), method)
    for seed in (0, 1):
        alone = run(problem(**options), method, seeds=[seed])
        torch.testing.assert_close(iterates(together)[seed::2], iterates(alone), rtol=0, atol=1e-10)
        for column in ("kept", "ended"):
            assert together[column].tolist()[seed::2] == alone[column].tolist()
    balanced = run(problem(**ADAMW), method, steps=12)
    torch.manual_seed(seed_for(0, problem="network", use="start"))
    net = Net()
    loop = mobench.Balanced(ADAMW["optimizer"](net.parameters()), method, WEIGHTS[0], steps=12)
    schedule = ADAMW["schedule"](loop.optimizer)
    for _ in range(12):
        loop.backward(loss(net(DATA[0]), DATA))
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        loop.optimizer.step()
        schedule.step()
    flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    torch.testing.assert_close(iterates(balanced)[0], flat, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["groups, warm-up, clipped", "nadam and a function"])
def test_a_stopped_job_continues_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer, schedule, clip = CASES[name]
    options = {**KEPT, "patience": 100, "optimizer": optimizer, "schedule": schedule, "clip": clip}

    def fails(step: int, rows: pd.DataFrame) -> None:
        if step >= 24:
            raise RuntimeError("no more power")

    with pytest.raises(MobenchError, match="no more power"):
        run(problem(**options, callback=fails), "ferero", **{"checkpoint.seconds": 0})
    seen: list[int] = []
    rest = run(problem(**options, callback=lambda step, rows: seen.append(step)), "ferero")
    assert seen[0] > 0
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "whole"))
    whole = run(problem(**options), "ferero")
    actual, expected = (rows.drop(columns="seconds") for rows in (rest, whole))
    pd.testing.assert_frame_equal(actual, expected, check_exact=True)
    pd.testing.assert_frame_equal(mobench.load(rest).history, mobench.load(whole).history, check_exact=True)
    assert torch.equal(iterates(rest), iterates(whole))


def accuracy(outputs: Tensor, batch: Any) -> Tensor:
    return (outputs.sign() == batch[1].sign()).double().mean()


@pytest.mark.parametrize("keep", ["best", "validation_2", "-accuracy"])
def test_a_run_ends_with_its_best_recorded_weights(keep: str) -> None:
    spec = problem(**KEPT | {"keep": keep}, measures={"accuracy": accuracy})
    rows = run(spec, "mgda", steps=30, **{"record.every": 1})
    history = mobench.load(rows).history
    networks = spec.modules(rows)
    for (_, row), net in zip(rows.iterrows(), networks, strict=True):
        of_run = history[history["run"] == row["run"]]
        value = {
            "best": of_run[["validation_1", "validation_2"]].mul(
                row[["preference_1", "preference_2"]].to_numpy()
            ),
            "validation_2": of_run[["validation_2"]],
            "-accuracy": -of_run[["accuracy"]],
        }[keep].max(axis=1)
        assert row["kept"] == of_run["step"].iloc[int(np.argmin(value))]
        with torch.no_grad():
            outputs = net(VALIDATION[0])
            np.testing.assert_allclose(row["validation_2"], loss(outputs, VALIDATION)[1], rtol=1e-12)
            np.testing.assert_allclose(row["accuracy"], accuracy(outputs, VALIDATION))
            np.testing.assert_allclose(row["f_1"], loss(net(DATA[0]), DATA)[0], rtol=1e-12)
    assert rows["kept"].min() > 0
    assert rows["kept"].nunique() > 1
    last = run(problem(**ADAMW), "mgda", steps=30, **{"record.every": 1})
    assert not torch.allclose(iterates(rows), iterates(last))


def test_a_run_without_a_better_step_ends() -> None:
    every = {"record.every": 1}
    options = KEPT | {"optimizer": lambda p: torch.optim.SGD(p, lr=0.5), "schedule": None}
    whole = run(problem(**options), "mgda", steps=40, **every)
    rows = run(problem(**options, patience=3), "mgda", steps=40, **every)
    assert rows["ended"].nunique() > 1
    history = mobench.load(rows).history
    full = mobench.load(whole).history
    for row in rows.itertuples():
        of_run = full[full["run"] == row.run]
        value = np.maximum(
            row.preference_1 * of_run["validation_1"], row.preference_2 * of_run["validation_2"]
        )
        best = np.minimum.accumulate(value.to_numpy())
        # steps since a strict improvement
        waited = [t - int(np.argmin(value.to_numpy()[: t + 1])) for t in range(len(best))]
        over = [t for t in range(40) if waited[t] >= 3]
        assert row.ended == (over[0] if over else -1)
        assert row.kept == (row.ended - 3 if over else waited.index(0, 0) + int(np.argmin(value)))
        assert history[history["run"] == row.run]["step"].max() == (row.ended if over else 40)


def test_the_names_of_other_jobs_are_what_they_were() -> None:
    before = problem(measures={"accuracy": accuracy})
    d = before.functions
    listed = (d.make, d.losses, d.forward, d.constraints, dict(d.measures), d.stop, [], d.data.tree, None)
    assert before.code() == fingerprint(listed)

    def code(lr: float = 0.1, **options: Any) -> str:
        return problem(optimizer=lambda p: torch.optim.SGD(p, lr=lr), **options).code()

    others = [
        code(0.2),
        code(clip=1.0),
        code(schedule=lambda o: schedules.ConstantLR(o)),
        code(schedule=lambda o: schedules.ExponentialLR(o, 0.9)),
        code(validation=VALIDATION),
        code(validation=VALIDATION, keep="best"),
        code(validation=VALIDATION, keep="best", patience=2),
        code(validation=VALIDATION, keep="validation_1"),
    ]
    assert code() == code()
    assert len({code(), before.code(), *others}) == len(others) + 2


class Noisy(torch.optim.SGD):
    """Langevin steps, whose numbers belong to no run."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(1e-3 * torch.randn_like(p))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"optimizer": lambda p: torch.optim.SGD(p, lr=0.1, maximize=True)}, "maximize=True"),
    ({"optimizer": lambda p: torch.optim.LBFGS(p)}, r"(?s)closure.*mobench\.Balanced"),
    ({"optimizer": lambda p: torch.optim.Adafactor(p, lr=0.1)}, r"(?s)in another way than alone.*Balanced"),
    # three steps move less than the square root of rounding
    ({"optimizer": lambda p: torch.optim.Adafactor(p, lr=1e-10)}, r"(?s)in another way than alone.*Balanced"),
    ({"optimizer": lambda p: Noisy(p, lr=0.1)}, r"(?s)optimizer=.*Balanced"),
    ({"optimizer": lambda p: torch.optim.SGD(p[1:], lr=0.1)}, "steps 4 of the module's 5"),
    ({"optimizer": lambda p: torch.optim.SGD(p, lr=-1)}, "optimizer= fails.*Invalid learning rate"),
    ({"optimizer": lambda p: None}, "returned NoneType"),
    ({"optimizer": torch.optim.SGD(Net().parameters(), lr=0.1)}, "must be a function that makes one"),
    (ADAMW | {"schedule": lambda o: schedules.ReduceLROnPlateau(o)}, "(?s)ReduceLROnPlateau.*Balanced"),
    (ADAMW | {"clip": 0}, "clip=0 must be a number > 0"),
    ({"clip": 1.0}, "need optimizer="),
    ({"schedule": lambda o: None}, "need optimizer="),
    ({"patience": 3}, "needs keep="),
    ({"keep": "best"}, "give validation="),
    ({"keep": "best", "validation": VALIDATION, "positive": False}, "name the column that decides"),
    ({"keep": "validation_3", "validation": VALIDATION}, "validation_1, validation_2"),
    ({"keep": "best", "validation": VALIDATION, "patience": 0}, "at least 1"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_refused_with_the_reason(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        problem(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "qffl"}, r"(?s)the length of its step.*mobench\.Balanced"),
        ({"algorithm.optimizer": "adam"}, "leave one out"),
        ({"algorithm.step_size": 0.1}, "no effect beside optimizer="),
        ({"space": "subspace", "space.k": 5}, "chooses other variables"),
        ({"record.measures": False}, "record.measures=true"),
        ({"algorithm.outputs": ["last", "mean"]}, "at one iterate"),
    ],
)
def test_jobs_that_cannot_have_it(options: dict[str, Any], words: str) -> None:
    keys = {key: value for key, value in options.items() if key != "algorithm"}
    with pytest.raises((CompatibilityError, ConfigError, MobenchError), match=words):
        run(problem(**KEPT), options.get("algorithm", "ls"), steps=2, **keys)


def test_a_run_that_diverges_leaves_its_neighbours_alone() -> None:
    """A loss becomes infinite where it is small, which only the second preference makes it."""

    def broken(outputs: Tensor, batch: Any) -> Tensor:
        F = (outputs - batch[1]).square().mean(0)
        return torch.stack([F[0], torch.where(F[1] < 1.0, float("inf"), F[1])])

    spec = mobench.networks(Net, broken, DATA, execution="vmap", **ADAMW | {"clip": None})
    calm = [0.999999999999, 1e-12]
    with pytest.warns(UserWarning, match="diverged"):
        rows = run(spec, "ls", **{"preferences.weights": [calm, [0.5, 0.5]]})
    assert rows["status"].tolist() == ["done", "done", "diverged", "diverged"]
    alone = run(spec, "ls", **{"preferences.weights": [calm]})
    torch.testing.assert_close(iterates(rows)[:2], iterates(alone), rtol=0, atol=1e-10)
