"""Data hyper-cleaning of the bilevel paper: Figures 9 to 12. Criteria are the specification's, fixed before any run.

L_s is the validation loss f_s at the (x, y_D) that the method has after its last step, as in the paper; final.csv holds the loss
at the exact y*(x) beside it. Claims are orderings; where images stand in for MNIST a claim that holds is "partial".
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

TRANSIENT = (
    "Literal settings: the hypergradient's components are means over n images, so the printed step 0.1 leaves x where it starts "
    "and every preference gives the same radar chart. With the step times 10 n (only the step, not the Gram matrix) the preferred "
    "task's wrong labels lose their weight."
)


@dataclass(frozen=True)
class Cleaning(Tasks):
    """One job of data hyper-cleaning."""

    @property
    def rates(self) -> np.ndarray:
        """p_s."""
        return np.array(self.rows.config["problem"]["rates"], dtype=float)

    @property
    def S(self) -> int:
        return len(self.rates)

    @property
    def complete_data(self) -> bool:
        return self.data == "MNIST"


def inverse(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over seeds of 1/L."""
    return mean_error(1.0 / losses)


def by_preference(job: Cleaning) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """For each preferred task: its number, mean and standard error of 1/L on all axes."""
    return [(s, *inverse(job.ends("f_", job.runs(s)))) for s in sorted(set(job.rows.weights.argmax(axis=1)))]


def axis_labels(job: Cleaning) -> list[str]:
    """The tasks."""
    return [f"$p = {p:.3g}$" for p in job.rates]


@artifact("mobl/fig9")
def fig9(a: Artifact) -> None:
    """Preferences (a), trade-off u (b), inner steps D (c)."""
    pref, trade, literal = (Cleaning(a.jobs[name]) for name in ("pref", "trade_off", "literal"))
    found = by_preference(pref)
    polygons = np.stack([mean for _, mean, _ in found])
    fig = st.plt.figure(figsize=(11.4, 4.0), layout="constrained")
    low, high, ticks = limits(polygons)
    ax = radar_axes(fig, 131, axis_labels(pref), low, high, ticks)
    draw_hull(ax, hull(polygons), "covered")
    for (s, mean, error), color in zip(found, COLOURS, strict=True):
        draw_polygon(ax, mean, f"$r_{s + 1} = .9$", color, error)
    ax.set_title("(a) $1/L$, one task preferred", pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3)

    us = sorted(trade.rows.final["trade_off"].unique())
    lines = {u: inverse(trade.ends("f_", trade.runs(trade_off=u))) for u in us}
    low, high, ticks = limits(np.stack([mean for mean, _ in lines.values()]))
    ax = radar_axes(fig, 132, axis_labels(trade), low, high, ticks)
    for u, color in zip(us, [st.GREY, *COLOURS], strict=False):
        draw_polygon(ax, lines[u][0], f"$u = {u:g}$", color, lines[u][1], ls="--" if u == 0 else "-")
    ax.set_title("(b) $1/L$, last task preferred", pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3)

    ax = fig.add_subplot(133)
    own = pref.runs(pref.S - 1)
    ends = {}
    for name, job, where in (
        ("d_short", Cleaning(a.jobs["d_short"]), None),
        ("d_middle", Cleaning(a.jobs["d_middle"]), None),
        ("pref", pref, own),
    ):
        D = job.D
        parts = [job.curve(f"f_{s + 1}", where) for s in range(job.S)]
        steps, values = parts[0][0], np.mean([v for _, v in parts], axis=0)
        color = {"d_short": st.ORANGE, "d_middle": st.GREEN, "pref": st.BLUE}[name]
        band(ax, steps, values, f"$D = {D}$", color)
        ends[D] = (float(values[-1].mean()), bool(values[-1].mean() < values[0].mean()))
    ax.set_xlabel("outer step $k$")
    ax.set_ylabel("mean of the validation losses")
    ax.set_title("(c) inner steps, last task preferred")
    ax.legend()
    fig.suptitle(f"Data hyper-cleaning on {pref.data}", fontsize=10)
    a.figure(fig)
    a.table(_table({"WC-MHGD": pref, "WC-MHGD, step as printed": literal}), given=("method", "preferred"))

    best = [int(polygons[:, s].argmax() == k) for k, (s, _, _) in enumerate(found)]
    a.claim(
        "preferred",
        "(a) The run that prefers a task has the largest 1/L on its axis",
        "Figure 9a",
        published="largest on the preferred axis",
        measured=f"on {sum(best)} of {len(best)} axes: "
        + ", ".join(
            f"p = {pref.rates[s]:.3g}: {mean[s]:.3f} (others at most {max(m[s] for t, m, _ in found if t != s):.3f})"
            for s, mean, _ in found
        ),
        tolerance=">= 4 of 5 axes",
        holds=pref.judged(a, sum(best) >= 4),
        reason=pref.elsewhere(a),
    )
    areas = [polygon_area(p) for p in polygons]
    covered = polygon_area(hull(polygons))
    a.claim(
        "covered",
        "(a) Together the runs cover clearly more than any of them",
        "Figure 9a",
        published="clearly larger",
        measured=f"area {covered:.3f}, largest single polygon {max(areas):.3f}: {covered / max(areas):.2f} times",
        tolerance=f"{HULL} times (a hull contains every polygon)",
        holds=pref.judged(a, covered >= HULL * max(areas)),
        reason=pref.elsewhere(a),
    )
    first, last_u = 0.1, 20.0
    table = 1.0 / trade.last.pivot_table(index="seed", columns="trade_off", values=f"f_{trade.S}")
    slope, se = paired(table, first, last_u)
    # an increase beyond one standard error passes, a fall of 1 % fails: both of the specification; so 1 % is flat either way
    verdict = grows(slope, se, 0.01 * float(table[first].mean()))
    a.claim(
        "trade-off",
        f"(b) 1/L of the preferred task grows with u from {first:g} to {last_u:g}",
        "Figure 9b",
        published="grows",
        measured=", ".join(f"u = {u:g}: {lines[u][0][-1]:.4f}" for u in us if u > 0)
        + f"; difference {slope:+.1e}, its standard error over seeds {se:.0e}"
        + (": flat" if verdict == "partial" else "")
        + f" ({len(table)} seeds)",
        tolerance="more than one standard error and 1 %: holds; within: flat (partial); falls: fails",
        holds=trade.judged(a, verdict),
        reason="For u > 0 the last task's r_s phi_s is the largest along the whole path, so the weights sit on it from the first "
        f"step: u has nothing left to decide (u = 0: {lines[0.0][0][-1]:.4f}). {trade.elsewhere(a)}".strip(),
    )
    a.claim(
        "trade-off-zero",
        "(b) Without the second term (u = 0) the preferred task ends worse than with u = 0.1",
        "ours (b.7 of the specification)",
        published="not stated",
        measured=f"1/L {lines[0.0][0][-1]:.4f} against {lines[first][0][-1]:.4f}",
        tolerance="smaller",
        holds=bool(lines[0.0][0][-1] < lines[first][0][-1]),
    )
    order = sorted(ends)
    falling = all(ends[k][0] >= ends[m][0] for k, m in itertools.pairwise(order))
    a.claim(
        "inner-steps",
        "(c) The final mean loss does not grow with D, and all curves fall",
        "Figure 9c",
        published="smaller for larger D",
        measured=", ".join(f"D = {D}: {ends[D][0]:.4f}" for D in order),
        tolerance="nonincreasing",
        holds=pref.judged(a, falling and all(e[1] for e in ends.values())),
        reason=f"y is warm-started, so few inner steps track y*(x) almost as well as many. {pref.elsewhere(a)}".strip(),
    )
    spread = np.stack([mean for _, mean, _ in by_preference(literal)])
    apart = float((np.ptp(spread, axis=0) / spread.mean(axis=0)).max())
    shares = literal.last[[c for c in literal.last.columns if c.startswith("weight_")]].to_numpy(dtype=float)
    moved = float(np.nanmax(np.abs(shares - 0.5)))
    a.claim(
        "literal",
        "With the step as printed the weights of images do not move, and preferences make no difference",
        "ours",
        published="preferences differ (Figure 9a)",
        measured=f"mean weights of wrong and of right labels move by at most {moved:.1e} from 1/2; 1/L of the five "
        f"preferences differs by at most {100 * apart:.2f} % on any axis",
        tolerance="0.0125 and 2 %",
        holds=moved < 0.0125 and apart < 0.02,
    )
    a.note(TRANSIENT)
    _notes(a, pref)


def _notes(a: Artifact, job: Cleaning) -> None:
    a.note("L: validation loss at (x, y_D) after the last step; mean ± standard error over seeds of 1/L.")
    a.note(
        "The step of x is 10 n times the printed 0.1 (specification, decision 11); the printed one is run beside it in mobl/fig9."
    )
    if job.data != "MNIST":
        a.note(f"{job.data} stand in for MNIST (data=mnist scale=paper runs the paper's sizes).")


def _table(jobs: dict[str, Cleaning]) -> pd.DataFrame:
    """1/L on every axis, the losses at the exact y*, test accuracy, and what became of the wrong labels' weights."""
    rows = []
    for name, job in jobs.items():
        for s in sorted(set(job.rows.weights.argmax(axis=1))):
            runs = job.runs(s)
            mean, error = inverse(job.ends("f_", runs))
            some = job.last[job.last["run"].isin(runs)]
            line: dict[str, Any] = {"method": name, "preferred": f"p = {job.rates[s]:.3g}"}
            for k, p in enumerate(job.rates):
                spread = f" ± {error[k]:.3f}" if np.isfinite(error[k]) else ""
                line[f"1/L, p = {p:.3g}"] = f"{mean[k]:.3f}" + spread
            line["1/L at y*, preferred"] = f"{inverse(job.solved('f_', runs))[0][s]:.3f}"
            line["test accuracy, preferred"] = f"{some[f'test_accuracy_{s + 1}'].mean():.1f} %"
            wrong, right = (some[f"weight_{kind}_{s + 1}"].mean() for kind in ("wrong", "right"))
            line["weight wrong / right, preferred"] = (
                f"{'–' if np.isnan(wrong) else format(wrong, '.2f')} / {right:.2f}"
            )
            line["runs"] = Runs(len(runs), job.planned(s))
            rows.append(line)
    return pd.DataFrame(rows)


def _four(a: Artifact, draw: Any, ylabel: str) -> None:
    """Panels: S = 5 and the larger S, validation ("train" in the paper) and test."""
    fig, axes = st.plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
    for k, (name, kind) in enumerate((n, t) for n in ("s5", "s10") for t in ("validation", "test")):
        job = Cleaning(a.jobs[name])
        draw(axes[k], job, kind)
        axes[k].set_title(f"({'abcd'[k]}) $S = {job.S}$, {kind}")
        axes[k].set_xlabel("outer step $k$")
    axes[0].set_ylabel(ylabel)
    for k in (1, 3):
        axes[k].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7)
    fig.suptitle(f"Algorithm 4 on {Cleaning(a.jobs['s5']).data}", fontsize=10)
    a.figure(fig)


def _task_curves(ax: Any, job: Cleaning, kind: str, of: Any) -> None:
    colors = st.plt.get_cmap("viridis")(np.linspace(0.0, 0.9, job.S))
    for s in range(job.S):
        steps, values = job.curve(f"f_{s + 1}" if kind == "validation" else f"test_loss_{s + 1}")
        band(ax, steps, of(values), f"$p = {job.rates[s]:.3g}$", colors[s])


def _still_moving(job: Cleaning) -> str:
    """What the weights of wrong labels of the last task do at the end."""
    steps, values = job.curve(f"weight_wrong_{job.S}")
    late = values.mean(axis=1)[steps >= 0.8 * steps[-1]]
    return f"Mean weight of the last task's wrong labels in the last fifth: from {late[0]:.3f} to {late[-1]:.3f}."


@artifact("mobl/fig10")
def fig10(a: Artifact) -> None:
    """Losses of all tasks without preference."""
    _four(a, lambda ax, job, kind: _task_curves(ax, job, kind, lambda v: v), "loss")
    for name in ("s5", "s10"):
        job = Cleaning(a.jobs[name])
        for kind, prefix in (("validation", "f_"), ("test", "test_loss_")):
            changes = []
            for s in range(job.S):
                steps, values = job.curve(f"{prefix}{s + 1}")
                late = values.mean(axis=1)[steps >= 0.8 * steps[-1]]
                changes.append(float(abs(late[-1] / late[0] - 1)))
            a.claim(
                f"settled-{job.S}-{kind}",
                f"The {kind} losses have converged, S = {job.S}",
                "Figure 10",
                published="fewer than 150 steps",
                measured=f"largest change of a task in the last fifth of {int(steps[-1])} steps {100 * max(changes):.2f} %",
                tolerance="2 %",
                holds=job.judged(a, max(changes) < 0.02),
                reason=job.elsewhere(a) or _still_moving(job),
            )
    _notes(a, Cleaning(a.jobs["s5"]))


@artifact("mobl/fig11")
def fig11(a: Artifact) -> None:
    """1/L of all tasks without preference."""
    _four(a, lambda ax, job, kind: _task_curves(ax, job, kind, lambda v: 1.0 / v), "$1/L$")
    for name in ("s5", "s10"):
        job = Cleaning(a.jobs[name])
        for kind, prefix in (("validation", "f_"), ("test", "test_loss_")):
            values = 1.0 / job.ends(prefix)
            winners = sorted(set(values.argmax(axis=1).tolist()))
            mean = values.mean(axis=0)
            a.claim(
                f"none-dominates-{job.S}-{kind}",
                f"No task dominates without preference, {kind}, S = {job.S}",
                "Figure 11",
                published="no single objective dominates",
                measured=f"largest 1/L in the seeds: {', '.join(f'p = {job.rates[w]:.3g}' for w in winners)}; means "
                + ", ".join(f"{v:.3f}" for v in mean),
                tolerance="not the same task in all seeds",
                holds=job.judged(a, len(winners) > 1),
                reason="1/L follows the corruption rate: the task with the fewest wrong labels is the easiest. "
                + job.elsewhere(a),
            )
            a.claim(
                f"follows-{job.S}-{kind}",
                f"1/L falls with the corruption rate, and seeds agree, {kind}, S = {job.S}",
                "ours",
                published="not stated",
                measured=f"monotone: {'yes' if (np.diff(mean) < 0).all() else 'no'}; largest deviation of a seed "
                f"{100 * float((np.abs(values - mean) / mean).max()):.1f} %",
                tolerance="monotone; 5 %",
                holds=bool((np.diff(mean) < 0).all() and (np.abs(values - mean) / mean).max() < 0.05),
            )
    _notes(a, Cleaning(a.jobs["s5"]))


@artifact("mobl/fig12")
def fig12(a: Artifact) -> None:
    """WC-MHGD against MoCo, whose parameters are chosen by its own mean 1/L."""
    pref = Cleaning(a.jobs["pref"])
    found = by_preference(pref)
    polygons = np.stack([mean for _, mean, _ in found])
    tried = []
    apart, moved = 0.0, 0.0  # between the two weight steps; of the weights from 1/S, where they were recorded
    for name in ("moco_01", "moco_05", "moco_1", "moco_inner_01", "moco_inner_05", "moco_inner_1"):
        job = Cleaning(a.jobs[name])
        runs = job.runs()
        if "weight_step" in job.final:
            few, runs = job.runs(weight_step=0.01), job.runs(weight_step=0.1)
            apart = max(apart, float(np.abs(job.ends("f_", few) - job.ends("f_", runs)).max()))
        if "lambda_1" in job.last:
            moved = max(moved, float(np.abs(job.ends("lambda_", runs) - 1 / job.S).max()))
        scale = job.rows.config["oracle"]["scale"]
        words = f"$b_0 = {scale:g}$, {job.D} inner step{'s' if job.D > 1 else ''}, {len(runs)} seeds"
        tried.append((words, *inverse(job.ends("f_", runs)), inverse(job.solved("f_", runs))[0], job.rows.runs))
    tried.sort(key=lambda entry: -entry[1].mean())
    words, moco, moco_error = tried[0][:3]
    later = max(tried, key=lambda entry: entry[3].mean())
    own_exact = np.stack([inverse(pref.solved("f_", pref.runs(s)))[0] for s, _, _ in found])
    fig = st.plt.figure(figsize=(5.2, 4.6), layout="constrained")
    low, high, ticks = limits(np.vstack([polygons, moco]))
    ax = radar_axes(fig, 111, axis_labels(pref), low, high, ticks)
    draw_hull(ax, hull(polygons), "WC-MHGD, five preferences together")
    for k, (_, mean, _) in enumerate(found):
        draw_polygon(ax, mean, "WC-MHGD, single runs" if k == 0 else None, st.BLUE, lw=0.8, ms=0)
    draw_polygon(ax, moco, f"MoCo, {words}", st.RED, moco_error)
    ax.set_title(f"$1/L$ on {pref.data}", pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.04))
    a.figure(fig)

    def line(method: str, setting: str, values: np.ndarray, exact: np.ndarray, runs: Runs) -> dict[str, Any]:
        cells = {f"1/L, p = {p:.3g}": f"{v:.4f} ({e:.4f})" for p, v, e in zip(pref.rates, values, exact, strict=True)}
        return {"method": method, "setting": setting, **cells, "runs": runs}

    mine = [
        line("WC-MHGD", f"r_{s + 1} = .9", m, e, Runs(len(pref.runs(s)), pref.planned(s)))
        for (s, m, _), e in zip(found, own_exact, strict=True)
    ]
    moco_lines = [line("MoCo", w.replace("$", ""), m, e, runs) for w, m, _, e, runs in tried]
    a.table(pd.DataFrame([*mine, *moco_lines]), given=("method", "setting"))
    a.note("Table: 1/L at (x, y_D), in parentheses at the exact y*(x).")
    own = np.array([mean[s] for s, mean, _ in found])
    better = own > moco
    a.claim(
        "better",
        "1/L of WC-MHGD is larger than MoCo's on all axes (on each axis the run that prefers it)",
        "Figure 12",
        published="5 of 5 axes",
        measured=f"{int(better.sum())} of {len(better)}: "
        + ", ".join(f"{x:.3f} / {y:.3f}" for x, y in zip(own, moco, strict=True)),
        tolerance="5 of 5, means over seeds",
        holds=pref.judged(a, bool(better.all())),
        reason=pref.elsewhere(a),
    )
    mine_exact = np.array([e[s] for (s, _, _), e in zip(found, own_exact, strict=True)])
    better_exact = mine_exact > later[3]
    a.claim(
        "better-exact",
        "The same at the exact y*(x), MoCo's setting chosen there",
        "ours: MoCo's y lags with one inner step",
        published="not stated",
        measured=f"{int(better_exact.sum())} of {len(better_exact)}: "
        + ", ".join(f"{x:.3f} / {y:.3f}" for x, y in zip(mine_exact, later[3], strict=True))
        + f" (MoCo: {later[0].replace('$', '')})",
        tolerance="5 of 5, means over seeds",
        holds=bool(better_exact.all()),
        reason="What counts is x: a validation loss at y_D also measures how far y is behind.",
    )
    single = (polygons > moco).sum(axis=1)
    a.claim(
        "single",
        "A single WC-MHGD run is better than MoCo on all axes",
        "ours: one polygon against one",
        published="not stated",
        measured="axes on which each of the five runs is better: " + ", ".join(str(int(n)) for n in single),
        tolerance="one run with 5 of 5",
        holds=bool((single == pref.S).any()),
        reason="The comparison above takes on each axis the best of five runs against one run of MoCo.",
    )
    a.note(
        "MoCo's parameters are not printed: the best of six settings by its own mean 1/L is drawn (table: all). Its weight steps "
        f"of 0.01 and 0.1 give losses that differ by at most {apart:.0e}: the Gram matrix of means over n images is small, and the "
        f"weights end within {moved:.0e} of 1/S where they were recorded."
    )
    _notes(a, pref)
