"""Many jobs: which ones a command means, launching them, and what is said and drawn at the end.

May import: artifacts, config, core, jobs, metrics, system, errors.
"""
