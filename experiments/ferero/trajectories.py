"""Pictures of runs on VLMOP2: its front, rays, and the trajectories of one job."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from mobench.artifacts import style as st
from mobench.artifacts.rows import JobRows
from mobench.problems import VLMOP2

COLOURS = [st.preference(degrees) for degrees in (81.0, 57.0, 33.0, 9.0)]  # of four rays, FERERO's order


@functools.cache
def front(n: int = 20) -> np.ndarray:
    """Returns a dense sample of the front, (2001, 2); it does not depend on n.

    Shared: do not write into it.
    """
    points = VLMOP2(n=n).front(2001)
    assert points is not None
    return points.numpy()


def trajectories(
    ax: Any,
    job: JobRows,
    title: str,
    *,
    lines: bool = True,
    shifted: bool = False,
    seed: int | None = None,
    published: np.ndarray | None = None,
) -> None:
    """Draws front, rays (or lines through the starts), the paths of one seed, and all end points faintly.

    Colours are those of the preferences; `key_of_paths` is the legend.

    Args:
        ax: the panel.
        job: the runs; columns `ray_1` and `ray_2` are their rays.
        title: of the panel.
        lines: whether rays are drawn.
        shifted: rays start where the paths do and point the other way.
        seed: whose paths are drawn; the job's first one by default.
        published: published end points (preferences, 2), drawn as hollow diamonds.
    """
    st.objective_axes(ax)
    st.draw_front(ax, front())
    rows = job.final
    paths = job.paths()
    chosen = int(rows["seed"].iloc[0]) if seed is None else seed
    first = rows[rows["output"] == rows["output"].iloc[0]].reset_index(drop=True)
    seeds = first["seed"].nunique()
    angles = np.degrees(np.arctan2(first["ray_2"], first["ray_1"])).to_numpy(dtype=float)[::seeds]
    palette = [st.preference(degrees) for degrees in angles]
    drawn = (first["seed"] == chosen).to_numpy()
    for k in range(len(first) // seeds):
        rest = np.flatnonzero(~drawn & (first.index.to_numpy() // seeds == k))
        ax.plot(*paths[rest, -1].T, marker="o", ms=2.2, color=palette[k], alpha=0.35, ls="none", zorder=2.5)
    for r in np.flatnonzero(drawn):
        if lines:
            ray = first.loc[r, ["ray_1", "ray_2"]].to_numpy(dtype=float)
            st.draw_ray(ax, *((-ray, paths[r, 0]) if shifted else (ray,)))
        draw_path(ax, paths[r], color=palette[r // seeds])
    for point, colour in zip([] if published is None else published, palette, strict=False):
        ax.plot(*point, "D", ms=7.5, mfc="none", mec=colour, mew=1.1, zorder=6)
    ax.set_title(title)


def draw_path(ax: Any, path: np.ndarray, color: str = st.BLUE, **kw: Any) -> None:
    """Draws a trajectory in objective space, an empty square at its start and a full circle at its end."""
    ax.plot(path[:, 0], path[:, 1], color=color, lw=0.9, alpha=0.8, zorder=3, **kw)
    ax.plot(*path[0, :2], marker="s", ms=3.4, color="white", mec="#333333", mew=0.7, zorder=4, ls="none")
    ax.plot(*path[-1, :2], marker="o", ms=4.6, color=color, mec="white", mew=0.4, zorder=5, ls="none")


def key_of_paths(fig: Any, angles: Sequence[float], others: bool = True, published: str = "") -> None:
    """Gives a figure of trajectories its legend: the marks, and the colour of each ray.

    published: label of the hollow diamonds; empty where there are none.
    """
    ax = fig.axes[0]
    grey: dict[str, Any] = {"color": st.GREY, "ls": "none"}
    plain = {"color": st.GREY, "ls": (0, (4, 3)), "lw": 0.9}
    marks = [
        ax.plot([], [], "s", color="white", mec="#333333", mew=0.7, ms=3.4, label="start")[0],
        ax.plot([], [], marker="o", ms=4.6, label="end", **grey)[0],
        *([ax.plot([], [], marker="o", ms=2.2, alpha=0.5, label="ends, other seeds", **grey)[0]] * others),
        ax.plot([], [], color=st.BLACK, lw=1.6, label="Pareto front")[0],
        ax.plot([], [], label="ray or line", **plain)[0],
    ]
    if published:
        hollow = {"mfc": "none", "mec": st.GREY, "mew": 1.1, "ls": "none"}
        marks += ax.plot([], [], "D", ms=6.5, label=published, **hollow)
    marks += [ax.plot([], [], color=st.preference(v), lw=2.0, label=f"{v:.3g}°")[0] for v in angles]
    fig.legend(handles=marks, loc="outside lower center", ncols=min(9, len(marks)), columnspacing=1.2)
