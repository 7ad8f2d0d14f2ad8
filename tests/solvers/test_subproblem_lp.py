"""The LPs of EPO: HiGHS as outside value, certificates, degenerate Gram matrices, infeasibility."""

import sys

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from mobench.kernels.compiled import compiled_solver
from mobench.solvers import TOLERANCE, epo_lp, lp, reference
from mobench.solvers.lp import epo_data
from mobench.solvers.qp import LIMITS

DTYPE = torch.float64
FAMILIES = [
    "random", "low rank", "rank one", "duplicated", "zero row", "opposed", "stationary", "scaled rows",
    "acute",
]  # fmt: skip
MODES = ["balance", "descent", "unrestricted"]


def inputs(
    family: str, mode: str, R: int, M: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor, bool]:
    """K, Ca, balance, jstar, restricted of EPO search at random values and preferences."""
    g = torch.Generator().manual_seed(100 * M + seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=DTYPE)

    J = normal(R, M, M + 2)
    if family == "low rank":
        J = normal(R, M, 2)
    elif family == "rank one":
        J = normal(R, M, 1) * J[:, :1]
    elif family == "duplicated":
        J[:, -1] = J[:, 0]
    elif family == "zero row":
        J[:, 0] = 0
    elif family == "opposed":
        J[:, 1] = -0.5 * J[:, 0]
    elif family == "stationary":
        J[:, 0] = -(J[:, 1:] * torch.rand(R, M - 1, 1, generator=g, dtype=DTYPE)).sum(1)
    elif family == "scaled rows":
        J = J * 10 ** (4 * torch.rand(R, M, 1, generator=g, dtype=DTYPE) - 2)
    elif family == "acute":
        J = J.abs()
    F, r = (torch.rand(R, M, generator=g, dtype=DTYPE) + 0.05 for _ in range(2))
    share = r * F / (r * F).sum(1, keepdim=True)
    excess = (M * share).log()
    a = r * (excess - (share * excess).sum(1, keepdim=True))
    K = J @ J.mT
    Ca = (K @ a.unsqueeze(2)).squeeze(2)
    return K, Ca, torch.full((R,), mode == "balance"), (r * F).argmax(1), mode != "unrestricted"


def highs(c: np.ndarray, G: np.ndarray, h: np.ndarray) -> tuple[int, float]:
    """Status and value of max c'x, with rows scaled to size 1 as HiGHS's absolute tolerances ask for."""
    keep = h > -np.inf
    G = G[keep]
    h = h[keep]
    s = np.maximum(np.abs(G).max(1, initial=0), np.abs(h)) + 1e-300
    size = np.abs(c).max() or 1.0
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    out = linprog(
        -c / size, -G / s[:, None], -h / s, np.ones((1, len(c))), [1.0], method="highs", options=tight
    )
    return out.status, -out.fun if out.status == 0 else np.nan


@pytest.mark.parametrize("M", [2, 3, 5, 10])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_highs(family, mode, M):
    R = 12
    K, Ca, balance, jstar, restricted = inputs(family, mode, R, M)
    solution = epo_lp(K, Ca, balance, jstar, restricted)
    c, G, h = (t.numpy() for t in epo_data(K, Ca, balance, jstar, restricted))
    for i in range(R):
        status, value = highs(c[i], G[i], h[i])
        if status == 2 and family != "stationary":
            assert solution.failed[i]
        elif status == 0:
            x = solution.x[i].numpy()
            assert not solution.failed[i]
            assert (x >= 0).all()
            assert abs(x.sum() - 1) < 1e-12
            assert abs(x @ c[i] / (np.abs(c[i]).max() or 1) - value) < 1e-6
    if mode != "descent" or M == 2:  # the min-norm point is feasible
        assert not solution.failed.any()
        assert solution.residual.max() <= 1e-10


@pytest.mark.parametrize("M", [2, 4, 10])
def test_feasible_sets_of_rounding_width(M):
    # at a Pareto-stationary point K beta >= 0 holds for one beta only, which rounding can make none
    for mode in ("balance", "unrestricted"):
        solution = epo_lp(*inputs("stationary", mode, 600, M))
        assert not solution.failed.any()
        assert solution.residual.max() < 1e-10


def test_restricted_descent_can_be_infeasible():
    # all Ca < 0 asks for the vertex of the largest, and its gradient harms another objective: three
    # objectives suffice
    K = torch.tensor([[[4.0, 1.0, -1.0], [1.0, 1.0, 1.0], [-1.0, 1.0, 4.0]]], dtype=DTYPE)
    Ca = torch.tensor([[-1.0, -3.0, -2.0]], dtype=DTYPE)
    no = torch.tensor([False])
    j = torch.tensor([0])
    assert epo_lp(K, Ca, no, j).failed.all()
    assert reference.epo_lp(K, Ca, no, j).failed.all()
    assert not epo_lp(K, Ca, no, j, restricted=False).failed.any()


@pytest.mark.parametrize("M", [2, 3, 6])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["random", "stationary", "scaled rows", "opposed"])
def test_scale_of_gradients_does_not_matter(family, mode, M):
    K, Ca, balance, jstar, restricted = inputs(family, mode, 40, M)
    solution = epo_lp(K, Ca, balance, jstar, restricted)
    for scale in (1e-16, 1e16):
        scaled = epo_lp(scale * K, scale * Ca, balance, jstar, restricted)
        assert torch.equal(scaled.failed, solution.failed)
        assert torch.allclose(scaled.x, solution.x, rtol=0, atol=1e-7, equal_nan=True)


def test_definition_of_the_modes():
    K = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 3.0, 0.2], [0.5, 0.2, 1.0]], dtype=DTYPE).expand(4, 3, 3)
    Ca = torch.tensor(
        [[1.0, -0.5, 0.3], [-1.0, -0.5, -2.0], [1.0, -0.5, 0.3], [-1.0, -0.5, -2.0]], dtype=DTYPE
    )
    balance = torch.tensor([True, True, False, False])
    c, G, h = epo_data(K, Ca, balance, torch.tensor([0, 1, 2, 0]), True)
    inf = torch.inf
    assert h.tolist() == [[0, -0.5, -inf, -inf], [0, 0, 0, -inf], [0, 0, 0, 0], [0, 0, 0, -0.5]]
    assert torch.equal(c[:2], Ca[:2])
    assert torch.allclose(c[2:], K[2:].sum(1))
    assert torch.equal(G[:, :3], K)
    assert torch.equal(G[:, 3], Ca)
    c, G, h = epo_data(K, Ca, balance, torch.tensor([1, 1, 2, 0]), False)
    assert h[0].tolist() == [-inf, 0, -inf]  # the row of j* is overridden
    assert G.shape == (4, 3, 3)


def test_interval_of_two_objectives():
    # K beta >= 0 leaves t in [1/3, 2/3]; balance wants an end, descent is indifferent and takes the middle
    K = torch.tensor([[[1.0, -0.5], [-0.5, 1.0]]], dtype=DTYPE)
    no = torch.tensor([False])
    yes = torch.tensor([True])
    j = torch.tensor([0])
    middle = epo_lp(K, torch.tensor([[1.0, 1.0]], dtype=DTYPE), no, j)
    assert torch.allclose(middle.x, torch.tensor([[0.5, 0.5]], dtype=DTYPE))
    low = epo_lp(K, torch.tensor([[-2.0, -1.0]], dtype=DTYPE), yes, j)
    assert torch.allclose(low.x, torch.tensor([[1 / 3, 2 / 3]], dtype=DTYPE))
    assert low.residual < 1e-14


def test_interval_equals_pivoting():
    for family in FAMILIES:
        for mode in MODES:
            c, G, h = epo_data(*inputs(family, mode, 50, 2))
            closed = lp(c, G, h)
            x, residual, _ = compiled_solver("pivoting").lp(
                c.numpy().copy(), G.numpy().copy(), h.numpy(), LIMITS
            )
            assert residual.max() < TOLERANCE
            size = c.abs().amax(1).clamp(min=1e-300)
            assert ((c * (torch.from_numpy(x) - closed.x)).sum(1).abs() / size).max() < 1e-9


@pytest.mark.parametrize("M", [2, 4])
def test_infeasible_program_fails_and_its_neighbours_do_not(M):
    G = torch.eye(M, dtype=DTYPE).expand(3, M, M)
    h = torch.full((3, M), 0.5 / M, dtype=DTYPE)
    h[1] = 2 / M  # the parts must sum to 2
    c = torch.arange(M, dtype=DTYPE).expand(3, M)
    solution = lp(c, G, h)
    assert solution.failed.tolist() == [False, True, False]
    assert solution.x[1].isnan().all()
    expected = torch.full((M,), 0.5 / M, dtype=DTYPE)
    expected[-1] += 0.5
    assert torch.allclose(solution.x[0], expected)
    other = reference.lp(c, G, h)
    assert other.failed.tolist() == [False, True, False]
    assert torch.allclose(other.x[0], expected)


@pytest.mark.parametrize("M", [2, 5])
@pytest.mark.parametrize("mode", ["balance", "unrestricted"])
def test_diverged_run_and_batch(M, mode):
    K, Ca, balance, jstar, restricted = inputs("random", mode, 9, M)
    before = epo_lp(K, Ca, balance, jstar, restricted)
    broken = K.clone()
    broken[4] = torch.nan
    after = epo_lp(broken, Ca, balance, jstar, restricted)
    others = torch.arange(9) != 4
    assert after.x[4].isnan().all()
    assert after.residual[4].isnan()
    assert not after.failed.any()
    assert torch.equal(after.x[others], before.x[others])
    alone = [
        epo_lp(K[i : i + 1], Ca[i : i + 1], balance[:1], jstar[i : i + 1], restricted).x for i in range(9)
    ]
    assert torch.allclose(torch.cat(alone), before.x, rtol=0, atol=1e-13)


@pytest.mark.parametrize("M", [2, 4])
def test_reference_and_float32(M):
    for mode in ("balance", "unrestricted"):
        arguments = inputs("random", mode, 6, M)
        solution = epo_lp(*arguments)
        other = reference.epo_lp(*arguments)
        assert not other.failed.any()
        c = epo_data(*arguments)[0]
        value = (c * solution.x).sum(1)
        expected = (c * other.x).sum(1)
        assert torch.allclose(value, expected, rtol=1e-6, atol=1e-6)
        K, Ca, *rest = arguments
        single = epo_lp(K.float(), Ca.float(), *rest)
        assert single.x.dtype == torch.float32
        assert torch.allclose(single.x.double(), solution.x, rtol=0, atol=1e-4)


def test_a_wrong_vertex_is_found_out(monkeypatch):
    """No start looks infeasible to the kernel, so it takes the best vertex for the solution."""
    limits = LIMITS.copy()
    limits[6] = np.inf
    arguments = inputs("random", "balance", 50, 3)
    right = epo_lp(*arguments)
    monkeypatch.setattr(sys.modules["mobench.solvers.lp"], "LIMITS", limits)
    wrong = epo_lp(*arguments)
    vertices = (right.x > 0).sum(1) == 1
    assert 0 < int(vertices.sum()) < 50
    assert wrong.failed[~vertices].all()
    assert wrong.x[~vertices].isnan().all()


def test_the_wrong_end_of_the_interval_is_found_out(monkeypatch):
    """Two objectives: the feasible end with the other value fails, in `epo_lp` and in `lp`."""
    module_ = sys.modules["mobench.solvers.lp"]
    honest = module_._best_end
    caught = 0
    for family in FAMILIES:
        for mode in MODES:
            arguments = inputs(family, mode, 200, 2)
            c, G, h = epo_data(*arguments)
            slope = (c[:, 0] - c[:, 1]) / c.abs().amax(1).clamp(min=1e-300)
            for solve in (lambda a=arguments: epo_lp(*a), lambda c=c, G=G, h=h: lp(c, G, h)):
                right = solve()
                monkeypatch.setattr(
                    module_, "_best_end", lambda xp, slope, low, high: honest(xp, -slope, low, high)
                )
                wrong = solve()
                # a tolerance that fails nothing shows where the other end lies
                monkeypatch.setattr(
                    module_, "certified", lambda *a, f=module_.certified: f(*a, tolerance=torch.inf)
                )
                other = solve()
                monkeypatch.undo()
                assert not right.failed.any()
                worse = (slope * (right.x - other.x)[:, 0]) > 1e-8
                assert wrong.failed[worse].all()
                assert not wrong.failed[right.x[:, 0] == other.x[:, 0]].any()
                caught += int(worse.sum())
    assert caught > 3000


def test_two_objectives_agree_with_the_reference():
    """Status and value on 200 programs; with a negative Gram matrix K beta >= 0 has no solution."""
    g = torch.Generator().manual_seed(7)
    K = torch.randn(200, 2, 2, generator=g, dtype=DTYPE)
    K = K + K.mT  # of any sign: what the M = 2 programs of EPO cannot be, and the interval must say so
    Ca = torch.randn(200, 2, generator=g, dtype=DTYPE)
    balance = torch.arange(200) % 2 == 0
    jstar = torch.arange(200) // 2 % 2
    for restricted in (True, False):
        arguments = (K, Ca, balance, jstar, restricted)
        solution = epo_lp(*arguments)
        other = reference.epo_lp(*arguments)
        assert torch.equal(solution.failed, other.failed)
        assert 20 < int(solution.failed.sum()) < 180
        ok = ~solution.failed
        c = epo_data(*arguments)[0]
        value = (c * solution.x).sum(1)[ok]
        expected = (c * other.x).sum(1)[ok]
        assert torch.allclose(value, expected, rtol=1e-7, atol=1e-7)
