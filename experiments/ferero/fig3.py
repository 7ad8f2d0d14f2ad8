"""Figure 3: what each method finds on the toy problem, from 50 starts of each of four preferences."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import torch

from mobench.algorithms.ferero import FERERO
from mobench.artifacts import Artifact, JobRows, artifact
from mobench.artifacts.checks import AllOf, AtMost, Graded, Judged, Several, Share
from mobench.artifacts.published import published
from mobench.artifacts.statistics import percent
from mobench.core import Runs
from mobench.core.preferences import angle_deg, from_rays_deg
from mobench.metrics import front_distance
from mobench.problems import VLMOP2

from .runs import (
    INNER,
    NEAR,
    OUTER,
    SHARE,
    Condition,
    all_finish,
    arrived,
    arrives,
    direction,
    draw_paths,
    end_points,
    first_hit,
    first_output,
    off_ray,
    on_front,
    on_the_way,
    spread,
)
from .trajectories import front

PANELS = {
    "a": "(a) linear scalarization",
    "b": "(b) MGDA",
    "c": "(c) PMTL",
    "d": "(d) EPO",
    "e": "(e) FERERO, rays",
    "f": "(f) FERERO, shifted rays, step 0.2 (printed: 0.05)",
}
SERIES = {
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
}
PUBLIC = {"a": "LS", "d": "EPO", "e": "FERERO"}  # panels whose end points the public code draws
START = (
    "Starts are those of the authors' public code: of PMTL, EPO and FERERO 0.3 (+,-,+,-,...) + 0.1 N(0, I), "
    "of linear scalarization and MGDA uniform in [-0.6, 0.6]. The paper has one law for all methods, N(0, 1) "
    "per coordinate, where gradients are about 1e-8, so that no method moves."
)


@artifact("ferero/fig3")
def fig3(a: Artifact) -> None:
    """Six panels on the toy problem: baselines, FERERO on rays and on shifted rays."""
    public = {key: {"published": public_points(method)} for key, method in PUBLIC.items()}
    draw_paths(a, PANELS, b={"lines": False}, f={"shifted": True}, **public)
    end_points(a, SERIES)
    a.note(START)
    a.note(
        "Published end points, hollow diamonds in (a), (d) and (e): those in the vector figures of the "
        "public code, one run of each preference; of FERERO with the step and the iterations of the public "
        "script, which are not the printed ones (series e_public of the table)."
    )
    a.note("Panels show the paths of seed 0; end points of the other seeds are drawn faintly.")
    a.note(
        f"The paper draws one run of each preference. Here {a.jobs['e'].final['seed'].nunique()} starts of "
        f"each are run, and a statement holds if {percent(SHARE)} of the runs do what it says."
    )
    ls = first_output(a.jobs["a"])
    at_an_end = Condition(
        "within 1° of 0° or 90° and 0.001 of the front",
        lambda rows: (to_an_end(rows) < 1) & (rows["front_distance"] < 1e-3),
    )
    ends = {"0°": (ls["polar"] < 1).to_numpy(), "90°": (ls["polar"] > 89).to_numpy()}
    both = Share(ends, 0.1, that="within 1° of this end of the front")
    farthest = f"farthest {to_an_end(ls).max():.2g}° and {ls['front_distance'].max():.1g}"
    a.claim("a-ls-ends", AllOf(at_an_end.most(a.jobs["a"]), both).also(farthest))
    mgda = first_output(a.jobs["b"])
    central = Condition(
        "within 45 ± 8° and 0.001 of the front",
        lambda rows: ((rows["polar"] - 45).abs() <= 8) & (rows["front_distance"] < 1e-3),
    )
    angles = f"angles {mgda['polar'].min():.1f}° to {mgda['polar'].max():.1f}°"
    largest = f"largest distance {mgda['front_distance'].max():.1g}"
    a.claim("b-mgda-centre", central.most(a.jobs["b"]).also(f"{angles}, {largest}"))
    job = a.jobs["c"]
    inside = Condition("nearer to their own ray than to any of PMTL's references", in_sector)
    drawn = partial(nearest, others=rays_deg(first_output(job)).unique())
    own = Condition("nearer to their own ray than to the other drawn ones", drawn)
    most = AllOf(on_front(0.02).most(job), off_ray().most(job), inside.most(job, INNER, "inner runs"))
    outer = inside.most(job, OUTER, "outer runs")
    check = Graded(AllOf(most, outer), Judged(most.holds, "", "all but the outer runs"))
    a.claim(
        "c-pmtl-inexact",
        check.also(f"median angle to the ray {job.final['angle_deg'].median():.2g}°"),
        longer=percent(inside.share(a.jobs["c_phase1"], OUTER)),
        drawn=percent(own.share(job, OUTER)),
        drawn_longer=percent(own.share(a.jobs["c_phase1"], OUTER)),
    )
    a.claim("d-epo-exact", arrives(a.jobs["d"]))
    judge_rays(a)
    judge_long_steps(a)
    judge_shifted(a)
    judge_public_points(a)


def public_points(method: str) -> np.ndarray:
    """Returns the end points (4, 2) of a method in the public code's vector figures, in the order of rays."""
    rows = published("ferero/fig3_endpoints").where(row=method).rows
    return rows["value"].astype(float).to_numpy().reshape(4, 2)


def to_an_end(rows: pd.DataFrame) -> pd.Series:
    """Returns the degrees between each end point and the nearer axis, where the front ends."""
    return rows["polar"].where(rows["polar"] <= 45, 90 - rows["polar"])


def in_sector(rows: pd.DataFrame) -> pd.Series:
    """Returns which end points are nearer (in angle) to their ray than to any of PMTL's five references."""
    return nearest(rows, np.linspace(0, 90, 5))


def nearest(rows: pd.DataFrame, others: np.ndarray) -> pd.Series:
    """Returns which end points are as near (in angle) to their ray as to any of the others, in degrees."""
    other = np.abs(rows["polar"].to_numpy()[:, None] - others).min(1)
    return (rows["polar"] - rays_deg(rows)).abs() <= other


def rays_deg(rows: pd.DataFrame) -> pd.Series:
    """Returns the angle of each run's ray in degrees."""
    return pd.Series(np.degrees(np.arctan2(rows["ray_2"], rows["ray_1"])), index=rows.index)


def judge_rays(a: Artifact) -> None:
    jobs = {"inner loop of the paper, warm start": a.jobs["e"], "exact subproblem": a.jobs["e_exact"]}
    ends = "; ".join(f"{name}: {spread(job)}" for name, job in jobs.items())
    a.claim("e-ferero-exact", arrived().most_of_each(jobs).also(ends))
    a.check("e-ferero-cold", arrives(a.jobs["e_cold"], angle=2.0))
    hits = first_hit(a.jobs["e"])
    a.check(
        "e-ferero-first-hit",
        Share(hits > 0, SHARE, that=NEAR).also(f"iterations {hits.min()} to {hits.max()} (-1: never)"),
    )


def judge_long_steps(a: Artifact) -> None:
    exact = a.jobs["e_half_exact"]
    # lengths of the first directions (R,) by solver of the subproblem
    weights = torch.from_numpy(exact.weights)
    runs = Runs.product(torch.unique_consecutive(weights, dim=0), exact.config["seeds"])
    problem = VLMOP2(**{key: value for key, value in exact.config["problem"].items() if key != "_target_"})
    theta = problem.initial(runs).requires_grad_(True)
    F = problem.values(theta)
    rows = [torch.autograd.grad(F[:, m].sum(), theta, retain_graph=True)[0] for m in range(2)]
    J = torch.stack(rows, dim=1)
    directions = {s: direction(FERERO(subproblem=s), F.detach(), J, weights) for s in ("exact", "pgd")}
    lengths = {solver: torch.linalg.vector_norm(d, dim=-1).numpy() for solver, d in directions.items()}
    good = arrived().of(exact)
    lost = (first_output(exact)["status"] != "done").to_numpy()
    medians = [
        f"{np.median(lengths['exact'][some]):.2g} in runs that {what}"
        for what, some in (("arrive", good), ("do not finish", lost))
        if some.any()
    ]
    a.check(
        "exact-at-step-half",
        AllOf(
            arrived().most_of_each({"paper's inner loop": a.jobs["e_half"], "exact subproblem": exact}),
            all_finish(exact, "runs with the exact subproblem"),
        ),
        medians=", ".join(medians),
        longest=f"{lengths['pgd'].max():.2g}",
    )


def judge_shifted(a: Artifact) -> None:
    def follows(key: str, step: str) -> Several:
        what = f"runs with {step}"
        near_line = (on_the_way(a.jobs[key])["max"] < 0.02).to_numpy()
        on_path = Share(near_line, SHARE, that="|H| < 0.02 on the path", what=what)
        return AllOf(on_path, on_front().most(a.jobs[key], what=what))

    printed = a.jobs["f_printed"]
    check = Graded(follows("f_printed", "the printed step 0.05"), follows("f", "step 0.2"))
    a.claim(
        "f-shifted",
        check.also(f"largest distance with the printed step {printed.final['front_distance'].max():.2g}"),
        short=percent(1 - on_front().share(printed)),
    )


def judge_public_points(a: Artifact) -> None:
    public = {method: public_points(method) for method in PUBLIC.values()}
    rays = from_rays_deg([81.0, 57.0, 33.0, 9.0])
    theirs = torch.from_numpy(np.array(public["FERERO"]))
    distances = front_distance(theirs, torch.from_numpy(np.array(front())))
    gap = {
        "FERERO": gap_to(a.jobs["e_public"], public["FERERO"]),
        "EPO": gap_to(a.jobs["d"], public["EPO"]),
        "LS": gap_to(a.jobs["a"], public["LS"], nearest=True),  # its end depends on the start
    }
    limits = {"FERERO": 0.02, "EPO": 0.005, "LS": 1e-3}
    check = AtMost(gap, limits, of="largest distance to them", digits=".2g", partial=True)
    a.claim(
        "public-points",
        check.because(
            "FERERO with the public script's settings and EPO: of the mean over starts; LS: of a run"
        ),
        reason=f"Not within the tolerance: {', '.join(check.failing)}.",
        angle=f"{angle_deg(theirs, rays).max():.3g}",
        distance=f"{distances.max():.2g}",
    )


def gap_to(job: JobRows, points: np.ndarray, nearest: bool = False) -> float:
    """Returns the largest distance, over preferences, of the points (4, 2) to where the runs end.

    That is to the mean over the runs, or to the `nearest` run.
    """
    rows = first_output(job)
    rows = rows[rows["status"] == "done"]
    gaps = []
    for k, point in enumerate(points):
        ends = rows[rows["k"] == k][["f_1", "f_2"]].to_numpy()
        if len(ends):
            single = np.linalg.norm(ends - point, axis=1).min()
            gaps.append(float(single if nearest else np.linalg.norm(ends.mean(0) - point)))
    return max(gaps, default=np.inf)
