#!/usr/bin/env bash
# mlxtend 0.25.0: permutation_test returns p = 1 for every pair of samples whose means differ by less than 1e-8.
#
# A permutation test counts the arrangements of the data whose statistic is at least as large as the observed one; its p-value does not change when
# all values are multiplied by 1e-9. To catch rounding errors, mlxtend also counts the arrangements for which numpy.isclose(statistic, observed), and
# that function has an absolute tolerance of 1e-8 by default. Where the means differ by less, every arrangement counts, with method="exact" as with
# "approximate", paired or not, one-sided or two-sided. In the comparison of optimizers such numbers are usual: the distance to the optimum, the norm
# of a gradient, a violation of a constraint, the mean squared error of a fit. In the example each of 7 runs of one optimizer ends more than ten times
# nearer to the optimum than any run of the other; with distances near 1e-3 that has p = 0.0006, near 1e-9 p = 1, and no warning. Multiply the data
# by a constant, or use scipy.stats.permutation_test, whose tolerance is relative.
#
# The arrangements are also counted below with whole numbers, that is, without any tolerance. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps mlxtend==0.25.0 numpy==2.4.6 \
    scipy==1.17.1 pandas==3.1.1 scikit-learn==1.9.1 joblib==1.6.0 cloudpickle==3.1.3 threadpoolctl==3.8.0 narwhals==2.29.0 \
    python-dateutil==4.0.0 matplotlib==3.11.2 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 kiwisolver==1.5.1 packaging==26.4 \
    pillow==13.0.0 pyparsing==3.3.3 2>/dev/null
"$folder/venv/bin/python" -W error - <<'PY'
from importlib.metadata import version
from itertools import combinations, product

import numpy as np
import scipy.stats
from mlxtend.evaluate import permutation_test

RUNS = 7
rng = np.random.default_rng(0)
worse = rng.integers(100, 1000, RUNS)  # distances to the optimum, in units of the sizes below
better = rng.integers(1, 10, RUNS)


def by_hand(x, y, paired):
    """The share of arrangements that are at least as extreme; x and y are whole numbers, so that sums are exact."""
    if paired:
        sums = [int(np.dot(signs, x - y)) for signs in product((1, -1), repeat=RUNS)]
    else:
        both = np.concatenate([x, y])
        sums = [
            int(2 * both[list(chosen)].sum() - both.sum()) for chosen in combinations(range(2 * RUNS), RUNS)
        ]
    return np.mean([abs(s) >= abs(int((x - y).sum())) for s in sums])


def scipy_test(x, y, paired):
    kind = "samples" if paired else "independent"
    return scipy.stats.permutation_test(
        (x, y), lambda a, b, axis: a.mean(axis) - b.mean(axis), permutation_type=kind, n_resamples=np.inf
    ).pvalue


print("mlxtend", version("mlxtend"), " numpy", version("numpy"), " scipy", version("scipy"))
assert better.max() * 10 < worse.min()
for size in (1e-6, 1e-9, 3e-11, 1e-12):
    x, y = worse * size, better * size
    for paired in (False, True):
        right = by_hand(worse, better, paired)
        assert right < 0.02 and np.isclose(scipy_test(x, y, paired), right, rtol=1e-9)
        exact = permutation_test(x, y, paired=paired)
        drawn = permutation_test(x, y, paired=paired, method="approximate", num_rounds=1000, seed=0)
        one_sided = permutation_test(x, y, paired=paired, func="x_mean > y_mean")
        print(
            f"mean distances {x.mean():.1e} and {y.mean():.1e}, {'paired:  ' if paired else 'unpaired:'} p = {exact:.5f}, "
            f"approximate {drawn:.5f}, one-sided {one_sided:.5f}; by SciPy and by hand {right:.5f}"
        )
        if size >= 1e-9:
            assert np.isclose(exact, right, rtol=1e-9) and np.isclose(one_sided, right / 2, rtol=1e-9)
        else:
            assert exact > 0.5, "small differences are seen"
            assert size > 1e-12 or exact == drawn == one_sided == 1
PY
