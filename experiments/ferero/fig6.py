"""Figure 6: training losses along shifted rays, from near the front."""

from __future__ import annotations

from typing import Any

import numpy as np

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Above, Below, Check, Graded, SurelyAbove
from mobench.artifacts.panels import legend_below
from mobench.artifacts.rows import need_points
from mobench.artifacts.statistics import Mean, finite_mean

from .images import ANGLES, COLOURS, NOTHING, SETS, STEP_SIZE_NOTE, by_ray, draw_rays, pictures_of, titled
from .runs import VISIBLE


@artifact("ferero/fig6")
def fig6(a: Artifact) -> None:
    """Training losses along three shifted rays, from a warm start near the front."""
    keys = [key for key in SETS if f"{key}_lines" in a.jobs]
    if not keys:
        a.note(NOTHING)
        return
    fig, axes = st.panels(1, len(keys), size=2.6 if len(keys) > 1 else 4.4)  # the legend needs its width
    lines = []
    for ax, key in zip(axes[0], keys, strict=True):
        job = a.jobs[f"{key}_lines"]
        plain = a.jobs.get(f"{key}_ferero")
        path = losses(job)
        need_points(len(path), 2, "the path from the warm start")
        end = path[-1]
        draw_lines(ax, path, through(job))
        ax.set_title(titled(a, key, job) + ("\nstopped before convergence" if moving(path) else ""))
        to_line = to_lines(end, through(job))
        to_ray = None if plain is None else to_lines(by_ray(plain, "f_1", "f_2"), np.zeros(2))
        rises = asked_rises(path, through(job))
        lines += table_lines(titled(a, key, job), to_line, to_ray, rises)
        with pictures_of(a, key):
            judge_lines(a, key, to_line, to_ray, rises, len(path))
    legend_below(fig, axes[0, 0])
    a.figure(fig)
    a.table(lines, given=("data set", "preference"))
    a.note(
        "No settings of Figure 6 are printed. Ours: uniform descent first, then Algorithm 3 with the cone of "
        "Figure 4 along the rays through 0.9 times the single-task test losses, at the paper's scale with "
        "gamma = 1e-3. The runs of Figure 5 have A = I, and there gamma = 1e-4. Training losses, mean over "
        "seeds."
    )
    a.note(STEP_SIZE_NOTE)


def losses(job: JobRows) -> np.ndarray:
    """Returns the recorded losses from the warm start on (steps, preferences, seeds, 2).

    They are NaN where a run was lost.
    """
    rows = job.history.sort_values(["step", "run"])
    done = job.final.set_index("run")["status"] == "done"
    rows[["f_1", "f_2"]] = rows[["f_1", "f_2"]].where(rows["run"].map(done), np.nan)
    recorded = np.unique(rows["step"])
    warm = recorded[np.abs(recorded - int(job.config["algorithm"]["warm_steps"])).argmin()]
    rows = rows[rows["step"] >= warm]
    return rows[["f_1", "f_2"]].to_numpy().reshape(-1, len(ANGLES), rows["seed"].nunique(), 2)


def moving(path: np.ndarray) -> bool:
    """Says whether the mean paths still move: more than a tenth of the way in the last recorded interval."""
    mean = finite_mean(path, 2)
    legs = np.linalg.norm(np.diff(mean, axis=0), axis=-1)
    return bool((legs[-1] > 0.1 * legs.sum(0)).any())


def through(job: JobRows) -> np.ndarray:
    return np.array(job.config["algorithm"]["line_through"], dtype=float)


def off_lines(F: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Returns how far points (.., preferences, seeds, 2) are off the lines along the three rays.

    It is negative where the first loss is too small for its line, or the second too large.
    """
    v = np.stack([np.cos(np.radians(ANGLES)), np.sin(np.radians(ANGLES))], 1)[:, None]
    gap = F - point
    return np.asarray(gap[..., 0] * v[..., 1] - gap[..., 1] * v[..., 0])


def to_lines(F: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Returns the distance of points (preferences, seeds, 2) to the lines along the three rays."""
    return np.abs(off_lines(F, point))


def asked_rises(path: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Returns by preference the largest later rise, on the mean path, of a loss that its line asks to rise.

    It is 0 if no such loss is larger at a later recorded point, and NaN if all runs were lost.
    """
    mean = finite_mean(path, 2)
    off = off_lines(mean[:, :, None], point)
    later = np.maximum.accumulate(mean[::-1])[::-1]
    rises = (later - mean) * np.concatenate([off < 0, off > 0], axis=-1)
    return np.asarray(rises.max((0, 2)))


def draw_lines(ax: Any, path: np.ndarray, point: np.ndarray) -> None:
    """Draws the mean path, every seed's end and their mean for each preference, and the lines."""
    for k, (degrees, colour) in enumerate(zip(ANGLES, COLOURS, strict=True)):
        ax.plot(*finite_mean(path[:, k], 1).T, "-", color=colour, lw=0.9, marker=".", ms=4)
        end = path[-1, k]
        style = {"ls": "", "marker": "X", "color": colour}
        ax.plot(*end.T, ms=4, alpha=0.5, **style)
        ax.plot(*finite_mean(end, 0), ms=8, mec="k", mew=0.5, label=f"end, ray {degrees:g}° (mean)", **style)
    ax.plot(*finite_mean(path[0], (0, 1)), "o", color=st.BLACK, ms=6, label="warm start (mean)")
    ax.plot(*point, "+", color=st.BLACK, ms=8, label="point of the lines")
    ax.plot([], [], ls="", marker="X", ms=4, alpha=0.5, color=st.GREY, label="end of one seed")
    draw_rays(ax, point)
    ax.plot([], [], ls=":", color=st.GREY, label="line, in the ray's colour")
    ax.plot([], [], "-", color=st.GREY, lw=0.9, marker=".", ms=4, label="path (mean), recorded steps")
    ax.set_xlabel("training loss, task 1")
    ax.set_ylabel("training loss, task 2")


def table_lines(
    title: str, to_line: np.ndarray, to_ray: np.ndarray | None, rises: np.ndarray
) -> list[dict[str, Any]]:
    """Returns a line for each ray: means over the seeds whose runs finished."""
    lines = []
    for k, degrees in enumerate(ANGLES):
        distances = to_line[k] if to_ray is None else np.concatenate([to_line[k], to_ray[k]])
        lines.append(
            {
                "data set": title,
                "preference": f"{degrees:g}°",
                "distance to the line": finite_mean(to_line[k]),
                "FERERO of Figure 5 to its ray": np.nan if to_ray is None else finite_mean(to_ray[k]),
                "largest rise of a loss that the line asks to rise": rises[k],
                "runs": RunCount(int(np.isfinite(distances).sum()), distances.size),
            }
        )
    return lines


def largest(rises: np.ndarray) -> float:
    return float(np.nanmax(rises)) if np.isfinite(rises).any() else float("nan")


def at(finished: np.ndarray) -> str:
    """Names the rays on which a run of either kind finished (preferences, seeds)."""
    rays = [f"{degrees:g}°" for degrees, on_ray in zip(ANGLES, finished, strict=True) if on_ray.any()]
    return ", ".join(rays) or "no ray"


def judge_lines(
    a: Artifact, key: str, to_line: np.ndarray, to_ray: np.ndarray | None, rises: np.ndarray, points: int
) -> None:
    """FERERO is nearer to the lines than to the rays of Figure 5, and an objective rises on the way.

    Args:
        a: the artifact.
        key: the data set.
        to_line: distances (preferences, seeds); NaN where a run was lost.
        to_ray: distances of the runs of Figure 5 to their rays; None if these runs were left out.
        rises: largest rise by preference of a mean loss that its line asks to rise.
        points: recorded points of each path.
    """
    of = "largest later rise of a mean training loss that its line asks to rise"
    each = ", ".join(f"{rise:+.4f}" for rise in rises)
    risen = Above(largest(rises), VISIBLE, of=of, digits="+.4f")
    risen = risen.also(f"by preference {each}; {points} recorded points of each path")
    a.claim("{key}-ascent", risen, key=key, name=SETS[key], rests_on=(f"{key}_lines",))
    if to_ray is None:
        return
    both = np.isfinite(to_line) & np.isfinite(to_ray)  # rays differ, so the same ones are compared
    line, ray = (np.asarray(finite_mean(np.where(both, x, np.nan), 0)) for x in (to_line, to_ray))
    nearer: Check = Below(
        float(finite_mean(line)),
        float(finite_mean(ray)),
        of="mean distance to the lines",
        than="of Figure 5's runs to their rays",
        digits=".3f",
    )
    if not both.any(1).all():
        nearer = nearer.also(f"compared at {at(both)}")
    gap = Mean.finite(ray - line, least=3)
    surely = SurelyAbove(gap, of="distance to the rays minus that to the lines, paired over seeds")
    check = Graded(surely, nearer)
    rests_on = (f"{key}_lines", f"{key}_ferero")
    a.claim("{key}-reach", check, key=key, name=SETS[key], reason=STEP_SIZE_NOTE, rests_on=rests_on)
