"""Small conveniences of the command line, applied to every override list before Hydra sees it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mobench.errors import ConfigError, suggest
from mobench.schema import choices

_TARGETED = re.compile(r"^(problem|oracle|algorithm|constraint|space|vary|cross)\.")
_PREFERENCES = re.compile(r"^preferences\.(count|rays_deg|weights)=(?!null$)")
_NO_CHOICE = re.compile(r"^(problem|oracle|algorithm|constraint|space|protocol|hardware|scale|logger)=(null|[\d.+-]*)$")
_COUNT = re.compile(r"^preferences=(\d[\d,]*)$")


def normalise(overrides: Sequence[str]) -> list[str]:
    """`preferences=K` becomes `preferences.count=K`; keys below a constructor need no `+`.

    Choosing preferences in one of the three ways takes back what a protocol chose in another. Every constructor
    parameter is settable although its YAML file leaves it out; whether it exists is decided by `config.validate`,
    which knows the constructor.
    """
    out = []
    given = {o.partition("=")[0] for o in overrides}
    for override in overrides:
        if match := _NO_CHOICE.match(override):
            raise ConfigError(f"{override} is no choice; choose one of {', '.join(choices(match[1]))}.")
        if match := _COUNT.match(override):
            override = f"preferences.count={match[1]}"
        if match := _PREFERENCES.match(override):
            others = {f"preferences.{way}" for way in ("rays_deg", "weights") if way != match[1]} - given
            out += [f"{key}=null" for key in sorted(others)]
        elif _TARGETED.match(override):
            override = f"++{override}"
        out.append(override)
    return out


def shown(overrides: Sequence[str]) -> str:
    """The overrides as a person would write them: without what `normalise` added."""
    typed = [
        o.removeprefix("++") for o in overrides if o not in ("preferences.rays_deg=null", "preferences.weights=null")
    ]
    return shlex.join(typed)


def changed(overrides: Sequence[str]) -> list[str]:
    """Those of an artifact's overrides that make its jobs differ from what the artifact says."""
    harmless = (
        "experiment",
        "scale",
        "data",
        "hardware",
        "logger",
        "rerun",
        "progress",
        "checkpoint",
        "data_root",
        "hydra",
    )
    return [o for o in overrides if re.split(r"[=./]", o.lstrip("+~"))[0] not in harmless]


def expand_experiments(overrides: Sequence[str]) -> tuple[list[str], bool]:
    """`+experiment=ferero/all` and `+experiment=all` become the list of artifacts; True if there are several.

    Raises ConfigError for an unknown artifact, with a suggestion.
    """
    out, several = [], False
    for override in overrides:
        key, _, value = override.partition("=")
        if key in ("+experiment", "experiment"):
            known = choices("experiment")
            chosen: list[str] = []
            for name in value.split(","):
                if name == "all":
                    chosen += known
                elif name.endswith("/all"):
                    chosen += [k for k in known if k.startswith(name[:-3])]
                elif name in known:
                    chosen.append(name)
                else:
                    raise ConfigError(
                        f"experiment={name!r} is unknown; choose one of {', '.join(known)}, PAPER/all or all."
                        f"{suggest(name, known)}"
                    )
            if not chosen:
                raise ConfigError(f"{override} names no artifact; known are {', '.join(known)}.")
            several = several or len(chosen) > 1
            override = f"+experiment={','.join(dict.fromkeys(chosen))}"
        out.append(override)
    return out, several
