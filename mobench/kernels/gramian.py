"""Gram matrices of float32 rows in float64, run after run and 256 columns at a time, for Numba.

A block of all rows is converted into the first-level cache, where tiles of two rows with four others read it
several times. Meanwhile the next block is fetched from memory: rows are streams of 1 KiB each, too short for
the processor to foresee. Sums are taken in any order, in float64: `contract` and `reassoc` let them run in
vectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from mobench.kernels.jit import Array, entry, kernel

intrinsic: Any = extending.intrinsic  # the first argument of its functions, the context, is not passed

WIDTH = 256  # columns of a block: 20 KiB of ten rows
LINE = 16  # float32 numbers of a cache line


@intrinsic
def wide(context: Any) -> Any:
    """Lets the calling function use the widest vectors of the processor, where LLVM prefers half of them.

    This is twice as fast while everything lies in the cache.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def fetch(context: Any, x: Any, i: Any) -> Any:
    """Prefetches x[i], which will be read soon; an index beyond the end of x does no harm."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        prototype = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], prototype)
        # to read, into the second level of the cache, data
        builder.call(prefetch, [place, number(0), number(2), number(1)])
        return context.get_dummy_value()

    return types.none(x, i), generate


def summing(function: Any) -> Any:
    """A kernel whose sums may be taken in any order."""
    return kernel(function, fastmath={"reassoc", "contract", "nsz"})


# rows are taken out before each loop: an index that could be negative keeps LLVM from using vectors


@summing
def two_by_four(x: Array, i: int, j: int, w: int, G: Array) -> None:
    wide()
    a0 = a1 = a2 = a3 = 0.0
    b0 = b1 = b2 = b3 = 0.0
    p = x[i]
    q = x[i + 1]
    s0 = x[j]
    s1 = x[j + 1]
    s2 = x[j + 2]
    s3 = x[j + 3]
    for c in range(w):
        u = p[c]
        v = q[c]
        a0 += u * s0[c]
        a1 += u * s1[c]
        a2 += u * s2[c]
        a3 += u * s3[c]
        b0 += v * s0[c]
        b1 += v * s1[c]
        b2 += v * s2[c]
        b3 += v * s3[c]
    G[i, j] += a0
    G[i, j + 1] += a1
    G[i, j + 2] += a2
    G[i, j + 3] += a3
    G[i + 1, j] += b0
    G[i + 1, j + 1] += b1
    G[i + 1, j + 2] += b2
    G[i + 1, j + 3] += b3


@summing
def two_by_two(x: Array, i: int, j: int, w: int, G: Array) -> None:
    wide()
    a0 = a1 = b0 = b1 = 0.0
    p = x[i]
    q = x[i + 1]
    s0 = x[j]
    s1 = x[j + 1]
    for c in range(w):
        u = p[c]
        v = q[c]
        a0 += u * s0[c]
        a1 += u * s1[c]
        b0 += v * s0[c]
        b1 += v * s1[c]
    G[i, j] += a0
    G[i, j + 1] += a1
    G[i + 1, j] += b0
    G[i + 1, j + 1] += b1


@summing
def two_by_one(x: Array, i: int, j: int, w: int, G: Array) -> None:
    wide()
    a = b = 0.0
    p = x[i]
    q = x[i + 1]
    s = x[j]
    for c in range(w):
        a += p[c] * s[c]
        b += q[c] * s[c]
    G[i, j] += a
    G[i + 1, j] += b


@summing
def one_by_one(x: Array, i: int, j: int, w: int, G: Array) -> None:
    wide()
    a = 0.0
    p = x[i]
    s = x[j]
    for c in range(w):
        a += p[c] * s[c]
    G[i, j] += a


@summing
def block(x: Array, w: int, G: Array, flat: Array, at: int, row: int) -> None:
    """Adds the products of the first w columns of x to G, while the columns from flat[at] on are prefetched.

    Two rows of G at a time, from the diagonal on.
    """
    wide()
    M = len(G)
    for i in range(0, M, 2):
        for m in range(i, min(i + 2, M)):
            start = at + m * row
            for c in range(start, min(start + WIDTH, len(flat)), LINE):
                fetch(flat, c)
        j = i
        if i + 1 < M:
            while j + 3 < M:
                two_by_four(x, i, j, w, G)
                j += 4
            if j + 1 < M:
                two_by_two(x, i, j, w, G)
                j += 2
            if j < M:
                two_by_one(x, i, j, w, G)
        else:
            one_by_one(x, i, j, w, G)


@entry
def gram(flat: Array, run: int, row: int, n: int, G: Array) -> None:
    """G (R, M, M): of rows that begin at flat[r * run + m * row] and have n entries."""
    wide()
    R, M, _ = G.shape
    x = np.empty((M, WIDTH))
    for r in range(R):
        g = G[r]
        g[:] = 0.0
        for a in range(0, n, WIDTH):
            w = min(WIDTH, n - a)
            for m in range(M):
                start = r * run + m * row + a
                part = flat[start : start + w]
                converted = x[m]
                for c in range(w):
                    converted[c] = part[c]
            block(x, w, g, flat, r * run + a + WIDTH, row)
        for i in range(M):
            for j in range(i):
                g[i, j] = g[j, i]


@entry
def cancelled(w: Array, G: Array, share: float) -> Array:
    """The numbers r with share |J_r^T w_r| < sum_m |w_rm| |g_rm|; w (R, M), G (R, M, M)."""
    R, M = w.shape
    runs = np.empty(R, np.int64)
    count = 0
    for r in range(R):
        square = 0.0
        terms = 0.0
        for i in range(M):
            terms += abs(w[r, i]) * math.sqrt(abs(G[r, i, i]))
            for j in range(M):
                square += w[r, i] * G[r, i, j] * w[r, j]
        if square * share * share < terms * terms:
            runs[count] = r
            count += 1
    return runs[:count]
