"""Any torch.nn.Module as a function of R stacked parameter vectors, by torch.func.functional_call.

    values (R, k):  row r is head(module(batch; theta_r), batch)

The runs are one axis of torch.func.vmap, or one after the other (`loop`; `channels_last`: so with pictures
and kernels in that memory format). What a module computes must not depend on which;
`mobench.problems.networks` compares them before a job begins.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from mobench.errors import ConfigError
from mobench.models.seeded import seeded

Tree = Any
"""A tensor, or a tuple, list or dict of trees."""
Forward = Callable[[nn.Module, Tree], Tree]
Head = Callable[[Tree, Tree], Tensor]
WAYS = ("vmap", "loop", "channels_last")


def mapped(fn: Callable[[Tensor], Any], tree: Tree) -> Tree:
    """The tree with `fn` applied to each tensor."""
    if isinstance(tree, Tensor):
        return fn(tree)
    if isinstance(tree, Mapping):
        return {key: mapped(fn, value) for key, value in tree.items()}
    children = [mapped(fn, value) for value in tree]
    if hasattr(tree, "_fields"):
        return type(tree)(*children)
    return children if isinstance(tree, list) else tuple(children)


def leaves(tree: Tree) -> list[Tensor]:
    """All tensors of a tree."""
    tensors: list[Tensor] = []
    mapped(tensors.append, tree)
    return tensors


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a module's trainable parameters, in the order of a parameter vector."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @staticmethod
    def of(module: nn.Module) -> Layout:
        """Shared parameters count once."""
        shapes = {name: p.shape for name, p in module.named_parameters() if p.requires_grad}
        return Layout(tuple(shapes), tuple(shapes.values()))

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each parameter."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def dim(self) -> int:
        """P."""
        return sum(self.sizes)

    def flat(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, " P"]:
        """The parameter vector, float64 on the CPU."""
        return torch.cat([tensors[name].detach().double().cpu().reshape(-1) for name in self.names])

    def split(self, theta: Float[Tensor, " P"]) -> dict[str, Tensor]:
        """Views of one parameter vector."""
        parts = theta.split(self.sizes)
        return {
            name: part.view(shape) for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }


class Scored(nn.Module):
    """A module and a head, a function of its outputs and batch, as one module."""

    def __init__(self, module: nn.Module, forward: Forward, head: Head) -> None:
        super().__init__()
        self.module = module
        self.run = forward
        self.head = head

    def forward(self, batch: Tree) -> Tensor:
        """head(outputs, batch)."""
        return self.head(self.run(self.module, batch), batch)


@dataclass(frozen=True)
class Constants:
    """Frozen parameters and buffers: tensors that all runs share, and tensors (R, ...) that differ."""

    shared: dict[str, Tensor]
    per_run: dict[str, Tensor]

    @staticmethod
    def of(modules: Sequence[nn.Module], group: Sequence[int], like: Tensor) -> Constants:
        """Returns the tensors of these modules' runs, on the device and in the type of `like`."""
        tables = [constants(module) for module in modules]
        shared: dict[str, Tensor] = {}
        per_run: dict[str, Tensor] = {}
        for name, first in tables[0].items():
            if all(torch.equal(first, other[name]) for other in tables[1:]):
                shared[name] = cast(first, like)
            else:
                per_run[name] = torch.stack([cast(tables[g][name], like) for g in group])
        return Constants(shared, per_run)

    def with_per_run(self, tensors: Mapping[str, Tensor]) -> Constants:
        """The constants with further tensors that differ between runs, (R, ...)."""
        shared = {name: value for name, value in self.shared.items() if name not in tensors}
        return Constants(shared, {**self.per_run, **tensors})

    def take(self, which: Any) -> Constants:
        """The constants of some runs."""
        return Constants(self.shared, {name: value[which] for name, value in self.per_run.items()})


def constants(module: nn.Module) -> dict[str, Tensor]:
    """The inputs of a module beside its trainable parameters."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return {**frozen, **dict(module.named_buffers())}


def cast(x: Tensor, like: Tensor) -> Tensor:
    """On the device of `like`, and in its type if x has real numbers."""
    return x.to(like.device, like.dtype if x.is_floating_point() else x.dtype)


def normalisations(module: nn.Module) -> dict[str, _BatchNorm]:
    """Batch normalisations that use a batch's statistics in training and running ones in evaluation."""
    return {
        name: part
        for name, part in module.named_modules()
        if isinstance(part, _BatchNorm) and part.training and part.running_mean is not None
    }


@contextlib.contextmanager
def no_fast_path() -> Iterator[None]:
    """Transformers in evaluation compute as in training: their fused path knows no axis of runs."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def values(
    scored: Scored,
    layout: Layout,
    theta: Float[Tensor, "R P"],
    fixed: Constants,
    batch: Callable[[int], Tree] | Tree,
    way: str,
    keys: Int[Tensor, " R"] | None = None,
    each: bool = False,
    written: Sequence[str] = (),
) -> Float[Tensor, "R k"]:
    """Returns the outputs of the module and its head for each run.

    Args:
        batch: samples that all runs share; or, if `each`, samples (R, B, ...) where way=vmap, a function of
            the run else.
        way: vmap | loop | channels_last.
        keys: seeds of the runs' random numbers; None: nothing may be drawn. Under vmap a module that draws
            fails.
        written: constants that the forward pass may write.

    Raises:
        ConfigError: the module writes into a tensor that all runs share.
    """
    protected = {n: t for n, t in {**fixed.shared, **fixed.per_run}.items() if n not in written}
    before = [t._version for t in protected.values()]
    with no_fast_path():
        outputs = _computed(scored, layout, theta, fixed, batch, way, keys, each)
    changed = [n for (n, t), old in zip(protected.items(), before, strict=True) if t._version != old]
    if changed:
        raise ConfigError(
            f"The module writes into its buffer {', '.join(changed)} in the forward pass, so that a step "
            "would depend on all steps before it, and a run on its neighbours. Of such buffers only the "
            "running statistics of batch normalisation are supported. Use torch.nn.GroupNorm or LayerNorm, "
            "or mobench.Balanced in a loop of your own."
        )
    return outputs


def _computed(
    scored: Scored,
    layout: Layout,
    theta: Tensor,
    fixed: Constants,
    batch: Any,
    way: str,
    keys: Tensor | None,
    each: bool,
) -> Tensor:
    last = way == "channels_last"
    shared = {f"module.{name}": formatted(value, last) for name, value in fixed.shared.items()}

    def one(row: Tensor, per_run: dict[str, Tensor], inputs: Tree) -> Tensor:
        tensors = {f"module.{name}": value for name, value in {**per_run, **layout.split(row)}.items()}
        if last:
            tensors = {name: formatted(value, last) for name, value in tensors.items()}
        out: Tensor = functional_call(scored, {**shared, **tensors}, (inputs,))
        return out

    if way == "vmap":
        # of attention's kernels only the plain products have a rule for an axis of runs
        with sdpa_kernel(SDPBackend.MATH):
            out: Tensor = vmap(one, in_dims=(0, 0, 0 if each else None))(theta, fixed.per_run, batch)
        return out
    seeds = [None] * len(theta) if keys is None else keys.tolist()
    inputs = batch if each else mapped(lambda t: formatted(t, last), batch)
    rows = []
    # unbind, not theta[r]: the backward of an index writes zeros for all runs, for each run
    for r, row in enumerate(theta.unbind(0)):
        per_run = {name: value[r] for name, value in fixed.per_run.items()}
        samples = mapped(lambda t: formatted(t, last), batch(r)) if each else inputs
        with seeded(seeds[r], theta.device):
            rows.append(one(row, per_run, samples))
    return torch.stack(rows)


def formatted(x: Tensor, channels_last: bool) -> Tensor:
    """Pictures and kernels with their channels last in memory, if that is wanted."""
    return x.contiguous(memory_format=torch.channels_last) if channels_last and x.ndim == 4 else x


def statistics(
    scored: Scored,
    layout: Layout,
    theta: Float[Tensor, "R P"],
    fixed: Constants,
    batches: Sequence[Tree],
    names: Sequence[str],
    way: str,
) -> dict[str, Tensor]:
    """Running means and variances (R, ...) of batch normalisations, as means over all batches.

    They depend on theta alone. One run after the other, since they are written in place.

    Args:
        scored: with normalisations in training whose momentum is None, so that PyTorch takes plain means.
        way: loop | channels_last.
    """
    rows: list[dict[str, Tensor]] = []
    for r in range(len(theta)):
        run_constants = fixed.take(slice(r, r + 1))
        running = {name: fixed.shared[name].clone().unsqueeze(0) for name in names}
        for value in running.values():
            value.zero_()
        one = run_constants.with_per_run(running)
        for batch in batches:
            values(scored, layout, theta[r : r + 1], one, batch, way, written=names)
        rows.append({name: value[0] for name, value in running.items()})
    return {name: torch.stack([row[name] for row in rows]) for name in names}
