"""All that mobench uses of Hydra's internals; nothing else imports `hydra._internal`.

Hydra promises no stability of them.
Written for hydra-core 1.3.2 to 1.3.8 with omegaconf 2.3 (pyproject.toml), and tried with 1.4.0rc3 and
omegaconf 2.4.1rc1 (`campaigns/prerelease.py`). With another version, read here first:

- the class behind `hydra.main`, which takes its command line from `sys.argv` and reports errors its own way;
- the loader of configurations, and the repository of its files;
- the sweeper that expands `a=1,2`;
- what Hydra keeps for a whole process: its store, its version, OmegaConf's resolvers;
- OmegaConf's parser of interpolations, which gets the same few in every configuration;
- what Hydra computes again and again while it composes: numbers of versions, and a map for interpolations.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import version
from hydra._internal import defaults_list
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, SearchPathException
from hydra.plugins.config_source import ConfigResult
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, base, open_dict
from omegaconf.basecontainer import BaseContainer
from omegaconf.errors import OmegaConfBaseException

from mobench.config import schema, searchpath
from mobench.config.overrides import names_function, normalise
from mobench.errors import ConfigError

VERSION_BASE = "1.3"
NAME = "mobench"  # of the program, in Hydra's own keys
CONFIG = "config"  # the file at the top
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

# a parse tree depends on its text alone and is only read; the grammar takes most of a millisecond for it
base.parse = functools.lru_cache(maxsize=1024)(base.parse)
if hasattr(version, "_get_version"):
    version._get_version = functools.cache(version._get_version)  # of a few strings, hundreds of times
_choices_so_far: Any = getattr(defaults_list, "_create_interpolation_map", None)


def _choices_if_asked(overrides: Any, defaults_list: Any, self_added: bool) -> Any:
    """Returns what interpolations in a file's defaults may name. Few files have any, and it takes a fifth."""
    if any(default.is_interpolation() for default in defaults_list):
        return _choices_so_far(overrides, defaults_list, self_added)
    return {}


if _choices_so_far is not None:
    defaults_list._create_interpolation_map = _choices_if_asked

MANY = 1000  # choices and files that are remembered; a choice takes about 100 kB
Task = Callable[[DictConfig], Any]
Single = Callable[[dict[str, Any]], int]
Sweep = Callable[[DictConfig, HydraContext, list[str]], int]
Stamp = tuple[int, int] | None  # time and size of a file


# configurations


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116  a Path costs as much as the question
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size


class Files(ConfigRepository):
    """Hydra's repository of files, which reads one again only if it has changed.

    Attributes:
        read: the stamps of the files that were read.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.read: dict[str, Stamp] = {}

    def __deepcopy__(self, memo: Any) -> Files:
        return copy.copy(self)  # Hydra reads from a copy, whose stamps are wanted here

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Returns the content of a file, a copy that may be changed; None if there is none."""
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        folder = None if source is None else searchpath.folder(f"{source.scheme()}://{source.path}")
        if source is None or folder is None:  # a node of Hydra's store, or a package in an archive
            return super().load_config(config_path)
        path = f"{folder}/{source._normalize_file_name(config_path)}"
        self.read[path] = _stamp(path)
        key = (source.path, source.provider, config_path, self.read[path])
        if key not in _READ:
            if len(_READ) >= MANY:
                _READ.clear()
            try:
                _READ[key] = super().load_config(config_path)
            except (yaml.YAMLError, OmegaConfBaseException, ValueError, OSError) as error:
                raise ConfigError(
                    f"{path} cannot be read: {str(error).strip()}\nA file of a configuration is UTF-8 text "
                    "with `key: value` lines; indent YAML with spaces, not tabs. `defaults` is a list with "
                    "one entry per line, such as `- override /algorithm: epo`."
                ) from error
        return copy.deepcopy(_READ[key])


_READ: dict[tuple[Any, ...], ConfigResult | None] = {}


@dataclass(frozen=True)
class Base:
    """The configuration that the files of a choice compose.

    Attributes:
        hydra: Hydra's own node, to be read only.
        job: all else.
        fixed: the plain values below each key at the top, where they depend on no other value.
        stamps: those of the files that were read, and of all folders that hold others.
    """

    hydra: DictConfig
    job: DictConfig
    fixed: dict[str, Any]
    stamps: dict[str, Stamp]

    @classmethod
    def of(cls, config: DictConfig, stamps: dict[str, Stamp]) -> Base:
        """Splits a configuration as Hydra has composed it."""
        hydra = config.hydra
        with open_dict(config):
            del config["hydra"]
        values = OmegaConf.to_container(config, resolve=False)
        assert isinstance(values, dict)
        fixed = {str(k): v for k, v in values.items() if "${" not in str(v) and "???" not in str(v)}
        return cls(hydra, config, fixed, stamps)

    def is_fresh(self) -> bool:
        """Returns whether the files would be read as they were: none has changed, come or gone."""
        return all(_stamp(path) == stamp for path, stamp in self.stamps.items())

    def with_values(self, values: list[Override]) -> dict[str, Any]:
        """Returns the job's plain configuration with values that are set as Hydra sets them."""
        keys = {override.key_or_group.split(".")[0] for override in values}
        fixed = {key: value for key, value in self.fixed.items() if key not in keys}
        if keys - self.fixed.keys() - {override.key_or_group for override in values}:
            # a value may be set through an interpolation, anywhere
            return _plain_with(values, copy.deepcopy(self.job), {})
        nodes = cast(dict[str, Any], self.job._content)  # a copy of all would take most of the time
        before = dict(nodes)
        nodes.update({key: copy.deepcopy(nodes[key]) for key in keys & nodes.keys()})
        try:
            return _plain_with(values, self.job, fixed)
        finally:
            nodes.clear()
            nodes.update(before)


def _plain_with(values: list[Override], config: DictConfig, fixed: dict[str, Any]) -> dict[str, Any]:
    try:
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
    except OmegaConfBaseException as error:
        raise ConfigCompositionException from error
    return schema.plain(config, fixed)


class Loader(ConfigLoaderImpl):
    """Hydra's loader, which composes a job's configuration once for each choice of files in a process.

    Hydra sets the values of a command after all files, and no file sees them. So the configuration of the
    same files with other values is a copy with those values. All else is a part of the choice: groups, values
    of Hydra's own node.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.files = Files(config_search_path)
        self.repository = self.files

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *args: Any, **kwargs: Any
    ) -> DictConfig:
        """Returns the configuration of a command line as Hydra composes it, with its own node."""
        expanded = _with_user_problem(overrides)
        config = super().load_configuration(config_name, expanded, run_mode, *args, **kwargs)
        if expanded != overrides:  # what another process composes the job from
            task = [override for override in parsed_overrides(overrides) if not override.is_hydra_override()]
            config.hydra.overrides.task = [override.input_line for override in task]
        return config

    def job(self, overrides: Sequence[str]) -> tuple[dict[str, Any], DictConfig]:
        """Returns the plain configuration of one job, and Hydra's own node, which is only read."""
        parsed = parsed_overrides(_with_user_problem(overrides))
        values: list[Override] = []
        choices: list[str] = []
        for override in parsed:
            if self._is_value(override):
                values.append(override)
            else:
                choices.append(str(override.input_line))
        folders = self._folders(choices)
        key = (*folders, Path.cwd(), *choices)
        if not folders or key not in _COMPOSED or not _COMPOSED[key].is_fresh():
            stamps = {inside: _stamp(inside) for top in folders for inside, _, _ in os.walk(top)}
            self.files.read.clear()
            whole = super().load_configuration(CONFIG, choices, RunMode.RUN)
            if len(_COMPOSED) >= MANY:
                _COMPOSED.clear()
            _COMPOSED[key] = Base.of(whole, stamps | self.files.read)
        return _COMPOSED[key].with_values(values), _COMPOSED[key].hydra

    def _is_value(self, override: Override) -> bool:
        """Returns whether an override only sets or removes a value of the job."""
        key = override.key_or_group
        if override.is_hydra_override() or override.is_sweep_override() or override.package is not None:
            return False
        return "[" not in key and ("." in key or not self.repository.group_exists(key))

    def _folders(self, choices: Sequence[str]) -> tuple[Path, ...]:
        """Returns the folders of the files that may be read; none where they are not known."""
        items = self.get_search_path().get_path()
        places = [str(item.path) for item in items if item.provider not in ("hydra", "schema")]
        folders = [searchpath.folder(place) for place in [*places, *searchpath.folder_names(choices)]]
        return () if None in folders else tuple(folder for folder in folders if folder)


_COMPOSED: dict[tuple[Any, ...], Base] = {}


def _with_user_problem(overrides: Sequence[str]) -> list[str]:
    """Returns overrides with what `problem=file.py:make` stands for; of several problems the last counts."""
    chosen = [override for override in overrides if override.lstrip("+").startswith("problem=")]
    by_function = [override for override in chosen if names_function(override)]
    if not by_function or parsed_overrides(chosen[-1:])[0].is_sweep_override():
        return list(overrides)
    if chosen[-1] != by_function[-1]:
        return [override for override in overrides if override not in by_function]
    from mobench.config import named  # torch, and the user's file

    rest = [override for override in overrides if override not in chosen]
    keys = {str(override.key_or_group) for override in parsed_overrides(rest)}
    return [*normalise(named.overrides(str(parsed_overrides(chosen[-1:])[0].value()), keys)), *rest]


def parsed_overrides(overrides: Sequence[str]) -> list[Override]:
    """Returns overrides as Hydra's grammar reads them."""
    return [_parsed(override) for override in overrides]


@functools.lru_cache(maxsize=4096)  # reading one takes a millisecond
def _parsed(override: str) -> Override:
    return OverridesParser.create().parse_overrides([override])[0]


def loader(folder: str) -> Loader:
    """Returns the loader of configurations below a folder."""
    return Loader(create_config_search_path(folder))


def combinations(source: ConfigLoader, overrides: Sequence[str]) -> list[list[str]]:
    """Returns the commands that a sweep consists of: `a=1,2 b=3` is two."""
    parser = OverridesParser.create(config_loader=source)  # which `glob` looks into
    (commands,) = BasicSweeper.split_arguments(parser.parse_overrides(list(overrides)), None)
    return [list(command) for command in commands]


def added_folders(source: ConfigLoader) -> list[str]:
    """Returns the folders that `--config-dir` has added."""
    return [item.path for item in source.get_search_path().get_path() if item.provider == "command-line"]


# the process


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Sets Hydra up as mobench's command line does, and restores the process' state of Hydra afterwards."""
    store = ConfigStore.instance()
    version_base = version.VersionBase.instance()
    before = (store.repo, version_base.version_base, dict(BaseContainer._resolvers))
    store.repo = _store()
    try:
        schema.register_resolver()
        set_version()
        yield
    finally:
        store.repo, version_base.version_base, resolvers = before
        BaseContainer._resolvers.clear()
        BaseContainer._resolvers.update(resolvers)


@functools.cache
def _store() -> dict[str, Any]:
    """Returns Hydra's store with its plug-ins' nodes and mobench's, and none of a program around it."""
    Plugins.instance()  # whose nodes enter the store when they are first looked for
    store = ConfigStore.instance()
    before = store.repo
    store.repo = copy.deepcopy({name: before[name] for name in ("hydra", "_dummy_empty_config_.yaml")})
    try:
        register()
        return store.repo
    finally:
        store.repo = before


def set_version() -> None:
    """Makes Hydra 1.3 follow the rules of VERSION_BASE; later versions have no other rules."""
    if hasattr(version, "base_at_least"):
        version.setbase(VERSION_BASE)


def register() -> None:
    """Makes the schema, the resolver and the sweeper known to Hydra; may be called again."""
    schema.register_resolver()
    store: Any = ConfigStore.instance().store
    if "replace" in inspect.signature(store).parameters:  # Hydra 1.4 warns of a second time
        store = functools.partial(store, replace=True)
    store(name="schema", node=schema.Root)
    store(group="hydra/sweeper", name="jobs", node={"_target_": SWEEPER, "params": None})
    # a job would switch off what its sweeper switched on
    for group in ("hydra/hydra_logging", "hydra/job_logging"):
        store(group=group, name="sweepers", node=LOGGING)


# the command line


def command(
    arguments: Sequence[str], folder: str, single: Single, sweep: Sweep, worker: Task, asks: bool
) -> int:
    """Runs a command line as `hydra.main` does, but takes it as an argument; every error reaches the caller.

    Args:
        arguments: flags and overrides.
        folder: the configuration's.
        single: runs one job in this process and returns the exit code.
        sweep: runs a sweep of mobench's, from its configuration, Hydra's context and the command's overrides.
        worker: runs one job of another sweeper.
        asks: whether a file may say that the command is a sweep, so that it has to be composed to find out.
    """
    register()
    set_version()
    parser = get_args_parser()
    options = parser.parse_args(list(arguments))
    path = create_config_search_path(folder)
    if options.config_dir is not None:
        added = Path(options.config_dir).absolute()
        if not added.is_dir():
            raise SearchPathException(f"Additional config directory '{added}' not found")
        path.prepend(
            provider="command-line", path=f"file://{added}", anchor=SearchPathQuery(provider="schema")
        )
    source = Loader(path)
    hydra = Hydra(task_name=NAME, config_loader=source)
    GlobalHydra.instance().initialize(hydra)
    overrides = list(options.overrides)
    try:
        if options.hydra_help:
            hydra.hydra_help(config_name=CONFIG, args_parser=parser, args=options)
        elif options.cfg:
            hydra.show_cfg(CONFIG, overrides, options.cfg, options.package, options.resolve)
        elif options.shell_completion:
            hydra.shell_completion(CONFIG, overrides)
        elif options.info is not None:
            hydra.show_info(options.info, CONFIG, overrides)
        elif options.multirun or (asks and _mode(hydra, overrides) is RunMode.MULTIRUN):
            return _multirun(hydra, [*overrides, "hydra.mode=MULTIRUN"], sweep, worker)
        else:
            return single(source.job(overrides)[0])
        return 0
    finally:
        GlobalHydra.instance().clear()


def _mode(hydra: Hydra, overrides: list[str]) -> RunMode | None:
    """Returns `hydra.mode` as files set it; None where none does, or one cannot be read."""
    try:
        # Hydra 1.4 itself looks only into the file at the top
        config = hydra.config_loader.load_configuration(
            CONFIG, overrides, RunMode.MULTIRUN, validate_sweep_overrides=False
        )
    except Exception:  # noqa: BLE001  whatever is wrong is said where the command is composed
        return None
    mode: RunMode | None = config.hydra.mode
    return mode


def _multirun(hydra: Hydra, overrides: list[str], sweep: Sweep, worker: Task) -> int:
    """Runs a sweep: mobench's own here, any other by Hydra."""
    config = hydra.compose_config(CONFIG, overrides, RunMode.MULTIRUN, with_log_configuration=True)
    if config.hydra.sweeper["_target_"] != SWEEPER:
        hydra.multirun(CONFIG, worker, overrides)
        return 0
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
    return sweep(config, context, [str(override) for override in config.hydra.overrides.task])
