"""The plan of a sweep: jobs, and the artifacts that they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mobench.jobs.store import JobFolder

if TYPE_CHECKING:
    import mobench.jobs.job


@dataclass
class Planned:
    """One job of a sweep.

    Attributes:
        overrides: what a launcher's worker composes it from.
        config: its plain configuration.
        artifact: the id of the artifact that it belongs to, and `name` what it is called there.
        job: resolved and checked, where this process runs it; None where other processes do.
    """

    overrides: list[str]
    config: dict[str, Any]
    folder: JobFolder
    artifact: str | None = None
    name: str = ""
    job: mobench.jobs.job.Job | None = None

    def take(self) -> mobench.jobs.job.Job:
        """Hands the resolved job over to be run: the plan keeps it no longer, nor what it holds in memory."""
        job = self.job
        assert job is not None
        self.job = None
        return job

    @property
    def needed(self) -> bool:
        """True if it is to be run: it has no finished rows, or they are to be made or logged again."""
        return self.config["rerun"] or self.config["logger"]["finished"] or not self.folder.done

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.artifact or ''} {self.name}".strip()


@dataclass
class Plan:
    """All jobs of a sweep, and the artifacts that are drawn from them.

    Attributes:
        artifacts: the configuration of each artifact, also of those without jobs; `commands`: its overrides.
        refused: of a board, the pairs that do not fit, and why.
        unchanged: artifacts that would come out as they are, and when they were drawn.
        problems: why jobs of a free sweep cannot be run; the others run all the same.
    """

    jobs: list[Planned] = field(default_factory=list)
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    unchanged: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def todo(self) -> list[Planned]:
        """Jobs that are to be run, each once."""
        out: dict[str, Planned] = {}
        for job in self.jobs:
            if job.folder.key not in out and job.needed:
                out[job.folder.key] = job
        return list(out.values())

    def timed(self, job: Planned) -> bool:
        """Returns whether a job's time is measured, so that no other job may run beside it."""
        return job.artifact is not None and bool(self.artifacts[job.artifact]["artifact"]["alone"])
