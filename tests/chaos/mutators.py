"""Makes hostile inputs out of good ones: damaged bytes, damaged JSON, and texts that try to be evaluated."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

# What a JSON value may be replaced by: every type, the ends of number ranges, deep nesting, texts that mean
# something to a terminal, a browser, a spreadsheet, a shell, a template or Python.
NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    10**40,
    10**400,
    -(2**63),
    0.1,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "0",
    "-1e999",
    "\x00",
    "\x1b]0;owned\x07\x1b[2J",
    "\ud800",
    "\u202e\u2066",
    "<script>alert(1)</script>",
    '=HYPERLINK("http://127.0.0.1","x")',
    "../../../../etc/passwd",
    "/dev/zero",
    "C:\\x",
    "{{ 7 * 7 }}{% for x in range(10) %}",
    "${oc.env:HOME}",
    "%s%n%d",
    "__import__('os').system('exit 3')",
    "9**9**9",
    "a" * 5000,
    "(" * 5000,
    "9" * 5000,
    [],
    {},
    [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]],
    {"": {"": {"": {"": None}}}},
    [0] * 300,
    {"tool": "submit_answer", "arguments": {"answer": 1}},
)

# What may be written into a text at any place.
PIECES = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\n",
    b"\r\n",
    b"\xe2\x80\xa8",
    b'"',
    b"'",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"NaN",
    b"-Infinity",
    b"1e999999999",
    b"-0",
    b"00",
    b".5",
    b"//",
    b"**",
    b"/0",
    b"9" * 400,
    b"[" * 400,
    b'{"a":' * 300,
    b"(" * 400,
    b"`id`",
    b"<|im_end|>",
    b"```json\n",
    b"Observation: ",
    b'{"tool": "submit_answer", "arguments": {"answer": ',
    b'{"tool": "get_order", "arguments": {"order_id": "ORD-1001"}}',
)


def damage_bytes(rng: Random, data: bytes, most: int = 6) -> bytes:
    """A few random edits: flip, insert, delete, repeat, cut, splice."""
    edited = bytearray(data)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(edited) + 1)
        length = min(len(edited) - at, rng.choice((1, 2, 4, 16, 64, 1024)))
        kind = rng.randrange(7)
        if kind == 0 and at < len(edited):
            edited[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            edited[at:at] = rng.choice(PIECES)
        elif kind == 2:
            del edited[at : at + length]
        elif kind == 3:
            edited[at:at] = edited[at : at + length] * rng.choice((1, 2, 20))
        elif kind == 4:
            del edited[at:]
        elif kind == 5:
            edited[at : at + length] = rng.randbytes(length)
        else:
            other = rng.randrange(len(edited) + 1)
            edited[at : at + length] = edited[other : other + length]
    return bytes(edited)


def damage_json(rng: Random, value: Any, most: int = 3) -> Any:
    """A copy with a few values, keys or items replaced, dropped, doubled or renamed."""
    edited = copy.deepcopy(value)
    for _ in range(rng.randint(1, most)):
        places = _places(rng, edited)
        if not places:
            return rng.choice(NASTY)
        holder, key = rng.choice(places)
        _edit(rng, holder, key)
    return edited


def _places(rng: Random, value: Any) -> list[tuple[Any, Any]]:
    """Holders and keys along a few random ways down, so that deep values are met as often as shallow ones."""
    found: list[tuple[Any, Any]] = []
    for _ in range(4):
        at = value
        while isinstance(at, dict | list) and at:
            key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            found.append((at, key))
            at = at[key]
    return found


def _edit(rng: Random, holder: Any, key: Any) -> None:
    kind = rng.randrange(5)
    if (isinstance(holder, dict) and key not in holder) or (isinstance(holder, list) and key >= len(holder)):
        return
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == 1:
        holder[str(key) + rng.choice(("s", "_", " ", "\x00"))] = holder.pop(key)
    elif kind == 2 and isinstance(holder[key], str):
        holder[key] = damage_text(rng, holder[key])
    elif kind == 3 and isinstance(holder, list):
        holder[key], holder[0] = holder[0], holder[key]
    else:
        holder[key] = copy.deepcopy(rng.choice(NASTY))


def damage_text(rng: Random, text: str) -> str:
    """A text with damaged bytes, read back with its broken ones as lone surrogates."""
    return damage_bytes(rng, text.encode("utf-8", "surrogatepass"), 3).decode("utf-8", "surrogateescape")


def json_bytes(value: Any) -> bytes:
    """JSON as Python writes it, NaN, infinities and lone surrogates included."""
    return json.dumps(value).encode("ascii")


def sample(rng: Random, alphabet: Sequence[str], most: int) -> str:
    """A random text of an alphabet's words."""
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, most)))
