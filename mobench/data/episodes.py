"""Few-shot episodes: S tasks of a few classes, with images of each class to support, query and test."""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from mobench.core.random import generator, seed_for
from mobench.data.fewshot import FewShot
from mobench.data.files import digest_of
from mobench.errors import ConfigError, choose

SAMPLERS = ("learn2learn", "named")


@dataclass(frozen=True, eq=False)
class Episodes:
    """Items of a `FewShot` set, task by task; each label comes `support` (`query`, `test`) times in a row.

    Fields: classes: the class behind each label 0..ways-1. digest: sha256 of support, query, test and
    classes, little-endian.
    """

    support: Int64[Tensor, "S n"]
    query: Int64[Tensor, "S m"]
    test: Int64[Tensor, "S l"]
    classes: Int64[Tensor, "S ways"]
    digest: str

    def labels(self, part: str) -> Int64[Tensor, " n"]:
        """Labels 0..ways-1 of a part (support, query, test), the same for all tasks."""
        ways = self.classes.shape[1]
        size = getattr(self, choose("part", part, ("support", "query", "test"))).shape[1]
        return torch.arange(ways).repeat_interleave(size // ways)


def draw_episodes(
    fewshot: FewShot,
    seed: int,
    tasks: int = 5,
    ways: int = 5,
    support: int = 5,
    query: int = 15,
    test: int = 15,
    split: str = "train",
    sampler: str = "learn2learn",
) -> Episodes:
    """S = `tasks` tasks of `ways` classes of a split, no class in two of them, no image twice.

    support, query, test: images of each class in each of the three sets.
    sampler:
        learn2learn  its Taskset with NWays, KShots, LoadData and RemapLabels, for each task on a MetaDataset
                     of the classes that earlier tasks have left; the global generators that it draws from are
                     seeded by (seed, set, split), and put back afterwards
        named        generators keyed by (seed, set, split) for the classes, and by the task as well for its
                     images
    With both, the first tasks do not depend on how many follow; with `named` they do not depend on the sizes
    either.

    Raises ConfigError for more classes or images than there are, or where learn2learn is not installed;
    DataError for a split without classes.
    """
    choose("problem.episodes", sampler, SAMPLERS)
    sizes = {
        "tasks": tasks,
        "ways": ways,
        "support_per_class": support,
        "query_per_class": query,
        "test_per_class": test,
    }
    for key, value in sizes.items():
        if value < 1:
            raise ConfigError(f"problem.{key}={value} must be at least 1.")
    members = _members(fewshot, split)
    if tasks * ways > len(members):
        raise ConfigError(
            f"problem.tasks={tasks} times problem.ways={ways} needs {tasks * ways} classes, because no class "
            f"may be in two tasks, but data={fewshot.name} has {len(members)} {split} classes. "
            "Choose fewer tasks or ways"
            + (", or data=cifar100, which has 60 train classes." if fewshot.name != "cifar100" else ".")
        )
    total = support + query + test
    least = min(members, key=lambda c: len(members[c]))
    if total > len(members[least]):
        raise ConfigError(
            f"problem.support_per_class={support}, query_per_class={query} and test_per_class={test} need "
            f"{total} images of each class, but class {least} of data={fewshot.name} has "
            f"{len(members[least])}. "
            "Choose smaller numbers."
        )
    draw = _by_learn2learn if sampler == "learn2learn" else _by_name
    items, classes = draw(fewshot, members, seed, split, tasks, ways, total)
    parts = [part.reshape(tasks, -1) for part in np.split(items, [support, support + query], axis=2)]
    with torch.inference_mode(False):
        first, second, third, chosen = (torch.from_numpy(a.copy()) for a in (*parts, classes))
    return Episodes(first, second, third, chosen, digest_of(*parts, classes))


def redraw_images(fewshot: FewShot, episodes: Episodes, seed: int, step: int) -> Episodes:
    """The same tasks and test images, with support and query sets drawn for one step, no image twice.

    They come from all images of the classes but those of `episodes.test`; generators are keyed by (seed, set,
    task, step), so that nothing is remembered from one step to the next.
    """
    tasks, ways = episodes.classes.shape
    support, query = (part.shape[1] // ways for part in (episodes.support, episodes.query))
    labels = fewshot.labels.numpy()
    items = np.empty((tasks, ways, support + query), dtype=np.int64)
    for s in range(tasks):
        rng = generator(seed, data="episodes", images=fewshot.name, use="redraw", task=s, step=step)
        for w, c in enumerate(episodes.classes[s].tolist()):
            free = np.setdiff1d(np.flatnonzero(labels == c), episodes.test[s].numpy())
            items[s, w] = rng.permutation(free)[: support + query]
    first, second = (part.reshape(tasks, -1).copy() for part in np.split(items, [support], axis=2))
    digest = digest_of(first, second, episodes.test.numpy(), episodes.classes.numpy())
    with torch.inference_mode(False):
        return replace(
            episodes, support=torch.from_numpy(first), query=torch.from_numpy(second), digest=digest
        )


def _members(fewshot: FewShot, split: str) -> dict[int, Int64[np.ndarray, " _"]]:
    """Items of each class of the split."""
    labels = fewshot.labels.numpy()
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(int(labels.max()) + 2))
    return {c: order[ends[c] : ends[c + 1]] for c in fewshot.classes(split)}


Drawn = tuple[Int64[np.ndarray, "S ways k"], Int64[np.ndarray, "S ways"]]


def _by_name(
    fewshot: FewShot,
    members: dict[int, Int64[np.ndarray, " _"]],
    seed: int,
    split: str,
    tasks: int,
    ways: int,
    total: int,
) -> Drawn:
    """Items and classes: blocks of a permutation of the classes, and of each a permutation of its items."""
    axes = {"data": "episodes", "images": fewshot.name, "split": split}
    classes = generator(seed, **axes, use="classes").permutation(np.array(list(members)))[: tasks * ways]
    chosen = classes.reshape(tasks, ways).astype(np.int64)
    items = np.empty((tasks, ways, total), dtype=np.int64)
    for s in range(tasks):
        rng = generator(seed, **axes, use="images", task=s)
        for w, c in enumerate(chosen[s].tolist()):
            items[s, w] = rng.permutation(members[c])[:total]
    return items, chosen


class _Items(torch.utils.data.Dataset[tuple[int, int]]):
    """(number in the set, class) for each item of a split: episodes are drawn without pictures."""

    def __init__(self, members: dict[int, Int64[np.ndarray, " _"]]) -> None:
        self.numbers = np.concatenate(list(members.values())).tolist()
        self.labels = [c for c, some in members.items() for _ in some]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, k: int) -> tuple[int, int]:
        return self.numbers[k], self.labels[k]


def _by_learn2learn(
    fewshot: FewShot,
    members: dict[int, Int64[np.ndarray, " _"]],
    seed: int,
    split: str,
    tasks: int,
    ways: int,
    total: int,
) -> Drawn:
    """Items and classes, task after task.

    Other classes are left out of the data set, not by FilterLabels: behind it, NWays of 0.2.0 draws from a
    set, which Python has refused since 3.11.
    """
    classes = np.empty((tasks, ways), dtype=np.int64)
    items = np.empty((tasks, ways, total), dtype=np.int64)
    left = dict(members)
    with _global_randomness() as seed_all:
        data = _learn2learn()
        seed_all(seed_for(seed, data="episodes", images=fewshot.name, split=split, use="learn2learn"))
        for s in range(tasks):
            source = _Items(left)
            dataset = data.MetaDataset(source, indices_to_labels=dict(enumerate(source.labels)))
            steps = [
                data.transforms.NWays(dataset, n=ways),
                data.transforms.KShots(dataset, k=total),
                data.transforms.LoadData(dataset),
                data.transforms.RemapLabels(dataset),
            ]
            numbers, labels = data.Taskset(dataset, task_transforms=steps, num_tasks=1)[0]
            for w in range(ways):
                items[s, w] = numbers[labels == w].numpy()
                classes[s, w] = fewshot.labels[items[s, w, 0]]
                del left[int(classes[s, w])]
    return items, classes


def _learn2learn() -> ModuleType:
    """learn2learn.data; importing it takes seconds.

    Silent: gym, which it imports, prints that it is unmaintained.
    """
    output = io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(output),
            contextlib.redirect_stdout(output),
        ):
            warnings.simplefilter("ignore")
            import learn2learn.data
    except ImportError as error:
        raise ConfigError(
            "problem.episodes=learn2learn needs the package learn2learn, which cannot be imported "
            f"({error}). `make learn2learn` builds it (it needs a C compiler); problem.episodes=named draws "
            f"episodes of the same kind without it."
        ) from error
    module: ModuleType = learn2learn.data
    return module


@contextlib.contextmanager
def _global_randomness() -> Iterator[Callable[[int], None]]:
    """Yields a function that seeds Python's, NumPy's and PyTorch's generators; restores them after."""
    cpu = torch.random.default_generator
    states = random.getstate(), np.random.get_state(), cpu.get_state()  # noqa: NPY002

    def seed_all(seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        cpu.manual_seed(seed)

    try:
        yield seed_all
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        cpu.set_state(states[2])
