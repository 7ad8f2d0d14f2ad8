"""OMD-TCH's federated artifacts: Figures 3, 5, 6, 7 and Tables 1, 2.

Criteria are the specification's, fixed before any run.

The published numbers belong to MNIST and CIFAR-10 at paper scale: on other data or at another scale the
statements are shown, not judged. Each statement is judged in one place. What concerns FedAvg, TCH and the OMD
family on MNIST Rotation is judged in fig3a, whose rows are kept; the same of the other scenarios, and all
other methods, in table2; figures 3 and 6 refer to both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import ticker
from scipy import stats

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.published import published
from mobench.data.clients import Clients
from mobench.jobs.store import columns
from mobench.problems import FederatedImages

from .partitions import class_counts_figure

SCENARIOS = {
    "mr": "MNIST Rotation",
    "m2": "MNIST C=2",
    "m5": "MNIST C=5",
    "cr": "CIFAR10 Rotation",
    "c2": "CIFAR10 C=2",
    "c5": "CIFAR10 C=5",
}
SEEDS = 10  # of the paper's means
FULL = ("MNIST", "CIFAR-10")  # labels of the paper's data at their full size
METRICS = {
    "average accuracy": "average_accuracy",
    "agnostic loss": "agnostic_loss",
    "accuracy parity": "accuracy_parity",
}
TOLERANCE = {"average accuracy": 0.5, "agnostic loss": 0.03, "accuracy parity": 0.5}
# column of Table 2 -> (job, output rule)
COLUMNS = {
    "LS(FedAvg)": ("ls", "last"),
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
# rows that the paper does not have: the adaptive average may be nothing else than the last iterate
LAST = {
    "last iterate of AdaOMDgd-TCH": ("ada_gd", "last"),
    "last iterate of AdaOMDeg-TCH": ("ada_eg", "last"),
}
COMPARED = ("LS(FedAvg)", "TCH", "OMDgd-TCH(AFL)", "AdaOMDgd-TCH", "OMDeg-TCH", "AdaOMDeg-TCH")
LOOKS: dict[str, tuple[str, str, str]] = {  # colour, line, marker
    "LS(FedAvg)": (st.BLACK, "-", "o"),
    "TCH": (st.GREY, "-", "s"),
    "OMDgd-TCH(AFL)": (st.SKY, "-", "^"),
    "AdaOMDgd-TCH": (st.BLUE, "-", "D"),
    "OMDeg-TCH": (st.ORANGE, "--", "v"),
    "AdaOMDeg-TCH": (st.RED, "--", "P"),
}
PAIRS = {"gd": ("OMDgd-TCH(AFL)", "AdaOMDgd-TCH"), "eg": ("OMDeg-TCH", "AdaOMDeg-TCH")}


@dataclass(frozen=True)
class Scenario:
    """One column block of Table 2: its jobs by method."""

    key: str
    jobs: Mapping[str, JobRows]

    @property
    def name(self) -> str:
        """Name in the paper."""
        return SCENARIOS[self.key]

    @cached_property
    def data(self) -> str:
        """What the images are."""
        return str(self.jobs["ls"].meta["data"])

    @property
    def seeds(self) -> int:
        """How many were run."""
        return len(self.jobs["ls"].config["seeds"])

    @cached_property
    def embedded(self) -> bool:
        """Whether the images are the stand-ins that come with the project."""
        return bool(self.jobs["ls"].meta["embedded"])

    @property
    def titled(self) -> str:
        """For a panel: the paper's name, or what stands for it."""
        return self.name if self.data in FULL else f"{self.name}: {'stand-in' if self.embedded else 'subset'}"

    def job(self, column: str) -> str | None:
        """Name of a column's job; where OMD and AdaOMD have one step, they share one. None: not run here."""
        name = (COLUMNS | LAST)[column][0]
        return next((n for n in (name, name.replace("ada", "omd")) if n in self.jobs), None)

    def names(self, *shown: str) -> set[str]:
        """What the artifact calls the jobs of these columns (none given: all of the scenario's)."""
        jobs = self.jobs if not shown else [self.job(column) for column in shown]
        return {f"{self.key}_{name}" for name in jobs}

    def borrowed(self, column: str) -> bool:
        """Whether AdaOMD is read off a trajectory with another lambda step than its own winner of Table 1."""
        found = self.source(column)
        if found is None or not column.startswith("Ada"):
            return False
        cells = published("omd_tch/table1").rows
        cell = cells[(cells["row"] == column) & (cells["column"] == self.name)]
        return not np.isclose(
            0.1 * float(found[0].config["algorithm"]["lambda_step"]), float(cell["value"].iloc[0])
        )

    def source(self, column: str) -> tuple[JobRows, str] | None:
        """Job and output rule of a column. None: not run here."""
        name = self.job(column)
        return None if name is None else (self.jobs[name], (COLUMNS | LAST)[column][1])

    def has(self, *columns: str) -> bool:
        """Whether all of the columns were run."""
        return all(self.source(c) is not None for c in columns)

    @property
    def pairs(self) -> dict[str, tuple[str, str]]:
        """OMD and AdaOMD by mirror map, where they were run."""
        return {kind: pair for kind, pair in PAIRS.items() if self.has(*pair)}

    def values(self, column: str, name: str) -> np.ndarray:
        """A final column, one value per finished seed, ordered by seed; one NaN where none finished."""
        found = self.source(column)
        assert found is not None
        job, output = found
        rows = job.final
        rows = rows[(rows["output"] == output) & (rows["status"] == "done")].sort_values("seed")
        return rows[name].to_numpy(dtype=float) if len(rows) else np.array([np.nan])

    def runs(self, column: str) -> RunCount:
        """How many seeds of a column finished."""
        found = self.source(column)
        assert found is not None
        return RunCount.of(found[0].final[found[0].final["output"] == found[1]])

    def paired(self, one: str, other: str, name: str, sign: float = -1.0) -> np.ndarray:
        """One column plus `sign` times another, seed by seed; no values where a run of either was lost."""
        a = self.values(one, name)
        b = self.values(other, name)
        return a + sign * b if len(a) == len(b) == self.seeds else np.array([])

    def mean(self, column: str, name: str) -> float:
        """Mean over seeds."""
        return float(self.values(column, name).mean())

    def curve(self, column: str, name: str, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Recorded rounds and a column of the history: of one seed, or the mean over seeds."""
        found = self.source(column)
        assert found is not None
        job, output = found
        rows = job.history
        rows = rows[rows["output"] == output]
        # the average after round T is that of theta^1..T, which the row of theta^T has already
        if output != "last":
            rows = rows[rows["step"] < rows["step"].max()]
        if seed is not None:
            rows = rows[rows["seed"] == seed]
        mean = rows.groupby("step")[name].mean()
        return mean.index.to_numpy(), mean.to_numpy()

    def printed(self, column: str, metric: str) -> tuple[float, float]:
        """Published mean and standard deviation; of CIFAR-10 those of the authors' result listing.

        NaN: none.
        """
        cells = _cells_of("table2" if self.key[0] == "m" else "table2_cifar10_reference")
        return cells.get((self.name, column, metric), (float("nan"), float("nan")))


@cache
def _cells_of(name: str) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Mean and standard deviation by scenario, column and metric."""
    rows = published(f"omd_tch/{name}").rows
    keys = zip(rows["row"], rows["column"], rows["metric"], strict=True)
    return dict(
        zip(keys, zip(rows["value"].astype(float), rows["std"].astype(float), strict=True), strict=True)
    )


def scenarios(a: Artifact) -> list[Scenario]:
    """The scenarios of an artifact's jobs, in the paper's order."""
    out = []
    for key in SCENARIOS:
        jobs = {name[len(key) + 1 :]: job for name, job in a.jobs.items() if name.startswith(f"{key}_")}
        if jobs:
            out.append(Scenario(key, jobs))
    return out


def _notes(a: Artifact, shown: Sequence[Scenario]) -> None:
    """What a reader must know about data and scale."""
    words = dict.fromkeys(f"{s.name.split()[0]}: {s.data}" for s in shown)
    if not a.on_papers_data():
        first = shown[0].jobs["ls"].config
        a.note(
            f"Not the paper's data or scale. In place of {'; '.join(words)}. {first['steps']} rounds, "
            f"{_seeds(shown[0])}. The published numbers are shown, not compared. The paper's setting: "
            f"scale=paper data=mnist."
        )
    a.note(
        "The weights 1/10 of the preference are absorbed in the server's step, so that weights of clients "
        "sum to 1. The adaptive average is set beside the last iterate of its trajectory: where every loss "
        "falls in every round they are the same network."
    )


# figures


def _draw_curves(ax: Any, s: Scenario, name: str, seed: int | None, label: str) -> None:
    for column in COMPARED:
        if not s.has(column):
            continue
        steps, values = s.curve(column, name, seed)
        colour, line, _ = LOOKS[column]
        ax.plot(steps, values, line, color=colour, lw=1.1, label=column)
    low, high = ax.dataLim.intervaly
    if high > 4 * low:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(ticker.NullLocator())
    ax.set_xlabel("round")
    ax.set_ylabel(label)


def _draw_scatter(ax: Any, s: Scenario) -> None:
    for column in COMPARED:
        if not s.has(column):
            continue
        x, y = (s.values(column, METRICS[m]) for m in ("average accuracy", "accuracy parity"))
        colour, _, marker = LOOKS[column]
        ax.errorbar(
            x.mean(),
            y.mean(),
            xerr=x.std(),
            yerr=y.std(),
            fmt=marker,
            color=colour,
            ms=6,
            lw=0.8,
            capsize=2,
            label=column,
        )
    ax.set_xlabel("average accuracy (%)")
    ax.set_ylabel("accuracy parity (pp)")


def _draw_boxes(ax: Any, s: Scenario, metric: str) -> None:
    shown = [c for c in COLUMNS if s.has(c)]
    parts = ax.boxplot(
        [s.values(c, METRICS[metric]) for c in shown],
        widths=0.6,
        patch_artist=True,
        medianprops={"color": st.BLACK},
        flierprops={"ms": 3},
    )
    for patch, column in zip(parts["boxes"], shown, strict=True):
        patch.set_facecolor(LOOKS[column][0] if column in LOOKS else "white")
        patch.set_alpha(0.6)
    ax.set_xticks(range(1, len(shown) + 1), shown, rotation=60, ha="right", fontsize=6.5)
    ax.set_ylabel(
        {"average accuracy": "average accuracy (%)", "accuracy parity": "accuracy parity (pp)"}.get(
            metric, metric
        )
    )


def _legend(fig: Any, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=6)


@artifact("omd_tch/fig3")
def fig3(a: Artifact) -> None:
    """Rotation: losses of the worst client for seed 0, accuracy against parity,
    all methods over the seeds.
    """
    shown = scenarios(a)
    fig, axes = st.plt.subplots(2, 6, figsize=(16, 6), layout="constrained")
    for k, s in enumerate(shown):
        seed = int(s.jobs["ls"].final["seed"].iloc[0])
        _draw_curves(axes[0, 3 * k], s, "worst_train_loss", seed, "worst client's training loss")
        axes[0, 3 * k].set_title(f"({'ac'[k]}) {s.titled}, seed {seed}")
        _draw_scatter(axes[0, 3 * k + 1], s)
        axes[0, 3 * k + 1].set_title(f"({'bd'[k]}) {len(s.jobs['ls'].config['seeds'])} seeds")
        axes[0, 3 * k + 2].set_axis_off()
        for j, metric in enumerate(METRICS):
            _draw_boxes(axes[1, 3 * k + j], s, metric)
            axes[1, 3 * k + j].set_title(f"(e) {s.name}" if j == 0 else "")
        handles, labels = axes[0, 3 * k].get_legend_handles_labels()
        axes[0, 3 * k + 2].legend(handles, labels, loc="center")
    a.figure(fig)
    a.table(_table(shown))
    for s in shown:
        if s.key == "mr":
            _refer(a, "omd_tch/fig3a", s, [*_of_curves(s), *_of_means(s)])
        else:
            _judge(a, s, _of_curves(s))
            _refer(a, "omd_tch/table2", s, _of_means(s))
    _notes(a, shown)


@artifact("omd_tch/fig3a")
def fig3a(a: Artifact) -> None:
    """MNIST Rotation, one seed: trajectories of Figure 3a, and Table 2's columns for that seed."""
    (s,) = scenarios(a)
    seed = int(s.jobs["ls"].final["seed"].iloc[0])
    fig, axes = st.panels(1, 3, size=3.4)
    _draw_curves(axes[0, 0], s, "worst_train_loss", seed, "worst client's training loss")
    _draw_curves(axes[0, 1], s, "agnostic_loss", seed, "worst client's test loss")
    _draw_scatter(axes[0, 2], s)
    for ax, letter in zip(axes[0], "abc", strict=True):
        ax.set_title(f"({letter}) {s.titled}, seed {seed}")
    _legend(fig, axes[0, 0])
    a.figure(fig)
    a.table(_table([s]))
    _judge(a, s, [*_of_curves(s), *_of_means(s)])
    _fairer_in_rotation(a, s)
    _stored(a, s)
    _cells(a, s, COMPARED, f"{s.key}-cells")
    _finding(a, s)
    _notes(a, [s])
    if s.borrowed("AdaOMDeg-TCH"):
        a.note(
            "AdaOMDeg is read off OMDeg's trajectory (lambda step 3.0, OMDeg's winner in Table 1); its own "
            "winner is 1.0. Statements about AdaOMDeg are partial at best."
        )


@artifact("omd_tch/fig5")
def fig5(a: Artifact) -> None:
    """Losses of the worst client, training and test, mean over seeds."""
    shown = scenarios(a)
    fig, axes = st.plt.subplots(
        2, len(shown), figsize=(2.7 * len(shown), 5.4), squeeze=False, layout="constrained"
    )
    below: dict[tuple[str, str], list[bool]] = {}
    for k, s in enumerate(shown):
        for row, (name, label) in enumerate((("worst_train_loss", "training"), ("agnostic_loss", "test"))):
            ax = axes[row, k]
            _draw_curves(ax, s, name, None, f"worst client's {label} loss" if k == 0 else "")
            ax.set_title(s.titled if row == 0 else "", fontsize=8.5)
            for kind, (plain, adaptive) in PAIRS.items():
                steps, one = s.curve(plain, name)
                _, other = s.curve(adaptive, name)
                late = steps >= steps[-1] / 3
                below.setdefault((label, kind), []).append(bool((other[late] < one[late]).all()))
    _legend(fig, axes[0, 0])
    a.figure(fig)
    for (label, kind), good in below.items():
        a.claim(
            f"below-{label}-{kind}",
            f"The adaptive average's {label} loss of the worst client lies below the uniform average's from "
            f"T/3 on ({kind})",
            "Figure 5",
            published="below in the drawn panels",
            measured=f"in {sum(good)} of {len(good)} scenarios: "
            + ", ".join(f"{s.name} {'yes' if g else 'no'}" for s, g in zip(shown, good, strict=True)),
            tolerance=">= 5 of 6 scenarios",
            holds=sum(good) >= 5,
            interval=_seeds_alone(shown),
        )
    _notes(a, shown)


@artifact("omd_tch/fig6")
def fig6(a: Artifact) -> None:
    """Average accuracy against accuracy parity."""
    shown = scenarios(a)
    fig, axes = st.panels(2, 3, size=3.1)
    for ax, s in zip(axes.flat, shown, strict=True):
        _draw_scatter(ax, s)
        ax.set_title(s.titled)
    _legend(fig, axes[0, 0])
    a.figure(fig)
    a.table(_table(shown))
    for s in shown:
        _refer(a, "omd_tch/fig3a" if s.key == "mr" else "omd_tch/table2", s, _of_means(s))
    _fairer(a, shown)
    _notes(a, shown)


@artifact("omd_tch/fig7")
def fig7(a: Artifact) -> None:
    """All methods over the seeds: three metrics, six scenarios."""
    shown = scenarios(a)
    fig, axes = st.plt.subplots(len(shown), 3, figsize=(11, 2.7 * len(shown)), layout="constrained")
    far = []
    for s, row in zip(shown, axes, strict=True):
        for ax, metric in zip(row, METRICS, strict=True):
            _draw_boxes(ax, s, metric)
            ax.set_title(f"{s.titled}, {metric}")
            for column in COLUMNS:
                mean, spread = s.printed(column, metric)
                median = float(np.median(s.values(column, METRICS[metric])))
                if s.key[0] == "m" and not abs(median - mean) <= spread:
                    far.append(f"{s.name} {column} {metric} {median:.3g} ({mean:.3g} ± {spread:.2g})")
    a.figure(fig)
    cells = 3 * len(COLUMNS) * sum(s.key[0] == "m" for s in shown)
    a.claim(
        "medians",
        "Medians over the seeds agree with the means of Table 2 (MNIST)",
        "Figure 7, Table 2",
        published="Table 2",
        measured=f"{cells - len(far)} of {cells} within one standard deviation"
        + (f"; not: {'; '.join(far[:8])}{' ...' if len(far) > 8 else ''}" if far else ""),
        # of ten seeds and ten others 5 % of the cells miss by chance, and cells of a scenario share their
        # seeds: 4,000 simulated tables have 84 % of their cells within (1 in 1,000: seeds explain half of the
        # variance; 76 %: nine tenths)
        tolerance="one printed standard deviation; 80 % of the cells",
        holds=len(far) <= 0.2 * cells,
        interval=_seeds_alone(shown),
        rests_on=set().union(*(s.names() for s in shown if s.key[0] == "m")),
    )
    _notes(a, shown)


# tables


def _table(shown: Sequence[Scenario]) -> pd.DataFrame:
    """Mean ± population standard deviation over seeds, the published value in parentheses."""
    rows = []
    for s in shown:
        for column in [*COLUMNS, *LAST]:
            if not s.has(column):
                continue
            line: dict[str, Any] = {"scenario": s.name, "images": s.data, "method": column}
            for metric, name in METRICS.items():
                values = s.values(column, name)
                mean, spread = s.printed(column, metric)
                spreads = f" ± {values.std():.3f}" if len(values) > 1 else ""
                line[metric] = f"{values.mean():.3f}" + spreads + s.runs(column).short
                line[f"{metric}, published"] = "–" if np.isnan(mean) else f"{mean:.3f} ± {spread:.3f}"
            worst = s.values(column, "worst_train_loss")
            line["worst client's training loss"] = f"{worst.mean():.3f}"
            line["seeds"] = len(worst)
            rows.append(line)
    return pd.DataFrame(rows)


def _cells(a: Artifact, s: Scenario, chosen: Sequence[str], id: str, others: str = "") -> None:
    """The measured cells of some columns against the published ones: within 1.5 printed standard deviations
    for a mean of ten seeds, within three for fewer.
    """
    deviations, how = (
        (1.5, "means over seeds") if s.seeds >= SEEDS else (3.0, f"{_seeds(s)} against the mean of ten")
    )
    good = 0
    far = []
    shown = [c for c in chosen if s.has(c)]
    for column in shown:
        for metric, name in METRICS.items():
            mean, spread = s.printed(column, metric)
            ours = s.mean(column, name)
            if abs(ours - mean) <= max(deviations * spread, TOLERANCE[metric]):
                good += 1
            else:
                far.append(f"{column} {metric} {ours:.3f} ({mean:.3f})")
    total = 3 * len(shown)
    enough = good >= 0.8 * total
    a.claim(
        id,
        f"Cells of Table 2 are reproduced{others}, {s.name}",
        "Table 2"
        if s.key[0] == "m"
        else "authors' result listing (the paper's text lacks this half of Table 2)",
        published="see table",
        measured=f"{good} of {total} cells, {how}" + (f"; not: {'; '.join(far)}" if far else ""),
        tolerance=f"{deviations:g} printed standard deviations, or 0.5 pp, 0.03 nats, 0.5 pp if larger; "
        "80 % of the cells",
        holds="partial" if enough and any(s.borrowed(c) for c in shown) else enough,
        reason=_borrowed(s, shown),
        interval=_alone(s),
        rests_on=s.names(*shown),
    )


@artifact("omd_tch/table2")
def table2(a: Artifact) -> None:
    """All methods, three metrics, six scenarios."""
    shown = scenarios(a)
    a.table(_table(shown))
    for s in shown:
        if s.key == "mr":
            others = [c for c in COLUMNS if c not in COMPARED]
            _cells(a, s, others, f"{s.key}-cells-others", " by the five methods that fig3a does not run")
            _refer(a, "omd_tch/fig3a", s, _of_means(s), "cells")
        else:
            _cells(a, s, list(COLUMNS), f"{s.key}-cells")
            _judge(a, s, _of_means(s))
        _finding(a, s)
    _best(a, [s for s in shown if s.key[0] == "m"])
    _text_against_table(a)
    _tch_on_cifar(a, [s for s in shown if s.key[0] == "c"])
    _ours(a, shown)
    _notes(a, shown)
    a.note(
        "CIFAR-10's half of Table 2 is not in the paper's text; its columns quote the authors' result "
        "listing, for orientation. Six of MNIST's published cells are reconstructed "
        "(experiments/omd_tch/published/table2.csv)."
    )


# statements


@dataclass(frozen=True)
class Statement:
    """What the paper says of one scenario, with what was measured.

    shown: the columns that it compares; per_seed: the measured difference seed by seed, in `unit`
    (None: not of one number); seeds: of how many of the paper's seeds it is (None: the ten of the means);
    adaptive: the adaptive average on whose account it is made.
    """

    id: str
    text: str
    source: str
    published: str
    measured: str
    tolerance: str
    holds: bool
    shown: tuple[str, ...]
    per_seed: np.ndarray | None = None
    unit: str = ""
    seeds: int | None = None
    adaptive: str | None = None


def _judge(a: Artifact, s: Scenario, statements: Sequence[Statement]) -> None:
    for x in statements:
        reason = [_borrowed(s, x.shown)]
        if x.adaptive is not None:
            reason.append(_same_as_last(s, x.adaptive))
        a.claim(
            f"{s.key}-{x.id}",
            f"{x.text}, {s.name}",
            x.source,
            published=x.published,
            measured=x.measured,
            tolerance=x.tolerance,
            holds="partial" if x.holds and reason[0] else x.holds,
            reason=" ".join(part for part in reason if part),
            interval=_alone(s) if x.per_seed is None else _interval(x.per_seed, x.unit),
            rests_on=s.names(*x.shown),
            seeds=x.seeds,
        )


def _refer(a: Artifact, artifact: str, s: Scenario, statements: Sequence[Statement], *more: str) -> None:
    a.refer(artifact, *(f"{s.key}-{x.id}" for x in statements), *(f"{s.key}-{id}" for id in more))


def _seeds(s: Scenario) -> str:
    return "one seed" if s.seeds == 1 else f"{s.seeds} seeds"


def _alone(s: Scenario) -> str:
    """In place of an interval, of what is not one number."""
    return f"{_seeds(s)}, no interval" if s.seeds < 3 else "not one number, no interval"


def _seeds_alone(shown: Sequence[Scenario]) -> str:
    return _alone(min(shown, key=lambda s: s.seeds))


def _interval(values: np.ndarray, unit: str = "") -> str:
    """The 95 % t interval of the mean over seeds, in words; none from fewer than three."""
    if len(values) < 3:
        return f"{'one seed' if len(values) == 1 else f'{len(values)} seeds'}, no interval"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return (
        f"95 % interval {values.mean() - half:.3g} to {values.mean() + half:.3g}{unit} over {len(values)} "
        "seeds"
    )


def _borrowed(s: Scenario, shown: Sequence[str]) -> str:
    """Which adaptive average has another step than the paper's."""
    named = [column for column in shown if s.borrowed(column)]
    return (
        f"{' and '.join(named)} with OMD's lambda step, not with the winner of its own in Table 1."
        if named
        else ""
    )


def _same_as_last(s: Scenario, column: str) -> str:
    """How often the adaptive average is the last iterate, if that is in most rounds:
    all that the statement then supports.
    """
    same, total, end = _rounds_alone(s, column)
    if 2 * same <= total:
        return ""
    return (
        f"AdaOMD's average is the last iterate in {same} of {total} recorded rounds"
        + (" and the last evaluated one at the end" if end else "")
        + ": this shows that the last iterate beats the uniform average, "
        "not what the adaptive weights are worth."
    )


def _rounds_alone(s: Scenario, column: str) -> tuple[int, int, bool]:
    """In how many recorded rounds (all seeds) an adaptive average has exactly the last iterate's values of
    all objectives and metrics, of how many; and whether the one after round T has those of theta^(T) for
    every seed.
    """
    found = s.source(column)
    assert found is not None
    rows = found[0].history
    names = [*columns(rows, "f_"), *METRICS.values()]
    adaptive, last = (
        rows[rows["output"] == o].set_index(["seed", "step"])[names].sort_index() for o in (found[1], "last")
    )
    same = (adaptive == last).all(axis=1)
    T = rows["step"].max()
    evaluated = last.index.get_level_values("step")[last.index.get_level_values("step") < T].max()
    end = np.array_equal(adaptive.xs(T, level="step").to_numpy(), last.xs(evaluated, level="step").to_numpy())
    return int(same.sum()), len(same), end and evaluated == T - 1


def _of_curves(s: Scenario) -> list[Statement]:
    """What Figure 3a (or 3c) shows of the training loss of the worst client; the first seed,
    as the panel draws it.
    """
    seed = int(s.jobs["ls"].final["seed"].iloc[0])
    curves = {c: s.curve(c, "worst_train_loss", seed) for c in COMPARED if s.has(c)}
    tch = curves["TCH"][1]
    ls = curves["LS(FedAvg)"][1]
    out: list[Statement] = []

    def add(
        id: str,
        text: str,
        source: str,
        published: str,
        measured: str,
        tolerance: str,
        holds: bool,
        shown: tuple[str, ...],
        adaptive: str | None = None,
    ) -> None:
        text = f"{text} ({id.rpartition('-')[2]}), seed {seed}"
        out.append(
            Statement(
                id, text, source, published, measured, tolerance, holds, shown, seeds=1, adaptive=adaptive
            )
        )

    for kind, (plain, ada) in s.pairs.items():
        steps, one = curves[plain]
        other = curves[ada][1]
        words = f"last {plain} {one[-1]:.3f}, {ada} {other[-1]:.3f}, LS {ls[-1]:.3f}"
        if s.key[0] == "m":
            good = other[-1] < one[-1] and other[-1] < ls[-1]
            add(
                f"lower-{kind}",
                "AdaOMD ends below OMD and below LS",
                "Figure 3a",
                "below",
                words,
                "strictly",
                bool(good),
                shown=("LS(FedAvg)", plain, ada),
                adaptive=ada,
            )
            area = np.trapezoid(one, steps), np.trapezoid(other, steps)
            add(
                f"area-{kind}",
                "The area under AdaOMD's curve is smaller than under OMD's",
                "Figure 3a",
                "smaller",
                f"{area[1]:.1f} against {area[0]:.1f}",
                "strictly",
                bool(area[1] < area[0]),
                shown=(plain, ada),
                adaptive=ada,
            )
            falls = float((np.diff(other[steps >= steps[-1] / 3]) < 0).mean())
            add(
                f"falls-{kind}",
                "AdaOMD's curve falls steadily in the last two thirds",
                "Figure 3a",
                "smooth",
                f"in {100 * falls:.1f} % of the rounds",
                ">= 90 %",
                falls >= 0.9,
                shown=(ada,),
            )
        else:
            add(
                f"lower-{kind}",
                "AdaOMD ends below OMD",
                "Figure 3c",
                "below",
                words,
                "strictly",
                bool(other[-1] < one[-1]),
                shown=(plain, ada),
                adaptive=ada,
            )
        bend = np.abs(np.diff(tch, 2)).mean(), np.abs(np.diff(other, 2)).mean()
        panel = "Figure 3a" if s.key[0] == "m" else "Figure 3c"
        add(
            f"oscillates-{kind}",
            "TCH oscillates, AdaOMD does not",
            panel,
            "TCH oscillates",
            f"mean |second difference|: TCH {bend[0]:.2e}, AdaOMD {bend[1]:.2e}, "
            f"ratio {bend[0] / bend[1]:.1f}",
            "ratio >= 5",
            bool(bend[0] >= 5 * bend[1]),
            shown=("TCH", ada),
        )
    return out


def _of_means(s: Scenario) -> list[Statement]:
    """What Table 2, the figures drawn from it and the text say of a scenario's means."""
    return (_of_mnist if s.key[0] == "m" else _of_cifar)(s)


def _of_mnist(s: Scenario) -> list[Statement]:
    """Claims 1 to 5, 7 and 8 of the specification, for one scenario on MNIST."""
    least = {"mr": 3.0, "m2": 0.8, "m5": 1.0}[s.key]
    acc, agn, par = (lambda c, n=n: s.mean(c, n) for n in METRICS.values())
    accuracy, agnostic, parity = METRICS.values()
    fed = "LS(FedAvg)"
    source = "Table 2, Figure 3b" if s.key == "mr" else "Table 2, Figure 6"
    out = []
    for kind, (plain, ada) in s.pairs.items():
        gap = acc(ada) - acc(plain)
        out.append(
            Statement(
                f"accuracy-{kind}",
                f"1: AdaOMD is more accurate than OMD ({kind})",
                source,
                f"{_printed(s, ada, plain, 'average accuracy'):+.1f} pp",
                f"{gap:+.2f} pp",
                f">= {least} pp",
                gap >= least,
                (plain, ada),
                s.paired(ada, plain, accuracy),
                " pp",
                adaptive=ada,
            )
        )
        ratio = agn(ada) / agn(plain)
        printed = [s.printed(c, "agnostic loss")[0] for c in (ada, plain)]
        out.append(Statement(
            f"agnostic-{kind}", f"2: AdaOMD has a smaller agnostic loss than OMD ({kind})", source,
            f"ratio {printed[0] / printed[1]:.2f}", f"ratio {ratio:.2f}", "ratio <= 0.85", ratio <= 0.85,
            (plain, ada), s.paired(ada, plain, agnostic), adaptive=ada,
        ))  # fmt: skip
        printed = [s.printed(c, "accuracy parity")[0] for c in (ada, plain)]
        out.append(
            Statement(
                f"parity-{kind}",
                f"3: AdaOMD has a smaller parity than OMD, against the text of Section 4.2 ({kind})",
                source,
                f"{printed[0]:.2f} against {printed[1]:.2f} pp in Table 2; slightly higher in the text, "
                "of Figure 3e",
                f"{par(ada):.2f} against {par(plain):.2f} pp",
                "strictly",
                par(ada) < par(plain),
                (plain, ada),
                s.paired(ada, plain, parity),
                " pp",
                adaptive=ada,
            )
        )
        # the published means of C = 5, EG differ by less than one standard deviation
        slack = s.printed(ada, "agnostic loss")[1] if (s.key, kind) == ("m5", "eg") else 0.0
        gap = abs(acc(ada) - acc(fed))
        out.append(
            Statement(
                f"fedavg-{kind}",
                f"4: AdaOMD is as accurate as FedAvg with a smaller agnostic loss ({kind})",
                source,
                f"{_printed(s, ada, fed, 'average accuracy'):+.2f} pp, "
                f"{_printed(s, ada, fed, 'agnostic loss'):+.3f}",
                f"difference {gap:.2f} pp; agnostic {agn(ada):.3f} against {agn(fed):.3f}",
                "<= 1 pp, strictly"
                if slack == 0
                else f"<= 1 pp, within one printed standard deviation ({slack:g})",
                gap <= 1.0 and agn(ada) < agn(fed) + slack,
                (fed, ada),
                s.paired(ada, fed, accuracy),
                " pp of accuracy",
            )
        )
        gap = acc(fed) - acc(plain)
        out.append(Statement(
            f"lags-{kind}", f"5: OMD's uniform average is less accurate than FedAvg ({kind})", source,
            f"{_printed(s, fed, plain, 'average accuracy'):.1f} pp", f"{gap:.2f} pp", ">= 1 pp", gap >= 1.0,
            (fed, plain), s.paired(fed, plain, accuracy), " pp",
        ))  # fmt: skip
        gap = abs(acc("TCH") - acc(ada))
        out.append(
            Statement(
                f"tch-{kind}",
                f"8: TCH is as accurate as AdaOMD ({kind})",
                source,
                f"{abs(_printed(s, 'TCH', ada, 'average accuracy')):.2f} pp",
                f"{gap:.2f} pp",
                "<= 1.5 pp",
                gap <= 1.5,
                ("TCH", ada),
                s.paired("TCH", ada, accuracy),
                " pp",
            )
        )
    for what, (gd, eg) in {
        "OMD": ("OMDgd-TCH(AFL)", "OMDeg-TCH"),
        "AdaOMD": ("AdaOMDgd-TCH", "AdaOMDeg-TCH"),
    }.items():
        if not s.has(gd, eg):
            continue
        gap = abs(acc(gd) - acc(eg))
        out.append(
            Statement(
                f"mirror-{what.lower()}",
                f"7: {what} with PGD and with EG are equally accurate",
                f"Sections 3.1 and 3.3, {source}",
                f"{abs(_printed(s, gd, eg, 'average accuracy')):.2f} pp",
                f"{gap:.2f} pp",
                "<= 1 pp",
                gap <= 1.0,
                (gd, eg),
                s.paired(gd, eg, accuracy),
                " pp",
            )
        )
    return out


def _printed(s: Scenario, one: str, other: str, metric: str) -> float:
    return s.printed(one, metric)[0] - s.printed(other, metric)[0]


def _of_cifar(s: Scenario) -> list[Statement]:
    """What the authors' listing allows to ask for on CIFAR-10."""
    acc, agn, par = (lambda c, n=n: s.mean(c, n) for n in METRICS.values())
    accuracy, _, parity = METRICS.values()
    fed = "LS(FedAvg)"
    source = "Figure 3d, authors' result listing" if s.key == "cr" else "Figure 6, authors' result listing"
    out = []
    for kind, (plain, ada) in s.pairs.items():
        out.append(
            Statement(
                f"accuracy-{kind}",
                f"AdaOMD is more accurate than OMD with a smaller agnostic loss ({kind})",
                source,
                f"{_printed(s, ada, plain, 'average accuracy'):+.1f} pp, "
                f"{_printed(s, ada, plain, 'agnostic loss'):+.3f}",
                f"{acc(ada):.2f} against {acc(plain):.2f} %; {agn(ada):.3f} against {agn(plain):.3f}",
                "strictly",
                acc(ada) > acc(plain) and agn(ada) < agn(plain),
                (plain, ada),
                s.paired(ada, plain, accuracy),
                " pp of accuracy",
                adaptive=ada,
            )
        )
        gap = abs(acc(ada) - acc(fed))
        out.append(
            Statement(
                f"fedavg-{kind}",
                f"AdaOMD is as accurate as FedAvg with a smaller parity ({kind})",
                source,
                f"{_printed(s, ada, fed, 'average accuracy'):+.2f} pp, parity "
                f"{_printed(s, ada, fed, 'accuracy parity'):+.2f} pp",
                f"difference {gap:.2f} pp; parity {par(ada):.2f} against {par(fed):.2f} pp",
                "<= 3 pp, strictly",
                gap <= 3.0 and par(ada) < par(fed),
                (fed, ada),
                s.paired(ada, fed, accuracy),
                " pp of accuracy",
            )
        )
        if s.key == "cr":  # the one scenario whose printed means say what the text says of Figure 3e
            gap = par(ada) - par(plain)
            out.append(
                Statement(
                    f"parity-{kind}",
                    f"AdaOMD's parity is slightly higher than OMD's ({kind})",
                    f"Section 4.2, {source}",
                    f"{_printed(s, ada, plain, 'accuracy parity'):+.2f} pp",
                    f"{gap:+.2f} pp",
                    "0 to 2 pp",
                    0 < gap <= 2,
                    (plain, ada),
                    s.paired(ada, plain, parity),
                    " pp",
                )
            )
    return out


# fairness, and what the text says of it


FAIRNESS = ("agnostic loss", "accuracy parity")


def _unlike(found: Mapping[str, bool]) -> str:
    """Those that do not hold."""
    no = [name for name, good in found.items() if not good]
    return f"; not: {', '.join(no)}" if no else ""


def _fairer(a: Artifact, shown: Sequence[Scenario]) -> None:
    """The text's sentence on OMD-TCH and FedAvg, over all scenarios."""
    found = {
        f"{s.name} {kind} {metric}": s.mean(plain, METRICS[metric]) < s.mean("LS(FedAvg)", METRICS[metric])
        for s in shown
        for kind, (plain, _) in s.pairs.items()
        for metric in FAIRNESS
    }
    a.claim(
        "fairer",
        "OMD-TCH's uniform average is fairer than FedAvg in most cases",
        "Section 4.2, text; Figures 5 and 6",
        published="in most cases",
        measured=f"smaller in {sum(found.values())} of {len(found)} (scenario, mirror map, "
        f"fairness metric){_unlike(found)}",
        tolerance="agnostic loss or accuracy parity, means over seeds: more than half",
        holds=2 * sum(found.values()) > len(found),
        interval=_seeds_alone(shown),
        rests_on=set().union(*(s.names("LS(FedAvg)", *(p for p, _ in s.pairs.values())) for s in shown)),
    )


def _fairer_in_rotation(a: Artifact, s: Scenario) -> None:
    """The same sentence where Figure 3b shows it."""
    for kind, (plain, _) in s.pairs.items():
        agn, par = ([s.mean(c, METRICS[m]) for c in (plain, "LS(FedAvg)")] for m in FAIRNESS)
        a.claim(
            f"{s.key}-fairer-{kind}",
            f"OMD-TCH's uniform average is fairer than FedAvg ({kind}), {s.name}",
            "Section 4.2, text; Figure 3b",
            published=f"agnostic loss {_printed(s, plain, 'LS(FedAvg)', 'agnostic loss'):+.3f}, "
            f"parity {_printed(s, plain, 'LS(FedAvg)', 'accuracy parity'):+.2f} pp",
            measured=f"agnostic loss {agn[0]:.3f} against {agn[1]:.3f}, "
            f"parity {par[0]:.2f} against {par[1]:.2f} pp",
            tolerance="both strictly smaller",
            holds=agn[0] < agn[1] and par[0] < par[1],
            interval=_interval(s.paired(plain, "LS(FedAvg)", "accuracy_parity"), " pp of parity"),
            rests_on=s.names(plain, "LS(FedAvg)"),
        )


def _text_against_table(a: Artifact) -> None:
    """Two sentences of Section 4.2 by the means that are printed (CIFAR-10: in the authors' listing)."""
    whole = [Scenario(key, {}) for key in SCENARIOS]
    count = {
        s.name: [
            _printed(s, plain, "LS(FedAvg)", metric) < 0 for plain, _ in PAIRS.values() for metric in FAIRNESS
        ]
        for s in whole
    }
    every = [good for goods in count.values() for good in goods]
    rotation = [good for name, goods in count.items() if name.endswith("Rotation") for good in goods]
    mnist = [good for name, goods in count.items() if name.startswith("MNIST") for good in goods]
    most = 2 * sum(mnist) > len(mnist) and 2 * sum(every) > len(every)
    a.claim(
        "fairer-in-print",
        "The printed means bear out that OMD-TCH is fairer than FedAvg in most cases",
        "Section 4.2, text; Table 2",
        published="in most cases",
        measured=f"smaller agnostic loss or parity in {sum(mnist)} of {len(mnist)} (MNIST) and {sum(every)} "
        f"of {len(every)} (with the authors' listing of CIFAR-10): "
        + ", ".join(f"{name} {sum(goods)} of {len(goods)}" for name, goods in count.items()),
        tolerance="more than half, of MNIST's and of all",
        holds=most or ("partial" if all(rotation) else False),
        reason="It holds in Rotation, which Figure 3 shows, in every case; under partial classes in few.",
        any_scale=True,
    )
    gaps = {
        f"{s.name} {kind}": _printed(s, ada, plain, "accuracy parity")
        for s in whole
        for kind, (plain, ada) in PAIRS.items()
    }
    higher = [name for name, gap in gaps.items() if gap > 0]
    a.claim(
        "parity-in-print",
        "The printed means bear out that AdaOMD-TCH's parity is slightly higher than OMD-TCH's",
        "Section 4.2, text on Figure 3e; Table 2",
        published="slightly higher",
        measured=", ".join(f"{name} {gap:+.2f} pp" for name, gap in gaps.items()),
        tolerance="0 to 2 pp, every scenario",
        holds=all(0 < gap <= 2 for gap in gaps.values())
        or ("partial" if any(0 < g <= 2 for g in gaps.values()) else False),
        reason=f"It holds in {', '.join(higher)} of the authors' listing; everywhere else, in all of Table "
        "2's MNIST half, AdaOMD's parity is the smaller one. "
        "The caption of Figure 3 does not say whose data panel (e) draws.",
        any_scale=True,
    )


def _stored(a: Artifact, s: Scenario) -> None:
    """How many iterates Algorithm 2 stores: one where the average has the last iterate's values."""
    for kind, (_, ada) in s.pairs.items():
        same, total, end = _rounds_alone(s, ada)
        alone = same + s.seeds * end
        a.claim(
            f"{s.key}-stored-{kind}",
            "The newest iterate dominates all stored ones in most rounds, "
            f"so that little is stored ({kind}), {s.name}",
            "Section 3.2, complexity analysis",
            published="most are replaced at once, a small set",
            measured=f"the average is one iterate in {alone} of {total} recorded rounds",
            tolerance="in more than half of the rounds",
            holds="partial" if 2 * alone > total and s.borrowed(ada) else 2 * alone > total,
            reason=_borrowed(s, (ada,)),
            interval=_alone(s),
            rests_on=s.names(ada),
        )


def _best(a: Artifact, shown: Sequence[Scenario]) -> None:
    """Claim 6: FedFV has the highest accuracy, FedMGDA+ the lowest parity, in all three MNIST scenarios."""
    if len(shown) < 3 or not all(s.has(*COLUMNS) for s in shown):
        return
    accuracy = {s.name: {c: s.mean(c, "average_accuracy") for c in COLUMNS} for s in shown}
    tops = {name: max(COLUMNS, key=means.__getitem__) for name, means in accuracy.items()}
    least = {s.name: min(s.mean(c, "accuracy_parity") for c in COLUMNS) for s in shown}
    ours = {s.name: s.mean("FedMGDA+", "accuracy_parity") for s in shown}
    spread = {s.name: float(s.values("FedMGDA+", "accuracy_parity").std()) for s in shown}
    jobs = set().union(*(s.names() for s in shown))
    a.claim(
        "fedfv-best",
        "6: FedFV has the highest average accuracy in all MNIST scenarios",
        "Table 2",
        published="FedFV",
        measured=", ".join(f"{k}: {v}" for k, v in tops.items()),
        tolerance="all three",
        holds=all(v == "FedFV" for v in tops.values()),
        interval=_seeds_alone(shown),
        rests_on=jobs,
    )
    a.claim(
        "fedmgda-parity",
        "6: FedMGDA+ has the lowest accuracy parity in all MNIST scenarios",
        "Table 2",
        published="FedMGDA+",
        measured=", ".join(f"{k}: {ours[k]:.2f}, lowest {least[k]:.2f}" for k in ours),
        tolerance="within one of its standard deviations of the lowest",
        holds=all(ours[k] <= least[k] + spread[k] for k in ours),
        interval=_seeds_alone(shown),
        rests_on=jobs,
    )


def _tch_on_cifar(a: Artifact, shown: Sequence[Scenario]) -> None:
    """Claim 8, second half."""
    if not shown:
        return
    gaps = {
        s.name: s.mean("AdaOMDgd-TCH", "average_accuracy") - s.mean("TCH", "average_accuracy") for s in shown
    }
    a.claim(
        "tch-cifar",
        "8: TCH is clearly less accurate than AdaOMD on CIFAR-10",
        "authors' result listing",
        published="3.6, 15.9 and 17.2 pp",
        measured=", ".join(f"{k}: {v:.2f} pp" for k, v in gaps.items()),
        tolerance=">= 2 pp in all scenarios",
        holds=all(v >= 2 for v in gaps.values()),
        interval=_seeds_alone(shown),
        rests_on=set().union(*(s.names("TCH", "AdaOMDgd-TCH") for s in shown)),
    )


def _finding(a: Artifact, s: Scenario) -> None:
    """Ours: with full local batches the adaptive average is the last iterate, or close to it."""
    words = []
    for kind, (_, ada) in s.pairs.items():
        last = f"last iterate of {ada}"
        gaps = [float(np.abs(s.values(ada, n) - s.values(last, n)).max()) for n in METRICS.values()]
        words.append(
            f"{kind}: accuracy {gaps[0]:.2f} pp, agnostic loss {gaps[1]:.4f}, parity {gaps[2]:.2f} pp"
        )
    a.note(
        f"{s.name}: largest difference between AdaOMD's average and the last iterate over the seeds: "
        f"{'; '.join(words)}."
    )


def _ours(a: Artifact, shown: Sequence[Scenario]) -> None:
    """Checks of ours: orderings that the specification saw at a fifth and a twentieth of MNIST,
    whatever the data.
    """

    def ordering(id: str, statement: str, test: Callable[[Scenario, str, str], bool], why: str = "") -> None:
        found = {f"{s.name} {kind}": test(s, *pair) for s in shown for kind, pair in s.pairs.items()}
        good = all(found.values())
        a.check(
            id,
            f"{statement}, on these data",
            measured=f"{sum(found.values())} of {len(found)}{_unlike(found)}",
            tolerance="mean over seeds, every scenario",
            holds=good,
            reason="" if good or a.scale != "laptop" else why,
        )

    ordering(
        "train",
        "AdaOMD's average has a smaller training loss of the worst client than OMD's uniform average",
        lambda s, plain, ada: s.mean(ada, "worst_train_loss") < s.mean(plain, "worst_train_loss"),
    )
    ordering(
        "accuracy",
        "AdaOMD's average is more accurate than OMD's uniform average",
        lambda s, plain, ada: s.mean(ada, "average_accuracy") > s.mean(plain, "average_accuracy"),
        "Each average has the lambda step that won on MNIST in 300 rounds: with C = 2 and C = 5, 10 for "
        "AdaOMD and 0.1 for OMD. For 30 rounds of these data they do not suit: in table1's grid (seed 0) "
        "AdaOMD is at least as accurate in both scenarios at each of the seven steps, "
        "when OMD has the same step.",
    )
    ordering(
        "fedavg",
        "AdaOMD's average has a smaller training loss of the worst client than FedAvg",
        lambda s, plain, ada: s.mean(ada, "worst_train_loss") < s.mean("LS(FedAvg)", "worst_train_loss"),
        "The lambda steps won on MNIST in 300 rounds. In table1's grid (seed 0, these data) another step is "
        "below FedAvg in MNIST C=2 (0.60 against 0.84) and CIFAR10 C=5 (0.91 against 1.02). In MNIST C=5 "
        "none is (0.49 against 0.48), nor any last iterate: "
        "after 30 rounds none of these trajectories is below FedAvg there.",
    )


# Table 1

GRIDS = {  # row of Table 1 -> (metric, job, field, output rule, factor from the field to what is printed)
    "qFFL": ("q", "qffl", "q", "last", 1.0),
    "PropFair": ("M", "propfair", "baseline", "last", 1.0),
    "FedMGDA+": ("epsilon", "fedmgda_plus", "epsilon", "last", 1.0),
    "FedFV": ("alpha", "fedfv", "alpha", "last", 1.0),
    "STCH(TERM)": ("mu", "stch", "mu", "last", 1.0),
    "OMDgd-TCH(AFL)": ("0.1*eta_lambda", "omd_gd", "lambda_step", "mean", 0.1),
    "AdaOMDgd-TCH": ("0.1*eta_lambda", "omd_gd", "lambda_step", "adaptive", 0.1),
    "OMDeg-TCH": ("0.1*eta_lambda", "omd_eg", "lambda_step", "mean", 0.1),
    "AdaOMDeg-TCH": ("0.1*eta_lambda", "omd_eg", "lambda_step", "adaptive", 0.1),
}


@artifact("omd_tch/table1")
def table1(a: Artifact) -> None:
    """The paper's rule on its grids: smallest final training loss of the worst client, mean over seeds."""
    shown = scenarios(a)
    cells = published("omd_tch/table1").rows
    rows = []
    agrees: dict[str, dict[str, bool]] = {s.key: {} for s in shown}
    for row, (metric, job, field, output, factor) in GRIDS.items():
        for s in shown:
            planned = s.jobs[job].final
            planned = planned[planned["output"] == output]
            final = planned[planned["status"] == "done"]
            keys = [field, "external_from"] if row == "FedFV" else [field]
            scores = final.groupby(keys)["worst_train_loss"].mean()
            best = scores.idxmin()
            chosen = best if isinstance(best, tuple) else (best,)
            cell = cells[(cells["row"] == row) & (cells["column"] == s.name)]
            printed = {m.split()[0]: float(v) for m, v in zip(cell["metric"], cell["value"], strict=True)}
            theirs = [round(printed[metric] / factor, 9), *([printed["tau"]] if row == "FedFV" else [])]
            paper = float(
                scores.get(tuple(theirs) if row == "FedFV" else theirs[0], np.nan)
            )  # every run of it may be lost
            if row == "FedFV":
                # alpha has three values and the printed one is the middle one: within one step of it is
                # everything
                near = list(chosen) == theirs
            else:
                grid = sorted(final[field].unique())
                near = abs(grid.index(chosen[0]) - int(np.argmin(np.abs(np.array(grid) - theirs[0])))) <= 1
            good = near or paper <= 1.03 * float(scores.min())
            agrees[s.key][row] = good
            name = f"{metric}, tau'" if row == "FedFV" else metric
            rows.append(
                {
                    "scenario": s.name,
                    "images": s.data,
                    "method": row,
                    "parameter": name,
                    "best": ", ".join(f"{v * f:g}" for v, f in zip(chosen, (factor, 1.0), strict=False)),
                    "published best": ", ".join(
                        f"{v * f:g}" for v, f in zip(theirs, (factor, 1.0), strict=False)
                    ),
                    "score of ours": float(scores.min()),
                    "score of theirs": paper,
                    "agrees": "yes" if good else "no",
                    "values": len(planned.groupby(keys)),
                    "seeds": int(planned["seed"].nunique()),
                    "runs": RunCount.of(planned),
                }
            )
    a.table(
        pd.DataFrame(rows),
        given=("scenario", "images", "method", "parameter", "published best", "values", "seeds"),
    )
    for s in shown:
        a.claim(
            f"{s.key}-selection",
            f"The selection rule chooses the published values, {s.name}",
            "Table 1",
            published="see table",
            measured=f"{sum(agrees[s.key].values())} of {len(agrees[s.key])}{_unlike(agrees[s.key])}",
            tolerance="within one step of the grid (FedFV: the printed pair), or the published value scores "
            "within 3 % of the best; every method",
            holds=all(agrees[s.key].values()),
            interval=_alone(s),
            rests_on=s.names(),
        )
    a.note(
        "Score: largest training loss of a client after the last round, mean over seeds. The grid of a "
        "method is one batch (`vary`); OMD and AdaOMD read their rows from the same trajectories."
    )
    _notes(a, shown)


# what clients hold


@artifact("omd_tch/partitions")
def partitions(a: Artifact) -> None:
    """Images of each class at each client (ours)."""
    shown = scenarios(a)
    splits: dict[str, Clients] = {}
    rows = []
    base = None
    for s in shown:
        job = s.jobs["ls"]
        problem = FederatedImages(**{k: v for k, v in job.config["problem"].items() if k != "_target_"})
        for seed in job.config["seeds"]:
            split = problem.split_of(int(seed))
            if seed == job.config["seeds"][0] and s.key[0] == shown[0].key[0]:
                splits[s.name] = split
                base = problem.images
            sizes = {part: [len(i) for i in getattr(split, part)] for part in ("train", "test")}
            rows.append(
                {
                    "scenario": s.name,
                    "images": s.data,
                    "seed": seed,
                    "training images per client": f"{min(sizes['train'])} to {max(sizes['train'])}",
                    "test images per client": f"{min(sizes['test'])} to {max(sizes['test'])}",
                    "classes that some client holds": int(
                        (split.counts(problem.images, "train").sum(0) > 0).sum()
                    ),
                    "sha256": split.digest[:16],
                    "sha256 of the run": job.meta["partition_sha256"][str(seed)][:16],
                }
            )
    assert base is not None
    a.figure(class_counts_figure(base, splits, int(shown[0].jobs["ls"].config["seeds"][0])))
    a.table(pd.DataFrame(rows))
    a.check(
        "same",
        "The partitions of the runs are those shown",
        measured=f"{sum(r['sha256'] == r['sha256 of the run'] for r in rows)} of {len(rows)} hashes equal",
        tolerance="all",
        holds=all(r["sha256"] == r["sha256 of the run"] for r in rows),
        reason=""
        if all(r["sha256"] == r["sha256 of the run"] for r in rows)
        else "The split that is made here is not the one that the rows were trained on.",
        any_scale=True,
    )
