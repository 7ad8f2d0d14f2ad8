"""Multi-objective bilevel learning: tables, the geometry of the weights, and convergence on the quadratic problem.

The paper prints no number: its claims are orderings, and their acceptance is the specification's, fixed before any run. Figures
1, 2, 4 to 8 are in mobl_few_shot.py, 9 to 12 in mobl_cleaning.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from mobench.algorithms.wc_mhgd import WCMHGD
from mobench.artifacts import Artifact, JobRows, Runs, artifact
from mobench.artifacts import style as st

from . import mobl_cleaning, mobl_few_shot  # noqa: F401  they register their artifacts
from .toy import published

NOTATION = [
    ("x, y", "variables of the upper and of the lower level"),
    ("f_s, g", "objective s of the upper level, objective of the lower level"),
    ("y*(x)", "the minimiser of g(x, .)"),
    ("phi_s(x)", "f_s(x, y*(x)); Phi = (phi_1, .., phi_S)"),
    ("[S]", "{1, .., S}"),
    ("|.|", "Euclidean norm"),
    ("Ghat(x)", "p x S matrix of approximate hypergradients, one column for each objective"),
    ("r", "preference: S positive numbers with sum 1"),
    ("simplex", "vectors of S numbers >= 0 (open simplex: > 0) with sum 1"),
    ("e_s, 1", "unit vector s, vector of ones"),
    ("r * v", "entry-wise product"),
    ("u", "trade-off between direction and preference in equation (5)"),
    ("d_k, with preference", "Ghat(x_k) (r * lambda_k)"),
    ("d_k, without", "Ghat(x_k) lambda_k"),
    ("dbar_k", "the same with exact hypergradients"),
    ("K, D, N, Q", "steps of the upper and of the lower level, of CG, terms of the Neumann series"),
    ("alpha, beta, eta", "step sizes of y, of x, of the Neumann series"),
]


@artifact("mobl/table1")
def table1(a: Artifact) -> None:
    """Notation."""
    a.table(pd.DataFrame(NOTATION, columns=["symbol", "meaning"]))
    a.claim(
        "present",
        "The symbols of the paper's notation table are explained",
        "Table 1",
        published="13 symbols",
        measured=f"{len(NOTATION)} lines, with the step sizes and counts that its algorithms use",
        tolerance="present",
        holds=True,
        any_scale=True,
    )
    a.note(
        "Static text. The paper's definition of Ghat as a p x S matrix is used; its Definition 3.3 has the transpose."
    )


METHODS = [
    # name, problem, scenario, finite-time guarantee, rate, preference, what there is of it here
    ("AID", "BLO", "Deterministic", "Yes", "O(K^-1)", "-", "oracle=hypergradient, method=cg (one objective)"),
    ("ITD", "BLO", "Deterministic", "Yes", "O(K^-1)", "-", "oracle=hypergradient, method=itd (one objective)"),
    ("SOBA", "BLO", "Stochastic", "Yes", "O(K^-1/2)", "-", "–"),
    ("STABLE", "BLO", "Stochastic", "Yes", "O(K^-1/2)", "-", "–"),
    (
        "stocBiO",
        "BLO",
        "Stochastic",
        "Yes",
        "O(K^-1)",
        "-",
        "oracle=hypergradient, method=neumann with batches (one objective)",
    ),
    ("AmIGO", "BLO", "Stochastic", "Yes", "O(K^-1)", "-", "–"),
    ("BLMS", "MOBL", "Deterministic", "No", "-", "No", "–"),
    ("PSP-BLEMO", "MOBL", "Deterministic", "No", "-", "No", "–"),
    ("MOML", "MOBL", "Deterministic", "No", "-", "No", "algorithm=mgda, oracle.warm_start=false"),
    ("gMOBA", "MOBL", "Deterministic", "No", "-", "No", "–"),
    ("FORUM", "MOBL", "Deterministic", "Yes", "O(K^-1/4)", "No", "algorithm=forum, oracle=value_gap"),
    ("MoCo", "MOBL", "Stochastic", "Yes", "O(S K^-1/2)", "No", "algorithm=moco, oracle=moco"),
    ("WC-MHGD det", "MOBL", "Deterministic", "Yes", "O(K^-1)", "Yes", "algorithm=wc_mhgd, oracle=hypergradient"),
    ("WC-MHGD stoch", "MOBL", "Stochastic", "Yes", "O(K^-1)", "Yes", "algorithm=wc_mhgd, method=neumann with batches"),
]
FIELDS = ("problem", "scenario", "finite_time", "rate", "preference")


@artifact("mobl/table2")
def table2(a: Artifact) -> None:
    """Fourteen methods by what is proved of them, and which are here."""
    frame = pd.DataFrame(METHODS, columns=["method", *FIELDS, "here"])
    a.table(frame)
    printed = published("mobl_table2")
    ours = {
        (name, field): str(value) for name, *values, _ in METHODS for field, value in zip(FIELDS, values, strict=True)
    }
    cells = zip(printed["row"], printed["column"], printed["value"], strict=True)
    wrong = [f"{name} {field}" for name, field, value in cells if ours.get((name, field)) != value]
    a.claim(
        "cells",
        "The cells are those of the paper",
        "Table 2",
        published=f"{len(printed)} cells",
        measured=f"{len(printed) - len(wrong)} equal" + (f"; not: {', '.join(wrong)}" if wrong else ""),
        tolerance="equal",
        holds=not wrong,
        any_scale=True,
    )
    a.note("Static text; the last column is ours.")


@artifact("mobl/fig3")
def fig3(a: Artifact) -> None:
    """The directions of two objectives: min-norm, min-norm of weighted gradients (u = 0), and u large."""
    centres = np.array([[-1.0, 0.2], [1.0, 0.4]])
    shapes = np.array([[[1.0, 0.25], [0.25, 1.6]], [[1.4, -0.3], [-0.3, 0.9]]])
    x, r = np.array([0.15, 1.9]), torch.tensor([[0.7, 0.3]], dtype=torch.float64)

    def value(p: np.ndarray, s: int) -> np.ndarray:
        e = p - centres[s]
        out: np.ndarray = 0.5 * np.einsum("...i,ij,...j->...", e, shapes[s], e)
        return out

    J = torch.from_numpy(np.stack([shapes[s] @ (x - centres[s]) for s in range(2)]))
    F = torch.tensor([[float(value(x, s)) for s in range(2)]], dtype=torch.float64)
    G = (J @ J.mT).unsqueeze(0)

    def direction(weights: torch.Tensor, u: float) -> tuple[np.ndarray, np.ndarray]:
        w, state, _ = WCMHGD(trade_off=u).weights(F, G, {"r": weights, "lam": weights}, 0)
        return -(w @ J)[0].numpy(), state["lam"][0].numpy()

    even = torch.ones(1, 2, dtype=torch.float64)
    arrows = {
        "min-norm, no preference": (*direction(even, 0.0), st.RED),
        "weighted, $u = 0$": (*direction(r, 0.0), st.GREEN),
        "weighted, $u$ large": (*direction(r, 1e6), st.PURPLE),
    }
    fig, axes = st.panels(1, 1, size=4.4)
    ax = axes[0, 0]
    grid = np.stack(np.meshgrid(np.linspace(-2.4, 2.4, 200), np.linspace(-1.2, 2.6, 200)), axis=-1)
    for s, color in enumerate((st.BLUE, st.GREY)):
        ax.contour(
            grid[..., 0],
            grid[..., 1],
            value(grid, s),
            levels=[0.1, 0.4, 0.9, 1.6, 2.5, 3.6],
            colors=color,
            linewidths=0.7,
        )
        ax.plot(*centres[s], marker="x", color=color)
        ax.annotate(rf"$\phi_{s + 1}$", centres[s], xytext=(4, 4), textcoords="offset points", color=color)
    ends = [x - 0.45 * J[s].numpy() for s in range(2)]
    ax.plot(*zip(*ends, strict=True), color=st.RED, lw=0.8, ls=(0, (4, 3)))
    short = [x - 0.45 * float(r[0, s]) * J[s].numpy() for s in range(2)]
    ax.plot(*zip(*short, strict=True), color=st.GREEN, lw=0.8, ls=(0, (4, 3)))
    for label, (d, _, color) in arrows.items():
        tip = x + 0.45 * d
        ax.annotate("", tip, x, arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.8, "shrinkA": 0, "shrinkB": 0})
        ax.plot([], [], color=color, lw=1.8, label=label)
    ax.plot(*x, marker="o", color=st.BLACK, ms=4)
    ax.annotate("$x_0$", x, xytext=(5, 4), textcoords="offset points")
    ax.set_aspect("equal")
    ax.set_xlabel("$x_1$")
    ax.set_ylabel("$x_2$")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    a.figure(fig)
    large, lam = arrows["weighted, $u$ large"][:2]
    a.claim(
        "steepest",
        "A large u gives the steepest descent direction of the objective whose r_s phi_s is largest",
        "Figure 3, Remark 1",
        published="purple arrow",
        measured=f"lambda = ({lam[0]:.3g}, {lam[1]:.3g}), |d + r_1 grad phi_1| = "
        f"{np.abs(large + 0.7 * J[0].numpy()).max():.1e}",
        tolerance="a vertex of the simplex",
        holds=bool(lam[int((r * F).argmax())] > 1 - 1e-9),
        any_scale=True,
    )
    d0, _, _ = arrows["weighted, $u = 0$"]
    rates = [float(-J[s].numpy() @ d0) for s in range(2)]
    a.claim(
        "reversal",
        "With u = 0 the preferred objective falls more slowly than the other",
        "ours (b.7 of the specification)",
        published="not stated",
        measured=f"-<grad phi_s, d> = {rates[0]:.3f} (r = .7), {rates[1]:.3f} (r = .3)",
        tolerance="rates in the ratio 1 / r_s where both weights are positive",
        holds=bool(abs(rates[0] * 0.7 - rates[1] * 0.3) < 1e-9 and rates[0] < rates[1]),
        any_scale=True,
    )
    a.note("Computed with the method's own program; every arrow is 0.45 times its direction.")


def _mean_square(job: JobRows, column: str) -> tuple[np.ndarray, np.ndarray]:
    """K and the mean over k < K of a column, mean over seeds. The direction of a step is in the row after it."""
    table = job.history.pivot_table(index="step", columns="run", values=column)
    values = table.to_numpy()[1:] if column == "direction_square" else table.to_numpy()[:-1]
    steps = np.arange(1, len(values) + 1)
    return steps, (values.cumsum(axis=0) / steps[:, None]).mean(axis=1)


def _slope(steps: np.ndarray, mean: np.ndarray) -> float:
    """Of the last nine tenths, in logarithms."""
    late = steps >= max(2, steps[-1] // 10)
    return float(np.polyfit(np.log(steps[late]), np.log(mean[late]), 1)[0])


@artifact("mobl/theory")
def theory(a: Artifact) -> None:
    """Pareto stationarity against k; what the preference and u do."""
    shown = {
        "mgda": ("Algorithm 4, ITD", st.BLACK, "-"),
        "cg": ("Algorithm 4, CG", st.GREY, "--"),
        "falling": ("WC-MHGD, $u_k = 1/(k+1)$", st.BLUE, "-"),
        "constant": ("WC-MHGD, $u = 10$", st.ORANGE, "-"),
    }
    fig, axes = st.plt.subplots(1, 2, figsize=(8.6, 3.4), layout="constrained")
    ax = axes[0]
    slopes = {}
    for name, (label, color, line) in shown.items():
        steps, mean = _mean_square(a.jobs[name], "direction_square")
        slopes[name] = _slope(steps, mean)
        ax.loglog(steps, mean, color=color, ls=line, label=f"{label}: slope {slopes[name]:.2f}")
    steps, mean = _mean_square(a.jobs["mgda"], "direction_square")
    ax.loglog(steps, mean[0] / steps, color=st.GREY, ls=":", lw=0.9, label="$1/K$")
    ax.set_xlabel("$K$")
    ax.set_ylabel("mean over $k < K$ of $|d_k|^2$")
    ax.set_ylim(top=20 * ax.get_ylim()[1])
    ax.legend(loc="upper right")
    for name in shown:
        least = _slope(*_mean_square(a.jobs[name], "min_norm_square"))
        a.claim(
            f"rate-{name}",
            f"The mean of |d_k|^2 falls like 1/K: {shown[name][0].replace('$', '')}",
            "Theorem 5.5",
            published="O(1/K)",
            measured=f"slope {slopes[name]:.2f} over the last nine tenths (min-norm of exact hypergradients: {least:.2f})",
            tolerance="slope <= -0.8",
            holds=slopes[name] <= -0.8,
            reason="In the min-norm regime, into which a falling u returns, d combines r_s grad phi_s with r_s down to .05: "
            "its steps are up to 16 times shorter, and 500 of them are still the transient."
            if name == "falling"
            else "",
        )
    job = a.jobs["reversal"]
    planned = job.final.assign(preferred=job.weights.argmax(axis=1) + 1)
    final = planned[planned["status"] == "done"]
    names = [f"f_{s}" for s in range(1, 6)]

    def of(rows: pd.DataFrame, s: int, u: float) -> pd.DataFrame:
        return rows[(rows["preferred"] == s) & (rows["trade_off"] == u)]

    def mean_of(s: int, u: float) -> pd.Series:
        return of(final, s, u)[names].mean()

    plain_rows = a.jobs["mgda"].final
    plain = plain_rows.loc[plain_rows["status"] == "done", names].mean()
    rows: list[dict[str, Any]] = [
        {
            "method": "Algorithm 4 (no preference)",
            "preferred": "–",
            "u": "–",
            **{n: round(float(plain[n]), 3) for n in names},
            "runs": a.jobs["mgda"].runs,
        }
    ]
    ax, width = axes[1], 0.8 / 6
    us = sorted(job.final["trade_off"].unique())
    colors = [st.GREY, st.SKY, st.BLUE, st.GREEN, st.ORANGE, st.RED]
    groups = (1, 3)
    for k, u in enumerate(us):
        heights = [float(mean_of(s, u)[f"f_{s}"] / plain[f"f_{s}"]) for s in groups]
        ax.bar(np.arange(2) + (k - 2.5) * width, heights, width, color=colors[k], label=f"$u = {u:g}$")
        for s in groups:
            rows.append(
                {
                    "method": "WC-MHGD, r_s = .8",
                    "preferred": str(s),
                    "u": f"{u:g}",
                    **{n: round(float(v), 3) for n, v in zip(names, mean_of(s, u), strict=True)},
                    "runs": Runs.of(of(planned, s, u)),
                }
            )
    ax.axhline(1.0, color=st.BLACK, lw=0.8)
    ax.set_yscale("log")
    ax.set_xticks([0, 1], ["objective 1 preferred", "objective 3 preferred"])
    ax.set_ylabel("final $\\phi_s$ of the preferred / of Algorithm 4")
    ax.legend(ncols=2)
    a.figure(fig)
    a.table(pd.DataFrame(rows), given=("method", "preferred", "u"))
    for s in groups:
        own = {u: float(mean_of(s, u)[f"f_{s}"]) for u in us}
        base = float(plain[f"f_{s}"])
        a.claim(
            f"preferred-{s}",
            f"With u >= 1 the preferred objective {s} ends lower than without preference",
            "Section 4",
            published="more preferred, lower",
            measured=", ".join(f"u = {u:g}: {v:.3g}" for u, v in own.items() if u >= 1) + f"; Algorithm 4: {base:.3g}",
            tolerance="all u >= 1",
            holds=all(v < base for u, v in own.items() if u >= 1),
        )
        a.claim(
            f"reversal-{s}",
            f"With u = 0 the preferred objective {s} ends no lower than without preference",
            "ours",
            published="not stated",
            measured=f"{own[0.0]:.3g} against {base:.3g}",
            tolerance="not lower",
            holds=own[0.0] >= base,
        )
        flat = max(own[u] for u in us if u >= 1) / min(own[u] for u in us if u >= 1) - 1
        a.claim(
            f"flat-{s}",
            f"The end does not depend on u once u >= 1 (objective {s} preferred)",
            "ours",
            published="a larger u follows the preference more closely (Remark 2)",
            measured=f"largest difference {100 * flat:.2f} %",
            tolerance="2 %",
            holds=flat < 0.02,
        )
    a.note(
        "For any u > 0 the fixed points are those of min_x max_s r_s phi_s, which u does not enter; u decides how soon the weights "
        "leave the min-norm regime."
    )
