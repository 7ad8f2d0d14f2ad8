"""Complementary pivoting:  w = q + M z,  w >= 0,  z >= 0,  w'z = 0,  with M = symmetric PSD + skew.

The optimality conditions of convex quadratic and of linear programs have this form (z: variables and
multipliers, w: reduced gradients and slacks), so one batched kernel solves both exactly: it steps from basis
to basis, finitely often, and approaches nothing. All runs pivot together; a run that has finished pivots on
nothing.
"""

from types import ModuleType

from mobench.core.arrays import Array, integers, zeros

TIE = 1e-14  # basic variables that a step leaves below this are tied, and the perturbation decides
# times the tolerance: a largest diagonal below this is the end of a singular block of free variables
RANK = 1e-2


class _Tableau:
    """The equations [-M, I, -1, q, p] of all runs, and which variable is basic in which row.

    Columns: z (m), w (m), the covering variable z0, the right-hand side q, its symbolic perturbation p.
    """

    def __init__(self, xp: ModuleType, M: Array, q: Array) -> None:
        R, m = q.shape
        i = integers(q, m)
        self.xp = xp
        self.runs = integers(q, R)
        self.T = zeros(q, R, m, 2 * m + 3)
        self.T[:, :, :m] = -M
        self.T[:, i, m + i] = 1.0
        self.rhs = self.T[:, :, 2 * m + 1]
        self.rhs[:] = q
        # Any numbers in general position will do; these are the same in every run and every call.
        self.perturbation = self.T[:, :, 2 * m + 2]
        self.perturbation[:] = 0.5 + (0.6180339887498949 * (i + 1)) % 1
        self.inverse = self.T[:, :, m : 2 * m]  # of the basis matrix: what the columns of w have become
        self.basis = self.runs[:, None] * 0 + (m + i)

    def column(self, col: Array) -> Array:
        return self.T[self.runs, :, col]

    def pivot(self, row: Array, col: Array, entries: Array, on: Array) -> None:
        """Gauss-Jordan step where `on`: column `col` becomes the unit vector of `row`.

        Overwrites its `entries`.
        """
        xp = self.xp
        runs = self.runs
        line = self.T[runs, row] / xp.where(on, entries[runs, row], xp.inf)[:, None]
        entries[runs, row] -= 1.0
        if hasattr(self.T, "addcmul_"):
            self.T.addcmul_(entries[:, :, None], line[:, None, :], value=-1)
        else:
            self.T -= entries[:, :, None] * line[:, None, :]
        self.basis[runs, row] = xp.where(on, col, self.basis[runs, row])

    def solution(self, value: Array, width: int) -> Array:
        """The basic values put in their places, all other variables 0."""
        full = zeros(value, len(value), width)
        full[self.runs[:, None], self.basis] = value
        return full


def complementary_pivot(xp: ModuleType, M: Array, q: Array, free: Array, tolerance: float) -> Array:
    """Solve the mixed problem and return z (R, m).

    M (R, m, m), q (R, m); free (R, m): z_i has no sign and w_i = 0, or the other way round (a basic variable
    without a sign is never in the way). Entries of a column up to `tolerance` (relative to its largest) are
    rounding, no pivots.

    Free variables enter the basis first and stay. Then Lemke's covering variable z0 makes the rest feasible
    and is driven out again. Ties are broken by a second right-hand side, p in q + epsilon p, against cycling.
    If z0 cannot be driven out, the program is infeasible or unbounded and z is no solution, which is for the
    caller's certificate to say: where only rounding keeps z0 in, at some 1e-12, z is as good as any.

    Source: Lemke 1965; Cottle & Dantzig 1968. Departures: one column of perturbations instead of the full
    lexicographic order; two steps of refinement against the original data, which undo the rounding of the
    pivots.
    """
    m = q.shape[1]
    z0 = 2 * m
    t = _Tableau(xp, M, q)
    runs = t.runs
    T = t.T
    i = integers(q, m)
    pending = free & (abs(M[:, i, i]) > 0)
    while pending.any():
        diagonal = xp.where(pending, abs(T[:, i, i]), -1.0)
        h = diagonal.argmax(1)
        # PSD: when the largest diagonal vanishes so does the rest of the block, and its variables stay at 0.
        on = diagonal[runs, h] > RANK * tolerance
        t.pivot(h, h, t.column(h), on)
        pending[runs, h] = False
        pending = pending & on[:, None]

    T[:, :, z0] = xp.where(free, 0.0, -1.0)
    value = xp.where(free, xp.inf, t.rhs)
    least = xp.amin(value, 1)
    on = least < -TIE
    row = xp.where(value <= least[:, None] + TIE, t.perturbation, xp.inf).argmin(1)
    col = row * 0 + z0
    signed = ~free
    for _ in range(20 * m + 20):
        if not on.any():
            break
        leaving = t.basis[runs, row]
        t.pivot(row, col, t.column(col), on)
        on = on & (leaving != z0)
        col = (leaving + m) % z0  # the complement of what has left enters
        entries = t.column(col)
        usable = (entries > tolerance * (1 + xp.amax(abs(entries), 1))[:, None]) & signed
        step = xp.amin(xp.where(usable, t.rhs / entries, xp.inf), 1)
        on = on & (step < xp.inf)  # else no row is in the way: a ray
        step = 0.5 * (step + abs(step))
        tied = usable & (t.rhs - step[:, None] * entries <= TIE)
        order = xp.where(tied, t.perturbation / entries, xp.inf)
        row = xp.where(tied & (t.basis == z0), -xp.inf, order).argmin(1)

    value = t.rhs
    for _ in range(2):
        z = t.solution(value, z0 + 1)
        error = q + (M @ z[:, :m, None])[:, :, 0] - z[:, m:z0] + signed * z[:, z0:]
        value = value + (t.inverse @ error[:, :, None])[:, :, 0]
    return t.solution(value, z0 + 1)[:, :m]


def eliminate(xp: ModuleType, a: Array, r: Array, k: Array) -> tuple[Array, Array, Array, Array]:
    """Solve a'x = r for x_k:  x = x_0 + Z z  with  Z = I - e_k alpha',  alpha = a / a_k,
    x_0 = (r / a_k) e_k.

    a (R, n), r (R,), k (R,) -> Z (R, n, n), x_0 (R, n), the skew coupling alpha e_k' - e_k alpha' (R, n, n),
    has (R,). Column k of Z is zero: z_k is free for the complement of x_k, the reduced gradient w_k, and the
    coupling exchanges the two. Where a_k = 0 nothing is eliminated: Z = I, x_0 = 0, no coupling.
    """
    R, n = a.shape
    runs = integers(a, R)
    i = integers(a, n)
    ak = a[runs, k]
    has = ak != 0
    ak = xp.where(has, ak, xp.inf)
    alpha = a / ak[:, None]
    line = zeros(a, R, n, n)
    line[runs, k] = alpha
    Z = -line
    Z[:, i, i] += 1.0
    x0 = zeros(a, R, n)
    x0[runs, k] = r / ak
    return Z, x0, xp.swapaxes(line, 1, 2) - line, has
