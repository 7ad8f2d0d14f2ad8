#!/usr/bin/env bash
# SALib 1.6.0: dgsm_conf, the confidence interval of the DGSM index, is the interval of another quantity, vi, in the units of the parameter.
#
# The index of a parameter on [a, b] (Sobol and Kucherenko 2009), an upper bound of its total Sobol index, is dgsm = vi (b - a)^2 / (pi^2 var Y),
# where vi is the mean of the squared derivative. It has no unit. For its interval SALib resamples vi, and does not multiply the spread by the
# factor. So the same parameter has the index 0.73 +- 1600 if its range is 0.001 to 0.011, as that of a learning rate, 0.73 +- 0.16 for 0.1 to 1.1,
# and 0.73 +- 0.0016 for 1 to 11, where only 4 of 100 intervals "of 95%" hold the true index, instead of 97 if the index is resampled. Whether a
# hyperparameter matters more than another, or whether there are enough samples, cannot be seen from it, and no message says so. Multiplied
# by (b - a)^2 / (pi^2 var Y) it has the right unit.
#
# The true index is a closed form, and the index is resampled below. Tables, plots and processes are replaced by placeholders.
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-deps salib==1.6.0 numpy==2.4.6 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" -W error - <<'PY'
import sys
from importlib.metadata import version
from unittest.mock import MagicMock

import numpy as np

for name in ("matplotlib", "matplotlib.pyplot", "multiprocess", "pandas"):
    sys.modules[name] = MagicMock()
from SALib.analyze import dgsm  # noqa: E402

N, STUDIES = 300, 100
low, high = 0.1, 1.1


def moment(k):
    """The mean of u^k for u between low and high."""
    return (high ** (k + 1) - low ** (k + 1)) / (k + 1)


# f = u^2 + v^2 with u and v between low and high
true = 4 * moment(2) * (high - low) ** 2 / (np.pi**2 * 2 * (moment(4) - moment(2) ** 2))


def study(unit, seed):
    """The DGSM analysis of f, where the first parameter is u * unit."""
    rng = np.random.default_rng(seed)
    points = np.repeat(rng.uniform(low, high, (N, 1, 2)), 3, axis=1)
    points[:, 1, 0] += 1e-6
    points[:, 2, 1] += 1e-6
    points = points.reshape(-1, 2)
    Y = (points**2).sum(1)
    X = points * [unit, 1]
    problem = {"num_vars": 2, "names": ["u", "v"], "bounds": [[low * unit, high * unit], [low, high]]}
    return dgsm.analyze(problem, X, Y, num_resamples=200, seed=1 + seed), X, Y


def resampled(X, Y, unit, seed):
    """1.96 times the spread of vi, and of the index, over resamples of the points."""
    base, moved, step = Y[::3], Y[1::3], X[1::3, 0] - X[::3, 0]
    squares = ((moved - base) / step) ** 2
    rows = np.random.default_rng(seed).integers(N, size=(1000, N))
    vi = squares[rows].mean(1)
    index = vi * ((high - low) * unit) ** 2 / (np.pi**2 * base[rows].var(1))
    return 1.96 * vi.std(), 1.96 * index.std()


print("SALib", version("salib"))
print(f"true index {true:.3f}")
widths, covered = {}, {}
for unit in (1e-2, 1.0, 1e1):
    index, width, right, hits = [], [], [], []
    for seed in range(STUDIES):
        result, X, Y = study(unit, seed)
        index.append(result["dgsm"][0])
        width.append(result["dgsm_conf"][0])
        of_vi, of_index = resampled(X, Y, unit, seed)
        right.append(of_index)
        assert abs(width[-1] / of_vi - 1) < 0.25, "the interval is that of vi"
        assert result["dgsm_conf"][1] < 1, "v has its unit all the time"
    index, widths[unit], right = np.array(index), np.mean(width), np.array(right)
    covered[unit] = int((abs(index - true) < width).sum())
    honest = int((abs(index - true) < right).sum())
    print(
        f"u between {low * unit:g} and {high * unit:g}: dgsm {index.mean():.3f} +- {widths[unit]:.2g}, resampled +- {right.mean():.2g}; "
        f"of {STUDIES} intervals {covered[unit]} have the true index, of the resampled ones {honest}"
    )
    assert abs(index.mean() - true) < 0.02 and 85 <= honest
assert widths[1e-2] > 1000 and covered[1e-2] == STUDIES
assert widths[1e1] < 0.002 and covered[1e1] < 10
PY
