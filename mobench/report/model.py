"""The model of the report: papers, artifacts with claims, jobs, data sets, and their relations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

from mobench.artifacts.claims import OWN, Claim, called
from mobench.report.papers import paper_info
from mobench.report.sheets import Sheet
from mobench.report.words import commit, measured, slug, text


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


def mark(claim: Claim) -> Mark:
    """Returns how the verdict of a claim is shown."""
    return VERDICTS.get(called(claim.verdict, claim.source), UNREADABLE)


@dataclass(frozen=True)
class Figure:
    """figure.png with its size in pixels."""

    png: str
    pdf: str | None
    width: int
    height: int


@dataclass
class Entry:
    """One artifact."""

    paper: str
    name: str
    title: str = ""
    built: bool = True
    # drawn from rows that come with the project, beside the one that `make reproduce` draws
    kept: bool = False
    problems: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    figure: Figure | None = None
    table: Sheet | None = None
    csv: str | None = None
    notes: list[str] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """<paper>/<name>."""
        return f"{self.paper}/{self.name}" if self.name else self.paper

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
        references = self.origin.get("references")
        return (
            {str(k): [str(c) for c in v] for k, v in references.items()}
            if isinstance(references, dict)
            else {}
        )

    @property
    def label(self) -> str:
        """fig3 -> Figure 3; our own additions keep their name."""
        match = re.fullmatch(r"(fig|table)(\d+[a-z]?)(?:_(.+))?", self.name)
        if match is None:
            words = self.name.replace("_", " ").replace("/", ", ")
            return words[:1].upper() + words[1:] or self.id
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
    def alt(self) -> str:
        """A description of the picture for readers who do not see it."""
        words = f"{self.label} of {paper_info(self.paper).short}, drawn from our runs"
        verdicts = ", ".join(f"{n} {v.name}" for v, n in self.counts if n)
        return f"{words}: {self.title}." + (f" Claims: {verdicts}." if verdicts else "")

    @property
    def counts(self) -> list[tuple[Mark, int]]:
        """Claims per verdict."""
        return count([self])

    @property
    def jobs(self) -> dict[str, str]:
        """Keys of its jobs by name."""
        jobs = self.origin.get("jobs")
        return {str(name): str(key) for name, key in jobs.items()} if isinstance(jobs, dict) else {}

    @property
    def finished(self) -> dict[str, str]:
        """The number of runs that had finished when the artifact was drawn, by name of the job."""
        runs = self.origin.get("runs")
        return {str(name): text(ran) for name, ran in runs.items()} if isinstance(runs, dict) else {}

    @property
    def shows_data(self) -> bool:
        """True if its figure is a picture of the data (`artifact.depicts: data` in its configuration)."""
        return self.figure is not None and self.origin.get("depicts") == "data"


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


SCALES = ("smoke", "laptop", "paper")


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

    entries: Sequence[Entry]

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
    """One paper."""

    id: str
    short: str
    title: str
    entries: list[Entry]
    waiting: list[Entry]
    kept: list[Entry] = field(default_factory=list)

    @property
    def artifacts(self) -> list[Artifact]:
        """Its artifacts, in their order; those that only kept rows draw come last."""
        ids = dict.fromkeys(entry.id for entry in (*self.entries, *self.kept))
        return [Artifact([e for e in (*self.entries, *self.kept) if e.id == id]) for id in ids]

    @property
    def size(self) -> int:
        """The number of its artifacts."""
        return len(self.artifacts)

    @property
    def best(self) -> list[Evidence]:
        """Each claim once, on the best rows there are."""
        return best([*self.entries, *self.kept])

    @property
    def checks(self) -> list[Evidence]:
        """Each check of ours once, likewise."""
        return best([*self.entries, *self.kept], CHECKS)

    @property
    def counts(self) -> list[tuple[Mark, int]]:
        """Claims per verdict of what `make reproduce` draws."""
        return count(self.entries)

    @property
    def kept_counts(self) -> list[tuple[Mark, int]]:
        """Claims per verdict of what is drawn from kept rows."""
        return count(self.kept)


@dataclass
class Job:
    """A job folder. `origin` is its meta.json."""

    key: str
    status: str
    detail: str = ""
    origin: dict[str, Any] = field(default_factory=dict)
    kept: bool = False  # its rows come with the project, it was not run here
    used: list[Entry] = field(default_factory=list)  # artifacts that draw it

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

    @property
    def on_gpu(self) -> bool:
        """Tells whether a GPU computed any of its rows. The names of processors begin with CPU."""
        return self.device != "–" and not all(name.startswith("CPU") for name in self.device.split(" and "))

    @property
    def threads(self) -> int | None:
        """Threads of a job on a CPU, as far as `execution` says."""
        match = re.search(r"(\d+) thread", text(self.origin.get("execution")))
        return int(match[1]) if match else None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the problem and its data: all of meta.json that is not the runner's."""
        return {k: v for k, v in self.origin.items() if k not in RUNNERS_KEYS and v not in ([], {}, None)}

    @property
    def entries(self) -> list[Entry]:
        """Artifacts that draw it, each once."""
        return list({(entry.kept, entry.id): entry for entry in self.used}.values())


RUNNERS_KEYS = frozenset(
    {
        "git_sha",
        "git_dirty",
        "versions",
        "processes",
        "device",
        "date",
        "execution",
        "dtype",
        "tf32",
        "hypervolume",
        "ideal_point",
        "identity",
        "clock",
    }
    | {"seconds_train", "seconds_evaluate", "seconds_wall", "peak_memory_mib", "peak_gpu_memory_mib"}
)


@dataclass
class DataSet:
    """The data that jobs call by the same label; `versions`: its jobs by SHA-256."""

    slug: str
    label: str
    versions: dict[str, list[Job]]

    @property
    def page(self) -> str:
        """Address of its page, from the report's folder."""
        return f"data/{self.slug}.html"

    @property
    def jobs(self) -> list[Job]:
        """All that used it."""
        return [job for jobs in self.versions.values() for job in jobs]

    @property
    def kind(self) -> str:
        """The source of the data: problems say whether files were read, a label if the data are made up."""
        if not all(job.facts.get("embedded") for job in self.jobs):
            return "official files"
        return "generated" if self.label.startswith("generated") else "embedded"

    @property
    def problems(self) -> dict[str, int]:
        """Jobs per problem."""
        names = sorted(job.problem for job in self.jobs)
        return {name: names.count(name) for name in dict.fromkeys(names)}

    @property
    def entries(self) -> list[Entry]:
        """Artifacts that rest on it."""
        return list({(entry.kept, entry.id): entry for job in self.jobs for entry in job.entries}.values())

    @property
    def pictures(self) -> list[Entry]:
        """Artifacts whose figure shows it."""
        return [entry for entry in self.entries if entry.shows_data]


@dataclass
class Site:
    """Everything that the report shows, and the files that go with it."""

    papers: list[Paper]
    jobs: list[Job]
    assets: dict[str, bytes]

    @property
    def entries(self) -> list[Entry]:
        """All artifacts that have a folder in outputs/artifacts."""
        return [e for p in self.papers for e in p.entries]

    @property
    def kept(self) -> list[Entry]:
        """All artifacts that were drawn from kept rows."""
        return [e for p in self.papers for e in p.kept]

    @property
    def everything(self) -> list[Entry]:
        """Both."""
        return [*self.entries, *self.kept]

    @property
    def kept_counts(self) -> list[tuple[Mark, int]]:
        """Claims per verdict of what is drawn from kept rows."""
        return count(self.kept)

    @property
    def all_counts(self) -> list[tuple[Mark, int]]:
        """Claims per verdict of both."""
        return count(self.everything)

    @property
    def best(self) -> list[Evidence]:
        """Each claim once, on the best rows there are."""
        return [evidence for paper in self.papers for evidence in paper.best]

    @property
    def checks(self) -> list[Evidence]:
        """Each check of ours once, likewise."""
        return [evidence for paper in self.papers for evidence in paper.checks]

    @property
    def waiting(self) -> list[Entry]:
        """Artifacts that are declared and have no folder."""
        return [e for p in self.papers for e in p.waiting]

    @property
    def counts(self) -> list[tuple[Mark, int]]:
        """Claims per verdict of what `make reproduce` draws."""
        return count(self.entries)

    @cached_property
    def by_key(self) -> dict[str, Job]:
        """Jobs by their folders' names."""
        return {job.key: job for job in self.jobs}

    @cached_property
    def data(self) -> list[DataSet]:
        """Data sets that jobs name, by label."""
        jobs_by_data: dict[str, dict[str, list[Job]]] = {}
        for job in self.jobs:
            if isinstance(job.facts.get("data"), str):
                sha = text(job.facts.get("data_sha256"))
                jobs_by_data.setdefault(job.facts["data"], {}).setdefault(sha, []).append(job)
        data_sets: list[DataSet] = []
        for label in sorted(jobs_by_data):
            short = slug(label)[:60].strip("-")
            taken = {d.slug for d in data_sets}
            unique = next(
                s
                for n in range(1, len(data_sets) + 2)
                if (s := short if n == 1 else f"{short}-{n}") not in taken
            )
            data_sets.append(DataSet(unique, label, jobs_by_data[label]))
        return data_sets

    @cached_property
    def data_of(self) -> dict[str, DataSet]:
        """The data set of a job's key."""
        return {job.key: data for data in self.data for job in data.jobs}


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
