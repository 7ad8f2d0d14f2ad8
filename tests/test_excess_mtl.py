"""ExcessMTL against a loop of a few lines, against TorchJD, and where its weights are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.excess_mtl import ExcessMTL
from mobench.core import Free, Spec
from mobench.core.algorithm import Context
from mobench.core.point import TablePoint
from mobench.core.preferences import spread

DTYPE = torch.float64
STEPS = 12
M = 3


def context(R: int, P: int) -> Context:
    """R runs with preferences of their own."""
    prefs = spread(R, M)
    spec = Spec(R=R, M=M, N=0, P=P, X=Free(), provides=frozenset({"jacobian"}))
    return Context(spec, prefs, prefs, torch.zeros(R, P, dtype=DTYPE), lambda x: x, STEPS)


def directions(method: ExcessMTL, tables: Tensor) -> Tensor:
    """The direction (T, R, P) for each of the Jacobians (T, R, M, P)."""
    R, P = tables.shape[1], tables.shape[-1]
    state = method.init(context(R, P))
    found = []
    for t, J in enumerate(tables):
        point = TablePoint(torch.zeros(R, P, dtype=DTYPE), Free(), M, {}, torch.ones(R, M, dtype=DTYPE), J)
        d, state, _ = method.step((point,), state, t, 0.1)
        found.append(d)
    return torch.stack(found)


def loop(tables: np.ndarray, w: np.ndarray, eta: float) -> np.ndarray:
    """One run, from He et al. 2024: excess risk g'H^-1 g (6), H = diag(sum of g^2)^1/2 (7), weights (9)."""
    a, total, unit, found = np.ones(len(w)) / len(w), 0.0, None, []
    for G in tables * w[:, None]:
        total = total + G**2
        excess = np.array([g @ np.diag(1 / np.sqrt(h + 1e-7)) @ g for g, h in zip(G, total, strict=True)])
        unit = excess if unit is None else unit
        a = a * np.exp(eta * excess / unit)
        a /= a.sum()
        found.append(-a @ G)
    return np.array(found)


@pytest.mark.parametrize("weighted", [False, True])
def test_directions_are_those_of_the_loop(weighted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    tables = torch.randn(STEPS, 4, M, 5, generator=generator, dtype=DTYPE)
    tables *= torch.tensor([0.01, 1.0, 30.0], dtype=DTYPE)[:, None]
    found = directions(ExcessMTL(weight_step=0.7, weighted=weighted), tables)
    w = spread(4, M) if weighted else torch.ones(4, M, dtype=DTYPE)
    for r in range(4):
        np.testing.assert_allclose(found[:, r], loop(tables[:, r].numpy(), w[r].numpy(), 0.7), rtol=1e-10)


def test_directions_are_those_of_torchjd() -> None:
    """Its weights are uniform at the first call, as ours are, since every excess is then its own unit."""
    aggregation = pytest.importorskip("torchjd").aggregation
    if not hasattr(aggregation, "ExcessMTL"):
        pytest.skip("TorchJD has ExcessMTL from 0.17 on")
    generator = torch.Generator().manual_seed(1)
    tables = torch.randn(STEPS, 1, M, 5, generator=generator, dtype=DTYPE)
    theirs = aggregation.ExcessMTL(robust_step_size=0.7, n_warmup_steps=1)
    other = torch.stack([theirs(J) for J in tables[:, 0]])
    # they add 1e-7 to the unit
    torch.testing.assert_close(
        directions(ExcessMTL(weight_step=0.7), tables)[:, 0], -other, rtol=1e-5, atol=0
    )


def test_constant_gradients_keep_the_weights() -> None:
    """s = t g^2, so that E / E^0 = 1 / sqrt(t) for every objective, whatever its size."""
    J = torch.tensor([[1.0, -2.0], [50.0, 0.0], [3.0, 3.0]], dtype=DTYPE)
    found = directions(ExcessMTL(), J.expand(STEPS, 1, M, 2))
    torch.testing.assert_close(found, -J.mean(0).expand_as(found), rtol=1e-6, atol=0)


def test_a_gradient_of_zero_has_no_unit() -> None:
    """0 / 0 would be NaN."""
    J = torch.ones(STEPS, 1, M, 2, dtype=DTYPE)
    J[:3, :, 0] = 0.0
    assert directions(ExcessMTL(), J).isfinite().all()
