"""Projections onto the simplex and the weighted simplex."""

import pytest
import torch
from torch import Tensor

from mobench.solvers import project_simplex, project_weighted_simplex, qp

DTYPE = torch.float64


def draws(R: int, n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(10 * n + seed)
    y = 3 * torch.randn(R, n, generator=g, dtype=DTYPE)
    w = torch.rand(R, n, generator=g, dtype=DTYPE) + 0.01
    w[: R // 4, 0] = 0  # not in the equality
    return y, w, torch.rand(R, 1, generator=g, dtype=DTYPE) + 0.1


@pytest.mark.parametrize("n", [2, 3, 5, 11])
def test_properties(n):
    y, w, s = draws(200, n)
    x = project_weighted_simplex(y, w, s)
    assert (x >= 0).all()
    assert ((w * x).sum(1, keepdim=True) - s).abs().max() < 1e-13
    assert (project_weighted_simplex(x, w, s) - x).abs().max() < 1e-12
    other = draws(200, n, seed=1)[0]
    moved = (project_weighted_simplex(other, w, s) - x).norm(dim=1)
    assert (moved <= (other - y).norm(dim=1) + 1e-12).all()
    assert torch.equal(x[:50, 0], y[:50, 0].clamp(min=0)) or n == 2
    assert torch.allclose(x[:50, 0], y[:50, 0].clamp(min=0), rtol=1e-13, atol=0)


@pytest.mark.parametrize("n", [2, 3, 5, 11])
def test_equal_to_the_quadratic_program(n):
    y, w, s = draws(50, n)
    identity = torch.eye(n, dtype=DTYPE).expand(50, n, n)
    solution = qp(identity, y, w, s.squeeze(1), upper=torch.inf)
    assert not solution.failed.any()
    assert torch.allclose(project_weighted_simplex(y, w, s), solution.x, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [2, 3, 5, 11])
def test_reduces_to_the_simplex(n):
    y, w, s = draws(200, n)
    x = project_simplex(y)
    assert torch.allclose(
        x, project_weighted_simplex(y, torch.ones_like(w), torch.ones_like(s)), rtol=0, atol=1e-14
    )
    assert (x >= 0).all()
    assert (x.sum(1) - 1).abs().max() < 1e-14
    assert torch.equal(project_simplex(x), x) or (project_simplex(x) - x).abs().max() < 1e-15
    assert torch.allclose(project_simplex(y + 1e6), x, rtol=0, atol=1e-8)
    assert torch.allclose(project_simplex(y.float()).double(), x, rtol=0, atol=1e-6)


def test_known_points():
    y = torch.tensor([[0.5, 0.5, 3.0], [0.2, 0.2, 0.2], [-1.0, -1.0, -1.5]], dtype=DTYPE)
    expected = torch.tensor([[0.0, 0.0, 1.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]], dtype=DTYPE)
    assert torch.allclose(project_simplex(y), expected, rtol=0, atol=1e-15)
    assert torch.allclose(project_simplex(y[:, :2])[0], torch.tensor([0.5, 0.5], dtype=DTYPE))
    ends = torch.tensor([[5.0, 0.0], [0.0, 5.0]], dtype=DTYPE)
    w = torch.tensor([[2.0, 4.0]], dtype=DTYPE).expand(2, 2)
    x = project_weighted_simplex(ends, w, torch.full((2, 1), 8.0, dtype=DTYPE))
    assert torch.allclose(x, torch.tensor([[4.0, 0.0], [0.0, 2.0]], dtype=DTYPE))


@pytest.mark.parametrize("n", [2, 4])
def test_diverged_run_and_empty_set(n):
    y, w, s = draws(5, n)
    clean = project_weighted_simplex(y, w, s)
    y[2] = torch.nan
    w[3] = 0.0
    x = project_weighted_simplex(y, w, s)
    assert x[2].isnan().all()
    assert not x[3].isfinite().all()
    assert torch.equal(x[[0, 1, 4]], clean[[0, 1, 4]])
    assert project_simplex(y)[2].isnan().all()


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_sum_of_zero(n):
    y = draws(4, n)[0]
    w = torch.zeros_like(y)
    s = torch.zeros(4, 1, dtype=DTYPE)
    assert torch.equal(project_weighted_simplex(y, w, s), y.clamp(min=0))
    w[:, 0] = 0.5
    x = project_weighted_simplex(y, w, s)
    assert torch.equal(x[:, 0], s[:, 0])
    assert torch.equal(x[:, 1:], y[:, 1:].clamp(min=0))


def test_negative_weights_of_more_than_two_variables_are_no_answer():
    """The sorting rule once gave (1.01, 0.94, 0.29), whose weighted sum is 3.99."""
    y = torch.tensor([[1.0, 1.0, 0.3]] * 2, dtype=DTYPE)
    w = torch.tensor([[-1.0, 5.0, 1.0], [1.0, 5.0, 1.0]], dtype=DTYPE)
    x = project_weighted_simplex(y, w, torch.full((2, 1), 5.0, dtype=DTYPE))
    assert x[0].isnan().all()
    assert float(w[1] @ x[1]) == pytest.approx(5.0)
