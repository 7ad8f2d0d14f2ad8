"""Starts theta_0: the kinds that a configuration can name, and how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.preferences import Runs
from mobench.core.random import generator
from mobench.errors import ConfigError, choose

if TYPE_CHECKING:
    from mobench.core.problem import Problem

START_KINDS = {
    "uniform": ("low", "high"),
    "constant": ("value",),
    "alternating": ("scale", "noise"),
    "alternating_uniform": ("low", "high"),
    "halves": ("value",),
    "normal": ("scale",),
}


def check_start(start: Mapping[str, Any], kinds: Mapping[str, tuple[str, ...]]) -> None:
    """Raises ConfigError unless `start` is of one of the kinds, with the keys that the kind needs."""
    # null removes a key: configuration files merge, so a start of another kind inherits the old keys
    options = {k: v for k, v in dict(start).items() if v is not None}
    kind = choose("problem.start.kind", str(options.pop("kind", "")), kinds)
    options.pop("per_preference", None)
    required = kinds[kind]
    if set(options) != set(required):
        raise ConfigError(
            f"problem.start with kind={kind!r} needs the keys {', '.join(required) or 'none'} (optional: "
            f"per_preference), but the keys found are {', '.join(sorted(options)) or 'none'}. "
            "Set an inherited key to null to remove it."
        )


def start_generator(problem: Problem, runs: Runs, run: int, **axes: object) -> np.random.Generator:
    """The generator of a run's start, keyed by problem, seed, `axes` and, if `start` says so, preference."""
    if problem.start.get("per_preference", False):
        axes["preference"] = runs.name(run)
    return generator(int(runs.seeds[run]), problem=problem.name, use="start", **axes)


def drawn_start(problem: Problem, runs: Runs) -> Float[Tensor, "R P"]:
    """theta_0 of one of START_KINDS, float64 on the CPU."""
    P = problem.dim
    o = dict(problem.start)
    kind = o["kind"]
    sign = np.where(np.arange(P) % 2 == 0, 1.0, -1.0)
    rows = []
    for r in range(len(runs)):
        rng = start_generator(problem, runs, r)
        if kind == "uniform":
            row = rng.uniform(o["low"], o["high"], P)
        elif kind == "constant":
            row = np.full(P, float(o["value"]))
        elif kind == "alternating":
            row = o["scale"] * sign + o["noise"] * rng.standard_normal(P)
        elif kind == "alternating_uniform":
            row = rng.uniform(o["low"], o["high"], P) * (-1.0) ** int(runs.index[r])
        elif kind == "normal":
            row = o["scale"] * rng.standard_normal(P)
        else:
            row = np.where(np.arange(P) < math.ceil(P / 2), 1.0, -1.0) * float(o["value"])
        rows.append(row)
    return torch.from_numpy(np.stack(rows))
