#!/usr/bin/env bash
# scikit-posthocs 0.17.1: posthoc_quade(dist="normal") calls a quarter of all pairs of equal methods different at the level 0.05.
#
# Quade's test compares k methods on n blocks (problems or seeds), with ranks that are weighted by the range of the block. The normal statistic
# of a pair (Heckert and Filliben 2003, whom the documentation cites; Garcia et al. 2010) divides the difference of the weighted mean ranks
# by sqrt(k (k+1) (2n+1) (k-1) / (18 n (n+1))). The library puts the number of all values, nk, in the place of n, so that the statistic
# is nearly sqrt(k) times as large. For three methods, p = 0.05 stands for p = 0.26; of data sets of pure noise, every second one has a
# "significant" pair, for 20 blocks as for 200, and with Bonferroni's correction still every third. The default, dist="t", is right.
# No message says so.
#
# The variance of the difference is also taken from all rankings below, without the formula. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile scikit-posthocs==0.17.1 statsmodels==0.15.0 pandas==3.1.1 \
    numpy==2.4.6 scipy==1.17.1 matplotlib==3.11.2 seaborn==0.13.2 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version
from itertools import permutations

import numpy as np
import scikit_posthocs
from scipy.stats import norm, rankdata

k = 3
upper = np.triu_indices(k, 1)


def p_values(data, size=None):
    """Two-sided p-values of all pairs: the formula with n = size, or the variance over all rankings that are equally likely."""
    n = len(data)
    weights = rankdata(np.ptp(data, axis=1))
    W = (weights[:, None] * rankdata(data, axis=1)).sum(0) / (n * (n + 1) / 2)
    if size is None:
        rankings = np.array(list(permutations(range(1, k + 1))))
        variance = (weights**2).sum() * (rankings[:, 0] - rankings[:, 1]).var() / (n * (n + 1) / 2) ** 2
    else:
        variance = k * (k + 1) * (2 * size + 1) * (k - 1) / (18 * size * (size + 1))
    return 2 * norm.sf(abs(W[upper[0]] - W[upper[1]]) / variance**0.5)


def library(data, **options):
    return scikit_posthocs.posthoc_quade(data, **options).to_numpy()[upper]


print("scikit-posthocs", version("scikit-posthocs"))
rng = np.random.default_rng(0)
for n in (20, 200):
    alarms = {}
    for _ in range(250):
        data = rng.normal(size=(n, k))
        right, normal = p_values(data), library(data, dist="normal")
        assert np.allclose(p_values(data, n), right), "the formula is the variance over all rankings"
        assert np.allclose(normal, p_values(data, n * k)) and (normal <= right).all()
        for name, p in {"the formula": right, 'dist="t"': library(data), 'dist="normal"': normal, "Bonferroni": normal * k}.items():
            alarms.setdefault(name, []).append(p < 0.05)
    print(f"{k} equal methods, {n} blocks of noise, 250 times:")
    for name, hits in alarms.items():
        pairs, sets = np.mean(hits), np.any(hits, axis=1).mean()
        print(f"    {name:14} p < 0.05 for {pairs:.3f} of the pairs, for at least one pair in {sets:.3f} of the data sets")
    assert np.mean(alarms["the formula"]) < 0.08 and np.mean(alarms['dist="t"']) < 0.08
    assert np.mean(alarms['dist="normal"']) > 0.2
    assert np.any(alarms['dist="normal"'], axis=1).mean() > 0.4
    assert np.any(alarms["Bonferroni"], axis=1).mean() > 0.2
PY
