"""Loads prompts: the exact bytes of a file, their digest, and no templating at all.

What a file holds (``${x}``, ``{{x}}``, ``%s``, JSON, trailing newline) reaches the model byte for byte.
Clauses that are switched and rewrites that are asked for change the text by fixed rules (`qfr.clauses`,
`qfr.rewrites`); the result has a digest of its own, by which it is identified.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qfr.canonical import sha256_hex
from qfr.clauses import apply
from qfr.config import PromptConfig
from qfr.errors import PromptError
from qfr.rewrites import rewrite


@dataclass(frozen=True)
class Prompt:
    """A system prompt."""

    text: str
    # The file's bytes as UTF-8: `text.encode()` gives them back.
    sha256: str
    # Digest of the bytes.

    def followed_by(self, block: str) -> Prompt:
        """A prompt with a further block of text below it: another prompt, with a digest of its own."""
        text = f"{self.text.rstrip()}\n\n{block}\n"
        return Prompt(text, sha256_hex(text.encode("utf-8")))


def load_prompt(path: Path, pinned: str | None) -> Prompt:
    """Read a prompt file and check it against its pinned digest.

    Parameters
    ----------
    path : Path
        The file.
    pinned : str or None
        SHA-256 that its bytes must have; None = not pinned.

    Raises
    ------
    PromptError
        Missing, a folder, unreadable, empty, not UTF-8, or not the pinned bytes.
    """
    where = str(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        names = sorted(other.name for other in path.parent.glob("*.md")) if path.parent.is_dir() else []
        there = f"that folder holds {', '.join(names)}" if names else "that folder holds no prompt"
        raise PromptError("there is no such prompt file", where=where, hint=there) from error
    except IsADirectoryError as error:
        raise PromptError(
            "this is a folder, not a prompt file", where=where, hint="name a file in it"
        ) from error
    except PermissionError as error:
        raise PromptError(
            "the prompt file cannot be read", where=where, hint="give yourself read permission on it"
        ) from error
    sha256 = sha256_hex(data)
    if pinned is not None and sha256 != pinned:
        raise PromptError(
            f"the prompt's SHA-256 is {sha256}, pinned is {pinned}",
            where=where,
            hint="a changed prompt is a new prompt: restore the file, or save it under a new name",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"the prompt is not UTF-8 (byte {error.start})", where=where, hint="save the file as UTF-8"
        ) from error
    if not text.strip():
        raise PromptError("the prompt is empty", where=where, hint="write the system message into it")
    return Prompt(text, sha256)


def vary_prompt(prompt: Prompt, asked: PromptConfig) -> Prompt:
    """Switch the clauses of a base and rewrite it, as a configuration asks; else the very same prompt."""
    text = apply(prompt.text, asked.base or asked.name, asked.known, asked.switches)
    text = rewrite(text, asked.rewrites, asked.rewrite_seed)
    return prompt if text == prompt.text else Prompt(text, sha256_hex(text.encode("utf-8")))
