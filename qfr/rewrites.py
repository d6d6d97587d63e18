"""Transformations of a prompt that keep what it says: another order, numbering, case, spacing, words.

The idea is Brittlebench's; the transformations are ours. They apply to any text, in the order of `Rewrite`,
and each draws its variant from SHA-256 of the seed and its own name, so that one seed gives one text on every
machine. Lines that show a tool, a call or a worked example keep their words: the agent copies their form.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from enum import StrEnum

from qfr.errors import ConfigError, did_you_mean


class Rewrite(StrEnum):
    """A transformation. They apply in this order, however they are listed."""

    sections = "sections"
    # Another order of the paragraphs behind the first.
    numbering = "numbering"
    # Numbered rules become plain sentences; the sentences of a paragraph become numbered rules.
    tools = "tools"
    # Another order of the tools' lines.
    synonyms = "synonyms"
    # Words from a fixed list.
    headings = "headings"
    # Headings (a line of at most three words that ends with a colon) in capitals, or as titles.
    spacing = "spacing"
    # More or fewer blank lines.


# Each word stands for the other one, either way.
_SYNONYMS = (
    ("solve the task", "complete the task"),
    ("by calling tools", "by using tools"),
    ("nothing else", "no other text"),
    ("permanently unavailable", "out of service for good"),
    ("only then call", "only after that call"),
    ("you receive", "you get"),
    ("hand it in", "turn it in"),
    ("find out", "establish"),
    ("the task is impossible", "the task cannot be done"),
    ("look up", "retrieve"),
    ("work out", "determine"),
    ("never invent", "do not make up"),
    ("do not guess", "never guess"),
    ("compute the result yourself", "do the calculation yourself"),
    ("cannot be completed", "cannot be finished"),
    ("write nothing", "put nothing"),
)

# A line that shows a tool, a call or an observation.
_SHOWN = re.compile(r"- |\{|Task:|Observation:|Format:")


def read_rewrites(names: Sequence[str]) -> list[str]:
    """Return the names of transformations, each once and in their order.

    Raises
    ------
    ConfigError
    """
    for name in names:
        if name not in list(Rewrite):
            raise ConfigError(
                f"prompt.rewrites: there is no rewrite {name!r}"
                + did_you_mean(name, [one.value for one in Rewrite]),
                hint="rewrites are " + ", ".join(Rewrite),
            )
    return [one.value for one in Rewrite if one.value in names]


def rewrite(text: str, names: Sequence[str], seed: int) -> str:
    """Return a text transformed by each of the named transformations in turn."""
    for name in read_rewrites(names):
        text = _WAYS[Rewrite(name)](text, seed)
    return text


def _draw(seed: int, *parts: object) -> int:
    """A large number that only the seed and the parts decide."""
    return int(hashlib.sha256("\x00".join(map(str, (seed, *parts))).encode()).hexdigest(), 16)


def _shuffled(items: Sequence[str], seed: int, name: str) -> list[str]:
    """Another order than the given one, wherever there is another."""
    order = list(items)
    for turn in range(64):
        order = [items[at] for at in sorted(range(len(items)), key=lambda at: _draw(seed, name, turn, at))]
        if order != list(items):
            break
    return order


def _sections(text: str, seed: int) -> str:
    first, *others = text.rstrip("\n").split("\n\n")
    return "\n\n".join([first, *_shuffled(others, seed, "sections")]) + text[len(text.rstrip("\n")) :]


def _numbering(text: str, seed: int) -> str:
    paragraphs = text.split("\n\n")
    numbered = [bool(re.match(r"[0-9]+\. ", line)) for line in text.split("\n")]
    if any(numbered):
        return "\n".join(re.sub(r"^[0-9]+\. ", "", line) for line in text.split("\n"))
    for at, paragraph in enumerate(paragraphs[1:], 1):
        lines = paragraph.rstrip("\n").split("\n")
        if any(_SHOWN.match(line) for line in lines):
            continue
        rules = [rule for line in lines for rule in re.split(r"(?<=[.?!]) (?=[A-Z])", line)]
        end = paragraph[len(paragraph.rstrip("\n")) :]
        sign = (".", ")")[_draw(seed, "numbering", at) % 2]
        paragraphs[at] = "\n".join(f"{n}{sign} {rule}" for n, rule in enumerate(rules, 1)) + end
    return "\n\n".join(paragraphs)


def _headings(text: str, seed: int) -> str:
    way = (str.upper, lambda line: f"## {line}", lambda line: f"**{line}**")[_draw(seed, "headings") % 3]
    lines = text.split("\n")
    return "\n".join(way(line) if re.fullmatch(r"\w+( \w+){0,2}:", line) else line for line in lines)


def _spacing(text: str, seed: int) -> str:
    end = text[len(text.rstrip("\n")) :]
    apart = ("\n", "\n\n\n", "\n\n\n\n")[_draw(seed, "spacing") % 3]
    return re.sub(r"\n{2,}", apart, text.rstrip("\n")) + end


def _synonyms(text: str, seed: int) -> str:
    lines = text.split("\n")
    for at, (one, other) in enumerate(_SYNONYMS):
        pattern = re.compile("|".join(map(re.escape, (one, other))), re.IGNORECASE)

        def put(found: re.Match[str], one: str = one, other: str = other) -> str:
            word = other if found[0].lower() == one else one
            return word[0].upper() + word[1:] if found[0][0].isupper() else word

        # The first seed's variant changes all of them; another seed leaves about half as they are.
        if seed == 0 or _draw(seed, "synonyms", at) % 2:
            lines = [line if _SHOWN.match(line) else pattern.sub(put, line) for line in lines]
    return "\n".join(lines)


def _tools(text: str, seed: int) -> str:
    lines = text.split("\n")
    at = [n for n, line in enumerate(lines) if re.match(r"- \w+\(.*\): ", line)]
    for place, line in zip(at, _shuffled([lines[n] for n in at], seed, "tools"), strict=True):
        lines[place] = line
    return "\n".join(lines)


_WAYS: dict[Rewrite, Callable[[str, int], str]] = {
    Rewrite.sections: _sections,
    Rewrite.numbering: _numbering,
    Rewrite.headings: _headings,
    Rewrite.spacing: _spacing,
    Rewrite.synonyms: _synonyms,
    Rewrite.tools: _tools,
}
