"""Numba's kernels: compiled once, however many processes want them at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
from mobench.kernels.jit import entry

@entry
def doubled(x):
    return 2.0 * x
"""
CALL = """
import sys, time
from numba.core import config, event

class Slow(event.Listener):
    def on_start(self, event):
        print("compiled", flush=True)
        time.sleep(10.0)  # the other process comes meanwhile

    def on_end(self, event):
        pass

config.CACHE_DIR = sys.argv[1]
import own_kernel
event.register("numba:compile", Slow())
assert own_kernel.doubled(1.5) == 3.0
"""


def test_processes_that_begin_together_compile_a_kernel_once(tmp_path: Path) -> None:
    (tmp_path / "own_kernel.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    line = [sys.executable, "-c", CALL, str(tmp_path / "cache")]
    both = [
        subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "".join(said) == "compiled\n"
