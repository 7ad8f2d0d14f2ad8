"""Formats values of rows for readers: numbers, durations, dates, commits."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from markupsafe import Markup


def text(value: Any) -> str:
    """Formats any JSON value as text."""
    if value is None or value == "":
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(repr(value))
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def commit(origin: dict[str, Any]) -> str:
    """Formats a commit: `abc123def`, `abc123def + changes`, or `unknown commit`."""
    sha = origin.get("git_sha")
    if not isinstance(sha, str) or not sha:
        return "unknown commit"
    several = " and ".join(one[:10] for one in sha.split(" and "))  # of a job that two versions computed
    return several + (" + changes" if origin.get("git_dirty") else "")


def measured(value: Any) -> float | None:
    """Returns a finite number of a JSON file, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def duration(seconds: Any) -> str:
    """Formats a duration: 3.2 s, 4 min 12 s, 2 h 5 min."""
    value = measured(seconds)
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def moment(value: Any) -> str:
    """Formats an ISO time with a space and without seconds."""
    return re.sub(
        r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(.*)$", r"\1 \2 \3", text(value)
    ).strip()


_INTEGER = re.compile(r"[+-]?\d{1,15}")
_SUPER = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(raw: str) -> str:
    """Formats a number with four significant digits.

    Integers stay as they are, and only very small and very large numbers get powers of ten.
    """
    if _INTEGER.fullmatch(raw):
        return raw.replace("-", "−")
    value = float(raw)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if size and not 1e-4 <= size < 1e6:
        mantissa, exponent = f"{value:.3e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        digits = f"{mantissa}·10{str(int(exponent)).translate(_SUPER)}"
    elif size >= 1e3:
        digits = f"{value:.1f}".removesuffix(".0") if size < 1e4 else f"{value:.0f}"
    else:
        digits = f"{value:.4g}"
    # "-" inside 10⁻⁵ is a superscript already
    return digits.replace("-", "−")


def fact(key: str, value: Any) -> str:
    """Formats a fact that a problem records about its data.

    A value that all seeds share is shown once, sizes per client are added up (`104 in 10 parts of 10 to 11`),
    and long lists are truncated.
    """
    if isinstance(value, dict):
        each = {k: fact(key, v) for k, v in value.items()}
        return (
            next(iter(each.values()))
            if len(set(each.values())) == 1
            else "; ".join(f"seed {k}: {v}" for k, v in each.items())
        )
    if key.endswith("size") and isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        low = min(value)
        high = max(value)
        return f"{sum(value)} in {len(value)} parts of {low}" + (f" to {high}" if high > low else "")
    words = ", ".join(map(str, value)) if isinstance(value, list) and value else text(value)
    return words if len(words) <= 200 else f"{words[:190]} …"


def slug(value: str) -> str:
    """Returns a file name made of letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-") or "unnamed"


_CODE = re.compile(r"`([^`]+)`")
_GLUED = re.compile(
    r"[+−-]?\d[\d.]* ?± ?[\d.]+|[<>≤≥≈±] ?[+−-]?\d[\w.%°·+−-]{0,12}|[+−-]?\d[\d.]*[eE][+-]?\d+"
)


def glue(value: str) -> Markup:
    """Escapes text and keeps its numbers on one line: `< 1e-3`, `± 0.2`; text in backticks is code."""
    parts = _CODE.split(value)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if k % 2 else _glued(part) for k, part in enumerate(parts)
    )


def _glued(value: str) -> Markup:
    """Escapes text and keeps its numbers on one line."""
    out = Markup("")
    at = 0
    for match in _GLUED.finditer(value):
        out += Markup.escape(value[at : match.start()]) + Markup('<span class="nb">{}</span>').format(
            match[0]
        )
        at = match.end()
    return out + Markup.escape(value[at:])
