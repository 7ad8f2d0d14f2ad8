"""Methods of the field, one direction at a time, against somebody else's code: TorchJD where it is exact,
SciPy and duality where it is not; and certificates at all scales and ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, nnls
from torch import Tensor

from mobench.algorithms import pcgrad
from mobench.algorithms.aligned_mtl import AlignedMTL
from mobench.algorithms.cagrad import CAGrad
from mobench.algorithms.config_mtl import ConFIG
from mobench.algorithms.dualproj import DualProj
from mobench.algorithms.dwa import DWA
from mobench.algorithms.fairgrad import FairGrad
from mobench.algorithms.famo import FAMO
from mobench.algorithms.graddrop import GradDrop
from mobench.algorithms.hv_gradient import ascent, facets, fronts
from mobench.algorithms.imtl_g import IMTLG
from mobench.algorithms.nash_mtl import NashMTL
from mobench.algorithms.pbi import PBI
from mobench.algorithms.pcgrad import PCGrad
from mobench.algorithms.pmgda import PMGDA, returning
from mobench.algorithms.sdmgrad import SDMGrad
from mobench.algorithms.stch_set import STCHSet
from mobench.algorithms.upgrad import UPGrad
from mobench.core import Free, Point, Spec, Weighting
from mobench.core.algorithm import Context
from mobench.core.point import TablePoint
from mobench.core.preferences import ray, spread
from mobench.core.random import counter_uniform
from mobench.metrics.hypervolume import hypervolume
from mobench.solvers import TOLERANCE, min_norm, qp
from mobench.solvers.alike import alike
from mobench.solvers.dual_cone import dual_cone
from mobench.solvers.spectrum import spectrum
from tests.solvers.test_subproblem_qp import jacobian

torchjd = pytest.importorskip("torchjd")
from torchjd import aggregation, scalarization  # noqa: E402

DTYPE = torch.float64
SIZES = [2, 3, 10]
RANKS = [
    "random", "low rank", "duplicated", "zero row", "all zero", "opposed", "scaled rows", "nearly opposed"
]  # fmt: skip
EXACT = {
    "upgrad": UPGrad(), "upgrad by preference": UPGrad(mixture="preference"), "dualproj": DualProj(),
    "cagrad": CAGrad(), "nash_mtl": NashMTL(), "fairgrad": FairGrad(), "fairgrad, half": FairGrad(alpha=0.5),
    "imtl_g": IMTLG(), "config": ConFIG(), "aligned_mtl": AlignedMTL(), "sdmgrad": SDMGrad(),
}  # fmt: skip


def context(M: int, R: int) -> Context:
    """R runs with preferences and seeds of their own."""
    prefs = spread(R, M)
    theta = torch.zeros(R, 1, dtype=DTYPE)
    spec = Spec(R=R, M=M, N=0, P=1, X=Free(), provides=frozenset({"jacobian"}))
    return Context(spec, prefs, prefs, theta, lambda x: x, 10, None, torch.arange(R))


def directions(method: Weighting, J: Tensor, F: Tensor | None = None) -> tuple[Tensor, Any]:
    """J'w of every run, and what the method says about its subproblem."""
    R, M = J.shape[:2]
    F = torch.ones(R, M, dtype=DTYPE) if F is None else F
    w, _, info = method.weights(F, J @ J.mT, method.init(context(M, R)), 0)
    return (w.unsqueeze(1) @ J).squeeze(1), info


class Nonnegative(torchjd._linalg.DualConeProjector):  # type: ignore[name-defined,misc]
    """TorchJD's projections by SciPy's non-negative least squares, on the rows themselves."""

    def __init__(self, J: Tensor) -> None:
        self.J = J.numpy()

    def __call__(self, U: Tensor, G: Tensor) -> Tensor:
        rows = np.atleast_2d(U.numpy())
        projected = np.stack([u + nnls(self.J.T, -self.J.T @ u)[0] for u in rows])
        return torch.from_numpy(projected).reshape(U.shape)


def theirs(name: str, J: Tensor, prefs: Tensor) -> Tensor:
    """TorchJD's direction of one run."""
    M = len(J)
    if name.startswith(("upgrad", "dualproj")):
        u = prefs if "preference" in name else None
        of = aggregation.UPGradWeighting if name.startswith("upgrad") else aggregation.DualProjWeighting
        weights: Tensor = of(u, Nonnegative(J))(J @ J.T)
        return weights @ J
    made = {
        "imtl_g": lambda: aggregation.IMTLG(),
        "config": lambda: aggregation.ConFIG(),
        "aligned_mtl": lambda: aggregation.AlignedMTL(),
        "aligned_mtl, median": lambda: aggregation.AlignedMTL(scale_mode="median"),
        "aligned_mtl, rmse": lambda: aggregation.AlignedMTL(torch.full((M,), 1.0 / M).to(DTYPE), "rmse"),
    }
    aggregated: Tensor = made[name]()(J)
    return aggregated


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize(
    "name",
    ["upgrad", "upgrad by preference", "dualproj", "imtl_g", "config", "aligned_mtl", "aligned_mtl, median",
     "aligned_mtl, rmse"],
)  # fmt: skip
def test_directions_are_those_of_torchjd(name: str, M: int) -> None:
    """Wherever TorchJD is exact: full rank; projections and aligned gradients of any rank."""
    more = {f"aligned_mtl, {scale}": AlignedMTL(scale=scale) for scale in ("median", "rmse")}
    method = (EXACT | more)[name]
    families = (
        ["random", "scaled rows"] if name in ("imtl_g", "config") else ["random", "low rank", "opposed"]
    )
    for family in families:
        J = jacobian(family, 6, M)
        d, info = directions(method, J)
        assert not info.fail.any()
        prefs = spread(6, M)
        other = torch.stack([theirs(name, rows, prefs[r]) for r, rows in enumerate(J)])
        size = torch.linalg.vector_norm(J, dim=(1, 2)).unsqueeze(1)
        assert ((d - other).abs() <= 1e-6 * torch.maximum(size, other.abs())).all(), family


@pytest.mark.parametrize("M", SIZES)
def test_cagrad_has_no_duality_gap(M: int) -> None:
    """min_m <g_m, d> of a direction in the ball is the value of the dual at the weights that made it.
    TorchJD's direction, by an interior-point method, is never better, and as near as its tolerance of 1e-8
    says.
    """
    for family in ("random", "low rank", "opposed", "acute", "scaled rows"):
        J = jacobian(family, 12, M)
        weights, _, info = CAGrad(c=0.4).weights(torch.ones(12, M).to(DTYPE), J @ J.mT, {}, 0)
        assert not info.fail.any()
        d = (weights.unsqueeze(1) @ J).squeeze(1)
        mean = J.mean(1)
        radius = 0.4 * torch.linalg.vector_norm(mean, dim=1)
        off = d - mean
        # every point J'w of the hull bounds the value: that of the method, or the shortest one if it is 0
        w = weights - 1.0 / M
        assert (w >= -1e-12 * w.abs().amax(1, keepdim=True)).all()
        bounds = []
        for some in (w / w.sum(1, keepdim=True), min_norm(J @ J.mT).x):
            hull = (some.unsqueeze(1) @ J).squeeze(1)
            bounds.append((hull * mean).sum(1) + radius * torch.linalg.vector_norm(hull, dim=1))
        bound = torch.minimum(*bounds)
        value = (J @ d.unsqueeze(-1)).squeeze(-1).amin(1)
        size = torch.linalg.vector_norm(J, dim=2).amax(1) * torch.linalg.vector_norm(mean, dim=1)
        assert (torch.linalg.vector_norm(off, dim=1) <= radius * (1 + 1e-8)).all()
        assert ((bound - value).abs() <= 1e-7 * size).all(), family
    d, _ = directions(CAGrad(c=0.4), J[:3])
    for r in range(3):
        other = aggregation.CAGrad(c=0.4, norm_eps=0.0)(J[r])
        assert (J[r] @ other).min() <= (J[r] @ d[r]).min() + 1e-6 * size[r]
        assert torch.linalg.vector_norm(other - d[r]) <= 1e-3 * torch.linalg.vector_norm(d[r])


@pytest.mark.parametrize("M", SIZES)
def test_fair_weights_solve_their_equation(M: int) -> None:
    """<g_m, d> = w_m^(-1/alpha) on the gradients themselves; FairGrad's own code (SciPy, in TorchJD) finds
    the same where it converges. Of length sqrt(M), the bargain is the same as alpha = 1.
    """
    J = jacobian("acute", 6, M)
    G = J @ J.mT
    for alpha in (0.5, 1.0, 2.0):
        w = FairGrad(alpha=alpha).weights(torch.ones(6, M).to(DTYPE), G, {}, 0)[0]
        gains = (J @ (w.unsqueeze(1) @ J).mT).squeeze(-1)
        torch.testing.assert_close(gains, w ** (-1.0 / alpha), rtol=1e-9, atol=0)
        other = aggregation.FairGradWeighting(alpha=alpha, max_iters=2000)(G[0])
        torch.testing.assert_close(w[0], other, rtol=1e-4, atol=0)
    d, _ = directions(NashMTL(max_norm=None), jacobian("random", 6, M))
    torch.testing.assert_close(d.square().sum(1), torch.full((6,), float(M)).to(DTYPE), rtol=1e-9, atol=0)
    short, _ = directions(NashMTL(), jacobian("random", 6, M))
    torch.testing.assert_close(short, d / M**0.5)


@pytest.mark.parametrize("name", EXACT)
def test_certificates_of_every_rank_and_scale(name: str) -> None:
    """No failed solve, a residual of 1e-9 at most, and directions that scale as they must."""
    powers = {"nash_mtl": 0.0, "fairgrad": -1.0 / 3.0, "fairgrad, half": 1.0 / 3.0}
    for M in (2, 5, 20):
        for family in RANKS:
            J = jacobian(family, 8, M)
            base: Tensor | None = None
            for scale in (1.0, 1e-8, 1e8):
                d, info = directions(EXACT[name], scale * J)
                assert not info.fail.any(), (M, family, scale)
                assert (info.kkt <= TOLERANCE).all()
                assert d.isfinite().all()
                d = d / scale ** powers.get(name, 1.0)
                if base is None:
                    base = d
                if family not in ("nearly opposed", "opposed", "low rank", "scaled rows"):  # ill-conditioned
                    torch.testing.assert_close(d, base, rtol=1e-5, atol=1e-6 * float(base.abs().max()))


@pytest.mark.parametrize("M", [2, 3, 10])
@pytest.mark.parametrize("R", [6, 60])
def test_equal_projections_are_those_of_the_pseudoinverse(M: int, R: int) -> None:
    for family in RANKS:
        J = jacobian(family, R, M)
        G = (J @ J.mT).numpy()
        G[1, 0, 0] = np.nan
        one = alike(G)
        assert np.isnan(one.b[1]).all()
        assert np.isnan(one.residual[1])
        finite = np.arange(R) != 1
        assert one.residual[finite].max() <= TOLERANCE
        length = J.norm(dim=2).numpy()
        np.testing.assert_allclose(one.length[finite], length[finite], rtol=1e-12)
        unit = np.where(length > 0, 1 / np.where(length > 0, length, 1.0), 0.0)[:, :, None] * J.numpy()
        C = unit @ unit.swapaxes(1, 2)
        np.testing.assert_allclose(one.cosines[finite], C[finite], rtol=0, atol=1e-14)
        if family != "nearly opposed":  # rounding decides there: C has an eigenvalue of about 1e-11
            b = (np.linalg.pinv(C, rcond=1e-12, hermitian=True) * (length > 0)[:, None, :]).sum(2)
            np.testing.assert_allclose(one.b[finite], b[finite], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("R", "M"), [(1, 3), (6, 5), (40, 10), (60, 9)])
def test_eigenvectors_are_certified(R: int, M: int) -> None:
    """At any rank and scale the vectors restore the matrix, and a NaN stays in its own run."""
    for family in RANKS:
        for scale in (1e-8, 1.0, 1e8):
            J = scale * jacobian(family, R, M)
            G = (J @ J.mT).numpy()
            parts = spectrum(G)
            size = np.maximum(parts.values[:, -1:, None], 1e-300)
            again = (parts.vectors * parts.values[:, None, :]) @ parts.vectors.swapaxes(1, 2)
            np.testing.assert_allclose(again / size, G / size, rtol=0, atol=1e-13)
            assert (np.diff(parts.values, axis=1) >= 0).all()
            assert parts.residual.max() <= 1e-13
    G[0, 1, 0] = np.nan
    poisoned = spectrum(G)
    assert np.isnan(poisoned.values[0]).all()
    assert np.isnan(poisoned.residual[0])
    np.testing.assert_array_equal(poisoned.values[1:], parts.values[1:])


def test_pcgrad_is_torchjds_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    J = jacobian("random", 4, 6)
    J[3, 1] = 0.0
    order = pcgrad.orders(torch.arange(4), 0, 6)
    w = PCGrad().weights(torch.ones(4, 6).to(DTYPE), J @ J.mT, PCGrad().init(context(6, 4)), 0)[0]
    for r in range(4):
        left = iter(order[r])
        monkeypatch.setattr(torch, "randperm", lambda n, left=left: next(left))
        torch.testing.assert_close(w[r], aggregation.PCGradWeighting()(J[r] @ J[r].T))
    assert not torch.equal(order, pcgrad.orders(torch.arange(4), 1, 6))


def table(J: Tensor) -> Point:
    R, M, P = J.shape
    return TablePoint(torch.zeros(R, P, dtype=DTYPE), Free(), M, {}, torch.ones(R, M, dtype=DTYPE), J)


def test_graddrop_is_torchjds_with_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    J = jacobian("random", 3, 4)
    for leak in (0.0, 0.3):
        method = GradDrop(leak=leak)
        d = method.step((table(J),), method.init(context(4, 3)), 0, 0.1)[0]
        draws = counter_uniform(torch.arange(3), "graddrop", 0, J.shape[2])
        for r in range(3):
            monkeypatch.setattr(torch, "rand", lambda *_, u=draws[r], **__: u)
            theirs = aggregation.GradDrop(leak=torch.full((4,), leak, dtype=DTYPE))(J[r])
            torch.testing.assert_close(d[r], -theirs)
    J[:, :, 0] = 0.0
    assert (method.step((table(J),), method.init(context(4, 3)), 0, 0.1)[0][:, 0] == 0).all()


def test_sdmgrads_published_loop_is_torchjds() -> None:
    """Three steps from the last weights; and enough of them end at the exact ones."""
    J = jacobian("random", 3, 4)
    method = SDMGrad(subproblem="published")
    state = method.init(context(4, 3))
    other = [aggregation.SDMGradWeighting() for _ in range(3)]
    for t in range(3):
        G = J @ J.mT + t
        w, state, _ = method.weights(torch.ones(3, 4).to(DTYPE), G, state, t)
        for r in range(3):
            torch.testing.assert_close(w[r], other[r](G[r]))
    long = SDMGrad(subproblem="published", inner_steps=3000, inner_step=0.1)
    F = torch.ones(3, 4).to(DTYPE)
    slow = long.weights(F, J @ J.mT, long.init(context(4, 3)), 0)[0]
    exact = SDMGrad().weights(F, J @ J.mT, SDMGrad().init(context(4, 3)), 0)[0]
    torch.testing.assert_close(slow, exact, rtol=0, atol=1e-8)


def by_autograd(scalar: Any, F: Tensor) -> Tensor:
    """Weights of a scalarization."""
    f = F.clone().requires_grad_(True)
    (g,) = torch.autograd.grad(scalar(f), f)
    return g


def test_scalarizations_are_torchjds() -> None:
    """PBI, DWA and FAMO: weights are the gradient of the value that TorchJD computes."""
    M = 4
    R = 3
    ctx = context(M, R)
    g = torch.Generator().manual_seed(0)
    losses = [torch.rand(R, M, generator=g, dtype=DTYPE) + 0.1 for _ in range(5)]
    pbi = PBI(theta=3.0, ideal=0.05)
    state = pbi.init(ctx)
    z = torch.full((M,), 0.05, dtype=DTYPE)
    for r in range(R):
        other = by_autograd(scalarization.PBI(3.0, ray(ctx.prefs)[r], z), losses[0][r])
        torch.testing.assert_close(pbi.weights(losses[0], None, state, 0)[0][r], other)
    on_ray = 2.0 * ray(ctx.prefs) + 0.05
    torch.testing.assert_close(pbi.weights(on_ray, None, state, 0)[0], ray(ctx.prefs))

    dwa = DWA(epoch=2)
    state = dwa.init(ctx)
    judges = [scalarization.DWA() for _ in range(R)]
    for t in range(10):
        F = losses[t % 5] * (1.0 + t)
        w, state, _ = dwa.weights(F, None, state, t)
        for r in range(R):
            torch.testing.assert_close(w[r] * M, by_autograd(judges[r], F[r]))
            if t % 2 == 1:
                judges[r].step()

    famo = FAMO(weight_step=0.3, decay=0.01)
    state = famo.init(ctx)
    logits = torch.zeros(M, dtype=DTYPE)
    for t, F in enumerate(losses):
        w, state, _ = famo.weights(F, None, state, t)
        if t:
            delta = (losses[t - 1][0] + 1e-8).log() - (F[0] + 1e-8).log()
            slope = by_autograd(lambda x, delta=delta: torch.softmax(x, 0) @ delta, logits)
            logits = logits - 0.3 * (slope + 0.01 * logits)
        judge = scalarization.FAMO((M,))
        judge._w.data = logits.clone()
        torch.testing.assert_close(w[0], by_autograd(judge, F[0]), rtol=1e-6, atol=0)


@pytest.mark.parametrize("M", [2, 5])
def test_pmgdas_correction_is_scipys(M: int) -> None:
    """The linear program over M + 1 unit gradients, from its definition."""
    for family in ("random", "low rank", "opposed"):
        J = jacobian(family, 4, M)
        slope = torch.nn.functional.normalize(jacobian("random", 4, M)[:, 0, :M], dim=1)
        correction, _ = returning(J @ J.mT, slope, 0.1)
        assert not correction.failed.any()
        for r in range(4):
            rows = torch.cat([J[r], (slope[r] @ J[r])[None]]).numpy()
            length = np.linalg.norm(rows, axis=1)
            A = rows @ (rows / length[:, None]).T
            other = linprog(
                [0.0] * (M + 1) + [-1.0],
                A_ub=np.vstack([np.c_[-A[:M], np.ones(M)], np.append(-A[M], 0.0)]),
                b_ub=[0.0] * M + [-0.1 * length[M]],
                A_eq=[[1.0] * (M + 1) + [0.0]],
                b_eq=[1.0],
                bounds=[(0, None)] * (M + 1) + [(None, None)],
            )
            x = correction.x[r].numpy()
            assert (A[:M] @ x).min() == pytest.approx(-other.fun, abs=1e-8 * length.max())
            assert A[M] @ x >= 0.1 * length[M] - 1e-8


def test_pmgda_descends_on_the_ray_and_returns_to_it() -> None:
    J = jacobian("random", 2, 3)
    method = PMGDA()
    state = method.init(context(3, 2))
    on = method.weights(2.0 * state["v"], J @ J.mT, state, 0)[0]
    torch.testing.assert_close(on, min_norm(J @ J.mT).x)
    F = 2.0 * state["v"] + torch.tensor([0.5, 0.0, 0.0], dtype=DTYPE)
    w, _, info = method.weights(F, J @ J.mT, state, 0)
    assert not info.fail.any()
    across = F - (F * state["v"]).sum(1, keepdim=True) * state["v"]
    rise = torch.einsum("rm,rmp,rp->r", across, J, (w.unsqueeze(1) @ J).squeeze(1))
    assert (rise > 0).all()  # d = -J'w shortens h


@pytest.mark.parametrize("M", [2, 3])
def test_hypervolume_weights_are_derivatives(M: int) -> None:
    """By differences of the hypervolume; dominated points climb their own front; far ones come back."""
    rng = np.random.default_rng(0)
    F = rng.random((5, M))
    F /= F.sum(1, keepdims=True)
    ref = np.full(M, 1.1)
    weights = facets(F, ref)
    e = 1e-6
    for k in range(5):
        for m in range(M):
            up = F.copy()
            up[k, m] += e
            down = F.copy()
            down[k, m] -= e
            slope = (hypervolume(down, ref) - hypervolume(up, ref)) / (2 * e)
            assert weights[k, m] == pytest.approx(slope, abs=1e-7)
    behind = np.concatenate([F, F[:1] + 0.05, F[:1], np.full((1, M), 0.2), np.eye(M)[:1] * 2.0])
    w = ascent(behind, ref)
    assert [len(front) for front in fronts(behind[:7])] == [5, 1, 1] if M == 2 else True
    np.testing.assert_allclose(w[-1], np.eye(M)[0])
    np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1.0)


def test_set_scalarization_is_its_own_derivative() -> None:
    """Two seeds of three points: the value of each set by autograd."""
    ctx = context(4, 6)
    F = torch.rand(6, 4, generator=torch.Generator().manual_seed(0), dtype=DTYPE)
    seeds = torch.tensor([5, 3, 5, 3, 5, 3])
    method = STCHSet(mu=0.2, nu=0.3, ideal=0.1)
    w = method.weights(F, None, {**method.init(ctx), "seed": seeds}, 0)[0]

    def value(f: Tensor) -> Tensor:
        best = -0.3 * torch.logsumexp(-f / 0.3, 0)
        return 0.2 * torch.logsumexp((best - 0.1) / 4 / 0.2, 0)

    for seed in (3, 5):
        torch.testing.assert_close(w[seeds == seed], by_autograd(value, F[seeds == seed]))


def test_projections_by_active_sets_and_by_pivoting_are_the_same() -> None:
    for family in ("random", "low rank", "opposed", "zero row"):
        J = jacobian(family, 6, 8)
        G = J @ J.mT
        u = torch.eye(8, dtype=DTYPE).unsqueeze(0)
        one = dual_cone(G, u)
        z = qp(G.repeat_interleave(8, 0), -G.reshape(48, 8)).x.view(6, 8, 8)
        assert float(one.residual.max()) <= TOLERANCE
        torch.testing.assert_close(
            one.x.view(6, 8, 8) @ J, (u + z) @ J, rtol=0, atol=1e-7 * float(J.abs().max())
        )
