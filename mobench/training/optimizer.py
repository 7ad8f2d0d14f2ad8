"""An optimizer for several losses: any method decides how their gradients are combined."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_map

from mobench.core.algorithm import Algorithm
from mobench.core.types import HALF, check_dense, check_minimizes, check_real
from mobench.errors import ConfigError, MobenchError
from mobench.training.solving import STEPS, Info, Seen, Stepper, name_of, of_a_loop, widened

BATCHED = 40_000
"""Parameters up to which the gradients of more than two losses are one backward pass of them all: beyond, a
pass for each is as fast, and faster where each loss has parameters of its own.
"""
FELL = 2.0**-24
"""The least number of float16: where a GradScaler has come down to it, the scale is not what overflows."""


class Balanced:
    """An optimizer whose gradient is a method's direction: several losses instead of one.

        optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.1), "mgda")
        optimizer.step([loss_1, loss_2])

    `backward` computes the gradients of all losses (M backward passes; one of all losses together where there
    are at least three of them and at most 40,000 parameters; one for methods without a Jacobian), asks the
    method for its direction d, and sets every parameter's `grad` to its part of -d (None where no loss
    depends on the parameter), whatever `grad` was before: nothing accumulates, and `zero_grad` is not needed.
    `step` does that and lets the wrapped optimizer step. Call `backward` and `optimizer.optimizer.step()`
    yourself to clip gradients in between. Schedulers and a GradScaler take `optimizer.optimizer`.

    Rows of the Jacobian are kept in the widest type of the parameters, float32 at least; autocast does not
    reach the method. Losses in half precision cost all M backward passes: a weighted sum of them in one pass
    would round the weights.

    Gradients are taken by torch.autograd.grad: hooks that fire on accumulation, as those of
    DistributedDataParallel, do not see them. A hook of a tensor is called once for all losses where they are
    taken together, and with the gradients of all of them.

    Args:
        optimizer: one of torch.optim that steps without a closure and has dense gradients; its parameters are
            the decision variables, on one device, dense and real, in half precision if need be.
        method, preference, steps, seed, ideal, options: as of `solve`.

    Raises:
        ConfigError: an optimizer that needs closures or sparse gradients, or that maximizes; unknown names or
            options, and those that a loop of your own decides.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        method: str | Algorithm = "mgda",
        preference: Sequence[float] | Tensor | None = None,
        *,
        steps: int = STEPS,
        seed: int = 0,
        ideal: Sequence[float] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(optimizer, torch.optim.LBFGS | torch.optim.SparseAdam):
            raise ConfigError(
                f"{type(optimizer).__name__} needs a closure or sparse gradients; give one that steps "
                "from dense gradients, such as SGD or AdamW."
            )
        check_minimizes(optimizer)
        self.optimizer = optimizer
        self.algorithm, paced = of_a_loop(method, options, ideal)
        self._state: dict[str, Any] | None = None
        self._batches = True  # until a graph cannot be differentiated for all losses at once
        self._stepper = Stepper(self.algorithm, preference, 0, steps, seed, ideal, paced)

    @property
    def parameters(self) -> list[Tensor]:
        """The decision variables, in the order of the optimizer's groups."""
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]

    def step(
        self,
        losses: Tensor | Sequence[Tensor] | None = None,
        constraints: Tensor | Sequence[Tensor] = (),
        features: Tensor | Sequence[Tensor] | None = None,
    ) -> tuple[Float[Tensor, " K"] | None, Info]:
        """`backward`, then a step of the optimizer.

        Raises:
            ConfigError: no losses, as where a GradScaler calls it.
        """
        if losses is None:
            raise ConfigError(
                "step takes the losses. After backward(losses) the wrapped optimizer makes the step; a "
                "GradScaler takes that one, too: scaler.step(optimizer.optimizer)."
            )
        result = self.backward(losses, constraints, features)
        self.optimizer.step()
        return result

    def backward(
        self,
        losses: Tensor | Sequence[Tensor],
        constraints: Tensor | Sequence[Tensor] = (),
        features: Tensor | Sequence[Tensor] | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> tuple[Float[Tensor, " K"] | None, Info]:
        """Sets `grad` of all parameters; returns the weights and the `Info` of `solve`.

        Args:
            losses: M scalars. constraints: N scalars that shall be <= 0.
            features: what a shared trunk gives to the heads of the tasks, none of them computed from another.
                With them, the method sees the gradients with respect to the features (one backward pass
                through the trunk instead of M): the trunk descends along the method's direction, and every
                head on its own loss, unweighted. What a loss adds to the trunk without passing through the
                features (a penalty of its weights, say) is not seen. Constraints cannot be combined with
                features.
            scaler: the GradScaler of a mixed-precision loop. Losses are passed as they are: the backward
                passes are those of scaled losses, the method sees losses and gradients without the scale, and
                `grad` has it again, as `scaler.unscale_` and `scaler.step` expect of
                `optimizer.optimizer` (not of this object). Where a gradient overflows, every `grad` and the
                weights are NaN, `info.failed` is set and the method's state stays: the scaler skips the step
                and lowers its scale.

        Raises:
            ConfigError: a loss is not a scalar that requires grad, or depends on no parameter; features that
                no loss depends on, or that depend on no parameter; complex numbers, sparse gradients.
            MobenchError: a value or, without a scaler, a gradient is not finite, or the subproblem has no
                solution. Neither `grad` nor the method's state has changed.
            CompatibilityError: method and losses do not fit.
        """
        objectives = _scalars("losses", losses)
        outputs = [*objectives, *_scalars("constraints", constraints)]
        M = len(objectives)
        parameters = self.parameters
        names = self._names()
        self._check(parameters, names, outputs, len(outputs) > M, features, scaler)
        base = parameters if features is None else _listed(features)
        scaled, scale = outputs, 1.0
        if scaler is not None:
            with torch.enable_grad():
                scaled = [scaler.scale(f) for f in outputs]
            scale = scaler.get_scale()
        N = len(outputs) - M
        if N != self._stepper.N:
            self._stepper = replace(self._stepper, N=N)
        stepper = self._stepper
        called = names if features is None else [f"Feature {k}" for k, _ in enumerate(base, 1)]
        what = "parameter" if features is None else "feature"
        seen = _Graph(outputs, scaled, scale, base, M, what, called, self._batches)
        if features is None:
            seen.variables = self._trained()
        try:
            direction, after, weights, report = stepper.step(seen, self._state)
            if report.fail is not None and bool(report.fail.any()):
                raise MobenchError(
                    f"The subproblem of {name_of(self.algorithm)} could not be solved in step {self._t}. "
                    "Nothing has changed; another preference or fewer constraints may help."
                )
            grads = _split(-scale * direction[0], base)
            if features is None:
                grads = [None if idle else grad for grad, idle in zip(grads, seen.unused, strict=True)]
            else:
                grads = _through(base, grads, parameters, scaled[:M], names)
            if features is None and all(p.dtype == direction.dtype for p in base):
                _check_finite(direction)
            else:
                for grad in grads:
                    if grad is not None:
                        _check_finite(grad)
        except _NotFinite as error:
            # a scaler that is off would step, and one whose scale has fallen that far cannot help
            if scaler is None or not scaler.is_enabled() or scale <= FELL:
                raise MobenchError(self._not_finite(parameters, scaler, scale)) from error
            return self._skipped(parameters, base, len(outputs))
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = grad
        self._clear_frozen()
        self._state = after
        self._batches = seen.batches
        kkt = None if report.kkt is None else report.kkt[0]
        failed = torch.zeros((), dtype=torch.bool, device=direction.device)
        return None if weights is None else weights[0], Info(direction[0], after, kkt, failed)

    def _clear_frozen(self) -> None:
        """Takes the gradient of an earlier step from parameters that have been frozen since then.

        The optimizer moves each parameter that has one.
        """
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                if not p.requires_grad:
                    p.grad = None

    def _skipped(self, parameters: Sequence[Tensor], base: Sequence[Tensor], K: int) -> tuple[Tensor, Info]:
        """The end of a step that a GradScaler has to skip: it sees NaN, and the method's state stays."""
        for p in parameters:
            p.grad = torch.full_like(p, torch.nan)
        lost = torch.full((sum(p.numel() for p in base),), torch.nan, device=parameters[0].device)
        failed = torch.ones((), dtype=torch.bool, device=lost.device)
        return lost.new_full((K,), torch.nan), Info(lost, self._state or {}, None, failed)

    def _not_finite(
        self, parameters: Sequence[Tensor], scaler: torch.amp.GradScaler | None, scale: float
    ) -> str:
        """Returns advice on a gradient that is not finite."""
        text = f"A gradient of step {self._t} is not finite, and nothing has changed."
        if scaler is not None:
            return f"{text} The GradScaler's scale is {scale:.3g}: it is not the scale that overflows."
        halves = {p.dtype for p in parameters} & set(HALF)
        if halves:
            return (
                f"{text} The range of {', '.join(map(str, halves))} may be too small: keep parameters in "
                "torch.float32, and compute in half precision by torch.autocast."
            )
        return (
            f"{text} Smaller steps may help, or losses without square roots of 0. In mixed precision pass "
            "losses that are not scaled, and the scaler: backward(losses, scaler=scaler)."
        )

    @property
    def _t(self) -> int:
        """The number of the step."""
        return 0 if self._state is None else int(self._state["t"])

    def _trained(self) -> list[int]:
        """Returns which parameters are trained, by their numbers in the optimizer's groups."""
        every = (p for group in self.optimizer.param_groups for p in group["params"])
        return [k for k, p in enumerate(every) if p.requires_grad]

    def _names(self) -> list[str]:
        """Returns the names of the parameters in messages: those that the optimizer knows, or numbers."""
        names: list[str] = []
        for group in self.optimizer.param_groups:
            for name, p in zip(group.get("param_names", itertools.repeat("")), group["params"], strict=False):
                if p.requires_grad:
                    names.append(f"Parameter {name or len(names) + 1} of shape {tuple(p.shape)}")
        return names

    def _check(
        self,
        parameters: Sequence[Tensor],
        names: Sequence[str],
        outputs: Sequence[Tensor],
        constrained: bool,
        features: Tensor | Sequence[Tensor] | None,
        scaler: torch.amp.GradScaler | None,
    ) -> None:
        """Raises for what cannot be meant."""
        check_minimizes(self.optimizer)
        if not parameters:
            raise ConfigError("The optimizer has no parameter that requires grad.")
        if len(places := {p.device for p in parameters}) > 1:
            raise ConfigError(f"The parameters lie on {', '.join(map(str, places))}; expected one device.")
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise ConfigError(f"scaler is {type(scaler).__name__}; expected a torch.amp.GradScaler.")
        for name, p in zip(names, parameters, strict=True):
            check_real(name, p)
            if p.dtype == torch.float16 and scaler is not None and scaler.is_enabled():
                raise ConfigError(
                    f"{name} is of type torch.float16, whose gradients a GradScaler cannot unscale: keep "
                    "parameters in torch.float32, and compute in half precision by torch.autocast."
                )
        listed = () if features is None else _listed(features)
        if listed and constrained:
            raise ConfigError("features cannot be combined with constraints; leave features out.")
        if len({id(z) for z in listed}) < len(listed):
            raise ConfigError("features has a tensor twice; its gradient would count twice, so give it once.")
        for k, z in enumerate(listed, 1):
            check_real(f"Feature {k}", z)
            if z.grad_fn is None:
                raise ConfigError(
                    "features must be what the trunk has computed; these do not depend on parameters."
                )
        if (inner := _inside(listed)) is not None:
            raise ConfigError(
                f"Feature {inner + 1} is one from which another of the features is computed; its gradient "
                "would count twice. Give features none of which depends on another, or leave features out."
            )
        values = _doubles(outputs)
        if not bool(torch.isfinite(values).all()):
            raise MobenchError(
                f"The values {values.tolist()} of step {self._t} are not all finite. Nothing has changed; "
                "smaller steps may help. In mixed precision pass losses that no GradScaler has scaled "
                "(backward has scaler=); where they overflow in torch.float16, torch.bfloat16 does not."
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls the optimizer's `zero_grad`, which `step` does not need."""
        self.optimizer.zero_grad(set_to_none)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Returns the parameter groups of the wrapped optimizer."""
        return self.optimizer.param_groups

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state and the method's."""
        return {"optimizer": self.optimizer.state_dict(), "method": copy.deepcopy(self._state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            ConfigError: the state is not one that `state_dict` returns, or was made by another method or with
                other settings. Nothing has changed.
        """
        if set(state) != {"optimizer", "method"}:
            raise ConfigError(
                f"This state has the keys {sorted(state)}; expected method and optimizer, as "
                "Balanced.state_dict() returns them."
            )
        if state["method"]:
            self._stepper.expect(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        device = self.parameters[0].device
        self._state = tree_map(
            lambda x: x.to(device) if isinstance(x, Tensor) else x, copy.deepcopy(state["method"])
        )


class _Graph(Seen):
    """Scalars with a graph: rows and products by automatic differentiation, each when it is requested.

    Rows are those of the scaled outputs, divided by the scale: small gradients would be 0 in float16.

    Attributes:
        unused: of each tensor of the base, whether no function depends on it.
        batches: whether one backward pass may give all rows; False once that has failed.
    """

    def __init__(
        self,
        outputs: Sequence[Tensor],
        scaled: Sequence[Tensor],
        scale: float,
        base: Sequence[Tensor],
        M: int,
        what: str,
        names: Sequence[str],
        batches: bool,
    ) -> None:
        self.batches = batches
        self._scaled = scaled
        self._scale = scale
        self._base = base
        self._what = what
        self._names = names
        self._dtype = widened(*base)
        self.unused = [True] * len(base)
        x = torch.cat([p.detach().reshape(-1).to(self._dtype) for p in base]).unsqueeze(0)
        # losses are not rounded to the type of the parameters
        values = _doubles(outputs).unsqueeze(0)
        # the gradients of half-precision losses are their weights, which would be rounded
        half = any(f.dtype in HALF for f in outputs)
        super().__init__(values, self._rows, M, None if half else self._product, x)

    def _gradient(self, function: Tensor, name: str) -> Float[Tensor, " P"]:
        try:
            gradients = _gradients(function, self._base, self._names)
        except RuntimeError as error:
            if "second time" not in str(error):
                raise
            raise ConfigError(
                f"The graph of {name[0].lower()}{name[1:]} is gone. Do not call backward on the losses: step "
                "makes the backward passes. Losses must be computed anew in each step."
            ) from error
        if all(gradient is None for gradient in gradients):
            raise ConfigError(f"{name} depends on no {self._what} that was given.")
        self.unused = [old and gradient is None for old, gradient in zip(self.unused, gradients, strict=True)]
        row = torch.cat(
            [
                (torch.zeros_like(p) if gradient is None else gradient).reshape(-1).to(self._dtype)
                for p, gradient in zip(self._base, gradients, strict=True)
            ]
        )
        if self._scale != 1.0:
            row.div_(self._scale)
        _check_finite(row)
        return row

    def _rows(self) -> Float[Tensor, "1 K P"]:
        if self.batches and len(self._scaled) > 2 and self.x.shape[1] <= BATCHED:
            batch = self._batch()
            if batch is not None:
                return batch.unsqueeze(0)
        rows = [self._gradient(f, f"Function {k}") for k, f in enumerate(self._scaled, 1)]
        return torch.stack(rows).unsqueeze(0)

    def _batch(self) -> Float[Tensor, "K P"] | None:
        """All rows by one backward pass; None where a pass for each has to say what is wrong, if anything is.

        Some graphs cannot be differentiated so (a user's hook or backward that looks at numbers), and
        a loss that depends on no parameter has a row of zeros.
        """
        K = len(self._scaled)
        kinds = {(f.dtype, f.device) for f in self._scaled}
        eye = {kind: torch.eye(K, dtype=kind[0], device=kind[1]) for kind in kinds}
        unit = [eye[f.dtype, f.device][k] for k, f in enumerate(self._scaled)]
        try:
            gradients = torch.autograd.grad(
                self._scaled, self._base, unit, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
        except RuntimeError:
            self.batches = False
            return None
        if any(gradient is not None and gradient.layout != torch.strided for gradient in gradients):
            return None
        parts = [
            p.new_zeros(K, p.numel(), dtype=self._dtype)
            if gradient is None
            else gradient.reshape(K, -1).to(self._dtype)
            for p, gradient in zip(self._base, gradients, strict=True)
        ]
        rows = torch.cat(parts, 1)
        if self._scale != 1.0:
            rows.div_(self._scale)
        sums = rows.sum(1).tolist()
        if not all(math.isfinite(x) for x in sums):
            _check_finite(rows)
        if not all(sums) and not bool(rows.any(1).all()):
            return None
        self.unused = [gradient is None for gradient in gradients]
        return rows

    def _product(self, w: Float[Tensor, "1 M"]) -> Float[Tensor, "1 P"]:
        with torch.enable_grad():
            total = sum(c * f for c, f in zip(w[0].to(self._scaled[0].device), self._scaled, strict=False))
        assert isinstance(total, Tensor)
        return self._gradient(total, "The sum of the losses").unsqueeze(0)


def _doubles(outputs: Sequence[Tensor]) -> Float[Tensor, " K"]:
    """Values in float64; of one type they are converted together."""
    if len({f.dtype for f in outputs}) == 1:
        return torch.stack([f.detach() for f in outputs]).double()
    return torch.stack([f.detach().double() for f in outputs])


class _NotFinite(Exception):
    """A gradient is not finite, so the method must not see it."""


def _check_finite(gradient: Tensor) -> None:
    # a sum is finite only if all terms are, and takes a tenth of the time; of finite terms it may overflow
    if not math.isfinite(gradient.sum()) and not bool(torch.isfinite(gradient).all()):
        raise _NotFinite


def _gradients(
    outputs: Tensor | Sequence[Tensor],
    base: Sequence[Tensor],
    names: Sequence[str],
    weights: Sequence[Tensor | None] | None = None,
) -> tuple[Tensor | None, ...]:
    """Gradients of (weighted) outputs, None where these do not depend on a tensor of the base.

    Raises:
        ConfigError: one is not dense.
    """
    cure = "use sparse=False in torch.nn.Embedding, EmbeddingBag or their functions"
    try:
        gradients = torch.autograd.grad(outputs, base, weights, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        if "sparse" not in str(error).lower():
            raise
        reason = str(error).partition(". ")[0]
        raise ConfigError(f"A sparse gradient cannot be computed with ({reason}): {cure}.") from error
    for gradient, name in zip(gradients, names, strict=True):
        if gradient is not None:
            check_dense(f"The gradient of {name[0].lower()}{name[1:]}", gradient, cure)
    return gradients


def _through(
    features: Sequence[Tensor],
    parts: Sequence[Tensor | None],
    parameters: Sequence[Tensor],
    losses: Sequence[Tensor],
    names: Sequence[str],
) -> list[Tensor | None]:
    """grad of the trunk: the method's, through the features; of each head: that of the losses it serves."""
    with torch.autocast(parameters[0].device.type, enabled=False):
        trunk = _gradients(features, parameters, names, list(parts))
        if all(gradient is None for gradient in trunk):
            raise ConfigError("features depend on no parameter of the optimizer.")
        heads = [k for k, gradient in enumerate(trunk) if gradient is None]
        total = sum(losses)
        assert isinstance(total, Tensor)
        remaining = iter(
            _gradients(total, [parameters[k] for k in heads], [names[k] for k in heads]) if heads else ()
        )
    return [next(remaining) if gradient is None else gradient for gradient in trunk]


def _inside(features: Sequence[Tensor]) -> int | None:
    """The number of a feature from which another is computed, by the graph; None: there is none."""
    # an edge is a function of the graph and the number of its output: parts of one tensor share the function
    edges = {(z.grad_fn, z.output_nr): k for k, z in enumerate(features) if z.grad_fn is not None}
    if len(edges) < 2:
        return None
    seen = {node for node, _ in edges}
    ahead = list(seen)
    while ahead:
        for edge in ahead.pop().next_functions:
            if edge in edges:
                return edges[edge]
            node = edge[0]
            if node is not None and node not in seen:
                seen.add(node)
                ahead.append(node)
    return None


def _listed(some: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [some] if isinstance(some, Tensor) else list(some)


@torch.enable_grad()  # parts of a vector belong to its graph, also where a program has switched graphs off
def _scalars(what: str, outputs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Scalars, from a vector of them or a list."""
    if callable(outputs) and not isinstance(outputs, Tensor):
        raise ConfigError(f"{what} is a function; step takes the {what} themselves, not a closure.")
    if isinstance(outputs, Tensor):
        check_dense(what, outputs)
    scalars = (
        list(outputs.unbind()) if isinstance(outputs, Tensor) and outputs.ndim == 1 else _listed(outputs)
    )
    for k, f in enumerate(scalars, 1):
        if not isinstance(f, Tensor) or f.numel() != 1 or not f.requires_grad:
            shape = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
            raise ConfigError(
                f"{what}: number {k} ({shape}) must be a scalar tensor that depends on parameters; take a "
                "mean, and do not detach it."
            )
        check_real(f"{what}: number {k}", f)
    return [f.reshape(()) for f in scalars]


def _split(flat: Float[Tensor, " P"], like: Sequence[Tensor]) -> list[Tensor | None]:
    """The parts of a vector in the shapes of some tensors."""
    parts = flat.split([p.numel() for p in like])
    return [part.view_as(p).to(p.dtype).clone() for part, p in zip(parts, like, strict=True)]
