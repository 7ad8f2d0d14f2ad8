#!/usr/bin/env bash
# flwr 1.42.0: adaptive clipping moves the clipping norm away from the quantile that it is to find, to zero or without bound.
#
# For differential privacy, the updates of the clients are shortened to a norm C, which is to follow a quantile of their norms. Andrew et al. (2021)
# multiply C in each round by exp(-eta (b - gamma)), where b is the share of updates that are *not* longer than C: if too few are clipped, C shrinks.
# flwr has the formula, but counts the updates that are clipped. If more than target_clipped_quantile of them are longer than C, it makes C smaller
# still, so that even more are clipped in the next round, and the other way round. From the default, C = 0.1, if the updates are longer than that,
# every one of them is clipped for ever and C goes to zero: all rounds together cannot move the model by more than 1.06, however long the training.
# From a large C it grows by a tenth per round, and so does the noise, which is in proportion to it. No message says so. By their source, the
# strategies of flwr.server and those that clip on the clients, with adaptiveclipping_mod, do the same, and the deprecated DPFedAvgAdaptive with
# DPFedAvgNumPyClient counts the right way. Until it is repaired, one can clip at a fixed norm, with DifferentialPrivacyServerSideFixedClipping.
#
# The rule of the paper is written out below, and the quantile is known. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check flwr==1.42.0 numpy==2.2.6 2>/dev/null
FLWR_TELEMETRY_ENABLED=0 "$folder/venv/bin/python" -W ignore - <<'PY'
import logging
from importlib.metadata import version

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideAdaptiveClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as in a running app, for messages
CLIENTS, SIZE, ROUNDS, TARGET, ETA = 20, 1000, 60, 0.5, 0.2


class Still(FedAvg):
    """FedAvg without the sampling of nodes, which needs a running app."""

    def configure_train(self, server_round, arrays, config, grid):
        return []


def updates(rng):
    """Updates in one common direction and with norms around 1; the median of the norms is 1."""
    direction = np.full(SIZE, SIZE**-0.5)
    return [norm * direction for norm in rng.permutation(np.linspace(0.5, 1.5, CLIENTS))]


def answers(model, steps):
    question = Message(RecordDict(), dst_node_id=1, message_type="train")
    for step in steps:
        content = RecordDict(
            {"arrays": ArrayRecord([model + step]), "metrics": MetricRecord({"num-examples": 1})}
        )
        yield Message(content, reply_to=question)


def train(start):
    """The norm C and the share of clipped updates per round, the distance of the model, and C by the paper."""
    rng = np.random.default_rng(0)
    strategy = DifferentialPrivacyServerSideAdaptiveClipping(
        Still(),
        noise_multiplier=0.0,
        num_sampled_clients=CLIENTS,
        initial_clipping_norm=start,
        target_clipped_quantile=TARGET,
        clip_norm_lr=ETA,
    )
    model, by_paper, history = np.zeros(SIZE), start, []
    for number in range(1, ROUNDS + 1):
        steps = updates(rng)
        norms = np.array([np.linalg.norm(step) for step in steps])
        history.append((strategy.clipping_norm, (norms > strategy.clipping_norm).mean()))
        by_paper *= np.exp(-ETA * ((norms <= by_paper).mean() - (1 - TARGET)))
        strategy.configure_train(number, ArrayRecord([model]), ConfigRecord(), None)
        arrays, _ = strategy.aggregate_train(number, list(answers(model, steps)))
        model = arrays.to_numpy_ndarrays()[0]
    return np.array(history), np.linalg.norm(model), by_paper


print("flwr", version("flwr"), "numpy", version("numpy"))
print(
    f"{TARGET:.0%} of the updates are to be clipped, whose norms have the median 1; {ROUNDS} rounds without noise"
)
final = {}
for start in (0.1, 0.9, 1.1, 10.0):
    history, distance, by_paper = train(start)
    norm, clipped = history[-1]
    final[start] = norm
    print(
        f"from C = {start:g}: the paper's rule ends at {by_paper:.2f}, flwr at {norm:.2g}, where {clipped:.0%} are clipped; "
        f"the model has gone {distance:.2f}"
    )
    assert abs(by_paper - 1) < 0.06
    assert clipped == (1 if start < 1 else 0)
    if start in (0.1, 10.0):  # all clipped or none from the first round on: a constant factor
        assert np.isclose(norm, start * np.exp((-1 if start < 1 else 1) * ETA * (1 - TARGET) * (ROUNDS - 1)))
    if start == 0.1:
        assert distance < start / (1 - np.exp(-ETA * (1 - TARGET))) < 1.06
assert final[0.1] < 1e-3 and final[0.9] < 0.1 and final[1.1] > 50 and final[10.0] > 1000
PY
