#!/usr/bin/env bash
# autorank 1.3.0: whatever alpha is, the post-hoc comparison of three or more normal methods is made at the level 0.05.
#
# autorank(data, alpha=0.001) uses 0.001 for the tests of normality and for the ANOVA, and Tukey's HSD test for the pairs, but that one keeps its
# default of 0.05. So the intervals of the means, which are to overlap unless the difference is significant, are the same for every alpha. The
# plot of them has the title "99.9% Confidence Intervals of the Mean", and the report starts with "the family-wise significance level of
# the tests is alpha=0.001". In the example two methods with p = 0.02 have separate intervals at alpha = 0.001; the right ones are 1.6 times as
# wide and overlap. With alpha = 0.2 they are too wide. With two methods the intervals follow alpha, and so does the critical distance of
# Nemenyi's test where the methods do not look normal. No message says so; alpha is documented to hold for all results and intervals.
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
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
from scipy.stats import norm, studentized_range, tukey_hsd

for name in ("matplotlib", "matplotlib.pyplot", "baycomp"):
    sys.modules[name] = MagicMock()
from autorank import autorank, create_report, plot_stats  # noqa: E402


def analyse(data, alpha):
    """The result, the title of the plot and the sentence of the report about the significance level."""
    with redirect_stdout(StringIO()) as text:
        result = autorank(data, alpha=alpha)
        create_report(result, decimal_places=3)
    axes = MagicMock()
    title = plot_stats(result, ax=axes).set_title.call_args.args[0] if result.omnibus == "anova" else None
    return result, title, next(line for line in text.getvalue().splitlines() if "significance level" in line)


print("autorank", version("autorank"), "scipy", version("scipy"))
rng = np.random.default_rng(3)
n, k = 20, 3
scores = norm.ppf(np.arange(1, n + 1) / (n + 1))
scores /= scores.std(ddof=1)
data = pd.DataFrame({name: rng.permutation(scores) + shift for name, shift in (("one", 0.0), ("two", 0.87), ("three", 4.0))})
p = tukey_hsd(*data.to_numpy().T).pvalue[0, 1]
distance = data["two"].mean() - data["one"].mean()
error = np.sqrt(data.var(ddof=1).mean() / n)
assert np.isclose(p, studentized_range.sf(distance / error, k, k * (n - 1)))
print(f"one and two differ by {distance:.3f}, p = {p:.4f} by Tukey's HSD test")
assert 0.01 < p < 0.05
for alpha in (0.05, 0.001, 0.2):
    result, title, level = analyse(data, alpha)
    assert (result.omnibus, result.posthoc, result.alpha) == ("anova", "tukeyhsd", alpha) and result.pvalue < 0.001
    lower, upper = (result.rankdf[column].astype(float) for column in ("ci_lower", "ci_upper"))
    half = ((upper - lower) / 2)["one"]
    # intervals of this half-width overlap unless the HSD test rejects at the level alpha
    right = studentized_range.isf(alpha, k, k * (n - 1)) * error / 2
    print(f"alpha = {alpha:g}: {title!r} have the half-width {half:.3f}, by the test {right:.3f};", level)
    assert f"{100 - 100 * alpha:.1f}%" in title and f"alpha={alpha:.3f}" in level
    assert np.isclose(half, studentized_range.isf(0.05, k, k * (n - 1)) * error / 2, rtol=1e-3)
    assert upper["one"] < lower["two"]
    if alpha == 0.001:
        assert right > 1.5 * half and 2 * right > distance

two = [analyse(data[["one", "two"]], alpha)[0].rankdf for alpha in (0.05, 0.001)]
widths = [float(table.ci_upper["one"] - table.ci_lower["one"]) for table in two]
print(f"with two methods the intervals have the widths {widths[0]:.3f} for alpha = 0.05 and {widths[1]:.3f} for alpha = 0.001")
assert widths[1] > 1.5 * widths[0]
PY
