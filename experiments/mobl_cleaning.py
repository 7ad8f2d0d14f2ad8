"""Data hyper-cleaning of the bilevel paper: Figures 9 to 12. Criteria are the specification's, fixed before any run.

L_s is the validation loss f_s at the (x, y_D) that the method has after its last step, as in the paper; final.csv holds the loss
at the exact y*(x) beside it. Claims are orderings; where images stand in for MNIST a claim that holds is "partial".
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, JobRows, artifact
from mobench.artifacts import style as st

from .radar import draw_hull, draw_polygon, hull, limits, polygon_area, radar_axes

COLOURS = [st.BLUE, st.SKY, st.GREEN, st.ORANGE, st.RED]
HULL = 1.1  # a hull contains every polygon: how much larger than the largest its area must be
TRANSIENT = (
    "Literal settings: the hypergradient's components are means over n images, so the printed step 0.1 leaves x where it starts "
    "and every preference gives the same radar chart. With the step times 10 n (only the step, not the Gram matrix) the preferred "
    "task's wrong labels lose their weight."
)


@dataclass(frozen=True)
class Cleaning:
    """One job."""

    rows: JobRows

    @property
    def rates(self) -> np.ndarray:
        """p_s."""
        return np.array(self.rows.config["problem"]["rates"], dtype=float)

    @property
    def S(self) -> int:
        """Number of tasks."""
        return len(self.rates)

    @property
    def data(self) -> str:
        """What the images are."""
        return str(self.rows.meta["data"])

    @cached_property
    def history(self) -> pd.DataFrame:
        """Of the runs that finished."""
        final, h = self.rows.final, self.rows.history
        return h[h["run"].isin(final.loc[final["status"] == "done", "run"])]

    @cached_property
    def last(self) -> pd.DataFrame:
        """The last recorded step of every finished run, with its preference, seed and hyper-parameters."""
        h = self.history[self.history["step"] == self.history["step"].max()]
        extra = [c for c in self.rows.final.columns if c.startswith("preference_") or c not in h.columns]
        return h.merge(self.rows.final[["run", *extra]], on="run")

    def losses(self, where: pd.Series | None = None, prefix: str = "f_") -> np.ndarray:
        """(runs, S) at the end, of the chosen runs."""
        rows = self.last if where is None else self.last[where]
        return rows[[f"{prefix}{s + 1}" for s in range(self.S)]].to_numpy(dtype=float)

    def curve(self, column: str, where: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Steps and (steps, runs) of a column."""
        h = self.history
        if where is not None:
            h = h[h["run"].isin(where)]
        table = h.pivot_table(index="step", columns="run", values=column)
        return table.index.to_numpy(), table.to_numpy()


def judged(a: Artifact, job: Cleaning, holds: bool | Literal["partial"]) -> bool | Literal["partial"]:
    """On the paper's data and scale what was found; elsewhere at best "partial"."""
    exact = a.scale == "paper" and job.data == "MNIST"
    return holds if exact or not holds else "partial"


def elsewhere(a: Artifact, job: Cleaning) -> str:
    """For claims that were not judged on the paper's data and scale."""
    return "" if a.scale == "paper" and job.data == "MNIST" else f"Run on {job.data}, at {a.scale} scale."


def inverse(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over seeds of 1/L."""
    values = 1.0 / losses
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.full(values.shape[1], np.nan)
    return values.mean(axis=0), error


def exact_inverse(job: Cleaning, task: int | None = None) -> np.ndarray:
    """Mean over finished runs (that prefer a task) of 1/L at the exact y*(x)."""
    final = job.rows.final[job.rows.final["status"] == "done"]
    if task is not None:
        final = final[final[[f"preference_{s + 1}" for s in range(job.S)]].to_numpy().argmax(axis=1) == task]
    if "weight_step" in final:
        final = final[final["weight_step"] == final["weight_step"].max()]
    found: np.ndarray = (1.0 / final[[f"f_{s + 1}" for s in range(job.S)]].to_numpy()).mean(axis=0)
    return found


def paired(job: Cleaning, column: str, first: float, last: float) -> tuple[float, float]:
    """Mean over seeds and its standard error of 1/column with the last trade-off minus that with the first."""
    table = 1.0 / job.last.pivot_table(index="seed", columns="trade_off", values=column)
    difference = (table[last] - table[first]).dropna().to_numpy()
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
    return float(difference.mean()), float(error)


def by_preference(job: Cleaning) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """For each preferred task: its number, mean and standard error of 1/L on all axes."""
    weights = job.last[[f"preference_{s + 1}" for s in range(job.S)]].to_numpy()
    preferred = weights.argmax(axis=1)
    return [
        (s, *inverse(job.losses(pd.Series(preferred == s, index=job.last.index))))
        for s in sorted(set(preferred.tolist()))
    ]


def axis_labels(job: Cleaning) -> list[str]:
    """The tasks."""
    return [f"$p = {p:.3g}$" for p in job.rates]


def _curves(ax: Any, steps: np.ndarray, values: np.ndarray, label: str | None, color: Any, **kw: Any) -> None:
    """Mean over runs, with a band of one standard error."""
    mean = values.mean(axis=1)
    ax.plot(steps, mean, color=color, label=label, **kw)
    if values.shape[1] > 1:
        error = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
        ax.fill_between(steps, mean - error, mean + error, color=color, alpha=0.2, lw=0)


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

    us = sorted(trade.last["trade_off"].unique())
    lines = {u: inverse(trade.losses(trade.last["trade_off"] == u)) for u in us}
    low, high, ticks = limits(np.stack([mean for mean, _ in lines.values()]))
    ax = radar_axes(fig, 132, axis_labels(trade), low, high, ticks)
    for u, color in zip(us, [st.GREY, *COLOURS], strict=False):
        draw_polygon(ax, lines[u][0], f"$u = {u:g}$", color, lines[u][1], ls="--" if u == 0 else "-")
    ax.set_title("(b) $1/L$, last task preferred", pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3)

    ax = fig.add_subplot(133)
    own = pref.last.loc[pref.last[f"preference_{pref.S}"] > 0.5, "run"].tolist()
    ends = {}
    for name, job, where in (
        ("d_short", Cleaning(a.jobs["d_short"]), None),
        ("d_middle", Cleaning(a.jobs["d_middle"]), None),
        ("pref", pref, own),
    ):
        D = int(job.rows.config["oracle"]["inner_steps"])
        parts = [job.curve(f"f_{s + 1}", where) for s in range(job.S)]
        steps, values = parts[0][0], np.mean([v for _, v in parts], axis=0)
        color = {"d_short": st.ORANGE, "d_middle": st.GREEN, "pref": st.BLUE}[name]
        _curves(ax, steps, values, f"$D = {D}$", color)
        ends[D] = (float(values[-1].mean()), bool(values[-1].mean() < values[0].mean()))
    ax.set_xlabel("outer step $k$")
    ax.set_ylabel("mean of the validation losses")
    ax.set_title("(c) inner steps, last task preferred")
    ax.legend()
    fig.suptitle(f"Data hyper-cleaning on {pref.data}", fontsize=10)
    a.figure(fig)
    a.table(_table({"WC-MHGD": pref, "WC-MHGD, step as printed": literal}))

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
        holds=judged(a, pref, sum(best) >= 4),
        reason=elsewhere(a, pref),
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
        holds=judged(a, pref, covered >= HULL * max(areas)),
        reason=elsewhere(a, pref),
    )
    first, last_u = 0.1, 20.0
    slope, se = paired(trade, f"f_{trade.S}", first, last_u)
    flat = abs(slope) <= max(se, 1e-4)
    a.claim(
        "trade-off",
        f"(b) 1/L of the preferred task grows with u from {first:g} to {last_u:g}",
        "Figure 9b",
        published="grows",
        measured=", ".join(f"u = {u:g}: {lines[u][0][-1]:.4f}" for u in us if u > 0)
        + f"; difference {slope:+.1e}, its standard error over seeds {se:.0e}"
        + (": flat" if flat else ""),
        tolerance="more than one standard error and 1e-4: holds; within: flat (partial); falls: fails",
        holds=judged(a, trade, "partial" if flat else slope > 0) if np.isfinite(se) else None,
        reason="For u > 0 the last task's r_s phi_s is the largest along the whole path, so the weights sit on it from the first "
        f"step: u has nothing left to decide (u = 0: {lines[0.0][0][-1]:.4f}). {elsewhere(a, trade)}".strip(),
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
        holds=judged(a, pref, falling and all(e[1] for e in ends.values())),
        reason=f"y is warm-started, so few inner steps track y*(x) almost as well as many. {elsewhere(a, pref)}".strip(),
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
        weights = job.last[[f"preference_{s + 1}" for s in range(job.S)]].to_numpy()
        exact = job.rows.final.set_index("run").loc[job.last["run"], [f"f_{s + 1}" for s in range(job.S)]].to_numpy()
        for s in range(job.S):
            mask = (weights.argmax(axis=1) == s) & (weights.max(axis=1) > 1.5 / job.S)
            if not mask.any():
                continue
            mean, error = inverse(job.losses(pd.Series(mask, index=job.last.index)))
            some = job.last[mask]
            line: dict[str, Any] = {"method": name, "preferred": f"p = {job.rates[s]:.3g}", "seeds": int(mask.sum())}
            for k, p in enumerate(job.rates):
                line[f"1/L, p = {p:.3g}"] = f"{mean[k]:.3f}" + (f" ± {error[k]:.3f}" if np.isfinite(error[k]) else "")
            line["1/L at y*, preferred"] = f"{(1.0 / exact[mask][:, s]).mean():.3f}"
            line["test accuracy, preferred"] = f"{some[f'test_accuracy_{s + 1}'].mean():.1f} %"
            wrong, right = (some[f"weight_{kind}_{s + 1}"].mean() for kind in ("wrong", "right"))
            line["weight wrong / right, preferred"] = (
                f"{'–' if np.isnan(wrong) else format(wrong, '.2f')} / {right:.2f}"
            )
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
        _curves(ax, steps, of(values), f"$p = {job.rates[s]:.3g}$", colors[s])


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
                holds=judged(a, job, max(changes) < 0.02),
                reason=elsewhere(a, job) or _still_moving(job),
            )
    _notes(a, Cleaning(a.jobs["s5"]))


@artifact("mobl/fig11")
def fig11(a: Artifact) -> None:
    """1/L of all tasks without preference."""
    _four(a, lambda ax, job, kind: _task_curves(ax, job, kind, lambda v: 1.0 / v), "$1/L$")
    for name in ("s5", "s10"):
        job = Cleaning(a.jobs[name])
        for kind, prefix in (("validation", "f_"), ("test", "test_loss_")):
            values = 1.0 / job.losses(prefix=prefix)
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
                holds=judged(a, job, len(winners) > 1),
                reason="1/L follows the corruption rate: the task with the fewest wrong labels is the easiest. "
                + elsewhere(a, job),
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
    apart = 0.0  # between the two weight steps
    for name in ("moco_01", "moco_05", "moco_1", "moco_inner_01", "moco_inner_05", "moco_inner_1"):
        job = Cleaning(a.jobs[name])
        scale, inner = job.rows.config["oracle"]["scale"], job.rows.config["oracle"]["inner"]["inner_steps"]
        words = f"$b_0 = {scale:g}$, {inner} inner step{'s' if inner > 1 else ''}"
        if "weight_step" in job.last:
            few, many = (job.losses(job.last["weight_step"] == gamma) for gamma in (0.01, 0.1))
            apart = max(apart, float(np.abs(few - many).max()))
        else:
            many = job.losses()
        tried.append((words, *inverse(many), exact_inverse(job)))
    tried.sort(key=lambda entry: -entry[1].mean())
    words, moco, moco_error, _ = tried[0]
    later = max(tried, key=lambda entry: entry[3].mean())
    own_exact = np.stack([exact_inverse(pref, s) for s, _, _ in found])
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

    def line(method: str, setting: str, values: np.ndarray, exact: np.ndarray) -> dict[str, Any]:
        cells = {f"1/L, p = {p:.3g}": f"{v:.4f} ({e:.4f})" for p, v, e in zip(pref.rates, values, exact, strict=True)}
        return {"method": method, "setting": setting, **cells}

    mine = [line("WC-MHGD", f"r_{s + 1} = .9", m, e) for (s, m, _), e in zip(found, own_exact, strict=True)]
    a.table(pd.DataFrame([*mine, *(line("MoCo", w.replace("$", ""), m, e) for w, m, _, e in tried)]))
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
        holds=judged(a, pref, bool(better.all())),
        reason=elsewhere(a, pref),
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
        f"of 0.01 and 0.1 give losses that differ by at most {apart:.0e}: the Gram matrix of means over n images is so small "
        "that its weights stay at 1/S."
    )
    _notes(a, pref)
