"""The sweeper's place in Hydra. Nothing here needs torch, so that `mobench --help` is quick."""

from __future__ import annotations

from typing import Any

from hydra.plugins.sweeper import Sweeper

from mobench.config import hydra_adapter, hydra_plugin


class JobsSweeper(Sweeper):
    """Stands for `mobench.sweep.sweeper.JobsSweeper` until there is a sweep: it imports torch,
    for which `--help` need not wait.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from mobench.sweep import sweeper

        return sweeper.JobsSweeper(*args, **kwargs)


def register() -> None:
    """Make the schema, the resolvers and the sweeper known to Hydra; may be called again."""
    hydra_plugin.register()
    hydra_adapter.add_plugin(hydra_plugin.SWEEPER, JobsSweeper)
