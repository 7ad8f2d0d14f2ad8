"""An aggregator of TorchJD by its name:  d = -A(J),  or  d = -J^T w  where it weighs gradients."""

from __future__ import annotations

import importlib.util
import inspect
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from mobench.core.algorithm import Algorithm, Context, Info, State, Step, combined
from mobench.core.oracle import Spec
from mobench.core.point import Point
from mobench.core.random import seed_for
from mobench.errors import ConfigError, MobenchError, choose
from mobench.subproblems.dual_cone import dual_cone

ABSTRACT = {"Aggregator", "WeightedAggregator", "GramianWeightedAggregator", "Weighting"}
UNFIT = {
    "NashMTL": "it keeps a CVXPY problem in itself, which no checkpoint can hold; use algorithm=nash_mtl",
    "CRMOGMWeighting": "it takes another weighting, which has no name in a configuration",
}
HEADER = 8  # bytes of a length


@dataclass(frozen=True, kw_only=True)
class TorchJD(Algorithm):
    """A method of TorchJD, as that package computes it: not batched, one run after the other.

    Aggregators that weigh gradients get the Gram matrix in float64, the others the Jacobian. What an
    aggregator remembers between steps is kept per run with the state of the job, so that a job continues as
    if it had not stopped. Random numbers of an aggregator are a function of the run's seed and the step: a
    run is the same alone and in a batch.

    Fields:
        name: of a class in `torchjd.aggregation` (`UPGradWeighting` is the same as `UPGrad`).
        options: of its constructor; lists of numbers become tensors. n_tasks is M where it is asked for.
        mixture: the preference vector of those that take one: 1/M ("mean", theirs) or the run's preference.
        projector: who solves the quadratic programs of UPGrad and DualProj: "exact", this package's solver,
            or "quadprog", TorchJD's default, which adds 1e-4 to the diagonal of the normalised Gram matrix
            and needs quadprog, whose licence is the GPL.

    Raises:
        ConfigError: TorchJD, or a package that the aggregator needs, is not installed; the name is unknown;
            options that the constructor does not take.
        MobenchError: from `step`: the aggregator fails.

    Source: https://torchjd.org (Quinton and Rey 2024 and the papers that it names).
    """

    citation: ClassVar[str] = "TorchJD: Quinton and Rey 2024"

    name: str = "UPGrad"
    options: Mapping[str, Any] = field(default_factory=dict)
    mixture: str = "mean"
    projector: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("algorithm.mixture", self.mixture, ("mean", "preference"))
        choose("algorithm.projector", self.projector, ("exact", "quadprog"))
        found = names()
        if self.name in UNFIT:
            raise ConfigError(f"algorithm.name={self.name} cannot be used: {UNFIT[self.name]}.")
        choose("algorithm.name", self.name, found)
        object.__setattr__(self, "options", dict(self.options))
        takes = set(inspect.signature(found[self.name]).parameters) - {"projector"}
        for key in self.options:
            choose("algorithm.options", key, sorted(takes))
        if self.mixture == "preference" and "pref_vector" not in takes:
            raise ConfigError(
                f"algorithm.mixture=preference: {self.name} takes no preference vector; set it to mean."
            )
        self._made(torch.full((2,), 0.5, dtype=torch.float64))  # a mistake is found here

    def needs(self, spec: Spec) -> frozenset[str]:
        return frozenset({"jacobian"})

    def init(self, ctx: Context) -> State:
        R = ctx.spec.R
        seeds = torch.zeros(R, dtype=torch.int64) if ctx.seeds is None else ctx.seeds.clone()
        state: State = {"w": ctx.prefs, "seed": seeds.to(ctx.prefs.device)}
        if _stateful(self._made(ctx.prefs[0])):
            state["memory"] = _packed([{}] * R)
        return state

    def step(
        self, points: tuple[Point, ...], state: State, t: int, alpha: Step
    ) -> tuple[Float[Tensor, "R P"], State, Info]:
        from torchjd import aggregation as jd

        point = points[0]
        J = point.jacobian("f")
        R = len(J)
        cls = names()[self.name]
        ofgram = issubclass(cls, jd.GramianWeightedAggregator | jd.Weighting)
        G = point.gramian("f") if ofgram else None  # J_1 J_2^T of one sample
        memories = _unpacked(state["memory"]) if "memory" in state else None
        weights: list[Tensor] = []
        rows: list[Tensor] = []
        weighs = issubclass(cls, jd.GramianWeightedAggregator | jd.WeightedAggregator | jd.Weighting)
        finite = J.isfinite().flatten(1).all(1).tolist()
        for r in range(R):
            if not finite[r]:  # some aggregators raise, which would cost the other runs
                (weights if weighs else rows).append(J.new_full((J.shape[1 if weighs else 2],), torch.nan))
                continue
            made = self._made(state["w"][r])
            if memories is not None:
                _restore(made, memories[r])
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed_for(int(state["seed"][r]), stream="torchjd", step=t))
                try:
                    if isinstance(made, jd.GramianWeightedAggregator):
                        assert G is not None
                        weights.append(made.gramian_weighting(G[r]))
                    elif isinstance(made, jd.WeightedAggregator):
                        weights.append(made.weighting(J[r]))
                    elif isinstance(made, jd.Weighting):
                        assert G is not None
                        weights.append(made(G[r]))
                    else:
                        rows.append(made(J[r]))
                except (ValueError, RuntimeError, ArithmeticError) as error:
                    raise MobenchError(
                        f"TorchJD's {self.name} failed in step {t}: {type(error).__name__}: {error}"
                    ) from error
            if memories is not None:
                memories[r] = _memory(made)
        if memories is not None:
            state = {**state, "memory": _packed(memories)}
        d = -torch.stack(rows) if rows else combined(point, -torch.stack(weights), G, "f")
        return d, state, Info()

    def _made(self, w: Float[Tensor, " M"]) -> Any:
        """The aggregator of a run with this preference."""
        cls = names()[self.name]
        takes = inspect.signature(cls).parameters
        given = {key: _value(value) for key, value in self.options.items()}
        if "n_tasks" in takes:
            given.setdefault("n_tasks", len(w))
        if self.mixture == "preference":
            given["pref_vector"] = w
        try:
            if "projector" in takes and self.projector == "exact":
                given["projector"] = _exact()
            return cls(**given)
        except (TypeError, ValueError, ImportError) as error:
            raise ConfigError(
                f"algorithm.name={self.name} with algorithm.options={dict(self.options)}: {error}"
            ) from error


def names() -> dict[str, type]:
    """TorchJD's aggregators, and its weightings, by name.

    Raises:
        ConfigError: TorchJD is not installed.
    """
    if importlib.util.find_spec("torchjd") is None:
        raise ConfigError(
            "algorithm=torchjd needs TorchJD, which is not installed; use pip install '.[torchjd]'."
        )
    from torchjd import aggregation

    found = {
        name: getattr(aggregation, name) for name in aggregation.__all__ if name not in ABSTRACT | {*UNFIT}
    }
    # a weighting and the aggregator that applies it are one method
    return {name: found.get(name.removesuffix("Weighting"), cls) for name, cls in found.items()}


def _exact() -> Any:
    """TorchJD's interface to this package's projection onto the dual cone."""
    from torchjd.linalg import DualConeProjector

    class Exact(DualConeProjector):
        def __call__(self, U: Tensor, G: Tensor) -> Tensor:
            rows = U.reshape(1, -1, U.shape[-1])
            found, _, failed, _ = dual_cone(G.unsqueeze(0), rows)
            if bool(failed.any()):
                raise ValueError("the projection onto the dual cone could not be certified")
            return found.reshape(U.shape)

    return Exact()


def _value(given: Any) -> Any:
    """A list of numbers as a tensor."""
    if isinstance(given, list | tuple) and all(isinstance(x, int | float) for x in given):
        return torch.tensor(given, dtype=torch.float64)
    return given


def _stateful(made: torch.nn.Module) -> bool:
    return any(hasattr(module, "reset") for module in made.modules())


def _memory(made: torch.nn.Module) -> dict[str, Any]:
    """What an aggregator remembers: the attributes of its parts that can be reset."""
    own = set(vars(torch.nn.Module()))
    return {
        f"{name}.{key}": value
        for name, module in made.named_modules()
        if hasattr(module, "reset")
        for key, value in {**vars(module), **module._buffers}.items()
        if key not in own
    }


def _restore(made: torch.nn.Module, memory: Mapping[str, Any]) -> None:
    parts = dict(made.named_modules())
    for key, value in memory.items():
        name, _, attribute = key.rpartition(".")
        setattr(parts[name], attribute, value)


def _packed(memories: list[Any]) -> UInt8[Tensor, "R n"]:
    """Memories as rows of bytes, each behind its length."""
    parts = []
    for memory in memories:
        buffer = io.BytesIO()
        torch.save(memory, buffer)
        parts.append(buffer.getvalue())
    out = torch.zeros(len(parts), HEADER + max(len(part) for part in parts), dtype=torch.uint8)
    for row, part in zip(out, parts, strict=True):
        whole = len(part).to_bytes(HEADER, "little") + part
        row[: len(whole)] = torch.frombuffer(bytearray(whole), dtype=torch.uint8)
    return out


def _unpacked(rows: UInt8[Tensor, "R n"]) -> list[Any]:
    found = []
    for row in rows.cpu():
        whole = row.numpy().tobytes()
        size = int.from_bytes(whole[:HEADER], "little")
        # no code runs when a checkpoint is read
        found.append(torch.load(io.BytesIO(whole[HEADER : HEADER + size]), weights_only=True))
    return found
