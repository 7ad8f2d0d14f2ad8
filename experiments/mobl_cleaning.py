"""Data hyper-cleaning of the bilevel paper: Figures 9 to 12.

Criteria were fixed before the runs that they judge.

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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.radar import draw_hull, draw_polygon, hull, limits, polygon_area, radar_axes

from .mobl_rows import COLOURS, HULL, Effect, Tasks, band, by_seed, cause, interval, mean_error

# what is multiplied, of the two readings
ONLY = "the step alone"
BOTH = "step and Gram matrix"
SAME = 0.01  # a change of 1/L or of a loss by at most 1 % counts as none
SETTLED = 0.02  # and over the last fifth of the steps a change below 2 % as converged


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
    def n(self) -> int:
        """Training images."""
        return int(self.rows.config["problem"]["train_size"])


def under(readings: Mapping[str, bool | None]) -> tuple[bool | Literal["partial"] | None, str]:
    """What a statement is worth that was measured under several readings of the paper: it holds under all of
    them, under some (partial, and the sentence says which), under none, or it is not known.
    """
    if any(holds is None for holds in readings.values()):
        return None, "Not all runs that it needs finished."
    yes = [name for name, holds in readings.items() if holds]
    no = [name for name, holds in readings.items() if not holds]
    if not no:
        return True, "The scale that the paper uses is not printed; it holds under both readings."
    if not yes:
        return False, "It holds under neither reading of the scale, which the paper does not print."
    return "partial", f"It holds where {' and '.join(yes)} is rescaled, not where {' and '.join(no)} is."


def inverse(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over seeds of 1/L."""
    return mean_error(1.0 / losses)


def by_preference(job: Cleaning) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """For each preferred task: its number, mean and standard error of 1/L on all axes."""
    return [(s, *inverse(job.ends("f_", job.runs(s)))) for s in sorted(set(job.rows.weights.argmax(axis=1)))]


def axis_labels(job: Cleaning) -> list[str]:
    """The tasks."""
    return [f"$p = {p:.3g}$" for p in job.rates]


def _preferences(fig: Any, position: Any, job: Cleaning, title: str) -> np.ndarray:
    """Radar of the runs that prefer one task each; returns their means of 1/L, (preferences, S)."""
    found = by_preference(job)
    polygons = np.stack([mean for _, mean, _ in found])
    low, high, ticks = limits(polygons)
    ax = radar_axes(fig, position, axis_labels(job), low, high, ticks)
    draw_hull(ax, hull(polygons), "covered")
    for (s, mean, error), color in zip(found, COLOURS, strict=True):
        draw_polygon(ax, mean, f"$r_{s + 1} = .9$", color, error)
    ax.set_title(title, pad=14)
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


@artifact("mobl/fig9")
def fig9(a: Artifact) -> None:
    """Preferences (a), trade-off u (b), inner steps D (c), with both readings of the scale."""
    names = ("pref", "pref_gram", "trade_off", "trade_off_gram", "literal")
    pref, pref_gram, trade, gram, literal = (Cleaning(a.jobs[name]) for name in names)
    fig = st.plt.figure(figsize=(11.4, 8.0), layout="constrained")
    polygons = {
        ONLY: _preferences(fig, 231, pref, f"(a) $1/L$, one task preferred;\n{ONLY} rescaled"),
        BOTH: _preferences(fig, 234, pref_gram, f"(a) $1/L$, one task preferred;\n{BOTH} rescaled"),
    }
    runs = _trade_offs(trade, gram)
    job_of = {ONLY: trade, BOTH: gram}
    zero = inverse(trade.ends("f_", runs[ONLY][0.0]))
    lines = {
        name: {u: inverse(job_of[name].ends("f_", own)) for u, own in runs[name].items() if u > 0}
        for name in runs
    }
    us = sorted(lines[ONLY])
    low, high, ticks = limits(
        np.stack([zero[0], *(mean for found in lines.values() for mean, _ in found.values())])
    )
    for name, position in ((ONLY, 232), (BOTH, 235)):
        ax = radar_axes(fig, position, axis_labels(trade), low, high, ticks)
        draw_polygon(ax, zero[0], "$u = 0$", st.GREY, zero[1], ls="--")
        for u, color in zip(us, COLOURS, strict=False):
            draw_polygon(ax, lines[name][u][0], f"$u = {u:g}$", color, lines[name][u][1])
        ax.set_title(f"(b) $1/L$, last task preferred;\n{name} rescaled", pad=14)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3)
    curves = _inner_steps(a, fig.add_subplot(233), pref)
    ax = fig.add_subplot(236)
    for name, color in ((ONLY, st.BLUE), (BOTH, st.ORANGE)):
        heights = np.array([lines[name][u][0][-1] for u in us])
        errors = np.nan_to_num([lines[name][u][1][-1] for u in us])
        ax.errorbar(us, heights, errors, color=color, marker="o", ms=3, label=f"{name} rescaled")
    ax.axhline(zero[0][-1], color=st.GREY, ls="--", lw=0.9, label="$u = 0$")
    ax.set_xscale("log")
    ax.set_xlabel("$u$")
    ax.set_ylabel("$1/L$ of the preferred task, $p = .6$")
    ax.set_title("(b) against $u$")
    ax.legend()
    fig.suptitle(f"Data hyper-cleaning on {pref.data}", fontsize=10)
    a.figure(fig)
    a.table(
        _table(
            {f"WC-MHGD, {ONLY}": pref, f"WC-MHGD, {BOTH}": pref_gram, "WC-MHGD, step as printed": literal}
        ),
        given=("method", "preferred"),
    )
    _preferred_claims(a, {ONLY: pref, BOTH: pref_gram}, polygons)
    _trade_off_claims(a, job_of, runs, lines, zero[0])
    _inner_claims(a, curves)
    spread = np.stack([mean for _, mean, _ in by_preference(literal)])
    apart = float((np.ptp(spread, axis=0) / spread.mean(axis=0)).max())
    shares = literal.last[[c for c in literal.last.columns if c.startswith("weight_")]].to_numpy(dtype=float)
    moved = float(np.nanmax(np.abs(shares - 0.5)))
    still = moved < 0.0125 and apart < 0.02
    a.check(
        "literal",
        "With the step as printed the weights of images do not move, and preferences make no difference",
        measured=f"mean weights of wrong and of right labels move by at most {moved:.1e} from 1/2; 1/L of "
        f"the five preferences differs by at most {100 * apart:.2f} % on any axis",
        tolerance="0.0125 and 2 %",
        holds=still,
        reason=cause(still, "The step is long enough for the weights to move, after all."),
    )
    _notes(a, pref)


def _preferred_claims(a: Artifact, jobs: Mapping[str, Cleaning], polygons: Mapping[str, np.ndarray]) -> None:
    best = {}
    larger = {}
    said = []
    areas = []
    for name, P in polygons.items():
        own = np.diagonal(P)
        others = (P - np.where(np.eye(len(P), dtype=bool), np.inf, 0.0)).max(axis=0)
        wins = int((own > others).sum())
        best[name] = wins >= 4 if np.isfinite(P).all() else None
        said.append(
            f"{name}: on {wins} of {len(P)} axes ("
            + ", ".join(
                f"p = {p:.3g}: {x:.3f} / {y:.3f}"
                for p, x, y in zip(jobs[name].rates, own, others, strict=True)
            )
            + ")"
        )
        single = max(polygon_area(p) for p in P)
        covered = polygon_area(hull(P))
        larger[name] = bool(covered >= HULL * single) if np.isfinite(P).all() else None
        areas.append(f"{name}: {covered:.3f} against {single:.3f}, {covered / single:.2f} times")
    few = {name: _lead(job) for name, job in jobs.items()}
    holds, which = under(best)
    a.claim(
        "preferred",
        "(a) The run that prefers a task has the largest 1/L on its axis",
        "Figure 9a",
        published="the largest 1/L on the corresponding axis",
        measured="own / best of the others, with what is rescaled: " + "; ".join(said),
        tolerance=">= 4 of 5 axes, under both readings of the scale",
        holds=holds,
        reason=which,
        interval="lead on the preferred axis, "
        + "; ".join(f"{name}: {words}" for name, words in few.items()),
        rests_on=("pref", "pref_gram"),
    )
    holds, which = under(larger)
    a.claim(
        "covered",
        "(a) Together the runs cover clearly more than any of them",
        "Figure 9a",
        published="significantly larger",
        measured="area of the hull against the largest single polygon: " + "; ".join(areas),
        tolerance=f"{HULL} times (a hull contains every polygon), under both readings of the scale",
        holds=holds,
        reason=which,
        interval="how many times as large, "
        + "; ".join(
            f"{name}: "
            f"{interval(np.array([_covers(job, seed) for seed in sorted(set(job.last['seed']))]), '.2f')}"
            for name, job in jobs.items()
        ),
        rests_on=("pref", "pref_gram"),
    )


def _lead(job: Cleaning) -> str:
    """Over seeds: 1/L on the preferred axis minus the best of the other runs there, mean of the axes."""
    leads = []
    for _, rows in job.last.groupby("seed"):
        P = 1.0 / rows.sort_values("preferred")[[f"f_{s + 1}" for s in range(job.S)]].to_numpy()
        if P.shape == (job.S, job.S):
            leads.append(float(np.mean([P[s, s] - np.delete(P[:, s], s).max() for s in range(job.S)])))
    return interval(np.array(leads))


def _covers(job: Cleaning, seed: int) -> float:
    """Area of the hull over that of the largest polygon, of one seed."""
    rows = job.last[job.last["seed"] == seed]
    P = 1.0 / rows[[f"f_{s + 1}" for s in range(job.S)]].to_numpy()
    return polygon_area(hull(P)) / max(polygon_area(p) for p in P)


def _trade_off_claims(
    a: Artifact,
    job_of: Mapping[str, Cleaning],
    runs: Mapping[str, dict[float, list[int]]],
    lines: Mapping[str, dict[float, tuple[np.ndarray, np.ndarray]]],
    zero: np.ndarray,
) -> None:
    effects = {}
    said = []
    for name, job in job_of.items():
        rows = job.last.assign(inverse=1.0 / job.last[f"f_{job.S}"])
        us = sorted(u for u in runs[name] if u > 0)
        first, last = (by_seed(rows[rows["run"].isin(runs[name][u])], "inverse") for u in (us[0], us[-1]))
        effects[name] = Effect.between(first, last, SAME * float(first.mean()))
        said.append(
            f"{name}: "
            + ", ".join(f"u = {u:g}: {lines[name][u][0][-1]:.4f}" for u in us)
            + f"; from the smallest to the largest u {effects[name].words('+.4f')}"
        )
    holds, which = under({name: effect.grows for name, effect in effects.items()})
    flat = (
        "With the step alone rescaled r_s phi_s of the last task is the largest along the whole path and the "
        "Gram matrix is small beside it, so its weight is 1 from the first step and u has nothing left to "
        f"decide (u = 0: {zero[-1]:.4f})."
    )
    a.claim(
        "trade-off",
        "(b) 1/L of the preferred task grows with u",
        "Figure 9b",
        published="increases with larger u in {0.1, 1, 10, 20}",
        measured="; ".join(said),
        tolerance=f"by more than {100 * SAME:g} % and outside the 95 % interval over seeds, under both "
        "readings of the scale; flat is not reproduced",
        holds=holds,
        reason=" ".join(p for p in (which, flat if effects[ONLY].kind == "flat" else "") if p),
        interval="; ".join(f"{name}: {interval(effect.values, '+.4f')}" for name, effect in effects.items()),
        rests_on=("trade_off", "trade_off_gram"),
    )
    own = lines[ONLY][min(lines[ONLY])][0][-1]
    worse = bool(zero[-1] < own)
    a.check(
        "trade-off-zero",
        "(b) Without the second term (u = 0) the preferred task ends worse than with u = 0.1, "
        "the step alone rescaled",
        measured=f"1/L {zero[-1]:.4f} against {own:.4f}",
        tolerance="smaller",
        holds=worse,
        reason=cause(worse, "The preference works without the second term of equation (5) here."),
    )


def _inner_steps(a: Artifact, ax: Any, pref: Cleaning) -> dict[int, tuple[np.ndarray, pd.Series]]:
    """Draws the mean loss against k; by D: its mean over seeds at each step, and its end for each seed."""
    own = pref.runs(pref.S - 1)
    found = {}
    jobs = ((Cleaning(a.jobs["d_short"]), None), (Cleaning(a.jobs["d_middle"]), None), (pref, own))
    for (job, where), color in zip(jobs, (st.ORANGE, st.GREEN, st.BLUE), strict=True):
        parts = [job.curve(f"f_{s + 1}", where) for s in range(job.S)]
        values = np.mean([v for _, v in parts], axis=0)
        band(ax, parts[0][0], values, f"$D = {job.D}$", color)
        rows = job.last if where is None else job.last[job.last["run"].isin(where)]
        ends = rows.assign(mean=rows[[f"f_{s + 1}" for s in range(job.S)]].mean(axis=1))
        found[job.D] = (values.mean(axis=1), by_seed(ends, "mean"))
    ax.set_xlabel("outer step $k$")
    ax.set_ylabel("mean of the validation losses")
    ax.set_title("(c) inner steps, last task preferred")
    ax.legend()
    return found


def _inner_claims(a: Artifact, curves: Mapping[int, tuple[np.ndarray, pd.Series]]) -> None:
    order = sorted(curves)
    changes = {D: abs(c[-1] / c[int(0.8 * (len(c) - 1))] - 1) for D, (c, _) in curves.items()}
    fall = all(c[-1] < c[0] for c, _ in curves.values())
    rests_on = ("d_short", "d_middle", "pref")
    settled = fall and max(changes.values()) < SETTLED
    a.claim(
        "converges",
        "(c) The mean loss converges with every D",
        "Figure 9c",
        published="all three curves converge",
        measured="change over the last fifth of the steps "
        + ", ".join(f"D = {D}: {100 * changes[D]:.2f} %" for D in order)
        + ("; all fall" if fall else "; not all fall"),
        tolerance=f"all fall, and by less than {100 * SETTLED:g} % in the last fifth",
        holds=settled,
        reason=cause(settled, "A curve still moves at the end." if fall else "A curve ends above its start."),
        rests_on=rests_on,
    )
    ends = {D: ends for D, (_, ends) in curves.items()}
    smaller = Effect.between(ends[order[-1]], ends[order[0]], SAME * float(ends[order[0]].mean()))
    in_order = all(ends[k].mean() >= ends[m].mean() for k, m in itertools.pairwise(order))
    holds = None if smaller.grows is None else smaller.grows and in_order
    a.claim(
        "inner-steps",
        "(c) A larger D ends with a smaller mean loss",
        "Figure 9c",
        published="a larger D, a smaller loss",
        measured=", ".join(f"D = {D}: {ends[D].mean():.4f}" for D in order)
        + f"; smallest minus largest D {smaller.words('+.4f')}",
        tolerance=f"by more than {100 * SAME:g} % and outside the 95 % interval over seeds, and in order; "
        "flat is not reproduced",
        holds=holds,
        reason=cause(holds, "y is warm-started, so few inner steps track y*(x) almost as well as many."),
        interval=interval(smaller.values, "+.4f"),
        rests_on=rests_on,
    )


def _notes(a: Artifact, job: Cleaning) -> None:
    a.note("L: validation loss at (x, y_D) after the last step; mean ± standard error over seeds of 1/L.")
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
    """1/L on every axis, the losses at the exact y*, test accuracy,
    and what became of the wrong labels' weights.
    """
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
    return (
        "Mean weight of the last task's wrong labels in the last fifth: "
        f"from {late[0]:.3f} to {late[-1]:.3f}."
    )


@artifact("mobl/fig10")
def fig10(a: Artifact) -> None:
    """Losses of all tasks without preference."""
    _four(a, lambda ax, job, kind: _task_curves(ax, job, kind, lambda v: v), "loss")
    for name in ("s5", "s10"):
        job = Cleaning(a.jobs[name])
        for kind, prefix in (("validation", "f_"), ("test", "test_loss_")):
            changes = []
            of_seeds = []
            for s in range(job.S):
                steps, values = job.curve(f"{prefix}{s + 1}")
                late = values[steps >= 0.8 * steps[-1]]
                changes.append(float(abs(late.mean(axis=1)[-1] / late.mean(axis=1)[0] - 1)))
                of_seeds.append(np.abs(late[-1] / late[0] - 1))
            settled = max(changes) < SETTLED
            a.claim(
                f"settled-{job.S}-{kind}",
                f"The {kind} losses have converged, S = {job.S}",
                "Figure 10",
                published="fewer than 150 steps",
                measured=f"largest change of a task in the last fifth of {int(steps[-1])} steps "
                f"{100 * max(changes):.2f} %",
                tolerance=f"{100 * SETTLED:g} %",
                holds=settled,
                reason=("" if settled else "The steps are too few. ") + _still_moving(job),
                interval=interval(100 * np.max(of_seeds, axis=0), ".2f", " %"),
                rests_on=(name,),
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
            several = len(winners) > 1 if len(values) > 1 else None
            a.claim(
                f"none-dominates-{job.S}-{kind}",
                f"No task dominates without preference, {kind}, S = {job.S}",
                "Figure 11",
                published="no single objective dominates",
                measured="largest 1/L in the seeds: "
                f"{', '.join(f'p = {job.rates[w]:.3g}' for w in winners)}; means "
                + ", ".join(f"{v:.3f}" for v in mean),
                tolerance="not the same task in all seeds",
                holds=several,
                reason=cause(
                    several,
                    "One seed does not show whether the same task leads in all. Decided by more seeds."
                    if several is None
                    else "1/L follows the corruption rate: the task with the fewest wrong labels is the "
                    "easiest.",
                ),
                interval=f"largest minus second largest mean {_first_lead(values)}",
                rests_on=(name,),
            )
            follows = bool((np.diff(mean) < 0).all() and (np.abs(values - mean) / mean).max() < 0.05)
            a.check(
                f"follows-{job.S}-{kind}",
                f"1/L falls with the corruption rate, and seeds agree, {kind}, S = {job.S}",
                measured=f"monotone: {'yes' if (np.diff(mean) < 0).all() else 'no'}; largest deviation of a "
                f"seed {100 * float((np.abs(values - mean) / mean).max()):.1f} %",
                tolerance="monotone; 5 %",
                holds=follows,
                reason=cause(
                    follows, "Tasks with more wrong labels end with a smaller loss, or seeds differ more."
                ),
            )
    _notes(a, Cleaning(a.jobs["s5"]))


def _first_lead(values: np.ndarray) -> str:
    """Interval over seeds (rows) of the lead of the task with the largest mean over the one with the
    second largest.
    """
    second, first = np.argsort(values.mean(axis=0))[-2:]
    return interval(values[:, first] - values[:, second])


@dataclass(frozen=True)
class Setting:
    """MoCo with one choice of its parameters: 1/L at (x, y_D) and at the exact y*(x), by axis."""

    words: str
    job: Cleaning
    runs: list[int]
    planned: int

    @property
    def mean(self) -> np.ndarray:
        return inverse(self.job.ends("f_", self.runs))[0]

    @property
    def error(self) -> np.ndarray:
        return inverse(self.job.ends("f_", self.runs))[1]

    @property
    def exact(self) -> np.ndarray:
        return inverse(self.job.solved("f_", self.runs))[0]

    @property
    def moved(self) -> float:
        """How far the weights are from 1/S at the end; NaN where they are not recorded."""
        if "lambda_1" not in self.job.last:
            return float("nan")
        return float(np.abs(self.job.ends("lambda_", self.runs) - 1 / self.job.S).max())


def _settings(jobs: Mapping[str, Cleaning], factor: float) -> list[Setting]:
    """All that were tried; `factor`: what the paper's weight step is multiplied with.

    Best first, by its own mean 1/L.
    """
    found = []
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
            found.append(Setting(words, job, runs, job.rows.runs.planned // len(steps)))
    return sorted(found, key=lambda setting: -float(setting.mean.mean()))


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
    def exact(self) -> np.ndarray:
        """On each axis, of the run that prefers it, at y*(x)."""
        return np.array(
            [inverse(self.pref.solved("f_", self.pref.runs(s)))[0][s] for s in range(self.pref.S)]
        )

    @property
    def best_exact(self) -> np.ndarray:
        """Of MoCo at y*(x), its setting chosen there."""
        return max(self.tried, key=lambda setting: float(setting.exact.mean())).exact

    @property
    def own(self) -> np.ndarray:
        """On each axis, of the run that prefers it."""
        return np.diagonal(self.polygons)

    @property
    def narrowest(self) -> Effect:
        """WC-MHGD minus MoCo over seeds, on the axis where that is smallest."""
        s = int(np.argmin(self.own - self.moco.mean))
        mine = self.pref.last[self.pref.last["preferred"] == s]
        theirs = self.moco.job.last
        theirs = theirs[theirs["run"].isin(self.moco.runs)]
        column = f"f_{s + 1}"
        return Effect.between(1.0 / by_seed(theirs, column), 1.0 / by_seed(mine, column))


@artifact("mobl/fig12")
def fig12(a: Artifact) -> None:
    """WC-MHGD and MoCo, whose parameters are chosen by its own mean 1/L, with both readings of the scale."""
    n = Cleaning(a.jobs["pref"]).n
    tried = {
        ONLY: ("moco_01", "moco_05", "moco_1", "moco_inner_01", "moco_inner_05", "moco_inner_1"),
        BOTH: ("moco_gram", "moco_inner_gram"),
    }
    found = {
        name: Comparison(
            Cleaning(a.jobs["pref" if name == ONLY else "pref_gram"]),
            _settings({job: Cleaning(a.jobs[job]) for job in jobs}, 1.0 if name == ONLY else float(n) ** 2),
        )
        for name, jobs in tried.items()
    }
    fig = st.plt.figure(figsize=(10.0, 5.0), layout="constrained")
    for k, (name, one) in enumerate(found.items()):
        low, high, ticks = limits(np.vstack([one.polygons, one.moco.mean]))
        ax = radar_axes(fig, 121 + k, axis_labels(one.pref), low, high, ticks)
        draw_hull(ax, hull(one.polygons), "WC-MHGD, five preferences together")
        for i, mean in enumerate(one.polygons):
            draw_polygon(ax, mean, "WC-MHGD, single runs" if i == 0 else None, st.BLUE, lw=0.8, ms=0)
        draw_polygon(ax, one.moco.mean, f"MoCo, ${one.moco.words.split(',')[0]}$", st.RED, one.moco.error)
        ax.set_title(f"{name} rescaled", pad=14)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.04))
    fig.suptitle(f"$1/L$ on {found[ONLY].pref.data}", fontsize=10)
    a.figure(fig)
    a.table(
        pd.DataFrame([line for name, one in found.items() for line in _lines(name, one)]),
        given=("rescaled", "method", "setting"),
    )
    a.note("Table: 1/L at (x, y_D), in parentheses at the exact y*(x).")

    said = [
        f"{name}: {int((one.own > one.moco.mean).sum())} of {len(one.own)} ("
        + ", ".join(f"{x:.3f} / {y:.3f}" for x, y in zip(one.own, one.moco.mean, strict=True))
        + f"; MoCo with {one.moco.words}), at the exact y*(x) {int((one.exact > one.best_exact).sum())}"
        for name, one in found.items()
    ]
    moved = max((one.moved for one in found[ONLY].tried if np.isfinite(one.moved)), default=float("nan"))
    single = [int(x) for x in (found[ONLY].polygons > found[ONLY].moco.mean).sum(axis=1)]
    holds, which = under(
        {
            name: bool((one.own > one.moco.mean).all())
            if np.isfinite(one.own + one.moco.mean).all()
            else None
            for name, one in found.items()
        }
    )
    a.claim(
        "better",
        "1/L of WC-MHGD is larger than MoCo's on all axes (on each axis the run that prefers it)",
        "Figure 12",
        published="5 of 5 axes",
        measured="WC-MHGD / MoCo, with what is rescaled: " + "; ".join(said),
        tolerance="5 of 5, means over seeds, under both readings of the scale",
        holds=holds,
        reason=f"{which} With the step alone rescaled this is no test of MoCo: its weights end within "
        f"{moved:.0e} of 1/S, so it descends on the mean of the losses, and its weight step does not matter. "
        "On each axis the best of five runs is compared with one: a single run is better on "
        f"{', '.join(map(str, single))} of {len(single)} axes.",
        interval="; ".join(
            f"{name}: narrowest axis {interval(one.narrowest.values, '+.3f')}" for name, one in found.items()
        ),
    )
    near = bool(moved < 1e-3) if np.isfinite(moved) else None
    a.check(
        "equal-weights",
        "With the step alone rescaled MoCo's weights stay at 1/S",
        measured=f"largest distance from 1/S at the end {moved:.1e} over all settings that recorded it; with "
        f"the Gram matrix rescaled, too: {max(one.moved for one in found[BOTH].tried):.2f}",
        tolerance="1e-3",
        holds=near,
        reason=cause(
            near, "MoCo's weights move." if near is False else "No job of this reading recorded the weights."
        ),
    )
    a.note(
        "MoCo's parameters are not printed: the best setting by its own mean 1/L is drawn (table: all that "
        "were tried). Where the Gram matrix is rescaled, too, b_0 is the best without it."
    )
    _notes(a, found[ONLY].pref)


def _lines(name: str, one: Comparison) -> list[dict[str, Any]]:
    """Rows of the table for one reading."""

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
