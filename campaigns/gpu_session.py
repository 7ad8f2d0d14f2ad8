"""Work for one GPU and 45 minutes, in order of value: `make gpu`, or
`python -m campaigns.gpu_session [PART ...] [--minutes 45] [--rehearse]`.

Each part is a command of its own with a time limit. A part that runs out of time is stopped as a cluster
stops a job (SIGTERM: jobs save a checkpoint), and the same command continues it; a part that has ended well
at this commit is not repeated. Rows are written to the usual outputs ($MOBENCH_OUTPUTS, else outputs), from
which `mobench keep` takes them. The folder gpu below the outputs holds what the parts printed
and how they ended.

`--rehearse` runs every part to its end at smoke scale on the pretended GPU of `tests/pretend_cuda.py`: it
shows that the commands work, and nothing about speed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mobench.system.files import write_atomic
from mobench.system.paths import outputs_root
from mobench.system.provenance import code

GRACE = 60.0
"""Seconds between SIGTERM and SIGKILL: a checkpoint of a large job takes a few."""
FEW_SHOT = ("mobl/fig1", "mobl/fig4", "mobl/fig5", "mobl/fig6", "mobl/fig7")
IMAGES = ("ferero/fig5", "ferero/table2", "ferero/table8")


@dataclass(frozen=True)
class Part:
    """A module with its arguments, at full size and in a rehearsal.

    needs: folders below the folder of the data.
    """

    name: str
    title: str
    minutes: float
    command: tuple[str, ...]
    rehearsal: tuple[str, ...]
    needs: tuple[str, ...] = ()


def _artifacts(ids: Sequence[str], *overrides: str, smoke: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Both commands of a part that draws artifacts."""
    first = ("mobench", f"+experiment={','.join(ids)}", "hardware=gpu")
    return {
        "command": (*first, "scale=paper", *overrides),
        "rehearsal": (*first, "scale=smoke", "data=digits", *smoke),
    }


def parts(folder: Path) -> list[Part]:
    """All parts, in order of value. `folder`: where the benchmark writes."""
    page = ("--json", str(folder / "benchmark.json"), "--output", str(folder / "performance_gpu.md"))
    tests = ("pytest", "tests/test_gpu.py", "-q", "-p", "no:cacheprovider", "-n", "0")
    one = "problem.episodes=named"
    return [
        Part("tests", "every algorithm on every problem against the CPU", 7.0, tests,
             (*tests, "-k", "of_the_cpu[ls] or vlmop2 or resumed or captures or tf32 or program_is_solved")),
        Part("benchmark", "seconds per step and share of the peak", 8.0, ("benchmarks.gpu", *page),
             ("benchmarks.gpu", "--quick", *page)),
        Part("images", "FERERO's images: 78 runs", 12.0, **_artifacts(IMAGES, "data=mnist"),
             needs=("MNIST", "FashionMNIST")),
        Part("cifar", "federated CIFAR-10, three seeds", 8.0,
             **_artifacts(["omd_tch/table2"], "data=mnist", "artifact.only=[c*]", "seeds=[0,25,37]",
                          smoke=["artifact.only=[c2_*]"]), needs=("cifar10",)),
        Part("few_shot", "few-shot learning on FC-100", 6.0,
             **_artifacts(FEW_SHOT, "data=cifar100", smoke=[one]), needs=("cifar100",)),
        Part("speech", "bilingual speech recognition", 4.0,
             **_artifacts(["ferero/table3"], "data=speech_small"), needs=("speech",)),
    ]  # fmt: skip


class Session:
    """Runs parts one after the other, and remembers how they ended."""

    def __init__(self, folder: Path, data: Path, rehearse: bool) -> None:
        self.folder = folder
        self.data = data
        self.rehearse = rehearse
        self.path = folder / ("rehearsal.json" if rehearse else "session.json")
        self.version = code()

    def ended(self) -> dict[str, dict[str, Any]]:
        """How each part ended the last time, at this commit."""
        if not self.path.exists():
            return {}
        record: dict[str, Any] = json.loads(self.path.read_text())
        return record["parts"] if record["code"] == self.version else {}

    def command(self, part: Part) -> list[str]:
        """The part in this Python; a rehearsal inside the pretended device."""
        if self.rehearse:
            return [sys.executable, "-m", "tests.pretend_cuda", "-m", *part.rehearsal]
        return [sys.executable, "-m", *part.command]

    def run(self, part: Part, seconds: float) -> str:
        """Runs a part for at most so many seconds; done, stopped, failed or skipped."""
        if self.ended().get(part.name, {}).get("state") == "done":
            print(f"{part.name}: done before", flush=True)
            return "done"
        absent = [] if self.rehearse else [name for name in part.needs if not (self.data / name).exists()]
        if absent:
            print(f"{part.name}: skipped, {self.data} contains no {' and no '.join(absent)}", flush=True)
            return self._note(part, "skipped", 0.0)
        log = self.folder / f"{part.name}.log"
        print(f"{part.name}: {part.title}, at most {seconds / 60:.1f} minutes; {log}", flush=True)
        begun = time.monotonic()
        environment = os.environ | ({} if self.rehearse else {"MOBENCH_DATA": str(self.data)})
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.command(part), stdout=output, stderr=subprocess.STDOUT, env=environment
            )
            state = _wait(process, seconds)
        return self._note(part, state, time.monotonic() - begun)

    def _note(self, part: Part, state: str, seconds: float) -> str:
        entry = {"state": state, "seconds": round(seconds, 1), "command": list(part.command)}
        record = {"code": self.version, "parts": self.ended() | {part.name: entry}}
        write_atomic(self.path, json.dumps(record, indent=1).encode())
        if state != "skipped":
            print(f"{part.name}: {state} after {seconds:.0f} s", flush=True)
        if state == "failed":
            lines = (self.folder / f"{part.name}.log").read_text(errors="replace").splitlines()
            print("\n".join(f"  {line}" for line in lines[-8:]), flush=True)
        return state


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """How a process ended that may take so many seconds."""
    try:
        return "done" if process.wait(seconds) == 0 else "failed"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return "stopped"
    except BaseException:
        process.terminate()
        process.wait()
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the parts that the options name; 1 if one failed or was stopped, so that a script goes on."""
    folder = outputs_root() / "gpu"
    by_name = {part.name: part for part in parts(folder)}
    parser = argparse.ArgumentParser(prog="python -m campaigns.gpu_session", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(by_name)} (default: all)")
    parser.add_argument("--minutes", type=float, default=45.0, help="for all parts together (default: 45)")
    parser.add_argument("--rehearse", action="store_true", help="smoke scale on a pretended GPU")
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.parts if name not in by_name]:
        parser.error(f"no part is called {', '.join(unknown)}; choose from {', '.join(by_name)}")
    data = Path(os.environ.get("MOBENCH_DATA") or "data").resolve()
    session = Session(folder, data, chosen.rehearse)
    todo = [by_name[name] for name in chosen.parts or by_name]
    if chosen.list:
        for part in todo:
            print(f"{part.name} ({part.minutes:g} minutes): {' '.join(session.command(part))}")
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60.0 * chosen.minutes
    states = {}
    for part in todo:
        left = end - time.monotonic()
        if left <= 0:
            print(f"{part.name}: no time left; repeat the command", flush=True)
            states[part.name] = "stopped"
            continue
        states[part.name] = session.run(part, min(left, 60.0 * part.minutes))
    if "stopped" in states.values():
        print("Repeat the command to continue the parts that were stopped.")
    if not chosen.rehearse:
        print(f"Rows lie in {outputs_root() / 'runs'}; `mobench keep ID` keeps those of an artifact.")
    return int(any(state in ("stopped", "failed") for state in states.values()))


if __name__ == "__main__":
    sys.exit(main())
