"""Oracles: exact, minibatch, epochs, running averages, local steps of clients, forms of bilevel problems.

May import: core, kernels, errors.
"""

from mobench.core import gram
from mobench.kernels import rows
from mobench.oracles.ema import EMA
from mobench.oracles.epochs import Epochs
from mobench.oracles.exact import Exact
from mobench.oracles.hypergradient import Hypergradient
from mobench.oracles.local_steps import LocalSteps
from mobench.oracles.minibatch import Minibatch
from mobench.oracles.tracked_ema import TrackedEMA
from mobench.oracles.value_gap import ValueGap

__all__ = [
    "EMA",
    "Epochs",
    "Exact",
    "Hypergradient",
    "LocalSteps",
    "Minibatch",
    "TrackedEMA",
    "ValueGap",
]

gram.use(rows.gram, rows.cancelled)  # for the points that oracles make
