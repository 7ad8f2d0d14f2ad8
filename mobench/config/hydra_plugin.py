"""What Hydra has to know before a command line is read: the schema, the resolver `at`, the sweeper's name."""

from __future__ import annotations

from hydra.core.config_store import ConfigStore

from mobench.config import schema

# Hydra looks plug-ins up by a name below `hydra_plugins.`; a package of that name at the top level is not
# needed
SWEEPER = "hydra_plugins.mobench.JobsSweeper"


# what another sweeper has to say (`Best value: ...`); of launchers only warnings
LOGGING = {
    "version": 1,
    "formatters": {"plain": {"format": "%(message)s"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stdout"}
    },
    "root": {"level": "ERROR"},
    "loggers": {
        "hydra_plugins": {"level": "INFO", "handlers": ["console"], "propagate": False},
        "hydra_plugins.hydra_joblib_launcher": {"level": "WARNING"},
        "hydra_plugins.hydra_submitit_launcher": {"level": "WARNING"},
    },
    "disable_existing_loggers": True,
}


def register() -> None:
    """May be called again."""
    schema.register()
    store = ConfigStore.instance()
    store.store(group="hydra/sweeper", name="jobs", node={"_target_": SWEEPER, "params": None})
    # a job would switch off what its sweeper switched on
    for group in ("hydra/hydra_logging", "hydra/job_logging"):
        store.store(group=group, name="sweepers", node=LOGGING)
