#!/usr/bin/env bash
# iohinspector 0.0.8: aggregate_running_time takes the last evaluation with a value for the first one, so that the time to a target is too long.
#
# The running time to a target is the number of evaluations until the best value so far has reached it (ERT; Hansen et al. 2021). The function
# forms the best values so far, on which a run stays until it improves, and then looks each target up among these values: of all rows with the
# same value it takes the last. With every evaluation in the table, as in a run of random search or in an indicator of an archive at given
# times, the time to a target is the end of the plateau: a run that finds its best value at evaluation 100 of 1000 reaches it after 1000, its
# budget. Where indicators are compared, the method that converges early and then stands still gets the largest running time. ERT, PAR-10,
# mean and median are all wrong then, and no message says so; the same data with the sign turned and maximization=True give the
# right times. DataManager.load() drops rows without improvement by default (monotonic=True); other tables need that before.
#
# The first evaluation is also searched below. Plots and other parts are replaced by placeholders. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-deps iohinspector==0.0.8 polars==2.1.0 \
    polars-runtime-32==2.1.0 moocore==0.3.2 cffi==2.1.1 pycparser==3.12 platformdirs==4.14.8 numpy==2.4.6 pandas==3.1.1 \
    python-dateutil==4.0.0 six==1.17.0 2>/dev/null
"$folder/venv/bin/python" -W error::UserWarning - <<'PY'
import sys
from importlib.metadata import version
from unittest.mock import MagicMock

import numpy as np
import polars as pl

for name in ("iohinspector.plots", "skelo", "skelo.model", "skelo.model.elo", "networkx"):
    sys.modules[name] = MagicMock()
from iohinspector.indicators import IGDPlus, add_indicator  # noqa: E402
from iohinspector.metrics import aggregate_running_time  # noqa: E402

BUDGET, RUNS = 1000, 5


def table(runs, name):
    """All evaluations of all runs, one row each."""
    rows = [(run, "A", e, float(y)) for run, values in enumerate(runs) for e, y in enumerate(values, 1)]
    return pl.DataFrame(rows, schema=["data_id", "algorithm_name", "evaluations", name], orient="row")


def times(data, name, **options):
    """The targets and the mean running times of the library, for 50 targets between the best and the worst value."""
    result = aggregate_running_time(data, fval_var=name, scale_f_log=False, return_as_pandas=False, **options)
    return result[name].to_numpy(), result["mean"].to_numpy()


def first(runs, targets):
    """The mean number of evaluations until the values are at the target or below; infinite if a run does not get there."""
    reached = [[1 + np.argmax(y <= t) if (y <= t).any() else np.inf for y in runs] for t in targets]
    return np.mean(reached, axis=1)


def last(runs, targets):
    """The same, but the last evaluation with the best value that first reaches the target."""
    best = [np.minimum.accumulate(y) for y in runs]

    def end(b, t):
        return 1 + np.flatnonzero(b == b[b <= t].max())[-1] if (b <= t).any() else np.inf

    return np.mean([[end(b, t) for b in best] for t in targets], axis=1)


print("iohinspector", version("iohinspector"), "polars", version("polars"))
steps = np.where(np.arange(1, BUDGET + 1) < 10, 3.0, np.where(np.arange(1, BUDGET + 1) < 100, 2.0, 1.0))
targets, library = times(table([steps], "raw_y"), "raw_y")
print(
    f"a run that has 1 from evaluation 100 on: by the library it has 1 after {library[0]:g} evaluations, "
    f"and its first value, 3, after {library[-1]:g}"
)
assert np.allclose([targets[0], library[0], targets[-1], library[-1]], [1, BUDGET, 3, 9])

rng = np.random.default_rng(0)
runs = list(rng.random((RUNS, BUDGET)))
for k in range(RUNS):
    runs[k][rng.integers(BUDGET)] = 0.0  # each run finds the optimum
targets, library = times(table(runs, "raw_y"), "raw_y")
right = first(runs, targets)
print(
    f"{RUNS} runs of random search: the optimum is found after {right[0]:g} evaluations on average, by the library after {library[0]:g}"
)
assert np.allclose(library, last(runs, targets)) and library[0] == BUDGET > right[0]
turned, mirrored = times(table([-y for y in runs], "raw_y"), "raw_y", maximization=True)
assert np.allclose(mirrored[::-1], right) and np.allclose(-turned[::-1], targets)

# an indicator of the archive, the usual way for several objectives
front = np.linspace(0, 1, 50)[:, None] * [1, -1] + [0, 1]
points = rng.random((BUDGET, 2)) + [0, 1] * (1 - rng.random((BUDGET, 1)))
points = pl.DataFrame(
    {"data_id": 0, "evaluations": np.arange(1, BUDGET + 1), "f1": points[:, 0], "f2": points[:, 1]}
)
igd = add_indicator(points, IGDPlus(front), ["f1", "f2"], evals=list(range(1, BUDGET + 1)))
values = igd["IGD+"].to_numpy()
data = igd.with_columns(pl.lit("A").alias("algorithm_name"))
targets, library = times(data, "IGD+")
right = first([values], targets)
print(
    f"IGD+ of random points: its last value is reached after {right[0]:g} evaluations, by the library after {library[0]:g}; "
    f"all 50 targets are reached {np.mean(library / right):.1f} times too late"
)
assert library[0] == BUDGET > right[0] and (library >= right).all() and np.mean(library / right) > 1.2
PY
