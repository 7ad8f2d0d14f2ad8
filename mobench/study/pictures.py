"""Rows as pictures in the project's look: ends in objective space, or a recorded column over the steps."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mobench.errors import ConfigError, suggest
from mobench.jobs.store import columns
from mobench.study.rows import in_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SIZE = (4.4, 3.2)  # inches


def plot(rows: pd.DataFrame, x: str | None = None, y: str | None = None, *, by: str | None = None) -> Figure:
    """Draws runs: their ends in the plane of two columns, or a recorded column over the steps.

        mobench.plot(rows).savefig("front.pdf")                      f_2 over f_1, a colour for each method;
                                                                     without methods for each preference
        mobench.plot(rows, "validation_1", "validation_2", by="algorithm.step_size")
        mobench.plot(rows, "step", "f_1")                            a line for each run

    Lost runs are not drawn; the caption counts them. It says so where rows are of an average that is computed
    at the end alone, so that a curve is that of the last iterate.

    Args:
        rows: all or some rows of `mobench.run` or `mobench.rows`.
        x, y: columns of rows; with x="step", y is a column of the jobs' histories. Default: f_1 and f_2.
        by: the column whose values have a colour each; default: algorithm, where there is one, else the ray
            of the preference, where there are two objectives.

    Returns:
        A Matplotlib figure, at most as wide as the text of a paper; nothing is shown or written.

    Raises:
        ConfigError: a column that there is not, or no run that finished.
        StoreError: curves of rows that do not say which jobs they are of.
    """
    objectives = columns(rows, "f_")
    across = x or objectives[0]
    up = y or objectives[min(1, len(objectives) - 1)]
    group = by or ("algorithm" if "algorithm" in rows else None)
    done = rows[rows["status"] == "done"]
    if done.empty:
        raise ConfigError(f"None of these {len(rows)} rows is a finished run, so there is nothing to draw.")
    source, remarks = _histories(done, group) if across == "step" else (done, [])
    for name in (across, up, *([group] if group else [])):
        if name not in source:
            raise ConfigError(f"rows have no column {name!r}.{suggest(name, list(map(str, source)))}")
    with _style() as st:
        fig, ((ax,),) = st.panels(1, 1, figsize=SIZE)
        try:
            groups = list(source.groupby(group, sort=False, dropna=False)) if group else [("", source)]
            rays = "preference_2" in source and "preference_3" not in source
            if not group and across != "step" and rays and source["preference_2"].notna().all():
                _draw_rays(st, fig, ax, source, across, up)
                groups = []
            for (name, colour, marker), (_, part) in zip(_looks(st, group, groups), groups, strict=True):
                if across == "step":
                    curves = part.groupby(["source_job", "run", "output"], sort=False)
                    for label, (_, curve) in zip([name, *[None] * (len(curves) - 1)], curves, strict=True):
                        ax.plot(curve[across], curve[up], color=colour, lw=0.9, alpha=0.6, label=label)
                else:
                    drawn = {"color": colour, "marker": marker, "ls": "none", "label": name}
                    ax.plot(part[across], part[up], ms=5.5, mec="white", mew=0.4, alpha=0.9, **drawn)
            ax.set(xlabel=_label(across), ylabel=_label(up))
            if group:
                title = None if group == "algorithm" else group
                ax.legend(title=title, loc="upper left", bbox_to_anchor=(1.0, 1.0))
            if len(done) < len(rows):
                lost = len(rows) - len(done)
                remarks.append(f"{lost} of {len(rows)} runs were lost and are not drawn.")
            numbers = source[[c for c in (across, up) if source[c].dtype.kind == "f"]]
            if across != "step" and (gaps := int((~np.isfinite(numbers.to_numpy(float)).all(1)).sum())):
                remarks.append(f"{gaps} of {len(done)} finished runs are not drawn: a value is not finite.")
            if remarks:
                st.caption(fig, " ".join(remarks))
            st.finish(fig)
        finally:
            st.plt.close(fig)  # pyplot forgets the figure, which its caller has
    drawn_figure: Figure = fig
    return drawn_figure


def _draw_rays(st: Any, fig: Figure, ax: Any, rows: pd.DataFrame, x: str, y: str) -> None:
    """Draws ends in the colour that the ray of their preference has in every picture of the project."""
    angles = np.degrees(np.arctan2(rows["preference_1"], rows["preference_2"]))
    for angle, part in rows.groupby(angles):
        ax.plot(part[x], part[y], "o", color=st.preference(angle), ms=6.5, mec="white", mew=0.4, alpha=0.9)
    st.preference_bar(fig, ax)


def _looks(st: Any, group: str | None, groups: Sequence[tuple[Any, Any]]) -> list[tuple[str, str, str]]:
    """Returns name, colour and marker of each group.

    Methods look as in every picture of the project, unless another one of this picture has that colour; all
    other groups take the next free colour.
    """
    known = {value: st.METHODS[value] for value, _ in groups if group == "algorithm" and value in st.METHODS}
    by_colour = {look.colour: value for value, look in reversed(known.items())}
    pairs = list(zip([*st.CYCLE, "#332288", "#8C6D31", "#999933"], st.MARKERS * 2, strict=False))
    free = itertools.cycle([pair for pair in pairs if pair[0] not in by_colour] or pairs)
    return [
        (known[value].name, known[value].colour, known[value].marker)
        if value in by_colour.values()
        else (known[value].name if value in known else in_words(value), *next(free))
        for value, _ in groups
    ]


def _label(column: str) -> str:
    return f"$f_{{{column[2:]}}}$" if column.startswith("f_") and column[2:].isdigit() else column


def _histories(done: pd.DataFrame, group: str | None) -> tuple[pd.DataFrame, list[str]]:
    """Returns the recorded rows of these runs and output rules, with their job and group, and remarks.

    Where a rule is not recorded, an average of the end alone, there are the rows of the last iterate.
    """
    import pandas as pd

    from mobench.api import load

    parts = []
    unrecorded: set[str] = set()
    for name, job_rows in done.groupby("job", sort=False) if "job" in done else [("", done)]:
        history = load(job_rows).history
        outputs = set(job_rows["output"])
        missing = outputs - set(history["output"])
        unrecorded |= missing
        kept = history["output"].isin(outputs | ({"last"} if missing else set()))
        part = history[kept & history["run"].isin(job_rows["run"])].assign(source_job=name)
        if group and group not in part:
            part = part.merge(job_rows[["run", group]].drop_duplicates("run"), on="run")
        parts.append(part)
    curves = f"Curves are of the last iterate: {', '.join(sorted(unrecorded))} is computed at the end alone."
    return pd.concat(parts, ignore_index=True), [curves] if unrecorded else []


@contextlib.contextmanager
def _style() -> Iterator[Any]:
    """Sets the look of the project's pictures inside the block; a notebook keeps its look and windows."""
    import matplotlib as mpl

    backend = mpl.rcParams._get("backend")  # not looked up, which would choose one
    with mpl.rc_context():
        from mobench.artifacts import style

        mpl.rcParams.update(style.RC)
        yield style
    mpl.rcParams._set("backend", backend)
