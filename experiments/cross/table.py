"""Reads conf/experiment/cross/zoo.yaml, for code that draws and for references."""

from __future__ import annotations

import functools
from typing import Any

import yaml

from mobench.config.schema import conf_dir
from mobench.sweep import boards


@functools.cache
def table() -> dict[str, Any]:
    path = conf_dir() / "experiment" / "cross" / "zoo.yaml"
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["cross"]
    return {key: value for key, value in content.items() if key != "only"}  # which depends on the scale


def boards_of() -> dict[str, Any]:
    boards: dict[str, Any] = table()["boards"]
    return boards


def problems_of(board: str) -> dict[str, list[str]]:
    return boards.problems(table(), board)


def ranking(board: str) -> list[str]:
    beside = boards_of()[board].get("beside") or []
    return [name for name in problems_of(board) if name not in beside]
