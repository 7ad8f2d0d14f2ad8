"""What the figures of both papers on VLMOP2 share: reading end points, the front,
one panel of trajectories.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import JobRows
from mobench.artifacts import style as st
from mobench.problems import VLMOP2

PUBLISHED = Path(__file__).parent / "published"
PREFERENCE_COLOURS = [st.BLUE, st.ORANGE, st.GREEN, st.RED]


@functools.cache
def published(name: str) -> pd.DataFrame:
    """A table of published numbers: artifact, row, column, metric, value, std, unit, note.

    Shared: do not write into it.
    """
    return pd.read_csv(PUBLISHED / f"{name}.csv", dtype=str, keep_default_na=False)


def front(n: int = 20) -> np.ndarray:
    """A dense sample of the toy front (it does not depend on n)."""
    points = VLMOP2(n=n).front(2001)
    assert points is not None
    return points.numpy()


def finite_mean(values: np.ndarray, axis: int | tuple[int, ...] | None = None) -> Any:
    """Mean of what is finite; NaN of nothing, without a warning."""
    good = np.isfinite(values)
    count = good.sum(axis)
    return np.where(count > 0, np.where(good, values, 0.0).sum(axis) / np.maximum(count, 1), np.nan)[()]


def ends(job: JobRows, output: str | None = None) -> pd.DataFrame:
    """Finished rows with `k`, the preference's number, and `polar`, the angle of (f_1, f_2) in degrees."""
    rows = job.final
    rows = rows[rows["output"] == (output or rows["output"].iloc[0])].copy()
    rows["k"] = rows["run"] // rows["seed"].nunique()
    rows["polar"] = np.degrees(np.arctan2(rows["f_2"], rows["f_1"]))
    return rows[rows["status"] == "done"]


def within(rows: pd.DataFrame, angle: float, distance: float) -> bool:
    """Whether every run ends within `angle` degrees of its ray and `distance` of the front;
    no run is no evidence.
    """
    return len(rows) > 0 and bool(((rows["angle_deg"] < angle) & (rows["front_distance"] < distance)).all())


def worst(rows: pd.DataFrame) -> str:
    """The largest angle and distance, in words."""
    return (
        f"largest angle {rows['angle_deg'].max():.3g}°, largest distance {rows['front_distance'].max():.2g}"
    )


def rays(job: JobRows) -> np.ndarray:
    """The distinct preference rays, in the order of the preferences."""
    rows = job.final[["ray_1", "ray_2"]].to_numpy()
    return rows[np.sort(np.unique(rows.round(12), axis=0, return_index=True)[1])]


def trajectories(
    ax: Any,
    job: JobRows,
    title: str,
    *,
    colours: list[str] | None = None,
    lines: bool = True,
    shifted: bool = False,
    seed: int | None = None,
) -> None:
    """One panel: front, rays (or lines through the starts), the paths of one seed, all end points faintly."""
    st.objective_axes(ax)
    st.draw_front(ax, front())
    rows = job.final
    paths = job.paths()
    chosen = int(rows["seed"].iloc[0]) if seed is None else seed
    first = rows[rows["output"] == rows["output"].iloc[0]].reset_index(drop=True)
    seeds = first["seed"].nunique()
    others = (first["seed"] != chosen).to_numpy()
    for k in range(len(first) // seeds):
        rest = np.flatnonzero(others & (first.index.to_numpy() // seeds == k))
        ax.plot(
            *paths[rest, -1].T,
            marker="o",
            ms=2.2,
            color=(colours or [st.BLUE] * 99)[k],
            alpha=0.35,
            ls="none",
            zorder=2.5,
        )
    for r in np.flatnonzero(~others):
        colour = (colours or [st.BLUE] * 99)[r // seeds]
        if lines:
            v = first.loc[r, ["ray_1", "ray_2"]].to_numpy(dtype=float)
            if shifted:
                st.draw_ray(ax, -v, paths[r, 0])
            else:
                st.draw_ray(ax, v)
        st.draw_path(ax, paths[r], color=colour)
    ax.set_title(title)
