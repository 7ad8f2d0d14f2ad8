"""Figure 4: PMTL, EPO and FERERO from easy and from hard starts of the toy problem."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, artifact
from mobench.artifacts.checks import AllOf, Graded, Share
from mobench.artifacts.statistics import percent

from .runs import (
    INNER,
    NEAR,
    OUTER,
    SHARE,
    Condition,
    all_finish,
    arrived,
    arrives,
    before,
    draw_paths,
    end_points,
    first_hit,
    first_output,
    median_hit,
    off_ray,
    on_front,
    spread,
)

PANELS = {"a": "PMTL", "b": "EPO", "c": "FERERO", "d": "PMTL", "e": "EPO", "f": "FERERO"}
OWN = {  # panels that the paper does not have
    "e_80": "(g) as (e), after 80 iterations",
    "f_literal": "(h) as (f), with the printed settings",
    "f_exact": "(i) as (f), subproblem solved exactly",
}
SERIES = {
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
}


@artifact("ferero/fig4")
def fig4(a: Artifact) -> None:
    """PMTL, EPO and FERERO from easy (top) and hard starts; below, what the printed settings do (ours)."""
    titles = {
        key: f"({key}) {name}, {'easy' if key in 'abc' else 'hard'} starts, T = {a.jobs[key].config['steps']}"
        for key, name in PANELS.items()
    }
    draw_paths(a, titles | OWN)
    end_points(a, SERIES)
    a.note("The paper has panels (a) to (f).")
    a.note("Colours: the angles of the rays. FERERO uses A = [(1, 2), (2, 1)]/sqrt 5.")
    a.note(
        "Panel (f) departs twice from what is printed: c_h = 0.1 for 0.01, and an inner loop that is cut off "
        "after 10 steps for one of at most 250 steps to 1e-5. Each departure alone, and neither, are series "
        "of their own (f_c_h, f_inner, f_literal)."
    )
    a.note(
        "Hard starts have 20 coordinates of one sign, which changes from each preference to the next, as in "
        "EPO's public code; the paper prints the two intervals, not which preference has which."
    )
    p = a.jobs["a"]
    off = off_ray().most(p).also(f"median angle to the ray {p.final['angle_deg'].median():.2g}°")
    a.claim("a-pmtl", AllOf(on_front(1e-2).most(p), off))
    a.claim("b-epo", arrives(a.jobs["b"]))
    hits = {key: first_hit(a.jobs[key]) for key in "abc"}
    sooner = {"EPO": before(hits["c"], hits["b"]), "PMTL": before(hits["c"], hits["a"])}
    first = Share(sooner, SHARE, that=f"{NEAR}, before the other method from the same start")
    check = AllOf(arrived(0.5).most(a.jobs["c"], what="runs of FERERO after 10 iterations"), first).also(
        f"{spread(a.jobs['c'])}; median iteration {median_hit(hits['c']):.0f}, "
        f"EPO {median_hit(hits['b']):.0f}, PMTL never in {percent(float((hits['a'] < 0).mean()))}"
    )
    a.claim("c-ferero", check)
    judge_hard_pmtl(a)
    other = arrived().both_sides(a.jobs["e_sum"], "runs with the sum of r equal to 1").measured
    inner = first_output(a.jobs["e"])["k"].isin(INNER).to_numpy()
    late = float((first_hit(a.jobs["e"])[inner] < 0).mean())
    a.claim("e-epo", arrived().both_sides(a.jobs["e"]).also(other), late=percent(late))
    a.claim("e-epo-80", arrived().both_sides(a.jobs["e_80"]))
    judge_hard_ferero(a)
    exact = a.jobs["f_exact"]
    a.check(
        "f-exact",
        AllOf(
            arrived().both_sides(exact, "runs with the exact subproblem"),
            arrived().both_sides(a.jobs["f"], "runs with the inner loop cut off"),
            all_finish(exact, "runs with the exact subproblem"),
        ),
    )


def judge_hard_pmtl(a: Artifact) -> None:
    job = a.jobs["d"]
    steps = int(job.config["steps"])
    phase2 = np.linalg.norm(np.diff(job.paths()[:, steps // 5 :], axis=1), axis=-1).sum(-1)

    def stays(rows: pd.DataFrame) -> pd.Series:
        still = pd.Series(phase2[rows["run"]] < 1e-2, index=rows.index)
        return (rows[["f_1", "f_2"]] > 0.9).all(axis=1) & (rows["front_distance"] > 0.4) & still

    stuck = Condition(
        "with f_1, f_2 > 0.9, farther than 0.4, and a path of the second stage below 0.01", stays
    )
    longest = phase2[first_output(job)["k"].isin(INNER)].max()
    a.claim(
        "d-pmtl-two-fail",
        AllOf(
            on_front(1e-2).most(job, OUTER, "outer runs"),
            stuck.most(job, INNER, "inner runs").also(f"longest path of the second stage {longest:.1g}"),
        ),
    )


def judge_hard_ferero(a: Artifact) -> None:
    rows = first_output(a.jobs["f_literal"])
    rows = rows[rows["k"].isin(INNER) & (rows["status"] == "done")]
    reached = rows[rows["front_distance"] < 1e-2]["angle_deg"]
    plateau = (rows[["f_1", "f_2"]] > 0.9).all(axis=1)
    a.claim(
        "f-ferero",
        Graded(
            arrived().both_sides(a.jobs["f_literal"], "runs as printed"),
            arrived().both_sides(a.jobs["f"], "runs with c_h = 0.1 and 10 inner steps"),
        ),
        rate=sides(a, "f_c_h"),
        inner=sides(a, "f_inner"),
        reach=percent(float((rows["front_distance"] < 1e-2).mean())),
        nearest=f"{reached.min():.2g}",
        farthest=f"{reached.max():.3g}",
        plateau=percent(float(plateau.mean())),
    )


def sides(a: Artifact, key: str) -> str:
    """Says how many of the outer and of the inner preferences' runs of a job arrive."""
    outer, inner = (percent(arrived().share(a.jobs[key], k)) for k in (OUTER, INNER))
    return f"{outer} of the outer and {inner} of the inner runs"
