"""claims.yaml: the texts of a paper's claims; one clear error for each way in which calls do not fit them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from mobench.artifacts import Artifact, claims
from mobench.artifacts.checks import AtMost, Graded
from mobench.artifacts.published import published
from mobench.config.schema import conf_dir
from mobench.errors import ConfigError
from mobench.system import paths

PAPERS = sorted(path.parent.name for path in paths.experiments().glob("*/claims.yaml"))
HOLDS = AtMost(1, 2)
FAILS = AtMost(3, 2)
TEXTS = """
fig1, fig3-fig4:
  near:
    statement: "{method} ends at {{x*}}"
    source: "{figure}, Section 2"
    published: near
    reason: {partial: "Nearly, says {method}.", fails: "No."}
  "{who}-own":
    statement: Ours
    reason: Because.
    remark: Mind.
table2:
  printed:
    statement: A number
    source: Table 2
    published: 1.5
    any_scale: true
    when: sometimes
  wide:
    statement: Wide
    source: Table 2
    published: yes it is
    scope: paper
    elsewhere: Too coarse.
"""


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A paper "mine" with these texts."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/claims.yaml").write_text(TEXTS)
    monkeypatch.setattr(paths, "experiments", lambda: tmp_path)
    claims._file.cache_clear()
    return tmp_path / "mine/claims.yaml"


def drawn(name: str, scale: str = "laptop") -> Artifact:
    return Artifact(f"mine/{name}", "t", scale, {})


def test_a_claim_takes_its_texts_from_the_file(paper: Path) -> None:
    a = drawn("fig4")
    a.claim("near", Graded(FAILS, HOLDS), method="EPO", reason="First.")
    a.check("{who}-own", HOLDS, who="epo", reason="First.")
    near, last = a.claims
    assert (near.statement, near.source, near.published) == (
        "EPO ends at {x*}",
        "Figure 4, Section 2",
        "near",
    )
    assert (near.verdict, near.reason) == ("partial", "First. Nearly, says EPO.")
    assert (near.measured, near.tolerance) == ("3; 1", "<= 2 (partial: <= 2)")
    assert (last.id, last.verdict, last.source, last.reason) == ("epo-own", "check passed", "ours", "Mind.")
    a.texts.all_used()


def test_reasons_are_given_where_it_does_not_hold_in_full(paper: Path) -> None:
    a = drawn("fig1")
    a.check("{who}-own", FAILS, who="a", reason="First.")
    a.check("{who}-own", FAILS.provided(False, "Too few."), who="b", reason="First.")
    assert [(c.verdict, c.reason) for c in a.claims] == [
        ("check failed", "First. Because. Mind."), ("inconclusive", "Too few."),
    ]  # fmt: skip


def test_scope_says_which_runs_judge(paper: Path) -> None:
    for scale, verdict in (("laptop", "inconclusive"), ("paper", "reproduced")):
        a = drawn("table2", scale)
        a.claim("wide", HOLDS)
        assert a.claims[0].verdict == verdict
    a = drawn("table2")
    a.claim("wide", FAILS)
    assert a.claims[0].reason == "Too coarse. Decided by: mobench +experiment=mine/table2 scale=paper."


def test_texts_and_calls_that_do_not_fit(paper: Path) -> None:
    a = drawn("fig3")
    with pytest.raises(
        ConfigError, match=r"mine/fig3.*claims.yaml has no text of the claim 'nere'. Did you mean 'near'"
    ):
        a.claim("nere", HOLDS)
    with pytest.raises(ConfigError, match=r"'near' needs the words \['method'\]"):
        a.claim("near", HOLDS)
    with pytest.raises(ConfigError, match=r"'near' is given the words \['metod'\]"):
        a.claim("near", HOLDS, method="EPO", metod="EPO")
    with pytest.raises(ConfigError, match=r"is called by a.check, but its text has a source"):
        a.check("near", HOLDS, method="EPO")
    with pytest.raises(ConfigError, match=r"is called by a.claim, but its text has no source"):
        a.claim("{who}-own", HOLDS, who="x")
    a.claim("near", HOLDS, method="EPO")
    with pytest.raises(ConfigError, match=r"its claims \['{who}-own'\] .* were not judged"):
        a.texts.all_used()
    with pytest.raises(ConfigError, match=r"\['wide'\]"):  # not `printed`, which is made sometimes
        drawn("table2").texts.all_used()
    with pytest.raises(ConfigError, match="has no text"):
        drawn("fig2").claim("near", HOLDS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fig1: {near: {source: s, published: p}}", "fig1: near has no statement"),
        ("fig1: {near: {statement: s, source: s}}", "a paper's claim has a source and what was published"),
        ("fig1: {near: {statement: s, raeson: r}}", "unknown entry 'raeson'. Did you mean 'reason'"),
        (
            "fig1: {near: {statement: s}}\nfig1-fig2: {near: {statement: s}}",
            "fig1 has the claim 'near' twice",
        ),
    ],
)
def test_a_file_that_is_wrong(paper: Path, text: str, message: str) -> None:
    paper.write_text(text)
    with pytest.raises(ConfigError, match=message):
        drawn("fig1").claim("near", HOLDS)


def test_ranges_of_artifacts() -> None:
    assert claims.names("fig2, fig9-fig11,table3") == ["fig2", "fig9", "fig10", "fig11", "table3"]
    assert [claims.figure_name(f"a/{n}") for n in ("fig3a", "table10", "rate")] == [
        "Figure 3a",
        "Table 10",
        "rate",
    ]


@pytest.mark.parametrize("paper", PAPERS)
def test_texts_of_the_papers_are_of_artifacts_and_called(paper: str) -> None:
    """Every id is written in the paper's code, as drawing would show artifact by artifact."""
    folder = paths.experiments() / paper
    artifacts = {path.stem for path in (conf_dir() / "experiment" / paper).glob("*.yaml")}
    read = yaml.safe_load((folder / "claims.yaml").read_text())
    assert {name for key in read for name in claims.names(key)} <= artifacts
    trees = [ast.parse(path.read_text()) for path in folder.glob("*.py")]
    said = {
        n.value
        for tree in trees
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    assert {id for section in read.values() for id in section} <= said
    for name in artifacts:
        claims.texts(f"{paper}/{name}")


def test_published_numbers() -> None:
    cells = published("csmoo/fig33")
    assert cells.number(row="beta>=0.5") == 0.0945
    assert cells.text(row="beta=0", metric="final Tchebycheff value") == "highest of the sweep"
    assert cells.numbers("row", metric="feasible ratio") == {"all beta": 1.0}
    with pytest.raises(KeyError, match="4 rows have"):
        cells.number(column="CSMOO-2")
    with pytest.raises(
        ConfigError, match=r"no fig34\.csv in experiments/csmoo/published. Did you mean 'fig33'"
    ):
        published("csmoo/fig34")
