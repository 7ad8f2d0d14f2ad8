"""Complementary pivoting:  w = q + M z,  w >= 0,  z >= 0,  w'z = 0,  with M = symmetric PSD + skew.

The optimality conditions of convex quadratic and of linear programs have this form (z: variables and multipliers, w: reduced
gradients and slacks), so one batched kernel solves both exactly: it moves from one basis to the next, no tolerance is
approached. All runs pivot together; a run that has finished pivots on nothing.
"""

from types import ModuleType

from mobench.subproblems.arrays import Array, integers, zeros

PIVOT = 1e-9  # entries of a column below this, relative to its largest, are rounding and no pivots
TIE = 1e-14  # basic variables that a step leaves below this are tied: the perturbation decides
RANK = 1e-13  # diagonals below this are the end of a singular block of free variables


class _Tableau:
    """The equations [-M, I, -d, q, p] of all runs, and which variable is basic in which row.

    Columns: z (m), w (m), the covering variable z0, right-hand side q, its symbolic perturbation p.
    """

    def __init__(self, xp: ModuleType, M: Array, q: Array) -> None:
        R, m = q.shape
        self.xp, self.m, self.runs = xp, m, integers(q, R)
        self.T = zeros(q, R, m, 2 * m + 3)
        self.T[:, :, :m] = -M
        i = integers(q, m)
        self.T[:, i, m + i] = 1
        self.T[:, :, 2 * m + 1] = q
        # Any numbers in general position will do; these are the same in every run, call and order of the runs.
        self.T[:, :, 2 * m + 2] = 0.5 + (0.6180339887498949 * (i + 1)) % 1
        self.basis = zeros(q, R, m) + i + m
        self.basis = self.basis.astype("int64") if not hasattr(self.basis, "long") else self.basis.long()

    @property
    def rhs(self) -> Array:
        return self.T[:, :, 2 * self.m + 1]

    @property
    def perturbation(self) -> Array:
        return self.T[:, :, 2 * self.m + 2]

    @property
    def inverse(self) -> Array:
        """Inverse of the basis matrix: what the columns of w have become."""
        return self.T[:, :, self.m : 2 * self.m]

    def column(self, col: Array) -> Array:
        return self.T[self.runs, :, col]

    def pivot(self, row: Array, col: Array, entries: Array, on: Array) -> None:
        """Gauss-Jordan step where `on`: column `col`, whose entries are given, becomes the unit vector of `row`."""
        xp, runs = self.xp, self.runs
        divisor = xp.where(on, entries[runs, row], xp.inf)
        line = self.T[runs, row] / divisor[:, None]
        others = xp.where(on[:, None], entries, 0.0)
        others[runs, row] -= 1.0 * on
        if hasattr(self.T, "addcmul_"):
            self.T.addcmul_(others[:, :, None], line[:, None, :], value=-1)
        else:
            self.T -= others[:, :, None] * line[:, None, :]
        self.basis[runs, row] = xp.where(on, col, self.basis[runs, row])


def complementary_pivot(
    xp: ModuleType,
    M: Array,
    q: Array,
    free: Array,
    equality: int | None = None,
    start: Array | None = None,
    tolerance: float = PIVOT,
) -> tuple[Array, Array]:
    """Solve the mixed problem and return z (R, m) and where a basis was found (R,).

    M (R, m, m), q (R, m); free (R, m): z_i is unbounded and w_i = 0.
    equality   index e of the multiplier of the program's only equality (free as well, M[e, e] = 0), or None
    start (R,) index of a variable with M[e, start] > 0 that takes up the equality at first, e.g. a vertex of the simplex

    Free variables enter the basis first and stay. Then Lemke's covering variable z0 makes the rest feasible and is driven
    out. Ties are broken by a second right-hand side, which stands for q + epsilon p: no cycling.

    Source: Lemke 1965; Cottle & Dantzig 1968. Departure: one perturbation column instead of the full lexicographic order.
    """
    R, m = q.shape
    z0 = 2 * m
    t = _Tableau(xp, M, q)
    runs = t.runs
    slack = integers(q, m) + m
    ignored = free | False  # rows whose basic variable has no sign
    pending = free | False
    if equality is not None:
        assert start is not None
        e = start * 0 + equality
        entries = t.column(start)
        on = entries[:, equality] != 0
        t.pivot(e, start, entries, on)
        t.pivot(start, e, t.column(e), on)
        # The two rows have changed places: row e holds the variable now, row `start` the multiplier.
        ignored[:, equality] = free[runs, start] | ~on
        ignored[runs, start] = free[runs, start] | on
        pending[:, equality] = False
        pending[runs, start] = pending[runs, start] & ~on
    while pending.any():
        i = integers(q, m)
        diagonal = xp.where(pending, abs(t.T[:, i, i]), -1.0)
        h = diagonal.argmax(1)
        # PSD: when the largest diagonal vanishes so does the rest of the block, and its variables stay at 0.
        on = diagonal[runs, h] > RANK
        t.pivot(h, h, t.column(h), on)
        pending[runs, h] = False
        pending &= on[:, None]

    t.T[:, :, z0] = xp.where(ignored, 0.0, -1.0)
    value = xp.where(ignored, xp.inf, t.rhs)
    least = xp.amin(value, 1)
    on = least < -TIE
    row = xp.where(value <= least[:, None] + TIE, t.perturbation, xp.inf).argmin(1)
    col = row * 0 + z0
    entries = t.column(col)
    solved = ~on
    for _ in range(20 * m + 20):
        leaving = t.basis[runs, row]
        t.pivot(row, col, entries, on)
        ended = on & (leaving == z0)
        solved = solved | ended
        on = on & ~ended
        if not on.any():
            break
        col = (leaving + m) % z0  # the complement of what has left enters
        entries = t.column(col)
        size = xp.amax(abs(entries), 1)
        usable = (entries > tolerance * xp.where(size > 1, size, 1.0)[:, None]) & ~ignored
        value = xp.where(usable, t.rhs, xp.inf)
        value = xp.where(value > 0, value, 0.0)
        divisor = xp.where(usable, entries, 1.0)
        step = xp.amin(value / divisor, 1)
        on = on & (step < xp.inf)  # no row in the way: the program is infeasible or unbounded
        tied = usable & (value - step[:, None] * divisor <= TIE)
        order = xp.where(tied, t.perturbation / divisor, xp.inf)
        order = xp.where(tied & (t.basis == z0), -xp.inf, order)
        row = order.argmin(1)

    # Refinement against the original data undoes the rounding of the pivots.
    value = t.rhs
    for _ in range(2):
        full = zeros(q, R, 2 * m + 1)
        full[runs[:, None], t.basis] = value
        error = q + (M @ full[:, :m, None])[:, :, 0] - full[:, m:z0]
        value = value + (t.inverse @ error[:, :, None])[:, :, 0]
    full = zeros(q, R, 2 * m + 1)
    full[runs[:, None], t.basis] = value
    return full[:, :m], solved
