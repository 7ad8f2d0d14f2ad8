"""What the boards say, in sentences whose numbers come from the kept rows.

    python -m experiments.cross.sentences        writes them into docs/papers/cross.md

A test compares the page with the rows, so that a number on the page cannot be an old one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from mobench.comparison import rows, statistics
from mobench.system.files import write_atomic

from .board import TITLES, Board, boards, expected_agreement, replicated
from .nulls import LEVEL, copies_called_different
from .zoo import name_of, problems_in_words

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers" / "cross.md"
BEGIN = "<!-- sentences: written by python -m experiments.cross.sentences -->"
END = "<!-- end of sentences -->"
AGAIN = "<!-- replication: written by python -m experiments.cross.sentences -->"
END_AGAIN = "<!-- end of replication -->"
ASKED = 0.9  # Kendall's tau, by the protocol
CONCAVE = ("vlmop2", "zdt2", "uf4", "dtlz2")  # fronts on which weighted sums have no inner optimum


def _signed(value: float, low: float, high: float) -> str:
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def _told(value: float, low: float, high: float) -> str:
    """What an interval of a difference says."""
    if low > 0:
        return "is better than"
    return "is worse than" if high < 0 else "cannot be distinguished from"


def leader(board: Board) -> str:
    """Says which method has the largest score, and how far it leads."""
    first, second = board.methods[:2]
    low, high = board.intervals[first]
    return (
        f"Over {problems_in_words(len(board.problems))} {name_of(first)} has the largest score, "
        f"{board.scores[first]:.3f} [{low:.3f}, {high:.3f}]; its lead over the second, {name_of(second)}, is "
        f"{_signed(*board.difference(first, second))}."
    )


def against_baseline(board: Board) -> str:
    """Says how many methods are better and worse than the tuned baseline of the board."""
    base = board.baseline
    different = {name: board.difference(name, base) for name in board.methods if name != base}
    better = [name for name, (_, low, _) in different.items() if low > 0]
    worse = [name for name, (_, _, high) in different.items() if high < 0]
    top = max(different, key=lambda name: different[name][0])
    alone = " (one problem)" if len(board.problems) == 1 else ""
    return (
        f"Against the tuned baseline, {name_of(base)}, {len(better)} of {len(different)} methods "
        f"are better and {len(worse)} worse by an interval excluding 0{alone}; "
        f"the largest difference is that of {name_of(top)}, {_signed(*different[top])}."
    )


def maximum_or_sum(board: Board) -> str:
    """Compares Tchebycheff scalarization with a weighted sum."""
    found = board.difference("tch", "ls")
    return (
        f"Tchebycheff scalarization {_told(*found)} linear scalarization, both "
        f"tuned: {_signed(*found)} over all problems{_where(board)}."
    )


def shortest(board: Board) -> str:
    """Compares MGDA with a weighted sum."""
    found = board.difference("mgda", "ls")
    return f"The shortest common gradient (MGDA) {_told(*found)} a tuned weighted sum: {_signed(*found)}."


def against_conflict(board: Board) -> str:
    """Compares the best method against conflicting gradients with a weighted sum."""
    conflict = ("pcgrad", "cagrad", "upgrad", "nash_mtl", "imtl_g")
    best = max((name for name in conflict if name in board.methods), key=lambda name: board.scores[name])
    found = board.difference(best, "ls")
    return (
        f"Of five methods against conflicting gradients (PCGrad, CAGrad, UPGrad, Nash-MTL, IMTL-G) the "
        f"best, {name_of(best)}, {_told(*found)} a tuned weighted sum: {_signed(*found)}."
    )


def tuning(board: Board) -> str:
    """Says how much two tunings of one method differ, and two seeds."""
    between, noise = _tuning(board)
    return (
        f"Two tunings of one method on one problem differ by {between[0]:.3f} [{between[1]:.3f}, "
        f"{between[2]:.3f}] on average (means over {board.array().shape[3]} seeds), two seeds "
        f"of one tuning by {noise[0]:.3f} [{noise[1]:.3f}, {noise[2]:.3f}]: "
        f"smaller differences between methods say nothing about a problem of yours."
    )


def feasible(board: Board) -> str:
    """Says which share of each method's points is feasible."""
    found = board.array("feasible")
    low, high = statistics.interval(statistics.bootstrap(found))
    mean = found.mean((1, 2, 3))
    listed = [
        f"{name_of(m)} {100 * mean[k]:.0f} % [{100 * low[k]:.0f}, {100 * high[k]:.0f}]"
        for k, m in enumerate(board.methods)
    ]
    return f"Feasible points: {', '.join(listed)}."


PICKED: dict[str, tuple[Callable[[Board], str], ...]] = {
    "preference": (against_baseline, maximum_or_sum, tuning),
    "single": (against_baseline, maximum_or_sum, shortest, against_conflict),
    "constrained": (feasible,),
    "many": (leader,),
    "networks": (against_baseline,),
}


def sentences(shown: Sequence[Board]) -> list[str]:
    """Returns the ten sentences, board by board; fewer where a board has no rows yet."""
    return [f"*{TITLES[board.name]}.* {say(board)}" for board in shown for say in PICKED[board.name]]


def _where(board: Board) -> str:
    """The same difference on problems with concave fronts alone."""
    chosen = [p for p, name in enumerate(board.problems) if name in CONCAVE]
    if len(chosen) < 2:
        return ""
    scores = board.array(methods=["tch", "ls"])[:, chosen]
    draws = statistics.bootstrap(scores)
    low, high = statistics.interval(draws[:, 0] - draws[:, 1])
    value = float(np.subtract(*statistics.scores(scores)))
    return f", and {_signed(value, float(low), float(high))} on the {len(chosen)} with concave fronts"


def _tuning(board: Board) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean difference of two tunings, and of two seeds of one, over methods and problems; intervals over
    problems.
    """
    scores = board.array()
    means = scores.mean(3)
    pairs = [(0, 1), (0, 2), (1, 2)]
    tunings = np.mean([np.abs(means[:, :, a] - means[:, :, b]) for a, b in pairs], axis=0).mean(0)
    seeds = np.abs(scores[..., :, None] - scores[..., None, :]).sum((3, 4)) / (
        scores.shape[3] * (scores.shape[3] - 1)
    )
    return _over_problems(tunings), _over_problems(seeds.mean((0, 2)))


def _over_problems(values: np.ndarray) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    draws = values[rng.integers(0, len(values), (statistics.DRAWS, len(values)))].mean(1)
    low, high = statistics.interval(draws)
    return float(values.mean()), float(low), float(high)


def replication(shown: Sequence[Board], again: Sequence[Board]) -> str:
    """How far the order of each board is the same with other seeds and other trials."""
    tau = replicated(shown, again)
    if not tau:
        return "No rows of the replication are kept yet."
    held = [name for name, value in tau.items() if value >= ASKED]
    listed = ", ".join(f"`{name}` {value:.3f}" for name, value in tau.items())
    told = " and ".join(f"`{name}`" for name in held) or "no board"
    if len(held) == len(tau):
        told = "every board"
    return (
        "In a rerun with other seeds and other trials throughout, the orders of the boards have these values "
        f"of Kendall's tau with those of the first run: {listed}. The protocol asks for at least "
        f"{ASKED}, which {told} has. {_expected(shown, tau)} {_decided(shown, again)}"
    )


def _expected(shown: Sequence[Board], tau: dict[str, float]) -> str:
    """Says which agreement resampling predicts, and whether the rerun has it."""
    found = {board.name: expected_agreement(board) for board in shown if board.name in tau}
    listed = ", ".join(
        f"`{name}` {mean:.2f} [{low:.2f}, {high:.2f}]" for name, (mean, low, high) in found.items()
    )
    inside = sum(low <= tau[name] <= high for name, (_, low, high) in found.items())
    return (
        "Two orders of resampled studies and seeds of the first run have a tau of "
        f"{listed} (mean, 5 % and 95 % quantile); {inside} of the {len(found)} values of the rerun lie in "
        "these ranges. Where the mean is below 0.9, the methods are too close to each other for the "
        "agreement that the protocol asks for, with three studies and this number of seeds."
    )


def copies(shown: Sequence[Board]) -> str:
    """How often Wilcoxon's test tells a method from its copy, where the protocol allows 5 %."""
    rates = {board.name: copies_called_different(board) for board in shown}
    if not rates:
        return ""
    over = {name: rate for name, rate in rates.items() if rate > LEVEL}
    said = ", ".join(f"`{name}` {100 * rate:.1f} %" for name, rate in rates.items())
    held = "no board exceeds."
    if over:
        which = " and ".join(f"`{name}`" for name in over)
        held = f"{which} exceeds: there, a corrected p just below 0.05 is no evidence."
    return (
        "Wilcoxon's test, which compares each method with the tuned baseline, was applied to "
        "methods and copies of themselves (other tunings, other seeds). The share of 200 pairs that it calls "
        f"different: {said}. The protocol allows {100 * LEVEL:g} %, which {held} Intervals in brackets do "
        "not depend on it."
    )


def _decided(shown: Sequence[Board], again: Sequence[Board]) -> str:
    """How often a difference whose interval is without 0 has the same sign in the replication."""
    other = {board.name: board.scores for board in again}
    same = []
    for board in shown:
        scores = other.get(board.name, {})
        names = [name for name in board.methods if name in scores]
        for one, two in itertools.combinations(names, 2):
            value, low, high = board.difference(one, two)
            if low > 0 or high < 0:
                same.append((scores[one] - scores[two]) * value > 0)
    return (
        f"Of the {len(same)} pairs of methods on a board whose difference has an interval without 0 in the "
        f"first run, {sum(same)} have the same order in the second, which is on the same problems."
    )


def page() -> str:
    """The page with the sentences of the kept rows."""
    text = PAGE.read_text(encoding="utf-8")
    shown = boards(rows.kept(0))
    again = f"{replication(shown, boards(rows.kept(1)))}\n\n{copies(shown)}".rstrip()
    found = sentences(shown) or ["No rows are kept yet."]
    listed = "\n".join(f"{i}. {sentence}" for i, sentence in enumerate(found, start=1))
    return _between(_between(text, BEGIN, END, listed), AGAIN, END_AGAIN, again)


def _between(text: str, begin: str, end: str, words: str) -> str:
    """A text with other words between two marks."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{words}\n{end}{after}"


def main() -> None:
    """Writes the sentences into the page."""
    write_atomic(PAGE, page().encode())


if __name__ == "__main__":
    main()
