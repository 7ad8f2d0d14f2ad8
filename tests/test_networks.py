"""`mobench.networks`: five modules that were not written for this project, against plain PyTorch loops."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import mobench
from mobench.core.random import generator, seed_for
from mobench.errors import CompatibilityError, ConfigError, MobenchError, StoreError
from mobench.jobs.build import make_job
from mobench.jobs.record import Recorder
from mobench.models.stacked import WAYS, mapped
from mobench.problems import networks

QUIET: dict[str, Any] = {"logger": "local", "progress": False}
F64 = torch.float64
METHODS = ("ls", "mgda", "ferero")


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


# what a user writes: at most 15 lines each

PROGRAMS = {
    "residual": """
        import mobench, torch, torchvision
        from torch.nn.functional import cross_entropy
        from torch.utils.data import DataLoader, TensorDataset

        def losses(z, batch):
            return torch.stack([cross_entropy(z[:, 2 * m : 2 * m + 2], batch[1][:, m]) for m in range(2)])

        def make():
            return torchvision.models.mobilenet_v2(num_classes=4, width_mult=0.1, dropout=dropout)

        data = TensorDataset(torch.rand(16, 3, 12, 12), torch.randint(0, 2, (16, 2)))
        problem = mobench.networks(make, losses, DataLoader(data, batch_size=8, shuffle=True))
    """,
    "transformer": """
        import mobench, torch
        class Tagger(torch.nn.Module):
            def __init__(self):
                super().__init__()
                layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
                self.words, self.heads = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 2)
                self.encoder = torch.nn.TransformerEncoder(layer, 2)
            def forward(self, words):
                return self.heads(self.encoder(self.words(words))).mean(1)

        data = torch.randint(0, 20, (24, 5)), torch.randn(24, 2)
        problem = mobench.networks(Tagger, lambda z, b: (z - b[1]).square().mean(0), data, batch_size=8)
    """,
    "recurrent": """
        import mobench, torch
        class Forecast(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.cells, self.out = torch.nn.GRU(3, 8, batch_first=True), torch.nn.Linear(8, 2)
            def forward(self, series):
                return self.out(self.cells(series)[0][:, -1])

        data = torch.randn(24, 6, 3), torch.randn(24, 2)
        problem = mobench.networks(Forecast, lambda z, b: (z - b[1]).square().mean(0), data, batch_size=8)
    """,
    "perceptron": """
        import mobench, torch
        from torch import nn

        def make():
            return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2))

        data = torch.randn(24, 4), torch.randn(24, 2)
        problem = mobench.networks(make, lambda z, b: (z - b[1]).square().mean(0), data, batch_size=8)
    """,
    "recommender": """
        import mobench, torch
        class Towers(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.users, self.items = torch.nn.Embedding(10, 6), torch.nn.Embedding(10, 6)
        def score(m, b):
            return (m.users(b["user"]) * m.items(b["item"])).sum(1)

        losses = [lambda s, b: (s - b["stars"]).square().mean(), lambda s, b: (s - b["stars"]).relu().mean()]
        ids = torch.randint(0, 10, (2, 30))
        data = {"user": ids[0], "item": ids[1], "stars": torch.rand(30)}
        problem = mobench.networks(Towers, losses, data, batch_size=10, forward=score)
    """,
}
TRAINING = """
for name in methods:
    rows = mobench.run(problem=problem, algorithm=name, preferences=2, steps=steps, **options)
    results[name] = rows, problem
"""


def program(name: str) -> str:
    return textwrap.dedent(PROGRAMS[name]) + TRAINING


def ran(name: str, methods: tuple[str, ...] = (), dropout: float = 0.1, **options: Any) -> dict[str, Any]:
    """The names of a program after it has run."""
    scope: dict[str, Any] = {"__name__": "program", "methods": methods, "results": {}, "dropout": dropout}
    scope |= {"steps": 2 if name == "residual" else 4, "options": QUIET | options}
    torch.manual_seed(1)
    exec(compile(program(name), name, "exec"), scope)
    return scope


@pytest.mark.parametrize("name", PROGRAMS)
def test_three_methods_in_fifteen_lines(name: str) -> None:
    written = [line for line in program(name).splitlines() if line.strip()]
    assert len(written) <= 15
    methods = METHODS[:1] if name == "residual" else METHODS  # one is enough for 50 layers
    results = ran(name, methods)["results"]
    for method, (rows, problem) in results.items():
        assert (rows["status"] == "done").all(), method
        assert np.isfinite(rows[["f_1", "f_2"]]).all(axis=None)
        history = mobench.load(rows).history
        first = history[history["step"] == 0]
        assert not np.allclose(first[["f_1", "f_2"]], rows[["f_1", "f_2"]], rtol=1e-6)
        if name != "residual":
            module = problem.modules(rows)[-1]
            with torch.no_grad():
                again = expected_losses(problem, module, problem.functions.data.tree)
            np.testing.assert_allclose(again, rows[["f_1", "f_2"]].iloc[-1], rtol=1e-4)


def expected_losses(problem: Any, module: nn.Module, batch: Any) -> Tensor:
    functions = problem.functions
    outputs = functions.forward(module, batch)
    return torch.cat([torch.atleast_1d(loss(outputs, batch)) for loss in functions.losses])


# against plain loops


def bound(problem: Any, seeds: tuple[int, ...] = (0, 1), **options: Any) -> Any:
    """The job of a problem, and its problem bound to the runs, in float64."""
    setup = {"preferences": 2, "seeds": list(seeds), "dtype": "float64", "steps": 4, "algorithm": "mgda"}
    from mobench.config import compose

    setup |= QUIET | options
    with problem.chosen(setup) as chosen:
        job = make_job(compose.compose([*chosen, *(f"{k}={compose.text(v)}" for k, v in setup.items())]))
        oracle = job.oracle()
    return job, oracle


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_plain_loops(name: str) -> None:
    """Values and Jacobians of a batch, run by run and loss by loss with `backward`, in float64."""
    problem = ran(name, dropout=0.0)["problem"]
    large = name == "residual"
    job, oracle = bound(problem, seeds=(0,) if large else (0, 1))
    theta = oracle.initial(job.runs)
    theta = theta + 1e-2 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(3), dtype=F64)
    batch = oracle.batch(0)
    J: list[Tensor] = []
    F: list[Tensor] = []
    for r in range(len(theta)):
        module = problem.functions.make().double()
        nn.utils.vector_to_parameters(theta[r].clone(), module.parameters())
        chosen = batch.chosen[batch.group[r]]
        samples = mapped(
            lambda t, i=chosen: t[i].double() if t.is_floating_point() else t[i], problem.functions.data.tree
        )
        rows = []
        for loss in range(2):
            module.zero_grad()
            values = expected_losses(problem, module.train(), samples)
            values[loss].backward()
            rows.append(torch.cat([p.grad.reshape(-1) for p in module.parameters()]))  # type: ignore[union-attr]
        J.append(torch.stack(rows))
        F.append(values.detach())
    possible = [w for w in WAYS if not (problem.functions.probe.training and w == "vmap")]
    for way in ("vmap", "channels_last") if large else possible:
        object.__setattr__(oracle.problem, "execution", way)
        point = oracle.at(theta, {}, 0)
        torch.testing.assert_close(point.values(), torch.stack(F), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(point.jacobian(), torch.stack(J), rtol=1e-8, atol=1e-11)
    assert ("vmap" in possible) == (name != "recurrent")  # PyTorch's GRU has no rule for it


def test_training_is_that_of_a_plain_loop() -> None:
    """Three epochs of weighted SGD by hand, from the same start and the same order."""
    problem = ran("perceptron", dropout=0.0)["problem"]
    options = {"preferences.weights": [[0.3, 0.7]], "seeds": [5], "steps": 9, "dtype": "float64"}
    rows = mobench.run(problem=problem, algorithm="ls", **{"algorithm.step_size": 0.05}, **options, **QUIET)
    torch.manual_seed(seed_for(5, problem="network", use="start"))
    module = problem.functions.make().double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    x, y = (t.double() for t in problem.functions.data.tree)
    for epoch in range(3):
        order = generator(5, problem="network", use="epoch", epoch=epoch).permutation(24)
        for i in np.split(order, 3):
            optimizer.zero_grad()
            losses = (module(x[i]) - y[i]).square().mean(0)
            (0.3 * losses[0] + 0.7 * losses[1]).backward()
            optimizer.step()
    (trained,) = problem.modules(rows)
    for p, q in zip(trained.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        rows.loc[0, ["f_1", "f_2"]].astype(float), (module(x) - y).square().mean(0).tolist(), rtol=1e-10
    )


def test_batch_normalisation_ends_with_the_statistics_of_the_training_data() -> None:
    torch.manual_seed(0)
    data = torch.randn(600, 3) * 2 + 1, torch.randn(600, 2)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2))

    problem = mobench.networks(make, squares, data, batch_size=100)
    rows = mobench.run(problem=problem, algorithm="mgda", preferences=2, steps=5, dtype="float64", **QUIET)
    for module, (_, row) in zip(problem.modules(rows), rows.iterrows(), strict=True):
        x, y = (t.double() for t in data)
        z = module[0](x).detach()  # type: ignore[index]
        norm = module[1]  # type: ignore[index]
        # 600 samples are evaluated in three parts
        parts = z.split(200)
        torch.testing.assert_close(norm.running_mean, torch.stack([p.mean(0) for p in parts]).mean(0))
        torch.testing.assert_close(norm.running_var, torch.stack([p.var(0) for p in parts]).mean(0))
        torch.testing.assert_close(squares(module(x), (x, y)).tolist(), [row["f_1"], row["f_2"]])


def squares(z: Tensor, batch: Any) -> Tensor:
    return (z - batch[1]).square().mean(0)


# dropout


class Drawing(nn.Module):
    """Draws in four ways, of which two have no module."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(3, 4, num_layers=2, dropout=0.5)
        self.drop = nn.AlphaDropout(0.3)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        z = self.drop(self.cells(x.unsqueeze(1))[0].squeeze(1))
        if self.training:
            z = z * torch.bernoulli(torch.full_like(z, 0.8)) + 0.1 * torch.randn(z.shape, dtype=z.dtype)
        return self.out(z)


def drawing(**options: Any) -> Any:
    torch.manual_seed(0)
    return mobench.networks(Drawing, squares, (torch.randn(8, 3), torch.zeros(8, 2)), **options)


def test_a_run_draws_as_its_module_does_under_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs: list[Tensor] = []

    def forward(module: nn.Module, batch: Any) -> Tensor:
        inputs.append(batch[0])  # in the order of the batch
        return module(batch[0])

    job, oracle = bound(drawing(forward=forward))
    theta = oracle.initial(job.runs)
    oracle.at(theta, {}, 0).values()  # makes the module, under a seed of its own
    seeds: list[int] = []
    plain = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda key: seeds.append(key) or plain(key))
    before = torch.get_rng_state()
    computed = oracle.at(theta, {}, 3).values()
    assert torch.equal(before, torch.get_rng_state())
    assert len(seeds) == len(theta) == 4
    assert len(set(seeds)) == 2  # all preferences of a seed draw the same
    module = Drawing().double()
    for key, row, values, x in zip(seeds, theta, computed, inputs[-4:], strict=True):
        torch.nn.utils.vector_to_parameters(row, module.parameters())
        plain(key)
        torch.testing.assert_close(values, module(x).square().mean(0).detach())


@pytest.mark.parametrize("name", ["perceptron", "transformer"])
def test_alone_and_in_a_batch(name: str) -> None:
    """Dropout, batch order and start of a run do not depend on who is trained beside it."""
    problem = ran(name, dropout=0.3)["problem"]
    common = {"algorithm": "epo", "steps": 6, "dtype": "float64", **QUIET}
    rows = mobench.run(
        problem=problem, seeds=[0, 3], **{"preferences.weights": [[0.3, 0.7], [0.6, 0.4]]}, **common
    )
    alone = mobench.run(problem=problem, seeds=[3], **{"preferences.weights": [[0.6, 0.4]]}, **common)
    for key in ("f_1", "f_2"):
        np.testing.assert_allclose(alone[key], rows[key].iloc[[3]], rtol=1e-9)
    assert rows["f_1"].nunique() == 4


def test_dropout_differs_by_seed_and_step_but_not_by_preference() -> None:
    problem = mobench.networks(
        lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2)),
        squares,
        (torch.ones(8, 3), torch.zeros(8, 2)),
    )
    job, oracle = bound(problem)
    theta = oracle.initial(job.runs)[:1].expand(4, -1)
    values = [oracle.at(theta, {}, t).values() for t in range(2)]
    torch.testing.assert_close(values[0][:2], values[0][2:])
    assert not torch.allclose(values[0][0], values[0][1])
    assert not torch.allclose(values[0], values[1])


# interrupted


def long_problem(**options: Any) -> Any:
    torch.manual_seed(0)
    data = torch.randn(40, 4), torch.randn(40, 2)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))

    return mobench.networks(make, squares, data, batch_size=8, **options)


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        a.drop(columns="seconds"), b.drop(columns="seconds"), check_exact=True, check_like=False
    )
    for x, y in zip(mobench.load(a).solutions.values(), mobench.load(b).solutions.values(), strict=True):
        assert np.array_equal(x, y)


LONG: dict[str, Any] = {"algorithm": "omd_tch", "preferences": 2, "seeds": [0, 1], "steps": 40, **QUIET}
LONG["checkpoint.seconds"] = 0


def test_resumes_bit_for_bit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = mobench.run(problem=long_problem(), **LONG)
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "again"))

    def fails(step: int, rows: pd.DataFrame) -> None:
        if step >= 20:
            raise RuntimeError("no more power")

    with pytest.raises(MobenchError, match="no more power"):
        mobench.run(problem=long_problem(callback=fails), **LONG)
    steps: list[int] = []
    rows = mobench.run(problem=long_problem(callback=lambda step, rows: steps.append(step)), **LONG)
    assert steps[0] > 0  # it went on
    assert steps[-1] == 40
    same(rows, whole)
    monkeypatch.undo()


# what a user sees on the way


def test_modules_of_some_of_the_rows() -> None:
    problem = long_problem()
    assert repr(problem) == "<mobench problem 'network': networks of 58 parameters, 2 losses, 40 samples>"
    rows = mobench.run(problem=problem, **{**LONG, "algorithm.outputs": ["last", "mean"]})
    every = problem.modules(rows)
    assert len(every) == 4
    some = rows[rows["output"] == "last"].iloc[[3, 1]]
    for module, run in zip(problem.modules(some), (3, 1), strict=True):
        torch.testing.assert_close(module.state_dict(), every[run].state_dict(), rtol=0, atol=0)
    mean = problem.solutions(rows[rows["output"] == "mean"])
    assert torch.equal(mean[2]["0.weight"], problem.modules(rows, "mean")[2][0].weight)  # type: ignore[index]
    assert not torch.equal(mean[2]["0.weight"], every[2][0].weight)  # type: ignore[index]
    assert problem.modules(rows[rows["f_1"] < 0]) == []
    with pytest.raises(StoreError, match=r"no output 'means' .* Did you mean 'mean'"):
        problem.modules(rows, "means")


def test_callback_sees_each_recorded_step_with_its_measures() -> None:
    seen: list[tuple[int, pd.DataFrame]] = []
    problem = long_problem(
        callback=lambda step, rows: seen.append((step, rows)),
        validation=(torch.randn(10, 4), torch.randn(10, 2)),
        measures={"largest": lambda z, batch: (z - batch[1]).abs().mean()},
    )
    rows = mobench.run(problem=problem, **LONG)
    history = mobench.load(rows).history
    assert [step for step, _ in seen] == list(range(0, 41, 5))
    for step, table in seen:
        expected = history[history["step"] == step].reset_index(drop=True)
        pd.testing.assert_frame_equal(table[expected.columns], expected)
    module = problem.modules(rows)[2]
    x, y = problem.functions.validation.tree
    with torch.no_grad():
        z = module(x)
    np.testing.assert_allclose(
        rows.loc[2, ["validation_1", "validation_2", "largest"]].astype(float),
        [*squares(z, (x, y)).tolist(), float((z - y).abs().mean())],
        rtol=1e-5,
    )


def below(history: pd.DataFrame) -> pd.Series:
    return history.groupby("run")["f_1"].last() < 0.5


def test_a_stop_rule_ends_each_run_by_itself() -> None:
    setup = {**LONG, "algorithm": "ls", "algorithm.step_size": 0.01, "dtype": "float64", "record.every": 2}
    rows = mobench.run(problem=long_problem(stop=below), **setup)
    assert (rows["ended"] >= 0).any()
    assert rows["ended"].nunique() > 1
    history = mobench.load(rows).history
    free = mobench.load(mobench.run(problem=long_problem(), **setup)).history
    for run, end in enumerate(rows["ended"]):
        stopped = history[history["run"] == run]
        last = stopped["step"].max()
        assert last == (end if end >= 0 else 40)
        expected = free[(free["run"] == run) & (free["step"] <= last)]
        np.testing.assert_array_equal(stopped["f_1"], expected["f_1"])
        assert (stopped["f_1"].iloc[:-1] >= 0.5).all()
    seed = int(rows.loc[1, "seed"])
    weights = [[rows.loc[1, "preference_1"], rows.loc[1, "preference_2"]]]
    lonely = {k: v for k, v in setup.items() if k != "preferences"} | {
        "seeds": [seed],
        "preferences.weights": weights,
    }
    alone = mobench.run(problem=long_problem(stop=below), **lonely)
    assert alone.loc[0, "ended"] == rows.loc[1, "ended"]
    np.testing.assert_allclose(alone.loc[0, "f_1"], rows.loc[1, "f_1"], rtol=1e-9)


def test_a_stop_rule_sees_the_whole_history_and_a_step_costs_its_own_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []  # rows of each table that is made of recorded columns
    frame = Recorder.frame

    def counted(self: Recorder, job: Any) -> pd.DataFrame:
        table = frame(self, job)
        made.append(len(table))
        return table

    monkeypatch.setattr(Recorder, "frame", counted)
    seen: list[pd.DataFrame] = []
    copies: list[pd.DataFrame] = []

    def never(history: pd.DataFrame) -> Any:
        seen.append(history)
        copies.append(history.copy())
        return np.zeros(4, dtype=bool)

    setup = {**LONG, "algorithm": "ls", "record.every": 1, "seeds": [3]}
    rows = mobench.run("+vary.step_size=[0.01,0.02]", problem=long_problem(stop=never), **setup)
    history = mobench.load(rows).history
    assert len(seen) == 40
    for t, (table, copied) in enumerate(zip(seen, copies, strict=True)):
        pd.testing.assert_frame_equal(table, copied)  # later steps do not write into it
        pd.testing.assert_frame_equal(table, history[history["step"] <= t], check_exact=True)
    assert made == [4] * 40 + [4 * 41]  # the last one is the history on disk


def test_stop_rules_that_cannot_hold() -> None:
    with pytest.raises(MobenchError, match=r"algorithm\.outputs=\['mean'\]"):
        mobench.run(problem=long_problem(stop=below), **{**LONG, "algorithm.outputs": ["mean"]})
    with pytest.raises(MobenchError, match="expected 4 booleans"):
        mobench.run(problem=long_problem(stop=lambda h: True), **{**LONG, "algorithm": "ls"})


def test_starts_from_state_dicts_one_for_each_preference() -> None:
    modules = [nn.Linear(4, 2) for _ in range(2)]
    data = torch.randn(12, 4), torch.randn(12, 2)

    def problem(start: Any) -> Any:
        return mobench.networks(lambda: nn.Linear(4, 2), squares, data, start=start)

    tiny = {"algorithm": "ls", "preferences": 2, "seeds": [0, 1], "steps": 1, "algorithm.step_size": 1e-12}
    rows = mobench.run(problem=problem([m.state_dict() for m in modules]), **tiny, **QUIET)
    for r, trained in enumerate(problem([m.state_dict() for m in modules]).modules(rows)):
        torch.testing.assert_close(trained.weight, modules[r // 2].weight)
    with pytest.raises(ConfigError, match="start has 2 state dicts, but the job has 3 preferences"):
        mobench.run(problem=problem([m.state_dict() for m in modules]), **{**tiny, "preferences": 3}, **QUIET)
    with pytest.raises(ConfigError, match="no state dict of this module"):
        problem(nn.Linear(3, 2).state_dict())
    # a module instead of a function: all seeds start there
    of_module = mobench.networks(modules[0], squares, data)
    rows = mobench.run(problem=of_module, **tiny, **QUIET)
    for trained in of_module.modules(rows):
        torch.testing.assert_close(trained.weight, modules[0].weight)


def test_data_as_tensors_a_data_set_and_a_loader_are_one_problem() -> None:
    x, y = torch.randn(12, 4), torch.randn(12, 2)

    class Items(Dataset[Any]):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, i: int) -> Any:
            return x[i], y[i]

    sources: list[Any] = [(x, y), (x.numpy(), y.numpy()), TensorDataset(x, y), list(TensorDataset(x, y))]
    sources += [Items(), DataLoader(Items(), batch_size=5, shuffle=True)]
    network = nn.Linear(4, 2)
    problems = [mobench.networks(network, squares, source, batch_size=5) for source in sources]
    assert len({problem.code() for problem in problems}) == 1
    assert problems[-1].functions.data.batch_size == 5
    assert mobench.networks(network, squares, (x, y + 1), batch_size=5).code() != problems[0].code()


def test_another_loss_is_another_job_and_its_modules_are_refused() -> None:
    data = torch.randn(12, 4), torch.randn(12, 2)
    first = mobench.networks(nn.Linear(4, 2, bias=False), squares, data)
    other = mobench.networks(nn.Linear(4, 2, bias=False), lambda z, b: squares(z, b) * 2, data)
    rows = mobench.run(problem=first, algorithm="ls", preferences=1, steps=2, **QUIET)
    with pytest.raises(StoreError, match="another module, other losses or other data"):
        other.modules(rows)
    assert mobench.load(rows).config["dtype"] == "float32"


def in_evaluation() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    net[1].eval()
    return net


KNOWN_AGAIN: dict[str, Any] = {
    "a function that calls eval()": in_evaluation,
    "a module without a hash": nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
    "measures of run": nn.Linear(4, 2),
}


@pytest.mark.parametrize("kind", KNOWN_AGAIN)
def test_modules_of_what_this_object_has_trained(kind: str) -> None:
    """Whatever hash its functions have: their losses on all data, by plain torch, are those of the rows."""
    data = torch.randn(12, 4), torch.randn(12, 2)
    problem = mobench.networks(KNOWN_AGAIN[kind], squares, data)
    measures = {"size": lambda x: x.square().sum()} if kind == "measures of run" else None
    rows = mobench.run(problem=problem, algorithm="ls", preferences=2, steps=3, measures=measures, **QUIET)
    for k, module in enumerate(problem.modules(rows)):
        losses = squares(module(data[0]), data)
        np.testing.assert_allclose(losses.tolist(), rows.loc[k, ["f_1", "f_2"]].tolist(), rtol=1e-5)
        solution = problem.solutions(rows)[k]
        assert all(torch.equal(value, solution[name]) for name, value in module.named_parameters())
    if kind == "a module without a hash":
        other = mobench.networks(KNOWN_AGAIN[kind], squares, data)
        with pytest.raises(StoreError, match="functions that have no hash"):
            other.modules(rows)
    else:
        mobench.networks(KNOWN_AGAIN[kind], squares, data).modules(rows)


def test_modules_of_functions_that_change_what_they_refer_to() -> None:
    """A list that a loss appends to is another hash, but the object is the one that was trained."""
    seen: list[float] = []
    data = torch.randn(12, 4), torch.randn(12, 2)

    def losses(z: Tensor, batch: Any) -> Tensor:
        seen.append(0.0)
        return squares(z, batch)

    problem = mobench.networks(nn.Linear(4, 2), losses, data)
    rows = mobench.run(problem=problem, algorithm="ls", preferences=2, steps=3, **QUIET)
    with pytest.warns(UserWarning, match="something that its functions refer to has changed since"):
        trained = problem.modules(rows)
    found = [squares(module(data[0]), data).tolist() for module in trained]
    np.testing.assert_allclose(found, rows[["f_1", "f_2"]], rtol=1e-5)
    with pytest.raises(StoreError, match="another module, other losses or other data"):
        mobench.networks(nn.Linear(4, 2), losses, data).modules(rows)


def test_frozen_parameters_and_buffers_of_each_seed() -> None:
    """Random features are drawn with the network, and not trained."""

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.Linear(4, 6).requires_grad_(False)
            self.register_buffer("shift", torch.randn(6))
            self.out = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.cos(self.frozen(x) + self.shift))

    data = torch.randn(12, 4), torch.randn(12, 2)
    problem = mobench.networks(Features, squares, data)
    assert problem.functions.probe.layout.dim == 14
    rows = mobench.run(problem=problem, algorithm="ls", preferences=2, seeds=[0, 1], steps=3, **QUIET)
    trained = problem.modules(rows)
    for r, seed in enumerate((0, 1, 0, 1)):
        torch.manual_seed(seed_for(seed, problem="network", use="start"))
        module = Features()
        assert torch.equal(trained[r].frozen.weight, module.frozen.weight)  # type: ignore[union-attr]
        assert torch.equal(trained[r].shift, module.shift)
        assert not torch.equal(trained[r].out.weight, module.out.weight)  # type: ignore[union-attr]
        expected = squares(trained[r](data[0]), data).tolist()
        np.testing.assert_allclose(rows.loc[r, ["f_1", "f_2"]].astype(float), expected, rtol=1e-5)


def test_control_flow_that_depends_on_the_data_is_computed_run_by_run() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) if self.a(x).sum() > 0 else self.b(x)

    problem = mobench.networks(Branches, squares, (torch.randn(12, 4), torch.randn(12, 2)))
    assert "data-dependent control flow" in problem.functions.probe.training
    rows = mobench.run(problem=problem, algorithm="mgda", preferences=2, steps=3, **QUIET)
    meta = mobench.load(rows).meta
    assert meta["execution"].endswith("loop")
    assert "data-dependent" in meta["not_batched"]
    with pytest.raises(ConfigError, match="cannot be batched"):
        mobench.networks(Branches, squares, (torch.randn(12, 4), torch.randn(12, 2)), execution="vmap")


@pytest.mark.parametrize(("side", "way"), [(0, "vmap"), (8, "vmap"), (64, "channels_last")])
def test_only_large_batches_of_pictures_are_computed_run_by_run(side: int, way: str) -> None:
    x = torch.randn(12, 1, side, side) if side else torch.randn(12, 4)
    pictures = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = pictures if side else nn.Linear(4, 2)
    problem = mobench.networks(net, squares, (x, torch.randn(12, 2)))
    rows = mobench.run(problem=problem, algorithm="ls", preferences=2, steps=2, **QUIET)
    assert mobench.load(rows).meta["execution"].endswith(way)


def test_losses_in_half_precision_become_float32_and_autocast_stays_outside() -> None:
    """autocast in forward= is the user's; one around the job changes nothing."""

    def forward(module: nn.Module, batch: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(batch[0])

    data = torch.randn(12, 4), torch.randn(12, 2)
    module = nn.Linear(4, 2)
    mixed = [
        lambda z, b: 300 * (z - b[1].half()).square().mean().half(),
        lambda z, b: z.float().square().mean(),
    ]
    problem = mobench.networks(module, mixed, data)
    options = {"algorithm": "mgda", "preferences": 1, "steps": 2} | QUIET
    row = mobench.run(problem=problem, **options)[["f_1", "f_2"]].iloc[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = mobench.run(problem=problem, rerun=True, **options)[["f_1", "f_2"]].iloc[0]
    assert row.tolist() == again.tolist()
    plain = mobench.networks(module, [lambda z, b: z.square().mean(), squares], data, forward=forward)
    rows = mobench.run(problem=plain, **options)
    assert rows["status"].tolist() == ["done"]
    assert mobench.load(rows).config["dtype"] == "float32"


# refused


class Counter(nn.Module):
    """A buffer that each forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1.0
        return self.out(x) / self.seen


class Memory(nn.Module):
    """A state that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.out(x) * self.calls


class Calls(nn.Module):
    """A function between two layers."""

    def __init__(self, fn: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fn = fn
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.fn(x))


def unseeded() -> nn.Module:
    module = nn.Linear(4, 2)
    nn.init.normal_(module.weight, generator=torch.Generator().manual_seed(torch.seed() % 1000))
    return module


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield torch.zeros(4), torch.zeros(2)


class Augmented(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        return torch.rand(4), torch.zeros(2)


def network(make: Any, loss: Any = squares, data: Any = None, **options: Any) -> Any:
    torch.manual_seed(0)
    return mobench.networks(
        make, loss, (torch.randn(12, 4), torch.randn(12, 2)) if data is None else data, **options
    )


class Adjacency(nn.Module):
    """A sparse matrix beside the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)
        self.register_buffer("adjacency", torch.eye(4).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return self.out((self.adjacency @ x.mT).mT)


def words(*shape: int) -> Any:
    return torch.arange(12).reshape(-1, *shape) % 5, torch.randn(12, 2)


def calling(fn: Callable[[Tensor], Tensor]) -> Callable[[], Any]:
    return lambda: network(lambda: Calls(fn))


def sampled() -> Any:
    data = TensorDataset(torch.zeros(3, 4), torch.zeros(3, 2))
    return linear(data=DataLoader(data, sampler=WeightedRandomSampler([0.1, 0.2, 0.7], 3)))


def linear(loss: Any = squares, **options: Any) -> Any:
    return network(nn.Linear(4, 2), loss, **options)


HOLES = torch.randn(40, 4), torch.randn(40, 2).index_fill(0, torch.tensor(7), torch.nan)
PLAIN = TensorDataset(torch.randn(12, 4), torch.randn(12, 2))


def mixing(items: Any) -> Any:
    x, y = default_collate(items)
    return (x + x.roll(1, 0)) / 2, y


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a buffer that changes": (lambda: network(Counter), "writes into its buffer seen"),
    "a state in the module": (lambda: network(Memory), "must not keep a state"),
    "numbers of NumPy": (calling(lambda x: x * np.random.rand()), "Python's random or of NumPy"),  # noqa: NPY002
    "numbers of Python": (calling(lambda x: x * random.random()), "Python's random or of NumPy"),
    "random numbers in evaluation": (calling(lambda x: nnf.dropout(x, 0.5)), r"after eval\(\)"),
    "writing into the data": (calling(lambda x: x.relu_()), "writes into the data"),
    "another network each time": (lambda: network(unseeded), "another network at the same seed"),
    "a lazy layer": (lambda: network(lambda: nn.LazyLinear(2)), "lazy layer"),
    "nothing to train": (lambda: network(nn.Flatten), "no trainable parameter"),
    "half precision of a part": (
        lambda: network(lambda: nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).half())),
        r"torch\.float16, torch\.float32; expected all.*torch\.autocast",
    ),
    "complex parameters": (
        lambda: network(lambda: nn.Linear(4, 2, dtype=torch.complex64)),
        r"weight is complex.*view_as_real",
    ),
    "a complex loss": (lambda: linear(lambda z, b: squares(z, b) * 1j), r"losses is complex.*\.abs\(\)"),
    "a complex measure": (lambda: linear(measures={"m": lambda z, b: z.mean() * 1j}), "m is complex"),
    "a complex constraint": (lambda: linear(constraints=lambda f: f[0] * 1j), "constraint is complex"),
    "a complex start": (
        lambda: linear(start=nn.Linear(4, 2, dtype=torch.complex64).state_dict()),
        "weight of start is complex",
    ),
    "sparse gradients": (
        lambda: network(lambda: nn.Sequential(nn.Embedding(5, 2, sparse=True)), data=words()),
        "The gradient of loss 1 fails.*\n.*sparse=False",
    ),
    "a sparse buffer": (lambda: network(lambda: Adjacency()), r"adjacency has the layout torch\.sparse_coo"),
    "sparse data": (
        lambda: linear(data=(torch.ones(12, 4).to_sparse(), torch.randn(12, 2))),
        r"data has the layout torch\.sparse_coo",
    ),
    "no module": (lambda: network(lambda: 3), "returned int"),
    "no factory": (lambda: network(3), "must be a torch.nn.Module or a function"),
    "a loss of each sample": (lambda: linear(lambda z, b: (z - b[1]).square()), r"shapes \(4, 2\)"),
    "a loss without a gradient": (lambda: linear(lambda z, b: squares(z.detach(), b)), "Loss 1 does not"),
    "a loss that fails": (lambda: network(nn.Linear(4, 3)), "RuntimeError: The size of tensor a"),
    "a loss that is not finite": (lambda: linear(lambda z, b: squares(z, b) / 0), "expected finite numbers"),
    "no loss": (lambda: linear([]), "at least one loss"),
    "a loss that is none": (lambda: linear([3]), r"must be a function of \(outputs, batch\)"),
    "a data set without a length": (lambda: linear(data=DataLoader(Endless())), "IterableDataset"),
    "random augmentation": (lambda: linear(data=Augmented()), "differs from reading to reading"),
    "a sampler": (sampled, "a sampler of its own"),
    "tensors of two lengths": (
        lambda: linear(data=(torch.zeros(3, 4), torch.zeros(4, 2))),
        r"\[3, 4\] entries",
    ),
    "items of two lengths": (lambda: linear(data=[torch.zeros(2), torch.zeros(3)]), "Pad them"),
    "a loader that repeats": (
        lambda: linear(data=DataLoader(PLAIN, sampler=RandomSampler(PLAIN, num_samples=5))),
        "a sampler of its own",
    ),
    "a batch sampler": (
        lambda: linear(data=DataLoader(PLAIN, batch_sampler=BatchSampler(RandomSampler(PLAIN), 4, False))),
        "a batch_sampler of its own",
    ),
    "batches as items": (lambda: linear(data=DataLoader(PLAIN, batch_size=None)), "batches already"),
    "a loader without a batch": (
        lambda: linear(data=DataLoader(PLAIN, batch_size=13, drop_last=True)),
        "leaves out all 12 samples",
    ),
    "a collation that mixes": (
        lambda: linear(data=DataLoader(PLAIN, batch_size=4, collate_fn=mixing)),
        "other values beside all items",
    ),
    "losses of each sample in a row": (
        lambda: linear(lambda z, b: (z - b[1]).square().mean(1)),
        "4 numbers for 4 samples, but 12 for all 12 samples of data",
    ),
    "a measure that fails": (
        lambda: linear(measures={"m": lambda z, b: z.view(5, -1).sum()}),
        r"fails on all 12 samples of data: RuntimeError",
    ),
    "validation data without targets": (
        lambda: linear(validation=torch.randn(5, 4)),
        r"fails on all 5 samples of validation",
    ),
    "a NaN among the data": (lambda: linear(data=HOLES), r"all 40 samples of data are \[nan, nan\]"),
    "NaN labels left out of a mean": (
        lambda: linear(lambda z, b: (z - b[1]).square().nanmean(0), data=HOLES),
        "Loss function 1 of all 40 samples of data is finite at the start, but its gradient is not",
    ),
    "a batch that is too large": (lambda: linear(batch_size=13), r"whole number in 1\.\.12"),
    "a way that is none": (lambda: linear(execution="stacked"), "execution"),
    "a measure of each sample": (
        lambda: linear(measures={"m": lambda z, b: z[:, 0]}),
        "'m' returns 12 numbers",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_reason(case: str) -> None:
    define, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words):
        define()


# numbers of all data, whatever the losses are


def auc(z: Any, batch: Any) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(batch[2].numpy(), z[:, 2].numpy()))


def f1(z: Tensor, batch: Any) -> Tensor:
    predicted = z[:, 2] > z[:, 1]
    return 2 * (predicted & (batch[2] == 1)).sum() / (predicted.sum() + (batch[2] == 1).sum())


def pairs(z: Tensor, batch: Any) -> Tensor:
    """A contrastive loss: each sample against all others of the batch."""
    similar = nnf.normalize(z[:, :2], dim=1)
    return nnf.cross_entropy(similar @ similar.T / 0.5, torch.arange(len(z)))


LOSSES: dict[str, Any] = {
    "mean": lambda z, b: (z[:, 0] - b[1]).square().mean(),
    "sum": lambda z, b: (z[:, 0] - b[1]).square().sum(),
    "class weights": lambda z, b: nnf.cross_entropy(z[:, 1:], b[2], weight=z.new_tensor([0.1, 5.0])),
    "ignore_index": lambda z, b: nnf.cross_entropy(z[:, 1:], b[3]),
    "mask": lambda z, b: (b[4] * (z[:, 0] - b[1]).square()).sum() / b[4].sum(),
    "sample weights": lambda z, b: (b[5] * (z[:, 0] - b[1]).square()).sum() / b[5].sum(),
    "NaN labels": lambda z, b: (
        (~b[6].isnan() * (z[:, 0] - b[6].nan_to_num()).square()).sum() / (~b[6].isnan()).sum()
    ),
    "RMSE": lambda z, b: (z[:, 0] - b[1]).square().mean().sqrt(),
    "quantile": lambda z, b: (z[:, 0] - b[1]).abs().quantile(0.9),
    "max": lambda z, b: (z[:, 0] - b[1]).abs().max(),
    "hard samples": lambda z, b: (z[:, 0] - b[1]).square().topk(8).values.mean(),
    "correlation": lambda z, b: 1 - torch.corrcoef(torch.stack([z[:, 0], b[1]]))[0, 1],
    "soft F1": lambda z, b: 1 - 2 * (p := z[:, 1].sigmoid() * b[2]).sum() / (p.sum() + b[2].sum()),
    "contrastive": pairs,
}
MEASURES = {**LOSSES, "F1": f1, "AUC": auc}


def labelled(size: int, order: str) -> tuple[Tensor, ...]:
    """x, target, class, class where there is one, mask, weights, target where there is one."""
    rng = torch.Generator().manual_seed(size)
    y = torch.randn(size, generator=rng)
    kind = (torch.arange(size) >= 0.8 * size).long()
    known = torch.arange(size) >= 0.5 * size
    parts = [
        torch.randn(size, 3, generator=rng) + y.unsqueeze(1),
        y + 3 * known,
        kind,
        torch.where(known, kind, -100),
        known.float(),
        torch.rand(size, generator=rng) + 5 * kind,
        torch.where(known, y, torch.nan),
    ]
    chosen = torch.arange(size) if order == "sorted" else torch.randperm(size, generator=rng)
    return tuple(part[chosen] for part in parts)


SHORT: dict[str, Any] = {"algorithm": "ls", "preferences": 1, "dtype": "float64", "steps": 3, **QUIET}


def check_rows(problem: Any, **options: Any) -> None:
    """Compares final rows with what the returned modules have on all samples of a table at once."""
    rows = mobench.run(problem=problem, **SHORT | {"algorithm.step_size": 1e-3} | options)
    assert (rows["status"] == "done").all()
    functions = problem.functions
    for (_, row), module in zip(rows.iterrows(), problem.modules(rows), strict=True):
        for prefix, table in (("f_", functions.data), ("validation_", functions.validation)):
            if table is None:
                continue
            batch = mapped(lambda t: t.double() if t.is_floating_point() else t, table.tree)
            with torch.no_grad():
                outputs = functions.forward(module, batch)
                losses = torch.cat([torch.atleast_1d(loss(outputs, batch)) for loss in functions.losses])
                expected = {f"{prefix}{m + 1}": float(value) for m, value in enumerate(losses)}
                if table is functions.validation or functions.validation is None:
                    expected |= {name: float(fn(outputs, batch)) for name, fn in functions.measures.items()}
            for name, value in expected.items():
                assert row[name] == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize(
    ("size", "order", "execution"),
    [(515, "sorted", "auto"), (515, "shuffled", "auto"), (515, "sorted", "vmap")],
)
def test_rows_hold_losses_and_measures_of_all_data(size: int, order: str, execution: str) -> None:
    """Kinds of losses that are no means over samples, in parts that may have no label."""
    one_way = execution == "vmap"
    losses = [fn for name, fn in LOSSES.items() if not one_way or name not in ("correlation", "quantile")]

    def make() -> nn.Module:
        drop = nn.Identity() if one_way else nn.Dropout(0.1)
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), drop, nn.Tanh(), nn.Linear(8, 3))

    options: dict[str, Any] = {"batch_size": 50, "positive": False}
    if not one_way:
        options |= {"measures": MEASURES, "validation": labelled(300, order)}
    problem = mobench.networks(make, losses, labelled(size, order), **options)
    assert (problem.functions.probe.evaluation == "") == one_way  # AUC leaves torch
    check_rows(problem, preferences=2, **{"problem.execution": execution if one_way else "loop"})


class Returns(nn.Module):
    """Outputs of another form than one tensor with the samples first."""

    def __init__(self, form: Callable[[nn.Module, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.form = form
        self.net = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4, track_running_stats=False)
        self.log_variance = nn.Parameter(torch.zeros(16))

    def forward(self, x: Tensor) -> Any:
        return self.form(self, x, self.net(x))


def error(z: Tensor, b: Any) -> Tensor:
    return torch.stack([(z[:, m] - b[1]).square().mean().sqrt() for m in range(2)])


FORMS: dict[str, tuple[Any, Any, bool]] = {  # outputs, losses, whether outputs of parts can be put together
    "a dictionary": (lambda m, x, z: {"z": z, "names": ("a", None, 1)}, lambda o, b: error(o["z"], b), True),
    "a penalty": (
        lambda m, x, z: (z, m.net.weight.square().sum()),
        lambda o, b: error(o[0], b) + 0.1 * o[1],
        True,
    ),
    "log-variances": (
        lambda m, x, z: [z, m.log_variance],
        lambda o, b: error(o[0], b) * o[1][:2].exp() + o[1].square().sum(),
        True,
    ),
    "time first": (lambda m, x, z: torch.stack([z, 2 * z]), lambda o, b: error(o.mean(0), b), True),
    "samples times places": (lambda m, x, z: z.reshape(-1, 2), lambda o, b: error(o.reshape(-1, 4), b), True),
    "nothing but a vector": (
        lambda m, x, z: z[:, 0],
        lambda o, b: torch.stack([(o - b[1]).square().mean().sqrt(), o.std()]),
        True,
    ),
    "a mean of the batch": (
        lambda m, x, z: (z, z.mean()),
        lambda o, b: error(o[0], b) + o[1].square(),
        False,
    ),
    "the largest of the batch": (
        lambda m, x, z: (z, x[:, 0].round().amax()),  # the same in many parts
        lambda o, b: error(o[0], b) + 0.1 * o[1].square(),
        False,
    ),
    "an object": (lambda m, x, z: torch.distributions.Normal(z, 1.0), lambda o, b: error(o.mean, b), False),
    "statistics of the batch": (lambda m, x, z: m.norm(z), error, False),
    "a shift by the batch": (lambda m, x, z: z - z.mean(0), error, False),
    "the number of samples": (lambda m, x, z: (z, len(x)), lambda o, b: error(o[0], b) * o[1], False),
}


@pytest.mark.parametrize("form", FORMS)
def test_outputs_of_all_data_in_any_form(form: str) -> None:
    returned, losses, apart = FORMS[form]
    data = labelled(515, "sorted")[:2]
    problem = mobench.networks(lambda: Returns(returned), losses, data, batch_size=64)
    if form != "the largest of the batch":  # which few samples do not tell
        assert (problem.functions.probe.joints is not None) == apart
    check_rows(problem, preferences=2)


def test_a_leaf_that_parts_share_by_chance_is_that_of_all_data() -> None:
    """One sample of 515, which no trial sees, makes one part of the outputs another."""
    x, y = labelled(515, "shuffled")[:2]
    x[300, 0] = 50.0
    problem = mobench.networks(
        lambda: Returns(lambda m, x, z: (z, (x[:, 0] > 40).any().to(z))),
        lambda o, b: error(o[0], b) * (1 + o[1]),
        (x, y),
        batch_size=64,
    )
    assert problem.functions.probe.joints is not None
    check_rows(problem, preferences=2)


def test_lengths_that_parts_share_by_chance() -> None:
    """Padding is cut to the longest of a batch, which makes the outputs of one part longer."""
    x, y = labelled(515, "shuffled")[:2]
    words = torch.cat([x[:, :2], torch.zeros(515, 1)], 1)
    words[300, 2] = 1.0

    def cut(m: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        return (x * z[:, :3])[:, : int(x.any(0).sum())]

    def loss(o: Tensor, b: Any) -> Tensor:
        return torch.stack([(o.sum(1) - b[1]).square().mean().sqrt(), o.square().mean()])

    problem = mobench.networks(lambda: Returns(cut), loss, (words, y), batch_size=64)
    check_rows(problem)


def test_constraints_and_recorded_values_of_all_data() -> None:
    data = labelled(515, "sorted")
    losses = [LOSSES["class weights"], LOSSES["NaN labels"]]
    problem = mobench.networks(
        nn.Linear(3, 3), losses, data, batch_size=100, constraints=lambda f: f[1] - 0.5
    )
    rows = mobench.run(
        problem=problem, **SHORT | {"algorithm": "penalty_sgd", "record.evaluate": True, "record.every": 1}
    )
    last = mobench.load(rows).history.iloc[-1]
    (module,) = problem.modules(rows)
    batch = tuple(t.double() if t.is_floating_point() else t for t in data)
    expected = [float(loss(module(batch[0]).detach(), batch)) for loss in losses]
    for row in (rows.iloc[0], last):
        np.testing.assert_allclose(row[["f_1", "f_2"]].astype(float), expected, rtol=1e-9)
        assert row["g_1"] == pytest.approx(expected[1] - 0.5, rel=1e-9)


def test_runs_are_evaluated_in_groups_that_can_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = mobench.networks(nn.Linear(3, 3), LOSSES["ignore_index"], labelled(515, "sorted"))
    job, oracle = bound(problem)
    theta = oracle.initial(job.runs) + torch.arange(4, dtype=F64).unsqueeze(1)
    together = oracle.exact(theta)
    monkeypatch.setattr(networks, "HELD", 2 * 515 * 3)
    torch.testing.assert_close(oracle.exact(theta.clone()), together, rtol=1e-12, atol=0)


# batches that cannot be trained on


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def spread(z: Tensor, b: Any) -> Tensor:
    """A variance, which one sample does not have."""
    errors = z - b[1]
    return (errors - errors.mean(0)).square().sum(0) / (len(z) - 1)


@pytest.mark.parametrize(
    ("make", "loss", "size", "batch", "words"),
    [
        (normed, squares, 65, (32,), r"batch of 1, but .* by oracle.batch_size=31 or .*=33 or"),
        (normed, squares, 12, (2, 2), r"of 2, each cut into 2, make a"),
        (normed, squares, 12, (1,), r"batch_size=1 cannot be used: .*Expected more than 1"),
        (lambda: nn.Linear(4, 2), spread, 65, (32,), r"loss 1 of it is nan at the start; "),
    ],
)
def test_the_shortest_batch_is_tried_before_the_job(
    make: Any, loss: Any, size: int, batch: tuple[int, ...], words: str, outputs: Path
) -> None:
    """`batch`: its size and, if there are several, the number of samples."""
    options: dict[str, Any] = dict(zip(("oracle.batch_size", "oracle.samples"), batch, strict=False))
    options["oracle"] = "minibatch" if batch == (1,) else "epochs"
    data = torch.randn(size, 4), torch.randn(size, 2)
    problem = mobench.networks(make, loss, data)
    with pytest.raises(CompatibilityError, match=words):
        mobench.run(problem=problem, **SHORT | options)
    assert not (outputs / "runs").exists()


def test_a_loader_leaves_out_its_last_batch() -> None:
    x, y = torch.randn(65, 4), torch.randn(65, 2)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, drop_last=True)
    problem = mobench.networks(normed, squares, loader)
    job, oracle = bound(problem)
    for t in range(5):
        order = generator(1, problem="network", use="epoch", epoch=t // 2).permutation(65)
        expected = order[32 * (t % 2) : 32 * (t % 2) + 32]
        np.testing.assert_array_equal(oracle.batch(t).chosen[1].numpy(), expected)
    assert job.config.record.every == 2
    check_rows(problem)
    keeps = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    assert problem.code() != mobench.networks(normed, squares, keeps).code()
    assert mobench.networks(normed, squares, keeps).code() == mobench.networks(normed, squares, (x, y)).code()


def test_a_batch_without_a_label_is_named_when_it_comes() -> None:
    x, y = torch.randn(64, 4), torch.randint(0, 2, (64,))
    known = torch.arange(64) % 21 == 0  # the four that are tried have labels
    y = torch.where(known, y, -100)
    problem = mobench.networks(
        nn.Linear(4, 2), lambda z, b: nnf.cross_entropy(z, b[1]).expand(2) + 0, (x, y), batch_size=4
    )
    with pytest.raises(
        MobenchError, match=r"Loss 1 of a step's batch of 4 samples is nan, with the parameters"
    ):
        mobench.run(problem=problem, **SHORT | {"steps": 40})

    def defined(z: Tensor, b: Any) -> Tensor:
        known = b[1] >= 0
        each = nnf.cross_entropy(z, b[1], reduction="none")
        return (each.sum() / known.sum().clamp_min(1)).expand(2) + 0

    check_rows(mobench.networks(nn.Linear(4, 2), defined, (x, y), batch_size=4), steps=40)


def test_a_run_that_diverges_is_no_fault_of_a_batch() -> None:
    data = torch.randn(12, 4), torch.randn(12, 2)
    problem = mobench.networks(nn.Linear(4, 2), squares, data, batch_size=4)
    with pytest.warns(UserWarning, match=r"diverged: 1 of 1 runs \(run 0\).*step_size \(it is 1e\+20\)"):
        rows = mobench.run(
            problem=problem, **SHORT | {"steps": 60, "algorithm.step_size": 1e20, "dtype": "float32"}
        )
    assert rows["status"].tolist() == ["diverged"]
