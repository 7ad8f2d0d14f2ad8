"""Runs on the synthetic problem at one preference, and the checks that both problems of the paper share."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from mobench.artifacts import Artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, AtLeast, Check, Graded, Share, Within
from mobench.artifacts.panels import Band, curve, dress, legend_below, level
from mobench.artifacts.statistics import Mean, percent
from mobench.jobs.store import columns
from mobench.problems import ConstrainedGaussian

from .preferences import AtPreference, seed_columns

K = TypeVar("K", bound=Hashable)
METHODS = {"basic": "basic", "csmoo1": "CSMOO-1", "csmoo2": "CSMOO-2"}
LOOKS = {"basic": st.look("csmoo_basic"), "csmoo1": st.look("csmoo1"), "csmoo2": st.look("csmoo2")}
COLOURS = {key: look.colour for key, look in LOOKS.items()}
DASHES = {key: look.line for key, look in LOOKS.items()}  # where the curves coincide
GIVEN = ("method", "lambda", "x exact", "V exact")  # columns that no run measures
TIME = "iteration $t + 1$"
ZERO = 1e-4  # the paper's tolerance on max_j g_j (Appendix E.3)
NEARLY_ZERO = 1e-3  # violations below it are drawn on a linear axis
NEARLY = 0.05  # ours: share of the smallest right-hand side of a constraint
MATCH = 0.01  # final x of two variants match: less than the spread over seeds
MOST = 0.95  # of the runs; a pilot has 99 %
FEASIBLE_SHARE = (
    0.9  # the share of runs, or seeds, that are feasible; a pilot with other seeds from x_0 = 1: 96 %
)
# of the way from V(x_0) to V*; docs/protocol.md, "Sharper criteria"
LEFT = 0.05  # is left at an optimum
FALLEN = 0.5  # has been gone where V "decreases"
FLAT = 0.05  # a "plateau" still moves by


def pair(lam1: float) -> tuple[float, float]:
    return lam1, round(1.0 - lam1, 12)


class Curves(AtPreference):
    """The runs of one job on the synthetic problem at one preference."""

    @cached_property
    def problem(self) -> ConstrainedGaussian:
        config = {k: v for k, v in self.job.config["problem"].items() if k != "_target_"}
        return ConstrainedGaussian(**config)

    @cached_property
    def x(self) -> np.ndarray:
        """x along the paths (S, T), from f_1 - f_2 = 2x - 1."""
        return 0.5 * (self.column("f_1") - self.column("f_2") + 1.0)

    @cached_property
    def x_end(self) -> np.ndarray:
        """Final x (S,)."""
        return self.job.solutions["last"][self.final["run"].to_numpy(), 0]

    @property
    def V_end(self) -> np.ndarray:
        return self.end("tchebycheff")

    @cached_property
    def optimum(self) -> tuple[float, float]:
        """x* and V* of this preference and the job's ideal point."""
        x, V = self.problem.optimum(torch.tensor([self.lam], dtype=torch.float64))
        return float(x), float(V)

    @cached_property
    def feasible_since(self) -> np.ndarray:
        """First recorded step from which on the violation stays below the tolerance, by seed (inf: never)."""
        late = self.column("violation") > ZERO
        last = np.where(late.any(1), late.shape[1] - 1 - late[:, ::-1].argmax(1), -1)
        return np.where(
            last + 1 < len(self.steps), self.steps[np.minimum(last + 1, len(self.steps) - 1)], np.inf
        )

    @property
    def feasible(self) -> np.ndarray:
        """True if the last iterate is feasible (S,)."""
        return self.end("violation") <= ZERO

    @property
    def span(self) -> str:
        return f"{self.planned['seed'].min()} to {self.planned['seed'].max()}"


def variants(a: Artifact, lam: tuple[float, ...]) -> dict[str, Curves]:
    return {key: Curves(a.jobs[key], lam) for key in METHODS}


def common(curves: Mapping[K, Curves]) -> dict[K, np.ndarray]:
    """Returns which runs of each have a seed that finished in all: positions in `final`, rows of `column`."""
    shared = functools.reduce(np.intersect1d, [c.final["seed"].to_numpy() for c in curves.values()])
    return {k: np.flatnonzero(np.isin(c.final["seed"], shared)) for k, c in curves.items()}


def matching(curves: Mapping[K, Curves]) -> np.ndarray:
    """Returns the largest difference of the final x between any two variants, by seed."""
    keep = common(curves)
    x = np.stack([c.x_end[keep[k]] for k, c in curves.items()])
    return x.max(0) - x.min(0)


def finals(curves: Iterable[tuple[str, Curves]]) -> list[dict[str, Any]]:
    """Returns a line of final values for each method and preference."""
    return [
        {
            "method": name,
            "lambda": " ".join(f"{v:g}" for v in c.lam),
            **seed_columns(x=c.x_end),
            "x exact": c.optimum[0],
            **seed_columns(V=c.V_end),
            "V exact": c.optimum[1],
            "largest violation": c.final["violation"].max(),
            "infeasible steps": c.final["infeasible_steps"].mean(),
            "runs": c.runs,
        }
        for name, c in curves
    ]


def draw_curves(a: Artifact, curves: Mapping[str, Curves], method: str = "") -> None:
    """Draws x, Tchebycheff value and violation against t, means over seeds.

    The figure's `method` is in front with its 10 to 90 % band; without one, all have the range of their
    seeds.
    """
    fig, axes = st.panels(1, 3, figsize=(7.0, 2.8))
    main = curves[method or "basic"]
    for k, key in enumerate((method, *(k for k in curves if k != method)) if method else curves):
        c = curves[key]
        others: dict[str, Any] = {"lw": 1.0, "ls": "--"} if method else {"ls": DASHES[key]}
        look = {"lw": 1.8} if key == method else others
        look |= {"marker": LOOKS[key].marker, "ms": 3.2, "markevery": (0.07 * k, 0.25)}
        for ax, values in zip(axes[0], (c.x, c.column("tchebycheff"), c.column("violation")), strict=True):
            band: Band = "range" if not method else "quantiles" if key == method else ""
            curve(ax, c.steps + 1, values, METHODS[key], band=band, color=COLOURS[key], **look)
    low, high = main.problem.feasible_set
    axes[0, 0].axhspan(low, high, color=st.GREY, alpha=0.12, lw=0, label="feasible set")
    for ax, best in zip(axes[0], main.optimum, strict=False):
        level(ax, best, "exact optimum")
    dress(axes[0, 0], TIME, "$x$", log="x")
    lowest = (min(0.0, main.optimum[1] - 0.02), None)
    dress(axes[0, 1], TIME, "Tchebycheff value", log="x", ylim=lowest)
    dress(axes[0, 2], TIME, "max constraint violation", log="x", symlog=NEARLY_ZERO)
    band_of = f"10 to 90 % of the seeds of {METHODS[method]}" if method else "range of the seeds"
    lam = ", ".join(f"{v:g}" for v in main.lam)
    seeds = f"{len(main.final)} seeds"
    fig.suptitle(f"$\\lambda = ({lam})$; mean over {seeds}, band: {band_of}; lines not seen lie below others")
    legend_below(fig, axes[0, 0])
    a.figure(fig)


# checks

# why runs end beyond the feasible set
AT_THE_BOUND = (
    "Likely: at preferences near a corner of the simplex the optimum lies within the spread of the final "
    "iterates of the end of the feasible set, so that some of them are beyond it."
)


def judge_violation(
    a: Artifact, id: str, violation: np.ndarray, bound: float, more: str = "", reason: str = "", **words: Any
) -> None:
    """Judges that final violations (R,) are (nearly) zero; bound: the smallest right-hand side."""
    nearly_zero = violation <= NEARLY * bound
    check = Graded(
        Share(violation <= ZERO, that=f"final violation at most {ZERO:g}", digits=1).because(
            "zero: the paper's tolerance of Appendix E.3"
        ),
        Share(nearly_zero, that=f"final violation at most {NEARLY * bound:g}", digits=1).because(
            f"nearly zero: {percent(NEARLY)} of the bound {bound:g}"
        ),
    ).also(f"largest {float(violation.max(initial=0.0)):.2g}{more}")
    nearly = "Nearly zero, but not zero." if check.holds == "partial" else "Neither zero nor nearly zero."
    a.claim(id, check, reason=f"{nearly} {reason}".strip(), **words)


def judge_ends(rows: pd.DataFrame, bound: float) -> Check:
    """Checks that most seeds end feasible at every preference with every method.

    The seed is the unit, since its runs share their noise. Partial: nearly, or at all but the outermost
    preferences, those of the largest weight.
    """
    largest = rows[columns(rows, "preference_")].max(axis=1)
    inner = rows[largest < largest.max() - 1e-9]
    worst, inside = (part.groupby("seed")["violation"].max().to_numpy() for part in (rows, inner))

    def ends(violation: np.ndarray, most: float, where: str) -> Check:
        that = f"final violation at most {most:g} at {where}, all methods"
        return Share(violation <= most, FEASIBLE_SHARE, that=that, what="seeds")

    outer = f"all but the outermost preferences, with a weight of {largest.max():.3g}"
    above = int((rows["violation"] > ZERO).sum())
    return Graded(
        ends(worst, ZERO, "all preferences"),
        AllOf(
            ends(inside, ZERO, outer),
            ends(worst, NEARLY * bound, "all preferences").because(f"{percent(NEARLY)} of the bound"),
            partial=True,
        ),
    ).also(f"{above} of {len(rows)} runs above {ZERO:g}; largest {worst.max():.2g}")


def share_of_way(c: AtPreference, value: np.ndarray, best: float) -> np.ndarray:
    """Returns the share of the way from V(x_0) down to V* that `value` (S,) has gone, by seed."""
    start = c.column("tchebycheff")[:, 0]
    share: np.ndarray = (start - value) / (start - best)
    return share


def decreases(c: AtPreference, best: float) -> Check:
    """Checks that V falls and then stays, by its means over the third and the last quarter of the steps.

    Both are shares of the way from V(x_0) to V* (`best`), means over the seeds: the last quarter keeps at
    least FALLEN of it, and differs from the third by at most FLAT.
    """
    V = c.column("tchebycheff")
    quarter = c.steps[-1] / 4
    third = share_of_way(c, V[:, (c.steps > 2 * quarter) & (c.steps <= 3 * quarter)].mean(1), best)
    last = share_of_way(c, V[:, c.steps > 3 * quarter].mean(1), best)
    of = "share of the way from V(x_0) to V* that the last quarter of the steps keeps"
    return AllOf(
        AtLeast(Mean(last), FALLEN, of=of),
        Within(Mean(last - third), 0.0, FLAT, of="this share less that of the third quarter"),
        partial=True,
    )
