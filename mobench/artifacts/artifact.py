"""From rows to a drawn artifact.

A paper's file `experiments/<paper>.py` registers one function per artifact:

    @artifact("ferero/fig3")
    def fig3(a: Artifact) -> None:
        rows = a.jobs["epo"].final
        a.figure(fig)
        a.claim("epo-exact", "EPO ends on its rays", "Fig. 3d", published="on the rays", measured=...,
        holds=...) a.check("drawn", "The drawn rays are the ones that the method uses", measured=...,
        tolerance=..., holds=...)
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from mobench.artifacts import freshness
from mobench.config import overrides
from mobench.errors import ConfigError, suggest
from mobench.jobs import wandb_log
from mobench.jobs.store import JobFolder, columns, write_atomic, write_json
from mobench.system import console, paths, provenance
from mobench.system.paths import outputs_root

Verdict = Literal["reproduced", "partial", "not reproduced", "inconclusive", "check passed", "check failed"]
Holds = bool | np.bool_ | Literal["partial"] | None
Draw = Callable[["Artifact"], None]
DPI = 200  # of the PNG
UNKNOWN = "The cause is not known."  # a test finds claims that say so
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
    folder = paths.experiments()
    if not (folder / f"{paper}.py").exists():
        raise ConfigError(f"artifact {id!r}: there is no experiments/{paper}.py.")
    if folder.parent == paths.package():
        importlib.import_module(f"mobench.experiments.{paper}")
    else:
        if str(folder.parent) not in sys.path:
            sys.path.append(str(folder.parent))
        importlib.import_module(f"experiments.{paper}")
    if id not in _registry:
        known = sorted(k for k in _registry if k.startswith(paper))
        raise ConfigError(
            f"artifact {id!r} is not drawn by experiments/{paper}.py; it has "
            f"{', '.join(known)}.{suggest(id, known)}"
        )
    return _registry[id]


@dataclass(frozen=True)
class Runs:
    """How many of the planned runs a number rests on;
    in a column `runs` of a table it speaks for the numbers of its row.
    """

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
    def seconds(self) -> float:
        """Wall time of the job, all of its sessions together.

        Rows of a job that was resumed before checkpoints carried the wall time name that of the last session
        alone: then training and evaluation, which were always carried, say more.
        """
        parts = float(self.meta["seconds_train"]) + float(self.meta["seconds_evaluate"])
        return max(float(self.meta["seconds_wall"]), parts)

    @property
    def data(self) -> str | None:
        """What its data are, as the problem names them; None if it has none."""
        label = self.meta.get("data")
        return None if label is None else str(label)

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
    """One statement of a paper, or a consistency check of ours, with what was measured.

    timed: the verdict depends on how fast the machine is, so it may differ between machines.
    """

    id: str
    statement: str
    source: str
    published: str
    measured: str
    tolerance: str
    scale: str
    verdict: Verdict
    reason: str = ""
    timed: bool = False


@dataclass(frozen=True)
class Paper:
    """What an artifact's paper used, as `artifact.paper` of its configuration says; decides which runs may
    judge its claims.

    data: labels of the paper's data sets at their full size, as jobs name them in meta.json
    (empty: none is needed). seeds: number of seeds of the paper's means, for all jobs or by the name of a job
    (None, or a job that is not named: the configuration's own seeds are enough at every scale).
    overrides: what to add to the artifact's command so that its claims are judged.
    """

    data: Sequence[str] = ()
    seeds: int | Mapping[str, int] | None = None
    overrides: str = ""


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
    # of a cross table: pairs that do not fit, and why
    refused: Mapping[str, str] = field(default_factory=dict)
    paper: Paper = field(default_factory=Paper)
    # claims of other artifacts that this one shows, too
    references: dict[str, list[str]] = field(default_factory=dict)

    def claim(
        self,
        id: str,
        statement: str,
        source: str,
        *,
        published: str,
        measured: str,
        tolerance: str,
        holds: Holds,
        reason: str = "",
        interval: str = "",
        any_scale: bool = False,
        counts_lost: bool = False,
        rests_on: Collection[str] | None = None,
        seeds: int | None = None,
        timed: bool = False,
    ) -> None:
        """Judge one statement of the paper. What is our own, and in no paper, is a `check`.

        Args:
            holds: what was measured; "partial" if a part of the statement holds; None if these rows cannot
                decide it, and then `reason` says why and what would.
            reason: the cause of every verdict but "reproduced"; with "reproduced" what a reader must know.
            interval: a 95 % interval of what was measured over the seeds, in words; shown where fewer seeds
                ran than in the paper.
            any_scale: neither steps nor data matter (arithmetic on printed numbers, shapes of constraints).
            counts_lost: the statement counts runs that did not finish itself; otherwise they make it partial
                at best.
            rests_on: names of the jobs that were measured (None: all of the artifact's).
            seeds: how many seeds of the paper's this statement is about (a panel that draws one); None:
                `Paper.seeds`.
            timed: the verdict depends on the machine's speed.

        The verdict is "inconclusive" whatever was measured where these runs cannot judge the paper's
        statement: at smoke scale, with overrides that change the jobs, on data other than the paper's
        (`Paper.data`), or on the paper's data at a smaller scale. With fewer seeds than the paper's it is
        "partial" at best.
        """
        used = self._used(rests_on)
        verdict: Verdict = "partial" if holds == "partial" else "reproduced" if holds else "not reproduced"
        lost = [f"{name}: {job.runs}" for name, job in used.items() if not job.complete]
        before = []
        if lost and not counts_lost:
            before.append(f"Not all runs finished ({', '.join(lost)}); the others are measured.")
        if few := None if any_scale else self._few(used, seeds):
            before.append(f"{few}{': ' if interval else ''}{interval}.")
        if before and verdict == "reproduced":
            verdict = "partial"
        why = None if any_scale and not self.changed else self._undecidable(used)
        if why is not None:
            verdict = "inconclusive"
            reason = why
        elif holds is None:
            verdict = "inconclusive"
        reason = " ".join(part for part in (*before, reason) if part)
        self._add(
            Claim(id, statement, source, published, measured, tolerance, self.scale, verdict, reason, timed)
        )

    def check(
        self,
        id: str,
        statement: str,
        *,
        measured: str,
        tolerance: str,
        holds: bool | np.bool_ | None,
        reason: str = "",
        any_scale: bool = False,
        timed: bool = False,
    ) -> None:
        """A consistency check of ours, which no paper claims; counted apart from claims.

        `reason`: why it fails, or (holds None) why these runs cannot decide it. At smoke scale only
        `any_scale` checks are decided.
        """
        verdict: Verdict = "check passed" if holds else "check failed"
        why = self._other_settings() if any_scale or self.scale != "smoke" else self._undecidable({})
        if why is not None:
            verdict = "inconclusive"
            reason = why
        elif holds is None:
            verdict = "inconclusive"
        self._add(Claim(id, statement, "ours", "–", measured, tolerance, self.scale, verdict, reason, timed))

    def refer(self, artifact: str, *claims: str) -> None:
        """Name claims of another artifact that this one shows as well: a claim is judged, and counted,
        in one place.
        """
        self.references.setdefault(artifact, []).extend(claims)

    def _add(self, claim: Claim) -> None:
        if claim.id in {c.id for c in self.claims}:
            raise ValueError(f"{self.id} has two claims with the id {claim.id!r}")
        if not claim.reason and claim.verdict not in ("reproduced", "check passed"):
            claim = replace(claim, reason=UNKNOWN)
        self.claims.append(claim)

    def _used(self, rests_on: Collection[str] | None) -> dict[str, JobRows]:
        if unknown := set(rests_on or ()) - set(self.jobs):
            raise ValueError(f"rests_on: {self.id} has no jobs {sorted(unknown)}; it has {list(self.jobs)}")
        return {name: job for name, job in self.jobs.items() if rests_on is None or name in rests_on}

    @property
    def decides(self) -> str:
        """The command that judges this artifact's claims."""
        return f"mobench +experiment={self.id} {self.paper.overrides}".strip()

    def stand_ins(self, rests_on: Collection[str] | None = None) -> list[str]:
        """Labels of the data of these jobs that are not the paper's, each once."""
        labels = [job.data for job in self._used(rests_on).values() if job.data is not None]
        return sorted({label for label in labels if label not in self.paper.data})

    def on_papers_data(self, rests_on: Collection[str] | None = None) -> bool:
        """Whether these jobs ran at the paper's scale on the paper's data."""
        return self.scale == "paper" and not self.stand_ins(rests_on)

    def _undecidable(self, used: Mapping[str, JobRows]) -> str | None:
        """Why these jobs cannot judge a statement of the paper, and what would; None if they can."""
        if self.scale == "smoke":
            return f"Smoke scale takes a few steps only. Decided by: {self._at('laptop')}."
        if why := self._other_settings():
            return why
        stand_ins = sorted(
            {job.data for job in used.values() if job.data is not None and job.data not in self.paper.data}
        )
        if stand_ins:
            papers = " and ".join(self.paper.data) or "other data"
            return (
                f"The paper's data are {papers}; measured on {'; '.join(stand_ins)}. Decided by: "
                f"{self.decides}."
            )
        if self.scale != "paper" and any(job.data is not None for job in used.values()):
            return (
                f"The paper's data at {self.scale} scale: fewer steps or smaller networks. Decided by: "
                f"{self.decides}."
            )
        return None

    def _other_settings(self) -> str | None:
        if not self.changed or self._only_seeds:
            return None
        return (
            f"Run with other settings than the artifact's ({overrides.shown(self.changed)}). Decided by: "
            f"{self.decides}."
        )

    def _at(self, scale: str) -> str:
        return self.decides if self.paper.overrides else f"mobench +experiment={self.id} scale={scale}"

    @property
    def _only_seeds(self) -> bool:
        """Whether the only settings that differ are the seeds, at the paper's scale."""
        return self.scale == "paper" and all(o.lstrip("+").startswith("seeds=") for o in self.changed)

    def _few(self, used: Mapping[str, JobRows], seeds: int | None) -> str | None:
        """How many of the paper's seeds ran, if fewer; None if all did."""
        said = []
        for name, job in used.items():
            planned = (
                self.paper.seeds.get(name) if isinstance(self.paper.seeds, Mapping) else self.paper.seeds
            )
            planned = planned if seeds is None else seeds
            if planned is not None and (own := len(job.config["seeds"])) < planned:
                said.append(f"{own} of the paper's {planned} seeds")
        return min(said, key=len) if said else None

    def figure(self, figure: Any) -> None:
        """The picture: PDF with embedded fonts, and PNG."""
        import matplotlib.pyplot as plt

        # layout and margins are computed once, not for each file again; at the resolution of the PNG, which
        # then finds its formulas parsed
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

        A column `runs` of `Runs` says how many runs each row rests on. Where some did not finish, every cell
        of the row says so, but those of the columns `given`: names, settings, published or exact values,
        which no run measures.
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
    cells = [
        [str(c) for c in frame.columns],
        *[[str(x) for x in row] for row in frame.itertuples(index=False)],
    ]
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
    """Draw an artifact from its jobs' rows and write its folder.

    False if a job is missing (said by the caller).

    `command`: the overrides that made it. Those that change its jobs are noted, and no claim is judged then.

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
    a = Artifact(
        id,
        config["artifact"]["title"] or id,
        config["scale"]["name"],
        {k: JobRows(f) for k, f in folders.items()},
    )
    a.changed = overrides.changed(command)
    a.refused = config.get("refused", {})
    a.paper = Paper(**config["artifact"]["paper"])
    if a.changed:
        judged = "Claims are partial at best." if a._only_seeds else "No claim is judged."
        a.note(f"Not the artifact's own settings: {overrides.shown(a.changed)}. {judged}")
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
        "seconds_jobs": sum(rows.seconds for rows in a.jobs.values()),
        "seconds_drawing": time.time() - began,
        "notes": a.notes,
        "references": a.references,
        "inputs": freshness.inputs(
            id, command, {name: folder.key for name, folder in folders.items()}, a.files, root
        ),
        **provenance.stamp(),
    }
    write_json(target / "provenance.json", origin)
    claims = [{k: _plain(v) for k, v in vars(c).items()} for c in a.claims]
    write_json(target / "claims.json", claims)
    wandb_log.log_artifact(config, id, target, claims)
    _say(id, a, target)
    return True


def tally(verdicts: Iterable[str]) -> str:
    """How many of each, in words."""
    return ", ".join(f"{n} {v}" for v, n in Counter(verdicts).items()) or "no claims"


def _say(id: str, a: Artifact, target: Path) -> None:
    console.say(f"{id}: {tally(c.verdict for c in a.claims)}; {target}")
    for c in a.claims:
        if c.verdict in ("partial", "not reproduced", "check failed"):
            console.say(
                f"  {c.verdict}: {c.id}: {c.statement} (published {c.published}; measured {c.measured})"
            )


def read(folder: Path) -> dict[str, Any]:
    """What a drawn artifact's folder says: claims and provenance."""
    return {
        "claims": json.loads((folder / "claims.json").read_text()),
        "provenance": json.loads((folder / "provenance.json").read_text()),
    }
