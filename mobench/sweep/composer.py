"""The configurations of a sweep, plain at the end."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from mobench.config import hydra_adapter, searchpath
from mobench.config.overrides import key_of, normalise
from mobench.config.schema import choices, conf_dir
from mobench.errors import choose
from mobench.sweep import grid


@functools.cache
def jobs_only(name: str) -> dict[str, Any] | None:
    """Returns the file of an experiment if it sets only its artifact and its jobs, else None.

    It may set Hydra's mode, which is known: a sweep. Values of a job may hold interpolations:
    each job is composed with them as with any override.
    """
    node = _file(name)
    if node is None or set(node) - {"artifact", "jobs", "grid", "like", "hydra"}:
        return None
    if "${" in str({key: value for key, value in node.items() if key not in ("jobs", "grid")}):
        return None
    return {"artifact": node.get("artifact", {}), "jobs": grid.expanded(node, jobs_of)}


def _file(name: str) -> dict[Any, Any] | None:
    """The file of an experiment of the project as it is written, None if there is none."""
    path = conf_dir() / "experiment" / f"{name}.yaml"
    node = OmegaConf.to_container(OmegaConf.load(path)) if path.exists() else None
    return node if isinstance(node, dict) else None


def jobs_of(name: str) -> grid.Jobs:
    """Returns the jobs of an experiment of the project, by name.

    Raises ConfigError if there is no such experiment.
    """
    node = _file(choose("like", name, choices("experiment")))
    return grid.expanded(node or {}, jobs_of)


class Composer:
    """Composes the jobs of one command.

    Args:
        loader: of the configuration's files.
        config: what Hydra composed from the command itself, in its mode for sweeps, with Hydra's own node.
    """

    def __init__(self, loader: hydra_adapter.Loader, config: DictConfig) -> None:
        self.loader = loader
        self.config = config

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Returns the plain configuration.

        An experiment that does nothing but list jobs is laid over what the rest composes, so that Hydra
        composes equal choices of several experiments once.
        """
        chosen = [o for o in overrides if key_of(o) == "experiment"]
        listed = jobs_only(chosen[0].split("=", 1)[1]) if len(chosen) == 1 else None
        rest = overrides if listed is None else [o for o in overrides if o not in chosen]
        config, _ = self.loader.job([*self.config.hydra.overrides.hydra, *rest])
        if listed is None:
            return config
        return {**config, "artifact": config["artifact"] | listed["artifact"], "jobs": listed["jobs"]}

    def jobs(self, config: dict[str, Any]) -> grid.Jobs:
        """Returns the overrides of an experiment's jobs by name, or those of the pairs of its boards."""
        if not config["cross"]:
            return grid.expanded(config, jobs_of)
        from mobench.sweep import boards  # torch, which no list of jobs needs

        return boards.jobs(config["cross"], self.algorithms(), lambda job: self.compose(normalise(job)))

    def combinations(self, arguments: Sequence[str]) -> list[list[str]]:
        """Returns the commands of a sweep, with what `hydra.sweeper.params` adds to them."""
        return self._split(self.config.hydra.sweeper.params, arguments)

    def swept(self, command: list[str]) -> list[list[str]]:
        """Returns a command with what a user's experiment in it sweeps (`hydra.sweeper.params`)."""
        known = choices("experiment")
        users = [o for o in command if key_of(o) == "experiment" and o.split("=", 1)[1] not in known]
        if not users:
            return [command]
        params = self.loader.load_sweep_config(self.config, users)["hydra"]["sweeper"]["params"]
        return self._split(params, command)

    def _split(self, params: Any, arguments: Sequence[str]) -> list[list[str]]:
        assigned = normalise([f"{key}={value}" for key, value in dict(params or {}).items()])
        return hydra_adapter.combinations(self.loader, [*assigned, *arguments])

    @property
    def added(self) -> list[str]:
        """Returns the folders that `--config-dir` and `hydra.searchpath` add to the project's."""
        return hydra_adapter.added_folders(self.loader) + list(self.config.hydra.searchpath)

    def algorithms(self) -> list[str]:
        """Returns all files of the group, those of added folders too."""
        folders = [searchpath.folder(name) for name in self.added]
        return choices("algorithm", *(path for path in folders if path is not None))
