"""`mobench.run`, `load` and `objectives`: the command line's jobs from Python, and one's own problems."""

from __future__ import annotations

import builtins
import re
import sys
import textwrap
import types
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser

import mobench
from mobench.api import objectives, run
from mobench.config import compose
from mobench.core import Point
from mobench.core.served import serving
from mobench.errors import CompatibilityError, ConfigError, MobenchError, StoreError
from mobench.jobs import run as runner
from mobench.jobs.fingerprint import Opaque, fingerprint
from mobench.jobs.store import JobFolder
from mobench.oracles.exact import make_point, problem_spec
from mobench.problems.own import Functions, Own
from tests.conftest import REPOSITORY, WANDB, Run, environment, of_before, process

QUIET: dict[str, Any] = {"logger": "local"}
each = pytest.mark.parametrize


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The outputs folder of a test, into which its command line writes as well."""
    for name in WANDB:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


def folders(root: Path) -> list[JobFolder]:
    return [JobFolder(p) for p in sorted((root / "runs").iterdir())] if (root / "runs").exists() else []


def wells(a: float | torch.Tensor = 1.0) -> Callable[[torch.Tensor], torch.Tensor]:
    """|x - a e_1|^2 / 2 and |x + a e_1|^2 / 2: Pareto set {(s, 0, ..), |s| <= a}."""

    def values(x: torch.Tensor) -> torch.Tensor:
        rest = x[1:].square().sum()
        return 0.5 * torch.stack([(x[0] - a) ** 2 + rest, (x[0] + a) ** 2 + rest])

    return values


# the same jobs as the command line


@each(
    ("line", "overrides", "keys"),
    [
        (
            "problem=vlmop2 algorithm=epo preferences=2 seeds=[0,1] steps=2 algorithm.step_size=0.05",
            [],
            {"problem": "vlmop2", "algorithm": "epo", "preferences": 2, "seeds": range(2)}
            | {"steps": np.int64(2), "algorithm.step_size": 0.05},
        ),
        (
            "protocol=ferero_fig3 algorithm=ls preferences.rays_deg=[30,60] steps=2 dtype=float32 "
            "problem.start={kind:constant,value:0.3,low:null,high:null} record.evaluate=true",
            ["protocol=ferero_fig3", "steps=2"],
            {"algorithm": "ls", "preferences.rays_deg": torch.tensor([30, 60]), "dtype": "float32"}
            | {"problem.start": {"kind": "constant", "value": 0.3, "low": None, "high": None}}
            | {"record.evaluate": True},
        ),
    ],
)
def test_same_job_as_the_command_line(
    mobench: Run, outputs: Path, line: str, overrides: list[str], keys: dict[str, Any]
) -> None:
    """One folder for both; the second reads what the first has written."""
    arguments = line.split()
    rows = run(*overrides, **keys, **QUIET)
    (folder,) = folders(outputs)
    written = (folder.path / "final.csv").stat().st_mtime_ns
    result = mobench(*arguments, "logger=local")
    assert result.code == 0, result.err
    assert "already finished" in result.out
    assert [f.key for f in result.folders] == [folder.key]
    pd.testing.assert_frame_equal(rows, result.rows)
    assert (folder.path / "final.csv").stat().st_mtime_ns == written
    assert compose.compose([*arguments, "logger=local"]) == folder.config()


def test_finished_jobs_are_read_and_rerun_makes_them_again(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job: dict[str, Any] = {**QUIET, "problem": "zdt1", "preferences": 2, "steps": 3}
    threads = torch.get_num_threads()
    here = Path.cwd()
    torch.set_num_threads(2)
    try:
        first = run(**job)
        assert torch.get_num_threads() == 2  # hardware.threads=1 is the job's, not its caller's
    finally:
        torch.set_num_threads(threads)
    assert Path.cwd() == here
    (folder,) = folders(outputs)
    of_before(folder).write_table("final.csv", first.assign(f_1=7.0))  # a mark that only reading can find
    assert set(run(**job)["f_1"]) == {7.0}
    pd.testing.assert_frame_equal(
        run(**job, rerun=True).drop(columns="seconds"), first.drop(columns="seconds")
    )
    assert capsys.readouterr().out == ""


def test_load(outputs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBENCH_OUTPUTS", outputs.name)
    rows = run(**QUIET, problem="zdt1", preferences=2, steps=3)
    (folder,) = folders(outputs)
    for what in (rows, folder.key, str(folder.path), folder.path):
        loaded = mobench.load(what)
        pd.testing.assert_frame_equal(loaded.final, rows)
        assert sorted(set(loaded.history["step"])) == [0, 1, 2, 3]
        assert loaded.solutions["last"].shape == (2, loaded.config["problem"]["n"])
        assert loaded.meta["identity"]["steps"] == 3
        assert loaded.path.resolve() == folder.path.resolve()
        assert "history" in repr(loaded)
    with pytest.raises(StoreError, match=f"no run '{folder.key[:-1]}'.*Did you mean '{folder.key}'"):
        mobench.load(folder.key[:-1])
    with pytest.raises(StoreError, match="which run they come from"):
        mobench.load(pd.DataFrame({"f_1": [1.0]}))
    (folder.path / "history.parquet").unlink()
    with pytest.raises(StoreError, match="is missing"):
        _ = mobench.load(rows).history
    monkeypatch.chdir("/")  # rows know their folder from anywhere
    assert len(mobench.load(rows).final) == 2


@each(
    ("overrides", "keys", "words"),
    [
        ([], {"problm": "zdt1"}, ["problm is unknown", "known keys are algorithm", "Did you mean 'problem'"]),
        ([], {"problem": "zdt"}, ["problem='zdt' is unknown", "zdt1", "Did you mean"]),
        ([], {"algorithm.stepsize": 1.0}, ["algorithm.stepsize is unknown", "Did you mean 'step_size'"]),
        ([], {"algorithm": {"name": "ls"}}, ["is not a valid choice", "algorithm.KEY"]),
        ([], {"problem": None}, ["is not a valid choice", "mobench.objectives"]),
        ([], {"problem": wells()}, ["problem=mobench.objectives(fn, dim=...)"]),
        (
            [],
            {"problem": mobench.objectives(wells(), dim=2), "optimizer": torch.optim.AdamW, "clip": 1.0},
            ["clip, optimizer: give it to mobench.networks or mobench.objectives"],
        ),
        ([], {"seeds": {1, 2}}, ["seeds={1, 2} (set) cannot be stored in a configuration"]),
        ([], {"hardware": "slurm"}, ["launcher submitit_slurm"]),
        (["algorithm=ls,mgda"], {}, ["algorithm=ls,mgda describes several jobs", "mobench -m"]),
        (["hydra/launcher=joblib"], {}, ["launcher joblib"]),
        (["-m"], {}, ["-m is a command-line flag"]),
        (["+experiment=ferero/fig3"], {}, ["is an artifact", "in a shell"]),
    ],
)  # fmt: skip
def test_bad_arguments(outputs: Path, overrides: list[str], keys: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        run(*overrides, **keys)
    for word in words:
        assert word in str(refused.value), str(refused.value)
    assert folders(outputs) == []


def test_a_pair_that_does_not_fit_and_a_job_that_fails(plug_in: str) -> None:
    with pytest.raises(CompatibilityError, match="FERERO is not compatible with ZDT3"):
        run(**QUIET, problem="zdt3", algorithm="ferero")
    with pytest.raises(MobenchError, match=r"(?s)-broken-.* failed: KeyError: 'lost'.*rows and status: "):
        run(plug_in, **QUIET, algorithm="broken", preferences=2)


@each(
    "value",
    ["a b", "back\\'s", "null", "1e3", "x/y-z.w", "", "a,b", 1e-07, 10**20, True, None, [], {"a": [1]}],
)
def test_values_survive_hydras_grammar(value: Any) -> None:
    (parsed,) = OverridesParser.create().parse_overrides([f"key={compose.text(value)}"])
    assert parsed.value() == value
    assert type(parsed.value()) is type(value)


CLEAN = """
    import sys, mobench
    assert {"run", "load", "objectives"} <= set(dir(mobench))
    assert not {"torch", "pandas", "hydra"} & set(sys.modules), "import mobench must stay light"
    from hydra import compose, initialize_config_dir, version
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf
    ConfigStore.instance().store(name="schema", node={"mine": 1})  # of a program that uses Hydra itself
    with initialize_config_dir(config_dir=sys.argv[1], version_base="1.2"):
        mine = GlobalHydra.instance().hydra
        for _ in range(2):
            mobench.run(problem="vlmop2", preferences=2, steps=2, logger="local")
            assert GlobalHydra.instance().hydra is mine
            assert str(version.getbase()) == "1.2"
            assert not OmegaConf.has_resolver("at")
            assert compose("schema") == {"mine": 1}
            assert compose("app") == {"theirs": 2}
    assert not GlobalHydra.instance().is_initialized()
"""


def test_light_import_and_no_state_of_hydra_left(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("theirs: 2\n")
    line = [sys.executable, "-c", textwrap.dedent(CLEAN), str(tmp_path)]
    done = process(line, env=environment(tmp_path / "outputs", PYTHONPATH=str(REPOSITORY)))
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'solver'"):
        _ = mobench.solver


# objectives of one's own


def test_constrained_quadratics_end_where_they_must() -> None:
    """csmoo2 on f = |x -+ e_1|^2 / 2, g = 1 - x_2 <= 0, weights (1, 1)/2, z = 0: x = (0, 1), f = (1, 1)."""
    problem = objectives([wells()], constraints=lambda x: 1.0 - x[1], start=[0.3, -1.0], ideal=[0, 0])
    rows = run(
        **QUIET, problem=problem, algorithm="csmoo2", preferences=1, steps=60,
        **{"record.every": 0, "algorithm.step_size": 0.9, "algorithm.step_decay": 0.6},
    )  # fmt: skip
    np.testing.assert_allclose(mobench.load(rows).solutions["last"], [[0.0, 1.0]], atol=1e-2)
    np.testing.assert_allclose(rows[["f_1", "f_2", "tchebycheff"]], [[1.0, 1.0, 0.5]], atol=2e-2)
    assert abs(rows["g_1"].item()) < 1e-2
    with pytest.raises(CompatibilityError, match="it does not support constraints"):
        run(**QUIET, problem=problem, algorithm="mgda")


@each("shapes", ["vector", "scalars", "both"])
def test_functions_are_called_as_they_are_where_one_run_is_alone(shapes: str) -> None:
    """Without vmap, and with the values and derivatives of a batch; also those of one variable."""

    def square(x: torch.Tensor) -> torch.Tensor:
        return x.square().sum()

    def itself(x: torch.Tensor) -> torch.Tensor:
        return x[:1]

    functions = {"vector": (wells(),), "scalars": (torch.sum, square), "both": (torch.sum, wells(), itself)}
    for variables in (1, 3):
        with serving("here", Functions(functions[shapes])):
            p = Own(code="here", variables=variables)
        x = torch.randn(3, variables, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        w = torch.linspace(0.2, 1.0, p.n_objectives, dtype=torch.float64).expand(3, -1)
        v = torch.ones_like(x)
        together = point_of(p, x)
        expected = (together.values(), together.jacobian(), together.vjp(w), together.hvp(w, v))
        object.__setattr__(p, "_batched", None)
        alone = point_of(p, x[1:2])
        computed = (alone.values(), alone.jacobian(), alone.vjp(w[:1]), alone.hvp(w[:1], v[:1]))
        for one, all_ in zip(computed, expected, strict=True):
            torch.testing.assert_close(one[0], all_[1], rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(alone.vjp(w[:1])[0], alone.jacobian()[0].mT @ w[0], rtol=1e-14, atol=1e-14)


def point_of(p: Own, x: torch.Tensor) -> Point:
    return make_point(p, x, problem_spec(p, len(x), samples=1))


def test_job_of_own_objectives_follows_the_function(outputs: Path) -> None:
    """Another constant, another captured tensor, another line: other jobs.

    The same function made again: the same job.
    """
    shift = torch.zeros((), dtype=torch.float64)

    def moved(x: torch.Tensor) -> torch.Tensor:
        return wells()(x - shift)

    def rows(f: Any) -> pd.DataFrame:
        return run(**QUIET, problem=objectives(f, dim=2, name="mine"), preferences=1, steps=2)

    first = rows(wells(1.0))
    assert rows(wells(1.0))["seconds"].item() == first["seconds"].item()  # read, not run
    assert [f.key[:9] for f in folders(outputs)] == ["mine-mgda"]
    assert rows(wells(2.0))["f_1"].item() != first["f_1"].item()
    before = rows(moved)
    shift += 0.5
    assert rows(moved)["f_1"].item() != before["f_1"].item()
    assert len(folders(outputs)) == 4


def test_functions_that_cannot_be_hashed_always_run_anew(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = (i for i in range(3))

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.square() if numbers else x

    problem = objectives(f, dim=2)
    for _ in range(2):
        run(**QUIET, problem=problem, preferences=1, steps=1)
    assert len(folders(outputs)) == 2
    said = capsys.readouterr().err
    assert said.count("warning: these functions cannot be hashed, so their results are not reused") == 2
    assert "type generator cannot be described" in said


@each("arranged", [False, True])
def test_solutions_of_functions_that_cannot_be_hashed(arranged: bool, outputs: Path) -> None:
    """The object that was trained gives them: its objectives there are those of the rows. No other does."""
    numbers = (i for i in range(3))

    def f(x: Any) -> torch.Tensor:
        a = x["a"] if arranged else x
        return torch.stack([(a - 1).square().sum(), (a + 1).square().sum()]) if numbers else a

    start: Any = {"a": torch.zeros(2)} if arranged else [0.0, 0.0]
    problem, other = objectives(f, start=start), objectives(f, start=start)
    with_another_f = objectives(wells(), start=[0.0, 0.0])
    for steps in (2, 3):  # each of its jobs
        rows = run(**QUIET | {"algorithm": "ls"}, problem=problem, preferences=2, steps=steps)
        solved = problem.solutions(rows)
        for k in range(2):
            torch.testing.assert_close(f(solved[k])[0].item(), rows["f_1"][k].item())
        for refusing in (other, with_another_f):
            with pytest.raises(StoreError, match=r"functions that have no hash, so .* problem\.parts\("):
                refusing.solutions(rows)
    # as the message says
    (row, _) = mobench.load(rows).solutions["last"]
    torch.testing.assert_close(f(other.parts(torch.from_numpy(row)))[0].item(), rows["f_1"][0].item())
    rows = run(**QUIET, problem=with_another_f, preferences=1, steps=1)
    with pytest.raises(StoreError, match="computed by other functions"):
        problem.solutions(rows)


def test_a_failed_solve_is_a_row_and_a_warning(outputs: Path) -> None:
    hard = {"protocol": "ferero_fig4_hard", "algorithm": "ferero", "seeds": [0], "steps": 20, **QUIET}
    for _ in range(2):  # also when the job is read
        with pytest.warns(
            UserWarning, match=r"2 of 4 runs ended with a failed subproblem solve .*proved to have no"
        ):
            rows = run("algorithm.subproblem=exact", **hard)
        assert rows["status"].tolist() == ["done", "solver_failed", "solver_failed", "done"]
    assert len(folders(outputs)) == 1


def test_rows_of_own_objectives_are_no_job_for_others(mobench: Run, outputs: Path) -> None:
    """Their configuration names functions that only the program has: a message, not a guess."""
    run(**QUIET, problem=objectives(wells(), dim=2), preferences=1, steps=1)
    (folder,) = folders(outputs)
    config = folder.config()
    with pytest.raises(ConfigError, match="exist only in the Python program that defined them"):
        runner.run_job({**config, "rerun": True})


@each(
    ("f", "options", "words"),
    [
        (lambda x: 3.0, {"dim": 2}, "returns float, but must return a tensor"),
        (lambda x: (x[0], x[1]), {"dim": 2}, "returns tuple, but must return a tensor. torch.stack"),
        (lambda x: torch.outer(x, x), {"dim": 2}, r"returns shape \(2, 2\)"),
        (lambda x: x.float(), {"dim": 2}, "returns torch.float32"),
        (lambda x: x[7], {"dim": 2}, r"fails at the start .*IndexError.*\n.*shape \(2,\)"),
        (lambda x: torch.from_numpy(np.sin(x.detach().numpy())), {"dim": 2}, "cannot be differentiated"),
        (lambda x: torch.stack([x[0], x[1].detach()]), {"dim": 2}, "f_2 changes with x .* its gradient is 0"),
        (lambda x: x if x[0] > 0 else -x, {"dim": 2}, "(?s)torch.func.vmap.*torch.where"),
        (lambda x: x + torch.rand(2), {"dim": 2}, "different values at the same x"),
        (lambda x: x.log(), {"start": [-1.0, 1.0]}, "f_1 = nan at the start"),
        (lambda x: -x, {"dim": 2, "start": [1.0, 1.0], "positive": True}, "positive=True was declared, but"),
        ([], {"dim": 2}, "at least one function"),
        (lambda x: x, {}, "needs dim="),
        (lambda x: x, {"dim": 2.5}, r"dim=2.5 .* must be a whole number"),
        (lambda x: x, {"dim": 2, "start": [1.0, 2.0, 3.0]}, "3 coordinates, but there are 2 variables"),
        (lambda x: x, {"dim": 2, "start": "here"}, "is not a vector"),
        (lambda x: x, {"dim": 2, "start": {"kind": "far"}}, "problem.start.kind='far'"),
        (
            lambda x: x,
            {"dim": 2, "start": lambda rng: rng.normal(size=3)},
            r"it must be a finite vector of shape \(2,\)",
        ),
        (lambda x: x, {"dim": 2, "bounds": (1, 0)}, "lower < upper"),
        (lambda x: x, {"dim": 2, "bounds": 1.0}, r"bounds=1.0 .* must be two numbers"),
        (lambda x: x, {"dim": 2, "ideal": [0.0]}, "must have 2 entries"),
        (
            lambda x: x,
            {"dim": 2, "constraints": lambda x: x.detach()},
            "constraint function 1 .* cannot be differentiated",
        ),
    ],
)
def test_bad_functions(f: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        objectives(f, **options)
    assert re.search(words, str(refused.value)), str(refused.value)


# the hash


class Scale:
    """A callable object with state."""

    def __init__(self, by: object) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return x * self.by


def capturing(a: object) -> Callable[[Any], Any]:
    return lambda x: x * a


DIFFERENT = [
    (lambda x: x[0], lambda x: x[1]),  # one line of source for both
    (lambda x: x + 1, lambda x: x + 1.0),
    (lambda x, p=2: x**p, lambda x, p=3: x**p),
    (capturing(1), capturing(True)),
    (capturing(torch.ones(2)), capturing(torch.ones(1, 2))),
    (capturing(np.zeros(3)), capturing(np.array([0.0, 0.0, 1e-300]))),
    (capturing([1, [2]]), capturing([[1], 2])),
    (capturing({"a": 1}), capturing({"a": 2})),
    (Scale([1]).__call__, Scale([2]).__call__),
    (torch.func.vmap(capturing(1)), torch.func.vmap(capturing(2))),
    (unittest.skip("a"), unittest.skip("b")),  # closures of a package
    (torch.exp, torch.log),
]


@each("pair", DIFFERENT)
def test_hash_tells_functions_apart(pair: tuple[Any, Any]) -> None:
    assert fingerprint(pair[0]) != fingerprint(pair[1])
    assert fingerprint(list(pair)) != fingerprint(list(reversed(pair)))
    assert fingerprint(pair[0]) == fingerprint(pair[0])


def test_hash_is_of_content_and_of_a_process_of_its_own() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh())
    twin = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh())
    assert fingerprint(network) != fingerprint(twin)
    twin.load_state_dict(network.state_dict())
    assert fingerprint(network) == fingerprint(twin)
    assert fingerprint(capturing({1, 2, 3})) == fingerprint(capturing({3, 2, 1}))
    assert fingerprint(capturing(types)) == fingerprint(capturing(types))  # a module of the standard library
    for hidden in (lambda x: eval("x"), capturing(i for i in [1]), np.frompyfunc(capturing(1), 1, 1)):
        with pytest.raises(Opaque):
            fingerprint(hidden)


SPARSE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": torch.Tensor.to_sparse,
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "bsr": lambda a: a.to_sparse_bsr((2, 1)),
    "bsc": lambda a: a.to_sparse_bsc((2, 1)),
}
# what differs from [[1, 0, 2], [0, 3, 0]] in one respect
OTHER_MATRICES = {
    "a value": [[1.0, 0, 2], [0, 4, 0]],
    "a column": [[1.0, 2, 0], [0, 3, 0]],
    "a row": [[1.0, 0, 2], [3, 0, 0]],
    "the shape": [[1.0, 0, 2, 0], [0, 3, 0, 0]],
}


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
@each("layout", SPARSE)
def test_hash_of_sparse_tensors(layout: str) -> None:
    sparse = SPARSE[layout]
    matrix = torch.tensor([[1.0, 0, 2], [0, 3, 0]])
    known = fingerprint(capturing(sparse(matrix)))
    assert fingerprint(capturing(sparse(matrix.clone()))) == known
    assert fingerprint(capturing(sparse(matrix.double()))) != known
    for other in OTHER_MATRICES.values():
        assert fingerprint(capturing(sparse(torch.tensor(other)))) != known
    square = torch.eye(2)  # its rows and columns are alike
    every = {fingerprint(capturing(of(square))) for of in SPARSE.values()}
    assert len(every | {fingerprint(capturing(square))}) == len(SPARSE) + 1


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_hash_of_tensors_that_are_no_plain_arrays() -> None:
    twice = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), check_invariants=True)
    assert fingerprint(twice) == fingerprint(torch.tensor([[0, 3.0], [0, 0]]).to_sparse())
    turned = torch.tensor([1 + 2j]).conj()
    assert fingerprint(turned) == fingerprint(torch.tensor([1 - 2j])) != fingerprint(torch.tensor([1 + 2j]))
    one, two = (torch.quantize_per_tensor(torch.ones(2) * k, 0.1 * k, 0, torch.qint8) for k in (1, 2))
    assert torch.equal(one.int_repr(), two.int_repr())
    assert fingerprint(one) != fingerprint(two)
    for bare in (torch.ones(2, device="meta"), torch.ones(2).to_mkldnn()):
        with pytest.raises(Opaque, match=r"a tensor of layout .* cannot be described"):
            fingerprint(capturing(bare))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_least_squares_with_a_sparse_matrix() -> None:
    """A finished job is found again, and its rows are those of the same matrix as a plain tensor."""
    matrix = torch.tensor([[1.0, 0, 2], [0, 3, 0], [0, 0, 1]], dtype=torch.float64)

    def rows(a: torch.Tensor, name: str) -> pd.DataFrame:
        def f(x: torch.Tensor) -> torch.Tensor:
            return torch.stack([(a @ x - 1).square().sum(), (x + 1).square().sum()])

        problem = objectives(f, start=[0.0] * 3, name=name)
        return run(**QUIET, problem=problem, preferences=1, steps=5)

    first = rows(matrix.to_sparse_csr(), "sparse")
    assert (
        rows(matrix.to_sparse_csr(), "sparse")["seconds"].item() == first["seconds"].item()
    )  # read, not run
    plain = rows(matrix, "plain")
    np.testing.assert_allclose(first[["f_1", "f_2"]], plain[["f_1", "f_2"]], rtol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@each("kind", ["hooks", "hooks whose handles are kept", "weight_norm"])
def test_hash_of_a_module_with_hooks_that_is_made_again(kind: str) -> None:
    """torch numbers hooks through the whole process; which there are, and in which order, counts."""

    def made(*factors: float) -> torch.nn.Module:
        module = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(module.weight)
        torch.nn.init.ones_(module.bias)
        if kind == "weight_norm":
            torch.nn.utils.weight_norm(module)
        handles = [module.register_forward_hook(lambda m, i, o, f=f: o * f + f) for f in factors]
        module.register_forward_pre_hook(lambda m, i: None)
        if kind == "hooks whose handles are kept":
            module.handles = handles  # type: ignore[assignment]
        return module

    assert fingerprint(made(1.0, 2.0)) == fingerprint(made(1.0, 2.0))
    different = [made(), made(1.0), made(2.0), made(1.0, 2.0), made(2.0, 1.0)]
    assert len({fingerprint(module) for module in different}) == 5


def teaching(net: Any) -> Any:
    class Teacher:
        def answer(self, x: Any) -> Any:
            return sum(part.eval()(x) for part in net) + self.net.exec()  # type: ignore[attr-defined]

    return Teacher().answer(net.eval().requires_grad_(False))


def imported(x: Any) -> Any:
    from builtins import eval as computed

    return computed("x")


def both(net: Any) -> Any:
    net.eval()
    return eval("net")


def taken(x: Any) -> Any:
    computed = builtins.eval
    return computed("x")


HIDDEN = [
    lambda x: builtins.eval("x"),
    lambda table: table.eval("@LIMIT"),  # pandas looks it up among the globals
    lambda x, *words: builtins.exec(*words),
    lambda path: path.open(),  # it needs no argument
    imported,
    both,
    taken,
]


def test_methods_named_eval_hide_nothing() -> None:
    """`net.eval()`: Python's `eval` and `exec` need an argument, so what is called without any is another."""
    assert fingerprint(teaching) != fingerprint(lambda net: net.eval())
    assert fingerprint(lambda net: net.eval()) != fingerprint(lambda net: net.train())


@each("function", HIDDEN)
def test_names_that_hide_what_they_reach(function: Any) -> None:
    with pytest.raises(
        Opaque, match=r"uses (eval|exec|open): what it accesses this way cannot be determined"
    ):
        fingerprint(function)


# what the README says


def test_readme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The block about one's own networks, as a person would paste it."""
    (block,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    assert sum(bool(line) for line in block.splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    place: dict[str, Any] = {}
    exec(compile(block.replace("steps=1500", "steps=20"), "README.md", "exec"), place)
    rows = place["rows"]
    assert len(rows) == 14
    assert (rows["status"] == "done").all()
    x, y = place["x"], place["y"]
    for (_, row), network in zip(rows.iterrows(), place["networks"], strict=True):
        losses = (network(x) - y).square().mean(0).tolist()
        assert losses == pytest.approx(row[["f_1", "f_2"]].tolist(), rel=1e-5)


def test_an_objective_that_falls_below_0_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start is positive, as was declared, and the end of the second objective is not."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    for second, words in ((-1.0, "notice: f_2 ends at -"), (0.0, "")):
        problem = mobench.objectives(
            lambda x, low=second: torch.stack([x.square().sum(), (x - 1).square().sum() + low]),
            start=[3.0, 3.0],
            positive=True,
        )
        options = {"preferences": 1, "steps": 30, "logger": "local", "progress": False}
        mobench.run(problem=problem, algorithm="ls", **options, **{"algorithm.step_size": 0.1})
        said = capsys.readouterr().err
        assert words in said
        assert ("notice: f_2" in said) == bool(words)
