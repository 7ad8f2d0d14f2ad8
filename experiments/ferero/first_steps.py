"""Draws the weights that Algorithm 3 gives the losses in its first steps on images (ours).

They show why runs of Figure 5 diverge. The check was written after runs on Multi-MNIST, and before those
on the other two data sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mobench.artifacts import Artifact, JobRows, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, AtLeast, AtMost
from mobench.artifacts.panels import dress

from .images import ANGLES, COLOURS, NOTHING, SETS, pictures_of, titled

GAMMAS = ("printed", "public")


@artifact("ferero/first_steps")
def first_steps(a: Artifact) -> None:
    """Weights of both losses over the first steps: a row for each gamma, a column for each data set."""
    keys = [key for key in SETS if all(f"{key}_{name}" in a.jobs for name in GAMMAS)]
    if not keys:
        a.note(NOTHING)
        return
    fig, axes = st.panels(len(GAMMAS), len(keys), size=2.3, sharex=True, sharey=True)
    lines = []
    for column, key in enumerate(keys):
        lost = {}
        for row, name in enumerate(GAMMAS):
            job = a.jobs[f"{key}_{name}"]
            gamma = float(job.config["algorithm"]["gamma"])
            values = weights(job)
            finished = (job.final.sort_values("run")["status"] == "done").to_numpy()
            lost[name] = int((~finished).sum())
            draw(axes[row, column], values)
            if row == 0:
                axes[row, column].set_title(titled(a, key, job), fontsize=8)
            if column == 0:
                dress(axes[row, column], y=f"weight, $\\gamma$ = {gamma:g}")
            lines += table_lines(titled(a, key, job), gamma, values, finished)
        with pictures_of(a, key):
            printed = AtLeast(lost["printed"], 1, of="runs lost, printed gamma")
            public = AtMost(lost["public"], 0, of="public code's gamma")
            a.check("{key}-lost", AllOf(printed, public), key=key, name=SETS[key])
    for ax in axes[-1]:
        dress(ax, "step")
    for colour, degrees in zip(COLOURS, ANGLES, strict=True):
        axes[0, 0].plot([], [], color=colour, label=f"ray {degrees:g}°")
    axes[0, 0].plot([], [], color=st.GREY, label="loss 1")
    axes[0, 0].plot([], [], color=st.GREY, ls="--", label="loss 2")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    a.figure(fig)
    a.table(lines, given=("data set", "gamma", "ray"))
    a.note(
        "Algorithm 3 with the other settings of Table 8, one seed. Printed: gamma of Table 8; below it the "
        "public code's, a tenth. A curve ends where its run has no finite weights."
    )


def weights(job: JobRows) -> np.ndarray:
    """Returns the weights of the losses (steps, preferences, 2), the step 0 first; NaN once a run is lost."""
    rows = job.history.sort_values(["step", "run"])
    return rows[["weight_1", "weight_2"]].to_numpy(dtype=float).reshape(-1, len(ANGLES), 2)


def draw(ax: Any, values: np.ndarray) -> None:
    ax.axhline(0.0, color=st.GREY, lw=0.6)
    for k, colour in enumerate(COLOURS):
        for m, dashes in enumerate(("-", "--")):
            ax.plot(range(1, len(values)), values[1:, k, m], color=colour, ls=dashes, lw=1.0)
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set_ylim(-10.0, 10.0)
    ax.set_yticks([-10, -1, -0.5, 0, 0.5, 1, 10], ["-10", "-1", "-0.5", "0", "0.5", "1", "10"])


def table_lines(title: str, gamma: float, values: np.ndarray, finished: np.ndarray) -> list[dict[str, Any]]:
    """Returns a line for each ray: the first weights, and whether the run finished."""
    lines = []
    for k, degrees in enumerate(ANGLES):
        finite = np.isfinite(values[:, k]).all(1)
        steps = len(values) - 1
        lines.append(
            {
                "data set": title,
                "gamma": gamma,
                "ray": f"{degrees:g}°",
                "weight 1 after one step": values[1, k, 0],
                "weight 2 after one step": values[1, k, 1],
                "smallest weight": float(values[finite, k].min()),
                "steps with finite weights": (
                    f"all {steps}" if finished[k] else f"{int(finite.sum()) - 1} of {steps}, then lost"
                ),
            }
        )
    return lines
