"""The comparison under one protocol: boards, critical differences, performance profiles."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AtLeast, AtMost, Count
from mobench.artifacts.panels import dress
from mobench.artifacts.rows import JobRows
from mobench.comparison import rows, statistics

from .board import FACTORS, TITLES, Board, boards, expected_agreement, replicated
from .distil import distilled
from .nulls import copies_called_different
from .references import References
from .table import boards_of, ranking

ROW = 0.135  # inches
FILE = "rows.csv.gz"


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
    shown = boards(every)
    lines = [line for board in shown for line in board.lines()]
    for name, text in a.refused.items():
        board, problem, method = name.split(".", 2)
        reason = "; ".join(part.strip().removeprefix("- ") for part in text.splitlines()[1:])
        lines.append(
            {"board": board, "problem": problem, "method": method, "note": f"does not fit: {reason}"}
        )
    given = ["board", "problem", "method", "place", "note"]
    a.table(pd.DataFrame(lines, columns=_columns(lines)), given=[name for name in given if lines])
    if shown:
        draw(a, shown, set(fresh["method"]))
    check(a, shown, replication)


def _columns(lines: list[dict[str, object]]) -> list[str]:
    names = list(dict.fromkeys(name for line in lines for name in line))
    return [*(name for name in names if name != "note"), "note"] if names else ["board"]


def computed(jobs: Mapping[str, JobRows]) -> pd.DataFrame:
    """The rows of the pairs that this command ran."""
    pairs: dict[tuple[str, str, str], list[JobRows]] = {}
    for name, job in jobs.items():
        board, problem, method = name.split(".")[:3]
        pairs.setdefault((board, problem, method), []).append(job)
    references = References()
    found = []
    for (board, problem, method), own in pairs.items():
        replication = int(own[0].config["seeds"][0]) // 100
        key = (replication, board, problem, method)
        found.append(distilled(key, own, int(boards_of()[board]["budget"]), references))
    return (
        rows.stamped(pd.concat(found, ignore_index=True))
        if found
        else pd.DataFrame(columns=list(rows.COLUMNS))
    )


def beside_kept(fresh: pd.DataFrame, replication: int) -> pd.DataFrame:
    """Fresh rows, and kept ones of all other pairs."""
    kept = rows.kept(replication)
    pairs = list(fresh.drop_duplicates(list(rows.PAIR))[list(rows.PAIR)].itertuples(index=False, name=None))
    parts = [part for part in (rows.without(kept, pairs), fresh) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else fresh


def name_of(method: str) -> str:
    """What readers call a method."""
    return st.METHODS[method].name if method in st.METHODS else method.replace("_", " ")


def problems_in_words(count: int) -> str:
    """Writes how many problems there are."""
    return f"{count} problem{'' if count == 1 else 's'}"


def draw(a: Artifact, shown: list[Board], new: set[str]) -> None:
    """A panel for each board: scores with intervals, the best first; methods computed here in bold."""
    tall = [max(len(board.methods) for board in shown[i : i + 2]) for i in range(0, len(shown), 2)]
    fig, axes = st.plt.subplots(
        len(tall),
        min(2, len(shown)),
        figsize=(st.WIDTH, ROW * sum(tall) + 0.75 * len(tall)),
        height_ratios=tall,
        layout="constrained",
        squeeze=False,
    )
    for ax, board in zip(axes.flat, shown, strict=False):
        for i, name in enumerate(board.methods):
            low, high = board.intervals[name]
            value = board.scores[name]
            colour = st.ORANGE if name == board.baseline else st.BLUE
            ax.plot([low, high], [i, i], color=colour, lw=1.0)
            ax.plot([value], [i], "o", ms=3.0, color=colour)
        ax.set_yticks(range(len(board.methods)), [name_of(m) for m in board.methods], fontsize=7)
        for label, name in zip(ax.get_yticklabels(), board.methods, strict=True):
            label.set_fontweight("bold" if name in new else "normal")
        ax.invert_yaxis()
        ax.set_xlabel("score", fontsize=7)
        ax.grid(axis="x", lw=0.4, color="#CCCCCC")
        ax.set_title(f"{TITLES[board.name]} ({problems_in_words(len(board.problems))})", fontsize=8)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    text = (
        "Score: hypervolume as a share of the best that as many points of the front attain (with constraints "
        "times the feasible share). Lines: 95 % bootstrap over problems, tuning studies and seeds. Orange: "
        "the tuned baseline, the better one of linear and Tchebycheff scalarization (with constraints: the "
        "penalty method)."
    )
    fig.supxlabel(
        "\n".join(textwrap.wrap(text, 118)), fontsize=st.SMALLEST, x=0.01, ha="left", color="#555555"
    )
    a.figure(fig)


def check(a: Artifact, shown: list[Board], replication: int) -> None:
    """The checks of the procedure that the protocol fixes."""
    have = {board.name: board.problems for board in shown}
    wanted = {f"{name}.{p}": p in have.get(name, []) for name in boards_of() for p in ranking(name)}
    absent = [name for name, held in wanted.items() if not held]
    a.check(
        "all-problems",
        Count(wanted, what="ranking problems have rows"),
        reason=f"Not computed yet, so left out: {', '.join(absent)}.",
    )
    if not shown:
        return
    most = max(float(board.rows["share"].max()) for board in shown)
    a.check("within-reference", AtMost(most, 1.05, of="largest share", digits=".4f"))
    rate = {board.name: copies_called_different(board) for board in shown}
    a.check("copies", AtMost(rate, 0.05, of="share of 200 copies called different", digits=".3f"))
    tau = replicated(shown, boards(rows.kept(1 - replication)))
    if tau:
        told = []
        for board in shown:
            if board.name in tau:
                mean, low, high = expected_agreement(board)
                told.append(f"{board.name} {mean:.2f} ({low:.2f} to {high:.2f})")
        a.check(
            "replication",
            AtLeast(tau, 0.9, of="Kendall's tau of the order with fresh seeds", digits=".3f"),
            expected=", ".join(told),
        )


@artifact("cross/ranks")
def critical(a: Artifact) -> None:
    """Critical-difference diagrams: mean ranks, with the difference that Nemenyi's test needs."""
    a.refer("cross/zoo", "copies", "replication")
    shown = [board for board in boards(rows.kept(0)) if len(board.problems) > 1]
    if not shown:
        a.note("No rows are kept.")
        return
    tall = [max(len(board.methods) for board in shown[i : i + 2]) for i in range(0, len(shown), 2)]
    fig, axes = st.plt.subplots(
        len(tall),
        2,
        figsize=(st.WIDTH, ROW * sum(tall) + 0.7 * len(tall)),
        height_ratios=tall,
        layout="constrained",
        squeeze=False,
    )
    lines = []
    for ax, board in zip(axes.flat, shown, strict=False):
        names = sorted(board.methods, key=lambda m: board.ranks[m])
        values = np.array([board.ranks[m] for m in names])
        difference = statistics.critical_difference(len(names), len(board.problems))
        found = statistics.friedman(board.blocks)
        ax.plot(values, range(len(names)), "o", ms=3.0, color=st.BLUE)
        for i, value in enumerate(values):
            ax.plot([value, min(value + difference, len(names))], [i, i], color=st.GREY, lw=1.0)
        ax.set_yticks(range(len(names)), [name_of(m) for m in names], fontsize=7)
        ax.invert_yaxis()
        ax.set_xlabel("mean rank (1: best)", fontsize=7)
        ax.set_title(f"{TITLES[board.name]}: Friedman p = {found.p:.1g}, CD = {difference:.1f}", fontsize=8)
        for name, value in zip(names, values, strict=True):
            lines.append(
                {
                    "board": board.name,
                    "method": name,
                    "mean rank": float(value),
                    "CD": difference,
                    "Friedman": found.statistic,
                    "p": found.p,
                    "problems": len(board.problems),
                }
            )
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    fig.supxlabel(
        "A line reaches one critical difference (Nemenyi, 5 %) beyond a mean rank: methods whose points it "
        "covers are not told apart from it. Lines end at the worst rank.",
        fontsize=st.SMALLEST,
        x=0.01,
        ha="left",
        color="#555555",
    )
    a.note("Boards with one problem have no ranks over problems, and are left out.")
    silent = [
        TITLES[board.name]
        for board in shown
        if statistics.critical_difference(len(board.methods), len(board.problems)) > len(board.methods) - 1
    ]
    if silent:
        a.note(
            f"{', '.join(silent)}: with so few problems the critical difference exceeds every difference of "
            "mean ranks, so that no two methods can be told apart by it."
        )
    a.table(lines, given=["board", "method", "CD", "problems"])
    a.figure(fig)


LOW = 0.25  # share of cases up to which a panel has an axis of its own


@artifact("cross/profiles")
def profiles(a: Artifact) -> None:
    """Performance profiles: the share of cases solved within a factor of the fewest gradients."""
    a.refer("cross/zoo", "all-problems")
    shown = boards(rows.kept(0))
    if not shown:
        a.note("No rows are kept.")
        return
    high = (len(shown) + 1) // 2
    fig, axes = st.plt.subplots(high, 2, figsize=(st.WIDTH, 2.4 * high), layout="constrained", squeeze=False)
    lines = []
    looks: dict[str, dict[str, object]] = {}  # of a method, the same in all panels
    for ax, board in zip(axes.flat, shown, strict=False):
        found = board.profile()
        best = np.argsort(-found[:, -1] - 1e-3 * found[:, 0], kind="stable")[:6]
        for i in best:
            name = board.methods[i]
            more, place = divmod(len(looks), len(st.CYCLE))
            look = looks.setdefault(name, {"color": st.CYCLE[place], "ls": ("-", "--", ":", "-.")[more % 4]})
            ax.step(FACTORS, found[i], where="post", lw=1.1, label=name_of(name), **look)
        dress(ax, "gradients / fewest of any method", "share of cases", TITLES[board.name], log="x")
        top = float(found[best, -1].max())
        ax.set_ylim(0, 1.15 * top if 0.0 < top <= LOW else 1.02)
        ax.grid(lw=0.4, color="#CCCCCC")
        for i, name in enumerate(board.methods):
            lines.append(
                {
                    "board": board.name,
                    "method": name,
                    "within 1": found[i, 0],
                    "within 10": float(found[i, np.searchsorted(FACTORS, 10.0 - 1e-9)]),
                    "ever": board.reached(name),
                }
            )
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    handles = {label: h for ax in axes.flat for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    fig.legend(handles.values(), handles, loc="outside lower center", ncols=5)
    st.caption(
        fig,
        "A case is a problem, tuning study and seed; it counts where the target is reached: 0.9 of the "
        "attainable hypervolume, or for one answer a gap of at most 0.02 to the front (networks: 0.5). Of "
        "each board, the six methods that reach it most often. Where none reaches it in a quarter of the "
        "cases, the axis ends just above the best.",
    )
    a.note("The six methods of each board that reach the target most often are drawn; the table has all.")
    a.table(lines, given=["board", "method"])
    a.figure(fig)
