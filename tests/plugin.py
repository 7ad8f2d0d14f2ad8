"""A plug-in folder outside the repository: one Python and one YAML file for each problem and algorithm."""

from __future__ import annotations

from pathlib import Path

CODE = '''
"""Two objectives with a hole, and methods that fail on purpose."""

import time
from dataclasses import dataclass

import torch

from mobench.core import Problem
from mobench.core.algorithm import Info, Weighting


@dataclass(frozen=True, kw_only=True)
class Hole(Problem):
    """f_m = |x -+ 1|^2, and NaN where x_1 < edge: preferences for f_2 walk into the hole."""

    n: int = 2
    edge: float = 0.0

    @property
    def n_objectives(self):
        return 2

    @property
    def dim(self):
        return self.n

    def values(self, x, batch=None):
        f = torch.stack([(x - 1).square().sum(-1), (x + 1).square().sum(-1)], -1)
        return torch.where(x[:, :1] < self.edge, torch.nan, f)


@dataclass(frozen=True, kw_only=True)
class Stubborn(Weighting):
    """Linear scalarization that says at step `fails_at` that its solve of run `run` failed."""

    fails_at: int = 3
    run: int = 1

    def weights(self, F, G, state, t):
        fail = torch.zeros(len(F), dtype=torch.bool)
        if t == self.fails_at:
            fail[self.run] = True
        return torch.full_like(F, 0.5), state, Info(torch.full((len(F),), 0.125, dtype=torch.float64), fail)


@dataclass(frozen=True, kw_only=True)
class Broken(Weighting):
    """Raises in the middle."""

    def weights(self, F, G, state, t):
        if t == 2:
            raise KeyError("lost")
        return torch.full_like(F, 0.5), state, Info()


@dataclass(frozen=True, kw_only=True)
class Slow(Weighting):
    """Linear scalarization that waits in every step."""

    seconds: float = 0.02

    def weights(self, F, G, state, t):
        time.sleep(self.seconds)
        return torch.full_like(F, 0.5), state, Info()
'''

MODULE = "mobench_plugin_of_the_tests"

CONF = {
    "problem/hole": f"_target_: {MODULE}.Hole\nsteps: 20\nstart: {{kind: uniform, low: 0.3, high: 0.9}}\n",
    "problem/misspelt": f"_target_: {MODULE}.Hole\nsteps: 20\negde: 0.5\n",
    "algorithm/stubborn": f"_target_: {MODULE}.Stubborn\nstep_size: 0.05\n",
    "algorithm/broken": f"_target_: {MODULE}.Broken\nstep_size: 0.05\n",
    "algorithm/slow": f"_target_: {MODULE}.Slow\nstep_size: 0.05\n",
}


def write(folder: Path) -> str:
    """Write code and configuration; return the override that makes Hydra see them."""
    (folder / "code").mkdir(parents=True)
    (folder / "code" / f"{MODULE}.py").write_text(CODE)
    for name, text in CONF.items():
        path = folder / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return f"hydra.searchpath=[file://{folder / 'conf'}]"
