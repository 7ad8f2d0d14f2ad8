#!/usr/bin/env bash
# mo-gymnasium 1.3.2: pareto_front() of resource-gathering-v0 leaves out the best policy, which dominates others that it returns.
#
# The agent fetches gold and a diamond and must get home; on two cells an enemy kills it with probability 0.1. The six policies that
# pareto_front(gamma) compares either cross a cell of an enemy or bring one treasure only. There is a way of 18 steps round both enemies
# that brings both home without any risk. For gamma = 1 its value (0, 1, 1) is the ideal point and dominates all that is returned; for
# 0.99 it dominates the policy with both treasures, which dies with probability 0.1. Besides, all returned values have one factor gamma
# too many, unlike those of deep-sea-treasure-v0 and those that MORecordEpisodeStatistics records. So an agent that finds the optimum
# lies beyond the "known front": its hypervolume is more than that of the front, and its IGD is not 0. No message says so.
#
# The way is walked in the environment itself, and the whole front is computed from its rules by dynamic programming over sets. Fails
# if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps mo-gymnasium==1.3.2 gymnasium==1.4.0 \
    numpy==2.2.6 scipy==1.17.1 cloudpickle==3.1.3 farama-notifications==0.0.6 typing-extensions==4.16.0 pygame==2.6.1 2>/dev/null
SDL_VIDEODRIVER=dummy PYGAME_HIDE_SUPPORT_PROMPT=1 "$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import mo_gymnasium
import numpy as np

UP, DOWN, LEFT, RIGHT = MOVES = range(4)
STEP = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
HOME, GOLD, GEM, ENEMIES = (4, 2), (0, 2), (1, 4), ((1, 2), (0, 3))  # the map of the environment, row and column
TOUR = [LEFT] + [UP] * 4 + [RIGHT, LEFT] + [DOWN] * 2 + [RIGHT] * 3 + [UP] + [DOWN] * 3 + [LEFT] * 2

env = mo_gymnasium.make("resource-gathering-v0").unwrapped
cells = {name: tuple(np.argwhere(env.map == name)[0].tolist()) for name in ("H", "R1", "R2", "E1", "E2")}
assert (cells["H"], cells["R1"], cells["R2"]) == (HOME, GOLD, GEM) and {cells["E1"], cells["E2"]} == set(ENEMIES)
treasure = mo_gymnasium.make("deep-sea-treasure-v0").unwrapped


def walk(actions, gamma, seed):
    """The return of a fixed sequence of actions; the first reward is not discounted, as in MORecordEpisodeStatistics."""
    env.reset(seed=seed)
    total = np.zeros(3)
    for t, action in enumerate(actions):
        _, reward, ended, _, _ = env.step(action)
        total += gamma**t * reward.astype(float)
        assert tuple(env.current_pos.tolist()) not in ENEMIES
    assert ended and t == 17
    return total


def dominates(a, b):
    return (a >= b - 1e-9).all() and (a > b + 1e-9).any()


def front(values):
    values = {tuple(np.round(v, 12)) for v in values}
    return [np.array(v) for v in values if not any(dominates(np.array(w), np.array(v)) for w in values)]


def optimal(gamma, steps=22):
    """All nondominated values of policies: V(s) = front of {expected reward + gamma * expected value of what follows}."""
    states = [(r, c, gold, gem) for r in range(5) for c in range(5) for gold in (0, 1) for gem in (0, 1)]
    V = {s: [np.zeros(3)] for s in states}
    for _ in range(steps):
        new = {}
        for r, c, gold, gem in states:
            values = []
            for action in MOVES:
                to = r + STEP[action][0], c + STEP[action][1]
                to = to if 0 <= min(to) and max(to) < 5 else (r, c)
                got = gold or int(to == GOLD), gem or int(to == GEM)
                if to == HOME:
                    values.append(np.array([0.0, *got]))
                elif to in ENEMIES:
                    values += [0.9 * gamma * v - [0.1, 0, 0] for v in V[(*to, *got)]]
                else:
                    values += [gamma * v for v in V[(*to, *got)]]
            new[r, c, gold, gem] = front(values)
        V = new
    return sorted(V[(*HOME, 0, 0)], key=tuple)


print("mo-gymnasium", version("mo-gymnasium"))
for gamma in (1.0, 0.99):
    tour = walk(TOUR, gamma, 0)
    assert all(np.allclose(walk(TOUR, gamma, seed), tour) for seed in range(100)), "no risk: always the same"
    assert np.allclose(tour, [0, gamma**17, gamma**17])
    theirs, whole = env.pareto_front(gamma), optimal(gamma)
    beaten = [v for v in theirs if dominates(gamma * tour, v)]
    print(f"gamma {gamma}: the tour of 18 steps has {tour.round(4)}; pareto_front() is {sorted(tuple(v.round(4).tolist()) for v in theirs)}")
    print(f"    of these {len(beaten)} of {len(theirs)} are dominated by the tour; the front is {[tuple(v.round(4).tolist()) for v in whole]}")
    assert len(beaten) == (3 if gamma == 1 else 1), "even with the same factor gamma too many"
    assert any(np.allclose(v, tour) for v in whole)
    assert not any(dominates(v, tour) for v in whole)

gem = max(env.pareto_front(0.99), key=lambda v: v[2] - v[1])
print(f"the diamond alone takes 10 steps: {gem[2]:.6f} is 0.99^10, not 0.99^9 = {0.99**9:.6f};", end=" ")
assert np.isclose(gem[2], 0.99**10)
far = treasure.pareto_front(0.99)[-1]
print(f"23.7 in deep-sea-treasure takes 19 steps: {far[0]:.6f} is 23.7 * 0.99^18")
assert np.isclose(far[0], 23.7 * 0.99**18)
PY
