"""Runs of FERERO's artifacts on the toy problem: who arrives, when, and how many have to.

One rule for all statements of the paper on the toy problem, written down before the judged runs (seeds 0 to
49, four preferences): "the method does so" means that at least SHARE of the runs do, "it does not" that at
least SHARE of them do not. The paper draws one run of each preference. A method that does what is said in
96 % of 200 independent runs passes with a probability above .999; one that does so in 94 % of the 100 runs of
the inner preferences, with .97. In a pilot of 100 other seeds (1000 to 1099) every statement that then counts
as reproduced held in 94 % of the runs or more. A run that did not finish counts as one that does not do what
is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mobench.artifacts import Artifact, JobRows, RunCount
from mobench.artifacts import style as st
from mobench.artifacts.checks import Check, Comparison, Judged, Share
from mobench.artifacts.statistics import percent
from mobench.core import Context, Free, Spec, TablePoint, Weighting
from mobench.core.preferences import angle_deg
from mobench.metrics import front_distance

from .trajectories import front, key_of_paths, trajectories

SHARE = 0.9  # of the runs
ALIGNED = 1.0  # degrees to the ray
ON_FRONT = 1e-3  # distance to the front
OUTER = (0, 3)  # preferences, by their number
INNER = (1, 2)  # preferences whose hard starts are on the other side of the front: yellow and green
VISIBLE = 0.01  # a hundredth of the axes: a departure from a line that a drawing shows
NEAR = "first within 1° and 1e-2"  # what `first_hit` finds


def first_output(job: JobRows) -> pd.DataFrame:
    """Returns one row per planned run, finished or not.

    It has `k`, the preference's number, and `polar`, the angle of (f_1, f_2) in degrees.
    """
    rows = job.final
    rows = rows[rows["output"] == rows["output"].iloc[0]].copy()
    rows["k"] = rows["run"] // rows["seed"].nunique()
    rows["polar"] = np.degrees(np.arctan2(rows["f_2"], rows["f_1"]))
    return rows


@dataclass(frozen=True)
class Condition:
    """An event of a run, in words and as a test of its final rows; runs that did not finish fail it."""

    words: str
    holds: Callable[[pd.DataFrame], pd.Series]

    def of(self, job: JobRows, preferences: Sequence[int] | None = None) -> np.ndarray:
        """Returns which of the planned runs do it (R,), of some preferences or of all."""
        rows = first_output(job)
        if preferences is not None:
            rows = rows[rows["k"].isin(preferences)]
        return (self.holds(rows) & (rows["status"] == "done")).to_numpy()

    def share(self, job: JobRows, preferences: Sequence[int] | None = None) -> float:
        """Returns the share of the planned runs that do it; 0 of none."""
        holds = self.of(job, preferences)
        return float(holds.mean()) if len(holds) else 0.0

    def most(self, job: JobRows, preferences: Sequence[int] | None = None, what: str = "runs") -> Comparison:
        return Share(self.of(job, preferences), SHARE, that=self.words, what=what)

    def most_of_each(self, jobs: Mapping[str, JobRows], partial: bool = False) -> Comparison:
        holds = {name: self.of(job) for name, job in jobs.items()}
        return Share(holds, SHARE, that=self.words, partial=partial)

    def both_sides(self, job: JobRows, what: str = "runs") -> Comparison:
        """Asks it of SHARE of the outer and of the inner preferences' runs, which hard starts tell apart."""
        holds = {"outer": self.of(job, OUTER), "inner": self.of(job, INNER)}
        return Share(holds, SHARE, that=self.words, what=what)


def arrived(angle: float = ALIGNED, distance: float = ON_FRONT) -> Condition:
    """Condition: within `angle` degrees of the ray and `distance` of the front."""
    return Condition(
        f"within {angle:g}° of the ray and {distance:g} of the front",
        lambda rows: (rows["angle_deg"] < angle) & (rows["front_distance"] < distance),
    )


def on_front(distance: float = ON_FRONT) -> Condition:
    return Condition(f"within {distance:g} of the front", lambda rows: rows["front_distance"] < distance)


def off_ray() -> Condition:
    return Condition(f"{ALIGNED:g}° or more off the ray", lambda rows: rows["angle_deg"] >= ALIGNED)


def arrives(job: JobRows, angle: float = ALIGNED) -> Check:
    """Asks that SHARE of the runs arrive, and adds how near all of them end."""
    return arrived(angle).most(job).also(spread(job))


def all_finish(job: JobRows, what: str = "runs") -> Check:
    """Asks that every run finishes; says how the others ended."""
    ended = RunCount.of(first_output(job))
    how = statuses(job)
    said = f"{ended} {what} finish" + (f" ({how})" if how else "")
    return Judged(ended.finished == ended.planned, said, f"all {what} finish")


def spread(job: JobRows) -> str:
    """Says the median and largest angle and distance of the finished runs."""
    rows = first_output(job)
    rows = rows[rows["status"] == "done"]
    return (
        f"median {rows['angle_deg'].median():.2g}° and {rows['front_distance'].median():.1g}, "
        f"largest {rows['angle_deg'].max():.3g}° and {rows['front_distance'].max():.2g}"
    )


def statuses(job: JobRows) -> str:
    """Says how many runs ended how, other than finished (nothing if all did).

    It also says which failed programs are proved to have no solution.
    """
    count = first_output(job)["status"].value_counts()
    words = [f"{n} {str(name).replace('_', ' ')}" for name, n in count.items() if name != "done"]
    if proved := sum(bool(run.get("no_solution")) for run in job.meta.get("unsolved", [])):
        words.append(f"{proved} of the programs are proved to have no solution")
    return ", ".join(words)


def first_hit(job: JobRows, angle: float = ALIGNED, distance: float = 1e-2) -> np.ndarray:
    """Returns when each run first is within `angle` degrees of its ray and `distance` of the front (R,).

    That is an iteration; -1: never.
    """
    paths = torch.from_numpy(job.paths())
    R, T, M = paths.shape
    weights = torch.from_numpy(job.weights).unsqueeze(1).expand(R, T, M)
    near = angle_deg(paths, weights) < angle
    dense = torch.from_numpy(np.array(front()))
    near[near.clone()] = front_distance(paths[near], dense) < distance
    hit = near.to(torch.int64).argmax(1)
    return np.where(near.any(1).numpy(), hit.numpy(), -1)


def median_hit(hits: np.ndarray) -> float:
    """Returns the median iteration of the runs that arrive; NaN of none."""
    hits = hits[hits >= 0]
    return float(np.median(hits)) if len(hits) else float("nan")


def before(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Returns which runs arrive, and earlier than the other method from the same start (-1: never)."""
    return (ours >= 0) & ((ours < theirs) | (theirs < 0))


def rises(job: JobRows, preferences: Sequence[int] = INNER) -> np.ndarray:
    """Returns the largest rise of an objective between two points of time on each path (R,)."""
    rows = first_output(job)
    paths = job.paths()
    chosen = rows["run"][rows["k"].isin(preferences)]
    largest_later = np.maximum.accumulate(paths[chosen][:, ::-1], axis=1)[:, ::-1]  # a run of NaN has none
    return (largest_later - paths[chosen]).max((1, 2))


def on_the_way(job: JobRows) -> pd.DataFrame:
    """Returns |H| along each run's path: its mean, its largest and its last value, by run."""
    H = job.history.groupby("run")["equality_violation"]
    return pd.DataFrame({"mean": H.mean(), "max": H.max(), "last": H.last()})


def context(F: Tensor, w: Tensor, P: int = 1) -> Context:
    """Returns an algorithm's context before its first step at objective values F (R, M)."""
    R, M = F.shape
    spec = Spec(R=R, M=M, N=0, P=P, X=Free())
    theta = torch.zeros(R, P, dtype=F.dtype)
    return Context(spec=spec, prefs=w, all_prefs=w[:1], theta=theta, exact=lambda _: F, steps=1)


def direction(method: Weighting, F: Tensor, J: Tensor, w: Tensor) -> Tensor:
    """Returns the method's first direction (R, P) at objective values F (R, M) and rows J (R, M, P)."""
    ctx = context(F, w, J.shape[-1])
    point = TablePoint(ctx.theta, Free(), F.shape[1], {}, F, J)
    return method.step((point,), method.init(ctx), 0, 1.0)[0]


def draw_paths(a: Artifact, titles: Mapping[str, str], /, **options: Mapping[str, Any]) -> None:
    """Draws rows of three panels with the trajectories of these jobs.

    `options` has the options of `trajectories` for some of the jobs.
    """
    rows = len(titles) // 3
    fig, axes = st.panels(rows, 3, figsize=(7.0, 2.3 * rows + 0.5), sharex=True, sharey=True)
    for ax, (key, title) in zip(axes.flat, titles.items(), strict=True):
        trajectories(ax, a.jobs[key], title, **options.get(key, {}))
    for ax in axes.flat:
        ax.label_outer()
    public = "published" if any("published" in of_job for of_job in options.values()) else ""
    rays = first_output(next(a.jobs[key] for key in titles))[["ray_1", "ray_2"]].drop_duplicates()
    key_of_paths(fig, np.degrees(np.arctan2(rays["ray_2"], rays["ray_1"])).tolist(), published=public)
    a.figure(fig)


def end_points(a: Artifact, series: Mapping[str, str]) -> None:
    """Gives the artifact its table: where the runs of each job end. `series`: what each job is."""
    lines = [end_point(name, words, a.jobs[name]) for name, words in series.items()]
    columns = list(dict.fromkeys(key for line in lines for key in line if key != "runs"))
    frame = pd.DataFrame(lines)[[*columns, "runs"]]
    a.table(frame, given=("series", "what", "iterations"), float_format="%.3g")


def end_point(name: str, words: str, job: JobRows) -> dict[str, Any]:
    rows = first_output(job)
    good = rows[rows["status"] == "done"]
    line: dict[str, Any] = {"series": name, "what": words, "iterations": int(job.config["steps"])}
    if job.config["algorithm"].get("line") != "shifted":  # the angle is that to a ray through 0
        line["within 1° and 1e-3"] = percent(arrived().share(job))
        line["angle, median"] = good["angle_deg"].median()
        line["angle, largest"] = good["angle_deg"].max()
        line[f"{NEAR}, median"] = median_hit(first_hit(job))
    line["distance, median"] = good["front_distance"].median()
    line["distance, largest"] = good["front_distance"].max()
    if "equality_violation" in job.history:
        line["|H| on the path, largest"] = float(on_the_way(job)["max"].max())
    return {**line, "runs": RunCount.of(rows)}
