#!/usr/bin/env bash
# flwr 1.42.0: flwr.server.strategy.QFedAvg gives a client with a large loss no more weight than the others, whatever q is.
#
# q-FedAvg (Li et al. 2020, "Fair Resource Allocation in Federated Learning", Algorithm 2) weights the update of client k by F_k^q, its own loss to
# the power of q, so that clients that are badly off count more. QFedAvg takes one loss instead, that of the server's evaluate_fn, for all clients.
# It cancels: the step is along the unweighted sum of the updates for every q, and q only makes it shorter. A study of fairness that varies q
# compares step sizes: here the losses of the clients are as unequal with q = 5 as with q = 0, while those by the paper come together. No message
# says so. The strategy of the same name in flwr.serverapp.strategy takes each client's loss, if it reports that of the model it was sent.
#
# Algorithm 2 is written out below. Fails if the behaviour changes.
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
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_manager import SimpleClientManager
from flwr.server.strategy import QFedAvg
from flwr.serverapp.strategy import QFedAvg as AppQFedAvg
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what a running app would set, for messages
STEP, ROUNDS = 0.5, 3000
optima = np.array([[0.0, 0.0]] * 8 + [[1.0, 1.0]] * 2)  # eight clients agree, two want another model


def losses(w):
    """F_k = 1/2 |w - a_k|^2 + 0.1 of each client; its gradient is w - a_k."""
    return 0.5 * ((w - optima) ** 2).sum(1) + 0.1


def local(w):
    """The clients' models after a gradient step each."""
    return w - STEP * (w - optima)


def paper(w, q):
    """A round of Algorithm 2, with L = 1 / STEP."""
    F, updates = losses(w), (w - local(w)) / STEP
    h = q * F ** (q - 1) * (updates**2).sum(1) + F**q / STEP
    return w - F**q @ updates / h.sum()


def server(w, q):
    """A round of flwr.server; the clients report their losses, too, and the server's loss is their mean."""
    strategy = QFedAvg(q_param=q, qffl_learning_rate=STEP, min_available_clients=0, min_fit_clients=0,
                       evaluate_fn=lambda number, arrays, config: (losses(arrays[0]).mean(), {}))
    strategy.configure_fit(2, ndarrays_to_parameters([w]), SimpleClientManager())
    answers = [FitRes(Status(Code.OK, ""), ndarrays_to_parameters([v]), 10, {"train_loss": float(F)})
               for v, F in zip(local(w), losses(w), strict=True)]
    return parameters_to_ndarrays(strategy.aggregate_fit(2, [(None, answer) for answer in answers], [])[0])[0]


def app(w, q):
    """A round of flwr.serverapp."""
    strategy = AppQFedAvg(client_learning_rate=STEP, q=q)
    strategy.current_arrays = ArrayRecord([w])
    question = Message(RecordDict(), dst_node_id=1, message_type="train")
    answers = [Message(RecordDict({"arrays": ArrayRecord([v]), "metrics": MetricRecord({"num-examples": 10, "train_loss": float(F)})}),
                       reply_to=question) for v, F in zip(local(w), losses(w), strict=True)]
    return strategy.aggregate_train(2, answers)[0].to_numpy_ndarrays()[0]


print("flwr", version("flwr"))
w = np.array([0.1, -0.3])
mean = (w - optima).mean(0)
for q in (0.0, 1.0, 5.0):
    steps = [w - one(w, q) for one in (paper, server, app)]
    print(f"q = {q}: first step by the paper {steps[0].round(4)}, flwr.server {steps[1].round(4)}, flwr.serverapp {steps[2].round(4)}; "
          f"mean of the updates {mean.round(4)}")
    assert np.allclose(steps[2], steps[0], rtol=1e-6)
    assert np.allclose(np.linalg.det([steps[1], mean]), 0, atol=1e-12), "parallel to the unweighted mean, whatever the losses are"
    assert q == 0 or abs(np.linalg.det([steps[0], mean])) > 1e-3
ends = {}
for one in (paper, server):
    for q in (0.0, 1.0, 5.0):
        v = w
        for _ in range(ROUNDS if one is paper else ROUNDS // 10):
            v = one(v, q)
        ends[one, q] = losses(v)[[0, -1]]
        print(f"q = {q}, {one.__name__}: after training the eight clients have the loss {ends[one, q][0]:.4f}, the two {ends[one, q][1]:.4f}")
assert all(np.allclose(ends[server, q], ends[server, 0.0], rtol=1e-4) for q in (1.0, 5.0))
assert np.allclose(ends[paper, 0.0], ends[server, 0.0])
gaps = [np.ptp(ends[paper, q]) for q in (0.0, 1.0, 5.0)]
assert gaps[0] > 2 * gaps[1] > 2 * gaps[2]
PY
