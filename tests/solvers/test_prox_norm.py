"""Proximal points of |K .| against CVXPY, their certificates, and ends of their range."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import torch

from mobench.solvers import min_norm
from mobench.solvers.prox_norm import prox_norm, prox_norm_free

TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9)
# so tight, or 1e-5 in t cannot be told
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


def gram(R: int, n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """K (R, n + 2, n), M = K'K and points p of the simplex."""
    rng = np.random.default_rng(seed)
    K = torch.from_numpy(rng.standard_normal((R, n + 2, n)))
    p = torch.from_numpy(rng.dirichlet(np.ones(n), R))
    return K, K.mT @ K, p


@pytest.mark.parametrize("n", [2, 3, 8])
def test_simplex_against_cvxpy(n: int) -> None:
    K, M, p = gram(4, n)
    for gamma in (0.1, 1.0, 20.0):
        solution = prox_norm(M, p, gamma)
        assert not solution.failed.any()
        assert solution.residual.max() < 1e-11
        for r in range(len(p)):
            t = cp.Variable(n)
            aim = cp.norm(K[r].numpy() @ t) + cp.sum_squares(t - p[r].numpy()) / (2 * gamma)
            cp.Problem(cp.Minimize(aim), [t >= 0, cp.sum(t) == 1]).solve(solver="CLARABEL", **TIGHT)
            np.testing.assert_allclose(solution.x[r].numpy(), t.value, atol=1e-5)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("shortest", [1e-2, 1e-4, 1e-6, 0.0])
def test_near_a_stationary_point(n: int, shortest: float) -> None:
    """The shortest combination of the gradients is that much shorter than they are."""
    rng = np.random.default_rng(n)
    R = 50
    K = torch.from_numpy(rng.standard_normal((R, n + 2, n)))
    lam = torch.from_numpy(rng.dirichlet(np.ones(n), R))
    rest = torch.einsum("rkn,rn->rk", K[..., :-1], lam[:, :-1])
    K[..., -1] = (shortest * torch.from_numpy(rng.standard_normal((R, n + 2))) - rest) / lam[:, -1:]
    p = torch.from_numpy(rng.dirichlet(np.ones(n), R))
    rounding = 1e-7 * torch.linalg.matrix_norm(K)  # M = K'K has lost shorter lengths
    for start in (p, lam):
        for gamma in (0.1, 1.0):
            solution = prox_norm(K.mT @ K, start, gamma)
            assert not solution.failed.any()

            def aim(t: torch.Tensor, start: torch.Tensor = start, gamma: float = gamma) -> torch.Tensor:
                length = torch.linalg.vector_norm(torch.einsum("rkn,rn->rk", K, t), dim=1)
                return length + (t - start).square().sum(1) / (2 * gamma)

            for other in (start, lam, 0.9 * solution.x + 0.1 * lam, 0.9 * solution.x + 0.1 * start):
                assert (aim(solution.x) <= aim(other) + rounding).all()


def test_at_a_stationary_point_its_weights_stay() -> None:
    M = torch.tensor([[[1.0, -1.0], [-1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    p = torch.tensor([[0.5, 0.5], [0.3, 0.7]], dtype=torch.float64)
    solution = prox_norm(M, p, 1.0)
    assert torch.equal(solution.x, p)
    assert solution.residual.tolist() == [0.0, 0.0]


def test_gradients_of_very_different_length() -> None:
    """As of a diverging run: a row 1e7 times as long as the others, which the point leaves out."""
    K, _, p = gram(50, 6)
    K[..., 3] *= 1e7
    p[:, 3] = 0.0
    p = p / p.sum(1, keepdim=True)
    solution = prox_norm(K.mT @ K, p, 1.0)
    assert not solution.failed.any()
    assert solution.residual.max() < 1e-12
    assert solution.x[:, 3].max() < 1e-6


def test_free_against_cvxpy() -> None:
    K, M, p = gram(4, 4)
    # the first: |K'y| <= 1, so t is in the kernel
    scale = torch.tensor([1e-3, 0.1, 1.0, 10.0], dtype=torch.float64)
    weights = prox_norm_free(M * scale[:, None, None] ** 2, p)
    for r in range(4):
        t = cp.Variable(4)
        aim = cp.norm(float(scale[r]) * K[r].numpy() @ t) + cp.sum_squares(t - p[r].numpy()) / 2
        cp.Problem(cp.Minimize(aim)).solve(solver="CLARABEL", **TIGHT)
        np.testing.assert_allclose(weights[r].numpy(), t.value, atol=1e-5)


def test_envelope_is_below_and_touches_at_min_norm_weights_alone() -> None:
    """H - e_H >= 0, and 0 exactly where p is a min-norm weight vector."""
    _, M, p = gram(50, 4)

    def gap(p: torch.Tensor) -> torch.Tensor:
        t = prox_norm(M, p, 1.0).x
        H = (p.unsqueeze(1) @ M @ p.unsqueeze(2)).squeeze().sqrt()
        return H - ((t.unsqueeze(1) @ M @ t.unsqueeze(2)).squeeze().sqrt() + 0.5 * (t - p).square().sum(1))

    assert gap(p).min() > 1e-6
    assert gap(min_norm(M).x).abs().max() < 1e-12


def test_vanishing_norm_and_scales() -> None:
    """Opposed gradients (|Kt| = 0 within reach), scales 1e-8 to 1e8, one batch."""
    K = torch.tensor([[[1.0, -1.0], [0.0, 0.0]]], dtype=torch.float64).repeat(3, 1, 1)
    K = K * torch.tensor([1.0, 1e-8, 1e8], dtype=torch.float64)[:, None, None]
    p = torch.tensor([[0.6, 0.4]], dtype=torch.float64).repeat(3, 1)
    solution = prox_norm(K.mT @ K, p, 1.0)
    assert not solution.failed.any()
    np.testing.assert_allclose(
        solution.x[0].numpy(), [0.5, 0.5], atol=1e-12
    )  # |Kt| = |t_1 - t_2| is steeper than the other term
    np.testing.assert_allclose(solution.x[1].numpy(), [0.6, 0.4], atol=1e-7)
    np.testing.assert_allclose(solution.x[2].numpy(), [0.5, 0.5], atol=1e-12)


def test_a_run_that_is_not_finite_hurts_no_other() -> None:
    _, M, p = gram(3, 3)
    alone = prox_norm(M[:1], p[:1], 1.0).x
    M[1] = torch.nan
    solution = prox_norm(M, p, 1.0)
    assert torch.isnan(solution.x[1]).all()
    assert not solution.failed.any()  # a run that has diverged is no failure of the solver
    torch.testing.assert_close(solution.x[:1], alone, rtol=0, atol=1e-13)
    assert torch.isnan(prox_norm_free(M, p)[1]).all()
