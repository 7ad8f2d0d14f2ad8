"""Computes reference fronts of RE designs anew, and writes them to mobench/problems/re_fronts.csv.

    python -m campaigns.re_fronts RE33 RE34

An archive of nondominated designs is moved by differential evolution and by steps towards corners of the
box, from random designs, all corners, and the ends of local minimisations of each objective; then 600 of its
designs descend in all objectives. It prints the ideal point and the nadir, rounded outwards, which
mobench/problems/re.py has in `DESIGNS`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math

import moocore
import numpy as np
import torch
from scipy.optimize import minimize

from mobench.problems.re import DESIGNS, FRONTS, RE

SEED = 34
ROUNDS = 600
TRIALS = 3000
ARCHIVE = 3000
KEPT = 200
DESCENDED = 600


def values(problem: RE, x: np.ndarray) -> np.ndarray:
    """Objectives (n, M) of designs (n, P) in the suite's units."""
    design = DESIGNS[problem.which]
    low, high = np.array(design.low), np.array(design.high)
    F = design.F(torch.from_numpy(low + (high - low) * x).unbind(1))
    return torch.stack(F, dim=1).numpy()


def ends(problem: RE, starts: np.ndarray) -> np.ndarray:
    """Designs where local minimisations of each objective end."""
    found = []
    for m, start in itertools.product(range(problem.n_objectives), starts):

        def objective(x: np.ndarray, m: int = m) -> tuple[float, np.ndarray]:
            point = torch.tensor(x[None], requires_grad=True)
            f = problem.values(point)[0, m]
            (gradient,) = torch.autograd.grad(f, point)
            return float(f), gradient[0].numpy()

        found.append(minimize(objective, start, jac=True, bounds=[(0.0, 1.0)] * problem.dim).x)
    return np.array(found)


def descended(problem: RE, x: np.ndarray, width: np.ndarray) -> np.ndarray:
    """The designs (n, P), each moved until no objective can be lowered by as much as all others (SLSQP).

    width: of the front, by objective; the unit.
    """

    def rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        point = torch.tensor(x[None], requires_grad=True)
        f = problem.values(point)[0]
        J = torch.stack([torch.autograd.grad(part, point, retain_graph=True)[0][0] for part in f])
        return f.detach().numpy(), J.numpy()

    out = []
    for start in x:
        f0, _ = rows(start)

        def slack(z: np.ndarray, f0: np.ndarray = f0) -> np.ndarray:
            return z[-1] - (rows(z[:-1])[0] - f0) / width

        def slopes(z: np.ndarray) -> np.ndarray:
            return np.concatenate([-rows(z[:-1])[1] / width[:, None], np.ones((len(width), 1))], axis=1)

        last = np.append(np.zeros(len(start)), 1.0)
        end = minimize(
            lambda z: z[-1],
            np.append(start, 0.0),
            jac=lambda _, last=last: last,
            method="SLSQP",
            bounds=[*[(0.0, 1.0)] * len(start), (None, 0.0)],
            constraints={"type": "ineq", "fun": slack, "jac": slopes},
            options={"ftol": 1e-12, "maxiter": 200},
        )
        out.append(end.x[:-1].clip(0.0, 1.0))
    return np.array(out)


def spread(F: np.ndarray, count: int) -> list[int]:
    """Indices of points, the ends first, each then as far as possible from those before it."""
    unit = (F - F.min(0)) / np.ptp(F, axis=0)
    chosen = list(dict.fromkeys(int(i) for i in unit.argmin(0)))
    far = np.min([np.linalg.norm(unit - unit[i], axis=1) for i in chosen], axis=0)
    while len(chosen) < min(count, len(F)):
        chosen.append(int(far.argmax()))
        far = np.minimum(far, np.linalg.norm(unit - unit[chosen[-1]], axis=1))
    return chosen


def front(which: str) -> tuple[np.ndarray, np.ndarray]:
    """Points of the front (KEPT, M), the ends first, and the smallest values of all designs (M,)."""
    problem = RE(which=which)
    rng = np.random.default_rng(SEED)
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=problem.dim)))
    x = np.concatenate([corners, rng.random((20_000, problem.dim))])
    best = values(problem, x).argsort(0)[:5].ravel()
    x = np.concatenate([x, ends(problem, x[best])])
    for round_ in range(ROUNDS + 1):
        F = values(problem, x)
        good = moocore.is_nondominated(F, keep_weakly=False)
        x, F = x[good], F[good]
        if round_ == ROUNDS:
            break
        if len(x) > ARCHIVE:
            kept = spread(F, ARCHIVE) if round_ % 50 == 0 else rng.permutation(len(x))[:ARCHIVE]
            x = x[np.union1d(F.argmin(0), kept)]
        a, b, c = (x[rng.integers(len(x), size=TRIALS)] for _ in range(3))
        scale = 10.0 ** rng.uniform(-4, 0, (TRIALS, 1))
        trials = a + scale * np.where(rng.random((TRIALS, 1)) < 0.5, b - c, rng.standard_normal(a.shape))
        trials = np.where(rng.random(a.shape) < 0.5, trials, a)
        towards = (rng.random(a.shape) < 0.1) & (rng.random((TRIALS, 1)) < 0.2)  # an edge of the box
        trials = np.where(towards, rng.integers(2, size=a.shape), trials)
        x = np.concatenate([x, trials.clip(0.0, 1.0)])
    width = np.ptp(problem.scaled(torch.from_numpy(F)).numpy(), axis=0)
    final = values(problem, descended(problem, x[spread(F, DESCENDED)], width))
    edges = rng.random((300_000, problem.dim))
    edges = np.where(rng.random(edges.shape) < 0.2, rng.integers(2, size=edges.shape), edges)
    # a descent may stop at a kink or an edge; then a design of another kind is better
    rivals = np.concatenate([final, F, values(problem, edges)])
    final = final[moocore.is_nondominated(rivals, keep_weakly=False)[: len(final)]]
    return final[spread(final, KEPT)], F.min(0)


def outwards(number: float, up: bool) -> float:
    """Returns a number rounded to nine digits, never inwards."""
    if number == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(number))) - 8)
    return float(f"{(math.ceil if up else math.floor)(number / unit) * unit:.9g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("designs", nargs="+", choices=sorted(DESIGNS))
    designs = parser.parse_args().designs
    with FRONTS.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    for which in designs:
        F, low = front(which)
        print(which, [outwards(v, False) for v in low], [outwards(v, True) for v in F.max(0)])
        new = [[which, *(f"{v:.10g}" for v in point)] for point in F]
        first = next(i for i, row in enumerate(rows) if row[0] == which)
        rows = [*rows[:first], *new, *(row for row in rows[first:] if row[0] != which)]
    with FRONTS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
