"""Weights & Biases as a view of the rows on disk: a run per job, a report run per artifact.

logger=auto: online when an API key is configured, else off (said once). logger=wandb: online, or offline
without a key. logger=local: off. Everything is logged from finished rows, so whatever W&B refuses can lose a
view but never a result.
"""

from __future__ import annotations

import contextlib
import functools
import math
import netrc
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mobench.errors import ConfigError
from mobench.jobs.store import JobFolder
from mobench.system.paths import outputs_root

MODES = ("online", "offline", "disabled", "shared", "dryrun", "run")


def has_key() -> bool:
    """Returns whether an API key is set: WANDB_API_KEY or an entry for api.wandb.ai in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def mode(config: Mapping[str, Any]) -> str | None:
    """Returns online, offline or what WANDB_MODE says; None for off.

    Raises:
        ConfigError: WANDB_MODE is none of W&B's.
    """
    name = config["logger"]["name"]
    if name == "local":
        return None
    if has_key():
        chosen = os.environ.get("WANDB_MODE", "online")
        if chosen not in MODES:  # not shown: it may be a key in the wrong place
            raise ConfigError(
                f"WANDB_MODE must be one of {', '.join(MODES)}; unset it or choose one of these."
            )
        return chosen
    if name == "wandb":
        return "offline"
    say_off()
    return None


def check(config: Mapping[str, Any]) -> None:
    """Raises ConfigError for settings of the logger that W&B refuses, which it says only after the job."""
    if mode(config) is None:
        return
    import wandb

    options = config["logger"]
    try:
        wandb.Settings(project=options["project"], entity=options["entity"], run_tags=options["tags"])
    except (ValueError, wandb.Error) as error:
        # pydantic's errors name a field and the reason; others are a sentence
        listed = error.errors() if hasattr(error, "errors") else [{"msg": str(error)}]
        said = "; ".join(str(one["msg"]).removeprefix("Value error, ") for one in listed)
        raise ConfigError(
            f"W&B refuses the settings of the logger: {said}. Change logger.tags, logger.project or "
            "logger.entity, or set logger=local."
        ) from error


@functools.cache
def say_off() -> None:
    """Says, once in a process, that nothing is logged."""
    print(
        "W&B is off because no API key is configured (logger=wandb logs offline; logger=local hides this "
        "note).",
        file=sys.stderr,
    )


@contextlib.contextmanager
def _warned(name: str) -> Iterator[None]:
    """Turns whatever W&B raises, as for a tag that is too long, into a warning."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  the rows are safe
        print(f"warning: W&B could not log {name}: {error}. The rows on disk are complete.", file=sys.stderr)


def _begun(settings: Mapping[str, Any], **fields: Any) -> Any:
    """Returns a new run of W&B's."""
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_CONSOLE", "off")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    options = settings["logger"]
    folder = outputs_root()
    folder.mkdir(parents=True, exist_ok=True)
    return wandb.init(
        project=options["project"],
        entity=options["entity"],
        tags=list(options["tags"]) or None,
        dir=str(folder),
        mode=mode(settings),  # type: ignore[arg-type]
        reinit="finish_previous",
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        **fields,
    )


def log_job(config: Mapping[str, Any], folder: JobFolder) -> None:
    """Logs a finished job: config, curves (mean over runs), the final rows as a table, and their means."""
    if mode(config) is None:
        return
    import pandas as pd
    import wandb

    problem, algorithm = (config[part]["_target_"].rpartition(".")[2] for part in ("problem", "algorithm"))
    group = config["artifact"]["id"] or f"{problem}-{config['protocol']}"
    with _warned(folder.key):
        run = _begun(
            config,
            id=folder.key,
            name=folder.key,
            group=group,
            job_type=algorithm,
            config=dict(config),
        )
        # W&B's minimum, maximum and mean of a curve stay NaN or infinite after one such number
        history = folder.history().replace([math.inf, -math.inf], math.nan)
        final = folder.final()
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        curves = (
            history[history["output"] == "last"]
            .drop(columns=["run", "seed", "output"])
            .groupby("step")
            .mean()
        )
        for step, row in curves.iterrows():
            run.log({"step": int(step), **{k: float(v) for k, v in row.items() if pd.notna(v)}})  # type: ignore[call-overload]
        run.log({"final": wandb.Table(dataframe=final)})
        finite = final.select_dtypes("number").replace([math.inf, -math.inf], math.nan)
        numbers = finite.drop(columns=["run", "seed"]).mean()
        run.summary.update({f"mean/{k}": float(v) for k, v in numbers.items() if pd.notna(v)})
        run.summary["runs_done"] = int((final["status"] == "done").sum())
        run.summary["runs"] = len(final)
        run.finish()


def log_artifact(config: Mapping[str, Any], id: str, folder: Path, claims: list[dict[str, Any]]) -> None:
    """Logs the figure, the table and the claims of an artifact in one report run."""
    if mode(config) is None:
        return
    import pandas as pd
    import wandb

    key = f"artifact-{id.replace('/', '-')}-{config['scale']['name']}"
    with _warned(id):
        run = _begun(config, id=key, name=id, group=id, job_type="artifact")
        entries: dict[str, Any] = {"claims": wandb.Table(dataframe=pd.DataFrame(claims).astype(str))}
        if (folder / "figure.png").exists():
            entries["figure"] = wandb.Image(str(folder / "figure.png"))
        if (folder / "table.csv").exists():
            entries["table"] = wandb.Table(dataframe=pd.read_csv(folder / "table.csv").astype(str))
        run.log(entries)
        verdicts = pd.Series([c["verdict"] for c in claims], dtype=str).value_counts()
        run.summary.update({f"verdict/{k}": int(v) for k, v in verdicts.items()})
        run.finish()
