"""Loads prompts: the exact bytes of a file, their digest, and no templating at all.

What a file holds (``${x}``, ``{{x}}``, ``%s``, JSON, trailing newline) reaches the model byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qfr.canonical import sha256_hex
from qfr.errors import PromptError


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
