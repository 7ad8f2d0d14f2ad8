"""Builds the pages of the reference: modules with their docstrings, and the options of the YAML files.

Docstrings are plain text with equations aligned by spaces. `docstring` converts them to reStructuredText:
aligned lines are kept, and everything else becomes prose in which only `code` is interpreted.
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

# package -> heading, description
PACKAGES = {
    "algorithms": ("Algorithms", "One method per file. The fields of a class are the keys of its YAML file."),
    "problems": ("Problems", "Objectives, constraints, exact fronts and reference points."),
    "oracles": ("Oracles", "Access to a problem: exact, by samples, by running averages, by hypergradients."),
    "constraints": (
        "Constraint families",
        "Wrappers that add constraints g <= 0 to any problem: `constraint=`.",
    ),
    "spaces": ("Decision spaces", "Wrappers that change the decision variables of any problem: `space=`."),
    "solvers": ("Solvers", "Small programs in batches, with certificates; they do not depend on algorithms."),
    "metrics": ("Metrics", "Hypervolume, distances, stationarity."),
    "core": (
        "Core",
        "Points, oracles, algorithms, output rules, preferences, randomness, compatibility and the loop.",
    ),
    "kernels": (
        "Kernels",
        "Hand-derived derivatives of networks, Gram matrices and hypervolumes on CPUs.",
    ),
    "models": ("Models", "Networks as functions of stacked parameters (R, P)."),
    "data": ("Data", "Data sets: downloading, checking, caching, partitions over clients."),
    "artifacts": ("Artifacts", "From rows to figures, tables and claims."),
    "report": ("Report", "From artifacts to pages."),
    "comparison": ("Comparison", "Trials, measures, rows and statistics of the comparison of methods."),
    "bundle": ("Bundles", "One file with the rows behind artifacts and all that it takes to check them."),
    "config": ("Configuration", "The schema, overrides, and how one job's configuration is composed."),
    "jobs": ("Jobs", "One job: checking, identity, training, and its rows on disk."),
    "study": ("Rows of one's own", "Rows of many jobs as one frame, tables, pictures, and a choice."),
    "sweep": ("Sweeps", "Many jobs: planning, launching, summary."),
    "training": ("Training", "Any method inside a training loop of your own: one step, or an optimizer."),
    "flower": ("Federations", "A Flower strategy from any method; needs Flower."),
    "system": ("System", "The process and the machine: console, paths, signals, GPU locks, provenance."),
    "cli": ("Commands", "The implementation of the command line."),
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
    """Writes a file only if its text changes, so that Sphinx reads only new pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def modules(folder: Path, pattern: str = "*.py") -> list[str]:
    """Returns the sorted dotted names of the modules in a folder."""
    names = (p.relative_to(ROOT).with_suffix("") for p in sorted(folder.glob(pattern)))
    return [".".join(n.parts) for n in names if not n.name.startswith("_")]


def page(title: str, about: str, names: list[str]) -> str:
    """Returns a page of modules in reStructuredText."""
    out = [title, "=" * len(title), "", escape(about), ""]
    for name in names:
        top, _, rest = name.removeprefix("mobench.").partition(".")
        short = rest or top
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
    """Writes all pages of the reference and removes those of packages that no longer exist."""
    pages = {}
    for name, (title, about) in PACKAGES.items():
        found = modules(ROOT / "mobench" / name, "**/*.py")
        # a package whose __init__ defines something itself is listed too
        if "class " in (init := (ROOT / "mobench" / name / "__init__.py").read_text()) or "\ndef " in init:
            found.insert(0, f"mobench.{name}")
        pages[name] = page(title, about, found)
    pages["python"] = page("Python interface", "`import mobench`.", modules(ROOT / "mobench"))
    for name, text in pages.items():
        write(folder / f"{name}.rst", text)
    write(folder / "choices.md", choices())
    for path in folder.glob("*"):
        if path.stem not in (*pages, "choices"):
            path.unlink()


# the options

NOTES = {
    "algorithm": (
        "Beside its own keys every method has `step_size`, `step_decay: 0.0`, `step_offset: 1.0` (the step "
        "size is step_size / (step_offset + t)^step_decay), `outputs: [last]` and `optimizer: sgd`. "
        "`optimizer=adam` takes Adam's step along the method's direction, for methods whose step is nothing "
        "but a direction, and X without bounds or with bounds of the coordinates."
    )
}
"""Notes on groups of options, shown above those of their YAML files."""


def summary(target: str) -> str:
    """Returns the first sentence of the docstring of a `_target_`, or of its module if it has none."""
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
    """Returns the options of every group, each with its description and its keys with their defaults."""
    about = (
        "This page lists the files in `conf/`. `mobench --help` prints the names, and "
        "`mobench problem=... --cfg job` prints all values that a choice sets."
    )
    out = ["# Options reference", "", about, ""]
    for group in GROUPS:
        out += [f"## `{group}=`", "", *([NOTES[group], ""] if group in NOTES else [])]
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
    """Returns the opening comment of a YAML file, or, without `_target_`, that after its first value."""
    lines = [
        line[1:].strip() for line in text.splitlines() if line.startswith("#") and "@package" not in line
    ]
    if lines and text.lstrip().startswith("#"):
        return re.split(r"(?<=[.])(?<!al\.)\s", " ".join(lines), maxsplit=1)[0]
    match = re.search(r"\S +# *(.*)", text) if "_target_" not in text else None
    return match[1] if match else ""


def flat(value: Any) -> str:
    """Returns a YAML value on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("...").strip()


def inline(text: str) -> str:
    """Escapes plain text for Markdown; only `code` is interpreted."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(p if i % 2 else re.sub(r"([\\*_|<\[])", r"\\\1", p) for i, p in enumerate(parts))


def named(target: str) -> Any:
    """Imports the object that a `_target_` names."""
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)


def link_to(target: str) -> str:
    """Returns a link to the class or function that a `_target_` names."""
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
    """Escapes prose for reStructuredText; only single backticks are interpreted, as literals."""
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
    """Yields the paragraphs of a docstring; a heading such as `Args:` on its own line ends one."""
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
    """Returns whether the lines of a paragraph must be kept: equations, code, and lists of them."""
    gap = any(re.search(r"\S {2,}\S", line.strip()) for line in block)
    inner = block[0].startswith("    ")
    arrow = any(" <- " in line for line in block)
    return gap or arrow or inner


def prose(line: str) -> bool:
    """Returns whether a line is a sentence that is not aligned by spaces."""
    return not displayed([line]) and re.search(r"[a-z]{3,} [a-z]{2,}", line) is not None


def docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Converts a docstring to reStructuredText in place."""
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
