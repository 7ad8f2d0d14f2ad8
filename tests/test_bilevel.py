"""Bilevel problems, hypergradient oracles and their methods: against tests/reference/bilevel.py (NumPy loops
written from the specification without sight of the package), closed forms, automatic differentiation and
CVXPY. Numbers in brackets: the property of the specification.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.algorithms.forum import FORUM
from mobench.algorithms.moco import MoCo
from mobench.algorithms.wc_mhgd import WCMHGD
from mobench.core import Runs, loop
from mobench.core.bilevel import Bilevel, GraphView, newton
from mobench.core.cg import conjugate_gradients
from mobench.core.compatibility import check
from mobench.core.preferences import resolve
from mobench.core.sets import Ball, Box, Set
from mobench.errors import CompatibilityError, ConfigError, PreferenceError, SolverError
from mobench.oracles import EMA, Exact, Hypergradient, ValueGap
from mobench.oracles import hypergradient as hypergradient_module
from mobench.problems import VLMOP2, BilevelQuadratic, HyperCleaning
from tests.reference import bilevel as reference

S = 5
P = 8
Q = 6
R_1 = [0.8, 0.05, 0.05, 0.05, 0.05]
R_3 = [0.05, 0.05, 0.8, 0.05, 0.05]
UNIFORM = [0.2] * 5


def runs_of(*weights: list[float], seeds: tuple[int, ...] = (0,)) -> Runs:
    return Runs.product(torch.tensor(weights, dtype=torch.float64), seeds)


def numpy_of(problem: BilevelQuadratic) -> reference.QuadraticBilevel:
    c = problem.constants()
    return reference.QuadraticBilevel(*(t.numpy() for t in (c.A, c.B, c.c, c.C, c.E, c.t)))


def trained(
    oracle: Any, algorithm: Any, theta: Tensor, runs: Runs, steps: int
) -> tuple[Tensor, dict[str, Any], list[Any]]:
    """Iterates (steps + 1, R, P), the last state, and the algorithm's states before each step."""
    state = loop.start(oracle, algorithm, {}, theta, runs, steps)
    path = []
    states = []

    def observe(t: int, now: dict[str, Any], point: Any) -> None:
        path.append(now["theta"].clone())
        states.append({k: v.clone() for k, v in now["alg"].items()})

    state = loop.advance(oracle, algorithm, {}, state, steps, observe)
    return torch.stack([*path, state["theta"]]), state, states


@pytest.fixture(scope="module")
def quadratic() -> BilevelQuadratic:
    return BilevelQuadratic(tasks=S, variables=P, lower=Q)


@pytest.fixture(scope="module")
def two(quadratic: BilevelQuadratic) -> tuple[Runs, Tensor]:
    runs = runs_of(R_1, R_3, seeds=(0, 1))
    return runs, quadratic.initial(runs)


# hypergradients


@pytest.mark.parametrize("R", [1, 3])
def test_closed_forms_are_those_of_automatic_differentiation(quadratic: BilevelQuadratic, R: int) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(R, P, generator=rng).double()
    y = torch.randn(R, 1, Q, generator=rng).double()
    v = torch.randn(R, S, Q, generator=rng).double()
    closed = quadratic.view(x)
    graph = GraphView(x, quadratic.f, quadratic.g)
    torch.testing.assert_close(closed.lower(y), graph.lower(y))
    torch.testing.assert_close(closed.lower_gradient(y), graph.lower_gradient(y))
    torch.testing.assert_close(closed.lower_hvp(y, v), graph.lower_hvp(y, v))
    torch.testing.assert_close(closed.lower_x(y), graph.lower_x(y))
    for a, b in zip(closed.upper(y), graph.upper(y), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(closed.jacobian(y, []), graph.jacobian(y, []))
    torch.testing.assert_close(
        closed.jacobian(y, [(y, v), (2 * y, v * v)]), graph.jacobian(y, [(y, v), (2 * y, v * v)])
    )


def test_second_derivatives_of_two_blocks_and_of_two_columns() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y, v = (torch.randn(3, *shape, generator=rng).double() for shape in ((2,), (2, Q), (2, Q)))
    blocks = GraphView(x, lambda x, y: y.sum(-1), lambda x, y: x.exp() * y.square().sum(-1))
    torch.testing.assert_close(blocks.lower_hvp(y, v), 2 * x.exp().unsqueeze(2) * v)
    shared = GraphView(x, lambda x, y: y.sum(-1), lambda x, y: x[:, :1].exp() * y.square().sum(-1))
    torch.testing.assert_close(shared.lower_hvp(y[:, :1], v), 2 * x[:, :1].exp().unsqueeze(2) * v)


def test_exact_values_and_cg_in_q_steps_are_the_closed_form(
    quadratic: BilevelQuadratic, two: tuple[Runs, Tensor]
) -> None:
    """[1]"""
    runs, x = two
    plain = numpy_of(quadratic)
    oracle = Hypergradient(quadratic, runs, method="cg", cg_steps=Q, inner_steps=400, inner_step=0.4)
    point = oracle.at(x, oracle.init(x), 0)
    exact = Exact(quadratic, runs).at(x, {}, 0)
    for r in range(len(runs)):
        np.testing.assert_allclose(
            point.jacobian()[r], plain.hypergradients(x[r].numpy()), rtol=1e-10, atol=1e-10
        )
        np.testing.assert_allclose(
            exact.jacobian()[r], plain.hypergradients(x[r].numpy()), rtol=1e-10, atol=1e-10
        )
        np.testing.assert_allclose(oracle.exact(x)[r], plain.phi(x[r].numpy()), rtol=1e-12)


def test_one_step_of_cg_goes_along_the_right_side(
    quadratic: BilevelQuadratic, two: tuple[Runs, Tensor]
) -> None:
    """With v_0 = 0: v = b <b, b> / <b, H b>; fewer steps are refused."""
    runs, x = two
    plain = numpy_of(quadratic)
    oracle = Hypergradient(quadratic, runs, method="cg", cg_steps=1, inner_steps=3, inner_step=0.4)
    rows = oracle.at(x, oracle.init(x), 0).jacobian()
    for r in range(len(runs)):
        y = plain.inner(x[r].numpy(), np.zeros(Q), 0.4, 3)[-1]
        b = plain.grad_y_f(x[r].numpy(), y)
        share = (b * b).sum(1, keepdims=True) / (b @ plain.hyy() * b).sum(1, keepdims=True)
        wanted = plain.grad_x_f(x[r].numpy(), y) - share * b @ plain.jxy().T
        np.testing.assert_allclose(rows[r], wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("D", [1, 4, 16])
def test_itd_is_the_derivative_of_the_inner_steps(
    quadratic: BilevelQuadratic, two: tuple[Runs, Tensor], D: int
) -> None:
    """[1]"""
    runs, x = two
    oracle = Hypergradient(quadratic, runs, inner_steps=D, inner_step=0.4)
    rows = oracle.at(x, oracle.init(x), 0).jacobian()
    plain = numpy_of(quadratic)
    for r in range(len(runs)):
        ys = plain.inner(x[r].numpy(), np.zeros(Q), 0.4, D)
        np.testing.assert_allclose(
            rows[r], plain.itd_hypergradients(x[r].numpy(), ys, 0.4), rtol=1e-11, atol=1e-11
        )


def test_cg_residuals_fall_and_a_solution_is_returned_unchanged() -> None:
    """[2] Error in the A-norm nonincreasing; exact in q steps; warm start."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 3, 12, 12))
    H = torch.from_numpy(root @ root.swapaxes(-1, -2) / 12 + 0.1 * np.eye(12))
    b = torch.from_numpy(rng.standard_normal((4, 3, 12)))

    def apply(v: Tensor) -> Tensor:
        return (H @ v.unsqueeze(-1)).squeeze(-1)

    exact = torch.linalg.solve(H, b.unsqueeze(-1)).squeeze(-1)
    norms = []
    for n in range(1, 13):
        error = conjugate_gradients(apply, b, steps=n) - exact
        norms.append((error * apply(error)).sum(-1))
    falls = torch.stack(norms)
    assert (falls[1:] <= falls[:-1] * (1 + 1e-9) + 1e-20).all()
    torch.testing.assert_close(conjugate_gradients(apply, b, steps=24), exact, rtol=1e-8, atol=1e-8)
    solved = conjugate_gradients(apply, b, steps=60)
    assert torch.equal(conjugate_gradients(apply, b, solved, steps=60), solved)
    some = conjugate_gradients(apply, b, torch.ones_like(b), steps=5)
    for r in range(4):
        for k in range(3):
            single = reference.conjugate_gradient(
                lambda v, r=r, k=k: H[r, k].numpy() @ v, b[r, k].numpy(), np.ones(12), 5
            )
            np.testing.assert_allclose(some[r, k], single[-1], rtol=1e-9, atol=1e-9)


def test_cg_stops_at_negative_curvature_and_not_at_nan() -> None:
    H = torch.diag(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)).expand(2, 3, 3)
    b = torch.ones(2, 1, 3, dtype=torch.float64)
    with pytest.raises(SolverError, match=r"curvature .* <= 0 \(run 0, column 1\).*not strongly convex"):
        conjugate_gradients(lambda v: v @ H, torch.tensor([[[0.0, 1.0, 0.0]]] * 2, dtype=torch.float64))
    b[0] = torch.nan
    b[1] = torch.tensor([1.0, 0.0, 1.0])
    solution = conjugate_gradients(lambda v: v @ H, b, steps=4)
    torch.testing.assert_close(solution[1, 0], torch.tensor([1.0, 0.0, 1.0 / 3.0], dtype=torch.float64))


def test_a_lower_level_that_is_not_convex_is_a_failed_solve() -> None:
    class Saddle(BilevelQuadratic):
        """g with one direction of negative curvature; no closed form."""

        def g(self, x: Tensor, y: Tensor) -> Tensor:
            return super().g(x, y) - 3.0 * y[..., 0].square()

        def view(self, x: Tensor, batch: Tensor | None = None) -> Any:
            return GraphView(x, self.f, self.g)

    problem = Saddle()
    runs = runs_of(UNIFORM)
    oracle = Hypergradient(problem, runs, method="cg", inner_steps=1)
    x = problem.initial(runs)
    with pytest.raises(SolverError, match="not strongly convex"):
        oracle.at(x, oracle.init(x), 0).jacobian()


@pytest.mark.parametrize("terms", [0, 1, 3, 30])
def test_neumann_series_is_its_polynomial(
    quadratic: BilevelQuadratic, two: tuple[Runs, Tensor], terms: int
) -> None:
    """[3] With full batches: v = eta sum_{i <= Q} (I - eta H)^i v0."""
    runs, x = two
    plain = numpy_of(quadratic)
    oracle = Hypergradient(
        quadratic, runs, method="neumann", neumann_steps=terms, inner_steps=3, inner_step=0.4
    )
    rows = oracle.at(x, oracle.init(x), 0).jacobian()
    for r in range(len(runs)):
        y = plain.inner(x[r].numpy(), np.zeros(Q), 0.4, 3)[-1]
        wanted = plain.neumann_hypergradients(x[r].numpy(), y, 0.5, terms)
        np.testing.assert_allclose(rows[r], wanted, rtol=1e-11, atol=1e-11)


def test_neumann_batches_shrink_and_hold_at_least_one() -> None:
    """[3]"""
    sizes = hypergradient_module.batch_sizes(100, 3, 0.5, 0.2, 20000)
    assert sizes == [300, 270, 243]
    assert np.abs(np.array(sizes) - reference.neumann_batch_sizes(100, 3, 0.5, 0.2)).max() < 1
    assert hypergradient_module.batch_sizes(1, 12, 0.9, 1.0, 20000)[-1] == 1
    assert hypergradient_module.batch_sizes(100, 3, 0.5, 0.2, 250) == [250, 250, 243]


# the weights


@pytest.mark.parametrize("u", [0.0, 0.1, 10.0, 1e4])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_weights_are_those_of_enumeration_and_cvxpy(u: float, scale: float) -> None:
    """[4] [6] [7]"""
    rng = np.random.default_rng(1)
    for trial in range(12):
        J = scale * rng.standard_normal((S, 10)) + (
            2.0 * scale * rng.standard_normal(10) if trial % 2 else 0.0
        )
        phi = rng.uniform(0.1, 3.0, S)
        r = rng.dirichlet(np.ones(S)) + 1e-3
        if trial % 3 == 0:
            r = np.array([0.01, 0.01, 0.96, 0.01, 0.01])
        r /= r.sum()
        state = {"r": torch.from_numpy(r)[None], "lam": torch.zeros(1, S)}
        F = torch.from_numpy(phi)[None]
        G = torch.from_numpy(J @ J.T)[None]
        w, state, info = WCMHGD(trade_off=u).weights(F, G, state, 0)
        lam = state["lam"][0].numpy()
        assert info.fail is not None
        assert not bool(info.fail.any())
        np.testing.assert_allclose(w[0], r * lam)
        assert abs(lam.sum() - 1) < 1e-12
        assert (lam >= 0).all()
        assert reference.wc_kkt(J, phi, r, u, lam) < 1e-8
        wanted = reference.wc_weights(J, phi, r, u)
        np.testing.assert_allclose(w[0].numpy() @ J, (r * wanted) @ J, rtol=1e-6, atol=1e-8 * scale)

        def value(z: np.ndarray, J: Any = J, r: Any = r, phi: Any = phi) -> float:
            return float(np.square((r * z) @ J).sum() - u * (r * phi) @ z)

        assert all(value(lam) <= value(e) + 1e-12 * (1 + abs(value(e))) for e in np.eye(S))
        # 2 r_s <d, grad phi_s> >= 2 |d|^2 + u (r_s phi_s - lambda'(r phi)), equality on the support
        d = (r * lam) @ J
        gap = 2 * r * (J @ d) - 2 * d @ d - u * (r * phi - lam @ (r * phi))
        unit = np.abs(2 * r * (J @ d)).max() + 2 * d @ d + u * (r * phi).max()
        assert gap.min() >= -1e-6 * unit
        assert np.abs(gap[lam > 1e-9]).max() <= 1e-6 * unit
        if trial < 3:
            reference_weights = WCMHGD(trade_off=u, subproblem="cvxpy").weights(F, G, state, 0)[0][0].numpy()
            assert value(lam) <= value(reference_weights / r) + 1e-7 * (abs(value(lam)) + scale**2)


# trajectories


@pytest.mark.parametrize("method", ["cg", "itd", "neumann"])
@pytest.mark.parametrize("warm", [True, False])
def test_wc_mhgd_follows_the_reference(
    quadratic: BilevelQuadratic, two: tuple[Runs, Tensor], method: str, warm: bool
) -> None:
    runs, x = two
    options: dict[str, Any] = {"warm_start": warm, "method": method, "cg_steps": 4, "neumann_steps": 5}
    oracle = Hypergradient(quadratic, runs, inner_steps=8, inner_step=0.4, **options)
    path, state, _ = trained(oracle, WCMHGD(trade_off=0.5), x, runs, 20)
    for run in range(len(runs)):
        start = (numpy_of(quadratic), x[run].numpy(), np.zeros(Q), 20, 8)
        options = {"hypergradient": method, "N": 4, "eta": 0.5, "Q": 5, "warm_start": warm}
        r = runs.weights[run].numpy()
        wanted = reference.wc_mhgd(*start, alpha=0.4, beta=0.1, r=r, u=0.5, **options)
        np.testing.assert_allclose(path[:, run], wanted.x[: len(path)], rtol=1e-8, atol=1e-8)
    assert int(state["fail"].sum()) == 0


@pytest.mark.parametrize("variant", ["exact", "official"])
def test_forum_follows_the_reference(
    quadratic: BilevelQuadratic, two: tuple[Runs, Tensor], variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 30 steps from the reference's own state to 1e-9, and the first 20 one after the other.

    Not the whole path: both solve every program to 1e-15, but nu divides by |grad q|^2, small near the lower
    level's solution, and such a step stretches a difference of 1e-16 by up to 1e10 (measured: two processors
    differ by 6e-7 after 31 steps).
    """
    monkeypatch.setattr("mobench.algorithms.forum.SMALL", 0.0)
    runs, x = two
    oracle = ValueGap(quadratic, runs, inner_steps=8, inner_step=0.05)
    theta = torch.cat([x, torch.zeros(len(x), Q, dtype=torch.float64)], dim=1)
    algorithm = FORUM(variant=variant, step_size=0.05)
    path, state, states = trained(oracle, algorithm, theta, runs, 20)
    assert int(state["fail"].sum()) == 0
    starts = [(numpy_of(quadratic), row.numpy(), np.zeros(Q), 30, 8) for row in x]
    wanted = [reference.forum(*start, alpha=0.05, beta=0.05, variant=variant, eps=0.0) for start in starts]
    for run in range(len(x)):
        np.testing.assert_allclose(path[:, run], wanted[run].w[:21], rtol=1e-6, atol=1e-7)
    w, lam = (
        torch.from_numpy(np.stack(steps, 1)) for steps in ([a.w for a in wanted], [a.lambdas for a in wanted])
    )
    for k in range(30):
        known = {"lam": lam[k - 1] if k else states[0]["lam"], "nu": states[0]["nu"]}
        before = loop.start(oracle, algorithm, {}, w[k], runs, 30) | {"t": k, "alg": known}
        after = loop.advance(oracle, algorithm, {}, before, k + 1)
        torch.testing.assert_close(after["theta"], w[k + 1], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(after["alg"]["lam"], lam[k], rtol=0, atol=1e-9)
        assert int(after["fail"].sum()) == 0


def test_forum_programs_against_enumeration() -> None:
    from mobench.algorithms.forum import exact_weights, official_weights

    rng = np.random.default_rng(3)
    kinks = 0
    for trial in range(40):
        J = rng.standard_normal((3, 6))
        q = rng.standard_normal(6) * 10.0 ** rng.uniform(-1, 1)
        rho = float(10.0 ** rng.uniform(-1.5, 0.3))
        # grad F = (lambda, 2 lambda - 1), pi'lambda = rho - lambda: the kink lies between both slopes
        if trial == 0:
            rho = 0.42
            q = np.eye(6)[0]
            J = np.zeros((3, 6))
            J[0, :2] = (1, 1)
            J[1, :2] = (0, -1)
            J[2, :2] = (0, -9)
        elif trial % 2:
            J += 3.0 * q / np.linalg.norm(q) * rng.uniform(0, 1)
        every = torch.from_numpy(np.vstack([J, q]))[None]
        G = every @ every.mT
        pi = rho - torch.from_numpy(J @ q / (q @ q))[None]
        for variant, solve in (("exact", exact_weights), ("official", official_weights)):
            solution = solve(G, pi, torch.tensor([rho], dtype=torch.float64))
            wanted = reference.forum_dual(J, q, rho, variant, 0.0)
            lam = np.asarray(wanted.z if hasattr(wanted, "z") else wanted)[:3]
            assert not bool(solution.failed.any())

            def value(
                lam: np.ndarray,
                variant: str = variant,
                J: Any = J,
                q: Any = q,
                rho: float = rho,
                pi: Any = pi,
            ) -> float:
                nu = max(float(pi[0].numpy() @ lam), 0.0)
                return float(
                    np.square(lam @ J + nu * q).sum() - (2 if variant == "exact" else 1) * nu * rho * q @ q
                )

            assert value(solution.x[0].numpy()) <= value(lam) + 1e-8 * (1 + abs(value(lam)))
            kinks += variant == "official" and abs(float(pi[0].numpy() @ solution.x[0].numpy())) < 1e-9
    assert kinks > 0  # all three branches were taken


def test_moco_follows_the_reference(quadratic: BilevelQuadratic, two: tuple[Runs, Tensor]) -> None:
    runs, x = two
    inner = Hypergradient(
        quadratic, runs, method="neumann", inner_steps=1, inner_step=0.4, neumann_steps=3, neumann_step=0.5
    )
    oracle = EMA(quadratic, runs, inner, decay=0.5, scale=0.5, offset=1.0)
    path, _, _ = trained(oracle, MoCo(weight_step=0.1, step_size=0.1), x, runs, 30)
    for run in range(2):
        start = (numpy_of(quadratic), x[run].numpy(), np.zeros(Q), 30)
        wanted = reference.moco(*start, alpha=0.4, beta=0.1, eta=0.5, Q=3, b0=0.5, gamma0=0.1)
        np.testing.assert_allclose(path[:, run], wanted.x[:31], rtol=1e-8, atol=1e-8)


# data hyper-cleaning


@pytest.fixture(scope="module")
def cleaning() -> HyperCleaning:
    return HyperCleaning(
        train_size=40, validation_size=30, test_size=20, rates=(0.0, 0.3, 0.6), shrink=7, reg=0.1
    )


def plain_cleaning(problem: HyperCleaning, seed: int) -> reference.HyperCleaning:
    base = problem.images
    split = problem.labels_of(seed)

    def pixels(index: Tensor) -> np.ndarray:
        x = base.train[index].double() / 255.0
        side = x.shape[-1] // problem.shrink
        return x.view(len(index), side, problem.shrink, side, problem.shrink).mean((2, 4)).flatten(1).numpy()

    labels = base.train_labels[split.validation].numpy()
    return reference.HyperCleaning(
        pixels(split.train), split.labels.numpy(), pixels(split.validation), labels, 10, problem.reg
    )


def matrices(y: Tensor, d: int) -> np.ndarray:
    """(S, q) as the reference's (S, d, 10)."""
    return y.view(len(y), 10, d).transpose(1, 2).numpy()


def test_cleaning_agrees_with_the_reference(cleaning: HyperCleaning) -> None:
    """[14] Values, gradients, Hessian and cross products, for two seeds in one batch, full and sampled."""
    runs = runs_of([0.2, 0.3, 0.5], [0.5, 0.3, 0.2], seeds=(0, 4))
    bound = cleaning.bind(runs)
    d = cleaning.pixels
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4, cleaning.dim, generator=rng).double()
    y, v = (torch.randn(4, 3, cleaning.lower_dim, generator=rng).double() for _ in range(2))
    batch = torch.randint(0, 40, (2, 9), generator=rng)[torch.tensor([0, 1, 0, 1])]
    for index in (None, batch):
        view = bound.view(x, index)
        F, slopes = view.upper(y)
        gradient = view.lower_gradient(y)
        product = view.lower_hvp(y, v)
        for run in range(4):
            plain = plain_cleaning(cleaning, int(runs.seeds[run]))
            W = matrices(y[run], d)
            V = matrices(v[run], d)
            some = None if index is None else index[run].numpy()
            close = {"rtol": 1e-10, "atol": 1e-12}
            np.testing.assert_allclose(view.lower(y)[run], plain.lower(x[run].numpy(), W, some), **close)
            np.testing.assert_allclose(
                matrices(gradient[run], d), plain.lower_grad(x[run].numpy(), W, some), **close
            )
            np.testing.assert_allclose(F[run], plain.upper(W), **close)
            np.testing.assert_allclose(matrices(slopes[run], d), plain.upper_grad(W), **close)
            for s in range(3):
                wanted = plain.hvp(x[run].numpy(), W, s, V[s], some)
                np.testing.assert_allclose(product[run, s].view(10, d).T, wanted, **close)
                if index is None:
                    cross = -plain.jxy(x[run].numpy(), W, s, V[s])
                    np.testing.assert_allclose(view.jacobian(y, [(y, v)])[run, s], cross, **close)


def test_cleaning_series_on_batches_is_the_reference(cleaning: HyperCleaning) -> None:
    """[3] Algorithm 3 with its own batches; preferences of a seed see the same."""
    runs = runs_of([0.2, 0.3, 0.5], [0.6, 0.2, 0.2])
    oracle = Hypergradient(
        cleaning, runs, inner_steps=4, lower_batch=7, method="neumann", neumann_steps=3, neumann_batch=3
    )
    x = torch.randn(2, 40, generator=torch.Generator().manual_seed(3)).double()
    x[1] = x[0]
    point = oracle.at(x, oracle.init(x), 5)
    assert torch.equal(point.jacobian()[0], point.jacobian()[1])
    plain = plain_cleaning(cleaning, 0)
    d = cleaning.pixels
    batches = list(oracle._draw("lower", 5, 28)[0].view(4, 7).numpy())
    W = plain.inner(x[0].numpy(), np.zeros((3, d, 10)), 0.1, 4, batches)[-1]
    np.testing.assert_allclose(matrices(point.y[0], d), W, rtol=1e-10, atol=1e-12)
    assert oracle.sizes is not None
    chosen = [
        oracle._draw(f"neumann{i}", 5, size)[0].numpy()
        for i, size in zip((3, 2, 1), oracle.sizes, strict=True)
    ]
    wanted = plain.neumann(x[0].numpy(), W, 0.5, 3, chosen)
    np.testing.assert_allclose(point.jacobian()[0], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("chosen", [[0, 1, 2, 3, 4, 5], [1, 0, 3, 4], [4, 1, 5], [0, 1, 2, 5, 4]])
def test_cleaning_runs_may_lie_in_any_order(cleaning: HyperCleaning, chosen: list[int]) -> None:
    """Runs of a seed are read by slices or by indices: the rows are those of each run alone."""
    runs = runs_of([0.2, 0.3, 0.5], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8], seeds=(0, 4))
    options: dict[str, Any] = {"inner_steps": 4, "lower_batch": 15, "method": "neumann", "neumann_batch": 5}
    x = torch.randn(6, 40, generator=torch.Generator().manual_seed(5)).double()
    oracle = Hypergradient(cleaning, runs.take(chosen), **options)
    rows = oracle.at(x[chosen], oracle.init(x[chosen]), 0).jacobian()
    for k, r in enumerate(chosen):
        alone = Hypergradient(cleaning, runs.take([r]), **options)
        alone_rows = alone.at(x[r : r + 1], alone.init(x[r : r + 1]), 0).jacobian()
        torch.testing.assert_close(rows[k], alone_rows[0], rtol=1e-10, atol=1e-15)


def test_labels_are_wrong_where_they_should_be() -> None:
    """[14] lambda = 0 gives weights 1/2; shares lie within 3 sigma; wrong labels differ; masks are nested."""
    problem = HyperCleaning(train_size=1000, validation_size=400, shrink=7)
    assert float(torch.sigmoid(problem.initial(runs_of(UNIFORM))).min()) == 0.5
    split = problem.labels_of(0)
    truth = problem.images.train_labels[split.train]
    for s, p in enumerate(problem.rates):
        share = float(split.wrong[s].double().mean())
        assert abs(share - p) <= 3 * (p * (1 - p) / 1000) ** 0.5
        assert bool(((split.labels[s] != truth) == split.wrong[s].bool()).all())
    assert not set(split.train.tolist()) & set(split.validation.tolist())
    nested = HyperCleaning(train_size=1000, validation_size=400, shrink=7, masks="nested").labels_of(0).wrong
    assert bool((nested[:-1] <= nested[1:]).all())
    assert split.digest != problem.labels_of(1).digest


def test_cleaning_columns_and_newton(cleaning: HyperCleaning) -> None:
    runs = runs_of([0.2, 0.3, 0.5])
    oracle = Hypergradient(cleaning, runs, inner_steps=2)
    x = cleaning.initial(runs)
    y = oracle.solve(x)
    assert float(oracle.problem.view(x).lower_gradient(y).abs().max()) < 1e-9
    columns = oracle.columns(x, oracle.exact(x))
    assert columns["weight_right_1"].tolist() == [0.5]
    assert bool(columns["weight_wrong_1"].isnan())
    assert columns["weight_wrong_3"].tolist() == [0.5]
    single = newton(oracle.problem.view(x.float()), y.float() * 0)
    torch.testing.assert_close(single.double(), y, rtol=1e-3, atol=1e-4)


def test_a_lower_level_that_is_not_solved_is_said_and_nothing_else_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Flat(BilevelQuadratic):
        """g without a minimum for runs with x_1 > 0; no closed form."""

        def g(self, x: Tensor, y: Tensor) -> Tensor:
            return (
                super().g(x, y) * torch.where(x[:, :1] > 0, 0.0, 1.0)
                + torch.where(x[:, :1] > 0, 1.0, 0.0) * y[..., 0]
            )

        def view(self, x: Tensor, batch: Tensor | None = None) -> Any:
            return GraphView(x, self.f, self.g)

        def solve(self, x: Tensor) -> Tensor:
            return newton(self.view(x), x.new_zeros(len(x), 1, Q))

    problem = Flat()
    runs = runs_of(UNIFORM, UNIFORM)
    x = problem.initial(runs)
    x[0, 0] = 1.0
    x[1, 0] = -1.0
    oracle = Hypergradient(problem, runs)
    values = oracle.exact(x)
    assert bool(values[0].isnan().all())
    wanted = problem.f(x, BilevelQuadratic.solve(problem, x))
    torch.testing.assert_close(values[1], wanted[1], rtol=1e-8, atol=1e-8)
    assert "was not solved exactly for runs [0]" in capsys.readouterr().err


def test_the_example_of_contributing_is_a_problem() -> None:
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    match = re.search(
        r"```python\n(@dataclass\(frozen=True, kw_only=True\)\nclass Ridge.*?)```", text, re.DOTALL
    )
    assert match is not None
    rng = torch.Generator().manual_seed(0)
    A = torch.randn(3, 5, 4, generator=rng).double()
    b = torch.randn(3, 5, generator=rng).double()
    names: dict[str, Any] = {"dataclass": dataclass, "Bilevel": Bilevel, "torch": torch, "A": A, "b": b}
    exec(match.group(1), names)
    problem = names["Ridge"]()
    runs = runs_of([0.6, 0.2, 0.2], seeds=(0, 1))
    x = problem.initial(runs)
    oracle = Hypergradient(problem, runs, method="cg", inner_step=0.005, inner_steps=2000)
    rows = oracle.at(x, oracle.init(x), 0).jacobian().squeeze(2)
    slope = (oracle.exact(x + 1e-5) - oracle.exact(x - 1e-5)) / 2e-5
    torch.testing.assert_close(rows, slope, rtol=1e-5, atol=1e-6)


# what does not fit


def test_refusals() -> None:
    quadratic = BilevelQuadratic()
    runs = runs_of(UNIFORM)
    with pytest.raises(CompatibilityError, match="no lower level"):
        Hypergradient(VLMOP2(), Runs.product(torch.tensor([[0.5, 0.5]]).double(), [0]))
    with pytest.raises(
        CompatibilityError,
        match=r"does not solve the lower level of HyperCleaning. Choose oracle=hypergradient",
    ):
        Exact(HyperCleaning(shrink=7), runs)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"inner_steps": 0}, "inner_steps=0 must be at least 1"),
        ({"inner_step": 0.0}, "inner_step=0.0 must be > 0"),
        ({"method": "newton"}, "oracle.method='newton' is unknown"),
        ({"cg_steps": 0}, "cg_steps=0"),
        ({"neumann_steps": -1}, "neumann_steps=-1"),
        ({"neumann_step": 0.0}, "neumann_step=0.0"),
        ({"lower_batch": 5}, "it is deterministic"),
        ({"neumann_batch": 5}, "neumann_batch=5 must lie in 1..0.*deterministic: set it to null"),
    ]
    for options, message in cases:
        with pytest.raises(ConfigError, match=message):
            Hypergradient(quadratic, runs, **options)
    with pytest.raises(ConfigError, match="itd differentiates inner steps on all samples"):
        Hypergradient(HyperCleaning(shrink=7), runs, lower_batch=5)
    with pytest.raises(CompatibilityError, match="exactly one constraint"):
        check(Hypergradient(quadratic, runs).spec, FORUM())
    with pytest.raises(CompatibilityError, match="constraints"):
        check(ValueGap(quadratic, runs).spec, WCMHGD())
    with pytest.raises(PreferenceError, match="open simplex"):
        resolve({"weights": [[0.0, 0.25, 0.25, 0.25, 0.25]]}, 5)
    with pytest.raises(ConfigError, match="rates"):
        HyperCleaning(rates=(0.0, 1.0))
    with pytest.raises(ConfigError, match=r"need 2000 images, but scikit-learn digits.* has 1437"):
        _ = HyperCleaning(train_size=1500, validation_size=500).images
    with pytest.raises(ConfigError, match="need 100400 images"):
        HyperCleaning(train_size=100000).bind(runs)
    with pytest.raises(ConfigError, match="shrink=100 is too large"):
        HyperCleaning(shrink=100).bind(runs)
    with pytest.raises(ConfigError, match="spectrum"):
        BilevelQuadratic(spectrum=(0.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class InASet(Bilevel):
    """y*(x) = x + 2, with x in a set that has no room for it."""

    of_x: Set = Box(0.0, 1.0)  # noqa: RUF009

    X = property(lambda self: self.of_x)
    n_objectives = property(lambda self: 2)
    dim = property(lambda self: 2)
    blocks = property(lambda self: 1)
    lower_dim = property(lambda self: 2)

    def f(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([(y[:, 0] - c).square().sum(1) for c in (2.2, 2.8)], 1)

    def g(self, x: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (y - x.unsqueeze(1) - 2).square().sum(-1)


def test_the_lower_variables_are_not_in_the_set_of_the_upper_ones() -> None:
    """FORUM steps in (x, y), and y is anywhere."""
    runs = Runs.product(torch.tensor([[0.5, 0.5]], dtype=torch.float64), [0])
    X = ValueGap(InASet(), runs).spec.X
    theta = torch.tensor([[2.0, -1.0, 5.0, -7.0]], dtype=torch.float64)
    assert X.project(theta).tolist() == [[1.0, 0.0, 5.0, -7.0]]
    with pytest.raises(CompatibilityError, match="with x in a box or anywhere, not in Ball"):
        ValueGap(InASet(of_x=Ball(1.0)), runs)
