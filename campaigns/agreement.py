"""Compares the zoo's directions with other people's code: `python -m campaigns.agreement --output FILE`.

Each method of Gram matrices against TorchJD where that is exact, against CVXPY or NumPy from its definition,
and by its own certificate over ranks and scales of gradients.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mobench.core.preferences import spread
from tests.solvers.test_subproblem_qp import jacobian
from tests.test_zoo import EXACT, RANKS, directions, theirs

RUNS = 4
SCALES = (1.0, 1e-8, 1e8)
FULL = ("random", "scaled rows")  # where the others know no rank
ANY = ("random", "low rank", "opposed")
TORCHJD = {"upgrad": ANY, "upgrad by preference": ANY, "dualproj": ANY, "imtl_g": FULL, "config": FULL}
TORCHJD |= {"aligned_mtl": ANY}


@dataclass(frozen=True)
class Line:
    """Largest differences of d relative to the gradients, largest residual, and counts of solves.

    A difference is None where d was not compared.
    """

    name: str
    torchjd: float | None
    other: float | None
    by: str
    residual: float
    failed: int
    solves: int


def _projected(J: np.ndarray, u: np.ndarray) -> np.ndarray:
    """J'u in the dual cone of the rows."""
    import cvxpy as cp

    d = cp.Variable(J.shape[1])
    _solved(cp.Problem(cp.Minimize(cp.sum_squares(d - u @ J)), [J @ d >= 0]))
    return np.asarray(d.value)


def _solved(program: Any) -> None:
    """By CLARABEL, with the smallest tolerance of three that it reaches."""
    import cvxpy as cp

    for tolerance in (1e-12, 1e-10, 1e-8):
        names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        with contextlib.suppress(cp.SolverError):
            program.solve(solver="CLARABEL", **dict.fromkeys(names, tolerance))
            return
    raise RuntimeError("CLARABEL reaches no tolerance of 1e-8")


def by_definition(name: str, J: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, str] | None:
    """d of one run from what the method minimises or solves, and by what; None: see the tests."""
    import cvxpy as cp

    M, P = J.shape
    if name.startswith("upgrad"):
        return sum(u[m] * _projected(J, np.eye(M)[m]) for m in range(M)), "CVXPY"
    if name == "dualproj":
        return _projected(J, u), "CVXPY"
    if name == "cagrad":
        d = cp.Variable(P)
        mean = J.mean(0)
        ball = cp.norm(d - mean) <= 0.5 * np.linalg.norm(mean)
        _solved(cp.Problem(cp.Maximize(cp.min(J @ d)), [ball]))
        return np.asarray(d.value), "CVXPY"
    if name in ("nash_mtl", "fairgrad", "fairgrad, half"):
        w = cp.Variable(M)
        power = {"nash_mtl": 1.0, "fairgrad": 0.5, "fairgrad, half": 2.0}[name]
        gain = cp.log(w) if power == 1.0 else cp.power(w, 1.0 - power) / (1.0 - power)
        program = cp.Minimize(0.5 * cp.sum_squares(J.T @ w) - cp.sum(gain))
        _solved(cp.Problem(program))
        scale = min(1.0, M**-0.5) if name == "nash_mtl" else 1.0
        return scale * np.asarray(w.value) @ J, "CVXPY"
    U = J / np.linalg.norm(J, axis=1, keepdims=True)
    if name == "config":
        v = np.linalg.pinv(U) @ np.ones(M)
        v = v / np.linalg.norm(v)
        return (J @ v).sum() * v, "NumPy"
    if name == "imtl_g":
        w = np.linalg.pinv(J @ U.T).T @ np.ones(M)
        return (w / w.sum()) @ J, "NumPy"
    if name == "aligned_mtl":
        left, values, right = np.linalg.svd(J, full_matrices=False)
        return values[-1] * (u @ left) @ right, "NumPy"
    return None


def compared(name: str) -> tuple[float | None, float | None, str]:
    """Largest differences to TorchJD and to the definition, and by what the latter was solved."""
    worst: list[float | None] = [None, None]
    by = ""
    for M in (2, 3, 10):
        prefs = spread(RUNS, M)
        for family in TORCHJD.get(name, ()):
            J = jacobian(family, RUNS, M)
            d = directions(EXACT[name], J)[0]
            other = torch.stack([theirs(name, rows, prefs[r]) for r, rows in enumerate(J)])
            worst[0] = max(worst[0] or 0.0, _apart(d, other, J))
        J = jacobian("acute" if name in ("nash_mtl", "fairgrad", "fairgrad, half") else "random", RUNS, M)
        d = directions(EXACT[name], J)[0]
        answers = []
        for r, rows in enumerate(J.numpy()):
            u = prefs[r].numpy() if "preference" in name else np.full(M, 1.0 / M)
            answer = by_definition(name, rows, u)
            if answer is not None:
                answers.append(torch.from_numpy(answer[0]))
                by = answer[1]
        if answers:
            worst[1] = max(worst[1] or 0.0, _apart(d, torch.stack(answers), J))
    return worst[0], worst[1], by


def _apart(d: Tensor, other: Tensor, J: Tensor) -> float:
    size = torch.linalg.vector_norm(J, dim=(1, 2)).unsqueeze(1)
    return float(((d - other).abs() / torch.maximum(size, other.abs())).max())


def certified(name: str) -> tuple[float, int, int]:
    """Largest residual, failed solves and all solves, over ranks and scales."""
    worst = 0.0
    failed = 0
    solves = 0
    for M in (2, 5, 20):
        for family in RANKS:
            for scale in SCALES:
                _, info = directions(EXACT[name], scale * jacobian(family, 8, M))
                worst = max(worst, float(info.kkt.max()))
                failed += int(info.fail.sum())
                solves += len(info.fail)
    return worst, failed, solves


def measure(names: Sequence[str]) -> list[Line]:
    """One line for each method."""
    return [Line(name, *compared(name), *certified(name)) for name in names]


def table(lines: Sequence[Line]) -> str:
    """Markdown."""

    def number(x: float | None) -> str:
        return "" if x is None else f"{x:.0e}"

    out = ["| method | TorchJD | from its definition | by | residual | failed |", "|---|---|---|---|---|---|"]
    for x in lines:
        cells = [x.name, number(x.torchjd), number(x.other), x.by, number(x.residual)]
        out.append("| " + " | ".join([*cells, f"{x.failed} of {x.solves}"]) + " |")
    return "\n".join(out) + "\n"


HEAD = """# Agreement with other code

Written by `python -m campaigns.agreement --output docs/agreement.md`. Differences are the largest entry of
d - d', relative to the larger of the Jacobian's norm and d', over M = 2, 3, 10 and random gradients; those to
TorchJD also over dependent and opposed gradients, or over rows of very different lengths where TorchJD's
formula needs full rank. "From its definition" is the method's program in CVXPY (CLARABEL, whose own tolerance
bounds the difference) or its formula in NumPy, on J itself. Residuals and failed solves are those of M = 2,
5, 20 over eight kinds of gradients (low rank, duplicated, opposed, zero, rows of lengths far apart) at scales
1e-8, 1 and 1e8. An empty cell: TorchJD is not exact there, or the tests compare it otherwise
(`tests/test_zoo.py`).

"""


def main(arguments: Sequence[str] | None = None) -> str:
    """Measures, and writes the file that the options name."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.agreement", description=__doc__)
    parser.add_argument("--output", type=Path, help="Markdown file")
    parser.add_argument("--only", help="comma-separated names; default: all")
    chosen = parser.parse_args(arguments)
    names = chosen.only.split(",") if chosen.only else list(EXACT)
    text = HEAD + table(measure(names))
    if chosen.output:
        chosen.output.write_text(text)
    return text


if __name__ == "__main__":
    print(main())
