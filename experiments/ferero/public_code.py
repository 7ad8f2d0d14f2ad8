"""Compares what the public code runs on images with Algorithm 3 and the published points (ours).

The criterion is that of Figure 5's points. The kept rows are of a former reading that differs from the public
image script in two respects, so that they do not tell whether it arrives there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.statistics import finite_mean

from .images import (
    ANGLES,
    MEASURES,
    NOTHING,
    RAYS,
    SETS,
    at_published,
    by_ray,
    draw_points,
    draw_published,
    dress_points,
    key_of_points,
    on_papers_pictures,
    pictures_of,
    points_of,
    quoted,
    titled,
)  # fmt: skip

OTHER = "The published points belong to the paper's pictures at the paper's scale."
FORMER = (
    "These runs start the multiplier of the ray at 1 and are not started again, where the public image "
    "script starts it at 0 and starts a run again whose accuracy is below 0.15. Decided by: runs with both."
)
VARIANTS = {"ferero": ("Algorithm 3", "o"), "code": ("public code", "s")}


@artifact("ferero/public_code")
def public_code(a: Artifact) -> None:
    """Test losses and accuracies of both variants: a column for each data set."""
    keys = [key for key in SETS if f"{key}_code" in a.jobs]
    if not keys:
        a.note(NOTHING)
        return
    fig, axes = st.panels(2, len(keys), size=2.333)
    lines = []
    for column, key in enumerate(keys):
        jobs = {name: job for name in VARIANTS if (job := a.jobs.get(f"{key}_{name}")) is not None}
        for row, measure in enumerate(MEASURES):
            for name, job in jobs.items():
                draw_points(axes[row, column], points_of(job, measure), VARIANTS[name][1])
            if on_papers_pictures(a, key, jobs["code"]):
                draw_published(axes[row, column], SETS[key], measure)
            dress_points(axes[row, column], measure)
            lines += table_lines(titled(a, key, jobs["code"]), key, jobs, measure)
        axes[0, column].set_title(titled(a, key, jobs["code"]))
        points = {measure: points_of(jobs["code"], measure) for measure in MEASURES}
        with pictures_of(a, key):
            former = float(jobs["code"].config["algorithm"].get("line_start", 1.0)) != 0.0
            whole = not former and on_papers_pictures(a, key, jobs["code"])
            near = at_published(points, SETS[key]).provided(whole, FORMER if former else OTHER)
            a.check("{key}-points", near, key=key, name=SETS[key])
    paper = any(on_papers_pictures(a, key, a.jobs[f"{key}_code"]) for key in keys)
    key_of_points(fig, axes[0, 0], dict(VARIANTS.values()), "published" if paper else "")
    a.figure(fig)
    a.table(lines, given=("data set", "measure", "variant", "preference", "published 1", "published 2"))
    a.note(
        "The public code starts the multipliers of the cone anew at every step, normalises the weights, "
        "drops changes of the multipliers below a tolerance (column: share of such steps), and uses a tenth "
        "of the printed gamma. It also starts a run again whose accuracy is below 0.15; ours are not started "
        "again here (ferero/screen)."
    )


def table_lines(title: str, key: str, jobs: dict[str, JobRows], measure: str) -> list[dict[str, Any]]:
    paper = quoted(f"{SETS[key]} {measure}", "FERERO")
    lines = []
    for name, job in jobs.items():
        points = points_of(job, measure)
        frozen = np.full(len(RAYS), np.nan)
        if name == "code":
            frozen = finite_mean(by_ray(job, "frozen_steps")[..., 0], 1) / int(job.config["steps"])
        for k, degrees in enumerate(ANGLES):
            mean = finite_mean(points[k], 0)
            lines.append(
                {
                    "data set": title,
                    "measure": measure,
                    "variant": VARIANTS[name][0],
                    "preference": f"{degrees:g}°",
                    "task 1": mean[0],
                    "task 2": mean[1],
                    "published 1": paper[k, 0],
                    "published 2": paper[k, 1],
                    "steps dropped": frozen[k],
                    "runs": RunCount(int(np.isfinite(points[k]).all(1).sum()), points.shape[1]),
                }
            )
    return lines
