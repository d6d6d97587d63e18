"""Episodes as bytes: the canonical line, the journal that survives a kill, the final log.

The journal holds one line per finished episode, in the order of playing, forced to disk while the next
episode is played. The final `episodes.jsonl` holds the same lines in a fixed order, so an interrupted,
reordered or repeated run ends in the same bytes. Times stand beside it in `timing.jsonl`, never in it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qfr.canonical import canonical, quote
from qfr.errors import LogError
from qfr.records import (
    ACTING_SCHEMA_VERSION,
    NATIVE_SCHEMA_VERSION,
    SCHEMA_VERSION,
    Episode,
    FaultKind,
    Generation,
    Turn,
)
from qfr.typed_json import build

PLAIN_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")
_DAMAGED = "the log is damaged"
JOURNAL_FILE = "journal.jsonl"
TIMING_FILE = "timing.jsonl"
_ORDER = {kind: place for place, kind in enumerate(FaultKind)}
_SCHEMAS = (SCHEMA_VERSION, ACTING_SCHEMA_VERSION, NATIVE_SCHEMA_VERSION)
# Fields that later schemas added: written down only where they hold something.
_LATER = {Generation: ("rewritten", "thought_tokens"), Turn: ("more",), Episode: ("acts",)}


def encode(episode: Episode) -> bytes:
    """One canonical JSON line, newline included.

    An episode holds no Decimal, so the standard encoder writes the same text as `canonical`, faster.
    """
    text = json.dumps(
        episode, default=_fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return text.encode("ascii") + b"\n"


def _fields(record: object) -> dict[str, object]:
    """A record's fields as they are; `dataclasses.asdict` would copy every value."""
    fields = vars(record)
    later = next((names for kind, names in _LATER.items() if isinstance(record, kind)), ())
    empty = [name for name in later if not fields[name]]
    return {name: value for name, value in fields.items() if name not in empty} if empty else fields


def decode(line: bytes, *, where: str) -> Episode:
    """Read one line back.

    Raises
    ------
    LogError
        The line is no JSON object, of another schema version, or a field is missing, unknown or of another
        type.
    """
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(f"not a JSON line ({error})", where=where, hint=_DAMAGED) from None
    if not isinstance(raw, dict) or "schema" not in raw:
        raise LogError("the line is no episode", where=where, hint="is this an episodes.jsonl of qfr?")
    if raw["schema"] not in _SCHEMAS:
        raise LogError(
            f"schema version {quote(str(raw['schema']))}, but this qfr reads versions "
            + ", ".join(map(str, _SCHEMAS)),
            where=where,
            hint="read it with the qfr version that wrote it",
        )
    schema = raw["schema"]
    if schema == SCHEMA_VERSION and "acts" in raw:
        raise LogError("no valid episode: acts under schema 1", where=where, hint=_DAMAGED)
    try:
        episode = build(Episode, raw)
    except (TypeError, ValueError) as error:
        raise LogError(f"no valid episode: {error}", where=where, hint=_DAMAGED) from None
    if schema == ACTING_SCHEMA_VERSION and episode.acts is None:
        raise LogError("no valid episode: Episode.acts is missing", where=where, hint=_DAMAGED)
    native = any(turn.more or turn.generation.thought_tokens for turn in episode.turns)
    if native and schema != NATIVE_SCHEMA_VERSION:
        raise LogError(
            f"no valid episode: several calls or thoughts under schema {schema}", where=where, hint=_DAMAGED
        )
    if episode.acts is None and not PLAIN_NUMBER.fullmatch(episode.gold):
        # Scores compute with it, so it has to be a number here already.
        raise LogError("no valid episode: Episode.gold is no plain decimal", where=where, hint=_DAMAGED)
    return episode


def sort_key(episode: Episode) -> tuple[str, int, int, int]:
    """Fixed order of a log: task, fault, site, trial."""
    site = -1 if episode.trace is None else episode.trace.site
    return (episode.task, _ORDER[episode.fault], site, episode.trial)


def log_bytes(episodes: Iterable[Episode]) -> bytes:
    """The final `episodes.jsonl`: canonical lines in fixed order."""
    return b"".join(encode(episode) for episode in sorted(episodes, key=sort_key))


def read_log(data: bytes, *, where: str) -> tuple[Episode, ...]:
    """All episodes of a complete log.

    Raises
    ------
    LogError
        A line is damaged, or the last line is torn.
    """
    if data and not data.endswith(b"\n"):
        raise LogError("the last line is torn", where=where, hint="the log was cut; fetch or rebuild it")
    lines = data.splitlines()
    return tuple(decode(line, where=f"{where}, line {number}") for number, line in enumerate(lines, 1))


@dataclass(frozen=True)
class _Written:
    """The last line of a journal, which may not be on disk yet."""

    line: bytes
    before: int
    # Size of the file without it, in bytes.
    synced: Future[None]


class Journal:
    """Append-only file of finished episodes of one cell. One writer at a time (the caller holds a lock).

    Parameters
    ----------
    folder : Path
        Folder of the cell; created when missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / JOURNAL_FILE
        self.timing_path = folder / TIMING_FILE
        self.torn_bytes = self._cut_torn_line()
        # Bytes of a torn last line that were cut off (0 = none).
        self._last: _Written | None = None

    def _cut_torn_line(self) -> int:
        if not self.path.exists():
            return 0
        data = self.path.read_bytes()
        keep = data.rfind(b"\n") + 1
        if keep < len(data):
            with self.path.open("r+b") as file:
                file.truncate(keep)
                os.fsync(file.fileno())
        return len(data) - keep

    def episodes(self) -> tuple[Episode, ...]:
        """Finished episodes, in the order of playing."""
        if not self.path.exists():
            return ()
        try:
            return read_log(self.path.read_bytes(), where=str(self.path))
        except LogError as error:
            hint = f"{error.hint}; to play the cell anew, move its folder away"
            raise LogError(error.what, where=error.where, hint=hint) from None

    def append(self, episode: Episode, timing: Mapping[str, str | int | float]) -> None:
        """Write one episode, then its timing line. A killed process loses nothing that was written.

        The line is forced to disk in the background; the next call waits for it, so that a machine that
        loses its power loses two episodes at most: the last that was written, and the one being played.

        Raises
        ------
        OSError
            The disk does not take this line or the one before it, being full perhaps. This one is not
            written then; the call may be repeated.
        """
        self.settle()
        before = {path: _size(path) for path in (self.path, self.timing_path)}
        line = encode(episode)
        try:
            _append(self.path, line)
            _append(self.timing_path, canonical(dict(timing)).encode("ascii") + b"\n")
        except OSError:
            # Half a line would spoil every later one. What cannot be cut now is cut at the next start.
            for path, size in before.items():
                with suppress(OSError):
                    os.truncate(path, size)
            raise
        self._last = _Written(line, before[self.path], _SYNCING.submit(_sync, self.path))

    def settle(self) -> None:
        """Wait until all that was written is on disk; the last line is written again if it did not get there.

        Raises
        ------
        OSError
            The disk does not take it. The call may be repeated.
        """
        if self._last is None:
            return
        try:
            self._last.synced.result()
        except OSError:
            # What a failed sync left in the file's pages may never be written: begin anew.
            os.truncate(self.path, self._last.before)
            _append(self.path, self._last.line)
            _sync(self.path)
        self._last = None


# One thread: it waits for the disk while the engine works.
_SYNCING = ThreadPoolExecutor(1, thread_name_prefix="journal")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _append(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line)


def _sync(path: Path) -> None:
    """Force a file to disk, and its folder too: a new name is safe only once that is on disk."""
    for one in (path, path.parent):
        handle = os.open(one, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
