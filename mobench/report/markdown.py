"""The same results as Markdown: the documentation's page, the table of papers, a line per artifact. No date inside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mobench.report.model import FAILING, UNREADABLE, VERDICTS, Site, Verdict
from mobench.report.reading import artifacts
from mobench.report.words import duration
from mobench.store import outputs_root


def _md(value: str) -> str:
    """Text of a Markdown table cell: one line, nothing interpreted."""
    value = " ".join(value.split())
    value = re.sub(r"([\\|*`~\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", value)
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(value: str) -> str:
    value = " ".join(value.split()).replace("|", "\\|")
    fence = "``" if "`" in value else "`"
    return f"{fence}{value}{fence}"


def _tally(counts: Iterable[tuple[Verdict, int]]) -> str:
    return ", ".join(f"{n} {v.name}" for v, n in counts if n) or "no claims"


def _mark(verdict: Verdict) -> str:
    return f"{verdict.symbol} {verdict.name}"


def results_summary_markdown(root: Path | None = None, expected: Sequence[str] = ()) -> str:
    """A line per artifact: id, verdict counts, command."""
    return _summary(artifacts(root or outputs_root(), expected))


def papers_markdown(root: Path | None = None, expected: Sequence[str] = ()) -> str:
    """A line per paper: artifacts, verdict counts, the command that draws them all."""
    site = artifacts(root or outputs_root(), expected)
    heads = [v.name for v in VERDICTS.values()]
    lines = [
        f"| paper | artifacts | {' | '.join(heads)} | command |",
        "| --- |" + " ---: |" * (len(heads) + 1) + " --- |",
    ]

    def line(name: str, drawn: int, known: int, counts: Iterable[tuple[Verdict, int]], command: str) -> str:
        cells = [str(n) if n else "–" for v, n in counts if v is not UNREADABLE]
        of = f"{drawn}" if drawn == known else f"{drawn} of {known}"
        return f"| {name} | {of} | {' | '.join(cells)} | {_code(command)} |"

    for paper in site.papers:
        drawn = sum(e.built for e in paper.entries)
        known = len(paper.entries) + len(paper.waiting)
        lines.append(line(_md(paper.short), drawn, known, paper.counts, f"mobench +experiment={paper.id}/all"))
    drawn, known = sum(e.built for e in site.entries), sum(len(p.entries) + len(p.waiting) for p in site.papers)
    lines.append(line("**all**", drawn, known, site.counts, "make reproduce"))
    return "\n".join(lines) + "\n"


def paper_markdown(id: str, root: Path | None = None, expected: Sequence[str] = ()) -> str:
    """A line per artifact of one paper: what it is, its verdicts, what it took to run and draw, its command."""
    site = artifacts(root or outputs_root(), expected)
    lines = ["| artifact | what | verdicts | took | command |", "| --- | --- | --- | --- | --- |"]
    for entry in (e for p in site.papers if p.id == id for e in [*p.entries, *p.waiting]):
        verdicts = " ".join(f"{v.symbol}&nbsp;{n}" for v, n in entry.counts if n) if entry.built else "not drawn yet"
        times = [entry.origin.get(key) for key in ("seconds_jobs", "seconds_drawing")]
        seconds = duration(sum(float(t) for t in times if t is not None)) if None not in times else "–"
        scale = "" if entry.scale in ("–", "laptop") else f" ({entry.scale})"
        cells = [_md(entry.name), _md(entry.title), verdicts or "–", seconds + scale, _code(entry.command)]
        lines.append(f"| {' | '.join(cells)} |")
    legend = ", ".join(f"{v.symbol} {v.name}" for v in VERDICTS.values())
    took = "*took*: wall time of its jobs one after the other, shared ones included, and of drawing; measured where it was drawn."
    return "\n".join([*lines, "", f"{legend}; {took}"]) + "\n"


def _summary(site: Site) -> str:
    if not site.papers:
        return "No artifact has been drawn yet.\n"
    heads = [v.name for v in VERDICTS.values()]
    lines = [
        f"| artifact | {' | '.join(heads)} | command |",
        "| --- |" + " ---: |" * len(heads) + " --- |",
    ]
    for paper in site.papers:
        for entry in [*paper.entries, *paper.waiting]:
            cells = [str(n) if n else "–" for v, n in entry.counts if v is not UNREADABLE]
            state = "" if entry.built else " (not drawn yet)"
            state = " (damaged: see the report)" if entry.problems else state
            lines.append(f"| {_md(entry.id)}{state} | {' | '.join(cells)} | {_code(entry.command)} |")
    total = [str(n) for v, n in site.counts if v is not UNREADABLE]
    lines.append(f"| **all** | {' | '.join(total)} | `make reproduce` |")
    return "\n".join(lines) + "\n"


def results_markdown(root: Path | None = None, expected: Sequence[str] = ()) -> str:
    """The results page of the documentation: every claim with its verdict, and why some fail. No date inside."""
    site = artifacts(root or outputs_root(), expected)
    lines = [
        "# Results",
        "",
        "Written by `make report` from `outputs/artifacts/`; do not edit. The same with figures, tables and "
        "provenance: `outputs/report/index.html`.",
        "",
        f"{sum(n for _, n in site.counts)} claims of {len(site.entries)} artifacts: {_tally(site.counts)}.",
        "",
        *[f"- **{_mark(v)}**: {v.meaning}." for v in VERDICTS.values()],
        "",
        "## All artifacts",
        "",
        _summary(site).rstrip(),
    ]
    for paper in site.papers:
        lines += ["", f"## {_md(paper.short)}", "", *([f"*{_md(paper.title)}*", ""] if paper.title else [])]
        scales = sorted({e.scale for e in paper.entries if e.scale != "–"})
        commits = sorted({e.commit for e in paper.entries if e.origin})
        origin = [f"scale {', '.join(scales)}"] if scales else []
        origin += [f"drawn from {', '.join(commits)}"] if commits else []
        lines += [_md("; ".join([_tally(paper.counts), *origin])) + ".", ""]
        lines += ["| artifact | claim | published | measured | verdict | command |", "|" + " --- |" * 6]
        for entry in paper.entries:
            for c in entry.claims:
                cells = [_md(x) for x in (entry.id, c.statement, c.published, c.measured, _mark(c.verdict))]
                lines.append(f"| {' | '.join(cells)} | {_code(entry.command)} |")
            if not entry.claims:
                why = "damaged, see below" if entry.problems else "no claims"
                lines.append(f"| {_md(entry.id)} | – | – | – | {why} | {_code(entry.command)} |")
        for entry in paper.waiting:
            lines.append(f"| {_md(entry.id)} | – | – | – | not drawn yet | {_code(entry.command)} |")
        # at the paper's own scale a claim that is not tested has a cause, too
        failing = [
            (e, c)
            for e in paper.entries
            for c in e.claims
            if c.verdict.name in FAILING or (c.verdict.key == "skip" and c.scale == "paper")
        ]
        if failing:
            lines += ["", "Why claims fail, hold in part or are not decided at the scale of the paper:", ""]
            lines += [
                f"- {_md(e.id)}, {_md(c.id)} ({_mark(c.verdict)}): {_md(c.reason) or 'no reason is on record.'}"
                for e, c in failing
            ]
        damaged = [(e, p) for e in paper.entries for p in e.problems]
        if damaged:
            lines += ["", "What could not be read:", "", *[f"- {_md(e.id)}: {_md(p)}" for e, p in damaged]]
    return "\n".join(lines) + "\n"
