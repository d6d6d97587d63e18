"""The agents' chat template and control tokens, and what a tokenizer has to offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

PAD, END, SYSTEM, USER, ASSISTANT = range(5)
CONTROL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
# Control tokens, in the order of their ids.

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Append-only: a transcript only ever grows.


@dataclass(frozen=True)
class Piece:
    """One encoded text."""

    ids: tuple[int, ...]
    starts: tuple[int, ...]
    # Index of each token's first character in the text.


class Encoder(Protocol):
    """Encodes contents; control tokens come from the template only."""

    def encode(self, text: str) -> Piece:
        """Token ids of a content."""
        ...
