"""Few-shot meta-learning: Figures 1, 2, 4 to 8.

"Training" accuracy is that of w_s on the query set D_s (the upper level's), "test" accuracy that on other
images T_s of the same classes, both at the (x, y_D) that the method has after its last step. Claims are
orderings of accuracies. An accuracy is at most 100 %: where all runs reach it, nothing is larger than
anything, and a claim that something is larger does not hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from mobench.artifacts import Artifact, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import (
    Above,
    AllOf,
    AtLeast,
    AtMost,
    Check,
    Count,
    Graded,
    Ordered,
    Share,
    SurelyAbove,
)
from mobench.artifacts.panels import dress, legend_below
from mobench.artifacts.radar import draw_hull, draw_polygon, from_zero, hull, limits, polygon_area, radar_axes
from mobench.artifacts.statistics import Mean, by_seed

from .rows import COLOURS, HULL, Tasks, band, change, ends, mean_error, mean_of, over_seeds, rises

NEAR = 2.0  # percentage points within which an accuracy counts as nearly the highest
STEP = 1.0  # percentage points up to which a difference of accuracies counts as none
CLOSE = 3.0  # percentage points within which two accuracies differ little
HARDER = "Tasks differ in difficulty by more than the preference moves them."
# both were fixed before all runs had ended: EARLY when those with D = 8 had, BALANCED when those with .8 had,
# where it was 0.2 %
EARLY = 80.0  # %: mean training accuracy, far enough from chance (20 %) and from the ceiling
BALANCED = 1.0  # %, up to which r_s phi_s counts as equal for all tasks
ONE_STEP = " FORUM moves y once in a step of x, and its accuracy is measured there."
PANEL = {"training": "a", "test": "b"}
LEADS = {"training": "c", "test": "d"}
KINDS = {"training": "train_accuracy_", "test": "test_accuracy_"}
SURE: dict[str, Any] = {"near": STEP, "agree": True, "unit": " pp", "digits": "+.1f"}
# of `below_ceiling`: the limit of accuracies, and what decides
ANEW = (
    "Decided by runs as long whose images are drawn anew in each step, as the program does whose model the "
    "paper takes: problem.redraw=true, hours of a core for each figure."
)
CEILING: dict[str, Any] = {"ceiling": 100.0, "within": STEP, "unit": " %", "before": ANEW}
U_COLOURS = (st.GREY, st.SKY, st.BLUE, st.RED)
TRADE_OFF = "$u$: the constant that trades the preference $r$ against stationarity."
INNER = "$D$: steps in the lower level's variables for each outer step."
D_COLOURS = (st.ORANGE, st.GREEN, st.BLUE)
READINGS = {  # images a class in S_i and D_i
    "query_15": "5 images a class in S_i, 15 in D_i",
    "query_5": "5 images a class in S_i, 5 in D_i",
    "support_1": "1 image a class in S_i, 15 in D_i",
    "anew": "5 images a class in S_i, 5 in D_i, others in each step",
}
PAPERS = {"s5": 5, "s_more": 10}  # tasks in the paper; a claim is the same where fewer are run
SHARED = {"s5": "s5_shared"}  # jobs whose seeds share their tasks, for `none-dominates`
MORE = {"s5": ("s5_seeds",), "s_more": ()}  # jobs of further seeds, for `does-not-carry` alone


@dataclass(frozen=True)
class FewShot(Tasks):
    """One job of few-shot learning."""

    @property
    def S(self) -> int:
        return int(self.rows.config["problem"]["tasks"])


def polygons(job: FewShot, prefix: str = "train_accuracy_") -> tuple[np.ndarray, np.ndarray]:
    """(preferences, S) means and standard errors over seeds; row k prefers task k."""
    statistics = [mean_error(job.ends(prefix, job.runs(task))) for task in range(job.S)]
    return np.stack([m for m, _ in statistics]), np.stack([e for _, e in statistics])


def labels(S: int) -> list[str]:
    return [f"task {s + 1}" for s in range(S)]


def _notes(a: Artifact, job: FewShot) -> None:
    a.note(
        "Training accuracy: on the query set of the upper level; test accuracy: "
        "on other images of the same classes."
    )
    a.note("Episodes are fixed for a seed; batch normalisation uses the statistics of each set.")
    if not a.on_papers_data():
        a.note(
            f"Images: {job.rows.data}. `data=cifar100 scale=paper` runs FC-100's classes at the paper's "
            "settings."
        )


def _radar(fig: Any, position: Any, pref: FewShot, extreme: FewShot, prefix: str = "train_accuracy_") -> None:
    mean, error = polygons(pref, prefix)
    far, _ = polygons(extreme, prefix)
    low, high, ticks = limits(np.vstack([mean, far]))
    ax = radar_axes(fig, position, labels(pref.S), low, high, ticks)
    draw_hull(ax, hull(np.vstack([mean, far])), "best of the runs")
    for s, color in enumerate(COLOURS):
        draw_polygon(ax, mean[s], f"$r_{s + 1} = 0.8$", color, error[s])
        draw_polygon(ax, far[s], f"$r_{s + 1} = 0.96$", color, ls="--", lw=0.9, ms=1.5)


def leads(job: FewShot, prefix: str) -> pd.DataFrame:
    """Returns the preferred task's lead by recorded step (row) and seed (column), mean over the preferences.

    It is that task's accuracy minus the mean of the others in the same run.
    """
    rows = job.recorded
    F = rows[[f"{prefix}{s + 1}" for s in range(job.S)]].to_numpy(dtype=float)
    preferred = F[np.arange(len(F)), rows["preferred"]]
    frame = rows[["step", "seed"]].assign(lead=preferred - (F.sum(axis=1) - preferred) / (job.S - 1))
    return frame.pivot_table(index="step", columns="seed", values="lead")


def lead(job: FewShot, prefix: str) -> pd.Series:
    """Returns the lead of each seed after the last step."""
    by_seed_and_step = leads(job, prefix)
    return by_seed_and_step.iloc[-1] if len(by_seed_and_step) else pd.Series(dtype=float)


def early(job: FewShot) -> int | None:
    """Returns the first recorded step with a mean training accuracy of EARLY or more, None without one."""
    names = [f"train_accuracy_{s + 1}" for s in range(job.S)]
    means = job.recorded.groupby("step")[names].mean().mean(axis=1)
    reached = means.index[means >= EARLY]
    return int(reached[0]) if len(reached) else None


def best_alone(values: np.ndarray, task: int) -> bool:
    """Returns whether a task's value is above all others, strictly, so that runs at 100 % do not count."""
    return bool(values[task] > np.delete(values, task).max())


def _apart(job: FewShot) -> float:
    """Returns by how many % the largest r_s phi_s exceeds the smallest at the end, in the worst run."""
    weighted = job.rows.weights[job.last["run"]] * job.ends("f_")
    return float(100.0 * (weighted.max(axis=1) / weighted.min(axis=1) - 1.0).max())


def _judge_preferred(a: Artifact, pref: FewShot, kind: str) -> None:
    mean, _ = polygons(pref, KINDS[kind])
    axes = {f"task {s + 1}": best_alone(mean[:, s], s) for s in range(pref.S)}
    runs = {f"task {s + 1}": best_alone(mean[s], s) for s in range(pref.S)}
    on_axes = Count(axes, 4, that="the run that prefers the task is the best", what="axes")
    in_runs = Count(runs, 4, that="the preferred task is the best", what="runs")
    values = (
        f"{mean[s, s]:.1f} % (axis {np.delete(mean[:, s], s).max():.1f} %, run "
        f"{np.delete(mean[s], s).max():.1f} %)"
        for s in range(pref.S)
    )
    alone = "on the axes" if on_axes.holds is True else "within the runs"
    check = AllOf(on_axes, in_runs, partial=True).also(", ".join(values))
    a.claim(
        "preferred-{kind}",
        check.below_ceiling(mean.ravel(), **CEILING),
        reason=f"It holds {alone} alone." if check.holds == "partial" else "",
        interval="the preferred task's lead over the mean of the others, in pp: "
        f"{over_seeds(lead(pref, KINDS[kind])).ends('.1f')}",
        kind=kind,
        cause=HARDER,
    )


def _judge_extreme(a: Artifact, pref: FewShot, extreme: FewShot, kind: str, other: Check | None) -> Check:
    """Judges a claim whose sentence does not say which accuracy it means, and returns its check.

    Where it fails for one accuracy, and the other one's check, judged before, is undecided, nothing is shown.
    """
    near, far = (lead(job, KINDS[kind]) for job in (pref, extreme))
    further = change(near, far)
    means = [polygons(job, KINDS[kind])[0] for job in (pref, extreme)]
    preferred = [float(np.diagonal(mean).mean()) for mean in means]
    others = [float(mean[~np.eye(len(mean), dtype=bool)].mean()) for mean in means]
    check = SurelyAbove(further, of="lead over the mean of the others with .96 minus that with .8", **SURE)
    values = (
        f"lead {near.mean():.1f} pp with .8, {far.mean():.1f} pp with .96; the preferred task itself "
        f"{preferred[0]:.1f} % and {preferred[1]:.1f} %, the others {others[0]:.1f} % and {others[1]:.1f} %"
    )
    cause = (
        f"From .8 to .96 the preferred task's accuracy changes by {preferred[1] - preferred[0]:+.1f} pp and "
        f"that of the others by {others[1] - others[0]:+.1f} pp."
    )
    check = check.also(values).below_ceiling([*preferred, *others], **CEILING)
    if check.holds is False and other is not None and other.holds is None:
        check = check.provided(False, f"The sentence names no accuracy. {cause} The other one: {other.why}")
    a.claim("extreme-{kind}", check, interval=further.ends("+.1f", " pp"), kind=kind, cause=cause)
    return check


def _ratios(pref: FewShot, extreme: FewShot) -> list[float]:
    """For each seed: area of the hull over that of the largest polygon, training accuracy."""
    names = [f"train_accuracy_{s + 1}" for s in range(pref.S)]
    ratios = []
    for seed in sorted(set(pref.last["seed"]) & set(extreme.last["seed"])):
        rows = pd.concat([job.last[job.last["seed"] == seed] for job in (pref, extreme)])
        every = rows[names].to_numpy(dtype=float) / 100
        ratios.append(polygon_area(hull(every)) / max(polygon_area(p) for p in every))
    return ratios


@artifact("mobl/fig1")
def fig1(a: Artifact) -> None:
    """Training accuracies of five preferred and five extremely preferred runs."""
    pref = FewShot(a.jobs["pref"])
    extreme = FewShot(a.jobs["extreme"])
    fig = st.plt.figure(figsize=(7.0, 6.2), layout="constrained")
    cells = fig.add_gridspec(2, 2)
    for k, (kind, prefix) in enumerate(KINDS.items()):
        _radar(fig, cells[0, k], pref, extreme, prefix)
        fig.axes[-1].set_title(f"({PANEL[kind]}) {kind} accuracy, %{from_zero(fig.axes[-1])}", pad=14)
    _inverse_losses(fig.add_subplot(cells[1, :]), pref, extreme)
    fig.suptitle(f"{mean_of(pref)}; bars along the axes of the radar charts: one standard error")
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    a.figure(fig)
    a.table(_accuracies({"r = .8": pref, "r = .96": extreme}), given=("preference", "preferred"))
    extremes: Check | None = None
    for kind in KINDS:
        _judge_preferred(a, pref, kind)
        extremes = _judge_extreme(a, pref, extreme, kind, extremes)
    losses = polygons(pref, "f_")[0]
    lowest = {f"task {s + 1}": best_alone(-losses[:, s], s) for s in range(pref.S)}
    values = (f"{losses[s, s]:.3f} (others {np.delete(losses[:, s], s).min():.3f})" for s in range(pref.S))
    a.check("loss", Count(lowest, that="lowest loss", what="axes").also(", ".join(values)))
    apart = {"r = .8": _apart(pref), "r = .96": _apart(extreme)}
    equal = AtMost(apart, BALANCED, of="100 (max / min - 1), the worst run", unit=" %", digits=".2f")
    undecided = "Shorter runs are on their way. Decided by scale=paper."
    a.check("balanced", equal.provided(a.scale == "paper", undecided))
    every = np.vstack([polygons(pref)[0], polygons(extreme)[0]]) / 100
    single = max(polygon_area(p) for p in every)
    covered = polygon_area(hull(every))
    than = f"{HULL} times the largest single polygon (a hull contains every polygon)"
    check = AtLeast(covered, HULL * single, of="area of the hull", than=than, digits=".3f")
    ratio = f"{covered / single:.2f} times the largest single polygon, {single:.3f}"
    interval = f"ratio {over_seeds(_ratios(pref, extreme)).ends('.2f')}"
    # the hull is at most the polygon of all tasks at 100 %
    check = check.also(ratio).below_ceiling([100 * single / polygon_area(np.ones(pref.S))], **CEILING)
    a.claim("covered", check, interval=interval)
    _notes(a, pref)


def _inverse_losses(ax: Any, pref: FewShot, extreme: FewShot) -> None:
    """Draws 1 / loss of each task where it is preferred, and the mean where it is not."""
    low = 1.0 / np.stack([polygons(pref, "f_")[0], polygons(extreme, "f_")[0]])
    x = np.arange(pref.S)
    for k, (label, color) in enumerate((("$r = 0.8$", st.BLUE), ("$r = 0.96$", st.ORANGE))):
        at = x + (k - 0.5) * 0.3
        others = (low[k].sum(axis=0) - np.diagonal(low[k])) / (pref.S - 1)
        ax.vlines(at, others, np.diagonal(low[k]), color=color, lw=0.8)
        ax.plot(at, np.diagonal(low[k]), "os"[k], color=color, label=f"task preferred, {label}")
        ax.plot(at, others, "os"[k], color="white", mec=color, label=f"mean of the other runs, {label}")
    place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    dress(ax, y="1 / upper-level loss", title="(c)", log="y", ticks=labels(pref.S), legend=place)


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


def _draw_areas(
    fig: Any, position: int, kind: str, every: np.ndarray, lines: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    """Draws the radar chart of WC-MHGD's runs (10, S), and of other methods' means with their errors."""
    low, high, ticks = limits(np.vstack([every, *(m for m, _ in lines.values())]))
    ax = radar_axes(fig, position, labels(every.shape[1]), low, high, ticks)
    draw_hull(ax, hull(every), "WC-MHGD, best of ten runs on each axis")
    for i, p in enumerate(every):
        draw_polygon(ax, p, "WC-MHGD, single runs" if i == 0 else None, st.BLUE, lw=0.6, ms=0)
    colours = (*(st.look(m).colour for m in ("moml", "forum")), st.RED)[: len(lines)]
    for (label, (mean, error)), color in zip(lines.items(), colours, strict=True):
        draw_polygon(ax, mean, label, color, error)
    ax.set_title(f"{kind} accuracy, %{from_zero(ax)}", pad=14)


@artifact("mobl/fig2")
def fig2(a: Artifact) -> None:
    """Area covered by WC-MHGD's runs, and the polygons of MOML and FORUM.

    FORUM by the exact dual is drawn, too, if that job was not left out.
    """
    pref = FewShot(a.jobs["pref"])
    extreme = FewShot(a.jobs["extreme"])
    names = {"MOML": "moml", "FORUM": "forum", "FORUM (exact dual)": "forum_exact"}
    if "forum_exact" not in a.jobs:
        del names["FORUM (exact dual)"]
    jobs = {label: FewShot(a.jobs[name]) for label, name in names.items()}
    runs = sum((job.rows.runs for job in (pref, extreme, *jobs.values())), RunCount(0, 0))
    fig = st.plt.figure(figsize=(7.0, 4.0), layout="constrained")
    rows = []
    for k, (kind, prefix) in enumerate(KINDS.items()):
        every = np.vstack([polygons(job, prefix)[0] for job in (pref, extreme)])
        lines = {label: mean_error(job.ends(prefix)) for label, job in jobs.items()}
        _draw_areas(fig, 121 + k, kind, every, lines)
        covered = polygon_area(hull(every) / 100)
        single = [polygon_area(p / 100) for p in every]
        others = {label: polygon_area(mean / 100) for label, (mean, _) in lines.items()}
        solved = {label: polygon_area(job.solved(prefix).mean(axis=0) / 100) for label, job in jobs.items()}
        rows.append(
            {
                "area of the polygon of": f"{kind} accuracy",
                "WC-MHGD, hull": covered,
                "WC-MHGD, single: largest": max(single),
                "WC-MHGD, single: median": float(np.median(single)),
                **others,
                **{f"{label} at y*": area for label, area in solved.items()},
                "runs": runs,
            }
        )
        for label in ("MOML", "FORUM"):
            check = Above(covered, others[label], of="area of the hull", than=label, digits=".3f")
            excess = over_seeds(_excess(jobs[label], pref, extreme, prefix))
            a.claim(
                "{key}-{kind}",
                check.also(
                    f"largest and median single run {max(single):.3f}, {np.median(single):.3f}; "
                    f"{label} at the exact y*(x) {solved[label]:.3f}"
                ),
                rests_on=("pref", "extreme", names[label]),
                interval=f"hull minus {label}: {excess.ends('.3f')}",
                key=names[label],
                kind=kind,
                method=label,
                more=ONE_STEP if label == "FORUM" else "",
            )
    fig.suptitle(f"{mean_of(pref)}; bars along the axes: one standard error")
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    a.figure(fig)
    a.table(pd.DataFrame(rows).round(4), given=("area of the polygon of",))
    _notes(a, pref)
    exact = "with the exact dual beside it" if "forum_exact" in a.jobs else "without the exact dual (ours)"
    a.note(f"FORUM: the public code's program is drawn {exact}; its variables are (x, y), one step size.")


def _excess(other: FewShot, pref: FewShot, extreme: FewShot, prefix: str) -> np.ndarray:
    """For each seed: area of the hull of all runs of WC-MHGD minus that of one run of another method."""
    names = [f"{prefix}{s + 1}" for s in range(pref.S)]
    differences = []
    for seed, runs in other.last.groupby("seed"):
        every = pd.concat([job.last[job.last["seed"] == seed] for job in (pref, extreme)])
        if len(every):
            areas = (
                polygon_area(rows[names].to_numpy(dtype=float).max(axis=0) / 100) for rows in (every, runs)
            )
            differences.append(next(areas) - next(areas))
    return np.array(differences)


def _trade_off_radar(fig: Any, position: Any, job: FewShot) -> None:
    us = sorted(job.rows.final["trade_off"].unique())
    statistics = {u: mean_error(job.ends("train_accuracy_", job.runs(trade_off=u))) for u in us}
    low, high, ticks = limits(np.stack([m for m, _ in statistics.values()]))
    ax = radar_axes(fig, position, labels(job.S), low, high, ticks)
    for (u, (mean, error)), color in zip(statistics.items(), U_COLOURS, strict=True):
        draw_polygon(ax, mean, f"$u = {u:g}$", color, error)


def _by_steps(a: Artifact, pref: FewShot) -> list[tuple[FewShot, list[int] | None]]:
    """The jobs that prefer task 1 with three numbers of inner steps."""
    return [(FewShot(a.jobs["d8"]), None), (FewShot(a.jobs["d16"]), None), (pref, pref.runs(0))]


def error_of(job: FewShot) -> str:
    return f"one standard error of the {mean_of(job)}"


@artifact("mobl/fig4")
def fig4(a: Artifact) -> None:
    """Preferences (a, as Figure 1), trade-off (b; not without its job), inner steps (c)."""
    pref, extreme = (FewShot(a.jobs[n]) for n in ("pref", "extreme"))
    trade = FewShot(a.jobs["trade_off"]) if "trade_off" in a.jobs else None
    fig = st.plt.figure(figsize=(7.0, 6.4), layout="constrained")
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.08)}
    cells = fig.add_gridspec(2, 2)
    _radar(fig, cells[0, 0] if trade else cells[0, :], pref, extreme)
    fig.axes[-1].set_title(f"(a) training accuracy, %{from_zero(fig.axes[-1])}", pad=14)
    fig.axes[-1].legend(ncols=2, **below)
    if trade:
        _trade_off_radar(fig, cells[0, 1], trade)
        start = from_zero(fig.axes[-1]).strip()
        fig.axes[-1].set_title(f"(b) $r_1 = 0.96$, training accuracy, %\n{start}", pad=14)
        fig.axes[-1].legend(ncols=2, **below)
    ax = fig.add_subplot(cells[1, :])
    speeds = {}
    for (job, runs), color in zip(_by_steps(a, pref), D_COLOURS, strict=True):
        steps, values = job.curve("train_accuracy", runs)
        band(ax, steps, values, f"$D = {job.D}$", color)
        speeds[job.D] = _per_seed(job, np.trapezoid(values, steps, axis=0) / steps[-1], runs)
    dress(ax, "outer step $k$", "mean training accuracy, %", "(c) task 1 preferred", legend="lower right")
    axes, symbols = ("(a), (b)", f"{TRADE_OFF} {INNER}") if trade else ("(a)", INNER)
    st.caption(fig, f"Bars on the axes of {axes} and bands in (c): {error_of(pref)}. {symbols}")
    a.figure(fig)
    claims = ("preferred-training", "extreme-training", "preferred-test", "extreme-test", "loss", "covered")
    a.refer("mobl/fig1", *claims)  # Figure 4a is a copy of Figure 1
    if trade:
        _judge_trade_off(a, trade)
    else:
        a.note("(b), the trade-off, is not drawn: artifact.only left out the job trade_off.")
    _judge_inner_steps(a, "inner-steps", speeds, "mean accuracy over the steps")
    _notes(a, pref)


def _judge_trade_off(a: Artifact, trade: FewShot) -> None:
    runs = {u: trade.runs(trade_off=u) for u in (1.0, 5.0, 10.0, 20.0)}
    grown = _from_to(trade, "train_accuracy_1", 1.0, 20.0)
    accuracy = (f"u = {u:g}: {trade.ends('train_accuracy_', r)[:, 0].mean():.1f} %" for u, r in runs.items())
    loss = (f"{trade.ends('f_', r)[:, 0].mean():.4f}" for r in runs.values())
    weight = (f"{trade.curve('lambda_1', r)[1][1:].mean():.2f}" for r in runs.values())
    check = SurelyAbove(grown, of="gain of accuracy from u = 1 to 20", **SURE | {"digits": "+.2f"})
    values = f"{', '.join(accuracy)}; its loss {', '.join(loss)}; its mean weight {', '.join(weight)}"
    ends = [trade.ends("train_accuracy_", r)[:, 0].mean() for r in runs.values()]
    check = check.also(values).below_ceiling(ends, **CEILING)
    a.claim("trade-off", check, interval=grown.ends("+.2f", " pp"))


def _judge_inner_steps(
    a: Artifact, id: str, of_seeds: Mapping[int, pd.Series], of: str, **words: Any
) -> None:
    order = sorted(of_seeds)
    grown = change(of_seeds[order[0]], of_seeds[order[-1]])
    sure = SurelyAbove(grown, of=f"{of}, largest D minus smallest", **SURE)
    means = {f"D = {D}": float(of_seeds[D].mean()) for D in order}
    check = rises(means, of, sure, unit=" %", digits=".1f").below_ceiling(means.values(), **CEILING)
    a.claim(id, check, interval=grown.ends("+.1f", " pp"), **words)


def _from_to(job: FewShot, column: str, first: float, last: float) -> Mean:
    """Returns the change of a column from one u to another, over seeds."""
    less, more = (job.last[job.last["run"].isin(job.runs(trade_off=u))] for u in (first, last))
    return change(by_seed(less, column), by_seed(more, column))


def _per_seed(job: FewShot, values: np.ndarray, runs: list[int] | None) -> pd.Series:
    """Returns the statistics of one value for each run, in the order of runs."""
    chosen = sorted(job.runs() if runs is None else runs)
    if not chosen:  # no run finished: one NaN, of no seed
        return pd.Series(values)
    seeds = job.final.set_index("run").loc[chosen, "seed"]
    return pd.Series(values, index=seeds.to_numpy())


@artifact("mobl/fig5")
def fig5(a: Artifact) -> None:
    """Accuracies of all tasks under each of five preferences; the preferred task's lead over the steps."""
    pref = FewShot(a.jobs["pref"])
    fig, axes = st.panels(2, 2, figsize=(7.0, 5.2))
    for ax, below, (kind, prefix) in zip(*axes, KINDS.items(), strict=True):
        mean, error = polygons(pref, prefix)
        # accuracies of all tasks (preferences, S) as points, the preferred one outlined
        S = mean.shape[1]
        width = 0.8 / S
        for s, (color, marker) in enumerate(zip(COLOURS, st.MARKERS, strict=False)):
            x = np.arange(S) + (s - (S - 1) / 2) * width
            line = {"fmt": marker, "ms": 4.5, "color": color, "elinewidth": 0.8, "label": f"task {s + 1}"}
            ax.errorbar(x, mean[:, s], np.nan_to_num(error[:, s]), **line)
            ax.plot(x[s], mean[s, s], marker, ms=8, mfc="none", mec=st.BLACK, mew=0.9)
        low = float(np.fmin.reduce(mean - np.nan_to_num(error), axis=None))
        high = float(np.fmax.reduce(mean + np.nan_to_num(error), axis=None))
        for x in range(1, S):
            ax.axvline(x - 0.5, color="#DDDDDD", lw=0.5)
        ax.set_xticks(range(S), [f"$r_{s + 1} = 0.8$" for s in range(S)])
        floor = max(0.0, low - 2.0)
        ax.set_ylim(floor, high + 0.08 * (high - floor))  # room for the outlines
        ax.set_yticks([tick for tick in ax.get_yticks() if floor <= tick <= 100.0])
        dress(ax, y=f"{kind} accuracy, %", title=f"({PANEL[kind]})")
        lead_curves = leads(pref, prefix)
        below.axhline(0.0, color=st.GREY, lw=0.7)
        band(below, lead_curves.index.to_numpy(), lead_curves.to_numpy(), None, st.BLACK)
        dress(below, "outer step $k$", "lead of the preferred task, pp", f"({LEADS[kind]}, ours) {kind}")
        _judge_nearly_best(a, pref, kind, mean)
        step = early(pref)
        unknown = f"No step has a mean training accuracy of {EARLY:g} %. Decided by longer runs."
        ahead = over_seeds([] if step is None else leads(pref, KINDS[kind]).loc[step].to_numpy())
        check = SurelyAbove(ahead, of=f"lead at step {step}", **SURE)
        a.check("early-{kind}", check.provided(step is not None, unknown), kind=kind, early=f"{EARLY:g}")
    legend_below(fig, axes[0, 0])
    fig.suptitle(f"{mean_of(pref)}; outlined: the preferred task; bars, bands: one standard error")
    a.figure(fig)
    _notes(a, pref)


def _judge_nearly_best(a: Artifact, pref: FewShot, kind: str, mean: np.ndarray) -> None:
    near = {f"task {s + 1}": bool(mean[s, s] >= mean[s].max() - NEAR) for s in range(pref.S)}
    ahead = over_seeds(lead(pref, KINDS[kind]))
    nearly = Count(near, 4, that=f"within {NEAR:g} pp of the highest", what="runs")
    leads = SurelyAbove(ahead, of="lead", **SURE)
    why = {
        (True, False): "All tasks are nearly at the highest accuracy, so the preference shows nothing.",
        (False, True): "It leads the mean of the others, but is nearly the highest in only "
        f"{sum(near.values())} of {len(near)} runs, where 4 are asked for. {HARDER}",
    }
    values = (f"{mean[s, s]:.1f} % of at most {mean[s].max():.1f} %" for s in range(pref.S))
    a.claim(
        "nearly-best-{kind}",
        AllOf(nearly, leads, partial=True).also(", ".join(values)).below_ceiling(mean.ravel(), **CEILING),
        reason=why.get((nearly.holds is True, leads.holds is True), HARDER),
        interval=f"lead, in pp: {ahead.ends('+.1f')}",
        kind=kind,
        panel=PANEL[kind],
    )


@artifact("mobl/fig6")
def fig6(a: Artifact) -> None:
    """Accuracy of the preferred task against k for several trade-offs."""
    job = FewShot(a.jobs["trade_off"])
    us = sorted(job.rows.final["trade_off"].unique())
    panels = {
        "train_accuracy_1": "(a) training accuracy of task 1, %",
        "test_accuracy_1": "(b) test accuracy of task 1, %",
        "f_1": "(ours) upper-level loss of task 1",
    }
    fig, (axes,) = st.panels(1, 3, figsize=(7.0, 2.6))
    means: dict[str, dict[float, float]] = {column: {} for column in panels}
    for ax, (column, title) in zip(axes, panels.items(), strict=True):
        for u, color in zip(us, U_COLOURS, strict=True):
            steps, values = job.curve(column, job.runs(trade_off=u))
            band(ax, steps, values, f"$u = {u:g}$", color, ls="--" if u == 0 else "-")
            means[column][u] = float(values[-1].mean())
        dress(ax, "outer step $k$", title=title)
    axes[2].set_yscale("log")
    axes[0].legend()
    fig.suptitle("task 1 preferred, $r_1 = 0.8$")
    st.caption(fig, f"Lines: means, bands: {error_of(job)}. {TRADE_OFF}")
    a.figure(fig)
    train, test, loss = means.values()
    _judge_larger_u(a, job, train, loss)
    _judge_test_accuracy(a, job, test)
    base = Above(
        loss[0.0], max(loss[u] for u in us if u > 0), of="loss with u = 0", than="largest with u > 0"
    )
    a.check("reversal", base.also(", ".join(f"u = {u:g}: {loss[u]:.4f}" for u in us)))
    _notes(a, job)


def _judge_larger_u(
    a: Artifact, job: FewShot, train: Mapping[float, float], loss: Mapping[float, float]
) -> None:
    gains = {f"u = {u:g}": _from_to(job, "train_accuracy_1", 1.0, u) for u in (10.0, 20.0)}
    better = SurelyAbove(gains, of="gain of accuracy over u = 1", partial=True, **SURE)
    values = "; ".join(f"u = {u:g}: {value:.1f} %, loss {loss[u]:.4f}" for u, value in train.items())
    only = [name for name in gains if name not in better.failing]
    ended = [train[u] for u in (1.0, 10.0, 20.0)]
    a.claim(
        "larger",
        better.also(values).below_ceiling(ended, **CEILING),
        reason=f"It holds for {only[0]} alone." if len(only) == 1 else "",
        interval=ends(gains, "+.1f", " pp"),
    )
    apart = abs(train[10.0] - train[20.0])
    alike = AtMost(apart, CLOSE, of="difference of the means", unit=" pp", digits=".1f")
    between = _from_to(job, "train_accuracy_1", 10.0, 20.0)
    a.claim(
        "alike",
        alike.also(f"{train[10.0]:.1f} % and {train[20.0]:.1f} %").below_ceiling(ended[1:], **CEILING),
        interval=between.ends("+.1f", " pp"),
    )


def _judge_test_accuracy(a: Artifact, job: FewShot, test: Mapping[float, float]) -> None:
    grown = _from_to(job, "test_accuracy_1", 1.0, 20.0)
    sure = SurelyAbove(grown, of="gain of accuracy from u = 1 to 20", **SURE)
    means = {f"u = {u:g}": test[u] for u in (1.0, 10.0, 20.0)}
    ordered = Ordered(means, of="means", unit=" %", digits=".1f")
    check = sure if sure.holds is None else Graded(AllOf(ordered, sure), sure)
    a.claim("test", check, interval=grown.ends("+.1f", " pp"))


@artifact("mobl/fig7")
def fig7(a: Artifact) -> None:
    """Mean accuracies against k for three numbers of inner steps."""
    pref = FewShot(a.jobs["pref"])
    fig, (axes,) = st.panels(1, 2, figsize=(7.0, 2.8))
    for ax, (kind, prefix) in zip(axes, KINDS.items(), strict=True):
        accuracies = {}
        spreads = {}
        for (job, runs), color in zip(_by_steps(a, pref), D_COLOURS, strict=True):
            steps, values = job.curve(prefix.rstrip("_"), runs)
            band(ax, steps, values, f"$D = {job.D}$", color)
            accuracies[job.D] = _per_seed(job, values[-1], runs)
            spreads[job.D] = float(values.std(axis=1, ddof=1).mean()) if values.shape[1] > 1 else float("nan")
        dress(ax, "outer step $k$", f"mean {kind} accuracy, %", f"({PANEL[kind]})")
        words = {"kind": kind, "panel": PANEL[kind]}
        _judge_inner_steps(a, "grows-{kind}", accuracies, "final accuracy", **words)
        first, *_, last = sorted(spreads)
        of = f"standard deviation of seeds with D = {first}, mean over k"
        wider = Above(spreads[first], spreads[last], of=of, than=f"with D = {last}", unit=" pp", digits=".2f")
        few = undecided_ratio(spreads[first], spreads[last], len(accuracies[first]))
        a.claim(
            "spread-{kind}",
            wider.also(", ".join(f"D = {D}: {spreads[D]:.2f} pp" for D in sorted(spreads))).provided(
                not few, few
            ),
            kind=kind,
            name=kind.capitalize(),
            panel=PANEL[kind],
        )
    axes[0].legend(loc="lower right")
    fig.suptitle("task 1 preferred, $r_1 = 0.8$")
    st.caption(fig, f"Lines: means over tasks and seeds, bands: {error_of(pref)}. {INNER}")
    a.figure(fig)
    _notes(a, pref)


def undecided_ratio(one: float, other: float, seeds: int) -> str:
    """Says so where the 95 % interval of the ratio of two standard deviations (F test) holds 1."""
    if seeds < 2 or not np.isfinite([one, other]).all():
        return "One seed has no spread. Decided by more seeds."
    factor = float(np.sqrt(stats.f.ppf(0.975, seeds - 1, seeds - 1)))
    if not one / factor < other < one * factor:
        return ""
    far = max(one / other, other / one)
    enough = next((n for n in range(2, 1000) if stats.f.ppf(0.975, n - 1, n - 1) < far**2), "more than 1,000")
    return (
        f"Standard deviations of {seeds} seeds: the 95 % interval of their ratio, "
        f"{one / other / factor:.2f} to {one / other * factor:.2f}, holds 1. "
        f"Decided by {enough} seeds, if the ratio stays where it is."
    )


def carried(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Returns, for each seed (row) with one best task in training, whether that alone is best in the test."""
    clear = (train == train.max(axis=1, keepdims=True)).sum(axis=1) == 1
    train, test = train[clear], test[clear]
    alone = (test == test.max(axis=1, keepdims=True)).sum(axis=1) == 1
    return alone & (test.argmax(axis=1) == train.argmax(axis=1))


@artifact("mobl/fig8")
def fig8(a: Artifact) -> None:
    """Accuracies of all tasks without preference."""
    fig, axes = st.panels(2, 2, figsize=(7.0, 5.0), sharey=True)
    names = ("s5", "s_more")
    most = max(FewShot(a.jobs[name]).S for name in names)
    for k, (ax, (name, kind)) in enumerate(zip(axes.flat, itertools.product(names, KINDS), strict=True)):
        job = FewShot(a.jobs[name])
        colors = st.plt.get_cmap("viridis")(np.linspace(0.0, 0.9, most))  # a task's are the same in all
        for s in range(job.S):
            steps, values = job.curve(f"{KINDS[kind]}{s + 1}")
            marks = {"marker": (*st.MARKERS, *st.MARKERS)[s], "ms": 3, "markevery": (0.02 * s, 0.25)}
            ax.plot(steps, values.mean(1), color=colors[s], lw=1.0, label=f"task {s + 1}", **marks)
        dress(ax, "outer step $k$", title=f"({'abcd'[k]}) $S = {job.S}$, {kind}")
    for name, (kind, prefix) in itertools.product(names, KINDS.items()):
        _judge_leads(a, name, kind, prefix)
    if SHARED["s5"] in a.jobs:
        a.note(
            "That no task leads with S = 5 is judged by seeds that share their tasks, which are not drawn."
        )
    for name in names:
        _judge_without_preference(a, name)
    for row in axes:
        row[0].set_ylabel("accuracy, %")
    legend_below(fig, axes[1, 0])
    job = FewShot(a.jobs["s5"])
    fig.suptitle(f"Algorithm 4, no preference; {mean_of(job)}")
    a.figure(fig)
    more = FewShot(a.jobs["s_more"])
    if more.S != 10:
        a.note(
            f"S = {more.S} instead of 10: the classes of {more.rows.data} suffice for no more tasks of five "
            "ways."
        )
    _notes(a, job)


def _judge_leads(a: Artifact, name: str, kind: str, prefix: str) -> None:
    shared = SHARED.get(name, "")
    judged = shared if shared in a.jobs else name
    job = FewShot(a.jobs[judged])
    if judged == name:
        unknown = "Each seed draws other tasks, so task 1 of one seed is not that of another. Decided by "
        unknown += "seeds that share their tasks: problem.tasks_seed=12, 18 minutes of a core each."
        leads = leads_always(job.ends(prefix), named=False).provided(False, unknown)
    else:
        leads = leads_always(job.ends(prefix))
    word = "train" if kind == "training" else kind
    about: dict[str, Any] = {"papers": PAPERS[name], "S": job.S, "kind": word}
    a.claim("none-dominates-{papers}-{kind}", leads, rests_on=(judged,), **about)


def leads_always(accuracies: np.ndarray, named: bool = True) -> Check:
    """Returns the check that no task (column) is alone the best in all seeds (rows).

    By chance a task leads in one of S seeds; one that leads in all of them gets an interval.
    named: whether a task is the same in all seeds.
    """
    best = accuracies >= accuracies.max(axis=1, keepdims=True) - 1e-9
    alone = best & (best.sum(axis=1, keepdims=True) == 1)
    counts = alone.sum(axis=0)
    first = int(counts.argmax())
    that = f"task {first + 1} alone the best"
    n, S = accuracies.shape
    if named and n > 1 and counts[first] == n:
        return Share(alone[:, first], at_most=1 / S, that=that, what="seeds")
    always = {f"task {s}": count == n for s, count in enumerate(counts, 1)}
    none = Count(always, at_most=0, that=f"alone the best in all {n} seeds", what="tasks")
    shared = (
        "Several tasks share the largest accuracy in more than half of the seeds, so none can lead in all."
    )
    if named:
        none = none.also(f"{that} in {counts[first]}")
    if n < 2:
        return none.provided(False, "One seed nearly always has a task that leads.")
    return none.provided(2 * counts.sum() >= n, shared)


def _judge_without_preference(a: Artifact, name: str) -> None:
    names = [one for one in (name, *MORE[name]) if one in a.jobs]
    jobs = [FewShot(a.jobs[one]) for one in names]
    train, test = (np.vstack([job.ends(prefix) for job in jobs]) for prefix in KINDS.values())
    same = carried(train, test)
    few = (
        "Several tasks share the highest training accuracy in most seeds, so none leads. Decided by longer "
        f"runs on harder data: {a.decides}."
    )
    what = "seeds with one best task in training"
    that = "it alone is the best in the test, too"
    differs = Graded(
        Share(same, at_most=0.5, that=that, what=what),
        AtLeast(int((~same).sum()), 1, of=f"{what}, but another in the test", digits="d"),
    )
    enough = 2 * len(same) >= len(train) > 1
    about: dict[str, Any] = {"papers": PAPERS[name], "S": jobs[0].S}
    differs = differs.also(f"{len(train)} seeds").provided(enough, few)
    a.claim("does-not-carry-{papers}", differs, rests_on=names, **about)
    square = jobs[0].curve("direction_square")[1].mean(axis=1)
    of = f"how many times smaller it becomes, from {square[1]:.2e} to {square[-1]:.2e}"
    falls = AtLeast(square[1] / square[-1], 10, of=of, digits=".0f")
    a.claim("stationary-{papers}", falls, rests_on=(name,), **about)


@artifact("mobl/readings")
def readings(a: Artifact) -> None:
    """Leads of the preferred task in the first steps, by how many images a task has."""
    there = {name: sizes for name, sizes in READINGS.items() if name in a.jobs}
    fig, (axes,) = st.panels(1, len(there), figsize=(7.0, 2.6), sharey=True)
    for ax, (name, sizes) in zip(axes, there.items(), strict=True):
        job = FewShot(a.jobs[name])
        ax.axhline(0.0, color=st.GREY, lw=0.7)
        for (kind, prefix), color in zip(KINDS.items(), (st.BLUE, st.ORANGE), strict=True):
            lead_curves = leads(job, prefix)
            band(ax, lead_curves.index.to_numpy(), lead_curves.to_numpy(), kind, color)
        title = sizes.replace(", ", ",\n", 1).replace("S_i", "$S_i$").replace("D_i", "$D_i$")
        dress(ax, "outer step $k$", title=title, small=True)
        reached = early(job)
        step = int(job.rows.history["step"].max()) if reached is None else reached
        ahead = {kind: over_seeds(leads(job, prefix).loc[step].to_numpy()) for kind, prefix in KINDS.items()}
        check = SurelyAbove(ahead, of=f"lead at step {step}", **SURE)
        unknown = f"No step has a mean training accuracy of {EARLY:g} %. Decided by longer runs."
        # with other images in each step no ceiling is near, so that the last step is judged
        check = check.provided(reached is not None or name == "anew", unknown)
        digits = f"Digits decide nothing, in either direction. Decided by: {a.decides}."
        check = check.provided(not a.stand_ins([name]), digits)
        a.check("{name}", check, name=name, sizes=sizes, early=f"{EARLY:g}")
    axes[0].set_ylabel("lead of the preferred task, pp")
    axes[0].legend()
    a.figure(fig)
