#!/usr/bin/env bash
# FedLab 1.3.0: with FedDyn the model grows without bound, for every alpha, even where no client has a gradient.
#
# FedDyn (Acar et al. 2021, Algorithm 1) adds two terms to each client's loss, -<L_k, w> + alpha / 2 |w - w_t|^2, and corrects the mean of the
# clients' models by h <- h - alpha / m sum_k (w_k - w_t), where m is the number of all clients. FedLab's server takes (sum_k w_k) - w_t instead:
# of K models, w_t is subtracted only once. Where all clients return w_t itself, h should stay 0, and the model is yet multiplied by
# 1 + (K - 1) / m, 1.9 in the first round with ten of ten clients, and by more in the following ones. The clients' terms are computed from a
# detached copy of the parameters: they have no gradient, and a client takes the steps of FedAvg whatever alpha is. So neither the stable training
# nor the tuning of alpha for which the method is known is there; a comparison shows FedDyn as far worse than FedAvg.
#
# FedDyn as in the paper is written out below, on the same clients and with the same local steps. The packages for FedLab's data sets
# and graphics cards are replaced by placeholders. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps fedlab==1.3.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import sys
from importlib.metadata import version
from unittest.mock import MagicMock

placeholders = ("munch", "pandas", "PIL", "pynvml", "sklearn", "sklearn.datasets", "tqdm", "torchvision", "torchvision.datasets")
sys.modules |= {name: MagicMock() for name in placeholders}
import torch  # noqa: E402
from fedlab.contrib.algorithm import FedAvgSerialClientTrainer, FedAvgServerHandler, FedDynSerialClientTrainer, FedDynServerHandler  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

for name in placeholders:
    del sys.modules[name]

torch.set_default_dtype(torch.float64)
CLIENTS, EPOCHS, STEP, ROUNDS = 10, 5, 0.1, 12
generator = torch.Generator().manual_seed(0)


def client_data():
    """Forty samples of three classes by a linear rule, another one in each client."""
    x, rule = torch.randn(40, 5, generator=generator), torch.randn(5, 3, generator=generator)
    return x, (x @ rule).argmax(1)


data = [client_data() for _ in range(CLIENTS)]
start = torch.randn(15, generator=generator)


def client_loss(x, y, w):
    return cross_entropy(x @ w.view(3, 5).T, y)


def total(w):
    return sum(client_loss(x, y, w) for x, y in data).item() / CLIENTS


class Clients:
    """The interface that FedLab asks of a data set; a batch is all that a client has."""

    def __init__(self, parts):
        self.parts = parts

    def get_dataloader(self, client, batch_size):
        return DataLoader(TensorDataset(*self.parts[client]), batch_size=batch_size)


class Pipeline(StandalonePipeline):
    def evaluate(self):
        self.models = [*getattr(self, "models", ()), self.handler.model_parameters]


def fedlab(server, trainer, start, parts, rounds, **options):
    """The models after each round of FedLab, with all clients in each."""
    model = torch.nn.Linear(5, 3, bias=False)
    model.weight.data = start.view(3, 5).clone()
    handler, clients = server(model, rounds, 1.0), trainer(model, len(parts))
    if options:
        handler.setup_optim(**options)
    clients.setup_optim(EPOCHS, 40, STEP, **options)
    clients.setup_dataset(Clients(parts))
    pipeline = Pipeline(handler, clients)
    pipeline.main()
    return pipeline.models


def paper(alpha):
    """Algorithm 1 of Acar et al. (2021) with all clients in each round."""
    server, h, L = start.clone(), torch.zeros(15), [torch.zeros(15) for _ in data]
    models = []
    for _ in range(ROUNDS):
        local = []
        for k, (x, y) in enumerate(data):
            w = server.clone().requires_grad_()
            for _ in range(EPOCHS):
                loss = client_loss(x, y, w) - L[k] @ w + alpha / 2 * (w - server).square().sum()
                w = (w - STEP * torch.autograd.grad(loss, w)[0]).detach().requires_grad_()
            local.append(w.detach())
            L[k] = L[k] - alpha * (local[k] - server)
        h = h - alpha / CLIENTS * sum(w - server for w in local)
        server = sum(local) / CLIENTS - h / alpha
        models.append(server)
    return models


def row(models):
    return ", ".join(f"{total(w):.4g}" for w in [start, models[0], models[3], models[7], models[-1]])


print("fedlab", version("fedlab"), "torch", version("torch"))
print("mean loss at the start and after rounds 1, 4, 8 and 12")
average = fedlab(FedAvgServerHandler, FedAvgSerialClientTrainer, start, data, ROUNDS)
print("FedAvg by FedLab:", row(average))
seen = {}
for alpha in (0.01, 1.0):
    seen[alpha] = fedlab(FedDynServerHandler, FedDynSerialClientTrainer, start, data, ROUNDS, alpha=alpha)
    right = paper(alpha)
    print(f"FedDyn, alpha {alpha}, by FedLab: {row(seen[alpha])}; by the paper: {row(right)}")
    assert total(seen[alpha][-1]) > 1e4 and total(right[-1]) < total(average[0])
    assert torch.allclose(seen[alpha][-1], seen[0.01][-1], rtol=1e-6), "the same model for every alpha"

# equal rows of weights and all labels for the same x: every client's gradient is 0
x = torch.randn(10, 5, generator=generator).repeat_interleave(3, 0)
still = [(x, torch.arange(3).repeat(10))] * CLIENTS
row_of_ones = torch.ones(15)
leaf = row_of_ones.clone().requires_grad_()
assert torch.autograd.grad(client_loss(*still[0], leaf), leaf)[0].abs().max() < 1e-15
grown = fedlab(FedDynServerHandler, FedDynSerialClientTrainer, row_of_ones, still, 5, alpha=0.1)
print("a model of ones at which all gradients are 0 becomes", ", ".join(f"{w.mean():.4g}" for w in grown))
assert torch.allclose(grown[0], row_of_ones * 1.9)
assert grown[-1].mean() > 20
PY
