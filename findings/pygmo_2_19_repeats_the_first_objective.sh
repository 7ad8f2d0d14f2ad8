#!/usr/bin/env bash
# pygmo 2.19.5 with NumPy 2: every problem of several objectives returns its first objective in all places.
#
# The wheel was built for NumPy 1 and asks for no upper bound, so pip installs it beside NumPy 2, where it imports
# without a word. fitness() of ZDT1 is then (f_1, f_1), of DTLZ1 (f_1, f_1, f_1): an optimizer sees a front that is
# one point, and a hypervolume of it looks plausible. With NumPy 1.26 the same wheel is right, and so is pygmo 2.20.0
# with NumPy 2.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cat > "$folder/look.py" <<'PY'
from importlib.metadata import version

import numpy as np
import pygmo

x = np.full(30, 0.3)
f = pygmo.problem(pygmo.zdt(1, 30)).fitness(x)
g = 1 + 9 * x[1:].mean()
right = np.array([0.3, g * (1 - np.sqrt(0.3 / g))])
print(f"pygmo {version('pygmo')}, NumPy {np.__version__}: ZDT1 at (0.3, ...) is {np.round(f, 5)}, by its formula {np.round(right, 5)}")
print("right" if np.allclose(f, right) else "first objective twice" if np.allclose(f, 0.3) else "something else")
PY
look() {
  python3 -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet --disable-pip-version-check "pygmo==$2" "numpy==$3" "cloudpickle==3.1.2" 2>/dev/null
  "$folder/$1/bin/python" "$folder/look.py" | tee "$folder/$1.txt"
}
look old 2.19.5 2.2.6
look older_numpy 2.19.5 1.26.4
look new 2.20.0 2.2.6
grep -q "first objective twice" "$folder/old.txt"
grep -q "^right" "$folder/older_numpy.txt"
grep -q "^right" "$folder/new.txt"
