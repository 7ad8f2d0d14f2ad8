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

    def front_point(self, u: float | Array) -> Array:
        """Values at x = u / sqrt(n), -1 <= u <= 1."""
        u = np.asarray(u, dtype=np.float64)
        return (
            np.stack([1.0 - np.exp(-((1.0 - u) ** 2)), 1.0 - np.exp(-((1.0 + u) ** 2))], axis=-1)
            * self.factor
        )

    def front(self, points: int = 20001) -> Array:
        return self.front_point(np.linspace(-1.0, 1.0, points))

    def on_ray(self, ray: Array) -> Array:
        """Where the front crosses a ray: bisection of f1 v2 - f2 v1, which falls in u."""
        low = -1.0
        high = 1.0
        for _ in range(200):
            mid = 0.5 * (low + high)
            f = self.front_point(mid)
            low, high = (mid, high) if f[0] * ray[1] > f[1] * ray[0] else (low, mid)
        return self.front_point(0.5 * (low + high))


@dataclass(frozen=True)
class _ZDT:
    """f1 = x1, f2 = g h(f1, g), g = 1 + 9 mean(x_2..x_n); box [0, 1]^n.

    At x1 = 0 the slope of the square root is infinite (ZDT1, ZDT3): x1 is read as at least 1e-12 inside it.
    """

    n: int = 30

    @property
    def objectives(self) -> int:
        return 2

    def _h(self, x1: float, g: float) -> tuple[float, float, float]:
        """h and its slopes in x1 and g."""
        raise NotImplementedError

    def f(self, x: Array) -> Array:
        g = 1.0 + 9.0 * np.mean(x[1:])
        return np.array([x[0], g * self._h(float(x[0]), float(g))[0]])

    def jacobian(self, x: Array) -> Array:
        g = float(1.0 + 9.0 * np.mean(x[1:]))
        h, h_x, h_g = self._h(float(x[0]), g)
        J = np.zeros((2, self.n))
        J[0, 0] = 1.0
        J[1, 0] = g * h_x
        J[1, 1:] = (h + g * h_g) * 9.0 / (self.n - 1)
        return J


class ZDT1(_ZDT):
    """h = 1 - sqrt(x1 / g): convex front."""

    def _h(self, x1: float, g: float) -> tuple[float, float, float]:
        root = float(np.sqrt(max(x1, 1e-12) / g))
        return 1.0 - root, -0.5 * root / max(x1, 1e-12), 0.5 * root / g


class ZDT2(_ZDT):
    """h = 1 - (x1 / g)^2: concave front."""

    def _h(self, x1: float, g: float) -> tuple[float, float, float]:
        r = x1 / g
        return 1.0 - r**2, -2.0 * r / g, 2.0 * r**2 / g


class ZDT3(_ZDT):
    """h = 1 - sqrt(x1 / g) - (x1 / g) sin(10 pi x1): front in pieces; f2 can be negative."""

    def _h(self, x1: float, g: float) -> tuple[float, float, float]:
        root = float(np.sqrt(max(x1, 1e-12) / g))
        wave = float(np.sin(10 * np.pi * x1))
        slope = float(10 * np.pi * np.cos(10 * np.pi * x1))
        r = x1 / g
        return (
            1.0 - root - r * wave,
            -0.5 * root / max(x1, 1e-12) - wave / g - r * slope,
            0.5 * root / g + r * wave / g,
        )


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
