"""Conclusions of the boards, in sentences whose numbers come from the kept rows.

    python -m experiments.cross.sentences        writes them into docs/papers/cross.md

A test compares the page with the rows, so that a number on the page cannot be an old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from mobench.comparison import rows, statistics
from mobench.system.files import write_atomic

from .board import Board, boards_with_rows, by_angle, ignoring, replicated
from .speed import budgets, common
from .zoo import name_of, other_budgets, problems_in_words

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers" / "cross.md"
FIRST = "<!-- conclusions: written by python -m experiments.cross.sentences -->"
END_FIRST = "<!-- end of conclusions -->"
BEGIN = "<!-- sentences: written by python -m experiments.cross.sentences -->"
END = "<!-- end of sentences -->"
CONCAVE = ("vlmop2", "zdt2", "uf4", "dtlz2")  # fronts on which weighted sums have no inner optimum


def _signed(value: float, low: float, high: float) -> str:
    # an end that decides, but rounds to 0, is shown with the digits that it needs
    ends = ", ".join(f"{end:+.3f}" if abs(end) >= 5e-4 else f"{end:+.1g}" for end in (low, high))
    return f"{value:+.3f} [{ends}]"


def _ahead(board: Board, one: str, other: str) -> str:
    """Returns the lead of a method over another; boards by angle have degrees, of which fewer are better."""
    value, low, high = board.difference(one, other)
    if board.angular:
        return f"{value:.1f}° [{low:.1f}, {high:.1f}] nearer to the ray than {name_of(other)}"
    return f"{_signed(value, low, high)} before {name_of(other)}"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _comparison(value: float, low: float, high: float) -> str:
    if low > 0:
        return "is better than"
    return "is worse than" if high < 0 else "cannot be distinguished from"


def leader(board: Board) -> str:
    over = f"Over {problems_in_words(len(board.problems))}"
    first, second = board.methods[:2]
    if board.leader is not None:
        return f"{over} {name_of(first)} leads, {_ahead(board, first, second)}."
    close = f"{len(board.close)} of {len(board.methods) - 1}"
    return f"{over} no method leads: {close} cannot be told apart from the first, {name_of(first)}."


def against_baseline(board: Board) -> str:
    """Says how many methods are better and worse than the tuned baseline of the board."""
    base = board.baseline
    listed = "; ".join(f"{name_of(name)}, {_ahead(board, name, base)}" for name in board.better)
    return (
        f"Of {len(board.methods) - 1} methods {len(board.better)} are better than the tuned baseline, "
        f"{name_of(base)}, and {len(board.worse)} worse, by an interval without 0"
        f"{f' ({listed})' if listed else ''}."
    )


def left_out(board: Board) -> str:
    """Names the methods of the board by score that a board by angle does not rank."""
    (by_score,) = boards_with_rows(rows.kept(0), [board.name])
    listed = _and([name_of(name) for name in ignoring(by_score)])
    return f"Not ranked by angle, since the method ignores the preference: {listed}."


def maximum_or_sum(board: Board) -> str:
    difference = board.difference("tch", "ls")
    return (
        f"Tchebycheff scalarization {_comparison(*difference)} linear scalarization, both "
        f"tuned: {_signed(*difference)} over all problems{_where(board)}."
    )


def shortest(board: Board) -> str:
    difference = board.difference("mgda", "ls")
    return (
        f"The shortest common gradient (MGDA) {_comparison(*difference)} a tuned weighted sum: "
        f"{_signed(*difference)}."
    )


def against_conflict(board: Board) -> str:
    conflict = ("pcgrad", "cagrad", "upgrad", "nash_mtl", "imtl_g")
    best = max((name for name in conflict if name in board.methods), key=lambda name: board.scores[name])
    difference = board.difference(best, "ls")
    return (
        f"Of five methods against conflicting gradients (PCGrad, CAGrad, UPGrad, Nash-MTL, IMTL-G) the "
        f"best, {name_of(best)}, {_comparison(*difference)} a tuned weighted sum: {_signed(*difference)}."
    )


def tuning(board: Board) -> str:
    # mean differences over methods and problems; intervals over problems
    scores = board.array()
    means = scores.mean(3)
    pairs = [(0, 1), (0, 2), (1, 2)]
    tunings = np.mean([np.abs(means[:, :, a] - means[:, :, b]) for a, b in pairs], axis=0).mean(0)
    seeds = np.abs(scores[..., :, None] - scores[..., None, :]).sum((3, 4)) / (
        scores.shape[3] * (scores.shape[3] - 1)
    )
    between, noise = _over_problems(tunings), _over_problems(seeds.mean((0, 2)))
    return (
        f"Two tunings of one method on one problem differ by {between[0]:.3f} [{between[1]:.3f}, "
        f"{between[2]:.3f}] on average (means over {board.array().shape[3]} seeds), two seeds "
        f"of one tuning by {noise[0]:.3f} [{noise[1]:.3f}, {noise[2]:.3f}]: "
        f"smaller differences between methods say nothing about a problem of yours."
    )


def feasible(board: Board) -> str:
    shares = board.array("feasible")
    low, high = statistics.interval(statistics.bootstrap(shares))
    mean = shares.mean((1, 2, 3))
    listed = [
        f"{name_of(m)} {100 * mean[k]:.0f} % [{100 * low[k]:.0f}, {100 * high[k]:.0f}]"
        for k, m in enumerate(board.methods)
    ]
    return f"Feasible points: {', '.join(listed)}."


PICKED: dict[str, tuple[Callable[[Board], str], ...]] = {
    "preference": (leader, against_baseline, maximum_or_sum, tuning),
    "preference by angle": (leader, against_baseline, left_out),
    "single": (leader, against_baseline, maximum_or_sum, shortest, against_conflict),
    "constrained": (leader, feasible),
    "many": (leader, against_baseline),
    "many by angle": (leader, against_baseline),
    "networks": (leader, against_baseline),
}


def sentences(boards: Sequence[Board]) -> list[str]:
    """Returns what each board says; nothing of a board without rows."""
    every = {board.key: board for board in [*boards, *by_angle(boards)]}
    return [
        f"*{every[key].title}.* {' '.join(say(every[key]) for say in picked)}"
        for key, picked in PICKED.items()
        if key in every
    ]


def conclusions(boards: Sequence[Board], again: Sequence[Board], others: Sequence[Board]) -> list[str]:
    """Returns the three sentences that come first: by score, by angle, and with other budgets."""
    steady = replicated(boards, again)
    by_score = f"**By hypervolume, {_leads(boards)}**, and {_beating(boards)}; {_same_order(steady)}."
    angles = by_angle(boards)
    turned = (
        f"**By the angle to the preference, {_leads(angles)}**, and {_beating(angles)}; "
        f"{_same_order(replicated(angles, by_angle(again)))}."
    )
    parts = [_over_budgets(by_budget) for by_budget in budgets([*boards, *others])]
    slower = f"**With other numbers of gradients** for each function than 200, {'; '.join(parts)}."
    return [by_score, turned, *([slower] if parts else [])]


def _leads(boards: Sequence[Board]) -> str:
    said = [
        f"{name_of(board.leader)} leads `{board.name}`, {_ahead(board, *board.methods[:2])}"
        for board in boards
        if board.leader
    ]
    if not said:
        return f"no method leads on any of the {len(boards)} boards"
    nobody = [f"`{board.name}`" for board in boards if not board.leader]
    return _and([*said, *([f"no method leads {_and(nobody)}"] if nobody else [])])


def _beating(boards: Sequence[Board]) -> str:
    better = [
        f"{name_of(name)} on `{board.name}` ({_ahead(board, name, board.baseline)})"
        for board in boards
        for name in board.better
    ]
    count = sum(len(board.methods) - 1 for board in boards)
    worse = sum(len(board.worse) for board in boards)
    said = f"only {_and(better)} {'is' if len(better) == 1 else 'are'} better" if better else "none is better"
    return f"{said} than the board's tuned baseline by an interval without 0 ({worse} of {count} are worse)"


def _same_order(pairs: Mapping[str, Sequence[bool]]) -> str:
    every = [held for of_board in pairs.values() for held in of_board]
    return (
        f"{sum(every)} of the {len(every)} pairs that an interval separates keep their order with other "
        "seeds and tunings"
    )


def _over_budgets(by_budget: Mapping[int, Board]) -> str:
    methods = common(by_budget)
    counts = {
        k: [len(set(methods) & set(names)) for names in (b.better, b.worse)] for k, b in by_budget.items()
    }
    each = [f"{better} better and {worse} worse with {budget}" for budget, (better, worse) in counts.items()]
    leads = [
        f"{name_of(board.leader)} leads with {budget}, {_ahead(board, *board.methods[:2])}"
        for budget, board in by_budget.items()
        if board.leader
    ]
    return (
        f"on `{by_budget[200].name}` ({problems_in_words(len(by_budget[200].problems))}) the tuned baseline "
        f"has, of {len(methods) - 1} methods, {_and(each)}, and {_and(leads) if leads else 'nobody leads'}"
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


def _over_problems(values: np.ndarray) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    draws = values[rng.integers(0, len(values), (statistics.DRAWS, len(values)))].mean(1)
    low, high = statistics.interval(draws)
    return float(values.mean()), float(low), float(high)


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    stored = rows.kept(0)
    boards = boards_with_rows(stored)
    second = boards_with_rows(rows.kept(1))
    first = conclusions(boards, second, boards_with_rows(stored, other_budgets())) if boards else []
    text = _between(text, FIRST, END_FIRST, _numbered(first))
    return _between(text, BEGIN, END, _numbered(sentences(boards)))


def _numbered(sentences: Sequence[str]) -> str:
    lines = [f"{i}. {sentence}" for i, sentence in enumerate(sentences, start=1)]
    return "\n".join(lines) or "No rows are kept yet."


def _between(text: str, begin: str, end: str, words: str) -> str:
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{words}\n{end}{after}"


def main() -> None:
    write_atomic(PAGE, page().encode())


if __name__ == "__main__":
    main()
