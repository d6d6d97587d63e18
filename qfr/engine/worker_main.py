"""The worker's side of the pipe: runs in the child process, never imported by the parent."""

from __future__ import annotations

import faulthandler
import sys
from multiprocessing.connection import Connection

from qfr.engine import child
from qfr.engine.base import Counters, EngineInfo
from qfr.engine.llama import LlamaEngine
from qfr.engine.llama_api import LlamaLog
from qfr.engine.worker import Begin, Close, Load, Reply
from qfr.errors import QfrError
from qfr.records import Generation


def _serve(pipe: Connection, log: child.BoundedLog) -> None:
    """Answer requests until the parent closes the pipe. Errors of ours are answers; any other ends us."""
    engine: LlamaEngine | None = None
    while True:
        try:
            request = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            if isinstance(request, Load):
                engine = LlamaEngine(request.model, request.config, request.n_ctx, LlamaLog(log.write))
                answer: Generation | Counters | EngineInfo | QfrError = engine.info
            elif isinstance(request, Close) or engine is None:
                break
            elif isinstance(request, Begin):
                answer = engine.begin(request.system, request.task, request.max_tokens, request.forced)
            elif isinstance(request, Reply):
                answer = engine.reply(request.observation, request.max_tokens, request.forced)
            else:
                if request.reset:
                    engine.reset_counters()
                answer = engine.counters()
        except QfrError as error:
            answer = error
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
    if engine is not None:
        engine.close()


def main(descriptor: int, parent: int) -> None:
    """Run the worker's side of the pipe."""
    child.outlive_signals_not_parent(parent)
    # A crash in llama.cpp leaves the Python stack in the log; an abort of its own has printed its reason.
    faulthandler.enable(sys.stderr, all_threads=False)
    _serve(Connection(descriptor), child.BoundedLog(sys.stderr.fileno()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
