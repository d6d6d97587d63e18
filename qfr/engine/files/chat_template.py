"""The chat template that a model is played with: its file's own, or the one given in its place."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from qfr.canonical import canonical
from qfr.config import ModelConfig, Thinking
from qfr.engine.base import Native
from qfr.engine.files.gguf import GgufFacts
from qfr.engine.llama.shape import Shape
from qfr.engine.llama.template import OWN_VARIABLES, ChatTemplate, sha256_of
from qfr.engine.llama.transcript import Layout
from qfr.engine.native.check import call_form
from qfr.engine.native.conversation import NativeLayout
from qfr.errors import ConfigError, ModelFileError

# Spellings that stand in for a model's begin and end tokens while no vocabulary is at hand.
_BOS, _EOS = "<|begin of text|>", "<|end of turn|>"
# Spellings of tokens that end turns in published templates.
_LIKELY_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>"),
    *("<|return|>", "<|call|>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>", "<|endoftext|>"),
)
# Templates whose examination is kept.
_KEPT = 64


def is_own(model: ModelConfig) -> bool:
    """Whether the file's own template is used, so that the file has to hold one."""
    return model.template is None


def with_template(facts: GgufFacts, model: ModelConfig) -> GgufFacts:
    """What is known of a GGUF, with the template and the variables that the configuration gives.

    Raises
    ------
    ModelFileError
        The template's file cannot be read.
    ConfigError
        A variable is not the user's to set, or no JSON value.
    """
    if model.template is not None:
        text = _read(Path(model.template).expanduser())
        facts = replace(facts, template=text, template_sha256=sha256_of(text))
    return replace(facts, template_options=_options(model))


def require_template(facts: GgufFacts, model: ModelConfig, where: str) -> None:
    """Refuse a template that cannot serve, before anything is downloaded, derived or loaded.

    Raises
    ------
    ModelFileError
        It fails or loses messages.
    """
    given = with_template(facts, model)
    name = where if model.template is None else str(model.template)
    examined(given.template, given.template_options, name)


@lru_cache(_KEPT)
def examined(text: str, options: str, where: str) -> Shape:
    """What a template does with conversations; once per process for each."""
    return Layout(ChatTemplate(text, _BOS, _EOS, where, json.loads(options))).shape


def require_native(facts: GgufFacts, model: ModelConfig, tools: str, where: str) -> None:
    """Refuse a template by which tools cannot be called natively, before anything is derived or loaded.

    Parameters
    ----------
    facts : GgufFacts
    model : ModelConfig
    tools : str
        JSON schemas of the tools, as a JSON list.
    where : str
        The GGUF.

    Raises
    ------
    ModelFileError
        It has no form of calls, or loses a part of such a conversation.
    """
    given = with_template(facts, model)
    name = where if model.template is None else str(model.template)
    _natively(given.template, given.template_options, tools, name)


@lru_cache(_KEPT)
def _natively(text: str, options: str, tools: str, where: str) -> None:
    template = ChatTemplate(text, _BOS, _EOS, where, json.loads(options))
    layout = Layout(template)
    # Which tokens end a turn is not known without the vocabulary.
    likely = [_EOS, *(end for end in _LIKELY_ENDS if end in text)]
    try:
        form = call_form(template, ends=likely)
    except ModelFileError:
        form = call_form(template, ends=[_EOS])
    NativeLayout(layout, form, Native(tools, Thinking.template), likely)


def _read(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ModelFileError(
            f"model.template={str(path)!r} cannot be read ({error.strerror})",
            hint="give a file that holds a chat template (Jinja)",
        ) from None
    except UnicodeDecodeError:
        raise ModelFileError(
            f"model.template={str(path)!r} is no UTF-8 text",
            hint="give a file that holds a chat template (Jinja), not a GGUF",
        ) from None
    if not text.strip():
        raise ModelFileError(f"model.template={str(path)!r} is empty", hint="give a chat template (Jinja)")
    return text


def _options(model: ModelConfig) -> str:
    options = model.template_options or {}
    for name in options:
        if name in OWN_VARIABLES:
            raise ConfigError(
                f"model.template_options.{name} is set by qfr itself",
                hint="set variables of the template's own, such as enable_thinking",
            )
    return canonical(options)
