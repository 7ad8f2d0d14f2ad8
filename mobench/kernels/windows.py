"""Shifts of maps, pooling and their adjoints in one sweep each, for Numba.

`convnet` has the same in array operations, with the same numbers to the bit. Tensors come as the memory from
their first number on, with their strides; the numbers of a column must lie side by side.
"""

from __future__ import annotations

from mobench.kernels.jit import Array, entry

Strides = tuple[int, ...]


@entry
def shift(x: Array, out: Array) -> None:
    """out (H, k, 2 v, n): each row of x (H, W, n) shifted by 0 .. k-1 columns, even columns first."""
    H, k, w, n = out.shape
    v = w // 2
    for y in range(H):
        for j in range(k):
            for odd in range(2):
                for i in range(v):
                    to = out[y, j, odd * v + i]
                    taken = x[y, 2 * i + odd + j]
                    for c in range(n):
                        to[c] = taken[c]


@entry
def gather(x: Array, out: Array, os: Strides) -> None:
    """The adjoint of shifts of maps (H, C, columns, n).

    Column i is the sum over j of column i - j of x[:, j], x (H, k, C, w, n). os: strides of rows, channels,
    columns of `out`, which has w + k - 1 columns or more.
    """
    H, k, C, w, n = x.shape
    for y in range(H):
        for c in range(C):
            for i in range(w + k - 1):
                here = y * os[0] + c * os[1] + i * os[2]
                to = out[here : here + n]
                first = max(0, i - w + 1)
                taken = x[y, first, c, i - first]
                for m in range(n):
                    to[m] = taken[m]
                for j in range(first + 1, min(k, i + 1)):
                    taken = x[y, j, c, i - j]
                    for m in range(n):
                        to[m] += taken[m]


@entry
def pool(
    z: Array, zs: Strides, bias: Array, out: Array, at: Array, os: Strides, sizes: Strides, keep: bool
) -> None:
    """out: ReLU of the maximum of each window plus the bias; at, with `keep`: the number of its corner.

    zs: strides of rows, channels, halves, columns. os: those of rows, channels, columns, of `out` and `at`.
    """
    G, C, V, n = sizes
    one = z.dtype.type(1.0)
    two = one + one
    three = two + one
    zero = one - one
    for g in range(G):
        for c in range(C):
            plus = bias[c]
            for v in range(V):
                left = 2 * g * zs[0] + c * zs[1] + v * zs[3]
                right = left + zs[2]
                here = g * os[0] + c * os[1] + v * os[2]
                p = z[left : left + n]
                q = z[right : right + n]
                r = z[left + zs[0] : left + zs[0] + n]
                s = z[right + zs[0] : right + zs[0] + n]
                o = out[here : here + n]
                a = at[here : here + n] if keep else o
                for i in range(n):
                    # a maximum with something that is no number is none
                    upper = q[i] if (q[i] > p[i]) | (q[i] != q[i]) else p[i]
                    lower = s[i] if (s[i] > r[i]) | (s[i] != s[i]) else r[i]
                    if keep:
                        first = three if p[i] >= q[i] else two
                        second = one if r[i] >= s[i] else zero
                        a[i] = first if upper >= lower else second
                    most = lower if (lower > upper) | (lower != lower) else upper
                    most = most + plus
                    o[i] = zero if most < zero else most


@entry
def spread(
    d: Array,
    ds: Strides,
    h: Array,
    at: Array,
    hs: Strides,
    out: Array,
    os: Strides,
    sizes: Strides,
    alive: bool,
    first: int,
) -> None:
    """out: each entry of d, from row `first` on, in the corner `at` of its window, 0 in the others.

    alive: only where h > 0; d is set to 0 elsewhere. ds: strides of rows, slopes, channels, columns. hs: of
    rows, channels, columns, of `h` and `at`. os: of rows, slopes, channels, halves, columns.
    """
    G, S, C, V, n = sizes
    one = d.dtype.type(1.0)
    two = one + one
    three = two + one
    zero = one - one
    for g in range(G):
        for s in range(S):
            for c in range(C):
                for v in range(V):
                    here = (first + g) * hs[0] + c * hs[1] + v * hs[2]
                    there = (first + g) * ds[0] + s * ds[1] + c * ds[2] + v * ds[3]
                    left = 2 * g * os[0] + s * os[1] + c * os[2] + v * os[4]
                    right = left + os[3]
                    x = d[there : there + n]
                    a = at[here : here + n]
                    o3 = out[left : left + n]
                    o2 = out[right : right + n]
                    o1 = out[left + os[0] : left + os[0] + n]
                    o0 = out[right + os[0] : right + os[0] + n]
                    if alive:
                        above = h[here : here + n]
                        for i in range(n):
                            x[i] = zero if above[i] <= zero else x[i]
                    for i in range(n):
                        o3[i] = x[i] if a[i] == three else zero
                        o2[i] = x[i] if a[i] == two else zero
                        o1[i] = x[i] if a[i] == one else zero
                        o0[i] = x[i] if a[i] == zero else zero
