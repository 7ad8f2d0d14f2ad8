"""Speed: performance profiles, and the boards at other budgets. Few lines have a colour and a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.panels import dress
from mobench.comparison import rows

from .board import BUDGETS, FACTORS, TITLES, Board, boards_with_rows
from .table import ranking
from .zoo import name_of, other_budgets, problems_in_words

FEW = 0.25  # share of cases up to which nobody counts as fast
APART = 0.062  # of the height of a panel: between two names
REST = {"color": "#CCCCCC", "lw": 0.7, "zorder": 1}


@artifact("cross/profiles")
def profiles(a: Artifact) -> None:
    """Performance profiles (cases solved within a factor of the fewest gradients), and budgets."""
    a.refer("cross/zoo", "all-problems")
    stored = rows.kept(0)
    boards = boards_with_rows(stored)
    if not boards:
        a.note("No rows are kept.")
        return
    series = budgets(boards_with_rows(stored, [*TITLES, *other_budgets()]))
    panels = len(boards) + len(series)
    high = (panels + 1) // 2
    fig, axes = st.plt.subplots(high, 2, figsize=(st.WIDTH, 2.2 * high), layout="constrained", squeeze=False)
    places = iter(axes.flat)
    lines = [line for board in boards for line in draw_profile(next(places), board)]
    for by_budget in series:
        lines += draw_budgets(next(places), by_budget)
    for ax in places:
        ax.set_axis_off()
    st.caption(
        fig,
        "Profiles: a case is a problem, tuning study and seed; it counts where the target is reached: 0.9 "
        "of the attainable hypervolume, or for one answer a gap of at most 0.02 to the front (networks: "
        "0.5). Black: the tuned baseline, blue: most cases in the end, green: most cases at once, grey: all"
        " others. Budgets: step sizes are tuned anew for each; black and orange: Tchebycheff and linear "
        "scalarization, blue: the largest score with the largest budget, green: with the smallest.",
    )
    a.note("Grey lines have no names in the picture; the table has all methods.")
    a.table(lines, given=["board", "method", "budget", "problems"])
    a.figure(fig)


def budgets(every: Sequence[Board]) -> list[dict[int, Board]]:
    """Returns the boards to compare, by budget.

    They are the budgets with all ranking problems and, where a budget has fewer, all budgets on the problems
    that they share.
    """
    have = {board.name: board for board in every}
    comparisons = []
    for name, names in BUDGETS.items():
        by_budget = {budget: have[other] for budget, other in names.items() if other in have}
        whole = {budget: board for budget, board in by_budget.items() if board.problems == ranking(name)}
        comparisons.append(whole)
        if len(by_budget) > len(whole):
            shared = set.intersection(*(set(board.problems) for board in by_budget.values()))
            comparisons.append(
                {k: replace(b, rows=b.rows[b.rows["problem"].isin(shared)]) for k, b in by_budget.items()}
            )
    return [by_budget for by_budget in comparisons if len(by_budget) > 1]


def common(by_budget: Mapping[int, Board]) -> list[str]:
    first, *others = by_budget.values()
    return [name for name in first.methods if all(name in board.methods for board in others)]


def draw_profile(ax: Any, board: Board) -> list[dict[str, Any]]:
    """The profiles of all methods, of which the baseline and those that reach most have names."""
    shares_by_method = dict(zip(board.methods, board.profile(), strict=True))
    colours = {
        max(shares_by_method, key=lambda name: shares_by_method[name][0]): st.GREEN,
        max(
            shares_by_method, key=lambda name: (shares_by_method[name][-1], shares_by_method[name][0])
        ): st.BLUE,
        board.baseline: st.BLACK,
    }
    top = max(float(shares[-1]) for shares in shares_by_method.values())
    if top <= FEW:
        colours = {}
        words = f"no method reaches the target\nin more than {100 * top:.0f} % of the cases"
        ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", color="#555555", fontsize=7)
    for name, shares in shares_by_method.items():
        line = {"color": colours[name], "lw": 1.4, "zorder": 3} if name in colours else REST
        ax.step(FACTORS, shares, where="post", **line)
    dress(ax, "gradients / fewest of any method", "share of cases", board.title, log="x", ylim=(0, 1.02))
    ax.grid(lw=0.4, color="#EEEEEE")
    ax.set_axisbelow(True)
    name_lines(ax, {name: float(shares_by_method[name][-1]) for name in colours}, colours)
    within = int(np.searchsorted(FACTORS, 10.0 - 1e-9))
    return [
        {
            "board": board.name,
            "method": name,
            "within 1": float(shares[0]),
            "within 10": float(shares[within]),
            "ever": board.reached(name),
        }
        for name, shares in shares_by_method.items()
    ]


def draw_budgets(ax: Any, by_budget: Mapping[int, Board]) -> list[dict[str, Any]]:
    """The score of every method against the budget; both scalarizations and the first ones are named."""
    methods = common(by_budget)
    scores = {name: [board.scores[name] for board in by_budget.values()] for name in methods}
    colours = {
        max(methods, key=lambda name: scores[name][0]): st.GREEN,
        max(methods, key=lambda name: scores[name][-1]): st.BLUE,
        "ls": st.ORANGE,
        "tch": st.BLACK,
    }
    for name, values in scores.items():
        line = {"color": colours[name], "lw": 1.4, "zorder": 3} if name in colours else REST
        ax.plot(list(by_budget), values, "o-", ms=2.6, **line)
    title = f"{by_budget[200].title}: {problems_in_words(len(by_budget[200].problems))}"
    dress(ax, "gradients for each function", "score", title, log="x", ylim=(0, 1.02))
    ax.set_xticks(list(by_budget), [str(budget) for budget in by_budget])
    ax.minorticks_off()
    ax.grid(lw=0.4, color="#EEEEEE")
    ax.set_axisbelow(True)
    name_lines(ax, {name: scores[name][-1] for name in colours}, colours)
    return [
        {
            "board": board.name,
            "method": name,
            "budget": budget,
            "problems": len(board.problems),
            "score": board.scores[name],
            "low": board.intervals[name][0],
            "high": board.intervals[name][1],
        }
        for budget, board in by_budget.items()
        for name in board.methods
    ]


def name_lines(ax: Any, ends: Mapping[str, float], colours: Mapping[str, str]) -> None:
    """Writes names at the right ends of lines, in their colours, moved apart where lines end together."""
    low, high = ax.get_ylim()
    gap = APART * (high - low)
    ordered = sorted(ends, key=lambda name: ends[name])
    places = np.array([ends[name] for name in ordered])
    for _ in range(100):
        close = np.maximum(gap - np.diff(places), 0.0) / 2.0
        if not len(close) or close.max() < 1e-6:
            break
        places[:-1] -= close
        places[1:] += close
    for name, y in zip(ordered, places, strict=True):
        ax.annotate(
            name_of(name),
            (1.0, y),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            color=colours[name],
            fontsize=7,
        )
