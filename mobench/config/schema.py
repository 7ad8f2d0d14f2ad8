"""The schema of the configuration and where its files lie.

Nothing here needs torch, so that `mobench --help` is quick.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mobench.errors import ConfigError, unknown_key
from mobench.system import paths


@dataclass
class HardwareConfig:
    """The hardware of a job and its use. Of these keys only `tf32` and `part` change the job's rows."""

    name: str = "cpu"
    device: str = "cpu"  # cpu | cuda | cuda:N; cuda takes a free GPU of the machine, or waits for one
    jobs_per_device: int = 1  # jobs that share a GPU
    threads: int | None = 1  # torch threads of one job; null: its share of the cores
    # networks whose activations are held at once (null: all of a job); fewer need less memory and one more
    # forward pass
    max_batch_runs: int | None = None
    # parts at least into which a job is cut, by seeds and then by preferences; a launcher runs them beside
    # each other, and their rows are joined
    split: int | None = None
    part: list[int] | None = None  # set by the split: [0, 2] is the first of two chunks of the preferences
    retries: int = 2  # how often a sweep launches a job again whose worker died
    # a GPU may round the factors of float32 products to TF32, 10 bits of mantissa: faster, and another job
    tf32: bool = False
    # auto | off: steps that a GPU can record are replayed as CUDA graphs, the same numbers in one launch
    graphs: str = "auto"


@dataclass
class ScaleConfig:
    """smoke | laptop | paper; read by the resolver ${at:smoke,laptop,paper}."""

    name: str = "laptop"


@dataclass
class LoggerConfig:
    """The destination of the log of finished jobs."""

    name: str = "auto"  # auto | wandb | local
    project: str = "mobench"
    entity: str | None = None
    tags: list[str] = field(default_factory=list)
    finished: bool = False  # jobs that were finished before are logged, too, without training


@dataclass
class RecordConfig:
    """history: every `every` steps (0: first and last only) and each of the first `dense`; evaluate: exact
    values of the iterate (instead of the oracle's sample) and of averaged outputs at those steps; measures:
    the problem's own columns at those steps, which for data sets mean a pass over all samples; certificates:
    final rows say how far each run is from the front and from a stationary point, where that is known;
    hypervolume_seconds: of the exact hypervolumes of a job; those that take more work than their share are
    drawn, with their 99 % interval; code: hash of measures of the user's own, which mobench.run(measures=...)
    sets.
    """

    every: int = 1
    dense: int = 0
    evaluate: bool = False
    measures: bool = True
    certificates: bool = True
    hypervolume_seconds: float = 10.0
    code: str | None = None


@dataclass
class CheckpointConfig:
    """seconds between checkpoints, which are also a running job's signs of life; signal: what Slurm sends
    before it takes a node away (USR2, USR1 or TERM).
    """

    seconds: float = 30.0
    signal: str = "USR2"


@dataclass
class PaperConfig:
    """Runs that may judge an artifact's claims. data: labels of the paper's data sets at their full size, as
    jobs name them in meta.json (empty: none is needed); parts: labels of data that are a part of those, on
    which a claim is partial at best; samples: those of which a run draws a few, so that they count as the
    data; seeds: how many the paper's means are of,
    for all jobs or by a job's name (null: the artifact's own are enough);
    overrides: what to add to the artifact's command so that its claims are judged.
    """

    data: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    seeds: Any = None
    overrides: str = ""


@dataclass
class ArtifactConfig:
    """Keys of `+experiment=`: the artifact's id and title. paper: runs that may judge its claims. depicts:
    `data` if its figure is a picture of its jobs' data, which the report then shows with them. alone: its
    jobs are timed, so they run one after the other when all others have ended (on a cluster, whose jobs have
    cores of their own, with them). only: patterns of job names; the others are neither run nor drawn, and
    claims that need them are not judged. pdf: the figure is written as PDF, too, which is a quarter of the
    time that a drawing takes.
    """

    id: str | None = None
    title: str | None = None
    paper: PaperConfig = field(default_factory=PaperConfig)
    depicts: str | None = None
    alone: bool = False
    only: list[str] | None = None
    pdf: bool = False
    job: str | None = None  # set by the sweeper: the job's name in `jobs`


@dataclass
class Root:
    """All top-level keys."""

    problem: Any = None
    oracle: Any = None
    algorithm: Any = None
    constraint: Any = None  # functions of the objectives or of theta, added to the problem's own constraints
    space: Any = None  # decision variables instead of theta
    tuned: Any = None
    protocol: str = "none"
    preferences: Any = field(
        default_factory=lambda: {
            "count": 10,
            "rays_deg": None,
            "weights": None,
            "floor": None,
            "simplex_steps": None,
        }
    )
    seeds: list[int] = field(default_factory=lambda: [0])
    steps: int = 100
    # algorithm's field -> values, all combinations in one batch
    vary: dict[str, Any] = field(default_factory=dict)
    vary_jointly: bool = (
        False  # the lists of vary are read side by side instead: one run for each place in them
    )
    dtype: str = "float64"
    max_failure_share: float = 0.0
    record: RecordConfig = field(default_factory=RecordConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    scale: ScaleConfig = field(default_factory=ScaleConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    artifact: ArtifactConfig = field(default_factory=ArtifactConfig)
    jobs: dict[str, Any] = field(default_factory=dict)
    grid: Any = None  # jobs as a product of lists (mobench/sweep/grid.py)
    like: Any = None  # jobs of another experiment
    cross: dict[str, Any] = field(default_factory=dict)  # boards of a comparison (mobench/sweep/boards.py)
    # what a job returns to another sweeper than mobench's: hypervolume, a column, or a list
    objective: Any = None
    data: Any = None
    data_root: str = "data"
    rerun: bool = False
    progress: bool = True


def conf_dir() -> Path:
    """The configuration folder: inside the installed package, or beside it in a checkout."""
    folder = paths.beside("conf")
    if not (folder / "config.yaml").exists():
        raise ConfigError(
            f"The configuration folder was found neither in {paths.package()} nor next to it; "
            "reinstall mobench."
        )
    return folder


def register_resolver() -> None:
    """Makes `${at:smoke,laptop,paper}` known; may be called again."""
    # omegaconf 2.4 warns of its former name, which 2.3 has for something else
    known = inspect.signature(OmegaConf.register_resolver).parameters
    name = "register_resolver" if "replace" in known else "register_new_resolver"
    getattr(OmegaConf, name)("at", _at, replace=True)


def _at(smoke: Any, laptop: Any, paper: Any, *, _root_: DictConfig) -> Any:
    return {"smoke": smoke, "laptop": laptop, "paper": paper}[_root_.scale.name]


def choices(group: str, *extra: Path, alone: bool = False) -> list[str]:
    """Returns the names of a configuration group, nested ones with slashes; with those of further folders.

    `alone`: only those of the further folders.
    """
    names: set[str] = set()
    for base in [*([] if alone else [conf_dir()]), *extra]:
        top = os.path.join(base, group)  # noqa: PTH118  paths of a thousand files are slow
        for folder, _, files in os.walk(top):
            inside = folder[len(top) :].strip(os.sep)
            names |= {f"{inside}/{name}".strip("/")[:-5] for name in files if name.endswith(".yaml")}
    return sorted(names)


def plain(cfg: DictConfig, fixed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the resolved configuration, without Hydra's own node, as nested dicts and lists.

    Args:
        fixed: values of keys at the top that are known already.

    Raises:
        ConfigError: an interpolation that cannot be resolved, or a key that is missing or unknown.
    """
    known_values = fixed or {}
    try:
        out = {
            key: copy.deepcopy(known_values[key]) if key in known_values else _plain_value(cfg[key])
            for key in map(str, cfg)
        }
    except OmegaConfBaseException as error:
        raise ConfigError(f"The configuration cannot be resolved: {error}") from error
    keys = [f.name for f in dataclasses.fields(Root)]
    known = [*keys, "experiment"]
    missing = [key for key in keys if key not in out]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} was removed (~), but every key is needed; set a value instead."
        )
    for key in out:
        if key not in keys:
            # a + on the command line adds keys that the schema does not know
            raise ConfigError(unknown_key(key, known))
    return out


def _plain_value(value: Any) -> Any:
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    return value


# fields of classes that jobs have stored and that are gone, at the value that is now the only one
REMOVED_FIELDS: dict[str, dict[str, Any]] = {
    "mobench.problems.multi_mnist.MultiMNIST": {"positions": "corners"},
    "mobench.problems.face_attributes.FaceAttributes": {"execution": "auto"},
    "mobench.problems.networks.Networks": {"max_batch_runs": None},
}


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a stored configuration as today's program reads it.

    Keys that have come since it was written are at their defaults; fields that are gone are left out where
    they have the value that is now the only one.
    """
    config = {key: _without_removed(value) for key, value in config.items()}
    root = OmegaConf.to_container(OmegaConf.structured(Root))
    assert isinstance(root, dict)
    defaults = {str(key): value for key, value in root.items()}
    groups = {
        k: {**v, **(config.get(k) or {})} for k, v in defaults.items() if dataclasses.is_dataclass(_type(k))
    }
    return {**defaults, **config, **groups}


def _without_removed(section: Any) -> Any:
    removed = REMOVED_FIELDS.get(str(section.get("_target_")), {}) if isinstance(section, Mapping) else {}
    return {k: v for k, v in section.items() if k not in removed or v != removed[k]} if removed else section


def _type(key: str) -> Any:
    """Returns the default of a key of Root."""
    (field_,) = (f for f in dataclasses.fields(Root) if f.name == key)
    return None if field_.default_factory is dataclasses.MISSING else field_.default_factory
