"""Pareto set models: a network maps preferences to variables; the runs of a seed train it together.

x = h_phi(w):  a = relu(W_2 relu(W_1 w + b_1) + b_2),  o = W_3 a + b_3,
               x = lower + (upper - lower) sigmoid(o) in a box, x = x_0 + o elsewhere
phi <- Adam(phi, mean_k J_phi(w_k)' J(x_k)' u_k),  w_k ~ Dirichlet(concentration, ..., concentration)
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.algorithm import Algorithm, Context, Info, Real, State, Step
from mobench.core.arrays import to_device
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.core.random import generator
from mobench.core.sets import Box, Free, Set
from mobench.errors import ConfigError

LARGEST = 20_000  # variables: the last layer alone has `hidden` times as many parameters
LEAST = 1e-3  # smallest entry of a drawn preference, as of default preferences
DECAYS = (0.9, 0.999)  # of Adam's averages
TINY = 1e-8  # beside the square root in Adam


class Forward(NamedTuple):
    """The layers of h at K preferences of S seeds: inputs of each layer, and x with its slope dx / do."""

    w: Float[Tensor, "S K M"]
    first: Float[Tensor, "S K h"]
    second: Float[Tensor, "S K h"]
    x: Float[Tensor, "S K P"]
    slope: Float[Tensor, "S K P"]


class Backward(NamedTuple):
    """Derivatives of m scalars by the sums of the layers, before ReLU, at each preference."""

    first: Float[Tensor, "S K m h"]
    second: Float[Tensor, "S K m h"]
    last: Float[Tensor, "S K m P"]


@dataclass(frozen=True)
class Model:
    """h with P outputs; parameters (S, n) hold W_1, b_1, W_2, b_2, W_3, b_3, one after the other.

    `box`: None: x = origin + o.
    """

    M: int
    hidden: int
    P: int
    box: Box | None

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the layers."""
        return (self.M, self.hidden), (self.hidden, self.hidden), (self.hidden, self.P)

    @property
    def size(self) -> int:
        return sum((n + 1) * k for n, k in self.shapes)

    def drawn(self, rng: np.random.Generator) -> Float[np.ndarray, " n"]:
        """PyTorch's initialisation of linear layers: uniform up to 1 / sqrt(inputs)."""
        return np.concatenate([rng.uniform(-(n**-0.5), n**-0.5, (n + 1) * k) for n, k in self.shapes])

    def layers(self, phi: Float[Tensor, "S n"]) -> list[tuple[Tensor, Tensor]]:
        """Weights (S, inputs, outputs) and biases (S, 1, outputs)."""
        out = []
        start = 0
        for n, k in self.shapes:
            middle = start + n * k
            out.append((phi[:, start:middle].view(-1, n, k), phi[:, middle : middle + k].unsqueeze(1)))
            start = middle + k
        return out

    def forward(
        self, phi: Float[Tensor, "S n"], w: Float[Tensor, "S K M"], origin: Float[Tensor, "S P"]
    ) -> Forward:
        (W1, b1), (W2, b2), (W3, b3) = self.layers(phi)
        first = (w @ W1 + b1).relu()
        second = (first @ W2 + b2).relu()
        o = second @ W3 + b3
        if self.box is None:
            return Forward(w, first, second, origin.unsqueeze(1) + o, torch.ones_like(o))
        share = torch.sigmoid(o)
        span = self.box.upper - self.box.lower
        return Forward(w, first, second, self.box.lower + span * share, span * share * (1.0 - share))

    def backward(self, phi: Float[Tensor, "S n"], at: Forward, g: Float[Tensor, "S K m P"]) -> Backward:
        """From the gradients g of m scalars by x."""
        _, (W2, _), (W3, _) = self.layers(phi)
        last = g * at.slope.unsqueeze(2)
        second = (last @ W3.mT.unsqueeze(1)) * (at.second > 0).unsqueeze(2)
        first = (second @ W2.mT.unsqueeze(1)) * (at.first > 0).unsqueeze(2)
        return Backward(first, second, last)

    def gramian(self, at: Forward, by: Backward) -> Float[Tensor, "S K m m"]:
        """Inner products of the gradients by phi of the m scalars at each preference.

        A layer's gradient is the outer product of its input (and 1) and of the derivatives by its sums.
        """
        pairs = zip((at.w, at.first, at.second), by, strict=True)
        parts = [(a.square().sum(-1) + 1.0)[..., None, None] * (d @ d.mT) for a, d in pairs]
        return parts[0] + parts[1] + parts[2]

    def gradient(self, at: Forward, by: Backward) -> Float[Tensor, "S n"]:
        """By phi, summed over the preferences; of one scalar each."""
        parts = []
        for a, d in zip((at.w, at.first, at.second), by, strict=True):
            back = d.squeeze(2)
            parts += [(a.mT @ back).flatten(1), back.sum(1)]
        return torch.cat(parts, dim=1)


@dataclass(frozen=True, kw_only=True)
class ParetoSet(Algorithm):
    """Base class of methods that learn h, the whole Pareto set at once.

    `preferences=K` makes K runs of a seed; each step evaluates h at K preferences drawn for it, and the last
    one moves to h at the preferences of the runs. So T steps are T K gradient evaluations, and histories show
    what h gave at drawn preferences. The first step evaluates the start, which trains nothing. Every random
    number is a function of (seed, step). The parameters of h and Adam's averages lie in the state in K parts,
    one with each run of the seed. A run whose values are not finite, or whose subproblem fails, leaves its
    seed; the others go on with the mean over those that are left.

    Fields: lr: of Adam. hidden: units of both hidden layers. concentration: of the Dirichlet distribution of
    the preferences; 1 is uniform on the simplex; entries are at least 1e-3 before they are made to sum to 1.
    step_size: 1, because the model's answer replaces the point. outputs: ["last"].
    """

    objectives: ClassVar[tuple[int, int | None]] = (2, None)
    together: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False  # entries of drawn preferences and outputs of h are not exchangeable
    replaces: ClassVar[bool] = True

    step_size: Real = 1.0
    lr: Real = 1e-3
    hidden: int = 100
    concentration: Real = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden < 1:
            raise ConfigError(f"algorithm.hidden={self.hidden} must be at least 1.")
        for name in ("lr", "concentration"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"algorithm.{name}={getattr(self, name)} must be > 0, and finite.")
        if list(self.outputs) != ["last"]:
            raise ConfigError(
                f"algorithm.outputs={list(self.outputs)}: averages over points at drawn preferences belong "
                "to no preference. Set algorithm.outputs=[last]."
            )

    def misfits(self, spec: Spec) -> list[str]:
        reasons = []
        if not isinstance(spec.X, Box | Free):
            X = type(spec.X).__name__
            reasons.append(f"it gives points of a box or of the whole space, not of a {X}")
        if self.step_size != 1 or self.step_decay != 0:
            reasons.append(
                f"it replaces points instead of taking steps, so algorithm.step_size={self.step_size} must "
                f"be 1 and algorithm.step_decay={self.step_decay} must be 0; algorithm.lr is its network's"
            )
        if spec.P > LARGEST:
            reasons.append(f"it generates at most {LARGEST} variables, but there are {spec.P}")
        return reasons

    def needs_gramian(self) -> bool:
        """Returns whether `combine` gets inner products of the gradients by phi."""
        return False

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jacobian"}) if self.needs_gramian() else frozenset()

    @abstractmethod
    def combine(
        self, F: Float[Tensor, "R M"], G: Float[Tensor, "R M M"] | None, w: Float[Tensor, "R M"]
    ) -> tuple[Float[Tensor, "R M"], Info]:
        """Weights u of the objectives' gradients at points that belong to the preferences w."""

    def _model(self, M: int, P: int, X: Set) -> Model:
        return Model(
            M, self.hidden, P, X if isinstance(X, Box) and np.isfinite([X.lower, X.upper]).all() else None
        )

    def init(self, ctx: Context) -> State:
        R, P = ctx.theta.shape
        device = ctx.prefs.device
        seeds = torch.zeros(R, dtype=torch.int64) if ctx.seeds is None else ctx.seeds.cpu()
        order = _groups(seeds)
        model = self._model(ctx.spec.M, P, ctx.spec.X)
        rngs = [generator(int(seeds[mine[0]]), use="pareto-set") for mine in order]
        phi = torch.from_numpy(np.stack([model.drawn(rng) for rng in rngs]))
        zero = torch.zeros_like(phi)
        origin = torch.empty(R, P, dtype=torch.float64, device=device)
        origin[order.flatten()] = ctx.theta[order[:, 0]].double().repeat_interleave(order.shape[1], 0)
        return {
            "run": torch.stack([seeds, torch.full_like(seeds, ctx.steps)], dim=1).to(device),
            "own": ctx.prefs,
            "drawn": ctx.prefs,
            "there": torch.ones(R, dtype=torch.bool, device=device),
            "origin": origin,
            **{key: _parts(part.to(device), order) for key, part in (("phi", phi), ("m", zero), ("v", zero))},
        }

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        point = points[0]
        x = point.x
        M = point.M
        host = state["run"].cpu()
        groups = _groups(host[:, 0])
        order = to_device(groups, x.device)
        model = self._model(M, x.shape[1], point.X)
        phi, m, v = (_whole(state[key], order, model.size) for key in ("phi", "m", "v"))
        origin = state["origin"][order[:, 0]]
        there = state["there"]
        info = Info()
        if t > 0:
            at = model.forward(phi, state["drawn"][order], origin)
            F = point.F.double()
            fine = there & F.isfinite().all(1)
            back, fine, info = self._back(model, phi, at, point, F, fine, state["drawn"], order)
            count = fine[order].sum(1, keepdim=True).clamp_min(1)
            gradient = model.gradient(at, back) / count
            m = DECAYS[0] * m + (1.0 - DECAYS[0]) * gradient
            v = DECAYS[1] * v + (1.0 - DECAYS[1]) * gradient.square()
            size = (v / (1.0 - DECAYS[1] ** t)).sqrt() + TINY
            phi = phi - float(self.lr) * (m / (1.0 - DECAYS[0] ** t)) / size
            there = fine
        last = t + 1 >= int(host[0, 1])
        drawn = state["own"] if last else to_device(self._draws(host[:, 0], groups, t, M), x.device)
        model_points = model.forward(phi, drawn[order], origin).x
        target = torch.empty_like(x)
        target[order.flatten()] = model_points.flatten(0, 1).to(x.dtype)
        d = target - x
        d = d + (target - (x + d))  # the difference, rounded, does not lead there
        d = torch.where(there.unsqueeze(1), d, torch.nan)  # a run that has left does not come back
        parts = {key: _parts(part, order) for key, part in (("phi", phi), ("m", m), ("v", v))}
        return d, {**state, **parts, "drawn": drawn, "there": there}, info

    def _back(
        self,
        model: Model,
        phi: Float[Tensor, "S n"],
        at: Forward,
        point: Point,
        F: Float[Tensor, "R M"],
        fine: Tensor,
        w: Float[Tensor, "R M"],
        order: Int[Tensor, "S K"],
    ) -> tuple[Backward, Tensor, Info]:
        """Derivatives of sum_m u_m f_m (0 of runs that have left), the mask of the others, and the report."""
        column = fine.unsqueeze(1)
        F = torch.where(column, F, 1.0)
        if not self.needs_gramian():
            u, info = self.combine(F, None, w)
            g = point.vjp(u.to(point.x.dtype)).double()
            fine = fine & g.isfinite().all(1)
            g = torch.where(fine.unsqueeze(1), g, 0.0)
            return model.backward(phi, at, g[order].unsqueeze(2)), fine, info
        J = point.jacobian()[:, : point.M].double()
        fine = fine & J.isfinite().all(2).all(1)
        J = torch.where(fine[:, None, None], J, 0.0)
        all_of = model.backward(phi, at, J[order])
        G = torch.empty(len(F), point.M, point.M, dtype=F.dtype, device=F.device)
        G[order.flatten()] = model.gramian(at, all_of).flatten(0, 1)
        u, info = self.combine(F, G, w)
        if info.fail is not None:
            failed = info.fail & fine
            info = info._replace(fail=failed)
            fine = fine & ~failed
        u = torch.where(fine.unsqueeze(1), u, 0.0)[order].unsqueeze(2)
        return Backward(*(u @ part for part in all_of)), fine, info

    def _draws(
        self, seeds: Int[Tensor, " R"], order: Int[Tensor, "S K"], t: int, M: int
    ) -> Float[Tensor, "R M"]:
        """Preferences of the next points, on the host."""
        out = torch.empty(len(seeds), M, dtype=torch.float64)
        for mine in order:
            rng = generator(int(seeds[mine[0]]), use="pareto-set-preferences", step=t)
            drawn = rng.dirichlet(np.full(M, float(self.concentration)), len(mine)).clip(LEAST)
            out[mine] = torch.from_numpy(drawn / drawn.sum(1, keepdims=True))
        return out


def _groups(seeds: Int[Tensor, " R"]) -> Int[Tensor, "S K"]:
    """The runs of each seed.

    Raises:
        ConfigError: seeds have different numbers of runs.
    """
    keys, counts = seeds.unique(return_counts=True)
    if int(counts.min()) != int(counts.max()):
        raise ConfigError(
            f"The seeds have {counts.tolist()} runs; a model of the Pareto set needs equally many of each. "
            "Split a job by seeds, not by preferences."
        )
    return seeds.argsort(stable=True).view(len(keys), -1)


def _parts(phi: Float[Tensor, "S n"], order: Int[Tensor, "S K"]) -> Float[Tensor, "R share"]:
    """Parameters in equal parts, one with each run; the last is filled with zeros."""
    S, K = order.shape
    share = -(-phi.shape[1] // K)
    padded = torch.nn.functional.pad(phi, (0, K * share - phi.shape[1])).view(S * K, share)
    out = torch.empty_like(padded)
    out[order.flatten().to(phi.device)] = padded
    return out


def _whole(parts: Float[Tensor, "R share"], order: Int[Tensor, "S K"], n: int) -> Float[Tensor, "S n"]:
    """The inverse of `_parts`."""
    return parts[order].flatten(1)[:, :n]
