"""Checks compare measured values with their tolerance, and write both in words.

A check is data: values, and the bounds or the target that they are compared with. One renderer writes the
outcome, the measured values and the tolerance, so that text and code cannot drift:

    >>> check = AtMost(0.013, 0.02, of="|x - x*|")
    >>> check.holds, check.measured, check.tolerance
    (True, '|x - x*| = 0.013', '|x - x*| <= 0.02')

Short constructors make the data:

| asks                                   | constructors                                               |
| -------------------------------------- | ---------------------------------------------------------- |
| a number against a bound               | `AtMost`, `Below`, `AtLeast`, `Above`                      |
| a number near another, or in a range   | `Within`, `Inside`                                         |
| an interval over seeds beside a number | `SurelyAbove`, `SurelyBelow`                               |
| how many, which share                  | `Share`, `Count`                                           |
| an order                               | `Ordered`, `Smallest`, `Largest`                           |
| the same                               | `Equal`                                                    |
| none of the above                      | `Judged`                                                   |
| several                                | `AllOf`, `Graded` (partial where a weaker one holds)       |
| not measured well enough               | `check.provided(enough, "why not")`                        |

A number is a float, a `Mean` over seeds (compared by its mean, written with its interval), a `Proportion` of
runs, or a mapping from names to them: then every one must hold, and with `partial=True` some make it partial.
A NaN never holds, and neither does a check of nothing. `of` names what is measured, `unit` follows each
number (with its own space, " %"), `digits` is its format.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from mobench.artifacts.statistics import Mean, Proportion, percent

Holds = bool | Literal["partial"] | None  # None: these rows cannot decide it
Number = float | Mean | Proportion
Numbers = Number | Mapping[Any, Number]
MOST_SHOWN = 8  # names in a list
MOST_SEEDS = 100_000  # a number of seeds beyond which none decides
ALONE = ""  # name of the one value of a check without names


@dataclass(frozen=True)
class Gauge:
    """One number of a check on its axis: the measured value, and the interval in which it holds.

    Args:
        of: what is measured.
        value: the number; a mean over seeds has `spread`, half of its 95 % interval.
        low: lower end of the tolerance; None: there is none.
        high: its upper end, likewise.
        target: the published or exact value; None: the check has only bounds.
        unit: follows each number.
        strict: the ends do not belong to the tolerance.
    """

    of: str
    value: float
    low: float | None = None
    high: float | None = None
    target: float | None = None
    spread: float | None = None
    unit: str = ""
    strict: bool = False


@dataclass(frozen=True)
class Failure:
    """Why a check does not hold.

    kind: "excluded" if the 95 % interval of what was measured has no value that is claimed; "held" if it has;
        "unmeasured" if a number is missing; "alone" if there is no interval.
    words: that, as a sentence.
    """

    kind: Literal["excluded", "unmeasured", "held", "alone"]
    words: str = ""


def _weightiest(failures: Iterable[Failure]) -> Failure:
    """Returns the failure that decides about all of them: one exclusion is enough."""
    every = list(failures)
    for kind in ("excluded", "unmeasured", "held"):
        if of_kind := [failure for failure in every if failure.kind == kind]:
            more = f" The same holds of {len(of_kind) - 1} more." if len(of_kind) > 1 else ""
            return Failure(of_kind[0].kind, of_kind[0].words + more)
    return Failure("alone")


def graded(held: Iterable[bool], partial: bool = True) -> Holds:
    """Returns whether all hold, or "partial" if only some do and `partial` allows it. Of nothing: False."""
    each = [bool(x) for x in held]
    if each and all(each):
        return True
    return "partial" if partial and any(each) else False


def listed(names: Iterable[Any]) -> str:
    """Returns names with commas, cut off where they are many."""
    every = [str(name) for name in names]
    more = f" and {len(every) - MOST_SHOWN} more" if len(every) > MOST_SHOWN else ""
    return ", ".join(every[:MOST_SHOWN]) + more


def label_value(name: Any, number: str) -> str:
    """Returns "u 2.3", or "u = 1: 2.3" where the name ends in a digit or holds an equals sign."""
    words = str(name)
    return f"{words}: {number}" if "=" in words or words[-1:].isdigit() else f"{words} {number}".strip()


def _joined(texts: Iterable[str]) -> str:
    """Returns texts with semicolons, each of their parts once."""
    return "; ".join(dict.fromkeys(part for text in texts for part in text.split("; ") if part))


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check of measured values against what a claim asks for.

    Kinds define the five views `_holds`, `_measured`, `_tolerance`, `_why` and `_gauges`. What a caller adds:

    Args:
        more: further numbers after the measured ones, which are not compared with anything.
        note: words after the tolerance, such as the result of a pilot.
        undecided: why these rows cannot decide it; then it does not hold, nor fail.
        limited: the runs are not quite those of the claim, so it is partial at best.
    """

    more: str = ""
    note: str = ""
    undecided: str | None = None
    limited: bool = False

    def _holds(self) -> Holds:
        raise NotImplementedError

    def _measured(self) -> str:
        raise NotImplementedError

    def _tolerance(self) -> str:
        raise NotImplementedError

    def _why(self) -> str:
        return ""

    def _gauges(self) -> Iterable[Gauge]:
        return ()

    def _failure(self) -> Failure:
        return Failure("alone")

    @property
    def failure(self) -> Failure | None:
        """Why it does not hold in full; None if it does, or if the rows cannot decide it."""
        return None if self.undecided is not None or self._holds() in (True, None) else self._failure()

    @property
    def holds(self) -> Holds:
        """True, "partial", False, or None where the rows cannot decide it."""
        if self.undecided is not None:
            return None
        outcome = self._holds()
        return "partial" if self.limited and outcome is True else outcome

    @property
    def measured(self) -> str:
        """Writes the measured values."""
        return self._measured() + self.more

    @property
    def tolerance(self) -> str:
        """Writes the tolerance."""
        return self._tolerance() + self.note

    @property
    def why(self) -> str:
        """Why the rows cannot decide it (`holds` is None)."""
        return self._why() if self.undecided is None else self.undecided

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        """Its numbers with their tolerances, to be drawn on axes; empty if it compares no numbers."""
        return tuple(self._gauges())

    def also(self, text: str) -> Self:
        """Returns the same check with further numbers after the measured ones, which are not compared."""
        return replace(self, more=f"{self.more}; {text}")

    def because(self, text: str) -> Self:
        """Returns the same check with words in brackets after its tolerance, as of a pilot."""
        return replace(self, note=f"{self.note} ({text})")

    def provided(self, enough: bool | np.bool_ | int, otherwise: str) -> Self:
        """Returns the check itself if there is enough to decide it, else an undecided one that says why."""
        return self if enough else replace(self, undecided=otherwise)

    def below_ceiling(
        self, values: Iterable[float], ceiling: float, within: float, unit: str = "", before: str = ""
    ) -> Self:
        """Returns the check itself, or an undecided one where all of these values are at their ceiling.

        before: what decides it, or what the values were before they reached it.
        """
        lowest = min(values, default=math.nan)
        return self.provided(
            not lowest >= ceiling - within,
            f"Saturated: all values are within {within:g}{unit} of {ceiling:g}{unit}, the largest that is "
            f"possible, so that none can be above another. {before}".strip(),
        )

    def partial_at_best(self, limited: bool = True) -> Self:
        """Returns the same check, partial where it holds: the runs are not quite those of the claim."""
        return replace(self, limited=self.limited or limited)


def _seeds_needed(numbers: Iterable[Number], half: float, distance: float) -> str:
    """Says how many seeds would decide if mean and deviation stayed: half is t_(n-1) s n^(-1/2)."""
    from scipy import stats  # takes a moment, and few checks need it

    seeds = min((len(number.values) for number in numbers if isinstance(number, Mean)), default=0)

    def excess(n: int) -> float:
        size = np.sqrt(seeds / n) * stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, seeds - 1)
        return distance - half * float(size)

    if seeds < 2 or not excess(MOST_SEEDS) > 0:
        return " Decided by a difference that counts, of which the text has none: the mean is at the bound."
    about = 2 + bisect.bisect_left(range(2, MOST_SEEDS), True, key=lambda n: excess(n) > 0)
    return f" Decided by about {about:,} seeds in the place of {seeds}, if the mean stays where it is."


@dataclass(frozen=True, kw_only=True)
class Comparison(Check):
    """Numbers compared with bounds or with a target.

    Args:
        values: measured numbers, by name (`ALONE` for one number).
        low: the bound from below, one or by name; None: there is none.
        high: the bound from above, likewise.
        strict: the bounds themselves do not hold.
        target: the required number, one or by name.
        by: how far from its target a number may be, or by how much it must pass its bound (negative: may miss
            it).
        surely: the 95 % interval of each mean over seeds must lie beyond the bound, not the mean alone. Where
            it does, but the mean passes the bound by less than `by`, the check is partial.
        agree: where there are too few seeds for an interval, all of them must lie beyond the bound; otherwise
            they never hold.
        of: what is measured.
        than: what the bound or the target is ("the best baseline"); then the bound counts as measured, too.
        unit, digits: of each number.
        partial: some of the names make it partial.
        texts: the measured values and the tolerance, where one text says more than number by number.
    """

    values: Mapping[Any, Number]
    low: Numbers | None = None
    high: Numbers | None = None
    strict: bool = False
    target: Numbers | None = None
    by: float = 0.0
    surely: bool = False
    agree: bool = False
    of: str = ""
    than: str = ""
    unit: str = ""
    digits: str = ".4g"
    partial: bool = False
    texts: tuple[str, str] | None = None

    @property
    def numbers(self) -> dict[Any, float]:
        """The numbers that are compared, by name."""
        return {name: float(value) for name, value in self.values.items()}

    @property
    def failing(self) -> list[Any]:
        """Names of those that do not hold."""
        return [name for name in self.values if not self._fits(name)]

    def _bounds(self, name: Any) -> list[Number]:
        """Returns the bounds, or the target, of one number."""
        given = (self.low, self.high, self.target)
        return [x[name] if isinstance(x, Mapping) else x for x in given if x is not None]

    def _ends(self, name: Any) -> tuple[float, float]:
        """Returns the ends of the tolerance of one number; infinite where there is none."""
        bounds = [float(x) for x in self._bounds(name)]
        if self.target is not None:
            return bounds[0] - self.by, bounds[0] + self.by
        low = -math.inf if self.low is None else bounds[0] + self.by
        high = math.inf if self.high is None else bounds[-1] - self.by
        return low, high

    def _fits(self, name: Any) -> bool:
        """Returns whether one number holds; a NaN does not."""
        number = float(self.values[name])
        if self.target is not None:
            return abs(number - float(self._bounds(name)[0])) <= self.by
        low, high = self._ends(name)
        above = self.low is None or (number > low if self.strict else number >= low)
        below = self.high is None or (number < high if self.strict else number <= high)
        return above and below and (not self.surely or self._beyond(name))

    def _beyond(self, name: Any) -> bool:
        """Returns whether the interval of a mean, or with `agree` each seed, lies beyond the bound."""
        mean = self.values[name]
        assert isinstance(mean, Mean)
        sign = 1 if self.high is None else -1
        bound = float(self._bounds(name)[0])
        if math.isfinite(mean.half):
            return sign * (mean.mean - bound) > mean.half
        return self.agree and len(mean.values) > 0 and bool((sign * (mean.values - bound) > 0).all())

    def _nearly(self, name: Any) -> bool:
        """Returns whether the interval lies beyond the bound, the margin set aside."""
        return math.isfinite(self._half(name)) and self._beyond(name)

    def _unmeasured(self) -> bool:
        """Returns whether seeds had to agree, and some have no value."""
        means = [value for value in self.values.values() if isinstance(value, Mean)]
        return self.agree and any(not np.isfinite(m.values).all() or not len(m.values) for m in means)

    def _holds(self) -> Holds:
        if self._unmeasured():
            return None
        failing = self.failing
        if failing and self.surely and self.by and all(self._nearly(name) for name in failing):
            return "partial"
        return graded((name not in failing for name in self.values), self.partial)

    def _why(self) -> str:
        return "Not measured in every run; more seeds decide." if self._unmeasured() else ""

    # why they do not hold

    def _failure(self) -> Failure:
        return _weightiest(self._failed(name) for name in self.failing)

    def _half(self, name: Any) -> float:
        """Returns half of the interval of a number, with that of its bound; NaN if there is none."""
        halves = [x.half for x in (self.values[name], *self._bounds(name)) if isinstance(x, Mean)]
        return math.hypot(*halves) if halves else math.nan

    def _failed(self, name: Any) -> Failure:
        """Compares the interval of one number with its tolerance."""
        value = self.values[name]
        number = float(value)
        bounds = self._bounds(name)
        words = f"{self.of}, {name}".strip(", ") or "the measured value"
        if not all(math.isfinite(float(x)) for x in (value, *bounds)):
            other = f"what {words} is compared with" if math.isfinite(number) else words
            return Failure("unmeasured", f"Not measured: {other}.")
        half = self._half(name)
        ends = value.ends if isinstance(value, Proportion) else (number - half, number + half)
        if not math.isfinite(ends[0]):
            return Failure("alone")
        low, high = self._ends(name)
        first, last = (percent(x, 1) if isinstance(value, Proportion) else f"{x:.4g}" for x in ends)
        both = ""
        if any(isinstance(x, Mean) for x in bounds):
            whose = "both intervals together" if isinstance(value, Mean) else "that of its bound"
            both = f" ({whose}; bound {', '.join(f'{float(x):.4g}{self.unit}' for x in bounds)})"
        interval = f"The 95 % interval of {words}, {first} to {last}{self.unit}{both},"
        if ends[1] < low or ends[0] > high:
            return Failure("excluded", f"{interval} has no value that is claimed.")
        distance = max(low - number, number - high)
        distance = distance if distance >= 0 else self.by - distance  # beyond the bound, but not surely
        more = "" if isinstance(value, Proportion) else _seeds_needed((value, *bounds), half, distance)
        return Failure("held", f"{interval} holds values that are claimed, so it does not tell.{more}")

    # the measured values and the tolerance

    @property
    def _bound(self) -> Any:
        return self.low if self.high is None else self.high

    @property
    def _sign(self) -> str:
        return ("<" if self.low is None else ">") + ("" if self.strict else "=")

    def _write(self, number: Number) -> str:
        if isinstance(number, Mean | Proportion):
            return number.words(self.digits, self.unit)
        return f"{number:{self.digits}}{'' if math.isnan(number) else self.unit}"

    def _compared_with(self, name: Any) -> str:
        """Returns what follows a number: its target, or the bound of this name."""
        if self.target is not None:
            return f" ({self.than} {self._write(self._bounds(name)[0])})"
        if not isinstance(self._bound, Mapping):
            return ""
        words = self._write(self._bound[name])
        return f" ({label_value(self.than, words) if self.than else f'{self._sign} {words}'})"

    def _measured(self) -> str:
        if self.texts is not None:
            return self.texts[0]
        written = {
            name: self._write(value) + self._compared_with(name) for name, value in self.values.items()
        }
        words = ", ".join(label_value(name, text) for name, text in written.items())
        if self.of:
            colon = list(self.values) != [ALONE] or self.surely or "=" in self.of
            words = f"{self.of}{':' if colon else ' ='} {words}"
        if self.than and self.target is None and not isinstance(self._bound, Mapping):
            return f"{words}; {label_value(self.than, self._write(self._bound))}"
        return words

    def _tolerance(self) -> str:
        if self.texts is not None:
            return self.texts[1]
        each = f", each{' (partial: some)' if self.partial else ''}" if len(self.values) > 1 else ""
        return self._requirement() + each

    def _requirement(self) -> str:
        margin = f"{self.by:g}{self.unit}"
        if self.target is not None:
            return f"|{self.of or 'measured'} - {self.than}| <= {margin}"
        if self.low is not None and self.high is not None:
            return f"{self.of} in [{self.low:g}, {self.high:g}]{self.unit}".strip()
        if isinstance(self._bound, Mapping):
            bound = "its own bound"
        elif any(isinstance(value, Proportion) for value in self.values.values()):
            bound = percent(self._bound)
        else:
            bound = f"{float(self._bound):g}{self.unit}"
        if self.surely:
            few = " (or all seeds, where they are too few for one)" if self.agree else ""
            side = "above" if self.high is None else "below"
            farther = f" and by more than {margin}" if self.by else ""
            return f"95 % interval over seeds{few} {side} {bound}{farther}"
        return f"{self.of} {self._sign} {self.than or bound}".strip()

    def _gauges(self) -> Iterable[Gauge]:
        note = f" (bound: {self.than})" if self.than and self.target is None else ""
        for name, value in self.values.items():
            scale = 100 if isinstance(value, Proportion) else 1
            half = value.half if isinstance(value, Mean) else math.nan
            low, high = (scale * end if math.isfinite(end) else None for end in self._ends(name))
            yield Gauge(
                ", ".join(part for part in (self.of, str(name)) if part) + note,
                scale * float(value),
                low,
                high,
                target=None if self.target is None else float(self._bounds(name)[0]),
                spread=half if math.isfinite(half) else None,
                unit=" %" if isinstance(value, Proportion) else self.unit,
                strict=self.strict,
            )


@dataclass(frozen=True, kw_only=True)
class Verbal(Check):
    """A check that the caller judges, who also writes its texts; a comparison is to be preferred.

    excluded: where it does not hold, how an interval excludes what is claimed.
    """

    outcome: Holds
    texts: tuple[str, str]
    excluded: str = ""

    def _failure(self) -> Failure:
        return Failure("excluded", self.excluded) if self.excluded else Failure("alone")

    def _holds(self) -> Holds:
        return self.outcome

    def _measured(self) -> str:
        return self.texts[0]

    def _tolerance(self) -> str:
        return self.texts[1]


@dataclass(frozen=True, kw_only=True)
class Several(Check):
    """Checks that are judged together; their measured values and tolerances are joined.

    Args:
        checks: all of them must hold.
        weaker: makes it partial where they do not hold.
        partial: it is enough for "partial" if one of them holds.
    """

    checks: tuple[Check, ...]
    weaker: Check | None = None
    partial: bool = False

    @property
    def failing(self) -> list[Check]:
        """Returns the checks that do not hold in full."""
        return [check for check in self.checks if check.holds is not True]

    def _holds(self) -> Holds:
        each = [check.holds for check in self.checks]
        if each and all(h is True for h in each):
            return True
        if None in each and False not in each:
            return None
        weaker = False if self.weaker is None else self.weaker.holds
        if weaker or (any(each) and (self.partial or False not in each)):
            return "partial"
        return None if weaker is None or (self.partial and None in each) else False  # it may yet be partial

    def _failure(self) -> Failure:
        return _weightiest(check.failure for check in self.checks if check.failure is not None)

    def _measured(self) -> str:
        checks = self.checks if self.weaker is None else (*self.checks, self.weaker)
        return _joined(check.measured for check in checks)

    def _tolerance(self) -> str:
        words = _joined(check.tolerance for check in self.checks)
        if self.weaker is not None:
            return f"{words} (partial: {self.weaker.tolerance})"
        return words + (" (partial: one of them)" if self.partial else "")

    def _why(self) -> str:
        checks = self.checks if self.weaker is None else (*self.checks, self.weaker)
        reasons = (check.why for check in checks if check.why)
        return " ".join(dict.fromkeys(reasons)) if self.holds is None else ""

    def _gauges(self) -> Iterable[Gauge]:
        return (gauge for check in self.checks for gauge in check.gauges)


# short constructors


def _by_name(value: Any) -> dict[Any, Any]:
    return dict(value) if isinstance(value, Mapping) else {ALONE: value}


def AtMost(value: Numbers, bound: Numbers, **words: Any) -> Comparison:
    """Returns the check of value <= bound; `than`: what the bound is, so that it counts as measured, too."""
    return Comparison(values=_by_name(value), high=bound, **words)


def Below(value: Numbers, bound: Numbers, **words: Any) -> Comparison:
    """Returns the check of value < bound."""
    return Comparison(values=_by_name(value), high=bound, strict=True, **words)


def AtLeast(value: Numbers, bound: Numbers, **words: Any) -> Comparison:
    """Returns the check of value >= bound."""
    return Comparison(values=_by_name(value), low=bound, **words)


def Above(value: Numbers, bound: Numbers, **words: Any) -> Comparison:
    """Returns the check of value > bound."""
    return Comparison(values=_by_name(value), low=bound, strict=True, **words)


def Within(value: Numbers, target: Numbers, by: float, *, to: str = "exact", **words: Any) -> Comparison:
    """Returns the check of |value - target| <= by. `target`: a number, or one by name; `to`: what it is."""
    return Comparison(values=_by_name(value), target=target, by=by, than=to, **words)


def Inside(value: Numbers, low: float, high: float, **words: Any) -> Comparison:
    """Returns the check of low <= value <= high."""
    return Comparison(values=_by_name(value), low=low, high=high, **words)


def SurelyAbove(
    value: Mean | Mapping[Any, Mean], bound: float = 0.0, *, near: float = 0.0, **words: Any
) -> Comparison:
    """Returns the check that the 95 % interval lies above the bound, its mean by more than `near`.

    With `agree`, all seeds must lie above it where they are too few for an interval.
    """
    words = {"digits": "+.3g"} | words
    return Comparison(values=_by_name(value), low=bound, by=near, strict=True, surely=True, **words)


def SurelyBelow(
    value: Mean | Mapping[Any, Mean], bound: float = 0.0, *, near: float = 0.0, **words: Any
) -> Comparison:
    """Returns the check that the interval lies below the bound."""
    words = {"digits": "+.3g"} | words
    return Comparison(values=_by_name(value), high=bound, by=near, strict=True, surely=True, **words)


def Share(
    holding: np.ndarray | Sequence[bool] | Mapping[Any, np.ndarray],
    at_least: float = 1.0,
    *,
    at_most: float | None = None,
    that: str = "",
    what: str = "runs",
    digits: int = 0,
    partial: bool = False,
) -> Comparison:
    """Returns the check of the share of runs of which a condition holds.

    Args:
        holding: one truth value per run, or those for each name.
        at_least: the required share, of each name.
        at_most: the share that is allowed (instead of `at_least`).
        that: the condition, in words ("within 1° of the ray").
        what: what is counted.
        digits: of the share.
        partial: some of the names make it partial.
    """
    shares = {name: Proportion(np.asarray(x, bool), digits) for name, x in _by_name(holding).items()}
    low = at_least if at_most is None else None
    of = f"share of {what}{f' ({that})' if that else ''}"
    return Comparison(values=shares, low=low, high=at_most, of=of, partial=partial)


def Count(
    holding: Mapping[Any, bool | np.bool_],
    at_least: int | None = None,
    *,
    at_most: int | None = None,
    that: str = "",
    what: str = "",
    of: int | None = None,
) -> Comparison:
    """Returns the check of how many of a few named things hold.

    Args:
        holding: a truth value for each name.
        at_least: how many must hold (None: all).
        at_most: how many may hold (instead of `at_least`; 0: none); of nothing that holds, since none is
            required.
        that: the condition, in words.
        what: what is counted.
        of: how many there are (None: those in `holding`), where some of them were not run. Those count as not
            holding, so whoever passes it also says that the check is undecided (see `Check.provided`).
    """
    total = len(holding) if of is None else of
    low = max(1, total) if at_least is None else at_least
    named = [name for name, x in holding.items() if bool(x) == (at_most is not None)]
    return Comparison(
        values={ALONE: sum(bool(x) for x in holding.values())},
        low=low if at_most is None else None,
        high=at_most,
        of=f"number of {what}{f' ({that})' if that else ''}" if what else that,
        unit=f" of {total}",
        more=f"; {'not' if at_most is None else 'these'}: {listed(named)}" if named else "",
    )


def Ordered(
    value: Mapping[Any, Number],
    *,
    falling: bool = False,
    strict: bool = True,
    slack: float = 0.0,
    **words: Any,
) -> Comparison:
    """Returns the check that numbers rise, or fall, in the order of their names, each against the one before.

    slack: by how much each may miss it; strict: neighbours that are equal miss it.
    """
    bounds = {other: value[one] for one, other in itertools.pairwise(value)}
    ends: dict[str, Any] = {"high" if falling else "low": bounds}
    later = {name: value[name] for name in bounds}
    order = f"{'falling' if falling else 'rising'} in this order"
    order += f", up to {slack:g}{words.get('unit', '')}" if slack else "" if strict else ", or equal"
    order += " (partial: some neighbours)" if words.get("partial") else ""
    texts = (Comparison(values=value, **words).measured, order)
    return Comparison(values=later, strict=strict and not slack, by=-slack, texts=texts, **ends, **words)


def Smallest(value: Mapping[Any, Number], name: Any, **words: Any) -> Comparison:
    """Returns the check that a named number is strictly the smallest: `Smallest(areas, "MLM-CMOO")`."""
    return _extreme(Above, value, name, "smallest", words)


def Largest(value: Mapping[Any, Number], name: Any, **words: Any) -> Comparison:
    """Returns the check that a named number is strictly the largest."""
    return _extreme(Below, value, name, "largest", words)


def _extreme(
    than: Callable[..., Comparison], value: Mapping[Any, Number], name: Any, what: str, words: dict[str, Any]
) -> Comparison:
    """Returns the comparison of all other numbers with the named one."""
    others = {other: number for other, number in value.items() if other != name}
    claim = f"{name} has the {what} {words.get('of', '')}".strip()
    return than(others, value[name], texts=(Comparison(values=value, **words).measured, claim), **words)


def Equal(
    value: Mapping[Any, Any], expected: Mapping[Any, Any], *, what: str = "", partial: bool = False
) -> Verbal:
    """Returns the check that values of any kind, by name, equal the expected ones. `partial`: some do."""
    names = list(dict.fromkeys((*expected, *value)))
    pairs = {name: (value.get(name, "missing"), expected.get(name, "missing")) for name in names}
    differing = [f"{name}: {ours} ({theirs})" for name, (ours, theirs) in pairs.items() if ours != theirs]
    measured = f"{len(names) - len(differing)} of {len(names)} {what}".strip() + " equal"
    return Judged(
        graded((ours == theirs for ours, theirs in pairs.values()), partial),
        measured + (f"; not: {listed(differing)}" if differing else ""),
        "equal" + (" (partial: some)" if partial else ""),
        excluded=f"Not equal: {listed(differing)}.",
    )


def Judged(
    holds: Holds | np.bool_, measured: str, tolerance: str, why: str = "", excluded: str = ""
) -> Verbal:
    """Returns a check that the caller judges, who writes its texts. Rather use one that writes them."""
    outcome = bool(holds) if isinstance(holds, np.bool_) else holds
    undecided = why if why and outcome is None else None
    return Verbal(outcome=outcome, texts=(measured, tolerance), undecided=undecided, excluded=excluded)


def AllOf(*checks: Check, partial: bool = False) -> Several:
    """Returns the check that all hold. `partial`: it is enough for "partial" if one of them does."""
    return Several(checks=checks, partial=partial)


def Graded(full: Check, weaker: Check) -> Several:
    """Returns the check that `full` holds; it is "partial" where only `weaker` does."""
    return Several(checks=(full,), weaker=weaker)
