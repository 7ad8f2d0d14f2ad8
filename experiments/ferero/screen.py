"""Compares FERERO's variants on pictures like the authors' (ours): where runs end, and which are lost.

Algorithm 3 with the printed step of the multipliers, a tenth and a hundredth of it, with a tenth and
normalized weights, and the public image script. That script starts a run again whose test accuracy is below
0.15 after 1, 2, 4, 6, ... epochs; here such a run ends at the first recorded step where it is, and the next
seed is the next try. `ferero/full_length` shows two of the variants at the whole length of Figure 5, and
three methods that Figure 5 compares FERERO with: if they end where they were published, pictures, network
and training are the paper's, and what is left of a difference is FERERO's own.
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
    METHODS,
    NOTHING,
    RAY_LABELS,
    SETS,
    at_published,
    by_ray,
    draw_points,
    draw_published,
    dress_points,
    in_order,
    key_of_points,
    near_published,
    on_papers_pictures,
    pictures_of,
    points_of,
    titled,
)  # fmt: skip

VARIANTS = {  # name of a job, label and marker
    "printed": ("Algorithm 3, printed gamma", "o"),
    "tenth": ("Algorithm 3, gamma / 10", "s"),
    "hundredth": ("Algorithm 3, gamma / 100", "^"),
    "normalized": ("gamma / 10, weights normalized", "v"),
    "script": ("public image script", "D"),
    "ls": ("LS", st.look("ls").marker),
    "epo": ("EPO", st.look("epo").marker),
    "pmtl": ("PMTL", st.look("pmtl").marker),
}
EXCHANGED = {  # at the whole length: checks of the ends with the outer rays exchanged
    "tenth": "{key}-tenth-exchanged",
    "script": "{key}-script-exchanged",
}
JUDGED = {  # at the whole length: checks of the ends and of their order
    "tenth": ("{key}-tenth-points", "{key}-tenth-ordered"),
    "script": ("{key}-script-points", "{key}-script-ordered"),
    "ls": ("{key}-ls-points", "{key}-ls-ordered"),
    "epo": ("{key}-epo-points", "{key}-epo-ordered"),
    "pmtl": ("{key}-pmtl-points", "{key}-pmtl-ordered"),
}


@artifact("ferero/screen")
def screen(a: Artifact) -> None:
    """Test losses of all variants: a panel for each data set."""
    draw(a)


@artifact("ferero/full_length")
def full_length(a: Artifact) -> None:
    """Test losses at the length of Figure 5, and whether they are those of Figure 5."""
    for key, jobs in draw(a).items():
        with pictures_of(a, key):
            for name, job in jobs.items():
                words = {"key": key, "name": SETS[key]}
                points = {measure: first_passed(a, key, name, measure) for measure in MEASURES}
                there = on_papers_pictures(a, key, job)
                method = METHODS.get(name, "FERERO")
                decided = f"The length and the pictures are not those of Figure 5. Decided by: {a.decides}."
                again = next_try(a, key, name)
                rays = sorted({ray for ran in (job, again) if ran is not None for ray in rays_of(ran)})
                if len(rays) == len(ANGLES):
                    same, ordered = JUDGED[name]
                    if there:
                        near = near_published(points, SETS[key], method)
                        where = f"at the published points of {method} at {near} preferences"
                        a.note(f"{VARIANTS[name][0]} is {where}.")
                    a.check(same, at_published(points, SETS[key], method).provided(there, decided), **words)
                    order = in_order(points["loss"], "mean test loss of task")
                    a.check(ordered, order.provided(there, decided), **words)
                else:
                    a.note(f"{SETS[key]}: run only at {' and '.join(RAY_LABELS[k] for k in rays)}.")
                if name in EXCHANGED:
                    exchanged = {measure: values[::-1] for measure, values in points.items()}
                    others = [len(ANGLES) - 1 - k for k in rays]
                    other = at_published(exchanged, SETS[key], method, RAY_LABELS[::-1], others)
                    ended = [RAY_LABELS[k] for k in rays if np.isnan(points["loss"][k]).all()]
                    lost = f"No try has passed at {' and '.join(ended)}. Decided by further seeds."
                    other = other.provided(not ended, lost)
                    a.check(EXCHANGED[name], other.provided(there, decided), **words)


def draw(a: Artifact) -> dict[str, dict[str, JobRows]]:
    """Draws a panel for each data set and published method, and writes the table.

    Returns the jobs by data set and variant.
    """
    jobs_of = {key: {v: a.jobs[f"{key}_{v}"] for v in VARIANTS if f"{key}_{v}" in a.jobs} for key in SETS}
    shown = {key: jobs for key, jobs in jobs_of.items() if jobs}
    if not shown:
        a.note(NOTHING)
        return {}
    by_method: dict[tuple[str, str], dict[str, JobRows]] = {}
    for key, jobs in shown.items():
        for name, job in jobs.items():
            by_method.setdefault((key, METHODS.get(name, "FERERO")), {})[name] = job
    fig, axes = st.panels(1, len(by_method), size=2.6)
    lines = []
    for ax, ((key, method), jobs) in zip(axes[0], by_method.items(), strict=True):
        first = next(iter(jobs.values()))
        title = titled(a, key, first)
        for name, job in jobs.items():
            draw_points(ax, first_passed(a, key, name, "loss"), VARIANTS[name][1])
            lines += table_lines(title, name, job)
            if (again := next_try(a, key, name)) is not None:
                lines += table_lines(title, name, again, ", next try")
        if on_papers_pictures(a, key, first):
            draw_published(ax, SETS[key], "loss", method)
        dress_points(ax, "loss")
        ax.set_title(title if len(by_method) == len(shown) else f"{title}: {method}")
    seen = {name for jobs in shown.values() for name in jobs}
    paper = any(on_papers_pictures(a, key, next(iter(jobs.values()))) for key, jobs in shown.items())
    markers = dict(look for name, look in VARIANTS.items() if name in seen)
    key_of_points(fig, axes[0, 0], markers, "published" if paper else "")
    a.refer("ferero/public_code", *(f"{key}-points" for key in shown))
    a.figure(fig)
    a.table(lines, given=("data set", "variant", "ray"))
    a.note(
        "H: distance of the training losses from the ray, with its sign (positive: the first loss is too "
        "large). The multiplier of the ray moves by gamma (pull of the ray - push of the gradients) in a "
        "step; both are means over all steps: c_h H of a batch, and B_h J g. Tries: how many seeds, in their "
        "order, until one passes the script's rule. A point of a run that was lost or ended is not drawn."
    )
    return shown


def passed(job: JobRows) -> np.ndarray:
    """Returns which runs finished and were not ended by the rule (preferences, seeds)."""
    rows = job.final.sort_values(["ray_2", "seed"], kind="stable")
    good = rows["status"] == "done"
    if "ended" in rows:
        good &= rows["ended"] < 0
    return good.to_numpy().reshape(-1, rows["seed"].nunique())


def first_passed(a: Artifact, key: str, name: str, measure: str) -> np.ndarray:
    """Returns the points (preferences, seeds, 2) of a variant, each from the first try that passes.

    The public script starts a run again that its rule ends: where its run of a preference was lost, the point
    is that of its next try, if there is one.
    """
    points = placed(a.jobs[f"{key}_{name}"], measure)
    if (again := next_try(a, key, name)) is not None:
        tried = placed(again, measure)
        lost = np.isnan(points).all((1, 2))
        for ray, several in enumerate(tried):  # the tries of a ray, by their seeds
            passing = several[~np.isnan(several).any(1)]
            if lost[ray] and len(passing) > 0:
                points[ray, 0] = passing[0]
    return points


def next_try(a: Artifact, key: str, name: str) -> JobRows | None:
    """Returns the job with the next tries of the public script, if the variant is that and there is one."""
    return a.jobs.get(f"{key}_again") if name == "script" else None


def rays_of(job: JobRows) -> list[int]:
    """Returns which of the preferences a job has."""
    sines = np.sin(np.radians(ANGLES))
    return [int(np.argmin(np.abs(sines - ray))) for ray in np.sort(job.final["ray_2"].unique())]


def placed(job: JobRows, measure: str) -> np.ndarray:
    """Returns the points (preferences, seeds, 2), NaN for preferences that a job does not have."""
    values = only_passed(job, points_of(job, measure))
    points = np.full((len(ANGLES), *values.shape[1:]), np.nan)
    points[rays_of(job)] = values
    return points


def ends(job: JobRows) -> np.ndarray:
    """Returns test losses (preferences, seeds, 2); NaN where a run was lost or ended."""
    return only_passed(job, points_of(job, "loss"))


def only_passed(job: JobRows, points: np.ndarray) -> np.ndarray:
    """Returns the points (preferences, seeds, 2) with NaN where a run was lost or ended."""
    return np.where(passed(job)[..., None], points, np.nan)


def means(job: JobRows, term: str) -> np.ndarray:
    """Returns means over all steps of c_h H ("pull") or of B_h J g ("gram"), (preferences, seeds); NaN where
    the rows have none."""
    name = f"line_{term}_1"
    if name not in job.final:
        return np.full(passed(job).shape, np.nan)
    return by_ray(job, name)[..., 0] / int(job.history["step"].max())


def tries(good: np.ndarray) -> int | None:
    """Returns how many of a preference's seeds it takes until one passes; None if none does."""
    return int(np.argmax(good)) + 1 if good.any() else None


def table_lines(shown: str, name: str, job: JobRows, which: str = "") -> list[dict[str, Any]]:
    """Returns a line for each ray of the job."""
    good = passed(job)
    test = ends(job)
    train = np.where(good[..., None], by_ray(job, "f_1", "f_2"), np.nan)
    accuracy = only_passed(job, points_of(job, "accuracy"))
    pull, gram = (np.where(good, means(job, term), np.nan) for term in ("pull", "gram"))
    lines = []
    rays = np.unique(job.final[["ray_2", "ray_1"]].to_numpy(dtype=float), axis=0)
    for k, degrees in enumerate(np.degrees(np.arctan2(*rays.T)).round(1)):
        across = np.array([np.sin(np.radians(degrees)), -np.cos(np.radians(degrees))])
        mean = finite_mean(test[k], 0)
        right = finite_mean(accuracy[k], 0)
        lines.append(
            {
                "data set": shown,
                "variant": VARIANTS[name][0] + which,
                "ray": f"{degrees:g}°",
                "test loss 1": mean[0],
                "test loss 2": mean[1],
                "accuracy 1": right[0],
                "accuracy 2": right[1],
                "angle": float(np.degrees(np.arctan2(mean[1], mean[0]))),
                "H": float(finite_mean(train[k] @ across, 0)),
                "pull of the ray": float(finite_mean(pull[k], 0)),
                "push of the gradients": float(finite_mean(gram[k], 0)),
                "tries": tries(good[k]),
                "runs": RunCount(int(good[k].sum()), good.shape[1]),
            }
        )
    return lines
