"""The same results as Markdown: the tables of papers and of artifacts, pictures, the record of verdicts.

No date inside. `result_pages` has the pages of the claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mobench.errors import MobenchError, suggest
from mobench.report.model import (
    CHECKS,
    CLAIMS,
    VERDICTS,
    Entry,
    Evidence,
    Mark,
    Site,
    count,
    mark,
    tally,
)
from mobench.report.papers import paper_info
from mobench.report.reading import artifacts
from mobench.report.words import duration


def md(value: str) -> str:
    """Returns the text of a Markdown table cell: one line, nothing interpreted."""
    value = " ".join(value.split())
    value = re.sub(r"([\\|*`~\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", value)
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def anchor(heading: str) -> str:
    """Returns the address of a heading on its page, as GitHub and the documentation's site make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def code(value: str) -> str:
    """Returns inline code, with the fences that it needs."""
    value = " ".join(value.split()).replace("|", "\\|")
    fence = "``" if "`" in value else "`"
    return f"{fence}{value}{fence}"


ROOM = 180  # letters of a cell


def shortened(measured: str) -> str:
    """Returns as many of the measured numbers, whole, as a cell has room for."""
    text, *others = measured.split("; ")
    while others and len(f"{text}; {others[0]}") <= ROOM:
        text = f"{text}; {others.pop(0)}"
    return text


def spoken(counts: Iterable[tuple[Mark, int]]) -> str:
    """Writes claims per verdict, in words: 2 reproduced, 9 not reproduced."""
    return ", ".join(f"{n} {v.name}" for v, n in counts if n) or "no claims"


def cell(counts: Iterable[tuple[Mark, int]]) -> str:
    """Writes claims per verdict, in one cell: ✓ 45 ◐ 10 ✗ 6 ○ 36."""
    parts = [f"{v.symbol}&nbsp;{n}" for v, n in counts if n and v.key in CLAIMS]
    return " ".join(parts) or "–"


def own_checks(counts: Iterable[tuple[Mark, int]]) -> str:
    """Writes checks of ours per verdict: 12 passed, 1 failed, 2 undecided."""
    parts = [f"{n} {v.name.removeprefix('check ')}" for v, n in counts if n and v.key in CHECKS]
    return ", ".join(parts) or "–"


COUNTED = (
    "*Each claim once* counts every claim a single time; where both columns judge it, the larger scale wins. "
    "Claims about times are in no count. Own checks are this project's consistency checks, counted once "
    "each; no paper claims them."
)
LEGEND = ", ".join(f"{v.symbol} {v.name}" for v in VERDICTS.values() if v.key in CLAIMS)


def papers_markdown(site: Site) -> str:
    """Returns a line per paper: verdicts of `make reproduce` and of kept rows, and its command."""
    scales = ", ".join(scales_of(site.entries)) or "–"
    kept = ", ".join(scales_of(site.kept)) or "–"
    lines = [
        (
            f"| paper | artifacts | verdicts, each claim once | `make reproduce` ({scales} scale) "
            f"| kept rows ({kept} scale) | own checks | command |"
        ),
        "| --- | ---: | --- | --- | --- | --- | --- |",
    ]

    def line(
        name: str,
        known: int,
        entries: Sequence[Entry],
        kept_entries: Sequence[Entry],
        best: Sequence[Evidence],
        checks: Sequence[Evidence],
        command: str,
    ) -> str:
        drawn = sum(e.built for e in entries)
        size = f"{drawn}" if drawn == known else f"{drawn} of {known}"
        cells = [cell(tally(best)), cell(count(entries)), cell(count(kept_entries))]
        cells.append(own_checks(tally(checks, CHECKS)))
        return f"| {name} | {size} | {' | '.join(cells)} | {code(command)} |"

    for paper in site.papers:
        known = len(paper.entries) + len(paper.waiting)
        lines.append(
            line(
                f"[{md(paper.short)}](docs/results/{paper.id}.md)",
                known,
                paper.entries,
                paper.kept,
                paper.best,
                paper.checks,
                f"mobench +experiment={paper.id}/all",
            )
        )
    known = sum(len(p.entries) + len(p.waiting) for p in site.papers)
    lines.append(line("**all**", known, site.entries, site.kept, site.best, site.checks, "make reproduce"))
    return "\n".join([*lines, "", f"{LEGEND}. {COUNTED}"]) + "\n"


def count_markdown(site: Site) -> str:
    """Returns the sentence that says how many claims hold."""
    numbers = {v.key: n for v, n in tally(site.best)}
    papers = [paper for paper in site.papers if paper.best]
    return (
        f"**Of {sum(numbers.values())} claims of {len(papers)} papers, {numbers['yes']} hold, "
        f"{numbers['part']} hold in part, {numbers['no']} do not, and {numbers['skip']} are undecided**: "
        "too few seeds, other data, a smaller run, or runs that were lost.\n"
    )


def scales_of(entries: Iterable[Entry]) -> list[str]:
    """Returns the scales of these artifacts, the smallest first."""
    order = ("smoke", "laptop", "paper")
    return sorted({e.scale for e in entries if e.scale in order}, key=order.index)


def paper_markdown(id: str, site: Site) -> str:
    """Returns a table with a line per artifact of one paper and scale: its verdicts, time and command."""
    lines = [
        "| artifact | title | scale | claims | checks | time | command |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in (e for p in site.papers if p.id == id for e in [*p.entries, *p.waiting, *p.kept]):
        verdicts = cell(entry.counts) if entry.built else "not drawn yet"
        times = [entry.origin.get(key) for key in ("seconds_jobs", "seconds_drawing")]
        seconds = duration(sum(float(t) for t in times if t is not None)) if None not in times else "–"
        scale = f"{entry.scale}{', kept rows' if entry.kept else ''}"
        name = f"[{md(entry.name)}](../results/{entry.paper}.md#{anchor(entry.label)})"
        cells = [name, md(entry.title), scale, verdicts, own_checks(entry.counts), seconds]
        lines.append(f"| {' | '.join(cells)} | {code(entry.command)} |")
    took = (
        "*time*: wall time of its jobs, including jobs that other artifacts share, one after another, "
        "plus the time for drawing; measured on the machine that ran them."
    )
    return "\n".join([*lines, "", f"{LEGEND}. {took}"]) + "\n"


def pictures_markdown(id: str, site: Site) -> tuple[str, dict[str, bytes]]:
    """Returns the Markdown of the figures on a paper's page, and the pictures by the names of their copies.

    Kept rows are preferred to those of `make reproduce`.

    Raises:
        MobenchError: an artifact that paper.yaml names has no figure.
    """
    lines: list[str] = []
    pictures: dict[str, bytes] = {}
    drawn = {e.name: e for p in site.papers if p.id == id for e in [*p.entries, *p.kept] if e.figure}
    for name in paper_info(id).pictures:
        if name not in drawn:
            raise MobenchError(
                f"experiments/{id}/paper.yaml: {id}/{name} has no figure.{suggest(name, list(drawn))}"
            )
        entry = drawn[name]
        image = f"{id}_{name}.png"
        pictures[image] = site.assets[f"{entry.assets}/figure.png"]
        lines += [
            f"![{md(entry.title)}](../images/papers/{image})",
            "",
            f"*{md(entry.title)}*, {entry.scale} scale: {code(entry.command)}",
            "",
        ]
    return "\n".join(lines), pictures


def verdicts(root: Path) -> list[dict[str, Any]]:
    """Returns every claim that was judged below an outputs folder, with its verdict."""
    return records(artifacts(root))


def records(site: Site) -> list[dict[str, Any]]:
    """Returns every claim of both columns with its verdict, for the test that recomputes them."""
    return [
        {"artifact": e.id, "kept": e.kept, "claim": c.id, "verdict": mark(c).name, "timed": c.timed}
        for e in site.everything
        for c in e.claims
    ]
