"""Few-shot meta-learning of the bilevel paper: Figures 1, 2, 4 to 8.

Criteria were fixed before the runs that they judge.

"Training" accuracy is that of w_s on the query set D_s (the upper level's), "test" accuracy that on other
images T_s of the same classes, both at the (x, y_D) that the method has after its last step. Claims are
orderings of accuracies. An accuracy is at most 100 %: where all runs are there, nothing is larger than
anything, and a claim that something is does not hold.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.radar import draw_hull, draw_polygon, hull, limits, polygon_area, radar_axes

from .mobl_rows import COLOURS, HULL, Effect, Tasks, band, by_seed, cause, interval, mean_error

NEAR = 2.0  # percentage points within which an accuracy counts as nearly the highest
STEP = 1.0  # percentage points up to which a difference of accuracies counts as none
CLOSE = 3.0  # percentage points within which two accuracies differ little
COUNTS = f"by more than {STEP:g} pp and outside the 95 % interval over seeds; flat is not reproduced"


@dataclass(frozen=True)
class FewShot(Tasks):
    """One job of few-shot learning."""

    @property
    def S(self) -> int:
        return int(self.rows.config["problem"]["tasks"])


def polygons(job: FewShot, prefix: str = "train_accuracy_") -> tuple[np.ndarray, np.ndarray]:
    """(preferences, S) means and standard errors over seeds; row k prefers task k."""
    found = [mean_error(job.ends(prefix, job.runs(task))) for task in range(job.S)]
    return np.stack([m for m, _ in found]), np.stack([e for _, e in found])


def labels(S: int) -> list[str]:
    """Axes of a radar chart."""
    return [f"task {s + 1}" for s in range(S)]


def _notes(a: Artifact, job: FewShot) -> None:
    a.note(
        "Training accuracy: on the query set of the upper level; test accuracy: "
        "on other images of the same classes."
    )
    a.note("Episodes are fixed for a seed; batch normalisation uses the statistics of each set.")
    if not a.on_papers_data():
        a.note(
            f"Images: {job.data}. `data=cifar100 scale=paper` runs FC-100's classes at the paper's settings."
        )


def _radar(fig: Any, position: Any, pref: FewShot, extreme: FewShot, prefix: str = "train_accuracy_") -> None:
    mean, error = polygons(pref, prefix)
    far, _ = polygons(extreme, prefix)
    low, high, ticks = limits(np.vstack([mean, far]))
    ax = radar_axes(fig, position, labels(pref.S), low, high, ticks)
    draw_hull(ax, hull(np.vstack([mean, far])), "covered")
    for s, color in enumerate(COLOURS):
        draw_polygon(ax, mean[s], f"$r_{s + 1} = .8$", color, error[s])
        draw_polygon(ax, far[s], f"$r_{s + 1} = .96$", color, ls="--", lw=0.9, ms=1.5)


def lead(job: FewShot, prefix: str) -> pd.Series:
    """For each seed: the preferred task's accuracy minus the mean of the others in the same run,
    mean of all preferences.
    """
    F = job.last[[f"{prefix}{s + 1}" for s in range(job.S)]].to_numpy(dtype=float)
    own = F[np.arange(len(F)), job.last["preferred"]]
    return by_seed(job.last.assign(lead=own - (F.sum(axis=1) - own) / (job.S - 1)), "lead")


def _preference_claims(a: Artifact, pref: FewShot, extreme: FewShot, source: str) -> None:
    for prefix, kind in (("train_accuracy_", "training"), ("test_accuracy_", "test")):
        mean, _ = polygons(pref, prefix)
        far, _ = polygons(extreme, prefix)
        # strictly, so that runs at 100 % do not count
        best = [bool(mean[s, s] > np.delete(mean[:, s], s).max()) for s in range(pref.S)]
        inside = [bool(mean[s, s] > np.delete(mean[s], s).max()) for s in range(pref.S)]
        parts = sum(best) >= 4, sum(inside) >= 4
        leads = lead(pref, prefix)
        why = []
        if any(parts) and not all(parts):
            why.append(f"It holds {'on the axes' if parts[0] else 'within the runs'} alone.")
        if not all(parts) and kind == "training":
            why.append(
                "Accuracies on the query sets, on which the network is trained, are near 100 % for all tasks."
            )
        if not all(parts) and kind == "test":
            why.append("Tasks differ in difficulty on new images by more than the preference moves them.")
        a.claim(
            f"preferred-{kind}",
            f"The preferred task has a higher {kind} accuracy than less preferred ones: on its axis the run "
            "that prefers it is the best of the five, and in its run it is the best of the tasks",
            source,
            published="consistently higher than those of the less preferred objectives",
            measured=f"on {sum(best)} of {len(best)} axes, in {sum(inside)} of {len(inside)} runs: "
            + ", ".join(
                f"{mean[s, s]:.1f} % (axis {np.delete(mean[:, s], s).max():.1f} %, run "
                f"{np.delete(mean[s], s).max():.1f} %)"
                for s in range(pref.S)
            ),
            tolerance=">= 4 of 5 axes, and >= 4 of 5 runs; higher, not equal",
            holds=all(parts) or ("partial" if any(parts) else False),
            reason=" ".join(why),
            interval="the preferred task's lead over the mean of the others, in pp: "
            f"{interval(leads.to_numpy(), '.1f')}",
            rests_on=("pref",),
        )
        further = Effect.between(leads, lead(extreme, prefix), STEP)
        eye = np.eye(pref.S, dtype=bool)
        a.claim(
            f"extreme-{kind}",
            f"With an extreme preference the preferred task leads the others by more ({kind} accuracy)",
            source,
            published="this trend becomes more pronounced",
            measured=f"lead over the mean of the others {leads.mean():.1f} pp with .8, "
            f"{lead(extreme, prefix).mean():.1f} pp with .96, difference {further.words('+.1f', ' pp')}; the "
            f"preferred task itself {np.diagonal(mean).mean():.1f} % and {np.diagonal(far).mean():.1f} %, "
            f"the others {mean[~eye].mean():.1f} % and {far[~eye].mean():.1f} %",
            tolerance=f"larger {COUNTS}",
            holds=further.grows,
            reason=cause(
                further.grows,
                "The preferred task is at its highest accuracy with .8 already, "
                "and the others do not fall behind.",
            ),
            interval=interval(further.values, "+.1f", " pp"),
            rests_on=("pref", "extreme"),
        )
    losses = polygons(pref, "f_")[0]
    lowest = [bool(losses[s, s] < np.delete(losses[:, s], s).min()) for s in range(pref.S)]
    a.check(
        "loss",
        "On each axis the run that prefers the task has the lowest upper-level loss (accuracies on D "
        "saturate)",
        measured=f"on {sum(lowest)} of {len(lowest)} axes: "
        + ", ".join(
            f"{losses[s, s]:.3f} (others {np.delete(losses[:, s], s).min():.3f})" for s in range(pref.S)
        ),
        tolerance="5 of 5 axes",
        holds=all(lowest),
        reason=cause(all(lowest), "The preference does not lower the loss of the preferred task."),
    )


def _area_claim(a: Artifact, pref: FewShot, extreme: FewShot, source: str) -> None:
    every = np.vstack([polygons(pref)[0], polygons(extreme)[0]]) / 100
    single = max(polygon_area(p) for p in every)
    covered = polygon_area(hull(every))
    larger = bool(covered >= HULL * single)
    a.claim(
        "covered",
        "Together the runs cover clearly more than any of them (training accuracy)",
        source,
        published="explores a large set",
        measured=f"area {covered:.3f}, largest single polygon {single:.3f}: {covered / single:.2f} times",
        tolerance=f"{HULL} times (a hull contains every polygon)",
        holds=larger,
        reason=cause(larger, "An accuracy is at most 1, and single runs are near it on all axes."),
        interval=f"ratio {interval(np.array(_ratios(pref, extreme)), '.2f')}",
        rests_on=("pref", "extreme"),
    )


def _ratios(pref: FewShot, extreme: FewShot) -> list[float]:
    """For each seed: area of the hull over that of the largest polygon, training accuracy."""
    found = []
    for seed in sorted(set(pref.last["seed"]) & set(extreme.last["seed"])):
        rows = [job.last[job.last["seed"] == seed] for job in (pref, extreme)]
        every = (
            np.vstack(
                [r[[f"train_accuracy_{s + 1}" for s in range(pref.S)]].to_numpy(dtype=float) for r in rows]
            )
            / 100
        )
        found.append(polygon_area(hull(every)) / max(polygon_area(p) for p in every))
    return found


@artifact("mobl/fig1")
def fig1(a: Artifact) -> None:
    """Training accuracies of five preferred and five extremely preferred runs."""
    pref = FewShot(a.jobs["pref"])
    extreme = FewShot(a.jobs["extreme"])
    fig = st.plt.figure(figsize=(11.4, 4.2), layout="constrained")
    for k, (prefix, title) in enumerate(
        (("train_accuracy_", "training accuracy, %"), ("test_accuracy_", "test accuracy, %"))
    ):
        _radar(fig, 131 + k, pref, extreme, prefix)
        fig.axes[-1].set_title(title, pad=14)
    low = 1.0 / np.stack([polygons(pref, "f_")[0], polygons(extreme, "f_")[0]])
    ax = fig.add_subplot(133)
    x = np.arange(pref.S)
    for k, (label, color) in enumerate((("r = .8", st.BLUE), ("r = .96", st.ORANGE))):
        ax.bar(x + (k - 0.5) * 0.38, np.diagonal(low[k]), 0.36, color=color, label=f"task preferred, {label}")
        others = (low[k].sum(axis=0) - np.diagonal(low[k])) / (pref.S - 1)
        ax.bar(
            x + (k - 0.5) * 0.38,
            others,
            0.36,
            color="white",
            alpha=0.75,
            edgecolor=color,
            lw=0.8,
            label="mean of the other four runs" if k == 1 else None,
        )
    ax.set_xticks(x, labels(pref.S))
    ax.set_yscale("log")
    ax.set_ylim(top=6 * float(np.fmax.reduce(low, axis=None)))
    ax.set_ylabel("1 / upper-level loss")
    ax.legend(loc="upper center")
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=6, fontsize=7)
    fig.suptitle(pref.data, fontsize=10)
    a.figure(fig)
    a.table(_accuracies({"r = .8": pref, "r = .96": extreme}), given=("preference", "preferred"))
    _preference_claims(a, pref, extreme, "Figure 1")
    _area_claim(a, pref, extreme, "Figure 1")
    _notes(a, pref)


def _accuracies(jobs: dict[str, FewShot]) -> pd.DataFrame:
    """Accuracies and losses on all axes, by preferred task, and the loss at the exact y*."""
    rows = []
    for name, job in jobs.items():
        for task in range(job.S):
            if not job.planned(task):
                continue
            runs = job.runs(task)
            train, test = (mean_error(job.ends(f"{k}_accuracy_", runs))[0] for k in ("train", "test"))
            loss = mean_error(job.ends("f_", runs))[0]
            exact = mean_error(job.solved("f_", runs))[0]
            line: dict[str, Any] = {"preference": name, "preferred": f"task {task + 1}"}
            line |= {
                f"train / test accuracy, task {s + 1}": f"{train[s]:.1f} / {test[s]:.1f}"
                for s in range(job.S)
            }
            line |= {"loss, preferred": f"{loss[task]:.4f}", "loss at y*, preferred": f"{exact[task]:.4f}"}
            line["loss, mean of the others"] = f"{np.delete(loss, task).mean():.4f}"
            line["runs"] = RunCount(len(runs), job.planned(task))
            rows.append(line)
    return pd.DataFrame(rows)


@artifact("mobl/fig2")
def fig2(a: Artifact) -> None:
    """Area covered by WC-MHGD's runs, and the polygons of MOML and FORUM."""
    pref = FewShot(a.jobs["pref"])
    extreme = FewShot(a.jobs["extreme"])
    others = {"MOML": "moml", "FORUM": "forum", "FORUM (exact dual)": "forum_exact"}
    jobs = {label: FewShot(a.jobs[name]) for label, name in others.items()}
    fig = st.plt.figure(figsize=(9.4, 4.6), layout="constrained")
    rows = []
    for k, (prefix, kind) in enumerate((("train_accuracy_", "training"), ("test_accuracy_", "test"))):
        every = np.vstack([polygons(pref, prefix)[0], polygons(extreme, prefix)[0]])
        lines = {label: mean_error(job.ends(prefix)) for label, job in jobs.items()}
        low, high, ticks = limits(np.vstack([every, *(m for m, _ in lines.values())]))
        ax = radar_axes(fig, 121 + k, labels(pref.S), low, high, ticks)
        draw_hull(ax, hull(every), "WC-MHGD, ten runs together")
        for i, p in enumerate(every):
            draw_polygon(ax, p, "WC-MHGD, single runs" if i == 0 else None, st.BLUE, lw=0.6, ms=0)
        for (label, (mean, error)), color in zip(lines.items(), (st.ORANGE, st.RED, st.PURPLE), strict=True):
            draw_polygon(ax, mean, label, color, error)
        ax.set_title(f"{kind} accuracy, %", pad=14)
        covered = polygon_area(hull(every) / 100)
        single = [polygon_area(p / 100) for p in every]
        areas = {label: polygon_area(mean / 100) for label, (mean, _) in lines.items()}
        solved = {label: polygon_area(job.solved(prefix).mean(axis=0) / 100) for label, job in jobs.items()}
        rows.append(
            {
                "accuracy": kind,
                "WC-MHGD, hull": covered,
                "WC-MHGD, single: largest": max(single),
                "WC-MHGD, single: median": float(np.median(single)),
                **areas,
                **{f"{label} at y*": area for label, area in solved.items()},
                "runs": sum((job.rows.runs for job in (pref, extreme, *jobs.values())), RunCount(0, 0)),
            }
        )
        for label in ("MOML", "FORUM"):
            a.claim(
                f"{label.lower()}-{kind}",
                f"WC-MHGD's runs together cover more than {label}'s run ({kind} accuracy)",
                "Figure 2",
                published="covers more",
                measured=f"hull {covered:.3f}, largest and median single run {max(single):.3f}, "
                f"{np.median(single):.3f}; {label} {areas[label]:.3f}"
                + (f" (exact dual {areas['FORUM (exact dual)']:.3f})" if label == "FORUM" else "")
                + f"; at the exact y*(x) {label} {solved[label]:.3f}",
                tolerance="hull larger",
                holds=bool(covered > areas[label]),
                reason="The hull of ten runs is compared with one run; single areas are beside it."
                + (
                    " FORUM moves y once in a step of x, and its accuracy is read there."
                    if label == "FORUM"
                    else ""
                ),
                interval=f"hull minus {label}: {interval(_excess(jobs[label], pref, extreme, prefix))}",
                rests_on=("pref", "extreme", others[label]),
            )
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7.5)
    fig.suptitle(pref.data, fontsize=10)
    a.figure(fig)
    a.table(pd.DataFrame(rows).round(4), given=("accuracy",))
    _notes(a, pref)
    a.note(
        "FORUM: the public code's program is drawn with the exact dual beside it; its variables are (x, y), "
        "one step size."
    )


def _excess(other: FewShot, pref: FewShot, extreme: FewShot, prefix: str) -> np.ndarray:
    """For each seed: area of the hull of all runs of WC-MHGD minus that of one run of another method."""
    names = [f"{prefix}{s + 1}" for s in range(pref.S)]
    found = []
    for seed, own in other.last.groupby("seed"):
        every = pd.concat([job.last[job.last["seed"] == seed] for job in (pref, extreme)])
        if len(every):
            areas = (
                polygon_area(rows[names].to_numpy(dtype=float).max(axis=0) / 100) for rows in (every, own)
            )
            found.append(next(areas) - next(areas))
    return np.array(found)


def _trade_off_radar(fig: Any, position: Any, job: FewShot) -> None:
    us = sorted(job.rows.final["trade_off"].unique())
    found = {u: mean_error(job.ends("train_accuracy_", job.runs(trade_off=u))) for u in us}
    low, high, ticks = limits(np.stack([m for m, _ in found.values()]))
    ax = radar_axes(fig, position, labels(job.S), low, high, ticks)
    for (u, (mean, error)), color in zip(found.items(), (st.GREY, st.SKY, st.BLUE, st.RED), strict=True):
        draw_polygon(ax, mean, f"$u = {u:g}$", color, error)


def _by_steps(a: Artifact, pref: FewShot) -> list[tuple[FewShot, list[int] | None]]:
    """The jobs that prefer task 1 with three numbers of inner steps."""
    return [(FewShot(a.jobs["d8"]), None), (FewShot(a.jobs["d16"]), None), (pref, pref.runs(0))]


@artifact("mobl/fig4")
def fig4(a: Artifact) -> None:
    """Preferences (a, as Figure 1), trade-off (b), inner steps (c)."""
    pref, extreme, trade = (FewShot(a.jobs[n]) for n in ("pref", "extreme", "trade_off"))
    fig = st.plt.figure(figsize=(11.4, 4.2), layout="constrained")
    _radar(fig, 131, pref, extreme)
    fig.axes[-1].set_title("(a) training accuracy, %", pad=14)
    fig.axes[-1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=4, fontsize=6.5)
    _trade_off_radar(fig, 132, trade)
    fig.axes[-1].set_title("(b) $r_1 = .96$, training accuracy, %", pad=14)
    fig.axes[-1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=4)
    ax = fig.add_subplot(133)
    areas = {}
    speeds = {}
    for (job, runs), color in zip(_by_steps(a, pref), (st.ORANGE, st.GREEN, st.BLUE), strict=True):
        steps, values = job.curve("train_accuracy", runs)
        band(ax, steps, values, f"$D = {job.D}$", color)
        speeds[job.D] = _per_seed(job, np.trapezoid(values, steps, axis=0) / steps[-1], runs)
        areas[job.D] = float(speeds[job.D].mean())
    ax.set_xlabel("outer step $k$")
    ax.set_ylabel("mean training accuracy, %")
    ax.set_title("(c) task 1 preferred")
    ax.legend(loc="lower right")
    fig.suptitle(pref.data, fontsize=10)
    a.figure(fig)
    shown = ("preferred-training", "extreme-training", "preferred-test", "extreme-test", "loss", "covered")
    a.refer("mobl/fig1", *shown)  # Figure 4a is a copy of Figure 1
    own = {
        u: mean_error(trade.ends("train_accuracy_", trade.runs(trade_off=u))[:, 0])
        for u in (1.0, 5.0, 10.0, 20.0)
    }
    effect = _by_trade_off(trade, "train_accuracy_1")(1.0, 20.0)
    focus = {u: trade.curve("lambda_1", trade.runs(trade_off=u))[1][1:].mean() for u in own}
    loss = {u: trade.ends("f_", trade.runs(trade_off=u))[:, 0].mean() for u in own}
    a.claim(
        "trade-off",
        "(b) The training accuracy of task 1 grows with u, r_1 = .96",
        "Figure 4b",
        published="a larger u leads to improved performance, u in {1, 5, 10, 20}",
        measured=", ".join(f"u = {u:g}: {m:.1f} %" for u, (m, _) in own.items())
        + f"; from u = 1 to 20 {effect.words('+.2f', ' pp')}; its loss "
        + ", ".join(f"{v:.4f}" for v in loss.values())
        + "; its mean weight "
        + ", ".join(f"{v:.2f}" for v in focus.values()),
        tolerance=COUNTS,
        holds=effect.grows,
        reason=cause(
            effect.grows,
            "A larger u puts more weight on task 1 while the run lasts, and its loss falls further; "
            "the accuracy saturates.",
        ),
        interval=interval(effect.values, "+.2f", " pp"),
        rests_on=("trade_off",),
    )
    order = sorted(areas)
    faster = Effect.between(speeds[order[0]], speeds[order[-1]], STEP)
    in_order = all(areas[n] >= areas[m] for m, n in itertools.pairwise(order))
    holds = None if faster.grows is None else faster.grows and in_order
    a.claim(
        "inner-steps",
        "(c) With more inner steps the mean accuracy grows faster (area under its curve)",
        "Figure 4c",
        published="a larger D results in faster convergence",
        measured=", ".join(f"D = {D}: {areas[D]:.1f} %" for D in order)
        + f"; largest minus smallest D {faster.words('+.1f', ' pp')}",
        tolerance=f"in order, and from the smallest to the largest D {COUNTS}",
        holds=holds,
        reason=cause(holds, "y is warm-started, so few inner steps track y*(x) almost as well as many."),
        interval=interval(faster.values, "+.1f", " pp"),
        rests_on=("pref", "d8", "d16"),
    )
    _notes(a, pref)


def _by_trade_off(job: FewShot, column: str) -> Any:
    """The effect on a column of going from one u to another."""

    def effect(first: float, last: float, near: float = STEP) -> Effect:
        less, more = (job.last[job.last["run"].isin(job.runs(trade_off=u))] for u in (first, last))
        return Effect.between(by_seed(less, column), by_seed(more, column), near)

    return effect


def _per_seed(job: FewShot, values: np.ndarray, runs: list[int] | None) -> pd.Series:
    """Of one value for each run, in the order of runs."""
    chosen = sorted(job.runs() if runs is None else runs)
    if not chosen:  # no run finished: one NaN, of no seed
        return pd.Series(values)
    seeds = job.final.set_index("run").loc[chosen, "seed"]
    return pd.Series(values, index=seeds.to_numpy())


@artifact("mobl/fig5")
def fig5(a: Artifact) -> None:
    """Training and test accuracies of all tasks under each of five preferences."""
    pref = FewShot(a.jobs["pref"])
    fig, axes = st.plt.subplots(1, 2, figsize=(10.4, 3.4), layout="constrained")
    for ax, (prefix, kind) in zip(
        axes, (("train_accuracy_", "training"), ("test_accuracy_", "test")), strict=True
    ):
        mean, error = polygons(pref, prefix)
        width = 0.8 / pref.S
        for s, color in enumerate(COLOURS):
            x = np.arange(pref.S) + (s - (pref.S - 1) / 2) * width
            bars = ax.bar(
                x,
                mean[:, s],
                width,
                color=color,
                label=f"task {s + 1}",
                yerr=np.nan_to_num(error[:, s]),
                error_kw={"elinewidth": 0.8},
            )
            bars[s].set_edgecolor(st.BLACK)
            bars[s].set_linewidth(1.2)
        ax.set_xticks(range(pref.S), [f"$r_{s + 1} = .8$" for s in range(pref.S)])
        ax.set_ylim(max(0.0, float(np.fmin.reduce(mean, axis=None)) - 12), 100.5)
        ax.set_ylabel(f"{kind} accuracy, %")
        ax.set_title(f"({'ab'[kind == 'test']})")
        near = [bool(mean[s, s] >= mean[s].max() - NEAR) for s in range(pref.S)]
        ahead = Effect(lead(pref, prefix).to_numpy(), STEP)
        parts = sum(near) >= 4, ahead.kind == "grows"
        difficulty = "Tasks differ in difficulty by more than the preference moves them."
        why = {
            (True, True): "",
            (True, False): "All tasks are nearly at the highest accuracy, so the preference shows nothing.",
            (
                False,
                True,
            ): f"It leads the mean of the others, but is not nearly the highest in 4 runs. {difficulty}",
            (False, False): difficulty,
        }
        a.claim(
            f"nearly-best-{kind}",
            f"The preferred task has the highest or nearly the highest {kind} accuracy, "
            "and leads the mean of the others",
            f"Figure 5{'ab'[kind == 'test']}",
            published="almost always the highest, or at least nearly the highest",
            measured=f"in {sum(near)} of {len(near)} runs: "
            + ", ".join(f"{mean[s, s]:.1f} % of at most {mean[s].max():.1f} %" for s in range(pref.S))
            + f"; lead {ahead.words('+.1f', ' pp')}",
            tolerance=f"within {NEAR:g} pp in >= 4 of 5; a lead {COUNTS}",
            holds=all(parts) or ("partial" if any(parts) else False),
            reason=why[parts],
            interval=f"lead, in pp: {interval(ahead.values, '+.1f')}",
        )
    axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    fig.suptitle(f"{pref.data}; the preferred task is outlined", fontsize=10)
    a.figure(fig)
    _notes(a, pref)


@artifact("mobl/fig6")
def fig6(a: Artifact) -> None:
    """Accuracy of the preferred task against k for several trade-offs."""
    job = FewShot(a.jobs["trade_off"])
    us = sorted(job.rows.final["trade_off"].unique())
    fig, axes = st.plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    columns = ("train_accuracy_1", "test_accuracy_1", "f_1")
    names = (
        "(a) training accuracy of task 1, %",
        "(b) test accuracy of task 1, %",
        "upper-level loss of task 1",
    )
    ends: dict[str, dict[float, tuple[float, float]]] = {}
    for ax, column, title in zip(axes, columns, names, strict=True):
        for u, color in zip(us, (st.GREY, st.SKY, st.BLUE, st.RED), strict=True):
            steps, values = job.curve(column, job.runs(trade_off=u))
            band(ax, steps, values, f"$u = {u:g}$", color, ls="--" if u == 0 else "-")
            m, e = mean_error(values[-1][:, None])
            ends.setdefault(column, {})[u] = float(m[0]), float(e[0])
        ax.set_xlabel("outer step $k$")
        ax.set_title(title)
    axes[2].set_yscale("log")
    axes[0].legend()
    fig.suptitle(f"{job.data}, $r_1 = .8$", fontsize=10)
    a.figure(fig)
    train, test, loss = (ends[c] for c in columns)
    words = ", ".join(f"u = {u:g}: {train[u][0]:.1f} %" for u in us)
    on_train, on_test = (_by_trade_off(job, column) for column in columns[:2])
    gains = {u: on_train(1.0, u) for u in (10.0, 20.0)}
    better = [u for u, gain in gains.items() if gain.kind == "grows"]
    a.claim(
        "larger",
        "(a) u = 10 and u = 20 are better than u = 1 (training accuracy of task 1)",
        "Figure 6a",
        published="indeed better than those when u = 1",
        measured=f"{words}; over u = 1 "
        + ", ".join(f"u = {u:g}: {gain.words('+.1f', ' pp')}" for u, gain in gains.items())
        + "; loss "
        + ", ".join(f"{loss[u][0]:.4f}" for u in us),
        tolerance=COUNTS,
        holds=len(better) == len(gains) or ("partial" if better else False),
        reason=cause(
            len(better) == len(gains),
            (f"It holds for u = {better[0]:g} alone. " if better else "")
            + "The accuracy is near 100 % with u = 1 already.",
        ),
        interval="; ".join(f"u = {u:g}: {interval(gain.values, '+.1f', ' pp')}" for u, gain in gains.items()),
    )
    between = on_train(10.0, 20.0, 0.0)
    close = bool(abs(train[10.0][0] - train[20.0][0]) <= CLOSE)
    a.claim(
        "alike",
        "(a) u = 10 and u = 20 differ little",
        "Figure 6a",
        published="little difference",
        measured=f"{train[10.0][0]:.1f} % and {train[20.0][0]:.1f} %",
        tolerance=f"{CLOSE:g} pp",
        holds=close,
        reason=cause(close, "One seed in few can differ by that much."),
        interval=interval(between.values, "+.1f", " pp"),
    )
    grown = on_test(1.0, 20.0)
    ordered = test[1.0][0] < test[10.0][0] < test[20.0][0]
    a.claim(
        "test",
        "(b) The test accuracy of task 1 grows with u",
        "Figure 6b",
        published="larger values of u result in higher accuracy, u in {1, 10, 20}",
        measured=", ".join(f"u = {u:g}: {test[u][0]:.1f} %" for u in us)
        + f"; from 1 to 20 {grown.words('+.1f', ' pp')}",
        tolerance=f"means in order, and from 1 to 20 {COUNTS}",
        holds=None if grown.grows is None else (ordered or "partial") if grown.grows else False,
        reason=(
            ""
            if ordered
            else "It grows from u = 1 to 20, not from 10 to 20: the two follow the preference alike."
        )
        if grown.grows
        else "The test accuracy of few images varies between seeds by more than u moves it.",
        interval=interval(grown.values, "+.1f", " pp"),
    )
    higher = all(loss[0.0][0] > loss[u][0] for u in us if u > 0)
    a.check(
        "reversal",
        "With u = 0 the preferred task has a higher loss than with any u > 0",
        measured=", ".join(f"u = {u:g}: {loss[u][0]:.4f}" for u in us),
        tolerance="higher",
        holds=higher,
        reason=cause(higher, "The preference works without the second term of equation (5) here."),
    )
    _notes(a, job)


@artifact("mobl/fig7")
def fig7(a: Artifact) -> None:
    """Mean accuracies against k for three numbers of inner steps."""
    pref = FewShot(a.jobs["pref"])
    fig, axes = st.plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for ax, (column, kind) in zip(
        axes, (("train_accuracy", "training"), ("test_accuracy", "test")), strict=True
    ):
        ends = {}
        spreads = {}
        for (job, runs), color in zip(_by_steps(a, pref), (st.ORANGE, st.GREEN, st.BLUE), strict=True):
            steps, values = job.curve(column, runs)
            band(ax, steps, values, f"$D = {job.D}$", color)
            ends[job.D] = _per_seed(job, values[-1], runs)
            spreads[job.D] = float(values.std(axis=1, ddof=1).mean()) if values.shape[1] > 1 else float("nan")
        ax.set_xlabel("outer step $k$")
        ax.set_ylabel(f"mean {kind} accuracy, %")
        ax.set_title(f"({'ab'[kind == 'test']})")
        order = sorted(ends)
        grown = Effect.between(ends[order[0]], ends[order[-1]], STEP)
        ordered = all(ends[n].mean() >= ends[m].mean() for m, n in itertools.pairwise(order))
        holds = None if grown.grows is None else grown.grows and ordered
        a.claim(
            f"grows-{kind}",
            f"The final mean {kind} accuracy grows with D",
            f"Figure 7{'ab'[kind == 'test']}",
            published="a larger D results in higher average accuracy",
            measured=", ".join(f"D = {D}: {ends[D].mean():.1f} %" for D in order)
            + f"; largest minus smallest D {grown.words('+.1f', ' pp')}",
            tolerance=f"in order, and from the smallest to the largest D {COUNTS}",
            holds=holds,
            reason=cause(
                holds, "y is warm-started, so few inner steps track y*(x) almost as well as many by the end."
            ),
            interval=interval(grown.values, "+.1f", " pp"),
        )
        known = bool(np.isfinite(list(spreads.values())).all())
        wider = bool(spreads[order[0]] > spreads[order[-1]]) if known else None
        a.claim(
            f"spread-{kind}",
            f"{kind.capitalize()} accuracies fluctuate more between runs for the smallest D",
            f"Figure 7{'ab'[kind == 'test']}",
            published="smaller values of D lead to greater fluctuations",
            measured=", ".join(f"D = {D}: {spreads[D]:.2f} pp" for D in order)
            + " (standard deviation of seeds, mean over k)",
            tolerance="smallest D above largest D",
            holds=wider,
            reason=cause(
                wider,
                "A standard deviation of few seeds is uncertain by more than the settings differ."
                if known
                else "One seed has no spread. Decided by more seeds.",
            ),
        )
    axes[0].legend(loc="lower right")
    fig.suptitle(f"{pref.data}, $r_1 = .8$", fontsize=10)
    a.figure(fig)
    _notes(a, pref)


def carried(train: np.ndarray, test: np.ndarray) -> tuple[int, int]:
    """In how many seeds (rows) the one task with the highest training accuracy has the highest test accuracy
    alone, too, and in how many seeds there is one such task in training.
    """
    kept = clear = 0
    for one, other in zip(train, test, strict=True):
        if (one == one.max()).sum() == 1:
            clear += 1
            kept += int((other == other.max()).sum() == 1 and other.argmax() == one.argmax())
    return kept, clear


@artifact("mobl/fig8")
def fig8(a: Artifact) -> None:
    """Accuracies of all tasks without preference."""
    fig, axes = st.plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
    for k, (name, kind) in enumerate((n, t) for n in ("s5", "s_more") for t in ("train", "test")):
        job = FewShot(a.jobs[name])
        ax = axes[k]
        colors = st.plt.get_cmap("tab10")(np.arange(job.S))
        for s in range(job.S):
            band(ax, *job.curve(f"{kind}_accuracy_{s + 1}"), f"task {s + 1}", colors[s])
        ax.set_title(f"({'abcd'[k]}) $S = {job.S}$, {'training' if kind == 'train' else 'test'}")
        ax.set_xlabel("outer step $k$")
        ends = job.ends(f"{kind}_accuracy_")
        best = ends >= ends.max(axis=1, keepdims=True) - 1e-9
        always = [s + 1 for s in range(job.S) if (best[:, s] & (best.sum(axis=1) == 1)).all()]
        none = not always if len(ends) > 1 else None
        a.claim(
            f"none-dominates-{job.S}-{kind}",
            f"No task is the best in all seeds without preference, S = {job.S}, {kind}",
            "Figure 8",
            published="no objective dominates",
            measured=f"alone the best in all {len(ends)} seeds: "
            + (", ".join(f"task {s}" for s in always) or "none"),
            tolerance="none",
            holds=none,
            reason=cause(
                none,
                "One seed does not show whether the same task leads in all. Decided by more seeds."
                if none is None
                else "A task that is easier than the others leads in all seeds.",
            ),
            rests_on=(name,),
        )
    for name in ("s5", "s_more"):
        job = FewShot(a.jobs[name])
        kept, clear = carried(job.ends("train_accuracy_"), job.ends("test_accuracy_"))
        known = 2 * clear >= len(job.last) > 1
        differs = 2 * kept <= clear if known else None
        a.claim(
            f"does-not-carry-{job.S}",
            f"The task that is best in training need not be the best in the test, S = {job.S}",
            "Figure 8",
            published="better performance in training does not directly imply the like in the test",
            measured=f"the same task leads in both in {kept} of {clear} seeds in which one task leads in "
            f"training alone ({len(job.last)} seeds)",
            tolerance="in at most half of at least half of the seeds",
            holds=differs,
            reason=cause(
                differs,
                "The tasks differ in difficulty, in training as in the test."
                if known
                else "Several tasks share the highest training accuracy in most seeds, so none leads. "
                f"Decided by longer runs on harder data: {a.decides}.",
            ),
            rests_on=(name,),
        )
        square = job.curve("direction_square")[1].mean(axis=1)
        smaller = bool(square[1] >= 10 * square[-1])
        a.claim(
            f"stationary-{job.S}",
            f"The squared min-norm of the hypergradients falls at least tenfold, S = {job.S}",
            "Figure 8 (criterion of the specification)",
            published="converges",
            measured=f"from {square[1]:.2e} to {square[-1]:.2e}: {square[1] / square[-1]:.0f} times",
            tolerance=">= 10 times",
            holds=smaller,
            reason=cause(smaller, "The steps are too few, or too long, for the common direction to vanish."),
            rests_on=(name,),
        )
    axes[0].set_ylabel("accuracy, %")
    for k in (1, 3):
        axes[k].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7)
    job = FewShot(a.jobs["s5"])
    fig.suptitle(f"Algorithm 4 on {job.data}", fontsize=10)
    a.figure(fig)
    more = FewShot(a.jobs["s_more"])
    if more.S != 10:
        a.note(
            f"S = {more.S} instead of 10: the classes of {more.data} suffice for no more tasks of five ways."
        )
    _notes(a, job)
