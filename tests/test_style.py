"""Figures and tables as an editor checks them: width, letters, legends, overlaps, columns."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from mobench.artifacts import Artifact, style, tables
from mobench.artifacts.artifact import registered
from mobench.artifacts.rows import RunCount
from mobench.cli import keep

PAGE = 1200  # px: what a page leaves for a table in a window of 1280 px
WITHOUT_JOBS = ("ferero/fig1", "ferero/fig2", "mobl/fig3")
KEPT = ("csmoo/fig38", "ferero/table3", "mlm_cmoo/fig1c", "mobl/fig12", "omd_tch/fig3a")


def texts(fig: Any) -> Iterator[Any]:
    """Yields all texts that are visible, tick labels outside of the limits left out."""
    hidden = set()
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-6 * (high - low)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low - slack <= tick.get_loc() <= high + slack or not (ax.axison and ax.get_visible()):
                    hidden |= {tick.label1, tick.label2}
            if not (ax.axison and ax.get_visible()):
                hidden.add(axis.label)
    for text in fig.findobj(mpl.text.Text):
        if text.get_visible() and text.get_text().strip() and text not in hidden:
            yield text


def defects(fig: Any) -> list[str]:
    """Returns what a figure editor would send back: width, small letters, no legend, texts on one another."""
    messages = []
    fig.draw_without_rendering()  # legends place their texts then
    box = fig.get_tightbbox()
    if box.width + 2 * plt.rcParams["savefig.pad_inches"] > style.WIDTH + 0.02:
        messages.append(f"{box.width:.2f} in wide, at most {style.WIDTH:g}")
    visible = list(texts(fig))
    small = Counter(t.get_fontsize() for t in visible if t.get_fontsize() < style.SMALLEST - 1e-6)
    messages += [f"{n} texts of {size:g} pt, at least {style.SMALLEST:g}" for size, n in small.items()]
    if not (fig.legends or any(ax.get_legend() for ax in fig.axes)):
        messages += [f"panel {i}: no legend" for i, ax in enumerate(fig.axes) if _needs_legend(ax)]
    boxes = [(t, t.get_window_extent()) for t in visible if t.get_rotation() % 90 == 0]
    for (one, a), (other, b) in combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        pixel = fig.dpi / 72.0
        if across > 0.75 * pixel and along > 2.0 * pixel:
            messages.append(f"{one.get_text()!r} overlaps {other.get_text()!r}")
    return messages


def _needs_legend(ax: Any) -> bool:
    """Returns whether a panel draws several named series, so that it needs a legend."""
    handles, labels = ax.get_legend_handles_labels()
    return len(set(labels)) > 1 and len(handles) > 1


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The defects of each figure that is taken."""
    messages: list[list[str]] = []
    finish = style.finish

    def spied(figure: Any, badge: str = "") -> Any:
        box = finish(figure, badge)
        messages.append(defects(figure))
        assert box.width <= style.WIDTH + 0.02
        return box

    monkeypatch.setattr(style, "finish", spied)
    return messages


@pytest.mark.parametrize("id", WITHOUT_JOBS)
def test_figures_without_jobs(id: str, taken: list[list[str]]) -> None:
    registered(id)(Artifact(id, id, "laptop", {}))
    assert taken == [[]]


def test_figures_and_tables_of_kept_rows(tmp_path: Path, taken: list[list[str]]) -> None:
    for id in KEPT:
        keep.draw_kept(id, keep.drawings()[id], tmp_path)
    assert dict(zip(KEPT, taken, strict=True)) == {id: [] for id in KEPT}
    for table in sorted((tmp_path / "artifacts").rglob("table.md")):
        assert least_width(table.read_text()) <= PAGE, table


def least_width(table: str) -> float:
    """Returns the px that a table needs at least when all cells are broken at spaces."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if "---" not in line]
    words = [
        max(len(w) for cell in column for w in [*cell.split(), ""]) for column in zip(*cells, strict=True)
    ]
    return sum(7.0 * n + 16.0 for n in words)


def test_a_wide_figure_with_small_letters_is_mended() -> None:
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 3))
    for ax in (left, right):
        ax.plot([0, 1], label="one")
        ax.plot([1, 0], label="other")
    right.text(0.5, 0.5, "small", fontsize=5)
    right.text(0.5, 0.5, "on that")
    before = " ".join(defects(fig))
    assert all(said in before for said in ("at most 7", "5 pt", "panel 1: no legend", "'small' overlaps"))
    right.texts[1].remove()
    left.set_title("a title that is much longer than the panel at which it stands, as titles become")
    left.legend()
    box = style.finish(fig, "Data: made up. Laptop scale.")
    assert defects(fig) == []
    assert box.width <= style.WIDTH
    assert "\n" in left.get_title()
    plt.close(fig)


def test_a_caption_is_below_everything_in_the_file_as_well() -> None:
    """Saving a box that is larger than the figure moves what hangs at the figure's own box."""
    fig, ax = plt.subplots(figsize=(4, 2), layout="constrained")
    ax.plot([0, 1], color="k", label="a line")
    fig.legend(loc="outside lower center", labelcolor="r")
    style.caption(
        fig, "words about what is drawn, so many that they need more than one line of the figure " * 2
    )
    fig.texts[-1].set_color("b")
    box = style.finish(fig, "Data: made up.")
    assert fig.texts[0].get_text().count("\n") >= 2
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", bbox_inches=box)
    plt.close(fig)
    buffer.seek(0)
    pixels = plt.imread(buffer)[..., :3]
    red = np.flatnonzero((pixels[..., 0] - pixels[..., 2] > 0.5).any(1))
    blue = np.flatnonzero((pixels[..., 2] - pixels[..., 0] > 0.5).any(1))
    assert len(red)
    assert len(blue)
    assert red.max() < blue.min()


def test_several_panels_have_letters() -> None:
    """Before their titles, or alone; a colour bar, a second axis and a single panel have none."""
    fig, (left, right) = plt.subplots(1, 2, layout="constrained")
    left.set_title("one")
    left.twinx()
    fig.colorbar(right.imshow([[0.0, 1.0]]), ax=right)
    style.finish(fig)
    assert [ax.get_title() or ax.get_title(loc="left") for ax in fig.axes] == ["(a) one", "(b)", "", ""]
    assert defects(fig) == []
    fig, axes = plt.subplots(1, 2)
    axes[1].set_title("(c) as printed")
    style.finish(fig)
    assert [ax.get_title() for ax in axes] == ["", "(c) as printed"]
    fig = plt.figure()
    solid, flat = fig.add_subplot(1, 2, 1, projection="3d"), fig.add_subplot(1, 2, 2)
    style.finish(fig)
    assert [ax.get_title(loc="left") for ax in (solid, flat)] == ["(a)", "(b)"]
    fig, ax = plt.subplots()
    ax.set_title("alone")
    style.finish(fig)
    assert ax.get_title() == "alone"
    plt.close("all")


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([], ""),
        (["pairs: MNIST", None, "pairs: Fashion-MNIST"], "Data: pairs: Fashion-MNIST; MNIST."),
        (["MNIST", "pairs: MNIST"], "Data: pairs: MNIST."),
    ],
)
def test_a_badge_names_data_and_scale(labels: list[str | None], text: str) -> None:
    """A beginning that all data sets share is written once, and each data set is listed once."""
    jobs: Any = {f"job {k}": SimpleNamespace(data=label) for k, label in enumerate(labels)}
    assert Artifact("x/y", "t", "laptop", jobs).badge == (f"{text} Laptop scale." if text else "")
    assert Artifact("x/y", "t", "smoke", {}).badge.startswith("Smoke scale")


def test_a_caption_keeps_its_formulas_whole() -> None:
    fig, _ = plt.subplots(figsize=(3, 2))
    style.caption(fig, " ".join(f"{'w' * k} $a = b + c$" for k in range(1, 16)))
    style.finish(fig)
    lines = fig.texts[0].get_text().splitlines()
    plt.close(fig)
    assert len(lines) > 2
    assert all(line.count("$") % 2 == 0 for line in lines)


@pytest.mark.parametrize(
    "names",
    [
        "csmoo2 csmoo1 csmoo_basic",
        "csmoo2 csmoo1 sgd prox tuned",
        "ls pmtl epo ferero",
        "mlm_cmoo nsga2 psl ls mgda",
        "ls qffl propfair fedmgda_plus fedfv tch stch omd_gd ada_gd omd_eg ada_eg",
    ],
)
def test_methods_of_one_figure_differ_in_colour_and_marker(names: str) -> None:
    looks = [style.look(name) for name in names.split()]
    assert len({x.colour for x in looks}) == len({x.marker for x in looks}) == len(looks)


def test_spreads_have_two_digits_and_ask_for_five_seeds() -> None:
    assert tables.spread(81.889, 1.343, 10) == "81.9 ± 1.3"
    assert tables.spread(0.52468, 0.0412) == "0.525 ± 0.041"
    assert tables.spread(81.889, 1.343, 3) == "81.9"
    assert tables.spread(15021.0, None) == "15021"
    assert tables.spread(float("nan"), 0.1) == "–"
    frame = pd.DataFrame(
        {"m": ["a", "b"], "V": [0.5, 0.25], "V std": [0.012, 0.034], "runs": [RunCount(5, 5), RunCount(2, 5)]}
    )
    a = Artifact("x/y", "t", "laptop", {})
    a.table(frame, given=("m",), bold={(1, "V")})
    assert a.files["table.md"].decode().splitlines()[2:] == [
        "| a | 0.500 ± 0.012 | 5 of 5 |",
        "| b | **0.250 (2 of 5)** | 2 of 5 |",
    ]
    assert b"V std" in a.files["table.csv"]
    assert r"\textbf{0.250 (2 of 5)}" in a.files["table.tex"].decode()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex")
def test_tables_compile(tmp_path: Path) -> None:
    """With what LaTeX does not like, and a long text."""
    frame = pd.DataFrame(
        {
            "a_symbol": ["[S]", "|x|_2 & ~"],
            "meaning": ["{1, .., S}" * 9, "a sentence " * 9],
            "%": ["5 ± 1", "1e-3 #"],
        }
    )
    text = tables.latex(frame, bold={(0, "%")})
    packages = "\\usepackage[T1]{fontenc}\\usepackage{booktabs,array}"
    head = f"\\documentclass{{article}}{packages}\\begin{{document}}\n\\noindent "
    (tmp_path / "t.tex").write_text(f"{head}{text}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
