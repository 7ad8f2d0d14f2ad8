"""The comparison of methods under one protocol: its trials, measures, rows and statistics.

May import: core, metrics, system, errors.
"""
