"""The authors' result listing beside Table 2, in sentences whose numbers come from the listing.

`experiments/omd_tch/published/listing.csv`: test and training metrics of 15 methods in six scenarios, three
rules of dominance, losses divided by their first value, and two clients with preferences. docs/corrections.md
has the sentences, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator

from mobench.artifacts.published import Published, published

from .federated import ACCURACY, AGNOSTIC, FED, PAIRS, PARITY, SCENARIOS

FINAL = "largest ratio of final to first test loss"
WEIGHTED = "CIFAR10 Rotation, 2 clients"


def part(name: str) -> Published:
    return published("omd_tch/listing").where(artifact=f"omd_tch/listing_{name}")


def sentences() -> list[str]:
    return [*training(), parity(), lowest(), preferences(), ratios(), dominance()]


def pairs(name: str, metric: str) -> dict[str, tuple[float, float]]:
    """Returns the values of OMD and of AdaOMD in each scenario, with each mirror map."""
    rows = part(name).where(metric=metric)
    return {
        f"{scenario} {kind}": (
            rows.number(row=scenario, column=plain),
            rows.number(row=scenario, column=ada),
        )
        for scenario in SCENARIOS.values()
        for kind, (plain, ada) in PAIRS.items()
    }


def training() -> Iterator[str]:
    for name, where in (("test", "On test data"), ("train", "On training data")):
        more = sum(ada > omd for omd, ada in pairs(name, ACCURACY).values())
        ratios = sorted(ada / omd for omd, ada in pairs(name, AGNOSTIC).values())
        yield (
            f"{where} AdaOMD is more accurate than OMD in {more} of 12 cases and has the smaller agnostic "
            f"loss in {sum(r < 1 for r in ratios)} (ratios {ratios[0]:.2f} to {ratios[-1]:.2f})."
        )


def parity() -> str:
    """Returns where AdaOMD's parity is not the smaller one."""
    said = []
    for name, where in (("test", "on test data"), ("train", "on training data")):
        worse = {case: both for case, both in pairs(name, PARITY).items() if both[1] > both[0]}
        each = ", ".join(f"{case} ({ada:.2f} against {omd:.2f} pp)" for case, (omd, ada) in worse.items())
        said.append(f"{where} in {12 - len(worse)} of 12 cases, not in {each}")
    return f"AdaOMD's parity is smaller than OMD's {'; '.join(said)}."


def lowest() -> str:
    """Returns which method has the smallest training loss of the worst client in each scenario."""
    rows = part("train").where(metric=AGNOSTIC)
    winners = []
    for scenario in SCENARIOS.values():
        values = rows.numbers("column", row=scenario)
        best = min(values, key=lambda c: values[c])
        winners.append(f"{best} in {scenario} ({values[best]:.3f})")
    return (
        "The smallest training loss of the worst client, by which Table 1 selects, is that of "
        f"{', '.join(winners)}."
    )


def preferences() -> str:
    """Returns what the runs with preferences say of the adaptive average."""
    rows = part("preference").where(row=WEIGHTED)
    of = {m: [rows.number(column=c, metric=m) for c in (*PAIRS["gd"], FED)] for m in rows.rows["metric"]}
    losses = of["hypervolume of test losses"]
    accuracies = of["hypervolume of test accuracies"]
    return (
        f"With two clients and three preferences OMDgd has the larger hypervolume of losses, {losses[0]:.3f} "
        f"against AdaOMDgd's {losses[1]:.3f} (FedAvg {losses[2]:.3f}), and of accuracies, "
        f"{accuracies[0]:.3f} against {accuracies[1]:.3f}: against what is said of the adaptive average, "
        "though their steps of lambda differ, too (1.0 and 0.03)."
    )


def ratios() -> str:
    """Returns what the ratios of final to first losses say of their denominators."""
    final = part("test").where(row=SCENARIOS["cr"], metric=AGNOSTIC).numbers("column")
    ratio = part("loss_ratio").where(metric=FINAL).numbers("column")
    first = {column: final[column] / value for column, value in ratio.items()}
    gd, eg = (ada for _, ada in PAIRS.values())
    others = sorted(value for column, value in first.items() if column not in (gd, eg))
    again = ratio[gd] * first[gd] / first[FED]
    return (
        f"Final losses over first ones, {ratio[gd]:.3f} for AdaOMDgd and {ratio[FED]:.3f} for FedAvg, have "
        "other denominators (about the agnostic loss of the main table over the ratio): "
        f"{first[gd]:.2f} and {first[eg]:.2f} for AdaOMD, whose first model is untrained, {others[0]:.2f} to "
        f"{others[-1]:.2f} for the others, whose first model has had a round. With FedAvg's denominator "
        f"AdaOMDgd's ratio would be {again:.2f}."
    )


def dominance() -> str:
    """Returns what the three rules of dominance give."""
    values = sorted(part("dominance").where(metric=ACCURACY).rows["value"].astype(float))
    return (
        f"Three rules of what decides dominance give accuracies of {values[0]:.2f} to {values[-1]:.2f} %. "
        "They decide nothing: the released program returns the last iterate whatever dominates."
    )
