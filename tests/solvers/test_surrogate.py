"""The solver of CSMOO's surrogates: certificates, two references, invariances, failures."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from mobench.core.sets import Ball, Box, Free, Intervals, Set
from mobench.solvers import TOLERANCE, reference
from mobench.solvers.kernels.surrogate import Limits
from mobench.solvers.surrogate import Surrogate, SurrogateSolution, solve_surrogate
from tests.reference import csmoo

MODULE = sys.modules["mobench.solvers.surrogate"]
DTYPE = torch.float64

SETS: dict[str, Set] = {"free": Free(), "box": Box(-2.0, 2.0), "ball": Ball(2.0)}
SHAPES = [(1, 1, 0), (1, 2, 2), (2, 2, 0), (2, 3, 3), (8, 2, 2), (8, 1, 4), (200, 3, 3)]  # P, M, N
FAMILIES = [
    "random", "infeasible", "nearly", "duplicated", "zero rows", "collinear", "active", "pinned",
    "scaled rows", "scaled runs", "other units", "boundary", "moving", "different tau", "far",
    "objective only",
]  # fmt: skip


def normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=DTYPE)


def uniform(g: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=g, dtype=DTYPE)


def full(R: int, value: float) -> Tensor:
    return torch.full((R, 1), value, dtype=DTYPE)


def make(family: str, kind: str, two: bool, R: int, P: int, M: int, N: int, beta: float = 5.0) -> Surrogate:
    """R surrogates of CSMOO-1 (one y) or CSMOO-2 (two) with M objectives and N constraints."""
    g = torch.Generator().manual_seed(FAMILIES.index(family) + 100 * P + 10 * M + N)
    X = SETS[kind]
    K = M + N
    tau = torch.full((K + 1,), 0.08, dtype=DTYPE)
    if family == "different tau":
        tau = 10 ** (3 * uniform(g, K + 1) - 2)
    slopes = torch.zeros(K + 1, 1 + two, dtype=DTYPE)
    slopes[0, 0] = 1.0
    slopes[1 : M + 1, 0] = -1.0
    tau_y = tau[:, None].repeat(1, 1 + two)
    low = full(R, -torch.inf)
    y = uniform(g, R, 1) * (uniform(g, R, 1) > 0.3)
    c = 0.3 * normal(g, R, K)
    rows = 2 * normal(g, R, K, P) / P**0.5
    c[:, M:] -= 0.5
    if two:
        slopes[0, 1] = beta
        slopes[M + 1 :, 1] = -1.0
        low = torch.cat((low, -y), 1)
        if family == "objective only":
            tau_y[1:, 1] = 0.0
    x = X.project((30 if family == "boundary" else 1.5) * normal(g, R, P))
    moving = None
    if family == "infeasible":
        c[:, M:] += 8 * uniform(g, R, 1)
    elif family == "far":
        c = c * 10 ** (6 * uniform(g, R, 1) - 2)
        rows = rows * 10 ** (4 * uniform(g, R, 1, 1) - 2)
    elif family == "duplicated":
        rows[:, -1] = rows[:, 0]
        c[:, -1] = c[:, 0]
    elif family == "zero rows":
        rows[uniform(g, R, K) < 0.4] = 0
    elif family == "collinear":
        rows = normal(g, R, K, 1) * rows[:, :1]
    elif family == "active":
        c = torch.where(uniform(g, R, K) < 0.6, 0.0, c)
    elif family == "pinned":  # d = 0 is the only point; nothing satisfies these constraints strictly
        rows[:, -1] = 0
        c[:, -1] = 0
        slopes[-1] = 0.0
        c = c.clamp_max(0.0)
    elif family == "scaled rows":
        scale = 10 ** (8 * uniform(g, R, K) - 4)
        c = c * scale
        rows = rows * scale[:, :, None]
    elif family == "scaled runs":
        scale = 10 ** (8 * uniform(g, R, 1) - 4)
        c = c * scale
        rows = rows * scale[:, :, None]
    elif family == "other units":
        scale = float(10 ** (8 * uniform(g, 1) - 4))
        c, rows, slopes, tau, tau_y = (scale * t for t in (c, rows, slopes, tau, tau_y))
    elif family == "moving":
        moving = uniform(g, R, P) < 0.5
        moving[0] = False
        moving[1] = True
    program = Surrogate(c, rows, slopes, tau, tau_y, x, low, X, moving)
    if family == "nearly":  # the value of (13) is +-1e-6 ... +-1e-3
        target = 10 ** (3 * uniform(g, R) - 6) * torch.sign(uniform(g, R) - 0.5)
        program = replace(program, c=program.c + (target - relaxed_value(program))[:, None])
    return program


def relaxed_value(program: Surrogate) -> Tensor:
    """The value of (13): a shift of all constraints moves it by as much."""
    shift = 1e3 * (1 + program.c.abs().amax(1) + program.rows.abs().sum((1, 2)))
    solution = solve_surrogate(replace(program, c=program.c + shift[:, None]))
    assert solution.infeasible.all()
    return solution.worst - shift


def programs(family: str, kind: str, R: int, shapes: list[tuple[int, int, int]] = SHAPES) -> list[Surrogate]:
    out = []
    for i, (P, M, N) in enumerate(shapes):
        for two in (False, True):
            if (two and N == 0) or (family == "duplicated" and M + N == 1) or (family == "pinned" and N == 0):
                continue
            out.append(make(family, kind, two, R, P, M, N, beta=(5.0, 0.0, 0.5, 1000.0)[i % 4]))
    return out


def constraints(p: Surrogate, dx: Tensor, dy: Tensor) -> Tensor:
    """h_0..h_K (R, K + 1), coordinate by coordinate."""
    rows = torch.cat((torch.zeros_like(p.rows[:, :1]), p.rows), 1)
    c = torch.cat((torch.zeros_like(p.c[:, :1]), p.c), 1)
    curved = 0.5 * ((dx**2).sum(1)[:, None] * p.tau + (dy[:, None] ** 2 * p.tau_y).sum(2))
    return c + (rows * dx[:, None]).sum(2) + (dy[:, None] * p.slopes).sum(2) + curved


def dual(p: Surrogate, mu: Tensor, relaxed: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """q(mu) and d(mu), by projection, for all coordinates moving."""
    weights = torch.cat((torch.full_like(mu[:, :1], 0.0 if relaxed else 1.0), mu), 1)
    dx = p.X.project(p.x - torch.einsum("rk,rkp->rp", mu, p.rows) / (weights @ p.tau)[:, None]) - p.x
    dy = torch.maximum(-(weights @ p.slopes) / (weights @ p.tau_y), p.low)
    return (weights * constraints(p, dx, dy)).sum(1), dx, dy


def assert_solved(p: Surrogate, s: SurrogateSolution) -> None:
    assert not s.failed.any()
    assert s.residual.max() <= TOLERANCE
    assert all(t.isfinite().all() for t in s)
    assert (s.mu >= 0).all()
    assert (p.X.project(p.x + s.dx) - p.x - s.dx).abs().max() <= 1e-12
    assert (s.dy >= p.low).all()
    assert p.moving is None or (s.dx[~p.moving] == 0).all()
    h = constraints(p, s.dx, s.dy)[:, 1:]
    assert torch.allclose(h.amax(1), s.worst, rtol=1e-9, atol=1e-9 * p.rows.abs().amax().item())


def assert_same(p: Surrogate, a: SurrogateSolution, b: SurrogateSolution, tolerance: float) -> None:
    """Equal steps; multipliers may differ where they are not unique."""
    assert torch.equal(a.infeasible, b.infeasible)
    size = 1 + torch.cat((a.dx, a.dy), 1).abs().amax(1, keepdim=True)
    for one, other in ((a.dx, b.dx), (a.dy, b.dy)):
        assert ((one - other).abs() / size).max() <= tolerance


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_certified(family, kind):
    for p in programs(family, kind, 20, SHAPES[:-1] if family == "pinned" else SHAPES):
        s = solve_surrogate(p)
        assert_solved(p, s)
        if family == "pinned":
            assert not s.infeasible.any()
            assert torch.maximum(s.dx.abs().amax(1), s.dy.abs().amax(1)).max() < 1e-6
        again = solve_surrogate(p, s.mu)
        assert_solved(p, again)
        assert torch.equal(s.infeasible, again.infeasible)


REGIONS = {"free": csmoo.Box(), "box": csmoo.Box(-2.0, 2.0), "ball": csmoo.Ball(4.0)}


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_the_reference(family, kind):
    shapes = [(1, 2, 2), (2, 2, 0), (8, 2, 2)] + ([(200, 3, 3)] if family in ("random", "moving") else [])
    compared = 0
    for p in programs(family, kind, 3, shapes):
        s = solve_surrogate(p)
        a_0 = np.concatenate((np.zeros(p.x.shape[1]), p.slopes[0].numpy()))
        tau = np.concatenate((np.repeat(p.tau.numpy()[:, None], p.x.shape[1], 1), p.tau_y.numpy()), 1)
        A = torch.cat((p.rows, p.slopes[1:].expand(len(p.c), -1, -1)), 2).numpy()
        for i in range(len(p.c)):
            free = None if p.moving is None else p.moving[i].numpy()
            options = {"y_lower": p.low[i].numpy(), "free": free}
            nearest = csmoo.phase1(p.c[i].numpy(), A[i], tau, p.x[i].numpy(), REGIONS[kind], **options)
            d = torch.cat((s.dx[i], s.dy[i])).numpy()
            size = 1 + np.abs(d).max()
            terms = np.abs(p.c[i].numpy()).max() + np.abs(A[i]).max() * size
            if nearest.residual < 1e-10 and abs(nearest.value) > 1e-9 * terms:
                assert bool(s.infeasible[i]) == (nearest.value > 0)
            if s.infeasible[i] and nearest.residual < 1e-10:
                compared += 1
                assert abs(nearest.value - float(s.worst[i])) <= 1e-9 * terms
                assert np.abs(nearest.delta - d).max() <= 1e-6 * size
            if s.infeasible[i]:
                continue
            other = csmoo.surrogate(p.c[i].numpy(), a_0, A[i], tau, p.x[i].numpy(), REGIONS[kind], **options)
            if other.residual < 1e-10:
                compared += 1
                value = a_0 @ d + 0.5 * tau[0] @ d**2
                scale = (
                    np.abs(a_0) @ np.abs(d)
                    + 0.5 * tau[0] @ d**2
                    + np.sum(np.abs(other.multipliers * p.c[i].numpy()))
                )
                assert abs(value - other.value) <= 1e-9 * (scale + np.abs(a_0).max() * size)
                assert np.abs(other.delta - d).max() <= 1e-6 * size
    # without a strictly feasible point a cone solver has no multipliers
    assert compared >= 8 or family == "pinned"


def test_infeasible_where_the_formula_says_so():
    # dx does nothing (zero rows); A, B the largest values of objectives and constraints
    g = torch.Generator().manual_seed(0)
    R = 400
    tau = 0.08
    A = 8 * uniform(g, R)
    B = 8 * uniform(g, R)
    p = make("random", "box", True, R, 2, 2, 2)
    c = torch.stack((A, A - uniform(g, R), B, B - uniform(g, R)), 1)
    p = replace(p, c=c, rows=0 * p.rows, low=torch.stack((p.low[:, 0], 0 * A), 1))
    room = 1 - tau * (A + B)
    feasible = (room >= 0) & (room**2 >= 2 * tau**2 * (A**2 + B**2))
    s = solve_surrogate(p)
    assert_solved(p, s)
    assert torch.equal(s.infeasible, ~feasible)
    assert 100 < feasible.sum() < 300


@pytest.mark.parametrize("kind", SETS)
def test_values_of_infeasible_and_feasible_programs_agree_with_13(kind):
    for p in programs("nearly", kind, 20, [(1, 2, 2), (8, 2, 2)]):
        s = solve_surrogate(p)
        value = relaxed_value(p)
        assert torch.equal(s.infeasible, value > 0)
        assert (s.infeasible.sum() > 2) & ((~s.infeasible).sum() > 2)
        infeasible = s.infeasible
        assert torch.allclose(s.worst[infeasible], value[infeasible], rtol=0, atol=1e-8)
        assert torch.allclose(s.mu[infeasible].sum(1), torch.ones(int(infeasible.sum()), dtype=DTYPE))
        below = dual(p, s.mu, relaxed=True)[0]  # a lower bound of (13), as anybody may compute it
        assert (below[infeasible] > 0).all()


@pytest.mark.parametrize("kind", SETS)
def test_duality(kind):
    g = torch.Generator().manual_seed(1)
    for two in (False, True):
        p = make("random", kind, two, 30, 3, 2, 2)
        s = solve_surrogate(p)
        assert_solved(p, s)
        ok = ~s.infeasible
        value = constraints(p, s.dx, s.dy)[:, 0]
        best, dx, dy = dual(p, s.mu)
        assert torch.allclose(best[ok], value[ok], rtol=1e-9, atol=1e-11)
        assert torch.allclose(dx[ok], s.dx[ok], rtol=0, atol=1e-9)
        assert torch.allclose(dy[ok], s.dy[ok], rtol=0, atol=1e-9)
        feasible = 0
        for _ in range(20):
            mu = 10 ** (4 * uniform(g, 30, 4) - 3)
            assert (dual(p, mu)[0] <= value + 1e-9)[ok].all()  # weak duality
            t = 10 ** (-4 * uniform(g, 30, 1))
            ex = p.X.project(p.x + s.dx + t * normal(g, 30, 3)) - p.x
            ey = torch.maximum(s.dy + t * normal(g, *s.dy.shape).abs(), p.low)
            h = constraints(p, ex, ey)
            inside = (h[:, 1:] <= 0).all(1) & ok
            feasible += int(inside.sum())
            assert (h[:, 0] >= value - 1e-9)[inside].all()  # nobody does better
        assert feasible > 20


def test_steps_do_not_depend_on_the_units():
    for kind in SETS:
        p = make("random", kind, True, 20, 3, 2, 2)
        s = solve_surrogate(p)
        for scale in (1e-6, 1e6):  # objective and constraints in other units
            names = ("c", "rows", "slopes", "tau", "tau_y")
            q = replace(p, **{name: scale * getattr(p, name) for name in names})
            assert_same(p, s, solve_surrogate(q), 1e-8)
            # every constraint in units of its own
            each = torch.tensor([1.0, scale, 1.0, 0.01, 1.0], dtype=DTYPE)
            changes = {name: getattr(p, name) * each[:, None] for name in ("slopes", "tau_y")}
            changes |= {"c": p.c * each[1:], "rows": p.rows * each[1:, None], "tau": p.tau * each}
            other = solve_surrogate(replace(p, **changes))
            feasible = ~s.infeasible
            assert not other.failed.any()
            assert torch.equal(s.infeasible, other.infeasible)
            assert (s.dx - other.dx)[feasible].abs().max() < 1e-7
            assert ((other.mu * each[1:] - s.mu)[feasible].abs() / (1 + s.mu[feasible])).max() < 1e-6
    for scale in (1e-6, 1e6):  # x and y in other units
        p = make("random", "free", True, 20, 3, 2, 2)
        q = replace(
            p, rows=p.rows / scale, slopes=p.slopes / scale, tau=p.tau / scale**2, tau_y=p.tau_y / scale**2
        )
        q = replace(q, x=scale * p.x, low=scale * p.low)
        s = solve_surrogate(p)
        other = solve_surrogate(q)
        assert (s.dx - other.dx / scale).abs().max() < 1e-7


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("family", ["random", "infeasible", "different tau"])
def test_order_of_constraints_and_of_runs(family, kind):
    order = torch.tensor([2, 0, 3, 1])
    p = make(family, kind, True, 12, 3, 2, 2)
    s = solve_surrogate(p)
    rows = torch.cat((torch.zeros(1, dtype=torch.int64), 1 + order))
    q = replace(
        p, c=p.c[:, order], rows=p.rows[:, order], slopes=p.slopes[rows], tau=p.tau[rows], tau_y=p.tau_y[rows]
    )
    permuted = solve_surrogate(q)
    assert_same(p, s, permuted, 1e-9)
    assert torch.allclose(permuted.mu, s.mu[:, order], rtol=1e-8, atol=1e-9)
    for i in range(12):
        alone = solve_surrogate(p.take(torch.tensor([i])))
        assert torch.equal(alone.infeasible, s.infeasible[i : i + 1])
        assert torch.allclose(alone.dx, s.dx[i : i + 1], rtol=1e-12, atol=1e-12)
        assert torch.allclose(alone.dy, s.dy[i : i + 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("family", ["random", "infeasible", "nearly", "boundary", "moving"])
def test_any_start_gives_the_same_answer(family, kind):
    for p in programs(family, kind, 15, [(1, 2, 2), (8, 2, 2)]):
        s = solve_surrogate(p)
        g = torch.Generator().manual_seed(3)
        wild = 10 ** (20 * uniform(g, *p.c.shape) - 10) * torch.sign(normal(g, *p.c.shape))
        starts = [
            0 * p.c,
            0 * p.c + 1e12,
            0 * p.c + torch.nan,
            0 * p.c - torch.inf,
            wild,
            s.mu,
            s.mu.float().double(),
        ]
        for start in starts:
            other = solve_surrogate(p, start)
            assert_solved(p, other)
            assert_same(p, s, other, 1e-6 if family == "nearly" else 1e-8)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("kind", SETS)
def test_a_diverged_run_is_alone_with_it(kind, bad):
    for family in ("random", "infeasible"):
        p = make(family, kind, True, 7, 3, 2, 2)
        before = solve_surrogate(p)
        others = torch.arange(7) != 3
        for name in ("c", "rows", "x"):
            value = getattr(p, name).clone()
            value[3].view(-1)[0] = bad
            after = solve_surrogate(replace(p, **{name: value}))
            assert not after.failed.any()
            assert not after.infeasible[3]
            assert after.dx[3].isnan().all()
            assert after.dy[3].isnan().all()
            assert after.residual[3].isnan()
            for one, other in zip(before, after, strict=True):
                assert torch.allclose(one[others].double(), other[others].double(), rtol=1e-12, atol=1e-12)


def limited(monkeypatch: pytest.MonkeyPatch, **changes: float) -> None:
    """Other thresholds for the kernel."""
    limits = Limits(*MODULE.LIMITS)._replace(**changes)
    monkeypatch.setattr(MODULE, "LIMITS", np.array(limits))


@pytest.mark.parametrize("kind", SETS)
def test_the_certificate_sees_errors(kind, monkeypatch):
    """The kernel takes the multipliers that it is given for the answer; only its certificate is left."""
    p = make("random", kind, True, 30, 3, 2, 2)
    p = p.take(~solve_surrogate(p).infeasible)
    mu = solve_surrogate(p).mu
    limited(monkeypatch, newton=0, interior=0)

    def residual(mu: Tensor) -> Tensor:
        s = solve_surrogate(p, mu)
        assert torch.equal(s.failed, s.residual > TOLERANCE)
        assert s.dx[s.failed].isnan().all()
        assert s.mu[s.failed].isnan().all()
        assert not s.infeasible.any()
        return s.residual

    assert residual(mu).max() < 1e-10
    near = residual(1.001 * mu)
    assert near.min() > 1e-7
    assert near.max() < 0.1  # that of (11), although (13) settles nothing
    assert residual(0 * mu).min() > 1e-3
    assert residual(mu.flip(1)).min() > 1e-6


def test_the_kernel_knows_the_same_thresholds():
    limits = Limits(*MODULE.LIMITS)
    assert limits._asdict() == {name: vars(MODULE)[name.upper()] for name in Limits._fields}


@pytest.mark.parametrize("kind", SETS)
def test_the_interior_point_method_is_needed_and_is_judged(kind, monkeypatch):
    p = make("nearly", kind, True, 60, 2, 3, 3)
    limited(monkeypatch, newton=2)
    assert_solved(p, solve_surrogate(p))  # where Newton's method gives up, the interior point goes on
    limited(monkeypatch, newton=2, interior=0)
    s = solve_surrogate(p)
    assert s.failed.any()
    assert (s.residual[~s.failed] <= TOLERANCE).all()
    assert s.dx[s.failed].isnan().all()


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("family", ["random", "infeasible", "nearly", "duplicated", "scaled rows", "moving"])
def test_agrees_with_cvxpy(family, kind):
    for p in programs(family, kind, 3, [(1, 2, 2), (8, 2, 2)]):
        exact = solve_surrogate(p)
        other = reference.solve_surrogate(p)
        assert not other.failed.any()
        assert torch.equal(exact.infeasible, other.infeasible)
        values = [
            torch.where(s.infeasible, s.worst, constraints(p, s.dx, s.dy)[:, 0]) for s in (exact, other)
        ]
        size = 1 + p.c.abs().amax(1) + p.rows.abs().amax((1, 2))
        assert ((values[0] - values[1]).abs() / size).max() <= 1e-6
        # the root of what the values differ by
        assert_same(p, exact, other, 1e-3 if family == "scaled rows" else 1e-4)


def test_cvxpy_is_compiled_once_and_leaves_diverged_runs_alone():
    p = make("random", "ball", True, 3, 3, 2, 2)
    p.c[1, 0] = torch.nan
    reference._surrogate_problem.cache_clear()
    s = reference.solve_surrogate(p)
    assert not s.failed.any()
    assert s.residual.isnan().tolist() == [False, True, False]
    assert s.dx[1].isnan().all()
    reference.solve_surrogate(replace(p, c=p.c - 0.1, tau=2 * p.tau))
    assert reference._surrogate_problem.cache_info().misses <= 2  # (11), and (13) if some run needed it
    with pytest.raises(ValueError, match="Disguised"):
        reference.solve_surrogate(replace(p, X=Disguised(p.X)))


@pytest.mark.parametrize("kind", SETS)
def test_the_answer_of_cvxpy_does_not_depend_on_earlier_runs(kind):
    p = make("random", kind, True, 4, 3, 2, 2)
    together = reference.solve_surrogate(p)
    for i in (3, 1, 2):
        reference._surrogate_problem.cache_clear()  # a solver that has seen no other run
        alone = reference.solve_surrogate(p.take(torch.tensor([i])))
        assert torch.equal(alone.dx[0], together.dx[i])
        assert torch.equal(alone.mu[0], together.mu[i])


class Disguised(Set):
    """A set that nobody knows but for its projection."""

    def __init__(self, X: Set) -> None:
        self.X = X

    def project(self, p):
        return self.X.project(p)

    def tangent(self, p, V):
        return self.X.tangent(p, V)


def test_a_box_and_intervals_of_the_same_bounds_are_one_set():
    for family in ("random", "infeasible", "moving"):
        p = make(family, "box", True, 15, 3, 2, 2)
        one, other = (solve_surrogate(replace(p, X=X)) for X in (p.X, Intervals((-2.0,) * 3, (2.0,) * 3)))
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_set_without_a_formula_is_refused():
    p = make("random", "box", True, 2, 3, 2, 2)
    with pytest.raises(ValueError, match="Disguised"):
        solve_surrogate(replace(p, X=Disguised(p.X)))


@pytest.mark.parametrize("kind", SETS)
def test_blocks_of_variables(kind):
    p = make("random", kind, True, 10, 4, 2, 2)
    s = solve_surrogate(p)
    everything = torch.ones(10, 4, dtype=torch.bool)
    nothing = torch.zeros(10, 4, dtype=torch.bool)
    assert_same(p, s, solve_surrogate(replace(p, moving=everything)), 1e-9)
    still = solve_surrogate(replace(p, moving=nothing))
    assert (still.dx == 0).all()
    assert_same(p, still, replace_rows(p), 1e-9)
    block = torch.arange(4) < 2
    q = replace(p, moving=block.expand(10, 4))
    part = solve_surrogate(q)
    assert_solved(q, part)
    if kind != "ball":  # in a ball the others take room
        small = solve_surrogate(replace(p, rows=p.rows[:, :, :2].contiguous(), x=p.x[:, :2].contiguous()))
        assert torch.allclose(part.dx[:, :2], small.dx, rtol=0, atol=1e-9)
    value = constraints(p, part.dx, part.dy)[:, 0]
    better = constraints(p, s.dx, s.dy)[:, 0] <= value + 1e-9
    assert (better | s.infeasible | part.infeasible).all()


def replace_rows(p: Surrogate) -> SurrogateSolution:
    """x that cannot move is x without any effect."""
    s = solve_surrogate(replace(p, rows=0 * p.rows))
    return s._replace(dx=torch.where(s.infeasible[:, None], 0.0, s.dx))


def test_a_fixed_point_stays():
    # objectives that balance, values at their level: d = 0 and the multipliers that make the slopes cancel
    rows = torch.tensor([[[0.5], [-0.6]]], dtype=DTYPE)
    p = make("random", "box", False, 1, 1, 2, 0)
    p = replace(p, c=torch.zeros(1, 2, dtype=DTYPE), rows=rows, x=full(1, 0.4))
    s = solve_surrogate(p)
    assert_solved(p, s)
    assert s.dx.abs().max() < 1e-12
    assert torch.allclose(s.mu, torch.tensor([[6 / 11, 5 / 11]], dtype=DTYPE), rtol=1e-9)


def test_inputs_are_left_alone_and_gradients_are_not_tracked():
    for family in ("random", "infeasible"):
        p = make(family, "box", True, 10, 3, 2, 2)
        copies = [t.clone() for t in (p.c, p.rows, p.x, p.low)]
        warm = torch.ones_like(p.c)
        p.rows.requires_grad_(True)
        s = solve_surrogate(p, warm)
        assert not s.dx.requires_grad
        assert all(
            torch.equal(t.detach(), copy) for t, copy in zip((p.c, p.rows, p.x, p.low), copies, strict=True)
        )
        assert (warm == 1).all()
        rounded = solve_surrogate(replace(p, rows=p.rows.detach().float()))
        assert rounded.dx.dtype == DTYPE
        assert torch.allclose(rounded.dx, s.dx, rtol=0, atol=1e-4)


@pytest.mark.parametrize("constant", [20.0, 0.5])
def test_a_slack_without_curvature_hides_no_violation(constant: float) -> None:
    """y_0 can lower c - y_0 + tau/2 y_0^2 by 1 / (2 tau) = 6.25 at most. Multipliers of 1e18 once made a
    violation of 13.7 small beside the terms that cancel.
    """
    slopes = torch.tensor([[1.0, 5.0], [-1.0, 0.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    tau_y = torch.full((4, 2), 0.08, dtype=torch.float64)
    tau_y[1:, 1] = 0.0
    solution = solve_surrogate(
        Surrogate(
            c=torch.tensor([[constant, 1.0, 0.5]], dtype=torch.float64),
            rows=torch.tensor([[[0.01], [-0.01], [0.02]]], dtype=torch.float64),
            slopes=slopes,
            tau=torch.full((4,), 0.08, dtype=torch.float64),
            tau_y=tau_y,
            x=torch.tensor([[0.3]], dtype=torch.float64),
            low=torch.tensor([[-torch.inf, -0.5]], dtype=torch.float64),
            X=Box(-5.0, 5.0),
        )
    )
    assert not solution.infeasible.any()
    if constant > 6.25:
        assert solution.failed.all()
        assert solution.residual.min() > 0.1
        assert solution.dy.isnan().all()
    else:
        assert not solution.failed.any()
        assert solution.worst.max() < 1e-9
