"""CSMOO: the synthetic problem of Section 5.1 and Appendix E, beamforming of Section 5.2, rates of Theorem 1.

Criteria were written down before the runs that they judge. Where a statement is about single runs it is
judged by a share of 100 of them; the shares leave room: a pilot with seeds 0 to 99 passes all but the
statements that are noted as contradicted, and the runs that judge have seeds 100 to 199. Figures 1, 2 (its
analytic z) and 38 and `csmoo/finals` run the paper's five seeds, 0 to 4, which the pilot had as well.
"""
