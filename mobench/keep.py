"""Keep the rows of drawn artifacts with the project:  python -m mobench.keep csmoo/fig38 [...]

Copies final.csv, solutions.npz, config.yaml, meta.json and status.json of their jobs to experiments/results/runs, where
`mobench` finds them before it runs a job again. Histories stay behind: they are large. Host names and paths, too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import yaml

from mobench.artifacts.artifact import artifact_folder, read
from mobench.console import fail, say
from mobench.store import JobFolder, outputs_root, results_root, write_atomic, write_json

COPIED = ("final.csv", "solutions.npz", "meta.json")
PRIVATE = ("host", "pid")


def keep(folder: JobFolder, root: Path) -> int:
    """Copy one finished job; returns its size in bytes."""
    target = root / "runs" / folder.key
    for name in COPIED:
        if (folder.path / name).exists():
            write_atomic(target / name, (folder.path / name).read_bytes())
    config = folder.config() | {"data_root": "data"}
    write_atomic(target / "config.yaml", yaml.safe_dump(config, sort_keys=False).encode())
    # last: a folder with this file is complete
    write_json(target / "status.json", {k: v for k, v in folder.status().items() if k not in PRIVATE})
    return sum(f.stat().st_size for f in target.iterdir())


def main() -> int:
    """Keep the jobs of the given artifacts."""
    parser = argparse.ArgumentParser(prog="python -m mobench.keep", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("ids", nargs="+", metavar="PAPER/ID", help="artifacts drawn before, such as csmoo/fig38")
    code = 0
    for id in parser.parse_args().ids:
        try:
            jobs = read(artifact_folder(id))["provenance"]["jobs"]
        except (OSError, json.JSONDecodeError, KeyError):
            fail(f"{id} is not drawn in {outputs_root()}; draw it first: mobench +experiment={id}")
            code = 1
            continue
        for name, key in jobs.items():
            folder = JobFolder(outputs_root() / "runs" / key)
            if not folder.done:
                say(f"{id} {name}: {key} is kept already or not finished; left alone")
                continue
            say(f"{id} {name}: {key}, {keep(folder, results_root()) / 1e3:.0f} kB")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
