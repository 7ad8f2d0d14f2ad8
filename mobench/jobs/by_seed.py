"""A job of many seeds, run a few seeds at a time and joined: `hardware.seeds_per_job=1`.

A run is the same alone and in a batch, up to rounding, so the joined rows are those of the whole job. Each
part is a job of its own, with a folder of its own: a stop loses one part at most, a seed that was run before
is not run again, and more seeds can be added later. A batch is faster where programs are small; parts are for
jobs that take hours. `seconds` of a run is measured in its part.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mobench.errors import StoreError
from mobench.jobs.build import make_job
from mobench.jobs.job import Job
from mobench.jobs.rows import mark_done
from mobench.jobs.store import JobFolder
from mobench.system.files import write_json

PEAKS = ("peak_memory_mib", "peak_gpu_memory_mib")
SUMS = ("seconds_train", "seconds_evaluate", "seconds_wall", "final_rows")
SAME = ("ideal_point", "dtype")  # what must not differ from part to part


def parts_of(job: Job) -> list[Job]:
    """Returns the jobs of a few seeds each that a job is run as; none where it is run as one batch."""
    size = job.config["hardware"]["seeds_per_job"]
    seeds = list(job.config["seeds"])
    if size is None or len(seeds) <= size:
        return []
    groups = [seeds[i : i + size] for i in range(0, len(seeds), size)]
    return [make_job({**job.config, "seeds": group}) for group in groups]


@dataclasses.dataclass(frozen=True)
class Piece:
    """Rows of some seeds of a job.

    Args:
        job: the job of these seeds.
        folder: its finished folder.
        whole: the job that it is a part of.
    """

    job: Job
    folder: JobFolder
    whole: Job

    def numbers(self, runs: np.ndarray) -> np.ndarray:
        """Returns the numbers in the whole job of runs of this part: seeds are the fastest axis of both."""
        own = list(self.job.config["seeds"])
        everyone = list(self.whole.config["seeds"])
        place = np.array([everyone.index(seed) for seed in own])
        numbers: np.ndarray = runs // len(own) * len(everyone) + place[runs % len(own)]
        return numbers

    def numbered(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Returns a table whose runs have their numbers in the whole job."""
        return frame.assign(run=self.numbers(frame["run"].to_numpy()))


def join(job: Job, parts: Sequence[Job], folders: Sequence[JobFolder], folder: JobFolder) -> None:
    """Writes the rows of a job from those of its parts, and marks it done.

    Raises:
        StoreError: The parts do not belong together: one has another ideal point, for example.
    """
    pieces = [Piece(part, place, job) for part, place in zip(parts, folders, strict=True)]
    metas = [piece.folder.meta() for piece in pieces]
    for name in SAME:
        if any(meta.get(name) != metas[0].get(name) for meta in metas):
            raise StoreError(
                f"The parts of {job.key} cannot be joined: their {name} differs ({metas[0].get(name)} in "
                f"{folders[0].path}). Run the job in one batch with hardware.seeds_per_job=null."
            )
    final = _stacked([piece.numbered(piece.folder.final()) for piece in pieces], ["run"])
    history = _stacked([piece.numbered(piece.folder.history()) for piece in pieces], ["step", "run"])
    folder.write_config(job.config)
    folder.write_table("history.parquet", history)
    if all((piece.folder.path / "solutions.npz").exists() for piece in pieces):
        folder.write_solutions(_solutions(job, pieces))
    meta = _meta(job, pieces, metas)
    write_json(folder.path / "meta.json", meta)
    folder.write_table("final.csv", final)
    began = min(float(piece.folder.status().get("started", time.time())) for piece in pieces)
    first = final[final["output"] == job.algorithm.outputs[0]]
    mark_done(job, folder, first, meta["unsolved"], began, meta["seconds_train"])


def _stacked(frames: Sequence[pd.DataFrame], by: list[str]) -> pd.DataFrame:
    """Returns all rows in the order of a job that is run as one batch: one output rule after the other."""
    rules = list(dict.fromkeys(frames[0]["output"]))
    whole = pd.concat(frames, ignore_index=True)
    whole = whole.assign(_rule=whole["output"].map(rules.index))
    return whole.sort_values(["_rule", *by], kind="stable", ignore_index=True).drop(columns="_rule")


def _solutions(job: Job, pieces: Sequence[Piece]) -> dict[str, np.ndarray]:
    """Returns the decision variables of all runs, (R, P) for each output rule."""
    found: dict[str, np.ndarray] = {}
    for piece in pieces:
        for name, values in piece.folder.solutions().items():
            whole = found.setdefault(name, np.empty((len(job.runs), values.shape[1]), values.dtype))
            whole[piece.numbers(np.arange(len(values)))] = values
    return found


def _meta(job: Job, pieces: Sequence[Piece], metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns meta.json: what all parts say, sums of their times, and which parts they are."""
    names = dict.fromkeys(name for meta in metas for name in meta)
    out: dict[str, Any] = {name: _together([m[name] for m in metas if name in m]) for name in names}
    out |= {name: sum(meta[name] for meta in metas) for name in SUMS}
    out |= {name: max(meta[name] for meta in metas if name in meta) for name in PEAKS if name in out}
    out["unsolved"] = sorted(
        (
            {**run, "run": int(piece.numbers(np.array([run["run"]]))[0])}
            for piece, meta in zip(pieces, metas, strict=True)
            for run in meta["unsolved"]
        ),
        key=lambda run: run["run"],
    )
    parts = [piece.folder.key for piece in pieces]
    execution = f"{len(parts)} jobs of some seeds each, joined; the first: {metas[0]['execution']}"
    return {**out, "execution": execution, "parts": parts, "identity": job.identity}


def _together(values: Sequence[Any]) -> Any:
    """Returns what parts say of one thing: once where it is the same, by seed where they are mappings."""
    if all(value == values[0] for value in values):
        return values[0]
    if all(isinstance(value, Mapping) for value in values):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _together([v[name] for v in values if name in v]) for name in names}
    if all(isinstance(value, str) for value in values):
        return " and ".join(dict.fromkeys(values))
    return list(values)
