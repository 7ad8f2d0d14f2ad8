"""Even samples of a front that is a curve: exact points at equal distances from their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

GRID = 4001  # parameters per piece on which the arc length is measured


def evenly(
    curve: Callable[[Float[Tensor, " k"]], Float[Tensor, "k M"]],
    k: int,
    pieces: Sequence[tuple[float, float]],
) -> Float[Tensor, "k M"]:
    """k points curve(t), evenly spaced in arc length over the intervals `pieces`; gaps have no length.

    Neighbours on one piece are (total length) / (k - 1) apart, so that every point of the front is within
    half of that of a sample. Float64, on the CPU.
    """
    grids = [np.linspace(a, b, GRID) for a, b in pieces]
    lengths = []
    offset = 0.0
    for grid in grids:
        F = curve(torch.from_numpy(grid)).numpy()
        steps = np.linalg.norm(np.diff(F, axis=0), axis=1)
        lengths.append(offset + np.concatenate([[0.0], np.cumsum(steps)]))
        offset = float(lengths[-1][-1])
    wanted = np.linspace(0.0, offset, k)
    # A gap is two parameters at one length; interp then takes the later piece's beginning or the earlier
    # one's end.
    t = np.interp(wanted, np.concatenate(lengths), np.concatenate(grids))
    return curve(torch.from_numpy(t))
