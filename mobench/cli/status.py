"""mobench status: what has become of jobs, and how to finish them.

    mobench status                                      every job folder in outputs/runs
    mobench status ferero/fig3 ferero/table2 scale=paper      the jobs of artifacts; PAPER/all and all too
    mobench status algorithm=ls,mgda problem=zdt2       the jobs of a sweep
    mobench status --failed [...]                       run again what failed, and go on with what died
    mobench status --delete problem=zdt2 algorithm=ls   list these jobs, and delete them after a yes

States: done; diverged (done, but some of its runs left the finite numbers); running; interrupted (by Ctrl-C
or a signal); dead (its process is gone: killed, or its machine); failed (with a reason); missing (never
started). Exit code 1 if something failed, died or was interrupted.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mobench.cli import one_message
from mobench.config.schema import completed
from mobench.errors import ConfigError, Interrupted, MobenchError, StoreError
from mobench.jobs.store import JobFolder
from mobench.study.rows import folders, matching
from mobench.system.console import duration, fail, say
from mobench.system.paths import outputs_root

ORDER = ("failed", "dead", "interrupted", "running", "missing", "unsolved", "diverged", "done")
UNFINISHED = ("failed", "dead", "interrupted")  # what --failed runs again


@dataclass(frozen=True)
class JobStatus:
    """The status of one job, in a word and in words."""

    folder: JobFolder
    name: str
    state: str
    words: str
    fields: dict[str, Any] = field(default_factory=dict)


# a name, the command that finishes it, its jobs
Group = tuple[str, str, list[JobStatus]]


def recorded(folder: JobFolder) -> bool:
    """Returns whether a job is a training loop of the user's own, which no command can run again."""
    try:
        return bool(folder.config()["problem"].get("class") == "Recorded")
    except (StoreError, KeyError, AttributeError, TypeError):
        return False


def look(folder: JobFolder, name: str = "") -> JobStatus:
    """Returns the state of a job, in a word and in words."""
    s = folder.status()
    state = folder.state(s)
    if s["status"] == "running":
        part = float(s.get("progress", 0.0))
        spent = float(s.get("seconds", 0.0))
        left = f", about {duration(spent / part - spent)} left" if part > 0 and state == "running" else ""
        # a recorded loop does not say how long it is
        of = f" of {s['steps']}, {100 * part:.0f} %" if s.get("steps") else ""
        where = f"{s.get('host')}, process {s.get('pid')}"
        words = f"step {s.get('step')}{of}{left} ({where}, seen {s.get('updated')})"
        if state != "running":
            words += "; will resume from its checkpoint" if of else "; recorded anew by its own program"
    elif state == "done" and not folder.done:
        state = "failed"
        words = f"{folder.damage or 'final.csv is missing.'} Rerun the job"
    elif state == "done":
        lost = int(s.get("diverged", 0))
        state = "diverged" if lost else state
        words = f"{lost} of {s.get('runs', '?')} runs diverged, " if lost else ""
        if unsolved := int(s.get("solver_failed", 0)):
            state = "unsolved"
            words += f"{unsolved} of {s.get('runs', '?')} runs ended with a failed solve, "
        words += duration(float(s.get("seconds", s.get("finished", 0.0) - s.get("started", 0.0))))
    elif state == "failed":
        words = str(s.get("error", "no reason was recorded"))
    elif state == "dead":
        words = "stopped before its first step"
    else:
        words = ""
    return JobStatus(folder, name or folder.key, state, words, s)


def table(states: Sequence[JobStatus], everything: bool) -> list[str]:
    """Returns a line per job, those that need attention first; finished ones only with `everything`."""
    listed = sorted(
        (s for s in states if everything or s.state != "done"), key=lambda s: ORDER.index(s.state)
    )
    width = max((len(s.name) for s in listed), default=0)
    room = max((len(s.state) for s in listed), default=0)
    return [
        f"  {s.state:{room}s}  {s.name:{width}s}  {s.words.splitlines()[0] if s.words else ''}".rstrip()
        for s in listed
    ]


def counted(states: Iterable[JobStatus]) -> str:
    """Returns "3 done, 1 failed of 4"."""
    counts = Counter(s.state for s in states)
    parts = ", ".join(f"{counts[state]} {state}" for state in reversed(ORDER) if counts[state])
    return f"{parts or 'no jobs'} of {counts.total()}"


def planned(arguments: Sequence[str]) -> tuple[list[Group], dict[str, dict[str, Any]]]:
    """Returns a group for each artifact, or for the sweep, and each job's configuration."""
    from mobench.config import overrides
    from mobench.sweep.planner import plan

    ids = [a for a in arguments if "=" not in a and not a.startswith("-")]
    rest = [a for a in arguments if a not in ids]
    command = [*([f"+experiment={','.join(ids)}"] if ids else []), *rest]
    sweep = plan(command)
    if sweep.problems:
        raise ConfigError("\n".join(f"not run: {reason}" for reason in sweep.problems))
    groups: list[Group] = []
    configs: dict[str, dict[str, Any]] = {}
    for job in sweep.jobs:
        configs.setdefault(job.folder.key, job.config)
    for artifact in dict.fromkeys(job.artifact for job in sweep.jobs):
        jobs = [job for job in sweep.jobs if job.artifact == artifact]
        states = [look(job.folder, job.name or overrides.as_typed(job.overrides)) for job in jobs]
        how = [f"+experiment={artifact}", *rest] if artifact else ["-m", *command]
        groups.append((artifact or "sweep", f"mobench {overrides.as_typed(how)}", states))
    return groups, configs


def rerun(states: Iterable[JobStatus], configs: dict[str, dict[str, Any]]) -> int:
    """Runs failed and dead jobs again, one after the other, and returns the exit code."""
    from mobench.jobs.run import run_job
    from mobench.jobs.targets import check_parts

    chosen = {s.folder.key: s for s in states if s.state in UNFINISHED and not recorded(s.folder)}
    say(f"\n{len(chosen)} to rerun")
    code = 0
    for key, state in chosen.items():
        try:
            config = configs.get(key)
            if config is None:
                config = completed(state.folder.config())
                check_parts(config)
            root = state.folder.path.parent.parent
            outcome = run_job({**config, "rerun": False}, root=root, title=state.name)
        except Interrupted:
            raise
        except (MobenchError, OSError) as error:
            code = fail(f"{state.name} could not be rerun: {error}")
            continue
        if outcome.status == "failed":
            code = fail(f"{state.name} failed again: {outcome.error}")
        elif outcome.key != key:
            say(f"  {state.name}: the code has changed; its new folder is {outcome.folder}")
        else:
            say(f"  {state.name}: done")
    return code


def delete(query: Sequence[str], sure: bool) -> int:
    """Lists the jobs of outputs/runs that fit a query, and deletes their folders after a yes; the exit code.

    A job that some process is running stays.
    """
    chosen = [look(job.folder) for job in matching(query, outputs_root())]
    if not chosen:
        say("No job fits this query; nothing was deleted.")
        return 0
    size = sum(file.stat().st_size for s in chosen for file in s.folder.path.rglob("*") if file.is_file())
    jobs = f"{len(chosen)} job{'s' if len(chosen) > 1 else ''}"
    say("\n".join([*table(chosen, True), f"{jobs}, {size / 1e6:.1f} MB in {outputs_root() / 'runs'}"]))
    if not sure:
        if not sys.stdin.isatty():
            raise ConfigError("Nothing was deleted: there is no terminal to ask; add --yes.")
        if input(f"Delete {jobs}? [y/N] ").strip().lower() not in ("y", "yes"):
            say("Nothing was deleted.")
            return 0
    code = 0
    for status in chosen:
        try:
            with status.folder.locked():  # not under a process that writes there
                shutil.rmtree(status.folder.path)
        except (StoreError, OSError) as error:
            code = fail(f"{status.name} was not deleted: {error}")
    return code


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(
        "mobench status", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "what", nargs="*", help="artifacts (ferero/fig3) and overrides (scale=paper); default: all folders"
    )
    parser.add_argument(
        "--failed",
        "--resume",
        action="store_true",
        help="rerun failed jobs and resume those that were stopped",
    )
    parser.add_argument(
        "--delete",
        action="store_true",
        help="delete the folders of all jobs that fit a query: KEY=VALUE,... as mobench.rows takes it",
    )
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    parser.add_argument("--all", action="store_true", help="list finished jobs too")
    args = parser.parse_intermixed_args(list(words))
    if args.delete and args.failed:
        parser.error("--delete goes with no other flag but --yes")
    if args.delete and not args.what:
        parser.error("--delete needs a query, such as problem=zdt2 or, for all jobs, 'job=*'")
    return args


@one_message
def main(arguments: Sequence[str]) -> int:
    """Shows the jobs of `mobench status ARGUMENTS`, runs some again, and returns the exit code."""
    args = _arguments(arguments)
    if args.delete:
        return delete(args.what, args.yes)
    groups: list[Group]
    configs: dict[str, dict[str, Any]] = {}
    if args.what:
        groups, configs = planned(args.what)
    else:
        groups = [
            (
                str(outputs_root() / "runs"),
                "mobench status --failed",
                [look(f) for f in folders(outputs_root())],
            )
        ]
    for name, command, group in groups:
        say("\n".join([f"{name}: {counted(group)}", *table(group, args.all)]))
        left = [s for s in group if s.state in ("missing", *UNFINISHED)]
        if any(not recorded(s.folder) for s in left):
            say(f"  to finish: {command}")
        if loops := sum(recorded(s.folder) for s in left):
            say(f"  to finish {loops} recorded by mobench.record: run their own programs again")
    states = [state for _, _, group in groups for state in group]
    if args.failed:
        return rerun(states, configs)
    return int(any(s.state in UNFINISHED or s.fields.get("error") for s in states))
