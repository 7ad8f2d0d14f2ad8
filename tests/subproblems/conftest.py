"""Every test of a subproblem runs on both paths: array operations, and kernels compiled by Numba."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from mobench.kernels import compiled

PATHS = ["arrays", "compiled"]


@pytest.fixture(params=PATHS, autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which path the solvers take."""
    if request.param == "arrays":
        monkeypatch.setattr(compiled, "module", lambda name: None)
    elif find_spec("numba") is None:
        pytest.skip("needs Numba: pip install '.[compiled]'")
    return str(request.param)
