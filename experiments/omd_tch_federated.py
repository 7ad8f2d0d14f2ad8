"""OMD-TCH's federated artifacts: Figures 3, 5, 6, 7 and Tables 1, 2. Criteria are the specification's, fixed before any run.

The published numbers belong to MNIST and CIFAR-10 at paper scale. Runs on the embedded digits or on a subset show what was
measured; the paper's claims are not judged on them, the orderings that are meant to hold on any data ("ours") are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import ticker

from mobench.artifacts import Artifact, JobRows, Runs, artifact
from mobench.artifacts import style as st
from mobench.data.clients import Clients
from mobench.problems import FederatedImages

from .partitions_picture import class_counts_figure
from .toy import published

SCENARIOS = {
    "mr": "MNIST Rotation",
    "m2": "MNIST C=2",
    "m5": "MNIST C=5",
    "cr": "CIFAR10 Rotation",
    "c2": "CIFAR10 C=2",
    "c5": "CIFAR10 C=5",
}
SEEDS = 10  # of the paper's means
FEW = "The statement is about means of ten seeds; fewer were run."
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
LAST = {"last iterate of AdaOMDgd-TCH": ("ada_gd", "last"), "last iterate of AdaOMDeg-TCH": ("ada_eg", "last")}
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
    def few(self) -> bool:
        """Whether fewer seeds were run than the paper's means are of."""
        return len(self.jobs["ls"].config["seeds"]) < SEEDS

    def verdict(self, holds: bool) -> bool | Literal["partial"]:
        """What fewer seeds can say of a statement about means over ten."""
        return "partial" if holds and self.few else holds

    @cached_property
    def embedded(self) -> bool:
        """Whether the images are the stand-ins that come with the project."""
        return bool(self.jobs["ls"].meta["embedded"])

    def paper(self, a: Artifact) -> bool:
        """Whether the published numbers are about this: the paper's scale on the whole of the paper's data."""
        return a.scale == "paper" and self.data in ("MNIST", "CIFAR-10")

    @property
    def titled(self) -> str:
        """For a panel: the paper's name, or what stands for it."""
        return (
            self.name
            if self.data in ("MNIST", "CIFAR-10")
            else f"{self.name}: {'stand-in' if self.embedded else 'subset'}"
        )

    def source(self, column: str) -> tuple[JobRows, str] | None:
        """Job and output rule of a column; where OMD and AdaOMD have one step, they share a job. None: not run here."""
        job, output = (COLUMNS | LAST)[column]
        found = self.jobs.get(job) or self.jobs.get(job.replace("ada", "omd"))
        return None if found is None else (found, output)

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

    def runs(self, column: str) -> Runs:
        """How many seeds of a column finished."""
        found = self.source(column)
        assert found is not None
        return Runs.of(found[0].final[found[0].final["output"] == found[1]])

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
        if output != "last":  # the average after round T is that of theta^1..T, which the row of theta^T has already
            rows = rows[rows["step"] < rows["step"].max()]
        if seed is not None:
            rows = rows[rows["seed"] == seed]
        mean = rows.groupby("step")[name].mean()
        return mean.index.to_numpy(), mean.to_numpy()

    def printed(self, column: str, metric: str) -> tuple[float, float]:
        """Published mean and standard deviation; of CIFAR-10 those of the authors' result listing. NaN: none."""
        rows = published("omd_tch_table2" if self.key[0] == "m" else "omd_tch_table2_cifar10_reference")
        rows = rows[(rows["row"] == self.name) & (rows["column"] == column) & (rows["metric"] == metric)]
        if rows.empty:
            return float("nan"), float("nan")
        return float(rows["value"].iloc[0]), float(rows["std"].iloc[0])


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
    if not all(s.paper(a) for s in shown):
        first = shown[0].jobs["ls"].config
        a.note(
            f"Not the paper's data or scale. In place of {'; '.join(words)}. {first['steps']} rounds, "
            f"{len(first['seeds'])} seeds. The published numbers are shown, not compared. The paper's setting: scale=paper "
            f"data=mnist."
        )
    a.note(
        "The weights 1/10 of the preference are absorbed in the server's step, so that weights of clients sum to 1. The "
        "adaptive average is set beside the last iterate of its trajectory: where every loss falls in every round they are "
        "the same network."
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
        {"average accuracy": "average accuracy (%)", "accuracy parity": "accuracy parity (pp)"}.get(metric, metric)
    )


def _legend(fig: Any, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=6)


@artifact("omd_tch/fig3")
def fig3(a: Artifact) -> None:
    """Rotation: losses of the worst client for seed 0, accuracy against parity, all methods over the seeds."""
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
        _curve_claims(a, s)
        (_mnist_claims if s.key[0] == "m" else _cifar_claims)(a, s, "Figure 3")
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
    _curve_claims(a, s)
    _mnist_claims(a, s, "Figure 3 and Table 2, one seed instead of ten")
    _cells(a, s, 3.0, "one seed against the mean of ten")
    _finding(a, s)
    _ours(a, [s])
    _notes(a, [s])
    if not s.has("OMDeg-TCH"):
        a.note("The trajectories with EG are not among these jobs; omd_tch/fig3 has them.")
    elif "ada_eg" not in s.jobs:
        a.note(
            "AdaOMDeg is read off OMDeg's trajectory (lambda step 3.0, OMDeg's winner in Table 1); its own winner is 1.0."
        )


@artifact("omd_tch/fig5")
def fig5(a: Artifact) -> None:
    """Losses of the worst client, training and test, mean over seeds."""
    shown = scenarios(a)
    fig, axes = st.plt.subplots(2, len(shown), figsize=(2.7 * len(shown), 5.4), squeeze=False, layout="constrained")
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
            f"The adaptive average's {label} loss of the worst client lies below the uniform average's from T/3 on ({kind})",
            "Figure 5",
            published="below in the drawn panels",
            measured=f"in {sum(good)} of {len(good)} scenarios: "
            + ", ".join(f"{s.name} {'yes' if g else 'no'}" for s, g in zip(shown, good, strict=True)),
            tolerance=">= 5 of 6 scenarios",
            holds=sum(good) >= 5 if all(s.paper(a) for s in shown) else None,
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
        (_mnist_claims if s.key[0] == "m" else _cifar_claims)(a, s, "Figure 6")
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
        tolerance="one printed standard deviation, every cell",
        holds=not far if all(s.paper(a) for s in shown if s.key[0] == "m") else None,
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
                values, (mean, spread) = s.values(column, name), s.printed(column, metric)
                spreads = f" ± {values.std():.3f}" if len(values) > 1 else ""
                line[metric] = f"{values.mean():.3f}" + spreads + s.runs(column).short
                line[f"{metric}, published"] = "–" if np.isnan(mean) else f"{mean:.3f} ± {spread:.3f}"
            worst = s.values(column, "worst_train_loss")
            line["worst client's training loss"] = f"{worst.mean():.3f}"
            line["seeds"] = len(worst)
            rows.append(line)
    return pd.DataFrame(rows)


def _cells(a: Artifact, s: Scenario, deviations: float = 1.5, how: str = "means over seeds") -> None:
    """Every measured cell of a scenario against the published one: within 1.5 printed standard deviations for a mean of ten
    seeds, within three for a single seed."""
    good, far = 0, []
    shown = [c for c in COLUMNS if s.has(c)]
    for column in shown:
        for metric, name in METRICS.items():
            mean, spread = s.printed(column, metric)
            ours = s.mean(column, name)
            if abs(ours - mean) <= max(deviations * spread, TOLERANCE[metric]):
                good += 1
            else:
                far.append(f"{column} {metric} {ours:.3f} ({mean:.3f})")
    total = 3 * len(shown)
    a.claim(
        f"{s.key}-cells",
        f"Cells of Table 2 are reproduced, {s.name}",
        "Table 2" if s.key[0] == "m" else "authors' result listing (the paper's text lacks this half of Table 2)",
        published="see table",
        measured=f"{good} of {total} cells, {how}" + (f"; not: {'; '.join(far)}" if far else ""),
        tolerance=f"{deviations:g} printed standard deviations, or 0.5 pp, 0.03 nats, 0.5 pp if larger; 80 % of the cells",
        holds=s.verdict(good >= 0.8 * total) if s.paper(a) else None,
        reason=FEW if s.paper(a) and s.few else "",
    )


@artifact("omd_tch/table2")
def table2(a: Artifact) -> None:
    """All methods, three metrics, six scenarios."""
    shown = scenarios(a)
    a.table(_table(shown))
    for s in shown:
        _cells(a, s)
        (_mnist_claims if s.key[0] == "m" else _cifar_claims)(a, s, "Table 2")
        _finding(a, s)
    _best(a, [s for s in shown if s.key[0] == "m"])
    _tch_on_cifar(a, [s for s in shown if s.key[0] == "c"])
    _ours(a, shown)
    _notes(a, shown)
    a.note(
        "CIFAR-10's half of Table 2 is not in the paper's text; its columns quote the authors' result listing, for "
        "orientation. Six of MNIST's published cells are reconstructed (experiments/published/omd_tch_table2.csv)."
    )


def _claim(
    a: Artifact,
    s: Scenario,
    id: str,
    statement: str,
    source: str,
    published: str,
    measured: str,
    tolerance: str,
    holds: bool,
    means: bool = True,
) -> None:
    """`means`: the statement is about means over the paper's seeds."""
    a.claim(
        f"{s.key}-{id}",
        f"{statement}, {s.name}",
        source,
        published=published,
        measured=measured,
        tolerance=tolerance,
        holds=(s.verdict(holds) if means else holds) if s.paper(a) else None,
        reason=FEW if means and s.paper(a) and s.few else "",
    )


def _curve_claims(a: Artifact, s: Scenario) -> None:
    """What Figure 3a (or 3c) shows of the training loss of the worst client; first seed."""
    seed = int(s.jobs["ls"].final["seed"].iloc[0])
    curves = {c: s.curve(c, "worst_train_loss", seed) for c in COMPARED if s.has(c)}
    tch, ls = curves["TCH"][1], curves["LS(FedAvg)"][1]
    for kind, (plain, adaptive) in s.pairs.items():
        steps, one = curves[plain]
        other = curves[adaptive][1]
        words = f"last {plain} {one[-1]:.3f}, {adaptive} {other[-1]:.3f}, LS {ls[-1]:.3f}"
        if s.key[0] == "m":
            good = other[-1] < one[-1] and other[-1] < ls[-1]
            _claim(a, s, f"lower-{kind}", f"AdaOMD ends below OMD and below LS ({kind}), seed {seed}", "Figure 3a",
                   "below", words, "strictly", bool(good),
                   means=False)  # fmt: skip
            area = np.trapezoid(one, steps), np.trapezoid(other, steps)
            _claim(a, s, f"area-{kind}", f"The area under AdaOMD's curve is smaller than under OMD's ({kind}), seed {seed}",
                   "Figure 3a", "smaller", f"{area[1]:.1f} against {area[0]:.1f}", "strictly", bool(area[1] < area[0]),
                   means=False)  # fmt: skip
            falls = float((np.diff(other[steps >= steps[-1] / 3]) < 0).mean())
            _claim(a, s, f"falls-{kind}", f"AdaOMD's curve falls steadily in the last two thirds ({kind}), seed {seed}",
                   "Figure 3a", "smooth", f"in {100 * falls:.1f} % of the rounds", ">= 90 %", falls >= 0.9,
                   means=False)  # fmt: skip
        else:
            _claim(a, s, f"lower-{kind}", f"AdaOMD ends below OMD ({kind}), seed {seed}", "Figure 3c", "below", words,
                   "strictly", bool(other[-1] < one[-1]),
                   means=False)  # fmt: skip
        bend = np.abs(np.diff(tch, 2)).mean(), np.abs(np.diff(other, 2)).mean()
        _claim(a, s, f"oscillates-{kind}", f"TCH oscillates, AdaOMD does not ({kind}), seed {seed}",
               "Figure 3a, c", "TCH oscillates", f"mean |second difference|: TCH {bend[0]:.2e}, AdaOMD {bend[1]:.2e}, "
               f"ratio {bend[0] / bend[1]:.1f}", "ratio >= 5", bool(bend[0] >= 5 * bend[1]),
               means=False)  # fmt: skip


def _mnist_claims(a: Artifact, s: Scenario, source: str) -> None:
    """Claims 1 to 5, 7 and 8 of the specification, for one scenario on MNIST."""
    least = {"mr": 3.0, "m2": 0.8, "m5": 1.0}[s.key]
    acc, agn, par = (lambda c, n=n: s.mean(c, n) for n in METRICS.values())
    fed = "LS(FedAvg)"
    for kind, (plain, ada) in s.pairs.items():
        gap = acc(ada) - acc(plain)
        _claim(a, s, f"accuracy-{kind}", f"1: AdaOMD is more accurate than OMD ({kind})", source,
               f"{_printed(s, ada, plain, 'average accuracy'):+.1f} pp", f"{gap:+.2f} pp",
               f">= {least} pp", gap >= least)  # fmt: skip
        ratio = agn(ada) / agn(plain)
        _claim(a, s, f"agnostic-{kind}", f"2: AdaOMD has a smaller agnostic loss than OMD ({kind})", source,
               "ratio 0.64 to 0.78", f"ratio {ratio:.2f}", "ratio <= 0.85", ratio <= 0.85)  # fmt: skip
        _claim(a, s, f"parity-{kind}", f"3: AdaOMD has a smaller parity than OMD ({kind})", source, "smaller",
               f"{par(ada):.2f} against {par(plain):.2f} pp", "strictly", par(ada) < par(plain))  # fmt: skip
        # the published means of C = 5, EG differ by less than one standard deviation
        slack = s.printed(ada, "agnostic loss")[1] if (s.key, kind) == ("m5", "eg") else 0.0
        gap = abs(acc(ada) - acc(fed))
        _claim(a, s, f"fedavg-{kind}", f"4: AdaOMD is as accurate as FedAvg with a smaller agnostic loss ({kind})", source,
               "within 1 pp, smaller", f"difference {gap:.2f} pp; agnostic {agn(ada):.3f} against {agn(fed):.3f}",
               "<= 1 pp, strictly" if slack == 0 else f"<= 1 pp, within one printed standard deviation ({slack:g})",
               gap <= 1.0 and agn(ada) < agn(fed) + slack)  # fmt: skip
        gap = acc(fed) - acc(plain)
        _claim(a, s, f"lags-{kind}", f"5: OMD's uniform average is less accurate than FedAvg ({kind})", source,
               f"{_printed(s, fed, plain, 'average accuracy'):.1f} pp", f"{gap:.2f} pp", ">= 1 pp", gap >= 1.0)  # fmt: skip
        gap = abs(acc("TCH") - acc(ada))
        _claim(a, s, f"tch-{kind}", f"8: TCH is as accurate as AdaOMD ({kind})", source,
               f"{abs(_printed(s, 'TCH', ada, 'average accuracy')):.2f} pp", f"{gap:.2f} pp", "<= 1.5 pp", gap <= 1.5)  # fmt: skip
    for what, (gd, eg) in {"OMD": ("OMDgd-TCH(AFL)", "OMDeg-TCH"), "AdaOMD": ("AdaOMDgd-TCH", "AdaOMDeg-TCH")}.items():
        if not s.has(gd, eg):
            continue
        gap = abs(acc(gd) - acc(eg))
        _claim(a, s, f"mirror-{what.lower()}", f"7: {what} with PGD and with EG are equally accurate", source,
               f"{abs(_printed(s, gd, eg, 'average accuracy')):.2f} pp", f"{gap:.2f} pp", "<= 1 pp", gap <= 1.0)  # fmt: skip


def _printed(s: Scenario, one: str, other: str, metric: str) -> float:
    return s.printed(one, metric)[0] - s.printed(other, metric)[0]


def _cifar_claims(a: Artifact, s: Scenario, source: str) -> None:
    """What the authors' listing allows to ask for on CIFAR-10."""
    acc, agn, par = (lambda c, n=n: s.mean(c, n) for n in METRICS.values())
    fed = "LS(FedAvg)"
    for kind, (plain, ada) in s.pairs.items():
        _claim(a, s, f"accuracy-{kind}", f"AdaOMD is more accurate than OMD with a smaller agnostic loss ({kind})", source,
               "yes", f"{acc(ada):.2f} against {acc(plain):.2f} %; {agn(ada):.3f} against {agn(plain):.3f}", "strictly",
               acc(ada) > acc(plain) and agn(ada) < agn(plain))  # fmt: skip
        gap = abs(acc(ada) - acc(fed))
        _claim(a, s, f"fedavg-{kind}", f"AdaOMD is as accurate as FedAvg with a smaller parity ({kind})", source, "yes",
               f"difference {gap:.2f} pp; parity {par(ada):.2f} against {par(fed):.2f} pp", "<= 3 pp, strictly",
               gap <= 3.0 and par(ada) < par(fed))  # fmt: skip


def _best(a: Artifact, shown: Sequence[Scenario]) -> None:
    """Claim 6: FedFV has the highest accuracy, FedMGDA+ the lowest parity, in all three MNIST scenarios."""
    if len(shown) < 3 or not all(s.has(*COLUMNS) for s in shown):
        return
    tops = {s.name: max(COLUMNS, key=lambda c, s=s: s.mean(c, "average_accuracy")) for s in shown}  # type: ignore[misc]
    least = {s.name: min(s.mean(c, "accuracy_parity") for c in COLUMNS) for s in shown}
    ours = {s.name: s.mean("FedMGDA+", "accuracy_parity") for s in shown}
    spread = {s.name: float(s.values("FedMGDA+", "accuracy_parity").std()) for s in shown}
    paper = all(s.paper(a) for s in shown)
    a.claim(
        "fedfv-best",
        "6: FedFV has the highest average accuracy in all MNIST scenarios",
        "Table 2",
        published="FedFV",
        measured=", ".join(f"{k}: {v}" for k, v in tops.items()),
        tolerance="all three",
        holds=all(v == "FedFV" for v in tops.values()) if paper else None,
    )
    a.claim(
        "fedmgda-parity",
        "6: FedMGDA+ has the lowest accuracy parity in all MNIST scenarios",
        "Table 2",
        published="FedMGDA+",
        measured=", ".join(f"{k}: {ours[k]:.2f}, lowest {least[k]:.2f}" for k in ours),
        tolerance="within one of its standard deviations of the lowest",
        holds=all(ours[k] <= least[k] + spread[k] for k in ours) if paper else None,
    )


def _tch_on_cifar(a: Artifact, shown: Sequence[Scenario]) -> None:
    """Claim 8, second half."""
    if not shown:
        return
    gaps = {s.name: s.mean("AdaOMDgd-TCH", "average_accuracy") - s.mean("TCH", "average_accuracy") for s in shown}
    a.claim(
        "tch-cifar",
        "8: TCH is clearly less accurate than AdaOMD on CIFAR-10",
        "authors' result listing",
        published="3.6, 15.9 and 17.2 pp",
        measured=", ".join(f"{k}: {v:.2f} pp" for k, v in gaps.items()),
        tolerance=">= 2 pp in all scenarios",
        holds=all(v >= 2 for v in gaps.values()) if all(s.paper(a) for s in shown) else None,
    )


def _finding(a: Artifact, s: Scenario) -> None:
    """Ours: with full local batches the adaptive average is the last iterate, or close to it."""
    words = []
    for kind, (_, ada) in s.pairs.items():
        last = f"last iterate of {ada}"
        gaps = [float(np.abs(s.values(ada, n) - s.values(last, n)).max()) for n in METRICS.values()]
        words.append(f"{kind}: accuracy {gaps[0]:.2f} pp, agnostic loss {gaps[1]:.4f}, parity {gaps[2]:.2f} pp")
    a.note(
        f"{s.name}: largest difference between AdaOMD's average and the last iterate over the seeds: {'; '.join(words)}."
    )


def _ours(a: Artifact, shown: Sequence[Scenario]) -> None:
    """Orderings that are meant to hold on any data: those that the specification saw at a fifth and a twentieth of MNIST."""

    def ordering(id: str, statement: str, test: Callable[[Scenario, str, str], bool]) -> None:
        found = {f"{s.name} {kind}": test(s, *pair) for s in shown for kind, pair in s.pairs.items()}
        a.claim(
            id,
            statement,
            "ours, after Table 2",
            published="-",
            measured=f"{sum(found.values())} of {len(found)}"
            + (f"; not: {', '.join(k for k, v in found.items() if not v)}" if not all(found.values()) else ""),
            tolerance="mean over seeds, every scenario",
            holds=all(found.values()),
            reason=""
            if all(s.paper(a) for s in shown)
            else "Hyper-parameters are the paper's, chosen for 300 (45) rounds of MNIST (CIFAR-10); for these data and fewer "
            "rounds nothing was chosen anew.",
        )

    ordering(
        "ours-train",
        "AdaOMD's average has a smaller training loss of the worst client than OMD's uniform average, on these data",
        lambda s, plain, ada: s.mean(ada, "worst_train_loss") < s.mean(plain, "worst_train_loss"),
    )
    ordering(
        "ours-accuracy",
        "AdaOMD's average is more accurate than OMD's uniform average, on these data",
        lambda s, plain, ada: s.mean(ada, "average_accuracy") > s.mean(plain, "average_accuracy"),
    )
    ordering(
        "ours-fedavg",
        "AdaOMD's average has a smaller training loss of the worst client than FedAvg, on these data",
        lambda s, plain, ada: s.mean(ada, "worst_train_loss") < s.mean("LS(FedAvg)", "worst_train_loss"),
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
    cells, rows = published("omd_tch_table1"), []
    near: dict[str, list[bool]] = {s.key: [] for s in shown}
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
            grid = sorted(final[field].unique())
            steps = abs(grid.index(chosen[0]) - int(np.argmin(np.abs(np.array(grid) - theirs[0]))))
            good = steps <= 1 or paper <= 1.03 * float(scores.min())
            near[s.key].append(good)
            name = f"{metric}, tau'" if row == "FedFV" else metric
            rows.append(
                {
                    "scenario": s.name,
                    "images": s.data,
                    "method": row,
                    "parameter": name,
                    "best": ", ".join(f"{v * f:g}" for v, f in zip(chosen, (factor, 1.0), strict=False)),
                    "published best": ", ".join(f"{v * f:g}" for v, f in zip(theirs, (factor, 1.0), strict=False)),
                    "score of ours": float(scores.min()),
                    "score of theirs": paper,
                    "agrees": "yes" if good else "no",
                    "values": len(planned.groupby(keys)),
                    "seeds": int(planned["seed"].nunique()),
                    "runs": Runs.of(planned),
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
            measured=f"{sum(near[s.key])} of {len(near[s.key])}",
            tolerance="within one step of the grid, or the published value scores within 3 % of the best; every method",
            holds=all(near[s.key]) if s.paper(a) else None,
        )
    a.note(
        "Score: largest training loss of a client after the last round, mean over seeds. The grid of a method is one batch "
        "(`vary`); OMD and AdaOMD read their rows from the same trajectories."
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
                splits[s.name], base = split, problem.images
            sizes = {part: [len(i) for i in getattr(split, part)] for part in ("train", "test")}
            rows.append(
                {
                    "scenario": s.name,
                    "images": s.data,
                    "seed": seed,
                    "training images per client": f"{min(sizes['train'])} to {max(sizes['train'])}",
                    "test images per client": f"{min(sizes['test'])} to {max(sizes['test'])}",
                    "classes that some client holds": int((split.counts(problem.images, "train").sum(0) > 0).sum()),
                    "sha256": split.digest[:16],
                    "sha256 of the run": job.meta["partition_sha256"][str(seed)][:16],
                }
            )
    assert base is not None
    a.figure(class_counts_figure(base, splits, int(shown[0].jobs["ls"].config["seeds"][0])))
    a.table(pd.DataFrame(rows))
    a.claim(
        "same",
        "The partitions of the runs are those shown",
        "ours",
        published="-",
        measured=f"{sum(r['sha256'] == r['sha256 of the run'] for r in rows)} of {len(rows)} hashes equal",
        tolerance="all",
        holds=all(r["sha256"] == r["sha256 of the run"] for r in rows),
        any_scale=True,
    )
