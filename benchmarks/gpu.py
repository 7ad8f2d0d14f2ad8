"""`python -m benchmarks.gpu [--quick] [--json FILE] [--output FILE.md]`: steps of jobs on a GPU.

Each case is a job of mobench. After some steps that do not count, the seconds of a step are those between two
synchronizations of the device, over the steps between them; the median of several. A share of the peak is the
number of floating-point operations in a step's matrix products and convolutions, divided by how many of them
the device does in the same time (measured here as well, in float32 without TF32). Every case is written as
soon as it has been measured, and cases that the same commit has measured on the same device are not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from mobench.config.compose import compose
from mobench.core import loop
from mobench.core.output import make_output
from mobench.errors import MobenchError
from mobench.jobs.build import make_job
from mobench.system import gpu
from mobench.system.files import write_atomic
from mobench.system.provenance import stamp

METHODS = ("ls", "mgda", "pmtl", "epo", "ferero", "csmoo2")
SIZES = (1, 100, 1000, 10_000)
SECONDS = 0.5
"""Of a measurement, at least; three of them are taken."""
PEAKS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


@dataclass(frozen=True)
class Case:
    """A kind of work, its name, R runs, and the overrides of the job."""

    group: str
    name: str
    R: int
    overrides: tuple[str, ...]
    products: bool = False
    """Whether the products are most of the work, so that the share of the peak means something."""

    @property
    def key(self) -> str:
        return f"{self.group} {self.name} R={self.R}"


def _runs(R: int, preferences: int = 1) -> tuple[str, ...]:
    seeds = -(-R // preferences)
    return (f"preferences={preferences}", f"seeds=[{','.join(map(str, range(seeds)))}]")


def cases(quick: bool) -> Iterator[Case]:
    """All of them, the most informative first. `quick`: tiny, their numbers mean nothing."""
    sizes = (1, 4) if quick else SIZES
    for name in METHODS:
        for R in sizes:
            # many preferences of one seed: the weights are spread over the quarter circle
            yield Case("synthetic", name, R, ("problem=vlmop2", f"algorithm={name}", f"preferences={R}"))
    network = ("problem.train_size=256", "problem.test_size=64")
    batch = "oracle.batch_size=8" if quick else "oracle.batch_size=256"
    size = "problem.model=small" if quick else "problem.model=lenet"
    for way in ("unfold", "loop"):
        for R in (1, 5) if quick else (1, 5, 25, 100):
            if way == "loop" and R > 25:
                continue
            words = (
                "protocol=multi_mnist",
                "algorithm=ls",
                *network,
                batch,
                size,
                f"problem.execution={way}",
            )
            yield Case("LeNet", way, R, (*words, *_runs(R, preferences=min(R, 5))), products=True)
    scale = "scale=smoke" if quick else "scale=paper"
    for name in ("ls", "omd_tch", "fedmgda_plus"):
        for R in (1, 2) if quick else (1, 10, 30):
            words = ("protocol=federated", f"algorithm={name}", scale)
            yield Case("federated MLP", name, R, (*words, *_runs(R)), products=True)
    for R in (1, 2) if quick else (1, 3):
        model = "problem.model=resnet_tiny" if quick else "problem.model=resnet20"
        words = ("protocol=federated_cifar", "algorithm=ls", scale, model, "data=digits")
        yield Case("federated ResNet", "ls", R, (*words, *_runs(R)), products=True)
    for R in (1, 2) if quick else (1, 5, 20):
        words = ("protocol=mobl_few_shot", "algorithm=wc_mhgd", scale, "problem.episodes=named")
        yield Case("few-shot", "wc_mhgd", R, (*words, *_runs(R)), products=True)


class Stepper:
    """A job on a device, ready to take steps that are not recorded."""

    def __init__(self, overrides: Sequence[str], device: torch.device) -> None:
        hardware = "hardware=gpu" if device.type == "cuda" else "hardware=cpu"
        config = compose([hardware, "steps=1000000", "logger=local", *overrides])
        self.job = make_job(config).on(str(device))
        job = self.job
        self.oracle = job.joined
        self.rules = {name: make_output(name) for name in job.algorithm.outputs}
        theta = self.oracle.initial(job.runs).to(job.device, job.dtype)
        runs = job.runs.to(job.device)
        self.state = loop.first_state(self.oracle, job.algorithm, self.rules, theta, runs, job.steps)

    def step(self, count: int) -> None:
        """Takes so many steps."""
        until = self.state["t"] + count
        self.state = loop.advance(self.oracle, self.job.algorithm, self.rules, self.state, until)


def seconds_per_call(work: Callable[[int], None], device: torch.device, at_least: float) -> float:
    """Median of three measurements of `work(count)`, each of at least so many seconds."""

    def taken(count: int) -> float:
        gpu.synchronize(device)
        begun = time.perf_counter()
        work(count)
        gpu.synchronize(device)
        return time.perf_counter() - begun

    taken(3)  # kernels are chosen, memory is allocated
    count = max(1, round(at_least / max(taken(2) / 2, 1e-7)))
    return median(taken(count) / count for _ in range(3))


def measure(case: Case, device: torch.device, at_least: float) -> dict[str, Any]:
    """Seconds per step; operations of the products, where they matter, and the peak of the memory."""
    stepper = Stepper(case.overrides, device)
    with gpu.current(device):
        seconds = seconds_per_call(stepper.step, device, at_least)
        memory = gpu.peak_memory_mib(device)
    measurement = {"R": case.R, "seconds_per_step": seconds, "peak_memory_mib": memory}
    return measurement | ({"flop_per_step": _operations(case)} if case.products else {})


def _operations(case: Case) -> float:
    """Floating-point operations of the products of one step, as PyTorch counts them on the CPU.

    They are counted for one run and multiplied by R, because runs share no product.
    """
    words = tuple(w for w in case.overrides if not w.startswith(("seeds=", "preferences=")))
    stepper = Stepper((*words, *_runs(1)), torch.device("cpu"))
    stepper.step(1)
    with FlopCounterMode(display=False) as counter:
        stepper.step(1)
    return float(counter.get_total_flops()) * case.R


def peaks(device: torch.device, n: int, at_least: float) -> dict[str, float]:
    """Floating-point operations per second of n x n products, and bytes per second of copies."""
    rates = {}
    with gpu.current(device):
        for name, dtype in PEAKS.items():
            a = torch.ones(n, n, dtype=dtype, device=device)

            def product(count: int, a: torch.Tensor = a) -> None:
                for _ in range(count):
                    a @ a

            rates[name] = 2.0 * n**3 / seconds_per_call(product, device, at_least)
        source = torch.ones(n, n, device=device)
        target = torch.empty_like(source)

        def copies(count: int) -> None:
            for _ in range(count):
                target.copy_(source)

        rates["copy"] = 8.0 * n * n / seconds_per_call(copies, device, at_least)
    return rates


def measure_all(quick: bool, path: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything that `path` does not hold yet for this commit and device; writes `path` case by case."""
    device = torch.device("cuda:0")
    origin = stamp(device)
    results = _begun(path, origin) or {"provenance": origin, "quick": quick, "cases": {}}
    at_least = 0.0 if quick else SECONDS
    if "peaks" not in results:
        results["peaks"] = peaks(device, 16 if quick else 8192, at_least)
        say(
            "peak: "
            + ", ".join(f"{name} {value / 1e12:.3g}e12/s" for name, value in results["peaks"].items())
        )
    for case in cases(quick):
        if case.key in results["cases"]:
            continue
        try:
            results["cases"][case.key] = measure(case, device, at_least)
            say(f"{case.key}: {1e6 * results['cases'][case.key]['seconds_per_step']:.3g} us per step")
        except (MobenchError, torch.OutOfMemoryError) as error:
            results["cases"][case.key] = {"R": case.R, "error": str(error).splitlines()[0]}
            say(f"{case.key}: {error}")
        if path is not None:
            write_atomic(path, json.dumps(results, indent=1).encode())
    return results


def _begun(path: Path | None, origin: dict[str, Any]) -> dict[str, Any] | None:
    """What an earlier call has measured, if it was of this code and on this device."""
    if path is None or not path.exists():
        return None
    results: dict[str, Any] = json.loads(path.read_text())
    same = all(results["provenance"][key] == origin[key] for key in ("git_sha", "git_dirty", "device"))
    return results if same else None


def markdown(results: dict[str, Any]) -> str:
    """The page of the documentation."""
    origin = results["provenance"]
    peak = results["peaks"]
    lines = [
        "# Performance on a GPU",
        "",
        "Do not edit this page. `make gpu` (`python -m benchmarks.gpu`) writes it.",
        "",
        f"{origin['device']}, torch {origin['versions']['torch']}, {origin['date'][:10]}, "
        f"commit {(origin['git_sha'] or 'unknown')[:10]}. "
        + ", ".join(f"{name} products {peak[name] / 1e12:.3g} TFLOP/s" for name in PEAKS)
        + f", copies {peak['copy'] / 1e12:.3g} TB/s.",
        "",
    ]
    if results["quick"]:
        lines += ["**This was a rehearsal at a tiny size; its numbers mean nothing.**", ""]
    lines += [
        "| work | | R | us per step | us per step and run | share of the peak | MiB |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in cases(results["quick"]):
        measurement = results["cases"].get(case.key)
        if measurement is None:
            continue
        if "error" in measurement:
            reason = measurement["error"].split(". ")[0]
            lines.append(f"| {case.group} | {case.name} | {case.R} | {reason} | | | |")
            continue
        taken = measurement["seconds_per_step"]
        share = (
            f"{measurement['flop_per_step'] / taken / peak['float32']:.1%}"
            if "flop_per_step" in measurement
            else ""
        )
        memory = f"{measurement['peak_memory_mib']:.0f}"
        cells = [case.group, case.name, str(case.R), _short(1e6 * taken), _short(1e6 * taken / case.R)]
        lines.append("| " + " | ".join([*cells, share, memory]) + " |")
    return "\n".join(lines) + "\n"


def _short(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures, and writes the files that the options name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--json", type=Path, help="all measurements; an interrupted run continues from it")
    parser.add_argument("--output", type=Path, help="the page as Markdown")
    chosen = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here (`mobench doctor` says more).")
    results = measure_all(chosen.quick, chosen.json, lambda text: print(text, flush=True))
    if chosen.output is not None:
        write_atomic(chosen.output, markdown(results).encode())
    return results


if __name__ == "__main__":
    main()
