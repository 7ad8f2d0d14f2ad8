"""What the sources may not do, read from their syntax trees; and that an API key is written nowhere.

Every rule is a function from a module to what breaks it. It is tested on snippets that break it, then used on
all sources.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import io
import os
import pickle
import re
import secrets
import subprocess
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import mobench
from mobench.data import images
from mobench.data.fewshot import load_fewshot
from mobench.data.images import load_images
from mobench.errors import DataError
from tests.conftest import shell
from tests.test_wandb import records

PACKAGE = Path(mobench.__file__).resolve().parent
THIS = Path(__file__).name  # its snippets break every rule
OURS = ("mobench", "experiments")
TEXT = (".yaml", ".yml", ".md", ".toml", ".cfg", ".sh", "Makefile")


# --- sources ------------------------------------------------------------------------------------------------


def listed() -> tuple[Path, list[str]]:
    """The root and the paths below it: what git tracks or would track, else the files that are there."""
    root = PACKAGE.parent
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0:
            return root, sorted({p for p in done.stdout.split("\0") if p and (root / p).is_file()})
    found = list(PACKAGE.rglob("*"))
    if (root / "pyproject.toml").is_file():  # else this is a folder of all packages
        found += [*root.glob("*.*"), root / "Makefile"]
        found += [p for top in ("experiments", "conf", "tests", "docs") for p in (root / top).rglob("*")]
    return root, sorted(str(p.relative_to(root)) for p in found if p.is_file())


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """path -> text of all sources but this one."""
    root, paths = listed()
    wanted = [p for p in paths if p.endswith((".py", *TEXT)) and Path(p).name != THIS]
    found = {p: (root / p).read_text(encoding="utf-8") for p in wanted}
    if not any(p.endswith(".py") for p in found):
        pytest.skip(f"there are no sources below {root}")
    return found


@pytest.fixture(scope="module")
def modules(texts: dict[str, str]) -> dict[str, ast.Module]:
    """path -> tree of all modules, and of the Python examples in documents."""
    found = {p: ast.parse(text, p) for p, text in texts.items() if p.endswith(".py")}
    for path, text in texts.items():
        if path.endswith(".md"):
            for k, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
                found[f"{path}#{k}"] = ast.parse(textwrap.dedent(block), path)
    return found


@dataclass(frozen=True)
class Use:
    """A name where it is read, `np.load` as numpy.load; its call, if it is called;
    the function around it ("": none).
    """

    name: str
    line: int
    call: ast.Call | None
    function: str

    def argument(self, keyword: str, position: int | None = None) -> Any:
        """The literal that is given; None where there is no such argument; ... for all but a literal,
        and for **options.
        """
        assert self.call is not None
        given = [k.value for k in self.call.keywords if k.arg == keyword]
        if position is not None and len(self.call.args) > position:
            given.append(self.call.args[position])
        if not given:
            return ... if any(k.arg is None for k in self.call.keywords) else None
        return given[0].value if isinstance(given[0], ast.Constant) else ...


def imported(tree: ast.AST) -> dict[str, str]:
    """Local name -> dotted name."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                names[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module or ''}.{a.name}" for a in node.names}
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """`a.b.c`; a call in between is `()`, getattr with a literal is an attribute, anything else is `?`."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, names)}.{node.attr}"
    if isinstance(node, ast.Call):
        if (
            isinstance(node.func, ast.Name)
            and node.func.id == "getattr"
            and isinstance(node.args[1], ast.Constant)
        ):
            return f"{dotted(node.args[0], names)}.{node.args[1].value}"
        return f"{dotted(node.func, names)}()"
    return "?"


def uses(tree: ast.AST) -> Iterator[Use]:
    """Every name that is read, and every module that is imported (as `import NAME`)."""
    names = imported(tree)

    def visit(node: ast.AST, function: str, call: ast.Call | None) -> Iterator[Use]:
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            yield from (Use(f"import {a.name}", line, None, function) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Use(f"import {node.module}", line, None, function)
            yield from (Use(f"import {node.module}.{a.name}", line, None, function) for a in node.names)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield Use(dotted(node, names), line, call, function)
        elif isinstance(node, ast.Call):
            target = dotted(node.func, names)
            if target in ("importlib.import_module", "__import__") and isinstance(node.args[0], ast.Constant):
                yield Use(f"import {node.args[0].value}", line, None, function)
            if target == "getattr":
                yield Use(dotted(node, names), line, call, function)
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        for child in ast.iter_child_nodes(node):
            called = isinstance(node, ast.Call) and child is node.func
            yield from visit(child, inner, node if called else None)

    yield from visit(tree, "", None)


# --- rules --------------------------------------------------------------------------------------------------

Rule = Callable[[ast.AST], list[Use]]
PICKLES = (
    "pickle",
    "_pickle",
    "cPickle",
    "pickle5",
    "dill",
    "cloudpickle",
    "jsonpickle",
    "shelve",
    "marshal",
)
YAML = ("safe_load", "safe_load_all", "safe_dump", "safe_dump_all", "YAMLError", "error")
YAML += ("parse", "SafeLoader", "AliasEvent")  # events, of which nothing is built
ARCHIVES = ("extractall", "unpack_archive", "extract_archive", "download_and_extract_archive")
COMMANDS = (
    *("eval", "exec", "builtins.eval", "builtins.exec", "os.system", "os.popen", "torch.hub.load"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell"),
)


def unsafe_torch_load(tree: ast.AST) -> list[Use]:
    """torch.load that is not called with weights_only=True, or handed on without a call."""
    loads = [use for use in uses(tree) if use.name in ("torch.load", "torch.serialization.load")]
    return [use for use in loads if use.call is None or use.argument("weights_only") is not True]


def unpickling(tree: ast.AST) -> list[Use]:
    """Modules that unpickle, and what unpickles in others."""
    found = []
    for use in uses(tree):
        words = use.name.removeprefix("import ").split(".")
        if (
            words[0] in PICKLES
            or words[-1] == "read_pickle"
            or use.name in ("joblib.load", "import joblib.load")
        ):
            found.append(use)
        elif use.call is not None and words[-1] in ("load", "read_array"):
            position = 2 if use.name == "numpy.load" else None
            if use.argument("allow_pickle", position) not in (None, False):
                found.append(use)
    return found


def unsafe_yaml(tree: ast.AST) -> list[Use]:
    """Of PyYAML all but the safe functions; other packages for YAML."""
    found = []
    for use in uses(tree):
        words = use.name.removeprefix("import ").replace("()", "").split(".")
        if (words[0] == "yaml" and len(words) > 1 and words[1] not in YAML) or words[0] in (
            "ruamel",
            "oyaml",
        ):
            found.append(use)
    return found


def unpacking(tree: ast.AST) -> list[Use]:
    """Archives unpacked wherever their own paths point to; tarfile's filter="data" refuses such paths."""
    found = []
    for use in uses(tree):
        last = use.name.split(".")[-1]
        checked = last == "extractall" and use.call is not None and use.argument("filter") == "data"
        if last in ARCHIVES and not checked:
            found.append(use)
    return found


def commands(tree: ast.AST) -> list[Use]:
    """Text that is run as code or by a shell."""
    found = []
    for use in uses(tree):
        shell_of = (
            use.argument("shell") if use.call is not None and use.name.startswith("subprocess.") else None
        )
        if use.name.removeprefix("import ") in COMMANDS or shell_of not in (None, False):
            found.append(use)
    return found


def torchvision_cifar(tree: ast.AST) -> list[Use]:
    """torchvision's CIFAR classes, which unpickle when they are made."""
    return [use for use in uses(tree) if re.search(r"torchvision.*\.CIFAR100?$", use.name)]


BAD: dict[Rule, list[str]] = {
    unsafe_torch_load: [
        "import torch\ntorch.load('x')",
        "import torch as t\nt.load('x', weights_only=False)",
        "from torch import load\nload('x', weights_only=1)",
        "from torch import load as read\nread('x')",
        "import torch\nsafe = True\ntorch.load('x', weights_only=safe)",
        "import torch\ntorch.load('x', **{'weights_only': True})",
        "import torch\nlist(map(torch.load, ['x']))",
        "import torch\ngetattr(torch, 'load')('x')",
        "import torch.serialization\ntorch.serialization.load('x')",
    ],
    unpickling: [
        "import pickle",
        "import cPickle as json",
        "from pickle import loads",
        "import dill.session",
        "def f():\n    import cloudpickle",
        "import shelve",
        "from marshal import load",
        "import importlib\nimportlib.import_module('pickle')",
        "__import__('_pickle')",
        "import joblib\njoblib.load('x')",
        "from joblib import load",
        "import pandas as pd\npd.read_pickle('x')",
        "from pandas import read_pickle as read\nread('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', None, True)",
        "import numpy as np\nyes = 1\nnp.load('x', allow_pickle=yes)",
        "import numpy as np\nnp.load('x', **options)",
        "from numpy.lib.format import read_array\nread_array('x', allow_pickle=True)",
    ],
    unsafe_yaml: [
        "import yaml\nyaml.load('x')",
        "import yaml\nyaml.load('x', Loader=yaml.SafeLoader)",
        "import yaml as y\ny.unsafe_load('x')",
        "from yaml import full_load",
        "from yaml import FullLoader as SafeLoader",
        "import yaml\nyaml.load_all('x')",
        "import yaml\nread = yaml.unsafe_load",
        "import yaml.loader",
        "from ruamel.yaml import YAML",
    ],
    unpacking: [
        "import tarfile\ntarfile.open('x').extractall('y')",
        "import tarfile\nwith tarfile.open('x') as t:\n    t.extractall('y', filter='fully_trusted')",
        "import tarfile\nwith tarfile.open('x') as t:\n    t.extractall('y', filter=chosen)",
        "import zipfile\nzipfile.ZipFile('x').extractall()",
        "import shutil\nshutil.unpack_archive('x')",
        "from shutil import unpack_archive as unpack\nunpack('x')",
        "from torchvision.datasets.utils import extract_archive\nextract_archive('x')",
    ],
    commands: [
        "eval('1')",
        "exec(text)",
        "import builtins\nbuiltins.exec('1')",
        "run = eval",
        "import os\nos.system('ls')",
        "from os import system as run\nrun('ls')",
        "import os\nos.popen('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess as s\ns.Popen('ls', shell=1)",
        "from subprocess import check_output as ask\nask('ls', shell=yes)",
        "import subprocess\nsubprocess.run('ls', **options)",
        "import subprocess\nsubprocess.getoutput('ls')",
    ],
    torchvision_cifar: [
        "from torchvision.datasets import CIFAR10",
        "import torchvision\ntorchvision.datasets.CIFAR100('x')",
        "from torchvision import datasets as d\nd.cifar.CIFAR10",
    ],
}
GOOD: dict[Rule, list[str]] = {
    unsafe_torch_load: [
        "import torch\ntorch.load('x', weights_only=True)",
        "import json\njson.load('torch.load')",
    ],
    unpickling: [
        (
            "import numpy as np\nnp.load('x')\nnp.load('x', allow_pickle=False)\nnp.savez('x', "
            "allow_pickle=True)"
        ),
        "import joblib\njoblib.Parallel",
        "import json\njson.load('pickle')",
    ],
    unsafe_yaml: [
        "import yaml\nyaml.safe_load('x')\nyaml.safe_dump({})\nyaml.YAMLError",
        "from yaml import safe_load",
        "from omegaconf import OmegaConf\nOmegaConf.load('x')",
    ],
    unpacking: ["import tarfile\nwith tarfile.open('x') as t:\n    t.extractall('y', filter='data')"],
    commands: [
        "import subprocess\nsubprocess.run(['ls'])\nsubprocess.run(['ls'], shell=False)",
        "model.eval()",
        "import re\nre.compile('eval')",
    ],
    torchvision_cifar: ["from torchvision.datasets import MNIST", "CIFAR10 = 'torchvision'"],
}


@pytest.mark.parametrize(("rule", "snippet"), [(rule, text) for rule, some in BAD.items() for text in some])
def test_a_rule_sees_what_breaks_it(rule: Rule, snippet: str) -> None:
    assert rule(ast.parse(snippet))


@pytest.mark.parametrize(("rule", "snippet"), [(rule, text) for rule, some in GOOD.items() for text in some])
def test_a_rule_lets_the_rest_pass(rule: Rule, snippet: str) -> None:
    assert rule(ast.parse(snippet)) == []


def broken(rule: Rule, modules: dict[str, ast.Module], tops: tuple[str, ...] | None = None) -> list[str]:
    """file:line and name of all that breaks a rule, in `tops` or everywhere."""
    some = {p: tree for p, tree in modules.items() if tops is None or Path(p).parts[0] in tops}
    assert some
    return [
        f"{path}:{use.line} {use.name} in {use.function}" for path, tree in some.items() for use in rule(tree)
    ]


def without(found: list[str], allowed: str) -> list[str]:
    """What does not match a pattern."""
    return [entry for entry in found if not re.fullmatch(allowed, entry)]


# --- the project --------------------------------------------------------------------------------------------


def test_the_search_sees_the_project(texts: dict[str, str], modules: dict[str, ast.Module]) -> None:
    assert {"mobench/jobs/store.py", "mobench/data/images.py"} <= set(modules)
    found = [use for use in uses(modules["mobench/jobs/store.py"]) if use.name == "torch.load"]
    assert [use.function for use in found] == ["_newest"]  # of checkpoints, whatever they are kept for
    changed = texts["mobench/jobs/store.py"].replace("weights_only=True", "weights_only=False")
    assert len(unsafe_torch_load(ast.parse(changed))) == 1


def test_tensors_are_read_as_data(modules: dict[str, ast.Module]) -> None:
    assert broken(unsafe_torch_load, modules) == []


# the base class of its reader
UNPICKLED = r"mobench/data/images\.py:\d+ (import pickle|pickle\.Unpickler|pickle) in $"


def test_nothing_is_unpickled_but_official_files(modules: dict[str, ast.Module]) -> None:
    """CIFAR is published as pickles alone.

    One reader takes them, after their checksum, and builds nothing but arrays.
    """
    found = broken(unpickling, modules, OURS)
    assert without(found, UNPICKLED) == []
    assert sum("pickle.Unpickler" in entry for entry in found) == 1
    assert not any("pickle.load" in entry for entry in found)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_build_arrays_alone(tmp_path: Path, protocol: int) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    for k, content in enumerate(({"data": np.arange(6, dtype=np.uint8), "labels": [1, 2]}, {"data": Trap()})):
        path = tmp_path / str(k)
        path.write_bytes(pickle.dumps(content, protocol=protocol))
        md5 = hashlib.md5(path.read_bytes()).hexdigest()
        if k == 0:
            found = images.unpickled(path, md5, "")
            assert found["data"].tolist() == [0, 1, 2, 3, 4, 5]
            assert found["labels"] == [1, 2]
        else:
            with pytest.raises(DataError, match="which is not an array"):
                images.unpickled(path, md5, "")
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    """As the official files are: made by Python 2 and the NumPy of its time."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I3\ntcnumpy\ndtype\n"
        b"(S'u1'\nI0\nI1\ntR"
    )
    state = b"(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x01\\x02\\xff'\ntb"
    path = tmp_path / "data_batch_1"
    path.write_bytes(b"(dS'data'\n" + array + state + b"sS'labels'\n(lI5\nas.")
    found = images.unpickled(path, hashlib.md5(path.read_bytes()).hexdigest(), "")
    assert found["data"].tolist() == [1, 2, 255]
    assert found["labels"] == [5]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_file_exchanged_after_its_checksum_is_not_unpickled(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write into the data folder must not win a race against the check."""
    from torchvision import datasets

    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    kind = getattr(datasets, name.upper())
    path = tmp_path / kind.base_folder / kind.train_list[0][0]
    path.parent.mkdir()
    images = np.zeros((100, 3072), dtype=np.uint8)
    entry = {"data": images, **{key: list(range(100)) for key in ("labels", "fine_labels", "coarse_labels")}}
    path.write_bytes(pickle.dumps(entry, protocol=2))
    monkeypatch.setattr(kind, "train_list", [[path.name, hashlib.md5(path.read_bytes()).hexdigest()]])
    monkeypatch.setattr(kind, "test_list", [])
    right = hashlib.md5
    exchanged = []

    class Exchanging:
        """hashlib.md5, whose result comes when the file has just been exchanged."""

        def __init__(self, *given: Any, **options: Any) -> None:
            self.sum = right(*given, **options)

        def update(self, part: bytes) -> None:
            self.sum.update(part)

        def hexdigest(self) -> str:
            path.write_bytes(pickle.dumps(Trap()))
            exchanged.append(path)
            return self.sum.hexdigest()

    monkeypatch.setattr(hashlib, "md5", Exchanging)
    with contextlib.suppress(TypeError, ValueError):  # no test images; what is made of the trap is no batch
        (load_fewshot if name == "cifar100" else load_images)(name, tmp_path)
    assert exchanged
    assert not (tmp_path / "sprung").exists()


CIFAR = (
    r"mobench/data/images\.py:\d+ .* in _torchvision"
    r"|mobench/data/fewshot\.py:\d+ .* in _cifar100"
    r"|mobench/cli/doctor\.py:\d+ .* in _cifar100"
)


def test_torchvisions_cifar_is_asked_for_names_alone(modules: dict[str, ast.Module]) -> None:
    """Its classes unpickle when they are made, after the checksums of their files.

    `download` makes one, on request.
    """
    assert without(broken(torchvision_cifar, modules, OURS), CIFAR) == []
    ours = [tree for path, tree in modules.items() if Path(path).parts[0] in OURS]
    assert [use for tree in ours for use in torchvision_cifar(tree) if use.call is not None] == []


def test_yaml_is_read_as_data(modules: dict[str, ast.Module]) -> None:
    assert broken(unsafe_yaml, modules) == []


def test_archives_stay_in_their_folder(modules: dict[str, ast.Module]) -> None:
    assert broken(unpacking, modules) == []


def test_no_text_is_run(modules: dict[str, ast.Module]) -> None:
    assert broken(commands, modules, OURS) == []


WORDS = re.compile(
    r"\b(c?[pP]ickle|dill|cloudpickle|marshal)\.loads?\b|\bread_pickle\b|allow_pickle\s*=\s*True|"
    r"weights_only\s*=\s*False|\byaml\.(unsafe_|full_)?load\b|!!python/|shell\s*=\s*True|\bos\.system\b|"
    r"\bextractall\b|(curl|wget)\b[^\n]*\|\s*(ba|z)?sh\b"
)


@pytest.mark.parametrize(
    "text",
    [
        "python -c 'import pickle; pickle.load(f)'",
        "a: !!python/object/apply:os.system [ls]",
        "`yaml.load(text)`",
        "torch.load(path, weights_only=False)",
        "\tcurl -s https://example.org/install | bash",
    ],
)
def test_the_search_in_other_texts_sees(text: str) -> None:
    assert WORDS.search(text)


def test_other_texts(texts: dict[str, str]) -> None:
    """Makefile, YAML and documents hold code as well."""
    others = {p: text for p, text in texts.items() if p.endswith(TEXT)}
    assert any(p.endswith(".yaml") for p in others)
    found = [f"{p}: {hit.group()}" for p, text in others.items() for hit in WORDS.finditer(text)]
    assert found == []


def targets(node: Any) -> Iterator[str]:
    """Values of all keys `_target_`."""
    if isinstance(node, dict):
        yield from (str(value) for key, value in node.items() if key == "_target_")
        node = list(node.values())
    for child in node if isinstance(node, list) else []:
        yield from targets(child)


def test_configuration_makes_objects_of_this_package_alone(texts: dict[str, str]) -> None:
    assert list(targets({"a": [{"_target_": "os.system"}]})) == ["os.system"]
    conf = {
        p: yaml.safe_load(text)
        for p, text in texts.items()
        if "conf" in Path(p).parts and p.endswith(".yaml")
    }
    found = [(path, target) for path, node in conf.items() for target in targets(node)]
    assert len(found) > 20
    assert [entry for entry in found if not entry[1].startswith("mobench.")] == []


# --- API keys -----------------------------------------------------------------------------------------------


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file; what is inside, where they are compressed or cut into blocks."""
    raw = path.read_bytes()
    yield raw
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    elif path.suffix == ".parquet":
        yield pd.read_parquet(path).to_csv().encode()
    elif path.suffix == ".wandb":
        yield from (record.SerializeToString() for record in records(path))


def leaks(folder: Path, key: str) -> list[str]:
    """Files whose path or content has the key, as it is or as HTTP sends it."""
    forms = (key.encode(), base64.b64encode(f"api:{key}".encode()).rstrip(b"="))
    files = [p for p in folder.rglob("*") if p.is_file()]
    return [str(p) for p in files if any(f in part for f in forms for part in (os.fsencode(p), *contents(p)))]


def test_a_leak_is_found(tmp_path: Path) -> None:
    key = secrets.token_hex(20)
    assert leaks(tmp_path, key) == []
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "plain").write_bytes(b"\0\xff" + key.encode())
    (tmp_path / "http").write_bytes(base64.b64encode(f"api:{key}".encode()))
    (tmp_path / f"name-{key}").touch()
    with zipfile.ZipFile(tmp_path / "zip.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", key * 10)
    pd.DataFrame({"a": [key] * 10}).to_parquet(tmp_path / "table.parquet", compression="gzip")
    (tmp_path / "clean").write_text(secrets.token_hex(20))
    found = {Path(p).name for p in leaks(tmp_path, key)}
    assert found == {"plain", "http", f"name-{key}", "zip.npz", "table.parquet"}


def test_the_key_is_written_nowhere(tmp_path: Path) -> None:
    key = secrets.token_hex(20)
    root = tmp_path / "outputs"
    env = {"WANDB_API_KEY": key, "WANDB_MODE": "offline", "TMPDIR": str(tmp_path)}
    done = shell(root, "algorithm=ls", "preferences=2", "steps=3", "logger=auto", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(root.glob("wandb/offline-run-*/*.wandb"))  # so the key was seen
    assert list(root.glob("runs/*/final.csv"))
    assert key not in done.stdout
    assert leaks(tmp_path, key) == []
