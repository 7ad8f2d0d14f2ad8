"""The wheel outside of the checkout: it finds its own configuration, experiments, kept rows and templates.

What hatchling puts into the wheel follows from three entries of pyproject.toml, which are read here, so that
no network and no build backend is needed; where hatchling is installed, its own wheel has to hold the same
files.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY, environment, process

# every file that Python opens is noted, if it lies in the checkout; the interpreter's own packages may lie
# there as well
WATCH = """
import os, sys

def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        path = os.path.abspath(arguments[0])
        if path.startswith({root!r} + os.sep) and not path.startswith({prefix!r}):
            with os.fdopen(os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a") as log:
                log.write(path + "\\n")

sys.addaudithook(note)
"""


def listed() -> dict[str, Path]:
    """Path in the wheel -> file in the checkout, as [tool.hatch.build.targets.wheel] says."""
    hatch = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]
    assert set(wheel) == {"packages", "force-include"}, "this test reads no other entries"
    folders = {name: name for name in wheel["packages"]} | wheel["force-include"]
    return {
        f"{target}/{path.relative_to(REPOSITORY / source)}": path
        for source, target in folders.items()
        for path in sorted((REPOSITORY / source).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and ".git" not in path.name
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel; two of its files differ from the checkout's, which rows and drawings must show."""
    root = tmp_path_factory.mktemp("wheel")
    for name, source in listed().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, root / name)
    head = "from __future__ import annotations\n"
    for name, old, new in (
        ("conf/problem/vlmop2.yaml", "noise: 0.1", "noise: 0.125"),
        ("experiments/ferero/runs.py", head, f"{head}print('drawn by the wheel')\n"),
    ):
        path = root / "mobench" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
    return root


def python(wheel: Path, here: Path, *arguments: str) -> str:
    """Runs Python in the folder `here` with the wheel alone; nothing of the checkout may be opened."""
    log = here / "opened"
    watch = WATCH.format(root=str(REPOSITORY), prefix=str(Path(sys.prefix)), log=str(log))
    (wheel / "sitecustomize.py").write_text(watch)
    env = environment(here / "outputs", PYTHONPATH=str(wheel), MPLBACKEND="Agg")
    done = process([sys.executable, *arguments], cwd=here, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not log.exists(), log.read_text()
    return done.stdout


def test_a_job_and_an_artifact_outside_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """The command, the Python interface, which reads what the first has written, and an artifact."""
    program = """
        import mobench, mobench.cli.entry
        options = dict(problem="vlmop2", steps=3, preferences=2, logger="local")
        assert mobench.cli.entry.called([f"{key}={value}" for key, value in options.items()]) == 0
        rows = mobench.run(**options)
        drawing = ["+experiment=ferero/fig7", "scale=smoke", "logger=local"]
        assert mobench.cli.entry.called(drawing) == 0
        print("START", mobench.load(rows).config["problem"]["start"]["noise"])
        print("FROM", mobench.__file__)
    """
    said = python(wheel, tmp_path, "-c", textwrap.dedent(program))
    assert "START 0.125" in said
    assert f"FROM {wheel / 'mobench'}" in said
    (folder,) = (tmp_path / "outputs" / "runs").glob("vlmop2-mgda-*")
    assert "drawn by the wheel" in said
    drawn = tmp_path / "outputs" / "artifacts" / "ferero" / "fig7"
    assert (drawn / "figure.png").stat().st_size > 1000
    assert json.loads((drawn / "claims.json").read_text())
    assert yaml.safe_load((folder / "config.yaml").read_text())["steps"] == 3


def test_what_belongs_into_the_wheel() -> None:
    names = set(listed())
    for name in (
        "mobench/conf/config.yaml",
        "mobench/conf/experiment/ferero/fig7.yaml",
        "mobench/experiments/ferero/runs.py",
        "mobench/experiments/ferero/published/table1.csv",
        "mobench/report/templates/index.html",
        "mobench/__main__.py",
        "mobench/bundle/about.md",
        "mobench/locks/full.txt",
    ):
        assert name in names
    assert any(name.startswith("mobench/experiments/results/runs/") for name in names)  # rows at paper scale
    assert not any(name.endswith((".pt", ".lock", ".ckpt")) for name in names)


def test_hatchlings_wheel_holds_these_files(tmp_path: Path) -> None:
    reason = "the list of files is read from pyproject.toml"
    for needed in ("hatchling", "hatch_fancy_pypi_readme"):
        pytest.importorskip(needed, reason=f"{needed} is not installed; {reason}")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=120, check=True)
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        files = {n for n in archive.namelist() if ".dist-info/" not in n}
        entry_points = next(
            archive.read(n).decode() for n in archive.namelist() if n.endswith("entry_points.txt")
        )
        metadata = next(archive.read(n).decode() for n in archive.namelist() if n.endswith("METADATA"))
    assert files == set(listed())
    # a package shows no picture and no page of the repository under a relative name
    description = metadata.partition("\n\n")[2]
    assert "# mobench" in description
    assert "your own networks" in description
    assert [link for link in re.findall(r"\]\(([^)]+)\)", description) if not link.startswith("#")] == []
    assert "mobench = mobench.cli.entry:main" in entry_points


def test_no_address_that_is_not_the_projects_own() -> None:
    """Whoever has an account of this name could put anything there."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    pattern = re.compile(
        rb"(?:github\.com|githubusercontent\.com|readthedocs\.io|pypi\.org/project)/+mobench", re.I
    )
    here = Path(__file__).relative_to(REPOSITORY).as_posix()
    mentions = [
        name
        for name in files.decode().split("\0")
        if name not in ("", here)
        and (REPOSITORY / name).is_file()
        and pattern.search((REPOSITORY / name).read_bytes())
    ]
    assert mentions == []


def requirements(name: str) -> dict[str, str]:
    """Package -> version of a lock, which holds names, versions, markers and hashes only."""
    versions = {}
    line = re.compile(r"([a-z0-9][a-z0-9.-]*)==([\w.!+]+)( ; [\w .'<>=!()]+)? \\")
    for text in (REPOSITORY / "locks" / name).read_text().splitlines():
        if match := line.fullmatch(text):
            assert match[1] not in versions or match[3]
            versions[match[1]] = match[2]
        else:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", text), text
    return versions


def test_locks_hold_every_dependency() -> None:
    """`make lock` writes them."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = [entry for group in project["optional-dependencies"].values() for entry in group]
    full = requirements("full.txt")
    light = requirements("light.txt")
    for wanted, lock in ((project["dependencies"], light), ([*project["dependencies"], *extras], full)):
        for text in wanted:
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            assert name in lock, f"{name} is not locked: make lock"
            assert lock[name] in requirement.specifier, f"{text} does not allow the locked {lock[name]}"
    assert {name: full[name] for name in light} == light


def test_the_version_is_said_once() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["version"] == version
    assert f"version = {{{version}}}" in (REPOSITORY / "README.md").read_text()
    assert f"\n## {version} (" in (REPOSITORY / "CHANGELOG.md").read_text()
