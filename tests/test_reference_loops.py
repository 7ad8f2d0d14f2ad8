"""The reference loops against closed forms and against the numbers measured for the specifications."""

import ast
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.reference import common, epo, ferero, ls, mgda, omd, pmtl, tchebycheff
from tests.reference.problems import DTLZ2, VLMOP2, ZDT1, ZDT2, ZDT3

TOY = VLMOP2(20)
FRONT = TOY.front()
PHIS = np.linspace(9.0, 81.0, 4)
RAYS = [common.ray_at(90.0 - phi) for phi in PHIS]
WEIGHTS = [common.preference_of(ray) for ray in RAYS]
ALTERNATE = np.array([1.0, -1.0] * 10)


def fig3_start(seed, k=0):
    return 0.3 * ALTERNATE + 0.1 * np.random.default_rng([seed, k]).standard_normal(20)


def easy_start(seed, k):
    return np.random.default_rng([seed, k, 7]).uniform(-0.3, 0.3, 20)


def hard_start(seed, k):
    return np.random.default_rng([seed, k, 9]).uniform(0.15, 0.5, 20) * (-1) ** k


def ends(trajectory, ray):
    """(angle to the ray in degrees, distance to the front) of the last point."""
    return abs(common.signed_angle_2d(trajectory.f[-1], ray)), common.distance_to(FRONT, trajectory.f[-1])


def test_independent_of_the_package():
    for path in (Path(__file__).parent / "reference").glob("*.py"):
        autograd = path.name in ("images.py", "bilevel_torch.py")  # networks need it
        forbidden = ("mobench",) if autograd else ("mobench", "torch")
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] in forbidden for name in names), path


# --- problems -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem",
    [VLMOP2(5), VLMOP2(20, (1.0, 2.5)), ZDT1(6), ZDT2(6), ZDT3(6), DTLZ2(7)],
    ids=lambda p: f"{type(p).__name__}-{p.n}",
)
def test_jacobian_against_central_differences(problem):
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.uniform(0.1, 0.9, problem.n)
        h = 1e-6
        numeric = np.stack(
            [(problem.f(x + h * e) - problem.f(x - h * e)) / (2 * h) for e in np.eye(problem.n)], axis=1
        )
        np.testing.assert_allclose(problem.jacobian(x), numeric, atol=2e-7, rtol=1e-6)
        assert problem.f(x).shape == (problem.objectives,)


def test_known_fronts():
    np.testing.assert_allclose(TOY.front_point(1.0), [0.0, 1.0 - np.exp(-4.0)], atol=1e-15)
    np.testing.assert_allclose(TOY.f(np.full(20, 0.3 / np.sqrt(20))), TOY.front_point(0.3), atol=1e-14)
    x = np.zeros(6)
    x[0] = 0.36
    np.testing.assert_allclose(ZDT1(6).f(x), [0.36, 0.4])
    np.testing.assert_allclose(ZDT2(6).f(x), [0.36, 1 - 0.36**2])
    np.testing.assert_allclose(ZDT3(6).f(x), [0.36, 0.4 - 0.36 * np.sin(3.6 * np.pi)])
    y = np.full(7, 0.5)
    y[:2] = 0.2, 0.7
    assert np.linalg.norm(DTLZ2(7).f(y)) == pytest.approx(1.0)


def test_front_crossings_of_the_ten_preferences():
    w = np.clip([[k / 9, 1 - k / 9] for k in range(10)], 0.01, 0.99)
    f1 = [VLMOP2(10).on_ray(1 / row)[0] for row in w]
    published = [0.9730, 0.9338, 0.8818, 0.8065, 0.6987, 0.5589, 0.4032, 0.2519, 0.1167, 0.0098]
    np.testing.assert_allclose(f1, published, atol=6e-5)


# --- subproblems --------------------------------------------------------------------------------------------


def test_weighted_simplex_projection():
    rng = np.random.default_rng(1)
    for _ in range(20):
        n = rng.integers(2, 6)
        y = 3 * rng.normal(size=n)
        w = rng.uniform(0.1, 2.0, n)
        s = rng.uniform(0.5, 2.0)
        x = common.project_weighted_simplex(y, w, s)
        assert x.min() >= 0.0
        assert w @ x == pytest.approx(s, abs=1e-12)
        # nearest: the normal cone inequality at the vertices of the domain is enough
        vertices = np.diag(s / w)
        assert np.max((vertices - x) @ (y - x)) <= 1e-10
        np.testing.assert_allclose(common.project_weighted_simplex(x, w, s), x, atol=1e-12)
    np.testing.assert_allclose(
        common.project_weighted_simplex(np.array([-1.0, 5.0]), np.array([0.0, 2.0]), 2.0), [0, 1]
    )


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_min_norm_against_the_closed_form_and_optimality(scale):
    rng = np.random.default_rng(2)
    for _ in range(20):
        J = rng.normal(size=(2, 5)) * scale
        np.testing.assert_allclose(common.min_norm(J), mgda.two_objective_weights(J @ J.T), atol=1e-12)
        J = (rng.normal(size=(4, 5)) + 0.5) * scale
        d = J.T @ common.min_norm(J)
        assert np.min(J @ d) >= d @ d - 1e-12 * np.trace(J @ J.T)


def random_program(rng, M, m_g=0, equality=True, n=8, domain="adaptive"):
    J = rng.normal(size=(M, n))
    F = rng.uniform(0.2, 1.0, M)
    con = ferero.constraints(
        common.ray_of(rng.uniform(0.2, 1.0, M)) if equality else None,
        B_g=rng.normal(size=(m_g, M)) if m_g else None,
        b_g=rng.normal(size=m_g) * 0.1 if m_g else None,
        M=M,
    )
    K = J @ J.T
    A = np.eye(M) + 0.3 * rng.uniform(size=(M, M))
    return ferero.dual(K, F, A, con, 0.7, domain=domain), K, F, A, J


@pytest.mark.parametrize(("M", "m_g", "equality"), [(2, 0, True), (3, 0, True), (3, 1, False), (4, 2, False)])
@pytest.mark.parametrize("domain", ["adaptive", "simplex"])
def test_exact_direction_has_no_gap(M, m_g, equality, domain):
    rng = np.random.default_rng(3)
    for _ in range(5):
        program, K, F, A, _ = random_program(rng, M, m_g, equality, domain=domain)
        lam = ferero.solve_enumeration(program)
        proof = ferero.certificate(program, K, F, A, lam, domain)
        assert abs(proof["gap"]) < 1e-9
        assert proof["equality"] < 1e-9
        assert proof["inequality"] < 1e-9
        assert program.weights @ lam[: program.n_f] == pytest.approx(program.total, abs=1e-10)


@pytest.mark.parametrize(("M", "m_g", "equality"), [(2, 0, True), (3, 0, True), (3, 2, False)])
def test_exact_direction_equals_cvxpy_and_long_pgd(M, m_g, equality):
    rng = np.random.default_rng(4)
    program, _, _, _, J = random_program(rng, M, m_g, equality)
    lam = ferero.solve_enumeration(program)
    other = ferero.solve_cvxpy(program)
    slow, _ = ferero.solve_pgd(
        program, program.project(lam * 0 + 1), 1.0 / np.linalg.norm(program.Q, 2), 20000, 0.0
    )
    d, d_cvxpy, d_pgd = (-J.T @ program.stacked.T @ x for x in (lam, other, slow))
    np.testing.assert_allclose(d_cvxpy, d, atol=2e-5)
    np.testing.assert_allclose(d_pgd, d, atol=1e-6)
    assert program.value(lam) <= program.value(other) + 1e-9
    assert program.value(lam) <= program.value(slow) + 1e-9


def test_unconstrained_ferero():
    rng = np.random.default_rng(5)
    broken = 0.0
    for _ in range(20):
        J = rng.normal(size=(3, 6)) * rng.uniform(0.1, 2, (3, 1))
        F = rng.uniform(0.1, 1.0, 3)
        con = ferero.constraints(M=3)
        # simplex domain, A = I: the min-norm weights
        program = ferero.dual(J @ J.T, F, np.eye(3), con, domain="simplex")
        np.testing.assert_allclose(ferero.solve_enumeration(program), common.min_norm(J), atol=1e-10)
        # rescaled objectives: the adaptive direction keeps its heading, the simplex one does not
        D = np.diag([1.0, 5.0, 0.2])
        cosine = {}
        for domain in ("adaptive", "simplex"):
            d = [
                G.T @ ferero.solve_enumeration(ferero.dual(G @ G.T, v, np.eye(3), con, domain=domain))
                for G, v in ((J, F), (D @ J, D @ F))
            ]
            cosine[domain] = d[0] @ d[1] / np.linalg.norm(d[0]) / np.linalg.norm(d[1])
        assert 1.0 - cosine["adaptive"] < 1e-12
        broken = max(broken, 1.0 - cosine["simplex"])
    assert broken > 0.1


def test_weak_optimum():
    J = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5]])
    F = np.array([0.0, 0.7])
    con = ferero.constraints(M=2)
    for domain, expected in (("adaptive", -J[1]), ("simplex", np.zeros(3))):
        lam = ferero.solve_enumeration(ferero.dual(J @ J.T, F, np.eye(2), con, domain=domain))
        np.testing.assert_allclose(-J.T @ lam, expected, atol=1e-12)


def test_cone_from_its_rays_and_complements():
    A = ferero.cone_from_rays(np.array([[2.0, -1.0], [-1.0, 2.0]]).T)
    np.testing.assert_allclose(A[::-1], ferero.FIG4_CONE, atol=1e-15)
    for v in (np.array([0.3, 0.9]), np.array([0.2, 0.5, 0.7]), np.array([1.0, 0.0, 0.0, 0.0])):
        B = ferero.complement(v)
        np.testing.assert_allclose(B @ v, 0.0, atol=1e-15)
        np.testing.assert_allclose(B @ B.T, np.eye(len(v) - 1), atol=1e-15)


def test_linear_objectives_contract_the_equality_exactly():
    class Linear:
        G = np.random.default_rng(6).normal(size=(3, 7))

        def f(self, x):
            return self.G @ x + 5.0

        def jacobian(self, x):
            return self.G

    con = ferero.constraints(common.ray_of(np.array([0.5, 0.3, 0.2])))
    run = ferero.run(Linear(), np.zeros(7), con, steps=5, step_size=0.02, c_h=0.8, inner="exact")
    np.testing.assert_allclose(run.extra["H"][1:] / run.extra["H"][:-1], 0.984, atol=1e-10)


# --- fig. 3, 4, 7, 8 of FERERO ------------------------------------------------------------------------------


def test_fig3_ls_and_mgda():
    rng = np.random.default_rng(0)
    angles = []
    for k in range(4):
        run = ls.run(TOY, rng.uniform(-0.6, 0.6, 20), common.ray_at(PHIS[k]), steps=150, step_size=0.1)
        angles.append(np.degrees(np.arctan2(run.f[-1, 1], run.f[-1, 0])))
        assert common.distance_to(FRONT, run.f[-1]) < 1e-3
        middle = mgda.run(TOY, rng.uniform(-0.6, 0.6, 20), steps=150, step_size=0.2)
        angle, distance = ends(middle, common.ray_at(45.0))
        assert angle < 8
        assert distance < 1e-3
    assert all(min(a, 90 - a) < 1 for a in angles)
    assert min(angles) < 1
    assert max(angles) > 89


def test_fig3_pmtl_is_not_exact():
    refs = np.array([common.ray_at(a) for a in np.linspace(0, 90, 5)])
    angles = []
    for k in range(4):
        run = pmtl.run(TOY, fig3_start(0, k), WEIGHTS[k], refs, steps=150, step_size=0.2)
        angle, distance = ends(run, RAYS[k])
        assert distance < 0.02
        angles.append(angle)
        if k in (1, 2):
            assert np.all(run.extra["rows"] @ run.f[-1] <= 1e-9)
    assert max(angles) <= 16
    assert np.mean(angles) >= 3


@pytest.mark.parametrize("solver", ["linprog", "interval"])
def test_fig3_epo(solver):
    for k in range(4):
        run = epo.run(TOY, fig3_start(0, k), WEIGHTS[k], steps=100, step_size=0.1, solver=solver)
        angle, distance = ends(run, RAYS[k])
        assert angle <= 0.6
        assert distance <= 2e-4


def test_epo_linear_program_equals_the_interval():
    rng = np.random.default_rng(7)
    for _ in range(40):
        J = rng.normal(size=(2, 4))
        r = rng.uniform(0.1, 0.9)
        r = np.array([r, 1 - r])
        F = rng.uniform(0.1, 1, 2) if rng.uniform() < 0.7 else 0.3 / r
        objective, rows, bounds, *_ = epo.program(J @ J.T, F, r)
        by_lp = epo.weights_linprog(objective, rows, bounds)
        by_interval = epo.weights_interval(objective, rows, bounds)
        assert objective @ by_lp == pytest.approx(objective @ by_interval, abs=1e-6)


def test_fig3_ferero_rays():
    for k in range(4):
        con = ferero.constraints(RAYS[k])
        run = ferero.run(TOY, fig3_start(0, k), con, steps=100, step_size=0.05)
        angle, distance = ends(run, RAYS[k])
        assert angle <= 0.3
        assert distance <= 1e-4
        H = np.abs(run.extra["H"][:, 0])
        assert (H[-1] / H[0]) ** 0.01 == pytest.approx(0.95, abs=2e-3)
        exact = ferero.run(TOY, fig3_start(0, k), con, steps=100, step_size=0.05, inner="exact")
        assert ends(exact, RAYS[k])[0] <= 0.29


def test_ferero_trajectory_by_cvxpy():
    con = ferero.constraints(RAYS[1])
    kw = {"steps": 8, "step_size": 0.05, "A": ferero.FIG4_CONE}
    one, two = (ferero.run(TOY, easy_start(0, 1), con, inner=inner, **kw) for inner in ("exact", "cvxpy"))
    np.testing.assert_allclose(one.f, two.f, atol=1e-6)


def test_fig3_shifted_lines():
    x0 = fig3_start(0)
    for k in (0, 1):
        con = ferero.constraints(RAYS[k], through=TOY.f(x0))
        run = ferero.run(TOY, x0, con, steps=100, step_size=0.2)
        assert np.abs(run.extra["H"]).max() < 0.02
        assert common.distance_to(FRONT, run.f[-1]) < 1e-3


def test_fig4():
    refs = np.array(RAYS)
    for k in range(4):
        quick = ferero.run(
            TOY, easy_start(0, k), ferero.constraints(RAYS[k]), steps=10, step_size=0.6, A=ferero.FIG4_CONE
        )
        angle, distance = ends(quick, RAYS[k])
        assert angle < 0.01
        assert distance < 1e-4
        run = pmtl.run(TOY, hard_start(0, k), WEIGHTS[k], refs, steps=200, step_size=0.5)
        late = run.f[run.extra["phase1_steps"] :]
        length = np.sum(np.linalg.norm(np.diff(late, axis=0), axis=1))
        if k in (1, 2):
            assert run.f[-1].min() > 0.9
            assert common.distance_to(FRONT, run.f[-1]) > 0.4
            assert length < 1e-2
        else:
            assert common.distance_to(FRONT, run.f[-1]) < 1e-2
            assert length > 0.1


def test_fig4_hard_starts_need_a_truncated_inner_loop():
    con = ferero.constraints(RAYS[1])
    kw = {"steps": 200, "step_size": 0.6, "A": ferero.FIG4_CONE, "c_h": 0.1}
    angle, distance = ends(ferero.run(TOY, hard_start(0, 1), con, max_inner=10, **kw), RAYS[1])
    assert angle <= 0.13
    assert distance <= 1e-4
    assert ends(ferero.run(TOY, hard_start(0, 1), con, inner="exact", **kw), RAYS[1])[1] > 0.4


def test_fig7_scale():
    theta = 0.3 * np.r_[np.ones(10), -np.ones(10)]
    paths = []
    for s in (1.0, 2.0):
        problem = VLMOP2(20, (1.0, s))
        start = problem.f(theta)
        goal = problem.f(np.zeros(20))
        np.testing.assert_allclose([start[0], start[1] / s], 0.9392, atol=1e-4)
        con = ferero.constraints(start - goal, through=goal)
        run = ferero.run(problem, theta, con, steps=100, step_size=0.05, inner="exact")
        paths.append(run.f / np.array([1.0, s]))
    np.testing.assert_allclose(paths[0][-1], paths[1][-1], atol=1e-5)
    assert np.abs(paths[0] - paths[1]).max() == pytest.approx(0.107, abs=0.005)


def test_fig8_single_loop():
    for k in range(4):
        con = ferero.constraints(RAYS[k])
        a = ferero.run_sa(TOY, fig3_start(0, k), con, steps=100, step_size=0.1, c_h=6.0, gamma=0.5)
        assert ends(a, RAYS[k])[0] < 1e-3
        d = ferero.run_sa(
            TOY, hard_start(0, k), con, steps=250, step_size=0.15, c_h=0.1, gamma=0.5, A=ferero.FIG4_CONE
        )
        angle, distance = ends(d, RAYS[k])
        assert angle < 2
        assert distance < 1e-3


def test_single_loop_first_step_uses_the_starting_multipliers():
    x0 = fig3_start(1)
    con = ferero.constraints(RAYS[0])
    run = ferero.run_sa(TOY, x0, con, steps=1, step_size=0.1, gamma=0.5)
    np.testing.assert_allclose(run.x[1], x0 - 0.1 * TOY.jacobian(x0).sum(axis=0), atol=1e-15)


def test_inequality_rows_are_reached():
    con = ferero.constraints(B_g=np.array([[1.0, 0.0]]), b_g=np.array([-0.3]))
    run = ferero.run(TOY, fig3_start(0), con, steps=200, step_size=0.1, inner="exact")
    G = run.extra["G"][:, 0]
    assert G[0] > 0.5
    assert G[-1] <= 1e-4
    assert np.all(np.diff(G[:50]) < 0)


# --- Tchebycheff and OMD ------------------------------------------------------------------------------------

OMD_TOY = VLMOP2(10)
OMD_BOX = (-1 + 1e-5, 1 - 1e-5)


def omd_start(seed, k):
    return np.random.default_rng([seed, k]).uniform(-1, 1, 10) / np.sqrt(10)


@pytest.mark.parametrize("k", [2, 6])
def test_omd_fig2(k):
    w = np.array([k / 9, 1 - k / 9])
    target = OMD_TOY.on_ray(1 / w)
    for weighted in (True, False):
        kw = {"steps": 1000, "step_size": 0.01, "weighted": weighted, "box": OMD_BOX}
        run = tchebycheff.tch(OMD_TOY, omd_start(0, k), w, **kw)
        assert np.abs(run.f[-1] - target).max() <= 0.01
    smooth = tchebycheff.stch(OMD_TOY, omd_start(0, k), w, steps=1000, step_size=0.02, mu=0.01, box=OMD_BOX)
    assert np.abs(smooth.f[-1] - target).max() <= 0.05
    run = omd.run(OMD_TOY, omd_start(0, k), w, steps=1000, step_size=0.02, lambda_step=1.0, box=OMD_BOX)
    for f in (run.extra["mean_f"], run.extra["ada_f"]):
        assert np.abs(f - target).max() <= 0.05
        assert common.angle_to(f, 1 / w) <= 2
    assert sum(run.extra["gamma"].values()) == pytest.approx(1000, abs=1e-9)
    assert 250 < len(run.extra["gamma"]) < 900
    np.testing.assert_allclose(run.extra["mean_x"], run.x[:1000].mean(axis=0), atol=1e-15)
    # two objectives: the projection is a clip
    lam = run.extra["lambda"]
    F = run.f[:-1]
    np.testing.assert_allclose(
        lam[1:, 0], np.clip(lam[:-1, 0] + (w[0] * F[:, 0] - w[1] * F[:, 1]) / 2, 0, 1), atol=1e-12
    )


@pytest.mark.parametrize("variant", ["pgd", "eg"])
def test_omd_without_lambda_steps_is_scalarization(variant):
    w = np.array([0.3, 0.7])
    a = omd.run(OMD_TOY, omd_start(0, 0), w, steps=50, step_size=0.02, lambda_step=0.0, variant=variant)
    b = ls.run(OMD_TOY, omd_start(0, 0), w, steps=50, step_size=0.01)
    np.testing.assert_allclose(a.x, b.x, atol=1e-12)


def test_exponentiated_gradient_depends_on_the_sum_only():
    w = np.array([0.3, 0.7])
    run = omd.run(OMD_TOY, omd_start(0, 0), w, steps=50, step_size=0.02, lambda_step=1.3, variant="eg")
    z = 1.3 * np.cumsum(w * run.f[:-1], axis=0)
    expected = np.exp(z - z.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        run.extra["lambda"][1:], expected / expected.sum(axis=1, keepdims=True), atol=1e-12
    )


def test_adaptive_mean_of_the_illustration():
    points = {1: (4.0, 4.0), 2: (5.0, 5.0), 3: (3.0, 3.0), 4: (2.0, 6.0)}
    history = []
    ada = omd.AdaptiveMean()
    for key, point in points.items():
        ada.add(np.array(point), np.eye(4)[key - 1])
        history.append(dict(ada.gamma))
    assert history == [{1: 1}, {1: 2}, {3: 3}, {3: 3, 4: 1}]
    np.testing.assert_allclose(ada.output(), [0, 0, 0.75, 0.25])


@pytest.mark.parametrize(
    ("order", "expected"),
    [("pqr", {"p": 1.5, "q": 1.5}), ("rpq", {"p": 2, "q": 1}), ("rqp", {"p": 1, "q": 2})],
)
def test_adaptive_mean_depends_on_the_order(order, expected):
    points = {"p": (0.0, 1.0), "q": (1.0, 0.0), "r": (2.0, 2.0)}
    ada = omd.AdaptiveMean()
    for name in order:
        ada.add(np.array(points[name]), key=name)
    assert ada.gamma == expected


def test_adaptive_mean_stores_the_pareto_set():
    rng = np.random.default_rng(8)
    for trial in range(40):
        table = rng.integers(0, 6, size=(60, 3)).astype(float) if trial % 2 else rng.normal(size=(60, 2))
        ada = omd.AdaptiveMean()
        for row in table:
            ada.add(row)
        assert sorted(ada.gamma) == omd.pareto_set(table)
        assert sum(ada.gamma.values()) == pytest.approx(60, abs=1e-9)
        assert min(ada.gamma.values()) >= 1
        assert np.all(sum(g * table[k - 1] for k, g in ada.gamma.items()) <= table.sum(axis=0) + 1e-9)


def test_ties():
    for ties, expected in (("paper", {1: 1, 2: 1}), ("weak", {1: 2})):
        ada = omd.AdaptiveMean(ties)
        for _ in range(2):
            ada.add(np.array([1.0, 2.0]))
        assert ada.gamma == expected


def test_three_objectives():
    problem = DTLZ2(12)
    w = np.array([0.5, 0.3, 0.2])
    x0 = np.r_[0.4, 0.6, np.random.default_rng(9).uniform(0.2, 0.8, 10)]
    ray = common.ray_of(w)
    exact = ferero.run(problem, x0, ferero.constraints(ray), steps=200, step_size=0.1, inner="exact")
    assert common.angle_to(exact.f[-1], ray) < 0.1
    assert np.linalg.norm(exact.f[-1]) == pytest.approx(1.0, abs=1e-3)
    by_epo = epo.run(problem, x0, w, steps=100, step_size=0.02)
    assert common.angle_to(by_epo.f[-1], ray) < 2
    down = mgda.run(problem, x0, steps=100, step_size=0.1, box=(0.0, 1.0))
    assert np.all(np.diff(down.f, axis=0) < 1e-6)


def test_min_norm_by_a_general_optimizer():
    J = np.random.default_rng(10).normal(size=(3, 4)) + 0.4
    answer = minimize(
        lambda x: x @ J @ J.T @ x,
        np.full(3, 1 / 3),
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(common.min_norm(J), answer.x, atol=1e-5)
