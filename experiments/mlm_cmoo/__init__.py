"""MLM-CMOO: Table 1, Figure 1, and the theorem's rates on problems with known answers.

Criteria are those of the specification, fixed before the first run.
"""
