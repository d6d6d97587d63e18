"""Overrides: grammar, quoting, what is the user's to set, the order of jobs."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from qfr.errors import ConfigError
from qfr.front.arguments import check_arguments, hydra_quote, in_job_order, parse, quote_override

# A lone surrogate or NUL can stand in no argument of a process.
TEXTS = st.text(
    st.one_of(st.sampled_from('\\${}"x '), st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    max_size=24,
)


@given(TEXTS)
@example("/a b/c=d.gguf")
@example('quote " backslash \\" end \\')
@example("${x} \\${y} {{z}} %s #, é")
def test_quoted_text_arrives_character_for_character(text: str) -> None:
    (word,) = shlex.split(quote_override("model.path", text))
    (override,) = parse([word])
    # OmegaConf reads the value as the composed configuration will.
    assert OmegaConf.to_container(OmegaConf.create({"value": override.value()}), resolve=True) == {
        "value": text
    }


def test_hint_shows_the_right_quoting() -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        check_arguments(["model.path=/a b/c=d.gguf"])
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("""'model.path="/a b/c=d.gguf"'""")


@pytest.mark.parametrize(
    "argument", ["model.path=/a#b", "model.path=/é/x", "model.path=~/x", "model.path=a(b"]
)
def test_unreadable_values_are_shown_quoted(argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_arguments([argument])
    key, _, value = argument.partition("=")
    assert caught.value.hint is not None
    assert f"'{key}=\"{value}\"'" in caught.value.hint


@pytest.mark.parametrize(
    ("argument", "what"),
    [
        ("b/c.gguf", "is not an override"),
        ("walk=[et]", "set by the sweeper"),
        ("sweep=s-1", "set by the sweeper"),
        ("~prompt", "cannot be removed"),
        ("suite=null", "not possible"),
        ("experiment=null", "not possible"),
        ("experiment=demo,smoke", "cannot be swept over"),
        ("mode=plan,run", "one per sweep"),
        ("tracking.root=a,b", "one per sweep"),
        ("suite.seed=interval(1,2)", "no intervals"),
        ("hydra.mode=RUN", "MULTIRUN"),
    ],
)
def test_refused_overrides(argument: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        check_arguments([argument])


def test_a_comma_inside_an_existing_path_is_noticed(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("x") / "a,b.gguf"
    file.write_bytes(b"")
    with pytest.raises(ConfigError, match="the comma makes several values") as caught:
        check_arguments([f"model.path={file}"])
    assert caught.value.hint is not None
    assert shlex.quote(f'model.path="{file}"') in caught.value.hint


def test_faults_and_prompts_run_fastest() -> None:
    given_order = ["fault=et,it", "prompt=P0,P1", "suite.seed=1,2", "quant=q8_0", "trial=0,1", "model=llama"]
    sorted_keys = [override.key_or_group for override in in_job_order(parse(given_order))]
    assert sorted_keys == ["model", "quant", "suite.seed", "trial", "prompt", "fault"]


def test_hydra_quote_keeps_plain_text_readable() -> None:
    assert hydra_quote("/models/a b.gguf") == '"/models/a b.gguf"'


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["quant=q8_0,", "q4_k_m"], "without blanks: quant=q8_0,q4_k_m"),
        (["quant=q8_0,", "q4_k_m,", "q2_k", "model=x"], "without blanks: quant=q8_0,q4_k_m,q2_k"),
        (["quant", "=", "q8_0"], "without blanks around '='"),
        (["quant=q8_0", "q4_k_m"], "'q4_k_m' is not an override"),
    ],
)
def test_blanks_that_the_shell_takes_apart_are_named(words: list[str], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        check_arguments(words)
