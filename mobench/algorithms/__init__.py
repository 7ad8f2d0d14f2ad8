"""Algorithms: one method, one file; `conf/algorithm/<name>.yaml` points at the class.

May import: core, solvers, metrics, errors.
"""
