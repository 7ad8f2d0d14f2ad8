"""Jobs of an experiment that are a product of lists, or that another experiment has already.

    grid:                                            # a mapping, or a list of them
      all: [protocol=federated]                      # overrides of every job
      axes:                                          # a job's name has one key of each axis: m2_ls, m2_tch,
                                                     ...
        data: {mr: [], m2: [problem.partition=partial, problem.classes_per_client=2]}
        method: {ls: [algorithm=ls], tch: [algorithm=tch]}
      settings: {"m2_*": [steps=20]}                 # of the jobs with these names; * stands for any
                                                     characters
      without: [mr_tch]                              # these are left out
    like: omd_tch/table2                             # or {experiment: omd_tch/table2, only: ["*_ls"]}

What `like` names comes first, then the grid, then what `jobs` lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from mobench.errors import ConfigError, suggest
from mobench.system import forms

KEYS = ("all", "axes", "settings", "without")
Jobs = dict[str, list[str]]


def last(overrides: Sequence[str]) -> list[str]:
    """Returns the last value of each key; a group that is chosen again forgets the values below it."""
    out: dict[str, str] = {}
    for override in overrides:
        key = override.split("=", 1)[0]
        if key in out:
            out = {k: o for k, o in out.items() if not k.startswith(f"{key}.")}
        out[key] = override
    return list(out.values())


def product(
    every: Sequence[str],
    axes: Sequence[Mapping[str, Sequence[str]]],
    settings: Mapping[str, Sequence[str]],
    joint: str,
) -> Jobs:
    """One job for each combination of one entry per axis, the last axis fastest, named by their keys.

    Args:
        every: overrides of all jobs.
        axes: overrides of each entry, by its key.
        settings: further overrides of the jobs whose names match a pattern.
        joint: what stands between the keys in a name.
    """
    out = {}
    for keys in itertools.product(*axes):
        name = joint.join(keys)
        chosen = [override for axis, key in zip(axes, keys, strict=True) for override in axis[key]]
        matched = [
            o for pattern, overrides in settings.items() if fnmatchcase(name, pattern) for o in overrides
        ]
        out[name] = last([*every, *chosen, *matched])
    return out


def expanded(node: Mapping[str, Any], jobs_of: Callable[[str], Jobs]) -> Jobs:
    """All jobs of an experiment with the keys `like`, `grid` and `jobs`.

    Args:
        node: the experiment.
        jobs_of: the jobs of another experiment, by its name.

    Raises:
        ConfigError: a node of another form, a key or pattern that names nothing, or a name that two jobs
            would have.
    """
    out: Jobs = {}
    grids = node.get("grid")
    grids = [] if grids is None or grids == {} else grids
    parts = [_borrowed(node["like"], jobs_of)] if node.get("like") is not None else []
    parts += [_grid(each) for each in (grids if isinstance(grids, list | tuple) else [grids])]
    jobs = forms.mapping("jobs", node.get("jobs"))
    parts.append({name: overrides(f"jobs.{name}", job) for name, job in jobs.items()})
    for part in parts:
        if twice := sorted(out.keys() & part.keys()):
            raise ConfigError(
                f"grid: two jobs of one experiment have the name {twice[0]!r}; give each job a different "
                "name."
            )
        out |= part
    return out


def overrides(where: str, node: Any) -> list[str]:
    """Returns a list of overrides of a job.

    Raises:
        ConfigError: it is no list of texts, or names an experiment.
    """
    entries = forms.texts(where, node)
    nested = [override for override in entries if override.lstrip("+").startswith("experiment=")]
    if nested:
        raise ConfigError(
            f"{where} contains {nested[0]}, but an experiment is no part of a job. Give the job its own "
            "settings, or take the other experiment's jobs by like."
        )
    return entries


def _borrowed(like: Any, jobs_of: Callable[[str], Jobs]) -> Jobs:
    if isinstance(like, str):
        return jobs_of(like)
    if not isinstance(like, Mapping) or set(like) != {"experiment", "only"}:
        raise ConfigError(
            f"like={like} must name an experiment, e.g. like: omd_tch/table2, or some of its jobs, "
            f"e.g. like: {{experiment: omd_tch/table2, only: ['*_ls']}}."
        )
    return matching("like.only", like["only"], jobs_of(str(like["experiment"])))


def matching(where: str, patterns: Any, jobs: Mapping[str, list[str]]) -> Jobs:
    """Returns the jobs whose names match one of some patterns.

    Raises:
        ConfigError: `patterns` is no list of names, or one of them matches no job.
    """
    if not isinstance(patterns, list | tuple) or not all(isinstance(name, str) for name in patterns):
        raise ConfigError(
            f"{where}={forms.shown(patterns)} must be a list of job names or patterns, such as ['*_ls']."
        )
    _match_something(where, patterns, jobs)
    return {
        name: list(job)
        for name, job in jobs.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _grid(node: Any) -> Jobs:
    if not isinstance(node, Mapping) or not isinstance(node.get("axes"), Mapping) or not node["axes"]:
        raise ConfigError(
            f"grid={forms.shown(node)} needs axes, a mapping of names to mappings of keys to lists of "
            "overrides."
        )
    node = forms.mapping("grid", node)
    if unknown := [key for key in node if key not in KEYS]:
        raise ConfigError(
            f"grid.{unknown[0]} is unknown; the keys of a grid are "
            f"{', '.join(KEYS)}.{suggest(unknown[0], KEYS)}"
        )
    axes = {
        axis: _lists(f"grid.axes.{axis}", entries)
        for axis, entries in forms.mapping("grid.axes", node["axes"]).items()
    }
    if empty := [axis for axis, entries in axes.items() if not entries]:
        raise ConfigError(f"grid.axes.{empty[0]} is empty; it must map each key to a list of overrides.")
    settings = _lists("grid.settings", node.get("settings"))
    every = overrides("grid.all", [] if node.get("all") is None else node["all"])
    out = product(every, list(axes.values()), settings, "_")
    _match_something("grid.settings", settings, out)
    without = forms.texts("grid.without", [] if node.get("without") is None else node["without"])
    _match_something("grid.without", without, out)
    return {
        name: job for name, job in out.items() if not any(fnmatchcase(name, pattern) for pattern in without)
    }


def _lists(where: str, node: Any) -> dict[str, list[str]]:
    """A mapping of names to lists of overrides."""
    if node is not None and not isinstance(node, Mapping):
        raise ConfigError(f"{where}={forms.shown(node)} must map each key to a list of overrides.")
    return {name: overrides(f"{where}.{name}", entry) for name, entry in forms.mapping(where, node).items()}


def _match_something(where: str, patterns: Any, jobs: Mapping[str, list[str]]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in jobs):
            raise ConfigError(f"{where}: no job matches {pattern!r}; the jobs are {', '.join(jobs)}.")
