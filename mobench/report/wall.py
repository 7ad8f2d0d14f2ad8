"""The wall of claims: one tile for each claim, as a picture without scripts, fonts or links to elsewhere.

Form tells verdicts apart as well as colour does: a full tile is reproduced, a half one partial, a crossed one
not reproduced, an empty one inconclusive. A tile with a bar below it was judged by rows of `scale=paper`; on
most synthetic problems `scale=laptop` has the paper's settings already. The template wall.svg draws it.
"""

from __future__ import annotations

from mobench.report.markdown import rendered
from mobench.report.model import CLAIMS, Evidence, Paper, Site, mark, tally

STEP = 17  # from tile to tile, in pixels
PER_LINE = 28
WIDTH = STEP * PER_LINE  # narrow enough for letters that are read on a phone as well
LINE = 21  # height of a line of text with a tile
LETTER = 7.2  # width of one, about
GAP = 12  # between papers


def wall(site: Site, links: str | None = None) -> str:
    """Returns the wall as SVG.

    Args:
        site: the claims to be shown.
        links: the prefix of the address of each claim's evidence; None: tiles are no links.
    """
    counts = tally(site.all.best)
    legend = []  # in lines of `WIDTH`
    x = 0.0
    y = 2
    for verdict, n in counts:
        wide = STEP + 2 + LETTER * len(f"{n} {verdict.name}")
        if x and x + wide > WIDTH:
            x = 0.0
            y += LINE
        legend.append((round(x), y, verdict, n))
        x += wide + 14
    lowest = y
    y += 4 * LINE
    papers: list[tuple[int, Paper, list[tuple[int, int, Evidence]]]] = []
    for paper in site.papers:
        evidence = sorted(paper.best, key=lambda e: CLAIMS.index(mark(e.claim).key))
        if evidence:
            top = y + GAP + LINE
            places = (
                (STEP * (k % PER_LINE), top + (STEP + 3) * (k // PER_LINE)) for k in range(len(evidence))
            )
            papers.append((y + GAP, paper, [(*at, e) for at, e in zip(places, evidence, strict=True)]))
            y = top - (-len(evidence) // PER_LINE) * (STEP + 3)
    svg = rendered(
        "wall.svg",
        size=(WIDTH, y),
        counts=counts,
        legend=legend,
        lowest=lowest,
        papers=papers,
        links=links,
        all=site.all.best,
    )
    return "".join(line.strip() for line in svg.splitlines()) + "\n"
