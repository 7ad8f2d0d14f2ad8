"""The report: what is shown, what is said about damaged folders, escaping, Markdown, and the page in a browser."""

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mobench.errors import MobenchError, StoreError
from mobench.report import build, results_markdown, results_summary_markdown
from mobench.report.__main__ import MARKERS, main, renew
from mobench.report.build import Entry, collect, duration, glue, moment, number, papers_markdown, sheet, text

VOID = {"meta", "link", "img", "input", "br", "hr"}
EVIL = "<script>document.title = 'owned'</script> & \"quotes\" 'too'"
# mobench.config annotates with OmegaConf's own types, which beartype finds old-fashioned
DECLARED = pytest.mark.filterwarnings("ignore::beartype.roar.BeartypeDecorHintPep585DeprecationWarning")
VERDICTS = ("reproduced", "partial", "not reproduced", "not tested at this scale")


def png(width: int = 4, height: int = 3) -> bytes:
    """A white picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def claim(id: str, verdict: str, **fields: str) -> dict[str, str]:
    """A record of claims.json."""
    base = {
        "id": id,
        "statement": f"statement of {id}",
        "source": "Fig. 1",
        "published": "1.0 ± 0.1",
        "measured": "1.05",
    }
    return {**base, "tolerance": "< 1e-3", "scale": "laptop", "verdict": verdict, "reason": "", **fields}


def artifact(root: Path, id: str, claims: Any, *, figure: bool = True, table: str | None = None, **origin: Any) -> Path:
    """An artifact folder as mobench/artifacts writes it."""
    folder = root / "artifacts" / id
    folder.mkdir(parents=True)
    base = {"id": id, "title": f"Title of {id}", "scale": "laptop", "command": f"mobench +experiment={id}", "jobs": {}}
    base |= {
        "runs": {},
        "seconds_jobs": 75.0,
        "seconds_drawing": 0.5,
        "notes": [],
        "git_sha": "a" * 40,
        "git_dirty": True,
    }
    base |= {"versions": {"torch": "2.10"}, "device": "CPU Z", "date": "2025-01-02T03:04:05+0000", **origin}
    (folder / "provenance.json").write_text(json.dumps(base))
    (folder / "claims.json").write_text(claims if isinstance(claims, str) else json.dumps(claims))
    if figure:
        (folder / "figure.png").write_bytes(png())
        (folder / "figure.pdf").write_bytes(b"%PDF-1.4")
    if table is not None:
        (folder / "table.csv").write_text(table)
    return folder


def job(root: Path, key: str, status: str, done: int = 0, total: int = 0, seconds: float = 1.0, **fields: Any) -> None:
    """A job folder's head."""
    folder = root / "runs" / key
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"status": status, **fields}))
    if total:
        meta = {"seconds_wall": seconds, "git_sha": "b" * 40, "git_dirty": False, "date": "2025-01-02T03:04:05+0000"}
        (folder / "meta.json").write_text(json.dumps(meta))
        states = ["done"] * done + ["diverged"] * (total - done)
        # two output rules: runs are counted once
        rows = [f"{i},{rule},{s}" for rule in ("last", "mean") for i, s in enumerate(states)]
        (folder / "final.csv").write_text("\n".join(["run,output,status", *rows]) + "\n")


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Good, unfinished and corrupt artifacts of three papers, and jobs."""
    root = tmp_path / "outputs"
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(root))
    job(root, "vlmop2-epo-aaaaaaaaaa", "done", 20, 20, 12.5)
    job(root, "vlmop2-pmtl-bbbbbbbbbb", "done", 17, 20, 3.5)
    job(root, "zdt1-omd_tch-cccccccccc", "failed", error="the solver <gave up>")
    job(root, "zdt2-ls-dddddddddd", "running", step=3, steps=10)
    claims = [claim(f"c{i}", v, reason="because of the step size" if i else "") for i, v in enumerate(VERDICTS)]
    jobs = {"epo": "vlmop2-epo-aaaaaaaaaa", "gone": "vlmop2-ls-eeeeeeeeee"}
    runs = {"epo": "20 of 20", "gone": "17 of 20"}
    artifact(root, "ferero/fig10", claims, jobs=jobs, runs=runs, notes=["starts differ"])
    evil = claim("evil", "reproduced", statement=EVIL, measured="a | b")
    artifact(
        root, "ferero/fig2", [evil], table=f"method,ours,published\n{EVIL.replace(chr(34), '')},0.123456,0.5\nLS,,1\n"
    )
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
        self.scripts += tag == "script"
        self.loads += [str(v) for k, v in attrs if k in ("src", "srcset") or (k == "href" and tag != "a")]
        self.ids += [str(values["id"])] if "id" in values else []

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_page_is_sound_and_self_contained(outputs: Path) -> None:
    path = build()
    assert path == outputs / "report" / "index.html"
    source = path.read_text()
    page = Page(source)
    assert len(page.ids) == len(set(page.ids))
    assert page.scripts == 2
    for address in page.loads + [a for a in page.links if not a.startswith("#")]:
        assert address == "data:," or (path.parent / address).is_file(), address
    assert {a[1:] for a in page.links if a.startswith("#")} <= set(page.ids)
    assert not re.search(r"@import|url\(|https?://", source)
    assert all(i["alt"] and i["width"] == "4" and i["height"] == "3" for i in page.images)
    assert "<script>document.title" not in source
    assert html.unescape(EVIL) in page.text


def test_order_labels_and_provenance(outputs: Path) -> None:
    page = Page(build().read_text())
    places = [page.text.index(t) for t in ("Title of ferero/fig2", "Title of ferero/fig10", "Title of omd_tch/fig1")]
    assert places == sorted(places)
    for said in (
        "Figure 10",
        "Flexible Framework",
        "newpaper",
        "mobench +experiment=ferero/fig10",
        "a" * 40 + " with uncommitted changes",
        "torch 2.10",
        "CPU Z",
        "2025-01-02 03:04 +0000",
        "1 min 15 s",
        "20 of 20 runs",
        "17 of 20 runs",
        "(folder not here)",
        "starts differ",
        "because of the step size",
        "the solver <gave up>",
        "step 3 of 10",
        "3 diverged",
    ):
        assert said in page.text, said


def test_damaged_folders_are_shown_with_the_reason(outputs: Path) -> None:
    page = Page(build().read_text())
    assert "claims.json cannot be read" in page.text
    assert "figure.png is missing, figure.pdf is there" in page.text
    assert "claims.json is missing: the artifact was never drawn to its end" in page.text
    assert "3 artifacts are damaged or incomplete: omd_tch/fig1 , omd_tch/table1 , newpaper/fig1" in page.text


@pytest.mark.parametrize(
    ("file", "data", "said"),
    [
        ("claims.json", b"{}", "claims.json holds dict, expected a list of claims"),
        ("claims.json", b"\xff\xfe", "claims.json cannot be read"),
        ("claims.json", b'[{"id": "a", "verdict": "reproduced"}, 3]', "claim 1 lacks statement, published, measured"),
        ("claims.json", b"[3]", "claim 1 is no object"),
        ("provenance.json", b"[]", "provenance.json holds list"),
        ("figure.png", b"GIF89a", "figure.png cannot be shown: it is no PNG"),
        ("figure.png", png()[:-14], "figure.png cannot be shown: it is cut off"),
        ("table.csv", b"a,b\n1\n", "row 1 has 1 cells, its head 2"),
        ("table.csv", b"", "table.csv cannot be shown: it is empty"),
        ("table.csv", b'a\n"x', "table.csv cannot be shown"),
    ],
)
def test_every_kind_of_damage(tmp_path: Path, file: str, data: bytes, said: str) -> None:
    folder = artifact(tmp_path, "ferero/fig1", [claim("ok", "reproduced")], table="a,b\n1,2\n")
    (folder / file).write_bytes(data)
    page = Page(build(tmp_path).read_text())
    assert said in page.text
    assert "1 artifact is damaged" in page.text
    assert said.split(":")[0].replace("_", "") in results_markdown(tmp_path).replace("\\", "").replace("_", "")


def test_unknown_verdict_is_never_counted_as_one_of_the_four(tmp_path: Path) -> None:
    artifact(tmp_path, "ferero/fig1", [claim("a", "reproduced"), claim("b", "excellent")])
    site = collect(tmp_path)
    assert {v.name: n for v, n in site.counts} == {**dict.fromkeys(VERDICTS, 0), "reproduced": 1, "unreadable": 1}
    assert "unknown verdict 'excellent'" in Page(build(tmp_path).read_text()).text


def test_verdict_counts(outputs: Path) -> None:
    site = collect(outputs)
    ours = {p.id: [n for _, n in p.counts] for p in site.papers}
    assert ours == {"ferero": [2, 1, 1, 1], "omd_tch": [1, 0, 0, 0], "newpaper": [0, 0, 0, 0]}
    source = build().read_text()
    buttons = re.findall(r'class="count v-\w+" data-verdict="(\w+)" data-paper="(\w*)"[^>]*>(\d+)<', source)
    assert ("yes", "ferero", "2") in buttons
    assert ("no", "ferero", "1") in buttons
    assert ("yes", "", "3") in buttons
    assert source.count('<tr class="claim"') == 6


def test_the_same_inputs_give_the_same_bytes(outputs: Path) -> None:
    def lines() -> list[str]:
        return [line for line in build().read_text().splitlines() if "<span>built " not in line]

    first, before = lines(), results_markdown()
    assert first == lines()
    assert before == results_markdown()


def test_assets_follow_the_artifacts(outputs: Path) -> None:
    page = build()
    assets = page.parent / "assets"
    assert (assets / "ferero/fig2/figure.png").read_bytes() == png()
    assert (assets / "ferero/fig2/table.csv").exists()
    shutil.rmtree(outputs / "artifacts" / "ferero" / "fig2")
    (outputs / "artifacts" / "ferero" / "fig10" / "figure.png").write_bytes(png(8, 8))
    build()
    assert not (assets / "ferero/fig2").exists()
    assert (assets / "ferero/fig10/figure.png").read_bytes() == png(8, 8)


def test_nothing_there_yet(tmp_path: Path) -> None:
    page = Page(build(tmp_path).read_text())
    assert "No artifact has been drawn yet" in page.text
    assert "There are no job folders" in page.text
    assert "No artifact" in results_markdown(tmp_path)


def test_declared_artifacts_without_a_folder_are_listed(outputs: Path) -> None:
    expected = ["ferero/fig2", "ferero/table7", "mobl/theory"]
    page = Page(build(outputs, expected).read_text())
    assert "mobench +experiment=ferero/table7" in page.text
    assert "2 artifacts, 1 not drawn yet" in page.text
    assert (
        "| mobl/theory (not drawn yet) | – | – | – | – | `mobench +experiment=mobl/theory` |"
        in results_summary_markdown(outputs, expected)
    )


def test_runs(outputs: Path) -> None:
    (outputs / "runs" / "odd").mkdir()
    (outputs / "runs" / "zdt3-ls-ffffffffff").mkdir()
    (outputs / "runs" / "zdt3-ls-ffffffffff" / "status.json").write_text('{"status": "done"}')
    runs = {r.key: r for r in collect(outputs).runs}
    epo = runs["vlmop2-epo-aaaaaaaaaa"]
    assert (epo.problem, epo.algorithm, epo.digest) == ("vlmop2", "epo", "aaaaaaaaaa")
    assert (epo.finished, epo.total, epo.seconds, epo.commit) == (20, 20, 12.5, "b" * 10)
    assert [e.id for e in epo.artifacts] == ["ferero/fig10"]
    assert (runs["vlmop2-pmtl-bbbbbbbbbb"].finished, runs["vlmop2-pmtl-bbbbbbbbbb"].total) == (17, 20)
    assert (runs["odd"].status, runs["odd"].detail) == ("unreadable", "status.json is missing")
    assert (runs["zdt3-ls-ffffffffff"].status, runs["zdt3-ls-ffffffffff"].detail) == (
        "unreadable",
        "final.csv is missing",
    )
    Page(build().read_text())


def test_results_markdown(outputs: Path) -> None:
    page = results_markdown()
    assert "| artifact | claim | published | measured | verdict | command |" in page
    assert (
        "| ferero/fig10 | statement of c2 | 1.0 ± 0.1 | 1.05 | ✗ not reproduced | `mobench +experiment=ferero/fig10` |"
        in page
    )
    assert "- ferero/fig10, c2 (✗ not reproduced): because of the step size" in page
    assert "- ferero/fig10, c1 (◐ partial): because of the step size" in page
    assert "c3 (" not in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "a \\| b" in page
    assert page.index("| ferero/fig2 |") < page.index("| ferero/fig10 |") < page.index("| omd_tch/fig1")
    assert "- omd_tch/table1: claims.json cannot be read" in page
    for line in page.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 7, line


def test_results_summary(outputs: Path) -> None:
    lines = results_summary_markdown().splitlines()
    assert lines[0] == "| artifact | reproduced | partial | not reproduced | not tested at this scale | command |"
    assert lines[2] == "| ferero/fig2 | 1 | – | – | – | `mobench +experiment=ferero/fig2` |"
    assert lines[3] == "| ferero/fig10 | 1 | 1 | 1 | 1 | `mobench +experiment=ferero/fig10` |"
    assert lines[-1] == "| **all** | 3 | 1 | 1 | 1 | `make reproduce` |"


def test_table_of_papers(outputs: Path) -> None:
    lines = papers_markdown(expected=["ferero/never_drawn"]).splitlines()
    assert lines[2] == "| FERERO | 2 of 3 | 2 | 1 | 1 | 1 | `mobench +experiment=ferero/all` |"
    assert lines[-1].startswith("| **all** | ")
    assert lines[-1].endswith(" | 3 | 1 | 1 | 1 | `make reproduce` |")


@DECLARED
def test_command(outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", str(tmp_path / "docs" / "results.md")]) == 0
    assert (outputs / "report" / "index.html").exists()
    assert "# Results" in (tmp_path / "docs" / "results.md").read_text()
    assert "index.html" in capsys.readouterr().out
    assert main(["--summary"]) == 0
    assert capsys.readouterr().out.startswith("| artifact |")


@DECLARED
def test_a_page_is_not_overwritten_by_less(
    outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, readme = tmp_path / "results.md", tmp_path / "README.md"
    page.write_text("all results")
    readme.write_text(f"{MARKERS[0]}\nall results\n{MARKERS[1]}\n")
    monkeypatch.setattr("mobench.report.__main__.declared", lambda: ["ferero/fig3", "ferero/never_drawn"])
    for option, path in (("--results", page), ("--readme", readme)):
        assert main([option, str(path)]) == 1
        assert "missing: " in capsys.readouterr().err
        assert "all results" in path.read_text()


def test_readme_markers(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{MARKERS[0]}\nold\n{MARKERS[1]}\nafter\n")
    renew(readme, "| new |\n")
    assert readme.read_text() == f"before\n{MARKERS[0]}\n| new |\n{MARKERS[1]}\nafter\n"
    readme.write_text("no markers")
    with pytest.raises(MobenchError, match="lacks the markers"):
        renew(readme, "| new |\n")


@DECLARED
def test_unwritable_folder_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report").write_text("a file where a folder belongs")
    with pytest.raises(StoreError):
        build(tmp_path)
    assert main(["--outputs", str(tmp_path)]) == 1
    assert "Cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("0.123456", "0.1235"),
        ("12.0", "12"),
        ("-3", "−3"),
        ("1234567", "1234567"),
        ("1234.56", "1234.6"),
        ("123456.7", "123457"),
        ("1.5e-7", "1.5·10⁻⁷"),
        ("-2e9", "−2·10⁹"),
        ("0.0", "0"),
        ("1e999", "∞"),
    ],
)
def test_numbers(raw: str, shown: str) -> None:
    assert number(raw) == shown


def test_tables_align_without_inventing_digits() -> None:
    table = sheet("method,ours,published,spread,n\na,0.5,12.25,1 ± 2,3\nb,,0.123456,nan,10\n")
    assert [(c.numeric, c.published) for c in table.columns] == [
        (False, False),
        (True, False),
        (True, True),
        (True, False),
        (True, False),
    ]
    assert [[(x.text, x.pad) for x in row] for row in table.rows] == [
        [("a", ""), ("0.5", ""), ("12.25", "00"), ("1 ± 2", ""), ("3", "")],
        [("b", ""), ("–", ""), ("0.1235", ""), ("–", ""), ("10", "")],
    ]


def test_long_tables_are_cut_and_say_so(tmp_path: Path) -> None:
    artifact(tmp_path, "ferero/table1", [claim("a", "reproduced")], table="x\n" + "1.5\n" * 1000)
    page = Page(build(tmp_path).read_text())
    assert "The first 400 of 1000 rows" in page.text


def test_words() -> None:
    assert [duration(x) for x in (0.123, 42.0, 75, 7500, None, True)] == [
        "0.12 s",
        "42 s",
        "1 min 15 s",
        "2 h 5 min",
        "–",
        "–",
    ]
    assert moment("2025-01-02T03:04:05+0100") == "2025-01-02 03:04 +0100"
    assert (text(None), text(0.12345678), text([1, "a"]), text(True)) == ("–", "0.1235", '[1, "a"]', "yes")
    assert glue("<b> < 1e-3") == '&lt;b&gt; <span class="nb">&lt; 1e-3</span>'
    labels = [Entry("p", n).label for n in ("fig3", "table11", "cross_table", "theory")]
    assert labels == ["Figure 3", "Table 11", "Cross table", "Theory"]


# in a browser

WATCH = """<script>
window.seen = [];
addEventListener("error", (e) => seen.push("error: " + (e.message || e.target.src || e.target.href)), true);
addEventListener("unhandledrejection", (e) => seen.push("rejection: " + e.reason));
console.error = (...a) => seen.push("console: " + a.join(" "));
</script>"""

PROBE = r"""<script>
(async () => {
  const wait = (ms) => new Promise((r) => setTimeout(r, ms));
  const all = (q) => [...document.querySelectorAll(q)];
  const shown = (q) => all(q).filter((e) => e.getClientRects().length > 0);
  const click = (q) => document.querySelector(q).click();
  const type = (q, s) => { const i = document.querySelector(q); i.value = s; i.dispatchEvent(new Event("input")); };
  const column = (i) => all(".runs tbody tr").map((r) => r.cells[i].textContent.trim());
  const sort = (i) => { click(`.runs thead th:nth-child(${i + 1}) button`); return column(i); };
  const out = {};
  await wait(50);
  out.claims = shown(".claim").length;
  out.controls = shown("#theme, .filters, .runfilters").length;
  click('.filters [data-verdict="no"]');
  out.no = [shown(".claim").length, shown(".artifact").length, document.querySelector("#shown").textContent];
  out.pressed = all('.filters [aria-pressed="true"]').map((b) => b.dataset.verdict);
  click('.filters [data-verdict="no"]');
  out.again = shown(".claim").length;
  click('.overview .count[data-verdict="yes"][data-paper="ferero"]');
  out.ferero = [shown(".claim").length, shown(".paper").map((p) => p.dataset.paper)];
  out.said = document.querySelector("#shown").textContent;
  type("#search", "nothing has this");
  out.none = [shown(".claim").length, shown("#nothing").length];
  location.hash = "#a-omd_tch-fig1";
  await wait(50);
  out.revealed = shown("#a-omd_tch-fig1").length;
  type("#search", "step SIZE");
  out.searched = shown(".claim").length;
  click('.filters [data-verdict=""]');
  out.all = shown(".claim").length;
  out.up = sort(4); out.sorted = document.querySelector(".runs thead th:nth-child(5)").getAttribute("aria-sort");
  out.down = sort(4);
  out.names = sort(1);
  click('.runfilters [data-status="failed"]');
  out.failed = shown(".runs tbody tr").length;
  click('.runfilters [data-status=""]');
  type("#runsearch", "vlmop2 epo");
  out.found = shown(".runs tbody tr").map((r) => r.id);
  const back = () => getComputedStyle(document.body).backgroundColor;
  const themes = [];
  for (let i = 0; i < 3; i++) { themes.push([document.documentElement.dataset.theme, back()]); click("#theme"); }
  out.themes = themes; out.theme = document.documentElement.dataset.theme;
  click(".copy");
  await wait(200);
  out.copied = document.querySelector(".copy").textContent;
  dispatchEvent(new Event("beforeprint"));
  out.printed = all("main details:not([open])").length;
  dispatchEvent(new Event("afterprint"));
  out.closed = all("main details:not([open])").length;
  out.pictures = all("img").map((i) => i.naturalWidth);
  out.wide = document.documentElement.scrollWidth <= innerWidth;
  out.unnamed = all("button, input").filter((e) => !(e.textContent || e.labels[0].textContent).trim()).length;
  out.requests = performance.getEntriesByType("resource").map((e) => e.name).filter((n) => !/^(file|data):/.test(n));
  out.title = document.title;
  out.seen = seen;
  return out;
})().catch((e) => ({ crashed: String(e.stack) })).then((out) => {
  const pre = document.createElement("pre");
  pre.id = "probe";
  pre.textContent = JSON.stringify(out);
  document.body.append(pre);
});
</script></body>"""


def chromium() -> str:
    """A Chromium on the path, or skip."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next((p for n in names if (p := shutil.which(n))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on PATH")
    return found


def probed(page: Path, profile: Path, *flags: str) -> dict[str, Any]:
    """Run the probe in a copy of the page and return what it saw."""
    source = page.read_text()
    copy = page.with_name("probe.html")
    copy.write_text(source.replace("<head>", "<head>" + WATCH).replace("</body>", PROBE))
    quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet, *flags]
    command += [f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom", copy.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    match = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    answer = json.loads(html.unescape(match[1]))
    assert "crashed" not in answer, answer
    return answer


@pytest.mark.browser
@pytest.mark.parametrize("width", [1400, 500])
def test_in_a_browser(outputs: Path, tmp_path: Path, width: int) -> None:
    saw = probed(build(), tmp_path / "profile", f"--window-size={width},900")
    assert saw["seen"] == []
    assert saw["requests"] == []
    assert saw["title"] == "mobench: results"
    assert saw["claims"] == saw["again"] == saw["all"] == 6
    assert saw["controls"] == 3
    assert saw["no"] == [1, 1, "1 of 6 claims"]
    assert saw["pressed"] == ["no"]
    assert saw["ferero"] == [2, ["ferero"]]
    assert saw["said"] == "2 of 6 claims in FERERO"
    assert saw["none"] == [0, 1]
    assert saw["revealed"] == 1
    assert saw["searched"] == 3
    assert saw["up"] == ["–", "–", "3.50", "12.50"]
    assert saw["sorted"] == "ascending"
    assert saw["down"] == ["12.50", "3.50", "–", "–"]
    assert saw["names"] == ["epo", "ls", "omd_tch", "pmtl"]
    assert saw["failed"] == 1
    assert saw["found"] == ["run-vlmop2-epo-aaaaaaaaaa"]
    assert saw["theme"] == "auto"
    assert dict(saw["themes"])["light"] != dict(saw["themes"])["dark"]
    assert saw["copied"] in ("Copied", "Select it")
    assert saw["printed"] == 0
    assert saw["closed"] > 0
    assert saw["pictures"] == [4, 4]
    assert saw["wide"]
    assert saw["unnamed"] == 0
