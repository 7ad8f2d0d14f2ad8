"""A job's files without what belongs to one machine: host, process and the folder of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DATA_ROOT = "data"
PRIVATE = ("host", "pid")


def portable_config(config: Mapping[str, Any], data_root: str = DATA_ROOT) -> dict[str, Any]:
    """Returns a configuration whose data lie in `data_root`, which is no part of a job's identity."""
    found = {**config, "data_root": data_root}
    if "data_root" in found["problem"]:
        found["problem"] = {**found["problem"], "data_root": data_root}
    return found


def portable_status(status: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """Returns a status without the names of host and process, and with the digests of the files beside it:
    the configuration is not the job's any more.
    """
    return {**{key: value for key, value in status.items() if key not in PRIVATE}, "sha256": dict(digests)}
