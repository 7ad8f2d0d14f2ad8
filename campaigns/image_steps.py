"""Runs the steps of the Dockerfile without a container engine:  python -m campaigns.image_steps FOLDER

FOLDER, which must not exist, takes the place of WORKDIR. COPY takes the files of the last commit, and .git;
what .dockerignore leaves out of the image is not committed. RUN and CMD are run in FOLDER with the variables
of ENV, in which /mobench is FOLDER, and with a home of their own. The step that installs packages of the
distribution is left out: it would change this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
INSTRUCTIONS = ("ARG", "FROM", "SHELL", "ENV", "WORKDIR", "COPY", "RUN", "CMD")


def steps(text: str) -> list[tuple[str, str]]:
    """Instruction and argument of each step, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    instructions = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, argument = line.partition(" ")
        if name not in INSTRUCTIONS:
            raise ValueError(f"Dockerfile: {name} is not known here; known are {', '.join(INSTRUCTIONS)}.")
        instructions.append((name, argument))
    return instructions


def build(folder: Path) -> None:
    """Runs all steps.

    Raises:
        subprocess.CalledProcessError: a step has failed.
    """
    home = folder.with_name(f"{folder.name}-home")
    home.mkdir(parents=True)
    inherited = {
        name: os.environ[name] for name in os.environ if not name.startswith(("MOBENCH_", "VIRTUAL_ENV"))
    }
    environment = inherited | {"HOME": str(home)}
    shell = ["/bin/sh", "-c"]
    workdir = ""
    for name, argument in steps((REPOSITORY / "Dockerfile").read_text()):
        print(f"{name} {argument}", flush=True)
        if name == "SHELL":
            shell = json.loads(argument)
        elif name == "ENV":
            for pair in shlex.split(argument):
                key, _, value = pair.partition("=")
                value = value.replace("/mobench", str(folder)).replace("$PATH", environment["PATH"])
                environment[key] = value
        elif name == "WORKDIR":
            workdir = argument
        elif name == "COPY":
            if (workdir, argument) != ("/mobench", ". ."):
                raise ValueError(f"Dockerfile: COPY {argument} in {workdir}; expected COPY . . in /mobench.")
            subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(folder)], check=True)
        elif name == "RUN" and argument.startswith("apt-get"):
            print("  left out: packages of the distribution")
        elif name == "RUN":
            subprocess.run([*shell, argument], cwd=folder, env=environment, check=True)
        elif name == "CMD":
            subprocess.run(json.loads(argument), cwd=folder, env=environment, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns.image_steps",
        description=(__doc__ or "").split("\n\n", 1)[1],
    )
    parser.add_argument("folder", type=Path, help="takes the place of the image's working directory")
    folder = parser.parse_args().folder.resolve()
    if folder.exists():
        print(f"{folder} exists; name a folder that does not, as an image begins empty.", file=sys.stderr)
        return 2
    try:
        build(folder)
    except subprocess.CalledProcessError as error:
        print(f"this step failed with exit code {error.returncode}: {error.cmd}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
