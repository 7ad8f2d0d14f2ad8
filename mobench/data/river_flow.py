"""River flow: hourly flow at eight gauges of the Mississippi network, now and before, and 48 hours ahead
(RF1); and a generated stand-in with the same columns. Both go through the same clean-up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.random import generator
from mobench.data.images import absolute, digest_of
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

NAME = re.compile(r"""'[^']*'|"[^"]*"|[^\s,{}%'"]+""")
TYPES = ("numeric", "real", "integer")
Wrong = Callable[[str], DataError]
# all that numbers and `?` are written with: no nan, inf, hexadecimal, 1_000
CELLS = frozenset("0123456789+-.eE?, \t")


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
    path = find_file(root)
    if path is None:
        raise DataError(
            f"data=rf1 needs {FILE} in {Path(root) / FOLDER} (or in {root}), which could not be found. The "
            f"environment variable MOBENCH_DATA or data_root sets the folder {root}; the file belongs to "
            "Mulan's multi-target data sets and is not downloaded automatically. "
            "problem.data=generated is embedded and needs no file."
        )
    names, table, name_lines, row_lines = read_arff(path)
    advice = "Copy the file again. problem.data=generated is embedded and needs no file."
    wanted = (*INPUTS, *TARGETS)
    if set(names) != set(wanted):
        lost, other = (
            [a for a in some if a not in rest] for some, rest in ((wanted, names), (names, wanted))
        )
        differ = _listed(", unexpected", other) + _listed(", missing", lost)
        raise DataError(
            f"{path}, lines {name_lines[0]} to {name_lines[-1]}: {len(names)} attributes{differ}, but "
            f"expected the {len(INPUTS)} inputs SITE__0 .. SITE__n60 and the {len(TARGETS)} targets "
            f"SITE_48H__0 of {', '.join(SITES)}. {advice}"
        )
    if len(table) != ROWS:
        raise DataError(
            f"{path} has {len(table)} rows of data, the last in line {row_lines[-1]}, "
            f"but the complete file has {ROWS}. {advice}"
        )
    table = table[:, [names.index(a) for a in wanted]]
    holes = np.isnan(table[:, len(INPUTS) :])
    if holes.any():
        row, column = (int(i[0]) for i in np.nonzero(holes))
        raise DataError(
            f"{path}, line {row_lines[row]}: {TARGETS[column]} is missing. The number of "
            f"missing targets is {int(holes.sum())}, but only inputs may be missing. {advice}"
        )
    return table


def _listed(what: str, names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{what} {', '.join(names[:3])}{more}" if names else ""


def find_file(root: str | Path) -> Path | None:
    """Returns the path of the file below `root`, None where it does not exist."""
    base = Path(absolute(root))
    return next((path for path in (base / FOLDER / FILE, base / FILE) if path.is_file()), None)


# ARFF


class Arff(NamedTuple):
    """Names of the attributes, the table (NaN for `?`), and the lines of the file where each stands."""

    names: list[str]
    table: Float[np.ndarray, "rows columns"]
    name_lines: list[int]
    row_lines: list[int]


def read_arff(path: Path) -> Arff:
    """The content of an ARFF file of numbers.

    Strict: @relation, then @attribute lines of type numeric, real or integer, then @data with as many numbers
    or `?` in a line, between commas. Keywords and types in any case, names may be quoted; empty lines and
    lines that begin with % are comments. The sparse format, text, dates, weights, nan and inf are refused.
    Raises DataError with the number of the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} could not be read as text: {error}. Copy the file again.") from error

    def wrong(number: int, what: str) -> DataError:
        return DataError(f"{path}, line {number}: {what} Copy it again, or check that it is the right file.")

    names: list[str] = []
    rows: list[list[float]] = []
    name_lines: list[int] = []
    row_lines: list[int] = []
    related = data = False
    for number, whole in enumerate(lines, 1):
        line = whole.strip()
        if not line or line.startswith("%"):
            continue
        if data:
            rows.append(_cells(line, names, partial(wrong, number)))
            row_lines.append(number)
            continue
        keyword, rest = (*line.split(maxsplit=1), "")[:2]
        match keyword.lower():
            case "@relation" if not related and NAME.fullmatch(rest):
                related = True
            case "@attribute" if related:
                names.append(_attribute(rest, names, partial(wrong, number)))
                name_lines.append(number)
            case "@data" if related and names and not rest:
                data = True
            case _:
                expected = "@attribute NAME numeric or @data" if related else "@relation NAME"
                raise wrong(number, f"the header has {line[:60]!r}, but expected {expected}.")
    if not data or not rows:
        missing = "rows after @data" if data else "a header that ends with @data"
        raise wrong(len(lines), f"the file ends here, but expected {missing}.")
    return Arff(names, np.array(rows), name_lines, row_lines)


def _attribute(rest: str, names: list[str], wrong: Wrong) -> str:
    """The name that an @attribute line declares."""
    match = NAME.match(rest)
    kind = rest[match.end() :].strip() if match else ""
    if match is None or not kind or not rest[match.end()].isspace():
        raise wrong(
            f"@attribute has {rest[:60]!r}, but expected NAME numeric, with the name in quotes if it has "
            "spaces."
        )
    if kind.lower() not in TYPES:
        raise wrong(f"attribute {match[0]} is of type {kind[:40]!r}, but expected one of {', '.join(TYPES)}.")
    name = match[0][1:-1] if match[0][0] in "'\"" else match[0]
    if name in names:
        raise wrong(f"attribute {name} is declared a second time, but every name must be declared once.")
    return name


def _cells(line: str, names: list[str], wrong: Wrong) -> list[float]:
    """The numbers of a line."""
    if line.startswith("{"):
        raise wrong(
            f"the row {line[:40]!r} is in the sparse format, but expected {len(names)} numbers separated by "
            "commas."
        )
    cells = line.split(",")
    if len(cells) != len(names):
        raise wrong(f"the row has {len(cells)} cells, but expected {len(names)}, one for each attribute.")
    row: list[float] = []
    allowed = CELLS.issuperset(line)
    for name, cell in zip(names, cells, strict=True):
        text = cell.strip()
        try:
            if not allowed and not CELLS.issuperset(text):
                raise ValueError
            row.append(math.nan if text == "?" else float(text))
            if math.isinf(row[-1]):  # too large a number
                raise ValueError
        except ValueError:
            raise wrong(
                f"{name} is {text[:40]!r}, but expected a finite number, or ? for a missing one."
            ) from None
    return row


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
