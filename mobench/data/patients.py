"""Scikit-learn's diabetes data as a classification: ten measurements of 442 patients, and whether the disease
has progressed more than in half of them a year later (Efron et al. 2004).
"""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.random import generator

TEST_SHARE = 4  # one patient in four is in the test part
# column of the file and least value of the protected group: kg/m^2, years, the second of two codes
GROUPS = {"bmi": (2, 30.0), "age": (0, 50.0), "sex": (1, 2.0)}


@dataclass(frozen=True)
class Part:
    """x (N, 11): the measurements in z units of the training part, and 1; y (N,), s (N,): progressed,
    protected group.
    """

    x: Float[Tensor, "N D"]
    y: Bool[Tensor, " N"]
    s: Bool[Tensor, " N"]


@dataclass(frozen=True)
class Patients:
    """Training and test part."""

    train: Part
    test: Part
    digest: str
    label: str = "diabetes (scikit-learn)"
    embedded: bool = True


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Measurements (442, 10) and progression (442,), read from scikit-learn's files without importing it,
    which takes longer than a short job; where they lie elsewhere, `load_diabetes` finds them.
    """
    spec = importlib.util.find_spec("sklearn")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place, "datasets", "data")
        paths = [folder / "diabetes_data_raw.csv.gz", folder / "diabetes_target.csv.gz"]
        if all(path.is_file() for path in paths):
            tables = []
            for path in paths:
                with gzip.open(path, "rt", encoding="utf-8") as lines:
                    tables.append(np.loadtxt(lines))
            return tables[0], tables[1]
    from sklearn.datasets import load_diabetes

    found = load_diabetes(scaled=False)
    return found.data, found.target


@lru_cache(maxsize=4)
def patients(protected: str) -> Patients:
    """The data, with one of `GROUPS` as the protected group."""
    table, progression = _tables()
    column, least = GROUPS[protected]
    group = table[:, column] >= least
    order = generator(0, data="patients", use="split").permutation(len(table))
    test = order[: len(table) // TEST_SHARE]
    train = order[len(table) // TEST_SHARE :]
    mean = table[train].mean(0)
    scale = table[train].std(0)
    label = progression > np.median(progression)
    digest = sha256(np.ascontiguousarray(table).tobytes() + np.ascontiguousarray(progression).tobytes())

    def part(rows: np.ndarray) -> Part:
        x = np.hstack([(table[rows] - mean) / scale, np.ones((len(rows), 1))])
        return Part(*(torch.from_numpy(a) for a in (x, label[rows], group[rows])))

    with torch.inference_mode(False):
        return Patients(part(train), part(test), digest.hexdigest())
