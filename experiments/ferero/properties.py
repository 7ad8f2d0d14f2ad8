"""FERERO's tables that belong to the toy problem: 1, 4, 5 (properties), 6, 7, 10 (settings),
11 (run time).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from mobench.algorithms.epo import EPO
from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_sa import FEREROSA
from mobench.algorithms.ls import LS
from mobench.algorithms.pmtl import PMTL
from mobench.algorithms.stch import STCH
from mobench.algorithms.tch import TCH
from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts.published import published
from mobench.artifacts.statistics import percent
from mobench.core import Weighting

from .runs import INNER, SHARE, VISIBLE, Condition, arrived, direction, first_output, rises, spread

CHANGED = 1e-3  # 1 - cos above which a direction counts as another one


METHODS: dict[str, list[Weighting]] = {
    "Linear Scalarization": [LS()],
    "(Smooth) Tchebycheff": [TCH(), STCH(mu=0.1)],
    "PMTL": [PMTL(references=5, phase1=0.0)],
    "EPO": [EPO()],
    "FERERO": [FERERO(line="none")],
}


def scale_changes(method: Weighting, draws: int = 200) -> np.ndarray:
    """1 - cos between the directions for F and for Lambda F,
    at random points (M = 2, P = 6) where both move (draws,).
    """
    rng = np.random.default_rng(0)
    J = torch.from_numpy(rng.standard_normal((draws, 2, 6)))
    F = torch.from_numpy(rng.uniform(0.1, 1.0, (draws, 2)))
    scale = torch.from_numpy(10.0 ** rng.uniform(-1, 1, (draws, 2)))
    w = torch.full((draws, 2), 0.5, dtype=torch.float64)
    d = direction(method, F, J, w)
    e = direction(method, scale * F, scale.unsqueeze(-1) * J, w)
    size = torch.linalg.vector_norm(d, dim=-1) * torch.linalg.vector_norm(e, dim=-1)
    moving = size > 1e-12
    return (1 - (d * e).sum(-1) / size.clamp_min(1e-300))[moving].numpy()


def weak_optimum_step(method: Weighting) -> tuple[float, float]:
    """|d| and cos(d, -g_2) at f_1 = 0 with zero gradient, f_2 = 0.5 with gradient g_2: weakly optimal,
    not optimal.
    """
    g2 = torch.tensor([0.6, -0.8, 0.0], dtype=torch.float64)
    J = torch.stack([torch.zeros_like(g2), g2]).unsqueeze(0)
    F = torch.tensor([[0.0, 0.5]], dtype=torch.float64)
    d = direction(method, F, J, torch.full((1, 2), 0.5, dtype=torch.float64))[0]
    norm = float(torch.linalg.vector_norm(d))
    return norm, float(-(d @ g2)) / norm if norm > 0 else 0.0


INSIDE = Condition(
    "end within 0.02 of the front, 5° or more from its ends",
    lambda rows: (rows["front_distance"] < 0.02) & rows["polar"].between(5, 85),
)


def inner_preferences(job: JobRows) -> list[int]:
    """Numbers of the preferences whose points are inside:
    the outermost ones (weight below 0.15 or above 0.85) are at the ends.
    """
    rows = first_output(job)
    return sorted(set(rows[rows["preference_1"].between(0.15, 0.85)]["k"]))


@artifact("ferero/table5")
def table5(a: Artifact) -> None:
    """Properties of the methods; the cells that a computation can decide are checked."""
    cells = published("ferero/table5").rows
    # the least of a row's methods: a "no" must hold for each of them
    changes = {name: [scale_changes(m) for m in methods] for name, methods in METHODS.items()}
    changed = {name: min(float((c > CHANGED).mean()) for c in each) for name, each in changes.items()}
    largest = {name: max(float(c.max()) for c in each) for name, each in changes.items()}
    steps = {name: [weak_optimum_step(m) for m in methods] for name, methods in METHODS.items()}
    jobs = {
        "Linear Scalarization": ["ls"],
        "(Smooth) Tchebycheff": ["tch", "stch"],
        "PMTL": ["pmtl"],
        "EPO": ["epo"],
        "FERERO": ["ferero"],
    }
    found = {
        n: min(INSIDE.share(a.jobs[j], inner_preferences(a.jobs[j])) for j in names)
        for n, names in jobs.items()
    }
    measured: dict[tuple[str, str], str] = {}
    for name in METHODS:
        measured[name, "nonconvex front"] = (
            f"{percent(found[name])} of runs{lost(a, jobs[name])} end inside the front"
        )
        measured[name, "scale invariance"] = (
            f"changes at {percent(changed[name])} of the points, largest 1 - cos = {largest[name]:.1e}"
        )
        moved = min(s for s, _ in steps[name])
        measured[name, "escapes weak optimal"] = f"|d| = {moved:.2g} at a weakly optimal point"
    a.table(_properties(cells, measured))
    # the other methods' runs are those of Figure 3, and their cells are what its claims say
    a.refer("ferero/fig3", "a-ls-ends", "c-pmtl-inexact", "d-epo-exact", "e-ferero-exact")
    tchebycheff = "(Smooth) Tchebycheff"
    a.claim(
        "nonconvex-smooth-tchebycheff",
        "(Smooth) Tchebycheff scalarization finds the inside of a concave front",
        "Table 5, nonconvex front",
        published=_cell(cells, tchebycheff, "nonconvex front"),
        measured=measured[tchebycheff, "nonconvex front"],
        tolerance=f"{percent(SHARE)} of the runs of inner preferences end within 0.02 of the front, 5° or "
        "more from its ends; for either scalarization",
        holds=found[tchebycheff] >= SHARE,
        rests_on=jobs[tchebycheff],
    )
    for name in METHODS:
        expected = _cell(cells, name, "scale invariance")
        a.claim(
            f"scale-{_slug(name)}",
            f"The direction of {name} {'does not change' if expected == 'yes' else 'changes'} when "
            "objectives are rescaled",
            "Table 5, scale invariance (without constraints)",
            published=expected,
            measured=measured[name, "scale invariance"],
            tolerance=f"yes: 1 - cos <= 1e-12 at each of 200 random points; no: above {CHANGED:g} at a "
            "quarter of them (which even a method that follows one objective at a time does where another "
            "one becomes the largest)",
            holds=largest[name] <= 1e-12 if expected == "yes" else changed[name] >= 0.25,
            any_scale=True,
            rests_on=(),
        )
    for name, moves in (("FERERO", True), ("EPO", True), ("PMTL", False)):
        norm, cos = steps[name][0]
        a.claim(
            f"weak-{_slug(name)}",
            f"{name} {'leaves' if moves else 'stays at'} a point that is weakly optimal but not optimal",
            "Table 5, escapes weak optimal (Lemma 1, third part)",
            published=_cell(cells, name, "escapes weak optimal"),
            measured=f"|d| = {norm:.3g}, cos(d, -g_2) = {cos:.6f}",
            tolerance="yes: d along -g_2 to 1e-9; no: |d| < 1e-9",
            holds=(norm > 0 and 1 - cos < 1e-9) if moves else norm < 1e-9,
            any_scale=True,
            rests_on=(),
        )
    a.note(
        "Cells without a measurement are the paper's statements; "
        "(X)WC-MGDA was never run by the authors and is quoted."
    )
    a.note(
        "At the point of the weak-optimality check linear and Tchebycheff scalarization do move, because "
        "every weight here is positive; the published 'no' speaks of their minimisers and is not decided by "
        "this check."
    )


@artifact("ferero/table1")
def table1(a: Artifact) -> None:
    """Properties of the methods; exactness is judged on Figure 3's runs (there),
    controlled ascent on those of Figure 4d to f.
    """
    cells = published("ferero/table1").rows
    measured: dict[tuple[str, str], str] = {}
    names = {"PMTL": "pmtl", "EPO": "epo", "FERERO": "ferero"}
    ascent = {
        job: _ascents(a.jobs[job]) for job in ("pmtl_hard", "epo_hard", "ferero_hard", "ferero_hard_printed")
    }
    for name, job in names.items():
        measured[name, "exactness"] = outcome(a.jobs[job]) + lost(a, [job])
        words = (
            f"{percent(ascent[f'{job}_hard'])} of hard inner runs{lost(a, [f'{job}_hard'])} rise and arrive"
        )
        if name == "FERERO":
            words += (
                f" with c_h = 0.1 and 10 inner steps, {percent(ascent['ferero_hard_printed'])} as printed"
            )
        measured[name, "controlled ascent"] = words
    a.refer("ferero/fig3", "c-pmtl-inexact", "d-epo-exact", "e-ferero-exact")
    yes = (
        f"{percent(SHARE)} of the hard inner runs (Figure 4d to f, k = 1, 2) rise by more than {VISIBLE:g} "
        "and end within "
        "5° and 1e-2"
    )
    a.claim(
        "ascent-pmtl",
        "PMTL does not reach its ray by letting an objective rise",
        "Table 1, controlled ascent",
        published=_cell(cells, "PMTL", "controlled ascent"),
        measured=measured["PMTL", "controlled ascent"],
        tolerance=f"at most {percent(1 - SHARE)} of the hard inner runs do (criterion of ascent-epo)",
        holds=ascent["pmtl_hard"] <= 1 - SHARE,
        rests_on=("pmtl_hard",),
    )
    a.claim(
        "ascent-epo",
        "EPO reaches its ray by letting an objective rise",
        "Table 1, controlled ascent",
        published=_cell(cells, "EPO", "controlled ascent"),
        measured=measured["EPO", "controlled ascent"],
        tolerance=yes,
        holds=ascent["epo_hard"] >= SHARE,
        rests_on=("epo_hard",),
    )
    a.claim(
        "ascent-ferero",
        "FERERO reaches its ray by letting an objective rise",
        "Table 1, controlled ascent",
        published=_cell(cells, "FERERO", "controlled ascent"),
        measured=measured["FERERO", "controlled ascent"],
        tolerance=f"{yes}, with the printed settings of Figure 4f; "
        "partial if with two departures from them only",
        holds=True
        if ascent["ferero_hard_printed"] >= SHARE
        else ("partial" if ascent["ferero_hard"] >= SHARE else False),
        reason="Objectives rise with either settings, but the runs arrive with two departures from the "
        "printed ones only: c_h = 0.1 for 0.01, and an inner loop cut off after 10 steps for one of at most "
        "250. As printed they end on the front off their rays, or on the plateau (ferero/fig4, claim "
        "f-ferero, has each departure alone).",
        rests_on=("ferero_hard", "ferero_hard_printed"),
    )
    a.table(_properties(cells, measured))
    a.note("Rates of convergence and flexibility are the paper's statements and are not decided by runs.")


def outcome(job: JobRows) -> str:
    """Share of the runs that arrive, with the spread."""
    return f"{percent(arrived().share(job))} of {len(first_output(job))} runs ({spread(job)})"


def _ascents(job: JobRows) -> float:
    """Share of the inner preferences' runs on whose way an objective rises, and which arrive."""
    rising = rises(job) > VISIBLE
    return float((arrived(5.0, 1e-2).of(job, INNER) & rising).mean())


def lost(a: Artifact, jobs: list[str]) -> str:
    """How many of the jobs' runs finished, where not all did."""
    return sum((a.jobs[j].runs for j in jobs), RunCount(0, 0)).short


def _cell(cells: pd.DataFrame, row: str, column: str) -> str:
    return str(cells[(cells["row"] == row) & (cells["column"] == column)]["value"].iloc[0])


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-").replace("--", "-")


def _properties(cells: pd.DataFrame, measured: dict[tuple[str, str], str]) -> pd.DataFrame:
    """Methods by properties; a measured cell shows what was found behind the published word."""
    rows: list[dict[str, Any]] = []
    for name in cells["row"].drop_duplicates():
        entry: dict[str, Any] = {"method": name}
        for column in cells["column"].drop_duplicates():
            found = measured.get((name, column))
            entry[column] = _cell(cells, name, column) + (f" [{found}]" if found else "")
        rows.append(entry)
    return pd.DataFrame(rows)


NOTATION = [
    ("theta, x", "decision variables", "x", "(R, P)"),
    ("F(theta)", "objective values", "Point.F", "(R, M)"),
    ("J = (nabla F)'", "Jacobian, row m is the gradient of f_m", "Point.rows('f')", "(R, M, P)"),
    ("K = J J'", "Gram matrix of the gradients", "Point.gram('f')", "(R, M, M)"),
    ("A", "ordering cone C_A = {y : A y >= 0}, the relative preference", "FERERO.cone", "(R, n, M)"),
    ("B_h, b_h", "equality constraint H = B_h F + b_h = 0 (ray, line)", "FERERO.line", "(R, h, M), (R, h)"),
    (
        "B_g, b_g",
        "inequality constraint G = B_g F + b_g <= 0",
        "FERERO.upper, inequality_matrix",
        "(R, g, M), (R, g)",
    ),
    ("A_ag", "stacked [A; B_g; B_h]", "state['A_ag']", "(R, n+g+h, M)"),
    ("lambda = (lf, lg, lh)", "multipliers; lf, lg >= 0, lh free", "state['lam']", "(R, n+g+h)"),
    ("d", "update direction, theta <- theta + alpha d", "Algorithm.step", "(R, P)"),
    ("alpha", "step of theta", "step_size", "number"),
    ("gamma", "step of lambda", "inner_step (Alg. 1), gamma (Alg. 2, 3)", "number"),
    ("c_g, c_h", "rates at which violations are driven to zero", "c_g, c_h", "number"),
    ("xi_1, xi_2", "independent minibatches", "oracle=minibatch, samples=2", "-"),
]


@artifact("ferero/table4")
def table4(a: Artifact) -> None:
    """Notation: symbol, meaning, name in the code, shape."""
    a.table(pd.DataFrame(NOTATION, columns=["symbol", "meaning", "in mobench", "shape"]))
    from mobench.jobs.targets import parameters

    known = {*parameters(FERERO), *parameters(FEREROSA)}
    settings = {"A", "B_h, b_h", "B_g, b_g", "alpha", "gamma", "c_g, c_h"}
    words = " ".join(entry[2] for entry in NOTATION if entry[0] in settings)
    used = set(re.findall(r"[a-z]\w+", re.sub(r"\(.*?\)|FERERO\.", "", words)))
    a.check(
        "names-exist",
        "Every setting named in the notation table (Table 4) exists in the code",
        measured=f"{len(used & known)} of {len(used)} names found",
        tolerance="all",
        holds=len(used) > 0 and used <= known,
        any_scale=True,
    )


def _setting(job: JobRows, parameter: str) -> float:
    key = {"alpha": "step_size", "T": "steps"}.get(parameter, parameter)
    return float(job.config["steps"] if key == "steps" else job.config["algorithm"][key])


def _inner_loop(label: str, key: str) -> list[tuple[str, str, str, float]]:
    """What Appendix H.1 prints of Algorithm 1's inner loop, for every figure of the toy problem."""
    text = published("ferero/text").rows
    text = text[text["row"] == "subprogram PGD"]
    printed = dict(zip(text["column"], text["value"].astype(float), strict=True))
    names = {"inner_step": "step", "inner_steps": "max iterations", "inner_tolerance": "tolerance"}
    return [(label, key, ours, printed[theirs]) for ours, theirs in names.items()]


def _settings(
    a: Artifact,
    where: str,
    cells: list[tuple[str, str, str, float]],
    explained: dict[tuple[str, str], str],
    published: str = "",
) -> None:
    """A table of settings: what is printed, what the runs used, why they differ.

    `explained`: reasons of the documented deviations by (panel, parameter). Another deviation is a failed
    claim. `published`: how many settings are printed, in words, where not all of them are.
    """
    rows = [(*cell, explained.get((cell[0], cell[2]), "")) for cell in cells]
    entries = []
    deviating = []
    unexplained = []
    for label, key, parameter, printed, why in rows:
        ours = _setting(a.jobs[key], parameter)
        same = ours == printed
        entries.append(
            {
                "panel": label,
                "parameter": parameter,
                "published": printed,
                "ours": ours,
                "equal": "yes" if same else "no",
                "deviation": "" if same else why,
            }
        )
        if not same:
            deviating.append(f"{label} {parameter}: {printed:g} -> {ours:g}")
            if not why:
                unexplained.append(deviating[-1])
    a.table(pd.DataFrame(entries))
    agree = len(entries) - len(deviating)
    a.claim(
        "settings-equal",
        "The figure was made with the printed hyper-parameters",
        where,
        published=published or f"{len(entries)} settings",
        measured=f"{agree} of {len(entries)} equal" + (f"; {'; '.join(deviating)}" if deviating else ""),
        tolerance="exact; partial if each deviation is one that is explained",
        holds=not unexplained if unexplained or not deviating else "partial",
        reason="; ".join(
            sorted(
                {why for label, key, p, printed, why in rows if why and _setting(a.jobs[key], p) != printed}
            )
        ),
        any_scale=True,
    )


@artifact("ferero/table6")
def table6(a: Artifact) -> None:
    """Hyper-parameters of Figure 3."""
    keys = {"LS": "a", "MGDA": "b", "PMTL": "c", "EPO": "d", "FERERO Fig 3e": "e", "FERERO Fig 3f": "f"}
    why = "the outer shifted lines need 4 times the step to arrive in 100 iterations (Figure 3f)"
    values = published("ferero/table6").rows
    cells = [(r["row"], keys[r["row"]], r["metric"], float(r["value"])) for r in values.to_dict("records")]
    for label in ("FERERO Fig 3e", "FERERO Fig 3f"):
        cells += [(label, keys[label], "c_h", 1.0), *_inner_loop(label, keys[label])]
    _settings(a, "Table 6, Appendix H.1", cells, {("FERERO Fig 3f", "alpha"): why})
    a.note(
        "Of Algorithm 1, Appendix H.1 prints the inner loop, and c_h = 1 where no table has another: "
        "rows of FERERO."
    )


@artifact("ferero/table7")
def table7(a: Artifact) -> None:
    """Hyper-parameters of Figure 4."""
    keys = {("Figures 4a-4c", m): k for m, k in zip(("PMTL", "EPO", "FERERO"), "abc", strict=True)}
    keys |= {("Figures 4d-4f", m): k for m, k in zip(("PMTL", "EPO", "FERERO"), "def", strict=True)}
    values = published("ferero/table7").rows.to_dict("records")
    cells = [
        (f"{r['row']} {r['column']}", keys[r["row"], r["column"]], r["metric"], float(r["value"]))
        for r in values
    ]
    easy = "Figures 4a-4c FERERO"
    hard = "Figures 4d-4f FERERO"
    cells += [*_inner_loop(easy, "c"), *_inner_loop(hard, "f")]
    rate = "the printed c_h leaves 30 % of H after 200 iterations"
    inner = (
        "an inner loop of 250 steps to 1e-5 leads the inner runs to the plateau or off their rays, "
        "with either c_h"
    )
    explained = {(hard, "c_h"): rate, (hard, "inner_steps"): inner, (hard, "inner_tolerance"): inner}
    _settings(a, "Table 7, Appendix H.1", cells, {k: f"{why} (Figure 4f)" for k, why in explained.items()})
    a.note(
        "Figure 4f departs twice: c_h, and an inner loop that is cut off after 10 steps. Neither departure "
        "alone lets the inner runs arrive (ferero/fig4, claim f-ferero)."
    )
    a.note(
        "Table 7 prints 120 iterations for EPO in Figure 4e, the text and Table 11 print 80; "
        "both are run in fig4."
    )


@artifact("ferero/table10")
def table10(a: Artifact) -> None:
    """Hyper-parameters of Figure 8; the decisive one is not printed."""
    values = published("ferero/table10").rows.to_dict("records")
    cells = [(r["row"], r["row"][-1], r["metric"], float(r["value"])) for r in values]
    panels = list(dict.fromkeys(r["row"] for r in values))
    why = (
        "gamma is not printed; the step of the inner loop, which it is if all is the same unless otherwise "
        "specified, is too small: the runs do not arrive (Figure 8, series *_literal)"
    )
    cells += [(panel, panel[-1], "gamma", 0.1) for panel in panels]
    _settings(
        a,
        "Table 10, Appendix H.2",
        cells,
        {(panel, "gamma"): why for panel in panels},
        published=f"{len(values)} settings; gamma not among them, 0.1 if the same as elsewhere",
    )


# label, gradients of an iteration; the panels that it ran in
TIMED = {
    "ls": ("LS", 1),
    "pmtl": ("PMTL", 2),
    "epo": ("EPO", 2),
    "epo_generic_lp": ("EPO, generic LP solver (HiGHS through CVXPY)", 2),
    "ferero": ("FERERO", 2),
    "ferero_printed": ("FERERO, settings of Figure 4f as printed", 2),
    "ferero_exact": ("FERERO, exact subproblem", 2),
    "sa": ("FERERO, Algorithm 2", 2),
}
PANELS = {"easy": "Synthetic, Figures 4a-4c", "hard": "Synthetic, Figures 4d-4f"}
# of two times: below, one is clearly smaller; up to the second, single runs on a shared machine cannot tell
# them apart
CLEAR = 0.8
EQUAL = 1.25


@artifact("ferero/table11")
def table11(a: Artifact) -> None:
    """Run time of single runs (R = 1, median of three) beside the published values;
    only ratios and counts are compared.
    """
    cells = published("ferero/table11").rows
    rows = []
    time = {}
    count = {}
    for tag, panel in PANELS.items():
        block = cells[cells["row"] == panel]
        for key, (label, gradients) in TIMED.items():
            if f"{tag}_{key}_0" not in a.jobs:
                continue
            jobs = [a.jobs[f"{tag}_{key}_{r}"] for r in range(3)]
            total = float(np.median([job.meta["seconds_train"] for job in jobs]))
            T = int(jobs[0].config["steps"])
            time[tag, key] = total
            count[tag, key] = T
            paper = {
                m: _published_time(block, label, m)
                for m in ("iterations", "per-iteration run time", "total run time")
            }
            rows.append(
                {
                    "starts": panel.removeprefix("Synthetic, "),
                    "method": label,
                    "iterations": T,
                    "published iterations": paper["iterations"],
                    "per iteration, ms": 1e3 * total / T,
                    "published, ms": _ms(paper["per-iteration run time"]),
                    "total, ms": 1e3 * total,
                    "published total, ms": _ms(paper["total run time"]),
                    "gradients per iteration": gradients,
                    "runs": sum((job.runs for job in jobs), RunCount(0, 0)),
                }
            )
    image = cells[cells["row"].str.startswith("Multi")]
    epoch = {m: image_epoch(a, m) for m in ("ls", "ferero", "epo", "pmtl")}
    for m, (label, gradients, pictures) in IMAGE_COST.items():
        rows.append(
            {
                "starts": "images (LeNet; iteration: an epoch)",
                "method": label,
                "per iteration, ms": 1e3 * epoch[m],
                "published, ms": _ms(_published_time(image, label, "per-epoch run time")),
                "gradients per iteration": f"{gradients} a step, {pictures} pictures back-propagated",
                "runs": sum((a.jobs[f"image_{m}_{r}"].runs for r in range(3)), RunCount(0, 0)),
            }
        )
    printed_columns = ("published iterations", "published, ms", "published total, ms")
    a.table(
        pd.DataFrame(rows),
        given=("starts", "method", "iterations", *printed_columns, "gradients per iteration"),
    )
    _iterations(a, cells, count)
    _toy_times(a, time, count)
    _single_loop_times(a, time, count)
    meta = a.jobs["easy_ls_0"].meta
    a.note(f"Measured on {meta['device']}, {meta['execution']}; absolute times are not comparable.")
    a.note(
        "Gradients per iteration: ours needs no further backward pass for the direction (a product with the "
        "rows)."
    )
    a.note(
        "FERERO from hard starts is Figure 4f's (c_h = 0.1, inner loop cut off after 10 steps), and beside "
        "it what is printed. Figures 3(a-c) and 3(d-f) in the paper's Table 11 are Figures 4a-c and 4d-f."
    )
    _image_epochs(a, epoch)


def _timed(*keys: str) -> list[str]:
    """Names of the jobs of methods in a panel: easy_epo and the like."""
    return [f"{key}_{r}" for key in keys for r in range(3)]


def _iterations(a: Artifact, cells: pd.DataFrame, count: dict[tuple[str, str], int]) -> None:
    names = {"pmtl": "PMTL", "epo": "EPO", "ferero": "FERERO"}
    ours = {(tag, m): count[tag, m] for tag in PANELS for m in names}
    printed = {
        (tag, m): _published_time(cells[cells["row"] == PANELS[tag]], names[m], "iterations")
        for tag, m in ours
    }
    differ = [
        f"{tag} {m}: {printed[tag, m]:g} -> {ours[tag, m]}"
        for tag, m in ours
        if ours[tag, m] != printed[tag, m]
    ]
    a.claim(
        "iterations",
        "Iterations of the toy experiments",
        "Table 11",
        published="100, 60, 10; 200, 80, 200",
        measured="equal" if not differ else "; ".join(differ),
        tolerance="exact",
        holds=True if not differ else "partial",
        reason="Table 7 prints 120 iterations for EPO from hard starts; 80 do not suffice (fig4, "
        "series e_80)."
        if differ
        else "",
        any_scale=True,
        rests_on=_timed(*(f"{tag}_{m}" for tag, m in ours)),
    )


def _toy_times(a: Artifact, time: dict[tuple[str, str], float], count: dict[tuple[str, str], int]) -> None:
    per = {key: 1e3 * time[key] / count[key] for key in time}
    generic, own = (
        {tag: per[tag, "ferero"] / per[tag, lp] for tag in PANELS} for lp in ("epo_generic_lp", "epo")
    )
    a.claim(
        "per-iteration",
        "An iteration of FERERO costs less than one of EPO",
        "Table 11",
        published="7.5e-4 s < 4.93e-3 s (easy), 7.3e-4 s < 4.93e-3 s (hard)",
        measured=f"ratio to EPO with a generic LP solver {generic['easy']:.2f} (easy), {generic['hard']:.2f} "
        f"(hard); to EPO with our LP of one interval {own['easy']:.2g}, {own['hard']:.2g} "
        f"({per['easy', 'ferero']:.2g} ms against {per['easy', 'epo']:.2g} ms)",
        tolerance="ratio < 1 from both starts, with either LP solver; partial if with the generic one only",
        holds=True
        if max(*generic.values(), *own.values()) < 1
        else ("partial" if max(generic.values()) < 1 else False),
        reason="It holds if EPO's linear program goes through CVXPY, as in its public code, which the paper "
        "runs. Two objectives have a program of one interval with a closed form; with that EPO is the faster "
        "of the two: the order is one of LP solvers.",
        rests_on=_timed(*(f"{tag}_{m}" for tag in PANELS for m in ("ferero", "epo", "epo_generic_lp"))),
        timed=True,
    )
    easy = {m: 1e3 * time["easy", m] for m in ("ferero", "pmtl", "epo_generic_lp")}
    pairs = easy["ferero"] / easy["pmtl"], easy["pmtl"] / easy["epo_generic_lp"]
    a.claim(
        "total-easy",
        "Total time from easy starts: FERERO < PMTL < EPO",
        "Table 11, Figures 4a-4c",
        published="0.0075 < 0.0767 < 0.296 s",
        measured=_order(easy) + f"; EPO with our LP {1e3 * time['easy', 'epo']:.3g} ms",
        tolerance=f"FERERO / PMTL and PMTL / EPO with a generic LP solver below {CLEAR:g}; partial if one of "
        f"them, or below {EQUAL:g}",
        holds=_clear(*pairs),
        reason=f"FERERO / PMTL {pairs[0]:.2f} (published 0.10), PMTL / EPO {pairs[1]:.2f} (0.26). FERERO "
        "spends its ten iterations in the printed inner loop of up to 250 steps; with the exact subproblem "
        f"the same ten take {1e3 * time['easy', 'ferero_exact']:.3g} ms.",
        rests_on=_timed(*(f"easy_{m}" for m in easy)),
        timed=True,
    )
    hard = {m: 1e3 * time["hard", m] for m in ("ferero", "pmtl", "epo_generic_lp")}
    ratio = hard["ferero"] / hard["pmtl"]
    rest = hard["pmtl"] / hard["epo_generic_lp"]
    a.claim(
        "total-hard",
        "Total time from hard starts: FERERO < PMTL < EPO",
        "Table 11, Figures 4d-4f",
        published="0.146 < 0.153 < 0.394 s",
        measured=_order(hard)
        + f"; FERERO as printed {1e3 * time['hard', 'ferero_printed']:.3g} ms, EPO with our LP "
        f"{1e3 * time['hard', 'epo']:.3g} ms",
        tolerance=f"FERERO / PMTL below {EQUAL:g} (published 0.95), PMTL / EPO with a generic LP solver "
        f"below {CLEAR:g}; partial if one "
        "of them",
        holds=True
        if ratio < EQUAL and rest < CLEAR
        else ("partial" if ratio < EQUAL or rest < CLEAR else False),
        reason=f"FERERO / PMTL {ratio:.2f}, PMTL / EPO {rest:.2f} (published 0.39). Both take 200 "
        "iterations; ours of PMTL solve their program in closed form, those of FERERO run ten inner steps, "
        "and as printed up "
        "to 250.",
        rests_on=_timed(*(f"hard_{m}" for m in hard)),
        timed=True,
    )


def _order(milliseconds: dict[str, float]) -> str:
    return " < ".join(
        f"{TIMED[m][0]} {ms:.3g} ms" for m, ms in sorted(milliseconds.items(), key=lambda x: x[1])
    )


def _clear(*ratios: float) -> bool | Literal["partial"]:
    """Whether each of the times is clearly smaller; partial if some are, or if none is clearly larger."""
    if max(ratios) < CLEAR:
        return True
    return "partial" if min(ratios) < CLEAR or max(ratios) <= EQUAL else False


def _single_loop_times(
    a: Artifact, time: dict[tuple[str, str], float], count: dict[tuple[str, str], int]
) -> None:
    """Algorithm 2 against Algorithm 1 (Appendix H.2), with the printed inner loop and with our exact
    subproblem.

    That it takes more iterations is a claim of ferero/fig8.
    """
    printed = {"easy": "ferero", "hard": "ferero_printed"}
    exact = dict.fromkeys(PANELS, "ferero_exact")
    total = [{tag: time[tag, "sa"] / time[tag, one[tag]] for tag in PANELS} for one in (printed, exact)]
    each = [
        {tag: ratio[tag] * count[tag, one[tag]] / count[tag, "sa"] for tag in PANELS}
        for ratio, one in zip(total, (printed, exact), strict=True)
    ]
    jobs = _timed(*(f"{tag}_{m}" for tag in PANELS for m in (printed[tag], "ferero_exact", "sa")))
    budgets = {tag: f"{count[tag, 'sa']} iterations against {count[tag, printed[tag]]}" for tag in PANELS}
    tolerance = (
        f"below {CLEAR:g} from both starts, with the printed inner loop and with the exact subproblem; "
        f"partial if in some of these cases, or if none is above {EQUAL:g}"
    )
    a.refer("ferero/fig8", "more-iterations")
    a.claim(
        "sa-per-iteration",
        "An iteration of Algorithm 2 costs less than one of Algorithm 1",
        "Appendix H.2",
        published="smaller per-iteration complexity",
        measured="ratio to Algorithm 1 with the printed inner loop "
        + _ratios(each[0])
        + "; with our exact subproblem "
        + _ratios(each[1]),
        tolerance=tolerance,
        holds=_clear(*(ratio for one in each for ratio in one.values())),
        reason="Algorithm 2 takes one step of the multipliers where the inner loop takes up to 250. Two "
        "objectives and one equality have a program with a closed form, which costs hardly more than that "
        "one step.",
        rests_on=jobs,
        timed=True,
    )
    a.claim(
        "sa-total",
        "Algorithm 2 takes less time in total than Algorithm 1",
        "Appendix H.2",
        published="smaller total time complexity",
        measured="ratio of the printed iterations' times "
        f"({'; '.join(f'{tag}: {b}' for tag, b in budgets.items())}): printed inner loop "
        f"{_ratios(total[0])}; our exact subproblem {_ratios(total[1])}",
        tolerance=tolerance,
        holds=_clear(*(ratio for one in total for ratio in one.values())),
        reason="From easy starts Algorithm 2 is given ten times the iterations of Algorithm 1 (Tables 7 and "
        "10), which its cheaper iterations make up for only if they cost less than a tenth; from hard starts "
        "1.25 times.",
        rests_on=jobs,
        timed=True,
    )


def _ratios(by_start: dict[str, float]) -> str:
    return ", ".join(f"{ratio:.2f} ({tag})" for tag, ratio in by_start.items())


# method: label, gradients of a step, pictures back-propagated in it (batch 256)
IMAGE_COST = {
    "ls": ("LS", 1, 256),
    "ferero": ("FERERO", 3, 384),
    "epo": ("EPO", 2, 512),
    "pmtl": ("PMTL", 2, 512),
}


EPOCH = 469  # steps of an epoch of 120,000 pictures


def image_epoch(a: Artifact, method: str) -> float:
    """Seconds of an epoch of one network: median of three runs."""
    jobs = [a.jobs[f"image_{method}_{r}"] for r in range(3)]
    return float(np.median([EPOCH * job.meta["seconds_train"] / job.config["steps"] for job in jobs]))


def _image_epochs(a: Artifact, epoch: dict[str, float]) -> None:
    meta = a.jobs["image_ls_0"].meta
    cells = published("ferero/table11").rows
    block = cells[cells["row"].str.startswith("Multi")]
    printed = {m: _published_time(block, IMAGE_COST[m][0], "per-epoch run time") or np.nan for m in epoch}
    ours, theirs = ({m: v[m] / v["ls"] for m in ("ferero", "epo", "pmtl")} for v in (epoch, printed))
    ordered = all(epoch[one] < epoch[two] for one, two in pairwise(("ls", "ferero", "epo", "pmtl")))
    near = all(0.5 <= ours[m] / theirs[m] <= 2 for m in ours)
    a.claim(
        "image-epochs",
        "An epoch on image data costs LS < FERERO < EPO < PMTL, with factors of 2 to 3.4",
        "Table 11, image data",
        published="3.54 < 7.02 < 9.66 < 11.88 s; "
        + ", ".join(f"{IMAGE_COST[m][0]} {x:.2f}" for m, x in theirs.items()),
        measured=", ".join(f"{IMAGE_COST[m][0]} {epoch[m]:.3g} s" for m in epoch)
        + "; in units of LS "
        + ", ".join(f"{IMAGE_COST[m][0]} {x:.2f}" for m, x in ours.items())
        + f"; from {a.jobs['image_ls_0'].config['steps']} steps each on {meta['device']}",
        tolerance="the same order, and each factor within a factor of two of the published one; partial if "
        "one of the two",
        holds=True if ordered and near else ("partial" if ordered or near else False),
        reason=f"The order {'holds' if ordered else 'does not hold'}, the factors "
        f"{'are' if near else 'are not'} near. Both EPO and PMTL take two gradients a step here: the "
        "direction is a product with the rows, where the public code runs a third backward pass. Their "
        "programs of two variables have closed forms, and cost next to nothing.",
        rests_on=_timed(*(f"image_{m}" for m in epoch)),
        timed=True,
    )
    a.note(
        "Pictures back-propagated per step of a batch of 256: the public code LS 256, FERERO 384, EPO and "
        "PMTL 768; here LS 256, FERERO 384, EPO and PMTL 512."
    )


def _published_time(block: pd.DataFrame, label: str, column: str) -> float | None:
    found = block[(block["row"].notna()) & (block["column"] == label) & (block["metric"] == column)]
    return float(found["value"].iloc[0]) if len(found) else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
