"""Projection onto the weighted simplex:  argmin_x 1/2 |x - y|^2  s.t.  x >= 0,  w'x = s."""

import torch
from jaxtyping import Float
from torch import Tensor


def project_weighted_simplex(
    y: Float[Tensor, "R n"], w: Float[Tensor, "R n"], s: Float[Tensor, "R 1"]
) -> Float[Tensor, "R n"]:
    """Nearest point of {x >= 0, w'x = s} for w >= 0, s >= 0.

        x = max(0, y - tau w),   tau such that w'x = s

    The support is a prefix of the entries sorted by y_i / w_i. Entries with w_i = 0 are not in the equality
    and are only clipped at 0 (FERERO at a weak optimum). If w = 0 and s > 0 the set is empty and the result
    NaN. So it is with more than two variables where an entry of w is negative: the rule below does not hold.
    Two variables:  x_1 : x_2 = (s w_1 + w_2 beta)+ : (s w_2 - w_1 beta)+  with  beta = w_2 y_1 - w_1 y_2.

    Source: the sorting rule of Held, Wolfe & Crowder 1974, here with weights.
    """
    if y.shape[1] == 2:
        y1, y2 = y.unbind(1)
        w1, w2 = w.unbind(1)
        r = s.squeeze(1)
        beta = w2 * y1 - w1 * y2
        v1 = (r * w1).addcmul_(w2, beta).clamp_(min=0)
        v2 = (r * w2).addcmul_(w1, beta, value=-1).clamp_(min=0)
        scale = r / (w1 * v1).addcmul_(w2, v2)
        x = torch.stack((v1 * scale, v2 * scale), 1)
        # of s = 0 only 0 is left where w > 0; the ratio would be 0 / 0
        return torch.where(s > 0, x, torch.where(w > 0, 0.0, y.clamp(min=0)))
    ratio = torch.where(w > 0, y / w, -torch.inf)
    ratio, order = ratio.sort(dim=1, descending=True)
    ys = y.gather(1, order)
    ws = w.gather(1, order)
    tau = ((ws * ys).cumsum(1) - s) / (ws * ws).cumsum(1)
    last = (ratio > tau).sum(1, keepdim=True).sub_(1).clamp_(min=0)
    x = (y - tau.gather(1, last) * w).clamp_(min=0)
    x = torch.where(s > 0, x, torch.where(w > 0, 0.0, y.clamp(min=0)))
    return torch.where((w < 0).any(1, keepdim=True), torch.nan, x)


def project_simplex(v: Float[Tensor, "R n"]) -> Float[Tensor, "R n"]:
    """Nearest point of the simplex {x >= 0, 1'x = 1}; see `project_weighted_simplex` with w = 1, s = 1."""
    if v.shape[1] == 2:
        v1, v2 = v.unbind(1)
        x1 = (v1 - v2).add_(1).mul_(0.5).clamp_(0, 1)
        return torch.stack((x1, 1 - x1), 1)
    # Shifting all entries changes nothing but rounding: with the largest at 0 the sums stay as small as
    # possible.
    v = v - v.amax(1, keepdim=True)
    u = v.sort(dim=1, descending=True).values
    k = torch.arange(1, v.shape[1] + 1, dtype=v.dtype, device=v.device)
    tau = (u.cumsum(1) - 1) / k
    last = (u > tau).sum(1, keepdim=True).sub_(1).clamp_(min=0)
    return (v - tau.gather(1, last)).clamp_(min=0)
