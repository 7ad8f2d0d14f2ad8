"""Figure 8: Algorithm 2, which takes one step of the multipliers in each iteration, on the toy problem."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, JobRows, artifact
from mobench.artifacts.checks import AllOf, Share
from mobench.artifacts.statistics import percent

from .runs import (
    NEAR,
    SHARE,
    VISIBLE,
    arrived,
    before,
    draw_paths,
    end_points,
    first_hit,
    first_output,
    median_hit,
    on_front,
    on_the_way,
    spread,
)

PANELS = {
    "a": "(a) rays, as Fig. 3e, $\\gamma = 0.5$",
    "b": "(b) easy start, as Fig. 4c, $\\gamma = 0.5$",
    "b_shifted": "(b') shifted lines, as Fig. 3f, $\\gamma = 0.5$",
    "c": "(c) hard start, $A = I$, $\\gamma = 0.5$",
    "d": "(d) hard start, wider cone, $\\gamma = 0.5$",
    "d_literal": "(d') as (d), $\\gamma = 0.1$, which the text implies",
}
SERIES = {
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
}
LIMITS = {"a-on-rays": 0.5, "b-on-rays": 0.5, "d-on-rays": 2.0}  # degrees
PAIRS = {  # Algorithm 2 and Algorithm 1 from the same starts
    "start of Figure 3": ("a", "fig3e"),
    "easy": ("b", "fig4c"),
    "hard": ("d", "fig4f"),
}


@artifact("ferero/fig8")
def fig8(a: Artifact) -> None:
    """Algorithm 2 in the settings of Table 10."""
    draw_paths(a, PANELS, b_shifted={"shifted": True})
    end_points(a, SERIES)
    a.note(
        "gamma is not printed for these panels; 0.5 is used. What the text says of other settings (the same "
        "unless otherwise specified) would make it 0.1, the step of the inner loop: a series of its own for "
        "each panel."
    )
    for id, limit in LIMITS.items():
        key = id[0]
        gammas = {"gamma 0.5": a.jobs[key], "gamma 0.1": a.jobs[f"{key}_literal"]}
        check = arrived(limit).most_of_each(gammas, partial=True)
        a.claim(id, check.also(f"gamma 0.5: {spread(a.jobs[key])}"), rests_on=(key, f"{key}_literal"))
    rays = {key: on_the_way(a.jobs[key])["mean"] for key in ("a", "a_literal", "a_alg1")}
    lines = ("b_shifted", "b_shifted_literal", "b_shifted_alg1")
    leaves = {key: (on_the_way(a.jobs[key])["max"] > VISIBLE).to_numpy() for key in lines}
    twice = {
        "gamma 0.5": (rays["a"] >= 2 * rays["a_alg1"]).to_numpy(),
        "gamma 0.1": (rays["a_literal"] >= 2 * rays["a_alg1"]).to_numpy(),
    }
    off = {"gamma 0.5": leaves["b_shifted"], "gamma 0.1": leaves["b_shifted_literal"]}
    away = f"(b') more than {VISIBLE:g} off the line on the way"
    medians = f"medians of (a) {rays['a'].median():.2g} and {rays['a_alg1'].median():.2g}"
    a.claim(
        "paths-not-aligned",
        AllOf(
            Share(twice, SHARE, that="(a) mean |H| on the path at least twice Algorithm 1's"),
            Share(off, SHARE, that=away),
            Share(leaves["b_shifted_alg1"], at_most=1 - SHARE, that=away, what="runs of Algorithm 1"),
        ).also(medians),
        rests_on=(*rays, *leaves),
        two=percent(on_front().share(a.jobs["b_shifted"])),
        one=percent(on_front().share(a.jobs["b_shifted_alg1"])),
    )
    judge_iterations(a)
    judge_cones(a)


def judge_iterations(a: Artifact) -> None:
    hits = {key: first_hit(a.jobs[key]) for pair in PAIRS.values() for key in pair}
    later = {name: before(hits[one], hits[two]) for name, (two, one) in PAIRS.items()}
    check = Share(later, SHARE, that=f"{NEAR} later than Algorithm 1 from the same start", partial=True)
    medians = (
        f"{name} {median_hit(hits[two]):.0f} against {median_hit(hits[one]):.0f}"
        for name, (two, one) in PAIRS.items()
    )
    a.claim(
        "more-iterations",
        check.also(f"median iterations: {', '.join(medians)}"),
        rests_on=tuple(hits),
        missed=", ".join(check.failing),
    )


def judge_cones(a: Artifact) -> None:
    limit = LIMITS["d-on-rays"]
    fails = {"gamma 0.5": missed(a.jobs["c"], limit), "gamma 0.1": missed(a.jobs["c_literal"], limit)}
    that = f"some preference missed ({limit:g}°, 0.001)"
    wider = {"gamma 0.5": missed(a.jobs["d"], limit), "gamma 0.1": missed(a.jobs["d_literal"], limit)}
    a.claim(
        "c-pareto-cone-fails",
        AllOf(
            Share(fails, 0.5, that=that, what="starts with A = I"),
            Share(wider, at_most=0.1, that=that, what="starts with the wider cone", partial=True),
        ),
        arrive=percent(arrived(limit).share(a.jobs["c"])),
    )


def missed(job: JobRows, limit: float) -> np.ndarray:
    """Returns of which starts some preference's run does not arrive (seeds,): the paper draws one start."""
    rows = first_output(job)
    good = pd.Series(arrived(limit).of(job), index=rows.index)
    return (~good.groupby(rows["seed"]).all()).to_numpy()
