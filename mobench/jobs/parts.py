"""A job in parts that are jobs of their own, and their rows joined: `hardware.split=4`.

Runs are independent, so a job is cut by seeds, and, where that gives too few parts, by preferences. A part
knows the whole set of preferences, which some methods need, and has a folder of its own: a stop loses one
part at most. Parts by seeds alone are the jobs of these seeds: one that was run before is not run again, and
more seeds can be added later. Methods whose runs of a seed move together cannot be cut by preferences.

A run is the same alone and in a batch, up to rounding: sums of another number of runs may be taken in another
order. Parts of one cut are the same wherever they run, bit for bit on machines of one kind. `seconds` of a
run is measured in its part.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mobench.errors import ConfigError, StoreError
from mobench.jobs.build import make_job
from mobench.jobs.job import Job
from mobench.jobs.rows import hypervolumes, mark_done
from mobench.jobs.store import JobFolder
from mobench.system import provenance
from mobench.system.files import write_json

NO_PARTS = {"split": None, "part": None}
PEAKS = ("peak_memory_mib", "peak_gpu_memory_mib")
SUMS = ("seconds_train", "seconds_evaluate", "seconds_wall")
SAME = ("ideal_point", "dtype")  # what must not differ from part to part


def cut(job: Job) -> list[dict[str, Any]]:
    """Returns what the parts of a job set instead of the whole: `seeds`, and `part` of the preferences; none
    where it is run as one batch.

    Raises:
        ConfigError: it cannot be cut into so many parts.
    """
    seeds = list(job.config.seeds)
    if job.config.hardware.part is not None:
        return []
    wanted = job.config.hardware.split or 1
    if wanted <= len(seeds):
        groups = [list(map(int, some)) for some in np.array_split(seeds, wanted)]
        return [{"seeds": group, "part": None} for group in groups] if wanted > 1 else []
    chunks = -(-wanted // len(seeds))
    runs = len(seeds) * len(job.runs.all)
    if job.algorithm.together:
        raise ConfigError(
            f"hardware.split={wanted}: {type(job.algorithm).__name__} moves all preferences of a seed "
            f"together, so a job of {len(seeds)} seed(s) can be cut into {len(seeds)} part(s) at most."
        )
    if chunks > len(job.runs.all):
        raise ConfigError(f"hardware.split={wanted}: the job has {runs} runs, and so {runs} parts at most.")
    return [{"seeds": [seed], "part": [k, chunks]} for k in range(chunks) for seed in seeds]


def parts_of(job: Job) -> list[Job]:
    """Returns the jobs that a job is run as; none where it is run as one batch."""
    return [
        make_job(
            {
                **job.config.plain,
                "seeds": part["seeds"],
                "hardware": {**job.config.plain["hardware"], **NO_PARTS, "part": part["part"]},
            }
        )
        for part in cut(job)
    ]


def title_of(part: Job) -> str:
    """Returns what messages call a part."""
    seeds = ", ".join(map(str, part.config.seeds))
    if part.config.hardware.part is None:
        return f"seeds {seeds}"
    chunk, chunks = part.config.hardware.part
    return f"seeds {seeds} and preferences {chunk + 1} of {chunks}"


@dataclasses.dataclass(frozen=True)
class Piece:
    """Rows of a part of a job.

    Args:
        job: the part.
        folder: its finished folder.
        whole: the job that it is a part of.
    """

    job: Job
    folder: JobFolder
    whole: Job

    def numbers(self, runs: np.ndarray) -> np.ndarray:
        """Returns the numbers in the whole job of runs of this part: seeds are the fastest axis of both."""
        everyone = list(self.whole.config.seeds)
        part_runs = self.job.runs
        place = np.array([everyone.index(seed) for seed in part_runs.seeds.tolist()])
        first = part_runs.index.numpy()
        if part_runs.variant is not None:
            first = first + part_runs.variant.numpy() * len(part_runs.all)
        numbers: np.ndarray = (first * len(everyone) + place)[runs]
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
                f"{folders[0].path}). Run the job in one batch with hardware.split=null."
            )
    final = _stacked([piece.numbered(piece.folder.final()) for piece in pieces], ["run"])
    history = _stacked([piece.numbered(piece.folder.history()) for piece in pieces], ["step", "run"])
    folder.write_status("running", step=job.steps, steps=job.steps)  # until all files are those of one job
    folder.write_config(job.config.plain)
    folder.write_table("history.parquet", history)
    if all((piece.folder.path / "solutions.npz").exists() for piece in pieces):
        folder.write_solutions(_solutions(job, pieces))
    meta = _meta(job, pieces, metas)
    # of preferences that parts know only some of
    frames = [final[final["output"] == name] for name in job.algorithm.outputs]
    meta["hypervolume"] = hypervolumes(job, frames)
    meta["final_rows"] = len(final)
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
    solutions: dict[str, np.ndarray] = {}
    for piece in pieces:
        for name, values in piece.folder.solutions().items():
            whole = solutions.setdefault(name, np.empty((len(job.runs), values.shape[1]), values.dtype))
            whole[piece.numbers(np.arange(len(values)))] = values
    return solutions


def _meta(job: Job, pieces: Sequence[Piece], metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns meta.json: what all parts say, sums of their times, and which parts they are."""
    names = dict.fromkeys(name for meta in metas for name in meta)
    out: dict[str, Any] = {name: _together([m[name] for m in metas if name in m]) for name in names}
    out |= {name: sum(meta[name] for meta in metas) for name in SUMS}
    out |= {name: max(meta[name] for meta in metas if name in meta) for name in PEAKS if name in out}
    by_device: dict[str, float] = {}
    for meta in metas:
        # the wall time of older rows is that of the last session alone
        spent = max(meta["seconds_wall"], meta["seconds_train"] + meta["seconds_evaluate"])
        for name, seconds in meta.get("seconds_by_device", {meta["device"]: spent}).items():
            by_device[name] = by_device.get(name, 0.0) + seconds
    out["device"] = " and ".join(by_device)
    if len(by_device) > 1:
        out["seconds_by_device"] = by_device
    every = [one for meta in metas for one in meta.get("processes", [meta])]
    out |= provenance.together(every)
    out.pop("processes", None)  # the parts have them
    out["unsolved"] = sorted(
        (
            {**run, "run": int(piece.numbers(np.array([run["run"]]))[0])}
            for piece, meta in zip(pieces, metas, strict=True)
            for run in meta.get("unsolved", ())  # older parts do not say it
        ),
        key=lambda run: run["run"],
    )
    parts = [piece.folder.key for piece in pieces]
    execution = f"{len(parts)} jobs joined; the first: {metas[0]['execution']}"
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
