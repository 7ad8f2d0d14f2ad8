"""An optimizer for several losses: any method decides how their gradients are combined."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_map

from mobench.core.algorithm import Algorithm
from mobench.errors import ConfigError, MobenchError
from mobench.training.solving import STEPS, Info, Seen, Stepper, made, name_of


class Balanced:
    """An optimizer whose gradient is a method's direction: several losses instead of one.

        optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.1), "mgda")
        optimizer.step([loss_1, loss_2])

    `backward` computes the gradients of all losses (M backward passes; one for methods without a Jacobian),
    asks the method for its direction d, and sets every parameter's `grad` to its part of -d; a parameter that
    no loss depends on keeps None. `step` does that and lets the wrapped optimizer step. Call `backward` and
    `optimizer.optimizer.step()` yourself to clip gradients in between. `zero_grad` is not needed. Schedulers
    take `optimizer.optimizer`.

    Gradients are taken by torch.autograd.grad: hooks that fire on accumulation, as those of
    DistributedDataParallel, do not see them.

    Args:
        optimizer: one of torch.optim that steps without a closure and has dense gradients; its parameters are
            the decision variables, on one device.
        method, preference, steps, seed, ideal, options: as of `solve`.

    Raises:
        ConfigError: an optimizer that needs closures or sparse gradients; unknown names or options.
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
        self.optimizer = optimizer
        self.algorithm = made(method, options)
        self._state: dict[str, Any] | None = None
        self._set = (preference, steps, seed, ideal)

    @property
    def parameters(self) -> list[Tensor]:
        """The decision variables, in the order of the optimizer's groups."""
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]

    def step(
        self,
        losses: Tensor | Sequence[Tensor],
        constraints: Tensor | Sequence[Tensor] = (),
        features: Tensor | Sequence[Tensor] | None = None,
    ) -> tuple[Float[Tensor, " K"] | None, Info]:
        """`backward`, then a step of the optimizer."""
        found = self.backward(losses, constraints, features)
        self.optimizer.step()
        return found

    def backward(
        self,
        losses: Tensor | Sequence[Tensor],
        constraints: Tensor | Sequence[Tensor] = (),
        features: Tensor | Sequence[Tensor] | None = None,
    ) -> tuple[Float[Tensor, " K"] | None, Info]:
        """Sets `grad` of all parameters; returns the weights and the `Info` of `solve`.

        Args:
            losses: M scalars. constraints: N scalars that shall be <= 0.
            features: what a shared trunk gives to the heads of the tasks. With them, the method sees the
                gradients with respect to the features (one backward pass through the trunk instead of M): the
                trunk descends along the method's direction, and every head on its own loss, unweighted. What
                a loss adds to the trunk without passing through the features (a penalty of its weights, say)
                is not seen. Constraints cannot be combined with features.

        Raises:
            ConfigError: a loss is not a scalar that requires grad, or depends on no parameter; features that
                no loss depends on, or that depend on no parameter.
            MobenchError: a value or a gradient is not finite, or the subproblem has no solution. Neither
                `grad` nor the method's state has changed.
            CompatibilityError: method and losses do not fit.
        """
        objectives = _scalars("losses", losses)
        g = _scalars("constraints", constraints)
        parameters = self.parameters
        self._check(parameters, [*objectives, *g], bool(g), features)
        base = parameters if features is None else _listed(features)
        preference, steps, seed, ideal = self._set
        stepper = Stepper(self.algorithm, preference, len(g), steps, seed, ideal)
        seen = _Graph(
            [*objectives, *g], base, len(objectives), "parameter" if features is None else "feature"
        )
        direction, after, weights, report = stepper.step(seen, self._state)
        if report.fail is not None and bool(report.fail.any()):
            raise MobenchError(
                f"The subproblem of {name_of(self.algorithm)} could not be solved in step {after['t'] - 1}. "
                "Nothing has changed; another preference or fewer constraints may help."
            )
        grads = _split(-direction[0], base)
        if features is None:
            grads = [None if idle else own for own, idle in zip(grads, seen.unused, strict=True)]
        else:
            grads = _through(base, grads, parameters, objectives)
        if not all(bool(torch.isfinite(own).all()) for own in grads if own is not None):
            raise MobenchError(
                f"A gradient of step {after['t'] - 1} is not finite. Nothing has changed; smaller steps may "
                "help, or losses without square roots of 0."
            )
        for p, own in zip(parameters, grads, strict=True):
            p.grad = own
        self._state = after
        kkt = None if report.kkt is None else report.kkt[0]
        failed = torch.zeros((), dtype=torch.bool, device=direction.device)
        return None if weights is None else weights[0], Info(direction[0], after, kkt, failed)

    def _check(
        self,
        parameters: Sequence[Tensor],
        outputs: Sequence[Tensor],
        constrained: bool,
        features: Tensor | Sequence[Tensor] | None,
    ) -> None:
        """Raises for what cannot be meant."""
        if not parameters:
            raise ConfigError("The optimizer has no parameter that requires grad.")
        if len(places := {p.device for p in parameters}) > 1:
            raise ConfigError(f"The parameters lie on {', '.join(map(str, places))}; expected one device.")
        if features is not None and constrained:
            raise ConfigError("features cannot be combined with constraints; leave features out.")
        if features is not None and any(z.grad_fn is None for z in _listed(features)):
            raise ConfigError(
                "features must be what the trunk has computed; these do not depend on parameters."
            )
        values = torch.stack([f.detach().double() for f in outputs])
        if not bool(torch.isfinite(values).all()):
            t = 0 if self._state is None else self._state["t"]
            raise MobenchError(
                f"The values {values.tolist()} of step {t} are not all finite. Nothing has changed; "
                "smaller steps may help."
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As of the optimizer. `step` does not need it."""
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
            ConfigError: it is that of something else.
        """
        if set(state) != {"optimizer", "method"}:
            raise ConfigError(
                f"This state has the keys {sorted(state)}; expected method and optimizer, as "
                "Balanced.state_dict() returns them."
            )
        self.optimizer.load_state_dict(state["optimizer"])
        self._state = _placed(copy.deepcopy(state["method"]), self.parameters[0].device)


class _Graph(Seen):
    """Scalars with a graph: rows and products by automatic differentiation, each when it is asked for.

    Attributes:
        unused: of each tensor of the base, whether no function depends on it.
    """

    def __init__(self, outputs: Sequence[Tensor], base: Sequence[Tensor], M: int, what: str) -> None:
        self._outputs = outputs
        self._base = base
        self._what = what
        self.unused = [True] * len(base)
        x = torch.cat([p.detach().reshape(-1) for p in base]).unsqueeze(0)
        # losses are not rounded to the type of the parameters
        values = torch.stack([f.detach().double() for f in outputs]).unsqueeze(0)
        super().__init__(values, self._rows, M, self._product, x)

    def _gradient(self, function: Tensor, name: str) -> Float[Tensor, " P"]:
        try:
            found = torch.autograd.grad(function, self._base, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if "second time" not in str(error):
                raise
            raise ConfigError(
                f"The graph of {name[0].lower()}{name[1:]} is gone. Do not call backward on the losses: step "
                "makes the backward passes. Losses must be computed anew in each step."
            ) from error
        if all(own is None for own in found):
            raise ConfigError(f"{name} depends on no {self._what} that was given.")
        self.unused = [old and own is None for old, own in zip(self.unused, found, strict=True)]
        return torch.cat(
            [
                torch.zeros_like(p).reshape(-1) if own is None else own.reshape(-1)
                for p, own in zip(self._base, found, strict=True)
            ]
        )

    def _rows(self) -> Float[Tensor, "1 K P"]:
        rows = [self._gradient(f, f"Function {k}") for k, f in enumerate(self._outputs, 1)]
        return torch.stack(rows).unsqueeze(0)

    def _product(self, w: Float[Tensor, "1 M"]) -> Float[Tensor, "1 P"]:
        with torch.enable_grad():
            total = sum(c * f for c, f in zip(w[0].to(self._outputs[0]), self._outputs, strict=False))
        assert isinstance(total, Tensor)
        return self._gradient(total, "The sum of the losses").unsqueeze(0)


def _through(
    features: Sequence[Tensor],
    parts: Sequence[Tensor | None],
    parameters: Sequence[Tensor],
    losses: Sequence[Tensor],
) -> list[Tensor | None]:
    """grad of the trunk: the method's, through the features; of each head: that of the losses it serves."""
    trunk = torch.autograd.grad(features, parameters, list(parts), retain_graph=True, allow_unused=True)
    if all(own is None for own in trunk):
        raise ConfigError("features depend on no parameter of the optimizer.")
    heads = [p for p, own in zip(parameters, trunk, strict=True) if own is None]
    total = sum(losses)
    assert isinstance(total, Tensor)
    found = iter(torch.autograd.grad(total, heads, retain_graph=True, allow_unused=True) if heads else ())
    return [next(found) if own is None else own for own in trunk]


def _placed(state: Any, device: torch.device) -> Any:
    """A state with its tensors on a device."""
    return tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, state)


def _listed(some: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [some] if isinstance(some, Tensor) else list(some)


def _scalars(what: str, given: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Scalars, from a vector of them or a list."""
    if callable(given) and not isinstance(given, Tensor):
        raise ConfigError(f"{what} is a function; step takes the {what} themselves, not a closure.")
    found = list(given.unbind()) if isinstance(given, Tensor) and given.ndim == 1 else _listed(given)
    for k, f in enumerate(found, 1):
        if not isinstance(f, Tensor) or f.numel() != 1 or not f.requires_grad:
            shape = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
            raise ConfigError(
                f"{what}: number {k} ({shape}) must be a scalar tensor that depends on parameters; take a "
                "mean, and do not detach it."
            )
    return [f.reshape(()) for f in found]


def _split(flat: Float[Tensor, " P"], like: Sequence[Tensor]) -> list[Tensor | None]:
    """The parts of a vector in the shapes of some tensors."""
    parts = flat.split([p.numel() for p in like])
    return [part.view_as(p).to(p.dtype).clone() for part, p in zip(parts, like, strict=True)]
