"""Pareto set models, one sample at a time: x = h(w) by a network of two hidden layers, trained by Adam.

Gradients by the parameters are whole vectors here; EPO's linear program sees their inner products.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.reference.common import Array, Box, Problem
from tests.reference.epo import program, weights_linprog


@dataclass
class Network:
    """Three layers (weights (inputs, outputs), biases); x in the box, or origin + outputs."""

    layers: list[tuple[Array, Array]]
    box: Box | None
    origin: Array

    def at(self, w: Array) -> tuple[Array, list[Array]]:
        """x, and its derivatives by every weight and bias, arrays (x, ...) in the order of the layers."""
        (W1, b1), (W2, b2), (W3, b3) = self.layers
        z1 = W1.T @ w + b1
        a1 = np.maximum(z1, 0.0)
        z2 = W2.T @ a1 + b2
        a2 = np.maximum(z2, 0.0)
        o = W3.T @ a2 + b3
        if self.box is None:
            x = self.origin + o
            slope = np.ones_like(o)
        else:
            low, high = self.box
            share = 1.0 / (1.0 + np.exp(-o))
            x = low + (high - low) * share
            slope = (high - low) * share * (1.0 - share)
        by_o = np.diag(slope)
        by_z2 = by_o @ W3.T * (z2 > 0)
        by_z1 = by_z2 @ W2.T * (z1 > 0)
        out = []
        for a, by in ((w, by_z1), (a1, by_z2), (a2, by_o)):
            out += [np.einsum("i,xk->xik", a, by), by]
        return x, out


@dataclass
class Training:
    """The network's parameters after each update, flat, and the drawn points."""

    parameters: list[Array] = field(default_factory=list)
    points: list[Array] = field(default_factory=list)
    answers: Array = field(default_factory=lambda: np.empty(0))


Rule = Callable[[Array, Array, Array], Array]  # (F, gradients by the parameters (M, n), w) -> weights


def linear(F: Array, rows: Array, w: Array) -> Array:
    """PHN-LS."""
    return w


def exact(F: Array, rows: Array, w: Array) -> Array:
    """PHN-EPO: the weights of its linear program, times M."""
    objective, R, bounds, _, _ = program(rows @ rows.T, F, w)
    return len(F) * weights_linprog(objective, R, bounds)


def cosine(penalty: float, direction: Callable[[Array], Array]) -> Rule:
    """COSMOS: the derivative of w'f - penalty cos(f, v) by f, by central differences."""

    def value(F: Array, w: Array) -> float:
        v = direction(w)
        return float(w @ F - penalty * (F @ v) / np.linalg.norm(F) / np.linalg.norm(v))

    def weights(F: Array, rows: Array, w: Array) -> Array:
        h = 1e-5
        return np.array([(value(F + h * e, w) - value(F - h * e, w)) / (2 * h) for e in np.eye(len(F))])

    return weights


def train(
    problem: Problem, network: Network, rule: Rule, draws: list[Array], preferences: Array, lr: float
) -> Training:
    """One update for each set of preferences (K, M) in `draws`, then the answers at `preferences`."""
    training = Training()
    flat = np.concatenate([part.ravel() for layer in network.layers for part in layer])
    first = np.zeros_like(flat)
    second = np.zeros_like(flat)
    for t, ws in enumerate(draws, start=1):
        total = np.zeros_like(flat)
        points = []
        for w in ws:
            x, by = network.at(w)
            J = problem.jacobian(x)
            rows = np.concatenate([np.tensordot(J, part, axes=1).reshape(len(J), -1) for part in by], axis=1)
            total += rule(problem.f(x), rows, w) @ rows
            points.append(x)
        gradient = total / len(ws)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        corrected = first / (1 - 0.9**t)
        flat = flat - lr * corrected / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        network = _filled(network, flat)
        training.parameters.append(flat.copy())
        training.points.append(np.array(points))
    training.answers = np.array([network.at(w)[0] for w in preferences])
    return training


def _filled(network: Network, flat: Array) -> Network:
    layers = []
    start = 0
    for W, b in network.layers:
        middle = start + W.size
        layers.append((flat[start:middle].reshape(W.shape), flat[middle : middle + b.size]))
        start = middle + b.size
    return Network(layers, network.box, network.origin)
