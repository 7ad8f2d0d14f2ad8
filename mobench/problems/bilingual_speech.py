"""Bilingual speech recognition by a conformer:  f = (contrastive predictive coding, CTC zh, CTC en)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as nn
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from mobench.core.arrays import to_device
from mobench.core.preferences import Runs
from mobench.core.random import counter_uniform
from mobench.core.sampled import BatchGradients
from mobench.core.types import Real
from mobench.data.files import digest_of
from mobench.data.logmel import log_mel, spec_augment
from mobench.data.speech import LABELS, LANGUAGES, Speech, speech
from mobench.data.speech_units import KINDS, Units, units
from mobench.errors import ConfigError, DataError, check_batch_runs, choose
from mobench.metrics.recognition import error_rate, greedy, prefix_beam
from mobench.models.conformer import MODELS, Conformer, conformer
from mobench.problems.dataset import DataProblem, network_starts
from mobench.problems.warm_start import descended

This = TypeVar("This", bound="BilingualSpeech")  # beartype knows no typing.Self in methods


OBJECTIVES = ("cpc", *LANGUAGES)
RATES = {"zh": "cer", "en": "wer"}
SHARD = 32  # utterances of a language that are evaluated at once


class Clips(NamedTuple):
    """Utterances of one language for R runs: features, frames, and concatenated targets with their sizes."""

    mel: Float[Tensor, "R B T F"]
    frames: Int[Tensor, "R B"]
    targets: Int[Tensor, " U"]
    sizes: Int[Tensor, "R B"]

    def runs(self, some: slice) -> Clips:
        """Returns the part of some runs."""
        first = int(self.sizes[: some.start].sum())
        targets = self.targets[first : first + int(self.sizes[some].sum())]
        return Clips(self.mel[some], self.frames[some], targets, self.sizes[some])


class Scored(NamedTuple):
    """The network's answers to clips: losses (R, B) by objective, and of each language that it recognises
    the log-probabilities (R, B, T, C) of its units with the lengths (R, B) of the clips.
    """

    losses: dict[str, Tensor]
    heard: dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class BilingualSpeech(DataProblem, BatchGradients):
    """Three objectives of one conformer, each a mean over utterances u of T_u frames, L_u units:

        f_cpc = mean_u mean_(t,k) -log( e^s(t,t+k) / sum_j e^s(t,j) ),
            s(t,j) = cos(W_k c_t, z_j) / temperature
        f_zh, f_en = mean_u -log p_CTC(units of u | audio of u) / L_u

    z are the front's frames, c_t the encoder's output at t computed from frames up to t; k = 1..K. j runs
    over t+k and `negatives` other frames of the same utterance, spread evenly over it (t + k + floor(i
    T_u / (negatives + 1)) around its end): no random numbers, and no other clip. The CTC losses see whole
    utterances. Mandarin is written in characters, English in characters or sub-words.

    theta (R, P): the network's parameters, the two heads divided by sqrt(head_rate): a step along the
    gradient moves the heads by head_rate times the step size of the rest, and Gram matrices measure what such
    a step does to the losses. A sample is a pair, one utterance of each language, with masks of SpecAugment:
    `draw` takes both with replacement. History and final rows carry test_loss_cpc, test_loss_zh,
    test_loss_en, test_cer_zh and test_wer_en (shares, not percent).

    Fields:
        data: generated (embedded) | small | librispeech_aishell. data_root: where files lie; no part of a
            job's identity.
        train_size, test_size: so many utterances of each language (null: all).
        objectives: those that exist, [cpc, zh, en]; [zh, en] is training without CPC.
        model: tiny | laptop | paper (64.4 million parameters). english_units: characters | subwords.
        head_rate: step of the heads as a share of the others'. temperature, negatives: of f_cpc.
        masks, mask_time, mask_frequency: bands of SpecAugment in time and frequency, and how large they may
            be, as shares.
        beam: prefixes that decoding keeps; 0: greedy.
        max_batch_runs: so many networks at a time; the activations of the others are computed anew in the
            backward pass. No part of a job's identity.
        start: {kind: default}: PyTorch's initialisation. {kind: ls, steps, step_size, batch_size}: then so
            many steps of plain descent on the mean of the objectives, kept in the cache folder and continued
            after an interruption. {kind: file, path}: a vector of network parameters (NumPy), the same for
            all seeds.

    Raises DataError, with its name, for an utterance that is empty or too short: CTC needs a frame for each
    unit and one between equal ones, f_cpc K + 2 frames.
    Source: FERERO paper, Section 5 and Appendix H. Departures: the paper prints neither inputs, units, K,
    negatives nor how CTC losses are normalised; its full 960 hours for CPC are the 100 of train-clean-100
    here; its encoder sees the future when it predicts it (by all that is printed), ours does not.
    """

    start_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "default": (),
        "ls": ("steps", "step_size", "batch_size"),
        "file": ("path",),
    }
    twice: ClassVar[bool] = False  # PyTorch's CTC has a gradient only
    execution_fields: ClassVar[tuple[str, ...]] = ("data_root", "max_batch_runs")
    small: ClassVar[Mapping[str, Any]] = {"model": "tiny", "train_size": 40, "test_size": 2, "masks": 0}
    citation: ClassVar[str] = (
        "Chen et al. 2024 (FERERO); Gulati et al. 2020; Graves et al. 2006; van den Oord et al. 2018"
    )

    data: str = "generated"
    train_size: int | None = None
    test_size: int | None = None
    objectives: Sequence[str] = OBJECTIVES
    model: str = "laptop"
    english_units: str = "characters"
    head_rate: Real = 0.1
    temperature: Real = 0.1
    negatives: int = 10
    masks: int = 1
    mask_time: Real = 0.1
    mask_frequency: Real = 0.2
    beam: int = 0
    max_batch_runs: int | None = None
    steps: int = 1000
    _device: torch.device = field(default=torch.device("cpu"), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("problem.data", self.data, LABELS)
        choose("problem.model", self.model, MODELS)
        choose("problem.english_units", self.english_units, KINDS)
        if isinstance(self.objectives, str) or not list(self.objectives) == [
            o for o in OBJECTIVES if o in self.objectives
        ]:
            raise ConfigError(
                f"problem.objectives={self.objectives} must be chosen from {list(OBJECTIVES)}, in this order."
            )
        if not self.objectives:
            raise ConfigError("problem.objectives is empty; choose from cpc, zh, en.")
        for name in ("head_rate", "temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"problem.{name}={getattr(self, name)} must be > 0.")
        for name in ("mask_time", "mask_frequency"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"problem.{name}={getattr(self, name)} must lie in [0, 1); it is a share.")
        for name, least in (("negatives", 1), ("masks", 0), ("beam", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"problem.{name}={getattr(self, name)} must be at least {least}.")
        check_batch_runs(self.max_batch_runs)

    # what there is

    @cached_property
    def speech(self) -> Speech:
        """Utterances of both languages."""
        return speech(self.data, self.data_root, self.train_size, self.test_size)

    @cached_property
    def units(self) -> dict[str, Units]:
        """Units of each language, from the training texts."""
        paper = self.model == "paper"
        texts = {
            language: [u.text for u in self.speech.utterances[language]["train"]] for language in LANGUAGES
        }
        return {
            "zh": units("characters", texts["zh"], MODELS["paper"].zh if paper else None),
            "en": units(self.english_units, texts["en"], MODELS["paper"].en if paper else None),
        }

    @cached_property
    def network(self) -> Conformer:
        """The network, a function of stacked parameters."""
        if self.model == "paper":  # its heads have sizes of their own: no data are read to plan a job
            return MODELS["paper"]
        return conformer(self.model, len(self.units["zh"]), len(self.units["en"]))

    @property
    def n_objectives(self) -> int:
        return len(self.objectives)

    @property
    def dim(self) -> int:
        return self.network.dim

    @property
    def n_samples(self) -> float:
        return float("inf")  # pairs with masks: an expectation

    @property
    def data_set(self) -> Speech:
        return self.speech

    def bind(self: This, runs: Runs) -> This:
        """Returns the problem with the device of its runs, on which a start is trained."""
        bound = copy.copy(self)
        object.__setattr__(bound, "_device", runs.seeds.device)
        return bound

    def _scale(self, x: Tensor, power: float) -> Tensor:
        """The heads times head_rate^power, the rest as it is."""
        body, heads = x.tensor_split([self.dim - self.network.head_dim], dim=1)
        return torch.cat([body, heads * float(self.head_rate) ** power], dim=1)

    def initial(self, runs: Runs) -> Float[Tensor, "R P"]:
        options = {k: v for k, v in self.start.items() if v is not None}
        if options["kind"] == "file":
            return self._scale(self._of_file(Path(str(options["path"]))).expand(len(runs), -1), -0.5)
        fresh = self._scale(network_starts(self, runs, self.network.initial, model=self.model), -0.5)
        if options["kind"] == "default":
            return fresh
        settings = int(options["steps"]), options["step_size"], int(options["batch_size"])
        return descended(self, self._key(), runs, fresh, *settings, self._device)

    def _of_file(self, path: Path) -> Float[Tensor, "1 P"]:
        try:
            row = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"problem.start.path={path} could not be read as a NumPy array: {error}."
            ) from error
        if row.shape != (self.dim,):
            raise DataError(
                f"{path} contains {'x'.join(map(str, row.shape))} numbers, but the network has {self.dim} "
                f"parameters ({self.model}, {self.network.zh} and {self.network.en} units). The file belongs "
                "to another model or data set."
            )
        return torch.from_numpy(row.astype(np.float64)).unsqueeze(0)

    def facts(self, runs: Runs | None = None) -> dict[str, Any]:
        data = self.speech
        count = {
            f"{split}_{language}": len(data.utterances[language][split])
            for language in LANGUAGES
            for split in ("train", "test")
        }
        units = {f"units_{language}": len(self.units[language]) for language in LANGUAGES}
        return {**super().facts(runs), "unlisted": data.unlisted, **count, **units, "parameters": self.dim}

    def draw(self, keys: Int[Tensor, " R"], stream: str, t: int, size: int) -> Float[Tensor, "R B 2 k"]:
        """Draws the number of an utterance for each pair and language, then uniform numbers for its masks."""
        each = 1 + 4 * self.masks
        u = counter_uniform(keys, stream, t, size * 2 * each).view(len(keys), size, 2, each)
        each_has = [len(self.speech.utterances[language]["train"]) for language in LANGUAGES]
        counts = to_device(torch.tensor(each_has, dtype=u.dtype), u.device)
        chosen = (u[..., 0] * counts).floor().minimum(counts - 1)
        return torch.cat([chosen.unsqueeze(-1), u[..., 1:]], dim=-1)

    # clips

    def features(self, language: str, split: str, i: int) -> tuple[Float[Tensor, "T F"], list[int]]:
        """Log-mel features and units of one utterance; cached only where the set is in memory."""
        if not self.speech.in_memory:
            return self._features(language, split, i)
        return self.cache.made((language, split, i), lambda: self._features(language, split, i))

    def _features(self, language: str, split: str, i: int) -> tuple[Float[Tensor, "T F"], list[int]]:
        one = self.speech.utterances[language][split][i]
        with torch.inference_mode(False):
            mel = log_mel(self.speech.samples(language, one), self.speech.rate, self.network.mels)
        targets = self.units[language].encode(one.text)
        have = self.network.length(len(mel))
        need = len(targets) + sum(a == b for a, b in pairwise(targets))
        if "cpc" in self.objectives:
            need = max(need, self.network.steps + 2)
        if have < need or not targets:
            raise DataError(
                f"The utterance {one.name} is too short: {len(mel)} frames of 10 ms become {have} of the "
                f"network, but {one.text[:40]!r} needs {need}. Leave it out, or use a network with a smaller "
                f"stride (problem.model={self.model} has {self.network.stride})."
            )
        return mel, targets

    def clips(self, language: str, numbers: Int[Tensor, "R B"], split: str, x: Tensor) -> Clips:
        """The utterances with these numbers, padded."""
        rows = numbers.tolist()
        known = {i: self.features(language, split, i) for i in {i for row in rows for i in row}}
        mels = [known[i][0] for row in rows for i in row]
        frames = torch.tensor([len(mel) for mel in mels]).view(len(rows), -1)
        targets = torch.tensor([c for row in rows for i in row for c in known[i][1]])
        sizes = torch.tensor([[len(known[i][1]) for i in row] for row in rows])
        mel = pad_sequence(mels, batch_first=True).unflatten(0, (len(rows), -1))
        # a copy of each that nobody waits for; losses need the sizes on the host, too
        mel, frames, targets = (to_device(t, x.device) for t in (mel.to(x.dtype), frames, targets))
        return Clips(mel, frames, targets, sizes)

    def _taken(self, batch: Float[Tensor, "R B 2 k"], x: Tensor) -> dict[str, Clips]:
        """Clips of a batch of `draw`, masked."""
        by_language = {}
        for k, language in enumerate(LANGUAGES):
            clips = self.clips(language, batch[:, :, k, 0].long(), "train", x)
            if self.masks:
                u = batch[:, :, k, 1:].unflatten(-1, (self.masks, 4))
                T, F = clips.mel.shape[2:]
                hidden = spec_augment(
                    u, clips.frames, T, F, float(self.mask_time), float(self.mask_frequency)
                )
                clips = clips._replace(mel=clips.mel.masked_fill(hidden, 0.0))
            by_language[language] = clips
        return by_language

    # losses

    def values(self, x: Float[Tensor, "R P"], batch: Any = None) -> Float[Tensor, "R M"]:
        """Mean losses. `batch`: a result of `draw`, or None: all training utterances, without masks."""
        if batch is None:
            return self._evaluated("train", x)["loss"]
        clips = self._taken(batch, x)
        size = self.max_batch_runs
        if size is None or len(x) <= size:
            return self._means(x, clips)
        parts = [slice(r, r + size) for r in range(0, len(x), size)]
        shares = [{language: some.runs(part) for language, some in clips.items()} for part in parts]
        means = [
            checkpoint(self._means, x[r], c, use_reentrant=False) for r, c in zip(parts, shares, strict=True)
        ]
        return torch.cat(means)

    def _means(self, x: Float[Tensor, "R P"], clips: Mapping[str, Clips]) -> Float[Tensor, "R M"]:
        each = self.losses(x, clips)
        return torch.stack([each[o].mean(1) for o in self.objectives], dim=1)

    def losses(self, x: Float[Tensor, "R P"], clips: Mapping[str, Clips]) -> dict[str, Float[Tensor, "R _"]]:
        """Losses of each clip, f_cpc of all languages in a row."""
        return self.scored(x, clips, self.objectives).losses

    def scored(
        self, x: Float[Tensor, "R P"], clips: Mapping[str, Clips], recognised: Sequence[str]
    ) -> Scored:
        """Losses and scores of each clip; those of CTC for the languages that are `recognised`."""
        net = self.network
        w = net.split(self._scale(x, 0.5))
        losses = {}
        heard = {}
        cpc = []
        # each language padded by itself: clips do not know their neighbours
        for language, part in clips.items():
            z, lengths = net.front(w, part.mel, part.frames)
            if "cpc" in self.objectives:
                context = net.predicted(w, net.encode(w, z, lengths, past=True))
                cpc.append(contrastive(context, z, lengths, self.negatives, float(self.temperature)))
            if language not in recognised:
                continue
            log = torch.log_softmax(net.scores(w, net.encode(w, z, lengths), language), dim=-1)
            heard[language] = (log, lengths)
            rows = log.flatten(0, 1).transpose(0, 1)
            sizes = to_device(part.sizes, log.device)
            loss = nn.ctc_loss(rows, part.targets, lengths.flatten(), sizes.flatten(), reduction="none")
            losses[language] = loss.view(len(x), -1) / sizes.to(loss)
        if cpc:
            losses["cpc"] = torch.cat(cpc, dim=1)
        return Scored(losses, heard)

    # evaluation

    def _evaluated(self, split: str, x: Float[Tensor, "R P"]) -> dict[str, Tensor]:
        """loss (R, M) of all objectives there are; of the test part also `cer_zh`, `wer_en` (R,).

        Shard by shard, without gradients; those of the last x are remembered.
        """
        return self.cache.at(x, split, lambda: self._evaluate(split, x))

    def _evaluate(self, split: str, x: Float[Tensor, "R P"]) -> dict[str, Tensor]:
        decoded = split == "test"
        sums = {o: x.new_zeros(len(x), dtype=torch.float64) for o in OBJECTIVES}
        counts = dict.fromkeys(OBJECTIVES, 0)
        references: dict[str, list[str]] = {language: [] for language in LANGUAGES}
        text: dict[str, list[list[str]]] = {language: [[] for _ in x] for language in LANGUAGES}
        with torch.no_grad():
            for language in LANGUAGES:
                every = self.speech.utterances[language][split]
                for first in range(0, len(every), SHARD):
                    numbers = torch.arange(first, min(first + SHARD, len(every))).expand(len(x), -1)
                    clips = {language: self.clips(language, numbers, split, x)}
                    scored = self.scored(x, clips, LANGUAGES if decoded else self.objectives)
                    for o, loss in scored.losses.items():
                        sums[o] += loss.double().sum(1)
                        counts[o] += loss.shape[1]
                    if decoded:
                        references[language] += [every[i].text for i in numbers[0].tolist()]
                        for r, texts in enumerate(self.decode(language, *scored.heard[language])):
                            text[language][r] += texts
        out = {"loss": torch.stack([sums[o] / counts[o] for o in self.objectives], dim=1).to(x.dtype)}
        if decoded:
            for language, kind in RATES.items():
                rates = [error_rate(kind, references[language], texts) for texts in text[language]]
                out[f"{kind}_{language}"] = torch.tensor(rates, dtype=torch.float64)
        return out

    def decode(
        self, language: str, log: Float[Tensor, "R B T C"], lengths: Int[Tensor, "R B"]
    ) -> list[list[str]]:
        """Returns the text that each run recognises in each clip."""
        table = log.double().cpu().numpy()
        T = lengths.tolist()
        return [
            [
                self.units[language].decode(
                    prefix_beam(rows[:n], self.beam) if self.beam else greedy(rows[:n])
                )
                for rows, n in zip(clips, sizes, strict=True)
            ]
            for clips, sizes in zip(table, T, strict=True)
        ]

    def columns(self, x: Float[Tensor, "R P"], values: Float[Tensor, "R M"]) -> dict[str, Tensor]:
        """test_loss_cpc .., test_cer_zh, test_wer_en."""
        measures = dict(self._evaluated("test", x))
        loss = measures.pop("loss")
        losses = {f"test_loss_{o}": loss[:, m] for m, o in enumerate(self.objectives)}
        return losses | {f"test_{name}": value for name, value in measures.items()}

    def _key(self) -> str:
        """Returns the key of the trained starts: everything that decides the losses."""
        fields = (
            "objectives",
            "model",
            "english_units",
            "head_rate",
            "temperature",
            "negatives",
            "masks",
            "mask_time",
            "mask_frequency",
        )
        settings = "|".join(f"{name}={getattr(self, name)}" for name in fields)
        return digest_of(
            np.frombuffer(f"{self.version}|{self.speech.digest}|{settings}".encode(), dtype=np.uint8)
        )


def contrastive(
    predicted: Float[Tensor, "R B T K D"],
    z: Float[Tensor, "R B T D"],
    lengths: Int[Tensor, "R B"],
    negatives: int,
    temperature: float,
) -> Float[Tensor, "R B"]:
    """Mean over t and k = 1..K, t + k < T_u, of -log softmax of s(t, t+k) among itself and its negatives.

    A clip of T_u <= negatives frames has T_u - 1 of them: where offsets meet, one is counted.
    """
    R, B, T, K, _ = predicted.shape
    similar = nn.normalize(predicted, dim=-1).permute(0, 1, 3, 2, 4) @ nn.normalize(z, dim=-1).mT.unsqueeze(2)
    n = lengths.view(R, B, 1, 1, 1)
    t = torch.arange(T, device=z.device).view(T, 1)
    k = torch.arange(1, K + 1, device=z.device).view(K, 1, 1)
    j = torch.arange(negatives + 1, device=z.device)
    offset = j * n // (negatives + 1)
    before = (j - 1).clamp_min(0) * n // (negatives + 1)
    twice = (j > 0) & (offset == before)
    place = ((t + k + offset) % n).expand(R, B, K, T, negatives + 1)
    s = similar.gather(-1, place) / temperature
    loss = torch.logsumexp(s.masked_fill(twice, -torch.inf), dim=-1) - s[..., 0]
    counted = (t + k).squeeze(-1) < n.squeeze(-1)  # (R, B, K, T)
    return torch.where(counted, loss, 0.0).sum((2, 3)) / counted.sum((2, 3))
