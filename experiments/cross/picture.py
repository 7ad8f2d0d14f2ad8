"""The picture of a suite: scores as a heat map, and beside it the mean relative ranks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from mobench.artifacts import Artifact
from mobench.artifacts import style as st

from .scores import INTERVAL, Table, mean_ranks

Refused = Mapping[tuple[str, str], str]  # (problem, algorithm): why they do not fit
CELL = 0.37  # inches: width of a column of scores
ROW = 0.185  # inches: height of a method
LINE = 0.135  # inches: height of a line below the panels
LETTERS = 17  # that fit into an inch of a line below the panels
PROBLEMS = {"vlmop2": "VLMOP2", "dtlz2": "DTLZ2"} | {f"zdt{i}": f"ZDT{i}" for i in range(1, 7)}
# what a reader of the picture needs of the reasons why a pair does not fit; the table has them in full
PLAIN = (
    (r"needs exactly one constraint", "needs one constraint"),
    (r"supports constraints of kind 'gap'", "needs a lower level as its constraint"),
    (r"does not support constraints", "has no means for constraints"),
    (r"needs objectives >= 0", "needs objectives that are never negative"),
    (r"needs hvp", "needs second derivatives, which this problem's oracle does not compute"),
    (r"needs a feasible set of type Box", "needs bounds on the variables"),
    (r"direction must satisfy", "has more equations for its direction than variables"),
)


def draw(a: Artifact, shown: list[Table], refused: Refused) -> None:
    """Scores, as a heat map or of a single problem as points, and the mean relative ranks on the right."""
    order = mean_ranks(shown)
    reasons = {pair: plain(reason) for pair, reason in refused.items()}
    letters = {reason: chr(97 + i) for i, reason in enumerate(dict.fromkeys(reasons.values()))}
    several = len(shown) > 1
    width = max(CELL * len(shown), 1.6) if several else 2.6
    wide = min(st.WIDTH, width + 3.4)
    below = legend(shown, order, refused, reasons, letters)
    lines = [line for part in below for line in textwrap.wrap(part, int(LETTERS * wide))]
    high = ROW * len(order) + (1.75 if several else 1.0) + LINE * len(lines)
    fig, (left, right) = st.plt.subplots(
        1, 2, figsize=(wide, high), width_ratios=[width, 1.5], layout="constrained", sharey=True
    )
    if several:
        empty = {pair: letters[reason] for pair, reason in reasons.items()}
        image = draw_scores(left, shown, list(order), empty)
        bar = fig.colorbar(image, ax=left, location="top", shrink=0.6 if len(shown) > 4 else 1.0, pad=0.01)
        bar.ax.set_aspect("auto")
        bar.set_label("colour: score relative to the best of its column")
        bar.outline.set_visible(False)
    else:
        draw_single(left, shown[0], list(order))
    draw_ranks(right, shown, order)
    text = "\n".join(lines)
    fig.supxlabel(text, fontsize=st.SMALLEST, x=0.01, ha="left", color="#555555")
    a.figure(fig)


def legend(
    shown: list[Table],
    order: Mapping[str, Any],
    refused: Refused,
    reasons: Refused,
    letters: Mapping[str, str],
) -> list[str]:
    """Returns the paragraphs below the panels: what numbers and letters are, which methods are missing."""
    nowhere = sorted({m for _, m in refused} - set(order))
    if len(shown) == 1:
        missing = [f"{method(m)} ({reasons[shown[0].name, m]})" for m in nowhere]
        unfinished = [f"{method(m)} ({ended(shown[0], m)})" for m in order if lost(shown[0], m)]
        return [
            *[f"No finished run, so the last place: {'; '.join(unfinished)}."] * bool(unfinished),
            *[f"Not here: {'; '.join(missing)}."] * bool(missing),
        ]
    kinds = {t.fronts for t in shown}
    words = ["Numbers: share of the front's hypervolume, mean over seeds; bold: the best."] * (True in kinds)
    star = "* worst objective" if len(kinds) > 1 else "Numbers: worst objective"
    words += [f"{star}, smaller is better; >999: it diverges."] * (False in kinds)
    words += [" ".join(explained(letters, reasons, nowhere))]
    blank = any(m not in t.pairs and (t.name, m) not in refused for t in shown for m in order)
    words += ["Blank: a method for bilevel problems, which is not in the other suites."] * blank
    return [part for part in words if part]


def lost(t: Table, algorithm: str) -> bool:
    """Returns whether no run of a method counts: its score is the worst there is."""
    return not t.shown(t.pairs[algorithm])["counts"].any()


def ended(t: Table, algorithm: str) -> str:
    """Returns how the runs of a method ended, in words."""
    every = t.pairs[algorithm].rows["status"].value_counts()
    words = {"diverged": "values that are not finite", "solver_failed": "a subproblem without a solution"}
    said = [f"{n} with {words.get(str(status), str(status))}" for status, n in every.items()]
    return f"of {every.sum()} runs at all step sizes and seeds, {' and '.join(said)}"


def draw_single(ax: Any, t: Table, methods: list[str]) -> None:
    """Scores of one problem: small points are seeds, the large one is their mean."""
    values = {m: t.scores[list(t.pairs).index(m)] for m in methods}
    finite = np.concatenate([v[np.isfinite(v)] for v in values.values()])
    # what diverged stands at the edge, marked as beyond it
    edge = min(float(finite.max()), 10 * float(np.median(finite))) if not t.fronts else np.inf
    for i, (name, seeds) in enumerate(values.items()):
        inside = seeds[seeds <= edge]
        beside: dict[str, Any] = {
            "xycoords": ax.get_yaxis_transform(),
            "va": "center",
            "fontsize": 7,
            "color": st.GREY,
        }
        beside["bbox"] = {"fc": "white", "ec": "none", "pad": 0.8}  # over the grid
        if lost(t, name):
            ends: dict[str, Any] = {"ha": "left"} if t.fronts else {"ha": "right"}
            ax.annotate("no finished run", (0.04 if t.fronts else 0.99, i), **beside, **ends)
            continue
        ax.plot(inside, np.full(len(inside), i), "o", ms=2.6, color=st.BLUE, alpha=0.4, mew=0)
        if np.isfinite(seeds.mean()) and seeds.mean() <= edge:
            ax.plot(seeds.mean(), i, "o", ms=5, color=st.BLUE, mec="white", mew=0.5)
        else:
            ax.annotate(f"beyond the axis: {seeds.mean():.1g}", (0.99, i), ha="right", **beside)
    if t.fronts:
        ax.set_xlim(-0.02, 1.02)
    ax.set_yticks(range(len(methods)), [method(m) for m in methods])
    ax.set_ylim(len(methods) - 0.5, -0.5)
    ax.grid(axis="both", lw=0.4, color="#DDDDDD")
    ax.set_axisbelow(True)
    seeds_word = "large: mean over seeds, small: each seed" if len(t.report) > 1 else "one seed"
    ax.set_xlabel(f"{problem(t.name)}: {scale_of(t)}\n{seeds_word}")


def scale_of(t: Table) -> str:
    """Returns what the scores of a problem are, for its axis."""
    if not t.fronts:
        return "worst objective (smaller is better)"
    if t.front is not None:
        return "share of the front's hypervolume"
    return "hypervolume\n(1: that of the points of all methods together)"


def draw_scores(ax: Any, shown: list[Table], methods: list[str], empty: Refused) -> Any:
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
                weight = "bold" if means[m] == best else "normal"
                ax.text(j, i, number(means[m]), color=colour, weight=weight, **centred)
            else:
                ax.add_patch(st.plt.Rectangle((j - 0.5, i - 0.5), 1, 1, color="#F0F0F0", lw=0))
                ax.text(j, i, empty.get((t.name, m), ""), color=st.GREY, style="italic", **centred)
    image = ax.imshow(colours, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    stars = "*" if any(t.fronts for t in shown) else ""
    names = [problem(t.name) + ("" if t.fronts else stars) for t in shown]
    turned = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(shown)), names, **turned)
    ax.set_yticks(range(len(methods)), [method(m) for m in methods])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image


def method(name: str) -> str:
    """Returns what readers call a method."""
    return st.METHODS[name].name if name in st.METHODS else name.replace("_", " ")


def problem(name: str) -> str:
    """Returns what readers call a problem."""
    return PROBLEMS.get(name, name.replace("_", " "))


def plain(reason: str) -> str:
    """Returns the first of several reasons in plain words."""
    return next((words for found, words in PLAIN if re.search(found, reason.split(";")[0])), first(reason))


def nearness(value: float, best: float, larger: bool) -> float:
    """Returns value / best, or best / value where smaller is better; 1 is the best."""
    good, bad = (value, best) if larger else (best, value)
    return max(0.0, good / bad) if bad > 0 else 1.0


def number(value: float) -> str:
    """Writes a score."""
    if not np.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return ">999"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def draw_ranks(ax: Any, shown: list[Table], order: Mapping[str, tuple[float, float, float, int]]) -> None:
    """Mean relative ranks with their intervals."""
    for i, (value, low, high, n) in enumerate(order.values()):
        spread = None if np.isnan(low) else [[max(0.0, value - low)], [max(0.0, high - value)]]
        ax.errorbar(value, i, xerr=spread, fmt="o", ms=3.5, color=st.BLUE, elinewidth=1.0)
        if len(shown) > 1:
            beside = {"xycoords": ax.get_yaxis_transform(), "fontsize": 7, "color": st.GREY, "va": "center"}
            ax.annotate(str(n), (1.04, i), **beside)
    ax.set_xlim(0, 1.02)
    few = "" if all(t.wide for t in shown) else f"\nwhere {INTERVAL} seeds or more count"
    wide = f"\n(95 % bootstrap{few})" if any(t.wide for t in shown) else ""
    end = "\ngrey: number of problems" if len(shown) > 1 else ""
    what = "mean rank" if len(shown) > 1 else "rank"
    ax.set_xlabel(f"{what} / methods,\nleft is better{wide}{end}", fontsize=7)
    ax.grid(axis="x", lw=0.4, color="#CCCCCC")


def first(reason: str) -> str:
    """Returns the first of several reasons, without numbers that differ between problems."""
    return re.sub(r", the problem has [NMP]=\d+", "", reason.split(";")[0])


def explained(letters: Mapping[str, str], reasons: Refused, nowhere: list[str]) -> list[str]:
    """Returns what the letters of empty cells mean, and which methods are on no problem."""
    words = [f"{letter}: {reason}." for reason, letter in letters.items()]
    why: dict[str, list[str]] = {}
    for missing in nowhere:
        own = {letters[reason] for (_, m), reason in reasons.items() if m == missing}
        why.setdefault(", ".join(sorted(own)), []).append(method(missing))
    words += [f"On none of these ({key}): {', '.join(methods)}." for key, methods in why.items()]
    return words
