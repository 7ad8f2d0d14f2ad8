"""Which classes each client of a partition holds: one heat map for each scenario, with the counts in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mobench.artifacts import style as st
from mobench.data.clients import Clients
from mobench.data.images import CLASSES, Images

ROW = 0.24  # inches
LARGEST_SHARE = 0.6  # of the largest count: from here on the ground is dark and numbers are white


def class_counts_figure(
    base: Images, scenarios: Mapping[str, Clients], seed: int, split: str = "train"
) -> Any:
    """A figure with a panel for each scenario (title of the panel: its partition).

    One scale of colours for all.
    """
    counts = {title: clients.counts(base, split) for title, clients in scenarios.items()}
    top = max(int(table.max()) for table in counts.values())
    rows = max(len(table) for table in counts.values())
    fig: Any
    fig, axes = st.plt.subplots(
        1,
        len(scenarios),
        figsize=(3.5 * len(scenarios), ROW * rows + 1.0),
        squeeze=False,
        layout="constrained",
    )
    fig.get_layout_engine().set(wspace=0.05)
    for ax, (title, clients) in zip(axes[0], scenarios.items(), strict=True):
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
        ax.set_title(f"{title}\nsha256 {clients.digest[:8]}")
        ax.set_xlabel("class")
    turns = any(any(clients.turns) for clients in scenarios.values())
    axes[0, 0].set_ylabel("client, turned by" if turns else "client")
    what = "training" if split == "train" else "test"
    fig.suptitle(f"{base.label}: {what} images of each class, seed {seed}", fontsize=10)
    return fig
