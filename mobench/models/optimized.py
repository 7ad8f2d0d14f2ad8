"""A torch optimizer, with a schedule, for R networks at once: each moves as it would alone.

    g_r = -d_r min(1, clip / (|d_r| + 1e-6)),   theta <- optimizer(theta, g),   then one step of the schedule

The optimizer is made for one network and gets the stacked parameters (R, *shape) in the place of that
network's. Where each entry moves by itself, as with SGD, Adam, AdamW and most others, that is R optimizers at
the price of one. `Recipe.check` compares the two over the first steps of a job, in float64 and relative to
the movement, and refuses an optimizer that mixes the entries of a tensor there (Adafactor, Muon); one that
begins to mix them later is not noticed.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from mobench.core.types import State, check_minimizes
from mobench.errors import ConfigError
from mobench.models.stacked import Layout

TRIED = 3
"""Steps in which two networks together are compared with each of them alone."""
RELATIVE = 1e-6
"""Share of the largest movement by which the two may differ."""
LOOP = (
    "In a training loop of your own mobench.Balanced(OPTIMIZER, METHOD) takes it, and mobench.record keeps "
    "the rows (docs/training.md)."
)


@dataclass(frozen=True, eq=False)
class Recipe:
    """The settings with which a user's networks are trained.

    Attributes:
        optimizer: makes one of a list of parameters. schedule: makes one of an optimizer.
        clip: largest norm of the gradient of a run.
    """

    optimizer: Callable[[list[nn.Parameter]], Any]
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None
    clip: float | None = None

    def stepper(self, layout: Layout) -> TorchStepper:
        """A stepper that has not stepped yet."""
        return TorchStepper(self, layout)

    def check(self, layout: Layout, theta: Float[Tensor, "2 P"]) -> None:
        """Tries the optimizer on two networks.

        Raises:
            ConfigError: it cannot be made, or it steps in another way for two networks together, or from its
                saved state.
        """
        saved_as = theta.dtype
        theta = theta.double()  # to tell steps of any size from rounding
        draws = torch.Generator().manual_seed(0)
        scale = torch.tensor([[1.0], [30.0]], dtype=theta.dtype)  # a norm of both would show
        slopes = [scale * torch.randn(theta.shape, generator=draws, dtype=theta.dtype) for _ in range(TRIED)]
        together = self._tried(layout, theta, slopes)
        for r in (0, 1):
            alone = self._alone(layout, theta[r], [slope[r] for slope in slopes])
            moved = float((alone - theta[r]).abs().max())
            fault = "moves a network beside others in another way than alone"
            self._compare(together[r], alone, fault, within=RELATIVE * moved)
        self._compare(self._tried(layout, theta, slopes), together, "draws random numbers")
        theta = theta.to(saved_as)
        slopes = [slope.to(saved_as) for slope in slopes]
        together = self._tried(layout, theta, slopes)
        stepper = self.stepper(layout)
        state = stepper.first(theta)
        for slope in slopes[:-1]:
            theta, state = stepper.step(theta, -slope, state)
        self._check_saved(layout, theta, state, slopes[-1], together)

    def _tried(self, layout: Layout, theta: Tensor, slopes: Sequence[Tensor]) -> Tensor:
        stepper = self.stepper(layout)
        state = stepper.first(theta)
        for slope in slopes:
            theta, state = stepper.step(theta, -slope, state)
        return theta

    def _alone(self, layout: Layout, theta: Tensor, slopes: Sequence[Tensor]) -> Tensor:
        """The steps of one network, by torch alone."""
        parameters = [nn.Parameter(part.clone()) for part in layout.split(theta).values()]
        optimizer, schedule = self.made(parameters)
        for slope in slopes:
            for p, part in zip(parameters, layout.split(slope).values(), strict=True):
                p.grad = part.clone()
            if self.clip is not None:
                nn.utils.clip_grad_norm_(parameters, self.clip)
            _step(optimizer)
            if schedule is not None:
                schedule.step()
        return torch.cat([p.detach().reshape(-1) for p in parameters])

    def _compare(self, actual: Tensor, expected: Tensor, fault: str, within: float = 0.0) -> None:
        if within:  # sums in another order round differently
            within += 1e-14 * float(expected.abs().max())
        if not bool(((actual - expected).abs() <= within).all()):
            raise ConfigError(f"optimizer= {fault}, so mobench.networks cannot train by it. {LOOP}")

    def _check_saved(
        self, layout: Layout, theta: Tensor, state: State, slope: Tensor, expected: Tensor
    ) -> None:
        """Raises ConfigError unless a step from a checkpoint equals the expected one to the bit."""
        file = io.BytesIO()
        stepper = self.stepper(layout)
        try:
            torch.save(state, file)
            file.seek(0)
            again, _ = stepper.step(theta, -slope, torch.load(file, weights_only=True))
        except Exception as error:  # whatever an optimizer of the user's or a schedule holds and raises
            raise ConfigError(
                f"The state of optimizer= or schedule= cannot be kept in a checkpoint: {error} {LOOP}"
            ) from error
        self._compare(again, expected, "does not continue from its saved state")

    def made(self, parameters: list[nn.Parameter]) -> tuple[torch.optim.Optimizer, LRScheduler | None]:
        """The optimizer of these parameters, and its schedule.

        Raises:
            ConfigError: a factory fails, or makes something else.
        """
        optimizer = _called("optimizer", self.optimizer, parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError(
                f"optimizer= returned {type(optimizer).__name__}; expected a torch.optim.Optimizer: give a "
                "function of a list of parameters, such as lambda p: torch.optim.AdamW(p, lr=1e-3)."
            )
        if isinstance(optimizer, torch.optim.LBFGS | torch.optim.SparseAdam):
            raise ConfigError(
                f"{type(optimizer).__name__} needs a closure or sparse gradients, and mobench.networks gives "
                "one dense direction for each step: choose one that steps from that, such as SGD or AdamW. A "
                "closure that computes mobench.Balanced's direction belongs in a loop of your own "
                "(docs/training.md)."
            )
        check_minimizes(optimizer)
        if self.schedule is None:
            return optimizer, None
        schedule = _called("schedule", self.schedule, optimizer)
        if not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau):
            raise ConfigError(
                f"schedule= returned {type(schedule).__name__}; expected one of torch.optim.lr_scheduler "
                "that depends on the number of the step alone, which all runs share, such as lambda o: "
                f"torch.optim.lr_scheduler.CosineAnnealingLR(o, 100). {LOOP}"
            )
        return optimizer, schedule


class TorchStepper:
    """A step of all runs by one optimizer (`mobench.core.stepping.Stepper`).

    It holds torch's objects of the last step; from any other state it makes them anew.
    """

    def __init__(self, recipe: Recipe, layout: Layout) -> None:
        self.recipe = recipe
        self.layout = layout
        self._shapes = [tuple(shape) or (1,) for shape in layout.shapes]
        self._after: State | None = None  # the state that the objects are in

    def first(self, theta: Float[Tensor, "R P"]) -> State:
        """The state of an optimizer, and of a schedule, that have not stepped."""
        self._make(theta)
        return self._saved()

    def step(
        self, theta: Float[Tensor, "R P"], d: Float[Tensor, "R P"], state: State
    ) -> tuple[Float[Tensor, "R P"], State]:
        """Takes the optimizer's step with the gradient -d, and then one of the schedule."""
        if state is not self._after:
            self._load(theta, state)
        g = -d
        if self.recipe.clip is not None:  # as torch.nn.utils.clip_grad_norm_ has it
            norm = torch.linalg.vector_norm(g, dim=1, keepdim=True)
            g = g * (self.recipe.clip / (norm + 1e-6)).clamp_max(1.0)
        for p, now, slope in zip(self._stacked, self._parts(theta), self._parts(g), strict=True):
            p.detach().copy_(now)
            p.grad = slope.contiguous()
        _step(self._optimizer)
        if self._schedule is not None:
            self._schedule.step()
        return torch.cat([p.detach().flatten(1) for p in self._stacked], 1), self._saved()

    def _parts(self, theta: Float[Tensor, "R P"]) -> list[Tensor]:
        parts = theta.split(self.layout.sizes, 1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _make(self, theta: Float[Tensor, "R P"]) -> None:
        one = [nn.Parameter(theta.new_zeros(shape)) for shape in self._shapes]
        self._optimizer, self._schedule = self.recipe.made(one)
        self._stacked = [nn.Parameter(part.clone()) for part in self._parts(theta)]
        taken = {id(p): stacked for p, stacked in zip(one, self._stacked, strict=True)}
        listed = [p for group in self._optimizer.param_groups for p in group["params"]]
        if {id(p) for p in listed} != taken.keys():
            raise ConfigError(
                f"optimizer= steps {len(listed)} of the module's {len(one)} trainable parameters, or others; "
                "give it all of them. What shall stay as it is, the module holds with requires_grad=False."
            )
        for group in self._optimizer.param_groups:
            group["params"] = [taken[id(p)] for p in group["params"]]
        before = dict(self._optimizer.state)  # of optimizers that make it at once, as Adagrad does
        self._optimizer.state.clear()
        for p, state in before.items():
            self._optimizer.state[taken[id(p)]] = {
                name: value.expand(len(theta), *value.shape).clone()
                if isinstance(value, Tensor) and value.shape == p.shape
                else value
                for name, value in state.items()
            }

    def _load(self, theta: Float[Tensor, "R P"], state: State) -> None:
        self._make(theta)
        saved = copy.deepcopy(state["optimizer"])
        for entry in saved["state"].values():
            if isinstance(count := entry.get("step"), Tensor):
                entry["step"] = count.cpu()  # from where torch moves it if it wants it on the device
        self._optimizer.load_state_dict(saved)
        listed = [p for group in self._optimizer.param_groups for p in group["params"]]
        for i, entry in saved["state"].items():
            loaded = self._optimizer.state[listed[i]]
            for name, value in entry.items():
                # torch casts all but `step` to the type of the parameters, even NAdam's float32 product
                if isinstance(value, Tensor) and loaded[name].dtype != value.dtype:
                    loaded[name] = value
        if self._schedule is not None:
            self._schedule.load_state_dict(copy.deepcopy(state["schedule"]))

    def _saved(self) -> State:
        schedule = {} if self._schedule is None else self._schedule.state_dict()
        self._after = {"optimizer": self._optimizer.state_dict(), "schedule": schedule}
        return self._after


def _called(what: str, factory: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return factory(argument)
    except Exception as error:  # whatever a factory raises is an error of the definition
        takes = "a list of parameters" if what == "optimizer" else "the optimizer"
        raise ConfigError(f"{what}= fails for {takes}: {type(error).__name__}: {error}") from error


def _step(optimizer: torch.optim.Optimizer) -> None:
    try:
        optimizer.step()
    except (TypeError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{type(optimizer).__name__} cannot step from a gradient of all runs: {error} {LOOP}"
        ) from error
