"""The configuration: validation of every key, and the objects made from it; `mobench.config.schema` has the
keys themselves.

Two layers check a configuration before the first step. The dataclass `Root` refuses unknown keys at the top
level and in the plain groups. What a `_target_` builds is checked against the constructor's own parameters,
recursively, with suggestions; so a misspelt key is an error wherever it is written: command line, YAML file,
experiment, plug-in.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from hydra.utils import get_class

from mobench.config.schema import choices
from mobench.core.algorithm import Algorithm
from mobench.core.oracle import Oracle
from mobench.core.output import OUTPUTS
from mobench.core.preferences import Runs, resolve
from mobench.core.problem import Problem
from mobench.errors import ConfigError, MobenchError, PreferenceError, choose, suggest
from mobench.jobs import memory
from mobench.jobs.fingerprint import Opaque, is_own, of_class

MISSING_TARGET = "_target_"
LAYERS = ("constraint", "space")  # optional groups: what an oracle wears, in this order
SIGNALS = ("USR2", "USR1", "TERM")
NUMBERS = {"float", "int", "Real", "None"}  # names of types in annotations
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


# validation


def parameters(cls: type) -> list[str]:
    """Names of a constructor's configurable parameters."""
    if dataclasses.is_dataclass(cls):
        return [f.name for f in dataclasses.fields(cls) if f.init]
    names = list(inspect.signature(cls).parameters)
    return [n for n in names if n not in ("oracle", "problem", "runs", "args", "kwargs")]


def load_class(target: str, where: str) -> type:
    """The class behind a `_target_`; a wrong path is one clear message."""
    try:
        return get_class(target)
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{where}._target_={target!r} cannot be imported: {_why(target, error)}") from error


def _why(target: str, error: Exception) -> str:
    """Why a class cannot be imported; of a module that Python does not find, where Python looks."""
    top = target.partition(".")[0]
    if "." not in target or not top.isidentifier() or importlib.util.find_spec(top) is not None:
        return str(error)
    given = os.environ.get("PYTHONPATH")
    return (
        f"there is no module {top!r}. If {top}.py is yours, name the folder that holds it: export "
        f"PYTHONPATH=FOLDER ({'now it is ' + given if given else 'now it is not set'}). "
        "Workers of a launcher need the same."
    )


def _target_nodes(node: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(node, Mapping):
        if MISSING_TARGET in node:
            yield where, node
        for key, value in node.items():
            yield from _target_nodes(value, f"{where}.{key}")


def worn(config: Mapping[str, Any], layer: str) -> bool:
    """Whether a layer is chosen.

    Keys of one that is not, other than null, are an error: somebody thinks that it is.
    """
    node = config.get(layer) or {}
    if MISSING_TARGET in node:
        return True
    if left := {k: v for k, v in node.items() if v is not None}:
        (key, value), *_ = left.items()
        options = [name for name in choices(layer) if name != "none"]
        raise ConfigError(
            f"{layer}.{key}={value}, but {layer}=none. Choose {layer}=one of {', '.join(options)}, "
            f"or set {layer}.{key}=null."
        )
    return False


def validate(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown key below any `_target_`, with every problem found."""
    problems = []
    for group in ("problem", "oracle", "algorithm", *LAYERS):
        node = config.get(group)
        if group in LAYERS and not worn(config, group):
            continue
        if not isinstance(node, Mapping) or MISSING_TARGET not in node:
            raise ConfigError(_without_target(group, node))
        for where, inner in _target_nodes(node, group):
            cls = load_class(str(inner[MISSING_TARGET]), where)
            known = parameters(cls)
            problems += _no_numbers(cls, inner, where)
            for key in inner:
                if key != MISSING_TARGET and key not in known:
                    problems.append(
                        f"{where}.{key} is unknown; {where} takes "
                        f"{', '.join(known) or 'no keys'}.{suggest(key, known)}"
                    )
    for key in (*HASHED, *LAYERS, "vary"):
        problems += [
            f"{where}={value}: numbers of a configuration must be finite."
            for where, value in _endless(config.get(key), key)
        ]
    if config.get("tuned") is not None:
        problems.append(
            "tuned files write into other groups (# @package _global_); none may set 'tuned' itself."
        )
    if problems:
        raise ConfigError("\n".join(problems))


def _without_target(group: str, node: Any) -> str:
    """What to say of a group that builds nothing: its file names no class, or nothing was chosen."""
    if not node:
        return f"{group} is not set, or its file is empty; choose {group}=one of {', '.join(choices(group))}."
    found = f"only {', '.join(map(str, node))}" if isinstance(node, Mapping) else f"but is {node!r}"
    return (
        f"{group} has no _target_, {found}: the YAML file of a choice has to name its class, e.g. "
        f"`_target_: my_parts.My{group.capitalize()}`, and its fields as `key: value` lines."
    )


def _endless(node: Any, where: str) -> Iterator[tuple[str, float]]:
    """Numbers that are not finite: no identity and no meta.json can hold them."""
    if isinstance(node, float) and not math.isfinite(node):
        yield where, node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _endless(value, f"{where}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from _endless(value, where)


def _no_numbers(cls: type, node: Mapping[str, Any], where: str) -> list[str]:
    """Text, lists and mappings where the constructor's annotation names nothing but numbers."""
    found = []
    for name, parameter in inspect.signature(cls).parameters.items():
        kind = parameter.annotation
        words = (kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))).split("|")
        kinds = {word.strip().rpartition(".")[2] for word in words}
        if name in node and kinds <= NUMBERS and isinstance(node[name], str | list | Mapping):
            such = f", such as {parameter.default}" if isinstance(parameter.default, int | float) else ""
            found.append(f"{where}.{name}={node[name]!r} must be a number{such}.")
    return found


# objects


def build(config: Mapping[str, Any], where: str, **extra: Any) -> Any:
    """Instantiate a `_target_` node and those inside it, all with `extra`;
    a constructor's errors become ConfigError.
    """
    node = dict(config)
    cls = load_class(str(node.pop(MISSING_TARGET)), where)
    args = {
        k: build(v, f"{where}.{k}", **extra) if isinstance(v, Mapping) and MISSING_TARGET in v else v
        for k, v in node.items()
    }
    try:
        return cls(**args, **extra)
    except MobenchError:  # a CompatibilityError is a TypeError, and says what to do
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where} ({cls.__name__}) cannot be built from {args}: {error}") from error


DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Job:
    """The objects of one job, all decided before any number is computed."""

    config: dict[str, Any]
    problem: Problem
    algorithm: Algorithm
    runs: Runs
    steps: int
    dtype: torch.dtype
    device: torch.device
    varied: dict[str, torch.Tensor] = field(default_factory=dict)  # the value (R,) of each run
    # of each class of the user's own: what it computes, as a hash
    code: dict[str, str] = field(default_factory=dict)
    opaque: dict[str, str] = field(default_factory=dict)  # and of which that cannot be known, and why

    @property
    def problem_name(self) -> str:
        """Short name for folders and tables."""
        return self.problem.name

    def oracle(self, runs: Runs | None = None) -> Oracle:
        """The oracle of all runs, or of the given ones."""
        chosen = (self.runs if runs is None else runs).to(self.device)
        oracle = build(self.config["oracle"], "oracle", problem=self.problem, runs=chosen)
        for layer in LAYERS:
            if worn(self.config, layer):
                oracle = build(self.config[layer], layer, oracle=oracle, problem=self.problem, runs=chosen)
        assert isinstance(oracle, Oracle)
        return oracle


def make_job(config: dict[str, Any], planned: bool = False, device: str | None = None) -> Job:
    """Check a plain configuration and build problem, algorithm and runs.

    `planned`: only to be checked and named. It is placed on the CPU then, because another machine may be the
    one that runs it. `device`: the one that the job was given, where the configuration leaves the choice.
    """
    validate(config)
    problem = build(config["problem"], "problem")
    variants = _variants(config["vary"], config["algorithm"])
    algorithm = build(config["algorithm"] | (variants[0] if variants else {}), "algorithm")
    if not isinstance(problem, Problem):
        raise ConfigError(
            f"problem._target_ builds {type(problem).__name__}, which is not a mobench Problem."
        )
    if not isinstance(algorithm, Algorithm):
        raise ConfigError(
            f"algorithm._target_ builds {type(algorithm).__name__}, which is not a mobench Algorithm."
        )
    if config["dtype"] not in DTYPES:
        raise ConfigError(f"dtype={config['dtype']!r} is unknown; choose one of {', '.join(DTYPES)}.")
    if config["steps"] < 1:
        raise ConfigError(f"steps={config['steps']} must be at least 1.")
    for key in ("every", "dense"):
        if config["record"][key] < 0:
            raise ConfigError(f"record.{key}={config['record'][key]} must be >= 0.")
    if not 0 <= config["max_failure_share"] <= 1:
        raise ConfigError(
            f"max_failure_share={config['max_failure_share']} is a share: it must lie in [0, 1]."
        )
    for name in [algorithm.outputs] if isinstance(algorithm.outputs, str) else algorithm.outputs:
        choose("algorithm.outputs", name, OUTPUTS)
    if isinstance(algorithm.outputs, str):
        raise ConfigError(
            f"algorithm.outputs={algorithm.outputs} must be a list: algorithm.outputs=[{algorithm.outputs}]."
        )
    for group, key, least in (
        ("hardware", "jobs_per_device", 1),
        ("hardware", "retries", 0),
        ("checkpoint", "seconds", 0),
    ):
        if config[group][key] < least:
            raise ConfigError(f"{group}.{key}={config[group][key]} must be at least {least}.")
    choose("checkpoint.signal", config["checkpoint"]["signal"], SIGNALS)
    place = _device(device or config["hardware"]["device"], here=not planned)
    memory.check_preferences(config["preferences"], problem.n_objectives)
    try:
        preferences = resolve(config["preferences"], problem.n_objectives)
    except (TypeError, ValueError) as error:
        raise PreferenceError(
            f"preferences={config['preferences']} cannot be read ({error}); give preferences=K, "
            f"preferences.rays_deg=[30,60] or preferences.weights=[[0.3,0.7],[0.5,0.5]]."
        ) from error
    for seed in config["seeds"]:
        if not -(2**63) <= seed < 2**63:
            raise ConfigError(
                f"seeds holds {seed}, which does not fit into 64 bits; give numbers below 2^63, e.g. "
                "seeds=[0,1,2]."
            )
    runs = Runs.product(preferences, config["seeds"], len(variants) if variants else None)
    varied: dict[str, torch.Tensor] = {}
    if variants:
        for variant in variants:
            # each value is checked as if it were the only one
            build(config["algorithm"] | variant, "algorithm")
        assert runs.variant is not None
        for name in variants[0]:
            values = torch.tensor([float(v[name]) for v in variants], dtype=torch.float64)
            varied[name] = values[runs.variant]
        algorithm = algorithm.stacked({name: v.to(place).unsqueeze(1) for name, v in varied.items()})
    code, opaque = _code(config)
    dtype = DTYPES[config["dtype"]]
    return Job(config, problem, algorithm, runs, config["steps"], dtype, place, varied, code, opaque)


def own_classes(config: Mapping[str, Any]) -> dict[str, type]:
    """Classes outside of mobench that a configuration names, and where: {"problem": my_parts.Ellipsoids}."""
    nodes = [
        (where, str(node[MISSING_TARGET]))
        for group in ("problem", "oracle", "algorithm", *LAYERS)
        for where, node in _target_nodes(config.get(group), group)
    ]
    found = {where: load_class(target, where) for where, target in nodes if not target.startswith("mobench.")}
    return {where: cls for where, cls in found.items() if is_own(cls)}


def _code(config: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The fingerprint of each of them, and why one has none."""
    code = {}
    opaque = {}
    for where, cls in own_classes(config).items():
        try:
            code[where] = of_class(cls)
        except Opaque as reason:
            code[where] = "unknown"
            opaque[where] = f"{cls.__name__}: {reason}"
    return code, opaque


def _variants(vary: Mapping[str, Any], algorithm: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations of the values of `vary`, the last key fastest; none if there is no key."""
    cls = load_class(str(algorithm[MISSING_TARGET]), "algorithm")
    able: frozenset[str] = getattr(cls, "varies", frozenset())
    for name, values in vary.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"vary.{name}={values} must be a list of values, e.g. vary.{name}=[0.1,1.0].")
        if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
            raise ConfigError(
                f"vary.{name}={values} must hold numbers: text and switches make jobs of their own (-m)."
            )
        if len(set(values)) != len(values):
            raise ConfigError(f"vary.{name}={values} holds a value twice.")
        if name not in able:
            known = name in parameters(cls)
            instead = (
                f"Sweep it instead: -m algorithm.{name}=..."
                if known
                else f"It has no such field.{suggest(name, able)}"
            )
            raise ConfigError(
                f"vary.{name}: {cls.__name__} cannot hold different values of it in one batch; it can of "
                f"{', '.join(sorted(able)) or 'none of its fields'}. {instead}"
            )
    if not vary:
        return []
    return [dict(zip(vary, combination, strict=True)) for combination in itertools.product(*vary.values())]


def _device(name: str, here: bool) -> torch.device:
    """The torch device, present on this machine; the CPU if it is not to be used `here`."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"hardware.device={name!r} is unknown; give cpu, cuda or cuda:N.")
    if not here:
        return torch.device("cpu")
    if name != "cpu":
        count = torch.cuda.device_count()
        if int(name.partition(":")[2] or 0) >= count:
            found = f"only {count}" if count else "no CUDA device"
            raise ConfigError(f"hardware.device={name}, but torch sees {found}; choose hardware=cpu.")
    return torch.device(name)


def registered_name(cls: type) -> str:
    """The name of a part in a job's identity.

    It says nothing of the file that the class lives in, so files can move.

    A class of mobench has its own name, which no other part of mobench has (a test holds that) and which,
    with its `version`, is what rows are found by; a user's class has its name too, and its code is part of
    the identity; a class of any other package has the package's name in front.
    """
    top = cls.__module__.partition(".")[0]
    return cls.__qualname__ if top == "mobench" or is_own(cls) else f"{top}.{cls.__qualname__}"


def _by_name(node: Any, where: str) -> Any:
    """A configuration with the registered name (`class`) of each part in place of its import path
    (`_target_`).
    """
    if isinstance(node, Mapping):
        out = {k: _by_name(v, f"{where}.{k}") for k, v in node.items() if k != MISSING_TARGET}
        if MISSING_TARGET in node:
            out["class"] = registered_name(load_class(str(node[MISSING_TARGET]), where))
        return out
    if isinstance(node, list):
        return [_by_name(value, where) for value in node]
    return node


def identity(job: Job) -> dict[str, Any]:
    """What decides a job's result: resolved settings, names and versions of its parts, and the code of those
    that are the user's own. Import paths are no part of it.
    """
    # a layer that is not worn is not named, nor a switch at its default: jobs from before there were any keep
    # their rows
    config = {k: job.config[k] for k in HASHED} | {k: job.config[k] for k in LAYERS if worn(job.config, k)}
    config["record"] = {k: v for k, v in config["record"].items() if (k, v) != ("measures", True)}
    config["problem"] = {k: v for k, v in config["problem"].items() if k not in job.problem.elsewhere}
    parts: dict[str, Any] = {"problem": job.problem, "algorithm": job.algorithm}
    versions = {name: type(part).version for name, part in parts.items()}
    for group in ("oracle", "problem", *LAYERS):
        for where, node in _target_nodes(config.get(group), group):  # absent where it is not worn
            versions.setdefault(where, load_class(node[MISSING_TARGET], where).version)  # type: ignore[attr-defined]
    # what the preferences resolve to, so that `preferences=4` and the same rays in degrees are one job
    if job.varied:
        # pairs, because the order of the keys numbers the runs
        config["vary"] = [[name, [float(v) for v in values]] for name, values in job.config["vary"].items()]
    config["preferences"] = [[round(x, 12) for x in row] for row in job.runs.all.tolist()]
    kind = job.config["hardware"]["device"].partition(":")[0]
    if job.code:  # mobench's own classes are known by their version
        config["code"] = job.code
    named = {key: _by_name(value, key) for key, value in config.items()}
    return {**named, "device": kind, "versions": versions}
