"""Data hyper-cleaning: Figures 9 to 12.

L_s is the validation loss f_s at the (x, y_D) that the method has after its last step, as in the paper;
final.csv holds the loss at the exact y*(x) beside it. Claims are orderings.

With the printed step 0.1 the weights of the images do not move: components of the hypergradient are means
over n images. The paper does not print the scale that its figures need, and two readings of it are run, drawn
and judged beside each other:

    step            the step of x is 10 n times the printed one; equation (5) has the Gram matrix of the means
    step and Gram   the Gram matrix is that of n times the hypergradients as well, n^2 times as large.
                    Equation (5) then gives the weights that u / n^2 gives without the factor, MoCo's step of
                    its weights is n^2 times as long
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import (
    AllOf,
    AtLeast,
    Below,
    Check,
    Count,
    Gauge,
    Holds,
    Judged,
    Ordered,
    SurelyAbove,
    SurelyBelow,
    graded,
)
from mobench.artifacts.panels import dress
from mobench.artifacts.radar import draw_hull, draw_polygon, from_zero, hull, limits, polygon_area, radar_axes
from mobench.artifacts.statistics import Mean, by_seed

from .rows import COLOURS, HULL, Tasks, band, change, ends, mean_error, mean_of, over_seeds, rises

# what is multiplied, of the two readings
WRONG = "$p$: share of a task's training labels that are wrong"
LOSS = "$L$: its validation loss"
RESCALED = (
    "The step of $x$ that the paper's figures need is not printed. Step alone: it is $10 n$ times the "
    "printed one, for $n$ training images; step and Gram matrix: the Gram matrix of equation (5) is $n^2$ "
    "times as large, too."
)
ONLY = "the step alone"
BOTH = "step and Gram matrix"
SAME = 0.01  # a change of 1/L or of a loss by at most 1 % counts as none
AFTER = "at the (x, y_D) that the method has after each step"
ENDS = "L: validation loss at (x, y_D) after the last step; mean ± standard error over seeds of 1/L."
UNFINISHED = "Not all runs that it needs finished."
LOSSES = {"validation": "f_", "test": "test_loss_"}
SETTLED = 0.02  # and over the last fifth of the steps a change below 2 % as converged


@dataclass(frozen=True)
class Cleaning(Tasks):
    """One job of data hyper-cleaning."""

    @property
    def rates(self) -> np.ndarray:
        return np.array(self.rows.config["problem"]["rates"], dtype=float)

    @property
    def S(self) -> int:
        return len(self.rates)


@dataclass(frozen=True)
class BothReadings(Check):
    """One check for each reading of the paper; "partial" where it holds under one of them."""

    checks: Mapping[str, Check]

    def _holds(self) -> Holds:
        if any(check.holds is None for check in self.checks.values()):
            return None
        return graded(check.holds is True for check in self.checks.values())

    def _measured(self) -> str:
        return "; ".join(f"{name}: {check.measured}" for name, check in self.checks.items())

    def _tolerance(self) -> str:
        each = " or ".join(dict.fromkeys(check.tolerance for check in self.checks.values()))
        return f"{each}, under both readings of the scale (partial: one)"

    def _why(self) -> str:
        return "Not all runs that it needs finished." if self.holds is None else ""

    def _gauges(self) -> tuple[Gauge, ...]:
        return tuple(
            replace(gauge, of=f"{gauge.of} ({name})".strip())
            for name, check in self.checks.items()
            for gauge in check.gauges
        )

    @property
    def which(self) -> str:
        """Under which readings it holds, in a sentence."""
        yes = [name for name, check in self.checks.items() if check.holds is True]
        no = [name for name in self.checks if name not in yes]
        if not no:
            return "The scale that the paper uses is not printed; it holds under both readings."
        if not yes:
            return "It holds under neither reading of the scale, which the paper does not print."
        return f"It holds where {' and '.join(yes)} is rescaled, not where {' and '.join(no)} is."


def inverse(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return mean_error(1.0 / losses)


def by_preference(job: Cleaning) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """For each preferred task: its number, mean and standard error of 1/L on all axes."""
    return [(s, *inverse(job.ends("f_", job.runs(s)))) for s in sorted(set(job.rows.weights.argmax(axis=1)))]


def axis_labels(job: Cleaning) -> list[str]:
    return [f"$p = {p:.3g}$" for p in job.rates]


def _seeds(job: Cleaning, runs: list[int] | None = None) -> str:
    """Says how many seeds finished: "5 seeds"."""
    rows = job.final if runs is None else job.final[job.final["run"].isin(runs)]
    count = rows["seed"].nunique()
    return f"{count} seed{'' if count == 1 else 's'}"


def _preferences(fig: Any, position: Any, job: Cleaning, title: str) -> np.ndarray:
    """Radar of the runs that prefer one task each; returns their means of 1/L, (preferences, S)."""
    inverse_losses = by_preference(job)
    polygons = np.stack([mean for _, mean, _ in inverse_losses])
    low, high, ticks = limits(polygons)
    ax = radar_axes(fig, position, axis_labels(job), low, high, ticks)
    draw_hull(ax, hull(polygons), "best of the runs")
    for (s, mean, error), color in zip(inverse_losses, COLOURS, strict=True):
        draw_polygon(ax, mean, f"$r_{s + 1} = 0.9$", color, error)
    ax.set_title(title + from_zero(ax).replace(" (", "\n("), pad=14)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3)
    return polygons


def _trade_offs(trade: Cleaning, gram: Cleaning) -> dict[str, dict[float, list[int]]]:
    """For each reading: runs by the paper's u. u = 0 is the same in both, and lies in the first job alone."""
    there = sorted(trade.rows.final["trade_off"].unique())
    tiny = sorted(gram.rows.final["trade_off"].unique())
    return {
        ONLY: {u: trade.runs(trade_off=u) for u in there},
        BOTH: {u: gram.runs(trade_off=v) for u, v in zip((u for u in there if u > 0), tiny, strict=True)},
    }


@dataclass(frozen=True)
class TradeOffs:
    """Runs that prefer the last task with several u, under both readings; u = 0 is the same in both."""

    jobs: Mapping[str, Cleaning]
    runs: Mapping[str, dict[float, list[int]]]

    @property
    def us(self) -> list[float]:
        return sorted(u for u in self.runs[ONLY] if u > 0)

    def line(self, name: str, u: float) -> tuple[np.ndarray, np.ndarray]:
        return inverse(self.jobs[name].ends("f_", self.runs[name][u]))

    @property
    def zero(self) -> tuple[np.ndarray, np.ndarray]:
        return self.line(ONLY, 0.0)

    def change(self, name: str) -> Mean:
        """Returns how much 1/L of the preferred task grows from the smallest to the largest u, in percent."""
        job = self.jobs[name]
        rows = job.last.assign(inverse=1.0 / job.last[f"f_{job.S}"])
        first, last = (
            by_seed(rows[rows["run"].isin(self.runs[name][u])], "inverse") for u in (self.us[0], self.us[-1])
        )
        return over_seeds(100 * change(first, last).values / float(first.mean()))

    def seeds(self, name: str) -> str:
        """Says on how many seeds the lines of u > 0 rest."""
        return _seeds(self.jobs[name], [run for u in self.us for run in self.runs[name][u]])

    def radars(self, fig: Any) -> None:
        every = [self.zero[0], *(self.line(name, u)[0] for name in self.jobs for u in self.us)]
        low, high, ticks = limits(np.stack(every))
        for name, position, letter in ((ONLY, 323, "c"), (BOTH, 324, "d")):
            ax = radar_axes(fig, position, axis_labels(self.jobs[name]), low, high, ticks)
            draw_polygon(ax, self.zero[0], "$u = 0$", st.BLACK, self.zero[1], ls=":", zorder=5)
            for u, color in zip(self.us, COLOURS, strict=False):
                mean, error = self.line(name, u)
                draw_polygon(ax, mean, f"$u = {u:g}$", color, error)
            ax.set_title(
                f"({letter}) $1/L$, last task preferred, the paper's (b);\n"
                f"{name} rescaled, {self.seeds(name)}{from_zero(ax)}".replace(" (axes", "\n(axes"),
                pad=14,
            )
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3)

    def against_u(self, ax: Any) -> None:
        for name, color in ((ONLY, st.BLUE), (BOTH, st.ORANGE)):
            heights = [self.line(name, u)[0][-1] for u in self.us]
            errors = np.nan_to_num([self.line(name, u)[1][-1] for u in self.us])
            line = {"color": color, "marker": "o", "ms": 3, "label": f"{name}, {self.seeds(name)}"}
            ax.errorbar(self.us, heights, errors, **line)
        ax.axhline(
            self.zero[0][-1],
            color=st.GREY,
            ls="--",
            lw=0.9,
            label=f"$u = 0$, {_seeds(self.jobs[ONLY], self.runs[ONLY][0.0])}",
        )
        title = "(e) the last axis of (c) and (d) against $u$"
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "ncols": 2}
        dress(ax, "$u$", "$1/L$ of the preferred task, $p = 0.6$", title, log="x", legend=place)


@artifact("mobl/fig9")
def fig9(a: Artifact) -> None:
    """Preferences (a), trade-off u (b), inner steps D (c), with both readings of the scale."""
    names = ("pref", "pref_gram", "trade_off", "trade_off_gram", "literal")
    pref, pref_gram, trade, gram, literal = (Cleaning(a.jobs[name]) for name in names)
    fig = st.plt.figure(figsize=(7.0, 8.4), layout="constrained")
    readings = {ONLY: pref, BOTH: pref_gram}
    polygons = {
        name: _preferences(
            fig,
            321 + k,
            job,
            f"({'ab'[k]}) $1/L$, one task preferred, the paper's (a);\n{name} rescaled, {_seeds(job)}",
        )
        for k, (name, job) in enumerate(readings.items())
    }
    trade_offs = TradeOffs({ONLY: trade, BOTH: gram}, _trade_offs(trade, gram))
    trade_offs.radars(fig)
    trade_offs.against_u(fig.add_subplot(325))
    curves = _inner_steps(a, fig.add_subplot(326), pref)
    st.caption(
        fig,
        f"{WRONG}, {LOSS}, $u$: trade-off, $D$: steps in the lower level for each outer step. {RESCALED} "
        "Radar charts: means over seeds; bars along their axes, and bands in (f): one standard error, of "
        "several seeds only. Lines that are not seen lie below others.",
    )
    a.figure(fig)
    methods = {f"WC-MHGD, {ONLY}": pref, f"WC-MHGD, {BOTH}": pref_gram, "WC-MHGD, step as printed": literal}
    a.table(_table(methods), given=("method", "preferred"))
    _judge_preferred(a, readings, polygons)
    _judge_trade_off(a, trade_offs)
    _judge_inner_steps(a, curves)
    spread = np.stack([mean for _, mean, _ in by_preference(literal)])
    apart = float((np.ptp(spread, axis=0) / spread.mean(axis=0)).max())
    shares = literal.last[[c for c in literal.last.columns if c.startswith("weight_")]].to_numpy(dtype=float)
    moved = float(np.nanmax(np.abs(shares - 0.5)))
    check = AllOf(
        Below(moved, 0.0125, of="largest move of the mean weights of wrong and right labels", digits=".1e"),
        Below(100 * apart, 2, of="largest difference of 1/L between preferences", unit=" %", digits=".2f"),
    )
    a.check("literal", check)
    _notes(a, ENDS)


def _judge_preferred(a: Artifact, jobs: Mapping[str, Cleaning], polygons: Mapping[str, np.ndarray]) -> None:
    wins: dict[str, Check] = {}
    areas: dict[str, Check] = {}
    for name, P in polygons.items():
        finite = np.isfinite(P).all()
        preferred = np.diagonal(P)
        others = (P - np.where(np.eye(len(P), dtype=bool), np.inf, 0.0)).max(axis=0)
        axes = list(zip(jobs[name].rates, preferred, others, strict=True))
        won = Count({f"p = {p:.3g}": x > y for p, x, y in axes}, 4, what="axes")
        values = ", ".join(f"p = {p:.3g}: {x:.3f} / {y:.3f}" for p, x, y in axes)
        wins[name] = won.also(f"own / best of the others {values}").provided(finite, UNFINISHED)
        single = max(polygon_area(p) for p in P)
        covered = polygon_area(hull(P))
        times = AtLeast(
            covered / single, HULL, of="area of the hull over the largest polygon's", digits=".2f"
        )
        areas[name] = times.also(f"{covered:.3f} and {single:.3f}").provided(finite, UNFINISHED)
    best = BothReadings(wins)
    leads = {name: _lead(job) for name, job in jobs.items()}
    lead = f"lead on the preferred axis, {ends(leads, '.3f')}"
    a.claim("preferred", best, remark=best.which, interval=lead)
    larger = BothReadings(areas)
    ratios = {
        name: over_seeds([_covers(job, seed) for seed in sorted(set(job.last["seed"]))])
        for name, job in jobs.items()
    }
    a.claim(
        "covered", larger, remark=larger.which, interval=f"how many times as large, {ends(ratios, '.2f')}"
    )


def _lead(job: Cleaning) -> Mean:
    """Returns 1/L on the preferred axis minus the best other run there, mean of the axes, over seeds."""
    leads = []
    for _, rows in job.last.groupby("seed"):
        P = 1.0 / rows.sort_values("preferred")[[f"f_{s + 1}" for s in range(job.S)]].to_numpy()
        if P.shape == (job.S, job.S):
            leads.append(float(np.mean([P[s, s] - np.delete(P[:, s], s).max() for s in range(job.S)])))
    return over_seeds(leads)


def _covers(job: Cleaning, seed: int) -> float:
    """Area of the hull over that of the largest polygon, of one seed."""
    rows = job.last[job.last["seed"] == seed]
    P = 1.0 / rows[[f"f_{s + 1}" for s in range(job.S)]].to_numpy()
    return polygon_area(hull(P)) / max(polygon_area(p) for p in P)


def _judge_trade_off(a: Artifact, trade_offs: TradeOffs) -> None:
    changes = {name: trade_offs.change(name) for name in trade_offs.jobs}
    checks: dict[str, Check] = {}
    for name, mean in changes.items():
        of = "change of 1/L from the smallest to the largest u"
        grown = SurelyAbove(mean, of=of, near=100 * SAME, agree=True, unit=" %", digits="+.2f")
        values = ", ".join(f"u = {u:g}: {trade_offs.line(name, u)[0][-1]:.4f}" for u in trade_offs.us)
        checks[name] = grown.also(values)
    check = BothReadings(checks)
    zero = trade_offs.zero[0][-1]
    falls = SurelyBelow(changes[ONLY], near=100 * SAME, agree=True)
    flat = checks[ONLY].holds is False and falls.holds is False
    a.claim(
        "trade-off",
        check,
        remark=check.which,
        reason=NOTHING_LEFT.format(zero=zero) if flat else "",
        interval=ends(changes, "+.2f", " %"),
    )
    smallest = trade_offs.line(ONLY, trade_offs.us[0])[0][-1]
    a.check(
        "trade-off-zero", Below(zero, smallest, of="1/L with u = 0", than=f"with u = {trade_offs.us[0]:g}")
    )


NOTHING_LEFT = (
    "With the step alone rescaled r_s phi_s of the last task is the largest along the whole path and the "
    "Gram matrix is small beside it, so its weight is 1 from the first step and u has nothing left to decide "
    "(1/L with u = 0: {zero:.4f})."
)


def _inner_steps(a: Artifact, ax: Any, pref: Cleaning) -> dict[int, tuple[np.ndarray, pd.Series]]:
    """Draws the mean loss against k; by D: its mean over seeds at each step, and its end for each seed."""
    last_preferred = pref.runs(pref.S - 1)
    curves = {}
    jobs = ((Cleaning(a.jobs["d_short"]), None), (Cleaning(a.jobs["d_middle"]), None), (pref, last_preferred))
    for (job, where), color in zip(jobs, (st.ORANGE, st.GREEN, st.BLUE), strict=True):
        parts = [job.curve(f"f_{s + 1}", where) for s in range(job.S)]
        values = np.mean([v for _, v in parts], axis=0)
        band(ax, parts[0][0], values, f"$D = {job.D}$, {_seeds(job, where)}", color)
        rows = job.last if where is None else job.last[job.last["run"].isin(where)]
        last = rows.assign(mean=rows[[f"f_{s + 1}" for s in range(job.S)]].mean(axis=1))
        curves[job.D] = (values.mean(axis=1), by_seed(last, "mean"))
    dress(
        ax,
        "outer step $k$",
        "mean of the validation losses",
        "(f) inner steps, last task preferred, the paper's (c); step alone rescaled",
    )
    ax.legend()
    return curves


def _judge_inner_steps(a: Artifact, curves: Mapping[int, tuple[np.ndarray, pd.Series]]) -> None:
    order = sorted(curves)
    changes = {f"D = {D}": 100 * abs(c[-1] / c[int(0.8 * (len(c) - 1))] - 1) for D, (c, _) in curves.items()}
    falls = Count({f"D = {D}": c[-1] < c[0] for D, (c, _) in curves.items()}, that="falls", what="curves")
    of = "change over the last fifth of the steps"
    settled = Below(changes, 100 * SETTLED, of=of, unit=" %", digits=".2f")
    reason = "" if falls.holds is True else "A curve ends above its start."
    a.claim("converges", AllOf(falls, settled).partial_at_best(), reason=reason)
    last = {D: of_seeds for D, (_, of_seeds) in curves.items()}
    smaller = change(last[order[-1]], last[order[0]])
    near = SAME * float(last[order[0]].mean())
    sure = SurelyAbove(smaller, of="smallest minus largest D", near=near, agree=True, digits="+.4f")
    means = {f"D = {D}": float(last[D].mean()) for D in order}
    check = rises(means, "mean loss", sure, falling=True, digits=".4f").partial_at_best()
    only = (
        "The step that the figure needs is not printed, and one of two readings was run, under which this "
        "does not hold. Decided by the other reading with each D."
    )
    check = check.provided(check.holds is not False, only)
    a.claim("inner-steps", check, interval=smaller.ends("+.4f"))


def _notes(a: Artifact, ends: str) -> None:
    """The notes that Figures 9 to 12 share; `ends`: what their numbers are."""
    a.note(ends)
    a.note(
        "The printed step of x, 0.1, leaves x where it starts (mobl/fig9, check literal): it is 10 n times "
        "that here. The paper does not say whether its Gram matrix is rescaled, too; mobl/fig9 and "
        "mobl/fig12 show both. n^2 times the Gram matrix in equation (5) is u / n^2, and n^2 times the "
        "weight step in MoCo; the weights of Algorithm 4 do not depend on it."
    )
    a.note(
        "Equation (48) has training and validation sets of each task; here all tasks share the images, with "
        "wrong labels of their own in training and one clean validation set. The lower level has no factor "
        "1/m, and hypergradients take D_F and D_G to be all samples."
    )
    if stand_ins := a.stand_ins():
        a.note(
            f"{' and '.join(stand_ins)} stand in for MNIST (data=mnist scale=paper runs the paper's sizes)."
        )


def _table(jobs: dict[str, Cleaning]) -> pd.DataFrame:
    """Returns the lines of the table: 1/L, test accuracies, and mean weights of wrong and right labels."""
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
            line["runs"] = RunCount(len(runs), job.planned(s))
            rows.append(line)
    return pd.DataFrame(rows)


def _four(a: Artifact, of: Callable[[np.ndarray], np.ndarray], ylabel: str, words: str) -> None:
    """Panels: S = 5 and the larger S, validation ("train" in the paper) and test."""
    fig, axes = st.panels(2, 2, figsize=(7.0, 4.8), sharey="row")
    for k, (ax, (name, kind)) in enumerate(
        zip(axes.flat, itertools.product(("s5", "s10"), LOSSES), strict=True)
    ):
        job = Cleaning(a.jobs[name])
        colors = st.plt.get_cmap("viridis")(np.linspace(0.0, 0.9, job.S))
        for s in range(job.S):
            steps, values = job.curve(f"{LOSSES[kind]}{s + 1}")
            band(ax, steps, of(values), f"$p = {job.rates[s]:.3g}$", colors[s])
        dress(ax, "outer step $k$", title=f"({'abcd'[k]}) $S = {job.S}$, {kind}")
    for row in axes:
        row[0].set_ylabel(ylabel)
        row[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    lines = mean_of(Cleaning(a.jobs["s5"]))
    fig.suptitle(f"Algorithm 4; lines: {lines}, bands: one standard error, mostly narrower than the line")
    st.caption(fig, f"{words}.")
    a.figure(fig)


@artifact("mobl/fig10")
def fig10(a: Artifact) -> None:
    """Losses of all tasks without preference."""
    _four(a, lambda losses: losses, "loss", WRONG)
    for name, (kind, prefix) in itertools.product(("s5", "s10"), LOSSES.items()):
        job = Cleaning(a.jobs[name])
        changes = []
        of_seeds = []
        for s in range(job.S):
            steps, values = job.curve(f"{prefix}{s + 1}")
            late = values[steps >= 0.8 * steps[-1]]
            changes.append(float(abs(late.mean(axis=1)[-1] / late.mean(axis=1)[0] - 1)))
            of_seeds.append(np.abs(late[-1] / late[0] - 1))
        of = f"largest change of a task in the last fifth of {int(steps[-1])} steps"
        a.claim(
            "settled-{S}-{kind}",
            Below(100 * max(changes), 100 * SETTLED, of=of, unit=" %", digits=".2f").partial_at_best(),
            rests_on=(name,),
            interval=over_seeds(100 * np.max(of_seeds, axis=0)).ends(".2f", " %"),
            S=job.S,
            kind=kind,
        )
    _notes(a, f"Lines: {AFTER}.")


@artifact("mobl/fig11")
def fig11(a: Artifact) -> None:
    """1/L of all tasks without preference."""
    words = f"{WRONG}, $L$: its loss on the set that the panel's title names"
    _four(a, lambda losses: 1.0 / losses, "$1/L$", words)
    winners: dict[str, int] = {}
    ahead: dict[str, Mean] = {}
    for name, (kind, prefix) in itertools.product(("s5", "s10"), LOSSES.items()):
        job = Cleaning(a.jobs[name])
        values = 1.0 / job.ends(prefix)
        mean = values.mean(axis=0)
        panel = f"S = {job.S}, {kind}"
        winners[panel] = len(set(values.argmax(axis=1).tolist()))
        # the lead of the task with the largest mean over the one with the second largest, by seed
        second, first = np.argsort(values.mean(axis=0))[-2:]
        ahead[panel] = over_seeds(values[:, first] - values[:, second])
        by_rate = {f"p = {p:.3g}": value for p, value in zip(job.rates, mean, strict=True)}
        away = 100 * float((np.abs(values - mean) / mean).max())
        follows = AllOf(
            Ordered(by_rate, falling=True, of="mean 1/L", digits=".3f"),
            Below(away, 5, of="largest deviation of a seed", unit=" %", digits=".1f"),
        )
        a.check("follows-{S}-{kind}", follows, S=job.S, kind=kind)
    # one statement about all four panels: they show the same tasks of the same runs
    several = all(count > 1 for count in winners.values())
    leads = ", ".join(f"{panel}: {lead.ends('.3f')}" for panel, lead in ahead.items())
    always = all(lead.low > 0 for lead in ahead.values())
    check = Judged(
        several,
        "tasks with the largest 1/L in some seed: "
        + ", ".join(f"{panel}: {count}" for panel, count in winners.items())
        + f"; lead of the best task over the second, {leads}",
        "tasks with the largest 1/L in some seed > 1, each",
        excluded="The lead of one task over all others has an interval above 0 in each panel."
        if always
        else "",
    )
    seeds = min(len(lead.values) for lead in ahead.values())
    one = "One seed does not show whether the same task leads in all. Decided by more seeds."
    a.claim("none-dominates", check.provided(seeds > 1, one))
    _notes(a, f"L: loss on the validation or the test images, {AFTER}.")


@dataclass(frozen=True)
class Setting:
    """MoCo with one choice of its parameters: 1/L at (x, y_D) and at the exact y*(x), by axis."""

    words: str
    job: Cleaning
    runs: list[int]
    planned: int
    mean: np.ndarray
    error: np.ndarray
    exact: np.ndarray
    moved: float  # how far the weights are from 1/S at the end; NaN where they are not recorded


def _settings(jobs: Mapping[str, Cleaning], factor: float) -> list[Setting]:
    """All that were tried; `factor`: what the paper's weight step is multiplied with.

    The best is first, by MoCo's mean 1/L.
    """
    settings = []
    for job in jobs.values():
        config = job.rows.config
        varied = "weight_step" in job.final
        steps = sorted(job.final["weight_step"].unique()) if varied else [config["algorithm"]["weight_step"]]
        for step in steps:
            runs = job.runs(weight_step=step) if varied else job.runs()
            words = (
                f"b_0 = {config['oracle']['scale']:g}, weight step {step / factor:g}, {job.D} inner "
                f"step{'s' if job.D > 1 else ''}"
            )
            moved = np.abs(job.ends("lambda_", runs) - 1 / job.S).max() if "lambda_1" in job.last else np.nan
            exact = inverse(job.solved("f_", runs))[0]
            planned = job.rows.runs.planned // len(steps)
            settings.append(
                Setting(words, job, runs, planned, *inverse(job.ends("f_", runs)), exact, float(moved))
            )
    return sorted(settings, key=lambda setting: -float(setting.mean.mean()))


@dataclass(frozen=True)
class Comparison:
    """WC-MHGD's five runs against MoCo under one reading of the scale."""

    pref: Cleaning
    tried: list[Setting]

    @property
    def moco(self) -> Setting:
        return self.tried[0]

    @property
    def polygons(self) -> np.ndarray:
        return np.stack([mean for _, mean, _ in by_preference(self.pref)])

    @property
    def preferred(self) -> np.ndarray:
        """1/L on each axis, of the run that prefers it."""
        return np.diagonal(self.polygons)

    @property
    def narrowest(self) -> Mean:
        """WC-MHGD minus MoCo over seeds, on the axis where that is smallest."""
        s = int(np.argmin(self.preferred - self.moco.mean))
        mine = self.pref.last[self.pref.last["preferred"] == s]
        theirs = self.moco.job.last
        theirs = theirs[theirs["run"].isin(self.moco.runs)]
        column = f"f_{s + 1}"
        return change(1.0 / by_seed(theirs, column), 1.0 / by_seed(mine, column))


@artifact("mobl/fig12")
def fig12(a: Artifact) -> None:
    """WC-MHGD and MoCo, whose parameters are chosen by its own mean 1/L, with both readings of the scale."""
    n = int(a.jobs["pref"].config["problem"]["train_size"])
    tried = {
        ONLY: ("moco_01", "moco_05", "moco_1", "moco_inner_01", "moco_inner_05", "moco_inner_1"),
        BOTH: ("moco_gram", "moco_inner_gram"),
    }
    comparisons = {
        name: Comparison(
            Cleaning(a.jobs["pref" if name == ONLY else "pref_gram"]),
            _settings({job: Cleaning(a.jobs[job]) for job in jobs}, 1.0 if name == ONLY else float(n) ** 2),
        )
        for name, jobs in tried.items()
    }
    fig = st.plt.figure(figsize=(7.0, 4.4), layout="constrained")
    for k, (name, one) in enumerate(comparisons.items()):
        low, high, ticks = limits(np.vstack([one.polygons, one.moco.mean]))
        ax = radar_axes(fig, 121 + k, axis_labels(one.pref), low, high, ticks)
        draw_hull(ax, hull(one.polygons), "WC-MHGD, best of five runs on each axis")
        for i, mean in enumerate(one.polygons):
            draw_polygon(ax, mean, "WC-MHGD, single runs" if i == 0 else None, st.BLUE, lw=0.8, ms=0)
        label = f"MoCo, ${one.moco.words.split(',')[0]}$"
        draw_polygon(ax, one.moco.mean, label, st.look("moco").colour, one.moco.error)
        mine, theirs = _seeds(one.pref), _seeds(one.moco.job, one.moco.runs)
        rest = mine if mine == theirs else f"{mine} (MoCo: {theirs})"
        ax.set_title(f"({'ab'[k]}) {name} rescaled, {rest}", pad=14)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.04))
    fig.suptitle(f"$1/L$ of each task{from_zero(fig.axes[0])}")
    st.caption(
        fig,
        f"{WRONG}, {LOSS}, $b_0$: step of MoCo's averages. {RESCALED} Means over seeds; bars along the axes: "
        "one standard error, of several seeds only. Lines that are not seen lie below others.",
    )
    a.figure(fig)
    a.table(
        pd.DataFrame([line for name, one in comparisons.items() for line in _lines(name, one)]),
        given=("rescaled", "method", "setting"),
    )
    a.note("Table: 1/L at (x, y_D), in parentheses at the exact y*(x).")

    _judge_moco(a, comparisons)
    a.note(
        "MoCo's parameters are not printed: the best setting by its own mean 1/L is drawn (table: all that "
        "were tried). Where the Gram matrix is rescaled, too, only b_0 = "
        "0.1, the best without it at paper scale, was tried."
    )
    _notes(a, ENDS)


def _judge_moco(a: Artifact, comparisons: Mapping[str, Comparison]) -> None:
    checks: dict[str, Check] = {}
    for name, one in comparisons.items():
        axes = list(zip(one.pref.rates, one.preferred, one.moco.mean, strict=True))
        larger = Count({f"p = {p:.3g}": x > y for p, x, y in axes}, what="axes")
        values = ", ".join(f"{x:.3f} / {y:.3f}" for _, x, y in axes)
        solved = [inverse(one.pref.solved("f_", one.pref.runs(s)))[0][s] for s in range(one.pref.S)]
        # MoCo's setting is chosen at y*(x), too
        best = max(one.tried, key=lambda setting: float(setting.exact.mean()))
        exact = f"at the exact y*(x) {int((np.array(solved) > best.exact).sum())}"
        checks[name] = larger.also(f"{values} (MoCo with {one.moco.words}); {exact}").provided(
            np.isfinite(one.preferred + one.moco.mean).all(), UNFINISHED
        )
    better = BothReadings(checks)
    moved = max(
        (one.moved for one in comparisons[ONLY].tried if np.isfinite(one.moved)), default=float("nan")
    )
    single = [int(x) for x in (comparisons[ONLY].polygons > comparisons[ONLY].moco.mean).sum(axis=1)]
    narrowest = ends({name: one.narrowest for name, one in comparisons.items()}, "+.3f")
    a.claim(
        "better",
        better,
        remark=better.which,
        interval=f"narrowest axis, {narrowest}",
        moved=f"{moved:.0e}",
        single=", ".join(map(str, single)),
        axes=len(single),
    )
    still = Below(moved, 1e-3, of="largest distance of a weight from 1/S at the end", digits=".1e")
    recorded_count = sum(np.isfinite(one.moved) for one in comparisons[ONLY].tried)
    too = (
        f"recorded in {recorded_count} of {len(comparisons[ONLY].tried)} settings; with the Gram matrix "
        f"rescaled, too: {max(one.moved for one in comparisons[BOTH].tried):.2f}"
    )
    recorded = np.isfinite(moved)
    a.check(
        "equal-weights", still.also(too).provided(recorded, "No job of this reading recorded the weights.")
    )


def _lines(name: str, one: Comparison) -> list[dict[str, Any]]:
    def line(
        method: str, setting: str, values: np.ndarray, exact: np.ndarray, runs: RunCount
    ) -> dict[str, Any]:
        axes = zip(one.pref.rates, values, exact, strict=True)
        cells = {f"1/L, p = {p:.3g}": f"{v:.4f} ({e:.4f})" for p, v, e in axes}
        return {"rescaled": name, "method": method, "setting": setting, **cells, "runs": runs}

    mine = [
        line(
            "WC-MHGD",
            f"r_{s + 1} = .9",
            mean,
            inverse(one.pref.solved("f_", one.pref.runs(s)))[0],
            RunCount(len(one.pref.runs(s)), one.pref.planned(s)),
        )
        for s, mean, _ in by_preference(one.pref)
    ]
    return mine + [
        line("MoCo", t.words, t.mean, t.exact, RunCount(len(t.runs), t.planned)) for t in one.tried
    ]
