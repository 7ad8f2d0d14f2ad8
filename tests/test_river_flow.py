"""River flow: the reader of ARFF files, the clean-up, the stand-in, the network and whole jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mobench.constraints import LossCap
from mobench.core import Runs
from mobench.core.point import GraphPoint
from mobench.core.preferences import resolve
from mobench.core.sampled import Batch
from mobench.core.sets import Free
from mobench.core.truth import KnownFront
from mobench.data import river_flow as source
from mobench.data.river_flow import INPUTS, SITES, TARGETS, RiverFlows, generated, river_flows
from mobench.errors import DataError
from mobench.oracles import Exact
from mobench.problems import RiverFlow
from mobench.problems import river_flow as module
from tests.conftest import Run

F64 = torch.float64
DIGEST = "d1dd00d9"  # of the generated rows, random split


def runs_of(count: int, seeds: tuple[int, ...] = (0,)) -> Runs:
    return Runs.product(resolve(count, 8), list(seeds))


# --- the clean-up -------------------------------------------------------------------------------------------


def small(root: Path, monkeypatch: pytest.MonkeyPatch, n: int = 40, place: str = "river_flow") -> np.ndarray:
    """A file with the right columns, out of order, two rows of which lack inputs; its table, inputs first."""
    rng = np.random.default_rng(n)
    table = np.round(rng.gamma(2.0, 10.0, size=(n, 72)), 2)
    table[[3, 17], [63, 8]] = np.nan
    names = (*INPUTS, *TARGETS)
    order = rng.permutation(72)
    lines = ["@relation x", *(f"@attribute '{names[k]}' numeric" for k in order), "@data"]
    lines += [",".join("?" if np.isnan(row[k]) else repr(float(row[k])) for k in order) for row in table]
    (root / place).mkdir(parents=True, exist_ok=True)
    (root / place / "rf1.arff").write_text("\n".join(lines))
    monkeypatch.setattr(source, "ROWS", n)
    return table


@pytest.mark.parametrize("place", ["river_flow", "."])
def test_a_file_is_cleaned_as_the_docstring_says(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = small(tmp_path, monkeypatch, place=place)
    cleaned = np.delete(table, [3, 17], axis=0)
    data = river_flows("rf1", tmp_path, split="chronological", clip=0.1)
    assert (data.name, data.label, data.embedded) == ("rf1", "RF1 (river flow)", False)
    assert (data.rows, data.dropped) == (40, 2)
    assert (len(data.train), len(data.test)) == (26, 12)  # 38 * .7 = 26.6
    low, high = np.quantile(cleaned[:26], [0.1, 0.9], axis=0)
    clipped = np.minimum(np.maximum(cleaned, low), high)
    mean = clipped[:26].mean(0)
    sd = clipped[:26].std(0)
    z = (clipped - mean) / sd
    for actual, wanted in (
        (data.train, z[:26, :64]),
        (data.train_targets, z[:26, 64:]),
        (data.test, z[26:, :64]),
        (data.test_targets, z[26:, 64:]),
        (data.mean, mean),
        (data.scale, sd),
    ):
        np.testing.assert_allclose(actual.numpy(), wanted, rtol=1e-12, atol=1e-13)
        assert actual.is_contiguous()
        assert not actual.is_inference()
    assert data.clipped == int((cleaned != clipped).sum())
    assert river_flows("rf1", tmp_path, split="chronological", clip=0.1) is data
    assert data.digest != river_flows("rf1", tmp_path).digest


def test_parts_are_disjoint_and_limits_leave_the_unit() -> None:
    whole = {split: river_flows("generated", "", split) for split in source.SPLITS}
    sets = []
    for data in whole.values():
        rows = [
            row.tobytes()
            for part in (data.train, data.test)
            for row in (part * data.scale[:64]).round().numpy()
        ]
        assert len(rows) == 1500
        raw = [data.mean + data.scale * torch.cat(both, 1) for both in pairs(data)]
        sets.append([{row.tobytes() for row in part.numpy().round(6)} for part in raw])
        assert not sets[-1][0] & sets[-1][1]
    assert whole["random"].digest.startswith(DIGEST)
    assert whole["chronological"].digest != whole["random"].digest
    few = river_flows("generated", "", train_size=50, test_size=7)
    assert torch.equal(few.train, whole["random"].train[:50])
    assert torch.equal(few.test_targets, whole["random"].test_targets[:7])
    assert torch.equal(few.scale, whole["random"].scale)
    assert few.digest != whole["random"].digest
    assert few.dropped == 60


def pairs(data: RiverFlows) -> list[tuple[Tensor, Tensor]]:
    return [(data.train, data.train_targets), (data.test, data.test_targets)]


def test_training_part_has_mean_0_and_variance_1() -> None:
    data = river_flows("generated", "")
    for part in (data.train, data.train_targets):
        torch.testing.assert_close(part.mean(0), torch.zeros(part.shape[1], dtype=F64), rtol=0, atol=1e-12)
        torch.testing.assert_close(
            part.std(0, correction=0), torch.ones(part.shape[1], dtype=F64), rtol=1e-12, atol=0
        )
    loose = river_flows("generated", "", clip=0.0)
    assert loose.clipped == 0 < data.clipped
    assert loose.train.abs().max() > data.train.abs().max()


def test_wrong_tables_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small(tmp_path, monkeypatch)
    path = tmp_path / "river_flow" / "rf1.arff"
    good = path.read_text()
    lines = good.splitlines()
    first_row = len(lines) - 40
    order = [row.split("'")[1] for row in lines if row.startswith("@attribute")]
    cells = lines[first_row + 5].split(",")
    cells[order.index(TARGETS[0])] = "?"
    endless = lines[first_row + 5].split(",")
    endless[order.index(INPUTS[0])] = "1e999"
    cases = {
        "and 1 infinite numbers, but RF1": [
            *lines[: first_row + 5],
            ",".join(endless),
            *lines[first_row + 6 :],
        ],
        ", 1 missing targets": [*lines[: first_row + 5], ",".join(cells), *lines[first_row + 6 :]],
        r"\(1 of the expected ones are missing: CHSI2__0\)": good.replace(
            "CHSI2__0", "CHSI2_now"
        ).splitlines(),
        "has 39 rows, .* but RF1 has 40 rows": lines[:-1],
        "could not be read as a file of data=rf1": [*lines[:-1], lines[-1].rsplit(",", 1)[0]],
        "could not be read as a file": [*lines[:-1], "two" + lines[-1]],
        "rf1.arff could not be": ["no relation"],
    }
    for message, text in cases.items():
        path.write_text("\n".join(text))
        source._table.cache_clear()
        with pytest.raises(DataError, match=message) as caught:
            river_flows("rf1", tmp_path)
        assert "problem.data=generated is embedded" in str(caught.value)
        assert str(path) in str(caught.value)
    constant = table.copy()
    constant[:, 2] = 4.0
    monkeypatch.setattr(source, "_table", lambda name, root: constant)
    with pytest.raises(DataError, match="column EADM7__0 is constant in the training part"):
        river_flows("rf1", tmp_path)
    monkeypatch.setattr(source, "_table", lambda name, root: table[:1])
    with pytest.raises(DataError, match="has 1 complete rows"):
        river_flows("rf1", tmp_path)


def test_a_missing_file_is_named_with_its_place_and_what_works_without(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        river_flows("rf1", tmp_path)
    place = str(tmp_path / "river_flow")
    for word in ("data=rf1 needs rf1.arff", place, "MOBENCH_DATA", "problem.data=generated"):
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# --- the stand-in -------------------------------------------------------------------------------------------


def test_generated_flows_have_the_lags_of_the_real_ones() -> None:
    table = generated()
    assert table.shape == (1560, 72)
    series = table[:, :8]
    for k, lag in enumerate(source.LAGS):
        column = table[:, 8 * k : 8 * k + 8]
        assert np.isnan(column[:lag]).all()
        np.testing.assert_array_equal(column[lag:], series[: len(series) - lag])
    np.testing.assert_array_equal(table[:-48, 64:], series[48:])
    assert INPUTS[8] == "CHSI2__n6"
    assert INPUTS[-1] == "DLDI4__n60"
    assert tuple(f"{site}_48H__0" for site in SITES) == TARGETS
    assert (table[60:] > 0).all()
    data = river_flows("generated", "")
    assert data.embedded
    assert "stand-in" in data.label
    assert data.rows == 1560
    # flows of neighbouring hours are alike, and the task is neither trivial nor hopeless
    for m in range(8):
        assert np.corrcoef(series[1:, m], series[:-1, m])[0, 1] > 0.95
    error = ridge(data)
    assert (error > 0.02).all()
    assert (error < 0.5).all()


def ridge(data: RiverFlows, penalty: float = 1e-2) -> np.ndarray:
    """Test mean squared error of a linear fit without intercept in z units."""
    (X, Y), (Z, W) = ((a.numpy(), b.numpy()) for a, b in pairs(data))
    weights = np.linalg.solve(X.T @ X + penalty * np.eye(64), X.T @ Y)
    return ((Z @ weights - W) ** 2).mean(0)


# --- the real file ------------------------------------------------------------------------------------------


@pytest.mark.data("rf1")
def test_the_real_file(data_folder: Path) -> None:
    """Numbers of the specification.

    Its means are those of all 9,125 rows; its ridge errors those without clipping.
    """
    table = source._table("rf1", source.absolute(data_folder))
    assert table.shape == (9125, 72)
    assert np.isnan(table).sum() == 3264
    assert [int(np.isnan(table[:, 8 * k]).sum()) for k in range(8)] == [0, 12, 24, 36, 48, 72, 96, 120]
    mean = table[:, 64:].mean(0)
    sd = table[:, 64:].std(0)
    np.testing.assert_allclose(mean, [162.7, 3.49, 159.4, 77.6, 65.9, 12.4, 60.2, 46.5], rtol=0, atol=0.051)
    np.testing.assert_allclose(sd, [61.6, 0.89, 56.2, 33.4, 32.1, 6.9, 22.6, 22.3], rtol=0, atol=0.051)
    assert abs(mean[1] - 3.49) < 0.005
    assert abs(sd[1] - 0.89) < 0.0051
    assert table[:, 65].max() == 78.9
    data = river_flows("rf1", data_folder, split="chronological", clip=0.0)
    assert (data.rows, data.dropped, len(data.train), len(data.test)) == (9125, 120, 6303, 2702)
    np.testing.assert_allclose(
        ridge(data), [0.030, 0.043, 0.097, 0.162, 0.071, 0.087, 0.012, 0.143], rtol=0, atol=5e-4
    )
    clipped = river_flows("rf1", data_folder, split="chronological")
    measured = [0.0212, 0.1145, 0.0845, 0.1664, 0.0860, 0.0663, 0.0133, 0.1359]
    np.testing.assert_allclose(ridge(clipped), measured, rtol=0, atol=1e-4)
    torch.testing.assert_close(
        RiverFlow(data="rf1", data_root=str(data_folder)).constant_losses, torch.ones(8, dtype=F64)
    )


# --- the problem --------------------------------------------------------------------------------------------


def net(theta: Tensor, hidden: int = 32) -> nn.Sequential:
    """PyTorch's modules with these parameters."""
    out = nn.Sequential(nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, 8)).double()
    nn.utils.vector_to_parameters(theta.double(), out.parameters())
    return out


def by_hand(theta: Tensor, x: Tensor, y: Tensor, hidden: int = 32) -> tuple[Tensor, Tensor]:
    """Losses and rows of one network."""
    mlp = net(theta, hidden)
    losses = ((mlp(x) - y) ** 2).mean(0)
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(f, list(mlp.parameters()), retain_graph=True)])
        for f in losses
    ]
    return losses.detach(), torch.stack(rows)


def test_sizes() -> None:
    p = RiverFlow()
    assert (p.n_objectives, p.dim, p.n_samples) == (8, 2344, 1050)
    assert p.dim == sum(a.numel() for a in net(torch.zeros(2344)).parameters())
    assert p.network.shapes == [tuple(a.shape) for a in net(torch.zeros(2344)).parameters()]
    assert torch.equal(p.ideal_point, torch.zeros(8, dtype=F64))
    torch.testing.assert_close(p.constant_losses, torch.ones(8, dtype=F64))
    few = RiverFlow(train_size=60)
    torch.testing.assert_close(few.constant_losses, few.flows.train_targets.var(0, correction=0))
    assert p.ref_point is None
    assert not isinstance(p, KnownFront)


@pytest.mark.parametrize("part", [1024, 7])
@pytest.mark.parametrize("kind", ["one group", "groups", "indices", "all"])
def test_losses_and_rows_are_those_of_single_networks(
    kind: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART", part)
    p = RiverFlow(train_size=60, hidden=5)
    theta = 3.0 * p.initial(runs_of(2, (4, 2)))
    chosen = torch.randint(0, 60, (4, 20), generator=torch.Generator().manual_seed(1))
    batch: Any = {
        "one group": Batch(chosen[:1], torch.zeros(4, dtype=torch.int64)),
        "groups": Batch(chosen[:3], torch.tensor([2, 0, 2, 1])),
        "indices": chosen,
        "all": None,
    }[kind]
    F, rows = p.linearize(theta, batch)
    torch.testing.assert_close(F, p.values(theta, batch), rtol=1e-14, atol=0)
    J = rows()
    graph = GraphPoint(lambda x: p.values(x, batch), theta, Free(), 8, {})
    torch.testing.assert_close(J, graph.jacobian(), rtol=1e-11, atol=1e-13)
    for r in range(4):
        index = {"one group": chosen[0], "groups": chosen[(2, 0, 2, 1)[r]], "indices": chosen[r]}.get(
            kind, torch.arange(60)
        )
        f, g = by_hand(theta[r], p.flows.train[index], p.flows.train_targets[index], 5)
        torch.testing.assert_close(F[r], f, rtol=1e-13, atol=0)
        torch.testing.assert_close(J[r], g, rtol=1e-11, atol=1e-13)


def test_rows_fetched_in_inference_mode_serve_autodiff_later() -> None:
    p = RiverFlow(train_size=30)
    theta = p.initial(runs_of(1)).float()
    with torch.inference_mode():
        p.values(theta)
    leaf = theta.requires_grad_(True)
    assert torch.autograd.grad(p.values(leaf).sum(), leaf)[0].isfinite().all()


def test_columns_are_errors_on_the_test_part() -> None:
    p = RiverFlow(train_size=40, test_size=30)
    theta = p.initial(runs_of(2))
    columns = p.columns(theta, p.values(theta))
    assert list(columns) == [*(f"test_loss_{m}" for m in range(1, 9)), "test_loss_mean", "test_loss_max"]
    for r in range(2):
        f, _ = by_hand(theta[r], p.flows.test, p.flows.test_targets)
        losses = torch.stack([columns[f"test_loss_{m}"][r] for m in range(1, 9)])
        torch.testing.assert_close(losses, f, rtol=1e-13, atol=0)
        torch.testing.assert_close(columns["test_loss_mean"][r], f.mean())
        torch.testing.assert_close(columns["test_loss_max"][r], f.max())


def test_starts() -> None:
    p = RiverFlow()
    runs = runs_of(2, (0, 3))
    theta = p.initial(runs)
    assert torch.equal(theta[0], theta[2])
    assert not torch.equal(*RiverFlow(start={"kind": "default", "per_preference": True}).initial(runs)[::2])
    for part, bound in zip(p.network.split(theta), (64**-0.5, 64**-0.5, 32**-0.5, 32**-0.5), strict=True):
        assert 0.7 * bound < part.abs().max() <= bound


def test_caps_in_multiples_of_the_constant_losses() -> None:
    p = RiverFlow(train_size=100)
    runs = runs_of(1)
    capped = LossCap(Exact(p, runs), p, runs, ratio=0.25)
    point = capped.at(p.initial(runs), {}, 0)
    torch.testing.assert_close(point.G, point.F - 0.25 * p.constant_losses)


# --- jobs ---------------------------------------------------------------------------------------------------


def test_smoke_job(mobench: Run) -> None:
    parts = ("problem=river_flow", "oracle=epochs", "oracle.batch_size=64", "algorithm=mgda")
    runs = ("steps=60", "algorithm.step_size=0.1", "preferences=1", "seeds=[0,1]")
    result = mobench(*parts, *runs, "scale=smoke", "logger=local")
    assert result.code == 0, result.err
    meta = json.loads((result.job.path / "meta.json").read_text())
    assert meta["embedded"] is True
    assert "stand-in" in meta["data"]
    assert (meta["rows"], meta["rows_dropped"], meta["train_size"], meta["test_size"]) == (1560, 60, 300, 450)
    assert meta["data_sha256"] == river_flows("generated", "", train_size=300).digest
    rows = result.rows
    assert len(rows) == 2
    assert (rows["status"] == "done").all()
    assert (rows["test_loss_mean"] < 0.8).all()  # a constant loses about 1
