"""Gaussian processes of objectives, one for each:  f_m ~ GP(c_m, s_m k(|u - u'| / l_m)),  k Matern 5/2,
noise of variance v_m.

mean(u) = c + k_u^T (K + v I)^-1 (y - c),   var(u) = s - k_u^T (K + v I)^-1 k_u
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.random import seed_for


@dataclass(frozen=True)
class Surrogate:
    """Posterior in closed form, all M objectives at once.

    A thousand small steps of an optimiser evaluate it, and the fitted model takes ten times as long.

    Fields: U (n, d) inputs; constants, scales, lengths, each (M, 1, 1); alpha (M, n, 1), L (M, n, n): K + v
    I = L L^T; failed: whether a fit failed and left the hyper-parameters of some objective at their start.
    """

    U: Float[Tensor, "n d"]
    constants: Float[Tensor, "M 1 1"]
    scales: Float[Tensor, "M 1 1"]
    lengths: Float[Tensor, "M 1 1"]
    alpha: Float[Tensor, "M n 1"]
    L: Float[Tensor, "M n n"]
    failed: bool

    def __call__(self, u: Float[Tensor, "b d"]) -> tuple[Float[Tensor, "b M"], Float[Tensor, "b M"]]:
        """Mean and standard deviation; differentiable in u."""
        k = self.scales * matern(u, self.U, self.lengths)
        mean = self.constants + k @ self.alpha
        solved = torch.linalg.solve_triangular(self.L, k.mT, upper=False)
        var = (self.scales - solved.square().sum(1).unsqueeze(-1)).clamp_min(1e-12)
        return mean.squeeze(-1).T, var.sqrt().squeeze(-1).T


def matern(
    u: Float[Tensor, "b d"], v: Float[Tensor, "n d"], length: Float[Tensor, "M 1 1"]
) -> Float[Tensor, "M b n"]:
    """k(r) = (1 + z + z^2/3) exp(-z), z = sqrt(5) r, for each length."""
    # cancellation near 0 does not matter, since k is smooth in r^2; at 0 the root has no slope, k has slope 0
    square = u.square().sum(1, keepdim=True) + v.square().sum(1) - 2.0 * u @ v.T
    z = math.sqrt(5.0) * square.clamp_min(1e-20).sqrt() / length
    return (1.0 + z + z.square() / 3.0) * torch.exp(-z)


def fit(U: Float[Tensor, "n d"], Y: Float[Tensor, "n M"], seed: int) -> Surrogate:
    """Hyper-parameters of largest posterior density, by botorch, objective by objective.

    Inputs in [0, 1]^d, outputs of mean 0 and variance 1. One length for all inputs, with the prior that grows
    with sqrt(d) (Hvarfner et al. 2024), so that fifty variables do not leave every pair of points
    uncorrelated; noise >= 1e-4 with botorch's prior.
    """
    models = []
    failed = False
    for m in range(Y.shape[1]):
        model, lost = _fitted(U, Y[:, m : m + 1], seed_for(seed, objective=m))
        models.append(model)
        failed |= lost

    def column(values: list[Tensor]) -> Float[Tensor, "M 1 1"]:
        return torch.stack([v.detach().reshape(1, 1) for v in values])

    constants = column([model.mean_module.constant for model in models])
    scales = column([model.covar_module.outputscale for model in models])
    lengths = column([model.covar_module.base_kernel.lengthscale for model in models])
    noise = column([model.likelihood.noise for model in models])
    K = scales * matern(U, U, lengths) + noise * torch.eye(len(U), dtype=U.dtype)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(Y.T.unsqueeze(-1) - constants, L)
    return Surrogate(U, constants, scales, lengths, alpha, L, failed)


def load() -> None:
    """Import the libraries, which takes seconds, before a clock runs."""
    with warnings.catch_warnings():
        # torch announces the end of torch.jit.script, which linear_operator uses where it is imported
        warnings.filterwarnings("ignore", message=".*torch.jit.script.*")
        import botorch.fit
        import botorch.models  # noqa: F401


def _fitted(U: Float[Tensor, "n d"], y: Float[Tensor, "n 1"], seed: int) -> tuple[Any, bool]:
    """A model, and whether the fit failed."""
    load()
    from botorch.exceptions.errors import ModelFittingError
    from botorch.exceptions.warnings import OptimizationWarning
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.constraints import GreaterThan
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from gpytorch.priors import LogNormalPrior
    from linear_operator.utils.warnings import NumericalWarning

    prior = LogNormalPrior(math.sqrt(2.0) + 0.5 * math.log(U.shape[1]), math.sqrt(3.0))
    bound = GreaterThan(2.5e-2, transform=None, initial_value=prior.mode)
    kernel = ScaleKernel(MaternKernel(nu=2.5, lengthscale_prior=prior, lengthscale_constraint=bound))
    model = SingleTaskGP(U, y, covar_module=kernel, outcome_transform=None)
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
        torch.manual_seed(seed)  # a fit that fails is tried again from random hyper-parameters
        warnings.simplefilter("ignore", OptimizationWarning)  # each try that fails; the last one raises
        warnings.simplefilter("ignore", NumericalWarning)  # jitter on the way
        try:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        except ModelFittingError:
            return model, True
    return model, False
