"""The worker's side of the pipe: runs in the child process, never imported by the parent."""

from __future__ import annotations

import faulthandler
import sys
from multiprocessing.connection import Connection

from qfr.engine import child
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.exactness import examine
from qfr.engine.llama.follow import FollowingEngine
from qfr.engine.llama.streams import LlamaStreams
from qfr.engine.worker import (
    Advance,
    Afresh,
    Answer,
    Begin,
    Close,
    Count,
    Examine,
    Finished,
    Follow,
    Keep,
    Load,
    Reply,
    Request,
)
from qfr.errors import EngineError, QfrError


def _serve(pipe: Connection, log: child.BoundedLog) -> None:
    """Answer requests until the parent closes the pipe. Errors of ours are answers; any other ends us."""
    engine: LlamaEngine | LlamaStreams | None = None
    while True:
        try:
            request = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        if isinstance(request, Close) or (engine is None and not isinstance(request, Load)):
            break
        try:
            if isinstance(request, Load):
                engine = _load(request, LlamaLog(log.write))
                answer: Answer | QfrError = engine.info
            elif isinstance(engine, LlamaStreams):
                answer = _of_streams(engine, request)
            elif engine is not None:
                answer = _of_one(engine, request)
        except QfrError as error:
            answer = error
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
    if engine is not None:
        engine.close()


def _load(request: Load, log: LlamaLog) -> LlamaEngine | LlamaStreams:
    if request.following:
        return FollowingEngine(request.model, request.config, request.n_ctx, log)
    kind = LlamaStreams if request.config.streams > 1 else LlamaEngine
    return kind(request.model, request.config, request.n_ctx, log)


def _of_one(engine: LlamaEngine, request: Request) -> Answer:
    if isinstance(request, Begin):
        return engine.begin(
            request.system, request.task, request.max_tokens, request.forced, request.native, request.trial
        )
    if isinstance(request, Reply):
        return engine.reply(request.told, request.max_tokens, request.forced)
    if isinstance(request, Follow) and isinstance(engine, FollowingEngine):
        return engine.follow(request)
    return _of_any(engine, request)


def _of_streams(engine: LlamaStreams, request: Request) -> Answer:
    if isinstance(request, Advance):
        return Finished(engine.advance(request.asks))
    if isinstance(request, Keep):
        if request.forget:
            engine.forget()
        else:
            engine.keep()
        return engine.counters()
    return _of_any(engine, request)


def _of_any(engine: LlamaEngine | LlamaStreams, request: Request) -> Answer:
    if isinstance(request, Examine):
        return examine(engine)
    if isinstance(request, Afresh):
        engine.evaluate_afresh()
        return engine.info
    if not isinstance(request, Count):
        raise EngineError(
            f"an engine of {'one stream' if isinstance(engine, LlamaEngine) else 'several streams'} "
            f"was asked to {type(request).__name__.lower()}"
        )
    if request.reset:
        engine.reset_counters()
    return engine.counters()


def main(descriptor: int, parent: int) -> None:
    """Run the worker's side of the pipe."""
    child.outlive_signals_not_parent(parent)
    # A crash in llama.cpp leaves the Python stack in the log; an abort of its own has printed its reason.
    faulthandler.enable(sys.stderr, all_threads=False)
    _serve(Connection(descriptor), child.BoundedLog(sys.stderr.fileno()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
