"""A cause, tested (ours): do the cells of Table 2 that miss with seed 0 under C = 5 miss with other seeds?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from mobench.artifacts import Artifact, artifact, tables
from mobench.artifacts import style as st
from mobench.artifacts.checks import Above, AtMost
from mobench.artifacts.panels import dress

from .federated import FED, METRICS, PARITY, Scenario
from .federated_figures import LABELS

CLOSE = 2.0  # printed standard deviations


@artifact("omd_tch/other_seeds")
def other_seeds(a: Artifact) -> None:
    """FedAvg's three metrics of each seed, beside the published means of ten seeds."""
    scenarios = {name: Scenario("m5", {"ls": job}) for name, job in a.jobs.items()}
    by_metric = pd.DataFrame({metric: by_seed(scenarios, metric) for metric in METRICS})
    printed = {metric: scenarios["first"].printed(FED, metric) for metric in METRICS}
    fig, axes = st.panels(1, len(METRICS), figsize=(7.0, 2.5))
    for ax, metric in zip(axes[0], METRICS, strict=True):
        if a.on_papers_data():
            mean, spread = printed[metric]
            ax.axhspan(mean - CLOSE * spread, mean + CLOSE * spread, color=st.GREY, alpha=0.2, lw=0)
            ax.axhline(mean, color=st.GREY, lw=0.9)
        ax.plot(by_metric.index, by_metric[metric], "o", ms=5, color=st.BLACK)
        ax.set_xticks(by_metric.index)
        ax.margins(x=0.15)
        dress(ax, "seed, which draws the partition", LABELS.get(metric, metric))
    band = " Line and band: published mean of ten seeds and two standard deviations (Table 2)."
    st.caption(fig, f"FedAvg, each client holds images of five classes.{band if a.on_papers_data() else ''}")
    a.figure(fig)
    first = scenarios["first"].first_seed
    others = by_metric.drop(index=first, errors="ignore")
    means = {metric: float(others[metric].mean()) for metric in METRICS}
    lost = scenarios["others"].runs(FED).short
    lines: list[dict[str, Any]] = [{"seed": str(seed), **row.round(3)} for seed, row in by_metric.iterrows()]
    lines.append({"seed": "mean of the other seeds", **{m: f"{mean:.4g}{lost}" for m, mean in means.items()}})
    lines.append({"seed": "published, ten seeds", **{m: tables.spread(*both) for m, both in printed.items()}})
    a.table(lines)
    away = {m: abs(means[m] - mean) / spread for m, (mean, spread) in printed.items()}
    a.check(
        "others-agree", AtMost(away, CLOSE, of="distance of the other seeds' mean, in printed deviations")
    )
    alone = float(by_metric[PARITY].get(first, float("nan")))
    largest = float(others[PARITY].max())
    a.check(
        "first-apart",
        Above(alone, largest, of="parity of seed 0", than="the largest of the other seeds", unit=" pp"),
    )


def by_seed(scenarios: dict[str, Scenario], metric: str) -> pd.Series:
    """Returns a metric of all seeds that finished; one line if both jobs have the same seed."""
    column = METRICS[metric]
    rows = pd.concat([s.jobs["ls"].final for s in scenarios.values()])
    done = rows[(rows["output"] == "last") & (rows["status"] == "done")]
    return done.drop_duplicates("seed").set_index("seed")[column].sort_index()
