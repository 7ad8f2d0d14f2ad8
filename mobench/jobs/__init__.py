"""One job: checked, identified, run on its device, and its rows on disk.

May import: config, core, algorithms, oracles, metrics, system, errors.
"""
