"""Test problems with analytic Jacobians, NumPy only."""

from dataclasses import dataclass

import numpy as np

from tests.reference.common import Array


@dataclass(frozen=True)
class VLMOP2:
    """f_m = s_m (1 - exp(-|x -+ 1/sqrt(n)|^2)); the front is concave."""

    n: int = 20
    factor: tuple[float, float] = (1.0, 1.0)

    @property
    def objectives(self) -> int:
        return 2

    def f(self, x: Array) -> Array:
        c = 1.0 / np.sqrt(self.n)
        return np.array(self.factor) * (1.0 - np.exp([-np.sum((x - c) ** 2), -np.sum((x + c) ** 2)]))

    def jacobian(self, x: Array) -> Array:
        c = 1.0 / np.sqrt(self.n)
        return np.stack(
            [
                s * 2.0 * (x - e * c) * np.exp(-np.sum((x - e * c) ** 2))
                for s, e in zip(self.factor, (1, -1), strict=True)
            ]
        )


@dataclass(frozen=True)
class ZDT2:
    """f1 = x1, f2 = g h(f1, g), h = 1 - (x1 / g)^2, g = 1 + 9 mean(x_2..x_n); box [0, 1]^n; concave front."""

    n: int = 30

    @property
    def objectives(self) -> int:
        return 2

    def f(self, x: Array) -> Array:
        g = 1.0 + 9.0 * np.mean(x[1:])
        return np.array([x[0], g * (1.0 - (x[0] / g) ** 2)])

    def jacobian(self, x: Array) -> Array:
        g = float(1.0 + 9.0 * np.mean(x[1:]))
        r = x[0] / g
        J = np.zeros((2, self.n))
        J[0, 0] = 1.0
        J[1, 0] = -2.0 * r
        J[1, 1:] = (1.0 + r**2) * 9.0 / (self.n - 1)
        return J


@dataclass(frozen=True)
class DTLZ2:
    """Three objectives on a sphere of radius 1 + g, g = |x_3..x_n - 1/2|^2; box [0, 1]^n."""

    n: int = 12

    @property
    def objectives(self) -> int:
        return 3

    def f(self, x: Array) -> Array:
        a = 0.5 * np.pi * x[0]
        b = 0.5 * np.pi * x[1]
        r = 1.0 + np.sum((x[2:] - 0.5) ** 2)
        return r * np.array([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)])

    def jacobian(self, x: Array) -> Array:
        a = 0.5 * np.pi * x[0]
        b = 0.5 * np.pi * x[1]
        q = 0.5 * np.pi
        r = 1.0 + np.sum((x[2:] - 0.5) ** 2)
        sphere = np.array([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)])
        J = np.empty((3, self.n))
        J[:, 0] = r * q * np.array([-np.sin(a) * np.cos(b), -np.sin(a) * np.sin(b), np.cos(a)])
        J[:, 1] = r * q * np.array([-np.cos(a) * np.sin(b), np.cos(a) * np.cos(b), 0.0])
        J[:, 2:] = np.outer(sphere, 2.0 * (x[2:] - 0.5))
        return J
