"""What the boards say, in sentences whose numbers come from the kept rows.

    python -m experiments.cross.sentences        writes them into docs/papers/cross.md

A test compares the page with the rows, so that a number on the page cannot be an old one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
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
PICKED = {  # which of a board's sentences are among the ten
    "preference": (1, 2, 5),
    "single": (1, 2, 4, 5),
    "constrained": (6,),
    "many": (0,),
    "networks": (1,),
}
CONCAVE = ("vlmop2", "zdt2", "uf4", "dtlz2")  # fronts on which weighted sums have no inner optimum


def sentences(shown: Sequence[Board]) -> list[str]:
    """The ten sentences, board by board; fewer where a board has no rows yet."""
    out = []
    for board in shown:
        every = list(of_board(board))
        out += [f"*{TITLES[board.name]}.* {every[i]}" for i in PICKED[board.name]]
    return out


def _signed(value: float, low: float, high: float) -> str:
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def _told(value: float, low: float, high: float) -> str:
    """What an interval of a difference says."""
    if low > 0:
        return "is better than"
    return "is worse than" if high < 0 else "cannot be distinguished from"


def of_board(board: Board) -> Iterator[str]:
    """What one board says."""
    first, second = board.methods[:2]
    low, high = board.intervals[first]
    n = len(board.problems)
    yield (
        f"Over {problems_in_words(n)} {name_of(first)} has the largest score, {board.scores[first]:.3f} "
        f"[{low:.3f}, {high:.3f}]; its lead over the second, {name_of(second)}, is "
        f"{_signed(*board.difference(first, second))}."
    )
    base = board.baseline
    different = {name: board.difference(name, base) for name in board.methods if name != base}
    better = [name for name, (_, low, _) in different.items() if low > 0]
    worse = [name for name, (_, _, high) in different.items() if high < 0]
    top = max(different, key=lambda name: different[name][0])
    yield (
        f"Against the best tuned scalarization, {name_of(base)}, {len(better)} of {len(different)} methods "
        f"are better and {len(worse)} worse by an interval excluding 0{' (one problem)' if n == 1 else ''}; "
        f"the largest difference is that of {name_of(top)}, {_signed(*different[top])}."
    )
    if {"ls", "tch"} <= set(board.methods):
        yield (
            f"Tchebycheff scalarization {_told(*board.difference('tch', 'ls'))} linear scalarization, both "
            f"tuned: {_signed(*board.difference('tch', 'ls'))} over all problems{_where(board)}."
        )
    if {"stch", "tch"} <= set(board.methods):
        found_s = board.difference("stch", "tch")
        yield f"Smoothing the maximum (STCH) {_told(*found_s)} the maximum itself: {_signed(*found_s)}."
    if {"mgda", "ls"} <= set(board.methods):
        yield (
            f"The shortest common gradient (MGDA) {_told(*board.difference('mgda', 'ls'))} a tuned "
            f"weighted sum: {_signed(*board.difference('mgda', 'ls'))}."
        )
        conflict = [
            name for name in ("pcgrad", "cagrad", "upgrad", "nash_mtl", "imtl_g") if name in board.methods
        ]
        best = max(conflict, key=lambda name: board.scores[name])
        yield (
            f"Of five methods against conflicting gradients (PCGrad, CAGrad, UPGrad, Nash-MTL, IMTL-G) the "
            f"best, {name_of(best)}, {_told(*board.difference(best, 'ls'))} a tuned weighted sum: "
            f"{_signed(*board.difference(best, 'ls'))}."
        )
    found = statistics.friedman(board.blocks)
    lowest = min(board.ranks.values())
    reach = statistics.critical_difference(len(board.methods), n)
    close = sum(rank <= lowest + reach for rank in board.ranks.values())
    least = min(board.tests.values())
    told = "finds" if found.p < 0.05 else "does not find"
    yield (
        f"Friedman's test {told} that methods differ "
        f"(p = {found.p:.1g}); {close} of {len(board.methods)} lie within one critical difference "
        f"({reach:.1f} ranks) of the best mean rank, and the smallest corrected p against the "
        f"baseline is {least:.2g}."
    )
    between, noise = _tuning(board)
    yield (
        f"Two tunings of one method on one problem differ by {between[0]:.3f} [{between[1]:.3f}, "
        f"{between[2]:.3f}] on average (means over {board.array().shape[3]} seeds), two seeds "
        f"of one tuning by {noise[0]:.3f} [{noise[1]:.3f}, {noise[2]:.3f}]: "
        f"smaller differences between methods say nothing about a problem of yours."
    )
    reached = board.array("gradients")
    share = statistics.bootstrap(np.isfinite(reached).astype(float))
    low_r, high_r = statistics.interval(share)
    mean = np.isfinite(reached).mean((1, 2, 3))
    i = int(mean.argmax())
    j = board.methods.index(base)
    yield (
        f"{name_of(board.methods[i])} reaches the target most often, in {100 * mean[i]:.0f} % "
        f"[{100 * low_r[i]:.0f}, {100 * high_r[i]:.0f}] of its runs; {name_of(base)} in {100 * mean[j]:.0f} "
        f"% [{100 * low_r[j]:.0f}, {100 * high_r[j]:.0f}]."
    )
    last = board.methods[-1]
    yield (
        f"{name_of(last)} is last with {board.scores[last]:.3f} [{board.intervals[last][0]:.3f}, "
        f"{board.intervals[last][1]:.3f}]."
    )
    if board.name == "constrained":
        feasible = board.array("feasible")
        low_f, high_f = statistics.interval(statistics.bootstrap(feasible))
        mean = feasible.mean((1, 2, 3))
        yield (
            "Feasible points: "
            + ", ".join(
                f"{name_of(m)} {100 * mean[k]:.0f} % [{100 * low_f[k]:.0f}, {100 * high_f[k]:.0f}]"
                for k, m in enumerate(board.methods)
            )
            + "."
        )


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
    listed = ", ".join(f"`{name}` {value:.2f}" for name, value in tau.items())
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
        "Wilcoxon's test, which compares each method with the best tuned scalarization, was applied to "
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
