"""The wall of claims: one tile for each claim, as a picture without scripts, fonts or links to elsewhere.

Form tells verdicts apart as well as colour does: a full tile is reproduced, a half one partial, a crossed one
not reproduced, an empty one inconclusive. A tile with a bar below it was judged at the paper's own scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mobench.report.model import VERDICTS, Evidence, Mark, Site, tally

SIDE = 13  # of a tile, in pixels
STEP = 17
PER_LINE = 42
LEFT = 112  # where tiles begin
RIGHT = 12
HEAD = 62
GAP = 13  # between papers
COLOURS = {"yes": "#0a7d5b", "part": "#c98a10", "no": "#c2410c", "skip": "#9aa3ab"}
ORDER = ("yes", "part", "no", "skip")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.small{font-size:11px;fill:#57606a}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9ea7b0}}"
)


def wall(site: Site, links: str | None = None) -> str:
    """Returns the wall as SVG.

    Args:
        site: whose claims are shown.
        links: what stands in front of the address of each claim's evidence; None: tiles are no links.
    """
    parts: list[str] = []
    y = HEAD
    for paper in site.papers:
        found = sorted(paper.best, key=lambda e: ORDER.index(e.claim.verdict.key))
        if not found:
            continue
        parts.append(f'<text x="0" y="{y + 11}">{escape(paper.short)}</text>')
        parts.append(f'<text class="small" x="0" y="{y + 26}">{len(found)} claims</text>')
        for k, evidence in enumerate(found):
            at = (LEFT + STEP * (k % PER_LINE), y + (STEP + 3) * (k // PER_LINE))
            parts.append(_linked(evidence, links, _tile(evidence.claim.verdict, *at, _at_paper(evidence))))
        lines = -(-len(found) // PER_LINE)
        y += max(lines * (STEP + 3), 30) + GAP
    width = LEFT + STEP * PER_LINE + RIGHT
    everything = site.best
    said = ", ".join(f"{n} {v.name}" for v, n in tally(everything))
    # a page that shows it has styles and a namespace of its own
    space = ' xmlns="http://www.w3.org/2000/svg"' if links is None else ""
    style = f"<style>{STYLE}</style>" if links is None else ""
    label = f"{len(everything)} claims, one tile each: {said}"
    return (
        f'<svg{space} viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
        f'role="img" aria-label="{escape(label)}">{style}{_legend(everything)}'
        f"{''.join(parts)}</svg>\n"
    )


def _at_paper(evidence: Evidence) -> bool:
    return evidence.claim.scale == "paper"


def _legend(everything: Sequence[Evidence]) -> str:
    """Returns the lines above the tiles: what each form means, and how many there are."""
    x = 0
    out = []
    for verdict, n in tally(everything):
        words = f"{n} {verdict.name}"
        out.append(_tile(verdict, x, 4, False) + f'<text x="{x + STEP + 2}" y="15">{words}</text>')
        x += STEP + 20 + 7 * len(words)
    large = sum(map(_at_paper, everything))
    words = f"with a bar: judged at the paper's own scale ({large}); without: at laptop scale"
    bar = _tile(VERDICTS["inconclusive"], 0, 25, True)
    out.append(f'{bar}<text class="small" x="{STEP + 2}" y="36">{words}</text>')
    return "".join(out)


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
    """Returns a tile with what is shown when it is pointed at."""
    claim = evidence.claim
    title = f"{evidence.entry.id}, {claim.id}: {claim.verdict.name}. {claim.statement}"
    tip = f"<title>{escape(title)}</title>"
    if links is None:
        return f"<g>{tip}{tile}</g>"
    return f'<a href="{escape(links + evidence.page)}">{tip}{tile}</a>'
