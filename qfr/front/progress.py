"""What a user sees while cells are played: a bar on a terminal, a line per walk elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class WalkProgress:
    """Progress of one walk, in episodes. The total shrinks when a task fails its clean pass.

    Parameters
    ----------
    console : Console
        Standard error, so that results on standard output stay clean.
    title : str
        `llama q8_0 P0`.
    total : int
        Episodes at most.
    done : int
        Episodes that stand in the journal already.
    """

    def __init__(self, console: Console, title: str, total: int, done: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("episodes"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=total, completed=done, note="")
        self._total = total

    def __enter__(self) -> WalkProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, note: str, dropped: int) -> None:
        """One more episode is played; `dropped` ones will never be, since their task was not certified."""
        self._total -= dropped
        self._bar.update(self._task, advance=1, total=self._total, note=note)
