"""Folders of mobench and of its user."""

from __future__ import annotations

import functools
import os
from pathlib import Path

KEPT = "kept"  # below outputs: artifacts drawn from rows that come with the project


@functools.cache
def package() -> Path:
    """The folder of the package `mobench`."""
    return Path(__file__).resolve().parent.parent


def beside(name: str) -> Path:
    """A folder that an installed package holds, and that lies beside the package in a checkout."""
    inside = package() / name
    return inside if inside.exists() else package().parent / name


def experiments() -> Path:
    """The folder `experiments`: one package per paper."""
    return beside("experiments")


def results_root() -> Path:
    """experiments/results: rows at paper scale that come with the project."""
    return experiments() / "results"


def locks() -> Path:
    """The folder `locks`: versions and hashes of all dependencies."""
    return beside("locks")


def outputs_root() -> Path:
    """`$MOBENCH_OUTPUTS`, else `outputs` in the working directory."""
    return Path(os.environ.get("MOBENCH_OUTPUTS") or "outputs")


def cache_root() -> Path:
    """Returns `$MOBENCH_CACHE`, else `cache` in the outputs folder.

    It is never beside original files, which may be read-only. It holds what takes long to make
    and may be deleted at any time: decoded pictures, trained starts.
    """
    return Path(os.environ.get("MOBENCH_CACHE") or outputs_root() / "cache").absolute()
