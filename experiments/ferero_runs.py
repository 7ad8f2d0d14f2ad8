"""How FERERO's artifacts on the toy problem read their runs: who arrives, when, and how many have to.

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
from typing import Any

import numpy as np
import pandas as pd
import torch

from mobench.artifacts import Artifact, JobRows, RunCount
from mobench.artifacts.vlmop2 import front
from mobench.core.preferences import angle_deg
from mobench.metrics import front_distance

SHARE = 0.9  # of the runs
ALIGNED = 1.0  # degrees to the ray
ON_FRONT = 1e-3  # distance to the front
HARD = (1, 2)  # preferences whose hard starts are on the other side of the front: yellow and green
VISIBLE = 0.01  # a hundredth of the axes: a departure from a line that a drawing shows


def first_output(job: JobRows) -> pd.DataFrame:
    """One row per planned run, finished or not, with `k`, the preference's number, and `polar`,
    the angle of (f_1, f_2).
    """
    rows = job.final
    rows = rows[rows["output"] == rows["output"].iloc[0]].copy()
    rows["k"] = rows["run"] // rows["seed"].nunique()
    rows["polar"] = np.degrees(np.arctan2(rows["f_2"], rows["f_1"]))
    return rows


def share(
    job: JobRows, holds: Callable[[pd.DataFrame], pd.Series], preferences: Sequence[int] | None = None
) -> float:
    """Share of the planned runs (of some preferences) of which a condition on their final rows holds;
    0 of none.
    """
    rows = first_output(job)
    if preferences is not None:
        rows = rows[rows["k"].isin(preferences)]
    good = holds(rows) & (rows["status"] == "done")
    return float(good.mean()) if len(rows) else 0.0


def arrived(angle: float = ALIGNED, distance: float = ON_FRONT) -> Callable[[pd.DataFrame], pd.Series]:
    """Condition: within `angle` degrees of the ray and `distance` of the front."""
    return lambda rows: (rows["angle_deg"] < angle) & (rows["front_distance"] < distance)


def on_front(distance: float = ON_FRONT) -> Callable[[pd.DataFrame], pd.Series]:
    """Condition: within `distance` of the front."""
    return lambda rows: rows["front_distance"] < distance


def off_ray(angle: float = ALIGNED) -> Callable[[pd.DataFrame], pd.Series]:
    """Condition: at least `angle` degrees off the ray."""
    return lambda rows: rows["angle_deg"] >= angle


def split(job: JobRows, holds: Callable[[pd.DataFrame], pd.Series]) -> tuple[float, float]:
    """Shares of the outer and of the inner preferences' runs (outer first), which hard starts tell apart."""
    return share(job, holds, (0, 3)), share(job, holds, HARD)


def percent(value: float) -> str:
    """97 % and the like; a share that is not all is never rounded to 100 %,
    nor one that is something to 0 %.
    """
    shown = f"{100 * value:.0f}"
    if (shown == "100" and value < 1) or (shown == "0" and value > 0):
        shown = f"{100 * value:.1f}"
    return f"{shown} %"


def spread(job: JobRows) -> str:
    """Median and largest angle and distance of the finished runs, in words."""
    rows = first_output(job)
    rows = rows[rows["status"] == "done"]
    return (
        f"median {rows['angle_deg'].median():.2g}° and {rows['front_distance'].median():.1g}, "
        f"largest {rows['angle_deg'].max():.3g}° and {rows['front_distance'].max():.2g}"
    )


def outcome(job: JobRows, angle: float = ALIGNED, distance: float = ON_FRONT) -> str:
    """Share of the runs that arrive, with the spread."""
    count = len(first_output(job))
    return f"{percent(share(job, arrived(angle, distance)))} of {count} runs ({spread(job)})"


def first_hit(job: JobRows, angle: float = ALIGNED, distance: float = 1e-2) -> np.ndarray:
    """Iteration at which each run first is within `angle` degrees of its ray and `distance` of the front;
    -1: never.
    """
    paths = torch.from_numpy(job.paths())
    R, T, M = paths.shape
    weights = torch.from_numpy(job.weights).unsqueeze(1).expand(R, T, M)
    near = angle_deg(paths, weights) < angle
    dense = torch.from_numpy(np.array(front()))
    near[near.clone()] = front_distance(paths[near], dense) < distance
    hit = near.to(torch.int64).argmax(1)
    return np.where(near.any(1).numpy(), hit.numpy(), -1)


def before(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Share of the runs that arrive, and earlier than the other method from the same start (-1: never)."""
    return float(np.mean((ours >= 0) & ((ours < theirs) | (theirs < 0))))


def statuses(job: JobRows) -> str:
    """How many runs ended how, other than finished (nothing if all did);
    which failed programs are proved to have no solution.
    """
    count = first_output(job)["status"].value_counts()
    words = [f"{n} {str(name).replace('_', ' ')}" for name, n in count.items() if name != "done"]
    if proved := sum(bool(run.get("no_solution")) for run in job.meta.get("unsolved", [])):
        words.append(f"{proved} of the programs are proved to have no solution")
    return ", ".join(words)


def rises(job: JobRows, preferences: Sequence[int] = HARD) -> np.ndarray:
    """Largest rise of an objective between two points of time on each path of these preferences."""
    rows = first_output(job)
    paths = job.paths()
    chosen = rows["run"][rows["k"].isin(preferences)]
    largest_later = np.maximum.accumulate(paths[chosen][:, ::-1], axis=1)[:, ::-1]  # a run of NaN has none
    return (largest_later - paths[chosen]).max((1, 2))


def on_the_way(job: JobRows) -> pd.DataFrame:
    """|H| along each run's path: its mean, its largest and its last value, by run."""
    H = job.history.groupby("run")["equality_violation"]
    return pd.DataFrame({"mean": H.mean(), "max": H.max(), "last": H.last()})


def end_points(a: Artifact, series: Mapping[str, str]) -> None:
    """The artifact's table: where the runs of each job end. `series`: what each job is."""
    entries: list[dict[str, Any]] = []
    for name, words in series.items():
        job = a.jobs[name]
        rows = first_output(job)
        good = rows[rows["status"] == "done"]
        entry: dict[str, Any] = {"series": name, "what": words, "iterations": int(job.config["steps"])}
        if job.config["algorithm"].get("line") != "shifted":  # the angle is that to a ray through 0
            hits = first_hit(job)
            arrivals = hits[hits >= 0]
            entry["within 1° and 1e-3"] = percent(share(job, arrived()))
            entry["angle, median"] = good["angle_deg"].median()
            entry["angle, largest"] = good["angle_deg"].max()
            entry["first within 1° and 1e-2, median"] = (
                float(np.median(arrivals)) if len(arrivals) else np.nan
            )
        entry["distance, median"] = good["front_distance"].median()
        entry["distance, largest"] = good["front_distance"].max()
        if "equality_violation" in job.history:
            entry["|H| on the path, largest"] = float(on_the_way(job)["max"].max())
        entries.append({**entry, "runs": RunCount.of(rows)})
    columns = list(dict.fromkeys(key for entry in entries for key in entry if key != "runs"))
    a.table(
        pd.DataFrame(entries)[[*columns, "runs"]], given=("series", "what", "iterations"), float_format="%.3g"
    )
