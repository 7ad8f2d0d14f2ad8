"""Regression of eight river flows (RF1):  f_m = mean squared error of output m / its variance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.preferences import Runs
from mobench.data.river_flow import INPUTS, TARGETS, RiverFlows, river_flows
from mobench.errors import ConfigError
from mobench.models.mlp import TanhMLP
from mobench.problems.dataset import TrainTest, network_starts

PART = 1024  # rows of a product of which only a sum is kept


@dataclass(frozen=True, kw_only=True)
class RiverFlow(TrainTest):
    """The flow at eight gauges 48 hours ahead, by a perceptron 64-hidden-8 from those of the last 60 hours.

        f_m(theta) = (1/N) sum_i  (W_2 tanh(W_1 x_i + b_1) + b_2 - y_i)_m^2,   m = 1..8

    theta (R, P) = (W_1, b_1, W_2, b_2) in the order of PyTorch's modules, P = 65 hidden + 8 (hidden + 1):
    2,344. x and y are clipped and in z units of the training part (`mobench.data.river_flow`). Rows are
    closed forms. `values` of a batch are means over it; without one over all training rows.
    History and final rows carry test_loss_1 .. test_loss_8, their mean test_loss_mean and largest
    test_loss_max, in the same unit.

    Fields:
        data: generated (embedded, made up) | rf1 (a file). data_root: its folder; no part of a job's
            identity.
        split: random | chronological.
        train_size, test_size: the first so many rows of either part (null: all).
        clip: columns are clipped to the clip .. 1 - clip quantiles of the training part; 0: not.
        hidden: width of the hidden layer.
        start: {kind: default} PyTorch's initialisation.

    Source: MLM-CMOO paper, Section 5. It says neither network nor preparation nor split: all of them are our
    choice.
    """

    small: ClassVar[Mapping[str, Any]] = {"hidden": 4, "train_size": 256, "test_size": 32}
    citation: ClassVar[str] = "Spyromitros-Xioufis et al. 2016 (RF1); MLM-CMOO paper"

    data: str = "generated"
    split: str = "random"
    train_size: int | None = None
    test_size: int | None = None
    clip: float | int = 0.005
    hidden: int = 32
    steps: int = 1500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden < 1:
            raise ConfigError(
                f"problem.hidden={self.hidden} must be at least 1; it is the width of the hidden layer."
            )

    @property
    def network(self) -> TanhMLP:
        """The network, a function of stacked parameters."""
        return TanhMLP(len(INPUTS), self.hidden, len(TARGETS))

    @property
    def flows(self) -> RiverFlows:
        """The rows; made once per process."""
        return river_flows(
            self.data, self.data_root, self.split, self.train_size, self.test_size, clip=float(self.clip)
        )

    @property
    def n_objectives(self) -> int:
        return len(TARGETS)

    @property
    def dim(self) -> int:
        return self.network.dim

    @property
    def n_samples(self) -> int:
        return len(self.flows.train)

    @property
    def data_set(self) -> RiverFlows:
        return self.flows

    @property
    def constant_losses(self) -> Float[Tensor, " M"]:
        """Variance of the training targets in z units: 1, but for a limited train_size."""
        return self.flows.train_targets.var(0, correction=0)

    def bind(self, runs: Runs) -> RiverFlow:
        """Returns the problem; a missing file or an impossible size is an error now, not in a step."""
        _ = self.flows
        return self

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return network_starts(self, runs, self.network.initial)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        data = self.flows
        return super().facts(runs) | {
            "rows": data.rows,
            "rows_dropped": data.dropped,
            "cells_clipped": data.clipped,
            "train_size": len(data.train),
            "test_size": len(data.test),
        }

    # on the device

    def part(self, split: str, like: Tensor) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N M"]]:
        """Inputs and targets."""
        data = self.flows
        x, y = (data.train, data.train_targets) if split == "train" else (data.test, data.test_targets)
        return x.to(like.device, like.dtype), y.to(like.device, like.dtype)

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R M"]:
        """Mean squared errors.

        `batch`: a Batch of groups that share rows, or indices (R, B), or None: all of `train`.
        """
        inputs, targets = self.samples(batch, x)
        return (self.network.forward(x, inputs)[0] - targets).square().mean(1)

    def linearize(
        self, x: Float[Tensor, "R P"], batch: Any = None
    ) -> tuple[Float[Tensor, "R M"], Callable[[], Tensor]]:
        """Losses, and the rows on demand: with error_im = (2 / B) (z - y)_im, see `TanhMLP.jacobian`."""
        network = self.network
        inputs, targets = self.samples(batch, x)
        with torch.no_grad():
            z, h = network.forward(x, inputs)
            error = z - targets
            F = error.square().mean(1)

        def rows() -> Float[Tensor, "R M P"]:
            with torch.no_grad():
                scaled = error * (2.0 / error.shape[1])
                B = error.shape[1]
                if B <= PART:
                    return network.jacobian(x, inputs, h, scaled)
                total = x.new_zeros(len(x), len(TARGETS), network.dim)
                for k in range(0, B, PART):
                    part = slice(k, k + PART)
                    total += network.jacobian(x, inputs[:, part], h[:, part], scaled[:, part])
                return total

        return F, rows

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R M"]) -> dict[str, Tensor]:
        """test_loss_1 .. test_loss_8, test_loss_mean, test_loss_max."""
        inputs, targets = self.of_split("test", x)
        with torch.no_grad():
            z = self.network.forward(x, inputs.expand(len(x), -1, -1))[0]
            loss = (z - targets).square().mean(1)
        losses = {f"test_loss_{m + 1}": loss[:, m] for m in range(len(TARGETS))}
        return losses | {"test_loss_mean": loss.mean(1), "test_loss_max": loss.amax(1)}
