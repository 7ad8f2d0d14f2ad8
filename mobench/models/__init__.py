"""Networks of R runs at once, as functions of stacked parameters (R, P).

May import: core, kernels, errors.
"""

from mobench.models.convnet import EXECUTIONS, MODELS, ConvNet, for_device

__all__ = ["EXECUTIONS", "MODELS", "ConvNet", "for_device"]
