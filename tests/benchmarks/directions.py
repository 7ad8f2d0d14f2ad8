"""Directions per second against TorchJD, one run at a time: `python -m tests.benchmarks.directions`.

CPU time, the two in turn, the best of five rounds; ratios are what counts. TorchJD's projections need
`pip install 'torchjd[full]'`; what cannot be imported is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torchjd import aggregation

from mobench.algorithms.aligned_mtl import AlignedMTL
from mobench.algorithms.cagrad import CAGrad
from mobench.algorithms.config_mtl import ConFIG
from mobench.algorithms.dualproj import DualProj
from mobench.algorithms.fairgrad import FairGrad
from mobench.algorithms.imtl_g import IMTLG
from mobench.algorithms.nash_mtl import NashMTL
from mobench.algorithms.pcgrad import PCGrad
from mobench.algorithms.sdmgrad import SDMGrad
from mobench.algorithms.upgrad import UPGrad
from mobench.core import Weighting
from tests.test_zoo import context

ROUNDS = 5
SECONDS = 0.1
PAIRS: dict[str, tuple[Weighting, Callable[[int], Any], bool]] = {
    # ours, TorchJD's for M objectives, whether that takes the rows instead of the Gram matrix
    "upgrad": (UPGrad(), lambda M: aggregation.UPGradWeighting(), False),
    "dualproj": (DualProj(), lambda M: aggregation.DualProjWeighting(), False),
    "cagrad": (CAGrad(), lambda M: aggregation.CAGradWeighting(c=0.5), False),
    "nash_mtl": (NashMTL(), lambda M: aggregation.NashMTL(n_tasks=M).weighting, True),
    "fairgrad": (FairGrad(), lambda M: aggregation.FairGradWeighting(alpha=2.0), False),
    "imtl_g": (IMTLG(), lambda M: aggregation.IMTLGWeighting(), False),
    "config": (ConFIG(), lambda M: aggregation.ConFIG(), True),
    "aligned_mtl": (AlignedMTL(), lambda M: aggregation.AlignedMTLWeighting(), False),
    "pcgrad": (PCGrad(), lambda M: aggregation.PCGradWeighting(), False),
    "sdmgrad": (SDMGrad(), lambda M: aggregation.SDMGradWeighting(), False),
}


def best(*works: Callable[[], object]) -> list[float]:
    """CPU seconds of one call of each, the least of some rounds in turn."""
    found = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for k, work in enumerate(works):
            calls = 0
            began = time.process_time()
            while time.process_time() - began < SECONDS:
                work()
                calls += 1
            found[k] = min(found[k], (time.process_time() - began) / calls)
    return found


def compare(name: str, M: int, R: int) -> tuple[float, float]:
    """Directions per second: ours in a batch of R, TorchJD's."""
    ours, make, rows = PAIRS[name]
    J = torch.randn(R, M, 100, generator=torch.Generator().manual_seed(M), dtype=torch.float64)
    G = J @ J.mT
    F = torch.ones(R, M, dtype=torch.float64)
    state = ours.init(context(M, R))
    theirs = make(M)
    matrix = (J if rows else G)[0]

    def one() -> None:
        if hasattr(theirs, "reset"):
            theirs.reset()
        theirs(matrix)

    one()
    ours.weights(F, G, state, 0)
    batch, single = best(lambda: ours.weights(F, G, state, 0), one)
    return R / batch, 1.0 / single


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'method':12} {'M':>3} {'R':>4} {'ours/s':>10} {'TorchJD/s':>10} {'ratio':>8}")
    for name in PAIRS:
        for M in (2, 5, 10):
            for R in (1, 100):
                try:
                    ours, theirs = compare(name, M, R)
                except ImportError as error:
                    print(f"{name:12} left out: {error}")
                    break
                print(f"{name:12} {M:3} {R:4} {ours:10.0f} {theirs:10.0f} {ours / theirs:7.1f}x")


if __name__ == "__main__":
    main()
