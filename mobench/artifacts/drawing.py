"""From rows to the folder of a drawn artifact."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mobench.artifacts import freshness
from mobench.artifacts.artifact import Artifact, registered
from mobench.artifacts.claims import called
from mobench.artifacts.freshness import artifact_folder, drawing_id
from mobench.artifacts.rows import JobRows, SomeJobs
from mobench.artifacts.verdict import APART
from mobench.config import overrides
from mobench.config.schema import PaperConfig
from mobench.jobs import wandb_log
from mobench.jobs.store import JobFolder
from mobench.system import console, forms, provenance
from mobench.system.files import cannot_write, write_atomic, write_json

LISTED = ("partial", "not reproduced", "check failed", *(v for v in APART.values() if v != APART[True]))
DEFAULTS = ("scale=laptop", "hardware=cpu")  # written by the Makefile, of no use to a reader


def _plain(value: Any) -> Any:
    """Returns a value that JSON can hold: it has no NaN and no NumPy numbers."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def draw(
    id: str,
    config: Mapping[str, Any],
    folders: Mapping[str, JobFolder],
    command: Sequence[str] = (),
    root: Path | None = None,
) -> bool:
    """Draws an artifact from its jobs' rows and writes its folder; returns False if a job is missing.

    Args:
        command: the overrides of the command line. Those that change the jobs are noted; a drawing with them
            lies in a separate folder, and its claims are said to hold with other settings, or not.
        root: where kept rows are drawn, with the overrides that they were kept with; None: the outputs.

    claims.json is written last: a folder with it is complete.
    """
    missing = [name for name, folder in folders.items() if not folder.done]
    if missing:
        console.fail(
            f"{id} is not drawn: {len(missing)} of {len(folders)} jobs are not finished "
            f"({', '.join(missing)})."
        )
        return False
    began = time.time()
    drawing = drawing_id(id, command) if root is None else id
    a = assembled(id, config, folders, command, apart=drawing != id)
    function = registered(id)
    from mobench.artifacts import style  # plotting, which commands that draw nothing need not import

    with style.plt.rc_context(style.RC):  # `mobench.plot` leaves a program's own look as it was
        function(a)
    if a.only is None:
        a.texts.all_used()
    target = artifact_folder(drawing, root)
    for name in ("figure.pdf", "figure.png", "table.csv", "table.md", "table.tex", "claims.json"):
        if name not in a.files:
            try:
                (target / name).unlink(missing_ok=True)
            except OSError as error:
                raise cannot_write(error, target / name) from error
    for name, data in a.files.items():
        write_atomic(target / name, data)
    jobs = {name: folder.key for name, folder in folders.items()}
    default = [f"+experiment={id}", *([] if a.scale == "laptop" else [f"scale={a.scale}"])]
    origin = {
        "id": id,
        "title": a.title,
        "scale": a.scale,
        "depicts": config["artifact"].get("depicts"),
        "alone": config["artifact"].get("alone", False),
        "command": f"mobench {overrides.as_typed([o for o in command if o not in DEFAULTS] or default)}",
        "jobs": jobs,
        "runs": {name: str(rows.runs) for name, rows in a.jobs.items()},
        "seconds_jobs": sum(rows.seconds for rows in a.jobs.values()),
        "seconds_drawing": time.time() - began,
        "notes": a.notes,
        "references": a.references,
        "inputs": {
            **freshness.inputs(id, command, jobs, root),
            "files": {name: len(data) for name, data in a.files.items()},
        },
        **provenance.stamp(),
    }
    write_json(target / "provenance.json", origin)
    claims = recorded_claims(a)
    write_json(target / "claims.json", claims)
    wandb_log.log_artifact(config, id, target, claims)
    _say(drawing, a, target)
    return True


def recorded_claims(a: Artifact) -> list[dict[str, Any]]:
    """Returns the claims of an artifact as claims.json has them."""
    return [{k: _plain(v) for k, v in vars(c).items()} for c in a.claims]


def assembled(
    id: str,
    config: Mapping[str, Any],
    folders: Mapping[str, JobFolder],
    command: Sequence[str],
    apart: bool = False,
) -> Artifact:
    """Returns the artifact to be drawn, with notes on changed settings and unfinished runs.

    apart: whether changed settings are judged apart, and not counted.
    """
    only = config["artifact"].get("only")
    jobs = {k: JobRows(f) for k, f in folders.items()}
    title = config["artifact"]["title"] or id
    a = Artifact(
        id,
        title,
        config["scale"]["name"],
        jobs if only is None else SomeJobs(jobs),
        changed=overrides.changed(command),
        only=only,
        refused=config.get("refused", {}),
        paper=PaperConfig(**config["artifact"]["paper"]),
        apart=apart,
        pdf=config["artifact"].get("pdf", False),
    )
    if a.only is not None:
        a.note(
            f"Only the jobs {', '.join(a.only)} were run and drawn. Claims that need others are not judged."
        )
    if a.changed:
        judged = "Claims are partial at best." if a._only_seeds else "No claim is judged."
        judged = "Its claims are judged with these, and not counted." if apart else judged
        a.note(f"Not the artifact's own settings: {overrides.as_typed(a.changed)}. {judged}")
    lost = [f"{name} {job.runs}" for name, job in a.jobs.items() if not job.complete]
    if lost:
        a.note(f"Runs that finished: {', '.join(lost)}, all of the other jobs. Only those are measured.")
    return a


def tally(claims: Iterable[tuple[str, str]]) -> str:
    """Returns how many claims have each verdict, in words. claims: verdict and source of each."""
    counts = Counter(called(verdict, source) for verdict, source in claims)
    return ", ".join(f"{n} {v}" for v, n in counts.items()) or "no claims"


def _say(id: str, a: Artifact, target: Path) -> None:
    console.say(f"{id}: {tally((c.verdict, c.source) for c in a.claims)}; {target}")
    if a.apart:
        console.say(
            f"  drawn with other settings than the artifact's ({overrides.as_typed(a.changed)}), so in a "
            "folder of its own, and counted nowhere; what its own settings give stays where it is"
        )
    for c in a.claims:
        if c.verdict in LISTED:
            console.say(
                f"  {c.verdict}: {c.id}: {c.statement} (published {c.published}; measured {c.measured})"
            )


def read(folder: Path) -> dict[str, Any]:
    """Returns the claims and the provenance of a drawn artifact.

    Raises:
        FileNotFoundError: it was not drawn to its end.
        StoreError: a file has another form.
    """
    path = folder / "provenance.json"
    provenance = forms.fields(str(path), forms.read_json(path), {"jobs": dict, "inputs": dict})
    return {"claims": freshness.claims(folder), "provenance": provenance}
