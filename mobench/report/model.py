"""The model of the report: papers, artifacts with claims, jobs, data sets, and their relations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from mobench.artifacts.claims import OWN, Claim, called
from mobench.report.words import commit, duration, measured, text


@dataclass(frozen=True)
class Mark:
    """One of the verdicts of a claim or a check, or `unreadable`, with its symbol and meaning."""

    key: str
    name: str
    symbol: str
    meaning: str


VERDICTS = {
    v.name: v
    for v in (
        Mark("yes", "reproduced", "✓", "measured, and within its tolerance"),
        Mark("part", "partial", "◐", "a part holds; the reason says which part does not"),
        Mark(
            "no",
            "not reproduced",
            "✗",
            "an interval or a proof excludes it; the reason names that and the likely cause",
        ),
        Mark(
            "skip",
            "inconclusive",
            "○",
            "these rows decide nothing: one seed, an interval that holds what is claimed, lost runs, other "
            "data, a run that is too small; the reason says which",
        ),
        Mark("pass", "check passed", "•", "our own consistency check, which no paper claims"),
        Mark(
            "fail", "check failed", "!", "our own consistency check fails; the reason gives the likely cause"
        ),
        Mark("open", "check undecided", "◌", "our own consistency check, which these rows cannot decide"),
    )
}
UNREADABLE = Mark("bad", "unreadable", "?", "the record of the claim is damaged; draw the artifact again")
CLAIMS = ("yes", "part", "no", "skip")  # keys of the verdicts of claims
CHECKS = ("pass", "fail", "open")  # and of checks of ours
UNDECIDED = ("skip", "open")
FAILING = ("partial", "not reproduced", "check failed")
SCALES = ("smoke", "laptop", "paper")


def mark(claim: Claim) -> Mark:
    """Returns how the verdict of a claim is shown."""
    return VERDICTS.get(called(claim.verdict, claim.source), UNREADABLE)


@dataclass
class Job:
    """A job folder. `origin` is its meta.json."""

    key: str
    status: str
    detail: str = ""
    origin: dict[str, Any] = field(default_factory=dict)
    kept: bool = False  # its rows come with the project, it was not run here

    @property
    def problem(self) -> str:
        """Name of its problem: the first part of the key."""
        return self.key.rsplit("-", 2)[0]

    @property
    def place(self) -> str:
        """The place of its folder."""
        return f"{'experiments/results' if self.kept else 'outputs'}/runs/{self.key}"

    @property
    def seconds(self) -> float | None:
        """Wall time of all sessions; training and evaluation where the rows have the last session's alone."""
        wall = measured(self.origin.get("seconds_wall"))
        parts = [measured(self.origin.get(name)) or 0.0 for name in ("seconds_train", "seconds_evaluate")]
        return None if wall is None else max(wall, sum(parts))

    @property
    def commit(self) -> str:
        """Short commit, with the dirty flag."""
        return commit(self.origin) if self.origin else "–"

    @property
    def device(self) -> str:
        """The hardware that ran it."""
        return text(self.origin.get("device"))


@dataclass
class Entry:
    """One drawing of an artifact."""

    paper: str
    name: str
    kept: bool = False  # drawn from rows that come with the project, beside what `make reproduce` draws
    problems: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)  # figures and tables that can be shown, by name
    origin: dict[str, Any] = field(default_factory=dict)  # its provenance.json
    folders: dict[str, Job] = field(default_factory=dict)  # those of its jobs that exist, by key

    @property
    def id(self) -> str:
        """<paper>/<name>."""
        return f"{self.paper}/{self.name}"

    @property
    def title(self) -> str:
        """The artifact's title; "" if it is not known."""
        return text(self.origin["title"]) if self.origin.get("title") else ""

    @property
    def notes(self) -> list[str]:
        """Remarks of the drawing."""
        notes = self.origin.get("notes")
        return [text(n) for n in notes] if isinstance(notes, list) else []

    @property
    def file(self) -> str:
        """Its page, from the report's folder."""
        return f"{'kept' if self.kept else 'artifacts'}/{self.id}.html"

    @property
    def page(self) -> str:
        """Address of its page, from the report's folder."""
        return quote(self.file)

    @property
    def assets(self) -> str:
        """Folder of its files in the report."""
        return f"assets/{'kept/' if self.kept else ''}{self.id}"

    @property
    def references(self) -> dict[str, list[str]]:
        """Claims of other artifacts that it shows, too, by artifact."""
        return {id: [str(c) for c in claims] for id, claims in self._mapping("references").items()}

    @property
    def label(self) -> str:
        """fig3 -> Figure 3; our own additions keep their name."""
        match = re.fullmatch(r"(fig|table)(\d+[a-z]?)(?:_(.+))?", self.name)
        if match is None:
            words = self.name.replace("_", " ")
            return words[:1].upper() + words[1:]
        more = f", {match[3].replace('_', ' ')}" if match[3] else ""
        return f"{'Figure' if match[1] == 'fig' else 'Table'} {match[2]}{more}"

    @property
    def command(self) -> str:
        """The command that makes it, without options of logging (provenance.json has the whole command)."""
        return re.sub(
            r" (logger|progress)=\S+",
            "",
            text(self.origin.get("command") or f"mobench +experiment={self.id}"),
        )

    @property
    def scale(self) -> str:
        """Scale that was run."""
        scales = sorted({c.scale for c in self.claims if c.scale != "–"})
        return text(self.origin.get("scale") or " and ".join(scales))

    @property
    def commit(self) -> str:
        """Short commit, with the dirty flag."""
        return commit(self.origin)

    @property
    def counts(self) -> list[tuple[Mark, int]]:
        """Claims per verdict."""
        return count([self])

    @property
    def jobs(self) -> dict[str, str]:
        """Keys of its jobs by name."""
        return {name: str(key) for name, key in self._mapping("jobs").items()}

    @property
    def finished(self) -> dict[str, str]:
        """The number of runs that had finished when the artifact was drawn, by name of the job."""
        return {name: text(ran) for name, ran in self._mapping("runs").items()}

    def _mapping(self, key: str) -> dict[str, Any]:
        value = self.origin.get(key)
        return value if isinstance(value, dict) else {}

    @property
    def cost(self) -> str:
        """Wall time of its jobs, one after another, and their hardware; "" if it is not known."""
        timed = [job for job in self.folders.values() if job.seconds is not None]
        if not timed:
            return ""
        devices = ", ".join(sorted({job.device for job in timed}))
        seconds = duration(sum(job.seconds or 0.0 for job in timed))
        return f"{seconds} for {len(timed)} job{'s' if len(timed) != 1 else ''} on {devices}"


@dataclass(frozen=True)
class Evidence:
    """A claim, and the artifact whose rows are the best evidence for it."""

    entry: Entry
    number: int  # of the claim on the artifact's page, from 1
    claim: Claim

    @property
    def page(self) -> str:
        """Address of the claim, from the report's folder."""
        return f"{self.entry.page}#claim-{self.number}"


def best(entries: Iterable[Entry], keys: Sequence[str] = CLAIMS) -> list[Evidence]:
    """Returns each claim once, in the order of the artifacts.

    Of a claim that was judged on several sets of rows, the record that decides it is taken; of several that
    do, the one at the largest scale; of several at one scale, that of the kept rows.

    Args:
        entries: artifacts with claims.
        keys: of the verdicts to be taken: `CLAIMS`, or `CHECKS` of ours.
    """
    records: dict[tuple[str, str], tuple[tuple[bool, int, bool], Evidence]] = {}
    for entry in entries:
        for number, claim in enumerate(entry.claims, 1):
            verdict = mark(claim).key
            if verdict not in keys:
                continue
            size = SCALES.index(claim.scale) if claim.scale in SCALES else -1
            rank = (verdict not in UNDECIDED, size, entry.kept)
            key = (entry.id, claim.id)
            if key not in records or rank > records[key][0]:
                records[key] = (rank, Evidence(entry, number, claim))
    return [evidence for _, evidence in records.values()]


@dataclass(frozen=True)
class Artifact:
    """One artifact with its drawings: by `make reproduce`, and from kept rows."""

    entries: list[Entry]

    @property
    def claims(self) -> list[Evidence]:
        """Each claim once, on the best rows there are."""
        return best(self.entries)

    @property
    def checks(self) -> list[Evidence]:
        """Each check of ours once, likewise."""
        return best(self.entries, CHECKS)

    @property
    def others(self) -> list[Evidence]:
        """The records of claims and checks that better rows decide, and those that cannot be read."""
        decided = {id(evidence.claim) for evidence in (*self.claims, *self.checks)}
        return [
            Evidence(entry, number, claim)
            for entry in self.entries
            for number, claim in enumerate(entry.claims, 1)
            if id(claim) not in decided
        ]


@dataclass(frozen=True)
class Paper:
    """One paper, or all of them together."""

    id: str
    short: str
    title: str
    pictures: Sequence[str]  # artifacts whose figures its page in the documentation shows
    entries: list[Entry]  # drawn by `make reproduce`
    kept: list[Entry]  # drawn from kept rows
    waiting: list[Entry]  # declared, and not drawn yet

    @property
    def everything(self) -> list[Entry]:
        """All drawings."""
        return [*self.entries, *self.kept]

    @property
    def artifacts(self) -> list[Artifact]:
        """Its artifacts, in their order; those that only kept rows draw come last."""
        ids = dict.fromkeys(entry.id for entry in self.everything)
        return [Artifact([e for e in self.everything if e.id == id]) for id in ids]

    @property
    def best(self) -> list[Evidence]:
        """Each claim once, on the best rows there are."""
        return best(self.everything)

    @property
    def checks(self) -> list[Evidence]:
        """Each check of ours once, likewise."""
        return best(self.everything, CHECKS)


@dataclass(frozen=True)
class DataSet:
    """The data that jobs call by the same label, and the artifacts that rest on it."""

    label: str
    jobs: list[Job]
    entries: list[Entry]

    @property
    def kind(self) -> str:
        """The source of the data: problems say whether files were read, a label if the data are made up."""
        if not all(job.origin.get("embedded") for job in self.jobs):
            return "official files"
        return "generated" if self.label.startswith("generated") else "embedded"

    @property
    def versions(self) -> list[str]:
        """The SHA-256 of each version of it."""
        return list(dict.fromkeys(text(job.origin.get("data_sha256")) for job in self.jobs))

    @property
    def problems(self) -> list[str]:
        """The problems that use it."""
        return sorted({job.problem for job in self.jobs})

    @property
    def pictures(self) -> list[Entry]:
        """Artifacts whose figure shows it (`artifact.depicts: data` in their configuration)."""
        return [e for e in self.entries if e.origin.get("depicts") == "data" and "figure.png" in e.files]


@dataclass
class Site:
    """Everything that the report shows."""

    papers: list[Paper]
    jobs: list[Job] = field(default_factory=list)

    @property
    def all(self) -> Paper:
        """All papers together."""
        lists = ([e for p in self.papers for e in getattr(p, n)] for n in ("entries", "kept", "waiting"))
        return Paper("", "All", "", (), *lists)

    @property
    def data(self) -> list[DataSet]:
        """Data sets that jobs name, by label."""
        by_label: dict[str, list[Job]] = {}
        for job in self.jobs:
            if isinstance(label := job.origin.get("data"), str):
                by_label.setdefault(label, []).append(job)
        drawn = self.all.everything
        return [
            DataSet(label, jobs, [e for e in drawn if any(job.key in e.folders for job in jobs)])
            for label, jobs in sorted(by_label.items())
        ]


def counted(claim: Claim) -> bool:
    """Says whether a claim is in the counts: verdicts about times differ from one machine to the next."""
    return claim.source == OWN or not claim.timed


def tally(evidence: Iterable[Evidence], keys: Sequence[str] = CLAIMS) -> list[tuple[Mark, int]]:
    """Returns how many claims have each of these verdicts; claims about times are in no count."""
    numbers = Counter(mark(one.claim).key for one in evidence if counted(one.claim))
    return [(v, numbers[v.key]) for v in VERDICTS.values() if v.key in keys]


def count(entries: Iterable[Entry]) -> list[tuple[Mark, int]]:
    """Returns claims per verdict; a claim that cannot be read counts as `unreadable`."""
    numbers = Counter(mark(claim).name for entry in entries for claim in entry.claims if counted(claim))
    marks = list(VERDICTS.values()) + ([UNREADABLE] if numbers[UNREADABLE.name] else [])
    return [(v, numbers[v.name]) for v in marks]


def scales(entries: Iterable[Entry]) -> list[str]:
    """Returns the scales of these artifacts, the smallest first."""
    return sorted({e.scale for e in entries if e.scale in SCALES}, key=SCALES.index)
