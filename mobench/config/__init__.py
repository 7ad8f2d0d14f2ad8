"""The configuration: its schema, its files, overrides, and how one job's configuration is composed.

It knows Hydra, and nothing of torch.

May import: core, system, errors.
"""
