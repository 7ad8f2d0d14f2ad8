"""Every algorithm on every problem that it fits. Ours, not a paper's.

Shares of the attainable hypervolume, alignment, worst objective, stationarity, violation, time, and ranks
with bootstrap intervals over the seeds. The rules and tolerances were fixed before any run; settings of the
suites were changed after the first ones: the slowest decay of theory for CSMOO and its baseline where there
is no noise (the paper's stops too early there), boxes of the population methods, numbers of steps, step sizes
for the images.

Protocol. All methods get the same starts, preferences, seeds and number of steps. Where runs of a batch can
differ in their step size, all of `cross.step_sizes` are run and one is chosen on the first seeds (two of
five): the one with the most finished, feasible runs, among equals the one with the best score; none if no run
counts at any of them. The other seeds are reported. Methods with a schedule of their own keep it. Seeds that
choose are reported for no method.
"""
