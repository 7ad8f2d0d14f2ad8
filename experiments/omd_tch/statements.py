"""The OMD-TCH paper's statements on a federated scenario: its curves, its means, its fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mobench.artifacts import Artifact
from mobench.artifacts.checks import Above, AllOf, AtLeast, AtMost, Below, Check, Count, Inside, Share
from mobench.artifacts.statistics import Mean

from .federated import (
    ACCURACY,
    AGNOSTIC,
    COMPARED,
    FED,
    LOSS,
    METRICS,
    PAIRS,
    PARITY,
    SEEDS,
    TOLERANCE,
    Scenario,
    as_published,
    most_cells,
)  # fmt: skip

FAMILIES = {
    "omd": ("OMD", "OMDgd-TCH(AFL)", "OMDeg-TCH"),
    "adaomd": ("AdaOMD", "AdaOMDgd-TCH", "AdaOMDeg-TCH"),
}
SHORT = {FED: "FedAvg", **{column: name for name, *both in FAMILIES.values() for column in both}}
POINTS: dict[str, Any] = {"unit": " pp", "digits": ".2f"}
SIGNED: dict[str, Any] = {"unit": " pp", "digits": "+.2f"}


@dataclass(frozen=True)
class Statement:
    """A statement of claims.yaml about one scenario.

    Args:
        id: as claims.yaml writes it, such as "m{setting}-accuracy-{kind}".
        kind: the mirror map, or what else ends the id.
        check: the measured values with their criterion.
        shown: the columns that it compares.
        metric: of which the difference of these two columns has an interval; None: it is not of one number.
        adaptive: the adaptive average on whose account it is made.
        words: of its text.
    """

    id: str
    kind: str
    check: Check
    shown: tuple[str, ...]
    metric: str | None = None
    adaptive: str | None = None
    words: Mapping[str, Any] = field(default_factory=dict)


def judge(a: Artifact, s: Scenario, statements: Sequence[Statement]) -> None:
    """Judges statements about a scenario; with a borrowed step they are partial at best."""
    for x in statements:
        step = borrowed(s, x.shown)
        same = same_as_last(s, x.adaptive) if x.adaptive else ""
        a.claim(
            x.id,
            x.check.partial_at_best(bool(step)),
            remark=f"{step} {same}".strip(),
            interval=s.interval(x.shown[0], x.shown[1], x.metric) if x.metric else s.alone,
            rests_on=s.names(*x.shown),
            kind=x.kind,
            **s.words,
            **x.words,
        )


def refer(a: Artifact, artifact: str, s: Scenario, statements: Sequence[Statement], *more: str) -> None:
    """Refers to where statements about a scenario are judged."""
    a.refer(artifact, *(x.id.format(kind=x.kind, **s.words) for x in statements), *more)


def borrowed(s: Scenario, compared: Sequence[str]) -> str:
    """Says which adaptive average has another step than the paper's."""
    columns = " and ".join(column for column in compared if s.borrowed(column))
    return f"{columns} with OMD's lambda step, not with the winner of its own in Table 1." if columns else ""


def same_as_last(s: Scenario, column: str) -> str:
    """Says how often the adaptive average is the last iterate, if it is so in most rounds.

    Then the statement is about the last iterate, not about the adaptive weights.
    """
    same, end = s.rounds_alone(column)
    alone = rounds_alone(s, column)
    if 2 * same.sum() <= len(same):
        return ""
    plain = next(plain for plain, ada in PAIRS.values() if ada == column)
    another = " of a trajectory with another lambda step (each average has its own winner of Table 1)"
    another = "" if s.source(plain)[0] is s.source(column)[0] else another
    return (
        f"AdaOMD's average is the last iterate in {sum(alone.values())} of {len(alone)} recorded rounds"
        + (" (after the last round: the last one that was evaluated)" if end else "")
        + f": this shows that the last iterate beats the uniform average{another}, "
        "not what the adaptive weights are worth."
    )


def rounds_alone(s: Scenario, column: str) -> dict[str, bool]:
    """Returns in which recorded rounds an adaptive average is one iterate."""
    same, end = s.rounds_alone(column)
    last = same.index.get_level_values("step").max()
    return {
        f"round {t}" + (f" of seed {k}" if s.seeds > 1 else ""): bool(good or (end and t == last))
        for (k, t), good in zip(same.index, same, strict=True)
    }


# curves


def of_curves(s: Scenario) -> list[Statement]:
    """Returns the statements about Figure 3a (or 3c), the worst client's training loss of the first seed."""
    curves = {c: s.curve(c, LOSS, s.first_seed) for c in COMPARED}
    return [x for kind in PAIRS for x in of_pair_of_curves(s, kind, curves)]


def of_pair_of_curves(
    s: Scenario, kind: str, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> list[Statement]:
    """Returns what is said of the curves of OMD and AdaOMD with one mirror map."""
    plain, ada = PAIRS[kind]
    steps, other = curves[ada]
    one, ls, tch = (curves[c][1] for c in (plain, FED, "TCH"))
    of: dict[str, Any] = {"of": "AdaOMD's last value", "digits": ".3f"}
    below = Below(other[-1], one[-1], than="OMD's", **of)
    area = [np.trapezoid(y, steps) for y in (other, one)]
    late = np.diff(other[steps >= steps[-1] / 3])
    bend = [np.abs(np.diff(y, 2)).mean() for y in (tch, other)]
    bends = AtLeast(bend[0], 5 * bend[1], of="TCH's mean |second difference|", than="5 times AdaOMD's")
    oscillates = bends.also(f"ratio {bend[0] / bend[1]:.1f}")
    lower = AllOf(below, Below(other[-1], ls[-1], than="LS's", **of))
    falls = Share(late < 0, 0.9, that="it falls", what="rounds", digits=1)
    checks: dict[str, tuple[Check, tuple[str, ...]]] = {
        "m{setting}-lower-{kind}": (lower, (FED, plain, ada)),
        "m{setting}-area-{kind}": (Below(*area, of="area under AdaOMD's curve", than="OMD's"), (plain, ada)),
        "m{setting}-falls-{kind}": (falls, (ada,)),
        "m{setting}-oscillates-{kind}": (oscillates, ("TCH", ada)),
        "c{setting}-lower-{kind}": (below.also(f"LS's {ls[-1]:.3f}"), (plain, ada)),
        "c{setting}-oscillates-{kind}": (oscillates, ("TCH", ada)),
    }
    words = {"seed": s.first_seed}
    return [
        Statement(id, kind, *x, adaptive=ada if plain in x[1] else None, words=words)
        for id, x in checks.items()
        if id[0] == s.key[0]
    ]


# means


def of_means(s: Scenario) -> list[Statement]:
    """Returns what Table 2, the figures drawn from it and the text say of a scenario's means."""
    if not s.on_mnist:
        return [x for kind in PAIRS for x in of_cifar(s, kind)]
    pairs = [x for kind in PAIRS for x in (*against_omd(s, kind), *against_others(s, kind))]
    mirrors = [  # claim 7: both mirror maps are equally accurate
        equally_accurate(s, "m{setting}-mirror-{kind}", family, gd, eg, 1.0, what=what)
        for family, (what, gd, eg) in FAMILIES.items()
    ]
    return [*pairs, *mirrors]


def panel(s: Scenario) -> str:
    """Returns the figure that shows a scenario's means."""
    return {"mr": "Figure 3b", "cr": "Figure 3d"}.get(s.key, "Figure 6")


def smaller(s: Scenario, one: str, other: str, metric: str, slack: float = 0.0) -> Check:
    """Checks that one column's mean is strictly below another's, or below that plus `slack`."""
    than = f"{SHORT[other]}'s" + (f" + {slack:g} (one printed standard deviation)" if slack else "")
    written: dict[str, Any] = {"digits": ".3f"} if metric == AGNOSTIC else POINTS
    of = f"{SHORT[one]}'s {metric}"
    bound = Mean(s.values(other, metric) + slack, least=3)
    return Below(s.over(one, metric), bound, of=of, than=than, **written)


def as_accurate(s: Scenario, one: str, other: str, by: float) -> Check:
    """Checks that the mean accuracies of two columns differ by at most so many percentage points."""
    return Inside(s.gap(one, other, ACCURACY), -by, by, of="difference of accuracy", **SIGNED)


def of_accuracy(
    s: Scenario,
    id: str,
    kind: str,
    one: str,
    other: str,
    check: Check,
    adaptive: str | None = None,
    **words: Any,
) -> Statement:
    """Returns a statement about the difference of two columns' accuracies."""
    words = {"panel": panel(s), "printed": s.printed_gap(one, other, ACCURACY)} | words
    return Statement(id, kind, check, (one, other), ACCURACY, adaptive, words)


def against_omd(s: Scenario, kind: str) -> list[Statement]:
    """Returns claims 1 to 3: AdaOMD and OMD on MNIST."""
    plain, ada = PAIRS[kind]
    least = {"mr": 3.0, "m2": 0.8, "m5": 1.0}[s.key]
    gain = AtLeast(s.gap(ada, plain, ACCURACY), least, of="AdaOMD's accuracy less OMD's", **SIGNED)
    bound = Mean(0.85 * s.values(plain, AGNOSTIC), least=3)
    of = "AdaOMD's agnostic loss"
    ratio = AtMost(s.over(ada, AGNOSTIC), bound, of=of, than="0.85 times OMD's", digits=".3f")
    loss = {"panel": panel(s), "printed": s.printed(ada, AGNOSTIC)[0] / s.printed(plain, AGNOSTIC)[0]}
    both = {"panel": panel(s), "ada": s.printed(ada, PARITY)[0], "omd": s.printed(plain, PARITY)[0]}
    pair = (ada, plain)
    return [
        of_accuracy(s, "m{setting}-accuracy-{kind}", kind, *pair, gain, ada),
        Statement("m{setting}-agnostic-{kind}", kind, ratio, pair, AGNOSTIC, ada, loss),
        Statement("m{setting}-parity-{kind}", kind, smaller(s, *pair, PARITY), pair, PARITY, ada, both),
    ]


def against_others(s: Scenario, kind: str) -> list[Statement]:
    """Returns claims 4, 5 and 8: AdaOMD and OMD against FedAvg and TCH on MNIST."""
    plain, ada = PAIRS[kind]
    # the published means of C = 5, EG differ by less than one standard deviation
    slack = s.printed(ada, AGNOSTIC)[1] if (s.key, kind) == ("m5", "eg") else 0.0
    both = AllOf(as_accurate(s, ada, FED, 1.0), smaller(s, ada, FED, AGNOSTIC, slack))
    lags = AtLeast(s.gap(FED, plain, ACCURACY), 1.0, of="FedAvg's lead in accuracy", **POINTS)
    return [
        of_accuracy(
            s, "m{setting}-fedavg-{kind}", kind, ada, FED, both, agnostic=s.printed_gap(ada, FED, AGNOSTIC)
        ),
        of_accuracy(s, "m{setting}-lags-{kind}", kind, FED, plain, lags),
        equally_accurate(s, "m{setting}-tch-{kind}", kind, "TCH", ada, 1.5),
    ]


def equally_accurate(
    s: Scenario, id: str, kind: str, one: str, other: str, by: float, **words: Any
) -> Statement:
    """Returns a statement that the accuracies of two columns are the same within so many points."""
    printed = abs(s.printed_gap(one, other, ACCURACY))
    return of_accuracy(s, id, kind, one, other, as_accurate(s, one, other, by), printed=printed, **words)


def of_cifar(s: Scenario, kind: str) -> list[Statement]:
    """Returns what the authors' listing allows to ask for on CIFAR-10."""
    plain, ada = PAIRS[kind]
    of: dict[str, Any] = {"of": "AdaOMD's average accuracy", "than": "OMD's", "unit": " %", "digits": ".2f"}
    more = Above(s.over(ada, ACCURACY), s.over(plain, ACCURACY), **of)
    better = AllOf(more, smaller(s, ada, plain, AGNOSTIC))
    as_good = AllOf(as_accurate(s, ada, FED, 3.0), smaller(s, ada, FED, PARITY))
    loss = s.printed_gap(ada, plain, AGNOSTIC)
    parity = s.printed_gap(ada, FED, PARITY)
    statements = [
        of_accuracy(s, "c{setting}-accuracy-{kind}", kind, ada, plain, better, ada, agnostic=loss),
        of_accuracy(s, "c{setting}-fedavg-{kind}", kind, ada, FED, as_good, parity=parity),
    ]
    if s.key == "cr":  # the one scenario whose printed means say what the text says of Figure 3e
        of = {"of": "AdaOMD's parity minus OMD's", **SIGNED}
        gap = s.gap(ada, plain, PARITY)
        check = AllOf(Above(gap, 0.0, **of), AtMost(gap, 2.0, **of))
        words = {"panel": panel(s), "printed": s.printed_gap(ada, plain, PARITY)}
        statements.append(
            Statement("c{setting}-parity-{kind}", kind, check, (ada, plain), PARITY, words=words)
        )
    return statements


def fairer_in_rotation(s: Scenario) -> list[Statement]:
    """Returns the text's sentence on OMD-TCH and FedAvg where Figure 3b shows it."""
    statements = []
    for kind, (plain, _) in PAIRS.items():
        check = AllOf(smaller(s, plain, FED, AGNOSTIC), smaller(s, plain, FED, PARITY))
        words = {"agnostic": s.printed_gap(plain, FED, AGNOSTIC), "parity": s.printed_gap(plain, FED, PARITY)}
        statements.append(
            Statement("m{setting}-fairer-{kind}", kind, check, (plain, FED), PARITY, words=words)
        )
    return statements


# of one scenario, but not of its means


def stored(s: Scenario) -> list[Statement]:
    """Returns how much Algorithm 2 stores: one iterate where the average has the last iterate's values."""
    statements = []
    for kind, (_, ada) in PAIRS.items():
        alone = rounds_alone(s, ada)
        check = Count(alone, len(alone) // 2 + 1, that="the average is one iterate", what="recorded rounds")
        statements.append(
            Statement("m{setting}-stored-{kind}", kind, check.because("more than half"), (ada,))
        )
    return statements


def cells(a: Artifact, s: Scenario, chosen: Sequence[str], id: str) -> None:
    """Judges how many cells of some columns are close to the printed ones.

    Close is within 1.5 printed standard deviations for a mean of ten seeds, within three for fewer.

    The published cells of AdaOMD are compared with the last iterate, which they are of (see `as_published`);
    how many of them the adaptive average meets is said beside it.
    """
    ten = s.seeds >= SEEDS
    deviations = 1.5 if ten else 3.0
    columns = [c for c in chosen if s.has(c)]
    near = {}
    averages = []  # of AdaOMD, whether the adaptive average meets the cell
    for column in columns:
        for metric in METRICS:
            mean, spread = s.printed(column, metric)
            ours = s.mean(as_published(column), metric)
            allowed = max(deviations * spread, TOLERANCE[metric])
            if as_published(column) != column:
                averages.append(abs(s.mean(column, metric) - mean) <= allowed)
            near[f"{column} {metric} {ours:.3f} ({mean:.3f})"] = abs(ours - mean) <= allowed
    step = borrowed(s, columns)
    close = f"within {deviations:g} printed standard deviations, or 0.5 pp, 0.03 nats, 0.5 pp if larger"
    what = f"cells, {'means over seeds' if ten else f'{s.span} against the mean of ten'}"
    check = most_cells(near, what, close)
    if averages:
        both = f"AdaOMD by its last iterate; its average meets {sum(averages)} of these {len(averages)} cells"
        check = check.also(both)
    a.claim(
        id,
        check.partial_at_best(bool(step)),
        remark=step,
        interval=s.alone,
        rests_on=s.names(*columns),
        **s.words,
    )
