"""The measurements as Markdown, JSON and a figure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bilevel, directions, federated, images, overhead, peers
from benchmarks.loops import PREFERENCES, Line, N
from benchmarks.solves import Row
from benchmarks.surrogates import Row as Surrogates
from mobench.artifacts import style
from mobench.artifacts.style import METHODS

plt = style.plt

# Authors' code, ms CPU per iteration and run, n = 20, measured by others on a comparable 2-core machine.
AUTHORS_MS = {"ferero": 2.1, "ferero_pgd": 2.1, "epo": 4.4, "mgda": 0.48, "pmtl": 0.38, "ls": 0.24}
TITLES = {
    **{name: look.name for name, look in METHODS.items()},
    "loop": "the loop alone",
    "ferero": "FERERO (exact)",
    "ferero_pgd": "FERERO (printed PGD)",
    "omd_tch": "OMD-TCH (mean)",
    "ada_omd_tch": "AdaOMD-TCH (adaptive)",
}


@dataclass(frozen=True)
class Aim:
    """`factor` times faster than `quoted` ms per iteration of one run."""

    line: str
    R: int
    factor: float
    quoted: float
    whose: str


AIMS = (
    *(
        Aim(line, R, factor, AUTHORS_MS[line], "authors' code")
        for line in ("ferero", "epo")
        for R, factor in ((4, 20), (100, 300))
    ),
    Aim("ferero_pgd", 100, 15, 2.1, "authors' code"),
)


def judge(lines: dict[str, Line]) -> list[dict[str, Any]]:
    """The aims that were measured: ratio to the authors-style loop of this run, and to the quoted number."""
    out = []
    for aim in AIMS:
        line = lines.get(aim.line)
        if line is None or line.authors is None or aim.R not in line.batch:
            continue
        batch = line.batch[aim.R]
        quoted_batch = aim.quoted * aim.R
        measured = aim.R * line.authors.over(batch)
        quoted = quoted_batch / (1e3 * batch.least)
        out.append(
            {
                "line": aim.line,
                "R": aim.R,
                "whose": aim.whose,
                "aim": aim.factor,
                "batch_ms": 1e3 * batch.least,
                "authors_style_ms": 1e3 * aim.R * line.authors.least,
                "ratio_measured": measured,
                "met_measured": measured >= aim.factor,
                "quoted_ms": quoted_batch,
                "ratio_quoted": quoted,
                "met_quoted": quoted >= aim.factor,
            }
        )
    return out


def as_json(
    machine: dict[str, Any],
    settings: dict[str, Any],
    lines: dict[str, Line],
    rows: Sequence[Row],
    programs: Sequence[Surrogates] = (),
    pictures: images.Pictures | None = None,
    clients: federated.Federated | None = None,
    levels: bilevel.Levels | None = None,
    beside: overhead.Overhead | None = None,
    others: peers.Peers | None = None,
    zoo: directions.Directions | None = None,
) -> dict[str, Any]:
    """Everything that was measured; times in microseconds."""
    return {
        "machine": machine,
        "settings": settings,
        "iterations": {
            name: {
                "us_batch": {R: 1e6 * s.least for R, s in line.batch.items()},
                "us_batch_median": {R: 1e6 * s.median for R, s in line.batch.items()},
                "us_run": {R: 1e6 * s.least / R for R, s in line.batch.items()},
                "us_plain": None if line.plain is None else 1e6 * line.plain.least,
                "us_authors_style": None if line.authors is None else 1e6 * line.authors.least,
                "failed": line.failed,
            }
            for name, line in lines.items()
        },
        "solves": [
            {
                "kind": row.kind,
                "M": row.M,
                "per_second": {R: R / s.least for R, s in row.batch.items()},
                "per_second_cvxpy": 1 / row.cvxpy.least,
                "ratio": {R: R * row.cvxpy.over(s) for R, s in row.batch.items()},
                "difference": row.difference,
            }
            for row in rows
        ],
        "surrogates": [
            {
                "case": row.case,
                "us_run_warm": {R: 1e6 * s.least / R for R, s in row.warm.items()},
                "us_run_cold": {R: 1e6 * s.least / R for R, s in row.cold.items()},
                "us_cvxpy": 1e6 * row.cvxpy.least,
                "us_clarabel": 1e6 * row.clarabel.least,
                "ratio_warm": {R: R * row.cvxpy.over(s) for R, s in row.warm.items()},
                "difference": row.difference,
            }
            for row in programs
        ],
        "images": None if pictures is None else images.as_json(pictures),
        "federated": None if clients is None else federated.as_json(clients),
        "bilevel": None if levels is None else bilevel.as_json(levels),
        "overhead": None if beside is None else overhead.as_json(beside),
        "peers": None if others is None else peers.as_json(others),
        "directions": None if zoo is None else directions.as_json(zoo),
        "aims": judge(lines),
    }


def number(x: float) -> str:
    """Three digits; thousands as they are."""
    if x == 0 or not math.isfinite(x):
        return str(x)
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table, first column left, the others right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *body])


def markdown(
    machine: dict[str, Any],
    settings: dict[str, Any],
    lines: dict[str, Line],
    left_out: dict[str, str],
    rows: Sequence[Row],
    figure: str | None,
    programs: Sequence[Surrogates] = (),
    pictures: images.Pictures | None = None,
    clients: federated.Federated | None = None,
    levels: bilevel.Levels | None = None,
    beside: overhead.Overhead | None = None,
    others: peers.Peers | None = None,
    zoo: directions.Directions | None = None,
) -> str:
    """The whole report."""
    sizes = settings["sizes"]
    versions = ", ".join(
        f"{k} {v}"
        for k, v in machine["versions"].items()
        if k in ("python", "torch", "numpy", "scipy", "cvxpy")
    )
    sha = (machine["git_sha"] or "unknown")[:10] + (" with local changes" if machine["git_dirty"] else "")
    parts = [
        "# Performance",
        "Do not edit this page. `make benchmark` (`python -m benchmarks`) writes it.",
        f"{machine['device']}, {machine['cores']} cores, one thread. {machine['date'][:10]}, commit {sha}, "
        f"{versions}.",
        *_opening(lines, figure),
        *([] if others is None else peers.markdown(others, table, number, _beside(figure))),
        *([] if zoo is None else directions.markdown(zoo, table, number)),
        "## Iterations of every method",
        f"The problem is VLMOP2 with n = {N} in float64, with a closed-form Jacobian and without recording. "
        f"Each case runs {settings['steps']} iterations from the default start with the step sizes of "
        f"`conf/algorithm` and {PREFERENCES} preferences (R < {PREFERENCES} uses some of them, R > "
        f"{PREFERENCES} more seeds; loops with one run at a time take those of R = 4 in turn). All cases "
        f"alternate for {settings['rounds']} rounds. Every time is the minimum over the rounds, and every "
        "ratio compares minima. On a shared machine, differences below 20 % are not significant.",
        *([f"![Microseconds per iteration and run against the number of runs]({figure})"] if figure else []),
        "## Aims",
        "*Authors-style* refers to our own loops in `benchmarks/authors_style.py`, which handle one "
        "run at a time: automatic differentiation with one backward pass per objective, and the subproblem "
        "in its published form (EPO: CVXPY with HiGHS; FERERO: up to 250 cold projected gradient steps in "
        "NumPy; PMTL: Frank-Wolfe). They are measured in the same session. *Quoted* refers to the authors' "
        "own code on another, comparable 2-core machine; these times are for orientation and "
        "were not measured here. Times are ms per iteration of all R runs.",
        table(
            [
                "method",
                "R",
                "against",
                "aim",
                "mobench ms",
                "authors-style ms",
                "ratio",
                "met",
                "quoted ms",
                "ratio to quoted",
                "met",
            ],
            [
                [
                    TITLES[a["line"]],
                    str(a["R"]),
                    a["whose"],
                    f">= {a['aim']:g}x",
                    number(a["batch_ms"]),
                    number(a["authors_style_ms"]),
                    f"{number(a['ratio_measured'])}x",
                    "yes" if a["met_measured"] else "**no**",
                    number(a["quoted_ms"]),
                    f"{number(a['ratio_quoted'])}x",
                    "yes" if a["met_quoted"] else "**no**",
                ]
                for a in judge(lines)
            ],
        ),
        "## Microseconds per iteration of the batch",
        table(
            [
                "algorithm",
                *[f"R = {R}" for R in sizes],
                f"R = {sizes[-1]} / R = {sizes[0]}",
                "failed solves (R = 10)",
            ],
            [
                [
                    TITLES.get(name, name),
                    *[number(1e6 * line.batch[R].least) for R in sizes],
                    number(line.batch[sizes[-1]].over(line.batch[sizes[0]])),
                    str(line.failed),
                ]
                for name, line in lines.items()
            ],
        ),
        "## Microseconds per iteration and run, compared with one run at a time",
        "*Plain* refers to the NumPy/SciPy loops of `tests/reference` (closed-form gradients without "
        "automatic differentiation; EPO uses SciPy's HiGHS).",
        table(
            [
                "algorithm",
                *[f"R = {R}" for R in sizes],
                "plain",
                "authors-style",
                *[f"plain / R = {R}" for R in sizes if R > 1],
            ],
            [
                [
                    TITLES.get(name, name),
                    *[number(1e6 * line.batch[R].least / R) for R in sizes],
                    "" if line.plain is None else number(1e6 * line.plain.least),
                    "" if line.authors is None else number(1e6 * line.authors.least),
                    *[
                        "" if line.plain is None else f"{number(R * line.plain.over(line.batch[R]))}x"
                        for R in sizes
                        if R > 1
                    ],
                ]
                for name, line in lines.items()
            ],
        ),
    ]
    if left_out:
        parts.append(
            "Not measured: " + "; ".join(f"`{name}` ({why})" for name, why in left_out.items()) + "."
        )
    if rows:
        ours = list(rows[0].batch)
        parts += [
            "## Subproblems: solves per second",
            "Batched and certified solves, compared with CVXPY with one parametrized (DPP) problem that is "
            "compiled once and solved sequentially (CLARABEL; HiGHS for the LP). `qp` is FERERO's dual "
            "after elimination. The last column is the largest difference between the two solutions (for "
            "the LP, between their values).",
            table(
                [
                    "subproblem",
                    "M",
                    *[f"R = {R}" for R in ours],
                    "CVXPY",
                    *[f"ratio, R = {R}" for R in ours],
                    "difference",
                ],
                [
                    [
                        f"`{row.kind}`",
                        str(row.M),
                        *[number(R / row.batch[R].least) for R in ours],
                        number(1 / row.cvxpy.least),
                        *[f"{number(R * row.cvxpy.over(row.batch[R]))}x" for R in ours],
                        f"{row.difference:.0e}",
                    ]
                    for row in rows
                ],
            ),
        ]
    if programs:
        ours = list(programs[0].warm)
        aims = {1: 1.0, 100: 50.0, 1000: 100.0}
        parts += [
            "## CSMOO's surrogate: microseconds per solve and run",
            "Certified solves of consecutive surrogates from real trajectories (after 50 steps), started "
            "from the multipliers of the previous step (cold: from ones). They are compared with CVXPY "
            "with one parametrized (DPP) problem per shape (CLARABEL), and with CLARABEL alone on matrices "
            "that are assembled beforehand; both solve one program after the other, without a certificate. "
            "Aims: 1x of CVXPY at R = 1, 50x at R = 100, 100x at R = 1000. The last column is the largest "
            "difference of the steps dx.",
            table(
                [
                    "trajectory",
                    *[f"R = {R}" for R in ours],
                    *[f"cold, R = {R}" for R in ours if R in (1, 1000)],
                    "CVXPY",
                    "CLARABEL alone",
                    *[f"CVXPY / ours, R = {R}" for R in ours],
                    *[f"CLARABEL / ours, R = {R}" for R in ours],
                    "aims met",
                    "difference",
                ],
                [
                    [
                        row.case,
                        *[number(1e6 * row.warm[R].least / R) for R in ours],
                        *[number(1e6 * row.cold[R].least / R) for R in ours if R in (1, 1000)],
                        number(1e6 * row.cvxpy.least),
                        number(1e6 * row.clarabel.least),
                        *[f"{number(R * row.cvxpy.over(row.warm[R]))}x" for R in ours],
                        *[f"{number(R * row.clarabel.over(row.warm[R]))}x" for R in ours],
                        _met({R: R * row.cvxpy.over(row.warm[R]) for R in ours}, aims),
                        f"{row.difference:.0e}",
                    ]
                    for row in programs
                ],
            ),
        ]
    if pictures is not None:
        parts += images.markdown(pictures, table, number)
    if clients is not None:
        parts += federated.markdown(clients, table, number)
    if levels is not None:
        parts += bilevel.markdown(levels, table, number)
    if beside is not None:
        parts += overhead.markdown(beside, table, number)
    return with_misses("\n\n".join(parts) + "\n")


OPENING = ("ls", "tch", "mgda", "pmtl", "epo", "ferero")


def _opening(lines: dict[str, Line], figure: str | None) -> list[str]:
    """The first picture of the page, and what it shows; none where nothing of it was measured."""
    if figure is None or not set(OPENING) & set(lines):
        return []
    return [
        f"![Time of an iteration and run against the number of runs, six methods]({opening_name(figure)})",
        "Time of one iteration of one run, with R runs in one batch (VLMOP2, n = 20), and of loops in the "
        "authors' style, one run at a time (dashed, in the method's colour). What was asked for, and what "
        "is missed, follows.",
    ]


def opening_name(figure: str) -> str:
    """Name of the first picture, beside the one of all methods."""
    return f"{Path(figure).stem}_first.png"


def _per_run(ax: Any, line: Line, color: str, label: str) -> None:
    """Draws the time of an iteration and run against the size of the batch."""
    times = {R: 1e6 * sample.least / R for R, sample in line.batch.items()}
    ax.plot(list(times), list(times.values()), "o-", ms=3.5, color=color, label=label)


def draw_opening(lines: dict[str, Line], path: Path) -> None:
    """Six methods in one panel: time per iteration and run against R, beside one run at a time."""
    figure, ax = plt.subplots(figsize=(style.WIDTH, 3.8), layout="constrained")
    for name, color in zip(OPENING, style.CYCLE, strict=False):
        line = lines.get(name)
        if line is None:
            continue
        _per_run(ax, line, color, TITLES.get(name, name))
        if line.authors is not None:
            ax.axhline(1e6 * line.authors.least, ls="--", lw=0.9, color=color)
    ax.plot([], [], ls="--", lw=0.9, color=style.GREY, label="authors' style, one run at a time")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("runs R in one batch")
    ax.set_ylabel("µs per iteration and run")
    ax.grid(alpha=0.25, lw=0.5)
    figure.legend(loc="outside right upper")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _beside(figure: str | None) -> str:
    """Name of the cost law's picture, beside the first one."""
    return f"{Path(figure or 'performance.png').stem}_cost_law.png"


def _met(ratio: dict[int, float], aims: dict[int, float]) -> str:
    missed = [f"R = {R}" for R, aim in aims.items() if R in ratio and ratio[R] < aim]
    return f"**not at {', '.join(missed)}**" if missed else "yes"


def draw(lines: dict[str, Line], path: Path) -> None:
    """Draws cost per iteration and run against R, a panel for each algorithm; dashed: one run at a time."""
    methods = {name: line for name, line in lines.items() if name != "loop"}
    columns = min(4, len(methods))
    figure, axes = style.panels(
        math.ceil(len(methods) / columns), columns, size=2.3, sharex=True, sharey=True
    )
    for ax in axes.flat[len(methods) :]:
        ax.set_visible(False)
    for ax, (name, line) in zip(axes.flat, methods.items(), strict=False):
        sizes = list(line.batch)
        _per_run(ax, line, style.BLUE, "mobench, batched")
        if "loop" in lines:
            alone = lines["loop"].batch
            ax.plot(
                sizes,
                [1e6 * alone[R].least / R for R in sizes],
                ":",
                color=style.GREY,
                label="the loop alone",
            )
        for sample, color, label in (
            (line.plain, style.GREEN, "plain NumPy/SciPy, one run"),
            (line.authors, style.RED, "authors-style, one run"),
        ):
            if sample is not None:
                ax.axhline(1e6 * sample.least, ls="--", lw=1.0, color=color, label=label)
        ax.set_title(TITLES.get(name, name))
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(sizes, [str(R) for R in sizes])
        ax.minorticks_off()
        ax.grid(alpha=0.25, lw=0.5)
    for ax in axes[:, 0]:
        ax.set_ylabel("µs per iteration and run")
    for column in range(columns):
        last = max(i for i in range(len(methods)) if i % columns == column)
        axes.flat[last].set_xlabel("runs R")
        axes.flat[last].tick_params(labelbottom=True)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def finite(value: Any) -> bool:
    """Whether every number in nested containers is finite."""
    if isinstance(value, dict):
        return all(finite(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return all(finite(v) for v in value)
    return not isinstance(value, float) or bool(np.isfinite(value))


MISSES = "Further aims that are missed, each in its section below:"
MISSED = r"no|\*\*(no|missed|not at .*)\*\*"  # a cell
NEXT = "\n## How costs grow"


def with_misses(text: str) -> str:
    """Returns the page with a list of what is missed in its later sections, before the second section."""
    first, heading, rest = text.partition(NEXT)
    lines = misses(rest)
    if not heading or not lines:
        return text
    return "\n".join([f"{first}\n{MISSES}", "", *(f"- {line}" for line in lines), f"{heading}{rest}"])


def misses(text: str) -> list[str]:
    """Returns a line for each row of a table, and for each sentence, that says that an aim is missed."""
    out = []
    title = ""
    head: list[str] = []
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not head:
                head = cells
            elif missed := [k for k, cell in enumerate(cells) if re.fullmatch(MISSED, cell)]:
                out.append(f"{title}: {_missed(head, cells, missed[0])}")
        else:
            out += [f"{title}: {s}" for s in re.split(r"(?<=\.) ", line) if "**not met**" in s]
        if not line.startswith("|"):
            head = []
    return out


def _missed(head: Sequence[str], cells: Sequence[str], at: int) -> str:
    """Writes a row up to the cell that says that an aim is missed."""
    said = [
        cell if k == 0 and not cell[:1].isdigit() else f"{name} {cell}"
        for k, (name, cell) in enumerate(zip(head[:at], cells[:at], strict=True))
        if cell
    ]
    return f"{', '.join(said)} ({head[at]}: no)" if head[at] else ", ".join(said)
