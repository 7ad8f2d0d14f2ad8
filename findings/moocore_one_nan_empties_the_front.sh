#!/usr/bin/env bash
# moocore 0.3.2: a point with one NaN, such as the row of a diverged run, removes every finite point from the front.
#
# is_nondominated, filter_dominated and pareto_rank call the point with one NaN the only nondominated one if it is
# better in another objective, and pymoo 0.6.2, whose sorting uses moocore, returns it alone, too; a point that is
# all NaN is dropped instead. The hypervolume passes over a NaN with two objectives and is NaN with three. No
# function warns. BoTorch's is_non_dominated drops points with a NaN. So lost runs must be taken out beforehand.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check moocore==0.3.2 pymoo==0.6.2 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import moocore
import numpy as np
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

nan = np.nan
print("moocore", version("moocore"), "pymoo", version("pymoo"))
F = np.array([[0.5, 0.5], [nan, 0.1], [0.6, 0.6], [0.1, 0.9]])
print("front of three finite points and (nan, 0.1):", moocore.filter_dominated(F).tolist())
assert moocore.is_nondominated(F).tolist() == [False, True, False, False]
assert moocore.pareto_rank(F).tolist() == [1, 0, 2, 1]
assert NonDominatedSorting().do(F, only_non_dominated_front=True).tolist() == [1]
F[1] = nan
print("front of three finite points and (nan, nan):", moocore.filter_dominated(F).tolist())
assert moocore.is_nondominated(F).tolist() == [True, False, False, True]
two = moocore.hypervolume(np.array([[0.5, 0.5], [nan, 0.1]]), ref=[1, 1])
three = moocore.hypervolume(np.array([[0.5, 0.5, 0.5], [nan, 0.1, 0.1]]), ref=[1, 1, 1])
print("hypervolume with a NaN, two objectives:", two, "three objectives:", three)
assert two == 0.25
assert np.isnan(three)
PY
