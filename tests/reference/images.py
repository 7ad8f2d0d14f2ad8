"""Pictures with two labels: one network module, one run at a time,
PyTorch's layers and automatic differentiation only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.reference.common import Array, Trajectory, min_norm, project_simplex

Indices = NDArray[np.int64]


class LeNet(nn.Module):
    """Two convolutions, each with ReLU and a 2 x 2 maximum, a shared linear layer with ReLU,
    one linear head per task.
    """

    def __init__(
        self,
        channels: Sequence[int] = (10, 20),
        kernels: Sequence[int] = (9, 5),
        hidden: int = 50,
        shrink: int = 1,
        tasks: int = 2,
        canvas: int = 36,
    ) -> None:
        super().__init__()
        side = ((canvas // shrink - kernels[0] + 1) // 2 - kernels[1] + 1) // 2
        self.shrink = nn.AvgPool2d(shrink) if shrink > 1 else nn.Identity()
        self.conv1 = nn.Conv2d(1, channels[0], kernels[0])
        self.conv2 = nn.Conv2d(channels[0], channels[1], kernels[1])
        self.fc = nn.Linear(channels[1] * side * side, hidden)
        self.heads = nn.ModuleList([nn.Linear(hidden, 10) for _ in range(tasks)])
        self.pool = nn.MaxPool2d(2)

    def forward(self, pictures: Tensor) -> list[Tensor]:
        x = self.shrink(pictures.unsqueeze(1))
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        x = torch.relu(self.fc(x.flatten(1)))
        return [head(x) for head in self.heads]


@dataclass
class Data:
    """Pictures (N, H, W) as the network takes them and labels (N, T)."""

    x: Tensor
    y: Tensor


def load(net: nn.Module, vector: Tensor) -> None:
    """Write a flat vector into the parameters: weight, then bias, layer by layer."""
    at = 0
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(vector[at : at + p.numel()].view_as(p))
            at += p.numel()
    assert at == len(vector)


def flat(grads: Sequence[Tensor | None], net: nn.Module) -> Tensor:
    """One vector; a parameter that a loss does not see has gradient zero."""
    return torch.cat(
        [
            torch.zeros_like(p).flatten() if g is None else g.flatten()
            for g, p in zip(grads, net.parameters(), strict=True)
        ]
    )


def losses(net: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """Mean cross-entropy of each head."""
    return [nn.functional.cross_entropy(z, y[:, m]) for m, z in enumerate(net(x))]


def hessian_product(net: nn.Module, x: Tensor, y: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """(sum_m w_m Hess_m) v by differentiating twice."""
    some = list(net.parameters())
    total = sum(w[m] * f for m, f in enumerate(losses(net, x, y)))
    first = torch.autograd.grad(total, some, create_graph=True)
    slope = (torch.cat([g.flatten() for g in first]) * v).sum()
    return flat(torch.autograd.grad(slope, some), net)


def jacobian(net: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (M,) and their gradients (M, P), one backward pass each."""
    values = losses(net, x, y)
    parameters = list(net.parameters())
    rows = [
        flat(torch.autograd.grad(f, parameters, retain_graph=True, allow_unused=True), net) for f in values
    ]
    return torch.stack([f.detach() for f in values]), torch.stack(rows)


def weighted(net: nn.Module, x: Tensor, y: Tensor, w: Array) -> tuple[Array, Tensor]:
    """Losses and the gradient of their weighted sum, one backward pass."""
    values = losses(net, x, y)
    total = torch.stack([float(a) * f for a, f in zip(w, values, strict=True)]).sum()
    g = torch.autograd.grad(total, list(net.parameters()), allow_unused=True)
    return np.array([f.item() for f in values]), flat(g, net)


class Run:
    """A model on its way: theta as a flat vector, the steps taken, what was seen."""

    def __init__(self, net: nn.Module, x0: Tensor, data: Data) -> None:
        self.net = net
        self.theta = x0.clone()
        self.data = data
        self.xs = [x0.clone()]
        self.fs = list[Array]()
        self.extra: dict[str, list[Any]] = {}
        load(net, self.theta)

    def on(self, index: Indices) -> tuple[Tensor, Tensor]:
        return self.data.x[index], self.data.y[index]

    def move(self, d: Tensor, F: Array, **seen: Any) -> None:
        """theta <- theta + d."""
        self.theta = self.theta + d
        load(self.net, self.theta)
        self.xs.append(self.theta.clone())
        self.fs.append(F)
        for key, value in seen.items():
            self.extra.setdefault(key, []).append(value)

    def trajectory(self) -> Trajectory:
        return Trajectory(
            torch.stack(self.xs).numpy(), np.array(self.fs), {k: np.array(v) for k, v in self.extra.items()}
        )


def ls(
    net: nn.Module, x0: Tensor, w: Array, data: Data, batches: Sequence[Indices], step_size: float
) -> Trajectory:
    """theta <- theta - alpha J^T w."""
    run = Run(net, x0, data)
    for index in batches:
        F, g = weighted(net, *run.on(index), w)
        run.move(-step_size * g, F)
    return run.trajectory()


def _rows(ray: Array) -> Array:
    """Two unit rows for the losses and one across the ray."""
    return np.array([[1.0, 0.0], [0.0, 1.0], [ray[1] / np.hypot(*ray), -ray[0] / np.hypot(*ray)]])


def ferero(
    net: nn.Module,
    x0: Tensor,
    ray: Array,
    data: Data,
    halves: Sequence[tuple[Indices, Indices]],
    *,
    step_size: float,
    gamma: float,
    c_h: float,
) -> Trajectory:
    """Algorithm 3: the direction and the constraint from half 1, the loss changes along it from half 2."""
    S = _rows(ray)
    run = Run(net, x0, data)
    lam = np.array([0.5, 0.5, 0.0])
    for one, two in halves:
        F, g = weighted(net, *run.on(one), lam @ S)
        _, J = jacobian(net, *run.on(two))
        slope = S @ (J @ g).numpy() - np.array([0.0, 0.0, c_h * float(S[2] @ F)])
        old = lam
        lam = lam - gamma * slope
        lam[:2] = project_simplex(lam[:2])
        run.move(-step_size * g, F, lam=old)
    out = run.trajectory()
    out.extra["last"] = lam
    out.extra["weights"] = lam @ S
    return out


def ferero_code(
    net: nn.Module,
    x0: Tensor,
    ray: Array,
    data: Data,
    halves: Sequence[tuple[Indices, Indices]],
    *,
    step_size: float,
    gamma: float,
    c_h: float,
    tolerance: float,
) -> Trajectory:
    """The public code: weights of the whole batch normalised by sum |w|, lf fresh at every step."""
    S = _rows(ray)
    run = Run(net, x0, data)
    lh = 1.0
    u = np.array([0.5, 0.5, lh]) @ S
    u /= np.abs(u).sum()
    for one, two in halves:
        F, J = jacobian(net, *run.on(one))
        _, g = weighted(net, *run.on(two), u)
        lam = np.array([0.5, 0.5, lh])
        H = float(S[2] @ F.numpy())
        new = lam - gamma * (S @ (J @ g).numpy() - np.array([0.0, 0.0, c_h * H]))
        new[:2] = project_simplex(new[:2])
        frozen = bool(np.abs((new - lam) @ S).sum() < tolerance)
        lam = lam if frozen else new
        lh = lam[2]
        u = lam @ S
        u = u / np.abs(u).sum()
        _, d = weighted(net, *run.on(np.concatenate([one, two])), u)
        run.move(-step_size * d, F.numpy(), lam=lam, u=u, frozen=frozen)
    return run.trajectory()


def ferero_script(
    net: nn.Module,
    x0: Tensor,
    ray: Array,
    data: Data,
    parts: Sequence[tuple[Indices, Indices]],
    *,
    step_size: float,
    gamma: float,
    c_h: float,
    tolerance: float,
) -> Trajectory:
    """The public image script, with its shapes: before the first step the multiplier of the ray is a number,
    with which NumPy makes a 2 x 2 matrix of the weights; the weighted loss and the change sum over it.
    """
    run = Run(net, x0, data)
    across = _rows(ray)[2:]  # (1, 2)
    fresh = np.array([0.5, 0.5])
    lh: float | Array = 0.0
    sent = fresh + np.dot(across.T, lh)
    assert sent.shape == (2, 2)
    for one, two in parts:
        F, J = jacobian(net, *run.on(one))
        _, g = weighted(net, *run.on(two), sent.sum(0) if sent.ndim == 2 else sent)
        start = fresh + np.dot(across.T, lh)
        slope = (J @ g).numpy()
        moved_f = project_simplex(fresh - gamma * slope)
        moved_h = lh - gamma * (across @ slope - c_h * across @ F.numpy())
        moved = moved_f + across.T @ moved_h
        frozen = bool(np.abs(moved - start).sum() < tolerance)
        if frozen:
            moved = start
        else:
            lh = moved_h
        if moved.ndim == 2:  # the script stops with an error at a first change that is dropped
            moved = moved.mean(0)
        sent = moved / np.abs(moved).sum()
        _, d = weighted(net, *run.on(np.concatenate([one, two])), sent)
        run.move(-step_size * d, F.numpy(), lh=float(np.ravel(lh)[0]), u=sent, frozen=frozen)
    return run.trajectory()


def pmtl(
    net: nn.Module,
    x0: Tensor,
    ray: Array,
    refs: Array,
    data: Data,
    batches: Sequence[Indices],
    *,
    step_size: float,
    phase1_steps: int,
) -> Trajectory:
    """Phase 1 ends after `phase1_steps` or at the first batch inside the sector;
    weights of phase 2 have sum |w| = 1.
    """
    W = refs / np.linalg.norm(refs, axis=1, keepdims=True) - ray / np.linalg.norm(ray)
    W = W[np.abs(W).max(1) > 1e-9]
    run = Run(net, x0, data)
    first = True
    for t, index in enumerate(batches):
        F, J = jacobian(net, *run.on(index))
        active = W[W @ F.numpy() > 0.0]
        first = first and t < phase1_steps and len(active) > 0
        rows = active if first else np.vstack([np.eye(2), active])
        w = min_norm(rows @ J.numpy()) @ rows
        if not first:
            w = w / np.abs(w).sum()
        run.move(
            -step_size * (torch.from_numpy(w) @ J),
            F.numpy(),
            phase=1 if first else 2,
            w=w,
            active=len(active),
        )
    return run.trajectory()
