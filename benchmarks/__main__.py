"""`python -m benchmarks [--quick] [--output docs/performance.md] [--json outputs/benchmark.json]`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    bilevel,
    directions,
    federated,
    images,
    loops,
    overhead,
    peers,
    report,
    solves,
    surrogates,
)
from mobench.system.provenance import stamp


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures, writes the files that the options name, and returns the content of the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a tiny grid: does everything run? Its numbers mean nothing"
    )
    parser.add_argument("--output", type=Path, help="Markdown report; the figure is written beside it")
    parser.add_argument("--json", type=Path, help="all measurements")
    parser.add_argument(
        "--only", help="comma-separated algorithms, names of files in conf/algorithm (or ferero_pgd)"
    )
    parser.add_argument("--rounds", type=int, help="how often the cases alternate")
    parser.add_argument("--steps", type=int, help="iterations of a trajectory")
    parser.add_argument("--no-solves", action="store_true", help="leave the subproblems out")
    parser.add_argument("--no-images", action="store_true", help="leave the networks out")
    parser.add_argument("--no-federated", action="store_true", help="leave the clients out")
    parser.add_argument("--no-bilevel", action="store_true", help="leave the bilevel problems out")
    parser.add_argument("--no-peers", action="store_true", help="leave TorchJD and whole jobs out")
    parser.add_argument(
        "--no-overhead", action="store_true", help="leave out what a run costs beside its steps"
    )
    chosen = parser.parse_args(arguments)
    quick = chosen.quick
    settings: dict[str, Any] = {
        "sizes": [1, 4] if quick else [1, 4, 10, 100, 1000],
        "steps": chosen.steps or (2 if quick else 100),
        "rounds": chosen.rounds or (1 if quick else 8),
        "quick": quick,
    }
    torch.set_num_threads(1)
    only = chosen.only.split(",") if chosen.only else None

    def say(text: str) -> None:
        print(text, flush=True)

    others = None if chosen.no_peers else peers.measure(settings["rounds"], quick, say)
    zoo = None if chosen.no_peers else directions.measure(settings["rounds"], quick, say)
    lines, left_out = loops.measure(settings["sizes"], settings["steps"], settings["rounds"], only, say)
    rows = []
    programs = []
    if not chosen.no_solves:
        kinds = ("min_norm", "epo_lp") if quick else tuple(solves.SOLVERS)
        dimensions, sizes = ((2,), (1, 4)) if quick else ((2, 3, 5, 10, 20), (1, 100, 1000))
        rows = solves.measure(kinds, dimensions, sizes, settings["rounds"], 0.001 if quick else 0.05, say)
        cases = list(surrogates.CASES)[:1] if quick else list(surrogates.CASES)
        batches = (1, 4) if quick else (1, 10, 100, 1000)
        programs = surrogates.measure(cases, batches, settings["rounds"], 0.001 if quick else 0.2, say)
    pictures = None if chosen.no_images else images.measure(settings["rounds"], quick, say)
    clients = None if chosen.no_federated else federated.measure(settings["rounds"], quick, say)
    levels = None if chosen.no_bilevel else bilevel.measure(settings["rounds"], quick, say)
    beside = None if chosen.no_overhead else overhead.measure(settings["rounds"], quick, say)
    machine = {**stamp(), "cores": os.cpu_count()}
    result = report.as_json(
        machine, settings, lines, rows, programs, pictures, clients, levels, beside, others, zoo
    )
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")
    if chosen.output:
        figure = chosen.output.with_suffix(".png")
        report.draw(lines, figure)
        report.draw_opening(lines, figure.with_name(report.opening_name(figure.name)))
        if others is not None:
            peers.draw(others, figure.with_name(f"{figure.stem}_cost_law.png"))
        text = report.markdown(
            machine,
            settings,
            lines,
            left_out,
            rows,
            figure.name,
            programs,
            pictures,
            clients,
            levels,
            beside,
            others,
            zoo,
        )
        chosen.output.write_text(text)
        say(f"wrote {chosen.output} and {figure}")
    return result


if __name__ == "__main__":
    main()
