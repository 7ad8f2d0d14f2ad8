"""CSMOO's figures on beamforming with physical layer security.

The paper describes its baseline in words; its step size and penalty are not printed. Three are compared:
projected SGD and its proximal form with CSMOO-2's step sizes and penalty, and projected SGD with those that
did best elsewhere. "Best" was fixed before the runs that judge: the least mean V over channel instances 100
to 109 and five preferences among 42 settings (both forms; gamma_0 of .1, .4, 1 and, of SGD, 2; b of .6, .75,
.95; beta of 3, 10) whose mean final violation is at most .01.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize

from mobench.artifacts import Artifact, JobRows, Runs, artifact
from mobench.artifacts import style as st
from mobench.artifacts.artifact import Holds, columns
from mobench.metrics import hypervolume
from mobench.problems import PLS

from .at_preference import AtPreference, decreases, interval, std
from .csmoo_violation import judge_violation, unless

METHODS = {
    "csmoo2": "CSMOO-2",
    "csmoo1": "CSMOO-1",
    "sgd": "baseline, SGD",
    "prox": "baseline, proximal",
    "tuned": "baseline, tuned SGD",
}
COLOURS = {"csmoo2": st.BLUE, "csmoo1": st.GREEN, "sgd": st.RED, "prox": st.ORANGE, "tuned": st.PURPLE}
SAME = ("sgd", "prox")  # with CSMOO-2's step sizes and penalty
BASELINES = (*SAME, "tuned")
MODERATE = (0.2, 0.8)  # lambda_1 between them
MOST = 0.9  # share of channel instances (and preferences) that "consistently" asks for
CURVES = {3: 0.5, 20: 0.1, 22: 0.3, 24: 0.7, 26: 0.9}
RATES = {4: 0.5, 21: 0.1, 23: 0.3, 25: 0.7, 27: 0.9}
THREE = {28: 0.5, 29: 0.1, 30: 0.3, 31: 0.7, 32: 0.9}
KEPT = 0.05  # bit/s/Hz: what a rate may lose and still count as preserved
HELD_OUT = 150_000
# causes that were tested by a longer run, by lambda_1
LONGER = {
    0.9: " Tested: ten times the steps, `mobench protocol=csmoo_pls algorithm=csmoo2 "
    "preferences.weights=[[0.9,0.1]] seeds=[0,1,2,3,4] steps=20000`, bring CSMOO-2 to V = 0.2436 (standard "
    "deviation 0.0004), below the baseline."
}


def problem_of(job: JobRows) -> PLS:
    """The problem of a job."""
    return PLS(**{k: v for k, v in job.config["problem"].items() if k != "_target_"})


class Curves(AtPreference):
    """The runs of one job on the beamforming problem at one preference of two users."""

    def rate(self, user: int) -> np.ndarray:
        """Final expected rate of a user (S,)."""
        return -self.final[f"f_{user}"].to_numpy()

    @property
    def leakage(self) -> float:
        """C_th, the bound of both constraints."""
        return float(self.job.config["problem"]["leakage"])


def at(job: JobRows, lam1: float) -> Curves:
    """The runs at lambda = (lambda_1, 1 - lambda_1)."""
    return Curves(job, (lam1, 1.0 - lam1))


@dataclass(frozen=True)
class Reference:
    """V, power and rates of both users at the optimum of the scalarised problem."""

    V: float
    power: float
    rates: tuple[float, float]


@lru_cache(maxsize=64)
def reference(lam1: float, z: tuple[float, ...], seed: int = 0) -> Reference:
    """The best of six SLSQP solutions of the exact problem: an answer by another method."""
    problem = PLS(channel_seed=seed, ideal=list(z))
    lam = torch.tensor([lam1, 1.0 - lam1], dtype=torch.float64)
    ideal = torch.tensor(z, dtype=torch.float64)

    @lru_cache(maxsize=2)  # values and rows are asked for one after the other
    def evaluated(point: bytes) -> tuple[np.ndarray, np.ndarray]:
        v = np.frombuffer(point)
        # a copy for each function: one backward pass
        x = torch.from_numpy(v[:-1].copy()).repeat(4, 1).requires_grad_()
        values = problem.values(x).diagonal()
        (rows,) = torch.autograd.grad(values.sum(), x)
        w = torch.cat([lam, torch.ones(2, dtype=torch.float64)])
        shift = torch.cat([lam * ideal, torch.zeros(2, dtype=torch.float64)])
        h = (w * values - shift).detach().numpy() - np.array([v[-1], v[-1], 0.0, 0.0])
        J = np.column_stack([(w.unsqueeze(1) * rows).numpy(), [-1.0, -1.0, 0.0, 0.0]])
        power = problem.power - v[:-1] @ v[:-1]
        return np.append(-h, power), np.vstack([-J, np.append(-2.0 * v[:-1], 0.0)])

    def both(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return evaluated(v.tobytes())

    best = Reference(np.inf, np.nan, (np.nan, np.nan))
    rng = np.random.default_rng(0)
    for _ in range(6):
        start = np.append(0.5 * rng.standard_normal(8), 1.0)
        rules = {"type": "ineq", "fun": lambda v: both(v)[0], "jac": lambda v: both(v)[1]}
        gradient = np.append(np.zeros(8), 1.0)
        found = minimize(
            lambda v: v[-1], start, jac=lambda v, g=gradient: g, method="SLSQP", constraints=[rules],
            options={"maxiter": 300, "ftol": 1e-10},
        )  # fmt: skip
        if both(found.x)[0].min() > -1e-7 and found.x[-1] < best.V:
            W = found.x[:-1]
            rates = -problem.values(torch.from_numpy(W.copy()).unsqueeze(0))[0, :2]
            best = Reference(float(found.x[-1]), float(W @ W), (float(rates[0]), float(rates[1])))
    return best


def ideal_of(job: JobRows) -> tuple[float, ...]:
    """z of the job, which all its runs share."""
    return tuple(float(v) for v in job.meta["ideal_point"])


def better(shown: dict[str, Curves]) -> str:
    """The baseline with the smallest mean final V."""
    return min(BASELINES, key=lambda k: float(shown[k].V_end.mean()))


def band(ax: object, c: Curves, values: np.ndarray, key: str) -> None:
    """Mean and standard deviation over seeds against the iteration."""
    mean = values.mean(0)
    std = values.std(0)
    dash = (0, (4, 4)) if key == "csmoo1" else "-"  # it coincides with CSMOO-2
    ax.plot(c.steps + 1, mean, color=COLOURS[key], ls=dash, label=METHODS[key])  # type: ignore[attr-defined]
    edges = (mean - std, mean + std)
    ax.fill_between(c.steps + 1, *edges, color=COLOURS[key], alpha=0.18, lw=0)  # type: ignore[attr-defined]


def draw_curves(a: Artifact, shown: dict[str, Curves], best: Reference, z: tuple[float, ...]) -> None:
    """Tchebycheff value, violation and power against t."""
    fig, axes = st.panels(1, 3, size=2.9)
    for key, c in shown.items():
        for ax, name in zip(axes[0], ("tchebycheff", "violation", "power"), strict=True):
            band(ax, c, c.column(name), key)
    axes[0, 0].axhline(best.V, color=st.BLACK, ls=":", lw=1.0, label="reference (SLSQP)")
    axes[0, 2].axhline(best.power, color=st.BLACK, ls=":", lw=1.0)
    axes[0, 2].axhline(5.0, color=st.GREY, lw=0.8)
    axes[0, 2].text(1.2, 5.05, "budget", fontsize=7, color=st.GREY)
    labels = ("Tchebycheff value", "max constraint violation (bit/s/Hz)", r"power $\|W\|_F^2$")
    for ax, label in zip(axes[0], labels, strict=True):
        ax.set_xscale("log")
        ax.set_xlabel("iteration $t + 1$")
        ax.set_ylabel(label)
    axes[0, 1].set_yscale("symlog", linthresh=1e-2)
    axes[0, 1].set_ylim(bottom=0)
    axes[0, 0].legend(fontsize=7)
    a.figure(fig)
    a.note(
        f"z = ({', '.join(f'{v:.4f}' for v in z)}) from two extreme runs; values are exact expectations; "
        "band: one std."
    )


def judge_curves(a: Artifact, shown: dict[str, Curves], lam1: float, source: str) -> None:
    """Claims of the figures with Tchebycheff value, violation and power."""
    c = shown["csmoo2"]
    rival = better(shown)
    best = reference(lam1, ideal_of(c.job))
    judge_better(a, "better", c, "CSMOO-2", shown, best, source)
    V = float(c.V_end.mean())
    near = abs(V - best.V) <= 0.02
    a.check(
        "near-optimal",
        "CSMOO-2 solves the scalarised problem: against SLSQP on exact expectations",
        measured=f"V = {V:.4f}, reference {best.V:.4f}",
        tolerance="|difference| <= 0.02",
        holds=near,
        reason=unless(
            near, "W is still on its way after the last step: its power has not reached the optimum's."
        ),
    )
    late = float(c.column("violation")[:, c.steps >= c.steps[-1] / 4].max())
    judge_violation(
        a,
        "feasible",
        "CSMOO-2 drives the leakage violation to (nearly) zero",
        source,
        c.final["violation"].to_numpy(),
        c.leakage,
        more=f"; after a quarter of the steps at most {late:.4f}",
        reason="The leakage bound is active at the optimum, "
        "so the error of its estimate shows as violation and falls with it.",
    )
    judge_power(a, c, shown[rival], METHODS[rival], best, source)
    decreases(a, c.steps, c.column("tchebycheff"), source)
    spread = std(c.V_end)
    several = len(c.V_end) > 1
    small = spread <= 0.02
    a.claim(
        "stable",
        "The final metrics vary little over runs",
        "Section 5.2",
        published="small standard deviation",
        measured=f"standard deviation of V over {len(c.V_end)} seeds {spread:.4f}",
        tolerance="0.02",
        holds=small if several else None,
        reason=unless(small, "The channel errors of single samples still show at the end.")
        if several
        else "One run finished; two are needed.",
    )


def judge_better(
    a: Artifact, id: str, c: Curves, name: str, shown: dict[str, Curves], best: Reference, source: str
) -> None:
    """A method's V against that of the best baseline."""
    rival = better(shown)
    V = float(c.V_end.mean())
    other = float(shown[rival].V_end.mean())
    same = min(float(shown[k].V_end.mean()) for k in SAME)
    spent, theirs = (float(m.final["power"].mean()) for m in (c, shown[rival]))
    holds: Holds = True if other >= V else "partial" if same >= V else False
    part = (
        "Better than the baselines with its own step sizes and penalty, not than the tuned one. "
        if same >= V
        else ""
    )
    a.claim(
        id,
        f"{name} reaches a lower Tchebycheff value than the baseline",
        f"{source}, Section 5.2",
        published="strictly better",
        measured=f"{name} {interval(c.V_end)}; "
        + ", ".join(f"{METHODS[k]} {interval(shown[k].V_end)}" for k in BASELINES),
        tolerance="at most the best baseline's value (partial: "
        "only those of the baselines with CSMOO-2's step sizes and penalty)",
        holds=holds,
        reason=unless(
            holds,
            f"{part}{name} is still on its way after {c.job.config['steps']} steps (the paper prints no "
            f"number): it transmits with power {spent:.2f}, the optimum (V = {best.V:.4f}) with "
            f"{best.power:.2f}, the best baseline with {theirs:.2f}." + LONGER.get(round(c.lam[0], 9), ""),
        ),
    )


def judge_power(a: Artifact, c: Curves, rival: Curves, rival_name: str, best: Reference, source: str) -> None:
    """Section 5.2: the power remains at the budget."""
    budget = float(c.job.config["problem"]["power"])
    late = c.column("power")[:, c.steps >= c.steps[-1] / 4].mean(0)
    spent, theirs = (float(m.final["power"].mean()) for m in (c, rival))
    at_budget = bool(late.min() >= 0.99 * budget)
    a.claim(
        "power",
        "The transmit power remains at the budget boundary",
        f"{source}, Section 5.2",
        published="at the budget boundary (5), due to the explicit projection",
        measured=f"CSMOO-2, seed means: {late.min():.3f} at the least over the last three quarters of the "
        f"steps, {spent:.3f} at the end; {rival_name} {theirs:.3f}; {best.power:.3f} at the optimum",
        tolerance=f"within 1 % of {budget:g} over the last three quarters of the steps",
        holds=at_budget,
        reason=unless(
            at_budget,
            "No projection follows a step of CSMOO-2: W moves by the share gamma_t towards points that "
            "satisfy the budget, so it nears the boundary from inside, "
            "and what remains falls like exp(-sum of gamma_t) only.",
        ),
    )


def table(shown: dict[str, Curves], lam1: float) -> pd.DataFrame:
    """Final values, one line per method."""
    best = reference(lam1, ideal_of(shown["csmoo2"].job))
    rows = [{"method": METHODS[k], **_final(c)} for k, c in shown.items()]
    exact = {
        "lambda_1": lam1,
        "V": best.V,
        "power": best.power,
        "rate 1": best.rates[0],
        "rate 2": best.rates[1],
    }
    return pd.DataFrame([*rows, {"method": "reference (SLSQP)", **exact}])


def _final(c: Curves) -> dict[str, float | Runs]:
    return {
        "lambda_1": c.lam[0],
        "V": float(c.V_end.mean()),
        "V std": std(c.V_end),
        "rate 1": float(c.rate(1).mean()),
        "rate 1 std": std(c.rate(1)),
        "rate 2": float(c.rate(2).mean()),
        "rate 2 std": std(c.rate(2)),
        "violation": float(c.final["violation"].max()),
        "power": float(c.final["power"].mean()),
        "runs": c.runs,
    }


def curve_figure(number: int, lam1: float) -> None:
    """Register Figure 3, 20, 22, 24 or 26."""

    @artifact(f"csmoo/fig{number}")
    def draw(a: Artifact) -> None:
        shown = {k: at(job, lam1) for k, job in a.jobs.items() if k in METHODS}
        z = ideal_of(a.jobs["csmoo2"])
        draw_curves(a, shown, reference(lam1, z), z)
        judge_curves(a, shown, lam1, f"Figure {number}")
        a.table(table(shown, lam1), given=("method", "lambda_1"))


def rate_figure(number: int, lam1: float) -> None:
    """Register Figure 4, 21, 23, 25 or 27."""

    @artifact(f"csmoo/fig{number}")
    def draw(a: Artifact) -> None:
        shown = {k: at(job, lam1) for k, job in a.jobs.items() if k in METHODS}
        fig, axes = st.panels(1, 2, size=3.0, sharey=True)
        for user, ax in zip((1, 2), axes[0], strict=True):
            for key, c in shown.items():
                band(ax, c, -c.column(f"f_{user}"), key)
            ax.set_xscale("log")
            ax.set_xlabel("iteration $t + 1$")
            ax.set_title(f"user {user}, $\\lambda_{user} = {lam1 if user == 1 else 1 - lam1:.1f}$")
        axes[0, 0].set_ylabel("expected rate (bit/s/Hz)")
        axes[0, 0].legend(fontsize=7)
        a.figure(fig)
        a.table(table(shown, lam1), given=("method", "lambda_1"))
        judge_rates(a, shown, lam1, number)


def judge_rates(a: Artifact, shown: dict[str, Curves], lam1: float, number: int) -> None:
    """The rates of both users against the best baseline's: in the drawn instance, and in how many others."""
    c = shown["csmoo2"]
    rival = better(shown)
    best = reference(lam1, ideal_of(c.job))
    moderate = MODERATE[0] < lam1 < MODERATE[1]
    strong = [u for u, w in ((1, lam1), (2, 1.0 - lam1)) if w >= 0.5]
    weak = [u for u in (1, 2) if u not in strong]
    said = "; ".join(
        f"user {u}: CSMOO-2 {c.rate(u).mean():.3f}, {METHODS[rival]} {shown[rival].rate(u).mean():.3f}, "
        f"exact optimum {best.rates[u - 1]:.3f}"
        for u in (1, 2)
    )
    others = instances(a)
    others = others[np.abs(others["lambda_1"] - lam1) < 1e-9].dropna()

    def met(users: list[int], least: float) -> tuple[bool, float]:
        """Whether all these users' gains are at least that in the drawn instance,
        and in which share of all instances.
        """
        here = all(float(c.rate(u).mean() - shown[rival].rate(u).mean()) >= least for u in users)
        there = np.all([others[f"gain of rate {u}"] >= least for u in users], axis=0)
        return here, float(there.mean()) if len(others) else float("nan")

    higher, share = met(strong, 0.0)
    first = higher and share >= MOST
    which = "Emphasised rate" if weak else "Both rates"
    measured = f"{said}. {which} higher in {100 * share:.0f} % of {len(others)} channel instances"
    second = first
    if moderate and weak:
        kept, share_kept = met(weak, -KEPT)
        second = kept and share_kept >= MOST
        measured += f", the other's preserved in {100 * share_kept:.0f} %"
    holds: Holds = True if first and second else "partial" if first or second else False
    part = ""
    if holds == "partial":
        part = (
            "The other user's rate is lower. "
            if first
            else "The other user's rate is preserved, the emphasised one's not higher. "
        )
    missed = [u for u in strong if shown[rival].rate(u).mean() > best.rates[u - 1]]
    why = (
        "The methods trade differently: in some instances the baseline gives the emphasised user more and "
        "the other less."
    )
    if missed:
        why = (
            f"At the exact optimum of the weighted maximum user {missed[0]} has "
            f"{best.rates[missed[0] - 1]:.3f}, less than the baseline's "
            f"{shown[rival].rate(missed[0]).mean():.3f}: the baseline starves the other user and misses the "
            "optimum, so a method that solves the problem cannot have the higher rate."
        )
    a.claim(
        "both-rates" if moderate else "emphasised-rate",
        "CSMOO-2 attains a higher expected rate of the emphasised user than the baseline and preserves the "
        "other's"
        if moderate and weak
        else "CSMOO-2 attains higher expected rates of both users than the baseline"
        if moderate
        else "Even at extreme preferences CSMOO-2 gives the emphasised user a higher expected rate than the "
        "baseline",
        f"Figure {number}, {'Section 5.2' if moderate else 'Appendix E.2'}",
        published="consistently higher for the emphasised user, preserved or improved for the other"
        if moderate
        else "higher",
        measured=measured,
        tolerance=f"in the drawn instance and in at least {100 * MOST:.0f} % of all: {which.lower()} at "
        "least the best baseline's"
        + (f", the other's at least that less {KEPT} (partial: one of the two)" if moderate and weak else ""),
        holds=holds,
        reason=unless(holds, part + why),
    )
    if moderate:
        return
    spread = {u: std(c.rate(u)) for u in (1, 2)}
    enough = len(c.V_end) > 2
    wider = spread[weak[0]] >= 1.5 * spread[strong[0]]
    a.claim(
        "weak-user-varies",
        "The de-emphasised user's rate varies more over runs",
        f"Figure {number}, Appendix E.2",
        published="visibly larger variability",
        measured=f"standard deviation over {len(c.V_end)} seeds: de-emphasised {spread[weak[0]]:.4f}, "
        f"emphasised {spread[strong[0]]:.4f}",
        tolerance="at least 1.5 times as large",
        holds=wider if enough else None,
        reason=unless(
            wider, "One channel instance for all runs here; the paper's runs may draw channels anew."
        )
        if enough
        else "Standard deviations of fewer than three runs; more seeds decide.",
    )


def three_figure(number: int, lam1: float) -> None:
    """Register one of Figures 28-32."""

    @artifact(f"csmoo/fig{number}")
    def draw(a: Artifact) -> None:
        shown = {k: at(job, lam1) for k, job in a.jobs.items() if k in METHODS}
        z = ideal_of(a.jobs["csmoo2"])
        draw_curves(a, shown, reference(lam1, z), z)
        a.table(table(shown, lam1), given=("method", "lambda_1"))
        one = shown["csmoo1"]
        two = shown["csmoo2"]
        rival = better(shown)
        close = abs(float(one.V_end.mean() - two.V_end.mean())) <= 0.02
        steps = int(one.final["infeasible_steps"].sum())
        a.claim(
            "csmoo1-equals-csmoo2",
            "CSMOO-1 and CSMOO-2 end at the same Tchebycheff value",
            f"Figure {number}",
            published="close together",
            measured=f"CSMOO-1 {one.V_end.mean():.4f}, CSMOO-2 {two.V_end.mean():.4f}; "
            f"{steps} infeasible surrogates of CSMOO-1",
            tolerance="0.02",
            holds=close,
            reason=unless(close, "Infeasible surrogates send them different ways."),
        )
        judge_better(a, "csmoo1-better", one, "CSMOO-1", shown, reference(lam1, z), f"Figure {number}")
        a.refer(f"csmoo/fig{next(n for n, lam in CURVES.items() if lam == lam1)}", "better")
        judge_violation(
            a,
            "baseline-feasible",
            f"The baseline's violation goes to (nearly) zero as well, lambda_1 = {lam1:g}",
            f"Figure {number}, Appendix E.2",
            shown[rival].final["violation"].to_numpy(),
            two.leakage,
            more=f" ({METHODS[rival]})",
            reason="It is pushed back only once an estimate exceeds 0, and swings around the bound.",
        )


for _n, _l in CURVES.items():
    curve_figure(_n, _l)
for _n, _l in RATES.items():
    rate_figure(_n, _l)
for _n, _l in THREE.items():
    three_figure(_n, _l)


def lambdas(job: JobRows) -> list[float]:
    """The job's values of lambda_1."""
    return sorted(float(v) for v in job.final["preference_1"].unique())


@artifact("csmoo/fig5")
def fig5(a: Artifact) -> None:
    """Expected rates over the preferences, CSMOO-2 against the baseline; then other channel instances."""
    keys = ("csmoo2", *BASELINES)
    lams = lambdas(a.jobs["csmoo2"])
    points = {
        k: np.array([[at(a.jobs[k], lam1).rate(u).mean() for u in (1, 2)] for lam1 in lams]) for k in keys
    }
    fig, axes = st.panels(1, 2, size=3.5)
    for key, marker in zip(keys, "osD^", strict=True):
        axes[0, 0].plot(*points[key].T, marker=marker, ms=4, lw=0.9, color=COLOURS[key], label=METHODS[key])
    for lam1, (x, y) in zip(lams, points["csmoo2"], strict=True):
        axes[0, 0].annotate(f"{lam1:g}", (x, y), xytext=(3, 3), textcoords="offset points", fontsize=6)
    axes[0, 0].set_xlabel("expected rate, user 1 (bit/s/Hz)")
    axes[0, 0].set_ylabel("expected rate, user 2 (bit/s/Hz)")
    axes[0, 0].set_title(r"numbers: $\lambda_1$", fontsize=8)
    axes[0, 0].legend()
    table = instances(a)
    for seed, line in table.groupby("instance"):
        label = "one line per instance" if seed == table["instance"].min() else None
        axes[0, 1].plot(line["lambda_1"], line["ratio"], "-", color=st.BLUE, lw=0.6, alpha=0.5, label=label)
    middle = table.groupby("lambda_1")["ratio"].median()
    axes[0, 1].plot(middle.index, middle, "o-", color=st.BLACK, ms=4, label="median")
    axes[0, 1].axhline(1.0, color=st.BLACK, lw=0.8)
    axes[0, 1].set_xlabel(r"$\lambda_1$")
    axes[0, 1].set_ylabel("V of CSMOO-2 / V of the best baseline")
    axes[0, 1].set_title(f"{table['instance'].nunique()} channel instances", fontsize=8)
    axes[0, 1].legend(fontsize=7)
    a.figure(fig)
    a.table(table, given=("instance", "lambda_1"))
    two = points["csmoo2"]
    inside = [i for i in range(len(two)) if np.any(np.all(two >= two[i] + 0.03, axis=1))]
    a.claim(
        "nondominated",
        "CSMOO-2's solutions form a front",
        "Figure 5",
        published="smooth, well-behaved curve",
        measured=f"{len(inside)} of {len(two)} points dominated by more than 0.03 in both rates",
        tolerance="none",
        holds=not inside,
        reason=unless(not inside, "Neighbouring preferences end further apart by noise than by preference."),
    )
    monotone = bool(np.all(np.diff(two[:, 0]) >= -0.03) and np.all(np.diff(two[:, 1]) <= 0.03))
    a.claim(
        "monotone",
        "The preference moves the rates monotonically",
        "Figure 5",
        published="well-behaved under one z",
        measured=f"rate 1 from {two[0, 0]:.3f} to {two[-1, 0]:.3f}, "
        f"rate 2 from {two[0, 1]:.3f} to {two[-1, 1]:.3f}",
        tolerance="monotone up to 0.03",
        holds=monotone,
        reason=unless(monotone, "Neighbouring preferences end further apart by noise than by preference."),
    )
    volume = {k: hypervolume(-points[k], (0.0, 0.0)) for k in keys}
    above = volume["csmoo2"] >= max(volume[k] for k in BASELINES)
    a.claim(
        "hypervolume",
        "CSMOO-2's front is above the baseline's",
        "Figure 5, Section 5.2",
        published="consistently higher rate pairs",
        measured=", ".join(f"{METHODS[k]}: {v:.4f}" for k, v in volume.items()) + " (reference: rates 0)",
        tolerance="hypervolume at least the best baseline's",
        holds=above,
        reason=unless(above, "The tuned baseline covers more of the front."),
    )
    judge_instances(a, table)
    _held_out_check(a)


def judge_instances(a: Artifact, table: pd.DataFrame) -> None:
    """Section 5.2: better than the baseline, whatever the channels."""
    whole = table.dropna()
    inside = whole[whole["lambda_1"].between(*MODERATE)]
    wins = {k: float((inside["V CSMOO-2"] < inside[f"V {METHODS[k]}"]).mean()) for k in BASELINES}
    everywhere = {k: float((whole["V CSMOO-2"] < whole[f"V {METHODS[k]}"]).mean()) for k in BASELINES}
    ratio = {k: float((inside["V CSMOO-2"] / inside[f"V {METHODS[k]}"]).median()) for k in BASELINES}
    same = all(wins[k] >= MOST for k in SAME)
    tuned = wins["tuned"] >= MOST
    holds: Holds = True if same and tuned else "partial" if same or tuned else False
    excess = {k: float(whole[f"violation {METHODS[k]}"].mean()) for k in ("csmoo2", *BASELINES)}
    count = whole["instance"].nunique()
    why = (
        "Not against the tuned baseline: the margin over the others is in part that of their step sizes and "
        "penalty, which are CSMOO-2's own."
        if same
        else "The baselines win some instances, where CSMOO-2's power is still short of the optimum's."
    )
    a.claim(
        "instances",
        "CSMOO-2 ends at a strictly lower Tchebycheff value than the baseline, whatever the channels",
        "Section 5.2",
        published="consistently; strictly better at moderate preferences, under the same feasibility level",
        measured=f"lambda_1 in {{.3, .5, .7}}, {count} instances: lower in "
        + ", ".join(
            f"{100 * wins[k]:.0f} % (median ratio {ratio[k]:.3f}) against {METHODS[k]}" for k in BASELINES
        )
        + "; all five lambda_1: "
        + ", ".join(f"{100 * everywhere[k]:.0f} %" for k in BASELINES)
        + "; mean final violation: "
        + ", ".join(f"{METHODS[k]} {v:.4f}" for k, v in excess.items()),
        tolerance=f"lambda_1 in {{.3, .5, .7}}: in at least {100 * MOST:.0f} % of the pairs, against each "
        f"baseline (partial: against the two with CSMOO-2's step sizes, or the tuned one)",
        holds=holds if count >= 10 else None,
        reason=unless(holds, why)
        if count >= 10
        else "Fewer than ten channel instances finished; more seeds decide.",
    )


def instances(a: Artifact) -> pd.DataFrame:
    """V, violation and rates by channel instance and lambda_1, against the baseline with the smallest V
    there.

    NaN where one of the runs did not finish.
    """
    keys = ("csmoo2", *BASELINES)
    jobs = {k: a.jobs[f"channels_{k}"] for k in keys}
    rows = []
    for seed in sorted(jobs["csmoo2"].final["seed"].unique()):
        for lam1 in lambdas(jobs["csmoo2"]):
            runs = {
                k: j.final[(j.final["seed"] == seed) & (np.abs(j.final["preference_1"] - lam1) < 1e-9)]
                for k, j in jobs.items()
            }
            done = {k: r.where(r["status"] == "done").iloc[0] for k, r in runs.items()}
            V = {k: float(row["tchebycheff"]) for k, row in done.items()}
            whole = bool(np.isfinite(list(V.values())).all())
            rival = min(BASELINES, key=lambda k: V[k])
            gain = {
                u: float(done[rival][f"f_{u}"] - done["csmoo2"][f"f_{u}"]) if whole else np.nan
                for u in (1, 2)
            }
            rows.append(
                {
                    "instance": int(seed),
                    "lambda_1": lam1,
                    **{f"V {METHODS[k]}": V[k] for k in keys},
                    "ratio": V["csmoo2"] / V[rival] if whole else np.nan,
                    **{f"gain of rate {u}": gain[u] for u in (1, 2)},
                    **{f"violation {METHODS[k]}": float(done[k]["violation"]) for k in keys},
                    "runs": Runs.of(pd.concat(runs.values())),
                }
            )
    return pd.DataFrame(rows)


def _held_out_check(a: Artifact) -> None:
    """Exact expectations against the paper's way, a large held-out set."""
    job = a.jobs["csmoo2"]
    x = torch.from_numpy(job.solutions["last"])
    mean, error = problem_of(job).monte_carlo(x, HELD_OUT)
    exact = torch.from_numpy(
        job.final[columns(job.final, "f_") + columns(job.final, "g_")].to_numpy(copy=True)
    )
    worst = float(((mean - exact).abs() / error).max())
    a.check(
        "held-out",
        "Exact expectations agree with the paper's way of evaluation, "
        f"a held-out set (about {HELD_OUT} samples)",
        measured=f"{len(x)} solutions, {HELD_OUT} samples: largest deviation "
        f"{float((mean - exact).abs().max()):.1e}, {worst:.1f} standard errors",
        tolerance="4.5 standard errors",
        holds=worst <= 4.5,
        reason=unless(
            worst <= 4.5,
            "One of the two evaluations is wrong, or a deviation of a few in a million occurred.",
        ),
    )


def final_tables(jobs: dict[str, JobRows]) -> list[pd.DataFrame]:
    """Lines of `csmoo/finals`."""
    rows = []
    for key, job in jobs.items():
        for lam1 in lambdas(job):
            values = _final(at(job, lam1))
            rows.append(
                {"problem": "beamforming", "method": METHODS[key], "lambda": f"{lam1:g} {1 - lam1:g}"}
                | {k: v for k, v in values.items() if k != "lambda_1"}
            )
    return [pd.DataFrame(rows)]
