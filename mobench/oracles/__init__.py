"""Oracles: exact, minibatch with one or two independent samples, and running averages."""

from mobench.oracles.ema import EMA
from mobench.oracles.epochs import Epochs
from mobench.oracles.exact import Exact
from mobench.oracles.federated_ema import FederatedEMA
from mobench.oracles.minibatch import Minibatch

__all__ = ["EMA", "Epochs", "Exact", "FederatedEMA", "Minibatch"]
