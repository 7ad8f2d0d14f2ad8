"""Every algorithm on every problem that it fits: shares of the attainable hypervolume, alignment, worst
objective, stationarity, violation, time, and ranks with bootstrap intervals over the seeds. Ours. The rules
and tolerances were fixed before any run; settings of the suites were changed after the first ones: the
slowest decay of theory for CSMOO and its baseline where there is no noise (the paper's stops too early
there), boxes of the population methods, numbers of steps, step sizes for the images.

Protocol. All methods get the same starts, preferences, seeds and number of steps. Where runs of a batch can
differ in their step size, all of `cross.step_sizes` are run and one is chosen on the first seeds
(two of five): the one with the most finished, feasible runs, among equals the one with the best score; none
if no run counts at any of them. The other seeds are reported. Methods with a schedule of their own keep it.
Seeds that choose are reported for no method.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import moocore
import numpy as np
import pandas as pd
from scipy import stats

from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.config.schema import choices
from mobench.core.truth import KnownFront
from mobench.jobs.store import columns
from mobench.jobs.targets import instantiate, load_class
from mobench.metrics import hypervolume

FEASIBLE = 1e-3  # of max_j g_j: points beyond it do not count
BOOTSTRAP = 2000
FRONT = 2000  # points of a front, whose hypervolume is the unit
GRID = "step_size"
INTERVAL = 5  # fewest reported seeds of which an interval is given
SUITES = {  # which checks each suite makes; the summary shows the same tables and refers to them
    "zoo": ("complete", "below-front"),
    "constrained": ("complete", "feasible"),
    "bilevel": ("complete",),
    "federated": ("complete",),
    "multi_task": ("complete",),
}


def choosing(seeds: int) -> int:
    """How many of the seeds choose the step size; none of a single one."""
    return 0 if seeds == 1 else max(1, 2 * seeds // 5)


@dataclass(frozen=True)
class Pair:
    """The runs of one algorithm on one problem."""

    problem: str
    algorithm: str
    job: JobRows

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Final rows of the method's own output, with `counts`: finished and feasible."""
        rows = self.job.final
        rows = rows[rows["output"] == rows["output"].iloc[0]].copy()
        good = rows["status"] == "done"
        if "violation" in rows and not self.first_order_gap:
            good &= rows["violation"].fillna(0.0) <= FEASIBLE
        rows["counts"] = good
        return rows

    @property
    def first_order_gap(self) -> bool:
        """Whether the constraint is a lower level's gap: rows are phi(x) at y*(x),
        on which a gap at (x, y) is no constraint.
        """
        return str(self.job.config["oracle"]["_target_"]).endswith(".ValueGap")

    @cached_property
    def enforces(self) -> bool:
        """True if the method uses the problem's constraints in its search;
        False if it only accepts such problems.
        """
        method = load_class(str(self.job.config["algorithm"]["_target_"]), "algorithm")
        return bool(method.enforces)  # type: ignore[attr-defined]

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds, in the order of the command."""
        return [int(s) for s in dict.fromkeys(self.rows["seed"])]

    @cached_property
    def sizes(self) -> list[float | None]:
        """Step sizes that were run; [None] where the method has its own."""
        return sorted(self.rows[GRID].unique()) if GRID in self.rows else [None]

    def at(self, size: float | None) -> pd.DataFrame:
        """Rows of one step size; none of NaN, which stands for "no step size qualified"."""
        return self.rows if size is None else self.rows[self.rows[GRID] == size]

    def points(self, rows: pd.DataFrame, seed: int) -> np.ndarray:
        """Objective values of what counts (k, M)."""
        chosen = rows[(rows["seed"] == seed) & rows["counts"]]
        return chosen[columns(rows, "f_")].to_numpy(dtype=float)


class Table:
    """All pairs on one problem, scored on the same scale."""

    def __init__(self, name: str, pairs: list[Pair]) -> None:
        self.name = name
        self.pairs = {p.algorithm: p for p in pairs}
        self.seeds = pairs[0].seeds
        first = pairs[0].rows
        self.M = len(columns(first, "f_"))
        self.fronts = len(first.drop_duplicates(columns(first, "preference_"))) > 1
        self.few = self.seeds[: choosing(len(self.seeds))]
        self.report = self.seeds[choosing(len(self.seeds)) :]
        self.chosen = {a: self._choose(p) for a, p in self.pairs.items()}
        self.scores = np.array(
            [[self.score(p, p.at(self.chosen[a]), s) for s in self.report] for a, p in self.pairs.items()]
        )

    @cached_property
    def problem(self) -> Any:
        """The problem, without the layers that an oracle wears."""
        return instantiate(next(iter(self.pairs.values())).job.config["problem"], "problem")

    @property
    def measure(self) -> str:
        """What ranks: share of a hypervolume (larger is better),
        or worst objective where one preference makes no front.
        """
        return "share" if self.fronts else "worst objective"

    @cached_property
    def front(self) -> float | None:
        """Hypervolume of the exact front; None where none is known, or constraints leave a part of it."""
        ref = self.problem.ref_point
        if not self.fronts or ref is None or self.problem.n_constraints:
            return None
        front = self.problem.front(FRONT) if isinstance(self.problem, KnownFront) else None
        return None if front is None else hypervolume(front.numpy(), ref)

    @cached_property
    def _unit(self) -> dict[int, tuple[tuple[float, ...], float]]:
        """By seed: reference point, and the hypervolume that counts as 1.

        Of the front, or where none is known (or constraints leave a part of it) of all methods' points
        together, with a tenth of their extent beyond the worst nondominated ones.
        """
        ref = self.problem.ref_point
        out = {}
        for seed in self.seeds:
            every = np.concatenate(
                [p.points(p.rows, seed) for p in self.pairs.values()] or [np.empty((0, self.M))]
            )
            corner = tuple(ref) if ref is not None else _corner(every)
            volume = (
                self.front
                if self.front is not None
                else (hypervolume(every, corner) if len(every) else np.nan)
            )
            out[seed] = corner, float(volume)
        return out

    def score(self, pair: Pair, rows: pd.DataFrame, seed: int) -> float:
        """Of one seed.

        Runs that do not count are points that are not there; all of them lost is the worst there is.
        """
        F = pair.points(rows, seed)
        if self.fronts:
            corner, unit = self._unit[seed]
            # nobody below the reference point
            return hypervolume(F, corner) / unit if len(F) and unit > 0 else 0.0
        return float(F.max(1).mean()) if len(F) else np.inf

    def _choose(self, pair: Pair) -> float | None:
        """The step size with the most runs that count on the choosing seeds, among equals the best score;
        NaN if none counts.
        """
        if len(pair.sizes) == 1 or not self.few:
            return pair.sizes[0]
        sign = 1.0 if self.fronts else -1.0
        best: tuple[float, float] = (0.0, -np.inf)
        chosen: float | None = np.nan
        for size in pair.sizes:
            rows = pair.at(size)
            counted = float(rows.loc[rows["seed"].isin(self.few), "counts"].sum())
            score = sign * float(np.mean([self.score(pair, rows, seed) for seed in self.few]))
            if counted > 0 and (counted, score) > best:
                best = (counted, score)
                chosen = size
        return chosen

    @cached_property
    def ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Ranks of the means over seeds (A,) and of resampled seeds (BOOTSTRAP, A), 1 the best; methods that
        agree to six digits share a rank.
        """
        rng = np.random.default_rng(0)
        draws = rng.integers(0, len(self.report), (BOOTSTRAP, len(self.report)))
        return self._rank(self.scores.mean(1)[None])[0], self._rank(self.scores.T[draws].mean(1))

    def _rank(self, means: np.ndarray) -> np.ndarray:
        """Ranks (draws, A) of means (draws, A), rounded to six digits."""
        size = 10.0 ** np.floor(
            np.log10(np.maximum(np.abs(means), 1e-300), where=np.isfinite(means), out=np.zeros_like(means))
        )
        rounded = np.where(np.isfinite(means), np.round(means / size, 5) * size, means)
        out: np.ndarray = stats.rankdata(-rounded if self.fronts else rounded, axis=1)
        return out

    def lines(self) -> list[dict[str, Any]]:
        """A row of the table for each method."""
        ranks, draws = self.ranks
        low, high = np.quantile(draws, [0.025, 0.975], axis=0)
        wide = len(self.report) >= INTERVAL
        out = []
        for i, (name, pair) in enumerate(self.pairs.items()):
            rows = pair.at(self.chosen[name])
            rows = rows[rows["seed"].isin(self.report)]
            done = rows[rows["status"] == "done"]
            least = next((done[c].median() for c in ("stationarity", "kkt") if c in done), np.nan)
            values = self.scores[i]
            out.append(
                {
                    "problem": self.name,
                    "algorithm": name,
                    "share of hypervolume": values.mean() if self.fronts else np.nan,
                    "std": np.std(values, ddof=1) if wide and np.isfinite(values).all() else np.nan,
                    "rank": f"{ranks[i]:g} [{low[i]:g}, {high[i]:g}]" if wide else f"{ranks[i]:g}",
                    "angle to preference (deg)": done["angle_deg"].mean()
                    if "angle_deg" in done and self.fronts
                    else np.nan,
                    "worst objective": done[columns(done, "f_")].max(axis=1).mean(),
                    "stationarity (median)": least,
                    "violation (max)": done["violation"].max() if "violation" in done else np.nan,
                    "us per step and run": 1e6
                    * pair.job.meta["seconds_train"]
                    / pair.job.config["steps"]
                    / len(pair.rows),
                    "step size": self.chosen[name]
                    if self.chosen[name] is not None
                    else pair.job.config["algorithm"].get(GRID, np.nan),
                    "steps": pair.job.config["steps"],
                    "runs": RunCount.of(rows)
                    if len(rows)
                    else RunCount(0, len(pair.at(pair.sizes[0])) * len(self.report) // len(self.seeds)),
                    "note": "" if len(rows) else "no step size qualified on the choosing seeds",
                }
            )
        return out


def _corner(F: np.ndarray) -> tuple[float, ...]:
    """Reference point: worst of the nondominated points and a tenth of their extent."""
    if not len(F):
        return (1.0,) * F.shape[1]
    best = F[moocore.is_nondominated(F)]
    corner = best.max(0) + 0.1 * np.maximum(np.ptp(best, axis=0), 1e-12)
    return tuple(float(v) for v in corner)


def tables(a: Artifact) -> list[Table]:
    """The problems of a suite."""
    found: dict[str, list[Pair]] = {}
    for name, job in a.jobs.items():
        problem, algorithm = name.split(".", 1)
        found.setdefault(problem, []).append(Pair(problem, algorithm, job))
    return [Table(problem, pairs) for problem, pairs in found.items()]


def _reason(text: str) -> str:
    """The reasons of a refusal in one line."""
    return "; ".join(line.strip().removeprefix("- ") for line in text.splitlines()[1:])


def draw(a: Artifact) -> None:
    """Table, heat map and ranks of a suite."""
    shown = tables(a)
    refused = {tuple(name.split(".", 1)): _reason(text) for name, text in a.refused.items()}
    rows = [line for t in shown for line in t.lines()]
    rows += [
        {"problem": p, "algorithm": m, "note": f"does not fit: {reason}"}
        for (p, m), reason in refused.items()
    ]
    frame = pd.DataFrame(rows)
    frame["note"] = frame.pop("note")  # last
    frame = frame.dropna(axis=1, how="all")
    given = [c for c in ("problem", "algorithm", "step size", "steps", "note") if c in frame]
    a.table(frame, given=given)
    _picture(a, shown, refused)
    _checks(a, shown, refused)
    _notes(a, shown)


def mean_ranks(shown: list[Table]) -> dict[str, tuple[float, float, float, int]]:
    """Mean over problems of rank / number of methods there, with a bootstrap interval,
    and on how many problems.
    """
    out: dict[str, tuple[float, float, float, int]] = {}
    for name in sorted({m for t in shown for m in t.pairs}):
        parts = [(t, list(t.pairs).index(name)) for t in shown if name in t.pairs]
        whole = np.mean([t.ranks[0][i] / len(t.pairs) for t, i in parts])
        draws = np.mean([t.ranks[1][:, i] / len(t.pairs) for t, i in parts], axis=0)
        low, high = np.quantile(draws, [0.025, 0.975])
        if any(len(t.report) < INTERVAL for t, _ in parts):
            low = high = np.nan  # a bootstrap of so few seeds is no interval
        out[name] = float(whole), float(low), float(high), len(parts)
    return dict(sorted(out.items(), key=lambda item: item[1][0]))


def _picture(a: Artifact, shown: list[Table], refused: dict[Any, str]) -> None:
    """Scores as a heat map, methods by their mean relative rank,
    which the right panel shows with its interval.
    """
    order = mean_ranks(shown)
    methods = list(order)
    nowhere = sorted({m for _, m in refused} - set(order))
    refused = {pair: _first(reason) for pair, reason in refused.items()}
    letters = {reason: chr(97 + i) for i, reason in enumerate(dict.fromkeys(refused.values()))}
    width = max(1.1 * len(shown), 2.2)
    fig, (ax, right) = st.plt.subplots(
        1,
        2,
        figsize=(width + 4.6, 0.27 * len(methods) + 1.6),
        width_ratios=[width, 2.2],
        layout="constrained",
        sharey=True,
    )
    colours = np.full((len(methods), len(shown)), np.nan)
    for j, t in enumerate(shown):
        best = t.scores.mean(1).max() if t.fronts else t.scores.mean(1).min()
        for i, m in enumerate(methods):
            if m in t.pairs:
                k = list(t.pairs).index(m)
                value = t.scores[k].mean()
                good, bad = (value, best) if t.fronts else (best, value)
                colours[i, j] = max(0.0, good / bad) if bad > 0 else 1.0
                text = (
                    "–" if not np.isfinite(value) else f"{value:.3f}" if abs(value) < 1000 else f"{value:.1e}"
                )
                ax.text(
                    j,
                    i,
                    text,
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if colours[i, j] < 0.6 else "black",
                )
            else:
                reason = refused.get((t.name, m))
                ax.add_patch(st.plt.Rectangle((j - 0.5, i - 0.5), 1, 1, color="#F0F0F0", lw=0))
                ax.text(
                    j,
                    i,
                    letters[reason] if reason else "",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=st.GREY,
                    style="italic",
                )
    ax.imshow(colours, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    names = [f"{t.name}\n({t.measure})" for t in shown]
    ax.set_xticks(range(len(shown)), names, fontsize=7.5)
    ax.set_yticks(range(len(methods)), methods, fontsize=8)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    for i, (value, low, high, n) in enumerate(order.values()):
        right.errorbar(
            value,
            i,
            xerr=None if np.isnan(low) else [[max(0.0, value - low)], [max(0.0, high - value)]],
            fmt="o",
            ms=3.5,
            color=st.BLUE,
            elinewidth=1.0,
        )
        if len(shown) > 1:
            right.annotate(
                str(n),
                (1.06, i),
                xycoords=right.get_yaxis_transform(),
                fontsize=7,
                color=st.GREY,
                va="center",
            )
    right.set_xlim(0, 1.02)
    right.set_xlabel(
        "mean of rank / methods\n(95 % bootstrap interval"
        + (
            f" where {INTERVAL} seeds or more are reported"
            if any(len(t.report) < INTERVAL for t in shown)
            else ""
        )
        + ("; right: problems)" if len(shown) > 1 else ")"),
        fontsize=7.5,
    )
    right.grid(axis="x", lw=0.4, color="#CCCCCC")
    if letters:
        words = [f"{letter}: {reason}" for reason, letter in letters.items()]
        for key in dict.fromkeys(_letters(m, refused, letters) for m in nowhere):
            same = [m for m in nowhere if _letters(m, refused, letters) == key]
            words.append(f"on none of these ({key}): {', '.join(same)}")
        fig.supxlabel(
            "\n".join(w if len(w) <= 150 else w[:147] + "..." for w in words),
            fontsize=6.2,
            x=0.01,
            ha="left",
            color=st.GREY,
        )
    a.figure(fig)


def _first(reason: str) -> str:
    """The first of several reasons, without numbers that differ between problems."""
    return re.sub(r", the problem has [NMP]=\d+", "", reason.split(";")[0])


def _letters(method: str, refused: dict[Any, str], letters: dict[str, str]) -> str:
    """The reasons why a method is on no problem."""
    return ", ".join(sorted({letters[reason] for (_, m), reason in refused.items() if m == method}))


def _checks(a: Artifact, shown: list[Table], refused: dict[Any, str]) -> None:
    if a.id == "cross/summary":
        for suite, ids in SUITES.items():
            a.refer(f"cross/{suite}", *ids)
        return
    ran = sum(len(t.pairs) for t in shown)
    empty = {
        f"{m} on {t.name}": _lost(t, p)
        for t in shown
        for m, p in t.pairs.items()
        if not (p.at(t.chosen[m])["status"] == "done").any()
    }
    a.check(
        "complete",
        "Every algorithm runs on every problem that it fits; where it does not fit the reason is said",
        measured=f"{ran} pairs ran, {len(refused)} refused with a reason; without a finished run: "
        f"{', '.join(empty) or 'none'}",
        tolerance="every pair that ran has a finished run at the chosen step size",
        holds=not empty,
        reason="; ".join(f"{pair}: {why}" for pair, why in empty.items()),
        any_scale=True,
    )
    # elsewhere the unit holds all points: no share can be larger
    known = [t for t in shown if t.front is not None]
    if known:
        top = max((float(t.scores.max()), t.name) for t in known)
        a.check(
            "below-front",
            "No method has more than the whole hypervolume: a check of fronts, "
            "reference points and evaluations",
            measured=f"largest share {top[0]:.6f} ({top[1]})",
            tolerance="1 + 1e-3 (fronts are samples)",
            holds=top[0] <= 1 + 1e-3,
            reason="" if top[0] <= 1 + 1e-3 else f"The front or the reference point of {top[1]} is wrong.",
            any_scale=True,
        )
    bound = [
        (t, m, p)
        for t in shown
        for m, p in t.pairs.items()
        if "violation" in p.rows and not p.first_order_gap
    ]
    if bound:
        late = {}
        for t, m, p in bound:
            rows = p.at(t.chosen[m])
            rows = rows[rows["seed"].isin(t.report)]
            if p.enforces and (not len(rows) or not rows["counts"].all()):
                late[f"{m} on {t.name}"] = _infeasible(t, m, rows)
        ignoring = sorted({m for _, m, p in bound if not p.enforces})
        a.check(
            "feasible",
            "Methods that use constraints end feasible at the step size that was chosen",
            measured=(
                "all" if not late else f"runs that do not: {', '.join(f'{k}: {v}' for k, v in late.items())}"
            )
            + (
                f" (not counted, as constraints are not passed on to their search: {', '.join(ignoring)})"
                if ignoring
                else ""
            ),
            tolerance=f"violation <= {FEASIBLE:g} in every reported run",
            holds=not late,
            reason=_why_infeasible([(t, m, p) for t, m, p in bound if f"{m} on {t.name}" in late])
            if late
            else "",
        )


def _lost(t: Table, pair: Pair) -> str:
    """Why a pair has no finished run at the chosen step size."""
    statuses = pair.rows["status"].value_counts()
    seen = ", ".join(f"{n} {status}" for status, n in statuses.items())
    if np.isnan(t.chosen[pair.algorithm] or 0.0):
        return f"no run counts on the choosing seeds at any step size (all runs: {seen})"
    return f"its runs: {seen}"


def _infeasible(t: Table, m: str, rows: pd.DataFrame) -> str:
    """How many of the reported runs do not count, and how far the worst finished one is off."""
    if not len(rows):
        return "no step size qualified"
    lost = int((~rows["counts"]).sum())
    done = rows[rows["status"] == "done"]
    return f"{lost} of {len(rows)}" + (
        f" (violation up to {done['violation'].max():.1g})" if len(done) else ""
    )


def _listed(sizes: list[float]) -> str:
    return " and ".join(f"{size:g}" for size in sizes)


def _why_infeasible(pairs: list[tuple[Table, str, Pair]]) -> str:
    """The likely cause, method by method: runs that did not finish,
    or a step size at which all runs are feasible.
    """
    said = []
    for t, m, p in pairs:
        rows = p.at(t.chosen[m])
        rows = rows[rows["seed"].isin(t.report)]
        lost = int((rows["status"] != "done").sum())
        other = [
            size
            for size in p.sizes
            if size is not None and p.at(size).loc[p.at(size)["seed"].isin(t.report), "counts"].all()
        ]
        text = f"{m} on {t.name}"
        if not len(rows):
            text += ": no run counts at any step size"
        elif lost:
            text += f": {lost} of {len(rows)} did not finish"
        if other:
            text += f"{', but' if lost else ':'} all reported runs are feasible at step {_listed(other)}"
        elif not lost and len(rows):
            text += f": not there after {p.job.config['steps']} steps, at no step size in all runs"
        said.append(text)
    return "; ".join(said) + "."


def _notes(a: Artifact, shown: list[Table]) -> None:
    t = shown[0]
    seen = {m for t in shown for m in t.pairs} | {name.split(".", 1)[1] for name in a.refused}
    a.note(
        "Settings of single methods are listed in the suite's YAML (cross.settings, cross.pairs). The decays "
        "of CSMOO and its baseline without noise were changed after first results, as were boxes of "
        "population methods and numbers of steps; no other method's were, so CSMOO has an advantage here. "
        "FERERO-SA's gamma is 1 / lambda_max(A_ag J J' A_ag') at the starts (its multipliers are stable "
        "below twice that), rounded down to one digit; to a power of ten, as at first, multipliers of "
        "constraints hardly moved within these steps."
    )
    left = [m for m in choices("algorithm") if m not in seen]
    if left:
        a.note(f"Not in this table (cross.without): {', '.join(left)}.")
    a.note(
        f"Same starts, preferences and steps for all. Step sizes are chosen on seeds {t.few or 'none'}, by "
        f"the number of finished, feasible runs and then by score; everything shown is of seeds {t.report}. "
        "Colours compare with the best of a column."
    )
    a.note(
        "Population methods evaluate as many points in a step as there are preferences; at small scales they "
        "get fewer steps (the column says how many)."
    )
    if any(p.first_order_gap for t in shown for p in t.pairs.values()):
        a.note(
            "FORUM takes one step in y where the others solve the lower level in each step of x, and its "
            "official step has gradients of unit length: with as many steps it is further from the end. Its "
            "rows are phi(x) at y*(x), so a gap that is left at (x, y) is no violation of a constraint here."
        )
    a.note(
        "Share: hypervolume of the finished, feasible points of a seed over that of the exact front, or of "
        "all methods' points together where no front is known or constraints bind. Ranks: of the mean over "
        f"seeds, with 95 % of the ranks when seeds are drawn again ({BOOTSTRAP} times). Every run is in "
        "outputs/runs under the key that provenance.json names."
    )


for _suite in ("zoo", "constrained", "bilevel", "federated", "multi_task", "summary"):
    artifact(f"cross/{_suite}")(draw)
