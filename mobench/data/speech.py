"""Speech in Mandarin and English: transcripts and places of audio, which is read when needed.

generated: syllables made of tones, embedded. small: two little sets of real words. librispeech_aishell: the
official folders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mobench.core.random import generator
from mobench.data.files import absolute, missing_in, reading, require
from mobench.errors import ConfigError, DataError, choose

LANGUAGES = ("zh", "en")
LABELS = {
    "generated": "generated bilingual syllables (no speech)",
    "small": "spoken digits (English) and words (Mandarin), a functional test only",
    "librispeech_aishell": "LibriSpeech train-clean-100 and AISHELL-1",
}
EMBEDDED = ("generated",)
RATES = {"generated": 8000, "small": 8000, "librispeech_aishell": 16000}
INSTEAD = "problem.data=generated is embedded and needs no file."

FOLDER = "speech"
ENGLISH = "english_digits.npz"
MANDARIN = "mandarin_words.npz"
LIBRISPEECH = {"train": "train-clean-100", "test": "test-clean"}
AISHELL = "data_aishell"
TRANSCRIPT = "transcript/aishell_transcript_v0.8.txt"
# share of AISHELL's recordings that may lack a transcript: the official ones lack 325 of 141,925
UNLISTED = 0.01
SIZES = {"train": 96, "test": 32}  # generated utterances of each language
LETTERS = "abcdefgh"
CHARACTERS = "一二三四五六七八"


class Utterance(NamedTuple):
    """A name, a text, and where the audio lies: in a file, or as samples start..stop of an array."""

    name: str
    text: str
    path: Path | None = None
    start: int = 0
    stop: int = 0


@dataclass(frozen=True, eq=False)
class Speech:
    """Utterances of both languages; the lists are shared by all users of the set: do not write into them.

    Fields:
        name: the argument of `speech`. label: for figures, a part of a sentence. rate: samples per second.
        utterances: language -> split -> list. digest: sha256 of names and texts, and of audio that is in
            memory.
        embedded: no file was read. unlisted: recordings without a transcript, left out.
    """

    name: str
    label: str
    rate: int
    utterances: Mapping[str, Mapping[str, Sequence[Utterance]]]
    digest: str
    embedded: bool
    unlisted: int = 0
    _audio: Mapping[str, Float[np.ndarray, " n"]] = field(default_factory=dict)

    @property
    def in_memory(self) -> bool:
        """True if the set is so small that its audio is held in memory."""
        return bool(self._audio)

    def samples(self, language: str, utterance: Utterance) -> Float[Tensor, " n"]:
        """Its audio in [-1, 1], float32.

        Raises DataError for a file that is missing, broken, empty or of another rate.
        """
        if utterance.path is None:
            wave = self._audio[language][utterance.start : utterance.stop]
        else:
            wave = read(utterance.path, self.rate)
        if len(wave) == 0:
            raise DataError(f"The utterance {utterance.name} is empty (no samples). Copy it again. {INSTEAD}")
        return torch.from_numpy(np.ascontiguousarray(wave))


def speech(
    name: str, root: str | Path, train_size: int | None = None, test_size: int | None = None
) -> Speech:
    """The set `name` below `root`, an index made once in a process; train_size, test_size: the first so many
    utterances of a fixed random order, of each language (null: all).

    Raises ConfigError for an unknown name or size, DataError for missing folders, files, transcripts.
    """
    choose("problem.data", name, LABELS)
    return _speech(name, "" if name in EMBEDDED else absolute(root), train_size, test_size)


@lru_cache(maxsize=4)
def _speech(name: str, root: str, train_size: int | None, test_size: int | None) -> Speech:
    audio: dict[str, np.ndarray] = {}
    unlisted = 0
    utterances: dict[str, dict[str, list[Utterance]]]
    if name == "generated":
        utterances, audio = generated()
    elif name == "small":
        utterances, audio = _small(Path(root))
    else:
        require(name, root, Path(root), missing_files(name, root))
        chinese, unlisted = _aishell(Path(root))
        utterances = {"zh": chinese, "en": _librispeech(Path(root))}
    total = sha256()
    selected = {language: dict(utterances[language]) for language in LANGUAGES}
    for language in LANGUAGES:
        for split, size in (("train", train_size), ("test", test_size)):
            have = utterances[language][split]
            if size is not None and not 1 <= size <= len(have):
                raise ConfigError(
                    f"problem.{split}_size={size} is out of range: {LABELS[name]} has {len(have)} {split} "
                    f"utterances in language {language}. Choose 1..{len(have)}, or null for all."
                )
            if name != "generated":  # official files are sorted by speaker
                order = generator(0, data=name, use="order", language=language, split=split).permutation(
                    len(have)
                )
                have = [have[i] for i in order]
            selected[language][split] = have[:size]
            for one in have[:size]:
                total.update(f"{one.name}|{one.text}\n".encode())
                if one.path is None:
                    total.update(audio[language][one.start : one.stop].astype("<f4").tobytes())
    return Speech(
        name, LABELS[name], RATES[name], selected, total.hexdigest(), name in EMBEDDED, unlisted, audio
    )


def read(path: Path, rate: int) -> Float[np.ndarray, " n"]:
    """One audio file (flac, wav). Raises DataError for what cannot be used."""
    try:
        import soundfile
    except ImportError as error:
        raise ConfigError(
            "Loading audio files needs soundfile, which is not installed; use pip install '.[speech]'."
        ) from error
    try:
        wave, sample_rate = soundfile.read(path, dtype="float32")
    except (RuntimeError, OSError) as error:
        raise DataError(f"{path} could not be read as audio: {error}. Unpack it again. {INSTEAD}") from error
    if sample_rate != rate or wave.ndim != 1:
        raise DataError(
            f"{path} has {sample_rate} samples per second and {wave[:1].size} channels, but "
            f"expected {rate} and one. Use the official files unchanged."
        )
    return wave


def missing_files(name: str, root: str | Path) -> list[str]:
    """Returns the missing parts of a set below `root`; single recordings are not checked."""
    base = Path(absolute(root))
    wanted = [f"{FOLDER}/{ENGLISH}", f"{FOLDER}/{MANDARIN}"]
    if name == "librispeech_aishell":
        wanted = [f"LibriSpeech/{part}" for part in LIBRISPEECH.values()]
        wanted += [f"{AISHELL}/{TRANSCRIPT}", f"{AISHELL}/wav/train", f"{AISHELL}/wav/test"]
    return [path for path in wanted if not (base / path).exists()]


# the official folders


def _lines(path: Path, root: Path) -> dict[str, str]:
    """Names and texts of the lines `NAME TEXT`."""
    with reading("librispeech_aishell", root, path):
        lines = [line.strip().partition(" ") for line in path.read_text(encoding="utf-8").splitlines()]
        texts = {name: text.strip() for name, _, text in lines if name}
        if len(texts) < sum(bool(name) for name, _, _ in lines):
            raise ValueError("it lists an utterance twice")
    return texts


def _librispeech(root: Path) -> dict[str, list[Utterance]]:
    """LibriSpeech/<part>/SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt, the recordings beside it."""
    utterances: dict[str, list[Utterance]] = {}
    for split, part in LIBRISPEECH.items():
        folder = root / "LibriSpeech" / part
        utterances[split] = []
        for path in sorted(folder.glob("*/*")):
            files = {file.stem: file for file in sorted(path.glob("*.flac"))}
            texts = path / f"{path.parent.name}-{path.name}.trans.txt"
            transcripts = _lines(texts, root) if files else {}
            if lost := sorted(files.keys() ^ transcripts.keys()):
                raise DataError(
                    f"{path}: {len(lost)} utterances lack a recording (.flac) or a line in {texts.name}, the "
                    f"first being {lost[0]}; expected both of each. Unpack {part}.tar.gz again."
                )
            for name, text in transcripts.items():
                utterances[split].append(Utterance(name, _text(text.lower(), name, texts), files[name]))
        if not utterances[split]:
            require("librispeech_aishell", root, folder, ["SPEAKER/CHAPTER/*.flac"])
    return utterances


def _aishell(root: Path) -> tuple[dict[str, list[Utterance]], int]:
    """data_aishell/wav/<split>/SPEAKER/NAME.wav, and the number of recordings that have no transcript."""
    base = root / AISHELL
    lines = _lines(base / TRANSCRIPT, root)
    transcripts = {
        name: _text(text.replace(" ", ""), name, base / TRANSCRIPT) for name, text in lines.items()
    }
    utterances: dict[str, list[Utterance]] = {}
    unlisted: list[str] = []
    recordings = 0
    for split in ("train", "test"):
        files = sorted((base / "wav" / split).glob("*/*.wav"))
        if not files:  # the speakers' archives must be unpacked too
            require("librispeech_aishell", root, base / "wav" / split, ["SPEAKER/NAME.wav"])
        recordings += len(files)
        unlisted += [file.stem for file in files if file.stem not in transcripts]
        utterances[split] = [
            Utterance(file.stem, transcripts[file.stem], file) for file in files if file.stem in transcripts
        ]
    if len(unlisted) > UNLISTED * recordings:
        raise DataError(
            f"{base / TRANSCRIPT} has no transcript of {len(unlisted)} of {recordings} recordings, the first "
            f"being {unlisted[0]}; expected at most {UNLISTED:.0%} (the official set lacks a few hundred). "
            "Unpack it again."
        )
    return utterances, len(unlisted)


def _text(text: str, name: str, path: Path) -> str:
    if not text:
        raise DataError(f"{path}: the transcript of {name} is empty. Unpack it again. {INSTEAD}")
    return text


# the small sets


def _small(root: Path) -> tuple[dict[str, dict[str, list[Utterance]]], dict[str, np.ndarray]]:
    """speech/english_digits.npz and speech/mandarin_words.npz: `audio` of all clips, `offsets`, `text`.

    English has its official split; of the Mandarin words, of which there is one recording each, every fifth
    tests, so test words are not in training.
    """
    utterances = {}
    audio = {}
    for language, file in (("en", ENGLISH), ("zh", MANDARIN)):
        path = root / FOLDER / file
        require("speech_small", root, path.parent, missing_in(path.parent, [file]))
        with reading("speech_small", root, path), path.open("rb") as content:
            table = np.load(content, allow_pickle=False)
            sound, cut, text, rate = (table[key] for key in ("audio", "offsets", "text", "sample_rate"))
            test = table["is_test"] if "is_test" in table else np.arange(len(text)) % 5 == 4
        if len(cut) != len(text) + 1 or cut[-1] != len(sound) or int(rate) != RATES["small"]:
            raise DataError(
                f"{path} has {len(text)} texts, {len(cut)} offsets up to {cut[-1]} of {len(sound)} samples "
                f"and {int(rate)} samples per second, but expected one offset more than texts, the last one "
                f"at the end, and {RATES['small']} samples per second. Copy it again. {INSTEAD}"
            )
        audio[language] = sound.astype(np.float32) / 32768.0
        every = [
            Utterance(
                f"{file} clip {i}", _text(str(text[i]), f"clip {i}", path), None, int(cut[i]), int(cut[i + 1])
            )
            for i in range(len(text))
        ]
        utterances[language] = {
            "train": [u for u, held in zip(every, test, strict=True) if not held],
            "test": [u for u, held in zip(every, test, strict=True) if held],
        }
    return utterances, audio


# the stand-in


@lru_cache(maxsize=1)
def generated() -> tuple[dict[str, dict[str, list[Utterance]]], dict[str, np.ndarray]]:
    """Utterances of 1 to 3 syllables of 100 to 160 ms at 8 kHz.

    An English letter is two steady tones (as two formants), a Mandarin character one tone with its third
    harmonic that rises or falls (as a pitch contour). A speaker shifts all frequencies by up to 5 %; noise 30
    dB below.
    """
    rng = generator(0, data="speech", use="generated")
    utterances: dict[str, dict[str, list[Utterance]]] = {}
    audio = {}
    for language, alphabet in (("zh", CHARACTERS), ("en", LETTERS)):
        waves = []
        at = 0
        utterances[language] = {}
        for split, count in SIZES.items():
            utterances[language][split] = []
            for i in range(count):
                letters = rng.integers(len(alphabet), size=rng.integers(1, 4))
                shift = rng.uniform(0.95, 1.05)
                wave = np.concatenate([_syllable(language, int(k), shift, rng) for k in letters])
                wave = (wave + 0.03 * rng.standard_normal(len(wave))).astype(np.float32)
                text = "".join(alphabet[k] for k in letters)
                utterances[language][split].append(
                    Utterance(f"generated {language} {split} {i}", text, None, at, at + len(wave))
                )
                waves.append(wave)
                at += len(wave)
        audio[language] = np.concatenate(waves)
    return utterances, audio


def _syllable(language: str, k: int, shift: float, rng: np.random.Generator) -> np.ndarray:
    n = int(RATES["generated"] * rng.uniform(0.10, 0.16))
    t = np.arange(n) / RATES["generated"]
    if language == "en":
        tones = np.sin(2 * math.pi * shift * (300 + 90 * (k % 4)) * t)
        tones += 0.7 * np.sin(2 * math.pi * shift * (1200 + 700 * (k // 4) + 150 * (k % 2)) * t)
    else:
        pitch = shift * (250 + 110 * (k % 4)) * (1 + (0.6 if k < 4 else -0.35) * t / t[-1])
        phase = 2 * math.pi * np.cumsum(pitch) / RATES["generated"]
        tones = np.sin(phase) + 0.5 * np.sin(3 * phase)
    return 0.5 * np.hanning(n) * tones
