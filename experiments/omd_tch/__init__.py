"""OMD-TCH: VLMOP2 (Figures 1, 2, 4), federated learning (the others, Tables 1, 2), convergence bounds.

Acceptance criteria were fixed before the runs that they judge; see docs/results.md.
"""
