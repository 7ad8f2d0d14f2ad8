"""A cross table: every algorithm on every problem of a suite. An experiment lists parts instead of jobs:

    cross:
      all: [preferences=10, "seeds=[0,1,2]"]                  # overrides of every pair
      problems: {vlmop2: [problem=vlmop2], zdt1: [problem=zdt1]}
      algorithms: all                                         # every file of the group, a plug-in's too; or
                                                              [ls, epo]
      without: [ferero_public_code]                           # of all
      settings: {psl: [steps=20]}                             # of an algorithm on every problem
      pairs: {bilevel.forum: [oracle=value_gap]}              # of one pair
      step_sizes: [0.03, 0.1, 0.3]                            # all in one batch where the method can
                                                              (vary.step_size)
      suites: [cross/zoo, cross/bilevel]                      # the pairs of other experiments, instead of all
                                                              of these

A command adds to the problems, settings and pairs of its experiment: `+cross.problems.ten=[problem=ten]` is
one problem more, `~cross.problems.zdt1` (or `cross.problems.zdt1=null`) one less.

The job of a pair is called <problem>.<algorithm>. Pairs that do not fit are left out with the reasons that
`join` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mobench.errors import ConfigError, suggest
from mobench.sweep import grid
from mobench.system import forms

KEYS = ("all", "problems", "algorithms", "without", "settings", "pairs", "step_sizes", "suites")
ADDED = ("problems", "settings", "pairs")  # mappings, to which a command adds
NARROWS = ("algorithms", "without", "suites")  # what a table of several suites takes from a command
Load = Callable[[str], Mapping[str, Any]]


def merged(experiment: Mapping[str, Any], command: Mapping[str, Any]) -> dict[str, Any]:
    """The table of an experiment with what a command says: mappings are added to,
    everything else is replaced.
    """
    out = {**experiment, **command}
    for key in ADDED:
        before = _entries(key, experiment.get(key))
        said = _entries(key, command.get(key))
        if before is None or said is None:
            continue
        _known(f"~cross.{key}", [name for name, value in said.items() if value is None], list(before))
        out[key] = {**before, **said}
    return out


def _entries(key: str, node: Any) -> dict[str, Any] | None:
    """A mapping of the table, or None for what is none."""
    if not isinstance(node, Mapping):
        return None
    return _by_pair(node) if key == "pairs" else dict(node)


def _by_pair(node: Mapping[str, Any]) -> dict[str, Any]:
    """`{a.ls: [..]}` of a file, which a command line writes as `{a: {ls: [..]}}`; the command's come last."""
    out: dict[str, Any] = {name: value for name, value in node.items() if not isinstance(value, Mapping)}
    for problem, inner in node.items():
        if isinstance(inner, Mapping):
            out |= {f"{problem}.{name}": value for name, value in inner.items()}
    return out


def pairs(
    node: Mapping[str, Any], algorithms: Sequence[str], target: Callable[[str], str], suite: Load
) -> dict[str, list[str]]:
    """Overrides of every pair, in the order problem by problem.

    algorithms: what the group has; target: the `_target_` of one of them; suite: the `cross` of another
    experiment.

    Raises ConfigError for keys, algorithms or pairs that are not there.
    """
    _known("cross", node, KEYS)
    if node.get("suites"):
        beside = [key for key in node if key not in NARROWS]
        suites = forms.texts("cross.suites", node["suites"])
        if beside:
            raise ConfigError(
                f"cross.{beside[0]} cannot be combined with cross.suites: set it for one suite, e.g. "
                f"+experiment={suites[0]}. Only cross.algorithms and cross.without can be set "
                "for all suites."
            )
        others = {
            name: pairs({**suite(name), **_narrowed(node)}, algorithms, target, suite) for name in suites
        }
        return {name: overrides for found in others.values() for name, overrides in found.items()}
    given = forms.mapping("cross.problems", node.get("problems"))
    problems = {name: chosen for name, chosen in given.items() if chosen is not None}
    if not problems:
        raise ConfigError(
            "cross.problems is empty: give each problem a name and its overrides, e.g. {zdt1: "
            "[problem=zdt1]}."
        )
    without = forms.texts("cross.without", node.get("without") or [])
    _known("cross.without", without, algorithms)
    names = _names(node.get("algorithms", "all"), without, algorithms)
    for name, chosen in problems.items():
        _check_problem(name, chosen)
    settings = _lists("cross.settings", node.get("settings"))
    special = _lists("cross.pairs", _by_pair(forms.mapping("cross.pairs", node.get("pairs"))))
    _known("cross.settings", settings, algorithms)
    # those of a problem that was taken out remain, and nothing asks for them
    _known("cross.pairs", special, [f"{p}.{a}" for p in given for a in algorithms])
    steps = node.get("step_sizes")
    if steps is not None and not (isinstance(steps, list | tuple) and all(map(_is_number, steps))):
        raise ConfigError(f"cross.step_sizes={forms.shown(steps)} must be a list of numbers.")
    tried = f"vary.step_size={list(steps or [])}".replace(" ", "")
    further: dict[str, list[str]] = {}
    for problem in problems:
        for name in names:
            own = [*settings.get(name, []), *special.get(f"{problem}.{name}", [])]
            further[f"{problem}.{name}"] = [tried, *own] if steps and _takes_steps(target(name), own) else own
    chosen_algorithms = {name: [f"algorithm={name}"] for name in names}
    every = grid.overrides("cross.all", node.get("all") or [])
    return grid.product(every, [problems, chosen_algorithms], further, ".")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lists(where: str, node: Any) -> dict[str, list[str]]:
    """A mapping of names to lists of overrides; null stands for none."""
    entries = forms.mapping(where, node)
    return {name: grid.overrides(f"{where}.{name}", entry or []) for name, entry in entries.items()}


def _check_problem(name: str, overrides: Any) -> None:
    """Raise ConfigError unless a problem of the table is a list of overrides that chooses one."""
    if not isinstance(overrides, list | tuple) or not all(isinstance(o, str) for o in overrides):
        raise ConfigError(
            f"cross.problems.{name}={overrides} must be a list of overrides, e.g. "
            f"'+cross.problems.{name}=[problem={name}]'."
        )
    if "." in name:
        raise ConfigError(
            f"cross.problems: {name!r} contains a dot, but jobs are named PROBLEM.ALGORITHM; choose a name "
            "without a dot."
        )
    if overrides and not any(o.startswith(("problem=", "protocol=")) for o in overrides):
        raise ConfigError(
            f"cross.problems.{name}={list(overrides)} does not choose a problem; "
            "start with problem=NAME (or protocol=NAME)."
        )


def _narrowed(node: Mapping[str, Any]) -> dict[str, Any]:
    """What a table of several suites says for all of them."""
    return {key: node[key] for key in ("algorithms", "without") if key in node}


def _names(wanted: Any, without: Sequence[str], algorithms: Sequence[str]) -> list[str]:
    if wanted == "all":
        return [name for name in algorithms if name not in without]
    if not isinstance(wanted, list | tuple):
        raise ConfigError(f"cross.algorithms={forms.shown(wanted)} must be 'all' or a list of algorithms.")
    _known("cross.algorithms", wanted, algorithms)
    return list(wanted)


def _known(where: str, names: Any, known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{where}: {name!r} is unknown; choose from {', '.join(known)}.{suggest(str(name), known)}"
            )


def _takes_steps(target: str, own: Sequence[str]) -> bool:
    """Whether the runs of a batch may have step sizes of their own, and the suite gives none."""
    from mobench.jobs.targets import load_class  # torch, which only a cross table needs to be planned

    varies: frozenset[str] = getattr(load_class(target, "algorithm"), "varies", frozenset())
    return "step_size" in varies and not any(
        o.startswith(("algorithm.step_size=", "vary.step_size=")) for o in own
    )
