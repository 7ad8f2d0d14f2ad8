#!/usr/bin/env bash
# pingouin 0.7.0: the power of a paired t-test, ttest(x, y, paired=True), is computed as if the pairs did not matter.
#
# The power of the paired test depends on the mean of the differences over their own standard deviation: its statistic is this d_z times
# sqrt(n). pingouin takes the mean over the standard deviations of x and y instead, which are large where the problems are of different
# difficulty, as in every comparison of methods on many data sets. So a method that is better by about 0.5 on each of 15 problems with
# results from -23 to 13 has p = 0.0001 and BF10 = 297 in one row with an "achieved power" of 0.05, that of a test without any effect.
# It is 0.999, as pingouin's own power_ttest(d=d_z, n=15, contrast="paired") says. For pairs with a correlation below 0.5 it is too large.
# Whoever plans the number of runs by it is led far astray, and drops results as underpowered that are not. The p-value, the interval and
# the Bayes factor are right. compute_effsize(x, y, paired=True, eftype="cohen_dz") with power_ttest helps.
#
# The power is computed from the noncentral t distribution and by simulation. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-deps pingouin==0.7.0 pandas_flavor==0.8.1 numpy==2.4.6 \
    pandas==3.1.1 scipy==1.17.1 xarray==2026.9.0 packaging==26.4 python-dateutil==4.0.0 tabulate==0.10.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import sys
from importlib.metadata import version
from unittest.mock import MagicMock

import numpy as np
from scipy.stats import nct, t, ttest_rel

for name in ("matplotlib", "matplotlib.pyplot", "matplotlib.transforms", "matplotlib.patches", "matplotlib.lines", "matplotlib.cbook", "seaborn"):
    sys.modules[name] = MagicMock()
import pingouin  # noqa: E402

n = 15
critical = t.isf(0.025, n - 1)


def power(d_z):
    """Power of the two-sided paired test at 5%: its statistic has the noncentral t distribution with d_z sqrt(n)."""
    shift = d_z * np.sqrt(n)
    return nct.sf(critical, n - 1, shift) + nct.cdf(-critical, n - 1, shift)


def standardized(x, y):
    return (x - y).mean() / (x - y).std(ddof=1)


print("pingouin", version("pingouin"), "scipy", version("scipy"))
rng = np.random.default_rng(0)
y = 10 * rng.normal(size=n)
x = y + 0.5 + 0.5 * rng.normal(size=n)
row = pingouin.ttest(x, y, paired=True).iloc[0]
right = power(standardized(x, y))
print(f"results between {y.min():.0f} and {y.max():.0f}, mean difference {(x - y).mean():.2f}: p = {row['p_val']:.1g}, "
      f"power {row['power']:.3f} in pingouin, {right:.3f} by the noncentral t distribution")
assert np.isclose(row["p_val"], ttest_rel(x, y).pvalue) and row["p_val"] < 0.001
assert np.isclose(right, pingouin.power_ttest(d=standardized(x, y), n=n, contrast="paired"), atol=1e-6)
assert np.isclose(standardized(x, y), pingouin.compute_effsize(x, y, paired=True, eftype="cohen_dz"))
assert row["power"] < 0.06 and right > 0.99

# the same differences on problems that are more and more alike: the test does not change, its power does in pingouin
powers = []
for factor in (10.0, 1.0, 0.1, 0.01):
    again = pingouin.ttest(factor * y + x - y, factor * y, paired=True).iloc[0]
    powers.append(again["power"])
    print(f"the same differences, results with standard deviation {10 * factor:g}: T = {again['T']:.3f}, power {again['power']:.3f}")
    assert np.isclose(again["T"], row["T"])
assert max(powers) - min(powers) > 0.9

# what the power is: the share of significant tests if the experiment is repeated, with its mean and standard deviation of the differences
difference = (x - y).mean() + (x - y).std(ddof=1) * rng.normal(size=(20000, n))
hard = 10 * rng.normal(size=(20000, n))
share = (ttest_rel(hard + difference, hard, axis=1).pvalue < 0.05).mean()
print(f"significant in {100 * share:.1f}% of 20000 repetitions")
assert abs(share - right) < 0.01

# without correlation it is the other way round
y = rng.normal(size=n)
z = rng.normal(size=n)
z -= y * (z - z.mean()) @ (y - y.mean()) / ((y - y.mean()) @ (y - y.mean()))
x = 0.8 + (z - z.mean()) / z.std() * y.std()
over, right = pingouin.ttest(x, y - y.mean(), paired=True)["power"].iloc[0], power(standardized(x, y - y.mean()))
print(f"pairs without correlation: power {over:.3f} in pingouin, {right:.3f} by the noncentral t distribution")
assert over > right + 0.1
PY
