"""The configurations of a sweep, plain at the end."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from mobench.config import hydra_adapter, searchpath
from mobench.config.overrides import key_of, normalise
from mobench.config.schema import choices, conf_dir
from mobench.errors import choose
from mobench.sweep import grid

ADDED = ("ranges", "settings", "pairs")  # mappings of a comparison, to which a command adds


@functools.cache
def jobs_only(name: str) -> dict[str, Any] | None:
    """Returns the file of an experiment if it sets only its artifact and its jobs or boards, else None.

    It may set Hydra's mode, which is known: a sweep. Values of a job may hold interpolations:
    each job is composed with them as with any override.
    """
    node = _file(name)
    if node is None or set(node) - {"artifact", "jobs", "grid", "like", "cross", "hydra"}:
        return None
    if "${" in str({key: value for key, value in node.items() if key not in ("jobs", "grid", "cross")}):
        return None
    listed = {str(key): node[key] for key in ("artifact", "cross") if key in node}
    return {**listed, "jobs": grid.expanded(node, jobs_of)}


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


def at_scale(node: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Returns the node with ${at:...} resolved for the scale of a configuration."""
    root = OmegaConf.create({"scale": config["scale"], "node": node})
    resolved = OmegaConf.to_container(root, resolve=True)
    assert isinstance(resolved, dict)
    return dict(resolved["node"])


def with_command(experiment: Mapping[str, Any], command: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the comparison of an experiment with what a command sets: entries of ADDED one by one."""
    added = {key: {**(experiment.get(key) or {}), **command[key]} for key in ADDED if command.get(key)}
    if "pairs" in added:
        added["pairs"] = _by_dots(added["pairs"])
    return {**experiment, **command, **added}


def _by_dots(node: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Returns `{a.b.ls: [..]}`, as a file has it, of `{a: {b: {ls: [..]}}}`, as a command writes it."""
    out: dict[str, Any] = {}
    for name, value in node.items():
        out |= _by_dots(value, f"{before}{name}.") if isinstance(value, Mapping) else {before + name: value}
    return out


class Composer:
    """Composes the jobs of one command.

    Args:
        loader: of the configuration's files.
        config: what Hydra composed from the command itself, in its mode for sweeps, with Hydra's own node.
    """

    def __init__(self, loader: hydra_adapter.Loader, config: DictConfig) -> None:
        self.loader = loader
        self.config = config
        self._plain: dict[tuple[str, ...], dict[str, Any]] = {}
        self._tables: dict[tuple[str, str], dict[str, Any]] = {}

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Returns the plain configuration.

        An experiment that does nothing but list jobs is laid over what the rest composes.
        """
        chosen = [o for o in overrides if key_of(o) == "experiment"]
        listed = jobs_only(chosen[0].split("=", 1)[1]) if len(chosen) == 1 else None
        if listed is None:
            return self._composed(overrides)
        job_names = [o.split("=", 1)[1] for o in overrides if key_of(o) == "artifact.job"]
        config = self._composed([o for o in overrides if o not in chosen and key_of(o) != "artifact.job"])
        artifact = (
            config["artifact"] | listed.get("artifact", {}) | ({"job": job_names[-1]} if job_names else {})
        )
        table = with_command(self._table(chosen[0], listed.get("cross"), config), config["cross"])
        return {
            **config,
            "artifact": artifact,
            "jobs": listed["jobs"],
            "grid": None,
            "like": None,
            "cross": table,
        }

    def _table(self, experiment: str, node: dict[str, Any] | None, config: dict[str, Any]) -> dict[str, Any]:
        """Returns the comparison of an experiment's file at the scale of a configuration."""
        if not node:
            return {}
        key = (experiment, config["scale"]["name"])
        if key not in self._tables:
            self._tables[key] = at_scale(node, config)
        return self._tables[key]

    def jobs(self, config: dict[str, Any]) -> grid.Jobs:
        """Returns the overrides of an experiment's jobs by name, or those of the pairs of its boards."""
        if not config["cross"]:
            return grid.expanded(config, jobs_of)
        from mobench.sweep import boards  # torch, which no list of jobs needs

        return boards.jobs(config["cross"], self.algorithms(), lambda job: self.compose(normalise(job)))

    def combinations(self, arguments: Sequence[str]) -> list[list[str]]:
        """Returns the commands of a sweep, with what `hydra.sweeper.params` adds to them."""
        params = self.config.hydra.sweeper.params or {}
        return hydra_adapter.combinations(self.loader, [*_assigned(params), *arguments])

    def swept(self, command: list[str]) -> list[list[str]]:
        """Returns a command with what a user's experiment in it sweeps (`hydra.sweeper.params`)."""
        experiments = [
            o
            for o in command
            if key_of(o) == "experiment" and o.split("=", 1)[1] not in choices("experiment")
        ]
        if not experiments:
            return [command]
        params = self.loader.load_sweep_config(self.config, experiments)["hydra"]["sweeper"]["params"] or {}
        return hydra_adapter.combinations(self.loader, [*_assigned(params), *command])

    @property
    def added(self) -> list[str]:
        """Returns the folders that `--config-dir` and `hydra.searchpath` add to the project's."""
        return hydra_adapter.added_folders(self.loader) + list(self.config.hydra.searchpath)

    def algorithms(self) -> list[str]:
        """Returns all files of the group, those of added folders too."""
        folders = [searchpath.folder(name) for name in self.added]
        return choices("algorithm", *(path for path in folders if path is not None))

    def _composed(self, overrides: Sequence[str]) -> dict[str, Any]:
        key = tuple(overrides)
        if key not in self._plain:
            every = [*self.config.hydra.overrides.hydra, *overrides]
            self._plain[key], _ = self.loader.job(self.config.hydra.job.config_name, every)
        return self._plain[key]


def _assigned(params: Any) -> list[str]:
    return normalise([f"{key}={value}" for key, value in dict(params).items()])
