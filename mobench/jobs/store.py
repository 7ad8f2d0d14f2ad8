"""Job folders: the rows on disk are the truth.

    outputs/runs/<problem>-<algorithm>-<hash>/
      config.yaml status.json final.csv solutions.npz history.parquet meta.json
          (checkpoint.pt while it runs)

Everything is written atomically: temporary file, fsync, rename. A finished folder is not run again, a
half-finished one is resumed, a failed one is run again.

Files belong to their job: a checkpoint says whose it is (`mobench.jobs.checkpoints`), status.json, which is
written last, has the SHA-256 of all other files of a finished job, and the name of a folder ends with the
hash of the identity in its meta.json. Folders of older versions have no hashes of their files.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import json
import math
import os
import pickle
import re
import socket
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import yaml

from mobench.errors import StoreError
from mobench.system.files import cannot_write, read_csv, write_atomic, write_json
from mobench.system.forms import Kinds, fields, read_json, shown

if TYPE_CHECKING:  # a folder is looked at without them
    import numpy as np
    import pandas as pd

RESULTS = ("config.yaml", "final.csv", "history.parquet", "solutions.npz", "meta.json")
# of libyaml, which is seven times as fast, where PyYAML was built with it
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_MAGIC = b"mobench-checkpoint-1\n"
_NUMBERS = {"time", "progress", "seconds", "started", "finished", "diverged", "solver_failed"}
"""Fields of status.json that are computed with."""
META: dict[str, Kinds] = {
    "identity": dict,
    "versions": dict,
    "device": str,
    "dtype": str,
    "hypervolume": (dict, type(None)),
    **dict.fromkeys(("seconds_train", "seconds_evaluate", "seconds_wall"), float),
}
"""Fields of meta.json that readers use, and their kinds."""
BEATS = 10  # a job on another machine that missed so many checkpoints is dead
SILENCE = 300.0  # seconds of it that are no sign of death: steps can be long
_TICK = 20_000_000  # ns; longer than the tick of any file system's clock
_COMPRESSED = 4_000_000  # numbers of a compressed file, at most
_NAME = re.compile(r".+-([0-9a-f]{10})")  # of a folder; a copy may have any other
_UNREADABLE = (  # errors of a reader of tensors that was handed something else
    pickle.UnpicklingError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    EOFError,
)


class UnfitError(StoreError):
    """A checkpoint cannot be continued; the message goes on from the name of its file."""


class JobFolder:
    """One job's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def key(self) -> str:
        """Name of the folder."""
        return self.path.name

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for writing; a second process that wants it gets a StoreError at once."""
        handle: IO[str] | None = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("a+")
            # `held` takes the lock for an instant, a busy machine may stretch it
            for wait in (*[0.01] * 10, 0.0):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not wait:
                        raise
                    time.sleep(wait)
        except BlockingIOError as error:
            assert handle is not None
            handle.close()
            raise StoreError(
                f"Another process is running this job ({self.path}); wait for it or stop it."
            ) from error
        except OSError as error:
            if handle is not None:
                handle.close()
            raise cannot_write(error, self.path) from error
        try:
            yield
        finally:
            handle.close()

    @property
    def held(self) -> bool:
        """True if some process is running this job: it holds the lock, which ends with it however it ends."""
        try:
            with (self.path / ".lock").open("r") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    # status

    def state(self, status: Mapping[str, Any]) -> str:
        """Returns what a status of this job means now: done, failed, running, interrupted, dead or missing.

        A job that says that it runs may have no process any more, and one that has no status may have stopped
        before its first step.
        """
        said = str(status["status"])
        if said == "running" and not self._alive(status):
            return "interrupted" if status.get("interrupted") else "dead"
        if said == "missing" and (self.path / "config.yaml").exists() and not self.held:
            return "dead"
        return said

    def _alive(self, status: Mapping[str, Any]) -> bool:
        """Tells whether a `running` job has a process.

        On this machine the lock tells. Elsewhere it does where the file system shares locks; else the time
        since its last sign of life, a checkpoint or the start, does.
        """
        if self.held:
            return True
        if status.get("host") == socket.gethostname():
            return False
        try:
            every = float(self.config()["checkpoint"]["seconds"])
        except (StoreError, KeyError, TypeError, ValueError):  # missing, or edited
            every = 0.0
        return time.time() - float(status.get("time", 0.0)) < max(SILENCE, BEATS * every)

    def status(self) -> dict[str, Any]:
        """status.json, or {"status": "missing"}; an unreadable file counts as failed."""
        return dict(self._state().status)

    def _state(self) -> _State:
        """Returns what status.json, meta.json and the rows say; they are read again when one has changed."""
        stamps = tuple(_stamp(self.path / name) for name in ("status.json", "meta.json", "final.csv"))
        if stamps[0] is None:
            return _State({"status": "missing"})
        newest = max(stamp[-1] for stamp in stamps if stamp is not None)
        # a file that was edited twice within a tick of the clock may have the same stamp
        read = _read if time.time_ns() - newest > _TICK else _read.__wrapped__
        return read(self.path, stamps)

    def said(self) -> dict[str, Any]:
        """Returns what status.json says, whatever the other files are."""
        try:
            status = read_json(self.path / "status.json")
        except FileNotFoundError:
            return {"status": "missing"}
        except StoreError as error:
            return {"status": "failed", "error": f"unreadable status.json: {error}"}
        if not isinstance(status, dict) or status.get("status") not in ("running", "done", "failed"):
            return {"status": "failed", "error": f"unreadable status.json: it contains {shown(status)}"}
        digests = status.get("sha256", {})
        if not isinstance(digests, dict):
            why = f"unreadable status.json: sha256 is {digests!r:.40}, not the digests of files"
            return {"status": "failed", "error": why}
        for name in _NUMBERS & status.keys():
            if not isinstance(status[name], int | float):
                why = f"unreadable status.json: {name} is {status[name]!r:.40}, not a number"
                return {"status": "failed", "error": why}
        return status

    def write_status(self, status: str, **fields: Any) -> None:
        """running | done | failed, with step, times, host, pid and error."""
        entry = {"status": status, "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "time": time.time()}
        write_json(
            self.path / "status.json", {**entry, "host": socket.gethostname(), "pid": os.getpid(), **fields}
        )

    @property
    def done(self) -> bool:
        """Finished and complete on disk."""
        state = self._state()
        return state.status["status"] == "done" and state.damage is None

    @property
    def damage(self) -> str | None:
        """A sentence on the damage of a folder that is marked as done; None if it has none.

        The rows are compared with their digest, and the identity with the name of the folder, which costs
        little; the digests of other files when they are read. A job whose rows are not all there, or not its
        own, is not finished: as one without final.csv, it is run again.
        """
        return self._state().damage

    def _rows_damage(self, status: dict[str, Any], meta: Any) -> str | None:
        """A sentence on the damage of final.csv; None if it has none."""
        path = self.path / "final.csv"
        try:
            rows = path.read_bytes()
        except FileNotFoundError:
            return f"{path} is missing."
        except OSError:
            return None  # whoever reads the rows says why they cannot be
        expected = _expected(meta)
        count = max(rows.count(b"\n") - 1, 0)
        if expected is None or (count == expected and rows.endswith(b"\n")):
            return self._changed(status, "final.csv")
        part = "" if rows.endswith(b"\n") else " and an incomplete row"
        why = f"has {count} rows{part}, but {expected} are expected, one for every run and output rule"
        return f"{path} {why}."

    def _changed(self, status: dict[str, Any], name: str) -> str | None:
        """Why a file is not the one that the job wrote, in a sentence; else None."""
        path = self.path / name
        known = status.get("sha256", {}).get(name)
        try:
            if known is None or _digest(path) == known:
                return None
        except OSError:
            return None  # whoever reads it says that it is missing, or why it cannot be read
        return f"{path} is not the file that the job wrote, whose SHA-256 is in status.json."

    def _other_job(self, meta: Any) -> str | None:
        """Why meta.json is that of another job than the folder's name says, in a sentence; else None."""
        match = _NAME.fullmatch(self.key)
        identity = meta.get("identity") if isinstance(meta, dict) else None
        if match is None or identity is None or (hashed := config_hash(identity)) == match[1]:
            return None
        return (
            f"{self.path / 'meta.json'} belongs to another job: the hash of its identity is {hashed}, and "
            f"the name of the folder ends with {match[1]}."
        )

    def check(self, name: str) -> None:
        """Raises StoreError if a file of a finished folder is not the one that its job wrote.

        Of a folder of an older version, which has no digests, it does so only if rows are missing. Where the
        file itself is missing, its reader says so.
        """
        state = self._state()
        if state.status["status"] != "done" or not (self.path / name).exists():
            return
        why = state.other_job if "sha256" in state.status else None
        if name == "final.csv":
            why = why or state.rows
            how = "the same command"
        else:
            why = why or self._changed(state.status, name)
            how = "rerun=true"
        if why is not None:
            raise StoreError(f"{why} Rerun the job with {how}, or restore the file.")

    def digests(self) -> dict[str, str]:
        """SHA-256 of each file of results that there is."""
        return {name: _digest(self.path / name) for name in RESULTS if (self.path / name).exists()}

    # checkpoints

    def save_checkpoint(self, payload: dict[str, Any]) -> None:
        """Write checkpoint.pt with its digest; the previous one is kept as checkpoint.prev.pt."""
        data = _packed(payload)
        current = self.path / "checkpoint.pt"
        previous = self.path / "checkpoint.prev.pt"
        if current.exists():
            try:
                current.replace(previous)
            except OSError as error:
                raise cannot_write(error, current) from error
        write_atomic(current, data)

    def load_checkpoint(
        self, check: Callable[[Any], None] | None = None
    ) -> tuple[dict[str, Any] | None, list[str]]:
        """The newest sound checkpoint (or None), and a message for each that was skipped.

        Args:
            check: raises UnfitError for the content of one that the job cannot continue from. Its tensors are
                on the CPU: the device that they come from may be another job's now.
        """
        messages = []
        for name in ("checkpoint.pt", "checkpoint.prev.pt"):
            path = self.path / name
            if not path.exists():
                continue
            try:
                checkpoint = _unpacked(path)
                if check is not None:
                    check(checkpoint)
            except UnfitError as error:
                messages.append(f"{path} {error}; it is ignored.")
            else:
                return checkpoint, messages
        return None, messages

    def remove_checkpoints(self, *names: str) -> None:
        """After the rows are on disk; or those of these names."""
        for name in names or ("checkpoint.pt", "checkpoint.prev.pt"):
            (self.path / name).unlink(missing_ok=True)
        for left in self.path.glob(".*.tmp"):  # of a process that was killed while it wrote
            left.unlink(missing_ok=True)

    def write_config(self, config: dict[str, Any]) -> None:
        """The resolved configuration, when the job begins."""
        text = yaml.dump(config, Dumper=_DUMPER, sort_keys=False)
        write_atomic(self.path / "config.yaml", text.encode())

    # results

    def write_table(self, name: str, frame: pd.DataFrame) -> None:
        """A CSV (17 significant digits: float64 survives) or Parquet table."""
        if name.endswith(".csv"):
            write_atomic(self.path / name, frame.to_csv(index=False, float_format="%.17g").encode())
        else:
            buffer = io.BytesIO()
            frame.to_parquet(buffer, index=False)
            write_atomic(self.path / name, buffer.getvalue())

    def write_solutions(self, solutions: dict[str, np.ndarray]) -> None:
        """Decision variables per output rule, (R, P) each; many are not compressed, which gains little."""
        import numpy as np

        buffer = io.BytesIO()
        small = sum(values.size for values in solutions.values()) <= _COMPRESSED
        # the stub takes names for its flag
        (np.savez_compressed if small else np.savez)(buffer, **solutions)  # type: ignore[arg-type]
        write_atomic(self.path / "solutions.npz", buffer.getvalue())

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        """A file of the folder; one that is missing, broken or another job's is a StoreError that says what
        to do.
        """
        path = self.path / name
        self.check(name)
        try:
            yield path
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            EOFError,
            yaml.YAMLError,
            zipfile.BadZipFile,
            RecursionError,
        ) as error:
            missing = isinstance(error, FileNotFoundError)
            why = "is missing" if missing else f"could not be read ({type(error).__name__}: {error})"
            raise StoreError(
                f"{path} {why}. Rerun the job with rerun=true, or delete its folder first."
            ) from error

    def config(self) -> dict[str, Any]:
        """The resolved configuration that produced the rows."""
        with self._reading("config.yaml") as path:
            return fields(str(path), _LOADER(path.read_text()).get_single_data(), {})

    def settings(self) -> dict[str, Any]:
        """Returns what decides the rows, each part with its `class`: the identity in meta.json, or the
        configuration where there is none yet.

        Raises:
            StoreError: they cannot be read, or are another job's.
        """
        meta = _plain(self.path / "meta.json")
        if isinstance(meta, dict) and isinstance(meta.get("identity"), dict):
            if why := self._other_job(meta):
                raise StoreError(why)
            return dict(meta["identity"])
        parts = ("problem", "oracle", "algorithm", "constraint", "space")
        whole = self.config()
        config = {key: whole.get(key) for key in (*parts, "record", "seeds", "steps", "dtype")}
        for part in parts:
            node = config[part] or {}
            if "_target_" in node:
                config[part] = {**node, "class": str(node["_target_"]).rpartition(".")[2]}
        return config

    def final(self) -> pd.DataFrame:
        """Rows, one per run and output rule."""
        with self._reading("final.csv") as path:
            rows = read_csv(path)
        # most kept rows are of before there were digests, so nothing else notices what an editor has done
        lost = [name for name in ("run", "seed", "output", "status") if name not in rows]
        numbers = [n for n in map(str, rows) if n in ("run", "seed") or n.startswith(("f_", "preference_"))]
        texts = [name for name in numbers if rows[name].dtype.kind not in "iufb"]
        if (lost and self.status()["status"] == "done") or texts:
            what = f"{', '.join(texts)} must be numbers" if texts else f"it has no column {lost[0]}"
            raise StoreError(
                f"{self.path / 'final.csv'} is damaged: {what}. Rerun the job with rerun=true, or restore "
                "the file."
            )
        return rows

    def history(self) -> pd.DataFrame:
        """Tidy rows over recorded steps."""
        import pandas as pd

        with self._reading("history.parquet") as path:
            return pd.read_parquet(path)

    def solutions(self) -> dict[str, np.ndarray]:
        """Decision variables per output rule."""
        import numpy as np

        with self._reading("solutions.npz") as path, path.open("rb") as file, np.load(file) as archive:
            return {k: archive[k] for k in archive.files}

    def meta(self) -> dict[str, Any]:
        """Provenance and timings."""
        with self._reading("meta.json") as path:
            return fields(str(path), read_json(path), META)


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    """Changes when a file does, and with the time for one that cannot be seen; None: it is missing."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return 0, 0, 0, time.time_ns()
    # ctime, too: nobody can set it back as they can the time of the content
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


@dataclass(frozen=True)
class _State:
    """Status of a folder; of one that is done, why its identity or its rows are wrong, in a sentence."""

    status: dict[str, Any]
    other_job: str | None = None
    rows: str | None = None

    @property
    def damage(self) -> str | None:
        return self.other_job or self.rows


@functools.lru_cache(maxsize=10_000)
def _read(path: Path, stamps: tuple[Any, ...]) -> _State:
    """Returns the state of a folder whose files have these stamps."""
    folder = JobFolder(path)
    status = folder.said()
    if status["status"] != "done":
        return _State(status)
    meta = _plain(path / "meta.json")
    return _State(status, folder._other_job(meta), folder._rows_damage(status, meta))


def _plain(path: Path) -> Any:
    """Returns the contents of a file of JSON; None where it cannot be read."""
    try:
        return read_json(path)
    except (OSError, StoreError):
        return None


def _expected(meta: Any) -> int | None:
    """Number of rows, as meta.json says, which is written before them; None: it does not."""
    try:
        if "final_rows" in meta:
            return int(meta["final_rows"])
        job = meta["identity"]  # of older folders
        runs = len(job["preferences"]) * len(job["seeds"]) * math.prod(len(v) for _, v in job.get("vary", []))
        return runs * len(job["algorithm"].get("outputs", ["last"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _unpacked(path: Path) -> Any:
    """The content of a checkpoint; raises UnfitError if there is none to be read."""
    import torch

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UnfitError(f"cannot be read ({error.strerror})") from error
    data = raw[len(_MAGIC) + 32 :]
    if not raw.startswith(_MAGIC) or sha256(data).digest() != raw[len(_MAGIC) :][:32]:
        raise UnfitError("is corrupt (its digest does not match)")
    try:
        with warnings.catch_warnings(action="ignore"):  # what PyTorch advises is not for who runs a job
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise UnfitError("holds something else than tensors and plain values") from error


def _packed(payload: dict[str, Any]) -> bytes:
    """A checkpoint with its digest."""
    import torch

    buffer = io.BytesIO()
    torch.save(payload, buffer)
    data = buffer.getvalue()
    return _MAGIC + sha256(data).digest() + data


# names that rows have whatever their problem and method are, and those of settings that are put beside them
OF_ALL_ROWS = (
    r"(f|preference)_\d+|run|step|seed|output|ended|seconds|status|solver_failures"
    r"|job|problem|algorithm|oracle|steps|seeds"
)


def columns(frame: pd.DataFrame, prefix: str) -> list[str]:
    """Names of the columns that begin with `prefix`, in order: `columns(rows, "f_")`."""
    return [str(c) for c in frame.columns if str(c).startswith(prefix)]


def infeasible(frame: pd.DataFrame) -> np.ndarray:
    """Says which rows (n,) do not surely keep their constraints up to `metrics.FEASIBLE`; none without any.

    A violation that is NaN is not kept. In rows of several jobs, the violations of a job without constraints
    are all NaN.
    """
    import numpy as np

    from mobench.metrics import FEASIBLE

    if "violation" not in frame:
        return np.zeros(len(frame), bool)
    violation = frame["violation"].astype(float)
    violated: np.ndarray = ~(violation <= FEASIBLE).to_numpy()  # not `>`, which is False of NaN
    for name in ("job", "problem"):
        if name in frame:
            numbers = violation.notna().groupby(frame[name], dropna=False).transform("any")
            return violated & numbers.to_numpy(dtype=bool)
    return violated


def varied(frame: pd.DataFrame) -> list[str]:
    """Names of the settings that differ between the runs of a job (`vary`), behind the output rule."""
    names = [str(c) for c in frame.columns]
    first = next((i for i, c in enumerate(names) if c.startswith("preference_")), 0)
    return names[names.index("output") + 1 : first] if "output" in names else []


def config_hash(config: Any) -> str:
    """First 10 hex digits of the SHA-256 of the canonical JSON of a plain nested configuration."""
    return sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:10]


def portable_config(config: Mapping[str, Any], data_root: str = "data") -> dict[str, Any]:
    """Returns a configuration whose data lie in `data_root`, which is no part of a job's identity."""
    renewed = {**config, "data_root": data_root}
    if "data_root" in renewed["problem"]:
        renewed["problem"] = {**renewed["problem"], "data_root": data_root}
    return renewed


def portable_status(status: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """Returns a status without the names of host and process, and with the digests of the files beside it:
    the configuration is not the job's any more.
    """
    return {**{k: v for k, v in status.items() if k not in ("host", "pid")}, "sha256": dict(digests)}
