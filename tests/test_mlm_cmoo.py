"""Properties of MLM-CMOO: invariants of a step, known answers, limits, symmetries, refusals."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from mobench.algorithms.mlm_cmoo import MLMCMOO, tangent_to_simplex
from mobench.config.compose import compose
from mobench.constraints import LossCap
from mobench.core import GraphPoint, Runs, loop
from mobench.errors import ConfigError
from mobench.jobs.run import run_job
from mobench.jobs.store import JobFolder
from mobench.metrics import constrained_kkt
from mobench.oracles import Exact
from mobench.problems import BallAndHalfSpace, HalfPlane, LeastSquares
from tests.conftest import Run

F64 = torch.float64
EVEN = torch.tensor([[0.5, 0.5]], dtype=F64)
THIRDS = torch.full((1, 3), 1.0 / 3.0, dtype=F64)
ONE = Runs.product(EVEN, [0])


def follow(
    oracle: Any, algorithm: Any, runs: Runs, steps: int, start: Tensor | None = None
) -> tuple[Tensor, list[dict[str, Any]], Any]:
    """Iterates (T + 1, R, P), the algorithm's state after each step, and the last state of the loop."""
    theta = oracle.initial(runs) if start is None else start
    state = loop.start(oracle, algorithm, {}, theta, runs, steps)
    xs = [state["theta"]]
    states = []
    for t in range(steps):
        state = loop.advance(oracle, algorithm, {}, state, t + 1)
        xs.append(state["theta"])
        states.append(state["alg"])
    return torch.stack(xs), states, state


# an independent loop, one run at a time, from the specification


def plain_projection(v: np.ndarray) -> np.ndarray:
    u = np.sort(v)[::-1]
    k = np.arange(1, len(v) + 1)
    rho = np.nonzero(u + (1 - np.cumsum(u)) / k > 0)[0][-1]
    return np.maximum(v + (1 - np.cumsum(u)[rho]) / (rho + 1), 0.0)


def plain_loop(
    fg: Any, x: np.ndarray, M: int, steps: int, alpha: float, eta: float, beta: float, p: float
) -> np.ndarray:
    """b.4, with f, g, gradients (columns) and Hessians from `fg`; the min-norm weights by CVXPY-free
    enumeration for M = 2 and by many steps of Frank-Wolfe with exact line search otherwise.
    """
    lam = np.full(M, 1 / M)
    theta = np.full(M, 1 / M)
    N = len(fg(x)[1])
    mu = np.zeros(N)
    z = np.zeros(N)
    path = [x]
    for t in range(steps):
        _, g, G, J, H = fg(x)
        c = (t + 1) ** p
        gram = G.T @ G
        unit = lambda v, gram=gram: gram @ v / np.sqrt(v @ gram @ v)  # noqa: E731
        theta = plain_projection(theta - eta * (unit(theta) + (theta - lam)))
        mu = np.clip(mu + eta * (g - (mu - z)), 0, 50)

        def hv(v: np.ndarray, G: np.ndarray = G, H: np.ndarray = H) -> np.ndarray:
            d = G @ v
            return np.einsum("m,mij,j->i", v, H, d) / np.linalg.norm(d)

        target = plain_min_norm(gram)
        new = x - alpha * (G @ lam / c + hv(lam) - hv(theta) + J @ mu)
        lam = plain_projection(lam - alpha * ((lam - target) / c + unit(lam) - (lam - theta)))
        z = np.clip(z + beta * (mu - z), 0, 50)
        x = new
        path.append(x)
    return np.stack(path)


def plain_min_norm(gram: np.ndarray) -> np.ndarray:
    if len(gram) == 2:
        s = (gram[1, 1] - gram[0, 1]) / (gram[0, 0] + gram[1, 1] - 2 * gram[0, 1])
        return np.array([np.clip(s, 0, 1), 1 - np.clip(s, 0, 1)])
    from scipy.optimize import minimize

    n = len(gram)
    solution = minimize(
        lambda v: v @ gram @ v,
        np.full(n, 1 / n),
        jac=lambda v: 2 * gram @ v,
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1, "jac": lambda v: np.ones(n)},
        options={"ftol": 1e-16, "maxiter": 500},
    )
    return solution.x


def test_path_against_a_loop_written_from_the_specification() -> None:
    a = np.array([[-1.0, 0.0], [1.0, 0.0]])

    def fg(x: np.ndarray) -> Any:
        f = 0.5 * ((x - a) ** 2).sum(1)
        return f, np.array([1 - x[1]]), (x - a).T, np.array([[0.0], [-1.0]]), np.stack([np.eye(2)] * 2)

    path, _, _ = follow(Exact(HalfPlane(), ONE), MLMCMOO(), ONE, 300)
    expected = plain_loop(fg, np.array([0.3, -1.0]), 2, 300, 0.02, 0.02, 0.02, 0.25)
    np.testing.assert_allclose(path[:, 0].numpy(), expected, atol=1e-11)


def test_path_of_three_objectives_against_that_loop() -> None:
    runs = Runs.product(THIRDS, [1])
    oracle = Exact(BallAndHalfSpace(), runs)
    constants = oracle.problem._constants(oracle.initial(runs))  # type: ignore[attr-defined]
    A, centre = (v[0].numpy() for v in constants)

    def fg(x: np.ndarray) -> Any:
        y = x - centre
        J = np.stack([2 * x, np.eye(6)[0]], axis=1)
        return None, np.array([x @ x - 1, x[0] - 0.2]), np.einsum("mij,mj->im", A, y), J, A

    path, _, _ = follow(oracle, MLMCMOO(step_size=0.01, eta=0.01, beta=0.01), runs, 60)
    expected = plain_loop(fg, oracle.initial(runs)[0].numpy(), 3, 60, 0.01, 0.01, 0.01, 0.25)
    # SLSQP's weights are good to about 1e-6
    np.testing.assert_allclose(path[:, 0].numpy(), expected, atol=1e-6)


# 1, 2, 4, 5: a step


@pytest.mark.parametrize(
    "options", [{}, {"inner": "exact"}, {"lam_target": "constrained"}, {"h_power": 2}, {"variant": "literal"}]
)
def test_weights_stay_in_the_simplex_and_multipliers_in_their_box(options: dict[str, Any]) -> None:
    runs = Runs.product(THIRDS, [0, 1])
    _, states, _ = follow(Exact(BallAndHalfSpace(), runs), MLMCMOO(r=0.5, prox_steps=3, **options), runs, 40)
    for state in states:
        for name in ("lam", "theta"):
            assert float(state[name].min()) >= 0
            torch.testing.assert_close(state[name].sum(1), torch.ones(2, dtype=F64), rtol=0, atol=1e-12)
        for name in ("mu", "z"):
            assert float(state[name].min()) >= 0
            assert float(state[name].max()) <= 0.5


def test_exact_multipliers_solve_their_problem() -> None:
    gamma2 = 0.7
    steps = 30
    algorithm = MLMCMOO(inner="exact", gamma2=gamma2)
    oracle = Exact(HalfPlane(), ONE)
    xs, states, _ = follow(oracle, algorithm, ONE, steps)
    z = torch.zeros(1, 1, dtype=F64)
    for t in range(steps):
        g = oracle.exact(xs[t])[:, 2:]
        mu = states[t]["mu"]
        torch.testing.assert_close(mu, (z + gamma2 * g).clamp(0, 50))
        A = mu * g - (mu - z) ** 2 / (2 * gamma2)
        # the classical augmented Lagrangian
        closed = ((z + gamma2 * g).clamp_min(0) ** 2 - z**2) / (2 * gamma2)
        torch.testing.assert_close(A, closed)
        z = states[t]["z"]


def test_hessian_term_is_the_gradient_of_the_norm() -> None:
    """HV(v) against finite differences of |G(x) l|."""
    runs = Runs.product(THIRDS, [0, 2])
    oracle = Exact(BallAndHalfSpace(), runs)
    algorithm = MLMCMOO()
    v = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]], dtype=F64)
    x = oracle.initial(runs)
    point = oracle.at(x, {}, 0)

    def norm(x: Tensor) -> Tensor:
        return oracle.at(x, {}, 0).vjp(v).norm(dim=1)

    term = algorithm._h(point, v, norm(x).unsqueeze(1))

    for i in range(6):
        e = torch.zeros(6, dtype=F64)
        e[i] = 1e-6
        torch.testing.assert_close(term[:, i], (norm(x + e) - norm(x - e)) / 2e-6, rtol=1e-5, atol=1e-7)
    graph = GraphPoint(lambda y: oracle.problem.values(y), x, oracle.spec.X, 3, {})
    torch.testing.assert_close(algorithm._h(graph, v, norm(x).unsqueeze(1)), term)


def test_multiplier_term_is_the_gradient_of_the_augmented_lagrangian() -> None:
    """With exact multipliers the step less its part along the losses is -grad_x A(g(x), z), by finite
    differences; also where multipliers are clipped.
    """
    runs = Runs.product(THIRDS, [0, 1, 2])
    oracle = Exact(BallAndHalfSpace(), runs)
    algorithm = MLMCMOO(inner="exact", gamma2=0.5, r=2.0, use_u=False)
    z = torch.tensor([[0.3, 0.1], [0.0, 0.0], [1.9, 0.0]], dtype=F64)
    x = torch.tensor([[0.5], [-0.2], [2.0]], dtype=F64).expand(3, 6) + 0.01 * oracle.initial(runs)

    def envelope(x: Tensor) -> Tensor:
        # its maximum by trying
        g = oracle.at(x, {}, 0).G
        mu = torch.linspace(0.0, 2.0, 200_001, dtype=F64)
        values = mu * g.unsqueeze(2) - (mu - z.unsqueeze(2)) ** 2 / (2 * 0.5)
        return values.amax(2).sum(1)

    point = oracle.at(x, {}, 0)
    state = loop.start(oracle, algorithm, {}, x, runs, 20)["alg"] | {"z": z}
    d, info, _ = algorithm.step((point,), state, 0, algorithm.step_size)
    assert (info["mu"] == 0.0).any()
    assert (info["mu"] == 2.0).any()
    gradient = -d - point.vjp(state["lam"])  # c_0 = 1
    for i in range(x.shape[1]):
        e = torch.zeros(x.shape[1], dtype=F64)
        e[i] = 1e-4
        torch.testing.assert_close(
            gradient[:, i], (envelope(x + e) - envelope(x - e)) / 2e-4, rtol=1e-4, atol=1e-5
        )


# 6: known answers, in processes of their own: type checks of the test suite cost ten times the steps

# (alpha = beta, eta): x_1, x_2, c mu as the specification prints them, with half a unit of its last digit
EVIDENCE = {
    (0.02, 0.02): ((0.240, 5e-4), (1.0001, 5e-5), (1.0001, 5e-5)),
    (0.1, 0.01): ((1.000, 5e-4), (1.0001, 5e-5), (1.0, 1e-3)),
    (0.02, 0.001): ((1.000, 5e-4), (1.0011, 5e-5), (1.0, 1.5e-3)),
}


def finished(root: FilePath, *arguments: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows and variables of one job."""
    config = compose([*arguments, "preferences=1", "record.every=0", "logger=local", "progress=false"])
    folder = run_job(config, root).folder
    return JobFolder(folder).final(), JobFolder(folder).solutions()["last"]


def test_evidence_of_the_specification_on_p1(tmp_path: FilePath) -> None:
    grid = ("vary.step_size=[0.02,0.1]", "vary.eta=[0.02,0.01,0.001]", "vary.beta=[0.02,0.1]")
    rows, x = finished(tmp_path, "problem=half_plane", "algorithm=mlm_cmoo", "steps=20000", *grid)
    for (alpha, eta), ((x1, first), (x2, second), (nu, third)) in EVIDENCE.items():
        (r,) = rows.index[(rows["step_size"] == alpha) & (rows["eta"] == eta) & (rows["beta"] == alpha)]
        assert abs(x[r, 0] - x1) < first
        assert abs(x[r, 1] - x2) < second
        assert abs(rows["multiplier_1"][r] - nu) < third
        assert rows["kkt"][r] < 1e-3
        assert rows["violation"][r] < 1e-3
    (r,) = rows.index[(rows["step_size"] == 0.02) & (rows["eta"] == 0.02) & (rows["beta"] == 0.02)]
    assert rows["kkt"][r] < 1e-12
    assert rows["own_residual"][r] < 5e-6
    assert rows["complementarity"][r] < 5e-3


def test_p2_ends_at_constrained_stationary_points(tmp_path: FilePath) -> None:
    """Three instances."""
    steps = [f"algorithm.{name}=0.05" for name in ("step_size", "eta", "beta")]
    rows, _ = finished(
        tmp_path, "problem=ball_and_half_space", "algorithm=mlm_cmoo", "steps=2000", "seeds=[0,1,2]", *steps
    )
    assert rows["own_residual"].max() < 1e-4
    assert rows["kkt"].max() < 1e-2
    assert rows["violation"].max() < 1e-3
    assert rows["complementarity"].max() < 5e-3
    # a constraint binds in every instance
    assert rows[["multiplier_1", "multiplier_2"]].max(axis=1).min() > 0.1


# 7: as printed


def test_literal_does_not_see_its_constraint(tmp_path: FilePath) -> None:
    literal = ("algorithm=mlm_cmoo", "algorithm.variant=literal", "algorithm.prox_steps=5")
    larger = [f"algorithm.{name}=0.1" for name in ("step_size", "eta", "beta")]
    rows, x = finished(tmp_path, "problem=half_plane", *literal, *larger, "steps=180")
    assert rows["violation"][0] > 0.5
    assert rows["multiplier_1"][0] == 0.0
    assert abs(x[0, 1]) < 0.05  # a Pareto point of the problem without constraint


def test_literal_without_projections_diverges() -> None:
    oracle = Exact(HalfPlane(), ONE)
    literal = MLMCMOO(variant="literal", projections=False, prox_steps=3)
    state = loop.start(oracle, literal, {}, oracle.initial(ONE), ONE, 200)
    state = loop.advance(oracle, literal, {}, state, 200)
    assert not bool(state["alive"]) or float(state["theta"].norm()) > 1e6


# 8, 9: constraints that do not bind


def test_inactive_constraints_change_nothing() -> None:
    problem = LeastSquares()
    runs = Runs.product(EVEN, [0, 1])
    plain = Exact(problem, runs)
    capped = LossCap(Exact(problem, runs), problem, runs, value=1e6)
    free, _, _ = follow(plain, MLMCMOO(), runs, 50)
    same, states, _ = follow(capped, MLMCMOO(), runs, 50)
    torch.testing.assert_close(same, free, rtol=0, atol=1e-14)
    assert all(float(s["mu"].abs().max()) == 0.0 == float(s["z"].abs().max()) for s in states)


# 10, 11: symmetries and costs


class Scaled(HalfPlane):
    """s g instead of g."""

    factor = 7.0

    def values(self, x: Tensor, batch: Any = None) -> Tensor:
        v = super().values(x)
        return torch.cat([v[:, :2], self.factor * v[:, 2:]], dim=1)

    def linearize(self, x: Tensor, batch: Any = None) -> Any:
        _, rows, _ = super().linearize(x)
        scale = torch.tensor([1.0, 1.0, self.factor], dtype=x.dtype)
        return self.values(x), lambda: rows() * scale[:, None]


def test_scale_of_a_constraint() -> None:
    """g -> s g with gamma_2 / s^2, eta_mu / s^2, beta / s^2, r / s gives the same x and mu / s."""
    s = Scaled.factor
    plain, states, _ = follow(Exact(HalfPlane(), ONE), MLMCMOO(r=0.6), ONE, 400)
    other = MLMCMOO(gamma2=1 / s**2, eta_mu=0.02 / s**2, beta=0.02 / s**2, r=0.6 / s)
    scaled, others, _ = follow(Exact(Scaled(), ONE), other, ONE, 400)
    torch.testing.assert_close(scaled, plain, rtol=0, atol=5e-12)
    torch.testing.assert_close(others[-1]["mu"] * s, states[-1]["mu"], rtol=0, atol=5e-12)
    assert float(states[-1]["mu"]) > 0.01


def test_clip_of_the_hessian_term() -> None:
    runs = Runs.product(THIRDS, [0, 1, 2])
    oracle = Exact(BallAndHalfSpace(), runs)
    x = oracle.initial(runs)
    lengths = {}
    for clip in (None, 0.2, 1e-9):
        algorithm = MLMCMOO(u_clip=clip)
        state = loop.start(oracle, algorithm, {}, x, runs, 5)["alg"]
        state["theta"] = torch.tensor([[1.0, 0.0, 0.0]], dtype=F64).repeat(3, 1)  # far from lam
        point = oracle.at(x, {}, 0)
        d, info, _ = algorithm.step((point,), state, 3, 0.02)
        main = -point.vjp(torch.cat([state["lam"] / 4**0.25, info["mu"]], dim=1))
        lengths[clip] = ((d - main).norm(dim=1) / main.norm(dim=1), info["u_ratio"])
    torch.testing.assert_close(lengths[None][0], lengths[None][1])
    assert float(lengths[None][0].max()) > 0.2
    torch.testing.assert_close(lengths[0.2][0], lengths[None][1].clamp_max(0.2))
    assert float(lengths[1e-9][0].max()) < 1e-8


def test_tangent_cone_of_the_simplex_against_cvxpy() -> None:
    import cvxpy as cp

    rng = np.random.default_rng(0)
    x = torch.tensor([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.2, 0.3, 0.4, 0.1]], dtype=F64).repeat(
        5, 1
    )
    v = torch.from_numpy(rng.standard_normal((15, 4)))
    projected = tangent_to_simplex(x, v)
    for r in range(15):
        u = cp.Variable(4)
        held = [u[i] >= 0 for i in range(4) if x[r, i] == 0]
        cp.Problem(cp.Minimize(cp.sum_squares(u - v[r].numpy())), [cp.sum(u) == 0, *held]).solve(
            solver="CLARABEL"
        )
        np.testing.assert_allclose(projected[r].numpy(), u.value, atol=1e-6)


# what is refused, what is said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eta": 2.0}, "algorithm.eta=2.0 is too large for algorithm.gamma1=1.0"),
        ({"eta": 0.1, "gamma2": 0.01}, "algorithm.eta=0.1 is too large for algorithm.gamma2=0.01"),
        ({"beta": 3.0}, "algorithm.beta=3.0 is too large for algorithm.gamma2=1.0"),
        ({"penalty_power": 0.5}, "must lie in"),
        ({"gamma1": 0.0}, "algorithm.gamma1=0.0 must be > 0"),
        ({"variant": "literal", "inner": "exact"}, "supported only by algorithm.variant=corrected"),
        ({"variant": "literal", "diagnose": 5}, "supported only by algorithm.variant=corrected"),
        ({"projections": False}, "supported only by algorithm.variant=literal"),
        ({"variant": "printed"}, "corrected, literal"),
        ({"h_power": 3}, "must be 1"),
        ({"u_clip": -1.0}, "algorithm.u_clip=-1.0 must be > 0, or null"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        MLMCMOO(**options)


def test_columns_and_certificates_of_a_job(mobench: Run) -> None:
    method = ("algorithm=mlm_cmoo", "algorithm.diagnose=5")
    done = mobench("problem=half_plane", *method, "steps=20", "preferences=1", "logger=local")
    assert done.code == 0, done.err
    assert {"g_1", "violation", "multiplier_1", "u_ratio", "kkt", "inner_error"} <= set(done.rows)
    assert {"own_residual", "complementarity", "stationarity_t"} <= set(done.rows)
    history = done.job.history()
    errors = history.set_index("step")["inner_error"]
    assert errors.loc[:4].isna().all()
    assert errors.loc[5:].notna().all()
    # a row says what the step before it found: those of 5, 10, 15 and 20 are new
    assert errors.nunique() == 4
    # there is no step before the first
    assert history["own_residual"].isna().tolist() == [True] + [False] * 20


def test_kkt_of_constraints_against_cvxpy() -> None:
    import cvxpy as cp

    runs = Runs.product(THIRDS, [0, 1])
    oracle = Exact(BallAndHalfSpace(), runs)
    x = torch.tensor([[0.2, 0.9, 0.0, 0.3, -0.2, 0.1], [0.1, 0.1, 0.2, 0.1, 0.0, 0.0]], dtype=F64)
    x[0] *= 1.0 / x[0].norm()  # on the sphere; the second binds nothing
    x[0, 0] = 0.2
    point = oracle.exact_point(x)
    assert point is not None
    residuals = constrained_kkt(point)
    rows = point.jacobian().numpy()
    g = point.G.numpy()
    for r in range(2):
        lam = cp.Variable(3)
        nu = cp.Variable(2)
        held = [lam >= 0, cp.sum(lam) == 1, nu >= 0, *[nu[j] == 0 for j in range(2) if g[r, j] < -5e-3]]
        problem = cp.Problem(cp.Minimize(cp.norm(rows[r, :3].T @ lam + rows[r, 3:].T @ nu)), held)
        problem.solve(solver="CLARABEL")
        assert abs(problem.value - float(residuals[r])) < 1e-6
