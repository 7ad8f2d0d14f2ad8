"""All that mobench uses of Hydra's internals; nothing else imports `hydra._internal`.

Hydra promises no stability of them.
Written for hydra-core 1.3.2 to 1.3.8 with omegaconf 2.3 (pyproject.toml), and tried with 1.4.0rc3 and
omegaconf 2.4.1rc1 (`campaigns/prerelease.py`). With another version, read here first:

- the class behind `hydra.main`, which takes its command line from `sys.argv` and drops what a sweep returns;
- the loader of configurations, and the repository of its files;
- the sweeper that expands `a=1,2`;
- what Hydra keeps for a whole process: its store, its version, OmegaConf's resolvers;
- OmegaConf's parser of interpolations, which gets the same few in every configuration.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra import version
from hydra._internal import config_loader_impl
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
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
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, base, open_dict
from omegaconf.basecontainer import BaseContainer
from omegaconf.errors import OmegaConfBaseException

from mobench.config import schema, searchpath
from mobench.config.overrides import names_function, normalise

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

Task = Callable[[DictConfig], Any]
Sweep = Callable[[DictConfig, HydraContext, list[str]], Any]


# configurations


@dataclass(frozen=True)
class Base:
    """The configuration that the files of a choice compose: with Hydra's own node, and without it.

    Attributes:
        stamps: times and sizes of the files that were read, and of all folders that hold others.
    """

    whole: DictConfig
    job: DictConfig
    stamps: dict[str, Stamp]

    def is_fresh(self) -> bool:
        """Returns whether the files would be read as they were: none has changed, come or gone."""
        return all(_stamp(path) == stamp for path, stamp in self.stamps.items())


Stamp = tuple[int, int] | None


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116  a Path costs as much as the question
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size


class Files(ConfigRepository):
    """Hydra's repository of files, which reads one again only if it has changed; Hydra's own never.

    Attributes:
        read: the stamps of the files that were read.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.read: dict[str, Stamp] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Returns the content of a file, a copy that may be changed; None if there is none."""
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        # by its name, as Hydra loads the classes of its sources a second time
        scheme = None if source is None else source.scheme()
        if source is None or scheme not in ("file", "pkg"):
            return super().load_config(config_path)
        key: tuple[Any, ...] = (source.path, source.provider, config_path)
        if source.provider != "hydra":
            folder = source.path if scheme == "file" else searchpath.folder(f"pkg://{source.path}")
            if folder is None:  # a package in an archive
                return super().load_config(config_path)
            path = f"{folder}/{source._normalize_file_name(config_path)}"
            self.read[path] = _stamp(path)
            key += (self.read[path],)
        if key not in _READ:
            if len(_READ) >= MANY:
                _READ.clear()
            _READ[key] = super().load_config(config_path)
        return copy.deepcopy(_READ[key])


_READ: dict[tuple[Any, ...], ConfigResult | None] = {}


class Loader(ConfigLoaderImpl):
    """Hydra's loader, which composes a configuration once for each choice of files in a process.

    Hydra sets the values of a command after all files, and no file sees them. So the configuration of the
    same files with other values is a copy with those values. All else is a part of the choice: groups, values
    of Hydra's own node, sweeps.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.repository = Files(config_search_path)

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Returns the composed configuration of a command line, with Hydra's own node."""
        parsed = parsed_overrides(overrides)
        expanded = _with_user_problem(parsed)
        base, values = self._base(config_name, expanded, run_mode, from_shell, validate_sweep_overrides)
        config = copy.deepcopy(base.whole)
        _set_values(config, values)
        task = [override for override in parsed if not override.is_hydra_override()]
        config.hydra.overrides.task = [override.input_line for override in task]
        if hasattr(config_loader_impl, "get_overrides_dirname"):  # until 1.3
            options = config.hydra.job.config.override_dirname
            config.hydra.job.override_dirname = config_loader_impl.get_overrides_dirname(task, **options)
        return config

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        """Does what Hydra's method does, but reads no override a second time."""
        parsed = parsed_overrides(overrides)
        repository = CachingConfigRepository(self.repository)
        self.copied = cast(Files, repository.delegate)  # which Hydra reads in place of ours
        self._process_config_searchpath(config_name, parsed, repository)
        return parsed, repository

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Returns the configuration of one job of a sweep, with Hydra's own node."""
        overrides = [*master_config.hydra.overrides.hydra, *sweep_overrides]
        name = master_config.hydra.job.config_name
        config = self.load_configuration(name, overrides, RunMode.RUN)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def job(self, config_name: str, overrides: Sequence[str]) -> tuple[DictConfig, DictConfig]:
        """Returns the configuration of one job, and Hydra's own node of its files, to be read only."""
        base, values = self._base(config_name, _with_user_problem(parsed_overrides(overrides)), RunMode.RUN)
        config = copy.deepcopy(base.job)
        _set_values(config, values)
        return config, base.whole.hydra

    def _base(
        self,
        config_name: str | None,
        parsed: Sequence[Override],
        run_mode: RunMode,
        from_shell: bool = True,
        validate: bool = True,
    ) -> tuple[Base, list[Override]]:
        """Returns what the choices among overrides compose, and the values that are to be set in it."""
        sets = [self._is_value(override) for override in parsed]
        values = [override for override, is_value in zip(parsed, sets, strict=True) if is_value]
        choices = [str(o.input_line) for o, is_value in zip(parsed, sets, strict=True) if not is_value]
        folders = self._folders(choices)
        key = (*folders, Path.cwd(), config_name, run_mode, validate, *choices)
        known = _COMPOSED.get(key) if folders else None
        if known is not None and known.is_fresh():
            return known, values
        stamps = _stamps(folders, choices)  # before they are read
        whole = super().load_configuration(config_name, choices, run_mode, from_shell, validate)
        job = copy.deepcopy(whole)
        with open_dict(job):
            del job["hydra"]
        if len(_COMPOSED) >= MANY:
            _COMPOSED.clear()
        _COMPOSED[key] = Base(whole, job, stamps | self.copied.read)
        return _COMPOSED[key], values

    def _is_value(self, override: Override) -> bool:
        """Returns whether an override only sets or removes a value of the job."""
        if override.is_hydra_override() or override.is_sweep_override() or override.package is not None:
            return False
        return "." in override.key_or_group or not self.repository.group_exists(override.key_or_group)

    def _folders(self, choices: Sequence[str]) -> tuple[Path, ...]:
        """Returns the folders of the files that may be read; none where they are not known."""
        if set(ConfigStore.instance().repo) - OWN_NODES:  # nodes of the user, which may change
            return ()
        items = self.get_search_path().get_path()
        places = [str(item.path) for item in items if item.provider not in ("hydra", "schema")]
        folders = [searchpath.folder(place) for place in [*places, *searchpath.folder_names(choices)]]
        return () if None in folders else tuple(folder for folder in folders if folder)


_COMPOSED: dict[tuple[Any, ...], Base] = {}
MANY = 1000  # choices and files that are remembered; a choice takes about 100 kB
OWN_NODES = {"hydra", "schema.yaml", "_dummy_empty_config_.yaml"}  # of Hydra's store, at the top


def _stamps(folders: Sequence[Path], choices: Sequence[str]) -> dict[str, Stamp]:
    """Returns the stamps of folders and of all in them: each changes when a file in it comes or goes."""
    stamps: dict[str, Stamp] = {}
    unread = [] if any("experiment" in choice for choice in choices) else ["experiment"]
    for top in folders:
        for folder, inside, _ in os.walk(top, followlinks=True):
            stamps[folder] = _stamp(folder)
            inside[:] = [name for name in inside if name not in unread]
    return stamps


def _with_user_problem(parsed: list[Override]) -> list[Override]:
    """Returns overrides with what `problem=file.py:make` stands for; of several problems the last counts."""
    chosen = [o for o in parsed if o.key_or_group == "problem" and not o.is_sweep_override()]
    by_function = [o for o in chosen if names_function(str(o.input_line))]
    if not by_function:
        return parsed
    if chosen[-1] is not by_function[-1]:
        return [o for o in parsed if o not in by_function]
    from mobench.config import named  # torch, and the user's file

    rest = [o for o in parsed if o not in chosen]
    of_problem = named.overrides(str(by_function[-1].value()), {o.key_or_group for o in rest})
    return [*parsed_overrides(normalise(of_problem)), *rest]


def _set_values(config: DictConfig, values: list[Override]) -> None:
    """Sets values in a composed configuration as Hydra does."""
    try:
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
    except OmegaConfBaseException as error:
        raise ConfigCompositionException from error


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
    # Hydra's plug-ins enter the store when they are first looked for, and have to stay there
    Plugins.instance()
    store = ConfigStore.instance()
    base = version.VersionBase.instance()
    repository = store.repo
    resolvers = dict(BaseContainer._resolvers)
    before = base.version_base
    store.repo = _groups_of(repository)
    try:
        register()
        set_version()
        yield
    finally:
        store.repo = repository
        base.version_base = before
        BaseContainer._resolvers.clear()
        BaseContainer._resolvers.update(resolvers)


def _groups_of(repository: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of the groups of Hydra's store; their nodes are never changed, only exchanged."""
    return {k: _groups_of(v) if isinstance(v, dict) else v for k, v in repository.items()}


def set_version() -> None:
    """Makes Hydra 1.3 follow the rules of VERSION_BASE; later versions have no other rules."""
    if hasattr(version, "base_at_least"):
        version.setbase(VERSION_BASE)


def register() -> None:
    """Makes the schema, the resolver and the sweeper known to Hydra; may be called again."""
    schema.register_resolver()
    _add(_entries(), ConfigStore.instance().repo)


@functools.cache
def _entries() -> dict[str, Any]:
    """Returns mobench's nodes as Hydra's store has them; the store itself is as before."""
    store = ConfigStore.instance()
    before = store.repo
    store.repo = {}
    try:
        store.store(name="schema", node=schema.Root)
        store.store(group="hydra/sweeper", name="jobs", node={"_target_": SWEEPER, "params": None})
        # a job would switch off what its sweeper switched on
        for group in ("hydra/hydra_logging", "hydra/job_logging"):
            store.store(group=group, name="sweepers", node=LOGGING)
        return store.repo
    finally:
        store.repo = before


def _add(groups: dict[str, Any], into: dict[str, Any]) -> None:
    """Adds groups and their nodes to Hydra's store."""
    for key, node in groups.items():
        if isinstance(node, dict):
            _add(node, into.setdefault(key, {}))
        else:
            into[key] = node


# the command line


def command(
    arguments: Sequence[str],
    folder: str,
    single: Task,
    sweep: Sweep,
    asks: bool = True,
) -> Any:
    """Runs a command line as `hydra.main` does, but takes it as an argument.

    The result is returned, and every exception reaches the caller.

    Args:
        arguments: flags and overrides.
        folder: the configuration's.
        single: runs one job; what it returns is returned.
        sweep: runs a sweep, from its configuration, Hydra's context and the command's overrides.
        asks: whether a file may say that the command is a sweep, so that it has to be composed to find out.
    """
    set_version()
    parser = get_args_parser()
    options = parser.parse_args(list(arguments))
    path = create_config_search_path(_place(options.config_path) if options.config_path else folder)
    if options.config_dir is not None:
        added = Path(options.config_dir).absolute()
        if not added.is_dir():
            raise SearchPathException(f"Additional config directory '{added}' not found")
        path.prepend(
            provider="command-line", path=f"file://{added}", anchor=SearchPathQuery(provider="schema")
        )
    name = options.config_name or CONFIG
    hydra = Hydra(task_name=NAME, config_loader=Loader(path))
    GlobalHydra.instance().initialize(hydra)
    try:
        if options.hydra_help:
            return hydra.hydra_help(config_name=name, args_parser=parser, args=options)
        if options.cfg:
            return hydra.show_cfg(name, options.overrides, options.cfg, options.package, options.resolve)
        if options.shell_completion:
            return hydra.shell_completion(name, options.overrides)
        if options.info is not None:
            return hydra.show_info(options.info, name, options.overrides)
        overrides = list(options.overrides)
        mode = _mode(hydra.config_loader, name, overrides) if asks else None
        if mode is None or (options.multirun and mode is RunMode.RUN):
            mode = RunMode.MULTIRUN if options.multirun else RunMode.RUN
            overrides.append(f"hydra.mode={mode.name}")
        if mode is RunMode.RUN:
            return hydra.run(config_name=name, task_function=single, overrides=overrides).return_value
        return _multirun(hydra, name, overrides, sweep)
    finally:
        GlobalHydra.instance().clear()


def _mode(source: ConfigLoader, name: str, overrides: list[str]) -> RunMode | None:
    """Returns `hydra.mode` as files set it; None where none does, or one cannot be read."""
    try:
        # Hydra 1.4 itself looks only into the file at the top
        config = source.load_configuration(name, overrides, RunMode.MULTIRUN, validate_sweep_overrides=False)
    except Exception:  # noqa: BLE001  whatever is wrong is said where the command is composed
        return None
    mode: RunMode | None = config.hydra.mode
    return mode


def _place(path: str) -> str:
    """Returns a folder as Hydra takes it; a relative path starts at the working folder."""
    return path if "://" in path else str(Path(path).absolute())


def sweeper_of(config: DictConfig, context: HydraContext, worker: Task) -> Sweeper:
    """Returns the sweeper that a configuration names, another than mobench's."""
    return Plugins.instance().instantiate_sweeper(config=config, hydra_context=context, task_function=worker)


def _multirun(hydra: Hydra, name: str, overrides: list[str], sweep: Sweep) -> Any:
    """Does what `Hydra.multirun` does, with `sweep` in place of the sweeper."""
    config = hydra.compose_config(name, overrides, RunMode.MULTIRUN, with_log_configuration=True)
    callbacks = Callbacks(config)
    callbacks.on_multirun_start(config=config, config_name=name)
    context = HydraContext(config_loader=hydra.config_loader, callbacks=callbacks)
    result = sweep(config, context, [str(override) for override in config.hydra.overrides.task])
    callbacks.on_multirun_end(config=config, config_name=name)
    return result
