#!/usr/bin/env bash
# arch 8.0.0: SPA and StepM compare plain differences, whatever studentize is, and overlook a better method beside a noisy one.
#
# Hansen's test of superior predictive ability (2005) asks whether any of k methods beats a baseline, and StepM (Romano and Wolf 2005) which of them
# do. What sets Hansen's test apart from White's Reality Check is that each mean difference is divided by its standard error,
# sqrt(n) mean(d_k) / omega_k, before the largest is taken; otherwise the method with the largest variance decides alone. In arch this is
# the option studentize=True, the default, and the object prints "studentization: asymptotic". But omega_k is used only to find out which methods
# are hopelessly bad; the statistic and its bootstrap are those of the plain means. True, False and nested=True have the same p-value to the
# last digit, that of White. Whoever adds one unstable method to a comparison loses the others: in the example a method is better than the
# baseline by five standard errors, and with a noisy one beside it SPA says p = 0.28 on the average, and StepM hardly ever finds it.
# Until that changes, one can divide the differences by their standard deviations before the test.
#
# Both statistics are written out below, with a bootstrap of their own. The rows are independent, hence blocks of 1. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps arch==8.0.0 numpy==2.4.6 scipy==1.17.1 \
    pandas==3.1.1 statsmodels==0.15.0 formulaic==1.2.2 interface_meta==2.0.1 narwhals==2.29.0 packaging==26.4 patsy==1.0.3 \
    python-dateutil==4.0.0 typing_extensions==4.16.0 wrapt==2.5.2 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
from arch.bootstrap import SPA, StepM

ROWS, REPS, CASES = 100, 200, 40


def losses(rng, gain):
    """A baseline on independent problems, a method that is better by so many standard errors, a noisy one that is as good, and a worse one."""
    baseline = rng.normal(size=ROWS)
    steady, noisy, worse = (
        rng.normal(gain / ROWS**0.5, 1, ROWS),
        rng.normal(0, 20, ROWS),
        rng.normal(-0.5, 1, ROWS),
    )
    return baseline, baseline[:, None] - np.column_stack([steady, noisy, worse])


def by_hand(baseline, methods, studentized, rng):
    """The p-value of the largest mean difference, with all methods recentered (the "upper" one)."""
    d = baseline[:, None] - methods
    omega = d.std(0) if studentized else 1.0
    drawn = d[rng.integers(ROWS, size=(REPS, ROWS))].mean(1) - d.mean(0)
    return ((drawn / omega).max(1) > (d.mean(0) / omega).max()).mean()


def library(test, baseline, methods, **options):
    there = test(baseline, methods, block_size=1, reps=REPS, **options)
    there.compute()
    return there


print("arch", version("arch"), " numpy", version("numpy"))
rng = np.random.default_rng(0)
found = dict.fromkeys(
    ("SPA", "StepM", "SPA of divided differences", "studentized by hand", "plain by hand"), 0
)
alarms = dict.fromkeys(("SPA", "studentized by hand"), 0)
p_values = []
for case in range(CASES):
    baseline, methods = losses(rng, 5)
    spa = library(SPA, baseline, methods, seed=case)
    plain, nested = (
        library(SPA, baseline, methods, seed=case, studentize=False),
        library(SPA, baseline, methods, seed=case, nested=True),
    )
    assert (plain.pvalues == spa.pvalues).all() and (
        plain.critical_values() == spa.critical_values()
    ).all(), "studentize has an effect"
    assert nested.pvalues["upper"] == spa.pvalues["upper"], "nested has an effect"
    assert "asymptotic" in str(spa) and "none" in str(plain) and "studentization: bootstrap" in str(nested)
    hand = {studentized: by_hand(baseline, methods, studentized, rng) for studentized in (True, False)}
    p_values.append((spa.pvalues["upper"], hand[False], hand[True]))
    divided = (baseline[:, None] - methods) / (baseline[:, None] - methods).std(0)
    found["SPA"] += spa.pvalues["consistent"] < 0.05
    found["StepM"] += 0 in library(StepM, baseline, methods, seed=case).superior_models
    found["SPA of divided differences"] += (
        library(SPA, np.zeros(ROWS), -divided, seed=case).pvalues["consistent"] < 0.05
    )
    found["studentized by hand"] += hand[True] < 0.05
    found["plain by hand"] += hand[False] < 0.05
    baseline, methods = losses(rng, 0)
    alarms["SPA"] += int(library(SPA, baseline, methods, seed=case).pvalues["consistent"] < 0.05)
    alarms["studentized by hand"] += int(by_hand(baseline, methods, True, rng) < 0.05)
print(
    f"{CASES} cases with a method that is better by 5 standard errors; p < 0.05, or in the set of StepM, in:"
)
for name, hits in found.items():
    print(f"    {name:26} {hits}")
there, plain, studentized = np.array(p_values).T
print(
    f"mean p-value of SPA {there.mean():.2f}; by hand {plain.mean():.2f} for plain differences "
    f"and {studentized.mean():.4f} for studentized ones"
)
print(f"{CASES} cases without a difference; p < 0.05 in: {alarms}")
assert abs(there - plain).mean() < 0.06, "SPA is no longer the plain test"
assert max(found["SPA"], found["StepM"], found["plain by hand"]) < 0.2 * CASES, found
assert min(found["studentized by hand"], found["SPA of divided differences"]) > 0.95 * CASES, found
assert max(alarms.values()) < 0.13 * CASES, alarms
PY
