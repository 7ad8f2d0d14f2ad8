"""Artifacts: a figure or table of a paper, its claims with verdicts, and where it came from.

outputs/artifacts/<paper>/<id>/  figure.png (figure.pdf) table.csv table.md table.tex claims.json
provenance.json

What the packages in `experiments/` draw with: `artifact` (a drawing function and what it gets), `rows` (of
jobs), `checks` and `claims` (what is judged, and its texts), `statistics`, `published` (printed numbers),
`panels`, `radar` and `style` (pictures).

May import: config, jobs, system, errors.
"""

from mobench.artifacts.artifact import Artifact, artifact, registered
from mobench.artifacts.claims import Claim
from mobench.artifacts.drawing import draw
from mobench.artifacts.rows import JobRows, RunCount

__all__ = ["Artifact", "Claim", "JobRows", "RunCount", "artifact", "draw", "registered"]
