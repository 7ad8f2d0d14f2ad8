"""Statistics of a board: scores with bootstrap intervals, and tests over problems.

A board is an array of scores (methods, problems, studies, seeds) in which larger is better. Everything that
orders methods uses a method's own scores alone, so that a copy of a method changes nothing but by its own
line (`scores`, `bootstrap`); ranks, which a copy does change, serve the Friedman test and its diagram only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats

DRAWS = 2000
LEVEL = 0.95
CHUNK = 250  # draws at once
TIE = 1e-9  # difference of mean scores that is none: rounding
Board = Float[np.ndarray, "methods problems studies seeds"]


def scores(board: Board) -> Float[np.ndarray, " methods"]:
    """Mean over problems of the mean over studies and seeds."""
    out: np.ndarray = block_means(board).mean(1)
    return out


def bootstrap(board: Board, draws: int = DRAWS, seed: int = 0) -> Float[np.ndarray, "draws methods"]:
    """Scores of resampled boards: problems with replacement, and for each of them studies, and seeds.

    A study is a tuning of its own, so that the choice of settings is inside. All methods of a draw have the
    same problems, studies and seeds: differences are paired. A method's draws do not depend on the others.
    """
    rng = np.random.default_rng(seed)
    _, P, S, E = board.shape
    out = np.empty((draws, len(board)))
    for first in range(0, draws, CHUNK):
        D = min(CHUNK, draws - first)
        problems = rng.integers(0, P, (D, P))
        studies = rng.multinomial(S, np.full(S, 1.0 / S), (D, P)) / S
        seeds = rng.multinomial(E, np.full(E, 1.0 / E), (D, P)) / E
        for m, scores in enumerate(board):
            sums = np.einsum("dpse,dps,dpe->d", scores[problems], studies, seeds, optimize=True)
            out[first : first + D, m] = sums / P
    return out


def interval(draws: np.ndarray, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """Returns the percentile interval along the first axis."""
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0)
    return low, high


def block_means(board: Board) -> Float[np.ndarray, "methods problems"]:
    """The blocks of the tests: means over studies and seeds."""
    out: np.ndarray = board.mean((2, 3))
    return out


def ranks(blocks: Float[np.ndarray, "methods problems"]) -> Float[np.ndarray, " methods"]:
    """Mean rank of each method over the problems, 1 the best; methods within rounding of each other share."""
    near = np.round(blocks / TIE) * TIE
    out: np.ndarray = stats.rankdata(-near, axis=0).mean(1)
    return out


def friedman(blocks: Float[np.ndarray, "methods problems"]) -> tuple[float, float]:
    """Tests if methods differ at all, over problems as blocks; NaN of under 3 methods or 2 problems.

    Returns:
        The statistic and its p-value (chi-squared, k - 1 degrees of freedom).
    """
    if len(blocks) < 3 or blocks.shape[1] < 2:
        return float("nan"), float("nan")
    test = stats.friedmanchisquare(*np.round(blocks / TIE) * TIE)
    return float(test.statistic), float(test.pvalue)


def critical_difference(methods: int, problems: int) -> float:
    """Nemenyi's: mean ranks that differ by less are not told apart.

    CD = q sqrt(k (k + 1) / (6 N)),  q: quantile of the studentized range for k means, over sqrt(2)

    Source: Demsar 2006, Statistical comparisons of classifiers over multiple data sets, Section 3.2.2.
    """
    q = float(stats.studentized_range.ppf(LEVEL, methods, np.inf)) / np.sqrt(2.0)
    return float(q * np.sqrt(methods * (methods + 1) / (6.0 * problems)))


def wilcoxon(one: Float[np.ndarray, " problems"], other: Float[np.ndarray, " problems"]) -> float:
    """Returns the exact two-sided p-value of Wilcoxon's signed-rank test; 1 if all differences are zero.

    The distribution of the rank sum is that over all signs, so ties do not matter.
    """
    difference = np.round((one - other) / TIE) * TIE
    difference = difference[difference != 0]
    doubled = np.round(2 * stats.rankdata(np.abs(difference))).astype(int)  # mid-ranks are halves
    total = int(doubled.sum())
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for r in doubled:
        moved = np.zeros_like(ways)
        moved[r:] = ways[: total + 1 - r]
        ways = 0.5 * (ways + moved)
    mine = int(doubled[difference > 0].sum())
    extreme = min(mine, total - mine)
    return float(min(1.0, 2.0 * ways[: extreme + 1].sum()))


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's corrected p-values, in the given order."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values, kind="stable")
    steps = values[order] * (len(values) - np.arange(len(values)))
    out = np.empty_like(values)
    out[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return out


def profile(
    needed: Float[np.ndarray, "methods cases"], factors: Float[np.ndarray, " t"]
) -> Float[np.ndarray, "methods t"]:
    """Returns the share of cases in which a method needed at most a factor times the best method's number.

    Source: Dolan and More 2002. NaN: never. Cases that no method solves count, as solved by none.
    """
    filled = np.where(np.isfinite(needed), needed, np.inf)
    best = filled.min(0)
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isfinite(filled), filled / np.maximum(best, 1e-300), np.inf)
    out: np.ndarray = (ratio[:, :, None] <= np.asarray(factors)[None, None]).mean(1)
    return out


def order(means: Mapping[str, float], feasible: Mapping[str, float] | None = None) -> list[str]:
    """Methods, the best first: by the feasible share, rounded to 0.05, and then by the score.

    Each method's place follows from its own numbers, so that removing one leaves the others in their order.
    """
    share = feasible or dict.fromkeys(means, 1.0)
    return sorted(means, key=lambda name: (-round(share[name] / 0.05), -means[name], name))
