#!/usr/bin/env bash
# BoTorch 0.18.1: WeldedBeam calls exactly those beams feasible that break all four constraints, and gen_pareto_front() of C2DTLZ2
# returns points that violate the constraint of the problem.
#
# A slack is positive where a constraint is satisfied, says the base class, and is_feasible() asks for slacks >= 0. WeldedBeam returns
# (stress - limit) / limit and the like, the sign of pymoo, from which the formulas are taken, and where G <= 0 is feasible. BoTorch's
# own WeldedBeamSO has the other sign for the same constraint; negate=True turns the objectives round and not the slacks. An optimizer
# is led to welds that are overloaded and to bars that buckle, and the hypervolume of its "feasible" designs is one of scrap. C2DTLZ2
# inherits the front of DTLZ2: about two fifths of the points that gen_pareto_front() returns for two objectives, and two thirds for
# three, are infeasible by the problem's own is_feasible(), so that no method can reach that front. No message says so.
#
# The formulas are written out below. It installs torch, which takes most of the time. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" --quiet --disable-pip-version-check install --no-compile)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps botorch==0.18.1 gpytorch==1.15.2 linear-operator==0.6.1 pyre-extensions==0.0.32 jaxtyping==0.3.11 \
    typing-inspect==0.9.0 mypy-extensions==1.2.0 threadpoolctl==3.8.0 multipledispatch==1.0.0 pyro-ppl==1.9.2 scipy==1.17.1 \
    pymoo==0.6.2 moocore==0.3.2 cffi==2.1.1 pycparser==3.12 platformdirs==4.14.8 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import torch
from botorch.test_functions.multi_objective import C2DTLZ2, WeldedBeam
from botorch.test_functions.synthetic import WeldedBeamSO
from pymoo.problems.multi.welded_beam import WeldedBeam as Peer

print("botorch", version("botorch"), " pymoo", version("pymoo"))


def sound(x):
    """Shear stress below 13600 psi, bending stress below 30000 psi, weld not thicker than the bar, buckling load above 6000 lb."""
    h, l, t, b = x.T
    r2 = (l**2 + (h + t) ** 2) / 4
    direct = 6000 / (np.sqrt(2) * h * l)
    torsion = 6000 * (14 + l / 2) * np.sqrt(r2) / (2 * np.sqrt(0.5) * h * l * (l**2 / 12 + (h + t) ** 2 / 4))
    shear = np.sqrt(direct**2 + torsion**2 + direct * torsion * l / np.sqrt(r2))
    buckling = 64746.022 * (1 - 0.0282346 * t) * t * b**3
    return np.stack([shear <= 13600, 504000 / (b * t**2) <= 30000, h <= b, buckling >= 6000], 1)


beam = WeldedBeam()
low, high = beam.bounds
X = low + torch.rand(20000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double) * (high - low)
ours = sound(X.numpy())
theirs, slack = beam.is_feasible(X).numpy(), beam.evaluate_slack(X).numpy()
assert ((Peer().evaluate(X.numpy(), return_values_of=["G"]) <= 0) == ours).all()
assert ((slack >= 0) == ~ours).all(), "every single constraint is turned round"
print(f"of {len(X)} random beams {ours.all(1).sum()} satisfy the four constraints, and is_feasible() says so of {theirs.sum()} others, "
      f"which break {ours[theirs].size - ours[theirs].sum()} of their {ours[theirs].size} constraints")
assert ours.all(1).sum() > 5000 and theirs.sum() > 50
assert not (theirs & ours.all(1)).any() and not ours[theirs].any()
same = WeldedBeamSO().evaluate_slack(X)[:, 2].numpy()
assert (np.sign(same) == -np.sign(slack[:, 2])).all()
i = int(np.argmax(slack[:, 2]))
print(f"a weld of {X[i, 0]:.3f} at a bar of {X[i, 3]:.3f}: slack {slack[i, 2]:+.3f} in WeldedBeam, {same[i]:+.3f} in WeldedBeamSO")
assert torch.equal(WeldedBeam(negate=True).evaluate_slack(X), beam.evaluate_slack(X))

for M in (2, 3):
    problem = C2DTLZ2(dim=12, num_objectives=M)
    front = problem.gen_pareto_front(1000)
    x = torch.full((1000, 12), 0.5, dtype=torch.double)
    x[:, M - 2] = 2 / np.pi * torch.atan2(front[:, 1], front[:, 0])
    if M == 3:
        x[:, 0] = 2 / np.pi * torch.asin(front[:, 2])
    assert torch.allclose(problem.evaluate_true(x), front), "these are the solutions of the points"
    bad = (~problem.is_feasible(x)).sum().item()
    print(f"C2DTLZ2 with {M} objectives: {bad} of 1000 points of gen_pareto_front() are infeasible")
    assert bad > 300
PY
