"""The verdicts on the pages are those that the rows give: kept rows, and those of `make reproduce`."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mobench.artifacts.claims import OWN, UNKNOWN, second_look
from mobench.cli import keep
from mobench.report import verdicts
from mobench.report.__main__ import COUNT, MARKERS
from mobench.report.model import VERDICTS
from mobench.report.papers import papers
from tests.conftest import REPOSITORY as ROOT
from tests.conftest import Run

# an outputs folder in which `make reproduce` has drawn everything at laptop scale
REPRODUCED = "MOBENCH_REPRODUCED"
DRAWN = "MOBENCH_SMOKE"  # the same at smoke scale; what is drawn from kept rows has no other scale
SAMPLE = ("csmoo/active", "ferero/fig7", "mobl/fig3", "omd_tch/fig1")
RECORD = ROOT / "docs/results.json"
SHOWN = {v.name: v.symbol for v in VERDICTS.values() if v.key in ("yes", "part", "no", "skip")}


def record() -> list[dict[str, Any]]:
    """Every claim with its verdict, as `make report` wrote it."""
    return list(json.loads(RECORD.read_text()))


def cell(rows: list[dict[str, Any]]) -> str:
    """The cell of a page that counts claims; those about times are not counted."""
    counts = Counter(row["verdict"] for row in rows if not row["timed"])
    return " ".join(f"{symbol}&nbsp;{counts[name]}" for name, symbol in SHOWN.items() if counts[name]) or "–"


def table(path: Path) -> list[list[str]]:
    """Cells of the rows that `make report` writes between the markers."""
    begin, end = (path.read_text().index(marker) for marker in MARKERS)
    lines = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", path.read_text()[begin:end]).splitlines()
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]


def test_readme_counts_the_recorded_verdicts() -> None:
    rows = {line[0]: line for line in table(ROOT / "README.md")}
    names = {id: info.short for id, info in papers().items()}
    for id, name in [*names.items(), ("", "**all**")]:
        records = [r for r in record() if r["artifact"].startswith(id)]
        assert rows[name][3] == cell([r for r in records if not r["kept"]]), name
        assert rows[name][4] == cell([r for r in records if r["kept"]]), name


def test_readme_says_how_many_claims_hold() -> None:
    begin, end = ((ROOT / "README.md").read_text().index(marker) for marker in COUNT)
    counts = Counter(row["verdict"] for row in once(record()) if not row["timed"])
    said = [int(n) for n in re.findall(r"\d+", (ROOT / "README.md").read_text()[begin:end])]
    papers_with_claims = {row["artifact"].split("/")[0] for row in once(record())}
    assert said == [counts.total(), len(papers_with_claims), *(counts[name] for name in SHOWN)]


def once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each claim once: kept rows before those of `make reproduce`, unless only the latter decide it."""
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda r: (r["verdict"] != "inconclusive", r["kept"])):
        if row["verdict"] in SHOWN:
            latest[row["artifact"], row["claim"]] = row
    return list(latest.values())


def test_each_claim_is_counted_once_and_has_one_tile() -> None:
    rows = {line[0]: line for line in table(ROOT / "README.md")}
    for id, name in [*((id, info.short) for id, info in papers().items()), ("", "**all**")]:
        assert rows[name][2] == cell(once([r for r in record() if r["artifact"].startswith(id)])), name
    tiles = ElementTree.parse(ROOT / "docs/images/claims.svg").iter("{http://www.w3.org/2000/svg}title")
    drawn = Counter(re.match(r"\S+, \S+: ([a-z ]+)\. ", str(tile.text))[1] for tile in tiles)  # type: ignore[index]
    assert drawn == Counter(row["verdict"] for row in once(record()))


@pytest.mark.parametrize("paper", list(papers()))
def test_paper_pages_count_the_recorded_verdicts(paper: str) -> None:
    for name, _, scale, claims, *_ in table(ROOT / f"docs/papers/{paper}.md"):
        records = [
            r
            for r in record()
            if r["artifact"] == f"{paper}/{name.replace(chr(92), '')}" and r["kept"] == ("kept" in scale)
        ]
        assert claims == cell(records), name


@pytest.mark.parametrize("paper", list(papers()))
def test_results_pages_list_the_recorded_verdicts(paper: str) -> None:
    """A claim's verdict stands in the table of its artifact; those of other rows are folded below it."""
    symbols = {v.symbol: v.name for v in VERDICTS.values()}
    text = (ROOT / f"docs/results/{paper}.md").read_text()
    records = [r for r in record() if r["artifact"].startswith(f"{paper}/")]
    listed: list[tuple[str, str, str]] = []
    for section in text.split("\n## ")[1:]:
        (id,) = re.findall(rf"^.*\*, `({paper}/\w+)`$", section, re.M)
        visible, _, folded = section.partition("<details>")
        first = re.findall(r"^\| <a id=[^>]*></a>(.)&nbsp;.*?; `(\S+?)`\) \|", visible, re.M)
        others = re.findall(r"^\| (.)&nbsp;\S+ \| `(\S+?)` \|", folded, re.M)
        best = once([r for r in records if r["artifact"] == id])
        claims = [(claim, symbols[s]) for s, claim in first if symbols[s] in SHOWN]
        assert sorted(claims) == sorted((r["claim"], r["verdict"]) for r in best), id
        listed += [(id, claim, symbols[s]) for s, claim in [*first, *others]]
    assert sorted(listed) == sorted((r["artifact"], r["claim"], r["verdict"]) for r in records)


def test_pages_are_drawn_at_a_commit_without_changes() -> None:
    """A reader can check out what made the numbers."""
    text = (ROOT / "docs/results.md").read_text()
    drawn = re.findall(r"drawn at (.*?)\) draws", text)
    assert len(drawn) == 2
    for commits in drawn:
        assert re.fullmatch(r"[0-9a-f]{10}", commits), f"{commits}: draw all artifacts at one clean commit"


def test_kept_rows_give_the_recorded_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that `make reproduce` has drawn at any scale, if a folder is named; else drawn here."""
    root = Path(os.environ.get(DRAWN, tmp_path))
    if root == tmp_path:
        monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
        assert keep.draw_all([]) == 0
    assert [row for row in verdicts(root) if row["kept"]] == [row for row in record() if row["kept"]]
    for path in (root / "kept/artifacts").rglob("claims.json"):
        check_reasons(path)


def test_a_sample_of_make_reproduce_gives_the_recorded_verdicts(mobench: Run) -> None:
    """At laptop scale, as a newcomer runs it: some of the artifacts that take seconds.

    The next test compares all of them.
    """
    result = mobench(f"+experiment={','.join(SAMPLE)}", "logger=local", "progress=false")
    assert result.code == 0, result.err
    assert verdicts(result.root) == [row for row in record() if row["artifact"] in SAMPLE and not row["kept"]]


def test_make_reproduce_gives_the_recorded_verdicts() -> None:
    """Verdicts that depend on the machine's speed may differ on another machine."""
    if REPRODUCED not in os.environ:
        pytest.skip(f"{REPRODUCED} names no outputs folder in which `make reproduce` has drawn everything")
    root = Path(os.environ[REPRODUCED])

    def steady(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if not row["kept"] and not row["timed"]]

    assert steady(verdicts(root)) == steady(record())
    seen: dict[tuple[str, str, str], str] = {}
    for path in sorted((root / "artifacts").rglob("claims.json")):
        check_reasons(path)
        for claim in json.loads(path.read_text()):
            key = (path.parent.parent.name, claim["statement"], claim["measured"])
            assert seen.setdefault(key, str(path)) == str(path), f"{claim['id']} is judged twice"


def test_each_claim_that_is_not_reproduced_was_looked_at_again() -> None:
    """The page shows what an independent program, or a second reading, says; none disagrees."""
    for row in record():
        if row["verdict"] == "not reproduced":
            look = second_look(row["artifact"], row["claim"])
            assert look, (row, "python -m campaigns.second_looks")
            assert ") disagrees: " not in look, (row, "a claim whose second look disagrees is inconclusive")


def test_limitations_count_the_tolerances_that_are_older_than_their_rows() -> None:
    """The numbers are those of the table that campaigns/tolerances.py wrote."""
    rows = list(csv.DictReader((ROOT / "experiments/tolerances.csv").read_text().splitlines()))
    n = Counter(row["state"] for row in rows)
    page = " ".join((ROOT / "docs/limitations.md").read_text().split())
    said = (
        f"of {len(rows)} claims and checks, {n['same']} had the same tolerance, {n['reworded']} the same "
        f"numbers in other words, {n['extended']} further numbers or a form that gives *partial*, and "
        f"{n['other numbers']} other numbers; {n['new']} are newer than their rows, and "
        f"{n['not drawn then']} could not be drawn by the program of then"
    )
    assert said in page


def check_reasons(path: Path) -> None:
    """Every verdict but a plain yes has a reason, which says of an open claim what would decide it."""
    for claim in json.loads(path.read_text()):
        if claim["verdict"] not in ("reproduced", "check passed"):
            assert claim["reason"] not in ("", UNKNOWN), (path, claim["id"])
        if claim["verdict"] == "inconclusive" and claim["source"] != OWN:
            assert "Decided by" in claim["reason"], (path, claim["id"], claim["reason"])
