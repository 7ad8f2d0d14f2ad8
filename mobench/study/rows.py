"""All rows of many jobs as one frame, with the settings by which the jobs differ.

    mobench.rows("problem=zdt2", "algorithm=epo,ferero")

A query is words KEY=VALUE[,VALUE...]; a job is meant if it fits all of them. Settings are those of the job's
identity (`algorithm.step_size`, `oracle.batch_size`, `steps`); `problem`, `algorithm` and `oracle` are the
names of the command line, `job` is the name of the folder, and `*` stands for any letters.
"""

from __future__ import annotations

import fnmatch
import functools
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mobench.config.schema import choices, conf_dir
from mobench.errors import ConfigError, StoreError, suggest
from mobench.jobs.store import JobFolder, varied
from mobench.system.paths import outputs_root, results_root

if TYPE_CHECKING:
    import pandas as pd

RUN = ("run", "seed", "output")
PARTS = ("problem", "algorithm", "oracle")
NOT_SETTINGS = ("versions", "preferences", "device")  # rows have them, or nobody sets them


@dataclass(frozen=True)
class Found:
    """A job folder with its settings; those of a job that has not finished are known in part only."""

    folder: JobFolder
    settings: Mapping[str, Any]


def folders(root: Path) -> list[JobFolder]:
    """Returns all job folders below an outputs folder."""
    runs = root / "runs"
    marks = ("config.yaml", "status.json")
    listed = sorted(runs.iterdir()) if runs.is_dir() else []
    return [JobFolder(path) for path in listed if any((path / name).exists() for name in marks)]


def matching(query: Sequence[str], root: Path) -> list[Found]:
    """Returns the jobs below an outputs folder that fit a query, in the order of their names.

    Raises:
        ConfigError: a word of the query is none, or names a setting that no job has.
    """
    words = [_term(word) for word in query]
    every = [Found(folder, _settings(folder)) for folder in folders(root)]
    known = {key for job in every for key in job.settings}
    terms = [(_full(key, known) if every else key, values) for key, values in words]  # a key may come twice
    return [job for job in every if all(_fits_text(job.settings.get(k), v) for k, v in terms)]


def rows(*query: str, kept: bool = False) -> pd.DataFrame:
    """All rows of the finished jobs that fit a query, with the settings by which these jobs differ.

        rows()                                             every finished job in outputs/runs
        rows("problem=zdt2", "algorithm=epo,ferero")       of one problem, two methods
        rows("algorithm.step_size=0.1", "job=*-epo-*")     any setting, and names of folders

    Args:
        query: words KEY=VALUE or KEY=VALUE,VALUE; a job must fit all of them. Keys are problem, algorithm and
            oracle (names as on the command line), job (the folder), and settings such as algorithm.step_size
            or steps; * stands for any letters.
        kept: take the rows that come with mobench instead of those of outputs/runs.

    Returns:
        A row for each run and output rule, the columns of final.csv behind job, problem, algorithm and the
        settings by which jobs of the same problem or method differ. `mobench.load(rows["job"].iloc[0])` has
        the rest of a job. Parts of a job (`hardware.split`) are left out beside the whole; a warning names
        other jobs that share runs, such as those with seeds=[0] and seeds=[0,1].

    Raises:
        ConfigError: a query that is none, or names a setting that no job has.
        StoreError: a finished job whose rows are damaged.
    """
    import pandas as pd

    jobs = matching(query, results_root() if kept else outputs_root())
    done = [job for job in jobs if job.folder.done]
    parts = {part for job in done for part in job.folder.meta().get("parts", ())}
    jobs, done = ([job for job in some if job.folder.key not in parts] for some in (jobs, done))
    finished = {job.folder.key for job in done}
    left_out = [job.folder for job in jobs if job.folder.key not in finished]
    states_now = (folder.state(folder.status()) for folder in left_out)
    # one that is done and has no rows is damaged
    if counts := Counter("failed" if state == "done" else state for state in states_now):
        states = ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
        warnings.warn(f"jobs without rows are left out: {states}; see `mobench status`", stacklevel=2)
    columns = dict.fromkeys(("job", "problem", "algorithm", *differing([job.settings for job in done])))
    if not done:
        return pd.DataFrame(columns=[*columns, *RUN, "status"])
    tables = [job.folder.final() for job in done]
    settings = pd.DataFrame([{key: job.settings.get(key) for key in columns} for job in done])
    of_row = [i for i, table in enumerate(tables) for _ in range(len(table))]
    repeated = settings.iloc[of_row].reset_index(drop=True)
    # a setting that only some jobs vary stands where that of the first job would
    front = dict.fromkeys((*RUN, *(name for table in tables for name in varied(table))))
    ends = pd.concat(tables, ignore_index=True)
    frame = pd.concat([repeated, ends[[*front, *(name for name in ends if name not in front)]]], axis=1)
    told_apart = [name for name in (*columns, *front) if name not in ("job", "run")]
    if not kept and (several := _shared(frame, told_apart)):  # kept rows are those of several artifacts
        warnings.warn(
            f"jobs share runs (same settings, seed and preference), which are there several times: "
            f"{', '.join(several)}; job=NAME takes one of them",
            stacklevel=2,
        )
    return frame


def _shared(frame: pd.DataFrame, settings: Sequence[str]) -> list[str]:
    """Returns the names of jobs that share a run: these columns and the preference are the same."""
    keys = [*settings, *(name for name in frame if str(name).startswith(("preference_", "ray_")))]
    text = frame[keys].astype(str)  # settings may be lists
    by_job = text.assign(job=frame["job"]).drop_duplicates()
    return list(by_job.loc[by_job.duplicated(keys, keep=False), "job"].unique())


def runs() -> pd.DataFrame:
    """All jobs in outputs/runs, or $MOBENCH_OUTPUTS/runs, the latest first, a row each: name (for `load`),
    status, problem, algorithm, oracle, steps, seeds, the settings by which jobs differ, such as
    algorithm.step_size (None where a job has none), and modified. Folders that cannot be read are left out.
    """
    import pandas as pd

    jobs = [job for job in matching((), outputs_root()) if "seeds" in job.settings]
    columns = dict.fromkeys((*PARTS, "steps", "seeds", *differing([job.settings for job in jobs])))
    lines = []
    for job in jobs:
        try:
            line: dict[str, Any] = {"name": job.folder.key, "status": job.folder.state(job.folder.said())}
            line["modified"] = (job.folder.path / "status.json").stat().st_mtime
        except (StoreError, OSError, KeyError):
            continue
        lines.append(line | {key: job.settings.get(key) for key in columns})
    table = pd.DataFrame(lines, columns=["name", "status", *columns, "modified"], dtype=object)
    table["modified"] = pd.to_datetime(table["modified"], unit="s")
    return table.sort_values("modified", ascending=False, ignore_index=True)


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the settings by which jobs differ, in order.

    A setting of a part counts only if it has two values among jobs with the same choice of this part, so that
    settings that follow from the choice of a method are left out.
    """
    values: dict[str, dict[Any, set[str]]] = {}
    for one in settings:
        for key, value in one.items():
            part = one.get(key.partition(".")[0]) if "." in key else None
            values.setdefault(key, {}).setdefault(part, set()).add(repr(value))
    names = [key for key in values if key not in ("job", "seeds")]  # every row has these
    return [key for key in names if any(len(found) > 1 for found in values[key].values())]


def in_words(value: Any) -> str:
    """Returns the name of a group of rows; those of jobs that do not have its setting are a group, too."""
    return "none" if value is None or value != value else str(value)  # a NaN differs from itself


def _full(key: str, known: Collection[str]) -> str:
    """Returns the full name of a setting; its last part suffices where no two settings share it."""
    matches = [name for name in known if name == key or name.rpartition(".")[2] == key]
    if key in known or len(matches) == 1:
        return key if key in known else matches[0]
    if matches:
        raise ConfigError(f"{key!r} is short for {' and '.join(sorted(matches))}; write one of them.")
    ends = {name.rpartition(".")[2] for name in known}
    raise ConfigError(f"No job has the setting {key!r}.{suggest(key, [*known, *ends])}")


def _term(word: str) -> tuple[str, str]:
    key, _, values = word.partition("=")
    if not key or not values:
        raise ConfigError(
            f"{word!r} is no part of a query; write KEY=VALUE, such as problem=zdt2 or algorithm=epo,ferero."
        )
    return key.lstrip("+"), values


def _fits_text(value: Any, values: str) -> bool:
    """Says whether a value is this text, commas and brackets included, or one of its VALUE,VALUE."""
    return value == values or _fits(value, values.strip("[]").split(","))


def _fits(value: Any, patterns: Sequence[str]) -> bool:
    """Says whether a value equals one of the patterns, as text or as a number: 0.10 is 0.1.

    A list equals all of them, in their order: `seeds=[0,1]`.
    """
    if value is None:
        return "null" in patterns
    if isinstance(value, list | tuple):
        return len(value) == len(patterns) and all(map(_fits, value, ([text] for text in patterns)))
    if isinstance(value, bool):
        return str(value).lower() in (text.lower() for text in patterns)
    return any(fnmatch.fnmatchcase(str(value), text) or _equal(value, text) for text in patterns)


def _equal(value: Any, text: str) -> bool:
    try:
        return float(value) == float(text)
    except (TypeError, ValueError):
        return False


def _settings(folder: JobFolder) -> dict[str, Any]:
    """Returns the settings of a job's identity, or of its folder's name while it has none."""
    problem, _, rest = folder.key.partition("-")
    settings: dict[str, Any] = {"job": folder.key, "problem": problem, "algorithm": rest.rpartition("-")[0]}
    try:
        identity = folder.settings()
        flat = dict(_flat(identity))
        parts = {part: _name(part, identity[part]) for part in PARTS}
    except (FileNotFoundError, StoreError, KeyError, TypeError, AttributeError):
        return settings  # of a job that has just begun; of a damaged one, its reader says what is wrong
    title = identity["problem"].get("title")  # functions, networks or a training loop of one's own
    names = {key: name for key, name in parts.items() if name} | ({"problem": title} if title else {})
    if identity["problem"]["class"] == "Recorded":  # the folder's name leaves out signs of the method's
        names["algorithm"] = str(identity["algorithm"]["class"])
    return settings | names | flat


def _flat(node: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if key in NOT_SETTINGS or key in ("class", "_target_"):
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{where}{key}.")
        else:
            yield f"{where}{key}", value


def _name(group: str, node: Mapping[str, Any]) -> str:
    """Returns the name of a part on the command line; of several with its class one that sets its values."""
    cls = str(node["class"])
    files = _files(group).get(cls, {})
    fitting = [name for name, values in files.items() if len(files) == 1 or _sets(values, node)]
    plain = [name for name in files if name.replace("_", "") == cls.lower()]
    return ([name for name in plain if name in fitting] or fitting or plain or [""])[0]


def _sets(values: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Says whether a file sets the values of a part, step size aside."""
    compared = {k: v for k, v in values.items() if k not in ("_target_", "step_size") and "$" not in str(v)}
    return all(node.get(k) == v for k, v in compared.items())


@functools.cache
def _files(group: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the files of conf/GROUP by the class that they name: their values by their names."""
    by_class: dict[str, dict[str, dict[str, Any]]] = {}
    for name in choices(group):
        values = yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text()) or {}
        by_class.setdefault(str(values.get("_target_")).rpartition(".")[2], {})[name] = values
    return by_class
