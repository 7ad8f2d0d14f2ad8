"""mobench's definitions against their formulas, and the comparison of somebody else's values with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from campaigns import conventions, libraries
from mobench.cli import check_problem
from mobench.comparison.definitions import check_file, check_values, compare
from mobench.errors import ConfigError
from mobench.problems.zdt import ZDT3
from tests.conftest import REPOSITORY

Array = np.ndarray


def zdt(k: int, x: Array) -> Array:
    g = 1 + 9 * x[:, 1:].mean(1)
    f = x[:, 0]
    h = 1 - (f / g) ** 2 if k == 2 else 1 - np.sqrt(f / g)
    return np.stack([f, g * (h - (f / g * np.sin(10 * np.pi * f) if k == 3 else 0))], 1)


def dtlz(k: int, x: Array, M: int = 3) -> Array:
    t = x[:, M - 1 :] - 0.5
    g = (t**2).sum(1)
    if k in (1, 3):
        g = 100 * (t.shape[1] + (t**2 - np.cos(20 * np.pi * t)).sum(1))
    a = x[:, : M - 1] ** (100 if k == 4 else 1)
    out = []
    for m in range(M):
        f = 1 + g
        for i in range(M - 1 - m):
            f = f * (a[:, i] if k == 1 else np.cos(np.pi / 2 * a[:, i]))
        if m:
            f = f * (1 - a[:, M - 1 - m] if k == 1 else np.sin(np.pi / 2 * a[:, M - 1 - m]))
        out.append(f * (0.5 if k == 1 else 1))
    return np.stack(out, 1)


def uf(k: int, x: Array) -> Array:
    n = x.shape[1]
    one = x[:, 0]
    sums: list[list[Array]] = [[], []]  # of odd j, of even j
    for j in range(2, n + 1):
        wave = 6 * np.pi * one + j * np.pi / n
        if k == 3:
            y = x[:, j - 1] - one ** (0.5 * (1 + 3 * (j - 2) / (n - 2)))
        elif k == 2:
            size = 0.3 * one**2 * np.cos(24 * np.pi * one + 4 * j * np.pi / n) + 0.6 * one
            y = x[:, j - 1] - size * (np.cos(wave) if j % 2 else np.sin(wave))
        else:
            y = x[:, j - 1] - np.sin(wave)
        sums[1 - j % 2].append(np.abs(y) / (1 + np.exp(2 * np.abs(y))) if k == 4 else y)
    out = []
    for odd, part in enumerate((sums[0], sums[1])):
        y = np.stack(part, 1)
        if k == 3:
            index = np.arange(3 if odd == 0 else 2, n + 1, 2)
            total = 4 * (y**2).sum(1) - 2 * np.cos(20 * y * np.pi / np.sqrt(index)).prod(1) + 2
        else:
            total = y.sum(1) if k == 4 else (y**2).sum(1)
        out.append(2 / y.shape[1] * total)
    if k == 7:
        return np.stack([one**0.2 + out[0], 1 - one**0.2 + out[1]], 1)
    return np.stack([one + out[0], 1 - (one**2 if k == 4 else np.sqrt(one)) + out[1]], 1)


def vlmop2(x: Array) -> Array:
    shift = 1 / np.sqrt(x.shape[1])
    return np.stack([1 - np.exp(-((x - shift) ** 2).sum(1)), 1 - np.exp(-((x + shift) ** 2).sum(1))], 1)


@pytest.mark.parametrize("name", conventions.DEFINITIONS)
def test_values_are_those_of_the_formula(name: str) -> None:
    u = np.random.default_rng(1).uniform(0.0, 1.0, (200, conventions.DEFINITIONS[name][0].dim))
    x = conventions.native(name, u)
    expected = vlmop2(x) if name == "vlmop2" else globals()[name.rstrip("0123456789")](int(name[-1]), x)
    np.testing.assert_allclose(conventions.ours(name, u), expected, rtol=1e-9, atol=1e-12)


def test_the_page_is_that_of_the_rows_and_the_rows_are_of_these_definitions() -> None:
    rows = pd.read_csv(conventions.ROWS, dtype=str, keep_default_na=False)
    assert (REPOSITORY / "docs/conventions.md").read_text() == conventions.page(rows)
    assert rows["library"].nunique() > 8
    for name in conventions.DEFINITIONS:
        u = np.full((1, conventions.DEFINITIONS[name][0].dim), conventions.STATED)
        assert set(rows[rows["name"] == name]["ours"]) == {conventions.numbers(conventions.ours(name, u)[0])}
    for name, (value, _) in conventions.defined().items():
        assert set(rows[rows["name"] == name]["ours"]) == {conventions.numbers(value)}


def test_causes_explain_the_numbers_of_distances() -> None:
    rows = pd.read_csv(conventions.ROWS, dtype=str, keep_default_na=False)
    apart = np.linalg.norm(conventions.FRONT[:, None] - conventions.SET[None], axis=2)
    for name, library, d in (("igd", "jmetalpy", apart.min(1)), ("gd", "platypus-opt", apart.min(0))):
        mine = rows[(rows["name"] == name) & (rows["library"] == library) & (rows["verdict"] == "another")]
        assert set(mine["theirs"]) == {conventions.numbers(np.sqrt((d**2).sum()) / len(d))}


@pytest.fixture
def points() -> tuple[ZDT3, Array, Array]:
    problem = ZDT3(n=4)
    x = np.random.default_rng(0).uniform(0.05, 1, (12, 4))
    return problem, x, zdt(3, x)


def test_kinds(points: tuple[ZDT3, Array, Array]) -> None:
    problem, x, F = points
    assert check_values(problem, x, F * (1 + 1e-8)).kind == "same"
    comparison = check_values(problem, x, F * [2.0, 0.5] + [1.0, -3.0])
    assert comparison.kind == "affine"
    np.testing.assert_allclose(
        np.stack([comparison.factor, comparison.shift]), np.array([[2, 0.5], [1, -3]]), rtol=1e-9
    )
    assert "f_1' = 2 f_1 + 1, f_2' = 0.5 f_2 - 3" in str(comparison)
    g = 1 + 9 * x[:, 1:].mean(1)
    for other in (np.stack([F[:, 0], F[:, 1] / g], 1), -F, F**2, F[:, ::-1]):
        comparison = check_values(problem, x, other)
        assert comparison.kind == "another"
        assert "another problem: f_" in str(comparison)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, F: (x[:, :3], F), "3 variables, but zdt3 has 4"),
        (lambda x, F: (x + 2.0, F), "outside of zdt3's box"),
        (lambda x, F: (x, F[:, :1]), "1 objectives at 12 points; expected 2"),
        (lambda x, F: (x[:2], F[:2]), "2 points decide nothing"),
        (lambda x, F: (x, np.where(F > 0.5, np.nan, F)), "not finite"),
    ],
)
def test_values_that_cannot_be_compared(
    points: tuple[ZDT3, Array, Array], change: Callable[[Array, Array], tuple[Array, Array]], message: str
) -> None:
    problem, x, F = points
    with pytest.raises(ConfigError, match=message):
        check_values(problem, *change(x, F))


def test_files(points: tuple[ZDT3, Array, Array], tmp_path: Path) -> None:
    problem, x, F = points
    table = pd.DataFrame(np.hstack([x, F]), columns=[*(f"x_{k}" for k in range(1, 5)), "f_1", "f_2"])
    table.to_csv(tmp_path / "rows.csv", index=False)
    assert check_file(problem, tmp_path / "rows.csv").kind == "same"
    table.drop(columns="x_3").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(ConfigError, match="has no column x_3; expected x_1 to x_4"):
        check_file(problem, tmp_path / "less.csv")


def test_an_offset_hides_no_difference() -> None:
    """Differences are judged by the extent of an objective, however large its values are."""
    f = np.linspace(0.0, 1.0, 9)[:, None]
    assert compare(f + 1e6, f**2 + 1e6).kind == "another"
    assert compare(f, f**2 + 1e9).kind == "another"
    assert compare(f + 1e6, f + 1e6).kind == "same"
    assert compare(f, 3.0 * f + 1e6).kind == "affine"


def test_a_constant_objective_is_no_affine_map() -> None:
    F = np.stack([np.arange(5.0), np.ones(5)], 1)
    assert compare(F, np.add(F, [0.0, 1.0])).kind == "another"


def test_the_command(
    points: tuple[ZDT3, Array, Array], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, x, F = points
    names = [*(f"x_{k}" for k in range(1, 5)), "f_1", "f_2"]
    for name, values in (("same", F), ("another", F**2)):
        pd.DataFrame(np.hstack([x, values]), columns=names).to_csv(tmp_path / f"{name}.csv", index=False)
    assert check_problem.main(["zdt3", str(tmp_path / "same.csv"), "problem.n=4"]) == 0
    assert "the same problem" in capsys.readouterr().out
    assert check_problem.main(["zdt3", str(tmp_path / "another.csv"), "problem.n=4"]) == 1
    assert "another problem" in capsys.readouterr().out
    assert check_problem.main(["zdt3", "same.csw"]) == 2
    assert "no file same.csw; give a CSV file with columns x_1 to" in capsys.readouterr().err


def test_a_library_that_is_here() -> None:
    pytest.importorskip("pymoo")
    for name in ("zdt1", "zdt2", "zdt3", "dtlz1", "dtlz3", "dtlz4"):
        assert compare(*libraries.values(conventions.DEFINITIONS[name][0], "pymoo")).kind == "same"
