"""Oracles: exact, minibatch with one or two independent samples, running averages, and local steps of clients."""

from mobench.oracles.ema import EMA
from mobench.oracles.epochs import Epochs
from mobench.oracles.exact import Exact
from mobench.oracles.federated_ema import FederatedEMA
from mobench.oracles.local_steps import LocalSteps
from mobench.oracles.minibatch import Minibatch

__all__ = ["EMA", "Epochs", "Exact", "FederatedEMA", "LocalSteps", "Minibatch"]
