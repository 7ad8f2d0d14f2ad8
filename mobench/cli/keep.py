"""Keep the rows of drawn artifacts with the project:  mobench keep csmoo/fig38 [...] [--history]
Draw all artifacts whose rows are kept:                mobench keep --draw [csmoo/fig38 ...] [--pdf]
Keep finished jobs of an artifact that is not complete: mobench keep --jobs FOLDER [...]

Copies final.csv, config.yaml, meta.json and status.json of their jobs to experiments/results/runs, where
`mobench` finds them before it runs a job again; solutions.npz too where it is small. Histories stay behind,
because they are large, unless `--history` asks for them (an artifact that draws curves needs them). Host
names and paths stay behind in any case. Then the artifact is drawn from what is kept, and compared, and
experiments/results/artifacts.yaml notes the overrides that it was run with, with which `--draw` draws it
again into outputs/kept: nothing is trained, and no data are needed.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mobench.artifacts import freshness
from mobench.artifacts.drawing import artifact_folder, read
from mobench.errors import MobenchError, StoreError
from mobench.jobs.store import JobFolder, portable_config, portable_status
from mobench.system.console import fail, say
from mobench.system.files import write_atomic, write_json
from mobench.system.paths import KEPT, outputs_root, results_root

LARGEST = 200_000  # bytes of a solutions.npz: networks belong into no repository
MANIFEST = "artifacts.yaml"  # in experiments/results
# overrides that change no row: what they say is of one machine, or of one run
NO_ROW = (
    "experiment=",
    "logger=",
    "progress=",
    "artifact.pdf=",
    "data_root=",
    "rerun=",
    "checkpoint.",
    "hardware=",
    "hydra",
)
HEAD = """# Artifacts that are drawn from the rows beside this file, with the overrides of their runs.
# Written by mobench keep; mobench keep --draw draws all of them.
"""


def keep(folder: JobFolder, root: Path, history: bool = False) -> int:
    """Copies one finished job, on request with its history, and returns its size in bytes."""
    target = root / "runs" / folder.key
    solutions = folder.path / "solutions.npz"
    small = solutions.exists() and solutions.stat().st_size <= LARGEST
    names = ["final.csv", "meta.json"]
    names += ["solutions.npz"] if small else []
    names += ["history.parquet"] if history else []
    needed = [*names, "config.yaml"]
    if missing := [name for name in needed if not (folder.path / name).exists()]:
        raise StoreError(f"{folder.path} cannot be kept: it has no {' and no '.join(missing)}.")
    if not history and (target / "history.parquet").exists():
        raise StoreError(
            f"{folder.key} was kept with its history; add --history, or remove {target} to keep it without."
        )
    for name in needed:
        folder.check(name)
    # no solutions of rows that were kept before stay beside the new ones; without status.json none count
    for name in ("status.json", "solutions.npz"):
        (target / name).unlink(missing_ok=True)
    for name in names:
        write_atomic(target / name, (folder.path / name).read_bytes())
    config = portable_config(folder.config())
    write_atomic(target / "config.yaml", yaml.safe_dump(config, sort_keys=False).encode())
    # last: a folder with this file is complete
    write_json(target / "status.json", portable_status(folder.status(), JobFolder(target).digests()))
    return sum(f.stat().st_size for f in target.iterdir())


def fault(id: str, origin: Mapping[str, Any], drawn: Path, root: Path) -> str | None:
    """Returns why an artifact cannot be drawn from kept rows as its provenance `origin` says, or None."""
    from mobench.sweep.draw import drawn_from

    claims = freshness.claims(drawn)
    folders = {name: JobFolder(root / "runs" / key) for name, key in origin["jobs"].items()}
    try:
        now = drawn_from(id, shlex.split(origin["command"])[1:], folders)
    except (StoreError, KeyError) as error:
        return f"it cannot be drawn from the kept rows: {error}"
    then = drawn / "table.csv"
    if (then.read_bytes() if then.exists() else None) != now.table:
        return "its table is different"
    if [c["measured"] for c in claims] != [c["measured"] for c in now.claims]:
        return "its claims are different"
    return None


def outdated(origin: Mapping[str, Any]) -> list[str]:
    """Returns the names of the jobs of a drawing that its command would not run any more.

    Their settings or their code have changed, so that nothing could be drawn from what would be kept of them.
    """
    from mobench.sweep.planner import plan

    planned = plan([*shlex.split(origin["command"])[1:], "logger=local"])
    now = {job.name: job.folder.key for job in planned.jobs}
    return [name for name, key in origin["jobs"].items() if now.get(name) != key]


def drawings(root: Path | None = None) -> dict[str, list[str]]:
    """Returns the artifacts of experiments/results/artifacts.yaml, each with its overrides."""
    path = (root or results_root()) / MANIFEST
    if not path.exists():
        return {}
    entries = yaml.safe_load(path.read_text())
    if not isinstance(entries, dict) or not all(isinstance(v, list) for v in entries.values()):
        raise StoreError(
            f"{path} does not contain a mapping from artifact ids to lists of overrides; "
            "restore it from version control."
        )
    return {str(id): [str(o) for o in overrides] for id, overrides in entries.items()}


def note(id: str, command: str, root: Path) -> None:
    """Notes the overrides with which a kept artifact was drawn."""
    overrides = [o for o in shlex.split(command)[1:] if not o.lstrip("+").startswith(NO_ROW)]
    listed = "".join(
        f"{name}: [{', '.join(map(_quoted, words))}]\n"
        for name, words in sorted((drawings(root) | {id: overrides}).items())
    )
    write_atomic(root / MANIFEST, (HEAD + listed).encode())


def _quoted(override: str) -> str:
    """Returns an override as YAML: brackets, as in `seeds=[0]`, would be read as a list."""
    return override if re.fullmatch(r"[\w./=+-]+", override) else json.dumps(override)


def draw_kept(id: str, overrides: Sequence[str], root: Path) -> None:
    """Draws an artifact into `root` from kept rows alone, unless it is unchanged.

    Raises:
        StoreError: rows of a job are missing.
    """
    from mobench.artifacts import draw, freshness
    from mobench.sweep.planner import plan

    command = [f"+experiment={id}", *overrides, "logger=local"]
    if (since := freshness.unchanged(id, command, root)) is not None:
        say(f"{id}: {artifact_folder(id, root)}, unchanged since {since[:16].replace('T', ' ')}")
        return
    planned = plan(command)
    folders = {job.name: JobFolder(results_root() / "runs" / job.folder.key) for job in planned.jobs}
    missing = [name for name, folder in folders.items() if not folder.done]
    if missing:
        raise StoreError(
            f"{id} cannot be drawn from kept rows, because those of {', '.join(missing)} are not in "
            f"{results_root() / 'runs'}. The job's settings or its code have changed since they were kept, "
            f"or its folder is missing. Run `mobench {shlex.join(command)}` and keep its rows again, or "
            f"remove {id} from {results_root() / MANIFEST}."
        )
    config = {**planned.artifacts[id], "refused": planned.refused.get(id, {})}
    draw(id, config, folders, planned.commands[id], root)


def draw_all(ids: Sequence[str], pdf: bool = False) -> int:
    """Draws these artifacts, or all, from kept rows and returns the exit code. pdf: figures as PDF, too."""
    known = drawings()
    unknown = [id for id in ids if id not in known]
    if unknown:
        fail(f"No rows are kept for {', '.join(unknown)}; rows are kept for {', '.join(known)}.")
        return 2
    from mobench.sweep import draw

    more = ["artifact.pdf=true"] if pdf else []
    chosen = [(id, [*known[id], *more]) for id in ids or known]
    return 0 if all(draw.in_processes(_drawn, chosen)) else 1


def _drawn(chosen: tuple[str, Sequence[str]]) -> bool:
    """Draws one artifact from kept rows below the outputs, and says whether that was possible."""
    id, overrides = chosen
    try:
        draw_kept(id, overrides, outputs_root() / KEPT)
    except MobenchError as error:
        fail(str(error))
        return False
    return True


def keep_artifact(id: str, history: bool = False) -> int:
    """Keeps the jobs of one drawn artifact, notes how to draw it from them, and returns the exit code."""
    artifact = id.partition("+")[0]  # a drawing with other settings is kept as the artifact's
    try:
        origin = read(artifact_folder(id))["provenance"]
        jobs = origin["jobs"]
    except (OSError, json.JSONDecodeError, KeyError):
        alternatives = [] if "+" in id else freshness.others(id)
        hint = (
            f" With other settings it was drawn as {', '.join(alternatives)}: name that."
            if alternatives
            else ""
        )
        return fail(
            f"{id} has not been drawn in {outputs_root()}; draw it first: "
            f"mobench +experiment={artifact}.{hint}"
        )
    if changed := outdated(origin):
        return fail(
            f"{id} was drawn from jobs whose settings or code have changed since ({', '.join(changed)}), so "
            f"nothing could be drawn from their rows. Nothing was kept; run `{origin['command']}` again."
        )
    for name, key in jobs.items():
        folder = JobFolder(outputs_root() / "runs" / key)
        if folder.done:
            size = keep(folder, results_root(), history)
            say(f"{id} {name}: {key}, {size / 1e3:.0f} kB")
        elif JobFolder(results_root() / "runs" / key).done:
            say(f"{id} {name}: {key} is already kept; skipped")
    unfinished = [k for k in jobs.values() if not JobFolder(results_root() / "runs" / k).done]
    if unfinished:
        return fail(
            f"{id} cannot be drawn from what is kept: {', '.join(unfinished)} "
            f"{'are' if len(unfinished) > 1 else 'is'} not finished in {outputs_root() / 'runs'}. "
            f"Run `{origin['command']}` and keep it again."
        )
    why = fault(artifact, origin, artifact_folder(id), results_root())
    if why is not None:
        return fail(f"The kept rows of {id} are not sufficient: {why}. Keep its history, too: --history.")
    note(artifact, origin["command"], results_root())
    return 0


def keep_jobs(names: Sequence[str], history: bool = False) -> int:
    """Keeps finished jobs, named by their folders, before their artifact is complete.

    An artifact that takes days is run in parts: a kept job is not run again, on any machine. Whether its
    artifact can be drawn from it shows at the end alone, so a job without its history is named.
    """
    folders = [JobFolder(outputs_root() / "runs" / Path(name).name) for name in names]
    if unfinished := [folder.key for folder in folders if not folder.done]:
        return fail(
            f"{', '.join(unfinished)} cannot be kept: no finished job of this name is in "
            f"{outputs_root() / 'runs'}. Nothing was kept."
        )
    for folder in folders:
        say(f"{folder.key}: {keep(folder, results_root(), history) / 1e3:.0f} kB")
        if not history and (recorded := folder.path / "history.parquet").exists():
            say(
                f"  without its history ({recorded.stat().st_size / 1e3:.0f} kB): an artifact that draws "
                f"curves cannot be drawn from this. For such a one, before {folder.path} is deleted: "
                f"mobench keep --jobs {folder.key} --history"
            )
    return 0


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(prog="mobench keep", description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("ids", nargs="*", metavar="PAPER/ID", help="artifacts that have been drawn, such as csmoo/fig38")
    add(
        "--draw",
        action="store_true",
        help="draw these artifacts (or all) from kept rows into outputs/kept; keep nothing",
    )
    add("--pdf", action="store_true", help="with --draw: also write figures as PDF")
    add("--jobs", action="store_true", help="the names are those of finished job folders, not of artifacts")
    add("--history", action="store_true", help="also keep the recorded steps, for curves")
    args = parser.parse_args(list(words))
    if args.draw and args.jobs:
        parser.error("--draw takes artifacts; omit --jobs")
    if args.pdf and not args.draw:
        parser.error("--pdf is an option of --draw; an artifact is drawn as PDF by artifact.pdf=true")
    if args.draw:
        return args
    if not args.ids:
        parser.error("name the artifacts whose rows are to be kept, or give --draw")
    return args


def main(arguments: Sequence[str]) -> int:
    """Runs `mobench keep ARGUMENTS` and returns the exit code."""
    args = _arguments(arguments)
    try:
        if args.draw:
            return draw_all(args.ids, args.pdf)
        if args.jobs:
            return keep_jobs(args.ids, args.history)
        return max(keep_artifact(id, args.history) for id in args.ids)
    except MobenchError as error:
        return fail(str(error))
