"""FERERO's promises: optimality of the direction, constraints, weak optima, cones, and Algorithms 2
and 3.

Certificates are computed here from the primal problem (2.1) and from LPs, not from the package's own
residuals.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import linprog, nnls
from torch import Tensor

from mobench.algorithms.epo import EPO
from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_geometry import cone_from_rays, cone_with_ascent
from mobench.algorithms.ferero_public_code import PublicCodeFERERO
from mobench.algorithms.ferero_sa import FEREROSA, StochasticFEREROSA
from mobench.core import Algorithm, Context, Free, Oracle, Point, Runs, Spec, TablePoint
from mobench.core.preferences import ray, spread
from mobench.core.random import generator
from mobench.errors import ConfigError
from mobench.oracles.exact import make_point, problem_spec
from mobench.problems import VLMOP2, LeastSquares
from tests.helpers import runs_at, simulate
from tests.reference import ferero as reference
from tests.reference import problems

FLOAT = torch.float64
A4 = np.array([[1.0, 2.0], [2.0, 1.0]]) / np.sqrt(5.0)
TOY = VLMOP2(n=20, start={"kind": "alternating", "scale": 0.3, "noise": 0.1, "per_preference": True})


@dataclass
class Solved:
    """One solve: data, the matrices the algorithm made, weights, direction (all (R, ...), NumPy)."""

    F: np.ndarray
    J: np.ndarray
    w: np.ndarray
    d: np.ndarray
    state: dict[str, np.ndarray]
    algorithm: FERERO
    failed: np.ndarray


def state_of(
    algorithm: Algorithm, F: Tensor, F0: Tensor | None = None, prefs: Tensor | None = None
) -> dict[str, Any]:
    R, M = F.shape
    prefs = spread(R, M) if prefs is None else prefs
    start = F if F0 is None else F0
    spec = Spec(R, M, 0, M + 3, Free())
    zeros = torch.zeros(R, M + 3, dtype=FLOAT)
    return algorithm.init(
        Context(spec=spec, prefs=prefs, all_prefs=prefs, theta=zeros, exact=lambda x: start, steps=100)
    )


def solve(
    algorithm: FERERO, F: Tensor, J: Tensor, F0: Tensor | None = None, prefs: Tensor | None = None
) -> Solved:
    state = state_of(algorithm, F, F0, prefs)
    w, _, info = algorithm.weights(F, J @ J.mT, state, 0)
    d = -(w.unsqueeze(1) @ J).squeeze(1)
    failed = np.zeros(len(F), dtype=bool) if info.fail is None else info.fail.numpy()
    arrays = {k: v.numpy() for k, v in state.items()}
    return Solved(F.numpy(), J.numpy(), w.numpy(), d.numpy(), arrays, algorithm, failed)


def random(R: int, M: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = generator(seed, test="ferero", M=M)
    return torch.from_numpy(rng.uniform(0.2, 1.5, (R, M))), torch.from_numpy(
        rng.standard_normal((R, M, M + 3))
    )


def domain(s: Solved, r: int) -> tuple[np.ndarray, float]:
    """Weights and sum of the domain of lf, (2.4) or Remark 4."""
    AF = s.state["A"][r] @ s.F[r]
    return (AF, float(AF.sum())) if s.algorithm.domain == "adaptive" else (np.ones_like(AF), 1.0)


def multipliers(
    s: Solved, r: int, unit: float, options: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """G and H; and -lambda'p of the multipliers with A_ag' lambda = w (in units of `unit`) and the largest
    lambda'p, by a linear program, and the sum of its terms.
    """
    A, Bg, Bh = (s.state[key][r] for key in ("A", "Bg", "Bh"))
    G = Bg @ s.F[r] + s.state["bg"][r]
    H = Bh @ s.F[r] + s.state["bh"][r]
    a, total = domain(s, r)
    p = np.concatenate([np.zeros(len(A)), s.algorithm.c_g * G, s.algorithm.c_h * H])
    rows = np.vstack([np.vstack([A, Bg, Bh]).T, np.concatenate([a, np.zeros(len(G) + len(H))])])
    bounds = [(0, None)] * (len(A) + len(G)) + [(None, None)] * len(H)
    right = np.append(s.w[r], total) / unit
    solution = linprog(-p, A_eq=rows, b_eq=right, bounds=bounds, method="highs", options=options)
    assert solution.status == 0, f"w is no image of feasible multipliers: {solution.message}"
    return G, H, float(solution.fun), float(np.abs(solution.x) @ np.abs(p))


def certificate(s: Solved, r: int) -> dict[str, float]:
    """Primal value psi = c + |d|^2/2 of d, violations and gap, relative to the size of the terms."""
    A, Bg, Bh = (s.state[key][r] for key in ("A", "Bg", "Bh"))
    a, total = domain(s, r)
    G, H, value, terms = multipliers(s, r, 1.0, {"primal_feasibility_tolerance": 1e-9})
    change = s.J[r] @ s.d[r]
    on = a > 0
    c = float(np.max((A @ change)[on] * total / a[on]))
    dd = float(s.d[r] @ s.d[r])
    size = abs(c) + dd + terms + 1e-300
    return {
        "c": c,
        "psi": c + 0.5 * dd,
        "dd": dd,
        "gap": (c + dd + value) / size,
        "ray": float(np.max((A @ change)[~on], initial=-np.inf)),
        "equality": float(np.max(np.abs(Bh @ change + s.algorithm.c_h * H), initial=0.0)),
        "inequality": float(np.max(Bg @ change + s.algorithm.c_g * G, initial=-np.inf)),
    }


SPEECH: dict[str, Any] = {
    "line": "matrix",
    "equality_matrix": [[0.0, 1.0, -1.0]],
    "equality_offset": [-0.5],
    "inequality_matrix": [[1.0, 0.0, 0.0]],
    "inequality_offset": [-1.2],
}
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "free-2": (2, {"line": "none"}),
    "free-3": (3, {"line": "none"}),
    "free-10": (10, {"line": "none"}),
    "ray-2": (2, {}),
    "ray-3": (3, {}),
    "ray-10": (10, {}),
    "cone-2": (2, {"cone": A4.tolist()}),
    "wide-cone-3": (3, {"cone": [[1, 0.5, 0], [0, 1, 0.5], [0.5, 0, 1], [1, 1, 1]], "line": "none"}),
    "threshold-2": (2, {"line": "none", "upper": (None, 0.8)}),
    "threshold-3": (3, {"line": "none", "upper": (0.6, None, 1.0)}),
    "ray-and-threshold-2": (2, {"upper": (0.7, None), "cone": A4.tolist()}),
    "speech": (3, SPEECH),
    "one-equality-10": (
        10,
        {"line": "matrix", "equality_matrix": [[1.0, -1.0] + [0.0] * 8], "upper": [0.9] * 10},
    ),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("domain_name", ["adaptive", "simplex"])
def test_direction_is_feasible_and_optimal(name: str, domain_name: str) -> None:
    """f2, b2: equality and inequality rows hold, the duality gap closes, the multipliers are feasible."""
    M, options = KINDS[name]
    F, J = random(6, M)
    s = solve(FERERO(domain=domain_name, c_g=0.7, c_h=0.5, **options), F, J)
    assert not s.failed.any()
    G = (s.state["Bg"] @ s.F[:, :, None])[..., 0] + s.state["bg"]
    if G.shape[1] == 1:
        assert (G > 0).any()
        assert (G < 0).any()
    for r in range(len(F)):
        values = certificate(s, r)
        assert abs(values["gap"]) <= 1e-8
        assert values["equality"] <= 1e-8
        assert values["inequality"] <= 1e-8


@pytest.mark.parametrize(
    "name", ["free-3", "ray-3", "cone-2", "ray-and-threshold-2", "speech", "one-equality-10"]
)
@pytest.mark.parametrize("domain_name", ["adaptive", "simplex"])
def test_direction_equals_the_primal_solution(name: str, domain_name: str) -> None:
    """(2.1) by CVXPY in (d, c), without any multiplier, is the dual over all multipliers by CVXPY, too."""
    M, options = KINDS[name]
    F, J = random(2, M, seed=1)
    s = solve(FERERO(domain=domain_name, c_g=0.7, c_h=0.5, **options), F, J)
    dual = solve(FERERO(domain=domain_name, c_g=0.7, c_h=0.5, subproblem="cvxpy", **options), F, J)
    for r in range(2):
        a, total = domain(s, r)
        d = cp.Variable(J.shape[2])
        c = cp.Variable()
        rules: list[Any] = [s.state["A"][r] @ s.J[r] @ d <= c * a / total]
        for rows, offset, rate, sign in (("Bg", "bg", 0.7, 1), ("Bh", "bh", 0.5, 0)):
            if len(s.state[rows][r]):
                left = s.state[rows][r] @ s.J[r] @ d + rate * (s.state[rows][r] @ s.F[r] + s.state[offset][r])
                rules.append(left <= 0 if sign else left == 0)
        problem = cp.Problem(cp.Minimize(c + 0.5 * cp.sum_squares(d)), rules)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        np.testing.assert_allclose(s.d[r], d.value, rtol=0, atol=2e-5)
        np.testing.assert_allclose(dual.d[r], d.value, rtol=0, atol=2e-5)
        values = certificate(s, r)
        assert values["psi"] == pytest.approx(float(problem.value), abs=1e-8)


@pytest.mark.parametrize("name", ["free-3", "threshold-2", "ray-2", "ray-and-threshold-2", "speech"])
@pytest.mark.parametrize("domain_name", ["adaptive", "simplex"])
def test_paper_s_inner_loop_converges_to_the_exact_direction(name: str, domain_name: str) -> None:
    """PGD (b5) with a long inner loop, warm and cold."""
    M, options = KINDS[name]
    F, J = random(5, M, seed=2)
    J = J / torch.linalg.norm(J @ J.mT, ord=2, dim=(1, 2))[:, None, None].sqrt()
    exact = solve(FERERO(domain=domain_name, **options), F, J)
    for start in ("warm", "cold"):
        inner: dict[str, Any] = {"inner_steps": 20_000, "inner_step": 0.2, "inner_tolerance": 1e-13}
        inner["inner_start"] = start
        pgd = solve(FERERO(domain=domain_name, subproblem="pgd", **inner, **options), F, J)
        np.testing.assert_allclose(pgd.d, exact.d, rtol=0, atol=1e-6)


# constraints over a path


def test_offsets_lines_and_thresholds_are_the_rows_that_were_asked_for() -> None:
    """b9: the matrices themselves."""
    F = torch.tensor([[0.5, 0.8, 0.3]], dtype=FLOAT)
    prefs = torch.tensor([[0.2, 0.3, 0.5]], dtype=FLOAT)
    v = (1 / prefs[0]).numpy()
    z = np.array([0.1, 0.2, 0.4])
    ends = [[1.0, 2.0, 3.0], [0.5, 0.1, 0.2]]
    lines: list[tuple[dict[str, Any], np.ndarray, np.ndarray]] = [
        ({"line": "ray"}, np.zeros(3), v),
        ({"line": "shifted"}, F[0].numpy(), v),
        ({"line": "through", "line_through": z.tolist()}, z, v),
        ({"line": "points", "line_points": ends}, np.array(ends[0]), np.array(ends[0]) - ends[1]),
    ]
    rng = generator(0, test="lines")
    for options, through, along in lines:
        state = state_of(FERERO(**options), F, prefs=prefs)
        B = state["Bh"][0].numpy()
        b = state["bh"][0].numpy()
        np.testing.assert_allclose(B @ B.T, np.eye(2), atol=1e-14)
        np.testing.assert_allclose(B @ (through + 3.7 * along) + b, 0, atol=1e-13)
        point = rng.uniform(0, 1, 3)
        unit = along / np.linalg.norm(along)
        distance = np.linalg.norm((point - through) - (point - through) @ unit * unit)
        assert np.linalg.norm(B @ point + b) == pytest.approx(distance, abs=1e-13)
    algorithm = FERERO(
        line="none", upper=(None, 0.4, 0.9), inequality_matrix=[[1, 1, 0]], inequality_offset=[-0.3]
    )
    state = state_of(algorithm, F, prefs=prefs)
    assert state["Bg"][0].tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert state["bg"][0].tolist() == [-0.3, -0.4, -0.9]
    report = algorithm.report(F, state)
    np.testing.assert_allclose(report["inequality_violation"].numpy(), [1.0], atol=1e-15)


# weak optima


@pytest.mark.parametrize("M", [2, 3, 10])
@pytest.mark.parametrize("inner", ["exact", "pgd"])
def test_weak_optimum_is_left_in_the_adaptive_domain_only(M: int, inner: str) -> None:
    """f12: f_1 = 0 with zero gradient. M = 2: d = -g_2; else the direction of the problem without f_1."""
    F, J = random(5, M, 9)
    F[:, 0] = 0.0
    J[:, 0] = 0.0
    J = 0.3 * J
    options: dict[str, Any] = {"line": "none"}
    if inner == "pgd":
        options |= {"subproblem": "pgd", "inner_steps": 20_000, "inner_tolerance": 1e-13}
    adaptive = solve(FERERO(**options), F, J)
    assert not adaptive.failed.any()
    if M == 2:
        np.testing.assert_allclose(adaptive.d, -J[:, 1].numpy(), rtol=0, atol=1e-12)
    else:
        rest = solve(FERERO(line="none"), F[:, 1:], J[:, 1:, : M + 2])
        same = solve(FERERO(line="none"), F[:, 1:], J[:, 1:])
        assert rest.d.shape != same.d.shape
        np.testing.assert_allclose(adaptive.d, same.d, rtol=0, atol=1e-7)
    simplex = solve(FERERO(domain="simplex", **options), F, J)
    np.testing.assert_allclose(simplex.d, 0.0, atol=1e-5 if inner == "pgd" else 1e-12)


def test_weak_optimum_with_a_gradient_is_a_ray_of_multipliers() -> None:
    """Corrections b4/b3: (AF)_1 = 0, so lf_2 = 1, lf_1 = max(0, -K_12/K_11): d spares f_1."""
    F, J = random(40, 2, 10)
    F[:, 0] = 0.0
    s = solve(FERERO(line="none"), F, J)
    assert not s.failed.any()
    K = np.einsum("rmp,rnp->rmn", s.J, s.J)
    lf1 = np.maximum(0.0, -K[:, 0, 1] / K[:, 0, 0])
    assert (lf1 > 0).any()
    assert (lf1 == 0).any()
    np.testing.assert_allclose(s.w, np.stack([lf1, np.ones(40)], 1), rtol=0, atol=1e-12)
    assert ((s.J[:, 0] * s.d).sum(1) <= 1e-12).all()


@pytest.mark.parametrize("name", ["free-3", "ray-2", "ray-3", "threshold-3", "speech"])
def test_weak_optimum_with_constraints_has_no_gap(name: str) -> None:
    """b2 as corrected: c is a maximum over the rows with (AF)_m > 0, the others must not rise."""
    M, options = KINDS[name]
    F, J = random(6, M, 11)
    F[:, 0] = 0.0
    s = solve(FERERO(**options), F, J)
    assert not s.failed.any()
    for r in range(6):
        values = certificate(s, r)
        assert abs(values["gap"]) <= 1e-8
        assert values["ray"] <= 1e-9
        assert values["equality"] <= 1e-8
        assert values["inequality"] <= 1e-8


@pytest.mark.parametrize("size", [1e-7, 1e7])
@pytest.mark.parametrize("name", ["free-3", "ray-2", "ray-3", "ray-10"])
def test_very_small_and_very_large_gradients(size: float, name: str) -> None:
    """Without constraints w does not know the scale; with a line its row holds, relative to its own terms."""
    M, options = KINDS[name]
    F, J = random(40, M, 12)
    s = solve(FERERO(**options), F, size * J)
    assert not s.failed.any()
    if name == "free-3":
        np.testing.assert_allclose(s.w, solve(FERERO(**options), F, J).w, rtol=0, atol=1e-9)
        return
    H = (s.state["Bh"] @ s.F[:, :, None])[..., 0]
    BJ = s.state["Bh"] @ s.J
    row = (BJ @ s.d[:, :, None])[..., 0] + H
    terms = np.abs(H).max(1) + np.linalg.norm(BJ, axis=(1, 2)) * np.linalg.norm(s.d, axis=1)
    assert (np.abs(row).max(1) <= 1e-10 * terms).all()


def relative_certificate(s: Solved, r: int, unit: float) -> dict[str, float]:
    """`certificate` with every term relative to the sum of its own terms, lambda in units of `unit`.

    Violated rows move J d by O(1) whatever the size of J, so lg, lh and w grow like 1 / |J|^2 and |d|^2 with
    them.
    """
    A, Bg, Bh = (s.state[key][r] for key in ("A", "Bg", "Bh"))
    a, total = domain(s, r)
    # HiGHS's presolve calls a program infeasible that the simplex method then solves to its tolerance
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10, "presolve": False}
    G, H, value, terms = multipliers(s, r, unit, exact)
    change = s.J[r] @ s.d[r]
    dd = float(s.d[r] @ s.d[r]) / unit
    c = float(np.max((A @ change) * total / a)) / unit
    lengths = np.linalg.norm(s.J[r], axis=1)
    length = np.abs(s.w[r]) @ lengths  # of the terms of d
    size = abs(c) + length**2 / unit + terms
    equality = np.abs(Bh @ change + s.algorithm.c_h * H) / (np.abs(H) + np.abs(Bh) @ lengths * length)
    inequality = (Bg @ change + s.algorithm.c_g * G) / (np.abs(G) + np.abs(Bg) @ lengths * length)
    return {
        "gap": (c + dd + value) / size,
        "equality": float(np.max(equality, initial=0.0)),
        "inequality": float(np.max(inequality, initial=-np.inf)),
    }


SCALES = [1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0, 1e3, 1e8]


@pytest.mark.parametrize(
    "name", ["ray-and-upper-10", "upper-10", "one-equality-10", "ray-and-upper-4", "speech"]
)
@pytest.mark.parametrize("domain_name", ["adaptive", "simplex"])
def test_violated_inequalities_at_every_scale_of_the_gradients(name: str, domain_name: str) -> None:
    """J of any size beside c_g G of size 1: every run is solved, and the primal agrees."""
    M, options = {
        "ray-and-upper-10": (10, {"upper": [0.9] * 10}),
        "upper-10": (10, {"line": "none", "upper": [0.9] * 10}),
        "ray-and-upper-4": (4, {"upper": [None, 0.9, 0.5, None]}),
    }.get(name) or KINDS[name]
    F, J = random(200, M, 12)
    for scale in SCALES:
        s = solve(FERERO(domain=domain_name, **options), F, scale * J)
        assert not s.failed.any()
        for r in range(5):
            values = relative_certificate(s, r, max(1.0, scale**-2))
            assert abs(values["gap"]) <= 1e-8
            assert values["equality"] <= 1e-9
            assert values["inequality"] <= 1e-9


@pytest.mark.parametrize("domain_name", ["adaptive", "simplex"])
def test_an_inequality_with_slack_does_not_matter_however_small_the_gradients(domain_name: str) -> None:
    """|c_g G| must not be the unit in which the gradients of the objectives are judged."""
    F, J = random(100, 10, 12)
    for scale in SCALES[:-2]:
        without = solve(FERERO(line="none", domain=domain_name), F, scale * J)
        s = solve(FERERO(line="none", upper=[50.0] * 10, domain=domain_name), F, scale * J)
        assert not s.failed.any()
        np.testing.assert_allclose(s.w, without.w, rtol=0, atol=1e-9)


@pytest.mark.parametrize("M", [3, 5, 10])
@pytest.mark.parametrize("kind", ["zero", "duplicated", "collinear"])
def test_degenerate_gradients_with_violated_inequalities(M: int, kind: str) -> None:
    """Every run that (2.1) allows is solved, those it does not are reported. Status by an LP.

    Not for large J: a violation is judged beside |J_i| |J'w|, and there 1e-9 of that is more than c_g G.
    """
    F, J = random(30, M, 19)
    if kind == "zero":
        J[:, 0] = 0.0
    elif kind == "duplicated":
        J[:, -1] = J[:, 0]
    else:
        J[:, 1] = -0.7 * J[:, 0]
    row = [[1.0, -1.0] + [0.0] * (M - 2)]
    for options in ({"line": "none"}, {"line": "matrix", "equality_matrix": row}):
        algorithm = FERERO(upper=[1.2] * M, **options)  # type: ignore[arg-type]
        for scale in (1e-8, 1e-4, 1.0):
            s = solve(algorithm, F, scale * J)
            possible = []
            for r in range(30):
                Bg = s.state["Bg"][r]
                Bh = s.state["Bh"][r]
                rows = J[r].numpy()
                G = Bg @ s.F[r] + s.state["bg"][r]
                H = Bh @ s.F[r] + s.state["bh"][r]
                equal = {"A_eq": Bh @ rows, "b_eq": -H} if len(Bh) else {}
                lp = linprog(np.zeros(M + 3), Bg @ rows, -G, bounds=(None, None), method="highs", **equal)
                possible.append(lp.status == 0)
            assert (s.failed == ~np.array(possible)).all()
            assert any(possible)


@pytest.mark.parametrize("cone", ["pareto", A4.tolist()])
@pytest.mark.parametrize("domain_name", ["adaptive", "simplex"])
def test_a_converged_run_goes_on_without_failures(cone: Any, domain_name: str) -> None:
    """At the optimum H and the reduced Gram matrix are zero up to rounding, which is a solved program."""
    path = simulate(TOY, FERERO(step_size=0.5, cone=cone, domain=domain_name), runs_at(57.0, 45.0, 33.0), 200)
    assert path.state["fail"].tolist() == [0, 0, 0]
    assert np.abs(path.x[:, -1] - path.x[:, -2]).max() < 1e-12


@pytest.mark.parametrize("M", [2, 3])
def test_a_constraint_that_nothing_can_move_is_reported(M: int) -> None:
    """J = 0 off the ray: (2.1) is infeasible. That run says so; its neighbour is untouched."""
    F, J = random(2, M, 13)
    alone = solve(FERERO(), F, J, prefs=spread(2, M))
    J[1] = 0.0
    s = solve(FERERO(), F, J, prefs=spread(2, M))
    np.testing.assert_allclose(s.w[0], alone.w[0], rtol=0, atol=1e-12)
    assert s.failed.tolist() == [False, True]


@pytest.mark.parametrize("M", [2, 3, 5])
def test_no_solution_is_proved_where_highs_finds_none(M: int) -> None:
    """B_h J with vanishing or dependent rows, on and off the ray: proved where the LP is infeasible."""
    R = 40
    F, J = random(R, M, 17)
    prefs = spread(R, M)
    B = torch.as_tensor(state_of(FERERO(), F, prefs=prefs)["Bh"])
    on_ray = torch.arange(R) % 4 == 1
    F[on_ray] = ray(prefs)[on_ray]
    lost = torch.arange(R) % 2 == 1
    if M == 2:  # of one row a Gram matrix shows only that it is zero
        J[lost] = 0.0
    # the first equality is out of reach of every direction
    J[lost] -= B[lost, :1].mT @ (B[lost, :1] @ J[lost])
    J[::8] = 0.0
    algorithm = FERERO()
    state = state_of(algorithm, F, prefs=prefs)
    _, _, info = algorithm.weights(F, J @ J.mT, state, 0)
    H = (B @ F.unsqueeze(2)).squeeze(2)
    possible = []
    for rows, h in zip((B @ J).numpy(), H.numpy(), strict=True):
        free = {"bounds": (None, None), "method": "highs"}
        possible.append(
            linprog(np.zeros(M + 3), A_eq=np.round(rows, 12), b_eq=-np.round(h, 12), **free).status == 0
        )
    assert info.fail is not None
    assert info.unsolvable is not None
    assert info.unsolvable.tolist() == [not p for p in possible]
    assert (info.fail | ~info.unsolvable).all()
    assert 0 < sum(possible) < R


# cones


@pytest.mark.parametrize("M", [2, 3, 10])
def test_cone_from_rays_has_the_rays_on_its_facets(M: int) -> None:
    """f9: A y_j is positive on facet j only."""
    Y = torch.from_numpy(generator(0, test="cone", M=M).standard_normal((20, M, M)))
    A = cone_from_rays(Y)
    product = A @ Y.mT
    diagonal = product.diagonal(dim1=1, dim2=2)
    assert (diagonal > 0).all()
    np.testing.assert_allclose((product - torch.diag_embed(diagonal)).numpy(), 0, atol=1e-9)
    np.testing.assert_allclose(torch.linalg.norm(A, dim=2).numpy(), 1, atol=1e-14)


def test_figure_4_matrix_from_its_rays_and_unit_rows() -> None:
    F, _ = random(2, 2)
    rays = state_of(FERERO(extreme_rays=[[2, -1], [-1, 2]]), F)["A"].numpy()
    for A in (rays[0], rays[1], state_of(FERERO(cone=[[1, 2], [2, 1]]), F)["A"][0].numpy()):
        np.testing.assert_allclose(np.sort(A, axis=0), np.sort(A4, axis=0), atol=1e-15)
    with pytest.raises(ConfigError, match="linearly dependent"):
        state_of(FERERO(extreme_rays=[[1, 2], [2, 4]]), F)


def test_controlled_ascent_with_two_objectives() -> None:
    """b10: y >= 0 gives the Pareto cone; y <= 0 has none."""
    for y in ([0.3, 0.7], [1.0, 0.0]):
        assert np.array_equal(cone_with_ascent(torch.tensor(y, dtype=FLOAT)).numpy(), np.eye(2))
    for y in ([-0.3, -0.1], [-1.0, 0.0]):
        with pytest.raises(ConfigError, match="half space"):
            cone_with_ascent(torch.tensor(y, dtype=FLOAT))


@pytest.mark.parametrize(
    "y",
    [
        [-0.3, 1.0],
        [-2.0, 0.5],
        [0.4, -0.9],
        [1.0, -1e-3],
        [-1, 0.5, 0.7],
        [-1, -0.5, 0.7],
        [1, -1, 0],
        [0, -0.2, 1],
        [-1, 3, -1e-3],
        [-1, 2, 0.3, -0.5],
        [1, -1, 0, 0],
        [1, 0, 0, 0, -1],
        [0.3, -0.2, 0.5, -0.1, 0.9, -0.4],
    ],
)
def test_controlled_ascent_hull_by_membership(y: list[float]) -> None:
    """Points are inside A z >= 0 exactly if they are a non-negative combination of the rays e_1..e_M, y.

    Facets of a cone of M + 1 rays with p positive, q negative and z zero entries in y: (1 + q) p + z.
    """
    M = len(y)
    A = cone_with_ascent(torch.tensor(y, dtype=FLOAT)).numpy()
    rays = np.vstack([np.eye(M), np.array(y) / np.linalg.norm(y)])
    assert (A >= -1e-12).all()
    np.testing.assert_allclose(np.linalg.norm(A, axis=1), 1, atol=1e-12)
    rng = generator(0, test="hull", y=tuple(y))
    inside = rng.exponential(1.0, (200, M + 1)) * rng.integers(0, 2, (200, M + 1)) @ rays
    assert (inside @ A.T >= -1e-12).all()
    points = rng.standard_normal((300, M)) + 0.3
    far = np.array([nnls(rays.T, z)[1] for z in points])
    by_facets = (points @ A.T).min(1)
    assert ((far < 1e-9) == (by_facets > -1e-9)).all()
    assert 0 < (far < 1e-9).sum() < 300
    # every row of A is needed: a facet holds M - 1 independent rays
    for a in A:
        on = rays[np.abs(rays @ a) < 1e-9]
        assert np.linalg.matrix_rank(on) == M - 1
    p = sum(v > 0 for v in y)
    q = sum(v < 0 for v in y)
    assert len(A) == (1 + q) * p + (M - p - q)


def test_controlled_ascent_of_a_run_does_not_depend_on_its_neighbours() -> None:
    """Cones with 3 and with 4 facets in one batch: each direction is the one the run has alone."""
    target = (0.6, 0.2, 0.3)
    F = torch.tensor([[0.5, 0.6, 0.7], [0.3, 0.1, 0.9], [0.9, 0.8, 0.7]], dtype=FLOAT)  # 4, 3 and 3 facets
    _, J = random(3, 3, 14)
    prefs = spread(3, 3)
    for domain_name in ("adaptive", "simplex"):
        for options in (
            {"line": "none"},
            {"line": "shifted"},
            {"line": "none", "subproblem": "pgd", "inner_steps": 7},
        ):
            algorithm = FERERO(ascend_to=target, domain=domain_name, **options)  # type: ignore[arg-type]
            batch = solve(algorithm, F, J, F0=F, prefs=prefs)
            for r in range(3):
                i = slice(r, r + 1)
                alone = solve(algorithm, F[i], J[i], F0=F[i], prefs=prefs[i])
                np.testing.assert_allclose(alone.d[0], batch.d[r], rtol=0, atol=1e-10)
        sa = FEREROSA(ascend_to=target, domain=domain_name, line="none")
        whole = iterate(sa, F, J, 5, prefs)
        for r in range(3):
            i = slice(r, r + 1)
            np.testing.assert_allclose(iterate(sa, F[i], J[i], 5, prefs[i])[0], whole[r], rtol=0, atol=1e-12)


@dataclass(frozen=True, kw_only=True)
class BesideTheFront(VLMOP2):
    """Starts above the front, nearer to the first well than the target."""

    def initial(self, runs: Runs) -> Tensor:
        return torch.tensor([0.55, -0.15, 0.55, -0.15], dtype=FLOAT).expand(len(runs), -1).clone()


def test_controlled_ascent_reaches_a_target_that_the_pareto_order_forbids() -> None:
    """On the line to the target f_1 must rise: the Pareto cone rests at once, a wider one arrives.

    The cone must be a little wider than the line asks for: with the target itself in `ascend_to` the line is
    an edge of the cone, along which one row of A F stands still, and (2.1) rests too.
    """
    problem = BesideTheFront(n=4)
    runs = runs_at(45.0)
    start = problem.values(problem.initial(runs))[0].tolist()
    target = [0.6321205588, 0.6321205588]
    assert start[0] < target[0] - 0.03
    line: dict[str, Any] = {"step_size": 0.1, "line": "points", "line_points": [start, target]}
    pareto = simulate(problem, FERERO(**line), runs, 20)
    np.testing.assert_allclose(pareto.f[0], np.tile(start, (21, 1)), rtol=0, atol=1e-8)
    edge = simulate(problem, FERERO(ascend_to=target, **line), runs, 20)
    np.testing.assert_allclose(edge.f[0], pareto.f[0], rtol=0, atol=1e-8)
    ascent = simulate(problem, FERERO(ascend_to=[0.75, 0.6], **line), runs, 200)
    np.testing.assert_allclose(ascent.f[0, -1], target, rtol=0, atol=1e-3)


# Algorithms 2 and 3


def iterate(algorithm: FEREROSA, F: Tensor, J: Tensor, steps: int, prefs: Tensor | None = None) -> np.ndarray:
    """The direction after that many multiplier steps at one fixed theta."""
    state = state_of(algorithm, F, prefs=prefs)
    x = torch.zeros(J.shape[0], J.shape[2], dtype=FLOAT)
    point = TablePoint(x, Free(), F.shape[1], {}, F, J)
    for t in range(steps):
        _, state, _ = algorithm.step((point,), state, t, 0.1)
    return algorithm.step((point,), state, steps, 0.1)[0].numpy()


MANY_STEPS = [
    (name, domain_name)
    for name in ("free-3", "ray-2", "ray-3", "ray-and-threshold-2", "threshold-3", "speech")
    for domain_name in ("adaptive", "simplex")
    if (name, domain_name) != ("ray-3", "adaptive")  # the same limit, but slowly
]


@pytest.mark.parametrize(("name", "domain_name"), MANY_STEPS)
def test_many_multiplier_steps_of_algorithm_2_are_algorithm_1(name: str, domain_name: str) -> None:
    """f13, with the same domain; the step of the multipliers is 1.8 / (largest eigenvalue of Q)."""
    M, options = KINDS[name]
    F, J = random(5, M, 15)
    J = torch.eye(M, M + 3, dtype=FLOAT) + 0.15 * J  # well conditioned: the multipliers converge fast
    both: dict[str, Any] = {"domain": domain_name, "c_g": 0.7, "c_h": 0.5, **options}
    exact = solve(FERERO(**both), F, J)
    AJ = exact.state["A_ag"] @ exact.J
    single = FEREROSA(gamma=float(1.8 / np.linalg.norm(AJ, ord=2, axis=(1, 2)).max() ** 2), **both)
    np.testing.assert_allclose(iterate(single, F, J, 500), exact.d, rtol=0, atol=1e-5)
    assert np.abs(iterate(single, F, J, 1) - exact.d).max() > 1e-3


class FullTwice(Oracle):
    """Hands the whole data set as a batch, twice: two samples that are equal."""

    def __init__(self, problem: LeastSquares, runs: Runs) -> None:
        self.problem = problem
        self.spec = problem_spec(problem, len(runs), samples=2)
        self.calls: list[tuple[int, int]] = []

    def at(self, theta: Tensor, state: dict[str, Tensor], t: int, k: int = 0) -> Point:
        self.calls.append((t, k))
        batch = torch.arange(self.problem.samples).expand(len(theta), -1)
        return make_point(self.problem, theta, self.spec, batch)

    def exact(self, theta: Tensor) -> Tensor:
        return self.problem.values(theta)


@pytest.mark.parametrize("tasks", [2, 3])
def test_algorithm_3_with_the_full_data_twice_is_algorithm_2(tasks: int) -> None:
    """f13: the whole path."""
    problem = LeastSquares(n=5, tasks=tasks, samples=40)
    runs = Runs.product(spread(3, tasks), [0, 1])
    options: dict[str, Any] = {"step_size": 0.1, "gamma": 0.2, "c_h": 0.5, "domain": "simplex"}
    oracle = FullTwice(problem, runs)
    stochastic = simulate(problem, StochasticFEREROSA(**options), runs, 40, oracle=oracle)
    single = simulate(problem, FEREROSA(**options), runs, 40)
    assert oracle.calls == list(itertools.product(range(40), (0, 1)))
    np.testing.assert_allclose(stochastic.x, single.x, rtol=0, atol=1e-10)
    assert np.abs(single.x[:, -1] - single.x[:, 0]).max() > 0.1


def test_algorithm_3_uses_its_samples_as_printed() -> None:
    """Theta moves along J_1' w; lambda with J_2 of the other sample and H of the first."""
    F, J = random(3, 2, 16)
    F2, J2 = random(3, 2, 17)
    x = torch.zeros(3, 5, dtype=FLOAT)
    algorithm = StochasticFEREROSA(gamma=0.3, c_h=0.4)
    state = state_of(algorithm, F)
    first = TablePoint(x, Free(), 2, {}, F, J)
    second = TablePoint(x, Free(), 2, {}, F2, J2)
    d, after, _ = algorithm.step((first, second), state, 0, 0.1)
    lam = state["lam"].numpy()
    B = state["Bh"].numpy()[:, 0]
    w = lam[:, :2] + lam[:, 2:] * B
    g = np.einsum("rm,rmp->rp", w, J.numpy())
    np.testing.assert_allclose(d.numpy(), -g, atol=1e-14)
    push = np.einsum("rmp,rp->rm", J2.numpy(), g)
    lh = lam[:, 2] - 0.3 * ((B * push).sum(1) - 0.4 * (B * F.numpy()).sum(1))
    np.testing.assert_allclose(after["lam"][:, 2].numpy(), lh, atol=1e-14)
    y = lam[:, :2] - 0.3 * push
    a = F.numpy()
    # projection on {x >= 0, F'x = 1'F}: the KKT conditions
    lf = after["lam"][:, :2].numpy()
    np.testing.assert_allclose((lf * a).sum(1), a.sum(1), atol=1e-12)
    tau = (y - lf) / a
    for r in range(3):
        on = lf[r] > 0
        assert np.ptp(tau[r][on]) < 1e-12
        assert (tau[r][~on] <= tau[r][on].min() + 1e-12).all()


@pytest.mark.parametrize("M", [2, 3])
@pytest.mark.parametrize("normalize", [False, True])
def test_multipliers_of_the_line_are_the_sums_in_the_rows(M: int, normalize: bool) -> None:
    """lh = gamma (line_pull - line_gram), with the sums formed anew from the two samples."""
    F, J = random(3, M, 16)
    F2, J2 = random(3, M, 17)
    x = torch.zeros(3, J.shape[2], dtype=FLOAT)
    algorithm = StochasticFEREROSA(gamma=0.3, c_h=0.4, normalize=normalize)
    state = state_of(algorithm, F)
    first = TablePoint(x, Free(), M, {}, F, J)
    second = TablePoint(x, Free(), M, {}, F2, J2)
    B = state["Bh"].numpy()
    gram = pull = np.zeros((3, M - 1))
    for t in range(4):
        w = np.einsum("rk,rkm->rm", state["lam"].numpy(), state["A_ag"].numpy())
        w = w / np.abs(w).sum(1, keepdims=True) if normalize else w
        step = np.einsum("rmp,rqp,rq->rm", J2.numpy(), J.numpy(), w)
        gram = gram + np.einsum("rhm,rm->rh", B, step)
        pull = pull + 0.4 * np.einsum("rhm,rm->rh", B, F.numpy())
        d, state, _ = algorithm.step((first, second), state, t, 0.1)
        np.testing.assert_allclose(d.numpy(), -np.einsum("rm,rmp->rp", w, J.numpy()), atol=1e-13)
    rows = algorithm.report(F, state)
    for k in range(M - 1):
        np.testing.assert_allclose(rows[f"line_gram_{k + 1}"], gram[:, k], rtol=1e-12)
        np.testing.assert_allclose(rows[f"line_pull_{k + 1}"], pull[:, k], rtol=1e-12)
        np.testing.assert_allclose(state["lam"][:, M + k], 0.3 * (pull - gram)[:, k], rtol=1e-12)


# merits of Theorems 1 to 4


@pytest.mark.parametrize("kind", ["equality", "inequality", "single"])
def test_terms_of_the_merit_are_sums_over_the_steps(kind: str) -> None:
    """Against an independent loop, whose own steps give |J' A_ag' lambda|^2."""
    w = torch.tensor([[0.3, 0.7], [0.6, 0.4]], dtype=FLOAT)
    runs = Runs.product(w, [0, 1])
    options: dict[str, Any] = {"step_size": 0.05, "merit": True}
    con = {r: reference.constraints(ray(runs.weights)[r].numpy()) for r in range(len(runs))}
    theirs: dict[str, Any] = {"inner": "exact"}
    algorithm: Algorithm
    loop: Any = reference.run
    if kind == "equality":
        algorithm = FERERO(**options)
    elif kind == "inequality":
        algorithm = FERERO(line="none", upper=[0.6, None], **options)
        bounded = reference.constraints(B_g=np.array([[1.0, 0.0]]), b_g=np.array([-0.6]))
        con = dict.fromkeys(con, bounded)
    else:
        algorithm = FEREROSA(gamma=0.2, c_h=0.7, domain="simplex", **options)
        loop = reference.run_sa
        theirs = {"gamma": 0.2, "c_h": 0.7, "domain": "simplex", "lf0": 0.5}
    ours = simulate(TOY, algorithm, runs, 40)
    rows = algorithm.report(torch.from_numpy(ours.f[:, -1]), ours.state["alg"])
    for r in range(len(runs)):
        path = loop(problems.VLMOP2(20), ours.x[r, 0], con[r], steps=40, step_size=0.05, **theirs)
        for term, value in reference.merit_terms(path, con[r], 2, 0.05).items():
            assert float(rows[f"sum_{term}"][r]) == pytest.approx(value, rel=1e-7, abs=1e-12), term
        assert float(rows["sum_violation"][r]) > 0.1


def test_slackness_counts_constraints_that_hold_with_a_margin() -> None:
    """lg' [-G]_+ in a wide cone, where what decreases f_2 increases f_1 towards its bound."""
    F, J = random(40, 2, 5)
    J[:, 0] = 0.05 * J[:, 0] - 0.3 * J[:, 1]
    algorithm = FERERO(line="none", cone=A4.tolist(), upper=[1.2, None], c_g=0.1, merit=True)
    state = state_of(algorithm, F)
    _, after, _ = algorithm.weights(F, J @ J.mT, state, 0)
    rows = algorithm.report(F, after)
    con = reference.constraints(B_g=np.array([[1.0, 0.0]]), b_g=np.array([-1.2]))
    slackness = rows["sum_slackness"].numpy()
    for r in range(40):
        K = (J[r] @ J[r].mT).numpy()
        lam = reference.solve_enumeration(reference.dual(K, F[r].numpy(), A4, con, c_g=0.1))
        left = max(1.2 - float(F[r, 0]), 0.0)
        assert slackness[r] == pytest.approx(lam[2] * left, abs=1e-9)
    assert (slackness > 1e-3).sum() > 10


def test_estimates_of_the_merit_are_products_of_both_samples() -> None:
    """w' J_2 J_1' w and H_1' H_2, which have no bias; |w' J_1|^2 and |H_1|^2 have one."""
    F, J = random(3, 3, 16)
    F2, J2 = random(3, 3, 17)
    x = torch.zeros(3, J.shape[2], dtype=FLOAT)
    algorithm = StochasticFEREROSA(gamma=0.3, c_h=0.4, merit=True)
    state = state_of(algorithm, F)
    total = np.zeros((2, 3))
    for t in range(3):
        w = np.einsum("rk,rkm->rm", state["lam"].numpy(), state["A_ag"].numpy())
        total[0] += np.einsum("rm,rmp,rqp,rq->r", w, J2.numpy(), J.numpy(), w)
        B = state["Bh"].numpy()
        total[1] += np.einsum("rhm,rm,rhn,rn->r", B, F.numpy(), B, F2.numpy())
        points = (TablePoint(x, Free(), 3, {}, F, J), TablePoint(x, Free(), 3, {}, F2, J2))
        _, state, _ = algorithm.step(points, state, t, 0.1)
    rows = algorithm.report(F, state)
    np.testing.assert_allclose(rows["sum_stationarity"], total[0], rtol=1e-12)
    np.testing.assert_allclose(rows["sum_violation_square"], total[1], rtol=1e-12)


def test_a_merit_that_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ConfigError, match="subproblem=exact"):
        FERERO(merit=True, subproblem="pgd")
    both = FERERO(merit=True, upper=[0.5, None])
    assert "beside an equality" in both.misfits(Spec(1, 2, 0, 5, Free()))[0]
    assert FERERO(merit=True).misfits(Spec(1, 2, 0, 5, Free())) == []
    with pytest.raises(ConfigError, match="ferero_stochastic"):
        PublicCodeFERERO(merit=True)


# EPO


@pytest.mark.parametrize("M", [2, 3, 10])
def test_epo_non_uniformity(M: int) -> None:
    """f14: with gain 1 and no floor the weights sum to mu = sum h log(M h): 0 exactly on the ray."""
    F, J = random(30, M, 18)
    prefs = spread(30, M)
    on_ray = ray(prefs[:10]) * torch.linspace(0.1, 2.0, 10, dtype=FLOAT)[:, None]
    F[:10] = on_ray
    F[10, 0] = 0.0
    algorithm = EPO(gain=1.0, mu_floor=1e-300)
    state = state_of(algorithm, F, prefs=prefs)
    for factor in (1.0, 1e3):
        w, _, info = algorithm.weights(factor * F, J @ J.mT, state, 0)
        # exactly on the ray the adjustment is rounding noise and must not decide whether the program is
        # feasible
        assert info.fail is not None
        assert not bool(info.fail.any())
        rl = prefs.numpy() * F.numpy()
        h = rl / rl.sum(1, keepdims=True)
        mu = (h * np.log(M * np.where(h > 0, h, 1.0))).sum(1)
        np.testing.assert_allclose(w.sum(1).numpy(), mu, rtol=0, atol=1e-12)
        assert (w.sum(1)[:10].abs() < 1e-12).all()
        assert (w.sum(1)[10:] > 1e-4).all()
