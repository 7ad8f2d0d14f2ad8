#!/usr/bin/env bash
# pymoo 0.6.2: the objectives of a solution of DF12 depend on the other solutions that are evaluated in the same call.
#
# DF12 (Jiang et al. 2018) adds to g the product of |sin(floor(k_t (2 x_j - r)) pi / 2)| over j = 1, 2. pymoo takes the product over all
# entries of the matrix, that is over the whole population as well: one factor that is 0 anywhere, which almost every population has,
# removes the term for everybody. Of 200 random solutions 56 have it when they are evaluated one by one, which doubles their objectives
# or nearly so, and none when they are evaluated together. So the values that an algorithm sees depend on its population, differ from
# those that one computes afterwards for single solutions, and belong to another front than pymoo's own pareto_front(), which has the
# term for each point. DF1 to DF11, DF13 and DF14 do not have this. No message says so.
#
# The formula is written out below. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps pymoo==0.6.2 numpy==2.4.6 scipy==1.17.1 \
    moocore==0.3.2 cffi==2.1.1 pycparser==3.12 platformdirs==4.14.8 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
from pymoo.problems.dynamic import df

print("pymoo", version("pymoo"))
time = 0.3


def df12(x):
    """DF12 of one solution, by its definition, with r = 1 as in pymoo."""
    k = 10 * np.sin(np.pi * time)
    g = 1 + ((x[2:] - np.sin(time * x[0])) ** 2).sum() + np.prod(abs(np.sin(np.floor(k * (2 * x[:2] - 1)) * np.pi / 2)))
    a, b = np.cos(np.pi / 2 * x[:2]), np.sin(np.pi / 2 * x[:2])
    return g * np.array([a[1] * a[0], b[1] * a[0], b[0]])


rng = np.random.default_rng(0)
for i in range(1, 15):
    problem = getattr(df, f"DF{i}")()
    problem.time = time
    X = problem.xl + rng.random((200, problem.n_var)) * (problem.xu - problem.xl)
    together = problem.evaluate(X)
    alone = np.array([problem.evaluate(x) for x in X])
    if i != 12:
        assert np.allclose(together, alone), i
        continue
    right = np.array([df12(x) for x in X])
    assert np.allclose(alone, right)
    wrong = abs(together - right).max(1) > 1e-9
    print(f"DF12, {len(X)} random solutions: evaluated one by one all agree with the formula, evaluated together {wrong.sum()} do not "
          f"(by up to {abs(together - right).max():.3f})")
    assert 0.2 < wrong.mean() < 0.8
    # two solutions with the best distance variables, alone and with each other
    Y = np.full((2, problem.n_var), 0.0)
    Y[:, :2] = [[0.1, 0.1], [0.5, 0.5]]
    Y[:, 2:] = np.sin(time * Y[:, [0]])
    pair = problem.evaluate(Y)
    print("DF12 at (0.1, 0.1, ...):", problem.evaluate(Y[0]).round(4), "alone,", pair[0].round(4), "with a second solution; by the formula",
          df12(Y[0]).round(4))
    assert np.allclose(problem.evaluate(Y[0]), df12(Y[0])) and not np.allclose(pair[0], df12(Y[0]))
PY
