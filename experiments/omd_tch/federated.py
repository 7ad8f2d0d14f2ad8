"""OMD-TCH's federated scenarios: what the jobs of a column of Table 2 measured, beside what is printed.

Figures 3, 5, 6 and 7 are in `federated_figures`, Tables 1 and 2 in `selection` and `table2`; what the paper
says of a scenario is in `statements`. Criteria were fixed before any run.

The published numbers belong to MNIST and CIFAR-10 at paper scale: on other data or at another scale the
statements are shown, not judged. Each statement is judged in one place. What concerns FedAvg, TCH and the OMD
family on MNIST Rotation is judged in fig3a, whose rows are kept; the same of the other scenarios, and all
other methods, in table2; figures 3 and 6 refer to both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, JobRows, RunCount, tables
from mobench.artifacts.checks import Check, Count
from mobench.artifacts.published import published
from mobench.artifacts.rows import SomeJobs
from mobench.artifacts.statistics import Mean
from mobench.jobs.store import columns

SCENARIOS = {
    "mr": "MNIST Rotation",
    "m2": "MNIST C=2",
    "m5": "MNIST C=5",
    "cr": "CIFAR10 Rotation",
    "c2": "CIFAR10 C=2",
    "c5": "CIFAR10 C=5",
}
MNIST = ("mr", "m2", "m5")
SEEDS = 10  # of the paper's means
FULL = ("MNIST", "CIFAR-10")  # labels of the paper's data at their full size
LOSS = "worst_train_loss"
ACCURACY = "average accuracy"
AGNOSTIC = "agnostic loss"
PARITY = "accuracy parity"
METRICS = {ACCURACY: "average_accuracy", AGNOSTIC: "agnostic_loss", PARITY: "accuracy_parity"}
TOLERANCE = {ACCURACY: 0.5, AGNOSTIC: 0.03, PARITY: 0.5}
WRITTEN = {ACCURACY: "accuracy, %", AGNOSTIC: "worst loss", PARITY: "parity, pp"}
FAIRNESS = (AGNOSTIC, PARITY)
FED = "LS(FedAvg)"
PAIRS = {"gd": ("OMDgd-TCH(AFL)", "AdaOMDgd-TCH"), "eg": ("OMDeg-TCH", "AdaOMDeg-TCH")}
# column of Table 2 -> (job, output rule)
COLUMNS = {
    FED: ("ls", "last"),
    "qFFL": ("qffl", "last"),
    "PropFair": ("propfair", "last"),
    "FedMGDA+": ("fedmgda_plus", "last"),
    "FedFV": ("fedfv", "last"),
    "TCH": ("tch", "last"),
    "STCH(TERM)": ("stch", "last"),
    "OMDgd-TCH(AFL)": ("omd_gd", "mean"),
    "AdaOMDgd-TCH": ("ada_gd", "adaptive"),
    "OMDeg-TCH": ("omd_eg", "mean"),
    "AdaOMDeg-TCH": ("ada_eg", "adaptive"),
}
# What the published AdaOMD columns are of: in the released program the stored iterates are the live model, so
# that its adaptive average is the last iterate whatever the weights. The true average is in COLUMNS.
LAST = {
    "last iterate of AdaOMDgd-TCH": ("ada_gd", "last"),
    "last iterate of AdaOMDeg-TCH": ("ada_eg", "last"),
}
COMPARED = (FED, "TCH", *PAIRS["gd"], *PAIRS["eg"])  # by every artifact


@dataclass(frozen=True)
class Scenario:
    """One column block of Table 2: its jobs by method."""

    key: str
    jobs: Mapping[str, JobRows]

    @property
    def name(self) -> str:
        return SCENARIOS[self.key]

    @property
    def on_mnist(self) -> bool:
        return self.key[0] == "m"

    @property
    def words(self) -> dict[str, Any]:
        """Words of the ids and texts of its claims; ids start with "m{setting}-" or "c{setting}-"."""
        return {"setting": self.key[1], "name": self.name}

    @cached_property
    def data(self) -> str:
        return str(self.jobs["ls"].meta["data"])

    @property
    def seeds(self) -> int:
        return len(self.jobs["ls"].config["seeds"])

    @property
    def first_seed(self) -> int:
        return int(self.jobs["ls"].final["seed"].iloc[0])

    @property
    def span(self) -> str:
        return "one seed" if self.seeds == 1 else f"{self.seeds} seeds"

    @property
    def alone(self) -> str:
        """In place of an interval, of what is not one number."""
        return f"{self.span}, no interval" if self.seeds < 3 else "not one number, no interval"

    @property
    def titled(self) -> str:
        """For panels and rows of tables: the paper's name, and what the data are if not the paper's."""
        if self.data in FULL:
            return self.name
        embedded = bool(self.jobs["ls"].meta["embedded"])
        return f"{self.name} ({'stand-in: digits' if embedded else 'subset'})"

    def job(self, column: str) -> str | None:
        """Name of a column's job; where OMD and AdaOMD have one step, they share one. None: not run here."""
        name = (COLUMNS | LAST)[column][0]
        return next((n for n in (name, name.replace("ada", "omd")) if n in self.jobs), None)

    def has(self, column: str) -> bool:
        return self.job(column) is not None

    def source(self, column: str) -> tuple[JobRows, str]:
        """Job and output rule of a column that was run."""
        name, output = (COLUMNS | LAST)[column]
        return self.jobs[self.job(column) or name], output

    def names(self, *column_names: str) -> set[str]:
        """Returns the artifact's names of the jobs of these columns; without columns, of all the jobs."""
        return {f"{self.key}_{name}" for name in (map(self.job, column_names) if column_names else self.jobs)}

    def borrowed(self, column: str) -> bool:
        """True if AdaOMD is read off a trajectory with another lambda step than its winner of Table 1."""
        if not column.startswith("Ada"):
            return False
        step = float(self.source(column)[0].config["algorithm"]["lambda_step"])
        winner = published("omd_tch/table1").number(row=column, column=self.name)
        return not np.isclose(0.1 * step, winner)

    def values(self, column: str, name: str) -> np.ndarray:
        """A metric or final column, one value per finished seed in order; one NaN where none finished."""
        rows = self._finished[column]
        return rows[METRICS.get(name, name)].to_numpy(dtype=float) if len(rows) else np.array([np.nan])

    @cached_property
    def _finished(self) -> dict[str, pd.DataFrame]:
        """The final rows of each column's finished seeds, in order; tables and checks ask for them often."""
        out = {}
        for column in filter(self.has, COLUMNS | LAST):
            job, output = self.source(column)
            rows = job.final
            out[column] = rows[(rows["output"] == output) & (rows["status"] == "done")].sort_values("seed")
        return out

    def runs(self, column: str) -> RunCount:
        job, output = self.source(column)
        return RunCount.of(job.final[job.final["output"] == output])

    def mean(self, column: str, name: str) -> float:
        return float(self.values(column, name).mean())

    def over(self, column: str, name: str) -> Mean:
        return Mean(self.values(column, name), least=3)

    def gap(self, one: str, other: str, name: str) -> Mean:
        """Difference of two columns' means, paired by seed; without an interval where seeds were lost."""
        a, b = self.values(one, name), self.values(other, name)
        return Mean(a - b if len(a) == len(b) else np.array([a.mean() - b.mean()]), least=3)

    def interval(self, one: str, other: str, metric: str) -> str:
        """The 95 % interval of the difference seed by seed, in words; none where a run of either was lost."""
        a = self.values(one, metric)
        b = self.values(other, metric)
        both = len(a) == len(b) == self.seeds
        units = {
            ACCURACY: " pp of accuracy",
            PARITY: " pp of parity",
            AGNOSTIC: ", the difference of the agnostic losses",
        }
        unit = units.get(metric, "")
        return Mean(a - b if both else np.array([]), least=3).ends(unit=unit)

    def curve(self, column: str, name: str, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Recorded rounds and a column of the history: of one seed, or the mean over those that finished."""
        job, output = self.source(column)
        ends = job.final
        finished = ends.loc[(ends["output"] == output) & (ends["status"] == "done"), "run"]
        rows = job.history
        rows = rows[rows["output"] == output]
        # the average after round T is that of theta^1..T, which the row of theta^T has already
        if output != "last":
            rows = rows[rows["step"] < rows["step"].max()]
        if seed is not None:
            rows = rows[rows["seed"] == seed]
        # rounds stay where no run finished, without a value
        mean = rows[name].where(rows["run"].isin(finished)).groupby(rows["step"]).mean()
        return mean.index.to_numpy(), mean.to_numpy()

    def printed(self, column: str, metric: str) -> tuple[float, float]:
        """Published mean and standard deviation; of CIFAR-10 those of the authors' result listing.

        NaN: none.
        """
        column = column.removeprefix("last iterate of ")
        return printed_cells().get((self.name, column, metric), (float("nan"), float("nan")))

    def printed_gap(self, one: str, other: str, metric: str) -> float:
        return self.printed(one, metric)[0] - self.printed(other, metric)[0]

    def rounds_alone(self, column: str) -> tuple[pd.Series, bool]:
        """Returns the recorded rounds in which an adaptive average has exactly the last iterate's values.

        They are by seed and step, of all objectives and metrics. The second value says whether the average
        after round T has the values of theta^(T) for every seed.
        """
        job, output = self.source(column)
        rows = job.history
        names = [*columns(rows, "f_"), *METRICS.values()]
        adaptive, last = (
            rows[rows["output"] == o].set_index(["seed", "step"])[names].sort_index()
            for o in (output, "last")
        )
        T = rows["step"].max()
        steps = last.index.get_level_values("step")
        evaluated = steps[steps < T].max()
        ends = (
            adaptive.xs(T, level="step").to_numpy(),
            last.xs(evaluated, level="step").to_numpy(),
        )
        return (adaptive == last).all(axis=1), np.array_equal(*ends) and bool(evaluated == T - 1)


@cache
def printed_cells() -> dict[tuple[str, str, str], tuple[float, float]]:
    """Returns mean and standard deviation by scenario, column and metric: of MNIST those of Table 2."""
    listed = published("omd_tch/listing").where(artifact="omd_tch/listing_test").rows
    rows = pd.concat([listed[listed["row"].str.startswith("CIFAR")], published("omd_tch/table2").rows])
    numbers = rows[["value", "std"]].astype(float).itertuples(index=False, name=None)
    keys = rows[["row", "column", "metric"]].itertuples(index=False, name=None)
    return dict(zip(keys, numbers, strict=True))


def as_published(column: str) -> str:
    """Returns the column of ours that a published column is of: AdaOMD's is the last iterate."""
    last = f"last iterate of {column}"
    return last if last in LAST else column


def scenarios_of(a: Artifact) -> list[Scenario]:
    """Returns the scenarios of an artifact's jobs, in the paper's order."""
    out = []
    for key in SCENARIOS:
        jobs = {name[len(key) + 1 :]: job for name, job in a.jobs.items() if name.startswith(f"{key}_")}
        if jobs:
            out.append(Scenario(key, SomeJobs(jobs, f"{key}_")))
    return out


def whole(check: Check, scenarios: Sequence[Scenario], keys: Sequence[str] = tuple(SCENARIOS)) -> Check:
    """Returns a check of several scenarios; undecided where some of them were left out (`artifact.only`)."""
    missing = [SCENARIOS[key] for key in keys if key not in {s.key for s in scenarios}]
    why = f"It concerns {len(keys)} scenarios, of which {', '.join(missing)} were not run."
    return check.provided(not missing, why)


def fewest(scenarios: Sequence[Scenario]) -> str:
    """In place of an interval, of what concerns several scenarios."""
    return min(scenarios, key=lambda s: s.seeds).alone


def means(scenarios: Sequence[Scenario]) -> pd.DataFrame:
    """Returns mean ± population standard deviation over seeds beside what is published.

    Two significant digits of the deviation; none of fewer than five seeds.
    """
    lines = []
    for s in scenarios:
        for column in filter(s.has, [*COLUMNS, *LAST]):
            line: dict[str, Any] = {"scenario": s.titled, "method": column}
            for metric in METRICS:
                values = s.values(column, metric)
                mean, spread = s.printed(column, metric)
                line[metric] = ours(values) + s.runs(column).short
                line[f"{metric}, published"] = "–" if np.isnan(mean) else tables.spread(mean, spread)
            worst = s.values(column, LOSS)
            line["worst client's training loss"] = f"{worst.mean():.3f}"
            line["seeds"] = len(worst)
            lines.append(line)
    return pd.DataFrame(lines)


def ours(values: np.ndarray) -> str:
    """Writes a mean over seeds with its population standard deviation."""
    return tables.spread(float(values.mean()), float(values.std()), len(values))


def by_method(scenarios: Sequence[Scenario]) -> tuple[pd.DataFrame, set[tables.Cell]]:
    """Returns Table 2 in the paper's layout: methods as columns, ours and in brackets what is published.

    The second value is the cells in bold type: the best of each row, and cells that are written like it.
    """
    lines: list[dict[str, Any]] = []
    best: set[tables.Cell] = set()
    for s in scenarios:
        columns = [c for c in [*COLUMNS, *LAST] if s.has(c)]
        for metric in METRICS:
            line = {"scenario": s.titled, "metric": WRITTEN[metric]}
            for column in columns:
                mean, spread = s.printed(column, metric)
                listed = not np.isnan(mean) and as_published(column) == column
                printed = f" [{tables.spread(mean, spread)}]" if listed else ""
                line[column] = ours(s.values(column, metric)) + s.runs(column).short + printed
            means_of = {c: float(s.values(c, metric).mean()) for c in COLUMNS if s.has(c)}
            choose = max if metric == ACCURACY else min
            top = ours(s.values(choose(means_of, key=lambda c: means_of[c]), metric)).split()[0]
            best |= {(len(lines), c) for c in columns if ours(s.values(c, metric)).split()[0] == top}
            lines.append(line | {"seeds": s.seeds})
    return pd.DataFrame(lines).fillna("–"), best


def most_cells(near: Mapping[str, bool], what: str, close: str) -> Check:
    """Checks that at least 80 % of the cells are close to the printed ones."""
    return Count(near, math.ceil(0.8 * len(near)), what=what).because(f"80 % of the cells; {close}")


def notes(a: Artifact, scenarios: Sequence[Scenario]) -> None:
    """Says what a reader must know about data and scale."""
    words = dict.fromkeys(f"{s.name.split()[0]}: {s.data}" for s in scenarios)
    if not a.on_papers_data():
        rounds = {s.name.split()[0]: s.jobs["ls"].config["steps"] for s in scenarios}
        said = ", ".join(f"{data} {steps}" for data, steps in rounds.items())
        a.note(
            f"Not the paper's data or scale. In place of {'; '.join(words)}. Rounds: {said}; "
            f"{scenarios[0].span}. The paper's setting: scale=paper data=mnist."
        )
    a.note(
        "The weights 1/10 of the preference are absorbed in the server's step, so that weights of clients "
        "sum to 1. The adaptive average is set beside the last iterate of its trajectory: where every loss "
        "falls in every round they are the same network."
    )
