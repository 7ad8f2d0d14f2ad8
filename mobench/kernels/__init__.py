"""Derivatives of networks by hand, Gram matrices and hypervolumes on CPUs, partly compiled by Numba.

A plain path exists for each of them, and tests compare both.

May import: core, system, errors.
"""
