"""FERERO's figures on the toy problem.

Criteria were fixed before the runs that they judge: ferero_runs.py has the rule.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_geometry import cone_from_rays, line_basis
from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.vlmop2 import COLOURS, front, trajectories
from mobench.core import Runs as Chosen
from mobench.core.preferences import angle_deg, from_rays_deg, ray
from mobench.metrics import front_distance
from mobench.problems import VLMOP2

from . import ferero_images, ferero_speech, ferero_tables  # noqa: F401  they register artifacts
from .ferero_runs import (
    HARD,
    SHARE,
    VISIBLE,
    arrived,
    before,
    end_points,
    first_hit,
    first_output,
    off_ray,
    on_front,
    on_the_way,
    outcome,
    percent,
    share,
    split,
    statuses,
)
from .toy import published

START = (
    "Starts are those of the authors' public code, 0.3 (+,-,+,-,...) + 0.1 N(0, I); the printed N(0, 1) per "
    "coordinate has gradients of about 1e-8, from which no method moves."
)


@artifact("ferero/fig1")
def fig1(a: Artifact) -> None:
    """Absolute preferences: thresholds f_2 <= eps, and rays,
    both drawn from the matrices the algorithm uses.
    """
    F = front()
    fig, axes = st.panels(1, 2)
    residual = 0.0
    thresholds = (0.2, 0.4, 0.6, 0.8)
    ax = axes[0, 0]
    st.objective_axes(ax)
    st.draw_front(ax, F)
    start = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    for eps, colour in zip(thresholds, COLOURS, strict=True):
        B, b = FERERO(upper=(None, eps))._inequality(start)
        ax.axhline(eps, color=colour, ls=(0, (4, 3)), lw=1.0)
        x = np.linspace(0, 1, 11)
        drawn = np.stack([x, np.full_like(x, eps)], 1)
        residual = max(residual, float(np.abs(drawn @ B[0].numpy().T + b[0].numpy()).max()))
        best = F[F[:, 1] <= eps][np.argmin(F[F[:, 1] <= eps][:, 0])]
        ax.plot(*best, "o", color=colour, ms=5, zorder=5)
        ax.annotate(
            f"$f_2 \\leq {eps}$",
            (-0.08, eps),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=7.5,
            color=colour,
        )
    ax.set_title("(a) thresholds  $B_g F + b_g \\leq 0$")
    ax = axes[0, 1]
    st.objective_axes(ax)
    st.draw_front(ax, F)
    w = from_rays_deg([81.0, 57.0, 33.0, 9.0])
    v = ray(w)
    B = line_basis(ray(w))
    for k, colour in enumerate(COLOURS):
        direction = v[k].numpy()
        st.draw_ray(ax, direction, color=colour, lw=1.0)
        drawn = np.linspace(0, 1.4, 11)[:, None] * direction
        residual = max(residual, float(np.abs(drawn @ B[k].numpy().T).max()))
        hit = F[np.argmin(np.abs(F @ B[k].numpy().T)[:, 0])]
        ax.plot(*hit, "o", color=colour, ms=5, zorder=5)
    ax.set_title("(b) rays  $B_h F = 0$")
    a.figure(fig)
    a.check(
        "lines-are-constraints",
        "The drawn lines are the zero sets of B_g F + b_g and B_h F (Figure 1, Section 2)",
        measured=f"largest |B F + b| on the drawn lines {residual:.1e}",
        tolerance="1e-12",
        holds=residual < 1e-12,
        any_scale=True,
    )


@artifact("ferero/fig2")
def fig2(a: Artifact) -> None:
    """The set F_0 - C_A that improves on F_0, for the Pareto cone and for a wider one."""
    # the criterion counts points of a uniform grid of u
    u = torch.linspace(-1.0, 1.0, 2001, dtype=torch.float64)
    F = VLMOP2().front_point(u).numpy()
    F0 = np.array([0.8, 0.8])
    wide = cone_from_rays(torch.tensor([[2.0, -1.0], [-1.0, 2.0]], dtype=torch.float64)).numpy()
    fig, axes = st.panels(1, 2)
    grid = np.linspace(-0.1, 1.15, 501)
    X, Y = np.meshgrid(grid, grid)
    shares = []
    for ax, A, title in (
        (axes[0, 0], np.eye(2), "(a) $A = I$"),
        (axes[0, 1], wide, "(b) $A = [2, 1; 1, 2]/\\sqrt{5}$"),
    ):
        st.objective_axes(ax)
        margin = np.min([A[i, 0] * (F0[0] - X) + A[i, 1] * (F0[1] - Y) for i in range(2)], axis=0)
        ax.contourf(X, Y, margin, levels=[0.0, 10.0], colors=["#D9D9D9"], zorder=0)
        st.draw_front(ax, F)
        better = ((F0 - F) @ A.T >= 0).all(1)
        shares.append(float(better.mean()))
        ax.plot(
            *np.where(better[:, None], F, np.nan).T,
            color=st.BLUE,
            lw=3.0,
            zorder=3,
            label="better than $F_0$",
        )
        ax.plot(*F0, "o", color=st.GREEN, ms=6, zorder=5)
        ax.annotate("$F_0$", F0, xytext=(5, 5), textcoords="offset points")
        ax.set_title(title)
    axes[0, 0].legend(loc="lower left")
    a.figure(fig)
    a.claim(
        "wider-cone",
        "With A = I only a part of the front improves on F_0 = (0.8, 0.8); "
        "with the wider cone all of it does",
        "Figure 2",
        published="part of the front; all of it",
        measured=f"{shares[0]:.2f} and {shares[1]:.2f} of a uniform grid",
        tolerance="0 < share < 0.5 and share = 1",
        holds=0.0 < shares[0] < 0.5 and shares[1] == 1.0,
        any_scale=True,
    )


@artifact("ferero/fig3")
def fig3(a: Artifact) -> None:
    """Six panels on the toy problem."""
    titles = {
        "a": "(a) linear scalarization",
        "b": "(b) MGDA",
        "c": "(c) PMTL",
        "d": "(d) EPO",
        "e": "(e) FERERO, rays",
        "f": "(f) FERERO, shifted rays",
    }
    fig, axes = st.panels(2, 3, sharex=True, sharey=True)
    for ax, (key, title) in zip(axes.flat, titles.items(), strict=True):
        trajectories(ax, a.jobs[key], title, lines=key != "b", shifted=key == "f")
    for ax in axes[0]:
        ax.set_xlabel("")
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    a.figure(fig)
    end_points(
        a,
        {
            "a": "linear scalarization",
            "b": "MGDA",
            "c": "PMTL",
            "c_phase1": "PMTL, phase 1 of half of the iterations",
            "d": "EPO",
            "e": "FERERO, inner loop of the paper, warm start",
            "e_exact": "FERERO, exact subproblem",
            "e_cold": "FERERO, inner loop from lf = 1/M, lh = 1",
            "e_simplex": "FERERO, multipliers of the simplex",
            "e_public": "FERERO, settings of the public script",
            "e_half": "FERERO, step 0.5, inner loop of the paper",
            "e_half_exact": "FERERO, step 0.5, exact subproblem",
            "f": "FERERO, shifted rays, step 0.2",
            "f_printed": "FERERO, shifted rays, printed step 0.05",
        },
    )
    a.note(START)
    a.note("Panels show the paths of seed 0; end points of the other seeds are drawn faintly.")
    a.note(
        f"The paper draws one run of each preference. Here {a.jobs['e'].final['seed'].nunique()} starts of "
        "each "
        f"are run, and a statement holds if {percent(SHARE)} of the runs do what it says."
    )
    _fig3_baselines(a)
    _fig3_ferero(a)
    _public_points(a)


def _fig3_baselines(a: Artifact) -> None:
    ls = first_output(a.jobs["a"])
    off = _to_an_end(ls)
    at_ends = share(a.jobs["a"], lambda r: (_to_an_end(r) < 1) & (r["front_distance"] < 1e-3))
    either = float((ls["polar"] < 1).mean()), float((ls["polar"] > 89).mean())
    a.claim(
        "a-ls-ends",
        "Linear scalarization ends only at the two ends of the concave front",
        "Figure 3a, Section 5.1",
        published="only extreme points, with one objective minimised",
        measured=f"{percent(at_ends)} of {len(ls)} runs, {percent(either[0])} and {percent(either[1])} at "
        "either "
        f"end; farthest {off.max():.2g}° and {ls['front_distance'].max():.1g}",
        tolerance=f"{percent(SHARE)} of the runs within 1° of 0° or 90° and 1e-3 of the front, a tenth of "
        "them at each end",
        holds=at_ends >= SHARE and min(either) >= 0.1,
        rests_on=("a",),
    )
    mgda = first_output(a.jobs["b"])
    central = share(a.jobs["b"], lambda r: ((r["polar"] - 45).abs() <= 8) & (r["front_distance"] < 1e-3))
    a.claim(
        "b-mgda-centre",
        "MGDA ends near the centre of the front whatever the preference",
        "Figure 3b, Section 5.1",
        published="only points close to the centre",
        measured=f"{percent(central)} of {len(mgda)} runs; angles {mgda['polar'].min():.1f}° to "
        f"{mgda['polar'].max():.1f}°, largest distance {mgda['front_distance'].max():.1g}",
        tolerance=f"{percent(SHARE)} of the runs within 45 ± 8° and 1e-3",
        holds=central >= SHARE,
        reason="Starts far to one side of the centre end farther out."
        if central < SHARE
        else "The end depends on the start: a few far to one side end farther out.",
        rests_on=("b",),
    )
    pmtl = a.jobs["c"]
    near = share(pmtl, on_front(0.02))
    off_rays = share(pmtl, off_ray())
    outer, inner = split(pmtl, _in_sector)
    longer = split(a.jobs["c_phase1"], _in_sector)
    most = near >= SHARE and off_rays >= SHARE and inner >= SHARE
    a.claim(
        "c-pmtl-inexact",
        "PMTL finds points of the front in the subregions of its preferences, but not on their rays",
        "Figure 3c, Section 5.1",
        published="in the subregions, not aligned well with the exact preferences",
        measured=f"on the front {percent(near)}, off the ray {percent(off_rays)} (median "
        f"{pmtl.final['angle_deg'].median():.2g}°); in their subregion {percent(inner)} of the inner "
        "preferences' "
        f"runs and {percent(outer)} of the outer ones'",
        tolerance=f"{percent(SHARE)} of the runs each: within 0.02 of the front; 1° or more off the ray; "
        "nearer "
        "to their own ray than to any of PMTL's references (inner and outer preferences)",
        holds=True if most and outer >= SHARE else ("partial" if most else False),
        reason="The outer preferences (9° and 81°) end outside of their subregions. Phase 1, which brings a "
        "run "
        "into its subregion, is the first fifth of the 150 iterations, and is too short for them: with half "
        f"of the iterations {percent(longer[0])} of the outer runs end inside (series c_phase1)."
        if outer < SHARE
        else "",
        rests_on=("c",),
    )
    a.claim(
        "d-epo-exact",
        "EPO ends on its rays",
        "Figure 3d, Section 5.1",
        published="aligned well with the exact preferences",
        measured=outcome(a.jobs["d"]),
        tolerance=f"{percent(SHARE)} of the runs within 1° and 1e-3",
        holds=share(a.jobs["d"], arrived()) >= SHARE,
        rests_on=("d",),
    )


def _to_an_end(rows: pd.DataFrame) -> pd.Series:
    """Degrees between each end point and the nearer axis, where the front ends."""
    return rows["polar"].where(rows["polar"] <= 45, 90 - rows["polar"])


def _fig3_ferero(a: Artifact) -> None:
    pgd = a.jobs["e"]
    exact = a.jobs["e_exact"]
    a.claim(
        "e-ferero-exact",
        "FERERO ends on its rays",
        "Figure 3e, Section 5.1, Table 6",
        published="aligned well with the exact preferences",
        measured=f"inner loop of the paper, warm: {outcome(pgd)}; exact subproblem: {outcome(exact)}",
        tolerance=f"{percent(SHARE)} of the runs within 1° and 1e-3, with either subproblem solver",
        holds=min(share(pgd, arrived()), share(exact, arrived())) >= SHARE,
        reason="The points of the public figure miss this tolerance themselves (claim public-points).",
        rests_on=("e", "e_exact"),
    )
    a.check(
        "e-ferero-cold",
        "FERERO ends on its rays with the public code's cold start of the inner loop as well (lf = 1/M, "
        "lh = 1)",
        measured=outcome(a.jobs["e_cold"], angle=2.0),
        tolerance=f"{percent(SHARE)} of the runs within 2° and 1e-3",
        holds=share(a.jobs["e_cold"], arrived(2.0)) >= SHARE,
        reason=""
        if share(a.jobs["e_cold"], arrived(2.0)) >= SHARE
        else "At most 250 steps from a cold start leave the multipliers short of the solution, "
        "more so for some rays.",
    )
    hits = first_hit(pgd)
    a.check(
        "e-ferero-first-hit",
        "FERERO comes within 1° and 1e-2 before the last of the 100 iterations of Table 6",
        measured=f"{percent(float((hits >= 0).mean()))} of the runs, iterations {hits.min()} to {hits.max()} "
        "(-1: never)",
        tolerance=f"{percent(SHARE)} of the runs",
        holds=float((hits > 0).mean()) >= SHARE,
        reason=""
        if float((hits > 0).mean()) >= SHARE
        else "Some runs are still on their way, or never come near.",
    )
    half = a.jobs["e_half"]
    half_exact = a.jobs["e_half_exact"]
    loose = share(half, arrived())
    tight = share(half_exact, arrived())
    ended = RunCount.of(first_output(half_exact))
    a.check(
        "exact-at-step-half",
        "At the public script's step of 0.5 (10 iterations) FERERO arrives with the exact subproblem as it "
        "does "
        "with the paper's inner loop",
        measured=f"paper's inner loop: {percent(loose)} of {len(first_output(half))} runs arrive; exact: "
        f"{percent(tight)}, {ended} finish{_how(half_exact)}",
        tolerance=f"{percent(SHARE)} of the runs within 1° and 1e-3 with either, and every run finishes",
        holds=min(loose, tight) >= SHARE and ended.finished == ended.planned,
        reason=_long_steps(half_exact) if min(loose, tight) < SHARE or ended.finished < ended.planned else "",
    )
    shifted = a.jobs["f"]
    printed = a.jobs["f_printed"]
    kept = float((on_the_way(shifted)["max"] < 0.02).mean())
    good = min(kept, share(shifted, on_front())) >= SHARE
    followed = float((on_the_way(printed)["max"] < 0.02).mean())
    as_printed = share(printed, on_front())
    a.claim(
        "f-shifted",
        "FERERO follows lines through F(theta_0) to the front",
        "Figure 3f, Section 5.1, Table 6",
        published="handles other preferences; 100 steps of 0.05",
        measured=f"step 0.2: |H| < 0.02 on the path in {percent(kept)} of the runs, "
        f"{percent(share(shifted, on_front()))} on the front; printed step 0.05: {percent(followed)} and "
        f"{percent(as_printed)}, largest distance {printed.final['front_distance'].max():.2g}",
        tolerance=f"{percent(SHARE)} of the runs with |H| < 0.02 on the path and within 1e-3 of the front, "
        "step 0.05",
        holds=True if min(as_printed, followed) >= SHARE else ("partial" if good else False),
        reason="The lines are followed, but with the printed step 0.05 and 100 iterations "
        f"{percent(1 - as_printed)} of the runs stop before the front; four times the step reaches it.",
        rests_on=("f", "f_printed"),
    )


def _long_steps(job: JobRows) -> str:
    """Why the exact subproblem does worse at a large step: lengths of the first directions,
    exact and of the inner loop.
    """
    rows = first_output(job)
    weights = torch.from_numpy(job.weights)
    runs = Chosen.product(torch.unique_consecutive(weights, dim=0), job.config["seeds"])
    problem = VLMOP2(**{key: value for key, value in job.config["problem"].items() if key != "_target_"})
    theta = problem.initial(runs).requires_grad_(True)
    F = problem.values(theta)
    J = torch.stack(
        [torch.autograd.grad(F[:, m].sum(), theta, retain_graph=True)[0] for m in range(2)], dim=1
    )
    lengths = {}
    for solver in ("exact", "pgd"):
        d = ferero_tables.direction(FERERO(subproblem=solver), F.detach(), J, weights)
        lengths[solver] = torch.linalg.vector_norm(d, dim=-1).numpy()
    good = (arrived()(rows) & (rows["status"] == "done")).to_numpy()
    ended = (rows["status"] != "done").to_numpy()
    words = [
        f"{np.median(lengths['exact'][some]):.2g} in runs that {what}"
        for what, some in (("arrive", good), ("do not finish", ended))
        if some.any()
    ]
    return (
        "The exact direction holds -c_h H g / |g|^2 (g: gradient of H), which is long where g is short, and "
        "a step of 0.5 then "
        f"leaves the wells, which are 1 wide. Median length of its first direction: {', '.join(words)}; with "
        "the paper's inner "
        f"loop, which stops early, at most {lengths['pgd'].max():.2g}."
    )


def _how(job: JobRows) -> str:
    """In parentheses, how those runs ended that did not finish."""
    words = statuses(job)
    return f" ({words})" if words else ""


def _public_points(a: Artifact) -> None:
    """The end points in the public code's vector figures of panels a, d and e: one run of each preference."""
    cells = published("ferero_fig3_endpoints")
    public = {
        m: cells[cells["row"] == m]["value"].astype(float).to_numpy().reshape(4, 2)
        for m in ("FERERO", "EPO", "LS")
    }
    rays = from_rays_deg([81.0, 57.0, 33.0, 9.0])
    theirs = torch.from_numpy(np.array(public["FERERO"]))
    angles = angle_deg(theirs, rays)
    distances = front_distance(theirs, torch.from_numpy(np.array(front())))
    limits = {"FERERO": 0.02, "EPO": 0.005, "LS": 1e-3}
    gap = {}
    for method, key in (("FERERO", "e_public"), ("EPO", "d"), ("LS", "a")):
        rows = first_output(a.jobs[key])
        rows = rows[rows["status"] == "done"]
        ours = [rows[rows["k"] == k][["f_1", "f_2"]].to_numpy() for k in range(4)]
        pairs = [(F, point) for F, point in zip(ours, public[method], strict=True) if len(F)]
        if method == "LS":  # at which end a run arrives depends on its start
            gap[method] = max((np.linalg.norm(F - point, axis=1).min() for F, point in pairs), default=np.inf)
        else:
            gap[method] = max((np.linalg.norm(F.mean(0) - point) for F, point in pairs), default=np.inf)
    close = [m for m in limits if gap[m] <= limits[m]]
    a.claim(
        "public-points",
        "The end points of linear scalarization, EPO and FERERO are those of the public figure",
        "Figure 3a, d, e (vector figures of the public code, one run of each preference)",
        published=f"FERERO's four points, up to {angles.max():.3g}° off their rays and {distances.max():.2g} "
        "off the front",
        measured="largest distance to them: " + ", ".join(f"{m} {gap[m]:.2g}" for m in limits),
        tolerance="FERERO with the public script's settings: 0.02 of the mean over starts; EPO: 0.005 of the "
        "mean; LS: 1e-3 of "
        "a run's end",
        holds=True if len(close) == 3 else ("partial" if close else False),
        reason="The public script takes 10 steps of 0.5, multipliers of the simplex and a cold start of at "
        "most "
        "200 inner steps. With Table 6's settings FERERO ends nearer to its rays and to the front than the "
        "public points (claim e-ferero-exact)."
        + (
            f" Not within the tolerance: {', '.join(m for m in limits if m not in close)}."
            if len(close) < 3
            else ""
        ),
        rests_on=("a", "d", "e_public"),
    )


def _in_sector(rows: pd.DataFrame) -> pd.Series:
    """Whether each end point is nearer (in angle) to its ray than to any of PMTL's five references."""
    own = np.degrees(np.arctan2(rows["ray_2"], rows["ray_1"]))
    other = np.abs(rows["polar"].to_numpy()[:, None] - np.linspace(0, 90, 5)).min(1)
    return (rows["polar"] - own).abs() <= other


@artifact("ferero/fig4")
def fig4(a: Artifact) -> None:
    """PMTL, EPO and FERERO from easy (top) and hard (bottom) starts."""
    titles = {"a": "PMTL", "b": "EPO", "c": "FERERO", "d": "PMTL", "e": "EPO", "f": "FERERO"}
    fig, axes = st.panels(2, 3, sharex=True, sharey=True)
    for ax, (key, name) in zip(axes.flat, titles.items(), strict=True):
        steps = a.jobs[key].config["steps"]
        kind = "easy" if key in "abc" else "hard"
        trajectories(ax, a.jobs[key], f"({key}) {name}, {kind} starts, T = {steps}", colours=COLOURS)
    for ax in axes[0]:
        ax.set_xlabel("")
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    a.figure(fig)
    end_points(
        a,
        {
            "a": "easy starts: PMTL",
            "b": "easy starts: EPO",
            "c": "easy starts: FERERO",
            "d": "hard starts: PMTL",
            "e": "hard starts: EPO",
            "e_80": "hard starts: EPO, 80 iterations",
            "e_sum": "hard starts: EPO, sum of r is 1",
            "f": "hard starts: FERERO, c_h 0.1, 10 inner steps",
            "f_c_h": "hard starts: FERERO, c_h 0.1 alone, 250 inner steps",
            "f_inner": "hard starts: FERERO, 10 inner steps alone, c_h 0.01",
            "f_literal": "hard starts: FERERO, as printed: c_h 0.01, 250 inner steps",
            "f_exact": "hard starts: FERERO, c_h 0.1, exact subproblem",
        },
    )
    a.note(
        "Colours: rays at 81° (blue), 57° (orange), 33° (green), 9° (red). FERERO uses A = [(1, 2), (2, "
        "1)]/sqrt 5."
    )
    a.note(
        "Panel (f) departs twice from what is printed: c_h = 0.1 for 0.01, and an inner loop that is cut off "
        "after 10 steps for one of at most 250 steps to 1e-5. Each departure alone, and neither, are series "
        "of their own (f_c_h, f_inner, f_literal)."
    )
    a.note(
        "Hard starts have 20 coordinates of one sign, which changes from each preference to the next, as in "
        "EPO's public code; the paper prints the two intervals, not which preference has which."
    )
    _easy(a)
    _hard_baselines(a)
    _hard_ferero(a)


def _easy(a: Artifact) -> None:
    p = a.jobs["a"]
    near = share(p, on_front(1e-2))
    off_rays = share(p, off_ray())
    a.claim(
        "a-pmtl",
        "From easy starts PMTL reaches the front in 100 iterations, but not its rays",
        "Figure 4a, Section 5.1, Table 7",
        published="on the front, not aligned exactly",
        measured=f"on the front {percent(near)} of the runs, off the ray {percent(off_rays)} (median "
        f"{p.final['angle_deg'].median():.2g}°)",
        tolerance=f"{percent(SHARE)} of the runs within 1e-2 of the front, {percent(SHARE)} of them 1° or "
        "more off the ray",
        holds=near >= SHARE and off_rays >= SHARE,
        rests_on=("a",),
    )
    a.claim(
        "b-epo",
        "From easy starts EPO reaches its rays in 60 iterations",
        "Figure 4b, Section 5.1, Table 7",
        published="aligned exactly",
        measured=outcome(a.jobs["b"]),
        tolerance=f"{percent(SHARE)} of the runs within 1° and 1e-3",
        holds=share(a.jobs["b"], arrived()) >= SHARE,
        rests_on=("b",),
    )
    hits = {key: first_hit(a.jobs[key]) for key in "abc"}
    sooner = min(before(hits["c"], hits[key]) for key in "ab")
    medians = {key: np.median(h[h >= 0]) if (h >= 0).any() else np.nan for key, h in hits.items()}
    never = {key: float((h < 0).mean()) for key, h in hits.items()}
    a.claim(
        "c-ferero",
        "From easy starts FERERO reaches its rays in 10 iterations, the fewest of the three",
        "Figure 4c, Section 5.1, Table 7",
        published="10 < 60 < 100 iterations",
        measured=f"after 10 iterations {outcome(a.jobs['c'], angle=0.5)}; first within 1° and 1e-2 before "
        "EPO and "
        f"PMTL from the same start in {percent(sooner)} of the runs (median iteration {medians['c']:.0f}; "
        f"EPO {medians['b']:.0f}; PMTL never in {percent(never['a'])})",
        tolerance=f"{percent(SHARE)} of the runs within 0.5° and 1e-3 after 10 iterations, and sooner than "
        "either "
        f"in {percent(SHARE)}",
        holds=share(a.jobs["c"], arrived(0.5)) >= SHARE and sooner >= SHARE,
        rests_on=("a", "b", "c"),
    )


def _hard_baselines(a: Artifact) -> None:
    job = a.jobs["d"]
    steps = int(job.config["steps"])
    paths = job.paths()
    rows = first_output(job)
    phase2 = np.linalg.norm(np.diff(paths[:, steps // 5 :], axis=1), axis=-1).sum(-1)

    def stuck(r: pd.DataFrame) -> pd.Series:
        still = pd.Series(phase2[r["run"]] < 1e-2, index=r.index)
        return (r[["f_1", "f_2"]] > 0.9).all(axis=1) & (r["front_distance"] > 0.4) & still

    outer = share(job, on_front(1e-2), (0, 3))
    inner = share(job, stuck, HARD)
    longest = phase2[rows["k"].isin(HARD)].max()
    a.claim(
        "d-pmtl-two-fail",
        "From hard starts PMTL reaches the front for the two outer preferences; for the inner ones it moves "
        "away "
        "in its first stage and does nothing in its second",
        "Figure 4d, Section 5.1",
        published="converges in 2 out of 4 cases",
        measured=f"{percent(outer)} of the outer runs are on the front, {percent(inner)} of the inner ones "
        f"end with f_1, f_2 > 0.9 (longest path of the second stage {longest:.1g})",
        tolerance=f"{percent(SHARE)} of the outer runs within 1e-2; {percent(SHARE)} of the inner ones with "
        "f > "
        "0.9, farther than 0.4, and a path of the second stage below 1e-2",
        holds=outer >= SHARE and inner >= SHARE,
        rests_on=("d",),
    )
    hard = {key: split(a.jobs[key], arrived()) for key in ("e", "e_80", "e_sum")}
    arrival = first_hit(a.jobs["e"])
    a.claim(
        "e-epo",
        "From hard starts EPO reaches its rays in the 120 iterations of Table 7",
        "Figure 4e, Section 5.1, Table 7",
        published="traces the front until it is aligned exactly; 120 iterations",
        measured=f"{_split(hard['e'])} arrive; with sum of r equal to 1 {_split(hard['e_sum'])}",
        tolerance=f"{percent(SHARE)} of the outer and of the inner runs within 1° and 1e-3",
        holds=min(hard["e"]) >= SHARE,
        reason="The bounds (K beta)_j >= C_j scale with r, so the normalisation of r matters; the public "
        "code's "
        f"r has |r| = 1. {percent(float((arrival < 0).mean()))} of the runs are still on their way after 120 "
        "iterations.",
        rests_on=("e",),
    )
    a.claim(
        "e-epo-80",
        "From hard starts EPO reaches its rays in the 80 iterations of the text and Table 11",
        "Figure 4e, Section 5.1, Table 11",
        published="80 iterations",
        measured=f"{_split(hard['e_80'])} arrive",
        tolerance=f"{percent(SHARE)} of the outer and of the inner runs within 1° and 1e-3",
        holds=min(hard["e_80"]) >= SHARE,
        reason="80 contradicts Table 7 (120): more of the inner runs are still on their way.",
        rests_on=("e_80",),
    )


def _split(shares: tuple[float, float]) -> str:
    return f"{percent(shares[0])} of the outer and {percent(shares[1])} of the inner runs"


def _hard_ferero(a: Artifact) -> None:
    both, rate, inner, literal = (
        split(a.jobs[key], arrived()) for key in ("f", "f_c_h", "f_inner", "f_literal")
    )
    rows = first_output(a.jobs["f_literal"])
    rows = rows[rows["k"].isin(HARD) & (rows["status"] == "done")]
    plateau = (rows[["f_1", "f_2"]] > 0.9).all(axis=1)
    reached = rows[rows["front_distance"] < 1e-2]["angle_deg"]
    a.claim(
        "f-ferero",
        "From hard starts FERERO reaches its rays in 200 iterations",
        "Figure 4f, Section 5.1, Table 7, Appendix H.1",
        published="on the rays; c_h = 0.01, inner loop of at most 250 steps to 1e-5",
        measured=f"c_h = 0.1 and 10 inner steps: {_split(both)} arrive; as printed: {_split(literal)}",
        tolerance=f"{percent(SHARE)} of the outer and of the inner runs within 1° and 1e-3, with the printed "
        "settings; partial if with both departures only",
        holds=True if min(literal) >= SHARE else ("partial" if min(both) >= SHARE else False),
        reason="The runs arrive with two departures from the printed settings, and with neither of them "
        f"alone: c_h = 0.1 with 250 inner steps {_split(rate)}; 10 inner steps with c_h = 0.01 "
        f"{_split(inner)}. With c_h "
        "= 0.01 the factor (1 - alpha c_h)^200 leaves 30 % of the initial H: as printed "
        f"{percent(float((rows['front_distance'] < 1e-2).mean()))} of the inner runs reach the front "
        f"{reached.min():.2g}° to {reached.max():.3g}° off their rays, {percent(float(plateau.mean()))} stay "
        "on "
        "the plateau.",
        rests_on=("f", "f_literal"),
    )
    exact = a.jobs["f_exact"]
    ended = RunCount.of(first_output(exact))
    a.check(
        "f-exact",
        "From hard starts FERERO arrives with the exact subproblem as it does with the inner loop that is "
        "cut off (c_h = 0.1)",
        measured=f"exact: {_split(split(exact, arrived()))} arrive, {ended} finish{_how(exact)}; cut off: "
        f"{_split(both)}",
        tolerance=f"{percent(SHARE)} of the outer and of the inner runs within 1° and 1e-3 with either, and "
        "every run finishes",
        holds=min(*split(exact, arrived()), *both) >= SHARE and ended.finished == ended.planned,
        reason="The nearer a solution is to the optimum of the subproblem, the fewer inner runs arrive "
        "(series f, f_c_h, f_exact): "
        "on a hard start the optimum gives up the descent of the nearer objective for the equality, and "
        "leads to the plateau, "
        "where both gradients vanish and no direction meets the equality. Runs whose subproblem is not "
        "solved there end, and none "
        "is given other weights.",
    )


@artifact("ferero/fig7")
def fig7(a: Artifact) -> None:
    """Scaling objective 2 leaves the path in objective space where it was."""
    one = a.jobs["scale_1"].paths()[0]
    two = a.jobs["scale_2"].paths()[0]
    fig, axes = st.panels(1, 2, size=3.0)
    for ax, path, s in ((axes[0, 0], one, 1.0), (axes[0, 1], two, 2.0)):
        F = front() * np.array([1.0, s])
        st.objective_axes(ax, labels=("$f_1$", f"${'' if s == 1 else int(s)}f_2$"))
        ax.set_ylim(-0.1 * s, 1.15 * s)
        ax.set_aspect(1 / s)
        st.draw_front(ax, F)
        ends_of_line = np.array([[0.9391880627, 0.9391880627 * s], [0.6321205588, 0.6321205588 * s]])
        st.draw_ray(ax, ends_of_line[1] - ends_of_line[0], ends_of_line[0], reach=0.5 * s)
        st.draw_path(ax, path)
        ax.set_title(f"objective 2 times {int(s)}")
    a.figure(fig)
    back = two / np.array([1.0, 2.0])
    end = float(np.abs(one[-1] - back[-1]).max())
    hausdorff = max(_directed(one, back), _directed(back, one))
    a.claim(
        "curves-agree",
        "After dividing f_2 by its scale, the two paths are the same curve",
        "Figure 7",
        published="same curve",
        measured=f"end points differ by {end:.1e}, Hausdorff distance of the polylines {hausdorff:.1e}, "
        f"largest pointwise difference {np.abs(one - back).max():.2g}",
        tolerance="1e-3 each (pointwise differences are expected: step lengths differ)",
        holds=end < 1e-3 and hausdorff < 1e-3,
        reason="With two objectives and a full line constraint the direction is one-dimensional, so the "
        "picture "
        "would look the same for the simplex domain; the property itself is tested without constraints "
        "(Table 5).",
    )


def _directed(a: np.ndarray, b: np.ndarray) -> float:
    """Largest distance of a vertex of polyline a to the segments of polyline b."""
    p = b[:-1]
    q = b[1:]
    d = q - p
    t = ((a[:, None] - p) * d).sum(-1) / np.maximum((d * d).sum(-1), 1e-300)
    nearest = p + np.clip(t, 0, 1)[..., None] * d
    return float(np.linalg.norm(a[:, None] - nearest, axis=-1).min(1).max())


@artifact("ferero/fig8")
def fig8(a: Artifact) -> None:
    """Algorithm 2 in the settings of Table 10."""
    titles = {
        "a": "(a) rays, as Fig. 3e",
        "b": "(b) easy start, as Fig. 4c",
        "b_shifted": "(b') shifted lines, as Fig. 3f",
        "c": "(c) hard start, $A = I$",
        "d": "(d) hard start, wider cone",
        "d_literal": "(d') as (d) with $\\gamma = 0.1$",
    }
    fig, axes = st.panels(2, 3, sharex=True, sharey=True)
    for ax, (key, title) in zip(axes.flat, titles.items(), strict=True):
        trajectories(ax, a.jobs[key], title, colours=COLOURS, shifted=key == "b_shifted")
    for ax in axes[0]:
        ax.set_xlabel("")
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    a.figure(fig)
    end_points(
        a,
        {
            "a": "start of Figure 3, gamma 0.5",
            "a_literal": "start of Figure 3, gamma 0.1",
            "a_alg1": "start of Figure 3, Algorithm 1 at the same step and c_h",
            "b": "easy starts, gamma 0.5",
            "b_literal": "easy starts, gamma 0.1",
            "b_shifted": "shifted lines, gamma 0.5",
            "b_shifted_literal": "shifted lines, gamma 0.1",
            "b_shifted_alg1": "shifted lines, Algorithm 1 at the same step and c_h",
            "c": "hard starts, A = I, gamma 0.5",
            "c_literal": "hard starts, A = I, gamma 0.1",
            "d": "hard starts, wider cone, gamma 0.5",
            "d_literal": "hard starts, wider cone, gamma 0.1",
            "fig3e": "Algorithm 1 of Figure 3e",
            "fig4c": "Algorithm 1 of Figure 4c",
            "fig4f": "Algorithm 1 of Figure 4f, c_h 0.1 and 10 inner steps",
        },
    )
    a.note(
        "gamma is not printed for these panels; 0.5 is used. What the text says of other settings (the same "
        "unless otherwise specified) would make it 0.1, the step of the inner loop: a series of its own for "
        "each "
        "panel."
    )
    limits = {"a": 0.5, "b": 0.5, "d": 2.0}
    for key, limit in limits.items():
        ours, literal = (share(a.jobs[name], arrived(limit)) for name in (key, f"{key}_literal"))
        a.claim(
            f"{key}-on-rays",
            {
                "a": "Algorithm 2 ends on its rays from the start of Figure 3",
                "b": "Algorithm 2 ends on its rays from easy starts",
                "d": "Algorithm 2 with the wider cone reaches its rays from hard starts",
            }[key],
            f"Figure 8{key}, Appendix H.2, Table 10",
            published="convergence and alignment with the preferences",
            measured=f"gamma 0.5: {outcome(a.jobs[key], angle=limit)}; gamma 0.1: {percent(literal)}",
            tolerance=f"{percent(SHARE)} of the runs within {limit:g}° and 1e-3; partial if with one of the "
            "two gammas only",
            holds=True
            if min(ours, literal) >= SHARE
            else ("partial" if max(ours, literal) >= SHARE else False),
            reason="The step gamma of the multipliers is not printed, and decides: with 0.1, the step of the "
            "inner loop elsewhere, the multipliers are too slow for so few iterations.",
            rests_on=(key, f"{key}_literal"),
        )
    _not_aligned(a)
    _more_iterations(a)
    failing = {key: _starts_with_a_failure(a.jobs[key], limits["d"]) for key in ("c", "c_literal", "d")}
    a.claim(
        "c-pareto-cone-fails",
        "From hard starts A = I does not work, where the wider cone does",
        "Figure 8c and d, Appendix H.2",
        published="A = I does not work",
        measured=f"some of the four preferences is missed from {percent(failing['c'])} of the starts (gamma "
        "0.1: "
        f"{percent(failing['c_literal'])}), with the wider cone from {percent(failing['d'])}",
        tolerance="missed (2°, 1e-3) from at least half of the starts with A = I at either gamma, from at "
        "most a "
        "tenth with the wider cone at gamma 0.5",
        holds=min(failing["c"], failing["c_literal"]) >= 0.5 and failing["d"] <= 0.1,
        reason="Which runs fail depends on the start: with A = I "
        f"{percent(share(a.jobs['c'], arrived(limits['d'])))} of the runs arrive.",
        rests_on=("c", "c_literal", "d"),
    )


def _starts_with_a_failure(job: JobRows, limit: float) -> float:
    """Share of the seeds of which some preference's run does not arrive: the paper draws one seed."""
    rows = first_output(job)
    good = arrived(limit)(rows) & (rows["status"] == "done")
    return float((~good.groupby(rows["seed"]).all()).mean())


def _not_aligned(a: Artifact) -> None:
    """Algorithm 2 keeps to the preference less than Algorithm 1 on the way: beside rays,
    and on lines that the start is on.
    """
    way = {k: on_the_way(a.jobs[k]) for k in ("a", "a_literal", "a_alg1")}
    way |= {k: on_the_way(a.jobs[k]) for k in ("b_shifted", "b_shifted_literal", "b_shifted_alg1")}
    farther = {k: float((way[k]["mean"] >= 2 * way["a_alg1"]["mean"]).mean()) for k in ("a", "a_literal")}
    leaves = {k: float((way[k]["max"] > VISIBLE).mean()) for k in way if k.startswith("b_")}
    away = min(*farther.values(), leaves["b_shifted"], leaves["b_shifted_literal"]) >= SHARE
    a.claim(
        "paths-not-aligned",
        "On the way the models of Algorithm 2 do not align exactly with the preference, "
        "those of Algorithm 1 do",
        "Figure 8a and b, Appendix H.2",
        published="models on the trajectories do not align exactly, different from exact multipliers",
        measured=f"(a) mean |H| on the path at least twice Algorithm 1's in {percent(farther['a'])} of the "
        "runs "
        f"(gamma 0.1: {percent(farther['a_literal'])}), medians {way['a']['mean'].median():.2g} and "
        f"{way['a_alg1']['mean'].median():.2g}; (b') more than {VISIBLE:g} off the line on the way in "
        f"{percent(leaves['b_shifted'])} (gamma 0.1: {percent(leaves['b_shifted_literal'])}), Algorithm 1 in "
        f"{percent(leaves['b_shifted_alg1'])}",
        tolerance=f"(a) in {percent(SHARE)} of the runs from the same starts; (b') in {percent(SHARE)} of "
        f"the runs of Algorithm 2 and in at most {percent(1 - SHARE)} of Algorithm 1's, with the paper's "
        "inner loop, "
        "step and c_h",
        holds=away and leaves["b_shifted_alg1"] <= 1 - SHARE,
        reason="At the printed step 0.06 and 100 iterations neither algorithm reaches the front on all "
        f"shifted lines ({percent(share(a.jobs['b_shifted'], on_front()))} of the runs of Algorithm 2, "
        f"{percent(share(a.jobs['b_shifted_alg1'], on_front()))} of Algorithm 1's); the statement is about "
        "alignment.",
        rests_on=tuple(way),
    )


def _more_iterations(a: Artifact) -> None:
    pairs = {"start of Figure 3": ("a", "fig3e"), "easy": ("b", "fig4c"), "hard": ("d", "fig4f")}
    hits = {key: first_hit(a.jobs[key]) for pair in pairs.values() for key in pair}
    later = {name: before(hits[one], hits[two]) for name, (two, one) in pairs.items()}
    medians = {key: np.median(h[h >= 0]) if (h >= 0).any() else np.nan for key, h in hits.items()}
    words = [
        f"{name}: later in {percent(later[name])} of the runs (median {medians[two]:.0f} against "
        f"{medians[one]:.0f})"
        for name, (two, one) in pairs.items()
    ]
    slower = [name for name in pairs if later[name] >= SHARE]
    a.claim(
        "more-iterations",
        "Algorithm 2 takes more iterations to converge than Algorithm 1",
        "Appendix H.2 (time per iteration and in total: ferero/table11)",
        published="more iterations",
        measured="first within 1° and 1e-2; " + "; ".join(words),
        tolerance=f"later than Algorithm 1 from the same start in {percent(SHARE)} of the runs of each pair "
        "of panels",
        holds=True if len(slower) == len(pairs) else ("partial" if slower else False),
        reason=f"Not from these starts: {', '.join(n for n in pairs if n not in slower)}. There the printed "
        "step "
        "and c_h of Algorithm 2 are twice and six times those of Algorithm 1 (Tables 6 and 10), and H falls "
        "accordingly."
        if len(slower) < len(pairs)
        else "",
        rests_on=tuple(hits),
    )
