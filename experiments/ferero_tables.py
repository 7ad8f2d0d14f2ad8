"""FERERO's tables that belong to the toy problem: 1, 4, 5 (properties), 6, 7, 10 (settings), 11 (run time)."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mobench.algorithms.epo import EPO
from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_sa import FEREROSA
from mobench.algorithms.ls import LS
from mobench.algorithms.pmtl import PMTL
from mobench.algorithms.stch import STCH
from mobench.algorithms.tch import TCH
from mobench.artifacts import Artifact, JobRows, Runs, artifact
from mobench.core import Context, Free, Spec, TablePoint, Weighting

from .toy import ends, published, within, worst


def direction(method: Weighting, F: Tensor, J: Tensor, w: Tensor) -> Tensor:
    """The method's first direction at a point with objective values F (R, M) and rows J (R, M, P)."""
    R, M, P = J.shape
    theta = torch.zeros(R, P, dtype=F.dtype)
    spec = Spec(R=R, M=M, N=0, P=P, X=Free())
    ctx = Context(spec=spec, prefs=w, all_prefs=w[:1], theta=theta, exact=lambda _: F, steps=1)
    point = TablePoint(theta, Free(), M, {}, F, J)
    return method.step((point,), method.init(ctx), 0, 1.0)[0]


METHODS: dict[str, list[Weighting]] = {
    "Linear Scalarization": [LS()],
    "(Smooth) Tchebycheff": [TCH(), STCH(mu=0.1)],
    "PMTL": [PMTL(references=5, phase1=0.0)],
    "EPO": [EPO()],
    "FERERO": [FERERO(line="none")],
}


def scale_change(method: Weighting, draws: int = 200) -> float:
    """Largest 1 - cos between the directions for F and for Lambda F, over random points (M = 2, P = 6)."""
    rng = np.random.default_rng(0)
    J = torch.from_numpy(rng.standard_normal((draws, 2, 6)))
    F = torch.from_numpy(rng.uniform(0.1, 1.0, (draws, 2)))
    scale = torch.from_numpy(10.0 ** rng.uniform(-1, 1, (draws, 2)))
    w = torch.full((draws, 2), 0.5, dtype=torch.float64)
    d, e = direction(method, F, J, w), direction(method, scale * F, scale.unsqueeze(-1) * J, w)
    size = torch.linalg.vector_norm(d, dim=-1) * torch.linalg.vector_norm(e, dim=-1)
    moving = size > 1e-12
    return float((1 - (d * e).sum(-1) / size.clamp_min(1e-300))[moving].max())


def weak_optimum_step(method: Weighting) -> tuple[float, float]:
    """|d| and cos(d, -g_2) at f_1 = 0 with zero gradient, f_2 = 0.5 with gradient g_2: weakly optimal, not optimal."""
    g2 = torch.tensor([0.6, -0.8, 0.0], dtype=torch.float64)
    J = torch.stack([torch.zeros_like(g2), g2]).unsqueeze(0)
    F = torch.tensor([[0.0, 0.5]], dtype=torch.float64)
    d = direction(method, F, J, torch.full((1, 2), 0.5, dtype=torch.float64))[0]
    norm = float(torch.linalg.vector_norm(d))
    return norm, float(-(d @ g2)) / norm if norm > 0 else 0.0


def inside(job: JobRows) -> tuple[float, float]:
    """Share of the runs, and of the preferences with some run, that end on the front away from its ends.

    The outermost preferences (weight below 0.15 or above 0.85) are left out: their points are at the ends.
    """
    rows = ends(job)
    rows = rows[rows["preference_1"].between(0.15, 0.85)]
    good = (rows["front_distance"] < 0.02) & rows["polar"].between(5, 85)
    return float(good.mean()), float(good.groupby(rows["k"]).any().mean())


@artifact("ferero/table5")
def table5(a: Artifact) -> None:
    """Properties of the methods; the cells that a computation can decide are checked."""
    cells = published("ferero_table5")
    # the least of a row's methods: a "no" must hold for each of them
    change = {name: min(scale_change(m) for m in methods) for name, methods in METHODS.items()}
    steps = {name: [weak_optimum_step(m) for m in methods] for name, methods in METHODS.items()}
    jobs = {
        "Linear Scalarization": ["ls"],
        "(Smooth) Tchebycheff": ["tch", "stch"],
        "PMTL": ["pmtl"],
        "EPO": ["epo"],
        "FERERO": ["ferero"],
    }
    share = {name: min(inside(a.jobs[j]) for j in names) for name, names in jobs.items()}
    measured: dict[tuple[str, str], str] = {}
    for name in METHODS:
        measured[name, "nonconvex front"] = f"{share[name][0]:.0%} of runs{lost(a, jobs[name])} end inside the front"
        measured[name, "scale invariance"] = f"max 1 - cos = {change[name]:.1e}"
        moved = min(s for s, _ in steps[name])
        measured[name, "escapes weak optimal"] = f"|d| = {moved:.2g} at a weakly optimal point"
    a.table(_properties(cells, measured))
    for name in METHODS:
        expected = _cell(cells, name, "nonconvex front")
        a.claim(
            f"nonconvex-{_slug(name)}",
            f"{name} {'finds' if expected == 'yes' else 'does not find'} the inside of a concave front",
            "Table 5, nonconvex front",
            published=expected,
            measured=measured[name, "nonconvex front"],
            tolerance="yes: some run of every inner preference ends inside; no: none does",
            holds=share[name][1] == 1.0 if expected == "yes" else share[name][0] == 0.0,
        )
        expected = _cell(cells, name, "scale invariance")
        a.claim(
            f"scale-{_slug(name)}",
            f"The direction of {name} {'does not change' if expected == 'yes' else 'changes'} when objectives are rescaled",
            "Table 5, scale invariance (without constraints)",
            published=expected,
            measured=measured[name, "scale invariance"],
            tolerance="yes: 1 - cos <= 1e-12 on 200 random points; no: some point above 1e-3",
            holds=change[name] <= 1e-12 if expected == "yes" else change[name] > 1e-3,
            any_scale=True,
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
        )
    a.note(
        "Cells without a measurement are the paper's statements; (X)WC-MGDA was never run by the authors and is quoted."
    )
    a.note(
        "At the point of the weak-optimality check linear and Tchebycheff scalarization do move, because every weight here "
        "is positive; the published 'no' speaks of their minimisers and is not decided by this check."
    )


@artifact("ferero/table1")
def table1(a: Artifact) -> None:
    """Properties of the methods; exactness and controlled ascent are checked on the runs of Figures 3 and 4."""
    cells = published("ferero_table1")
    measured: dict[tuple[str, str], str] = {}
    names = {"PMTL": "pmtl", "EPO": "epo", "FERERO": "ferero"}
    for name, job in names.items():
        rows, hard = ends(a.jobs[job]), a.jobs[f"{job}_hard"]
        exact = within(rows, 1.0, 1e-3)
        measured[name, "exactness"] = worst(rows) + lost(a, [job])
        expected = _cell(cells, name, "exactness")
        a.claim(
            f"exact-{job}",
            f"{name} {'ends' if expected == 'yes' else 'does not end'} on its rays",
            "Table 1, exactness",
            published=expected,
            measured=measured[name, "exactness"],
            tolerance="yes: every run within 1° and 1e-3; no: some run is not (runs of Figure 3)",
            holds=exact == (expected == "yes"),
        )
        paths, inner = hard.paths(), ends(hard).query("k == 1 or k == 2")
        # an objective rises on the way and the run still arrives
        rise = np.array([(np.maximum.accumulate(paths[r][::-1], 0)[::-1] - paths[r]).max() for r in inner["run"]])
        arrived = (inner["angle_deg"] < 5) & (inner["front_distance"] < 1e-2)
        used = bool(((rise > 0.01) & arrived.to_numpy()).all())
        measured[name, "controlled ascent"] = (
            f"{arrived.mean():.0%} of hard inner runs{lost(a, [f'{job}_hard'])} arrive, rise {rise.max():.2g}"
        )
        expected = _cell(cells, name, "controlled ascent")
        a.claim(
            f"ascent-{job}",
            f"{name} {'reaches' if expected == 'yes' else 'does not reach'} its ray by letting an objective rise",
            "Table 1, controlled ascent",
            published=expected,
            measured=measured[name, "controlled ascent"],
            tolerance="yes: every hard inner run (Figure 4d-f, k = 1, 2) rises by > 0.01 and ends within 5° and 1e-2; "
            "no: some does not",
            holds=used == (expected == "yes"),
        )
    a.table(_properties(cells, measured))
    a.note("Rates of convergence and flexibility are the paper's statements and are not decided by runs.")


def lost(a: Artifact, jobs: list[str]) -> str:
    """How many of the jobs' runs finished, where not all did."""
    return sum((a.jobs[j].runs for j in jobs), Runs(0, 0)).short


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
    ("B_g, b_g", "inequality constraint G = B_g F + b_g <= 0", "FERERO.upper, inequality_matrix", "(R, g, M), (R, g)"),
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
    from mobench.config import parameters

    known = {*parameters(FERERO), *parameters(FEREROSA)}
    settings = {"A", "B_h, b_h", "B_g, b_g", "alpha", "gamma", "c_g, c_h"}
    words = " ".join(entry[2] for entry in NOTATION if entry[0] in settings)
    used = set(re.findall(r"[a-z]\w+", re.sub(r"\(.*?\)|FERERO\.", "", words)))
    a.claim(
        "names-exist",
        "Every setting named in the notation table exists in the code",
        "Table 4",
        published="static list",
        measured=f"{len(used & known)} of {len(used)} names found",
        tolerance="all",
        holds=len(used) > 0 and used <= known,
        any_scale=True,
    )


def _setting(job: JobRows, parameter: str) -> float:
    key = {"alpha": "step_size", "T": "steps"}.get(parameter, parameter)
    return float(job.config["steps"] if key == "steps" else job.config["algorithm"][key])


def _settings(
    a: Artifact, where: str, cells: list[tuple[str, str, str, float]], explained: dict[tuple[str, str], str]
) -> None:
    """A table of settings: what is printed, what the runs used, why they differ.

    `explained`: reasons of the documented deviations by (panel, parameter). Another deviation is a failed claim.
    """
    rows = [(*cell, explained.get((cell[0], cell[2]), "")) for cell in cells]
    entries, deviating, unexplained = [], [], []
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
        published=f"{len(entries)} settings",
        measured=f"{agree} of {len(entries)} equal" + (f"; {'; '.join(deviating)}" if deviating else ""),
        tolerance="exact",
        holds=not unexplained if unexplained or not deviating else "partial",
        reason="; ".join(
            sorted({why for label, key, p, printed, why in rows if why and _setting(a.jobs[key], p) != printed})
        ),
        any_scale=True,
    )


@artifact("ferero/table6")
def table6(a: Artifact) -> None:
    """Hyper-parameters of Figure 3."""
    keys = {"LS": "a", "MGDA": "b", "PMTL": "c", "EPO": "d", "FERERO Fig 3e": "e", "FERERO Fig 3f": "f"}
    why = "the outer shifted lines need 4 times the step to arrive in 100 iterations (Figure 3f)"
    values = published("ferero_table6")
    cells = [(r["row"], keys[r["row"]], r["metric"], float(r["value"])) for r in values.to_dict("records")]
    _settings(a, "Table 6", cells, {("FERERO Fig 3f", "alpha"): why})


@artifact("ferero/table7")
def table7(a: Artifact) -> None:
    """Hyper-parameters of Figure 4."""
    keys = {("Figures 4a-4c", m): k for m, k in zip(("PMTL", "EPO", "FERERO"), "abc", strict=True)}
    keys |= {("Figures 4d-4f", m): k for m, k in zip(("PMTL", "EPO", "FERERO"), "def", strict=True)}
    why = "the printed c_h cannot bring the inner runs to their rays in 200 iterations (Figure 4f, series f_literal)"
    values = published("ferero_table7").to_dict("records")
    cells = [(f"{r['row']} {r['column']}", keys[r["row"], r["column"]], r["metric"], float(r["value"])) for r in values]
    _settings(a, "Table 7", cells, {("Figures 4d-4f FERERO", "c_h"): why})
    hard = a.jobs["f"].config["algorithm"]
    a.note(
        f"Figure 4f also truncates the inner loop: {hard['inner_steps']} steps, tolerance {hard['inner_tolerance']:g}, against "
        f"250 and 1e-5 elsewhere."
    )
    a.note("Table 7 prints 120 iterations for EPO in Figure 4e, the text and Table 11 print 80; both are run in fig4.")


@artifact("ferero/table10")
def table10(a: Artifact) -> None:
    """Hyper-parameters of Figure 8."""
    values = published("ferero_table10").to_dict("records")
    _settings(a, "Table 10", [(r["row"], r["row"][-1], r["metric"], float(r["value"])) for r in values], {})


@artifact("ferero/table11")
def table11(a: Artifact) -> None:
    """Run time of single runs (R = 1, median of three) beside the published values; only ratios and counts are compared."""
    cells = published("ferero_table11")
    labels = {
        "ls": ("LS", 1),
        "pmtl": ("PMTL", 2),
        "epo": ("EPO", 2),
        "epo_generic_lp": ("EPO, generic LP solver (HiGHS through CVXPY)", 2),
        "ferero": ("FERERO", 2),
        "ferero_exact": ("FERERO, exact subproblem", 2),
    }
    rows, time, count = [], {}, {}
    for tag, panel in (("easy", "Synthetic, Figures 4a-4c"), ("hard", "Synthetic, Figures 4d-4f")):
        block = cells[cells["row"] == panel]
        for key, (label, gradients) in labels.items():
            jobs = [a.jobs[f"{tag}_{key}_{r}"] for r in range(3)]
            total = float(np.median([job.meta["seconds_train"] for job in jobs]))
            T = int(jobs[0].config["steps"])
            time[tag, key], count[tag, key] = total, T
            paper = {
                m: _published_time(block, label, m) for m in ("iterations", "per-iteration run time", "total run time")
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
                    "runs": sum((job.runs for job in jobs), Runs(0, 0)),
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
                "runs": sum((a.jobs[f"image_{m}_{r}"].runs for r in range(3)), Runs(0, 0)),
            }
        )
    printed_columns = ("published iterations", "published, ms", "published total, ms")
    a.table(pd.DataFrame(rows), given=("starts", "method", "iterations", *printed_columns, "gradients per iteration"))
    ours = {(tag, m): count[tag, m] for tag in ("easy", "hard") for m in ("pmtl", "epo", "ferero")}
    names = {"pmtl": "PMTL", "epo": "EPO", "ferero": "FERERO"}
    where = {"easy": "Synthetic, Figures 4a-4c", "hard": "Synthetic, Figures 4d-4f"}
    printed = {(tag, m): _published_time(cells[cells["row"] == where[tag]], names[m], "iterations") for tag, m in ours}
    differ = [f"{tag} {m}: {printed[tag, m]:g} -> {ours[tag, m]}" for tag, m in ours if ours[tag, m] != printed[tag, m]]
    a.claim(
        "iterations",
        "Iterations of the toy experiments",
        "Table 11",
        published="100, 60, 10; 200, 80, 200",
        measured="equal" if not differ else "; ".join(differ),
        tolerance="exact",
        holds=True if not differ else "partial",
        reason="Table 7 prints 120 iterations for EPO from hard starts; 80 do not suffice (fig4, series e_80)."
        if differ
        else "",
        any_scale=True,
    )
    per = {key: time[key] / count[key] for key in time}
    a.claim(
        "per-iteration",
        "An iteration of FERERO costs less than one of EPO with a generic LP solver",
        "Table 11",
        published="7.5e-4 s < 4.93e-3 s",
        measured=f"ratio {per['easy', 'ferero'] / per['easy', 'epo_generic_lp']:.2f} (easy), "
        f"{per['hard', 'ferero'] / per['hard', 'epo_generic_lp']:.2f} (hard)",
        tolerance="ratio < 1 in both",
        holds=all(per[t, "ferero"] < per[t, "epo_generic_lp"] for t in ("easy", "hard")),
        reason="FERERO runs the paper's inner loop. With the closed-form interval LP EPO is the faster of the two "
        f"({1e3 * per['easy', 'epo']:.2g} ms against {1e3 * per['easy', 'ferero']:.2g} ms): the ordering is one of LP solvers.",
    )
    whole = {m: time["easy", m] for m in ("ferero", "pmtl", "epo_generic_lp")}
    largest = max(whole["ferero"] / whole["pmtl"], whole["pmtl"] / whole["epo_generic_lp"])
    a.claim(
        "total-easy",
        "Total time from easy starts: FERERO < PMTL < EPO (generic LP solver)",
        "Table 11, Figures 4a-4c",
        published="0.0075 < 0.0767 < 0.296 s",
        measured=" < ".join(f"{m} {1e3 * s:.3g} ms" for m, s in sorted(whole.items(), key=lambda x: x[1])),
        tolerance="each ratio below 0.8; partial between 0.8 and 1.25, which single runs on a shared machine cannot tell apart",
        holds="partial" if 0.8 <= largest <= 1.25 else largest < 0.8,
        reason="Medians of three runs of 10, 100 and 60 iterations. FERERO spends its ten iterations in the printed inner loop "
        f"of up to 250 steps; with the exact subproblem the same ten take {1e3 * time['easy', 'ferero_exact']:.3g} ms. Its "
        "order against PMTL can turn on a busy machine.",
    )
    meta = a.jobs["easy_ls_0"].meta
    a.note(f"Measured on {meta['device']}, {meta['execution']}; absolute times are not comparable.")
    a.note("Gradients per iteration: ours needs no further backward pass for the direction (a product with the rows).")
    _image_epochs(a, epoch)


# method: label, gradients of a step, pictures back-propagated in it (batch 256)
IMAGE_COST = {"ls": ("LS", 1, 256), "ferero": ("FERERO", 3, 384), "epo": ("EPO", 2, 512), "pmtl": ("PMTL", 2, 512)}


EPOCH = 469  # steps of an epoch of 120,000 pictures


def image_epoch(a: Artifact, method: str) -> float:
    """Seconds of an epoch of one network: median of three runs."""
    jobs = [a.jobs[f"image_{method}_{r}"] for r in range(3)]
    return float(np.median([EPOCH * job.meta["seconds_train"] / job.config["steps"] for job in jobs]))


def _image_epochs(a: Artifact, epoch: dict[str, float]) -> None:
    meta = a.jobs["image_ls_0"].meta
    order = sorted(epoch, key=lambda m: epoch[m])
    clear = ["ls", "ferero", "epo", "pmtl"]
    pairs = [epoch[m] / epoch[n] for m, n in pairwise(clear)]
    a.claim(
        "image-epochs",
        "An epoch on image data costs LS < FERERO < EPO < PMTL",
        "Table 11, image data",
        published="3.54 < 7.02 < 9.66 < 11.88 s",
        measured=" < ".join(f"{IMAGE_COST[m][0]} {epoch[m]:.3g} s" for m in order)
        + f", from {a.jobs['image_ls_0'].config['steps']} "
        f"steps each on {meta['device']}",
        tolerance="ordering; ratios of neighbours between 0.8 and 1.25 count as equal (partial)",
        holds=True if max(pairs) < 0.8 else ("partial" if max(pairs) <= 1.25 else False),
        reason="Both EPO and PMTL take two gradients a step here: the direction is a product with the rows, where the public "
        "code runs a third backward pass. Their programs of two variables have closed forms, and cost next to nothing.",
    )
    a.note(
        "Pictures back-propagated per step of a batch of 256: the public code LS 256, FERERO 384, EPO and PMTL 768; here LS "
        "256, FERERO 384, EPO and PMTL 512."
    )


def _published_time(block: pd.DataFrame, label: str, column: str) -> float | None:
    found = block[(block["row"].notna()) & (block["column"] == label) & (block["metric"] == column)]
    return float(found["value"].iloc[0]) if len(found) else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
