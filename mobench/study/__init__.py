"""Rows of one's own: those of many jobs with their settings, summarised, drawn, and one of them chosen.

`mobench.rows`, `mobench.table`, `mobench.plot` and `mobench.choose` are here.

May import: api, artifacts, config, jobs, metrics, system, errors.
"""
