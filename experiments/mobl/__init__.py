"""Multi-objective bilevel learning (WC-MHGD): few-shot learning, hyper-cleaning, the quadratic problem.

The paper prints no number: its claims are orderings and rates, and their criteria were fixed before the runs
that they judge. A change of a setting counts where it is larger than a threshold fixed before the runs and
its 95 % interval over the seeds excludes 0. Everything else is flat, and "grows" or "is larger" is not
reproduced by a flat change.
"""
