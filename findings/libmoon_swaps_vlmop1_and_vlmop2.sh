#!/usr/bin/env bash
# libmoon 0.2.1 (the newest release on PyPI) and 0.1.11: the problem called VLMOP2 is not VLMOP2, and the one called VLMOP1 is.
#
# Van Veldhuizen and Lamont's second problem is f = 1 - exp(-|x -+ 1/sqrt(n)|^2). Its front is concave, so that linear scalarization
# finds its two ends only, which is what papers show with it. In libmoon these formulas belong to VLMOP1, and VLMOP2 has
# f = |x -+ 1/sqrt(n)|^2 / 4, whose front is convex: there linear scalarization with ten weights reaches ten different points. A
# comparison on "VLMOP2" with another library, or with a paper, compares two problems. (0.2.1 also has no package
# libmoon.solver.gradient any more, whose solvers its README lists; 0.1.11 has it.)
#
# The formulas are read from the packages as they are published, with placeholders for torch and matplotlib: the NumPy halves are
# called. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" --quiet --disable-pip-version-check)
"${pip[@]}" install numpy==2.4.6 setuptools==80.9.0 2>/dev/null
for release in 0.1.11 0.2.1; do
    "${pip[@]}" download --no-deps --no-build-isolation --no-binary :all: --dest "$folder" "libmoon==$release" >/dev/null 2>&1
    tar xzf "$folder/libmoon-$release.tar.gz" -C "$folder"
    "$folder/venv/bin/python" - "$folder/libmoon-$release" <<'PY'
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np

root = Path(sys.argv[1])
sys.modules |= {name: MagicMock() for name in ("torch", "matplotlib", "matplotlib.pyplot")}


class Base:
    """In the place of the base class: it keeps what the problems give it."""

    def __init__(self, **fields):
        self.__dict__ |= fields


for name in ("libmoon", "libmoon.problem", "libmoon.problem.synthetic", "libmoon.problem.mop", "libmoon.problem.synthetic.mop"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].mop = Base
module = types.ModuleType("libmoon.problem.synthetic.vlmop")
module.__package__ = "libmoon.problem.synthetic"
exec((root / "libmoon/problem/synthetic/vlmop.py").read_text(), module.__dict__)

t = np.linspace(-1, 1, 5)[:, None]  # points on the segment that is optimal in both
x = np.tile(t / np.sqrt(10), (1, 10))
squares = np.stack([((x - 1 / np.sqrt(10)) ** 2).sum(1), ((x + 1 / np.sqrt(10)) ** 2).sum(1)], 1)
exponential, quadratic = 1 - np.exp(-squares), squares / 4
first, second = module.VLMOP1()._evaluate_numpy(x), module.VLMOP2()._evaluate_numpy(x)
gradient = (root / "libmoon/solver/gradient").is_dir()
print(root.name, "VLMOP2 at x = 0:", second[2], "by the formula:", exponential[2], "| gradient solvers:", gradient)
assert np.allclose(first, exponential) and np.allclose(second, quadratic) and not np.allclose(second, exponential)
# the middle of the front lies above the line between its ends (concave) or below it (convex)
assert exponential[2].sum() > exponential[0].sum() and second[2].sum() < second[0].sum()
assert gradient == (root.name == "libmoon-0.1.11")
PY
done
