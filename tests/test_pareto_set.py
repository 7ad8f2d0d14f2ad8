"""COSMOS and Pareto hypernetworks: a plain loop, autograd, TorchJD's scalar, the fronts they should find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.cosmos import COSMOS
from mobench.algorithms.pareto_set import Model, ParetoSet, _whole
from mobench.algorithms.phn import PHN
from mobench.core import Box, Problem, Runs, loop
from mobench.core.compatibility import reasons
from mobench.core.output import make_output
from mobench.core.preferences import ray, spread
from mobench.core.random import generator
from mobench.errors import ConfigError
from mobench.oracles import Exact
from mobench.problems import DTLZ2, VLMOP2, ZDT2
from tests.reference import pareto_set, problems

FLOAT = torch.float64
METHODS: dict[str, ParetoSet] = {
    "cosmos": COSMOS(penalty=0.7, hidden=8, lr=0.01),
    "cosmos, as published": COSMOS(penalty=0.7, hidden=8, lr=0.01, toward="preference", concentration=1.2),
    "phn-ls": PHN(hidden=8, lr=0.01),
    "phn-epo": PHN(rule="epo", hidden=8, lr=0.01),
}
RULES: dict[str, pareto_set.Rule] = {
    "cosmos": pareto_set.cosine(0.7, lambda w: 1.0 / w),
    "cosmos, as published": pareto_set.cosine(0.7, lambda w: w),
    "phn-ls": pareto_set.linear,
    "phn-epo": pareto_set.exact,
}


def follow(p: Problem, method: ParetoSet, runs: Runs, steps: int) -> tuple[dict[str, Any], list[Tensor]]:
    """The last state, and theta at every step."""
    oracle = Exact(p, runs)
    xs: list[Tensor] = []
    state = loop.start(oracle, method, {"last": make_output("last")}, oracle.initial(runs), runs, steps)
    rules = {"last": make_output("last")}
    state = loop.advance(oracle, method, rules, state, steps, lambda t, s, _: xs.append(s["theta"].clone()))
    return state, [*xs, state["theta"]]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("box", [False, True], ids=["free", "box"])
def test_a_plain_loop_trains_the_same_network(name: str, box: bool) -> None:
    """Two seeds of three runs, each against a loop over samples with whole gradients."""
    p: Problem = DTLZ2(M=3, n=5) if box else VLMOP2(n=4)
    theirs = problems.DTLZ2(5) if box else problems.VLMOP2(4)
    method = METHODS[name]
    M = p.n_objectives
    runs = Runs.product(spread(3, M), [3, 8])
    steps = 12
    state, xs = follow(p, method, runs, steps)
    assert state["alive"].all()
    for seed in (3, 8):
        mine = torch.nonzero(runs.seeds == seed).flatten()
        draws = []
        for t in range(steps - 1):
            rng = generator(seed, use="pareto-set-preferences", step=t)
            drawn = np.maximum(rng.dirichlet([float(method.concentration)] * M, 3), 1e-3)
            draws.append(drawn / drawn.sum(1, keepdims=True))
        rng = generator(seed, use="pareto-set")
        layers = []
        for n, k in ((M, 8), (8, 8), (8, p.dim)):
            both = rng.uniform(-(n**-0.5), n**-0.5, (n + 1) * k)
            layers.append((both[: n * k].reshape(n, k), both[n * k :]))
        network = pareto_set.Network(layers, (0.0, 1.0) if box else None, xs[0][mine[0]].numpy())
        training = pareto_set.train(theirs, network, RULES[name], draws, runs.weights[mine].numpy(), 0.01)
        for t, points in enumerate(training.points):
            np.testing.assert_allclose(xs[t + 1][mine], points, rtol=0, atol=1e-7, err_msg=f"step {t}")
        np.testing.assert_allclose(xs[-1][mine], training.answers, rtol=0, atol=1e-7)
        whole = _whole(state["alg"]["phi"][mine], torch.arange(3)[None], len(training.parameters[-1]))
        np.testing.assert_allclose(whole[0], training.parameters[-1], rtol=0, atol=1e-7)


@pytest.mark.parametrize("box", [None, Box(-1.0, 3.0)], ids=["free", "box"])
def test_closed_form_derivatives_are_autograds(box: Box | None) -> None:
    model = Model(3, 6, 5, box)
    g = torch.Generator().manual_seed(0)
    phi = torch.randn(2, model.size, generator=g, dtype=FLOAT)
    w = torch.rand(2, 4, 3, generator=g, dtype=FLOAT)
    origin = torch.randn(2, 5, generator=g, dtype=FLOAT)
    at = model.forward(phi, w, origin)
    rows = torch.randn(2, 4, 3, 5, generator=g, dtype=FLOAT)
    by = model.backward(phi, at, rows)

    def value(f: Tensor) -> Tensor:
        return (rows @ model.forward(f, w, origin).x.unsqueeze(-1)).squeeze(-1)

    whole = torch.autograd.functional.jacobian(value, phi)  # (S, K, m, S, n)
    by_hand = torch.stack([whole[s, :, :, s] for s in range(2)])
    torch.testing.assert_close(model.gramian(at, by), by_hand @ by_hand.mT)
    one = model.backward(phi, at, rows[:, :, :1])
    torch.testing.assert_close(model.gradient(at, one), by_hand[:, :, 0].sum(1))


@pytest.mark.parametrize("toward", ["ray", "preference"])
def test_weights_of_cosmos_are_the_derivative_of_torchjds_value(toward: str) -> None:
    scalarization = pytest.importorskip("torchjd.scalarization")
    g = torch.Generator().manual_seed(0)
    F = torch.rand(5, 3, generator=g, dtype=FLOAT)
    w = spread(5, 3)
    u = COSMOS(penalty=2.0, toward=toward).combine(F, None, w)[0]
    for r in range(5):
        f = F[r].clone().requires_grad_(True)
        v = w[r] if toward == "preference" else ray(w)[r]
        value = scalarization.COSMOS(2.0, v)(f)
        if toward == "ray":  # TorchJD's linear term has the same vector
            value = value - v @ f + w[r] @ f
        (slope,) = torch.autograd.grad(value, f)
        torch.testing.assert_close(u[r], slope)
    assert COSMOS().combine(torch.zeros(1, 3, dtype=FLOAT), None, w[:1])[0].isfinite().all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="outputs"):
        PHN(outputs=["mean"])
    with pytest.raises(ConfigError, match="rule"):
        PHN(rule="mgda")
    for bad in ({"hidden": 0}, {"lr": 0.0}, {"penalty": -1.0}, {"toward": "up"}, {"concentration": 0.0}):
        with pytest.raises(ConfigError):
            COSMOS(**bad)
    runs = Runs.product(spread(3, 2), [0, 1])
    spec = Exact(ZDT2(n=4), runs).spec
    assert any("step_size" in reason for reason in reasons(spec, PHN(step_size=0.1)))
    with pytest.raises(ConfigError, match="equally many"):
        follow(ZDT2(n=4), PHN(), runs.take([0, 1, 2]), 3)
