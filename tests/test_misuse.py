"""Broken files, sizes, threads, terminals and folders that are not what they should be."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mobench as api
from mobench.errors import ConfigError, MobenchError
from mobench.jobs.store import JobFolder
from mobench.system import console
from tests.conftest import REPOSITORY, Run, command, environment, process

# files of a plug-in: what they hold, and what the message must say besides the file's name
BROKEN = {
    "bracket": ("_target_: x.Y\nn: [1, 2\nsteps: 3\n", ["line 3, column 6", "expected ',' or ']'"]),
    "tab": (
        "_target_: x.Y\n\tn: 3\n",
        ["line 2, column 1", "cannot start any token", "indent YAML with spaces"],
    ),
    "twice": ("_target_: x.Y\nn: 3\nn: 4\n", ["line 3, column 1", "duplicate key n"]),
    "latin": (b"_target_: x.Y\nn: \xff\xfe\n", ["can't decode byte 0xff in position 17", "is UTF-8 text"]),
    "open": ("_target_: x.Y\nn: ${foo\n", ["'${foo'"]),
    "number": ("3\n", ["Invalid loaded object type: int", "`key: value` lines"]),
    "defaults": ("defaults: foo\nn: 3\n", ["defaults must be a list", "one entry per line"]),
}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder of configuration whose problems cannot be read."""
    folder = tmp_path / "broken" / "problem"
    folder.mkdir(parents=True)
    for name, (text, _) in BROKEN.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / f"{name}.yaml").write_bytes(data)
    return folder.parent


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_message(mobench: Run, broken: Path, name: str) -> None:
    where = [f"{broken}/problem/{name}.yaml", *BROKEN[name][1]]
    result = mobench(f"hydra.searchpath=['{broken}']", f"problem={name}", "steps=2")
    result.refused(*where)
    with pytest.raises(ConfigError) as caught:
        api.run(f"hydra.searchpath=['{broken}']", problem=name)
    assert all(word in str(caught.value) for word in where)


def test_a_broken_file_that_nobody_chose_does_not_matter(mobench: Run, broken: Path) -> None:
    result = mobench("--config-dir", str(broken), "algorithm=ls", "preferences=2", "steps=2", "logger=local")
    assert result.code == 0, result.err


def test_files_that_name_no_class(mobench: Run, tmp_path: Path) -> None:
    folder = tmp_path / "conf" / "problem"
    folder.mkdir(parents=True)
    (folder / "keys.yaml").write_text("n: 3\nsteps: 10\n")
    (folder / "empty.yaml").write_text("")
    (folder / "absent.yaml").write_text("_target_: no_such_module_of_mine.Thing\nsteps: 10\n")
    search = f"hydra.searchpath=['{folder.parent}']"
    mobench(search, "problem=keys").refused(
        "problem has no _target_, only n, steps", "`_target_: my_parts.MyProblem`"
    )
    mobench(search, "problem=empty", "steps=2").refused("problem is not set, or its file is empty")
    words = ["there is no module 'no_such_module_of_mine'", "export PYTHONPATH=FOLDER"]
    mobench(search, "problem=absent").refused(*words)


# sizes


def test_too_many_preferences_are_refused_before_one_is_made(mobench: Run) -> None:
    began = time.monotonic()
    result = mobench("preferences=1000000000")
    result.refused("requests 1,000,000,000 preferences", "at most 1,000,000", "Request fewer")
    assert result.folders == []
    mobench("problem=dtlz2", "preferences.count=null", "preferences.simplex_steps=100000").refused(
        "5,000,150,001"
    )
    assert time.monotonic() - began < 20.0


# threads


def in_threads(work: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """Returns the result of `work` for each argument, or its error, from threads that begin together."""
    start = threading.Barrier(len(arguments))

    def one(argument: Any) -> Any:
        start.wait(30)
        try:
            return work(argument)
        except MobenchError as error:
            return error

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(one, arguments))


def test_threads_give_the_rows_of_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the jobs comes twice: the second reads what the first has made, however long that takes."""

    def rows(name: str) -> Any:
        return api.run(problem="vlmop2", algorithm=name, preferences=2, steps=200, logger="local")

    names = ["ls", "epo", "mgda", "mgda", "ferero"]
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "one"))
    expected = {name: rows(name).drop(columns="seconds") for name in dict.fromkeys(names)}
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "threads"))
    results = in_threads(rows, names)
    for name, answer in zip(names, results, strict=True):
        assert not isinstance(answer, MobenchError), f"{name}: {answer}"
        assert answer.drop(columns="seconds").equals(expected[name])
    assert results[2].equals(results[3])  # also in the seconds that it took
    assert len(list(tmp_path.glob("threads/runs/*"))) == 4


def test_functions_of_ones_own_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same functions in two threads: the first to end does not take them from the other."""
    import torch

    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path))
    problem = api.objectives([lambda x: (x - 1).square().sum(), lambda x: torch.exp(x).sum()], dim=2)

    def rows(steps: int) -> Any:
        return len(api.run(problem=problem, algorithm="mgda", preferences=2, steps=steps, logger="local"))

    assert in_threads(rows, (2, 300, 5, 200)) == [2, 2, 2, 2]


# terminals, folders, signals


def test_signs_that_a_stream_lacks() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    console.say("1 ± 2 … ✓ µ 数", stream)
    assert raw.getvalue().decode("latin-1") == "1 +- 2 ... + µ ?\n"


def test_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    env = environment(tmp_path / "outputs", PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = process(["bash", "-c", script, "bash", str(gone), *command("preferences=2")], env=env)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "The working folder no longer exists" in done.stderr


def test_ctrl_c_while_the_program_is_imported(tmp_path: Path) -> None:
    """The exit code is 130, also where the import makes another error of it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what nohup and background jobs ignore
        "class Stop:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'hydra':\n"
        "            exec('import os, signal; os.kill(os.getpid(), signal.SIGINT); [0 for _ in "
        "range(9999)]')\n"
        "sys.meta_path.insert(0, Stop())\n"
    )
    env = environment(tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), str(REPOSITORY)]))
    line = command("preferences=2")  # python -m: there Python remembers the signal
    done = process(line, 60, env=env)
    assert (done.returncode, done.stderr) == (130, "mobench: error: Stopped before the first job started.\n")


def test_a_running_job_says_where_it_is(tmp_path: Path) -> None:
    """Between two checkpoints, too: without one `mobench status` would say step 0."""
    arguments = ["algorithm=ls", "preferences=2", "steps=3000000", "record.every=0", "logger=local"]
    arguments.append("checkpoint.seconds=3600")
    code = (
        "import sys\nfrom mobench.cli import entry; from mobench.jobs import train\ntrain.BEAT = 0.2\n"
        f"sys.argv[1:] = {arguments}\nentry.main()\n"
    )
    job = subprocess.Popen([sys.executable, "-c", code], env=environment(tmp_path), stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60.0
        step = 0
        while step == 0 and time.monotonic() < deadline and job.poll() is None:
            time.sleep(0.1)
            step = max(
                (int(JobFolder(p).status().get("step", 0)) for p in tmp_path.glob("runs/*")), default=0
            )
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
    assert step > 0
