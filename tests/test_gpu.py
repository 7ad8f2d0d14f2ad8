"""hardware=gpu without a GPU: numbers, devices, graphs, resume, times, locks.

On a machine with a GPU the same tests run on it (`make gpu`). Elsewhere `tests/pretend_cuda.py` stands in for
one. It raises where CUDA would; it shows nothing of speed, of kernels' own rounding, of TF32 or of memory.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._pytree import tree_map

import mobench
from mobench.config.overrides import normalise
from mobench.config.schema import choices
from mobench.core import gram
from mobench.core.arrays import to_device
from mobench.core.graphs import NotCapturable, StepGraph, StepNumber
from mobench.errors import CompatibilityError, ConfigError, MobenchError
from mobench.jobs import steps as steps_of_a_job
from mobench.jobs.build import make_job
from mobench.jobs.rows import finish
from mobench.jobs.run import run_job
from mobench.jobs.store import JobFolder
from mobench.jobs.train import train
from mobench.solvers import min_norm, qp
from mobench.sweep.planner import Planner
from mobench.system import gpu as system
from mobench.system import gpu_lock
from mobench.system.signals import Signals
from tests import pretend_cuda
from tests.contract import cases
from tests.test_runner import Killed, die, disturb, same_rows

REAL = torch.cuda.is_available()
if not REAL:
    pretend_cuda.register()
SHORT = ("steps=3", "seeds=[0,1]", "logger=local", "progress=false", "scale=smoke", "record.every=1")
THREE = "preferences=3"
LARGE = ("steps=2", "record.every=0")  # a step takes long
BILEVEL = ("oracle.inner_steps=4", "oracle.inner_step=0.4")
PROBLEMS: dict[str, tuple[str, ...]] = {
    "vlmop2": ("problem=vlmop2", THREE),
    "zdt1": ("problem=zdt1", "problem.n=5", THREE),
    "zdt2": ("problem=zdt2", "problem.n=5", THREE),
    "zdt3": ("problem=zdt3", "problem.n=5", THREE),
    "dtlz2": ("problem=dtlz2", THREE),
    "dtlz": ("problem=dtlz", THREE),
    "re": ("problem=re", THREE),
    "uf": ("problem=uf", THREE),
    "half_plane": ("problem=half_plane", "problem.start={kind:normal,scale:1.0,value:null}", THREE),
    "ball": ("problem=ball_and_half_space", THREE),
    "capped": ("problem=least_squares", "problem.caps=[null,0.3]", THREE),
    "least_squares": ("problem=least_squares", "oracle=minibatch", THREE),
    "noisy": ("problem=constrained_gaussian", "oracle=ema", THREE),
    "pls": ("problem=pls", "oracle=ema", THREE),
    # its own start is stationary for the mean, where rounding alone decides in which direction MLM-CMOO goes
    "surrogate": ("problem=speech_surrogate", "problem.start={kind:normal,scale:1.0}", THREE),
    "river_flow": ("protocol=mlm_cmoo_river_flow",),
    "faces": ("protocol=mlm_cmoo_faces",),
    "federated": ("protocol=federated",),
    "federated_batches": ("protocol=federated", "oracle.batch_size=16", "oracle.local_steps=2"),
    "federated_cifar": ("protocol=federated_cifar",),
    "few_shot": ("protocol=mobl_few_shot", "preferences=2", *LARGE),
    "hyper_cleaning": ("protocol=mobl_hyper_cleaning",),
    "bilevel": ("problem=bilevel_quadratic", "problem.tasks=2", "oracle=hypergradient", *BILEVEL, THREE),
    "value_gap": ("problem=bilevel_quadratic", "problem.tasks=2", "oracle=value_gap", *BILEVEL, THREE),
    "small_network": (
        "protocol=multi_mnist", "problem.model=small", "problem.test_size=100", "oracle.batch_size=32"
    ),
    "lenet": (
        "protocol=multi_mnist", "problem.train_size=100", "problem.test_size=40", "oracle.batch_size=8"
    ),
    "speech": (
        "protocol=ferero_speech", "problem.train_size=16", "problem.test_size=2", "problem.masks=0",
        "problem.start.steps=1", *LARGE
    ),
}  # fmt: skip
# times the effect of rounding the start that a float32 row on the device may differ from the CPU's
ROUNDING = 10.0


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a GPU that somebody uses."""
    monkeypatch.setattr(gpu_lock, "folder", lambda: tmp_path / "locks")


@contextmanager
def device(count: int = 1) -> Iterator[None]:
    """GPUs: pretended ones if this machine has none."""
    if REAL and torch.cuda.device_count() < count:
        pytest.skip(f"needs {count} GPUs")
    with nullcontext() if REAL else pretend_cuda.device(count):
        yield


def on_gpu(config: dict[str, Any], name: str = "cuda") -> dict[str, Any]:
    """The same job on a GPU."""
    hardware = config["hardware"] | {"name": "gpu", "device": name, "threads": None}
    return config | {"hardware": hardware}


def words(problem: str, algorithm: str) -> tuple[str, ...]:
    """The overrides of a pair."""
    extra = ("algorithm.updates=2",) if algorithm == "psl" else ()
    if algorithm == "psl" and problem in ("river_flow", "faces"):
        extra = (*extra, "preferences=3", "preferences.weights=null")
    return (*SHORT, *PROBLEMS[problem], f"algorithm={algorithm}", *extra)


def composed(planner: Planner, *overrides: str) -> dict[str, Any]:
    """The plain configuration of a command line."""
    return planner.composer.compose(normalise(overrides))


def fits(planner: Planner, problem: str, algorithm: str) -> dict[str, Any] | None:
    """The configuration of a pair, None if its parts do not fit."""
    config = composed(planner, *words(problem, algorithm))
    try:
        make_job(config).check()
    except CompatibilityError:
        return None
    return config


def fitting(planner: Planner, problem: str, algorithm: str, *more: str) -> dict[str, Any]:
    """The configuration of a pair; skips those that do not fit, and those that need a package."""
    try:
        config = composed(planner, *words(problem, algorithm), *more)
        make_job(config).check()
    except MobenchError as error:
        pytest.skip(str(error).splitlines()[0])
    return config


def gap(a: pd.DataFrame, b: pd.DataFrame) -> float:
    """Largest difference of two tables, relative to entries above 1."""
    assert list(a) == list(b)
    worst = 0.0
    for column in a:
        if column == "seconds":
            continue
        if not pd.api.types.is_numeric_dtype(a[column]):
            assert a[column].astype(str).tolist() == b[column].astype(str).tolist()
            continue
        x = a[column].to_numpy(float)
        y = b[column].to_numpy(float)
        good = np.isfinite(x)
        assert (good == np.isfinite(y)).all(), column
        if good.any():
            worst = max(worst, float((abs(x - y)[good] / np.maximum(1.0, abs(x[good]))).max()))
    return worst


# numbers


@pytest.mark.parametrize("name", ["upgrad", "dualproj", "cagrad", "nash_mtl"])
def test_gradients_opposed_up_to_rounding(name: str) -> None:
    """Programs that the Gram matrix does not decide are solved from rows on the device in float64."""
    J = torch.randn(3, 6, 20, generator=torch.Generator().manual_seed(0)).movedim(0, 1).contiguous()
    J[:, 1] = -0.7 * J[:, 0]
    F = torch.ones(6, 3, dtype=torch.float64)
    here = mobench.solve(name, J, F)[1].direction
    assert here is not None
    with device():
        there = mobench.solve(name, J.cuda(), F.cuda())[1].direction
        assert there is not None
        torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-4)


class Tables(JobFolder):
    """A job's folder that writes no file but meta.json; its tables are kept as they are."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.tables: dict[str, pd.DataFrame] = {}

    def write_table(self, name: str, frame: pd.DataFrame) -> None:
        self.tables[name] = frame

    def write_status(self, status: str, **fields: Any) -> None:
        """Nobody asks for it."""

    def write_config(self, config: dict[str, Any]) -> None:
        """Nobody asks for it."""

    def write_solutions(self, solutions: dict[str, np.ndarray]) -> None:
        """The rows hold what follows from them."""


def trained(config: dict[str, Any], folder: Path, moved: int | None = None) -> Tables:
    """The tables of a job that is trained on the device of its configuration.

    moved: the seed of a change of each entry of the start to one of its two neighbours among floating-point
    numbers.
    """
    job = make_job(config)
    job = job.on("cuda:0" if job.config.hardware.device == "cuda" else "cpu")
    if moved is not None:
        initial = job.joined.initial
        draw = torch.Generator().manual_seed(moved)

        def beside(runs: Any) -> torch.Tensor:
            theta = initial(runs).to(job.dtype)
            far = torch.rand(theta.shape, generator=draw).sub(0.5).sign().to(theta) * torch.inf
            return torch.nextafter(theta, far)

        object.__setattr__(job.joined, "initial", beside)
    tables = Tables(folder)
    with system.current(job.device, False):
        finish(train(job, tables, "", Signals()), tables)
    return tables


def gaps(a: Tables, b: Tables) -> float:
    """Largest difference of both tables."""
    return max(gap(a.tables[name], b.tables[name]) for name in ("final.csv", "history.parquet"))


def too_far(config: dict[str, Any], folder: Path) -> str:
    """The difference of a pair's rows on the device that is too large; empty if none is.

    They may differ from the CPU's by 1e-10 in float64 and by 1e-5 in float32. Some rows are so badly
    conditioned that rounding alone changes them by more: a start moved to neighbouring floating-point
    numbers does, on the CPU (EPO on a start that is symmetric in the objectives, even in float64), and so
    do products in float32 instead of float64. A larger difference is let through only if that explains it:
    it is at most ROUNDING times the largest of those changes, so the device loses no more digits than the
    CPU; and in float32 the same pair agrees to 1e-10 in float64, so both compute the same function. On a
    pretended GPU, which computes with the CPU's kernels, float64 is not excused, and two moved starts are all
    that excuses float32.
    """
    here = trained(config, folder / "cpu")
    with device():
        there = trained(on_gpu(config), folder / "gpu")
    assert there.meta()["peak_gpu_memory_mib"] >= 0.0
    gap = gaps(here, there)
    single = config["dtype"] == "float32"
    if gap <= (1e-5 if single else 1e-10):
        return ""
    effect = max(gaps(here, trained(config, folder / "moved", seed)) for seed in range(4 if REAL else 2))
    if not single:
        return (
            ""
            if REAL and gap <= ROUNDING * effect
            else f"{gap:.1e} in float64, where rounding explains {effect:.1e}"
        )
    exact = config | {"dtype": "float64"}
    double = trained(exact, folder / "cpu")
    if REAL:
        effect = max(effect, gaps(here, double))
    with device():
        there = trained(on_gpu(exact), folder / "gpu")
    in_double = gaps(double, there)
    if in_double <= 1e-10 and gap <= ROUNDING * effect:
        return ""
    return f"{gap:.1e} in float32, where rounding explains {effect:.1e}, and {in_double:.1e} in float64"


@pytest.mark.parametrize("problem", PROBLEMS)
def test_rows_are_those_of_the_cpu(problem: str, planner: Planner, tmp_path: Path) -> None:
    """Every method that fits the problem; on a pretended GPU two of them, others for each problem.
    tests/contract/test_device.py tries every method.
    """
    names = choices("algorithm") if REAL else cases.kinds()
    first = list(PROBLEMS).index(problem) % len(names)
    turned = [*names[first:], *names[:first]]
    fitting = ((name, config) for name in turned if (config := fits(planner, problem, name)) is not None)
    configs = list(itertools.islice(fitting, None if REAL else 2))
    assert configs
    wrong = {name: words for name, config in configs if (words := too_far(config, tmp_path))}
    assert not wrong


# subproblems and Gram matrices


@pytest.mark.parametrize("P", [3, gram.LONG - 1, gram.LONG, gram.LONG + gram.PARTS // 2 + 1])
def test_gram_matrices_in_parts(P: int) -> None:
    """A GPU sums the products of parts of long rows; P need not be a multiple of their number."""
    J = torch.randn(3, 4, P, generator=torch.Generator().manual_seed(1))
    with device():
        product = gram.gram(J.to("cuda")).cpu()
    exact = J.double() @ J.double().mT
    torch.testing.assert_close(product, exact, rtol=1e-12, atol=1e-12 * P)
    assert torch.equal(product, product.mT)


@pytest.mark.parametrize("R", [5, 4000])
def test_where_a_program_is_solved_does_not_matter(R: int) -> None:
    """A batch of any size is what the CPU gives."""
    draw = torch.Generator().manual_seed(0)
    J = torch.randn(R, 4, 6, generator=draw, dtype=torch.float64)
    G = J @ J.mT
    b = torch.randn(R, 4, generator=draw, dtype=torch.float64)
    active = torch.rand(R, 4, generator=draw) > 0.3
    with device():
        away = [t.to("cuda") for t in (G, b, active)]
        solutions = [min_norm(away[0]), min_norm(away[0], away[2]), qp(away[0], away[1])]
        back = [(s.x.cpu(), s.residual.cpu(), s.failed.cpu()) for s in solutions]
    for solution, (x, residual, failed) in zip(
        (min_norm(G), min_norm(G, active), qp(G, b)), back, strict=True
    ):
        torch.testing.assert_close(x, solution.x, rtol=1e-9, atol=1e-10)
        assert x.dtype == solution.x.dtype
        assert failed.dtype == torch.bool
        assert not failed.any()
        assert residual.max() <= 1e-9


# steps as CUDA graphs


# what meta.json says of a step's graph
GRAPHS = [
    ("vlmop2", "ls", "replayed"),
    ("vlmop2", "epo", "replayed"),
    ("vlmop2", "omd_tch", "replayed"),
    ("vlmop2", "mgda algorithm.optimizer=adam", "replayed"),  # its averages are a part of the state
    ("dtlz2", "stch", "replayed"),
    ("federated", "ls", "replayed"),
    ("vlmop2", "csmoo2", "no: it depends on the number of the step"),  # gamma_t
    ("least_squares", "modo", "no: it depends on the number of the step"),  # batches
    ("vlmop2", "pmtl", "no: a part of its state is on the host"),  # the phase of each run
    ("dtlz2", "mgda", "no: the host waits for the device in it"),  # subproblems on the host
]
QUIET = ("steps=30", "record.every=15")


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are recorded although few are left."""
    monkeypatch.setattr(steps_of_a_job, "LEAST", 10)


def with_graphs(config: dict[str, Any], folder: Path, graphs: str) -> JobFolder:
    """The folder of a job that has finished on a GPU."""
    config = on_gpu(config)
    config = config | {"hardware": config["hardware"] | {"graphs": graphs}}
    with device():
        done = run_job(config, folder / graphs)
    assert done.status == "done", done.error
    return JobFolder(done.folder)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(("problem", "algorithm", "graph"), GRAPHS)
def test_replayed_steps_give_the_rows_of_the_plain_path(
    problem: str, algorithm: str, graph: str, planner: Planner, tmp_path: Path
) -> None:
    name, *more = algorithm.split()
    config = fitting(planner, problem, name, *QUIET, *more)
    plain = with_graphs(config, tmp_path, "off")
    tried = with_graphs(config, tmp_path, "auto")
    assert plain.meta()["cuda_graph"] == "off"
    assert tried.meta()["cuda_graph"] == graph
    same_rows(plain, tried)


@pytest.mark.usefixtures("early")
def test_a_step_is_recorded_on_a_stream_of_its_jobs_device(planner: Planner, tmp_path: Path) -> None:
    """PyTorch's own stream for recording is one of the first device."""
    config = on_gpu(fitting(planner, "vlmop2", "ls", *QUIET), "cuda:1")
    with device(2):
        done = run_job(config, tmp_path)
    assert JobFolder(done.folder).meta()["cuda_graph"] == "replayed"


@pytest.mark.usefixtures("early")
def test_a_graph_leaves_memory_for_steps_that_are_run(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool of a graph is its own: a step's memory is needed twice."""
    config = on_gpu(fitting(planner, "vlmop2", "ls", *QUIET))
    for free, said in ((2 << 20, "replayed"), (1 << 20, "no: the device has too little memory left")):
        with device(), monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "max_memory_allocated", lambda *_: 1_000_000)
            patch.setattr(torch.cuda, "memory_allocated", lambda *_: 0)
            patch.setattr(torch.cuda, "memory_reserved", lambda *_: 0)
            patch.setattr(torch.cuda, "mem_get_info", lambda *_, free=free: (free, 80 << 30))
            done = run_job(config, tmp_path / str(free))
        assert JobFolder(done.folder).meta()["cuda_graph"].startswith(said)


def test_code_of_ones_own_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may keep a state on the host that three steps do not show."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([(x - 1).square().sum(), (x + 1).square().sum()])

    problem = mobench.objectives(f, dim=2)
    with device():
        rows = mobench.run("hardware=gpu", *QUIET, problem=problem, algorithm="ls", preferences=2)
    assert mobench.load(rows).meta["cuda_graph"].startswith("no: code of your own")


def test_a_state_dict_goes_to_the_device_of_the_parameters() -> None:
    """As torch's optimizers do with theirs: a file is usually loaded to the host."""
    with device():
        q = torch.nn.Parameter(torch.ones(2, device="cuda"))
        losses = [q.square().sum(), (q - 1).square().sum() + 1.0]
        first = mobench.Balanced(torch.optim.SGD([q], lr=0.1), "omd_tch")
        first.step(losses)
        saved = first.state_dict()
        saved["method"] = tree_map(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, saved["method"])
        second = mobench.Balanced(torch.optim.SGD([q], lr=0.1), "omd_tch")
        second.load_state_dict(saved)
        w, _ = second.step([q.square().sum(), (q - 1).square().sum() + 1.0])
        assert w is not None
        assert w.is_cuda


SEEN: list[int] = []  # on the host: how often a step was called
Parts = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda s, t: {"theta": torch.add(s["theta"], t)}, "its recording failed"),
        (
            lambda s, t: {"theta": s["theta"] + to_device(torch.ones(3), s["theta"].device)},
            "its recording failed: a copy from the host",
        ),
        (
            lambda s, t: {"theta": s["theta"] * (1.0 + len(SEEN)), "seen": SEEN.append(1)},
            "replayed, it gives other numbers",
        ),
        (lambda s, t: {"theta": torch.cat([s["theta"], s["theta"]])}, "its state changes its sizes"),
        (lambda s, t: {"more": s["theta"]}, "its state changes its parts"),
        (lambda s, t: {"calls": s["calls"] + 1}, "its state counts on the host"),
    ],
)
def test_steps_that_cannot_be_replayed_are_recognised(
    change: Callable[[Parts, Any], Parts], why: str
) -> None:
    with device():
        state = {"t": 7, "theta": torch.ones(3, device="cuda"), "calls": 0, "seen": None}
        with pytest.raises(NotCapturable, match=why):
            StepGraph(lambda s, t: {**s, "t": t + 1, **change(s, t)}, state)
        assert state["t"] == 7
        assert state["theta"].cpu().tolist() == [1.0, 1.0, 1.0]


def test_a_replay_leaves_its_state_alone_and_counts_on_the_device() -> None:
    """Swapped and rewritten parts, and the number of the step, are those of the plain path."""

    def step(state: dict[str, Any], t: Any) -> dict[str, Any]:
        state["sum"] += state["theta"]
        number = t.tensor if isinstance(t, StepNumber) else t
        at = torch.where(state["theta"] > 4, number, state["at"])
        return {**state, "t": t + 1, "theta": state["old"] + 1, "old": state["theta"], "at": at}

    with device():
        state: dict[str, Any] = {"t": 3, "theta": torch.arange(4.0, device="cuda")}
        state |= {"old": state["theta"] * 0.5, "sum": state["theta"] * 0, "at": torch.zeros(4, device="cuda")}
        graph = StepGraph(step, state)
        replayed = [graph.replay(state, 5), graph.replay(graph.replay(state, 2), 3)]
        assert {float(x) for x in state["sum"].cpu()} == {0.0}, "the given state is not written to"
        run = state
        for t in range(3, 8):
            run = step(dict(run), t)
        for other in replayed:
            assert other["t"] == run["t"] == 8
            for name in ("theta", "old", "sum", "at"):
                assert torch.equal(other[name].cpu(), run[name].cpu()), name


@pytest.mark.parametrize(
    "use", [float, int, str, repr, hash, bool, range, lambda t: 1 / t, lambda t: t % 2, lambda t: (t + 1) > 0]
)
def test_the_number_of_a_recorded_step_cannot_be_read(use: Any) -> None:
    with pytest.raises(NotCapturable, match="number of the step"):
        use(StepNumber(torch.zeros(())))
    with pytest.raises(TypeError):
        torch.where(torch.ones(2) > 0, StepNumber(torch.zeros(())), torch.zeros(2))


# resume


RESUMED = [
    ("problem=vlmop2", "algorithm=pmtl", "preferences=3"),
    ("problem=vlmop2", "algorithm=omd_tch", "algorithm.outputs=[mean,adaptive,last]", "preferences=3"),
    ("problem=constrained_gaussian", "oracle=ema", "algorithm=csmoo2", "preferences=3"),
    ("problem=vlmop2", "algorithm=mgda", "algorithm.optimizer=adam", "record.every=30", "preferences=3"),
    (*PROBLEMS["small_network"], "algorithm=ls"),
]


@pytest.mark.parametrize(
    ("first", "then", "arguments"),
    [
        # the other device is gone
        *(("cuda:1", "cuda:0", arguments) for arguments in RESUMED),
        # outputs and averages with a state, an oracle with one, a graph; methods' own states: tests/contract
        *(("cpu", "cuda:0", RESUMED[k]) for k in (1, 2, 3)),
        ("cuda:0", "cpu", RESUMED[0]),
    ],
)
def test_a_job_is_resumed_on_the_device_that_it_has_now(
    first: str,
    then: str,
    arguments: tuple[str, ...],
    planner: Planner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its rows are those of a job that had one device: to the bit on another GPU, else up to rounding (in
    float64, since training in float32 makes a difference of 0.4 % of rounding within 60 steps).
    """
    steps = 160 if "record.every=30" in arguments else 24
    settings = ("seeds=[0,1]", "scale=smoke", "logger=local", "checkpoint.seconds=0", "progress=false")
    config = composed(planner, *arguments, f"steps={steps}", *settings)
    other_kind = "cpu" in (first, then)
    if other_kind:
        config |= {"dtype": "float64"}
    with device(1):
        whole = run_job(config if other_kind else on_gpu(config, "cuda:0"), tmp_path / "whole")
    assert whole.status == "done", whole.error
    with device(2 if first == "cuda:1" else 1), monkeypatch.context() as patch:
        disturb(patch, lambda _, state: state["t"] > steps // 2, die)
        with pytest.raises(Killed):
            run_job(on_gpu(config, first), tmp_path / "killed")
    begun = _begun_at(monkeypatch)
    with device(1):
        resumed = run_job(on_gpu(config, then), tmp_path / "killed")
    assert resumed.status == "done", resumed.error
    assert 0 not in begun, "the first pass goes on where it was"
    one, both = JobFolder(whole.folder), JobFolder(resumed.folder)
    if other_kind:
        values = [name for name in one.final() if name.startswith("f_")]
        np.testing.assert_allclose(both.final()[values], one.final()[values], rtol=1e-8, atol=1e-8)
    else:
        same_rows(one, both)


def _begun_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes the number of each pass over the steps that begins anew."""
    from mobench.jobs import train

    seen: list[int] = []
    begin = train.Training.begin_pass

    def noted(self: Any) -> None:
        seen.append(self.number)
        begin(self)

    monkeypatch.setattr(train.Training, "begin_pass", noted)
    return seen


# messages


def test_a_function_that_captures_a_cpu_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    centre = torch.tensor([1.0, 0.0], dtype=torch.float64)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([((x - centre) ** 2).sum(), ((x + centre) ** 2).sum()])

    problem = mobench.objectives(f, dim=2)
    with device(), pytest.raises(MobenchError) as caught:
        mobench.run("hardware=gpu", problem=problem, algorithm="ls", steps=3, preferences=2)
    said = str(caught.value)
    assert "device=x.device" in said
    assert ".to(x.device)" in said
    assert "hardware=cpu" in said


def test_tf32_is_another_job_and_for_a_gpu_only(planner: Planner, tmp_path: Path) -> None:
    plain = composed(planner, "problem=vlmop2", "algorithm=ls", *SHORT)
    with pytest.raises(ConfigError, match=r"hardware\.tf32=true is for a GPU"):
        make_job(plain | {"hardware": plain["hardware"] | {"tf32": True}})
    config = on_gpu(plain)
    other = config | {"hardware": config["hardware"] | {"tf32": True}}
    assert "tf32" not in make_job(config).identity
    assert make_job(other).identity["tf32"] is True
    with device():
        done = run_job(other, tmp_path)
    assert JobFolder(done.folder).meta()["tf32"] is True


@pytest.mark.parametrize("tf32", [False, True])
def test_the_arithmetic_of_a_job(tf32: bool) -> None:
    """TF32 and kernels that sum in another order from call to call are off unless a job asks for TF32."""
    cudnn: Any = torch.backends.cudnn
    products = (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [p.fp32_precision for p in products]
    with device():
        with system.current(torch.device("cuda:0"), tf32):
            assert {p.fp32_precision for p in products} == {"tf32" if tf32 else "ieee"}
            assert (cudnn.deterministic, cudnn.benchmark) == (True, False)
        assert [p.fp32_precision for p in products] == before
    with system.current(torch.device("cpu"), False):
        assert [p.fp32_precision for p in products] == before


# times


@pytest.mark.skipif(REAL, reason="the queue is pretended")
def test_queued_work_is_training_time(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that is left on a GPU after the last step counts as training time."""
    config = composed(planner, "problem=vlmop2", "algorithm=ls", *SHORT)
    with device():
        monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: time.sleep(0.2))
        done = run_job(on_gpu(config), tmp_path)
    assert JobFolder(done.folder).meta()["seconds_train"] >= 0.2
