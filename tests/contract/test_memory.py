"""Every method of conf/algorithm needs memory in proportion to its runs, also where runs see all preferences.

Two things are counted, which do not depend on the machine: the largest tensor that a step makes, and the peak
of what NumPy and Python hold.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mobench.core import Algorithm, loop
from tests.contract import cases
from tests.contract.cases import ALGORITHMS, SETTINGS, algorithm_of, settings_of

QUADRATIC = {
    "nsga2": "pymoo compares each member of a population with each",
    "psl": "a Gaussian process has a matrix of all points that it has seen",
}
ALLOWED = 1.3
FEW = 200  # runs that are compared with ten times as many


class Largest(TorchDispatchMode):
    """Notes the bytes of the largest tensor that an operation returns."""

    bytes = 0

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                self.bytes = max(self.bytes, x.untyped_storage().nbytes())
        return out


def bytes_of(algorithm: Algorithm, setting: cases.Setting, preferences: int) -> int:
    """Bytes of two steps, the start included."""
    runs = setting.runs(preferences, 1)
    oracle = setting.of(runs)
    theta = oracle.initial(runs)
    tracemalloc.start()
    try:
        with Largest() as largest:
            state = loop.start(oracle, algorithm, {}, theta, runs, 2)
            loop.advance(oracle, algorithm, {}, state, 2)
        return largest.bytes + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", ALGORITHMS)
def test_memory_is_linear_in_runs(method: str) -> None:
    if method in QUADRATIC:
        pytest.skip(QUADRATIC[method])
    algorithm = algorithm_of(method)
    for name in {"two", "three"} & set(settings_of(method)) or settings_of(method)[:1]:
        setting = SETTINGS[name]
        runs = setting.runs(4, 1)
        cases.path(algorithm, setting.of(runs), runs, 2)  # what is compiled or imported once
        before = bytes_of(algorithm, setting, FEW)
        after = bytes_of(algorithm, setting, 10 * FEW)
        assert after <= ALLOWED * 10 * before, (name, before, after)


def test_state_of_pmtl_holds_the_rays_once() -> None:
    setting = SETTINGS["two"]
    runs = setting.runs(FEW, 1)
    oracle = setting.of(runs)
    state = loop.start(oracle, algorithm_of("pmtl"), {}, oracle.initial(runs), runs, 2)
    assert state["alg"]["rays"].shape == (FEW, FEW, 2)
    assert state["alg"]["rays"].untyped_storage().nbytes() == FEW * 2 * torch.float64.itemsize
