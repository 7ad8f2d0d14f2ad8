"""Subproblems: solves per second, batched, against CVXPY with a warm parametrised problem each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Sample, alternate, repeated
from mobench.solvers import epo_lp, min_norm, project_simplex, project_weighted_simplex, qp

Inputs = tuple[Tensor, ...]


def _gram(R: int, M: int, g: torch.Generator) -> Tensor:
    J = torch.randn(R, M, 20, generator=g, dtype=torch.float64)
    return J @ J.mT


def _epo(R: int, M: int, g: torch.Generator) -> Inputs:
    K = _gram(R, M, g)
    r, F = (torch.rand(R, M, generator=g, dtype=torch.float64) + 0.1 for _ in range(2))
    h = r * F / (r * F).sum(-1, keepdim=True)
    log = (M * h).log()
    a = r * (log - (h * log).sum(-1, keepdim=True))
    Ca = (K @ a.unsqueeze(-1)).squeeze(-1)
    return K, Ca, torch.ones(R, dtype=torch.bool), (r * F).argmax(-1)


def _qp(R: int, M: int, g: torch.Generator) -> Inputs:
    """FERERO's dual after the elimination of its free multipliers: rank one, linear term, weights A F."""
    m, c, F = (torch.randn(R, M, generator=g, dtype=torch.float64) for _ in range(3))
    F = F.abs() + 0.1
    return m.unsqueeze(2) * m.unsqueeze(1) + 0.1 * _gram(R, M, g) / 20, c, F, F.sum(-1)


def _points(R: int, M: int, g: torch.Generator) -> Inputs:
    y = torch.randn(R, M, generator=g, dtype=torch.float64)
    w = torch.rand(R, M, generator=g, dtype=torch.float64) + 0.1
    return y, w, w.sum(-1, keepdim=True)


DATA: dict[str, Callable[[int, int, torch.Generator], Inputs]] = {
    "min_norm": lambda R, M, g: (_gram(R, M, g),),
    "qp": _qp,
    "epo_lp": _epo,
    "project_simplex": lambda R, M, g: _points(R, M, g)[:1],
    "project_weighted_simplex": _points,
}
SOLVERS: dict[str, Callable[..., Any]] = {
    "min_norm": min_norm,
    "qp": qp,
    "epo_lp": epo_lp,
    "project_simplex": project_simplex,
    "project_weighted_simplex": project_weighted_simplex,
}


def _root(G: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(G)
    return (vectors * np.sqrt(np.maximum(values, 0.0))).T


def cvxpy_solver(kind: str, M: int) -> Callable[..., np.ndarray]:
    """A parametrised (DPP) problem, compiled once; the function sets its parameters for run i and solves."""
    import cvxpy as cp

    x = cp.Variable(M)
    if kind == "epo_lp":
        K = cp.Parameter((M, M))
        c = cp.Parameter(M)
        bound = cp.Parameter(M)
        problem = cp.Problem(cp.Maximize(c @ x), [x >= 0, cp.sum(x) == 1, K @ x >= bound])
    else:
        L = cp.Parameter((M, M))
        b = cp.Parameter(M)
        a = cp.Parameter(M)
        r = cp.Parameter()
        value = (
            0.5 * cp.sum_squares(L @ x) - b @ x if kind in ("min_norm", "qp") else 0.5 * cp.sum_squares(x - b)
        )
        problem = cp.Problem(cp.Minimize(value), [x >= 0, a @ x == r])
        b.value = np.zeros(M)
        a.value = np.ones(M)
        r.value = 1.0

    def solve(*inputs: np.ndarray) -> np.ndarray:
        if kind == "epo_lp":
            gram, Ca, _, j = inputs
            scale = np.trace(gram)
            rising = Ca > 0.0
            limit = np.where(rising, -1e3, Ca / scale) if rising.any() else np.zeros(M)
            limit[int(j)] = 0.0
            K.value = gram / scale
            c.value = Ca / scale
            bound.value = limit
        elif kind == "min_norm":
            L.value = _root(inputs[0] / np.trace(inputs[0]))
        elif kind == "qp":
            scale = np.trace(inputs[0])
            L.value = _root(inputs[0] / scale)
            b.value = inputs[1] / scale
            a.value = inputs[2]
            r.value = float(inputs[3])
        else:
            b.value = inputs[0]
            if kind == "project_weighted_simplex":
                a.value = inputs[1]
                r.value = float(inputs[2][0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver="HIGHS" if kind == "epo_lp" else "CLARABEL", enforce_dpp=True)
        return np.asarray(x.value)

    return solve


def _apart(kind: str, x: np.ndarray, y: np.ndarray, inputs: Sequence[np.ndarray]) -> float:
    """Largest difference of two answers, or of objectives where several vertices may solve a program."""
    if kind == "epo_lp":
        return abs(float((x - y) @ inputs[1])) / float(np.abs(inputs[1]).max())
    return float(np.abs(x - y).max())


@dataclass(frozen=True)
class Row:
    """Seconds per call at each R; seconds per CVXPY solve; largest difference of the answers (first runs)."""

    kind: str
    M: int
    batch: dict[int, Sample]
    cvxpy: Sample
    difference: float


def measure(
    kinds: Sequence[str],
    dimensions: Sequence[int],
    sizes: Sequence[int],
    rounds: int,
    slice_s: float,
    say: Callable[[str], None],
) -> list[Row]:
    """One row per kind and M."""
    rows = []
    for kind in kinds:
        for M in dimensions:
            g = torch.Generator().manual_seed(M)
            data = {R: DATA[kind](R, M, g) for R in sizes}
            largest = data[max(sizes)]
            arrays = [t.numpy() for t in largest]
            reference = cvxpy_solver(kind, M)
            turn = iter(range(10**9))
            many = max(sizes)

            def one(
                reference: Any = reference, arrays: Any = arrays, turn: Any = turn, many: int = many
            ) -> None:
                i = next(turn) % many
                reference(*[a[i] for a in arrays])

            answer = SOLVERS[kind](*largest)
            answer = answer if isinstance(answer, Tensor) else answer.x
            few = range(min(5, many))
            difference = max(
                _apart(kind, reference(*[a[i] for a in arrays]), answer[i].numpy(), [a[i] for a in arrays])
                for i in few
            )
            cases = {str(R): repeated(partial(SOLVERS[kind], *d), slice_s) for R, d in data.items()}
            samples = alternate({**cases, "cvxpy": repeated(one, slice_s)}, rounds)
            batch = {R: samples[str(R)] for R in sizes}
            rows.append(Row(kind, M, batch, samples["cvxpy"], difference))
            say(
                f"{kind} M={M}: "
                + ", ".join(f"R={R} {R / samples[str(R)].least:.0f}/s" for R in sizes)
                + f", cvxpy {1 / samples['cvxpy'].least:.0f}/s, difference {difference:.0e}"
            )
    return rows
