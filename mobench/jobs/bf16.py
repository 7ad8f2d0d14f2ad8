"""What `precision=bf16` asks of a job and of the machine that it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mobench.core import precision
from mobench.core.problem import Problem
from mobench.errors import ConfigError
from mobench.jobs.job import Job


def check(config: Mapping[str, Any], problem: Problem) -> None:
    """Raises ConfigError if the job asks for bf16 products and has none."""
    if config["precision"] == "fp32":
        return
    if problem.product_shape is None:
        raise ConfigError(
            f"precision={config['precision']} is for problems with a network whose products can be bf16; "
            f"{type(problem).__name__} has none. Remove it, or set precision=fp32."
        )
    if config["dtype"] != "float32":
        raise ConfigError(
            f"precision={config['precision']} sums products in fp32, but dtype={config['dtype']}; "
            "add dtype=float32."
        )


def way(job: Job) -> precision.Way:
    """Returns how the job's network computes its products on the job's device."""
    if job.config["precision"] == "fp32":
        return "fp32"
    if job.device.type == "cuda":
        return "cuda"
    return "rounded" if job.config["hardware"]["bf16"] == "rounded" else "unit"


def refusal(job: Job) -> str | None:
    """Returns why this machine should not compute the job's products in bf16, with what was measured; None if
    it may.
    """
    shape = job.problem.product_shape
    if way(job) != "unit" or shape is None:
        return None
    threads = job.config["hardware"]["threads"] or torch.get_num_threads()
    found = precision.measured(shape, int(threads))
    if found.rounds and found.gain >= precision.LEAST:
        return None
    size = " x ".join(map(str, shape))
    said = (
        f"takes {1 / found.gain:.2f} times as long as in fp32"
        if found.rounds
        else "is computed in fp32 all the same, because the CPU has no matrix unit for bf16 (AMX)"
    )
    return (
        f"precision=bf16 gains nothing on this CPU: a product of {size} by oneDNN {said}, and of bf16 "
        f"tensors it takes {1 / found.tensors:.2f} times as long. Set precision=fp32, or run on a GPU or on "
        "a CPU with AMX. hardware.bf16=rounded computes the same numbers here, slower than fp32, to try what "
        "bf16 does to results."
    )
