"""The duration of the violation of Figure 33 from other starts: the paper does not print its start."""

from __future__ import annotations

import numpy as np

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Graded, Judged, graded
from mobench.artifacts.panels import dress, legend_below
from mobench.artifacts.rows import RunCount
from mobench.artifacts.statistics import Mean

from .runs import Curves, common

LAM = (0.5, 0.5)
LASTS = (50.0, 80.0)  # steps, as printed for beta = 0
ALMOST_AT_ONCE = 10.0  # steps, ours: for beta >= 0.5 the paper says "almost immediate"
STANDARD = 5.0  # beta of the runs that other schedules are compared with, as in Figure 33
SCHEDULES = {"large_gamma": "gamma_0 = 0.8", "small_b": "b = 0.6"}
LOOKS = {0.0: (st.RED, "o"), 0.5: (st.SKY, "s"), 5.0: (st.BLUE, "^")}


@artifact("csmoo/starts")
def starts(a: Artifact) -> None:
    """The first step from which on a run is feasible, by beta and start, means over the seeds."""
    runs: dict[float, dict[float, Curves]] = {}
    others: dict[float, dict[str, Curves]] = {}
    for name, job in a.jobs.items():
        start = float(job.config["problem"]["start"]["value"])
        schedule = next((words for key, words in SCHEDULES.items() if name.startswith(key)), None)
        if schedule is None:
            runs.setdefault(start, {})[float(job.config["algorithm"]["beta"])] = Curves(job, LAM)
        else:
            others.setdefault(start, {})[schedule] = Curves(job, LAM)
    since: dict[float, dict[float, Mean]] = {}
    for start, by_beta in runs.items():
        keep = common(by_beta)
        # a run that never becomes feasible counts with all of its steps; `never` says how many do
        since[start] = {
            b: Mean(np.minimum(c.feasible_since[keep[b]], c.steps[-1])) for b, c in by_beta.items()
        }
    never = sum(int(np.isinf(c.feasible_since).sum()) for by_beta in runs.values() for c in by_beta.values())
    since = dict(sorted(since.items()))
    draw(a, since)
    a.table(
        [
            {
                "x_0": start,
                **{f"beta = {b:g}": value for b, value in sorted(by_beta.items())},
                "runs": sum((c.runs for c in runs[start].values()), RunCount(0, 0)),
            }
            for start, by_beta in since.items()
        ],
        given=("x_0",),
    )
    judge(a, since, never)
    judge_schedules(a, {start: (runs[start][STANDARD], by_beta) for start, by_beta in sorted(others.items())})


def draw(a: Artifact, since: dict[float, dict[float, Mean]]) -> None:
    """Steps against x_0, with intervals, and what is printed for beta = 0."""
    fig, ((ax,),) = st.panels(1, 1, figsize=(4.6, 3.2))
    ax.axhspan(*LASTS, color=LOOKS[0.0][0], alpha=0.12, lw=0, label=r"printed for $\beta = 0$")
    ax.axhspan(0, ALMOST_AT_ONCE, color=LOOKS[5.0][0], alpha=0.12, lw=0, label="almost at once")
    for shift, (b, (colour, marker)) in zip((-0.06, 0.0, 0.06), LOOKS.items(), strict=True):
        means = [by_beta[b] for by_beta in since.values()]
        ax.errorbar(
            [start + shift for start in since],
            [m.mean for m in means],
            [m.half for m in means],
            color=colour,
            marker=marker,
            ms=4,
            lw=0.9,
            capsize=2,
            label=rf"$\beta = {b:g}$",
        )
    dress(ax, "start $x_0$", "first step from which on runs are feasible", symlog=10.0)
    legend_below(fig, ax, ncols=3)
    a.figure(fig)


def judge(a: Artifact, since: dict[float, dict[float, Mean]], never: int) -> None:
    """Judges whether what is printed for beta = 0 and for beta >= 0.5 is seen from any of the starts.

    Intervals are widened for the number of starts (Bonferroni), since the best of them decides.
    """

    def as_printed(by_beta: dict[float, Mean]) -> bool:
        short = all(m.mean <= ALMOST_AT_ONCE for b, m in by_beta.items() if b)
        return LASTS[0] <= by_beta[0.0].mean <= LASTS[1] and short

    def possible(by_beta: dict[float, Mean]) -> bool:
        short = all(m.mean - m.half_of(len(since)) <= ALMOST_AT_ONCE for b, m in by_beta.items() if b)
        zero, half = by_beta[0.0].mean, by_beta[0.0].half_of(len(since))
        return zero - half <= LASTS[1] and zero + half >= LASTS[0] and short

    gaps = {start: Mean(by_beta[0.0].values - by_beta[5.0].values) for start, by_beta in since.items()}
    slower = [start for start, gap in gaps.items() if gap.mean > gap.half_of(len(since))]
    never_slower = all(gap.mean + gap.half_of(len(since)) < 0 for gap in gaps.values())
    said = "; ".join(
        f"x_0 = {start:g}: " + ", ".join(f"{m.mean:.0f}" for _, m in sorted(by_beta.items()))
        for start, by_beta in since.items()
    )
    excluded = not never and not any(map(possible, since.values()))
    printed = Judged(
        any(map(as_printed, since.values())),
        f"first step from which on runs are feasible, beta = 0, 0.5, 5: {said}"
        + (f"; {never} runs never become feasible" if never else ""),
        f"from some start {LASTS[0]:g} to {LASTS[1]:g} with beta = 0, and at most {ALMOST_AT_ONCE:g} with "
        "the others",
        excluded="No start has intervals that hold what is printed." if excluded else "",
    ).partial_at_best()
    weaker = Judged(
        bool(slower),
        "slower with beta = 0 than with 5, by a 95 % interval for all starts together, from x_0 in {"
        + ", ".join(f"{s:g}" for s in slower)
        + "}",
        "slower from some start",
        excluded="From every start beta = 0 is quicker." if never_slower else "",
    )
    a.claim("slow-at-zero", Graded(printed, weaker))


def judge_schedules(a: Artifact, by_start: dict[float, tuple[Curves, dict[str, Curves]]]) -> None:
    """Judges whether longer steps delay feasibility from any of the starts, each schedule by itself.

    Intervals are widened for all pairs of a start and a schedule (Bonferroni).
    """
    later: dict[str, dict[float, Mean]] = {}
    for start, (standard, others) in by_start.items():
        for name, curves in others.items():
            keep = common({"standard": standard, name: curves})
            # as above, a run that never becomes feasible counts with all of its steps
            ends = [
                np.minimum(c.feasible_since[keep[key]], c.steps[-1])
                for key, c in (("standard", standard), (name, curves))
            ]
            later.setdefault(name, {})[start] = Mean(ends[1] - ends[0])
    pairs = sum(map(len, later.values()))

    def side(name: str, sign: int) -> list[float]:
        return [start for start, m in later[name].items() if sign * m.mean > m.half_of(pairs)]

    differences = "; ".join(
        f"{name}: " + ", ".join(f"x_0 = {start:g}: {m.words('+.1f')}" for start, m in means.items())
        for name, means in later.items()
    )
    delayed = {name: side(name, 1) for name in later}
    excluded = all(len(side(name, -1)) == len(by_start) for name in later)
    check = Judged(
        graded([bool(starts) for starts in delayed.values()]),
        f"step from which on runs are feasible, less the standard schedule's: {differences}; later from "
        + ", ".join(
            f"{{{', '.join(f'{s:g}' for s in starts)}}} with {name}" for name, starts in delayed.items()
        ),
        "each schedule is later from some start, by a 95 % interval for all starts and schedules together "
        "(partial: one of them)",
        excluded="From every start both are sooner." if excluded else "",
    ).partial_at_best()
    a.claim("schedules-delay", check, steps=next(iter(a.jobs.values())).config["steps"])
