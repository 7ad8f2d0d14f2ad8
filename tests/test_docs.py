"""The documentation: its tutorial is followed, every command on its pages can be planned, and the site is
built without a warning.

`docs/plugins.md` is followed by tests/test_plugins.py, the README's program by tests/test_api.py.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from mobench.cli import COMMANDS as WORDS
from mobench.cli import cross
from mobench.cli.bundle import parsers
from mobench.config.overrides import normalise
from mobench.config.schema import conf_dir
from mobench.jobs.store import JobFolder
from mobench.sweep.planner import Planner, Use
from tests.conftest import REPOSITORY, Result, Run, environment, process

DOCS = REPOSITORY / "docs"
TUTORIAL = DOCS / "tutorial.md"
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "AGENTS.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("papers/*.md")),
]
GENERATED = ("index.md", "contributing.md", "changelog.md", "agents.md")  # copies, made by the build
PARTS = "tutorial_parts"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> Iterator[tuple[list[str], bool]]:
    """Arguments of each `mobench` line of a page's shell blocks, and whether it is refused."""
    for block in blocks(page, "bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["mobench"] and words[1] not in WORDS:
                yield words[1:], "exit code 2" in line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_on_files_are_spelled_right(page: Path) -> None:
    for block in blocks(page, "bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["mobench"] and words[1] in parsers():
                parsers()[words[1]].parse_args(words[2:])
            if words[:3] == ["mobench", "cross", "merge"]:
                cross.parser().parse_args(words[3:])


def test_no_page_says_that_the_package_index_has_mobench() -> None:
    """The name is free there; whoever takes it could serve anything."""
    for page in [*PAGES, REPOSITORY / "CHANGELOG.md"]:
        assert not re.search(r"pip install (-U |--upgrade )?['\"]?mobench", page.read_text()), page


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the tutorial writes."""
    folder = tmp_path_factory.mktemp("tutorial")
    text = TUTORIAL.read_text()
    files = re.findall(r"`(mine/[\w./]+)`[^`]*\n\n```\w+\n(.*?)```", text, re.DOTALL)
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    assert sorted(Path(name).name for name, _ in files) == [
        "heavy_ball.yaml",
        "tutorial_parts.py",
        "valley.yaml",
    ]
    return folder


def test_the_page_on_training_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs, in order; the networks follow their preferences as the page says."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    text = (REPOSITORY / "docs" / "training.md").read_text()
    scope: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(compile(block, "docs/training.md", "exec"), scope)
    ends = scope["ends"]
    assert (ends[:-1, 0] > ends[1:, 0]).all()
    assert (ends[:-1, 1] < ends[1:, 1]).all()
    ratio = ends[:, 1] / ends[:, 0]
    wanted = [w / (1 - w) for w, _ in scope["preferences"]]
    assert all(0.5 < share / ray < 2.0 for share, ray in zip(ratio.tolist(), wanted, strict=True)), ratio
    assert scope["weights"].shape == (100, 3)
    assert sorted(scope["rows"]["seed"]) == [0, 1]
    assert {path.name for path in tmp_path.glob("runs/*/best.pt")} == {"best.pt"}
    # in mixed precision each step was made or skipped by the scaler
    skipped = 16 - math.log2(scope["scaler"].get_scale())
    assert scope["optimizer"].state_dict()["method"]["t"] == 20 - skipped
    assert skipped < 5


def test_the_page_on_networks(tmp_path: Path, mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs, in order, with fewer steps; then the file on the command line."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = (REPOSITORY / "docs" / "networks.md").read_text()
    scope: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        shorter = block.replace("steps=1500", "steps=10").replace("steps=400", "steps=150")
        exec(compile(shorter, "docs/networks.md", "exec"), scope)
    assert len(scope["networks"]) == 14
    assert (scope["rows"]["status"] == "done").all()
    assert "ended" in scope["rows"]
    assert (scope["best"]["kept"] > 0).all()
    Path("digits.py").write_text(blocks(DOCS / "networks.md", "python")[-1])
    for words, _ in commands(DOCS / "networks.md"):
        here = [word for word in words if not word.startswith(("hydra", "steps="))]
        result = mobench(*here, "steps=3", root=tmp_path / "named")
        assert result.code == 0, result.err
    assert len(result.folders) == 3


def test_the_page_for_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program; its commands are planned below, and the files and sections that it names exist."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    page = REPOSITORY / "AGENTS.md"
    (program,) = blocks(page, "python")
    scope: dict[str, Any] = {}
    exec(compile(program, "AGENTS.md", "exec"), scope)
    assert len(scope["rows"]) == 20
    assert len(scope["history"]) > 20
    assert len(scope["best"]) == 1
    for path in re.findall(r"\]\(([\w./]+)", page.read_text()):
        assert (REPOSITORY / path).is_file(), path
    headings = [
        line for line in (REPOSITORY / "CONTRIBUTING.md").read_text().splitlines() if line[:3] == "## "
    ]
    places = {re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-") for line in headings}
    assert set(re.findall(r"CONTRIBUTING.md#([\w-]+)", page.read_text())) <= places
    for path in re.findall(r"pytest -q (\S+)", page.read_text()):
        assert (REPOSITORY / path).exists(), path


def test_the_page_on_an_afternoon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs, in order, with fewer epochs and one seed; it is as short as it says."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    programs = blocks(DOCS / "afternoon.md", "python")
    (lines,) = re.findall(r"This is the afternoon, (\d+) lines", (DOCS / "afternoon.md").read_text())
    assert sum(bool(line.strip()) for line in "".join(programs[1:]).splitlines()) == int(lines) <= 40
    scope: dict[str, Any] = {}
    for block in programs:
        shorter = block.replace("15 * 19", "3 * 19").replace("[0, 1, 2]", "[0]")
        exec(compile(shorter, "docs/afternoon.md", "exec"), scope)
    rows = scope["rows"]
    assert len(rows) == 15
    assert (rows["status"] == "done").all()
    assert set(rows["algorithm"]) == {"ls", "stch", "epo", "ferero", "upgrad"}
    assert set(rows["kept"]) <= {0, 19, 38, 57}
    x, digit, _ = scope["load"]("validation")
    accuracy = (scope["net"](x)[0].argmax(1) == digit).float().mean().item()
    assert any(abs(accuracy - final) < 1e-6 for final in rows["accuracy"])
    assert (tmp_path / "front.pdf").exists()


def expanded(words: list[str], place: Path) -> list[str]:
    return [word.replace("$PWD", str(place)) for word in words]


def test_the_tutorial(
    place: Path, mobench: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of its commands and programs, in the order of the page; the one for Slurm has a test of its own."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [*sys.path, str(place / "mine" / "code")])
    root = place / "outputs"
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(root))
    seen: list[str] = []
    printed: list[str] = []
    scope: dict[str, Any] = {}
    first: Result | None = None
    began = 0.0
    for language, block in re.findall(
        r"^```(bash|python)\n(.*?)^```", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE
    ):
        if language == "python":
            began = time.time() if not printed else began
            if "class Valley" not in block:
                exec(compile(block, str(TUTORIAL), "exec"), scope)
                printed.append(capsys.readouterr().out)
            continue
        for line in block.splitlines():
            words = expanded(shlex.split(line, comments=True), place)
            seen.append(words[0])
            if words[0] == "mobench" and "hardware=slurm" not in words:
                result = mobench(*words[1:], root=root)
                first = first or result
                assert result.code == (2 if "exit code 2" in line else 0), (line, result.err)
                if result.code:
                    assert "Did you mean 'vlmop2'?" in result.err
                assert "failed" not in result.out or words[1] != "status"
            else:
                assert words[0] in ("mobench", "export"), line
    sys.modules.pop(PARTS, None)
    assert seen.count("mobench") == 10
    assert first is not None
    (path,) = re.findall(r"^(\S+vlmop2-ferero-\w+)", printed[0], re.MULTILINE)
    assert Path(path).name in first.out  # the job of the command line, read and not run again
    assert (Path(path) / "final.csv").stat().st_mtime < began
    assert "0.63212" in printed[0]  # the middle preference ends where both wells weigh the same, at 1 - 1/e
    folders = [JobFolder(path) for path in (root / "runs").iterdir()]
    keys = [folder.key.rpartition("-")[0] for folder in folders]
    assert {"valley-heavyball", "valley-mgda", "vlmop2-heavyball", "own-mgda"} <= set(keys)
    assert all(
        (folder.final()["status"] == "done").all() for folder in folders if folder.key.startswith("valley")
    )
    varied = next(f for f in folders if "beta" in f.final() and f.key.startswith("valley"))
    assert sorted(varied.final()["beta"]) == [0.0, 0.5, 0.9]
    table = pd.read_csv(root / "artifacts" / "cross" / "zoo" / "table.csv")
    assert "heavy_ball" in table.to_string()
    assert (root / "report" / "index.html").exists()


def planned_here() -> Iterator[tuple[str, list[str]]]:
    """Page and overrides of each command that this file plans."""
    for page in PAGES:
        if page.parent == DOCS and page.name in (*GENERATED, "results.md"):
            continue  # commands of results were recorded when they ran
        for words, refused in commands(page):
            # a folder of one's own, a group of artifacts (which are planned one by one elsewhere), flags,
            # others' sweepers
            if refused or any(
                "searchpath" in w
                or w.endswith("/all")
                or w.startswith(("--", "hydra/sweeper=", "problem=digits.py"))
                or "..." in w
                for w in words
            ):
                continue
            # data_root=DIR stands for the reader's folder
            left_out = ("hardware=", "hydra", "data_root=")
            yield page.name, [w for w in words if w != "-m" and not w.startswith(left_out)]


def official(words: list[str]) -> tuple[str, ...]:
    """The official data sets that a command names: those in the file of its data=NAME."""
    chosen = [word.split("=", 1)[1] for word in words if word.startswith("data=")]
    in_configs = [
        str(v)
        for name in chosen
        for v in yaml.safe_load((conf_dir() / f"data/{name}.yaml").read_text()).values()
    ]
    return tuple(name for name in OFFICIAL if name in in_configs or name in chosen)


def is_artifact(words: list[str]) -> bool:
    return any(word.startswith("+experiment=") for word in words)


OFFICIAL = (
    "mnist", "fashion_mnist", "cifar10", "cifar100", "rf1", "celeba", "speech_small", "librispeech_aishell",
)  # fmt: skip
COMMANDS = [pytest.param(words, id=f"{page}: {shlex.join(words)}") for page, words in planned_here()]
WITH_DATA = [
    pytest.param(*case.values, id=case.id, marks=pytest.mark.data(*official(case.values[0])))
    for case in COMMANDS
    if official(case.values[0])
]


def test_files_that_the_pages_name_exist() -> None:
    """Guides may name files that their reader writes; every other path is one of the repository."""
    guides = {"plugins.md", "tutorial.md", "running.md", "CONTRIBUTING.md", *GENERATED}
    pattern = re.compile(r"\b(?:mobench|experiments|tests|conf)/[\w/]+\.(?:py|yaml|csv|md)\b")
    gone = [
        f"{page.name}: {path}"
        for page in PAGES
        if page.name not in guides
        for path in pattern.findall(page.read_text())
        if not (REPOSITORY / path).exists()
    ]
    assert not gone


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_can_be_planned(
    words: list[str], planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, keys and values exist, and pairs fit; nothing is run.

    What an official data set decides is checked below.
    """
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    if is_artifact(words):
        config = planner.composer.compose(normalise(words))  # its jobs are made in tests/test_join.py
        assert config["artifact"]["id"]
        return
    if official(words):
        monkeypatch.setattr(
            planner, "use", Use.NOWHERE
        )  # as mobench status plans: jobs are named, no data are read
    plan = planner.plan(normalise(words))
    assert plan.jobs
    assert not plan.problems


@pytest.mark.parametrize("words", WITH_DATA)
def test_every_command_on_official_data_can_be_planned(
    words: list[str], planner: Planner, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and classes of the official sets fit too."""
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    plan = planner.plan(normalise([*words, f"data_root={data_folder}"]))
    assert plan.jobs
    assert not plan.problems


# the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", f"{out}/trees"]
    line = [sys.executable, "-m", "sphinx", *options, str(DOCS), f"{out}/html"]
    done = process(line, 400, env=environment(out))
    # a warning is an error: missing pages, links and anchors among them
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.mark.timeout(400)
def test_the_site(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in sorted(site.rglob("*.html"))}
    outside = re.compile(r"""<(?:\w+[^>]*\ssrc|link[^>]*\shref)=["'](?:https?:)?//""")
    assert [name for name, text in pages.items() if outside.search(text)] == []  # reads without a network
    # every module has its place in the reference, every class that a configuration names is linked to it
    reference = "".join(page for name, page in pages.items() if name.startswith("api/"))
    for path in sorted((REPOSITORY / "mobench").rglob("*.py")):
        if not path.stem.startswith("_") and "conf" not in path.parts:
            module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            assert f'id="module-{module}"' in reference, module
    choices = pages["api/choices.html"]
    linked = re.findall(r'href="[\w.]+#(mobench\.[\w.]+)"', choices)
    assert len(set(linked)) > 50
    assert all(f'id="{name}"' in reference for name in linked)
    groups = ("problem", "algorithm", "oracle", "constraint", "space")
    files = [path for group in groups for path in (REPOSITORY / "conf" / group).rglob("*.yaml")]
    targets = {t for path in files for t in re.findall(r"^_target_: (mobench\.\S+)", path.read_text(), re.M)}
    assert len(targets) <= len(linked)
    # the paper's pages are those of the experiments
    experiments = {path.name for path in (REPOSITORY / "conf" / "experiment").iterdir() if path.is_dir()}
    assert experiments == {path.stem for path in DOCS.glob("papers/*.md")}
