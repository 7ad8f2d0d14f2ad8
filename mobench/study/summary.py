"""Rows in a table: means over seeds with their intervals, and how many runs were lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mobench.artifacts.rows import RunCount
from mobench.artifacts.statistics import LEVEL, Mean
from mobench.artifacts.tables import latex, markdown, spread
from mobench.errors import ConfigError, suggest
from mobench.jobs import store
from mobench.study.rows import in_words

if TYPE_CHECKING:
    import pandas as pd

    from mobench.metrics import Volume

DEFAULT_GROUPS = ("problem", "algorithm")


@dataclass(frozen=True)
class Summary:
    """A table of groups of runs.

    Attributes:
        frame: a row for each group: its keys, `runs` ("7 of 9" finished), and for each column its mean, and
            the ends of the interval as "<column> low" and "<column> high" (NaN of a single seed).
        by: the columns that name the groups. columns: those that are averaged.
        signs: by column, 1 if its smallest mean is best and -1 if its largest is; others have no best one.
        notes: remarks that qualify the numbers.
        partial: by row and column, how many runs a number rests on where finished runs have values that are
            not finite; such a number is never bold.
    """

    frame: pd.DataFrame
    by: tuple[str, ...]
    columns: tuple[str, ...]
    signs: dict[str, int]
    notes: tuple[str, ...]
    partial: dict[tuple[int, str], RunCount] = field(default_factory=dict)

    def _cells(self) -> tuple[pd.DataFrame, set[tuple[int, str]]]:
        """Returns the texts of the cells, and which of them are bold."""
        texts = self.frame[[*self.by, "runs"]].map(in_words)
        whole = [count.finished == count.planned for count in self.frame["runs"]]
        bold = set()
        problems = self.frame["problem"].to_numpy() if "problem" in self.by else np.zeros(len(texts))
        for name in self.columns:
            means = self.frame[name].to_numpy(dtype=float)
            half = (self.frame[f"{name} high"] - self.frame[name]).to_numpy(dtype=float)
            cells = [self.partial.get((i, name)) for i in range(len(texts))]
            short = [cell.short if cell else "" for cell in cells]
            texts[name] = [spread(m, h) + n for m, h, n in zip(means, half, short, strict=True)]
            full = np.array([n == "" for n in short]) & whole & np.isfinite(means)
            compared = np.where(full, self.signs.get(name, 0) * means, np.inf)
            for problem in set(problems) if name in self.signs else ():  # each has units of its own
                inside = np.where(problems == problem, compared, np.inf)
                if np.isfinite(inside).sum() > 1:
                    bold |= {(int(row), name) for row in np.flatnonzero(inside == inside.min())}
        return texts, bold

    def markdown(self) -> str:
        """The table as Markdown, with its notes."""
        return markdown(*self._cells()) + "".join(f"\n{note}\n" for note in self.notes)

    def latex(self) -> str:
        """The table as LaTeX (booktabs, array), with its notes as comments."""
        return "".join(f"% {note}\n" for note in self.notes) + latex(*self._cells())

    def __str__(self) -> str:
        """The table as Markdown; notebooks show it as a table."""
        return self.markdown()

    _repr_markdown_ = markdown


def table(
    rows: pd.DataFrame,
    by: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    *,
    largest: Collection[str] = (),
    reference: Sequence[float] | None = None,
) -> Summary:
    """Summarises rows: for each group the mean over seeds with Student's 95 % interval, and its lost runs.

        print(mobench.table(rows, by="algorithm"))
        mobench.table(rows, by="algorithm", columns=["f_1", "accuracy"], largest=["accuracy"]).latex()

    A seed's value is the mean of its finished runs in the group, so preferences are averaged first, unless
    they are among `by`. The best mean of each problem is bold, equal ones all. Runs that were lost are left
    out and counted; a group with lost runs is never bold, since its mean is over other runs than those of its
    neighbours. Finished runs whose value is not finite are left out of its mean, which is never bold either;
    the cell says how many runs it rests on, and a note names it.

    Args:
        rows: all or some rows of `mobench.run` or `mobench.rows`.
        by: columns whose values name the groups; default: problem and algorithm, where rows have them.
        columns: names of the averaged columns; default: f_1, f_2, ...
        largest: columns whose largest mean is bold; of the others it is the smallest one.
        reference: a point in objective space: then there is a column hypervolume, of the finished runs of
            each seed in the group, whose largest mean is bold. Where a group has several problems, output
            rules or settings, a seed's value is the mean of theirs (drop the column of a setting whose runs
            form one front, as the bounds of the epsilon-constraint method do); a problem with another number
            of objectives has none. Ends that violate constraints by more than
            0.001 do not count. Those that would take more than ten seconds for a group are estimated. Notes
            say so.

    Raises:
        ConfigError: a column that rows do not have, or that has no numbers.
    """
    import pandas as pd

    groups = [by] if isinstance(by, str) else list(by or (k for k in DEFAULT_GROUPS if k in rows))
    averaged = [columns] if isinstance(columns, str) else list(columns or store.columns(rows, "f_"))
    if not groups:
        raise ConfigError('by= names the groups of the table, such as by="output" or by="preference_1".')
    for name in (*groups, *averaged, *largest):
        if name not in rows:
            raise ConfigError(f"rows have no column {name!r}.{suggest(name, list(map(str, rows)))}")
    for name in averaged:
        if rows[name].dtype.kind not in "iufb":
            raise ConfigError(f"The column {name!r} has no numbers, so it has no mean.")
    rows = rows.reset_index(drop=True)
    infeasible = store.infeasible(rows)  # of all rows: a group may be a part of a job
    lines: list[dict[str, Any]] = []
    partial: dict[tuple[int, str], RunCount] = {}
    drawn: list[float] = []  # half the widths of the intervals of estimated hypervolumes
    left_out = 0  # ends that hypervolumes leave out
    several = bool(rows.groupby([*groups, "seed"], dropna=False).size().max() > 1)
    mixed = _mixed(rows, groups)
    front, fits = _of_front(rows, 0 if reference is None else len(reference))
    for keys, group in rows.groupby(groups, sort=False, dropna=False):
        done = group[group["status"] == "done"]
        line: dict[str, Any] = {
            **dict(zip(groups, keys, strict=True)),
            "runs": RunCount(len(done), len(group)),
        }
        for name in averaged:
            finite = done[np.isfinite(done[name].to_numpy(dtype=float))]
            # a column of which a group has no number at all is that of others, and its cell is empty
            if len(finite) < len(done) and done[name].notna().any():
                partial[len(lines), name] = RunCount(len(finite), len(group))
            line |= _interval(name, finite.groupby("seed")[name].mean().to_numpy(dtype=float))
        if reference is not None:
            counted = done[fits[done.index]]
            ends = np.isfinite(counted[front].to_numpy(dtype=float)).all(1)
            if not ends.all():
                partial[len(lines), "hypervolume"] = RunCount(int(ends.sum()), len(group))
            feasible = counted[~infeasible[counted.index]]
            left_out += len(counted) - len(feasible)
            volumes = _hypervolumes(counted, feasible, front, [float(v) for v in reference], mixed)
            line |= _interval("hypervolume", np.array([v.value for v in volumes]))
            drawn += [v.half_width for v in volumes if v.half_width is not None]
        lines.append(line)
    # objectives that are averaged over preferences say nothing of a front: no mean of them is best
    signs = {name: 1 for name in averaged if not (several and name.startswith("f_"))}
    signs |= {name: -1 for name in (*largest, "hypervolume") if name in signs or name == "hypervolume"}
    all_columns = (*averaged, *(["hypervolume"] if reference is not None else []))
    notes = _notes(groups, lines, several, mixed, drawn)
    if left_out:
        notes = (*notes, f"{left_out} ends violate constraints and do not count in hypervolumes.")
    notes = (*notes, *(_not_finite(lines[i], groups, name, cell) for (i, name), cell in partial.items()))
    return Summary(pd.DataFrame(lines), tuple(groups), all_columns, signs, notes, partial)


def _not_finite(line: dict[str, Any], groups: Sequence[str], column: str, cell: RunCount) -> str:
    """Returns the note on a number that leaves out finished runs."""
    finished = line["runs"].finished
    name = ", ".join(in_words(line[k]) for k in groups)
    value = "An objective" if column == "hypervolume" else column
    return (
        f"{value} is not finite in {finished - cell.finished} of {finished} finished runs of {name}: its "
        f"{column if column == 'hypervolume' else 'mean'} is without them and never bold."
    )


def _interval(name: str, values: np.ndarray) -> dict[str, float]:
    mean = Mean(values)
    return {name: mean.mean, f"{name} low": mean.low, f"{name} high": mean.high}


def _of_front(rows: pd.DataFrame, M: int) -> tuple[list[str], pd.Series]:
    """Returns the columns of M objectives, and which rows are of a problem that has them and no others."""
    import pandas as pd

    names = store.columns(rows, "f_")
    every = pd.Series(True, index=rows.index)
    if "problem" not in rows or rows["problem"].nunique() < 2:
        return names, every
    # a frame has columns for the problem with the most objectives, and those of the others are empty there
    fits = rows.groupby("problem", dropna=False)[names].transform("count").gt(0).sum(axis=1) == M
    return (names[:M], fits) if fits.any() else (names, every)


def _hypervolumes(
    done: pd.DataFrame, feasible: pd.DataFrame, names: Sequence[str], point: Sequence[float], mixed: list[str]
) -> list[Volume]:
    """Returns the hypervolume of each seed's feasible ends; none of a seed whose runs were all lost.

    Fronts of different settings are not pooled, which none of them has reached: their volumes are averaged.
    """
    from mobench.metrics.hypervolume import SECONDS, Volume, bounded_hypervolume

    fronts = {key: part.index for key, part in done.groupby(["seed", *mixed], dropna=False)}
    volumes: dict[Any, list[Volume]] = {}
    for (seed, *_), index in fronts.items():
        F = feasible.loc[feasible.index.intersection(index), names].to_numpy(dtype=float)
        volume = bounded_hypervolume(F[np.isfinite(F).all(1)], point, SECONDS / len(fronts))
        volumes.setdefault(seed, []).append(volume)
    means = []
    for several in volumes.values():
        widths = [v.half_width for v in several if v.half_width is not None]
        # errors of estimates may add up at most
        width = sum(widths) / len(several) if widths else None
        means.append(Volume(sum(v.value for v in several) / len(several), width))
    return means


def _mixed(rows: pd.DataFrame, groups: list[str]) -> list[str]:
    """Returns the settings that differ within some group."""
    each = rows.groupby(groups, dropna=False)
    named = ("problem", "algorithm", "oracle", "output", "steps", *store.varied(rows))
    settings = [c for c in map(str, rows) if c in named or ("." in c and not c.startswith("record."))]
    return [c for c in settings if c not in groups and (each[c].nunique() > 1).any()]


def _notes(
    groups: list[str],
    lines: Sequence[dict[str, Any]],
    several: bool,
    mixed: Sequence[str],
    drawn: Sequence[float],
) -> tuple[str, ...]:
    """Returns notes on the mean, lost runs, settings that are averaged over, and estimated hypervolumes."""
    first = "; the runs of a seed are averaged first" if several else ""
    notes = [f"Mean ± half of Student's {100 * LEVEL:.0f} % interval over seeds{first}."]
    counts = {", ".join(in_words(line[k]) for k in groups): line["runs"] for line in lines}
    lost = [f"{name} {n.planned - n.finished} of {n.planned}" for name, n in counts.items() if n.short]
    if lost:
        notes.append(
            f"Lost runs, over which no mean is taken: {'; '.join(lost)}. These groups are never bold."
        )
    if mixed:
        notes.append(f"The means are also over {', '.join(mixed)}; add what should be told apart to by=.")
    if drawn:
        notes.append(f"{len(drawn)} hypervolumes are estimates, each within {max(drawn):.2g} (99 %).")
    return tuple(notes)
