"""Decides how the pictures of Multi-MNIST are made by networks that the authors trained on theirs (ours).

docs/multi_mnist.md has the criterion, which was written before the networks were run. The networks' losses
by position are rows that come with the project (`witnesses`). A recipe draws both positions uniformly
and independently, so its loss is the mean over its positions. The check is on what was not fitted: networks
trained on the recovered pictures against the published curves of all six single-task runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from mobench.artifacts import Artifact, JobRows, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, AtMost, Check, Equal, Graded, Largest, Within
from mobench.artifacts.published import published
from mobench.data.multi import FIRST, SECOND, SHIFT
from mobench.system.files import read_csv

from .images import MEASURES, SETS, on_papers_pictures, pictures_of
from .witnesses import EVERYWHERE, table

DRAWN = ((3, 7), (2, 5), (4, 7), (2, 8), (4, 8), (2, 7), (3, 6), (4, 5), (4, 7))  # of nine training pictures
TENTH = 7  # b - a of one more
BY = {"loss": 0.02, "accuracy": 0.01}
CURVE = 0.03
FROM = 10  # the first epoch at which curves are compared
EPOCH = 469  # steps
TASKS = ("1", "2")
OTHER = "The published curves belong to the paper's pictures at the paper's scale."


@dataclass(frozen=True)
class Recipe:
    """Ranges of a and b, both ends included, and how the two are joined."""

    a: tuple[int, int] = FIRST
    b: tuple[int, int] = SECOND
    join: str = "sum"

    def __str__(self) -> str:
        return f"a in {self.a[0]}..{self.a[1]}, b in {self.b[0]}..{self.b[1]}, {self.join}"

    @property
    def positions(self) -> list[tuple[int, int]]:
        (a0, a1), (b0, b1) = self.a, self.b
        return list(product(range(a0, a1 + 1), range(b0, b1 + 1)))


CHOSEN = Recipe()
CANDIDATES = (CHOSEN, Recipe(a=(0, 4)), Recipe(a=(2, 4)), Recipe(b=(4, 8)), Recipe(join="maximum"))


@dataclass(frozen=True)
class Score:
    """Loss and accuracy of a network on a recipe's pictures; error: standard error of the loss."""

    loss: float
    accuracy: float
    error: float


@artifact("ferero/positions")
def positions(a: Artifact) -> None:
    """Losses of the authors' networks by position, and below them curves of networks that we trained."""
    rows = read_csv(table(), comment="#")
    curves = {key: jobs for key in SETS if (jobs := recorded(a, key))}
    fig, axes = st.panels(2 if curves else 1, len(SETS), figsize=(9.0, 5.6 if curves else 3.1))
    for ax, key in zip(axes[0], SETS, strict=True):
        values = losses(rows, key, *EVERYWHERE[key])["loss"].unstack("b").to_numpy()
        ax.imshow(values, cmap="viridis_r", norm="log", vmin=0.15, vmax=5.0, origin="lower")
        for (i, j), value in np.ndenumerate(values):
            look = {
                "ha": "center",
                "va": "center",
                "fontsize": 5.5,
                "color": "w" if value > 1.0 else st.BLACK,
            }
            ax.text(
                j, i, f"{value:.{2 if value < 1 else 1 if value < 9.95 else 0}f}".removeprefix("0"), **look
            )
        corner = SECOND[0] - 0.5, FIRST[0] - 0.5
        size = SECOND[1] - SECOND[0] + 1, FIRST[1] - FIRST[0] + 1
        ax.add_patch(frame(corner, *size))
        if key == "mm":
            ax.plot(
                [b for _, b in DRAWN], [i for i, _ in DRAWN], ls="", marker="o", ms=11, mfc="none", mec="w"
            )
        ax.set_title(f"{SETS[key]}\n{score(rows, key, CHOSEN).loss:.3f}, published {theirs(key, 'loss'):.3f}")
        ax.set_xlabel("b, position of item 2")
        ax.set_ylabel("a, position of item 1")
    for column, key in enumerate(SETS if curves else ()):
        draw_curves(axes[1, column], key, curves.get(key, {}))
    a.figure(fig)
    fitted = fitting(rows)
    others = [recipe for recipe in CANDIDATES if recipe not in fitted]
    a.table([printed(), *(line(rows, recipe) for recipe in [*fitted, *others])])
    for key, name in SETS.items():
        a.check("{key}-fit", fits(rows, key, CHOSEN), key=key, name=name)
    judge_range(a, rows)
    for key, jobs in curves.items():
        with pictures_of(a, key):
            judge_curves(a, key, jobs)
    a.note(
        "Above: mean test loss of the network that the authors trained for task 2, by the diagonal positions "
        "a of item 1 and b of item 2; frame: the positions of the recipe; circles: those of nine training "
        "pictures of the authors' Multi-MNIST. The same 20,000 pairs of official test images at every "
        "position, whatever data the jobs have. "
        "Published values are of the authors' 20,000 test pictures."
    )
    if curves:
        a.note("Below: test losses of networks for one task that were trained on the recipe's pictures.")


def losses(rows: pd.DataFrame, key: str, join: str, partner: str) -> pd.DataFrame:
    """Returns the rows of a set, a join and a kind of partner by position (a, b)."""
    kind = (rows["set"] == key) & (rows["join"] == join) & (rows["partner"] == partner)
    return rows[kind].set_index(["a", "b"])


def score(rows: pd.DataFrame, key: str, recipe: Recipe, partner: str = "") -> Score:
    """Returns what a network scores on a recipe's pictures, each at one of its positions."""
    at_positions = losses(rows, key, recipe.join, partner or EVERYWHERE[key][1]).loc[recipe.positions]
    mean = float(at_positions["loss"].mean())
    square = float((at_positions["std"] ** 2 + at_positions["loss"] ** 2).mean())
    error = np.sqrt((square - mean**2) / at_positions["pairs"].iloc[0])
    return Score(mean, float(at_positions["accuracy"].mean()), float(error))


def theirs(key: str, measure: str, task: str = "2", epoch: int = 100) -> float:
    cells = published("ferero/single_task_curves").where(row=SETS[key], column=f"task {task}")
    return cells.number(metric=f"test {measure} after {epoch} epoch{'s' if epoch > 1 else ''}")


def fits(rows: pd.DataFrame, key: str, recipe: Recipe) -> Check:
    """Asks that the network scores its published values on a recipe's pictures."""
    achieved = score(rows, key, recipe)
    ours = {"loss": achieved.loss, "accuracy": achieved.accuracy}
    near = [Within(ours[m], theirs(key, m), BY[m], of=m, to="published", digits=".4f") for m in MEASURES]
    return AllOf(*near).also(f"standard error of the loss {achieved.error:.4f}")


def likelihood(rows: pd.DataFrame, recipe: Recipe) -> float:
    """Returns the logarithm of the likelihood of the ten pairs (a, b) and of the three losses.

    It is -inf where a pair is impossible.
    """
    possible = recipe.positions
    tenth = sum(b - a == TENTH for a, b in possible)
    if not tenth or not set(DRAWN) <= set(possible):
        return -np.inf
    total = np.log(tenth) - (len(DRAWN) + 1) * np.log(len(possible))
    for key in SETS:
        achieved = score(rows, key, recipe)
        total -= 0.5 * (achieved.loss - theirs(key, "loss")) ** 2 / (2 * achieved.error**2)
    return float(total)


def recipes(join: str = "sum") -> Iterator[Recipe]:
    """All ranges of a within 0..4 and of b within 4..8."""
    for a0, a1 in product(range(5), repeat=2):
        for b0, b1 in product(range(4, SHIFT + 1), repeat=2):
            if a0 <= a1 and b0 <= b1:
                yield Recipe((a0, a1), (b0, b1), join)


def fitting(rows: pd.DataFrame) -> list[Recipe]:
    """Returns the recipes that fit all three networks and allow all ten pictures, the likeliest first."""
    accepted = [
        recipe
        for join in ("sum", "maximum")
        for recipe in recipes(join)
        if likelihood(rows, recipe) > -np.inf and all(fits(rows, key, recipe).holds for key in SETS)
    ]
    return sorted(accepted, key=lambda recipe: -likelihood(rows, recipe))


def printed() -> dict[str, Any]:
    cells: dict[str, Any] = {"recipe": "published"}
    for key, name in SETS.items():
        cells |= {f"{name}, {measure}": theirs(key, measure) for measure in MEASURES}
    return cells


def line(rows: pd.DataFrame, recipe: Recipe) -> dict[str, Any]:
    cells: dict[str, Any] = {"recipe": str(recipe)}
    for key, name in SETS.items():
        of = score(rows, key, recipe)
        kind = "any" if EVERYWHERE[key][1] == "other" else "other"
        cells |= {
            f"{name}, loss": of.loss,
            f"{name}, accuracy": of.accuracy,
            f"{name}, standard error": of.error,
            f"{name}, loss with partners of {kind} class": score(rows, key, recipe, kind).loss,
        }
    return cells | {"log likelihood": likelihood(rows, recipe)}


def judge_range(a: Artifact, rows: pd.DataFrame) -> None:
    every = {str(recipe): likelihood(rows, recipe) for recipe in fitting(rows)}
    if str(CHOSEN) not in every:
        a.check("range", Equal({"recipe that fits": str(CHOSEN)}, {"recipe that fits": ", ".join(every)}))
        return
    first = Largest(every, str(CHOSEN), of="log likelihood", digits=".1f")
    rest = [value for name, value in every.items() if name != str(CHOSEN)]
    apart = np.exp(max(rest, default=-np.inf) - every[str(CHOSEN)])
    alone = AtMost(float(apart), 0.1, of="likelihood of the next one, relative", digits=".3f")
    a.check("range", Graded(AllOf(first, alone), first))


def recorded(a: Artifact, key: str) -> dict[str, JobRows]:
    """Returns the single-task jobs of a set that recorded a curve, by task."""
    jobs = {task: job for task in TASKS if (job := a.jobs.get(f"{key}_{task}")) is not None}
    return {task: job for task, job in jobs.items() if job.history["step"].nunique() > 2}


def curve(job: JobRows) -> pd.Series:
    rows = job.history
    rows = rows[(rows["step"] > 0) & (rows["step"] % EPOCH == 0)]
    return pd.Series(rows["test_loss_1"].to_numpy(), index=rows["step"].to_numpy() // EPOCH)


def their_curve(key: str, task: str) -> pd.Series:
    epochs = [1, *range(2, 101, 2)]
    return pd.Series([theirs(key, "loss", task, epoch) for epoch in epochs], index=epochs)


def judge_curves(a: Artifact, key: str, jobs: dict[str, JobRows]) -> None:
    apart = {}
    for task, job in jobs.items():
        gap = (curve(job) - their_curve(key, task)).loc[FROM:].dropna().abs()
        apart[f"task {task}"] = float(gap.max())
    near = AtMost(apart, CURVE, of=f"largest difference of the test loss from epoch {FROM} on", digits=".3f")
    whole = len(jobs) == len(TASKS) and all(on_papers_pictures(a, key, job) for job in jobs.values())
    a.check("{key}-curves", near.provided(whole, OTHER), key=key, name=SETS[key])


def frame(corner: tuple[float, float], width: float, height: float) -> Any:
    """Returns the frame of the recipe's positions."""
    from matplotlib.patches import Rectangle

    return Rectangle(corner, width, height, fill=False, ec="crimson", lw=1.5)


def draw_curves(ax: Any, key: str, jobs: dict[str, JobRows]) -> None:
    """Draws test losses of both tasks over epochs, ours and the published ones."""
    for task, colour in zip(TASKS, (st.BLACK, st.GREY), strict=True):
        if task in jobs:
            ax.plot(curve(jobs[task]), color=colour, label=f"task {task}")
        paper = their_curve(key, task)
        ax.plot(paper, ls="", marker="x", ms=3, color=colour, label=f"task {task}, published")
    ax.set_xlabel("epochs")
    ax.set_ylabel("test loss")
    ax.set_ylim(0.1, 1.0)
    ax.legend(fontsize=6)
