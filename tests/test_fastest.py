"""The fastest implementation on a device is measured once, stored, and the same in later processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from mobench.errors import StoreError
from mobench.system import fastest as module
from mobench.system.fastest import fastest
from tests import pretend_cuda

CPU = torch.device("cpu")
if not torch.cuda.is_available():
    pretend_cuda.register()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a device")
    return tmp_path / module.FILE


def ways(calls: list[str], **seconds: float) -> dict[str, Callable[[], object]]:
    """Named waits that note their calls."""

    def wait(name: str, duration: float) -> Callable[[], object]:
        def work() -> None:
            calls.append(name)
            if duration < 0:
                raise torch.OutOfMemoryError("too large")
            time.sleep(duration)

        return work

    return {name: wait(name, duration) for name, duration in seconds.items()}


def test_the_fastest_is_measured_once(cache: Path) -> None:
    calls: list[str] = []
    assert fastest("q", ways(calls, slow=0.02, quick=0.001), CPU) == "quick"
    assert calls == ["slow", "quick"] * (module.ROUNDS + 1)
    (answers,) = json.loads(cache.read_text()).values()
    assert answers["q"]["choice"] == "quick"
    assert answers["q"]["milliseconds"]["slow"] >= 20 > answers["q"]["milliseconds"]["quick"]


def test_a_later_process_does_not_choose_again(cache: Path) -> None:
    """A job that is resumed goes on with the implementation that it began with."""
    fastest("q", ways([], slow=0.01, quick=0.0), CPU)
    calls: list[str] = []
    assert fastest("q", ways(calls, slow=0.0, quick=0.01), CPU) == "quick"
    assert calls == []
    assert fastest("another size", ways(calls, slow=0.0, quick=0.01), CPU) == "slow"


def test_what_does_not_fit_is_not_chosen() -> None:
    assert fastest("q", ways([], large=-1.0, small=0.001), CPU) == "small"
    with pytest.raises(torch.OutOfMemoryError, match="none of the implementations"):
        fastest("r", ways([], large=-1.0), CPU)


def test_a_stored_answer_that_is_none(cache: Path) -> None:
    fastest("q", ways([], slow=0.01, quick=0.0), CPU)
    with pytest.raises(StoreError, match=r"names 'quick' for q; expected one of new.*Delete"):
        fastest("q", ways([], new=0.0), CPU)


def test_answers_of_others_in_the_meantime_stay(cache: Path) -> None:
    """A process that asks waits for one that measures."""
    with ThreadPoolExecutor(4) as pool:
        names = list(pool.map(lambda k: fastest(f"q{k}", ways([], slow=0.02, quick=0.0), CPU), range(4)))
    assert names == ["quick"] * 4
    (answers,) = json.loads(cache.read_text()).values()
    assert set(answers) == {"q0", "q1", "q2", "q3"}
