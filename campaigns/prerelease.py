"""Tries mobench with versions of Hydra and OmegaConf that are not out yet: `python -m campaigns.prerelease`.

An environment of its own takes them with `pip install --pre`, and all other packages from the environment
that runs this. There, a job, a sweep in one process, one in workers, and the tests of composing run. Nothing
is installed into the environment that runs this; `pyproject.toml` decides what users get.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

PACKAGES = ("hydra-core", "omegaconf", "hydra-joblib-launcher")
QUICK = ("preferences=2", "steps=5", "logger=local")
COMMANDS: dict[str, tuple[str, ...]] = {
    "a job": ("problem=vlmop2", "algorithm=ferero", *QUICK),
    "a sweep": ("-m", "algorithm=ls,mgda", *QUICK),
    "workers": ("-m", "algorithm=ls,epo", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *QUICK),
    "an artifact": ("+experiment=ferero/fig7", "scale=smoke", "logger=local"),
}
TESTS = ("tests/test_fixed_cost.py", "tests/test_cli.py", "tests/test_objective.py")
REPOSITORY = Path(__file__).resolve().parent.parent


def environment(folder: Path) -> str:
    """Makes an environment with the pre-releases, over the packages of this one; returns its Python."""
    venv.create(folder, with_pip=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # unlike a plain path, this also reads the .pth files there, such as that of an editable mobench
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--pre", "--upgrade", *PACKAGES], check=True)
    (packages / "packages_of_mobench.pth").write_text(f"{line}\n")
    return python


def main() -> int:
    """Prints how each call ended; the exit code is the number of failures."""
    with tempfile.TemporaryDirectory() as place:
        python = environment(Path(place) / "env")
        code = "import hydra, omegaconf; print(hydra.__version__, omegaconf.__version__)"
        versions = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
        hydra, omegaconf = versions.split()
        print(f"hydra-core {hydra}, omegaconf {omegaconf}", flush=True)
        variables = {**os.environ, "MOBENCH_OUTPUTS": f"{place}/outputs"}
        calls = {name: ("mobench", *arguments) for name, arguments in COMMANDS.items()}
        calls["tests"] = ("pytest", "-q", "-p", "no:cacheprovider", *TESTS)
        failures = 0
        for name, call in calls.items():
            done = subprocess.run([python, "-m", *call], cwd=REPOSITORY, env=variables, check=False)
            failures += done.returncode != 0
            print(
                f"{name}: {'passed' if done.returncode == 0 else f'exit code {done.returncode}'}", flush=True
            )
    return failures


if __name__ == "__main__":
    sys.exit(main())
