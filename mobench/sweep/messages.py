"""What a person sees of a command: what will run, a table of what came out, artifacts, failures."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pandas as pd

from mobench.config import overrides
from mobench.errors import MobenchError
from mobench.jobs import wandb_log
from mobench.jobs.run import Outcome
from mobench.jobs.store import JobFolder, columns
from mobench.sweep.plan import Plan
from mobench.system import console
from mobench.system.console import fail, say
from mobench.system.paths import outputs_root, results_root

MANY = 8  # artifacts from which on they are drawn by several processes
MOST_DRAWERS = 4  # each holds a copy of the libraries: half a gigabyte

# id, configuration, jobs, overrides of an artifact
Task = tuple[str, dict[str, Any], dict[str, JobFolder], list[str]]


def _number(x: float) -> str:
    return "-" if pd.isna(x) else f"{x:.4g}"


def _cell(values: pd.Series) -> str:
    """mean ± population standard deviation over seeds."""
    if len(values) == 0:
        return "-"
    mean = _number(float(values.mean()))
    return mean if len(values) == 1 else f"{mean} ± {float(values.std(ddof=0)):.1e}"


def summary(folder: JobFolder) -> str:
    """A readable table of one job: a line per preference, varied value and output rule,
    mean over the seeds that finished.
    """
    rows = folder.final()
    meta = folder.meta()
    weights = columns(rows, "preference_")
    shown = columns(rows, "f_") + [
        c
        for c in ("violation", "tchebycheff", "angle_deg", "front_distance", "stationarity")
        if c in rows and rows[c].notna().any()
    ]
    varied = [name for name in folder.config().get("vary", {}) if name in rows]
    table: dict[str, list[str]] = {c: [] for c in ("preference", *varied, "output", *shown, "runs")}
    groups = rows.groupby([*weights, *varied, "output"], sort=False)
    for key, group in groups:
        assert isinstance(key, tuple)
        good = group[group["status"] == "done"]
        table["preference"].append(" ".join(f"{w:.3f}" for w in key[: len(weights)]))
        for name, value in zip(varied, key[len(weights) : -1], strict=True):
            table[name].append(_number(float(str(value))))
        table["output"].append(str(key[-1]))
        for c in shown:
            table[c].append(_cell(good[c]))
        table["runs"].append(f"{len(good)} of {len(group)}")
    lines = [_text_table(table)]
    first = rows[rows["output"] == rows["output"].iloc[0]]
    for status, meaning in (
        ("diverged", "a number that is not finite; smaller steps may help"),
        ("solver_failed", "a subproblem solve failed, and they stay where it did"),
    ):
        bad = first.loc[first["status"] == status, "run"].tolist()
        if bad:
            which = ", ".join(map(str, bad[:10])) + (", ..." if len(bad) > 10 else "")
            lines.append(f"{status}: {len(bad)} of {len(first)} runs (run {which}): {meaning}")
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
    stored = dict(meta.get("hypervolume") or {})
    ref = stored.pop("reference_point", None)
    return [
        f"hypervolume ({output}, reference {ref}): {_cell(pd.Series(list(values.values()), dtype=float))}"
        for output, values in stored.items()
    ]


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
        say(f"{distinct} jobs, {distinct - todo} finished before, {todo} to run")
    if len(plan.unchanged) >= MANY:
        say(
            f"{len(plan.unchanged)} artifacts unchanged, "
            f"in {outputs_root() / 'artifacts'} (rerun=true runs them again)"
        )
    elif plan.unchanged:
        from mobench.artifacts.artifact import artifact_folder, read, tally

        for id, since in plan.unchanged.items():
            said = tally(claim["verdict"] for claim in read(artifact_folder(id))["claims"])
            say(
                f"{id}: {said}; {artifact_folder(id)}, unchanged since {since[:16].replace('T', ' ')} "
                "(rerun=true runs it again)"
            )


def single(outcome: Outcome) -> None:
    """Report a single job."""
    if outcome.status == "failed":
        fail(
            f"{outcome.key} failed: {outcome.error}\n  rows and status, with the traceback: {outcome.folder}"
        )
        return
    if outcome.skipped:
        say("finished before (rerun=true runs it again)")
    say(summary(JobFolder(outcome.folder)))
    if outcome.error:
        fail(f"{outcome.key}: {outcome.error}")


def _draw(task: Task) -> tuple[str, bool, int]:
    """Draw one artifact; its id, whether it was drawn, and the exit code of what was said."""
    from mobench.artifacts import draw

    artifact = task[0]
    try:
        return artifact, draw(*task), console.exit_code
    except MobenchError as error:
        fail(f"{artifact} is not drawn: {error}")
    except Exception as error:  # noqa: BLE001  one drawing's fault must not cost the others
        traceback.print_exc()
        fail(f"{artifact} is not drawn: {type(error).__name__}: {error}")
    return artifact, False, console.exit_code


def _by_many(tasks: Sequence[Task], workers: int) -> Iterator[tuple[str, bool, int]]:
    """The same in several processes: seconds each, most of them spent in matplotlib.

    Fresh ones: torch's threads do not survive a fork.
    """
    quiet = [(i, {**c, "logger": {**c["logger"], "name": "local"}}, f, o) for i, c, f, o in tasks]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_draw, quiet)


def failures(failed: Sequence[Outcome], of: int) -> None:
    """What failed and why."""
    if len(failed) > 1:
        say(f"\n{len(failed)} of {of} jobs failed; `mobench-status --failed` runs them again.")
    for o in failed:
        fail(f"{o.title or o.key} failed: {o.error}\n  rows and status: {o.folder}")


def _finished(plan: Plan) -> dict[str, JobFolder]:
    """Jobs whose rows are there, each once, by what they are called: of this sweep,
    and of artifacts that are left as they are.
    """
    from mobench.artifacts.artifact import artifact_folder, read

    found: dict[str, JobFolder] = {}
    for job in plan.jobs:
        if job.folder.done and job.folder.path not in [folder.path for folder in found.values()]:
            found[f"{job.artifact or ''} {job.name or job.folder.key}".strip()] = job.folder
    for id in plan.unchanged:
        for name, key in read(artifact_folder(id))["provenance"]["jobs"].items():
            places = (JobFolder(root / "runs" / key) for root in (outputs_root(), results_root()))
            found |= {f"{id} {name}": folder for folder in places if folder.done}
    return found


def finish(plan: Plan, outcomes: dict[str, Outcome], refused: list[str]) -> list[str]:
    """After the last job: summaries or artifacts, then what failed and why.

    Returns the ids of drawn artifacts.
    """
    drawn = []
    shown: set[str] = set()
    for job in plan.jobs:
        if job.artifact is None and job.folder.done and job.folder.key not in shown:
            shown.add(job.folder.key)
            config = job.config
            name = (
                f"{config['problem']['_target_'].split('.')[-1]} "
                f"{config['algorithm']['_target_'].split('.')[-1]}"
            )
            say(f"\n{name}: {overrides.shown(job.overrides)}\n{summary(job.folder)}")
    tasks: list[Task] = []
    for artifact, config in plan.artifacts.items():
        folders = {j.name: j.folder for j in plan.jobs if j.artifact == artifact}
        found = {**config, "refused": plan.refused.get(artifact, {})}
        tasks.append((artifact, found, folders, plan.commands[artifact]))
    workers = min(os.cpu_count() or 1, MOST_DRAWERS)
    # W&B wants its runs in one process
    online = any(wandb_log.mode(config) for config in plan.artifacts.values())
    for artifact, ok, code in (
        map(_draw, tasks) if len(tasks) < MANY or workers < 2 or online else _by_many(tasks, workers)
    ):
        if ok:
            drawn.append(artifact)
        console.exit_code = max(console.exit_code, code)
    failures([outcome for outcome in outcomes.values() if outcome.status == "failed"], len(outcomes))
    for name, folder in _finished(plan).items():
        if error := folder.status().get("error"):
            fail(f"{name}: {error}\n  rows: {folder.path}")
    for reason in refused:
        fail(f"not run: {reason}", code=2)
    return drawn
