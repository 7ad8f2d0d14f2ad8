"""OMD-TCH's convergence bounds, Theorems 3 to 5, on convex problems whose constants and optima are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import optimize, sparse
from torch import Tensor

from mobench.algorithms.ls import LS
from mobench.algorithms.omd_tch import OMDTCH
from mobench.artifacts import Artifact, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import Above, AllOf, AtMost, Share
from mobench.artifacts.panels import dress, legend_below, level
from mobench.core import Algorithm, Box, Runs, Set, loop
from mobench.core.output import Adaptive, Mean
from mobench.core.random import generator
from mobench.core.sampled import Sampled
from mobench.oracles import Minibatch


@lru_cache(maxsize=4)
def _targets(N: int, M: int, n: int, spread: float, seed: int) -> Tensor:
    """Returns z (N, M, n) in [-1, 1].

    They lie around corners of the box that differ between the objectives, but in the last coordinate.
    """
    rng = generator(seed, problem="deviations", use="targets")
    corners = np.where((np.arange(M)[:, None] + np.arange(n)) % 2 == 0, 1.0, -1.0)
    corners[:, -1] = 0.0  # in the last coordinate all want the same, so that iterates can dominate others
    return torch.from_numpy(np.clip(corners + spread * rng.standard_normal((N, M, n)), -1.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class Deviations(Sampled):
    """Mean absolute deviations, a finite sum on a box.

    They are convex and not smooth, and every constant of Assumption 1 has a closed form.

        f_m(x) = 1/N sum_i phi_mi(x),   phi_mi(x) = 1/(2n) sum_j |x_j - z_mij|,   -1 <= x_j <= 1

    L = 1/(2n) bounds the entries of every phi's subgradient, U = max_mi 1/(2n) sum_j (1 + |z_mij|) every phi,
    so they bound values and gradients of batches as well; R_theta = 1. The Tchebycheff optimum is a linear
    program. Runs start where the first objective is smallest, as far from the optimum of most preferences as
    the box allows.
    """

    n: int = 9
    tasks: int = 2
    samples: int = 16
    spread: float = 0.1
    data_seed: int = 0
    start: Any = field(default_factory=lambda: {"kind": "alternating", "scale": 1.0, "noise": 0.0})

    @property
    def n_objectives(self) -> int:
        return self.tasks

    @property
    def dim(self) -> int:
        return self.n

    @property
    def n_samples(self) -> int:
        return self.samples

    @property
    def X(self) -> Set:
        return Box(-1.0, 1.0)

    @property
    def targets(self) -> Tensor:
        """z (N, M, n)."""
        return _targets(self.samples, self.tasks, self.n, float(self.spread), self.data_seed)

    @property
    def L(self) -> float:
        """Largest entry of a subgradient, of every term."""
        return 0.5 / self.n

    @property
    def U(self) -> float:
        """Largest value on the box, of every term."""
        return float((1 + self.targets.abs()).mean(-1).max() / 2)

    def values(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.linearize(x, batch)[0]

    def linearize(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Callable[[], Tensor]]:
        z = self.targets.unsqueeze(0) if batch is None else self.targets[batch]
        gap = x[:, None, None] - z
        return gap.abs().mean((1, 3)) / 2, lambda: gap.sign().mean(1) / (2 * self.n)

    def best(self, w: np.ndarray) -> float:
        """Returns the minimum over the box of max_m w_m f_m(x).

        Variables of the linear program: x, a deviation u_mij >= |x_j - z_mij| for each z, and the maximum.
        """
        N, M, n = self.targets.shape
        z = self.targets.numpy().reshape(-1)
        K = N * M * n
        pick = sparse.csr_array(np.tile(np.eye(n), (N * M, 1)))
        unit = sparse.eye_array(K)
        none = sparse.csr_array((K, 1))
        mean = np.zeros((M, N, M, n))
        for m in range(M):
            mean[m, :, m] = w[m] / (2 * n * N)
        A = sparse.vstack(
            [
                sparse.hstack([pick, -unit, none]),
                sparse.hstack([-pick, -unit, none]),
                sparse.hstack(
                    [sparse.csr_array((M, n)), sparse.csr_array(mean.reshape(M, -1)), -np.ones((M, 1))]
                ),
            ]
        )
        cost = np.concatenate([np.zeros(n + K), [1.0]])
        bounds = [(-1, 1)] * n + [(0, None)] * K + [(None, None)]
        solution = optimize.linprog(
            cost, A_ub=A, b_ub=np.concatenate([z, -z, np.zeros(M)]), bounds=bounds, method="highs"
        )
        if not solution.success:
            raise RuntimeError(
                f"the linear program of the Tchebycheff optimum ended with: {solution.message}"
            )
        return float(solution.fun)


# Fixed before the first run that judges. Tried out with the seeds 900 to 924: every mean gap was below 9 % of
# its bound with a standard error below 0.1 % of it, Lemma 1 held in all runs, and at T = 6400 linear
# scalarization's gap was 0.11 against EG's bound of 0.08. Chance decides nothing here, a method that does not
# converge is told apart.
ROUNDS = (50, 200, 800, 6400)
STORED = 800  # the stored set grows with T here: beyond it the adaptive average is not computed
SEEDS = 25
WEIGHTS = ((0.2, 0.8), (0.4, 0.6), (0.8, 0.2))
ROUNDING = 1e-9
MIRRORS = {"pgd": "PGD", "eg": "EG"}
EQUATIONS: dict[str, dict[str, Any]] = {
    "pgd": {"theorem": "Theorems 3 and 4", "equation": "(16)"},
    "eg": {"theorem": "Theorems 3 and 5", "equation": "(17)"},
}
AVERAGES = {"mean": "OMD-TCH", "adaptive": "AdaOMD-TCH", "batch": "AdaOMD-TCH, dominance on batches"}


def general(T: int, U: float, L: float, D: tuple[float, float], C: tuple[float, float]) -> float:
    """Theorem 3's bound, its strong convexities 1: (for theta, for lambda) of D and C."""
    return float(np.sqrt(20 * D[0] * C[0] * L**2 / T) + np.sqrt(20 * D[1] * C[1] * U**2 / T))


def constants(mirror: str, d: int, m: int, R: float = 1.0) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns D and C of Appendix A.2.

    The mirror map is the half squared norm for theta and, with PGD, for lambda; with EG the negative entropy.
    """
    return (2 * d * R**2, 2.0 if mirror == "pgd" else float(np.log(m))), (
        float(d),
        float(m) if mirror == "pgd" else 1.0,
    )


def bound(mirror: str, T: int, d: int, m: int, L: float, U: float, R: float = 1.0) -> float:
    second = np.sqrt(10 * m) if mirror == "pgd" else np.sqrt(5 * np.log(m))
    return float((2 * np.sqrt(10) * d * R * L + 2 * second * U) / np.sqrt(T))


def method(mirror: str, problem: Deviations, T: int) -> Algorithm:
    """Returns OMD-TCH with the step sizes of Theorems 4 and 5 (R_theta = 1).

    "ls" is linear scalarization with the step size of theta.
    """
    step = float(np.sqrt(8 / (5 * T * problem.L**2)))
    if mirror == "ls":
        return LS(step_size=step)
    m = problem.tasks
    U = problem.U
    other = 8 / (5 * T * m * U**2) if mirror == "pgd" else 4 * np.log(m) / (5 * T * U**2)
    return OMDTCH(step_size=step, lambda_step=float(np.sqrt(other)), mirror=mirror)


@dataclass
class Answers:
    """Runs with one T, by average.

    Attributes:
        gap: gaps to the optimum (w, seeds) of each average.
        F: objective values (R, M) of each average.
        iterates: mean objective values over the iterates (R, M), where the adaptive average is computed.
        stored: how many iterates the adaptive average stores (R,).
    """

    gap: dict[str, np.ndarray]
    F: dict[str, np.ndarray]
    iterates: np.ndarray
    stored: np.ndarray

    def below(self, rule: str) -> np.ndarray:
        """Returns whether every objective at this average is at most its mean over the iterates, (R,)."""
        return np.all(self.F[rule] <= self.iterates + ROUNDING, axis=1)


def run(
    algorithm: Algorithm, problem: Deviations, weights: Any, seeds: Any, T: int, adaptive: bool
) -> Answers:
    """T rounds with one random term a round.

    Dominance of Algorithm 2 is decided by true values, which Lemma 1 needs, and in a second average by the
    values of the batches.
    """
    runs = Runs.product(torch.tensor(weights, dtype=torch.float64), list(seeds))
    oracle = Minibatch(problem, runs, batch_size=1)
    rules: dict[str, Any] = {"mean": Mean()} | ({"batch": Adaptive()} if adaptive else {})
    theta = problem.initial(runs)
    state = loop.start(oracle, algorithm, rules, theta, runs, T)
    exact = Adaptive()
    stored = exact.init(theta, problem.tasks)
    total = torch.zeros(len(theta), problem.tasks, dtype=torch.float64)

    def see(t: int, now: dict[str, Any], point: Any) -> None:
        nonlocal stored
        true = oracle.exact_point(now["theta"])
        assert true is not None
        total.add_(true.F)
        if adaptive:
            stored = exact.update(stored, now["theta"], true, t)

    state = loop.advance(oracle, algorithm, rules, state, T, see if adaptive else None)
    answers = loop.finals(rules, state)
    if adaptive:
        answers["adaptive"] = exact.final(stored, state["theta"])
    best = np.array([problem.best(np.asarray(w)) for w in weights])[:, None]
    W = runs.weights.numpy()
    F = {name: problem.values(x).numpy() for name, x in answers.items()}
    gap = {name: (W * f).max(1).reshape(len(weights), -1) - best for name, f in F.items()}
    return Answers(gap, F, (total / T).numpy(), stored["alive"].sum(1).numpy())


@dataclass(frozen=True)
class Study:
    """All runs of the artifact, each made at its first use."""

    problem: Deviations
    rounds: Sequence[int]
    seeds: Sequence[int]

    @cached_property
    def answers(self) -> dict[tuple[str, int], Answers]:
        return {(mirror, T): self.run(mirror, T, T <= STORED) for mirror in MIRRORS for T in self.rounds}

    @cached_property
    def ls(self) -> float:
        return float(self.run("ls", self.rounds[-1], False).gap["mean"].mean(1).max())

    @cached_property
    def start(self) -> float:
        """Largest gap where the runs start."""
        F = self.problem.values(self.problem.initial(Runs.product(torch.tensor(WEIGHTS), [0]))).numpy()
        return max(
            float((w * f).max()) - self.problem.best(w) for w, f in zip(np.array(WEIGHTS), F, strict=True)
        )

    def run(self, mirror: str, T: int, adaptive: bool) -> Answers:
        algorithm = method(mirror, self.problem, T)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # a few hundred numbers a step: more threads only wait for each other
        try:
            return run(algorithm, self.problem, WEIGHTS, self.seeds, T, adaptive)
        finally:
            torch.set_num_threads(threads)

    def bound(self, mirror: str, T: int) -> float:
        p = self.problem
        return bound(mirror, T, p.dim, p.tasks, p.L, p.U)

    def gaps(self, mirror: str, rule: str) -> dict[int, np.ndarray]:
        """Mean gap of each preference, by T, where this average was computed."""
        by_rounds = {T: self.answers[mirror, T].gap for T in self.rounds}
        return {T: gap[rule].mean(1) for T, gap in by_rounds.items() if rule in gap}

    def share(self, mirror: str, rule: str) -> float:
        return max(float(g.max()) / self.bound(mirror, T) for T, g in self.gaps(mirror, rule).items())

    def lemma(self, rule: str) -> np.ndarray:
        """Returns whether Lemma 1 holds, in each run in which this average was computed."""
        return np.concatenate([r.below(rule) for r in self.answers.values() if rule in r.F])

    def lines(self) -> list[dict[str, Any]]:
        lines = []
        for mirror, name in MIRRORS.items():
            for rule, label in AVERAGES.items():
                for T, gaps in self.gaps(mirror, rule).items():
                    line: dict[str, Any] = {"lambda": name, "average": label, "T": T}
                    line["bound"] = self.bound(mirror, T)
                    line |= {f"gap, w = ({w[0]:g}, {w[1]:g})": v for w, v in zip(WEIGHTS, gaps, strict=True)}
                    of = self.answers[mirror, T]
                    line["Lemma 1 holds (%)"] = 100 * float(of.below(rule).mean()) if T <= STORED else None
                    line["stored"] = float(of.stored.mean()) if rule == "adaptive" else None
                    lines.append(line)
        return lines


@artifact("omd_tch/bounds")
def bounds(a: Artifact) -> None:
    """Gaps of both averages against Theorems 4 and 5, over T."""
    p = Deviations()
    s = Study(p, (10, 40), range(3)) if a.scale == "smoke" else Study(p, ROUNDS, range(SEEDS))
    draw(a, s)
    a.table(pd.DataFrame(s.lines()), given=("lambda", "average", "T", "bound"))
    T = s.rounds[-1]
    limits = {mirror: s.bound(mirror, T) for mirror in MIRRORS}
    for mirror, limit in limits.items():
        shares = {
            f"OMD-TCH (T = {s.rounds[0]} to {T})": 100 * s.share(mirror, "mean"),
            f"AdaOMD-TCH (to {min(T, STORED)})": 100 * s.share(mirror, "adaptive"),
        }
        check = AtMost(shares, 100, of="largest share of the bound", unit=" %", digits=".1f")
        a.claim(
            "{mirror}-bound",
            check.because(f"mean over {len(s.seeds)} seeds, every preference and T"),
            mirror=mirror,
            name=MIRRORS[mirror],
            **EQUATIONS[mirror],
            limit=limit,
            T=T,
        )
    a.claim("lemma", Share(s.lemma("adaptive"), that="below").because(f"to {ROUNDING:g}"))
    cases = [(mirror, T, d, m) for mirror in MIRRORS for T in (1, 100) for d in (1, 7) for m in (2, 10)]
    off = max(
        abs(general(T, 0.7, 1.3, *constants(mirror, d, m, 2.0)) / bound(mirror, T, d, m, 1.3, 0.7, 2.0) - 1)
        for mirror, T, d, m in cases
    )
    of = f"largest relative difference in {len(cases)} cases"
    a.check("instances", AtMost(off, 1e-12, of=of, digits=".0e"))
    exceeds = Above(s.start, max(limits.values()), of="gap at the start", than="both bounds", digits=".3f")
    more = Above(s.ls, limits["eg"], of="gap of linear scalarization", than="EG's bound", digits=".3f")
    a.check("control", AllOf(exceeds, more))
    a.note(
        f"Ours: f_m is a mean of {p.samples} mean absolute deviations on the box |x| <= 1, d = {p.dim}, m "
        f"= {p.tasks}, so that L = {p.L:g}, U = {p.U:.3f} and the optimum are exact. Each round sees one "
        "random term; step sizes are the theorems'."
    )
    batch = s.lemma("batch")
    a.note(
        "Lemma 1, on which AdaOMD-TCH's guarantee rests, compares true objective values. When dominance is "
        f"decided by the values of the batch, as oracle=minibatch gives them, it holds in {sum(batch)} of "
        f"{len(batch)} runs: lucky batches are kept. The bound is not claimed for that average."
    )


def draw(a: Artifact, s: Study) -> None:
    fig, axes = st.panels(1, 2, size=3.4, sharey=True)
    for ax, (mirror, name) in zip(axes[0], MIRRORS.items(), strict=True):
        limits = [s.bound(mirror, T) for T in s.rounds]
        ax.loglog(s.rounds, limits, "--", color=st.BLACK, label="bound of the theorem")
        for (rule, label), colour in zip(AVERAGES.items(), (st.SKY, st.BLUE, st.ORANGE), strict=True):
            gaps = {T: g.max() for T, g in s.gaps(mirror, rule).items()}
            ax.loglog(list(gaps), list(gaps.values()), "o-", color=colour, ms=4, lw=1.1, label=label)
        level(ax, s.start, "start", color=st.GREY, lw=0.8)
        level(ax, s.ls, "linear scalarization", color=st.GREY, lw=0.8, ls="-.")
        dress(ax, "rounds $T$", title=f"({'ab'[mirror == 'eg']}) {name} for $\\lambda$")
    dress(axes[0, 0], y="gap to the optimum, largest of the preferences")
    legend_below(fig, axes[0, 0], ncols=3)
    st.caption(
        fig,
        f"Problem (ours): mean absolute deviations, {s.problem.tasks} convex objectives on a box, whose "
        "constants and optima are known. Gap: Tchebycheff value of the average after $T$ rounds less the "
        f"optimum, mean over {len(s.seeds)} seeds. Bound: Theorems 4 (a) and 5 (b). Start: the gap "
        f"before the first round. Linear scalarization: its gap after {s.rounds[-1]} rounds. Dominance on "
        "batches: the values of the batch decide which iterates AdaOMD-TCH keeps, without a guarantee. "
        f"AdaOMD-TCH stores many iterates and is computed up to $T = {STORED}$.",
    )
    a.figure(fig)
