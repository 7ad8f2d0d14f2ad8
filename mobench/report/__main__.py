"""Builds the report, outputs/report/index.html; `--results` also writes the pages of results in Markdown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mobench.config.schema import choices
from mobench.errors import MobenchError
from mobench.report import markdown
from mobench.report.model import Paper, Site
from mobench.report.pages import write
from mobench.report.reading import collect
from mobench.report.wall import wall
from mobench.system.files import write_atomic
from mobench.system.forms import read_json
from mobench.system.paths import KEPT, outputs_root

MARKERS = ("<!-- results: written by make report -->", "<!-- end of results -->")
COUNT = ("<!-- count: written by make report -->", "<!-- end of count -->")
PICTURES = ("<!-- pictures: written by make report -->", "<!-- end of pictures -->")


def renew(path: Path, table: str, markers: tuple[str, str] = MARKERS) -> None:
    """Replaces the text between the two markers of a Markdown file.

    Raises:
        MobenchError: a marker is missing.
    """
    text = path.read_text()
    begin = text.find(markers[0])
    end = text.find(markers[1])
    if begin < 0 or end < begin:
        raise MobenchError(
            f"{path} lacks the markers {markers[0]} and {markers[1]} (in this order); restore them."
        )
    write_atomic(path, (text[: begin + len(markers[0])] + "\n" + table + text[end:]).encode())


def _images(folder: Path, pictures: Mapping[str, bytes]) -> None:
    for name, data in pictures.items():
        write_atomic(folder / name, data)


def _results(index: Path, site: Site) -> None:
    """Writes the pages of results and, beside the index, the record of all verdicts."""
    for name, text in markdown.result_pages(site, index.parent / "images").items():
        write_atomic(index.with_suffix("") / f"{name}.md" if name else index, text.encode())
    record = [json.dumps(v) for v in markdown.records(site)]
    write_atomic(index.with_suffix(".json"), ("[\n" + ",\n".join(record) + "\n]\n").encode())
    print(f"results: {index}, {index.with_suffix('')}/*.md, {index.with_suffix('.json')}")


def _readme(path: Path, site: Site) -> None:
    renew(path, markdown.rendered("papers_table.md", site=site))
    renew(path, markdown.holding(site), COUNT)
    print(f"readme: {path}")


def _findings(path: Path, site: Site) -> None:
    page, pictures = markdown.findings(site)
    write_atomic(path, page.encode())
    _images(path.parent / "images/findings", pictures)
    print(f"findings: {path}")


def _paper(path: Path, paper: Paper) -> None:
    renew(path, markdown.rendered("artifacts_table.md", paper=paper))
    if paper.pictures:
        text, pictures = markdown.figures(paper)
        _images(path.parent.parent / "images/papers", pictures)
        renew(path, text, PICTURES)
    print(f"paper: {path}")


def complete(root: Path, expected: Iterable[str]) -> None:
    """Checks that every artifact is drawn, and none at smoke scale, before a page is overwritten.

    Raises:
        MobenchError: artifacts are missing.
    """
    from mobench.cli.keep import drawings

    undrawn = [id for id in drawings() if not (root / KEPT / "artifacts" / id / "claims.json").exists()]
    if undrawn:
        raise MobenchError(
            "--results, --readme and --papers also need the artifacts of the kept rows; missing: "
            f"{', '.join(undrawn)}. Run `make kept` first (the report itself was built)."
        )
    missing = []
    for id in expected:
        origin = root / "artifacts" / id / "provenance.json"
        if not origin.exists() or read_json(origin)["scale"] == "smoke":
            missing.append(id)
    if missing:
        raise MobenchError(
            "--results, --readme and --papers need every artifact at laptop or paper scale; missing: "
            f"{', '.join(missing)}. Run `make reproduce` first (the report itself was built)."
        )


OPTIONS = {
    "--outputs": ("DIR", "the outputs folder (default: $MOBENCH_OUTPUTS, else outputs)"),
    "--results": (
        "FILE",
        "also write the results as Markdown: this index, and a page for each paper beside it",
    ),
    "--readme": ("FILE", "also update the table of papers between the two markers"),
    "--papers": ("DIR", "also update the table of artifacts in DIR/<paper>.md between the same markers"),
    "--findings": ("FILE", "also write the gallery of findings, with its pictures"),
    "--wall": ("FILE", "also write the wall of claims as SVG"),
}


def main(arguments: Sequence[str]) -> int:
    """Builds the requested pages, prints their paths and returns the exit code."""
    parser = argparse.ArgumentParser(prog="mobench report", description=__doc__)
    for option, (metavar, meaning) in OPTIONS.items():
        parser.add_argument(option, type=Path, metavar=metavar, help=meaning)
    args = parser.parse_args(list(arguments))
    try:
        expected = [id for id in choices("experiment") if "/" in id]
        root = args.outputs or outputs_root()
        site = collect(root, expected)
        print(f"report: {write(site, root / 'report')}")
        papers = {args.papers / f"{p.id}.md": p for p in site.papers} if args.papers is not None else {}
        papers = {path: paper for path, paper in papers.items() if path.exists()}
        written = (args.results, args.readme, args.wall, args.findings, *papers)
        if any(page is not None and page.exists() for page in written):
            complete(root, expected)
        if args.results is not None:
            _results(args.results, site)
        if args.readme is not None:
            _readme(args.readme, site)
        if args.findings is not None:
            _findings(args.findings, site)
        if args.wall is not None:
            write_atomic(args.wall, wall(site).encode())
            print(f"wall: {args.wall}")
        for path, paper in papers.items():
            _paper(path, paper)
    except MobenchError as error:
        print(f"mobench report: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
