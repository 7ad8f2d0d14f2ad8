"""FERERO's figures on the toy problem. Acceptance criteria were fixed before the first run; see docs/results.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_geometry import cone_from_rays, line_basis
from mobench.artifacts import Artifact, JobRows, artifact
from mobench.artifacts import style as st
from mobench.core.preferences import from_rays_deg, ray
from mobench.problems import VLMOP2

from . import ferero_images, ferero_speech, ferero_tables  # noqa: F401  they register artifacts
from .toy import PREFERENCE_COLOURS, ends, front, trajectories, within, worst

START = (
    "Starts are those of the authors' public code, 0.3 (+,-,+,-,...) + 0.1 N(0, I); the printed N(0, 1) per coordinate has "
    "gradients of about 1e-8, from which no method moves."
)


@artifact("ferero/fig1")
def fig1(a: Artifact) -> None:
    """Absolute preferences: thresholds f_2 <= eps, and rays, both drawn from the matrices the algorithm uses."""
    F = front()
    fig, axes = st.panels(1, 2)
    residual = 0.0
    thresholds = (0.2, 0.4, 0.6, 0.8)
    ax = axes[0, 0]
    st.objective_axes(ax)
    st.draw_front(ax, F)
    start = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    for eps, colour in zip(thresholds, PREFERENCE_COLOURS, strict=True):
        B, b = FERERO(upper=(None, eps))._inequality(start)
        ax.axhline(eps, color=colour, ls=(0, (4, 3)), lw=1.0)
        x = np.linspace(0, 1, 11)
        drawn = np.stack([x, np.full_like(x, eps)], 1)
        residual = max(residual, float(np.abs(drawn @ B[0].numpy().T + b[0].numpy()).max()))
        best = F[F[:, 1] <= eps][np.argmin(F[F[:, 1] <= eps][:, 0])]
        ax.plot(*best, "o", color=colour, ms=5, zorder=5)
        ax.annotate(
            f"$f_2 \\leq {eps}$", (-0.08, eps), xytext=(0, 2), textcoords="offset points", fontsize=7.5, color=colour
        )
    ax.set_title("(a) thresholds  $B_g F + b_g \\leq 0$")
    ax = axes[0, 1]
    st.objective_axes(ax)
    st.draw_front(ax, F)
    w = from_rays_deg([81.0, 57.0, 33.0, 9.0])
    v, B = ray(w), line_basis(ray(w))
    for k, colour in enumerate(PREFERENCE_COLOURS):
        direction = v[k].numpy()
        st.draw_ray(ax, direction, color=colour, lw=1.0)
        drawn = np.linspace(0, 1.4, 11)[:, None] * direction
        residual = max(residual, float(np.abs(drawn @ B[k].numpy().T).max()))
        hit = F[np.argmin(np.abs(F @ B[k].numpy().T)[:, 0])]
        ax.plot(*hit, "o", color=colour, ms=5, zorder=5)
    ax.set_title("(b) rays  $B_h F = 0$")
    a.figure(fig)
    a.claim(
        "lines-are-constraints",
        "The drawn lines are the zero sets of B_g F + b_g and B_h F",
        "Figure 1, Section 2",
        published="illustration",
        measured=f"largest |B F + b| on the drawn lines {residual:.1e}",
        tolerance="1e-12",
        holds=residual < 1e-12,
        any_scale=True,
    )


@artifact("ferero/fig2")
def fig2(a: Artifact) -> None:
    """The set F_0 - C_A that improves on F_0, for the Pareto cone and for a wider one."""
    u = torch.linspace(-1.0, 1.0, 2001, dtype=torch.float64)  # the criterion counts points of a uniform grid of u
    F, F0 = VLMOP2().front_point(u).numpy(), np.array([0.8, 0.8])
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
        ax.plot(*np.where(better[:, None], F, np.nan).T, color=st.BLUE, lw=3.0, zorder=3, label="better than $F_0$")
        ax.plot(*F0, "o", color=st.GREEN, ms=6, zorder=5)
        ax.annotate("$F_0$", F0, xytext=(5, 5), textcoords="offset points")
        ax.set_title(title)
    axes[0, 0].legend(loc="lower left")
    a.figure(fig)
    a.claim(
        "wider-cone",
        "With A = I only a part of the front improves on F_0 = (0.8, 0.8); with the wider cone all of it does",
        "Figure 2",
        published="part of the front; all of it",
        measured=f"{shares[0]:.2f} and {shares[1]:.2f} of a uniform grid",
        tolerance="0 < share < 0.5 and share = 1",
        holds=0.0 < shares[0] < 0.5 and shares[1] == 1.0,
        any_scale=True,
    )


def first_hit(job: JobRows, angle: float = 1.0, distance: float = 1e-2) -> np.ndarray:
    """Iteration at which each run first is within `angle` degrees of its ray and `distance` of the front."""
    from mobench.core.preferences import angle_deg
    from mobench.metrics import front_distance

    paths = torch.from_numpy(job.paths())
    R, T, M = paths.shape
    weights = torch.from_numpy(job.weights).unsqueeze(1).expand(R, T, M)
    near = angle_deg(paths, weights) < angle
    dense = torch.from_numpy(front())
    near &= front_distance(paths.reshape(-1, M), dense).reshape(R, T) < distance
    hit = near.to(torch.int64).argmax(1)
    return np.where(near.any(1).numpy(), hit.numpy(), -1)


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
    a.note(START)
    a.note("Panels show the paths of seed 0; end points of the other seeds are drawn faintly.")

    ls = ends(a.jobs["a"])
    off = np.minimum(ls["polar"], 90 - ls["polar"])
    both = bool((ls["polar"] < 1).any() and (ls["polar"] > 89).any())
    a.claim(
        "a-ls-ends",
        "Linear scalarization ends only at the two ends of the concave front",
        "Figure 3a",
        published="end points of the front only",
        measured=f"all within {off.max():.2g}° of an end, largest distance {ls['front_distance'].max():.1g}, both ends: {both}",
        tolerance="1° of 0° or 90°, distance 1e-3, both ends occur",
        holds=bool((off < 1).all() and (ls["front_distance"] < 1e-3).all() and both),
    )
    mgda = ends(a.jobs["b"])
    a.claim(
        "b-mgda-centre",
        "MGDA ends near the centre of the front whatever the preference",
        "Figure 3b",
        published="near the centre",
        measured=f"angles {mgda['polar'].min():.1f}° to {mgda['polar'].max():.1f}°, "
        f"largest distance {mgda['front_distance'].max():.1g}",
        tolerance="45 ± 8°, distance 1e-3",
        holds=bool(((mgda["polar"] - 45).abs() <= 8).all() and (mgda["front_distance"] < 1e-3).all()),
        reason="The end depends on the random start; a start on one side of the centre can end just outside 8°."
        if (mgda["polar"] - 45).abs().max() > 8
        else "",
    )
    pmtl = ends(a.jobs["c"])
    inner = pmtl[pmtl["k"].isin([1, 2])]
    feasible = _in_sector(inner, np.linspace(0, 90, 5))
    a.claim(
        "c-pmtl-inexact",
        "PMTL reaches the front inside or near its sector but not on its ray",
        "Figure 3c",
        published="on the front, off the rays",
        measured=f"{worst(pmtl)}, mean angle {pmtl['angle_deg'].mean():.3g}°, "
        f"inner preferences in their sector: {feasible.mean():.0%}",
        tolerance="distance 0.02; k = 1, 2 in their sector; angle <= 16°; mean angle >= 3°",
        holds=bool(
            (pmtl["front_distance"] < 0.02).all()
            and feasible.all()
            and (pmtl["angle_deg"] <= 16).all()
            and pmtl["angle_deg"].mean() >= 3
        ),
        reason=_still_moving(a.jobs["c"], pmtl),
    )
    epo = ends(a.jobs["d"])
    a.claim(
        "d-epo-exact",
        "EPO ends on its rays",
        "Figure 3d",
        published="on the rays",
        measured=worst(epo),
        tolerance="1°, 1e-3",
        holds=within(epo, 1.0, 1e-3),
    )
    pgd, exact, cold, simplex = (ends(a.jobs[k]) for k in ("e", "e_exact", "e_cold", "e_simplex"))
    a.claim(
        "e-ferero-exact",
        "FERERO ends on its rays",
        "Figure 3e",
        published="on the rays",
        measured=f"inner loop of the paper, warm: {worst(pgd)}; exact subproblem: {worst(exact)}",
        tolerance="1°, 1e-3",
        holds=within(pgd, 1.0, 1e-3) and within(exact, 1.0, 1e-3),
    )
    a.claim(
        "e-ferero-cold",
        "The same with the public code's cold start of the inner loop (lf = 1/M, lh = 1)",
        "Figure 3e, public code",
        published="on the rays",
        measured=worst(cold),
        tolerance="2°, 1e-3",
        holds=within(cold, 2.0, 1e-3),
    )
    a.claim(
        "e-ferero-simplex",
        "With the simplex domain of the public code the runs stop short of the front, as in the published picture",
        "Figure 3e, public figure",
        published="distance 0.0003 to 0.034",
        measured=f"distance {simplex['front_distance'].min():.2g} to {simplex['front_distance'].max():.2g}",
        tolerance="largest distance between 0.01 and 0.05",
        holds=bool(0.01 <= simplex["front_distance"].max() <= 0.05),
    )
    hits = first_hit(a.jobs["e"])
    a.claim(
        "e-ferero-first-hit",
        "FERERO comes near its ray and the front within the 100 iterations of Table 6",
        "Figure 3e (ours: iteration of the first angle < 1° and distance < 1e-2)",
        published="-",
        measured=f"iterations {hits.min()} to {hits.max()}",
        tolerance="every run, by iteration 100",
        holds=bool((hits > 0).all()),
    )
    shifted, printed = a.jobs["f"], a.jobs["f_printed"]
    H = shifted.history.groupby("run")["equality_violation"].max()
    near, far = ends(shifted), ends(printed)
    good = bool((H < 0.02).all() and (near["front_distance"] < 1e-3).all())
    a.claim(
        "f-shifted",
        "FERERO follows lines through F(theta_0) to the front",
        "Figure 3f, Table 6",
        published="lines followed to the front in 100 steps of 0.05",
        measured=f"step 0.2: largest |H| on the path {H.max():.2g}, largest distance {near['front_distance'].max():.2g}; "
        f"printed step 0.05: largest distance {far['front_distance'].max():.2g}",
        tolerance="|H| < 0.02 on the path, distance 1e-3",
        holds="partial" if good and (far["front_distance"] >= 1e-3).any() else good,
        reason=f"With the printed step 0.05 and 100 iterations {int((far['front_distance'] >= 1e-3).sum())} of {len(far)} "
        f"runs end up to {far['front_distance'].max():.2g} from the front; four times the step reaches it.",
    )


def _still_moving(job: JobRows, rows: Any) -> str:
    """Names the runs that are away from the front and still move in the last ten iterations."""
    paths = job.paths()
    far = rows[rows["front_distance"] >= 0.02]
    moving = [r for r in far["run"] if np.linalg.norm(paths[r, -1] - paths[r, -11]) > 0.02]
    if not moving:
        return ""
    names = ", ".join(f"seed {s}, k = {k}" for s, k in far[far["run"].isin(moving)][["seed", "k"]].to_numpy())
    return (
        f"{len(moving)} of {len(rows)} runs ({names}) start in the flat part of the toy problem, where phase 1 gains little, "
        f"and still descend at the last iteration; all others meet the criterion."
    )


def _in_sector(rows, references: np.ndarray):  # type: ignore[no-untyped-def]
    """Whether each end point is nearer (in angle) to its ray than to any reference ray."""
    own = np.degrees(np.arctan2(rows["ray_2"], rows["ray_1"])).to_numpy()
    angle = rows["polar"].to_numpy()
    other = np.abs(angle[:, None] - references).min(1)
    return np.abs(angle - own) <= other


@artifact("ferero/fig4")
def fig4(a: Artifact) -> None:
    """PMTL, EPO and FERERO from easy (top) and hard (bottom) starts."""
    titles = {"a": "PMTL", "b": "EPO", "c": "FERERO", "d": "PMTL", "e": "EPO", "f": "FERERO"}
    fig, axes = st.panels(2, 3, sharex=True, sharey=True)
    for ax, (key, name) in zip(axes.flat, titles.items(), strict=True):
        steps = a.jobs[key].config["steps"]
        kind = "easy" if key in "abc" else "hard"
        trajectories(ax, a.jobs[key], f"({key}) {name}, {kind} starts, T = {steps}", colours=PREFERENCE_COLOURS)
    for ax in axes[0]:
        ax.set_xlabel("")
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    a.figure(fig)
    a.note("Colours: rays at 81° (blue), 57° (orange), 33° (green), 9° (red). FERERO uses A = [(1, 2), (2, 1)]/sqrt 5.")
    rows = {k: ends(a.jobs[k]) for k in a.jobs}
    p = rows["a"]
    a.claim(
        "a-pmtl",
        "PMTL reaches the front but not its rays in 100 iterations",
        "Figure 4a, Table 7",
        published="on the front, off the rays",
        measured=f"{worst(p)}, mean angle {p['angle_deg'].mean():.3g}°",
        tolerance="distance 1e-2, mean angle > 3°",
        holds=bool((p["front_distance"] < 1e-2).all() and p["angle_deg"].mean() > 3),
    )
    a.claim(
        "b-epo",
        "EPO reaches its rays in 60 iterations",
        "Figure 4b, Table 7",
        published="on the rays",
        measured=worst(rows["b"]),
        tolerance="1°, 1e-3",
        holds=within(rows["b"], 1.0, 1e-3),
    )
    hit = first_hit(a.jobs["c"])
    # iteration of the first hit of the other two; a run that never comes near its ray counts as all iterations
    slow = {k: np.where(h < 0, a.jobs[k].config["steps"], h) for k in "ab" for h in [first_hit(a.jobs[k])]}
    others = [int(h.min()) for h in slow.values()]
    a.claim(
        "c-ferero",
        "FERERO reaches its rays in 10 iterations, the fewest of the three",
        "Figure 4c, Table 7",
        published="10 < 60 < 100 iterations",
        measured=f"{worst(rows['c'])}; first within 1° and 0.01 after {hit.min()} to "
        f"{hit.max()} iterations (EPO {slow['b'].min()} to {slow['b'].max()}, PMTL {slow['a'].min()} at the earliest)",
        tolerance="0.5°, 1e-3 after 10 iterations; slowest first hit before the fastest of EPO and PMTL",
        holds=within(rows["c"], 0.5, 1e-3) and bool(hit.min() > 0) and hit.max() < min(others),
    )
    d, paths = rows["d"], a.jobs["d"].paths()
    steps, hard = a.jobs["d"].config["steps"], d[d["k"].isin([1, 2])]
    phase2 = np.array([np.linalg.norm(np.diff(paths[r, steps // 5 :], axis=0), axis=1).sum() for r in hard["run"]])
    outer = d[d["k"].isin([0, 3])]
    stuck = (hard[["f_1", "f_2"]] > 0.9).all(axis=1) & (hard["front_distance"] > 0.4)
    a.claim(
        "d-pmtl-two-fail",
        "From hard starts PMTL reaches the front for the two outer preferences only",
        "Figure 4d",
        published="2 of 4 runs reach the front",
        measured=f"outer: largest distance {outer['front_distance'].max():.2g}; inner: {stuck.mean():.0%} end with "
        f"f_1, f_2 > 0.9, longest phase-2 path {phase2.max():.1g}",
        tolerance="outer distance < 1e-2; inner f > 0.9, distance > 0.4, phase-2 path < 1e-2",
        holds=bool((outer["front_distance"] < 1e-2).all() and stuck.all() and (phase2 < 1e-2).all()),
    )
    e, e80, e_sum = rows["e"], rows["e_80"], rows["e_sum"]
    arrival = first_hit(a.jobs["e"])
    a.claim(
        "e-epo",
        "From hard starts EPO reaches its rays in 120 iterations",
        "Figure 4e, Table 7",
        published="on the rays after 120 iterations",
        measured=f"r = w/|w|: {worst(e)}; r = w: {worst(e_sum)}",
        tolerance="1°, 1e-3",
        holds=within(e, 1.0, 1e-3),
        reason="The bounds (K beta)_j >= C_j scale with r, so the normalisation of r matters; the public code's r has "
        f"|r| = 1. First within 1° and 0.01 after {arrival.min()} to {arrival.max()} iterations (-1: never).",
    )
    a.claim(
        "e-epo-80",
        "The text and Table 11 give 80 iterations for the same panel",
        "Figure 4e text, Table 11",
        published="80 iterations",
        measured=worst(e80),
        tolerance="1°, 1e-3",
        holds=within(e80, 1.0, 1e-3),
        reason="80 contradicts Table 7 (120): runs for the inner preferences are still on their way.",
    )
    f, literal = rows["f"], rows["f_literal"]
    good = within(f, 1.0, 1e-3)
    a.claim(
        "f-ferero",
        "From hard starts FERERO reaches its rays in 200 iterations",
        "Figure 4f, Table 7",
        published="on the rays, c_h = 0.01",
        measured=f"c_h = 0.1, 10 inner steps: {worst(f)}; printed c_h = 0.01, 250 inner steps: {worst(literal)}",
        tolerance="1°, 1e-3",
        holds="partial" if good and not within(literal, 1.0, 1e-3) else good,
        reason="With c_h = 0.01 the factor (1 - alpha c_h)^200 leaves 30 % of the initial H, and a near-exact inner solve "
        "forbids the descent of the near objective, which pushes the inner runs to the plateau. A truncated warm inner "
        "loop with c_h = 0.1 reaches every ray.",
    )


@artifact("ferero/fig7")
def fig7(a: Artifact) -> None:
    """Scaling objective 2 leaves the path in objective space where it was."""
    one, two = a.jobs["scale_1"].paths()[0], a.jobs["scale_2"].paths()[0]
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
        reason="With two objectives and a full line constraint the direction is one-dimensional, so the picture would look "
        "the same for the simplex domain; the property itself is tested without constraints (Table 5).",
    )


def _directed(a: np.ndarray, b: np.ndarray) -> float:
    """Largest distance of a vertex of polyline a to the segments of polyline b."""
    p, q = b[:-1], b[1:]
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
        trajectories(ax, a.jobs[key], title, colours=PREFERENCE_COLOURS, shifted=key == "b_shifted")
    for ax in axes[0]:
        ax.set_xlabel("")
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    a.figure(fig)
    a.note("gamma is not printed for these panels; 0.5 is used, and the literal reading 0.1 is a series of its own.")
    rows = {k: ends(a.jobs[k]) for k in a.jobs}
    for key, limit in (("a", 0.5), ("b", 0.5), ("d", 2.0)):
        literal = f"{key}_literal"
        good = within(rows[key], limit, 1e-3)
        other = f"; gamma 0.1: {worst(rows[literal])}" if literal in rows else ""
        fails = literal in rows and not within(rows[literal], limit, 1e-3)
        a.claim(
            f"{key}-on-rays",
            {
                "a": "Algorithm 2 ends on its rays from the start of Figure 3",
                "b": "Algorithm 2 ends on its rays from easy starts",
                "d": "Algorithm 2 with the wider cone reaches its rays from hard starts",
            }[key],
            f"Figure 8{key}",
            published="on the rays",
            measured=f"gamma 0.5: {worst(rows[key])}{other}",
            tolerance=f"{limit}°, 1e-3",
            holds="partial" if good and fails else good,
            reason="The step gamma of the multipliers is not printed; with 0.1, the step of the inner loop elsewhere, the "
            "runs do not arrive."
            if fails
            else "",
        )
    sa, alg1 = (a.jobs[k].history.groupby("run")["equality_violation"] for k in ("b_shifted", "b_shifted_alg1"))
    last = sa.last()
    a.claim(
        "b-paths-not-aligned",
        "Paths of Algorithm 2 leave the line on the way and return to it",
        "Figure 8b and text",
        published="paths do not align with the line",
        measured=f"mean |H| on the path {sa.mean().mean():.1e} against {alg1.mean().mean():.1e} for Algorithm 1; "
        f"largest |H| at the end {last.max():.2g}",
        tolerance="larger than Algorithm 1's in every run; |H| < 0.02 at the end",
        holds=bool((sa.mean() > alg1.mean()).all() and (last < 0.02).all()),
        reason=f"At the printed step 0.06 and 100 iterations neither arrives on all lines: largest distance to the front "
        f"{rows['b_shifted']['front_distance'].max():.2g}, with Algorithm 1 (same step and c_h, exact subproblem) "
        f"{rows['b_shifted_alg1']['front_distance'].max():.2g}; the claim is about alignment only.",
    )
    c = rows["c"]
    bad = c[c["k"].isin([1, 2]) & ((c["angle_deg"] > 5) | (c["front_distance"] > 0.1))]
    a.claim(
        "c-pareto-cone-fails",
        "With A = I some of the inner runs do not reach their rays from hard starts",
        "Figure 8c",
        published="not all runs reach their rays",
        measured=f"{len(bad)} of {int(c['k'].isin([1, 2]).sum())} inner runs are off; {worst(c)}",
        tolerance="at least one inner run with angle > 5° or distance > 0.1",
        holds=len(bad) > 0,
        reason="Which runs fail depends on the start.",
    )
