"""OMD-TCH: online mirror descent on max_m w_m f_m, with the mean and the Pareto-adaptive mean as outputs."""

from dataclasses import dataclass, field

import numpy as np

from tests.reference.common import Array, Box, Problem, Trajectory, descend, project_simplex


def dominates(a: Array, b: Array) -> bool:
    """a <= b everywhere and a < b somewhere."""
    return bool(np.all(a <= b) and np.any(a < b))


@dataclass
class AdaptiveMean:
    """The stored iterates (key, x, F) and their conversion weights gamma, in order of arrival.

    A newcomer that stored ones dominate is not kept: its unit is split evenly among them. Otherwise it is
    kept with gamma 1 and takes over the gamma of those it dominates, which leave. ties="weak" counts equal
    values as dominated.
    """

    ties: str = "paper"
    gamma: dict[int, float] = field(default_factory=dict)
    x: dict[int, Array] = field(default_factory=dict)
    F: dict[int, Array] = field(default_factory=dict)
    seen: int = 0

    def add(self, F: Array, x: Array | None = None, key: int | None = None) -> None:
        key = self.seen + 1 if key is None else key
        self.seen += 1
        above = []
        below = []
        if self.F:
            keys = list(self.F)
            table = np.array(list(self.F.values()))
            no_worse = np.all(table <= F, axis=1)
            no_better = np.all(table >= F, axis=1)
            equal = no_worse & no_better
            above_mask = no_worse if self.ties == "weak" else no_worse & ~equal
            above = [keys[i] for i in np.flatnonzero(above_mask)]
            below = [keys[i] for i in np.flatnonzero(no_better & ~equal)]
        if above:
            for k in above:
                self.gamma[k] += 1.0 / len(above)
            return
        mass = 1.0
        for k in below:
            mass += self.gamma.pop(k)
            del self.F[k]
            self.x.pop(k, None)
        self.gamma[key] = mass
        self.F[key] = np.array(F)
        if x is not None:
            self.x[key] = np.array(x)

    def output(self) -> Array:
        return np.sum([g * self.x[k] for k, g in self.gamma.items()], axis=0) / self.seen


def pareto_set(table: Array) -> list[int]:
    """Indices (from 1) of the rows that no other row dominates: all pairs, O(T^2 m)."""
    return [
        i + 1 for i in range(len(table)) if not any(dominates(table[j], table[i]) for j in range(len(table)))
    ]


def run(
    problem: Problem,
    x0: Array,
    w: Array,
    *,
    steps: int,
    step_size: float,
    lambda_step: float,
    variant: str = "pgd",
    ties: str = "paper",
    box: Box | None = None,
    adaptive: bool = True,
) -> Trajectory:
    """theta step with the old lambda: d = -J^T (lambda * w); then lambda from w * F of the same point.

    pgd: projection of lambda + eta w F on the simplex; eg: lambda exp(eta w F), normalised, in log space.
    extra: lambda (T+1, M); mean_x, mean_f over x[0..T-1]; ada_x, ada_f, gamma and stored (the adaptive mean).
    """
    w = np.asarray(w, dtype=np.float64)
    lams = [np.full(len(w), 1.0 / len(w))]
    logs = {"log": np.log(lams[0])}
    ada = AdaptiveMean(ties)

    def direction(t: int, x: Array, F: Array, J: Array) -> tuple[Array, float]:
        lam = lams[-1]
        if adaptive:
            ada.add(F, x)
        if variant == "pgd":
            lams.append(project_simplex(lam + lambda_step * w * F))
        elif variant == "eg":
            z = logs["log"] + lambda_step * w * F
            z = z - z.max()
            logs["log"] = z - np.log(np.sum(np.exp(z)))
            lams.append(np.exp(logs["log"]))
        else:
            raise ValueError(variant)
        return -J.T @ (lam * w), step_size

    trajectory = descend(problem, x0, direction, steps=steps, box=box)
    mean = trajectory.x[:-1].mean(axis=0)
    trajectory.extra.update({"lambda": np.array(lams), "mean_x": mean, "mean_f": problem.f(mean)})
    if adaptive:
        out = ada.output()
        trajectory.extra.update(ada_x=out, ada_f=problem.f(out), gamma=dict(ada.gamma), stored=dict(ada.F))
    return trajectory
