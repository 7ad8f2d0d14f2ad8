"""What a job's page draws: the recorded objective values of its runs, thinned, as a small script.

A file opened from disk may load a script beside it, but no data; so the values are assigned to a variable.
The name of the script holds the time and size of the history, so it is written once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mobench.errors import StoreError
from mobench.jobs.store import JobFolder, columns

RUNS = 60  # of a job with more, the first ones
STEPS = 24  # recorded steps that are shown, the first and the last among them
DIGITS = 4


def script_name(folder: Path) -> str | None:
    """Returns the address of a job's script, from the report's folder; None if it has no history."""
    try:
        found = (folder / "history.parquet").stat()
    except FileNotFoundError:
        return None
    return f"assets/paths/{folder.name}-{found.st_mtime_ns:x}-{found.st_size:x}.js"


def script(folder: Path) -> bytes:
    """Returns the script; where the history cannot be loaded, the page says why."""
    try:
        data = _data(JobFolder(folder))
    except (StoreError, KeyError, ValueError) as error:
        data = {"problem": f"The recorded steps could not be loaded: {error}"}
    return f"window.mobenchPaths={json.dumps(data, separators=(',', ':'))};\n".encode()


def _data(folder: JobFolder) -> dict[str, Any]:
    """Returns steps, and for each run its preference, seed and objective values (steps, M)."""
    history = folder.history()
    rule = history["output"].iloc[0]
    final = folder.final()
    final = final[final["output"] == final["output"].iloc[0]]
    # arrays from here on: a report shows hundreds of jobs
    own = (history["output"] == rule).to_numpy()
    step = history["step"].to_numpy()[own]
    run = history["run"].to_numpy()[own]
    values = history[columns(history, "f_")].to_numpy(dtype=float)[own]
    steps = np.unique(step)
    shown = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), STEPS)).round().astype(int))]
    seen = np.isin(step, shown)
    step = step[seen]
    run = run[seen]
    values = values[seen]
    order = np.lexsort((step, run))
    names, starts = np.unique(run[order], return_index=True)
    paths = dict(zip(names.tolist(), np.split(values[order], starts[1:]), strict=True))
    listed = zip(
        final["run"].tolist(),
        final["seed"].tolist(),
        final[columns(final, "preference_")].to_numpy(dtype=float).round(3).tolist(),
        strict=True,
    )
    runs = [
        {"seed": seed, "preference": preference, "f": [[_short(x) for x in row] for row in paths[number]]}
        for number, seed, preference in listed
        if len(paths.get(number, ())) == len(shown)
    ]
    return {"steps": shown.tolist(), "total": len(final), "runs": runs[:RUNS]}


def _short(value: float) -> float | None:
    """Returns a number with few digits; None where it is none, as JSON has no NaN."""
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
