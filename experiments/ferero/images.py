"""FERERO's artifacts on images: Figures 5 and 6, Tables 2, 8 and 9. Criteria are the specification's.

The published numbers belong to Multi-MNIST, Multi-Fashion and Multi-Fashion+MNIST at paper scale; on other
pictures, and at other scales, claims are inconclusive (mobench.artifacts). Every method has five seeds, the
paper FERERO alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.published import published
from mobench.artifacts.statistics import Mean, finite_mean, std
from mobench.metrics import hypervolume
from mobench.problems import MultiMNIST

SETS = {"mm": "Multi-MNIST", "mf": "Multi-Fashion", "fm": "Multi-F+M"}
PICTURES = {  # as jobs name them
    "mm": "overlapping pairs: MNIST",
    "mf": "overlapping pairs: Fashion-MNIST",
    "fm": "overlapping pairs: MNIST (upper left) and Fashion-MNIST (lower right)",
}
METHODS = {"ls": "LS", "pmtl": "PMTL", "epo": "EPO", "ferero": "FERERO"}
MARKERS = {"ls": "s", "pmtl": "^", "epo": "*", "ferero": "X", "XWC-MGDA": "P"}
RAYS = ("orange ray 22.5 deg", "green ray 45 deg", "red ray 67.5 deg")
COLOURS = (st.ORANGE, st.GREEN, st.RED)
ANGLES = (22.5, 45.0, 67.5)
FEW = "no interval from fewer than three"
MEASURES = ("loss", "accuracy")
STEP_SIZE_NOTE = (
    "FERERO asks for a rate, B_h J d = -c_h H, and gets it to first order only: where a step is not small "
    "against the curvature, gradients are dominated by what oscillates, losses fall slower than J d says, "
    "and runs stay off their lines. The exact subproblem does so as well (docs/architecture.md, "
    "Known limits)."
)
# "Multi-Fashion accuracy" of Table 9 repeats the losses' row and would make every hypervolume 0. This one was
# fitted: with it the drawn points give 1.14 where Table 2 prints 1.17. A value computed with it cannot be
# compared with the printed one.
FASHION_ACCURACY_NADIR = (0.70, 0.69)
FITTED = (
    "The printed reference point of this row repeats that of the losses, and gives 0; the one used here was "
    "fitted to the printed value, so that comparing with that value decides nothing. Decided by: the "
    "authors' reference point, which is not published."
)


@dataclass(frozen=True)
class Panel:
    """One data set of the figure: its jobs by method, and the two single-task jobs."""

    key: str
    jobs: dict[str, JobRows]
    single: tuple[JobRows, JobRows]

    @property
    def name(self) -> str:
        """Name in the paper."""
        return SETS[self.key]

    @cached_property
    def embedded(self) -> bool:
        """Whether the pictures are the stand-ins that come with the project."""
        return bool(self.jobs["ferero"].meta["embedded"])

    @property
    def data(self) -> str:
        """What the pictures are."""
        return str(self.jobs["ferero"].data)

    def paper(self, a: Artifact) -> bool:
        """Whether the published numbers are about these runs."""
        return a.scale == "paper" and self.data == PICTURES[self.key]

    def of(self, *methods: str) -> list[str]:
        """Names of some methods' jobs."""
        return [f"{self.key}_{m}" for m in methods]

    def points(self, method: str, measure: str) -> np.ndarray:
        """(preferences, seeds, 2) test losses or accuracies, in the order of the rays;
        NaN where a run was lost.
        """
        rows = self.jobs[method].final.sort_values(["ray_2", "seed"], kind="stable")
        rays = rows["ray_1"].round(9).nunique()
        seeds = rows["seed"].nunique()
        out = np.full((rays, seeds, 2), np.nan)
        good = (rows["status"] == "done").to_numpy().reshape(rays, seeds)
        for m in (0, 1):
            out[..., m] = rows[f"test_{measure}_{m + 1}"].to_numpy().reshape(rays, seeds)
        return np.where(good[..., None], out, np.nan)

    def alone(self, measure: str) -> np.ndarray:
        """(2, seeds): what a network for one task reaches; NaN where a run was lost."""
        rows = [job.final.sort_values("seed") for job in self.single]
        return np.stack([r[f"test_{measure}_1"].where(r["status"] == "done").to_numpy() for r in rows])


@contextmanager
def pictures_of(a: Artifact, key: str) -> Iterator[None]:
    """Claims in this block are about one of the data sets: the pictures of another one do not judge them."""
    whole = a.paper
    a.paper = replace(whole, data=(PICTURES[key],))
    try:
        yield
    finally:
        a.paper = whole


def panels(a: Artifact) -> list[Panel]:
    """The data sets of an artifact."""
    found = []
    for key in SETS:
        jobs = {m: a.jobs[f"{key}_{m}"] for m in METHODS if f"{key}_{m}" in a.jobs}
        found.append(Panel(key, jobs, (a.jobs[f"{key}_single1"], a.jobs[f"{key}_single2"])))
    return found


def quoted(panel: Panel, measure: str, method: str) -> np.ndarray:
    """Published points (3, 2), read from the vector figures of the public code."""
    rows = published("ferero/fig5_points").rows
    rows = rows[(rows["row"] == f"{panel.name} {measure}") & (rows["column"] == method)]
    value = dict(zip(rows["metric"], rows["value"].astype(float), strict=True))
    return np.array([[value[f"{ray} objective {m}"] for m in (1, 2)] for ray in RAYS])


def titled(name: str, embedded: bool, paper: bool) -> str:
    """A data set's name, or what the pictures are to it."""
    return name if paper else f"in place of {name}" if embedded else f"{name}, smaller scale"


@artifact("ferero/fig5")
def fig5(a: Artifact) -> None:
    """Test losses and accuracies of four methods at three preferences, three data sets."""
    shown = panels(a)
    fig, axes = st.panels(2, 3, size=3.1)
    for column, panel in enumerate(shown):
        for row, measure in enumerate(MEASURES):
            _draw(axes[row, column], panel, measure, panel.paper(a))
        axes[0, column].set_title(titled(panel.name, panel.embedded, panel.paper(a)), fontsize=9)
    ax = axes[0, 0]
    handles = [
        ax.plot([], [], ls="", marker=MARKERS[m], color=st.GREY, label=name)[0] for m, name in METHODS.items()
    ]
    for colour, degrees in zip(COLOURS, ANGLES, strict=True):
        handles += ax.plot([], [], ls="", marker="o", color=colour, label=f"ray {degrees:g}°")
    handles += ax.plot([], [], color=st.GREY, lw=0.8, label="single task")
    fig.legend(handles=handles, loc="outside lower center", ncols=8, fontsize=8)
    a.figure(fig)
    a.table(
        _points_table(shown),
        given=(
            "data set",
            "pictures",
            "measure",
            "method",
            "preference",
            "published task 1",
            "published task 2",
        ),
    )
    for panel in shown:
        with pictures_of(a, panel.key):
            _single_task(a, panel)
            _near_published(a, panel)
            _ordered(a, panel)
            _spread(a, panel)
    _notes(a, shown)


def _draw(ax: Any, panel: Panel, measure: str, paper: bool) -> None:
    for m in METHODS:
        points = panel.points(m, measure)
        for k, colour in enumerate(COLOURS):
            ax.plot(*points[k].T, ls="", marker=MARKERS[m], ms=3, color=colour, alpha=0.35)
            ax.plot(
                *finite_mean(points[k], 0), ls="", marker=MARKERS[m], ms=7, color=colour, mec="k", mew=0.5
            )
            if paper and m == "ferero":
                ax.plot(*quoted(panel, measure, "FERERO")[k], ls="", marker="x", ms=7, color=colour)
    for task, line in enumerate((ax.axvline, ax.axhline)):
        line(finite_mean(panel.alone(measure)[task]), color=st.GREY, lw=0.8)
    if measure == "loss":
        _rays(ax, np.zeros(2))
    ax.set_xlabel(f"test {measure}, task 1")
    ax.set_ylabel(f"test {measure}, task 2")


def _rays(ax: Any, origin: np.ndarray) -> None:
    """The three preference rays from a point, in axes whose limits stay."""
    limits = ax.get_xlim(), ax.get_ylim()
    for degrees, colour in zip(ANGLES, COLOURS, strict=True):
        ray = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        ax.plot(*(origin[:, None] + np.outer(ray, [0, 100])), color=colour, lw=0.8, ls=":")
    ax.set_xlim(limits[0])
    ax.set_ylim(limits[1])


def _points_table(shown: list[Panel]) -> pd.DataFrame:
    rows = []
    for panel in shown:
        for measure in MEASURES:
            for m, name in METHODS.items():
                points = panel.points(m, measure)
                paper = quoted(panel, measure, name)
                for k, ray in enumerate(RAYS):
                    good = np.isfinite(points[k]).all(1)
                    rows.append(
                        {
                            "data set": panel.name,
                            "pictures": panel.data,
                            "measure": measure,
                            "method": name,
                            "preference": ray,
                            "task 1": finite_mean(points[k, :, 0]),
                            "std 1": std(points[k, good, 0]),
                            "task 2": finite_mean(points[k, :, 1]),
                            "std 2": std(points[k, good, 1]),
                            "published task 1": paper[k, 0],
                            "published task 2": paper[k, 1],
                            "runs": RunCount(int(good.sum()), points.shape[1]),
                        }
                    )
    return pd.DataFrame(rows)


def _single_task(a: Artifact, panel: Panel) -> None:
    rows = published("ferero/single_task").rows
    rows = rows[rows["row"] == panel.name]
    words = []
    good = True
    for m in (0, 1):
        for measure, tolerance in (("loss", 0.05), ("accuracy", 0.02)):
            found = rows[
                (rows["column"] == f"task {m + 1}") & (rows["metric"] == f"test {measure} after 100 epochs")
            ]
            paper = float(found["value"].iloc[0])
            ours = float(finite_mean(panel.alone(measure)[m]))
            words.append(f"task {m + 1} {measure} {ours:.4f} (published {paper:.4f})")
            good = good and abs(ours - paper) <= tolerance
    a.claim(
        f"{panel.key}-single-task",
        f"Single-task networks reach the published test losses and accuracies, {panel.name}",
        "Figure 5, gray lines (result files of the public code)",
        published="see measured",
        measured="; ".join(words),
        tolerance="loss 0.05, accuracy 0.02",
        holds=good,
        reason="" if good else "Likely: the pictures are of our own making (docs/corrections.md).",
        rests_on=panel.of("single1", "single2"),
    )


def _near_published(a: Artifact, panel: Panel) -> None:
    points = {m: panel.points("ferero", m) for m in MEASURES}
    gap = {m: float(np.abs(finite_mean(points[m], 1) - quoted(panel, m, "FERERO")).max()) for m in MEASURES}
    close = {"loss": gap["loss"] <= 0.06, "accuracy": gap["accuracy"] <= 0.025}
    a.claim(
        f"{panel.key}-points",
        f"FERERO's points are the published ones, {panel.name}",
        "Figure 5",
        published="points of the vector figures (one run)",
        measured=f"largest difference of a coordinate of the mean over seeds: loss {gap['loss']:.3f}, "
        f"accuracy {gap['accuracy']:.3f}",
        tolerance="loss 0.06, accuracy 0.025",
        holds=True if all(close.values()) else ("partial" if any(close.values()) else False),
        reason=f"Not near: {' and '.join(m for m in MEASURES if not close[m])}. The pictures are of our own "
        "making, as the public ones are no longer published."
        if not all(close.values())
        else "",
        interval="; ".join(f"{m} {_widest(points[m])}" for m in MEASURES),
        rests_on=panel.of("ferero"),
    )


def _widest(points: np.ndarray) -> str:
    """The widest 95 % t interval over seeds of a coordinate's mean; points (preferences, seeds, 2)."""
    widths = []
    for values in points.transpose(0, 2, 1).reshape(-1, points.shape[1]):
        good = values[np.isfinite(values)]
        if len(good) < 3:
            return FEW
        widths.append(stats.t.ppf(0.975, len(good) - 1) * std(good) / np.sqrt(len(good)))
    return f"± {max(widths):.2g}"


def polar(panel: Panel, method: str) -> np.ndarray:
    """Angle of the test losses in degrees (preferences, seeds)."""
    points = panel.points(method, "loss")
    return np.degrees(np.arctan2(points[..., 1], points[..., 0]))


def _ordered(a: Artifact, panel: Panel) -> None:
    points = finite_mean(panel.points("ferero", "loss"), 1)
    a.claim(
        f"{panel.key}-ordered",
        f"FERERO's three points are ordered as their preferences, {panel.name}",
        "Figure 5",
        published="f_1 falls and f_2 rises from the orange to the red ray",
        measured="mean test losses over seeds " + ", ".join(f"({x:.3f}, {y:.3f})" for x, y in points),
        tolerance="strictly, for the means over seeds",
        holds=bool(np.all(np.diff(points[:, 0]) < 0) and np.all(np.diff(points[:, 1]) > 0)),
        reason=STEP_SIZE_NOTE,
        interval=_widest(panel.points("ferero", "loss")),
        rests_on=panel.of("ferero"),
    )
    means = {m: finite_mean(polar(panel, m), 1) for m in METHODS}
    wrong = [METHODS[m] for m, v in means.items() if not np.all(np.diff(v) > 0)]
    a.check(
        f"{panel.key}-picture",
        "The preference moves the solutions of every method along the trade-off, "
        f"{panel.name} ({panel.data})",
        measured="mean angle of the test losses at rays of 22.5, 45 and 67.5 degrees: "
        + "; ".join(f"{METHODS[m]} {', '.join(f'{x:.0f}' for x in v)}" for m, v in means.items()),
        tolerance="rising for every method",
        holds=not wrong if panel.paper(a) else None,
        reason=f"Not rising: {', '.join(wrong)}." if panel.paper(a) else f"{SEEN} Decided by: {a.decides}.",
    )


SEEN = "Stated after the first runs at laptop scale had been seen, which are therefore no evidence."


def _spread(a: Artifact, panel: Panel) -> None:
    off = {m: float(finite_mean(np.abs(polar(panel, m) - np.array(ANGLES)[:, None]))) for m in METHODS}
    a.check(
        f"{panel.key}-rays",
        "FERERO's points are nearer to their preference rays than those of LS and PMTL, "
        f"{panel.name} ({panel.data})",
        measured="mean |angle to the ray| of the test losses: "
        + ", ".join(f"{METHODS[m]} {v:.1f}°" for m, v in off.items()),
        tolerance="FERERO <= LS and PMTL",
        holds=off["ferero"] <= min(off["ls"], off["pmtl"]) if panel.paper(a) else None,
        reason="The paper says that all methods end far from rays that cannot be attained; nor does FERERO "
        "come nearer here."
        if panel.paper(a)
        else f"{SEEN} Decided by: {a.decides}.",
    )
    width = {
        m: float(np.ptp(finite_mean(panel.points(m, "loss"), 1), axis=0).max()) for m in ("epo", "ferero")
    }
    drawn = {m: float(np.ptp(quoted(panel, "loss", METHODS[m]), axis=0).max()) for m in width}
    a.claim(
        f"{panel.key}-spread",
        f"FERERO's points lie closer together than EPO's, {panel.name}",
        "Figure 5, loss panel, as drawn",
        published=f"largest range of a coordinate: FERERO {drawn['ferero']:.3f}, EPO {drawn['epo']:.3f}",
        measured=f"largest range of a coordinate of the means over seeds: FERERO {width['ferero']:.3f}, EPO "
        f"{width['epo']:.3f}",
        tolerance="smaller",
        holds=width["ferero"] < width["epo"],
        reason=STEP_SIZE_NOTE,
        interval=_widest(panel.points("ferero", "loss")),
        rests_on=panel.of("ferero", "epo"),
    )


def _notes(a: Artifact, shown: list[Panel]) -> None:
    if not all(panel.paper(a) for panel in shown):
        sets = "; ".join(f"in place of {p.name}: {p.data}" for p in shown)
        config = shown[0].jobs["ferero"].config
        a.note(
            f"Not the paper's data or scale: {sets}. Network {config['problem']['model']}, {config['steps']} "
            f"steps of {config['oracle']['batch_size']} pictures. The published numbers are shown, not "
            "compared. Step sizes, gamma, c_h and the white level of smaller scales were chosen by looking "
            "at runs that diverged or did not learn; in those runs FERERO was neither in order on all data "
            "sets nor nearer to its rays than LS and PMTL."
        )
    a.note(STEP_SIZE_NOTE)
    a.note(
        "Weights sum to 2 (EPO), 1.31 to 1.41 (LS) and 1 (PMTL, FERERO's simplex), as in the public code, "
        "and with them the effective step. Losses are test losses: the public code calls them training "
        "losses, and evaluates the test split. XWC-MGDA is quoted by the paper and was run by neither."
    )
    a.note(
        "Every method has the same seeds here (five at the paper's scale); the paper repeats FERERO alone."
    )


# tables


def reference(a: Artifact, panel: Panel, measure: str) -> tuple[np.ndarray, str]:
    """Nadir point of the hypervolumes: Table 9's where the published numbers apply,
    else ours from single tasks.
    """
    if panel.paper(a):
        return published_nadir(panel, measure), "Table 9"
    alone = finite_mean(panel.alone(measure), 1)
    return (
        (3.0 * alone, "3 x single-task loss")
        if measure == "loss"
        else (alone - 0.3, "single-task accuracy - 0.3")
    )


def published_nadir(panel: Panel, measure: str) -> np.ndarray:
    """Table 9, with its copying error replaced."""
    if panel.key == "mf" and measure == "accuracy":
        return np.array(FASHION_ACCURACY_NADIR)
    rows = published("ferero/table9").rows
    rows = rows[rows["row"] == f"{panel.name} {measure}"]
    return rows["value"].astype(float).to_numpy()


def volumes(panel: Panel, method: str, measure: str, nadir: np.ndarray) -> np.ndarray:
    """Hypervolume x 100 of each seed's points (seeds,); NaN without a reference point."""
    sign = 1.0 if measure == "loss" else -1.0
    points = sign * panel.points(method, measure)
    if not np.isfinite(nadir).all():  # no single-task network finished
        return np.full(points.shape[1], np.nan)
    point = tuple(float(v) for v in sign * nadir)
    good = [points[:, s][np.isfinite(points[:, s]).all(1)] for s in range(points.shape[1])]
    return np.array([100.0 * hypervolume(p, point) if len(p) else 0.0 for p in good])


@artifact("ferero/table2")
def table2(a: Artifact) -> None:
    """Hypervolumes of three points, measured and quoted columns apart."""
    cells = published("ferero/table2").rows
    rows = []
    for panel in panels(a):
        for measure in MEASURES:
            nadir, origin = reference(a, panel, measure)
            found = {m: volumes(panel, m, measure, nadir) for m in METHODS}
            line: dict[str, Any] = {
                "data set": f"{panel.name} {measure}",
                "pictures": panel.data,
                "reference": origin,
            }
            for m, name in METHODS.items():
                points = np.isfinite(panel.points(m, measure)).all(2)
                line[name] = (
                    f"{found[m].mean():.3g} ± {std(found[m]):.2g}"
                    + RunCount(int(points.sum()), points.size).short
                )
            block = (
                cells[cells["row"] == f"{panel.name} {measure}"].set_index("column")["value"].astype(float)
            )
            for name in ("LS", "PMTL", "EPO", "XWC-MGDA", "FERERO"):
                line[f"{name}, printed"] = block[name]
            rows.append(line)
            with pictures_of(a, panel.key):
                _hypervolume_claims(a, panel, measure, found)
    a.table(pd.DataFrame(rows))
    a.note(
        "Hypervolumes times 100, of the three points of each seed; mean and standard deviation over seeds. "
        "Printed columns: only FERERO's was measured by the authors; the others are quoted there from "
        "another paper, and fit another reference point or protocol than Table 9's (drawn points give other "
        "values)."
    )
    a.note(
        "Reference points of our own (3 x single-task loss, single-task accuracy - 0.3) were fixed before "
        "the first run."
    )


def _hypervolume_claims(a: Artifact, panel: Panel, measure: str, found: dict[str, np.ndarray]) -> None:
    ours = found["ferero"]
    name = f"{panel.name} {measure}"
    cells = published("ferero/table2").rows
    row = cells[cells["row"] == name].set_index("column")
    mean, spread = (float(str(row.loc["FERERO", column])) for column in ("value", "std"))
    key_row = (panel.key, measure)
    fitted = panel.paper(a) and key_row == ("mf", "accuracy")
    a.claim(
        f"{panel.key}-{measure}-value",
        f"FERERO's hypervolume is the printed one, {name}",
        "Table 2",
        published=f"{mean:g} ± {spread:g}",
        measured=str(Mean(ours)),
        tolerance="printed mean ± 3 printed standard deviations",
        holds=None if fitted else abs(ours.mean() - mean) <= 3 * spread,
        reason=FITTED
        if fitted
        else "Pictures of our own making, as the public ones are no longer published; hypervolumes depend "
        "on a few hundredths of a loss.",
        interval=str(Mean(ours)) if len(ours) > 2 else FEW,
        rests_on=panel.of("ferero"),
    )
    words = []
    wins = []
    sure = []
    rivals = ("ls", "pmtl", "epo")
    for m in rivals:
        gap = ours - found[m] if len(ours) == len(found[m]) else np.array([ours.mean() - found[m].mean()])
        wins.append(bool(gap.mean() > 0))
        low = gap.mean() - (
            stats.t.ppf(0.975, len(gap) - 1) * std(gap) / np.sqrt(len(gap)) if len(gap) > 1 else np.inf
        )
        sure.append(bool(low > 0))
        words.append(f"against {METHODS[m]} {Mean(gap)}")
    behind = [METHODS[m] for m, win in zip(rivals, wins, strict=True) if not win]
    unsure = [METHODS[m] for m, win, clear in zip(rivals, wins, sure, strict=True) if win and not clear]
    printed = ", ".join(
        f"{METHODS[m]} {float(str(row.loc[METHODS[m], 'value'])):g}" for m in ("ferero", *rivals)
    )
    a.claim(
        f"{panel.key}-{measure}-larger",
        f"FERERO's hypervolume is larger than those of LS, PMTL and EPO, {name}",
        "Table 2",
        published=printed,
        measured=f"difference of hypervolumes x 100, paired over {len(ours)} seeds: " + "; ".join(words),
        tolerance="means larger, and 95 % intervals of the paired differences above 0; partial if larger "
        "than some, or not surely",
        holds=True if all(sure) else ("partial" if any(wins) else False),
        reason=(f"Not larger than: {', '.join(behind)}. " if behind else "")
        + (f"Larger, but not surely: {', '.join(unsure)}. " if unsure else "")
        + ("The reference point of this row is fitted (Table 9 repeats the losses' row). " if fitted else "")
        + "The printed baselines are quoted from another paper, with another reference point or protocol."
        + (
            " Of the runs that are drawn in Figure 5, PMTL's have the larger one."
            if key_row == ("fm", "loss")
            else ""
        ),
        interval="; ".join(words) if len(ours) > 2 else FEW,
        rests_on=panel.of("ferero", *rivals),
    )


@artifact("ferero/table9")
def table9(a: Artifact) -> None:
    """Nadir points: printed, corrected, and ours from single-task networks."""
    rows = []
    for panel in panels(a):
        for measure in MEASURES:
            cells = published("ferero/table9").rows
            printed = cells[cells["row"] == f"{panel.name} {measure}"]["value"].astype(float).to_numpy()
            used = published_nadir(panel, measure)
            alone = finite_mean(panel.alone(measure), 1)
            ours = reference(a, panel, measure)[0]
            rows.append(
                {
                    "data set": f"{panel.name} {measure}",
                    "printed": f"({printed[0]:g}, {printed[1]:g})",
                    "used with published points": f"({used[0]:g}, {used[1]:g})",
                    "our single-task networks": f"({alone[0]:.3f}, {alone[1]:.3f})",
                    "reference of this run": f"({ours[0]:.3f}, {ours[1]:.3f})",
                    "pictures": panel.data,
                    "runs": panel.single[0].runs + panel.single[1].runs,
                }
            )
    a.table(pd.DataFrame(rows), given=("data set", "printed", "used with published points", "pictures"))
    zero = 100 * hypervolume(-_points_of("Multi-Fashion accuracy"), (-0.84, -0.80))
    fixed = 100 * hypervolume(
        -_points_of("Multi-Fashion accuracy"), tuple(-v for v in FASHION_ACCURACY_NADIR)
    )
    a.claim(
        "copied-row",
        "The printed nadir point of Multi-Fashion accuracy gives the printed hypervolume",
        "Table 9 with Table 2",
        published="(0.84, 0.80) and 1.17 ± 0.07",
        measured=f"the published points give {zero:.2f} with it, {fixed:.2f} with {FASHION_ACCURACY_NADIR}",
        tolerance="within 3 standard deviations",
        holds=abs(zero - 1.17) <= 0.21,
        reason="The row repeats that of the losses, which no accuracy reaches. The second point was fitted "
        "to the printed value.",
        any_scale=True,
        rests_on=(),
    )


def _points_of(row: str) -> np.ndarray:
    """FERERO's published points of one panel (3, 2)."""
    rows = published("ferero/fig5_points").rows
    rows = rows[(rows["row"] == row) & (rows["column"] == "FERERO")]
    return rows["value"].astype(float).to_numpy().reshape(3, 2)


@artifact("ferero/table8")
def table8(a: Artifact) -> None:
    """Hyper-parameters of the image experiments, from the configurations of the runs."""
    values = published("ferero/table8").rows.to_dict("records")
    keys = {"Multi-MNIST": "mm", "Multi-Fashion": "mf", "Multi-Fashion+MNIST": "fm"}
    rows = []
    differ = []
    for cell in values:
        job = a.jobs[f"{keys[cell['row']]}_{cell['column'].lower()}"]
        ours = _setting(job, cell["metric"])
        metric = cell["metric"]
        same = abs(ours - float(cell["value"])) <= 1e-9 + 2e-3 * (metric == "epochs") * ours
        rows.append(
            {
                "data set": cell["row"],
                "method": cell["column"],
                "parameter": metric,
                "published": float(cell["value"]),
                "ours": ours,
                "equal": "yes" if same else "no",
            }
        )
        if not same:
            differ.append(f"{cell['column']} {metric} {float(cell['value']):g} -> {ours:g}")
    a.table(pd.DataFrame(rows))
    a.claim(
        "settings-equal",
        "The figure was made with the printed hyper-parameters",
        "Table 8",
        published=f"{len(rows)} settings",
        measured=f"{len(rows) - len(differ)} of {len(rows)} equal"
        + (f"; {', '.join(dict.fromkeys(differ))}" if differ else ""),
        tolerance="exact (epochs: to one batch)",
        holds=not differ,
        reason=f"Of our own: {', '.join(dict.fromkeys(differ))}." if differ else "",
    )
    a.note(
        "gamma = 1e-4 as printed; the public code has 1e-5 (algorithm=ferero_public_code runs what it does)."
    )


def _setting(job: JobRows, metric: str) -> float:
    """A value of Table 8 as the job's configuration has it."""
    if metric == "epochs":
        size = int(job.meta["train_size"])
        return float(job.config["steps"]) / np.ceil(size / job.config["oracle"]["batch_size"])
    return float(job.config["algorithm"][{"alpha": "step_size"}.get(metric, metric)])


@artifact("ferero/pictures")
def pictures(a: Artifact) -> None:
    """Samples of the data sets (ours)."""
    fig, axes = st.panels(3, 8, size=1.25)
    rows = []
    for row, key in enumerate(SETS):
        job = a.jobs[f"{key}_ferero"]
        problem = MultiMNIST(**{k: v for k, v in job.config["problem"].items() if k != "_target_"})
        data = problem.images
        for column, ax in enumerate(axes[row]):
            ax.imshow(data.train[column].numpy(), cmap="gray_r", vmin=0, vmax=255)
            ax.set_title(" ".join(str(int(v)) for v in data.train_labels[column]), fontsize=7)
            ax.set_axis_off()
        counts = np.stack([np.bincount(data.train_labels[:, t], minlength=10) for t in (0, 1)])
        rows.append(
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
        a.check(
            f"{key}-data",
            f"The pictures of the runs are those shown, {SETS[key]}",
            measured=f"sha256 {data.digest[:16]} now, {job.meta['data_sha256'][:16]} in the run",
            tolerance="equal",
            holds=data.digest == job.meta["data_sha256"],
            any_scale=True,
        )
    a.figure(fig)
    a.table(pd.DataFrame(rows))
    a.note(
        "Rows: Multi-MNIST, Multi-Fashion, Multi-F+M or what stands for them; titles: labels of both tasks."
    )


@dataclass(frozen=True)
class Lines:
    """Runs along shifted rays on one data set: losses at the warm start and at the end
    (preferences, seeds, 2).
    """

    key: str
    job: JobRows

    @property
    def warm(self) -> int:
        """Steps of the warm start."""
        return int(self.job.config["algorithm"]["warm_steps"])

    @cached_property
    def through(self) -> np.ndarray:
        """The point of the lines."""
        return np.array(self.job.config["algorithm"]["line_through"], dtype=float)

    def at(self, step: int, name: str = "f") -> np.ndarray:
        """Recorded losses of the step that is nearest to `step`."""
        rows = self.job.history
        chosen = rows["step"].unique()[np.abs(rows["step"].unique() - step).argmin()]
        rows = rows[rows["step"] == chosen].sort_values("run")
        shape = (len(ANGLES), rows["seed"].nunique(), 2)
        return rows[[f"{name}_1", f"{name}_2"]].to_numpy().reshape(shape)


def to_lines(F: np.ndarray, through: np.ndarray) -> np.ndarray:
    """Distance of points (preferences, seeds, 2) to the lines along the three rays."""
    v = np.stack([np.cos(np.radians(ANGLES)), np.sin(np.radians(ANGLES))], 1)[:, None]
    gap = F - through
    return np.abs(gap[..., 0] * v[..., 1] - gap[..., 1] * v[..., 0])


@artifact("ferero/fig6")
def fig6(a: Artifact) -> None:
    """Training losses along three shifted rays, from a warm start near the front."""
    fig, axes = st.panels(1, 3, size=3.2)
    rows = []
    for ax, key in zip(axes[0], SETS, strict=True):
        lines = Lines(key, a.jobs[f"{key}_lines"])
        plain = a.jobs[f"{key}_ferero"]
        start = lines.at(lines.warm)
        end = lines.at(10**9)
        name = titled(SETS[key], plain.meta["embedded"], a.scale == "paper" and plain.data == PICTURES[key])
        for k, (degrees, colour) in enumerate(zip(ANGLES, COLOURS, strict=True)):
            steps = np.unique(lines.job.history["step"])
            path = finite_mean(np.stack([lines.at(s)[k] for s in steps if s >= lines.warm]), 1)
            ax.plot(*path.T, "-", color=colour, lw=0.8)
            ax.plot(*end[k].T, ls="", marker="X", ms=4, color=colour, alpha=0.5)
            ax.plot(
                *finite_mean(end[k], 0),
                ls="",
                marker="X",
                ms=8,
                color=colour,
                mec="k",
                mew=0.5,
                label=f"ray {degrees:g}°",
            )
        ax.plot(*finite_mean(start, (0, 1)), "o", color=st.BLACK, ms=6, label="warm start (mean)")
        ax.plot(*lines.through, "+", color=st.BLACK, ms=8, label="point of the lines")
        _rays(ax, lines.through)
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("training loss, task 1")
        ax.set_ylabel("training loss, task 2")
        to_line = finite_mean(to_lines(end, lines.through), 0)
        to_ray = _plain_distances(plain)
        reach = float(finite_mean(to_line))
        usual = float(finite_mean(to_ray))
        rises = (finite_mean(end, 1) - finite_mean(start, 1)).max(1)
        rows.append({"data set": SETS[key], "pictures": plain.meta["data"], "distance to the lines": reach,
                     "FERERO of Figure 5 to its rays": usual, "largest rise of a loss": float(rises.max()),
                     "runs": lines.job.runs + plain.runs})  # fmt: skip
        with pictures_of(a, key):
            _line_claims(a, key, to_line, to_ray, rises)
    axes[0, 0].legend(fontsize=7)
    a.figure(fig)
    a.table(pd.DataFrame(rows), given=("data set", "pictures"))
    a.note(
        "No settings of Figure 6 are printed. Ours: uniform descent first, then Algorithm 3 with the cone of "
        "Figure 4 along the rays through 0.9 times the single-task test losses. Training losses, mean over "
        "seeds."
    )
    a.note(STEP_SIZE_NOTE)


def _plain_distances(job: JobRows) -> np.ndarray:
    """Distance of the training losses of Figure 5's FERERO runs to their rays,
    mean over preferences (seeds,).
    """
    rows = job.final.sort_values(["ray_2", "seed"], kind="stable")
    F = rows[["f_1", "f_2"]].to_numpy().reshape(len(ANGLES), -1, 2)
    good = (rows["status"] == "done").to_numpy().reshape(len(ANGLES), -1)
    return np.asarray(finite_mean(np.where(good, to_lines(F, np.zeros(2)), np.nan), 0))


def _line_claims(a: Artifact, key: str, to_line: np.ndarray, to_ray: np.ndarray, rises: np.ndarray) -> None:
    """`to_line`, `to_ray`: distances of each seed's runs; `rises`:
    largest rise of a mean loss by preference.
    """
    reach = float(finite_mean(to_line))
    usual = float(finite_mean(to_ray))
    gap = to_ray - to_line
    gap = gap[np.isfinite(gap)]
    low = (
        gap.mean() - stats.t.ppf(0.975, len(gap) - 1) * std(gap) / np.sqrt(len(gap))
        if len(gap) > 2
        else -np.inf
    )
    a.claim(
        f"{key}-reach",
        "From near the front FERERO aligns better with flexible preference lines than with the rays of "
        f"Figure 5, {SETS[key]}",
        "Figure 6, Section 5.2",
        published="aligns better with the preference lines compared to Figure 5",
        measured=f"mean distance to the lines {reach:.3f}; of Figure 5's runs to their rays {usual:.3f}",
        tolerance="smaller, and a 95 % interval of the difference, paired over seeds, above 0; partial if "
        "smaller, but not surely",
        holds=True if low > 0 else ("partial" if reach < usual else False),
        reason="The lines, the warm start and its length are ours (none is printed). " + STEP_SIZE_NOTE,
        rests_on=(f"{key}_lines", f"{key}_ferero"),
    )
    up = [f"{degrees:g}°" for degrees, rise in zip(ANGLES, rises, strict=True) if rise > 0]
    a.claim(
        f"{key}-ascent",
        f"An objective rises on the way where the line asks for it (controlled ascent), {SETS[key]}",
        "Figure 6, Section 5.2",
        published="can perform controlled ascent updates during optimization",
        measured="largest rise of a mean training loss over its value at the warm start, by preference: "
        + ", ".join(f"{rise:+.3f}" for rise in rises),
        tolerance="above 0 for one preference at least",
        holds=bool(rises.max() > 0),
        reason="After the warm start every loss still falls on the way to its line."
        if not up
        else f"Rises at {', '.join(up)}.",
        rests_on=(f"{key}_lines",),
    )
