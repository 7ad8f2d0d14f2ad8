#!/usr/bin/env bash
# flwr 1.42.0: flwr.server.strategy.FedAvg returns zeros for arrays of integers, whatever two or more clients send.
#
# FedAvg takes the mean of the clients' arrays weighted by their numbers of samples (McMahan et al. 2017). With inplace=True, the default, the
# weights, which lie between 0 and 1, are converted to the type of the array, and so to 0 for integers. Counters, thresholds and quantized weights
# are lost without a word in every round. Every BatchNorm layer of PyTorch has such a counter, num_batches_tracked, in the state_dict() that
# clients usually send: with momentum=None, the mean over all batches, a counter of 0 lets the next batch replace the running statistics of the
# whole federation. FedProx, FedAdam and FedYogi, among others, inherit the mean. With inplace=False it is right, as a float, and so it is in
# flwr.serverapp.strategy.
#
# Fails if the behaviour changes.
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
from flwr.server.strategy import FedAvg, FedProx
from flwr.serverapp.strategy import FedAvg as AppFedAvg
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what a running app would set, for messages
samples = [30, 10]


def server(strategy, clients):
    answers = [FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), n, {}) for arrays, n in zip(clients, samples, strict=True)]
    return parameters_to_ndarrays(strategy.aggregate_fit(1, [(None, answer) for answer in answers], [])[0])


def app(clients):
    question = Message(RecordDict(), dst_node_id=1, message_type="train")
    answers = [Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": n})}), reply_to=question)
               for arrays, n in zip(clients, samples, strict=True)]
    return AppFedAvg().aggregate_train(1, answers)[0].to_numpy_ndarrays()


print("flwr", version("flwr"), "numpy", version("numpy"))
for kind in (np.float32, np.int32, np.int64):
    clients = [[np.array([100, -20, 4], kind)], [np.array([60, -60, 8], kind)]]
    mean = [90, -30, 5]
    right = np.average([c[0].astype(float) for c in clients], axis=0, weights=samples)
    assert right.tolist() == mean
    seen = {
        "FedAvg()": server(FedAvg(), clients)[0],
        "FedProx()": server(FedProx(proximal_mu=0.1), clients)[0],
        "FedAvg(inplace=False)": server(FedAvg(inplace=False), clients)[0],
        "flwr.serverapp": app(clients)[0],
    }
    print(f"{kind.__name__}: mean {mean};", ", ".join(f"{name} {array.tolist()}" for name, array in seen.items()))
    for name, array in seen.items():
        assert np.allclose(array, 0 if kind is not np.float32 and name in ("FedAvg()", "FedProx()") else mean, rtol=1e-6), name

counters = [[np.array(700)], [np.array(700)]]
means = [server(strategy, counters)[0] for strategy in (FedAvg(), FedAvg(inplace=False))]
print("counters of 700 in both clients:", means[0], "by FedAvg(),", means[1], "with inplace=False")
assert means == [0, 700]
PY
