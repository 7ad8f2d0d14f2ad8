"""mobench: gradient-based multi-objective optimization, compared. The command line is `mobench --help`."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("mobench")
except PackageNotFoundError:  # imported from a checkout that was never installed
    __version__ = "0+unknown"
