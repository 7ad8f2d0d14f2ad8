"""One look for all figures: colour-blind safe, embedded fonts, no LaTeX."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler

mpl.use("Agg")
import matplotlib.pyplot as plt

# Okabe and Ito's palette
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
RED = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
YELLOW = "#F0E442"
BLACK = "#000000"
GREY = "#7F7F7F"
CYCLE = [BLUE, ORANGE, GREEN, RED, PURPLE, SKY]
MARKERS = ["o", "s", "^", "D", "v", "P"]

RC: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=CYCLE),
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.05,
}


mpl.rcParams.update(RC)


def panels(rows: int, cols: int, size: float = 2.6, **kw: Any) -> tuple[Any, np.ndarray]:
    """A figure with a grid of square panels."""
    return plt.subplots(
        rows, cols, figsize=(size * cols, size * rows), squeeze=False, layout="constrained", **kw
    )


def objective_axes(
    ax: Any, low: float = -0.1, high: float = 1.15, labels: tuple[str, str] = ("$f_1$", "$f_2$")
) -> None:
    """Equal axes of a two-objective panel."""
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])


def draw_front(ax: Any, front: np.ndarray, label: str | None = "Pareto front") -> None:
    """The exact front as a black line."""
    ax.plot(front[:, 0], front[:, 1], color=BLACK, lw=1.6, zorder=2, label=label)


def draw_ray(
    ax: Any, direction: np.ndarray, origin: np.ndarray | None = None, reach: float = 2.0, **kw: Any
) -> None:
    """A dashed line from `origin` along `direction`."""
    start = np.zeros(2) if origin is None else origin
    end = start + reach * direction / np.linalg.norm(direction)
    style = {"color": GREY, "ls": (0, (4, 3)), "lw": 0.9, "zorder": 1} | kw
    ax.plot([start[0], end[0]], [start[1], end[1]], **style)


def draw_path(ax: Any, path: np.ndarray, color: str = BLUE, start: str = GREEN, **kw: Any) -> None:
    """One trajectory in objective space: thin line, start marked by a square, end by a filled circle."""
    ax.plot(path[:, 0], path[:, 1], color=color, lw=0.9, alpha=0.8, zorder=3, **kw)
    ax.plot(*path[0, :2], marker="s", ms=3.2, color=start, mec="white", mew=0.3, zorder=4, ls="none")
    ax.plot(*path[-1, :2], marker="o", ms=4.6, color=color, mec="white", mew=0.4, zorder=5, ls="none")
