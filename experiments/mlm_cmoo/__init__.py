"""MLM-CMOO: Table 1, Figure 1, and the theorem's rates on problems with known answers.

Criteria were fixed before the first run.
"""
