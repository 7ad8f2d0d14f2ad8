"""Rows and history of a training loop of one's own.

It writes a job's folder, so `mobench.rows`, `table`, `plot`, `choose`, `load` and `mobench status` read it as
those of jobs that mobench trained.
"""

from __future__ import annotations

import math
import re
import shlex
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mobench.errors import ConfigError, PreferenceError, StoreError
from mobench.jobs.store import OF_ALL_ROWS, JobFolder, config_hash
from mobench.system import provenance
from mobench.system.files import write_json
from mobench.system.paths import outputs_root

PLAIN = (bool, int, float, str, type(None))
TAKEN = re.compile(OF_ALL_ROWS + r"|.*\..*")  # settings have a dot
BEAT = 5.0  # seconds between signs of life in status.json


class Recording:
    """One run of a loop of one's own, inside its `with` block.

    Attributes:
        done: whether an earlier call has finished this run; then there is nothing to do.
        path: the folder, which may hold files of the loop's own.
    """

    def __init__(self, identity: dict[str, Any], rerun: bool) -> None:
        name, method = (
            re.sub(r"\W+", to, word.strip().lower()).strip("_")
            for word, to in ((identity["problem"]["title"], "_"), (identity["algorithm"]["class"], ""))
        )
        key = f"{name or 'own'}-{method}-{config_hash(identity)}"
        self.folder = JobFolder(outputs_root() / "runs" / key)
        self.identity = identity
        self.path = self.folder.path
        self.done = self.folder.done and not rerun
        self._history: list[dict[str, float]] = []
        self._final: dict[str, float] | None = None  # the row that is final; None: the last one
        self._began = time.time()
        self._last_beat = 0.0
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Locks the folder."""
        self._open.enter_context(self.folder.locked())
        if not self.done:
            self._write_config(self.folder)
            self._beat()
        return self

    def _write_config(self, folder: JobFolder) -> None:
        target = {"_target_": f"{type(self).__module__}.{type(self).__qualname__}"}
        parts = {part: self.identity[part] | target for part in ("problem", "algorithm", "oracle")}
        folder.write_config(self.identity | parts)

    def log(self, step: int, losses: Sequence[Any], **columns: Any) -> None:
        """Records a step.

        Args:
            step: after how many steps, or epochs; later than the one before.
            losses: M numbers or tensors, f_1, f_2, ...; the last ones are the run's final values, unless
                `keep` was called after others.
            columns: further numbers, such as those of the validation data.

        A sign of life that cannot be written is a warning: the loop goes on, and its rows are written at its
        end.

        Raises:
            ConfigError: other numbers of losses than before, a step that is not later, or a column that rows
                have already.
        """
        self._refuse_done()
        if self._history and step <= self._history[-1]["step"]:
            raise ConfigError(
                f"log({step}, ...) comes after step {self._history[-1]['step']}; log later steps only."
            )
        if len(losses) != (M := len(self.identity["preferences"][0])):
            raise ConfigError(f"log got {len(losses)} losses, but the preference has {M}.")
        if wrong := next(filter(TAKEN.fullmatch, columns), None):
            raise ConfigError(
                f"log got {wrong}=, which is a column of all rows already; give it another name."
            )
        row = {"step": step} | {f"f_{m + 1}": float(value) for m, value in enumerate(losses)}
        self._history.append(row | {name: float(value) for name, value in columns.items()})
        if time.time() - self._last_beat > BEAT:
            self._said(self._beat)

    def keep(self) -> None:
        """Makes the last logged values the run's final ones: call it where they are best."""
        self._refuse_done()
        self._final = self._history[-1] if self._history else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Writes the rows, or the error of a loop that was stopped or failed.

        Raises:
            StoreError: the rows cannot be written to their folder; it says where they are instead.
        """
        with self._open:
            if self.done:
                return
            if kind is None:
                if not self._history:
                    raise ConfigError("Nothing was logged, so there are no rows; call run.log(step, losses).")
                try:
                    self._finish(self.folder)
                except StoreError as failure:
                    raise self._rescued(failure) from failure
                self.done = True
            else:  # the loop's own error goes on, whatever becomes of its mark
                words = f"{kind.__name__}: {error}"
                self._said(lambda: self.folder.write_status("failed", error=words))

    def _said(self, write: Callable[[], None]) -> None:
        """Writes a mark, which is no result: one that cannot be written is a warning."""
        try:
            write()
        except StoreError as error:
            warnings.warn(f"{self.path} does not say how the run stands: {error.__cause__}", stacklevel=3)

    def _rescued(self, failure: StoreError) -> StoreError:
        """Writes the rows, which are in memory alone, to the folder of temporary files.

        Returns:
            The error that says where they are and how they get to their place.
        """
        why = f"The rows of {self.folder.key} cannot be written to {self.path} ({failure.__cause__})"
        try:
            folder = JobFolder(Path(tempfile.mkdtemp(prefix="mobench-")) / self.folder.key)
            self._write_config(folder)
            self._finish(folder)
        except (StoreError, OSError) as error:
            return StoreError(
                f"{why}, and not to another place ({error.__cause__ or error}). They are lost: free space or "
                "fix permissions, and record the run anew."
            )
        return StoreError(
            f"{why}. They are in {folder.path} instead. Free space or fix permissions, and move them to "
            f"their place: {shlex.join(['cp', '-r', f'{folder.path}/.', str(self.path)])}"
        )

    def _finish(self, folder: JobFolder) -> None:
        import pandas as pd

        seconds = time.time() - self._began
        keys = {"run": 0, "seed": self.identity["seeds"][0], "output": "last"}
        last = dict(self._final or self._history[-1])
        ended = {"ended": last.pop("step")}
        preference = {f"preference_{m + 1}": w for m, w in enumerate(self.identity["preferences"][0])}
        finite = all(math.isfinite(v) for k, v in last.items() if k.startswith("f_"))
        # as in a job: an end of which nobody knows that it keeps its constraints is lost
        finite = finite and not math.isnan(last.get("violation", 0.0))
        ends = {"seconds": seconds, "solver_failures": 0, "status": "done" if finite else "diverged"}
        folder.write_table("final.csv", pd.DataFrame([{**keys, **preference, **last, **ended, **ends}]))
        folder.write_table("history.parquet", pd.DataFrame(self._history).assign(**keys))
        write_json(
            folder.path / "meta.json",
            {
                **provenance.stamp(),
                "dtype": "its own",
                "execution": "a training loop of its own",
                "hypervolume": None,
                "final_rows": 1,
                **dict.fromkeys(("seconds_train", "seconds_wall"), seconds),
                "seconds_evaluate": 0.0,
                "identity": self.identity,
            },
        )
        counts = {"runs": 1, "diverged": int(not finite), "seconds": seconds}
        folder.write_status("done", **counts, sha256=folder.digests())

    def _beat(self) -> None:
        self._last_beat = time.time()
        step = self._history[-1]["step"] if self._history else 0
        self.folder.write_status("running", step=step, seconds=self._last_beat - self._began)

    def _refuse_done(self) -> None:
        if self.done:
            raise ConfigError(
                f"This run is finished ({self.path}); leave out its loop where run.done is true, or record "
                "it anew with rerun=True."
            )


def record(
    name: str,
    method: str,
    preference: Sequence[float],
    seed: int = 0,
    *,
    rerun: bool = False,
    **settings: Any,
) -> Recording:
    """Records one run of a training loop of one's own as a job: its rows and its history.

        with mobench.record("my net", "ferero", preference=[0.3, 0.7], seed=0, lr=1e-3) as run:
            if not run.done:
                ...
                run.log(epoch, [loss_1, loss_2], validation_1=...)

    A run is known by its name, method, preference, seed and settings, not by the code of the loop: change a
    setting, such as version=2, where the loop changes.

    Args:
        name: of the problem; `mobench.rows("problem=NAME")` finds its runs.
        method: the name of the method.
        preference: M positive numbers, which are divided by their sum.
        seed: of the run.
        rerun: record it again although it is finished.
        settings: numbers and words that tell runs apart: algorithm.KEY of `mobench.rows`.

    Raises:
        PreferenceError: a preference that is not positive.
        ConfigError: a setting that is neither a number nor a word.
    """
    weights = [float(w) for w in preference]
    if len(weights) < 1 or not all(math.isfinite(w) and w > 0 for w in weights):
        raise PreferenceError(f"preference={list(preference)!r} must be positive numbers, one for each loss.")
    # numbers of NumPy and torch are numbers; a tensor of several is none
    settings = {
        key: value.item() if getattr(value, "shape", None) == () else value for key, value in settings.items()
    }
    if wrong := [key for key, value in settings.items() if not isinstance(value, PLAIN)]:
        raise ConfigError(f"{wrong[0]}={settings[wrong[0]]!r} is neither a number nor a word.")
    if "class" in settings:
        raise ConfigError("record got class=, which is the method's name; give the setting another one.")
    if int(seed) != seed:
        raise ConfigError(f"seed={seed!r} must be a whole number.")
    identity = {
        "problem": {"title": name, "class": "Recorded"},
        "oracle": {"class": "Recorded"},
        "algorithm": {**settings, "class": method},
        "preferences": [[round(w / sum(weights), 12) for w in weights]],
        "seeds": [int(seed)],
    }
    return Recording(identity, rerun)
