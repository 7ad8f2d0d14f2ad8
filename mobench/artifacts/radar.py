"""Radar charts: values of S objectives on equally spaced axes, polygons, what they cover, and their areas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.patheffects import withStroke

ROTATION = math.pi / 2  # the first axis points up


def from_zero(ax: Any) -> str:
    """Returns the end of a title: nothing if the axes of a radar chart start at 0, else a note."""
    return " (axes do not start at 0)" if ax.get_ylim()[0] > 0 else ""


def polygon_area(values: np.ndarray) -> float:
    """Returns the area of the polygon with these radii on S >= 3 equally spaced axes from 0."""
    n = len(values)
    return 0.5 * math.sin(2 * math.pi / n) * float(values @ np.roll(values, -1))


def hull(polygons: np.ndarray) -> np.ndarray:
    """Returns the maximum of the rows on each axis: the area that a set of runs covers together."""
    covered: np.ndarray = np.fmax.reduce(polygons, axis=0)
    return covered


def radar_axes(
    fig: Any,
    position: Any,
    labels: Sequence[str],
    low: float,
    high: float,
    ticks: Sequence[float],
    beside: bool = False,
) -> Any:
    """Returns a polar panel with one axis for each label, from `low` at the centre to `high`.

    beside: labels start outside of the rings, which takes width; else they are centred at the axes' ends.
    """
    ax = fig.add_subplot(position, projection="polar")
    ax.set_theta_offset(ROTATION)
    ax.set_theta_direction(-1)
    angles = np.arange(len(labels)) * 2 * np.pi / len(labels)
    ax.set_xticks(angles, labels)
    if beside:
        for text, angle in zip(ax.get_xticklabels(), angles, strict=True):
            side = round(math.sin(angle), 9)
            text.set_horizontalalignment("center" if side == 0 else "left" if side > 0 else "right")
    ax.set_ylim(low, high)
    ax.set_yticks(list(ticks))
    ax.set_yticklabels([])
    halo = [withStroke(linewidth=2, foreground="white")]
    for t in ticks:  # on top of the polygons, which pass over an axis' own labels
        ax.text(
            np.pi / len(labels),
            t,
            f"{t:g}",
            fontsize=6.5,
            color="#555555",
            ha="center",
            va="center",
            path_effects=halo,
            zorder=4,
        )
    ax.grid(lw=0.4, color="#CCCCCC")
    ax.spines["polar"].set_visible(False)
    ax.tick_params(axis="x", pad=0 if beside else 4)
    return ax


def draw_polygon(
    ax: Any, values: np.ndarray, label: str | None, color: str, spread: np.ndarray | None = None, **kw: Any
) -> None:
    """Draws the polygon of one run; `spread`: standard errors, as bars along the axes."""
    angles = np.arange(len(values)) * 2 * np.pi / len(values)
    closed = np.append(angles, angles[0]), np.append(values, values[0])
    ax.plot(*closed, **({"color": color, "lw": 1.3, "label": label, "marker": "o", "ms": 2.6} | kw))
    if spread is not None and np.isfinite(spread).all():
        ax.errorbar(angles, values, yerr=spread, fmt="none", ecolor=color, elinewidth=0.9, alpha=0.8)


def draw_hull(ax: Any, values: np.ndarray, label: str | None) -> None:
    """Fills the covered area."""
    angles = np.arange(len(values)) * 2 * np.pi / len(values)
    ax.fill(angles, values, color="#BBBBBB", alpha=0.45, lw=0, label=label, zorder=0)


def limits(values: np.ndarray) -> tuple[float, float, list[float]]:
    """Returns ends and ticks of the axes for these values, such that differences are visible."""
    if not np.isfinite(values).any():
        return 0.0, 1.0, [1.0]
    low = float(np.nanmin(values))
    high = float(np.nanmax(values))
    step = 10 ** math.floor(math.log10(max(high - low, 1e-9)))
    for size in (0.5 * step, step, 2 * step):
        bottom = max(0.0, (math.floor(low / size) - 1) * size)
        top = math.ceil(high / size) * size
        ticks = np.arange(bottom + size, top + size / 2, size)
        if len(ticks) <= 5:
            break
    return bottom, top, [round(float(t), 10) for t in ticks]
