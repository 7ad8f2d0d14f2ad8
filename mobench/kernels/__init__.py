"""Hand-derived derivatives of networks for CPUs, and small solvers that Numba compiles.

A plain path exists for each of them, and tests compare both.

May import: core, system, errors.
"""
