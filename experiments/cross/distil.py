"""From the jobs of a pair to its rows: which trial each study chose, and what it reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts.rows import JobRows
from mobench.comparison import rows
from mobench.comparison.measures import Reference
from mobench.comparison.trials import STUDIES, TRIALS, Setting, reported_seeds, step_of, tuning_seeds
from mobench.errors import StoreError
from mobench.jobs.store import columns
from mobench.jobs.targets import instantiate
from mobench.metrics import FEASIBLE

from .references import References

TARGET_SHARE = 0.9
TARGET_GAP = {"single": 0.02, "single_50": 0.02, "networks": 0.5}  # of boards that ask for one point


@dataclass(frozen=True)
class Runs:
    """All runs of a pair, one row each, with where they were at the recorded steps.

    Attributes:
        table: seed, settings, preferences and final values of each run.
        F, G: objectives (runs, M) and constraints (runs, N) at the end; NaN of a run that did not finish.
        path, bounds: the same at the recorded steps (runs, T, ..).
        steps: the recorded steps (T,).
    """

    table: pd.DataFrame
    F: np.ndarray
    G: np.ndarray
    path: np.ndarray
    bounds: np.ndarray
    steps: np.ndarray

    @classmethod
    def of(cls, jobs: Sequence[JobRows], names: Sequence[str]) -> Runs:
        """Returns the runs of all jobs of a pair.

        names: tuned parameters, which differ from job to job or are columns of a job's rows.
        """
        parts = [_of_job(job, names) for job in jobs]

        def together(name: str) -> np.ndarray:
            return np.concatenate([getattr(part, name) for part in parts])

        table = pd.concat([part.table for part in parts], ignore_index=True)
        return cls(table, together("F"), together("G"), together("path"), together("bounds"), parts[0].steps)

    def at(self, setting: Setting, seed: int) -> np.ndarray:
        """Places of the runs of one setting and seed."""
        chosen = self.table["seed"].to_numpy() == seed
        for name, value in setting.items():
            chosen = chosen & np.isclose(self.table[name].to_numpy(dtype=float), value, rtol=1e-9, atol=0)
        return np.flatnonzero(chosen)


def _of_job(job: JobRows, names: Sequence[str]) -> Runs:
    final = job.final
    rule = str(final["output"].iloc[0])
    table = final[final["output"] == rule].sort_values("run").reset_index(drop=True)
    for name in names:
        if name not in table:
            table[name] = float(job.config["algorithm"][name])
    history = job.history
    followed = rule if rule in set(history["output"]) else "last"
    history = history[history["output"] == followed].sort_values(["run", "step"], kind="stable")
    f = columns(table, "f_")
    g = columns(table, "g_")
    R = len(table)
    path = history[f].to_numpy(dtype=float).reshape(R, -1, len(f))
    bound = columns(history, "g_")
    bounds = history[bound].to_numpy(dtype=float).reshape(R, path.shape[1], len(bound))
    F = table[f].to_numpy(dtype=float)
    lost = (table["status"] != "done").to_numpy()
    F = np.where(lost[:, None], np.nan, F)
    G = np.where(lost[:, None], np.nan, table[g].to_numpy(dtype=float))
    if "angle_deg" in table:
        table["angle_deg"] = table["angle_deg"].where(~lost)
    steps = np.sort(history["step"].unique())
    return Runs(table, F, G, path, bounds, steps)


def counted(F: np.ndarray, G: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.isfinite(F).all(1) & (G <= FEASIBLE).all(1)
    return out


@dataclass(frozen=True)
class Ruler:
    """The measures of the points of one pair.

    Args:
        name: of the problem.
        problem: the problem itself.
        references: of all problems.
        count: number of preferences.
        target: the gap to be reached on boards of one answer, else None.
    """

    name: str
    problem: Any
    references: References
    count: int
    target: float | None

    def reference(self, seed: int) -> tuple[Reference, float]:
        key, reference = self.references.of(self.problem, self.name, seed)
        return reference, self.references.best(key, self.count)

    def score(self, F: np.ndarray, G: np.ndarray, seed: int) -> tuple[float, float, float]:
        """Score, share and feasible share of the points of one seed."""
        reference, best = self.reference(seed)
        share = reference.volume(F[counted(F, G)]) / best
        feasible = float((np.isfinite(F).all(1) & (G <= FEASIBLE).all(1)).mean())
        if not G.shape[1]:
            return share, share, 1.0
        return feasible * share, share, feasible

    def arrived(self, path: np.ndarray, bounds: np.ndarray, seed: int) -> int | None:
        """The first recorded place at which the target is reached, None if it never is."""
        reference, best = self.reference(seed)
        for t in range(path.shape[1]):
            F = path[:, t]
            F = F[counted(F, bounds[:, t])]
            if not len(F):
                continue
            if self.target is None:
                reached = reference.volume(F) >= TARGET_SHARE * best
            else:
                reached = len(F) == path.shape[0] and reference.gap(F) <= self.target
            if reached:
                return t
        return None


def distilled(
    key: tuple[int, str, str, str],
    jobs: Sequence[JobRows],
    budget: int,
    references: References,
) -> pd.DataFrame:
    """The rows of one pair, without their digest.

    Args:
        key: replication, board, problem, method.
        jobs: of the pair.
        budget: gradients for each function.
        references: of the problems.
    """
    replication, board, problem, _ = key
    config = jobs[0].config
    studies = settings_of(jobs)
    runs = Runs.of(jobs, list(studies[STUDIES[0]][0]))
    count = len(runs.table.drop_duplicates(columns(runs.table, "preference_")))
    made = instantiate(config["problem"], "problem")
    ruler = Ruler(problem, made, references, count, target=TARGET_GAP.get(board))
    functions = runs.F.shape[1] + runs.G.shape[1]
    per_step = budget * functions // int(config["steps"])
    meta = jobs[0].meta
    common = {
        "version": rows.VERSION,
        **dict(zip(rows.PAIR, key, strict=True)),
        "seconds": sum(float(job.meta["seconds_train"]) for job in jobs) / sum(len(j.final) for j in jobs),
        "jobs": rows.joined_keys(job.folder.key for job in jobs),
        "commit": " and ".join(sha[:9] for sha in str(meta["git_sha"]).split(" and "))
        + ("+" if meta["git_dirty"] else ""),
        "digest": "",
    }
    out = []
    for study in STUDIES:
        chosen = choose(runs, ruler, studies[study], tuning_seeds(study, replication))
        step = step_of(chosen)
        main = next((name for name in chosen if name != step), "")
        said = {"step_size": chosen[step], "parameter": main, "value": chosen.get(main, float("nan"))}
        for seed in reported_seeds(replication, board):
            measured = measure(runs, ruler, runs.at(chosen, seed), seed, per_step)
            out.append({**common, "study": study, "seed": seed, **said, **measured})
    return pd.DataFrame(out)


def settings_of(jobs: Sequence[JobRows]) -> dict[int, list[Setting]]:
    """The settings of each study, as the jobs of a pair list them: study by study, in one job or in several.

    Raises:
        StoreError: they are not as many as the protocol asks for.
    """
    if jobs[0].config["vary"]:
        every = [
            dict(zip(job.config["vary"], map(float, place), strict=True))
            for job in jobs
            for place in zip(*job.config["vary"].values(), strict=True)
        ]
    else:
        algorithms = [job.config["algorithm"] for job in jobs]
        names = [
            name for name in algorithms[0] if any(node[name] != algorithms[0][name] for node in algorithms)
        ]
        every = [{name: float(node[name]) for name in names} for node in algorithms]
    if len(every) != len(STUDIES) * TRIALS:
        raise StoreError(
            f"{jobs[0].folder.path}: {len(every)} settings were tried instead of {len(STUDIES) * TRIALS}, "
            f"{TRIALS} in each of {len(STUDIES)} studies; run the pair with +experiment=cross/zoo."
        )
    return {study: every[i * TRIALS : (i + 1) * TRIALS] for i, study in enumerate(STUDIES)}


def choose(runs: Runs, ruler: Ruler, settings: Sequence[Setting], seeds: Sequence[int]) -> Setting:
    """The setting with the largest mean score on the tuning seeds, feasible share first."""
    best = (-1.0, -1.0)
    winner = settings[0]
    for setting in settings:
        scores = []
        for seed in seeds:
            i = runs.at(setting, seed)
            scores.append(ruler.score(runs.F[i], runs.G[i], seed))
        score, _, feasible = np.mean(scores, axis=0)
        value = (round(float(feasible) / 0.05) * 0.05, float(score))
        if value > best:
            best = value
            winner = setting
    return winner


def measure(runs: Runs, ruler: Ruler, i: np.ndarray, seed: int, per_step: int) -> dict[str, float]:
    """The measures of the points of one seed."""
    F = runs.F[i]
    G = runs.G[i]
    score, share, feasible = ruler.score(F, G, seed)
    reference, _ = ruler.reference(seed)
    good = F[counted(F, G)]
    place = ruler.arrived(runs.path[i], runs.bounds[i], seed)
    angle = (
        runs.table["angle_deg"].to_numpy(dtype=float)[i] if "angle_deg" in runs.table else np.array([np.nan])
    )
    angle = angle[np.isfinite(angle)]
    beyond = G[np.isfinite(G).all(1)]
    return {
        "share": share,
        "score": score,
        "igd_plus": reference.igd_plus(good),
        "epsilon": reference.epsilon(good),
        "gap": reference.gap(good),
        "angle": float(angle.mean()) if len(angle) else float("nan"),
        "feasible": feasible,
        "violation": float(np.maximum(beyond, 0.0).max()) if beyond.size else 0.0,
        "gradients": float("nan") if place is None else float(runs.steps[place] * per_step),
    }
