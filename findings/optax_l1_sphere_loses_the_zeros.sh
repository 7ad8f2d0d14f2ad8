#!/usr/bin/env bash
# optax 0.2.8: projection_l1_sphere returns points off the sphere, if an entry of the given point is zero and the point lies inside.
#
# The projection onto the sphere is a nearest point y with |y|_1 = scale, as its docstring says. optax projects the absolute values onto the
# simplex, which is right, and multiplies the result by the signs of x. From inside the sphere every entry must grow, the zeros as well (with either
# sign), but the sign of a zero is 0, and what these entries got is struck out: the projection of (0.2, 0, 0) is said to be (0.467, 0, 0), of norm
# 0.467 and not 1, and the origin is said to be its own projection. Points with zeros are what this norm is used for: preferences, signed weights
# that start at zero, a feature that the data lack. Projected gradient descent then leaves the sphere: below it ends at weights of norm 0.9 with a
# squared error of 0.08, where weights of norm 1 have none. No message says so. Outside of the sphere, and in projection_l1_ball, zeros do no
# harm. Until it is repaired, one can multiply projection_simplex(|x|, scale) by where(x < 0, -1, 1).
#
# The least distance is found below over all faces of the sphere one by one. Fails if the behaviour changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 2>/dev/null
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version
from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
from optax.projections import projection_l1_ball, projection_l1_sphere, projection_simplex

jax.config.update("jax_enable_x64", True)


def nearest(x, scale):
    """The least distance of x to the sphere, over all faces: the signs, and the entries that are not zero."""
    best = np.inf
    for signs in product((-1, 1), repeat=len(x)):
        for size in range(1, len(x) + 1):
            for support in map(list, combinations(range(len(x)), size)):
                y, s = np.zeros(len(x)), np.array(signs)[support]
                y[support] = x[support] + s * (scale - s @ x[support]) / size
                if (s * y[support] >= 0).all():
                    best = min(best, np.linalg.norm(y - x))
    return best


print("optax", version("optax"), "jax", version("jax"))
cases = [
    ([0.2, 0.0, 0.0], 1.0),
    ([0.2, -0.1, 0.0, 0.0], 1.0),
    ([0.0, 0.0, 0.0], 1.0),
    ([0.2, 1e-9, -1e-9], 1.0),  # next to the first: right
    ([3.0, 0.0, -1.0], 1.0),  # outside: right
    ([0.3, 0.0, 0.1], 0.2),
]
for x, scale in cases:
    x = np.array(x)
    y = np.asarray(projection_l1_sphere(jnp.array(x), scale))
    repaired = np.where(x < 0, -1, 1) * np.asarray(projection_simplex(jnp.abs(x), scale))
    ball = np.asarray(projection_l1_ball(jnp.array(x), scale))
    assert np.isclose(np.abs(repaired).sum(), scale)
    assert np.isclose(np.linalg.norm(repaired - x), nearest(x, scale))
    assert np.abs(ball).sum() <= scale + 1e-9
    wrong = bool((x == 0).any() and np.abs(x).sum() < scale)
    print(
        f"{x}, scale {scale:g}: optax {y.round(4)}, of norm {np.abs(y).sum():.4f}; a nearest point {repaired.round(4)}"
    )
    assert np.isclose(np.abs(y).sum(), scale) != wrong, x
    assert np.allclose(y, repaired) != wrong, x

# least squares with weights of norm 1, where the third feature is absent from the data
rng = np.random.default_rng(0)
X = rng.normal(size=(100, 3)) * [1, 1, 0]
y = X @ [0.3, -0.2, 0.0]
norms = {}
for name in ("optax", "repaired"):
    w = np.array([1.0, 0.0, 0.0])
    for _ in range(200):
        step = w - 0.5 * X.T @ (X @ w - y) / len(X)
        if name == "optax":
            w = np.asarray(projection_l1_sphere(jnp.array(step)))
        else:
            w = np.where(step < 0, -1, 1) * np.asarray(projection_simplex(jnp.abs(step)))
    norms[name] = np.abs(w).sum()
    print(
        f"projected gradient descent, {name}: w = {w.round(3)}, of norm {norms[name]:.3f}, error {np.mean((X @ w - y) ** 2):.4f}"
    )
assert np.isclose(norms["repaired"], 1) and norms["optax"] < 0.95
PY
