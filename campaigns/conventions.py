"""Measures where other libraries define a problem, indicator or method of ours in another way.

    python -m campaigns.conventions --output docs/conventions.md --rows campaigns/conventions.csv

needs, beside mobench, some of the libraries of `LIBRARIES` in an environment of its own. What it measures is
added to the rows, by library and version, so that a new version (or an old one) is one installation and one
command; the page shows the newest version of each library, and since which of those tried it is so.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from packaging.version import Version

from campaigns.libraries import PROBLEMS, STATED, native, values
from mobench.algorithms.aligned_mtl import AlignedMTL
from mobench.algorithms.cagrad import CAGrad
from mobench.algorithms.config_mtl import ConFIG
from mobench.algorithms.dualproj import DualProj
from mobench.algorithms.imtl_g import IMTLG
from mobench.algorithms.mgda import MGDA
from mobench.algorithms.nash_mtl import NashMTL
from mobench.algorithms.upgrad import UPGrad
from mobench.comparison.definitions import compare
from mobench.comparison.measures import Reference
from mobench.core.algorithm import Context, Weighting
from mobench.core.oracle import Spec
from mobench.core.problem import Problem
from mobench.core.sets import Free
from mobench.errors import ConfigError
from mobench.metrics import hypervolume
from mobench.problems.dtlz import DTLZ
from mobench.problems.dtlz2 import DTLZ2
from mobench.problems.uf import UF
from mobench.problems.vlmop2 import VLMOP2
from mobench.problems.zdt import ZDT1, ZDT2, ZDT3

LIBRARIES = (
    "pymoo",
    "botorch",
    "deap",
    "jmetalpy",
    "platypus-opt",
    "inspyred",
    "pymultiobjective",
    "pygmo",
    "moocore",
    "torchjd",  # with qpsolvers and quadprog, its own default
)
ROWS = Path(__file__).with_suffix(".csv")
POINTS = 40

DEFINITIONS: dict[str, tuple[Problem, str]] = {
    "zdt1": (ZDT1(n=30), "Zitzler, Deb & Thiele 2000, T1"),
    "zdt2": (ZDT2(n=30), "Zitzler, Deb & Thiele 2000, T2"),
    "zdt3": (
        ZDT3(n=30),
        "Zitzler, Deb & Thiele 2000, T3, with the factor g in f_2",
    ),
    "dtlz1": (DTLZ(which=1, M=3), "Deb et al. 2002, DTLZ1, g = 100 (k + ...)"),
    "dtlz2": (DTLZ2(M=3), "Deb et al. 2002, DTLZ2"),
    "dtlz3": (DTLZ(which=3, M=3), "Deb et al. 2002, DTLZ3, g = 100 (k + ...)"),
    "dtlz4": (DTLZ(which=4, M=3), "Deb et al. 2002, DTLZ4, x^100 in the angles"),
    "uf1": (UF(which=1, n=30), "Zhang et al. 2009, UF1"),
    "uf2": (UF(which=2, n=30), "Zhang et al. 2009, UF2"),
    "uf3": (UF(which=3, n=30), "Zhang et al. 2009, UF3"),
    "uf4": (UF(which=4, n=30), "Zhang et al. 2009, UF4"),
    "uf7": (UF(which=7, n=30), "Zhang et al. 2009, UF7"),
    "vlmop2": (VLMOP2(n=3), "Van Veldhuizen 1999; Fonseca & Fleming 1995"),
}


def ours(name: str, u: np.ndarray) -> np.ndarray:
    """Returns mobench's values; its UF problems have variables in [0, 1], its VLMOP2 all of R^n."""
    x = native(name, u) if name == "vlmop2" else u
    return DEFINITIONS[name][0].values(torch.from_numpy(x)).numpy()


@dataclass(frozen=True)
class Row:
    """One comparison: its subject, its verdict, and both numbers at the stated point."""

    kind: str
    name: str
    library: str
    version: str
    verdict: str
    ours: str
    theirs: str
    note: str = ""


def numbers(values: Any) -> str:
    """Returns numbers with six digits."""
    return ", ".join(f"{float(v):.6g}" for v in np.atleast_1d(values))


def problem_rows(library: str) -> Iterator[Row]:
    """Compares every problem that a library has, at 40 random points and at the stated one."""
    for name, (problem, _) in DEFINITIONS.items() if library in PROBLEMS else ():
        u = np.full((1, problem.dim), STATED)
        here = numbers(ours(name, u)[0])
        try:
            a, b = values(problem, library, POINTS)
        except ConfigError:  # it has no such problem
            continue
        except Exception as error:  # noqa: BLE001  whatever a library raises is what its users meet
            note = f"it fails with {type(error).__name__}"
            yield Row("problem", name, library, version(library), "fails", here, "", note)
            continue
        comparison = compare(a, b)
        note = ""
        if comparison.kind != "same":
            wrong = np.abs(a - b).max(0) > 1e-6 * np.abs(a).max(0)
            names = ", ".join(f"f_{m + 1}" for m in np.flatnonzero(wrong))
            note = f"differs in {names}; at most {comparison.difference:.3g} of its size"
        yield Row("problem", name, library, version(library), comparison.kind, here, numbers(b[0]), note)


# indicators, of six points below a front of 101

ANGLES = np.linspace(0.05, 0.95, 6)
SET = np.stack([ANGLES, 1.0 - np.sqrt(ANGLES)], axis=1) + np.array([0.03, 0.02])
FRONT = np.stack([np.linspace(0, 1, 101), 1.0 - np.sqrt(np.linspace(0, 1, 101))], axis=1)
REF = np.array([1.1, 1.1])


def defined() -> dict[str, tuple[float, str]]:
    """Returns each indicator's value by its formula, written out here, and the formula."""
    apart = np.linalg.norm(FRONT[:, None] - SET[None], axis=2)
    plus = np.linalg.norm(np.maximum(SET[None] - FRONT[:, None], 0.0), axis=2)
    corners = np.append(SET[1:, 0], REF[0])
    area = float(((corners - SET[:, 0]) * (REF[1] - SET[:, 1])).sum())
    return {
        "hypervolume": (area, "area between the points and (1.1, 1.1)"),
        "igd": (float(apart.min(1).mean()), "mean over the front of the distance to the nearest point"),
        "gd": (float(apart.min(0).mean()), "mean over the points of the distance to the front's nearest"),
        "igd_plus": (
            float(plus.min(1).mean()),
            "mean over the front of |max(f - z, 0)| (Ishibuchi 2015)",
        ),
        "epsilon": (
            float((SET[None] - FRONT[:, None]).max(2).min(1).max()),
            "max over the front of min over the points of max_m (f_m - z_m) (Zitzler et al. 2003)",
        ),
    }


def _jmetal_indicators() -> dict[str, Callable[[], float]]:
    q: Any = import_module("jmetal.core.quality_indicator")

    names = {
        "igd": "InvertedGenerationalDistance",
        "gd": "GenerationalDistance",
        "igd_plus": "InvertedGenerationalDistancePlus",
        "epsilon": "AdditiveEpsilonIndicator",
    }
    volume: Callable[[], float] = lambda: q.HyperVolume(list(REF)).compute(SET.copy())  # noqa: E731
    return {"hypervolume": volume} | {
        name: partial(getattr(q, cls)(FRONT).compute, SET)
        for name, cls in names.items()
        if hasattr(q, cls)  # 1.6 has no IGD+
    }


def _platypus_indicators() -> dict[str, Callable[[], float]]:
    library: Any = import_module("platypus")

    problem = library.Problem(1, 2)

    def solutions(F: np.ndarray) -> list[Any]:
        out = []
        for f in F:
            solution = library.Solution(problem)
            solution.objectives[:] = list(map(float, f))
            solution.evaluated = True
            solution.feasible = True
            solution.constraint_violation = 0.0
            out.append(solution)
        return out

    front = solutions(FRONT)
    box = library.Hypervolume(minimum=[0, 0], maximum=list(REF))
    return {
        "hypervolume": lambda: float(REF.prod()) * box.calculate(solutions(SET)),
        "igd": lambda: library.InvertedGenerationalDistance(front).calculate(solutions(SET)),
        "gd": lambda: library.GenerationalDistance(front).calculate(solutions(SET)),
        "epsilon": lambda: library.EpsilonIndicator(front).calculate(solutions(SET)),
    }


def indicators(library: str) -> dict[str, Callable[[], float]]:
    """Returns a library's indicators of SET."""
    if library == "pymoo":
        GD: Any = import_module("pymoo.indicators.gd").GD
        HV: Any = import_module("pymoo.indicators.hv").HV
        IGD: Any = import_module("pymoo.indicators.igd").IGD
        IGDPlus: Any = import_module("pymoo.indicators.igd_plus").IGDPlus

        return {
            "hypervolume": lambda: HV(ref_point=REF)(SET),
            "igd": lambda: IGD(FRONT)(SET),
            "gd": lambda: GD(FRONT)(SET),
            "igd_plus": lambda: IGDPlus(FRONT)(SET),
        }
    if library == "moocore":
        moocore: Any = import_module("moocore")
        return {
            "hypervolume": lambda: moocore.hypervolume(SET, ref=REF),
            "igd": lambda: moocore.igd(SET, ref=FRONT),
            "igd_plus": lambda: moocore.igd_plus(SET, ref=FRONT),
            "epsilon": lambda: moocore.epsilon_additive(SET, ref=FRONT),
        }
    if library == "botorch":
        Hypervolume: Any = import_module("botorch.utils.multi_objective.hypervolume").Hypervolume

        box = Hypervolume(ref_point=-torch.from_numpy(REF))
        return {"hypervolume": lambda: box.compute(-torch.from_numpy(SET))}
    if library == "pygmo":
        gmo: Any = import_module("pygmo")

        return {"hypervolume": lambda: gmo.hypervolume(SET).compute(REF)}
    if library == "deap":
        tools: Any = import_module("deap.benchmarks.tools")

        return {"igd": lambda: tools.igd(SET, FRONT)}
    if library == "jmetalpy":
        return _jmetal_indicators()
    if library == "platypus-opt":
        return _platypus_indicators()
    if library == "mobench":
        unit = Reference(FRONT)
        return {
            "hypervolume": lambda: hypervolume(SET, REF.tolist()),
            "igd_plus": lambda: unit.igd_plus(SET),
            "epsilon": lambda: unit.epsilon(SET),
        }
    return {}


def indicator_rows(library: str) -> Iterator[Row]:
    """Compares a library's indicators with the formulas."""
    definitions = defined()
    for name, compute in indicators(library).items():
        value = float(np.mean(compute()))
        kind = "same" if math.isclose(value, definitions[name][0], rel_tol=1e-9) else "another"
        yield Row(
            "indicator", name, library, version(library), kind, numbers(definitions[name][0]), numbers(value)
        )


# methods: the direction of three gradients in R^4, at their size and at a millionth of it

J = np.array([[1.0, 0.5, -0.2, 0.0], [-0.6, 0.8, 0.3, 0.1], [0.2, -0.9, 0.7, 0.4]])
SIZES = (1.0, 1e-6)
METHODS: dict[str, tuple[Weighting, str, dict[str, Any]]] = {
    "upgrad": (UPGrad(), "UPGrad", {}),
    "dualproj": (DualProj(), "DualProj", {}),
    "mgda": (MGDA(), "MGDA", {}),
    "cagrad": (CAGrad(c=0.5), "CAGrad", {"c": 0.5}),
    "imtl_g": (IMTLG(), "IMTLG", {}),
    "config": (ConFIG(), "ConFIG", {}),
    "aligned_mtl": (AlignedMTL(), "AlignedMTL", {}),
    "nash_mtl": (NashMTL(), "NashMTL", {"n_tasks": 3}),
}


def direction(method: Weighting, jacobian: np.ndarray) -> np.ndarray:
    """Returns J'w of one run with equal preferences."""
    rows = torch.from_numpy(jacobian).unsqueeze(0)
    _, M, P = rows.shape
    prefs = torch.full((1, M), 1.0 / M, dtype=torch.float64)
    spec = Spec(R=1, M=M, N=0, P=P, X=Free(), provides=frozenset({"jacobian"}))
    theta = torch.zeros(1, P, dtype=torch.float64)
    state = method.init(
        Context(spec, prefs, prefs, theta, lambda x: x, 10, None, torch.zeros(1, dtype=torch.int64))
    )
    w, _, _ = method.weights(torch.ones(1, M, dtype=torch.float64), rows @ rows.mT, state, 0)
    return (w.unsqueeze(1) @ rows)[0, 0].numpy()


def method_rows(library: str) -> Iterator[Row]:
    """Compares directions with TorchJD's, each relative to the size of the gradients."""
    if library != "torchjd":
        return
    theirs: Any = import_module("torchjd.aggregation")

    for label, (method, name, options) in METHODS.items():
        for size in SIZES:
            a = direction(method, size * J)
            b = getattr(theirs, name)(**options)(torch.from_numpy(size * J)).numpy()
            gap = float(np.abs(a - b).max() / np.abs(a).max())
            kind = "same" if gap < 1e-6 else "another"
            note = f"largest difference {gap:.1e} of the direction"
            about = f"{label}, gradients times {size:g}"
            yield Row("method", about, library, version(library), kind, numbers(a), numbers(b), note)


def installed(library: str) -> bool:
    """Tells whether a library is here."""
    try:
        version(library)
    except PackageNotFoundError:
        return False
    return True


def measured() -> pd.DataFrame:
    """Returns the rows of all libraries that are installed."""
    rows: list[Row] = []
    for library in (*LIBRARIES, "mobench"):
        if not installed(library):
            continue
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            for measure in (problem_rows, indicator_rows, method_rows):
                rows += measure(library)
    return pd.DataFrame([vars(row) for row in rows])


KEY = ["kind", "name", "library", "version"]
CAUSES = {
    ("zdt3", "botorch"): "f_2 is h, without the factor g",
    ("dtlz4", "botorch"): "it is DTLZ2: the power 100 is not used",
    ("uf1", "jmetalpy"): "the sum over even j leaves out j = 2",
    (
        "uf2",
        "jmetalpy",
    ): "the sum over even j leaves out j = 2; odd j have a sine instead of a cosine",
    ("uf3", "jmetalpy"): "the sum over even j leaves out j = 2; the exponents are shifted by one",
    ("uf7", "jmetalpy"): "the sum over even j leaves out j = 2; other divisors",
    ("igd", "jmetalpy"): "sqrt(sum of squared distances) / n",
    ("gd", "platypus-opt"): "sqrt(sum of squared distances) / n",
    **{
        (
            f"dtlz{k}",
            "pymultiobjective",
        ): "products run beyond the first M - 1 variables"
        for k in (1, 2, 3, 4)
    },
    ("upgrad, gradients times 1", "torchjd"): "1e-4 is added to the diagonal of the normalised Gram matrix",
    ("upgrad, gradients times 1e-06", "torchjd"): "below `norm_eps` it is the mean of the gradients",
    ("mgda, gradients times 1", "torchjd"): "Frank and Wolfe's iteration stops before the optimum",
    ("mgda, gradients times 1e-06", "torchjd"): "Frank and Wolfe's iteration stops before the optimum",
    ("cagrad, gradients times 1e-06", "torchjd"): "below `norm_eps` it is 0",
    (
        "nash_mtl, gradients times 1e-06",
        "torchjd",
    ): "it is the sum of the gradients",
}
INTRO = """# Where libraries differ

Written by `python -m campaigns.conventions` from `campaigns/conventions.csv`, which it measured. A problem,
an indicator or a method of one name is not the same everywhere; what is meant here stands in the second
column. Two definitions agree if their values do, up to 1e-6 of their extent, at {points} random points
(methods: for three fixed gradients). A difference is shown by both numbers at one point, all variables at
{stated} of their ranges. "Since" is the oldest tried version that differs; libraries that agree are in
the last column. mobench's own definitions are tested against the formulas (`tests/test_conventions.py`).

`mobench check-problem NAME FILE` compares objective values of your own with mobench's definition
([Problems](usage.md)).
"""
SECTIONS = {
    "problem": (
        "Problems",
        "Numbers are f_1, f_2, ... at the stated point.",
    ),
    "indicator": (
        "Indicators",
        "Six points, 101 points of the front f_2 = 1 - sqrt(f_1), reference point (1.1, 1.1), no units. "
        "mobench has hypervolume, IGD+ and additive epsilon; IGD and GD show what libraries mean by them.",
    ),
    "method": (
        "Methods",
        "The direction of three gradients in R^4 with equal preferences, at their size and at a millionth of "
        "it. mobench solves each definition to 1e-9 at both.",
    ),
}


def definition(kind: str, name: str) -> str:
    """Returns what a name means here."""
    if kind == "problem":
        return DEFINITIONS[name][1]
    return defined()[name][1] if kind == "indicator" else "docs/methods.md"


def page(rows: pd.DataFrame) -> str:
    """Returns docs/conventions.md."""
    parts = [INTRO.format(points=POINTS, stated=STATED)]
    newest = {str(library): max(part["version"], key=Version) for library, part in rows.groupby("library")}
    tried = ", ".join(f"{library} {newest[library]}" for library in sorted(newest) if library != "mobench")
    parts.append(f"Libraries: {tried}.\n")
    for kind, (title, words) in SECTIONS.items():
        parts.append(f"## {title}\n\n{words}\n")
        parts += ["| name | here | differs | since | how | mobench | library | agree |", "|---" * 8 + "|"]
        for name, group in rows[rows["kind"] == kind].groupby("name", sort=False):
            now = group[group["version"] == group["library"].map(newest)]
            agree = ", ".join(sorted(set(now[now["verdict"] == "same"]["library"]) - {"mobench"}))
            others = now[now["verdict"] != "same"]
            here = definition(kind, str(name)).replace("|", "\\|")
            if others.empty:
                parts.append(f"| {name} | {here} |  |  |  |  |  | {agree} |")
            for _, row in others.iterrows():
                first = oldest_like(group[group["library"] == row["library"]])
                how = CAUSES.get((str(name), row["library"]), "")
                how = f"{how}; {row['note']}" if row["note"] and how else how or row["note"]
                cells = (
                    name,
                    here,
                    f"{row['library']} {row['version']}",
                    first,
                    how,
                    row["ours"],
                    row["theirs"],
                    agree,
                )
                parts.append("| " + " | ".join(map(str, cells)) + " |")
                here = agree = ""
        parts.append("")
    return "\n".join(parts)


def oldest_like(rows: pd.DataFrame) -> str:
    """Returns the oldest tried version from which on the verdict was that of the newest."""
    ordered = rows.sort_values("version", key=lambda column: column.map(Version), ascending=False)
    first = ordered["version"].iloc[0]
    for _, row in ordered.iterrows():
        if row["verdict"] != ordered["verdict"].iloc[0]:
            break
        first = row["version"]
    return str(first)


def main() -> None:
    """Measures what is installed, adds it to the rows and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--draw", action="store_true", help="write the page from the rows, without measuring")
    options = parser.parse_args()
    earlier = (
        pd.read_csv(options.rows, dtype=str, keep_default_na=False)
        if options.rows.exists()
        else pd.DataFrame()
    )
    new = pd.DataFrame() if options.draw else measured()
    rows = pd.concat([earlier, new], ignore_index=True).drop_duplicates(KEY, keep="last")
    rows.to_csv(options.rows, index=False)
    options.output.write_text(page(rows))


if __name__ == "__main__":
    main()
