"""Many jobs: which ones a command means, how launchers run them, and drawing their artifacts.

May import: artifacts, config, jobs, metrics, system, errors.
"""
