"""One look for all figures: colours and markers of methods and preferences, sizes, badges.

A method has the same colour and marker in every figure of every paper (`look`), a preference the colour of
its angle (`preference`). Figures are as wide as the text of a paper at most (`WIDTH`), and no letter is
smaller than `SMALLEST` there: `finish` sees to both when a figure is taken.
"""

from __future__ import annotations

import re
import string
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
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
BLACK = "#000000"
GREY = "#7F7F7F"
CYCLE = [BLUE, ORANGE, GREEN, RED, PURPLE, SKY]
MARKERS = ["o", "s", "^", "D", "v", "P"]

WIDTH = 7.0  # inches: the text width of a paper in one column
SMALLEST = 7.0  # points
FEWEST = 5  # seeds of which a box or an interval is drawn

RC: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.title_fontsize": 7.0,
    "legend.handlelength": 1.8,
    "figure.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=CYCLE),
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.05,
}


mpl.rcParams.update(RC)


@dataclass(frozen=True)
class Look:
    """The style of a method in figures, and its printed name."""

    name: str
    colour: str
    marker: str = "o"
    line: Any = "-"


# The method that a paper proposes is blue; those that one figure compares differ in colour and in marker.
METHODS = {  # by their names in conf/algorithm, or by those of their jobs
    "csmoo2": Look("CSMOO-2", BLUE, "o"),
    "csmoo1": Look("CSMOO-1", GREEN, "s", (0, (5, 3))),
    "csmoo_basic": Look("CSMOO, basic", PURPLE, "^", (0, (2, 2))),
    "sgd": Look("baseline, SGD", RED, "v"),
    "prox": Look("baseline, proximal", ORANGE, "D"),
    "tuned": Look("baseline, tuned SGD", BLACK, "P"),
    "penalty_sgd": Look("Penalty SGD", RED, "v"),
    "ferero": Look("FERERO", BLUE, "D"),
    "ferero_sa": Look("FERERO-SA", SKY, "d"),
    "ls": Look("Linear weights", BLACK, "o"),
    "mgda": Look("MGDA", GREY, "s"),
    "pmtl": Look("PMTL", GREEN, "^"),
    "epo": Look("EPO", ORANGE, "v"),
    "wc_mhgd": Look("WC-MHGD", BLUE, "o"),
    "moco": Look("MoCo", RED, "D"),
    "forum": Look("FORUM", ORANGE, "s"),
    "moml": Look("MOML", GREEN, "^"),
    "mlm_cmoo": Look("MLM-CMOO", BLUE, "D"),
    "nsga2": Look("NSGA-II", ORANGE, "v"),
    "psl": Look("PSL", GREEN, "^"),
    "tch": Look("TCH", GREY, "s"),
    "stch": Look("STCH", "#999933", "X"),
    "omd_gd": Look("OMDgd-TCH (AFL)", SKY, "^"),
    "ada_gd": Look("AdaOMDgd-TCH", BLUE, "D"),
    "omd_eg": Look("OMDeg-TCH", ORANGE, "v", "--"),
    "ada_eg": Look("AdaOMDeg-TCH", RED, "P", "--"),
    "omd_tch": Look("OMD-TCH", ORANGE, "^", "--"),
    "ada_omd_tch": Look("AdaOMD-TCH", BLUE, "D"),
    "qffl": Look("q-FFL", PURPLE, "<"),
    "propfair": Look("PropFair", GREEN, ">"),
    "fedmgda_plus": Look("FedMGDA+", "#8C6D31", "p"),
    "fedfv": Look("FedFV", "#332288", "h"),
    "upgrad": Look("UPGrad", BLUE, "s"),
    "dualproj": Look("DualProj", GREEN, "D"),
    "cagrad": Look("CAGrad", ORANGE, "P"),
    "nash_mtl": Look("Nash-MTL", RED, "^"),
    "fairgrad": Look("FairGrad", PURPLE, "o"),
    "imtl_g": Look("IMTL-G", SKY, "s"),
    "pcgrad": Look("PCGrad", GREY, "D"),
    "aligned_mtl": Look("Aligned-MTL", BLACK, "^"),
    "config": Look("ConFIG", "#8C6D31", "s"),
    "graddrop": Look("GradDrop", "#999933", "v"),
    "famo": Look("FAMO", "#332288", "s"),
    "dwa": Look("DWA", SKY, "<"),
    "excess_mtl": Look("ExcessMTL", RED, "s"),
    "modo": Look("MoDo", RED, "X"),
    "sdmgrad": Look("SDMGrad", GREEN, "p"),
    "pmgda": Look("PMGDA", "#332288", "D"),
    "pbi": Look("PBI", "#8C6D31", "X"),
    "hv_gradient": Look("Hypervolume gradient", BLUE, "P"),
    "stch_set": Look("STCH-Set", "#999933", "p"),
    "cosmos": Look("COSMOS", ORANGE, "h"),
    "phn": Look("PHN-LS", GREEN, "X"),
    "phn_epo": Look("PHN-EPO", GREEN, "h"),
    "fedavg": Look("FedAvg", BLACK, "p"),
    "afl": Look("AFL", SKY, "p"),
    "term": Look("TERM", "#999933", "h"),
}


def look(method: str) -> Look:
    """Returns the look of a method by its name in conf/algorithm, or by the name of its job."""
    return METHODS[method]


def preference(degrees: float) -> str:
    """Returns the colour of a preference from the angle of its ray, 0 (along f_1) to 90 degrees (f_2).

    Dark to light, so that the order is seen in grey as well.
    """
    return str(mpl.colors.to_hex(plt.get_cmap("viridis")(0.9 * np.clip(degrees / 90.0, 0.0, 1.0))))


def preference_bar(fig: Any, axes: Any) -> None:
    """Gives a figure the colour bar of its preferences."""
    colours = [preference(d) for d in np.linspace(0, 90, 64)]
    mappable = plt.cm.ScalarMappable(plt.Normalize(0, 90), mpl.colors.ListedColormap(colours))
    shrink = 0.8 if fig.get_figheight() < 4 else 0.3
    bar = fig.colorbar(mappable, ax=axes, shrink=shrink, aspect=20, pad=0.02)
    bar.set_label("angle of the preference's ray (degrees)")
    bar.set_ticks([0, 30, 60, 90])
    bar.outline.set_visible(False)


def panels(rows: int, cols: int, size: float = 2.6, **kw: Any) -> tuple[Any, np.ndarray]:
    """Returns a figure with a grid of panels (rows, cols), narrowed where it would be wider than the page.

    size: width and height of a panel in inches; `kw` goes to `plt.subplots` (figsize, sharey).
    """
    size_of_all = fitted(*kw.pop("figsize", (size * cols, size * rows)))
    return plt.subplots(rows, cols, figsize=size_of_all, squeeze=False, layout="constrained", **kw)


def fitted(width: float, height: float) -> tuple[float, float]:
    """Returns a size that is at most `WIDTH` wide; a narrowed one keeps most of its height."""
    if width <= WIDTH:
        return width, height
    return WIDTH, height * max(WIDTH / width, 0.82)


def objective_axes(
    ax: Any, low: float = -0.1, high: float = 1.15, labels: tuple[str, str] = ("$f_1$", "$f_2$")
) -> None:
    """Gives a panel of two objectives equal axes."""
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])


def draw_front(ax: Any, front: np.ndarray, label: str | None = "Pareto front") -> None:
    """Draws the exact front as a black line."""
    ax.plot(front[:, 0], front[:, 1], color=BLACK, lw=1.6, zorder=2, label=label)


def draw_ray(
    ax: Any, direction: np.ndarray, origin: np.ndarray | None = None, reach: float = 2.0, **kw: Any
) -> None:
    """Draws a dashed line from `origin` along `direction`."""
    start = np.zeros(2) if origin is None else origin
    end = start + reach * direction / np.linalg.norm(direction)
    style = {"color": GREY, "ls": (0, (4, 3)), "lw": 0.9, "zorder": 1} | kw
    ax.plot([start[0], end[0]], [start[1], end[1]], **style)


# of the whole figure


def caption(fig: Any, words: str) -> None:
    """Gives a figure a caption: small text below everything, which explains its marks and bands."""
    text = fig.text(0.0, 0.0, words, gid="caption", ha="left", va="top", fontsize=SMALLEST)
    text.set_in_layout(False)  # until `finish` has found its place


def finish(fig: Any, badge: str = "") -> Any:
    """Makes a figure ready for print, and returns its box in inches.

    It is narrowed to `WIDTH`, several panels get letters, type is enlarged to `SMALLEST`, titles and labels
    that are longer than their panel get several lines, `badge` (data set and scale) is written above
    everything, and a `caption` below.
    """
    fig.set_size_inches(*fitted(*fig.get_size_inches()))
    _letter(fig)
    _enlarge(fig)
    pad = float(plt.rcParams["savefig.pad_inches"])
    _lay_out(fig)
    if _wrap(fig):
        _lay_out(fig)
    box = fig.get_tightbbox()
    for _ in range(3):
        over = box.width + 2 * pad - WIDTH
        if over <= 0.0:
            break
        width, height = fig.get_size_inches()
        fig.set_size_inches(width - over - 0.01, height)
        _lay_out(fig)
        box = fig.get_tightbbox()
    fig.set_layout_engine(None)  # of "none", savefig would wait for a draw as well
    width, height = fig.get_size_inches()
    longest = max(20, int(_letters(max(box.width, 2.5), SMALLEST)))
    for legend in fig.legends:  # beside the panels, not at the end of the box that is saved, which is larger
        if legend.get_bbox_to_anchor() is not fig.bbox:
            continue
        legend.set_bbox_to_anchor((0.0, 0.0, 1.0, 1.0), transform=fig.transFigure)
    added = [text for text in fig.texts if text.get_gid() == "caption"]
    for text in added:
        text.set_text("\n".join(_filled(_parts(text.get_text()), longest)))
        text.set_position((box.x0 / width, (box.y0 - 0.06) / height))
        text.set_in_layout(True)
    if badge:
        lines = textwrap.fill(badge, longest)
        place = {"ha": "left", "va": "bottom", "fontsize": SMALLEST, "color": "#555555", "style": "italic"}
        added.append(fig.text(box.x0 / width, (box.y1 + 0.06) / height, lines, gid="badge", **place))
    to_inches = fig.dpi_scale_trans.inverted()
    boxes = [box, *(text.get_window_extent().transformed(to_inches) for text in added)]
    return mpl.transforms.Bbox.union(boxes).padded(pad)


def _lay_out(fig: Any) -> None:
    # the first half of a draw; the second costs as much again, and moves nothing
    if (engine := fig.get_layout_engine()) is not None:
        engine.execute(fig)


def _letter(fig: Any) -> None:
    """Gives several panels letters before their titles, unless titles have them already."""
    axes: list[Any] = []
    for ax in fig.axes:
        beside = ax.get_label() == "<colorbar>" or any(ax.bbox.bounds == other.bbox.bounds for other in axes)
        drawn = ax.axison or ax.name == "3d"  # whose two-dimensional axes are always off
        if drawn and ax.get_visible() and not beside:  # a second axis of a panel has its place
            axes.append(ax)
    titles = [next((t for t in (ax.title, ax._left_title) if t.get_text()), ax._left_title) for ax in axes]
    if len(axes) < 2 or any(re.match(r"\([a-z]\W?\)", title.get_text()) for title in titles):
        return
    for letter, title in zip(string.ascii_lowercase, titles, strict=False):
        title.set_text(f"({letter}) {title.get_text()}".strip())


def _letters(inches: float, size: float) -> float:
    """Returns about how many letters of a size fit into a width."""
    return inches * 72.0 / (0.56 * size)


def _enlarge(fig: Any) -> None:
    for text in fig.findobj(mpl.text.Text):
        if text.get_fontsize() < SMALLEST:
            text.set_fontsize(SMALLEST)
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            for which in ("major", "minor"):
                old = axis.get_tick_params(which).get("labelsize")
                if isinstance(old, (int, float)) and old < SMALLEST:
                    axis.set_tick_params(which=which, labelsize=SMALLEST)


def _wrap(fig: Any) -> bool:
    """Breaks titles and labels that are longer than their panel or axis, and says whether there were any.

    Formulas stay whole.
    """
    width, _ = fig.get_size_inches()
    dpi = fig.dpi
    broken = []
    for ax in fig.axes:
        if not ax.axison:
            continue
        box = ax.get_window_extent()
        wide = box.width / dpi
        for title in (ax.title, ax._left_title, ax._right_title, ax.xaxis.label):
            broken.append(_break(title, wide * 1.08))
        broken.append(_break(ax.yaxis.label, box.height / dpi * 1.08))
    broken += [_break(text, width) for text in (fig._suptitle, fig._supxlabel) if text is not None]
    return any(broken)


def _break(text: Any, inches: float) -> bool:
    words = text.get_text()
    extent = text.get_window_extent()
    vertical = text.get_rotation() % 180 == 90
    length = (extent.height if vertical else extent.width) / text.figure.dpi
    if not words or "\n" in words or length <= inches or inches <= 0.3:
        return False
    parts = _parts(words)
    share = int(np.ceil(length / inches))
    longest = int(1.05 * len(words) * inches / length)
    for limit in range(len(words) // share, longest + 1):  # as even as the fewest lines can be
        lines = _filled(parts, limit)
        if len(lines) <= share:
            break
    else:
        lines = _filled(parts, longest)
    text.set_text("\n".join(lines))
    return len(lines) > 1


def _parts(words: str) -> list[str]:
    """Returns the words between spaces, formulas whole."""
    return re.findall(r"(?:\$[^$]*\$|[^\s$])+", words)


def _filled(parts: Sequence[str], limit: int) -> list[str]:
    """Returns lines of at most so many letters, longer ones of a single part."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + 1 + len(part) > limit:
            lines.append(part)
        else:
            lines[-1] = f"{lines[-1]} {part}".strip()
    return lines
