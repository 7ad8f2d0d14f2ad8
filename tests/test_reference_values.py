"""Numbers that an earlier, independent prototype of this core measured;
ours must agree within what the starts vary.
"""

from __future__ import annotations

import torch

from mobench.algorithms.epo import EPO
from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_sa import FEREROSA
from mobench.algorithms.omd_tch import OMDTCH
from mobench.core import Runs
from mobench.core.output import conversion_weights
from mobench.core.preferences import angle_deg
from mobench.metrics import front_distance
from mobench.problems import VLMOP2
from tests.helpers import Path, runs_at, simulate

START = {"kind": "alternating", "scale": 0.3, "noise": 0.1, "per_preference": True}
TOY = VLMOP2(n=20, start=START)
RUNS = runs_at(81.0, 57.0, 33.0, 9.0, seeds=(0, 1, 2, 3, 4))


def ends(path: Path) -> tuple[float, float]:
    """Largest angle to the ray and largest distance to the front."""
    F = torch.from_numpy(path.f[:, -1])
    front = TOY.front(20001)
    assert front is not None
    return float(angle_deg(F, RUNS.weights).max()), float(front_distance(F, front).max())


def test_epo_on_the_toy_problem() -> None:
    # prototype: 0.55 degrees and 5e-5; specification: 0.36..0.47 and 1e-4
    angle, distance = ends(simulate(TOY, EPO(step_size=0.1), RUNS, 100))
    assert angle < 0.6
    assert distance < 2e-4


def test_ferero_exact_on_the_toy_problem() -> None:
    # prototype: 0.282 degrees (what is left of H after 100 steps of 0.05) and 5.4e-5
    angle, distance = ends(simulate(TOY, FERERO(step_size=0.05), RUNS, 100))
    assert 0.2 < angle < 0.3
    assert distance < 1e-4


def test_single_loop_on_the_toy_problem() -> None:
    # prototype: 0.000 degrees and 1e-5 with the simplex domain, alpha 0.2, gamma 0.5, 200 steps
    angle, distance = ends(simulate(TOY, FEREROSA(step_size=0.2, gamma=0.5, domain="simplex"), RUNS, 200))
    assert angle < 1e-3
    assert distance < 5e-5


def test_omd_tch_averages_and_stored_sets() -> None:
    # prototype: mean error 0.0125 (mean) and 0.0126 (adaptive); 324..876 stored iterates of 1000; gamma sums
    # to T
    side = 10**-0.5
    start = {"kind": "uniform", "low": -side, "high": side, "per_preference": True}
    problem = VLMOP2(n=10, clip=0.99999, start=start)
    w = torch.tensor([[k / 9, 1 - k / 9] for k in range(10)], dtype=torch.float64).clamp(0.01, 0.99)
    runs = Runs.product(w, [0, 19, 42])
    path = simulate(problem, OMDTCH(step_size=0.02), runs, 1000, ("mean", "adaptive"))
    target = problem.tchebycheff_target(w)
    for rule in ("mean", "adaptive"):
        x = torch.from_numpy(path.answers[rule]).reshape(10, 3, -1).mean(1)
        error = (problem.values(x) - target).abs().amax(-1).mean()
        assert 0.008 < error < 0.018, rule
    gamma = conversion_weights(torch.from_numpy(path.f[:, :-1]))
    stored = (gamma > 0).sum(1)
    torch.testing.assert_close(
        gamma.sum(1), torch.full((30,), 1000.0, dtype=torch.float64), rtol=1e-12, atol=0
    )
    assert int(stored.min()) > 200
    assert int(stored.max()) < 950
