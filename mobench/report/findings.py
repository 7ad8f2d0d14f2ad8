"""The gallery of findings, docs/findings.md: printed and measured results, and why they differ.

`experiments/findings.yaml` has the words; measured values and verdicts come from the claims that it lists,
and the picture from the first artifact among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from mobench.errors import ConfigError, MobenchError, suggest
from mobench.report.markdown import anchor, code, md, shortened
from mobench.report.model import Evidence, Site, mark
from mobench.report.papers import paper_info
from mobench.system import paths

KEYS = ("title", "paper", "printed", "happens", "evidence")
HEAD = """<!-- Do not edit this page: `make report` writes it from experiments/findings.yaml and claims. -->

# Findings

Checking every claim of five papers turns up more than ticks and crosses. These are the results from which we
learned most: each with what the paper prints, what happens, and the claims that show it.
"""


@dataclass(frozen=True)
class Finding:
    """One section of the page."""

    title: str
    paper: str
    printed: str
    happens: str
    evidence: Mapping[str, list[str]]

    @property
    def picture(self) -> str:
        """The artifact whose figure is shown."""
        return next(iter(self.evidence))

    @property
    def image(self) -> str:
        """Name of its copy in docs/images/findings."""
        return f"{self.picture.replace('/', '_')}.png"


def findings() -> list[Finding]:
    """Returns the findings, in the order of the file.

    Raises:
        ConfigError: An entry lacks a key or has an unknown one.
    """
    path = paths.experiments() / "findings.yaml"
    out = []
    for entry in yaml.safe_load(path.read_text()):
        if unknown := sorted(set(entry) - set(KEYS)):
            raise ConfigError(f"{path}: the key {unknown[0]!r} is unknown.{suggest(unknown[0], KEYS)}")
        if missing := [key for key in KEYS if not entry.get(key)]:
            raise ConfigError(f"{path}: {entry.get('title')!r} has no {missing[0]!r}.")
        out.append(Finding(**entry))
    return out


def page(site: Site, entries: list[Finding]) -> str:
    """Returns the page as Markdown.

    Raises:
        MobenchError: A claim that a finding names was not judged.
    """
    known = _records(site)
    images = pictures(site, entries)
    lines = [HEAD]
    for finding in entries:
        paper = paper_info(finding.paper)
        lines += [f"## {finding.title}", ""]
        lines += [f"**{md(paper.short)} prints:** {finding.printed.strip()}", ""]
        lines += [f"**What happens:** {finding.happens.strip()}", ""]
        alt = f"{finding.picture}, drawn from our runs"
        if finding.image in images:
            lines += [f"![{alt}](images/findings/{finding.image})", ""]
        lines += ["| claim | measured | verdict |", "| --- | --- | --- |"]
        for artifact, ids in finding.evidence.items():
            for id in ids:
                if (artifact, id) not in known:
                    raise MobenchError(
                        f"experiments/findings.yaml: {artifact} has no claim {id!r} among those that were "
                        f"judged.{suggest(id, [c for a, c in known if a == artifact])}"
                    )
                lines.append(_line(known[artifact, id]))
        commands = dict.fromkeys(
            known[artifact, ids[0]].entry.command for artifact, ids in finding.evidence.items()
        )
        lines += ["", f"Draw it: {', '.join(map(code, commands))}.", ""]
    return "\n".join(lines)


def _records(site: Site) -> dict[tuple[str, str], Evidence]:
    """Returns by artifact and id the best record of each claim and check."""
    out: dict[tuple[str, str], Evidence] = {}
    for entry in site.everything:
        for number, claim in enumerate(entry.claims, 1):
            out.setdefault((entry.id, claim.id), Evidence(entry, number, claim))
    return out | {(e.entry.id, e.claim.id): e for e in (*site.best, *site.checks)}


def _line(evidence: Evidence) -> str:
    claim = evidence.claim
    verdict = f"{mark(claim).symbol} {mark(claim).name}"
    entry = evidence.entry
    measured = shortened(claim.measured)
    place = f"results/{entry.paper}.md#{anchor(entry.label)}"
    more = f" ([all numbers]({place}))" if measured != claim.measured else ""
    return f"| {md(claim.statement)} | {md(measured)}{more} | {verdict}, {claim.scale} scale |"


def pictures(site: Site, entries: list[Finding]) -> dict[str, bytes]:
    """Returns the figures that the page shows, by the names of their copies; a table has none."""
    known = _records(site)
    out: dict[str, bytes] = {}
    for finding in entries:
        first = known.get((finding.picture, finding.evidence[finding.picture][0]))
        if first is not None and first.entry.figure is not None:
            out[finding.image] = site.assets[f"{first.entry.assets}/figure.png"]
    return out
