"""Small conveniences of the command line, applied to every override list before Hydra sees it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mobench.config.schema import choices
from mobench.errors import ConfigError, unknown

_TARGETED = re.compile(r"^(problem|oracle|algorithm|constraint|space|vary|cross)\.")
_PREFERENCES = re.compile(r"^preferences\.(count|rays_deg|weights|simplex_steps)=(?!null$)")
TAKEN_BACK = ("rays_deg", "weights", "simplex_steps")  # ways to set preferences, which `count` takes back
_WAYS = re.compile(r"^preferences(?:=\d|\.(?:count|rays_deg|weights|simplex_steps)=(?!null$))")
_NO_CHOICE = re.compile(
    r"^(problem|oracle|algorithm|constraint|space|protocol|hardware|scale|logger)=(null|[\d.+-]+|\[.*\])$"
)
_FOLDER = re.compile(r"^\+{0,2}hydra\.run\.dir=")
_ADDED = re.compile(r"^\+(cross\.)")
# groups and keys that change no job of an artifact
HARMLESS = ("experiment", "scale", "logger", "rerun", "progress", "checkpoint", "data_root", "hydra")
# values of `hardware` that are part of a job's identity
IDENTIFYING = ("hardware.part", "hardware.tf32")
_COUNT = re.compile(r"^preferences=(\d[\d,]*)$")


def normalise(overrides: Sequence[str]) -> list[str]:
    """`preferences=K` becomes `preferences.count=K`; keys below a constructor need no `+`.

    Choosing preferences in one of the four ways takes back what a protocol chose in another. Every
    constructor parameter is settable although its YAML file leaves it out; whether it exists is decided by
    `mobench.jobs.config`, which knows the constructor.
    """
    out = []
    keys = {o.partition("=")[0] for o in overrides}
    ways = [o for o in overrides if _WAYS.match(o)]
    counted = [o for o in ways if o.startswith(("preferences=", "preferences.count="))]
    if counted and len(ways) > len(counted):
        other = next(o for o in ways if o not in counted)
        raise ConfigError(f"{counted[0]} and {other} both set the preferences; give only one of them.")
    for override in overrides:
        if _FOLDER.match(override):
            raise ConfigError(
                f"{override} has no effect: a job's folder is named after its settings and is stored in "
                "$MOBENCH_OUTPUTS/runs (default: outputs/runs). "
                "Choose another location with MOBENCH_OUTPUTS=FOLDER."
            )
        # whether it is one more, or another value, is decided by what is there
        override = _ADDED.sub(r"\1", override)
        if match := _NO_CHOICE.match(override):
            raise ConfigError(
                f"{override} is not a valid choice; choose one of {', '.join(choices(match[1]))}. "
                f"mobench -m {match[1]}=A,B runs a job with each."
            )
        if override.startswith("preferences=["):
            raise ConfigError(
                f"{override} has the wrong type: preferences is the number of preferences; give chosen ones "
                "by preferences.weights=[[0.3,0.7],[0.5,0.5]] or preferences.rays_deg=[30,60]."
            )
        if match := _COUNT.match(override):
            override = f"preferences.count={match[1]}"
        if match := _PREFERENCES.match(override):
            others = {f"preferences.{way}" for way in TAKEN_BACK if way != match[1]} - keys
            out += [f"{key}=null" for key in sorted(others)]
        elif _TARGETED.match(override):
            override = f"++{override}"
        out.append(override)
    return out


def as_typed(overrides: Sequence[str]) -> str:
    """Returns the overrides as a person would write them: without what `normalise` added."""
    typed = [
        o.removeprefix("++") for o in overrides if o not in {f"preferences.{way}=null" for way in TAKEN_BACK}
    ]
    return shlex.join(o.replace("\\:", ":") if names_function(o) else o for o in typed)


def key_of(override: str) -> str:
    """Returns what an override sets: `algorithm` of `+algorithm=ls`."""
    return override.split("=", 1)[0].lstrip("+~")


def names_function(override: str) -> bool:
    """Returns whether an override chooses a problem by a function, `problem=file.py:make`.

    Else it has the name of a file of the configuration, none of which has a colon.
    """
    key, _, value = override.partition("=")
    is_function = "${" not in value and (":" in value or value.rstrip("'\"").endswith(".py"))
    return key.lstrip("+") == "problem" and is_function


def changed(overrides: Sequence[str]) -> list[str]:
    """Returns the overrides that make an artifact's jobs differ from what the artifact says.

    Choosing another data set or machine is none of them, since rows say which they had. Changing a value of
    the chosen one is, except for values of `hardware` that are no part of a job's identity.
    """
    return [o for o in overrides if not _harmless(key_of(o))]


def _harmless(key: str) -> bool:
    """Returns whether an override of this key is no other setting of an artifact's jobs."""
    group = re.split(r"[./]", key)[0]
    if group == "data":
        return key == "data"
    if group == "hardware":
        return key not in IDENTIFYING
    return group in HARMLESS or key in ("artifact.only", "artifact.pdf")


def expand_experiments(
    overrides: Sequence[str], user_experiments: Sequence[str] = ()
) -> tuple[list[str], bool]:
    """Replaces `+experiment=ferero/all` and `+experiment=all` by artifacts; True if there are several.

    user_experiments: names of a user's experiments, in folders of the search path. `all` means the project's;
    `GROUP/all` takes both.

    Raises ConfigError for an unknown one, with a suggestion.
    """
    out = []
    several = False
    for override in overrides:
        key, _, value = override.partition("=")
        if key in ("+experiment", "experiment"):
            artifacts = choices("experiment")
            known = sorted({*artifacts, *user_experiments})
            chosen: list[str] = []
            for name in value.split(","):
                if name == "all" and name not in user_experiments:
                    chosen += artifacts
                elif name.endswith("/all") and name not in user_experiments:
                    chosen += [k for k in known if k.startswith(name[:-3])]
                elif name in known:
                    chosen.append(name)
                else:
                    words = unknown("experiment", name, dict.fromkeys([*sorted(user_experiments), *known]))
                    raise ConfigError(
                        f"{words} PAPER/all and all stand for several. "
                        "To use your own files, put them in CONF/experiment and add "
                        f"--config-dir CONF or hydra.searchpath=[file://CONF]."
                    )
            if not chosen:
                raise ConfigError(
                    f"{override} does not name an artifact; the known artifacts are {', '.join(known)}."
                )
            several = several or len(chosen) > 1
            override = f"+experiment={','.join(dict.fromkeys(chosen))}"
        out.append(override)
    return out, several


def check_single(config: Mapping[str, Any]) -> None:
    """Raises ConfigError if a configuration that is to run as one job lists several."""
    listed = next((key for key in ("jobs", "grid", "like", "cross") if config.get(key)), None)
    if listed:
        raise ConfigError(
            f"The experiment lists several jobs ({listed}), but this command runs only one: add `hydra: "
            f"{{mode: MULTIRUN}}` to its file, or call mobench with -m."
        )
