"""The artifacts outside of the protocol: a table, a picture and checks for each suite of problems."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, artifact
from mobench.artifacts.checks import AtMost, Count
from mobench.config.schema import choices

from .picture import Refused, draw
from .scores import BOOTSTRAP, FEASIBLE, Pair, Table


@artifact("cross/bilevel", "cross/federated", "cross/multi_task")
def suite(a: Artifact) -> None:
    """The methods of a suite on its problems: scores, ranks, and what does not fit."""
    shown = tables(a)
    refused = {
        (name.split(".", 1)[0], name.split(".", 1)[1]): in_one_line(text) for name, text in a.refused.items()
    }
    lines = [line for t in shown for line in t.lines()]
    lines += [
        {"problem": p, "algorithm": m, "note": f"does not fit: {reason}"}
        for (p, m), reason in refused.items()
    ]
    frame = pd.DataFrame(lines).dropna(axis=1, how="all")
    given = [c for c in ("problem", "algorithm", "step size", "steps", "note") if c in frame]
    a.table(frame, given=given)
    draw(a, shown, refused)
    check(a, shown, refused)
    note(a, shown)


def tables(a: Artifact) -> list[Table]:
    """The problems of a suite."""
    found: dict[str, list[Pair]] = {}
    for name, job in a.jobs.items():
        problem, algorithm = name.split(".", 1)
        found.setdefault(problem, []).append(Pair(problem, algorithm, job))
    return [Table(problem, pairs) for problem, pairs in found.items()]


def in_one_line(text: str) -> str:
    """The reasons of a refusal, which has a line for each."""
    return "; ".join(line.strip().removeprefix("- ") for line in text.splitlines()[1:])


def check(a: Artifact, shown: list[Table], refused: Refused) -> None:
    """All pairs ran, no share exceeds the whole, and methods that use constraints end feasible."""
    every = [(t, p) for t in shown for p in t.pairs.values()]
    finished = {str(p): bool((p.at(t.chosen[p.algorithm])["status"] == "done").any()) for t, p in every}
    ran = Count(finished, what="pairs that ran have a finished run at the chosen step size")
    a.check(
        "complete",
        ran.also(f"{len(every)} pairs ran, {len(refused)} refused with a reason"),
        reason="; ".join(f"{p}: {lost(t, p)}" for t, p in every if not finished[str(p)]),
    )
    known = {t.name: float(t.scores.max()) for t in shown if t.front is not None}
    if known:
        top = max(known, key=lambda name: known[name])
        share = AtMost(known[top], 1 + 1e-3, of=f"largest share of hypervolume ({top})", digits=".6f")
        a.check("below-front", share.because("fronts are samples"), problem=top)
    bound = [(t, p) for t, p in every if p.constrained]
    if bound:
        check_feasible(a, bound)


def check_feasible(a: Artifact, bound: list[tuple[Table, Pair]]) -> None:
    """Whether all reported runs of methods that use constraints are finished and feasible."""
    late = [(t, p) for t, p in bound if p.enforces and not counting(t.shown(p))]
    met = {
        f"{p}: {infeasible(t.shown(p))}" if (t, p) in late else str(p): (t, p) not in late
        for t, p in bound
        if p.enforces
    }
    feasible = Count(met, what=f"pairs with violation <= {FEASIBLE:g} in every reported run")
    ignoring = sorted({p.algorithm for _, p in bound if not p.enforces})
    if ignoring:
        unasked = "not counted, as constraints are not passed on to their search"
        a.check("feasible", feasible.also(f"{unasked}: {', '.join(ignoring)}"), reason=causes(late))
    else:
        a.check("feasible", feasible, reason=causes(late))


def counting(rows: pd.DataFrame) -> bool:
    """Whether there are runs, and all of them count."""
    return bool(len(rows) and rows["counts"].all())


def lost(t: Table, pair: Pair) -> str:
    """Why a pair has no finished run at the chosen step size."""
    seen = ", ".join(f"{n} {status}" for status, n in pair.rows["status"].value_counts().items())
    if np.isnan(t.chosen[pair.algorithm] or 0.0):
        return f"no run counts on the choosing seeds at any step size (all runs: {seen})"
    return f"its runs: {seen}"


def infeasible(rows: pd.DataFrame) -> str:
    """How many of the reported runs do not count, and how far the worst finished one is off."""
    if not len(rows):
        return "no step size qualified"
    done = rows[rows["status"] == "done"]
    worst = f" (violation up to {done['violation'].max():.1g})" if len(done) else ""
    return f"{int((~rows['counts']).sum())} of {len(rows)}{worst}"


def causes(late: list[tuple[Table, Pair]]) -> str:
    """The likely causes, pair by pair."""
    return "; ".join(f"{p}{cause(t, p)}" for t, p in late) + "." if late else ""


def cause(t: Table, p: Pair) -> str:
    """Runs that did not finish, or a step size at which all runs are feasible."""
    rows = t.shown(p)
    unfinished = int((rows["status"] != "done").sum())
    sizes = [f"{s:g}" for s in p.sizes if s is not None and t.reported(p, s)["counts"].all()]
    said = ""
    if not len(rows):
        said = ": no run counts at any step size"
    elif unfinished:
        said = f": {unfinished} of {len(rows)} did not finish"
    if sizes:
        join = ", but" if unfinished else ":"
        return f"{said}{join} all reported runs are feasible at step {' and '.join(sizes)}"
    return said or f": not there after {p.job.config['steps']} steps, at no step size in all runs"


def note(a: Artifact, shown: list[Table]) -> None:
    """What a reader must know: settings, the choice of step sizes, and how scores and ranks are taken."""
    a.note(
        "Settings of single methods are listed in the suite's YAML (cross.settings, cross.pairs). The decays "
        "of CSMOO and its baseline without noise were changed after first results, as were boxes of "
        "population methods and numbers of steps; no other method's were, so CSMOO has an advantage here. "
        "FERERO-SA's gamma is 1 / lambda_max(A_ag J J' A_ag') at the starts (its multipliers are stable "
        "below twice that), rounded down to one digit; to a power of ten, as at first, multipliers of "
        "constraints hardly moved within these steps."
    )
    seen = {m for t in shown for m in t.pairs} | {name.split(".", 1)[1] for name in a.refused}
    if left := [m for m in choices("algorithm") if m not in seen]:
        a.note(f"Not in this table: {', '.join(left)}.")
    t = shown[0]
    a.note(
        f"Same starts, preferences and steps for all. Step sizes are chosen on seeds {t.few or 'none'}, by "
        f"the number of finished, feasible runs and then by score; everything shown is of seeds {t.report}."
    )
    a.note(
        "Population methods evaluate as many points in a step as there are preferences; at small scales they "
        "get fewer steps (the column says how many)."
    )
    if any(p.first_order_gap for t in shown for p in t.pairs.values()):
        a.note(
            "FORUM takes one step in y where the others solve the lower level in each step of x, and its "
            "official step has gradients of unit length: with as many steps it is further from the end. Its "
            "rows are phi(x) at y*(x), so a gap that is left at (x, y) is no violation of a constraint here."
        )
    a.note(
        "Share: hypervolume of the finished, feasible points of a seed over that of the exact front, or of "
        "all methods' points together where no front is known or constraints bind. Ranks: of the mean over "
        f"seeds, with 95 % of the ranks when seeds are drawn again ({BOOTSTRAP} times). Every run is in "
        "outputs/runs under the key that provenance.json names."
    )
