"""Plain reference loops: one run at a time, NumPy/SciPy/CVXPY only, written from the specifications.

Nothing here imports the package under test. The loops serve as the independent implementation that
trajectories are compared with, and as the slow side of the speed ratios.
"""
