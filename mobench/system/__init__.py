"""The process and the machine: console lines, files' places, signals, GPU locks, provenance.

May import: errors.
"""
