"""mobench from Python: `run` and `load` jobs, and make problems of one's own.

    rows = mobench.run(problem="vlmop2", algorithm="ferero", preferences=10, seeds=[0, 1, 2], steps=200)
    mobench.load(rows).history

Names and values are those of the command line; so are configuration, folder and messages.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import os
import re
import sys
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from mobench.artifacts.rows import JobRows
from mobench.config import compose
from mobench.core.algorithm import Algorithm
from mobench.core.problem import Problem
from mobench.core.served import serving
from mobench.data.tables import Table, as_table
from mobench.errors import CompatibilityError, ConfigError, MobenchError, StoreError, suggest
from mobench.jobs.build import make_job
from mobench.jobs.fingerprint import Opaque, fingerprint
from mobench.jobs.rehearsal import check_names
from mobench.jobs.remarks import equal_runs, lost_runs
from mobench.jobs.run import run_job
from mobench.jobs.store import JobFolder
from mobench.models.optimized import Recipe
from mobench.problems import arranged
from mobench.problems.networks import Definition, Networks
from mobench.problems.own import Function, Functions, Own
from mobench.problems.own_sampled import OwnSampled
from mobench.problems.probe import check_functions
from mobench.system.paths import outputs_root, results_root
from mobench.system.workers import use_huge_pages

GROUPS = (
    "problem",
    "oracle",
    "algorithm",
    "constraint",
    "space",
    "protocol",
    "hardware",
    "scale",
    "logger",
    "data",
)
ATTRIBUTE = "mobench_folder"  # of the rows that `run` returns
UNKNOWN = "unknown-"  # the code of functions without a hash begins with it


class Run(JobRows):
    """A job folder; each file is read on first use.

    Attributes:
        final: DataFrame, a row per run and output rule: run, seed, preference_1.., f_1.., status, measures.
        history: DataFrame, a row per run, output rule and recorded step: run, step, seed, f_1...
        solutions: {output rule: decision variables (R, P)}, R in the order of the column `run`.
        meta: provenance, timings, hypervolume, identity. config: the configuration that made the rows.
        path: the folder.

    Raises:
        StoreError: from any attribute whose file is missing or broken (a job that has not finished has no
            rows).
    """

    @property
    def path(self) -> Path:
        """Path of the folder."""
        return self.folder.path

    def __repr__(self) -> str:
        state = self.folder.state(self.folder.status())
        return f"<mobench run {self.path}: {state}; final, history, solutions, meta, config>"


@dataclass(frozen=True, eq=False, repr=False)
class Objectives:
    """The result of `objectives`: functions, and the keys of the problem made of them."""

    functions: Functions | Definition
    keys: Mapping[str, Any]
    kind: type[Problem] = Own
    # codes under which jobs of this process found these functions: of some no second hash can be had
    served: set[str] = dataclasses.field(default_factory=set, init=False)

    def __repr__(self) -> str:
        return f"<mobench problem {self.keys['title']!r} of {self.keys['variables']} variables>"

    def choices(self, user_keys: Collection[str]) -> dict[str, Any]:
        """Returns the settings of other parts that this problem needs, except those that the user sets."""
        assert isinstance(self.functions, Functions)
        data = self.functions.data
        if data is None or data.batch_size is None:
            return {}
        return _epochs(data, user_keys)

    def code(self) -> str:
        """Returns the hash of the functions' code and data.

        Raises:
            Opaque: there is none.
        """
        return fingerprint(self.functions.identity)

    @contextlib.contextmanager
    def chosen(self, user_keys: Collection[str] = ()) -> Iterator[list[str]]:
        """Yields the overrides that choose this problem; jobs find its functions inside the block.

        Args:
            user_keys: keys that the user sets.
        """
        code = _hashed(self.functions.identity, ", and only this problem object gives solutions of them")
        self.served.add(code)
        with serving(code, self.functions):
            yield self.overrides(code, user_keys)

    def overrides(self, code: str, user_keys: Collection[str]) -> list[str]:
        """Returns the overrides that choose this problem, whose functions jobs find under `code`."""
        keys = {"_target_": f"{self.kind.__module__}.{self.kind.__qualname__}", "code": code, **self.keys}
        of_problem = [f"++problem.{key}={compose.text(value, key)}" for key, value in keys.items()]
        others = [f"{key}={compose.text(value, key)}" for key, value in self.choices(user_keys).items()]
        return ["~problem", *of_problem, *others]

    def solutions(self, rows: str | os.PathLike[str] | pd.DataFrame, output: str | None = None) -> list[Any]:
        """Returns the solutions of a job of this problem, in the order of its rows.

        They are tensors (P,), or dictionaries of tensors where the functions take those.

        Args:
            rows: all or some of the rows of `run`; or the folder of the job, from any process that defines
                the same problem (of functions that cannot be hashed: from this object alone).
            output: the output rule; default: that of the first row.

        Raises:
            StoreError: the rows are of another problem, or are gone.
        """
        _, theta, runs = self._solved(rows, output)
        return [self.parts(theta[run]) for run in runs]

    def parts(self, x: torch.Tensor) -> Any:
        """Returns one solution in the form that the functions take."""
        assert isinstance(self.functions, Functions)
        arrangement = self.functions.arrangement
        return x if arrangement is None else arrangement.parts(x)

    def _solved(
        self, rows: str | os.PathLike[str] | pd.DataFrame, output: str | None
    ) -> tuple[Run, torch.Tensor, list[int]]:
        """Returns the job of some rows, all of its solutions (R, P), and the numbers of the rows' runs."""
        job = load(rows)
        code = job.config["problem"].get("code")
        if code not in self.served and str(code).startswith(UNKNOWN):
            raise StoreError(
                f"{job.path} was computed by functions that have no hash, so only the problem object that "
                f"`run` trained, in its own process, is known to be theirs. mobench.load({str(job.path)!r})"
                ".solutions has the parameters of all runs, a row each; problem.parts(torch.from_numpy(row)) "
                "gives one of them in the form of the functions."
            )
        if code not in self.served and not self._is_now(code):
            raise StoreError(
                f"{job.path} was computed by other functions, another module, other losses or other data "
                "than this problem's; define the problem as it was."
            )
        selected = rows if isinstance(rows, pd.DataFrame) else job.final
        if selected.empty:
            return job, torch.zeros(0, 0), []
        rule = output or str(selected["output"].iloc[0])
        if rule not in job.solutions:
            raise StoreError(
                f"There is no output {rule!r} in {job.path}.{suggest(rule, list(job.solutions))}"
            )
        runs = selected.loc[selected["output"] == rule, "run"].tolist()
        return job, torch.from_numpy(job.solutions[rule]), runs

    def _is_now(self, code: str | None) -> bool:
        """Tells whether a code is the hash of the functions as they are now."""
        try:
            return self.code() == code
        except Opaque:
            return False


def _hashed(identity: Any, also: str = "") -> str:
    """Returns the hash of functions; if there is none, a unique name, after a warning.

    Args:
        also: what else follows from this, for the warning.
    """
    try:
        return fingerprint(identity)
    except Opaque as reason:
        print(
            f"warning: these functions cannot be hashed, so their results are not reused{also}: {reason}",
            file=sys.stderr,
        )
        return f"{UNKNOWN}{uuid.uuid4().hex}"


class OwnNetworks(Objectives):
    """The result of `networks`."""

    functions: Definition

    def __repr__(self) -> str:
        probe = self.functions.probe
        return (
            f"<mobench problem {self.keys['title']!r}: networks of {probe.layout.dim} parameters, "
            f"{probe.losses} losses, {self.functions.data.size} samples>"
        )

    def choices(self, user_keys: Collection[str]) -> dict[str, Any]:
        steps = ("step_size", "step_decay", "step_offset")
        idle = sorted({f"{group}.{key}" for group in ("algorithm", "vary") for key in steps} & {*user_keys})
        if idle and self.functions.recipe is not None:
            raise ConfigError(
                f"{', '.join(idle)} has no effect beside optimizer=, whose learning rate and schedule decide."
            )
        dtype = str(self.functions.probe.dtype).removeprefix("torch.")
        defaults = {"dtype": dtype, "record.every": 10} | _epochs(self.functions.data, user_keys)
        return {key: value for key, value in defaults.items() if key not in user_keys}

    def parts(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the trainable parameters of one solution, by name."""
        return self.functions.probe.layout.split(x)

    def modules(
        self, rows: str | os.PathLike[str] | pd.DataFrame, output: str | None = None
    ) -> list[torch.nn.Module]:
        """Returns the trained modules of a job of this problem, in the order of its rows, after `eval()`.

        Batch normalisations have the mean statistics of the training data.

        Arguments and errors are those of `solutions`. Where something that the functions refer to has changed
        since this object was trained (a list that a loss appends to), a warning says so.
        """
        job, theta, runs = self._solved(rows, output)
        if not runs:
            return []
        config = job.config
        code = config["problem"]["code"]
        if not code.startswith(UNKNOWN) and not self._is_now(code):
            warnings.warn(
                f"{job.path} was trained by this problem, but something that its functions refer to has "
                "changed since: the modules have the trained parameters, and all else (what is frozen, "
                "buffers, statistics of batch normalisation) as the functions make it now",
                stacklevel=2,
            )
        record = config.get("record") or {}
        if record.get("code") is not None:  # measures of `run`, which end with it and are not needed here
            config = {**config, "record": {**record, "code": None}}
        with compose.ALONE, serving(code, self.functions):
            built = make_job(config)
            problem = built.problem.bind(built.runs.take(runs))
        assert isinstance(problem, Networks)
        return problem.trained(theta[runs])


def _epochs(data: Table, user_keys: Collection[str]) -> dict[str, Any]:
    """Returns settings of epochs without replacement, each recorded, except those that the user sets."""
    batch = min(data.batch_size or data.size, data.size)
    steps = data.size // batch if data.drop_last else -(-data.size // batch)
    keys: dict[str, Any] = {} if steps == 1 else {"record.every": steps}
    if "oracle" not in user_keys:
        keys |= {"oracle": "epochs", "oracle.batch_size": batch}
    return {key: value for key, value in keys.items() if key not in user_keys}


def _batches_of(table: Table, batch_size: int | None) -> Table:
    """Returns the same samples with a batch size.

    Raises:
        ConfigError: there are not so many.
    """
    if batch_size is None:
        return table
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size <= table.size:
        raise ConfigError(f"batch_size={batch_size!r} must be a whole number in 1..{table.size}.")
    return dataclasses.replace(table, batch_size=batch_size)


def objectives(
    f: Function | Sequence[Function],
    *,
    dim: int | None = None,
    data: Any = None,
    batch_size: int | None = None,
    start: Any = None,
    constraints: Function | Sequence[Function] = (),
    bounds: Sequence[Any] | None = None,
    positive: bool = False,
    ideal: Sequence[float | int] | None = None,
    reference: Sequence[float | int] | None = None,
    front: Any = None,
    measures: Mapping[str, Function] | None = None,
    stop: Callable[[pd.DataFrame], Any] | None = None,
    callback: Callable[[int, pd.DataFrame], object] | None = None,
    name: str = "own",
) -> Objectives:
    """A problem made of torch functions, for `run(problem=...)`:  minimise f(x) over x in R^P with g(x) <= 0.

    Functions are written for one x, a tensor (P,) (float64, or float32 in `run(..., dtype="float32")`), and
    batched over the runs by torch.func.vmap:
    values from torch operations, torch.where instead of `if` on values, no random numbers. A run is the same
    alone and in a batch, up to rounding. With hardware=gpu x is on the GPU: make tensors with
    device=x.device, and move captured ones with .to(x.device).

    Args:
        f: x (P,) -> (M,), or a list of functions with values () or (k,), which are put in a row.
        dim: P; may be left out if `start` has it.
        data: tensors whose first axis is the sample, such as (A, b); a Dataset, or a DataLoader; read once,
            as by `networks`. f, constraints and measures then take (x, batch), where a batch has the
            structure of the data (real numbers in the type of x), and return means over its samples.
        batch_size: samples of a step, drawn without replacement in an order of the seed's (oracle=epochs);
            default: the loader's, else a step sees all data (oracle=exact). Recorded values are those of the
            step's batch, once in an epoch (record.every; record.evaluate=True: those of all data); final rows
            and measures are those of all data. For batches with replacement give `run` oracle="minibatch"
            and **{"oracle.batch_size": 32}.
        start: theta_0 (P,) of every run, or one row for each preference; or a function of a numpy Generator,
            keyed by the seed, that draws it; or a mapping as `problem.start` has it, such as
            {"kind": "uniform", "low": 0, "high": 1, "per_preference": True}. Default: uniform in `bounds`,
            else in [-1, 1]. A dictionary of tensors, start={"a": torch.zeros(2, 3), "b": 1.0}, a list of one
            for each preference, or a function that draws one: then all functions take such a dictionary in
            place of x, and `problem.solutions(rows)` gives one for each run. It may hold further
            dictionaries, tuples and lists.
        constraints: g, x (P,) -> () or (N,), or a list: g(x) <= 0, for csmoo2, mlm_cmoo, ferero and others
            that take them.
        bounds: (lower, upper), each a number for every coordinate, a vector (P,), or a dictionary as `start`
            with tensors or numbers; None or an infinite number is no bound. Iterates are projected.
        positive: promise that every f_m >= 0, which EPO and others ask for.
        ideal: z (M,) of Tchebycheff values. reference: point (M,) of hypervolumes.
        front: points (k, M) of the exact front, for distances to it.
        measures: {name: function}, x (P,) -> (): further columns of history and final rows. For other
            problems they are an argument of `run`.
        stop, callback: see `networks`.
        name: of the folder; it also keys random starts, so that variants of a function share theirs.

    Rows of equal functions belong to the same job, which is keyed by a hash of them
    (`mobench.jobs.fingerprint`): bytecode, constants, captured values and the globals that they name, through
    modules of the user's, with the versions of other installed packages. It is taken at each `run`: change a
    line or a captured tensor, and the job is another. Where no hash can be had (an open file, `eval`) the job
    gets a key that nothing else has and always runs anew, which a warning says; its solutions can then be had
    of this object alone. Files and the environment are
    not part of the hash.

    Raises:
        ConfigError: functions that fail, have the wrong shape or type, cannot be differentiated or batched;
            no dim.
    """
    use_huge_pages()
    variables, sampler, arrangement = arranged.variables(start, bounds, dim, name)
    keys: dict[str, Any] = {
        "title": name,
        "positive": positive,
        "ideal": ideal,
        "reference": reference,
        **variables,
        "steps": Own.steps,
    }
    points = None if front is None else torch.as_tensor(front, dtype=torch.float64).detach().cpu()
    if data is None and batch_size is not None:
        raise ConfigError(
            f"batch_size={batch_size!r} is given without data; objectives(f, dim=..., data=(A, b), "
            "batch_size=...) calls f(x, batch)."
        )
    takes = "x" if data is None else "(x, batch)"
    functions = Functions(
        check_functions("f", f, takes),
        check_functions("constraints", constraints, takes),
        sampler,
        points,
        dict(measures or {}),
        arrangement,
        stop,
        callback,
        None if data is None else _batches_of(as_table("data", data), batch_size),
    )
    for function in functions.measures.values():
        check_functions("measures", function, takes)
    if not functions.objectives:
        raise ConfigError("objectives(...) needs at least one function.")
    _check_title(name)
    check_names(functions.measures)
    kind = Own if data is None else OwnSampled
    with compose.ALONE, serving("checked", functions):  # a mistake is found here, where it was made
        kind(code="checked", **keys)
    return Objectives(functions, keys, kind)


def networks(
    module: Callable[[], torch.nn.Module] | torch.nn.Module,
    losses: Callable[..., Any] | Sequence[Callable[..., Any]],
    data: Any,
    *,
    batch_size: int | None = None,
    forward: Callable[[torch.nn.Module, Any], Any] | None = None,
    constraints: Callable[..., Any] | Sequence[Callable[..., Any]] = (),
    validation: Any = None,
    measures: Mapping[str, Callable[..., Any]] | None = None,
    start: Mapping[str, torch.Tensor] | Sequence[Mapping[str, torch.Tensor]] | None = None,
    stop: Callable[[pd.DataFrame], Any] | None = None,
    callback: Callable[[int, pd.DataFrame], object] | None = None,
    optimizer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer] | None = None,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
    clip: float | None = None,
    keep: str | None = None,
    patience: int | None = None,
    bounds: Sequence[float | int] | None = None,
    positive: bool = True,
    ideal: Sequence[float | int] | None = None,
    reference: Sequence[float | int] | None = None,
    execution: str = "auto",
    name: str = "network",
) -> OwnNetworks:
    """A problem made of a module and losses, for `run(problem=...)`: all preferences and seeds are trained at
    once.

        f_m(theta) = loss_m(module(data; theta), data),   m = 1..M;   in a step of a batch of the data

        problem = mobench.networks(lambda: MyNetwork(), [loss_1, loss_2], DataLoader(data, batch_size=64))
        rows = mobench.run(problem=problem, algorithm="ferero", preferences=5, seeds=[0, 1], steps=500)
        best = problem.modules(rows)[0]

    Args:
        module: makes the network, at a seed of torch's generator that follows from the run's; or a module,
            from whose weights all seeds start. What does not require a gradient is held constant, and what it
            put into `eval()` stays there.
        losses: loss(outputs, batch), one number for the batch; a list of them, or one with values (M,). Rows
            hold that of all data at once, so it need not be a mean over samples (class weights, masks, RMSE).
        data: tensors whose first axis is the sample, such as (x, y); a Dataset, or a DataLoader, of which
            batch_size, drop_last and collate_fn count (orders are the seed's). It is read once and kept in
            memory. A batch has the structure of the data.
        batch_size: samples of a step, drawn without replacement in an order of the seed's (oracle=epochs).
            Default: the loader's, else all. oracle="minibatch" and others are arguments of `run`. The
            shortest batch of an epoch is tried before the job.
        forward: (module, batch) -> outputs. Default: module(batch[0]), or module(batch) if it is no tuple.
        constraints: g, losses (M,) -> () or (N,), or a list: g <= 0 for the methods that take constraints.
        validation, measures: columns of history and final rows: the losses on these data, validation_1.., and
            {name: function of (outputs, batch)}, of all of them at once (without them of the training data).
        start: a state dict that all runs start from, or a list of one for each preference.
        stop: given the history so far (a data frame, all runs), the runs that end here, as booleans in the
            order of the runs. Called at each recorded step; must depend on nothing else.
        callback: called with the number of each recorded step and its rows. It changes no result, and a job
            that is finished does not call it.
        optimizer: makes the optimizer of one network's parameters, for each run: lambda p:
            torch.optim.AdamW(p, lr=1e-3). The method's direction is its gradient, with the sign changed;
            default: theta + alpha d with `algorithm.step_size`. Refused, with the reason: optimizers that
            need a closure (LBFGS) or mix the entries of a parameter (Adafactor, Muon), and methods whose step
            is more than a direction; `mobench.Balanced` takes those in a loop of one's own.
        schedule: makes a schedule of torch.optim.lr_scheduler of the optimizer, which goes on after each step
            (not epoch): lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 500).
        clip: largest norm of the gradient of a run; needs `optimizer`.
        keep: the number that decides with which of its recorded weights a run ends; rows, modules and
            solutions are those of these weights, and the column `kept` is their step. "best": the smallest
            max_m w_m (validation_m - z_m), w the run's preference; a column, such as "validation_1" or a
            measure: the smallest; "-accuracy": the largest. Default: the last weights.
        patience: a run ends after so many recorded steps in which `keep` found nothing better, and the column
            `ended` is that step.
        bounds: (lower, upper) of every parameter. positive: promise that every loss is >= 0; it makes 0 the
            ideal point. ideal, reference: as of `objectives`.
        execution: auto | vmap | loop | channels_last; see `mobench.problems.networks`.
        name: of the folder; it also keys starts and batches.

    Unless `run` is told otherwise, dtype is that of the module, and every epoch is recorded (record.every;
    every ten steps without batches). Training values are those of a batch as the module is trained; final
    rows are those of all data after `eval()`.

    Dropout draws named random numbers: a run is the same alone and in a batch, and a job resumes bit for bit.
    Modules that torch.func.vmap cannot batch are computed one run after the other.

    Raises:
        ConfigError: modules that cannot be trained in this way, with the reason: other random numbers,
            buffers that a forward pass changes (but batch normalisation's), losses that fail or depend on no
            parameter.
    """
    use_huge_pages()
    make = functools.partial(copy.deepcopy, module) if isinstance(module, torch.nn.Module) else module
    if not callable(make):
        raise ConfigError(f"module={module!r} must be a torch.nn.Module or a function that makes one.")
    table = _batches_of(as_table("data", data), batch_size)
    starts = () if start is None else (start,) if isinstance(start, Mapping) else tuple(start)
    definition = Definition(
        make=make,
        losses=check_functions("losses", losses, "(outputs, batch)"),
        data=table,
        forward=_called if forward is None else forward,
        constraints=check_functions("constraints", constraints, "the losses"),
        validation=None if validation is None else as_table("validation", validation),
        measures=dict(measures or {}),
        starts=starts,
        stop=stop,
        callback=callback,
        recipe=_recipe(optimizer, schedule, clip),
        keep=keep,
        patience=patience,
    )
    _check_patience(keep, patience)
    if not definition.losses:
        raise ConfigError("networks(...) needs at least one loss.")
    _check_title(name)
    check_names(definition.measures)
    keys: dict[str, Any] = {
        "title": name,
        "positive": positive,
        "ideal": ideal,
        "reference": reference,
        "bounds": bounds,
        "start": {"kind": "module"},
        "execution": execution,
        "steps": Networks.steps,
    }
    with compose.ALONE, serving("checked", definition):  # a mistake is found here, where it was made
        Networks(code="checked", **keys)
    return OwnNetworks(definition, keys, Networks)


def _recipe(optimizer: Any, schedule: Any, clip: Any) -> Recipe | None:
    """Returns the user's settings of training.

    Raises:
        ConfigError: no functions, or no norm.
    """
    if optimizer is None:
        if schedule is not None or clip is not None:
            raise ConfigError(
                "schedule= and clip= need optimizer=, such as optimizer=lambda p: torch.optim.SGD(p, lr=0.1)."
            )
        return None
    if not callable(optimizer) or not (schedule is None or callable(schedule)):
        raise ConfigError(
            f"optimizer={optimizer!r}, schedule={schedule!r}: each must be a function that makes one: "
            "optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3), "
            "schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 100)."
        )
    number = isinstance(clip, int | float) and not isinstance(clip, bool)
    if clip is not None and not (number and 0 < clip < math.inf):
        raise ConfigError(f"clip={clip!r} must be a number > 0, the largest norm of a gradient.")
    return Recipe(optimizer, schedule, None if clip is None else float(clip))


def _check_patience(keep: object, patience: object) -> None:
    """Raises ConfigError for values of another kind."""
    if keep is not None and not isinstance(keep, str):
        raise ConfigError(f'keep={keep!r} must be "best" or the name of a column, such as "validation_1".')
    if patience is None:
        return
    if keep is None:
        raise ConfigError('patience= needs keep=, which says what is better, such as keep="best".')
    if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
        raise ConfigError(f"patience={patience!r} must be a whole number of recorded steps, at least 1.")


def _check_title(name: object) -> None:
    """Raises ConfigError unless a problem of one's own can have this name: job folders begin with it."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w .+-]{0,59}", name):
        raise ConfigError(
            f"name={name!r} must have at most 60 letters, digits and characters of '_-.+ ' and begin with a "
            "letter or a digit, because folders of jobs begin with it."
        )


def _called(module: torch.nn.Module, batch: Any) -> Any:
    """Returns the outputs of a module for the inputs of a batch."""
    return module(batch[0] if isinstance(batch, tuple | list) else batch)


def _override(key: str, value: Any) -> str:
    if key in GROUPS and not isinstance(value, str):
        how = f'{key}="NAME"' + (", or mobench.objectives(f, dim=...)" if key == "problem" else "")
        raise ConfigError(
            f"{key}={value!r} ({type(value).__name__}) is not a valid choice; give {how}. Set its keys by "
            f'**{{"{key}.KEY": VALUE}} or "{key}.KEY=VALUE"; for several choices, call run once for each.'
        )
    return f"{key}={compose.text(value, key)}"


def run(
    *overrides: str, measures: Mapping[str, Callable[[torch.Tensor], Any]] | None = None, **keys: Any
) -> pd.DataFrame:
    """Runs one job in this process and returns its final rows.

    Configuration, checks and folder are those of `mobench ARGUMENTS`.

        run(problem="zdt2", algorithm="epo", preferences=10, seeds=[0, 1, 2], steps=200)
        run("algorithm.step_size=0.05", problem="zdt2")                the command line's own words
        run(problem="zdt2", **{"algorithm.step_size": 0.05})
            a key inside of a group, with a Python value
        run(problem=mobench.objectives(fn, dim=2), algorithm="mgda")   functions of one's own
        run(problem="zdt2", algorithm=["mgda", "epo"])                 several methods: a job each
        run(problem="zdt2", algorithm=MyMethod(step_size=0.05))        a method as an object

    A finished job is not run again but read (`rerun=True`: it is run again); a stopped one continues from its
    checkpoint. Rows lie in outputs/runs, or $MOBENCH_OUTPUTS/runs. No working directory, signal handler,
    thread count or Hydra state is left changed.

    Threads may call it: their jobs run one after the other, with the rows that they have alone, since random
    streams, warnings and Hydra's state belong to the whole process. Jobs beside each other need processes: a
    sweep with `hydra/launcher=joblib`.

    Args:
        overrides: as on the command line, `hydra.searchpath=[file:///my/conf]` included, and
            `+experiment=NAME` of one's own if it is one job; no sweeps, no artifacts, no flags.
        measures: {name: function}, x (P,) -> () each, batched by torch.func.vmap: further columns of history
            and final rows, for any problem. x are the decision variables, as `solutions` has them. What the
            functions compute is part of the job's identity, as for `objectives`.
        keys: the same as Python values; None is null, arrays and tensors become lists. algorithm: also an
            `Algorithm` whose class can be imported, or a list of methods: then the rows of all of their jobs,
            with a column `algorithm`.

    Returns:
        The rows of final.csv, R * (number of output rules) of them: run, seed, preference_1.., f_1.., status,
        measures. Runs that diverged are rows with that status. `mobench.load(rows)` has history, solutions,
        meta and config.

    Raises:
        ConfigError, PreferenceError: unknown key, choice or value; the message lists what there is. Measures
            that fail, return another shape, or have the name of a column that there is.
        CompatibilityError: problem and algorithm do not fit; every reason.
        Interrupted: Ctrl-C; the same call continues.
        MobenchError: the job failed; with the reason, and the folder whose status.json has the traceback.
    """
    use_huge_pages()
    for override in overrides:
        if not isinstance(override, str):
            raise ConfigError(
                f'{override!r} is not an override; give text such as "algorithm.step_size=0.05", or '
                "key=value."
            )
    several = keys.get("algorithm")
    if isinstance(several, list | tuple):
        return _each(overrides, measures, keys, several)
    chosen_method: list[str] = []
    if isinstance(several, Algorithm):
        chosen_method = _method(several)
        keys = {key: value for key, value in keys.items() if key != "algorithm"}
    overrides = (*chosen_method, *overrides)
    problem = keys.get("problem")
    if isinstance(problem, torch.nn.Module):
        raise ConfigError(
            "problem is a module; also give losses and data: problem=mobench.networks(module, losses, data)."
        )
    if callable(problem):
        raise ConfigError(
            "problem is a function; also give its number of variables: problem=mobench.objectives(fn, "
            "dim=...)."
        )
    if isinstance(problem, Objectives):
        makes = {*inspect.signature(networks).parameters, *inspect.signature(objectives).parameters}
        if misplaced := sorted(makes & keys.keys()):
            raise ConfigError(
                f"{', '.join(misplaced)}: give it to mobench.networks or mobench.objectives, which make the "
                "problem; run takes what the command line takes."
            )
    user_keys = {override.partition("=")[0].lstrip("+~") for override in overrides} | keys.keys()
    with compose.ALONE, contextlib.ExitStack() as stack:
        chosen = [] if measures is None else stack.enter_context(_measuring(measures))
        if isinstance(problem, Objectives):
            chosen = [*stack.enter_context(problem.chosen(user_keys)), *chosen]
            keys = {key: value for key, value in keys.items() if key != "problem"}
        return _run([*chosen, *overrides, *(_override(k, v) for k, v in keys.items())])


@contextlib.contextmanager
def _measuring(measures: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yields the overrides that choose these measures; jobs find them inside the block.

    Raises:
        ConfigError: they are not a mapping from names to functions.
    """
    if not isinstance(measures, Mapping):
        raise ConfigError(f"measures={measures!r} must be a mapping, {{name: function of x}}.")
    for function in measures.values():
        check_functions("measures", function)
    if not measures:
        yield []
        return
    code = _hashed(dict(measures))
    with serving(code, dict(measures)):
        yield [f"record.code={compose.text(code, 'record.code')}"]


def _each(
    overrides: tuple[str, ...],
    measures: Mapping[str, Any] | None,
    keys: Mapping[str, Any],
    methods: Sequence[Any],
) -> pd.DataFrame:
    """Runs one job after the other and returns their rows, with the method in a column `algorithm`."""
    if not methods:
        raise ConfigError('algorithm=[] chooses no method; give names, such as algorithm=["mgda", "epo"].')
    parts = []
    for method, name in zip(methods, _names(methods), strict=True):
        rows = run(*overrides, measures=measures, **{**keys, "algorithm": method})
        rows.insert(0, "algorithm", name)
        rows.attrs = {}  # of several jobs: `load` would show one of them
        parts.append(rows)
    return pd.concat(parts, ignore_index=True)


def _names(methods: Sequence[Any]) -> list[str]:
    """Returns the names of methods, of several of a class with what they differ by: CAGrad(c=0.1)."""
    names = [method if isinstance(method, str) else type(method).__name__ for method in methods]
    out = []
    for method, name in zip(methods, names, strict=True):
        alike = [] if isinstance(method, str) else [other for other in methods if type(other) is type(method)]
        differing = {
            f.name: getattr(method, f.name)
            for f in (dataclasses.fields(method) if len(alike) > 1 else ())
            if any(getattr(other, f.name) != getattr(method, f.name) for other in alike)
        }
        words = ", ".join(f"{key}={value!r}" for key, value in differing.items())
        out.append(f"{name}({words})" if words else name)
    return out


def _method(algorithm: Algorithm) -> list[str]:
    """Returns the overrides that choose a method by its class and fields.

    Raises:
        ConfigError: its class cannot be imported by its name, as a job's configuration needs.
    """
    cls = type(algorithm)
    target: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        target = getattr(target, part, None)
    if target is not cls:
        raise ConfigError(
            f"algorithm={algorithm!r}: {cls.__name__} cannot be imported as "
            f"{cls.__module__}.{cls.__qualname__}; define the class at the top of a module."
        )
    fields = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm) if f.init}
    keys = {"_target_": f"{cls.__module__}.{cls.__qualname__}", **fields}
    return [
        "algorithm=imtl_g",  # its file holds no key but these two, which every method has
        *(f"++algorithm.{key}={compose.text(value, key)}" for key, value in keys.items()),
    ]


def _run(arguments: list[str]) -> pd.DataFrame:
    config = compose.compose(arguments)
    threads = torch.get_num_threads()
    try:
        outcome = run_job(config)
    except CompatibilityError as error:
        raise CompatibilityError(f"{error}{error.hint}") from error
    finally:
        torch.set_num_threads(threads)
    if outcome.status == "failed":
        raise MobenchError(f"{outcome.key} failed: {outcome.error}\n  rows and status: {outcome.folder}")
    folder = JobFolder(outcome.folder)
    rows = folder.final()
    # the outcome's error describes runs whose solves failed
    lost = [
        words
        for words in lost_runs(folder, rows)
        if not (outcome.error and words.startswith("solver_failed"))
    ]
    if messages := [*([outcome.error] if outcome.error else []), *lost]:
        warnings.warn(f"{outcome.key}: {'; '.join(messages)}", stacklevel=3)
    for sentence in [] if outcome.skipped else equal_runs(folder, rows, config):
        print(f"note: {outcome.key}: {sentence}.", file=sys.stderr)
    rows.attrs[ATTRIBUTE] = str(outcome.folder.resolve())
    return rows


def load(run: str | os.PathLike[str] | pd.DataFrame) -> Run:
    """Returns a run that is on disk, with `final`, `history`, `solutions`, `meta`, `config` and `path`.

    Args:
        run: a folder; or its name in outputs/runs (or among the rows that come with mobench); or the rows
            that `run` returned, or rows of one job from `rows`.

    Raises:
        StoreError: there is no such run; with the nearest names.
    """
    if isinstance(run, pd.DataFrame):
        jobs = list(run["job"].unique()) if "job" in run else []
        if ATTRIBUTE not in run.attrs and len(jobs) != 1:
            which = f"are of {len(jobs)} jobs" if jobs else "do not record which run they come from"
            raise StoreError(f"These rows {which}; give the folder of the run, or its name.")
        run = str(run.attrs.get(ATTRIBUTE) or jobs[0])
    places = [root / "runs" for root in (outputs_root(), results_root())]
    for path in (Path(run), *(place / run for place in places)):
        if (path / "status.json").is_file():
            return Run(JobFolder(path))
    known = sorted({p.name for place in places if place.is_dir() for p in place.iterdir()})
    raise StoreError(
        f"There is no run {os.fspath(run)!r}; it is neither a folder nor the name of a run in "
        f"{places[0]}.{suggest(Path(run).name, known)}"
    )
