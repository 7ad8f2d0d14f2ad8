"""Figures 3, 5, 6 and 7: federated learning, curves and means of all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import ticker

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Count
from mobench.artifacts.panels import dress, legend_below

from .federated import (
    ACCURACY,
    COLUMNS,
    COMPARED,
    FAIRNESS,
    FED,
    LOSS,
    METRICS,
    MNIST,
    PAIRS,
    PARITY,
    SCENARIOS,
    Scenario,
    as_published,
    fewest,
    means,
    most_cells,
    notes,
    scenarios_of,
    whole,
)  # fmt: skip
from .statements import cells, fairer_in_rotation, judge, of_curves, of_means, refer, stored

LABELS = {ACCURACY: "average accuracy (%)", PARITY: "accuracy parity (pp)"}
LOOKS = {column: st.look(job) for column, (job, _) in COLUMNS.items()}


def boxes(
    ax: Any, values: Mapping[str, np.ndarray], looks: Mapping[str, st.Look], names: bool = True
) -> None:
    """Draws the seeds of each name from left to right, names at the left: points, a bar at their median.

    From five seeds on a box of the quartiles is behind them: of fewer it would say more than they do.

    Args:
        ax: the panel.
        values: the seeds' values by name, from top to bottom.
        looks: of the names.
        names: whether they are written.
    """
    for i, (name, seeds) in enumerate(values.items()):
        look = looks[name]
        if len(seeds) >= st.FEWEST:
            low, high = np.quantile(seeds, [0.25, 0.75])
            ax.barh(i, high - low, 0.6, low, color=look.colour, alpha=0.3, lw=0)
        ax.plot([np.median(seeds)] * 2, [i - 0.42, i + 0.42], color=look.colour, lw=1.6)
        points = {"ls": "none", "ms": 3.4, "mec": "white", "mew": 0.3}
        ax.plot(seeds, np.full(len(seeds), i), look.marker, color=look.colour, **points)
    ax.set_yticks(range(len(values)), list(values) if names else [""] * len(values))
    ax.set_ylim(len(values) - 0.4, -0.6)
    ax.grid(axis="y", lw=0.3, color="#DDDDDD")
    ax.set_axisbelow(True)


def mean_point(ax: Any, x: np.ndarray, y: np.ndarray, label: str | None = None, **kw: Any) -> None:
    """Draws the mean over seeds of two measures, with a standard deviation along both axes."""
    style = {"fmt": "o", "ms": 6, "lw": 0.8, "capsize": 2} | kw
    ax.errorbar(x.mean(), y.mean(), xerr=x.std(), yerr=y.std(), label=label, **style)


def draw_curves(ax: Any, s: Scenario, name: str, seed: int | None, label: str) -> None:
    """Draws a column of the history over the rounds, for one seed or the mean over seeds."""
    for column in COMPARED:
        look = LOOKS[column]
        marks = {"marker": look.marker, "ms": 3, "markevery": (0.03 * COMPARED.index(column), 0.25)}
        rounds, values = s.curve(column, name, seed)
        ax.plot(rounds, values, ls=look.line, color=look.colour, lw=1.1, label=column, **marks)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(ticker.NullLocator())
    dress(ax, "round", label)


def draw_scatter(ax: Any, s: Scenario) -> None:
    """Draws accuracy against parity: means with standard deviations, of few seeds each seed instead."""
    for column in COMPARED:
        look = LOOKS[column]
        x, y = (s.values(column, m) for m in (ACCURACY, PARITY))
        points = {"ls": "none", "marker": look.marker, "color": look.colour}
        if len(x) >= st.FEWEST:
            mean_point(ax, x, y, column, fmt=look.marker, color=look.colour)
        else:
            ax.plot(x, y, ms=3, alpha=0.45, **points)
            ax.plot(x.mean(), y.mean(), ms=6, mec="white", mew=0.4, label=column, **points)
    if 1 < s.seeds < st.FEWEST:
        ax.plot([], [], "o", ms=3, alpha=0.45, color=st.GREY, label="one seed (large: means)")
    dress(ax, LABELS[ACCURACY], LABELS[PARITY])


def draw_published(ax: Any, s: Scenario) -> None:
    """Draws Table 2's means over ten seeds with their standard deviations, hollow."""
    for column in COMPARED:
        (x, dx), (y, dy) = (s.printed(column, m) for m in (ACCURACY, PARITY))
        hollow = {"ms": 5, "mfc": "none", "mew": 0.9, "lw": 0.7, "zorder": 1}
        ax.errorbar(x, y, dy, dx, LOOKS[column].marker, color=LOOKS[column].colour, **hollow)


def draw_boxes(ax: Any, s: Scenario, metric: str, names: bool) -> None:
    boxes(ax, {c: s.values(c, metric) for c in COLUMNS if s.has(c)}, LOOKS, names)
    dress(ax, LABELS.get(metric, metric))


ROTATION = "Rotation: the images of some clients are turned by 90 or 180 degrees."
CLASSES = "C=2, C=5: each client holds images of two or five of the ten classes."
NAMES = (
    "Methods are named as in the paper's Table 2; gd and eg are the two mirror maps of the clients' weights "
    "(projected gradient, exponentiated gradient)."
)
SHORTER = (
    "OMD's and AdaOMD's curves are of averages and end one round earlier: the average after round T is "
    "of the iterates 1 to T, without the one that round T leads to."
)


def marks_of_boxes(ax: Any, scenarios: Sequence[Scenario]) -> tuple[list[Any], list[str]]:
    """Returns handles and labels for a legend of what `boxes` draws of few or of many seeds."""
    grey = {"color": st.GREY, "ls": "none"}
    (seed,) = ax.plot([], [], "o", ms=3.4, mec="white", mew=0.3, **grey)
    (median,) = ax.plot([], [], "|", ms=9, mew=1.6, **grey)
    handles = [seed, median]
    labels = ["one seed", "short bar: median of the seeds"]
    if max(s.seeds for s in scenarios) >= st.FEWEST:
        handles.append(ax.fill_between([], [], [], color=st.GREY, alpha=0.3, lw=0))
        labels.append("quartiles")
    return handles, labels


def title_of_row(row: Any, words: str) -> None:
    """Writes a title over all panels of a row, in the line that the title of one keeps free."""
    dress(row[1], title=" ")
    text = row[0].annotate(words, (0.0, 1.04), xycoords="axes fraction")
    text.set_in_layout(False)


@artifact("omd_tch/fig3")
def fig3(a: Artifact) -> None:
    """Rotation: the worst client's losses for one seed, accuracy against parity, all methods over seeds."""
    scenarios = scenarios_of(a)
    fig, axes = st.panels(2 * len(scenarios), 3, figsize=(7.0, 4.2 * len(scenarios)))
    for k, s in enumerate(scenarios):
        curves, scatter, empty = axes[k]
        draw_curves(curves, s, LOSS, s.first_seed, "worst client's training loss")
        dress(curves, title=f"({'ac'[k]}) {s.titled}, seed {s.first_seed}")
        draw_scatter(scatter, s)
        dress(scatter, title=f"({'bd'[k]}) {s.titled}, {s.span}")
        empty.set_axis_off()
        handles, names = curves.get_legend_handles_labels()
        marks, words = scatter.get_legend_handles_labels()
        empty.legend(handles + marks[len(names) :], names + words[len(names) :], loc="center")
        row = axes[len(scenarios) + k]
        for ax, metric in zip(row, METRICS, strict=True):
            draw_boxes(ax, s, metric, metric == ACCURACY)
        title_of_row(row, f"({'ef'[k]}) {s.titled}, {s.span}, all methods")
    fig.legend(*marks_of_boxes(axes[len(scenarios), 0], scenarios), loc="outside lower center", ncols=3)
    st.caption(fig, f"(a) to (d) are the paper's panels. {ROTATION} {NAMES} {SHORTER}")
    a.figure(fig)
    a.table(means(scenarios))
    for s in scenarios:
        if s.key == "mr":
            refer(a, "omd_tch/fig3a", s, [*of_curves(s), *of_means(s)])
        else:
            judge(a, s, of_curves(s))
            refer(a, "omd_tch/table2", s, of_means(s))
    notes(a, scenarios)


@artifact("omd_tch/fig3a")
def fig3a(a: Artifact) -> None:
    """MNIST Rotation: trajectories of Figure 3a for one seed, and Table 2's columns."""
    (s,) = scenarios_of(a)
    fig, axes = st.panels(1, 3, figsize=(7.0, 2.8))
    draw_curves(axes[0, 0], s, LOSS, s.first_seed, "worst client's training loss")
    draw_curves(axes[0, 1], s, METRICS["agnostic loss"], s.first_seed, "worst client's test loss")
    for ax, name in ((axes[0, 0], LOSS), (axes[0, 1], METRICS["agnostic loss"])):
        # the last iterates of AdaOMDgd's trajectory, to be compared with its average
        rounds, values = s.curve("last iterate of AdaOMDgd-TCH", name, s.first_seed)
        label = "last iterate of AdaOMDgd"
        ax.plot(rounds, values, ls=(0, (1, 2)), color=st.BLACK, lw=2.0, label=label, zorder=5)
    draw_scatter(axes[0, 2], s)
    hollow = ""
    if a.on_papers_data():
        draw_published(axes[0, 2], s)
        axes[0, 0].plot([], [], "o", ms=5, mfc="none", mew=0.9, color=st.GREY, label="published (hollow)")
        hollow = (
            " Hollow marks in (c): published means of ten seeds (Table 2) with their standard deviations."
        )
    if 1 < s.seeds < st.FEWEST:
        axes[0, 0].plot([], [], "o", ms=3, alpha=0.45, color=st.GREY, label="one seed (large: means)")
    for ax, letter in zip(axes[0], "abc", strict=True):
        dress(ax, title=f"({letter}) {s.titled}, {s.span if letter == 'c' else f'seed {s.first_seed}'}")
    legend_below(fig, axes[0, 0])
    st.caption(fig, f"{ROTATION} {SHORTER}{hollow}")
    a.figure(fig)
    a.table(means([s]))
    judge(a, s, [*of_curves(s), *of_means(s), *fairer_in_rotation(s), *stored(s)])
    cells(a, s, COMPARED, "m{setting}-cells")
    notes(a, [s])
    if s.borrowed("AdaOMDeg-TCH"):
        a.note(
            "AdaOMDeg is read off OMDeg's trajectory (lambda step 3.0, OMDeg's winner in Table 1); its own "
            "winner is 1.0. Statements about AdaOMDeg are partial at best."
        )


@artifact("omd_tch/fig5")
def fig5(a: Artifact) -> None:
    """Losses of the worst client, training and test, mean over seeds."""
    scenarios = scenarios_of(a)
    across = min(3, len(scenarios))
    blocks = -(-len(scenarios) // across)
    fig, axes = st.panels(2 * blocks, across, figsize=(2.333 * across, 3.9 * blocks))
    losses = {"training": LOSS, "test": METRICS["agnostic loss"]}
    for k, s in enumerate(scenarios):
        title = f"{s.titled}, {s.span if s.seeds == 1 else f'mean of {s.span}'}"
        for row, (label, name) in enumerate(losses.items()):
            ax = axes[2 * (k // across) + row, k % across]
            draw_curves(ax, s, name, None, f"worst client's {label} loss" if k % across == 0 else "")
            dress(ax, "round" if row else "", title="" if row else title)
    for k in range(len(scenarios), across * blocks):
        for row in (0, 1):
            axes[2 * (k // across) + row, k % across].set_axis_off()
    legend_below(fig, axes[0, 0])
    st.caption(fig, f"{ROTATION} {CLASSES} {SHORTER}")
    a.figure(fig)
    for label, name in losses.items():
        for kind in PAIRS:
            below = {s.name: below_late(s, kind, name) for s in scenarios}
            check = Count(below, at_least=5, that="below", what="scenarios", of=len(SCENARIOS))
            a.claim(
                "below-{label}-{kind}",
                whole(check, scenarios),
                interval=fewest(scenarios),
                label=label,
                kind=kind,
            )
    notes(a, scenarios)


def below_late(s: Scenario, kind: str, name: str) -> bool:
    """Returns whether the adaptive average's curve lies below the uniform one's from T/3 on."""
    plain, ada = (s.curve(column, name) for column in PAIRS[kind])
    late = plain[0] >= plain[0][-1] / 3
    return bool((ada[1][late] < plain[1][late]).all())


@artifact("omd_tch/fig6")
def fig6(a: Artifact) -> None:
    """Average accuracy against accuracy parity."""
    scenarios = scenarios_of(a)
    across = min(3, len(scenarios))
    fig, axes = st.panels(-(-len(scenarios) // across), across, size=2.333)
    for ax in axes.flat[len(scenarios) :]:
        ax.set_axis_off()
    for ax, s in zip(axes.flat, scenarios, strict=False):
        draw_scatter(ax, s)
        dress(ax, title=f"{s.titled}, {s.span}")
    legend_below(fig, axes[0, 0])
    st.caption(fig, f"{ROTATION} {CLASSES}")
    a.figure(fig)
    a.table(means(scenarios))
    for s in scenarios:
        refer(a, "omd_tch/fig3a" if s.key == "mr" else "omd_tch/table2", s, of_means(s))
    smaller = {
        f"{s.name} {kind} {metric}": s.mean(plain, metric) < s.mean(FED, metric)
        for s in scenarios
        for kind, (plain, _) in PAIRS.items()
        for metric in FAIRNESS
    }
    what = "(scenario, mirror map, fairness metric)"
    total = len(SCENARIOS) * len(PAIRS) * len(FAIRNESS)
    check = Count(smaller, total // 2 + 1, that="smaller", what=what, of=total)
    rests_on = set().union(*(s.names(FED, *(plain for plain, _ in PAIRS.values())) for s in scenarios))
    said = check.because("more than half; agnostic loss or accuracy parity, means over seeds")
    a.claim(
        "fairer",
        whole(said, scenarios),
        interval=fewest(scenarios),
        rests_on=rests_on,
    )
    notes(a, scenarios)


@artifact("omd_tch/fig7")
def fig7(a: Artifact) -> None:
    """All methods over the seeds: three metrics, six scenarios."""
    scenarios = scenarios_of(a)
    fig, axes = st.panels(len(scenarios), 3, figsize=(7.0, 1.62 * len(scenarios) + 0.3))
    for s, row in zip(scenarios, axes, strict=True):
        for ax, metric in zip(row, METRICS, strict=True):
            draw_boxes(ax, s, metric, metric == ACCURACY)
            dress(ax, x=None if s is scenarios[-1] else "")
        title_of_row(row, f"{s.titled}, {s.span}")
    fig.legend(*marks_of_boxes(axes[0, 0], scenarios), loc="outside lower center", ncols=3)
    st.caption(fig, f"{ROTATION} {CLASSES} {NAMES}")
    a.figure(fig)
    near = {}
    mnist = [s for s in scenarios if s.on_mnist]
    for s in mnist:
        for metric in METRICS:
            for column in COLUMNS:
                mean, spread = s.printed(column, metric)
                median = float(np.median(s.values(as_published(column), metric)))
                cell = f"{s.name} {column} {metric} {median:.3g} ({mean:.3g} ± {spread:.2g})"
                near[cell] = abs(median - mean) <= spread
    # of ten seeds and ten others 5 % of the cells miss by chance, and cells of a scenario share their seeds:
    # 4,000 simulated tables have 84 % of their cells within (1 in 1,000: seeds explain half of the variance;
    # 76 %: nine tenths)
    check = most_cells(near, "cells", "within one printed standard deviation")
    few = min((s.seeds for s in mnist), default=0)
    why = "A median of so few seeds often misses a printed mean by more than one deviation, by chance alone."
    a.claim(
        "medians",
        whole(check.provided(few >= st.FEWEST, why), mnist, MNIST),
        interval=fewest(scenarios),
        rests_on=set().union(*(s.names() for s in mnist)),
    )
    notes(a, scenarios)
