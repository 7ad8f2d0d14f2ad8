"""Small conveniences of the command line, applied to every override list before Hydra sees it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mobench.config import choices
from mobench.errors import ConfigError, suggest

_TARGETED = re.compile(r"^(problem|oracle|algorithm)\.")
_COUNT = re.compile(r"^preferences=(\d[\d,]*)$")


def normalise(overrides: Sequence[str]) -> list[str]:
    """`preferences=K` becomes `preferences.count=K`; keys below a constructor need no `+`.

    The second makes every constructor parameter settable although its YAML file leaves it out; whether it exists is
    decided by `config.validate`, which knows the constructor.
    """
    out = []
    for override in overrides:
        if match := _COUNT.match(override):
            override = f"preferences.count={match[1]}"
        elif _TARGETED.match(override):
            override = f"++{override}"
        out.append(override)
    return out


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
