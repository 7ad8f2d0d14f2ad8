"""Figure 1: test losses of MLM-CMOO, NSGA-II and PSL on river flows and on faces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AtMost, Below, Check, Graded, Judged, Smallest
from mobench.artifacts.panels import dress, legend_below
from mobench.artifacts.radar import draw_polygon, polygon_area, radar_axes
from mobench.artifacts.rows import JobRows, RunCount
from mobench.artifacts.statistics import LEVEL
from mobench.data.celeba import LABELS

CELEBA_TRAIN = 162_770  # pictures of the official training part
METHODS = {"mlm_cmoo": "MLM-CMOO", "nsga2": "NSGA-II", "psl": "PSL"}
BASELINES = ("nsga2", "psl")
PLAIN = {"ls": "equal weights", "mgda": "MGDA"}  # ours
COLOURS = {m: st.look(m).colour for m in (*METHODS, *PLAIN)}
TITLES = METHODS | {
    "no_u": "MLM-CMOO without U",
    "faster_eta": "MLM-CMOO, eta = 0.05",
    "exact_inner": "MLM-CMOO, exact inner",
    "more_seeds": "MLM-CMOO, other seeds",
} | PLAIN  # fmt: skip
SITES = ("CHSI2", "NASI2", "EADM7", "SCLM7", "CLKM7", "VALI2", "NAPM7", "DLDI4")
MOST_SITES = 6  # "most" of the eight


def numbered(frame: pd.DataFrame, prefix: str) -> list[str]:
    """Returns prefix_1, prefix_2, ..., in the order of their numbers."""
    names = [c for c in frame.columns if c.startswith(f"{prefix}_") and c[len(prefix) + 1 :].isdigit()]
    return sorted(names, key=lambda c: int(c.rsplit("_", 1)[1]))


def chosen(rows: pd.DataFrame, losses: list[str]) -> pd.DataFrame:
    """Returns of each seed the run that a user would take.

    It has the smallest mean training loss of the runs that meet the constraints, or else the smallest
    violation.
    """
    done = rows[rows["status"] == "done"]
    best = [done.iloc[:0]]
    for _, part in done.groupby("seed"):
        met = part[part["violation"] <= 0] if "violation" in part else part
        order = met[losses].mean(axis=1) if len(met) else part["violation"]
        best.append((met if len(met) else part).iloc[[int(np.argmin(order.to_numpy()))]])
    return pd.concat(best)


def taken(job: JobRows) -> pd.DataFrame:
    return chosen(job.final, numbered(job.final, "f"))


def caps_met(a: Artifact) -> str:
    """Says how many finished runs, or members of a population, meet the caps."""
    ends = {m: a.jobs[m].final for m in (*BASELINES, "more_seeds")}
    met = {m: (rows["status"] == "done") & (rows["violation"] <= 0) for m, rows in ends.items()}
    said = ", ".join(f"{int(x.sum())} of {len(x)} ({TITLES[m]})" for m, x in met.items())
    return f"They are met by {said}; the paper reports of NSGA-II and PSL only solutions that do."


@artifact("mlm_cmoo/fig1c")
def fig1c(a: Artifact) -> None:
    """Radar of the test losses at eight sites, divided by the largest of the three methods on each axis."""
    picked = {m: taken(a.jobs[m]) for m in TITLES}
    means = {m: rows[numbered(rows, "test_loss")].mean().to_numpy() for m, rows in picked.items()}
    top = np.nanmax([means[m] for m in METHODS], axis=0)
    relative = {m: values / top for m, values in means.items()}
    draw_sites(a, relative)
    lines = [site_line(a.jobs[m], TITLES[m], means[m], picked[m]) for m in TITLES]
    a.table(lines, given=("method", "baseline's space"))
    a.note(
        f"Data: {a.jobs['mlm_cmoo'].meta['data']}. Test losses: mean squared errors of z-scored flows, mean "
        "over seeds."
    )
    a.note(
        "Of a population the member with the smallest mean training loss is shown, among those that meet the "
        f"caps, or else the one of least violation. {caps_met(a)} NSGA-II and PSL start from a network "
        "trained by equal-weight gradient descent (ours: the paper does not say how they search a network) "
        "and search 50 random directions around it, so their polygons owe much to that start."
    )
    cost = a.jobs["mlm_cmoo"].seconds_per_step / a.jobs["no_u"].seconds_per_step
    sums = {m: float(values.sum()) for m, values in means.items()}
    a.note(
        f"The Hessian-vector term U: a step costs {cost:.2f} times one without it; sum of the "
        f"test losses {sums['mlm_cmoo']:.3f} with it, {sums['no_u']:.3f} without."
    )
    areas = {m: polygon_area(values) for m, values in relative.items()}
    as_printed = {METHODS[m]: areas[m] for m in METHODS}
    faster = as_printed | {"MLM-CMOO": areas["faster_eta"]}
    check = Graded(
        Smallest(as_printed, "MLM-CMOO", of="area", digits=".2f"),
        Smallest(faster, "MLM-CMOO", of="area, with eta = 0.05 for the printed 0.001", digits=".2f"),
    )
    words = {"own": "mlm_cmoo", "plain": "no_u", "eta": "faster_eta"}
    said: dict[str, Any] = {word: f"{sums[m]:.3f}" for word, m in words.items()}
    a.claim("smallest-area", check, **said, area=f"{areas['faster_eta']:.2f}")
    a.claim(
        "sites",
        judge_sites(picked),
        own=f"{sums['more_seeds']:.3f}",
        count=len(picked["more_seeds"]),
        eta=said["eta"],
    )
    rival = min(PLAIN, key=lambda m: np.nan_to_num(sums[m], nan=np.inf))
    of = f"sum of test losses of the better of the two, {TITLES[rival]},"
    smaller = Below(sums[rival], sums["mlm_cmoo"], of=of, than="MLM-CMOO's", digits=".3f")
    a.check("against-plain-descent", smaller)


def judge_sites(picked: dict[str, pd.DataFrame]) -> Check:
    """Asks it of the 60 seeds with the printed settings; partial where eta = 0.05 alone does it."""
    return Graded(
        most_sites(picked, "more_seeds"),
        most_sites(picked, "faster_eta", " with eta = 0.05 for the printed 0.001"),
    )


def most_sites(picked: dict[str, pd.DataFrame], job: str, how: str = "") -> Check:
    """Compares one of MLM-CMOO's jobs with the better baseline at each site; how: its settings, in words.

    That it has the smallest loss at MOST_SITES of them is excluded by more than two sites where a baseline's
    is smaller, by Welch's intervals, which hold for all sites together (Bonferroni).
    """
    won, best = smallest_at(picked, job)
    lost = [site for k, site in enumerate(SITES) if surely_larger(picked[job], picked[best[k]], k)]
    excluded = len(lost) > len(SITES) - MOST_SITES
    all_sites = f"of {len(SITES)} sites with the smallest loss of the three{how}"
    smaller = f"a baseline's is smaller by 95 % intervals for all sites together at {len(lost)}"
    return Judged(
        len(won) >= MOST_SITES,
        f"{len(won)} {all_sites}; {smaller}: {', '.join(lost) or '–'}",
        f"at least {MOST_SITES} {all_sites}",
        excluded=f"Of the losses at {len(SITES)} sites {smaller}." if excluded else "",
    )


def smallest_at(picked: dict[str, pd.DataFrame], job: str) -> tuple[list[str], list[str]]:
    """Returns the sites at which a job has the smallest mean loss, and the better baseline at each site."""
    means = {m: picked[m][numbered(picked[m], "test_loss")].mean().to_numpy() for m in (job, *BASELINES)}
    best = [min(BASELINES, key=lambda m: means[m][k]) for k in range(len(SITES))]
    return [site for k, site in enumerate(SITES) if means[job][k] < means[best[k]][k]], best


def surely_larger(one: pd.DataFrame, other: pd.DataFrame, k: int) -> bool:
    """Says whether the mean loss of `one` at site k is larger, by an interval if both have three seeds."""
    losses = [rows[numbered(rows, "test_loss")[k]].to_numpy() for rows in (one, other)]
    if min(map(len, losses)) < 3:
        return False
    level = 1 - (1 - LEVEL) / len(SITES)
    return float(ttest_ind(*losses, equal_var=False).confidence_interval(level).low) > 0


def draw_sites(a: Artifact, relative: dict[str, np.ndarray]) -> None:
    fig = st.plt.figure(figsize=(4.6, 4.2), layout="constrained")
    reach = max(1.0, *(float(relative[m].max()) for m in PLAIN))
    ax = radar_axes(fig, 111, SITES, 0.0, reach, [0.25, 0.5, 0.75, 1.0], beside=True)
    for m, label in METHODS.items():
        draw_polygon(ax, relative[m], label, COLOURS[m], marker=st.look(m).marker, ms=3.6, clip_on=False)
    for m, label in PLAIN.items():
        draw_polygon(ax, relative[m], f"{label} (ours)", COLOURS[m], ls="--", lw=0.9, ms=1.5, clip_on=False)
    ax.set_title("test loss / largest of the three methods, by site", pad=14)
    dress(ax, legend={"loc": "upper left", "bbox_to_anchor": (1.05, 1.05)})
    a.figure(fig)


def site_line(job: JobRows, title: str, means: np.ndarray, picked: pd.DataFrame) -> dict[str, Any]:
    space = (job.config.get("space") or {}).get("_target_", "-").rsplit(".", 1)[-1].lower()
    return {
        "method": title,
        "baseline's space": space,
        **dict(zip(SITES, means, strict=True)),
        "sum": means.sum(),
        "max": means.max(),
        "violation (train)": picked["violation"].mean() if "violation" in picked else np.nan,
        "median |U|/|rest|": job.history["u_ratio"].median() if "u_ratio" in job.history else np.nan,
        "ms per step": 1e3 * job.seconds_per_step,
        "runs": RunCount(len(picked), job.final["seed"].nunique()),
    }


def followed(h: pd.DataFrame, population: bool) -> pd.DataFrame:
    """Returns the mean test loss by step and seed.

    The loss of a population is that of the member with the smallest mean training loss so far, among the
    members that meet the constraints (before there are any: among all).
    """
    loss = h[numbered(h, "f")].mean(axis=1)
    h = h.assign(order=np.where(h["violation"] <= 0, loss, 1e9 + h["violation"]) if population else loss)
    one = h.loc[h.groupby(["seed", "step"])["order"].idxmin()].sort_values(["seed", "step"])
    if population:
        better = one["order"] <= one.groupby("seed")["order"].cummin()
        one = one.assign(test_loss_mean=one["test_loss_mean"].where(better).groupby(one["seed"]).ffill())
    return one.pivot_table(index="step", columns="seed", values="test_loss_mean")


@artifact("mlm_cmoo/fig1a")
def fig1a(a: Artifact) -> None:
    """Mean test loss over the attributes against training time."""
    note_faces(a)
    fig, ((ax,),) = st.panels(1, 1, figsize=(4.6, 3.0))
    ends = {}
    for m in METHODS:
        job = a.jobs[m]
        done = job.final.loc[job.final["status"] == "done", "run"]
        best = followed(job.history[job.history["run"].isin(done)], bool(job.config.get("space")))
        warm = 0.0
        if "warm_seconds" in job.final:  # seeds are trained in one batch
            warm = float(job.final.groupby("seed")["warm_seconds"].first().sum())
        seconds = warm + (best.index.to_numpy() + 1.0) * job.seconds_per_step
        if best.notna().to_numpy().any():  # else no run of it finished
            look = st.look(m)
            marks = {"marker": look.marker, "ms": 4, "markevery": max(1, len(seconds) // 6)}
            mean = best.mean(axis=1).to_numpy()
            name = f"{METHODS[m]}, range of {best.shape[1]} seeds" if best.shape[1] > 1 else METHODS[m]
            ax.plot(seconds, mean, color=look.colour, label=name, **marks)
            if best.shape[1] > 1:
                ax.fill_between(
                    seconds, best.min(axis=1), best.max(axis=1), color=look.colour, alpha=0.15, lw=0
                )
            ax.plot(seconds[-1], mean[-1], look.marker, color=look.colour, ms=6, mec="white", mew=0.5)
            ends[m] = float(best.iloc[-1].mean())
    steps = int(a.jobs["mlm_cmoo"].config["steps"])
    others = [ends[m] for m in BASELINES if m in ends]
    if not a.on_papers_data() and "mlm_cmoo" in ends and others and ends["mlm_cmoo"] > min(others):
        words = f"MLM-CMOO still falls: stopped\nafter {steps} steps, not converged"
        ax.text(1.04, 0.5, words, fontsize=7, color=st.BLUE, transform=ax.transAxes)
    dress(ax, "training time of all seeds together (s)", "mean test loss (binary cross-entropy)", log="x")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    a.figure(fig)
    a.note(
        "Baselines: shifts and scales of the heads on frozen features (baseline's space: head_bias) after a "
        "warm start, whose time counts."
    )
    judge_faces(a, "matches-loss", "test_loss_mean", "mean test loss")


@artifact("mlm_cmoo/fig1b")
def fig1b(a: Artifact) -> None:
    """Test error of each of eight attributes."""
    note_faces(a)
    fig, ((ax,),) = st.panels(1, 1, figsize=(6.4, 2.8))
    names = numbered(a.jobs["mlm_cmoo"].final, "test_error")[:8]
    for k, m in enumerate(METHODS):
        part = taken(a.jobs[m])[names].to_numpy()
        x = np.arange(len(names)) + 0.24 * (k - 1)
        look = st.look(m)
        points = {"ls": "none", "color": look.colour, "marker": look.marker}
        if not len(part):  # no run of it finished
            continue
        ax.plot(np.tile(x, (len(part), 1)).T, part.T, ms=2.6, alpha=0.5, **points)
        ax.plot(x, part.mean(0), ms=5.5, mec="white", mew=0.4, label=METHODS[m], **points)
    labels = [str(name).replace("_", " ") for name in a.jobs["mlm_cmoo"].meta["attributes"][: len(names)]]
    ax.set_xticks(np.arange(len(names)), labels, rotation=20, ha="right", rotation_mode="anchor")
    ax.set_xlim(-0.6, len(names) - 0.4)
    for edge in range(1, len(names)):
        ax.axvline(edge - 0.5, color="#DDDDDD", lw=0.5)
    ax.plot([], [], "o", ms=2.6, alpha=0.5, color=st.GREY, label="small: one seed")
    dress(ax, y="test error (share of pictures)", ylim=(0.0, None))
    legend_below(fig, ax, ncols=4)
    a.figure(fig)
    a.note("Large points: means over seeds; small points: each seed.")
    judge_faces(a, "matches-error", "test_error_mean", "mean test error")


def note_faces(a: Artifact) -> None:
    """Notes the label of the pictures, and that the panels are our choice."""
    a.note(
        f"Data: {a.jobs['mlm_cmoo'].meta['data']}. The paper does not describe the panels; "
        "what they show is our choice."
    )


def judge_faces(a: Artifact, id: str, column: str, of: str) -> None:
    means = {m: float(taken(a.jobs[m])[column].mean()) for m in METHODS}
    best = min(BASELINES, key=lambda m: np.nan_to_num(means[m], nan=np.inf))
    bound = 1.05 * means[best]
    check = AtMost(means["mlm_cmoo"], bound, of=of, than="1.05 times the best baseline's", digits=".3f")
    meta = a.jobs["mlm_cmoo"].meta
    whole = meta["data"] != LABELS["celeba"] or meta["train_size"] == CELEBA_TRAIN
    lacks = f"{meta['train_size']} of {CELEBA_TRAIN} training pictures. All of them would decide it."
    a.claim(id, check.also(f"{METHODS[best]} {means[best]:.3f}").provided(whole, lacks))
