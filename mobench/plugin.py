"""What Hydra has to know before a command line is read: the schema, the resolver `at`, the sweeper."""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

from mobench import schema


class JobsSweeper(Sweeper):
    """Stands for `mobench.sweeper.JobsSweeper` until there is a sweep: it imports torch, for which `--help` need not wait."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from mobench import sweeper

        return sweeper.JobsSweeper(*args, **kwargs)


def register() -> None:
    """May be called again."""
    schema.register()
    # Hydra looks plug-ins up by a name below `hydra_plugins.`; a package of that name at the top level is not needed
    name = "hydra_plugins.mobench.JobsSweeper"
    Plugins.instance().class_name_to_class[name] = JobsSweeper
    ConfigStore.instance().store(group="hydra/sweeper", name="jobs", node={"_target_": name, "params": None})
