"""Tables 1 and 5: properties of the methods; the cells that a computation can decide are checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from mobench.algorithms.epo import EPO
from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ls import LS
from mobench.algorithms.pmtl import PMTL
from mobench.algorithms.stch import STCH
from mobench.algorithms.tch import TCH
from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Above, AllOf, AtMost, Below, Check, Comparison, Graded, Share
from mobench.artifacts.published import Published, published
from mobench.artifacts.statistics import percent
from mobench.core import Weighting

from .runs import INNER, SHARE, VISIBLE, Condition, arrived, direction, first_output, rises, spread

Measured = dict[tuple[str, str], str]  # measurements in words, by method and property
CHANGED = 1e-3  # 1 - cos above which a direction counts as another one
METHODS: dict[str, dict[str, Weighting]] = {  # the methods of each row of Table 5, by job
    "Linear Scalarization": {"ls": LS()},
    "(Smooth) Tchebycheff": {"tch": TCH(), "stch": STCH(mu=0.1)},
    "PMTL": {"pmtl": PMTL(references=5, phase1=0.0)},
    "EPO": {"epo": EPO()},
    "FERERO": {"ferero": FERERO(line="none")},
}
INSIDE = Condition(
    "end within 0.02 of the front, 5° or more from its ends",
    lambda rows: (rows["front_distance"] < 0.02) & rows["polar"].between(5, 85),
)


def scale_changes(method: Weighting) -> np.ndarray:
    """Returns 1 - cos between the directions for F and for Lambda F, (200,) or fewer.

    Points are random (M = 2, P = 6); a point where one of the two does not move is left out.
    """
    rng = np.random.default_rng(0)
    J = torch.from_numpy(rng.standard_normal((200, 2, 6)))
    F = torch.from_numpy(rng.uniform(0.1, 1.0, (200, 2)))
    scale = torch.from_numpy(10.0 ** rng.uniform(-1, 1, (200, 2)))
    w = torch.full((200, 2), 0.5, dtype=torch.float64)
    d = direction(method, F, J, w)
    e = direction(method, scale * F, scale.unsqueeze(-1) * J, w)
    size = torch.linalg.vector_norm(d, dim=-1) * torch.linalg.vector_norm(e, dim=-1)
    moving = size > 1e-12
    return (1 - (d * e).sum(-1) / size.clamp_min(1e-300))[moving].numpy()


def weak_optimum_step(method: Weighting) -> tuple[float, float]:
    """Returns |d| and cos(d, -g_2) at a point that is weakly optimal, but not optimal.

    There f_1 = 0 with zero gradient, and f_2 = 0.5 with gradient g_2.
    """
    g2 = torch.tensor([0.6, -0.8, 0.0], dtype=torch.float64)
    J = torch.stack([torch.zeros_like(g2), g2]).unsqueeze(0)
    F = torch.tensor([[0.0, 0.5]], dtype=torch.float64)
    d = direction(method, F, J, torch.full((1, 2), 0.5, dtype=torch.float64))[0]
    norm = float(torch.linalg.vector_norm(d))
    return norm, float(-(d @ g2)) / norm if norm > 0 else 0.0


def inside_front(a: Artifact, jobs: Iterable[str]) -> Comparison:
    """Asks that the runs of inner preferences end inside the front, for each of the jobs.

    The optima of the outermost preferences (weight below 0.15 or above 0.85) are at the ends.
    """
    inside = {}
    for name in jobs:
        rows = first_output(a.jobs[name])
        inner = rows[rows["preference_1"].between(0.15, 0.85)]["k"].unique().tolist()
        inside[st.look(name).name] = INSIDE.of(a.jobs[name], inner)
    return Share(inside, SHARE, that=INSIDE.words, what="runs of inner preferences")


@artifact("ferero/table5")
def table5(a: Artifact) -> None:
    """Properties of the methods: nonconvex fronts, invariance to scale, weakly optimal points."""
    fronts = {name: inside_front(a, methods) for name, methods in METHODS.items()}
    changes = {n: {job: scale_changes(m) for job, m in methods.items()} for n, methods in METHODS.items()}
    steps = {name: [weak_optimum_step(m) for m in methods.values()] for name, methods in METHODS.items()}
    measured: Measured = {}
    for name, methods in METHODS.items():
        # the least of a row's methods: a "no" must hold for each of them
        inside = percent(min(fronts[name].numbers.values()))
        changed = percent(min(float((c > CHANGED).mean()) for c in changes[name].values()))
        largest = max(float(c.max()) for c in changes[name].values())
        moved = min(norm for norm, _ in steps[name])
        measured[name, "nonconvex front"] = f"{inside} of runs{lost(a, methods)} end inside the front"
        measured[name, "scale invariance"] = (
            f"changes at {changed} of the points, largest 1 - cos = {largest:.1e}"
        )
        measured[name, "escapes weak optimal"] = f"|d| = {moved:.2g} at a weakly optimal point"
    cells = published("ferero/table5")
    a.table(properties(cells, measured))
    # the other methods' runs are those of Figure 3, and their cells are what its claims say
    a.refer("ferero/fig3", "a-ls-ends", "c-pmtl-inexact", "d-epo-exact", "e-ferero-exact")
    a.claim("nonconvex-smooth-tchebycheff", fronts["(Smooth) Tchebycheff"])
    for name, of_methods in changes.items():
        judge_scale(a, name, of_methods, cells.text(row=name, column="scale invariance"))
    for name in ("FERERO", "EPO", "PMTL"):
        judge_weak(a, name, *steps[name][0], cells.text(row=name, column="escapes weak optimal"))
    a.note(
        "Cells without a measurement are the paper's statements; "
        "(X)WC-MGDA was never run by the authors and is quoted."
    )
    a.note(
        "At the point of the weak-optimality check linear and Tchebycheff scalarization do move, because "
        "every weight here is positive; the published 'no' speaks of their minimisers and is not decided by "
        "this check."
    )


def judge_scale(a: Artifact, name: str, changes: Mapping[str, np.ndarray], cell: str) -> None:
    if cell == "yes":
        does = "does not change"
        largest = {st.look(job).name: float(c.max()) for job, c in changes.items()}
        check: Check = AtMost(largest, 1e-12, of="largest 1 - cos at 200 random points", digits=".1e")
    else:
        does = "changes"
        changed = {st.look(job).name: c > CHANGED for job, c in changes.items()}
        check = Share(changed, 0.25, that=f"1 - cos above {CHANGED:g}", what="random points").because(
            "even by following one objective at a time, where another one becomes the largest"
        )
    a.claim("scale-{slug}", check, slug=slug(name), name=name, does=does, cell=cell)


def judge_weak(a: Artifact, name: str, norm: float, cos: float, cell: str) -> None:
    if cell == "yes":
        does = "leaves"
        along = Below(1 - cos, 1e-9, of="1 - cos(d, -g_2)", digits=".1e")
        check: Check = AllOf(Above(norm, 0.0, of="|d|", digits=".3g"), along)
    else:
        does = "stays at"
        check = Below(norm, 1e-9, of="|d|", digits=".3g")
    a.claim("weak-{slug}", check, slug=slug(name), name=name, does=does, cell=cell)


@artifact("ferero/table1")
def table1(a: Artifact) -> None:
    """Properties of the methods: exactness on Figure 3's runs, controlled ascent on Figure 4d to f's."""
    pmtl = ascents(a.jobs["pmtl_hard"], "hard inner runs", at_most=1 - SHARE)
    epo = ascents(a.jobs["epo_hard"], "hard inner runs")
    printed = ascents(a.jobs["ferero_hard_printed"], "hard inner runs with the printed settings")
    departing = ascents(a.jobs["ferero_hard"], "hard inner runs with two departures from them")
    measured: Measured = {}
    for name, share in {"PMTL": pmtl, "EPO": epo, "FERERO": departing}.items():
        job = name.lower()
        all_runs = len(first_output(a.jobs[job]))
        arrive = f"{percent(arrived().share(a.jobs[job]))} of {all_runs} runs ({spread(a.jobs[job])})"
        measured[name, "exactness"] = arrive + lost(a, [job])
        rising = percent(share.numbers[""])
        words = f"{rising} of hard inner runs{lost(a, [f'{job}_hard'])} rise and arrive"
        if name == "FERERO":
            words += f" with c_h = 0.1 and 10 inner steps, {percent(printed.numbers[''])} as printed"
        measured[name, "controlled ascent"] = words
    cells = published("ferero/table1")
    a.refer("ferero/fig3", "c-pmtl-inexact", "d-epo-exact", "e-ferero-exact")
    a.claim("ascent-pmtl", pmtl)
    a.claim("ascent-epo", epo)
    a.claim("ascent-ferero", Graded(printed, departing))
    a.table(properties(cells, measured))
    a.note("Rates of convergence and flexibility are the paper's statements and are not decided by runs.")


def ascents(job: JobRows, what: str, at_most: float | None = None) -> Comparison:
    """Asks that an objective rises on the way of the inner preferences' runs, and that they arrive."""
    rising = rises(job) > VISIBLE
    that = f"rise by more than {VISIBLE:g} and end within 5° of the ray and 1e-2 of the front"
    return Share(arrived(5.0, 1e-2).of(job, INNER) & rising, SHARE, at_most=at_most, that=that, what=what)


def lost(a: Artifact, jobs: Iterable[str]) -> str:
    return sum((a.jobs[j].runs for j in jobs), RunCount(0, 0)).short


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def properties(cells: Published, measured: Measured) -> pd.DataFrame:
    """Returns methods by properties; a cell has the published word and then the measurement, if any."""
    lines: list[dict[str, Any]] = []
    for name, rows in cells.rows.groupby("row", sort=False):
        line: dict[str, Any] = {"method": name}
        for column, value in zip(rows["column"], rows["value"], strict=True):
            measurement = measured.get((str(name), column))
            line[column] = value + (f" [{measurement}]" if measurement else "")
        lines.append(line)
    return pd.DataFrame(lines)
