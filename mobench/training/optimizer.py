"""An optimizer for several losses: any method decides how their gradients are combined."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.algorithm import Algorithm
from mobench.errors import ConfigError, MobenchError
from mobench.training.solving import STEPS, Info, Seen, Stepper, made, name_of


class Balanced:
    """An optimizer whose gradient is a method's direction: several losses instead of one.

        optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.1), "mgda")
        optimizer.step([loss_1, loss_2])

    `step` computes the gradients of all losses (M backward passes; one for methods that need no Jacobian),
    asks the method for its direction d, sets every parameter's `grad` to its part of -d, and lets the wrapped
    optimizer step. `zero_grad` is not needed. Schedulers take `optimizer.optimizer`.

    Args:
        optimizer: any of torch.optim; its parameters are the decision variables.
        method, preference, steps, seed, ideal, options: as of `solve`.
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
        """One step; returns the weights and the `Info` of `solve`.

        Args:
            losses: M scalars. constraints: N scalars that shall be <= 0.
            features: what a shared trunk gives to the heads of the tasks. With them, the method sees the
                gradients with respect to the features (one backward pass through the trunk instead of M): the
                trunk descends along the method's direction, and every head on its own loss, unweighted.

        Raises:
            ConfigError: something is no scalar with a graph. MobenchError: a value is not finite, or the
                subproblem has no solution; no parameter has changed.
            CompatibilityError: method and losses do not fit.
        """
        objectives = _scalars("losses", losses)
        g = _scalars("constraints", constraints)
        outputs = [*objectives, *g]
        self._check_finite(outputs)
        parameters = self.parameters
        base = parameters if features is None else _listed(features)
        preference, steps, seed, ideal = self._set
        stepper = Stepper(self.algorithm, preference, len(g), steps, seed, ideal, has_values=True)
        seen = _Graph(outputs, base, len(objectives))
        direction, after, weights, report = stepper.step(seen, self._state)
        if report.fail is not None and bool(report.fail.any()):
            raise MobenchError(
                f"The subproblem of {name_of(self.algorithm)} could not be solved in step {after['t'] - 1}. "
                "No parameter has changed; another preference or fewer constraints may help."
            )
        parts = _split(-direction[0], base)
        if features is None:
            for p, part in zip(parameters, parts, strict=True):
                p.grad = part
        else:
            self._set_trunk_and_heads(objectives, base, parts)
        self.optimizer.step()
        self._state = after
        kkt = None if report.kkt is None else report.kkt[0]
        failed = torch.zeros((), dtype=torch.bool, device=direction.device)
        return None if weights is None else weights[0], Info(direction[0], after, kkt, failed)

    def _check_finite(self, outputs: Sequence[Tensor]) -> None:
        values = torch.stack([f.detach().double() for f in outputs])
        if not bool(torch.isfinite(values).all()):
            t = 0 if self._state is None else self._state["t"]
            raise MobenchError(
                f"The values {values.tolist()} of step {t} are not all finite. No parameter has changed; "
                "smaller steps may help."
            )

    def _set_trunk_and_heads(
        self, losses: Sequence[Tensor], features: Sequence[Tensor], parts: Sequence[Tensor]
    ) -> None:
        """grad of the trunk: the method's; of each head: that of the losses that it serves."""
        parameters = self.parameters
        trunk = torch.autograd.grad(features, parameters, list(parts), retain_graph=True, allow_unused=True)
        heads = [p for p, own in zip(parameters, trunk, strict=True) if own is None]
        for p, own in zip(parameters, trunk, strict=True):
            p.grad = own
        if not heads:
            return
        found = torch.autograd.grad(sum(losses), heads, retain_graph=True, allow_unused=True)  # type: ignore[arg-type]
        for p, own in zip(heads, found, strict=True):
            p.grad = own

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As of the optimizer. `step` does not need it."""
        self.optimizer.zero_grad(set_to_none)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the optimizer."""
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
        self._state = copy.deepcopy(state["method"])


class _Graph(Seen):
    """Scalars with a graph: rows and products by automatic differentiation, each when it is asked for."""

    def __init__(self, outputs: Sequence[Tensor], base: Sequence[Tensor], M: int) -> None:
        self._outputs = outputs
        self._base = base
        x = torch.cat([p.detach().reshape(-1) for p in base]).unsqueeze(0)
        values = torch.stack([f.detach().to(x) for f in outputs]).unsqueeze(0)
        super().__init__(values, self._rows, M, self._product, x)

    def _gradient(self, function: Tensor) -> Float[Tensor, " P"]:
        found = torch.autograd.grad(function, self._base, retain_graph=True, allow_unused=True)
        return torch.cat(
            [
                torch.zeros_like(p).reshape(-1) if own is None else own.reshape(-1)
                for p, own in zip(self._base, found, strict=True)
            ]
        )

    def _rows(self) -> Float[Tensor, "1 K P"]:
        return torch.stack([self._gradient(f) for f in self._outputs]).unsqueeze(0)

    def _product(self, w: Float[Tensor, "1 M"]) -> Float[Tensor, "1 P"]:
        with torch.enable_grad():
            total = sum(c * f for c, f in zip(w[0].to(self._outputs[0]), self._outputs, strict=False))
        assert isinstance(total, Tensor)
        return self._gradient(total).unsqueeze(0)


def _listed(some: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [some] if isinstance(some, Tensor) else list(some)


def _scalars(what: str, given: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Scalars, from a vector of them or a list."""
    found = list(given.unbind()) if isinstance(given, Tensor) and given.ndim == 1 else _listed(given)
    for k, f in enumerate(found, 1):
        if not isinstance(f, Tensor) or f.numel() != 1 or not f.requires_grad:
            shape = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
            raise ConfigError(
                f"{what}: number {k} ({shape}) must be a scalar tensor that depends on parameters; take a "
                "mean, and do not detach it."
            )
    return [f.reshape(()) for f in found]


def _split(flat: Float[Tensor, " P"], like: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a vector in the shapes of some tensors."""
    parts = flat.split([p.numel() for p in like])
    return [part.view_as(p).to(p.dtype).clone() for part, p in zip(parts, like, strict=True)]
