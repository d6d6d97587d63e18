"""Byte-level BPE of the reference agents, as llama.cpp reads it (model `gpt2`, pre-tokenizer `qwen2`).

Qwen2's pre-tokenizer splits numbers into single digits; digit-level ids are what a model of this size learns
to copy. A GGUF whose pre-tokenizer is missing or another one loads and tokenizes wrongly without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from qfr.errors import MachineryError
from tools.reference.template import CONTROL, Piece

# llama.cpp's regular expression for the pre-tokenizer "qwen2".
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


class Vocabulary:
    """A trained tokenizer. Contents are encoded alone; control tokens come from the template only."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Vocabulary:
        """Learn merges from texts until the vocabulary has `size` entries (or the texts give no more)."""
        tokenizer = Tokenizer(models.BPE(byte_fallback=False))
        tokenizer.pre_tokenizer = _pre_tokenizer()
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(CONTROL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    @classmethod
    def of(cls, tokens: Sequence[str], merges: Sequence[str]) -> Vocabulary:
        """The tokenizer of a file: tokens by id and merges in order, as llama.cpp spells them."""
        pairs = [tuple(pair.split(" ")) for pair in merges]
        model = models.BPE({token: at for at, token in enumerate(tokens)}, pairs)
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = _pre_tokenizer()
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(list(CONTROL))
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a saved tokenizer."""
        return cls(Tokenizer.from_file(str(path)))

    def save(self, path: Path) -> None:
        """Write the tokenizer as JSON."""
        self._tokenizer.save(str(path))

    @property
    def size(self) -> int:
        """Number of tokens."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def tokens(self) -> tuple[str, ...]:
        """Tokens in byte-level spelling, by id."""
        return tuple(str(self._tokenizer.id_to_token(i)) for i in range(self.size))

    @property
    def merges(self) -> tuple[str, ...]:
        """Merges in order, as llama.cpp spells them: two parts with a blank between."""
        learned = json.loads(self._tokenizer.to_str())["model"]["merges"]
        return tuple(pair if isinstance(pair, str) else " ".join(pair) for pair in learned)

    def encode(self, text: str) -> Piece:
        """Token ids of a content.

        Raises
        ------
        MachineryError
            The text spells a control token, which this tokenizer would take for one.
        """
        if any(token in text for token in CONTROL):
            raise MachineryError("a training text spells a control token", where="reference corpus")
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        return Piece(tuple(encoded.ids), tuple(start for start, _ in encoded.offsets))

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids, control tokens left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))
