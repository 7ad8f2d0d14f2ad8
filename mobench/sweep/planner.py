"""From a command to its plan: every job composed and checked before the first one starts.

An experiment file lists jobs by name, each a list of overrides:

    jobs:
      epo: [algorithm=epo, protocol=ferero_fig3]
      ferero: [algorithm=ferero, protocol=ferero_fig3, algorithm.subproblem=pgd]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from hydra.types import RunMode

from mobench.config import compose, hydra_adapter, searchpath
from mobench.config.overrides import as_typed, expand_experiments, key_of, names_function, normalise
from mobench.config.schema import choices, conf_dir
from mobench.errors import CompatibilityError, ConfigError, MobenchError
from mobench.jobs.outcome import folder_of, places_of
from mobench.sweep.composer import Composer
from mobench.sweep.grid import matching
from mobench.sweep.plan import Plan, Planned

if TYPE_CHECKING:
    from mobench.jobs.job import Job

GROUPS = ("problem", "oracle", "algorithm", "constraint", "space", "protocol")
LISTS = ("jobs", "grid", "like", "cross")  # keys of an experiment that lists jobs


class Use(Enum):
    """The place where a plan's jobs run: this process, others on this machine, other machines, or nowhere."""

    PROCESS = "process"
    HERE = "here"
    FAR = "far"
    NOWHERE = "nowhere"


def plan(command: Sequence[str]) -> Plan:
    """Returns what `mobench -m COMMAND` would run and draw, with every artifact's jobs.

    Nothing is run, and Hydra's state stays as it is.

    Raises:
        ConfigError, CompatibilityError: with the command line's messages.
    """
    with compose.hydra_errors(), compose.ALONE, hydra_adapter.apart():
        overrides, _ = expand_experiments(normalise(command), searchpath.experiments(command))
        loader = hydra_adapter.loader(str(conf_dir()))
        config = loader.load_configuration(hydra_adapter.CONFIG, overrides, RunMode.MULTIRUN)
        if config.hydra.sweeper["_target_"] != hydra_adapter.SWEEPER:
            raise ConfigError("Only mobench's own sweeper supports planning; omit hydra/sweeper.")
        arguments = [str(o) for o in config.hydra.overrides.task]
        return Planner(Composer(loader, config), Use.NOWHERE).plan(arguments)


def merge(job: Sequence[str], command: Sequence[str], name: str) -> list[str]:
    """Returns the overrides of a job, those of the command line last.

    Raises:
        ConfigError: the command chooses a group again that the job fixes.
    """
    fixed = {key_of(o): o for o in job}
    for override in command:
        key = key_of(override)
        if key in GROUPS and key in fixed:
            raise ConfigError(
                f"The experiment fixes {fixed[key]} for its job {name!r}, so {override} cannot change it. "
                f"Change values such as seeds=[0] or steps=50, or run the job on its own without +experiment."
            )
    taken = {key_of(o) for o in command}
    return [o for o in job if key_of(o) not in taken] + list(command)


@dataclass
class _Command:
    """One combination of a sweep: its overrides, what they compose, and the jobs that it lists.

    Attributes:
        listed: whether the jobs are those of an experiment; else the command itself is the job, without a
            name.
        alone: whether it is the only one, so that a job that cannot run is the end of it.
    """

    overrides: list[str]
    config: dict[str, Any]
    listed: bool
    alone: bool

    @property
    def artifact(self) -> str | None:
        artifact: str | None = self.config["artifact"]["id"]
        return artifact


class Planner:
    """Plans the commands of a sweep.

    Args:
        composer: composes each job.
        use: what the plan is for.
    """

    def __init__(self, composer: Composer, use: Use) -> None:
        self.composer = composer
        self.use = use
        self._resolved: dict[str, Job] = {}

    def plan(self, arguments: Sequence[str]) -> Plan:
        """Composes and checks every job.

        Raises:
            ConfigError, CompatibilityError: with all problems, before anything runs.
        """
        folder = str(self.composer.config.hydra.sweep.dir)
        if folder != ".":
            raise ConfigError(
                f"hydra.sweep.dir={folder} has no effect on where jobs are stored; set "
                "MOBENCH_OUTPUTS=FOLDER in front of the command."
            )
        combinations = self.composer.combinations(arguments)
        chosen = {o for command in combinations for o in command if key_of(o) == "experiment"}
        if len(chosen) > 1:  # of one experiment Hydra has read the parameters already
            combinations = [swept for command in combinations for swept in self.composer.swept(command)]
        out = Plan()
        for overrides in combinations:
            if since := self._unchanged(overrides):
                out.unchanged |= since
                continue
            config = self.composer.compose(overrides)
            listed = config["artifact"]["id"] is not None or any(config[key] for key in LISTS)
            self._add(out, _Command(overrides, config, listed, len(combinations) == 1))
        return out

    def _add(self, out: Plan, command: _Command) -> None:
        """Plans the jobs of one command."""
        config = command.config
        if config["artifact"]["depicts"] not in (None, "data"):
            raise ConfigError(
                f"artifact.depicts must be 'data' or null, not {config['artifact']['depicts']!r}."
            )
        if command.artifact is not None:
            _drawn_here(command.artifact, command.overrides)
            if command.artifact in out.artifacts:
                raise ConfigError(
                    f"{command.artifact} is asked for more than once, with different settings; an artifact "
                    "is drawn from one set of jobs. Run one command for each."
                )
            out.artifacts[command.artifact] = config
            out.commands[command.artifact] = command.overrides
        overrides_of = self._overrides_of_jobs(command)
        jobs = {name: self._job_or_error(command, overrides) for name, overrides in overrides_of.items()}
        from_stored = command.artifact is not None and self._is_drawn_from_stored_rows(command, jobs)
        for name, overrides in overrides_of.items():
            try:
                planned = self._checked(command, jobs[name], from_stored)
            except MobenchError as error:
                _note(out, command, name, error)
                continue
            folder = folder_of(planned)
            ready = planned if self.use is Use.PROCESS else None
            out.jobs.append(Planned(overrides, planned.config.plain, folder, command.artifact, name, ready))

    def _overrides_of_jobs(self, command: _Command) -> dict[str, list[str]]:
        """Overrides of the command's jobs, by name."""
        if not command.listed:
            return {"": command.overrides}
        jobs = self.composer.jobs(command.config)
        only = command.config["artifact"]["only"]
        if only is not None:
            jobs = matching("artifact.only", only, jobs)
        return {
            name: [*merge(normalise(list(job)), command.overrides, name), f"artifact.job={name}"]
            for name, job in jobs.items()
        }

    def _job_or_error(self, command: _Command, overrides: list[str]) -> Job | MobenchError:
        """Returns the job, or the error for which it cannot be made, to be raised with the job's name."""
        from mobench.jobs.build import make_job  # torch, for which `--help` need not wait

        try:
            config = self.composer.compose(overrides) if command.listed else command.config
            # artifacts share jobs, which differ in nothing but the list that they come from
            key = repr({name: value for name, value in config.items() if name not in ("artifact", *LISTS)})
            if key not in self._resolved:
                self._resolved[key] = make_job(config)
            return self._resolved[key].listed_in(config)
        except MobenchError as error:
            return error

    def _checked(self, command: _Command, job_or_error: Job | MobenchError, from_stored: bool) -> Job:
        """Returns the job as it will run; raises what is wrong with it."""
        if isinstance(job_or_error, MobenchError):
            raise job_or_error
        from mobench.jobs.job import check_device

        if self.use in (Use.PROCESS, Use.HERE):
            check_device(job_or_error.config.hardware.device)
        job = job_or_error.keeping_rows() if from_stored else job_or_error
        needed = job.config.rerun or job.config.logger.finished or not folder_of(job).done
        # to show what is there needs no data sets
        if needed and (self.use is not Use.NOWHERE or command.config["cross"]):
            job.check()
        return job

    def _unchanged(self, command: list[str]) -> dict[str, str]:
        """Returns the command's artifact and when it was drawn, if no rows and no code have changed since."""
        chosen = [o.split("=", 1)[1] for o in command if key_of(o) == "experiment"]
        # whether jobs would run again, or hold code from elsewhere, is not known
        unknown = self.composer.added or any(
            key_of(o) == "rerun" or "_target_" in o or names_function(o) for o in command
        )
        if len(chosen) != 1 or self.use is Use.NOWHERE or unknown:
            return {}
        from mobench.artifacts import freshness

        since = freshness.unchanged(chosen[0], command)
        return {} if since is None else {freshness.drawing_id(chosen[0], command): since}

    def _is_drawn_from_stored_rows(self, command: _Command, jobs: Mapping[str, Job | MobenchError]) -> bool:
        """Returns whether an artifact that compares times is drawn from rows that come with the project.

        Such an artifact runs its jobs again, unless the rows of all of its jobs come with the project, from
        one model of processor and one commit, and none are in `outputs`. On a GPU it is timed anew: those
        rows are of processors.
        """
        if not command.config["rerun"] or any(key_of(o) == "rerun" for o in command.overrides):
            return False
        if command.config["hardware"]["device"] != "cpu":
            return False
        origins = set()
        for job in jobs.values():
            if isinstance(job, MobenchError):
                return False
            local, stored = places_of(job)
            if local.done or not stored.done:
                return False
            origins.add(tuple(str(stored.meta().get(name)) for name in ("device", "git_sha", "versions")))
        return len(origins) == 1


def _note(out: Plan, command: _Command, name: str, error: MobenchError) -> None:
    """Notes why a job cannot be run, or raises the error.

    A board shows it, a free sweep reports it and runs the others; any other command ends with it.
    """
    table = bool(command.config["cross"])
    if table and command.artifact is not None and isinstance(error, CompatibilityError):
        out.refused.setdefault(command.artifact, {})[name] = str(error)
        return
    problem = f"{command.artifact or as_typed(command.overrides)} {name}: {error}".replace(" :", ":")
    if command.artifact is not None or (command.alone and not table):
        raise type(error)(problem + getattr(error, "hint", "")) from error
    out.problems.append(problem)


def _drawn_here(artifact: str, command: Sequence[str]) -> None:
    """Raises ConfigError for a user's experiment that calls itself an artifact.

    Nothing draws it, and claims of the project's artifacts are made for the project's settings.
    """
    experiments = [o.split("=", 1)[1] for o in command if key_of(o) == "experiment"]
    if experiments and not set(experiments) & set(choices("experiment")):
        raise ConfigError(
            f"The experiment {experiments[0]!r} sets artifact.id={artifact}, but artifacts are drawn by the "
            f"files of experiments/ that come with mobench. Omit `artifact` (or set artifact: {{id: null}}); "
            "the jobs run without it."
        )
