"""Every identity key × every function that takes cells: cells that differ in a key are never averaged, never
paired unless the key is free, never a crash, and the page names the key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from qfr.analysis.cells import summarize
from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.equal_memory import equal_memory
from qfr.analysis.contrast.family import together
from qfr.analysis.contrast.groups import grouped, interactions, parse_groups
from qfr.analysis.contrast.ladder import ladders
from qfr.analysis.contrast.ranking import rank
from qfr.analysis.decisions.cells import match
from qfr.analysis.diagnostics.budget import rerun_pairs
from qfr.analysis.frames import join
from qfr.analysis.pairing import kept_apart, pairs
from qfr.analysis.process import process
from qfr.analysis.targets import TaskTable
from qfr.canonical import canonical
from qfr.clauses import BASES
from qfr.config import CellConfig
from qfr.errors import TableError
from qfr.front.models import compose_cell
from qfr.identity import LATER_KEYS, design_id
from qfr.records import FaultKind, Policy
from qfr.report.content.build import ReportOptions, build_report
from qfr.report.content.outcomes import outcome_maps
from qfr.report.page import render_page
from qfr.scope import AXES, NAMES, check_axis, differ, group, identity_keys, labels, scope_of, told, varying
from tests.builders import build_cell_episodes, make_facts, make_suite
from tests.logged import Logged, logged

PRESETS = ("Q8_0", "Q4_K_M")
PROMPTS = ("P0", "P4")
# Keys whose other value needs more than one key to be changed, or another value than the type suggests.
OTHER: dict[str, object] = {
    "model.name": "other",
    "model.path": "/models/other-Q8_0.gguf",
    "model.base": "/models/other-f16.gguf",
    "model.derive_from": "F16",
    "quant.preset": "Q6_K",
    "prompt.name": "other",
    # Switched clauses and rewrites count by the digest of the text that they make.
    "prompt.base": "P0",
    "prompt.clauses": ["retry_required"],
    "prompt.rewrites": ["spacing"],
    "suite.name": "other",
    "suite.families": {"base": 3},
    "suite.gate": "none",
    "fault.kind": "ep",
    "engine.kind": "openai",
    "engine.split_mode": "row",
    "engine.type_k": "q8_0",
    "engine.type_v": "q8_0",
    "engine.n_ctx": 8192,
    "engine.top_p": 0.5,
    "engine.n_ubatch": 256,
    "engine.skill": {"Q8_0": 0.5},
    "executor.kind": "strict_feedback",
}


@cache
def base() -> CellConfig:
    return compose_cell("model=llama", "quant=q8_0", "fault=et", "engine.temperature=0.7")


def changed(config: CellConfig, key: str) -> CellConfig:
    """The same configuration with another value under one identity key."""
    head, _, rest = key.partition(".")
    value = getattr(config, head)
    if rest:
        return dataclasses.replace(config, **{head: _changed(value, rest, key)})
    return dataclasses.replace(config, **{head: _other(CellConfig, head, value, key)})


def _changed(part: Any, path: str, key: str) -> Any:
    head, _, rest = path.partition(".")
    value = getattr(part, head)
    new = _changed(value, rest, key) if rest else _other(type(part), head, value, key)
    return dataclasses.replace(part, **{head: new})


def _other(kind: Any, name: str, value: object, key: str) -> object:
    """Another value of the field's type, for keys that nobody has named here too."""
    hint = get_type_hints(kind)[name]
    if get_origin(hint) is UnionType:
        hint = next(one for one in get_args(hint) if one is not type(None))
    if key in OTHER:
        return hint(OTHER[key]) if isinstance(hint, type) and issubclass(hint, StrEnum) else OTHER[key]
    if hint is bool:
        return not value
    if hint is int:
        return int(str(value or 0)) + 1
    if hint is float:
        return float(str(value or 0)) + 0.5
    if get_origin(hint) is dict:
        return {**(value if isinstance(value, dict) else {}), "other": 1}
    if get_origin(hint) is list:
        return ["other"]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return next(one for one in hint if one != value)
    if name.endswith("sha256"):
        return "ab" * 32
    if name == "request":
        return '{"top_k": 1}'
    return f"{value or ''}other"


def identity_of(config: CellConfig) -> str:
    """The design_id; prompt and suite count by their digests, as they do in a run."""
    pinned = config.prompt.sha256 or config.prompt.name
    suite = canonical(
        [
            config.suite.world,
            config.suite.version,
            config.suite.families,
            config.suite.seed,
            config.suite.grid,
        ]
    )
    return design_id(config, prompt_sha256=pinned, suite_sha256=suite, llama_commit="0c1e570")


KEYS = tuple(key for key in identity_keys() if identity_of(changed(base(), key)) != identity_of(base()))
# The level that a comparison leaves free, or a name: such cells are no twins.
TWINS = tuple(key for key in KEYS if key not in NAMES.values())


def cells_of(config: CellConfig, tag: str = "") -> list[Logged]:
    """Two presets under two prompts, and their clean passes, as they would be read back."""
    found = []
    for preset in PRESETS:
        for prompt in PROMPTS:
            found.append(cell_of(config, preset, prompt, tag))
    return found


def cell_of(config: CellConfig, preset: str, prompt: str, tag: str) -> Logged:
    pinned = config.prompt.sha256 == base().prompt.sha256
    digest = BASES[prompt][0] if pinned else config.prompt.sha256
    given = dataclasses.replace(
        config,
        quant=dataclasses.replace(config.quant, preset=preset),
        prompt=dataclasses.replace(config.prompt, name=prompt, sha256=digest),
    )
    level = 2 if preset == "Q8_0" else 1
    level = 0 if tag else level
    kind = given.fault.kind
    played = build_cell_episodes([level] * 4, make_suite([2, 2, 3, 3]), fault=kind)
    facts = []
    for fault in (FaultKind.none, kind):
        one = make_facts("llama", preset, prompt, str(fault))
        ids = {
            name: f"c-{tag}{preset}{prompt}{at}" for name, at in (("cell_id", fault), ("clean_id", "none"))
        }
        of = dataclasses.replace(given, fault=dataclasses.replace(given.fault, kind=fault))
        facts.append(
            dataclasses.replace(
                one,
                model=given.model.name,
                executor=str(given.executor.kind),
                suite=given.suite.name,
                gate=str(given.suite.gate),
                trial=given.trial,
                engine=str(given.engine.kind),
                step_budget=given.suite.step_budget,
                error_budget=given.suite.error_budget,
                n_batch=given.engine.n_batch,
                n_threads=given.engine.n_threads,
                n_threads_batch=given.engine.n_threads_batch,
                streams=given.engine.streams,
                prompt_sha256=given.prompt.sha256 or one.prompt_sha256,
                config=canonical(dataclasses.asdict(of)),
                **ids,
            )
        )
    clean = logged(facts[0], played.clean)
    return dataclasses.replace(logged(facts[1], played.faulted), clean=clean)


@cache
def plain() -> list[Logged]:
    return cells_of(base())


@cache
def varied(key: str) -> list[Logged]:
    return cells_of(changed(base(), key), "x")


Takes = Callable[[Sequence[Logged]], Sequence[tuple[str, ...]]]


def _tables(cells: Sequence[Logged]) -> tuple[TaskTable, ...]:
    """Under one policy: the other one takes the same way."""
    return tuple(one for one in join(cells).tables if one.policy == "tolerant")


def _sizes(cells: Sequence[Logged]) -> dict[tuple[str, str, str], float]:
    return {(c.facts.model, c.facts.quant, c.facts.model_sha256): 5e9 for c in cells}


# Every function that takes cells, as the sets of cells that each of its results was computed from.
FUNCTIONS: dict[str, Takes] = {
    "contrasts": lambda cells: [c.cells for c in contrast_table(_tables(cells))],
    "contrasts along the prompt": lambda cells: [
        c.cells for c in contrast_table(_tables(cells), Options(vary="prompt"))
    ],
    "pairs": lambda cells: [(*p.a.cells, *p.b.cells) for p in pairs(_tables(cells), "quant")],
    "summaries": lambda cells: [s.cells for s in summarize(_tables(cells))],
    "ranking": lambda cells: [one.cells for ranks in rank(_tables(cells), {}) for one in ranks.presets],
    "interactions": lambda cells: [i.cells for i in interactions(_tables(cells))],
    "named groups": lambda cells: [
        g.cells for g in grouped(_tables(cells), parse_groups("high=q8_0;low=q4_k_m"))
    ],
    "equal memory": lambda cells: [c.cells for c in equal_memory(_tables(cells), _sizes(cells))],
    "gate": lambda cells: [
        (*p.baseline.cells, *p.candidate.cells)
        for p in match(
            [t for t in _tables(cells) if t.key.quant == "Q8_0"],
            [t for t in _tables(cells) if t.key.quant == "Q4_K_M"],
        ).pairs
    ],
}


def _mixed(found: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [one for one in found if len({cell.startswith("c-x") for cell in one}) > 1]


def test_the_keys_are_the_configurations_own() -> None:
    assert len(KEYS) > 30
    assert {"engine.type_k", "engine.n_ubatch", "engine.seed", "suite.seed", "fault.message", "trial"} <= set(
        KEYS
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_averages_or_pairs_over_a_key(name: str) -> None:
    take, alone = FUNCTIONS[name], plain()
    before = take(alone)
    for key in TWINS:
        other = varied(key)
        found = take([*alone, *other])
        # A preset is its file: two files of one preset are two levels, and each may be a side.
        file = differ_free(alone, other, "quant")
        # S* and an average over prompts take in every prompt's text.
        free = file or (key.startswith("prompt.") and name in ("contrasts", "ranking", "summaries"))
        assert free or key.startswith("prompt.") or not _mixed(found), key
        assert file or free or name == "equal memory" or set(before) <= set(found), key
        kept, all_before = ({cell for one in some for cell in one} for some in (found, before))
        assert file or name == "named groups" or kept >= all_before, key


def differ_free(first: Sequence[Logged], second: Sequence[Logged], axis: str) -> bool:
    """Whether two lists of cells differ in nothing but what an axis owns."""
    return not differ(scope_of(first[0].facts), scope_of(second[0].facts), (axis,))


@pytest.mark.parametrize("key", TWINS)
def test_a_page_of_both_is_made_and_names_the_key(key: str) -> None:
    cells = [*plain(), *varied(key)]
    report = build_report(cells, ReportOptions())
    presets = [one for ranks in report.ranks for one in ranks.presets]
    whole = [*report.contrasts, *presets, *report.interactions, *report.at_equal_memory]
    if not differ_free(cells[:1], cells[4:5], "quant") and not key.startswith("prompt."):
        assert not _mixed([one.cells for one in whole])
    shown = render_page(report)
    named = differ(scope_of(cells[0].facts), scope_of(cells[4].facts))
    assert named
    assert any(one in shown or one.rpartition(".")[0] in shown for one in named), named
    together(join(cells).tables, 1_000, 0)
    maps = outcome_maps(cells, report.joined.tables, Policy.tolerant)
    assert all(len(set(one.columns)) == len(one.columns) for one in maps)
    ladders(report.summaries, [process(cell) for cell in cells])
    if key not in ("suite.gate", "trial"):
        # Those two stand in every cell's name.
        assert kept_apart(join(cells).tables, "quant") or differ_free(cells[:1], cells[4:5], "quant")
    pairs_of_budgets = rerun_pairs([cell.facts for cell in cells])
    assert bool(pairs_of_budgets) == (key == "suite.error_budget")


@pytest.mark.parametrize("key", TWINS)
def test_the_key_itself_can_be_varied(key: str) -> None:
    cells = [*plain(), *varied(key)]
    named = differ(scope_of(cells[0].facts), scope_of(cells[4].facts))
    found = contrast_table(join(cells).tables, Options(vary=key))
    if len(named) > 1 or key not in named:
        # The key brings another one along, so it alone pairs nothing.
        assert not _mixed([one.cells for one in found])
        return
    assert found
    assert all(len({cell.startswith("c-x") for cell in one.cells}) == 2 for one in found)
    assert {one.vary for one in found} == {key}
    assert len({one.a for one in found}) == len({one.b for one in found}) == 1


def test_labels_name_the_keys_and_no_hash() -> None:
    scopes = [
        scope_of(cell.facts)
        for key in ("engine.type_k", "fault.message")
        for cell in (plain()[0], varied(key)[0])
    ]
    texts = labels(scopes)
    assert "engine.type_k=q8_0" in texts[1]
    assert "fault.message=" in texts[3]
    twin = dataclasses.replace(plain()[0].facts, model_sha256="cd" * 32)
    said = labels([scopes[0], scope_of(twin)])
    assert set(said) == {"file 1 of 2", "file 2 of 2"}
    assert ("engine.type_k", ("f16", "q8_0")) in varying(scopes)


def test_a_later_key_at_its_old_value_is_no_difference() -> None:
    raw = json.loads(plain()[0].facts.config)
    del raw["engine"]["server"]["request"]
    old = dataclasses.replace(plain()[0].facts, config=canonical(raw))
    assert "engine.server.request" in LATER_KEYS
    assert differ(scope_of(old), scope_of(plain()[0].facts)) == ()


def test_groups_say_what_tells_them_apart() -> None:
    cells = [*plain(), *varied("engine.n_ubatch")]
    found = group(cells, ("quant", "prompt"), of=lambda cell: scope_of(cell.facts))
    assert [len(one.members) for one in found] == [4, 4]
    assert {one.label for one in found} == {"engine.n_ubatch=512", "engine.n_ubatch=256"}
    assert told(scope_of(cells[0].facts), scope_of(cells[4].facts)) == "engine.n_ubatch differs (512 / 256)"
    with pytest.raises(TableError, match=r"did you mean 'engine\.type_k'"):
        check_axis("engine.typ_k")
    assert "quant" in AXES
