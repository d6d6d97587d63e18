"""The engine in a process of its own: what llama.cpp does to that process costs one cell, not the sweep."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from qfr.config import EngineConfig
from qfr.engine import child
from qfr.engine.base import Answered, Ask, Counters, EngineInfo, Exactness, Followed, Native, Past
from qfr.engine.files.gguf import ModelFile
from qfr.errors import EngineError, MachineryError, QfrError, WorkerDied
from qfr.records import Generation

# Seconds that a worker gets to free its model before it is killed.
_CLOSING_SECONDS = 10.0


@dataclass(frozen=True)
class Load:
    """Load a model."""

    model: ModelFile
    config: EngineConfig
    n_ctx: int
    following: bool = False
    # It reads written turns instead of writing its own.


@dataclass(frozen=True)
class Begin:
    """Open an episode."""

    system: str
    task: str
    max_tokens: int
    forced: str | None
    native: Native | None
    trial: int


@dataclass(frozen=True)
class Reply:
    """Go on with what the last turn is told."""

    told: str | Past
    max_tokens: int
    forced: str | None


@dataclass(frozen=True)
class Follow:
    """Read a turn that another engine wrote."""

    opening: tuple[str, str, Native | None] | None
    # System message, task and tools where it opens an episode; None where it goes on.
    told: str | Past
    # What the turn before is told; not looked at where an episode opens.
    written: Generation
    apart: bool
    # Evaluate it token by token, as it would be written; else in one batch.
    rows: bool
    # Also the log-probabilities of all tokens.


@dataclass(frozen=True)
class Advance:
    """Take messages for streams and go on until a turn is finished."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True)
class Finished:
    """Turns that streams have finished."""

    answers: tuple[Answered, ...]


@dataclass(frozen=True)
class Keep:
    """Keep the transcripts of all streams, or let go of those that were kept."""

    forget: bool


@dataclass(frozen=True)
class Count:
    """Tell the counters, after a reset if asked."""

    reset: bool


@dataclass(frozen=True)
class Examine:
    """Try whether forks are exact."""


@dataclass(frozen=True)
class Afresh:
    """Do without forks from now on."""


@dataclass(frozen=True)
class Close:
    """Free the model and end."""


Request = Load | Begin | Reply | Follow | Advance | Keep | Count | Examine | Afresh | Close
Answer = Generation | Followed | Finished | Counters | EngineInfo | Exactness
_Answer = TypeVar("_Answer", Generation, Followed, Finished, Counters, EngineInfo, Exactness)


class WorkerEngine:
    """A GGUF loaded in a child process. Implements `qfr.engine.base.Engine`, and with more than one stream
    `qfr.engine.base.StreamEngine` in its place.

    Parameters
    ----------
    model : ModelFile
        Resolved and verified file.
    config : EngineConfig
        How tokens are evaluated.
    n_ctx : int
        Context length in tokens.

    Raises
    ------
    ModelFileError
        llama.cpp cannot load the file, its context is too short, or its chat template does not serve.
    EngineError
        No memory for the context.
    WorkerDied
        The process ended while it loaded.
    """

    _following = False

    def __init__(self, model: ModelFile, config: EngineConfig, n_ctx: int) -> None:
        self._model = model
        # Without a name: nothing is left of it, however this process ends.
        self._log, name = tempfile.mkstemp(prefix="qfr-engine-")
        Path(name).unlink()
        ours, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self._process = subprocess.Popen(
                child.command("qfr.engine.worker_main", str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                env=child.environment(),
            )
        self._pipe = Connection(ours.detach())
        self._busy = self._closed = False
        try:
            self._info = self._ask(Load(model, config, n_ctx, self._following), EngineInfo)
        except (QfrError, KeyboardInterrupt):
            self.close()
            raise

    @property
    def info(self) -> EngineInfo:
        """What answers."""
        return self._info

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the worker can be asked, or is just answering."""
        return not self._closed and self._process.poll() is None

    @property
    def interrupted(self) -> bool:
        """Whether a question was broken off, so that the worker cannot be asked again."""
        return self._busy

    def begin(
        self,
        system: str,
        task: str,
        max_tokens: int,
        forced: str | None = None,
        native: Native | None = None,
        trial: int = 0,
    ) -> Generation:
        """Open an episode's transcript and generate its first turn."""
        return self._ask(Begin(system, task, max_tokens, forced, native, trial), Generation)

    def reply(self, told: str | Past, max_tokens: int, forced: str | None = None) -> Generation:
        """Append what the last turn is told and generate the next turn."""
        return self._ask(Reply(told, max_tokens, forced), Generation)

    def advance(self, asks: tuple[Ask, ...]) -> tuple[Answered, ...]:
        """Take messages for streams, and go on until at least one turn is finished."""
        return self._ask(Advance(asks), Finished).answers

    def keep(self) -> None:
        """Keep the transcripts that the streams hold now."""
        self._ask(Keep(forget=False), Counters)

    def forget(self) -> None:
        """Let go of the transcripts that were kept."""
        self._ask(Keep(forget=True), Counters)

    def counters(self) -> Counters:
        """Work so far."""
        return self._ask(Count(reset=False), Counters)

    def reset_counters(self) -> None:
        """Start counting anew."""
        self._ask(Count(reset=True), Counters)

    def examine(self) -> Exactness:
        """Try whether forks are exact. What the engine held of earlier episodes is gone afterwards."""
        return self._ask(Examine(), Exactness)

    def evaluate_afresh(self) -> None:
        """Do without forks from now on: every episode is evaluated from its start."""
        self._info = self._ask(Afresh(), EngineInfo)

    def note(self, exactness: str) -> None:
        """Put down what a trial of its forks showed."""
        self._info = replace(self._info, exactness=exactness)

    def peak_memory_bytes(self) -> int | None:
        """Largest resident size of the worker so far; None when the system does not tell or it has ended."""
        status = Path(f"/proc/{self._process.pid}/status")
        try:
            lines = status.read_text("ascii", "replace").splitlines()
        except OSError:
            return None
        kilobytes = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
        return kilobytes[0] * 1024 if kilobytes else None

    def close(self) -> None:
        """End the process and with it all memory of the model. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if not self._busy and self._process.poll() is None:
            try:
                self._pipe.send(Close())
                self._process.wait(_CLOSING_SECONDS)
            except (BrokenPipeError, ConnectionResetError, subprocess.TimeoutExpired):
                self._process.kill()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._pipe.close()
        os.close(self._log)

    def _ask(self, request: Request, kind: type[_Answer]) -> _Answer:
        if self._closed:
            raise EngineError("the engine has been closed", where=str(self._model.path))
        if self._busy:
            # An earlier question was interrupted: its answer may still come and would be taken for ours.
            raise EngineError(
                "the engine was interrupted and has to be loaded again", where=str(self._model.path)
            )
        self._busy = True
        try:
            self._pipe.send(request)
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._death() from None
        self._busy = False
        if isinstance(answer, QfrError):
            raise answer
        if not isinstance(answer, kind):
            raise EngineError(
                f"the engine's process answered {type(answer).__name__} to a {type(request).__name__}"
            )
        return answer

    def _death(self) -> MachineryError:
        try:
            code = self._process.wait(_CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        log = os.pread(self._log, os.fstat(self._log).st_size, 0)
        lines = child.last_lines(log)
        told = f"; its log is {_kept(log)}, the last lines:\n{lines}" if lines else ""
        return WorkerDied(
            f"the engine's process ended ({child.describe_exit(code)}){told}",
            where=str(self._model.path),
            hint="run the same command again: finished work is kept",
        )


def _kept(log: bytes) -> Path:
    """A file with the log of a worker that has died."""
    handle, name = tempfile.mkstemp(prefix="qfr-engine-", suffix=".log")
    with os.fdopen(handle, "wb") as file:
        file.write(log)
    return Path(name)


class FollowingWorker(WorkerEngine):
    """A GGUF in a child process that reads turns which another engine wrote, and tells its own choices."""

    _following = True

    def follow(self, ask: Follow) -> Followed:
        """Read a turn behind the path of the episode so far.

        Raises
        ------
        EngineError
            The turn is of another vocabulary, or does not fit into the context.
        WorkerDied
            The process ended.
        """
        return self._ask(ask, Followed)
