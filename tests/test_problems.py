"""Problems: rows against autodiff and differences, values against the literature, fronts, starts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from mobench.core import Box, Free, Problem, Runs
from mobench.core.preferences import resolve
from mobench.errors import ConfigError
from mobench.metrics import front_distance
from mobench.oracles import Exact
from mobench.problems import DTLZ2, VLMOP2, ZDT1, ZDT2, ZDT3, LeastSquares
from tests.test_conventions import dtlz, zdt

CONF = Path(__file__).parents[1] / "conf" / "problem"
MINE = ("vlmop2", "zdt1", "zdt2", "zdt3", "dtlz2", "least_squares")

CASES: dict[str, Problem] = {
    "vlmop2": VLMOP2(), "vlmop2-scaled": VLMOP2(n=10, scale=(3.0, 1e-3), clip=1 - 1e-5), "zdt1": ZDT1(),
    "zdt2": ZDT2(n=5), "zdt3": ZDT3(), "dtlz2": DTLZ2(), "dtlz2-2": DTLZ2(M=2), "dtlz2-5": DTLZ2(M=5, n=7),
    "least_squares": LeastSquares(), "least_squares-3": LeastSquares(tasks=3, n=6, samples=40),
}  # fmt: skip
CURVES = [name for name, p in CASES.items() if p.n_objectives == 2]


@pytest.fixture(params=list(CASES), ids=list(CASES))
def problem(request: pytest.FixtureRequest) -> Problem:
    return CASES[request.param]


def some(problem: Problem, R: int = 6, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    """Points in the unit box, feasible in every problem here."""
    return torch.rand(R, problem.dim, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def runs_of(M: int, count: int = 3, seeds: tuple[int, ...] = (0, 1, 5)) -> Runs:
    return Runs.product(resolve(count, M), list(seeds))


def autodiff(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_(True)
    out = fn(leaf)
    return torch.stack(
        [torch.autograd.grad(out[:, k].sum(), leaf, retain_graph=True)[0] for k in range(out.shape[1])], 1
    )


def dominated(F: torch.Tensor, by: torch.Tensor, margin: float = 0.0) -> torch.Tensor:
    """Marks rows of F that a row of `by` dominates by more than `margin` in some objective."""
    out = []
    for part in F.split(500):
        diff = part.unsqueeze(1) - by.unsqueeze(0)
        out.append(((diff >= 0).all(-1) & (diff > margin).any(-1)).any(1))
    return torch.cat(out)


# --- rows and values ----------------------------------------------------------------------------------------


def test_constants_made_in_inference_mode_serve_autodiff_later() -> None:
    problem = VLMOP2(n=13)  # a size of its own, so that nothing is cached yet
    with torch.inference_mode():
        problem.values(torch.zeros(1, 13, dtype=torch.float64))
    assert autodiff(problem.values, some(problem)).isfinite().all()


# --- values of the literature's definitions; others are in tests/test_conventions.py ------------------------


def test_dtlz2_of_four_objectives() -> None:
    x = some(DTLZ2(M=4))
    expected = torch.from_numpy(dtlz(2, x.numpy(), 4))
    torch.testing.assert_close(DTLZ2(M=4).values(x), expected, rtol=1e-13, atol=1e-14)


def test_least_squares_is_the_sum_over_its_data() -> None:
    p = LeastSquares(tasks=3, n=4, samples=20)
    d = p.data()
    x = some(LeastSquares(n=4)).numpy()
    A = d.A.numpy()
    b = d.b.numpy()
    expected = [[sum((A[i, m] @ row - b[i, m]) ** 2 for i in range(20)) / 40 for m in range(3)] for row in x]
    torch.testing.assert_close(p.values(torch.from_numpy(x)), torch.tensor(expected, dtype=torch.float64))
    for m in range(3):
        H = torch.from_numpy(sum(np.outer(A[i, m], A[i, m]) for i in range(20)) / 20)
        torch.testing.assert_close(p.hessian[m], H)


# --- the square root at x_1 = 0 -----------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [ZDT1(), ZDT3()], ids=["zdt1", "zdt3"])
def test_floor_bounds_the_slope_and_leaves_the_values(problem: ZDT1 | ZDT3) -> None:
    x = some(problem, 4)
    x[:, 0] = torch.tensor([0.0, 1e-12, 0.5e-6, 2e-6])
    F, rows = problem.linearize(x)  # type: ignore[misc]  # closed forms
    which = 1 if isinstance(problem, ZDT1) else 3
    expected = torch.from_numpy(zdt(which, x.numpy()))
    torch.testing.assert_close(F, expected, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(problem.values(x), expected, rtol=1e-13, atol=1e-15)
    J = rows()
    assert J.isfinite().all()
    torch.testing.assert_close(J, autodiff(problem.values, x), rtol=1e-12, atol=1e-14)
    g = (F[0, 1]).sqrt()  # at x_1 = 0: f_2 = g
    torch.testing.assert_close(J[0, 1, 0], -500.0 * g)
    truth = -0.5 * ((1 + 9 * x[3, 1:].mean()) / 2e-6).sqrt()
    assert abs(J[3, 1, 0] - truth) < 1e-3  # above the floor nothing is changed (ZDT3 adds 4e-3 of its wave)


# --- fronts -------------------------------------------------------------------------------------------------


def test_front_points_do_not_dominate_each_other(problem: Problem) -> None:
    F = problem.front(400)
    assert F is not None
    assert F.dtype == torch.float64
    assert F.shape == (400, problem.n_objectives)
    assert not dominated(F, F, margin=1e-12).any()


@pytest.mark.parametrize(
    "name", ["vlmop2", "zdt1", "zdt2", "zdt3", "dtlz2", "dtlz2-2", "least_squares", "least_squares-3"]
)
def test_no_random_point_dominates_the_front(name: str) -> None:
    p = CASES[name]
    F = p.front(300)
    assert F is not None
    rng = torch.Generator().manual_seed(1)
    x = torch.rand(4000, p.dim, dtype=torch.float64, generator=rng)
    near = x.clone()  # close to the Pareto set
    if isinstance(p, VLMOP2):
        x = 2 * x - 1
        near = (2 * near[:, :1] - 1) / p.n**0.5 + 0.05 * (near - 0.5)
    elif isinstance(p, DTLZ2):
        near[:, p.M - 1 :] = 0.5 + 0.05 * (near[:, p.M - 1 :] - 0.5)
    elif isinstance(p, LeastSquares):
        w = near[:, : p.tasks] / near[:, : p.tasks].sum(1, keepdim=True)
        near = p.minimiser(w) + 0.05 * (near - 0.5)
    else:
        near[:, 1:] *= 0.01 * near[:, 1:2]
    for points in (x, near):
        assert not dominated(F, p.values(points), margin=1e-12).any()


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_sampled_evenly(name: str) -> None:
    p = CASES[name]
    F = p.front(2001)
    assert F is not None
    gaps = (F[1:] - F[:-1]).norm(dim=1)
    typical = gaps.median()
    assert (gaps > 1.5 * typical).sum() == (4 if name == "zdt3" else 0)
    assert gaps.min() > 0.5 * typical or name == "zdt3"


def test_zdt3_pieces_are_those_of_the_literature() -> None:
    """The end points that are usually quoted for this front (jMetal, pymoo and others give ten digits)."""
    quoted = [
        (0.0, 0.0830015349),
        (0.1822287280, 0.2577623634),
        (0.4093136748, 0.4538821041),
        (0.6183967944, 0.6525117038),
        (0.8233317983, 0.8518328654),
    ]
    np.testing.assert_allclose(ZDT3().pieces(), quoted, atol=1e-10)


def test_zdt3_front_is_all_of_the_nondominated_curve() -> None:
    x1 = np.linspace(0, 1, 40001)
    f = np.stack([x1, 1 - np.sqrt(x1) - x1 * np.sin(10 * np.pi * x1)], 1)
    best_to_the_left = np.minimum.accumulate(f[:, 1])
    nondominated = torch.from_numpy(f[f[:, 1] <= best_to_the_left])
    front = ZDT3().front(20001)
    assert front_distance(nondominated[::7], front).max() < 1e-4
    assert front_distance(front[1::50], nondominated).max() < 5e-3  # the first points have a vertical tangent


@pytest.mark.parametrize("M", [2, 3, 5])
def test_dtlz2_front_lies_on_the_octant_and_fills_it(M: int) -> None:
    p = DTLZ2(M=M)
    F = p.front(2000)
    torch.testing.assert_close(F.norm(dim=1), torch.ones(2000, dtype=torch.float64))
    assert F.min() >= 0
    assert p.distance_to_front(F).max() < 1e-15
    # uniform on the octant: every coordinate has the same mean
    if M > 2:
        assert (F.mean(0) - F.mean()).abs().max() < 5e-3
    assert abs(p.distance_to_front(2.0 * F[:1]).item() - 1.0) < 1e-15


def test_least_squares_front_minimises_weighted_sums() -> None:
    p = LeastSquares()
    F = p.front(2001)
    for w in torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.02, 0.98]], dtype=torch.float64):
        x = p.minimiser(w.unsqueeze(0))
        pull = (w.view(1, -1, 1) * p.linearize(x)[1]()).sum(1)
        assert pull.norm() < 1e-14
        best = (p.values(x) @ w).item()
        assert best <= (F @ w).min().item() <= best + 1e-6


def test_the_first_tasks_do_not_depend_on_the_number_of_tasks() -> None:
    two = LeastSquares(tasks=2).data()
    three = LeastSquares(tasks=3).data()
    assert torch.equal(two.A, three.A[:, :2])
    assert not torch.equal(two.A, LeastSquares(data_seed=1).data().A)
    assert LeastSquares().data(torch.float32).A is LeastSquares().data(torch.float32).A


# --- Tchebycheff targets of VLMOP2 --------------------------------------------------------------------------


def test_tchebycheff_targets_of_the_omd_specification() -> None:
    k = torch.arange(10, dtype=torch.float64)
    w = torch.stack([k / 9, 1 - k / 9], 1).clamp(0.01, 0.99)
    f = VLMOP2(n=10).tchebycheff_target(w)
    printed = [0.9730, 0.9338, 0.8818, 0.8065, 0.6987, 0.5589, 0.4032, 0.2519, 0.1167, 0.0098]
    expected = torch.tensor(printed, dtype=torch.float64)
    torch.testing.assert_close(f[:, 0], expected, rtol=0, atol=5e-5)
    torch.testing.assert_close(f[:, 1], expected.flip(0), rtol=0, atol=5e-5)


@pytest.mark.parametrize("scale", [(1.0, 1.0), (3.0, 1e-3)])
def test_tchebycheff_target_is_on_the_ray_and_on_the_front(scale: tuple[float, float]) -> None:
    p = VLMOP2(scale=scale)
    w = resolve(10, 2)
    f = p.tchebycheff_target(w)
    torch.testing.assert_close(w[:, 0] * f[:, 0], w[:, 1] * f[:, 1], rtol=1e-13, atol=0)
    unit = torch.tensor(scale, dtype=torch.float64)
    assert front_distance(f / unit, p.front(20001) / unit).max() < 1e-4
    value = (w * f).amax(1)
    assert (value <= (w.unsqueeze(1) * p.front(2001)).amax(-1).amin(1) + 1e-12).all()


# --- starts -------------------------------------------------------------------------------------------------


def test_default_starts_can_move(problem: Problem) -> None:
    x = problem.initial(runs_of(problem.n_objectives, 1, tuple(range(10))))
    scale = torch.tensor(getattr(problem, "scale", (1.0,) * problem.n_objectives), dtype=torch.float64)
    # closed forms
    assert (problem.linearize(x)[1]().norm(dim=-1) / scale).min() > 0.05  # type: ignore[index]


def test_per_preference_starts() -> None:
    runs = runs_of(2)
    p = VLMOP2(start={"kind": "uniform", "low": -0.2, "high": 0.2, "per_preference": True})
    x = p.initial(runs)
    assert len(x.unique(dim=0)) == 9
    assert torch.equal(p.initial(runs.take([4, 7])), x[[4, 7]])
    assert x.abs().max() <= 0.2


def test_other_start_kinds() -> None:
    runs = runs_of(2)
    zero = VLMOP2(start={"kind": "constant", "value": 0.25}).initial(runs)
    assert (zero == 0.25).all()
    halves = VLMOP2(n=4, start={"kind": "halves", "value": 0.5}).initial(runs)[0]
    assert halves.tolist() == [0.5, 0.5, -0.5, -0.5]
    signs = VLMOP2(start={"kind": "alternating_uniform", "low": 0.15, "high": 0.5}).initial(runs)
    assert (signs[:3] > 0).all()
    assert (signs[3:6] < 0).all()
    wave = VLMOP2(n=3, start={"kind": "alternating", "scale": 0.3, "noise": 0.0}).initial(runs)[0]
    assert wave.tolist() == [0.3, -0.3, 0.3]


def test_scale_does_not_change_the_start() -> None:
    runs = runs_of(2)
    assert torch.equal(VLMOP2().initial(runs), VLMOP2(scale=(5.0, 0.1)).initial(runs))


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: VLMOP2(start={"kind": "unifrom", "low": 0, "high": 1}), "Did you mean 'uniform'"),
        (lambda: VLMOP2(start={"kind": "uniform", "low": 0}), "low, high"),
        (lambda: VLMOP2(scale=(1.0, 0.0)), "two positive factors"),
        (lambda: VLMOP2(scale=(1.0, 1.0, 1.0)), "two positive factors"),
        (lambda: VLMOP2(clip=0.1), "cuts off Pareto points"),
        (lambda: VLMOP2(n=0), "at least 1"),
        (lambda: ZDT1(n=1), "at least 2"),
        (lambda: ZDT1(floor=0.0), "between 0 and 1"),
        (lambda: DTLZ2(M=1), "at least 2"),
        (lambda: DTLZ2(M=4, n=3), "n >= M"),
        (lambda: LeastSquares(samples=5), "not be unique"),
        (lambda: LeastSquares(tasks=0), "at least 1"),
    ],
)
def test_refusals_say_what_to_do(build: Callable[[], Problem], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


# --- minibatches --------------------------------------------------------------------------------------------


def test_singleton_batches_average_to_the_full_sum() -> None:
    p = LeastSquares(tasks=3, n=6, samples=40)
    x = some(p, 2)
    each = [p.linearize(x, torch.full((2, 1), i)) for i in range(40)]
    F, rows = p.linearize(x)
    torch.testing.assert_close(torch.stack([e[0] for e in each]).mean(0), F)
    torch.testing.assert_close(torch.stack([e[1]() for e in each]).mean(0), rows())


def test_batch_rows_equal_autodiff_and_runs_have_their_own_batches() -> None:
    p = LeastSquares(tasks=3)
    x = some(p, 5)
    batch = torch.randint(0, 256, (5, 8), generator=torch.Generator().manual_seed(2))
    F, rows = p.linearize(x, batch)
    torch.testing.assert_close(F, p.values(x, batch), rtol=0, atol=1e-15)
    torch.testing.assert_close(rows(), autodiff(lambda y: p.values(y, batch), x), rtol=1e-12, atol=1e-13)
    d = p.data()
    for r in range(5):
        terms = [0.5 * ((d.A[i] @ x[r]) - d.b[i]) ** 2 for i in batch[r].tolist()]
        torch.testing.assert_close(F[r], torch.stack(terms).mean(0))


# --- configuration files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MINE, "constrained_gaussian", "pls"])
def test_the_yaml_file_states_the_class_defaults(name: str) -> None:
    config = OmegaConf.load(CONF / f"{name}.yaml")
    built = instantiate(config)
    default = type(built)()
    for key in config:
        if key not in ("_target_", "start"):
            assert getattr(built, str(key)) == getattr(default, str(key)), key
    start = {k: v for k, v in dict(built.start).items() if k != "per_preference"}
    assert start == dict(default.start)
    assert set(config) - {"_target_"} <= set(default.__dataclass_fields__)
    assert torch.equal(
        built.initial(runs_of(built.n_objectives)), default.initial(runs_of(built.n_objectives))
    )


@pytest.mark.parametrize("name", list(CASES))
def test_every_problem_carries_its_truth(name: str) -> None:
    p = CASES[name]
    F = p.front(500)
    assert p.ref_point is not None
    assert F is not None
    assert len(p.ref_point) == p.n_objectives
    assert F.le(torch.tensor(p.ref_point, dtype=torch.float64)).all()
    assert p.citation
    assert p.positive == bool((F >= 0).all())
    assert isinstance(p.X, Box) == (name.startswith(("zdt", "dtlz")) or name == "vlmop2-scaled")
    assert isinstance(VLMOP2().X, Free)


def test_second_derivatives_of_dtlz2_at_a_corner() -> None:
    """x_1 = 1, where a factor is 6e-17: Hessian products against differences of closed-form rows."""
    problem = DTLZ2(M=3, n=6)
    runs = Runs.product(torch.full((1, 3), 1 / 3, dtype=torch.float64), [0])
    oracle = Exact(problem, runs)
    x = torch.tensor([[1.0, 0.4, 0.3, 0.6, 0.2, 0.7]], dtype=torch.float64)
    w = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    v = torch.linspace(-1, 1, 6, dtype=torch.float64).unsqueeze(0)
    products = oracle.at(x, {}, 0).hvp(w, v)
    ahead, back = (oracle.at(x + s * 1e-6 * v, {}, 0).vjp(w) for s in (1.0, -1.0))
    torch.testing.assert_close(products, (ahead - back) / 2e-6, rtol=1e-6, atol=1e-8)
