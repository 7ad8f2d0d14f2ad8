"""Tells Hydra the schema, the resolver `at` and the sweeper's name before a command line is read."""

from __future__ import annotations

from hydra.core.config_store import ConfigStore

from mobench.config import hydra_adapter, schema

SWEEPER = "mobench.sweep.planner.Planner"  # the command line calls it; Hydra never makes it


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
    """Makes the schema, the resolver and the sweeper known to Hydra; may be called again."""
    schema.register_resolver()
    hydra_adapter.add(hydra_adapter.entries(_store), ConfigStore.instance().repo)


def _store() -> None:
    store = ConfigStore.instance()
    store.store(name="schema", node=schema.Root)
    store.store(group="hydra/sweeper", name="jobs", node={"_target_": SWEEPER, "params": None})
    # a job would switch off what its sweeper switched on
    for group in ("hydra/hydra_logging", "hydra/job_logging"):
        store.store(group=group, name="sweepers", node=LOGGING)
