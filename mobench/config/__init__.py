"""The configuration: its schema, its files, overrides, and how one job's configuration is composed.

Knows Hydra, and nothing of torch. May import: errors, system.
"""
