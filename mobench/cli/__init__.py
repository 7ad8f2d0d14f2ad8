"""The program `mobench`: jobs, sweeps and artifacts, and the commands that `entry.COMMANDS` lists.

Nothing imports it but the entry points.

May import: artifacts, bundle, comparison, config, data, jobs, study, sweep, system, errors.
"""
