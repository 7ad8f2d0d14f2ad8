"""All that mobench uses of Hydra's inside, which promises no stability: nothing else imports
`hydra._internal`.

Written for hydra-core 1.3.2 to 1.3.8 (pyproject.toml asks for 1.3) and omegaconf 2.3. With another version,
read here first:

- the class behind `hydra.main`, which takes its command line from `sys.argv` and drops what a sweep returns;
- the loader of configurations, and the repository of its files;
- the sweeper that expands `a=1,2`;
- what Hydra keeps for a whole process: its store, its version, OmegaConf's resolvers.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import SearchPathException
from hydra.main import _get_rerun_conf
from hydra.plugins.plugin import Plugin
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.basecontainer import BaseContainer

VERSION_BASE = "1.3"
NAME = "mobench"  # of the program, in Hydra's own keys
CONFIG = "config"  # the file at the top

Task = Callable[[DictConfig], Any]


# configurations


def loader(folder: str) -> ConfigLoader:
    """Returns the loader of configurations below a folder."""
    return ConfigLoaderImpl(config_search_path=create_config_search_path(folder))


def load(source: ConfigLoader, overrides: Sequence[str], mode: RunMode) -> DictConfig:
    """Returns the composed configuration of a command line, with Hydra's own node."""
    # Hydra keeps a name of the program for the whole process, or takes it from its own node
    return source.load_configuration(CONFIG, [f"hydra.job.name={NAME}", *overrides], mode)


def parsed(source: ConfigLoader, overrides: Sequence[str]) -> list[Override]:
    """Returns overrides as Hydra's grammar reads them."""
    return OverridesParser.create(config_loader=source).parse_overrides(list(overrides))


def parsed_value(override: str) -> Override:
    """Returns one override as Hydra's grammar reads it, without a command's files."""
    return OverridesParser.create().parse_override(override)


def yaml_of(text: str) -> Any:
    """Returns the content of a file of configuration, with the values that `OmegaConf.load` gives it.

    Raises:
        yaml.YAMLError: it is no YAML, or a key stands twice.
    """
    return OmegaConf.to_container(OmegaConf.create(text)) if text.strip() else None


def combinations(source: ConfigLoader, overrides: Sequence[str]) -> list[list[str]]:
    """Returns the commands that a sweep consists of: `a=1,2 b=3` is two."""
    (found,) = BasicSweeper.split_arguments(parsed(source, overrides), None)
    return [list(command) for command in found]


def chooses(source: ConfigLoader, override: Override) -> bool:
    """Whether an override chooses a file, or a value of Hydra's own node."""
    own = override.get_key_element().startswith("hydra")
    return own or bool(_repository(source).group_exists(override.key_or_group))


def lay_over(overrides: Sequence[Override], config: DictConfig) -> None:
    """Sets values in a composed configuration as Hydra does, after all files."""
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)


def exists(source: ConfigLoader, name: str) -> bool:
    """Whether there is a file of configuration: `algorithm/ls`."""
    return bool(_repository(source).config_exists(name))


def keys_of(source: ConfigLoader, name: str) -> DictConfig | None:
    """Returns the content of a file; None if there is none."""
    found = _repository(source).load_config(name)
    return None if found is None else found.config


def composes(source: ConfigLoader, name: str) -> bool:
    """Whether a file is more than keys: it says where they go, or which other files belong to it."""
    found = _repository(source).load_config(name)
    return found is not None and (found.header["package"] is not None or "defaults" in found.config)


def added_folders(source: ConfigLoader) -> list[str]:
    """Returns the folders that `--config-dir` has added."""
    return [item.path for item in source.get_search_path().get_path() if item.provider == "command-line"]


class ReadyLoader(ConfigLoaderImpl):
    """The loader of a launcher's worker: jobs that `compose` can put together are not composed by Hydra.

    Args:
        source: the command's loader.
        compose: a function of a module: from overrides to a plain configuration, or None where Hydra has to
            be asked.
    """

    def __init__(
        self, source: ConfigLoader, compose: Callable[[Sequence[str]], dict[str, Any] | None]
    ) -> None:
        super().__init__(config_search_path=source.get_search_path())
        self.compose = compose

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Returns the job's configuration, with the command's own node of Hydra where Hydra is not asked."""
        plain = self.compose(sweep_overrides)
        if plain is None:
            return super().load_sweep_config(master_config, sweep_overrides)
        found = OmegaConf.create(plain)
        found["hydra"] = copy.deepcopy(master_config.hydra)
        with open_dict(found):
            found.hydra.overrides.task = list(sweep_overrides)
        return found


def main_folder(source: ConfigLoader) -> str:
    """Returns the folder of the command's own files."""
    (found,) = [item.path for item in source.get_search_path().get_path() if item.provider == "main"]
    return str(found).removeprefix("file://")


def _repository(source: ConfigLoader) -> Any:
    return source.repository  # type: ignore[attr-defined]


# the process


@contextlib.contextmanager
def apart(register: Callable[[], None]) -> Iterator[None]:
    """Hydra as mobench's command line sets it up; whatever this process made of Hydra comes back afterwards.

    Args:
        register: makes mobench's schema and resolvers known.
    """
    # Hydra's own plug-ins enter the store when they are first looked for, and have to stay there
    Plugins.instance()
    store = ConfigStore.instance()
    base = version.VersionBase.instance()
    repository = copy.deepcopy(store.repo)
    resolvers = dict(BaseContainer._resolvers)
    before = base.version_base
    try:
        register()
        version.setbase(VERSION_BASE)
        yield
    finally:
        store.repo = repository
        base.version_base = before
        BaseContainer._resolvers.clear()
        BaseContainer._resolvers.update(resolvers)


def add_plugin(name: str, cls: type[Plugin]) -> None:
    """Makes Hydra find a plug-in that lies in no package `hydra_plugins`; may be called again."""
    Plugins.instance().class_name_to_class[name] = cls


# the command line


def command(
    arguments: Sequence[str],
    folder: str,
    single: Task,
    worker: Task,
    sweep: Callable[[Sweeper, list[str]], Any],
    asks: bool = True,
) -> Any:
    """Does what `hydra.main` does with a command line, but takes the line as an argument, returns what came
    out, and lets every exception through.

    Args:
        arguments: flags and overrides.
        folder: the configuration's.
        single: runs one job; what it returns is returned.
        worker: runs one job of a sweep in a launcher's process, so it is a function of a module.
        sweep: is given the sweeper that the configuration names, and the command's overrides.
        asks: whether a file may say that the command is a sweep, so that it has to be composed to find out.
    """
    version.setbase(VERSION_BASE)
    parser = get_args_parser()
    given = parser.parse_args(list(arguments))
    if given.experimental_rerun is not None:
        return single(_get_rerun_conf(given.experimental_rerun, given.overrides))
    path = create_config_search_path(_place(given.config_path) if given.config_path else folder)
    if given.config_dir is not None:
        added = Path(given.config_dir).absolute()
        if not added.is_dir():
            raise SearchPathException(f"Additional config directory '{added}' not found")
        path.prepend(
            provider="command-line", path=f"file://{added}", anchor=SearchPathQuery(provider="schema")
        )
    name = given.config_name or CONFIG
    hydra = Hydra.create_main_hydra2(task_name=NAME, config_search_path=path)
    try:
        if given.hydra_help:
            return hydra.hydra_help(config_name=name, args_parser=parser, args=given)
        if given.cfg:
            return hydra.show_cfg(name, given.overrides, given.cfg, given.package, given.resolve)
        if given.shell_completion:
            return hydra.shell_completion(name, given.overrides)
        if given.info is not None:
            return hydra.show_info(given.info, name, given.overrides)
        overrides = list(given.overrides)
        mode = hydra.get_mode(config_name=name, overrides=overrides) if asks else None
        if mode is None or (given.multirun and mode is RunMode.RUN):
            mode = RunMode.MULTIRUN if given.multirun else RunMode.RUN
            overrides.append(f"hydra.mode={mode.name}")
        if mode is RunMode.RUN:
            return hydra.run(config_name=name, task_function=single, overrides=overrides).return_value
        return _multirun(hydra, name, overrides, worker, sweep)
    finally:
        GlobalHydra.instance().clear()


def _place(path: str) -> str:
    """A folder as Hydra takes it, from where the command is called."""
    return path if "://" in path else str(Path(path).absolute())


def _multirun(
    hydra: Hydra,
    name: str,
    overrides: list[str],
    worker: Task,
    sweep: Callable[[Sweeper, list[str]], Any],
) -> Any:
    """What `Hydra.multirun` does, with `sweep` in place of the sweeper's own."""
    config = hydra.compose_config(name, overrides, RunMode.MULTIRUN, with_log_configuration=True)
    callbacks = Callbacks(config)
    callbacks.on_multirun_start(config=config, config_name=name)
    context = HydraContext(config_loader=hydra.config_loader, callbacks=callbacks)
    sweeper = Plugins.instance().instantiate_sweeper(
        config=config, hydra_context=context, task_function=worker
    )
    found = sweep(sweeper, [str(override) for override in config.hydra.overrides.task])
    callbacks.on_multirun_end(config=config, config_name=name)
    return found
