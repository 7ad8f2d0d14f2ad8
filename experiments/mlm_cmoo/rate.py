"""Rates of the theorem, and problems with known answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AtMost, Below
from mobench.artifacts.panels import curve, dress, level
from mobench.artifacts.rows import JobRows, RunCount, need_points
from mobench.artifacts.statistics import log_slope

ROUNDING = 1e-12  # errors below it are rounding: their slope says nothing
ACTIVE = -5e-3  # the metric kkt counts constraints above it as active
HELD = 1e-2  # a multiplier above it says that the method itself holds its constraint to be active
PANELS = {
    "inner_error": "inner error, running minimum",
    "stationarity_t": r"stationarity $R_t$, running minimum",
}
TITLES = {
    "p2": "MLM-CMOO",
    "p2_csmoo2": "CSMOO-2",
    "p2_ferero": "FERERO",
    "p1": "MLM-CMOO",
    "p1_literal": "MLM-CMOO as printed",
}


def slope(steps: np.ndarray, values: np.ndarray) -> float:
    """Returns the log-log slope of the running minimum from 5 % of the steps on, while above rounding.

    -inf: it is not above it long enough to say; NaN: some value is not finite.
    """
    if not np.isfinite(values).all():
        return np.nan
    best = np.minimum.accumulate(values)
    keep = (steps >= steps.max() / 20) & (best > ROUNDING)
    return log_slope(steps[keep], best[keep]) if keep.sum() >= 5 else -np.inf


@artifact("mlm_cmoo/rate")
def rate(a: Artifact) -> None:
    """R_t and the inner error against t for four p; where all methods end on problems with known answers."""
    slopes = draw(a, a.jobs["p2"])
    a.table(
        [line for name in TITLES for line in ends(a.jobs[name], name)], given=("problem", "method", "steps")
    )
    a.note(
        "Curves: running minimum, recorded every 20 steps, of the instance with the flattest slope; slopes: "
        "least squares from 5 % of the steps on. The table's own residual is |G lam + c J mu|; kkt is the "
        f"distance to stationarity with the best multipliers, constraints above {ACTIVE:g} counted as "
        "active. Where a constraint that the method holds with a positive multiplier ends just below this "
        "threshold, kkt leaves it out and jumps to the size of a gradient; the column beside it names such "
        "a constraint, and the own residual does not jump."
    )
    a.note(
        "P2's minima lie outside of the ball (problem.shift=3), so that a constraint binds. With shift=0 "
        "most fronts have points inside, where |G lam| = 0 is not smooth: iterates then oscillate at kkt of "
        "about 0.1 for any fixed eta, and algorithm.h_power=2 ends at 1e-4 or below."
    )
    a.note(
        "R_t: distance of 0 to the gradient, plus normal cone, of the function that the corrected method "
        "descends on; the theorem's is that of the printed one."
    )
    judge_rates(a, slopes["inner_error"], slopes["stationarity_t"])
    end = a.jobs["p1"].final.iloc[0]
    x = 1 - end["g_1"]
    off = {"|x_2 - 1|": abs(end["g_1"]), "|c mu - 1|": abs(end["multiplier_1"] - 1), "kkt": end["kkt"]}
    check = Below(off, 1e-3, digits=".1e").because("closed form")
    said = f"x_2 = {x:.4f}, c mu = {end['multiplier_1']:.4f} after {a.jobs['p1'].config['steps']} steps"
    a.check("known-answer", check.also(said))
    literal = a.jobs["p1_literal"].final.iloc[0]
    violation = AtMost(float(literal["violation"]), 1e-2, of="violation on P1", digits=".3f")
    a.claim("as-printed", violation.also(f"multiplier {literal['multiplier_1']:g}"))


def draw(a: Artifact, job: JobRows) -> dict[str, dict[float, float]]:
    """Draws both errors of the slowest instance for each p; returns the slopes of these lines."""
    done = job.final[job.final["status"] == "done"]
    h = job.history[job.history["run"].isin(done["run"]) & (job.history["step"] > 0)]
    fig, axes = st.panels(1, 3, figsize=(7.0, 2.9))
    slopes: dict[str, dict[float, float]] = {}
    for ax, (name, label) in zip(axes[0, :2], PANELS.items(), strict=True):
        slopes[name] = {}
        for colour, p in zip(st.CYCLE, sorted(done["penalty_power"].unique()), strict=False):
            rows = h[(h["penalty_power"] == p) & h[name].notna()]
            table = rows.pivot_table(index="step", columns="run", values=name)
            steps = table.index.to_numpy(float)
            need_points(len(steps), 2, "a rate")
            slope_of_run = {run: slope(steps, table[run].to_numpy()) for run in table}
            slowest = max(slope_of_run, key=lambda run: slope_of_run[run])
            slopes[name][p] = float(np.max(list(slope_of_run.values())))
            best = table[slowest].cummin().clip(lower=ROUNDING).to_numpy()
            curve(ax, steps, best, f"$p={p:g}$, slope {slopes[name][p]:.2f}", color=colour)
            if name == "stationarity_t" and p in (theory := exponents(slopes[name])):
                guide(ax, steps, best, theory[p], color=colour)
            elif name == "inner_error" and p == 0.0:
                guide(ax, steps, best, -0.5, color=st.BLACK)
        dress(ax, "step $t$", label, f"({'ab'[len(slopes) - 1]}) problem P2", log="xy", legend="upper right")
        ax.set_ylim(top=1e4 * ax.get_ylim()[1])  # room for the legend
    draw_p1(axes[0, 2], a)
    st.caption(
        fig,
        "Lines in (a) and (b): running minimum of the instance with the flattest slope; slopes: least "
        f"squares in logarithms from {job.config['steps'] // 20} steps on; dashed: rates that the theorem "
        "guarantees (in (b) in the colour of their p; none for p = 0, and for p = 0.45 one that is almost "
        "flat, not drawn). P1 and P2: constrained quadratics whose answers are "
        "known. In (c) the method as printed keeps its multiplier at "
        f"0; it was stopped after {a.jobs['p1_literal'].config['steps']} steps, which cost more each.",
    )
    a.figure(fig)
    return slopes


def exponents(powers: Iterable[float]) -> dict[float, float]:
    """Returns the theorem's exponents of R_t by p, -(1 - 2p)/2.

    With p = 0.45 the bound is t^-0.05, which any running minimum meets within the tolerance of 0.1.
    """
    theory = {p: -(1 - 2 * p) / 2 for p in powers if 0 < p < 0.5}
    return {p: exponent for p, exponent in theory.items() if exponent + 0.1 < 0}


def guide(ax: Any, steps: np.ndarray, values: np.ndarray, exponent: float, color: str) -> None:
    """Draws t^exponent from the point of a curve on where its slope is taken, and names it in the legend."""
    late = steps >= steps.max() / 20
    line = values[late][0] * (steps[late] / steps[late][0]) ** exponent
    ax.plot(steps[late], line, color=color, ls=(0, (4, 2)), lw=0.9, label=f"theorem: $t^{{{exponent:g}}}$")


def draw_p1(ax: Any, a: Artifact) -> None:
    """Draws how far the constraint of P1 is violated, with the corrected method and with the printed one."""
    looks: dict[str, dict[str, Any]] = {"p1": {"color": st.BLUE}, "p1_literal": {"color": st.RED, "ls": "--"}}
    for name, look in looks.items():
        h = a.jobs[name].history
        signs = "as printed" if name == "p1_literal" else "corrected"
        label = f"signs {signs} ({a.jobs[name].config['steps']} steps)"
        curve(ax, h["step"].to_numpy() + 1.0, h["g_1"].clip(lower=0.0).to_numpy(), label, **look)
    # the front of the problem without its constraint lies on x_2 = 0, where g = bound
    level(ax, float(a.jobs["p1"].config["problem"]["bound"]), "without the constraint")
    dress(ax, "step $t + 1$", "violation of the constraint", "(c) problem P1", log="x", symlog=1e-3)
    ax.set_ylim(0.0, 300.0)  # room for the legend
    ax.legend(loc="upper right")


def ends(job: JobRows, name: str) -> list[dict[str, object]]:
    """Returns the ends of a job: a line for each p, means over its finished runs."""
    powers = sorted(job.final["penalty_power"].unique()) if "penalty_power" in job.final else [None]
    lines: list[dict[str, object]] = []
    for p in powers:
        rows = job.final if p is None else job.final[job.final["penalty_power"] == p]
        done = rows[rows["status"] == "done"]
        none = pd.Series(dtype=float)
        lines.append(
            {
                "problem": name[:2].upper(),
                "method": TITLES[name] if p is None else f"{TITLES[name]}, p = {p:g}",
                "steps": job.config["steps"],
                "violation (max)": done["violation"].max(),
                "kkt (max)": done["kkt"].max(),
                "held, not counted in kkt": uncounted(done),
                "own residual (max)": done.get("own_residual", none).max(),
                "complementarity (max)": done.get("complementarity", none).max(),
                "ms per step": 1e3 * job.seconds_per_step,
                "runs": RunCount.of(rows),
            }
        )
    return lines


def uncounted(done: pd.DataFrame) -> str:
    """Names the constraint that a run holds with a positive multiplier while kkt counts it as inactive."""
    left = [
        f"g_{j} = {row[f'g_{j}']:.1e}"
        for _, row in done.iterrows()
        for j in (1, 2)
        if row.get(f"multiplier_{j}", 0.0) > HELD and row[f"g_{j}"] < ACTIVE
    ]
    return ", ".join(left) or "–"


def judge_rates(a: Artifact, inner: Mapping[float, float], outer: Mapping[float, float]) -> None:
    """The theorem's exponents, partial at best; inner, outer: slopes of the corrected method by p."""
    inner_slopes = {f"p={p:g}": s for p, s in inner.items() if p > 0}
    rest = ", ".join(f"p={p:g} {s:.2f}" for p, s in inner.items() if p <= 0)
    check = AtMost(inner_slopes, -0.4, of="slope of the running minimum for p in (0, 1/2)", digits=".2f")
    a.claim("inner-rate", check.also(rest).partial_at_best())
    theory = exponents(outer)
    slopes = {f"p={p:g}": outer[p] for p in theory}
    bounds = {f"p={p:g}": exponent + 0.1 for p, exponent in theory.items()}
    outer_rate = AtMost(slopes, bounds, of="slope of the running minimum", digits=".2f")
    a.claim(
        "stationarity-rate",
        outer_rate.because("-(1-2p)/2 + 0.1").partial_at_best(),
        exponents=", ".join(f"p={p:g}: {e:g}" for p, e in theory.items()),
    )
