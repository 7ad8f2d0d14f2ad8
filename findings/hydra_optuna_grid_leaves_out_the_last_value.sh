#!/usr/bin/env bash
# hydra-optuna-sweeper 1.3.0 with hydra-core 1.3.8: the same range(...) is three different sets of runs.
#
# Hydra's own sweeper takes range(0,10,3) as Python does: 0, 3, 6, 9. With hydra/sweeper=optuna and sampler=grid, whose
# purpose is to run them all, 9 is never run, not even with n_trials=50: the values are counted as (stop - start) // step,
# one too few wherever the step does not divide the length. Of the weights range(0.1,1,0.1) the last one, 0.9, is missing,
# by rounding. With sampler=random, range(0,4) runs 4, too, since Optuna's bounds belong to the interval. So a sweep over
# preferences or seeds changes with the sweeper: an end of the front stays empty, or an index is run that does not exist.
# No message says so. The values written out as choice(...) are all run.
#
# Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check hydra-optuna-sweeper==1.3.0 hydra-core==1.3.8 optuna==2.10.1 numpy==2.4.6 scipy==1.17.1 2>/dev/null
cat > "$folder/app.py" <<'PY'
import hydra


@hydra.main(version_base=None, config_path=None)
def main(config):
    with open("../ran.txt", "a") as file:
        file.write(f"{config.w}\n")
    return float(config.w)


main()
PY
cat > "$folder/look.py" <<'PY'
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory


def ran(values, *options):
    """The different values of w that a sweep has run."""
    with TemporaryDirectory() as where:
        command = [sys.executable, "app.py", "-m", *options, f"hydra.sweep.dir={where}", "hydra.job.chdir=true"]
        subprocess.run([*command, f"+w={values}"], cwd=Path(__file__).parent, check=True, capture_output=True)
        return sorted({float(line) for line in Path(where, "ran.txt").read_text().split()})


optuna = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=50", "hydra/sweeper/sampler=")
print("hydra-optuna-sweeper", version("hydra-optuna-sweeper"), "hydra-core", version("hydra-core"))
seen = {}
for values, expected in (
    ("range(0,10,3)", list(range(0, 10, 3))),
    ("range(0.1,1,0.1)", [k / 10 for k in range(1, 10)]),
    ("choice(0,3,6,9)", [0, 3, 6, 9]),
):
    basic, grid = ran(values), ran(values, *optuna[:2], optuna[2] + "grid")
    print(f"{values}: the basic sweeper runs {[round(v, 6) for v in basic]}, the grid sampler {[round(v, 6) for v in grid]}")
    assert [round(v, 6) for v in basic] == expected
    assert [round(v, 6) for v in grid] == (expected if "choice" in values else expected[:-1])
random = ran("range(0,4)", *optuna[:2], optuna[2] + "random", "hydra.sweeper.sampler.seed=0")
print(f"range(0,4): the random sampler runs {random}")
assert random == [0, 1, 2, 3, 4]
PY
"$folder/venv/bin/python" -W ignore "$folder/look.py"
