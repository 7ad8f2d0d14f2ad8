#!/usr/bin/env bash
# flwr 1.42.0: Krum, MultiKrum and Bulyan of flwr.serverapp choose among clients by rounding errors where the updates are small.
#
# Krum (Blanchard et al. 2017) takes the model with the least sum of squared distances to its nearest neighbours. flwr.serverapp.strategy forms
# |x|^2 + |y|^2 - 2 x'y in the models' own single precision, where the digits cancel if the clients' updates are short beside the model: a step of
# 0.01 along gradients of norm 1 from a model of norm 100, or the end of a training. "Squared distances" are negative then, and the client chosen
# is an arbitrary one: a client whose update points the other way, as with wrong labels, and whose score is more than ten times that of the
# others, is chosen about as often as if it were drawn by lot. The rule is used to leave such outliers out. MultiKrum and Bulyan choose by the same
# function. flwr.server.strategy subtracts first and chooses another client; with float64 arrays the new strategies do, too.
#
# The rule is written out below in double precision. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check flwr==1.42.0 numpy==2.2.6 2>/dev/null
FLWR_TELEMETRY_ENABLED=0 "$folder/venv/bin/python" -W ignore - <<'PY'
import logging
from importlib.metadata import version

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.server.strategy.aggregate import aggregate_krum
from flwr.serverapp.strategy import Bulyan, Krum, MultiKrum
from flwr.serverapp.strategy.multikrum import compute_distances, select_multikrum
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what a running app would set, for messages
CLIENTS, FAULTY, SIZE, CASES = 11, 3, 10_000, 20


def models(size, seed):
    """Most clients go about this far down a common gradient, faulty clients up; the model has the norm 100."""
    rng = np.random.default_rng(seed)

    def unit():
        v = rng.normal(size=SIZE)
        return v / np.linalg.norm(v)

    model, gradient = 100 * unit(), unit()
    updates = [-size * (gradient + 0.3 * unit()) * (1 if k < CLIENTS - FAULTY else -1) for k in range(CLIENTS)]
    return [(model + u).astype(np.float32) for u in updates]


def scores(W):
    """The score of each client in double precision: over its n - f - 2 nearest others, the sum of squared distances."""
    W = np.array(W, dtype=np.float64)
    D = ((W[:, None] - W) ** 2).sum(-1)
    return np.sort(D, axis=1)[:, 1 : CLIENTS - FAULTY - 1].sum(1)


def ask(strategy, W):
    question = Message(RecordDict(), dst_node_id=1, message_type="train")
    answers = [Message(RecordDict({"arrays": ArrayRecord([w]), "metrics": MetricRecord({"num-examples": 1})}), reply_to=question) for w in W]
    return strategy.aggregate_train(1, answers)[0].to_numpy_ndarrays()[0]


def position(w, W):
    return next(k for k, v in enumerate(W) if np.array_equal(v, w))


print("flwr", version("flwr"), "numpy", version("numpy"))
assert issubclass(Krum, MultiKrum) and Bulyan().selection_rule is select_multikrum
chosen = {}
for size in (1.0, 1e-2, 1e-3):
    new = old = double = 0
    for seed in range(CASES):
        W = models(size, seed)
        right = scores(W)
        assert right[: CLIENTS - FAULTY].max() * 10 < right[CLIENTS - FAULTY :].min()
        new += position(ask(Krum(num_malicious_nodes=FAULTY), W), W) >= CLIENTS - FAULTY
        old += position(aggregate_krum([([w], 1) for w in W], FAULTY, 0)[0], W) >= CLIENTS - FAULTY
        V = [w.astype(np.float64) for w in W]
        double += position(ask(Krum(num_malicious_nodes=FAULTY), V), V) >= CLIENTS - FAULTY
    D = compute_distances([ArrayRecord([w]) for w in W])
    chosen[size] = new
    print(f"updates of {size / 100:.0e} of the model: Krum chooses a faulty client in {new} of {CASES} cases, that of flwr.server in {old}, with "
          f"float64 in {double}; the least 'squared distance' is {D.min():.1e}")
    assert old == double == 0
    assert D.min() < 0
assert chosen[1.0] == 0 and min(chosen[1e-2], chosen[1e-3]) >= CASES / 10
PY
