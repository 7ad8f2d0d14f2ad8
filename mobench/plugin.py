"""What Hydra has to know before a command line is read: the schema, the resolver `at`, the sweeper."""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

from mobench import schema

# Hydra looks plug-ins up by a name below `hydra_plugins.`; a package of that name at the top level is not needed
SWEEPER = "hydra_plugins.mobench.JobsSweeper"


# what another sweeper has to say (`Best value: ...`); of launchers only warnings
LOGGING = {
    "version": 1,
    "formatters": {"plain": {"format": "%(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stdout"}},
    "root": {"level": "ERROR"},
    "loggers": {
        "hydra_plugins": {"level": "INFO", "handlers": ["console"], "propagate": False},
        "hydra_plugins.hydra_joblib_launcher": {"level": "WARNING"},
        "hydra_plugins.hydra_submitit_launcher": {"level": "WARNING"},
    },
    "disable_existing_loggers": True,
}


class JobsSweeper(Sweeper):
    """Stands for `mobench.sweeper.JobsSweeper` until there is a sweep: it imports torch, for which `--help` need not wait."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from mobench import sweeper

        return sweeper.JobsSweeper(*args, **kwargs)


def register() -> None:
    """May be called again."""
    schema.register()
    Plugins.instance().class_name_to_class[SWEEPER] = JobsSweeper
    store = ConfigStore.instance()
    store.store(group="hydra/sweeper", name="jobs", node={"_target_": SWEEPER, "params": None})
    for group in ("hydra/hydra_logging", "hydra/job_logging"):  # a job would switch off what its sweeper switched on
        store.store(group=group, name="sweepers", node=LOGGING)
