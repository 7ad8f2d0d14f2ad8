"""Formats values of rows for readers: numbers, durations, commits, text with code."""

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


def duration(seconds: float) -> str:
    """Formats a duration: 3.2 s, 4 min 12 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


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


_CODE = re.compile(r"`([^`]+)`")


def rich(value: str) -> Markup:
    """Escapes text for HTML; what stands in backticks is code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if k % 2 else Markup.escape(part)
        for k, part in enumerate(_CODE.split(value))
    )
