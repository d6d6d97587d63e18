"""Logs of other programs: what they become, counted by hand from small files of the real shape."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qfr.errors import LogError
from qfr.foreign import (
    Excluded,
    FailureKind,
    ForeignRun,
    Options,
    Release,
    Requestor,
    SourceKind,
    read_foreign,
)
from qfr.foreign.failures import classify
from qfr.foreign.measures import (
    BudgetRule,
    Convention,
    budget_curve,
    channel_rates,
    lengths,
    pass_hat_k,
    recovery,
    success,
    task_counts,
    task_trials,
)
from qfr.journal import log_bytes, read_log
from qfr.records import Ending, Policy
from qfr.scoring import score

FIXTURES = Path(__file__).parent / "fixtures"
RETAIL = FIXTURES / "tau2" / "retail_before.json"
TELECOM = FIXTURES / "tau2" / "telecom_since"
V1 = FIXTURES / "tau1" / "gpt-4o-retail.json"


@pytest.fixture
def retail() -> ForeignRun:
    """Single file, before 1.0.1."""
    return read_foreign(RETAIL)


@pytest.fixture
def telecom() -> ForeignRun:
    """Folder form, after 1.0.1, dual control."""
    return read_foreign(TELECOM)


@pytest.fixture
def v1() -> ForeignRun:
    """tau-bench v1."""
    return read_foreign(V1)


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Path]:
    """`edited(change)`: the single file with a change made to its content."""

    def make(change: Callable[[dict], object], base: Path = RETAIL) -> Path:  # type: ignore[type-arg]
        data = json.loads(base.read_text("utf-8"))
        change(data)
        path = tmp_path / "results.json"
        path.write_text(json.dumps(data), "utf-8")
        return path

    return make


def rates(run: ForeignRun) -> dict[str, tuple[int, int, int]]:
    """Events, calls, simulations with an event, by channel; empty channels left out."""
    return {
        each.channel: (each.events, each.calls, each.episodes_with)
        for each in channel_rates(run)
        if each.events
    }
