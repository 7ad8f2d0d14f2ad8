"""The QP solvers: certificates on degenerate Jacobians, outside values, invariances, failures."""

import sys
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor

from mobench.solvers import TOLERANCE, min_norm, qp, qp_residual, reference
from mobench.solvers.kernels.pivoting import Limits
from mobench.solvers.solution import Solution

QP = sys.modules["mobench.solvers.qp"]
DTYPE = torch.float64

FAMILIES = [
    "random", "low rank", "rank one", "rank one, one side", "duplicated", "zero row", "all zero", "opposed",
    "scaled rows", "widely scaled rows", "acute", "integer", "tight cluster", "nearly opposed", "stacked",
]  # fmt: skip


def normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=DTYPE)


def uniform(g: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=g, dtype=DTYPE)


def jacobian(family: str, R: int, n: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(1000 * n + seed)
    J = normal(g, R, n, n + 3)
    if family == "low rank":
        J = normal(g, R, n, 2)
    elif family == "rank one":
        J = normal(g, R, n, 1) * J[:, :1]
    elif family == "rank one, one side":
        J = uniform(g, R, n, 1) * J[:, :1]
    elif family == "duplicated":
        J[:, -1] = J[:, 1] = J[:, 0]
    elif family == "zero row":
        J[:, 0] = 0
    elif family == "all zero":
        J = 0 * J
    elif family == "opposed":
        J[:, 1] = -J[:, 0] * uniform(g, R, 1)
    elif family == "scaled rows":
        J = J * 10 ** (6 * uniform(g, R, n, 1) - 3)
    elif family == "widely scaled rows":
        J = J * 10 ** (16 * uniform(g, R, n, 1) - 8)
    elif family == "acute":
        J = J.abs()
    elif family == "integer":
        J = torch.randint(-1, 2, (R, n, n + 3), generator=g).to(DTYPE)
    elif family == "tight cluster":
        J = 1e-5 * J
        J[:, :, 0] = 1
    elif family == "nearly opposed":
        J[:, n // 2 : 2 * (n // 2)] *= 1e-5
        J[:, n // 2 : 2 * (n // 2)] -= J[:, : n // 2]
    elif family == "stacked":
        J = torch.cat((J[:, :2], normal(g, R, n - 2, 2) @ J[:, :2]), 1)
    return J


def gram(J: Tensor) -> Tensor:
    """Rounded once: equal rows have equal entries, which the sums of some libraries do not give."""
    wide = J.numpy().astype(np.longdouble)
    return torch.from_numpy((wide @ wide.swapaxes(-1, -2)).astype(np.float64)).to(J.dtype)


def direction(J: Tensor, x: Tensor) -> Tensor:
    """J'x relative to the longest row."""
    scale = J.norm(dim=2).amax(1, keepdim=True)
    return (J.mT @ x.unsqueeze(2)).squeeze(2) / torch.where(scale > 0, scale, 1)


def assert_solved(solution: Solution, tolerance: float = TOLERANCE) -> None:
    assert not solution.failed.any()
    assert solution.x.isfinite().all()
    assert solution.residual.max() <= tolerance


def every_program(R: int, n: int, rank: int) -> dict[str, dict]:
    """Random QPs of every shape that the arguments of `qp` allow; all have a solution."""
    g = torch.Generator().manual_seed(10 * n + rank)
    Q = gram(normal(g, R, n, rank))
    z = normal(g, R, n, 1)
    # the second lies in the range of Q: bounded below everywhere
    b = normal(g, R, n)
    inside = (Q @ z).squeeze(2)
    a = uniform(g, R, n)
    r = uniform(g, R) + 0.1
    ones = torch.ones(R, n, dtype=DTYPE)
    free = torch.zeros(n, dtype=DTYPE)
    free[-1] = -torch.inf
    off = normal(g, R, n)  # bounds that keep x from 0
    off[:, 0].abs_()
    last = torch.arange(n) == n - 1
    highest = torch.where(last, -uniform(g, R, n), torch.inf)
    programs = {
        "simplex": {"b": b, "a": ones},
        "weighted": {"b": b, "a": a, "r": r},
        "zero weights": {"b": inside, "a": a * (torch.arange(n) % 2 == 0), "r": r},
        "one weight": {"b": inside, "a": ones * (torch.arange(n) == 1), "r": r},
        "box": {"b": b, "lower": -uniform(g, R, n), "upper": uniform(g, R, n)},
        "orthant": {"b": inside},
        "capped": {"b": b, "a": ones, "upper": torch.where(a > 0.5, a + 1 / n, torch.inf)},
        "pinned": {"b": b, "a": ones, "upper": 1 / n},
        "shifted": {"b": b, "a": a, "r": r, "lower": -uniform(g, R, n)},
        "around the mean": {"b": None, "a": ones, "lower": 1 / n - 0.05, "upper": 1 / n + 0.05},
        "one free": {"b": inside, "a": torch.where(free < 0, 0, a), "r": r, "lower": free},
        "one free in the equality": {"b": inside, "a": a, "r": r, "lower": free},
        "all free": {"b": inside, "lower": -torch.inf},
        "large b": {"b": 1e8 * b, "a": a, "r": r},
        "small b": {"b": 1e-8 * b, "a": a, "r": r},
        "zero Q": {"b": b, "a": ones, "Q": 0 * Q},
        "lower, no b": {"b": None, "lower": off},
        "lower 1, no b": {"b": None, "lower": torch.eye(n, dtype=DTYPE)[torch.arange(R) % n]},
        "0 inside, no b": {"b": None, "lower": -uniform(g, R, n)},
        "lower, small b": {"b": 1e-4 * inside, "lower": off},
        "large lower": {"b": inside, "lower": 1e3 * off},
        "far bounds": {"b": inside, "lower": -1e3 - uniform(g, R, n), "upper": 1e3 * a + 1e2},
        "upper alone": {"b": inside, "lower": -torch.inf, "upper": normal(g, R, n)},
        "upper alone, equality": {"b": b, "a": a, "r": r, "lower": free, "upper": 10 * r[:, None] / a},
        "lower above 0, r = 0": {
            "b": None,
            "a": a + 0.1,
            "r": 0 * r,
            "lower": torch.where(off == off[:, :1], 1.0, -1e2),
        },
        "upper alone, zero Q": {
            "b": uniform(g, R, n),
            "lower": -torch.inf,
            "upper": highest.clamp(max=1),
            "Q": 0 * Q,
        },
        "lower, r = 0": {"b": None, "a": a, "r": 0 * r, "lower": -uniform(g, R, n)},
        "r = 0": {
            "b": inside,
            "a": torch.cat((a, 0 * a), 1)[:, :n] if n > 2 else None,
            "r": 0 * r if n > 2 else None,
        },
    }
    return {kind: {"Q": Q} | p for kind, p in programs.items()}


def programs(kind: str, R: int, n: int, rank: int) -> dict:
    return every_program(R, n, rank)[kind]


PROGRAMS = list(every_program(1, 2, 2))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [2, 3, 4, 7, 10, 16])
def test_min_norm_is_certified_at_every_scale(family, n):
    J = jacobian(family, 60, n)
    directions = []
    for scale in (1e-8, 1.0, 1e8):
        solution = min_norm(gram(scale * J))
        assert_solved(solution, 2e-12)
        assert (solution.x >= 0).all()
        assert (solution.x.sum(1) - 1).abs().max() < 1e-14
        # the dual certificate of the simplex, independent of qp_residual: x'Gx - min_i (Gx)_i
        g = (gram(J) @ solution.x.unsqueeze(2)).squeeze(2)
        gap = (solution.x * g).sum(1) - g.amin(1)
        assert (gap <= 1e-11 * J.square().sum((1, 2))).all()
        directions.append(direction(J, solution.x))
    assert (directions[0] - directions[1]).norm(dim=1).max() < 1e-7
    assert (directions[2] - directions[1]).norm(dim=1).max() < 1e-7


def test_two_rows_in_closed_form():
    J = jacobian("random", 200, 2)
    G = gram(J)
    u = ((G[:, 1, 1] - G[:, 0, 1]) / (G[:, 0, 0] - 2 * G[:, 0, 1] + G[:, 1, 1])).clamp(0, 1)
    assert torch.allclose(min_norm(G).x, torch.stack((u, 1 - u), 1), rtol=0, atol=1e-13)
    assert ((u == 0) | (u == 1)).any()
    known = torch.tensor(
        [[[1.0, 0.0], [0.0, 3.0]], [[4.0, 2.0], [2.0, 1.0]], [[5.0, 5.0], [5.0, 5.0]]], dtype=DTYPE
    )
    assert torch.equal(min_norm(known).x, torch.tensor([[0.75, 0.25], [0.0, 1.0], [0.5, 0.5]], dtype=DTYPE))


def test_orthogonal_rows_in_closed_form():
    d = torch.tensor([[1.0, 2.0, 4.0, 5.0], [1e-3, 1.0, 1e3, 1.0]], dtype=DTYPE)
    expected = (1 / d) / (1 / d).sum(1, keepdim=True)
    assert torch.allclose(min_norm(torch.diag_embed(d)).x, expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("n", [2, 3, 6, 10])
@pytest.mark.parametrize("family", ["random", "low rank", "duplicated", "opposed"])
def test_min_norm_agrees_with_scipy_nnls(family, n):
    # min |J'x| over the simplex: solve min_y>=0 |J'y|^2 + (1'y - 1)^2, then x = y / 1'y
    J = jacobian(family, 20, n)
    J = J / J.norm(dim=2).amax(1)[:, None, None]
    x = min_norm(gram(J)).x
    for j, w in zip(J.numpy(), x.numpy(), strict=True):
        y, _ = nnls(np.vstack((j.T, np.ones(n))), np.append(np.zeros(j.shape[1]), 1.0))
        assert np.linalg.norm(j.T @ (w - y / y.sum())) < 1e-7


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("kind", PROGRAMS)
def test_every_shape_of_program(kind, n):
    for rank in (n + 2, max(1, n - 2)):
        p = programs(kind, 30, n, rank)
        solution = qp(**p)
        assert_solved(solution, 1e-10)
        x = solution.x
        Q = p["Q"]
        b = p["b"]
        b = torch.zeros_like(x) if b is None else b
        assert (x >= p.get("lower", 0.0)).all()
        assert p.get("upper") is None or (x <= p["upper"]).all()
        if kind in ("0 inside, no b", "lower, r = 0") or (kind == "r = 0" and n > 2):
            assert (x == 0).all()  # an interior-point method stops beside it
            continue
        few = {k: v[:3] if isinstance(v, Tensor) and len(v) == 30 else v for k, v in p.items()}
        other = reference.qp(**few)
        assert not other.failed.any()

        def value(x, Q=Q[:3], b=b[:3]):
            return 0.5 * (x * (Q @ x.unsqueeze(2)).squeeze(2)).sum(1) - (b * x).sum(1)

        difference = value(x[:3]) - value(other.x)
        assert (difference.abs() <= 1e-8 * (1 + value(x[:3]).abs())).all()
        for scale in (1e-16, 1e16):
            scaled = qp(**p | {"Q": scale * Q, "b": scale * b})
            assert_solved(scaled, 1e-10)
            change = x - scaled.x
            length = (change * (Q @ change.unsqueeze(2)).squeeze(2)).sum(1).clamp(min=0).sqrt()
            size = torch.maximum(x.abs(), scaled.x.abs()).amax(1)  # both may be any of many solutions
            unit = Q.diagonal(dim1=1, dim2=2).amax(1).sqrt() * size
            assert (length <= 1e-7 * unit).all()


def test_the_least_program_with_a_lower_bound():
    """Without b and without an equality the bound alone gives the program its size."""
    Q = torch.tensor(
        [[3.925057207034454, -0.5429448317875465], [-0.5429448317875465, 2.5083475017139474]], dtype=DTYPE
    )
    lower = torch.tensor([1.0, 0.0], dtype=DTYPE)
    expected = torch.stack((lower[0], -Q[0, 1] / Q[1, 1]))
    for scale in 10.0 ** torch.arange(-8, 9, dtype=DTYPE):
        for size in (1e-8, 1.0, 1e8):
            solution = qp(scale * Q[None], None, lower=size * lower)
            assert_solved(solution, 1e-15)
            assert torch.allclose(solution.x[0], size * expected, rtol=1e-15, atol=0)
            off = size * torch.tensor([[1.0, 0.21]], dtype=DTYPE)
            assert qp_residual(off, scale * Q[None], lower=size * lower) > 1e-3
            inside = torch.full((1, 2), 1e-12 * size, dtype=DTYPE)  # beside 0, in a box of another size
            assert qp_residual(inside, scale * Q[None], lower=-size) < 1e-11
            assert qp_residual(1e9 * inside, scale * Q[None], lower=-size) > 1e-4


def test_an_equality_that_bounds_nothing():
    """x_1 >= l, x_2 <= u and x_1 + x_2 = r: both may be as large as b makes them, whatever r is."""
    J = torch.tensor([[1.0, 3.0], [2.0, 1.0], [-1.0, 0.5]], dtype=DTYPE)
    Q = 1e-5 * J[:, :, None] * J[:, None]
    t = torch.tensor([4e8, 3e8, 1e8], dtype=DTYPE)
    z = torch.stack((t, 0.25 - t), 1)
    b = (Q @ z.unsqueeze(2)).squeeze(2)
    lower = torch.tensor([-0.25, -torch.inf], dtype=DTYPE)
    upper = torch.tensor([torch.inf, -0.5], dtype=DTYPE)
    solution = qp(Q, b, torch.ones_like(b), torch.full((3,), 0.25, dtype=DTYPE), lower=lower, upper=upper)
    assert_solved(solution, 1e-12)
    assert torch.allclose(solution.x, z, rtol=1e-12, atol=0)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 10, 16])
def test_boxes_in_the_simplex_with_rows_of_very_different_length(n):
    """Rows 1e-8 to 1e8 long: levelled they suit Q, but not the bounds, which the short rows reach."""
    R = 200
    G = gram(jacobian("widely scaled rows", R, n))
    ones = torch.ones(R, n, dtype=DTYPE)
    for width in (0.05, 0.1, 0.5):
        lower = max(0.0, 1 / n - width)
        upper = min(1.0, 1 / n + width)
        for bounds in ({"upper": upper}, {"lower": lower}, {"lower": lower, "upper": upper}):
            solution = qp(G, None, ones, **bounds)
            assert_solved(solution)
            x = solution.x
            # the dual certificate, independent of qp_residual: no transfer from one variable to another
            # lowers the value
            g = (G @ x.unsqueeze(2)).squeeze(2)
            dearest = torch.where(x > bounds.get("lower", 0.0) + 1e-12, g, -torch.inf).amax(1)
            cheapest = torch.where(x < bounds.get("upper", torch.inf) - 1e-12, g, torch.inf).amin(1)
            assert (dearest - cheapest <= 1e-9 * G.diagonal(dim1=1, dim2=2).sum(1)).all()


@pytest.mark.parametrize(
    "family", ["random", "low rank", "rank one", "duplicated", "opposed", "tight cluster"]
)
@pytest.mark.parametrize("n", [2, 3, 7])
def test_projection_onto_the_dual_cone(family, n):
    """UPGrad (Quinton and Rey 2024):  d = J' mean_i w_i,  w_i = argmin |J'w|  s.t.  w >= e_i.

    J'w_i is the projection of row i onto the dual cone {d : Jd >= 0}. SciPy's nnls finds it from the other
    end: with w = e_i + z, z >= 0, it is |J'z + J_i|.
    """
    R = 20
    J = jacobian(family, R, n)
    scale = J.norm(dim=2).amax(1)[:, None, None]
    J = J / torch.where(scale > 0, scale, 1)
    units = torch.eye(n, dtype=DTYPE)
    solution = qp(gram(J).repeat_interleave(n, 0), None, lower=units.repeat(R, 1))
    assert_solved(solution, 1e-10)
    weights = solution.x.reshape(R, n, n)
    assert (weights >= units).all()
    projected = weights @ J
    for j, rows in zip(J.numpy(), projected.numpy(), strict=True):
        for i in range(n):
            z, _ = nnls(j.T, -j[i], maxiter=1000)
            assert np.linalg.norm(rows[i] - j[i] - j.T @ z) < 1e-7
    assert (J @ projected.mean(1).unsqueeze(2)).amin() > -1e-9  # no objective grows


def exact_minimum(Q, b, a, r, lower, upper):
    """The minimum and a minimiser in rational arithmetic: the best stationary point of all active sets."""
    n = len(b)
    best = None
    for state in product((None, lower, upper), repeat=n):
        x = [Fraction(0) if end is None else end[i] for i, end in enumerate(state)]
        if any(value is None for value in x):
            continue
        inside = [i for i in range(n) if state[i] is None]
        system = [[Q[i][j] for j in inside] + [-a[i]] * (r is not None) for i in inside]
        right = [b[i] - sum(Q[i][j] * x[j] for j in range(n)) for i in inside]
        if r is not None:
            system.append([a[j] for j in inside] + [Fraction(0)])
            right.append(r - sum(p * q for p, q in zip(a, x, strict=True)))
        z = eliminated(system, right)
        if z is None:
            continue
        for i, value in zip(inside, z, strict=False):
            x[i] = value
        if all(
            (low is None or v >= low) and (u is None or v <= u)
            for v, low, u in zip(x, lower, upper, strict=True)
        ):
            value = energy(Q, b, x)
            best = (value, x) if best is None or value < best[0] else best
    return best


def eliminated(system, right):
    """Gauss-Jordan elimination of a square system; None if it is singular."""
    n = len(right)
    rows = [[*row, end] for row, end in zip(system, right, strict=True)]
    for c in range(n):
        pivot = next((i for i in range(c, n) if rows[i][c] != 0), None)
        if pivot is None:
            return None
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [value / rows[c][c] for value in rows[c]]
        for i in range(n):
            if i != c:
                rows[i] = [p - rows[i][c] * q for p, q in zip(rows[i], rows[c], strict=True)]
    return [row[n] for row in rows]


def energy(Q, b, x):
    """1/2 x'Qx - b'x."""
    n = len(x)
    return sum(x[i] * Q[i][j] * x[j] for i in range(n) for j in range(n)) / 2 - sum(
        p * q for p, q in zip(b, x, strict=True)
    )


@pytest.mark.parametrize("equality", [False, True])
@pytest.mark.parametrize("linear", [0.0, 1e-8, 1.0, 1e8])
def test_bounds_of_all_kinds_against_rational_arithmetic(linear, equality):
    g = torch.Generator().manual_seed(7)

    def fractions(values):
        return [Fraction(float(v)) if abs(float(v)) < np.inf else None for v in values]

    R = 12
    seen = 0
    for n, size, ends, scale in product((1, 2, 3), (1e-8, 1.0, 1e8), ("lower", "upper", "both"), (1e-8, 1e8)):
        Q = scale * gram(normal(g, R, n, n + 2))
        b = linear * size * (Q @ normal(g, R, n, 1)).squeeze(2)
        lower = size * normal(g, R, n)
        length = size * uniform(g, R, n)
        lower[: R // 3] = size * torch.eye(n, dtype=DTYPE)[0]
        lower[R // 3 : R // 2] = -size * uniform(g, R // 2 - R // 3, n)
        upper = lower + length
        inner = lower + 0.5 * length
        if ends == "lower":
            upper[:] = torch.inf
        if ends == "upper":
            lower[:] = -torch.inf
        a = uniform(g, R, n) + 0.1
        arguments = (a, (a * inner).sum(1)) if equality else ()
        solution = qp(Q, b if linear else None, *arguments, lower=lower, upper=upper)
        assert_solved(solution, 1e-10)
        assert (solution.x >= lower).all()
        assert (solution.x <= upper).all()
        for i in range(R):
            rows = [fractions(row) for row in Q[i]]
            p = fractions(b[i])
            r = Fraction(float(arguments[1][i])) if equality else None
            minimum = exact_minimum(rows, p, fractions(a[i]), r, fractions(lower[i]), fractions(upper[i]))
            if minimum is None:  # r is rounded: a point with all its variables at bounds misses it
                continue
            value, best = minimum
            lengths = [abs(float(x)) * float(Q[i, k, k]) ** 0.5 for k, x in enumerate(best)]
            terms = sum(lengths) ** 2 + sum(abs(float(s * t)) for s, t in zip(p, best, strict=True))
            off = abs(float(energy(rows, p, fractions(solution.x[i])) - value))
            assert off <= 1e-11 * terms
            seen += 1
    assert seen > 600


def test_segment_equals_pivoting():
    for kind in ("simplex", "weighted", "zero weights", "one weight", "large b", "small b"):
        for rank in (1, 4):
            p = programs(kind, 200, 2, rank)
            closed = qp(**p)
            pivoted = qp(**p | {"upper": torch.inf})
            assert_solved(closed, 1e-13)
            assert_solved(pivoted, 1e-12)
            d = (p["Q"] @ (closed.x - pivoted.x).unsqueeze(2)).squeeze(2)
            assert d.abs().max() < 1e-11 * p["b"].abs().max().clamp(min=1)
            # both residuals, the closed form's own and the general one, judge alike
            assert (closed.residual - qp_residual(closed.x, **p)).abs().max() < 1e-14


def test_weak_optimum_takes_the_ray():
    # FERERO, (AF)_1 = 0: x_2 = r / a_2, and x_1 >= 0 is not in the equality
    Q = torch.tensor(
        [[[2.0, -3.0], [-3.0, 8.0]], [[2.0, 3.0], [3.0, 8.0]], [[0.0, 0.0], [0.0, 8.0]]], dtype=DTYPE
    )
    a = torch.tensor([[0.0, 2.0]], dtype=DTYPE).expand(3, 2)
    solution = qp(Q, None, a, torch.full((3,), 2.0, dtype=DTYPE))
    assert torch.allclose(solution.x, torch.tensor([[1.5, 1.0], [0.0, 1.0], [0.0, 1.0]], dtype=DTYPE))
    assert_solved(solution, 1e-15)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_diverged_run_is_alone_with_it(n, bad):
    p = programs("weighted", 7, n, n)
    before = qp(**p)
    for where in ("Q", "b", "a", "r"):
        q = p | {where: p[where].clone()}
        q[where][3] = bad
        after = qp(**q)
        others = torch.arange(7) != 3
        assert after.x[3].isnan().all()
        assert after.residual[3].isnan()
        assert not after.failed.any()
        assert torch.equal(after.x[others], before.x[others])
        assert torch.equal(after.residual[others], before.residual[others])
    G = p["Q"].clone()
    alone = min_norm(G)
    G[3, 0, 1] = G[3, 1, 0] = bad
    assert torch.equal(min_norm(G).x[others], alone.x[others])
    assert min_norm(G).x[3].isnan().all()
    assert not min_norm(G).failed.any()


def test_inactive_rows_do_not_exist():
    g = torch.Generator().manual_seed(0)
    J = jacobian("random", 100, 6)
    active = uniform(g, 100, 6) > 0.5
    active[0] = False
    active[1] = True
    active[2] = torch.arange(6) == 4
    J[~active] *= 1e3
    solution = min_norm(gram(J), active)
    assert_solved(solution, 1e-13)
    assert (solution.x[~active] == 0).all()
    assert (solution.x[0] == 0).all()
    assert solution.residual[0] == 0
    for i in active.any(1).nonzero().flatten().tolist():
        part = J[i : i + 1][:, active[i]]
        assert torch.allclose(min_norm(gram(part)).x[0], solution.x[i, active[i]], rtol=0, atol=1e-12)
    for size in (1.0, 1e-3):
        other = reference.min_norm(size**2 * gram(J[:4]), active[:4])
        assert not other.failed.any()
        # the reference judges by the trace of all rows it sees
        assert (direction(J[:4], other.x) - direction(J[:4], solution.x[:4])).norm(dim=1).max() < 1e-6
    broken = gram(J)
    broken[5][~active[5]] = torch.nan
    broken[6][:, ~active[6]] = torch.nan
    assert torch.equal(min_norm(broken, active).x, solution.x)


def test_two_rows_with_an_active_set():
    G = gram(jacobian("random", 4, 2))
    active = torch.tensor([[True, True], [True, False], [False, True], [False, False]])
    x = min_norm(G, active).x
    assert torch.equal(x[1:], torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=DTYPE))
    assert torch.allclose(x[0], min_norm(G).x[0], rtol=0, atol=1e-15)


@pytest.mark.parametrize("n", [2, 3])
def test_unbounded_and_infeasible_programs_fail(n):
    Q = torch.zeros(3, n, n, dtype=DTYPE)
    Q[:, 0, 0] = 1
    b = torch.ones(3, n, dtype=DTYPE)
    b[1, 1:] = -1
    solution = qp(Q, b)
    assert solution.failed.tolist() == [True, False, True]
    assert solution.x[0].isnan().all()
    assert solution.x[1].tolist() == [1.0] + [0.0] * (n - 1)
    flat = torch.ones(1, n, n, dtype=DTYPE)  # bounded in no direction of 1'x = const
    slope = torch.arange(n, dtype=DTYPE)[None]
    assert qp(flat, slope, lower=-torch.inf).failed.all()
    on_first = (torch.arange(n) == 0).to(DTYPE)[None]
    assert qp(0 * flat, 1 - on_first, on_first).failed.all()  # a ray going down
    full = torch.ones(1, n, dtype=DTYPE)
    assert qp(flat, None, full, upper=0.5 / n).failed.all()
    assert qp(flat, None, 0 * full, full[:, 0]).failed.all()
    assert reference.qp(flat, None, full, upper=0.5 / n).failed.all()


def test_a_kernel_that_stops_too_early_is_found_out(monkeypatch):
    """No start looks infeasible to it, so it takes the first vertex for the solution."""
    limits = QP.LIMITS.copy()
    limits[6] = np.inf
    J = jacobian("random", 50, 4)
    J[:, 0] *= 0.2
    G = gram(J)
    right = min_norm(G)
    monkeypatch.setattr(QP, "LIMITS", limits)
    wrong = min_norm(G)
    vertices = (right.x > 0).sum(1) == 1
    assert 0 < int(vertices.sum()) < 50
    assert wrong.failed[~vertices].all()
    assert wrong.x[~vertices].isnan().all()
    assert not wrong.failed.all()


def test_the_kernel_knows_the_same_thresholds():
    limits = Limits(*QP.LIMITS)
    assert limits.tolerance == TOLERANCE
    assert limits._asdict() == {name: vars(QP)[name.upper()] for name in Limits._fields}


@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_run_alone_is_a_run_in_a_batch_and_its_certificate_is_everybodys(kind, n):
    for rank in (n + 2, max(1, n - 2)):
        p = programs(kind, 30, n, rank)
        one = qp(**p)
        assert (one.residual - qp_residual(one.x, **p)).abs().max() < 1e-13
        first = {k: v[:1] if isinstance(v, Tensor) and len(v) == 30 else v for k, v in p.items()}
        assert torch.equal(qp(**first).x, one.x[:1])


def test_a_run_without_a_solution_is_alone_with_it():
    p = programs("weighted", 6, 4, 5)
    upper = torch.ones(6, 4, dtype=DTYPE)
    for high in (0.1, 1.0, torch.nan):
        upper[3] = high
        one = qp(p["Q"], None, torch.ones_like(upper), upper=upper)
        assert one.failed.tolist() == [i == 3 and high != 1.0 for i in range(6)]


def test_certificate_sees_every_kind_of_error():
    p = programs("weighted", 20, 4, 6)
    solution = qp(**p)
    assert qp_residual(solution.x, **p).max() < 1e-13
    assert qp_residual(0.999 * solution.x, **p).min() > 1e-4  # off the equality
    # not optimal
    assert qp_residual(p["r"][:, None] / p["a"].sum(1, keepdim=True) + 0 * solution.x, **p).min() > 1e-4
    shift = torch.zeros_like(solution.x)
    shift[:, 0] = -1 / p["a"][:, 0]
    shift[:, 1] = 1 / p["a"][:, 1]
    assert qp_residual(solution.x + 1e3 * shift, **p).min() > 1e-3  # negative
    wrong = p | {"b": p["b"] * 1.01}
    assert qp_residual(solution.x, **wrong).median() > 1e-6
    for scale in (1e-16, 1e16):  # the same certificate in other units
        scaled = p | {"Q": scale * p["Q"], "b": scale * p["b"]}
        assert torch.allclose(qp_residual(0.99 * solution.x, **scaled), qp_residual(0.99 * solution.x, **p))
    far = torch.tensor([[1e12, -1e12]], dtype=DTYPE)
    flat = torch.ones(1, 2, 2, dtype=DTYPE)
    slope = torch.tensor([[1.0, -1.0]], dtype=DTYPE)
    assert qp_residual(far, flat, slope, lower=-torch.inf) > 1e-5  # far out on a ray


def test_variables_outside_the_equality_have_units_of_their_own():
    """x_i -> x_i / S_i where a_i = 0 changes neither the answer nor the certificate of a wrong one."""
    for n, out in ((3, 1), (6, 3), (9, 5)):
        g = torch.Generator().manual_seed(n)
        Q = gram(normal(g, 40, n, n + 2))
        b = normal(g, 40, n)
        a = uniform(g, 40, n) + 0.1
        a[:, n - out :] = 0
        x = qp(Q, b, a).x
        S = torch.ones(40, n, dtype=DTYPE)
        S[:, n - out :] = 10 ** (16 * uniform(g, 40, out) - 8)
        scaled = qp(Q * S[:, :, None] * S[:, None], b * S, a)
        assert_solved(scaled)
        assert torch.allclose(scaled.x * S, x, rtol=0, atol=1e-9)
        off = x + 0.1 * uniform(g, 40, n) * (a == 0)
        assert qp_residual(off, Q, b, a).min() > 1e-4
        assert torch.allclose(
            qp_residual(off / S, Q * S[:, :, None] * S[:, None], b * S, a), qp_residual(off, Q, b, a)
        )


@pytest.mark.parametrize("scale", [1e-8, 1e-5, 1e-3, 1.0, 1e4])
def test_every_other_active_set_is_rejected(scale):
    """The stationary points on all supports: one is the minimiser, all others have a residual above the
    tolerance.

    Gradients of length `scale` in Q and of length 1 in b, as FERERO has them; the last two variables are not
    in the equality. b_E = 0 and both kept (b < 0) is where b must not be the unit of the others' gradients.
    """
    g = torch.Generator().manual_seed(3)
    R = 30
    n = 5
    out = 2
    Q = scale**2 * gram(normal(g, R, n, n + 2))
    b = normal(g, R, n)
    b[: R // 2, : n - out] = 0
    b[: R // 4, n - out :].abs_().neg_()
    a = uniform(g, R, n) + 0.2
    a[:, n - out :] = 0
    best = qp(Q, b, a)
    assert_solved(best, 1e-12)
    seen = 0
    for bits in range(1, 2**n):
        on = torch.tensor([bits >> i & 1 for i in range(n)], dtype=torch.bool)
        if not on[: n - out].any():
            continue
        k = int(on.sum())
        # x_i in units u_i, gradients in units v of their largest term, so that the system is well scaled
        u = torch.where(a[0] > 0, 1.0, max(1.0, scale**-2))[on]
        v = torch.maximum(b[:, on].abs().amax(1), torch.as_tensor(scale**2))[:, None]
        kkt = torch.zeros(R, k + 1, k + 1, dtype=DTYPE)
        kkt[:, :k, :k] = Q[:, on][:, :, on] * u / v[:, :, None]
        kkt[:, :k, k] = -a[:, on]
        kkt[:, k, :k] = a[:, on] * u
        z = torch.linalg.solve(kkt, torch.cat((b[:, on] / v, torch.ones(R, 1, dtype=DTYPE)), 1))[:, :k]
        x = torch.zeros(R, n, dtype=DTYPE)
        x[:, on] = z * u
        residual = qp_residual(x, Q, b, a)
        support = best.x > 0
        same = (support == on).all(1)
        assert (residual[same] <= TOLERANCE).all()
        assert (residual[~same] > 100 * TOLERANCE).all()
        seen += int((~same).sum())
    assert seen > 500


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("linear", [0.0, 1e-6, 1.0])
def test_every_other_active_set_of_lower_bounds_is_rejected(size, linear):
    """Without an equality: x_i = lower_i for some i, the others stationary; one choice is the minimiser."""
    g = torch.Generator().manual_seed(11)
    R = 40
    n = 4
    seen = 0
    Q = gram(normal(g, R, n, n + 2))
    b = linear * size * normal(g, R, n)
    lower = size * normal(g, R, n)
    best = qp(Q, b, lower=lower)
    assert_solved(best, 1e-12)
    for bits in range(2**n):
        at = torch.tensor([bits >> i & 1 for i in range(n)], dtype=torch.bool)
        x = lower.clone()
        x[:, ~at] = 0
        right = (b - (Q @ x.unsqueeze(2)).squeeze(2))[:, ~at]
        if not at.all():
            x[:, ~at] = torch.linalg.solve(Q[:, ~at][:, :, ~at], right)
        residual = qp_residual(x, Q, b, lower=lower)
        same = ((best.x == lower) == at).all(1)
        assert (residual[same] <= TOLERANCE).all()
        assert (residual[~same] > 100 * TOLERANCE).all()
        seen += int((~same).sum())
    assert seen == R * (2**n - 1)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_a_short_row_beside_a_linear_term(n):
    """WC-MHGD's program where one task has nearly ended: a gradient 1e-5 times as long as the others."""
    J = jacobian("random", 200, n)
    J[:, 0] *= 1e-5
    b = 0.1 * uniform(torch.Generator().manual_seed(n), 200, n)
    a = torch.ones(200, n, dtype=DTYPE)
    solution = qp(gram(J), b, a)
    assert_solved(solution, 1e-12)
    assert qp_residual(solution.x, gram(J), b, a).max() < 1e-12
    Q = torch.diag(torch.tensor([1e-12, 1.0, 1.0], dtype=DTYPE))[None]
    optimum = qp(Q, torch.tensor([[0.1, 0.5, 0.3]], dtype=DTYPE), a[:1, :3])
    assert torch.allclose(optimum.x, torch.tensor([[0.4, 0.4, 0.2]], dtype=DTYPE), atol=1e-10)


def test_two_variables_without_an_equality_or_a_pull():
    """FERERO where all losses are 0."""
    Q = torch.eye(2, dtype=DTYPE).repeat(2, 1, 1)
    a = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DTYPE)
    solution = qp(Q, None, a, a.sum(1) / 2)
    assert not solution.failed.any()
    assert solution.x.tolist() == [[0.0, 0.0], [0.5, 0.5]]
    pulled = qp(Q, torch.ones_like(a), a, a.sum(1) / 2)
    assert not pulled.failed.any()
    assert pulled.x.tolist() == [[1.0, 1.0], [0.5, 0.5]]


def test_two_variables_without_an_equality_beside_one_with_it():
    """A loss of 0 leaves no equality (a = 0, r = 0) but least squares over x >= 0, as SciPy's nnls."""
    draw = np.random.default_rng(0)
    J = draw.standard_normal((40, 2, 3))
    d = draw.standard_normal((40, 3))
    a = np.ones((40, 2)) * (np.arange(40) % 2)[:, None]
    Q, b = J @ J.transpose(0, 2, 1), (J @ d[:, :, None])[:, :, 0]
    solution = qp(*map(torch.from_numpy, (Q, b, a, a[:, 0].copy())))
    assert not solution.failed.any()
    for x, rows_, target, one in zip(solution.x.numpy(), J, d, a, strict=True):
        if one.any():
            assert x.sum() == pytest.approx(1, abs=1e-12)
        else:
            np.testing.assert_allclose(x, nnls(rows_.T, target)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [2, 5])
def test_float32_in_float32_out(n):
    J = jacobian("random", 30, n).float()
    solution = min_norm(gram(J))
    assert solution.x.dtype == solution.residual.dtype == torch.float32
    assert not solution.failed.any()
    assert torch.allclose(solution.x.double(), min_norm(gram(J).double()).x, rtol=0, atol=1e-6)


def test_inputs_are_left_alone_and_gradients_are_not_tracked():
    p = programs("weighted", 5, 3, 4)
    copies = {k: v.clone() for k, v in p.items()}
    p["Q"].requires_grad_(True)
    assert not qp(**p).x.requires_grad
    assert not min_norm(p["Q"]).x.requires_grad
    assert not min_norm(p["Q"], p["a"] > 0.5).x.requires_grad
    assert all(torch.equal(p[k].detach(), copies[k]) for k in p)
