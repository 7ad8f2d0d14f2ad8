"""Figures 1, 2 and 7: what preferences and scales are, drawn from the matrices that the algorithm uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_geometry import cone_from_rays
from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Above, AllOf, AtLeast, Below
from mobench.core.preferences import from_rays_deg, ray
from mobench.problems import VLMOP2

from .runs import context
from .trajectories import COLOURS, draw_path, front, key_of_paths

THRESHOLDS = (0.2, 0.4, 0.6, 0.8)
RAYS = (81.0, 57.0, 33.0, 9.0)  # degrees
LINE = np.array(
    [[0.9391880627, 0.9391880627], [0.6321205588, 0.6321205588]]
)  # of Figure 7: two of its points


@artifact("ferero/fig1")
def fig1(a: Artifact) -> None:
    """Absolute preferences: thresholds f_2 <= eps, and rays."""
    fig, ((left, right),) = st.panels(1, 2)
    residual = max(draw_thresholds(left), draw_rays(right))
    st.caption(fig, "Black: the Pareto front of VLMOP2. Dots: its points that satisfy a dashed preference.")
    a.figure(fig)
    a.check(
        "lines-are-constraints",
        Below(residual, 1e-12, of="largest |B F + b| on the drawn lines", digits=".1e"),
    )


def draw_thresholds(ax: Any) -> float:
    """Draws f_2 <= eps and the best point of each; returns the largest |B_g F + b_g| of the lines."""
    F = front()
    residual = 0.0
    st.objective_axes(ax)
    st.draw_front(ax, F)
    start = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    for eps, colour in zip(THRESHOLDS, COLOURS, strict=True):
        state = FERERO(upper=(None, eps)).init(context(start, start))
        ax.axhline(eps, color=colour, ls=(0, (4, 3)), lw=1.0)
        x = np.linspace(0, 1, 11)
        drawn = np.stack([x, np.full_like(x, eps)], 1)
        G = drawn @ state["Bg"][0].numpy().T + state["bg"][0].numpy()
        residual = max(residual, float(np.abs(G).max()))
        best = F[F[:, 1] <= eps][np.argmin(F[F[:, 1] <= eps][:, 0])]
        ax.plot(*best, "o", color=colour, ms=5, zorder=5)
        place = {"xytext": (0, 3.5), "textcoords": "offset points", "fontsize": 7.5}
        ax.annotate(f"$f_2 \\leq {eps}$", (-0.08, eps), color=colour, **place)
    ax.set_title("(a) thresholds  $B_g F + b_g \\leq 0$")
    return residual


def draw_rays(ax: Any) -> float:
    """Draws the rays and where they meet the front; returns the largest |B_h F| of the rays."""
    F = front()
    residual = 0.0
    st.objective_axes(ax)
    st.draw_front(ax, F)
    w = from_rays_deg(RAYS)
    B = FERERO().init(context(torch.ones_like(w), w))["Bh"]
    for v, normal, colour in zip(ray(w).numpy(), B.numpy(), COLOURS, strict=True):
        st.draw_ray(ax, v, color=colour, lw=1.0)
        drawn = np.linspace(0, 1.4, 11)[:, None] * v
        residual = max(residual, float(np.abs(drawn @ normal.T).max()))
        hit = F[np.argmin(np.abs(F @ normal.T)[:, 0])]
        ax.plot(*hit, "o", color=colour, ms=5, zorder=5)
    ax.set_title("(b) rays  $B_h F = 0$")
    return residual


@artifact("ferero/fig2")
def fig2(a: Artifact) -> None:
    """The set F_0 - C_A that improves on F_0, for the Pareto cone and for a wider one."""
    wide = cone_from_rays(torch.tensor([[2.0, -1.0], [-1.0, 2.0]], dtype=torch.float64)).numpy()
    fig, ((left, right),) = st.panels(1, 2)
    part = draw_cone(left, np.eye(2), "(a) $A = I$")
    whole = draw_cone(right, wide, "(b) $A = [2, 1; 1, 2]/\\sqrt{5}$")
    left.legend(loc="lower left")
    st.caption(fig, "Grey: what improves on $F_0$ in the order of the matrix $A$.")
    a.figure(fig)
    a.check(
        "wider-cone",
        AllOf(
            Above(part, 0.0, of="share of the front with A = I", digits=".2f"),
            Below(part, 0.5, of="share of the front with A = I", digits=".2f"),
            AtLeast(whole, 1.0, of="with the wider cone", digits=".2f"),
        ),
    )


def draw_cone(ax: Any, A: np.ndarray, title: str) -> float:
    """Draws what improves on F_0; returns how much of the front that is, on a uniform grid of u."""
    u = torch.linspace(-1.0, 1.0, 2001, dtype=torch.float64)
    F = VLMOP2().front_point(u).numpy()
    F0 = np.array([0.8, 0.8])
    values = np.linspace(-0.1, 1.15, 501)
    X, Y = np.meshgrid(values, values)
    st.objective_axes(ax)
    margin = np.min([A[i, 0] * (F0[0] - X) + A[i, 1] * (F0[1] - Y) for i in range(2)], axis=0)
    ax.contourf(X, Y, margin, levels=[0.0, 10.0], colors=["#D9D9D9"], zorder=0)
    st.draw_front(ax, F)
    better = ((F0 - F) @ A.T >= 0).all(1)
    part = np.where(better[:, None], F, np.nan)
    ax.plot(*part.T, color=st.BLUE, lw=3.0, zorder=3, label="better than $F_0$")
    ax.plot(*F0, "o", color=st.GREEN, ms=6, zorder=5)
    ax.annotate("$F_0$", F0, xytext=(5, 5), textcoords="offset points")
    ax.set_title(title)
    return float(better.mean())


@artifact("ferero/fig7")
def fig7(a: Artifact) -> None:
    """Scaling objective 2 leaves the path in objective space where it was."""
    one = a.jobs["scale_1"].paths()[0]
    two = a.jobs["scale_2"].paths()[0]
    fig, ((left, right),) = st.panels(1, 2, size=3.0)
    for ax, path, s in ((left, one, 1.0), (right, two, 2.0)):
        st.objective_axes(ax, labels=("$f_1$", f"${'' if s == 1 else int(s)}f_2$"))
        ax.set_ylim(-0.1 * s, 1.15 * s)
        ax.set_aspect(1 / s)
        scale = np.array([1.0, s])
        st.draw_front(ax, front() * scale)
        start, end = LINE * scale
        st.draw_ray(ax, end - start, start, reach=0.5 * s)
        draw_path(ax, path)
        ax.set_title("FERERO, objectives as given" if s == 1 else f"FERERO, objective 2 times {int(s)}")
    key_of_paths(fig, (), others=False)
    a.figure(fig)
    back = two / np.array([1.0, 2.0])
    apart = {
        "of the end points": float(np.abs(one[-1] - back[-1]).max()),
        "of the polylines (Hausdorff distance)": max(directed(one, back), directed(back, one)),
    }
    check = Below(apart, 1e-3, of="difference", digits=".1e")
    a.claim(
        "curves-agree",
        check.also(f"largest pointwise difference {np.abs(one - back).max():.2g}").because(
            "pointwise differences are expected: step lengths differ"
        ),
    )


def directed(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the largest distance of a vertex of polyline a to the segments of polyline b."""
    p = b[:-1]
    d = b[1:] - p
    t = ((a[:, None] - p) * d).sum(-1) / np.maximum((d * d).sum(-1), 1e-300)
    nearest = p + np.clip(t, 0, 1)[..., None] * d
    return float(np.linalg.norm(a[:, None] - nearest, axis=-1).min(1).max())
