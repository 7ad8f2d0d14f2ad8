"""Least squares of M tasks:  f_m(x) = 1/(2N) sum_i (a_mi'x - b_mi)^2, a finite sum with a known front."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.preferences import spread
from mobench.core.random import generator
from mobench.core.sampled import Sampled
from mobench.core.types import Real
from mobench.errors import ConfigError
from mobench.problems.curves import evenly


class Data(NamedTuple):
    """A (N, M, n), b (N, M); of each task the Hessian H = A'A/N, the minimiser z and the least value."""

    A: Float[Tensor, "N M n"]
    b: Float[Tensor, "N M"]
    H: Float[Tensor, "M n n"]
    z: Float[Tensor, "M n"]
    least: Float[Tensor, " M"]


@lru_cache(maxsize=16)
def _draw(N: int, M: int, n: int, noise: float, seed: int) -> Data:
    """Float64 on the CPU. a_mi ~ N(0, diag(c_m)^2) with c_m in (1/2, 3/2)^n, b_mi = a_mi'y_m + noise,
    y_m ~ N(0, I/n).

    Keyed by task, so that the first tasks of a larger problem are those of a smaller one.
    """
    A = np.empty((N, M, n))
    b = np.empty((N, M))
    for m in range(M):
        rng = generator(seed, problem="least_squares", use="data", task=m)
        width = rng.uniform(0.5, 1.5, n)
        y = rng.standard_normal(n) / np.sqrt(n)
        A[:, m] = rng.standard_normal((N, n)) * width
        b[:, m] = A[:, m] @ y + noise * rng.standard_normal(N)
    z = np.stack([np.linalg.lstsq(A[:, m], b[:, m], rcond=None)[0] for m in range(M)])
    residual = np.einsum("imn,mn->im", A, z) - b
    H = np.einsum("imj,imk->mjk", A, A) / N
    with torch.inference_mode(False):
        return Data(*(torch.from_numpy(a) for a in (A, b, H, z, 0.5 * np.mean(residual**2, axis=0))))


@lru_cache(maxsize=16)
def _data(N: int, M: int, n: int, noise: float, seed: int, dtype: torch.dtype, device: torch.device) -> Data:
    with torch.inference_mode(False):
        return Data(*(t.to(device=device, dtype=dtype) for t in _draw(N, M, n, noise, seed)))


@lru_cache(maxsize=16)
def _capped(
    caps: tuple[float | None, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Returns the capped objectives and their caps."""
    which = [m for m, cap in enumerate(caps) if cap is not None]
    with torch.inference_mode(False):
        return (
            torch.tensor(which, dtype=torch.int64, device=device),
            torch.tensor([caps[m] for m in which], dtype=dtype, device=device),
        )


@dataclass(frozen=True, kw_only=True)
class LeastSquares(Sampled):
    """Convex finite sum: the stochastic algorithms' test problem.

        f_m(x) = 1/(2N) sum_i (a_mi'x - b_mi)^2 = f_m* + 1/2 (x - z_m)'H_m (x - z_m),   H_m = A_m'A_m / N
        rows:    grad f_m = H_m (x - z_m);   of a batch: 1/B sum over the batch of (a_mi'x - b_mi) a_mi
        front:   minimisers of the weighted sums,  x(w) = (sum_m w_m H_m)^-1 sum_m w_m H_m z_m
        caps:    g = f_m - cap_m <= 0 for every m that has one; the front is the part of the same front that
                 keeps them

    The quadratic form serves the full sum, without a pass over the data; a batch gathers its terms run by
    run.

    Fields:
        n: number of variables. tasks: M. samples: N, terms per task, at least n.
        noise: standard deviation of the targets' noise; data_seed: seed of the data, shared by all runs.
        caps: M upper bounds of the objectives as functional constraints, None for objectives without; None:
            no bounds. A cap below the objective's smallest value is refused; caps that only exclude each
            other are not noticed.
    """

    citation: ClassVar[str] = "ours"

    n: int = 10
    tasks: int = 2
    samples: int = 256
    noise: float = 0.1
    data_seed: int = 0
    caps: Sequence[Real | None] | None = None
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "uniform", "low": -1.0, "high": 1.0})
    steps: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tasks < 1 or self.n < 1:
            raise ConfigError(f"problem.tasks={self.tasks} and problem.n={self.n} must be at least 1.")
        if self.samples < self.n:
            raise ConfigError(
                f"problem.samples={self.samples} is less than problem.n={self.n}, so "
                "the minimisers would not be unique."
            )
        if self.caps is not None:
            object.__setattr__(self, "caps", tuple(None if c is None else float(c) for c in self.caps))
            self._check_caps()

    def _check_caps(self) -> None:
        """Raises ConfigError for a list of another length, and for a cap that no x can keep."""
        caps = self._caps
        if len(caps) != self.tasks or not all(c is None or math.isfinite(c) for c in caps):
            raise ConfigError(
                f"problem.caps={list(caps)} must contain problem.tasks={self.tasks} numbers, "
                "with null for a task without a cap."
            )
        for m, (cap, least) in enumerate(zip(caps, self.data().least.tolist(), strict=True)):
            if cap is not None and cap < least:
                raise ConfigError(
                    f"problem.caps[{m}]={cap:g} leaves no feasible point: the smallest value of objective "
                    f"{m + 1} is {least:.6g}. Choose a larger cap, or null for none."
                )

    @property
    def n_objectives(self) -> int:
        return self.tasks

    @property
    def _caps(self) -> tuple[float | None, ...]:
        return () if self.caps is None else tuple(self.caps)

    @property
    def n_constraints(self) -> int:  # type: ignore[override]  # a constant of the class in most problems
        return sum(c is not None for c in self._caps)

    @property
    def dim(self) -> int:
        return self.n

    @property
    def n_samples(self) -> int:
        return self.samples

    @property
    def ref_point(self) -> tuple[float, ...]:
        """1.1 times each objective's largest value at the minimisers of the tasks (M = 2: the nadir)."""
        worst = self._full(self.data().z)[0].max(0).values
        return tuple(1.1 * v for v in worst.tolist())

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        """The smallest value of each task."""
        return self.data().least

    def data(self, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Data:
        """The data set as tensors; made once per dtype and device."""
        return _data(
            self.samples, self.tasks, self.n, self.noise, self.data_seed, dtype, torch.device(device)
        )

    @property
    def hessian(self) -> Float[Tensor, "M P P"]:
        """H_m, the same at every x."""
        return self.data().H

    def values(
        self, x: Float[Tensor, "R P"], batch: Int[Tensor, "R B"] | None = None
    ) -> Float[Tensor, "R K"]:
        return self._stack((self._full(x) if batch is None else self._batch(x, batch))[0], shift=True)

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Int[Tensor, "R B"] | None = None
    ) -> tuple[Float[Tensor, "R K"], Callable[[], Tensor]]:
        if batch is None:
            F, rows = self._full(x)
            return self._stack(F, shift=True), lambda: self._stack(rows)
        F, residual, A = self._batch(x, batch)
        return self._stack(F, shift=True), lambda: self._stack((residual.unsqueeze(-1) * A).mean(1))

    def _stack(self, Y: Float[Tensor, "R M *P"], shift: bool = False) -> Float[Tensor, "R K *P"]:
        """Values or rows of the objectives, then of the capped ones as constraints (`shift`: minus caps)."""
        if self.n_constraints == 0:
            return Y
        which, cap = _capped(self._caps, Y.dtype, Y.device)
        G = Y.index_select(1, which)
        return torch.cat([Y, G - cap if shift else G], 1)

    def _full(self, x: Float[Tensor, "R P"]) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R M P"]]:
        d = self.data(x.dtype, x.device)
        D = x.unsqueeze(1) - d.z
        rows = torch.bmm(D.transpose(0, 1), d.H).transpose(0, 1)
        return torch.add(d.least, torch.linalg.vecdot(D, rows), alpha=0.5), rows

    def _batch(self, x: Float[Tensor, "R P"], batch: Int[Tensor, "R B"]) -> tuple[Tensor, Tensor, Tensor]:
        """f (R, M), residuals (R, B, M) and rows of the data (R, B, M, P) of the chosen terms."""
        d = self.data(x.dtype, x.device)
        flat = batch.flatten()
        A = d.A.index_select(0, flat).view(*batch.shape, self.tasks, self.n)
        b = d.b.index_select(0, flat).view(*batch.shape, self.tasks)
        residual = (A * x[:, None, None]).sum(-1) - b
        return torch.linalg.vecdot(residual, residual, dim=1) * (0.5 / batch.shape[1]), residual, A

    def minimiser(self, w: Float[Tensor, "k M"]) -> Float[Tensor, "k P"]:
        """x(w), float64: the minimiser of sum_m w_m f_m, Pareto optimal for every w >= 0 other than 0."""
        d = self.data()
        c = torch.einsum("mij,mj->mi", d.H, d.z)
        return torch.linalg.solve(torch.einsum("km,mij->kij", w, d.H), w @ c)

    def front(self, k: int) -> Float[Tensor, "k2 M"]:
        """M = 2: k points of the curve f(x(w)), evenly spaced in arc length.

        M > 2: k low-discrepancy weights w.

        With caps, those of the k points that keep them: whatever dominates such a point keeps them too.
        """
        F = self._front(k)
        for m, cap in enumerate(self._caps):
            if cap is not None:
                F = F[F[:, m] <= cap]
        return F

    def _front(self, k: int) -> Float[Tensor, "k2 M"]:
        """The front without caps."""
        if self.tasks == 1:
            return self.data().least.unsqueeze(0)
        if self.tasks > 2:
            return self._full(self.minimiser(spread(k, self.tasks)))[0]
        return evenly(
            lambda t: self._full(self.minimiser(torch.stack([t, 1.0 - t], dim=-1)))[0], k, [(0.0, 1.0)]
        )
