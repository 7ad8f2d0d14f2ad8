"""A null test of the boards: how often Wilcoxon's test calls a method different from a copy of itself."""

from __future__ import annotations

import numpy as np

from mobench.comparison import statistics

from .board import Board

REPETITIONS = 200
LEVEL = 0.05


def copies_called_different(board: Board) -> float:
    """Share of the repetitions in which Wilcoxon's test calls a method different from its copy.

    Two tunings of one method: on each problem two studies of the three, in random order, each with half of
    the seeds, so that neither shares a run with the other.
    """
    scores = board.array()
    methods, problems, studies, seeds = scores.shape
    called = 0
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng(repetition)
        of_method = scores[repetition % methods]
        one = np.empty(problems)
        other = np.empty(problems)
        for p in range(problems):
            first, second = rng.permutation(studies)[:2]
            order = rng.permutation(seeds)
            one[p] = of_method[p, first, order[: seeds // 2]].mean()
            other[p] = of_method[p, second, order[seeds // 2 :]].mean()
        called += statistics.wilcoxon(one, other) < LEVEL
    return called / REPETITIONS
