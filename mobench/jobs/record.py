"""The history of a job: what is recorded at a step, and the table that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mobench.core.point import Point
from mobench.errors import MobenchError
from mobench.jobs.job import Job

MOST_AWAY = 8_000_000  # numbers of recorded columns that wait on a GPU: 64 MB


@dataclass
class Recorder:
    """History rows as tensors: recorded steps, objective values per output rule, extra columns."""

    every: int
    evaluate: bool
    dense: int = 0
    steps: list[int] = field(default_factory=list)
    columns: dict[str, list[Tensor]] = field(default_factory=dict)
    _away: list[tuple[str, int]] = field(default_factory=list)  # name and place of columns on a GPU
    _numbers: int = 0  # of them

    def wants(self, t: int) -> bool:
        """Returns whether step t is recorded; the first always is."""
        return t == 0 or t < self.dense or (self.every > 0 and t % self.every == 0)

    def add(self, t: int, columns: dict[str, Tensor]) -> None:
        """Append one recorded step. Columns on a GPU stay there until `fetch`: no step waits for them."""
        if self.steps and columns.keys() != self.columns.keys():
            changed = ", ".join(sorted(columns.keys() ^ self.columns.keys()))
            raise MobenchError(
                f"Step {t} has different columns from step {self.steps[0]}: {changed}. `columns` of the "
                "problem and `report` of the algorithm must return the same names in every step (nan where a "
                "value is missing)."
            )
        self.steps.append(t)
        for name, value in columns.items():
            rows = self.columns.setdefault(name, [])
            if value.is_cuda:
                self._away.append((name, len(rows)))
                self._numbers += value.numel()
            plain = value.detach() if value.requires_grad else value
            rows.append(plain if plain.dtype is torch.float64 else plain.to(torch.float64))
        if self._numbers > MOST_AWAY:
            self.fetch()

    def fetch(self) -> None:
        """Brings columns that are on a GPU to the host, in one copy."""
        if not self._away:
            return
        away = [self.columns[name][place] for name, place in self._away]
        here = torch.cat([value.reshape(-1) for value in away]).cpu().split([v.numel() for v in away])
        for (name, place), value, numbers in zip(self._away, away, here, strict=True):
            # a copy of its own, which does not keep the numbers of all others alive
            self.columns[name][place] = numbers.reshape(value.shape).clone()
        self._away.clear()
        self._numbers = 0

    def stacked(self, job: Job) -> dict[str, Tensor]:
        """Returns all columns, (T, R) or (T, R, M), with those that follow from values."""
        self.fetch()
        return completed(job, {name: torch.stack(values) for name, values in self.columns.items()})

    def state(self, job: Job) -> dict[str, Any]:
        """For the checkpoint."""
        return {"steps": list(self.steps), "columns": self.stacked(job)}

    def load(self, job: Job, state: dict[str, Any]) -> None:
        """From the checkpoint."""
        self.steps = list(state["steps"])
        recorded = {name: values for name, values in state["columns"].items() if not _follows(job, name)}
        self.columns = {name: list(values.unbind(0)) for name, values in recorded.items()}

    def last(self, job: Job) -> pd.DataFrame:
        """The rows of the step that was recorded last."""
        return self.since(-1).frame(job)

    def since(self, first: int) -> Recorder:
        """The recorded steps from one of them on, counted from the end if it is negative."""
        self.fetch()
        values = {name: column[first:] for name, column in self.columns.items()}
        return Recorder(self.every, self.evaluate, self.dense, self.steps[first:], values)

    def frame(self, job: Job) -> pd.DataFrame:
        """Tidy rows: run, step, seed, output, f_1..f_M, extra columns."""
        columns = self.stacked(job)
        R = len(job.runs)
        T = len(self.steps)
        base = {
            "run": np.tile(np.arange(R), T),
            "step": np.repeat(np.array(self.steps, dtype=np.int64), R),
            "seed": np.tile(job.runs.seeds.numpy(), T),
            **{name: np.tile(values.numpy(), T) for name, values in job.varied.items()},
        }
        frames = []
        rules = sorted({k.split("/")[0] for k in columns}, key=lambda r: (r != "last", r))
        for rule in rules:
            data: dict[str, Any] = {**base, "output": rule}
            for name, values in columns.items():
                if name.startswith(f"{rule}/"):
                    table = values.numpy()
                    short = name.split("/", 1)[1]
                    if table.ndim == 3:
                        data |= {
                            f"{short}_{m + 1}": table[..., m].reshape(-1) for m in range(table.shape[-1])
                        }
                    else:
                        data[short] = table.reshape(-1)
            frames.append(pd.DataFrame(data))
        return pd.concat(frames, ignore_index=True)


class Growing:
    """The table of `Recorder.frame` while steps are added: a new step costs its own rows, not those of all
    steps before it.

    Args:
        recorder: of which `frame` shows all steps that it has by then.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._steps = 0  # of the recorder that are in the table
        self._rows = 0
        self._columns: dict[str, np.ndarray] = {}
        self._table = pd.DataFrame()

    def frame(self, job: Job) -> pd.DataFrame:
        """The result of `Recorder.frame`; its numbers are those of this object, to be read only."""
        if self._steps < len(self._recorder.steps):
            self._append(self._recorder.since(self._steps).frame(job))
            self._steps = len(self._recorder.steps)
        return self._table.iloc[: self._rows]

    def _append(self, new: pd.DataFrame) -> None:
        ends = self._rows + len(new)
        if ends > len(self._table):
            self._grow(new, 2 * ends)  # room for as many again: a number is copied twice on average
        for name, column in self._columns.items():
            column[self._rows : ends] = new[name]
        self._rows = ends

    def _grow(self, new: pd.DataFrame, room: int) -> None:
        table: dict[str, Any] = {}
        for name, values in new.items():
            if not pd.api.types.is_numeric_dtype(values):  # the output rule, which is the same in all rows
                table[str(name)] = pd.Series(values.iloc[0], index=range(room), dtype=values.dtype)
                continue
            larger = np.zeros(room, dtype=values.to_numpy().dtype)
            if str(name) in self._columns:
                larger[: self._rows] = self._columns[str(name)][: self._rows]
            self._columns[str(name)] = larger
            seen = larger.view()
            seen.flags.writeable = False
            table[str(name)] = pd.Series(seen, copy=False)
        self._table = pd.DataFrame(table, copy=False)


def columns(
    job: Job,
    theta: Tensor,
    seen: Tensor,
    alg: dict[str, Any],
    averages: Mapping[str, Tensor],
    point: Point | None,
) -> dict[str, Tensor]:
    """Columns of one recorded step: values and measures of the iterate, the algorithm's own, values of
    averages; without those that `completed` adds.

    Args:
        seen: the values (R, K) that the algorithm sees; `record.evaluate` replaces a sample's or an average's
            by exact ones and keeps the Tchebycheff value of what was seen beside that of what is.
        alg: the algorithm's state.
        averages: the answer (R, P) so far of each output rule that the history follows.
        point: what the algorithm saw, None after the last step.
    """
    oracle = job.joined
    record = job.config.record
    # a transformed value is no objective
    values = oracle.exact(theta) if record.evaluate or job.algorithm.transforms else seen
    table = _measured("last", job, theta, values, point, record.measures)
    objectives = table["last/f"]
    table |= {f"last/{name}": column for name, column in job.algorithm.report(objectives, alg).items()}
    if record.evaluate and oracle.ideal is not None:
        table["last/tchebycheff_seen"] = _tchebycheff(job, seen[:, : oracle.spec.M])
    for name, average in averages.items():
        table |= _measured(name, job, average, oracle.exact(average))
    return table


def _measured(
    name: str, job: Job, theta: Tensor, values: Tensor, point: Point | None = None, measured: bool = True
) -> dict[str, Tensor]:
    """f, g and the measures of an iterate, with the name of the output rule in front."""
    M = job.joined.spec.M
    table = {f"{name}/f": values[:, :M] if job.joined.spec.N else values}
    if job.joined.spec.N:
        table[f"{name}/g"] = values[:, M:]
    if job.dtype is not torch.float64:
        table |= {f"{name}/{key}": value for key, value in _following(job, values).items()}
    if measured:
        measured_here = job.joined.columns(theta, values, point) | _user_measures(job, theta)
        table |= {f"{name}/{key}": value for key, value in measured_here.items()}
    return table


def measures(job: Job, theta: Tensor, values: Tensor) -> dict[str, Tensor]:
    """Returns what follows from the values (R, K) of final iterates, and the problem's and the user's
    measures.
    """
    return _following(job, values) | job.joined.columns(theta, values, None) | _user_measures(job, theta)


def _user_measures(job: Job, theta: Tensor) -> dict[str, Tensor]:
    """Returns the columns (R,) of mobench.run(measures=...): row r is the function at x_r (P,)."""
    return {name: torch.func.vmap(fn)(theta).detach().double() for name, fn in job.measures.items()}


def completed(job: Job, columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns columns of one step or of many with those that follow from the recorded values, behind these.

    They are the same numbers as if computed at each step: the history of a job in float64 holds its values as
    they are. Of one in float32 they are computed at each step, from values in float32.
    """
    if job.dtype is not torch.float64:
        return columns
    table: dict[str, Tensor] = {}
    for name, values in columns.items():
        rule, _, key = name.partition("/")
        table[name] = values
        if key == ("g" if job.joined.spec.N else "f"):
            stacked = torch.cat([columns[f"{rule}/f"], values], -1) if key == "g" else values
            table |= {f"{rule}/{follows}": v for follows, v in _following(job, stacked).items()}
    return table


def _follows(job: Job, name: str) -> bool:
    """Returns whether `completed` adds a column of this name."""
    return job.dtype is torch.float64 and name.partition("/")[2] in ("violation", "tchebycheff")


def _following(job: Job, values: Tensor) -> dict[str, Tensor]:
    """Returns what follows from values (..., R, K): violation = max(0, max_j g_j), and the Tchebycheff value
    where there is an ideal point.
    """
    M = job.joined.spec.M
    table = {}
    if job.joined.spec.N:
        table["violation"] = values[..., M:].amax(-1).clamp_min(0.0)
    if job.joined.ideal is not None:
        table["tchebycheff"] = _tchebycheff(job, values[..., :M])
    return table


def _tchebycheff(job: Job, F: Tensor) -> Tensor:
    """max_m w_m (f_m - z_m), w the preference."""
    return (job.weights.to(F) * (F - job.ideal.to(F))).amax(-1)
