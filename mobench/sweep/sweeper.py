"""The sweeper: expands command-line sweeps and an experiment's `jobs`, runs them through any Hydra launcher,
draws.

An experiment file lists jobs by name, each a list of overrides:

    jobs:
      epo: [algorithm=epo, protocol=ferero_fig3]
      ferero: [algorithm=ferero, protocol=ferero_fig3, algorithm.subproblem=pgd]

Every job is composed and checked before the first one starts; equal jobs, also of different artifacts, run
once; finished ones are not launched. A failing job does not stop the others.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from mobench.config import searchpath
from mobench.config.overrides import normalise, shown
from mobench.config.schema import choices, conf_dir, plain
from mobench.errors import CompatibilityError, ConfigError, Interrupted, MobenchError, choose
from mobench.jobs.build import make_job
from mobench.jobs.job import Job, check_device
from mobench.jobs.run import Outcome, finished, folder_of, places_of, run
from mobench.sweep import cross_table, grid
from mobench.sweep.plan import Plan, Planned
from mobench.system import workers
from mobench.system.console import fail, say
from mobench.system.paths import outputs_root

GROUPS = ("problem", "oracle", "algorithm", "constraint", "space", "protocol")


def _key(override: str) -> str:
    return override.split("=", 1)[0].lstrip("+~")


def _is_group(loader: Any, key: str) -> bool:
    """Whether an override chooses a file."""
    return bool(loader.repository.group_exists(key))


@functools.cache
def _jobs_only(name: str) -> dict[str, Any] | None:
    """The file of an experiment, if it sets nothing but its artifact and its jobs or cross table (the mode is
    known: a sweep).

    Values of a job may hold interpolations: each job is composed with them as with any override.
    """
    node = _file(name)
    if node is None or set(node) - {"artifact", "jobs", "grid", "like", "cross", "hydra"}:
        return None
    if "${" in str({key: value for key, value in node.items() if key not in ("jobs", "grid", "cross")}):
        return None
    listed = {str(key): node[key] for key in ("artifact", "cross") if key in node}
    return {**listed, "jobs": grid.expanded(node, jobs_of)}


def _file(name: str) -> dict[Any, Any] | None:
    """The file of an experiment of the project as it is written, None if there is none."""
    path = conf_dir() / "experiment" / f"{name}.yaml"
    node = OmegaConf.to_container(OmegaConf.load(path)) if path.exists() else None
    return node if isinstance(node, dict) else None


def jobs_of(name: str) -> dict[str, list[str]]:
    """The jobs of an experiment of the project, by name.

    Raises ConfigError if there is no such experiment.
    """
    node = _file(choose("like", name, choices("experiment")))
    return grid.expanded(node or {}, jobs_of)


def _at_scale(node: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """The node with ${at:...} resolved for the scale of a configuration."""
    found = OmegaConf.to_container(OmegaConf.create({"scale": config["scale"], "node": node}), resolve=True)
    assert isinstance(found, dict)
    return dict(found["node"])


def merge(job: Sequence[str], command: Sequence[str], name: str) -> list[str]:
    """Overrides of a job, those of the command line last;
    a group that the job fixes cannot be chosen again.
    """
    fixed = {_key(o): o for o in job}
    for override in command:
        key = _key(override)
        if key in GROUPS and key in fixed:
            raise ConfigError(
                f"The experiment fixes {fixed[key]} for its job {name!r}; {override} cannot change it. "
                f"Change values (seeds=[0], steps=50), or run the job on its own without +experiment."
            )
    taken = {_key(o) for o in command}
    return [o for o in job if _key(o) not in taken] + list(command)


def _drawn_here(artifact: str, command: Sequence[str]) -> None:
    """Raise ConfigError for an experiment of a user's own that calls itself an artifact: nothing draws it,
    and claims of the project's artifacts are made for the project's settings.
    """
    own = [o.split("=", 1)[1] for o in command if _key(o) == "experiment"]
    if own and not set(own) & set(choices("experiment")):
        raise ConfigError(
            f"The experiment {own[0]!r} sets artifact.id={artifact}, but artifacts are drawn by the files of "
            f"experiments/ that come with mobench. Leave `artifact` away (or set artifact: {{id: null}}): "
            "its jobs run all the same."
        )


class JobsSweeper(Sweeper):
    """Hydra sweeper of mobench (`hydra/sweeper: jobs`)."""

    only: ClassVar[list[Plan] | None] = None  # takes the plan, and nothing runs

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = dict(params or {})
        self.told: int | None = None  # number of jobs at a time that joblib's workers were started with
        self._plain: dict[tuple[str, ...], dict[str, Any]] = {}
        self._bases: dict[tuple[str, ...], DictConfig] = {}

    launcher: Launcher
    hydra_context: HydraContext
    config: DictConfig

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    @property
    def far(self) -> bool:
        """Whether other machines run the jobs."""
        return type(getattr(self, "launcher", None)).__name__ == "SlurmLauncher"

    def _composed(self, overrides: Sequence[str]) -> dict[str, Any]:
        """What Hydra composes, which takes a fifth of a second: once for equal choices of groups.

        Values are laid over it as Hydra does, after all files, and none of the files knows them yet.
        """
        key = tuple(overrides)
        if key not in self._plain:
            loader = self.hydra_context.config_loader
            parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))
            chosen = [
                o
                for o in parsed
                if o.get_key_element().startswith("hydra") or _is_group(loader, o.key_or_group)
            ]
            lines = [str(o.input_line) for o in chosen]
            config = self._laid(lines) or copy.deepcopy(self._base(lines))
            ConfigLoaderImpl._apply_overrides_to_config([o for o in parsed if o not in chosen], config)
            self._plain[key] = plain(config)
        return self._plain[key]

    def _base(self, lines: Sequence[str]) -> DictConfig:
        """What Hydra composes from choices of groups."""
        if tuple(lines) not in self._bases:
            base = self.hydra_context.config_loader.load_sweep_config(self.config, list(lines))
            with open_dict(base):
                del base["hydra"]
            self._bases[tuple(lines)] = base
        return self._bases[tuple(lines)]

    def _laid(self, lines: Sequence[str]) -> DictConfig | None:
        """The same for one algorithm of many on the same problem: its file in place of another one's, where
        no protocol has tuned settings for it and the file is nothing but keys.
        """
        own = [o for o in lines if _key(o) == "algorithm"]
        rest = [o for o in lines if _key(o) != "algorithm"]
        if len(own) != 1 or own[0][0] in "+~":
            return None
        name, repository = own[0].split("=", 1)[1], self.hydra_context.config_loader.repository  # type: ignore[attr-defined]
        base = self._base(rest)
        if base["protocol"] != "none" or repository.config_exists(f"tuned/none/{name}"):
            return None
        found = repository.load_config(f"algorithm/{name}")
        if found is None or found.header["package"] is not None or "defaults" in found.config:
            return None
        config = copy.deepcopy(base)
        with open_dict(config):
            config["algorithm"] = copy.deepcopy(found.config)
        return config

    def _compose(self, overrides: list[str]) -> dict[str, Any]:
        """The plain configuration.

        An experiment that does nothing but list jobs is laid over what the rest composes.
        """
        chosen = [o for o in overrides if _key(o) == "experiment"]
        listed = _jobs_only(chosen[0].split("=", 1)[1]) if len(chosen) == 1 else None
        if listed is None:
            return self._composed(overrides)
        named = [o.split("=", 1)[1] for o in overrides if _key(o) == "artifact.job"]
        rest = [o for o in overrides if o not in chosen and _key(o) != "artifact.job"]
        config = self._composed(rest)
        artifact = config["artifact"] | listed.get("artifact", {}) | ({"job": named[-1]} if named else {})
        table = cross_table.merged(_at_scale(listed.get("cross", {}), config), config["cross"])
        return {
            **config,
            "artifact": artifact,
            "jobs": listed["jobs"],
            "grid": None,
            "like": None,
            "cross": table,
        }

    def _jobs(self, config: dict[str, Any]) -> dict[str, list[str]]:
        """The named jobs of an artifact, or the pairs of its cross table."""
        if not config["cross"]:
            return grid.expanded(config, jobs_of)
        repository = self.hydra_context.config_loader.repository  # type: ignore[attr-defined]

        def target(name: str) -> str:
            found = repository.load_config(f"algorithm/{name}")  # None: in a folder of hydra.searchpath
            return str(
                (found.config if found else self._base([f"algorithm={name}"])["algorithm"])["_target_"]
            )

        def suite(name: str) -> dict[str, Any]:
            found = (_jobs_only(name) or {}).get("cross")
            if not found:
                raise ConfigError(f"cross.suites: {name!r} is no experiment with a cross table.")
            return _at_scale(found, config)

        added = [searchpath.folder(name) for name in self._added]
        algorithms = choices("algorithm", *(path for path in added if path is not None))
        return cross_table.pairs(config["cross"], algorithms, target, suite)

    @property
    def _added(self) -> list[str]:
        """What `--config-dir` and `hydra.searchpath` add to the project's folder of configuration."""
        given = self.hydra_context.config_loader.get_search_path().get_path()
        return [item.path for item in given if item.provider == "command-line"] + list(
            self.config.hydra.searchpath
        )

    def _unchanged(self, command: list[str]) -> dict[str, str]:
        """The command's artifact and when it was drawn,
        if neither its rows nor any code has changed since.
        """
        chosen = [o.split("=", 1)[1] for o in command if _key(o) == "experiment"]
        # whether jobs would run again, or hold code from elsewhere, is not known
        if (
            len(chosen) != 1
            or self.only is not None
            or self._added
            or any(_key(o) == "rerun" or "_target_" in o for o in command)
        ):
            return {}
        from mobench.artifacts import freshness

        since = freshness.unchanged(chosen[0], command)
        return {} if since is None else {chosen[0]: since}

    def _kept_together(self, config: dict[str, Any], command: list[str], jobs: Sequence[Job]) -> bool:
        """Whether an artifact that runs its jobs again, since it compares their times, is drawn from rows
        that come with the project: if those of all of its jobs do, from one model of processor and one
        commit, and none are in `outputs`.
        """
        if not config["rerun"] or any(_key(o) == "rerun" for o in command):
            return False
        origins = set()
        for job in jobs:
            own, kept = places_of(job)
            if own.done or not kept.done:
                return False
            origins.add(tuple(str(kept.meta().get(name)) for name in ("device", "git_sha", "versions")))
        return len(origins) == 1

    def _swept(self, command: list[str]) -> list[list[str]]:
        """A command with what the user's own experiment in it sweeps (`hydra.sweeper.params`)."""
        own = [
            o for o in command if _key(o) == "experiment" and o.split("=", 1)[1] not in choices("experiment")
        ]
        if not own:
            return [command]
        loader = self.hydra_context.config_loader
        params = loader.load_sweep_config(self.config, own)["hydra"]["sweeper"]["params"] or {}
        swept = [*normalise([f"{k}={v}" for k, v in params.items()]), *command]
        (combinations,) = BasicSweeper.split_arguments(
            OverridesParser.create(config_loader=loader).parse_overrides(swept), None
        )
        return list(combinations)

    def plan(self, arguments: list[str]) -> Plan:
        """Compose and check every job.

        Raises ConfigError or CompatibilityError with all problems, before anything runs.
        """
        if str(self.config.hydra.sweep.dir) != ".":
            raise ConfigError(
                f"hydra.sweep.dir={self.config.hydra.sweep.dir} has no effect: jobs lie in "
                "$MOBENCH_OUTPUTS/runs (else in outputs/runs), named by their settings. Choose another "
                "place with MOBENCH_OUTPUTS=FOLDER."
            )
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        swept = [*normalise([f"{k}={v}" for k, v in self.params.items()]), *arguments]
        (combinations,) = BasicSweeper.split_arguments(parser.parse_overrides(swept), None)
        plan = Plan()
        problems = []
        chosen = {o for command in combinations for o in command if _key(o) == "experiment"}
        if len(chosen) > 1:  # of one experiment Hydra has read the parameters already
            combinations = [found for command in combinations for found in self._swept(command)]
        for command in combinations:
            if since := self._unchanged(command):
                plan.unchanged |= since
                continue
            config = self._compose(command)
            artifact = config["artifact"]["id"]
            named: dict[str, list[str]] = {"": command}
            listed = artifact is not None or any(config[key] for key in ("jobs", "grid", "like", "cross"))
            if config["artifact"]["depicts"] not in (None, "data"):
                raise ConfigError(
                    f"artifact.depicts is 'data' or nothing, not {config['artifact']['depicts']!r}."
                )
            if artifact is not None:
                _drawn_here(artifact, command)
                plan.artifacts[artifact] = config
                plan.commands[artifact] = command
            if listed:
                named = {
                    name: [*merge(normalise(list(job)), command, name), f"artifact.job={name}"]
                    for name, job in self._jobs(config).items()
                }
            jobs: dict[str, Job | MobenchError] = {}
            for name, overrides in named.items():
                try:
                    jobs[name] = make_job(self._compose(overrides) if listed else config)
                except MobenchError as error:
                    jobs[name] = error
            made = [job for job in jobs.values() if isinstance(job, Job)]
            kept = (
                artifact is not None and len(made) == len(jobs) and self._kept_together(config, command, made)
            )
            for name, overrides in named.items():
                try:
                    job = jobs[name]
                    if isinstance(job, MobenchError):
                        raise job
                    check_device(job.config["hardware"]["device"], here=not self.far and self.only is None)
                    if kept:
                        job = job.keeping_rows()
                    folder = folder_of(job)
                    # to show what is there needs no data sets
                    if (self.only is None or config["cross"]) and (job.config["rerun"] or not folder.done):
                        job.check()
                except MobenchError as error:
                    if config["cross"] and artifact is not None and isinstance(error, CompatibilityError):
                        plan.refused.setdefault(str(artifact), {})[name] = str(error)  # shown in the table
                        continue
                    # in a free sweep a pair that does not fit is reported, and the others still run
                    problems.append(f"{artifact or shown(command)} {name}: {error}".replace(" :", ":"))
                    alone = len(combinations) == 1 and not config["cross"]
                    if artifact is not None or alone:
                        raise type(error)(problems[-1]) from error
                    continue
                plan.jobs.append(Planned(overrides, job, folder, artifact, name))
        self.refused = problems
        return plan

    def sweep(self, arguments: list[str]) -> Any:
        from mobench.sweep import messages

        plan = self.plan(arguments)
        if self.only is not None:
            self.only.append(plan)
            for reason in self.refused:
                fail(f"not run: {reason}", code=2)
            return []
        todo: dict[str, Planned] = {}
        for job in plan.jobs:
            if job.folder.key not in todo and (job.config["rerun"] or not job.folder.done):
                todo[job.folder.key] = job
        messages.announce(plan, len(todo))
        beside: list[Planned] = []
        alone: list[Planned] = []
        for job in todo.values():
            timed = (
                job.artifact is not None
                and plan.artifacts[job.artifact]["artifact"]["alone"]
                and not self.far
            )
            (alone if timed else beside).append(job)
        groups = ([beside] if beside else []) + [[job] for job in alone]
        outcomes = {outcome.key: outcome for group in groups for outcome in self._launch(group)}
        return messages.finish(plan, outcomes, self.refused)

    def _launch(self, jobs: list[Planned]) -> list[Outcome]:
        if type(self.launcher).__name__ == "BasicLauncher":
            # Hydra imports its plug-ins under their own names, so isinstance does not know it. In this
            # process the composed configurations can be used as they are.
            return [run(j.job, title=j.title) for j in jobs]
        try:
            with workers.told(since=time.time()):
                return self._until_answered(jobs)
        except KeyboardInterrupt:
            if self.far:
                raise Interrupted(
                    "Stopped waiting. Jobs that are in Slurm's queue go on (`squeue --me`; `scancel` stops "
                    "them); `mobench-status` shows them, and once they have ended the same command does the "
                    "rest."
                ) from None
            raise

    def _until_answered(self, jobs: list[Planned]) -> list[Outcome]:
        """Launch jobs, and again those whose workers died."""
        outcomes: dict[str, Outcome] = {}
        tries: Counter[str] = Counter()
        groups = [jobs] if jobs else []
        while groups:
            group = groups.pop(0)
            began = time.time()
            found = self._launched(group)
            outcomes |= {outcome.key: outcome for outcome in found}
            lost = [job for job, o in zip(group, found, strict=True) if isinstance(o, Lost)]
            # with joblib all of a pool's jobs are lost with one worker: those that had begun are suspects
            begun = [job for job in lost if job.folder.status().get("time", 0.0) >= began] or lost
            tries.update(job.folder.key for job in begun)
            left = {job.folder.key: job.config["hardware"]["retries"] - tries[job.folder.key] for job in lost}
            # the last time they run alone, so that no job fails for its neighbour
            alone = [
                [job]
                for job in lost
                if left[job.folder.key] == 0 and job in begun and hasattr(self.launcher, "joblib")
            ]
            together = [job for job in lost if left[job.folder.key] >= 0 and [job] not in alone]
            groups += [g for g in (together, *alone) if g]
            if groups and lost:
                gone = "killed, out of memory or with its machine"
                say(
                    f"{len(lost)} jobs lost their worker ({gone}); launched again: "
                    f"{len(together) + len(alone)}"
                )
        return list(outcomes.values())

    def _launched(self, jobs: list[Planned]) -> list[Outcome]:
        """One Outcome for each job, whatever became of the launcher's workers."""
        if self.far and shutil.which("sbatch") is None:
            raise ConfigError(
                "hardware=slurm needs Slurm's commands, and sbatch is not on the PATH: call mobench on a "
                "login node of the cluster, or choose hardware=cpu, "
                "with hydra/launcher=joblib for several jobs at a time."
            )
        began = time.time()
        params = getattr(self.launcher, "params", {})
        if "/.submitit/" in str(params.get("submitit_folder")):  # the default: in the working folder
            params["submitit_folder"] = str(outputs_root() / "submitit" / "%j")
        if type(self.launcher).__name__ == "LocalLauncher" and jobs[0].config["hardware"][
            "device"
        ].startswith("cuda"):
            params["gpus_per_node"] = torch.cuda.device_count()  # else submitit hides all of them
        os.environ["SUBMITIT_PREEMPT_SIGNAL"] = jobs[0].config["checkpoint"]["signal"]
        count = at_once(self.launcher, len(jobs))
        if self.told not in (None, count) and hasattr(self.launcher, "joblib"):
            from joblib.externals.loky import get_reusable_executor

            # its workers keep the environment in which they were started
            get_reusable_executor().shutdown(wait=True)
        self.told = count
        try:
            with workers.told(parallel=count), answering():
                returns: Sequence[JobReturn | Exception | str] = self.launcher.launch(
                    [j.overrides for j in jobs], initial_job_idx=0
                )
        # a worker that dies takes joblib's pool with it: the folders know what was done
        except Exception as error:  # noqa: BLE001
            returns = [error] * len(jobs)
        return [_outcome(r, j, began) for r, j in zip(returns, jobs, strict=True)]


class Lost(Outcome):
    """The worker died and left no answer."""


def at_once(launcher: Launcher, jobs: int) -> int:
    """How many of the jobs a launcher runs beside each other on one machine."""
    limit = getattr(launcher, "joblib", {}).get("n_jobs")
    if limit is not None:
        return min(jobs, limit if limit > 0 else max(1, (os.cpu_count() or 1) + 1 + limit))
    return jobs if type(launcher).__name__ == "LocalLauncher" else 1


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """submitit's launcher asks its jobs for results one after the other, and the first that died ends the
    asking while others still run. Here such a job answers with its error.
    """
    try:
        import submitit
        from submitit.core.utils import FailedJobError
    except ImportError:
        yield
        return

    class Answer:
        def __init__(self, job: Any) -> None:
            self.job = job

        def results(self) -> list[Any]:
            try:
                return list(self.job.results())
            except FailedJobError as error:  # an exception that no job of ours lets through
                return [str(error)]
            # no answer, or none that can be read; others still run, and are asked
            except Exception as error:  # noqa: BLE001
                return [error]

    original = submitit.AutoExecutor.map_array

    def map_array(*args: Any, **kwargs: Any) -> list[Any]:
        return [Answer(job) for job in original(*args, **kwargs)]

    with patch.object(submitit.AutoExecutor, "map_array", map_array):
        yield


def _outcome(returned: JobReturn | Exception | str, job: Planned, began: float) -> Outcome:
    """What a launcher brought back. Where a worker left no answer, its folder has one, or the job is lost."""
    folder = job.folder
    value: Any = returned
    if isinstance(value, JobReturn):
        try:
            # Hydra prints a line of its own about an exception
            with contextlib.redirect_stderr(io.StringIO()):
                value = value.return_value
        # whatever a worker raised is this job's failure, and is reported
        except Exception as error:  # noqa: BLE001
            value = f"{type(error).__name__}: {error}"
    if isinstance(value, Outcome):
        return value
    done = _written(job, began)
    if done is not None:
        return done
    text = str(value)
    last = text.strip().splitlines()[-1] if text.strip() else ""
    if isinstance(value, Exception):
        cancelled = "state: CANCELLED" in text
        text = f"{type(value).__name__}: {last}"
        if (
            isinstance(value, BrokenExecutor) or type(value).__name__ == "UncompletedJobError"
        ) and not cancelled:
            return Lost(folder.key, "failed", folder.path, error=f"its worker died ({text})", title=job.title)
        text = "it was cancelled (scancel)" if cancelled else f"the launcher failed ({text})"
    if "timed-out too many times" in text:
        text = f"its time limit ended too often; raise hydra.launcher.max_num_timeout or timeout_min. {last}"
    return Outcome(folder.key, "failed", folder.path, error=text, title=job.title)


def _written(job: Planned, began: float) -> Outcome | None:
    """What the job's folder says of this sweep: done, failed, or nothing."""
    folder = job.folder
    status = job.folder.status()
    now = float(status.get("time", 0.0)) >= began
    if folder.done and (now or not job.config["rerun"]):
        return finished(folder, title=job.title)
    if status["status"] == "failed" and now:
        return Outcome(folder.key, "failed", folder.path, error=str(status.get("error")), title=job.title)
    return None
