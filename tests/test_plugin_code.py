"""Edited code of a plug-in is another job, and code that cannot be known runs anew."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobench.jobs import fingerprint
from mobench.jobs.fingerprint import Opaque, of_class
from tests.conftest import REPOSITORY, Run, environment, process

PARTS = "mobench_test_parts"
HELP = "mobench_test_help"

CODE = {
    f"{HELP}/__init__.py": "POWER = 2.0\nUNUSED = 1\n",
    f"{HELP}/deeper.py": '''
        from . import POWER

        class Base:
            """What both share."""

            def shared(self, x):
                return x ** POWER

        def bowl(x, c, scale=1.0):
            return scale * ((x - c) ** 2).sum(1)

        def late(x):
            return x + 1.0
    ''',
    f"{PARTS}.py": '''
        from __future__ import annotations

        import logging
        from dataclasses import dataclass, field
        from pathlib import Path
        from typing import ClassVar

        import torch

        from mobench.core import Info, Problem, Weighting
        from mobench_test_help import deeper
        from mobench_test_help.deeper import Base, late

        HERE = Path(__file__).parent
        __ZERO = 0.0
        CENTRES = [1.0, -1.0]
        SEEN = {}
        log = logging.getLogger(__name__)


        def scaled(factor):
            return lambda x: factor * x


        half, double = (lambda x: 0.5 * x), (lambda x: 2.0 * x)
        triple = scaled(3.0)


        def soft(f):
            return f + __ZERO


        BY_NAME = {"soft": soft}


        @dataclass(frozen=True, kw_only=True)
        class Bowls(Base, Problem):
            """Two bowls."""

            n: int = 3
            tags: list = field(default_factory=lambda: ["a"])
            limit: ClassVar[float] = 4.0

            @property
            def n_objectives(self):
                return 2

            @property
            def dim(self):
                return self.n

            def values(self, x, batch=None):
                """Both."""
                SEEN[len(SEEN)] = 1.0
                log.debug("at %s in %s", x, HERE)
                f = BY_NAME["soft"](torch.stack([deeper.bowl(x, c) for c in CENTRES], 1))
                return half(double(triple(f)))

            def columns(self, x, values):
                return {"size": late(x.norm(dim=1))}


        @dataclass(frozen=True, kw_only=True)
        class Even(Weighting):
            """All alike."""

            fails_at: int = -1

            def weights(self, F, G, state, t):
                return torch.full_like(F, 0.5), state, Info()
    ''',
    "conf/problem/bowls.yaml": f"_target_: {PARTS}.Bowls\nsteps: 12\nstart: {{kind: uniform, low: -2.0, "
    f"high: 2.0}}\n",
    "conf/algorithm/even.yaml": f"_target_: {PARTS}.Even\nstep_size: 0.02\n",
}


def write(folder: Path, *edits: tuple[str, str]) -> None:
    """The plug-in, with parts of its text replaced."""
    left = dict(edits)
    for name, text in CODE.items():
        text = textwrap.dedent(text)
        for old, new in edits:
            if old in text:
                text = text.replace(old, new)
                left.pop(old, None)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert not left, f"edited nothing: {left}"


def forget() -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] in (PARTS, HELP)]:
        del sys.modules[name]
    importlib.invalidate_caches()


Hash = Callable[..., str]


@pytest.fixture
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hash]:
    """The hash of a class of the plug-in with some edits, imported anew."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def of(*edits: tuple[str, str], name: str = "Bowls", folder: str = "mine") -> str:
        write(tmp_path / folder, *edits)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(tmp_path / folder))
            forget()
            return of_class(getattr(importlib.import_module(PARTS), name))

    yield of
    forget()


EDITS = {
    "a method": ("half(double(triple(f)))", "half(triple(f))"),
    "its constant": ("** 2).sum(1)", "** 3).sum(1)"),
    "a default of a helper": ("scale=1.0", "scale=2.0"),
    "a constant of the module": ("CENTRES = [1.0, -1.0]", "CENTRES = [1.0, -2.0]"),
    "a constant of the package": ("POWER = 2.0", "POWER = 3.0"),
    "a base class": ("x ** POWER", "x * POWER"),
    "what a closure holds": ("scaled(3.0)", "scaled(4.0)"),
    "one of two lambdas in a line": ("0.5 * x", "0.25 * x"),
    "the other of them": ("2.0 * x", "2.5 * x"),
    "a default made by a function": ('["a"]', '["b"]'),
    "an attribute of the class": ("limit: ClassVar[float] = 4.0", "limit: ClassVar[float] = 5.0"),
    "a function of another file": ("x + 1.0", "x + 2.0"),
    "measures": ('{"size":', '{"length":'),
    "a property": ("return self.n", "return self.n + 1"),
    "a private constant": ("__ZERO = 0.0", "__ZERO = 1.0"),
    "an order": ("kw_only=True)\nclass Bowls", "kw_only=True, order=True)\nclass Bowls"),
    "a hook of Python's": (
        "class Bowls(Base, Problem):",
        "class Bowls(Base, Problem):\n    def __init_subclass__(cls): cls.limit = 2.0",
    ),
    "a new method": (
        "class Bowls(Base, Problem):",
        "class Bowls(Base, Problem):\n    def twice(self): return 2",
    ),
}

SAME = {
    "a comment": ("f = BY_NAME", "# both at once\n        f = BY_NAME"),
    "empty lines": ("HERE =", "\n\n\nHERE ="),
    "a docstring": ('"""Two bowls."""', '"""Two bowls, side by side."""'),
    "an annotation": (
        "def values(self, x, batch=None):",
        "def values(self, x: torch.Tensor, batch: object = None):",
    ),
    "spaces": ("0.5 * x", "0.5*x"),
    "another class": ("torch.full_like(F, 0.5)", "torch.full_like(F, 0.25)"),
    "what nothing uses": ("UNUSED = 1", "UNUSED = 2"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edited_code_is_another_job(hashed: Hash, edit: str) -> None:
    before = hashed()
    assert hashed(EDITS[edit]) != before
    assert hashed() == before


@pytest.mark.parametrize("edit", SAME)
def test_what_computes_nothing_else_is_the_same_job(hashed: Hash, edit: str) -> None:
    assert hashed(SAME[edit]) == hashed()


def test_a_cache_that_fills_up_is_the_same_job(hashed: Hash) -> None:
    before = hashed()
    module = sys.modules[PARTS]
    module.SEEN[0] = 1.0
    assert of_class(module.Bowls) == before
    module.CENTRES = [1.0, -3.0]  # another value under the name
    assert of_class(module.Bowls) != before


def test_code_changed_in_place_is_another_job(hashed: Hash) -> None:
    """As IPython's autoreload does it: the function stays, its code is replaced."""
    before = hashed()
    module = sys.modules[PARTS]
    module.soft.__code__ = (lambda f: f + 1.0).__code__
    assert of_class(module.Bowls) != before


def test_a_file_edited_after_its_import_does_not_pass_for_what_runs(hashed: Hash, tmp_path: Path) -> None:
    old = hashed()
    module = sys.modules[PARTS]
    write(tmp_path / "mine", EDITS["its constant"])  # on disk only: the old code runs
    stale = of_class(module.Bowls)
    assert stale != hashed(EDITS["its constant"])
    assert hashed() == old


def test_what_cannot_be_known_is_said(hashed: Hash) -> None:
    with pytest.raises(Opaque, match="uses eval"):
        hashed(("half(double(triple(f)))", "eval('f')"))
    late = ("f = BY_NAME", "from mobench_test_help import deeper as other; f = BY_NAME")
    with pytest.raises(Opaque, match="imports 'mobench_test_help' while it runs; import it at the top"):
        hashed(late)
    with pytest.raises(Opaque, match="a value contains itself"):
        hashed(("SEEN = {}", "SEEN = {}\nSEEN[0] = SEEN"))
    with pytest.raises(Opaque, match="type lock"):
        hashed(("SEEN = {}", "import threading\nSEEN = threading.Lock()"))
    hashed(("log.debug(", "open(HERE / 'data.csv').close() or log.debug("))  # files are data, no code


PROGRAM = """
import sys
sys.dont_write_bytecode = True
sys.path[:0] = sys.argv[1:]
from mobench.jobs.fingerprint import of_class
import mobench_test_parts
print(of_class(mobench_test_parts.Bowls))
"""


def test_another_process_has_the_same_hash(hashed: Hash, tmp_path: Path) -> None:
    here = hashed()
    line = [sys.executable, "-c", PROGRAM, str(REPOSITORY), str(tmp_path / "mine")]
    done = process(line, env=environment(tmp_path, PYTHONHASHSEED="7"))
    assert done.stdout.strip() == here, done.stderr


# jobs


QUICK = ("problem=bowls", "algorithm=even", "preferences=2", "seeds=[0]", "logger=local", "progress=false")


@pytest.fixture
def plugged(mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`mobench` with the plug-in as it is after some edits, imported anew as a new process does."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))

    def run(*arguments: str, edits: tuple[tuple[str, str], ...] = (), root: Path | None = None) -> Any:
        write(tmp_path / "mine", *edits)
        forget()
        return mobench(
            f"hydra.searchpath=[file://{tmp_path / 'mine' / 'conf'}]", *QUICK, *arguments, root=root
        )

    yield run
    forget()


@pytest.mark.parametrize("edit", ["a method", "measures", "a constant of the package"])
def test_rows_of_other_code_are_not_served(plugged: Any, edit: str) -> None:
    first = plugged()
    assert first.code == 0, first.err
    assert "already finished" in plugged().out
    other = plugged(edits=(EDITS[edit],))
    assert other.code == 0, other.err
    assert "already finished" not in other.out
    assert len(other.folders) == 2
    assert "already finished" in plugged().out  # and back


STOP = (
    "return torch.full_like(F, 0.5)",
    'if t == self.fails_at: raise RuntimeError("stopped")\n        return torch.full_like(F, 0.5)',
)
HALF_WAY = ("++algorithm.fails_at=6", "checkpoint.seconds=0")


@pytest.mark.parametrize("edit", ["a method", "measures"])
def test_a_trajectory_is_not_continued_by_other_code(plugged: Any, tmp_path: Path, edit: str) -> None:
    """Stopped in the middle, then edited: the job starts anew, and its rows are those of the new code."""
    stopped = plugged(*HALF_WAY, edits=(STOP,))
    assert stopped.code == 1
    old = stopped.job.key
    assert (stopped.job.path / "checkpoint.pt").exists()
    edits = (EDITS[edit], (STOP[0], STOP[1].replace("t ==", "-t ==")))
    after = plugged(*HALF_WAY, edits=edits)
    assert after.code == 0, after.err
    fresh = plugged(*HALF_WAY, edits=edits, root=tmp_path / "fresh")
    (done,) = [f for f in after.folders if f.key != old]
    assert done.key == fresh.job.key
    np.testing.assert_array_equal(done.final()["f_1"], fresh.rows["f_1"])


@pytest.mark.parametrize("mode", [(), ("-m",)])
def test_code_that_cannot_be_known_runs_anew(plugged: Any, mode: tuple[str, ...]) -> None:
    edits = (("half(double(triple(f)))", "eval('half')(f)"),)
    first = plugged(*mode, edits=edits)
    assert first.code == 0, first.err
    assert "will not be reused" in first.err
    assert "Bowls: Bowls.values uses eval" in first.err
    old = first.rows["f_1"]
    again = plugged(*mode, edits=(("half(double(triple(f)))", "eval('double')(f)"),))
    assert "already finished" not in again.out.replace("0 already finished", "")
    assert again.job.key == first.job.key
    assert (again.rows["f_1"] > 2.0 * old).all()


def test_code_that_cannot_be_known_does_not_continue(plugged: Any) -> None:
    """Stopped with a checkpoint: the next command cannot know its code, and begins at the start."""
    where = "half(double(triple(f)))"
    long = ("checkpoint.seconds=0", "steps=200", "record.every=1")
    stopped = plugged(*long, edits=((where, "eval('half if len(SEEN) < 120 else None')(f)"),))
    assert stopped.code == 1
    assert (stopped.job.path / "checkpoint.pt").exists()
    after = plugged(*long, edits=((where, "eval('double')(f)"),))
    assert after.code == 0, after.err
    history = after.job.history()
    fresh = plugged(*long, "rerun=true", edits=((where, "eval('double')(f)"),)).job.history()
    np.testing.assert_array_equal(history["f_1"], fresh["f_1"])


def test_columns_that_come_and_go_are_named(plugged: Any) -> None:
    edit = (
        'return {"size": late(x.norm(dim=1))}',
        'return {"size": late(x.norm(dim=1))} if len(SEEN) < 40 else {}',
    )
    result = plugged("record.every=1", "steps=40", edits=(edit,))
    result.refused("different columns from step 0", "last/size", "same names in every step", code=1)


def test_walk_of_mobenchs_own_parts_is_by_version(hashed: Hash, monkeypatch: pytest.MonkeyPatch) -> None:
    from mobench.core import Problem

    before = hashed()
    monkeypatch.setattr(Problem, "twice", False)  # edited: its version says when it matters
    assert hashed() == before
    monkeypatch.setattr(Problem, "version", 2)
    assert hashed() != before
    assert fingerprint.is_own(sys.modules[PARTS].Bowls)
    assert not fingerprint.is_own(Problem)
