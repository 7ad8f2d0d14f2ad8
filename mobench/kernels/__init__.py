"""Hand-derived derivatives of networks for CPUs.

A plain path exists for each of them, and tests compare both.

May import: core.
"""
