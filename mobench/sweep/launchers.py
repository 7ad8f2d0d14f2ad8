"""Adapters of Hydra's launchers: their settings, how many jobs run at once, and their answers.

Written for Hydra's basic launcher (hydra-core 1.3), hydra-joblib-launcher 1.2, hydra-submitit-launcher 1.2
and submitit 1.5. `adapter_of` chooses by the class that the configuration names; a launcher that is
not listed is used as Hydra uses it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any, ClassVar

from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from mobench.errors import ConfigError
from mobench.sweep.plan import Planned
from mobench.system.paths import outputs_root


class Adapter:
    """A launcher that needs nothing in particular.

    Attributes:
        here: whether jobs run in this process.
        far: whether other machines run them.
        pooled: whether its workers are a pool, which is lost with one of them.
    """

    here: ClassVar[bool] = False
    far: ClassVar[bool] = False
    pooled: ClassVar[bool] = False

    def __init__(self, launcher: Any) -> None:
        self.launcher = launcher

    def at_once(self, jobs: int) -> int:
        """Returns how many of the jobs run beside each other on one machine."""
        return 1

    def prepare(self, jobs: Sequence[Planned], at_once: int) -> None:
        """Tells the launcher what depends on the jobs.

        Raises:
            ConfigError: it cannot be used on this machine.
        """

    def launch(self, overrides: Sequence[list[str]]) -> Sequence[Any]:
        """Returns an answer for each job: Hydra's JobReturn, or the exception that stands for it."""
        answers: Sequence[Any] = self.launcher.launch(list(overrides), initial_job_idx=0)
        return answers


class InProcess(Adapter):
    """Hydra's basic launcher: one job after the other.

    mobench runs them itself, since it has resolved them already.
    """

    here = True


class Joblib(Adapter):
    """A pool of processes on this machine, which live on from one launch to the next."""

    pooled = True

    def __init__(self, launcher: Any) -> None:
        super().__init__(launcher)
        self.started_for: int | None = None  # number of jobs at once that the workers were started with

    def at_once(self, jobs: int) -> int:
        limit = self.launcher.joblib.get("n_jobs")
        if limit is None:
            return 1
        return min(jobs, limit if limit > 0 else max(1, (os.cpu_count() or 1) + 1 + limit))

    def prepare(self, jobs: Sequence[Planned], at_once: int) -> None:
        if self.started_for not in (None, at_once):
            from joblib.externals.loky import get_reusable_executor

            # its workers keep the environment in which they were started
            get_reusable_executor().shutdown(wait=True)
        self.started_for = at_once


class Submitit(Adapter):
    """A process or a Slurm job for each, with its requeueing.

    The launcher's `launch` collects results one after the other, and stops at the first job that died while
    others still run. Here each job answers, with its error if it has one.
    """

    def prepare(self, jobs: Sequence[Planned], at_once: int) -> None:
        params = self.launcher.params
        if "/.submitit/" in str(params.get("submitit_folder")):  # the default: in the working folder
            params["submitit_folder"] = str(outputs_root() / "submitit" / "%j")
        # read when it is imported
        os.environ["SUBMITIT_PREEMPT_SIGNAL"] = jobs[0].config["checkpoint"]["signal"]

    def launch(self, overrides: Sequence[list[str]]) -> Sequence[Any]:
        state = Singleton.get_state()
        calls = [
            (list(job), "hydra.sweep.dir", number, f"job_id_for_{number}", state)
            for number, job in enumerate(overrides)
        ]
        jobs = self._executor().map_array(self.launcher, *zip(*calls, strict=True))
        return [_answer(job) for job in jobs]

    def _executor(self) -> Any:
        """Returns submitit's executor, with the parameters that the launcher's `launch` sets."""
        import submitit
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

        kind = self.launcher._EXECUTOR
        params = dict(self.launcher.params)
        options = {"folder": params.pop("submitit_folder")}
        if "max_num_timeout" in params:
            options[f"{kind}_max_num_timeout"] = params.pop("max_num_timeout")
        executor = submitit.AutoExecutor(cluster=kind, **options)
        common = set(OmegaConf.structured(BaseQueueConf).keys())
        executor.update_parameters(**{k if k in common else f"{kind}_{k}": v for k, v in params.items()})
        return executor


class SubmititLocal(Submitit):
    """All jobs at once, each a process on this machine."""

    def at_once(self, jobs: int) -> int:
        return jobs

    def prepare(self, jobs: Sequence[Planned], at_once: int) -> None:
        super().prepare(jobs, at_once)
        if jobs[0].config["hardware"]["device"].startswith("cuda"):
            import torch

            # else submitit hides all of them
            self.launcher.params["gpus_per_node"] = torch.cuda.device_count()


class Slurm(Submitit):
    """Jobs in the queue of a cluster."""

    far = True

    def prepare(self, jobs: Sequence[Planned], at_once: int) -> None:
        if shutil.which("sbatch") is None:
            raise ConfigError(
                "hardware=slurm needs Slurm's commands, but sbatch is not on the PATH. Run mobench on a "
                "login node of the cluster, or choose hardware=cpu, "
                "with hydra/launcher=joblib to run several jobs in parallel."
            )
        super().prepare(jobs, at_once)


ADAPTERS: dict[str, type[Adapter]] = {
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher": InProcess,
    "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher": Joblib,
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher": SubmititLocal,
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher": Slurm,
}


def adapter_of(config: DictConfig, context: HydraContext, worker: TaskFunction) -> Adapter:
    """Returns the launcher that a configuration names, as mobench uses it.

    Args:
        worker: runs one job in a launcher's process, so it is a function of a module.
    """
    launcher = Plugins.instance().instantiate_launcher(
        hydra_context=context, task_function=worker, config=config
    )
    return ADAPTERS.get(str(config.hydra.launcher["_target_"]), Adapter)(launcher)


def _answer(job: Any) -> Any:
    """The outcome of a submitit job: its result, or the error that stands for it."""
    from submitit.core.utils import FailedJobError

    try:
        return job.results()[0]
    except FailedJobError as error:  # an exception that no job of ours lets through
        return str(error)
    # no answer, or none that can be read; the others still run and are waited for
    except Exception as error:  # noqa: BLE001
        return error
