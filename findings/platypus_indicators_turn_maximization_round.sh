#!/usr/bin/env bash
# Platypus 1.4.1: with objectives that are maximized, the epsilon indicator is the wrong way round, and the hypervolume can be negative
# and counts points that are worse than the reference point.
#
# The class Hypervolume looks at the directions of the problem: it turns minimized objectives round before it measures. But it first
# drops points with a normalized objective above 1, which are worse than the reference point when that objective is minimized and
# better than the ideal point when it is maximized, and cuts off the rest at 0 for minimized objectives only. So a better solution can
# lower the hypervolume, even below 0. EpsilonIndicator pays no attention to directions: the ideal point gets the value 1 of the worst
# set, and the worst point 0. The same fronts with their signs turned and MINIMIZE are measured correctly.
#
# The right values are those of inclusion-exclusion in exact fractions and of moocore 0.3.2. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile platypus-opt==1.4.1 moocore==0.3.2 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from fractions import Fraction
from importlib.metadata import version
from itertools import combinations
from math import prod

import moocore
import numpy as np
from platypus import Direction, EpsilonIndicator, Hypervolume, Problem, Real, Solution


def solutions(points, direction):
    problem = Problem(1, len(points[0]))
    problem.types[:] = Real(0, 1)
    problem.directions[:] = [direction] * len(points[0])
    made = []
    for point in points:
        s = Solution(problem)
        s.variables[:] = [0.5]
        s.objectives[:] = [float(v) for v in point]
        s.constraint_violation, s.feasible, s.evaluated = 0.0, True, True
        made.append(s)
    return made


def exact(points):
    """The volume between (0, 0, ...) and the points, all objectives maximized, by inclusion-exclusion."""
    points = [[max(Fraction(v), Fraction(0)) for v in point] for point in points]
    return sum((-1) ** (r + 1) * prod(min(c) for c in zip(*group)) for r in range(1, len(points) + 1) for group in combinations(points, r))


print("Platypus", version("platypus-opt"), " moocore", version("moocore"))
seen = []
for points in (
    [[0.5, 0.5]],
    [[0.5, 0.5], [1.25, 0.75]],  # a better point, above the upper bound of the normalization
    [[-0.25, 0.5, -0.25]],  # worse than the reference point in two objectives
    [[0.75, 0.75, -0.25], [0.0, 0.25, 0.75], [0.5, 0.25, -0.25]],
):
    m = len(points[0])
    box = {"minimum": [0] * m, "maximum": [1] * m}
    maximized = Hypervolume(**box).calculate(solutions(points, Direction.MAXIMIZE))
    mirror = {"minimum": [-1] * m, "maximum": [0] * m}
    minimized = Hypervolume(**mirror).calculate(solutions(-np.array(points), Direction.MINIMIZE))
    clipped = exact(np.minimum(points, 1).tolist())  # Platypus counts what lies between the bounds
    right = moocore.hypervolume(np.array(points), ref=[0.0] * m, maximise=True)
    assert np.isclose(right, float(exact(points))) and np.isclose(minimized, float(clipped))
    seen.append((maximized, float(clipped)))
    print(f"hypervolume of {points}: {maximized:g} if maximized, {minimized:g} with turned signs, exactly {float(clipped):g} "
          f"within the bounds, {float(exact(points)):g} altogether")
assert seen[0] == (0.25, 0.25)
assert seen[1][0] == 0.25 and seen[1][1] == 0.75
assert seen[2][0] > 0 and seen[2][1] == 0
assert seen[3][0] < 0 and seen[3][1] == 0

reference = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
for point, name in (([1.0, 1.0], "ideal"), ([0.0, 0.0], "worst")):
    there = EpsilonIndicator(solutions(reference, Direction.MAXIMIZE)).calculate(solutions([point], Direction.MAXIMIZE))
    right = moocore.epsilon_additive(np.array([point]), ref=reference, maximise=True)
    turned = EpsilonIndicator(solutions(-reference, Direction.MINIMIZE)).calculate(solutions([[-v for v in point]], Direction.MINIMIZE))
    print(f"additive epsilon (smaller is better) of the {name} point {point}: {there:g} if maximized, {turned:g} with turned signs, {right:g} in moocore")
    assert there == 1 - right and turned == right
PY
