"""What a sweep is going to do: jobs, and the artifacts that they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mobench.jobs.job import Job
from mobench.jobs.store import JobFolder


@dataclass
class Planned:
    """One job of a sweep: its overrides, the resolved job, its folder and place in an artifact."""

    overrides: list[str]
    job: Job
    folder: JobFolder
    artifact: str | None = None
    name: str = ""

    @property
    def config(self) -> dict[str, Any]:
        """The job's plain configuration."""
        return self.job.config

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.artifact or ''} {self.name}".strip()


@dataclass
class Plan:
    """All jobs of a sweep, and the configuration of each artifact that they belong to (also of those
    without jobs).
    """

    jobs: list[Planned] = field(default_factory=list)
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)  # overrides of each artifact
    # of a cross table: pairs that do not fit, and why
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    unchanged: dict[str, str] = field(
        default_factory=dict
    )  # artifacts that lie there as they would come out, and since when
