"""What is public changes only on purpose: docs/public.txt is compared with the code."""

from __future__ import annotations

import pytest

from tests import public_api


def test_what_is_public_is_what_the_snapshot_says() -> None:
    found = public_api.difference()
    assert not found, f"What is public has changed:\n{found}\nIf that is meant: {public_api.UPDATE}"


def test_the_documented_modules_exist_and_cover_the_package() -> None:
    names = public_api.modules()
    assert {"mobench", "mobench.core", "mobench.training", "mobench.errors"} <= set(names)
    for name in names:
        assert public_api.public(public_api.imported(name)), name


def test_a_changed_signature_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import mobench

    def run(*overrides: str) -> None:
        """Another signature."""

    monkeypatch.setattr(mobench, "run", run, raising=False)
    monkeypatch.setattr(public_api, "GROUPS", (*public_api.GROUPS[1:],))
    found = public_api.difference()
    assert "-mobench.run(*overrides, measures=None, **keys)" in found
    assert "+mobench.run(*overrides)" in found
    assert "-problem=vlmop2" in found
