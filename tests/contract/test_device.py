"""Every method on a GPU, or on what stands in for one: nothing lies elsewhere; the numbers are the CPU's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mobench.core import Runs
from tests import pretend_cuda
from tests.contract import cases
from tests.contract.cases import SETTINGS, algorithm_of, settings_of

REAL = torch.cuda.is_available()
if not REAL:
    pretend_cuda.register()


@pytest.mark.parametrize("method", cases.methods())
def test_numbers_are_those_of_the_cpu(method: str) -> None:
    algorithm = algorithm_of(method)
    for name in settings_of(method)[-1:]:
        setting = SETTINGS[name]
        runs = setting.runs(3, 1)

        def end(runs: Runs, device: str, setting: Any = setting) -> torch.Tensor:
            oracle = setting.of(runs)
            start = oracle.initial(runs).to(device)
            return cases.path(algorithm, oracle, runs, 4, start, outputs=("last",))[1].cpu()

        here = end(runs, "cpu")
        if REAL:
            there = end(runs.to("cuda"), "cuda")
        else:
            with pretend_cuda.device(1):
                there = end(runs.to("cuda"), "cuda")
        torch.testing.assert_close(there, here, rtol=1e-9, atol=1e-9)
