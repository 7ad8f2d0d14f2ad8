"""CSMOO's estimates: the rate of Theorem 1, and the block forms (5) to (7), of which the paper shows no
experiment.

Criteria were written down after a pilot with other seeds (0 to 199, and 10 to 14 of the blocks) and before
the runs that judge.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, JobRows, artifact
from mobench.artifacts import style as st
from mobench.artifacts.artifact import Holds

from .at_preference import interval
from .csmoo_pls import at, ideal_of, lambdas, reference
from .csmoo_violation import unless

RATES = {
    "synthetic": "synthetic",
    "full": "beamforming, all blocks (4)",
    "cyclic": "beamforming, 4 blocks, cyclic (5)",
    "random": "beamforming, 4 blocks, random (6)",
}
SINCE = 100  # the slope is fitted from this step on
STEEP = -0.4  # the theorem says -1/2; noise of a fitted slope is some .03
BLOCKS = {
    "full": "all at once (4)",
    "cyclic": "cyclic (5)",
    "random": "random (6)",
    "selected": "cyclic (5), only the block moves",
}
LEFT = 0.05  # share of the way from V(x_0) to the optimum that may be left; a pilot has .02 to .03


def mean_square(job: JobRows, kind: str) -> pd.Series:
    """Mean over runs and objectives of the squared error of estimated values ("value") or gradients
    ("row"), by step.
    """
    M = job.weights.shape[1]
    done = job.final.loc[job.final["status"] == "done", "run"]
    rows = job.history[job.history["run"].isin(done)]
    errors = rows.groupby("step")[[f"{kind}_error_{m + 1}" for m in range(M)]].mean().mean(axis=1)
    return errors.dropna()  # the last row belongs to no sample


def slope(errors: pd.Series) -> float:
    """Least-squares slope in logarithms, from step SINCE on (from the first one where there are fewer)."""
    late = errors[errors.index >= SINCE]
    late = late if len(late) > 1 else errors[errors.index > 0]
    return float(np.polyfit(np.log(late.index + 16.0), np.log(late.to_numpy()), 1)[0])


@artifact("csmoo/rate")
def rate(a: Artifact) -> None:
    """Mean squared errors of the estimates under the schedule of Theorem 1."""
    fig, axes = st.panels(1, 2, size=3.2)
    slopes: dict[tuple[str, str], float] = {}
    rows = []
    for ax, (kind, what) in zip(axes[0], (("value", "values"), ("row", "gradients")), strict=True):
        for (key, label), colour in zip(RATES.items(), (st.BLACK, st.BLUE, st.GREEN, st.ORANGE), strict=True):
            errors = mean_square(a.jobs[key], kind)
            slopes[key, kind] = slope(errors)
            ax.plot(
                errors.index + 16, errors, color=colour, lw=1.2, label=f"{label}: {slopes[key, kind]:.2f}"
            )
        guide = np.array([16.0 + SINCE, 16.0 + float(errors.index[-1])])
        level = float(mean_square(a.jobs["synthetic"], kind).iloc[-1])
        ax.plot(guide, 2 * level * (guide / guide[-1]) ** -0.5, color=st.GREY, ls=":", label="$t^{-1/2}$")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("$t + 16$")
        ax.set_ylabel(f"mean squared error of the {what}")
        ax.set_ylim(top=50.0 * ax.get_ylim()[1])
        ax.legend(fontsize=6, title="slope", title_fontsize=6, loc="upper right")
    a.figure(fig)
    for key, label in RATES.items():
        rows.append(
            {
                "problem and estimates": label,
                "slope, values": slopes[key, "value"],
                "slope, gradients": slopes[key, "row"],
                "steps": int(a.jobs[key].config["steps"]),
                "runs": a.jobs[key].runs,
            }
        )
    a.table(pd.DataFrame(rows), given=("problem and estimates", "steps"))
    for id, kind, what in (("values", "value", "values"), ("gradients", "row", "gradients")):
        found = {key: slopes[key, kind] for key in RATES}
        slow = [RATES[key] for key, s in found.items() if s > STEEP]
        holds: Holds = True if not slow else "partial" if len(slow) < len(RATES) else False
        a.claim(
            f"rate-{id}",
            f"The mean squared error of the estimated {what} falls like t^(-1/2), also of the block forms",
            "Theorem 1 (non-asymptotic part), Appendix C.1",
            published="O(t^-1/2)",
            measured=f"slope in logarithms from step {SINCE} on: "
            + ", ".join(f"{RATES[k]} {s:.3f}" for k, s in found.items()),
            tolerance=f"at most {STEEP} each (partial: some)",
            holds=holds,
            reason=unless(
                holds,
                f"Slower: {', '.join(slow)}; each block is refreshed every fourth step, "
                "so its transient is longer.",
            ),
        )
    a.note(
        "rho_t = 4/(t+16)^(1/2) and gamma_t = 2/(t+16)^(3/4), CSMOO-2, lambda = (.5, .5), single samples, "
        "200 and 50 runs. The theorem's own schedule is at the edge of its assumptions: a = 1/2 and 2b - a = "
        "1, so that sum rho_t^2 and sum gamma_t^2/rho_t diverge."
    )


@artifact("csmoo/blocks")
def blocks(a: Artifact) -> None:
    """Beamforming with one of four blocks of gradients refreshed a step."""
    lams = lambdas(a.jobs["cyclic"])
    z = ideal_of(a.jobs["full"])
    best = {lam1: reference(lam1, z) for lam1 in lams}
    fig, axes = st.panels(1, len(lams), size=2.9)
    left: dict[str, list[np.ndarray]] = {key: [] for key in BLOCKS}
    falling: dict[str, list[np.ndarray]] = {key: [] for key in BLOCKS}
    rows = []
    for ax, lam1 in zip(axes[0], lams, strict=True):
        for (key, label), colour in zip(
            BLOCKS.items(), (st.BLACK, st.BLUE, st.GREEN, st.ORANGE), strict=True
        ):
            c = at(a.jobs[key], lam1)
            V = c.column("tchebycheff")
            half = int(np.searchsorted(c.steps, c.steps[-1] / 2))
            left[key].append((V[:, -1] - best[lam1].V) / (V[:, 0] - best[lam1].V))
            falling[key].append(V[:, -1] <= V[:, half])
            ax.plot(c.steps + 1, V.mean(0) - best[lam1].V, color=colour, label=label)
            rows.append(
                {
                    "blocks": label,
                    "lambda_1": lam1,
                    "V": float(V[:, -1].mean()),
                    "V exact": best[lam1].V,
                    "share of the way left": float(left[key][-1].mean()),
                    "violation": float(c.final["violation"].max()),
                    "power": float(c.final["power"].mean()),
                    "runs": c.runs,
                }
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("iteration $t + 1$")
        ax.set_title(rf"$\lambda_1 = {lam1:g}$", fontsize=8)
    axes[0, 0].set_ylabel("$V - V^*$, mean over seeds")
    axes[0, 0].legend(fontsize=6)
    a.figure(fig)
    a.table(pd.DataFrame(rows), given=("blocks", "lambda_1", "V exact"))
    rest = {key: np.concatenate(parts) for key, parts in left.items()}
    down = {key: float(np.concatenate(parts).mean()) for key, parts in falling.items()}
    good = {key: bool(rest[key].mean() <= LEFT and down[key] >= 0.9) for key in BLOCKS}
    both = [key for key in ("cyclic", "random") if good[key]]
    holds: Holds = True if len(both) == 2 else "partial" if both else False
    a.claim(
        "converge",
        "With one block of gradients refreshed a step, in turn or at random, "
        "the method goes to the same solution",
        "Section 4.1, (5) to (7); Theorem 1",
        published="asymptotically consistent under either rule",
        measured="share of the way from V(x_0) to the optimum that is left, mean over runs: "
        + ", ".join(f"{BLOCKS[k]} {interval(rest[k])}" for k in ("full", "cyclic", "random"))
        + "; V lower at the end than half way in "
        + ", ".join(f"{100 * down[k]:.0f} %" for k in ("full", "cyclic", "random"))
        + " of the runs",
        tolerance=f"cyclic and random: at most {LEFT:.2f}, and lower in at least 90 % (partial: one rule)",
        holds=holds,
        reason=unless(
            holds,
            "A block is refreshed every fourth step with the weight rho_t of all steps, "
            "so early gradients linger.",
        ),
    )
    towards = down["selected"] >= 0.9 and bool(rest["selected"].mean() <= 0.5)
    a.check(
        "selected",
        "Where only the refreshed block moves (another reading of the block form) V still falls towards the "
        "optimum",
        measured=f"share of the way left {interval(rest['selected'])}; V lower at the end than half way in "
        f"{100 * down['selected']:.0f} % of the runs",
        tolerance="lower in at least 90 % of the runs, and at most 0.5 left",
        holds=towards,
        reason=unless(
            towards, "Each block moves in a quarter of the steps, and gamma_t shrinks all the same."
        ),
    )
    a.note(
        "4 blocks of 2 real coordinates. As Algorithms 1 and 2 print it, only gradients are refreshed by "
        "block and all of x moves (oracle.block_move=all); `selected` moves the refreshed block only, which "
        "needs several times the steps."
    )
