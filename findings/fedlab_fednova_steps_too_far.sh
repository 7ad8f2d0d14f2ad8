#!/usr/bin/env bash
# FedLab 1.3.0: FedNova, with its default option, makes the server's step N / K times too long when K of N clients are sampled.
#
# FedNova (Wang et al. 2020) divides each client's change by its number tau of local steps, takes the mean with the clients' shares p of the data,
# and multiplies it by the effective number of steps, sum p tau. With the same tau in all clients it is FedAvg. The factor N / K belongs to shares
# that sum to 1 over all N clients, of which only K are in the sum. FedLab gives the sampled ones 1 / K each, which sum to 1 already, and multiplies
# by N / K all the same: with a tenth of the clients in each round, the model goes ten times as far as the mean of their models. Of ten clients
# with data of one distribution, on which FedAvg halves the loss, two in each round leave it where it was at the start, and one in each round
# raises it fourfold. Where all clients take part, the factor is 1, so that a test with all of them shows nothing. The option "weighted_com" leaves
# the factor out.
#
# The packages for FedLab's data sets and graphics cards are replaced by placeholders. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" torch==2.13.0 numpy==2.4.6 2>/dev/null
"${pip[@]}" --no-deps fedlab==1.3.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import random
import sys
from importlib.metadata import version
from unittest.mock import MagicMock

placeholders = ("munch", "pandas", "PIL", "pynvml", "sklearn", "sklearn.datasets", "tqdm", "torchvision", "torchvision.datasets")
sys.modules |= {name: MagicMock() for name in placeholders}
import torch  # noqa: E402
from fedlab.contrib.algorithm import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.contrib.algorithm import FedNovaSerialClientTrainer, FedNovaServerHandler  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

for name in placeholders:
    del sys.modules[name]
torch.set_default_dtype(torch.float64)
CLIENTS, EPOCHS, STEP, ROUNDS = 10, 10, 0.8, 12
generator = torch.Generator().manual_seed(0)
start = torch.zeros(15)


def client_data(rule):
    """Sixty samples whose labels are drawn from the same linear softmax model in each client."""
    x = torch.randn(60, 5, generator=generator)
    return x, torch.multinomial((x @ rule).softmax(1), 1, generator=generator)[:, 0]


rule = torch.randn(5, 3, generator=generator)
data = [client_data(rule) for _ in range(CLIENTS)]


def total(w):
    return sum(cross_entropy(x @ w.view(3, 5).T, y) for x, y in data).item() / CLIENTS


class Clients:
    """The interface that FedLab asks of a data set; a batch is all that a client has, so that tau is the number of epochs."""

    def get_dataloader(self, client, batch_size):
        return DataLoader(TensorDataset(*data[client]), batch_size=batch_size)


class Pipeline(StandalonePipeline):
    def evaluate(self):
        self.models = [*getattr(self, "models", ()), self.handler.model_parameters]


def fedlab(server, trainer, ratio, **options):
    """The models after each round; the same seed samples the same clients."""
    random.seed(0)
    model = torch.nn.Linear(5, 3, bias=False)
    model.weight.data = start.view(3, 5).clone()
    handler, clients = server(model, ROUNDS, ratio), trainer(model, CLIENTS)
    if server is FedNovaServerHandler:
        handler.setup_optim(**options)
    clients.setup_optim(EPOCHS, 60, STEP)
    clients.setup_dataset(Clients())
    pipeline = Pipeline(handler, clients)
    pipeline.main()
    return pipeline.models


print("fedlab", version("fedlab"), "torch", version("torch"))
for sampled in (10, 2, 1):
    average = fedlab(FedAvgServerHandler, FedAvgSerialClientTrainer, sampled / CLIENTS)
    nova = fedlab(FedNovaServerHandler, FedNovaSerialClientTrainer, sampled / CLIENTS)
    com = fedlab(FedNovaServerHandler, FedNovaSerialClientTrainer, sampled / CLIENTS, option="weighted_com")
    factor = (nova[0] - start) / (average[0] - start)
    print(f"{sampled} of {CLIENTS} clients: the first step is {factor.mean():.6f} times FedAvg's; loss after {ROUNDS} rounds: {total(nova[-1]):.4g}, "
          f"FedAvg {total(average[-1]):.4g}, at the start {total(start):.4g}")
    assert torch.allclose(factor, torch.tensor(CLIENTS / sampled))
    assert all(torch.allclose(a, b) for a, b in zip(com, average, strict=True)), "with equal tau FedNova is FedAvg"
    assert total(average[-1]) < total(start)
    if sampled < CLIENTS:
        assert total(nova[-1]) > 2 * total(average[-1])
PY
