#!/usr/bin/env bash
# AIF360 0.6.1: the generalized entropy index with alpha = 0 depends on the unit of measurement and calls an unequal allocation the fairer one.
#
# The index says how unequally a benefit is spread over people, clients or tasks. For alpha = 0 it is the mean logarithmic deviation, the mean of
# -log(b / mu), where mu is the mean of the benefits b (Shorrocks 1980; the docstring has the same formula). It is a pure number: euros or
# cents, it stays the same. AIF360 divides it once more by mu. In a unit that is a thousand times smaller the inequality is a thousand times
# smaller, and of two allocations the one with the larger mean tends to look fairer: below, one in which the clients' rates differ by a fifth
# at most from their mean is said to be more unequal than one where the best client gets four times as much as the worst. For alpha next to 0, on
# both sides, the function returns the right value, so that a study over alpha has a jump at 0. The index of a classifier's errors between groups
# has the same fault, in ClassificationMetric as well. No message says so. Until it is repaired, one can take alpha = 1e-6, or multiply by the mean.
#
# The index is computed below from its definition, and checked as the limit and by its decomposition into groups. Plots are replaced
# by placeholders. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check)
"${pip[@]}" numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 scikit-learn==1.9.1 2>/dev/null
"${pip[@]}" --no-deps aif360==0.6.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import logging
import sys
from importlib.metadata import version
from unittest.mock import MagicMock

import numpy as np
import pandas as pd

logging.disable(logging.CRITICAL)  # the package lists what else could be installed
for name in ("matplotlib", "matplotlib.pyplot", "mpl_toolkits", "mpl_toolkits.mplot3d"):
    sys.modules[name] = MagicMock()
from aif360.datasets import BinaryLabelDataset  # noqa: E402
from aif360.metrics import ClassificationMetric  # noqa: E402
from aif360.sklearn.metrics import between_group_generalized_entropy_error, generalized_entropy_index  # noqa: E402


def deviation(b):
    """The mean logarithmic deviation, by its definition."""
    return -np.mean(np.log(b / b.mean()))


print("aif360", version("aif360"), "numpy", version("numpy"))
unequal = np.array([10.0, 12.0, 15.0, 18.0, 20.0, 24.0, 28.0, 32.0, 36.0, 40.0])
equal = np.array([0.8, 0.8, 0.9, 0.9, 1.0, 1.0, 1.1, 1.1, 1.2, 1.2])
for b in (unequal, equal):  # the definition is the limit of the library's own values ...
    for alpha in (-1e-6, 1e-6):
        assert np.isclose(generalized_entropy_index(b, alpha=alpha), deviation(b), rtol=1e-4)
groups = np.arange(10) % 3  # ... and the only one whose parts within and between groups add up
within = sum((groups == g).mean() * deviation(unequal[groups == g]) for g in range(3))
between = deviation(np.array([unequal[groups == g].mean() for g in groups]))
assert np.isclose(within + between, deviation(unequal))

print("rates of ten clients, in Mbit/s:")
for name, b in (("unequal", unequal), ("nearly equal", equal)):
    print(f"  {name}, from {b.min():g} to {b.max():g}:")
    for unit, factor in (("Mbit/s", 1.0), ("kbit/s", 1e3)):
        values = [generalized_entropy_index(factor * b, alpha=alpha) for alpha in (-1e-6, 0, 1e-6)]
        print(f"    in {unit}: alpha = -1e-6, 0, 1e-6: {values[0]:.3g}, {values[1]:.3g}, {values[2]:.3g}")
        assert np.isclose(values[1] * factor * b.mean(), deviation(b))
assert deviation(unequal) > 8 * deviation(equal)
assert generalized_entropy_index(unequal, alpha=0) < generalized_entropy_index(equal, alpha=0) / 2

# a classifier that errs more often against one of two groups; b = 1 + prediction - truth
truth = np.array([1] * 50 + [0] * 50 + [1] * 50 + [0] * 50)
answer = truth.copy()
answer[:40] = 0  # of the first group, 40 of 50 are refused
answer[100:120] = 0  # of the second group, 20 of 50
sex = np.repeat([0, 1], 100)
b = 1.0 + answer - truth
right = deviation(np.where(sex == 0, b[sex == 0].mean(), b[sex == 1].mean()))
index = pd.Index(sex, name="sex")
by_function = between_group_generalized_entropy_error(
    pd.Series(truth, index=index), pd.Series(answer, index=index), prot_attr="sex", alpha=0
)
data = [
    BinaryLabelDataset(
        df=pd.DataFrame({"sex": sex, "y": y}), label_names=["y"], protected_attribute_names=["sex"]
    )
    for y in (truth, answer)
]
metric = ClassificationMetric(*data, unprivileged_groups=[{"sex": 0}], privileged_groups=[{"sex": 1}])
by_class = metric.between_group_generalized_entropy_index(alpha=0)
print(f"errors of a classifier between groups: {right:.4f}; by AIF360 {by_function:.4f} and {by_class:.4f}")
assert np.isclose(by_class, by_function) and np.isclose(by_function * b.mean(), right)
assert np.isclose(metric.between_group_generalized_entropy_index(alpha=1e-6), right, rtol=1e-4)
PY
