"""From messages to token segments and back. Content never becomes control.

Only the template's markup may hold control tokens. Markup is cut at the control tokens that it spells, the
text between two of them (rest of the markup and content together) is tokenized as plain text in one go, so
that for contents without control text the ids are those of the usual joint tokenization.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from qfr.engine.llama.model import LoadedModel, SpecialToken
from qfr.engine.llama.transcript import Markup, Shown, Style, Talk, readable
from qfr.errors import EngineError
from qfr.thoughts import thought_span

# What C calls blank: llama.cpp strips these around tokens that swallow blanks.
_BLANKS = " \t\n\v\f\r"
# Texts whose tokens are kept.
_REMEMBERED = 1024


@dataclass(frozen=True)
class _Control:
    """A control token of the markup."""

    special: SpecialToken


_Part = str | _Control


@dataclass(frozen=True)
class Kept:
    """A turn that stands in the transcript as it was generated."""

    turn: int
    # Its number.


# A segment's tokens, or a turn as it was generated.
Segmented = tuple[int, ...] | Kept


@dataclass(frozen=True)
class Transcript:
    """An episode so far, as tokens."""

    segments: tuple[Segmented, ...]
    newest: int
    # Place of the first segment of the newest message.


class Tokenizer:
    """Segments of one model's transcripts.

    Parameters
    ----------
    model : LoadedModel
        Vocabulary.
    layout : Layout or NativeLayout
        How its chat template lays conversations out.
    """

    def __init__(self, model: LoadedModel, layout: Style) -> None:
        self.model, self.layout = model, layout
        shape = layout.shape
        used = [special for special in model.specials if special.text in shape.markup]
        # User-defined tokens are found even in plain text: those that serve as markup must not be.
        self._forbidden = {special.token: special.text for special in used}
        self._forbidden |= {special.token: special.text for special in model.specials if special.control}
        texts = sorted(set(self._forbidden.values()), key=len, reverse=True)
        self._control_text = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._cut = lru_cache(_REMEMBERED)(self._cut_anew)
        self._ids = lru_cache(_REMEMBERED)(self._ids_anew)

    # From text to tokens

    def conversation(self, system: str, task: str) -> Talk:
        """An episode that begins."""
        return self.layout.begun(readable(system), readable(task))

    def segments(self, shown: Shown) -> Transcript:
        """The transcript as segments, and turns that stand as they were generated.

        Segments part at messages. System message and task part after the last control token before the task's
        text (right before the text where there is none), so that the first segment depends on the system
        message alone.
        """
        out: list[Segmented] = []
        newest = 0
        parts: list[_Part] = []
        fresh = True
        for number, body in enumerate(shown.bodies):
            between = list(self._cut(body.before))
            last = shown.bodies[number - 1] if number else None
            if last is not None and not last.generated and not body.generated:
                border = _border(between) if last.turn is None else self._end(parts, between, fresh=fresh)
                self._add(out, [*parts, *between[:border]], fresh=fresh)
                fresh = border > 0 and isinstance(between[border - 1], _Control)
                parts, between = [], between[border:]
            if last is not None and last.turn is not None:
                newest = len(out)
            parts += between
            if body.generated and body.turn is not None:
                self._add(out, parts, fresh=fresh)
                out.append(Kept(body.turn))
                parts, fresh = [], False
            for part in body.parts:
                parts += self._cut(part.text) if isinstance(part, Markup) else (part.text,)
        self._add(out, [*parts, *self._cut(shown.prompt)], fresh=fresh)
        return Transcript(tuple(out), newest)

    def _end(self, parts: Sequence[_Part], between: Sequence[_Part], *, fresh: bool) -> int:
        """Where the markup behind a turn's text begins the next segment: at once, if its tokens allow that.

        Else before its first control token: the text between is tokenized together with the turn's.
        """
        controls = [index for index, part in enumerate(between) if isinstance(part, _Control)]
        first = controls[0] if controls else 0
        plain = tuple(between[:first])
        apart = self._ids(tuple(parts), fresh) + self._ids(plain, False)
        return 0 if self._ids((*parts, *plain), fresh) == apart else first

    def said(self, text: str) -> str:
        """A turn's text as a message: without the blank that SentencePiece puts behind a control token."""
        prompt = self._cut(self.layout.shape.prompt)
        blank = self.model.sentencepiece and bool(prompt) and isinstance(prompt[-1], _Control)
        return text.removeprefix(" ") if blank else text

    def _add(self, out: list[Segmented], parts: Sequence[_Part], *, fresh: bool) -> None:
        ids = self._ids(tuple(parts), fresh)
        bos = self.model.bos
        if not out and self.model.wants_bos and bos is not None and ids[:1] != (bos,):
            ids = (bos, *ids)
        if ids:
            out.append(ids)

    def assistant(self, text: str) -> tuple[int, ...]:
        """Tokens of an assistant's text as a turn would hold them, its end token included."""
        prompt = self._cut(self.layout.shape.prompt)
        ends_with_control = bool(prompt) and isinstance(prompt[-1], _Control)
        ids = self._ids((readable(text),), ends_with_control)
        end = self._end_token()
        return ids if end is None else (*ids, end)

    def _end_token(self) -> int | None:
        """The end token that this template closes a turn with, else the model's own."""
        for part in self._cut(self.layout.shape.closing):
            if isinstance(part, _Control) and self.model.is_end(part.special.token):
                return part.special.token
        ends = (token for token in (self.model.eot, self.model.eos) if token is not None)
        return next(filter(self.model.is_end, ends), None)

    # From tokens to text

    def text(self, tokens: Sequence[int]) -> str:
        """Text of generated tokens; an end token at the end is left out."""
        if tokens and self.model.is_end(tokens[-1]):
            tokens = tokens[:-1]
        return b"".join(map(self.model.piece, tokens)).decode("utf-8", "replace")

    def thought_tokens(self, tokens: Sequence[int]) -> int:
        """How many of a turn's tokens belong to its thoughts, marks included."""
        text = self.text(tokens)
        span = thought_span(text, inside=bool(self.layout.shape.thinking))
        if span is None:
            return 0
        begin, end = (len(text[:place].encode()) for place in span)
        count = at = 0
        for token in tokens:
            count += begin <= at < end
            at += len(self.model.piece(token))
        return count

    def spells_control(self, *texts: str) -> bool:
        """Whether a text holds the spelling of a control token."""
        pattern = self._control_text
        return pattern is not None and any(pattern.search(text) for text in texts)

    # Parts

    def _cut_anew(self, markup: str) -> tuple[_Part, ...]:
        """Markup as plain text and control tokens, cut as llama.cpp cuts a text: longest first."""
        parts: list[_Part] = [markup] if markup else []
        used = [special for special in self.model.specials if special.text in markup]
        for special in sorted(used, key=lambda one: -len(one.text)):
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
        return tuple(parts)

    def _ids_anew(self, parts: tuple[_Part, ...], fresh: bool) -> tuple[int, ...]:
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
        if fresh or not self.model.sentencepiece:
            return self.model.tokenize(text)
        lead = self.model.tokenize("\n")
        ids = self.model.tokenize("\n" + text)
        return ids[len(lead) :] if ids[: len(lead)] == lead else self.model.tokenize(text)


def _border(between: Sequence[_Part]) -> int:
    """Where markup between two messages parts them: after its last control token, else before the text."""
    controls = [index for index, part in enumerate(between) if isinstance(part, _Control)]
    return controls[-1] + 1 if controls else len(between)
