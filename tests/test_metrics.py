"""Metrics: hypervolume against inclusion-exclusion, distances by hand, stationarity against a QP solver."""

import itertools

import cvxpy as cp
import moocore
import numpy as np
import pytest
import torch

from mobench.core import Ball, Box, Free, Problem, Set, TablePoint
from mobench.core.preferences import resolve
from mobench.errors import ConfigError, MobenchError
from mobench.kernels.compiled import module
from mobench.metrics import bounded_hypervolume, common_descent, front_distance, hypervolume, stationarity
from mobench.metrics.front import CHUNK
from mobench.metrics.hypervolume import WORK
from mobench.oracles.exact import make_point, problem_spec
from mobench.problems import DTLZ2, VLMOP2, ZDT1, ZDT2, ZDT3, LeastSquares

# --- hypervolume --------------------------------------------------------------------------------------------


def inclusion_exclusion(F: np.ndarray, ref: np.ndarray) -> float:
    """Sum over all subsets of (-1)^(size+1) times the volume of the intersection of their boxes."""
    total = 0.0
    for size in range(1, len(F) + 1):
        for subset in itertools.combinations(range(len(F)), size):
            corner = F[list(subset)].max(axis=0)
            total += (-1) ** (size + 1) * float(np.prod(np.maximum(ref - corner, 0.0)))
    return total


@pytest.mark.parametrize("M", [2, 3])
def test_hypervolume_equals_inclusion_exclusion(M: int) -> None:
    rng = np.random.default_rng(M)
    ref = np.full(M, 1.1)
    for _ in range(10):
        F = rng.uniform(0, 1.5, (8, M))  # some lie outside the box
        assert hypervolume(F, ref.tolist()) == pytest.approx(inclusion_exclusion(F, ref), rel=1e-12)


def compiled(F: np.ndarray, ref: np.ndarray) -> float:
    return float(module("kernels.dominated").volume(ref - F, np.inf)[0])


@pytest.mark.parametrize("M", [3, 4, 5, 6, 7, 12])
def test_compiled_volumes_equal_inclusion_exclusion(M: int) -> None:
    """Points in general position, and points on a coarse grid, which share most coordinates."""
    rng = np.random.default_rng(M)
    ref = np.full(M, 4.0)
    for _ in range(10):
        for F in (rng.uniform(0, 4, (9, M)), rng.integers(0, 4, (11, M)).astype(float)):
            assert compiled(F, ref) == pytest.approx(inclusion_exclusion(F, ref), rel=1e-12)


@pytest.mark.parametrize("M", [3, 4, 5, 6, 7, 8, 9])
def test_compiled_volumes_equal_those_of_moocore(M: int) -> None:
    rng = np.random.default_rng(M)
    K = 60 if M < 8 else 30
    ref = np.full(M, 1.1)
    plane = rng.dirichlet(np.ones(M), K)
    for F in (
        on_a_sphere(K, M),
        1.0 - on_a_sphere(K, M),
        plane,
        np.concatenate([plane, plane, plane + 0.01]),
    ):
        assert compiled(F, ref) == pytest.approx(moocore.hypervolume(F, ref=ref), rel=1e-12)


@pytest.mark.parametrize("M", [6, 10, 20, 31])
def test_the_hypervolume_of_a_cube_with_arms_is_a_polynomial(M: int) -> None:
    """Boxes of width b that are a longer in one objective have b^M + M a b^(M - 1) together."""
    a, b = 0.25, 0.75
    F = 1.0 - b - a * np.eye(M)
    assert hypervolume(F, [1.0] * M) == pytest.approx(b**M + M * a * b ** (M - 1), rel=1e-13)


def test_the_hypervolume_of_a_product_of_sets_is_the_product_of_their_hypervolumes() -> None:
    """125 points of six objectives: three staircases of five steps, every step with every other."""
    stairs = [(i / 5, (4 - i) / 5) for i in range(5)]  # 15 squares of side 1 / 5
    F = np.array([sum(steps, ()) for steps in itertools.product(stairs, repeat=3)])
    assert hypervolume(F, [1.0] * 6) == pytest.approx((15 / 25) ** 3, rel=1e-13)


def test_hypervolumes_of_many_objectives_are_counted_in_any_unit() -> None:
    """Products of 31 lengths of 1e-12, or of 1e200, are no numbers; a power of two changes no digit."""
    F = on_a_sphere(12, 31)
    ref = [1.1] * 31
    volume = hypervolume(F, ref)
    assert hypervolume(2.0**30 * F, [2.0**30 * r for r in ref]) == 2.0 ** (30 * 31) * volume
    assert hypervolume(2.0**-30 * F, [2.0**-30 * r for r in ref]) == 2.0 ** (-30 * 31) * volume
    assert hypervolume(2.0**600 * F, [2.0**600 * r for r in ref]) == np.inf


def test_points_outside_the_box_contribute_nothing() -> None:
    inside = torch.tensor([[0.2, 0.5], [0.5, 0.2]], dtype=torch.float64)
    outside = torch.tensor([[2.0, -1.0], [1.1, 0.0], [float("inf"), 0.1], [0.3, 5.0]], dtype=torch.float64)
    assert hypervolume(torch.cat([outside, inside]), (1.1, 1.1)) == hypervolume(inside, (1.1, 1.1))
    assert hypervolume(inside, (1.1, 1.1)) == pytest.approx(0.72)
    assert hypervolume(outside, (1.1, 1.1)) == 0.0
    assert hypervolume(torch.zeros(0, 2), (1.1, 1.1)) == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_hypervolume_refuses_what_has_no_volume(bad: float) -> None:
    with pytest.raises(MobenchError, match=r"1 of 2 points .* row 1"):
        hypervolume(torch.tensor([[0.2, 0.5], [0.5, bad]]), (1.1, 1.1))


def on_a_sphere(K: int, M: int) -> np.ndarray:
    F = np.abs(np.random.default_rng(K + M).standard_normal((K, M)))
    return F / np.linalg.norm(F, axis=1, keepdims=True)


@pytest.mark.parametrize(("K", "M"), [(1, 2), (30, 2), (40, 5), (40, 8), (15, 12), (6, 20), (4, 31)])
def test_an_estimated_hypervolume_states_its_error(K: int, M: int) -> None:
    """The exact volume lies in the interval, which is a few per cent wide; equal points get equal numbers."""
    F = on_a_sphere(K, M)
    ref = [1.1] * M
    exact = bounded_hypervolume(F, ref)
    assert exact.half_width is None
    assert exact.value == hypervolume(F, ref)
    drawn = bounded_hypervolume(
        np.concatenate([F, F + 0.05]), ref, seconds=0.0
    )  # dominated ones cost nothing
    assert drawn.half_width is not None
    assert abs(drawn.value - exact.value) <= 1.5 * drawn.half_width + 1e-12 * exact.value
    assert drawn.half_width <= (0.15 if M <= 20 else 0.4) * exact.value
    assert drawn == bounded_hypervolume(F, ref, seconds=0.0)
    units = np.logspace(0, 3, M)  # objectives of different extents
    scaled = bounded_hypervolume(F * units, (units * 1.1).tolist(), seconds=0.0)
    assert np.array(scaled, float) == pytest.approx(np.array(drawn, float) * units.prod(), rel=1e-6)


@pytest.mark.parametrize("M", [6, 8, 10, 12, 20, 31])
def test_a_hypervolume_that_takes_longer_than_its_budget_is_drawn(M: int) -> None:
    F = on_a_sphere(40, M)
    few = F[:15]
    ref = [1.0] * M
    seconds = module("kernels.dominated").volume(1.0 - few, np.inf)[1] / WORK
    assert bounded_hypervolume(few, ref, seconds) == (hypervolume(few, ref), None)
    assert bounded_hypervolume(few, ref, 0.999 * seconds).half_width is not None
    assert bounded_hypervolume(F, ref, seconds).half_width is not None  # more points are more work


@pytest.mark.parametrize("M", [32, 40])
def test_hypervolumes_of_too_many_objectives_are_refused(M: int) -> None:
    for measure in (hypervolume, bounded_hypervolume):
        with pytest.raises(ConfigError, match=f"of {M} objectives cannot be computed.*at most 31"):
            measure(np.zeros((2, M)), [1.0] * M)


def test_hypervolume_refuses_a_wrong_reference_point() -> None:
    with pytest.raises(ConfigError, match="2 finite numbers"):
        hypervolume(torch.zeros(1, 2), (1.0, 1.0, 1.0))
    with pytest.raises(ConfigError, match="2 finite numbers"):
        hypervolume(torch.zeros(1, 2), (1.0, float("nan")))


# --- distance to a front ------------------------------------------------------------------------------------


def test_front_distance_by_hand() -> None:
    front = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    F = torch.tensor([[0.0, 1.0], [1.0, 1.0], [4.0, 4.0], [0.5, 0.5]], dtype=torch.float64)
    expected = torch.tensor([0.0, 1.0, 5.0, 0.5**0.5], dtype=torch.float64)
    torch.testing.assert_close(front_distance(F, front), expected)
    assert front_distance(F[:0], front).shape == (0,)


def test_front_distance_is_exact_near_zero_and_bounds_the_truth_from_above() -> None:
    front = VLMOP2().front(20001)
    u = torch.linspace(-1, 1, 997, dtype=torch.float64)
    on = VLMOP2().front_point(u)
    assert front_distance(front[::100], front).max() == 0.0
    assert front_distance(front[5:6] + 1e-12, front).item() == pytest.approx(2**0.5 * 1e-12, rel=1e-3)
    assert 0.0 < front_distance(on, front).max() <= 3.7e-5
    disc = DTLZ2(M=2)
    F = 1.5 * disc.front(50)
    torch.testing.assert_close(
        front_distance(F, disc.front(20001)), disc.distance_to_front(F), rtol=0, atol=1e-8
    )


def test_chunks_do_not_show() -> None:
    F = torch.rand(3000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    front = ZDT2().front(2001)
    assert F.shape[0] * len(front) > 2 * CHUNK
    whole = (F.unsqueeze(1) - front[None]).square().sum(-1).amin(1).sqrt()
    torch.testing.assert_close(front_distance(F, front), whole, rtol=1e-12, atol=1e-15)


def test_gaps_of_a_front_are_not_bridged() -> None:
    p = ZDT3()
    (_, end), (begin, _) = p.pieces()[:2]
    front = p.front(20001)
    middle = 0.5 * (p.curve(torch.tensor([end**0.5]).double()) + p.curve(torch.tensor([begin**0.5]).double()))
    assert front_distance(middle, front).item() == pytest.approx((begin - end) / 2, abs=1e-3)


def test_a_diverged_run_has_no_distance() -> None:
    F = torch.tensor([[float("nan"), 0.0], [0.0, 0.0]])
    distance = front_distance(F, ZDT2().front(11))
    assert distance.isnan().tolist() == [True, False]
    assert distance.dtype == torch.float32


# --- stationarity -------------------------------------------------------------------------------------------


def residual(problem: Problem, x: torch.Tensor) -> torch.Tensor:
    return stationarity(make_point(problem, x, problem_spec(problem, len(x), 1)))


def pareto_points(problem: Problem) -> torch.Tensor:
    """A few exact Pareto points in decision space, from the definitions."""
    t = torch.linspace(0.05, 0.95, 7, dtype=torch.float64).unsqueeze(1)
    if isinstance(problem, VLMOP2):
        return (2 * t - 1) / problem.n**0.5 * torch.ones(7, problem.n, dtype=torch.float64)
    if isinstance(problem, LeastSquares):
        return problem.minimiser(resolve(7, problem.tasks))
    if isinstance(problem, DTLZ2):
        x = torch.full((7, problem.dim), 0.5, dtype=torch.float64)
        # away from corners
        x[:, : problem.M - 1] = 0.2 + 0.6 * ((t + 0.37 * torch.arange(problem.M - 1)) % 1.0)
        return x
    x = torch.zeros(7, problem.dim, dtype=torch.float64)
    x[:, :1] = t
    if isinstance(problem, ZDT3):  # middles and ends of pieces
        x[:5, 0] = torch.tensor([0.5 * (a + b) for a, b in problem.pieces()], dtype=x.dtype)
        x[5:, 0] = torch.tensor([b for _, b in problem.pieces()][:2], dtype=x.dtype)
    return x


PROBLEMS = [
    VLMOP2(), VLMOP2(n=10, clip=0.4), ZDT1(), ZDT2(), ZDT3(), DTLZ2(), DTLZ2(M=5), LeastSquares(),
    LeastSquares(tasks=4),
]  # fmt: skip
IDS = ["vlmop2", "vlmop2-box", "zdt1", "zdt2", "zdt3", "dtlz2", "dtlz2-5", "least_squares", "least_squares-4"]


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_zero_on_the_front_and_only_there(problem: Problem) -> None:
    x = pareto_points(problem)
    torch.testing.assert_close(residual(problem, x), torch.zeros(7, dtype=torch.float64), rtol=0, atol=1e-12)
    push = 0.1 * torch.rand(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(4))
    if isinstance(problem, DTLZ2):  # angles at a corner are stationary whatever the others are: leave them
        push[:, : problem.M - 1] = 0.0
    away = problem.X.project(x + push)
    assert residual(problem, away).min() > 1e-3


def test_corners_of_the_front_need_the_box() -> None:
    """x = 0 is a Pareto point of ZDT1 although no combination of its gradients vanishes."""
    x = torch.zeros(2, 30, dtype=torch.float64)
    x[1, 0] = 1.0
    assert residual(ZDT1(), x).max() < 1e-9
    assert residual(ZDT2(), x).max() < 1e-12
    J = ZDT1().linearize(x)[1]()
    lam = torch.linspace(0, 1, 1001, dtype=torch.float64).view(-1, 1, 1)
    assert (lam * J[1, 0] + (1 - lam) * J[1, 1]).norm(dim=-1).min() > 0.1


def test_at_a_bound_the_projection_decides() -> None:
    """VLMOP2 at a vertex of its box: both wells lie inside, so both descend; a worse box would end there."""
    x = torch.full((1, 4), 0.8, dtype=torch.float64)
    inside = residual(VLMOP2(n=4, clip=0.8), x)
    torch.testing.assert_close(inside, residual(VLMOP2(n=4), x))
    J = VLMOP2(n=4).linearize(x)[1]()
    away = TablePoint(x, Box(-0.8, 0.8), 2, {}, torch.zeros(1, 2, dtype=torch.float64), -J)
    assert stationarity(away).item() == 0.0
    near = TablePoint(x - 1e-9, Box(-0.8, 0.8), 2, {}, torch.zeros(1, 2, dtype=torch.float64), -J)
    assert stationarity(near).item() == pytest.approx(2e-9)  # continuous: |(1e-9, ..., 1e-9)|


TOLERANCE = {Free: 1e-10, Box: 1e-10, Ball: 1e-8}  # what CLARABEL reaches, with a cone for the ball


def by_cvxpy(x: np.ndarray, J: np.ndarray, X: Set) -> np.ndarray:
    d = cp.Variable(len(x))
    c = cp.Variable()
    constraints: list[cp.Constraint] = [J @ d <= c]
    if isinstance(X, Box):
        constraints += [x + d >= X.lower, x + d <= X.upper]
    if isinstance(X, Ball):
        constraints += [cp.norm(x + d) <= X.radius]
    cp.Problem(cp.Minimize(c + 0.5 * cp.sum_squares(d)), constraints).solve(
        solver=cp.CLARABEL, **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE[type(X)])
    )
    return np.asarray(d.value)


@pytest.mark.parametrize("X", [Free(), Box(-0.3, 0.7), Box(0.0, 1e-3), Ball(0.8), Ball(5.0)], ids=str)
@pytest.mark.parametrize(("M", "P"), [(2, 3), (3, 2), (3, 8), (6, 12)])
def test_direction_equals_a_general_solver(X: Set, M: int, P: int) -> None:
    rng = torch.Generator().manual_seed(10 * M + P)
    R = 6
    x = X.project(2 * torch.rand(R, P, dtype=torch.float64, generator=rng) - 1)
    J = torch.randn(R, M, P, dtype=torch.float64, generator=rng)
    J[: R // 2] += 0.5  # half of them with a common descent direction
    solution = common_descent(TablePoint(x, X, M, {}, torch.zeros(R, M, dtype=torch.float64), J))
    assert (solution.gap <= 1e-12 * J.square().sum(-1).amax(-1)).all()
    torch.testing.assert_close(solution.weights.sum(1), torch.ones(R, dtype=torch.float64))
    assert solution.weights.min() >= -1e-15
    torch.testing.assert_close(X.project(x + solution.d), x + solution.d, rtol=0, atol=1e-14)
    for r in range(R):
        np.testing.assert_allclose(
            solution.d[r].numpy(), by_cvxpy(x[r].numpy(), J[r].numpy(), X), atol=TOLERANCE[type(X)] ** 0.5
        )


def test_a_diverged_run_does_not_reach_its_neighbours() -> None:
    p = ZDT1()
    x = torch.rand(3, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone = residual(p, x)
    x[1] = torch.nan
    together = residual(p, x)
    assert together.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(together[[0, 2]], alone[[0, 2]], rtol=1e-12, atol=0)


def test_float32_stays_float32_and_is_solved_in_float64() -> None:
    x = torch.rand(4, 20, generator=torch.Generator().manual_seed(0))
    low = residual(VLMOP2(), x)
    high = residual(VLMOP2(), x.double())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.double(), high, rtol=1e-4, atol=1e-6)


def test_functional_constraints_are_refused() -> None:
    zeros = torch.zeros(1, 3, dtype=torch.float64)
    point = TablePoint(zeros, Free(), 2, {}, zeros, torch.zeros(1, 3, 3, dtype=torch.float64))
    with pytest.raises(MobenchError, match="functional constraints"):
        stationarity(point)
