"""Compares single-task networks on pictures whose items are shifted from the corners (ours).

The runs are of a time when the authors' recipe was not known; networks for one task on pictures with items
in the corners end far below the published losses. The largest shifts are calibrated on the published losses
after one epoch, and judged by those after 100 epochs, of which those in the corners and with shifts of 4 and
4 pixels were known by then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Below
from mobench.artifacts.published import published
from mobench.artifacts.statistics import finite_mean

from .images import MEASURES, NOTHING, SETS, on_papers_pictures, pictures_of, titled

CORNERS = "00"
CHOSEN = "34"
SHIFTS = {  # largest shifts of both items as jobs and the figure name them; marker and colour
    CORNERS: ("corners", "o", st.GREY),
    "33": ("shifts 3, 3", "^", st.GREY),
    CHOSEN: ("shifts 3, 4", "s", st.BLACK),
    "44": ("shifts 4, 4", "v", st.GREY),
}
TASKS = ("1", "2")
OTHER = "The published losses belong to the paper's pictures at the paper's scale."
FIRST = "after 1 epoch"
LAST = "after 100 epochs"
PREFIXES = {FIRST: "", LAST: "_long"}


@artifact("ferero/positions")
def positions(a: Artifact) -> None:
    """Test losses of networks for one task after one epoch and after 100: a column for each data set."""
    keys = [key for key in SETS if compared(a, key, FIRST)]
    if not keys:
        a.note(NOTHING)
        return
    spans = [span for span in PREFIXES if any(longer(a, key, span) for key in keys)]
    fig, axes = st.panels(len(spans), len(keys), size=2.2, sharey="row")
    for row, span in enumerate(spans):
        for column, key in enumerate(keys):
            draw(axes[row, column], a, key, span)
        axes[row, 0].set_ylim(bottom=0.0)  # of the whole row, once all points are drawn
        axes[row, 0].set_ylabel(f"test loss {span}" if a.scale == "paper" else "test loss")
    for column, key in enumerate(keys):
        axes[0, column].set_title(titled(a, key, a.jobs[name(key, CORNERS, "1", FIRST)]))
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    a.data_names = {SETS[key]: str(a.jobs[name(key, CORNERS, "1", FIRST)].data) for key in keys}
    a.figure(fig)
    a.table(
        [
            table_line(a, key, shifts, task, span)
            for key in keys
            for span in spans
            for shifts in SHIFTS
            for task in TASKS
            if name(key, shifts, task, span) in a.jobs
        ],
        given=("data set", "items", "task", "steps", "published loss", "published accuracy"),
    )
    for key in keys:
        with pictures_of(a, key):
            judge(a, key)
    if all(on_papers(a, key) for key in keys):
        a.note(
            f"{distances(a, keys)} By this difference scratch runs with two seeds chose {SHIFTS[CHOSEN][0]}."
        )
    a.note(
        "Plain gradient descent with the settings of Figure 5, each network for one task. Corners: item 1 in "
        "rows and columns 0 to 27 of 36, item 2 in 8 to 35. Shifted: from there item 1 is moved down and to "
        "the right, each by a random number of pixels from 0 to the first one given, item 2 up and to the "
        "left by 0 to the second."
    )


def name(key: str, shifts: str, task: str, span: str) -> str:
    """Returns the name of a job."""
    return f"{key}{PREFIXES[span]}_{shifts}_{task}"


def compared(a: Artifact, key: str, span: str) -> bool:
    """Returns whether the networks on the chosen shifts and in the corners ran for so many epochs."""
    return all(name(key, shifts, task, span) in a.jobs for shifts in (CORNERS, CHOSEN) for task in TASKS)


def longer(a: Artifact, key: str, span: str) -> bool:
    """Returns whether networks ran for this span, and for longer than for one epoch if it is not that."""
    if not compared(a, key, span):
        return False
    steps = [int(a.jobs[name(key, CHOSEN, "1", each)].config["steps"]) for each in (FIRST, span)]
    return span == FIRST or steps[1] > steps[0]  # below the paper's scale both are the same runs


def ends(job: JobRows, measure: str) -> np.ndarray:
    """Returns the test losses or accuracies of the seeds; NaN where a run was lost."""
    rows = job.final.sort_values("seed")
    found: np.ndarray = rows[f"test_{measure}_1"].where(rows["status"] == "done").to_numpy(dtype=float)
    return found


def theirs(key: str, task: str, measure: str, span: str) -> float:
    """Returns the value in the result files of the public code."""
    cells = published("ferero/single_task").where(row=SETS[key])
    return cells.number(column=f"task {task}", metric=f"test {measure} {span}")


def apart(a: Artifact, key: str, shifts: str, span: str) -> dict[str, float]:
    """Returns the differences of the mean test losses from the published ones, by task."""
    return {
        f"task {task}": float(finite_mean(ends(a.jobs[name(key, shifts, task, span)], "loss")))
        - theirs(key, task, "loss", span)
        for task in TASKS
    }


def distances(a: Artifact, keys: list[str]) -> str:
    """Says how far the losses after an epoch are from the published ones, by largest shifts."""
    said = []
    for shifts, (label, _, _) in SHIFTS.items():
        if all(name(key, shifts, task, FIRST) in a.jobs for key in keys for task in TASKS):
            found = [gap for key in keys for gap in apart(a, key, shifts, FIRST).values()]
            said.append(f"{label}: {np.sqrt(np.mean(np.square(found))):.3f}")
    return (
        f"Root mean square difference of the {len(keys) * len(TASKS)} mean losses after an epoch from the "
        f"published ones: {', '.join(said)}."
    )


def on_papers(a: Artifact, key: str) -> bool:
    """Returns whether the jobs of a data set ran at the paper's scale on its images."""
    return on_papers_pictures(a, key, a.jobs[name(key, CORNERS, "1", FIRST)])


def draw(ax: Any, a: Artifact, key: str, span: str) -> None:
    """Draws the test loss of every seed by task and shifts, and the published ones."""
    ran = [shifts for shifts in SHIFTS if name(key, shifts, "1", span) in a.jobs]
    for place, task in enumerate(TASKS):
        for side, shifts in zip(np.linspace(-0.24, 0.24, len(ran)), ran, strict=True):
            label, marker, colour = SHIFTS[shifts]
            losses = ends(a.jobs[name(key, shifts, task, span)], "loss")
            look = {"ls": "", "marker": marker, "color": colour, "alpha": 0.7}
            ax.plot(np.full(len(losses), place + side), losses, label=label if place == 0 else None, **look)
        if on_papers(a, key):
            said = "published (one run)" if place == 0 else None
            ax.plot(place, theirs(key, task, "loss", span), "x", ms=8, color=st.preference(45.0), label=said)
    ax.set_xticks(range(len(TASKS)), [f"task {task}" for task in TASKS])
    ax.set_xlim(-0.5, len(TASKS) - 0.5)
    if not ran:
        ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color=st.GREY)


def judge(a: Artifact, key: str) -> None:
    """After 100 epochs the published losses are nearer to those on shifted items than to the corners'."""
    if not compared(a, key, LAST):
        return
    far = {
        shifts: {t: abs(gap) for t, gap in apart(a, key, shifts, LAST).items()}
        for shifts in (CHOSEN, CORNERS)
    }
    of = "distance of the test loss after 100 epochs from the published one, shifted items"
    nearer = Below(far[CHOSEN], far[CORNERS], of=of, than="corners", digits=".3f")
    a.check("{key}-nearer", nearer.provided(on_papers(a, key), OTHER), key=key, name=SETS[key])


def table_line(a: Artifact, key: str, shifts: str, task: str, span: str) -> dict[str, Any]:
    """Returns the means of a job's seeds, and their range, beside the published values."""
    job = a.jobs[name(key, shifts, task, span)]
    found = {measure: ends(job, measure) for measure in MEASURES}
    finite = np.isfinite(found["loss"])
    line: dict[str, Any] = {
        "data set": titled(a, key, a.jobs[name(key, CORNERS, "1", FIRST)]),
        "items": SHIFTS[shifts][0],
        "task": task,
        "steps": int(job.config["steps"]),
    }
    for measure in MEASURES:
        line[f"test {measure}"] = finite_mean(found[measure])
        line[f"published {measure}"] = theirs(key, task, measure, span)
    line["smallest loss"] = float(np.nanmin(found["loss"])) if finite.any() else float("nan")
    line["largest loss"] = float(np.nanmax(found["loss"])) if finite.any() else float("nan")
    return line | {"runs": RunCount(int(finite.sum()), len(finite))}
