"""Objectives that a user's program holds as Python functions; `mobench.objectives` makes them.

A configuration cannot hold a function. It holds `code`, the hash of what the functions compute, and the
functions themselves are served under that name (`mobench.core.served`).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import generator
from mobench.core.served import served, source
from mobench.core.sets import Box, Free, Intervals, Set
from mobench.core.start import START_KINDS
from mobench.data.tables import Table
from mobench.errors import ConfigError
from mobench.models.stacked import Tree, mapped
from mobench.problems.arranged import Arrangement
from mobench.problems.probe import check_entries, trying

# of x (P,), or of a dictionary of its parts; of (x, batch) where there are data
Function = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Functions:
    """f(x) and g(x) of one x (P,), each a tensor () or (k,); a function that draws a start from a generator;
    points (k, M) of the exact front; measures, x (P,) -> () each, by name; a stop rule and a callback. With
    an `arrangement` functions have a dictionary of tensors in place of x. With `data`, functions and measures
    take a batch of samples as well.
    """

    objectives: tuple[Function, ...]
    constraints: tuple[Function, ...] = ()
    start: Callable[[np.random.Generator], Any] | None = None
    front: Float[Tensor, "k M"] | None = None
    measures: Mapping[str, Function] = field(default_factory=dict)
    arrangement: Arrangement | None = None
    stop: Callable[[Any], Any] | None = None
    callback: Callable[[int, Any], object] | None = None
    data: Table | None = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Returns everything that determines the results."""
        parts: tuple[Any, ...] = (self.objectives, self.constraints, self.start)
        # jobs without the following parts keep the names that they had before these existed
        if self.front is not None or self.measures:
            parts = (*parts, self.front, dict(self.measures))
        if self.arrangement is not None:
            parts = (*parts, self.arrangement.shapes)
        if self.data is not None:
            parts = (*parts, "data", self.data.tree, *(["drop_last"] if self.data.drop_last else []))
        return parts if self.stop is None else (*parts, self.stop)

    def _of_vector(self, fn: Function) -> Function:
        return fn if self.arrangement is None else self.arrangement.taking(fn)

    @cached_property
    def all(self) -> tuple[Function, ...]:
        """Objectives, then constraints, of x (P,), and of a batch where there are data."""
        return tuple(map(self._of_vector, self.objectives + self.constraints))

    @cached_property
    def measured(self) -> dict[str, Function]:
        """The measures, of x (P,), and of a batch where there are data."""
        return {name: self._of_vector(fn) for name, fn in self.measures.items()}

    def stacked(self, x: Float[Tensor, " P"], *batch: Tree) -> Float[Tensor, " K"]:
        """All values at one x, in a row."""
        values = [fn(x, *batch) for fn in self.all]
        if len(values) == 1 and values[0].ndim == 1:
            return values[0].to(x.dtype)
        if not any(value.ndim for value in values):
            return torch.stack(values).to(x.dtype)
        return torch.cat([torch.atleast_1d(value) for value in values]).to(x.dtype)

    def source(self) -> list[str]:
        """Text of each function; for a reader of the rows."""
        return source([*self.all, *([] if self.start is None else [self.start])])


@dataclass(frozen=True, kw_only=True)
class Own(Problem):
    """A user's functions f_1 .. f_M and g_1 .. g_N <= 0, batched over the runs by torch.func.vmap; a run
    alone calls them as they are, which costs half as much.

        values (R, P) -> (R, M + N),  row r: (f(x_r), g(x_r));  rows by automatic differentiation

    Fields:
        code: hash of the functions. title: name of the folder and key of the starts.
        variables: P. bounds: [lower, upper], numbers for every coordinate or lists of P numbers, null where
            there is no bound; or null.
        positive: whether every objective is >= 0.
        ideal: z (M,) of Tchebycheff values, or null. reference: point (M,) of hypervolumes, or null.
        start: as of any problem; or {kind: given, value: [x_1, .., x_P]}, where value may be a list of such
            lists, one for each preference; or {kind: sampler}: drawn by a function; or {kind: in_bounds}:
            uniform between the bounds of each coordinate.

    Raises:
        ConfigError: no functions are served under `code`; or they do not give values that can be used at the
            start.
    """

    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **START_KINDS,
        "given": ("value",),
        "sampler": (),
        "in_bounds": (),
    }
    citation: ClassVar[str] = "the user's own"

    code: str
    variables: int
    title: str = "own"
    bounds: Sequence[Any] | None = None
    positive: bool = False  # type: ignore[misc]  # a constant of the class in most problems
    ideal: Sequence[float | int] | None = None
    reference: Sequence[float | int] | None = None
    _functions: Functions = field(init=False, repr=False, compare=False)
    _batched: Callable[[Tensor], Tensor] = field(init=False, repr=False, compare=False)
    _counts: tuple[int, int] = field(init=False, repr=False, compare=False)  # M, N

    def __post_init__(self) -> None:
        whole = isinstance(self.variables, numbers.Integral) and not isinstance(self.variables, bool)
        if not whole or self.variables < 1:
            raise ConfigError(
                f"dim={self.variables!r} (problem.variables) must be a whole number >= 1, the length of x."
            )
        limits = None if self.bounds is None else _interval(self.bounds, self.variables)
        if self.bounds is not None and (limits is None or any(a >= b for a, b in zip(*limits, strict=True))):
            raise ConfigError(
                f"bounds={self.bounds!r} (problem.bounds) must be two numbers, (lower, upper), for all "
                f"coordinates, or two lists of {self.variables} numbers, with lower < upper in each."
            )
        super().__post_init__()
        functions = served(self.code)
        if self.start["kind"] == "in_bounds" and not np.isfinite(limits or [np.inf]).all():
            raise ConfigError(
                "A start that is drawn between the bounds needs bounds that are finite; give start=."
            )
        for start in self._starts:
            if len(start) != self.variables:
                raise ConfigError(
                    f"problem.start has {len(start)} coordinates, but there are {self.variables} variables."
                )
        object.__setattr__(self, "_functions", functions)
        object.__setattr__(self, "_batched", torch.func.vmap(functions.stacked))
        x = self.X.project(self._theta(0).unsqueeze(0))[0]
        sizes = self._sizes(x, *self._beside(x))
        M = sum(sizes[: len(functions.objectives)])
        object.__setattr__(self, "_counts", (M, sum(sizes) - M))
        self._check_values(x)
        self._check_extras(x, M)
        check_entries(M, ideal=self.ideal, reference=self.reference)

    def _beside(self, x: Tensor) -> tuple[Tree, ...]:
        """The arguments of functions beside x: all data, where there are any."""
        return ()

    def _sizes(self, x: Float[Tensor, " P"], *batch: Tree) -> list[int]:
        """Returns the number of values of each function. Raises ConfigError as `_size` does."""
        functions = self._functions
        M = len(functions.objectives)
        called = [_called(fn, m, M) for m, fn in enumerate(functions.all)]
        return [
            _size(fn, x, name, functions.arrangement, *batch)
            for fn, name in zip(functions.all, called, strict=True)
        ]

    def _measured(self, fn: Function, x: Float[Tensor, "R P"]) -> Any:
        """A measure of all runs."""
        beside = self._beside(x)
        return torch.func.vmap(lambda row: fn(row, *beside))(x)

    def _check_extras(self, x: Float[Tensor, " P"], M: int) -> None:
        """Raises ConfigError for a front or a measure that cannot be used."""
        front = self._functions.front
        if front is not None and (front.ndim != 2 or front.shape[1] != M or not bool(front.isfinite().all())):
            raise ConfigError(
                f"front has the shape {tuple(front.shape)}; expected finite points of shape (k, {M})."
            )
        for name, measure in self._functions.measured.items():
            with trying(f"The measure {name!r} fails at the start {_text(x)}", ""), torch.no_grad():
                value = self._measured(measure, x.unsqueeze(0))
            if not isinstance(value, Tensor) or value.shape != (1,):
                raise ConfigError(f"The measure {name!r} must return a tensor () for one x (P,).")

    def _check_values(self, x: Float[Tensor, " P"]) -> None:
        """Raises ConfigError for values or gradients near the start, as a batch, that no method could use."""
        M, N = self._counts
        names = [f"f_{m + 1}" for m in range(M)] + [f"g_{n + 1}" for n in range(N)]
        rng = generator(0, use="probe")
        step = torch.from_numpy(rng.standard_normal((2, self.variables)))
        near = x + 1e-2 * step[0]  # not the start itself, where symmetry may make a gradient 0
        h = 1e-4
        points = torch.stack([x, near, near + h * step[1], near - h * step[1]]).requires_grad_(True)
        what = "The functions can be evaluated at one x, but torch.func.vmap cannot evaluate many at once"
        advice = (
            "Replace branches on values (if x[0] > 0) by torch.where, .item() and NumPy by torch operations, "
            "and draw random numbers beforehand."
        )
        with trying(what, advice), torch.enable_grad():
            values = self.values(points)
        if not bool(torch.isfinite(values[0]).all()):
            bad = [
                f"{n} = {v}" for n, v in zip(names, values[0].tolist(), strict=True) if not math.isfinite(v)
            ]
            raise ConfigError(f"{', '.join(bad)} at the start {_text(x)}; choose another start=.")
        if self.positive and min(values[0, :M].tolist()) < 0.0:
            raise ConfigError(
                f"positive=True was declared, but f = {_text(values[0, :M])} at the start {_text(x)}."
            )
        plain = values.detach()
        slopes = ((plain[2] - plain[3]) / (2.0 * h)).tolist()
        sizes = plain[1].abs().tolist()
        for k, (name, slope, size) in enumerate(zip(names, slopes, sizes, strict=True)):
            row = torch.autograd.grad(values[1, k], points, retain_graph=True)[0][1]
            # 1e-10 |f| is the rounding of a difference at this step
            if not bool(row.any()) and abs(slope) > 1e-6 * (1.0 + size):
                raise ConfigError(
                    f"{name} changes with x (slope {slope:.3g} near the start), but its gradient is 0, so "
                    "part of it is detached from x, or not differentiable. Compute it with torch operations, "
                    "without .detach() or torch.no_grad()."
                )

    @property
    def name(self) -> str:
        return self.title

    @property
    def n_objectives(self) -> int:
        return self._counts[0]

    @property
    def n_constraints(self) -> int:  # type: ignore[override]  # a constant of the class in most problems
        return self._counts[1]

    @property
    def dim(self) -> int:
        return self.variables

    @property
    def X(self) -> Set:
        if self.bounds is None:
            return Free()
        if not any(b is None or hasattr(b, "__len__") for b in self.bounds):
            return Box(float(self.bounds[0]), float(self.bounds[1]))
        limits = _interval(self.bounds, self.variables)
        assert limits is not None
        return Intervals(*limits)

    @property
    def ideal_point(self) -> Tensor | None:
        return (
            None if self.ideal is None else torch.tensor([float(z) for z in self.ideal], dtype=torch.float64)
        )

    @property
    def ref_point(self) -> tuple[float, ...] | None:
        return None if self.reference is None else tuple(float(z) for z in self.reference)

    @property
    def callback(self) -> Callable[[int, Any], object] | None:
        """Returns the user's measures, at each recorded step."""
        return self._functions.callback

    @property
    def stop(self) -> Callable[[Any], Any] | None:
        """The user's stop rule."""
        return self._functions.stop

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R K"]:
        if len(x) == 1:
            return self._functions.stacked(x.squeeze(0)).unsqueeze(0)
        return self._batched(x)

    @property
    def _starts(self) -> Sequence[Sequence[float | int]]:
        """Starts of the kind `given`: none, one, or one for each preference."""
        if self.start["kind"] != "given":
            return ()
        value: Sequence[Any] = self.start["value"]
        return value if hasattr(value[0], "__len__") else (value,)

    def _theta(self, seed: int, preference: int = 0) -> Float[Tensor, " P"]:
        """The start of a seed and a preference."""
        kind = self.start["kind"]
        if kind == "given":
            start = self._starts[preference if len(self._starts) > 1 else 0]
            return torch.tensor([float(v) for v in start], dtype=torch.float64)
        if kind == "in_bounds":
            low, high = _interval(self.bounds or (), self.variables) or ((), ())
            rng = generator(seed, problem=self.name, use="start")
            return torch.from_numpy(rng.uniform(low, high, self.variables))
        if kind != "sampler":
            return super().initial(Runs.product(torch.ones(1, 1, dtype=torch.float64), [seed]))[0]
        functions = self._functions
        if functions.start is None:
            raise ConfigError(
                "problem.start.kind=sampler needs a function: mobench.objectives(..., start=function)."
            )
        drawn = functions.start(generator(seed, problem=self.name, use="start"))
        if functions.arrangement is not None:
            drawn = functions.arrangement.vector("start(rng)", drawn)
        with trying(f"start(rng) returned {type(drawn).__name__}, which is not a vector", ""):
            row = torch.as_tensor(drawn, dtype=torch.float64)
        if row.shape != (self.variables,) or not bool(torch.isfinite(row).all()):
            raise ConfigError(
                f"start(rng) returned {_text(row)}; it must be a finite vector of shape ({self.variables},)."
            )
        return row.detach()

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        if len(self._starts) > 1 and len(self._starts) != len(runs.all):
            raise ConfigError(
                f"start has {len(self._starts)} rows, but the job has {len(runs.all)} preferences; give one "
                "start, or one for each preference."
            )
        if self.start["kind"] in ("given", "sampler", "in_bounds"):
            pairs = zip(runs.seeds.tolist(), runs.index.tolist(), strict=True)
            return torch.stack([self._theta(seed, index) for seed, index in pairs])
        return super().initial(runs)

    def front(self, k: int) -> Float[Tensor, "k2 M"] | None:
        """At most k points of the user's front."""
        front = self._functions.front
        if front is None or len(front) <= k:
            return front
        return front[torch.linspace(0, len(front) - 1, k).round().to(torch.int64)]

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        return {name: self._measured(fn, x).double() for name, fn in self._functions.measured.items()}

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        return {"functions": self._functions.source()}


def _interval(bounds: Any, P: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Lower and upper bounds of P coordinates; None if they are no such bounds."""
    try:
        if len(bounds) != 2 or any(isinstance(b, str) for b in bounds):
            return None
        sides = [b if hasattr(b, "__len__") else (b,) * P for b in bounds]
        # a configuration holds no infinite numbers
        ends = [
            tuple(none if b is None else float(b) for b in side)
            for side, none in zip(sides, (-math.inf, math.inf), strict=True)
        ]
    except (TypeError, ValueError):
        return None
    if any(len(end) != P or any(math.isnan(v) for v in end) for end in ends):
        return None
    return ends[0], ends[1]


def _text(x: Tensor) -> str:
    """A vector in a message."""
    values = [f"{v:.4g}" for v in x.detach().reshape(-1)[:6].tolist()]
    return (
        f"({', '.join(values)}{', ...' if x.numel() > 6 else ''})"
        if x.ndim == 1
        else f"of shape {tuple(x.shape)}"
    )


def _called(fn: Function, place: int, objectives: int) -> str:
    """Returns the name of a function in messages."""
    kind, number = ("objective", place) if place < objectives else ("constraint", place - objectives)
    return f"{kind} function {number + 1} ({getattr(fn, '__name__', type(fn).__name__)})"


def _size(
    fn: Function, x: Float[Tensor, " P"], name: str, arrangement: Arrangement | None, *batch: Tree
) -> int:
    """Returns the number of values of a function.

    Raises:
        ConfigError: it fails, is no function of x (and the batch) alone, or returns anything but a vector
            that can be differentiated.
    """
    what = f"x of shape ({len(x)},)" if arrangement is None else f"parts of the shapes {arrangement.shapes}"
    takes = f"It is called with {what}, {x.dtype}"
    if batch:
        shapes = mapped(lambda t: f"{tuple(t.shape)} {t.dtype}", batch[0])
        takes += f", and a batch: {shapes}".replace("'", "")
    x = x.detach().requires_grad_(True)
    with trying(f"{name} fails at the start {_text(x)}", f"{takes}."), torch.enable_grad():
        value = fn(x, *batch)
        again = fn(x, *batch)
    if not isinstance(value, torch.Tensor):
        what = (
            "torch.stack([...]) combines several into one" if isinstance(value, tuple | list) else f"{takes}"
        )
        raise ConfigError(f"{name} returns {type(value).__name__}, but must return a tensor. {what}.")
    if value.ndim > 1 or value.numel() == 0:
        raise ConfigError(
            f"{name} returns shape {tuple(value.shape)}, but must return () or (k,) for one x. {takes}."
        )
    if value.dtype != x.dtype:
        raise ConfigError(
            f"{name} returns {value.dtype}. {takes}; keep that type (convert your own tensors by .to(x))."
        )
    if not value.requires_grad:
        raise ConfigError(
            f"{name} cannot be differentiated: its value does not depend on x through torch operations "
            f"(NumPy, .item(), .detach() and torch.no_grad() break the graph)."
        )
    if not torch.equal(value, again) and bool(torch.isfinite(value).all()):
        raise ConfigError(
            f"{name} returns different values at the same x. Draw random numbers beforehand and capture them."
        )
    return value.numel()
