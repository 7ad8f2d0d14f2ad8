"""From rows to a drawn artifact.

A paper's file `experiments/<paper>.py` registers one function per artifact:

    @artifact("ferero/fig3")
    def fig3(a: Artifact) -> None:
        rows = a.jobs["epo"].final
        a.figure(fig)
        a.claim("epo-exact", "EPO ends on its rays", "Fig. 3d", published="on the rays", measured=..., holds=...)
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from mobench import console, loggers, overrides, provenance
from mobench.artifacts import unchanged
from mobench.errors import ConfigError, suggest
from mobench.store import JobFolder, columns, outputs_root, write_atomic, write_json

Verdict = Literal["reproduced", "partial", "not reproduced", "not tested at this scale"]
Draw = Callable[["Artifact"], None]
DPI = 200  # of the PNG
DEFAULTS = ("scale=laptop", "hardware=cpu")  # said by the Makefile, of no use to a reader
_registry: dict[str, Draw] = {}


def artifact(id: str) -> Callable[[Draw], Draw]:
    """Register the function that draws the artifact `<paper>/<name>`."""

    def decorate(fn: Draw) -> Draw:
        if id in _registry and _registry[id].__module__ != fn.__module__:
            raise ValueError(f"artifact {id!r} is registered twice")
        _registry[id] = fn
        return fn

    return decorate


def registered(id: str) -> Draw:
    """The drawing function of an artifact; imports `experiments/<paper>.py`."""
    paper = id.split("/", 1)[0]
    folder = unchanged.experiments()
    if not (folder / f"{paper}.py").exists():
        raise ConfigError(f"artifact {id!r}: there is no experiments/{paper}.py.")
    if folder.parent == unchanged.package():
        importlib.import_module(f"mobench.experiments.{paper}")
    else:
        if str(folder.parent) not in sys.path:
            sys.path.append(str(folder.parent))
        importlib.import_module(f"experiments.{paper}")
    if id not in _registry:
        known = sorted(k for k in _registry if k.startswith(paper))
        raise ConfigError(
            f"artifact {id!r} is not drawn by experiments/{paper}.py; it has {', '.join(known)}.{suggest(id, known)}"
        )
    return _registry[id]


@dataclass(frozen=True)
class Runs:
    """How many of the planned runs a number rests on; in a column `runs` of a table it speaks for the numbers of its row."""

    finished: int
    planned: int

    def __str__(self) -> str:
        return f"{self.finished} of {self.planned}"

    def __add__(self, other: Runs) -> Runs:
        return Runs(self.finished + other.finished, self.planned + other.planned)

    @property
    def short(self) -> str:
        """For a cell: " (19 of 20)" where not all of them finished, else nothing."""
        return "" if self.finished == self.planned else f" ({self})"

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Runs:
        """Of final rows, one per run."""
        return cls(int((rows["status"] == "done").sum()), len(rows))


class JobRows:
    """Rows of one finished job, read when asked."""

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder

    @functools.cached_property
    def final(self) -> pd.DataFrame:
        """final.csv: one row per run and output rule."""
        return self.folder.final()

    @functools.cached_property
    def history(self) -> pd.DataFrame:
        """history.parquet: run, step, seed, output, f_1..f_M, extra columns."""
        return self.folder.history()

    @functools.cached_property
    def solutions(self) -> dict[str, np.ndarray]:
        """Decision variables (R, P) per output rule."""
        return self.folder.solutions()

    @functools.cached_property
    def meta(self) -> dict[str, Any]:
        """meta.json."""
        return self.folder.meta()

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration that produced the rows."""
        return self.folder.config()

    @property
    def weights(self) -> np.ndarray:
        """Preferences (R, M), by run, of the first output rule."""
        rows = self.final[self.final["output"] == self.final["output"].iloc[0]]
        return rows[columns(rows, "preference_")].to_numpy(copy=True)

    @property
    def complete(self) -> bool:
        """Whether every run finished."""
        return bool((self.final["status"] == "done").all())

    @property
    def runs(self) -> Runs:
        """How many of the runs finished."""
        return Runs.of(self.final[self.final["output"] == self.final["output"].iloc[0]])

    def paths(self, output: str = "last") -> np.ndarray:
        """Objective values along the trajectories, (R, recorded steps, M)."""
        h = self.history
        h = h[h["output"] == output].sort_values(["run", "step"], kind="stable")
        F = h[columns(h, "f_")].to_numpy(copy=True)
        return F.reshape(h["run"].nunique(), -1, F.shape[1])


@dataclass(frozen=True)
class Claim:
    """One statement of a paper (or of ours), checked."""

    id: str
    statement: str
    source: str
    published: str
    measured: str
    tolerance: str
    scale: str
    verdict: Verdict
    reason: str = ""


def _plain(value: Any) -> Any:
    """JSON has no NaN and no NumPy numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass
class Artifact:
    """What a drawing function gets: rows in, figure, tables and claims out."""

    id: str
    title: str
    scale: str
    jobs: Mapping[str, JobRows]
    claims: list[Claim] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # overrides that are not the artifact's own settings
    refused: Mapping[str, str] = field(default_factory=dict)  # of a cross table: pairs that do not fit, and why

    def claim(
        self,
        id: str,
        statement: str,
        source: str,
        *,
        published: str,
        measured: str,
        tolerance: str,
        holds: bool | np.bool_ | Literal["partial"] | None,
        reason: str = "",
        any_scale: bool = False,
        counts_lost: bool = False,
        rests_on: Collection[str] | None = None,
    ) -> None:
        """Check one claim. `holds` is what was measured; at smoke scale only `any_scale` claims get a verdict.

        None: nothing here can decide it. A claim of an artifact with runs that did not finish is partial at best, unless it
        counts them itself (`counts_lost`) or they are not of the jobs that it `rests_on` (None: all).
        `reason`: for claims that fail or hold in part, the likely cause; for all, what a reader must know.
        """
        verdict: Verdict = "partial" if holds == "partial" else "reproduced" if holds else "not reproduced"
        if unknown := set(rests_on or ()) - set(self.jobs):
            raise ValueError(f"rests_on: {self.id} has no jobs {sorted(unknown)}; it has {list(self.jobs)}")
        used = {name: job for name, job in self.jobs.items() if rests_on is None or name in rests_on}
        lost = [f"{name}: {job.runs}" for name, job in used.items() if not job.complete]
        if lost and verdict == "reproduced" and not counts_lost:
            verdict = "partial"
        if lost and not counts_lost:
            reason = f"Not all runs finished ({', '.join(lost)}); the others are measured. {reason}".strip()
        if holds is None or (self.scale == "smoke" and not any_scale) or self.changed:
            verdict = "not tested at this scale"
        self.claims.append(Claim(id, statement, source, published, measured, tolerance, self.scale, verdict, reason))

    def figure(self, figure: Any) -> None:
        """The picture: PDF with embedded fonts, and PNG."""
        import matplotlib.pyplot as plt

        # layout and margins are computed once, not for each file again; at the resolution of the PNG, which then finds
        # its formulas parsed
        figure.set_dpi(DPI)
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # of "none", savefig would wait for a draw as well
        box = figure.get_tightbbox().padded(plt.rcParams["savefig.pad_inches"])
        # no date inside: the same rows give the same bytes
        for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=DPI, bbox_inches=box, metadata=metadata)
            self.files[f"figure.{kind}"] = buffer.getvalue()
        plt.close(figure)

    def table(self, frame: pd.DataFrame, float_format: str = "%.4g", given: Sequence[str] = ()) -> None:
        """The table as CSV (full precision), Markdown and LaTeX (rounded).

        A column `runs` of `Runs` says how many runs each row rests on. Where some did not finish, every cell of the row says
        so, but those of the columns `given`: names, settings, published or exact values, which no run measures.
        """
        shown = frame.map(lambda x: (float_format % x) if isinstance(x, float) and not pd.isna(x) else x)
        shown = shown.astype(object).where(frame.notna(), "–")
        unknown = [name for name in given if name not in frame]
        if unknown:
            raise ValueError(f"given: the table has no columns {unknown}; it has {list(frame)}")
        if "runs" in frame:
            notes = [r.short if isinstance(r, Runs) else "" for r in frame["runs"]]
            for name in [n for n in frame if n not in (*given, "runs")]:
                shown[name] = [f"{x}{note}" for x, note in zip(shown[name], notes, strict=True)]
        self.files["table.csv"] = frame.to_csv(index=False).encode()
        self.files["table.md"] = markdown(shown).encode()
        self.files["table.tex"] = latex(shown).encode()

    def note(self, text: str) -> None:
        """A deviation or decision that a reader must know; shown with the artifact."""
        self.notes.append(text)


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table."""
    cells = [[str(c) for c in frame.columns], *[[str(x) for x in row] for row in frame.itertuples(index=False)]]
    cells = [[c.replace("|", "\\|") for c in row] for row in cells]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + " --- |" * len(frame.columns))
    return "\n".join(lines) + "\n"


_TEX = {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "±": r"$\pm$", "–": "--", "^": r"\^{}", "~": r"\~{}"}


def latex(frame: pd.DataFrame) -> str:
    """A LaTeX tabular (booktabs)."""

    def escape(x: Any) -> str:
        return "".join(_TEX.get(ch, ch) for ch in str(x))

    lines = [r"\begin{tabular}{" + "l" * len(frame.columns) + "}", r"\toprule"]
    lines.append(" & ".join(escape(c) for c in frame.columns) + r" \\")
    lines.append(r"\midrule")
    lines += [" & ".join(escape(x) for x in row) + r" \\" for row in frame.itertuples(index=False)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def artifact_folder(id: str, root: Path | None = None) -> Path:
    """outputs/artifacts/<paper>/<name>."""
    return (root or outputs_root()) / "artifacts" / id


def draw(
    id: str,
    config: Mapping[str, Any],
    folders: Mapping[str, JobFolder],
    command: Sequence[str] = (),
    root: Path | None = None,
) -> bool:
    """Draw an artifact from its jobs' rows and write its folder. False if a job is missing (said by the caller).

    `command`: the overrides that made it. Those that change its jobs are noted, and no claim is judged then.

    claims.json is written last: a folder with it is complete.
    """
    missing = [name for name, folder in folders.items() if not folder.done]
    if missing:
        console.fail(
            f"{id} is not drawn: {len(missing)} of {len(folders)} jobs are not finished ({', '.join(missing)})."
        )
        return False
    began = time.time()
    a = Artifact(
        id, config["artifact"]["title"] or id, config["scale"]["name"], {k: JobRows(f) for k, f in folders.items()}
    )
    a.changed, a.refused = overrides.changed(command), config.get("refused", {})
    if a.changed:
        a.note(f"Not the artifact's own settings: {overrides.shown(a.changed)}. No claim is judged.")
    lost = [f"{name} {job.runs}" for name, job in a.jobs.items() if not job.complete]
    if lost:
        a.note(f"Runs that finished: {', '.join(lost)}, all of the other jobs. Only those are measured.")
    registered(id)(a)
    target = artifact_folder(id, root)
    for name in ("figure.pdf", "figure.png", "table.csv", "table.md", "table.tex", "claims.json"):
        if name not in a.files:
            (target / name).unlink(missing_ok=True)
    for name, data in a.files.items():
        write_atomic(target / name, data)
    default = [f"+experiment={id}", *([] if a.scale == "laptop" else [f"scale={a.scale}"])]
    origin = {
        "id": id,
        "title": a.title,
        "scale": a.scale,
        "depicts": config["artifact"].get("depicts"),
        "alone": config["artifact"].get("alone", False),
        "command": f"mobench {overrides.shown([o for o in command if o not in DEFAULTS] or default)}",
        "jobs": {name: folder.key for name, folder in folders.items()},
        "runs": {name: str(rows.runs) for name, rows in a.jobs.items()},
        "seconds_jobs": sum(float(rows.meta["seconds_wall"]) for rows in a.jobs.values()),
        "seconds_drawing": time.time() - began,
        "notes": a.notes,
        "inputs": unchanged.inputs(id, command, {name: folder.key for name, folder in folders.items()}, a.files, root),
        **provenance.stamp(),
    }
    write_json(target / "provenance.json", origin)
    claims = [{k: _plain(v) for k, v in vars(c).items()} for c in a.claims]
    write_json(target / "claims.json", claims)
    loggers.log_artifact(config, id, target, claims)
    _say(id, a, target)
    return True


def tally(verdicts: Iterable[str]) -> str:
    """How many of each, in words."""
    return ", ".join(f"{n} {v}" for v, n in Counter(verdicts).items()) or "no claims"


def _say(id: str, a: Artifact, target: Path) -> None:
    console.say(f"{id}: {tally(c.verdict for c in a.claims)}; {target}")
    for c in a.claims:
        if c.verdict in ("partial", "not reproduced"):
            console.say(f"  {c.verdict}: {c.id}: {c.statement} (published {c.published}; measured {c.measured})")


def read(folder: Path) -> dict[str, Any]:
    """What a drawn artifact's folder says: claims and provenance."""
    return {
        "claims": json.loads((folder / "claims.json").read_text()),
        "provenance": json.loads((folder / "provenance.json").read_text()),
    }
