"""One file for a reviewer: the rows behind artifacts and all that it takes to check them.

`build` makes it of drawn artifacts, `archive` packs and unpacks it, `verify` checks a file of this kind and
runs some of its rows again.

May import: artifacts, config, jobs, system, errors.
"""
