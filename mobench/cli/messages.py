"""Output of a command for people: jobs to run, a table of results, artifacts, failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mobench.config import overrides
from mobench.jobs.outcome import Outcome
from mobench.jobs.remarks import equal_runs, lost_runs
from mobench.jobs.store import JobFolder, columns
from mobench.sweep.draw import MANY, draw
from mobench.sweep.plan import Plan
from mobench.system.console import fail, say
from mobench.system.paths import outputs_root, results_root

if TYPE_CHECKING:
    import pandas as pd


def _number(x: float) -> str:
    return "-" if math.isnan(x) else f"{x:.4g}"


def _cell(values: pd.Series) -> str:
    """Writes mean ± population standard deviation over seeds, and over how many where some are not finite."""
    if len(values) == 0:
        return "-"
    finite = values[values.abs() < math.inf]
    short = f" ({len(finite)} of {len(values)})" if 0 < len(finite) < len(values) else ""
    numbers = finite if short else values
    mean = _number(float(numbers.mean()))
    return (mean if len(numbers) == 1 else f"{mean} ± {float(numbers.std(ddof=0)):.1e}") + short


def summary(folder: JobFolder) -> str:
    """Returns a table of one job with means over seeds by preference, varied value and output rule."""
    rows = folder.final()
    meta = folder.meta()
    weights = columns(rows, "preference_")
    measures = columns(rows, "f_") + [
        c
        for c in ("violation", "tchebycheff", "angle_deg", "front_distance", "stationarity")
        if c in rows and rows[c].notna().any()
    ]
    varied = [name for name, _ in meta["identity"].get("vary", []) if name in rows]
    table: dict[str, list[str]] = {c: [] for c in ("preference", *varied, "output", *measures, "runs")}
    groups = rows.groupby([*weights, *varied, "output"], sort=False)
    for key, group in groups:
        assert isinstance(key, tuple)
        good = group[group["status"] == "done"]
        table["preference"].append(" ".join(f"{w:.3f}" for w in key[: len(weights)]))
        for name, value in zip(varied, key[len(weights) : -1], strict=True):
            table[name].append(_number(float(str(value))))
        table["output"].append(str(key[-1]))
        for c in measures:
            table[c].append(_cell(good[c]))
        table["runs"].append(f"{len(good)} of {len(group)}")
    lines = [_text_table(table)]
    lines += [*lost_runs(folder, rows), *equal_runs(folder, rows)]
    lines += _hypervolumes(meta)
    if (rows["solver_failures"] > 0).any() or rows["kkt_residual_max"].notna().any():
        worst = rows["kkt_residual_max"].max()
        lines.append(
            f"subproblems: {int(rows['solver_failures'].sum())} failed, "
            f"worst relative KKT residual {worst:.1e}"
        )
    lines.append(
        f"{meta['seconds_train']:.2f} s training, {meta['seconds_evaluate']:.2f} s evaluation; {folder.path}"
    )
    return "\n".join(lines)


def _hypervolumes(meta: dict[str, Any]) -> list[str]:
    import pandas as pd

    stored = dict(meta.get("hypervolume") or {})
    ref = stored.pop("reference_point", None)
    widths = stored.pop("half_width_99", {})
    infeasible = stored.pop("infeasible", {})
    return [
        f"hypervolume ({output}, reference {ref}): {_cell(pd.Series(list(values.values()), dtype=float))}"
        + (f", drawn, +- {max(widths[output].values()):.2g} (99 %)" if output in widths else "")
        + (f", without {infeasible[output]} infeasible points" if output in infeasible else "")
        for output, values in stored.items()
    ]


def _text_table(columns: dict[str, list[str]]) -> str:
    widths = {c: max(len(c), *(len(v) for v in values)) for c, values in columns.items()}
    head = "  ".join(c.rjust(widths[c]) for c in columns)
    rows = zip(*columns.values(), strict=True)
    body = ["  ".join(v.rjust(widths[c]) for c, v in zip(columns, row, strict=True)) for row in rows]
    return "\n".join([head, "  ".join("-" * widths[c] for c in columns), *body])


def announce(plan: Plan) -> None:
    """Prints the number of jobs to run, and the artifacts that are unchanged."""
    distinct = len({j.folder.key for j in plan.jobs})
    todo = len(plan.todo)
    if plan.jobs:
        say(
            f"{distinct} job{'s' if distinct != 1 else ''}, {distinct - todo} already finished, {todo} to run"
        )
    if len(plan.unchanged) >= MANY:
        say(
            f"{len(plan.unchanged)} artifacts unchanged, "
            f"in {outputs_root() / 'artifacts'} (rerun=true reruns them)"
        )
    elif plan.unchanged:
        from mobench.artifacts.drawing import artifact_folder, read, tally

        for id, since in plan.unchanged.items():
            claims = tally((c["verdict"], c["source"]) for c in read(artifact_folder(id))["claims"])
            say(
                f"{id}: {claims}; {artifact_folder(id)}, unchanged since {since[:16].replace('T', ' ')} "
                "(rerun=true reruns it)"
            )


def single(outcome: Outcome) -> int:
    """Reports a single job and returns the exit code."""
    if outcome.status == "failed":
        return fail(
            f"{outcome.key} failed: {outcome.error}\n  rows and status, with the traceback: {outcome.folder}"
        )
    if outcome.skipped:
        say("already finished (rerun=true reruns it)")
    say(summary(JobFolder(outcome.folder)))
    return fail(f"{outcome.key}: {outcome.error}") if outcome.error else 0


def _failures(failed: Sequence[Outcome], of: int) -> int:
    """Prints the failed jobs and their causes; returns the exit code."""
    if len(failed) > 1:
        say(f"\n{len(failed)} of {of} jobs failed; `mobench status --failed` reruns them.")
    for o in failed:
        fail(f"{o.title or o.key} failed: {o.error}\n  rows and status: {o.folder}")
    return 1 if failed else 0


def _finished(plan: Plan) -> dict[str, JobFolder]:
    """Returns finished jobs by their titles, each once: of this sweep, and of unchanged artifacts."""
    from mobench.artifacts.drawing import artifact_folder, read

    by_title: dict[str, JobFolder] = {}
    for job in plan.jobs:
        if job.folder.done and job.folder.path not in [folder.path for folder in by_title.values()]:
            by_title[f"{job.artifact or ''} {job.name or job.folder.key}".strip()] = job.folder
    for id in plan.unchanged:
        for name, key in read(artifact_folder(id))["provenance"]["jobs"].items():
            places = (JobFolder(root / "runs" / key) for root in (outputs_root(), results_root()))
            by_title |= {f"{id.partition('+')[0]} {name}": folder for folder in places if folder.done}
    return by_title


def _summaries(plan: Plan) -> None:
    """Prints a table for each finished job that belongs to no artifact."""
    printed: set[str] = set()
    for job in plan.jobs:
        if job.artifact is not None or not job.folder.done or job.folder.key in printed:
            continue
        printed.add(job.folder.key)
        problem = job.config["problem"]["_target_"].split(".")[-1]
        algorithm = job.config["algorithm"]["_target_"].split(".")[-1]
        say(f"\n{problem} {algorithm}: {overrides.as_typed(job.overrides)}\n{summary(job.folder)}")


def finish(plan: Plan, outcomes: Sequence[Outcome]) -> int:
    """Prints summaries, draws artifacts, reports failed jobs, and returns the exit code."""
    _summaries(plan)
    code = 0 if draw(plan) else 1
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    code = max(code, _failures(failed, len(outcomes)))
    for name, folder in _finished(plan).items():
        if error := folder.status().get("error"):
            code = max(code, fail(f"{name}: {error}\n  rows: {folder.path}"))
    return max(code, problems(plan))


def problems(plan: Plan) -> int:
    """Reports the jobs of a free sweep that cannot be run, and returns the exit code."""
    return max((fail(f"not run: {reason}", code=2) for reason in plan.problems), default=0)
