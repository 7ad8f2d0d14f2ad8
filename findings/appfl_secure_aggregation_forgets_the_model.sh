#!/usr/bin/env bash
# APPFL 1.12.0: with use_secure_agg, the first round puts the mean change of the clients' models in the place of the global model.
#
# With this option of FedAvg, each client sends the change of its model plus masks that add up to zero over all clients. The server is to add the
# mean change to its model, so that the result is that of FedAvg without masks (McMahan et al. 2017). Yet FedAvgAggregator holds no copy of its
# model before the first aggregation, and takes the mean change for the model itself: what the training started from, such as pretrained weights, is
# gone, and the clients go on from a model near zero. Later rounds add up. With client_weights_mode="sample_size" it also multiplies the masked
# changes by the clients' shares of the data, so that the masks no longer cancel: every parameter gets normal noise in each round, below with
# a standard deviation of 0.8. With secure_agg_client_weights_mode="num_examples", where the clients weight their changes themselves, it takes
# the mean in the place of the sum, and each step is too short by a factor of the number of clients. No message says so. Until it is repaired, one can
# set global_state of the aggregator to its model before the first round, and weight all clients equally.
#
# APPFL's own trainer and aggregator run below, with and without the option. The mean is also computed from its definition. The packages that APPFL
# imports for communication and plots are replaced by placeholders. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 omegaconf==2.4.0 packaging==26.4 2>/dev/null
"${pip[@]}" --no-deps appfl==1.12.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import gc
import sys
from copy import deepcopy
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from unittest.mock import MagicMock

import torch
from omegaconf import OmegaConf
from torch.utils.data import TensorDataset

UNUSED = "blosc boto3 botocore colorama globus_compute_endpoint globus_compute_sdk globus_sdk google grpc jwt lz4".split()
UNUSED += "lzma matplotlib opacus pandas piq proxystore ray requests seaborn sklearn wandb yaml zstd".split()


class Placeholders:
    """Imports a placeholder for the packages above."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in UNUSED else None

    def create_module(self, spec):
        return MagicMock(__path__=[], __spec__=spec)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Placeholders())
from appfl.algorithm.aggregator import FedAvgAggregator  # noqa: E402
from appfl.algorithm.trainer import VanillaTrainer  # noqa: E402

torch.set_num_threads(1)
EXAMPLES, ROUNDS = {"A": 20, "B": 40, "C": 140}, 2
torch.manual_seed(0)
TRUTH = torch.tensor([[3.0, -2.0, 1.0, 4.0]])
DATA = {}
for k, n in EXAMPLES.items():
    X = torch.randn(n, 4)
    DATA[k] = TensorDataset(X, X @ TRUTH.T + 0.1 * torch.randn(n, 1))
PRETRAINED = TRUTH + 0.1  # what the training starts from


def network():
    model = torch.nn.Linear(4, 1, bias=False)
    model.weight.data = PRETRAINED.clone()
    return model


def train(secure, server_mode="equal", client_mode="equal", set_state=False):
    """The global weights after each round, and by the definition: the model plus the weighted mean change of the clients."""
    gc.freeze()  # APPFL collects garbage after each step, which takes long among all modules
    config = {"use_secure_agg": secure, "client_weights_mode": server_mode}
    aggregator = FedAvgAggregator(network(), OmegaConf.create(config))
    if set_state:
        aggregator.global_state = aggregator.get_parameters()
    options = {"mode": "step", "num_local_steps": 5, "optim": "SGD", "optim_args": {"lr": 0.05}}
    options |= {
        "train_batch_size": 200,
        "use_secure_agg": secure,
        "secure_agg_client_weights_mode": client_mode,
    }
    clients = {
        k: VanillaTrainer(
            network(),
            torch.nn.MSELoss(),
            lambda truth, answer: 0.0,
            DATA[k],
            train_configs=OmegaConf.create(options),
            logger=MagicMock(),
            client_id=k,
        )
        for k in EXAMPLES
    }
    path, expected = [], []
    for number in range(ROUNDS):
        start, local, answers = aggregator.get_parameters(), {}, {}
        for k, client in clients.items():
            aggregator.set_client_sample_size(k, EXAMPLES[k])
            client.runtime_context = {
                "all_client_ids": list(EXAMPLES),
                "round_id": number,
                "secure_agg_secret": b"shared by the clients",
                "global_num_examples_sum": sum(EXAMPLES.values()),
            }
            client.load_parameters(deepcopy(start))
            client.train()
            local[k] = client.model.weight.data.clone()
            answers[k] = client.get_parameters()[0]  # the others are results of the validation
        equal = server_mode == client_mode == "equal"
        shares = {k: 1 / len(EXAMPLES) if equal else n / sum(EXAMPLES.values()) for k, n in EXAMPLES.items()}
        expected.append(start["weight"] + sum(shares[k] * (local[k] - start["weight"]) for k in EXAMPLES))
        aggregator.aggregate(answers)
        path.append(aggregator.get_parameters()["weight"])
    return torch.stack(path), torch.stack(expected)


def show(name, path):
    errors = [float((w - TRUTH).norm()) for w in path]
    print(
        f"{name}: weights after round 1 {path[0][0].numpy().round(3)}, errors {[round(e, 3) for e in errors]}"
    )
    return errors


print("appfl", version("appfl"), "torch", version("torch").split("+")[0])
print("start:", PRETRAINED[0].numpy().round(3), "error", round(float((PRETRAINED - TRUTH).norm()), 3))
path, expected = train(False)
plain = show("FedAvg", path)
assert torch.allclose(path, expected, atol=1e-5)
path, expected = train(True)
secure = show("with use_secure_agg", path)
assert torch.allclose(path[0], expected[0] - PRETRAINED, atol=1e-5), "the mean change is taken for the model"
assert torch.allclose(path[1:], expected[1:], atol=1e-5)
repaired, expected = train(True, set_state=True)
show("with use_secure_agg and global_state", repaired)
assert torch.allclose(repaired, expected, atol=1e-5)
assert plain[0] < 0.2 and secure[0] > 5

path, expected = train(False, server_mode="sample_size")
assert torch.allclose(path, expected, atol=1e-5)
path, expected = train(True, server_mode="sample_size", set_state=True)
noise = show('with global_state, client_weights_mode="sample_size"', path)
assert min(noise) > 0.3 and (path - expected).abs().max() > 0.3
path, expected = train(True, client_mode="num_examples", set_state=True)
show('with global_state, secure_agg_client_weights_mode="num_examples"', path)
start = torch.cat([PRETRAINED[None], path[:-1]])
assert torch.allclose(len(EXAMPLES) * (path - start), expected - start, atol=1e-5)
PY
