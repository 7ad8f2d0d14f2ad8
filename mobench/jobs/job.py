"""A resolved job: its configuration, the parts built from it, its device, and what its folder is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import torch
import yaml

from mobench.config.schema import choices, conf_dir
from mobench.core import loop
from mobench.core.algorithm import Algorithm
from mobench.core.compatibility import check
from mobench.core.oracle import Oracle, Spec
from mobench.core.preferences import Runs
from mobench.core.problem import Problem
from mobench.core.stepping import Stepped, Stepper
from mobench.errors import CompatibilityError, ConfigError
from mobench.jobs.config import HASHED, JobConfig
from mobench.jobs.fingerprint import is_own
from mobench.jobs.store import config_hash
from mobench.jobs.targets import TARGET, Part, folded, load_class


@dataclass(frozen=True)
class Job:
    """The objects of one job, all decided before any number is computed.

    `mobench.jobs.build.make_job` makes one.

    Attributes:
        config: the configuration, resolved.
        device: where its runs are; a job is built on the CPU and moved by `on`.
        varied: the value (R,) of each run, for each field of the algorithm that the job varies.
        measures: of the user's own, beside the problem's, by name: x (P,) -> () each.
        code: of each class of the user's own, what it computes, as a hash.
        opaque: those of which that cannot be known, and why.
    """

    config: JobConfig
    problem: Problem
    algorithm: Algorithm
    runs: Runs
    steps: int
    dtype: torch.dtype
    device: torch.device
    varied: dict[str, torch.Tensor] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    opaque: dict[str, str] = field(default_factory=dict)
    measures: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def on(self, device: str) -> Job:
        """Returns the same job on a device: itself if it is there already.

        Raises:
            ConfigError: this machine has no such device.
        """
        check_device(device)
        place = torch.device(device)
        if place == self.device:
            return self
        columns = {name: values.to(place).unsqueeze(1) for name, values in self.varied.items()}
        algorithm = self.algorithm.stacked(columns) if columns else self.algorithm
        return dataclasses.replace(self, device=place, algorithm=algorithm)

    def keeping_rows(self) -> Job:
        """Returns the same job without `rerun`: finished rows count."""
        return dataclasses.replace(self, config=self.config.anew(rerun=False))

    def listed_in(self, plain: dict[str, Any]) -> Job:
        """Returns the same job with a configuration that differs from its own only in the artifact and the
        list that it comes from, which decide nothing about its rows.
        """
        config = dataclasses.replace(self.config, plain={**plain, "rerun": self.config.rerun})
        job = dataclasses.replace(self, config=config)
        job.__dict__["identity"] = self.identity
        return job

    def oracle(self, runs: Runs | None = None) -> Oracle:
        """Returns a new oracle of all runs, or of the given ones."""
        chosen = (self.runs if runs is None else runs).to(self.device)
        oracle = self.config.oracle.build(problem=self.problem, runs=chosen)
        for layer in self.config.layers.values():
            oracle = layer.build(oracle=oracle, problem=self.problem, runs=chosen)
        assert isinstance(oracle, Oracle)
        return oracle

    @cached_property
    def weights(self) -> torch.Tensor:
        """The preference (R, M) of each run, on the job's device."""
        return self.runs.weights.to(self.device)

    @cached_property
    def ideal(self) -> torch.Tensor:
        """The ideal point (M,) of a problem that has one, on the job's device."""
        assert self.joined.ideal is not None
        return self.joined.ideal.to(self.device)

    @cached_property
    def joined(self) -> Oracle:
        """The oracle of all runs, once it is known that the algorithm can use it.

        Raises:
            CompatibilityError: it cannot; with all reasons.
        """
        oracle = self.oracle()
        spec = loop.seen_by(self.algorithm, oracle).spec
        try:
            check(spec, self.algorithm, type(self.problem).__name__, self.stepper() is not None)
        except CompatibilityError as error:
            low, high = self.algorithm.constraints
            if low > spec.N or (high is not None and high < spec.N):
                error.hint = _takers(spec)
            raise
        return oracle

    def stepper(self) -> Stepper | None:
        """Returns a new stepper of the user's own optimizer, if there is one.

        Raises:
            CompatibilityError: the job moves other variables than the problem's.
        """
        stepper = self.problem.stepper() if isinstance(self.problem, Stepped) else None
        if stepper is not None and "space" in self.config.layers:
            raise CompatibilityError(
                "optimizer= of mobench.networks steps the parameters of the module, but space= chooses other "
                "variables; leave one of them out."
            )
        return stepper

    def check(self) -> None:
        """Raises CompatibilityError unless the algorithm can use the oracle."""
        _ = self.joined

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that decides the job's result; see `identity`."""
        return identity(self)

    @cached_property
    def key(self) -> str:
        """Name of the job's folder: <problem>-<algorithm>-<hash>."""
        return f"{self.problem.name}-{type(self.algorithm).__name__.lower()}-{config_hash(self.identity)}"


def _takers(spec: Spec) -> str:
    """Returns the methods of the project that take as many constraints of this kind."""
    methods = []
    for name, cls in _algorithms(conf_dir()).items():
        low, high = cls.constraints
        fits = low <= spec.N and (high is None or high >= spec.N)
        if fits and (spec.N == 0 or cls.constraint_kind in (None, spec.constraint_kind)):
            methods.append(name)
    what = "without constraints" if spec.N == 0 else f"with N={spec.N}"
    return f"\nMethods that fit a problem {what}: {', '.join(methods)}."


@cache
def _algorithms(folder: Path) -> dict[str, type[Algorithm]]:
    """The classes of the project's algorithms."""
    classes = {}
    for name in choices("algorithm"):
        node = yaml.safe_load((folder / "algorithm" / f"{name}.yaml").read_text(encoding="utf-8"))
        classes[name] = cast(type[Algorithm], load_class(str(node[TARGET]), f"algorithm={name}"))
    return classes


def check_device(name: str) -> None:
    """Raises ConfigError unless this machine has a device."""
    if name == "cpu":
        return
    count = torch.cuda.device_count()
    if int(name.partition(":")[2] or 0) >= count:
        available = f"only {count}" if count else "no CUDA device"
        raise ConfigError(
            f"hardware.device={name} was requested, but torch finds {available}; choose hardware=cpu."
        )


def registered_name(cls: type) -> str:
    """The name of a part in a job's identity.

    It says nothing of the file that the class lives in, so files can move.

    A class of mobench has its own name, which no other part of mobench has (a test holds that) and which,
    with its `version`, is what rows are found by; a user's class has its name too, and its code is part of
    the identity; a class of any other package has the package's name in front.
    """
    top = cls.__module__.partition(".")[0]
    return cls.__qualname__ if top == "mobench" or is_own(cls) else f"{top}.{cls.__qualname__}"


REFERENCE = "cpu"
"""An identity names this device whatever the job runs on: a GPU computes the same rows up to rounding, as
another processor does (TF32 is named on its own). A job that a CPU began can therefore continue
on a GPU, and its rows serve both. The devices that computed them are `device` in meta.json. The word is part
of the names of all kept jobs.
"""


def identity(job: Job) -> dict[str, Any]:
    """Returns what decides a job's result: resolved settings, names and versions of its parts, code of those
    that are the user's own. Neither import paths nor the device are part of it.
    """
    config = job.config
    # a layer that is not chosen is not named, nor a switch at its default: jobs from before there were any
    # keep their rows
    entries = {key: config.plain[key] for key in HASHED} | config.parts
    if config.hardware.tf32:
        entries["tf32"] = True
    if config.hardware.part is not None:  # some of the preferences
        entries["part"] = list(config.hardware.part)
    switches = [("measures", True), ("certificates", True), ("code", None)]
    entries["record"] = {
        k: v
        for k, v in entries["record"].items()
        if (k, v) not in switches and k != "hypervolume_seconds"  # which changes no row
    }
    for group, part in config.parts.items():
        unsaid = getattr(part.cls, "added_fields", {})
        execution = job.problem.execution_fields if group == "problem" else ()
        arguments = {
            k: v
            for k, v in part.arguments.items()
            if not (k in unsaid and v == unsaid[k]) and k not in execution
        }
        entries[group] = dataclasses.replace(part, arguments=arguments)
    parts = [part for group in config.parts.keys() - {"algorithm"} for part in entries[group].parts()]
    versions = {part.where: part.cls.version for part in parts}
    versions |= {"problem": job.problem.version, "algorithm": type(job.algorithm).version}
    if job.varied:
        # pairs, because the order of the keys numbers the runs
        entries["vary"] = [[name, [float(v) for v in values]] for name, values in config.vary.items()]
        if config.vary_jointly:
            entries["vary_jointly"] = True
    # what the preferences resolve to, so that `preferences=4` and the same rays in degrees are one job
    entries["preferences"] = [[round(x, 12) for x in row] for row in job.runs.all.tolist()]
    if job.code:  # mobench's own classes are known by their version
        entries["code"] = job.code
    return {**folded(entries, _named), "device": REFERENCE, "versions": versions}


def _named(part: Part, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns a part with its registered name in place of its import path."""
    return {**arguments, "class": registered_name(part.cls)}
