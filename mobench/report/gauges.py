"""Published against measured: the numbers of each claim on axes of their own, beside their tolerances.

Every number has its own linear axis, which spans what was measured, the ends of the tolerance and the
published or exact value. The tolerance is a band; where it has one end only, the band goes on to the edge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mobench.report.model import Evidence, Paper, Site
from mobench.report.words import measured, number

SHOWN = 6  # numbers of a claim; of more, those farthest out of their tolerance
MARGIN = 0.12  # of an axis on both sides of what it shows
FEWEST_DIGITS = 3


@dataclass(frozen=True)
class Drawn:
    """One number, ready to be drawn: positions are percentages of the axis."""

    of: str
    value: str
    asked: str
    at: float
    band: tuple[float, float]  # from, width
    ends: str  # of the tolerance: "low", "high" or both
    target: float | None
    spread: tuple[float, float] | None  # from, width
    holds: bool


@dataclass(frozen=True)
class Compared:
    """One claim with its numbers."""

    evidence: Evidence
    drawn: list[Drawn]
    more: int  # numbers that are not shown


def compared(site: Site) -> list[tuple[Paper, list[Compared], int]]:
    """Returns by paper the claims that compare numbers, and how many claims compare none."""
    out = []
    for paper in site.papers:
        found = [_compared(evidence) for evidence in paper.best]
        shown = [c for c in found if c.drawn]
        if shown:
            out.append((paper, shown, len(found) - len(shown)))
    return out


def _compared(evidence: Evidence) -> Compared:
    every = [drawn for gauge in evidence.claim.gauges if (drawn := draw(gauge)) is not None]
    every.sort(key=lambda drawn: drawn.holds)
    return Compared(evidence, every[:SHOWN], max(0, len(every) - SHOWN))


def draw(gauge: dict[str, Any]) -> Drawn | None:
    """Returns a number with its positions; None where it is not finite or has no tolerance."""
    value = measured(gauge.get("value"))
    low, high, target, spread = (measured(gauge.get(k)) for k in ("low", "high", "target", "spread"))
    if value is None or (low is None and high is None):
        return None
    unit = str(gauge.get("unit") or "")
    strict = gauge.get("strict") is True
    reach = [value - (spread or 0.0), value + (spread or 0.0)]
    points = [x for x in (*reach, low, high, target) if x is not None]
    least, most = min(points), max(points)
    room = MARGIN * (most - least) or MARGIN * abs(most) or 1.0

    def place(x: float) -> float:
        return round(100 * (x - least + room) / (most - least + 2 * room), 1)

    start = 0.0 if low is None else place(low)
    end = 100.0 if high is None else place(high)
    interval = (place(reach[0]), round(place(reach[1]) - place(reach[0]), 1)) if spread else None
    return Drawn(
        str(gauge.get("of") or "measured"),
        _written([value], unit),
        _asked(low, high, target, unit, strict),
        place(value),
        (start, round(end - start, 1)),
        " ".join(name for name, end_of in (("low", low), ("high", high)) if end_of is not None),
        None if target is None else place(target),
        interval,
        (low is None or value > low or (value == low and not strict))
        and (high is None or value < high or (value == high and not strict)),
    )


def _asked(low: float | None, high: float | None, target: float | None, unit: str, strict: bool) -> str:
    if target is not None:
        return f"{_written([target], unit)} ± {_written([((high or 0.0) - (low or 0.0)) / 2], unit)}"
    if low is not None and high is not None:
        return f"{_written([low], '')} to {_written([high], unit)}"
    if low is not None:
        return f"{'more than' if strict else 'at least'} {_written([low], unit)}"
    return f"{'less than' if strict else 'at most'} {_written([high], unit)}"


def _written(values: Iterable[float | None], unit: str) -> str:
    return ", ".join(number(f"{x:.{FEWEST_DIGITS}g}") for x in values if x is not None) + unit
