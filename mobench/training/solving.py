"""One step of any method: its weights from gradients, values and a preference."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from mobench.config import compose
from mobench.core.algorithm import Algorithm, Context
from mobench.core.compatibility import check
from mobench.core.oracle import Spec, slope
from mobench.core.point import TablePoint
from mobench.core.preferences import check_weights
from mobench.core.sets import Free
from mobench.core.types import HALF, State, check_real
from mobench.errors import CompatibilityError, ConfigError
from mobench.jobs.targets import instantiate

STEPS = 1000  # the horizon of methods that have one, as of problems
STEP = {"step_size", "step_decay", "step_offset"}  # the fields of the step, which a loop makes itself


class Info(NamedTuple):
    """The report of a step beside its weights. R is there if the Jacobian had it.

    Fields: direction (R, P), d = -J^T w for most methods, in float32 at least (None where only a Gram matrix
    was given); state, for the next call; kkt_residual (R,), the certificate of the subproblem, relative
    (None: the method solves none); failed (R,), whether it could not be solved, or the direction is not
    finite.
    """

    direction: Float[Tensor, "*R P"] | None
    state: dict[str, Any]
    kkt_residual: Float[Tensor, "*R"] | None
    failed: Bool[Tensor, "*R"]


def solve(
    method: str | Algorithm,
    jacobian: Float[Tensor, "*R K P"] | None = None,
    values: Float[Tensor, "*R K"] | Sequence[float] | None = None,
    preference: Float[Tensor, "*R M"] | Sequence[float] | None = None,
    state: Mapping[str, Any] | None = None,
    *,
    gramian: Float[Tensor, "*R K K"] | None = None,
    constraints: int = 0,
    steps: int = STEPS,
    seed: int = 0,
    ideal: Sequence[float] | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "*R K2"] | None, Info]:
    """The weights w that a method gives the gradients in one step: theta <- theta - eta J^T w.

    Args:
        method: its name, as in `algorithm=NAME`, or an `Algorithm`.
        jacobian: the gradients of the objectives, then of the constraints, one in each row; with a first axis
            R, those of R runs, which no method but those of populations (and PMTL's sectors) lets depend on
            each other. A dense tensor of real numbers; float16 and bfloat16 are computed with as float32.
        values: of the objectives and constraints (g <= 0). Methods that see gradients alone need none.
        preference: positive weights with sum 1 (None: uniform).
        state: `info.state` of the last step, which was made with the same method, options, preference, steps,
            seed and ideal; None: this is the first one.
        gramian: J J^T in place of J: for methods whose direction is a weighted sum of gradients and that read
            no single entries of these. Float32 or float64: rounded to half precision it would not be positive
            semidefinite.
        constraints: how many of the K rows are constraints.
        steps: of the whole run, for methods that have a horizon. seed: of methods that draw numbers. ideal:
            z in place of the method's field that holds it (`ideal`; `bound` of famo); refused by methods
            without one.
        options: fields of the method, as in `algorithm.KEY=VALUE`, but those of the step and of averages
            (`step_size`, `step_decay`, `step_offset`, `outputs`), which are yours. Methods whose weights
            are computed from the step size (`qffl`, `csmoo2`, ...) need `step_size`, and take its decay.

    Returns:
        w (M or K entries for each run), or None where the method's direction is no weighted sum of
        gradients; and an `Info`.

    Raises:
        ConfigError, PreferenceError: unknown names or options, shapes or types that do not fit, no values;
            a state of another method or of other settings.
        CompatibilityError: the method needs something else than one sample's values and gradients, or
            objectives >= 0, and those of this step are not.
    """
    algorithm, paced = of_a_loop(method, options, ideal)
    if (jacobian is None) == (gramian is None):
        raise ConfigError("Give either jacobian or gramian.")
    matrix = jacobian if jacobian is not None else gramian
    name = "jacobian" if gramian is None else "gramian"
    if not isinstance(matrix, Tensor):
        raise ConfigError(f"{name} is {type(matrix).__name__}; expected a tensor, as by torch.as_tensor.")
    check_real(name, matrix)
    if gramian is not None and matrix.dtype in HALF:
        raise ConfigError(
            f"gramian is of type {matrix.dtype}, rounded to which a Gram matrix is not positive "
            "semidefinite. Form it from jacobian.double(), or give jacobian."
        )
    if matrix.ndim not in (2, 3):
        raise ConfigError(
            f"{name} has the shape {tuple(matrix.shape)}; expected a matrix, or a matrix for each of R runs."
        )
    if gramian is not None and algorithm.coordinates:
        raise CompatibilityError(
            f"{name_of(algorithm)} reads the single entries of gradients, which their Gram matrix does not "
            "have; give jacobian."
        )
    alone = matrix.ndim == 2
    rows = matrix.detach()[None] if alone else matrix.detach()
    rows = rows.to(widened(rows)) if gramian is None else _factor(rows)
    R, K, _ = rows.shape
    stepper = Stepper(algorithm, preference, constraints, steps, seed, ideal, paced)
    if values is None:
        direction, after, weights, report = _blind(stepper, rows, K - constraints, state, gramian is not None)
    else:
        check_real("values", torch.as_tensor(values), None)
        F = torch.as_tensor(values, dtype=torch.float64, device=rows.device).detach()
        if F.numel() != R * K:
            raise ConfigError(
                f"values has {F.numel() / R:g} entries for each run, but there are {K} gradients."
            )
        if F.shape != (R, K) and not (R == 1 and F.shape == (K,)):
            expected = f"({K},), a value for each gradient" if alone else f"({R}, {K}), a row for each run"
            raise ConfigError(f"values has the shape {tuple(F.shape)}; expected {expected}.")
        F = F.reshape(R, K)
        seen = Seen(F, rows, K - constraints, factored=gramian is not None)
        direction, after, weights, report = stepper.step(seen, state)
    if weights is None and gramian is not None:
        raise CompatibilityError(
            f"{name_of(algorithm)} gives a direction that is no weighted sum of gradients; give jacobian."
        )
    fail = ~torch.isfinite(direction).all(1)
    if report.fail is not None:
        fail = fail | report.fail
    outputs = [weights, None if gramian is not None else direction, report.kkt, fail]
    w, d, kkt, failed = (x[0] if alone and x is not None else x for x in outputs)
    assert failed is not None
    return w, Info(d, after, kkt, failed)


class Seen(TablePoint):
    """Values and rows of one sample, which records the weights and the result of each vjp.

    Attributes:
        variables: what the columns are, by numbers that last from step to step; None: unknown.
    """

    def __init__(
        self,
        values: Float[Tensor, "R K"],
        rows: Tensor | Callable[[], Tensor],
        M: int,
        vjp: Callable[[Tensor], Tensor] | None = None,
        x: Tensor | None = None,
        factored: bool = False,
    ) -> None:
        if x is None:
            assert isinstance(rows, Tensor)
            x = rows.new_zeros(len(rows), rows.shape[2])
        super().__init__(x, Free(), M, {}, values, rows, vjp=vjp)
        self.factored = factored
        self.variables: list[int] | None = None
        self.products: list[tuple[Tensor, Tensor]] = []

    def vjp(self, w: Float[Tensor, "R k"]) -> Float[Tensor, "R P"]:
        product = super().vjp(w)
        self.products.append((w, product))
        return product

    def weights(self, d: Float[Tensor, "R P"]) -> Tensor | None:
        """w with d = -J^T w, if d is what a single vjp gave, or its negative."""
        # rows that are finite; a sum that is says so of all of them, and nothing has to be copied
        good = slice(None) if math.isfinite(d.sum()) else torch.isfinite(d).all(1)
        seen = d[good]
        for w, product in self.products:
            rows = product[good]
            if torch.equal(seen, -rows) and not (torch.equal(seen, rows) and _same_zeros(seen, rows)):
                return w
            if torch.equal(seen, rows):
                return -w
        return None


def _remembers(state: State, P: int) -> bool:
    """Says whether the state of a method that tells variables apart has numbers for each of P."""
    return any(isinstance(x, Tensor) and x.ndim > 1 and x.shape[-1] == P for x in tree_leaves(state))


def _same_zeros(one: Tensor, other: Tensor) -> bool:
    """Says whether zeros have equal signs, which tells a direction of zeros from its negative."""
    return torch.equal(torch.signbit(one), torch.signbit(other))


@dataclass(frozen=True)
class Stepper:
    """One step of a method at a point, with N constraints and the settings of a whole run.

    Fields: paced: whether a step size was chosen, for methods whose weights are computed from it.
    """

    algorithm: Algorithm
    preference: Tensor | Sequence[float] | None
    N: int
    steps: int
    seed: int
    ideal: Sequence[float] | None
    paced: bool = False

    def __post_init__(self) -> None:
        for what, values in (("preference", self.preference), ("ideal", self.ideal)):
            if values is not None:
                check_real(what, torch.as_tensor(values), None)
                # the caller's own object may be filled anew before the first step reads it
                own = values.detach().clone() if isinstance(values, Tensor) else copy.deepcopy(values)
                object.__setattr__(self, what, own)

    def step(
        self, point: Seen, state: Mapping[str, Any] | None
    ) -> tuple[Tensor, dict[str, Any], Tensor | None, Any]:
        """Direction (R, P), next state, weights (R, k) or None, and what the subproblem's solver says."""
        algorithm = self.algorithm
        # autocast would round the products of gradients to half precision
        with torch.no_grad(), torch.autocast(point.x.device.type, enabled=False):
            factor = None
            if algorithm.transforms:
                point, factor = _transformed(point, algorithm)
            R, K = point.values().shape
            counts = {"runs": R, "objectives": K - self.N, "constraints": self.N}
            if not state:
                state = {"t": 0, "alg": self._first(point), "settings": {**self.settings, **counts}}
            else:
                self.expect(state, counts)
                self._nonnegative(point, int(state["t"]))
            settings = state["settings"]
            t = int(state["t"])
            P = point.x.shape[1]
            if algorithm.coordinates and "P" in state and _remembers(state["alg"], state["P"]):
                self._expect_variables(point, state["P"], state.get("variables", point.variables))
            d, alg, report = algorithm.step((point,), _copied(state["alg"]), t, algorithm.schedule(t))
        weights = point.weights(d)
        if weights is not None and factor is not None:
            weights = weights * factor
        after = {"t": t + 1, "alg": alg, "settings": settings}
        if algorithm.coordinates and _remembers(alg, P):
            after |= {"P": P, "variables": point.variables}
        return d, after, weights, report

    def _expect_variables(self, point: Seen, before: int, variables: list[int] | None) -> None:
        """Raises ConfigError where a method remembers numbers for other variables than these."""
        now = point.x.shape[1]
        if before == now and variables == point.variables:
            return
        others = f"there are {now} now" if before != now else f"{now} others are trained now"
        raise ConfigError(
            f"{name_of(self.algorithm)} remembers numbers for each of {before} variables, and {others}. "
            "Freeze parameters before its first step, or begin a new run."
        )

    def expect(self, state: Mapping[str, Any], counts: Mapping[str, int] | None = None) -> None:
        """Compares a state with the settings of this run.

        Raises:
            ConfigError: it was made by another method or with other settings, or `info.state` is not what it
                is.
        """
        before = state.get("settings")
        if not isinstance(before, Mapping):
            raise ConfigError(
                f"The state has the keys {sorted(map(str, state))}; expected info.state of the last step."
            )
        now = {**self.settings, **(counts or {})}
        # a method's constants are computed from its options before the first step, and lie in the state
        other = [key for key, value in now.items() if before.get(key, "(unknown)") != value]
        if not other:
            return
        if "method" in other:
            other = ["method"]  # its options are others, too
        elif other == ["options"]:
            before, now = before["options"], now["options"]
            other = [key for key, value in now.items() if before.get(key, "(unknown)") != value]
        made_with, asked = (
            ", ".join(f"{key}={given.get(key, '(unknown)')}" for key in other) for given in (before, now)
        )
        raise ConfigError(
            f"The state was made with {made_with}, but this step asks for {asked}. Method, options, "
            "preference, steps, seed and ideal belong to a whole run; begin one with state=None, or by a new "
            "Balanced around the same optimizer, as to anneal a smoothing (docs/training.md)."
        )

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of a whole run, as plain numbers and words."""
        algorithm = self.algorithm
        unread = {"optimizer", "outputs"} | (set() if algorithm.own_step else STEP)
        read = [x.name for x in fields(algorithm) if x.name not in unread]
        return {
            "method": name_of(algorithm),
            "options": {key: _plain(getattr(algorithm, key)) for key in read},
            "preference": None if self.preference is None else torch.as_tensor(self.preference).tolist(),
            "steps": self.steps,
            "seed": self.seed,
            "ideal": None if self.ideal is None else torch.as_tensor(self.ideal).tolist(),
        }

    def _nonnegative(self, point: Seen, t: int) -> None:
        """Raises CompatibilityError where the method needs objectives >= 0, and those of step t are not."""
        F = point.values()[:, : point.M]
        if self.algorithm.positive and bool((F < 0).any()):
            least = F.amin().item()
            raise CompatibilityError(
                f"{name_of(self.algorithm)} needs objectives >= 0, but one of step {t} is {least:.6g}. "
                "Nothing has changed; subtract a lower bound from the losses, from the first step on, or "
                "choose a method that does without."
            )

    def _first(self, point: Seen) -> State:
        """The method's state before its first step."""
        values = point.values()
        R, K = values.shape
        M = K - self.N
        if M < 1:
            raise ConfigError(f"{self.N} of {K} rows are constraints; expected at least one objective.")
        spec = Spec(
            R=R,
            M=M,
            N=self.N,
            P=point.x.shape[1],
            X=Free(),
            provides=frozenset({"jacobian", "jvp"}),
            positive=not bool((values[:, :M] < 0).any()),
        )
        if self.algorithm.derivative_free or self.algorithm.replaces:
            raise CompatibilityError(
                f"{name_of(self.algorithm)} chooses points by itself, not by gradients; use `mobench.run`."
            )
        check(spec, self.algorithm)
        if self.algorithm.own_step and not self.paced:
            raise ConfigError(
                f"{name_of(self.algorithm)} needs step_size=, since {self.algorithm.own_step}: give the step "
                "that you make along the direction, the learning rate of plain SGD. Where it changes, let it "
                "be step_size / (step_offset + t)^step_decay of these options."
            )
        prefs = self._preferences(R, M).to(values.device)
        if len(torch.unique(prefs, dim=0)) == 1 and (words := self.algorithm.misses()):
            raise CompatibilityError(words)
        ideal = None if self.ideal is None else torch.as_tensor(self.ideal, dtype=torch.float64).to(prefs)
        if ideal is not None and ideal.ndim == 0:
            ideal = ideal.expand(M)
        if ideal is not None and ideal.shape not in ((M,), (R, M)):
            raise ConfigError(
                f"ideal has the shape {tuple(ideal.shape)}; expected ({M},), a number for each objective."
            )
        return self.algorithm.init(
            Context(
                spec=spec,
                prefs=prefs,
                all_prefs=torch.unique(prefs, dim=0),
                theta=point.x,
                exact=lambda theta: values,
                steps=self.steps,
                ideal=ideal,
                seeds=torch.full((R,), self.seed, dtype=torch.int64, device=values.device),
            )
        )

    def _preferences(self, R: int, M: int) -> Float[Tensor, "R M"]:
        if self.preference is None:
            return torch.full((R, M), 1.0 / M, dtype=torch.float64)
        weights = torch.as_tensor(self.preference, dtype=torch.float64).cpu()
        weights = check_weights(weights.reshape(-1, weights.shape[-1]), M, None)
        if len(weights) not in (1, R):
            raise ConfigError(
                f"preference has {len(weights)} rows; expected one, or one for each of {R} runs."
            )
        return weights.expand(R, -1).contiguous()


def _blind(
    stepper: Stepper,
    rows: Float[Tensor, "R K P"],
    M: int,
    state: Mapping[str, Any] | None,
    factored: bool,
) -> tuple[Tensor, dict[str, Any], Tensor | None, Any]:
    """A step without values, for methods that see gradients alone: any values must give the same step.

    Raises:
        ConfigError: the steps for two sets of values differ.
    """
    R, K, _ = rows.shape
    up = torch.linspace(1.0, 2.0, K, dtype=torch.float64, device=rows.device).expand(R, -1)
    one, other = (
        stepper.step(Seen(values, rows, M, factored=factored), state) for values in (up, 0.7 * up.flip(1))
    )
    for a, b in zip(tree_leaves([one[0], one[1]]), tree_leaves([other[0], other[1]]), strict=True):
        same = torch.allclose(a, b, rtol=1e-9, atol=0.0, equal_nan=True) if isinstance(a, Tensor) else a == b
        if not same:
            raise ConfigError(
                f"{name_of(stepper.algorithm)} depends on the values of the objectives; give values."
            )
    return one


def _transformed(point: Seen, algorithm: Algorithm) -> tuple[Seen, Tensor]:
    """The point of fn(f), and fn'(f) (R, M)."""
    values = point.values()
    M = point.M
    moved, factor = slope(algorithm.transform, values[:, :M])
    scale = torch.cat([factor, torch.ones_like(values[:, M:])], dim=1)
    dtype = point.x.dtype  # of the rows; values are float64
    other = Seen(
        torch.cat([moved, values[:, M:]], dim=1),
        lambda: scale.to(dtype).unsqueeze(-1) * point.jacobian(),
        M,
        lambda w: point.vjp((w * factor).to(dtype)),
        point.x,
        point.factored,
    )
    other.variables = point.variables
    return other, factor


def made(method: str | Algorithm, options: Mapping[str, Any]) -> Algorithm:
    """The method by its name, with its options.

    Raises:
        ConfigError: unknown names or options; an optimizer of the method, which only jobs have.
    """
    if not isinstance(method, Algorithm):
        words = (f"algorithm.{key}={compose.text(value, key)}" for key, value in options.items())
        algorithm = _composed(method, tuple(words))
    elif options:
        raise ConfigError(f"{name_of(method)} has its options already; {', '.join(options)} cannot be added.")
    else:
        algorithm = method
    if algorithm.optimizer != "sgd":
        raise ConfigError(
            f"optimizer={algorithm.optimizer} is an option of mobench.run. Here only the direction is the "
            "method's; the step is yours: mobench.Balanced(torch.optim.Adam(...), method), for example."
        )
    return algorithm


def of_a_loop(
    method: str | Algorithm, options: Mapping[str, Any], ideal: Sequence[float] | None
) -> tuple[Algorithm, bool]:
    """The method of a loop that makes the steps itself, and whether their size was chosen.

    Raises:
        ConfigError: as of `made`; options that would change nothing there; z for a method without one.
    """
    algorithm = at_ideal(made(method, options), ideal)
    name = name_of(algorithm)
    given = [key for key in options if key in STEP]
    if given and not algorithm.own_step:
        raise ConfigError(
            f"{', '.join(given)} of {name} would change nothing: here only the direction is the method's. "
            "The step is yours: the learning rate of an optimizer, a schedule of torch.optim.lr_scheduler."
        )
    outputs = options.get("outputs", ("last",))
    if list([outputs] if isinstance(outputs, str) else outputs) != ["last"]:
        raise ConfigError(
            f"outputs={outputs} of {name} would change nothing: here the method gives a step, and averages "
            "of the iterates are yours to keep, as by torch.optim.swa_utils.AveragedModel."
        )
    return algorithm, isinstance(method, Algorithm) or "step_size" in given


def at_ideal(algorithm: Algorithm, ideal: Any) -> Algorithm:
    """The method, which takes z from `Context.ideal` where one is given.

    Raises:
        ConfigError: it has no z, or has other numbers for it.
    """
    if ideal is None:
        return algorithm
    key = algorithm.ideal_field
    field = next((x for x in fields(algorithm) if x.name == key), None)
    if field is None:
        raise ConfigError(f"{name_of(algorithm)} has no ideal point; leave ideal= out.")
    z = getattr(algorithm, key)
    given = _plain(ideal)
    if not isinstance(z, str) and _plain(z) not in (field.default, given):
        raise ConfigError(f"ideal={given}, but {name_of(algorithm)} has {key}={_plain(z)}; give one.")
    changed: dict[str, Any] = {key: "problem"}
    return replace(algorithm, **changed)


@functools.lru_cache(maxsize=256)
def _composed(method: str, words: tuple[str, ...]) -> Algorithm:
    """A method by its words on the command line; composing takes a tenth of a second, a step a thousandth."""
    algorithm = instantiate(compose.compose([f"algorithm={method}", *words])["algorithm"], "algorithm")
    assert isinstance(algorithm, Algorithm)
    return algorithm


def name_of(algorithm: Algorithm) -> str:
    return type(algorithm).__name__


def _factor(G: Float[Tensor, "R K K"]) -> Float[Tensor, "R K K"]:
    """Rows with the Gram matrix G.

    Raises:
        ConfigError: G is no Gram matrix.
    """
    if G.shape[1] != G.shape[2]:
        raise ConfigError(f"gramian has the shape {tuple(G.shape[1:])}; expected a square matrix.")
    wide = G.double()
    e, V = torch.linalg.eigh(0.5 * (wide + wide.mT))
    size = e.abs().amax(1, keepdim=True)
    asymmetric = (wide - wide.mT).abs().amax((1, 2)) > 1e-6 * size[:, 0]
    if bool(asymmetric.any()) or bool((e < -1e-6 * size).any()):
        raise ConfigError("gramian is not symmetric positive semidefinite, as J J^T is.")
    return V * e.clamp_min(0.0).sqrt().unsqueeze(1)


def widened(*tensors: Tensor) -> torch.dtype:
    """The type that holds these tensors, float32 at least: squares overflow in half precision."""
    return functools.reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)


def _plain(value: Any) -> Any:
    """An option as numbers, words, lists and dicts, which compare and which a file can hold."""
    if isinstance(value, str | int | float | None):
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [_plain(part) for part in value]
    kind = value if hasattr(value, "__qualname__") else type(value)  # a function, or an object of a plug-in
    return f"{kind.__module__}.{kind.__qualname__}"


def _copied(state: Any) -> Any:
    """A state that a step may write to."""
    return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, state)
