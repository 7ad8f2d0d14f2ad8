#!/usr/bin/env bash
# autorank 1.3.0: create_report calls differences significant that Tukey's HSD test, which it names, finds insignificant.
#
# For three or more normal and homoscedastic methods autorank uses the HSD test. Two means differ if they are further apart than the critical
# distance; the intervals that autorank returns have half of it to each side, so that they overlap exactly where the test does not reject, and
# the report says so: "significantly different if their confidence intervals are not overlapping". Yet its last sentence, which lists
# what is not significant, takes two means as different as soon as they are further apart than half of the critical distance. In the example
# two methods with p = 0.26 and overlapping intervals end as "all differences between the populations are significant". If two of three
# methods are the same and the third is worse, the report tells the two apart in 24 of 100 experiments at a significance level of 5%, the
# test in 2. Whoever pastes the report into a paper claims too much; the intervals that it prints are the ones to compare.
#
# The test is written out below and compared with SciPy. Plots and the Bayesian test are replaced by placeholders.
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-deps autorank==1.3.0 numpy==2.4.6 pandas==3.1.1 \
    scipy==1.17.1 statsmodels==0.15.0 patsy==1.0.3 packaging==26.4 python-dateutil==4.0.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import sys
from contextlib import redirect_stdout
from importlib.metadata import version
from io import StringIO
from itertools import combinations
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
from scipy.stats import norm, studentized_range, tukey_hsd

for name in ("matplotlib", "matplotlib.pyplot", "baycomp"):
    sys.modules[name] = MagicMock()
from autorank import autorank, create_report  # noqa: E402


def hsd(data):
    """p-values of the pairs by Tukey's HSD test: the studentized range of the means, with the pooled variance."""
    n, k = data.shape
    error = np.sqrt(data.var(ddof=1).mean() / n)
    pairs = combinations(data.columns, 2)
    return {pair: studentized_range.sf(abs(data[pair[0]].mean() - data[pair[1]].mean()) / error, k, k * (n - 1)) for pair in pairs}


def report(data):
    """The result and the last sentence of the report, which is about the pairs."""
    with redirect_stdout(StringIO()) as text:
        result = autorank(data)
        create_report(result)
    return result, text.getvalue().strip().splitlines()[-1]


def same(sentence, pair):
    """Whether the report puts the two into a group without significant differences."""
    if sentence.endswith("all differences between the populations are significant."):
        return False
    assert "no significant differences within the following groups" in sentence, sentence
    groups = sentence.split("following groups: ")[1].split(". All other")[0].split("; ")
    return any(all(name in group for name in pair) for group in groups)


print("autorank", version("autorank"), "scipy", version("scipy"))
rng = np.random.default_rng(1)
scores = norm.ppf(np.arange(1, 21) / 21)
scores /= scores.std(ddof=1)
data = pd.DataFrame({name: rng.permutation(scores) + shift for name, shift in (("one", 0.0), ("two", 0.5), ("three", 2.0))})
p = hsd(data)
by_scipy = tukey_hsd(*data.to_numpy().T).pvalue
assert np.allclose([p["one", "two"], p["one", "three"], p["two", "three"]], by_scipy[np.triu_indices(3, 1)], atol=1e-6)
result, sentence = report(data)
assert (result.omnibus, result.posthoc, result.alpha) == ("anova", "tukeyhsd", 0.05)
table = result.rankdf
print("p-values of the pairs:", {" and ".join(pair): round(float(value), 4) for pair, value in p.items()})
print("intervals of autorank:", {name: (round(float(table.ci_lower[name]), 3), round(float(table.ci_upper[name]), 3)) for name in table.index})
print("its report:", sentence)
assert p["one", "two"] > 0.2 and table.ci_upper["one"] > table.ci_lower["two"]
assert not same(sentence, ("one", "two"))

# half of the critical distance decides in the report ...
critical = studentized_range.isf(0.05, 3, 57)
decided = []
while len(decided) < 20:
    data = pd.DataFrame(rng.normal(size=(20, 3)) + [0, 0, 3], columns=["one", "two", "three"])
    result, sentence = report(data)
    if result.omnibus != "anova":
        continue  # one of the samples does not look normal, or the variances differ
    distance = abs(data["one"].mean() - data["two"].mean())
    honest = critical * np.sqrt(data.var(ddof=1).mean() / 20)
    assert np.isclose(result.rankdf.ci_upper["one"] - result.rankdf.ci_lower["one"], honest, rtol=1e-3)
    decided.append((same(sentence, ("one", "two")), distance <= honest / 2, distance <= honest))
by_report, by_half, by_test = np.array(decided).T
assert (by_report == by_half).all() and (by_report != by_test).any()

# ... which has this rate of errors
data = rng.normal(size=(50000, 20, 3))
distance = abs(data[:, :, 0].mean(1) - data[:, :, 1].mean(1))
honest = critical * np.sqrt(data.var(1, ddof=1).mean(1) / 20)
rates = [100 * (distance > honest / part).mean() for part in (2, 1)]
print(f"two equal methods and a third one: different by the report in {rates[0]:.1f}%, by the HSD test in {rates[1]:.1f}% of 50000 experiments")
assert rates[0] > 20 and rates[1] < 5
PY
