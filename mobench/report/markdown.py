"""The same results as Markdown: the documentation's page, the table of papers, a line per artifact.

No date inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mobench.artifacts.claims import Claim
from mobench.errors import MobenchError, suggest
from mobench.report.model import (
    CHECKS,
    CLAIMS,
    FAILING,
    UNDECIDED,
    UNREADABLE,
    VERDICTS,
    Entry,
    Evidence,
    Mark,
    Paper,
    Site,
    count,
    mark,
    tally,
)
from mobench.report.papers import paper_info
from mobench.report.reading import artifacts
from mobench.report.words import duration


def md(value: str) -> str:
    """Text of a Markdown table cell: one line, nothing interpreted."""
    value = " ".join(value.split())
    value = re.sub(r"([\\|*`~\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", value)
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(value: str) -> str:
    """Text of inline code, with whatever fences it needs."""
    value = " ".join(value.split()).replace("|", "\\|")
    fence = "``" if "`" in value else "`"
    return f"{fence}{value}{fence}"


def _tally(counts: Iterable[tuple[Mark, int]]) -> str:
    return ", ".join(f"{n} {v.name}" for v, n in counts if n) or "no claims"


def _mark(claim: Claim) -> str:
    return f"{mark(claim).symbol} {mark(claim).name}"


def _cell(counts: Iterable[tuple[Mark, int]]) -> str:
    """Claims per verdict, in one cell: ✓ 45 ◐ 10 ✗ 6 ○ 36."""
    parts = [f"{v.symbol}&nbsp;{n}" for v, n in counts if n and v.key in CLAIMS]
    return " ".join(parts) or "–"


def _checks(counts: Iterable[tuple[Mark, int]]) -> str:
    """Our own checks: 12 passed, 1 failed, 2 undecided."""
    said = [f"{n} {v.name.removeprefix('check ')}" for v, n in counts if n and v.key in CHECKS]
    return ", ".join(said) or "–"


COUNTED = (
    "The column *each claim once* takes a claim that is in both columns from the rows that decide it at the "
    "larger scale. Own checks are this project's consistency checks, counted once each; no paper claims them."
)
LEGEND = ", ".join(f"{v.symbol} {v.name}" for v in VERDICTS.values() if v.key in CLAIMS)


def papers_markdown(site: Site) -> str:
    """A line per paper: what `make reproduce` prints, what kept rows say,
    the command that draws all of its artifacts.
    """
    scales = ", ".join(_scales(site.entries)) or "–"
    kept = ", ".join(_scales(site.kept)) or "–"
    lines = [
        (
            f"| paper | artifacts | `make reproduce` ({scales} scale) | kept rows ({kept} scale) "
            "| each claim once | own checks | command |"
        ),
        "| --- | ---: | --- | --- | --- | --- | --- |",
    ]

    def line(
        name: str,
        known: int,
        entries: Sequence[Entry],
        own: Sequence[Entry],
        best: Sequence[Evidence],
        checks: Sequence[Evidence],
        command: str,
    ) -> str:
        drawn = sum(e.built for e in entries)
        of = f"{drawn}" if drawn == known else f"{drawn} of {known}"
        cells = [_cell(count(entries)), _cell(count(own)), _cell(tally(best))]
        cells.append(_checks(tally(checks, CHECKS)))
        return f"| {name} | {of} | {' | '.join(cells)} | {code(command)} |"

    for paper in site.papers:
        known = len(paper.entries) + len(paper.waiting)
        lines.append(
            line(
                md(paper.short),
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


def _scales(entries: Iterable[Entry]) -> list[str]:
    order = ("smoke", "laptop", "paper")
    return sorted({e.scale for e in entries if e.scale in order}, key=order.index)


def paper_markdown(id: str, site: Site) -> str:
    """A line per artifact of one paper and scale: what it is, its verdicts, what it took to run and draw,
    its command.
    """
    lines = [
        "| artifact | title | scale | claims | checks | time | command |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in (e for p in site.papers if p.id == id for e in [*p.entries, *p.waiting, *p.kept]):
        verdicts = _cell(entry.counts) if entry.built else "not drawn yet"
        times = [entry.origin.get(key) for key in ("seconds_jobs", "seconds_drawing")]
        seconds = duration(sum(float(t) for t in times if t is not None)) if None not in times else "–"
        scale = f"{entry.scale}{', kept rows' if entry.kept else ''}"
        cells = [md(entry.name), md(entry.title), scale, verdicts, _checks(entry.counts), seconds]
        lines.append(f"| {' | '.join(cells)} | {code(entry.command)} |")
    took = (
        "*time*: wall time of its jobs, including jobs that other artifacts share, one after another, "
        "plus the time for drawing; measured on the machine that ran them."
    )
    return "\n".join([*lines, "", f"{LEGEND}. {took}"]) + "\n"


def pictures_markdown(id: str, site: Site) -> tuple[str, dict[str, bytes]]:
    """The figures that the page of a paper shows, from the rows of the largest scale that were drawn, and the
    pictures themselves by the names of their copies.

    Raises:
        MobenchError: an artifact that paper.yaml names has no figure.
    """
    lines: list[str] = []
    found: dict[str, bytes] = {}
    drawn = {e.name: e for p in site.papers if p.id == id for e in [*p.entries, *p.kept] if e.figure}
    for name in paper_info(id).pictures:
        if name not in drawn:
            raise MobenchError(
                f"experiments/{id}/paper.yaml: {id}/{name} has no figure.{suggest(name, list(drawn))}"
            )
        entry = drawn[name]
        image = f"{id}_{name}.png"
        found[image] = site.assets[f"{entry.assets}/figure.png"]
        lines += [
            f"![{md(entry.title)}](../images/papers/{image})",
            "",
            f"*{md(entry.title)}*, {entry.scale} scale: {code(entry.command)}",
            "",
        ]
    return "\n".join(lines), found


def summary_markdown(site: Site) -> str:
    """Returns a line per artifact: id, verdict counts, command."""
    if not site.papers:
        return "No artifact has been drawn yet.\n"
    heads = [v.name for v in VERDICTS.values()]
    lines = [
        f"| artifact | scale | {' | '.join(heads)} | command |",
        "| --- | --- |" + " ---: |" * len(heads) + " --- |",
    ]
    for paper in site.papers:
        for entry in [*paper.entries, *paper.waiting, *paper.kept]:
            cells = [str(n) if n else "–" for v, n in entry.counts if v is not UNREADABLE]
            state = "" if entry.built else " (not drawn yet)"
            state = " (damaged: see the report)" if entry.problems else state
            scale = f"{entry.scale}{', kept rows' if entry.kept else ''}"
            lines.append(f"| {md(entry.id)}{state} | {scale} | {' | '.join(cells)} | {code(entry.command)} |")
    total = [str(n) for v, n in site.counts if v is not UNREADABLE]
    lines.append(f"| **all** | {', '.join(_scales(site.entries))} | {' | '.join(total)} | `make reproduce` |")
    if site.kept:
        total = [str(n) for v, n in site.kept_counts if v is not UNREADABLE]
        scales = ", ".join(_scales(site.kept))
        lines.append(f"| **all** | {scales}, kept rows | {' | '.join(total)} | `make kept` |")
    return "\n".join(lines) + "\n"


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


def results_markdown(site: Site) -> str:
    """The results page of the documentation: every claim with its tolerance and verdict, and why some fail.

    No date inside.
    """
    lines = [
        "<!-- Do not edit this page: `make report` writes it. -->",
        "",
        "# Results",
        "",
        "Every claim, from `outputs/artifacts/`, which `make reproduce` draws, and `outputs/kept/`, which "
        "`make kept` draws from rows that come with the repository. `outputs/report/index.html`, which "
        "`make report` builds, shows the same results with figures, tables and provenance.",
        "",
        f"`make reproduce`, {', '.join(_scales(site.entries)) or '–'} scale, {len(site.entries)} artifacts: "
        f"{_tally(site.counts)}. Kept rows, {', '.join(_scales(site.kept)) or '–'} scale, {len(site.kept)} "
        f"artifacts: {_tally(site.kept_counts)}. Each claim once, by the rows that decide it at the largest "
        f"scale: {_tally(tally(site.best))}. Each claim is judged in one artifact, and other artifacts "
        "refer to it. Checks are this project's own; no paper claims them.",
        "",
        *[f"- **{v.symbol} {v.name}**: {v.meaning}." for v in VERDICTS.values()],
        "",
        "## All artifacts",
        "",
        summary_markdown(site).rstrip(),
    ]
    for paper in site.papers:
        lines += _paper_section(paper)
    return "\n".join(lines) + "\n"


def _paper_section(paper: Paper) -> list[str]:
    """Returns the lines of one paper on the results page."""
    lines = ["", f"## {md(paper.short)}", "", *([f"*{md(paper.title)}*", ""] if paper.title else [])]
    for title, entries in (("`make reproduce`", paper.entries), ("Kept rows", paper.kept)):
        if entries:
            lines += _claims_table(title, entries)
    if paper.waiting:
        lines += ["Not drawn yet:", ""]
        lines += [f"- {md(entry.id)}: {code(entry.command)}" for entry in paper.waiting]
        lines.append("")
    every = (*paper.entries, *paper.kept)
    failing = [(e, c) for e in every for c in e.claims if c.verdict in FAILING or mark(c).key in UNDECIDED]
    if failing:
        lines += ["Reasons for claims that fail, hold in part, or are inconclusive:", ""]
        lines += [
            f"- {_name(e)}, {md(c.id)} ({_mark(c)}): {md(c.reason) or 'no reason is recorded.'}"
            for e, c in failing
        ]
        lines.append("")
    shown = [(e, id, claims) for e in every for id, claims in e.references.items()]
    if shown:
        lines += ["Claims that are shown here and judged in another artifact:", ""]
        lines += [f"- {_name(e)} shows {md(', '.join(claims))} of {md(id)}" for e, id, claims in shown]
        lines.append("")
    damaged = [(e, p) for e in every for p in e.problems]
    if damaged:
        lines += [
            "Files that could not be loaded:",
            "",
            *[f"- {md(e.id)}: {md(p)}" for e, p in damaged],
            "",
        ]
    return lines[:-1]


def _name(entry: Entry) -> str:
    """Returns the id of an artifact, and whether it is drawn from kept rows."""
    return f"{md(entry.id)}{' (kept rows)' if entry.kept else ''}"


def _claims_table(title: str, entries: Sequence[Entry]) -> list[str]:
    """Returns the lines of a table of claims, with where its artifacts come from above it."""
    commits = sorted({e.commit for e in entries if e.origin})
    origin = [f"scale {', '.join(_scales(entries))}"] if _scales(entries) else []
    origin += [f"drawn from {', '.join(commits)}"] if commits else []
    lines = [f"**{title}**: {md('; '.join([_tally(count(entries)), *origin]))}.", ""]
    names = ("artifact", "claim", "published", "measured", "tolerance", "verdict", "command")
    lines += [f"| {' | '.join(names)} |", "|" + " --- |" * len(names)]
    for entry in entries:
        for c in entry.claims:
            said = (c.statement, c.published, c.measured, c.tolerance)
            cells = [md(x) for x in (entry.id, *said, _mark(c))]
            lines.append(f"| {' | '.join(cells)} | {code(entry.command)} |")
        if not entry.claims:
            lines.append(
                f"| {md(entry.id)} | – | – | – | – | {_why_no_claims(entry)} | {code(entry.command)} |"
            )
    return [*lines, ""]


def _why_no_claims(entry: Entry) -> str:
    """Returns why an artifact has no row of its own in the table of claims."""
    if entry.problems:
        return "damaged, see below"
    return "judged in another artifact" if entry.references else "no claims"
