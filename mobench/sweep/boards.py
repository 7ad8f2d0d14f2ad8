"""Jobs of a comparison with several boards: every trial of every tuning study of a pair, in one batch.

    cross:
      version: 1                          # of the protocol (docs/protocol.md)
      replication: 0                      # 1: other seeds, other draws
      algorithms: kept                    # run nothing, show stored rows; all: run what has no rows; or a
                                          # list of methods (plug-ins, too): run their pairs without rows
      only: [single]                      # only these boards
      all: [record.measures=false]        # overrides of every job
      boards:
        single: {all: [..], budget: 200, problems: {zdt1: [problem=zdt1]}, beside: [..], methods: [ls, mgda]}
        networks: {.., asked_for: true, batch: study}  # runs only where `only` names it; a job for each study
      ranges: {default: {step_size: [0.001, 1.0]}, stch: {step_size: [..], mu: [..]}}
      settings: {tch: [algorithm.ideal=problem]}
      pairs: {constrained.ball.ferero: [algorithm.line=none]}
      kept: true                          # false: pairs whose rows come with the project run again

The job of a pair is called <board>.<problem>.<method>. Pairs whose rows are kept, from the same jobs,
are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from mobench.comparison import rows
from mobench.comparison.trials import STUDIES, Budget, Setting, reported_seeds, trials, tuning_seeds
from mobench.config.schema import conf_dir
from mobench.errors import CompatibilityError, ConfigError, choose, unknown_key
from mobench.sweep import grid
from mobench.system import forms

KEYS = (
    "version",
    "replication",
    "algorithms",
    "only",
    "all",
    "boards",
    "ranges",
    "settings",
    "pairs",
    "kept",
)
Compose = Callable[[list[str]], dict[str, Any]]


def jobs(table: Mapping[str, Any], known: Sequence[str], compose: Compose) -> grid.Jobs:
    """Overrides of every job that has to run, by name.

    Args:
        table: the node `cross` of an experiment with boards.
        known: all algorithms, a plug-in's too.
        compose: from overrides to a plain configuration.

    Raises:
        ConfigError: keys, boards or methods that are not there.
    """
    _check(table, known)
    replication = int(table.get("replication", 0))
    stored_keys = rows.kept_pairs(replication) if table.get("kept", True) else {}
    out: grid.Jobs = {}
    for board, problem, method in pairs(table):
        pair_jobs = of_pair(table, board, problem, method, compose)
        keys = stored_keys.get((board, problem, method))
        if keys is None or keys != rows.joined_keys(_key(compose, job) for job in pair_jobs.values()):
            out |= pair_jobs
    return out


def pairs(table: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Board, problem and method of every pair that a command asks for, board by board, problem by problem."""
    wanted = table.get("algorithms", "kept")
    if wanted == "kept":
        return []
    listed = {name for node in table["boards"].values() for name in node["methods"]}
    out = []
    for board, node in table["boards"].items():
        only = table.get("only")
        if board not in only if only is not None else node.get("asked_for", False):
            continue
        methods = list(node["methods"])
        if wanted != "all":
            # a method that no board lists is tried on all of them
            methods = [name for name in wanted if name in methods or name not in listed]
        out += [(board, problem, method) for problem in problems(table, board) for method in methods]
    return out


def problems(table: Mapping[str, Any], board: str) -> dict[str, list[str]]:
    """The problems of a board with their overrides."""
    return dict(table["boards"][board]["problems"])


def of_pair(
    table: Mapping[str, Any], board: str, problem: str, method: str, compose: Compose
) -> dict[str, list[str]]:
    """The jobs of one pair: one with all trials of all studies, each with all seeds.

    One for each study, with its seeds, on boards whose `batch` is `study`. One for each trial, with the seeds
    of its study, where runs of a batch cannot differ in what is tuned.
    """
    replication = int(table.get("replication", 0))
    ranges = table["ranges"].get(method) or table["ranges"]["default"]
    studies = {study: trials(ranges, study, replication) for study in STUDIES}
    node = table["boards"][board]
    base = [
        *(table.get("all") or []),
        *(node.get("all") or []),
        *problems(table, board)[problem],
        f"algorithm={method}",
        *(table.get("settings", {}).get(method) or []),
        *(table.get("pairs", {}).get(f"{board}.{problem}.{method}") or []),
    ]
    name = f"{board}.{problem}.{method}"
    try:
        budget, varies = _probed(compose, base, int(node["budget"]))
    except CompatibilityError:
        return {name: grid.last([*base, "seeds=[0]", "steps=1"])}  # which is refused with its reasons
    base += [f"steps={budget.steps}", f"record.every={budget.every}"]
    every = [setting for settings in studies.values() for setting in settings]
    seeds_of = {
        study: [*reported_seeds(replication, board), *tuning_seeds(study, replication)] for study in STUDIES
    }
    if set(ranges) <= varies and node.get("batch") == "study":
        return {
            f"{name}.{study}": grid.last(
                [*base, _seeds(seeds_of[study]), *_vary(settings), "vary_jointly=true"]
            )
            for study, settings in studies.items()
        }
    if set(ranges) <= varies:
        tuned = [seed for study in STUDIES for seed in tuning_seeds(study, replication)]
        seeds = _seeds([*reported_seeds(replication, board), *tuned])
        return {name: grid.last([*base, seeds, *_vary(every), "vary_jointly=true"])}
    out = {}
    for study, settings in studies.items():
        for i, setting in enumerate(settings):
            values = [f"algorithm.{key}={value!r}" for key, value in setting.items()]
            out[f"{name}.{study}-{i + 1}"] = grid.last([*base, _seeds(seeds_of[study]), *values])
    return out


def _seeds(seeds: Sequence[int]) -> str:
    return f"seeds=[{','.join(map(str, seeds))}]"


def _vary(settings: Sequence[Setting]) -> list[str]:
    """The lists of `vary`, side by side; a setting that two studies have is run once."""
    once = list({tuple(setting.items()): setting for setting in settings}.values())
    return [f"vary.{name}=[{','.join(repr(setting[name]) for setting in once)}]" for name in once[0]]


def _probed(compose: Compose, base: list[str], per_function: int) -> tuple[Budget, frozenset[str]]:
    """The budget of a pair, and what the runs of a batch of its method may differ in."""
    from mobench.jobs.build import make_job  # torch, which only a table that has to be planned needs

    job = make_job(compose(grid.last([*base, "seeds=[0]", "steps=1"])))
    return Budget.of(per_function, job.algorithm, job.joined.spec), type(job.algorithm).varies


def _key(compose: Compose, overrides: list[str]) -> str:
    """Name of a job's folder."""
    from mobench.jobs.build import make_job

    return make_job(compose(overrides)).key


def _check(table: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ConfigError for what is not there, or is not by the rules of the protocol."""
    boards = table.get("boards")
    if not boards:
        raise ConfigError("cross has no boards: add +experiment=cross/zoo, which has them.")
    for key in table:
        if key not in KEYS:
            raise ConfigError(unknown_key(f"cross.{key}", KEYS))
    if table.get("version") != rows.VERSION:
        raise ConfigError(
            f"cross.version={table.get('version')}, but this code computes rows of version {rows.VERSION} "
            "of the protocol."
        )
    if table.get("replication", 0) not in (0, 1):
        raise ConfigError(
            f"cross.replication={table['replication']} must be 0 or 1: the protocol has one replication."
        )
    ruled = yaml.safe_load((conf_dir() / "experiment" / "cross" / "zoo.yaml").read_text())["cross"]["boards"]
    if boards != ruled:
        raise ConfigError(
            "cross.boards differs from conf/experiment/cross/zoo.yaml. Budgets and problems "
            "are rules of the protocol (docs/protocol.md), and rows under other rules do not belong beside "
            "the kept ones. cross.algorithms, cross.only and cross.ranges can be set."
        )
    wanted = table.get("algorithms", "kept")
    if wanted not in ("all", "kept") and not isinstance(wanted, list | tuple):
        raise ConfigError(
            f"cross.algorithms={forms.shown(wanted)} must be 'kept', 'all' or a list of algorithms."
        )
    for name in [] if isinstance(wanted, str) else wanted:
        choose("cross.algorithms", name, known)
    for name in forms.texts("cross.only", table.get("only") or []):
        choose("cross.only", name, list(boards))
