"""Classification of images by M clients:  f_m = mean cross-entropy on client m's training images."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as nn
from jaxtyping import Float, Int
from torch import Tensor

from mobench.core.arrays import to_device
from mobench.core.federated import Change, Descent, Federated, LocalBatch, changed, descend
from mobench.core.preferences import Runs
from mobench.core.seeds import PerSeed
from mobench.core.sets import Free
from mobench.data.clients import Clients, partition
from mobench.data.images import Images, load_images
from mobench.errors import ConfigError, check_batch_runs, choose
from mobench.models.mlp import MLP
from mobench.models.resnet import MODELS as RESNETS
from mobench.models.resnet import ResNet, resnet
from mobench.problems.dataset import DataProblem, network_starts

NETWORKS = ("mlp", *RESNETS)
EXECUTIONS = ("batched", "loop")
SMALL = 256  # images of a client up to which one product for all clients beats one after the other on a CPU
# bytes of the second level of a CPU's cache and what is near it: runs that work on more go one by one
CACHE = 8 << 20
EVALUATED = 100  # images of a batch whose statistics batch normalisation uses in evaluation
TABLE = 2048  # images of a forward pass without gradients
PICTURES = 1 << 14  # of all networks of a grouped forward pass without gradients


class Held(NamedTuple):
    """One client's images of a split: inputs x (n, ...), labels (n,); columns: the pixels that `x` holds,
    where all others are 0 in every image of the client (None: all).
    """

    x: Float[Tensor, "n ..."]
    labels: Int[Tensor, " n"]
    columns: Int[Tensor, " D"] | None


class Padded(NamedTuple):
    """All clients of all seeds: x (S, M, n, ...), labels (S, M, n); weight (S, M, n) is 1 / n_m, and 0 behind
    the end; columns: as in `Held`, of all clients together.
    """

    x: Float[Tensor, "S M n ..."]
    labels: Int[Tensor, "S M n"]
    weight: Float[Tensor, "S M n"]
    columns: Int[Tensor, " D"] | None


@dataclass(frozen=True, kw_only=True)
class FederatedImages(DataProblem, PerSeed[Clients], Federated):
    """One network for M clients; client m's loss on its own training images is objective m.

        f_m(theta) = (1/n_m) sum over client m's images of -log softmax(z(theta; image / 255))_label,
            m = 1..M

    A run's seed makes its partition and its start. Each client's test images are cut out, turned and filtered
    like its training images. Needs oracle=local_steps.

    Columns of history and final rows (test images): average_accuracy: of all images of all clients;
    client_accuracy: mean of the clients' accuracies; accuracy_parity: their standard deviation (ddof 0); all
    in per cent; agnostic_loss: largest mean loss of a client. Of the training images:
    worst_train_loss = max_m f_m, train_accuracy.

    Fields:
        data: digits, digits_hard (embedded), mnist, fashion_mnist, cifar10. data_root: folder of the files;
            no part of a job's identity. train_size, test_size: the first so many images of the set
            (null: all).
        partition: stratified | rotation | partial. clients: M. rotations: degrees of each client (rotation;
            null: the paper's for 10 clients). classes_per_client: C (partial).
        shrink: side of the squares of pixels that are averaged before the network (1: none).
        model: mlp, or one of the residual networks; hidden: width of the mlp.
            Batch normalisation uses the statistics of the batch, in evaluation of batches of up to 100:
            averages of models have no running statistics of their own.
        execution: auto | batched | loop: all clients in one product, or one after the other; no part of a
            job's identity. `batched` takes several steps on all data by the products of a client's images
            with each other where these are fewer than twice their pixels, see `MLP.descent`.
        max_batch_runs: with `batched`, so many runs at once; no part of a job's identity.

    Source: OMD-TCH paper, Section 4.2. Departures: pixels are not standardised and images not augmented, as
    in the runs of the authors' public code.
    """

    execution_fields: ClassVar[tuple[str, ...]] = ("data_root", "execution", "max_batch_runs")
    small: ClassVar[Mapping[str, Any]] = {"hidden": 4, "shrink": 4, "train_size": 300, "test_size": 200}
    citation: ClassVar[str] = "McMahan et al. 2017; Liu et al. 2024 (OMD-TCH)"

    data: str = "digits"
    train_size: int | None = None
    test_size: int | None = None
    partition: str = "rotation"
    clients: int = 10
    classes_per_client: int | None = None
    rotations: Sequence[int] | None = None
    shrink: int = 1
    model: str = "mlp"
    hidden: int = 200
    execution: str = "auto"
    max_batch_runs: int | None = None
    steps: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.model", self.model, NETWORKS)
        choose("problem.execution", self.execution, ("auto", *EXECUTIONS))
        for key in ("hidden", "clients", "shrink"):
            if getattr(self, key) < 1:
                raise ConfigError(f"problem.{key}={getattr(self, key)} must be at least 1.")
        check_batch_runs(self.max_batch_runs)

    # what there is

    @property
    def images(self) -> Images:
        """The base set; read once in a process."""
        return load_images(self.data, self.data_root)

    @property
    def network(self) -> MLP | ResNet:
        """The network, a function of stacked parameters."""
        shape = tuple(self.images.train.shape[1:])
        channels = shape[0] if len(shape) == 3 else 1
        side = shape[-1] // self.shrink
        if side < 1:
            raise ConfigError(
                f"problem.shrink={self.shrink} is too large for images of {shape[-1]} x {shape[-1]} pixels."
            )
        return (
            MLP(channels * side * side, self.hidden)
            if self.model == "mlp"
            else resnet(self.model, channels, side)
        )

    @property
    def n_objectives(self) -> int:
        return self.clients

    @property
    def dim(self) -> int:
        return self.network.dim

    @property
    def data_set(self) -> Images:
        return self.images

    def split_of(self, seed: int) -> Clients:
        """Returns the images of each client; drawn once in a process."""
        turned = None if self.rotations is None else tuple(self.rotations)
        sizes = self.train_size, self.test_size
        return _split(
            self.data,
            self.data_root,
            self.partition,
            self.clients,
            self.classes_per_client,
            turned,
            seed,
            *sizes,
        )

    def client_sizes(self, runs: Runs) -> list[list[int]]:
        return [[len(index) for index in self.split_of(int(s)).train] for s in runs.seeds]

    def instance(self, seed: int) -> Clients:
        return self.split_of(seed)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        splits = self.instances(runs)
        held = {seed: split.counts(self.images, "train").sum(0) > 0 for seed, split in splits.items()}
        return super().facts(runs) | {
            "partition_sha256": {seed: split.digest for seed, split in splits.items()},
            "train_size": {seed: [len(i) for i in split.train] for seed, split in splits.items()},
            "test_size": {seed: [len(i) for i in split.test] for seed, split in splits.items()},
            "classes_held": {seed: int(classes.sum()) for seed, classes in held.items()},
        }

    def strategy(self, device: torch.device) -> str:
        if self.execution != "auto":
            return self.execution
        if device.type != "cpu":
            return "batched"
        # grouped convolutions of this size are slower than one after the other
        if self.model in ("resnet20", "resnet18"):
            return "loop"
        n = len(self.images.train) if self.train_size is None else self.train_size
        share = (self.classes_per_client or 10) / 10 if self.partition == "partial" else 1.0
        # steps on all data by the products of so few images with each other, see `MLP.descent`, need half as
        # long or less
        few = max(SMALL, self.network.inputs // 2) if isinstance(self.network, MLP) else SMALL
        return "batched" if n * share / self.clients <= few else "loop"

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        return network_starts(self, runs, self.network.initial, model=self.model)

    # data on the device

    def _client(self, split: str, seed: int, m: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs in [0, 1] and labels of one client, in the shape that the network takes."""
        chosen = self.split_of(seed)
        base = self.images
        index = (chosen.train if split == "train" else chosen.test)[m]
        pictures, labels = (
            (base.train, base.train_labels) if split == "train" else (base.test, base.test_labels)
        )
        x = torch.rot90(pictures[index], chosen.turns[m], (-2, -1)).to(like.device, like.dtype) / 255.0
        if x.ndim == 3:
            x = x.unsqueeze(1)
        if self.shrink > 1:
            x = nn.avg_pool2d(x, self.shrink)
        return x.flatten(1) if self.model == "mlp" else x, labels[index].to(like.device)

    def _held(self, split: str, like: Tensor) -> list[list[Held]]:
        """Client by client, for each seed; without the pixels that a perceptron need not see."""

        def one(seed: int, m: int) -> Held:
            x, labels = self._client(split, seed, m, like)
            columns = None
            if self.model == "mlp":
                columns = (x.amax(0) > 0).nonzero().squeeze(1)
                x = x[:, columns].contiguous()
            return Held(x, labels, columns)

        def made() -> list[list[Held]]:
            return [[one(seed, m) for m in range(self.clients)] for seed in self.seeds]

        return self.cache.made(("held", split, like.dtype, like.device), made)

    def _padded(self, split: str, like: Tensor) -> Padded:
        """All clients in one tensor, filled up to the largest."""
        return self.cache.made(("padded", split, like.dtype, like.device), lambda: self._pad(split, like))

    def _pad(self, split: str, like: Tensor) -> Padded:
        parts = [[self._client(split, seed, m, like) for m in range(self.clients)] for seed in self.seeds]
        n = max(len(labels) for row in parts for _, labels in row)
        shape = parts[0][0][0].shape[1:]
        S = len(parts)
        M = self.clients
        x = like.new_zeros(S, M, n, *shape)
        labels = torch.zeros(S, M, n, dtype=torch.int64, device=like.device)
        weight = like.new_zeros(S, M, n)
        for s, row in enumerate(parts):
            for m, (inputs, targets) in enumerate(row):
                x[s, m, : len(targets)] = inputs
                labels[s, m, : len(targets)] = targets
                weight[s, m, : len(targets)] = 1.0 / len(targets)
        columns = None
        if self.model == "mlp":
            columns = (x.amax((0, 1, 2)) > 0).nonzero().squeeze(1)
            x = x[..., columns].contiguous()
        return Padded(x, labels, weight, columns)

    # local steps

    def local_gradients(
        self, y: Float[Tensor, "R M P"], batch: LocalBatch | None = None
    ) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R M P"]]:
        if self.strategy(y.device) == "loop" or (self.network.batch_norm and batch is None):
            return self._one_by_one(y, batch)
        return self._in_parts(y, batch, self.network, self._padded("train", y).columns)

    def local_descent(
        self,
        theta: Float[Tensor, "R P"],
        batches: Sequence[LocalBatch | None],
        eta: float,
        change: Change | None = None,
    ) -> Descent:
        network = self.network
        tau = len(batches)
        if self.strategy(theta.device) == "loop" or not isinstance(network, MLP):
            return super().local_descent(theta, batches, eta, change)
        data = self._padded("train", theta)
        M = self.clients
        R = len(theta)
        columns = data.columns
        n = data.x.shape[2]
        assert columns is not None
        if (
            tau > 1
            and n < 2 * len(columns)
            and isinstance(self.X, Free)
            and all(batch is None for batch in batches)
        ):
            return self._by_products(theta, tau, eta, change)
        # weights of pixels that nobody has do not move: all steps are taken without them
        small = replace(network, inputs=len(columns))
        rows = theta.new_empty(R, M, self.dim)
        running = theta.new_empty(R, M)
        first = theta.new_empty(R, M)
        for some in self._chunks(theta, M * (2 * small.dim + n * network.hidden)):
            start = network.narrow(theta[some], columns)
            minibatches = [batch and batch.take(some) for batch in batches]
            gradients = functools.partial(self._all_at_once, first=some.start, network=small, columns=None)
            end = descend(
                gradients, start.unsqueeze(1).expand(-1, M, -1), minibatches, eta, change, self.X, some
            )
            assert isinstance(end.rows, Tensor)
            rows[some] = network.widen(end.rows, columns)
            running[some] = end.running
            first[some] = end.first
        return Descent(rows, running, first)

    def _chunks(self, like: Tensor, numbers: int) -> list[slice]:
        """Runs that take all their local steps before the next ones do: so many as stay in the cache, which
        the others would drive them out of in each step. `numbers`: what one of them works on.
        """
        R = len(like)
        size = min(self.max_batch_runs or R, R)
        if like.device.type == "cpu":
            size = max(1, min(size, CACHE // (numbers * like.element_size())))
        return [slice(r, min(r + size, R)) for r in range(0, R, size)]

    def _by_products(
        self, theta: Float[Tensor, "R P"], steps: int, eta: float, change: Change | None
    ) -> Descent:
        """Steps on all data by the products of the images with each other, see `MLP.descent`; with all
        pixels: what comes out need not be spread over the parameters then, which takes longer than products
        with zeros.
        """
        network = self.network
        data = self._padded("train", theta)
        columns = data.columns
        assert isinstance(network, MLP)
        assert columns is not None

        def products() -> tuple[Tensor, Tensor]:
            x = data.x.new_zeros(*data.x.shape[:-1], network.inputs).index_copy_(-1, columns, data.x)
            return x, (x @ x.mT).add_(1.0)

        tables = self.cache.made(("gram", theta.dtype, theta.device), products)
        R = len(theta)
        M = self.clients
        n = data.x.shape[2]
        moves = []
        running = theta.new_empty(R, M)
        first = theta.new_empty(R, M)
        for some in self._chunks(theta, M * n * (n + 4 * network.hidden)):
            group = self.group[some]
            x, gram, labels, weight = _of_runs([*tables, data.labels, data.weight], group)
            change_of_chunk = functools.partial(changed, change, some)
            losses, made = network.descent(theta[some], x, gram, labels, weight, steps, eta, change_of_chunk)
            running[some] = torch.stack(losses).mean(0)
            first[some] = losses[0]
            moves.append((some, made))

        def rows() -> Tensor:
            out = theta.new_empty(R, M, network.dim)
            for some, made in moves:
                made.jacobian(out[some])
            return out

        def vjp(w: Tensor) -> Tensor:
            out = torch.empty_like(theta)
            for some, made in moves:
                made.vjp(w[some], out[some])
            return out

        return Descent(rows, running, first, vjp)

    def _in_parts(
        self, y: Tensor, batch: LocalBatch | None, network: MLP | ResNet, columns: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """All clients of some runs at a time."""
        size = self.max_batch_runs or len(y)
        parts = []
        for r in range(0, len(y), size):
            some = slice(r, r + size)
            minibatch = None if batch is None else batch.take(some)
            parts.append(self._all_at_once(y[some], minibatch, r, network, columns))
        if len(parts) == 1:
            return parts[0]
        return torch.cat([F for F, _ in parts]), torch.cat([g for _, g in parts])

    @staticmethod
    def _gradients(
        network: MLP | ResNet,
        theta: Tensor,
        x: Tensor,
        labels: Tensor,
        weight: Tensor,
        columns: Tensor | None,
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, "K P"]]:
        """Loss and gradient of K networks on inputs of their own."""
        if isinstance(network, MLP):
            return network.gradients(theta, x, labels, weight, columns)
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_(True)
            z = network.logits(leaf, x, "grouped" if len(theta) > 1 else "loop")
            losses = (_cross_entropy(z, labels) * weight).sum(-1)
            rows = torch.autograd.grad(losses.sum(), leaf)[0]
        return losses.detach(), rows

    def _one_by_one(self, y: Tensor, batch: LocalBatch | None) -> tuple[Tensor, Tensor]:
        R, M, _ = y.shape
        held = self._held("train", y)
        network = self.network
        F = y.new_zeros(R, M)
        rows = torch.zeros_like(y)
        for r, group in enumerate(self.group.tolist()):
            for m in range(M):
                x, labels, columns = held[group][m]
                if batch is not None:
                    n = int(batch.sizes[r, m])
                    if n == 0:
                        continue
                    index = batch.index[r, m, :n]
                    x = x[index]
                    labels = labels[index]
                weight = x.new_full((1, len(labels)), 1.0 / len(labels))
                single = y[r, m].unsqueeze(0), x.unsqueeze(0), labels.unsqueeze(0)
                f, g = self._gradients(network, *single, weight, columns)
                F[r, m] = f[0]
                rows[r, m] = g[0]
        return F, rows

    def _all_at_once(
        self, y: Tensor, batch: LocalBatch | None, first: int, network: MLP | ResNet, columns: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        R, M, P = y.shape
        data = self._padded("train", y)
        group = self.group[first : first + R]
        if batch is None:
            x, labels, weight = (t.flatten(0, 1) for t in _of_runs([data.x, data.labels, data.weight], group))
            F, rows = self._gradients(network, y.reshape(R * M, P), x, labels, weight, columns)
            return F.view(R, M), rows.view(R, M, P)
        F = y.new_zeros(R, M)
        rows = torch.zeros_like(y)
        # batches of one size together: padding would enter the statistics of batch normalisation
        for n in batch.sizes.unique().tolist():
            if n == 0:
                continue
            chosen = (batch.sizes == n).nonzero(as_tuple=True)
            r, m, place = (to_device(i, y.device) for i in (*chosen, group[chosen[0]]))
            index = batch.index[r, m, :n]
            at = (place.unsqueeze(1), m.unsqueeze(1), index)
            weight = y.new_full(index.shape, 1.0 / n)
            F[r, m], rows[r, m] = self._gradients(
                network, y[r, m], data.x[at], data.labels[at], weight, columns
            )
        return F, rows

    # evaluation

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R M"]:
        """Mean training losses of all clients, without gradients."""
        return self._evaluated("train", x)[0]

    def _evaluated(
        self, split: str, x: Float[Tensor, "R P"]
    ) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R M"]]:
        """Mean losses and shares of right answers of the clients; those of the last x are remembered."""
        return self.cache.at(x, split, lambda: self._evaluate(split, x))

    def _evaluate(
        self, split: str, x: Float[Tensor, "R P"]
    ) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R M"]]:
        loss = x.new_zeros(len(x), self.clients, dtype=torch.float64)
        right = torch.zeros_like(loss)
        with torch.no_grad():
            if self.strategy(x.device) == "loop":
                self._evaluate_one_by_one(split, x, loss, right)
            elif self.network.batch_norm:
                self._evaluate_normalized(split, x, loss, right)
            else:
                size = self.max_batch_runs or len(x)
                for r in range(0, len(x), size):
                    self._evaluate_at_once(split, x[r : r + size], r, loss, right)
        return loss.to(x.dtype), right  # shares are counts: they need not share the rounding of float32

    def _evaluate_one_by_one(self, split: str, x: Tensor, loss: Tensor, right: Tensor) -> None:
        network = self.network
        held = self._held(split, x)
        size = EVALUATED if network.batch_norm else TABLE
        for r, group in enumerate(self.group.tolist()):
            theta = x[r : r + 1]
            for m, (inputs, labels, columns) in enumerate(held[group]):
                # of nearly equal size: a rest of one image would have no statistics
                parts = -(-len(labels) // size)
                for some, targets in zip(inputs.tensor_split(parts), labels.tensor_split(parts), strict=True):
                    if isinstance(network, MLP):
                        z = network.logits(theta, some.unsqueeze(0), columns=columns)[0]
                    else:
                        z = network.logits(theta, some.unsqueeze(0), "loop")[0]
                    loss[r, m] += nn.cross_entropy(z, targets, reduction="sum").double()
                    right[r, m] += (z.argmax(-1) == targets).sum()
                loss[r, m] /= len(labels)
                right[r, m] /= len(labels)

    def _evaluate_normalized(self, split: str, x: Tensor, loss: Tensor, right: Tensor) -> None:
        """Evaluates the batches of `_evaluate_one_by_one`, those of one size at once."""
        data = self._padded(split, x)
        network = self.network
        assert isinstance(network, ResNet)
        for size, batches in self._batches(split, EVALUATED).items():
            together = max(1, PICTURES // size)
            if self.max_batch_runs is not None:
                together = min(together, self.max_batch_runs * self.clients)
            for some in to_device(batches, x.device).split(together):
                r, group, m, start = some.unbind(1)
                index = start.unsqueeze(1) + torch.arange(size, device=x.device)
                at = (group.unsqueeze(1), m.unsqueeze(1), index)
                z = network.logits(x[r], data.x[at], "grouped" if len(some) > 1 else "loop")
                weight = data.weight[at].double()
                labels = data.labels[at]
                losses = (_cross_entropy(z, labels).double() * weight).sum(-1)
                loss.index_put_((r, m), losses, accumulate=True)
                right.index_put_((r, m), ((z.argmax(-1) == labels) * weight).sum(-1), accumulate=True)

    def _batches(self, split: str, most: int) -> dict[int, Int[Tensor, "K 4"]]:
        """By size, the batches in which all clients of all runs are evaluated: run, place of its seed,
        client, first picture. Those of a client have nearly equal sizes: a rest of one picture would have
        no statistics.
        """
        by_size: dict[int, list[tuple[int, int, int, int]]] = {}
        for r, group in enumerate(self.group.tolist()):
            for m, index in enumerate(getattr(self.split_of(self.seeds[group]), split)):
                for part in torch.arange(len(index)).tensor_split(-(-len(index) // most)):
                    by_size.setdefault(len(part), []).append((r, group, m, int(part[0])))
        return {size: torch.tensor(batches) for size, batches in by_size.items()}

    def _evaluate_at_once(self, split: str, x: Tensor, first: int, loss: Tensor, right: Tensor) -> None:
        data = self._padded(split, x)
        group = self.group[first : first + len(x)]
        inputs, labels, weight = _of_runs([data.x, data.labels, data.weight], group)
        network = self.network
        R = len(x)
        assert isinstance(network, MLP)
        z = network.logits(x, inputs.flatten(1, 2), data.columns).unflatten(1, (self.clients, -1))
        loss[first : first + R] = (_cross_entropy(z, labels).double() * weight.double()).sum(-1)
        right[first : first + R] = ((z.argmax(-1) == labels) * weight.double()).sum(-1)

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R M"]) -> dict[str, Tensor]:
        n = {
            split: torch.tensor(
                [[len(i) for i in getattr(self.split_of(s), split)] for s in self.seeds],
                dtype=torch.float64,
                device=x.device,
            )[self.group.to(x.device)]
            for split in ("train", "test")
        }
        trained = self._evaluated("train", x)[1].double()
        loss, right = self._evaluated("test", x)
        accuracy = 100.0 * right.double()
        return {
            "average_accuracy": (accuracy * n["test"]).sum(-1) / n["test"].sum(-1),
            "client_accuracy": accuracy.mean(-1),
            "accuracy_parity": accuracy.std(-1, correction=0),
            "agnostic_loss": loss.amax(-1),
            "worst_train_loss": values.amax(-1),
            "train_accuracy": 100.0 * (trained * n["train"]).sum(-1) / n["train"].sum(-1),
        }


@functools.lru_cache(maxsize=256)
def _split(
    data: str,
    data_root: str,
    kind: str,
    clients: int,
    classes_per_client: int | None,
    rotations: tuple[int, ...] | None,
    seed: int,
    train_size: int | None,
    test_size: int | None,
) -> Clients:
    base = load_images(data, data_root)
    return partition(base, kind, clients, classes_per_client, rotations, seed, train_size, test_size)


def _of_runs(tables: Sequence[Tensor], group: Int[Tensor, " R"]) -> list[Tensor]:
    """The rows of each run, of tables with a row for each seed; views where the seeds lie side by side."""
    first = int(group[0])
    if group.tolist() == list(range(first, first + len(group))):  # on the CPU: runs in each local step
        return [t[first : first + len(group)] for t in tables]
    return [t[group.to(t.device)] for t in tables]


def _cross_entropy(z: Float[Tensor, "*K B C"], labels: Int[Tensor, "*K B"]) -> Float[Tensor, "*K B"]:
    """-log softmax(z)_label."""
    return torch.logsumexp(z, dim=-1) - z.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
