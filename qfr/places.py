"""Where conf/ and prompts/ are: the checkout that one stands in, else the checkout of the code, else the
copies that the installed package carries."""

from __future__ import annotations

from pathlib import Path

import qfr
from qfr.errors import PromptError, did_you_mean


def data_folder() -> Path:
    """The folder that holds conf/ and prompts/, absolute."""
    package = Path(qfr.__file__).resolve().parent
    here = Path.cwd()
    if (here / "run.py").is_file() and _holds_data(here):
        return here
    return package.parent if _holds_data(package.parent) else package / "_data"


def conf_folder() -> Path:
    """The configuration folder, absolute."""
    return data_folder() / "conf"


def prompt_path(file: str) -> Path:
    """Find a prompt file: an absolute path, a path from the working folder, or a name in prompts/.

    Raises
    ------
    PromptError
        There is no such file.
    """
    prompts = data_folder() / "prompts"
    for path in (Path.cwd() / file, prompts / file):
        if path.is_file():
            return path
    known = sorted(path.name for path in prompts.glob("[A-Z][0-9]*.md"))
    raise PromptError(
        f"no prompt file {file!r}" + did_you_mean(file, known),
        where="prompt.file",
        hint=f"a path from the working folder, an absolute path, or a file in {prompts} ({', '.join(known)})",
    )


def _holds_data(folder: Path) -> bool:
    return (folder / "conf" / "config.yaml").is_file() and (folder / "prompts").is_dir()
