"""One job: checked, identified, run on its device, and its rows on disk.

May import: config, system, core, and the parts that a configuration names (problems, algorithms, oracles,
...).
"""
