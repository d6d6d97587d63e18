"""Where a sweep leaves its exit code: Hydra does not hand a sweeper's result to its caller."""

from __future__ import annotations

from contextvars import ContextVar

EXIT_CODE: ContextVar[int] = ContextVar("exit_code", default=0)
