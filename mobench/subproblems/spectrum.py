"""Eigenvectors of Gram matrices, with the rank that rounding leaves and a certificate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mobench.core.arrays import Array, arrays, tensor
from mobench.subproblems.host import on_host
from mobench.subproblems.solution import TINY, TOLERANCE

RANK = 1e-12
"""Eigenvalues below this share of the largest are what rounding leaves of zeros."""


class Spectrum(NamedTuple):
    """G = V diag(values) V' of each run, eigenvalues in ascending order.

    values (R, M); vectors (R, M, M), in columns; kept (R, M): whether an eigenvalue counts; residual (R,):
    the largest entry of G V - V diag(values), relative to the largest eigenvalue, or of V'V - 1; NaN where
    G is not finite, as are values and vectors there. failed (R,): a finite G with a residual above
    `TOLERANCE`.
    """

    values: Float[Tensor, "R M"]
    vectors: Float[Tensor, "R M M"]
    kept: Bool[Tensor, "R M"]
    residual: Float[Tensor, " R"]
    failed: Bool[Tensor, " R"]

    def apply(self, f: Float[Tensor, "R M"], x: Float[Tensor, "R M"]) -> Float[Tensor, "R M"]:
        """V diag(f) V' x over the eigenvalues that count."""
        inside = torch.where(self.kept, f, 0.0) * (self.vectors.mT @ x.unsqueeze(-1)).squeeze(-1)
        return (self.vectors @ inside.unsqueeze(-1)).squeeze(-1)


@on_host()
def spectrum(G: Float[Tensor, "R M M"]) -> Spectrum:
    """Eigenvalues and eigenvectors of R symmetric positive semidefinite matrices."""
    xp, (G_,) = arrays(G)
    with np.errstate(all="ignore"):
        probe = G_.sum((1, 2))
        poison = probe - probe  # 0, or NaN
        good = poison == 0
        if not good.all():
            G_ = xp.where(good[:, None, None], G_, 0.0)
        values, vectors = xp.linalg.eigh(G_)
        top = values[:, -1:]
        off = abs(G_ @ vectors - vectors * values[:, None, :])
        residual = _largest(xp, off) / (top[:, 0] + TINY)
        M = G_.shape[1]
        skew = xp.swapaxes(vectors, 1, 2) @ vectors
        skew = skew - (np.eye(M) if xp is np else torch.eye(M, dtype=G_.dtype, device=G_.device))
        residual = xp.maximum(residual, _largest(xp, abs(skew))) + poison
        kept = (values > RANK * top) & (top > 0)
        return Spectrum(
            tensor(values + poison[:, None], G.dtype),
            tensor(vectors + poison[:, None, None], G.dtype),
            tensor(kept),
            tensor(residual, G.dtype),
            tensor(residual > TOLERANCE),
        )


def _largest(xp: object, x: Array) -> Array:
    """Of each run."""
    return x.reshape(len(x), -1).max(1) if isinstance(x, np.ndarray) else x.flatten(1).amax(1)
