"""Every algorithm against an independent loop (NumPy/SciPy, one run at a time) on the same starts, step by
step.

The loops in tests/reference were written from the specification without sight of the package. A perturbation
of 1e-13 of the start grows to at most about 2e-11 over these paths, so 1e-8 leaves room for rounding and
nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobench.algorithms.epo import EPO
from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_sa import FEREROSA
from mobench.algorithms.ls import LS
from mobench.algorithms.mgda import MGDA
from mobench.algorithms.omd_tch import OMDTCH
from mobench.algorithms.pmtl import PMTL
from mobench.algorithms.stch import STCH
from mobench.algorithms.tch import TCH
from mobench.core import Runs
from mobench.core.preferences import ray
from mobench.problems import DTLZ2, VLMOP2
from tests.helpers import runs_at, simulate
from tests.reference import epo, ferero, ls, mgda, omd, pmtl, problems, tchebycheff
from tests.reference.common import ray_at

TOY = VLMOP2(n=20, start={"kind": "alternating", "scale": 0.3, "noise": 0.1, "per_preference": True})
EASY = VLMOP2(n=20, start={"kind": "uniform", "low": -0.3, "high": 0.3, "per_preference": True})
HARD = VLMOP2(n=20, start={"kind": "alternating_uniform", "low": 0.15, "high": 0.5, "per_preference": True})
OMD = VLMOP2(n=10, clip=0.99999, start={"kind": "uniform", "low": -0.3, "high": 0.3, "per_preference": True})
FAR = problems.VLMOP2(20)
REFERENCE = problems.VLMOP2(10)
BOX = (-0.99999, 0.99999)
RAYS = runs_at(81.0, 57.0, 33.0, 9.0, seeds=(0, 1))
A4 = [[1.0, 2.0], [2.0, 1.0]]
A4_UNIT = np.array(A4) / np.sqrt(5.0)
FIVE = np.stack([ray_at(a) for a in np.linspace(0, 90, 5)])
FOUR = np.stack([ray_at(a) for a in (81.0, 57.0, 33.0, 9.0)])


def unit(w: np.ndarray) -> np.ndarray:
    return w / np.linalg.norm(w)


def line(w: np.ndarray, through: np.ndarray | None = None) -> Any:
    return ferero.constraints(ray(torch.from_numpy(w)).numpy(), through)


CASES: dict[str, tuple[Any, Any, int, Callable[..., Any]]] = {
    "ls": (TOY, LS(step_size=0.1, normalize="norm"), 150, lambda x, w, **k: ls.run(FAR, x, unit(w), **k)),
    "tch": (OMD, TCH(step_size=0.01), 300, lambda x, w, **k: tchebycheff.tch(REFERENCE, x, w, box=BOX, **k)),
    "tch-unweighted": (
        OMD, TCH(step_size=0.01, gradient="unweighted"), 300,
        lambda x, w, **k: tchebycheff.tch(REFERENCE, x, w, weighted=False, box=BOX, **k),
    ),
    "stch": (
        OMD, STCH(step_size=0.02, mu=0.01), 300,
        lambda x, w, **k: tchebycheff.stch(REFERENCE, x, w, box=BOX, **k),
    ),
    "mgda": (TOY, MGDA(step_size=0.2), 150, lambda x, w, **k: mgda.run(FAR, x, **k)),
    "pmtl-fig3": (
        TOY, PMTL(step_size=0.2, references=5), 150, lambda x, w, **k: pmtl.run(FAR, x, w, FIVE, **k),
    ),
    "pmtl-hard": (HARD, PMTL(step_size=0.5), 200, lambda x, w, **k: pmtl.run(FAR, x, w, FOUR, **k)),
    "epo": (TOY, EPO(step_size=0.1), 100, lambda x, w, **k: epo.run(FAR, x, unit(w), solver="linprog", **k)),
    "epo-hard": (
        HARD, EPO(step_size=0.2), 80, lambda x, w, **k: epo.run(FAR, x, unit(w), solver="interval", **k),
    ),
    "ferero-exact": (
        TOY, FERERO(step_size=0.05), 100, lambda x, w, **k: ferero.run(FAR, x, line(w), inner="exact", **k),
    ),
    "ferero-exact-simplex": (
        EASY, FERERO(step_size=0.05, cone=A4, domain="simplex"), 60,
        lambda x, w, **k: ferero.run(FAR, x, line(w), inner="exact", A=A4_UNIT, domain="simplex", **k),
    ),
    "ferero-pgd": (
        TOY, FERERO(step_size=0.05, subproblem="pgd"), 40,
        lambda x, w, **k: ferero.run(FAR, x, line(w), inner="pgd", **k),
    ),
    "ferero-pgd-truncated": (
        HARD, FERERO(step_size=0.6, subproblem="pgd", inner_steps=10, inner_tolerance=0.0, cone=A4, c_h=0.1),
        200, lambda x, w, **k: ferero.run(FAR, x, line(w), A=A4_UNIT, c_h=0.1, max_inner=10, tol=0.0, **k),
    ),
    "ferero-pgd-cold": (
        TOY, FERERO(step_size=0.05, subproblem="pgd", inner_start="cold"), 20,
        lambda x, w, **k: ferero.run(FAR, x, line(w), warm=False, **k),
    ),
    "ferero-shifted": (
        TOY, FERERO(step_size=0.2, line="shifted"), 100,
        lambda x, w, **k: ferero.run(FAR, x, line(w, FAR.f(x)), inner="exact", **k),
    ),
    "ferero-threshold": (
        TOY,
        FERERO(step_size=0.1, line="none", upper=(None, 0.5)),
        100,
        lambda x, w, **k: ferero.run(
            FAR, x, ferero.constraints(B_g=[[0.0, 1.0]], b_g=[-0.5]), inner="exact", **k
        ),
    ),
    "ferero-sa": (
        HARD, FEREROSA(step_size=0.15, gamma=0.5, c_h=0.1, cone=A4), 250,
        lambda x, w, **k: ferero.run_sa(FAR, x, line(w), gamma=0.5, c_h=0.1, A=A4_UNIT, **k),
    ),
    "omd-pgd": (
        OMD, OMDTCH(step_size=0.02), 300,
        lambda x, w, **k: omd.run(REFERENCE, x, w, lambda_step=1.0, box=BOX, **k),
    ),
    "omd-eg": (
        OMD, OMDTCH(step_size=0.02, mirror="eg"), 300,
        lambda x, w, **k: omd.run(REFERENCE, x, w, lambda_step=1.0, variant="eg", box=BOX, **k),
    ),
}  # fmt: skip


def test_the_loops_know_nothing_of_the_package() -> None:
    for path in (Path(__file__).parent / "reference").glob("*.py"):
        autograd = path.name in ("images.py", "bilevel_torch.py")  # networks need it
        forbidden = ("mobench",) if autograd else ("mobench", "torch")
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] in forbidden for name in names), path


@pytest.mark.parametrize("name", CASES)
def test_path_equals_independent_loop(name: str) -> None:
    problem, algorithm, steps, reference = CASES[name]
    path = simulate(problem, algorithm, RAYS, steps)
    for r in range(len(RAYS)):
        expected = reference(
            path.x[r, 0], RAYS.weights[r].numpy(), steps=steps, step_size=algorithm.step_size
        )
        np.testing.assert_allclose(path.f[r], expected.f, rtol=0, atol=1e-8, err_msg=f"run {r}")


@pytest.mark.parametrize("mirror", ["pgd", "eg"])
def test_averaged_outputs_equal_independent_loop(mirror: str) -> None:
    path = simulate(OMD, OMDTCH(step_size=0.02, mirror=mirror), RAYS, 400, ("mean", "adaptive"))
    for r in range(len(RAYS)):
        w = RAYS.weights[r].numpy()
        expected = omd.run(
            REFERENCE, path.x[r, 0], w, steps=400, step_size=0.02, lambda_step=1.0, variant=mirror, box=BOX
        )
        np.testing.assert_allclose(path.answers["mean"][r], expected.extra["mean_x"], rtol=0, atol=1e-10)
        np.testing.assert_allclose(path.answers["adaptive"][r], expected.extra["ada_x"], rtol=0, atol=1e-8)


def test_three_objectives_equal_independent_loops() -> None:
    problem = DTLZ2(n=6, start={"kind": "uniform", "low": 0.2, "high": 0.8, "per_preference": True})
    reference = problems.DTLZ2(6)
    w = torch.tensor([[0.2, 0.3, 0.5], [0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)
    runs = Runs.product(w, [0, 1])
    box = (0.0, 1.0)
    refs = ray(w).numpy()
    pairs: list[tuple[Any, Callable[..., Any]]] = [
        (MGDA(step_size=0.05), lambda x, w, **k: mgda.run(reference, x, box=box, **k)),
        (PMTL(step_size=0.05), lambda x, w, **k: pmtl.run(reference, x, w, refs, box=box, **k)),
        (EPO(step_size=0.005), lambda x, w, **k: epo.run(reference, x, unit(w), box=box, **k)),
        (
            FERERO(step_size=0.05),
            lambda x, w, **k: ferero.run(reference, x, line(w), inner="exact", box=box, **k),
        ),
        (OMDTCH(step_size=0.05), lambda x, w, **k: omd.run(reference, x, w, lambda_step=1.0, box=box, **k)),
    ]
    for algorithm, loop in pairs:
        path = simulate(problem, algorithm, runs, 60)
        for r in range(len(runs)):
            expected = loop(path.x[r, 0], runs.weights[r].numpy(), steps=60, step_size=algorithm.step_size)
            np.testing.assert_allclose(
                path.f[r], expected.f, rtol=0, atol=1e-7, err_msg=f"{algorithm} run {r}"
            )
