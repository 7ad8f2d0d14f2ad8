"""FERERO's preferences as batched matrices: ordering cones {y : A y >= 0}, lines and thresholds (B, b).

Relative preference: A, rows of unit norm. Absolute preference: H = B_h F + b_h = 0 and G = B_g F + b_g <= 0.
Source: FERERO paper, Sections 2 and 3.3, eq. (3.5), Appendix B.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.errors import ConfigError


def unit_rows(A: Float[Tensor, "*R n M"]) -> Float[Tensor, "*R n M"]:
    """Rows scaled to unit norm."""
    return A / torch.linalg.vector_norm(A, dim=-1, keepdim=True)


def cone_from_rays(Y: Float[Tensor, "*R M M"]) -> Float[Tensor, "*R M M"]:
    """A of the simplicial cone {l_1 y_1 + ... + l_M y_M, l >= 0}; the rows of Y are the extreme rays y_m.

    Facet m is spanned by all y_j with j != m, so A is the inverse of the matrix with columns y_m, rows scaled
    to unit norm. Departure from (3.5) as printed, which lacks the condition that the normal is not zero.
    """
    inverse, info = torch.linalg.inv_ex(Y.mT)
    if bool((info != 0).any()) or not bool(torch.isfinite(inverse).all()):
        raise ConfigError(
            "The extreme rays of the preference cone are linearly dependent; give M independent rays."
        )
    return unit_rows(inverse)


def cone_with_ascent(y: Float[Tensor, " M"]) -> Float[Tensor, "n M"]:
    """A of the conic hull of the Pareto cone and the ray y = F_0 - F_target (controlled ascent).

    Facets are found among the hyperplanes through M - 1 of the rays {e_1, .., e_M, y}: a candidate normal is
    kept if it has one sign on all rays. y >= 0 gives A = I. Raises ConfigError if the hull is not pointed.
    """
    M = len(y)
    y = y / torch.linalg.vector_norm(y)
    eye = torch.eye(M, dtype=y.dtype, device=y.device)
    if bool((y >= 0).all()):
        return eye
    if bool((y <= 0).all()):
        raise ConfigError(
            "Controlled ascent towards a target that is worse in every objective turns the cone into a half "
            "space; choose a target that improves at least one objective."
        )
    rays = torch.cat([eye, y.unsqueeze(0)])
    tol = 1e-12
    facets: list[Tensor] = []
    for chosen in combinations(range(M + 1), M - 1):
        normal = torch.linalg.svd(rays[list(chosen)])[2][-1]
        side = rays @ normal
        if int((side > tol).sum()) == 0:
            normal = -normal
            side = -side
        if bool((side >= -tol).all()) and bool((side > tol).any()):
            normal = torch.where(normal.abs() < tol, 0.0, normal)
            if not any(torch.allclose(normal, f, atol=1e-9) for f in facets):
                facets.append(normal)
    return unit_rows(torch.stack(facets))


def line_basis(v: Float[Tensor, "R M"]) -> Float[Tensor, "R M-1 M"]:
    """Orthonormal rows that span the complement of v.

    |B_h (F - z)| is the distance of F to the line {z + s v}. M = 2: [v_2, -v_1] / |v|. M > 2: rows 2..M of
    the Householder matrix that sends v / |v| to e_1.
    """
    v = v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    M = v.shape[-1]
    if M == 2:
        return torch.stack([v[:, 1], -v[:, 0]], dim=-1).unsqueeze(1)
    # reflect to -sign(v_1) e_1: the rows of the complement are the same and nothing cancels
    sign = torch.where(v[:, :1] >= 0, 1.0, -1.0)
    u = v.clone()
    u[:, :1] += sign
    eye = torch.eye(M, dtype=v.dtype, device=v.device)
    reflection = eye - 2.0 * u.unsqueeze(2) * u.unsqueeze(1) / u.square().sum(-1)[:, None, None]
    return reflection[:, 1:]


def rows_of(matrix: Sequence[Sequence[float | int]], M: int, what: str, like: Tensor) -> Float[Tensor, "n M"]:
    """A list of rows of M numbers as a tensor."""
    if len(matrix) == 0 or any(len(row) != M for row in matrix):
        raise ConfigError(f"algorithm.{what} must be a non-empty list of rows with M={M} numbers each.")
    return torch.tensor([[float(x) for x in row] for row in matrix], dtype=torch.float64).to(like)
