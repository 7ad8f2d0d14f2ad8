"""mobench: gradient-based multi-objective optimization, compared. The command line is `mobench --help`."""

import os
from importlib.metadata import PackageNotFoundError, version

# torch reads it at its first large allocation: activations on huge pages, else page faults are a third of a step
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

try:
    __version__ = version("mobench")
except PackageNotFoundError:  # imported from a checkout that was never installed
    __version__ = "0+unknown"
