"""From Hydra's composed configuration to plain, closed, checked dataclasses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from qfr.config import CellConfig, EngineKind
from qfr.errors import ConfigError, did_you_mean
from qfr.front.naming import name_of_model
from qfr.front.schema import holds_text, is_free, is_switch, type_words, unknown_key

#: Name of the closed schema in Hydra's ConfigStore. It is no entry of the defaults list of `config.yaml`:
#: Hydra would make a text of any number, and true or false of any, before anybody could say so.
SCHEMA = "qfr_cell"
ConfigStore.instance().store(name=SCHEMA, node=CellConfig, provider="qfr")


def to_cell(cfg: DictConfig) -> CellConfig:
    """Merge a composed configuration onto the closed schema.

    Hydra lets `+typo=1` and `++typo=1` pass even on a structured configuration; a strict merge onto a fresh
    one does not.

    Parameters
    ----------
    cfg : DictConfig
        The composed configuration, with or without Hydra's own node (which is left out).

    Raises
    ------
    ConfigError
        Unknown key, missing key, wrong type, a value out of its choices or range.
    """
    try:
        own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
        plain = OmegaConf.to_container(own, resolve=True)
        assert isinstance(plain, dict)
        _name_model(plain)
        _find_prompt(plain, cfg)
        _count_workers(plain)
        merged = OmegaConf.merge(ConfigStore.instance().load(f"{SCHEMA}.yaml").node, plain)
        _check_types(plain)
        cell = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise explain_value(error, cfg) from error
    assert isinstance(cell, CellConfig)
    return cell


def _name_model(plain: dict[Any, Any]) -> None:
    """Name a model that has no name."""
    model, engine = plain.get("model"), plain.get("engine")
    if not isinstance(model, dict):
        return
    given = [key for key in ("path", "base") if model.get(key) is not None]
    if len(given) == 1 and model.get("package") is not None:
        raise ConfigError(
            f"model.{given[0]} is given for {model.get('name')}, which is a file that qfr ships",
            hint=f"model=local model.{given[0]}=FILE",
        )
    if model.get("name") is not None:
        return
    server = engine.get("server") if isinstance(engine, dict) else None
    served = isinstance(server, dict) and isinstance(engine, dict) and engine.get("kind") == EngineKind.openai
    model["name"] = name_of_model(model, server.get("model") if served and isinstance(server, dict) else None)


def _find_prompt(plain: dict[Any, Any], cfg: DictConfig) -> None:
    """A prompt's text may lie beside the YAML file that names it, in a folder of the user's own."""
    prompt, hydra = plain.get("prompt"), cfg.get("hydra")
    if not isinstance(prompt, dict) or not isinstance(prompt.get("file"), str):
        return
    runtime = HydraConfig.get().runtime if hydra is None and HydraConfig.initialized() else None
    runtime = hydra.runtime if hydra is not None else runtime
    sources = (
        [] if runtime is None else [str(one.path) for one in runtime.config_sources if one.schema == "file"]
    )
    for folder in sources:
        beside = Path(folder) / "prompt" / prompt["file"]
        if beside.is_file() and not Path(prompt["file"]).is_absolute():
            prompt["file"] = str(beside)
            return


def _count_workers(plain: dict[Any, Any]) -> None:
    """`auto` is written 0 in a cell."""
    engine = plain.get("engine")
    if isinstance(engine, dict) and engine.get("workers") == "auto":
        engine["workers"] = 0


def explain_value(error: OmegaConfBaseException, cfg: DictConfig | None = None) -> ConfigError:
    """Say what OmegaConf found, with key, value, choices and the nearest name."""
    key = error.full_key or ""
    if isinstance(error, ConfigKeyError | ConfigAttributeError):
        what, hint = unknown_key(key)
        return ConfigError(what, hint=hint)
    if isinstance(error, MissingMandatoryValue):
        return ConfigError(
            f"{key} is missing", hint="give it in the YAML of its group or on the command line"
        )
    first = str(error).partition("\n")[0]
    if isinstance(error, ValidationError) and key:
        value = _named_value(first) if cfg is None else OmegaConf.select(cfg, key, throw_on_missing=False)
        choices, words = _choices(first), type_words(key)
        near = did_you_mean(str(value), choices)
        wanted = f"use one of {', '.join(choices)}" if choices else f"use {words}"
        if value is None and words == "a text":
            wanted += f"; the word null needs both quotes: '{key}=\"null\"'"
        return ConfigError(
            f"{key}={_shown(value)} is not possible{near}", hint=wanted if words or choices else first
        )
    return ConfigError(f"{key}: {first}" if key else first)


def _choices(message: str) -> list[str]:
    """The names in OmegaConf's ``expected one of [a, b]``."""
    inside = message.partition("expected one of [")[2].rpartition("]")[0]
    return [name.strip() for name in inside.split(",")] if inside else []


def _named_value(message: str) -> str | None:
    found = re.search(r"[Vv]alue '([^']*)'", message)
    return found[1] if found else None


def _shown(value: object) -> str:
    return "null" if value is None else repr(value)


def _check_types(plain: object) -> None:
    """OmegaConf takes any number for true or false, true for 1, and makes a text of any number; we do not."""
    for key, value in _leaves(plain, ""):
        if is_free(key) or not isinstance(value, bool | int | float):
            continue
        if holds_text(key):
            # YAML read 1e5, 007 or yes, and what was written is lost.
            raise ConfigError(
                f"{key} is a text, and YAML reads {_shown(value)} there",
                hint=f'quotes keep what is written: {key.rpartition(".")[2]}: "…"',
            )
        if is_switch(key) != isinstance(value, bool):
            raise ConfigError(
                f"{key}={value!r} is not possible", hint=f"use {type_words(key) or 'another type'}"
            )


def _leaves(node: object, key: str) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        # Numbers of devices are numbers in any spelling: engine.gpus: [0, 1].
        yield from ((key, item) for item in node if isinstance(item, bool | float))
    else:
        yield key, node
