"""The paper's statements on its three variants where surrogates are infeasible: 100 seeds from two starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, AtMost, Check, Share, Smallest, SurelyBelow
from mobench.artifacts.panels import curve, dress
from mobench.artifacts.statistics import Mean

from .preferences import preferences_of, seed_columns
from .runs import COLOURS, FEASIBLE_SHARE, MATCH, METHODS, MOST, TIME, Curves, common, matching

EARLY = 50  # steps 0 to 49 are recorded one by one
QUICK = 150  # steps
STARTS = {"": 1.0, "far_": 2.0}  # prefixes of the jobs, and x_0
# seeds of the pilot: 0 to 99. From x_0 = 1, 7 to 30 % of the runs meet an infeasible surrogate, by
# preference; from 2, up to 78 %


@dataclass(frozen=True)
class Variants:
    """Runs of the three variants from one start, with the same noise; seeds that finished in all three."""

    at: dict[tuple[float, ...], dict[str, Curves]]

    @classmethod
    def of(cls, a: Artifact, prefix: str) -> Variants:
        lams = preferences_of(a.jobs[f"{prefix}basic"])
        return cls({lam: {key: Curves(a.jobs[prefix + key], lam) for key in METHODS} for lam in lams})

    def each(self) -> list[tuple[tuple[float, ...], str, Curves]]:
        return [(lam, key, c) for lam, curves in self.at.items() for key, c in curves.items()]

    def measured(self, key: str, fn: Callable[[Curves], np.ndarray]) -> np.ndarray:
        """fn of each run of a variant, over all preferences and common seeds, in the same order for all."""
        return np.concatenate([fn(curves[key])[common(curves)[key]] for curves in self.at.values()])

    @cached_property
    def seeds(self) -> np.ndarray:
        return self.measured("basic", lambda c: c.end("seed"))

    @cached_property
    def infeasible(self) -> dict[str, np.ndarray]:
        return {key: self.measured(key, lambda c: c.end("infeasible_steps")) for key in METHODS}

    @cached_property
    def met(self) -> np.ndarray:
        """Runs in which basic or CSMOO-1 meets an infeasible surrogate."""
        return (self.infeasible["basic"] > 0) | (self.infeasible["csmoo1"] > 0)

    def less(
        self, fn: Callable[[Curves], np.ndarray], one: str, other: str, of: np.ndarray | None = None
    ) -> Mean:
        """fn of `one` less fn of `other`: mean over runs (all, or `of`), with noise and seed in common.

        The interval is over seeds: runs of one seed at several preferences share their noise.
        """
        rows = pd.DataFrame({"seed": self.seeds, "d": self.measured(one, fn) - self.measured(other, fn)})
        chosen = rows if of is None else rows[of]
        return Mean.finite(chosen.groupby("seed")["d"].mean().to_numpy())


def violated(c: Curves) -> np.ndarray:
    """Violation added up over the first steps, by run."""
    return c.column("violation")[:, c.steps < EARLY].sum(1)


def roughness(c: Curves) -> np.ndarray:
    """Total variation of the Tchebycheff value along the recorded path, by run."""
    return np.abs(np.diff(c.column("tchebycheff"), axis=1)).sum(1)


@artifact("csmoo/infeasible")
def infeasible(a: Artifact) -> None:
    """The three variants over 100 seeds from two starts, so that surrogates are infeasible in many runs."""
    starts = {x0: Variants.of(a, prefix) for prefix, x0 in STARTS.items()}
    fig, axes = st.panels(1, 3, size=2.9)
    for ax, (x0, runs) in zip(axes[0], starts.items(), strict=False):
        for key, dash in zip(METHODS, ("-", (0, (5, 3)), "-"), strict=True):
            steps = runs.each()[0][2].steps
            early = steps < EARLY
            met = runs.measured(key, lambda c: c.column("violation"))[runs.met][:, early]
            if len(met):
                curve(ax, steps[early] + 1, met, METHODS[key], color=COLOURS[key], ls=dash)
        met_one = f"the {int(runs.met.sum())} of {len(runs.met)} runs"
        title = f"$x_0 = {x0:g}$: {met_one} that meet an infeasible surrogate"
        dress(
            ax, TIME, "violation, mean of these runs", title, log="x", legend=bool(runs.met.any()), small=True
        )
    ax = axes[0, 2]
    for x0, runs in starts.items():
        share = {lam[0]: c.end("infeasible_steps") > 0 for lam, key, c in runs.each() if key == "basic"}
        heights = [x.mean() if len(x) else np.nan for x in share.values()]
        ax.plot(list(share), heights, "o-", color=st.BLACK if x0 == 1.0 else st.GREY, label=f"$x_0 = {x0:g}$")
    dress(
        ax, r"$\lambda_1$", "share of basic's runs with\nan infeasible surrogate", ylim=(0, None), legend=True
    )
    a.figure(fig)
    a.table(
        [line(x0, lam, key, c) for x0, runs in starts.items() for lam, key, c in runs.each()],
        given=("x_0", "lambda_1", "method", "x exact"),
    )
    judge_together(a, starts)
    judge_relaxation(a, starts)
    judge_csmoo2(a, starts)
    a.note(
        f"Seeds {starts[1.0].each()[0][2].span}; x_0 = 1 at {len(starts[1.0].at)} preferences (the runs of "
        f"Figures 2 and 6 to 19) and x_0 = 2 at {len(starts[2.0].at)}, both outside of the feasible set. The "
        "paper does not print its start. All infeasible surrogates are proved to be so, by a multiplier."
    )


def line(x0: float, lam: tuple[float, ...], key: str, c: Curves) -> dict[str, object]:
    met = c.end("infeasible_steps")
    return {
        "x_0": x0,
        "lambda_1": lam[0],
        "method": METHODS[key],
        "runs with infeasible surrogates": int((met > 0).sum()),
        "infeasible surrogates": int(met.sum()),
        "feasible for good by step 150": float((c.feasible_since <= QUICK).mean()),
        "median step": float(np.median(c.feasible_since)),
        "violation, steps 0-49": float(violated(c).mean()),
        "total variation of V": float(roughness(c).mean()),
        **seed_columns(x=c.x_end),
        "x exact": c.optimum[0],
        "runs": c.runs,
    }


def judge_together(a: Artifact, starts: Mapping[float, Variants]) -> None:
    quickly: dict[float, Check] = {}
    match: dict[float, Check] = {}
    for x0, runs in starts.items():
        start = f"x_0 = {x0:g}: "
        by_then = {
            f"lambda_1 = {lam[0]:g}, {METHODS[key]}": c.feasible_since <= QUICK for lam, key, c in runs.each()
        }
        middle = [np.median(c.feasible_since) for _, _, c in runs.each()]
        later = [c.column("violation")[:, c.steps > QUICK].max(initial=0.0) for _, _, c in runs.each()]
        within = f"{start}feasible for good from step {QUICK} on at the latest"
        quickly[x0] = Share(by_then, FEASIBLE_SHARE, that=within).also(
            f"medians {min(middle):g} to {max(middle):g} steps; largest violation after step {QUICK}: "
            f"{max(later):.2g}"
        )
        apart = np.concatenate([matching(curves) for curves in runs.at.values()])
        close = Share(
            apart <= MATCH, MOST, that=f"{start}final x of any two variants within {MATCH}", digits=1
        )
        match[x0] = close.also(f"largest difference {apart.max():.1e}")
    for id, checks in (("quickly", quickly), ("same-solution", match)):
        only = [f"Only from x_0 = {x0:g}." for x0, one in checks.items() if one.holds]
        a.claim(id, AllOf(*checks.values(), partial=True), reason=only[0] if only else "")
    gap = 0.0
    for runs in starts.values():
        one, other = (runs.measured(key, lambda c: c.x) for key in ("basic", "csmoo1"))
        gap = max(gap, float(np.abs(one - other)[~runs.met].max(initial=0.0)))
    clean = sum(int((~runs.met).sum()) for runs in starts.values())
    total = sum(len(runs.met) for runs in starts.values())
    of = f"largest difference along the paths of the {clean} of {total} runs without an infeasible surrogate"
    same = AtMost(gap, 1e-6, of=of, digits=".1e").also(
        "the same steps by construction; what follows an infeasible one is in `relaxation-helps` and "
        "`rejoins`"
    )
    a.check(
        "basic-is-csmoo1", same.provided(clean, "Every run met an infeasible surrogate; others seeds decide.")
    )


def judge_relaxation(a: Artifact, starts: Mapping[float, Variants]) -> None:
    gain = {
        f"x_0 = {x0:g}, {int(runs.met.sum())} runs": runs.less(violated, "csmoo1", "basic", runs.met)
        for x0, runs in starts.items()
    }
    of = f"violation added up over {EARLY} steps, CSMOO-1 less basic, in runs with an infeasible surrogate"
    helps = SurelyBelow(gain, of=of, partial=True)
    only = [
        f"Only from x_0 = {x0:g}." for x0, name in zip(starts, gain, strict=True) if name not in helps.failing
    ]
    any_met = any(runs.met.any() for runs in starts.values())
    a.claim(
        "relaxation-helps",
        helps.provided(any_met, "No run met an infeasible surrogate; more seeds decide."),
        reason=only[0] if only else "",
    )

    def apart(runs: Variants) -> np.ndarray:
        one, other = (runs.measured(key, lambda c: c.x_end) for key in ("csmoo1", "basic"))
        return np.abs(one - other)[runs.met]

    after = np.concatenate([apart(runs) for runs in starts.values()])
    what = "runs with an infeasible surrogate"
    back = Share(after <= MATCH, 0.9, that=f"final |x - x of basic| at most {MATCH}", what=what, digits=1)
    rejoins = back.also(f"largest {after.max(initial=0.0):.1e}")
    a.claim("rejoins", rejoins.provided(len(after), "No run met an infeasible surrogate."))


def judge_csmoo2(a: Artifact, starts: Mapping[float, Variants]) -> None:
    count = {
        f"x_0 = {x0:g}, {len(r.met)} runs": int(r.infeasible["csmoo2"].sum()) for x0, r in starts.items()
    }
    basic = ", ".join(str(int(runs.infeasible["basic"].sum())) for runs in starts.values())
    none = AtMost(count, 0, of="infeasible surrogates of CSMOO-2", digits="d")
    a.claim("csmoo2-always-feasible", none.also(f"of basic: {basic}"))
    for id, fn, of in (
        ("csmoo2-smoothest", roughness, "total variation of V"),
        ("csmoo2-fastest", violated, f"violation added up over the first {EARLY} steps"),
    ):
        less = {
            f"{METHODS[other]} from x_0 = {x0:g}": runs.less(fn, "csmoo2", other)
            for x0, runs in starts.items()
            for other in ("basic", "csmoo1")
        }
        level = ", ".join(
            f"{runs.measured('basic', fn).mean():.3g} from x_0 = {x0:g}" for x0, runs in starts.items()
        )
        first = SurelyBelow(
            less, of=f"{of}, CSMOO-2 less the other variant, mean over runs with the same noise"
        )
        behind = ", ".join(name for name, d in less.items() if d.mean > d.half)
        why = f"It is behind {behind}." if behind else "The differences are within their noise."
        a.claim(id, first.also(f"basic: {level}"), reason=why)

    def spread(c: Curves) -> np.ndarray:
        early = c.x[:, (c.steps > 0) & (c.steps < EARLY)]
        if len(early) < 2:
            return np.full(len(early), np.nan)
        return np.asarray(np.square(early - early.mean(0)).mean(1) * len(early) / (len(early) - 1))

    calm = []
    for x0, runs in starts.items():
        values = {
            METHODS[k]: Mean(np.concatenate([spread(curves[k]) for curves in runs.at.values()]))
            for k in METHODS
        }
        of = f"variance of x over seeds, mean of steps 1 to {EARLY - 1}, x_0 = {x0:g}"
        calm.append(Smallest(values, "CSMOO-2", of=of, digits=".4f"))
    a.claim("csmoo2-less-sensitive", AllOf(*calm))
