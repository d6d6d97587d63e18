"""Derived tables of an episode log as Parquet: one row per episode, one per call, one per score.

They are facts that follow from the log and can be rebuilt from it at any time; each file carries the log's
digest in its metadata. Reports read these, never transcripts.
"""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from qfr.errors import LogError
from qfr.records import Channel, Episode, ParseKind, Policy, Score, Step, StopReason, Turn
from qfr.scoring import longest_repeat, score

TABLES_VERSION = 1

Row = dict[str, str | int | float | bool | None]


# Name, type and meaning. A trailing '?' in the name allows nulls; only integers that can be null are int32.
_Column = tuple[str, pa.DataType, str]

_KEYS: tuple[_Column, ...] = (
    ("task", pa.string(), "Task id within the suite."),
    ("fault", pa.string(), "Kind injected in the episode, none for the clean pass."),
    ("site?", pa.int32(), "Index of the fault's site among the task's sites; null for a clean episode."),
    ("trial", pa.int64(), "Repetition of the cell, 0 for the first."),
)
_EPISODES: tuple[_Column, ...] = (
    *_KEYS,
    ("family", pa.string(), "The task's family."),
    ("site_tool?", pa.string(), "Tool at the site; null for a clean episode."),
    ("ending", pa.string(), "How the episode ended."),
    ("answer?", pa.string(), "The submitted answer as canonical JSON; null when nothing was submitted."),
    ("gold", pa.string(), "The gold answer as a plain decimal."),
    ("turns", pa.int64(), "Model turns."),
    ("errors", pa.int64(), "Failed calls of the agent; an injected fault is none."),
    *((f"errors_{one}", pa.int64(), f"Failed calls of the agent by channel {one}.") for one in Channel),
    ("turns_not_strict", pa.int64(), "Turns that were not one JSON object throughout."),
    ("turns_cut", pa.int64(), "Turns stopped by max_tokens or by the context."),
    (
        "control_text",
        pa.bool_(),
        "Plain text of a turn or of its input spelled a control token of the model.",
    ),
    ("fired?", pa.int32(), "Turn that the fault answered first; null = never, as in the next three."),
    ("witnessed?", pa.int32(), "First turn whose rendered prompt held the fault's text."),
    ("retried?", pa.int32(), "First later turn with the same call."),
    ("recovered?", pa.int32(), "First later turn whose identical call succeeded."),
    ("dead_calls?", pa.int32(), "Calls that the fault answered; null for a clean episode."),
    ("tokens_in", pa.int64(), "Tokens appended before the turns: system, task, observations."),
    ("tokens_out", pa.int64(), "Tokens generated."),
    (
        "min_margin?",
        pa.float64(),
        "Smallest margin of the top logit over the next, in logits; null without a token.",
    ),
    ("min_margin_turn?", pa.int32(), "Turn of that margin."),
)
_CALLS: tuple[_Column, ...] = (
    *_KEYS,
    ("turn", pa.int64(), "Index of the turn, 0 for the first."),
    ("parse", pa.string(), "How its text was read: strict, tolerant or none."),
    ("tool?", pa.string(), "Tool of the call as the model wrote it; null when nothing could be read."),
    ("arguments?", pa.string(), "Arguments of the call as canonical JSON; null when nothing could be read."),
    ("ok", pa.bool_(), "The call succeeded."),
    ("channel?", pa.string(), "Which way it failed; null for a good call and for an injected fault."),
    ("injected", pa.bool_(), "The answer came from the fault and not from the world."),
    ("stop", pa.string(), "Why the model stopped writing."),
    ("tokens_in", pa.int64(), "Tokens appended before the turn."),
    ("tokens_out", pa.int64(), "Tokens generated in it."),
    ("min_margin?", pa.float64(), "Smallest margin of the turn, in logits; null without a token."),
    ("min_margin_token?", pa.int32(), "Index of that token in the turn."),
    (
        "control_text",
        pa.bool_(),
        "Plain text of the turn or of its input spelled a control token of the model.",
    ),
)


def _schema(columns: Iterable[_Column]) -> pa.Schema:
    return pa.schema(
        pa.field(name.removesuffix("?"), kind, nullable=name.endswith("?")) for name, kind, _ in columns
    )


def _meanings(columns: Iterable[_Column]) -> dict[str, str]:
    return {name.removesuffix("?"): meaning for name, _, meaning in columns}


EPISODES, CALLS = _schema(_EPISODES), _schema(_CALLS)
KEY_MEANINGS, EPISODE_MEANINGS, CALL_MEANINGS = _meanings(_KEYS), _meanings(_EPISODES), _meanings(_CALLS)
# Column → what it holds.

_SCORE_TYPES = {"bool": pa.bool_(), "int": pa.int64(), "str": pa.string()}
SCORES = _schema((*_KEYS, *((f.name, _SCORE_TYPES[str(f.type)], "") for f in dataclasses.fields(Score))))
_LOOPS: tuple[_Column, ...] = (
    *_KEYS,
    ("repeats", pa.int64(), "Times in a row, at most, that one call got one answer; 0 without a call."),
)
LOOPS, LOOP_MEANINGS = _schema(_LOOPS), _meanings(_LOOPS)
#: The artifact that holds them. Runs of an older version have none until they are rescored.
LOOP_FILE = "scores/loops@1.parquet"
# What a score's columns hold stands with the fields of `Score`.


def episode_table(episodes: Sequence[Episode]) -> pa.Table:
    """One row per episode, in the given order."""
    return _table([_episode_row(episode) for episode in episodes], EPISODES)


def call_table(episodes: Sequence[Episode]) -> pa.Table:
    """One row per turn, and per further call of a turn."""
    turns = [(episode, turn) for episode in episodes for turn in episode.turns]
    return _table([row for pair in turns for row in _call_rows(*pair)], CALLS)


def score_table(episodes: Sequence[Episode], policy: Policy, *, ep_min_calls: int) -> pa.Table:
    """One row per episode: what the policy says of it."""
    rows = [
        _keys(episode) | dataclasses.asdict(score(episode, policy, ep_min_calls=ep_min_calls))
        for episode in episodes
    ]
    return _table(rows, SCORES)


def loop_table(episodes: Sequence[Episode]) -> pa.Table:
    """One row per episode: its longest row of one call with one answer."""
    return _table([_keys(episode) | {"repeats": longest_repeat(episode)} for episode in episodes], LOOPS)


def parquet_bytes(table: pa.Table, *, log_sha256: str, facts: Mapping[str, str] | None = None) -> bytes:
    """The table as a Parquet file that names the log it follows from (metadata `qfr.log_sha256`)."""
    metadata = {"qfr.log_sha256": log_sha256, "qfr.tables_version": str(TABLES_VERSION), **(facts or {})}
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), sink, compression="zstd")
    return sink.getvalue()


def read_parquet(data: bytes | str, *, where: str, log_sha256: str) -> pa.Table:
    """Read a table back, from bytes or from a path.

    Raises
    ------
    LogError
        The file is damaged, or it follows from another log than `log_sha256`.
    """
    try:
        table = pq.ParquetFile(pa.BufferReader(data) if isinstance(data, bytes) else data).read()
    except (pa.ArrowException, OSError) as error:
        raise LogError(
            f"not a Parquet table ({str(error).partition(chr(10))[0]})",
            where=where,
            hint="rebuild it: qfr rescore",
        ) from None
    found = (table.schema.metadata or {}).get(b"qfr.log_sha256", b"").decode("ascii", "replace")
    if found != log_sha256:
        raise LogError(
            f"the table follows from log {found[:12] or '(none)'}, but the run's log is {log_sha256[:12]}",
            where=where,
            hint="it was exchanged or is stale; rebuild it: qfr rescore",
        )
    return table


def to_frame(table: pa.Table) -> pd.DataFrame:
    """As pandas. Columns without nulls have plain types; elsewhere a missing index stays missing (Int32)."""
    return pd.DataFrame(table.to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get))


def _keys(episode: Episode) -> Row:
    site = None if episode.trace is None else episode.trace.site
    return {"task": readable(episode.task), "fault": str(episode.fault), "site": site, "trial": episode.trial}


def _episode_row(episode: Episode) -> Row:
    trace, turns = episode.trace, episode.turns
    channels = Counter(turn.observation.channel for turn in turns)
    lows = [(min(turn.generation.margins), turn.index) for turn in turns if turn.generation.margins]
    low = min(lows, default=(None, None))
    return _keys(episode) | {
        "family": readable(episode.family),
        "site_tool": None if trace is None else readable(trace.tool),
        "ending": str(episode.ending),
        "answer": episode.answer,
        "gold": episode.gold,
        "turns": len(turns),
        "errors": episode.errors,
        **{f"errors_{channel}": channels[channel] for channel in Channel},
        "turns_not_strict": sum(turn.parse is not ParseKind.strict for turn in turns),
        "turns_cut": sum(turn.generation.stop is not StopReason.end_of_generation for turn in turns),
        "control_text": any(turn.generation.control_text for turn in turns),
        "fired": None if trace is None else trace.fired,
        "witnessed": None if trace is None else trace.witnessed,
        "retried": None if trace is None else trace.retried,
        "recovered": None if trace is None else trace.recovered,
        "dead_calls": None if trace is None else trace.dead_calls,
        "tokens_in": sum(turn.generation.prompt_tokens for turn in turns),
        "tokens_out": sum(len(turn.generation.token_ids) for turn in turns),
        "min_margin": low[0],
        "min_margin_turn": low[1],
    }


def _call_rows(episode: Episode, turn: Turn) -> list[Row]:
    """A row per call; the turn's tokens and margins stand in its first."""
    first, *more = [_call_row(episode, turn, step) for step in turn.steps]
    none = {"tokens_in": 0, "tokens_out": 0, "min_margin": None, "min_margin_token": None}
    return [first, *(row | none for row in more)]


def _call_row(episode: Episode, turn: Turn, step: Step) -> Row:
    made, seen, call = turn.generation, step.observation, step.call
    lowest = min(range(len(made.margins)), key=made.margins.__getitem__) if made.margins else None
    return _keys(episode) | {
        "turn": turn.index,
        "parse": str(turn.parse),
        "tool": None if call is None else readable(call.tool),
        "arguments": None if call is None else readable(call.arguments),
        "ok": seen.ok,
        "channel": None if seen.channel is None else str(seen.channel),
        "injected": seen.injected,
        "stop": str(made.stop),
        "tokens_in": made.prompt_tokens,
        "tokens_out": len(made.token_ids),
        "min_margin": None if lowest is None else made.margins[lowest],
        "min_margin_token": lowest,
        "control_text": made.control_text,
    }


def readable(value: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot hold and a model can write, spelled out."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)
