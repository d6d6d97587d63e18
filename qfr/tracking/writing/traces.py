"""Episodes as MLflow traces: a span tree per episode in the UI. Optional; the log is the truth.

One trace costs about 0.1 s, and MLflow's background queue drops traces when it is full. So they are written
one by one before the cell is complete, and counted. Their times are the times of writing, not of playing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import mlflow
from mlflow.entities import SpanType, Trace

from qfr.config import Traces
from qfr.journal import sort_key
from qfr.records import Episode, Policy
from qfr.scoring import score
from qfr.tracking.reading.tables import readable
from qfr.tracking.store import Store

_TAG = "qfr.episode"


@dataclass(frozen=True)
class TraceCount:
    """What became of a cell's traces."""

    wanted: int
    stored: int
    # Found in the store afterwards; less than wanted when MLflow lost some.


def log_traces(
    store: Store, run_id: str, episodes: Sequence[Episode], which: Traces, *, ep_min_calls: int
) -> TraceCount:
    """Write one trace per chosen episode to the run; those already there are not written again.

    `failures` means episodes without tolerant success. The caller guards.
    """
    chosen = [
        episode
        for episode in sorted(episodes, key=sort_key)
        if which is Traces.all
        or (
            which is Traces.failures
            and not score(episode, Policy.tolerant, ep_min_calls=ep_min_calls).success
        )
    ]
    if not chosen:
        return TraceCount(0, 0)
    with _global_store(store):
        present = {trace.info.tags.get(_TAG) for trace in _traces(store, run_id)}
        for episode in chosen:
            if _name(episode) not in present:
                _write(store, run_id, episode)
        mlflow.flush_trace_async_logging()
        stored = {trace.info.tags.get(_TAG) for trace in _traces(store, run_id)}
    return TraceCount(len(chosen), len(stored & {_name(episode) for episode in chosen}))


@contextmanager
def _global_store(store: Store) -> Iterator[None]:
    # MLflow's tracing knows only its global store; everything else here names its store.
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(store.tracking_uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)


def _traces(store: Store, run_id: str) -> Iterator[Trace]:
    token: str | None = None
    while True:
        page = store.client.search_traces(
            locations=[store.experiment_id], run_id=run_id, include_spans=False, page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


def _name(episode: Episode) -> str:
    site = "" if episode.trace is None else f" site {episode.trace.site}"
    return f"{episode.task} {episode.fault}{site}"


def _write(store: Store, run_id: str, episode: Episode) -> None:
    client = store.client
    root = client.start_trace(
        _name(episode),
        span_type=SpanType.AGENT,
        inputs={"task": episode.task, "fault": str(episode.fault), "gold": episode.gold},
        tags={_TAG: _name(episode)},
        experiment_id=store.experiment_id,
        run_id=run_id,
    )
    seen = ""
    for turn in episode.turns:
        span = client.start_span(
            f"turn {turn.index}",
            root.trace_id,
            root.span_id,
            span_type=SpanType.LLM,
            inputs={"observation": seen},
        )
        outputs = {"text": readable(turn.generation.text), "parse": str(turn.parse)}
        client.end_span(root.trace_id, span.span_id, outputs=outputs)
        seen = readable("\n".join(step.observation.text for step in turn.steps))
        for step in turn.steps:
            if step.call is None:
                continue
            answer = step.observation
            span = client.start_span(
                readable(step.call.tool),
                root.trace_id,
                root.span_id,
                span_type=SpanType.TOOL,
                inputs={"arguments": step.call.arguments},
                attributes={"channel": str(answer.channel), "injected": str(answer.injected)},
            )
            outputs = {"observation": readable(answer.text)}
            status = "OK" if answer.ok else "ERROR"
            client.end_span(root.trace_id, span.span_id, outputs=outputs, status=status)
    client.end_trace(root.trace_id, outputs={"ending": str(episode.ending), "answer": episode.answer})
