"""Engineering designs of the RE suite in closed form: variables in [0, 1], objectives in units of the front.

    f = (F(low + (high - low) x) - ideal) / (nadir - ideal),   F as Tanabe and Ishibuchi print it

Constraints g >= 0 of the original designs are the suite's last objective: sum_i max(-g_i, 0).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.problem import Problem
from mobench.core.sets import Box, Set
from mobench.errors import choose
from mobench.problems.curves import evenly

FRONTS = Path(__file__).with_name("re_fronts.csv")
ROOT2 = math.sqrt(2.0)
GAP = 5.0  # mm between RE33's radii; a design is feasible from 20
RATIO = 6.931  # of RE36's gears
Columns = Sequence[Tensor]


def _violation(*g: Tensor) -> Tensor:
    """sum_i max(-g_i, 0)."""
    return torch.stack(g, dim=-1).neg().clamp_min(0.0).sum(-1)


def four_bar_truss(x: Columns) -> list[Tensor]:
    """RE21: volume and displacement (F = 10, E = 2e5, L = 200)."""
    a, b, c, d = x
    volume = 200.0 * (2.0 * a + ROOT2 * b + c.sqrt() + d)
    return [volume, 0.01 * (2.0 / a + 2.0 * ROOT2 / b - 2.0 * ROOT2 / c + 2.0 / d)]


def reinforced_beam(x: Columns) -> list[Tensor]:
    """RE22: cost of concrete and steel; the area of the steel is continuous here."""
    a, b, c = x
    g = (a * c - 7.735 * a * a / b - 180.0, 4.0 - c / b)
    return [29.4 * a + 0.6 * b * c, _violation(*g)]


def pressure_vessel(x: Columns) -> list[Tensor]:
    """RE23: cost; the numbers of sixteenths of an inch of both walls are continuous here."""
    shell, head, r, length = 0.0625 * x[0], 0.0625 * x[1], x[2], x[3]
    cost = 0.6224 * shell * r * length + 1.7781 * head * r * r
    cost = cost + 3.1661 * shell * shell * length + 19.84 * shell * shell * r
    volume = math.pi * r * r * length + 4.0 / 3.0 * math.pi * r**3
    return [cost, _violation(shell - 0.0193 * r, head - 0.00954 * r, volume - 1296000.0)]


def hatch_cover(x: Columns) -> list[Tensor]:
    """RE24: weight."""
    a, b = x
    bending = 4500.0 / (a * b)
    buckling = 7000.0 * a * a
    deflection = 562000.0 / (700000.0 * a * b * b)
    g = (1.0 - bending / 700.0, 1.0 - 4.0 / b, 1.0 - deflection / 1.5, 1.0 - bending / buckling)
    return [a + 120.0 * b, _violation(*g)]


def coil_spring(x: Columns) -> list[Tensor]:
    """RE25: volume of wire; the number of coils and the diameter of the wire are continuous here."""
    n, D, d = x
    stress = (4.0 * D / d - 1.0) / (4.0 * D / d - 4.0) + 0.615 * d / D
    stiffness = 11.5e6 * d**4 / (8.0 * n * D**3)
    free = 1000.0 / stiffness + 1.05 * (n + 2.0) * d
    preload = 300.0 / stiffness
    travel = 700.0 / stiffness
    g = (
        189000.0 - 8000.0 * stress * D / (math.pi * d**3),
        14.0 - free,
        D / d - 3.0,
        6.0 - preload,  # the next constraint of the original is 0 = 0
        1.25 - travel,
    )
    return [0.25 * math.pi**2 * D * d * d * (n + 2.0), _violation(*g)]


def two_bar_truss(x: Columns) -> list[Tensor]:
    """RE31: volume and the stress of one bar."""
    a, b, y = x
    volume = a * (16.0 + y * y).sqrt() + b * (1.0 + y * y).sqrt()
    stress = 20.0 * (16.0 + y * y).sqrt() / (a * y)
    other = 80.0 * (1.0 + y * y).sqrt() / (b * y)
    return [volume, stress, _violation(0.1 - volume, 1e5 - stress, 1e5 - other)]


def welded_beam(x: Columns) -> list[Tensor]:
    """RE32: cost and deflection."""
    h, length, t, b = x
    cost = 1.10471 * h * h * length + 0.04811 * t * b * (14.0 + length)
    deflection = 4.0 * 6000.0 * 14.0**3 / (30e6 * b * t**3)
    arm = 0.25 * (h + t) ** 2
    R = (0.25 * length * length + arm).sqrt()
    J = 2.0 * ROOT2 * h * length * (length * length / 12.0 + arm)
    torsion = 6000.0 * (14.0 + 0.5 * length) * R / J
    shear = 6000.0 / (ROOT2 * h * length)
    tau = (shear * shear + shear * torsion * length / R + torsion * torsion).sqrt()
    sigma = 6.0 * 6000.0 * 14.0 / (b * t * t)
    buckling = 4.013 * 30e6 / 196.0 * (t * b**3 / 6.0) * (1.0 - t / 28.0 * math.sqrt(30.0 / 48.0))
    return [cost, deflection, _violation(13600.0 - tau, 30000.0 - sigma, b - h, buckling - 6000.0)]


def disc_brake(x: Columns) -> list[Tensor]:
    """RE33: mass and stopping time; the outer radius is at least 5 mm above the inner one here."""
    r, outer, force, n = x
    R = torch.maximum(outer, r + GAP)
    area = R * R - r * r
    reach = (R**3 - r**3) / area
    mass = 4.9e-5 * area * (n - 1.0)
    time = 9.82e6 / (force * n * reach)
    g = (
        R - r - 20.0,
        0.4 - force / (3.14 * area),
        1.0 - 2.22e-3 * force * reach / area,
        2.66e-2 * force * n * reach - 900.0,
    )
    return [mass, time, _violation(*g)]


def crashworthiness(x: Columns) -> list[Tensor]:
    """RE34: mass, acceleration and intrusion of a vehicle."""
    a, b, c, d, e = x
    mass = 1640.2823 + 2.3573285 * a + 2.3220035 * b + 4.5688768 * c + 7.7213633 * d + 4.4559504 * e
    acceleration = 6.5856 + 1.15 * a - 1.0427 * b + 0.9738 * c + 0.8364 * d - 0.3695 * a * d
    acceleration = acceleration + 0.0861 * a * e + 0.3628 * b * d - 0.1106 * a * a - 0.3437 * c * c
    intrusion = -0.0551 + 0.0181 * a + 0.1024 * b + 0.0421 * c - 0.0073 * a * b + 0.024 * b * c
    intrusion = intrusion - 0.0118 * b * d - 0.0204 * c * d - 0.008 * c * e - 0.0241 * b * b
    return [mass, acceleration + 0.1764 * d * d, intrusion + 0.0109 * d * d]


def speed_reducer(x: Columns) -> list[Tensor]:
    """RE35: weight and the stress of one shaft; the number of teeth is continuous here."""
    width, module, teeth, l1, l2, d1, d2 = x
    size = module * module * (10.0 / 3.0 * teeth * teeth + 14.933 * teeth - 43.0934)
    shafts = d1 * d1 + d2 * d2
    weight = 0.7854 * width * size - 1.508 * width * shafts + 7.477 * (d1**3 + d2**3)
    weight = weight + 0.7854 * (l1 * d1 * d1 + l2 * d2 * d2)
    pitch = module * teeth
    stress = ((745.0 * l1 / pitch) ** 2 + 1.69e7).sqrt() / (0.1 * d1**3)
    other = ((745.0 * l2 / pitch) ** 2 + 1.575e8).sqrt() / (0.1 * d2**3)
    g = (
        1.0 / 27.0 - 1.0 / (width * module * pitch),
        1.0 / 397.5 - 1.0 / (width * pitch * pitch),
        1.0 / 1.93 - l1**3 / (pitch * d1**4),
        1.0 / 1.93 - l2**3 / (pitch * d2**4),
        40.0 - pitch,
        12.0 - width / module,
        width / module - 5.0,
        l1 - 1.5 * d1 - 1.9,
        l2 - 1.1 * d2 - 1.9,
        1300.0 - stress,
        1100.0 - other,
    )
    return [weight, stress, _violation(*g)]


def gear_train(x: Columns) -> list[Tensor]:
    """RE36: error of the ratio and the largest number of teeth; numbers of teeth are continuous here."""
    a, b, c, d = x
    error = (RATIO - c * d / (a * b)).abs()
    return [error, torch.stack([a, b, c, d], dim=-1).amax(-1), _violation(0.5 - error / RATIO)]


def rocket_injector(x: Columns) -> list[Tensor]:
    """RE37: temperatures and the length of combustion."""
    a, h, o, p = x
    face = 0.692 + 0.477 * a - 0.687 * h - 0.080 * o - 0.0650 * p - 0.167 * a * a - 0.0129 * h * a
    face = face + 0.0796 * h * h - 0.0634 * o * a - 0.0257 * o * h + 0.0877 * o * o - 0.0521 * p * a
    face = face + 0.00156 * p * h + 0.00198 * p * o + 0.0184 * p * p
    length = 0.153 - 0.322 * a + 0.396 * h + 0.424 * o + 0.0226 * p + 0.175 * a * a + 0.0185 * h * a
    length = length - 0.0701 * h * h - 0.251 * o * a + 0.179 * o * h + 0.0150 * o * o + 0.0134 * p * a
    length = length + 0.0296 * p * h + 0.0752 * p * o + 0.0192 * p * p
    tip = 0.370 - 0.205 * a + 0.0307 * h + 0.108 * o + 1.019 * p - 0.135 * a * a + 0.0141 * h * a
    tip = tip + 0.0998 * h * h + 0.208 * o * a - 0.0301 * o * h - 0.226 * o * o + 0.353 * p * a
    tip = tip - 0.0497 * p * o - 0.423 * p * p + 0.202 * h * a * a - 0.281 * o * a * a
    tip = tip - 0.342 * h * h * a - 0.245 * h * h * o + 0.281 * o * o * h - 0.184 * p * p * a
    return [face, length, tip - 0.281 * h * a * o]


class Design(NamedTuple):
    """F, the box of its variables, and ideal and nadir of the front: exact for RE21 and RE36, else of
    `re_fronts.csv`, rounded outwards.
    """

    F: Callable[[Columns], list[Tensor]]
    low: tuple[float, ...]
    high: tuple[float, ...]
    ideal: tuple[float, ...]
    nadir: tuple[float, ...]


DESIGNS: dict[str, Design] = {
    "RE21": Design(
        four_bar_truss,
        (1.0, ROOT2, ROOT2, 1.0),
        (3.0, 3.0, 3.0, 3.0),
        (1237.8414230005442, 0.0027614237491539674),
        (2886.3695604244012, 0.04),
    ),
    "RE22": Design(
        reinforced_beam, (0.2, 1e-3, 0.0), (15.0, 20.0, 40.0), (5.87996446, 0.0), (361.236084, 180.015488)
    ),
    "RE23": Design(
        pressure_vessel,
        (1.0, 1.0, 10.0, 10.0),
        (100.0, 100.0, 200.0, 240.0),
        (15.9012217, 0.0),
        (5806.32174, 1288669.91),
    ),
    "RE24": Design(hatch_cover, (0.5, 0.5), (4.0, 50.0), (60.4999579, 0.0), (481.641874, 44.2819092)),
    "RE25": Design(
        coil_spring, (1.0, 0.6, 0.09), (70.0, 3.0, 0.5), (0.0359746758, 0.0), (0.3585474, 2377606.17)
    ),
    "RE31": Design(
        two_bar_truss,
        (1e-5, 1e-5, 1.0),
        (100.0, 100.0, 3.0),
        (5.37313854e-06, -0.491287758, 0.0),
        (500.000639, 8246212.08, 19359921.7),
    ),
    "RE32": Design(
        welded_beam,
        (0.125, 0.1, 0.1, 0.125),
        (5.0, 10.0, 10.0, 5.0),
        (0.0102019667, -0.00131711996, 0.0),
        (35.3122828, 17561.6018, 425063019.0),
    ),
    "RE33": Design(
        disc_brake,
        (55.0, 75.0, 1000.0, 11.0),
        (80.0, 110.0, 3000.0, 20.0),
        (0.35525, 1.13907203, 0.0),
        (5.3067, 8.49065685, 15.9157313),
    ),
    "RE34": Design(
        crashworthiness,
        (1.0,) * 5,
        (3.0,) * 5,
        (1661.70782, 6.14279999, 0.0393999999),
        (1695.20021, 10.7454001, 0.264000001),
    ),
    "RE35": Design(
        speed_reducer,
        (2.6, 0.7, 17.0, 7.3, 7.3, 2.9, 5.0),
        (3.6, 0.8, 28.0, 8.3, 8.3, 3.9, 5.5),
        (2352.34611, 694.233587, 0.0),
        (6994.99665, 1695.96388, 397.358928),
    ),
    "RE36": Design(
        gear_train,
        (12.0,) * 4,
        (60.0,) * 4,
        (0.0, 12.0, 0.0),
        (RATIO - 1.0, 12.0 * math.sqrt(RATIO), 0.5 - 1.0 / RATIO),
    ),
    "RE37": Design(
        rocket_injector,
        (0.0,) * 4,
        (1.0,) * 4,
        (0.0088933146, 0.00487988943, -0.431500153),
        (1.0020001, 1.11056909, 1.09650015),
    ),
}


def _on_front_21(t: Float[Tensor, " k"]) -> Columns:
    """Minimisers of f_1 + lambda f_2, which is convex in each variable by itself."""
    third = torch.full_like(t, ROOT2)
    return (t / ROOT2).clamp(1.0, 3.0), t.clamp(ROOT2, 3.0), third, t.clamp(1.0, 3.0)


def _on_front_36(t: Float[Tensor, " k"]) -> Columns:
    """The smallest gears of ratio t^2: two have 12 teeth."""
    small = torch.full_like(t, 12.0)
    return small, small, 12.0 * t, 12.0 * t


RECOMPUTED = ("RE33", "RE34")  # whose fronts and units were others at first

# designs with a known front: their variables along it, from low to high
CURVES: dict[str, tuple[Callable[[Tensor], Columns], float, float]] = {
    "RE21": (_on_front_21, 1.0, 3.0 * ROOT2),
    "RE36": (_on_front_36, 1.0, math.sqrt(RATIO)),
}


@lru_cache(maxsize=16)
def _computed_front(which: str) -> Float[np.ndarray, "n M"]:
    """Points of the computed front in the suite's units, each as far as possible from those before it."""
    M = len(DESIGNS[which].ideal)
    with FRONTS.open(newline="") as file:
        rows = [row[1 : M + 1] for row in csv.reader(file) if row and row[0] == which]
    return np.array(rows, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class RE(Problem):
    """One of twelve designs with 2 or 3 objectives and 2 to 7 variables: RE21 to RE25 and RE31 to RE37.

    Fronts: exact for RE21 and RE36. The others are what two runs of NSGA-II (300 points, 300 generations;
    RE35: an archive that differential evolution moves, 350 times 3,000 trials), a global minimisation of each
    objective and random moves around their points found, those of RE33 and RE34 an archive whose designs
    descend (`campaigns/re_fronts.py`), thinned out to 200: a reference, not a truth; methods may go beyond
    it. Of 150,000 random designs some dominate 37 of the 200 points of RE37, by at most 0.4 % of the front's
    extent in every objective.
    Departures: integers and table values of RE22, RE23, RE25, RE35 and RE36 are continuous (their fronts here
    are those of the relaxed problems), and RE22's width is at least 1e-3, not 0, where it is not defined.
    RE33's box holds discs whose outer radius is the inner one, where the violation has a pole, and beyond it
    discs of negative mass; here the outer radius is raised to 5 mm above the inner one, which no feasible
    design notices.

    Fields: `which`: RE21 to RE25, RE31 to RE37.
    """

    citation: ClassVar[str] = (
        "Tanabe & Ishibuchi 2020, An easy-to-use real-world multi-objective optimization problem suite"
    )
    positive: ClassVar[bool] = False  # below the ideal point by what the computed one misses

    which: str = "RE21"
    start: Mapping[str, Any] = field(default_factory=lambda: {"kind": "uniform", "low": 0.1, "high": 0.9})
    steps: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.which", self.which, tuple(DESIGNS))
        if self.which in RECOMPUTED:  # other units: rows of the others stay what they are
            object.__setattr__(self, "version", 2)

    @property
    def name(self) -> str:
        return self.which.lower()

    @property
    def n_objectives(self) -> int:
        return len(DESIGNS[self.which].ideal)

    @property
    def dim(self) -> int:
        return len(DESIGNS[self.which].low)

    @property
    def X(self) -> Set:
        return Box(0.0, 1.0)

    @property
    def ref_point(self) -> tuple[float, ...]:
        return (1.1,) * self.n_objectives

    @property
    def ideal_point(self) -> Float[Tensor, " M"]:
        return torch.zeros(self.n_objectives, dtype=torch.float64)

    def scaled(self, F: Float[Tensor, "R M"]) -> Float[Tensor, "R M"]:
        """Objectives of the suite in units of the front."""
        design = DESIGNS[self.which]
        ideal = F.new_tensor(design.ideal)
        return (F - ideal) / (F.new_tensor(design.nadir) - ideal)

    def values(self, x: Float[Tensor, "R P"], batch: Tensor | None = None) -> Float[Tensor, "R M"]:
        design = DESIGNS[self.which]
        low = x.new_tensor(design.low)
        variables = low + (x.new_tensor(design.high) - low) * x
        return self.scaled(torch.stack(design.F(variables.unbind(1)), dim=1))

    def front(self, k: int) -> Float[Tensor, "k2 M"]:
        """k points on a known curve, else at most k points of `re_fronts.csv`."""
        if self.which not in CURVES:
            return self.scaled(torch.from_numpy(_computed_front(self.which)[:k]))
        x_of, low, high = CURVES[self.which]

        def curve(t: Float[Tensor, " k"]) -> Float[Tensor, "k M"]:
            return self.scaled(torch.stack(DESIGNS[self.which].F(x_of(t)), dim=1))

        return evenly(curve, k, [(low, high)])
