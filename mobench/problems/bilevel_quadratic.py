"""Quadratic bilevel problem with closed forms.

f_s(x, y) = 1/2 |C_s x + E_s y - t_s|^2 + offset,    g(x, y) = 1/2 y'Ay - y'(Bx + c),    y*(x) = A^-1 (Bx + c)
With samples:  G(x, y; i) = (1 + a_i)/2 y'Ay - y'(Bx + c + z_i),
the mean of all a_i is 0, that of all z_i as well
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.bilevel import Bilevel, Step, View
from mobench.core.random import generator
from mobench.errors import ConfigError
from mobench.solvers import min_norm


class Constants(NamedTuple):
    """A (q, q), B (q, P), c (q,), C (S, k, P), E (S, k, q), t (S, k)."""

    A: Float[Tensor, "q q"]
    B: Float[Tensor, "q P"]
    c: Float[Tensor, " q"]
    C: Float[Tensor, "S k P"]
    E: Float[Tensor, "S k q"]
    t: Float[Tensor, "S k"]


class Samples(NamedTuple):
    """The terms of the lower level in g: a (n,) of the Hessian, in units of A, and z (n, q) of c."""

    a: Float[Tensor, " n"]
    z: Float[Tensor, "n q"]


@dataclass(frozen=True, kw_only=True)
class BilevelQuadratic(Bilevel):
    """S objectives that share y; phi_s is convex, so linear scalarization gives the whole Pareto front.

    Fields: tasks: S. variables: P. lower: q. residuals: k, rows of C_s and E_s. spectrum: smallest and
    largest eigenvalue of A, the others lie evenly between. data_seed: the constants. A is a random rotation
    of its spectrum; B, C, E have standard normal entries over the root of the number of columns, c standard
    normal ones, t_s any direction and length target k^(1/2). offset: added to each f_s. samples: n, terms of
    the lower level's finite sum (0: it is deterministic). noise: in [0, 1), of these terms: a_i is uniform in
    noise [-1, 1], z_i normal with standard deviation noise; each term is strongly convex in y. gram: whether
    the columns `gram_s_t` are recorded.

    Columns: `min_norm_square`, the squared length of the shortest convex combination of the exact
    hypergradients; with `gram` the inner products of the exact hypergradients, `gram_s_t` for s <= t.
    """

    closed_form: ClassVar[bool] = True
    citation: ClassVar[str] = "multi-objective bilevel learning paper, Section 5 (conditions); constants ours"

    tasks: int = 5
    variables: int = 8
    lower: int = 6
    residuals: int = 4
    spectrum: Sequence[float] = (0.5, 2.0)
    target: float = 3.0
    offset: float = 0.0
    samples: int = 0
    noise: float = 0.3
    gram: bool = False
    data_seed: int = 0
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "normal", "scale": 0.5})
    steps: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("tasks", "variables", "lower", "residuals"):
            if getattr(self, key) < 1:
                raise ConfigError(f"problem.{key}={getattr(self, key)} must be at least 1.")
        if len(self.spectrum) != 2 or not 0 < self.spectrum[0] <= self.spectrum[1]:
            raise ConfigError(
                f"problem.spectrum={list(self.spectrum)} must be the [smallest, largest] eigenvalue of A, "
                f"both > 0, so that the lower level is strongly convex."
            )
        if not self.offset >= 0:
            raise ConfigError(f"problem.offset={self.offset} must be >= 0.")
        if self.samples < 0:
            raise ConfigError(
                f"problem.samples={self.samples} must be >= 0 (0 means that the lower level is "
                "deterministic)."
            )
        if not 0 <= self.noise < 1:
            raise ConfigError(
                f"problem.noise={self.noise} must lie in [0, 1), so that every term is strongly convex in y."
            )

    @property
    def n_objectives(self) -> int:
        return self.tasks

    @property
    def dim(self) -> int:
        return self.variables

    @property
    def blocks(self) -> int:
        return 1

    @property
    def lower_dim(self) -> int:
        return self.lower

    @property
    def lower_samples(self) -> int:
        return self.samples

    @property
    def convexity(self) -> float:
        return float(self.spectrum[0])

    @property
    def ideal_point(self) -> Float[Tensor, " S"]:
        """The offset, which a sum of squares does not fall below."""
        return torch.full((self.tasks,), float(self.offset), dtype=torch.float64)

    def constants(self, like: Tensor | None = None) -> Constants:
        """Returns the constants, made once in a process; in the type and on the device of `like`."""
        sizes = self.tasks, self.variables, self.lower, self.residuals
        spectrum = float(self.spectrum[0]), float(self.spectrum[1])
        dtype, device = (torch.float64, torch.device("cpu")) if like is None else (like.dtype, like.device)
        return _constants(self.data_seed, self.name, *sizes, *spectrum, float(self.target), dtype, device)

    def terms(self, like: Tensor | None = None) -> Samples:
        """Returns the terms of the lower level; made once in a process."""
        dtype, device = (torch.float64, torch.device("cpu")) if like is None else (like.dtype, like.device)
        return _terms(self.data_seed, self.name, self.samples, self.lower, float(self.noise), dtype, device)

    def f(self, x: Float[Tensor, "R P"], y: Float[Tensor, "R B q"]) -> Float[Tensor, "R S"]:
        c = self.constants(x)
        return 0.5 * self._residual(c, x, y).square().sum(-1) + self.offset

    @staticmethod
    def _residual(c: Constants, x: Tensor, y: Tensor) -> Float[Tensor, "R S k"]:
        return torch.einsum("skp,rp->rsk", c.C, x) + torch.einsum("skq,rq->rsk", c.E, y[:, 0]) - c.t

    def g(self, x: Float[Tensor, "R P"], y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B"]:
        c = self.constants(x)
        return 0.5 * ((y @ c.A) * y).sum(-1) - (y * (x @ c.B.mT + c.c).unsqueeze(1)).sum(-1)

    def view(self, x: Float[Tensor, "R P"], batch: Int[Tensor, "R b"] | None = None) -> View:
        return _Closed(self, x, batch)

    def solve(self, x: Float[Tensor, "R P"]) -> Float[Tensor, "R B q"]:
        c = self.constants(x)
        return torch.linalg.solve(c.A, (x @ c.B.mT + c.c).mT).mT.unsqueeze(1)

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R S"]:
        return self.f(x, self.solve(x))

    def columns_at(self, x: Float[Tensor, "R P"], y: Float[Tensor, "R B q"]) -> dict[str, Tensor]:
        """min_norm_square and, if wanted, gram_s_t: of the exact hypergradients at x."""
        c = self.constants(x)
        e = self._residual(c, x, self.solve(x))
        J = torch.einsum("skp,rsk->rsp", c.C + c.E @ torch.linalg.solve(c.A, c.B), e).double()
        G = J @ J.mT
        lam = min_norm(G).x.unsqueeze(1)
        out = {"min_norm_square": (lam @ J).square().sum((1, 2))}
        if self.gram:
            out |= {
                f"gram_{s + 1}_{t + 1}": G[:, s, t] for s in range(self.tasks) for t in range(s, self.tasks)
            }
        return out

    def minimiser(self, w: Float[Tensor, "k M"]) -> Float[Tensor, "k P"]:
        """A minimiser of sum_s w_s phi_s, float64 (the shortest, where there are several)."""
        c = self.constants()
        J = c.C + c.E @ torch.linalg.solve(c.A, c.B)
        rest = c.t - c.E @ torch.linalg.solve(c.A, c.c)
        H = torch.einsum("ws,skp,skj->wpj", w, J, J)
        b = torch.einsum("ws,skp,sk->wp", w, J, rest)
        return torch.linalg.lstsq(H, b.unsqueeze(-1), driver="gelsd").solution.squeeze(-1)


@lru_cache(maxsize=16)
def _constants(
    seed: int,
    name: str,
    S: int,
    P: int,
    q: int,
    k: int,
    low: float,
    high: float,
    target: float,
    dtype: torch.dtype,
    device: torch.device,
) -> Constants:
    rng = generator(seed, problem=name, use="constants")
    shapes = ((q, q), (q, P), (q,), (S, k, P), (S, k, q), (S, k))
    square, *normal = (torch.from_numpy(rng.standard_normal(n)) for n in shapes)
    Q = torch.linalg.qr(square)[0]
    A = Q @ torch.diag(torch.linspace(low, high, q, dtype=torch.float64)) @ Q.mT
    normal[4] *= target * k**0.5 / torch.linalg.vector_norm(normal[4], dim=1, keepdim=True)
    B, c, C, E, t = (tensor.to(device, dtype) for tensor in normal)
    return Constants((0.5 * (A + A.mT)).to(device, dtype), B / P**0.5, c, C / P**0.5, E / q**0.5, t)


@lru_cache(maxsize=16)
def _terms(
    seed: int, name: str, n: int, q: int, noise: float, dtype: torch.dtype, device: torch.device
) -> Samples:
    rng = generator(seed, problem=name, use="terms")
    a = torch.from_numpy(rng.uniform(-1.0, 1.0, n))
    z = torch.from_numpy(rng.standard_normal((n, q)))
    return Samples(*(noise * (t - t.mean(0)).to(device, dtype) for t in (a, z)))


class _Closed(View):
    """Closed forms, on all terms of the lower level or on a batch of them."""

    def __init__(self, problem: BilevelQuadratic, x: Tensor, batch: Tensor | None = None) -> None:
        self.problem = problem
        self.x = x
        self.c = problem.constants(x)
        self.bend: Tensor | None = None  # 1 + the mean of a_i
        self.linear = (x @ self.c.B.mT + self.c.c).unsqueeze(1)  # Bx + c + the mean of z_i
        if batch is not None:
            terms = problem.terms(x)
            self.bend = 1.0 + terms.a[batch].mean(1)[:, None, None]
            self.linear = self.linear + terms.z[batch].mean(1, keepdim=True)

    def _bent(self, v: Float[Tensor, "R k q"]) -> Float[Tensor, "R k q"]:
        product = v @ self.c.A
        return product if self.bend is None else product * self.bend

    def lower(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B"]:
        return 0.5 * (self._bent(y) * y).sum(-1) - (y * self.linear).sum(-1)

    def lower_gradient(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B q"]:
        return self._bent(y) - self.linear

    def lower_hvp(self, y: Float[Tensor, "R B q"], v: Float[Tensor, "R k q"]) -> Float[Tensor, "R k q"]:
        return self._bent(v)

    def upper(self, y: Float[Tensor, "R B q"]) -> tuple[Float[Tensor, "R S"], Float[Tensor, "R S q"]]:
        e = self.problem._residual(self.c, self.x, y)
        return 0.5 * e.square().sum(-1) + self.problem.offset, torch.einsum("skq,rsk->rsq", self.c.E, e)

    def jacobian(self, y: Float[Tensor, "R B q"], steps: Sequence[Step]) -> Float[Tensor, "R S P"]:
        e = self.problem._residual(self.c, self.x, y)
        direct = torch.einsum("skp,rsk->rsp", self.c.C, e)
        # J_xy = -B'
        return direct + torch.stack([v for _, v in steps]).sum(0) @ self.c.B if steps else direct

    def lower_x(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R P"]:
        return -(y[:, 0] @ self.c.B)
