"""Figures 1, 2 and 4: the adaptive conversion on four iterates, and all methods on VLMOP2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, AtLeast, AtMost, Below, Check, Equal
from mobench.artifacts.panels import dress
from mobench.artifacts.statistics import Mean
from mobench.core.output import conversion_weights
from mobench.core.preferences import angle_deg
from mobench.metrics import front_distance
from mobench.problems import VLMOP2

# the pattern of the caption: 2 is dominated by 1; 3 dominates 1; 4 is incomparable with 3
SAMPLE = np.array([[0.62, 0.60], [0.87, 0.90], [0.40, 0.33], [0.20, 0.80]])
STORED = ({1: 1.0}, {1: 2.0}, {3: 3.0}, {3: 3.0, 4: 1.0})  # iterates and weights after each of them
MOVES = {1: (1, 0), 2: (0, 2)}  # in this panel: the weight of the first goes to the second
ENDS = np.array([[0.0, 1 - np.exp(-4.0)], [1 - np.exp(-4.0), 0.0]])  # of the front
METHODS = {  # Figure 4: job and output rule
    "LS": ("ls", "last"),
    "TCH": ("tch", "last"),
    "OMD (PGD)": ("omd_gd", "mean"),
    "OMD (EG)": ("omd_eg", "mean"),
    "AdaOMD (PGD)": ("omd_gd", "adaptive"),
    "AdaOMD (EG)": ("omd_eg", "adaptive"),
}
AVERAGED = {  # Figure 2
    "LS": ("ls", "last"),
    "TCH": ("tch", "last"),
    "OMD-TCH (PGD)": ("omd_gd", "mean"),
    "AdaOMD-TCH (PGD)": ("omd_gd", "adaptive"),
}
GIVEN = ("method", "seed")
OF_ALL = "all: variables averaged"  # in place of a seed
FORMS = ("o", "s", "^")  # of the seeds


@artifact("omd_tch/fig1")
def fig1(a: Artifact) -> None:
    """The adaptive conversion on four iterates, step by step; panel (e): the average that it returns."""
    fig, axes = st.panels(1, 5, size=2.2, sharex=True, sharey=True)
    stored = []
    for t in range(1, 5):
        ax = axes[0, t - 1]
        gamma = conversion_weights(torch.from_numpy(SAMPLE[None, :t]))[0].numpy()
        stored.append({i + 1: float(g) for i, g in enumerate(gamma) if g > 0})
        for i, weight in enumerate(gamma):
            draw_iterate(ax, i, weight, rf", $\gamma={weight:g}$" if weight > 0 else "")
        dress(ax, title=f"({'abcd'[t - 1]}) after $\\theta_{t}$")
    for panel, (source, target) in MOVES.items():
        arrow = {"arrowstyle": "->", "color": st.ORANGE, "lw": 1.4, "shrinkA": 8, "shrinkB": 8}
        axes[0, panel].annotate("", SAMPLE[target], SAMPLE[source], arrowprops=arrow, zorder=2)
    draw_output(axes[0, 4], stored[-1])
    for ax in axes[0]:
        st.objective_axes(ax, 0.0, 1.05)
        ax.label_outer()
    words = (
        r"Full: stored, larger with its weight $\gamma$. Empty: not stored, as another iterate dominates it."
    )
    st.caption(
        fig, f"{words} Arrows: where the weight of an iterate goes. Star: the average that is returned."
    )
    a.figure(fig)
    a.note(
        "Panel (e) draws the average in objective space as if F were linear; "
        "the method averages the iterates."
    )
    said = ", ".join("{" + ", ".join(f"{k}:{v:g}" for k, v in g.items()) + "}" for g in stored)
    check = Equal(dict(enumerate(stored, 1)), dict(enumerate(STORED, 1)), what="stored sets")
    a.check("conversion", check.also(said))


def draw_iterate(ax: Any, i: int, weight: float, more: str) -> None:
    """Draws iterate i, filled and larger with its weight; without one it is not stored.

    Names are below what is stored, beside what is not (an arrow leads from there) and beside the leftmost.
    """
    colour = st.BLUE if weight > 0 else "white"
    ax.plot(*SAMPLE[i], "o", ms=6 + 3 * weight, color=colour, mec=st.BLUE, zorder=3)
    leftmost = i == int(SAMPLE[:, 0].argmin())
    beside = leftmost or weight == 0
    offset = (8.0, -3.0) if leftmost else (5.0, -12.0) if beside else (0.0, -17.0 - 1.5 * weight)
    place = {"xytext": offset, "textcoords": "offset points", "fontsize": 8}
    ax.annotate(rf"$\theta_{i + 1}$" + more, SAMPLE[i], ha="left" if beside else "center", **place)


def draw_output(ax: Any, stored: Mapping[int, float]) -> None:
    """Draws the stored iterates and their weighted average."""
    for k, weight in stored.items():
        draw_iterate(ax, k - 1, weight, "")
    mean = sum(weight * SAMPLE[k - 1] for k, weight in stored.items()) / sum(stored.values())
    ax.plot(*SAMPLE[[k - 1 for k in stored]].T, color=st.GREY, lw=0.9, zorder=1)
    ax.plot(*mean, "*", ms=12, color=st.RED, zorder=4)
    ax.annotate(r"$\tilde\theta$", mean, xytext=(9, 4), textcoords="offset points", fontsize=8)
    dress(ax, title="(e) output\n$\\tilde\\theta = (3\\theta_3 + \\theta_4)/4$")


@dataclass
class Points:
    """Ten solutions: objective values, errors against the Tchebycheff targets, angles to the rays."""

    F: np.ndarray
    error: np.ndarray
    angle: np.ndarray
    runs: RunCount

    @property
    def closest(self) -> float:
        """Smallest distance between two of the solutions."""
        gaps = np.linalg.norm(self.F[:, None] - self.F[None], axis=-1)
        return float(np.nanmin(gaps[np.triu_indices(len(self.F), 1)]))

    @property
    def to_end(self) -> np.ndarray:
        """Distance of each solution to the nearer end point of the front."""
        return np.linalg.norm(self.F[:, None] - ENDS, axis=-1).min(1)

    def line(self, method: str, seed: str) -> dict[str, Any]:
        return {
            "method": method,
            "seed": seed,
            "mean error": np.nanmean(self.error),
            "max error": np.nanmax(self.error),
            "mean angle (deg), interior": np.nanmean(self.angle[1:-1]),
            "smallest gap": self.closest,
            "runs": self.runs,
        }


def solutions(job: JobRows, output: str, seed: int | None = None) -> Points:
    """Returns the solutions of one seed's finished runs.

    Without a seed: of the decision variables averaged over the seeds, as the paper does.
    """
    problem = VLMOP2(n=int(job.config["problem"]["n"]))
    rows = job.final
    rows = rows[rows["output"] == output].reset_index(drop=True)
    done = torch.from_numpy((rows["status"] == "done").to_numpy(copy=True))
    theta = torch.from_numpy(job.solutions[output]).where(done.unsqueeze(-1), torch.nan)
    seeds = rows["seed"].nunique()
    by_seed = theta.reshape(-1, seeds, theta.shape[-1])
    w = torch.from_numpy(rows[["preference_1", "preference_2"]].to_numpy(copy=True))[::seeds]
    if seed is None:
        x = by_seed.nanmean(1)
    else:
        x = by_seed[:, list(rows["seed"].iloc[:seeds]).index(seed)]
        rows = rows[rows["seed"] == seed]
    F = problem.values(x)
    error = (F - problem.tchebycheff_target(w)).abs().amax(-1)
    return Points(F.numpy(), error.numpy(), angle_deg(F, w).numpy(), RunCount.of(rows))


def draw_solutions(
    ax: Any, singles: Sequence[Points], average: Points, job: JobRows, title: str, large: float = 30
) -> None:
    """Draws the front, the rays through 1/w, and the solutions, coloured by their preference.

    Small marks, a form for each seed, are the runs' solutions; the large rings are at the decision variables
    averaged over the seeds, where no run has ended.
    """
    weights = job.weights[:: job.final["seed"].nunique()]
    st.objective_axes(ax, -0.05, 1.05)
    st.draw_front(ax, VLMOP2().front(2001).numpy())
    for w in weights:
        st.draw_ray(ax, 1 / w, lw=0.6)
    colours = [st.preference(float(np.degrees(np.arctan2(1 / w[1], 1 / w[0])))) for w in weights]
    for points, form in zip(singles, FORMS, strict=False):
        ax.scatter(*points.F.T, c=colours, marker=form, s=0.4 * large, lw=0, zorder=4)
    ax.scatter(*average.F.T, facecolors="none", edgecolors=colours, s=1.9 * large, lw=1.1, zorder=5)
    dress(ax, title=title)
    ax.label_outer()


def key_of_solutions(fig: Any, seeds: Sequence[int]) -> None:
    """Gives a figure of solutions its legend."""
    ax = fig.axes[0]
    grey: dict[str, Any] = {"color": st.GREY, "ls": "none"}
    marks = [
        ax.plot([], [], marker=form, ms=3.6, mew=0, label=f"seed {seed}", **grey)[0]
        for seed, form in zip(seeds, FORMS, strict=False)
    ]
    ring = {"marker": "o", "ms": 7.5, "mfc": "none", "mew": 1.1}
    marks += [
        ax.plot([], [], label="at the variables' average over seeds", **grey, **ring)[0],
        ax.plot([], [], color=st.BLACK, lw=1.6, label="Pareto front")[0],
        ax.plot([], [], color=st.GREY, ls=(0, (4, 3)), lw=0.6, label="ray through 1/w")[0],
    ]
    fig.legend(handles=marks, loc="outside lower center", ncols=6, columnspacing=1.2)


def near_rays(points: Sequence[Points], mean: float, angle: float, largest: float | None = None) -> Check:
    """Checks that solutions are near the crossings of front and rays, for the worst of the seeds.

    Args:
        points: of one seed, or of several.
        mean: bound of the mean error over the preferences.
        angle: bound of the mean angle over the interior preferences, in degrees.
        largest: bound of the largest error; None: no bound.
    """
    worst = "largest " if len(points) > 1 else ""
    errors = np.array([p.error for p in points])
    angles = np.array([p.angle[1:-1] for p in points])
    checks = [
        AtMost(errors.mean(1).max(), mean, of=f"{worst}mean error", digits=".4f"),
        AtMost(angles.mean(1).max(), angle, of=f"{worst}mean angle", unit="°", digits=".2f"),
    ]
    if largest is None:
        return AllOf(*checks).also(f"largest error {errors.max():.4f}")
    return AllOf(*checks, AtMost(errors.max(), largest, of="largest error", digits=".4f"))


def ends_only(points: Sequence[Points]) -> Check:
    worst = np.max([p.to_end for p in points])
    return Below(worst, 0.03, of="largest distance of a seed's solution to an end point", digits=".3f")


@artifact("omd_tch/fig2")
def fig2(a: Artifact) -> None:
    """Four methods, the solutions of each seed and of the decision variables averaged over the seeds."""
    drawn = {name: solutions(a.jobs[job], output) for name, (job, output) in AVERAGED.items()}
    seeds = [int(seed) for seed in a.jobs["ls"].final["seed"].unique()]
    fig, axes = st.panels(1, 4, sharey=True)
    for ax, (name, (job, output)), letter in zip(axes[0], AVERAGED.items(), "abcd", strict=True):
        singles = [solutions(a.jobs[job], output, seed) for seed in seeds]
        draw_solutions(ax, singles, drawn[name], a.jobs["ls"], f"({letter}) {name}", large=18)
    st.preference_bar(fig, axes[0])
    key_of_solutions(fig, seeds)
    a.figure(fig)
    a.note(
        "T and the start are not printed: T = 1000 (LS 2000), theta_0 uniform in [-1/sqrt d, 1/sqrt d]^d, "
        "per preference and seed."
    )
    listed = drawn | {
        "TCH, unweighted gradient": solutions(a.jobs["tch_unweighted"], "last"),
        "STCH, mu = 0.01": solutions(a.jobs["stch"], "last"),
        "OMD-TCH (PGD), last iterate": solutions(a.jobs["omd_gd"], "last"),
    }
    a.table([points.line(name, OF_ALL) for name, points in listed.items()], given=GIVEN)
    single = [solutions(a.jobs["ls"], "last", seed) for seed in seeds]
    # 39 of 40 other triples of seeds have at most 2 inside; the other statements of this figure and of
    # Figure 4 hold for all 40
    inside = int((drawn["LS"].to_end > 0.03).sum())
    of = "solutions inside, of 10 that are averaged over the seeds"
    a.claim("ls-ends", AllOf(ends_only(single), AtMost(inside, 2, of=of)))
    a.claim("tch-on-rays", near_rays([drawn["TCH"]], mean=0.01, angle=1.0))
    for key, name in (("omd", "OMD-TCH (PGD)"), ("ada", "AdaOMD-TCH (PGD)")):
        check = near_rays([drawn[name]], mean=0.02, angle=2.0, largest=0.05)
        a.claim("{key}-near-rays", check, key=key, method=name)
    judge_stored(a)
    gaps = {name: points.closest for name, points in drawn.items() if name != "LS"}
    a.claim("distinct", AtLeast(gaps, 0.05, of="smallest gap", digits=".3f"))


def judge_stored(a: Artifact) -> None:
    """Judges how many iterates Algorithm 2 stores, which the values of all iterates decide."""
    table = torch.from_numpy(a.jobs["omd_gd"].paths()[:, :-1])  # of theta^(1..T), without theta^(T+1)
    stored = conversion_weights(table) > 0
    sizes = stored.sum(1).double().numpy()
    by_seed = sizes.reshape(-1, len(a.jobs["omd_gd"].config["seeds"])).mean(0)
    T = table.shape[1]
    away = front_distance(table.flatten(0, 1), VLMOP2().front(2001)).view_as(stored)
    on_front = float((away[stored] < 0.01).double().mean())
    check = AtMost(Mean(by_seed), 0.1 * T, of="stored at the end, mean of the preferences", digits=".0f")
    a.claim(
        "stored",
        check.because("a tenth of the iterates").also(f"{sizes.min():.0f} to {sizes.max():.0f} of {T}"),
        share=f"{100 * on_front:.0f} %",
    )


@artifact("omd_tch/fig4")
def fig4(a: Artifact) -> None:
    """Six methods: the solutions of every seed, and those of the average over seeds."""
    single = [int(s) for s in a.jobs["ls"].final["seed"].unique()]
    seeds: dict[str, int | None] = {str(s): s for s in single} | {OF_ALL: None}
    points = {
        (method, where): solutions(a.jobs[job], output, seed)
        for where, seed in seeds.items()
        for method, (job, output) in METHODS.items()
    }
    fig, axes = st.panels(2, 3, size=2.15, sharex=True, sharey=True)
    for ax, method, letter in zip(axes.flat, METHODS, "abcdef", strict=True):
        of_one = [points[method, str(s)] for s in single]
        draw_solutions(ax, of_one, points[method, OF_ALL], a.jobs["ls"], f"({letter}) {method}")
    st.preference_bar(fig, axes)
    key_of_solutions(fig, single)
    a.figure(fig)
    a.table([p.line(method, where) for (method, where), p in points.items()], given=GIVEN)
    of_seeds = {method: [points[method, str(s)] for s in single] for method in METHODS}
    a.claim("ls-ends", ends_only(of_seeds["LS"]))
    judge_near_rays(a, of_seeds)
    for family in ("OMD", "AdaOMD"):
        gd, eg = (np.mean([p.error.mean() for p in of_seeds[f"{family} ({m})"]]) for m in ("PGD", "EG"))
        of = "mean error over the seeds with EG"
        check = AllOf(
            AtLeast(eg, 2 * gd, of=of, than="twice that with PGD", digits=".4f"),
            AtMost(eg, 0.15, of=of, digits=".4f"),
        )
        said = f"PGD {gd:.4f}, ratio {eg / gd:.1f}"
        a.claim("{key}-eg-less-effective", check.also(said), key=family.lower(), family=family)


def judge_near_rays(a: Artifact, of_seeds: Mapping[str, Sequence[Points]]) -> None:
    for key, method, bounds in (
        ("tch", "TCH", {"mean": 0.02, "angle": 2.0}),
        ("omd-pgd", "OMD (PGD)", {"mean": 0.04, "angle": 4.0, "largest": 0.1}),
        ("adaomd-pgd", "AdaOMD (PGD)", {"mean": 0.04, "angle": 4.0, "largest": 0.1}),
    ):
        gap = min(p.closest for p in of_seeds[method])
        check = AllOf(
            near_rays(of_seeds[method], **bounds), AtLeast(gap, 0.025, of="smallest gap", digits=".3f")
        )
        a.claim("{key}-per-seed", check, key=key, method=method)
