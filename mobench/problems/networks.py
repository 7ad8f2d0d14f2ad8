"""Losses of any torch.nn.Module on a user's data; `mobench.networks` makes them.

f_m(theta) = loss_m(module(data; theta), data),   g_n(theta) = constraint_n(f);   in a step of a batch
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mobench.core.cache import Cache, Cached
from mobench.core.preferences import Runs
from mobench.core.random import salted, seed_for
from mobench.core.sampled import Batch, BatchGradients
from mobench.core.served import served, source
from mobench.core.sets import Box, Free, Set
from mobench.core.types import check_dense, check_real
from mobench.data.tables import Table
from mobench.errors import ConfigError, choose
from mobench.models import seeded, stacked
from mobench.models.in_parts import ApartError, InParts, Joints
from mobench.models.optimized import Recipe, TorchStepper
from mobench.models.stacked import WAYS, Constants, Forward, Layout, Scored, Tree, cast, leaves, mapped
from mobench.problems import samples
from mobench.problems.probe import check_entries, check_unchanged, trying

EVALUATED = 256
"""Samples of a forward pass in evaluation."""
PROBED = 4
"""Samples with which a module is tried before a job; more where these have no finite losses."""
PAIRED = 16
"""Samples whose outputs are compared with those of their halves."""
TRIED = 2**27
"""Losses and measures are tried before a job unless the outputs of all samples have more numbers."""
HELD = 2**24
"""Outputs of all samples are held for so many runs at once that they have at most so many numbers."""
FEW_NUMBERS = 2**15
"""Numbers of a batch up to which convolutions of all runs at once are faster on a CPU than run by run.

With ten networks 1.5 to 7 times for 1,000 to 18,000, equally fast for 25,000 to 49,000, half as fast for
200,000.
"""
TYPES = (torch.float32, torch.float64)

This = TypeVar("This", bound="Networks")  # beartype knows no typing.Self in methods
Function = Callable[[Any, Any], Any]  # (outputs, batch) -> a number, or a vector of losses


@dataclass(frozen=True)
class Parts:
    """One module in its three uses.

    Attributes:
        training: as the user made it, but its batch normalisations keep no running statistics, which training
            does not use.
        evaluation: after `eval()`.
        counting: as evaluation, but batch normalisations use the statistics of a batch, and keep the plain
            mean of those of all batches.
        statistics: names of their running means and variances.
    """

    training: nn.Module
    evaluation: nn.Module
    counting: nn.Module
    statistics: tuple[str, ...]

    @staticmethod
    def of(module: nn.Module) -> Parts:
        evaluation = copy.deepcopy(module).eval()
        counting = copy.deepcopy(evaluation)
        normalisations = stacked.normalisations(module)
        for name in normalisations:
            norm = counting.get_submodule(name)
            norm.train()
            norm.momentum = None  # type: ignore[assignment]
        ends = ("running_mean", "running_var", "num_batches_tracked")
        names = tuple(f"{name}.{end}".lstrip(".") for name in normalisations for end in ends)
        for norm in normalisations.values():
            norm.track_running_stats = False
        return Parts(module, evaluation, counting, names)


@dataclass(frozen=True)
class Probe:
    """The properties of a module, measured on a few samples.

    Attributes:
        losses, constraints: M and N.
        training, evaluation: why it cannot be batched there; "" if it can.
        pictures: whether it has kernels of two dimensions.
        lowest: the smallest loss of these samples.
        joints: how outputs of parts of the data become those of all; None: all samples at once.
    """

    layout: Layout
    dtype: torch.dtype
    losses: int
    constraints: int
    training: str
    evaluation: str
    pictures: bool
    lowest: float
    joints: Joints | None


@dataclass(frozen=True, eq=False)
class Definition:
    """The arguments of `mobench.networks`."""

    make: Callable[[], nn.Module]
    losses: tuple[Function, ...]
    data: Table
    forward: Forward
    constraints: tuple[Callable[[Tensor], Tensor], ...] = ()
    validation: Table | None = None
    measures: Mapping[str, Function] = field(default_factory=dict)
    starts: tuple[Mapping[str, Tensor], ...] = ()
    stop: Callable[[Any], Any] | None = None
    callback: Callable[[int, Any], object] | None = None
    recipe: Recipe | None = None
    keep: str | None = None
    patience: int | None = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Returns everything that determines the results."""
        tables = [None if t is None else t.tree for t in (self.data, self.validation)]
        functions = (self.make, self.losses, self.forward, self.constraints, dict(self.measures), self.stop)
        parts = (*functions, [dict(start) for start in self.starts], *tables)
        # jobs without the following parts keep the names that they had before these existed
        parts = (*parts, "drop_last") if self.data.drop_last else parts
        if self.recipe is not None:
            parts = (*parts, "optimizer", self.recipe.optimizer, self.recipe.schedule, self.recipe.clip)
        return parts if self.keep is None else (*parts, "keep", self.keep, self.patience)

    def source(self) -> list[str]:
        """Text of each function; for a reader of the rows."""
        recipe = [] if self.recipe is None else [self.recipe.optimizer, self.recipe.schedule]
        functions = [*self.losses, self.forward, *self.constraints, *self.measures.values(), *recipe]
        return source([self.make, *(fn for fn in functions if fn is not None)])

    def module(self, seed: int, start: int = 0) -> nn.Module:
        """The module of a seed, as a run begins with it.

        Args:
            seed: of PyTorch's generator while it is made.
            start: which of the starts, if there are any.

        Raises:
            ConfigError: nothing was made that can be trained, or a start does not fit it.
        """
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False):
            torch.manual_seed(seed)
            module = self.make()
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"module() returned {type(module).__name__}; expected a torch.nn.Module. Give a function "
                "that makes one, such as lambda: MyNetwork(width=64)."
            )
        if self.starts:
            for name, p in module.state_dict().items():
                value = self.starts[start].get(name)
                if isinstance(value, Tensor) and isinstance(p, Tensor) and not p.is_complex():
                    check_real(f"{name} of start", value, None)
            try:
                module.load_state_dict(self.starts[start])
            except RuntimeError as error:
                raise ConfigError(f"start is no state dict of this module: {error}") from error
        return module

    def head(self, outputs: Tree, batch: Tree) -> Float[Tensor, " K"]:
        """All losses of a batch."""
        return self._row("losses", self.losses, outputs, batch)

    def constrained(self, outputs: Tree, batch: Tree) -> Float[Tensor, " K"]:
        """All losses and constraints of a batch."""
        return self.appended(self.head(outputs, batch))

    def measured(self, outputs: Tree, batch: Tree) -> Float[Tensor, " k"]:
        """All losses and measures of a batch."""
        F = self.head(outputs, batch)
        if not self.measures:
            return F
        values = [self._row(name, (fn,), outputs, batch) for name, fn in self.measures.items()]
        for name, value in zip(self.measures, values, strict=True):
            if len(value) != 1:
                raise ConfigError(f"The measure {name!r} returns {len(value)} numbers; expected one.")
        return torch.cat([F, *(value.to(F) for value in values)])

    def appended(self, F: Float[Tensor, " M"]) -> Float[Tensor, " K"]:
        """Losses and the constraints on them."""
        if not self.constraints:
            return F
        values = [torch.atleast_1d(torch.as_tensor(g(F))) for g in self.constraints]
        for value in values:
            check_real("A constraint", value, None)
        return torch.cat([F, *(value.to(F) for value in values)])

    @staticmethod
    def _row(what: str, functions: Sequence[Function], outputs: Tree, batch: Tree) -> Tensor:
        values = [fn(outputs, batch) for fn in functions]
        # a float of Python has more digits than torch's default type
        tensors = [torch.as_tensor(v, dtype=torch.float64 if isinstance(v, float) else None) for v in values]
        if any(value.ndim > 1 for value in tensors):
            shapes = ", ".join(str(tuple(value.shape)) for value in tensors)
            raise ConfigError(
                f"{what} return the shapes {shapes}; expected one number for each function, or a vector of "
                "all losses: the loss of the whole batch."
            )
        for value in tensors:
            check_real(f"A value of {what}", value, None)
        # float32 at least: autocast may give the losses half precision, in which sums overflow
        dtype = torch.promote_types(tensors[0].dtype, torch.float32)
        return torch.cat([torch.atleast_1d(value).to(tensors[0].device, dtype) for value in tensors])

    @cached_property
    def probe(self) -> Probe:
        """Tries the module on a few samples, and losses and measures on all.

        Raises:
            ConfigError: it cannot be trained here; with the reason and what to do.
        """
        return self._trial.probe()

    @cached_property
    def _trial(self) -> _Trial:
        return _Trial(self)

    def unfit_batch(self, size: int) -> str:
        """Says why a step cannot have a batch of so many samples; "" if it can."""
        return "" if size > EVALUATED else self._trial.unfit(size)


class _Trial:
    """Two networks on a few samples, on the CPU, in the type of the module."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        modules = [definition.module(seed) for seed in (0, 1)]
        self._check_parameters(modules[0])
        self.layout = Layout.of(modules[0])
        again = definition.module(0)
        if not all(
            torch.equal(a, b) for a, b in zip(modules[0].parameters(), again.parameters(), strict=True)
        ):
            raise ConfigError(
                "module() makes another network at the same seed of torch's generator. Draw initial values "
                "by torch's functions, without a generator of their own."
            )
        rows = [self.layout.flat(dict(module.named_parameters())) for module in modules]
        self.dtype = next(p.dtype for p in modules[0].parameters() if p.requires_grad)
        self.theta = torch.stack(rows).to(self.dtype)
        self.fixed = Constants.of(modules, [0, 1], self.theta)
        self.parts = Parts.of(modules[0])
        self.keys = torch.tensor([seed_for(seed, use="probe") for seed in (0, 1)])
        self.batch = self._some(definition.data, PROBED)
        self.losses = 0

    def _some(self, table: Table, n: int) -> Tree:
        """n samples, evenly spaced: data may be sorted by class, or by whether they have a label."""
        chosen = torch.linspace(0, table.size - 1, min(n, table.size)).round().long()
        return mapped(lambda t: cast(t[chosen], self.theta), table.tree)

    @staticmethod
    def _check_parameters(module: nn.Module) -> None:
        lazy = [n for n, p in module.named_parameters() if is_lazy(p)]
        if lazy:
            raise ConfigError(
                f"{', '.join(lazy)} has no shape yet (a lazy layer). Call the module once inside of "
                "module(), or name the sizes."
            )
        for name, t in (*module.named_parameters(), *module.named_buffers()):
            check_dense(name, t, "give the module .to_dense()")
            if t.requires_grad:
                check_real(name, t, None)
        kinds = {p.dtype for p in module.parameters() if p.requires_grad}
        if not kinds:
            raise ConfigError("The module has no trainable parameter (requires_grad).")
        if len(kinds) > 1 or not kinds <= set(TYPES):
            raise ConfigError(
                f"The parameters are of type {', '.join(sorted(map(str, kinds)))}; expected all of "
                "torch.float32 or all of torch.float64 (module.float()). For products in half precision use "
                "torch.autocast in forward=."
            )

    def probe(self) -> Probe:
        self.losses, draws = self._training()
        # constraints are functions of the losses, which need no network
        total = len(self.definition.appended(torch.ones(self.losses, dtype=self.dtype)))
        if self.definition.recipe is not None:
            self.definition.recipe.check(self.layout, self.theta)
        scored = Scored(self.parts.training, self.definition.forward, self.definition.constrained)
        training = "it draws random numbers" if draws else ""
        training = training or self._apart("training", lambda way: self._values(way, scored))
        joints = self._joints()
        evaluation = self._evaluation(joints)
        kernels = any(len(shape) == 4 for shape in self.layout.shapes)
        return Probe(
            self.layout,
            self.dtype,
            self.losses,
            total - self.losses,
            training,
            evaluation,
            kernels,
            self.lowest,
            joints,
        )

    def _values(self, way: str, scored: Scored) -> tuple[Tensor, Tensor]:
        """Values of both networks in training and the gradients of their sum."""
        leaf = self.theta.clone().requires_grad_(True)
        with torch.enable_grad():
            out = stacked.values(scored, self.layout, leaf, self.fixed, self.batch, way, self.keys)
            if not out.requires_grad:
                return out, torch.zeros_like(leaf)
            (slope,) = torch.autograd.grad(out.sum(), leaf)
        return out.detach(), slope

    def _training(self) -> tuple[int, bool]:
        """Number of losses, and whether anything is drawn."""
        scored = Scored(self.parts.training, self.definition.forward, self.definition.head)
        out, leaf = self._first(scored)
        self._check_gradients(scored, out, leaf)
        again = self._once(scored, self.keys)
        if not _near(out.detach(), again):  # kernels without a graph may round in another way
            raise ConfigError(
                "Two equal forward passes differ; a network must not keep a state between them."
            )
        return out.shape[1], not torch.equal(again, self._once(scored, self.keys + 1))

    def _first(self, scored: Scored) -> tuple[Tensor, Tensor]:
        """Losses of as few samples as they can be computed of, and the parameters of their graph.

        A few samples may have no label of a task, or be fewer than a loss ranks.
        """
        refused: ConfigError | None = None
        most = min(self.definition.data.size, EVALUATED)
        n = PROBED
        while True:
            try:
                return self._differentiable(scored)
            except _TooFewError as error:
                refused = refused or error
            if n >= most:
                raise ConfigError(str(refused)) from refused.__cause__
            n *= 2
            self.batch = self._some(self.definition.data, min(n, most))

    def _differentiable(self, scored: Scored) -> tuple[Tensor, Tensor]:
        tensors = leaves(self.batch)
        versions = [t._version for t in tensors]
        before = seeded.generators()
        shapes = ", ".join(f"{tuple(t.shape)} {t.dtype}" for t in tensors)
        advice = (
            "The module is called with the first part of the batch (forward= changes that), and each loss as "
            "loss(outputs, batch) with the whole batch: lambda outputs, batch: loss(outputs, batch[1])."
        )
        with trying(f"The module or a loss fails on a batch of {shapes}", advice, _TooFewError):
            leaf = self.theta.clone().requires_grad_(True)
            with torch.enable_grad():
                out = stacked.values(scored, self.layout, leaf, self.fixed, self.batch, "loop", self.keys)
        if seeded.moved(before):
            raise ConfigError(
                "The module or a loss draws numbers of Python's random or of NumPy, which belong to no run: "
                "a job could not be resumed, and a run would differ alone and in a batch. Draw with torch."
            )
        check_unchanged(versions, tensors)
        if not bool(out.isfinite().all()):
            raise _TooFewError(
                f"The losses at the start are {out.detach().tolist()}; expected finite numbers."
            )
        return out, leaf

    # evaluation: losses and measures of all samples, outputs of a few

    def _joints(self) -> Joints | None:
        """Compares the outputs of some samples with those of their halves, after `eval()`."""
        n = min(PAIRED, self.definition.data.size)
        some = self._some(self.definition.data, n)
        halves = [mapped(operator.itemgetter(part), some) for part in (slice(n // 2), slice(n // 2, n))]
        collected: list[Tree] = []

        def collect(outputs: Tree, batch: Tree) -> Tensor:
            collected.append(outputs)
            return self.theta.new_zeros(1)

        scored = Scored(self.parts.evaluation, self.definition.forward, collect)
        self._after_eval(scored, some, f"{n} samples")
        if n == 1:
            return None
        try:
            for part in halves:
                self._after_eval(scored, part, "half of them")
            return Joints.of(collected[0], [collected[2], collected[4]], n)  # of the first of two networks
        except (ApartError, ConfigError):
            return None

    def _evaluation(self, joints: Joints | None) -> str:
        """Why runs cannot be batched in evaluation.

        Raises:
            ConfigError: losses or measures of all samples cannot be computed.
        """
        definition = self.definition
        reason = ""
        for name, table in (("data", definition.data), ("validation", definition.validation)):
            if table is None or (joints is not None and joints.width * table.size > TRIED):
                continue
            measured = definition.validation is None or name == "validation"
            samples = mapped(lambda t: cast(t, self.theta), table.tree)
            forward = definition.forward
            if joints is not None and table.size > PAIRED:
                forward = self._repeated(joints, table)
            head = definition.measured if measured else definition.head
            scored = Scored(self.parts.evaluation, forward, head)
            what = f"all {table.size} samples of {name}"
            values = self._after_eval(scored, samples, what)
            self._check_losses(what, values, len(definition.measures) if measured else 0, name == "data")
            if joints is None and table.size > EVALUATED:
                reason = reason or "the outputs of a sample depend on the others of its batch"
            elif name == "data":
                self._check_slopes(samples, forward, what)
            if not reason:
                reason = self._apart("evaluation", partial(self._values_of_all, scored, samples))
        return reason

    def _repeated(self, joints: Joints, table: Table) -> Forward:
        """Outputs of a few samples in the place of those of all."""
        some = self._some(table, PROBED)

        def forward(module: nn.Module, batch: Tree) -> Tree:
            return joints.repeated(self.definition.forward(module, some), PROBED, table.size)

        return forward

    def _values_of_all(self, scored: Scored, batch: Tree, way: str) -> tuple[Tensor]:
        return (self._evaluated(scored, batch, way),)

    def _evaluated(self, scored: Scored, batch: Tree, way: str) -> Tensor:
        with torch.no_grad():
            return stacked.values(scored, self.layout, self.theta, self.fixed, batch, way)

    def _after_eval(self, scored: Scored, batch: Tree, what: str) -> Tensor:
        for _ in range(2):  # an import in a measure may draw, but once only
            before = seeded.generators()
            advice = "Final rows hold each loss and measure of all samples at once."
            with trying(f"After eval() the module, a loss or a measure fails on {what}", advice):
                values = self._evaluated(scored, batch, "loop")
            if not seeded.moved(before):
                return values
        raise ConfigError("The module draws random numbers after eval(), so its losses are not determined.")

    def _check_losses(self, what: str, values: Tensor, measures: int, trained: bool) -> None:
        """Raises ConfigError unless all samples have as many losses as a few, and finite ones in training."""
        if (losses := values.shape[1] - measures) != self.losses:
            raise ConfigError(
                f"The losses return {self.losses} numbers for {len(leaves(self.batch)[0])} samples, but "
                f"{losses} for {what}. Return one number for each loss, whatever the batch (a loss of each "
                'sample, as reduction="none" gives, needs a mean).'
            )
        F = values[:, : self.losses]
        if trained and not bool(F.isfinite().all()):
            raise ConfigError(
                f"The losses of {what} are {F[0].tolist()} at the start, though those of a few samples are "
                "finite. Final rows hold the losses of all data: is there a NaN among the data?"
            )

    def unfit(self, size: int) -> str:
        """Why a step cannot have a batch of so many samples."""
        scored = Scored(self.parts.training, self.definition.forward, self.definition.head)
        batch = self._some(self.definition.data, size)
        try:
            F = self._once(scored, self.keys, batch=batch)
        except Exception as error:  # noqa: BLE001  whatever a user's module raises is the reason
            return f"the module or a loss fails on it: {type(error).__name__}: {error}"
        if F.shape[1] != self.losses:
            return f"the losses return {F.shape[1]} numbers for it, but {self.losses} for other batches"
        if bool((bad := ~F.isfinite().all(0)).any()):
            m = int(bad.nonzero()[0])
            return f"loss {m + 1} of it is {float(F[0, m])} at the start"
        return ""

    def _once(
        self, scored: Scored, keys: Tensor, shift: Tensor | float = 0.0, batch: Tree | None = None
    ) -> Tensor:
        """Values of both networks, with parameters moved by `shift`."""
        seen = self.batch if batch is None else batch
        with torch.no_grad():
            return stacked.values(scored, self.layout, self.theta + shift, self.fixed, seen, "loop", keys)

    def _check_gradients(self, scored: Scored, out: Tensor, leaf: Tensor) -> None:
        """Raises ConfigError for a loss without a gradient that changes with the parameters, near or far."""
        normal = torch.randn(self.theta.shape, generator=torch.Generator().manual_seed(0)).to(self.theta)
        moved = [self._once(scored, self.keys, size * normal) for size in (1e-2, 1.0)]
        self.lowest = float(out.detach().min())
        for m in range(out.shape[1]):
            slope: Tensor | None = None
            if out.requires_grad:
                slope = self._slope(out[:, m].sum(), leaf, m)
            near, far = (not torch.equal(values[:, m], out[:, m].detach()) for values in moved)
            # a loss that is flat here, as a hinge that is met, may have no gradient here
            if (slope is None or not bool(slope.any())) and (near or not far):
                raise ConfigError(
                    f"Loss {m + 1} does not depend on any parameter through torch operations (NumPy, "
                    ".item(), .detach() and torch.no_grad() break the graph)."
                )

    @staticmethod
    def _slope(loss: Tensor, leaf: Tensor, m: int) -> Tensor | None:
        advice = "If it is sparse: sparse=False in torch.nn.Embedding, EmbeddingBag and their functions."
        with trying(f"The gradient of loss {m + 1} fails", advice):
            slope = torch.autograd.grad(loss, leaf, retain_graph=True, allow_unused=True)[0]
        return slope

    def _check_slopes(self, samples: Tree, forward: Forward, what: str) -> None:
        """Raises ConfigError for a finite loss whose gradient is not, as of a nanmean: 0 * NaN."""
        leaf = self.theta.clone().requires_grad_(True)
        row = self.definition._row
        # one function after the other: the gradient 0 of a row that is cut out becomes 0 * nan, too
        for i, loss in enumerate(self.definition.losses):
            with torch.enable_grad():
                scored = Scored(self.parts.evaluation, forward, partial(row, "losses", (loss,)))
                F = stacked.values(scored, self.layout, leaf, self.fixed, samples, "loop")
                if not F.requires_grad:
                    continue
                (slope,) = torch.autograd.grad(F.sum(), leaf)
            if not bool(slope.isfinite().all()):
                raise ConfigError(
                    f"Loss function {i + 1} of {what} is finite at the start, but its gradient is not: "  # noqa: S608
                    "replace missing values before they are used (torch.where or nan_to_num on the targets): "
                    "what is masked or left out afterwards, as by nanmean, has the gradient 0 * nan."
                )

    def _apart(self, what: str, values: Callable[[str], tuple[Tensor, ...]]) -> str:
        """Why runs cannot be one axis of vmap; "" if they can."""
        expected = values("loop")
        try:
            with warnings.catch_warnings():
                # an operation that vmap would take one run after the other
                warnings.filterwarnings("error", message="There is a performance drop")
                batched = values("vmap")
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  whatever vmap cannot do is a reason
            return (
                f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else "it fails"
            )
        for a, b in zip(batched, expected, strict=True):
            if not _near(a, b):
                return f"{what} gives other numbers under torch.func.vmap"
        return ""


class _TooFewError(ConfigError):
    """Losses cannot be computed of these samples; of more they may."""


def _near(a: Tensor, b: Tensor) -> bool:
    """Returns whether two answers agree in half of their digits; NaN (no label) agrees with NaN."""
    bound = torch.finfo(b.dtype).eps ** 0.5
    size = b.abs().nan_to_num().amax().clamp_min(1.0)
    return bool((((a - b).abs() <= bound * size) | (a.isnan() & b.isnan())).all())


@dataclass(frozen=True)
class Bound:
    """The runs of a job.

    Attributes:
        keys: of random numbers, on the CPU, one of each seed: all preferences of a seed drop the same units.
        modules: the distinct networks that runs begin with; group: which of them each run has.
        cache: of their constants.
        examined: runs that had a loss that is not finite, whose cause was no batch.
    """

    keys: Int[Tensor, " R"]
    modules: list[nn.Module]
    group: list[int]
    cache: Cache = field(default_factory=Cache)
    examined: set[int] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Networks(Cached, BatchGradients):
    """M losses of a module, for R parameter vectors at once, with derivatives by automatic differentiation.

    `values` of a batch are those of the module as it is trained (dropout, statistics of the batch); without a
    batch they are those of all training data after `eval()`: outputs are computed part by part, losses of all
    of them at once, so that they need not be means over samples. Batch normalisation uses the mean of its
    statistics over all training data, computed for these parameters: no running average that would depend on
    the way there.

    Fields:
        code: hash of module, losses, data and all other functions. title: name of the folder and key of
            starts and batches.
        positive: whether every loss is >= 0. ideal: z (M,) of Tchebycheff values (null: 0 if positive).
        reference: point (M,) of hypervolumes, or null. bounds: [lower, upper] of every parameter, or null.
        start: {kind: module}: as `module()` makes it at each seed, or the given state dicts.
        execution: auto (vmap where it can; on a CPU convolutions of larger batches, and what cannot be
            batched, run by run) | vmap | loop | channels_last; no part of a job's identity.

    Raises:
        ConfigError: nothing is served under `code`, or it cannot be trained here; with the reason.
    """

    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {"module": ()}
    version: ClassVar[int] = 2  # 1: losses of all data were means over parts of them
    execution_fields: ClassVar[tuple[str, ...]] = ("execution",)
    keeps_solutions: ClassVar[bool] = True
    citation: ClassVar[str] = "the user's own"

    code: str
    title: str = "network"
    positive: bool = True  # type: ignore[misc]  # a constant of the class in most problems
    ideal: Sequence[float | int] | None = None
    reference: Sequence[float | int] | None = None
    bounds: Sequence[float | int] | None = None
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "module"})
    execution: str = "auto"
    _definition: Definition = field(init=False, repr=False, compare=False)
    _bound: Bound | None = field(default=None, init=False, repr=False, compare=False)
    _ways: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_definition", served(self.code))
        self.probe  # noqa: B018  what cannot be trained is an error now
        if self.positive and self.probe.lowest < 0:
            raise ConfigError(
                f"A loss is {self.probe.lowest:.4g} at the start, but positive=True promises losses >= 0, "
                "from which an ideal point of 0 would follow. Give positive=False, or losses that cannot be "
                "negative."
            )
        choose("problem.execution", self.execution, ("auto", *WAYS))
        if self.bounds is not None and not (len(self.bounds) == 2 and self.bounds[0] < self.bounds[1]):
            raise ConfigError(f"problem.bounds={list(self.bounds)} must be two numbers, lower < upper.")
        check_entries(self.n_objectives, ideal=self.ideal, reference=self.reference)
        if self.keep is not None:
            self._check_keep(self.keep)
        if self.execution == "vmap" and (why := self.probe.training):
            raise ConfigError(f"problem.execution=vmap: this module cannot be batched ({why}).")

    # what there is

    @property
    def probe(self) -> Probe:
        """The properties of the module."""
        return self._definition.probe

    @property
    def name(self) -> str:
        return self.title

    @property
    def n_objectives(self) -> int:
        return self.probe.losses

    @property
    def n_constraints(self) -> int:  # type: ignore[override]  # a constant of the class in most problems
        return self.probe.constraints

    @property
    def dim(self) -> int:
        return self.probe.layout.dim

    @property
    def X(self) -> Set:
        return Free() if self.bounds is None else Box(float(self.bounds[0]), float(self.bounds[1]))

    @property
    def n_samples(self) -> int:
        return self._definition.data.size

    @property
    def drop_last(self) -> bool:
        return self._definition.data.drop_last

    def unfit_batch(self, size: int) -> str:
        return self._definition.unfit_batch(size)

    @property
    def ideal_point(self) -> Tensor | None:
        if self.ideal is not None:
            return torch.tensor([float(z) for z in self.ideal], dtype=torch.float64)
        return torch.zeros(self.n_objectives, dtype=torch.float64) if self.positive else None

    @property
    def ref_point(self) -> tuple[float, ...] | None:
        return None if self.reference is None else tuple(float(z) for z in self.reference)

    @property
    def callback(self) -> Callable[[int, Any], object] | None:
        """Returns the user's measures, at each recorded step."""
        return self._definition.callback

    @property
    def stop(self) -> Callable[[Any], Any] | None:
        """The user's stop rule."""
        return self._definition.stop

    def stepper(self) -> TorchStepper | None:
        """Returns a new stepper of the user's optimizer."""
        return None if self._definition.recipe is None else self._definition.recipe.stepper(self.probe.layout)

    @property
    def keep(self) -> str | None:
        """The number that decides which weights a run ends with."""
        return self._definition.keep

    @property
    def patience(self) -> int | None:
        """Number of recorded steps after which a run ends without a better one."""
        return self._definition.patience

    def _check_keep(self, keep: str) -> None:
        """Raises ConfigError for a number that does not exist."""
        losses = () if self._definition.validation is None else range(1, self.n_objectives + 1)
        columns = [*(f"validation_{m}" for m in losses), *self._definition.measures]
        if keep != "best":
            choose("keep", keep.removeprefix("-"), columns or ["best"])
        elif self._definition.validation is None:
            raise ConfigError('keep="best" compares losses on validation data; give validation=.')
        elif self.ideal_point is None:
            raise ConfigError(
                'keep="best" compares max_m w_m (validation_m - z_m), which needs positive=True or ideal=; '
                f"or name the column that decides, one of {', '.join(columns)}."
            )

    def deciding(self, columns: Mapping[str, Tensor], weights: Float[Tensor, "R M"]) -> Float[Tensor, " R"]:
        keep = self._definition.keep
        assert keep is not None
        if keep != "best":
            return -columns[keep[1:]] if keep.startswith("-") else columns[keep]
        losses = torch.stack([columns[f"validation_{m + 1}"] for m in range(self.n_objectives)], 1)
        assert self.ideal_point is not None
        return (weights.to(losses) * (losses - self.ideal_point.to(losses))).amax(1)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        probe = self.probe
        tables = {"data": self._definition.data, "validation": self._definition.validation}
        recorded = {"functions": self._definition.source(), "parameters": self.dim, **samples.facts(tables)}
        if probe.training:
            recorded["not_batched"] = probe.training
        return recorded

    # starts and constants

    def _modules(self, runs: Runs) -> tuple[list[nn.Module], list[int]]:
        """The distinct modules of the runs, and which of them each run has."""
        each = bool(self.start.get("per_preference", False))
        starts = len(self._definition.starts)
        if starts > 1 and starts != len(runs.all):
            raise ConfigError(
                f"start has {starts} state dicts, but the job has {len(runs.all)} preferences; give one, "
                "or one for each preference."
            )
        position: dict[tuple[int, str, int], int] = {}
        modules: list[nn.Module] = []
        group = []
        for r, seed in enumerate(runs.seeds.tolist()):
            place = int(runs.index[r]) if starts > 1 else 0
            key = (seed, runs.name(r) if each else "", place)
            if key not in position:
                axes = {"preference": key[1]} if each else {}
                drawn = seed_for(seed, problem=self.name, use="start", **axes)
                position[key] = len(modules)
                modules.append(self._definition.module(drawn, place))
            group.append(position[key])
        return modules, group

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return self._start(*self._modules(runs))

    def _start(self, modules: list[nn.Module], group: list[int]) -> Float[Tensor, "R P"]:
        rows = [self.probe.layout.flat(dict(module.named_parameters())) for module in modules]
        return torch.stack([rows[g] for g in group])

    def bind(self: This, runs: Runs) -> This:
        keys = [seed_for(int(seed), problem=self.name, use="noise") for seed in runs.seeds]
        bound = copy.copy(self)
        held = Bound(torch.tensor(keys), *self._modules(runs))
        object.__setattr__(bound, "_bound", held)
        return bound

    @property
    def bound(self) -> Bound:
        """The runs of this job."""
        assert self._bound is not None, "an oracle binds its problem"
        return self._bound

    def _fixed(self, x: Tensor) -> Constants:
        held = self.bound
        if len(held.group) != len(x):
            raise ConfigError(f"{len(x)} parameter vectors for {len(held.group)} runs.")
        return held.cache.made((x.dtype, x.device), lambda: Constants.of(held.modules, held.group, x))

    @cached_property
    def _parts(self) -> Parts:
        return Parts.of(self._definition.module(0))

    def _table(self, split: str, x: Tensor) -> Tree:
        """All samples of a part, on the device and in the type of x."""
        table = self._definition.data if split == "train" else self._definition.validation
        assert table is not None
        return samples.held(self.cache, split, table, x)

    # batches

    def draw(self, keys: Int[Tensor, " R"], stream: str, t: int, size: int) -> Batch:  # type: ignore[override]
        chosen = super().draw(keys, stream, t, size)
        group = torch.arange(len(keys), device=keys.device)
        return Batch(chosen, group, (1,) * len(keys), seed_for(t, stream=stream))

    def take(self, batch: Batch) -> Batch:
        return batch

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R K"]:
        """Losses, then constraints: of a batch in training; without one of all samples in evaluation."""
        if batch is None:
            F = self._evaluated("train", x)[:, : self.n_objectives]
            return torch.stack([self._definition.appended(row) for row in F.unbind(0)])
        way = self._ways[x.device.type] = self._way_of(x, batch)
        values = self._trained(x, batch, way)
        if not bool(values.detach().isfinite().all()):
            self._examine(x.detach(), batch, values.detach())
        return values

    def _examine(self, x: Tensor, batch: Batch, values: Tensor) -> None:
        """Raises ConfigError where a batch (without a label, say) has no finite losses, whatever the run."""
        held = self.bound
        lost = (~values.isfinite().all(1) & x.isfinite().all(1)).nonzero().squeeze(1).tolist()
        new = [r for r in lost if r not in held.examined]
        if not new:
            return
        held.examined.update(new)
        with torch.no_grad():
            F = self._trained(self._start(held.modules, held.group).to(x), batch, "loop")
        for r in new:
            bad = (~F[r].isfinite() & ~values[r].isfinite()).nonzero().squeeze(1).tolist()
            if bad:
                M = self.n_objectives
                name = f"loss {bad[0] + 1}" if bad[0] < M else f"constraint {bad[0] - M + 1}"
                raise ConfigError(
                    f"{name.capitalize()} of a step's batch of {batch.chosen.shape[1]} samples is "
                    f"{float(values[r, bad[0]])}, with the parameters of the start as well: has none of "
                    "these samples a label (0/0)? Choose a larger batch_size, or let the loss give 0 for "
                    "such a batch, as losses.sum() / mask.sum().clamp_min(1) does."
                )

    def _trained(self, x: Float[Tensor, "R P"], batch: Batch, way: str) -> Float[Tensor, "R K"]:
        table = self._table("train", x)
        group = batch.group.tolist()
        each = len(set(group)) > 1
        seen: Any
        if not each:
            seen = mapped(lambda t: t[batch.chosen[group[0]]], table)
        elif way == "vmap":
            seen = mapped(lambda t: t[batch.chosen[batch.group]], table)
        else:
            taken: dict[int, Tree] = {}

            def seen(r: int) -> Tree:
                g = group[r]
                if g not in taken:
                    taken[g] = mapped(lambda t: t[batch.chosen[g]], table)
                return taken[g]

        scored = Scored(self._parts.training, self._definition.forward, self._definition.constrained)
        keys = salted(self.bound.keys, batch.number, "noise")
        return stacked.values(scored, self.probe.layout, x, self._fixed(x), seen, way, keys, each)

    def strategy(self, device: torch.device) -> str:
        """The way in which runs were computed on this device."""
        return self._ways.get(device.type, "not trained")

    def _way_of(self, x: Tensor, batch: Batch) -> str:
        """Returns the way in which a step's runs are computed."""
        if self.execution != "auto":
            return self.execution
        inputs = [t for t in leaves(self._table("train", x)) if t.is_floating_point()]
        few = sum(t[0].numel() for t in inputs) * batch.chosen.shape[1] <= FEW_NUMBERS
        return self._way(bool(self.probe.training) or len(x) == 1, x.device, few)

    def _way(self, apart: bool, device: torch.device, few: bool = False) -> str:
        """Returns the way for a batch.

        apart: whether runs cannot be one axis of vmap, or need not be. few: whether the batch is small.
        """
        pictures = self.probe.pictures
        if not apart and (few or not pictures or device.type != "cpu"):
            return "vmap"
        return "channels_last" if pictures else "loop"

    # all samples

    def _evaluated(self, split: str, x: Float[Tensor, "R P"]) -> Float[Tensor, "R k"]:
        """Losses, then measures, of all samples of a table after `eval()`, cached for the last x."""
        return self.cache.at(x, split, lambda: self._computed(split, x))

    def _computed(self, split: str, x: Float[Tensor, "R P"]) -> Float[Tensor, "R k"]:
        with torch.no_grad():
            fixed = self._fixed(x)
            if self._parts.statistics:
                fixed = fixed.with_per_run(self.cache.at(x, "statistics", lambda: self._statistics(x, fixed)))
            samples = self._table(split, x)
            parts = self._batches(split, x)
            if self.probe.joints is None:
                parts = [samples]
            values = self._of_all(split, x, fixed, samples, parts)
            if bool((values[:, -1] != 0).any()):  # outputs that no part has alone
                values = self._of_all(split, x, fixed, samples, [samples])
            return values[:, :-1].to(x.dtype)

    def _of_all(
        self, split: str, x: Tensor, fixed: Constants, samples: Tree, parts: Sequence[Tree]
    ) -> Float[Tensor, "R k"]:
        """Returns the result of `InParts` for each run, for as many runs at once as memory holds."""
        where = "train" if self._definition.validation is None else "validation"
        head = self._definition.measured if split == where else self._definition.head
        way = self._way(bool(self.probe.evaluation), x.device)
        joints = self.probe.joints
        last = way == "channels_last"
        module = self._parts.evaluation
        scored = InParts(module, self._definition.forward, head, samples, parts, joints, last)
        size = len(x)
        if way == "vmap" and len(parts) > 1 and joints is not None:
            size = min(size, max(1, HELD // max(1, joints.width * len(leaves(samples)[0]))))
        values = []
        for i in range(0, len(x), size):
            some = slice(i, i + size)
            values.append(stacked.values(scored, self.probe.layout, x[some], fixed.take(some), (), way))
        return torch.cat(values)

    def _batches(self, split: str, x: Tensor) -> list[Tree]:
        """All samples in parts of nearly equal size: a rest of one sample would have no statistics."""
        table = self._table(split, x)
        size = len(leaves(table)[0])
        ends = torch.linspace(0, size, -(-size // EVALUATED) + 1).round().long().tolist()
        return [mapped(operator.itemgetter(slice(a, b)), table) for a, b in pairwise(ends)]

    def _statistics(self, x: Tensor, fixed: Constants) -> dict[str, Tensor]:
        # a part need not have losses
        scored = Scored(self._parts.counting, self._definition.forward, lambda outputs, batch: x.new_zeros(1))
        way = "channels_last" if self.probe.pictures else "loop"
        batches = self._batches("train", x)
        return stacked.statistics(scored, self.probe.layout, x, fixed, batches, self._parts.statistics, way)

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R K"]) -> dict[str, Tensor]:
        """validation_m, the losses on validation data, and the user's measures there (on the training
        data if there are no others).
        """
        M = self.n_objectives
        if self._definition.validation is None and not self._definition.measures:
            return {}
        split = "train" if self._definition.validation is None else "validation"
        evaluated = self._evaluated(split, x)
        losses = {} if split == "train" else {f"validation_{m + 1}": evaluated[:, m] for m in range(M)}
        return losses | {name: evaluated[:, M + k] for k, name in enumerate(self._definition.measures)}

    def trained(self, theta: Float[Tensor, "R P"]) -> list[nn.Module]:
        """Modules in evaluation with these parameters, of the bound runs."""
        modules = []
        fixed = self._fixed(theta)
        extra = self._statistics(theta, fixed) if self._parts.statistics else {}
        for r, row in enumerate(theta):
            module = copy.deepcopy(self.bound.modules[self.bound.group[r]]).to(theta.dtype)
            tensors = {**self.probe.layout.split(row), **{name: value[r] for name, value in extra.items()}}
            with torch.no_grad():
                for name, part in {**dict(module.named_parameters()), **dict(module.named_buffers())}.items():
                    if name in tensors:
                        part.copy_(tensors[name])
            modules.append(module.eval())
        return modules
