"""An optimum at the end of the feasible set: what the penalty must be, and how feasibility is asymptotic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, AtMost, Graded, Share, Within
from mobench.artifacts.panels import curve, dress, legend_below, level
from mobench.artifacts.statistics import Mean, std
from mobench.problems import ConstrainedGaussian

from .preferences import seed_columns
from .runs import METHODS, TIME, ZERO, Curves

LAM = (0.1, 0.9)
WELLS = np.polynomial.Polynomial([2.0, 0.25, -2.0, 0.0, 1.0])  # (x^2 - 1)^2 + x / 4 + 1 on X = [-2, 2]


def end_of_penalty(problem: ConstrainedGaussian, lam: tuple[float, ...], beta: float) -> float:
    """Returns x that minimises V(x) + beta max(0, g_1(x), g_2(x)), the value of (14), to 1e-5."""
    x = torch.linspace(0.0, 1.0, 100_001, dtype=torch.float64).unsqueeze(1)
    values = problem.values(x)
    M = problem.objectives
    w = torch.tensor(lam, dtype=torch.float64)
    V = (w * (values[:, :M] - problem.ideal_point)).amax(1)
    return float(x[(V + beta * values[:, M:].amax(1).clamp_min(0.0)).argmin(), 0])


def least_beta(problem: ConstrainedGaussian, lam: tuple[float, ...]) -> float:
    """Returns beta* = -V'/g_1' of Theorem 2 at the upper end of the feasible set."""
    end = torch.tensor([[problem.feasible_set[1]]], dtype=torch.float64)
    _, rows = problem.linearize(end)
    J = rows()[0, :, 0]
    return float(-lam[1] * J[1] / J[problem.objectives])


@artifact("csmoo/active")
def active(a: Artifact) -> None:
    """x and violation against t for penalties below and above beta*, with the exact minimisers."""
    beta = {key: float(job.config["algorithm"].get("beta", np.nan)) for key, job in a.jobs.items()}
    names = {key: METHODS.get(key, f"CSMOO-2, beta = {b:g}") for key, b in beta.items()}
    curves = {names[key]: Curves(job, LAM) for key, job in a.jobs.items()}
    main = curves[names["beta_5"]]
    x_best = main.optimum[0]
    ends = {
        names[key]: x_best if key == "csmoo1" else end_of_penalty(main.problem, LAM, b)
        for key, b in beta.items()
    }
    draw(a, curves, ends)
    lines = [
        {
            "method": name,
            **seed_columns(x=c.x_end),
            "exact minimiser of (14)": ends[name],
            "x* of (2)": x_best,
            "mean violation": float(c.final["violation"].mean()),
            "share feasible": float(c.feasible.mean()),
            "runs": c.runs,
        }
        for name, c in curves.items()
    ]
    a.table(lines, given=("method", "exact minimiser of (14)", "x* of (2)"))
    threshold = least_beta(main.problem, LAM)
    x = {name: Mean(c.x_end) for name, c in curves.items()}
    large = {names[k]: x[names[k]] for k, b in beta.items() if b >= threshold}
    a.claim(
        "theorem-2",
        Within(large, x_best, 0.01, of="x").also(f"beta* = -V'/g' = {threshold:.4f} at x* = {x_best:.4f}"),
    )
    judge_weak_pareto(a, main.problem, x_best)
    a.claim("csmoo1-active", Within(x["CSMOO-1"], x_best, 0.01, of="x"))
    small = [names[k] for k, b in beta.items() if b < threshold]
    violated = {name: ~curves[name].feasible for name in small}
    sharp = AllOf(
        Within({name: x[name] for name in small}, ends, 0.02, of="x", to="minimiser"),
        Share(violated, that=f"violation above {ZERO:g}"),
    )
    means = ", ".join(f"{name} {curves[name].final['violation'].mean():.3f}" for name in small)
    a.check("below-beta", sharp.also(f"mean violation: {means}"))
    judge_asymptotic(a, main)
    a.note(f"lambda = (.1, .9) with the analytic ideal point, seeds {main.span}.")


def judge_weak_pareto(a: Artifact, convex: ConstrainedGaussian, x_best: float) -> None:
    """Theorem 3, of (15), which is convex, and of two equal objectives with two wells.

    Where no constraint binds, a local minimum of f_1 = f_2 solves (14) locally, with y_1 = 0.
    """
    wells = WELLS.deriv().roots().real
    local = float(wells.max())
    x = torch.linspace(*convex.feasible_set, 100_001, dtype=torch.float64).unsqueeze(1)
    M = convex.objectives
    best = convex.values(torch.tensor([[x_best]], dtype=torch.float64))[:, :M]
    gain = float((best - convex.values(x)[:, :M]).amin(1).max())
    gains = {"(15)": gain, "two wells": float(WELLS(local) - WELLS(wells).min())}
    of = "by how much a feasible point is better in all objectives"
    full = AtMost(gains, 1e-9, of=of, digits=".3g")
    curvature = f"two wells: at x = {local:.4f} f' = 0, f'' = {WELLS.deriv(2)(local):.2f}"
    a.claim("theorem-3", Graded(full, AtMost(gain, 1e-9, of=of, digits=".3g")).also(curvature))


def draw(a: Artifact, curves: Mapping[str, Curves], ends: Mapping[str, float]) -> None:
    """x with the exact minimisers (dotted), and violation, of all settings."""
    fig, ((left, right),) = st.panels(1, 2, size=3.0)
    penalties = iter((st.ORANGE, st.SKY, st.BLUE))
    for name, c in curves.items():
        colour = st.look("csmoo1").colour if name == "CSMOO-1" else next(penalties)
        over = name == "CSMOO-1"  # CSMOO-2 with a large beta does the same
        look: dict[str, Any] = {"color": colour, "ls": "--" if over else "-", "zorder": 3 if over else 2}
        label = name.replace("beta", r"$\beta$")
        curve(left, c.steps + 1, c.x, label, **look)
        curve(right, c.steps + 1, c.column("violation"), label, **look)
        level(left, ends[name], color=colour)
    feasible = next(iter(curves.values())).problem.feasible_set
    left.axhspan(*feasible, color=st.GREY, alpha=0.12, lw=0, label="feasible set")
    left.plot([], [], ":", color=st.GREY, label="exact minimiser, in the method's colour")
    dress(left, TIME, "$x$, mean over seeds", log="x")
    dress(right, TIME, "max violation, mean over seeds", log="xy")
    legend_below(fig, left, ncols=3)
    a.figure(fig)


def judge_asymptotic(a: Artifact, c: Curves) -> None:
    mean = c.column("violation").mean(0)
    last = c.steps[-1]
    early = float(mean[(c.steps >= last / 20) & (c.steps < last / 10)].mean())
    late = float(mean[c.steps >= 0.9 * last].mean())
    than = f"0.7 times that over steps {last / 20:g} to {last / 10:g}"
    falls = AtMost(late, 0.7 * early, of="mean violation over the last tenth", than=than, digits=".4f")
    a.check(
        "asymptotic",
        falls.because("a pilot has 0.42 times").also(
            f"over the earlier ones {early:.4f}; at the end {100 * c.feasible.mean():.0f} % of the runs are "
            f"feasible, the largest violation is {c.final['violation'].max():.2f}; standard deviation of "
            f"the final x {std(c.x_end):.4f}"
        ),
    )
