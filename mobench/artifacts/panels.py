"""Panels that figures of several papers share: curves with bands, levels, and all around them.

    fig, axes = style.panels(1, 2)
    for key, c in shown.items():
        curve(axes[0, 0], c.steps, c.column("violation"), NAMES[key], band="std", color=COLOURS[key])
    dress(axes[0, 0], "iteration", "violation", log="x", symlog=1e-3, legend=True)

Radar charts are in `radar`, colours and markers in `style`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from mobench.artifacts import style as st
from mobench.artifacts.statistics import standard_error

Band = Literal["", "error", "quantiles", "range"]
LEVEL = {"color": st.BLACK, "ls": ":", "lw": 1.0}


def dress(
    ax: Any,
    x: str | None = None,
    y: str | None = None,
    title: str | None = None,
    *,
    log: str = "",
    symlog: float | None = None,
    xlim: tuple[float | None, float | None] | None = None,
    ylim: tuple[float | None, float | None] | None = None,
    ticks: Sequence[Any] | None = None,
    legend: bool | str | Mapping[str, Any] = False,
    small: bool = False,
) -> None:
    """Gives a panel its labels, scales, limits, ticks and legend.

    Args:
        x: label of the axis below.
        y: label of the axis at the left.
        title: of the panel.
        log: axes with a logarithmic scale: "x", "y" or "xy".
        symlog: y is linear up to this value and logarithmic above, and starts at 0.
        xlim: ends of the axis; None leaves one as it is.
        ylim: likewise.
        ticks: labels of the positions 0, 1, ... on x.
        legend: whether there is one, where ("upper right"), or its options.
        small: title and legend in small letters.
    """
    labels = {"xlabel": x, "ylabel": y}
    ax.set(**{name: text for name, text in labels.items() if text is not None})
    if title is not None:
        ax.set_title(title, **({"fontsize": 8} if small else {}))
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")
    if symlog is not None:
        ax.set_yscale("symlog", linthresh=symlog)
        ax.set_ylim(bottom=0)
    if xlim is not None:
        ax.set_xlim(*xlim)
    if ylim is not None:
        ax.set_ylim(*ylim)
    if ticks is not None:
        ax.set_xticks(range(len(ticks)), [str(t) for t in ticks])
    if legend:
        options = (
            {"loc": legend}
            if isinstance(legend, str)
            else dict(legend)
            if isinstance(legend, Mapping)
            else {}
        )
        ax.legend(**({"fontsize": 7} if small else {}) | options)


def curve(
    ax: Any,
    x: np.ndarray,
    values: np.ndarray,
    label: str | None = None,
    *,
    band: Band = "",
    alpha: float = 0.18,
    **line: Any,
) -> Any:
    """Draws the mean over seeds against x, with a band for the spread of the seeds.

    Args:
        ax: the panel.
        x: (T,).
        values: (S, T), or (T,) of a single curve.
        label: in the legend.
        band: one standard error ("error"), the 10 to 90 % "quantiles", or the "range". Of fewer than five
            seeds quantiles are the range. Where values have an end that they cannot pass (0, a budget),
            quantiles do not pass it either.
        alpha: opacity of the band.
        line: color, ls, lw and the like.
    """
    values = np.atleast_2d(values)
    mean = values.mean(axis=0)
    (drawn,) = ax.plot(x, mean, label=label, **line)
    if band == "quantiles" and len(values) < st.FEWEST:
        band = "range"
    if band == "quantiles":
        low, high = np.quantile(values, [0.1, 0.9], axis=0)
    elif band == "range":
        low = values.min(axis=0)
        high = values.max(axis=0)
    elif band:
        width = standard_error(values)
        low = mean - width
        high = mean + width
    if band and np.isfinite(low).all():
        ax.fill_between(x, low, high, color=drawn.get_color(), alpha=alpha, lw=0)
    return drawn


def level(ax: Any, y: float, label: str | None = None, **line: Any) -> None:
    """Draws a horizontal reference line, dotted and black: an exact optimum, a printed value."""
    ax.axhline(y, label=label, **LEVEL | line)


def legend_below(fig: Any, ax: Any, ncols: int = 6, **kw: Any) -> None:
    """Gives the figure one legend below all panels, with the entries of `ax`."""
    handles, labels = ax.get_legend_handles_labels()
    longest = max((len(label) for label in labels), default=0)
    fit = max(1, int(fig.get_figwidth() / (0.065 * longest + 0.5)))  # inches: letters, handle
    kw = {"handlelength": 2.4, **kw}  # long enough for a dash on both sides of a marker
    fig.legend(handles, labels, loc="outside lower center", ncols=min(ncols, fit, len(labels) or 1), **kw)
