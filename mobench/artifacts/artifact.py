"""The argument of drawing functions, and the registry of functions by artifact.

A paper's package `experiments/<paper>/` has a function for each artifact, which reads like the figure's
caption:

    @artifact("ferero/fig3")
    def fig3(a: Artifact) -> None:
        rows = a.jobs["epo"].final
        a.figure(fig)
        a.claim("epo-exact", Share(rows["angle_deg"] < 1, at_least=0.9, that="within 1° of the ray"))

The texts of its claims are data, in `experiments/<paper>/claims.yaml` (`mobench.artifacts.claims`); a check
compares what is measured with its tolerance (`mobench.artifacts.checks`).
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from mobench.artifacts.checks import Check, listed
from mobench.artifacts.claims import OWN, UNKNOWN, Claim, Text, Texts, second_look, texts
from mobench.artifacts.rows import JobRows, RunCount
from mobench.artifacts.tables import Cell, latex, markdown, with_spreads
from mobench.artifacts.verdict import Evidence, decide, decide_apart
from mobench.config import overrides
from mobench.config.schema import PaperConfig
from mobench.errors import ConfigError, suggest
from mobench.system import paths

Draw = Callable[["Artifact"], None]
DPI = 200  # of the PNG
_registry: dict[str, Draw] = {}


def artifact(*ids: str) -> Callable[[Draw], Draw]:
    """Registers the function that draws these artifacts, `<paper>/<name>`; `a.name` is the one it draws."""

    def decorate(fn: Draw) -> Draw:
        for id in ids:
            if id in _registry and _registry[id].__module__ != fn.__module__:
                raise ValueError(f"artifact {id!r} is registered twice")
            _registry[id] = fn
        return fn

    return decorate


def registered(id: str) -> Draw:
    """Returns the drawing function of an artifact; imports every module of the package `experiments/<paper>`.

    Raises:
        ConfigError: There is no such package, or it does not draw this artifact.
    """
    paper = id.split("/", 1)[0]
    folder = paths.experiments()
    if not (folder / paper / "__init__.py").exists():
        raise ConfigError(f"artifact {id!r}: there is no experiments/{paper}.")
    if folder.parent == paths.package():
        package = importlib.import_module(f"mobench.experiments.{paper}")
    else:
        if str(folder.parent) not in sys.path:
            sys.path.append(str(folder.parent))
        package = importlib.import_module(f"experiments.{paper}")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    if id not in _registry:
        known = sorted(k for k in _registry if k.startswith(f"{paper}/"))
        raise ConfigError(
            f"artifact {id!r} is not drawn by experiments/{paper}; it has "
            f"{', '.join(known)}.{suggest(id, known)}"
        )
    return _registry[id]


@dataclass
class Artifact:
    """The argument of a drawing function: rows in, figure, tables and claims out."""

    id: str
    title: str
    scale: str
    jobs: Mapping[str, JobRows]
    claims: list[Claim] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # overrides of the artifact's settings
    only: Sequence[str] | None = None  # patterns of the jobs to be run, where others are left out
    refused: Mapping[str, str] = field(default_factory=dict)  # of a board: pairs that do not fit, and why
    paper: PaperConfig = field(default_factory=PaperConfig)
    references: dict[str, list[str]] = field(
        default_factory=dict
    )  # claims of other artifacts, shown here too
    apart: bool = False  # drawn with other settings: judged by itself, and not counted
    pdf: bool = False  # the figure is written as PDF, too

    @property
    def name(self) -> str:
        """The id without its paper: "fig3"."""
        return self.id.split("/", 1)[-1]

    @cached_property
    def texts(self) -> Texts:
        """The texts of its claims."""
        return texts(self.id)

    def claim(
        self,
        id: str,
        check: Check,
        *,
        reason: str = "",
        remark: str = "",
        interval: str = "",
        rests_on: Collection[str] | None = None,
        seeds: int | None = None,
        **words: Any,
    ) -> None:
        """Judges one statement of the paper. What is our own, and in no paper, is a `check`.

        The rules of `mobench.artifacts.verdict` decide. These runs cannot judge a paper's statement at smoke
        scale, with overrides that change the jobs, on data other than the paper's (`artifact.paper.data`), on
        the paper's data at a smaller scale, or at a smaller scale where the text has `scope: paper`.

        Args:
            id: as claims.yaml writes it, placeholders included.
            check: the measured values and their tolerance.
            reason: a cause that depends on the rows, before that of claims.yaml; written only where the check
                does not hold in full.
            remark: what a reader must know whatever the verdict, before that of claims.yaml.
            interval: a 95 % interval of what was measured over the seeds, in words; shown where fewer seeds
                ran than in the paper.
            rests_on: names of the jobs that were measured, where they depend on the call (else claims.yaml
                says it).
            seeds: how many of the paper's seeds it is about, likewise.
            words: what fills the placeholders of the text.
        """
        id, text = self.texts.find(id, words, is_check=False)
        text = replace(
            text,
            rests_on=text.rests_on if rests_on is None else tuple(rests_on),
            seeds=text.seeds if seeds is None else seeds,
        )
        self._judge(id, text, check, reason, remark, interval)

    def check(self, id: str, check: Check, *, reason: str = "", remark: str = "", **words: Any) -> None:
        """Judges a consistency check of ours, which no paper claims; counted apart from claims.

        At smoke scale only those with `any_scale` are decided. Arguments as for `claim`.
        """
        id, text = self.texts.find(id, words, is_check=True)
        self._judge(id, text, check, reason, remark, "")

    def refer(self, artifact: str, *claims: str) -> None:
        """Names claims of another artifact that this one shows, too; a claim is judged, and counted, once."""
        self.references.setdefault(artifact, []).extend(claims)

    def _judge(self, id: str, text: Text, check: Check, reason: str, remark: str, interval: str) -> None:
        """Adds the claim, or the check of ours, with its verdict (`artifacts.verdict`) and reasons."""
        used = self._used(text.rests_on)
        lost = self._lost(text, used)
        limits = [] if text.is_check else self._limits(text, used, interval)
        cannot = self._cannot(text, used)
        leans = {True: "holds", False: "fails", "partial": "partly", None: ""}[check.holds]
        decision = (decide_apart if self.apart else decide)(
            Evidence(
                own=text.is_check,
                holds=check.holds,
                failure=check.failure,
                cannot=cannot,
                undecided=check.why or ("" if text.is_check else reason),
                lost=lost,
                limits=tuple(limits),
                exact=text.exact,
            )
        )
        before = [self._other_settings, *limits] if self.apart else list(limits)
        if lost and not text.is_check and not decision.reason.startswith(lost):
            before.insert(0, f"{lost}; the others are measured.")
        reasons = [*before, decision.reason]
        if decision.causes:
            causes = () if check.holds is True else (reason, text.cause(check.holds))
            reasons += [*causes, remark, text.remark]
        elif lost and decision.reason.startswith(lost) and not text.is_check and not self.apart:
            reasons.append(reason)  # why they were lost, as far as the artifact knows
        if decision.verdict == "not reproduced":
            reasons.append(second_look(self.id, id))
        said = any("Decided by" in part for part in reasons)
        if decision.verdict == "inconclusive" and text.decided_by and not said:
            reasons.append(f"Decided by {text.decided_by}: {self._at('paper')}.")
        if text.answer:
            reasons.append(f"The authors' answer: {text.answer}")
        self._add(
            Claim(
                id,
                text.statement,
                text.source or OWN,
                text.published or "–",
                check.measured,
                check.tolerance,
                self.scale,
                decision.verdict,
                " ".join(dict.fromkeys(part for part in reasons if part)),
                text.timed,
                tuple(used),
                tuple(vars(gauge) for gauge in check.gauges),
                leans if cannot and not text.is_check and not lost else "",
            )
        )

    @staticmethod
    def _lost(text: Text, used: Mapping[str, JobRows]) -> str:
        """Says which jobs have runs that did not finish; empty if none has, or if the text counts them."""
        lost = [f"{name}: {job.runs}" for name, job in used.items() if not job.complete]
        return f"Not all runs finished ({', '.join(lost)} did)" if lost and not text.counts_lost else ""

    def _limits(self, text: Text, used: Mapping[str, JobRows], interval: str) -> list[str]:
        """Says what makes a claim partial at best."""
        limits = []
        if few := "" if text.any_scale else self._few(used, text.seeds):
            limits.append(f"{few}{': ' if interval else ''}{interval}.")
        elif self.changed and self._only_seeds and not text.any_scale and not self.apart:
            limits.append(f"Run with other seeds than the artifact's ({overrides.as_typed(self.changed)}).")
        if part := self._parts(used):
            limits.append(f"On a part of the paper's data ({part}).")
        return limits

    def _cannot(self, text: Text, used: Mapping[str, JobRows]) -> str:
        """Says why these runs cannot judge it, and what would; empty if they can."""
        if text.is_check and text.scope != "paper":
            used = {}  # other data decide a check of ours
        as_it_is = text.any_scale and (self.apart or not self.changed)
        if not as_it_is and (why := self._undecidable(used)):
            return why
        if text.scope == "paper" and self.scale != "paper":
            return f"{text.elsewhere or 'Asked at the scale of the paper.'} Decided by: {self._at('paper')}."
        return ""

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
        paper = self.paper
        return sorted({one for one in labels if one not in (*paper.data, *paper.parts, *paper.samples)})

    def _parts(self, used: Mapping[str, JobRows]) -> str:
        """Labels of the data of these jobs that are a part of the paper's; empty if there are none."""
        return "; ".join(sorted({str(job.data) for job in used.values() if job.data in self.paper.parts}))

    def on_papers_data(self, rests_on: Collection[str] | None = None) -> bool:
        """Says whether these jobs ran at the paper's scale on the paper's data or on a part of those."""
        return self.scale == "paper" and not self.stand_ins(rests_on)

    def _undecidable(self, used: Mapping[str, JobRows]) -> str:
        """Says why these jobs cannot judge a statement of the paper, and what would; empty if they can."""
        if self.scale == "smoke":
            return f"Smoke scale, mostly of a few steps, is not judged. Decided by: {self._at('laptop')}."
        if self.changed and not self._only_seeds and not self.apart:
            return f"{self._other_settings} Decided by: {self.decides}."
        if stand_ins := self.stand_ins(used):
            papers = " and ".join(self.paper.data) or "other data"
            used_data = "; ".join(stand_ins)
            return f"The paper's data are {papers}; measured on {used_data}. Decided by: {self.decides}."
        if self.scale != "paper" and any(job.data is not None for job in used.values()):
            fewer = f"The paper's data at {self.scale} scale: fewer steps or smaller networks."
            return f"{fewer} Decided by: {self.decides}."
        return ""

    @property
    def _other_settings(self) -> str:
        return f"Run with other settings than the artifact's ({overrides.as_typed(self.changed)})."

    def _at(self, scale: str) -> str:
        return self.decides if self.paper.overrides else f"mobench +experiment={self.id} scale={scale}"

    @property
    def _only_seeds(self) -> bool:
        """True if the only settings that differ are the seeds, at the paper's scale."""
        return self.scale == "paper" and all(o.lstrip("+").startswith("seeds=") for o in self.changed)

    def _few(self, used: Mapping[str, JobRows], seeds: int | None) -> str:
        """Says how many of the paper's seeds ran, if fewer than all; empty if all did."""
        counts: dict[str, tuple[int, int]] = {}
        for name, job in used.items():
            of_paper = self.paper.seeds
            planned = of_paper.get(name) if isinstance(of_paper, Mapping) else of_paper
            planned = planned if seeds is None else seeds
            if planned is not None:
                counts[name] = (len(job.config["seeds"]), planned)
        few = [count for count in counts.values() if count[0] < count[1]]
        if not few:
            return ""
        words = f"{min(few)[0]} of the paper's {min(few)[1]} seeds"
        if len(set(counts.values())) == 1:
            return words
        return f"{words} in {listed(name for name, count in counts.items() if count == min(few))}"

    @property
    def badge(self) -> str:
        """Returns the line above the picture that names its data and scale; empty where it has no data."""
        every = sorted({job.data for job in self.jobs.values() if job.data is not None})
        labels = [one for one in every if not any(other.endswith(f": {one}") for other in every)]
        kind = labels[0].partition(": ")[0] + ": " if labels else ""
        if len(labels) > 1 and all(label.startswith(kind) for label in labels):  # written once
            labels = [labels[0], *(label.removeprefix(kind) for label in labels[1:])]
        scale = "smoke scale: not judged" if self.scale == "smoke" else f"{self.scale} scale"
        if not labels:
            return "Smoke scale: not judged." if self.scale == "smoke" else ""
        other = " (not the paper's)" if self.stand_ins() and self.paper.data else ""
        if not other and self._parts(self.jobs):
            other = " (a part of the paper's)"
        return f"Data{other}: {'; '.join(labels)}. {scale[0].upper()}{scale[1:]}."

    def figure(self, figure: Any) -> None:
        """Takes the picture and writes it in the format of `style`: as PNG, with `pdf` as PDF, too.

        The PDF has its fonts embedded, and none of Type 3, which publishers refuse.
        """
        import matplotlib.pyplot as plt

        from mobench.artifacts import style  # plotting, which commands that draw nothing need not import

        # layout and margins are computed once, not for each file again; at the resolution of the PNG, which
        # then finds its formulas parsed
        figure.set_dpi(DPI)
        box = style.finish(figure, self.badge)
        # no date inside: the same rows give the same bytes
        undated: dict[str, dict[str, None]] = {"png": {"Software": None}}
        if self.pdf:
            undated["pdf"] = {"CreationDate": None}
        for kind, metadata in undated.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=DPI, bbox_inches=box, metadata=metadata)
            self.files[f"figure.{kind}"] = buffer.getvalue()
        plt.close(figure)

    def table(
        self,
        frame: pd.DataFrame | Sequence[Mapping[str, Any]],
        float_format: str = "%.4g",
        given: Sequence[str] = (),
        bold: Collection[Cell] = (),
    ) -> None:
        """Takes a frame, or its lines, and writes CSV (full precision), Markdown and LaTeX (rounded).

        A column `runs` of `RunCount` says how many runs each row rests on. Where some did not finish, every
        cell of the row says so, but those of the columns `given`: names, settings, published or exact values,
        which no run measures. In Markdown and LaTeX a column "<name> std" is written into the cells of its
        mean, and the cells `bold`, by row and column, are in bold type.
        """
        frame = frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(list(frame))
        formatted = frame.map(lambda x: (float_format % x) if isinstance(x, float) and not pd.isna(x) else x)
        formatted = formatted.astype(object).where(frame.notna(), "–")
        unknown = [name for name in given if name not in frame]
        if unknown:
            raise ValueError(f"given: the table has no columns {unknown}; it has {list(frame)}")
        formatted = with_spreads(formatted, frame)
        if "runs" in frame:
            notes = [r.short if isinstance(r, RunCount) else "" for r in frame["runs"]]
            for name in [n for n in formatted if n not in (*given, "runs")]:
                formatted[name] = [f"{x}{note}" for x, note in zip(formatted[name], notes, strict=True)]
        self.files["table.csv"] = frame.to_csv(index=False).encode()
        self.files["table.md"] = markdown(formatted, bold).encode()
        self.files["table.tex"] = latex(formatted, bold).encode()

    def note(self, text: str) -> None:
        """Takes a deviation or decision that a reader must know; shown with the artifact."""
        self.notes.append(text)
