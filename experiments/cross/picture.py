"""The picture of a suite: scores as a heat map, and beside it the mean relative ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mobench.artifacts import Artifact
from mobench.artifacts import style as st

from .scores import INTERVAL, Table, mean_ranks

Refused = Mapping[tuple[str, str], str]  # (problem, algorithm): why they do not fit
LONGEST = 150  # characters of a line below the panels


def draw(a: Artifact, shown: list[Table], refused: Refused) -> None:
    """Scores as a heat map, methods by their mean relative rank, which the right panel shows."""
    order = mean_ranks(shown)
    reasons = {pair: first(reason) for pair, reason in refused.items()}
    letters = {reason: chr(97 + i) for i, reason in enumerate(dict.fromkeys(reasons.values()))}
    width = max(1.1 * len(shown), 2.2)
    fig, (left, right) = st.plt.subplots(
        1,
        2,
        figsize=(width + 4.6, 0.27 * len(order) + 1.6),
        width_ratios=[width, 2.2],
        layout="constrained",
        sharey=True,
    )
    empty = {pair: letters[reason] for pair, reason in reasons.items()}
    draw_scores(left, shown, list(order), empty)
    draw_ranks(right, shown, order)
    if letters:
        text = "\n".join(explained(letters, reasons, sorted({m for _, m in refused} - set(order))))
        fig.supxlabel(text, fontsize=6.2, x=0.01, ha="left", color=st.GREY)
    a.figure(fig)


def draw_scores(ax: Any, shown: list[Table], methods: list[str], empty: Refused) -> None:
    """Mean scores, coloured by how near they are to the best of their column; letters of empty cells."""
    colours = np.full((len(methods), len(shown)), np.nan)
    centred = {"ha": "center", "va": "center", "fontsize": 7}
    for j, t in enumerate(shown):
        means = dict(zip(t.pairs, t.scores.mean(1), strict=True))
        best = max(means.values()) if t.fronts else min(means.values())
        for i, m in enumerate(methods):
            if m in means:
                colours[i, j] = nearness(means[m], best, t.fronts)
                colour = "white" if colours[i, j] < 0.6 else "black"
                ax.text(j, i, number(means[m]), color=colour, **centred)
            else:
                ax.add_patch(st.plt.Rectangle((j - 0.5, i - 0.5), 1, 1, color="#F0F0F0", lw=0))
                ax.text(j, i, empty.get((t.name, m), ""), color=st.GREY, style="italic", **centred)
    ax.imshow(colours, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    ax.set_xticks(range(len(shown)), [f"{t.name}\n({t.measure})" for t in shown], fontsize=7.5)
    ax.set_yticks(range(len(methods)), methods, fontsize=8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def nearness(value: float, best: float, larger: bool) -> float:
    """Returns value / best, or best / value where smaller is better; 1 is the best."""
    good, bad = (value, best) if larger else (best, value)
    return max(0.0, good / bad) if bad > 0 else 1.0


def number(value: float) -> str:
    """Writes a score."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.1e}"


def draw_ranks(ax: Any, shown: list[Table], order: Mapping[str, tuple[float, float, float, int]]) -> None:
    """Mean relative ranks with their intervals."""
    for i, (value, low, high, n) in enumerate(order.values()):
        spread = None if np.isnan(low) else [[max(0.0, value - low)], [max(0.0, high - value)]]
        ax.errorbar(value, i, xerr=spread, fmt="o", ms=3.5, color=st.BLUE, elinewidth=1.0)
        if len(shown) > 1:
            beside = {"xycoords": ax.get_yaxis_transform(), "fontsize": 7, "color": st.GREY, "va": "center"}
            ax.annotate(str(n), (1.06, i), **beside)
    ax.set_xlim(0, 1.02)
    few = "" if all(t.wide for t in shown) else f" where {INTERVAL} seeds or more are reported"
    end = "; right: problems)" if len(shown) > 1 else ")"
    ax.set_xlabel(f"mean of rank / methods\n(95 % bootstrap interval{few}{end}", fontsize=7.5)
    ax.grid(axis="x", lw=0.4, color="#CCCCCC")


def first(reason: str) -> str:
    """Returns the first of several reasons, without numbers that differ between problems."""
    return re.sub(r", the problem has [NMP]=\d+", "", reason.split(";")[0])


def explained(letters: Mapping[str, str], reasons: Refused, nowhere: list[str]) -> list[str]:
    """Returns what the letters of empty cells mean, and which methods are on no problem."""
    words = [f"{letter}: {reason}" for reason, letter in letters.items()]
    why: dict[str, list[str]] = {}
    for method in nowhere:
        own = {letters[reason] for (_, m), reason in reasons.items() if m == method}
        why.setdefault(", ".join(sorted(own)), []).append(method)
    words += [f"on none of these ({key}): {', '.join(methods)}" for key, methods in why.items()]
    return [w if len(w) <= LONGEST else w[: LONGEST - 3] + "..." for w in words]
