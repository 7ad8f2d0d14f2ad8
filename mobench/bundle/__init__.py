"""One file for a reviewer: the rows behind artifacts and all that it takes to check them.

`build` makes it of drawn artifacts, `archive` packs and unpacks it, `claims` computes its claims again from
its rows, and `verify` runs some of its rows again.

May import: artifacts, config, jobs, sweep, system, errors.
"""
