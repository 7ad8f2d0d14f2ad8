"""Few-shot learning: classes, episodes, the network's hand-written passes, levels against autograd."""

from __future__ import annotations

import copy
import hashlib
import itertools
import pickle
import random
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as fn
from torch import Tensor

from mobench.algorithms.wc_mhgd import WCMHGD
from mobench.core import loop
from mobench.core.bilevel import GraphView, newton
from mobench.core.preferences import Runs
from mobench.core.types import State
from mobench.data import cifar, files
from mobench.data import fewshot as source
from mobench.data import images as base
from mobench.data.episodes import draw_episodes, redraw_images
from mobench.data.fewshot import load_fewshot
from mobench.errors import ConfigError, DataError
from mobench.models import fewshot as model
from mobench.models.fewshot import FewShotNet
from mobench.oracles import Hypergradient, ValueGap
from mobench.problems.few_shot import FewShotLearning
from tests.conftest import Run
from tests.test_data import mosaic

DIGESTS = {
    "digits": "750b44ed07d1b1488ecaaad78edb2c5cd99819674e67e7108bb1cb63b744fe01",
    "mnist": "4992c81a1af2464dd61780b64204b951c144a383b844d6dc3697b1a6f01e8470",
    "fashion_mnist": "5ba99e2b0e0166c6ab630980405548966389932a825515fd86ac42772016f1b7",
    "cifar100": "72ed2b00c561d3bea01512dd0d2f758fe64711d57f77a72ceb24440fc41212c3",
}
EPISODES = {
    "named": "196c0282882650429d728ed5bad70254c15f549d8ec52a01b5c5594451398e03",
    "learn2learn": "86862de8522156bdaed16f91f7cb6262d98e174df188f87114012ee06d76697a",
}
built = pytest.mark.skipif(
    find_spec("learn2learn") is None, reason="learn2learn is not installed: `make learn2learn`"
)
SAMPLERS = [pytest.param("learn2learn", marks=built), "named"]


# --- classes ------------------------------------------------------------------------------------------------


def test_digits_in_four_rotations(tmp_path: Path) -> None:
    data = load_fewshot("digits", tmp_path)
    grey = base.load_images("digits", "")
    assert (data.name, data.embedded, data.subset, data.turns) == ("digits", True, False, 4)
    assert data.digest == DIGESTS["digits"]
    assert "four rotations" in data.label
    assert data.images.shape == (1797, 1, 28, 28)
    assert data.classes("train") == tuple(range(40))
    assert data.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180] * 4
    N = 1797
    whole = np.concatenate([grey.train.numpy(), grey.test.numpy()])
    digits = np.concatenate([grey.train_labels.numpy(), grey.test_labels.numpy()])
    index = torch.tensor([0, 1500, N + 3, N + 1700, 2 * N + 5, 3 * N, 3 * N + 1796, 7])
    for item, picture in zip(index.tolist(), data.take(index).numpy(), strict=True):
        turn, k = divmod(item, N)
        assert data.labels[item] == digits[k] + 10 * turn
        assert np.array_equal(picture[0], np.rot90(whole[k], turn))
    assert np.array_equal(data.images[5, 0].numpy(), whole[5])  # the set itself is not turned
    assert load_fewshot("digits", tmp_path / "other") is data
    assert not list(tmp_path.iterdir())
    for split in ("validation", "test"):
        with pytest.raises(
            DataError, match=rf"split={split}: data=digits has no {split} classes.*data=cifar100"
        ):
            data.classes(split)
    with pytest.raises(ConfigError, match=r"problem.split='val' is unknown.*validation"):
        data.classes("val")
    with pytest.raises(
        ConfigError, match=r"data='cifar10' is unknown; choose one of digits, .*Did you mean 'cifar100'"
    ):
        load_fewshot("cifar10", tmp_path)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.data(name)) for name in ("mnist", "fashion_mnist")]
)
def test_official_grey_sets(name: str, data_folder: Path) -> None:
    data = load_fewshot(name, data_folder)
    assert (data.embedded, len(data.images), data.digest) == (False, 70000, DIGESTS[name])
    assert data.classes("train") == tuple(range(40))


@pytest.mark.data("cifar100")
def test_cifar100(data_folder: Path) -> None:
    data = load_fewshot("cifar100", data_folder)
    if not data.subset:
        assert len(data.images) == 60000
        return
    assert data.digest == DIGESTS["cifar100"]
    assert data.label == "CIFAR-100, 220 of 600 images per class, classes of FC100"
    assert data.images.shape == (22000, 3, 32, 32)
    assert data.labels.bincount().tolist() == [220] * 100
    official = np.load(data_folder / "cifar100" / "cifar100_labels.npz")
    for split, key, count in (("train", "train", 60), ("validation", "val", 20), ("test", "test", 20)):
        assert list(data.classes(split)) == sorted(official[f"fc100_{key}_classes"].tolist())
        assert len(data.classes(split)) == count
    assert abs(data.images.float().mean() / 255 - 0.478) < 0.01
    index = torch.tensor([3, 21999])
    assert torch.equal(data.take(index), data.images[index])


ABOVE = source.SUPERCLASS
FC100 = {"validation": {8, 11, 13, 16}, "test": {0, 7, 12, 14}}  # superclasses; the others are train


def pictures(n: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(key)
    return rng.integers(0, 256, size=(n, 3, 32, 32), dtype=np.uint8), rng.permutation(n) % 100


def fake_batches(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, ...]:
    """Two files in the official format that pass for the official ones."""
    from torchvision.datasets import CIFAR100

    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    lists = []
    parts = (pictures(200, 1), pictures(100, 2))
    for name, (x, y) in zip(("train", "test"), parts, strict=True):
        entry = {"data": x.reshape(len(x), -1), "fine_labels": y.tolist()}
        (folder / name).write_bytes(pickle.dumps(entry, protocol=2))
        lists.append([[name, hashlib.md5((folder / name).read_bytes()).hexdigest()]])
    monkeypatch.setattr(CIFAR100, "train_list", lists[0])
    monkeypatch.setattr(CIFAR100, "test_list", lists[1])
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": ["a", "b"]}, protocol=2))
    meta = hashlib.md5((folder / "meta").read_bytes()).hexdigest()
    monkeypatch.setattr(CIFAR100, "meta", CIFAR100.meta | {"md5": meta})
    return tuple(np.concatenate(a) for a in zip(*parts, strict=True))


def fake_mosaics(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, ...]:
    """Three files of ten images and the labels, which pass for the subset."""
    folder = root / "cifar100"
    folder.mkdir(parents=True)
    subset = replace(cifar.SUBSETS["cifar100"], train=2, test=1)
    monkeypatch.setitem(cifar.SUBSETS, "cifar100", subset)
    monkeypatch.setattr(cifar, "MOSAIC", (2, 5))
    x, y = pictures(30, 3)
    for name, k in (("train_00", 0), ("train_01", 10), ("test_00", 20)):
        (folder / f"{name}.webp").write_bytes(mosaic(x[k : k + 10]))
    np.savez(folder / "cifar100_labels.npz", train_labels=y[:20], test_labels=y[20:])
    whole = hashlib.sha256(b"".join(a.tobytes() for a in (x, y, ABOVE))).hexdigest()
    monkeypatch.setitem(files.SHA256, "cifar100 subset", whole)
    return x, y


MAKE = {"batches": fake_batches, "mosaics": fake_mosaics}


@pytest.mark.parametrize("kind", list(MAKE))
def test_cifar100_from_either_container(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = MAKE[kind](tmp_path, monkeypatch)
    data = load_fewshot("cifar100", tmp_path)
    assert np.array_equal(data.images.numpy(), x)
    assert np.array_equal(data.labels.numpy(), y)
    assert data.digest == hashlib.sha256(b"".join(a.tobytes() for a in (x, y, ABOVE))).hexdigest()
    assert data.subset == ("220 of 600" in data.label) == (kind == "mosaics")
    superclasses = {"train": set(range(20)) - FC100["validation"] - FC100["test"], **FC100}
    for split, above in superclasses.items():
        assert data.classes(split) == tuple(c for c in range(100) if ABOVE[c] in above)
    assert load_fewshot("cifar100", tmp_path) is data


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("train_01.webp", None, r"data=cifar100 needs train_01\.webp in \S*cifar100"),
        ("test_00.webp", mosaic(np.zeros((10, 3, 32, 32), np.uint8)), "have sha256 .*CIFAR100"),
    ],
)
def test_broken_mosaics(
    file: str, content: bytes | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mosaics(tmp_path, monkeypatch)
    path = tmp_path / "cifar100" / file
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        load_fewshot("cifar100", tmp_path)


# --- episodes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_episodes_are_disjoint(sampler: str) -> None:
    data = load_fewshot("digits", "")
    episodes = draw_episodes(data, 3, tasks=4, ways=6, support=2, query=3, test=7, sampler=sampler)
    assert episodes.classes.shape == (4, 6)
    assert len(set(episodes.classes.flatten().tolist())) == 24  # no class in two tasks
    parts = {"support": 2, "query": 3, "test": 7}
    items = torch.cat([getattr(episodes, part) for part in parts], dim=1)
    assert len(set(items.flatten().tolist())) == items.numel() == 4 * 6 * 12
    for part, k in parts.items():
        index = getattr(episodes, part)
        assert index.shape == (4, 6 * k)
        assert episodes.labels(part).tolist() == [w for w in range(6) for _ in range(k)]
        for s in range(4):  # the label stands for the class
            assert data.labels[index[s]].tolist() == episodes.classes[s][episodes.labels(part)].tolist()
    arrays = (episodes.support, episodes.query, episodes.test, episodes.classes)
    assert episodes.digest == hashlib.sha256(b"".join(a.numpy().tobytes() for a in arrays)).hexdigest()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_episodes_depend_on_the_seed_alone(sampler: str) -> None:
    data = load_fewshot("digits", "")
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    states = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    first = draw_episodes(data, 0, sampler=sampler)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states  # noqa: NPY002
    assert first.digest == EPISODES[sampler]
    random.seed(7)
    torch.rand(1)
    assert draw_episodes(data, 0, sampler=sampler).digest == first.digest
    assert draw_episodes(data, 1, sampler=sampler).digest != first.digest
    more = draw_episodes(data, 0, tasks=8, sampler=sampler)
    for name in ("support", "query", "test", "classes"):
        assert torch.equal(getattr(more, name)[:5], getattr(first, name))


# beartype, which checks this code in tests, draws from Python's


def test_named_episodes_do_not_depend_on_sizes() -> None:
    data = load_fewshot("digits", "")
    first = draw_episodes(data, 0, support=5, query=15, test=15, sampler="named")
    other = draw_episodes(data, 0, support=5, query=10, test=1, sampler="named")
    assert torch.equal(first.support, other.support)
    assert torch.equal(first.query.view(5, 5, 15)[..., :10], other.query.view(5, 5, 10))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"tasks": 10},
            "problem.tasks=10 times problem.ways=5 needs 50 classes.*data=digits has 40 .*data=cifar100",
        ),
        (
            {"query": 160},
            "query_per_class=160 and test_per_class=15 need 180 images.*class 8 of data=digits has 174",
        ),
    ],
)
def test_impossible_episodes(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        draw_episodes(load_fewshot("digits", ""), 0, **{"sampler": "named", **change})


def test_without_learn2learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "learn2learn", None)
    monkeypatch.delitem(sys.modules, "learn2learn.data", raising=False)
    with pytest.raises(
        ConfigError, match=r"episodes=learn2learn needs.*`make learn2learn`.*C compiler.*episodes=named"
    ):
        draw_episodes(load_fewshot("digits", ""), 0)


# --- network ------------------------------------------------------------------------------------------------


def plain(net: FewShotNet, theta: Tensor, x: Tensor) -> Tensor:
    """Features (n, F) of one set with PyTorch's own layers."""
    tensors = net.split(theta)
    h = x
    for weight, bias, gamma, beta in (tensors[4 * k : 4 * k + 4] for k in range(4)):
        h = fn.conv2d(h, weight, bias, padding=1)
        h = fn.batch_norm(h, None, None, gamma, beta, training=True)
        h = fn.max_pool2d(torch.relu(h), 2)
    return h.flatten(1)


def modules(net: FewShotNet) -> torch.nn.Sequential:
    nn = torch.nn
    width = [net.channels] + [net.filters] * 4
    layers: list[torch.nn.Module] = []
    for k in range(4):
        layers += [nn.Conv2d(width[k], width[k + 1], 3, padding=1), nn.BatchNorm2d(width[k + 1])]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten()).double()


def start_of(net: FewShotNet, seed: int = 0) -> Tensor:
    """Parameters with all of their signs, normalisation weights of both."""
    rng = np.random.default_rng(seed)
    theta = torch.from_numpy(net.initial(rng) + 0.1 * rng.standard_normal(net.dim))
    for gamma in net.split(theta)[2::4]:
        gamma[::2] *= -1.0
    return theta


def test_the_papers_network() -> None:
    net = FewShotNet()
    assert net.dim == 113_088 == sum(p.numel() for p in modules(net).parameters())
    assert net.features == 256
    assert FewShotNet(1, 16, 8).features == 8
    theta = net.split(torch.from_numpy(net.initial(np.random.default_rng(0))))
    for k, fan_in in enumerate((27, 576, 576, 576)):
        for part in theta[4 * k : 4 * k + 2]:
            assert 0.9 * fan_in**-0.5 < part.abs().max() <= fan_in**-0.5
        assert (theta[4 * k + 2] == 1).all()
        assert (theta[4 * k + 3] == 0).all()


NETS = {
    "colour": (FewShotNet(3, 32, 4), 3, 7),
    "grey": (FewShotNet(1, 16, 6), 4, 5),
    "narrow": (FewShotNet(1, 48, 1), 2, 2),
}


@pytest.mark.parametrize(("chunk", "pieces"), [(0, 1), (24 << 20, 1), (24 << 20, 2)])
@pytest.mark.parametrize("case", list(NETS))
def test_passes_are_those_of_a_loop_over_tasks(
    case: str, chunk: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "CHUNK", chunk)
    net, S, n = NETS[case]
    if pieces == 2:  # the second one shorter, or as long where there are two tasks
        monkeypatch.setattr(model, "PIECE", -(-S // 2) * n * net.side**2 * net.filters * 8)
    torch.manual_seed(0)
    theta = start_of(net)
    images = torch.rand(S, n, net.channels, net.side, net.side, dtype=torch.float64)
    images[:, :, :, :5] = 0.0  # ties
    slopes = torch.randn(S, n, net.features, dtype=torch.float64)
    parts = net.parts(images)
    assert len(parts) == (S if chunk == 0 else 1)
    assert len(list(net._pieces(parts[0]))) == pieces
    features, tape = net.forward(theta, parts, keep=True)
    assert tape is not None
    rows = net.backward(theta, parts, tape, slopes)
    assert torch.equal(net.forward(theta, parts)[0], features)
    for s in range(S):
        leaf = theta.clone().requires_grad_()
        wanted = plain(net, leaf, images[s])
        (row,) = torch.autograd.grad((wanted * slopes[s]).sum(), leaf)
        torch.testing.assert_close(features[s], wanted.detach(), rtol=1e-12, atol=1e-12)
        assert torch.linalg.vector_norm(rows[s] - row) <= 1e-12 * torch.linalg.vector_norm(row)
        for mine, other in zip(net.split(rows[s]), net.split(row), strict=True):
            assert (mine - other).norm() <= 1e-11 * (other.norm() + 1e-3 * row.norm())
        assert all((bias == 0).all() for bias in net.split(rows[s])[1::4])


def test_parameters_are_in_the_order_of_modules() -> None:
    net = NETS["grey"][0]
    theta = start_of(net)
    x = torch.rand(6, 1, 16, 16, dtype=torch.float64)
    layers = modules(net)
    torch.nn.utils.vector_to_parameters(theta, layers.parameters())
    features, _ = net.forward(theta, net.parts(x.unsqueeze(0)))
    torch.testing.assert_close(features[0], layers(x).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("side", [8, 28])
def test_sides_that_cannot_be_halved(side: int) -> None:
    with pytest.raises(ConfigError, match=rf"16, 32, 48, .* these have {side}.*problem.shrink"):
        FewShotNet(1, side, 4)


# --- both levels --------------------------------------------------------------------------------------------


def tiny(**changes: Any) -> FewShotLearning:
    options = {"tasks": 3, "ways": 3, "support_per_class": 2, "query_per_class": 3, "test_per_class": 2}
    options |= {"filters": 2, "shrink": 2, "episodes": "named", "ll_reg": 0.05}
    return FewShotLearning(**(options | changes))


def runs_of(*seeds: int, preferences: int = 1, M: int = 3) -> Runs:
    weights = (
        torch.rand(preferences, M, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    )
    return Runs.product(weights / weights.sum(1, keepdim=True), seeds)


RUNS = runs_of(0, 4, preferences=2)  # four runs, two share their images


def starts(problem: FewShotLearning, runs: Runs, seed: int = 0) -> tuple[Tensor, Tensor]:
    """x (signs of all kinds) and y at random, different in each run."""
    torch.manual_seed(seed)
    x = torch.stack([start_of(problem.network, 10 * seed + r) for r in range(len(runs))])
    return x, torch.randn(len(runs), problem.tasks, problem.lower_dim, dtype=torch.float64)


def images_of(problem: FewShotLearning, seed: int, part: str) -> Tensor:
    """(S, n, 1, 16, 16): pixels / 255 in a frame, averaged two by two."""
    items = getattr(problem.episodes_of(seed), part)
    pictures = np.stack([problem.images.take(indices).numpy() for indices in items]).astype(np.float64) / 255
    pictures = np.pad(pictures, ((0, 0), (0, 0), (0, 0), (2, 2), (2, 2)))
    return torch.from_numpy(pictures.reshape(*pictures.shape[:3], 16, 2, 16, 2).mean((4, 6)))


def graph(problem: FewShotLearning, runs: Runs) -> tuple[Any, Any]:
    """f and g, run by run and task by task."""
    pictures = {
        (part, s): images_of(problem, s, part)
        for s in set(runs.seeds.tolist())
        for part in ("support", "query", "test")
    }

    def losses(part: str, x: Tensor, y: Tensor) -> Tensor:
        labels = problem.episodes_of(0).labels(part)
        rows = []
        for r, seed in enumerate(runs.seeds.tolist()):
            row = []
            for s in range(problem.tasks):
                h = plain(problem.network, x[r], pictures[part, seed][s])
                w = y[r, s].view(problem.ways, -1)
                row.append(fn.cross_entropy(h @ w[:, :-1].T + w[:, -1], labels))
            rows.append(torch.stack(row))
        return torch.stack(rows)

    def f(x: Tensor, y: Tensor) -> Tensor:
        return losses("query", x, y)

    def g(x: Tensor, y: Tensor) -> Tensor:
        return losses("support", x, y) + problem.ll_reg * y.square().sum(-1)

    return f, g


def close(actual: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> None:
    assert actual.shape == wanted.shape
    assert actual.dtype == wanted.dtype
    assert float((actual - wanted).norm()) <= tolerance * float(wanted.norm())


@pytest.mark.parametrize(
    ("tasks", "options"),
    [(3, {}), (1, {}), (3, {"execution": "grouped"}), (1, {"execution": "grouped", "max_batch_runs": 3})],
)
def test_the_view_is_that_of_autograd(tasks: int, options: dict[str, Any]) -> None:
    problem = tiny(tasks=tasks, **options)
    runs = runs_of(0, 4, preferences=2, M=tasks)
    bound = problem.bind(runs)
    x, y = starts(problem, runs)
    steps = [tuple(torch.randn_like(y) for _ in range(2)) for _ in range(3)]
    view = bound.view(x)
    other = GraphView(x, *graph(problem, runs))
    close(view.lower(y), other.lower(y))
    close(view.lower_gradient(y), other.lower_gradient(y))
    close(view.lower_hvp(y, steps[0][0]), other.lower_hvp(y, steps[0][0]))
    for actual, wanted in zip(view.upper(y), other.upper(y), strict=True):
        close(actual, wanted)
    close(view.jacobian(y, []), other.jacobian(y, []))
    close(view.jacobian(y, steps), other.jacobian(y, steps))
    close(view.lower_x(y), other.lower_x(y))
    close(bound.view(x).jacobian(y, steps[:1]), other.jacobian(y, steps[:1]))  # the tape is still there


def test_columns_of_one_block() -> None:
    problem = tiny(tasks=1)
    runs = runs_of(0, M=1)
    x, y = starts(problem, runs)
    view = problem.bind(runs).view(x)
    columns = torch.randn(1, 4, problem.lower_dim, dtype=torch.float64)
    products = view.lower_hvp(y, columns)
    for k in range(4):
        close(products[:, k], view.lower_hvp(y, columns[:, k : k + 1])[:, 0], 1e-12)


def test_a_run_that_diverges_stays_alone() -> None:
    problem = tiny()
    bound = problem.bind(RUNS)
    x, y = starts(problem, RUNS)
    broken = x.clone()
    broken[1, 7] = torch.nan
    good = [0, 2, 3]
    torch.testing.assert_close(bound.values(broken)[good], bound.values(x)[good], rtol=1e-8, atol=0.0)
    rows, wanted = (bound.view(z).jacobian(y, [(y, y)]) for z in (broken, x))
    assert torch.equal(rows[good], wanted[good])
    assert bound.values(broken)[1].isnan().all()
    assert bound.columns_at(broken, y)["test_loss"].isnan().tolist() == [False, True, False, False]


def test_the_last_view_is_kept_and_others_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = tiny().bind(RUNS)
    x, y = starts(problem, RUNS)
    passes = []
    inner = FewShotNet.forward
    monkeypatch.setattr(FewShotNet, "forward", lambda *a, **k: passes.append(1) or inner(*a, **k))
    first = problem.view(x)
    assert problem.view(x.clone()) is first
    rows = first.jacobian(y, [(y, y)])
    assert len(passes) == 2 * len(RUNS)  # one of each set, for all answers
    first.upper(y), first.lower_gradient(y), problem.columns_at(x, y)
    assert len(passes) == 3 * len(RUNS)  # the test set
    assert problem.view(x + 1.0) is not first
    assert torch.equal(first.jacobian(y, [(y, y)]), rows)  # passed again
    assert len(passes) == 5 * len(RUNS)
    moved = x.clone()
    second = problem.view(moved)
    moved += 1.0  # in place: nobody's view changes
    assert torch.equal(second.jacobian(y, [(y, y)]), rows)
    assert problem.view(moved) is not second
    assert x.requires_grad is False


def unrolled(point: Any, problem: FewShotLearning, x: Tensor, y: Tensor, D: int, tolerance: float) -> Tensor:
    """Values after D steps of 0.3 on the lower level; those of the point and its rows are autograd's."""
    f, g = graph(problem, RUNS)
    leaf = x.clone().requires_grad_()
    start = z = y.clone().requires_grad_()
    for _ in range(D):
        z = z - 0.3 * torch.autograd.grad(g(leaf, z).sum(), z, create_graph=True)[0]
    values = f(leaf, z)
    close(point.values(), values.detach(), tolerance)
    close(point.state["y"], z.detach(), tolerance)
    assert start.grad is None
    for s in range(3):
        (row,) = torch.autograd.grad(values[:, s].sum(), leaf, retain_graph=True)
        close(point.jacobian()[:, s], row, 1e-8)
    return values.detach()


@pytest.mark.parametrize("D", [1, 5])
def test_hypergradients_are_those_of_an_unrolled_inner_loop(D: int) -> None:
    problem = tiny()
    x, y = starts(problem, RUNS)
    oracle = Hypergradient(problem, RUNS, inner_steps=D, inner_step=0.3, method="itd")
    unrolled(oracle.at(x, {"y": y}, 0), problem, x, y, D, 1e-11)


@pytest.mark.parametrize(("redraw", "t", "steps"), [(False, 0, 3), (True, 5, 2)])
def test_the_value_gap_joins(redraw: bool, t: int, steps: int) -> None:
    """Also with images that are drawn anew in each step."""
    problem = tiny(redraw=redraw)
    oracle = ValueGap(problem, RUNS, inner_steps=steps, inner_step=0.3)
    x, y = starts(problem, RUNS)
    point = oracle.at(torch.cat([x, y.flatten(1)], dim=1), {}, t)
    f, g = graph(problem.at_step(t), RUNS)
    other = GraphView(x, f, g)
    near = y
    for _ in range(steps):
        near = near - 0.3 * other.lower_gradient(near)
    close(point.values()[:, :3], f(x, y), 1e-11)
    close(point.values()[:, 3], (g(x, y) - g(x, near)).sum(1), 1e-9)
    close(point.jacobian()[:, 3, : problem.dim], other.lower_x(y) - other.lower_x(near), 1e-8)


def test_measures_by_hand() -> None:
    problem = tiny()
    x, y = starts(problem, RUNS)
    columns = problem.bind(RUNS).columns_at(x, y)
    for r, seed in enumerate(RUNS.seeds.tolist()):
        losses = []
        for name, part in (("train", "query"), ("test", "test")):
            shares = []
            for s in range(3):
                w = y[r, s].view(3, -1)
                scores = (
                    plain(problem.network, x[r], images_of(problem, seed, part)[s]) @ w[:, :-1].T + w[:, -1]
                )
                labels = problem.episodes_of(seed).labels(part)
                shares.append(100.0 * float((scores.argmax(1) == labels).double().mean()))
                losses.append(float(fn.cross_entropy(scores, labels)) if part == "test" else 0.0)
                assert float(columns[f"{name}_accuracy_{s + 1}"][r]) == pytest.approx(shares[-1])
            assert float(columns[f"{name}_accuracy"][r]) == pytest.approx(np.mean(shares))
        assert float(columns["test_loss"][r]) == pytest.approx(sum(losses) / 3, rel=1e-10)


def test_seeds_make_episodes_and_start() -> None:
    problem = tiny()
    x = problem.initial(RUNS)
    assert x.shape == (4, problem.dim)
    assert torch.equal(x[0], x[2])  # the same seed
    assert not torch.equal(x[0], x[1])
    assert not torch.equal(
        *(tiny(start={"kind": "default", "per_preference": True}).initial(RUNS)[[k]] for k in (0, 2))
    )
    bound = problem.bind(RUNS)
    like = torch.zeros((), dtype=torch.float64)
    assert bound.prepared("query", 0, like) is bound.prepared("query", 2, like)
    for part in ("support", "query", "test"):
        for r in (0, 1):
            images = torch.cat([some.images for some in bound.prepared(part, r, like)])
            torch.testing.assert_close(images, images_of(problem, (0, 4)[r], part), rtol=1e-14, atol=1e-16)
    facts = problem.facts(RUNS)
    assert facts["data_sha256"] == DIGESTS["digits"]
    assert facts["episodes_sha256"] == {str(s): problem.episodes_of(s).digest for s in (0, 4)}
    assert facts["classes"]["4"] == problem.episodes_of(4).classes.tolist()
    assert (problem.convexity, problem.lower_dim, problem.blocks) == (0.1, 9, 3)
    assert torch.equal(problem.initial_lower(RUNS), torch.zeros(4, 3, 9, dtype=torch.float64))


def test_newton_solves_heads() -> None:
    problem = tiny()
    bound = problem.bind(RUNS)
    x, y = starts(problem, RUNS)
    best = bound.solve(x)
    close(newton(bound.view(x), y), best, 1e-7)
    assert (bound.view(x).lower(best) < bound.view(x).lower(y)).all()


def test_problems_of_data_show_before_the_first_step() -> None:
    with pytest.raises(ConfigError, match=r"needs 50 classes.*data=cifar100"):
        tiny(tasks=10, ways=5).bind(runs_of(0, M=10))
    with pytest.raises(DataError, match=r"data=digits has no test classes"):
        tiny(split="test").bind(runs_of(0))
    with pytest.raises(ConfigError, match=r"have 8.*problem.shrink"):
        _ = tiny(shrink=4).dim


def test_the_command_line(mobench: Run) -> None:
    sizes = ("filters=2", "shrink=2", "tasks=3", "query_per_class=3", "episodes=named")
    problem = ("problem=few_shot", *(f"problem.{size}" for size in sizes))
    method = ("oracle=hypergradient", "oracle.inner_steps=3", "algorithm=wc_mhgd", "steps=2", "dtype=float32")
    runs = ("preferences.weights=[[0.8,0.1,0.1]]", "preferences.count=null", "seeds=[0,1]")
    result = mobench(*problem, *method, *runs, "logger=local", "progress=false")
    assert result.code == 0, result.err
    rows = result.rows
    assert len(rows) == 2
    assert ((rows["train_accuracy"] >= 0) & (rows["train_accuracy"] <= 100)).all()
    assert {"train_accuracy_3", "test_accuracy_1", "test_accuracy", "test_loss", "tchebycheff"} <= set(
        rows.columns
    )
    means = rows[[f"test_accuracy_{s}" for s in (1, 2, 3)]].mean(axis=1)
    assert np.allclose(means, rows["test_accuracy"])


# --- images drawn anew in each step -------------------------------------------------------------------------


def test_runs_share_tasks_and_start_apart() -> None:
    own, shared = tiny(), tiny(tasks_seed=7)
    assert [shared.episodes_of(seed).digest for seed in (0, 1)] == [own.episodes_of(7).digest] * 2
    runs = runs_of(0, 1)
    starts = shared.bind(runs).initial(runs)
    assert torch.equal(starts, own.bind(runs).initial(runs))
    assert not torch.equal(starts[0], starts[1])


def test_redrawn_images_are_of_the_same_classes() -> None:
    data = load_fewshot("digits", "")
    first = draw_episodes(data, 3, tasks=3, ways=4, support=2, query=3, test=7, sampler="named")
    drawn = [redraw_images(data, first, 3, t) for t in range(3)]
    for episode in drawn:
        assert torch.equal(episode.classes, first.classes)
        assert torch.equal(episode.test, first.test)
        items = torch.cat([episode.support, episode.query, episode.test], dim=1)
        assert len(set(items.flatten().tolist())) == items.numel() == 3 * 4 * 12
        for part in ("support", "query"):
            index = getattr(episode, part)
            assert index.shape == getattr(first, part).shape
            for s in range(3):
                assert data.labels[index[s]].tolist() == episode.classes[s][episode.labels(part)].tolist()
    for part in ("support", "query"):  # of every task, in steps that follow each other
        for one, other in itertools.pairwise(getattr(episode, part) for episode in drawn):
            assert all(set(a.tolist()) != set(b.tolist()) for a, b in zip(one, other, strict=True))
    assert redraw_images(data, first, 3, 2).digest == drawn[2].digest
    assert len({redraw_images(data, first, seed, 2).digest for seed in (3, 4)}) == 2
    arrays = (drawn[2].support, drawn[2].query, drawn[2].test, drawn[2].classes)
    assert drawn[2].digest == hashlib.sha256(b"".join(a.numpy().tobytes() for a in arrays)).hexdigest()


@pytest.mark.parametrize("execution", ["loop", "grouped"])
def test_a_step_is_taken_on_its_own_images(execution: str) -> None:
    """Against autograd on these images; what is measured, and y*(x), are of those of the seed."""
    fixed, problem = tiny(), tiny(redraw=True, execution=execution)
    x, y = starts(problem, RUNS)
    oracle, other = (Hypergradient(p, RUNS, inner_steps=3, inner_step=0.3) for p in (problem, fixed))
    seen = []
    for t in (0, 1, 7):
        point = oracle.at(x, {"y": y}, t)
        seen.append(unrolled(point, problem.at_step(t), x, y, 3, 1e-10))
        ends = point.state["y"]
        for name, column in oracle.columns(x, point.values(), point).items():
            close(column, other.problem.columns_at(x, ends)[name])
    assert not torch.isclose(seen[0], seen[1]).any()
    assert not torch.isclose(seen[1], seen[2]).any()
    close(oracle.exact(x), other.exact(x), 1e-7)
    assert problem.facts(RUNS) == fixed.facts(RUNS)


@pytest.mark.parametrize("execution", ["loop", "grouped"])
def test_redrawn_runs_are_the_same_alone_and_continued(execution: str) -> None:
    problem = tiny(redraw=True, execution=execution)

    def taken(runs: Runs, stops: tuple[int, ...]) -> State:
        state: State = {}
        method = WCMHGD(step_size=0.3)
        for until in stops:  # each with an oracle that remembers nothing
            oracle = Hypergradient(problem, runs, inner_steps=3, inner_step=0.3)
            x = oracle.initial(runs)
            state = copy.deepcopy(state) or loop.start(oracle, method, {}, x, runs, 4)
            state = loop.advance(oracle, method, {}, state, until)
        return state

    whole = taken(RUNS, (4,))
    continued = taken(RUNS, (1, 3, 4))
    assert torch.equal(whole["theta"], continued["theta"])
    assert torch.equal(whole["oracle"]["y"], continued["oracle"]["y"])
    for r in (0, 3):
        alone = taken(RUNS.take([r]), (4,))
        close(alone["theta"], whole["theta"][[r]], 1e-12)
        close(alone["oracle"]["y"], whole["oracle"]["y"][[r]], 1e-12)
