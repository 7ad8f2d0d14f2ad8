#!/usr/bin/env bash
# rliable 1.2.0: the interval of the area under learning curves is several times too narrow, because curves are mixed step by step.
#
# get_interval_estimates takes scores of the shape (runs, tasks), or with a third axis for the steps at which a training was evaluated, and resamples
# the runs of each task (the stratified bootstrap of Agarwal et al. 2021). A run should be drawn as a whole. With the third axis, rliable draws
# another run for every step, so that the resampled curves are patched together from all runs. For the mean at single steps, the use
# that the documentation shows, that makes no difference. But for what depends on the whole curve, such as the area under it (the regret, the
# hypervolume over time), good and bad luck of the runs cancel out. In the example the 95% interval of the mean area is a sixth as wide as that
# of the same areas in a table (runs, tasks), and covers the true value in a quarter of the experiments. No message says so. Reduce every
# curve to its number before the call.
#
# The interval is also computed below with a bootstrap of whole runs. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps rliable==1.2.0 arch==7.2.0 absl-py==2.5.1 \
    numpy==2.2.6 scipy==1.17.1 pandas==2.3.3 pytz==2026.6 statsmodels==0.15.0 formulaic==1.2.2 \
    interface_meta==2.0.1 narwhals==2.29.0 packaging==26.4 patsy==1.0.3 python-dateutil==4.0.0 typing_extensions==4.16.0 wrapt==2.5.2 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
from rliable.library import get_interval_estimates

RUNS, TASKS, STEPS, REPS, CASES = 10, 5, 40, 300, 60
TRUE = np.linspace(0, 1, STEPS).mean()


def curves(rng):
    """Curves that rise from 0 to 1 on the average; a run is above or below that for its whole length, and fluctuates a little."""
    luck, noise = rng.normal(0, 0.3, size=(RUNS, TASKS, 1)), rng.normal(0, 0.1, size=(RUNS, TASKS, STEPS))
    return np.linspace(0, 1, STEPS) + luck + noise


def mean(scores):
    return np.array([scores.mean()])


def interval(scores):
    points, intervals = get_interval_estimates({"method": scores}, mean, reps=REPS)
    assert np.isclose(points["method"][0], scores.mean())
    return intervals["method"][:, 0]


def by_hand(scores, rng):
    """Runs are drawn as a whole, for each task by itself."""
    drawn = rng.integers(RUNS, size=(REPS, RUNS, TASKS))
    means = scores[drawn, np.arange(TASKS)].mean(axis=(1, 2, 3))
    return np.quantile(means, [0.025, 0.975])


print("rliable", version("rliable"), " arch", version("arch"), " numpy", version("numpy"))
np.random.seed(0)  # rliable draws from this generator, even where a random_state is given
rng = np.random.default_rng(0)
found = {
    "areas as (runs, tasks)": [],
    "bootstrap of whole runs by hand": [],
    "curves as (runs, tasks, steps)": [],
}
for _ in range(CASES):
    scores = curves(rng)
    for name, ends in zip(
        found, (interval(scores.mean(-1)), by_hand(scores, rng), interval(scores)), strict=True
    ):
        found[name].append((ends[1] - ends[0], ends[0] <= TRUE <= ends[1]))
print(
    f"95% intervals of the mean area under {RUNS} curves for each of {TASKS} tasks, {CASES} experiments; the true area is {TRUE:g}:"
)
widths, covered = {}, {}
for name, results in found.items():
    widths[name], covered[name] = np.mean(results, axis=0)
    print(f"    {name:32} mean width {widths[name]:.3f}, covers the true area in {100 * covered[name]:.0f}%")
table, hand, whole = found
assert abs(widths[table] / widths[hand] - 1) < 0.05 and min(covered[table], covered[hand]) > 0.85
assert widths[whole] < widths[hand] / 4 and covered[whole] < 0.5, "curves are drawn as a whole"

scores = curves(rng)
last = [np.diff(interval(part))[0] for part in (scores[:, :, -1:], scores[:, :, -1])]
print(f"widths for the last step alone, with and without the third axis: {last[0]:.3f} and {last[1]:.3f}")
assert abs(last[0] / last[1] - 1) < 0.2
PY
