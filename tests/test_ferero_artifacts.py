"""Arrivals and verdicts of FERERO's artifacts on made-up rows, so that each can fail."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import mobench
from experiments.ferero import (
    fig4,
    fig6,
    fig8,
    images,
    positions,
    properties,
    rate,
    run_time,
    screen,
    settings,
    speech,
    witnesses,
)  # fmt: skip
from experiments.ferero import runs as toy_runs
from experiments.ferero.hypervolumes import FITTED, judge_hypervolumes, volumes
from experiments.ferero.trajectories import front
from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ls import LS
from mobench.algorithms.tch import TCH
from mobench.artifacts import Artifact
from mobench.core.preferences import angle_deg, from_rays_deg
from mobench.errors import DataError
from mobench.metrics import front_distance
from mobench.models.convnet import model
from mobench.sweep.composer import jobs_of
from mobench.system.files import read_csv
from tests.conftest import Run
from tests.reference import images as plain_loops

RAYS = [81.0, 57.0, 33.0, 9.0]


def job(angle: Any = 0.0, distance: Any = 0.0, status: Any = "done", seeds: int = 10, **more: Any) -> Any:
    """Final rows of four preferences x `seeds` runs; the rest of a job as `more` has it."""
    runs = 4 * seeds
    weights = from_rays_deg(RAYS).repeat_interleave(seeds, 0).numpy()
    rows = pd.DataFrame({"run": range(runs), "seed": np.tile(np.arange(seeds), 4), "output": "last"})
    rows = rows.assign(preference_1=weights[:, 0], preference_2=weights[:, 1], f_1=0.5, f_2=0.5)
    rows = rows.assign(angle_deg=angle, front_distance=distance, status=status)
    config = {"seeds": list(range(seeds)), "steps": 3, "algorithm": {}}
    complete = bool((rows["status"] == "done").all())
    rest = {"final": rows, "config": config, "complete": complete, "weights": weights, "data": None}
    return SimpleNamespace(**rest | {"meta": {}} | more)


def test_a_time_is_of_runs_that_finished() -> None:
    """A lost run takes no more steps, so that its time is short."""
    made = {f"image_ls_{r}": job(meta={"seconds_train": t}) for r, t in enumerate((19.0, 0.9, 0.8))}
    a: Any = SimpleNamespace(jobs=made)
    assert run_time.seconds(a, "image_ls") == 0.9
    for r in (1, 2):
        made[f"image_ls_{r}"].complete = False
    assert run_time.seconds(a, "image_ls") == 19.0
    made["image_ls_0"].complete = False
    assert np.isnan(run_time.seconds(a, "image_ls"))


def test_a_run_that_did_not_finish_did_not_arrive() -> None:
    status = ["done"] * 30 + ["diverged"] * 10
    assert toy_runs.arrived().share(job()) == 1.0
    assert toy_runs.arrived().share(job(status=status)) == 0.75
    sides = toy_runs.arrived().both_sides(job(status=status)).numbers
    assert sides == {"outer": 0.5, "inner": 1.0}  # k = 3 is the lost one
    sides = toy_runs.arrived().both_sides(job(angle=[0.0] * 10 + [2.0] * 10 + [0.0] * 20)).numbers
    assert sides == {"outer": 1.0, "inner": 0.5}
    assert toy_runs.arrived().share(job(distance=2e-3)) == 0.0
    assert toy_runs.statuses(job(status=status)) == "10 diverged"
    assert toy_runs.statuses(job()) == ""
    unsolved = {"unsolved": [{"run": 3, "no_solution": True}, {"run": 4, "no_solution": False}]}
    said = toy_runs.statuses(job(status=["solver_failed"] * 2 + ["done"] * 38, meta=unsolved))
    assert said == "2 solver failed, 1 of the programs are proved to have no solution"
    # a start counts as failing if one of its four runs does
    assert fig8.missed(job(angle=[5.0] * 3 + [0.0] * 37), 2.0).mean() == pytest.approx(0.3)
    assert fig8.missed(job(status=["diverged"] + ["done"] * 39), 2.0).mean() == pytest.approx(0.1)


def test_who_is_first() -> None:
    # earlier, level, alone, neither, later, alone
    ours = np.array([3, 5, 5, -1, 2, 7])
    theirs = np.array([4, 5, -1, -1, 1, -1])
    assert toy_runs.before(ours, theirs).mean() == pytest.approx(0.5)


def test_first_hit_is_the_first_step_near_ray_and_front() -> None:
    rng = np.random.default_rng(0)
    runs = 12
    steps = 40
    F = torch.from_numpy(front())[torch.from_numpy(rng.integers(0, 2001, (runs, steps)))]
    paths = F.numpy() + rng.choice([0.0, 0.05], (runs, steps, 1))
    made = job(seeds=3, paths=lambda: paths)
    hits = toy_runs.first_hit(made, angle=4.0)
    weights = torch.from_numpy(made.weights)
    dense = torch.from_numpy(front())
    for r in range(runs):
        good = [
            bool(angle_deg(torch.from_numpy(paths[r, t]), weights[r]) < 4.0)
            and bool(front_distance(torch.from_numpy(paths[r, t : t + 1]), dense)[0] < 1e-2)
            for t in range(steps)
        ]
        assert hits[r] == (good.index(True) if any(good) else -1)
    assert (hits >= 0).any()
    assert (hits < 0).any()


def test_a_rise_is_between_an_earlier_and_a_later_point() -> None:
    paths = np.zeros((4, 3, 2))
    paths[1, :, 0] = [0.5, 0.2, 0.6]  # falls, then rises by 0.4
    paths[2, :, 1] = [0.9, 0.5, 0.1]  # falls
    paths[3, :, 0] = [0.0, 9.0, 0.0]  # an outer preference, which does not count
    np.testing.assert_allclose(toy_runs.rises(job(seeds=1, paths=lambda: paths)), [0.4, 0.0])


def test_a_no_needs_more_than_one_point() -> None:
    """Scale invariance: none of FERERO's directions changes, many of the others' do."""
    assert properties.scale_changes(FERERO(line="none")).max() < 1e-12
    for method in (LS(), TCH()):
        changes = properties.scale_changes(method)
        assert len(changes) == 200
        assert (changes > properties.CHANGED).mean() > 0.25


def test_settings_of_the_inner_loop_are_compared() -> None:
    printed = {"inner_step": 0.1, "inner_steps": 250.0, "inner_tolerance": 1e-5}
    cells = settings.inner_loop("x", "f")
    assert {cell[2]: cell[3] for cell in cells} == printed
    for steps, verdict in ((250, "check passed"), (10, "check failed")):
        config = {"seeds": [0], "algorithm": printed | {"inner_steps": steps}}
        a = artifact({"f": job(config=config)}, scale="laptop", name="table7")
        settings.compare_settings(a, cells, {})
        assert a.claims[0].verdict == verdict
        assert ("x inner_steps: 10.0 (250.0)" in a.claims[0].measured) == (steps == 10)


def artifact(jobs: Any, scale: str = "paper", name: str = "x", **paper: Any) -> Artifact:
    a = Artifact(f"ferero/{name}", "x", scale, jobs)
    a.paper = type(a.paper)(**paper)
    return a


def verdicts(a: Artifact) -> dict[str, str]:
    return {c.id: c.verdict for c in a.claims}


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ((0.1, 0.3), True),
        ((0.1, 2.0), "partial"),
        ((0.9, 1.1), "partial"),
        ((1.3, 1.3), False),
        ((0.9, 1.3), False),
    ],
)
def test_times_are_clearly_smaller_or_not(ratios: tuple[float, float], expected: Any) -> None:
    by_method = dict(zip("ab", ratios, strict=True))
    assert run_time.clearly_less(by_method, "ratio").holds == expected


@pytest.mark.parametrize(
    ("printed", "expected"), [(0.5, "reproduced"), (2.0, "partial"), (9.0, "inconclusive")]
)
def test_an_iteration_is_timed_with_the_printed_inner_loop(printed: float, expected: str) -> None:
    """From hard starts, too: the loop that is cut off after 10 steps would be cheap in each case."""
    time = {(s, m): 0.1 for s in run_time.PANELS for m in run_time.TIMED}
    time |= {(s, "epo"): 1.0 for s in run_time.PANELS} | {(s, "epo_generic_lp"): 5.0 for s in run_time.PANELS}
    time["hard", "ferero_printed"] = printed
    jobs = {f"{s}_{m}_{r}": job() for s, m in time for r in range(3)}
    a = artifact(jobs, scale="laptop", name="table11")
    run_time.judge_times(a, time, dict.fromkeys(time, 10))
    assert verdicts(a)["per-iteration"] == expected


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ((1.0, 2.0, 2.7, 3.4), "reproduced"),
        ((1.0, 1.2, 1.33, 1.38), "partial"),  # the order alone
        ((1.0, 2.7, 2.0, 3.4), "partial"),  # the factors alone
        ((1.0, 1.38, 1.33, 1.2), "inconclusive"),  # times have no interval
    ],
)
def test_epochs_on_images_need_order_and_factors(epochs: tuple[float, ...], expected: str) -> None:
    names = ("ls", "ferero", "epo", "pmtl")
    label = images.PICTURES["mm"]
    meta = {"device": "a CPU"}
    jobs = {f"image_{m}_{r}": job(data=label, meta=meta) for m in names for r in range(3)}
    a = artifact(jobs, name="table11", data=[label])
    run_time.judge_epochs(a, dict(zip(names, epochs, strict=True)))
    assert verdicts(a) == {"image-epochs": expected}
    stand_in = artifact(jobs, name="table11", data=["other"])
    run_time.judge_epochs(stand_in, dict(zip(names, epochs, strict=True)))
    assert verdicts(stand_in) == {"image-epochs": "inconclusive"}


def hypervolumes(
    key: str, measure: str, ours: float, label: str | None = None, seeds: int = 5, lost: int = 0
) -> Artifact:
    """Table 2's claims of a row: FERERO's hypervolumes near `ours`, LS's and EPO's below, PMTL's near 3."""
    jobs = {f"{key}_{m}": job(data=label or images.PICTURES[key], seeds=seeds) for m in images.METHODS}
    paper: dict[str, Any] = {"data": list(images.PICTURES.values()), "seeds": {f"{key}_ferero": 5}}
    a = artifact(jobs, name="table2", overrides="scale=paper", **paper)
    jobs_of = {m: jobs[f"{key}_{m}"] for m in images.METHODS}
    panel = images.Panel(key, jobs_of, (None, None))  # type: ignore[arg-type]
    noise = np.linspace(-0.01, 0.01, seeds)
    found = {"ls": 0.1 + noise, "epo": 0.1 - noise, "pmtl": 3.0 + 2 * noise, "ferero": ours + noise}
    found["ferero"][:lost] = np.nan
    with images.pictures_of(a, key):
        judge_hypervolumes(a, panel, measure, found)
    return a


def test_hypervolumes_are_compared_on_every_row() -> None:
    assert verdicts(hypervolumes("fm", "loss", 3.82)) == {
        "fm-loss-value": "reproduced",
        "fm-loss-larger": "reproduced",
    }
    # PMTL counts on Multi-F+M as well, and accuracies are compared
    behind = hypervolumes("fm", "loss", 2.0)
    assert verdicts(behind) == {"fm-loss-value": "not reproduced", "fm-loss-larger": "partial"}
    assert "Not larger than: PMTL" in behind.claims[1].reason
    assert verdicts(hypervolumes("mm", "accuracy", 0.24)) == {
        "mm-accuracy-value": "reproduced",
        "mm-accuracy-larger": "partial",
    }


def test_a_seed_with_a_lost_run_has_no_hypervolume() -> None:
    """Two points of three cover less, and a hypervolume of 0 would count a lost seed as a bad one."""
    rows = pd.DataFrame({"seed": [0, 1] * 3, "ray_1": 0.5, "ray_2": np.repeat([0.2, 0.5, 0.8], 2)})
    rows = rows.assign(test_loss_1=0.5, test_loss_2=0.5, status="done")
    rows.loc[5, "status"] = "diverged"  # the last preference of seed 1
    ferero = SimpleNamespace(final=rows)
    panel = images.Panel("mm", {"ferero": ferero}, ())  # type: ignore[dict-item]
    np.testing.assert_allclose(volumes(panel, "ferero", "loss", np.ones(2)), [25.0, np.nan])
    assert np.isnan(volumes(panel, "ferero", "loss", np.full(2, np.nan))).all()
    for lost, expected in ((1, "reproduced"), (5, "inconclusive")):
        a = hypervolumes("fm", "loss", 3.82, lost=lost)
        assert set(verdicts(a).values()) == {expected}, a.claims
    assert a.claims[1].reason.startswith("Not measured")
    assert "Not larger" not in a.claims[1].reason


def test_a_fitted_reference_point_judges_no_value() -> None:
    for ours in (1.17, 9.0):
        a = hypervolumes("mf", "accuracy", ours)
        assert verdicts(a)["mf-accuracy-value"] == "inconclusive"
        assert a.claims[0].reason == FITTED


def test_a_data_set_is_judged_on_its_own_pictures_and_seeds() -> None:
    other = hypervolumes("mm", "loss", 1.97, label=images.PICTURES["mf"])
    assert set(verdicts(other).values()) == {"inconclusive"}
    assert other.paper.data == list(images.PICTURES.values())  # as before the block
    few = hypervolumes("mm", "loss", 1.97, seeds=3)
    assert verdicts(few)["mm-loss-value"] == "partial"
    assert few.claims[0].reason.startswith("3 of the paper's 5 seeds: 1.97 (95 % interval")


def test_an_artifact_says_which_pictures_are_the_papers() -> None:
    shifted = {key: f"{label}, shifted by up to 3 and 4 pixels" for key, label in images.PICTURES.items()}
    a = artifact({}, name="fig5", data=list(shifted.values()))
    for key, label in images.PICTURES.items():  # one label begins as another one does
        assert images.papers_pictures(a, key) == (shifted[key],)
        ran = job(data=shifted[key], meta={"embedded": False})
        corners = job(data=label, meta={"embedded": False})
        assert images.titled(a, key, ran) == images.SETS[key]
        assert images.titled(a, key, corners) == f"{images.SETS[key]} (other pictures)"
        with images.pictures_of(a, key):
            assert images.on_papers_pictures(a, key, ran)
            assert not images.on_papers_pictures(a, key, corners)
    a.scale = "laptop"
    assert (
        images.titled(a, "mm", job(data=shifted["mm"], meta={"embedded": False}))
        == "Multi-MNIST (smaller scale)"
    )


def test_images_are_drawn_from_the_jobs_that_ran(mobench: Run) -> None:
    """One method of a data set, or its single tasks alone: the others are drawn once their jobs have run."""
    only = "artifact.only=[mm_ferero,mf_single*]"
    claims: dict[str, set[str]] = {}
    for name in ("fig5", "table2", "table9"):
        result = mobench(f"+experiment=ferero/{name}", "scale=smoke", only, "logger=local")
        assert result.code == 0, result.err
        folder = result.root / "artifacts" / "ferero" / name
        judged = json.loads((folder / "claims.json").read_text())
        claims[name] = {claim["id"] for claim in judged if claim["id"] != "copied-row"}
    assert claims == {
        "fig5": {"mm-points", "mm-ordered", "mf-single-task"},
        "table2": {"mm-loss-value", "mm-accuracy-value"},
        "table9": set(),
    }


def test_points_of_lost_runs_are_not_the_published_ones() -> None:
    exact = {
        measure: images.quoted(f"Multi-MNIST {measure}", "FERERO")[:, None] for measure in images.MEASURES
    }
    assert images.at_published(exact, "Multi-MNIST").holds is True
    off = {**exact, "loss": exact["loss"] + 0.1}
    assert images.at_published(off, "Multi-MNIST").holds == "partial"
    lost = {
        measure: np.where(np.arange(3)[:, None, None] == 1, point, np.nan) for measure, point in exact.items()
    }
    assert images.at_published(lost, "Multi-MNIST").holds is False


@pytest.fixture(scope="module")
def networks() -> pd.DataFrame:
    """Losses of the authors' networks by position, as they come with the project."""
    return read_csv(witnesses.table(), comment="#")


def test_other_losses_would_tell_another_recipe(networks: pd.DataFrame) -> None:
    """The check can fail: if the networks were worse where item 1 is nearest to item 2."""
    same = networks.copy()
    same["loss"] += np.where(same["a"] == 4, 0.1, 0.0)
    assert not positions.fits(same, "mm", positions.CHOSEN).holds
    a = artifact({}, name="positions", scale="laptop")
    positions.judge_range(a, same)
    assert verdicts(a) == {"range": "check failed"}


def test_a_score_is_the_mean_over_positions(networks: pd.DataFrame) -> None:
    recipe = positions.Recipe(a=(1, 2), b=(5, 6))
    rows = networks[
        (networks["set"] == "fm")
        & (networks["join"] == "sum")
        & (networks["partner"] == "any")
        & networks["a"].isin([1, 2])
        & networks["b"].isin([5, 6])
    ]
    score = positions.score(networks, "fm", recipe)
    assert len(rows) == 4
    assert score.loss == pytest.approx(rows["loss"].mean())
    assert score.accuracy == pytest.approx(rows["accuracy"].mean())
    squares = rows["std"] ** 2 + rows["loss"] ** 2
    assert score.error == pytest.approx(np.sqrt((squares.mean() - rows["loss"].mean() ** 2) / 20_000))


def test_a_network_of_the_authors_is_read_layer_by_layer(tmp_path: Any) -> None:
    net = plain_loops.LeNet()
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    renamed = dict(
        zip([f"{n}.{k}" for n in witnesses.LAYERS for k in ("weight", "bias")], state.values(), strict=True)
    )
    np.savez(tmp_path / "mnist.npz", **renamed)
    theta = witnesses.network(tmp_path / "mnist.npz")
    pictures = 255 * torch.rand(5, 36, 36)
    logits = model("lenet", 2, 36).logits(theta, pictures, "loop")[0]
    with torch.no_grad():
        for task, expected in enumerate(net(pictures)):
            torch.testing.assert_close(logits[task], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(DataError, match=r"fashion\.npz is missing"):
        witnesses.network(tmp_path / "fashion.npz")


@pytest.mark.parametrize("far", [0.02, 0.04])
def test_curves_are_compared_from_epoch_ten_on(far: float) -> None:
    def ran(task: str) -> Any:
        curve = positions.their_curve("mm", task)
        losses = curve.to_numpy() + np.where(curve.index < 10, 1.0, np.where(curve.index == 60, -far, 0.0))
        history = pd.DataFrame({"step": 469 * curve.index.to_numpy(), "test_loss_1": losses})
        return job(history=history, data="overlapping pairs: MNIST, on the diagonal")

    jobs = {task: ran(task) for task in positions.TASKS}
    a = artifact(jobs, name="positions", data=["overlapping pairs: MNIST, on the diagonal"])
    positions.judge_curves(a, "mm", jobs)
    assert verdicts(a) == {"mm-curves": "check passed" if far < 0.03 else "check failed"}
    assert len(positions.their_curve("mm", "1").loc[10:]) == 46
    alone = artifact(jobs, name="positions", data=["overlapping pairs: MNIST, on the diagonal"])
    positions.judge_curves(alone, "mm", {"1": jobs["1"]})
    assert verdicts(alone) == {"mm-curves": "inconclusive"}


@pytest.mark.parametrize(("good", "expected"), [([1, 1], 1), ([0, 1], 2), ([0, 0], None), ([0, 0, 1], 3)])
def test_the_tries_of_the_public_script(good: list[int], expected: int | None) -> None:
    assert screen.tries(np.array(good, dtype=bool)) == expected


def test_runs_that_the_script_would_start_again_are_not_drawn() -> None:
    rows = (
        job(seeds=2)
        .final.iloc[2:]
        .assign(ray_2=np.repeat([0.3, 0.7, 0.9], 2), test_loss_1=0.5, test_loss_2=0.5)
    )
    ended = job(final=rows.assign(ended=[469, -1, -1, -1, 469, 469]))
    assert screen.passed(ended).tolist() == [[False, True], [True, True], [False, False]]
    assert np.isnan(screen.ends(ended)).any(2).tolist() == [[True, False], [False, False], [True, True]]
    assert screen.passed(job(final=rows)).all()


def test_a_run_that_the_script_would_start_again_has_the_end_of_its_next_try() -> None:
    sines = np.sin(np.radians(images.ANGLES))
    losses = {"test_loss_1": [0.3, 0.4, 0.5], "test_loss_2": [0.6, 0.7, 0.8]}
    rows = job(seeds=1).final.iloc[:3].assign(ray_2=sines, **losses)
    again = rows.iloc[:1].assign(ray_2=sines[:1], test_loss_1=0.1, test_loss_2=0.9, ended=-1)
    for ended, lost, expected in (
        ([5, -1, -1], [-1], [[0.1, 0.9], [0.4, 0.7], [0.5, 0.8]]),
        ([5, -1, -1], [7], [[np.nan] * 2, [0.4, 0.7], [0.5, 0.8]]),  # the next try is lost, too
        ([-1, -1, -1], [-1], [[0.3, 0.6], [0.4, 0.7], [0.5, 0.8]]),  # the first one counts
        ([-1, 5, -1], [-1], [[0.3, 0.6], [np.nan] * 2, [0.5, 0.8]]),  # of another ray
    ):
        jobs = {
            "mm_script": job(final=rows.assign(ended=ended)),
            "mm_again": job(final=again.assign(ended=lost)),
        }
        points = screen.first_passed(artifact(jobs, name="full_length"), "mm", "script", "loss")
        np.testing.assert_array_equal(points[:, 0], expected)
        alone = screen.first_passed(
            artifact({"mm_script": jobs["mm_script"]}, name="full_length"), "mm", "script", "loss"
        )
        assert np.isnan(alone[:, 0, 0]).tolist() == [step > 0 for step in ended]


@pytest.mark.parametrize(("row", "holds"), [(2, True), (0, False)])
def test_a_ray_that_was_run_alone_is_compared_with_the_point_of_the_other(row: int, holds: bool) -> None:
    ends = {measure: images.quoted(f"Multi-F+M {measure}", "FERERO")[row] for measure in images.MEASURES}
    columns = {f"test_{measure}_{m}": ends[measure][m - 1] for measure in ends for m in (1, 2)}
    final = job(seeds=1).final.iloc[:1].assign(ray_2=np.sin(np.radians(22.5)), **columns)
    at_the_other = final.assign(ray_2=np.sin(np.radians(67.5)))
    a = artifact({"fm_script": job(final=final), "fm_again": job(final=at_the_other)}, name="full_length")
    both = screen.first_passed(a, "fm", "script", "loss")
    np.testing.assert_array_equal(both[0], both[2])
    assert np.isnan(both[1]).all()
    a = artifact({"fm_script": job(final=final)}, name="full_length")
    points = {measure: screen.first_passed(a, "fm", "script", measure) for measure in images.MEASURES}
    assert screen.rays_of(a.jobs["fm_script"]) == [0]
    exchanged = {measure: values[::-1] for measure, values in points.items()}
    check = images.at_published(exchanged, "Multi-F+M", labels=images.RAY_LABELS[::-1], rays=[2])
    assert check.holds is holds
    assert "1 of 1" in check.measured  # the other two are not lost
    assert not images.at_published(exchanged, "Multi-F+M").holds


@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("fig5", "mm_single1"),
        ("fig6", "mm_ferero"),
        ("first_steps", "mm_public"),
        ("public_code", "mm_ferero"),
    ],
)
def test_too_few_jobs_for_a_panel_are_said(mobench: Run, name: str, only: str) -> None:
    result = mobench(f"+experiment=ferero/{name}", "scale=smoke", f"artifact.only=[{only}]", "logger=local")
    assert result.code == 0, result.err
    folder = result.root / "artifacts" / "ferero" / name
    assert images.NOTHING in json.loads((folder / "provenance.json").read_text())["notes"]
    assert json.loads((folder / "claims.json").read_text()) == []


def tuned(gap: list[float], cpc: float) -> Any:
    F = np.array([[cpc, 2.5 + g, 2.0] for g in gap])
    return SimpleNamespace(losses=lambda: F)


def test_digits_need_a_shorter_step_of_the_multipliers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/papers/ferero.md, "Why they diverge": the printed gamma overshoots, the public code's does not."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))

    def trained(**gamma: float) -> tuple[pd.Series, pd.DataFrame]:
        choices = {"protocol": "multi_mnist", "algorithm": "ferero_stochastic", "scale": "paper"}
        settings: dict[str, Any] = {"data": "digits", "seeds": [0], "steps": 10, "progress": False}
        settings |= {"logger": "local", "record": {"every": 1, "evaluate": False, "measures": False}}
        rows = mobench.run(**choices, **settings, **{f"algorithm.{key}": v for key, v in gamma.items()})
        assert mobench.load(rows).config["problem"]["model"] == "lenet"
        history = mobench.load(rows).history
        return rows["status"], history.loc[history["step"] == 2, ["weight_1", "weight_2"]]

    with pytest.warns(UserWarning, match="diverged"):
        status, weights = trained()
    assert (status == "diverged").any()
    assert (weights.min(axis=1) < 0).any()
    status, weights = trained(gamma=1e-5)
    assert (status == "done").all()
    assert (weights.min(axis=1) > 0).all()


def test_paths_of_lost_runs_are_not_drawn_and_are_no_ascent() -> None:
    """A lost run keeps its last iterate, whose losses may be anything."""
    history = pd.DataFrame({"run": [0, 1, 2] * 3, "seed": 0, "step": np.repeat([0, 10, 20], 3)})
    history["f_1"] = [3.0] * 3 + [1.0] * 3 + [0.5, 0.9, 1e29]
    history["f_2"] = [3.0] * 3 + [1.0] * 3 + [0.8, 0.7, 1e29]
    final = pd.DataFrame({"run": [0, 1, 2], "status": ["done", "done", "diverged"]})
    config = {"algorithm": {"warm_steps": 10}}
    path = fig6.losses(SimpleNamespace(history=history, final=final, config=config))  # type: ignore[arg-type]
    assert path.shape == (2, 3, 1, 2)
    assert np.isnan(path[:, 2]).all()
    np.testing.assert_array_equal(path[-1, :2, 0], [[0.5, 0.8], [0.9, 0.7]])
    assert history["f_1"].iloc[-1] == 1e29  # the rows of the job are as they were
    rises = fig6.asked_rises(path, np.zeros(2))
    np.testing.assert_array_equal(rises[:2], [0.0, 0.0])
    assert np.isnan(rises[2])
    assert fig6.largest(rises) == 0.0
    assert np.isnan(fig6.largest(np.array([np.nan, np.nan])))


def test_ascent_is_a_rise_on_the_way_that_the_line_asks_for() -> None:
    """The first loss rises and falls again, below its start: the ends alone would not show it."""
    path = np.full((3, 3, 1, 2), 1.0)
    path[:, :, 0, 0] = np.array([0.9, 0.5, 0.8])[:, None]
    np.testing.assert_allclose(
        fig6.asked_rises(path, np.zeros(2)), [0.3, 0.3, 0.0]
    )  # 67.5°: f_1 is too large
    back = path[::-1]
    np.testing.assert_allclose(fig6.asked_rises(back, np.zeros(2)), [0.4, 0.4, 0.0])
    path[2, :, 0, 0] = 0.4  # it falls at each point
    np.testing.assert_allclose(fig6.asked_rises(path, np.zeros(2)), 0.0)


def test_lines_and_rays_are_compared_where_both_runs_finished() -> None:
    """The outer rays, whose runs of Figure 5 were lost, are far from their lines."""
    label = images.PICTURES["mm"]
    jobs = {name: job(data=label, seeds=3) for name in ("mm_lines", "mm_ferero")}
    a = artifact(jobs, name="fig6", overrides="scale=paper", data=[label])
    to_line = np.array([[9.0, 9.0, 9.0], [1.0, 1.1, 0.9], [9.0, 9.0, 9.0]])
    to_ray = np.array([[np.nan] * 3, [2.0, 2.1, 1.8], [np.nan] * 3])
    fig6.judge_lines(a, "mm", to_line, to_ray, np.array([0.1, 0.0, 0.0]), 4)
    (reach,) = [claim for claim in a.claims if claim.id == "mm-reach"]
    assert reach.verdict == "reproduced"
    assert "compared at 45°" in reach.measured
    lines = fig6.table_lines("Multi-MNIST", to_line, to_ray, np.zeros(3))
    assert [str(line["runs"]) for line in lines] == ["3 of 6", "6 of 6", "3 of 6"]
    assert np.isnan(lines[0]["FERERO of Figure 5 to its ray"])


def test_a_constraint_that_does_not_hold_fails() -> None:
    """Nearer than linear scalarization is not on the constraint; an idle bound decides nothing."""

    def judged(ours: Any, embedded: bool = False) -> dict[str, str]:
        a = artifact({}, scale="laptop", name="table3")
        speech.judge_constraints(a, ours, tuned([0.6, 0.5], 1.0), embedded)
        return verdicts(a)

    near = {"gap-holds": "check failed", "gap-below-ls": "check passed"}
    idle = {"cpc-holds": "inconclusive", "cpc-below-ls": "inconclusive"}
    assert judged(tuned([0.2, 0.1], 1.0)) == near | idle
    assert (
        judged(tuned([0.005, -0.005], 1.0))
        == {"gap-holds": "check passed", "gap-below-ls": "check passed"} | idle
    )
    lost = {"gap-holds": "inconclusive", "gap-below-ls": "inconclusive"}
    assert judged(tuned([0.005, float("nan")], 1.0)) == lost | idle
    assert set(judged(tuned([0.2, 0.1], 1.0), embedded=True).values()) == {"inconclusive"}


def test_ascent_and_figure_4f_have_one_verdict() -> None:
    """The same runs with the same two departures: partial in both, whatever their number."""
    paths = np.zeros((40, 3, 2))
    paths[:, :, 0] = [0.5, 0.2, 0.6]
    good = job(paths=lambda: paths)
    bad = job(angle=12.0, paths=lambda: paths)
    for printed, expected in ((bad, "partial"), (good, "reproduced")):
        a = artifact(
            {"f": good, "f_literal": printed, "f_c_h": bad, "f_inner": bad, "f_exact": bad},
            scale="laptop",
            name="fig4",
        )
        fig4.judge_hard_ferero(a)
        assert verdicts(a)["f-ferero"] == expected
        names = ("pmtl", "pmtl_hard", "epo", "epo_hard", "ferero", "ferero_hard")
        table = artifact(
            dict.fromkeys(names, good) | {"pmtl_hard": bad, "ferero_hard_printed": printed},
            scale="laptop",
            name="table1",
        )
        for one in table.jobs.values():
            one.runs = properties.RunCount(40, 40)
        properties.table1(table)
        assert verdicts(table) == {
            "ascent-pmtl": "reproduced",
            "ascent-epo": "reproduced",
            "ascent-ferero": expected,
        }
        assert table.references == {"ferero/fig3": ["c-pmtl-inexact", "d-epo-exact", "e-ferero-exact"]}


def test_rates_of_merits() -> None:
    """A mean is a sum over its steps; its slope is the power, and one that is too flat does not hold."""
    terms = {"stationarity": 2.0, "slackness": 1.0, "violation": 4.0, "violation_square": 8.0}
    steps = [100, 400, 1600]
    total = {"1": 7.0, "2": 6.0, "3": 10.0, "4": 10.0}
    for theorem, value in total.items():
        rows = pd.DataFrame(
            [{"run": r, "seed": r, "step": T, **{f"sum_{k}": v * T**0.5 for k, v in terms.items()}}
             for r in (0, 1) for T in steps]
        )  # fmt: skip
        job: Any = SimpleNamespace(final=pd.DataFrame({"run": [0, 1], "status": "done"}), history=rows)
        table = rate.means(job, theorem)
        np.testing.assert_allclose(table.to_numpy(), value / np.sqrt(steps)[:, None] * [[1.0, 1.0]])
        assert rate.slopes(table).mean == pytest.approx(-0.5)
    for power, verdict in ((-1 / 6, "check passed"), (-0.14, "check failed")):
        a = Artifact("ferero/rate", "x", "laptop", {})
        flat = pd.DataFrame({s: [T ** (power + 1e-4 * s) for T in steps] for s in range(3)}, index=steps)
        rate.judge_slope(a, "batch", rate.slopes(flat), rate.STEEP["falling"], "slope")
        assert a.claims[0].verdict == verdict


def test_steps_of_the_rates_are_those_of_the_theorems() -> None:
    jobs = jobs_of("ferero/rate")
    for name, overrides in jobs.items():
        said = dict(o.split("=", 1) for o in overrides)
        if name.startswith(("falling", "batch")):
            T = int(said["steps"].removesuffix("}").split(",")[1])
            alpha = float(said["algorithm.step_size"])
            gamma = float(said["algorithm.gamma"])
            first, second = (5 * T ** (-5 / 6), 2 * T ** (-1 / 6)) if "falling" in name else (T**-0.5,) * 2
            assert (alpha, gamma) == pytest.approx((first, second), rel=1e-5)
        if name.startswith("batches"):
            assert int(said["oracle.batch_size"]) == 0.8 * T**0.5
