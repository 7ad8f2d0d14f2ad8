"""The process and the machine: console lines, where files lie, signals, GPU locks, provenance.

May import: errors.
"""
