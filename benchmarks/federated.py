"""Federated rounds: clients in one batch or one after the other, the server's part, peak memory.

All times are CPU seconds of this process on one thread: everything that is compared runs in it, so that other
programs on the machine disturb less.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn
from torch import Tensor

from benchmarks.floor import products
from benchmarks.timing import Sample, Work, alternate
from mobench.algorithms.fedfv import FedFV
from mobench.algorithms.fedmgda_plus import FedMGDAPlus
from mobench.algorithms.ls import LS
from mobench.algorithms.omd_tch import OMDTCH
from mobench.algorithms.qffl import QFFL
from mobench.core import Runs, loop
from mobench.core.algorithm import Algorithm
from mobench.core.output import Adaptive
from mobench.core.point import TablePoint
from mobench.data.clients import Clients, partition
from mobench.data.images import Images
from mobench.models.mlp import MLP
from mobench.oracles import LocalSteps
from mobench.problems.federated_images import FederatedImages

M = 10
TAU = 10
STEP = 0.1
MEASURED = 2  # local steps of a round that are measured where all TAU would take long
SMALL: dict[str, dict[str, Any]] = {"49-16-10": {"shrink": 4, "hidden": 16}, "784-200-10": {}}
"""Networks on the embedded digits: that of the laptop scale, and the paper's."""
METHODS: dict[str, Algorithm] = {
    "ls": LS(step_size=STEP),
    "omd_tch": OMDTCH(step_size=STEP),
    "qffl": QFFL(step_size=STEP),
    "fedfv": FedFV(step_size=STEP),
    "fedmgda_plus": FedMGDAPlus(step_size=STEP),
}
TITLES = {
    "ls": "LS (FedAvg)",
    "omd_tch": "OMD-TCH",
    "qffl": "qFFL",
    "fedfv": "FedFV",
    "fedmgda_plus": "FedMGDA+",
    "adaptive": "adaptive average (update and answer)",
}
PARTS = {
    "products": "its matrix products alone",
    "closed": "closed form, columns of zeros left out",
    "closed_all": "closed form, all pixels",
    "graph": "autograd, columns of zeros left out",
    "graph_all": "autograd, all pixels",
}
AIM_SMALL = 3.0
AIM_PAPER = 1.0
AIM_SEEDS = 10.0
AIM_SERVER = 0.1
FLOWER_MS = {"49-16-10": 313, "784-200-10": 624}
"""A round of Flower 1.41 with Ray 2.55, measured once by us, in an environment of its own."""
PER_CLASS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)  # images of MNIST
NOT_ZERO = 664  # of 784 pixels of a client: 658 to 673 in MNIST


@dataclass(frozen=True)
class Race:
    """CPU seconds of a round of R seeds: ours, its products alone, and module after module.

    difference: the largest of the parameters after one round.
    """

    network: str
    R: int
    ours: Sample
    products: Sample
    plain: Sample
    difference: float

    @property
    def faster(self) -> float:
        """Modules over ours."""
        return over(self.plain, self.ours)


@dataclass(frozen=True)
class Federated:
    """CPU seconds.

    races: rounds on small clients; seeds[network]: R -> a round, bare[network]: its products alone; paper:
    `MEASURED` local steps of all clients of MNIST's size; parts: loss and gradient of one of these;
    server[size]: the server's part of a round, R = 1; peak: of MNIST's size.
    """

    races: list[Race]
    seeds: dict[str, dict[int, Sample]]
    bare: dict[str, dict[int, Sample]]
    paper: dict[str, Sample]
    paper_difference: float
    parts: dict[str, Sample]
    server: dict[str, dict[str, Sample]]
    rounds_of: dict[str, float]
    sizes: dict[str, int]
    data: str
    peak: dict[str, Any] | None

    def share(self, size: str, method: str) -> float:
        """The server's part over a round of LS."""
        return self.server[size][method].median / self.rounds_of[size]


@dataclass(frozen=True, kw_only=True)
class Sized(FederatedImages):
    """Random pixels in MNIST's sizes: times depend on pixels only through the columns of zeros."""

    @property
    def images(self) -> Images:
        return _random_images()

    def split_of(self, seed: int) -> Clients:
        return partition(self.images, self.partition, seed=seed)


@lru_cache(maxsize=1)
def _random_images() -> Images:
    rng = np.random.default_rng(0)
    # off the centre: turned clients have other columns of zeros, and few are zero in all
    # (740 are left; MNIST: 732)
    away = np.hypot(*(np.indices((28, 28)) - np.reshape([15.5, 13.5], (2, 1, 1)))).ravel()
    nonzero = np.zeros(784, dtype=bool)
    nonzero[np.argsort(away, kind="stable")[:NOT_ZERO]] = True

    def split(counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        labels = rng.permutation(np.repeat(np.arange(10), counts))
        pixels = rng.integers(1, 256, size=(len(labels), 784), dtype=np.uint8) * nonzero
        return torch.from_numpy(pixels.reshape(-1, 28, 28)), torch.from_numpy(labels)

    train = split(PER_CLASS)
    test = split([20] * 10)
    return Images("sized", "random pixels", *train, *test, digest="", embedded=True)


def _paper(execution: str) -> FederatedImages:
    """Ten clients with the images of MNIST where they are, else with random ones."""
    root = os.environ.get("MOBENCH_DATA")
    if root:
        return FederatedImages(data="mnist", data_root=root, execution=execution)
    return Sized(data="mnist", execution=execution)


def _runs(R: int) -> Runs:
    return Runs.product(torch.full((1, M), 1.0 / M, dtype=torch.float64), list(range(R)))


def over(a: Sample, b: Sample) -> float:
    """Median of the rounds' ratios: load that comes and goes hits both of a round."""
    return float(np.median([x / y for x, y in zip(a.rounds, b.rounds, strict=True)]))


def _cpu(work: Callable[[], object], units: int = 1) -> Work:
    def measured(_: int) -> float:
        start = time.process_time()
        for _ in range(units):
            work()
        return (time.process_time() - start) / units

    return measured


def _ours(p: FederatedImages, R: int, tau: int) -> tuple[Callable[[], object], Callable[[], Tensor]]:
    """The next round of a trajectory of LS, and where it is."""
    runs = _runs(R)
    oracle = LocalSteps(p, runs, local_step=STEP, local_steps=tau)
    algorithm = METHODS["ls"]
    state = loop.start(oracle, algorithm, {}, p.initial(runs).float(), runs, 10**6)
    return lambda: loop.advance(oracle, algorithm, {}, state, state["t"] + 1), lambda: state["theta"]


def _plain(p: FederatedImages, R: int, tau: int) -> tuple[Callable[[], object], Callable[[], Tensor]]:
    """Trains client by client, as the authors do: each a copy of the module with its own optimiser."""
    runs = _runs(R)
    start = p.initial(runs).float()
    bound = p.bind(runs)
    network = p.network
    assert isinstance(network, MLP)
    data = [[bound._client("train", seed, m, start) for m in range(M)] for seed in range(R)]
    models = []
    for row in start:
        layers = (
            torch.nn.Linear(network.inputs, network.hidden),
            torch.nn.Linear(network.hidden, network.outputs),
        )
        model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
        torch.nn.utils.vector_to_parameters(row, model.parameters())
        models.append(model)

    def work() -> None:
        for model, clients in zip(models, data, strict=True):
            trained = []
            for x, y in clients:
                client = copy.deepcopy(model)
                total = 0.0
                optimizer = torch.optim.SGD(client.parameters(), lr=STEP)
                for _ in range(tau):
                    optimizer.zero_grad()
                    loss = nn.cross_entropy(client(x), y)
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
                trained.append(client.state_dict())
            model.load_state_dict({k: sum(one[k] for one in trained) / len(trained) for k in trained[0]})

    def where() -> Tensor:
        return torch.stack(
            [torch.nn.utils.parameters_to_vector(model.parameters()).detach() for model in models]
        )

    return work, where


def _raced(p: FederatedImages, R: int, tau: int) -> tuple[Callable[[], object], Callable[[], object], float]:
    """Ours, the modules, and their difference after one round."""
    ours, here = _ours(p, R, tau)
    plain, there = _plain(p, R, tau)
    ours()
    plain()
    return ours, plain, float((here() - there()).abs().max())


def _parts(p: FederatedImages) -> dict[str, Callable[[], object]]:
    """Loss and gradient of one client after the other."""
    runs = _runs(1)
    theta = p.initial(runs).float()
    bound = p.bind(runs)
    network = p.network
    assert isinstance(network, MLP)
    held = bound._held("train", theta)[0]
    full = [bound._client("train", 0, m, theta) for m in range(M)]
    H = network.hidden
    C = network.outputs
    first = [torch.randn(H, one.x.shape[1]) for one in held]
    second = torch.randn(C, H)
    hidden = torch.randn(len(full[0][1]), H)
    error = torch.randn(len(full[0][1]), C)
    spare = torch.empty_like(hidden)
    turns = {name: count() for name in PARTS}

    def turn(name: str) -> int:
        return next(turns[name]) % M

    def closed() -> object:
        x, y, columns = held[turn("closed")]
        return network.gradients(theta, x[None], y[None], x.new_full((1, len(y)), 1.0 / len(y)), columns)

    def closed_all() -> object:
        x, y = full[turn("closed_all")]
        return network.gradients(theta, x[None], y[None], x.new_full((1, len(y)), 1.0 / len(y)))

    def graph(x: Tensor, y: Tensor, columns: Tensor | None) -> object:
        leaf = theta.clone().requires_grad_(True)
        return torch.autograd.grad(nn.cross_entropy(network.logits(leaf, x[None], columns)[0], y), leaf)

    def bare() -> object:
        m = turn("products")
        x = held[m].x
        n = len(x)
        torch.mm(x, first[m].T, out=spare[:n])
        torch.mm(hidden[:n], second.T)
        torch.mm(error[:n].T, hidden[:n])
        torch.mm(error[:n], second, out=spare[:n])
        return torch.mm(spare[:n].T, x)

    return {
        "products": bare,
        "closed": closed,
        "closed_all": closed_all,
        "graph": lambda: graph(*held[turn("graph")]),
        "graph_all": lambda: graph(*full[turn("graph_all")], None),
    }


def _server(p: FederatedImages) -> dict[str, Callable[[], object]]:
    """The server's part of a round, by method: Gram matrix, weights, direction; and the adaptive average."""
    runs = _runs(1)
    oracle = LocalSteps(p, runs, local_step=STEP, local_steps=TAU)
    theta = p.initial(runs).float()
    with torch.no_grad():
        answer = oracle.at(theta, {}, 0)
        F = answer.values()
        rows = answer.jacobian()

    def point(factor: float = 1.0) -> TablePoint:
        return TablePoint(theta, oracle.spec.X, M, {}, factor * F, rows)

    def step(algorithm: Algorithm) -> Callable[[], object]:
        first = loop.start(oracle, algorithm, {}, theta, runs, 10**6)["alg"]

        def work() -> object:
            with torch.no_grad():
                return algorithm.step((point(),), first, 0, algorithm.schedule(0))

        return work

    rule = Adaptive()
    turn = count()
    average_state = {"state": rule.init(theta, M)}

    def average() -> object:
        t = next(turn)
        # losses that fall, as they do with steps on all data: the last iterate is stored alone
        with torch.no_grad():
            average_state["state"] = rule.update(
                average_state["state"], theta, point(1.0 / (1.0 + 0.01 * t)), t
            )
            return rule.final(average_state["state"], theta)

    return {**{name: step(algorithm) for name, algorithm in METHODS.items()}, "adaptive": average}


def measure(rounds: int, quick: bool, say: Callable[[str], None]) -> Federated:
    """Everything; `quick`: tiny, numbers mean nothing."""
    rounds = min(rounds, 5)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = _measure(rounds, quick)
    finally:
        torch.set_num_threads(before)
    for race in results.races:
        say(
            f"clients, {race.network}, R={race.R}: {race.faster:.2f}x modules (products alone "
            f"{over(race.plain, race.products):.2f}x), difference {race.difference:.0e}"
        )
    for network, by_R in results.seeds.items():
        few = min(by_R)
        many = max(by_R)
        bare = over(results.bare[network][many], results.bare[network][few])
        say(
            f"clients, {network}: {many} seeds cost {over(by_R[many], by_R[few]):.1f}x {few}, "
            f"their products {bare:.1f}x"
        )
    paper = results.paper
    say(
        f"clients of MNIST's size ({results.data}): {over(paper['plain'], paper['loop']):.2f}x modules, "
        f"{over(paper['batched'], paper['loop']):.2f}x our own batch; a gradient in ms: "
        + ", ".join(f"{name} {1e3 * s.median:.3g}" for name, s in results.parts.items())
    )
    for size in results.server:
        say(
            f"server, {size}: "
            + ", ".join(f"{k} {100 * results.share(size, k):.2g} %" for k in results.server[size])
        )
    if results.peak:
        say(
            "clients of MNIST's size, MiB: "
            + ", ".join(f"{k} {v['mib']:.0f}" for k, v in results.peak.items())
        )
    return results


def _measure(rounds: int, quick: bool) -> Federated:
    networks = dict(list(SMALL.items())[:1]) if quick else SMALL
    sizes, many = ((1,), 2) if quick else ((1, 3), 10)
    cases: dict[str, Work] = {}
    differences: dict[tuple[str, int], float] = {}
    problems = {name: FederatedImages(data="digits", **options) for name, options in networks.items()}
    for name, p in problems.items():
        for R in sizes:
            ours, plain, differences[name, R] = _raced(p, R, TAU)
            cases |= {f"ours {name} {R}": _cpu(ours), f"plain {name} {R}": _cpu(plain)}
            cases[f"bare {name} {R}"] = _cpu(products(ours))
        ours = _ours(p, many, TAU)[0]
        cases |= {f"ours {name} {many}": _cpu(ours), f"bare {name} {many}": _cpu(products(ours))}
    samples = alternate(cases, rounds)
    races = [
        Race(
            name,
            R,
            *(samples[f"{part} {name} {R}"] for part in ("ours", "bare", "plain")),
            differences[name, R],
        )
        for name in networks
        for R in sizes
    ]
    seeds, bare = (
        {name: {R: samples[f"{part} {name} {R}"] for R in (1, many)} for name in networks}
        for part in ("ours", "bare")
    )

    big = replace(problems["49-16-10"], execution="loop") if quick else _paper("loop")
    looped, plain, difference = _raced(big, 1, MEASURED)
    batched = _ours(replace(big, execution="batched"), 1, MEASURED)[0]
    paper = alternate({"loop": _cpu(looped), "plain": _cpu(plain), "batched": _cpu(batched)}, rounds)
    del looped, batched, plain
    parts = alternate({name: _cpu(work, 2) for name, work in _parts(big).items()}, rounds)

    # the paper's network on the digits answers in the size that it has on MNIST
    server = {
        name: alternate({k: _cpu(work, 2 if quick else 20) for k, work in _server(p).items()}, rounds)
        for name, p in problems.items()
    }
    # of the paper's network on MNIST: TAU local steps from those measured
    last = list(networks)[-1]
    spent = {name: seeds[name][1].median for name in networks}
    spent[last] = paper["loop"].median * TAU / MEASURED
    dims = {name: p.dim for name, p in problems.items()}
    return Federated(
        races,
        seeds,
        bare,
        paper,
        difference,
        parts,
        server,
        spent,
        dims,
        big.images.label,
        None if quick else peak(),
    )


def peak() -> dict[str, Any]:
    """Peak memory of fresh processes with one round of MNIST's size, one for each way to compute it."""
    memory = {}
    for execution in ("loop", "batched"):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.federated", execution],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        memory[execution] = json.loads(done.stdout.splitlines()[-1])
    return memory


def _most_mib() -> float:
    """Peak resident memory since the program was loaded.

    `ru_maxrss` would count that of the process that started it.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError as error:
        raise SystemExit(
            f"Peak memory is read from /proc/self/status, which only Linux has: {error}."
        ) from error
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def _child(execution: str) -> None:
    torch.set_num_threads(1)
    peaks: dict[str, float] = {}

    def note(name: str) -> None:
        peaks[name] = _most_mib()

    note("program")
    p = _paper(execution)
    assert len(p.images.train)
    note("images")
    _ours(p, 1, MEASURED)[0]()
    note("round")
    print(json.dumps({"data": p.images.label, "after": peaks, "mib": max(peaks.values())}))


def as_json(results: Federated) -> dict[str, Any]:
    """CPU times in milliseconds, medians."""
    many = {name: max(by_R) for name, by_R in results.seeds.items()}
    return {
        "rounds": [
            {
                "network": race.network,
                "R": race.R,
                "ms": 1e3 * race.ours.median,
                "ms_products": 1e3 * race.products.median,
                "ms_plain": 1e3 * race.plain.median,
                "ratio": race.faster,
                "aim": AIM_SMALL,
                "met": race.faster >= AIM_SMALL,
                "difference": race.difference,
            }
            for race in results.races
        ],
        "seeds": {
            name: {
                "R": many[name],
                "ms": 1e3 * by_R[many[name]].median,
                "ratio": over(by_R[many[name]], by_R[1]),
                "ratio_products": over(results.bare[name][many[name]], results.bare[name][1]),
                "aim": AIM_SEEDS,
                "met": over(by_R[many[name]], by_R[1]) <= AIM_SEEDS,
            }
            for name, by_R in results.seeds.items()
        },
        "paper": {
            "data": results.data,
            "local_steps": MEASURED,
            "ms": {name: 1e3 * s.median for name, s in results.paper.items()},
            "ratio": over(results.paper["plain"], results.paper["loop"]),
            "aim": AIM_PAPER,
            "met": over(results.paper["plain"], results.paper["loop"]) >= AIM_PAPER,
            "difference": results.paper_difference,
            "gradient_ms": {name: 1e3 * s.median for name, s in results.parts.items()},
        },
        "server": {
            size: {
                name: {"ms": 1e3 * s.median, "of_round": results.share(size, name)}
                for name, s in by_method.items()
            }
            for size, by_method in results.server.items()
        },
        "peak": results.peak,
        "flower_ms": FLOWER_MS,
    }


def markdown(results: Federated, table: Callable[..., str], number: Callable[[float], str]) -> list[str]:
    """The section of the report."""

    def met(yes: bool) -> str:
        return "yes" if yes else "**no**"

    races = [
        [
            race.network,
            str(race.R),
            number(1e3 * race.ours.median),
            number(1e3 * race.products.median),
            number(1e3 * race.plain.median),
            f"{race.faster:.2f}x",
            met(race.faster >= AIM_SMALL),
            f"{race.difference:.0e}",
        ]
        for race in results.races
    ]
    seeds = []
    for name, by_R in results.seeds.items():
        R = max(by_R)
        ratio = over(by_R[R], by_R[1])
        bare = f"{over(results.bare[name][R], results.bare[name][1]):.1f}x"
        verdict = met(ratio <= AIM_SEEDS)
        seeds.append(
            [name, number(1e3 * by_R[1].median), number(1e3 * by_R[R].median), f"{ratio:.1f}x", bare, verdict]
        )
    ours = results.paper["loop"]
    scale = 1e3 * TAU / MEASURED
    ways = {
        "loop": "mobench, one client after the other",
        "batched": "mobench, all clients in one product",
        "plain": "modules",
    }
    paper = [
        [
            title,
            number(scale * results.paper[name].median),
            f"{over(results.paper[name], ours):.2f}x",
            met(over(results.paper[name], ours) >= AIM_PAPER) if name == "plain" else "",
        ]
        for name, title in ways.items()
    ]
    closed = results.parts["closed"]
    parts = [
        [PARTS[name], number(1e3 * sample.median), f"{over(sample, closed):.2f}x"]
        for name, sample in results.parts.items()
    ]
    last = list(results.server)[-1]
    server = []
    for name in results.server[last]:
        cells = [
            cell
            for size, of in results.server.items()
            for cell in (number(1e3 * of[name].median), f"{100 * results.share(size, name):.2g} %")
        ]
        server.append([TITLES[name], *cells, met(results.share(last, name) <= AIM_SERVER)])
    flower = ", ".join(f"{name} {ms} ms" for name, ms in FLOWER_MS.items())
    out = [
        "## Federated clients",
        f"A round consists of {TAU} local steps of each of {M} clients on all of their data, and of "
        "averaging their models, in float32. Times are CPU times of the process on one thread, as medians "
        "over the rounds; ratios are medians of the ratios of the rounds. *Modules* has the structure of "
        "the authors' code and handles one client and one seed after another: a copied `nn.Module`, "
        "`torch.optim.SGD`, `cross_entropy`, an average of state dicts.",
        "Each client has about 144 images (embedded digits); times are ms per round of R seeds. Aim: >= "
        f"{AIM_SMALL:g}x. If there are fewer images than twice the number of pixels, a step uses the inner "
        "products of the images, which change the inputs of the hidden layer as new weights would. "
        "*Products* times the matrix products of the round alone, called one after another. The last "
        "column is the largest difference of the parameters after one round (a hidden unit near 0 may be "
        "active or not in float32).",
        table(
            ["network", "R", "mobench ms", "products ms", "modules ms", "ratio", "aim met", "difference"],
            races,
        ),
        f"Flower 1.41 with two workers of Ray 2.55 takes longer for the round of one seed: {flower} (wall "
        "time, median of the rounds after the first; for orientation, measured once on a busy machine of "
        "this kind and not in this session).",
        "Ten seeds compared with one: ms per round of all seeds, and the same ratio for the products "
        "alone. If the products take nearly all of the time, seeds have no overhead to share. Aim: <= "
        f"{AIM_SEEDS:g}x.",
        table(["network", "one seed", "ten seeds", "ratio", "products", "aim met"], seeds),
        f"At MNIST's size (5,996 images per client, 784-200-10; {results.data}), ms per round, extrapolated "
        f"from {MEASURED} local steps by the factor {TAU / MEASURED:g}. Aim: the loop is never slower than "
        f"the modules. The largest difference of the parameters is {results.paper_difference:.0e}.",
        table(["one round", "ms", "relative to ours", "aim met"], paper),
        "Loss and gradient of one of these clients. The closed form can only gain the time that its matrix "
        "products do not take.",
        table(["method", "ms", "relative to ours"], parts),
        "The server's part of a round of one seed (Gramian, weights, direction; the adaptive average is "
        f"computed after every round), in ms and as a share of a round of LS: {_where(results)}. Aim for the "
        f"latter: <= {100 * AIM_SERVER:g} %.",
        table(
            ["method", *[h for size in results.server for h in (f"{size}, ms", "of a round")], "aim met"],
            server,
        ),
    ]
    if results.peak:
        memory = "; ".join(
            f"{name} {number(one['mib'])} MiB ("
            + ", ".join(f"{stage} {number(mib)}" for stage, mib in one["after"].items())
            + ")"
            for name, one in results.peak.items()
        )
        out.append(
            "Peak resident memory (VmHWM, including libraries) of a fresh process with one round of one "
            "seed at MNIST's size, with the peak after each stage in brackets (libraries, the data set as "
            f"bytes, the round with the clients' inputs as floats): {memory}."
        )
    return out


def _where(results: Federated) -> str:
    names = list(results.server)
    sizes = [f"{name} (P = {results.sizes[name]:,}) on the digits" for name in names[:-1]]
    return ", ".join([*sizes, f"{names[-1]} (P = {results.sizes[names[-1]]:,}) at MNIST's size"])


if __name__ == "__main__":
    _child(sys.argv[1])
