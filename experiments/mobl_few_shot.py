"""Few-shot meta-learning of the bilevel paper: Figures 1, 2, 4 to 8. Criteria are the specification's, fixed before any run.

"Training" accuracy is that of w_s on the query set D_s (the upper level's), "test" accuracy that on other images T_s of the same
classes, both at the (x, y_D) that the method has after its last step. Claims are orderings; where other images stand in for
FC-100, or the scale is not the paper's, a claim that holds is "partial".
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, Runs, artifact
from mobench.artifacts import style as st

from .mobl_rows import COLOURS, HULL, Tasks, band, grows, mean_error, paired
from .radar import draw_hull, draw_polygon, hull, limits, polygon_area, radar_axes

FULL = "CIFAR-100"  # label of the complete data set
NEAR = 2.0  # percentage points within which an accuracy counts as the best
STEP = 1.0
CLOSE = 3.0


@dataclass(frozen=True)
class FewShot(Tasks):
    """One job of few-shot learning."""

    @property
    def S(self) -> int:
        return int(self.rows.config["problem"]["tasks"])

    @property
    def complete_data(self) -> bool:
        return self.data.split(",")[0] == FULL and "of 600" not in self.data


def polygons(job: FewShot, prefix: str = "train_accuracy_") -> tuple[np.ndarray, np.ndarray]:
    """(preferences, S) means and standard errors over seeds; row k prefers task k."""
    found = [mean_error(job.ends(prefix, job.runs(task))) for task in range(job.S)]
    return np.stack([m for m, _ in found]), np.stack([e for _, e in found])


def labels(S: int) -> list[str]:
    """Axes of a radar chart."""
    return [f"task {s + 1}" for s in range(S)]


def _notes(a: Artifact, job: FewShot) -> None:
    a.note(
        "Training accuracy: on the query set of the upper level; test accuracy: on other images of the same classes."
    )
    a.note("Episodes are fixed for a seed; batch normalisation uses the statistics of each set.")
    if not job.paper(a):
        a.note(f"Images: {job.data}. `data=cifar100 scale=paper` runs FC-100's classes at the paper's settings.")


def _radar(fig: Any, position: Any, pref: FewShot, extreme: FewShot, prefix: str = "train_accuracy_") -> None:
    (mean, error), (far, _) = polygons(pref, prefix), polygons(extreme, prefix)
    low, high, ticks = limits(np.vstack([mean, far]))
    ax = radar_axes(fig, position, labels(pref.S), low, high, ticks)
    draw_hull(ax, hull(np.vstack([mean, far])), "covered")
    for s, color in enumerate(COLOURS):
        draw_polygon(ax, mean[s], f"$r_{s + 1} = .8$", color, error[s])
        draw_polygon(ax, far[s], f"$r_{s + 1} = .96$", color, ls="--", lw=0.9, ms=1.5)


def _preference_claims(a: Artifact, pref: FewShot, extreme: FewShot, source: str) -> None:
    for prefix, kind in (("train_accuracy_", "training"), ("test_accuracy_", "test")):
        (mean, _), (far, _) = polygons(pref, prefix), polygons(extreme, prefix)
        best = [bool(mean[s, s] >= mean[:, s].max() - 1e-9) for s in range(pref.S)]
        inside = [bool(mean[s, s] >= mean[s].max() - NEAR) for s in range(pref.S)]
        a.claim(
            f"preferred-{kind}",
            f"On each axis the run that prefers the task is the best of the five ({kind} accuracy)",
            source,
            published="higher than those of less preferred tasks",
            measured=f"on {sum(best)} of {len(best)} axes: "
            + ", ".join(f"{mean[s, s]:.1f} % (others {np.delete(mean[:, s], s).max():.1f} %)" for s in range(pref.S))
            + f"; within its run the best or within {NEAR:g} pp in {sum(inside)}",
            tolerance=">= 4 of 5 axes, and >= 3 of 5 runs",
            holds=pref.judged(a, sum(best) >= 4 and sum(inside) >= 3),
            reason=(
                "Accuracies on the query sets, on which the network is trained, are near 100 % for all tasks. "
                if kind == "training"
                else ""
            )
            + pref.elsewhere(a),
        )
        own, own_far = np.diagonal(mean).mean(), np.diagonal(far).mean()
        a.claim(
            f"extreme-{kind}",
            f"An extreme preference raises the accuracy of the preferred task further ({kind})",
            source,
            published="more so when extremely preferred",
            measured=f"mean over tasks {own_far:.1f} % with .96, {own:.1f} % with .8; the other tasks "
            f"{far[~np.eye(pref.S, dtype=bool)].mean():.1f} % and {mean[~np.eye(pref.S, dtype=bool)].mean():.1f} %",
            tolerance=f"not lower by more than {STEP:g} pp",
            holds=pref.judged(a, bool(own_far >= own - STEP)),
            reason=pref.elsewhere(a),
        )
    losses = polygons(pref, "f_")[0]
    lowest = [bool(losses[s, s] == losses[:, s].min()) for s in range(pref.S)]
    a.claim(
        "loss",
        "On each axis the run that prefers the task has the lowest upper-level loss",
        "ours: accuracies on D saturate",
        published="not stated",
        measured=f"on {sum(lowest)} of {len(lowest)} axes: "
        + ", ".join(f"{losses[s, s]:.3f} (others {np.delete(losses[:, s], s).min():.3f})" for s in range(pref.S)),
        tolerance="5 of 5 axes",
        holds=all(lowest),
    )


def _area_claim(a: Artifact, pref: FewShot, extreme: FewShot, source: str) -> None:
    every = np.vstack([polygons(pref)[0], polygons(extreme)[0]]) / 100
    single, covered = max(polygon_area(p) for p in every), polygon_area(hull(every))
    a.claim(
        "covered",
        "Together the runs cover clearly more than any of them (training accuracy)",
        source,
        published="explores a large set",
        measured=f"area {covered:.3f}, largest single polygon {single:.3f}: {covered / single:.2f} times",
        tolerance=f"{HULL} times (a hull contains every polygon)",
        holds=pref.judged(a, covered >= HULL * single),
        reason="An accuracy is at most 1, and single runs are near it on all axes. " + pref.elsewhere(a),
    )


@artifact("mobl/fig1")
def fig1(a: Artifact) -> None:
    """Training accuracies of five preferred and five extremely preferred runs."""
    pref, extreme = FewShot(a.jobs["pref"]), FewShot(a.jobs["extreme"])
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
            loss, exact = mean_error(job.ends("f_", runs))[0], mean_error(job.solved("f_", runs))[0]
            line: dict[str, Any] = {"preference": name, "preferred": f"task {task + 1}"}
            line |= {f"train / test accuracy, task {s + 1}": f"{train[s]:.1f} / {test[s]:.1f}" for s in range(job.S)}
            line |= {"loss, preferred": f"{loss[task]:.4f}", "loss at y*, preferred": f"{exact[task]:.4f}"}
            line["loss, mean of the others"] = f"{np.delete(loss, task).mean():.4f}"
            line["runs"] = Runs(len(runs), job.planned(task))
            rows.append(line)
    return pd.DataFrame(rows)


@artifact("mobl/fig2")
def fig2(a: Artifact) -> None:
    """Area covered by WC-MHGD's runs, and the polygons of MOML and FORUM."""
    pref, extreme = FewShot(a.jobs["pref"]), FewShot(a.jobs["extreme"])
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
        covered, single = polygon_area(hull(every) / 100), [polygon_area(p / 100) for p in every]
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
                "runs": sum((job.rows.runs for job in (pref, extreme, *jobs.values())), Runs(0, 0)),
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
                holds=pref.judged(a, bool(covered > areas[label])),
                reason="The hull of ten runs is compared with one run; single areas are beside it. "
                + ("FORUM moves y once in a step of x, and its accuracy is read there. " if label == "FORUM" else "")
                + pref.elsewhere(a),
            )
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7.5)
    fig.suptitle(pref.data, fontsize=10)
    a.figure(fig)
    a.table(pd.DataFrame(rows).round(4), given=("accuracy",))
    _notes(a, pref)
    a.note(
        "FORUM: the public code's program is drawn with the exact dual beside it; its variables are (x, y), one step size."
    )


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
    ax, areas = fig.add_subplot(133), {}
    for (job, runs), color in zip(_by_steps(a, pref), (st.ORANGE, st.GREEN, st.BLUE), strict=True):
        steps, values = job.curve("train_accuracy", runs)
        band(ax, steps, values, f"$D = {job.D}$", color)
        areas[job.D] = float(np.trapezoid(values.mean(axis=1), steps) / steps[-1])
    ax.set_xlabel("outer step $k$")
    ax.set_ylabel("mean training accuracy, %")
    ax.set_title("(c) task 1 preferred")
    ax.legend(loc="lower right")
    fig.suptitle(pref.data, fontsize=10)
    a.figure(fig)
    _preference_claims(a, pref, extreme, "Figure 4a (a copy of Figure 1)")
    _area_claim(a, pref, extreme, "Figure 4a")
    own = {u: mean_error(trade.ends("train_accuracy_", trade.runs(trade_off=u))[:, 0]) for u in (1.0, 5.0, 10.0, 20.0)}
    slope, error = paired(
        trade.last.pivot_table(index="seed", columns="trade_off", values="train_accuracy_1"), 1.0, 20.0
    )
    focus = {u: trade.curve("lambda_1", trade.runs(trade_off=u))[1][1:].mean() for u in own}
    highest = {u: trade.ends("train_accuracy_", trade.runs(trade_off=u)).mean(axis=0) for u in own}
    loss = {u: trade.ends("f_", trade.runs(trade_off=u))[:, 0].mean() for u in own}
    a.claim(
        "trade-off",
        "(b) The training accuracy of task 1 grows with u, r_1 = .96",
        "Figure 4b",
        published="grows with u in {1, 5, 10, 20}",
        measured=", ".join(f"u = {u:g}: {m:.1f} %" for u, (m, _) in own.items())
        + f"; difference {slope:+.2f} pp, its standard error over seeds {error:.2f}; its loss "
        + ", ".join(f"{v:.4f}" for v in loss.values())
        + "; its mean weight "
        + ", ".join(f"{v:.2f}" for v in focus.values())
        + f"; the highest axis with u >= 10: {'yes' if all(highest[u][0] >= highest[u].max() for u in (10.0, 20.0)) else 'no'}",
        tolerance=f"more than one standard error and {STEP:g} pp: holds; within: flat (partial); falls: fails",
        holds=trade.judged(a, grows(slope, error, STEP)),
        reason="A larger u puts more weight on task 1 while the run lasts, and its loss falls further; the accuracy saturates. "
        + trade.elsewhere(a),
    )
    order = sorted(areas)
    a.claim(
        "inner-steps",
        "(c) With more inner steps the mean accuracy grows faster (area under its curve)",
        "Figure 4c",
        published="larger D converges faster",
        measured=", ".join(f"D = {D}: {areas[D]:.1f} %" for D in order),
        tolerance=f"not smaller by more than {STEP:g} pp for each larger D",
        holds=pref.judged(a, all(areas[n] >= areas[m] - STEP for m, n in itertools.pairwise(order))),
        reason=pref.elsewhere(a),
    )
    _notes(a, pref)


@artifact("mobl/fig5")
def fig5(a: Artifact) -> None:
    """Training and test accuracies of all tasks under each of five preferences."""
    pref = FewShot(a.jobs["pref"])
    fig, axes = st.plt.subplots(1, 2, figsize=(10.4, 3.4), layout="constrained")
    for ax, (prefix, kind) in zip(axes, (("train_accuracy_", "training"), ("test_accuracy_", "test")), strict=True):
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
        a.claim(
            f"nearly-best-{kind}",
            f"The preferred task has the highest or nearly the highest {kind} accuracy",
            f"Figure 5{'ab'[kind == 'test']}",
            published="highest or nearly highest",
            measured=f"in {sum(near)} of {len(near)} runs: "
            + ", ".join(f"{mean[s, s]:.1f} % of at most {mean[s].max():.1f} %" for s in range(pref.S)),
            tolerance=f"within {NEAR:g} pp in >= 4 of 5",
            holds=pref.judged(a, sum(near) >= 4),
            reason=(
                "Tasks differ in difficulty on new images by more than the preference moves them. "
                if kind == "test"
                else ""
            )
            + pref.elsewhere(a),
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
    names = ("(a) training accuracy of task 1, %", "(b) test accuracy of task 1, %", "upper-level loss of task 1")
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
    a.claim(
        "larger",
        "(a) u = 10 and u = 20 are better than u = 1 (training accuracy of task 1)",
        "Figure 6a",
        published="better",
        measured=words + "; loss " + ", ".join(f"{loss[u][0]:.4f}" for u in us),
        tolerance=f"not lower by more than {STEP:g} pp",
        holds=job.judged(a, all(train[u][0] >= train[1.0][0] - STEP for u in (10.0, 20.0))),
        reason=job.elsewhere(a),
    )
    a.claim(
        "alike",
        "(a) u = 10 and u = 20 differ little",
        "Figure 6a",
        published="little difference",
        measured=f"{train[10.0][0]:.1f} % and {train[20.0][0]:.1f} %",
        tolerance=f"{CLOSE:g} pp",
        holds=job.judged(a, abs(train[10.0][0] - train[20.0][0]) <= CLOSE),
        reason=job.elsewhere(a),
    )
    slope, error = paired(job.last.pivot_table(index="seed", columns="trade_off", values="test_accuracy_1"), 1.0, 20.0)
    a.claim(
        "test",
        "(b) The test accuracy of task 1 grows with u",
        "Figure 6b",
        published="grows with u in {1, 10, 20}",
        measured=", ".join(f"u = {u:g}: {test[u][0]:.1f} %" for u in us)
        + f"; from 1 to 20 {slope:+.1f} pp, standard error {error:.1f}",
        tolerance="more than one standard error: holds; within: flat (partial); falls: fails",
        holds=job.judged(a, grows(slope, error)),
        reason=job.elsewhere(a),
    )
    a.claim(
        "reversal",
        "With u = 0 the preferred task has a higher loss than with any u > 0",
        "ours (b.7 of the specification)",
        published="not stated",
        measured=", ".join(f"u = {u:g}: {loss[u][0]:.4f}" for u in us),
        tolerance="higher",
        holds=all(loss[0.0][0] > loss[u][0] for u in us if u > 0),
    )
    _notes(a, job)


@artifact("mobl/fig7")
def fig7(a: Artifact) -> None:
    """Mean accuracies against k for three numbers of inner steps."""
    pref = FewShot(a.jobs["pref"])
    fig, axes = st.plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for ax, (column, kind) in zip(axes, (("train_accuracy", "training"), ("test_accuracy", "test")), strict=True):
        ends, spreads = {}, {}
        for (job, runs), color in zip(_by_steps(a, pref), (st.ORANGE, st.GREEN, st.BLUE), strict=True):
            steps, values = job.curve(column, runs)
            band(ax, steps, values, f"$D = {job.D}$", color)
            ends[job.D] = float(values[-1].mean())
            spreads[job.D] = float(values.std(axis=1, ddof=1).mean()) if values.shape[1] > 1 else float("nan")
        ax.set_xlabel("outer step $k$")
        ax.set_ylabel(f"mean {kind} accuracy, %")
        ax.set_title(f"({'ab'[kind == 'test']})")
        order = sorted(ends)
        a.claim(
            f"grows-{kind}",
            f"The final mean {kind} accuracy does not fall with D",
            f"Figure 7{'ab'[kind == 'test']}",
            published="grows with D",
            measured=", ".join(f"D = {D}: {ends[D]:.1f} %" for D in order),
            tolerance=f"{STEP:g} pp for each larger D",
            holds=pref.judged(a, all(ends[n] >= ends[m] - STEP for m, n in itertools.pairwise(order))),
            reason=pref.elsewhere(a),
        )
        a.claim(
            f"spread-{kind}",
            f"{kind.capitalize()} accuracies fluctuate more between runs for the smallest D",
            f"Figure 7{'ab'[kind == 'test']}",
            published="larger fluctuation for small D",
            measured=", ".join(f"D = {D}: {spreads[D]:.2f} pp" for D in order)
            + " (standard deviation of seeds, mean over k)",
            tolerance="smallest D not below largest D",
            holds=pref.judged(a, spreads[order[0]] >= spreads[order[-1]])
            if np.isfinite(list(spreads.values())).all()
            else None,
            reason=pref.elsewhere(a),
        )
    axes[0].legend(loc="lower right")
    fig.suptitle(f"{pref.data}, $r_1 = .8$", fontsize=10)
    a.figure(fig)
    _notes(a, pref)


@artifact("mobl/fig8")
def fig8(a: Artifact) -> None:
    """Accuracies of all tasks without preference."""
    fig, axes = st.plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
    for k, (name, kind) in enumerate((n, t) for n in ("s5", "s_more") for t in ("train", "test")):
        job, ax = FewShot(a.jobs[name]), axes[k]
        colors = st.plt.get_cmap("tab10")(np.arange(job.S))
        for s in range(job.S):
            band(ax, *job.curve(f"{kind}_accuracy_{s + 1}"), f"task {s + 1}", colors[s])
        ax.set_title(f"({'abcd'[k]}) $S = {job.S}$, {'training' if kind == 'train' else 'test'}")
        ax.set_xlabel("outer step $k$")
        ends = job.ends(f"{kind}_accuracy_")
        best = ends >= ends.max(axis=1, keepdims=True) - 1e-9
        always = [s + 1 for s in range(job.S) if (best[:, s] & (best.sum(axis=1) == 1)).all()]
        a.claim(
            f"none-dominates-{job.S}-{kind}",
            f"No task is the best in all seeds without preference, S = {job.S}, {kind}",
            "Figure 8",
            published="no objective dominates",
            measured=f"alone the best in all {len(ends)} seeds: " + (", ".join(f"task {s}" for s in always) or "none"),
            tolerance="none",
            holds=job.judged(a, not always if len(ends) > 1 else "partial"),
            reason=job.elsewhere(a),
        )
    for name in ("s5", "s_more"):
        job = FewShot(a.jobs[name])
        square = job.curve("direction_square")[1].mean(axis=1)
        a.claim(
            f"stationary-{job.S}",
            f"The squared min-norm of the hypergradients falls at least tenfold, S = {job.S}",
            "Figure 8 (criterion of the specification)",
            published="converges",
            measured=f"from {square[1]:.2e} to {square[-1]:.2e}: {square[1] / square[-1]:.0f} times",
            tolerance=">= 10 times",
            holds=job.judged(a, bool(square[1] >= 10 * square[-1])),
            reason=job.elsewhere(a),
        )
    axes[0].set_ylabel("accuracy, %")
    for k in (1, 3):
        axes[k].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7)
    job = FewShot(a.jobs["s5"])
    fig.suptitle(f"Algorithm 4 on {job.data}", fontsize=10)
    a.figure(fig)
    more = FewShot(a.jobs["s_more"])
    if more.S != 10:
        a.note(f"S = {more.S} instead of 10: the classes of {more.data} suffice for no more tasks of five ways.")
    _notes(a, job)
