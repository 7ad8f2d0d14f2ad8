"""The steps of a pass over a trajectory, on a GPU as CUDA graphs where they can be recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mobench.core import loop
from mobench.core.graphs import NotCapturable, StepGraph, StepNumber
from mobench.core.output import Output
from mobench.core.stepping import Stepper
from mobench.core.types import State
from mobench.jobs.job import Job

WARM = 3
"""Steps before a step is recorded: kernels are chosen and what does not change is made in the first ones."""
LEAST = 50
"""Steps that must be left, for recording and comparing cost some ten."""


class Steps:
    """Takes steps of a job.

    Args:
        rules: the output rules that listen.
        wanted: whether a step is observed; `observe` then sees it (None: none is).
        stepper: of the user's own optimizer.

    Attributes:
        graph: in words, whether steps are replayed as CUDA graphs; empty while that is not known.
    """

    def __init__(
        self,
        job: Job,
        rules: dict[str, Output],
        wanted: Callable[[int], bool],
        observe: Callable[[int, State, Any], None] | None,
        stepper: Stepper | None = None,
    ) -> None:
        self.job = job
        self.rules = rules
        self.wanted = wanted
        self.observe = observe
        self.stepper = stepper
        self.graph = ""
        self._first: int | None = None
        self._recorded: StepGraph | None = None
        if job.device.type != "cuda" or job.config.hardware.graphs == "off":
            self.graph = "off"
        elif job.code or "code" in job.config.problem.arguments:  # a class, or functions, of the user's own
            self.graph = "no: code of your own may keep a state on the host"

    def to(self, state: State, until: int) -> State:
        """The state before step `until`."""
        if self.graph not in ("", "replayed"):
            return self._run(state, until)
        if self._first is None:
            self._first = state["t"]
        while state["t"] < until:
            t = state["t"]
            quiet = self._quiet(t, until)
            if quiet and self._ready(state):
                assert self._recorded is not None
                state = self._recorded.replay(state, quiet)
            else:
                state = self._run(state, t + 1)
        return state

    def _run(self, state: State, until: int, number: StepNumber | None = None) -> State:
        return loop.advance(
            self.job.joined,
            self.job.algorithm,
            self.rules,
            state,
            until,
            None if number is not None else self.observe,
            number,
            self.stepper,
        )

    def _quiet(self, t: int, until: int) -> int:
        """Steps from t on that nobody observes."""
        if self.observe is None:
            return until - t
        return next((k - t for k in range(t, until) if self.wanted(k)), until - t)

    def _ready(self, state: State) -> bool:
        """Returns whether a recorded graph can be replayed, and records it at the first step that is due."""
        if self._recorded is not None:
            return True
        assert self._first is not None
        if self.graph or state["t"] < self._first + WARM:
            return False
        if self.job.steps - state["t"] < LEAST:
            self.graph = "no: few steps are left"
            return False
        try:
            self._recorded = StepGraph(self._step, state)
            self.graph = "replayed"
        except NotCapturable as error:
            self.graph = f"no: {error}"
        return self._recorded is not None

    def _step(self, state: State, t: int | StepNumber) -> State:
        """One step that nobody observes."""
        if isinstance(t, StepNumber):
            return self._run(dict(state), 0, t)
        return loop.advance(self.job.joined, self.job.algorithm, self.rules, dict(state), t + 1)
