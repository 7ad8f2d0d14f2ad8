"""Builds the report, outputs/report/index.html; `--results` also writes the pages of results in Markdown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mobench.errors import MobenchError
from mobench.report import findings as gallery
from mobench.report.build import write
from mobench.report.markdown import (
    count_markdown,
    paper_markdown,
    papers_markdown,
    pictures_markdown,
    records,
)
from mobench.report.model import Site
from mobench.report.reading import collect, declared
from mobench.report.result_pages import result_pages
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


def _illustrated(page: Path, site: Site) -> None:
    """Writes the pictures of a paper's page."""
    text, pictures = pictures_markdown(page.stem, site)
    if not pictures:
        return
    for name, data in pictures.items():
        write_atomic(page.parent.parent / "images/papers" / name, data)
    renew(page, text, PICTURES)


def _judged(index: Path, site: Site) -> None:
    """Writes the pages of results and, beside the index, the record of all verdicts."""
    for name, text in result_pages(site, index.parent / "images").items():
        write_atomic(index.with_suffix("") / f"{name}.md" if name else index, text.encode())
    record = [json.dumps(v) for v in records(site)]
    write_atomic(index.with_suffix(".json"), ("[\n" + ",\n".join(record) + "\n]\n").encode())
    print(f"results: {index}, {index.with_suffix('')}/*.md, {index.with_suffix('.json')}")


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


def _pictured(site: Site, page: Path | None, wall_file: Path | None) -> None:
    """Writes the gallery of findings with its pictures, and the wall of claims."""
    if page is not None:
        findings = gallery.findings()
        write_atomic(page, gallery.page(site, findings).encode())
        for name, data in gallery.pictures(site, findings).items():
            write_atomic(page.parent / "images/findings" / name, data)
        print(f"findings: {page}")
    if wall_file is not None:
        write_atomic(wall_file, wall(site).encode())
        print(f"wall: {wall_file}")


def main(arguments: Sequence[str]) -> int:
    """Builds the requested pages, prints their paths and returns the exit code."""
    parser = argparse.ArgumentParser(prog="mobench report", description=__doc__)
    parser.add_argument(
        "--outputs", type=Path, help="the outputs folder (default: $MOBENCH_OUTPUTS, else outputs)"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="also write the results as Markdown: this index, and a page for each paper beside it",
    )
    parser.add_argument(
        "--readme", type=Path, metavar="FILE", help="also update the table of papers between the two markers"
    )
    parser.add_argument(
        "--papers",
        type=Path,
        metavar="DIR",
        help="also update the table of artifacts in DIR/<paper>.md between the same markers",
    )
    parser.add_argument(
        "--findings", type=Path, metavar="FILE", help="also write the gallery of findings, with its pictures"
    )
    parser.add_argument("--wall", type=Path, metavar="FILE", help="also write the wall of claims as SVG")
    args = parser.parse_args(list(arguments))
    try:
        expected = declared()
        root = args.outputs or outputs_root()
        site = collect(root, expected)
        print(f"report: {write(site, root / 'report')}")
        pages = sorted(args.papers.glob("*.md")) if args.papers is not None else []
        written = (args.results, args.readme, args.wall, args.findings, *pages)
        if any(page is not None and page.exists() for page in written):
            complete(root, expected)
        if args.results is not None:
            _judged(args.results, site)
        if args.readme is not None:
            renew(args.readme, papers_markdown(site))
            renew(args.readme, count_markdown(site), COUNT)
            print(f"readme: {args.readme}")
        if args.findings is not None or args.wall is not None:
            _pictured(site, args.findings, args.wall)
        for page in pages:
            renew(page, paper_markdown(page.stem, site))
            _illustrated(page, site)
            print(f"paper: {page}")
    except MobenchError as error:
        print(f"mobench report: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
