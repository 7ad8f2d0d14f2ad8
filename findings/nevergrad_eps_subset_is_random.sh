#!/usr/bin/env bash
# Nevergrad 1.0.12: pareto_front(size, subset="EPS") returns a random subset of the front, and every subset can hold a point twice.
#
# Of subset_tentatives random subsets the one should be returned that has the best epsilon indicator: the largest amount, over all
# points of the front, by which the nearest point of the subset is worse (Zitzler et al. 2003). The search for the nearest point starts
# at 0 and takes a minimum, where no value is below 0 since points of a front do not dominate each other. So all subsets score 0, and
# the first is returned, however many are tried: from the same state of the generator, "EPS" and "random" give the same points. The
# other criterion on losses, "loss-covering", works. Besides, the points are drawn with replacement: of 12 points on the front, 11 that
# are asked for are often only seven or eight different ones. A trade-off that is shown to somebody who decides, or an archive cut to a size, has
# gaps that the option promises to avoid. No message says so.
#
# The indicator is written out below. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps nevergrad==1.0.12 numpy==2.2.6 \
    scipy==1.17.1 joblib==1.6.0 cloudpickle==3.1.3 typing-extensions==4.16.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import nevergrad as ng
import numpy as np

print("nevergrad", version("nevergrad"))


def optimizer(points):
    """An optimizer that has been told the losses of points on the front f_2 = 1 - sqrt(f_1)."""
    optimizer = ng.optimizers.RandomSearch(ng.p.Array(init=np.full(1, 0.5), lower=0.0, upper=1.0), budget=points)
    optimizer.parametrization.random_state = np.random.RandomState(0)
    optimizer.tell(ng.p.MultiobjectiveReference(), [2.0, 2.0])
    for _ in range(points):
        candidate = optimizer.ask()
        optimizer.tell(candidate, [candidate.value[0], 1 - np.sqrt(candidate.value[0])])
    return optimizer


def losses(candidates):
    return np.array([candidate.losses for candidate in candidates])


def epsilon(subset, front):
    """The smallest e such that every point of the front is weakly dominated by a point of the subset less e."""
    return (subset[None] - front[:, None]).max(2).min(1).max()


search = optimizer(60)
front = losses(search.pareto_front())
assert len(front) == 60
generator = search.parametrization.random_state
same, quality = 0, {"random": [], "EPS": [], "loss-covering": []}
for seed in range(25):
    answers = {}
    for subset in quality:
        generator.seed(seed)
        answers[subset] = losses(search.pareto_front(8, subset=subset, subset_tentatives=20))
        quality[subset].append(epsilon(answers[subset], front))
    same += np.array_equal(answers["EPS"], answers["random"])
rng = np.random.default_rng(0)
possible = [min(epsilon(front[rng.choice(60, 8)], front) for _ in range(20)) for _ in range(25)]
print(f"8 of 60 points, the best of 20 subsets: from the same state, EPS and random give the same points in {same} of 25 cases;")
print("    mean epsilon indicator:", ", ".join(f"{name} {np.mean(values):.3f}" for name, values in quality.items()), end=" ")
print(f"(the best of 20 random subsets by the definition has {np.mean(possible):.3f})")
assert same == 25 and quality["EPS"] == quality["random"]
assert np.mean(possible) < 0.7 * np.mean(quality["EPS"]) and np.mean(quality["loss-covering"]) < 0.8 * np.mean(quality["EPS"])

search = optimizer(12)
assert len(search.pareto_front()) == len(np.unique(losses(search.pareto_front()), axis=0)) == 12
for subset in quality:
    different = [len(np.unique(losses(search.pareto_front(11, subset=subset)), axis=0)) for _ in range(50)]
    print(f'pareto_front(11, subset="{subset}") of 12 points: {np.mean(different):.1f} different ones in the mean, at least {min(different)}')
    assert max(different) < 11
PY
