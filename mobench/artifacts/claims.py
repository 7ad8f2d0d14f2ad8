"""Claims: statements of a paper with what was measured; their texts are data.

`experiments/<paper>/claims.yaml` lists them, so that a referee can read them without any code:

    fig2, fig6-fig19:
      optimum:
        statement: "{method} ends at the analytic optimum of the scalarised problem"
        source: "{figure}"
        published: numerical optima align with analytic solutions
        reason: After the last step x has not yet come from its start to the optimum.
      near-optimal:  # without a source it is a check of ours
        statement: Against SLSQP on exact expectations

A key of the first level names artifacts (with commas and ranges); one of the second level is a claim's id.
`{figure}` is the artifact's own number ("Figure 7"); other placeholders are filled by the words of the call,
`a.claim("optimum", check, method="CSMOO-1")`; braces that are meant are doubled. An id with placeholders is
called as it is written.
"""

from __future__ import annotations

import csv
import functools
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from mobench.errors import ConfigError, suggest
from mobench.system import forms, paths

Verdict = Literal[
    "reproduced",
    "partial",
    "not reproduced",
    "inconclusive",
    "check passed",
    "check failed",
    # of an artifact that was drawn with other settings than its own; these are counted nowhere
    "holds with other settings",
    "holds in part with other settings",
    "does not hold with other settings",
    "undecided with other settings",
    "unreadable",  # of a record that is damaged; no artifact writes it
]
OWN = "ours"  # the source of a check, where a claim has a place in its paper
UNKNOWN = "The cause is not known."  # a test finds claims that say so
FIGURE = re.compile(r"(fig|table)(\w+)")


def called(verdict: str, source: str) -> str:
    """Returns what messages and pages call a verdict: a check of ours that is undecided is no claim."""
    return "check undecided" if source == OWN and verdict == "inconclusive" else verdict


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, or a consistency check of ours, with what was measured.

    timed: the verdict depends on how fast the machine is, so it may differ between machines.
    jobs: names of the artifact's jobs whose rows were measured.
    gauges: its numbers beside their tolerances (`checks.Gauge`).
    leans: what a smaller run, or one on other data, gives where that cannot decide the claim: "holds",
        "fails" or "partly"; empty if the rows decide, or say nothing.
    """

    id: str
    statement: str
    source: str
    published: str
    measured: str
    tolerance: str
    scale: str
    verdict: Verdict
    reason: str = ""
    timed: bool = False
    jobs: tuple[str, ...] = ()
    gauges: tuple[dict[str, Any], ...] = ()
    leans: str = ""


@dataclass(frozen=True)
class Text:
    """The entry of one claim in claims.yaml.

    Args:
        statement: what is claimed, in one sentence.
        source: where the paper says it; without one it is a check of ours.
        published: what the paper says or prints of it, in short.
        reason: the cause wherever the verdict is not "reproduced"; or one for each of `partial` and `fails`.
        remark: what a reader must know whatever the verdict.
        decided_by: runs that would decide it where these do not, by the artifact's command.
        scope: "paper" where only the paper's data and scale can judge it.
        elsewhere: what the runs of smaller scales lack (of `scope: paper`).
        any_scale: neither steps nor data matter (arithmetic on printed numbers, shapes of constraints).
        counts_lost: it counts runs that did not finish itself; otherwise they make it partial at best.
        rests_on: names of the jobs that were measured (default: all of the artifact's).
        seeds: how many of the paper's seeds it is about (a panel that draws one); default: those of the
            artifact's YAML.
        timed: the verdict depends on the machine's speed.
        exact: why it needs no interval to be refuted: arithmetic on printed numbers, a proof, runs without
            random numbers. A sentence.
        answer: what the authors say of the verdict, with the date; shown whatever the verdict.
        when: in words, when the claim is made at all; without it the artifact must make it each time.
    """

    statement: str
    source: str = ""
    published: str = ""
    reason: str | Mapping[str, str] = ""
    remark: str = ""
    decided_by: str = ""
    scope: Literal["", "paper"] = ""
    elsewhere: str = ""
    any_scale: bool = False
    counts_lost: bool = False
    rests_on: tuple[str, ...] | None = None
    seeds: int | None = None
    timed: bool = False
    exact: str = ""
    answer: str = ""
    when: str = ""

    @property
    def is_check(self) -> bool:
        """True if it is a check of ours."""
        return not self.source

    def cause(self, holds: bool | str | None) -> str:
        """Returns the reason for an outcome other than True."""
        if isinstance(self.reason, str):
            return self.reason
        return self.reason.get("partial" if holds == "partial" else "fails", "")


@functools.lru_cache(maxsize=4)
def _looks(path: Path) -> dict[tuple[str, str], str]:
    """Reads a table of second looks; a sentence for each (artifact, claim)."""
    if not path.exists():  # a project of one's own has none
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            (row["artifact"], row["claim"]): f"A second look ({row['by']})"
            f"{ {'yes': ' agrees', 'no': ' disagrees', '': ''}[row['agrees']] }: {row['seen']}."
            for row in csv.DictReader(file)
        }


def second_look(artifact: str, claim: str) -> str:
    """Returns what another program or reading says of a claim, or "" (`experiments/second_looks.csv`)."""
    return _looks(paths.experiments() / "second_looks.csv").get((artifact, claim), "")


WORDS = ("statement", "source", "published", "remark", "decided_by", "elsewhere", "exact")


@dataclass
class Texts:
    """The texts of one artifact, and which of them were used."""

    artifact: str
    known: Mapping[str, Text]
    used: set[str] = field(default_factory=set)

    def find(self, id: str, words: Mapping[str, Any], is_check: bool) -> tuple[str, Text]:
        """Returns the id and the text of a claim with its placeholders filled.

        Args:
            id: as claims.yaml writes it.
            words: what fills the placeholders.
            is_check: whether it is called as a check of ours.

        Raises:
            ConfigError: There is no such text, it is of the other kind, or words and placeholders do not
                match.
        """
        where = f"{self.artifact}: experiments/{self.artifact.split('/')[0]}/claims.yaml"
        if id not in self.known:
            raise ConfigError(f"{where} has no text of the claim {id!r}.{suggest(id, list(self.known))}")
        text = self.known[id]
        if text.is_check != is_check:
            call, said = ("a.check", "a source") if is_check else ("a.claim", "no source")
            raise ConfigError(f"{where}: {id!r} is called by {call}, but its text has {said}.")
        self.used.add(id)
        placeholders = _placeholders(id, text)
        values = {"figure": figure_name(self.artifact), **words}
        if missing := sorted(placeholders - set(values)):
            raise ConfigError(f"{where}: {id!r} needs the words {missing}, which its call does not give.")
        if spare := sorted(set(words) - placeholders):
            raise ConfigError(f"{where}: {id!r} is given the words {spare}, but has no such placeholders.")
        filled: dict[str, Any] = {name: getattr(text, name).format(**values) for name in WORDS}
        reason = text.reason
        if isinstance(reason, str):
            filled["reason"] = reason.format(**values)
        else:
            filled["reason"] = {key: value.format(**values) for key, value in reason.items()}
        rest = {f.name: getattr(text, f.name) for f in fields(text) if f.name not in filled}
        return id.format(**values), Text(**filled, **rest)

    def all_used(self) -> None:
        """Raises an error if the artifact was drawn without one of its claims.

        Raises:
            ConfigError: A text without `when` was not used.
        """
        unused = [id for id, text in self.known.items() if id not in self.used and not text.when]
        if unused:
            raise ConfigError(
                f"{self.artifact}: its claims {unused} in "
                f"experiments/{self.artifact.split('/')[0]}/claims.yaml were not "
                "judged. Judge them, delete them, or say `when:` they are."
            )


def _placeholders(id: str, text: Text) -> set[str]:
    parts = [id, *(getattr(text, name) for name in WORDS)]
    parts += [text.reason] if isinstance(text.reason, str) else text.reason.values()
    return {name for part in parts for _, name, _, _ in string.Formatter().parse(part) if name}


def figure_name(artifact: str) -> str:
    """Returns "Figure 7" of "csmoo/fig7", "Table 3" of "ferero/table3", and other names as they are."""
    name = artifact.split("/")[-1]
    match = FIGURE.fullmatch(name)
    return f"{'Figure' if match[1] == 'fig' else 'Table'} {match[2]}" if match else name


def names(key: str) -> list[str]:
    """Returns the artifacts that a key names: "fig2, fig6-fig8" gives fig2, fig6, fig7 and fig8."""
    artifacts: list[str] = []
    for part in (part.strip() for part in key.split(",")):
        ends = re.fullmatch(r"([a-z_]+)(\d+)-\1(\d+)", part)
        artifacts += [f"{ends[1]}{n}" for n in range(int(ends[2]), int(ends[3]) + 1)] if ends else [part]
    return artifacts


@functools.cache
def _file(path: Path) -> dict[str, dict[str, Text]]:
    """Returns the texts of a claims.yaml by artifact and id."""
    import yaml

    try:
        sections = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    by_artifact: dict[str, dict[str, Text]] = {}
    for key, section in forms.mapping(str(path), sections).items():
        for name in names(key):
            for id, values in forms.mapping(f"{path}: {key}", section).items():
                if id in by_artifact.setdefault(name, {}):
                    raise ConfigError(f"{path}: {name} has the claim {id!r} twice.")
                by_artifact[name][id] = _text(path, key, id, values)
    return by_artifact


def _text(path: Path, key: str, id: str, values: Mapping[str, Any]) -> Text:
    where = f"{path}: {key}: {id}"
    values = forms.mapping(where, values)
    known = [f.name for f in fields(Text)]
    if unknown := [name for name in values if name not in known]:
        raise ConfigError(f"{where} has the unknown entry {unknown[0]!r}.{suggest(unknown[0], known)}")
    if "statement" not in values:
        raise ConfigError(f"{where} has no statement.")
    if ("source" in values) != ("published" in values):
        raise ConfigError(
            f"{where}: a paper's claim has a source and what was published; a check of ours has neither."
        )
    entries: dict[str, Any] = {
        name: str(value) if name in ("source", "published") else value for name, value in values.items()
    }
    if entries.get("rests_on") is not None:
        entries["rests_on"] = tuple(entries["rests_on"])
    return Text(**entries)


def texts(artifact: str) -> Texts:
    """Returns the texts of an artifact; none where its paper has no claims.yaml."""
    paper, _, name = artifact.partition("/")
    path = paths.experiments() / paper / "claims.yaml"
    return Texts(artifact, _file(path).get(name, {}) if path.exists() else {})
