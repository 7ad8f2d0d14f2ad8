"""Oracles of few or of bounded variables a, made of oracles of a problem's variables theta.

May import: core, oracles, errors.
"""

from mobench.spaces.full import Boxed
from mobench.spaces.head_bias import HeadBias
from mobench.spaces.hybrid import Hybrid
from mobench.spaces.subspace import Subspace

__all__ = ["Boxed", "HeadBias", "Hybrid", "Subspace"]
