"""Many jobs: which ones a command means, how launchers run them, and drawing their artifacts.

May import: artifacts, comparison, config, jobs, system, errors.
"""
