"""Recognised text: CTC decoding, greedy or by prefix beam search, and error rates (jiwer).

WER, CER = (substitutions + deletions + insertions) / length, in words or characters, over a whole set
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from mobench.errors import ConfigError, choose


def greedy(log_probs: Float[np.ndarray, "T C"]) -> list[int]:
    """The most likely unit of each frame, repetitions joined, blanks (0) left out."""
    best = log_probs.argmax(1)
    return [int(c) for t, c in enumerate(best) if c != 0 and (t == 0 or c != best[t - 1])]


def prefix_beam(log_probs: Float[np.ndarray, "T C"], width: int) -> list[int]:
    """The most likely sequence of units by a beam of `width` prefixes at each frame.

    p_b, p_n: probability of all paths of a prefix that end with a blank, or with its last unit. A beam of all
    prefixes is exact. Source: Graves et al. 2006; Hannun et al. 2014, without a language model.
    """
    beam: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for row in log_probs:
        # a unit below these enters the beam only where it repeats the last one of a prefix
        likely = np.argsort(-row[1:], kind="stable")[:width] + 1
        units = {int(c) for c in likely} | {prefix[-1] for prefix in beam if prefix}
        blank: dict[tuple[int, ...], float] = defaultdict(lambda: -math.inf)
        last: dict[tuple[int, ...], float] = defaultdict(lambda: -math.inf)
        for prefix, (b, n) in beam.items():
            whole = np.logaddexp(b, n)
            blank[prefix] = np.logaddexp(blank[prefix], whole + row[0])
            for c in units:
                longer = (*prefix, c)
                if prefix and c == prefix[-1]:
                    last[prefix] = np.logaddexp(last[prefix], n + row[c])
                    last[longer] = np.logaddexp(last[longer], b + row[c])
                else:
                    last[longer] = np.logaddexp(last[longer], whole + row[c])
        every = {prefix: (blank[prefix], last[prefix]) for prefix in {**blank, **last}}
        beam = dict(sorted(every.items(), key=lambda item: -np.logaddexp(*item[1]))[:width])
    best: tuple[int, ...] = max(beam, key=lambda prefix: float(np.logaddexp(*beam[prefix])))
    return list(best)


def error_rate(kind: str, said: Sequence[str], heard: Sequence[str]) -> float:
    """`wer` (words) or `cer` (characters) of all utterances together.

    Raises:
        ConfigError: another kind, or jiwer is not installed.
    """
    choose("kind", kind, ("wer", "cer"))
    try:
        import jiwer
    except ImportError as error:
        raise ConfigError(
            "Error rates need jiwer, which is not installed; use pip install '.[speech]'."
        ) from error
    return float((jiwer.wer if kind == "wer" else jiwer.cer)(list(said), list(heard)))
