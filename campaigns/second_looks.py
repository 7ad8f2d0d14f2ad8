"""A second look at every claim that is not reproduced, by programs that import nothing of mobench.

The loops are those of tests/reference (NumPy, SciPy), with seeds, channels and starts of their own. Each look
says how the claim fares there; `agrees` says whether it does not hold there either. Output:
experiments/second_looks.csv, which the pages of results show beside the claims. Run by hand (a quarter of an
hour of one core):

    python -m campaigns.second_looks
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr
from scipy.stats import t as student

from tests.reference import csmoo, epo, omd
from tests.reference.common import Array, ray_at
from tests.reference.problems import VLMOP2

TABLE = Path(__file__).parent.parent / "experiments" / "second_looks.csv"
PUBLISHED = Path(__file__).parent.parent / "experiments" / "ferero" / "published"
FRESH = 50_000  # seeds of the looks start here; no artifact uses them
SHARED_TASKS = (  # CIFAR-100 classes of the tasks that the seeds of mobl/fig8 share, as its rows say
    (89, 82, 25, 68, 94),
    (92, 91, 48, 49, 1),
    (33, 44, 81, 5, 10),
    (53, 54, 96, 37, 76),
    (58, 8, 22, 41, 16),
)


class Look(NamedTuple):
    """A claim that another program, or another reading, has checked."""

    artifact: str
    claim: str
    by: str
    seen: str
    agrees: bool | None  # None: a reading, which neither agrees nor disagrees


def interval(values: Array, of: int = 1) -> tuple[float, float]:
    """Returns the mean and half of Student's 95 % interval; `of` intervals hold together (Bonferroni)."""
    level = 1.0 - 0.05 / (2 * of)
    half = student.ppf(level, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def wilson_high(held: int, n: int) -> float:
    """Returns the upper end of Wilson's 95 % interval of a share."""
    z2 = 1.96**2
    p = held / n
    centre = p + z2 / (2 * n)
    return float((centre + np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2)))) / (1 + z2 / n))


def said(values: Array, digits: str = "+.3g") -> str:
    mean, half = interval(values)
    return f"{mean:{digits}} ± {half:{digits.lstrip('+')}}"


# CSMOO, the synthetic problem

VARIANTS = ("basic", "csmoo1", "csmoo2")
GAMMA = {"gamma": lambda t: 0.4 / (1.0 + t) ** 0.95}


def path(method: str, seed: int, start: float, lam: tuple[float, ...], steps: int) -> csmoo.Path:
    m = len(lam)
    noise = np.random.default_rng(seed).normal(0.0, np.sqrt(csmoo.VARIANCE), (steps, 1))
    x0 = np.array([start])
    more = {"beta": 5.0} if method == "csmoo2" else {}
    return getattr(csmoo, method)(
        csmoo.synthetic_oracle(noise, m),
        x0,
        csmoo.synthetic_exact(x0, m)[0],
        csmoo.INTERVAL,
        lam=np.array(lam),
        z=csmoo.synthetic_ideal("grid", m),
        steps=steps,
        tau=0.08,
        **GAMMA,
        **more,
    )


def infeasible_surrogates() -> Iterator[Look]:
    """60 seeds of each variant from x_0 = 1 and 2, lambda = (.3, .7), 300 steps, the same noise for all."""
    lam = (0.3, 0.7)
    z = csmoo.synthetic_ideal("grid", 2)
    counts, variation, violated, early = {}, {}, {}, {}
    for start in (1.0, 2.0):
        for method in VARIANTS:
            paths = [path(method, FRESH + s, start, lam, 300) for s in range(60)]
            exact = [[csmoo.synthetic_exact(x)[0] for x in p.x] for p in paths]
            V = np.array([[csmoo.tchebycheff(v, lam, z) for v in run] for run in exact])
            g = np.array([[csmoo.violation(v, 2) for v in run] for run in exact])
            key = (start, method)
            counts[key] = sum(p.n_infeasible for p in paths)
            variation[key] = np.abs(np.diff(V, axis=1)).sum(1)
            violated[key] = g[:, :50].sum(1)
            early[key] = np.array([p.x[1:50, 0] for p in paths])
    by = "NumPy loop, 60 seeds of its own, lambda = (.3, .7), 300 steps"
    two = [counts[start, "csmoo2"] for start in (1.0, 2.0)]
    yield Look(
        "csmoo/infeasible",
        "csmoo2-always-feasible",
        by,
        f"infeasible surrogates of CSMOO-2: {two[0]} from x_0 = 1, {two[1]} from 2",
        max(two) > 0,
    )
    for claim, what, values in (
        ("csmoo2-smoothest", "total variation of V", variation),
        ("csmoo2-fastest", "violation of the first 50 steps", violated),
    ):
        gaps = {
            (start, other): values[start, "csmoo2"] - values[start, other]
            for start in (1.0, 2.0)
            for other in ("basic", "csmoo1")
        }
        text = ", ".join(f"{other} from {start:g}: {said(gap)}" for (start, other), gap in gaps.items())
        above = any(np.subtract(*interval(gap, of=len(gaps))) > 0 for gap in gaps.values())
        yield Look("csmoo/infeasible", claim, by, f"{what}, CSMOO-2 less {text}", bool(above))
    rng = np.random.default_rng(FRESH)
    drawn = rng.integers(0, 60, (2000, 60))  # seeds, with replacement, the same for all variants

    def spread(key: tuple[float, str]) -> Array:
        """Variance over seeds, mean of the steps: of all seeds, then of each bootstrap sample."""
        return np.array([early[key][rows].var(axis=0, ddof=1).mean() for rows in (np.arange(60), *drawn)])

    parts, larger = [], False
    for start in (1.0, 2.0):
        for other in ("basic", "csmoo1"):
            gap = spread((start, "csmoo2")) - spread((start, other))
            low, high = np.quantile(gap[1:], [0.05 / 8, 1 - 0.05 / 8])
            larger |= bool(low > 0)
            parts.append(f"{other} from {start:g}: {gap[0]:+.4f} ({low:+.4f} to {high:+.4f})")
    yield Look(
        "csmoo/infeasible",
        "csmoo2-less-sensitive",
        by,
        f"variance of x, steps 1 to 49, CSMOO-2 less {', '.join(parts)}; bootstrap over seeds, four together",
        larger,
    )


def negative_values() -> Iterator[Look]:
    """The least value that shared samples can show with the analytic z."""
    rng = np.random.default_rng(FRESH)
    x = rng.uniform(-1.0, 2.0, 200_000)
    e = rng.normal(0.0, np.sqrt(csmoo.VARIANCE), (200_000, 4))
    u = x[:, None] + e
    z = csmoo.synthetic_ideal("analytic", 2)
    worst = np.maximum((u**2).mean(1) - z[0], ((u - 1.0) ** 2).mean(1) - z[1])
    yield Look(
        "csmoo/fig2",
        "negative-values",
        "200,000 random points with four shared samples each, and a line of proof",
        f"smallest max_i (estimate of f_i - z_i) {worst.min():.2g}; u^2 + (u - 1)^2 is at least 1/2, that "
        "is z_1 + z_2, with equality at u = 1/2, so none is below 0",
        bool(worst.min() >= 0),
    )


def optimum(lam: tuple[float, ...], z: Array) -> float:
    """Returns x*: V is convex on the feasible interval, so ternary search finds its minimum."""

    def V(x: float) -> float:
        return csmoo.tchebycheff(csmoo.synthetic_exact(np.array([x]), len(lam))[0], lam, z)

    low, high = csmoo.synthetic_feasible()
    for _ in range(200):
        left = low + (high - low) / 3.0
        right = high - (high - low) / 3.0
        low, high = (low, right) if V(left) <= V(right) else (left, high)
    return 0.5 * (low + high)


def third_weight() -> Iterator[Look]:
    """The exact optimum of the weighted maximum over a grid of preferences, by ternary search."""
    z = csmoo.synthetic_ideal("grid", 3)
    lams = [(i / 20, j / 20, 1 - i / 20 - j / 20) for i in range(21) for j in range(21 - i)]
    lams = [(max(a, 1e-3), max(b, 1e-3), max(c, 1e-3)) for a, b, c in lams]
    f3 = [csmoo.synthetic_exact(np.array([optimum(lam, z)]), 3)[0][2] for lam in lams]
    rank = float(spearmanr([lam[2] for lam in lams], f3).statistic)
    yield Look(
        "csmoo/fig38",
        "third-weight",
        "ternary search for the exact optima of 231 preferences, no run",
        f"rank correlation of lambda_3 and E f_3 {rank:.2f}: a larger weight lowers its objective",
        rank <= 0,
    )


# The other papers


def epo_hard_starts() -> Iterator[Look]:
    """EPO by its interval of feasible weights, 80 steps from the hard starts of Figure 4, inner rays."""
    problem = VLMOP2(20)
    u = np.linspace(-1.0, 1.0, 20_001)
    front = 1.0 - np.exp(-np.stack([(1.0 - u) ** 2, (1.0 + u) ** 2], axis=1))
    starts = 250
    arrived = 0
    for k, degrees in ((1, 57.0), (2, 33.0)):
        ray = ray_at(degrees)
        w = (1.0 / ray) / np.linalg.norm(1.0 / ray)
        for seed in range(starts):
            x0 = np.random.default_rng([FRESH + seed, k]).uniform(0.15, 0.5, 20) * (-1) ** k
            f = epo.run(problem, x0, w, steps=80, step_size=0.2, solver="interval").f[-1]
            angle = np.degrees(np.arccos(np.clip(f @ ray / np.linalg.norm(f) / np.linalg.norm(ray), -1, 1)))
            arrived += bool(angle < 1.0 and np.linalg.norm(front - f, axis=1).min() < 1e-3)
    share = arrived / (2 * starts)
    high = wilson_high(arrived, 2 * starts)
    yield Look(
        "ferero/fig4",
        "e-epo-80",
        f"NumPy loop, {starts} starts of its own for each inner ray",
        f"arrived after 80 steps: {share:.1%}, at most {high:.1%} (Wilson); the criterion of 90 % is ours",
        high < 0.9,
    )


def copied_row() -> Iterator[Look]:
    """Points of Table 2 beyond the printed nadir point, which alone can add to its hypervolume."""
    with (PUBLISHED / "fig5_points.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["row"] == "Multi-Fashion accuracy"]
    points: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        ray = row["metric"].rsplit(" objective ", 1)[0]
        points.setdefault((row["column"], ray), []).append(float(row["value"]))
    beyond = sum(p[0] > 0.84 and p[1] > 0.80 for p in points.values())
    best = [max(p[m] for p in points.values()) for m in (0, 1)]
    yield Look(
        "ferero/table9",
        "copied-row",
        f"the {len(points)} published points of Figure 5, counted",
        f"{beyond} of them are beyond (0.84, 0.80) in both accuracies (largest {best[0]:.3f} and "
        f"{best[1]:.3f}), so the hypervolume is 0; printed: 1.17",
        beyond == 0,
    )


def as_printed() -> Iterator[Look]:
    """Lines 3 to 10 of MLM-CMOO as printed, on P1, with the projections of its proof."""
    x, z, mu = np.array([0.3, -1.0]), 0.0, 0.0
    lam = theta = np.array([0.5, 0.5])
    corners = np.array([[-1.0, 0.0], [1.0, 0.0]])
    alpha = eta = beta = 0.02

    def simplex(v: Array) -> Array:
        a = float(np.clip(0.5 * (v[0] - v[1] + 1.0), 0.0, 1.0))  # M = 2
        return np.array([a, 1.0 - a])

    def min_norm(G: Array) -> Array:
        d = G[:, 0] - G[:, 1]
        a = np.clip(-(G[:, 1] @ d) / max(float(d @ d), 1e-300), 0.0, 1.0)
        return np.array([a, 1.0 - a])

    def prox_x(weights: Array, at: Array) -> Array:
        # argmin_u |u - c| + |u - at|^2 / 2, as H(u, l) = |sum_i l_i (u - a_i)| = |u - c|, c = sum_i l_i a_i
        c = weights @ corners
        away = at - c
        return c + away * max(0.0, 1.0 - 1.0 / max(float(np.linalg.norm(away)), 1e-300))

    def prox_l(at: Array, weights: Array, steps: int = 200) -> Array:
        # argmin_v |x - v c_1 - (1 - v) c_2| + |v - l|^2 / 2 on the simplex, by bisection of its slope in v_1
        low, high = 0.0, 1.0
        for _ in range(steps):
            v = 0.5 * (low + high)
            d = at - np.array([v, 1.0 - v]) @ corners
            length = max(float(np.linalg.norm(d)), 1e-300)
            slope = d @ (corners[1] - corners[0]) / length + 2.0 * (v - weights[0])
            low, high = (v, high) if slope < 0 else (low, v)
        return np.array([v, 1.0 - v])

    for t in range(1500):
        c_t = (t + 1.0) ** 0.25
        G = (x - corners).T
        g = 1.0 - x[1]
        new_theta = simplex(theta - eta * (prox_l(x, theta) + (theta - lam)))
        new_mu = float(np.clip(mu - eta * (g - (mu - z)), 0.0, 50.0))
        U = prox_x(lam, x) - prox_x(new_theta, x)
        new_x = x - alpha * (G @ lam / c_t + U + np.array([0.0, -1.0]) * new_mu)
        V = prox_l(x, lam) - prox_x(new_theta, x)
        lam, z = (
            simplex(lam - alpha * ((lam - min_norm(G)) / c_t + V - (lam - new_theta))),
            float(np.clip(z + beta * (new_mu - z), 0.0, 50.0)),
        )
        x, theta, mu = new_x, new_theta, new_mu
    yield Look(
        "mlm_cmoo/rate",
        "as-printed",
        "NumPy loop with proximal points in closed form, 1,500 steps",
        f"violation {1.0 - x[1]:.3f}, multiplier {mu:g}",
        bool(1.0 - x[1] > 0.01),
    )


def stored_iterates() -> Iterator[Look]:
    """Iterates that AdaOMD-TCH has stored after 1,000 steps, from starts of its own."""
    problem = VLMOP2(10)
    stored = np.zeros((5, 10))
    for seed in range(5):
        for k in range(10):
            w = np.clip(np.array([k / 9, 1 - k / 9]), 0.01, None)
            x0 = np.random.default_rng([FRESH + seed, k]).uniform(-1, 1, 10) / np.sqrt(10)
            run = omd.run(problem, x0, w / w.sum(), steps=1000, step_size=0.02, lambda_step=1.0)
            stored[seed, k] = len(run.extra["stored"])
    means = stored.mean(1)
    yield Look(
        "omd_tch/fig2",
        "stored",
        "NumPy loop, ten preferences, five seeds of its own",
        f"stored of 1,000 iterates, mean of the preferences: {said(means, '.0f')}; {stored.min():.0f} to "
        f"{stored.max():.0f} in single runs",
        bool(np.subtract(*interval(means)) > 100),
    )


def excess_mtl() -> Iterator[Look]:
    """ExcessMTL on VLMOP2, n = 10, from starts of its own; area below (1, 1) of the ten solutions."""
    problem = VLMOP2(10)
    areas = []
    for seed in range(5):
        points = []
        for k, w1 in enumerate(np.linspace(0.01, 0.99, 10)):
            w = np.array([w1, 1.0 - w1])
            x = np.random.default_rng([FRESH + seed, k]).uniform(-1, 1, 10) / np.sqrt(10)
            squares = np.zeros((2, 10))
            a = np.full(2, 0.5)
            first = None
            for _ in range(1000):
                g = w[:, None] * problem.jacobian(x)
                squares += g**2
                excess = np.sum(g**2 / np.sqrt(squares + 1e-7), axis=1)
                first = excess if first is None else first
                a = a * np.exp(excess / first)
                a = a / a.sum()
                x = np.clip(x - 0.02 * a @ g, -0.99999, 0.99999)
            points.append(problem.f(x))
        area, height = 0.0, 1.0
        for f1, f2 in sorted(tuple(p) for p in points):  # a staircase below (1, 1)
            if f1 < 1.0 and f2 < height:
                area += (1.0 - f1) * (height - f2)
                height = f2
        areas.append(area)
    values = np.array(areas)
    mean, half = interval(values)
    yield Look(
        "omd_tch/vlmop2_hypervolume",
        "excess-mtl-hypervolume",
        "NumPy loop of equations 6, 7 and 9, five seeds of its own",
        f"hypervolume {said(values, '.3f')}, listed 0.119 ± 0.011",
        bool(mean + half < 0.119 - 0.011),
    )


def corrupted_labels() -> Iterator[Look]:
    """The likely cause, not the claim: softmax regression on digits with labels drawn anew at rate p."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    X, y = load_digits(return_X_y=True)
    rates = (0.0, 0.15, 0.3, 0.45, 0.6)
    inverse = []
    for seed in range(10):
        rng = np.random.default_rng(FRESH + seed)
        order = rng.permutation(len(X))
        train, held_out = order[:900], order[900:]
        losses = []
        for p in rates:
            labels = y[train].copy()
            wrong = rng.random(900) < p
            labels[wrong] = rng.integers(0, 10, wrong.sum())
            model = LogisticRegression(C=1e-3, max_iter=500).fit(X[train], labels)
            losses.append(log_loss(y[held_out], model.predict_proba(X[held_out])))
        inverse.append(1.0 / np.array(losses))
    first = int((np.argmax(inverse, axis=1) == 0).sum())
    means = ", ".join(f"p = {p:g}: {v:.2f}" for p, v in zip(rates, np.mean(inverse, axis=0), strict=True))
    yield Look(
        "mobl/fig11",
        "none-dominates",
        "scikit-learn's logistic regression on its own digits, ten seeds, no bilevel method",
        f"1/L on correct held-out labels {means}; the task with the fewest wrong labels leads in {first} of "
        "10 seeds: the order is that of the data",
        first == 10,
    )


def shared_tasks() -> Iterator[Look]:
    """The likely cause, not the claim: softmax regression on pixels tells each task's classes apart so well.

    The classes are those of the job's tasks (problem.tasks_seed=12), from CIFAR-100 in $MOBENCH_DATA.
    """
    from PIL import Image
    from sklearn.linear_model import LogisticRegression

    folder = Path(os.environ.get("MOBENCH_DATA", "data")) / "cifar100"
    if not folder.exists():
        print(f"shared_tasks: there is no {folder}; the row of before is kept")
        for row in csv.DictReader(TABLE.read_text().splitlines()):
            if (row["artifact"], row["claim"]) == ("mobl/fig8", "none-dominates-5-train"):
                yield Look(row["artifact"], row["claim"], row["by"], row["seen"], row["agrees"] == "yes")
        return
    mosaics = [np.asarray(Image.open(file).convert("RGB")) for file in sorted(folder.glob("*.webp"))]
    images = [m.reshape(40, 32, -1, 32, 3).swapaxes(1, 2).reshape(-1, 3072) for m in mosaics]
    arrays = np.load(folder / "cifar100_labels.npz")
    y = np.concatenate([arrays["test_labels"], arrays["train_labels"]])  # in the order of the files
    X = np.concatenate(images) / 255.0
    scores = []
    for seed in range(10):
        rng = np.random.default_rng(FRESH + seed)
        right = []
        for classes in SHARED_TASKS:
            order = rng.permutation(np.flatnonzero(np.isin(y, classes)))
            train, held_out = order[::2], order[1::2]
            model = LogisticRegression(C=1e-3, max_iter=200).fit(X[train], y[train])
            right.append(100.0 * model.score(X[held_out], y[held_out]))
        scores.append(right)
    first = int((np.argmax(scores, axis=1) == 3).sum())
    means = ", ".join(f"{k}: {v:.0f} %" for k, v in enumerate(np.mean(scores, axis=0), 1))
    yield Look(
        "mobl/fig8",
        "none-dominates-5-train",
        "scikit-learn's logistic regression on pixels of all images of the five tasks' classes, ten random "
        "halves, no bilevel method",
        f"held-out accuracy of task {means}; task 4 leads in {first} of ten random halves: the order is that "
        "of the data",
        first == 10,
    )


def readings() -> Iterator[Look]:
    """Claims whose runs are too long for another program: their sentences, read again."""
    yield Look(
        "mobl/fig1",
        "extreme-test",
        "second reading of the text of Figure 1",
        "the sentence names neither training nor test accuracy; it is not reproduced for the test accuracy, "
        "and undecided for the training accuracy, which is at its ceiling",
        None,
    )
    yield Look(
        "mobl/fig9",
        "inner-steps",
        "second reading of Appendix E.2 and Figure 9c",
        "the text names no size of the difference; ours counts from 1 % of the loss on, and the interval of "
        "the difference excludes that, not a smaller one",
        None,
    )


LOOKS: tuple[Callable[[], Iterator[Look]], ...] = (
    negative_values,
    third_weight,
    copied_row,
    as_printed,
    stored_iterates,
    epo_hard_starts,
    infeasible_surrogates,
    excess_mtl,
    corrupted_labels,
    shared_tasks,
    readings,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*", help="names of looks; the rest of the table is kept")
    names = parser.parse_args().only
    rows = csv.DictReader(TABLE.read_text().splitlines()) if names and TABLE.exists() else ()
    table = {(row["artifact"], row["claim"]): row for row in rows}
    for look in LOOKS:
        if names and look.__name__ not in names:
            continue
        began = time.process_time()
        for line in look():
            print(f"{time.process_time() - began:6.1f} s  {line}", flush=True)
            row = line._asdict() | {"agrees": {True: "yes", False: "no", None: ""}[line.agrees]}
            table[line.artifact, line.claim] = row
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, Look._fields, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table[key] for key in sorted(table))


if __name__ == "__main__":
    main()
