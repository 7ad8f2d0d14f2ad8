"""Units that a CTC head predicts: characters, or sub-words found by SentencePiece.

Index 0 is CTC's blank, 1 the unknown unit.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mobench.errors import ConfigError

KINDS = ("characters", "subwords")
UNKNOWN = "\ufffd"


@dataclass(frozen=True)
class Units:
    """Units of one language.

    `table`: unit of each index; `pieces`: SentencePiece's processor, None for characters.
    """

    table: tuple[str, ...]
    pieces: Any = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.table)

    def encode(self, text: str) -> list[int]:
        """Indices >= 1 of a text's units."""
        if self.pieces is not None:
            return [i + 1 for i in self.pieces.encode(text)]
        place = {unit: i for i, unit in enumerate(self.table)}
        return [place.get(c, 1) for c in text]

    def decode(self, indices: Sequence[int]) -> str:
        """The text of indices >= 1; outputs of a head beyond the units are unknown."""
        indices = [i if i < len(self.table) else 1 for i in indices]
        if self.pieces is not None:
            return str(self.pieces.decode([i - 1 for i in indices]))
        return "".join(self.table[i] for i in indices)


def characters(texts: Sequence[str], largest: int | None) -> Units:
    """Characters of the texts, the most frequent first, at most `largest` units with blank and unknown."""
    count = Counter(c for text in texts for c in text)
    order = sorted(count, key=lambda c: (-count[c], c))
    return Units(("", UNKNOWN, *order[: None if largest is None else max(0, largest - 2)]))


def subwords(texts: Sequence[str], largest: int) -> Units:
    """Byte-pair sub-words of the texts, at most `largest` units with blank and unknown.

    Departure: the paper does not say what its 1000 English units are.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise ConfigError(
            "Sub-words need sentencepiece, which is not installed; use pip install '.[speech]' "
            "or problem.english_units=characters."
        ) from error
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=largest - 1,
        model_type="bpe",
        hard_vocab_limit=False,
        bos_id=-1,
        eos_id=-1,
        unk_id=0,
        minloglevel=2,
        num_threads=1,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return Units(("", *(pieces.id_to_piece(i) for i in range(pieces.get_piece_size()))), pieces)


def units(kind: str, texts: Sequence[str], largest: int | None) -> Units:
    """Units of the given kind from training texts. Sub-words need a number."""
    if kind == "characters":
        return characters(texts, largest)
    if largest is None:
        raise ConfigError(
            "problem.english_units=subwords needs a number of units, which problem.model=paper has (1000)."
        )
    return subwords(texts, largest)
