"""Pictures of runs on VLMOP2, which several papers draw: its front, rays, and the trajectories of one job."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from mobench.artifacts import style as st
from mobench.artifacts.rows import JobRows
from mobench.problems import VLMOP2

COLOURS = st.CYCLE[:4]  # of four preferences


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
    colours: list[str] | None = None,
    lines: bool = True,
    shifted: bool = False,
    seed: int | None = None,
) -> None:
    """Draws front, rays (or lines through the starts), the paths of one seed, and all end points faintly.

    Args:
        ax: the panel.
        job: the runs; columns `ray_1` and `ray_2` are their rays.
        title: of the panel.
        colours: one for each preference.
        lines: whether rays are drawn.
        shifted: rays start where the paths do and point the other way.
        seed: whose paths are drawn; the job's first one by default.
    """
    st.objective_axes(ax)
    st.draw_front(ax, front())
    rows = job.final
    paths = job.paths()
    chosen = int(rows["seed"].iloc[0]) if seed is None else seed
    first = rows[rows["output"] == rows["output"].iloc[0]].reset_index(drop=True)
    seeds = first["seed"].nunique()
    palette = colours or [st.BLUE] * (len(first) // seeds)
    own = (first["seed"] == chosen).to_numpy()
    for k in range(len(first) // seeds):
        rest = np.flatnonzero(~own & (first.index.to_numpy() // seeds == k))
        ax.plot(*paths[rest, -1].T, marker="o", ms=2.2, color=palette[k], alpha=0.35, ls="none", zorder=2.5)
    for r in np.flatnonzero(own):
        if lines:
            ray = first.loc[r, ["ray_1", "ray_2"]].to_numpy(dtype=float)
            st.draw_ray(ax, *((-ray, paths[r, 0]) if shifted else (ray,)))
        st.draw_path(ax, paths[r], color=palette[r // seeds])
    ax.set_title(title)
