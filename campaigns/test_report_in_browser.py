"""The report in a headless Chromium: no errors, all controls in reach, a filter and links that work."""

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
  return { frame, w, d, all, shown: (q) => all(q).filter((e) => e.getClientRects().length > 0) };
};
const general = async (address, width) => {
  const p = await open(address, width);
  const out = { address, width };
  out.wide = p.d.documentElement.scrollWidth - p.w.innerWidth;
  const reach = p.shown("a, button, input, select, [tabindex='0']").filter((e) => !e.disabled);
  // Tab goes through a page in its order, nothing is left out, and one sees where one is
  out.unreachable = reach.filter((e) => {
    e.focus({ focusVisible: true });
    const style = p.w.getComputedStyle(e);
    return e.tabIndex !== 0 || p.d.activeElement !== e || style.outlineStyle === "none";
  }).map((e) => e.outerHTML.slice(0, 120));
  out.unnamed = p.all("a, button, input, select, [role=region]")
    .filter((e) => !e.getAttribute("aria-label") && !e.textContent.trim() && !(e.labels || []).length
      && !e.querySelector("img[alt]:not([alt=''])"))
    .map((e) => e.outerHTML.slice(0, 120));
  for (const image of p.all("img")) image.loading = "eager";
  await wait(30);
  out.broken = p.all("img").filter((i) => !i.naturalWidth).length;
  const loaded = p.w.performance.getEntriesByType("resource").map((e) => e.name);
  out.requests = loaded.filter((n) => !/^(file|data):/.test(n));
  out.seen = p.w.seen;
  p.frame.remove();
  return out;
};
const filtered = async () => {
  const p = await open("claims.html#verdict=no&paper=ferero", 1200), out = {};
  const state = () => [p.shown(".claim").length, p.d.querySelector("output").textContent, p.w.location.hash];
  const set = (name, value) => {
    p.d.querySelector(`[name=${name}]`).value = value;
    p.d.querySelector(`[name=${name}]`).dispatchEvent(new p.w.Event("input", { bubbles: true }));
    return state();
  };
  out.linked = state();
  out.yes = set("verdict", "yes");
  p.d.querySelector("[type=reset]").click();
  await wait(30);
  out.reset = state();
  out.searched = set("q", "step SIZE");
  p.w.location.hash = "#verdict=part";
  await wait(30);
  out.changed = state();
  out.none = set("q", "nothing has this");
  return { ...out, seen: p.w.seen };
};
(async () => {
  const out = { general: [] };
  for (const address of PAGES)
    for (const width of [1200, 390]) out.general.push(await general(address, width));
  out.filter = await filtered();
  const p = await open("artifacts/ferero/fig10.html#claim-3", 1200);
  out.target = p.d.querySelector(":target").textContent;
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


def probed(report: Path, profile: Path, pages: list[str]) -> dict[str, Any]:
    """Runs the harness beside the pages, each of which notes its errors, and returns what it saw."""
    for page in report.rglob("*.html"):
        page.write_text(page.read_text().replace("<head>", "<head>" + WATCH))
    harness = report / "harness.html"
    harness.write_text(HARNESS.replace("PAGES", json.dumps(pages)))
    quiet = (
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    )
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet]
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


def test_in_a_browser(outputs: Path, tmp_path: Path) -> None:
    long = "a_name_that_has_no_end_" * 8
    claims = [claim(long, "partial", measured=long, reason=long)]
    artifact(outputs, f"ferero/{long}", claims, table=f"{long}\n{long}\n")
    artifact(outputs, "cross/zoo", [claim("a", "check passed")], table=SCORES)
    report = build(expected=["mobl/fig1", f"mobl/{long}"]).parent
    pages = [str(path.relative_to(report)) for path in sorted(report.rglob("*.html"))]
    saw = probed(report, tmp_path / "profile", pages)
    assert [(p["address"], p["width"]) for p in saw["general"]] == [
        (name, width) for name in pages for width in (1200, 390)
    ]
    for page in saw["general"]:
        where = f"{page['address']} at {page['width']}"
        for fault in ("seen", "requests", "unreachable", "unnamed"):
            assert page[fault] == [], where
        assert page["wide"] <= 0, where
        assert page["broken"] == 0, where
    assert saw["filter"] == {
        "linked": [1, "1 of 11 claims", "#verdict=no&paper=ferero"],
        "yes": [3, "3 of 11 claims", "#verdict=yes&paper=ferero"],
        "reset": [11, "11 claims", ""],
        "searched": [5, "5 of 11 claims", "#q=step+SIZE"],
        "changed": [2, "2 of 11 claims", "#verdict=part"],
        "none": [0, "0 of 11 claims", "#verdict=part&q=nothing+has+this"],
        "seen": [],
    }
    assert "statement of c2" in saw["target"]
