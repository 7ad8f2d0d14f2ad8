"""From outputs/ to one static page and a Markdown page. Reads artifact and job folders, computes nothing new.

    outputs/report/index.html     opens from disk; CSS and JavaScript inside
    outputs/report/assets/...     copies of figures and tables: the folder can be zipped and sent

What cannot be read is shown with the reason; nothing is dropped. The same inputs give the same bytes, except for the
line with the build date.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from mobench import provenance
from mobench.errors import MobenchError
from mobench.store import outputs_root, write_atomic

TABLE_ROWS = 400  # longer tables are cut on the page; table.csv beside it has all rows

# short name and title; papers that are not listed appear under their id, after these
PAPERS = {
    "ferero": ("FERERO", "A Flexible Framework for Preference-Guided Multi-Objective Learning"),
    "omd_tch": ("OMD-TCH", "Online Mirror Descent for Tchebycheff Scalarization in Multi-Objective Optimization"),
    "csmoo": ("CSMOO", "Constrained Stochastic Multi-Objective Optimization"),
    "mobl": ("WC-MHGD", "Multi-Objective Bilevel Learning"),
    "mlm_cmoo": ("MLM-CMOO", "Gradient-Based Constrained Multi-Objective Optimization"),
    "cross": ("Cross tables", "every algorithm on every problem that it fits (ours)"),
}


@dataclass(frozen=True)
class Verdict:
    """One of the four verdicts of a claim, or `unreadable`: how it looks and what it means."""

    key: str
    name: str
    symbol: str
    meaning: str


VERDICTS = {
    v.name: v
    for v in (
        Verdict("yes", "reproduced", "✓", "measured, and inside the tolerance that was fixed beforehand"),
        Verdict("part", "partial", "◐", "holds in part; the reason says which part does not"),
        Verdict("no", "not reproduced", "✗", "measured, and it does not hold: a finding, with its likely cause"),
        Verdict("skip", "not tested at this scale", "○", "needs a larger scale than the one that was run"),
    )
}
UNREADABLE = Verdict("bad", "unreadable", "!", "the claim's record is damaged; draw the artifact again")
FAILING = ("partial", "not reproduced")


@dataclass(frozen=True)
class Claim:
    """A row of claims.json, as text."""

    id: str
    statement: str
    source: str
    published: str
    measured: str
    tolerance: str
    scale: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Cell:
    """A table cell: text, and the decimals that it lacks to align with its column."""

    text: str
    pad: str = ""


@dataclass(frozen=True)
class Column:
    """A table column's head."""

    name: str
    numeric: bool
    published: bool


@dataclass(frozen=True)
class Sheet:
    """table.csv, rounded for reading."""

    columns: list[Column]
    rows: list[list[Cell]]
    total: int


@dataclass(frozen=True)
class Figure:
    """figure.png with its size in pixels."""

    png: str
    pdf: str | None
    width: int
    height: int


@dataclass
class Entry:
    """One artifact of the page."""

    paper: str
    name: str
    title: str = ""
    built: bool = True
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
    def anchor(self) -> str:
        """Fragment of the page."""
        return "a-" + re.sub(r"[^\w-]", "-", self.id)

    @property
    def label(self) -> str:
        """fig3 -> Figure 3; our own additions keep their name."""
        match = re.fullmatch(r"(fig|table)(\d+)", self.name)
        if match is None:
            words = self.name.replace("_", " ").replace("/", ", ")
            return words[:1].upper() + words[1:] or self.id
        return f"{'Figure' if match[1] == 'fig' else 'Table'} {match[2]}"

    @property
    def command(self) -> str:
        """The command that makes it; where its rows are logged is left to the reader (provenance.json has all of it)."""
        return re.sub(
            r" (logger|progress)=\S+", "", text(self.origin.get("command") or f"mobench +experiment={self.id}")
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
        """What the picture is, for those who do not see it."""
        words = f"{self.label} of {PAPERS.get(self.paper, (self.paper, ''))[0]}, drawn from our runs"
        verdicts = ", ".join(f"{n} {v.name}" for v, n in self.counts if n)
        return f"{words}: {self.title}." + (f" Claims: {verdicts}." if verdicts else "")

    @property
    def counts(self) -> list[tuple[Verdict, int]]:
        """Claims per verdict."""
        return count([self])


@dataclass(frozen=True)
class Paper:
    """One paper of the page."""

    id: str
    short: str
    title: str
    entries: list[Entry]
    waiting: list[Entry]

    @property
    def counts(self) -> list[tuple[Verdict, int]]:
        """Claims per verdict."""
        return count(self.entries)


@dataclass(frozen=True)
class Run:
    """A job folder: a row of the table of runs."""

    key: str
    problem: str
    algorithm: str
    digest: str
    status: str
    detail: str
    finished: int | None
    total: int | None
    seconds: float | None
    commit: str
    date: str
    artifacts: list[Entry]


def count(entries: Iterable[Entry]) -> list[tuple[Verdict, int]]:
    """Claims per verdict; an artifact or claim that cannot be read counts as one `unreadable`."""
    entries = list(entries)
    numbers = {v.name: 0 for v in VERDICTS.values()} | {UNREADABLE.name: 0}
    for entry in entries:
        for claim in entry.claims:
            numbers[claim.verdict.name] += 1
    shown = list(VERDICTS.values()) + ([UNREADABLE] if numbers[UNREADABLE.name] else [])
    return [(v, numbers[v.name]) for v in shown]


# reading


def text(value: Any) -> str:
    """Any JSON value as a reader's text."""
    if value is None or value == "":
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(repr(value))
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def commit(origin: dict[str, Any]) -> str:
    """`abc123def`, `abc123def + changes`, or `unknown commit`."""
    sha = origin.get("git_sha")
    if not isinstance(sha, str) or not sha:
        return "unknown commit"
    return sha[:10] + (" + changes" if origin.get("git_dirty") else "")


def duration(seconds: Any) -> str:
    """3.2 s, 4 min 12 s, 2 h 5 min."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def moment(value: Any) -> str:
    """ISO time with a space and without seconds."""
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(.*)$", r"\1 \2 \3", text(value)).strip()


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SUPER = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(raw: str) -> str:
    """Four significant digits; integers as they are; powers of ten only for very small and very large numbers."""
    value = float(raw)
    if re.fullmatch(r"[+-]?\d{1,15}", raw):
        return raw.replace("-", "−")
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if size and not 1e-4 <= size < 1e6:
        mantissa, exponent = f"{value:.3e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        shown = f"{mantissa}·10{str(int(exponent)).translate(_SUPER)}"
    elif size >= 1e3:
        shown = f"{value:.1f}".removesuffix(".0") if size < 1e4 else f"{value:.0f}"
    else:
        shown = f"{value:.4g}"
    # "-" inside 10⁻⁵ is a superscript already
    return shown.replace("-", "−")


def sheet(raw: str) -> Sheet:
    """Parse table.csv. Raises ValueError if it is no table."""
    lines = [row for row in csv.reader(io.StringIO(raw), strict=True) if row]
    if not lines:
        raise ValueError("it is empty")
    head, body = lines[0], lines[1:]
    for i, row in enumerate(body):
        if len(row) != len(head):
            raise ValueError(f"row {i + 1} has {len(row)} cells, its head {len(head)}")
    columns: list[Column] = []
    cells: list[list[Cell]] = []
    for j, name in enumerate(head):
        values = [row[j].strip() for row in body[:TABLE_ROWS]]
        plain = [bool(_NUMBER.fullmatch(v)) for v in values]
        shown = [
            number(v) if is_number else "–" if v.lower() in ("", "nan") else v
            for v, is_number in zip(values, plain, strict=True)
        ]
        numeric = all(p or s == "–" or "±" in s for p, s in zip(plain, shown, strict=True)) and any(
            plain + ["±" in s for s in shown]
        )
        places = [len(s.partition(".")[2]) if p and "·" not in s else 0 for p, s in zip(plain, shown, strict=True)]
        most = max(places, default=0) if not any("·" in s or "±" in s for s in shown) else 0
        pads = [
            ("." if most and not n else "") + "0" * max(0, most - n) if p and numeric else ""
            for p, n in zip(plain, places, strict=True)
        ]
        published = bool(re.search(r"published|\bpaper\b", name, re.IGNORECASE))
        columns.append(Column(name, numeric, published))
        cells.append([Cell(s, pad) for s, pad in zip(shown, pads, strict=True)])
    return Sheet(columns, [list(row) for row in zip(*cells, strict=True)], len(body))


def _json(path: Path, entry: Entry, kind: type, why: str) -> Any:
    """The file's value, or None and a problem of the entry."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        entry.problems.append(f"{path.name} is missing: {why}")
    except (OSError, ValueError) as error:
        entry.problems.append(f"{path.name} cannot be read ({error}).")
    else:
        if isinstance(value, kind):
            return value
        expected = "a list of claims" if kind is list else "an object"
        entry.problems.append(f"{path.name} holds {type(value).__name__}, expected {expected}.")
    return None


def _claims(value: Sequence[Any], entry: Entry) -> list[Claim]:
    claims = []
    for i, raw in enumerate(value):
        record = raw if isinstance(raw, dict) else {}
        missing = [k for k in ("id", "statement", "published", "measured", "verdict") if k not in record]
        verdict = VERDICTS.get(str(record.get("verdict")), UNREADABLE)
        if not isinstance(raw, dict):
            entry.problems.append(f"claims.json: claim {i + 1} is no object.")
        elif missing:
            entry.problems.append(f"claims.json: claim {i + 1} lacks {', '.join(missing)}.")
        elif verdict is UNREADABLE:
            entry.problems.append(f"claims.json: claim {i + 1} has the unknown verdict {text(record['verdict'])!r}.")
        fields = {
            k: text(record.get(k)) for k in ("statement", "source", "published", "measured", "tolerance", "scale")
        }
        reason = record.get("reason")
        claim = Claim(
            id=text(record.get("id") or f"claim-{i + 1}"),
            verdict=UNREADABLE if missing else verdict,
            reason=text(reason) if reason else "",
            **fields,
        )
        claims.append(claim)
    return claims


def png_size(data: bytes) -> tuple[int, int]:
    """Width and height. Raises ValueError if the bytes are no PNG."""
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        raise ValueError("it is no PNG")
    if b"IEND" not in data[-16:]:
        raise ValueError("it is cut off")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


@dataclass
class Site:
    """Everything that the page shows, and the files that go with it."""

    papers: list[Paper]
    runs: list[Run]
    assets: dict[str, bytes]

    @property
    def entries(self) -> list[Entry]:
        """All artifacts that have a folder."""
        return [e for p in self.papers for e in p.entries]

    @property
    def waiting(self) -> list[Entry]:
        """Artifacts that are declared and have no folder."""
        return [e for p in self.papers for e in p.waiting]

    @property
    def counts(self) -> list[tuple[Verdict, int]]:
        """Claims per verdict."""
        return count(self.entries)


def _entry(folder: Path, id: str, assets: dict[str, bytes]) -> Entry:
    paper, _, name = id.partition("/")
    entry = Entry(paper, name)
    unfinished = "the artifact was never drawn to its end. Its command draws it again."
    claims = _json(folder / "claims.json", entry, list, unfinished)
    origin = _json(folder / "provenance.json", entry, dict, "nothing says where the numbers come from.")
    entry.claims = _claims(claims or [], entry)
    entry.origin = origin or {}
    entry.title = text(entry.origin["title"]) if entry.origin.get("title") else ""
    notes = entry.origin.get("notes")
    entry.notes = [text(n) for n in notes] if isinstance(notes, list) else [text(notes)] if notes else []
    files: dict[str, bytes] = {}
    for file in ("figure.png", "figure.pdf", "table.csv"):
        try:
            files[file] = (folder / file).read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            entry.problems.append(f"{file} cannot be read ({error}).")
    base = "assets/" + id
    if "figure.png" in files:
        try:
            width, height = png_size(files["figure.png"])
        except ValueError as error:
            entry.problems.append(f"figure.png cannot be shown: {error}.")
        else:
            pdf = f"{base}/figure.pdf" if "figure.pdf" in files else None
            entry.figure = Figure(f"{base}/figure.png", pdf, width, height)
    elif "figure.pdf" in files:
        entry.problems.append("figure.png is missing, figure.pdf is there.")
    if "table.csv" in files:
        entry.csv = f"{base}/table.csv"
        try:
            entry.table = sheet(files["table.csv"].decode())
        except (ValueError, csv.Error) as error:
            entry.problems.append(f"table.csv cannot be shown: {error}.")
    elif (folder / "table.md").exists():
        entry.problems.append("table.csv is missing, table.md is there.")
    if not files and (not entry.claims or entry.label.startswith(("Figure ", "Table "))):
        entry.problems.append("There is neither a figure nor a table.")
    assets.update({f"{base}/{file}": data for file, data in files.items()})
    return entry


def _unbuilt(id: str) -> Entry:
    paper, _, name = id.partition("/")
    return Entry(paper, name, built=False)


def _natural(name: str) -> tuple[Any, ...]:
    """fig2 before fig10, figures before tables before our own additions."""
    group = 0 if re.match(r"fig\d", name) else 1 if re.match(r"table\d", name) else 2
    parts = [(0, int(x), "") if x.isdigit() else (1, 0, x) for x in re.split(r"(\d+)", name) if x]
    return (group, parts, name)


def _folders(base: Path) -> dict[str, Path]:
    """Artifact folders by id: <paper>/<name>, and whatever else lies under artifacts/ and holds files."""
    found = {}
    for folder in base.rglob("*") if base.is_dir() else ():
        parts = folder.relative_to(base).parts
        if not folder.is_dir() or any(p.startswith(".") for p in parts):
            continue
        children = [c for c in folder.iterdir() if not c.name.startswith(".")]
        if any(c.is_file() for c in children) or (not children and len(parts) > 1):
            found["/".join(parts)] = folder
    return found


def _run(folder: Path, users: dict[str, list[Entry]]) -> Run:
    detail = ""

    def load(name: str) -> dict[str, Any]:
        nonlocal detail
        try:
            value = json.loads((folder / name).read_text(encoding="utf-8"))
            if not isinstance(value, dict):
                raise ValueError("no object")
            return value
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            detail = f"{name} cannot be read ({error})"
            return {}

    status, meta = load("status.json"), load("meta.json")
    state = str(status.get("status") or "unreadable")
    if state == "unreadable":
        detail = detail or "status.json is missing"
    elif status.get("error"):
        detail = text(status["error"])
    elif state == "running" and "step" in status:
        detail = f"step {text(status['step'])} of {text(status.get('steps'))}"
    finished = total = None
    try:
        with (folder / "final.csv").open(encoding="utf-8", newline="") as f:
            rows = list(csv.DictReader(f))
        rules = [r.get("output") for r in rows]
        first = [r for r in rows if r.get("output") == rules[0]]
        finished, total = sum(r.get("status") == "done" for r in first), len(first)
        bad = sorted({str(r.get("status")) for r in first} - {"done"})
        if bad and not detail:
            detail = ", ".join(f"{sum(r.get('status') == s for r in first)} {s.replace('_', ' ')}" for s in bad)
    except FileNotFoundError:
        if state == "done":
            state, detail = "unreadable", "final.csv is missing"
    except (OSError, ValueError, csv.Error) as error:
        detail = f"final.csv cannot be read ({error})"
    parts = folder.name.rsplit("-", 2)
    problem, algorithm, digest = parts if len(parts) == 3 else (folder.name, "", "")
    seconds = meta.get("seconds_wall")
    seconds = float(seconds) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None
    date = moment(meta.get("date") or status.get("updated"))
    where = commit(meta) if meta else "–"
    used = users.get(folder.name, [])
    return Run(folder.name, problem, algorithm, digest, state, detail, finished, total, seconds, where, date, used)


def collect(root: Path, expected: Sequence[str] = ()) -> Site:
    """Read artifact and job folders under `root`; `expected` ids without a folder are listed as not drawn."""
    assets: dict[str, bytes] = {}
    folders = _folders(root / "artifacts")
    entries = [_entry(folder, id, assets) for id, folder in folders.items()]
    waiting = [_unbuilt(id) for id in sorted(set(expected) - set(folders))]
    ids = {e.paper for e in entries + waiting}
    papers = []
    for id in [p for p in PAPERS if p in ids] + sorted(ids - set(PAPERS)):
        short, title = PAPERS.get(id, (id, ""))
        mine, others = (
            sorted((e for e in group if e.paper == id), key=lambda e: _natural(e.name)) for group in (entries, waiting)
        )
        papers.append(Paper(id, short, title, mine, others))
    users: dict[str, list[Entry]] = {}
    for entry in (e for p in papers for e in p.entries):
        jobs = entry.origin.get("jobs")
        for key in dict.fromkeys(str(k) for k in jobs.values()) if isinstance(jobs, dict) else ():
            users.setdefault(key, []).append(entry)
    base = root / "runs"
    jobs = sorted(p for p in base.iterdir() if p.is_dir() and not p.name.startswith(".")) if base.is_dir() else []
    return Site(papers, [_run(p, users) for p in jobs], assets)


def declared() -> list[str]:
    """Ids of all artifacts that the configuration declares: conf/experiment/<paper>/<name>.yaml."""
    from mobench.schema import conf_dir

    try:
        base = conf_dir() / "experiment"
    except MobenchError:
        return []
    ids = (f"{p.parent.name}/{p.stem}" for p in base.glob("*/*.yaml"))
    return sorted(id for id in ids if not id.endswith("/all") and not id.split("/")[1].startswith("_"))


# the page

_GLUED = re.compile(r"[+−-]?\d[\d.]* ?± ?[\d.]+|[<>≤≥≈±] ?[+−-]?\d[\w.%°·+−-]{0,12}|[+−-]?\d[\d.]*[eE][+-]?\d+")


def glue(value: str) -> Markup:
    """Escaped text whose numbers do not break over lines: `< 1e-3`, `± 0.2`."""
    out, at = Markup(""), 0
    for match in _GLUED.finditer(value):
        out += Markup.escape(value[at : match.start()]) + Markup('<span class="nb">{}</span>').format(match[0])
        at = match.end()
    return out + Markup.escape(value[at:])


def _environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    env = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    env.filters |= {"text": text, "glue": glue, "duration": duration, "moment": moment}
    return env


def build(root: Path | None = None, expected: Sequence[str] = ()) -> Path:
    """Write report/index.html and report/assets/ under the outputs folder; return the page's path.

    `expected`: ids that the page lists as not drawn yet when they have no folder (see `declared`).
    """
    root = root or outputs_root()
    site = collect(root, expected)
    here = provenance.code()
    commits = sorted({e.commit for e in site.entries if e.origin})
    page = (
        _environment()
        .get_template("report.html")
        .render(
            site=site,
            verdicts=list(VERDICTS.values()),
            commit=commit(here),
            commits=commits,
            scales=sorted({e.scale for e in site.entries if e.scale != "–"}),
            built=time.strftime("%Y-%m-%d %H:%M %z"),
            keys={run.key for run in site.runs},
            statuses=sorted({run.status for run in site.runs}),
        )
    )
    target = root / "report"
    for name, data in site.assets.items():
        path = target / name
        if not path.is_file() or path.read_bytes() != data:
            write_atomic(path, data)
    write_atomic(target / "index.html", page.encode())
    for path in sorted((target / "assets").rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(target).as_posix() not in site.assets:
            path.unlink(missing_ok=True)
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return target / "index.html"


# Markdown


def _md(value: str) -> str:
    """Text of a Markdown table cell: one line, nothing interpreted."""
    value = " ".join(value.split())
    value = re.sub(r"([\\|*`~\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", value)
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(value: str) -> str:
    value = " ".join(value.split()).replace("|", "\\|")
    fence = "``" if "`" in value else "`"
    return f"{fence}{value}{fence}"


def _tally(counts: Iterable[tuple[Verdict, int]]) -> str:
    return ", ".join(f"{n} {v.name}" for v, n in counts if n) or "no claims"


def _mark(verdict: Verdict) -> str:
    return f"{verdict.symbol} {verdict.name}"


def results_summary_markdown(root: Path | None = None, expected: Sequence[str] = ()) -> str:
    """A line per artifact: id, verdict counts, command."""
    site = collect(root or outputs_root(), expected)
    return _summary(site)


def papers_markdown(root: Path | None = None, expected: Sequence[str] = ()) -> str:
    """A line per paper: artifacts, verdict counts, the command that draws them all."""
    site = collect(root or outputs_root(), expected)
    heads = [v.name for v in VERDICTS.values()]
    lines = [
        f"| paper | artifacts | {' | '.join(heads)} | command |",
        "| --- |" + " ---: |" * (len(heads) + 1) + " --- |",
    ]

    def line(name: str, drawn: int, known: int, counts: Iterable[tuple[Verdict, int]], command: str) -> str:
        cells = [str(n) if n else "–" for v, n in counts if v is not UNREADABLE]
        of = f"{drawn}" if drawn == known else f"{drawn} of {known}"
        return f"| {name} | {of} | {' | '.join(cells)} | {_code(command)} |"

    for paper in site.papers:
        drawn = sum(e.built for e in paper.entries)
        known = len(paper.entries) + len(paper.waiting)
        lines.append(line(_md(paper.short), drawn, known, paper.counts, f"mobench +experiment={paper.id}/all"))
    drawn, known = sum(e.built for e in site.entries), sum(len(p.entries) + len(p.waiting) for p in site.papers)
    lines.append(line("**all**", drawn, known, site.counts, "make reproduce"))
    return "\n".join(lines) + "\n"


def paper_markdown(id: str, root: Path | None = None, expected: Sequence[str] = ()) -> str:
    """A line per artifact of one paper: what it is, its verdicts, what it took to run and draw, its command."""
    site = collect(root or outputs_root(), expected)
    lines = ["| artifact | what | verdicts | took | command |", "| --- | --- | --- | --- | --- |"]
    for entry in (e for p in site.papers if p.id == id for e in [*p.entries, *p.waiting]):
        verdicts = " ".join(f"{v.symbol}&nbsp;{n}" for v, n in entry.counts if n) if entry.built else "not drawn yet"
        times = [entry.origin.get(key) for key in ("seconds_jobs", "seconds_drawing")]
        seconds = duration(sum(float(t) for t in times if t is not None)) if None not in times else "–"
        scale = "" if entry.scale in ("–", "laptop") else f" ({entry.scale})"
        cells = [_md(entry.name), _md(entry.title), verdicts or "–", seconds + scale, _code(entry.command)]
        lines.append(f"| {' | '.join(cells)} |")
    legend = ", ".join(f"{v.symbol} {v.name}" for v in VERDICTS.values())
    took = "*took*: wall time of its jobs one after the other, shared ones included, and of drawing; measured where it was drawn."
    return "\n".join([*lines, "", f"{legend}; {took}"]) + "\n"


def _summary(site: Site) -> str:
    if not site.papers:
        return "No artifact has been drawn yet.\n"
    heads = [v.name for v in VERDICTS.values()]
    lines = [
        f"| artifact | {' | '.join(heads)} | command |",
        "| --- |" + " ---: |" * len(heads) + " --- |",
    ]
    for paper in site.papers:
        for entry in [*paper.entries, *paper.waiting]:
            cells = [str(n) if n else "–" for v, n in entry.counts if v is not UNREADABLE]
            state = "" if entry.built else " (not drawn yet)"
            state = " (damaged: see the report)" if entry.problems else state
            lines.append(f"| {_md(entry.id)}{state} | {' | '.join(cells)} | {_code(entry.command)} |")
    total = [str(n) for v, n in site.counts if v is not UNREADABLE]
    lines.append(f"| **all** | {' | '.join(total)} | `make reproduce` |")
    return "\n".join(lines) + "\n"


def results_markdown(root: Path | None = None, expected: Sequence[str] = ()) -> str:
    """The results page of the documentation: every claim with its verdict, and why some fail. No date inside."""
    site = collect(root or outputs_root(), expected)
    lines = [
        "# Results",
        "",
        "Written by `make report` from `outputs/artifacts/`; do not edit. The same with figures, tables and "
        "provenance: `outputs/report/index.html`.",
        "",
        f"{sum(n for _, n in site.counts)} claims of {len(site.entries)} artifacts: {_tally(site.counts)}.",
        "",
        *[f"- **{_mark(v)}**: {v.meaning}." for v in VERDICTS.values()],
        "",
        "## All artifacts",
        "",
        _summary(site).rstrip(),
    ]
    for paper in site.papers:
        lines += ["", f"## {_md(paper.short)}", "", *([f"*{_md(paper.title)}*", ""] if paper.title else [])]
        scales = sorted({e.scale for e in paper.entries if e.scale != "–"})
        commits = sorted({e.commit for e in paper.entries if e.origin})
        origin = [f"scale {', '.join(scales)}"] if scales else []
        origin += [f"drawn from {', '.join(commits)}"] if commits else []
        lines += [_md("; ".join([_tally(paper.counts), *origin])) + ".", ""]
        lines += ["| artifact | claim | published | measured | verdict | command |", "|" + " --- |" * 6]
        for entry in paper.entries:
            for c in entry.claims:
                cells = [_md(x) for x in (entry.id, c.statement, c.published, c.measured, _mark(c.verdict))]
                lines.append(f"| {' | '.join(cells)} | {_code(entry.command)} |")
            if not entry.claims:
                why = "damaged, see below" if entry.problems else "no claims"
                lines.append(f"| {_md(entry.id)} | – | – | – | {why} | {_code(entry.command)} |")
        for entry in paper.waiting:
            lines.append(f"| {_md(entry.id)} | – | – | – | not drawn yet | {_code(entry.command)} |")
        failing = [(e, c) for e in paper.entries for c in e.claims if c.verdict.name in FAILING]
        if failing:
            lines += ["", "Why claims fail or hold in part:", ""]
            lines += [
                f"- {_md(e.id)}, {_md(c.id)} ({_mark(c.verdict)}): {_md(c.reason) or 'no reason is on record.'}"
                for e, c in failing
            ]
        damaged = [(e, p) for e in paper.entries for p in e.problems]
        if damaged:
            lines += ["", "What could not be read:", "", *[f"- {_md(e.id)}: {_md(p)}" for e, p in damaged]]
    return "\n".join(lines) + "\n"
