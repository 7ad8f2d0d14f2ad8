"""Speech: features, network, losses and gradients, decoding, official folders, Algorithm 3."""

from __future__ import annotations

import itertools
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal
import torch
from torch import Tensor

from mobench.algorithms.ferero import FERERO
from mobench.algorithms.ferero_sa import FEREROSA
from mobench.algorithms.ls import LS
from mobench.core import loop
from mobench.core.preferences import Runs
from mobench.data import logmel
from mobench.data import speech as corpora
from mobench.data.speech_units import characters, subwords
from mobench.errors import ConfigError, DataError
from mobench.metrics.recognition import error_rate, greedy, prefix_beam
from mobench.models.conformer import MODELS, Conformer, shifted
from mobench.oracles import Exact, Minibatch
from mobench.problems import BilingualSpeech, SpeechSurrogate, warm_start
from mobench.problems.bilingual_speech import contrastive

TINY: dict[str, Any] = {"model": "tiny", "train_size": 6, "test_size": 3}


def problem(**changes: Any) -> BilingualSpeech:
    return BilingualSpeech(**{**TINY, **changes})


def runs(*seeds: int, M: int = 3) -> Runs:
    return Runs.product(torch.full((1, M), 1.0 / M, dtype=torch.float64), list(seeds))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# features


def test_log_mel_against_scipy() -> None:
    wave = torch.from_numpy(np.random.default_rng(0).standard_normal(4000)).float()
    ours = logmel.log_mel(wave, 8000, 20)
    assert ours.shape == (logmel.frames(4000, 8000), 20)
    padded = np.pad(wave.numpy().astype(float), 128)
    window = np.pad(scipy.signal.get_window("hann", 200), 28)
    spectrum = [
        np.abs(np.fft.rfft(padded[t : t + 256] * window)) ** 2 for t in range(0, len(padded) - 255, 80)
    ]
    bank = logmel.filters(20, 129, 8000).numpy()
    raw = np.log(np.array(spectrum) @ bank + 1e-6)
    np.testing.assert_allclose(ours, (raw - raw.mean(0)) / raw.std(0), atol=2e-4)
    assert (bank.max(0) > 0.4).all()
    assert (np.diff(bank.argmax(0)) > 0).all()


def test_silence_has_no_scale() -> None:
    assert torch.equal(logmel.log_mel(torch.zeros(1600), 8000, 8), torch.zeros(21, 8))


def test_spec_augment_hides_what_it_says() -> None:
    u = torch.rand(50, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lengths = torch.full((50,), 40)
    hidden = logmel.spec_augment(u, lengths, 60, 20, 0.25, 0.5)
    in_time = hidden.all(2)
    assert not in_time[:, 40:].any()  # behind the clip there is nothing to hide
    assert int(in_time.sum(1).max()) <= 11
    assert int(in_time.sum(1).max()) >= 8
    assert int(hidden[:, 50].sum(1).max()) in (9, 10)
    assert not logmel.spec_augment(u, lengths, 60, 20, 0.0, 0.0).any()


# network


def test_the_paper_size_has_the_papers_parameters() -> None:
    net = MODELS["paper"]
    assert abs(net.dim - 64.5e6) < 0.1e6
    assert abs(net.dim - net.head_dim - net.steps * net.width**2 - 58.4e6) < 0.3e6
    assert (net.blocks, net.width, net.heads, net.kernel, net.zh, net.en) == (8, 512, 8, 31, 5000, 1000)


def test_relative_shift() -> None:
    x = torch.arange(4 * 7.0).view(4, 7)
    wanted = [[x[i, 3 - i + j] for j in range(4)] for i in range(4)]
    assert torch.equal(shifted(x), torch.tensor(wanted))


def small_net() -> tuple[Conformer, dict[str, Tensor], Tensor]:
    net = replace(MODELS["tiny"], zh=5, en=4, layers=2, blocks=2, kernel=5)
    rng = np.random.default_rng(0)
    theta = torch.from_numpy(np.stack([net.initial(rng) for _ in range(3)]))
    theta = theta + 0.3 * torch.from_numpy(
        rng.standard_normal(theta.shape)
    )  # norms and attention biases that do something
    return net, net.split(theta), torch.from_numpy(rng.standard_normal((3, 2, 30, 8)))


def encoded(
    net: Conformer, w: dict[str, Tensor], x: Tensor, frames: Tensor, past: bool
) -> tuple[Tensor, Tensor]:
    z, lengths = net.front(w, x, frames)
    return net.encode(w, z, lengths, past), lengths


@pytest.mark.parametrize("past", [False, True])
def test_a_clip_does_not_know_its_batch(past: bool) -> None:
    """Other clips, longer padding and what stands in it change no output; nor do other runs."""
    net, w, x = small_net()
    frames = torch.tensor([[30, 19], [22, 30], [17, 18]])
    out, lengths = encoded(net, w, x, frames, past)
    for r, b in itertools.product(range(3), range(2)):
        n = int(frames[r, b])
        weights = {k: v[r : r + 1] for k, v in w.items()}
        alone, m = encoded(net, weights, x[r : r + 1, b : b + 1, :n], frames[r : r + 1, b : b + 1], past)
        assert int(m) == int(lengths[r, b]) == net.length(n)
        torch.testing.assert_close(out[r, b, : int(m)], alone[0, 0], atol=1e-10, rtol=0)


def test_past_frames_know_no_future() -> None:
    net, w, x = small_net()
    frames = torch.full((3, 2), 30)
    late = x.clone()
    late[:, :, 20:] += 1.0  # the front's frame t sees input frames 4 t - 3 .. 4 t + 3
    for past in (True, False):
        change = (
            (encoded(net, w, x, frames, past)[0] - encoded(net, w, late, frames, past)[0])
            .abs()
            .amax((0, 1, 3))
        )
        assert (float(change[:4].max()) < 1e-12) == past
        assert float(change[5:].min()) > 1e-6


# losses


def ctc(log: np.ndarray, target: list[int]) -> float:
    """-log of the sum over all paths that collapse to the target."""
    T, C = log.shape
    total = 0.0
    for path in itertools.product(range(C), repeat=T):
        if [c for t, c in enumerate(path) if c and (t == 0 or c != path[t - 1])] == target:
            total += math.exp(sum(log[t, c] for t, c in enumerate(path)))
    return -math.log(total)


def test_ctc_is_the_sum_over_all_paths() -> None:
    """The problem's own losses of short clips equal those by enumeration."""
    p = problem(objectives=["zh", "en"])
    x = p.initial(runs(0, 1, M=2))
    clips = p.clips("en", torch.tensor([[0, 1], [2, 3]]), "train", x)
    keep = 14  # frames: 7 of the network
    clips = clips._replace(mel=clips.mel[:, :, :keep], frames=clips.frames.clamp_max(keep))
    targets = torch.tensor([2, 3, 2, 2, 3])
    clips = clips._replace(targets=targets, sizes=torch.tensor([[1, 1], [2, 1]]))
    scores = p.scored(x, {"en": clips}, ["en"])
    loss = scores.losses["en"]
    heard = scores.heard
    log = torch.log_softmax(heard["en"][0][..., :4], dim=-1).numpy()  # four units: 4^7 paths
    parts = iter(targets.split([1, 1, 2, 1]))
    for r, b in itertools.product(range(2), range(2)):
        target = next(parts).tolist()
        expected = torch.nn.functional.ctc_loss(
            torch.from_numpy(log[r, b]).unsqueeze(1),
            torch.tensor([target]),
            (7,),
            (len(target),),
            reduction="sum",
        )
        assert ctc(log[r, b], target) == pytest.approx(float(expected), abs=1e-9)
        whole = torch.nn.functional.ctc_loss(
            heard["en"][0][r, b].unsqueeze(1), torch.tensor([target]), (7,), (len(target),), reduction="sum"
        )
        assert float(loss[r, b]) == pytest.approx(float(whole) / len(target), abs=1e-9)


def by_hand(c: np.ndarray, z: np.ndarray, K: int, negatives: int, temperature: float) -> float:
    n = len(z)
    total = 0.0
    count = 0
    for k in range(1, K + 1):
        for t in range(n - k):
            places = [t + k, *sorted({i * n // (negatives + 1) for i in range(1, negatives + 1)} - {0})]
            places = [places[0], *((t + k + o) % n for o in places[1:])]
            s = [
                c[t, k - 1] @ z[j] / np.linalg.norm(c[t, k - 1]) / np.linalg.norm(z[j]) / temperature
                for j in places
            ]
            total = total + np.log(np.exp(s).sum()) - s[0]
            count = count + 1
    return total / count


@pytest.mark.parametrize("negatives", [3, 6, 20])
def test_contrastive_by_hand(negatives: int) -> None:
    rng = np.random.default_rng(1)
    c = rng.standard_normal((2, 2, 9, 2, 4))
    z = rng.standard_normal((2, 2, 9, 4))
    lengths = torch.tensor([[9, 5], [7, 9]])
    loss = contrastive(torch.from_numpy(c), torch.from_numpy(z), lengths, negatives, 0.5)
    for r, b in itertools.product(range(2), range(2)):
        n = int(lengths[r, b])
        assert float(loss[r, b]) == pytest.approx(
            by_hand(c[r, b, :n], z[r, b, :n], 2, negatives, 0.5), abs=1e-10
        )


def test_gradients_against_finite_differences() -> None:
    """Every row of the Jacobian, CPC and both CTC losses, along random directions and at the heads."""
    p = problem()
    x = p.initial(runs(0, 1))
    point = Minibatch(p, runs(0, 1), 2).at(x, {}, 0)
    batch = p.draw(Minibatch(p, runs(0, 1), 2).keys, "batch0", 0, 2)
    rows = point.jacobian()
    h = 1e-6
    rng = np.random.default_rng(0)
    heads = torch.zeros_like(x)
    heads[:, -p.network.head_dim :] = 1.0
    for v in (
        torch.from_numpy(rng.standard_normal(x.shape)),
        heads * torch.from_numpy(rng.standard_normal(x.shape)),
    ):
        wanted = (p.values(x + h * v, batch) - p.values(x - h * v, batch)) / (2 * h)
        torch.testing.assert_close(torch.einsum("rmp,rp->rm", rows, v), wanted, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(point.jvp(v), wanted, atol=1e-6, rtol=1e-6)
    assert float(rows[:, 0, -p.network.head_dim :].abs().max()) == 0.0  # CPC does not know the heads


def test_heads_take_smaller_steps() -> None:
    """One step of descent moves the network's heads head_rate times as far as without the rate."""
    ends = []
    for rate in (1.0, 0.25):
        p = problem(head_rate=rate, masks=0)
        oracle = Minibatch(p, runs(0), 3, samples=1)
        method = LS(step_size=0.1)
        state = loop.start(oracle, method, {}, p.initial(runs(0)), runs(0), 1)
        first = p._scale(state["theta"], 0.5)
        ends.append((first, p._scale(loop.advance(oracle, method, {}, state, 1)["theta"], 0.5)))
    torch.testing.assert_close(ends[0][0], ends[1][0])
    heads = slice(p.dim - p.network.head_dim, None)
    moved = [(b - a)[0] for a, b in ends]
    torch.testing.assert_close(moved[1][heads], 0.25 * moved[0][heads])
    torch.testing.assert_close(moved[1][: heads.start], moved[0][: heads.start])
    assert float(moved[0][heads].abs().max()) > 0


def test_losses_do_not_depend_on_the_batch() -> None:
    p = problem(train_size=6)
    x = p.initial(runs(0))
    every = torch.arange(6).unsqueeze(0)
    together = p.losses(x, {language: p.clips(language, every, "train", x) for language in corpora.LANGUAGES})
    for language in corpora.LANGUAGES:
        for i in range(6):
            alone = p.losses(x, {language: p.clips(language, torch.tensor([[i]]), "train", x)})
            at = i if language == "zh" else 6 + i
            torch.testing.assert_close(alone["cpc"][0, 0], together["cpc"][0, at], atol=1e-12, rtol=0)
            torch.testing.assert_close(alone[language][0, 0], together[language][0, i], atol=1e-12, rtol=0)
    mean = torch.stack([together[o].mean(1) for o in ("cpc", "zh", "en")], dim=1)
    torch.testing.assert_close(p.values(x), mean)  # shards of the evaluation included


def test_all_ways_of_computing_agree() -> None:
    p = problem()
    x = p.initial(runs(0, 1, 2))
    oracle = Minibatch(p, runs(0, 1, 2), 2)
    together = oracle.at(x, {}, 5)
    for r in range(3):
        alone = Minibatch(p, runs(r), 2).at(x[r : r + 1], {}, 5)
        torch.testing.assert_close(together.values()[r : r + 1], alone.values(), atol=1e-12, rtol=0)
    parts = Minibatch(problem(max_batch_runs=1), runs(0, 1, 2), 2).at(x, {}, 5)
    torch.testing.assert_close(parts.jacobian(), together.jacobian(), atol=1e-12, rtol=0)


# decoding


def test_prefix_beam_is_exact_with_all_prefixes() -> None:
    rng = np.random.default_rng(2)
    differs = 0
    for _ in range(20):
        log = np.log(rng.dirichlet(np.ones(3) * 0.7, size=5))
        score: dict[tuple[int, ...], float] = {}
        for path in itertools.product(range(3), repeat=5):
            said = tuple(c for t, c in enumerate(path) if c and (t == 0 or c != path[t - 1]))
            score[said] = score.get(said, 0.0) + math.exp(sum(log[t, c] for t, c in enumerate(path)))
        best = max(score, key=lambda said: score[said])
        assert tuple(prefix_beam(log, 1000)) == best
        differs += tuple(greedy(log)) != best
    assert differs > 0  # else the search would add nothing


def test_decoding_is_a_choice() -> None:
    """Two frames, blank .4, a unit .35 each: blanks are the likeliest path, the unit the likelier text."""
    frame = torch.tensor([0.4, 0.0, 0.35, 0.25]).clamp_min(1e-9).log()
    # frames behind the end do not count
    log = frame.expand(1, 1, 4, 4)
    lengths = torch.tensor([[2]])
    unit = problem().units["zh"].decode([2])
    assert problem().decode("zh", log, lengths) == [[""]]
    assert problem(beam=4).decode("zh", log, lengths) == [[unit]]


def test_greedy_joins_and_drops() -> None:
    log = np.log(np.eye(4)[[0, 1, 1, 0, 1, 2, 2, 3, 0]] + 1e-9)
    assert greedy(log) == [1, 1, 2, 3] == prefix_beam(log, 4)


def test_error_rates() -> None:
    assert error_rate("wer", ["one two three", "four"], ["one too three", ""]) == pytest.approx(2 / 4)
    assert error_rate("cer", ["零一二", "三"], ["零二", "三"]) == pytest.approx(1 / 4)


def test_units() -> None:
    u = characters(["aab", "b c"], 4)
    assert u.table == ("", "\ufffd", "a", "b")
    assert u.encode("bax") == [3, 2, 1]
    assert u.decode([3, 2]) == "ba"
    # a head of the paper's size has outputs that no unit needs
    assert u.decode([2, 4, 99]) == "a\ufffd\ufffd"
    texts = ["the cat sat on the mat", "the dog sat"] * 5
    s = subwords(texts, 24)
    assert len(s) <= 24
    assert min(s.encode(texts[0])) >= 1
    assert s.decode(s.encode(texts[1])) == texts[1]
    assert subwords(texts, 24).table == s.table
    assert s.decode([*s.encode(texts[1]), 1000]).startswith(texts[1])


# official folders


def write(path: Path, seconds: float = 0.5, rate: int = 16000) -> None:
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    tone = 0.3 * np.sin(np.arange(int(seconds * rate)) * 0.2)
    soundfile.write(path, tone.astype(np.float32), rate)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """Both corpora in their layouts, four training and two test utterances each."""
    root = tmp_path / "data"
    for part, chapters in (("train-clean-100", ("1/10", "2/20")), ("test-clean", ("3/30",))):
        for chapter in chapters:
            a, b = chapter.split("/")
            folder = root / "LibriSpeech" / part / a / b
            for k in range(2):
                write(folder / f"{a}-{b}-000{k}.flac")
            (folder / f"{a}-{b}.trans.txt").write_text(f"{a}-{b}-0000 AB CD\n{a}-{b}-0001 IT'S\n")
    lines = []
    for split, speakers in (("train", ("S1", "S2")), ("test", ("S3",))):
        for s in speakers:
            for k in range(2):
                write(root / "data_aishell/wav" / split / s / f"B{s}W{k}.wav")
                lines.append(f"B{s}W{k} 而 对" if k else f"B{s}W{k} 楼市 对")
    path = root / "data_aishell/transcript/aishell_transcript_v0.8.txt"
    path.parent.mkdir()
    path.write_text("\n".join(lines))
    return root


def load(root: Path, **sizes: Any) -> corpora.Speech:
    corpora._speech.cache_clear()
    return corpora.speech("librispeech_aishell", root, **sizes)


def test_official_layouts(official: Path) -> None:
    data = load(official)
    assert [len(data.utterances[k][s]) for k in ("zh", "en") for s in ("train", "test")] == [4, 2, 4, 2]
    assert {u.text for u in data.utterances["en"]["train"]} == {"ab cd", "it's"}
    assert {u.text for u in data.utterances["zh"]["test"]} == {"而对", "楼市对"}
    assert not data.in_memory
    assert data.samples("en", data.utterances["en"]["test"][0]).shape == (8000,)
    assert len(load(official, train_size=1).utterances["zh"]["train"]) == 1
    with pytest.raises(ConfigError, match=r"train_size=5.*4 train utterances.*Choose 1..4"):
        load(official, train_size=5)


def broken(root: Path, what: str) -> list[str]:
    """Break the folders in one way; what the message must say."""
    libri = root / "LibriSpeech/train-clean-100"
    transcript = root / "data_aishell/transcript/aishell_transcript_v0.8.txt"
    if what == "no folder":
        (root / "LibriSpeech").rename(root / "other")
        words = ["LibriSpeech/train-clean-100", "could not be found", "data_root", "openslr.org/12"]
        return [*words, "embedded"]
    if what == "no transcripts":
        (libri / "1/10/1-10.trans.txt").unlink()
        return ["1-10.trans.txt could not be read"]
    if what == "unlisted":
        (libri / "1/10/1-10.trans.txt").write_text("1-10-0000 AB\n")
        return ["1 utterances lack a recording (.flac) or a line in 1-10.trans.txt", "1-10-0001"]
    if what == "lost":
        (libri / "2/20/2-20-0001.flac").unlink()
        return ["lack a recording", "2-20-0001"]
    if what == "empty text":
        (libri / "1/10/1-10.trans.txt").write_text("1-10-0000 AB\n1-10-0001\n")
        return ["transcript of 1-10-0001 is empty"]
    if what == "no aishell":
        transcript.unlink()
        return ["aishell_transcript_v0.8.txt", "could not be found"]
    if what == "packed":
        for file in (root / "data_aishell/wav/train").glob("*/*.wav"):
            file.unlink()
        return ["needs SPEAKER/NAME.wav in", "wav/train", "unpack the archives"]
    transcript.write_text("\n".join(transcript.read_text().splitlines()[1:]))
    return ["no transcript of 1 of 6 recordings", "BS1W0", "at most 1%"]


WAYS = [
    "no folder", "no transcripts", "unlisted", "lost", "empty text", "no aishell", "packed",
    "too many unlisted",
]  # fmt: skip


@pytest.mark.parametrize("what", WAYS)
def test_broken_folders(official: Path, what: str) -> None:
    words = broken(official, what)
    with pytest.raises(DataError) as error:
        load(official)
    for word in words:
        assert word in str(error.value), str(error.value)


@pytest.mark.parametrize("what", ["rate", "channels", "empty", "noise", "short", "gone"])
def test_broken_audio_is_refused_with_its_name(official: Path, what: str) -> None:
    import soundfile

    data = load(official)
    one = data.utterances["zh"]["train"][0]
    assert one.path is not None
    words = {
        "rate": "has 8000 samples per second and 1 channels, but expected 16000 and one",
        "channels": "and 2 channels, but expected 16000 and one",
        "empty": f"The utterance {one.name} is empty",
        "noise": "could not be read as audio",
        "short": f"The utterance {one.name} is too short: 3 frames of 10 ms become 2 of the network",
        "gone": "could not be read as audio",
    }
    if what == "noise":
        one.path.write_bytes(b"not audio")
    elif what == "gone":
        one.path.unlink()
    elif what == "channels":
        soundfile.write(one.path, np.zeros((4000, 2), dtype=np.float32), 16000)
    else:
        write(one.path, {"rate": 0.5, "empty": 0.0, "short": 0.02}[what], 8000 if what == "rate" else 16000)
    p = BilingualSpeech(data="librispeech_aishell", data_root=str(official), model="tiny")
    with pytest.raises(DataError) as error:
        p.features("zh", "train", 0)
    assert words[what] in str(error.value), str(error.value)
    assert one.name in str(error.value)


def test_the_small_set(tmp_path: Path) -> None:
    folder = tmp_path / "speech"
    folder.mkdir()
    sound = (3000 * np.sin(np.arange(40000) * 0.3)).astype(np.int16)
    cut = np.arange(0, 40001, 4000)
    fields = {"audio": sound, "offsets": cut, "sample_rate": np.array(8000)}
    np.savez(folder / "english_digits.npz", text=np.array(["one"] * 10), is_test=np.arange(10) < 2, **fields)
    np.savez(folder / "mandarin_words.npz", text=np.array(["零一"] * 10), **fields)
    data = corpora.speech("small", tmp_path)
    assert [len(data.utterances[k][s]) for k in ("zh", "en") for s in ("train", "test")] == [8, 2, 8, 2]
    assert data.in_memory
    assert data.samples("en", data.utterances["en"]["test"][0]).abs().max() == pytest.approx(
        3000 / 32768, rel=1e-3
    )
    np.savez(folder / "mandarin_words.npz", text=np.array(["零一"] * 9), **fields)
    corpora._speech.cache_clear()
    with pytest.raises(DataError, match="9 texts, 11 offsets up to 40000 of 40000 samples"):
        corpora.speech("small", tmp_path)
    (folder / "english_digits.npz").unlink()
    with pytest.raises(DataError, match=r"data=speech_small needs english_digits\.npz"):
        corpora.speech("small", tmp_path)


@pytest.mark.data("speech_small")
def test_the_real_small_set(data_folder: Path) -> None:
    p = BilingualSpeech(data="small", data_root=str(data_folder), model="laptop")
    facts = p.facts()
    counts = [facts[f"{split}_{k}"] for k in corpora.LANGUAGES for split in ("train", "test")]
    assert counts == [161, 40, 300, 300]
    for language in corpora.LANGUAGES:
        for split in ("train", "test"):
            for i in range(facts[f"{split}_{language}"]):
                p.features(language, split, i)  # none is refused
    assert p.units["en"].decode(p.units["en"].encode("seven")) == "seven"


def test_generated_is_the_same_everywhere() -> None:
    corpora.speech("generated", "", 5, 5)
    utterances, audio = corpora.generated()
    assert [len(utterances[k][s]) for k in corpora.LANGUAGES for s in ("train", "test")] == [96, 32, 96, 32]
    assert {u.text for u in utterances["zh"]["train"]} >= {"一", "二"}
    assert all(len(audio[k]) == utterances[k]["test"][-1].stop for k in corpora.LANGUAGES)
    assert corpora.speech("generated", "").label.endswith("(no speech)")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("objectives", ["zh", "cpc"], "in this order"),
        ("objectives", [], "is empty"),
        ("mask_time", 1.0, r"mask_time=1.0 must lie in \[0, 1\)"),
        ("start", {"kind": "ls"}, "steps, step_size, batch_size"),
    ],
)
def test_settings_that_cannot_be(key: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        problem(**{key: value})


# starts


def test_the_start_is_trained_once_and_kept(cache: Path) -> None:
    start = {"kind": "ls", "steps": 30, "step_size": 0.02, "batch_size": 4}
    p = problem(start=start)
    plain = problem()
    both = p.initial(runs(0, 1))
    before = plain.values(plain.initial(runs(0, 1)))
    after = plain.values(both)
    assert (after.mean(1) < 0.8 * before.mean(1)).all()
    files = {f.name: f.stat().st_mtime_ns for f in cache.glob("start-*.npy")}
    assert len(files) == 2
    torch.testing.assert_close(p.initial(runs(1)), both[1:], atol=0, rtol=0)
    assert {f.name: f.stat().st_mtime_ns for f in cache.glob("start-*.npy")} == files
    problem(start={**start, "steps": 2}).initial(runs(0))
    problem(start=start, masks=0).initial(runs(0))
    assert len(list(cache.glob("start-*.npy"))) == 4


def test_an_interrupted_start_goes_on(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = {"kind": "ls", "steps": 8, "step_size": 0.02, "batch_size": 2}
    whole = problem(start=start).initial(runs(0))
    for file in cache.iterdir():
        file.unlink()
    monkeypatch.setattr("mobench.problems.warm_start.SAVED", 0.0)
    original = BilingualSpeech.values
    calls = []

    def stops(self: BilingualSpeech, x: Tensor, batch: Any = None) -> Tensor:
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return original(self, x, batch)

    monkeypatch.setattr(BilingualSpeech, "values", stops)
    with pytest.raises(KeyboardInterrupt):
        problem(start=start).initial(runs(0))
    assert len(list(cache.glob("*.pt"))) == 1
    assert torch.equal(problem(start=start).initial(runs(0)), whole)
    assert len(calls) == 6 + 3  # five steps were kept
    assert not list(cache.glob("*.pt"))


def test_who_needs_a_start_that_is_being_trained_waits(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    original = warm_start._train

    def slow(*args: Any) -> None:
        trained.append(1)
        time.sleep(0.2)
        original(*args)

    monkeypatch.setattr(warm_start, "_train", slow)
    p = problem(start={"kind": "ls", "steps": 2, "step_size": 0.02, "batch_size": 2})
    p.initial(runs(1))  # what is made once per process is made
    with ThreadPoolExecutor(3) as pool:
        starts = list(pool.map(lambda _: p.initial(runs(0)), range(3)))
    assert len(trained) == 2
    assert all(torch.equal(x, starts[0]) for x in starts)


def test_a_start_from_a_file(tmp_path: Path) -> None:
    p = problem()
    row = p.network.initial(np.random.default_rng(0))
    np.save(tmp_path / "net.npy", row)
    x = problem(start={"kind": "file", "path": str(tmp_path / "net.npy")}).initial(runs(0, 1))
    torch.testing.assert_close(p._scale(x, 0.5)[1], torch.from_numpy(row))
    np.save(tmp_path / "net.npy", row[1:])
    with pytest.raises(DataError, match=f"the network has {p.dim} parameters"):
        problem(start={"kind": "file", "path": str(tmp_path / "net.npy")}).initial(runs(0))


# constraints


LINE: dict[str, Any] = {"line": "matrix", "equality_matrix": [[0.0, 1.0, -1.0]], "equality_offset": [-0.5]}


def test_the_surrogate_ends_on_both_constraints() -> None:
    p = SpeechSurrogate()
    x0 = p.initial(runs(0))
    point = Exact(p, runs(0)).at(x0, {}, 0)
    assert float(point.jacobian().mean(1).abs().max()) < 1e-12  # the start minimises the mean
    half = (p.values(x0 + 1e-4) + p.values(x0 - 1e-4) - 2 * p.values(x0)) / 1e-8  # 1'Hess 1
    hessian = torch.stack(
        [point.hvp(w, torch.ones_like(x0)).sum(1) for w in torch.eye(3).double().unsqueeze(1)], dim=1
    )
    torch.testing.assert_close(hessian, half, atol=1e-5, rtol=1e-5)
    f0 = p.values(x0)[0]
    assert float(f0[0]) > 1.3
    assert abs(float(f0[1] - f0[2]) - 0.5) > 0.1
    method = FERERO(upper=(1.2, None, None), **LINE, step_size=0.05)
    oracle = Exact(p, runs(0))
    state = loop.advance(oracle, method, {}, loop.start(oracle, method, {}, x0, runs(0), 400), 400)
    f = p.values(state["theta"])[0]
    assert float(f[0]) <= 1.2 + 1e-2
    assert abs(float(f[1] - f[2]) - 0.5) < 1e-2
    assert not state["fail"].any()


def test_the_single_loop_ends_there_too() -> None:
    """Algorithm 2 with an inequality (our extension) and an equality; without the bound it ends above it."""
    p = SpeechSurrogate()
    ends = []
    for upper in ((1.2, None, None), None):
        method = FEREROSA(upper=upper, **LINE, step_size=0.02, gamma=0.05)
        oracle = Exact(p, runs(0))
        state = loop.start(oracle, method, {}, p.initial(runs(0)), runs(0), 3000)
        ends.append(p.values(loop.advance(oracle, method, {}, state, 3000)["theta"])[0])
    for f in ends:
        assert abs(float(f[1] - f[2]) - 0.5) < 1e-2
    assert float(ends[0][0]) <= 1.2 + 1e-2 < float(ends[1][0])
