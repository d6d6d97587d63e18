"""Tables, facts and metrics as they follow from episodes, before any store is involved."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest

from qfr.errors import LogError, TrackingError
from qfr.journal import log_bytes, read_log
from qfr.records import Channel, Ending, FaultKind, Policy, ToolCall
from qfr.tracking.reading.facts_io import load_facts, store_facts
from qfr.tracking.reading.measures import measure
from qfr.tracking.reading.tables import (
    call_table,
    episode_table,
    parquet_bytes,
    read_parquet,
    score_table,
    to_frame,
)
from tests.builders import (
    CellEpisodes,
    Style,
    build_cell_episodes,
    fault_episode,
    make_facts,
    make_shape,
    make_work,
    orders20,
    sha,
    undelivered,
)

DIGEST = sha("log")
MIXED: list[int | None] = [2] * 8 + [1, None] + [3, 2, 1, 0, 3, 3, None, 3, 3, 3]


def _cells(fault: FaultKind, style: Style) -> CellEpisodes:
    table = [None if k is None else min(k, 2) for k in MIXED] if fault is FaultKind.it else MIXED
    return build_cell_episodes(table, orders20(), fault=fault, style=style)


@pytest.mark.parametrize("fault", [FaultKind.et, FaultKind.it, FaultKind.ep])
def test_tables_rebuild_equal_from_the_log(fault: FaultKind) -> None:
    built = _cells(fault, Style(prose=True, bad_call=True))
    for episodes in (built.clean, built.faulted):
        again = read_log(log_bytes(episodes), where="log")
        ordered = read_log(log_bytes(reversed(episodes)), where="log")
        tables = [episode_table(again), call_table(again)]
        tables += [score_table(again, policy, ep_min_calls=2) for policy in Policy]
        other = [episode_table(ordered), call_table(ordered)]
        other += [score_table(ordered, policy, ep_min_calls=2) for policy in Policy]
        for first, second in zip(tables, other, strict=True):
            data = parquet_bytes(first, log_sha256=DIGEST)
            stored = read_parquet(data, where="t", log_sha256=DIGEST)
            assert stored.replace_schema_metadata(None).equals(second)
            assert stored.schema.equals(second.schema)
            assert data == parquet_bytes(second, log_sha256=DIGEST)


def test_an_episode_row_by_hand() -> None:
    shape = make_shape(0, "shipping", sites=3)
    episode = fault_episode(
        "c-1", shape, 1, FaultKind.et, success=True, style=Style(prose=True, bad_call=True)
    )
    row = to_frame(episode_table([episode])).iloc[0]
    assert (row["task"], row["family"], row["fault"], row["site"], row["trial"]) == (
        "shipping-00",
        "shipping",
        "et",
        1,
        0,
    )
    # A bad call, order, customer, discount (fails), discount, fee, submit.
    assert (row["turns"], row["errors"], row["errors_tool_name"], row["errors_entity"]) == (7, 1, 1, 0)
    assert (row["fired"], row["witnessed"], row["retried"], row["recovered"]) == (3, 4, 4, 4)
    assert (row["site_tool"], row["dead_calls"], row["ending"]) == ("get_discount", 1, "submitted")
    assert (row["turns_not_strict"], row["turns_cut"], row["control_text"]) == (1, 0, False)
    assert row["tokens_out"] == sum(len(turn.generation.token_ids) for turn in episode.turns)
    lows = [min(turn.generation.margins) for turn in episode.turns]
    assert row["min_margin"] == min(lows)
    assert row["min_margin_turn"] == lows.index(min(lows))
    calls = to_frame(call_table([episode]))
    assert list(calls["channel"].fillna("")) == ["tool_name", "", "", "", "", "", ""]
    assert list(calls["injected"]) == [False, False, False, True, False, False, False]
    assert list(calls["ok"]) == [False, True, True, False, True, True, True]


def test_missing_indices_stay_missing_and_counts_are_plain_integers() -> None:
    clean = build_cell_episodes([2, None], orders20()[:2]).clean
    frame = to_frame(episode_table(clean))
    assert frame["site"].isna().all()
    assert frame["fired"].isna().all()
    assert str(frame["turns"].dtype) == "int64"
    assert str(frame["control_text"].dtype) == "bool"
    assert episode_table([]).num_rows == 0


def test_a_tool_name_of_lone_surrogates_is_stored_readably() -> None:
    episode = build_cell_episodes([2], orders20()[:1]).clean[0]
    turn = dataclasses.replace(episode.turns[0], call=ToolCall("get\ud800\x00order", "{}"))
    calls = call_table([dataclasses.replace(episode, turns=(turn,))])
    stored = read_parquet(parquet_bytes(calls, log_sha256=DIGEST), where="t", log_sha256=DIGEST)
    assert stored["tool"].to_pylist() == ["get\\ud800\x00order"]


def test_a_table_of_another_log_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    data = parquet_bytes(episode_table([]), log_sha256=DIGEST)
    with pytest.raises(LogError, match="follows from log"):
        read_parquet(data, where="episodes.parquet of run r", log_sha256=sha("another"))
    with pytest.raises(LogError, match="not a Parquet table"):
        read_parquet(data[:-20], where="episodes.parquet of run r", log_sha256=DIGEST)
    (tmp_path / "t.parquet").write_bytes(data)
    assert read_parquet(str(tmp_path / "t.parquet"), where="t", log_sha256=DIGEST).schema.names[0] == "task"


def test_scores_by_policy() -> None:
    built = build_cell_episodes(MIXED, orders20(), style=Style(expression=True))
    tolerant, strict = (score_table(built.faulted, policy, ep_min_calls=2) for policy in Policy)
    assert sum(tolerant["success"].to_pylist()) == sum(k for k in MIXED if k is not None)
    assert sum(strict["success"].to_pylist()) == 0
    assert set(strict["reason"].to_pylist()) == {"not_literal", "wrong_answer"}


def test_scores_know_the_calls_that_a_report_needs() -> None:
    built = build_cell_episodes([2], orders20()[:1], fault=FaultKind.ep)
    enough, more = (score_table(built.faulted, Policy.tolerant, ep_min_calls=k) for k in (3, 4))
    assert enough["reported_after"].to_pylist() == [True, True]
    assert more["reported_after"].to_pylist() == [False, False]
    assert more["reported"].to_pylist() == [True, True]


# --- metrics -----------------------------------------------------------------------------------------------


GOLDEN = json.loads((Path(__file__).parent / "fixtures" / "golden.json").read_text())


@pytest.mark.parametrize("name", sorted(GOLDEN["expected"]))
def test_metrics_reproduce_the_published_rates(name: str) -> None:
    """Clean counts, episode counts and full-pipeline rates of Hu 2026, tables 1 and 2."""
    model, prompt = name.split("/")
    own = {}
    for level in ("8", "4"):
        built = build_cell_episodes(GOLDEN["tables"][f"{model}/{level}/{prompt}"], orders20())
        values = measure(built.faulted, built.clean, work=None, ep_min_calls=2).scalars
        expected = GOLDEN["expected"][name]
        assert values["tolerant.certified"] == expected[f"clean{level}"]
        assert values["tolerant.clean_rate"] == expected[f"clean{level}"] / 20
        assert [values["tolerant.successes"], values["episodes"]] == expected[f"episodes{level}"]
        assert values["tolerant.full"] == pytest.approx(expected[f"full_rate{level}"], abs=1e-6)
        own[level] = values["tolerant.own"]
    assert 100 * (own["8"] - own["4"]) == pytest.approx(GOLDEN["expected"][name]["own"], abs=1e-3)


def test_a_fault_that_never_fired_leaves_own_and_counts_zero_in_full() -> None:
    shapes = orders20()[:2]
    built = build_cell_episodes([2, 2], shapes)
    first, second, third, fourth = built.faulted
    values = measure(
        [first, undelivered(second, shapes[0]), third, fourth], built.clean, work=None, ep_min_calls=2
    )
    assert (values.scalars["tolerant.own"], values.scalars["tolerant.full"]) == (1.0, 1.0)
    assert (values.scalars["faults.scheduled"], values.scalars["faults.fired"]) == (4, 3)
    none = [undelivered(first, shapes[0]), undelivered(second, shapes[0]), third, fourth]
    values = measure(none, built.clean, work=None, ep_min_calls=2)
    assert (values.scalars["tolerant.own"], values.scalars["tolerant.full"]) == (1.0, 0.5)


def test_what_has_no_denominator_is_left_out() -> None:
    built = build_cell_episodes([None] * 20, orders20())
    clean = measure(built.clean, built.clean, work=None, ep_min_calls=2).scalars
    assert clean["tolerant.clean_rate"] == 0.0
    assert "tolerant.own" not in clean
    fault = measure([], built.clean, work=None, ep_min_calls=2).scalars
    assert "tolerant.own" not in fault
    assert all(math.isfinite(value) for value in fault.values())


def test_ungated_tasks_count_apart() -> None:
    shapes = orders20()[:2]
    built = build_cell_episodes([2, None], shapes)
    extra = [fault_episode("c-fault", shapes[1], site, FaultKind.et, success=False) for site in (0, 1)]
    values = measure([*built.faulted, *extra], built.clean, work=None, ep_min_calls=2).scalars
    assert (values["tolerant.own"], values["tolerant.full"], values["tolerant.ungated"]) == (1.0, 0.5, 0.5)


def test_counts_endings_channels_and_kind_columns() -> None:
    table = [0, 2] + [None] * 18
    style = Style(bad_call=True, prose=True, fail_by=Ending.reported_failure)
    values = measure(
        *_pair(build_cell_episodes(table, orders20(), style=style)), work=make_work(), ep_min_calls=2
    )
    scalars = values.scalars
    assert (scalars["endings.reported_failure"], scalars["endings.submitted"]) == (2, 2)
    assert scalars[f"channels.{Channel.tool_name}"] == 4
    assert (scalars["errors"], scalars["turns.not_strict"]) == (4, 4)
    assert scalars["work.segment_ratio"] == 1.0
    assert {len(points) for points in values.series.values()} == {4}
    assert values.series["episode.tolerant_success"] == (0.0, 0.0, 1.0, 1.0)
    assert values.series["episode.strict_success"] == (0.0, 0.0, 0.0, 0.0)
    dead = build_cell_episodes(table, orders20(), fault=FaultKind.ep)
    scalars = measure(*_pair(dead), work=None, ep_min_calls=2).scalars
    assert (scalars["tolerant.reported_after"], scalars["tolerant.invented"]) == (2, 2)


def _pair(built: CellEpisodes) -> tuple[tuple, tuple]:
    return built.faulted, built.clean


# --- facts -------------------------------------------------------------------------------------------------


def _never(name: str) -> bytes:
    raise AssertionError(name)


def test_facts_survive_params_and_tags() -> None:
    facts = dataclasses.replace(
        make_facts("llama", "Q4_K_M", "P3", "it"), reference_agent=True, imatrix="a'b`c ä"
    )
    stored = store_facts(facts)
    assert set(stored.params) >= {"model", "quant", "prompt", "fault", "suite", "executor"}
    assert stored.params["config.engine.n_batch"] == "512"
    assert not stored.files
    assert load_facts(stored.params, stored.tags, where="run r", fetch=_never) == facts


def test_long_values_become_artifacts_and_are_never_cut() -> None:
    config = json.dumps({"text": "x" * 9000, "odd key (ü)": [1, 2]})
    facts = dataclasses.replace(
        make_facts("llama", "Q4_K_M", "P3", "it"), config=config, tensor_types="Q4_K " * 4000
    )
    stored = store_facts(facts)
    assert all(len(value) <= 6000 for value in stored.params.values())
    assert all(len(value) <= 8000 for value in stored.tags.values())
    assert stored.params["config.odd key ___"] == "[1,2]"
    assert load_facts(stored.params, stored.tags, where="run r", fetch=stored.files.__getitem__) == facts
    with pytest.raises(TrackingError, match=r"facts/\w+\.txt is not the one"):
        load_facts(stored.params, stored.tags, where="run r", fetch=lambda _: b"another")


@pytest.mark.parametrize(
    ("tag", "value"), [("qfr.streams", "two"), ("qfr.rewind", "maybe"), ("qfr.cell_id", None)]
)
def test_facts_edited_by_hand_are_refused(tag: str, value: str | None) -> None:
    stored = store_facts(make_facts("llama", "Q4_K_M", "P3", "it"))
    tags = {**stored.tags, tag: value}
    if value is None:
        del tags[tag]
    with pytest.raises(TrackingError, match=tag) as caught:
        load_facts(stored.params, tags, where="run r-1", fetch=_never)
    assert "run r-1" in str(caught.value)


def test_the_schema_says_which_columns_may_be_empty() -> None:
    nullable = {field.name for field in episode_table([]).schema if field.nullable}
    assert "site" in nullable
    assert "turns" not in nullable
    assert episode_table([]).schema.field("fired").type == pa.int32()
