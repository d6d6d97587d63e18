"""The exception tree. Everything that qfr raises on purpose is a `QfrError`.

    QfrError
    ├── UserError                 the user can mend it; printed without a traceback, exit code 2
    │   ├── ConfigError           a key, value or combination in the configuration
    │   ├── ModelFileError        a GGUF is missing, damaged or of the wrong kind
    │   ├── PromptError           a prompt file is missing or not the pinned one
    │   ├── LogError              an episode log is damaged, foreign or of another schema
    │   ├── TableError            a table of results handed in from outside is malformed
    │   ├── TrackingError         the MLflow store cannot be reached, read or written
    │   │   └── StoreAway         … for now: waiting may help
    │   └── RegistrationError     a registration is missing or changed, or what runs is not what it froze
    └── MachineryError            something broke while a cell ran; the cell is FAILED, never a zero
        ├── EngineError           the engine answered with an error or with non-finite logits
        └── WorkerDied            the engine's process ended (assert, segfault, out of memory)

`NotEstimable` is no exception: a quantity that cannot be estimated is `None` with a reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class QfrError(Exception):
    """Base of all errors that qfr raises on purpose.

    Parameters
    ----------
    what : str
        What is wrong, naming the key, file or value.
    where : str or None
        Where it stands: a file, a key, a line, a run.
    hint : str or None
        What to do next.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        text = self.what if self.where is None else f"{self.where}: {self.what}"
        return text if self.hint is None else f"{text}\n  → {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross the process boundary between the engine's worker and its parent.
        return (_rebuild, (type(self), self.what, self.where, self.hint))


def _rebuild(kind: type[QfrError], what: str, where: str | None, hint: str | None) -> QfrError:
    return kind(what, where=where, hint=hint)


class UserError(QfrError):
    """The user can mend it."""


class ConfigError(UserError):
    """A key, a value or a combination in the configuration is wrong."""


class ModelFileError(UserError):
    """A GGUF file is missing, damaged or of the wrong kind."""


class PromptError(UserError):
    """A prompt file is missing or differs from the pinned one."""


class LogError(UserError):
    """An episode log is damaged, foreign or of another schema version."""


class TableError(UserError):
    """A table of results handed in from outside is malformed."""


class TrackingError(UserError):
    """The MLflow store cannot be reached, read or written."""


class StoreAway(TrackingError):
    """The store does not answer, is locked, full or broken for now: the same call may work later."""


class RegistrationError(UserError):
    """A registration is missing or changed, or what would run is not what it froze."""


class MachineryError(QfrError):
    """Something broke while a cell ran. The cell is FAILED; it never counts as an unsuccessful episode."""


class EngineError(MachineryError):
    """The engine answered with an error or with non-finite logits."""


class WorkerDied(MachineryError):
    """The engine's process ended while it worked."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest choice, or an empty string when none is near."""
    by_fold = {choice.casefold(): choice for choice in choices}
    near = difflib.get_close_matches(word.casefold(), list(by_fold), n=1, cutoff=0.6)
    return f" (did you mean {by_fold[near[0]]!r}?)" if near else ""
