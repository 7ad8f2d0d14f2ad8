#!/usr/bin/env bash
# pymcdm 1.4.0: COPRAS counts costs as benefits; where all objectives are minimized, its ranking is exactly upside down.
#
# COPRAS (Zavadskas and Kaklauskas 1996) is one of the methods that choose a solution from a Pareto front. It adds the weighted shares of the
# criteria that are maximized to S+ and those of the minimized ones to S-, and ranks by Q_i = S+_i + sum(S-) / (S-_i sum(1 / S-)): high costs make
# Q small. pymcdm leaves the two sums out, and what remains of the fraction cancels to S-_i itself, so that Q_i = S+_i + S-_i. The types of the
# criteria, 1 or -1, have no effect then. Of four networks that trade accuracy for latency and memory it recommends the one that is four times
# as slow and three times as large for three points of accuracy, which is the last one by the formula; and the score of an alternative
# rises if one of its costs is raised. No message says so. pyrepo-mcda 0.1.15 has the right formula.
#
# The formula is also written out below. Plots, tables and what needs SciPy are replaced by placeholders. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-deps pymcdm==1.4.0 pyrepo-mcda==0.1.15 \
    numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W error::UserWarning - <<'PY'
import sys
from importlib.metadata import version
from unittest.mock import MagicMock

import numpy as np

for name in "pymcdm.visuals pandas tabulate scipy scipy.linalg scipy.sparse.linalg scipy.stats".split():
    sys.modules[name] = MagicMock()
from pymcdm.methods import COPRAS  # noqa: E402
from pyrepo_mcda.mcda_methods import COPRAS as OTHER  # noqa: E402


def degrees(matrix, weights, types):
    """The utility degrees Q / max Q, where the best alternative has 1."""
    shares = weights * matrix / matrix.sum(0)
    plus, minus = shares[:, types == 1].sum(1), shares[:, types == -1].sum(1)
    Q = plus + minus.sum() / (minus * (1 / minus).sum())
    return Q / Q.max()


print("pymcdm", version("pymcdm"), " pyrepo-mcda", version("pyrepo-mcda"))
# accuracy, latency, memory
front = np.array([[0.90, 20, 300], [0.91, 25, 250], [0.92, 40, 500], [0.93, 80, 900]])
weights, types = np.full(3, 1 / 3), np.array([1, -1, -1])
right, library = degrees(front, weights, types), COPRAS()(front, weights, types)
print("four networks: by the formula", right.round(3), "in pymcdm", library.round(3))
assert np.allclose(OTHER()(front, weights, types), right)
assert right.argmax() == 0 and COPRAS().rank(library).tolist() == [4, 3, 2, 1]

rng = np.random.default_rng(0)
CASES = 200
for text, types in (
    ("one of four objectives maximized", [1, -1, -1, -1]),
    ("all four minimized", [-1, -1, -1, -1]),
):
    types = np.array(types)
    last = reversed_ = raised = 0
    for _ in range(CASES):
        points = abs(rng.normal(size=(12, 4)))
        points /= np.linalg.norm(points, axis=1)[:, None]  # on a sphere, where no point dominates another
        points = np.where(types == 1, 1 - points, points) + 0.1
        weights = rng.dirichlet(np.ones(4))
        right, library = degrees(points, weights, types), COPRAS()(points, weights, types, validation=False)
        assert np.allclose(OTHER()(points, weights, types), right)
        Q = (weights * points / points.sum(0)).sum(1)
        assert np.allclose(library, Q / Q.max()), "S+ + S-"
        last += library.argmax() == right.argmin()
        reversed_ += np.argsort(library).tolist() == np.argsort(-right).tolist()
        worse = points.copy()
        k = np.argsort(library)[5]
        worse[k, 1] *= 1.2  # a cost is raised, all else equal
        assert degrees(worse, weights, types)[k] <= right[k]
        raised += COPRAS()(worse, weights, types, validation=False)[k] > library[k]
    print(
        f"{CASES} fronts of 12 points, {text}: the best point in pymcdm is the worst by the formula in {last}, the ranking is the reverse "
        f"in {reversed_}; a cost is raised by a fifth, and the score rises in {raised}"
    )
    assert raised == CASES and (last == reversed_ == CASES if (types == -1).all() else last > CASES / 5)
PY
