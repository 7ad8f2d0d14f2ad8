"""Hand-derived derivatives of networks, Gram matrices and hypervolumes for CPUs, compiled by Numba where that
is faster.

A plain path exists for each of them, and tests compare both.

May import: core, system, errors.
"""
