"""Compares objective values of somebody else with those of a problem here.

same:     f'_m = f_m                    at all points, up to rounding
affine:   f'_m = factor_m f_m + shift_m with factor_m > 0, so that fronts and orders are the same
another:  neither; rows of such a problem must not be compared with rows of ours
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from mobench.core.problem import Problem
from mobench.core.sets import Box
from mobench.errors import ConfigError
from mobench.system.files import read_csv

CLOSE = 1e-6  # relative to the extent of the values over the points: files often carry seven digits
ROUNDING = 1e-14  # relative to the values themselves, which an offset may make much larger than their extent
LEAST = 4  # points: two decide an affine map, and two more test it
Array = Float[np.ndarray, "k M"]


@dataclass(frozen=True)
class Verdict:
    """The relation between two sets of values of the same points.

    Attributes:
        kind: same | affine | another.
        factor, shift: (M,) of the affine map from our values to the others; NaN where there is none.
        difference: largest |f' - f|, relative to the largest |f| of the objective.
        objective, point: where that is, from 0.
    """

    kind: str
    factor: Float[np.ndarray, " M"]
    shift: Float[np.ndarray, " M"]
    difference: float
    objective: int
    point: int

    def __str__(self) -> str:
        if self.kind == "same":
            return f"the same problem: values differ by at most {self.difference:.1e} of their size"
        if self.kind == "affine":
            maps = ", ".join(
                f"f_{m + 1}' = {a:.6g} f_{m + 1} {'-' if b < 0 else '+'} {abs(b):.6g}"
                for m, (a, b) in enumerate(zip(self.factor, self.shift, strict=True))
            )
            return f"an affine map of it: {maps}"
        return (
            f"another problem: f_{self.objective + 1} of point {self.point + 1} differs by "
            f"{self.difference:.3g} of its size, and no factor > 0 and shift of each objective explain it"
        )


def compare(ours: Array, theirs: Array) -> Verdict:
    """Compares values of the same points, row by row.

    Raises:
        ConfigError: the arrays differ in shape, hold too few points or numbers that are not finite.
    """
    if ours.shape != theirs.shape:
        raise ConfigError(
            f"The other values have {theirs.shape[1]} objectives at {theirs.shape[0]} points; expected "
            f"{ours.shape[1]} at {ours.shape[0]}."
        )
    if len(ours) < LEAST:
        raise ConfigError(f"{len(ours)} points decide nothing; give at least {LEAST}.")
    for who, values in (("Our", ours), ("The other", theirs)):
        if not np.isfinite(values).all():
            row = int((~np.isfinite(values)).any(1).argmax()) + 1
            raise ConfigError(f"{who} values of point {row} are not finite. Leave such points out.")
    size = np.abs(ours).max(0).clip(min=1e-300)
    apart = np.abs(theirs - ours)
    gap = apart / size
    point, objective = np.unravel_index(int(gap.argmax()), gap.shape)
    where = (float(gap.max()), int(objective), int(point))
    M = ours.shape[1]
    if (apart <= CLOSE * np.ptp(ours, axis=0) + ROUNDING * size).all():
        return Verdict("same", np.ones(M), np.zeros(M), *where)
    factor = np.full(M, np.nan)
    shift = np.full(M, np.nan)
    for m in range(M):
        columns = np.stack([ours[:, m], np.ones(len(ours))], axis=1)
        (a, b), *_ = np.linalg.lstsq(columns, theirs[:, m], rcond=None)
        rest = np.abs(columns @ (a, b) - theirs[:, m]).max()
        bound = CLOSE * np.ptp(theirs[:, m]) + ROUNDING * np.abs(theirs[:, m]).max()
        if a > 0 and rest <= bound and np.ptp(ours[:, m]) > 0:
            factor[m], shift[m] = a, b
    kind = "another" if np.isnan(factor).any() else "affine"
    return Verdict(kind, factor, shift, *where)


def check_values(problem: Problem, x: Float[np.ndarray, "k P"], theirs: Array) -> Verdict:
    """Compares values at points in the variables of the problem here.

    Raises:
        ConfigError: the points have another number of variables, or lie outside of the feasible box.
    """
    if x.ndim != 2 or x.shape[1] != problem.dim:
        raise ConfigError(
            f"The points have {x.shape[-1]} variables, but {problem.name} has {problem.dim} here; set its "
            "size, e.g. problem.n=..., or compare other points."
        )
    points = torch.from_numpy(np.ascontiguousarray(x, dtype=float))
    if isinstance(problem.X, Box):
        outside = ~np.isclose(problem.X.project(points).numpy(), x, atol=1e-9).all(1)
        if outside.any():
            raise ConfigError(
                f"Point {int(outside.argmax()) + 1} lies outside of {problem.name}'s box here. Scale the "
                "variables to it."
            )
    with torch.no_grad():
        ours = problem.values(points).numpy()
    return compare(ours[:, : problem.n_objectives], theirs)


def check_file(problem: Problem, file: Path) -> Verdict:
    """Compares the rows of a CSV file with columns x_1 ... x_n and f_1 ... f_M.

    Raises:
        ConfigError: the file lacks a column, or its points do not fit the problem (`check_values`).
    """
    rows = read_csv(file)
    x = [f"x_{k + 1}" for k in range(problem.dim)]
    f = [f"f_{m + 1}" for m in range(problem.n_objectives)]
    missing = [name for name in (*x, *f) if name not in rows]
    if missing:
        raise ConfigError(
            f"{file} has no column {missing[0]}; expected x_1 to x_{problem.dim} and f_1 to "
            f"f_{problem.n_objectives} of {problem.name} (set its size, e.g. problem.n=...)."
        )
    return check_values(problem, rows[x].to_numpy(dtype=float), rows[f].to_numpy(dtype=float))
