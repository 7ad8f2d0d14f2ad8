"""Volume of the boxes [0, y_k] that K points y_k > 0 of many dimensions span, in scalar loops for Numba:

    V(S) = sum_k y_k,last (prod_m y_km - V({min(y_j, y_k): j before k})),

over the points in falling order of their last coordinate, which the product and V on the right leave out: all
minima share it. Each V first drops the points that another one dominates, which most minima are.

Source: While, Bradstreet and Barone 2012 (WFG). Departures: points that share the largest last coordinate are
one set of a dimension less, as many minima do; three dimensions are a sweep over a staircase; the levels are
rows of an array in place of a recursion; the work is counted, and ends where it exceeds a budget.
"""

from __future__ import annotations

import numpy as np

from mobench.kernels.jit import Array, entry, kernel


@kernel
def arrange(
    Q: Array, count: int, d: int, P: Array, key: Array, order: Array, budget: float
) -> tuple[int, float]:
    """Copies the points of Q that no other dominates to P, in falling order of coordinate d - 1.

    Returns their number and the work. Where two share that coordinate, the one with the larger sum is first,
    so no point is dominated by a later one.
    """
    last = d - 1
    work = float(count * d)
    for i in range(count):
        key[i] = 0.0
        for m in range(d):
            key[i] += Q[i, m]
        place = i
        while place > 0:
            before = order[place - 1]
            if Q[before, last] > Q[i, last] or (Q[before, last] == Q[i, last] and key[before] >= key[i]):
                break
            order[place] = before
            place -= 1
        order[place] = i
        work += i - place
    size = 0
    for i in range(count):
        point = order[i]
        beaten = False
        for j in range(size):
            beaten = True
            for m in range(last):
                if Q[point, m] > P[j, m]:
                    beaten = False
                    break
            if beaten:
                work += j + 1
                break
        if not beaten:
            work += size
            for m in range(d):
                P[size, m] = Q[point, m]
            size += 1
        if work > budget:
            break
    return size, work


@kernel
def sweep(P: Array, count: int, stairs: Array) -> float:
    """V of three dimensions, by a staircase of the points so far in their first two coordinates.

    Each point's share is the area that it adds below the staircase, times its last coordinate.
    stairs (2, K + 1): corners in rising order of the first coordinate.
    """
    volume = 0.0
    steps = 0
    for i in range(count):
        x = P[i, 0]
        y = P[i, 1]
        first = 0
        while first < steps and stairs[1, first] > y:
            first += 1
        left = stairs[0, first - 1] if first > 0 else 0.0
        area = 0.0
        end = first
        while end < steps and stairs[0, end] <= x:  # corners that the new one covers
            area += (stairs[0, end] - left) * (y - stairs[1, end])
            left = stairs[0, end]
            end += 1
        area += (x - left) * (y - (stairs[1, end] if end < steps else 0.0))
        volume += area * P[i, 2]
        if end == first:
            for j in range(steps, first, -1):
                stairs[0, j] = stairs[0, j - 1]
                stairs[1, j] = stairs[1, j - 1]
            steps += 1
        elif end > first + 1:
            for j in range(end, steps):
                stairs[0, j - end + first + 1] = stairs[0, j]
                stairs[1, j - end + first + 1] = stairs[1, j]
            steps -= end - first - 1
        stairs[0, first] = x
        stairs[1, first] = y
    return volume


@entry
def volume(Y: Array, budget: float) -> tuple[float, float]:
    """V of the points Y (K, M), M >= 3, and the work that it took; NaN where that exceeds the budget.

    Work is the number of coordinates that are copied and of pairs of points that are compared, the same on
    every machine.
    """
    K, M = Y.shape
    P = np.empty((M + 1, K, M))  # points by level, whose number is that of their coordinates
    n = np.zeros(M + 1, np.int64)
    at = np.zeros(M + 1, np.int64)  # points that are done
    tied = np.zeros(M + 1, np.bool_)  # the level below has all points that share the largest last coordinate
    total = np.zeros(M + 1)
    Q = Y.copy()
    key = np.empty(K)
    order = np.empty(K, np.int64)
    stairs = np.empty((2, K + 1))
    count = K
    d = M
    work = 0.0
    while True:
        n[d], more = arrange(Q, count, d, P[d], key, order, budget - work)
        work += more
        if work > budget:
            return np.nan, work
        at[d] = 0
        total[d] = 0.0
        if d == 3:
            total[d] = sweep(P[d], n[d], stairs)
            at[d] = n[d]
        # back to the level whose next point has others before it
        while True:
            if at[d] == n[d]:
                if d == M:
                    return total[d], work
                below = total[d]
                d += 1
                if tied[d]:
                    total[d] += P[d, 0, d - 1] * below
                else:
                    total[d] -= P[d, at[d], d - 1] * below
                    at[d] += 1
                continue
            k = at[d]
            count = k
            tied[d] = False
            if k == 0:
                while count < n[d] and P[d, count, d - 1] == P[d, 0, d - 1]:
                    count += 1
                if count > 1:
                    tied[d] = True
                    at[d] = count
            if not tied[d]:
                box = P[d, k, d - 1]
                for m in range(d - 1):
                    box *= P[d, k, m]
                total[d] += box
                if k == 0:
                    at[d] = 1
                    continue
            for i in range(count):
                for m in range(d - 1):
                    Q[i, m] = P[d, i, m] if tied[d] else min(P[d, i, m], P[d, k, m])
            d -= 1
            break
