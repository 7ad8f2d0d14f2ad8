"""Figure 3: the directions of two objectives, min-norm, of weighted gradients (u = 0), and with u large."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.patheffects import withStroke

from mobench.algorithms.wc_mhgd import WCMHGD
from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, Below, Within
from mobench.artifacts.panels import dress

CENTRES = np.array([[-1.0, 0.2], [1.0, 0.4]])
SHAPES = np.array([[[1.0, 0.25], [0.25, 1.6]], [[1.4, -0.3], [-0.3, 0.9]]])
X0 = np.array([0.15, 1.9])
PREFERENCE = (0.7, 0.3)
LENGTH = 0.45  # of an arrow, times its direction


def value(p: np.ndarray, s: int) -> np.ndarray:
    """Returns phi_s at points (..., 2)."""
    e = p - CENTRES[s]
    out: np.ndarray = 0.5 * np.einsum("...i,ij,...j->...", e, SHAPES[s], e)
    return out


def gradients() -> torch.Tensor:
    """Returns the gradients at x_0, (2, 2), one row for each objective."""
    return torch.from_numpy(np.stack([SHAPES[s] @ (X0 - CENTRES[s]) for s in range(2)]))


def losses() -> torch.Tensor:
    return torch.tensor([[float(value(X0, s)) for s in range(2)]], dtype=torch.float64)


def direction(weights: torch.Tensor, u: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns d and lambda of the method's own program at x_0."""
    J = gradients()
    state = {"r": weights, "lam": weights}
    w, state, _ = WCMHGD(trade_off=u).weights(losses(), (J @ J.mT).unsqueeze(0), state, 0)
    return -(w @ J)[0].numpy(), state["lam"][0].numpy()


def draw_plane(ax: Any) -> None:
    """Draws level lines of both objectives, and the segments between their gradients."""
    points = np.stack(np.meshgrid(np.linspace(-2.4, 2.4, 200), np.linspace(-1.2, 2.6, 200)), axis=-1)
    levels = [0.1, 0.4, 0.9, 1.6, 2.5, 3.6]
    for s, color in enumerate((st.BLUE, st.GREY)):
        ax.contour(
            points[..., 0], points[..., 1], value(points, s), levels=levels, colors=color, linewidths=0.7
        )
        ax.plot(*CENTRES[s], marker="x", color=color)
        halo = [withStroke(linewidth=2.5, foreground="white")]
        beside: dict[str, Any] = {"xytext": (4, 4), "textcoords": "offset points", "color": color}
        ax.annotate(rf"$\phi_{s + 1}$", CENTRES[s], path_effects=halo, zorder=5, **beside)
    J = gradients().numpy()
    for scales, color in (((1.0, 1.0), st.RED), (PREFERENCE, st.GREEN)):
        tips = [X0 - LENGTH * scale * J[s] for s, scale in enumerate(scales)]
        ax.plot(*zip(*tips, strict=True), color=color, lw=0.8, ls=(0, (4, 3)))
    dashed = {"color": st.GREY, "lw": 0.8, "ls": (0, (4, 3))}
    ax.plot([], [], label="dashed: weighted sums of the gradients", **dashed)


@artifact("mobl/fig3")
def fig3(a: Artifact) -> None:
    """The directions of two objectives: min-norm, min-norm of weighted gradients (u = 0), and u large."""
    r = torch.tensor([PREFERENCE], dtype=torch.float64)
    arrows = {
        "min-norm, no preference": (*direction(torch.ones_like(r), 0.0), st.RED),
        "weighted, $u = 0$": (*direction(r, 0.0), st.GREEN),
        "weighted, $u$ large": (*direction(r, 1e6), st.PURPLE),
    }
    fig, ((ax,),) = st.panels(1, 1, size=4.4)
    draw_plane(ax)
    for label, (d, _, color) in arrows.items():
        arrow = {"arrowstyle": "-|>", "color": color, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", X0 + LENGTH * d, X0, arrowprops=arrow)
        ax.plot([], [], color=color, lw=1.8, label=label)
    ax.plot(*X0, marker="o", color=st.BLACK, ms=4)
    ax.annotate("$x_0$", X0, xytext=(5, 4), textcoords="offset points")
    ax.set_aspect("equal")
    dress(ax, "$x_1$", "$x_2$", legend={"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2})
    first, second = PREFERENCE
    st.caption(
        fig,
        "Ellipses: levels of the two objectives. Arrows: directions. Preference: "
        f"$r = ({first:g}, {second:g})$, so $\\phi_1$ is the preferred objective.",
    )
    a.figure(fig)
    J = gradients().numpy()
    large, lam, _ = arrows["weighted, $u$ large"]
    vertex = Below(
        1 - float(lam[int((r * losses()).argmax())]), 1e-9, of="1 - lambda_s of that objective", digits=".1e"
    )
    a.check(
        "steepest", vertex.also(f"|d + r_1 grad phi_1| = {np.abs(large + r[0, 0].item() * J[0]).max():.1e}")
    )
    rates = [float(-J[s] @ arrows["weighted, $u = 0$"][0]) for s in range(2)]
    first, second = (rate * weight for rate, weight in zip(rates, PREFERENCE, strict=True))
    check = AllOf(
        Within(first, second, 1e-9, of="r_1 times the rate of phi_1", to="r_2 times the rate of phi_2"),
        Below(rates[0], rates[1], of="-<grad phi_1, d> (r = .7)", than="-<grad phi_2, d> (r = .3)"),
    )
    a.check("reversal", check)
    a.note(f"Computed with the method's own program; every arrow is {LENGTH:g} times its direction.")
