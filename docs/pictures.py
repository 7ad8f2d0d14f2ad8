"""Draws README's pictures, the moving one and what its program draws, and those of tutorial.md, training.md,
networks.md and federation.md, which needs Flower (make pictures).

Six methods descend from one starting point to one front. Each panel is one job of eight preferences (VLMOP2,
n = 20, with a starting point of FERERO's Figure 3). What is shown is what the jobs record: no run is chosen,
and no path is smoothed.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import mobench
from mobench.artifacts import style as st
from mobench.artifacts.rows import JobRows
from mobench.problems import VLMOP2

METHODS: dict[str, list[str]] = {
    "linear scalarization": ["algorithm=ls"],
    "MGDA": ["algorithm=mgda"],
    "Tchebycheff": ["algorithm=tch"],
    "PMTL": ["algorithm=pmtl"],
    "EPO": ["algorithm=epo"],
    "FERERO": ["algorithm=ferero", "algorithm.subproblem=exact"],
}
FEDERATIONS = {"fedavg": "FedAvg", "fedmgda_plus": "FedMGDA+", "omd_tch": "OMD-TCH"}
RAYS = (84.0, 73.0, 62.0, 51.0, 39.0, 28.0, 17.0, 6.0)  # degrees
ROOT = Path(__file__).resolve().parents[1]
STEPS = 500
FRAMES = 44
REST = 16  # frames at the end
MILLISECONDS = 80
COLOURS = 96  # of the palette
DPI = 110


def jobs() -> dict[str, JobRows]:
    """Runs the jobs, or loads what an earlier call has run."""
    common = [
        "protocol=ferero_fig3",
        "problem.start.per_preference=false",
        f"preferences.rays_deg={list(RAYS)}",
        "seeds=[0]",
        f"steps={STEPS}",
    ]
    common += ["record.every=1", "logger=local", "progress=false"]
    return {name: mobench.load(mobench.run(*common, *chosen)) for name, chosen in METHODS.items()}


def colours() -> list[Any]:
    """Returns one colour for each preference, in the order of the rays: those of all figures."""
    return [st.preference(angle) for angle in RAYS]


def prepared(found: dict[str, JobRows]) -> tuple[Any, list[tuple[np.ndarray, list[Any], list[Any]]]]:
    """Returns the figure with all that does not move, and by panel the paths and what shows them."""
    fig, axes = st.plt.subplots(2, 3, figsize=(7, 4.75), layout="constrained", sharex=True, sharey=True)
    palette = colours()
    shown = []
    for ax, (name, job) in zip(axes.flat, found.items(), strict=True):
        st.draw_front(ax, VLMOP2().front(2001).numpy())
        for angle, colour in zip(RAYS, palette, strict=True):
            ray = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
            st.draw_ray(ax, ray, color=colour, alpha=0.45)
        ax.set_xlim(-0.03, 1.08)
        ax.set_ylim(-0.03, 1.08)
        ax.set_aspect("equal")
        ax.set_title(name)
        ax.set_xticks([0, 0.5, 1])
        ax.set_yticks([0, 0.5, 1])
        lines = [ax.plot([], [], color=c, lw=1.1, alpha=0.8)[0] for c in palette]
        points = [
            ax.plot([], [], "o", ms=5.5, color=c, mec="white", mew=0.5, zorder=5, clip_on=False)[0]
            for c in palette
        ]
        shown.append((job.paths(), lines, points))
    fig.supxlabel("$f_1$", fontsize=9)
    fig.supylabel("$f_2$", fontsize=9)
    return fig, shown


def frame(fig: Any, shown: list[tuple[np.ndarray, list[Any], list[Any]]], step: int) -> Image.Image:
    """Returns the picture after so many steps."""
    fig.suptitle(
        f"Eight preferences (dashed rays) and the Pareto front (black): step {step} of {STEPS}", fontsize=9.5
    )
    for paths, lines, points in shown:
        for path, line, point in zip(paths, lines, points, strict=True):
            line.set_data(*path[: step + 1].T)
            point.set_data(*path[step : step + 1].T)
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=DPI, facecolor="white", bbox_inches=None)
    return Image.open(buffer).convert("RGB")


def descent(target: Path) -> None:
    """Writes the moving picture; its last frame has all colours, so it gives the palette of all."""
    fig, shown = prepared(jobs())
    steps = np.unique(np.round(np.linspace(0, STEPS**0.5, FRAMES) ** 2).astype(int))
    frames = [frame(fig, shown, int(step)) for step in (*steps, *[STEPS] * REST)]
    palette = frames[-1].quantize(COLOURS)
    small = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    small[0].save(
        target, save_all=True, append_images=small[1:], duration=MILLISECONDS, loop=0, optimize=True
    )
    st.plt.close(fig)
    print(f"{target}: {len(small)} frames, {target.stat().st_size / 1e6:.2f} MB")


def first(target: Path) -> None:
    """Writes the picture that README's program makes, by running that program."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(program.replace('"front.png"', f'"{target}", dpi={DPI}'), "README.md", "exec"), {})
    print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")


def tutorial(target: Path) -> None:
    """Writes the picture of docs/tutorial.md, by running its first two programs."""
    load, draw = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL)[:2]
    scope: dict[str, Any] = {}
    exec(compile(load, "tutorial.md", "exec"), scope)
    drawn = draw.replace('"paths.png"', f'"{target}", dpi={DPI}')
    exec(compile(drawn, "tutorial.md", "exec"), scope)
    print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")


def program(page: str) -> dict[str, Any]:
    """Returns the names of a page's first program after it has run."""
    text = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[0]
    scope: dict[str, Any] = {}
    exec(compile(text, page, "exec"), scope)
    return scope


def on_rays(target: Path, preferences: np.ndarray, ends: np.ndarray) -> None:
    """Writes a picture of end points, each with the ray of its preference."""
    fig, ax = st.plt.subplots(figsize=(4.4, 3.0), layout="constrained")
    distinct = list(dict.fromkeys(map(tuple, preferences.tolist())))
    for w1, w2 in distinct:
        colour = st.preference(float(np.degrees(np.arctan2(w1, w2))))
        st.draw_ray(ax, np.array([w2, w1]) / np.hypot(w1, w2), color=colour, alpha=0.6)
        own = ends[(preferences == (w1, w2)).all(1)]
        ax.plot(
            *own.T, "o", color=colour, mec="white", mew=0.5, ms=6.5, label=f"({w1:.2g}, {w2:.2g})", zorder=5
        )
    ax.set(xlim=(0, 0.65), ylim=(0, 0.65), xlabel="loss of sin(3x)", ylabel="loss of cos(3x)", aspect="equal")
    ax.legend(title="preference", loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False)
    fig.savefig(target, dpi=DPI, facecolor="white")
    st.plt.close(fig)
    print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")


def federations(target: Path) -> None:
    """Writes the picture of docs/federation.md: losses of the clients of its program, without a network."""
    sys.path.insert(0, str(ROOT))  # tests/flower_here.py is not part of the package
    from tests.flower_here import Here, documented

    fig, axes = st.plt.subplots(1, 3, figsize=(7, 2.4), layout="constrained", sharey=True)
    with documented(ROOT / "docs/federation.md") as (client, server):
        first = server.ArrayRecord(client.network().state_dict())
        for ax, (name, title) in zip(axes, FEDERATIONS.items(), strict=True):
            strategy = server.federation(name)
            nodes = [{"partition-id": m} for m in range(client.CLIENTS)]
            strategy.start(grid=Here(client.app, nodes), initial_arrays=first, num_rounds=30)
            losses = np.stack([r.losses.numpy() for r in strategy.rounds])
            rounds = np.arange(1, len(losses) + 1)
            for m, path in enumerate(losses.T):
                last = m == client.CLIENTS - 1
                label = "client 4 (upside down)" if last else "clients 0 to 3" if m == 0 else None
                ax.plot(rounds, path, color="C3" if last else "0.6", lw=1.6 if last else 1.0, label=label)
            ax.set(title=title, xlabel="round", ylim=(0, None))
    axes[0].set_ylabel("training loss")
    axes[0].legend(frameon=False, fontsize=8)
    fig.savefig(target, dpi=DPI, facecolor="white")
    st.plt.close(fig)
    print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")


def loops(target: Path) -> None:
    """Writes the picture of docs/training.md."""
    scope = program("docs/training.md")
    on_rays(target, np.array(scope["preferences"]), scope["ends"].numpy())


def networks(target: Path) -> None:
    """Writes the picture of docs/networks.md."""
    rows = program("docs/networks.md")["rows"]
    on_rays(target, rows[["preference_1", "preference_2"]].to_numpy(), rows[["f_1", "f_2"]].to_numpy())


def main() -> None:
    """Writes all into docs/images."""
    folder = ROOT / "docs/images"
    folder.mkdir(exist_ok=True)
    descent(folder / "descent.gif")
    first(folder / "first.png")
    tutorial(folder / "tutorial.png")
    loops(folder / "training.png")
    networks(folder / "networks.png")
    federations(folder / "federation.png")


if __name__ == "__main__":
    main()
