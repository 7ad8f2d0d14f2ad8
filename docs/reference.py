"""The reference's pages: one per package, its modules with their docstrings; lists of what can be chosen,
from the YAML files.

Docstrings are plain text with equations set by spaces. `docstring` turns them into reStructuredText: what is
set by spaces keeps its lines, everything else becomes prose in which nothing is interpreted but `code`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent

# package -> heading, what it is
PACKAGES = {
    "algorithms": (
        "Algorithms",
        "One method, one small file. Fields of a class are the keys of its YAML file.",
    ),
    "problems": ("Problems", "Objectives, constraints, exact fronts and reference points."),
    "oracles": (
        "Oracles",
        "What answers for a problem at a point: exactly, by samples, by averages, by hypergradients.",
    ),
    "constraints": ("Constraint families", "Layers that add g <= 0 to any problem: `constraint=`."),
    "spaces": ("Decision spaces", "Layers that change the decision variables of any problem: `space=`."),
    "subproblems": ("Subproblems", "Batched solvers with certificates; they know nothing of algorithms."),
    "metrics": ("Metrics", "Hypervolume, distances, stationarity."),
    "core": (
        "Core",
        "Points, oracles, algorithms, output rules, preferences, randomness, and what joins them.",
    ),
    "models": ("Models", "Networks as functions of stacked parameters (R, P)."),
    "data": ("Data", "Where samples come from, with their checks."),
    "artifacts": ("Artifacts", "From rows to figures, tables and claims."),
    "report": ("Report", "From artifacts to pages."),
}
GROUPS = (
    "problem",
    "algorithm",
    "oracle",
    "constraint",
    "space",
    "data",
    "protocol",
    "hardware",
    "scale",
    "logger",
)


def write(path: Path, text: str) -> None:
    """Only where it changes something, so that Sphinx reads only what is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def modules(folder: Path) -> list[str]:
    """Dotted names below `mobench` of a package's files, sorted."""
    names = (p.relative_to(ROOT).with_suffix("") for p in sorted(folder.glob("*.py")))
    return [".".join(n.parts) for n in names if not n.name.startswith("_")]


def page(title: str, about: str, names: list[str]) -> str:
    """A page of modules, in reStructuredText."""
    out = [title, "=" * len(title), "", escape(about), ""]
    for name in names:
        short = name.removeprefix("mobench.").rpartition(".")[2]
        out += [
            short,
            "-" * len(short),
            "",
            f".. automodule:: {name}",
            "   :members:",
            "   :show-inheritance:",
            "",
        ]
    return "\n".join(out)


def build(folder: Path) -> None:
    """Write all pages of the reference; remove those of packages that are gone."""
    pages = {}
    for name, (title, about) in PACKAGES.items():
        found = modules(ROOT / "mobench" / name)
        # what a package's front door defines itself, if it does
        if "class " in (init := (ROOT / "mobench" / name / "__init__.py").read_text()) or "\ndef " in init:
            found.insert(0, f"mobench.{name}")
        pages[name] = page(title, about, found)
    pages["python"] = page(
        "Python interface", "`import mobench`.", ["mobench.api", "mobench.errors", "mobench.jobs.fingerprint"]
    )
    top = [
        n for n in modules(ROOT / "mobench") if n.rpartition(".")[2] not in ("api", "errors", "fingerprint")
    ]
    pages["runner"] = page("Command line and runner", "Composition, sweeps, jobs and their folders.", top)
    for name, text in pages.items():
        write(folder / f"{name}.rst", text)
    write(folder / "choices.md", choices())
    for path in folder.glob("*"):
        if path.stem not in (*pages, "choices"):
            path.unlink()


# what can be chosen


def summary(target: str) -> str:
    """The first sentence of the docstring of what `_target_` names; of its module, if it has none."""
    found = named(target)
    text = inspect.getdoc(found) or ""
    if not text or text.startswith(f"{found.__name__}("):  # made by @dataclass
        text = inspect.getdoc(inspect.getmodule(found)) or ""
    return (
        re.split(r"(?<=[.:])(?<!al\.)\s+(?=[A-Z])|\n\n|\n(?=\S.*  )", text.strip(), maxsplit=1)[0]
        .rstrip(":")
        .replace("\n", " ")
    )


def choices() -> str:
    """Every option of every group: what it is, and its keys with their defaults."""
    about = (
        "From the files below `conf/`. `mobench --help` prints the names, `mobench problem=... "
        "--cfg job` what a choice sets."
    )
    out = ["# What can be chosen", "", about, ""]
    for group in GROUPS:
        out += [f"## `{group}=`", ""]
        for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
            text = path.read_text()
            content = yaml.safe_load(text) or {}
            target = content.get("_target_", "")
            link = f" ({link_to(target)})" if target else ""
            out.append(
                f"- **`{path.stem}`**{link}: {inline(comment(text) or (summary(target) if target else ''))}"
            )
            keys = {k: v for k, v in content.items() if k not in ("_target_", "defaults", "hydra")}
            if target and keys:
                out += ["", "  " + ", ".join(f"`{k}: {flat(v)}`" for k, v in keys.items())]
            out.append("")
    return "\n".join(out)


def comment(text: str) -> str:
    """The comment that opens a YAML file; of a file without `_target_` else the one behind its first line."""
    lines = [
        line[1:].strip() for line in text.splitlines() if line.startswith("#") and "@package" not in line
    ]
    if lines and text.lstrip().startswith("#"):
        return re.split(r"(?<=[.])(?<!al\.)\s", " ".join(lines), maxsplit=1)[0]
    match = re.search(r"\S +# *(.*)", text) if "_target_" not in text else None
    return match[1] if match else ""


def flat(value: Any) -> str:
    """A YAML value on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("...").strip()


def inline(text: str) -> str:
    """Plain text as Markdown: nothing is interpreted but `code`."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(p if i % 2 else re.sub(r"([\\*_|<\[])", r"\\\1", p) for i, p in enumerate(parts))


def named(target: str) -> Any:
    """What a `_target_` names."""
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)


def link_to(target: str) -> str:
    """A link to a class; where it is a method of one (another way of making it), to that class."""
    found = named(target)
    return f"{{py:obj}}`{found.__qualname__} <{found.__module__}.{found.__qualname__}>`"


# docstrings

HEADS = (
    "Args",
    "Attributes",
    "Fields",
    "Parameters",
    "Raises",
    "Returns",
    "Yields",
    "Departure",
    "Departures",
    "Source",
)


def escape(text: str) -> str:
    """Prose for reStructuredText: single backticks become literals, everything else is text."""
    parts = re.split(r"(``?[^`]+``?)", text)
    for i, part in enumerate(parts):
        if i % 2:
            code = part.strip("`")
            # a literal must not touch a letter
            parts[i] = f"\\ ``{code}``\\ " if code == code.strip() else re.sub(r"([\\*|_`])", r"\\\1", part)
        else:
            parts[i] = re.sub(r"([\\*|_`])", r"\\\1", part)
    return "".join(parts)


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs; a heading such as `Args:` on a line of its own ends one."""
    block: list[str] = []
    for line in lines:
        if not line.strip() or line.rstrip() in [f"{h}:" for h in HEADS]:
            if block:
                yield block
            block = []
            if line.strip():
                yield [line]
        else:
            block.append(line.rstrip())
    if block:
        yield block


def displayed(block: list[str]) -> bool:
    """Whether a paragraph is set by its lines: equations with gaps or numbers at the end, code,
    lists of them.
    """
    gap = any(re.search(r"\S {2,}\S", line.strip()) for line in block)
    inner = block[0].startswith("    ")
    arrow = any(" <- " in line for line in block)
    return gap or arrow or inner


def prose(line: str) -> bool:
    """Whether a line is a sentence and not set by spaces."""
    return not displayed([line]) and re.search(r"[a-z]{3,} [a-z]{2,}", line) is not None


def docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A docstring in reStructuredText, in place."""
    out: list[str] = []
    section = False
    for block in blocks(list(lines)):
        head = block[0].rstrip()
        if head in [f"{h}:" for h in HEADS]:
            out += [f"*{head[:-1]}*", ""]
            section = True
            continue
        if section and block[0].startswith("    "):
            # entries `name: what it is`, continued by deeper lines
            entries: list[str] = []
            base = len(block[0]) - len(block[0].lstrip())
            for line in block:
                if len(line) - len(line.lstrip()) <= base or not entries:
                    entries.append(line.strip())
                else:
                    entries[-1] += " " + line.strip()
            for entry in entries:
                match = re.match(r"([\w, .]{1,60}): (.*)", entry)
                text = f"**{escape(match[1])}**: {escape(match[2])}" if match else escape(entry)
                out += [f"- {text}"]
            out.append("")
            continue
        section = section and block[0].startswith("    ")
        if displayed(block):
            # the prose that may open it stays prose
            opening = 0
            while opening < len(block) and prose(block[opening]):
                opening += 1
            if opening:
                out += [escape(" ".join(line.strip() for line in block[:opening])), ""]
            if block[opening:]:
                out += ["::", "", *[f"    {line}" for line in block[opening:]], ""]
        else:
            out += [escape(" ".join(line.strip() for line in block)), ""]
    lines[:] = out
