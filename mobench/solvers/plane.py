"""Programs of two objectives on the host by compiled functions, with the numbers of the array formulas.

Each function returns None where the formula has to answer: for a GPU's tensors, and before a process has
solved so many programs that loading pays (`mobench.kernels.native`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mobench.kernels.native import native
from mobench.solvers.solution import Solution

FILE = "solvers.kernels.plane"


def _compiled(name: str, like: Tensor) -> Callable[..., object] | None:
    if like.device.type != "cpu":
        return None
    calls = native(FILE)
    return None if calls is None else calls[name]


def _flat(x: Tensor, R: int) -> Tensor:
    """x as the functions read it: float64 in one piece, R runs; not copied if it is so already."""
    if x.dtype == torch.float64 and len(x) == R and x.is_contiguous():
        return x
    return x.detach().double().expand(R, *x.shape[1:]).contiguous()


def _room(R: int) -> Solution:
    """An empty solution that a function fills."""
    x = torch.empty(R, 2, dtype=torch.float64)
    return Solution(x, torch.empty(R, dtype=torch.float64), torch.empty(R, dtype=torch.bool))


def _places(answer: Solution) -> tuple[int, int, int]:
    return answer.x.data_ptr(), answer.residual.data_ptr(), answer.failed.data_ptr()


def _rounded(answer: Solution, dtype: torch.dtype) -> Solution:
    if dtype == torch.float64:
        return answer
    return Solution(answer.x.to(dtype), answer.residual.to(dtype), answer.failed)


def min_norm(G: Tensor) -> Solution | None:
    """`mobench.solvers.min_norm` of two rows."""
    function = _compiled("min_norm", G)
    if function is None:
        return None
    g = _flat(G, len(G))
    answer = _room(len(G))
    function(g.data_ptr(), len(G), *_places(answer))
    return _rounded(answer, G.dtype)


def qp(Q: Tensor, b: Tensor | None, a: Tensor, r: Tensor | None) -> Solution | None:
    """`mobench.solvers.qp` of two variables >= 0 with a'x = r."""
    function = _compiled("qp", Q)
    if function is None:
        return None
    R = len(Q)
    q = _flat(Q, R)
    weights = _flat(a, R)
    share = torch.ones(R, dtype=torch.float64) if r is None else _flat(r, R)
    linear = weights if b is None else _flat(b, R)  # any address if there is none
    answer = _room(R)
    function(
        q.data_ptr(), linear.data_ptr(), weights.data_ptr(), share.data_ptr(), b is not None, R,
        *_places(answer),
    )  # fmt: skip
    return _rounded(answer, Q.dtype)


def epo_lp(K: Tensor, Ca: Tensor, balance: Tensor, jstar: Tensor, restricted: bool) -> Solution | None:
    """`mobench.solvers.epo_lp` of two objectives."""
    function = _compiled("epo_lp", K)
    if function is None:
        return None
    R = len(K)
    k = _flat(K, R)
    c = _flat(Ca, R)
    mode = balance.contiguous()
    worst = jstar.long().contiguous()
    answer = _room(R)
    function(k.data_ptr(), c.data_ptr(), mode.data_ptr(), worst.data_ptr(), restricted, R, *_places(answer))
    return _rounded(answer, K.dtype)


def ferero_dual(
    K: Tensor, F: Tensor, rows: Tensor, bh: Tensor, c_h: float, adaptive: bool
) -> Solution | None:
    """`mobench.solvers.dual.ferero_dual` of two objectives, one equality and two rows of A."""
    function = _compiled("ferero_dual", K)
    if function is None:
        return None
    R = len(K)
    k = _flat(K, R)
    f = _flat(F, R)
    A = _flat(rows, R)
    offset = _flat(bh, R)
    answer = _room(R)
    function(k.data_ptr(), f.data_ptr(), A.data_ptr(), offset.data_ptr(), c_h, adaptive, R, *_places(answer))
    return Solution(answer.x.to(K.dtype), answer.residual, answer.failed)


def sector(U: Tensor, v: Tensor, G: Tensor, F: Tensor, objectives: bool) -> Solution | None:
    """`mobench.solvers.sector.sector_min_norm` of two objectives."""
    function = _compiled("sector", G)
    if function is None:
        return None
    R = len(G)
    u = _flat(U, len(U))
    rays = _flat(v, R)
    g = _flat(G, R)
    f = _flat(F, R)
    room = torch.empty(16, dtype=torch.float64)
    place = room.data_ptr()
    answer = _room(R)
    function(
        u.data_ptr(), len(U), rays.data_ptr(), g.data_ptr(), f.data_ptr(), objectives, R,
        place, place + 64, place + 96, *_places(answer),
    )  # fmt: skip
    return _rounded(answer, G.dtype)
