"""Attributes of pictures: CelebA's layout made small, the stand-in, both networks and whole jobs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as fn
from PIL import Image
from torch import Tensor, nn

from mobench.constraints import LossCap
from mobench.core import Runs
from mobench.core.point import GraphPoint
from mobench.core.preferences import resolve
from mobench.core.sampled import Batch
from mobench.core.sets import Free
from mobench.data import celeba as source
from mobench.data.celeba import ATTRIBUTES, faces
from mobench.errors import ConfigError, DataError
from mobench.models import resnet as networks
from mobench.models.resnet import ResNet, resnet
from mobench.oracles import Epochs
from mobench.problems import FaceAttributes
from mobench.problems import face_attributes as module
from tests.conftest import Run

F64 = torch.float64
DIGEST = "6e0e2a9f"  # of the stand-in
PARTS = (0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 1, 0)  # of twelve images


@pytest.fixture
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of 3,000 weights, with all kinds of blocks, in the place of 11 million."""
    monkeypatch.setitem(networks.MODELS, "resnet18", ResNet(widths=(4, 8), blocks=(1, 2), shortcut="conv"))


def runs_of(M: int, count: int, seeds: tuple[int, ...] = (0,)) -> Runs:
    return Runs.product(resolve(count, M), list(seeds))


def jpeg(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


def picture(k: int) -> np.ndarray:
    """218 x 178 colours of their own; other colours in the rows that are cut off."""
    y, x = np.mgrid[0:218, 0:178]
    out = np.stack([(y + 11 * k) % 256, (x + 31 * k) % 256, (x + y) // 2], 2).astype(np.uint8)
    out[:20] = 255
    out[198:] = 0
    return out


def official(root: Path) -> tuple[list[str], np.ndarray]:
    """Twelve images in the official layout; their names and attributes (+-1)."""
    folder = root / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{k + 1:06d}.jpg" for k in range(len(PARTS))]
    table = np.where(np.random.default_rng(0).random((len(names), 40)) < 0.4, 1, -1)
    rows = [f"{name} " + " ".join(f"{v:2d}" for v in row) for name, row in zip(names, table, strict=True)]
    (folder / source.LIST).write_text("\n".join([str(len(names)), " ".join(ATTRIBUTES) + " ", *rows]) + "\n")
    (folder / source.PARTITION).write_text("".join(f"{n} {p}\n" for n, p in zip(names, PARTS, strict=True)))
    for k, name in enumerate(names):
        (folder / "img_align_celeba" / name).write_bytes(jpeg(picture(k)))
    return names, table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with the layout; the cache is elsewhere, nothing is remembered from other tests."""
    monkeypatch.setenv("MOBENCH_CACHE", str(tmp_path / "cache"))
    source._faces.cache_clear()
    official(tmp_path / "data")
    return tmp_path / "data"


def again() -> None:
    """The data as a new process would load them."""
    source._faces.cache_clear()


# --- the official layout ------------------------------------------------------------------------------------


def test_a_folder_in_the_official_layout(folder: Path) -> None:
    names, table = official(folder.parent / "copy")
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    with torch.inference_mode():
        data = faces("celeba", folder)
        pictures = {split: data.pictures(split) for split in ("train", "test")}
    assert (data.name, data.embedded, data.side) == ("celeba", False, 64)
    assert data.label == "CelebA, 64 x 64, 10 of 182,732 training and test images"
    assert data.attributes == ATTRIBUTES
    assert len(ATTRIBUTES) == 40
    for split, part in (("train", 0), ("test", 2)):
        index = [k for k, p in enumerate(PARTS) if p == part]
        labels = data.train_labels if split == "train" else data.test_labels
        np.testing.assert_array_equal(labels.numpy(), (table[index] + 1) // 2)
        assert pictures[split].shape == (len(index), 3, 64, 64)
        assert not pictures[split].is_inference()
        for row, k in zip(pictures[split].numpy(), index, strict=True):
            with Image.open(io.BytesIO(jpeg(picture(k)))) as image:
                square = np.asarray(image)[20:198]
            wanted = Image.fromarray(square).resize((64, 64), Image.Resampling.BILINEAR)
            np.testing.assert_array_equal(row, np.asarray(wanted).transpose(2, 0, 1))
            assert 0 < row[2].min() <= row[2].max() < 255  # nothing of the white and black rows
    assert names[0] == "000001.jpg"
    assert sorted(path.stat().st_mtime_ns for path in folder.rglob("*")) == before
    assert faces("celeba", folder) is data


def test_limits_take_the_first_and_need_no_others(folder: Path) -> None:
    for k in (3, 4, 5, 6, 8, 9, 10, 11):
        (folder / "celeba" / "img_align_celeba" / f"{k + 1:06d}.jpg").unlink()
    data = faces("celeba", folder, 3, 1)
    assert (len(data.train_labels), len(data.test_labels)) == (3, 1)
    assert data.pictures("train").shape == (3, 3, 64, 64)
    with pytest.raises(
        DataError, match=r"data=celeba needs 000004\.jpg, .*in \S*img_align_celeba, which could"
    ):
        faces("celeba", folder)
    for options, message in (
        ((8, None), "train_size=8.*7 train images"),
        ((None, 0), "test_size=0.*3 test images"),
    ):
        with pytest.raises(ConfigError, match=message):
            faces("celeba", folder, *options)


def test_decoded_pictures_are_kept_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = faces("celeba", folder)
    digest = first.digest
    pictures = first.pictures("train").clone()
    calls: list[Path] = []
    decode = source._picture

    def counted(path: Path, side: int) -> np.ndarray:
        calls.append(path)
        return decode(path, side)

    monkeypatch.setattr(source, "_picture", counted)

    def second() -> tuple[str, Tensor]:
        again()
        calls.clear()
        data = faces("celeba", folder)
        return data.digest, data.pictures("train")

    digest_again, array = second()
    assert (calls, digest_again) == ([], digest)
    assert torch.equal(array, pictures)
    array[0] = 0  # a copy in memory: the cache does not change
    digest_again, array = second()
    assert torch.equal(array, pictures)
    # a cache that is cut short or empty is made anew; so is one of other images
    for cut in (-1, 0):
        for path in (folder.parent / "cache").glob("*.npy"):
            path.write_bytes(path.read_bytes()[:cut])
        assert (second()[0], len(calls)) == (digest, 10)
    (folder / "celeba" / "img_align_celeba" / "000002.jpg").write_bytes(jpeg(picture(50)))
    digest_again, array = second()
    assert digest_again != digest
    assert len(calls) == 7  # the training part
    assert not torch.equal(array[1], pictures[1])
    assert not list((folder.parent / "cache").glob(".*"))


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOBENCH_CACHE", raising=False)
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    assert source.cache_root() == tmp_path / "outputs" / "cache"
    monkeypatch.setenv("MOBENCH_CACHE", str(tmp_path / "other"))
    assert source.cache_root() == tmp_path / "other"


def test_a_cache_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "file").write_text("")
    monkeypatch.setenv("MOBENCH_CACHE", str(folder.parent / "file"))
    with pytest.raises(DataError, match=r"could not be stored in .*file \(0 MiB\).*MOBENCH_CACHE=DIR"):
        faces("celeba", folder).pictures("train")


def edit(file: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    """A change of the lines of a file."""

    def run(root: Path) -> None:
        path = root / "celeba" / file
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")

    return run


def swap(k: int, old: str, new: str) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        assert old in lines[k]
        return [*lines[:k], lines[k].replace(old, new, 1), *lines[k + 1 :]]

    return change


LIST = source.LIST
PARTITION = source.PARTITION
IMAGES = "img_align_celeba"
BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no list": (lambda r: (r / "celeba" / LIST).unlink(), f"data=celeba needs {LIST} in .*non-commercial"),
    "no count": (edit(LIST, lambda x: x[1:]), f"{LIST} could not be read"),
    "too few": (edit(LIST, lambda x: x[:-1]), "says 12 images, but 11 follow"),
    "other names": (edit(LIST, swap(1, "Bald", "Bold")), "other names than CelebA's 40"),
    "a short row": (edit(LIST, lambda x: [*x[:4], x[4][:-2], *x[5:]]), "other than 1 and -1"),
    "zeros": (edit(LIST, swap(4, "-1", "0")), "other than 1 and -1"),
    "no text": (lambda r: (r / "celeba" / LIST).write_bytes(b"\xff\xfe"), f"{LIST} could not be read"),
    "part 3": (edit(PARTITION, swap(2, "jpg 0", "jpg 3")), "other than 0, 1 and 2"),
    "unknown image": (edit(PARTITION, swap(2, "000003", "000099")), f"lists other images than {LIST}"),
    "image without part": (edit(PARTITION, lambda x: x[:-1]), f"lists other images than {LIST}"),
    "listed twice": (
        lambda r: [
            edit(f, lambda x: [y.replace("000003", "000004") for y in x])(r) for f in (LIST, PARTITION)
        ],
        "lists an image twice",
    ),
    "image lost": (
        lambda r: (r / "celeba" / IMAGES / "000002.jpg").unlink(),
        "data=celeba needs 000002.jpg in",
    ),
}


@pytest.mark.parametrize("case", list(BROKEN))
def test_broken_folders_are_one_message(case: str, folder: Path) -> None:
    change, message = BROKEN[case]
    change(folder)
    with pytest.raises(DataError, match=message) as caught:
        faces("celeba", folder)
    assert "problem.data=celeba_synth is embedded" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"000002\.jpg could not be read as a file of data=celeba: cannot identify image file"),
        (jpeg(picture(1))[:3000], r"000002\.jpg could not be read as a file of data=celeba: .*truncated"),
        (jpeg(picture(1).transpose(1, 0, 2)), r"000002\.jpg could not be .*it has 218 x 178 pixels"),
    ],
    ids=["empty", "truncated", "turned"],
)
def test_broken_images_are_named(content: bytes, message: str, folder: Path) -> None:
    (folder / "celeba" / IMAGES / "000002.jpg").write_bytes(content)
    data = faces("celeba", folder)
    with pytest.raises(DataError, match=message):
        data.pictures("train")
    assert data.pictures("test").shape[0] == 3
    assert len(list((folder.parent / "cache").iterdir())) == 1  # nothing half


# --- the stand-in -------------------------------------------------------------------------------------------


def test_an_image_that_vanishes_after_the_listing_is_named(folder: Path) -> None:
    path = folder / "celeba" / IMAGES / "000001.jpg"
    path.unlink()
    path.symlink_to(folder / "nowhere")
    with pytest.raises(DataError, match=r"000001\.jpg could not be read"):
        faces("celeba", folder).pictures("train")


def test_a_picture_that_says_it_is_enormous_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # a limit that a harmless picture passes twice over
    with pytest.raises(DataError, match=r"000001\.jpg could not be read"):
        faces("celeba", folder).pictures("train")


def test_the_stand_in() -> None:
    data = faces("celeba_synth", "")
    assert (data.embedded, data.side) == (True, 16)
    assert data.digest.startswith(DIGEST)
    assert "stand-in" in data.label
    assert data.attributes[:2] == ("attribute_01", "attribute_02")
    assert data.pictures("train").shape == (2000, 3, 16, 16)
    assert data.pictures("test").shape == (500, 3, 16, 16)
    labels = torch.cat([data.train_labels, data.test_labels]).double()
    rates = labels.mean(0).sort().values
    torch.testing.assert_close(
        rates, torch.logspace(np.log10(0.05), np.log10(0.6), 40, dtype=F64), rtol=0, atol=5e-4
    )
    away = np.corrcoef(labels.T.numpy()) - np.eye(40)
    assert 0.05 < np.abs(away).mean() < 0.3
    assert 0.3 < np.abs(away).max() < 0.9
    pictures = data.pictures("train").double()
    assert 100 < pictures.mean() < 150
    assert pictures.std() > 30
    few = faces("celeba_synth", "", 10, 5)
    assert torch.equal(few.pictures("train"), data.pictures("train")[:10])
    assert torch.equal(few.test_labels, data.test_labels[:5])
    assert few.digest != data.digest
    for options, message in (
        ((2001, None), "train_size=2001.*2000 train"),
        ((None, 501), "test_size=501.*500 test"),
    ):
        with pytest.raises(ConfigError, match=message):
            faces("celeba_synth", "", *options)


# --- the problem --------------------------------------------------------------------------------------------


def tiny(**options: Any) -> FaceAttributes:
    return FaceAttributes(**({"train_size": 60, "test_size": 20, "hidden": 5} | options))


def data_of(p: FaceAttributes, split: str = "train") -> tuple[Tensor, Tensor]:
    """Inputs in [-1, 1] and labels."""
    faces = p.faces
    labels = faces.train_labels if split == "train" else faces.test_labels
    return faces.pictures(split).double() / 127.5 - 1.0, labels[:, p.chosen].double()


def scores(p: FaceAttributes, theta: Tensor, x: Tensor) -> Tensor:
    """Scores of one network, by PyTorch's modules or the network of the project."""
    if p.model == "resnet18":
        return resnet("resnet18", 3, 16, p.n_objectives).logits(theta.unsqueeze(0), x.unsqueeze(0), "loop")[0]
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(768, p.hidden), nn.Tanh(), nn.Linear(p.hidden, p.n_objectives)
    ).double()
    sizes = [a.numel() for a in net.parameters()]
    parts = zip(net.parameters(), theta.split(sizes), strict=True)
    parameters = dict(
        zip([n for n, _ in net.named_parameters()], [part.view_as(a) for a, part in parts], strict=True)
    )
    return torch.func.functional_call(net, parameters, (x,))


def by_hand(p: FaceAttributes, theta: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and rows of one network."""
    leaf = theta.clone().requires_grad_(True)
    z = scores(p, leaf, x)
    losses = torch.stack([fn.binary_cross_entropy_with_logits(z[:, m], y[:, m]) for m in range(y.shape[1])])
    return losses.detach(), torch.stack([torch.autograd.grad(f, leaf, retain_graph=True)[0] for f in losses])


def test_sizes() -> None:
    p = FaceAttributes()
    assert (p.n_objectives, p.dim, p.n_samples) == (40, 768 * 64 + 64 + 64 * 40 + 40, 2000)
    assert torch.equal(p.ideal_point, torch.zeros(40, dtype=F64))
    deep = FaceAttributes(model="resnet18", attributes=[0, 5, 7])
    assert deep.dim == 11_168_832 + 3 * 513
    assert deep.network.entries[-2].shape == (3, 512)


def test_attributes_by_name_and_number(folder: Path) -> None:
    p = FaceAttributes(data="celeba", data_root=str(folder), attributes=["Smiling", 20, "Young"])
    assert p.chosen == [31, 20, 39]
    assert p.faces.attributes[20] == "Male"
    assert p.facts()["attributes"] == ["Smiling", "Male", "Young"]
    assert p.n_objectives == 3
    rate = p.faces.train_labels[:, [31, 20, 39]].double().mean(0)
    entropy = -(torch.xlogy(rate, rate) + torch.xlogy(1 - rate, 1 - rate))
    torch.testing.assert_close(p.constant_losses, entropy)
    for wrong, message in (
        (
            ["Smile"],
            (
                r"contains 'Smile', but CelebA, 64 x 64 has 5_o_Clock_Shadow \.\. Young, "
                r"or numbers 0\.\.39\. "
                r"Did you mean"
            ),
        ),
        ([40], "contains 40"),
        ([-1], "contains -1"),
        ([True], "contains True"),
        ([], "must name one or more attributes"),
        ([20, "Male"], "each only once"),
        ("Male", r"must be a list: problem\.attributes=\[Male\]"),
    ):
        with pytest.raises(ConfigError, match=message):
            FaceAttributes(data="celeba", data_root=str(folder), attributes=wrong)
    assert FaceAttributes(attributes=["attribute_03"]).chosen == [2]
    with pytest.raises(ConfigError, match="contains 'Male', but generated pictures"):
        FaceAttributes(attributes=["Male"])


def test_constant_losses_are_those_of_the_best_constant() -> None:
    p = tiny(train_size=200, attributes=[3, 8])
    _, y = data_of(p)
    z = torch.linspace(-6, 6, 4001, dtype=F64).view(-1, 1, 1)
    best = (fn.softplus(z) - y * z).mean(1).amin(0)
    torch.testing.assert_close(p.constant_losses, best, rtol=1e-5, atol=0)
    runs = runs_of(2, 1)
    point = LossCap(Epochs(p, runs, 50), p, runs, ratio=1.0).at(p.initial(runs), {}, 0)
    torch.testing.assert_close(point.G, point.F - p.constant_losses)
    rare = tiny(train_size=4)  # an attribute that no picture has
    assert (rare.constant_losses == 0).any()
    assert rare.constant_losses.isfinite().all()


@pytest.mark.parametrize("model", ["small", "resnet18"])
@pytest.mark.parametrize("kind", ["one group", "groups", "indices"])
@pytest.mark.usefixtures("thin")
def test_losses_and_rows_are_those_of_single_networks(kind: str, model: str) -> None:
    p = tiny(model=model, attributes=None if model == "small" else [4, 1])
    M = p.n_objectives
    R = 4 if model == "small" else 2
    theta = p.initial(runs_of(M, 2, (4, 2)))[:R]
    chosen = torch.randint(0, 60, (4, 6), generator=torch.Generator().manual_seed(1))
    batch: Any = {
        "one group": Batch(chosen[:1], torch.zeros(R, dtype=torch.int64)),
        "groups": Batch(chosen[:3], torch.tensor([2, 0, 2, 1])[:R]),
        "indices": chosen[:R],
    }[kind]
    graph = GraphPoint(lambda x: p.values(x, batch), theta, Free(), M, {})
    closed = p.linearize(theta, batch)
    assert (closed is None) == (model == "resnet18")
    J = graph.jacobian()
    if closed is not None:
        torch.testing.assert_close(closed[0], graph.values(), rtol=1e-14, atol=0)
        torch.testing.assert_close(closed[1](), J, rtol=1e-11, atol=1e-14)
    x, y = data_of(p)
    for r in range(R):
        index = {"one group": chosen[0], "groups": chosen[(2, 0, 2, 1)[r]], "indices": chosen[r]}[kind]
        f, g = by_hand(p, theta[r], x[index], y[index])
        torch.testing.assert_close(graph.values()[r], f, rtol=1e-12, atol=0)
        torch.testing.assert_close(J[r], g, rtol=1e-8, atol=1e-11)


@pytest.mark.usefixtures("thin")
def test_fewer_networks_at_once_give_the_same() -> None:
    runs = runs_of(2, 2)
    answers = []
    for options in ({}, {"max_batch_runs": 1}):
        p = tiny(model="resnet18", attributes=[4, 1], train_size=12, test_size=6, **options)
        assert p.strategy(torch.device("cpu")) == "loop"
        point = Epochs(p, runs, 4).at(p.initial(runs), {}, 1)
        columns = p.columns(point.x, point.values())
        answers.append((point.values(), point.vjp(runs.weights), torch.stack(list(columns.values()))))
    for other in answers[1:]:
        for value, wanted in zip(other, answers[0], strict=True):
            torch.testing.assert_close(value, wanted, rtol=1e-8, atol=1e-11)
    small = tiny(max_batch_runs=1)
    theta = small.initial(runs_of(40, 2))
    torch.testing.assert_close(small.columns(theta, theta), tiny().columns(theta, theta))


def test_pictures_fetched_in_inference_mode_serve_autodiff_later() -> None:
    p = tiny()
    theta = p.initial(runs_of(40, 1)).float()
    with torch.inference_mode():
        p.values(theta)
    leaf = theta.requires_grad_(True)
    assert (
        torch.autograd.grad(p.values(leaf, torch.zeros(1, 3, dtype=torch.int64)).sum(), leaf)[0]
        .isfinite()
        .all()
    )


@pytest.mark.parametrize("model", ["small", "resnet18"])
@pytest.mark.usefixtures("thin")
def test_columns_and_values_over_whole_parts(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 7 * 768)
    monkeypatch.setattr(module, "EVALUATED", 7)
    p = tiny(model=model, attributes=[9, 2, 30], train_size=20, test_size=10)
    theta = p.initial(runs_of(3, 2))
    values = p.values(theta)
    columns = p.columns(theta, values)
    errors = [f"test_error_{m}" for m in (1, 2, 3)]
    assert list(columns) == ["test_loss_mean", "test_error_mean", *errors]
    assert p.values(theta) is values  # the same tensor is not evaluated again
    for r in range(2):
        for split in ("train", "test"):
            x, y = data_of(p, split)
            z = torch.cat([scores(p, theta[r], part) for part in x.tensor_split(-(-len(x) // 7))])
            loss = fn.binary_cross_entropy_with_logits(z, y, reduction="none").mean(0)
            if split == "train":
                torch.testing.assert_close(values[r], loss, rtol=1e-10, atol=0)
                continue
            torch.testing.assert_close(columns["test_loss_mean"][r], loss.mean(), rtol=1e-10, atol=0)
            wrong = ((z > 0).double() != y).double().mean(0)
            shares = torch.stack([columns[f"test_error_{m}"][r] for m in (1, 2, 3)])
            torch.testing.assert_close(shares, wrong, rtol=1e-14, atol=0)
            torch.testing.assert_close(columns["test_error_mean"][r], wrong.mean(), rtol=1e-14, atol=0)


# --- jobs ---------------------------------------------------------------------------------------------------

JOB = ("problem=face_attributes", "scale=smoke", "oracle=epochs", "preferences=1", "logger=local")


def test_smoke_job(mobench: Run) -> None:
    result = mobench(
        *JOB, "oracle.batch_size=64", "steps=60", "algorithm=ls", "algorithm.step_size=2.0", "record.every=0"
    )
    assert result.code == 0, result.err
    meta = json.loads((result.job.path / "meta.json").read_text())
    assert (meta["embedded"], meta["train_size"], meta["test_size"]) == (True, 256, 128)
    assert "stand-in" in meta["data"]
    assert meta["data_sha256"] == faces("celeba_synth", "", 256, 128).digest
    row = result.rows.iloc[0]
    assert row["status"] == "done"
    assert row["test_error_mean"] < 0.25  # 0.5 at the start
    assert {f"test_error_{m}" for m in range(1, 41)} <= set(result.rows)
