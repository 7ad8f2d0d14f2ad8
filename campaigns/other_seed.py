"""Checks whether cells of tables hold for one more seed: `python -m campaigns.other_seed --output FILE`.

One cell of each table whose numbers depend on a seed. The cell's job runs with its n seeds; one more seed
then runs from scratch, in another process and in another folder. The interval that it should lie in is
Student's 95 % prediction interval for one more run,

    mean +- t(.975, n - 1) s sqrt(1 + 1/n),

with the mean and the standard deviation s of the n seeds. It is wider than the interval of the mean, which
says nothing about a single run. With all assumptions true, one cell in 20 lies outside of it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import mobench
from experiments.ferero.images import by_ray
from experiments.mlm_cmoo.table1 import LEVELS, WINDOWS
from experiments.omd_tch.federated import FED, METRICS, SEEDS, Scenario
from mobench.artifacts.statistics import LEVEL
from mobench.metrics import hypervolume
from mobench.sweep.composer import jobs_of
from mobench.system.paths import results_root

FOLDER = "MOBENCH_OUTPUTS"
INTRODUCTION = """# Another seed

Do not edit this page: `python -m campaigns.other_seed --output docs/other_seed.md` writes it.

For each table whose numbers depend on a seed, the job of one cell runs with the seeds of the cell, and then
with one more seed: from scratch, in another process, in another folder. The other seed's number should lie in
Student's 95 % prediction interval for one more run, mean ± t(.975, n - 1) s sqrt(1 + 1/n). One of 20 lies
outside if all is well. Here {inside} of {lines} lie inside.

Cells are at laptop scale and have ten seeds where the table has fewer, because two seeds give no interval,
and three a wide one.
The hypervolume's reference point is ({nadir[0]}, {nadir[1]}), three times the losses of single tasks at this
scale. The speech cell has the three seeds of the kept rows and needs `data=speech_small`. The last lines are
at the paper's scale: FedAvg's kept rows of seeds 1 to 3 beside what the paper prints for its ten seeds.
Tables of properties and settings (`ferero/table1`, 5 to 8 and 10) have no seed; `omd_tch/table1` has choices
instead of means; `ferero/table11` has seconds, which `make reproduce` measures anew. The boards of
`cross/zoo` have a replication of their own ([protocol](protocol.md)).
"""

Cells = Callable[[mobench.Run], pd.Series]  # a number for each seed


@dataclass(frozen=True)
class Cell:
    """Describes one cell of a table.

    Args:
        table: its artifact.
        name: row and column, as the table has them.
        job: the job that the cell is made of.
        measured: what the cell says of each seed.
        seeds: those of the table, or as many as an interval needs where the table has fewer.
        other: a seed that is not among them.
        overrides: what else is set.
        kept: the folder with the rows of `seeds`, where they come with the repository.
    """

    table: str
    name: str
    job: str
    measured: Cells
    seeds: tuple[int, ...] = tuple(range(10))
    other: int = 100
    overrides: tuple[str, ...] = ("scale=laptop",)
    kept: str | None = None


def column(name: str, output: str = "last", scale: float = 1.0) -> Cells:
    """Returns the mean of a column over the runs of a seed."""

    def measured(rows: mobench.Run) -> pd.Series:
        final = rows.final
        good = final[(final["output"] == output) & (final["status"] == "done")]
        return scale * good.groupby("seed")[name].mean()

    return measured


NADIR = (0.67, 0.74)  # three times the single-task test losses at laptop scale, as in the table


def covered(rows: mobench.Run) -> pd.Series:
    """Returns 100 times the hypervolume of a seed's three points of test losses."""
    points = by_ray(rows, "test_loss_1", "test_loss_2")
    volumes = [100.0 * hypervolume(of_seed, NADIR) for of_seed in points.transpose(1, 0, 2)]
    return pd.Series(volumes, index=np.sort(rows.final["seed"].unique()))


def arrived(rows: mobench.Run) -> pd.Series:
    """Returns the step at which the running mean of the first task's losses reaches Table 1's level."""
    level = LEVELS["laptop"][0]
    history = rows.history.sort_values("step")
    means = history.groupby("seed")["f_1"].transform(lambda f: f.rolling(WINDOWS["laptop"]).mean())
    reached = history[(means <= level) & (history["step"] < rows.config["steps"])]
    return reached.groupby("seed")["step"].min().astype(float)


CELLS = (
    Cell("ferero/table2", "FERERO, Multi-MNIST loss: hypervolume x 100", "mm_ferero", covered),
    Cell(
        "ferero/table3",
        "LS, Mandarin: character error rate, %",
        "ls",
        column("test_cer_zh", scale=100.0),
        (0, 1, 2),
        overrides=("scale=laptop", "data=speech_small"),
        kept="bilingualspeech-ls-8763d78be0",
    ),
    Cell("ferero/table9", "one task alone, Multi-MNIST: test loss", "mm_single1", column("test_loss_1")),
    Cell("mlm_cmoo/table1", "MLM-CMOO, task L: steps to the loss", "mlm_cmoo_0", arrived),
    Cell(
        "omd_tch/table2",
        "AdaOMDgd-TCH, MNIST C=2: agnostic loss",
        "m2_ada_gd",
        column("agnostic_loss", "adaptive"),
    ),
    Cell("omd_tch/table2", "FedAvg, MNIST C=2: average accuracy, %", "m2_ls", column("average_accuracy")),
)


STORED = results_root() / "runs"
OF_PAPER = "federatedimages-ls-7497007376"  # FedAvg, MNIST C=5, seeds 1 to 3 at the paper's scale


@dataclass(frozen=True)
class Line:
    """Holds the number of another seed, beside the mean and standard deviation of a cell's n seeds."""

    table: str
    name: str
    mean: float
    deviation: float
    n: int
    seed: int
    found: float

    @property
    def half(self) -> float:
        """Returns half the width of the prediction interval."""
        t = stats.t.ppf(0.5 + LEVEL / 2, self.n - 1)
        return float(t * self.deviation * np.sqrt(1.0 + 1.0 / self.n))

    @property
    def inside(self) -> bool:
        """Says whether the other seed's number lies in the interval."""
        return bool(abs(self.found - self.mean) <= self.half)

    def __str__(self) -> str:
        """Returns a line of the page's table."""
        ends = f"{self.mean - self.half:.4g} to {self.mean + self.half:.4g}"
        stated = f"{self.mean:.4g} ± {self.deviation:.2g} ({self.n} seeds)"
        answer = "inside" if self.inside else "**outside**"
        cells = [self.table, self.name, stated, ends, f"{self.seed}", f"{self.found:.4g}", answer]
        return f"| {' | '.join(cells)} |"


def run(cell: Cell, seeds: tuple[int, ...], outputs: Path) -> pd.Series:
    """Returns the cell's number for each seed, from rows that a process of its own makes in that folder."""
    job = jobs_of(cell.table)[cell.job]
    command = [sys.executable, "-m", "mobench", *job, *cell.overrides, f"seeds={list(seeds)}", "logger=local"]
    subprocess.run(command, env={**os.environ, FOLDER: str(outputs)}, check=True, stdout=subprocess.DEVNULL)
    (folder,) = (outputs / "runs").iterdir()
    numbers = cell.measured(mobench.load(folder))
    missing = [seed for seed in seeds if not np.isfinite(numbers.get(seed, np.nan))]
    if missing:
        raise SystemExit(f"{cell.table}, {cell.name}: seeds {missing} have no number")
    return numbers


def checked(cell: Cell, outputs: Path) -> Line:
    """Runs a cell's seeds, unless their rows are kept, and then the other seed."""
    if cell.kept:
        values = cell.measured(mobench.load(STORED / cell.kept))
    else:
        values = run(cell, cell.seeds, outputs / "table")
    number = run(cell, (cell.other,), outputs / "other")[cell.other]
    mean = float(values.mean())
    return Line(cell.table, cell.name, mean, float(values.std()), len(values), cell.other, float(number))


def published_cells() -> list[Line]:
    """Kept rows of other seeds, beside the means and deviations of ten seeds that the paper prints."""
    rows = mobench.load(STORED / OF_PAPER)
    scenario = Scenario("m5", {"ls": rows})
    lines = []
    for metric, name in METRICS.items():
        mean, deviation = scenario.printed(FED, metric)
        for seed, number in column(name)(rows).items():
            cell = f"FedAvg, MNIST C=5: {metric}, as published"
            lines.append(Line("omd_tch/table2", cell, mean, deviation, SEEDS, int(str(seed)), float(number)))
    return lines


def page(lines: list[Line]) -> str:
    """Returns the page."""
    inside = sum(line.inside for line in lines)
    head = "| table | cell | mean ± std | 95 % for one more run | seed | found | |"
    introduction = INTRODUCTION.format(inside=inside, lines=len(lines), nadir=NADIR)
    return "\n".join([introduction, head, "|" + " --- |" * 7, *map(str, lines), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, help="where the page is written (default: standard output)")
    options = parser.parse_args()
    lines = []
    for cell in CELLS:
        with tempfile.TemporaryDirectory() as folder:
            lines.append(checked(cell, Path(folder)))
        print(lines[-1], file=sys.stderr)
    text = page([*lines, *published_cells()])
    if options.output:
        options.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
