"""Packages import only what their docstrings say that they may, and nothing imports in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "mobench"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
MODULES = {path.stem for path in PACKAGE.glob("*.py")}
OUTSIDE = {"experiments"}  # beside the package in a checkout, inside it when installed


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Modules of mobench that a file imports at run time, wherever in the file, with the line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing_only |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name.startswith("mobench"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mobench"):
            assert node.level == 0
            if node.module == "mobench":
                yield from ((f"mobench.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield str(node.module), node.lineno


def allowed(room: str) -> set[str]:
    """The packages that the docstring lists after `May import:`."""
    doc = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    (listed,) = re.findall(r"May import: ([\w, \n]+)\.", doc)
    return set(re.split(r",\s+", listed))


def used(room: str) -> dict[str, str]:
    """Rooms, and modules at the root, that a package imports, each with a place."""
    places: dict[str, str] = {}
    for path in sorted((PACKAGE / room).rglob("*.py")):
        for module, line in imported(path):
            top = module.split(".")[1] if "." in module else ""
            if top in {*ROOMS, *MODULES} - {room}:
                places.setdefault(top, f"{path.relative_to(REPOSITORY)}:{line}")
    return places


@pytest.mark.parametrize("room", ROOMS)
def test_a_package_imports_what_it_says(room: str) -> None:
    """No more and no less: an arrow that is gone leaves the docstring, too."""
    places = used(room)
    assert {top: place for top, place in places.items() if top not in allowed(room)} == {}
    assert sorted(allowed(room) - places.keys()) == []


def test_no_circle_between_packages() -> None:
    arrows = {room: {top for top in used(room) if top in ROOMS} for room in ROOMS}
    left = dict(arrows)
    while left:
        free = [room for room, tops in left.items() if not tops & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for room in free:
            del left[room]


def test_few_modules_at_the_root() -> None:
    assert sorted(MODULES) == ["__init__", "__main__", "api", "errors"]


def test_the_core_knows_nothing_of_the_rest() -> None:
    assert set(used("core")) == {"errors"}


def test_no_paper_in_the_library() -> None:
    """A paper's artifacts are in experiments/; the library has its methods, with their citations."""
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] not in OUTSIDE:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            assert not [name for name in modules if name.startswith("experiments")], path


def test_summaries_are_sentences_or_names() -> None:
    """A docstring says what a thing does ("Returns ...") or is ("The rows of ...")."""
    riddles = ("What", "Whether", "Of", "Those", "How", "Which", "Where", "Who")
    kinds = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    riddling = [
        f"{path}: {text.splitlines()[0]}"
        for folder in (PACKAGE, REPOSITORY / "experiments")
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds) and (text := ast.get_docstring(node)) and text.split()[0] in riddles
    ]
    assert not riddling
