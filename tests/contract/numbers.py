"""Numbers of every name of conf as its `version` gives them: `python -m tests.contract.numbers [--update]`.

Whoever changes a result raises `version`, because jobs with the old results must not be taken for new ones.
So a number that changes under the same version is a fault. A name that is not in numbers.json yet is not
judged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mobench.algorithms.ls import LS
from mobench.core import Oracle, Runs, loop
from mobench.oracles.exact import has_gradient, make_point, problem_spec
from tests.contract import cases, layers
from tests.contract.cases import SETTINGS

FILE = Path(__file__).with_name("numbers.json")
STEPS = 5
UPDATE = "python -m tests.contract.numbers --update"
Numbers = dict[str, list[float]]


def _listed(x: Tensor) -> list[float]:
    return [float(f"{value:.10g}") for value in x.double().flatten().tolist()]


def of_algorithm(method: str) -> Numbers:
    """The last iterate of two runs in each setting; populations of other packages give theirs."""
    algorithm = cases.algorithm_of(method)
    if getattr(algorithm, "packages", ()):
        return {}
    numbers = {}
    for name in cases.settings_of(method):
        setting = SETTINGS[name]
        runs = setting.runs(3, 1)
        numbers[name] = _listed(
            cases.path(algorithm, setting.of(runs), runs, STEPS, outputs=("last",))[1][:2, -1]
        )
    return numbers


def of_problem(name: str) -> Numbers:
    """Values and slopes in one direction beside the start."""
    problem = cases.small_problem(name)
    runs = cases.few_runs(problem)
    problem = problem.bind(runs)
    start = problem.initial(runs)
    entry = {"start": _listed(start[:2, :4])}
    if has_gradient(problem):
        x = cases.beside(problem.X, start)
        point = make_point(problem, x, problem_spec(problem, len(x), samples=1))
        entry |= {"values": _listed(point.values()[:2]), "slopes": _listed(point.jvp(cases.direction(x))[:2])}
    return entry


def of_oracle(name: str) -> Numbers:
    """Values and iterates of linear scalarization, with one problem of each class."""
    numbers = {}
    for problem in cases.different_problems():
        small = cases.small_problem(problem)
        runs = cases.few_runs(small)
        try:
            oracle = cases.oracle_of(name, small, runs)
        except cases.MobenchError:
            continue
        numbers[problem] = _walked(oracle, runs)
    return dict(list(numbers.items())[:: max(1, len(numbers) // 3)])


def of_layer(layer: str, name: str) -> Numbers:
    """The same around an oracle."""
    numbers = {}
    for problem in layers.problems_of(layer, name):
        numbers[problem] = _walked(
            layers.made(layer, name, problem), cases.few_runs(cases.small_problem(problem))
        )
    return numbers


def _walked(oracle: Oracle, runs: Runs) -> list[float]:
    """Values in each of three steps of a run, and two entries of where it ends."""
    theta = cases.beside(oracle.spec.X, oracle.initial(runs))
    seen: list[Tensor] = []
    if oracle.spec.provides:
        algorithm = LS(step_size=0.01)
        state = loop.first_state(oracle, algorithm, {}, theta, runs, 3)
        state = loop.advance(oracle, algorithm, {}, state, 3, lambda t, s, p: seen.append(p.values()[1]))
        seen.append(state["theta"][1, :2])
    seen.append(oracle.exact(theta)[1])
    return _listed(torch.cat(seen))


def names() -> Iterator[tuple[str, str]]:
    """Group and name of all that has numbers."""
    yield from (("algorithm", method) for method in cases.methods())
    yield from (("problem", name) for name in cases.different_problems())
    yield from (("oracle", name) for name in cases.ORACLES)
    yield from cases.LAYERS


def of(group: str, name: str) -> dict[str, Any]:
    """The version of a class and its numbers now."""
    cls = cases.class_of(group, name.partition(":")[0])
    makers = {"algorithm": of_algorithm, "problem": of_problem, "oracle": of_oracle}
    numbers = makers[group](name) if group in makers else of_layer(group, name)
    return {"version": cls.version, **numbers}


def stored() -> dict[str, dict[str, dict[str, Any]]]:
    read: dict[str, dict[str, dict[str, Any]]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return read


def main() -> None:
    """Writes numbers of new names and new versions; with --update all."""
    recorded = {} if "--update" in sys.argv else stored()
    numbers: dict[str, dict[str, Any]] = {}
    for group, name in names():
        before = recorded.get(group, {}).get(name)
        cls = cases.class_of(group, name.partition(":")[0])
        same = before is not None and before["version"] == cls.version
        numbers.setdefault(group, {})[name] = before if same else of(group, name)
    lines = [
        f'"{group}": {{\n'
        + ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in entries.items())
        + "\n}"
        for group, entries in numbers.items()
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
