#!/usr/bin/env bash
# fluke-fl 0.8.1: PFedMe returns the same models for every lambda; they are not pulled towards the global one at all.
#
# pFedMe (Dinh et al. 2020) gives each client a personal model of its own, the minimizer of f(theta) + lambda / 2 |theta - w|^2 (their equations 2
# and 3), where w is what the clients learn together. lambda is the parameter to tune: 0 stands for training alone, infinity for one model for all.
# fluke hands the optimizer the personal parameters in the place of w as well, so that the term is always zero, and overwrites the copy that follows
# line 8 of Algorithm 1 with the personal model at the end of a round. What remains is FedAvg on the personal models: the results are the same to
# the last bit for lambda = 0 and lambda = 15, the value of the paper. With enough local steps each client ends where it would have
# come alone, as below, where few and noisy data make the personal models of the paper much better. A study of lambda in fluke finds that
# it has no influence, and a comparison with pFedMe is one with FedAvg. No message says so.
#
# The algorithm of the paper is written out below, with the minimizer in closed form: the model is one number, the loss its mean squared distance from
# the data. The packages that fluke imports for data sets, logs and plots are replaced by placeholders. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps fluke-fl==0.8.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from unittest.mock import MagicMock

import numpy as np
import torch

UNUSED = "cerberus clearml datasets diskcache hydra matplotlib omegaconf opacus pandas psutil requests rich".split()
UNUSED += "seaborn sklearn tensorboard torchmetrics torchvision typer wandb yaml".split()


class Placeholders:
    """Imports a placeholder for the packages above."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in UNUSED else None

    def create_module(self, spec):
        class Config:
            """For isinstance."""

        return MagicMock(__path__=[], __spec__=spec, DictConfig=Config, ListConfig=Config)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Placeholders())
from fluke.algorithms.pfedme import PFedMeClient, PFedMeOptimizer, PFedMeServer  # noqa: E402
from fluke.config import OptimizerConfigurator  # noqa: E402
from fluke.data import FastDataLoader  # noqa: E402

torch.set_default_dtype(torch.float64)
CLIENTS, EXAMPLES, ROUNDS, STEPS, LR = 6, 4, 15, 40, 0.1


def by_fluke(data, lamda):
    """The personal models, and the global one."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    clients = []
    for k, y in enumerate(data):
        loader = FastDataLoader(
            torch.ones(EXAMPLES, 1), torch.tensor(y)[:, None], num_labels=1, batch_size=EXAMPLES
        )
        optimizer = OptimizerConfigurator({"name": PFedMeOptimizer, "lr": LR, "lamda": lamda, "mu": 0.0})
        clients.append(PFedMeClient(k, loader, None, optimizer, torch.nn.MSELoss(), local_epochs=1, k=STEPS))
    server = PFedMeServer(model, None, clients, beta=1.0)
    for client in clients:
        client.set_channel(server.channel)
    for number in range(1, ROUNDS + 1):
        server.broadcast_model(clients)
        for client in clients:
            client.local_update(number)
        server.aggregate(clients, server.receive_client_models(clients, state_dict=False))
    return np.array([client.model.weight.item() for client in clients]), model.weight.item()


def by_paper(data, lamda):
    """Algorithm 1 with beta = 1 and one batch per round; for the loss (theta - mean)^2 the minimizer is (2 mean + lambda w) / (2 + lambda)."""
    means, common = data.mean(1), 0.0
    for _ in range(ROUNDS):
        theta = (2 * means + lamda * common) / (2 + lamda)
        common = (common - LR * lamda * (common - theta)).mean()
    return theta, common


rng = np.random.default_rng(0)
truth = 1 + 0.2 * rng.normal(size=CLIENTS)
data = truth[:, None] + rng.normal(size=(CLIENTS, EXAMPLES))
print("fluke-fl", version("fluke-fl"), "torch", version("torch").split("+")[0])
print("means of the clients' data, to which they come alone:", data.mean(1).round(2))
reference, errors = None, {}
for lamda in (0.0, 4.0, 15.0):
    (personal, common), (right, w) = by_fluke(data, lamda), by_paper(data, lamda)
    errors[lamda] = [np.sqrt(np.mean((theta - truth) ** 2)) for theta in (personal, right)]
    print(
        f"lambda = {lamda:g}: fluke {personal.round(2)}, global {common:.2f}; by the paper {right.round(2)}, global {w:.2f}; "
        f"error of fluke {errors[lamda][0]:.2f}, of the paper {errors[lamda][1]:.2f}"
    )
    reference = (personal, common) if reference is None else reference
    assert (personal == reference[0]).all() and common == reference[1], "the same to the last bit"
    assert np.allclose(personal, data.mean(1), atol=1e-3)
    assert np.allclose(right, personal, atol=1e-3) == (lamda == 0)
assert errors[15.0][1] < errors[15.0][0] / 1.5
PY
