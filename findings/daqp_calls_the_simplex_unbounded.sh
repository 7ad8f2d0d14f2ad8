#!/usr/bin/env bash
# DAQP 0.11.0: exit flag -3, "unbounded", for the min-norm weights at a Pareto-stationary point.
#
# MGDA takes the weights w on the simplex with the least |J'w|, and stops where J'w = 0. There the Gram matrix JJ' is
# singular, for which DAQP has an automatic regularization that is on by default. With the bounds w >= 0 and sum w = 1,
# the gradients 1, -3 and 2 of a single variable are an "unbounded problem", though the simplex is bounded and no
# square is below 0; so are about a third of all triples of small integers that sum to 0. All these matrices are
# exact. The point returned beside the flag is right, but qpsolvers 4.13.0 follows the flag and returns None, so that
# the training loop loses its direction exactly where the method has arrived. The redundant bounds w <= 1 help.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check daqp==0.11.0 qpsolvers==4.13.0 numpy==2.4.6 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version
from itertools import product

import daqp
import numpy as np
from qpsolvers import solve_qp


def weights(gradients, upper):
    """min w'Gw on the simplex, with lower <= (w, sum w) <= upper; the sense 5 marks an equality."""
    G = np.outer(gradients, gradients).astype(float)
    high, low = np.array([upper] * 3 + [1.0]), np.array([0.0] * 3 + [1.0])
    w, _, flag, _ = daqp.solve(G, np.zeros(3), np.ones((1, 3)), high, low, np.array([0, 0, 0, 5], dtype=np.int32))
    return w, flag


print("daqp", version("daqp"), "qpsolvers", version("qpsolvers"))
g = np.array([1, -3, 2])
w, flag = weights(g, np.inf)
print(f"gradients {g}: exit flag {flag}, w = {w.round(6)}, J'w = {g @ w:.0e}")
assert flag == -3
assert np.allclose(w, 1 / 3), "equal weights are optimal, since the gradients sum to 0"
bounded, flag = weights(g, 1.0)
print(f"with w <= 1: exit flag {flag}, w = {bounded.round(6)}")
assert flag == 1 and np.allclose(bounded, 1 / 3)

G = np.outer(g, g).astype(float)
options = {"A": np.ones((1, 3)), "b": np.ones(1), "lb": np.zeros(3)}
answer = solve_qp(G, np.zeros(3), solver="daqp", **options)
print("qpsolvers:", answer, "   with ub = 1:", solve_qp(G, np.zeros(3), solver="daqp", ub=np.ones(3), **options).round(6))
assert answer is None

numbers = [k for k in range(-9, 10) if k]
triples = [(a, b, -a - b) for a, b in product(numbers, numbers) if a + b]
flags = {upper: [weights(t, upper)[1] for t in triples] for upper in (np.inf, 1.0)}
lost = flags[np.inf].count(-3)
print(f"of {len(triples)} triples of integers that sum to 0: {lost} are unbounded, and {flags[1.0].count(-3)} with w <= 1")
assert lost > len(triples) / 5
assert set(flags[1.0]) == {1}
PY
