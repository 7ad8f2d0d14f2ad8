"""Problems of other libraries as functions of points, for the comparison with ours (docs/conventions.md).

An adapter returns the values (k, M) of points (k, n) in the variables of the definition, or None where its
library has no such problem. None of the libraries is needed by mobench.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from mobench.core.problem import Problem
from mobench.errors import ConfigError
from mobench.problems.uf import REACH

Map = Callable[[np.ndarray], np.ndarray]
STATED = 0.3  # every variable of the first point, in its range


def native(name: str, u: np.ndarray) -> np.ndarray:
    """Returns the variables of the definition for points u of [0, 1]^n."""
    if name == "vlmop2":
        return 8.0 * u - 4.0  # the box of Fonseca and Fleming
    if name in ("uf1", "uf2", "uf4", "uf7"):
        reach = REACH[int(name[2])]
        return np.concatenate([u[:, :1], reach * (2.0 * u[:, 1:] - 1.0)], axis=1)
    return u


def by_rows(objectives: Callable[[list[float]], list[float]]) -> Map:
    """Returns the map of points of a library that evaluates one at a time."""
    return lambda x: np.array([objectives(list(map(float, row))) for row in x])


def pymoo(name: str, n: int, M: int) -> Map | None:
    get_problem: Any = import_module("pymoo.problems").get_problem

    if name[:3] == "zdt":
        problem = get_problem(name, n_var=n)
    elif name[:4] == "dtlz":
        problem = get_problem(name, n_var=n, n_obj=M)
    else:
        return None
    return lambda x: problem.evaluate(x, return_values_of=["F"])


def botorch(name: str, n: int, M: int) -> Map | None:
    multi_objective: Any = import_module("botorch.test_functions.multi_objective")

    cls = getattr(multi_objective, name.upper(), None)
    if cls is None:
        return None
    problem = cls(dim=n, num_objectives=M)
    return lambda x: problem(torch.from_numpy(x)).numpy()


def deap(name: str, n: int, M: int) -> Map | None:
    benchmarks: Any = import_module("deap.benchmarks")

    fn = getattr(benchmarks, "fonseca" if name == "vlmop2" else name, None)
    if fn is None:
        return None
    more = (M, 100) if name == "dtlz4" else (M,) if name[:4] == "dtlz" else ()
    return lambda x: np.array([fn(list(row), *more) for row in x])


def jmetalpy(name: str, n: int, M: int) -> Map | None:
    FloatSolution: Any = import_module("jmetal.core.solution").FloatSolution

    if name == "vlmop2":
        cls: Any = import_module("jmetal.problem").Fonseca
    elif name[:-1] in ("zdt", "dtlz", "uf"):
        cls = getattr(import_module(f"jmetal.problem.multiobjective.{name[:-1]}"), name.upper(), None)
    else:
        cls = None
    if cls is None:
        return None
    problem = cls(n, M) if name[:4] == "dtlz" else cls() if name == "vlmop2" else cls(n)

    def objectives(row: list[float]) -> list[float]:
        solution = FloatSolution(problem.lower_bound, problem.upper_bound, M, 0)
        solution.variables = row
        problem.evaluate(solution)
        return list(solution.objectives)

    return by_rows(objectives)


def platypus(name: str, n: int, M: int) -> Map | None:
    library: Any = import_module("platypus")

    cls = getattr(library, name.upper(), None)
    if cls is None:
        return None
    if name[:4] == "dtlz":
        problem = cls(M)
    elif name[:2] == "uf":
        problem = cls(n)
    else:
        problem = cls()
    if problem.nvars != n:
        return None

    def objectives(row: list[float]) -> list[float]:
        solution = library.Solution(problem)
        solution.variables[:] = row
        solution.evaluate()
        return list(solution.objectives)

    return by_rows(objectives)


def inspyred(name: str, n: int, M: int) -> Map | None:
    benchmarks: Any = import_module("inspyred.benchmarks")

    cls = getattr(benchmarks, name.upper(), None)
    if cls is None:
        return None
    problem = cls(dimensions=n, objectives=M)
    return lambda x: np.array([list(f) for f in problem.evaluator([list(row) for row in x], {})])


def pymultiobjective(name: str, n: int, M: int) -> Map | None:
    library: Any = import_module("pyMultiobjective.test_functions")

    prefix = "fonseca_fleming" if name == "vlmop2" else f"{name[:-1].upper()}_{name[-1]}"
    functions = [getattr(library, f"{prefix}_f{m + 1}", None) for m in range(M)]
    if functions[0] is None:
        return None
    return lambda x: np.array([[float(np.squeeze(f(list(row)))) for f in functions if f] for row in x])


def pygmo(name: str, n: int, M: int) -> Map | None:
    library: Any = import_module("pygmo")

    if name[:3] == "zdt":
        problem = library.problem(library.zdt(int(name[3]), n))
    elif name[:4] == "dtlz":
        problem = library.problem(library.dtlz(int(name[4]), n, M, 100))
    elif name[:2] == "uf":
        problem = library.problem(library.cec2009(int(name[2:]), False, n))
    else:
        return None
    return lambda x: np.array([problem.fitness(row) for row in x])


PROBLEMS: dict[str, Callable[[str, int, int], Map | None]] = {
    "pymoo": pymoo,
    "botorch": botorch,
    "deap": deap,
    "jmetalpy": jmetalpy,
    "platypus-opt": platypus,
    "inspyred": inspyred,
    "pymultiobjective": pymultiobjective,
    "pygmo": pygmo,
}


def values(problem: Problem, library: str, points: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Returns our values and a library's at random points, the first with every variable at 0.3 of its range.

    Raises:
        ConfigError: the library is not installed, or has no such problem of this size.
    """
    name = problem.name
    u = np.random.default_rng(0).uniform(0.05, 0.95, (points, problem.dim))
    u[0] = STATED
    try:
        theirs = PROBLEMS[library](name, problem.dim, problem.n_objectives)
    except ImportError as error:
        raise ConfigError(f"{library} cannot be imported ({error}); install it beside mobench.") from error
    if theirs is None:
        raise ConfigError(
            f"{library} has no {name} of {problem.dim} variables and {problem.n_objectives} objectives that "
            "mobench knows of. Write points and values into a CSV file instead."
        )
    x = native(name, u)
    ours = problem.values(torch.from_numpy(x if name == "vlmop2" else u)).numpy()
    return ours, theirs(x)
