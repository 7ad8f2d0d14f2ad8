"""Figures 34 to 38: the synthetic problem with three objectives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from scipy import stats

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Above, AtMost, Judged, Share
from mobench.artifacts.panels import dress, legend_below
from mobench.artifacts.rows import RunCount
from mobench.artifacts.statistics import Mean, wilson
from mobench.jobs.store import columns

from .runs import (
    AT_THE_BOUND,
    COLOURS,
    GIVEN,
    MATCH,
    METHODS,
    MOST,
    Curves,
    draw_curves,
    finals,
    judge_ends,
    judge_violation,
    matching,
    variants,
)  # fmt: skip
from .synthetic import judge_curves

PREFERENCES = 231  # of the paper's grid of the simplex
LAM = (0.4, 0.35, 0.25)
STAY = 0.95  # the share of runs that stay feasible, ours: the paper prints none
RUNS = 5  # of the paper
EXCLUDED = (
    f"From no start could {RUNS} runs of each method all stay feasible: by Wilson's 95 % intervals that has "
    "a probability below 0.05."
)
CURVES = {"fig34": "basic", "fig35": "csmoo1", "fig36": "csmoo2"}


@artifact("csmoo/fig34", "csmoo/fig35", "csmoo/fig36")
def convergence(a: Artifact) -> None:
    """x, Tchebycheff value and violation of one variant with three objectives."""
    curves = variants(a, LAM)
    main = CURVES[a.name]
    draw_curves(a, curves, main)
    judge_curves(a, curves[main], METHODS[main])
    a.refer("csmoo/fig37", "feasible", "coincide")
    a.refer("csmoo/starts_three", "stay-feasible")
    table_and_note(a, curves)


@artifact("csmoo/fig37")
def fig37(a: Artifact) -> None:
    """The three methods in one comparison."""
    curves = variants(a, LAM)
    draw_curves(a, curves)
    apart = matching(curves)
    coincide = Share(apart <= MATCH, MOST, that=f"final x of any two methods within {MATCH}", digits=1)
    a.claim("coincide", coincide.also(f"largest difference {apart.max():.1e}"))
    problem = curves["basic"].problem
    violation = np.concatenate([c.end("violation") for c in curves.values()])
    judge_violation(a, "feasible", violation, min(problem.bounds), reason=AT_THE_BOUND)
    for figure in CURVES:
        a.refer(f"csmoo/{figure}", "optimum")
    a.refer("csmoo/starts_three", "stay-feasible")
    a.refer("csmoo/infeasible", "csmoo2-smoothest", "csmoo2-fastest")  # said of two objectives
    table_and_note(a, curves)


@artifact("csmoo/starts_three")
def starts_three(a: Artifact) -> None:
    """Runs with an infeasible surrogate in the first steps, by method and start.

    A paper of five runs may say that all stay feasible where a single run does so with probability p, and
    p^5 is not small: what it says is excluded where p^5 < 0.05 at the upper end of the interval of p.
    """
    met: dict[float, dict[str, np.ndarray]] = {}
    counts: dict[float, RunCount] = {}
    for name, job in a.jobs.items():
        start = float(job.config["problem"]["start"]["value"])
        rows = job.final[job.final["status"] == "done"]
        met.setdefault(start, {})[METHODS[name.partition("_p")[0]]] = rows["infeasible_steps"].to_numpy() > 0
        counts[start] = counts.get(start, RunCount(0, 0)) + job.runs
    met = dict(sorted(met.items()))
    fig, ((ax,),) = st.panels(1, 1, figsize=(4.6, 2.8))
    for (key, name), size in zip(METHODS.items(), (11.0, 7.0, 3.5), strict=True):  # some coincide
        shares = [by_method[name].mean() for by_method in met.values()]
        ax.plot(list(met), shares, "o-", ms=size, mfc="none", color=COLOURS[key], label=name)
    dress(ax, "start $x_0$", "share of runs with\nan infeasible surrogate", ylim=(0, None), legend=True)
    a.figure(fig)
    a.table(
        [
            {
                "x_0": start,
                **{name: f"{int(m.sum())} of {len(m)}" for name, m in by_method.items()},
                "runs": counts[start],
            }
            for start, by_method in met.items()
        ],
        given=("x_0",),
    )
    # NaN, which max() may pass over, where a method has lost all runs
    worst = {start: float(np.max([m.mean() for m in by_method.values()])) for start, by_method in met.items()}
    ends = {
        start: min(wilson(int((~m).sum()), len(m))[1] for m in by_method.values())
        for start, by_method in met.items()
    }
    excluded = all(end**RUNS < 0.05 for end in ends.values())
    said = "; ".join(
        f"x_0 = {start:g}: "
        + ", ".join(f"{name} {int(m.sum())} of {len(m)}" for name, m in by_method.items())
        for start, by_method in met.items()
    )
    check = Judged(
        any(share <= 1 - STAY for share in worst.values()),
        f"runs with an infeasible surrogate: {said}",
        f"from some start at least {100 * STAY:g} % of each method's runs have none",
        excluded=EXCLUDED if excluded else "",
    ).partial_at_best()
    chance = ", ".join(f"{(1 - share) ** RUNS:.2f} from x_0 = {start:g}" for start, share in worst.items())
    words = (
        f"It does not hold of every run, but {RUNS} runs of a method, as the paper has, all stay feasible "
        f"with probability {chance}. Decided by the paper's seeds, or by a share, of which it prints none."
    )
    steps = next(iter(a.jobs.values())).config["steps"]
    a.claim("stay-feasible", check.provided(excluded or check.holds is not False, words), steps=steps)


def table_and_note(a: Artifact, curves: Mapping[str, Curves]) -> None:
    a.table(finals((METHODS[k], c) for k, c in curves.items()), given=GIVEN)
    a.note(f"Settings as in the two-objective case; x_0 = 1 and seeds {curves['basic'].span} are our choice.")


@artifact("csmoo/fig38")
def fig38(a: Artifact) -> None:
    """All preferences of a grid of the simplex, in the space of three objectives."""
    problem = Curves(a.jobs["basic"], (1.0, 0.0, 0.0)).problem
    ends = {}
    for key in METHODS:
        rows = a.jobs[key].final[a.jobs[key].final["status"] == "done"]
        ends[key] = rows.assign(x=a.jobs[key].solutions["last"][rows["run"].to_numpy(), 0])
    xs = torch.linspace(*problem.feasible_set, 400, dtype=torch.float64).unsqueeze(1)
    draw_front(a, ends, problem.values(xs)[:, :3].numpy())
    names = columns(ends["basic"], "preference_")
    x = {METHODS[k]: np.sort(rows.groupby(names)["x"].mean().to_numpy()) for k, rows in ends.items()}
    gap = {name: float(np.diff(v).max()) for name, v in x.items()}
    rho = {METHODS[k]: correlation(rows) for k, rows in ends.items()}
    lines = [
        {
            "method": METHODS[k],
            "preferences": len(rows.drop_duplicates(names)),
            "seeds": rows["seed"].nunique(),
            "largest violation": rows["violation"].max(),
            "largest gap in x": gap[METHODS[k]],
            "span of x": float(np.ptp(x[METHODS[k]])),
            "correlation of lambda_3 and f_3": rho[METHODS[k]].mean,
            "runs": a.jobs[k].runs,
        }
        for k, rows in ends.items()
    ]
    a.table(lines, given=("method", "preferences", "seeds"))
    every = pd.concat(ends.values())
    a.check("on-curve", judge_ends(every, min(problem.bounds)), reason=AT_THE_BOUND)
    together = pd.concat(
        [rows.set_index("run")["x"] for rows in ends.values()], axis=1, join="inner"
    ).to_numpy()
    apart = np.ptp(together, axis=1)
    overlap = Share(apart <= MATCH, MOST, that=f"final x of the three within {MATCH}", digits=1)
    a.claim("overlap", overlap.also(f"largest difference {apart.max():.1e}"))
    spans = ", ".join(f"{name} {np.ptp(v):.3f}" for name, v in x.items())
    a.claim("no-gaps", AtMost(gap, 0.05, of="largest gap in x", digits=".4f").also(f"span: {spans}"))
    a.claim(
        "third-weight",
        Above(rho["CSMOO-2"], 0.0, of="rank correlation of lambda_3 and E f_3", digits=".3f"),
    )


def correlation(rows: pd.DataFrame) -> Mean:
    """Returns Spearman's rank correlation of lambda_3 and E f_3 over the preferences, by seed."""
    of_seeds = [stats.spearmanr(g["preference_3"], g["f_3"]).statistic for _, g in rows.groupby("seed")]
    return Mean(np.array(of_seeds))


def draw_front(a: Artifact, ends: Mapping[str, pd.DataFrame], front: np.ndarray) -> None:
    """The curve in three dimensions with all methods; two projections, coloured by the third weight."""
    fig = st.plt.figure(figsize=(7.0, 2.7), layout="constrained")
    ax = fig.add_subplot(1, 3, 1, projection="3d")
    ax.plot(*front.T, color=st.BLACK, lw=1.0, label="efficient set")
    for (key, rows), size in zip(ends.items(), (26, 13, 4), strict=True):
        look = {"facecolors": "none", "edgecolors": COLOURS[key], "lw": 0.8, "depthshade": False}
        ax.scatter(*rows[["f_1", "f_2", "f_3"]].to_numpy().T, s=size, label=METHODS[key], **look)
    ax.view_init(elev=22, azim=-120)
    ax.set_box_aspect((1, 1, 0.8), zoom=0.85)
    ax.zaxis.set_rotate_label(False)
    ax.set_zlabel("$E f_3$", rotation=90)
    for axis, ticks in zip(
        (ax.xaxis, ax.yaxis, ax.zaxis), ((0.3, 0.6), (0.4, 0.8), (0.6, 1.1, 1.6)), strict=True
    ):
        axis.set_ticks(ticks)
    ax.tick_params(pad=-2)
    dress(ax, "$E f_1$", "$E f_2$", title="three methods, all runs")
    ax.xaxis.labelpad = ax.yaxis.labelpad = -6
    ax.zaxis.labelpad = -2
    rows = ends["csmoo2"].sort_values("preference_3")  # what the third weight moves on top
    for place, n in ((2, 2), (3, 3)):
        flat = fig.add_subplot(1, 3, place)
        flat.plot(front[:, 0], front[:, n - 1], color=st.BLACK, lw=1.0)
        points = flat.scatter(
            rows["f_1"], rows[f"f_{n}"], c=rows["preference_3"], cmap="viridis", s=12, zorder=3
        )
        dress(flat, "$E f_1$", f"$E f_{n}$", title="CSMOO-2")
    fig.colorbar(points, ax=flat, label=r"$\lambda_3$")
    legend_below(fig, ax)
    names = columns(ends["basic"], "preference_")
    count = len(a.jobs["basic"].final.drop_duplicates(names))
    seeds = a.jobs["basic"].final["seed"].nunique()
    st.caption(
        fig,
        f"{a.scale.capitalize()} scale: {count} of the paper's {PREFERENCES} preferences, {seeds} "
        f"seed{'' if seeds == 1 else 's'}.",
    )
    a.figure(fig)
