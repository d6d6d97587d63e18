"""A cell's facts as MLflow params and tags, and back.

What a person filters by and the flat configuration of the cell are params (MLflow's compare view shows
them); everything else is a tag under `qfr.`, also what the configuration says of its sweep and of logging. A
value longer than MLflow holds goes to an artifact and the tag names its digest.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qfr.canonical import canonical, sha256_hex
from qfr.errors import TrackingError
from qfr.facts import CellFacts

PARAM_FIELDS = ("model", "quant", "prompt", "fault", "suite", "executor")

# MLflow's own limits are 6,000 and 8,000 characters.
_PARAM_LIMIT = 5_900
_TAG_LIMIT = 7_900
_KEY_LIMIT = 240
# Groups and keys of the configuration that say nothing of the cell: where it is logged, how it is reported.
_ASIDE = ("mode", "walk", "sweep", "exclude", "tracking", "report", "registration")
_LONG = "@artifact "


@dataclass(frozen=True)
class StoredFacts:
    """What goes to MLflow for one cell."""

    params: Mapping[str, str]
    tags: Mapping[str, str]
    files: Mapping[str, bytes]
    # Artifact path and content of the values that are too long for a tag.


def store_facts(facts: CellFacts) -> StoredFacts:
    """Split a cell's facts into params, tags and, for long values, artifacts. Nothing is ever cut."""
    params = {name: _to_text(getattr(facts, name)) for name in PARAM_FIELDS}
    flat = _flat_config(facts.config)
    if engine := flat.get("config.engine.kind"):
        params["engine"] = engine
    aside = {name for name in flat if name.split(".")[1] in _ASIDE}
    params |= {name: text for name, text in flat.items() if name not in aside}
    tags: dict[str, str] = {"qfr.kind": "cell", **{f"qfr.{name}": flat[name] for name in aside}}
    files: dict[str, bytes] = {}
    for field in dataclasses.fields(facts):
        if field.name in PARAM_FIELDS:
            continue
        text = _to_text(getattr(facts, field.name))
        if len(text) > _TAG_LIMIT:
            data = text.encode("utf-8", "surrogatepass")
            path = f"facts/{field.name}.txt"
            files[path] = data
            text = f"{_LONG}{path} {sha256_hex(data)}"
        tags[f"qfr.{field.name}"] = text
    return StoredFacts(params, tags, files)


def load_facts(
    params: Mapping[str, str], tags: Mapping[str, str], *, where: str, fetch: Callable[[str], bytes]
) -> CellFacts:
    """Rebuild a cell's facts.

    Parameters
    ----------
    params, tags : mapping
        Of the run.
    where : str
        Names the run in errors.
    fetch : callable
        Reads an artifact of the run by its path.

    Raises
    ------
    TrackingError
        A param or tag is missing or not of its type, or a long value's artifact was exchanged.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(CellFacts):
        source, key = (params, field.name) if field.name in PARAM_FIELDS else (tags, f"qfr.{field.name}")
        if key not in source:
            if field.default is not dataclasses.MISSING:
                # A field that came later: an older run is what its default says.
                continue
            raise TrackingError(
                f"the run lacks {key!r}",
                where=where,
                hint="was it made by another qfr version, or edited by hand?",
            )
        text = source[key]
        if text.startswith(_LONG):
            text = _fetch_long(text, where, fetch)
        values[field.name] = _from_text(text, str(field.type), f"{key}", where)
    return CellFacts(**values)


def _fetch_long(text: str, where: str, fetch: Callable[[str], bytes]) -> str:
    path, _, digest = text.removeprefix(_LONG).partition(" ")
    data = fetch(path)
    if sha256_hex(data) != digest:
        raise TrackingError(f"the artifact {path} is not the one that was stored", where=where)
    return data.decode("utf-8", "surrogatepass")


def _to_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_text(text: str, kind: str, key: str, where: str) -> str | int | bool:
    if kind == "str":
        return text
    if kind == "bool" and text in ("true", "false"):
        return text == "true"
    try:
        if kind == "int":
            return int(text)
    except ValueError:
        pass
    raise TrackingError(
        f"{key}={text!r} is not of type {kind}", where=where, hint="was the run edited by hand?"
    )


def _flat_config(config: str) -> dict[str, str]:
    """`config.engine.n_batch` and so on; lists as JSON; a value too long for a param names config.yaml."""
    flat: dict[str, str] = {}

    def walk(prefix: str, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                walk(f"{prefix}.{key}", item)
            return
        text = value if isinstance(value, str) else canonical(value)
        # MLflow's alphabet of names; a preset or family of another spelling must not stop a run.
        name = re.sub(r"[^\w.:/ -]", "_", prefix, flags=re.ASCII)[:_KEY_LIMIT]
        flat[name] = text if len(text) <= _PARAM_LIMIT else "(too long: see config.yaml)"

    walk("config", json.loads(config) if config else {})
    flat.pop("config", None)
    return flat
