"""Table 2: all methods, three metrics, six scenarios; what the text says of it, and checks of ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mobench.artifacts import Artifact, artifact
from mobench.artifacts.checks import Above, AllOf, AtLeast, AtMost, Check, Count, Graded

from .federated import (
    ACCURACY,
    COLUMNS,
    COMPARED,
    FAIRNESS,
    FED,
    LOSS,
    MNIST,
    PAIRS,
    PARITY,
    SCENARIOS,
    SEEDS,
    Scenario,
    by_method,
    fewest,
    notes,
    scenarios_of,
    whole,
)  # fmt: skip
from .statements import POINTS, SIGNED, cells, judge, of_means, refer

# why the orderings of ours fail at laptop scale
LAPTOP = {
    "accuracy": "Each average has the lambda step that won on MNIST in 300 rounds: with C = 2 and C = 5, 10 "
    "for AdaOMD and 0.1 for OMD. For 30 rounds of these data they do not suit: in table1's grid (seed 0) "
    "AdaOMD is at least as accurate in both scenarios at each of the seven steps, when OMD has the same "
    "step.",
    "fedavg": "The lambda steps are the winners of Table 1, for 300 rounds of MNIST or CIFAR-10. In table1's "
    "grid (seed 0, these data) another step is below FedAvg in MNIST C=2 (0.60 against 0.84) and CIFAR10 C=5 "
    "(0.91 against 1.02). In MNIST C=5 none is (0.49 against 0.48), nor any last iterate: after 30 rounds "
    "none of these trajectories is below FedAvg there.",
}


@artifact("omd_tch/table2")
def table2(a: Artifact) -> None:
    """All methods, three metrics, six scenarios."""
    scenarios = scenarios_of(a)
    frame, best = by_method(scenarios)
    a.table(frame, bold=best)
    for s in scenarios:
        if s.key == "mr":
            cells(a, s, [c for c in COLUMNS if c not in COMPARED], "m{setting}-cells-others")
            refer(a, "omd_tch/fig3a", s, of_means(s), "mr-cells")
        else:
            cells(a, s, list(COLUMNS), "m{setting}-cells" if s.on_mnist else "c{setting}-cells")
            judge(a, s, of_means(s))
    if mnist := [s for s in scenarios if s.on_mnist]:
        judge_best(a, mnist)
    judge_text(a)
    if cifar := [s for s in scenarios if not s.on_mnist]:
        gaps = {s.name: s.gap("AdaOMDgd-TCH", "TCH", ACCURACY) for s in cifar}
        lead = AtLeast(gaps, 2.0, of="AdaOMD's lead in accuracy", **POINTS)
        a.claim(
            "tch-cifar",
            whole(lead, cifar, [key for key in SCENARIOS if key not in MNIST]),
            interval=fewest(cifar),
            rests_on=set().union(*(s.names("TCH", "AdaOMDgd-TCH") for s in cifar)),
        )
    check_orderings(a, scenarios)
    notes(a, scenarios)
    a.note(
        "In square brackets: published. Mean and standard deviation over seeds, of five seeds or more. "
        "Accuracy: mean over the clients; worst loss: the paper's agnostic loss, the largest test loss of a "
        "client; parity: the paper's accuracy parity, the standard deviation of the clients' accuracies."
    )
    a.note(
        "AdaOMD's published cells stand beside the last iterate of its trajectory: in the released program "
        "the stored iterates are the live model, which is returned whatever the weights. The adaptive "
        "average of the paper is the column without brackets."
    )
    a.note(
        "CIFAR-10's half of Table 2 is not in the paper's text; its columns quote the authors' result "
        "listing, for orientation. Six of MNIST's published cells are reconstructed and "
        "five have a digit of the listing (experiments/omd_tch/published/table2.csv)."
    )


def judge_best(a: Artifact, scenarios: Sequence[Scenario]) -> None:
    of: dict[str, Any] = {
        "interval": fewest(scenarios),
        "rests_on": set().union(*(s.names() for s in scenarios)),
    }
    tops = {s.name: max(COLUMNS, key=partial(s.mean, name=ACCURACY)) for s in scenarios}
    best = Count({name: top == "FedFV" for name, top in tops.items()}, that="FedFV", what="scenarios")
    said = best.also(", ".join(f"{name}: {top}" for name, top in tops.items()))
    a.claim("fedfv-best", whole(said, scenarios, MNIST), **of)
    ours = {s.name: s.mean("FedMGDA+", PARITY) for s in scenarios}
    bound = {s.name: min(s.mean(c, PARITY) for c in COLUMNS) + deviation(s) for s in scenarios}
    than = "the lowest plus one of its standard deviations"
    lowest: Check = AtMost(ours, bound, of="FedMGDA+'s parity", than=than, **POINTS)
    if min(s.seeds for s in scenarios) < SEEDS:
        lowest = lowest.because("the printed deviation, as fewer than ten seeds were run")
    a.claim("fedmgda-parity", whole(lowest, scenarios, MNIST), **of)


def deviation(s: Scenario) -> float:
    """Returns the standard deviation of FedMGDA+'s parity over ten seeds; of fewer the printed one."""
    if s.seeds < SEEDS:
        return s.printed("FedMGDA+", PARITY)[1]
    return float(s.values("FedMGDA+", PARITY).std())


def judge_text(a: Artifact) -> None:
    whole = [Scenario(key, {}) for key in SCENARIOS]
    fairer = {
        s.name: [s.printed_gap(plain, FED, metric) < 0 for plain, _ in PAIRS.values() for metric in FAIRNESS]
        for s in whole
    }
    groups = {
        "MNIST": [good for s in whole if s.on_mnist for good in fairer[s.name]],
        "with the authors' listing of CIFAR-10": [good for goods in fairer.values() for good in goods],
    }
    full = Above(
        {name: sum(goods) for name, goods in groups.items()},
        {name: len(goods) / 2 for name, goods in groups.items()},
        of="cases with a smaller agnostic loss or parity",
        than="half",
    )
    rotation = {name: all(goods) for name, goods in fairer.items() if name.endswith("Rotation")}
    said = ", ".join(f"{name} {sum(goods)} of {len(goods)}" for name, goods in fairer.items())
    weaker = Count(rotation, that="all cases", what="Rotation scenarios")
    a.claim("fairer-in-print", Graded(full, weaker).also(said))
    gaps = {
        f"{s.name} {kind}": s.printed_gap(ada, plain, PARITY)
        for s in whole
        for kind, (plain, ada) in PAIRS.items()
    }
    higher = ", ".join(name for name, gap in gaps.items() if gap > 0)
    of: dict[str, Any] = {"of": "AdaOMD's parity minus OMD's", "partial": True, **SIGNED}
    a.claim("parity-in-print", AllOf(Above(gaps, 0.0, **of), AtMost(gaps, 2.0, **of)), higher=higher)


def check_orderings(a: Artifact, scenarios: Sequence[Scenario]) -> None:
    """Checks, on any data, orderings that the specification saw at a fifth and a twentieth of MNIST."""
    cases = {f"{s.name} {kind}": (s, *pair) for s in scenarios for kind, pair in PAIRS.items()}
    orderings = {
        "train": {k: s.mean(ada, LOSS) < s.mean(plain, LOSS) for k, (s, plain, ada) in cases.items()},
        "accuracy": {
            k: s.mean(ada, ACCURACY) > s.mean(plain, ACCURACY) for k, (s, plain, ada) in cases.items()
        },
        "fedavg": {k: s.mean(ada, LOSS) < s.mean(FED, LOSS) for k, (s, _, ada) in cases.items()},
    }
    for id, holds in orderings.items():
        check = Count(holds, what="scenarios and mirror maps").because("mean over seeds")
        a.check(id, check, reason=LAPTOP.get(id, "") if a.scale == "laptop" else "")
