"""Beamforming with physical layer security:  f_i = -E R_i,  g_i = E C_i - C_th <= 0,  |W|_F^2 <= power."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.arrays import to_device
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.random import counter_normal, generator, seed_for
from mobench.core.sampled import Sampled
from mobench.core.sets import Ball, Set
from mobench.core.types import Real
from mobench.errors import ConfigError, choose

This = TypeVar("This", bound="PLS")  # beartype knows no typing.Self in methods


LN2 = math.log(2.0)
IDEALS = ("bound", "extremes")
# real numbers in the largest tensor of a Monte Carlo chunk: 16 MB, and about a dozen of them live
CHUNK = 2_000_000


@lru_cache(maxsize=256)
def _channels(seed: int, antennas: int, users: int) -> Float[Tensor, "1 C H"]:
    """[Re h, Im h] of h ~ CN(0, I), users first, then the eavesdropper; each keyed by its name."""
    h = []
    for channel in [*(f"user{i + 1}" for i in range(users)), "eavesdropper"]:
        rng = generator(seed, problem="pls", use="channel", channel=channel, antennas=antennas)
        h.append(rng.standard_normal(2 * antennas) / math.sqrt(2.0))
    with torch.inference_mode(False):
        return torch.from_numpy(np.stack(h)).unsqueeze(0)


@lru_cache(maxsize=2)
def _held_out(seed: int, samples: int, width: int) -> Float[Tensor, "1 B D"]:
    """Standard normal numbers for the evaluation set of `monte_carlo`."""
    with torch.inference_mode(False):
        key = torch.tensor([seed_for(seed, problem="pls", use="held out")])
        return counter_normal(key, "held out", 0, samples * width).view(1, samples, width)


class Systems(NamedTuple):
    """The S = 3m expectations E log(1 + Q) of the values: all users', the others', one user's to the spy."""

    channel: Int[Tensor, " S"]
    scale: Float[Tensor, "S m"]  # 1/sigma for the columns of W that count, else 0
    delta2: Float[Tensor, "S 1"]
    t: Float[Tensor, " T"]
    weight: Float[Tensor, " T"]
    eye: Float[Tensor, "m m"]


@lru_cache(maxsize=64)
def _systems(
    users: int,
    noises: tuple[float, float],
    errors: tuple[float, float],
    largest: float,
    step: float,
    dtype: torch.dtype,
    device: torch.device,
) -> Systems:
    """Nodes: the trapezoidal rule in log t, from where (t Q)^2 < 1e-12 for Q = `largest`,
    to where exp(-t) < 1e-14.
    """
    with torch.inference_mode(False):
        m = users
        eye = torch.eye(users, dtype=torch.float64)
        mask = torch.cat([torch.ones_like(eye), 1.0 - eye, eye])
        user = torch.arange(m)
        spy = torch.full((m,), m)
        sigma2 = torch.tensor([noises[0]] * 2 * m + [noises[1]] * m, dtype=torch.float64)
        delta = torch.tensor([errors[0]] * 2 * m + [errors[1]] * m, dtype=torch.float64)
        s = torch.arange(math.log(32.0), math.log(1e-6 / (1.0 + largest)), -step, dtype=torch.float64)
        t = s.exp()
        tensors = (
            mask / sigma2.sqrt().unsqueeze(1),
            delta.square().unsqueeze(1),
            t,
            step * torch.exp(-t),
            eye,
        )
        return Systems(
            torch.cat([user, user, spy]).to(device), *(v.to(device=device, dtype=dtype) for v in tensors)
        )


Solve = Callable[[Problem, int], Tensor]


@dataclass(frozen=True)
class Instances:
    """A problem on several channels, known by `key`: its settings and these channels."""

    key: tuple[str, bytes]
    problem: Problem = field(compare=False)
    count: int = field(compare=False)


@lru_cache(maxsize=64)
def _solved(solve: Solve, instances: Instances) -> Float[Tensor, "I M"]:
    """z of each instance, computed once in a process."""
    return solve(instances.problem, instances.count)


@dataclass(frozen=True, kw_only=True)
class PLS(Sampled):
    """Rates of m users against leakage to an eavesdropper, channels known up to an error: eqs. (16), (17).

        h_i = hhat_i + e_i,  h_e = hhat_e + e_e,   e ~ CN(0, delta^2 I): real and imaginary parts
            N(0, delta^2 / 2)
        q_il = |h_i^H w_l|^2,   R_i = log2(1 + q_ii / (sigma_i^2 + sum_{l != i} q_il)),   f_i = -E R_i
        C_i = log2(1 + |h_e^H w_i|^2 / sigma_e^2),   g_i = E C_i - C_th <= 0,   i = 1..m
        x = [Re w_1, ..., Re w_m, Im w_1, ..., Im w_m] in R^(2 n m), w_i in C^n;
            X = {|x|^2 <= power}, |x| = |W|_F
        rows of a sample: dq_il/dw_l = 2 (Re, Im)(h_i h_i^H w_l),
            dR_i/dq_il = (1/tot_i - [l != i]/int_i) / ln 2,
            tot_i = sigma_i^2 + sum_l q_il, int_i = tot_i - q_ii,   dC_i/dq = 1/((sigma_e^2 + q) ln 2)

    A sample is 2 n (m + 1) standard normal numbers, [Re e_1, Im e_1, ..., Re e_e, Im e_e] before their scale.
    The expectations are one integral each, for any n and m. For u = h^H W ~ CN(b, delta^2 G) with G = W^H W,

        E log(1 + |u|^2) = log(1 + Q) + int_0^inf exp(-t) (exp(-t Q) - M(t)) dt/t,   Q = E |u|^2,
        M(t) = E exp(-t |u|^2) = det(K)^-1 exp(-t b^H K^-1 b),   K = I + t delta^2 G,

    by the trapezoidal rule in log t, whose error falls exponentially; the first term takes what does not
    depend on the errors, and is all for delta = 0. Rows of the expectations come from automatic
    differentiation.

    Fields:
        antennas: n. users: m, the number of objectives and of constraints.
        noise: sigma_i^2 of every user. noise_eavesdropper: sigma_e^2.
        power: the largest |W|_F^2.
        error_user, error_eavesdropper: delta of the users' and of the eavesdropper's channels.
        leakage: C_th, bits; the same for every user.
        channel_seed: of hhat ~ CN(0, I), one instance for all runs; None: an instance per run, from its seed.
        ideal: z of the Tchebycheff value. "bound": -log2(1 + power |hhat_i|^2 / sigma_i^2), what user i would
            get alone with full power and no channel error; "extremes": the ends of runs with extreme
            preferences, as in the paper (`mobench.jobs.extremes`, once per instance and process, some
            seconds); or m numbers.

    Departure: the paper leaves hhat open; its sigma_e^2 is read as the eavesdropper's noise.
    """

    positive: ClassVar[bool] = False
    citation: ClassVar[str] = "Constrained stochastic multi-objective optimization (CSMOO), (16) and (17)"

    antennas: int = 2
    users: int = 2
    noise: Real = 1.0
    noise_eavesdropper: Real = 1.0
    power: Real = 5.0
    error_user: Real = 0.05
    error_eavesdropper: Real = 0.05
    leakage: Real = 0.4
    channel_seed: int | None = 0
    ideal: str | Sequence[Real] = "bound"
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "normal", "scale": 0.5})
    steps: int = 2000
    _hhat: Tensor | None = field(default=None, init=False, repr=False, compare=False)
    _solve: Solve | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("antennas", "users"):
            if getattr(self, name) < 1:
                raise ConfigError(f"problem.{name}={getattr(self, name)} must be at least 1.")
        for name in ("noise", "noise_eavesdropper", "power"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"problem.{name}={getattr(self, name)} must be > 0; it is a power.")
        for name in ("error_user", "error_eavesdropper"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"problem.{name}={getattr(self, name)} is the standard deviation of a channel error and "
                    "must be >= 0."
                )
        if not self.leakage >= 0.0:
            raise ConfigError(
                f"problem.leakage={self.leakage} leaves no feasible point: even without a signal the leakage "
                f"is 0. Choose problem.leakage >= 0."
            )
        if isinstance(self.ideal, str):
            choose("problem.ideal", self.ideal, IDEALS)
        else:
            object.__setattr__(self, "ideal", tuple(float(v) for v in self.ideal))
            if len(self.ideal) != self.users or not all(math.isfinite(v) for v in self.ideal):
                raise ConfigError(
                    f"problem.ideal={list(self.ideal)} must be {', '.join(map(repr, IDEALS))} or "
                    f"{self.users} finite numbers, one per user."
                )

    @property
    def n_objectives(self) -> int:
        return self.users

    @property
    def n_constraints(self) -> int:  # type: ignore[override]  # a constant of the class in most problems
        return self.users

    @property
    def dim(self) -> int:
        return 2 * self.antennas * self.users

    @property
    def n_samples(self) -> float:
        return math.inf

    @property
    def X(self) -> Set:
        return Ball(math.sqrt(self.power))

    @property
    def ref_point(self) -> tuple[float, ...]:
        """Rates 0, which W = 0 has: hypervolumes are those of the rates above the origin."""
        return (0.0,) * self.users

    # instances

    def bind(self: This, runs: Runs) -> This:
        """With channel_seed None, the run's seed makes its channels: all preferences of a seed share them."""
        if self.channel_seed is not None or self._hhat is not None:  # channels of `with_channels` stay
            return self
        h = [_channels(int(s), self.antennas, self.users) for s in runs.seeds]
        return self.with_channels(torch.cat(h).to(runs.seeds.device))

    def with_channels(self: This, h: Float[Tensor, "I C H"]) -> This:
        """The same problem on channels [Re hhat, Im hhat], users first, of one instance or of each run."""
        if h.shape[1:] != (self.users + 1, 2 * self.antennas):
            raise ConfigError(
                f"The channels have shape {tuple(h.shape)}, but expected (I, users + 1, 2 antennas) = "
                f"(I, {self.users + 1}, {2 * self.antennas})."
            )
        other = copy.copy(self)
        object.__setattr__(other, "_hhat", h)
        return other

    @property
    def channels(self) -> Float[Tensor, "I C H"]:
        """[Re hhat, Im hhat] of the users, then of the eavesdropper, float64; I = 1 or the number of runs."""
        if self._hhat is not None:
            return self._hhat
        if self.channel_seed is None:
            raise ConfigError("problem.channel_seed=null draws channels for each run; call bind(runs) first.")
        return _channels(self.channel_seed, self.antennas, self.users)

    def _channels_for(self, x: Float[Tensor, "R P"]) -> Float[Tensor, "I C H"]:
        h = self.channels
        if len(h) not in (1, len(x)):
            raise ConfigError(
                f"The problem is bound to {len(h)} runs, but values of {len(x)} were requested; bind it "
                "again."
            )
        return to_device(h.to(x.dtype), x.device)

    @property
    def ideal_point(self) -> Tensor:
        """(M,), or (R, M) where every run has its own channels."""
        if not isinstance(self.ideal, str):
            return torch.tensor(self.ideal, dtype=torch.float64)
        if self.ideal == "extremes":
            z = self._extremes()
            return z if self.channel_seed is None else z.squeeze(0)
        h = self.channels[:, : self.users].cpu()
        z = -torch.log2(1.0 + (self.power / self.noise) * torch.linalg.vecdot(h, h))
        return z if self.channel_seed is None else z.squeeze(0)

    def with_ideal_by(self: This, solve: Solve) -> This:
        """The same problem; with ideal="extremes" `solve` finds its ideal point.

        The arguments of `solve` are the problem, bound to m runs of each of I instances in turn, and I.
        """
        other = copy.copy(self)
        object.__setattr__(other, "_solve", solve)
        return other

    def _extremes(self) -> Float[Tensor, "I M"]:
        if self._solve is None:
            raise ConfigError(
                "problem.ideal=extremes is computed by runs of CSMOO-2, which a job adds: use "
                "make_job(config).problem, or problem.with_ideal_by(mobench.jobs.extremes.extreme_values)."
            )
        h = self.channels.cpu()
        shared = replace(self, ideal="bound")
        different, which = torch.unique(h, dim=0, return_inverse=True)
        several = shared.with_channels(different.repeat_interleave(self.users, 0))
        key = (repr(shared), different.numpy().tobytes())
        return _solved(self._solve, Instances(key, several, len(different)))[which]

    # samples

    def draw(self, keys: Int[Tensor, " R"], stream: str, t: int, size: int) -> Float[Tensor, "R B D"]:
        """Standard normal numbers, D = 2 n (m + 1) for each sample, float64."""
        width = 2 * self.antennas * (self.users + 1)
        return counter_normal(keys, stream, t, size * width).view(len(keys), size, width)

    def values(
        self, x: Float[Tensor, "R P"], batch: Float[Tensor, "R2 B D"] | None = None
    ) -> Float[Tensor, "R K"]:
        if batch is None:
            return self._expected(x)
        signal, interference, leak, _ = self._sampled(x, batch)
        return self._stack(torch.log1p(signal / interference).mean(1), torch.log1p(leak / self._spy).mean(1))

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Float[Tensor, "R B D"] | None = None
    ) -> tuple[Float[Tensor, "R K"], Callable[[], Tensor]] | None:
        """Closed form of a sample; None for the expectations."""
        if batch is None:
            return None
        signal, interference, leak, (a, re, im) = self._sampled(x, batch)
        V = self._stack(torch.log1p(signal / interference).mean(1), torch.log1p(leak / self._spy).mean(1))
        m = self.users
        n = self.antennas

        def rows() -> Float[Tensor, "R K P"]:
            R = len(x)
            B = batch.shape[1]
            eye = torch.eye(m, dtype=x.dtype, device=x.device)
            # d(value)/dq, with the 2 of dq and the mean over the batch: users (R, B, i, l), eavesdropper
            # (R, B, l)
            by_total = (1.0 / (signal + interference)).unsqueeze(-1)
            factor = 2.0 / (B * LN2)
            user = (((1.0 - eye) / interference.unsqueeze(-1)) - by_total) * factor
            spy = factor / (self._spy + leak)
            # sum over the batch of (coefficient) x (h h^H w) as [Re, Im]: re a + im (i a), i
            # a = [-Im h, Re h]
            h = a[:, :, :m].transpose(1, 2)
            parts = [(user * z[:, :, :m]).permute(0, 2, 3, 1) @ h for z in (re, im)]
            of_users = parts[0] + _times_i(parts[1], n)
            parts = [(spy * z[:, :, m]).mT @ a[:, :, m] for z in (re, im)]
            of_spy = (parts[0] + _times_i(parts[1], n)).unsqueeze(2) * eye.unsqueeze(-1)
            J = torch.cat([of_users, of_spy], 1).view(R, 2 * m, m, 2, n)
            return J.transpose(2, 3).reshape(R, 2 * m, 2 * m * n)

        return V, rows

    @property
    def _spy(self) -> float:
        return float(self.noise_eavesdropper)

    def _stack(self, R: Float[Tensor, "*R m"], C: Float[Tensor, "*R m"]) -> Float[Tensor, "*R K"]:
        """Values from the two kinds of logarithms (natural)."""
        return torch.cat([R / -LN2, C / LN2 - self.leakage], -1)

    def _sampled(
        self, x: Float[Tensor, "R P"], batch: Float[Tensor, "R2 B D"]
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
        """q_ii, sigma_i^2 + sum_{l != i} q_il, q_el (R, B, m); h (R, B, m+1, 2n), h^H w (R, B, m+1, m)."""
        m = self.users
        n = self.antennas
        R = len(x)
        B = batch.shape[1]
        half = math.sqrt(0.5)
        delta = [half * self.error_user] * m + [half * self.error_eavesdropper]
        e = batch.to(x.dtype).reshape(len(batch), B, m + 1, 2 * n)
        scale = to_device(torch.tensor(delta, dtype=e.dtype), e.device).unsqueeze(-1)
        a = self._channels_for(x).unsqueeze(1) + e * scale
        w = x.reshape(R, 2, m, n).transpose(1, 2).reshape(R, m, 2 * n)
        # h^H w = [Re h, Im h].[Re w, Im w] + i [Re h, Im h].[Im w, -Re w]
        both = torch.cat([w, -_times_i(w, n)], 1)
        product = torch.matmul(a.reshape(len(a), B * (m + 1), 2 * n), both.mT).view(R, B, m + 1, 2 * m)
        re = product[..., :m]
        im = product[..., m:]
        q = re * re + im * im
        users = q[:, :, :m]
        signal = torch.diagonal(users, dim1=-2, dim2=-1)
        others = 1.0 - torch.eye(m, dtype=x.dtype, device=x.device)
        return signal, self.noise + (users * others).sum(-1), q[:, :, m], (a, re, im)

    # expectations

    def _expected(self, x: Float[Tensor, "R P"], step: float = 0.35) -> Float[Tensor, "R K"]:
        """By the integral of the class docstring; `step` of the trapezoidal rule in log t."""
        m = self.users
        n = self.antennas
        R = len(x)
        noises = (float(self.noise), float(self.noise_eavesdropper))
        errors = (float(self.error_user), float(self.error_eavesdropper))
        largest = 10.0 * n * float(self.power) / min(noises)
        y = _systems(m, noises, errors, largest, step, x.dtype, x.device)
        W = torch.complex(*x.reshape(R, 2, m, n).unbind(1))
        h = torch.complex(*self._channels_for(x).reshape(-1, m + 1, 2, n).unbind(2))
        G = (W.conj() @ W.mT).unsqueeze(1) * (y.scale.unsqueeze(-1) * y.scale.unsqueeze(-2))
        b = (h @ W.mH)[:, y.channel] * y.scale
        Q = (b.real.square() + b.imag.square()).sum(-1) + y.delta2.squeeze(-1) * G.diagonal(
            0, -2, -1
        ).real.sum(-1)
        tau = (y.delta2 * y.t)[..., None, None]
        log_det, form = _eliminate(y.eye + tau * G.unsqueeze(2), b.unsqueeze(2))
        rest = torch.exp(-y.t * Q.unsqueeze(-1)) - torch.exp(-y.t * form - log_det)
        E = (torch.log1p(Q) + rest @ y.weight).view(R, 3, m)
        return self._stack(E[:, 0] - E[:, 1], E[:, 2])

    def monte_carlo(
        self, x: Float[Tensor, "R P"], samples: int = 150_000, seed: int = 0
    ) -> tuple[Float[Tensor, "R K"], Float[Tensor, "R K"]]:
        """Means over a held-out set that all runs share, and their standard errors; in chunks."""
        if samples < 2:
            raise ConfigError(f"samples={samples} is too small; a standard error needs at least 2.")
        noise = _held_out(seed, samples, 2 * self.antennas * (self.users + 1)).to(x.device)
        per_sample = len(x) * (self.users + 1) * 2 * max(self.users, self.antennas)
        first = second = torch.zeros(len(x), 2 * self.users, dtype=torch.float64, device=x.device)
        for part in noise.split(max(1, CHUNK // per_sample), 1):
            signal, interference, leak, _ = self._sampled(x, part)
            V = self._stack(torch.log1p(signal / interference), torch.log1p(leak / self._spy)).double()
            first = first + V.sum(1)
            second = second + V.square().sum(1)
        mean = first / samples
        variance = (second / samples - mean.square()).clamp_min(0.0)
        return mean.to(x.dtype), (variance / (samples - 1)).sqrt().to(x.dtype)

    # what is reported

    def rates(self, values: Float[Tensor, "R K"]) -> Float[Tensor, "R m"]:
        """R_i, bits per use, from values."""
        return -values[:, : self.users]

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        """power: |W|_F^2."""
        return {"power": torch.linalg.vecdot(x, x)}


def _times_i(z: Float[Tensor, "*R H"], n: int) -> Float[Tensor, "*R H"]:
    """i z for z = [Re, Im]."""
    return torch.cat([-z[..., n:], z[..., :n]], -1)


def _eliminate(K: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """log det K and b^H K^-1 b of Hermitian positive definite K (..., m, m), by m rank-one eliminations.

    Differentiable, without pivots, and all systems at once: m is small.
    """
    log_det = form = torch.zeros((), dtype=K.real.dtype, device=K.device)
    while K.shape[-1]:
        pivot = K[..., 0, 0].real
        log_det = log_det + torch.log(pivot)
        form = form + (b[..., 0].real.square() + b[..., 0].imag.square()) / pivot
        column = K[..., 1:, 0] / pivot.unsqueeze(-1)
        K = K[..., 1:, 1:] - column.unsqueeze(-1) * K[..., :1, 1:]
        b = b[..., 1:] - column * b[..., :1]
    return log_det, form
