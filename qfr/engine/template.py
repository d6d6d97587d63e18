"""A GGUF's own chat template, taken apart into the markup around each content.

The template is rendered once with sentinels as contents. What stands between them is the markup; contents
are never rendered by it. So a content cannot act as markup, and the transcript is append-only by
construction, provided that the template is: that is checked here, with several rounds.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qfr.errors import ModelFileError

# Templates may print today's date. It is fixed to the day that Llama 3.1's own template falls back to, so
# that a prompt does not change overnight.
FIXED_DATE = datetime.datetime(2024, 7, 26)
# Observations after which the markup must still be the same.
_ROUNDS = 4
# Holds what templates are known to escape, strip or split.
_AWKWARD = "{x}<a & b='c' \"d\">\n  </think> [INST] %% ${e} {{ f }}"


@dataclass(frozen=True)
class Slot:
    """Treatment of one kind of content."""

    strips_left: bool
    # The template strips blanks in front of the content.
    strips_right: bool
    # The template strips blanks behind it.

    def clean(self, content: str) -> str:
        """The content as the template would write it."""
        content = content.lstrip() if self.strips_left else content
        return content.rstrip() if self.strips_right else content


@dataclass(frozen=True)
class Markup:
    """Text that the template writes around contents, in the order of a transcript."""

    before_system: str
    # From the start to the system message.
    before_task: str
    # Between the system message and the first user message.
    before_turn: str
    # Between a user message and the assistant's text (the generation prompt).
    before_observation: str
    # Between the assistant's text and the next user message.
    system: Slot
    task: Slot
    observation: Slot
    system_role: str
    # own = a turn of its own; folded = joined to the first user message.
    sha256: str
    # Digest of the template's text.


# Tags of training templates around the assistant's text: they write nothing.
_GENERATION = re.compile(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})")


def _plain_block(tag: re.Match[str]) -> str:
    return tag.group(1) + ("endif" if tag.group(2) else "if true") + tag.group(3)


class _Refused(Exception):
    """The template called raise_exception."""


def _refuse(message: str) -> str:
    raise _Refused(message)


def _tojson(value: object, indent: int | None = None, ensure_ascii: bool = False) -> str:
    # As chat templates are rendered elsewhere: no HTML escapes.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


class ChatTemplate:
    """Renders a chat template in Jinja's sandbox.

    Parameters
    ----------
    text : str
        The template.
    bos, eos : str
        Spelling of the model's begin and end tokens, "" where it has none.
    file : str
        Named in errors.
    """

    def __init__(self, text: str, bos: str, eos: str, file: str) -> None:
        self.text, self._bos, self._eos, self._file = text, bos, eos, file
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        try:
            self._template = environment.from_string(_GENERATION.sub(_plain_block, text))
        except jinja2.TemplateSyntaxError as error:
            raise ModelFileError(f"its chat template cannot be read: {error}", where=file) from None

    def render(self, contents: Sequence[str], *, with_system: bool = True) -> str:
        """The whole transcript for system, user, assistant, user … contents, ready for the next turn.

        `with_system` false leaves the system message out: contents then start with the user's.

        Raises
        ------
        ModelFileError
            The template refuses this conversation or fails.
        """
        roles = [("user", "assistant")[index % 2] for index in range(len(contents))]
        if with_system:
            roles = ["system", *roles[:-1]]
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
                tools=None,
                documents=None,
                raise_exception=_refuse,
                strftime_now=FIXED_DATE.strftime,
            )
        except _Refused as error:
            raise ModelFileError(
                f"its chat template refuses the conversation {', '.join(roles)}: {error}",
                where=self._file,
                hint="a model whose template takes no system message cannot be given the prompt",
            ) from None
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise ModelFileError(f"its chat template fails: {error}", where=self._file) from None

    def markup(self) -> Markup:
        """The markup around contents.

        Raises
        ------
        ModelFileError
            The template changes or drops contents, or rewrites earlier text as the conversation grows.
        """
        pieces = [self._between(rounds) for rounds in range(_ROUNDS)]
        system, task, turn = pieces[0]
        observation = pieces[1][3]
        for rounds, found in enumerate(pieces):
            if found != [system, task, turn, *([observation, turn] * rounds)]:
                raise ModelFileError(
                    "its chat template is not append-only: earlier text changes as the conversation "
                    f"grows to {rounds + 1} user messages",
                    where=self._file,
                    hint="transcripts are continued token by token, so each message has to be written once",
                )
        awkward = [f"Q{index}{_AWKWARD}{index}Q" for index in range(4)]
        rendered = self.render(awkward)
        if not all(awkward[index] in rendered for index in (0, 1, 3)):
            raise ModelFileError("its chat template changes the text of messages", where=self._file)
        return Markup(
            before_system=system,
            before_task=task,
            before_turn=turn,
            before_observation=observation,
            system=self._slot(0),
            task=self._slot(1),
            observation=self._slot(3),
            system_role="folded" if self._folds(task, observation) else "own",
            sha256=sha256_of(self.text),
        )

    def _between(self, rounds: int) -> list[str]:
        """Text before and between the sentinels, and after the last."""
        marks = [f"QFR{index:02d}MARK" for index in range(2 + 2 * rounds)]
        rest, found = self.render(marks), []
        for mark in marks:
            before, hit, rest = rest.partition(mark)
            if not hit or mark in rest:
                what = "repeats" if hit else "drops or reorders"
                raise ModelFileError(
                    f"its chat template {what} messages of the conversation", where=self._file
                )
            found.append(before)
        return [*found, rest]

    def _slot(self, index: int) -> Slot:
        marks = [f"QFR{number}MARK" for number in range(4)]
        padded = f" \n {marks[index]} \n "
        before, _, after = self.render([*marks[:index], padded, *marks[index + 1 :]]).partition(marks[index])
        return Slot(strips_left=not before.endswith(" \n "), strips_right=not after.startswith(" \n "))

    def _folds(self, before_task: str, before_observation: str) -> bool:
        """Whether the first user message lacks the header that user messages have.

        The header is what an observation's markup shares with the opening of a conversation that has no
        system message.
        """
        try:
            opening = self.render(["QFRMARK"], with_system=False).partition("QFRMARK")[0]
        except ModelFileError:
            # It insists on a system message, so it has one of its own.
            return False
        header = _common_end(opening, before_observation)
        return not before_task.endswith(header)


def _common_end(first: str, second: str) -> str:
    """The longest text that both end with."""
    size = 0
    while size < min(len(first), len(second)) and first[-1 - size] == second[-1 - size]:
        size += 1
    return first[len(first) - size :]


def sha256_of(template: str) -> str:
    """Digest of a template's text."""
    return hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()
