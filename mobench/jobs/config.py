"""The configuration of one job, read and checked once, before anything is built from it.

`Root` (mobench.config.schema) refuses unknown keys at the top level and in the plain groups. What a
`_target_` builds is checked here against the constructor's own parameters, wherever it stands, with
suggestions; so a misspelt key is an error wherever it is written: command line, YAML file, experiment,
plug-in.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mobench.config.schema import CheckpointConfig, HardwareConfig, LoggerConfig, RecordConfig, choices
from mobench.errors import ConfigError, choose
from mobench.jobs.fingerprint import is_own
from mobench.jobs.targets import LAYERS, TARGET, Part, part_types, read

# keys that decide a job's rows, and so its identity
HASHED = (
    "problem",
    "oracle",
    "algorithm",
    "preferences",
    "seeds",
    "steps",
    "dtype",
    "max_failure_share",
    "record",
)
GRAPHS = ("auto", "off")
SIGNALS = ("USR2", "USR1", "TERM")


@dataclass(frozen=True)
class JobConfig:
    """The settings of one job.

    Attributes:
        layers: the chosen ones of constraint and space, in the order in which they wrap the oracle.
        plain: the nested dictionary that all of it was read from, as config.yaml has it; other attributes are
            its keys.
    """

    problem: Part
    oracle: Part
    algorithm: Part
    layers: dict[str, Part]
    preferences: dict[str, Any]
    seeds: list[int]
    steps: int
    vary: dict[str, Any]
    vary_jointly: bool
    dtype: str
    max_failure_share: float
    record: RecordConfig
    checkpoint: CheckpointConfig
    hardware: HardwareConfig
    logger: LoggerConfig
    rerun: bool
    progress: bool
    plain: dict[str, Any]

    @classmethod
    def read(cls, plain: dict[str, Any]) -> JobConfig:
        """Reads a plain configuration.

        Raises:
            ConfigError: a group that names no class, unknown keys below any `_target_`, numbers that are not
                finite; with every problem found.
        """
        infinite: list[str] = []
        values = {key: read(plain.get(key), key, infinite) for key in (*HASHED, *LAYERS, "vary")}
        parts = {group: values[group] for group in ("problem", "oracle", "algorithm")}
        parts |= {layer: values[layer] for layer in LAYERS if _chosen(layer, plain.get(layer))}
        problems = [fault for group, part in parts.items() for fault in _faults(group, part)]
        problems += infinite
        if plain.get("tuned") is not None:
            problems.append(
                "Tuned files set values of other groups (# @package _global_) and must not set 'tuned' "
                "itself."
            )
        if problems:
            raise ConfigError("\n".join(problems))
        return cls(
            **{group: parts.pop(group) for group in ("problem", "oracle", "algorithm")},
            layers=parts,
            **{key: plain[key] for key in ("preferences", "seeds", "steps", "vary", "dtype")},
            **{key: plain[key] for key in ("max_failure_share", "rerun", "progress")},
            vary_jointly=plain.get("vary_jointly", False),
            record=_settings(RecordConfig, plain["record"]),
            checkpoint=_settings(CheckpointConfig, plain["checkpoint"]),
            hardware=_settings(HardwareConfig, plain["hardware"]),
            logger=_settings(LoggerConfig, plain["logger"]),
            plain=plain,
        )

    def anew(self, rerun: bool) -> JobConfig:
        """Returns the same job, whose finished rows count unless `rerun` is set."""
        return dataclasses.replace(self, rerun=rerun, plain={**self.plain, "rerun": rerun})

    @property
    def parts(self) -> dict[str, Part]:
        """The groups that name a class, without inner parts."""
        return {"problem": self.problem, "oracle": self.oracle, "algorithm": self.algorithm, **self.layers}

    @property
    def own_classes(self) -> dict[str, type]:
        """Classes outside of mobench, and where they are named: {"problem": my_parts.Ellipsoids}."""
        parts = [part for group in self.parts.values() for part in group.parts()]
        outside = [part for part in parts if not part.target.startswith("mobench.")]
        return {part.where: part.cls for part in outside if is_own(part.cls)}


def _settings(kind: type[Any], node: Mapping[str, Any]) -> Any:
    """Returns the settings of a plain group; of an older job, defaults for keys that have come since."""
    known = [f.name for f in dataclasses.fields(kind) if f.name in node]
    return kind(**{name: node[name] for name in known})


def _chosen(layer: str, node: Mapping[str, Any] | None) -> bool:
    """Returns whether a layer is chosen. Raises ConfigError if keys are set for one that is not."""
    if TARGET in (node or {}):
        return True
    if left := {k: v for k, v in (node or {}).items() if v is not None}:
        (key, value), *_ = left.items()
        options = [name for name in choices(layer) if name != "none"]
        raise ConfigError(
            f"{layer}.{key}={value} is set, but {layer}=none. Set {layer} to one of {', '.join(options)}, "
            f"or set {layer}.{key}=null."
        )
    return False


def _faults(group: str, part: Any) -> list[str]:
    """Returns what is wrong with the class of a group and with its arguments. Raises if it names none."""
    if not isinstance(part, Part):
        raise ConfigError(_without_target(group, part))
    base = part_types()[group]
    faults = []
    if not issubclass(part.cls, base):  # before anything is built
        faults.append(f"{group}._target_ is {part.cls.__name__}, which is not a mobench {base.__name__}.")
    return faults + [fault for inner in part.parts() for fault in inner.faults()]


def _without_target(group: str, node: Any) -> str:
    """Returns the message for a group that builds nothing: its file names no class, or nothing was chosen."""
    if not node:
        return f"{group} is not set, or its file is empty; choose {group}=one of {', '.join(choices(group))}."
    instead = f"only {', '.join(map(str, node))}" if isinstance(node, Mapping) else f"but is {node!r}"
    return (
        f"{group} has no _target_, {instead}: its YAML file must name its class, e.g. "
        f"`_target_: my_parts.My{group.capitalize()}`, and its fields as `key: value` lines."
    )


def check_numbers(config: JobConfig) -> None:
    """Raises ConfigError for a setting of the job itself that lies outside of its range."""
    if config.steps < 1:
        raise ConfigError(f"steps={config.steps} must be at least 1.")
    for key in ("every", "dense", "hypervolume_seconds"):
        if not (value := getattr(config.record, key)) >= 0:
            raise ConfigError(f"record.{key}={value} must be >= 0.")
    if not 0 <= config.max_failure_share <= 1:
        raise ConfigError(f"max_failure_share={config.max_failure_share} must lie in [0, 1]; it is a share.")
    for group, key, least in (
        ("hardware", "jobs_per_device", 1),
        ("hardware", "split", 1),
        ("hardware", "retries", 0),
        ("hardware", "threads", 1),
        ("hardware", "max_batch_runs", 1),
        ("checkpoint", "seconds", 0),
    ):
        value = getattr(getattr(config, group), key)
        if value is not None and not value >= least:
            raise ConfigError(f"{group}.{key}={value} must be at least {least}.")
    hardware = config.hardware
    _check_cut(hardware)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", hardware.device):
        raise ConfigError(f"hardware.device={hardware.device!r} is unknown; choose cpu, cuda or cuda:N.")
    choose("checkpoint.signal", config.checkpoint.signal, SIGNALS)
    choose("hardware.graphs", hardware.graphs, GRAPHS)
    if hardware.tf32 and not hardware.device.startswith("cuda"):
        raise ConfigError(
            f"hardware.tf32=true is for a GPU, but hardware.device={hardware.device}; remove it, or add "
            "hardware=gpu."
        )


def _check_cut(hardware: HardwareConfig) -> None:
    """Raises ConfigError for a chunk that does not exist, or that would be cut again."""
    part = hardware.part
    if hardware.split is not None and part is not None:
        raise ConfigError(
            f"hardware.split={hardware.split} and hardware.part={part} both cut the job; give only one of "
            "them."
        )
    if part is not None and not (len(part) == 2 and 0 <= part[0] < part[1]):
        raise ConfigError(f"hardware.part={part} must be [k, n] with 0 <= k < n; hardware.split sets it.")
