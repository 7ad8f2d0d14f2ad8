"""From a plain configuration to a resolved `Job`: checked once, built once, and passed on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import torch

from mobench.core.algorithm import Algorithm
from mobench.core.output import OUTPUTS
from mobench.core.preferences import Runs, resolve
from mobench.core.problem import Problem
from mobench.core.served import served
from mobench.core.truth import IdealByRuns
from mobench.errors import ConfigError, PreferenceError, choose, suggest
from mobench.jobs.config import JobConfig, check_numbers
from mobench.jobs.fingerprint import Opaque, of_class
from mobench.jobs.job import Job
from mobench.jobs.targets import Part, parameters

DTYPES = {"float64": torch.float64, "float32": torch.float32}


def make_job(plain: dict[str, Any]) -> Job:
    """Checks a plain configuration and builds problem, algorithm and runs, on the CPU: `Job.on` moves it to
    its device, which another machine may have.

    Raises:
        ConfigError, PreferenceError: unknown keys, choices or values, with every problem that is known at
            once.
    """
    config = JobConfig.read(plain)
    problem = config.problem.build()
    if isinstance(problem, IdealByRuns):
        from mobench.jobs.extremes import extreme_values  # imports an algorithm, which few jobs need

        problem = problem.with_ideal_by(extreme_values)
    variants = _variants(config.vary, config.algorithm.cls, config.vary_jointly)
    algorithm = _variant(config.algorithm, variants[0] if variants else {})
    choose("dtype", config.dtype, DTYPES)
    check_numbers(config)
    _check_outputs(algorithm)
    runs = _runs(config, problem, len(variants) if variants else None)
    varied = _varied(config.algorithm, variants, runs)
    if varied:
        algorithm = algorithm.stacked({name: values.unsqueeze(1) for name, values in varied.items()})
    code, opaque = _code(config)
    if opaque:  # code that cannot be told from other code: no rows or checkpoint are known to be its own
        config = config.anew(rerun=True)
    return Job(
        config,
        problem,
        algorithm,
        runs,
        config.steps,
        DTYPES[config.dtype],
        torch.device("cpu"),
        varied,
        code,
        opaque,
        {} if config.record.code is None else served(config.record.code, "record.code"),
    )


def _variant(part: Part, values: Mapping[str, Any]) -> Algorithm:
    """Builds the algorithm with other values of some fields."""
    algorithm: Algorithm = dataclasses.replace(part, arguments={**part.arguments, **values}).build()
    return algorithm


def _check_outputs(algorithm: Algorithm) -> None:
    """Raises ConfigError unless `algorithm.outputs` is a list of output rules."""
    for name in [algorithm.outputs] if isinstance(algorithm.outputs, str) else algorithm.outputs:
        choose("algorithm.outputs", name, OUTPUTS)
    if isinstance(algorithm.outputs, str):
        raise ConfigError(
            f"algorithm.outputs={algorithm.outputs} must be a list: algorithm.outputs=[{algorithm.outputs}]."
        )
    if len(set(algorithm.outputs)) < len(algorithm.outputs):
        raise ConfigError(
            f"algorithm.outputs={list(algorithm.outputs)} names an output twice, and its rows would "
            "be counted twice; name each once."
        )


def _runs(config: JobConfig, problem: Problem, variants: int | None) -> Runs:
    """Every preference with every seed, for each of the variants."""
    try:
        preferences = resolve(config.preferences, problem.n_objectives)
    except (TypeError, ValueError) as error:
        raise PreferenceError(
            f"preferences={config.preferences} could not be interpreted ({error}); give preferences=K, "
            f"preferences.rays_deg=[30,60] or preferences.weights=[[0.3,0.7],[0.5,0.5]]."
        ) from error
    for seed in config.seeds:
        if not -(2**63) <= seed < 2**63:
            raise ConfigError(
                f"seeds contains {seed}, which does not fit into 64 bits; give numbers below 2^63, e.g. "
                "seeds=[0,1,2]."
            )
    runs = Runs.product(preferences, config.seeds, variants)
    if config.hardware.part is None:
        return runs
    k, chunks = config.hardware.part
    chosen = set(torch.arange(len(preferences)).tensor_split(chunks)[k].tolist())
    if not chosen:
        raise ConfigError(
            f"hardware.part={[k, chunks]} has none of the {len(preferences)} preferences; hardware.split "
            "cuts a job."
        )
    return runs.take([r for r, index in enumerate(runs.index.tolist()) if index in chosen])


def _varied(part: Part, variants: list[dict[str, Any]], runs: Runs) -> dict[str, torch.Tensor]:
    """The value (R,) of each run, float64, for each field that the job varies."""
    if not variants:
        return {}
    for variant in variants:
        # each value is checked as if it were the only one
        _variant(part, variant)
    assert runs.variant is not None
    out = {}
    for name in variants[0]:
        values = torch.tensor([float(v[name]) for v in variants], dtype=torch.float64)
        out[name] = values[runs.variant]
    return out


def _code(config: JobConfig) -> tuple[dict[str, str], dict[str, str]]:
    """The fingerprint of each class of the user's own, and why one has none."""
    code: dict[str, str] = {}
    opaque: dict[str, str] = {}
    for where, cls in config.own_classes.items():
        try:
            code[where] = of_class(cls)
        except Opaque as reason:
            code[where] = "unknown"
            opaque[where] = f"{cls.__name__}: {reason}"
    return code, opaque


def _variants(vary: Mapping[str, Any], cls: type, jointly: bool) -> list[dict[str, Any]]:
    """All combinations of the values of `vary`, the last key fastest; none if there is no key.

    `jointly`: the lists side by side instead, one variant for each place in them.
    """
    able: frozenset[str] = getattr(cls, "varies", frozenset())
    for name, values in vary.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"vary.{name}={values} must be a list of values, e.g. vary.{name}=[0.1,1.0].")
        if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
            raise ConfigError(
                f"vary.{name}={values} must contain only numbers; sweep text and switches as separate jobs "
                "(-m)."
            )
        if not jointly and len(set(values)) != len(values):
            raise ConfigError(f"vary.{name}={values} contains a value twice; give each value once.")
        if name not in able:
            known = name in parameters(cls)
            instead = (
                f"Sweep it instead: -m algorithm.{name}=..."
                if known
                else f"It has no field of this name.{suggest(name, able)}"
            )
            raise ConfigError(
                f"vary.{name}: {cls.__name__} does not support different values of it in one batch. Fields "
                f"that can vary: {', '.join(sorted(able)) or 'none'}. {instead}"
            )
    if not vary:
        return []
    if jointly:
        return _side_by_side(vary)
    return [dict(zip(vary, combination, strict=True)) for combination in itertools.product(*vary.values())]


def _side_by_side(vary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One variant for each place in lists of one length."""
    lengths = {name: len(values) for name, values in vary.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigError(
            "vary_jointly=true reads the lists of vary side by side, so they need one length; found "
            f"{', '.join(f'{length} values of {name}' for name, length in lengths.items())}."
        )
    places = [tuple(float(v) for v in place) for place in zip(*vary.values(), strict=True)]
    if len(set(places)) != len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise ConfigError(
            f"vary: {dict(zip(vary, twice, strict=True))} is listed twice; give each combination once."
        )
    return [dict(zip(vary, place, strict=True)) for place in zip(*vary.values(), strict=True)]
