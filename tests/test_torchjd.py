"""algorithm=torchjd: TorchJD's aggregators by name, against themselves and our own methods."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mobench
from mobench.algorithms import torchjd_by_name
from mobench.algorithms.torchjd_by_name import TorchJD
from mobench.core import Runs, loop
from mobench.core.output import make_output
from mobench.core.preferences import spread
from mobench.errors import ConfigError, MobenchError
from mobench.oracles import Exact
from mobench.problems import DTLZ2
from tests.conftest import Run

jd = pytest.importorskip("torchjd.aggregation", reason="needs TorchJD: pip install '.[torchjd]'")

F64 = torch.float64
OPTIONS: dict[str, dict[str, Any]] = {
    "CAGrad": {"c": 0.4},
    "Constant": {"weights": [0.2, 0.3, 0.5]},
    "FairGrad": {"alpha": 1.0},
    "Krum": {"n_byzantine": 0},
    "TrimmedMean": {"trim_number": 1},
}
OURS = {  # by TorchJD's name: ours, with TorchJD's options that make it as exact
    "UPGrad": ("upgrad", {}, 1e-9),
    "DualProj": ("dualproj", {}, 1e-9),
    "IMTLG": ("imtl_g", {}, 1e-8),
    "ConFIG": ("config", {}, 1e-8),
    "AlignedMTL": ("aligned_mtl", {}, 1e-8),
    "MGDA": ("mgda", {"epsilon": 1e-12, "max_iters": 20000}, 1e-3),  # Frank-Wolfe converges slowly
    "CAGrad": ("cagrad", {"c": 0.4, "norm_eps": 0.0}, 1e-4),
    "Mean": ("ls", {}, 1e-12),
}


def able(name: str) -> bool:
    try:
        TorchJD(name=name, options=OPTIONS.get(name, {}))
    except ConfigError as error:
        if "requires" not in str(error):  # only what is not installed
            raise
        return False
    return True


NAMES = sorted(name for name in torchjd_by_name.names() if not name.endswith("Weighting"))
USED = [name for name in (*NAMES, "MoDoWeighting", "SDMGradWeighting") if able(name)]


def rows(M: int = 3, P: int = 9, seed: int = 0) -> Tensor:
    return torch.randn(M, P, dtype=F64, generator=torch.Generator().manual_seed(seed))


def test_there_are_many() -> None:
    assert {"UPGrad", "MGDA", "GradVac", "PCD", "ExcessMTL", "TrimmedMean", "PCGrad"} <= set(USED)


@pytest.mark.parametrize("name", [name for name in OURS if able(name)])
def test_equal_to_our_own(name: str) -> None:
    ours, options, tolerance = OURS[name]
    J = rows()
    own = {"c": 0.4} if name == "CAGrad" else {"normalize": "sum"} if name == "Mean" else {}
    _, expected = mobench.solve(ours, J, torch.ones(3, dtype=F64), **own)
    _, found = mobench.solve("torchjd", J, name=name, options=options)
    assert expected.direction is not None
    assert found.direction is not None
    size = expected.direction.norm()
    assert (found.direction - expected.direction).norm() <= tolerance * size
    assert size > 0.1


@pytest.mark.parametrize("name", USED)
def test_what_torchjd_computes_itself(name: str) -> None:
    """Three steps with one aggregator of theirs, its memory in itself; ours keeps it in the state."""
    method = TorchJD(name=name, options=OPTIONS.get(name, {}))
    theirs = method._made(torch.full((3,), 1 / 3, dtype=F64))
    state = None
    for t in range(3):
        J = rows(seed=t)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torchjd_by_name.seed_for(0, stream="torchjd", step=t))
            found = theirs(J @ J.mT if name in ("MoDoWeighting", "SDMGradWeighting") else J)
        expected = found if found.shape == (9,) else found @ J
        _, info = mobench.solve(method, J, torch.ones(3, dtype=F64), state=state)
        state = info.state
        assert info.direction is not None
        torch.testing.assert_close(-info.direction, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["UPGrad", "GradVac", "PCD", "ExcessMTL", "PCGrad"])
def test_a_run_is_the_same_alone_and_in_a_batch_and_continues(name: str) -> None:
    problem = DTLZ2(n=6, start={"kind": "uniform", "low": 0.2, "high": 0.8, "per_preference": True})
    runs = Runs.product(spread(2, problem.n_objectives), [0, 1])
    method = TorchJD(name=name)

    def ends(which: Runs, stop: int | None = None) -> Tensor:
        oracle = Exact(problem, which)
        rules = {"last": make_output("last")}
        state = loop.start(oracle, method, rules, problem.initial(which), which, 6)
        for until in (stop or 6, 6):
            state = loop.advance(oracle, method, rules, state, until)
        return state["theta"]

    together = ends(runs)
    assert torch.equal(ends(runs, 3), together)
    for r in range(4):
        torch.testing.assert_close(ends(runs.take([r]))[0], together[r], rtol=1e-9, atol=1e-12)


def test_by_the_command_line(mobench: Run, tmp_path: Path) -> None:
    words = ["problem=vlmop2", "problem.n=4", "preferences=2", "seeds=[0]", "steps=20"]
    theirs = mobench("algorithm=torchjd", "algorithm.name=UPGrad", *words, root=tmp_path / "a")
    ours = mobench("algorithm=upgrad", *words, root=tmp_path / "b")
    columns = ["f_1", "f_2"]
    a = theirs.job.final()[columns].to_numpy()
    b = ours.job.final()[columns].to_numpy()
    assert abs(a - b).max() < 1e-8
    other = mobench("algorithm=torchjd", "algorithm.name=MGDA", "algorithm.options={max_iters: 5}", *words)
    assert other.code == 0, other.err


def test_preferences() -> None:
    J = rows()
    w = torch.tensor([0.1, 0.2, 0.7], dtype=F64)
    ones = torch.ones(3, dtype=F64)
    _, ours = mobench.solve("upgrad", J, ones, w, mixture="preference")
    _, found = mobench.solve("torchjd", J, ones, w, mixture="preference")
    assert ours.direction is not None
    torch.testing.assert_close(found.direction, ours.direction, rtol=1e-9, atol=1e-11)


def test_in_a_training_loop() -> None:
    def trained(method: str, **options: Any) -> Tensor:
        x = torch.nn.Parameter(torch.tensor([2.0, -1.0], dtype=F64))
        optimizer = mobench.Balanced(torch.optim.SGD([x], lr=0.1), method, **options)
        for _ in range(10):
            optimizer.step([(x - 1).square().sum(), (x[0] + 1) ** 2 + x[1] ** 2])
        return x.detach()

    torch.testing.assert_close(trained("torchjd", name="UPGrad"), trained("upgrad"), rtol=1e-9, atol=1e-11)
    assert trained("torchjd", name="GradVac").isfinite().all()


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"choose one of .*MGDA.*Did you mean 'UPGrad'"):
        TorchJD(name="UPgrad")
    with pytest.raises(ConfigError, match="algorithm=nash_mtl"):
        TorchJD(name="NashMTL")
    with pytest.raises(ConfigError, match=r"algorithm\.options='cc' is unknown; choose one of c, norm_eps"):
        TorchJD(name="CAGrad", options={"cc": 1.0})
    with pytest.raises(ConfigError, match="missing 1 required positional argument: 'trim_number'"):
        TorchJD(name="TrimmedMean")
    with pytest.raises(ConfigError, match="takes no preference vector"):
        TorchJD(name="PCGrad", mixture="preference")
    with pytest.raises(MobenchError, match="TorchJD's Constant failed in step 0"):
        mobench.solve(
            "torchjd", rows(), torch.ones(3, dtype=F64), name="Constant", options={"weights": [1.0, 2.0]}
        )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[torchjd\]'"):
        TorchJD()


@pytest.mark.parametrize(("name", "options"), [("CAGrad", {"c": 0.4}), ("IMTLG", {}), ("UPGrad", {})])
def test_a_lost_run_costs_no_other(
    name: str, options: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TorchJD's CAGrad and IMTL-G raise where a Jacobian is not finite."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    f = [lambda x: torch.sqrt(x[0] ** 2) + 0 * x[1], lambda x: (x[0] - 1) ** 2 + x[1] ** 2]
    problem = mobench.objectives(f, start=[[0.0, 0.0], [0.5, 0.5]])  # no gradient at x_0 = 0
    method = TorchJD(name=name, options=options)
    rows = mobench.run(problem=problem, algorithm=method, steps=20, seeds=[0], preferences=2)
    assert rows["status"].tolist() == ["diverged", "done"]
