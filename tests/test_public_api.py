"""The public names change only on purpose: the lines of docs/public.txt stay true."""

from __future__ import annotations

import pytest

from tests import public_api


def test_nothing_public_is_removed_or_changed() -> None:
    """A new name is no breaking change: `make api` adds it before a release."""
    gone = public_api.removed()
    assert not gone, "Removed or changed:\n" + "\n".join(gone) + f"\nIf that is meant: {public_api.UPDATE}"


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
    gone = public_api.removed()
    assert "mobench.run(*overrides, measures=None, **keys)" in gone
    assert "problem=vlmop2" in gone
    assert "+mobench.run(*overrides)" in public_api.difference()
