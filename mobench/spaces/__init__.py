"""Decision variables a instead of theta: an oracle of a problem's variables, presented as an oracle of few or
of bounded ones.

May import: core, oracles, errors.
"""

from mobench.spaces.full import Boxed
from mobench.spaces.head_bias import HeadBias
from mobench.spaces.hybrid import Hybrid
from mobench.spaces.subspace import Subspace

__all__ = ["Boxed", "HeadBias", "Hybrid", "Subspace"]
