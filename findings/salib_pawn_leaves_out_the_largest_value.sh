#!/usr/bin/env bash
# SALib 1.6.0: PAWN never looks at the runs with the largest value of a parameter, so that its indices depend on how an option is encoded.
#
# PAWN (Pianosi and Wagener 2018) splits the runs by the value of a parameter and compares the outputs of each part with all outputs by the distance
# of Kolmogorov and Smirnov. SALib cuts at quantiles and takes the runs with q_s <= x < q_(s+1); the last of the q is the maximum, and nothing closes
# the last part. With a continuous parameter one run is lost. With a discrete one, as in most studies of hyperparameters (a switch, a number of
# layers, a choice), all runs with the largest value are: of a switch only the runs with 0 are left, and minimum, mean, median and maximum are the
# same number. If an option that ruins the result is on in 10% of the runs, all indices are 0.1; recorded as "off" instead of "on", 0.9, for the
# same runs. Of four choices the decisive one is overlooked if it is the last. No message says so, and the documentation names no condition
# for the inputs. Noise that is smaller than the distance of two values, added to the inputs of the analysis, restores the last part.
#
# The distances are known here: outputs that do not overlap have 1 - p, where p is the share of the part. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps salib==1.6.0 numpy==2.4.6 scipy==1.17.1 pandas==3.1.1 \
    python-dateutil==4.0.0 multiprocess==0.70.19 dill==0.4.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
from SALib.analyze import pawn
from scipy.stats import ks_2samp

RUNS = 1000
INDICES = ("minimum", "median", "maximum")
rng = np.random.default_rng(0)


def indices(x, y):
    """The indices of the first of two parameters; the second one has no effect."""
    problem = {"num_vars": 2, "names": ["option", "other"], "bounds": [[0, 1], [0, 1]]}
    result = pawn.analyze(problem, np.column_stack([x, rng.random(RUNS)]), y)
    return np.array([result[name][0] for name in INDICES])


def by_value(x, y):
    """The distances of the outputs for each value of the parameter from all outputs."""
    return np.array([ks_2samp(y[x == value], y).statistic for value in np.unique(x)])


print("SALib", version("salib"), " numpy", version("numpy"), " scipy", version("scipy"))
on = (rng.permutation(RUNS) < RUNS / 10).astype(float)
y = rng.random(RUNS) + 2 * on  # the option ruins the run
assert np.allclose(by_value(on, y), [0.1, 0.9]) and np.allclose(by_value(1 - on, y), [0.9, 0.1])
print(f"an option that is on in 10% of the runs; {', '.join(INDICES)}:")
for name, x, expected in (("on = 1", on, 0.1), ("off = 1", 1 - on, 0.9)):
    there, noisy = indices(x, y), indices(x + 1e-3 * rng.random(RUNS), y)
    print(
        f"    {name:8} {there.round(3)}, with a little noise on the input {noisy.round(3)}; the distances are {by_value(x, y).round(3)}"
    )
    assert np.allclose(there, expected), "PAWN has another part"
    assert abs(noisy[2] - 0.9) < 0.02 and abs(noisy[0] - 0.1) < 0.02

choice = rng.permutation(RUNS) % 4
print("four choices, one of which ruins the run:")
for bad in range(4):
    y = rng.random(RUNS) + 2 * (choice == bad)
    distances = by_value(choice, y)
    assert np.isclose(distances[bad], 0.75) and max(np.delete(distances, bad)) < 0.35
    there, noisy = indices(choice.astype(float), y), indices(choice + 1e-3 * rng.random(RUNS), y)
    print(
        f"    number {bad}: {there.round(3)}, with a little noise on the input {noisy.round(3)}; the distances are {distances.round(3)}"
    )
    assert np.isclose(there[2], max(distances[:3])) and (bad < 3) == (there[2] > 0.4), (
        "the last choice is looked at"
    )
    assert abs(noisy[2] - 0.75) < 0.02
PY
