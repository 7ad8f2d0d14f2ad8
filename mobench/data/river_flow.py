"""River flow: hourly flow at eight gauges of the Mississippi network, now and before, and 48 hours ahead
(RF1); and a generated stand-in with the same columns. Both go through the same clean-up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.random import generator
from mobench.data.files import absolute, advice, digest_of, missing_in, reading, require
from mobench.errors import ConfigError, DataError, choose

SITES = ("CHSI2", "NASI2", "EADM7", "SCLM7", "CLKM7", "VALI2", "NAPM7", "DLDI4")
LAGS = (0, 6, 12, 18, 24, 36, 48, 60)  # hours back
AHEAD = 48  # hours
INPUTS = tuple(f"{site}__{f'n{lag}' if lag else 0}" for lag in LAGS for site in SITES)
TARGETS = tuple(f"{site}_{AHEAD}H__0" for site in SITES)

FILE = "rf1.arff"
FOLDER = "river_flow"
ROWS = 9125  # of the file
LABELS = {"generated": "generated river flows (stand-in for RF1)", "rf1": "RF1 (river flow)"}
EMBEDDED = ("generated",)
SPLITS = ("random", "chronological")
TRAIN = 7, 10  # training rows: so many of so many
GENERATED = 1500  # complete rows of the stand-in


@dataclass(frozen=True, eq=False)
class RiverFlows:
    """Rows in z units of the training part.

    The tensors are shared by all users of the set: do not write into them.

    Fields:
        name: the argument of `river_flows`. label: for figures, a part of a sentence.
        train, test: inputs, columns `INPUTS`. train_targets, test_targets: columns `TARGETS`.
        mean, scale: of all 72 columns, inputs first: column = mean + scale * z, in the file's unit.
        rows: in the table. dropped: of them, for want of an input. clipped: cells of either split that
            clipping has changed.
        digest: sha256 of the complete rows in the file's unit, training part first, little-endian; of the
            limited sizes.
        embedded: generated, no file was read.
    """

    name: str
    label: str
    train: Float[Tensor, "N 64"]
    train_targets: Float[Tensor, "N 8"]
    test: Float[Tensor, "T 64"]
    test_targets: Float[Tensor, "T 8"]
    mean: Float[Tensor, " 72"]
    scale: Float[Tensor, " 72"]
    rows: int
    dropped: int
    clipped: int
    digest: str
    embedded: bool


def river_flows(
    name: str,
    root: str | Path,
    split: str = "random",
    train_size: int | None = None,
    test_size: int | None = None,
    clip: float = 0.005,
) -> RiverFlows:
    """The set `name`: rf1 (the file below `root`) or generated (embedded); made once in a process.

    1. Rows with a missing input are dropped (120 of 9,125 of the file: both segments of the record begin
       without lags).
    2. The first 70 %, rounded down, of a fixed random order (`random`) or of the record (`chronological`)
       train, the others test. Neighbours in time are alike: a random split measures interpolation, a
       chronological one a forecast.
    3. Every column is clipped to the `clip` .. 1 - `clip` quantiles of the training part (0: not clipped).
       Without, some gross outliers (NASI2: 78.9 against a mean of 3.5) make one task out of eight.
    4. Every column has its mean subtracted and is divided by its standard deviation (ddof 0), of the clipped
       training part.

    train_size, test_size: the first so many rows of either part; None: all. They do not change the quantiles
    and the unit. Raises ConfigError for an unknown name or an impossible size, DataError for a missing or
    wrong file. Source of the file: Spyromitros-Xioufis, Tsoumakas, Groves, Vlahavas (2016), "Multi-target
    regression via input space expansion" (Mulan). Departure: they impute missing values, the MLM-CMOO paper
    says nothing of its preparation.
    """
    choose("problem.data", name, LABELS)
    choose("problem.split", split, SPLITS)
    if not 0 <= clip < 0.5:
        raise ConfigError(
            f"problem.clip={clip} must lie in [0, 0.5); it is the share of values that is clipped at either "
            "end."
        )
    return _flows(name, "" if name in EMBEDDED else absolute(root), split, train_size, test_size, float(clip))


@lru_cache(maxsize=4)
def _flows(
    name: str, root: str, split: str, train_size: int | None, test_size: int | None, clip: float
) -> RiverFlows:
    table = _table(name, root)
    whole = ~np.isnan(table).any(1)
    rows = table[whole]
    n = len(rows) * TRAIN[0] // TRAIN[1]
    if n < 1:
        raise DataError(
            f"{LABELS[name]} has {len(rows)} complete rows, but a training and a test part need at least 2."
        )
    for key, size, largest in (("train", train_size, n), ("test", test_size, len(rows) - n)):
        if size is not None and not 1 <= size <= largest:
            raise ConfigError(
                f"problem.{key}_size={size} is out of range: {LABELS[name]} has {largest} {key} rows. Choose "
                f"1..{largest}, or null for all."
            )
    order = np.arange(len(rows))
    if split == "random":
        order = generator(0, data=name, use="split").permutation(len(rows))
    train = rows[order[:n]]
    limits = None
    if clip:
        limits = np.quantile(train, [clip, 1.0 - clip], axis=0)
        train = train.clip(*limits)
    mean = train.mean(0)
    scale = train.std(0)
    if len(flat := np.flatnonzero(scale <= 1e-12 * np.abs(mean))):
        raise DataError(
            f"{LABELS[name]}: column {(*INPUTS, *TARGETS)[flat[0]]} is constant in the training part, so it "
            "cannot be scaled. Check that the file is complete. problem.data=generated is embedded and "
            "needs no file."
        )
    parts = rows[order[:n][:train_size]], rows[order[n:][:test_size]]
    clipped = [part.clip(*limits) if limits is not None else part for part in parts]
    changed = sum(int((a != b).sum()) for a, b in zip(parts, clipped, strict=True))
    with torch.inference_mode(False):
        z = [torch.from_numpy((part - mean) / scale).tensor_split([len(INPUTS)], dim=1) for part in clipped]
        (x, y), (test, test_y) = ((a.contiguous(), b.contiguous()) for a, b in z)
        unit = torch.from_numpy(mean), torch.from_numpy(scale)
    counts = len(table), int((~whole).sum()), changed
    return RiverFlows(
        name, LABELS[name], x, y, test, test_y, *unit, *counts, digest_of(*parts), name in EMBEDDED
    )


@lru_cache(maxsize=2)
def _table(name: str, root: str) -> Float[np.ndarray, "rows 72"]:
    """All rows, inputs first; NaN where an input is missing."""
    if name in EMBEDDED:
        return generated()
    from scipy.io import arff

    path = find_file(root)
    require("rf1", root, path.parent, missing_in(path.parent, [FILE]))
    wanted = (*INPUTS, *TARGETS)
    with reading("rf1", root, path):
        rows, header = arff.loadarff(path)
        names = header.names()
        lost = [a for a in wanted if a not in names]
        table = np.stack([rows[a].astype(float) for a in wanted if a not in lost], axis=1)
    holes = int(np.isnan(table[:, -len(TARGETS) :]).sum())
    infinite = int(np.isinf(table).sum())
    if lost or len(names) != len(wanted) or len(table) != ROWS or holes or infinite:
        raise DataError(
            f"{path} has {len(table)} rows, {len(names)} columns ({len(lost)} of the expected ones are "
            f"missing{': ' + lost[0] if lost else ''}), {holes} missing targets and {infinite} infinite "
            f"numbers, but RF1 has {ROWS} rows, the {len(INPUTS)} inputs SITE__0 .. SITE__n60 and the "
            f"{len(TARGETS)} targets SITE_48H__0 of {', '.join(SITES)}, no target is missing, and all "
            f"numbers are finite. Replace it: {advice('rf1', root)}"
        )
    return table


def find_file(root: str | Path) -> Path:
    """Returns the path of the file below `root`, where it is or belongs."""
    base = Path(absolute(root))
    inside = base / FOLDER / FILE
    return base / FILE if not inside.is_file() and (base / FILE).is_file() else inside


# the stand-in

UPSTREAM: tuple[tuple[tuple[int, int], ...], ...] = (  # of each gauge: (gauge, hours of travel)
    (),
    ((0, 7),),
    ((1, 11),),
    (),
    ((3, 9),),
    ((2, 14), (4, 10)),
    (),
    ((5, 18), (6, 12)),
)


def generated() -> Float[np.ndarray, "rows 72"]:
    """Generated flows of eight gauges on one river, in the columns of RF1; the first lags are missing, too.

    Storms of some hours fall on all catchments, more or less on each. Rain wets the soil, and runs off the
    more the wetter it is (so the flow is no linear function of the rain); a fast and a slow reservoir pass it
    on:

        wet <- .98 wet + rain,   runoff = rain wet / (20 + wet),   fast <- .985 fast + .015 runoff,
            slow <- .995 slow + .005 rain

    A gauge has the reservoirs of its own catchment and the flow of the gauges upstream, some hours later, all
    times exp(AR(1)); then come 1 % of noise and two decimals. Nothing of it is measured.
    """
    first = max(LAGS)
    burn = 600
    hours = burn + first + GENERATED + AHEAD
    rng = generator(0, data="river_flow", use="generated")
    rain = np.zeros((hours, len(SITES)))
    begins = np.flatnonzero(rng.random(hours) < 1 / 45)
    for begin in begins:
        length = int(rng.integers(4, 24))
        depth = rng.exponential(3.0)
        rain[begin : begin + length] += depth * rng.gamma(2.0, 0.5, size=len(SITES))
    area = rng.uniform(5.0, 20.0, len(SITES))
    base = rng.uniform(1.0, 4.0, len(SITES))
    noise = rng.standard_normal((hours, len(SITES)))
    wet, fast, slow, drift = (np.zeros(len(SITES)) for _ in range(4))
    flow = np.zeros((hours, len(SITES)))
    for t in range(hours):
        wet = 0.98 * wet + rain[t]
        fast = 0.985 * fast + 0.015 * rain[t] * wet / (20.0 + wet)
        slow = 0.995 * slow + 0.005 * rain[t]
        drift = 0.98 * drift + 0.006 * noise[t]
        for i, above in enumerate(UPSTREAM):  # gauges upstream come first
            comes = sum(flow[max(t - delay, 0), j] for j, delay in above)
            flow[t, i] = (base[i] + area[i] * (fast[i] + slow[i]) + comes) * math.exp(drift[i])
    seen = np.round(flow * (1.0 + 0.01 * rng.standard_normal(flow.shape)), 2)[burn:]
    now = np.arange(first + GENERATED)
    columns = []
    for lag in LAGS:
        past = seen[np.maximum(now - lag, 0)]
        past[now < lag] = np.nan
        columns.append(past)
    return np.concatenate([*columns, seen[now + AHEAD]], axis=1)
