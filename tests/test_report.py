"""The report: what is shown, what is said about damaged folders, escaping, Markdown."""

import html
import json
import re
import shutil
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree

import pytest

from mobench.errors import MobenchError, StoreError
from mobench.report import build
from mobench.report.__main__ import MARKERS, main
from mobench.report.markdown import figures, rendered, result_pages
from mobench.report.model import count, mark
from mobench.report.reading import artifacts, collect
from mobench.report.tables import boards
from mobench.report.wall import wall
from mobench.report.words import number
from mobench.system.paths import KEPT

DATE = "2025-01-02T03:04:05+0000"
VOID = {"meta", "link", "img", "input", "br", "hr"}
EVIL = "<script>document.title = 'owned'</script> & \"quotes\" 'too'"
# mobench.jobs.job annotates with OmegaConf's own types, which beartype finds old-fashioned
DECLARED = pytest.mark.filterwarnings("ignore::beartype.roar.BeartypeDecorHintPep585DeprecationWarning")
VERDICTS = ("reproduced", "partial", "not reproduced", "inconclusive", "check passed", "check failed")


def png(width: int = 4, height: int = 3) -> bytes:
    """A white picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def claim(id: str, verdict: str, **fields: Any) -> dict[str, Any]:
    """A record of claims.json."""
    base = {"id": id, "statement": f"statement of {id}", "source": "Fig. 1", "published": "1.0 ± 0.1"}
    base |= {"measured": "1.05", "tolerance": "< 1e-3", "scale": "laptop", "verdict": verdict, "reason": ""}
    return base | fields


def artifact(
    root: Path, id: str, claims: Any, *, figure: bool = True, table: str | None = None, **origin: Any
) -> Path:
    """An artifact folder as mobench/artifacts writes it."""
    folder = root / "artifacts" / id
    folder.mkdir(parents=True)
    base: dict[str, Any] = {"id": id, "title": f"Title of {id}", "scale": "laptop", "jobs": {}, "runs": {}}
    base |= {
        "command": f"mobench +experiment={id}",
        "seconds_jobs": 75.0,
        "seconds_drawing": 0.5,
        "notes": [],
    }
    base |= {"git_sha": "a" * 40, "git_dirty": True, "versions": {"torch": "2.10"}, "device": "CPU Z"}
    base |= {"date": DATE, **origin}
    (folder / "provenance.json").write_text(json.dumps(base))
    (folder / "claims.json").write_text(claims if isinstance(claims, str) else json.dumps(claims))
    if figure:
        (folder / "figure.png").write_bytes(png())
        (folder / "figure.pdf").write_bytes(b"%PDF-1.4")
    if table is not None:
        (folder / "table.csv").write_text(table)
    return folder


def job(
    root: Path,
    key: str,
    status: str,
    done: int = 0,
    seconds: float = 1.0,
    meta: dict[str, Any] | None = None,
    **fields: Any,
) -> Path:
    """A job folder's head."""
    folder = root / "runs" / key
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"status": status, **fields}))
    if done:
        base = {"seconds_wall": seconds, "git_sha": "b" * 40, "git_dirty": False, "date": DATE}
        base |= {"device": "CPU Z"}
        (folder / "meta.json").write_text(json.dumps(base | (meta or {})))
        (folder / "final.csv").write_text("run,status\n" + "0,done\n" * done)
    return folder


DIGITS = {"data": "digits, enlarged", "data_sha256": "d" * 64, "embedded": True}
RIVER = {"data": "generated flows", "data_sha256": "e" * 64, "embedded": True}
FILES = {"data": "MNIST", "data_sha256": "f" * 64, "embedded": False}


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Good, unfinished and corrupt artifacts of three papers, and jobs."""
    root = tmp_path / "outputs"
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(root))
    job(root, "vlmop2-epo-aaaaaaaaaa", "done", 20, 12.5)
    job(root, "vlmop2-pmtl-bbbbbbbbbb", "done", 20, 3.5)
    job(root, "multimnist-ls-0000000001", "done", 1, 60.0, DIGITS)
    job(root, "multimnist-ls-0000000002", "done", 1, 30.0, {**DIGITS, "device": "NVIDIA H100"})
    job(root, "riverflow-ls-0000000003", "done", 1, 1.0, RIVER)
    job(root, "multimnist-ls-0000000004", "done", 1, 2.0, FILES)
    job(root, "zdt1-omd_tch-cccccccccc", "failed", error="the solver <gave up>")
    job(root, "zdt2-ls-dddddddddd", "running", step=3, steps=10)
    claims = [
        claim(f"c{i}", v, reason="because of the step size" if i else "") for i, v in enumerate(VERDICTS)
    ]
    jobs = {"epo": "vlmop2-epo-aaaaaaaaaa", "pmtl": "vlmop2-pmtl-bbbbbbbbbb", "gone": "vlmop2-ls-eeeeeeeeee"}
    runs = {"epo": "20 of 20", "gone": "17 of 20"}
    artifact(root, "ferero/fig10", claims, jobs=jobs, runs=runs, notes=["starts differ"])
    evil = claim("evil", "reproduced", statement=EVIL, measured="a | b")
    artifact(
        root,
        "ferero/fig2",
        [evil],
        table=f"method,ours,published\n{EVIL.replace(chr(34), '')},0.123456,0.5\nLS,,1\n",
    )
    samples = {"a": "multimnist-ls-0000000001", "b": "multimnist-ls-0000000002"}
    artifact(root, "ferero/pictures", [claim("seen", "reproduced")], jobs=samples, depicts="data")
    artifact(root, "omd_tch/table1", '[{"id": "x", ', figure=False)
    lost = artifact(root, "omd_tch/fig1", [claim("ok", "reproduced")], figure=False)
    (lost / "figure.pdf").write_bytes(b"%PDF-1.4")
    (root / "artifacts" / "newpaper" / "fig1").mkdir(parents=True)
    return root


class Page(HTMLParser):
    """Balanced tags, addresses and text of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.scripts = 0
        self.choices: dict[str, set[str]] = {}  # of the filter, by name
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in VOID:
            self.stack.append(tag)
        if tag == "a":
            self.links.append(str(values["href"]))
        elif tag == "img":
            self.images.append(values)
        elif tag in ("input", "select") and values.get("name"):
            self.control = str(values["name"])
            self.choices.setdefault(self.control, set()).add(str(values.get("value") or ""))
        elif tag == "option":
            self.choices[self.control].add(str(values["value"]))
        self.scripts += tag == "script"
        self.loads += [str(v).removesuffix(" 2x") for k, v in attrs if k in ("src", "srcset")]
        self.loads += [str(v) for k, v in attrs if k == "href" and tag != "a"]
        self.ids += [str(values["id"])] if "id" in values else []

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def opened(root: Path, page: str) -> Page:
    """A page of the report under `root`."""
    return Page((root / "report" / page).read_text())


def every(root: Path) -> dict[str, Page]:
    """All pages of the report under `root`."""
    report = root / "report"
    return {str(p.relative_to(report)): Page(p.read_text()) for p in sorted(report.rglob("*.html"))}


def test_pages_are_sound_and_self_contained(outputs: Path) -> None:
    path = build()
    assert path == outputs / "report" / "index.html"
    pages = every(outputs)
    kinds = {name.split("/")[0] for name in pages}
    assert kinds == {"index.html", "boards.html", "claims.html", "data.html", "artifacts"}
    for name, page in pages.items():
        source = (path.parent / name).read_text()
        assert len(page.ids) == len(set(page.ids)), name
        assert page.scripts == 1, name
        assert not re.search(r"@import|url\(|https?://", source), name
        assert "<script>document.title" not in source, name
        assert all(i["alt"] for i in page.images), name
    assert html.unescape(EVIL) in pages["artifacts/ferero/fig2.html"].text
    assert html.unescape(EVIL) in pages["claims.html"].text
    for asset in ("style.css", "script.js"):
        assert not re.search(r"@import|url\(|https?://", (path.parent / "assets" / asset).read_text())


def followed(root: Path) -> set[str]:
    """Follows every link of every page: a fragment is an id, or a filter by choices of the page that it
    leads to. Returns what is filtered by.
    """
    report = root / "report"
    seen = set()
    pages = every(root)
    for name, page in pages.items():
        for address in page.loads + page.links:
            if address == "data:,":
                continue
            parts = urlsplit(address)
            assert not parts.scheme, f"{name}: {address}"
            assert not parts.netloc, f"{name}: {address}"
            target = (report / name).parent / unquote(parts.path) if parts.path else report / name
            assert target.is_file(), f"{name}: {address}"
            if parts.fragment and "=" in parts.fragment:
                for key, value in parse_qsl(parts.fragment, strict_parsing=True):
                    assert value in pages[str(target.resolve().relative_to(report.resolve()))].choices[key], (
                        f"{name}: {address}"
                    )
                    seen.add(key)
            elif parts.fragment:
                assert parts.fragment in pages[str(target.resolve().relative_to(report.resolve()))].ids, (
                    f"{name}: {address}"
                )
    return seen


def test_every_link_leads_somewhere(outputs: Path) -> None:
    jobs = {"a b/c": "multimnist-ls-0000000001"}
    artifact(outputs, "my paper/fig 1?", [claim("seen", "partial")], table="a\n1\n", jobs=jobs)
    build()
    assert followed(outputs) == {"verdict", "paper", "rows"}


def test_pages_name_what_made_an_artifact(outputs: Path) -> None:
    """In the order of the papers; each with its command, its code, its machine, its jobs and its notes."""
    build()
    index = opened(outputs, "index.html")
    titles = ("Title of ferero/fig2", "Title of ferero/fig10", "Title of omd_tch/fig1")
    places = [index.text.index(title) for title in titles]
    assert places == sorted(places)
    page = opened(outputs, "artifacts/ferero/fig10.html")
    for said in (
        "mobench +experiment=ferero/fig10",
        "a" * 40 + " with uncommitted changes",
        "torch 2.10",
        DATE,
        "17 of 20",
        "(folder missing)",
        "starts differ",
        "because of the step size",
        "outputs/runs/vlmop2-epo-aaaaaaaaaa 20 of 20 12.50 CPU Z bbbbbbbbbb",
        "16 s for 2 jobs on CPU Z",
    ):
        assert said in page.text, said


@pytest.mark.parametrize(
    ("file", "data", "said"),
    [
        ("claims.json", b"{}", "claims.json contains dict, but expected a list of claims"),
        ("claims.json", b"\xff\xfe", "claims.json could not be loaded"),
        (
            "claims.json",
            b'[{"id": "a", "verdict": "reproduced"}, 3]',
            "claim 1 lacks statement, published, measured",
        ),
        ("provenance.json", b"[]", "provenance.json contains list"),
        ("figure.png", b"GIF89a", "figure.png could not be shown: it is not a PNG file"),
        ("figure.png", png()[:-9], "figure.png could not be shown: it is not a PNG file"),
        ("figure.png", png()[:45] + b"0" + png()[46:], "figure.png could not be shown: broken PNG file"),
        ("claims.json", b'[{"id": "a", "gauges": 5, "jobs": 3}]', "claim 1 lacks statement"),
        ("table.csv", b"a,b\n1\n", "row 1 has 1 cells, but the header has 2"),
        ("table.csv", b'a\n"x', "table.csv could not be shown"),
    ],
)
def test_every_kind_of_damage(tmp_path: Path, file: str, data: bytes, said: str) -> None:
    folder = artifact(tmp_path, "ferero/fig1", [claim("ok", "reproduced")], table="a,b\n1,2\n")
    (folder / file).write_bytes(data)
    index = Page(build(tmp_path).read_text())
    assert said in index.text
    assert said in opened(tmp_path, "artifacts/ferero/fig1.html").text
    assert "1 artifact is damaged" in index.text
    page = result_pages(artifacts(tmp_path))["ferero"]
    assert said.split(":")[0].replace("_", "") in page.replace("\\", "").replace("_", "")


@pytest.mark.parametrize(
    ("gone", "beside", "said"),
    [
        ("figure.png", "figure.pdf", "figure.png is missing, although figure.pdf exists"),
        ("table.csv", "table.md", "table.csv is missing, although table.md exists"),
        ("figure.png", "", "There is neither a figure nor a table"),
    ],
)
def test_what_was_drawn_and_is_gone_is_said(tmp_path: Path, gone: str, beside: str, said: str) -> None:
    table = "a,b\n1,2\n" if beside == "table.md" else ""
    folder = artifact(tmp_path, "ferero/fig1", [claim("ok", "reproduced")], table=table)
    (folder / gone).unlink()
    if beside:
        (folder / beside).write_bytes(b"1")
    else:
        for path in [*folder.glob("figure.*"), *folder.glob("table.*")]:
            path.unlink()
    assert said in Page(build(tmp_path).read_text()).text


def test_unknown_verdict_is_never_counted_as_a_known_one(tmp_path: Path) -> None:
    artifact(tmp_path, "ferero/fig1", [claim("a", "reproduced"), claim("b", "excellent")])
    site = collect(tmp_path)
    expected = dict.fromkeys((*VERDICTS, "check undecided"), 0) | {"reproduced": 1, "unreadable": 1}
    assert {v.name: n for v, n in count(site.all.entries)} == expected
    assert "unknown verdict 'excellent'" in Page(build(tmp_path).read_text()).text


def test_counts_lead_to_their_claims(outputs: Path) -> None:
    source = build().read_text()
    counts = re.findall(r'href="claims.html#([^"]+)" title="(\d+) ', source)
    assert ("verdict=yes&amp;paper=ferero&amp;rows=reproduced", "3") in counts
    assert ("verdict=no&amp;paper=ferero&amp;rows=reproduced", "1") in counts
    assert ("verdict=yes&amp;rows=reproduced", "4") in counts
    assert (outputs / "report" / "claims.html").read_text().count('<tr class="claim"') == 9


def test_the_same_inputs_give_the_same_bytes_and_nothing_is_written_again(outputs: Path) -> None:
    def files() -> dict[str, tuple[bytes, int]]:
        return {
            str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in build().parent.rglob("*") if p.is_file()
        }

    first = files()
    before = result_pages(artifacts(outputs))
    again = files()
    assert first == again  # times, too
    assert before == result_pages(artifacts(outputs))
    # elsewhere and from nothing, the same
    shutil.rmtree(outputs / "report")
    assert {name: data for name, (data, _) in files().items()} == {n: d for n, (d, _) in first.items()}


def test_files_and_pages_follow_the_artifacts(outputs: Path) -> None:
    report = build().parent
    assets = report / "assets"
    assert (assets / "ferero/fig2/figure.png").read_bytes() == png()
    assert (assets / "ferero/fig2/table.csv").exists()
    shutil.rmtree(outputs / "artifacts" / "ferero" / "fig2")
    (outputs / "artifacts" / "ferero" / "fig10" / "figure.png").write_bytes(png(8, 8))
    (report / "mine.txt").write_text("of a reader")
    build()
    assert not (assets / "ferero/fig2").exists()
    assert not (report / "artifacts" / "ferero" / "fig2.html").exists()
    assert (assets / "ferero/fig10/figure.png").read_bytes() == png(8, 8)
    assert (report / "mine.txt").exists()
    shutil.rmtree(outputs / "artifacts")
    build()
    assert not list((report / "artifacts").rglob("*"))


def test_nothing_there_yet(tmp_path: Path) -> None:
    assert "No artifact has been drawn yet" in Page(build(tmp_path).read_text()).text
    assert "There are no claims yet" in opened(tmp_path, "claims.html").text
    assert "No job uses a data set" in opened(tmp_path, "data.html").text
    assert "No artifact" in result_pages(artifacts(tmp_path))[""]


def test_declared_artifacts_without_a_folder_are_listed(outputs: Path) -> None:
    expected = ["ferero/fig2", "ferero/table7", "mobl/theory"]
    page = Page(build(outputs, expected).read_text())
    assert "mobench +experiment=ferero/table7" in page.text
    assert "6 artifacts, 2 not drawn yet" in page.text
    assert "mobench +experiment=mobl/theory" in page.text


def test_jobs(outputs: Path) -> None:
    (outputs / "runs" / "odd").mkdir()
    (outputs / "runs" / "zdt3-ls-ffffffffff").mkdir()
    (outputs / "runs" / "zdt3-ls-ffffffffff" / "status.json").write_text('{"status": "done"}')
    jobs = {j.key: j for j in collect(outputs).jobs}
    epo = jobs["vlmop2-epo-aaaaaaaaaa"]
    assert (epo.problem, epo.seconds, epo.commit) == ("vlmop2", 12.5, "b" * 10)
    assert (jobs["odd"].status, jobs["odd"].detail) == ("missing", "")
    lost = jobs["zdt3-ls-ffffffffff"]
    assert lost.status == "failed"
    assert "final.csv is missing" in lost.detail


def test_data_sets_and_kept_rows(outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One section for each label, whatever its version; rows of the project where they were not run here."""
    monkeypatch.setattr("mobench.report.reading.results_root", lambda: tmp_path / "kept")
    for key in ("vlmop2-ls-eeeeeeeeee", "vlmop2-epo-aaaaaaaaaa", "vlmop2-ls-9999999999"):
        job(tmp_path / "kept", key, "done", 1, 7.0)
    job(outputs, "multimnist-epo-0000000005", "done", 1, 2.0, {**DIGITS, "data_sha256": "9" * 64})
    site = collect(outputs)
    assert {d.label: (d.kind, len(d.jobs), len(d.versions)) for d in site.data} == {
        "MNIST": ("official files", 1, 1),
        "digits, enlarged": ("embedded", 3, 2),
        "generated flows": ("generated", 1, 1),
    }
    assert {j.key: j.kept for j in site.jobs if j.problem == "vlmop2"} == {
        "vlmop2-epo-aaaaaaaaaa": False,
        "vlmop2-ls-eeeeeeeeee": True,
        "vlmop2-pmtl-bbbbbbbbbb": False,
    }
    build()
    page = opened(outputs, "artifacts/ferero/fig10.html").text
    assert "(folder missing)" not in page
    assert "experiments/results/runs/vlmop2-ls-eeeeeeeeee" in page


def test_result_pages(outputs: Path, tmp_path: Path) -> None:
    """A section for each artifact: verdict first, then what was printed and measured, and the causes."""
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings/ferero_fig10.png").write_bytes(png())
    pages = result_pages(artifacts(outputs), tmp_path)
    page = pages["ferero"]
    section = page.partition("## Figure 10")[2].partition("\n## ")[0]
    assert "(../images/findings/ferero_fig10.png)" in section
    assert (
        '| <a id="fig10-c2"></a>✗&nbsp;not&nbsp;reproduced | statement of c2 (Fig. 1; `c2`) '
        "| 1.0 ± 0.1 | 1.05 | &lt; 1e-3 |" in section
    )
    assert "- ◐ `c1`, ✗ `c2`, ○ `c3`, • `c4`, ! `c5`: because of the step size" in section
    assert "Run it: `mobench +experiment=ferero/fig10`." in section
    assert "<details>" not in section  # nothing is left out, and no other rows were judged
    assert "<script>" not in page
    assert "a \\| b" in page
    assert "A file could not be loaded: claims.json could not be loaded" in pages["omd_tch"]
    for line in "\n".join(pages.values()).splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 5, 6), line  # 3: tolerances
    for link, where in re.findall(r"\(results/(\w+)\.md#([\w-]+)\)", pages[""]):
        headings = re.findall(r"^## (.*)$", pages[link], re.M)
        assert where in [h.lower().replace(",", "").replace(" ", "-") for h in headings]


def test_what_other_rows_say_is_folded(tmp_path: Path) -> None:
    """The verdict that decides stands in the table, with as many numbers as it has room for."""
    long = f"first = 1.25; second = {'x' * 200}"
    artifact(tmp_path, "ferero/fig2", [claim("a", "inconclusive", measured="2.5", reason="too small")])
    stored = [claim("a", "reproduced", scale="paper", measured=long)]
    artifact(tmp_path / KEPT, "ferero/fig2", stored, scale="paper")
    page = result_pages(artifacts(tmp_path))["ferero"]
    visible, _, folded = page.partition("<details>")
    assert "✓&nbsp;reproduced | statement of a (Fig. 1; `a`) | 1.0 ± 0.1 | first = 1.25 … |" in visible
    assert "○" not in visible.partition("## Figure 2")[2]
    assert f"- `a`: {long}" in folded
    assert "| ○&nbsp;inconclusive | `a` | 2.5 |" in folded
    assert "- ○ `a`: too small" in folded


def test_table_of_papers(outputs: Path) -> None:
    checks = [claim("a", "check passed"), claim("b", "check failed"), claim("c", "check passed")]
    artifact(outputs / KEPT, "ferero/fig2", [claim("c1", "partial"), *checks], scale="paper")
    lines = rendered("papers_table.md", site=artifacts(outputs, ["ferero/never_drawn"])).splitlines()
    assert "each claim once | `make reproduce` (laptop scale) | kept rows (paper scale)" in lines[0]
    all_four = "✓&nbsp;3 ◐&nbsp;1 ✗&nbsp;1 ○&nbsp;1"
    once = "✓&nbsp;3 ◐&nbsp;2 ✗&nbsp;1 ○&nbsp;1"
    assert (
        lines[2]
        == f"| [FERERO](docs/results/ferero.md) | 3 of 4 | {once} | {all_four} | ◐&nbsp;1 | 3 passed, "
        "2 failed | `mobench +experiment=ferero/all` |"
    )
    total = next(line for line in lines if line.startswith("| **all** | "))
    once = "✓&nbsp;4 ◐&nbsp;2 ✗&nbsp;1 ○&nbsp;1"
    counts = f"{once} | ✓&nbsp;4 ◐&nbsp;1 ✗&nbsp;1 ○&nbsp;1 | ◐&nbsp;1"
    assert total.endswith(f" | {counts} | 3 passed, 2 failed | `make reproduce` |")


def test_a_check_without_a_verdict_is_no_claim(tmp_path: Path) -> None:
    """Each check is counted once, by the rows that decide it, and never as an inconclusive claim."""
    ours = {"source": "ours"}
    artifact(tmp_path, "ferero/fig2", [claim("a", "inconclusive"), claim("b", "inconclusive", **ours)])
    artifact(
        tmp_path, "ferero/fig3", [claim("c", "inconclusive", **ours), claim("d", "check failed", **ours)]
    )
    artifact(
        tmp_path / KEPT, "ferero/fig2", [claim("b", "check passed", scale="paper", **ours)], scale="paper"
    )
    site = collect(tmp_path)
    assert [e.claim.id for e in site.all.best] == ["a"]
    marks = {e.claim.id: mark(e.claim).name for e in site.all.checks}
    assert marks == {"b": "check passed", "c": "check undecided", "d": "check failed"}
    assert "| 1 passed, 1 failed, 1 undecided |" in rendered("papers_table.md", site=artifacts(tmp_path))


def test_each_claim_is_counted_once_by_the_best_rows(tmp_path: Path) -> None:
    """A record that decides comes before one that does not, then the larger scale; checks are no claims."""
    claims = [claim("a", "reproduced"), claim("b", "inconclusive"), claim("c", "reproduced")]
    artifact(tmp_path, "ferero/fig2", [*claims, claim("d", "not reproduced"), claim("e", "check passed")])
    large = [("a", "not reproduced"), ("b", "partial"), ("c", "inconclusive"), ("f", "reproduced")]
    stored = [claim(id, verdict, scale="paper") for id, verdict in large]
    artifact(tmp_path / KEPT, "ferero/fig2", stored, scale="paper")
    site = collect(tmp_path)
    judged = {e.claim.id: (e.claim.verdict, e.entry.kept) for e in site.all.best}
    assert judged == {
        "a": ("not reproduced", True),
        "b": ("partial", True),
        "c": ("reproduced", False),
        "d": ("not reproduced", False),
        "f": ("reproduced", True),
    }
    index = build(tmp_path).read_text()
    tiles = re.findall(r'<a href="([^"]*)"><title>ferero/fig2, (\w): ([a-z ]+)\. ', index)
    assert {id: said for _, id, said in tiles} == {id: said for id, (said, _) in judged.items()}
    assert {id: address for address, id, _ in tiles}["b"] == "kept/ferero/fig2.html#claim-2"
    assert 'id="claim-2"' in (tmp_path / "report/kept/ferero/fig2.html").read_text()
    alone = ElementTree.fromstring(wall(site))
    assert alone.attrib["aria-label"].startswith("5 claims, one tile each: 2 reproduced, 1 partial, 2 not")
    assert not re.search(r"(?:href|src)=", wall(site))


SCORES = """board,problem,method,place,score,low,high,p (Holm),feasible,reached,note
constrained,all,sure,1.0,0.8,0.7,0.9,,1.0,0.5,baseline; 2 problems
constrained,all,bold,2.0,0.9,0.8,0.95,0.25,0.5,0.25,
constrained,ball,sure,,0.7,0.6,0.8,,1.0,0.5,
constrained,ball,bold,,0.9,0.8,0.95,,0.5,0.25,
constrained,hole,sure,,0.9,0.8,0.95,,1.0,0.5,not ranked
constrained,ball,lost,,,,,,,,does not fit: it needs objectives >= 0
"""


def test_a_board_of_the_comparison_keeps_its_order(tmp_path: Path) -> None:
    """Scores, intervals and places are those of the table; methods without a place say why."""
    artifact(tmp_path, "cross/zoo", [claim("a", "check passed")], table=SCORES)
    (board,) = boards(collect(tmp_path))
    assert [(line["method"], line["place"]) for line in board.lines] == [("sure", "1.0"), ("bold", "2.0")]
    assert (board.scores["sure", "ball"], board.scores["sure", "hole"]) == (0.7, 0.9)
    assert (board.problems, board.beside) == (["ball"], ["hole"])
    assert board.absent == {"lost": "does not fit: it needs objectives >= 0"}
    page = Page((build(tmp_path).parent / "boards.html").read_text())
    assert (
        "ball Largest score: sure; the intervals of 1 of the other 1 methods overlap its own. From cross/zoo"
        in page.text
    )
    assert "0.900 [0.800, 0.950]" in page.text


def test_a_papers_page_shows_the_figures_of_the_largest_scale(tmp_path: Path) -> None:
    def pictures(*names: str) -> tuple[str, dict[str, bytes]]:
        (paper,) = collect(tmp_path).papers
        return figures(replace(paper, pictures=names))

    artifact(tmp_path, "ferero/fig2", [claim("a", "reproduced")])
    artifact(tmp_path, "ferero/fig3", [claim("b", "reproduced")], title="Own | title")
    artifact(tmp_path / KEPT, "ferero/fig2", [claim("a", "reproduced", scale="paper")], scale="paper")
    text, images = pictures("fig2", "fig3")
    assert list(images) == ["ferero_fig2.png", "ferero_fig3.png"]
    assert all(data.startswith(b"\x89PNG") for data in images.values())
    assert "![Title of ferero/fig2](../images/papers/ferero_fig2.png)" in text
    assert "*Title of ferero/fig2*, paper scale: `mobench +experiment=ferero/fig2`" in text
    assert r"*Own \| title*, laptop scale" in text
    with pytest.raises(MobenchError, match=r"ferero/fig22 has no figure.*fig2"):
        pictures("fig22")


def test_kept_drawings_stand_beside_those_of_make_reproduce(outputs: Path) -> None:
    """Two pages of one artifact, two columns of counts; a claim that is judged elsewhere is a link there."""
    references = {"ferero/fig10": ["c1", "c2"], "ferero/gone": ["x"]}
    artifact(outputs / KEPT, "ferero/fig2", [claim("kept", "partial")], scale="paper", references=references)
    index = build()
    site = collect(outputs)
    assert [n for _, n in count(site.all.entries)] == [4, 1, 1, 1, 1, 1, 0]
    assert [n for _, n in count(site.all.kept)] == [0, 1, 0, 0, 0, 0, 0]
    page = Page((index.parent / "kept/ferero/fig2.html").read_text())
    other = Page((index.parent / "artifacts/ferero/fig2.html").read_text())
    assert {"../../artifacts/ferero/fig10.html", "../../artifacts/ferero/fig2.html"} <= set(page.links)
    assert "ferero/gone: x" in page.text
    assert "../../kept/ferero/fig2.html" in other.links
    section = result_pages(artifacts(outputs))["ferero"].partition("## Figure 2")[2].partition("\n## ")[0]
    assert "**1 reproduced, 1 partial** (laptop scale and laptop scale, kept rows)." in section
    assert "Also shown here, and judged in `ferero/fig10`: c1, c2." in section
    assert "| paper, kept rows | ◐&nbsp;1 |" in rendered("artifacts_table.md", paper=site.papers[0])


@DECLARED
def test_command(outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", str(tmp_path / "docs" / "results.md")]) == 0
    assert (outputs / "report" / "index.html").exists()
    assert "# Results" in (tmp_path / "docs" / "results.md").read_text()
    assert "index.html" in capsys.readouterr().out


@DECLARED
def test_a_page_is_not_overwritten_by_less(
    outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "results.md"
    readme = tmp_path / "README.md"
    page.write_text("all results")
    readme.write_text(f"{MARKERS[0]}\nall results\n{MARKERS[1]}\n")
    monkeypatch.setattr(
        "mobench.report.__main__.choices", lambda group: ["ferero/fig3", "ferero/never_drawn"]
    )
    for option, path in (("--results", page), ("--readme", readme)):
        assert main([option, str(path)]) == 1
        assert "missing: " in capsys.readouterr().err
        assert "all results" in path.read_text()


@DECLARED
def test_unwritable_folder_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report").write_text("a file where a folder belongs")
    with pytest.raises(StoreError):
        build(tmp_path)
    assert main(["--outputs", str(tmp_path)]) == 1
    assert "Cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("0.123456", "0.1235"),
        ("12.0", "12"),
        ("-3", "−3"),
        ("1234.56", "1234.6"),
        ("1.5e-7", "1.5·10⁻⁷"),
        ("-2e9", "−2·10⁹"),
        ("1e999", "∞"),
    ],
)
def test_numbers(raw: str, text: str) -> None:
    assert number(raw) == text


def test_long_tables_are_cut_and_say_so(tmp_path: Path) -> None:
    artifact(tmp_path, "ferero/table1", [claim("a", "reproduced")], table="x\n" + "1.5\n" * 1000)
    build(tmp_path)
    assert "The first 400 of 1000 rows" in opened(tmp_path, "artifacts/ferero/table1.html").text
