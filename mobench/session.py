"""What a person sees of a command: what will run, a table of what came out, artifacts, failures; and the exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pandas as pd

from mobench import metrics
from mobench.config import build
from mobench.runner import Outcome
from mobench.store import JobFolder, columns

if TYPE_CHECKING:
    from mobench.sweeper import Plan

exit_code = 0  # of this process; raised by failures, never lowered


def fail(message: str, code: int = 1) -> None:
    """Print one clear message and remember the exit code."""
    global exit_code
    exit_code = max(exit_code, code)
    print(f"mobench: error: {message}", file=sys.stderr, flush=True)


def _number(x: float) -> str:
    return "-" if pd.isna(x) else f"{x:.4g}"


def _cell(values: pd.Series) -> str:
    """mean ± population standard deviation over seeds."""
    if len(values) == 0:
        return "-"
    mean = _number(float(values.mean()))
    return mean if len(values) == 1 else f"{mean} ± {float(values.std(ddof=0)):.1e}"


def summary(folder: JobFolder) -> str:
    """A readable table of one job: a line per preference and output rule, mean over the seeds that finished."""
    config, rows = folder.config(), folder.final()
    weights = columns(rows, "preference_")
    shown = columns(rows, "f_") + [
        c for c in ("angle_deg", "front_distance", "stationarity") if c in rows and rows[c].notna().any()
    ]
    table: dict[str, list[str]] = {c: [] for c in ("preference", "output", *shown, "runs")}
    groups = rows.groupby([*weights, "output"], sort=False)
    for key, group in groups:
        assert isinstance(key, tuple)
        good = group[group["status"] == "done"]
        table["preference"].append(" ".join(f"{w:.3f}" for w in key[:-1]))
        table["output"].append(str(key[-1]))
        for c in shown:
            table[c].append(_cell(good[c]))
        table["runs"].append(f"{len(good)} of {len(group)}")
    lines = [_text_table(table)]
    lines += _hypervolumes(config, rows)
    if (rows["solver_failures"] > 0).any() or rows["kkt_residual_max"].notna().any():
        worst = rows["kkt_residual_max"].max()
        lines.append(
            f"subproblems: {int(rows['solver_failures'].sum())} failed, worst relative KKT residual {worst:.1e}"
        )
    meta = folder.meta()
    lines.append(f"{meta['seconds_train']:.2f} s training, {meta['seconds_evaluate']:.2f} s evaluation; {folder.path}")
    return "\n".join(lines)


def _hypervolumes(config: dict[str, Any], rows: pd.DataFrame) -> list[str]:
    problem = build(config["problem"], "problem")
    if problem.ref_point is None or rows["preference_1"].nunique() < 2:
        return []
    F = columns(rows, "f_")
    lines = []
    for output, group in rows.groupby("output", sort=False):
        good = group[group["status"] == "done"]
        volumes = pd.Series(
            [metrics.hypervolume(g[F].to_numpy(), problem.ref_point) for _, g in good.groupby("seed")], dtype=float
        )
        lines.append(f"hypervolume ({output}, reference {list(problem.ref_point)}): {_cell(volumes)}")
    return lines


def _text_table(columns: dict[str, list[str]]) -> str:
    widths = {c: max(len(c), *(len(v) for v in values)) for c, values in columns.items()}
    head = "  ".join(c.rjust(widths[c]) for c in columns)
    rows = zip(*columns.values(), strict=True)
    body = ["  ".join(v.rjust(widths[c]) for c, v in zip(columns, row, strict=True)) for row in rows]
    return "\n".join([head, "  ".join("-" * widths[c] for c in columns), *body])


def announce(plan: Plan, todo: int) -> None:
    """Say what a sweep is about to do."""
    distinct = len({j.folder.key for j in plan.jobs})
    if plan.jobs:
        print(f"{distinct} jobs, {distinct - todo} finished before, {todo} to run", flush=True)


def single(outcome: Outcome) -> None:
    """Report a single job."""
    if outcome.status == "failed":
        fail(f"{outcome.key} failed: {outcome.error}")
        return
    if outcome.skipped:
        print("finished before (rerun=true runs it again)")
    print(summary(JobFolder(outcome.folder)))


def finish(plan: Plan, outcomes: dict[str, Outcome], refused: list[str]) -> list[str]:
    """After the last job: summaries or artifacts, then what failed and why. Returns the ids of drawn artifacts."""
    from mobench.artifacts import draw

    drawn = []
    shown: set[str] = set()
    for job in plan.jobs:
        if job.artifact is None and job.folder.done and job.folder.key not in shown:
            shown.add(job.folder.key)
            config = job.config
            name = f"{config['problem']['_target_'].split('.')[-1]} {config['algorithm']['_target_'].split('.')[-1]}"
            print(f"\n{name}: {' '.join(job.overrides)}\n{summary(job.folder)}", flush=True)
    for artifact, config in plan.artifacts.items():
        folders = {j.name: j.folder for j in plan.jobs if j.artifact == artifact}
        if draw(artifact, config, folders):
            drawn.append(artifact)
    for outcome in outcomes.values():
        if outcome.status == "failed":
            fail(f"{outcome.title or outcome.key} failed: {outcome.error}\n  rows and status: {outcome.folder}")
    for reason in refused:
        fail(f"not run: {reason}", code=2)
    return drawn
