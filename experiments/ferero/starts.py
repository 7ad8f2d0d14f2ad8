"""Compares single-task networks by their first weights (ours): PyTorch's, or the public script's.

A cause, tested: with PyTorch's weights, networks for one task ended far below the published losses. The
criterion was written after scratch runs of one epoch on each data set, and before those that judge it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Above, AllOf, AtLeast
from mobench.artifacts.published import published
from mobench.artifacts.statistics import finite_mean

from .images import MEASURES, NOTHING, SETS, on_papers_pictures, pictures_of, titled

STARTS = {"default": ("PyTorch's start", "o", st.GREY), "xavier": ("Xavier-uniform start", "s", st.BLACK)}
TASKS = ("1", "2")
OTHER = "The published losses belong to the paper's pictures at the paper's scale."
RESTARTED = 0.15  # the public code starts a run again whose accuracy is below
AFTER = {"default": "after 1 epoch", "xavier": "after 1 epoch", "long": "after 100 epochs"}


@artifact("ferero/starts")
def starts(a: Artifact) -> None:
    """Test losses of networks for one task after an epoch, by start: a panel for each data set."""
    keys = [key for key in SETS if all(name(key, s, t) in a.jobs for s in STARTS for t in TASKS)]
    if not keys:
        a.note(NOTHING)
        return
    fig, axes = st.panels(1, len(keys), size=2.4, sharey=True)
    for ax, key in zip(axes[0], keys, strict=True):
        first = a.jobs[name(key, "default", "1")]
        draw(ax, a, key)
        ax.set_title(titled(a, key, first))
        with pictures_of(a, key):
            judge(a, key)
    axes[0, 0].set_ylim(bottom=0.0)  # of all panels, once all points are drawn
    axes[0, 0].set_ylabel(f"test loss after {first.config['steps']} steps")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    a.data_names = {SETS[key]: str(a.jobs[name(key, "default", "1")].data) for key in keys}
    a.figure(fig)
    lines = [
        table_line(a, key, s, t) for key in keys for s in AFTER for t in TASKS if name(key, s, t) in a.jobs
    ]
    a.table(lines, given=("data set", "start", "task", "steps", "published loss", "published accuracy"))
    a.note(
        "Plain gradient descent with the settings of Figure 5, each network for one task. The public script "
        "of linear scalarization, which also trains single tasks, starts from Xavier-uniform weights, the "
        "other scripts from PyTorch's. It starts a run again whose accuracy is below 0.15; the criterion "
        "leaves such runs out, the table does not."
    )


def name(key: str, start: str, task: str) -> str:
    """Returns the name of a job."""
    return f"{key}_{start}_{task}"


def ends(job: JobRows, measure: str) -> np.ndarray:
    """Returns the test losses or accuracies of the seeds; NaN where a run was lost."""
    rows = job.final.sort_values("seed")
    found: np.ndarray = rows[f"test_{measure}_1"].where(rows["status"] == "done").to_numpy(dtype=float)
    return found


def theirs(key: str, task: str, measure: str, after: str = "after 1 epoch") -> float:
    """Returns the value in the result files of the public code."""
    cells = published("ferero/single_task").where(row=SETS[key])
    return cells.number(column=f"task {task}", metric=f"test {measure} {after}")


def draw(ax: Any, a: Artifact, key: str) -> None:
    """Draws the test loss of every seed by task and start, and the published ones."""
    for place, task in enumerate(TASKS):
        for side, (start, (label, marker, colour)) in zip((-0.15, 0.15), STARTS.items(), strict=True):
            losses = ends(a.jobs[name(key, start, task)], "loss")
            at = np.full(len(losses), place + side)
            look = {"ls": "", "marker": marker, "color": colour, "alpha": 0.7}
            ax.plot(at, losses, label=label if place == 0 else None, **look)
        if on_papers_pictures(a, key, a.jobs[name(key, "default", task)]):
            said = "published (one run)" if place == 0 else None
            ax.plot(place, theirs(key, task, "loss"), "x", ms=8, color=st.preference(45.0), label=said)
    ax.set_xticks(range(len(TASKS)), [f"task {task}" for task in TASKS])
    ax.set_xlim(-0.5, len(TASKS) - 0.5)


def judge(a: Artifact, key: str) -> None:
    """The published losses are among those of the script's start, and above all of PyTorch's."""
    paper = {f"task {task}": theirs(key, task, "loss") for task in TASKS}
    usual = {}
    least = {}
    most = {}
    for task in TASKS:
        usual[f"task {task}"] = float(np.nanmax(ends(a.jobs[name(key, "default", task)], "loss")))
        job = a.jobs[name(key, "xavier", task)]
        losses = ends(job, "loss")[ends(job, "accuracy") >= RESTARTED]
        least[f"task {task}"] = float(losses.min()) if losses.size else float("nan")
        most[f"task {task}"] = float(losses.max()) if losses.size else float("nan")
    of = "published test loss after an epoch"
    above = Above(paper, usual, of=of, than="largest with PyTorch's start", digits=".3f")
    low = AtLeast(paper, least, of=of, than="smallest with the script's start", digits=".3f")
    high = AtLeast(most, paper, of="largest with the script's start", than="published", digits=".3f")
    decided = AllOf(above, low, high).provided(on_papers_pictures(a, key, job), OTHER)
    a.check("{key}-start", decided, key=key, name=SETS[key])


def table_line(a: Artifact, key: str, start: str, task: str) -> dict[str, Any]:
    """Returns the means of a job's seeds, and their range, beside the published values."""
    job = a.jobs[name(key, start, task)]
    found = {measure: ends(job, measure) for measure in MEASURES}
    finite = np.isfinite(found["loss"])
    line: dict[str, Any] = {
        "data set": titled(a, key, job),
        "start": "Xavier-uniform" if start == "xavier" else "PyTorch's",
        "task": task,
        "steps": int(job.config["steps"]),
    }
    for measure in MEASURES:
        line[f"test {measure}"] = finite_mean(found[measure])
        line[f"published {measure}"] = theirs(key, task, measure, AFTER[start])
    line["smallest loss"] = float(np.nanmin(found["loss"])) if finite.any() else float("nan")
    line["largest loss"] = float(np.nanmax(found["loss"])) if finite.any() else float("nan")
    return line | {"runs": RunCount(int(finite.sum()), len(finite))}
