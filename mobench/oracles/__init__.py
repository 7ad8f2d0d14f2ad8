"""Oracles: exact, and minibatch with one or two independent samples."""

from mobench.oracles.exact import Exact
from mobench.oracles.minibatch import Minibatch

__all__ = ["Exact", "Minibatch"]
