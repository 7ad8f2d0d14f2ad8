"""The batched loop: one trajectory of R runs, six lines a step.

State = {t, theta, oracle, alg, out, alive, kkt, fail, stopped, unsolvable}: nested dicts of tensors, R first
in each; and adam, the averages of algorithm.optimizer=adam, or optimizer, the state of a user's optimizer.
Saving it is the checkpoint; continuing from it is bit-identical on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core import adam
from mobench.core.algorithm import Algorithm, Context, Info
from mobench.core.compatibility import check
from mobench.core.graphs import StepNumber
from mobench.core.oracle import Oracle
from mobench.core.output import Output
from mobench.core.preferences import Runs
from mobench.core.sets import project_moving
from mobench.core.stepping import Stepper
from mobench.core.types import State

FAR = 1e30  # L1 norm of an iterate that counts as diverged: beyond it, squares of gradients overflow


def seen_by(algorithm: Algorithm, oracle: Oracle) -> Oracle:
    """The oracle that the algorithm descends on: of fn(f) where it transforms its objectives."""
    return oracle.transformed(algorithm.transform) if algorithm.transforms else oracle


def start(
    oracle: Oracle,
    algorithm: Algorithm,
    outputs: Mapping[str, Output],
    theta: Float[Tensor, "R P"],
    runs: Runs,
    steps: int,
) -> State:
    """The state before the first step.

    Raises:
        CompatibilityError: the parts do not fit.
    """
    check(seen_by(algorithm, oracle).spec, algorithm)
    return first_state(oracle, algorithm, outputs, theta, runs, steps)


def first_state(
    oracle: Oracle,
    algorithm: Algorithm,
    outputs: Mapping[str, Output],
    theta: Float[Tensor, "R P"],
    runs: Runs,
    steps: int,
    stepper: Stepper | None = None,
) -> State:
    """The state before the first step of parts that have been checked. `stepper`: see `advance`."""
    oracle = seen_by(algorithm, oracle)
    spec = oracle.spec
    theta = spec.X.project(theta)
    # preferences and weights stay float64 whatever the dtype of theta: they cost nothing and certificates
    # need it
    prefs = runs.weights.to(theta.device)
    ideal = None if oracle.ideal is None else oracle.ideal.to(prefs)
    ctx = Context(
        spec=spec,
        prefs=prefs,
        all_prefs=runs.all.to(theta.device),
        theta=theta,
        exact=oracle.exact,
        steps=steps,
        ideal=ideal,
        seeds=runs.seeds.to(theta.device),
    )
    R = len(theta)
    return {
        "t": 0,
        "theta": theta,
        "oracle": oracle.init(theta),
        "alg": algorithm.init(ctx),
        "out": {name: rule.init(theta, spec.M) for name, rule in outputs.items()},
        "alive": torch.ones(R, dtype=torch.bool, device=theta.device),
        "kkt": torch.full((R,), -1.0, dtype=torch.float64, device=theta.device),
        "fail": torch.zeros(R, dtype=torch.int64, device=theta.device),
        "stopped": torch.full((R,), -1, dtype=torch.int64, device=theta.device),
        "unsolvable": torch.zeros(R, dtype=torch.bool, device=theta.device),
        **({"adam": adam.first(theta)} if algorithm.optimizer == "adam" else {}),
        **({} if stepper is None else {"optimizer": stepper.first(theta)}),
    }


def advance(
    oracle: Oracle,
    algorithm: Algorithm,
    outputs: Mapping[str, Output],
    state: State,
    until: int,
    observe: Callable[[int, State, Any], None] | None = None,
    number: StepNumber | None = None,
    stepper: Stepper | None = None,
) -> State:
    """Run steps t = state["t"] .. until-1. `observe(t, state, point)` sees theta_t before its step.

    `number`: run one step whose number is this stand-in, to record it (`mobench.core.graphs`). `stepper`:
    steps along the direction in the place of theta + alpha_t d.

    The outputs that `observe` sees hold theta_t already. A run whose solve fails, or whose next iterate is
    not finite or longer than FAR, keeps its last one for good and is marked in `alive`: its neighbours do not
    notice. When no run is left, a CPU takes no more steps and only observes (a GPU's host would have to wait
    after each step to know), and while some are left, it keeps the algorithm's state of the others as it was
    after their last step, unless the runs of a seed move together. An algorithm whose state has the key
    `alive` gets it there. `kkt` is the largest residual of a run's subproblem solves (-1: it has none),
    `fail` counts failed ones (0 or 1, since no step follows), `stopped` is the step of that solve (-1: there
    is none), `unsolvable` says that its program is proved to have no solution. A state with `ended` (-1, or
    the step at which a stop rule ended the run) keeps all of such a run as it was then.
    """
    oracle = seen_by(algorithm, oracle)
    X = oracle.spec.X
    samples = range(algorithm.samples)
    theta = state["theta"]
    ostate = state["oracle"]
    alg = state["alg"]
    out = state["out"]
    alive = state["alive"]
    kkt = state["kkt"]
    fail = state["fail"]
    stopped = state["stopped"]
    unsolvable = state["unsolvable"]
    averages = state.get("adam")
    stops = "ended" in state  # other jobs do not pay for stop rules
    on_host = theta.device.type == "cpu"
    # True if all runs are alive and none has ended; always False on a GPU, where the host would have to wait
    whole = on_host and not stops and bool(alive.all())
    times: Iterable[Any] = range(state["t"], until) if number is None else (number,)
    with torch.no_grad():
        for t in times:
            points = tuple([oracle.at(theta, ostate, t, k) for k in samples])
            for point in points:
                point.graph = not algorithm.derivative_free
            for name, rule in outputs.items():
                out[name] = rule.update(out[name], theta, points[0], t)
            if observe is not None:
                observe(t, state, points[0])
            if on_host and not whole and not bool(alive.any()):
                state["t"] = t + 1
                continue
            all_step = whole
            going = alive & (state["ended"] < 0) if stops else alive
            alpha = algorithm.schedule(t)
            frozen = on_host and not whole and not algorithm.together and not bool(alive.all())
            before = _copied(alg) if stops or frozen else alg
            d, alg, info = algorithm.step(points, alg, t, alpha)
            if stops:
                alg = _chosen(state["ended"] < 0, alg, before)
            if frozen:
                alg = _chosen(alive, alg, before)
            if averages is not None:
                d, after = adam.step(d, averages)
                averages = _chosen(going, after, averages) if stops else after
            if stepper is not None:
                # the stepper's state of runs that have ended may change: they never move again
                moved, state["optimizer"] = stepper.step(theta, d, state["optimizer"])
            else:
                # step sizes may differ between runs
                moved = theta + (alpha.to(d) if isinstance(alpha, torch.Tensor) else alpha) * d
            proposal = project_moving(X, moved, theta, points[0].moving)
            if all_step and _all_move(proposal, info):
                theta = proposal  # as the masks below would choose for every run
            else:
                near = proposal.abs().sum(-1) < FAR
                # for good: the rest of its state may be NaN
                alive = alive & (near | ~going if stops else near)
                if info.fail is not None:
                    ended = info.fail & going
                    alive = alive & ~ended  # nothing takes the place of a failed solve
                    fail = fail + ended
                    stopped = torch.where(ended, t if number is None else number.tensor, stopped)
                    if info.unsolvable is not None:
                        unsolvable = unsolvable | (ended & info.unsolvable)
                moves = alive & going if stops else alive
                theta = torch.where(moves.unsqueeze(-1), proposal, theta)
                whole = all_step and bool(alive.all())
            if "alive" in alg:
                alg = {**alg, "alive": alive}
            ostate = points[0].state
            if info.kkt is not None:  # a run that has ended solves nothing worth counting
                largest = torch.fmax(kkt, info.kkt.to(kkt.dtype))
                kkt = largest if all_step else torch.where(going, largest, kkt)
            state |= {
                "t": t + 1,
                "theta": theta,
                "oracle": ostate,
                "alg": alg,
                "alive": alive,
                "kkt": kkt,
                "fail": fail,
                "stopped": stopped,
                "unsolvable": unsolvable,
            }
            if averages is not None:
                state["adam"] = averages
    return state


def _all_move(proposal: Tensor, info: Info) -> bool:
    """Returns whether no solve has failed and all next iterates are surely nearer than FAR."""
    if info.fail is not None and bool(info.fail.any()):
        return False
    # NaN where an entry is; a sum of P numbers is at most P times the largest, up to its rounding
    return float(torch.linalg.vector_norm(proposal, math.inf)) * proposal.shape[-1] < 0.5 * FAR


def _copied(state: Any) -> Any:
    """A state that a step does not write to."""
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    return state.clone() if isinstance(state, Tensor) else state


def _chosen(which: Tensor, new: State, old: State) -> State:
    """`new` for some runs, `old` for the others; a tensor without an axis of runs is `new`."""
    out = {}
    for key, value in new.items():
        before = old[key]
        if isinstance(value, dict):
            value = _chosen(which, value, before)
        elif (
            isinstance(value, Tensor)
            and value.ndim
            and value.shape == before.shape
            and len(value) == len(which)
        ):
            value = torch.where(which.view(-1, *[1] * (value.ndim - 1)), value, before)
        out[key] = value
    return out


def finals(outputs: Mapping[str, Output], state: State) -> dict[str, Float[Tensor, "R P"]]:
    """The answer of each output rule."""
    return {name: rule.final(state["out"][name], state["theta"]) for name, rule in outputs.items()}
