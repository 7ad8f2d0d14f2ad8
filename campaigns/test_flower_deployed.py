"""mobench.flower with a real SuperLink and SuperNodes: processes that speak over the loopback address.

`tests/test_flower.py` runs the same messages and clients of Flower in one process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mobench
from tests.conftest import REPOSITORY

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

PROJECT = """
[project]
name = "quadratics"
version = "1.0.0"
description = ""
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "mobench"

[tool.flwr.app.components]
serverapp = "quadratics.server:app"
clientapp = "quadratics.client:app"

[tool.flwr.app.config]
rounds = 3
target = ""
"""
SERVER = """
import pathlib

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp

import mobench

app = ServerApp()


@app.main()
def main(grid, context):
    target = pathlib.Path(str(context.run_config["target"]))
    strategy = mobench.flower.strategy("fedmgda_plus", 3, local_step=0.1, flower={"fraction_evaluate": 0.0})

    def keep(number, arrays):
        path = target / f"{number}.npz"
        np.savez(path.with_suffix(".part.npz"), x=arrays["x"].numpy())
        path.with_suffix(".part.npz").rename(path)

    first = ArrayRecord({"x": Array(np.array([2.0, -1.0]))})
    rounds = int(context.run_config["rounds"])
    strategy.start(grid=grid, initial_arrays=first, num_rounds=rounds, timeout=100, evaluate_fn=keep)
    lines = [f"{r.number} {list(r.answered)} {dict(r.refused)}" for r in strategy.rounds]
    (target / "rounds.txt").write_text("\\n".join(lines))
"""
CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
CENTRES = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
SCALES = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0]])


@app.train()
def train(message, context):
    config = message.content["config"]
    m = int(context.node_config["partition-id"])
    x = message.content["arrays"]["x"].numpy()
    losses = []
    for _ in range(3):
        losses.append(0.5 * (SCALES[m] * (x - CENTRES[m]) ** 2).sum())
        x = x - config["local-step"] * SCALES[m] * (x - CENTRES[m])
    if m == 1 and config["server-round"] == 3:
        raise RuntimeError("the disk is full")
    if m == 2 and config["server-round"] == 3:
        x = x * np.nan
    metrics = MetricRecord({"train_loss": float(np.mean(losses)), "partition-id": m})
    return Message(RecordDict({"a": ArrayRecord({"x": Array(x)}), "m": metrics}), reply_to=message)
"""
LIMIT = 300  # seconds for all of it


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Callable[[Path, Path], None]]:
    """A SuperLink and three SuperNodes on the loopback address, each a process, which end with the test."""
    link, *nodes = free_ports(4)
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    binaries = Path(sys.executable).parent
    env = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
    }
    running: list[subprocess.Popen[bytes]] = []

    def begin(*words: str) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"process{len(running)}.log").open("wb")
        with log:
            running.append(
                subprocess.Popen(words, env=env, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
            )
        return running[-1]

    def run(app: Path, target: Path) -> None:
        off = "--disable-runtime-dependency-installation"
        begin("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(link), off)
        for m, port in enumerate(nodes):
            here = ["--host", "127.0.0.1", "--port", str(port), "--node-config", f"partition-id={m}"]
            begin("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link}", *here)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:  # refused until the SuperLink listens
            command = ["flwr", "run", str(app), "--run-config", f"target='{target}'"]
            if begin(*command).wait(timeout=LIMIT) == 0:
                break
            time.sleep(0.5)
        while time.monotonic() < end and not (target / "rounds.txt").is_file():
            assert all(process.poll() is None for process in running[:4])
            time.sleep(0.2)
        assert (target / "rounds.txt").is_file(), "\n".join(
            log.read_text(errors="replace")[-2000:] for log in sorted(tmp_path.glob("process*.log"))
        )

    try:
        yield run
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)


@pytest.mark.timeout(LIMIT + 60)
def test_a_real_server_and_clients(
    deployment: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds equal the internal loop; then a client fails and one sends NaN: the third goes on alone."""
    app, target = tmp_path / "app", tmp_path / "target"
    for folder in (app / "quadratics", target):
        folder.mkdir(parents=True)
    (app / "pyproject.toml").write_text(PROJECT)
    (app / "quadratics" / "__init__.py").touch()
    (app / "quadratics" / "server.py").write_text(SERVER)
    (app / "quadratics" / "client.py").write_text(CLIENT)
    deployment(app, target)
    path = [np.load(target / f"{t}.npz")["x"] for t in range(4)]

    scope: dict[str, Any] = {}
    exec(CLIENT, scope)
    centres, scales = (torch.from_numpy(scope[key]) for key in ("CENTRES", "SCALES"))
    problem = mobench.objectives(
        lambda x: 0.5 * (scales * (x - centres) ** 2).sum(-1), start=[2.0, -1.0], positive=True
    )
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    rows = mobench.run(
        "oracle.local_steps=3",
        "oracle.local_step=0.1",
        "algorithm.step_size=0.1",
        problem=problem,
        oracle="local_steps",
        algorithm="fedmgda_plus",
        **{"preferences.weights": "uniform"},
        seeds=[0],
        steps=2,
    )
    inner = mobench.load(rows).solutions["last"][0]
    np.testing.assert_allclose(path[2], inner, rtol=0, atol=1e-12)

    lines = (target / "rounds.txt").read_text().splitlines()
    assert [line.split("{")[0].strip() for line in lines] == ["1 [0, 1, 2]", "2 [0, 1, 2]", "3 [0]"]
    assert "the disk is full" in lines[2]
    assert "client 2" in lines[2]
    assert "not finite" in lines[2]
    alone = path[2]
    for _ in range(3):
        alone = alone - 0.1 * scope["SCALES"][0] * (alone - scope["CENTRES"][0])
    np.testing.assert_allclose(path[3], alone, rtol=0, atol=1e-12)
