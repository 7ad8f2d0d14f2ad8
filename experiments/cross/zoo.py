"""The comparison under one protocol: the boards, their checks, and critical differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AtMost, Count, Share
from mobench.artifacts.rows import JobRows
from mobench.comparison import rows, statistics

from .board import BUDGETS, TITLES, Board, boards_with_rows, by_angle, ignoring, replicated
from .distil import distilled
from .nulls import copies_called_different
from .references import References
from .table import boards_of, ranking

ROW = 0.135  # inches
FILE = "rows.csv.gz"
REPLICATED = 0.95  # share of the separated pairs that keep their order again: the protocol, version 2


@artifact("cross/zoo")
def zoo(a: Artifact) -> None:
    """Scores of all methods on each board with their intervals."""
    fresh = computed(a.jobs)
    replication = int(fresh["replication"].iloc[0]) if len(fresh) else 0
    every = beside_kept(fresh, replication)
    if len(fresh):
        a.files[FILE] = rows.to_bytes(fresh)
        pairs = len(fresh.drop_duplicates(list(rows.PAIR)))
        a.note(f"Rows of {pairs} pairs were computed here; {FILE} has them for `mobench cross merge`.")
    boards = boards_with_rows(every)
    angles = by_angle(boards)
    others = boards_with_rows(every, other_budgets())
    lines = [line for board in [*boards, *angles, *others] for line in board.lines()]
    for angular in angles:
        (by_score,) = (board for board in boards if board.name == angular.name)
        ignored = {
            "board": angular.key,
            "problem": "all",
            "note": "ignores the preference, so without a place",
        }
        lines += [{**ignored, "method": method} for method in ignoring(by_score)]
    for name, text in a.refused.items():
        pair = dict(zip(("board", "problem", "method"), name.split(".", 2), strict=True))
        reason = "; ".join(part.strip().removeprefix("- ") for part in text.splitlines()[1:])
        lines.append({**pair, "note": f"does not fit: {reason}"})
    unmeasured = ["board", "problem", "method", "place", "note"]
    a.table(pd.DataFrame(lines, columns=_columns(lines)), given=[name for name in unmeasured if lines])
    if boards:
        draw(a, [*boards, *angles], set(fresh["method"]))
    check(a, every, replication)


def other_budgets() -> list[str]:
    return [name for board, by_budget in BUDGETS.items() for name in by_budget.values() if name != board]


def _columns(lines: list[dict[str, object]]) -> list[str]:
    names = list(dict.fromkeys(name for line in lines for name in line))
    return [*(name for name in names if name != "note"), "note"] if names else ["board"]


def computed(jobs: Mapping[str, JobRows]) -> pd.DataFrame:
    pairs: dict[tuple[str, str, str], list[JobRows]] = {}
    for name, job in jobs.items():
        board, problem, method = name.split(".")[:3]
        pairs.setdefault((board, problem, method), []).append(job)
    references = References()
    distilled_rows = []
    for (board, problem, method), jobs_of_pair in pairs.items():
        replication = int(jobs_of_pair[0].config["seeds"][0]) // 100
        key = (replication, board, problem, method)
        distilled_rows.append(distilled(key, jobs_of_pair, int(boards_of()[board]["budget"]), references))
    return (
        rows.stamped(pd.concat(distilled_rows, ignore_index=True))
        if distilled_rows
        else pd.DataFrame(columns=list(rows.COLUMNS))
    )


def beside_kept(fresh: pd.DataFrame, replication: int) -> pd.DataFrame:
    """Fresh rows, and kept ones of all other pairs."""
    stored = rows.kept(replication)
    pairs = list(fresh.drop_duplicates(list(rows.PAIR))[list(rows.PAIR)].itertuples(index=False, name=None))
    parts = [part for part in (rows.without(stored, pairs), fresh) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else fresh


def name_of(method: str) -> str:
    return st.METHODS[method].name if method in st.METHODS else method.replace("_", " ")


def problems_in_words(count: int) -> str:
    return f"{count} problem{'' if count == 1 else 's'}"


# beside each other in the figure
SIDE_BY_SIDE = (
    *("preference", "preference by angle"),
    *("many", "many by angle"),
    *("single", "networks"),
    "constrained",
)


def two_columns(boards: Sequence[Board], between: float) -> tuple[Any, np.ndarray, list[int]]:
    """Returns a figure with a panel for each board, the panels, and how many lines each row of panels has."""
    tall = [max(len(board.methods) for board in boards[i : i + 2]) for i in range(0, len(boards), 2)]
    fig, axes = st.plt.subplots(
        len(tall),
        min(2, len(boards)),
        figsize=(st.WIDTH, ROW * sum(tall) + between * len(tall)),
        height_ratios=tall,
        layout="constrained",
        squeeze=False,
    )
    for ax in axes.flat[len(boards) :]:
        ax.set_axis_off()
    return fig, axes, tall


def draw(a: Artifact, boards: list[Board], new: set[str]) -> None:
    """A panel for each board: scores with intervals, the best first; methods computed here in bold."""
    boards = sorted(boards, key=lambda board: SIDE_BY_SIDE.index(board.key))
    fig, axes, tall = two_columns(boards, 0.75)
    for i, (ax, board) in enumerate(zip(axes.flat, boards, strict=False)):
        draw_board(ax, board, new)
        ax.set_ylim(tall[i // 2] - 0.4, -0.6)  # lines of panels beside each other are equally far apart
    st.caption(
        fig,
        "Lines: 95 % bootstrap over problems, tuning studies and seeds. Black: the tuned baseline, the "
        "better one of linear and Tchebycheff scalarization (with constraints the penalty method). Blue: "
        "better than it by an interval of the difference without 0, red: worse, grey: neither. Score: "
        "hypervolume as a share of the best that as many points of the front attain (with constraints times"
        " the feasible share). Angle: between the objectives and the ray of the preference.",
    )
    a.figure(fig)


def draw_board(ax: Any, board: Board, new: set[str]) -> None:
    """The methods of one board, coloured by what the interval of their difference to the baseline says."""
    sign = -1.0 if board.angular else 1.0
    colours = dict.fromkeys(board.better, st.BLUE) | dict.fromkeys(board.worse, st.RED)
    colours[board.baseline] = st.BLACK
    for i, name in enumerate(board.methods):
        colour = colours.get(name, st.GREY)
        ax.plot([sign * x for x in board.intervals[name]], [i, i], color=colour, lw=1.0)
        ax.plot([sign * board.scores[name]], [i], "o", ms=3.0, color=colour)
    ax.set_yticks(range(len(board.methods)), [name_of(m) for m in board.methods], fontsize=7)
    for label, name in zip(ax.get_yticklabels(), board.methods, strict=True):
        label.set_fontweight("bold" if name in new else "normal")
    unit = "angle to the preference's ray (degrees; smaller is better)" if board.angular else "score"
    ax.set_xlabel(unit, fontsize=7)
    ax.grid(axis="x", lw=0.4, color="#CCCCCC")
    ax.set_title(f"{board.title} ({problems_in_words(len(board.problems))})", fontsize=8)


def check(a: Artifact, every: pd.DataFrame, replication: int) -> None:
    """The checks of the procedure that the protocol fixes."""
    boards = boards_with_rows(every)
    have = {board.name: board.problems for board in boards_with_rows(every, boards_of())}
    with_rows = {f"{name}.{p}": p in have.get(name, []) for name in boards_of() for p in ranking(name)}
    absent = [name for name, held in with_rows.items() if not held]
    a.check(
        "all-problems",
        Count(with_rows, what="ranking problems have rows"),
        reason=f"Not computed yet, so left out: {', '.join(absent)}.",
    )
    if not boards:
        return
    most = float(every["share"].max())
    a.check("within-reference", AtMost(most, 1.05, of="largest share", digits=".4f"))
    rate = {board.name: copies_called_different(board) for board in boards}
    a.check("copies", AtMost(rate, 0.05, of="share of 200 copies called different", digits=".3f"))
    again = boards_with_rows(rows.kept(1 - replication))
    check_replication(a, "replication", replicated(boards, again))
    check_replication(a, "replication-by-angle", replicated(by_angle(boards), by_angle(again)))


def check_replication(a: Artifact, name: str, same_order: Mapping[str, list[bool]]) -> None:
    every = [held for of_board in same_order.values() for held in of_board]
    if not every:
        return
    each = ", ".join(f"{board} {sum(of_board)} of {len(of_board)}" for board, of_board in same_order.items())
    share = Share(every, REPLICATED, that="the order of the first run", what="separated pairs", digits=1)
    a.check(name, share.also(each))


@artifact("cross/ranks")
def critical(a: Artifact) -> None:
    """Critical-difference diagrams: mean ranks, with the difference that Nemenyi's test needs."""
    a.refer("cross/zoo", "copies", "replication", "replication-by-angle")
    boards = [board for board in boards_with_rows(rows.kept(0)) if len(board.problems) > 1]
    if not boards:
        a.note("No rows are kept.")
        return
    fig, axes, _ = two_columns(boards, 0.7)
    lines = []
    for ax, board in zip(axes.flat, boards, strict=False):
        names = sorted(board.methods, key=lambda m: board.ranks[m])
        values = np.array([board.ranks[m] for m in names])
        difference = statistics.critical_difference(len(names), len(board.problems))
        statistic, p = statistics.friedman(board.blocks)
        ax.plot(values, range(len(names)), "o", ms=3.0, color=st.BLUE)
        for i, value in enumerate(values):
            ax.plot([value, min(value + difference, len(names))], [i, i], color=st.GREY, lw=1.0)
        ax.set_yticks(range(len(names)), [name_of(m) for m in names], fontsize=7)
        ax.invert_yaxis()
        ax.set_xlabel("mean rank (1: best)", fontsize=7)
        ax.set_title(f"{TITLES[board.name]}: Friedman p = {p:.1g}, CD = {difference:.1f}", fontsize=8)
        for name, value in zip(names, values, strict=True):
            lines.append(
                {
                    "board": board.name,
                    "method": name,
                    "mean rank": float(value),
                    "CD": difference,
                    "Friedman": statistic,
                    "p": p,
                    "problems": len(board.problems),
                }
            )
    fig.supxlabel(
        "A line reaches one critical difference (Nemenyi, 5 %) beyond a mean rank: methods whose points it "
        "covers are not told apart from it. Lines end at the worst rank.",
        fontsize=st.SMALLEST,
        x=0.01,
        ha="left",
        color="#555555",
    )
    a.note("Boards with one problem have no ranks over problems, and are left out.")
    a.note(
        "Where a panel's critical difference (CD) exceeds its number of methods less one, it tells no two "
        "methods apart."
    )
    a.table(lines, given=["board", "method", "CD", "problems"])
    a.figure(fig)
