"""Checks: what was measured, compared with what was asked, written by the same object.

A check knows whether it holds, and writes its own measured values and its own tolerance, so that text and
code cannot drift:

    >>> check = AtMost(0.013, 0.02, of="|x - x*|")
    >>> check.holds, check.measured, check.tolerance
    (True, '|x - x*| = 0.013', '|x - x*| <= 0.02')

| asks                                   | kinds                                                      |
| -------------------------------------- | ---------------------------------------------------------- |
| a number against a bound               | `AtMost`, `Below`, `AtLeast`, `Above`                      |
| a number near another, or in a range   | `Within`, `Inside`                                         |
| an interval over seeds beside a number | `SurelyAbove`, `SurelyBelow`                               |
| how many, which share                  | `Share`, `Count`                                           |
| an order                               | `Ordered`, `Smallest`, `Largest`                           |
| the same                               | `Equal`                                                    |
| none of the above                      | `Judged`                                                   |
| several                                | `AllOf`, `AnyOf`, `Graded` (partial where a weaker one holds) |
| not measured well enough               | `Undecided`, `check.provided(enough, "why not")`           |

A number is a float, a `Mean` over seeds (compared by its mean, written with its interval), or a mapping from
names to them: then every one must hold, and with `partial=True` some make it partial. A NaN never holds, and
neither does a check of nothing. `of` names what is measured, `unit` follows each number (with its own space,
" %"), `digits` is its format.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from mobench.artifacts.statistics import Mean, percent

Holds = bool | Literal["partial"] | None  # None: these rows cannot decide it


@dataclass(frozen=True)
class Gauge:
    """One number of a check on its axis: what was measured, and the interval in which it holds.

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


def _spread(number: Any) -> float | None:
    """Half of the 95 % interval of a mean over seeds."""
    half = float(number.half) if isinstance(number, Mean) else float("nan")
    return half if np.isfinite(half) else None


def _label(of: str, name: Any) -> str:
    """Returns the label of a gauge: the quantity, and which of several it is for."""
    return ", ".join(part for part in (of, str(name)) if part)


Number = float | Mean
Numbers = Number | Mapping[Any, Number]
MOST_SHOWN = 8  # names in a list


def graded(held: Iterable[bool], partial: bool = True) -> Holds:
    """Whether all hold; "partial" if only some do, and `partial` allows it. Of nothing: False."""
    found = [bool(x) for x in held]
    if found and all(found):
        return True
    return "partial" if partial and any(found) else False


def listed(names: Iterable[Any]) -> str:
    """Names with commas, cut off where they are many."""
    every = [str(name) for name in names]
    return ", ".join(every[:MOST_SHOWN]) + (
        f" and {len(every) - MOST_SHOWN} more" if len(every) > MOST_SHOWN else ""
    )


def said_of(name: Any, number: str) -> str:
    """Writes a name and its number, with a colon where the name would be read on into it: "u = 1: 2.3"."""
    words = str(name)
    return f"{words}: {number}" if "=" in words or words[-1:].isdigit() else f"{words} {number}".strip()


class Check:
    """What was measured and what was asked. Kinds give `holds`, `measured` and `tolerance`."""

    @property
    def holds(self) -> Holds:
        """True, "partial", False, or None where the rows cannot decide it."""
        raise NotImplementedError

    @property
    def measured(self) -> str:
        """What was measured, in words."""
        raise NotImplementedError

    @property
    def tolerance(self) -> str:
        """What was asked, in words."""
        raise NotImplementedError

    @property
    def why(self) -> str:
        """Why the rows cannot decide it (`holds` is None)."""
        return ""

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        """Its numbers with their tolerances, for a reader who looks at them; none of what is no number."""
        return ()

    def also(self, text: str) -> Check:
        """Returns the same check with further numbers after the measured ones, of which nothing is asked."""
        return Judged(
            self.holds, f"{self.measured}; {text}", self.tolerance, why=self.why, gauges=self.gauges
        )

    def because(self, text: str) -> Check:
        """Returns the same check with words in brackets after its tolerance, such as what a pilot had."""
        return Judged(
            self.holds, self.measured, f"{self.tolerance} ({text})", why=self.why, gauges=self.gauges
        )

    def provided(self, enough: bool | np.bool_ | int, otherwise: str) -> Check:
        """Returns the check itself if there is enough to decide it, else an undecided one that says why."""
        return self if enough else Undecided(otherwise, self)

    def partial_at_best(self, limited: bool = True) -> Check:
        """Returns the same check, but partial where it holds: what was run is not quite what was claimed."""
        if not limited or self.holds is not True:
            return self
        return Judged("partial", self.measured, self.tolerance, why=self.why, gauges=self.gauges)


class Judged(Check):
    """The odd one: judged by the caller, who writes both texts. Rather use a kind that writes them."""

    def __init__(
        self,
        holds: Holds | np.bool_,
        measured: str,
        tolerance: str,
        why: str = "",
        gauges: tuple[Gauge, ...] = (),
    ) -> None:
        self._holds: Holds = bool(holds) if isinstance(holds, np.bool_) else holds
        self._measured = measured
        self._tolerance = tolerance
        self._why = why
        self._gauges = gauges

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        return self._gauges

    @property
    def holds(self) -> Holds:
        return self._holds

    @property
    def measured(self) -> str:
        return self._measured

    @property
    def tolerance(self) -> str:
        return self._tolerance

    @property
    def why(self) -> str:
        return self._why


@dataclass(frozen=True)
class Undecided(Check):
    """What these rows cannot decide. `check`: what was measured nevertheless."""

    reason: str
    check: Check | None = None

    @property
    def holds(self) -> Holds:
        return None

    @property
    def measured(self) -> str:
        return self.check.measured if self.check else "–"

    @property
    def tolerance(self) -> str:
        return self.check.tolerance if self.check else "–"

    @property
    def why(self) -> str:
        return self.reason

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        return self.check.gauges if self.check else ()


@dataclass(frozen=True)
class _Numbers(Check):
    """Checks of one number, or of several by name."""

    value: Numbers

    @property
    def named(self) -> dict[Any, Number]:
        return dict(self.value) if isinstance(self.value, Mapping) else {"": self.value}

    def _holds(self, name: Any, number: float) -> bool:
        raise NotImplementedError

    @property
    def failing(self) -> list[Any]:
        """Names of the numbers that do not hold."""
        return [name for name, number in self.named.items() if not self._holds(name, float(number))]

    @property
    def holds(self) -> Holds:
        held = (self._holds(name, float(number)) for name, number in self.named.items())
        return graded(held, getattr(self, "partial", False))

    def _ends(self, name: Any) -> dict[str, Any] | None:
        """Ends of the tolerance of a number, whether they are strict, and its target; None: it has none."""
        return None

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        of = getattr(self, "of", "")
        unit = getattr(self, "unit", "")
        than = getattr(self, "than", "")
        bound = f" (bound: {than})" if than else ""
        return tuple(
            Gauge(_label(of, name) + bound, float(v), spread=_spread(v), unit=unit, **ends)
            for name, v in self.named.items()
            if (ends := self._ends(name)) is not None
        )

    def _write(self, number: Number) -> str:
        digits = getattr(self, "digits", ".4g")
        unit = getattr(self, "unit", "")
        return number.words(digits, unit) if isinstance(number, Mean) else f"{number:{digits}}{unit}"

    def _more(self, name: Any) -> str:
        """What follows a number: what it is compared with."""
        return ""

    @property
    def measured(self) -> str:
        of = getattr(self, "of", "")
        if isinstance(self.value, Mapping):
            each = ", ".join(said_of(n, self._write(v) + self._more(n)) for n, v in self.value.items())
            return f"{of}: {each}" if of else each
        number = self._write(self.value) + self._more("")
        if not of:
            return number
        return f"{of}: {number}" if "=" in of else f"{of} = {number}"

    def _each(self, text: str) -> str:
        """A tolerance, of each number."""
        if not isinstance(self.value, Mapping) or len(self.value) < 2:
            return text
        return f"{text}, each{' (partial: some)' if getattr(self, 'partial', False) else ''}"


@dataclass(frozen=True)
class _Bounded(_Numbers):
    """A number against a bound.

    Args:
        value: what was measured.
        bound: a number, or one for each name.
        of: what is measured.
        than: what the bound is ("the best baseline"); then the bound counts as measured, too.
    """

    bound: Numbers
    _: KW_ONLY
    of: str = ""
    than: str = ""
    unit: str = ""
    digits: str = ".4g"
    partial: bool = False
    sign: ClassVar[str]
    compare: ClassVar[Callable[[Any, Any], bool]]

    def _ends(self, name: Any) -> dict[str, Any]:
        end = "high" if self.sign[0] == "<" else "low"
        return {end: float(self._bound(name)), "strict": len(self.sign) == 1}

    def _bound(self, name: Any) -> Number:
        return self.bound[name] if isinstance(self.bound, Mapping) else self.bound

    def _holds(self, name: Any, number: float) -> bool:
        return bool(type(self).compare(number, float(self._bound(name))))

    def _more(self, name: Any) -> str:
        if isinstance(self.bound, Mapping):
            bound = self._write(self._bound(name))
            return f" ({said_of(self.than, bound) if self.than else f'{self.sign} {bound}'})"
        return ""

    @property
    def measured(self) -> str:
        if self.than and not isinstance(self.bound, Mapping):
            return f"{super().measured}; {said_of(self.than, self._write(self.bound))}"
        return super().measured

    @property
    def tolerance(self) -> str:
        own = "its own bound" if isinstance(self.bound, Mapping) else f"{float(self.bound):g}{self.unit}"
        return self._each(f"{self.of} {self.sign} {self.than or own}".strip())


class AtMost(_Bounded):
    """value <= bound."""

    sign = "<="
    compare = operator.le


class Below(_Bounded):
    """value < bound."""

    sign = "<"
    compare = operator.lt


class AtLeast(_Bounded):
    """value >= bound."""

    sign = ">="
    compare = operator.ge


class Above(_Bounded):
    """value > bound."""

    sign = ">"
    compare = operator.gt


@dataclass(frozen=True)
class Within(_Numbers):
    """|value - target| <= tolerance. `target`: a number, or one for each name; `to`: what it is."""

    target: Numbers
    by: float
    _: KW_ONLY
    of: str = ""
    to: str = "exact"
    unit: str = ""
    digits: str = ".4g"
    partial: bool = False

    def _ends(self, name: Any) -> dict[str, float]:
        target = float(self._target(name))
        return {"low": target - self.by, "high": target + self.by, "target": target}

    def _target(self, name: Any) -> Number:
        return self.target[name] if isinstance(self.target, Mapping) else self.target

    def _holds(self, name: Any, number: float) -> bool:
        return bool(abs(number - float(self._target(name))) <= self.by)

    def _more(self, name: Any) -> str:
        return f" ({self.to} {self._write(self._target(name))})"

    @property
    def tolerance(self) -> str:
        return self._each(f"|{self.of or 'measured'} - {self.to}| <= {self.by:g}{self.unit}")


@dataclass(frozen=True)
class Inside(_Numbers):
    """low <= value <= high."""

    low: float
    high: float
    _: KW_ONLY
    of: str = ""
    unit: str = ""
    digits: str = ".4g"
    partial: bool = False

    def _ends(self, name: Any) -> dict[str, float]:
        return {"low": self.low, "high": self.high}

    def _holds(self, name: Any, number: float) -> bool:
        return bool(self.low <= number <= self.high)

    @property
    def tolerance(self) -> str:
        return self._each(f"{self.of} in [{self.low:g}, {self.high:g}]{self.unit}".strip())


@dataclass(frozen=True)
class _Surely(Check):
    """The 95 % interval of a mean over seeds lies beside a bound.

    Args:
        value: a `Mean`, or one for each name.
        bound: what the interval must lie above, or below.
        near: the mean must be farther than this from the bound.
        agree: where there are too few seeds for an interval, all of them must lie on that side; otherwise
            they never hold.
        partial: some of the names make it partial.
    """

    value: Mean | Mapping[Any, Mean]
    bound: float = 0.0
    _: KW_ONLY
    of: str = ""
    near: float = 0.0
    agree: bool = False
    unit: str = ""
    digits: str = "+.3g"
    partial: bool = False
    sign: ClassVar[int]
    side: ClassVar[str]

    @property
    def named(self) -> dict[Any, Mean]:
        return dict(self.value) if isinstance(self.value, Mapping) else {"": self.value}

    def on_this_side(self, mean: Mean) -> bool:
        """Whether a mean is surely on this side."""
        distance = self.sign * (mean.mean - self.bound)
        if np.isfinite(mean.half):
            return bool(distance > mean.half and distance > self.near)
        if not self.agree or not len(mean.values):
            return False
        return bool((self.sign * (mean.values - self.bound) > 0).all() and distance > self.near)

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        end: dict[str, Any] = {"low" if self.sign > 0 else "high": self.bound + self.sign * self.near}
        return tuple(
            Gauge(_label(self.of, name), m.mean, spread=_spread(m), unit=self.unit, strict=True, **end)
            for name, m in self.named.items()
        )

    @property
    def failing(self) -> list[Any]:
        """Names of the means that are not surely on this side."""
        return [name for name, mean in self.named.items() if not self.on_this_side(mean)]

    @property
    def holds(self) -> Holds:
        if self.agree and any(
            not np.isfinite(m.values).all() or not len(m.values) for m in self.named.values()
        ):
            return None
        return graded((self.on_this_side(mean) for mean in self.named.values()), self.partial)

    @property
    def why(self) -> str:
        return "Not measured in every run; more seeds decide." if self.holds is None else ""

    @property
    def measured(self) -> str:
        each = ", ".join(said_of(n, m.words(self.digits, self.unit)) for n, m in self.named.items())
        return f"{self.of}: {each}" if self.of else each

    @property
    def tolerance(self) -> str:
        many = len(self.named) > 1
        farther = f" and by more than {self.near:g}{self.unit}" if self.near else ""
        few = " (or all seeds, where they are too few for one)" if self.agree else ""
        return (
            f"95 % interval over seeds{few} {self.side} {self.bound:g}{self.unit}{farther}"
            f"{', each' if many else ''}{' (partial: some)' if many and self.partial else ''}"
        )


class SurelyAbove(_Surely):
    """The interval lies above the bound."""

    sign = 1
    side = "above"


class SurelyBelow(_Surely):
    """The interval lies below the bound."""

    sign = -1
    side = "below"


@dataclass(frozen=True)
class Share(Check):
    """The share of runs of which a condition holds.

    Args:
        found: one truth value per run, or that for each name.
        at_least: the share that is asked for, of each name.
        at_most: the share that is allowed (instead of `at_least`).
        that: the condition, in words ("within 1° of the ray").
        what: what is counted.
    """

    found: np.ndarray | Sequence[bool] | Mapping[Any, np.ndarray]
    at_least: float = 1.0
    _: KW_ONLY
    at_most: float | None = None
    that: str = ""
    what: str = "runs"
    digits: int = 0
    partial: bool = False

    @property
    def shares(self) -> dict[Any, float]:
        """The share by name; NaN of no run."""
        found = self.found if isinstance(self.found, Mapping) else {"": self.found}
        return {name: float(np.mean(x)) if len(x) else float("nan") for name, x in found.items()}

    def _holds(self, share: float) -> bool:
        return share >= self.at_least if self.at_most is None else share <= self.at_most

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        end: dict[str, Any] = (
            {"low": 100 * self.at_least} if self.at_most is None else {"high": 100 * self.at_most}
        )
        words = f"share of {self.what}{f': {self.that}' if self.that else ''}"
        return tuple(
            Gauge(_label(words, name), 100 * share, unit=" %", **end) for name, share in self.shares.items()
        )

    @property
    def failing(self) -> list[Any]:
        """Names whose share does not hold."""
        return [name for name, share in self.shares.items() if not self._holds(share)]

    @property
    def holds(self) -> Holds:
        return graded((self._holds(share) for share in self.shares.values()), self.partial)

    @property
    def measured(self) -> str:
        shares = self.shares
        before = f"{self.that} in " if self.that else ""
        if not isinstance(self.found, Mapping):
            return f"{before}{percent(shares[''], self.digits)} of {len(self.found)} {self.what}"
        if len(shares) > MOST_SHOWN:
            worst = (min if self.at_most is None else max)(shares, key=lambda name: shares[name])
            edge = "at least" if self.at_most is None else "at most"
            least = percent(shares[worst], self.digits)
            return f"{before}{edge} {least} of the {self.what} ({worst}; {len(shares)} in all)"
        each = {n: f"{percent(s, self.digits)} of {len(self.found[n])}" for n, s in shares.items()}
        said = ", ".join(said_of(name, number) for name, number in each.items())
        return f"share of the {self.what} ({self.that}): {said}" if before else f"{self.what}: {said}"

    @property
    def tolerance(self) -> str:
        edge = (
            f"at least {percent(self.at_least)}"
            if self.at_most is None
            else f"at most {percent(self.at_most)}"
        )
        if self.at_most is None and self.at_least == 1.0:
            edge = "all"
        text = f"{self.that + ' in ' if self.that else ''}{edge} of the {self.what}"
        if len(self.shares) < 2:
            return text
        return f"{text}, each{' (partial: some)' if self.partial else ''}"


@dataclass(frozen=True)
class Count(Check):
    """How many of a few named things hold.

    Args:
        found: a truth value for each name.
        at_least: how many must hold (None: all).
        at_most: how many may hold (instead of `at_least`; 0: none).
        that: the condition, in words.
        what: what is counted.
        partial: one that holds makes it partial.
        of: how many there are (None: those in `found`), where some of them were not run. Those count as not
            holding, so whoever passes it also says that the check is undecided (see `provided`).
    """

    found: Mapping[Any, bool | np.bool_]
    at_least: int | None = None
    _: KW_ONLY
    at_most: int | None = None
    that: str = ""
    what: str = ""
    partial: bool = False
    of: int | None = None

    @property
    def number(self) -> int:
        """How many hold."""
        return sum(bool(x) for x in self.found.values())

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.found) if self.of is None else self.of

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        asked = self.total if self.at_least is None else self.at_least
        low = float(asked) if self.at_most is None else None
        high = None if self.at_most is None else float(self.at_most)
        words = f"how many of {self.total} {self.what}".strip()
        label = f"{words}: {self.that}" if self.that else words
        return (Gauge(label, float(self.number), low, high),)

    @property
    def failing(self) -> list[Any]:
        """Names of those that do not hold (with `at_most`: that do)."""
        return [name for name, x in self.found.items() if bool(x) == (self.at_most is not None)]

    @property
    def holds(self) -> Holds:
        if self.at_most is not None:
            return self.number <= self.at_most
        if self.number >= (max(1, self.total) if self.at_least is None else self.at_least):
            return True
        return "partial" if self.partial and self.number else False

    @property
    def measured(self) -> str:
        words = (
            f"{self.that + ' in ' if self.that else ''}{self.number} of {len(self.found)} {self.what}".strip()
        )
        if not self.failing:
            return words
        return f"{words}; {'these' if self.at_most is not None else 'not'}: {listed(self.failing)}"

    @property
    def tolerance(self) -> str:
        if self.at_most is not None:
            nothing = "no" if self.what else "none"
            asked = nothing if self.at_most == 0 else f"at most {self.at_most}"
        else:
            asked = "all" if self.at_least is None else f"at least {self.at_least} of {self.total}"
        words = f"{self.that + ' in ' if self.that else ''}{asked} {self.what}".strip()
        return words + (" (partial: some)" if self.partial else "")


@dataclass(frozen=True)
class Ordered(_Numbers):
    """Numbers rise, or fall, in the order of their names.

    slack: by how much each may miss it; strict: whether neighbours that are equal miss it.
    """

    value: Mapping[Any, Number]
    _: KW_ONLY
    falling: bool = False
    strict: bool = True
    slack: float = 0.0
    of: str = ""
    unit: str = ""
    digits: str = ".4g"
    partial: bool = False

    @property
    def steps(self) -> list[bool]:
        """Whether each number follows the one before it as asked."""
        x = np.array([float(v) for v in self.value.values()])
        rise = np.diff(-x if self.falling else x)
        if self.slack:
            return [bool(r >= -self.slack) for r in rise]
        return [bool(r > 0 if self.strict else r >= 0) for r in rise]

    @property
    def holds(self) -> Holds:
        return graded(self.steps, self.partial)

    @property
    def tolerance(self) -> str:
        way = "falling" if self.falling else "rising"
        words = f"{way} in this order" + (f", up to {self.slack:g}{self.unit}" if self.slack else "")
        if not self.strict and not self.slack:
            words += ", or equal"
        return words + (" (partial: some neighbours)" if self.partial else "")


@dataclass(frozen=True)
class _Extreme(_Numbers):
    """One of the named numbers is strictly the smallest, or largest."""

    value: Mapping[Any, Number]
    name: Any
    _: KW_ONLY
    of: str = ""
    unit: str = ""
    digits: str = ".4g"
    sign: ClassVar[int]
    word: ClassVar[str]

    @property
    def holds(self) -> Holds:
        own = self.sign * float(self.value[self.name])
        others = [self.sign * float(v) for name, v in self.value.items() if name != self.name]
        return bool(others) and not math.isnan(own) and all(own < other for other in others)

    @property
    def tolerance(self) -> str:
        return f"{self.name} has the {self.word} {self.of}".strip()


class Smallest(_Extreme):
    """`Smallest(areas, "MLM-CMOO", of="area")`."""

    sign = 1
    word = "smallest"


class Largest(_Extreme):
    """`Largest(areas, "MLM-CMOO", of="area")`."""

    sign = -1
    word = "largest"


@dataclass(frozen=True)
class Equal(Check):
    """Everything found is what was expected: values of any kind, by name. `partial`: some are."""

    found: Mapping[Any, Any]
    expected: Mapping[Any, Any]
    _: KW_ONLY
    what: str = ""
    partial: bool = False

    @property
    def failing(self) -> list[Any]:
        """Names whose values differ, or that are only in one of the two."""
        names = [*self.expected, *(name for name in self.found if name not in self.expected)]
        missing = object()
        return [n for n in names if self.found.get(n, missing) != self.expected.get(n, missing)]

    @property
    def _total(self) -> int:
        return len(set(self.expected) | set(self.found))

    @property
    def holds(self) -> Holds:
        if not self.failing:
            return self._total > 0
        return "partial" if self.partial and len(self.failing) < self._total else False

    @property
    def measured(self) -> str:
        equal = f"{self._total - len(self.failing)} of {self._total} {self.what}".strip() + " equal"
        said = (
            f"{n}: {self.found.get(n, 'missing')} ({self.expected.get(n, 'missing')})" for n in self.failing
        )
        return equal + (f"; not: {listed(said)}" if self.failing else "")

    @property
    def tolerance(self) -> str:
        return "equal" + (" (partial: some)" if self.partial else "")


# several checks


def _joined(texts: Iterable[str]) -> str:
    """Texts with semicolons, each of their parts once."""
    return "; ".join(dict.fromkeys(part for text in texts for part in text.split("; ") if part))


class _Several(Check):
    """Checks that are judged together: what each measured and asks, one after the other."""

    def __init__(self, *checks: Check, partial: bool = False) -> None:
        self.checks = checks
        self.partial = partial

    @property
    def failing(self) -> list[Check]:
        """Those that do not hold in full."""
        return [check for check in self.checks if check.holds is not True]

    @property
    def measured(self) -> str:
        return _joined(check.measured for check in self.checks)

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        return tuple(gauge for check in self.checks for gauge in check.gauges)

    @property
    def why(self) -> str:
        return (
            " ".join(dict.fromkeys(check.why for check in self.checks if check.why))
            if self.holds is None
            else ""
        )


class AllOf(_Several):
    """All hold. `partial`: it is enough for "partial" if one of them does."""

    @property
    def holds(self) -> Holds:
        each = [check.holds for check in self.checks]
        if each and all(h is True for h in each):
            return True
        if None in each and False not in each:
            return None
        if any(each) and (self.partial or False not in each):
            return "partial"
        return False

    @property
    def tolerance(self) -> str:
        words = _joined(check.tolerance for check in self.checks)
        return words + (" (partial: one of them)" if self.partial else "")


class AnyOf(_Several):
    """One of them holds."""

    @property
    def holds(self) -> Holds:
        each = [check.holds for check in self.checks]
        if True in each:
            return True
        if None in each:
            return None
        return "partial" if "partial" in each else False

    @property
    def tolerance(self) -> str:
        return " or ".join(dict.fromkeys(check.tolerance for check in self.checks))


@dataclass(frozen=True)
class Graded(Check):
    """`full` holds; "partial" where only `weaker` does."""

    full: Check
    weaker: Check

    @property
    def holds(self) -> Holds:
        if self.full.holds is True or self.full.holds is None:
            return self.full.holds
        return "partial" if self.weaker.holds or self.full.holds == "partial" else False

    @property
    def why(self) -> str:
        return self.full.why

    @property
    def gauges(self) -> tuple[Gauge, ...]:
        return self.full.gauges

    @property
    def measured(self) -> str:
        return _joined((self.full.measured, self.weaker.measured))

    @property
    def tolerance(self) -> str:
        return f"{self.full.tolerance} (partial: {self.weaker.tolerance})"


def kinds() -> list[type[Check]]:
    """Returns all kinds of checks of this module, for the test that goes through them."""
    found: list[type[Check]] = []
    queue = list(Check.__subclasses__())
    while queue:
        kind = queue.pop()
        queue += kind.__subclasses__()
        if kind.__module__ == __name__ and not kind.__name__.startswith("_"):
            found.append(kind)
    return sorted(found, key=lambda kind: kind.__name__)
