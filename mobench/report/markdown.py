"""The results as Markdown, from the templates `*.md`, and the record of all verdicts.

The verdict of a claim comes first, from the rows that decide it at the largest scale; the records of other
rows are folded. No date inside.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml

from mobench.artifacts.claims import Claim
from mobench.errors import MobenchError, suggest
from mobench.report.model import (
    CHECKS,
    CLAIMS,
    FAILING,
    UNDECIDED,
    VERDICTS,
    Entry,
    Evidence,
    Mark,
    Paper,
    Site,
    count,
    counted,
    mark,
    scales,
    tally,
)
from mobench.report.reading import artifacts
from mobench.report.words import duration
from mobench.system import paths

ROOM = 180  # letters of a cell


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


def took(entry: Entry) -> str:
    """Writes how long an artifact's jobs took, those of others that it shares included, with the drawing."""
    times = [entry.origin.get(key) for key in ("seconds_jobs", "seconds_drawing")]
    return duration(sum(float(t) for t in times if t is not None)) if None not in times else "–"


def rows(evidence: Sequence[Evidence]) -> str:
    """Says which rows were judged: `paper scale, kept rows`."""
    each = [f"{e.claim.scale} scale{', kept rows' if e.entry.kept else ''}" for e in evidence]
    return " and ".join(dict.fromkeys(each))


def causes(evidence: Sequence[Evidence]) -> dict[str, list[Claim]]:
    """Returns the claims that are not plainly reproduced, by the reason that they share."""
    by_reason: dict[str, list[Claim]] = {}
    for claim in (e.claim for e in evidence):
        if claim.reason or claim.verdict in FAILING or mark(claim).key in UNDECIDED:
            by_reason.setdefault(claim.reason or "No reason is recorded.", []).append(claim)
    return by_reason


def abridged(evidence: Sequence[Evidence]) -> list[Claim]:
    """Returns the claims whose table cell has not all measured numbers."""
    return [e.claim for e in evidence if shortened(e.claim.measured) != e.claim.measured]


def leanings(evidence: Sequence[Evidence]) -> str:
    """Says how many of the undecided claims a smaller run, or one on other data, points to or away from."""
    undecided = [e.claim for e in evidence if mark(e.claim).key == "skip" and counted(e.claim)]
    numbers = Counter(claim.leans for claim in undecided)
    words = {
        "holds": "hold in a smaller run or on other data",
        "partly": "hold there in part",
        "fails": "do not hold there",
        "": "are open for another reason (an interval, one seed, lost runs)",
    }
    parts = [f"{numbers[key]} {meaning}" for key, meaning in words.items() if numbers[key]]
    return f"Of the {len(undecided)} inconclusive claims, {', '.join(parts)}." if undecided else ""


def beyond(site: Site) -> list[str]:
    """Returns the names of reproduced claims whose interval reaches beyond the tolerance."""
    return [
        f"{e.entry.id}: {e.claim.id}"
        for paper in site.papers
        for e in paper.best
        if mark(e.claim).key == "yes"
        and any(
            g["spread"] is not None and abs(g["value"] - g["target"]) + g["spread"] > g["high"] - g["target"]
            for g in e.claim.gauges
            if g["target"] is not None
        )
    ]


def near_targets(evidence: Sequence[Evidence]) -> list[tuple[str, int, int]]:
    """Returns how many claims that name a target would hold at half, at the whole and at twice the tolerance.

    A claim counts if these rows decide it and some of its numbers have a target; it holds at a factor if all
    of those are within that times their tolerance. A line has the factor, those that hold, and all of them.
    """
    with_target = [
        gauges
        for e in evidence
        if mark(e.claim).key not in UNDECIDED
        and (gauges := [g for g in e.claim.gauges if g["target"] is not None])
    ]
    lines = []
    for words, factor in (("half", 0.5), ("whole", 1.0), ("twice", 2.0)):
        near = sum(
            all(abs(g["value"] - g["target"]) <= factor * (g["high"] - g["target"]) for g in gauges)
            for gauges in with_target
        )
        lines.append((words, near, len(with_target)))
    return lines


SHOWN = (
    (md, anchor, code, shortened, spoken, cell, own_checks, mark),
    (count, tally, scales, took, rows, causes, abridged, near_targets, leanings, beyond),
)


def rendered(template: str, **values: Any) -> str:
    """Returns a page, or a part of one, from its template."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    env = jinja2.Environment(
        loader=loader,
        autoescape=False,  # noqa: S701 - Markdown and SVG; `md`, `code` and `escaped` escape
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters |= {f.__name__: f for f in SHOWN[0]} | {"escaped": html.escape}
    env.globals |= {f.__name__: f for f in SHOWN[1]} | {"VERDICTS": VERDICTS, "CHECKS": CHECKS}
    return re.sub(r"\n{3,}", "\n\n", env.get_template(template).render(values))


def result_pages(site: Site, images: Path | None = None) -> dict[str, str]:
    """Returns the page of each paper by the paper's id, and the index under the empty name.

    Args:
        site: the claims to be shown.
        images: the folder of pictures that come with the documentation; pictures that are not there are
            left out.
    """
    return {"": rendered("results.md", site=site)} | {
        paper.id: rendered("paper.md", paper=paper, pictures=_pictures(paper, images))
        for paper in site.papers
    }


def _pictures(paper: Paper, images: Path | None) -> dict[str, str]:
    """Returns the pictures that the documentation has, from its folder of images, by artifact."""
    if images is None:
        return {}
    names = {entry.id: f"{entry.id.replace('/', '_')}.png" for entry in paper.everything}
    return {
        id: f"{folder}{name}"
        for folder in ("", "findings/", "papers/")  # the last one that has it
        for id, name in names.items()
        if (images / folder / name).is_file()
    }


def holding(site: Site) -> str:
    """Returns the sentence that says how many claims hold."""
    numbers = {v.key: n for v, n in tally(site.all.best)}
    papers = [paper for paper in site.papers if paper.best]
    return (
        f"**Of {sum(numbers.values())} claims of {len(papers)} papers, {numbers['yes']} hold, "
        f"{numbers['part']} hold in part, {numbers['no']} do not, and {numbers['skip']} are undecided**: "
        "too few seeds, other data, a smaller run, or runs that were lost.\n"
    )


def figures(paper: Paper) -> tuple[str, dict[str, bytes]]:
    """Returns the Markdown of the figures on a paper's page, and the pictures by the names of their copies.

    Kept rows are preferred to those of `make reproduce`.

    Raises:
        MobenchError: an artifact that paper.yaml names has no figure.
    """
    drawn = {e.name: e for e in paper.everything if "figure.png" in e.files}
    if missing := [name for name in paper.pictures if name not in drawn]:
        raise MobenchError(
            f"experiments/{paper.id}/paper.yaml: {paper.id}/{missing[0]} has no figure."
            f"{suggest(missing[0], list(drawn))}"
        )
    images = {f"{paper.id}_{name}.png": drawn[name] for name in paper.pictures}
    text = "".join(
        f"![{md(e.title)}](../images/papers/{image})\n\n"
        f"*{md(e.title)}*, {e.scale} scale: {code(e.command)}\n\n"
        for image, e in images.items()
    )
    return text.removesuffix("\n"), {image: e.files["figure.png"] for image, e in images.items()}


def findings(site: Site) -> tuple[str, dict[str, bytes]]:
    """Returns the gallery of findings, and its pictures by the names of their copies.

    `experiments/findings.yaml` has the words; measured values and verdicts come from the claims that it
    lists, and the picture from the first artifact among them.

    Raises:
        MobenchError: A claim that a finding names was not judged.
    """
    known = {
        (entry.id, claim.id): Evidence(entry, number, claim)
        for entry in reversed(site.all.everything)
        for number, claim in enumerate(entry.claims, 1)
    } | {(e.entry.id, e.claim.id): e for e in (*site.all.best, *site.all.checks)}
    sections = yaml.safe_load((paths.experiments() / "findings.yaml").read_text())
    pictures = {}
    for section in sections:
        named = [(artifact, id) for artifact, ids in section["evidence"].items() for id in ids]
        for artifact, id in named:
            if (artifact, id) not in known:
                raise MobenchError(
                    f"experiments/findings.yaml: {artifact} has no claim {id!r} among those that were judged."
                    f"{suggest(id, [claim for name, claim in known if name == artifact])}"
                )
        section["evidence"] = [known[name] for name in named]
        first = section["evidence"][0].entry
        section["image"] = f"{first.id.replace('/', '_')}.png" if "figure.png" in first.files else ""
        if section["image"]:
            pictures[section["image"]] = first.files["figure.png"]
    return rendered("findings.md", findings=sections, papers={p.id: p for p in site.papers}), pictures


def verdicts(root: Path) -> list[dict[str, Any]]:
    """Returns every claim that was judged below an outputs folder, with its verdict."""
    return records(artifacts(root))


def records(site: Site) -> list[dict[str, Any]]:
    """Returns every claim of both columns with its verdict, for the test that recomputes them."""
    return [
        {"artifact": e.id, "kept": e.kept, "claim": c.id, "verdict": mark(c).name, "timed": c.timed}
        for e in site.all.everything
        for c in e.claims
    ]
