"""A chat template in Jinja's sandbox: what it writes for a conversation, and which strings it looks for.

Rendering is all that happens here. How a conversation becomes segments of a transcript is in
`qfr.engine.llama.transcript`.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import SandboxedEnvironment

from qfr.errors import ModelFileError

# Templates may print today's date. It is fixed to the day that Llama 3.1's own template falls back to, so
# that a prompt does not change overnight.
FIXED_DATE = datetime.datetime(2024, 7, 26)
# Between a system text and the first user message, where a template takes no system message: as llama.cpp.
SYSTEM_JOIN = "\n"
# Variables that are ours to set.
OWN_VARIABLES = (
    *("messages", "add_generation_prompt", "bos_token", "eos_token", "tools", "documents"),
    *("functions", "datetime", "raise_exception", "strftime_now"),
)


@dataclass(frozen=True)
class Dialect:
    """How a template wants to be given a conversation."""

    system: bool
    # It takes a system message; False = the system text heads the first user message.
    typed: bool
    # Contents are lists of parts, each with a type and a text; False = plain texts.
    tool_list: bool
    # It wants an empty list of tools; False = none.


# In the order in which they are tried.
DIALECTS = tuple(
    Dialect(system, typed, tool_list)
    for system in (True, False)
    for typed in (False, True)
    for tool_list in (False, True)
)

# Tags of training templates around the assistant's text: they write nothing.
_GENERATION = re.compile(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})")


def _plain_block(tag: re.Match[str]) -> str:
    return tag.group(1) + ("endif" if tag.group(2) else "if true") + tag.group(3)


class TemplateRefused(ModelFileError):
    """The template called raise_exception."""


class _Refused(Exception):
    """Raised inside a rendering."""


def _refuse(message: str) -> str:
    raise _Refused(message)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # As chat templates are rendered elsewhere: no HTML escapes.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_listed,
    )


def _listed(value: object) -> object:
    if isinstance(value, GeneratorType):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


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
    options : mapping
        More variables of the template, such as ``enable_thinking``.
    """

    def __init__(
        self, text: str, bos: str, eos: str, file: str, options: Mapping[str, object] | None = None
    ) -> None:
        self.text, self._bos, self._eos, self.file = text, bos, eos, file
        self._options = dict(options or {})
        environment = SandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        # Nothing is escaped: Jinja's own `safe` would escape what it is joined to.
        environment.filters["safe"] = lambda value: value
        source = _GENERATION.sub(_plain_block, text)
        try:
            self._tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelFileError(f"its chat template cannot be read: {error}", where=file) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: object = None,
        prompt: bool = True,
        more: Mapping[str, object] | None = None,
    ) -> str:
        """What the template writes for messages, with the opening of the next turn where `prompt` says so.

        Raises
        ------
        TemplateRefused
            The template refuses this conversation.
        ModelFileError
            The template fails.
        """
        variables: dict[str, object] = {
            **(more or {}),
            **self._options,
            "messages": messages,
            "add_generation_prompt": prompt,
            "bos_token": self._bos,
            "eos_token": self._eos,
            **self._tool_variables(tools),
            "documents": None,
            "raise_exception": _refuse,
            "strftime_now": FIXED_DATE.strftime,
        }
        try:
            return self._template.render(variables)
        except _Refused as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise TemplateRefused(
                f"its chat template refuses the conversation {roles}: {error}",
                where=self.file,
                hint="model.template=FILE gives another template",
            ) from None
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
            RecursionError,
        ) as error:
            raise ModelFileError(
                f"its chat template fails: {error}",
                where=self.file,
                hint="model.template=FILE gives another template",
            ) from None

    def write(
        self, contents: Sequence[str], dialect: Dialect, variables: Mapping[str, object] | None = None
    ) -> str:
        """The transcript of system, user, assistant, user … contents, ready for the next turn.

        `variables` of the template count where the user sets none.
        """
        texts = list(contents)
        if not dialect.system:
            texts[:2] = [SYSTEM_JOIN.join(texts[:2])]
        first = ("system", "user") if dialect.system else ("user",)
        turns = ("assistant", "user")
        messages = [
            {
                "role": first[index] if index < len(first) else turns[(index - len(first)) % 2],
                "content": [{"type": "text", "text": text}] if dialect.typed else text,
            }
            for index, text in enumerate(texts)
        ]
        return self.render(messages, tools=[] if dialect.tool_list else None, more=variables)

    def described(self) -> dict[str, object]:
        """Template and variables, for the record."""
        return {
            "template": self.text,
            "options": self._options,
            "bos_token": self._bos,
            "eos_token": self._eos,
            "date": FIXED_DATE.date().isoformat(),
        }

    def _tool_variables(self, tools: object) -> dict[str, object]:
        """The tools, also under the names that older templates give them."""
        if tools is None:
            return {"tools": None}
        functions = _tojson(tools, indent=2) if tools else ""
        return {"tools": tools, "functions": functions, "datetime": FIXED_DATE.strftime("%b %d %Y")}

    def sought(self) -> tuple[str, ...]:
        """Strings that the template compares contents with, splits them at or replaces in them.

        What a template does to a content can depend on such a string only where the content holds it.
        """
        found = {text for text in self._constants() if text.strip() and len(text) > 1}
        return tuple(sorted(found, key=lambda text: (-len(text), text)))

    def _constants(self) -> Iterator[str]:
        kinds = (jinja2.nodes.Call, jinja2.nodes.Compare, jinja2.nodes.Assign, jinja2.nodes.Filter)
        for node in self._tree.find_all(kinds):
            for constant in node.find_all(jinja2.nodes.Const):
                if isinstance(constant.value, str):
                    yield constant.value


def sha256_of(template: str) -> str:
    """Digest of a template's text."""
    return hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()
