"""Compares single-task networks on pictures with items in the corners and at random positions (ours).

A cause, tested: on pictures whose items lie in the corners, networks for one task end far below the published
losses. How the authors placed the items is not published; the data set that theirs follows shifts them by up
to 4 pixels (Sabour et al. 2017). The criterion was written after scratch runs on Multi-MNIST and before
those that judge it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Below
from mobench.artifacts.published import published
from mobench.artifacts.statistics import finite_mean

from .images import MEASURES, NOTHING, PICTURES, SETS, pictures_of, titled

PLACED = {"corners": ("corners", "o", st.GREY), "random": ("random positions", "s", st.BLACK)}
TASKS = ("1", "2")
OTHER = "The published losses belong to the paper's pictures at the paper's scale."
FIRST = "after 1 epoch"
LAST = "after 100 epochs"


@artifact("ferero/positions")
def positions(a: Artifact) -> None:
    """Test losses of networks for one task after an epoch, by positions: a panel for each data set."""
    keys = [key for key in SETS if all(name(key, s, t) in a.jobs for s in PLACED for t in TASKS)]
    if not keys:
        a.note(NOTHING)
        return
    fig, axes = st.panels(1, len(keys), size=2.4, sharey=True)
    for ax, key in zip(axes[0], keys, strict=True):
        first = a.jobs[name(key, "corners", "1")]
        draw(ax, a, key)
        ax.set_title(titled(a, key, first))
        with pictures_of(a, key):
            judge(a, key)
    axes[0, 0].set_ylim(bottom=0.0)  # of all panels, once all points are drawn
    axes[0, 0].set_ylabel(f"test loss after {first.config['steps']} steps")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    a.data_names = {SETS[key]: str(a.jobs[name(key, "corners", "1")].data) for key in keys}
    a.figure(fig)
    lines = [
        table_line(a, key, where, task, after)
        for key in keys
        for prefix, after in ((key, FIRST), (f"{key}_long", LAST))
        for where in PLACED
        for task in TASKS
        if name(prefix, where, task) in a.jobs
    ]
    a.table(lines, given=("data set", "items", "task", "steps", "published loss", "published accuracy"))
    a.note(
        "Plain gradient descent with the settings of Figure 5, each network for one task. Corners: item 1 in "
        "rows and columns 0 to 27 of 36, item 2 in 8 to 35. Random: each item is shifted from there towards "
        "the middle by 0 to 4 pixels in each direction."
    )


def name(key: str, where: str, task: str) -> str:
    """Returns the name of a job."""
    return f"{key}_{where}_{task}"


def ends(job: JobRows, measure: str) -> np.ndarray:
    """Returns the test losses or accuracies of the seeds; NaN where a run was lost."""
    rows = job.final.sort_values("seed")
    found: np.ndarray = rows[f"test_{measure}_1"].where(rows["status"] == "done").to_numpy(dtype=float)
    return found


def theirs(key: str, task: str, measure: str, after: str) -> float:
    """Returns the value in the result files of the public code."""
    cells = published("ferero/single_task").where(row=SETS[key])
    return cells.number(column=f"task {task}", metric=f"test {measure} {after}")


def on_papers(a: Artifact, key: str) -> bool:
    """Returns whether the jobs of a data set ran at the paper's scale on its images."""
    return a.scale == "paper" and str(a.jobs[name(key, "corners", "1")].data) == PICTURES[key]


def draw(ax: Any, a: Artifact, key: str) -> None:
    """Draws the test loss of every seed by task and positions, and the published ones."""
    for place, task in enumerate(TASKS):
        for side, (where, (label, marker, colour)) in zip((-0.15, 0.15), PLACED.items(), strict=True):
            losses = ends(a.jobs[name(key, where, task)], "loss")
            look = {"ls": "", "marker": marker, "color": colour, "alpha": 0.7}
            ax.plot(np.full(len(losses), place + side), losses, label=label if place == 0 else None, **look)
        if on_papers(a, key):
            said = "published (one run)" if place == 0 else None
            loss = theirs(key, task, "loss", FIRST)
            ax.plot(place, loss, "x", ms=8, color=st.preference(45.0), label=said)
    ax.set_xticks(range(len(TASKS)), [f"task {task}" for task in TASKS])
    ax.set_xlim(-0.5, len(TASKS) - 0.5)


def judge(a: Artifact, key: str) -> None:
    """The published losses are nearer to those of random positions."""
    far: dict[str, dict[str, float]] = {where: {} for where in PLACED}
    for where, apart in far.items():
        for task in TASKS:
            mean = float(finite_mean(ends(a.jobs[name(key, where, task)], "loss")))
            apart[f"task {task}"] = abs(mean - theirs(key, task, "loss", FIRST))
    of = "distance of the mean test loss after an epoch from the published one, random positions"
    nearer = Below(far["random"], far["corners"], of=of, than="corners", digits=".3f")
    a.check("{key}-nearer", nearer.provided(on_papers(a, key), OTHER), key=key, name=SETS[key])


def table_line(a: Artifact, key: str, where: str, task: str, after: str) -> dict[str, Any]:
    """Returns the means of a job's seeds, and their range, beside the published values."""
    job = a.jobs[name(key if after == FIRST else f"{key}_long", where, task)]
    found = {measure: ends(job, measure) for measure in MEASURES}
    finite = np.isfinite(found["loss"])
    line: dict[str, Any] = {
        "data set": titled(a, key, a.jobs[name(key, "corners", "1")]),
        "items": PLACED[where][0],
        "task": task,
        "steps": int(job.config["steps"]),
    }
    for measure in MEASURES:
        line[f"test {measure}"] = finite_mean(found[measure])
        line[f"published {measure}"] = theirs(key, task, measure, after)
    line["smallest loss"] = float(np.nanmin(found["loss"])) if finite.any() else float("nan")
    line["largest loss"] = float(np.nanmax(found["loss"])) if finite.any() else float("nan")
    return line | {"runs": RunCount(int(finite.sum()), len(finite))}
