"""Methods inside a training loop of one's own: `solve` and `Balanced` against the internal loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import mobench
from mobench.algorithms.tch import TCH
from mobench.config.compose import compose
from mobench.config.schema import choices
from mobench.core import Free, Spec, loop
from mobench.core.preferences import Runs
from mobench.errors import CompatibilityError, ConfigError, MobenchError, PreferenceError
from mobench.jobs.targets import instantiate
from mobench.oracles import Exact
from mobench.problems import VLMOP2
from mobench.training import Balanced, Info, solve
from tests.contract.cases import algorithm_of

F64 = torch.float64


def made(name: str, **options: Any) -> Any:
    """A method with the settings of its file."""
    words = [f"algorithm.{key}={value}" for key, value in options.items()]
    return instantiate(compose([f"algorithm={name}", *words])["algorithm"], "algorithm")


def fits(name: str) -> bool:
    """As its class declares, it steps along gradients of one sample."""
    method = algorithm_of(name)
    chooses = method.derivative_free or method.replaces
    needs = method.needs(Spec(R=1, M=2, N=0, P=3, X=Free()))
    return not (chooses or method.samples > 1 or method.constraints[0] > 0 or "hvp" in needs)


FITTING = {name: fits(name) for name in choices("algorithm")}
# a model alone has no other preferences, between which there are sectors; weights that are computed from the
# step size need one
ALONE: dict[str, dict[str, Any]] = {
    "pmtl": {"references": 4},
    **{name: {"step_size": algorithm_of(name).step_size} for name in FITTING if algorithm_of(name).own_step},
}
Z = {"famo": "bound"}  # the field that holds the ideal point, where it has another name


def has_z(name: str) -> bool:
    return hasattr(algorithm_of(name), Z.get(name, "ideal"))


def given(name: str, ideal: list[float]) -> dict[str, Any]:
    """The arguments that a method needs beside preference and steps, and z if it has one."""
    return {**ALONE.get(name, {}), **({"ideal": ideal} if has_z(name) else {})}


def internal(problem: Any, name: str, preference: list[float], steps: int) -> Tensor:
    """The iterates (T + 1, P) of the project's own loop."""
    runs = Runs.product(torch.tensor([preference], dtype=F64), [0])
    oracle = Exact(problem, runs)
    method = made(name, **ALONE.get(name, {}))
    state = loop.start(oracle, method, {}, oracle.initial(runs), runs, steps)
    xs = [state["theta"][0]]
    for t in range(steps):
        state = loop.advance(oracle, method, {}, state, t + 1)
        xs.append(state["theta"][0])
    assert bool(state["alive"].all())
    return torch.stack(xs)


class Rate(torch.optim.lr_scheduler.LambdaLR):
    """The step sizes of a method."""

    def __init__(self, optimizer: torch.optim.Optimizer, method: Any) -> None:
        super().__init__(optimizer, lambda t: float(method.schedule(t)))


def outside(problem: Any, name: str, start: Tensor, preference: list[float], steps: int) -> Tensor:
    """The same in a loop of one's own."""
    x = start.clone().requires_grad_(True)
    sgd = torch.optim.SGD([x], lr=1.0)
    optimizer = Balanced(sgd, name, preference, steps=steps, **given(name, problem.ideal_point.tolist()))
    rates = Rate(sgd, optimizer.algorithm)
    xs = [x.detach().clone()]
    for _ in range(steps):
        values = problem.values(x.unsqueeze(0))[0]
        M = problem.n_objectives
        optimizer.step(values[:M], values[M:])
        rates.step()
        xs.append(x.detach().clone())
    return torch.stack(xs)


@pytest.mark.parametrize("name", [name for name, fitting in FITTING.items() if fitting])
def test_a_loop_of_ones_own_is_the_internal_loop(name: str) -> None:
    problem = VLMOP2()
    preference = [0.3, 0.7]
    inside = internal(problem, name, preference, 15)
    iterates = outside(problem, name, inside[0], preference, 15)
    torch.testing.assert_close(iterates, inside, rtol=0, atol=1e-10)
    assert (inside[-1] - inside[0]).norm() > 1e-6, "nothing has moved"


@pytest.mark.parametrize("name", ["csmoo2", "ferero", "penalty_sgd"])
def test_constraints(name: str) -> None:
    problem = instantiate(compose(["problem=least_squares", "problem.caps=[null,0.3]"])["problem"], "problem")
    inside = internal(problem, name, [0.5, 0.5], 25)
    iterates = outside(problem, name, inside[0], [0.5, 0.5], 25)
    torch.testing.assert_close(iterates, inside, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [name for name, fitting in FITTING.items() if not fitting])
def test_what_needs_more_than_gradients_of_one_sample_is_refused(name: str) -> None:
    with pytest.raises(CompatibilityError):
        solve(name, rows(M=2), torch.ones(2, dtype=F64))


def rows(R: int | None = None, M: int = 3, P: int = 7) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(*(() if R is None else (R,)), M, P, dtype=F64, generator=draw)


@pytest.mark.parametrize("name", ["mgda", "upgrad", "cagrad", "nash_mtl", "aligned_mtl", "imtl_g", "pcgrad"])
def test_gram_matrices_are_enough_for_weights(name: str) -> None:
    J = rows()
    w, info = solve(name, J)
    again, other = solve(name, gramian=J @ J.mT)
    assert w is not None
    assert again is not None
    torch.testing.assert_close(w, again, rtol=1e-6, atol=1e-8)
    assert info.direction is not None
    torch.testing.assert_close(info.direction, -(w @ J), rtol=1e-12, atol=1e-12)
    assert other.direction is None
    assert not info.failed
    if info.kkt_residual is not None:
        assert info.kkt_residual <= 1e-9


@pytest.mark.parametrize("name", ["mgda", "ferero", "epo", "stch", "graddrop"])
def test_runs_are_solved_together_as_alone(name: str) -> None:
    J = rows(4)
    F = torch.rand(4, 3, dtype=F64, generator=torch.Generator().manual_seed(1)) + 0.1
    P = torch.tensor([[0.2, 0.3, 0.5], [0.5, 0.25, 0.25], [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]], dtype=F64)
    together = solve(name, J, F, P)
    for r in range(4):
        alone = solve(name, J[r], F[r], P[r])
        for a, b in ((together[0], alone[0]), (together[1].direction, alone[1].direction)):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                torch.testing.assert_close(a[r], b, rtol=1e-9, atol=1e-11)
    assert (together[0] is None) == (name == "graddrop"), "its direction is chosen coordinate by coordinate"


@pytest.mark.parametrize("name", [name for name, fitting in FITTING.items() if fitting])
def test_weights_of_a_direction_of_zeros_have_the_sign_of_all_others(name: str) -> None:
    """0 is equal to -0: opposite gradients of one size cancel, those of 1 and 1 + 1e-9 all but do."""
    J = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=F64)
    ends = torch.ones(2, dtype=F64)
    options = given(name, [0.0, 0.0])
    zero, _ = solve(name, J, ends, **options)
    near, _ = solve(name, J * (1 + torch.tensor([[0.0], [1e-9]], dtype=F64)), ends, **options)
    if zero is not None and near is not None:
        assert zero.sum() * near.sum() >= 0


def first_step(name: str, **options: Any) -> Tensor:
    """Returns q after a step from 0, with the losses 1 + q_1 and 2 + q_2 and the learning rate 0.1."""
    q = torch.zeros(2, dtype=F64, requires_grad=True)
    Balanced(torch.optim.SGD([q], lr=0.1), name, **options).step(torch.tensor([1.0, 2.0], dtype=F64) + q)
    return q.detach()


def test_what_would_pass_without_a_word_is_refused() -> None:
    """A preference without others beside it, values of runs in columns, features that count twice."""
    J = rows(3, M=2)
    with pytest.raises(CompatibilityError, match="here is only one: give references=L"):
        solve("pmtl", J[0], [1.0, 2.0], [0.3, 0.7])
    near, far = (solve("pmtl", J[0], [1.0, 2.0], [w, 1 - w], references=5)[0] for w in (0.1, 0.9))
    assert near is not None
    assert far is not None
    assert not torch.allclose(near, far)
    with pytest.raises(ConfigError, match=r"the shape \(2, 3\); expected \(3, 2\), a row for each run"):
        solve("stch", J, torch.ones(2, 3))
    with pytest.raises(ConfigError, match=r"the shape \(2, 1\); expected \(2,\), a value for each"):
        solve("stch", J[0], torch.ones(2, 1))
    net, x, _ = network()
    optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.1), "mgda")
    z = net.trunk(x)
    with pytest.raises(ConfigError, match="features has a tensor twice"):
        optimizer.backward(torch.stack([head(z).square().mean() for head in net.heads]), features=[z, z])


@pytest.mark.parametrize("name", ["ls", "mgda"])
def test_a_step_where_graphs_are_switched_off(name: str) -> None:
    """The losses have theirs, in a vector as in a list."""
    ends = []
    for listed in (False, True):
        net, x, y = network()
        optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.1), name)
        losses = (net(x) - y).square().mean(0)
        outputs = list(losses.unbind()) if listed else losses
        with torch.no_grad():
            optimizer.step(outputs)
        ends.append(torch.cat([p.detach().reshape(-1) for p in net.parameters()]))
    net, x, y = network()
    Balanced(torch.optim.SGD(net.parameters(), lr=0.1), name).step((net(x) - y).square().mean(0))
    for end in ends:
        assert torch.equal(end, torch.cat([p.detach().reshape(-1) for p in net.parameters()]))


@pytest.mark.parametrize("name", [name for name, fitting in FITTING.items() if fitting])
def test_an_ideal_point_is_used_or_refused(name: str) -> None:
    """Weights of f at z are those of f - z at 0; F and z such that both differ from f at 0."""
    J, F, z = rows(M=2), torch.tensor([1.0, 1.2], dtype=F64), torch.tensor([0.0, 1.15], dtype=F64)
    options = ALONE.get(name, {})
    if not has_z(name):
        with pytest.raises(ConfigError, match="has no ideal point"):
            solve(name, J, F, ideal=z.tolist(), **options)
        with pytest.raises(ConfigError, match="has no ideal point"):
            Balanced(torch.optim.SGD([torch.ones(2, requires_grad=True)]), name, ideal=z.tolist(), **options)
        return
    at, first = solve(name, J, F, ideal=z.tolist(), **options)
    moved, other = solve(name, J, F - z, ideal=[0.0, 0.0], **options)
    away, far = solve(name, J, F, ideal=[0.0, 0.0], **options)
    if at is None:  # CSMOO's direction is no weighted sum
        at, moved, away = first.direction, other.direction, far.direction
    torch.testing.assert_close(at, moved, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(at, away, rtol=1e-3)
    q = torch.zeros(7, dtype=F64, requires_grad=True)
    _, info = Balanced(torch.optim.SGD([q], lr=0.1), name, ideal=z, **options).backward(F + J @ q)
    torch.testing.assert_close(info.direction, first.direction, rtol=1e-9, atol=1e-12)


def test_an_ideal_point_by_hand() -> None:
    J, F, z = rows(M=2), [1.0, 1.2], [0.9, 0.0]
    half = [0.5, 0.5]
    w, _ = solve("tch", J, F, half, ideal=[0.0, 1.15])  # w (f - z) = (.5, .025)
    assert w is not None
    assert w.tolist() == [0.5, 0.0]
    for name in ("stch", "term"):
        w, _ = solve(name, J, F, half, ideal=z, mu=1.0)
        soft = torch.softmax(torch.tensor([0.05, 0.6], dtype=F64), 0)
        torch.testing.assert_close(w, 0.5 * soft, rtol=1e-12, atol=0)
    with pytest.raises(ConfigError, match=r"ideal has the shape \(3,\); expected \(2,\)"):
        solve("tch", J, F, ideal=[0.0, 0.0, 0.0])
    with pytest.raises(ConfigError, match=r"ideal=\[0.9, 0.0\], but FAMO has bound=0.5; give one"):
        solve("famo", J, F, ideal=z, bound=0.5)
    with pytest.raises(ConfigError, match=r"but TCH has ideal=\[0, 0.5\]; give one"):
        solve(TCH(ideal=[0, 0.5]), J, F, ideal=z)
    same, _ = solve(TCH(ideal=[0.0, 1.15]), J, F, half)
    given, _ = solve(TCH(), J, F, half, ideal=[0.0, 1.15])
    torch.testing.assert_close(given, same, rtol=0, atol=0)


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "stch": ({"mu": 0.01}, {"mu": 1.0}, r"made with mu=0.01, but this step asks for mu=1.0\."),
    "omd_tch": ({"lambda_step": 1.0}, {"lambda_step": 0.0}, "lambda_step=1.0.*lambda_step=0.0"),
    "tch": ({"gradient": "weighted"}, {"gradient": "unweighted"}, "gradient=weighted.*gradient=unweighted"),
    "pbi": ({}, {"theta": 1.0}, "theta=5.0.*theta=1.0"),
    "ferero": ({}, {"upper": [1.0, None]}, r"upper=None.*upper=\[1.0, None\]"),
    "qffl": ({"step_size": 0.1}, {"step_size": 0.2}, "step_size=0.1.*step_size=0.2"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_options_belong_to_a_whole_run(name: str) -> None:
    """A method computes constants from them before its first step, which lie in its state."""
    first, second, words = CHANGED[name]
    J, F = rows(M=2), [1.0, 0.8]
    _, info = solve(name, J, F, **first)
    solve(name, J, F, state=info.state, **first)
    with pytest.raises(ConfigError, match=f"{words}.*belong to a whole run"):
        solve(name, J, F, state=info.state, **second)
    q = torch.zeros(7, dtype=F64, requires_grad=True)
    optimizer = Balanced(torch.optim.Adam([q], lr=0.1), name, **first)
    optimizer.step(torch.tensor(F, dtype=F64) + J @ q)
    other = Balanced(torch.optim.Adam([q], lr=0.2), name, **second)
    with pytest.raises(ConfigError, match=f"{words}.*belong to a whole run"):
        other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.2, "nothing has changed"
    assert other.state_dict()["method"] is None


def test_a_state_of_something_else_is_refused() -> None:
    J, F = rows(M=2), [1.0, 0.8]
    _, info = solve("excess_mtl", J, F)
    with pytest.raises(ConfigError, match="made with method=ExcessMTL, but this step asks for method=LS"):
        solve("ls", J, F, state=info.state)
    _, info = solve("omd_tch", J, F)
    with pytest.raises(ConfigError, match="objectives=2, but this step asks for objectives=3"):
        solve("omd_tch", rows(), [1.0, 0.8, 0.6], state=info.state)
    with pytest.raises(ConfigError, match="runs=1, but this step asks for runs=4"):
        solve("omd_tch", rows(4, M=2), torch.ones(4, 2), state=info.state)
    with pytest.raises(ConfigError, match=r"the keys \['lam'\]; expected info.state"):
        solve("omd_tch", J, F, state={"lam": [0.5, 0.5]})
    early = {**info.state, "settings": {"preference": None, "steps": 1000, "seed": 0, "ideal": None}}
    with pytest.raises(
        ConfigError, match=r"made with method=\(unknown\), but this step asks for method=OMDTCH"
    ):
        solve("omd_tch", J, F, state=early)


def test_a_smoothing_is_annealed_by_a_new_start() -> None:
    """As docs/training.md says: the method begins anew, the optimizer keeps its momentum."""
    q = torch.zeros(2, dtype=F64, requires_grad=True)
    optimizer = Balanced(torch.optim.SGD([q], lr=0.0, momentum=0.9), "stch", [0.5, 0.5], mu=0.01)
    total = torch.zeros(2, dtype=F64)
    for mu in (0.01, 0.1, 1.0):
        optimizer = Balanced(optimizer.optimizer, "stch", [0.5, 0.5], mu=mu)
        w, _ = optimizer.step(torch.tensor([1.0, 0.8], dtype=F64) + q)
        soft = torch.softmax(torch.tensor([0.5, 0.4], dtype=F64) / mu, 0)
        torch.testing.assert_close(w, 0.5 * soft, rtol=1e-12, atol=0)
        total = 0.9 * total + 0.5 * soft
    torch.testing.assert_close(optimizer.optimizer.state[q]["momentum_buffer"], total, rtol=1e-12, atol=0)


def test_a_gram_matrix_has_no_coordinates() -> None:
    """Three steps from Jacobians and from their Gram matrices, of all methods: equal or refused."""
    draw = torch.Generator().manual_seed(3)
    steps = [torch.randn(3, 7, dtype=F64, generator=draw) + 0.3 for _ in range(3)]
    F = torch.tensor([1.0, 2.0, 3.0], dtype=F64)
    refused = set()
    for name in (name for name, fitting in FITTING.items() if fitting and name != "pmtl"):  # its rays: M = 2
        options = given(name, [0.0, 0.0, 0.0])
        state = other = None
        for J in steps:
            w, info = solve(name, J, F, state=state, **options)
            try:
                v, seen = solve(name, values=F, state=other, gramian=J @ J.mT, **options)
            except CompatibilityError as error:
                assert "give jacobian" in str(error)  # noqa: PT017
                refused.add(name)
                break
            state, other = info.state, seen.state
            torch.testing.assert_close(v, w, rtol=1e-5, atol=1e-7)
    assert {"excess_mtl", "graddrop"} <= refused


FOLLOWED: dict[str, tuple[Callable[[], Any], str]] = {
    f"{name}, {entry}": (call, words)
    for name, options, words in (
        ("ls", {"step_size": 5.0}, "step_size of LS would change nothing.*learning rate"),
        ("mgda", {"step_decay": 0.5, "step_offset": 2.0}, "step_decay, step_offset of MGDA"),
        ("omd_tch", {"outputs": ["mean"]}, r"outputs=\['mean'\] of OMDTCH.*yours to keep"),
        ("stch", {"outputs": ["last", "adaptive"]}, "of STCH.*yours to keep"),
        ("qffl", {}, "QFFL needs step_size=, since the length of its step"),
        ("csmoo2", {"ideal": [0.0, 0.0]}, "CSMOO2 needs step_size=, since its step is a fraction"),
    )
    for entry, call in (
        ("solve", partial(solve, name, torch.eye(2, dtype=F64), [1.0, 2.0], **options)),
        ("Balanced", partial(first_step, name, **options)),
    )
}


@pytest.mark.parametrize("case", FOLLOWED)
def test_options_that_would_change_nothing_are_refused(case: str) -> None:
    call, words = FOLLOWED[case]
    with pytest.raises(ConfigError, match=words):
        call()


def test_outputs_of_a_step_are_the_last_iterate() -> None:
    """Named, or as the file of omd_tch has it, which a loop of one's own does not see."""
    for name, options in (("omd_tch", {"outputs": ["last"]}), ("omd_tch", {}), ("afl", {})):
        assert first_step(name, **options).tolist() == [-0.025, -0.025]
    for outputs in ("last", ["last"]):
        assert torch.equal(first_step("stch", outputs=outputs), first_step("stch"))


@pytest.mark.parametrize("lr", [0.01, 0.1, 0.5])
def test_qffl_with_the_step_size_of_its_optimizer_is_its_formula(lr: float) -> None:
    """theta - sum f^q g / sum h with h = q f^(q - 1) |g|^2 + f^q / lr, q = 1."""
    x = torch.tensor([0.3, 0.8], dtype=F64, requires_grad=True)
    F = torch.stack([(x - 1).square().sum(), (x + 1).square().sum() + 0.5])
    f = F.detach()
    g = torch.stack([2 * (x - 1), 2 * (x + 1)]).detach()
    expected = x.detach() - f @ g / (g.square().sum(1) + f / lr).sum()
    Balanced(torch.optim.SGD([x], lr=lr), "qffl", step_size=lr).step(F)
    torch.testing.assert_close(x.detach(), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "name", [n for n, fitting in FITTING.items() if fitting and algorithm_of(n).positive]
)
def test_objectives_stay_nonnegative_in_each_step(name: str) -> None:
    J, options = rows(M=2), ALONE.get(name, {})
    _, info = solve(name, J, [2.0, 1.0], **options)
    words = r"needs objectives >= 0, but one of step 1 is -0.3\. Nothing has changed"
    with pytest.raises(CompatibilityError, match=words):
        solve(name, J, [0.5, -0.3], state=info.state, **options)
    solve(name, J, [0.5, 0.0], state=info.state, **options)
    q = torch.zeros(7, dtype=F64, requires_grad=True)
    optimizer = Balanced(torch.optim.SGD([q], lr=0.01), name, **options)
    optimizer.step(torch.tensor([2.0, 1.0], dtype=F64) + J @ q)
    before, state = q.detach().clone(), str(optimizer.state_dict())
    with pytest.raises(CompatibilityError, match=words):
        optimizer.step(torch.tensor([0.5, -0.3], dtype=F64) + J @ (q - before))
    assert torch.equal(q, before)
    assert str(optimizer.state_dict()) == state


def depths() -> tuple[list[Tensor], dict[str, Any], Tensor]:
    """Features of two depths, and others of theirs, with the parameter of the trunk."""
    torch.manual_seed(0)
    x = torch.randn(8, 4, dtype=F64)
    trunk = torch.randn(4, 6, dtype=F64, requires_grad=True)
    shallow = torch.tanh(x @ trunk)
    deep = torch.tanh(shallow @ torch.randn(6, 6, dtype=F64))
    left, right = (x @ trunk).sin().chunk(2, dim=1)
    sets = {
        "two depths": [shallow, deep],
        "the deep one first": [deep, shallow],
        "a slice": [shallow, shallow[:, :2]],
        "a view": [shallow.view(-1), shallow],
        "a copy": [shallow, shallow.clone()],
        "a part and what is made of it": [left, right, left.exp()],
        "two parts": [left, right],
        "two branches": [shallow.sin(), shallow.cos()],
        "a detached depth": [shallow, torch.tanh(shallow.detach() * trunk[0])],
    }
    return [shallow, deep], sets, trunk


@pytest.mark.parametrize("kind", list(depths()[1]))
def test_features_of_which_one_is_computed_from_another_are_refused(kind: str) -> None:
    """With ls, backward is the truth: the trunk's gradient is that of the weighted sum of the losses."""
    _, sets, trunk = depths()
    features = sets[kind]
    losses = [z.square().mean() * (m + 1) for m, z in enumerate(features)]
    weights = torch.full((len(losses),), 1.0 / len(losses), dtype=F64)
    expected = torch.autograd.grad(weights @ torch.stack(losses), trunk, retain_graph=True)[0]
    optimizer = Balanced(torch.optim.SGD([trunk], lr=0.1), "ls")
    if kind in ("two parts", "two branches", "a detached depth"):
        with torch.no_grad():
            optimizer.backward(losses, features=features)
        torch.testing.assert_close(trunk.grad, expected, rtol=1e-10, atol=1e-14)
    else:
        with pytest.raises(ConfigError, match=r"Feature \d is one from which another of the features is"):
            optimizer.backward(losses, features=features)
        assert trunk.grad is None


def test_a_state_goes_from_step_to_step() -> None:
    J, F = rows(), torch.ones(3, dtype=F64)
    first = solve("omd_tch", J, torch.tensor([1.0, 2.0, 3.0], dtype=F64))
    later, info = solve("omd_tch", J, F, state=first[1].state)
    fresh, _ = solve("omd_tch", J, [1.0, 1.0, 1.0])
    assert info.state["t"] == 2
    assert later is not None
    assert fresh is not None
    assert not torch.equal(later, fresh)
    assert first[1].state["t"] == 1, "a step leaves its state as it was"


class Net(torch.nn.Module):
    """A trunk and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh())
        self.heads = torch.nn.ModuleList([torch.nn.Linear(6, 1), torch.nn.Linear(6, 1)])

    def forward(self, x: Tensor) -> Tensor:
        z = self.trunk(x)
        return torch.cat([head(z) for head in self.heads], dim=1)


def network() -> tuple[Net, Tensor, Tensor]:
    torch.manual_seed(0)
    net = Net().double()
    return net, torch.randn(32, 4, dtype=F64), torch.randn(32, 2, dtype=F64)


def test_gradients_of_a_network_are_the_weighted_ones() -> None:
    net, x, y = network()
    parameters = list(net.parameters())
    losses = (net(x) - y).square().mean(0)
    J = torch.stack(
        [
            torch.cat(
                [
                    torch.zeros_like(p).flatten() if g is None else g.flatten()
                    for p, g in zip(
                        parameters,
                        torch.autograd.grad(f, parameters, retain_graph=True, allow_unused=True),
                        strict=True,
                    )
                ]
            )
            for f in losses
        ]
    )
    expected, _ = solve("mgda", J, losses.detach())
    optimizer = Balanced(torch.optim.SGD(parameters, lr=0.0), "mgda")
    w, info = optimizer.step(list(losses))
    assert isinstance(info, Info)
    assert w is not None
    assert expected is not None
    torch.testing.assert_close(w, expected, rtol=1e-10, atol=1e-12)
    gradient = torch.cat([p.grad.flatten() for p in parameters])  # type: ignore[union-attr]
    torch.testing.assert_close(gradient, w @ J, rtol=1e-10, atol=1e-12)


def test_features_leave_the_heads_their_own_losses() -> None:
    net, x, y = network()
    z = net.trunk(x)
    losses = [(head(z)[:, 0] - y[:, m]).square().mean() for m, head in enumerate(net.heads)]
    G = [torch.autograd.grad(f, z, retain_graph=True)[0] for f in losses]
    expected, _ = solve("mgda", torch.stack([g.flatten() for g in G]), torch.stack(losses).detach())
    assert expected is not None
    head_gradients = [
        torch.autograd.grad(f, list(h.parameters()), retain_graph=True)
        for f, h in zip(losses, net.heads, strict=True)
    ]
    trunk = torch.autograd.grad(
        z,
        list(net.trunk.parameters()),
        sum(w * g for w, g in zip(expected, G, strict=True)),
        retain_graph=True,
    )
    optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.0), "mgda")
    w, _ = optimizer.step(losses, features=z)
    torch.testing.assert_close(w, expected, rtol=1e-10, atol=1e-12)
    for p, g in zip(net.trunk.parameters(), trunk, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-9, atol=1e-12)
    for head, grads in zip(net.heads, head_gradients, strict=True):
        for p, g in zip(head.parameters(), grads, strict=True):
            torch.testing.assert_close(p.grad, g, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["omd_tch", "epo", "mgda"])
def test_a_state_dict_continues(name: str, tmp_path: Any) -> None:
    def train(first: int, second: int) -> list[Tensor]:
        net, x, y = network()
        make = lambda: Balanced(torch.optim.Adam(net.parameters(), lr=0.01), name, [0.4, 0.6])  # noqa: E731
        optimizer = make()
        for k in range(first + second):
            if k == first:
                torch.save(optimizer.state_dict(), tmp_path / "state.pt")
                optimizer = make()
                optimizer.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
            optimizer.step((net(x) - y).square().mean(0))
        return [p.detach() for p in net.parameters()]

    for a, b in zip(train(8, 0), train(3, 5), strict=True):
        assert torch.equal(a, b)


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "nothing": (lambda: solve("mgda"), ConfigError, "either jacobian or gramian"),
    "both": (lambda: solve("mgda", rows(), gramian=rows()), ConfigError, "either jacobian or gramian"),
    "an array": (lambda: solve("mgda", rows().numpy()), ConfigError, "is ndarray; expected a tensor"),
    "a vector": (lambda: solve("mgda", torch.ones(3)), ConfigError, r"shape \(3,\)"),
    "values": (lambda: solve("epo", rows()), ConfigError, "EPO depends on the values"),
    "too few values": (lambda: solve("mgda", rows(), torch.ones(2)), ConfigError, "2 entries.*3 gradients"),
    "no Gram matrix": (lambda: solve("mgda", gramian=-torch.eye(2)), ConfigError, "not symmetric positive"),
    "no square": (lambda: solve("mgda", gramian=torch.ones(2, 3)), ConfigError, "square"),
    "no weights": (lambda: solve("graddrop", gramian=torch.eye(2)), CompatibilityError, "give jacobian"),
    "a name": (lambda: solve("mgdaa", rows()), ConfigError, "mgda"),
    "an option": (lambda: solve("mgda", rows(), stepp=1), ConfigError, "stepp"),
    "a preference": (lambda: solve("ls", rows(), preference=[0.5, 0.5]), PreferenceError, "M=3"),
    "preferences": (
        lambda: solve("ls", rows(2), preference=[[0.2, 0.3, 0.5]] * 3), ConfigError, "3 rows; expected one"
    ),
    "all constraints": (lambda: solve("ferero", rows(), constraints=3), ConfigError, "at least"),
    "negative": (lambda: solve("epo", rows(), -torch.ones(3)), CompatibilityError, "objectives >= 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(WRONG))
def test_messages(case: str) -> None:
    call, kind, words = WRONG[case]
    with pytest.raises(kind, match=words):
        call()


BLIND = ("mgda", "cagrad", "graddrop", "ls")
SEEING = ("epo", "ferero", "omd_tch", "dwa", "fedfv", "propfair")


@pytest.mark.parametrize("name", BLIND + SEEING)
def test_values_are_asked_for_where_they_matter(name: str) -> None:
    """Also where the first step does not show it: the state would."""
    options = given(name, [0.0, 0.0, 0.0])
    if name in SEEING:
        with pytest.raises(ConfigError, match="depends on the values"):
            solve(name, rows(), **options)
    else:
        _, info = solve(name, rows(), **options)
        _, other = solve(name, rows(), [3.0, 1.0, 2.0], **options)
        assert info.direction is not None
        torch.testing.assert_close(info.direction, other.direction)


def test_a_run_that_is_not_finite_stays_alone() -> None:
    J = rows(3)
    J[1, 0, 0] = torch.nan
    w, info = solve("mgda", J)
    assert info.failed.tolist() == [False, True, False]
    assert w is not None
    for r in (0, 2):
        alone, _ = solve("mgda", J[r])
        torch.testing.assert_close(w[r], alone)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    """The square root of 0 has a finite value."""
    q = torch.nn.Parameter(torch.zeros(2, dtype=F64))
    for name in ("ls", "mgda", "upgrad", "stch"):
        optimizer = Balanced(torch.optim.Adam([q]), name)
        with pytest.raises(MobenchError, match="gradient of step 0 is not finite"):
            optimizer.step([q.square().sum().sqrt(), (q - 1).square().sum()])
        assert q.tolist() == [0.0, 0.0]
        assert optimizer.state_dict()["method"] is None


def test_losses_are_not_rounded_to_the_parameters() -> None:
    """3.000 and 3.007 are one number in bf16."""
    q = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = Balanced(torch.optim.SGD([q], lr=0.0), "tch", ideal=[0.0, 0.0])
    w, _ = optimizer.step([q.float().sum() * 0 + 3.0, q.float().sum() * 0 + 3.007])
    assert w is not None
    assert w[0] == 0
    assert w[1] > 0


def test_messages_about_parameters_and_features() -> None:
    net, x, y = network()
    z = net.trunk(x)
    losses = [(head(z)[:, 0] - y[:, m]).square().mean() for m, head in enumerate(net.heads)]
    optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.1), "mgda")
    with pytest.raises(ConfigError, match="Function 1 depends on no feature"):
        optimizer.step(losses, features=z * 1.0)
    with pytest.raises(ConfigError, match="do not depend on parameters"):
        optimizer.step(losses, features=z.detach().requires_grad_())
    with pytest.raises(ConfigError, match="cannot be combined with constraints"):
        optimizer.step(losses, losses[:1], features=z)
    other = torch.nn.Parameter(torch.ones(1, dtype=F64))
    with pytest.raises(ConfigError, match="Function 2 depends on no parameter"):
        Balanced(torch.optim.SGD([other]), "mgda").step([other.sum(), losses[0]])
    with pytest.raises(ConfigError, match="no parameter that requires grad"):
        Balanced(torch.optim.SGD([torch.ones(2)]), "mgda").step(losses)
    climbing = torch.optim.Adam([other], maximize=True)
    with pytest.raises(ConfigError, match="Adam has maximize=True"):
        Balanced(climbing)
    optimizer = Balanced(torch.optim.Adam([other]))
    optimizer.optimizer.load_state_dict(climbing.state_dict())
    with pytest.raises(ConfigError, match="Adam has maximize=True"):
        optimizer.step([other.square().sum(), other.sum()])
    with pytest.raises(ConfigError, match="LBFGS needs a closure"):
        Balanced(torch.optim.LBFGS([other]))


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_a_preference_that_is_filled_anew_is_that_of_the_call(kind: Any) -> None:
    """Optimizers that are made in a loop with one object have each its own preference."""
    x = torch.nn.Parameter(torch.zeros(2, dtype=F64))
    preference, ideal = kind([0.2, 0.8]), kind([0.0, 0.0])
    optimizer = Balanced(torch.optim.SGD([x], lr=0.1), "tch", preference, ideal=ideal)
    preference[0], preference[1], ideal[1] = 0.8, 0.2, -100.0
    weights, _ = optimizer.step([(x - 1.0).square().sum() + 1.0, (x + 1.0).square().sum() + 1.0])
    assert weights is not None
    assert weights.tolist() == [0.0, 0.8]  # 0.2 * 3 < 0.8 * 3


def test_what_belongs_to_a_whole_run_does_not_change() -> None:
    J = rows()
    _, info = solve("ls", J, preference=[0.2, 0.3, 0.5])
    with pytest.raises(ConfigError, match="belong to a whole run"):
        solve("ls", J, preference=[0.5, 0.3, 0.2], state=info.state)


def test_messages_of_the_optimizer() -> None:
    net, x, y = network()
    optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.1), "mgda")
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(ConfigError, match=r"losses: number 2 \(\(32,\)\) must be a scalar"):
        optimizer.step([(net(x) - y).square().mean(), (net(x) - y).square()[:, 0]])
    with pytest.raises(ConfigError, match="do not detach"):
        optimizer.step([(net(x) - y).square().mean().detach()])
    with pytest.raises(MobenchError, match="not all finite"):
        optimizer.step([(net(x) - y).square().mean(), net(x).sum() * float("nan")])
    with pytest.raises(ConfigError, match=r"losses is a function.*not a closure"):
        optimizer.step(lambda: (net(x) - y).square().mean(0))  # type: ignore[arg-type]
    losses = (net(x) - y).square().mean(0)
    losses.sum().backward()
    with pytest.raises(ConfigError, match=r"The graph of function 1 is gone\. Do not call backward"):
        optimizer.step(losses)
    with pytest.raises(ConfigError, match="expected method and optimizer"):
        optimizer.load_state_dict({"state": {}})
    for p, old in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, old)


# complex, sparse, half precision

SLOPES = 1024 * torch.tensor([[3.0, -1.0, 2.0, 5.0], [-2.0, 4.0, 1.0, 0.5]], dtype=F64)
# how a tensor gets the type, and what the message says; None: the numbers are those of float64
KINDS: dict[str, tuple[Any, str | None]] = {
    "complex64": (lambda x: x.to(torch.complex64), r"complex \(torch\.complex64\).*torch\.view_as_real"),
    "sparse_coo": (lambda x: x.to_sparse(), r"layout torch\.sparse_coo.*to_dense"),
    "sparse_csr": (lambda x: x.reshape(-1, 1).to_sparse_csr(), r"layout torch\.sparse_csr.*to_dense"),
    "float8_e4m3fn": (lambda x: x.to(torch.float8_e4m3fn), r"torch\.float8_e4m3fn.*\.float\(\)"),
    "float16": (lambda x: x.half(), None),
    "bfloat16": (lambda x: x.bfloat16(), None),
}
Entry = Callable[[str, Callable[[Tensor], Tensor]], tuple[Tensor | None, Tensor | None]]


def dense(p: Tensor) -> Tensor:
    """The real numbers of a tensor of any type, with a graph."""
    p = p.to_dense() if p.layout is not torch.strided else p
    return (p.real if p.is_complex() else p).reshape(-1).double()


def by_parameters(name: str, convert: Any) -> tuple[Tensor | None, Tensor | None]:
    ones = torch.ones(2, dtype=F64)
    parts = [torch.nn.Parameter(convert(ones)), torch.nn.Parameter(ones.float())]
    losses = SLOPES @ torch.cat([dense(p) for p in parts])
    weights, info = Balanced(torch.optim.SGD(parts, lr=0.1), name).backward(losses)
    for p in parts:
        assert p.grad is not None
        assert p.grad.dtype == p.dtype
    grads = torch.cat([dense(p.grad) for p in parts])  # type: ignore[arg-type]
    assert info.direction is not None
    torch.testing.assert_close(grads, -info.direction.double(), rtol=1e-2, atol=0)
    return weights, info.direction


def by_features(name: str, convert: Any) -> tuple[Tensor | None, Tensor | None]:
    p = torch.nn.Parameter(torch.ones(4, dtype=F64))
    features = convert(1.0 * p)
    optimizer = Balanced(torch.optim.SGD([p], lr=0.1), name)
    weights, info = optimizer.backward(SLOPES @ dense(features), features=features)
    return weights, info.direction


def by_losses(name: str, convert: Any) -> tuple[Tensor | None, Tensor | None]:
    p = torch.nn.Parameter(torch.ones(4, dtype=F64))
    losses = [convert(f.reshape(1)) for f in SLOPES @ p]
    weights, info = Balanced(torch.optim.SGD([p], lr=0.1), name).backward(losses)
    return weights, info.direction


def by_jacobian(name: str, convert: Any) -> tuple[Tensor | None, Tensor | None]:
    weights, info = solve(name, convert(SLOPES))
    return weights, info.direction


def by_values(name: str, convert: Any) -> tuple[Tensor | None, Tensor | None]:
    weights, info = solve(name, SLOPES, convert(SLOPES.sum(1)))
    return weights, info.direction


def by_networks(name: str, convert: Any) -> tuple[Tensor | None, Tensor | None]:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = torch.nn.Parameter(convert(torch.ones(4, dtype=F64)))

        def forward(self, x: Tensor) -> Tensor:
            return dense(self.p) * x.double()

    mobench.networks(Net, lambda z, b: SLOPES @ z.mean(0), (torch.ones(8, 4),))
    raise AssertionError("accepted")


ENTRIES = (by_parameters, by_features, by_losses, by_jacobian, by_values, by_networks)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_types_of_numbers_are_right_or_refused(entry: Entry, kind: str) -> None:
    """Right: the numbers of float64, although squares of these gradients overflow in float16."""
    convert, words = KINDS[kind]
    if words is None and entry is by_networks:
        words = r"torch\.b?float16.*\.float\(\)"  # it trains float32 and float64
    if "float8" in kind and entry is by_values:
        words = None  # numbers as all others
    if words is not None:
        with pytest.raises(ConfigError, match=words):
            entry("mgda", convert)
        return
    for name in ("mgda", "cagrad", "upgrad", "imtl_g", "nash_mtl", "ls", "graddrop"):
        expected, info = solve(name, SLOPES)
        weights, direction = entry(name, convert)
        torch.testing.assert_close(direction, info.direction, rtol=1e-5, atol=1e-3, check_dtype=False)
        torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6, check_dtype=False)


class Words(torch.nn.Module):
    """A table of vectors for words, and a layer."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(5, 4, sparse=sparse)
        self.out = torch.nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.words(x))


def test_sparse_gradients_are_refused_by_name() -> None:
    x, y = torch.tensor([0, 1, 3, 3]), torch.ones(4, 2)

    def losses(outputs: Tensor, batch: Any) -> Tensor:
        return (outputs - batch[1]).square().mean(0)

    net = Words(True)
    balanced = Balanced(torch.optim.SGD(net.named_parameters(), lr=0.1), "mgda")
    with pytest.raises(ConfigError, match=r"parameter words\.weight of shape \(5, 4\).*sparse=False"):
        balanced.step(losses(net(x), (x, y)))
    features = net.words(x)  # the layer is the trunk
    with pytest.raises(ConfigError, match=r"parameter words\.weight.*sparse=False"):
        balanced.step(losses(net.out(features), (x, y)), features=features)
    table = net.words.weight.exp()  # a gradient that cannot be computed at all
    outputs = net.out(torch.nn.functional.embedding(x, table, sparse=True))
    with pytest.raises(ConfigError, match=r"sparse.*sparse=False"):
        balanced.step(losses(outputs, (x, y)))
    assert all(p.grad is None for p in net.parameters())
    with pytest.raises(ConfigError, match="sparse=False"):
        mobench.networks(lambda: Words(True), losses, (x, y))
    net = Words(False)
    Balanced(torch.optim.SGD(net.parameters(), lr=0.1), "mgda").step(losses(net(x), (x, y)))
    mobench.networks(lambda: Words(False), losses, (x, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_in_half_precision_do_not_round_the_weights(dtype: torch.dtype) -> None:
    q = torch.nn.Parameter(torch.zeros(2, dtype=F64))
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=1024.0)):
        optimizer = Balanced(torch.optim.SGD([q], lr=0.1), "ls", [0.3, 0.7])
        losses = [(1 + q[0]).to(dtype), (1 + q[1]).to(dtype)]
        weights, _ = optimizer.backward(losses, scaler=scaler)
        assert q.grad is not None
        gradient = q.grad / (1.0 if scaler is None else 1024.0)
        torch.testing.assert_close(gradient, torch.tensor([0.3, 0.7], dtype=F64), rtol=1e-12, atol=0)
        torch.testing.assert_close(weights, gradient)


def test_autocast_around_a_step_changes_nothing() -> None:
    J = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
    net, x, y = network()
    net, x, y = net.float(), x.float(), y.float()
    for name in ("mgda", "epo", "ls", "graddrop"):
        alone = solve(name, J, [1.0, 2.0, 3.0])
        features = net.trunk(x)
        losses = [(head(features)[:, 0] - y[:, m]).square().mean() for m, head in enumerate(net.heads)]
        both = []
        for enabled in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                inside = solve(name, J, [1.0, 2.0, 3.0])
                sgd = torch.optim.SGD(net.parameters(), lr=0.1)
                Balanced(sgd, name).backward(losses)
                grads = [p.grad for p in net.parameters()]
                Balanced(sgd, name).backward(losses, features=features)
                both.append([*grads, *(p.grad for p in net.parameters())])
            assert alone[1].direction is not None
            assert inside[1].direction is not None
            assert torch.equal(inside[1].direction, alone[1].direction)
        for a, b in zip(*both, strict=True):
            assert a is not None
            assert b is not None
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


# a GradScaler

STATEFUL = ("famo", "omd_tch", "nash_mtl", "epo")


class Overflow(torch.autograd.Function):
    """The identity, with a backward pass in float16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        return torch.where(g.abs() > 65504, g.sign() * torch.inf, g)


@pytest.mark.parametrize("featured", [False, True])
@pytest.mark.parametrize("name", STATEFUL)
def test_a_scaler_skips_steps_and_leaves_no_trace(name: str, featured: bool) -> None:
    """Beside a loop in float32 without one: after its first steps were skipped, the same steps are made."""

    def train(scaler: torch.amp.GradScaler | None) -> tuple[list[Tensor], int, Any]:
        net, x, y = network()
        net, x, y = net.float(), x.float(), y.float()
        adam = torch.optim.Adam(net.parameters(), lr=0.01)
        optimizer = Balanced(adam, name, [0.4, 0.6], **given(name, [0.0, 0.0]))
        skipped = 0
        made = 0
        while made < 6:
            z = net.trunk(x)
            outputs = [Overflow.apply(head(z))[:, 0] for head in net.heads]
            losses = [(out - y[:, m]).square().mean() for m, out in enumerate(outputs)]
            before = copy.deepcopy(optimizer.state_dict())
            weights, info = optimizer.backward(losses, (), z if featured else None, scaler)
            if info.failed:
                skipped += 1
                assert all(bool(p.grad.isnan().all()) for p in net.parameters())  # type: ignore[union-attr]
                assert weights is not None
                assert bool(weights.isnan().all())
                assert info.direction is not None
                assert len(info.direction) == (
                    z.numel() if featured else sum(p.numel() for p in net.parameters())
                )
            if scaler is None:
                optimizer.optimizer.step()
            else:
                scaler.unscale_(optimizer.optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1e6)
                scaler.step(optimizer.optimizer)
                scaler.update()
            if info.failed:
                assert str(optimizer.state_dict()) == str(before)
            else:
                made += 1
        return [p.detach() for p in net.parameters()], skipped, weights

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=1000)
    plain, scaled = train(None), train(scaler)
    assert plain[1] == 0
    assert scaled[1] >= 2
    assert scaler.get_scale() == 2.0 ** (24 - scaled[1])
    for a, b in zip(plain[0], scaled[0], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(plain[2], scaled[2], rtol=1e-4, atol=1e-5)


def test_small_gradients_survive_in_float16_by_a_scaler() -> None:
    """1e-8 is 0 in float16."""
    q = torch.nn.Parameter(torch.ones(4))
    optimizer = Balanced(torch.optim.SGD([q], lr=0.1), "mgda")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    weights, _ = optimizer.backward(
        [1e-8 * (q.half() * row.half()).sum().float() for row in SLOPES], scaler=scaler
    )
    torch.testing.assert_close(weights, solve("mgda", SLOPES)[0], rtol=1e-2, atol=1e-3, check_dtype=False)


def test_what_a_scaler_cannot_mend_is_an_error() -> None:
    q = torch.nn.Parameter(torch.zeros(2))
    roots = lambda: [q.square().sum().sqrt(), (q - 1).square().sum()]  # noqa: E731  the gradient of the first is NaN
    optimizer = Balanced(torch.optim.SGD([q], lr=0.1), "famo")
    off = torch.amp.GradScaler("cpu", enabled=False)
    fallen = torch.amp.GradScaler("cpu", init_scale=2.0**-24)
    on = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for scaler, words in (
        (None, "pass losses that are not scaled"),
        (off, "scale is 1"),
        (fallen, "scale is 5.96e-08"),
    ):
        with pytest.raises(MobenchError, match=rf"gradient of step 0 is not finite.*{words}"):
            optimizer.backward(roots(), scaler=scaler)
    with pytest.raises(MobenchError, match=r"not all finite.*no GradScaler has scaled"):
        optimizer.backward([q.sum() / 0.0, q.sum()], scaler=on)
    # losses that are scaled already
    with pytest.raises(MobenchError, match=r"scaler=scaler"):
        optimizer.backward(on.scale(roots()))
    on.scale(q.sum()).backward()
    with pytest.raises(ConfigError, match=r"scaler\.step\(optimizer\.optimizer\)"):
        on.step(optimizer)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="scaler is float; expected"):
        optimizer.backward(roots(), scaler=1024.0)  # type: ignore[arg-type]
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    with pytest.raises(ConfigError, match=r"Parameter 1 .*float16.*cannot unscale"):
        Balanced(torch.optim.SGD([half], lr=0.1)).backward([half.sum(), -half.sum()], scaler=on)
    assert optimizer.state_dict()["method"] is None


def test_gradients_beyond_the_range_of_half_precision_name_the_type() -> None:
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    optimizer = Balanced(torch.optim.SGD([half], lr=0.1), "ls", [0.5, 0.5])
    optimizer.backward([30000 * half.float().sum(), 30000 * half.float().sum()])
    grad = half.grad
    with pytest.raises(MobenchError, match=r"torch\.float16 may be too small.*torch\.autocast"):
        optimizer.backward([1e6 * half.float().sum(), 1e6 * half.float().sum()])
    # the sum alone is too large
    other = Balanced(torch.optim.SGD([half], lr=0.1), "pcgrad")
    with pytest.raises(MobenchError, match=r"torch\.float16 may be too small"):
        other.backward([60000 * half.float().sum(), 60000 * half.float().sum()])
    assert half.grad is grad


# accumulation


def test_grad_is_replaced() -> None:
    net, x, y = network()
    idle = torch.nn.Parameter(torch.ones(2, dtype=F64))
    optimizer = Balanced(torch.optim.SGD([*net.parameters(), idle], lr=0.0), "mgda")
    optimizer.backward((net(x) - y).square().mean(0))
    once = [p.grad for p in net.parameters()]
    for p in (*net.parameters(), idle):
        p.grad = torch.full_like(p, 7.0)
    optimizer.backward((net(x) - y).square().mean(0))
    for p, first in zip(net.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, first, rtol=0, atol=0)
    assert idle.grad is None


def test_a_parameter_that_is_frozen_stays() -> None:
    """The gradient of its last step would move it on; `step` needs no zero_grad."""
    net, x, y = network()
    optimizer = Balanced(torch.optim.AdamW(net.parameters(), lr=0.1), "mgda")
    first, *rest = net.parameters()
    optimizer.step((net(x) - y).square().mean(0))
    first.requires_grad_(False)
    before = [p.detach().clone() for p in (first, *rest)]
    optimizer.step((net(x) - y).square().mean(0))
    assert torch.equal(first, before[0])
    assert not any(torch.equal(p, old) for p, old in zip(rest, before[1:], strict=True))


@pytest.mark.parametrize("name", [name for name, fitting in FITTING.items() if fitting])
def test_as_many_parameters_as_losses_are_frozen_and_thawed(name: str) -> None:
    """Weights are not taken for a memory of as many parameters, and no parameter gets that of another."""
    first, second = (torch.nn.Parameter(torch.full((2,), value)) for value in (0.5, 0.2))
    optimizer = Balanced(torch.optim.SGD([first, second], lr=0.01), name, **given(name, [0.0, 0.0]))

    def step() -> str:
        z = first + second
        try:
            optimizer.step([(z - 1.0).square().sum() + 1.0, (z + 1.0).square().sum() + 1.0])
        except ConfigError as error:
            return str(error)
        return ""

    for k, trains in enumerate([(True, False), (True, True), (False, True)]):
        first.requires_grad_(trains[0])
        second.requires_grad_(trains[1])
        words = step()
        refused = "remembers numbers for each of 2 variables" in words
        assert refused == (name == "excess_mtl" and k > 0)
    if name == "excess_mtl":
        assert "2 others are trained now" in words


@pytest.mark.parametrize("name", [name for name, fitting in FITTING.items() if fitting])
def test_parameters_are_frozen_and_thawed(name: str) -> None:
    """Frozen parameters stay; a method that remembers numbers for each parameter refuses the step."""
    net, x, y = network()
    optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.01), name, **given(name, [0.0, 0.0]))
    for frozen in (False, True, False):
        for p in net.trunk.parameters():
            p.requires_grad_(not frozen)
        before = net.trunk[0].weight.detach().clone()
        try:
            optimizer.step((net(x) - y).square().mean(0))
        except ConfigError as error:
            words = str(error)
        else:
            words = ""
        assert ("remembers numbers for each of" in words) == (name == "excess_mtl" and frozen)
        if frozen:
            assert torch.equal(net.trunk[0].weight, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_method_that_transforms_losses_takes_rows_of_any_type(dtype: torch.dtype) -> None:
    J = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    _, info = mobench.solve("propfair", J, torch.tensor([1.0, 2.0, 3.0]), baseline=5.0)
    _, exact = mobench.solve("propfair", J.double(), torch.tensor([1.0, 2.0, 3.0]), baseline=5.0)
    assert info.direction is not None
    assert exact.direction is not None
    assert info.direction.dtype == dtype
    torch.testing.assert_close(info.direction.double(), exact.direction, rtol=1e-6, atol=1e-7)


class Noting(torch.autograd.Function):
    """The identity, whose backward looks at numbers, so that it cannot be batched."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        Noting.calls += 1
        return g * (1.0 if float(g.abs().sum()) >= 0.0 else 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_one_backward_pass_are_those_of_a_pass_each(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four losses, a parameter that one of them alone sees, and one that none sees."""

    def one(batched: bool) -> Tensor:
        if not batched:
            monkeypatch.setattr("mobench.training.optimizer.BATCHED", 0)
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 4)).to(dtype)
        extra = torch.nn.Parameter(torch.ones(3, dtype=dtype))
        idle = torch.nn.Parameter(torch.ones(2, dtype=dtype))
        optimizer = mobench.Balanced(torch.optim.SGD([*net.parameters(), extra, idle], lr=0.1), "upgrad")
        for _ in range(3):
            losses = list(net(torch.randn(6, 5, dtype=dtype)).square().mean(0))
            losses[2] = losses[2] + extra.square().sum()
            optimizer.step(losses)
        assert idle.grad is None
        return torch.cat([p.detach().flatten() for p in [*net.parameters(), extra]])

    torch.testing.assert_close(one(True), one(False), rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-14)


def test_a_graph_that_cannot_be_batched_takes_a_pass_for_each_loss() -> None:
    net = torch.nn.Linear(3, 3)
    optimizer = mobench.Balanced(torch.optim.SGD(net.parameters(), lr=0.1), "mgda")
    Noting.calls = 0
    for _ in range(2):
        optimizer.backward(list(Noting.apply(net(torch.ones(2, 3))).square().mean(0)))
    assert Noting.calls == 7  # one more that failed, once
    lonely = torch.ones((), requires_grad=True)
    with pytest.raises(ConfigError, match="Function 3 depends on no parameter"):
        optimizer.backward([*net(torch.ones(2, 3)).square().mean(0)[:2], lonely.square()])


@pytest.mark.parametrize("name", ["mgda", "famo", "ls"])
def test_micro_batches_in_checkpoints_are_the_whole_batch(name: str) -> None:
    net, x, y = network()

    def losses_of(x: Tensor, y: Tensor) -> Tensor:
        return (net(x) - y).square().mean(0)

    gradients = []
    for parts in (1, 4):
        optimizer = Balanced(torch.optim.SGD(net.parameters(), lr=0.0), name)
        pairs = zip(x.chunk(parts), y.chunk(parts), strict=True)
        losses = [checkpoint(losses_of, *pair, use_reentrant=False) for pair in pairs]
        weights, _ = optimizer.backward(torch.stack(losses).mean(0))
        gradients.append([weights, *(p.grad for p in net.parameters())])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
