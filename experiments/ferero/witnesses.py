"""Test losses of networks that the authors trained on their pictures, by where ours have their items:

    python -m experiments.ferero.witnesses FOLDER

FOLDER holds mnist.npz, fashion.npz and fashion_and_mnist.npz: arrays conv1.weight, ..., task_1.bias of the
networks in the public repository of FERERO, each trained for 100 epochs on task 2 of its set alone. The
official files of MNIST and Fashion-MNIST are looked for in $MOBENCH_DATA. Writes
experiments/results/ferero/networks.csv: for each set, join, kind of partner and position (a, b) of both items
on the diagonal, the mean loss, the standard deviation of a picture's loss and the accuracy, over 20,000 pairs
of test images, the same pairs at all positions.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as nn

from mobench.core.random import generator
from mobench.data.files import default_root
from mobench.data.images import SIZE, load_images
from mobench.data.multi import FAMILY, SHIFT, overlap, partners
from mobench.errors import DataError
from mobench.models.convnet import model
from mobench.system.files import write_atomic
from mobench.system.paths import results_root

NETWORKS = {"mm": "mnist", "mf": "fashion", "fm": "fashion_and_mnist"}
SETS = dict(zip(("mm", "mf", "fm"), FAMILY.values(), strict=True))
LAYERS = ("conv1", "conv2", "fc1", "task_0", "task_1")
KINDS = (
    ("sum", "other"),
    ("sum", "any"),
    ("maximum", "other"),
    ("maximum", "any"),
)  # join, partners' classes
EVERYWHERE = {"mm": ("sum", "other"), "mf": ("sum", "other"), "fm": ("sum", "any")}  # else a < 5, b > 3
CHUNK = 500
HEADER = """\
# Written by python -m experiments.ferero.witnesses.
# Networks: github.com/lisha-chen/FERERO (task 2 alone, 100 epochs).
# Pairs: 20,000, of MNIST's and Fashion-MNIST's official test images; white is 255.
"""


def table() -> Path:
    return results_root() / "ferero" / "networks.csv"


def network(path: Path) -> torch.Tensor:
    """Returns the parameters (1, 31910) of a network of the authors in the order of this project's."""
    if not path.exists():
        raise DataError(
            f"{path} is missing: an npz file of a state dictionary of FERERO's public repository."
        )
    with np.load(path) as archive:
        arrays = [archive[f"{layer}.{part}"].ravel() for layer in LAYERS for part in ("weight", "bias")]
    return torch.from_numpy(np.concatenate(arrays)).unsqueeze(0)


def positions(key: str, kind: tuple[str, str]) -> list[tuple[int, int]]:
    """Returns the positions at which a set's pictures of a kind are tried."""
    every = range(SHIFT + 1)
    if kind == EVERYWHERE[key]:
        return list(product(every, every))
    return list(product(range(5), range(4, SHIFT + 1)))


def measured(key: str, kind: tuple[str, str], theta: torch.Tensor, root: Path) -> pd.DataFrame:
    one, two = (load_images(name, root) for name in SETS[key])
    x1, y1, x2, y2 = (t.numpy() for t in (one.test, one.test_labels, two.test, two.test_labels))
    i = np.tile(np.arange(len(x1)), 2)
    j = partners(y1[i], y2, kind[1] == "other", generator(0, data="witnesses", set=key, partners=kind[1]))
    labels = torch.from_numpy(y2[j])
    net = model("lenet", 2, SIZE + SHIFT)
    rows = []
    for a, b in positions(key, kind):
        pictures = torch.from_numpy(
            overlap(x1, i, x2, j, np.tile([a, a, b, b], (len(i), 1)), kind[0] == "sum")
        )
        logits = [net.logits(theta, part.float(), "loop")[0, 1] for part in pictures.split(CHUNK)]
        z = torch.cat(logits)
        losses = nn.cross_entropy(z, labels, reduction="none").double()
        right = (z.argmax(-1) == labels).double()
        statistics = {"loss": losses.mean(), "std": losses.std(), "accuracy": right.mean()}
        row = {"set": key, "join": kind[0], "partner": kind[1], "a": a, "b": b, "pairs": len(i)}
        rows.append(row | {name: round(float(v), 6) for name, v in statistics.items()})
    return pd.DataFrame(rows)


@torch.inference_mode()
def main(folder: Path) -> None:
    tables = [
        measured(key, kind, network(folder / f"{name}.npz"), default_root())
        for key, name in NETWORKS.items()
        for kind in KINDS
    ]
    write_atomic(table(), (HEADER + pd.concat(tables).to_csv(index=False)).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
