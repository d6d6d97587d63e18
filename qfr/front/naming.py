"""What a model is called in tables when its configuration gives it no name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from qfr.engine.files.header import read_header
from qfr.errors import ModelFileError

# The preset at the end of a file's name, and the number of a part.
_PRESET = re.compile(r"[-._ ](?:UD[-_])?(?:I?Q\d\w*|B?F16|FP16|F32|MXFP4\w*|NVFP4|TQ\d_\d)$", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_NAMELESS = "local"
# Names of files that say nothing about the model.
_SAYS_NOTHING = re.compile(r"(ggml-)?model|pytorch_model|weights|gguf|I?Q\d\w*|B?F16|F32|", re.IGNORECASE)


def name_of_model(model: Mapping[str, object], served: object) -> str:
    """A name from the file, so that two files are two models and the presets of one stay one.

    Parameters
    ----------
    model : mapping
        The group `model`, resolved.
    served : object
        The model's name at a server, None where there is none.

    Returns
    -------
    str
        The file's name without its preset; where that says nothing, the file's `general.name` or its folder;
        else the name at the server or of the repository; `local` when there is nothing to take it from.
    """
    given = model.get("path") or model.get("base")
    if isinstance(given, str):
        path = Path(given).expanduser()
        stem = _PART.sub("", path.name.removesuffix(".gguf"))
        while (shorter := _PRESET.sub("", stem)) != stem:
            # `qfr quantize` names a file x-F16-Q4_K_M.
            stem = shorter
        if _SAYS_NOTHING.fullmatch(stem):
            stem = _general_name(path) or path.absolute().parent.name
        return _plain(stem)
    for other in (served, model.get("repo_id")):
        if isinstance(other, str):
            return _plain(other.rstrip("/").rpartition("/")[2])
    return _NAMELESS


def _general_name(path: Path) -> str:
    try:
        name = read_header(path).get("general.name")
    except ModelFileError:
        # Whether the file can be used is checked later, with its own message.
        return ""
    return name if isinstance(name, str) else ""


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", text).strip("-_.+") or _NAMELESS
