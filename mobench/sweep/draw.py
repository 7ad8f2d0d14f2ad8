"""Draw the artifacts of a plan from the rows of their jobs, many of them in several processes."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple, TypeVar

from mobench.config import overrides
from mobench.errors import ConfigError, MobenchError
from mobench.jobs import wandb_log
from mobench.jobs.store import JobFolder
from mobench.sweep.plan import Plan
from mobench.system.console import fail

T = TypeVar("T")

MANY = 8  # artifacts from which on they are drawn by several processes
MOST_DRAWERS = 4  # each holds a copy of the libraries: half a gigabyte


# its id, configuration, folders of its jobs, and overrides of its command
Drawing = tuple[str, dict[str, Any], dict[str, JobFolder], list[str]]


def draw(plan: Plan) -> bool:
    """Draws all artifacts of a plan whose jobs are finished, and says why another one is not drawn.

    Returns:
        Whether all were drawn.
    """
    # W&B wants its runs in one process
    online = any(wandb_log.mode(config) for config in plan.artifacts.values())
    drawings: list[Drawing] = []
    for id, config in plan.artifacts.items():
        folders = {job.name: job.folder for job in plan.jobs if job.artifact == id}
        drawn_config = {**config, "refused": plan.refused.get(id, {})}
        if not online:
            drawn_config["logger"] = {**config["logger"], "name": "local"}
        drawings.append((id, drawn_config, folders, plan.commands[id]))
    return all([_drawn(drawing) for drawing in drawings] if online else in_processes(_drawn, drawings))


class Computed(NamedTuple):
    """The claims of an artifact, its table, and the keys of its jobs in this version."""

    claims: list[dict[str, Any]]
    table: bytes | None
    keys: dict[str, str]


def drawn_from(drawing: str, words: Sequence[str], folders: Mapping[str, JobFolder]) -> Computed:
    """Draws an artifact from these rows as a command of this version would, and writes nothing.

    Args:
        drawing: PAPER/NAME, or PAPER/NAME+SETTINGS, whose claims are judged apart.
        words: the overrides of the command.
        folders: finished jobs by their names in the artifact.

    Raises:
        MobenchError: the command does not fit this version, or rows that the drawing needs are missing.
    """
    from mobench.artifacts import style
    from mobench.artifacts.artifact import registered
    from mobench.artifacts.drawing import assembled, recorded_claims
    from mobench.sweep.planner import plan

    id = drawing.partition("+")[0]
    planned = plan([*words, "logger=local"])
    if id not in planned.artifacts:
        raise ConfigError(f"The command {' '.join(words)} does not draw {id}.")
    config = {**planned.artifacts[id], "refused": planned.refused.get(id, {})}
    a = assembled(id, config, folders, planned.commands[id], apart=drawing != id)
    with style.plt.rc_context(style.RC):
        registered(id)(a)
    keys = {job.name: job.folder.key for job in planned.jobs}
    return Computed(recorded_claims(a), a.files.get("table.csv"), keys)


def in_processes(draw_one: Callable[[T], bool], of: Sequence[T]) -> list[bool]:
    """Returns `draw_one` of each; many take several processes: seconds each, most of them in matplotlib.

    The processes are spawned: torch's threads do not survive a fork.
    """
    processes = min(os.cpu_count() or 1, MOST_DRAWERS)
    if len(of) < MANY or processes == 1:
        return [draw_one(each) for each in of]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(draw_one, of))


def _drawn(drawing: Drawing) -> bool:
    """Draws one artifact and returns whether that was possible."""
    from mobench.artifacts import draw

    id, _, _, command = drawing
    try:
        return draw(*drawing)
    except MobenchError as error:
        fail(f"{id} is not drawn: {error}")
    except Exception as error:  # noqa: BLE001  one drawing's fault must not cost the others
        message = f"{id} is not drawn: {type(error).__name__}: {error}"
        changed = overrides.changed(command)
        if changed:
            message += (
                f". The drawing expects the settings of conf/experiment/{id}.yaml, which "
                f"{overrides.as_typed(changed)} changes. The rows of its jobs are complete: load them with "
                "mobench.runs(), or repeat the command without this override to draw the artifact."
            )
        else:
            traceback.print_exc()
        fail(message)
    return False
