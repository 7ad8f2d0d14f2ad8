#!/usr/bin/env bash
# scikit-criteria 0.10: FilterLE, FilterGE and their like apply each threshold to another criterion, unless they are in the order of the columns.
#
# These filters take a dict from the name of a criterion to its threshold, and keep the alternatives that satisfy all of them: the usual step
# before a solution is chosen from a front. They take the columns that are named in the order of the matrix, but the thresholds in the order of the
# dict, and compare them by position. So {"memory": 600, "latency": 50} limits the latency to 600 and the memory to 50: every alternative is lost,
# while the same dict written the other way round keeps those that fit. Where the thresholds are of the same size nothing looks strange: of
# classifiers with two error rates one is kept that breaks its limit, and one is dropped that satisfies both. With four criteria, 23 of the
# 24 orders of the same dict keep other alternatives. Filter, FilterIn and FilterNotIn of the same module look every criterion up by its
# name, and neither the documentation nor a message says that the order matters here. One filter for each criterion, or Filter, is right.
#
# The conditions are also checked by name, in NumPy. What the filters do not need, such as plots, is replaced by placeholders.
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-deps scikit-criteria==0.10 numpy==2.4.6 pandas==3.1.1 \
    python-dateutil==4.0.0 six==1.17.0 methodtools==0.4.7 wirerope==1.0.0 wrapt==2.5.2 custom-inherit==2.4.1 Deprecated==1.3.1 \
    packaging==26.4 PyYAML==6.0.4 2>/dev/null
"$folder/venv/bin/python" -W error::UserWarning - <<'PY'
import sys
from importlib.metadata import version
from itertools import permutations
from unittest.mock import MagicMock

import numpy as np

unused = "matplotlib matplotlib.pyplot seaborn networkx pulp joblib sklearn sklearn.metrics "
unused += "scipy scipy.spatial scipy.spatial.distance scipy.special scipy.stats"
for name in unused.split():
    sys.modules[name] = MagicMock()
import skcriteria  # noqa: E402
from skcriteria.preprocessing.filters import Filter, FilterGE, FilterGT, FilterLE, FilterLT  # noqa: E402

print("scikit-criteria", version("scikit-criteria"))


def kept(filter_class, conditions, matrix, names):
    decision = skcriteria.mkdm(
        matrix, [min] * len(names), criteria=names, alternatives=list(range(len(matrix)))
    )
    return filter_class(conditions).transform(decision).matrix.index.tolist()


# a front of four networks
names = ["error", "latency", "memory"]
front = np.array([[0.10, 20, 300], [0.09, 25, 250], [0.08, 40, 500], [0.07, 80, 900]])
one, other = {"latency": 50, "memory": 600}, {"memory": 600, "latency": 50}
assert one == other
print(
    "FilterLE",
    one,
    "keeps",
    kept(FilterLE, one, front, names),
    "and",
    other,
    "keeps",
    kept(FilterLE, other, front, names),
)
assert kept(FilterLE, one, front, names) == [0, 1, 2] and kept(FilterLE, other, front, names) == []

# false positives and false negatives, of the same size
names = ["fpr", "fnr"]
errors = np.array([[0.04, 0.15], [0.15, 0.04], [0.04, 0.04], [0.15, 0.15]])
limits = {"fnr": 0.20, "fpr": 0.05}
right = [
    k
    for k, row in enumerate(errors)
    if all(row[names.index(name)] <= limit for name, limit in limits.items())
]
library = kept(FilterLE, limits, errors, names)
print("FilterLE", limits, "should keep", right, "and keeps", library)
assert right == [0, 2] and library == [1, 2]
assert kept(Filter, {"fnr": lambda v: v <= 0.20, "fpr": lambda v: v <= 0.05}, errors, names) == right

# all orders of four thresholds
names = ["a", "b", "c", "d"]
compare = {FilterLE: np.less_equal, FilterLT: np.less, FilterGE: np.greater_equal, FilterGT: np.greater}
rng = np.random.default_rng(0)
matrix = rng.random((200, 4))
limits = {FilterLE: (0.9, 0.8, 0.7, 0.6), FilterGE: (0.1, 0.2, 0.3, 0.4)}
limits[FilterLT], limits[FilterGT] = limits[FilterLE], limits[FilterGE]
for filter_class, comparison in compare.items():
    by_name = np.flatnonzero(comparison(matrix, limits[filter_class]).all(1)).tolist()
    wrong = 0
    for order in permutations(range(4)):
        library = kept(filter_class, {names[j]: limits[filter_class][j] for j in order}, matrix, names)
        by_position = comparison(matrix, [limits[filter_class][j] for j in order]).all(1)
        assert library == np.flatnonzero(by_position).tolist()
        wrong += library != by_name
    print(
        f"{filter_class.__name__}: {len(by_name)} of 200 alternatives satisfy all four; {wrong} of the 24 orders of the dict keep others"
    )
    assert wrong == 23
PY
