"""Batched conjugate gradients:  H v = b,  H symmetric positive definite, a function of columns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.errors import SolverError

SETTLED = 1e-28  # squared residual at which a column is solved


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    b: Float[Tensor, "R k q"],
    start: Float[Tensor, "R k q"] | None = None,
    steps: int = 10,
    relative: Float[Tensor, "R k"] | None = None,
    strict: bool = True,
) -> Float[Tensor, "R k q"]:
    """`steps` steps of conjugate gradients on H v = b, column by column of R x k.

    apply: V -> H V. start: first guess (None: 0); a solution is returned unchanged. A column stops for good
    when its squared residual is below 1e-28, or its residual below `relative` times |b|. Exact after q steps
    up to rounding (Hestenes and Stiefel 1952).

    Raises SolverError where p'Hp <= 0 for a search direction p: H is not positive definite; with `strict`
    false the column stops there instead. A column whose numbers are not finite does not move, and is no
    reason to stop.
    """
    v = torch.zeros_like(b) if start is None else start
    r = b - apply(v) if start is not None else b
    p = r
    rho = (r * r).sum(-1)
    enough = torch.full_like(rho, SETTLED)
    if relative is not None:
        enough = torch.maximum(enough, relative.square() * (b * b).sum(-1))
    stuck = torch.zeros_like(rho, dtype=torch.bool)
    for _ in range(steps):
        active = (rho > enough) & torch.isfinite(rho) & ~stuck
        if not bool(active.any()):
            break
        Hp = apply(p)
        curvature = (p * Hp).sum(-1)
        negative = active & (curvature <= 0)
        if not strict:
            stuck = stuck | negative
            active = active & ~negative
        elif bool(negative.any()):
            run, column = (int(i) for i in negative.nonzero()[0])
            quotient = float(curvature[run, column] / (p * p).sum(-1)[run, column])
            raise SolverError(
                f"Conjugate gradients found a direction of curvature {quotient:.2e} <= 0 (run {run}, column "
                f"{column + 1}), so the lower level is not strongly convex in y there. A larger regulariser "
                "may help, and oracle.method=itd does not need convexity. Runs are numbered from 0, and "
                "the other runs can be run without this one."
            )
        alpha = torch.where(active, rho / curvature, 0.0).unsqueeze(-1)
        v = v + alpha * p
        r = r - alpha * Hp
        fresh = (r * r).sum(-1)
        p = r + torch.where(active, fresh / rho, 0.0).unsqueeze(-1) * p
        rho = torch.where(active, fresh, rho)
    return v
