"""Runs of the artifacts on images (Figures 5 and 6, Tables 2 and 9); pictures of the data.

Criteria were fixed before the first run. The published numbers belong to Multi-MNIST, Multi-Fashion and
Multi-Fashion+MNIST at paper scale; on other pictures, and at other scales, claims are inconclusive
(mobench.artifacts). FERERO has five seeds and every other method one, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, AtMost, Count, Equal, Ordered, Several
from mobench.artifacts.published import published
from mobench.artifacts.statistics import Mean, finite_mean
from mobench.problems import MultiMNIST

SETS = {"mm": "Multi-MNIST", "mf": "Multi-Fashion", "fm": "Multi-F+M"}
PICTURES = {  # as jobs name them, before they say where the items lie
    "mm": "overlapping pairs: MNIST",
    "mf": "overlapping pairs: Fashion-MNIST",
    "fm": "overlapping pairs: MNIST (upper left) and Fashion-MNIST (lower right)",
}
METHODS = {"ls": "LS", "pmtl": "PMTL", "epo": "EPO", "ferero": "FERERO"}
RAYS = {"orange ray 22.5 deg": 22.5, "green ray 45 deg": 45.0, "red ray 67.5 deg": 67.5}
ANGLES = tuple(RAYS.values())
RAY_LABELS = tuple(f"{degrees:g}°" for degrees in ANGLES)
COLOURS = tuple(st.preference(degrees) for degrees in ANGLES)
MEASURES = ("loss", "accuracy")
NEAR = {"loss": 0.06, "accuracy": 0.025}  # how far a coordinate may be from the published one
FEW = "no interval from fewer than three"
NOTHING = "Nothing is drawn: the jobs that artifact.only leaves are too few for a panel of any data set."
STEP_SIZE_NOTE = (
    "FERERO asks for a rate, B_h J d = -c_h H, and gets it to first order only: where a step is not small "
    "against the curvature, gradients are dominated by what oscillates, losses fall slower than J d says, "
    "and runs stay off their lines. The exact subproblem does so as well (docs/architecture.md, "
    "Known limits)."
)


@dataclass(frozen=True)
class Panel:
    """One data set of the figure: its jobs by method, and the two single-task jobs.

    Jobs that were left out (`artifact.only`) are in neither, and claims that need them are not judged.
    """

    key: str
    jobs: dict[str, JobRows]
    single: tuple[JobRows, ...]

    @property
    def first(self) -> JobRows:
        return next(iter((*self.jobs.values(), *self.single)))

    @property
    def methods(self) -> dict[str, str]:
        return {m: name for m, name in METHODS.items() if m in self.jobs}

    @property
    def compared(self) -> bool:
        return len(self.jobs) == len(METHODS)

    @property
    def name(self) -> str:
        return SETS[self.key]

    @property
    def data(self) -> str:
        return str(self.first.data)

    @property
    def words(self) -> dict[str, Any]:
        """The words that fill the placeholders of its claims in claims.yaml."""
        return {"key": self.key, "name": self.name}

    def paper(self, a: Artifact) -> bool:
        return on_papers_pictures(a, self.key, self.first)

    def of(self, *methods: str) -> list[str]:
        return [f"{self.key}_{m}" for m in methods]

    def polar(self, method: str) -> np.ndarray:
        """Angle of the test losses in degrees (preferences, seeds)."""
        points = points_of(self.jobs[method], "loss")
        return np.degrees(np.arctan2(points[..., 1], points[..., 0]))

    def alone(self, measure: str) -> np.ndarray:
        """(2, seeds): what a network for one task reaches; NaN where a run was lost or left out."""
        if not self.single:
            return np.full((2, 1), np.nan)
        rows = [job.final.sort_values("seed") for job in self.single]
        return np.stack([r[f"test_{measure}_1"].where(r["status"] == "done").to_numpy() for r in rows])


PRINTED_GAMMA = 1e-4  # Table 8's
WHITE = 255.0  # of the public code


def diverged(panel: Panel) -> str:
    """Says which of FERERO's runs were lost, and why if they had the printed settings; empty if none was."""
    job = panel.jobs["ferero"]
    lost = job.final[job.final["status"] != "done"]
    if lost.empty:
        return ""
    rays = sorted(
        round(float(np.degrees(np.arctan2(r2, r1))), 1) for r1, r2 in lost[["ray_1", "ray_2"]].to_numpy()
    )
    said = f"{len(lost)} of {len(job.final)} runs diverged ({', '.join(f'{ray:g}°' for ray in rays)})."
    config = job.config
    if (float(config["algorithm"].get("gamma", 0.0)), float(config["problem"]["pixels"])) != (
        PRINTED_GAMMA,
        WHITE,
    ):
        return said
    return (
        f"{said} With the printed gamma and white at 255 the multipliers overshoot in the first steps, and "
        "these runs do not recover; with the public code's gamma, a tenth of it, no weight of a loss is "
        "negative in 200 steps (ferero/first_steps)."
    )


def by_ray(job: JobRows, *names: str) -> np.ndarray:
    """Returns columns of the final rows (preferences, seeds, len(names)); NaN where a run was lost."""
    rows = job.final.sort_values(["ray_2", "seed"], kind="stable")
    good = (rows["status"] == "done").to_numpy()[:, None]
    values = np.where(good, rows[list(names)].to_numpy(dtype=float), np.nan)
    return values.reshape(-1, rows["seed"].nunique(), len(names))


def points_of(job: JobRows, measure: str) -> np.ndarray:
    """Returns test losses or accuracies (preferences, seeds, 2); NaN where a run was lost."""
    return by_ray(job, f"test_{measure}_1", f"test_{measure}_2")


def papers_pictures(a: Artifact, key: str) -> tuple[str, ...]:
    """Returns the labels of this data set in `artifact.paper.data`.

    They say where the items of its pictures lie.
    """
    name = PICTURES[key]
    return tuple(label for label in a.paper.data if label == name or label.startswith(f"{name}, "))


def on_papers_pictures(a: Artifact, key: str, job: JobRows) -> bool:
    return a.scale == "paper" and str(job.data) in papers_pictures(a, key)


@contextmanager
def pictures_of(a: Artifact, key: str) -> Iterator[None]:
    """Claims in this block are about one of the data sets: the pictures of another one do not judge them."""
    whole = a.paper
    a.paper = replace(whole, data=list(papers_pictures(a, key)))
    try:
        yield
    finally:
        a.paper = whole


def panels(a: Artifact) -> list[Panel]:
    """Returns the data sets of an artifact, without the ones that `artifact.only` leaves out."""
    existing = []
    for key in SETS:
        jobs = {m: a.jobs[f"{key}_{m}"] for m in METHODS if f"{key}_{m}" in a.jobs}
        single = tuple(a.jobs[name] for m in (1, 2) if (name := f"{key}_single{m}") in a.jobs)
        if jobs or len(single) == 2:
            existing.append(Panel(key, jobs, single if len(single) == 2 else ()))
    return existing


def quoted(panel: str, method: str) -> np.ndarray:
    """Returns the published points (3, 2) of a panel ("Multi-Fashion loss"), read from the figures."""
    points = published("ferero/fig5_points").where(row=panel, column=method)
    return np.array([[points.number(metric=f"{ray} objective {m}") for m in (1, 2)] for ray in RAYS])


def at_published(
    points: Mapping[str, np.ndarray],
    name: str,
    method: str = "FERERO",
    labels: Sequence[str] = RAY_LABELS,
    rays: Sequence[int] = range(len(ANGLES)),
) -> Several:
    """Checks that a method's points of a data set are the published ones.

    points: by measure, (preferences, seeds, 2). A point whose runs were all lost is not the published one.
    labels: of the preferences, in the order of the points. rays: the preferences that were run.
    """
    gap = {}
    finished: dict[str, bool] = {}
    for measure, apart in distances(points, name, method).items():
        finished |= {labels[k]: bool(np.isfinite(apart[k]).all()) for k in rays}
        gap[measure] = float(np.nanmax(apart)) if np.isfinite(apart).any() else float("nan")
    of = "largest difference of a coordinate of the mean over seeds"
    near = AtMost(gap, NEAR, of=of, digits=".3f", partial=True)
    return AllOf(near, Count(finished, what="points with a finished run"))


def near_published(points: Mapping[str, np.ndarray], name: str, method: str) -> RunCount:
    """Counts the preferences at which all coordinates are as near to the published ones as `NEAR` says."""
    near = [apart <= NEAR[measure] for measure, apart in distances(points, name, method).items()]
    return RunCount(int(np.hstack(near).all(1).sum()), len(ANGLES))


def distances(points: Mapping[str, np.ndarray], name: str, method: str) -> dict[str, np.ndarray]:
    """Returns how far each coordinate of the mean over seeds is from the published one, (3, 2) by measure."""
    return {m: np.abs(finite_mean(v, 1) - quoted(f"{name} {m}", method)) for m, v in points.items()}


def means_by_preference(values: np.ndarray) -> dict[str, float]:
    """Returns the means over seeds of values (preferences, seeds) by preference."""
    return dict(zip(RAY_LABELS, finite_mean(values, 1), strict=True))


def in_order(losses: np.ndarray, of: str) -> Several:
    """Checks that losses (preferences, seeds, 2) are ordered as their preferences.

    The first loss falls, the second rises.
    """
    fall = Ordered(means_by_preference(losses[..., 0]), falling=True, of=f"{of} 1", digits=".3f")
    return AllOf(fall, Ordered(means_by_preference(losses[..., 1]), of=f"{of} 2", digits=".3f"))


def titled(a: Artifact, key: str, job: JobRows) -> str:
    """Returns the name of a data set, and what the pictures of a job are if not the paper's."""
    if on_papers_pictures(a, key, job):
        return SETS[key]
    if job.meta["embedded"]:
        return f"{SETS[key]} (stand-in: digits)"
    return f"{SETS[key]} ({'other pictures' if a.scale == 'paper' else 'smaller scale'})"


def draw_rays(ax: Any, origin: np.ndarray) -> None:
    """Draws the three preference rays from a point, in axes whose limits stay."""
    limits = ax.get_xlim(), ax.get_ylim()
    for degrees, colour in zip(ANGLES, COLOURS, strict=True):
        ray = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        ax.plot(*(origin[:, None] + np.outer(ray, [0, 100])), color=colour, lw=1.1, ls=":")
    ax.set_xlim(limits[0])
    ax.set_ylim(limits[1])


def draw_points(ax: Any, points: np.ndarray, marker: str) -> None:
    """Draws points (preferences, seeds, 2) faintly, and their means over seeds."""
    for k, colour in enumerate(COLOURS):
        look = {"ls": "", "marker": marker, "color": colour}
        ax.plot(*points[k].T, ms=3, alpha=0.35, **look)
        ax.plot(*finite_mean(points[k], 0), ms=7, mec="k", mew=0.5, **look)


def draw_published(ax: Any, name: str, measure: str, method: str = "FERERO") -> None:
    for point, colour in zip(quoted(f"{name} {measure}", method), COLOURS, strict=True):
        ax.plot(*point, ls="", marker="x", ms=7, color=colour)


def key_of_points(fig: Any, ax: Any, markers: Mapping[str, str], published: str = "") -> None:
    """Gives a figure one legend of its markers, by their names, the preferences' colours and the crosses."""
    for label, marker in markers.items():
        ax.plot([], [], ls="", marker=marker, color=st.GREY, label=label)
    for colour, degrees in zip(COLOURS, RAY_LABELS, strict=True):
        ax.plot([], [], ls="", marker="o", color=colour, label=f"ray {degrees}")
    if published:
        ax.plot([], [], ls="", marker="x", ms=7, color=st.GREY, label=published)
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5)


def dress_points(ax: Any, measure: str) -> None:
    """Draws the rays, which belong to losses, and names the axes."""
    ax.margins(0.12)  # markers are large in these small panels, and none is to be cut
    if measure == "loss":
        draw_rays(ax, np.zeros(2))
    ax.set_xlabel(f"test {measure}, task 1")
    ax.set_ylabel(f"test {measure}, task 2")


def widest(points: np.ndarray) -> str:
    """Says the widest 95 % interval over seeds of a coordinate's mean; points (preferences, seeds, 2)."""
    values = points.transpose(0, 2, 1).reshape(-1, points.shape[1])
    halves = [Mean.finite(v, least=3).half for v in values]
    return f"± {max(halves):.2g}" if np.isfinite(halves).all() else FEW


@artifact("ferero/pictures")
def pictures(a: Artifact) -> None:
    """Samples of the data sets (ours)."""
    fig, axes = st.panels(3, 8, size=1.25)
    fig.suptitle("above each picture: its two labels")
    lines = []
    for row, key in enumerate(SETS):
        job = a.jobs[f"{key}_ferero"]
        problem = MultiMNIST(**{k: v for k, v in job.config["problem"].items() if k != "_target_"})
        data = problem.images
        for column, ax in enumerate(axes[row]):
            ax.imshow(data.train[column].numpy(), cmap="gray_r", vmin=0, vmax=255)
            ax.set_title(" ".join(str(int(v)) for v in data.train_labels[column]), fontsize=7)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
        axes[row, 0].set_ylabel(titled(a, key, job), fontsize=7)
        counts = np.stack([np.bincount(data.train_labels[:, t], minlength=10) for t in (0, 1)])
        lines.append(
            {
                "in place of" if data.embedded else "data set": SETS[key],
                "pictures": data.label,
                "train": len(data.train),
                "test": len(data.test),
                "smallest class": int(counts.min()),
                "largest class": int(counts.max()),
                "sha256": data.digest[:16],
            }
        )
        same = Equal({"now": data.digest}, {"now": job.meta["data_sha256"]}, what="sha256")
        a.check("{key}-data", same.also(data.digest[:16]), key=key, name=SETS[key])
    a.figure(fig)
    a.table(lines)
    a.note(
        "Rows: Multi-MNIST, Multi-Fashion, Multi-F+M or what stands for them; titles: labels of both tasks."
    )
