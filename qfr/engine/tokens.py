"""From messages to token segments and back. Content never becomes control.

Only the template's markup may hold control tokens. Markup is cut at the control tokens that it spells, the
text between two of them (rest of the markup and content together) is tokenized as plain text in one go, so
that for contents without control text the ids are those of the usual joint tokenization.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from qfr.engine.llama_model import LoadedModel, SpecialToken
from qfr.engine.template import Markup
from qfr.errors import EngineError

# What C calls blank: llama.cpp strips these around tokens that swallow blanks.
_BLANKS = " \t\n\v\f\r"
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class _Control:
    """A control token of the markup."""

    special: SpecialToken


_Part = str | _Control


def readable(text: str) -> str:
    """The text as it can be encoded: every lone surrogate becomes U+FFFD, all else (NUL too) is kept."""
    return _SURROGATE.sub("\ufffd", text)


class Tokenizer:
    """Segments of one model's transcripts.

    Parameters
    ----------
    model : LoadedModel
        Vocabulary.
    markup : Markup
        Its template's markup.
    """

    def __init__(self, model: LoadedModel, markup: Markup) -> None:
        self._model, self._markup = model, markup
        whole = "\0".join(
            (markup.before_system, markup.before_task, markup.before_turn, markup.before_observation)
        )
        # Longest first, as llama.cpp cuts a text.
        self._used = sorted(
            (special for special in model.specials if special.text in whole), key=lambda s: -len(s.text)
        )
        # User-defined tokens are found even in plain text: those that serve as markup must not be.
        self._forbidden = {special.token: special.text for special in self._used}
        self._forbidden |= {special.token: special.text for special in model.specials if special.control}
        texts = sorted(set(self._forbidden.values()), key=len, reverse=True)
        self._control_text = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._after_turn = self._cut(markup.before_turn)
        self._closing = self._cut(markup.before_observation)
        self._system: str | None = None
        self._first: tuple[int, ...] = ()

    # From text to tokens

    def opening(self, system: str, task: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Segments of the system message and of the task message.

        They part after the last control token before the task's text (right before the text where there is
        none), so that the first segment depends on the system message alone.
        """
        between = self._cut(self._markup.before_task)
        border = max(
            (index + 1 for index, part in enumerate(between) if isinstance(part, _Control)), default=-1
        )
        head, tail = (between, []) if border < 0 else (between[:border], between[border:])
        if system != self._system:
            # All episodes of a cell share it, and it is the longest text by far.
            self._system, self._first = system, self._system_segment(system, head)
        task = self._markup.task.clean(readable(task))
        return self._first, self._ids([*tail, task, *self._after_turn], fresh=border >= 0)

    def _system_segment(self, system: str, head: Sequence[_Part]) -> tuple[int, ...]:
        system = self._markup.system.clean(readable(system))
        first = self._ids([*self._cut(self._markup.before_system), system, *head], fresh=True)
        bos = self._model.bos
        if self._model.wants_bos and bos is not None and first[:1] != (bos,):
            first = (bos, *first)
        return first

    def observation(self, text: str) -> tuple[int, ...]:
        """Segment of an observation, headed by the markup that closes the assistant's turn."""
        text = self._markup.observation.clean(readable(text))
        return self._ids([*self._closing, text, *self._after_turn], fresh=False)

    def assistant(self, text: str) -> tuple[int, ...]:
        """Tokens of an assistant's text as a turn would hold them, its end token included."""
        ends_with_control = bool(self._after_turn) and isinstance(self._after_turn[-1], _Control)
        ids = self._ids([readable(text)], fresh=ends_with_control)
        end = self._end_token()
        return ids if end is None else (*ids, end)

    def _end_token(self) -> int | None:
        """The end token that this template closes a turn with, else the model's own."""
        for part in self._closing:
            if isinstance(part, _Control) and self._model.is_end(part.special.token):
                return part.special.token
        return self._model.eot

    # From tokens to text

    def text(self, tokens: Sequence[int]) -> str:
        """Text of generated tokens; an end token at the end is left out."""
        if tokens and self._model.is_end(tokens[-1]):
            tokens = tokens[:-1]
        return b"".join(map(self._model.piece, tokens)).decode("utf-8", "replace")

    def spells_control(self, *texts: str) -> bool:
        """Whether a text holds the spelling of a control token."""
        pattern = self._control_text
        return pattern is not None and any(pattern.search(text) for text in texts)

    # Parts

    def _cut(self, markup: str) -> list[_Part]:
        """Markup as plain text and control tokens, cut as llama.cpp cuts a text."""
        parts: list[_Part] = [markup] if markup else []
        for special in self._used:
            cut: list[_Part] = []
            for part in parts:
                if isinstance(part, _Control):
                    cut.append(part)
                    continue
                pieces = part.split(special.text)
                for index, piece in enumerate(pieces):
                    if index:
                        cut.append(_Control(special))
                    if piece:
                        cut.append(piece)
            parts = cut
        return parts

    def _ids(self, parts: Sequence[_Part], *, fresh: bool) -> tuple[int, ...]:
        """Token ids; `fresh` where the parts follow a control token or start the transcript."""
        merged: list[_Part] = []
        for part in parts:
            if isinstance(part, str) and merged and isinstance(merged[-1], str):
                merged[-1] += part
            else:
                merged.append(part)
        ids: list[int] = []
        for index, part in enumerate(merged):
            if isinstance(part, _Control):
                ids.append(part.special.token)
                continue
            before = merged[index - 1] if index else None
            after = merged[index + 1] if index + 1 < len(merged) else None
            if isinstance(before, _Control) and before.special.strips_right:
                part = part.lstrip(_BLANKS)
            if isinstance(after, _Control) and after.special.strips_left:
                part = part.rstrip(_BLANKS)
            ids.extend(self._plain(part, fresh=fresh or index > 0))
        return tuple(ids)

    def _plain(self, text: str, *, fresh: bool) -> tuple[int, ...]:
        """Ids of a text that must not hold a control token."""
        ids = self._tokenize(text, fresh=fresh)
        if not any(token in self._forbidden for token in ids):
            return ids
        # A user-defined token that the template uses as markup: cut each spelling after its first character.
        pattern = re.compile(
            "|".join(re.escape(self._forbidden[token]) for token in set(ids) & set(self._forbidden))
        )
        pieces, start = [], 0
        for found in pattern.finditer(text):
            pieces.append(text[start : found.start() + 1])
            start = found.start() + 1
        pieces.append(text[start:])
        if len(pieces) == 1 or any(
            len(self._forbidden[token]) < 2 for token in set(ids) & set(self._forbidden)
        ):
            raise EngineError("a content cannot be written without one of the model's control tokens")
        return tuple(
            token
            for index, piece in enumerate(pieces)
            for token in self._plain(piece, fresh=fresh and index == 0)
        )

    def _tokenize(self, text: str, *, fresh: bool) -> tuple[int, ...]:
        """Ids of a plain text; SentencePiece puts a blank in front of it only where it is `fresh`."""
        if not text:
            return ()
        if fresh or not self._model.sentencepiece:
            return self._model.tokenize(text)
        lead = self._model.tokenize("\n")
        ids = self._model.tokenize("\n" + text)
        return ids[len(lead) :] if ids[: len(lead)] == lead else self._model.tokenize(text)
