"""Partitions (ours): which classes each client holds, a heat map with counts for each scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Equal
from mobench.data.clients import Clients
from mobench.data.images import CLASSES, Images
from mobench.jobs.targets import instantiate
from mobench.problems import FederatedImages

from .federated import Scenario, scenarios_of

ROW = 0.24  # inches
LARGEST_SHARE = 0.6  # of the largest count: from here on the ground is dark and numbers are white


def class_counts_figure(base: Images, splits: Mapping[str, Clients], seed: int, split: str = "train") -> Any:
    """A figure with a panel for each scenario (title of the panel: its partition).

    One scale of colours for all.
    """
    counts = {title: clients.counts(base, split) for title, clients in splits.items()}
    top = max(int(table.max()) for table in counts.values())
    rows = max(len(table) for table in counts.values())
    fig, axes = st.panels(1, len(splits), figsize=(3.5 * len(splits), ROW * rows + 1.0))
    fig.get_layout_engine().set(wspace=0.05)
    for ax, (title, clients) in zip(axes[0], splits.items(), strict=True):
        table = counts[title]
        ax.imshow(table, cmap="Blues", vmin=0, vmax=top, aspect="auto")
        for i, row in enumerate(table):
            for c, n in enumerate(row):
                colour = "white" if n > LARGEST_SHARE * top else st.BLACK if n else st.GREY
                ax.text(c, i, str(n), ha="center", va="center", fontsize=6.5, color=colour)
            ax.text(CLASSES - 0.3, i, str(row.sum()), ha="left", va="center", fontsize=6.5, weight="bold")
        ax.text(CLASSES - 0.3, -0.62, "all", ha="left", va="bottom", fontsize=6.5, weight="bold")
        turned = [f"{i}, {90 * turn}°" if turn else str(i) for i, turn in enumerate(clients.turns)]
        ax.set_yticks(range(len(turned)), turned)
        ax.set_xticks(range(CLASSES))
        ax.tick_params(length=0, labelsize=7.5)
        ax.spines[:].set_visible(False)
        ax.set_title(title.replace(" (", "\n("))  # beside the head of the last column
        ax.set_xlabel("class")
    turns = any(any(clients.turns) for clients in splits.values())
    axes[0, 0].set_ylabel("client (and by how much its images are turned)" if turns else "client")
    what = "training" if split == "train" else "test"
    fig.suptitle(f"How many {what} images of each class (columns) each client (rows) holds, seed {seed}")
    return fig


@artifact("omd_tch/partitions")
def partitions(a: Artifact) -> None:
    """Images of each class at each client (ours)."""
    scenarios = scenarios_of(a)
    problems = {s.key: instantiate(s.jobs["ls"].config["problem"], "problem") for s in scenarios}
    first = int(scenarios[0].jobs["ls"].config["seeds"][0])
    drawn = {
        s.titled: problems[s.key].split_of(first) for s in scenarios if s.on_mnist == scenarios[0].on_mnist
    }
    a.figure(class_counts_figure(problems[scenarios[0].key].images, drawn, first))
    lines = [line(s, int(seed), problems[s.key]) for s in scenarios for seed in s.jobs["ls"].config["seeds"]]
    a.table(lines)
    here, runs = (
        {f"{x['scenario']}, seed {x['seed']}": x[name] for x in lines}
        for name in ("sha256", "sha256 of the run")
    )
    a.check("same", Equal(here, runs, what="hashes"))


def line(s: Scenario, seed: int, problem: FederatedImages) -> dict[str, Any]:
    """Returns a line of the table: sizes and hashes of one split."""
    split = problem.split_of(seed)
    sizes = {part: [len(i) for i in getattr(split, part)] for part in ("train", "test")}
    return {
        "scenario": s.titled,
        "images": s.data,
        "seed": seed,
        "training images per client": f"{min(sizes['train'])} to {max(sizes['train'])}",
        "test images per client": f"{min(sizes['test'])} to {max(sizes['test'])}",
        "classes that some client holds": int((split.counts(problem.images, "train").sum(0) > 0).sum()),
        "sha256": split.digest[:16],
        "sha256 of the run": s.jobs["ls"].meta["partition_sha256"][str(seed)][:16],
    }
