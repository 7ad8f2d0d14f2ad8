"""The sweeper: expands command-line sweeps and an experiment's jobs, and runs them through any Hydra
launcher.

Every job is composed and checked before the first one starts; equal jobs, also of different artifacts, run
once; finished ones are not launched. A failing job does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from mobench.config import direct, hydra_adapter
from mobench.jobs.outcome import Outcome
from mobench.sweep.composer import Composer
from mobench.sweep.launch import launch
from mobench.sweep.launchers import Adapter, adapted
from mobench.sweep.plan import Plan
from mobench.sweep.planner import Planner, Use


class JobsSweeper(Sweeper):
    """Hydra sweeper of mobench (`hydra/sweeper: jobs`).

    It says nothing: the command line calls `plan` and `launch`, and prints.
    """

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = dict(params or {})  # the planner reads them from the configuration

    adapter: Adapter
    composer: Composer

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.composer = Composer(hydra_context.config_loader, config)
        if self.composer.direct:
            ready = hydra_adapter.ReadyLoader(hydra_context.config_loader, direct.composed)
            hydra_context = HydraContext(config_loader=ready, callbacks=hydra_context.callbacks)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        self.adapter = adapted(launcher, config)

    def plan(self, arguments: Sequence[str]) -> Plan:
        """Composes and checks every job.

        Raises ConfigError or CompatibilityError with all problems, before anything runs.
        """
        use = Use.PROCESS if self.adapter.here else Use.FAR if self.adapter.far else Use.HERE
        return Planner(self.composer, use).plan(arguments)

    def launch(self, plan: Plan, say: Callable[[str], None]) -> list[Outcome]:
        """Runs what is left to do of a plan; `say` is told what happens meanwhile."""
        return launch(plan, self.adapter, say)

    def sweep(self, arguments: list[str]) -> Any:
        """Plans and launches, and returns both results, where Hydra itself is in charge."""
        plan = self.plan(arguments)
        return plan, self.launch(plan, lambda line: None)
