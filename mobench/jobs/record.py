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
from mobench.jobs.measures import measured

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
        """Whether step t is recorded; the first always is."""
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
            rows.append(value.detach().to(torch.float64))
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

    def state(self) -> dict[str, Any]:
        """For the checkpoint."""
        self.fetch()
        return {"steps": list(self.steps), "columns": {k: torch.stack(v) for k, v in self.columns.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """From the checkpoint."""
        self.steps = list(state["steps"])
        self.columns = {k: list(v.unbind(0)) for k, v in state["columns"].items()}

    def last(self, job: Job) -> pd.DataFrame:
        """The rows of the step that was recorded last."""
        return self.since(-1).frame(job)

    def since(self, first: int) -> Recorder:
        """The recorded steps from one of them on, counted from the end if it is negative."""
        self.fetch()
        values = {name: found[first:] for name, found in self.columns.items()}
        return Recorder(self.every, self.evaluate, self.dense, self.steps[first:], values)

    def frame(self, job: Job) -> pd.DataFrame:
        """Tidy rows: run, step, seed, output, f_1..f_M, extra columns."""
        self.fetch()
        R = len(job.runs)
        T = len(self.steps)
        base = {
            "run": np.tile(np.arange(R), T),
            "step": np.repeat(np.array(self.steps, dtype=np.int64), R),
            "seed": np.tile(job.runs.seeds.numpy(), T),
            **{name: np.tile(values.numpy(), T) for name, values in job.varied.items()},
        }
        frames = []
        rules = sorted({k.split("/")[0] for k in self.columns}, key=lambda r: (r != "last", r))
        for rule in rules:
            data: dict[str, Any] = {**base, "output": rule}
            for name, values in self.columns.items():
                if name.startswith(f"{rule}/"):
                    table = torch.stack(values).numpy()
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
        """What `Recorder.frame` returns; its numbers are those of this object, to be read only."""
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
        shown: dict[str, Any] = {}
        for name, values in new.items():
            if not pd.api.types.is_numeric_dtype(values):  # the output rule, which is the same in all rows
                shown[str(name)] = pd.Series(values.iloc[0], index=range(room), dtype=values.dtype)
                continue
            larger = np.zeros(room, dtype=values.to_numpy().dtype)
            if str(name) in self._columns:
                larger[: self._rows] = self._columns[str(name)][: self._rows]
            self._columns[str(name)] = larger
            seen = larger.view()
            seen.flags.writeable = False
            shown[str(name)] = pd.Series(seen, copy=False)
        self._table = pd.DataFrame(shown, copy=False)


def columns(
    job: Job,
    theta: Tensor,
    seen: Tensor,
    alg: dict[str, Any],
    averages: Mapping[str, Tensor],
    point: Point | None,
) -> dict[str, Tensor]:
    """Columns of one recorded step: values and measures of the iterate, the algorithm's own, values of
    averages.

    Args:
        seen: the values (R, K) that the algorithm sees; `record.evaluate` replaces a sample's or an average's
            by exact ones and keeps the Tchebycheff value of what was seen beside that of what is.
        alg: the algorithm's state.
        averages: the answer (R, P) so far of each output rule that the history follows.
        point: what the algorithm saw, None after the last step.
    """
    oracle = job.joined
    M = oracle.spec.M
    # a transformed value is no objective
    evaluate = job.config.record.evaluate or job.algorithm.transforms
    values = oracle.exact(theta) if evaluate else seen
    own = job.config.record.measures
    columns = _measured("last", job, theta, values, point, own)
    columns |= {f"last/{name}": column for name, column in job.algorithm.report(values[:, :M], alg).items()}
    if job.config.record.evaluate and oracle.ideal is not None:
        columns["last/tchebycheff_seen"] = _tchebycheff(job, seen)
    for name, average in averages.items():
        columns |= _measured(name, job, average, oracle.exact(average))
    return columns


def _measured(
    name: str, job: Job, theta: Tensor, values: Tensor, point: Point | None = None, own: bool = True
) -> dict[str, Tensor]:
    """f, g and the measures that follow from them, with the name of the output rule in front."""
    spec = job.joined.spec
    out = {"f": values[:, : spec.M]}
    if spec.N:
        out["g"] = values[:, spec.M :]
    out |= measures(job, theta, values, point, own)
    return {f"{name}/{key}": value for key, value in out.items()}


def measures(
    job: Job, theta: Tensor, values: Tensor, point: Point | None = None, own: bool = True
) -> dict[str, Tensor]:
    """violation = max(0, max_j g_j), the Tchebycheff value where there is an ideal point, and, if `own`,
    the problem's and the user's.
    """
    oracle = job.joined
    out = {}
    if oracle.spec.N:
        out["violation"] = values[:, oracle.spec.M :].amax(1).clamp_min(0.0)
    if oracle.ideal is not None:
        out["tchebycheff"] = _tchebycheff(job, values)
    if not own:
        return out
    return out | oracle.columns(theta, values, point) | measured(job.measures, theta)


def _tchebycheff(job: Job, values: Tensor) -> Tensor:
    """max_m w_m (f_m - z_m), w the preference."""
    oracle = job.joined
    assert oracle.ideal is not None
    w = job.weights.to(values)
    return (w * (values[:, : oracle.spec.M] - job.ideal.to(values))).amax(1)
