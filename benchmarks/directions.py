"""Weights of the zoo's methods from a Gram matrix, beside TorchJD's: directions per second.

CPU time of one thread, ours in one batch of R runs, TorchJD's for one run after the other. TorchJD's UPGrad
and DualProj need quadprog, and its Nash-MTL needs ECOS; the licences (GPL) keep both out of our requirements.
What cannot be imported is left out and named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torchjd import aggregation

from benchmarks.peers import cpu
from benchmarks.timing import Sample, alternate
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

N = 100
"""Length of the random gradients."""
AIMS = {1: 1.0, 100: 30.0}
"""By runs R: ours are to take this many times as many directions per second."""
OBJECTIVES = (2, 5, 10)
PAIRS: dict[str, tuple[Weighting, Callable[[int], Any], bool]] = {
    # ours, TorchJD's for M objectives, whether that takes the gradients instead of their Gram matrix
    "UPGrad": (UPGrad(), lambda M: aggregation.UPGradWeighting(), False),
    "DualProj": (DualProj(), lambda M: aggregation.DualProjWeighting(), False),
    "CAGrad": (CAGrad(), lambda M: aggregation.CAGradWeighting(c=0.5), False),
    "Nash-MTL": (NashMTL(), lambda M: aggregation.NashMTL(n_tasks=M).weighting, True),
    "FairGrad": (FairGrad(), lambda M: aggregation.FairGradWeighting(alpha=2.0), False),
    "IMTL-G": (IMTLG(), lambda M: aggregation.IMTLGWeighting(), False),
    "ConFIG": (ConFIG(), lambda M: aggregation.ConFIG(), True),
    "Aligned-MTL": (AlignedMTL(), lambda M: aggregation.AlignedMTLWeighting(), False),
    "PCGrad": (PCGrad(), lambda M: aggregation.PCGradWeighting(), False),
    "SDMGrad": (SDMGrad(), lambda M: aggregation.SDMGradWeighting(), False),
}


@dataclass(frozen=True)
class Line:
    """Seconds of a method with M objectives: of one batch by its size R, and of one direction by TorchJD."""

    method: str
    M: int
    ours: dict[int, Sample]
    theirs: Sample

    def ratio(self, R: int) -> float:
        """Our directions per second over TorchJD's."""
        return R * self.theirs.over(self.ours[R])

    def missed(self) -> list[int]:
        """The sizes at which the aim is missed."""
        return [R for R in self.ours if self.ratio(R) < AIMS.get(R, 0.0)]


@dataclass(frozen=True)
class Directions:
    """Lines that were measured, and by method why it was left out."""

    lines: list[Line]
    left_out: dict[str, str]


def compare(name: str, M: int, sizes: Sequence[int], rounds: int, slice_s: float) -> Line:
    """Measures one method in turn at all batch sizes and by TorchJD.

    Raises:
        ImportError: TorchJD's needs a package that is not installed.
    """
    method, make, rows = PAIRS[name]
    J = torch.randn(max(sizes), M, N, generator=torch.Generator().manual_seed(M), dtype=torch.float64)
    G = J @ J.mT
    theirs = make(M)
    matrix = (J if rows else G)[0]

    def single() -> None:
        if hasattr(theirs, "reset"):
            theirs.reset()
        theirs(matrix)

    def batch(R: int) -> Callable[[], object]:
        state = method.init(context(M, R))
        F = torch.ones(R, M, dtype=torch.float64)
        return lambda: method.weights(F, G[:R], state, 0)

    single()
    cases = {str(R): cpu(batch(R), slice_s) for R in sizes}
    samples = alternate({**cases, "TorchJD": cpu(single, slice_s)}, rounds)
    return Line(name, M, {R: samples[str(R)] for R in sizes}, samples["TorchJD"])


def measure(rounds: int, quick: bool, say: Callable[[str], None]) -> Directions:
    """One line for each method and number of objectives."""
    sizes = (1, 4) if quick else (1, 100)
    lines: list[Line] = []
    left_out: dict[str, str] = {}
    for name in PAIRS:
        for M in (3,) if quick else OBJECTIVES:
            try:
                line = compare(name, M, sizes, rounds, 0.001 if quick else 0.05)
            except ImportError as error:
                left_out[name] = str(error).splitlines()[0]
                break
            lines.append(line)
            ratios = ", ".join(f"R={R} {line.ratio(R):.1f}" for R in sizes)
            say(f"direction of {name} M={M}, times TorchJD: {ratios}")
    return Directions(lines, left_out)


def markdown(directions: Directions, table: Callable[..., str], number: Callable[[float], str]) -> list[str]:
    """The section of docs/performance.md."""
    sizes = list(directions.lines[0].ours)
    body = [
        [
            line.method,
            str(line.M),
            *[number(R / line.ours[R].least) for R in sizes],
            number(1.0 / line.theirs.least),
            *[f"{number(line.ratio(R))}x" for R in sizes],
            f"**not at {', '.join(f'R = {R}' for R in line.missed())}**" if line.missed() else "yes",
        ]
        for line in directions.lines
    ]
    head = [
        "method",
        "M",
        *[f"R = {R}" for R in sizes],
        "TorchJD",
        *[f"ratio, R = {R}" for R in sizes],
        "aim met",
    ]
    parts = [
        "## Weights of the current methods, beside TorchJD",
        f"Directions per second of CPU time from the Gram matrix of M random gradients of {N} numbers "
        "(TorchJD's ConFIG and Nash-MTL take the gradients): ours in one batch of R, TorchJD's one after the "
        "other. Ours solve in float64 and return a certificate. Aims: not slower than TorchJD at R = 1, 30 "
        "times as fast at R = 100.",
        table(head, body),
    ]
    if directions.left_out:
        reasons = "; ".join(f"{name} ({why})" for name, why in directions.left_out.items())
        parts.append(
            f"Not measured, because TorchJD's version needs a package that is not installed: {reasons}. Its "
            "UPGrad and DualProj need quadprog, its Nash-MTL needs ECOS; both are under the GPL, so this "
            "project does not require them."
        )
    return parts


def as_json(directions: Directions) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "lines": [
            {
                "method": line.method,
                "M": line.M,
                "per_second": {R: R / sample.least for R, sample in line.ours.items()},
                "per_second_torchjd": 1.0 / line.theirs.least,
                "ratio": {R: line.ratio(R) for R in line.ours},
                "missed": line.missed(),
            }
            for line in directions.lines
        ],
        "left_out": directions.left_out,
    }
