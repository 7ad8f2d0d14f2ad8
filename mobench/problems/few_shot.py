"""Few-shot meta-learning as a bilevel problem: a shared network, and a linear head for each task."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import torch
import torch.nn.functional as nn
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.arrays import to_device
from mobench.core.bilevel import Bilevel, Step, View
from mobench.core.cache import Cache
from mobench.core.preferences import Runs
from mobench.core.seeds import PerSeed
from mobench.data.episodes import SAMPLERS, Episodes, draw_episodes, redraw_images
from mobench.data.fewshot import SPLITS, FewShot, load_fewshot
from mobench.errors import ConfigError, check_batch_runs, choose
from mobench.models.fewshot import FewShotNet, Tape, TaskPatches
from mobench.problems.dataset import DataProblem, network_starts

# bytes of activations that are held for the backward pass; those of further runs are computed anew
HELD = 1 << 30
GROUPED = 1 << 33  # and on a GPU, where the networks of so many runs are computed at once
EXECUTIONS = ("loop", "grouped")


@dataclass(frozen=True, kw_only=True)
class FewShotLearning(DataProblem, PerSeed[Episodes], Bilevel):
    """S tasks of a few classes; x are weights of a convolutional network, y_s = w_s those of a linear head.

        f_s(x, w_s) = mean over the query set D_s of CE(w_s; z(x)),
        g_s(x, w_s) = mean over the support set S_s of CE(w_s; z(x)) + ll_reg |w_s|^2,
            g = sum_s g_s (no 1/S)

    z(x) are the features of an image, with the batch statistics of its set; w_s is (ways, F + 1), the bias
    last and regularised as well, q = ways (F + 1). x are all weights of convolutions and normalisations
    (113,088 with 64 filters on coloured images). The lower level is a softmax regression on fixed features:
    its gradients and Hessian products are closed forms, and a hypergradient takes one forward and one
    backward pass. A run's seed makes its episodes (but see `tasks_seed`) and its start (PyTorch's default
    initialisation); heads start from `start_lower`.

    Columns of history and final rows: train_accuracy_s on D_s and test_accuracy_s on T_s (other images of the
    same classes), their means train_accuracy and test_accuracy, all in per cent; test_loss, the mean over
    tasks of CE on T_s.

    Fields:
        data: digits (embedded), mnist, fashion_mnist: 40 classes, digits in four rotations; cifar100: 60
            train, 20 validation and 20 test classes as in FC100. data_root: folder of the files; no part of a
            job's identity.
        split: train | validation | test classes (cifar100 alone has the others).
        tasks: S. ways: classes of a task. support_per_class, query_per_class, test_per_class: images of S_s,
            D_s, T_s.
        episodes: learn2learn | named: who draws them.
        redraw: each outer step draws other images for S_s and D_s from the classes of its tasks, all but
            those of T_s; a function of the seed and the step. The columns, final rows and y*(x) are of the
            images of the seed, D_s among those that steps draw from.
        tasks_seed: the seed (>= 0) of tasks and images, for runs that shall differ in their start (and with
            `redraw` in the images of a step) alone; None: each run's own.
        filters: channels of the four convolutions. shrink: side of the squares of pixels that are averaged
            before the network. Pixels lie in [0, 1], are not standardised, and grey images get a frame of
            zeros (28 -> 32).
        ll_reg: of g.
        execution: auto | loop | grouped: one run after the other, with passes written by hand, or all
            networks in one grouped convolution. auto: grouped on a GPU; no part of a job's identity.
        max_batch_runs: runs whose activations are held at once (null: as many as need 1 GiB, on a GPU 8); the
            others need one more forward pass. No part of a job's identity.

    Source: multi-objective bilevel learning paper, Section 6 and equation (47). That heads alone are the
    lower level, ll_reg, fixed episodes and no 1/S are our reading of it. `redraw` comes nearer to the code
    whose model the paper takes (Ji, Yang and Liang 2021; JunjieYang97/stocBiO, ITD-BiO), which draws tasks
    and images in each step. Departure from it: tasks stay, since objectives and preferences belong to them.
    """

    execution_fields: ClassVar[tuple[str, ...]] = ("data_root", "execution", "max_batch_runs")
    small: ClassVar[Mapping[str, Any]] = {
        "filters": 2,
        "shrink": 2,
        "episodes": "named",
        "query_per_class": 2,
        "test_per_class": 2,
    }
    added_fields: ClassVar[Mapping[str, Any]] = {"redraw": False, "tasks_seed": None}
    citation: ClassVar[str] = "multi-objective bilevel learning paper; FC100: Oreshkin et al. 2018"

    data: str = "digits"
    split: str = "train"
    tasks: int = 5
    ways: int = 5
    support_per_class: int = 5
    query_per_class: int = 15
    test_per_class: int = 15
    episodes: str = "learn2learn"
    filters: int = 64
    shrink: int = 1
    ll_reg: float = 0.01
    execution: str = "auto"
    max_batch_runs: int | None = None
    redraw: bool = False
    tasks_seed: int | None = None
    steps: int = 500

    step: int | None = field(default=None, init=False, repr=False, compare=False)  # of `at_step`

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.split", self.split, SPLITS)
        choose("problem.episodes", self.episodes, SAMPLERS)
        for key in ("tasks", "ways", "filters", "shrink"):
            if getattr(self, key) < 1:
                raise ConfigError(f"problem.{key}={getattr(self, key)} must be at least 1.")
        if self.tasks_seed is not None and self.tasks_seed < 0:
            raise ConfigError(f"problem.tasks_seed={self.tasks_seed} must be at least 0, or null.")
        if not 0 < self.ll_reg < float("inf"):
            raise ConfigError(
                f"problem.ll_reg={self.ll_reg} must be > 0 and finite; "
                "without it the lower level is not strongly convex."
            )
        choose("problem.execution", self.execution, ("auto", *EXECUTIONS))
        check_batch_runs(self.max_batch_runs, "as many as fit into 1 GiB")

    # what there is

    @property
    def images(self) -> FewShot:
        """The classes; read once in a process."""
        return load_fewshot(self.data, self.data_root)

    @property
    def network(self) -> FewShotNet:
        """The network, a function of parameter vectors."""
        channels, size = self.images.images.shape[1:3]
        return FewShotNet(channels, (size + -size % 16) // self.shrink, self.filters)

    @property
    def n_objectives(self) -> int:
        return self.tasks

    @property
    def dim(self) -> int:
        return self.network.dim

    @property
    def blocks(self) -> int:
        return self.tasks

    @property
    def lower_dim(self) -> int:
        return self.ways * (self.network.features + 1)

    @property
    def convexity(self) -> float:
        return 2.0 * self.ll_reg

    @property
    def data_set(self) -> FewShot:
        return self.images

    def episodes_of(self, seed: int) -> Episodes:
        """The tasks of a seed; drawn once in a process, but for the images of a step."""
        sizes = self.support_per_class, self.query_per_class, self.test_per_class
        drawn_by = seed if self.tasks_seed is None else self.tasks_seed
        episodes = _episodes(
            self.data, self.data_root, drawn_by, self.tasks, self.ways, *sizes, self.split, self.episodes
        )
        step = self.step
        if step is None:
            return episodes
        return self.cache.made(("episodes", seed), lambda: redraw_images(self.images, episodes, seed, step))

    def at_step(self, t: int) -> FewShotLearning:
        """This problem, or with `redraw` a copy with the images of step t; the last copy is cached."""
        if not self.redraw:
            return self

        def drawn() -> FewShotLearning:
            problem = copy.copy(self)
            object.__setattr__(problem, "step", int(t))
            object.__setattr__(problem, "cache", Cache())
            return problem

        return self.cache.at_equal(torch.tensor(int(t)), "step", drawn, FewShotLearning._release)

    def _release(self) -> None:
        """Releases the last view with its tapes: it and this copy refer to each other."""
        gone: Any = None
        self.cache.at_equal(torch.empty(0), "view", lambda: gone, Heads.forget)

    def instance(self, seed: int) -> Episodes:
        return self.episodes_of(seed)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        drawn = self.instances(runs)
        return super().facts(runs) | {
            "episodes_sha256": {seed: episodes.digest for seed, episodes in drawn.items()},
            "classes": {seed: episodes.classes.tolist() for seed, episodes in drawn.items()},
        }

    def strategy(self, device: torch.device) -> str:
        if self.execution != "auto":
            return self.execution
        return "loop" if device.type == "cpu" else "grouped"

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return network_starts(self, runs, self.network.initial)

    # data on the device

    def prepared(self, part: str, run: int, like: Tensor) -> list[TaskPatches]:
        """Images of a part (support, query, test) of a run's tasks, as the network takes them: nine times
        their size, about 100 MB for a seed of five tasks on coloured images in float32. Shared by runs of a
        seed.
        """
        group = int(self.group[run])

        def made() -> list[TaskPatches]:
            return self.network.parts(self._pictures(part, group, like))

        return self.cache.made((part, group, like.dtype, like.device), made)

    def stacked(self, part: str, like: Tensor) -> Float[Tensor, "seeds S n C H W"]:
        """Images of a part of the tasks of all seeds."""

        def made() -> Tensor:
            return torch.stack([self._pictures(part, group, like) for group in range(len(self.seeds))])

        return self.cache.made(("stacked", part, like.dtype, like.device), made)

    def _pictures(self, part: str, group: int, like: Tensor) -> Float[Tensor, "S n C H W"]:
        """Images of a part of the tasks of one seed."""
        items = getattr(self.episodes_of(self.seeds[group]), part)
        pictures = self.images.take(items.flatten()).to(like.device, like.dtype) / 255.0
        frame = -pictures.shape[-1] % 16
        if frame:
            pictures = nn.pad(pictures, (frame // 2, frame - frame // 2) * 2)
        if self.shrink > 1:
            pictures = nn.avg_pool2d(pictures, self.shrink)
        return pictures.unflatten(0, items.shape)

    def labels(self, part: str, like: Tensor) -> Int[Tensor, " n"]:
        """Labels of a part, the same for all tasks and runs."""
        episodes = self.episodes_of(self.seeds[0])
        return self.cache.made(("labels", part, like.device), lambda: episodes.labels(part).to(like.device))

    # both levels

    def view(self, x: Float[Tensor, "R P"], batch: Int[Tensor, "R b"] | None = None) -> View:
        """The view of the last x is cached, so that all of its uses share the features."""
        return self._view(x)

    def _view(self, x: Float[Tensor, "R P"]) -> Heads:
        kind = Heads if self.strategy(x.device) == "loop" else GroupedHeads
        return self.cache.at_equal(x, "view", lambda: kind(self, x.detach().clone()), release=Heads.forget)

    def columns_at(self, x: Float[Tensor, "R P"], y: Float[Tensor, "R B q"]) -> dict[str, Tensor]:
        view = self._view(x)
        out: dict[str, Tensor] = {}
        for name, part in (("train", "query"), ("test", "test")):
            loss, right = view.evaluated(part, y)
            accuracy = 100.0 * right
            out |= {f"{name}_accuracy_{s + 1}": accuracy[:, s] for s in range(self.tasks)}
            out[f"{name}_accuracy"] = accuracy.mean(1)
        return out | {"test_loss": loss.mean(1)}


@lru_cache(maxsize=64)
def _episodes(
    data: str,
    data_root: str,
    seed: int,
    tasks: int,
    ways: int,
    support: int,
    query: int,
    test: int,
    split: str,
    sampler: str,
) -> Episodes:
    return draw_episodes(
        load_fewshot(data, data_root), seed, tasks, ways, support, query, test, split, sampler
    )


class Heads(View):
    """Softmax regressions on the features of one x.

    With Z (n, F + 1) the features and a 1, A = w Z' (ways, n), P the softmax of its columns, labels as
    columns Y of the unit matrix, and B = v Z':

    grad_w CE = (P - Y) Z / n,     H v = C Z + 2 ll_reg v,   C = (P * B - P * sum(P * B)) / n
    d CE / dZ = (P - Y)'w / n,     d<grad_w g, v> / dZ = (P - Y)'v / n + C'w

    (Classes before images: the softmax of a few numbers that lie side by side is slow.)

    Features are computed when they are first used. The tapes of the backward pass are held for some runs (see
    `max_batch_runs`), until `forget`; those of other runs are computed anew.
    """

    def __init__(self, problem: FewShotLearning, x: Float[Tensor, "R P"]) -> None:
        self.problem = problem
        self.network = problem.network
        self.x = x
        self._features: dict[str, Tensor] = {}
        self._tapes: dict[str, list[Tape | None]] = {}

    # features

    @cached_property
    def _keeps(self) -> int:
        """Number of runs whose tapes are held."""
        if self.problem.redraw and self.problem.step is None:
            return 0  # measures need no derivatives
        if self.problem.max_batch_runs is not None:
            return self.problem.max_batch_runs
        size = sum(self.network.held(self.problem.prepared(part, 0, self.x)) for part in ("support", "query"))
        return max(1, HELD // size)

    def forget(self) -> None:
        """Releases the tapes of the backward passes."""
        self._tapes.clear()

    def features(self, part: str) -> Float[Tensor, "R S n F1"]:
        """Z of all runs and tasks."""
        if part not in self._features:
            extended = []
            tapes = []
            for r, theta in enumerate(self.x.unbind(0)):
                keep = part != "test" and r < self._keeps
                images = self.problem.prepared(part, r, self.x)
                with torch.inference_mode():  # small calls cost a little less
                    features, tape = self.network.forward(theta, images, keep)
                extended.append(nn.pad(features, (0, 1), value=1.0))
                tapes.append(tape)
            self._features[part] = torch.stack(extended)
            self._tapes[part] = tapes
        return self._features[part]

    def _pulled(self, part: str, slopes: Float[Tensor, "R S n F"]) -> list[Tensor]:
        """Rows (S, P) of each run from slopes with respect to the features."""
        out = []
        for r, theta in enumerate(self.x.unbind(0)):
            images = self.problem.prepared(part, r, self.x)
            tape = self._tapes[part][r] if part in self._tapes else None
            with torch.inference_mode():
                if tape is None:
                    tape = self.network.forward(theta, images, keep=True)[1]
                    assert tape is not None
                out.append(self.network.backward(theta, images, tape, slopes[r]))
        return out

    # heads

    def _weights(self, y: Float[Tensor, "R k q"]) -> Float[Tensor, "R k ways F1"]:
        return y.unflatten(2, (self.problem.ways, -1))

    @cached_property
    def _of_labels(self) -> dict[str, Tensor]:
        """Y of each part."""
        labels = {part: self.problem.labels(part, self.x) for part in ("support", "query", "test")}
        return {
            part: nn.one_hot(classes, self.problem.ways).to(self.x).mT.contiguous()
            for part, classes in labels.items()
        }

    def _scores(self, part: str, w: Float[Tensor, "R k ways F1"]) -> Float[Tensor, "R k ways n"]:
        """A."""
        return w @ self.features(part).mT

    def _errors(self, part: str, y: Float[Tensor, "R S q"]) -> Float[Tensor, "R S ways n"]:
        """(P - Y) / n."""
        Y = self._of_labels[part]
        return (torch.softmax(self._scores(part, self._weights(y)), dim=-2) - Y) / Y.shape[1]

    def _losses(self, part: str, y: Float[Tensor, "R S q"]) -> tuple[Tensor, Tensor]:
        """A and mean cross-entropies (R, S)."""
        scores = self._scores(part, self._weights(y))
        of_label = (scores * self._of_labels[part]).sum(-2)
        return scores, (torch.logsumexp(scores, dim=-2) - of_label).mean(-1)

    def evaluated(
        self, part: str, y: Float[Tensor, "R S q"]
    ) -> tuple[Float[Tensor, "R S"], Float[Tensor, "R S"]]:
        """Mean cross-entropy and share of right answers, float64."""
        scores, loss = self._losses(part, y)
        right = scores.argmax(-2) == self.problem.labels(part, self.x)
        return loss.double(), right.double().mean(-1)

    def lower(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B"]:
        return self._losses("support", y)[1] + self.problem.ll_reg * y.square().sum(-1)

    @cached_property
    def _support(self) -> tuple[Float[Tensor, "RS n F1"], Float[Tensor, "ways n"]]:
        """Z of all runs and tasks in one batch, and Y, as the many small steps of the heads use them."""
        return self.features("support").flatten(0, 1), self._of_labels["support"]

    def lower_gradient(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R B q"]:
        Z, Y = self._support
        w = y.reshape(len(Z), len(Y), -1)
        E = torch.softmax(torch.bmm(w, Z.mT), dim=1).sub_(Y)
        return torch.baddbmm(w, E, Z, beta=2.0 * self.problem.ll_reg, alpha=1.0 / Z.shape[1]).view(y.shape)

    def lower_hvp(self, y: Float[Tensor, "R B q"], v: Float[Tensor, "R k q"]) -> Float[Tensor, "R k q"]:
        Z, Y = self._support
        # columns of a block of v as more ways
        w = y.reshape(len(Z), len(Y), -1)
        u = v.reshape(len(Z), -1, Z.shape[2])
        Zt = Z.mT
        P = torch.softmax(torch.bmm(w, Zt), dim=1).unsqueeze(1)
        B = torch.bmm(u, Zt).view(len(Z), -1, *Y.shape).mul_(P)
        C = B.addcmul_(P, B.sum(2, keepdim=True), value=-1.0).flatten(1, 2)
        return torch.baddbmm(u, C, Z, beta=2.0 * self.problem.ll_reg, alpha=1.0 / Z.shape[1]).view(v.shape)

    def upper(self, y: Float[Tensor, "R B q"]) -> tuple[Float[Tensor, "R S"], Float[Tensor, "R S q"]]:
        F = self._losses("query", y)[1]
        return F, (self._errors("query", y) @ self.features("query")).flatten(2)

    # with respect to x

    def jacobian(self, y: Float[Tensor, "R B q"], steps: Sequence[Step]) -> Float[Tensor, "R S P"]:
        rows = self._pulled("query", (self._errors("query", y).mT @ self._weights(y))[..., :-1])
        if steps:
            others = self._pulled("support", self._along(steps))
            rows = [direct - indirect for direct, indirect in zip(rows, others, strict=True)]
        return torch.stack(rows)

    def _along(self, steps: Sequence[Step]) -> Float[Tensor, "R S n F"]:
        """sum over (y_t, v_t) of d<grad_w g(y_t), v_t> / dZ: all steps at once, as if they were more ways."""
        Y = self._of_labels["support"]
        shape = (len(steps), self.problem.ways)
        w = torch.cat([self._weights(y) for y, _ in steps], dim=2)
        v = torch.cat([self._weights(v) for _, v in steps], dim=2)
        P = torch.softmax(self._scores("support", w).unflatten(2, shape), dim=-2)
        B = P * self._scores("support", v).unflatten(2, shape)
        C = B - P * B.sum(-2, keepdim=True)
        slopes = (P - Y).flatten(2, 3).mT @ v + C.flatten(2, 3).mT @ w
        return slopes[..., :-1] / Y.shape[1]

    def lower_x(self, y: Float[Tensor, "R B q"]) -> Float[Tensor, "R P"]:
        slopes = (self._errors("support", y).mT @ self._weights(y))[..., :-1]
        return torch.stack([rows.sum(0) for rows in self._pulled("support", slopes)])


class GroupedHeads(Heads):
    """The same with the networks of many runs and tasks in grouped convolutions, and autograd's derivatives:
    a network for each run and task gives the rows of all tasks in one backward pass.
    """

    def __init__(self, problem: FewShotLearning, x: Float[Tensor, "R P"]) -> None:
        super().__init__(problem, x)
        self._graphs: dict[str, dict[int, tuple[Tensor, Tensor]]] = {}

    @cached_property
    def _together(self) -> list[slice]:
        """Runs whose networks are computed at once."""
        R = len(self.x)
        size = self.problem.max_batch_runs
        if size is None:
            support, query = (self.problem.stacked(part, self.x) for part in ("support", "query"))
            images = support.shape[1] * (support.shape[2] + query.shape[2])
            # of each block the outputs of four operations; its maps have a quarter of the pixels of the last
            numbers = 4 * images * self.network.filters * self.network.side**2 * 4 // 3
            size = GROUPED // (numbers * self.x.element_size())
        size = max(1, min(size, R))
        return [slice(r, min(r + size, R)) for r in range(0, R, size)]

    def forget(self) -> None:
        self._graphs.clear()

    def features(self, part: str) -> Float[Tensor, "R S n F1"]:
        if part not in self._features:
            graphs = self._graphs.setdefault(part, {})
            extended = []
            for some in self._together:
                # the graph of the first runs stays, those of the others are made anew where they are needed
                graph = part != "test" and some.start == 0
                leaf, z = self._computed(part, some, graph)
                if graph:
                    graphs[some.start] = (leaf, z)
                extended.append(nn.pad(z.detach(), (0, 1), value=1.0))
            S = self.problem.tasks
            self._features[part] = torch.cat(extended).unflatten(0, (-1, S))
        return self._features[part]

    def _computed(self, part: str, some: slice, graph: bool) -> tuple[Tensor, Tensor]:
        """Parameters of the networks of some runs, one for each task, and their features."""
        p = self.problem
        images = p.stacked(part, self.x)[to_device(p.group[some], self.x.device)].flatten(0, 1)
        leaf = self.x[some].repeat_interleave(p.tasks, 0)
        with torch.set_grad_enabled(graph):
            leaf.requires_grad_(graph)
            return leaf, self.network.grouped(leaf, images)

    def _pulled(self, part: str, slopes: Float[Tensor, "R S n F"]) -> list[Tensor]:
        rows = []
        for some in self._together:
            stored = self._graphs.get(part, {}).get(some.start)
            leaf, z = stored or self._computed(part, some, graph=True)
            (gradient,) = torch.autograd.grad(
                z, leaf, slopes[some].flatten(0, 1), retain_graph=stored is not None
            )
            rows.append(gradient.unflatten(0, (-1, self.problem.tasks)))
        return list(torch.cat(rows).unbind(0))
