"""A model's text to tool calls, by the form that its template writes them in.

Strict: the whole turn, thoughts aside, is calls exactly as the template writes them. Tolerant: text before
and after the calls, blanks that differ, arguments as a JSON string, a missing end of the last call. Nothing
else is repaired: one call that begins and cannot be read makes the turn unreadable. Model text is hostile:
nothing here raises on it, and nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from qfr.bounded_json import Decoder
from qfr.canonical import Json, canonical
from qfr.engine.native.form import ID, INDEX, KEY, NAME, CallForm, Keyed
from qfr.thoughts import apart

MAX_CALLS = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_TAG = re.compile(r"<[^<>]{2,}>|\[[A-Z_]{3,}\]")
_PLACEHOLDERS = {ID: r"[A-Za-z0-9_.:-]+", INDEX: r"[0-9]+"}


@dataclass(frozen=True)
class NativeCall:
    """One call."""

    name: str
    arguments: str
    # The arguments object as canonical JSON.


@dataclass(frozen=True)
class NativeTurn:
    """A turn, read."""

    content: str
    # Text before the first call, or the whole text without thoughts where there is none.
    calls: tuple[NativeCall, ...]
    strict: bool
    # The calls stand exactly as the template writes them, and nothing else does.
    problem: str
    # Why a call that begins cannot be read; "" otherwise.
    unclosed: bool
    # The turn ends inside a thought.


class _Unreadable(Exception):
    """A call that begins and is none."""


def read_calls(
    text: str, form: CallForm, texts: Mapping[str, frozenset[str]], *, inside: bool = False
) -> NativeTurn:
    """Read a turn. Never raises, whatever the text.

    Parameters
    ----------
    text : str
        The turn as generated, without its end token.
    form : CallForm
        How the template writes calls.
    texts : mapping
        Per tool the names of its parameters that are texts: where a form writes texts bare, ``12`` is the
        text "12" for these and a number for others.
    inside : bool
        The template has opened a thought before the turn.
    """
    spoken = apart(text, inside=inside)
    said = "".join(spoken.said)
    for strict in (True, False):
        reader = _Reader(said, form, texts, strict=strict)
        start = reader.begins()
        if start is None:
            continue
        try:
            calls, end = reader.calls(start)
        except _Unreadable as error:
            if not strict:
                return NativeTurn(said[: start[0]].strip(), (), False, str(error), spoken.unclosed)
            continue
        if strict and (said[: start[0]].strip("\n ") or said[end:].strip()):
            continue
        if reader.broken(said[: start[0]]) or reader.broken(said[end:]):
            problem = "a call begins beside those that can be read, and is none"
            return NativeTurn(said[: start[0]].strip(), (), False, problem, spoken.unclosed)
        return NativeTurn(said[: start[0]].strip(), calls, strict, "", spoken.unclosed)
    return NativeTurn(said.strip(), (), False, "", spoken.unclosed)


@lru_cache(1024)
def _pattern(text: str, strict: bool, values: tuple[tuple[str, str], ...] = ()) -> re.Pattern[str]:
    """A text of a form as a pattern: placeholders filled in, blanks free where it is not strict."""
    known = _PLACEHOLDERS | {key: re.escape(value) for key, value in values}
    out = []
    for piece in re.split(f"([{''.join(known)}]|\\s+)" if known else r"(\s+)", text):
        if piece in known:
            out.append(known[piece])
        elif piece and not piece.strip():
            out.append(re.escape(piece) if strict else r"\s*")
        else:
            out.append(re.escape(piece))
    body = "".join(out)
    return re.compile(body if strict else rf"\s*{body}\s*")


class _Reader:
    def __init__(self, text: str, form: CallForm, texts: Mapping[str, frozenset[str]], *, strict: bool):
        self._text, self._form, self._texts, self._strict = text, form, texts, strict

    def broken(self, text: str) -> bool:
        """Whether text beside the calls holds the tag that a call begins with."""
        tag = _TAG.match((self._form.before_name or self._form.opening).strip())
        return tag is not None and tag[0] in text

    def begins(self) -> tuple[int, int] | None:
        """Where the first call begins, and where its name does."""
        form = self._form
        for before in (form.opening + form.before_name, form.opening.strip() + form.before_name.lstrip()):
            wanted = before if self._strict else before.strip()
            if not wanted.strip():
                continue
            found = _pattern(wanted, self._strict).search(self._text)
            if found is not None:
                return found.start(), found.end()
        lone = form.before_name.strip()
        if not self._strict and lone:
            found = _pattern(lone, False).search(self._text)
            if found is not None:
                return found.start(), found.end()
        return None

    def calls(self, start: tuple[int, int]) -> tuple[tuple[NativeCall, ...], int]:
        """The calls, and where they end."""
        form, at, out = self._form, start[1], list[NativeCall]()
        while len(out) < MAX_CALLS:
            call, at = self._call(at)
            out.append(call)
            following = self._match(form.separator + form.before_name, at) if form.several else None
            if following is None:
                break
            at = following
        closing = self._match(form.closing, at)
        if closing is None and self._strict and self._text[at:].strip():
            raise _Unreadable("text follows the last call")
        return tuple(out), at if closing is None else closing

    def _match(self, text: str, at: int, **values: str) -> int | None:
        """Where a text of the form ends that begins here."""
        if not text.strip() and not (self._strict and text):
            return at
        found = _pattern(text, self._strict, tuple(values.items())).match(self._text, at)
        return None if found is None else found.end()

    def _need(self, text: str, at: int, what: str, **values: str) -> int:
        end = self._match(text, at, **values)
        if end is None:
            raise _Unreadable(f"{what} is missing at character {at}")
        return end

    def _call(self, at: int) -> tuple[NativeCall, int]:
        form = self._form
        named = _NAME.match(self._text, at)
        if named is None:
            raise _Unreadable(f"a call without a name at character {at}")
        name = named[0]
        while (end := self._match(form.after_name, at + len(name), **{NAME: name})) is None:
            # A name that holds what stands behind names.
            name = name[:-1]
            if not name:
                raise _Unreadable(f"what follows a name is missing at character {named.end()}")
        if form.keyed is None:
            arguments, end = self._object(end)
        else:
            arguments, end = self._keyed(form.keyed, name, end)
        end = self._ended(form.after_arguments, end)
        return NativeCall(name, canonical(arguments)), end

    def _ended(self, text: str, at: int) -> int:
        end = self._match(text, at)
        if end is not None:
            return end
        if not self._strict and "".join(text.split()).startswith("".join(self._text[at:].split())):
            # The model stopped within the end of the last call.
            return len(self._text)
        raise _Unreadable(f"the end of a call is missing at character {at}")

    def _object(self, at: int) -> tuple[dict[str, Json], int]:
        if not self._strict:
            at += len(self._text[at:]) - len(self._text[at:].lstrip())
        decoded = Decoder(self._text).at(at)
        value, end = decoded.value, decoded.end
        if decoded.flaw is not None or not decoded.found:
            raise _Unreadable(decoded.flaw or f"the arguments are no JSON object at character {at}")
        if isinstance(value, str) and (self._form.text_arguments or not self._strict):
            inner = Decoder(value).at(0)
            value = inner.value if inner.found and inner.flaw is None else None
        if not isinstance(value, dict):
            raise _Unreadable("the arguments are no JSON object")
        return value, end

    def _keyed(self, keyed: Keyed, name: str, at: int) -> tuple[dict[str, Json], int]:
        arguments: dict[str, Json] = {}
        while True:
            begin = self._match(keyed.before_key, at)
            key = None if begin is None else _KEY.match(self._text, begin)
            if key is None or begin is None or self._match(self._form.after_arguments, at) not in (None, at):
                return arguments, at
            if key[0] in arguments:
                raise _Unreadable(f"the argument {key[0]!r} stands twice")
            arguments[key[0]], at = self._value(keyed, name, key[0], key.end())
            following = self._match(keyed.separator, at) if keyed.separator else at
            if following is None:
                return arguments, at
            at = following

    def _value(self, keyed: Keyed, name: str, key: str, at: int) -> tuple[Json, int]:
        texts = self._texts.get(name, frozenset())
        alike = keyed.text == keyed.other
        for is_text, (opens, closes) in ((True, keyed.text), (False, keyed.other)):
            if alike and is_text != (key in texts):
                continue
            begin = self._match(opens, at) if not is_text or not alike else self._exactly(opens, at)
            if begin is None:
                continue
            if not is_text:
                return self._plain(closes, begin, key, known=name in self._texts)
            return self._quoted(closes, begin, key)
        raise _Unreadable(f"the value of {key!r} is missing at character {at}")

    def _exactly(self, opens: str, at: int) -> int | None:
        """A text's own blanks begin right behind what opens it."""
        found = _pattern(opens, True).match(self._text, at)
        return self._match(opens, at) if found is None else found.end()

    def _quoted(self, closes: str, at: int, key: str) -> tuple[str, int]:
        if closes in ("'", '"'):
            found = re.compile(rf"((?:[^{closes}\\]|\\.)*){closes}", re.DOTALL).match(self._text, at)
            if found is None:
                raise _Unreadable(f"the text of {key!r} has no end")
            return _unescaped(found[1], closes), found.end()
        found = _pattern(closes, self._strict, ((KEY, key),)).search(self._text, at)
        if found is None:
            raise _Unreadable(f"the value of {key!r} has no end")
        return self._text[at : found.start()], found.end()

    def _plain(self, closes: str, at: int, key: str, *, known: bool) -> tuple[Json, int]:
        """A value that stands as JSON; Python's words for true, false and none are read too.

        What is no JSON is a text where the tool is not known, so that its name is what is wrong.
        """
        at += len(self._text[at:]) - len(self._text[at:].lstrip())
        for word, meant in (("True", True), ("False", False), ("None", None)):
            if self._text.startswith(word, at):
                return meant, self._need(closes, at + len(word), f"the end of {key!r}", **{KEY: key})
        decoded = Decoder(self._text).at(at)
        if decoded.found and decoded.flaw is None:
            end = self._match(closes, decoded.end, **{KEY: key})
            if end is not None:
                return decoded.value, end
        if known or not closes.strip():
            raise _Unreadable(f"the value of {key!r} is no JSON value")
        return self._quoted(closes, at, key)


def _unescaped(text: str, quote: str) -> str:
    """A quoted text's own text: escapes as in JSON, and that of its quotation mark."""
    if "\\" not in text:
        return text
    spelled = text.replace("\\'", "'") if quote == "'" else text
    try:
        value = json.loads('"' + re.sub(r'(?<!\\)"', r"\"", spelled) + '"', strict=False)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, str) else text
