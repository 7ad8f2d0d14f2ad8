"""The pages of results: an index, and a page for each paper with a section for each of its artifacts.

The verdict of a claim comes first, from the rows that decide it at the largest scale; the records of other
rows are folded. No date inside.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jinja2

from mobench.artifacts.claims import Claim
from mobench.report.markdown import anchor, cell, code, md, own_checks, scales_of, shortened, spoken
from mobench.report.model import (
    CHECKS,
    FAILING,
    UNDECIDED,
    VERDICTS,
    Artifact,
    Evidence,
    Site,
    counted,
    mark,
    tally,
)
from mobench.report.runtime import cost


def result_pages(site: Site, images: Path | None = None) -> dict[str, str]:
    """Returns the page of each paper by the paper's id, and the index under the empty name.

    Args:
        site: the claims to be shown.
        images: the folder of pictures that come with the documentation; pictures that are not there are
            left out.
    """
    env = _environment()
    env.filters["cost"] = partial(cost, site)
    pages = {"": env.get_template("results.md").render(site=site)}
    for paper in site.papers:
        pictures = {a.entries[0].id: picture(a, images) for a in paper.artifacts}
        pages[paper.id] = env.get_template("paper.md").render(paper=paper, pictures=pictures)
    return {id: re.sub(r"\n{3,}", "\n\n", text) for id, text in pages.items()}


def _environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    # no autoescape: `md` escapes what Markdown interprets
    env = jinja2.Environment(  # noqa: S701
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters |= {"md": md, "code": code, "anchor": anchor, "mark": mark, "shortened": shortened}
    env.filters |= {"cell": cell, "own_checks": own_checks, "spoken": spoken}
    env.globals |= {"VERDICTS": list(VERDICTS.values()), "CHECKS": CHECKS}
    env.globals |= {"tally": tally, "scales": scales_of, "rows": rows, "causes": causes, "abridged": abridged}
    env.globals |= {"near_targets": near_targets, "leanings": leanings, "beyond": beyond}
    return env


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


def beyond(evidence: Sequence[Evidence]) -> list[str]:
    """Returns the names of reproduced claims whose interval reaches beyond the tolerance."""
    return [
        f"{e.entry.id}: {e.claim.id}"
        for e in evidence
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
        [g for g in e.claim.gauges if g["target"] is not None]
        for e in evidence
        if mark(e.claim).key not in UNDECIDED
    ]
    with_target = [gauges for gauges in with_target if gauges]
    lines = []
    for words, factor in (("half", 0.5), ("whole", 1.0), ("twice", 2.0)):
        near = sum(
            all(abs(g["value"] - g["target"]) <= factor * (g["high"] - g["target"]) for g in gauges)
            for gauges in with_target
        )
        lines.append((words, near, len(with_target)))
    return lines


def picture(artifact: Artifact, images: Path | None) -> str | None:
    """Returns the address, in the folder of images, of the picture that the documentation has of it."""
    if images is None:
        return None
    name = artifact.entries[0].id.replace("/", "_") + ".png"
    places = (f"{folder}{name}" for folder in ("papers/", "findings/", ""))
    return next((place for place in places if (images / place).is_file()), None)


def rows(evidence: Sequence[Evidence]) -> str:
    """Says which rows were judged: `paper scale, kept rows`."""
    scales = [f"{e.claim.scale} scale{', kept rows' if e.entry.kept else ''}" for e in evidence]
    return " and ".join(dict.fromkeys(scales))


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
