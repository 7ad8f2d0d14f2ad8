"""FERERO: the toy problem (Figures 1 to 4, 7, 8 and tables), images (Figures 5 and 6), speech (Table 3).

Criteria were fixed before the runs that they judge; `runs` has the rule for the toy problem.
"""
