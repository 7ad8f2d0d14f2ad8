"""FERERO's Algorithm 3 in its first steps on Multi-MNIST, with Table 8's settings and any gamma.

    MOBENCH_DATA=DIR python -m tests.first_multipliers 1e-4 200

docs/papers/ferero.md has what it printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from mobench.config import compose
from mobench.core import loop
from mobench.jobs.build import make_job

SHOWN = (1, 2, 3, 5, 10, 12, 20, 50, 100, 200)
SETTINGS = ("protocol=multi_mnist", "scale=paper", "data=mnist", "algorithm=ferero_stochastic", "seeds=[0]")


def main(gamma: str, steps: int) -> None:
    """Prints multipliers, weights of the losses and the length of the direction at some of the steps."""
    job = make_job(compose.compose([*SETTINGS, f"algorithm.gamma={gamma}"]))
    oracle = job.oracle()
    start = job.joined.initial(job.runs).to(job.dtype)
    state = loop.start(oracle, job.algorithm, {}, start, job.runs, steps)
    for t in range(1, steps + 1):
        before = state["theta"].clone()
        state = loop.advance(oracle, job.algorithm, {}, state, t)
        if t not in SHOWN:
            continue
        length = torch.linalg.vector_norm(state["theta"] - before, dim=1) / job.algorithm.step_size
        lam = state["alg"]["lam"]
        weights = (lam.unsqueeze(1) @ state["alg"]["A_ag"]).squeeze(1)
        for r in range(len(lam)):
            numbers = f"lambda {rounded(lam[r])}, weights {rounded(weights[r])}, |d| {float(length[r]):.4g}"
            print(f"step {t}, run {r}: {numbers}", flush=True)


def rounded(values: torch.Tensor) -> list[float]:
    """Numbers to print."""
    return [float(f"{x:.3g}") for x in values.tolist()]


def run(arguments: Sequence[str]) -> None:
    """Reads gamma and the number of steps."""
    gamma, steps = (*arguments, *("1e-4", "200")[len(arguments) :])
    main(gamma, int(steps))


if __name__ == "__main__":
    run(sys.argv[1:])
