"""Figures 1, 2, 6 to 19 and 33: the synthetic problem with two objectives; the table of all final values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import (
    AllOf,
    AtLeast,
    AtMost,
    Below,
    Graded,
    Inside,
    Share,
    SurelyAbove,
    Within,
)  # fmt: skip
from mobench.artifacts.panels import curve, dress, level
from mobench.artifacts.published import published
from mobench.artifacts.statistics import Mean, std

from . import beamforming
from .preferences import preferences_of
from .runs import (
    AT_THE_BOUND,
    COLOURS,
    GIVEN,
    LEFT,
    METHODS,
    TIME,
    ZERO,
    Curves,
    common,
    decreases,
    draw_curves,
    finals,
    judge_ends,
    pair,
    share_of_way,
    variants,
)  # fmt: skip

FIGURES = {0.1: (6, 7, 8), 0.3: (9, 10, 11), 0.5: (2, 12, 13), 0.7: (14, 15, 16), 0.9: (17, 18, 19)}
CURVES = {
    f"csmoo/fig{n}": (lam1, key) for lam1, ns in FIGURES.items() for n, key in zip(ns, METHODS, strict=True)
}
LONGER = (
    "Tested: ten times the steps, `mobench protocol=csmoo_curves algorithm=csmoo2 "
    "preferences.weights=[[0.1,0.9]] steps=30000`, leave 4 % of the way (V = 0.0371)."
)
SCHEDULES = {"large_gamma": r"$\gamma_0=0.8$", "small_b": "$b=0.6$", "small_tau": r"$\tau=0.01$"}
ELSEWHERE = {
    "analytic": "basic, analytic z",
    "batch8": "CSMOO-2, batch 8",
}  # further lines of the table of finals


def printed() -> float:
    return published("csmoo/fig33").number(row="beta>=0.5")


@artifact(*CURVES)
def convergence(a: Artifact) -> None:
    """x, Tchebycheff value and violation of one variant at one preference, with the two others."""
    lam1, main = CURVES[a.id]
    curves = variants(a, pair(lam1))
    draw_curves(a, curves, main)
    judge_curves(a, curves[main], METHODS[main])
    a.refer("csmoo/infeasible", "quickly", "same-solution", "basic-is-csmoo1")
    a.refer("csmoo/finals", "always-feasible")
    a.table(finals((METHODS[k], c) for k, c in curves.items()), given=GIVEN)
    if a.name == "fig2":
        judge_analytic(a, curves["basic"])
    if a.name == "fig13":
        judge_printed(a, curves["csmoo2"])
        single, eight = (
            float(np.mean([std(Curves(a.jobs[key], pair(lam1)).x_end) for lam1 in FIGURES]))
            for key in ("csmoo2", "batch8")
        )
        of = f"standard deviation of the final x with batches of 8, mean over {len(FIGURES)} preferences"
        check = AtMost(eight, 0.6 * single, of=of, than="0.6 times that of single samples")
        a.claim(
            "batches-reduce-variance",
            check.also(f"single samples {single:.4f}").because("0.35 = 1/sqrt 8 is expected"),
        )
    a.note(
        "x_0, gamma_0, beta, the seeds and the number of runs are not printed: x_0 = 1, gamma_0 = 0.4, beta "
        f"= 5, seeds {curves[main].span}."
    )


def judge_curves(a: Artifact, c: Curves, method: str) -> None:
    x_best, V_best = c.optimum
    extreme = min(c.lam[0], 1 - c.lam[0]) < 0.2
    near = AllOf(
        Within(Mean(c.x_end), x_best, 0.04 if extreme else 0.03, of="x"),
        AtMost(Mean(c.V_end - V_best), 0.025 if extreme else 0.012, of="V - V*"),
    )
    left = Mean(1.0 - share_of_way(c, c.V_end, V_best))
    check = Graded(
        AllOf(near, AtMost(left, LEFT, of="share of the way from V(x_0) to V* that is left")), near
    )
    longer = LONGER if check.holds == "partial" and method == "CSMOO-2" and c.lam[0] == 0.1 else ""
    a.claim(
        "optimum",
        check.also(f"V = {Mean(c.V_end)}, exact {V_best:.4f}; {c.runs} runs"),
        method=method,
        remark=longer,
    )
    a.claim("decreases", decreases(c, V_best))


def judge_analytic(a: Artifact, grid_z: Curves) -> None:
    job = a.jobs["analytic"]
    c = Curves(job, grid_z.lam)
    x_analytic = c.optimum[0]
    x_grid = grid_z.optimum[0]
    shift = c.x_end.mean() - grid_z.x_end.mean()
    a.claim(
        "analytic-z-shift",
        Within(Mean(c.x_end), x_analytic, 0.03, of="x with analytic z").also(
            f"with feasible-grid z {Mean(grid_z.x_end)} (these seeds and more; exact {x_grid:.4g}): shift "
            f"{shift:.3f}, exact {x_analytic - x_grid:.3f}"
        ),
    )
    rows = job.history[job.history["run"].isin(job.final.loc[job.final["status"] == "done", "run"])]
    least = {"exact": float(rows["tchebycheff"].min()), "estimated": float(rows["tchebycheff_seen"].min())}
    seeds = job.final["seed"].nunique()
    of = f"smallest value of {len(preferences_of(job))} preferences, {seeds} seeds and all steps"
    said = ", ".join(f"{name} {value:.4f}" for name, value in least.items())
    a.claim("negative-values", Below(min(least.values()), 0.0, of=of, digits=".4f").also(said))


def judge_printed(a: Artifact, one: Curves) -> None:
    eight = Curves(a.jobs["batch8"], one.lam)
    check = AllOf(
        Inside(Mean(one.V_end), 0.0928, 0.101, of="V of single samples"),
        Inside(Mean(eight.V_end), 0.0928, 0.0965, of="V of batches of 8"),
    )
    away = [abs(c.V_end.mean() - printed()) for c in (eight, one)]
    a.claim(
        "printed-value",
        check.also(
            f"exact optimum {one.optimum[1]:.6f}; means of five runs, as the paper takes them, vary with "
            f"standard deviation {std(one.V_end) / np.sqrt(5):.4f}"
        ),
        printed=f"{printed():g}",
        eight=f"{away[0]:.1e}",
        single=f"{away[1]:.1e}",
    )


@artifact("csmoo/fig1")
def fig1(a: Artifact) -> None:
    """The front of 21 preferences, basic method, beside the analytic one."""
    lams = preferences_of(a.jobs["basic"])[:21]
    sets = {key: [Curves(a.jobs[key], lam) for lam in lams] for key in METHODS}
    basic = sets["basic"]
    fig, ((left, right),) = st.panels(1, 2, size=3.3)
    st.draw_front(left, basic[0].problem.front(400).numpy(), "analytic front")
    ends = basic[0].job.final
    first = ends[
        (ends["seed"] == ends["seed"].min()) & ends["run"].isin([r for c in basic for r in c.final["run"]])
    ]
    look = {"cmap": "viridis", "s": 26, "zorder": 4, "ec": "k", "lw": 0.4}
    points = left.scatter(first["f_1"], first["f_2"], c=first["preference_1"], **look)
    fig.colorbar(points, ax=left, label=r"$\lambda_1$", shrink=0.8)
    dress(left, "$E f_1$", "$E f_2$", "basic, one seed", legend=True)
    seeds = f"{basic[0].final['seed'].nunique()} seeds"
    lam1 = np.array([lam[0] for lam in lams])
    right.plot(lam1, [c.optimum[0] for c in basic], color=st.BLACK, label="exact optimum")
    for (key, cs), size in zip(sets.items(), (7.5, 5.0, 2.5), strict=True):
        look = {"marker": "o", "ls": "none", "ms": size, "mfc": "none", "mec": COLOURS[key], "mew": 1.1}
        right.plot(lam1, [c.x_end.mean() for c in cs], label=METHODS[key], **look)
    dress(right, r"$\lambda_1$", "final $x$", f"mean over {seeds}", legend=True)
    a.figure(fig)
    a.table(finals((METHODS[k], c) for k, cs in sets.items() for c in cs), given=GIVEN)
    judge_front(a, [c for c in basic if len(c.x_end)], basic[0].optimum[0] - basic[-1].optimum[0])
    a.refer("csmoo/finals", "always-feasible")  # a feasible x is on the front: values are exact
    a.note(f"21 preferences, {len(basic[0].final)} seeds; values are exact expectations, not Monte Carlo.")


def judge_front(a: Artifact, basic: list[Curves], exact: float) -> None:
    """Figure 1: solutions are the optima, in the order of the preferences; exact: what the optima span."""
    error = np.concatenate([np.abs(c.x_end - c.optimum[0]) for c in basic])
    gap = max(abs(float(c.x_end.mean()) - c.optimum[0]) for c in basic)
    a.claim(
        "optima",
        AllOf(
            AtMost(float(error.mean()), 0.03, of="mean of |x - x*| over preferences and seeds"),
            AtMost(gap, 0.07, of="largest |x - x*| of a seed mean"),
        ),
    )
    first = np.array([c.x_end[0] for c in basic])
    rank = float(stats.spearmanr([c.lam[0] for c in basic], first).statistic)
    a.claim(
        "ordered",
        AllOf(
            AtMost(rank, -0.98, of="Spearman correlation of lambda_1 and x, one seed", digits=".3f"),
            AtLeast(float(np.ptp(first)), 0.40, of="span of x", digits=".3f"),
        ).also(f"exact span {exact:.3f}"),
    )


@artifact("csmoo/fig33")
def fig33(a: Artifact) -> None:
    """Final value and violation against the penalty beta, and schedules other than the standard one."""
    lam = (0.5, 0.5)
    betas = {
        float(k[5:].replace("_", ".")): Curves(j, lam) for k, j in a.jobs.items() if k.startswith("beta_")
    }
    others = {k: Curves(a.jobs[k], lam) for k in SCHEDULES}
    draw_ablation(a, betas, others)
    lines = [
        {
            "beta": b,
            "V": c.V_end.mean(),
            "V std": std(c.V_end),
            "feasible ratio": float(c.feasible.mean()),
            "feasible from step": c.feasible_since.mean(),
            "published V": printed() if b >= 0.5 else np.nan,
            "runs": c.runs,
        }
        for b, c in betas.items()
    ]
    a.table(lines, given=("beta", "published V"))
    judge_betas(a, betas)
    a.refer("csmoo/starts", "slow-at-zero", "schedules-delay")
    plain = {k: name.replace("$", "").replace("\\", "") for k, name in SCHEDULES.items()}

    def length(c: Curves) -> float:
        return float(np.abs(np.diff(c.x, axis=1)).sum(1).mean())

    rough = {plain[k]: length(c) / length(betas[5.0]) for k, c in others.items()}
    of = "length of the path of x over the standard setting's, mean over seeds"
    rougher = AtLeast(rough, 1.5, of=of, digits=".2f", partial=True)
    a.claim("schedules", rougher, missed=" and ".join(rougher.failing))
    a.note(f"x_0 = 1, seeds {betas[5.0].span} (the paper: five runs), common noise for all beta.")


def draw_ablation(a: Artifact, betas: Mapping[float, Curves], others: Mapping[str, Curves]) -> None:
    """Final values, feasible ratios and violations by beta; x of one seed by schedule."""
    fig, ((values, ratios), (violations, paths)) = st.panels(2, 2, figsize=(7.0, 5.0))
    where = np.arange(len(betas))
    for i, c in enumerate(betas.values()):
        low, high = np.quantile(c.V_end, [0.1, 0.9])
        values.plot([i, i], [low, high], color=st.GREY, lw=4, alpha=0.4, solid_capstyle="butt")
        values.plot(i, c.V_end.mean(), "o", ms=5, color=st.BLUE)
        ratios.plot([i, i], [0, c.feasible.mean()], color=st.GREY, lw=0.8)
    values.plot([], [], color=st.GREY, lw=4, alpha=0.4, label="10 to 90 % of the seeds")
    values.plot([], [], "o", ms=5, color=st.BLUE, ls="none", label="mean")
    ratios.plot(where, [c.feasible.mean() for c in betas.values()], "o", color=st.BLUE)
    from_half = sum(b < 0.5 for b in betas) - 0.5  # of smaller beta the paper prints no value
    values.plot(
        [from_half, len(betas) - 0.5], [printed()] * 2, color=st.RED, label=r"printed, $\beta \geq 0.5$"
    )
    level(values, betas[0.0].optimum[1], "exact optimum")
    for ax in (values, ratios):
        ax.set_xticks(where, [f"{b:g}" for b in betas])
        ax.set_xlim(-0.5, len(betas) - 0.5)
    dress(values, r"$\beta$", "final Tchebycheff value")
    bottom, top = values.get_ylim()
    values.set_ylim(bottom, bottom + 1.5 * (top - bottom))  # room for the legend
    values.legend(loc="upper center", ncols=2)
    dress(ratios, r"$\beta$", "share of seeds that end feasible", ylim=(0.0, 1.05))
    tones = st.plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(betas)))
    for (b, c), colour, marker in zip(betas.items(), tones, (*st.MARKERS, *st.MARKERS), strict=False):
        line = {"color": colour, "marker": marker, "ms": 3, "markevery": 0.15}
        curve(violations, c.steps + 1, c.column("violation"), rf"$\beta={b:g}$", **line)
    around: dict[str, Any] = {"log": "x", "symlog": 1e-3, "xlim": (1, 200), "legend": True}
    dress(violations, TIME, "violation, mean over seeds", **around)
    drawn = [("standard", betas[5.0]), *((SCHEDULES[k], c) for k, c in others.items())]
    for (name, c), colour in zip(drawn, (st.BLACK, st.RED, st.ORANGE, st.PURPLE), strict=True):
        on_top: dict[str, Any] = {"ls": (0, (3, 2)), "zorder": 5} if name == "standard" else {}
        for seed in range(min(3, len(c.x))):
            curve(paths, c.steps + 1, c.x[seed], None if seed else name, color=colour, lw=0.7, **on_top)
    dress(paths, TIME, "$x$, three seeds", log="x", legend=True)
    lam = ", ".join(f"{v:g}" for v in betas[5.0].lam)
    fig.suptitle(rf"CSMOO-2, $\lambda = ({lam})$, {len(betas[5.0].final)} seeds")
    st.caption(
        fig,
        r"$\beta$: penalty of the violation; $\gamma_0$, $b$: of the step size "
        r"$\gamma_t = \gamma_0 / (t + 1)^b$; $\tau$: coefficient of the proximal terms.",
    )
    a.figure(fig)


def judge_betas(a: Artifact, betas: Mapping[float, Curves]) -> None:
    feasible = {f"beta={b:g}": c.feasible for b, c in betas.items()}
    a.claim("always-feasible", Share(feasible, that=f"max_j g_j <= {ZERO:g} at the last iterate"))
    mean = {b: float(c.V_end.mean()) for b, c in betas.items()}
    said = ", ".join(f"beta={b:g}: {v:.5f}" for b, v in mean.items())
    flat = [v for b, v in mean.items() if b >= 0.5]
    plateau = AtMost(max(flat) - min(flat), 2e-3, of="spread for beta >= 0.5", digits=".5f")
    a.claim("plateau", plateau.also(said), printed=f"{printed():g}")
    keep = common({b: betas[b] for b in (0.0, 5.0)})
    lead = Mean.finite(betas[0.0].V_end[keep[0.0]] - betas[5.0].V_end[keep[5.0]])
    worst = AllOf(
        AtLeast(
            mean[0.0],
            max(v for b, v in mean.items() if b),
            of="V(beta=0)",
            than="the largest of the others",
            digits=".5f",
        ),
        SurelyAbove(lead, of="V(beta=0) - V(beta=5), same noise", digits=".1e"),
    )
    five = std(betas[0.0].V_end) / np.sqrt(5)
    a.claim(
        "zero-is-worst",
        worst.also(
            f"{said}; means of five runs, as the paper takes them, vary with standard deviation {five:.1e}"
        ),
    )


@artifact("csmoo/finals")
def all_finals(a: Artifact) -> None:
    """Final values of all methods and preferences, mean and standard deviation over the seeds."""
    lines = []
    for key in (*METHODS, *ELSEWHERE, *(f"three_{k}" for k in METHODS)):
        job = a.jobs[key]
        name = METHODS.get(key.removeprefix("three_")) or ELSEWHERE[key]
        problem = {"problem": "three objectives" if key.startswith("three_") else "synthetic"}
        lines += [problem | line for line in finals((name, Curves(job, lam)) for lam in preferences_of(job))]
    lines += beamforming.final_lines({k[4:]: j for k, j in a.jobs.items() if k.startswith("pls_")})
    a.table(lines, given=("problem", *GIVEN))
    exact = Curves(a.jobs["basic"], preferences_of(a.jobs["basic"])[0]).problem
    ends = [a.jobs[key].final for key in METHODS]
    every = pd.concat([rows[rows["status"] == "done"] for rows in ends])
    where = sorted(every.loc[every["violation"] > ZERO, "preference_1"].unique())
    check = judge_ends(every, min(exact.bounds))
    above = f"above it at lambda_1 in {{{', '.join(f'{v:g}' for v in where) or 'none'}}}"
    a.claim("always-feasible", check.also(above), reason=AT_THE_BOUND)
    a.refer("csmoo/fig13", "batches-reduce-variance")
    a.note("Acceptance of single artifacts is in their own claims; this is the table of all of them.")
