"""The report in a headless Chromium: no errors, all controls in reach, filters and links that work."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mobench.report import build
from tests.test_report import SCORES, artifact, claim, outputs

__all__ = ["outputs"]  # a fixture

WATCH = """<script>
window.seen = [];
addEventListener("error", (e) => seen.push("error: " + (e.message || e.target.src || e.target.href)), true);
addEventListener("unhandledrejection", (e) => seen.push("rejection: " + e.reason));
console.error = console.warn = (...a) => seen.push("console: " + a.join(" "));
</script>"""

# one browser looks at all pages, each in a frame of its own, as narrow as it likes
HARNESS = r"""<!doctype html><html><head><meta charset="utf-8"></head><body><script>
const wait = (ms) => new Promise((r) => setTimeout(r, ms));
const open = async (address, width) => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  const loaded = new Promise((r) => { frame.onload = r; });
  frame.src = address;
  document.body.append(frame);
  await loaded;
  await wait(30);
  const w = frame.contentWindow, d = w.document;
  const all = (q) => [...d.querySelectorAll(q)];
  return {
    frame, w, d, all,
    shown: (q) => all(q).filter((e) => e.getClientRects().length > 0),
    click: (q) => d.querySelector(q).click(),
    type: (q, s) => {
      d.querySelector(q).value = s;
      d.querySelector(q).dispatchEvent(new w.Event("input", { bubbles: true }));
    },
    text: (q) => d.querySelector(q).textContent.trim(),
    sort: (i) => {
      d.querySelector(`thead th:nth-child(${i + 1}) button`).click();
      return all("tbody tr").map((r) => r.cells[i].textContent.trim());
    },
    go: async (hash) => { w.location.hash = hash; await wait(30); },
  };
};
const general = async (address, width) => {
  const p = await open(address, width);
  const out = { address, width };
  out.wide = p.d.documentElement.scrollWidth - p.w.innerWidth;
  out.background = p.w.getComputedStyle(p.d.body).backgroundColor;
  const reach = p.shown("a, button, input, select, summary, [tabindex='0']").filter((e) => !e.disabled);
  out.reached = reach.length;
  // Tab goes through a page in its order: nothing is left out, nothing jumps the queue,
  // and one sees where one is
  out.unreachable = reach.filter((e) => {
    e.focus({ focusVisible: true });
    const ring = (x, part) => x && p.w.getComputedStyle(x, part).outlineStyle !== "none"
      && parseFloat(p.w.getComputedStyle(x, part).outlineWidth) > 0;
    const seen = ring(e) || ring(e.nextElementSibling) || ring(e, "::after");
    return e.tabIndex !== 0 || p.d.activeElement !== e || !seen;
  }).map((e) => e.outerHTML.slice(0, 120));
  out.first = reach[0].className;
  const labelled = (e) => [...(e.labels || [])].some((label) => label.textContent.trim());
  out.unnamed = p.all("a, button, input, select, summary, [role=region]")
    .filter((e) => !e.getAttribute("aria-label") && !e.hasAttribute("aria-labelledby"))
    .filter((e) => e.matches("[role=region]") || !labelled(e) && !e.textContent.trim()
      && !e.querySelector("img[alt]:not([alt=''])"))
    .map((e) => e.outerHTML.slice(0, 120));
  out.unscrollable = p.shown("main *")
    .filter((e) => e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(p.w.getComputedStyle(e).overflowX))
    .filter((e) => e.tabIndex < 0 && !e.matches("code, select"))
    .map((e) => e.outerHTML.slice(0, 120));
  p.w.dispatchEvent(new p.w.Event("beforeprint"));
  out.folded = p.all("main details:not([open])").length;
  p.w.dispatchEvent(new p.w.Event("afterprint"));
  await wait(30);
  out.broken = p.all("img").filter((i) => i.complete && !i.naturalWidth).length;
  const loaded = p.w.performance.getEntriesByType("resource").map((e) => e.name);
  out.requests = loaded.filter((n) => !/^(file|data):/.test(n));
  out.seen = p.w.seen;
  p.frame.remove();
  return out;
};
const scenarios = {
  async index() {
    const p = await open("index.html", 1200), out = {};
    out.cards = p.shown(".card").length;
    p.type(".filter [name=q]", "ferero FIG10");
    out.found = [p.shown(".card").length, p.shown(".paper").length, p.text("output"), p.w.location.hash];
    p.type(".filter [name=q]", "nothing has this");
    out.none = [p.shown(".card").length, p.shown(".nothing").length];
    await p.go("#p-omd_tch");
    out.revealed = [p.shown(".card").length, p.d.querySelector(".filter [name=q]").value];
    p.d.body.dispatchEvent(new p.w.KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true }));
    out.slash = p.d.activeElement.name;
    return [out, p];
  },
  async claims() {
    const p = await open("claims.html#verdict=no&paper=ferero", 1200), out = {};
    out.linked = [p.shown(".claim").length, p.text("output"), p.d.querySelector("[name=paper]").value];
    p.click("[name=verdict][value=yes]");
    p.d.querySelector("[name=verdict][value=yes]").dispatchEvent(new p.w.Event("input", { bubbles: true }));
    out.yes = [p.shown(".claim").length, p.w.location.hash];
    p.click("[type=reset]");
    await wait(30);
    const left = p.shown("[type=reset]").length;
    out.reset = [p.shown(".claim").length, p.w.location.hash, p.text("output"), left];
    p.click(".fold button");
    out.unfolded = [p.shown(".claim").length, p.shown(".fold").length];
    p.type(".filter [name=q]", "step SIZE");
    out.searched = [p.shown(".claim").length, p.w.location.hash];
    await p.go("#verdict=part");
    out.changed = [p.shown(".claim").length, p.d.querySelector("[name=q]").value];
    p.type(".filter [name=q]", "nothing has this");
    out.none = [p.shown(".claim").length, p.shown(".nothing").length];
    return [out, p];
  },
  async artifact() {
    const p = await open("artifacts/ferero/fig10.html#claim-3", 1200), out = {};
    out.claims = p.shown(".claim").length;
    out.pictures = p.all("main img").map((i) => i.naturalWidth);
    p.click(".copy");
    await wait(200);
    out.copied = p.text(".copy");
    out.target = p.d.querySelector(":target").dataset.verdict;
    out.list = p.shown(".list li").length;
    return [out, p];
  },
  async narrow() {
    const p = await open("artifacts/ferero/fig10.html", 390), out = {};
    out.list = p.shown(".list").length;
    const index = await open("index.html", 390), overview = index.d.querySelector(".overview").parentNode;
    out.overview = overview.scrollWidth <= overview.clientWidth;
    index.frame.remove();
    out.labels = p.w.getComputedStyle(p.d.querySelector("td[data-label]"), "::before").content;
    return [out, p];
  },
};
(async () => {
  const out = { general: [], scenarios: {} };
  for (const address of PAGES)
    for (const width of [1200, 390]) out.general.push(await general(address, width));
  for (const [name, play] of Object.entries(scenarios)) {
    const [found, p] = await play();
    out.scenarios[name] = { ...found, seen: p.w.seen };
    p.frame.remove();
  }
  return out;
})().catch((e) => ({ crashed: String(e.stack) })).then((out) => {
  const pre = document.createElement("pre");
  pre.id = "probe";
  pre.textContent = JSON.stringify(out);
  document.body.append(pre);
});
</script></body></html>"""


def chromium() -> str:
    """A Chromium on the path, or skip."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next((p for n in names if (p := shutil.which(n))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on PATH")
    return path


QUESTIONS = r"""<!doctype html><html><head><meta charset="utf-8"></head><body><script>
const wait = (ms) => new Promise((r) => setTimeout(r, ms));
const asked = async (clicks, answer) => {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width:1280px;height:900px;border:0";
  const loads = () => new Promise((r) => { frame.onload = r; });
  let loaded = loads();
  frame.src = "index.html";
  document.body.append(frame);
  await loaded;
  await wait(30);
  for (const find of clicks) {
    const target = find(frame.contentDocument);
    if (!target) return "there is nothing to click in " + frame.contentWindow.location.pathname;
    if (!target.getClientRects().length) return "the link cannot be seen";
    loaded = loads();
    target.dispatchEvent(new frame.contentWindow.MouseEvent("click", { bubbles: true, cancelable: true }));
    await loaded;
    await wait(30);
  }
  const d = frame.contentDocument;
  const shown = [...d.querySelectorAll(answer)].filter((e) => e.getClientRects().length > 0);
  return shown.map((e) => e.textContent.replace(/\s+/g, " ").trim());
};
const link = (text, part = "main, header") => (d) =>
  [...d.querySelectorAll("a")].find((a) => a.closest(part) && a.textContent.trim() === text);
const to = (address) => (d) => [...d.querySelectorAll("a")].find(
  (a) => (a.getAttribute("href") || "").endsWith(address) && a.getClientRects().length > 0);
(async () => ({
  best: await asked([link("Leaderboards")], "section[aria-labelledby=s-constrained] .under"),
  number: await asked([to("artifacts/ferero/fig10.html#claim-1")], "tr.claim:target .ours"),
  rows: await asked(
    [to("artifacts/ferero/fig10.html#claim-1")], "table.runs tbody td code"),
}))().catch((e) => ({ crashed: String(e.stack) })).then((out) => {
  const pre = document.createElement("pre");
  pre.id = "probe";
  pre.textContent = JSON.stringify(out);
  document.body.append(pre);
});
</script></body></html>"""


def probed(report: Path, profile: Path, pages: list[str], *flags: str) -> dict[str, Any]:
    """Run the harness beside the pages, each of which notes its errors, and return what it saw."""
    for page in report.rglob("*.html"):
        page.write_text(page.read_text().replace("<head>", "<head>" + WATCH))
    return played(report, HARNESS.replace("PAGES", json.dumps(pages)), profile, *flags)


def played(report: Path, script: str, profile: Path, *flags: str) -> dict[str, Any]:
    """Returns what a script that runs beside the pages reports."""
    harness = report / "harness.html"
    harness.write_text(script)
    quiet = (
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    )
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet, *flags]
    # frames of files may be looked into
    command += ["--allow-file-access-from-files", "--window-size=1280,1000"]
    command += [
        f"--user-data-dir={profile}",
        "--virtual-time-budget=60000",
        "--dump-dom",
        harness.resolve().as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    match = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(html.unescape(match[1]))
    assert "crashed" not in answer, answer
    return answer


def test_two_questions_take_one_click(outputs: Path, tmp_path: Path) -> None:
    """One click on a visible link shows the best method for constraints, and one the source of a number."""
    artifact(outputs, "cross/zoo", [claim("a", "check passed")], table=SCORES)
    saw = played(build().parent, QUESTIONS, tmp_path / "profile")
    (best,) = saw["best"]
    assert best.startswith("Largest score: sure; the intervals of 1 of the other 1 methods overlap its own.")
    assert saw["number"] == ["1.05"]
    assert "outputs/runs/vlmop2-pmtl-bbbbbbbbbb" in saw["rows"]


ONE_OF_EACH = [
    "index.html",
    "claims.html",
    "data.html",
    "artifacts/ferero/fig10.html",
    "artifacts/ferero/fig2.html",
    "artifacts/newpaper/fig1.html",
    "data/digits-enlarged.html",
]


@pytest.mark.parametrize("dark", [False, True])
def test_in_a_browser(outputs: Path, tmp_path: Path, dark: bool) -> None:
    long = "a_name_that_has_no_end_" * 8
    artifact(
        outputs,
        f"ferero/{long}",
        [claim(long, "partial", measured=long, reason=long)],
        table=f"{long}\n{long}\n",
    )
    report = build(expected=["mobl/fig1", f"mobl/{long}"]).parent
    pages = [*ONE_OF_EACH, f"artifacts/ferero/{long}.html"]
    saw = probed(
        report, tmp_path / "profile", pages, *(["--blink-settings=preferredColorScheme=0"] if dark else [])
    )
    assert [(p["address"], p["width"]) for p in saw["general"]] == [
        (name, w) for name in pages for w in (1200, 390)
    ]
    for page in saw["general"]:
        where = f"{page['address']} at {page['width']}"
        assert page["seen"] == [], where
        assert page["requests"] == [], where
        assert page["wide"] <= 0, where
        assert page["unreachable"] == [], where
        assert page["first"] == "skip", where
        assert page["reached"] > 5, where
        assert page["unnamed"] == [], where
        assert page["unscrollable"] == [], where
        assert page["folded"] == 0, where
        assert page["broken"] == 0, where
        assert page["background"] == ("rgb(20, 23, 26)" if dark else "rgb(247, 247, 244)"), where
    did = saw["scenarios"]
    assert {name: did[name].pop("seen") for name in did} == {name: [] for name in did}
    assert did["index"] == {
        "cards": 7,
        "found": [1, 1, "1 of 9 artifacts", "#q=ferero+FIG10"],
        "none": [0, 1],
        "revealed": [7, ""],
        "slash": "q",
    }
    assert did["claims"] == {
        "linked": [1, "1 of 10 claims", "ferero"],
        "yes": [3, "#verdict=yes&paper=ferero"],
        "reset": [0, "", "10 claims", 0],  # folded, a line for each artifact
        "unfolded": [1, 5],
        "searched": [5, "#q=step+SIZE"],
        "changed": [2, ""],
        "none": [0, 1],
    }
    assert did["artifact"]["copied"] in ("Copied", "Copy manually")
    assert did["artifact"] | {"copied": ""} == {
        "claims": 6,
        "pictures": [4],
        "copied": "",
        "target": "no",
        "list": 4,
    }
    assert did["narrow"] == {"list": 0, "overview": True, "labels": '"Published"'}
