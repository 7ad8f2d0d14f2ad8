"""Checks compare measured values with their tolerance, and write both in words.

A check is data: values, the bounds or the target that they are compared with, and how (`over`). One renderer
writes the outcome, the measured values and the tolerance, so that text and code cannot drift:

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

A number is a float, a `Mean` over seeds (compared by its mean, written with its interval), or a mapping from
names to them: then every one must hold, and with `partial=True` some make it partial. A NaN never holds, and
neither does a check of nothing. `of` names what is measured, `unit` follows each number (with its own space,
" %"), `digits` is its format.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from mobench.artifacts.statistics import Mean, percent, wilson

Holds = bool | Literal["partial"] | None  # None: these rows cannot decide it
Number = float | Mean
Numbers = Number | Mapping[Any, Number]
Over = Literal["each", "interval", "share", "count", "order", "smallest", "largest", "equal"]
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

        before: what the values were before they reached it.
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


def _half(number: Number) -> float | None:
    """Returns half of the interval of a mean over seeds; None of a number without seeds."""
    return float(number.half) if isinstance(number, Mean) else None


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
    """Values compared with bounds, a target or each other.

    Args:
        values: measured values, by name (`ALONE` for one value): numbers; truth values of runs for a share;
            one truth value each for a count; anything for "equal".
        over: what is compared: "each" value; the 95 % "interval" of each mean over seeds; the "share" of
            truth values of each name; their "count"; the "order" of neighbours, whose rise (`low` = 0) or
            fall (`high` = 0) counts; whether the `target` is the name of the "smallest" or "largest"; whether
            values are "equal" to those of the target.
        low: the bound from below, one or by name; None: there is none.
        high: the bound from above, likewise.
        strict: the bounds themselves do not hold.
        target: the required value, one or by name.
        by: the margin: how far from its target a value may be, how much farther than its bound a mean must
            be, by how much neighbours may miss their order.
        agree: where there are too few seeds for an interval, all of them must lie on the required side;
            otherwise they never hold.
        of: what is measured; of truth values, the condition.
        what: what is counted.
        than: what the bound or the target is ("the best baseline"); then the bound counts as measured, too.
        unit, digits: of each number; for shares, digits is their number.
        total: how many there are, of a count of which some were not run.
        partial: some of the names make it partial.
    """

    values: Mapping[Any, Any]
    over: Over = "each"
    low: Numbers | None = None
    high: Numbers | None = None
    strict: bool = False
    target: Any = None
    by: float = 0.0
    agree: bool = False
    of: str = ""
    what: str = ""
    than: str = ""
    unit: str = ""
    digits: Any = ".4g"
    total: int | None = None
    partial: bool = False

    # numbers, and which of them hold

    @property
    def numbers(self) -> dict[Any, float]:
        """The numbers that are compared, by name: shares, or the values themselves; NaN of no run."""
        if self.over == "share":
            return {n: float(np.mean(x)) if len(x) else math.nan for n, x in self.values.items()}
        return {name: float(value) for name, value in self.values.items()}

    @property
    def number(self) -> int:
        """Number of values of a count that hold."""
        return sum(bool(x) for x in self.values.values())

    @property
    def failing(self) -> list[Any]:
        """Names of those that do not hold (of a count with a highest number: that do)."""
        if self.over == "equal":
            names = dict.fromkeys((*self.target, *self.values))
            missing = object()
            return [n for n in names if self.values.get(n, missing) != self.target.get(n, missing)]
        if self.over == "count":
            return [name for name, x in self.values.items() if bool(x) == (self.high is not None)]
        return [name for name, number in self.numbers.items() if not self._fits(name, number)]

    def _bound(self, bound: Any, name: Any) -> Any:
        return bound[name] if isinstance(bound, Mapping) else bound

    def _fits(self, name: Any, number: float) -> bool:
        """Returns whether one number holds; a NaN does not."""
        if self.over == "interval":
            return self._surely(self.values[name])
        if self.target is not None:
            return bool(abs(number - float(self._bound(self.target, name))) <= self.by)
        if self.low is not None:
            low = float(self._bound(self.low, name))
            if not (number > low if self.strict else number >= low):
                return False
        if self.high is not None:
            high = float(self._bound(self.high, name))
            return bool(number < high if self.strict else number <= high)
        return not math.isnan(number)

    @property
    def _side(self) -> tuple[int, float]:
        """The side on which an interval must lie, 1 or -1, and the bound."""
        return (1, float(self.low)) if self.low is not None else (-1, float(self.high))  # type: ignore[arg-type]

    def _surely(self, mean: Mean) -> bool:
        sign, bound = self._side
        distance = sign * (mean.mean - bound)
        if np.isfinite(mean.half):
            return bool(distance > mean.half and distance > self.by)
        if not self.agree or not len(mean.values):
            return False
        return bool((sign * (mean.values - bound) > 0).all() and distance > self.by)

    def _weaker(self, mean: Mean) -> bool:
        """Says whether the interval lies on the required side, but by no more than the margin."""
        sign, bound = self._side
        return bool(self.by > 0 and sign * (mean.mean - bound) > mean.half)

    # why they do not hold

    def _failure(self) -> Failure:
        match self.over:
            case "equal":
                return Failure("excluded", f"Not equal: {listed(self.failing)}.")
            case "count":
                return Failure("alone")
            case "share":
                return _weightiest(self._failed_share(name) for name in self.failing)
            case "interval":
                return _weightiest(self._failed_interval(name) for name in self.failing)
            case "order":
                names = list(self.values)
                pairs = zip(names, names[1:], self.steps, strict=False)
                falling = self.low is None  # the first of two is to be the larger one
                return _weightiest(
                    self._failed_pair(*((a, b) if falling else (b, a)), self.by)
                    for a, b, ok in pairs
                    if not ok
                )
            case "smallest" | "largest":
                others = [name for name in self.values if name != self.target]
                return _weightiest(
                    self._failed_pair(*((o, self.target) if self.over == "smallest" else (self.target, o)))
                    for o in others
                    if not self._fits_pair(o)
                )
        return _weightiest(self._failed_number(name) for name in self.failing)

    def _fits_pair(self, other: Any) -> bool:
        sign = 1 if self.over == "smallest" else -1
        return sign * (self.numbers[other] - self.numbers[self.target]) > 0

    def _description(self, *names: Any) -> str:
        words = " and ".join(str(name) for name in names if name != ALONE)
        return f"{self.of}, {words}".strip(", ") or "it"

    def _missing(self, name: Any) -> Failure:
        return Failure("unmeasured", f"Not measured: {self._description(name)}.")

    def _failed_number(self, name: Any) -> Failure:
        """Compares the interval of one number with its tolerance; a bound that is a mean has its own, too."""
        value = self.values[name]
        bounds = [self._bound(x, name) for x in (self.low, self.high, self.target) if x is not None]
        if not all(math.isfinite(float(x)) for x in (value, *bounds)):
            return self._missing(name)
        halves = [half for half in map(_half, (value, *bounds)) if half is not None]
        if not halves:
            return Failure("alone")
        half = math.hypot(*halves)
        if not math.isfinite(half):
            return Failure("alone")
        ends = {key: float(x) for key, x in self._ends(name, 1).items()}
        beyond = max(ends.get("low", -math.inf) - float(value), float(value) - ends.get("high", math.inf))
        more = _seeds_needed((value, *bounds), half, beyond)
        return self._by_interval(name, float(value), half, beyond > half, more)

    def _by_interval(self, name: Any, value: float, half: float, outside: bool, more: str) -> Failure:
        interval = f"{value - half:.4g} to {value + half:.4g}{self.unit}"
        subject = f"The 95 % interval ({self._description(name)}), {interval},"
        if outside:
            return Failure("excluded", f"{subject} has no value that is claimed.")
        return Failure("held", f"{subject} holds values that are claimed: it does not tell.{more}")

    def _failed_interval(self, name: Any) -> Failure:
        mean = self.values[name]
        if not math.isfinite(mean.mean):
            return self._missing(name)
        if not np.isfinite(mean.half):
            return Failure("alone")
        sign, bound = self._side
        # below the margin is as good as below the bound: a difference that counts is excluded
        ahead = sign * (mean.mean - bound)
        more = _seeds_needed((mean,), mean.half, ahead if ahead > self.by else self.by - ahead)
        return self._by_interval(name, mean.mean, mean.half, self.by - ahead > mean.half, more)

    def _failed_share(self, name: Any) -> Failure:
        holding = np.asarray(self.values[name], dtype=bool)
        if not holding.size:
            return self._missing(name)
        low, high = wilson(int(holding.sum()), holding.size)
        outside = high < float(self.low) if self.high is None else low > float(self.high)  # type: ignore[arg-type]
        ends = f"{percent(low, 1)} to {percent(high, 1)}"
        subject = f"Wilson's 95 % interval of the share ({self._description(name)}), {ends},"
        if outside:
            return Failure("excluded", f"{subject} has no value that is claimed.")
        return Failure("held", f"{subject} holds values that are claimed: it does not tell.")

    def _failed_pair(self, larger: Any, smaller: Any, slack: float = 0.0) -> Failure:
        """Compares two numbers of which the first is to be larger, up to the slack."""
        one, other = self.values[larger], self.values[smaller]
        difference = float(one) - float(other)
        if not math.isfinite(difference):
            return self._missing(larger if not math.isfinite(float(one)) else smaller)
        halves = [half for half in map(_half, (one, other)) if half is not None]
        if not halves or not all(math.isfinite(half) for half in halves):
            return Failure("alone")
        half = math.hypot(*halves)
        beyond = -slack - difference
        more = _seeds_needed((one, other), half, beyond)
        return self._by_interval(f"{larger} less {smaller}", difference, half, beyond > half, more)

    def _unmeasured(self) -> bool:
        """Returns whether seeds had to agree, and some have no value."""
        means = self.values.values()
        return self.agree and any(not np.isfinite(m.values).all() or not len(m.values) for m in means)

    @property
    def steps(self) -> list[bool]:
        """Says of each number after the first whether it is in the required order with the one before."""
        numbers = np.array(list(self.numbers.values()))
        rise = np.diff(numbers if self.low is not None else -numbers)
        if self.by:
            return [bool(r >= -self.by) for r in rise]
        return [bool(r > 0 if self.strict else r >= 0) for r in rise]

    def _first(self) -> bool:
        sign = 1 if self.over == "smallest" else -1
        target = sign * self.numbers[self.target]
        others = [sign * x for name, x in self.numbers.items() if name != self.target]
        return bool(others) and not math.isnan(target) and all(target < other for other in others)

    @property
    def _of_all(self) -> int:
        """Number of names that a count, or a comparison for equality, goes over."""
        if self.over == "equal":
            return len(set(self.target) | set(self.values))
        return len(self.values) if self.total is None else self.total

    def _holds(self) -> Holds:
        match self.over:
            case "order":
                return graded(self.steps, self.partial)
            case "smallest" | "largest":
                return self._first()
            case "equal":
                total = self._of_all
                held = total - len(self.failing)
                return held == total > 0 or ("partial" if self.partial and held else False)
            case "count":
                if self.high is not None:
                    return self.number <= float(self.high)  # type: ignore[arg-type]
                least = max(1, self._of_all) if self.low is None else float(self.low)  # type: ignore[arg-type]
                return self.number >= least or ("partial" if self.partial and self.number else False)
            case "interval" if self._unmeasured():
                return None
        failing = set(self.failing)
        if failing and self.over == "interval" and all(self._weaker(self.values[n]) for n in failing):
            return "partial"
        return graded((name not in failing for name in self.values), self.partial)

    def _why(self) -> str:
        open_ = self.over == "interval" and self._unmeasured()
        return "Not measured in every run; more seeds decide." if open_ else ""

    # the measured values

    @property
    def _alone(self) -> bool:
        return list(self.values) == [ALONE]

    def _write(self, number: Number) -> str:
        if isinstance(number, Mean):
            return number.words(self.digits, self.unit)
        return f"{number:{self.digits}}{'' if math.isnan(number) else self.unit}"

    def _compared_with(self, name: Any) -> str:
        """Returns what follows a number: its target, or the bound of this name."""
        if self.over != "each":
            return ""
        if self.target is not None:
            return f" ({self.than} {self._write(self._bound(self.target, name))})"
        bound = self.low if self.high is None else self.high
        if not isinstance(bound, Mapping):
            return ""
        words = self._write(bound[name])
        return f" ({label_value(self.than, words) if self.than else f'{self._sign} {words}'})"

    @property
    def _sign(self) -> str:
        return ("<" if self.low is None else ">") + ("" if self.strict else "=")

    def _measured(self) -> str:
        if self.over in ("share", "count", "equal"):
            return {"share": self._shares, "count": self._counted, "equal": self._equals}[self.over]()
        written = {name: self._write(v) + self._compared_with(name) for name, v in self.values.items()}
        words = ", ".join(label_value(name, text) for name, text in written.items())
        if self.of:
            colon = not self._alone or self.over == "interval" or "=" in self.of
            words = f"{self.of}{':' if colon else ' ='} {words}"
        bound = self.low if self.high is None else self.high
        if self.target is None and self.than and not isinstance(bound, Mapping):
            return f"{words}; {label_value(self.than, self._write(bound))}"  # type: ignore[arg-type]
        return words

    def _in(self) -> str:
        return f"{self.of} in " if self.of else ""

    def _shares(self) -> str:
        shares = self.numbers
        if self._alone:
            of = len(self.values[ALONE])
            return f"{self._in()}{percent(shares[ALONE], self.digits)} of {of} {self.what}"
        if len(shares) > MOST_SHOWN:
            worst = (min if self.high is None else max)(shares, key=lambda name: shares[name])
            edge = "at least" if self.high is None else "at most"
            share = percent(shares[worst], self.digits)
            return f"{self._in()}{edge} {share} of the {self.what} ({worst}; {len(shares)} in all)"
        each = {n: f"{percent(s, self.digits)} of {len(self.values[n])}" for n, s in shares.items()}
        words = ", ".join(label_value(name, number) for name, number in each.items())
        return f"share of the {self.what} ({self.of}): {words}" if self.of else f"{self.what}: {words}"

    def _counted(self) -> str:
        words = f"{self._in()}{self.number} of {len(self.values)} {self.what}".strip()
        if not self.failing:
            return words
        return f"{words}; {'these' if self.high is not None else 'not'}: {listed(self.failing)}"

    def _equals(self) -> str:
        words = f"{self._of_all - len(self.failing)} of {self._of_all} {self.what}".strip() + " equal"
        differing = (
            f"{n}: {self.values.get(n, 'missing')} ({self.target.get(n, 'missing')})" for n in self.failing
        )
        return words + (f"; not: {listed(differing)}" if self.failing else "")

    # the tolerance

    def _tolerance(self) -> str:
        words, some = self._requirement()
        each = ""
        if self.over in ("each", "interval", "share"):
            if self._alone or len(self.values) < 2:
                return words
            each = ", each"
        return f"{words}{each}{f' (partial: {some})' if self.partial else ''}"

    def _requirement(self) -> tuple[str, str]:
        """Returns the requirement, and which part of it is enough for "partial"."""
        end = self.low if self.high is None else self.high
        margin = f"{self.by:g}{self.unit}"
        match self.over:
            case "each" if self.target is not None:
                return f"|{self.of or 'measured'} - {self.than}| <= {margin}", "some"
            case "each" if self.low is not None and self.high is not None:
                return f"{self.of} in [{self.low:g}, {self.high:g}]{self.unit}".strip(), "some"
            case "each":
                bound = "its own bound" if isinstance(end, Mapping) else f"{float(end):g}{self.unit}"  # type: ignore[arg-type]
                return f"{self.of} {self._sign} {self.than or bound}".strip(), "some"
            case "interval":
                few = " (or all seeds, where they are too few for one)" if self.agree else ""
                side = "above" if self.high is None else "below"
                farther = f" and by more than {margin}" if self.by else ""
                return f"95 % interval over seeds{few} {side} {end:g}{self.unit}{farther}", "some"
            case "share":
                edge = f"at {'least' if self.high is None else 'most'} {percent(float(end))}"  # type: ignore[arg-type]
                if self.low == 1.0:
                    edge = "all"
                return f"{self._in()}{edge} of the {self.what}", "some"
            case "count":
                if self.high is not None:
                    none = "no" if self.what else "none"
                    edge = none if self.high == 0 else f"at most {self.high}"
                else:
                    edge = "all" if self.low is None else f"at least {self.low} of {self._of_all}"
                return f"{self._in()}{edge} {self.what}".strip(), "some"
            case "order":
                way = "falling" if self.low is None else "rising"
                slack = f", up to {margin}" if self.by else "" if self.strict else ", or equal"
                return f"{way} in this order{slack}", "some neighbours"
            case "smallest" | "largest":
                return f"{self.target} has the {self.over} {self.of}".strip(), ""
        return "equal", "some"

    # its numbers on axes

    def _gauges(self) -> Iterable[Gauge]:
        if self.over == "count":
            low = (self._of_all if self.low is None else self.low) if self.high is None else None
            words = f"how many of {self._of_all} {self.what}".strip()
            low, high = (None if x is None else float(x) for x in (low, self.high))  # type: ignore[arg-type]
            yield Gauge(f"{words}: {self.of}" if self.of else words, float(self.number), low, high)
        if self.over not in ("each", "interval", "share"):
            return
        of = f"share of {self.what}{f': {self.of}' if self.of else ''}" if self.over == "share" else self.of
        bound = f" (bound: {self.than})" if self.than and self.target is None else ""
        scale = 100 if self.over == "share" else 1
        for name, number in self.numbers.items():
            value = self.values[name]
            half = float(value.half) if isinstance(value, Mean) else math.nan
            yield Gauge(
                ", ".join(part for part in (of, str(name)) if part) + bound,
                scale * number,
                spread=half if np.isfinite(half) else None,
                unit=" %" if self.over == "share" else self.unit,
                strict=self.strict,
                **self._ends(name, scale),
            )

    def _ends(self, name: Any, scale: int) -> dict[str, float]:
        """Returns the ends of the tolerance of one number, and its target."""
        if self.target is not None:
            target = float(self._bound(self.target, name))
            return {"low": target - self.by, "high": target + self.by, "target": target}
        margin = self.by if self.low is not None else -self.by
        ends = {"low": self.low, "high": self.high}
        return {k: scale * float(self._bound(x, name)) + margin for k, x in ends.items() if x is not None}


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
        checks: all of them must hold; or the full one, and a weaker one that makes it partial.
        how: which of these two ways.
        partial: of all: it is enough for "partial" if one of them holds.
    """

    checks: tuple[Check, ...]
    how: Literal["all", "graded"] = "all"
    partial: bool = False

    @property
    def failing(self) -> list[Check]:
        """Returns the checks that do not hold in full."""
        return [check for check in self.checks if check.holds is not True]

    def _holds(self) -> Holds:
        each = [check.holds for check in self.checks]
        if self.how == "graded":
            full, weaker = each
            return full if full is True or full is None else "partial" if weaker or full else False
        if each and all(h is True for h in each):
            return True
        if None in each and False not in each:
            return None
        return "partial" if any(each) and (self.partial or False not in each) else False

    def _failure(self) -> Failure:
        each = (check.failure for check in self._deciding())
        return _weightiest(failure for failure in each if failure is not None)

    def _measured(self) -> str:
        return _joined(check.measured for check in self.checks)

    def _tolerance(self) -> str:
        if self.how == "graded":
            return f"{self.checks[0].tolerance} (partial: {self.checks[1].tolerance})"
        words = _joined(check.tolerance for check in self.checks)
        return words + (" (partial: one of them)" if self.partial else "")

    def _deciding(self) -> tuple[Check, ...]:
        return self.checks[:1] if self.how == "graded" else self.checks

    def _why(self) -> str:
        reasons = (check.why for check in self._deciding() if check.why)
        return " ".join(dict.fromkeys(reasons)) if self.holds is None else ""

    def _gauges(self) -> Iterable[Gauge]:
        return (gauge for check in self._deciding() for gauge in check.gauges)


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


def _surely(value: Mean | Mapping[Any, Mean], near: float, words: Mapping[str, Any]) -> dict[str, Any]:
    interval = {"values": _by_name(value), "over": "interval", "strict": True, "by": near}
    return {"digits": "+.3g", **interval, **words}


def SurelyAbove(
    value: Mean | Mapping[Any, Mean], bound: float = 0.0, *, near: float = 0.0, **words: Any
) -> Comparison:
    """Returns the check that the 95 % interval lies above the bound, its mean by more than `near`.

    With `agree`, all seeds must lie above it where they are too few for an interval.
    """
    return Comparison(low=bound, **_surely(value, near, words))


def SurelyBelow(
    value: Mean | Mapping[Any, Mean], bound: float = 0.0, *, near: float = 0.0, **words: Any
) -> Comparison:
    """Returns the check that the interval lies below the bound."""
    return Comparison(high=bound, **_surely(value, near, words))


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
    low = at_least if at_most is None else None
    texts: dict[str, Any] = {"of": that, "what": what, "digits": digits, "partial": partial}
    return Comparison(values=_by_name(holding), over="share", low=low, high=at_most, **texts)


def Count(
    holding: Mapping[Any, bool | np.bool_],
    at_least: int | None = None,
    *,
    at_most: int | None = None,
    that: str = "",
    what: str = "",
    partial: bool = False,
    of: int | None = None,
) -> Comparison:
    """Returns the check of how many of a few named things hold.

    Args:
        holding: a truth value for each name.
        at_least: how many must hold (None: all).
        at_most: how many may hold (instead of `at_least`; 0: none).
        that: the condition, in words.
        what: what is counted.
        partial: one that holds makes it partial.
        of: how many there are (None: those in `holding`), where some of them were not run. Those count as not
            holding, so whoever passes it also says that the check is undecided (see `Check.provided`).
    """
    low = at_least if at_most is None else None
    texts: dict[str, Any] = {"of": that, "what": what, "partial": partial, "total": of}
    return Comparison(values=holding, over="count", low=low, high=at_most, **texts)


def Ordered(
    value: Mapping[Any, Number],
    *,
    falling: bool = False,
    strict: bool = True,
    slack: float = 0.0,
    **words: Any,
) -> Comparison:
    """Returns the check that numbers rise, or fall, in the order of their names.

    slack: by how much each may miss it; strict: neighbours that are equal miss it.
    """
    ends: dict[str, Any] = {"high" if falling else "low": 0.0}
    return Comparison(values=dict(value), over="order", strict=strict, by=slack, **ends, **words)


def Smallest(value: Mapping[Any, Number], name: Any, **words: Any) -> Comparison:
    """Returns the check that a named number is strictly the smallest: `Smallest(areas, "MLM-CMOO")`."""
    return Comparison(values=dict(value), over="smallest", target=name, **words)


def Largest(value: Mapping[Any, Number], name: Any, **words: Any) -> Comparison:
    """Returns the check that a named number is strictly the largest."""
    return Comparison(values=dict(value), over="largest", target=name, **words)


def Equal(
    value: Mapping[Any, Any], expected: Mapping[Any, Any], *, what: str = "", partial: bool = False
) -> Comparison:
    """Returns the check that values of any kind, by name, equal the expected ones. `partial`: some do."""
    return Comparison(values=value, over="equal", target=expected, what=what, partial=partial)


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
    return Several(checks=(full, weaker), how="graded")
