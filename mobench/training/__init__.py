"""Any method inside a training loop of your own.

    weights, info = mobench.solve("upgrad", jacobian)                     one step's weights
    optimizer = mobench.Balanced(torch.optim.AdamW(net.parameters()), "ferero", preference=[0.3, 0.7])
    optimizer.step([loss_1, loss_2])                                      or all of a step but the losses

Both call the classes that `mobench` runs, with the same subproblem solvers and certificates; names and
options are those of the command line (`algorithm=NAME`, `algorithm.KEY=VALUE`).

May import: config, core, errors, jobs, kernels.
"""

from mobench.core import gram
from mobench.kernels import rows
from mobench.training.optimizer import Balanced
from mobench.training.solving import Info, solve

__all__ = ["Balanced", "Info", "solve"]

gram.use(rows.gram, rows.cancelled)  # for the points that these make
