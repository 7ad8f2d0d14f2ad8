"""What stands behind the words of the command line: `mobench`, `mobench-status`, `mobench.doctor`,
`mobench.keep`.

Nothing imports it but the entry points.

May import: artifacts, bundle, comparison, config, data, jobs, sweep, system, errors.
"""
