"""A step of a training loop with a user's own network, beside TorchJD's: `python -m benchmarks.training`.

CPU time of one thread at R = 1, in turns: `mobench.Balanced` and TorchJD's `backward`, `jac_to_grad`, each
with the same torch.optim.SGD, forward pass included. TorchJD's UPGrad and DualProj need quadprog (GPL): they
are left out where it is not installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchjd import aggregation
from torchjd.autojac import backward, jac_to_grad

import mobench
from benchmarks.peers import cpu
from benchmarks.timing import Sample, alternate

METHODS: dict[str, Callable[[int], aggregation.Aggregator]] = {
    "mgda": lambda M: aggregation.MGDA(),
    "upgrad": lambda M: aggregation.UPGrad(),
    "dualproj": lambda M: aggregation.DualProj(),
    "pcgrad": lambda M: aggregation.PCGrad(),
    "imtl_g": lambda M: aggregation.IMTLG(),
    "aligned_mtl": lambda M: aggregation.AlignedMTL(),
    "config": lambda M: aggregation.ConFIG(),
    "cagrad": lambda M: aggregation.CAGrad(c=0.5),
    "nash_mtl": lambda M: aggregation.NashMTL(n_tasks=M),
    "ls": lambda M: aggregation.Mean(),
}
NETWORKS = {"small": (20, 32), "large": (100, 300)}
"""Inputs and hidden units: 800 and 32,000 numbers, and those of the heads."""


@dataclass(frozen=True)
class Line:
    """Seconds of a step with M losses."""

    network: str
    method: str
    M: int
    ours: Sample
    theirs: Sample

    @property
    def ratio(self) -> tuple[float, float]:
        """TorchJD's time over ours: of the least, and of the median times."""
        return self.theirs.over(self.ours), self.theirs.median / self.ours.median


def network(name: str, M: int) -> tuple[nn.Module, Callable[[], list[Tensor]]]:
    """A trunk with M heads, and its losses on a batch."""
    inputs, hidden = NETWORKS[name]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, M))
    x = torch.randn(64, inputs)
    y = torch.randn(64, M)
    return net, lambda: list((net(x) - y).square().mean(0))


def compare(name: str, method: str, M: int, rounds: int, slice_s: float) -> Line:
    """Measures one method in turn by both.

    Raises:
        ImportError: TorchJD's needs a package that is not installed.
    """
    theirs = METHODS[method](M)
    net, losses = network(name, M)
    sgd = torch.optim.SGD(net.parameters(), lr=1e-6)

    def single() -> None:
        backward(losses())
        jac_to_grad(net.parameters(), theirs)
        sgd.step()
        sgd.zero_grad()

    copy, losses_of_copy = network(name, M)
    balanced = mobench.Balanced(torch.optim.SGD(copy.parameters(), lr=1e-6), method)

    def step() -> None:
        balanced.step(losses_of_copy())

    single()
    step()
    samples = alternate({"ours": cpu(step, slice_s), "theirs": cpu(single, slice_s)}, rounds)
    return Line(name, method, M, samples["ours"], samples["theirs"])


def measure(methods: Sequence[str], rounds: int, slice_s: float, say: Callable[[str], None]) -> list[Line]:
    """One line for each network, method and number of losses."""
    lines = []
    for name in NETWORKS:
        for method in methods:
            for M in (2, 5, 10):
                try:
                    line = compare(name, method, M, rounds, slice_s)
                except ImportError as error:
                    say(f"{method}: not measured, {str(error).splitlines()[0]}")
                    break
                least, median = line.ratio
                times = f"{1e6 * line.ours.least:.0f} / {1e6 * line.ours.median:.0f} us, TorchJD"
                times += f" {1e6 * line.theirs.least:.0f} / {1e6 * line.theirs.median:.0f}"
                say(f"{name} {method} M={M}: {times}, ratio {least:.2f} / {median:.2f}")
                lines.append(line)
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help="names, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    measure(chosen.methods.split(","), chosen.rounds, chosen.seconds, lambda text: print(text, flush=True))
