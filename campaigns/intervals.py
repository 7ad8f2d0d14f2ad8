"""Counts how often a board's interval separates two methods that are equal in the mean over problems.

The methods' true scores differ from problem to problem, independently and with mean 0; noise of studies and
of seeds is a tenth of that. An interval of 95 % should separate them in one of twenty boards. Run by
hand (ten seconds); docs/protocol.md has the numbers:

    python -m campaigns.intervals
"""

from __future__ import annotations

import numpy as np

from mobench.comparison import statistics

PROBLEMS = (4, 5, 8, 11)  # of the boards
BOARDS = 400
STUDIES, SEEDS = 3, 10


def separated(problems: int, board: int, rng: np.random.Generator) -> bool:
    """Returns whether the interval of the difference of two methods leaves out 0 on a simulated board."""
    truth = rng.normal(size=(2, problems, 1, 1))
    studies = rng.normal(0.0, 0.1, (2, problems, STUDIES, 1))
    scores = truth + studies + rng.normal(0.0, 0.1, (2, problems, STUDIES, SEEDS))
    draws = statistics.bootstrap(scores, draws=400, seed=board)
    low, high = statistics.interval(draws[:, 0] - draws[:, 1])
    return not low <= 0.0 <= high


def main() -> None:
    """Prints the share of boards on which the methods are separated, by the number of problems."""
    rng = np.random.default_rng(0)
    for problems in PROBLEMS:
        share = np.mean([separated(problems, board, rng) for board in range(BOARDS)])
        print(f"{problems} problems: separated on {share:.1%} of {BOARDS} boards")


if __name__ == "__main__":
    main()
