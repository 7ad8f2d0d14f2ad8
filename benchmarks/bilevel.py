"""Bilevel learning: tasks in one batch or one after the other, costs of hypergradients, memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from benchmarks.floor import products
from benchmarks.timing import Sample, Work, alternate
from mobench.core import Runs
from mobench.core.bilevel import Bilevel
from mobench.oracles import Hypergradient
from mobench.oracles.hypergradient import HyperPoint
from mobench.problems.bilevel_quadratic import BilevelQuadratic
from mobench.problems.few_shot import FewShotLearning
from mobench.problems.hyper_cleaning import HyperCleaning
from tests.reference.bilevel_torch import Cleaning, Episode, backbone, cleaning_row, few_shot_row

S = 5
D = 32
RATES = (0.0, 0.15, 0.3, 0.45, 0.6)
AIM = 3.0  # all tasks at once against a loop over them
METHODS: dict[str, dict[str, Any]] = {
    "itd": {"method": "itd", "inner_steps": D},
    "cg": {"method": "cg", "inner_steps": D, "cg_steps": 10},
    "neumann": {"method": "neumann", "inner_steps": D, "neumann_steps": 3},
}
TITLES = {"itd": f"ITD, D = {D}", "cg": "CG, N = 10", "neumann": "Neumann series, Q = 3"}


@dataclass(frozen=True)
class Levels:
    """`races`: case -> (batched, loop) CPU seconds of an outer step; `bare`: of their products alone.

    `plain`: case -> (batched, plain PyTorch task after task), from an x that is new. `costs`:
    (case, method) -> (hypergradients, one lower-level gradient). `memory`: bytes that the adjoint keeps, and
    that a graph of the inner steps keeps.
    """

    races: dict[str, tuple[Sample, Sample]]
    bare: dict[str, tuple[Sample, Sample]]
    plain: dict[str, tuple[Sample, Sample]]
    costs: dict[tuple[str, str], tuple[Sample, Sample]]
    memory: dict[str, tuple[int, int]]


def _work(step: Callable[[], object], calls: int) -> Work:
    def many(_: int) -> float:
        start = time.process_time()
        for _ in range(calls):
            step()
        return (time.process_time() - start) / calls

    return many


def _runs(tasks: int, seeds: int = 1) -> Runs:
    return Runs.product(torch.full((1, tasks), 1.0 / tasks, dtype=torch.float64), range(seeds))


def _outer(problem: Bilevel, tasks: int, options: dict[str, Any]) -> Callable[[], object]:
    """One outer step without its weights: inner steps and all rows."""
    runs = _runs(tasks)
    oracle = Hypergradient(problem, runs, **options)
    x = oracle.initial(runs).float()
    state = oracle.init(x)
    return lambda: oracle.at(x, state, 0).jacobian()


def _anew(problem: Bilevel, tasks: int, options: dict[str, Any]) -> Callable[[], object]:
    """`_outer` with another x at every call, as in an algorithm's steps: nothing can be used again."""
    runs = _runs(tasks)
    oracle = Hypergradient(problem, runs, **options)
    x = oracle.initial(runs).float()
    state = oracle.init(x)
    xs = cycle([x, 1.01 * x + 0.01])
    return lambda: oracle.at(next(xs), state, 0).jacobian()


def plain_loop(oracle: Hypergradient, x: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    """Values (S,) and rows (S, P) of the first outer step of a run from x (1, P), in plain PyTorch.

    Tasks come one after the other. Loading data and drawing samples are not part of the work.
    """
    problem = oracle.problem
    start = oracle.start.to(x)[0]
    work: list[Callable[[], tuple[Tensor, Tensor]]]
    if isinstance(problem, HyperCleaning):
        ((_, sets),) = problem.groups(x)
        labels = sets.labels.unflatten(1, (len(start), -1)).argmax(2).T.contiguous()
        truth = sets.truth.argmax(1)
        assert oracle.lower_batch is not None
        assert oracle.sizes is not None
        batches = oracle._draw("lower", 0, oracle.inner_steps * oracle.lower_batch)[0].view(
            oracle.inner_steps, -1
        )
        streams = reversed(range(1, oracle.neumann_steps + 1))
        series = [
            oracle._draw(f"neumann{i}", 0, size)[0] for i, size in zip(streams, oracle.sizes, strict=True)
        ]
        steps = {"inner_step": oracle.inner_step, "neumann_step": oracle.neumann_step, "reg": problem.reg}
        work = [
            partial(
                cleaning_row,
                x[0],
                W.view(-1, problem.pixels),
                Cleaning(sets.train, task_labels, sets.validation, truth),
                batches.unbind(0),
                series,
                **steps,
            )
            for W, task_labels in zip(start, labels, strict=True)
        ]
    else:
        assert isinstance(problem, FewShotLearning)
        images = [
            torch.cat([part.images for part in problem.prepared(name, 0, x)]) for name in ("support", "query")
        ]
        support, query = (some.contiguous() for some in images)
        a, b = (problem.labels(name, x) for name in ("support", "query"))
        net = backbone(support.shape[2], problem.filters).to(x)
        vector_to_parameters(x[0], net.parameters())
        work = [
            partial(
                few_shot_row,
                net,
                start[s].view(problem.ways, -1),
                Episode(support[s], a, query[s], b),
                inner_steps=oracle.inner_steps,
                inner_step=oracle.inner_step,
                reg=problem.ll_reg,
            )
            for s in range(problem.tasks)
        ]

    def step() -> tuple[Tensor, Tensor]:
        values, rows = zip(*(one() for one in work), strict=True)
        return torch.stack(values), torch.stack(rows)

    return step


def _plain(problem: Bilevel, tasks: int, options: dict[str, Any]) -> Callable[[], object]:
    runs = _runs(tasks)
    oracle = Hypergradient(problem, runs, **options)
    return plain_loop(oracle, oracle.initial(runs).float())


def _cases(quick: bool) -> dict[str, tuple[Bilevel, list[Bilevel], dict[str, Any]]]:
    """All tasks, the same one by one, and the oracle."""
    width = 4 if quick else 16
    few = {"filters": width, "shrink": 2, "episodes": "named"}
    sizes: dict[str, dict[str, Any]] = {
        "hyper-cleaning, 49 pixels": {"train_size": 1000, "validation_size": 400, "shrink": 4}
    }
    if not quick:
        sizes["hyper-cleaning, 784 pixels"] = {"train_size": 1000, "validation_size": 400}
    out: dict[str, tuple[Bilevel, list[Bilevel], dict[str, Any]]] = {}
    for name, size in sizes.items():
        options = {"method": "neumann", "inner_steps": 20, "lower_batch": 250, "neumann_batch": 100}
        out[name] = (
            HyperCleaning(rates=RATES, **size),
            [HyperCleaning(rates=(p,), **size) for p in RATES],
            options,
        )
    single: list[Bilevel] = [FewShotLearning(tasks=1, **few) for _ in range(S)]
    out[f"few-shot, {width} filters"] = (
        FewShotLearning(tasks=S, **few),
        single,
        {"method": "itd", "inner_steps": D},
    )
    return out


def _cost(problem: Bilevel, tasks: int, method: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Rows from a finished inner loop, and one gradient of the lower level."""
    runs = _runs(tasks)
    oracle = Hypergradient(problem, runs, **METHODS[method])
    x = oracle.initial(runs).float()
    made = oracle.at(x, oracle.init(x), 0)
    assert isinstance(made, HyperPoint)
    path = made.path
    y = made.y

    def rows() -> object:
        return HyperPoint(oracle, x, path, oracle.init(x), 0).jacobian()

    view = oracle.problem.view(x)
    view.lower_gradient(y)

    def gradient() -> object:
        return view.lower_gradient(y.clone())  # a copy: nothing of the last call may be kept

    return rows, gradient


def _graph_bytes(steps: int) -> tuple[int, int]:
    """Bytes of the inner loop's iterates, and of a graph of it for its backward pass, on 49 pixels."""
    problem = HyperCleaning(rates=RATES, train_size=1000, validation_size=400, shrink=4)
    runs = _runs(S)
    bound = problem.bind(runs)
    x = problem.initial(runs).float().requires_grad_(True)
    (_, sets), *_ = bound.groups(x.detach())
    labels = problem.labels_of(0).labels
    y = torch.zeros(1, S, problem.lower_dim)
    saved_bytes: dict[int, int] = {}

    def pack(saved: Tensor) -> Tensor:
        saved_bytes[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        w = y.requires_grad_(True)
        for _ in range(steps):
            log = (sets.train @ w.view(1, S, 10, -1).mT).log_softmax(-1)
            losses = -log.gather(3, labels[None, :, :, None]).squeeze(3)
            g = (torch.sigmoid(x)[:, None] * losses).mean(2).sum() + problem.reg * w.square().sum()
            w = w - 0.1 * torch.autograd.grad(g, w, create_graph=True)[0]
    return (steps + 1) * y.numel() * y.element_size(), sum(saved_bytes.values())


def measure(rounds: int, quick: bool, say: Callable[[str], None]) -> Levels:
    """Everything; `quick`: tiny, its numbers mean nothing."""
    say("bilevel: tasks")
    races = {}
    bare = {}
    plain = {}
    costs = {}
    # many calls in a row, as steps of a run: the first after another case finds neither its memory nor the
    # cache warm
    calls = 1 if quick else 10
    for name, (whole, single, options) in _cases(quick).items():
        one_by_one = [_outer(p, 1, options) for p in single]

        def loop(parts: list[Callable[[], object]] = one_by_one) -> object:
            return [part() for part in parts]

        works: dict[str, Callable[[], object]] = {"batched": _outer(whole, S, options), "loop": loop}
        cases = {}
        for way, work in works.items():
            work()  # features of one x are computed once
            cases |= {way: _work(work, calls), f"bare {way}": _work(products(work), calls)}
        samples = alternate(cases, rounds)
        races[name] = (samples["batched"], samples["loop"])
        bare[name] = (samples["bare batched"], samples["bare loop"])
        cases = {
            "new": _work(_anew(whole, S, options), calls),
            "plain": _work(_plain(whole, S, options), calls),
        }
        samples = alternate(cases, rounds)
        plain[name] = samples["new"], samples["plain"]
    say("bilevel: hypergradients")
    problems: dict[str, Bilevel] = {"quadratic, q = 6": BilevelQuadratic()}
    problems |= {name: whole for name, (whole, _, _) in _cases(quick).items()}
    for name, problem in problems.items():
        for method in METHODS:
            rows, gradient = _cost(problem, S, method)
            samples = alternate({"rows": _work(rows, calls), "gradient": _work(gradient, calls)}, rounds)
            costs[name, method] = samples["rows"], samples["gradient"]
    memory = {f"D = {steps}": _graph_bytes(steps) for steps in ((4,) if quick else (32, 200))}
    return Levels(races, bare, plain, costs, memory)


def as_json(levels: Levels) -> dict[str, Any]:
    """For outputs/benchmark.json."""
    return {
        "tasks": {
            k: {
                "batched_s": a.least,
                "loop_s": b.least,
                "ratio": b.over(a),
                "batched_products_s": levels.bare[k][0].least,
                "loop_products_s": levels.bare[k][1].least,
                "batched_new_s": levels.plain[k][0].least,
                "plain_s": levels.plain[k][1].least,
                "plain_ratio": levels.plain[k][1].over(levels.plain[k][0]),
                "plain_aim": AIM,
                "plain_met": levels.plain[k][1].over(levels.plain[k][0]) >= AIM,
            }
            for k, (a, b) in levels.races.items()
        },
        "hypergradients": [
            {
                "problem": p,
                "method": m,
                "rows_s": a.least,
                "lower_gradient_s": b.least,
                "lower_gradients": a.over(b),
            }
            for (p, m), (a, b) in levels.costs.items()
        ],
        "memory": {k: {"adjoint_bytes": a, "graph_bytes": b} for k, (a, b) in levels.memory.items()},
    }


def markdown(levels: Levels, table: Callable[..., str], number: Callable[[float], str]) -> list[str]:
    """The section of docs/performance.md."""
    tasks = [
        [
            name,
            number(1e3 * a.least),
            number(1e3 * b.least),
            f"{b.over(a):.2f}",
            *(number(1e3 * bare.least) for bare in levels.bare[name]),
            f"{levels.bare[name][1].over(levels.bare[name][0]):.2f}",
            "yes" if b.over(a) >= AIM else "no",
            *(number(1e3 * of.least) for of in levels.plain[name]),
            f"{levels.plain[name][1].over(levels.plain[name][0]):.2f}",
            "yes" if levels.plain[name][1].over(levels.plain[name][0]) >= AIM else "no",
        ]
        for name, (a, b) in levels.races.items()
    ]
    problems = list(dict.fromkeys(name for name, _ in levels.costs))
    costs = [
        [name, *(f"{levels.costs[name, m][0].over(levels.costs[name, m][1]):.1f}" for m in METHODS)]
        for name in problems
    ]
    memory = [
        [k, f"{a / 2**20:.2f}", f"{b / 2**20:.1f}", f"{b / a:.0f}"] for k, (a, b) in levels.memory.items()
    ]
    return [
        "## Bilevel learning",
        f"CPU time on one thread, R = 1, S = {S}. The table times an outer step without its weights, that "
        f"is, {D} (hyper-cleaning: 20) inner steps and the hypergradients of all tasks: in one batch, and "
        "with a loop over tasks; then the matrix products and convolutions of both alone. Both need the "
        "same number of multiplications: a batch saves calls and copies, so the faster everything else "
        "becomes, the closer the ratio is to that of the products.",
        "There are two loops over tasks. *Loop over tasks* runs the same optimized code with one task at a "
        "time. *Plain PyTorch* is what one would write without this package "
        "(tests/reference/bilevel_torch.py): layers, losses and automatic differentiation, one task at a "
        "time. The last four columns time a step from a new x, which includes the forward pass of the "
        "network in few-shot learning; the columns before them repeat a step from the same x, whose "
        "features are already computed.",
        table(
            [
                "problem",
                "batched, ms",
                "loop over tasks, ms",
                "ratio",
                "products of the batch, ms",
                "products of the loop, ms",
                "ratio",
                f"aim {AIM:g}x",
                "batched, new x, ms",
                "plain PyTorch, ms",
                "ratio",
                f"aim {AIM:g}x",
            ],
            tasks,
        ),
        "Cost of the hypergradients of all tasks after the inner loop, including J_xy, in units of one "
        "gradient of the lower level (all tasks):",
        table(["problem", *TITLES.values()], costs),
        "Memory of reverse mode through the inner loop, for hyper-cleaning with 49 pixels and 1000 images: "
        "the iterates (the adjoint method used here), compared with a graph of the inner steps.",
        table(["inner steps", "iterates, MiB", "graph, MiB", "ratio"], memory),
    ]
