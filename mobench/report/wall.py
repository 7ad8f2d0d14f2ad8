"""The wall of claims: one tile for each claim, as a picture without scripts, fonts or links to elsewhere.

Form tells verdicts apart as well as colour does: a full tile is reproduced, a half one partial, a crossed one
not reproduced, an empty one inconclusive. A tile with a bar below it was judged by rows of `scale=paper`; on
most synthetic problems `scale=laptop` has the paper's settings already.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mobench.report.model import VERDICTS, Evidence, Mark, Site, mark, tally

SIDE = 13  # of a tile, in pixels
STEP = 17
PER_LINE = 28
WIDTH = STEP * PER_LINE  # narrow enough for letters that are read on a phone as well
LINE = 21  # height of a line of text with a tile
LETTER = 7.2  # width of one, about
GAP = 12  # between papers
COLOURS = {"yes": "#0a7d5b", "part": "#c98a10", "no": "#c2410c", "skip": "#9aa3ab"}
ORDER = ("yes", "part", "no", "skip")
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.small{fill:#57606a}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9ea7b0}}"
)


def wall(site: Site, links: str | None = None) -> str:
    """Returns the wall as SVG.

    Args:
        site: the claims to be shown.
        links: the prefix of the address of each claim's evidence; None: tiles are no links.
    """
    everything = site.best
    parts, y = _legend(everything)
    for paper in site.papers:
        evidence = sorted(paper.best, key=lambda e: ORDER.index(mark(e.claim).key))
        if not evidence:
            continue
        y += GAP
        size = f'<tspan class="small">, {len(evidence)} claim{"s" if len(evidence) > 1 else ""}</tspan>'
        parts.append(f'<text x="0" y="{y + 11}">{escape(paper.short)}{size}</text>')
        y += LINE
        for k, one in enumerate(evidence):
            at = (STEP * (k % PER_LINE), y + (STEP + 3) * (k // PER_LINE))
            parts.append(_linked(one, links, _tile(mark(one.claim), *at, _at_paper(one))))
        y += -(-len(evidence) // PER_LINE) * (STEP + 3)
    totals = ", ".join(f"{n} {v.name}" for v, n in tally(everything))
    # within a page, the page's styles and namespace apply
    space = ' xmlns="http://www.w3.org/2000/svg"' if links is None else ""
    style = f"<style>{STYLE}</style>" if links is None else ""
    label = f"{len(everything)} claims, one tile each: {totals}"
    return (
        f'<svg{space} viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
        f'role="img" aria-label="{escape(label)}">{style}{"".join(parts)}</svg>\n'
    )


def _at_paper(evidence: Evidence) -> bool:
    return evidence.claim.scale == "paper"


def _legend(everything: Sequence[Evidence]) -> tuple[list[str], int]:
    """Returns the legend, which counts the tiles of each form in lines of `WIDTH`, and its lower end."""
    x = 0.0
    y = 2
    out = []
    for verdict, n in tally(everything):
        words = f"{n} {verdict.name}"
        wide = STEP + 2 + LETTER * len(words)
        if x and x + wide > WIDTH:
            x = 0.0
            y += LINE
        out.append(_tile(verdict, round(x), y, False))
        out.append(f'<text x="{round(x) + STEP + 2}" y="{y + 11}">{words}</text>')
        x += wide + 14
    large = sum(map(_at_paper, everything))
    bar = _tile(VERDICTS["inconclusive"], 0, y + LINE, True)
    words = f"with a bar: by rows of scale=paper ({large})"
    out.append(f'{bar}<text class="small" x="{STEP + 2}" y="{y + LINE + 11}">{words}</text>')
    words = f"without: by rows of scale=laptop ({len(everything) - large}); on synthetic problems"
    more = "mostly the paper's own settings (the papers' pages say where)"
    bare = _tile(VERDICTS["inconclusive"], 0, y + 2 * LINE, False)
    out.append(f'{bare}<text class="small" x="{STEP + 2}" y="{y + 2 * LINE + 11}">{words}</text>')
    out.append(f'<text class="small" x="{STEP + 2}" y="{y + 3 * LINE + 7}">{more}</text>')
    return out, y + 4 * LINE


def _tile(verdict: Mark, x: int, y: int, at_paper: bool) -> str:
    colour = COLOURS[verdict.key]
    frame = f'<rect x="{x + 0.75}" y="{y + 0.75}" width="{SIDE - 1.5}" height="{SIDE - 1.5}" rx="2"'
    line = f'fill="none" stroke="{colour}" stroke-width="1.5"'
    if verdict.key == "yes":
        form = f'{frame} fill="{colour}" stroke="{colour}" stroke-width="1.5"/>'
    elif verdict.key == "part":
        half = f"M{x + 1} {y + SIDE - 1}V{y + 1}L{x + SIDE - 1} {y + SIDE - 1}Z"
        form = f'{frame} {line}/><path d="{half}" fill="{colour}"/>'
    elif verdict.key == "no":
        low = 3.5
        high = SIDE - 3.5
        cross = f"M{x + low} {y + low}L{x + high} {y + high}M{x + high} {y + low}L{x + low} {y + high}"
        form = f'{frame} {line}/><path d="{cross}" stroke="{colour}" stroke-width="1.8"/>'
    else:
        form = f"{frame} {line}/>"
    bar = f'<rect x="{x}" y="{y + SIDE + 1}" width="{SIDE}" height="2" fill="{colour}"/>' if at_paper else ""
    return form + bar


def _linked(evidence: Evidence, links: str | None, tile: str) -> str:
    """Returns a tile with the text that is shown when it is pointed at."""
    claim = evidence.claim
    title = f"{evidence.entry.id}, {claim.id}: {mark(claim).name}. {claim.statement}"
    tip = f"<title>{escape(title)}</title>"
    if links is None:
        return f"<g>{tip}{tile}</g>"
    return f'<a href="{escape(links + evidence.page)}">{tip}{tile}</a>'
