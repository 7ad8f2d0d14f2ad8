"""Artifacts: a figure or table of a paper, its claims with verdicts, and where it came from.

outputs/artifacts/<paper>/<id>/  figure.pdf figure.png table.csv table.md table.tex claims.json
provenance.json

May import: config, jobs, system, errors.
"""

from mobench.artifacts.artifact import Artifact, Claim, JobRows, Runs, artifact, draw, registered

__all__ = ["Artifact", "Claim", "JobRows", "Runs", "artifact", "draw", "registered"]
