#!/usr/bin/env bash
# jMetalPy 1.9.0: in RE41, RE42 and RE61 the objective "sum of constraint violations" adds up the constraints that are satisfied.
#
# In the suite of Tanabe and Ishibuchi (2020), which the docstrings cite, a constraint is g >= 0 and its violation max(-g, 0). In these
# three classes it is max(g, 0), "only count when g[i] > 0"; the other classes of the same file (RE31, for instance) have the right
# sign. A water design (RE61) that satisfies all seven constraints should get 0 and gets about 70000, and a constraint that is violated
# adds nothing: an optimizer is driven out of the feasible region. RE41 also rounds its seven continuous variables to integers, so
# that the first one, which ranges from 0.5 to 1.5, is 1 everywhere in between. No message says so.
#
# The right values are those of cmo 0.1.9, whose CRE31, CRE32 and CRE51 are the same three problems with the constraints kept apart;
# their source is read with a placeholder for its base class, since it would need pymoo. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps jmetalpy==1.9.0 cmo==0.1.9 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import sys
import types
from importlib.metadata import version

import numpy as np
from jmetal.problem.multiobjective.re import RE31, RE41, RE42, RE61

utils = types.ModuleType("cmo.problems.utils")
utils.CMOP, utils.load_pareto_front_from_file = object, None
sys.modules["cmo.problems.utils"] = utils
from cmo.problems.cre import cre21, cre31, cre32, cre51  # noqa: E402


def jmetal(problem, x):
    solution = problem.create_solution()
    solution.variables = [float(v) for v in x]
    return np.array(problem.evaluate(solution).objectives)


print("jMetalPy", version("jmetalpy"), " cmo", version("cmo"))
rng = np.random.default_rng(0)
for problem, right in ((RE31(), cre21), (RE41(), cre31), (RE42(), cre32), (RE61(), cre51)):
    low, high = np.array(problem.lower_bound), np.array(problem.upper_bound)
    X = low + rng.random((2000, len(low))) * (high - low)
    values, objectives, violations = [], [], []
    for x in X:
        f, violation = right(x)
        values.append(jmetal(problem, x))
        objectives.append(f)
        violations.append(violation.sum())
    values, objectives, violations = np.array(values), np.array(objectives), np.array(violations)
    others = np.allclose(values[:, :-1], objectives)
    feasible = violations == 0
    print(f"{problem.name()}: {feasible.sum()} of {len(X)} random designs are feasible; by the suite their last objective is 0, "
          f"here {values[feasible, -1].min():.4g} to {values[feasible, -1].max():.4g}" if feasible.any() else
          f"{problem.name()}: by the suite the last objective lies in [{violations.min():.4g}, {violations.max():.4g}], "
          f"here in [{values[:, -1].min():.4g}, {values[:, -1].max():.4g}]", "| other objectives agree:", others)
    if problem.name() == "RE31":
        assert others and np.allclose(values[:, -1], violations)
    else:
        assert not np.isclose(values[:, -1], violations).any()
        assert (values[feasible, -1] > 1).all()
        assert others == (problem.name() != "RE41")
# one design by hand: the first constraint of RE61 is 1 - (0.00139 / (x1 x2) + 4.94 x3 - 0.08) >= 0, and so on for the other six
x = [0.2, 0.05, 0.05]
p = x[0] * x[1]
slack = np.array([
    1 - (0.00139 / p + 4.94 * x[2] - 0.08), 1 - (0.000306 / p + 1.082 * x[2] - 0.0986),
    50000 - (12.307 / p + 49408.24 * x[2] + 4051.02), 16000 - (2.098 / p + 8046.33 * x[2] - 696.71),
    10000 - (2.138 / p + 7883.39 * x[2] - 705.04), 2000 - (0.417 * p + 1721.26 * x[2] - 136.54),
    550 - (0.164 / p + 631.13 * x[2] - 54.48)])
print("RE61 at (0.2, 0.05, 0.05): smallest slack", slack.min().round(3), "and last objective", jmetal(RE61(), x)[-1].round(1))
assert slack.min() > 0 and np.isclose(jmetal(RE61(), x)[-1], slack.sum()) and cre51(x)[1].sum() == 0
# RE41 does not see that a variable moves by 0.9
x = np.array([0.55, 1.0, 1.0, 1.0, 1.7, 0.8, 0.8])
y = x + [0.9, 0, 0, 0, 0, 0, 0]
assert np.array_equal(jmetal(RE41(), x), jmetal(RE41(), y)) and not np.allclose(cre31(x)[0], cre31(y)[0])
print("RE41 with x1 = 0.55 and with x1 = 1.45:", jmetal(RE41(), x)[0].round(4), jmetal(RE41(), y)[0].round(4), "instead of",
      cre31(x)[0][0].round(4), cre31(y)[0][0].round(4))
PY
