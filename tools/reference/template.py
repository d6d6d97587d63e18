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
CALL_BLOCK = (
    '\n\nCall a tool with <tool_call>\n{"name": "<name>", "arguments": {"<argument>": <value>}}\n</tool_call>'
)
RESPONSE = ("<tool_response>\n", "\n</tool_response>")
# What stands around a result.
HERMES = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}<|user|>"
    + "{{ m['content'] }}".join(RESPONSE)
    # Jinja drops a line break behind a tag, so that those are written as texts.
    + "{% else %}<|{{ m['role'] }}|>{{ m['content'] }}{% if loop.first and tools %}{{ '\\n\\nTools:' }}"
    "{% for t in tools %}{% set f = t['function'] %}{{ '\\n- ' + f['name'] }}("
    "{% for name, p in f['parameters']['properties'].items() %}{{ name }}"
    "{% if name not in f['parameters']['required'] %}?{% endif %}: {{ p['type'] }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}): {{ f['description'] }}{% endfor %}"
    f"{{{{ {CALL_BLOCK!r} }}}}"
    "{% endif %}{% for c in m['tool_calls'] or [] %}{% if not loop.first %}{{ '\\n' }}{% endif %}"
    "{% set f = c['function'] %}<tool_call>\n"
    '{"name": {{ f["name"] | tojson }}, "arguments": {{ f["arguments"] | tojson }}}'
    "\n</tool_call>{% endfor %}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Tools as lines of the system message, calls and results in the tags of Hermes.


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
