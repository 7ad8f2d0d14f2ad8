"""Hypergradients of single tasks as one would write them in PyTorch: its layers, its losses, automatic
differentiation.

Tensors lie in memory as PyTorch lays them out by default.
Notation of tests/reference/bilevel.py: x belongs to the upper level, y (here W, a matrix) to the lower one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn import functional as fn


class Cleaning(NamedTuple):
    """Images of training (n, d) with the labels of one task, which may be wrong, and of validation."""

    train: Tensor
    labels: Tensor
    validation: Tensor
    truth: Tensor


def cleaning_row(
    x: Tensor,
    start: Tensor,
    task: Cleaning,
    batches: Sequence[Tensor],
    series: Sequence[Tensor],
    *,
    inner_step: float,
    neumann_step: float,
    reg: float,
) -> tuple[Tensor, Tensor]:
    """Upper loss and hypergradient (n,) of one task of data hyper-cleaning: one gradient step on each of
    `batches` from W = `start` (10, d), then one factor of the Neumann series on each of `series`, and J_xy on
    all images.
    """

    def lower(W: Tensor, weights: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        losses = fn.cross_entropy(fn.linear(images, W), labels, reduction="none")
        return (weights * losses).mean() + reg * W.square().sum()

    weights = torch.sigmoid(x)  # without a graph: only J_xy needs one
    W = start.clone().requires_grad_(True)
    for index in batches:
        (g,) = grad(lower(W, weights[index], task.train[index], task.labels[index]), W)
        with torch.no_grad():
            W -= inner_step * g

    loss = fn.cross_entropy(fn.linear(task.validation, W), task.truth)
    (nu,) = grad(loss, W)
    total = nu.clone()
    for index in series:
        (g,) = grad(lower(W, weights[index], task.train[index], task.labels[index]), W, create_graph=True)
        (product,) = grad(g, W, grad_outputs=nu)
        nu = nu - neumann_step * product
        total += nu

    leaf = x.clone().requires_grad_(True)
    (g,) = grad(lower(W, torch.sigmoid(leaf), task.train, task.labels), W, create_graph=True)
    (row,) = grad(g, leaf, grad_outputs=-neumann_step * total)
    return loss.detach(), row


def backbone(channels: int, filters: int) -> nn.Sequential:
    """Four times: convolution 3 x 3, normalisation by the batch's own statistics, ReLU, maximum of 2 x 2."""
    layers: list[nn.Module] = []
    for inner in (channels, filters, filters, filters):
        layers += [
            nn.Conv2d(inner, filters, 3, padding=1),
            nn.BatchNorm2d(filters, track_running_stats=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten())


class Episode(NamedTuple):
    """Images (n, C, H, W) and labels of one task: to adapt its head, and to judge it."""

    support: Tensor
    support_labels: Tensor
    query: Tensor
    query_labels: Tensor


def few_shot_row(
    net: nn.Module, start: Tensor, task: Episode, *, inner_steps: int, inner_step: float, reg: float
) -> tuple[Tensor, Tensor]:
    """Query loss and its gradient (P,) with respect to the backbone through `inner_steps` steps of the head
    from W = `start` (ways, F + 1), whose last column is the bias. The backbone is evaluated once on either
    set.
    """
    support, query = (fn.pad(net(images), (0, 1), value=1.0) for images in (task.support, task.query))
    W = start.clone().requires_grad_(True)
    for _ in range(inner_steps):
        lower = fn.cross_entropy(fn.linear(support, W), task.support_labels) + reg * W.square().sum()
        (g,) = grad(lower, W, create_graph=True)
        W = W - inner_step * g
    loss = fn.cross_entropy(fn.linear(query, W), task.query_labels)
    return loss.detach(), torch.cat([part.flatten() for part in grad(loss, list(net.parameters()))])
